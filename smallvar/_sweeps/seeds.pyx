"""The farthest-first rule: distances of all rows from one more seed.

KJ12 is Kulis & Jordan (2012).
"""

from libc.math cimport HUGE_VAL

from smallvar._sweeps.pool cimport PAYS, run
from smallvar._sweeps.rows cimport Rows, entries_of, entry, point, poll_signals, real_x, rows_of
from smallvar._sweeps.sparse cimport Tiling, tile_item, tile_numbers
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


cdef struct Seeding:
    Rows rows
    const double* seed          # d: the newest one
    double* distance            # n: to the nearest seed
    double* farthest_distance   # of each chunk
    Py_ssize_t* farthest_index


cdef void nearest_seed_chunk(const real_x* x, const Seeding* a, Py_ssize_t chunk) noexcept nogil:
    """distance[i] = min(distance[i], ||x_i - seed||^2); the largest one and its first index."""
    cdef Py_ssize_t i, index = -1
    cdef double t, largest = -1.0
    for i in range(chunk * CHUNK, min(a.rows.n, (chunk + 1) * CHUNK)):
        if a.rows.weight != NULL and a.rows.weight[i] == 0.0:
            continue
        t = squared_distance(point(x, &a.rows, i), a.rows.col, a.seed, a.rows.d)
        if t < a.distance[i]:
            a.distance[i] = t
        t = a.distance[i] if a.rows.weight == NULL else a.rows.weight[i] * a.distance[i]
        if t > largest:
            largest = t
            index = i
    a.farthest_distance[chunk] = largest
    a.farthest_index[chunk] = index


cdef void nearest_seed_item(void* context, Py_ssize_t chunk, int slot) noexcept nogil:
    cdef const Seeding* a = <const Seeding*> context
    if a.rows.single:
        nearest_seed_chunk(<const float*> a.rows.x, a, chunk)
    else:
        nearest_seed_chunk(<const double*> a.rows.x, a, chunk)


cdef tuple nearest_of_dense(X, const double[::1] weight, const double[::1] seed, double[::1] distance, int n_threads):
    cdef Py_ssize_t n = X.shape[0], chunks = (n + CHUNK - 1) // CHUNK, c, best_index = -1
    cdef Py_ssize_t first = 0, last, work = 0
    cdef double best = -1.0
    cdef double[::1] farthest_distance = np.empty(chunks)
    cdef Py_ssize_t[::1] farthest_index = np.empty(chunks, dtype=np.intp)
    cdef Seeding a
    a.rows = rows_of(X, weight, None)
    a.seed, a.distance, a.farthest_distance, a.farthest_index = (
        &seed[0], &distance[0], &farthest_distance[0], &farthest_index[0]
    )
    while first < chunks:
        last = min(chunks, first + max(1, WORK // (CHUNK * X.shape[1])))
        with nogil:
            run(nearest_seed_item, &a, first, last, n_threads if 8 * n * a.rows.d > PAYS else 1)
            poll_signals(&work, 1, 0)
        first = last
    for c in range(chunks):
        if farthest_distance[c] > best:
            best = farthest_distance[c]
            best_index = farthest_index[c]
    return best_index, best


# ---- sparse rows -----------------------------------------------------------------------------------------------------


cdef struct Merging:        # deciding distances of all points from one that has few entries that are not 0
    const Rows* rows
    const double* value     # these entries
    const int* column       # their columns, ascending
    Py_ssize_t size
    const double* dense     # d: the same with its zeros
    double square           # its squared norm
    const double* nearest   # n: a distance that is surely not below this need not be known
    double* out             # n, or HUGE_VAL


cdef void merge_item(void* context, Py_ssize_t block, int slot) noexcept nogil:
    """Columns where both are 0 add nothing to the deciding distance, so they can be left out."""
    cdef const Merging* a = <const Merging*> context
    cdef const int* column = a.rows.column
    cdef Py_ssize_t i, m, stop, q
    cdef double total, t, inside, shared = a.size + 16
    for i in range(block * CHUNK, min(a.rows.n, (block + 1) * CHUNK)):
        m = entries_of(a.rows, i, &stop)
        total = inside = 0.0
        for q in range(m, stop):  # as near does
            t = entry(a.rows, q) - a.dense[column[q]]
            total += t * t
            inside += a.dense[column[q]] * a.dense[column[q]]
        t = 4.0 * ROUNDOFF_DOUBLE * (stop - m + shared) * (total + a.square)
        a.out[i] = HUGE_VAL
        if total + (a.square - inside) - t > a.nearest[i]:
            continue
        q = 0
        total = 0.0
        while m < stop or q < a.size:
            if q == a.size or (m < stop and column[m] < a.column[q]):
                t = entry(a.rows, m)
                m += 1
            elif m == stop or a.column[q] < column[m]:
                t = -a.value[q]
                q += 1
            else:
                t = entry(a.rows, m) - a.value[q]
                m += 1
                q += 1
            total += t * t
        a.out[i] = total


cdef tuple nearest_of_sparse(X, const double[::1] weight, const double[::1] seed, double[::1] distance, int n_threads):
    cdef Py_ssize_t n = X.shape[0], d = X.shape[1], chunks = (n + CHUNK - 1) // CHUNK, first = 0, last, work = 0
    cdef int threads = n_threads if 8 * n * d > PAYS else 1
    cdef Rows rows = rows_of(X, weight, None)
    used = np.flatnonzero(seed)
    cdef bint few = 16 * len(used) < d
    cdef const int[::1] column = np.append(used, 0).astype(np.int32)
    cdef const double[::1] value = np.append(np.asarray(seed)[used], 0.0)
    cdef double[:, ::1] tiles = np.zeros((threads, 1 if few else tile_numbers(d)))
    found_array = np.empty(n)
    cdef double[::1] found = found_array
    cdef Tiling a = Tiling(&rows, &seed[0], NULL, NULL, n, <char*> &tiles[0, 0], 8 * tile_numbers(d), &found[0])
    cdef double square = np.square(value).sum()
    cdef Merging b = Merging(&rows, &value[0], &column[0], len(used), &seed[0], square, &distance[0], &found[0])
    while first < chunks:
        last = min(chunks, first + max(<Py_ssize_t> threads, WORK // (CHUNK * d)))
        with nogil:
            if few:
                run(merge_item, &b, first, last, threads)
            else:
                run(tile_item, &a, first, last, threads)
            poll_signals(&work, 1, 0)
        first = last
    nearest = np.asarray(distance)
    if weight is None:
        np.minimum(nearest, found_array, out=nearest)
        best = int(nearest.argmax())
        return best, float(nearest[best])
    used = np.flatnonzero(weight)
    nearest[used] = np.minimum(nearest[used], found_array[used])
    weighted = np.asarray(weight)[used] * nearest[used]
    best = int(weighted.argmax())
    return int(used[best]), float(weighted[best])
