"""The least and greatest values of columns, and how many values of a column are small.

They are what the bins of exact sums are chosen by (see sums.pyx), and depend on no order of the rows either.
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL, fabs

from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport (
    Rows,
    entries_of,
    entry,
    poll_signals,
    real_x,
    rows_of,
    value_of,
    weight_of,
)

import numpy as np
from scipy.sparse import issparse

cdef extern from "_sums.h" nogil:
    void sums_range_f(const float*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, float*, float*)
    void sums_range_d(const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, double*, double*)
    void sums_small_f(const float*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, const double*,
                      const double*, double*)
    void sums_small_d(const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, const double*,
                      const double*, double*)

cdef enum:
    FEW_ELEMENTS = 1 << 12      # elements up to which loops take less time than to make wider rows


cdef void range_of_chunk(
    const Rows* r, const real_x* x, Py_ssize_t chunk, int thread, real_x* low, real_x* high
) noexcept nogil:
    """Update the least and greatest values of columns by those of a chunk.  INOUT low, high: threads x d."""
    cdef Py_ssize_t start = chunk * rows_of_chunk(r.d), size = min(rows_of_chunk(r.d), r.n - start)
    cdef const double* w = NULL if r.weight == NULL else r.weight + start
    x, low, high = x + start * r.row, low + thread * r.d, high + thread * r.d
    if real_x is float:
        sums_range_f(x, r.row, r.col, size, r.d, w, low, high)
    else:
        sums_range_d(x, r.row, r.col, size, r.d, w, low, high)


cdef void count_small_of_chunk(
    const Rows* r, Py_ssize_t chunk, int thread, const double* origin, const double* limit, double* count
) noexcept nogil:
    """Add how many small values each column of a chunk has, see count_small.  INOUT count: threads x d."""
    cdef Py_ssize_t start = chunk * rows_of_chunk(r.d), size = min(rows_of_chunk(r.d), r.n - start)
    cdef const double* w = NULL if r.weight == NULL else r.weight + start
    # numbers below 2^53 are added, so it does not matter which thread counts which rows
    count = count + thread * r.d
    if r.single:
        sums_small_f(<const float*> r.x + start * r.row, r.row, r.col, size, r.d, w, origin, limit, count)
    else:
        sums_small_d(<const double*> r.x + start * r.row, r.row, r.col, size, r.d, w, origin, limit, count)


def widened(X, weight):
    """Contiguous rows joined to fewer, wider ones, and how many rows make one.

    Loops over few columns would not fill vectors. Rows that are left over at the end are not in the wider ones.
    """
    n, d = X.shape
    times = 32 // d
    if times < 2 or n * d <= FEW_ELEMENTS or weight is not None or not X.flags.c_contiguous:
        return X, 1
    return X[: n - n % times].reshape(-1, times * d), times


def column_range(X, weight, int n_threads):
    """Least and greatest value of each column, over the rows of positive weight: two float64 arrays of shape (d,).

    X : IN array (n, d), or sparse rows;  weight : IN array (n,) or None
    """
    cdef Rows rows
    if issparse(X):
        low, high = range_of_entries(X, weight)
    elif X.size <= FEW_ELEMENTS:
        rows = rows_of(X, weight, None)
        return range_of_few(&rows)
    else:
        wide, times = widened(X, weight)
        rows = rows_of(wide, weight, None)
        if rows.single:
            low, high = range_of_rows(&rows, <const float*> rows.x, n_threads)
        else:
            low, high = range_of_rows(&rows, <const double*> rows.x, n_threads)
        if times > 1:
            low, high = low.reshape(times, -1).min(axis=0), high.reshape(times, -1).max(axis=0)
            if X.shape[0] % times:
                rest = X[X.shape[0] - X.shape[0] % times :]
                low, high = np.minimum(low, rest.min(axis=0)), np.maximum(high, rest.max(axis=0))
    return low + 0.0, high + 0.0  # -0 becomes 0, whichever came first


cdef tuple range_of_few(const Rows* r):
    """column_range of few dense rows."""
    cdef double[::1] low = np.empty(r.d), high = np.empty(r.d)
    range_of_values(r, True, &low[0], &high[0])
    return np.asarray(low), np.asarray(high)


cdef void range_of_values(const Rows* r, bint weighted, double* low, double* high) noexcept nogil:
    """Least and greatest value of each column of dense rows, over those of positive weight or over all.

    OUT low, high : d
    """
    cdef Py_ssize_t i, j
    cdef double x
    for j in range(r.d):
        low[j], high[j] = HUGE_VAL, -HUGE_VAL
    for i in range(r.n):
        if weighted and weight_of(r, i) == 0.0:
            continue
        for j in range(r.d):
            x = value_of(r, i, j) + 0.0  # -0 becomes 0, whichever came first
            low[j], high[j] = min(low[j], x), max(high[j], x)


cdef range_of_entries(X, const double[::1] weight):
    """column_range of sparse rows: what is not stored is 0."""
    cdef Rows r = rows_of(X, weight, None)
    cdef double[::1] low = np.full(r.d, np.inf), high = np.full(r.d, -np.inf)
    cdef Py_ssize_t[::1] count = np.zeros(r.d, dtype=np.intp)
    cdef Py_ssize_t i, j, m, stop, used = 0
    cdef double x
    with nogil:
        for i in range(r.n):
            if weight_of(&r, i) == 0.0:
                continue
            used += 1
            m = entries_of(&r, i, &stop)
            while m < stop:
                j, x = r.column[m], entry(&r, m)
                low[j] = min(low[j], x)
                high[j] = max(high[j], x)
                count[j] += 1
                m += 1
        # a column in which some row has no entry has zeros
        for j in range(r.d):
            if count[j] < used:
                low[j] = min(low[j], 0.0)
                high[j] = max(high[j], 0.0)
    return np.asarray(low), np.asarray(high)


cdef tuple range_of_rows(const Rows* rows, const real_x* x, int n_threads):
    """column_range of dense rows."""
    cdef int threads = n_threads if 8 * rows.n * rows.d > PAYS else 1
    cdef Py_ssize_t n_chunks = chunks_of(rows), first = 0, last, chunk, work = 0
    cdef ParallelLoop loop
    low_array = np.full((threads, rows.d), np.inf, dtype=np.float32 if real_x is float else np.float64)
    high_array = -low_array
    cdef real_x[:, ::1] low = low_array, high = high_array
    while first < n_chunks:
        last = min(n_chunks, first + CHUNKS_AT_ONCE)
        with nogil:
            loop = begin_loop(last - first, threads)
            for chunk in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                range_of_chunk(rows, x, chunk, begin_chunk(&loop), &low[0, 0], &high[0, 0])
            end_loop(&loop)
            poll_signals(&work, 1, 0)
        first = last
    return low_array.min(axis=0).astype(np.float64), high_array.max(axis=0).astype(np.float64)


def count_small(X, weight, origin, limit, int n_threads):
    """How many rows of positive weight have 0 < |x - origin| < limit, for each column: float64 array (d,)."""
    if issparse(X):
        return small_of_entries(X, weight, origin, limit)
    wide, times = widened(X, weight)
    if times == 1:
        return small_of_rows(X, weight, origin, limit, n_threads)
    small = small_of_rows(wide, weight, np.concatenate((origin,) * times), np.concatenate((limit,) * times), n_threads)
    small = small.reshape(times, -1).sum(axis=0)
    if X.shape[0] % times:
        rest = np.abs(X[X.shape[0] - X.shape[0] % times :] - origin)
        small += ((rest < limit) & (rest > 0.0)).sum(axis=0)
    return small


cdef small_of_entries(X, const double[::1] weight, const double[::1] origin, const double[::1] limit):
    """count_small of sparse rows. Entries that are not stored are on the origin of their column, 0 (see Layout)."""
    cdef Rows r = rows_of(X, weight, None)
    cdef double[::1] small = np.zeros(r.d)
    cdef Py_ssize_t i, j, m, stop
    cdef double t
    with nogil:
        for i in range(r.n):
            if weight_of(&r, i) == 0.0:
                continue
            m = entries_of(&r, i, &stop)
            while m < stop:
                j = r.column[m]
                t = fabs(entry(&r, m) - origin[j])
                small[j] += 1.0 if 0.0 < t < limit[j] else 0.0
                m += 1
    return np.asarray(small)


cdef small_of_rows(X, const double[::1] weight, const double[::1] origin, const double[::1] limit, int n_threads):
    """count_small of dense rows."""
    cdef Rows rows = rows_of(X, weight, None)
    cdef int threads = n_threads if 8 * rows.n * rows.d > PAYS else 1
    cdef Py_ssize_t n_chunks = chunks_of(&rows), first = 0, last, chunk, work = 0
    cdef ParallelLoop loop
    cdef double[:, ::1] count = np.zeros((threads, rows.d))
    while first < n_chunks:
        last = min(n_chunks, first + CHUNKS_AT_ONCE)
        with nogil:
            loop = begin_loop(last - first, threads)
            for chunk in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                count_small_of_chunk(&rows, chunk, begin_chunk(&loop), &origin[0], &limit[0], &count[0, 0])
            end_loop(&loop)
            poll_signals(&work, 1, 0)
        first = last
    return np.asarray(count).sum(axis=0)
