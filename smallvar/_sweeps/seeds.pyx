"""The farthest-first rule: squared distances of all rows to the nearest of a growing set of seeds.

KJ12 is Kulis & Jordan (2012).
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL

from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport Rows, entries_of, entry, point, poll_signals, real_x, rows_of
from smallvar._sweeps.sparse cimport TILE_ROWS, exact_distances_of_chunk
from smallvar._sweeps.state cimport CHUNK, WORK, squared_distance
from smallvar._sweeps.tolerances cimport ROUNDOFF_DOUBLE

import numpy as np
from scipy.sparse import issparse


def nearest_seed(X, const double[::1] weight, const double[::1] seed, double[::1] distance, int n_threads):
    """One step of the farthest-first rule (KJ12 section 6.1): add a seed, find the point farthest from all seeds.

    Returns the point with the largest weighted distance, and that distance.

    X : IN array or CSR rows (n, d);  seed : IN array (d,)
    weight : IN array (n,) or None, rows of weight zero are left out
    distance : INOUT array (n,), squared distance to the nearest seed so far
    """
    if issparse(X):
        return nearest_of_sparse(X, weight, seed, distance, n_threads)
    return nearest_of_dense(X, weight, seed, distance, n_threads)


# ---- dense rows ------------------------------------------------------------------------------------------------------


cdef struct Farthest:       # the point with the largest weighted distance
    double distance         # weighted; -1: there is no point of positive weight
    Py_ssize_t index        # the first one at a tie


cdef Farthest compare_points(
    const Rows* rows, const real_x* x, Py_ssize_t chunk, const double* seed, double* distance
) noexcept nogil:
    """distance[i] = min(distance[i], ||x_i - seed||^2) for the points of a chunk; returns the farthest of them."""
    cdef Py_ssize_t i, farthest = -1, d = rows.d, col = rows.col
    cdef double t, largest = -1.0
    cdef const double* weight = rows.weight
    for i in range(chunk * CHUNK, min(rows.n, (chunk + 1) * CHUNK)):
        if weight != NULL and weight[i] == 0.0:
            continue
        # exact distances, so that ties are the same for any layout of the rows
        t = squared_distance(point(x, rows, i), col, seed, d)
        if t < distance[i]:
            distance[i] = t
        t = distance[i] if weight == NULL else weight[i] * distance[i]
        if t > largest:
            largest = t
            farthest = i
    return Farthest(largest, farthest)


cdef void compare_chunk(
    const Rows* rows, Py_ssize_t chunk, int thread, const double* seed, double* distance, Farthest* farthest
) noexcept nogil:
    """The farthest point of a chunk, to farthest[chunk]."""
    if rows.single:
        farthest[chunk] = compare_points(rows, <const float*> rows.x, chunk, seed, distance)
    else:
        farthest[chunk] = compare_points(rows, <const double*> rows.x, chunk, seed, distance)


cdef tuple nearest_of_dense(X, const double[::1] weight, const double[::1] seed, double[::1] distance, int n_threads):
    cdef Rows rows = rows_of(X, weight, None)
    cdef Py_ssize_t n_chunks = (rows.n + CHUNK - 1) // CHUNK, first = 0, last, work = 0, chunk
    cdef int threads = n_threads if 8 * rows.n * rows.d > PAYS else 1
    cdef char[::1] memory = np.empty(n_chunks * sizeof(Farthest), dtype=np.int8)
    cdef Farthest* of_chunk = <Farthest*> &memory[0]   # n_chunks
    cdef Farthest farthest = Farthest(-1.0, -1)
    cdef ParallelLoop loop
    while first < n_chunks:
        last = min(n_chunks, first + max(1, WORK // (CHUNK * rows.d)))
        with nogil:
            loop = begin_loop(last - first, threads)
            for chunk in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                compare_chunk(&rows, chunk, begin_chunk(&loop), &seed[0], &distance[0], of_chunk)
            end_loop(&loop)
            poll_signals(&work, 1, 0)
        first = last
    for chunk in range(n_chunks):  # in order, so that the first point wins a tie
        if of_chunk[chunk].distance > farthest.distance:
            farthest = of_chunk[chunk]
    return farthest.index, farthest.distance


# ---- sparse rows -----------------------------------------------------------------------------------------------------


cdef struct SparseSeed:
    const double* value     # entries that are not 0
    const int* column       # their columns, ascending
    Py_ssize_t size         # how many there are
    const double* dense     # d: the same with its zeros
    double square           # squared norm


cdef double merged_distance(const Rows* rows, Py_ssize_t i, const SparseSeed* seed) noexcept nogil:
    """Squared distance of sparse point i to the seed, added up in the order of the columns.

    Columns in which both are 0 are left out: they add 0, so the bits are those of the distance in dense rows.
    """
    cdef Py_ssize_t stop, m = entries_of(rows, i, &stop), q = 0
    cdef double t, total = 0.0
    # both lists are ascending: the lesser column comes next
    while m < stop or q < seed.size:
        if q == seed.size or (m < stop and rows.column[m] < seed.column[q]):
            t = entry(rows, m)
            m += 1
        elif m == stop or seed.column[q] < rows.column[m]:
            t = -seed.value[q]
            q += 1
        else:
            t = entry(rows, m) - seed.value[q]
            m += 1
            q += 1
        total += t * t
    return total


cdef void merge_chunk(
    const Rows* rows, Py_ssize_t chunk, const SparseSeed* seed, const double* nearest, double* out
) noexcept nogil:
    """Squared distances of a chunk's points to the seed, or infinity where one is surely not below ``nearest``.

    ||x - s||^2 is the sum of (x_j - s_j)^2 over the entries of x, plus ||s||^2 less the squares of s in these columns:
    a few operations, good to the roundings that ``error`` bounds. Mostly that shows that the seed is not nearer.
    """
    cdef Py_ssize_t i, m, begin, stop
    cdef double t, total, inside, error, shared = seed.size + 16
    for i in range(chunk * CHUNK, min(rows.n, (chunk + 1) * CHUNK)):
        begin = entries_of(rows, i, &stop)
        total = inside = 0.0
        for m in range(begin, stop):
            t = entry(rows, m) - seed.dense[rows.column[m]]
            total += t * t
            inside += seed.dense[rows.column[m]] * seed.dense[rows.column[m]]
        error = 4.0 * ROUNDOFF_DOUBLE * (stop - begin + shared) * (total + seed.square)
        if total + (seed.square - inside) - error > nearest[i]:
            out[i] = HUGE_VAL
        else:
            out[i] = merged_distance(rows, i, seed)


cdef void compare_sparse_chunk(
    const Rows* rows, Py_ssize_t chunk, int thread, const SparseSeed* seed, bint few, const double* nearest,
    double* tiles, double* out
) noexcept nogil:
    """Squared distances of a chunk's points to the seed; infinity may stand for one that is not below ``nearest``.

    tiles : zeros, TILE_ROWS d numbers for each thread
    """
    if few:
        merge_chunk(rows, chunk, seed, nearest, out)
    else:
        exact_distances_of_chunk(
            rows, seed.dense, NULL, NULL, chunk, tiles + thread * (TILE_ROWS * rows.d), out
        )


cdef tuple nearest_of_sparse(X, const double[::1] weight, const double[::1] seed, double[::1] distance, int n_threads):
    cdef Rows rows = rows_of(X, weight, None)
    cdef Py_ssize_t n = rows.n, d = rows.d, n_chunks = (n + CHUNK - 1) // CHUNK, first = 0, last, work = 0, chunk
    cdef int threads = n_threads if 8 * n * d > PAYS else 1
    cdef ParallelLoop loop
    used = np.flatnonzero(seed)
    cdef bint few = 16 * len(used) < d  # then it is faster to go through the entries of both
    cdef const int[::1] column = np.append(used, 0).astype(np.int32)
    cdef const double[::1] value = np.append(np.asarray(seed)[used], 0.0)
    cdef SparseSeed sparse_seed = SparseSeed(&value[0], &column[0], len(used), &seed[0], np.square(value).sum())
    cdef double[:, ::1] tiles = np.zeros((threads, 1 if few else TILE_ROWS * d))
    seed_distances = np.empty(n)
    cdef double[::1] to_seed = seed_distances
    while first < n_chunks:
        last = min(n_chunks, first + max(<Py_ssize_t> threads, WORK // (CHUNK * d)))
        with nogil:
            loop = begin_loop(last - first, threads)
            for chunk in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                compare_sparse_chunk(
                    &rows, chunk, begin_chunk(&loop), &sparse_seed, few, &distance[0], &tiles[0, 0], &to_seed[0]
                )
            end_loop(&loop)
            poll_signals(&work, 1, 0)
        first = last
    nearest = np.asarray(distance)
    if weight is None:
        np.minimum(nearest, seed_distances, out=nearest)
        best = int(nearest.argmax())
        return best, float(nearest[best])
    used = np.flatnonzero(weight)
    nearest[used] = np.minimum(nearest[used], seed_distances[used])
    weighted = np.asarray(weight)[used] * nearest[used]
    best = int(weighted.argmax())
    return int(used[best]), float(weighted[best])
