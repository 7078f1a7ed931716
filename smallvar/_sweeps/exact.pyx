"""Exact squared distances of rows to all centers, for transform and for the labels of few rows; and to seeds.

Each is a chain of additions in the order of the columns, as everywhere (see _exact.h); those of many centers go side
by side. All distances of few rows take less time than the tables of a sweep, which does without most of them. KJ12 is
Kulis & Jordan (2012).
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL

from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport Rows, entries_of, entry, is_sparse, point, poll_signals, real_x, row_at, rows_of
from smallvar._sweeps.sparse cimport TILE_ROWS, exact_distances_of_chunk
from smallvar._sweeps.state cimport CHUNK, WORK, squared_distance
from smallvar._sweeps.tolerances cimport ROUNDOFF_DOUBLE

import numpy as np

cdef extern from "_exact.h" nogil:
    void sc_squares(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, double*)
    double sc_roots_f(Py_ssize_t, const double*, float*)
    double sc_roots_d(Py_ssize_t, const double*, double*)

cdef enum:
    PANEL = 32              # centers whose values of a column lie side by side: four vectors, as sc_squares takes them
    EXACT_LANES = 8         # distances are computed to a multiple of so many centers; the last may be none
    EXACT_CHUNK = 32        # rows that are compared with a panel while it stays in the cache
    EXACT_WORK = 1 << 28    # multiply-adds between two checks for signals
    SPACED = 8              # numbers from what one thread writes to what the next one does: a cache line

cdef extern from *:
    """
    #define SMALLVAR_LEAST_SQUARE 1e-270
    #define SMALLVAR_LARGEST_SQUARE 1e120
    """
    # of the largest squared distance: within, no frame of these rows and centers would refuse them (RowsFrame)
    const double LEAST_SQUARE "SMALLVAR_LEAST_SQUARE"
    const double LARGEST_SQUARE "SMALLVAR_LARGEST_SQUARE"


cdef panels_of(const double[:, ::1] centers):
    """The centers in panels: value j of center k at [k // PANEL, j, k % PANEL]; the last panel is filled up with 0."""
    cdef Py_ssize_t k, j, n = centers.shape[0], d = centers.shape[1]
    cdef double[:, :, ::1] panels = np.zeros(((n + PANEL - 1) // PANEL, d, PANEL))
    for k in range(n):
        for j in range(d):
            panels[k // PANEL, j, k % PANEL] = centers[k, j]
    return panels


cdef inline Py_ssize_t squares_of_panel(
    const double* x, Py_ssize_t d, const double* panels, Py_ssize_t first, Py_ssize_t k, double* out
) noexcept nogil:
    """Squared distances of a row to the centers from ``first`` on that are in one panel; returns how many these are."""
    cdef Py_ssize_t size = min(<Py_ssize_t> PANEL, k - first)
    sc_squares(x, d, panels + first * d, PANEL, (size + EXACT_LANES - 1) // EXACT_LANES * EXACT_LANES, out)
    return size


# ---- labels of few rows ----------------------------------------------------------------------------------------------


def nearest_of_few(X, const double[:, ::1] centers):
    """The nearest center of each row, the first one at a tie, and the squared distance to it: two arrays (n,).

    None where squared distances may be beyond the range in which a sweep computes: that says what is wrong.

    X : IN array (n, d);  centers : IN array (k, d)
    """
    cdef Rows rows = rows_of(X, None, None)
    cdef Py_ssize_t k = centers.shape[0], d = rows.d, i, m, first, size
    if k == 0 or centers.shape[1] != d:
        raise ValueError(f"centers must be some, of {d} columns, got {k} of {centers.shape[1]}")
    cdef double[:, :, ::1] panels = panels_of(centers)
    cdef double[::1] buffer = np.empty(d), distances = np.empty(rows.n)
    cdef int[::1] labels = np.empty(rows.n, dtype=np.int32)
    cdef double[PANEL] squares
    cdef double least, largest = 0.0
    cdef const double* x
    cdef int nearest
    with nogil:
        for i in range(rows.n):
            x = row_at(&rows, i, &buffer[0])
            least, nearest, first = HUGE_VAL, 0, 0
            while first < k:
                size = squares_of_panel(x, d, &panels[0, 0, 0], first, k, squares)
                for m in range(size):
                    largest = max(largest, squares[m])
                    if squares[m] < least:
                        least, nearest = squares[m], <int> (first + m)
                first += PANEL
            labels[i], distances[i] = nearest, least
    if not LEAST_SQUARE < largest < LARGEST_SQUARE:
        return None
    return np.asarray(labels), np.asarray(distances)


# ---- all distances ---------------------------------------------------------------------------------------------------


cdef void distances_of_chunk(
    const Rows* rows, const double* panels, Py_ssize_t k, Py_ssize_t chunk, int thread, double* buffer, real_x* out,
    double* largest, bint squared
) noexcept nogil:
    """Distances, ``squared`` or not, of a chunk's rows to all centers.

    buffer : EXACT_CHUNK d numbers for each thread
    INOUT largest : of each thread, SPACED apart, the largest distance so far
    """
    cdef const double* x[EXACT_CHUNK]
    cdef double[PANEL] squares
    cdef Py_ssize_t start = chunk * EXACT_CHUNK, size = min(<Py_ssize_t> EXACT_CHUNK, rows.n - chunk * EXACT_CHUNK)
    cdef Py_ssize_t d = rows.d, first = 0, count, l, m
    cdef double norm
    buffer, largest, out = buffer + thread * EXACT_CHUNK * d, largest + thread * SPACED, out + start * k
    for m in range(size):
        x[m] = row_at(rows, start + m, buffer + m * d)
    while first < k:
        for m in range(size):
            count = squares_of_panel(x[m], d, panels, first, k, squares)
            if squared:
                for l in range(count):
                    out[m * k + first + l] = <real_x> squares[l]
                continue
            if real_x is float:
                norm = sc_roots_f(count, squares, out + m * k + first)
            else:
                norm = sc_roots_d(count, squares, out + m * k + first)
            largest[0] = max(largest[0], norm)
        first += PANEL


def distances_to_centers(X, const double[:, ::1] centers, real_x[:, ::1] out, int n_threads, bint squared=False):
    """Write the distances of all rows to all centers; returns the largest one before it is rounded, 0 if ``squared``.

    X : IN array (n, d);  centers : IN array (k, d);  out : OUT array (n, k)
    """
    cdef Rows rows = rows_of(X, None, None)
    cdef Py_ssize_t k = centers.shape[0], n_chunks = (rows.n + EXACT_CHUNK - 1) // EXACT_CHUNK, first = 0
    cdef Py_ssize_t last, chunk, work = 0
    if centers.shape[1] != rows.d or out.shape[0] != rows.n or out.shape[1] != k:
        raise ValueError("X, centers and out must match")
    cdef double[:, :, ::1] panels = panels_of(centers)
    cdef int threads = n_threads if rows.n * k * rows.d > PAYS else 1
    cdef double[::1] buffer = np.empty(threads * EXACT_CHUNK * rows.d), largest = np.zeros(threads * SPACED)
    cdef Py_ssize_t step = max(<Py_ssize_t> 2 * threads, EXACT_WORK // (EXACT_CHUNK * k * rows.d))
    cdef ParallelLoop loop
    with nogil:
        while first < n_chunks:
            last = min(n_chunks, first + step)
            loop = begin_loop(last - first, threads)
            for chunk in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                distances_of_chunk(
                    &rows, &panels[0, 0, 0], k, chunk, begin_chunk(&loop), &buffer[0], &out[0, 0], &largest[0],
                    squared
                )
            end_loop(&loop)
            poll_signals(&work, 1, 0)
            first = last
    return float(np.max(largest))


# ---- the farthest-first rule -----------------------------------------------------------------------------------------


cdef struct Seed:
    const double* value     # entries that are not 0
    const int* column       # their columns, ascending
    Py_ssize_t size         # how many there are
    const double* dense     # d: the same with its zeros
    double square           # squared norm


cdef double merged_distance(const Rows* rows, Py_ssize_t i, const Seed* seed) noexcept nogil:
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
    const Rows* rows, Py_ssize_t chunk, const Seed* seed, const double* nearest, double* out
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


cdef void squares_of_points(
    const Rows* rows, const real_x* x, Py_ssize_t chunk, const Seed* seed, double* out
) noexcept nogil:
    """Squared distances of a chunk's points to the seed."""
    cdef Py_ssize_t i
    for i in range(chunk * CHUNK, min(rows.n, (chunk + 1) * CHUNK)):
        # exact distances, so that ties are the same for any layout of the rows
        out[i] = squared_distance(point(x, rows, i), rows.col, seed.dense, rows.d)


cdef struct Farthest:       # the point with the largest weighted distance
    double distance         # weighted; -1: there is no point of positive weight
    Py_ssize_t index        # the first one at a tie


cdef void compare_chunk(
    const Rows* rows, Py_ssize_t chunk, int thread, const Seed* seed, bint few, double* tiles, double* distance,
    Farthest* farthest
) noexcept nogil:
    """distance[i] = min(distance[i], ||x_i - seed||^2) for the points of a chunk; the farthest, to farthest[chunk].

    few : whether the seed has so few entries that those of sparse rows are compared with them
    tiles : zeros, TILE_ROWS d numbers for each thread; unused by dense rows
    """
    cdef double[CHUNK] squares
    cdef double* to_seed = squares - chunk * CHUNK  # at the numbers of the points
    cdef Py_ssize_t i
    cdef double weighted
    if few:
        merge_chunk(rows, chunk, seed, distance, to_seed)
    elif is_sparse(rows):
        exact_distances_of_chunk(rows, seed.dense, NULL, NULL, chunk, tiles + thread * (TILE_ROWS * rows.d), to_seed)
    elif rows.single:
        squares_of_points(rows, <const float*> rows.x, chunk, seed, to_seed)
    else:
        squares_of_points(rows, <const double*> rows.x, chunk, seed, to_seed)
    farthest[chunk] = Farthest(-1.0, -1)
    for i in range(chunk * CHUNK, min(rows.n, (chunk + 1) * CHUNK)):
        if rows.weight != NULL and rows.weight[i] == 0.0:
            continue
        distance[i] = min(distance[i], to_seed[i])
        weighted = distance[i] if rows.weight == NULL else rows.weight[i] * distance[i]
        if weighted > farthest[chunk].distance:
            farthest[chunk] = Farthest(weighted, i)


def nearest_seed(X, const double[::1] weight, const double[::1] seed, double[::1] distance, int n_threads):
    """One step of the farthest-first rule (KJ12 section 6.1): add a seed, find the point farthest from all seeds.

    Returns the point with the largest weighted distance, and that distance.

    X : IN array or CSR rows (n, d);  seed : IN array (d,)
    weight : IN array (n,) or None, rows of weight zero are left out
    distance : INOUT array (n,), squared distance to the nearest seed so far
    """
    cdef Rows rows = rows_of(X, weight, None)
    cdef Py_ssize_t n_chunks = (rows.n + CHUNK - 1) // CHUNK, first = 0, last, work = 0, chunk
    cdef int threads = n_threads if 8 * rows.n * rows.d > PAYS else 1
    cdef ParallelLoop loop
    used = np.flatnonzero(seed) if is_sparse(&rows) else np.empty(0, dtype=np.intp)
    cdef bint few = is_sparse(&rows) and 16 * len(used) < rows.d
    cdef const int[::1] column = np.append(used, 0).astype(np.int32)
    cdef const double[::1] value = np.append(np.asarray(seed)[used], 0.0)
    cdef Seed with_entries = Seed(&value[0], &column[0], len(used), &seed[0], np.square(value).sum())
    cdef double[::1] tiles = np.zeros(threads * TILE_ROWS * rows.d if is_sparse(&rows) and not few else 1)
    cdef char[::1] memory = np.empty(n_chunks * sizeof(Farthest), dtype=np.int8)
    cdef Farthest* of_chunk = <Farthest*> &memory[0]   # n_chunks
    cdef Farthest farthest = Farthest(-1.0, -1)
    while first < n_chunks:
        last = min(n_chunks, first + max(<Py_ssize_t> threads, WORK // (CHUNK * rows.d)))
        with nogil:
            loop = begin_loop(last - first, threads)
            for chunk in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                compare_chunk(
                    &rows, chunk, begin_chunk(&loop), &with_entries, few, &tiles[0], &distance[0], of_chunk
                )
            end_loop(&loop)
            poll_signals(&work, 1, 0)
        first = last
    for chunk in range(n_chunks):  # in order, so that the first point wins a tie
        if of_chunk[chunk].distance > farthest.distance:
            farthest = of_chunk[chunk]
    return farthest.index, farthest.distance
