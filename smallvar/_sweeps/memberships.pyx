"""Probabilities of clusters from logarithms of weights, from squared distances, or from linear functions of rows."""

from cython.parallel cimport prange

from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport Rows, poll_signals, row_at, rows_of

import numpy as np

cdef extern from "_memberships.h" nogil:
    void sm_softmax(Py_ssize_t, Py_ssize_t, const double*, double*)
    void sm_student(Py_ssize_t, Py_ssize_t, const double*, const double*, double, const double*, double*)
    void sm_linear(
        Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, const double* const*, const double*, const double*, double*
    )
    void sm_squares(
        Py_ssize_t, Py_ssize_t, Py_ssize_t, const double* const*, const double*, const double*, double*
    )

cdef enum:
    CHUNK = 4096            # probabilities of a chunk, but at least one row
    PRODUCTS = 32           # multiply-adds that one probability counts as
    SIDE = 4                # rows of one step of sm_linear
    SM_CLUSTERS = 8         # clusters are padded to a multiple of so many
    LINEAR_WORK = 1 << 28   # multiply-adds between two checks for signals


cdef void normalize_chunk(
    double* table, Py_ssize_t n, Py_ssize_t k, const double* offset, const double* factor, double power,
    const double* shares, Py_ssize_t chunk, int thread
) noexcept nogil:
    """The probabilities of a chunk of rows; ``offset`` is NULL if the table has logarithms of weights."""
    cdef Py_ssize_t size = max(<Py_ssize_t> 1, CHUNK // k)
    cdef Py_ssize_t first = chunk * size
    size = min(size, n - first)
    if offset == NULL:
        sm_softmax(size, k, shares, table + first * k)
    else:
        sm_student(size, k, offset, factor, power, shares, table + first * k)


cdef normalize(
    double[:, ::1] table, const double* offset, const double* factor, double power, const double* shares, int n_threads
):
    cdef Py_ssize_t n = table.shape[0], k = table.shape[1], chunk
    cdef Py_ssize_t size = max(<Py_ssize_t> 1, CHUNK // k), n_chunks = (n + size - 1) // size
    cdef int threads = n_threads if n * k * PRODUCTS > PAYS else 1
    cdef ParallelLoop loop
    if n == 0:
        return
    with nogil:
        loop = begin_loop(n_chunks, threads)
        for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            normalize_chunk(&table[0, 0], n, k, offset, factor, power, shares, chunk, begin_chunk(&loop))
        end_loop(&loop)


def softmax(double[:, ::1] table, const double[::1] shares, int n_threads):
    """Replace logarithms of weights by probabilities, those of each row with the sum 1.

    Rows whose weights are all 0, with logarithms -inf, get these shares.

    INOUT table : (n, k), k > 0;  shares : IN array (k,)
    """
    if table.shape[1] == 0 or shares.shape[0] != table.shape[1]:
        raise ValueError("table and shares must have as many clusters, at least one")
    normalize(table, NULL, NULL, 0.0, &shares[0], n_threads)


def softmax_of_squares(
    double[:, ::1] table, const double[::1] offset, const double[::1] factor, double power, const double[::1] shares,
    int n_threads
):
    """The same for squared distances q of rows from k centers.

    Weights are exp(offset_k - factor_k q) or, if ``power`` > 0, exp(offset_k) (1 + factor_k q)^-power.

    INOUT table : (n, k), k > 0;  offset, factor, shares : IN arrays (k,)
    """
    cdef Py_ssize_t k = table.shape[1]
    if k == 0 or not (offset.shape[0] == factor.shape[0] == shares.shape[0] == k):
        raise ValueError("table, offset, factor and shares must have as many clusters, at least one")
    normalize(table, &offset[0], &factor[0], power, &shares[0], n_threads)


# ---- weights that are linear functions -------------------------------------------------------------------------------


cdef struct Clusters:
    Py_ssize_t k
    Py_ssize_t padded           # k, rounded up
    const double* columns       # d x padded: value j of a_k at columns[j * padded + k]
    const double* offset        # padded
    const double* shares        # k
    const double* origin        # d, or NULL: weights are exponentials of the linear functions
    const double* inverse       # d
    const double* price         # k
    const double* factor        # k
    double power


cdef void linear_chunk(
    const Rows* rows, const Clusters* clusters, Py_ssize_t chunk, Py_ssize_t size, int thread, double* buffer,
    double* table
) noexcept nogil:
    """The probabilities of a chunk of ``size`` rows.  buffer : SIDE d numbers for each thread"""
    cdef Py_ssize_t k = clusters.k
    cdef const double* x[SIDE]
    cdef Py_ssize_t first = chunk * size, last = min(rows.n, (chunk + 1) * size), d = rows.d, i = first, m, count
    buffer += thread * SIDE * d
    while i < last:
        count = min(<Py_ssize_t> SIDE, last - i)
        for m in range(count):
            x[m] = row_at(rows, i + m, buffer + m * d)
        sm_linear(count, d, k, clusters.padded, x, clusters.columns, clusters.offset, table + i * k)
        if clusters.origin != NULL:
            sm_squares(count, d, k, x, clusters.origin, clusters.inverse, table + i * k)
        i += count
    if clusters.origin == NULL:
        sm_softmax(last - first, k, clusters.shares, table + first * k)
    else:
        sm_student(
            last - first, k, clusters.price, clusters.factor, clusters.power, clusters.shares, table + first * k
        )


def softmax_of_linear(
    X, const double[:, ::1] A, const double[::1] offset, const double[::1] shares, double[:, ::1] table, int n_threads,
    squares=None
):
    """Write the probabilities of rows x for weights exp(offset_k + x'a_k) of k clusters.

    Or, with ``squares`` = (origin, inverse, price, factor, power), for those that ``softmax_of_squares`` has, ``price``
    being its offset, of squared distances q_k = sum_j inverse_j (x_j - origin_j)^2 - 2 (offset_k + x'a_k).

    X : IN array (n, d);  A : IN array (d, k), k > 0;  offset, shares, price, factor : IN arrays (k,);
    origin, inverse : IN arrays (d,);  table : OUT array (n, k)
    """
    cdef Rows rows = rows_of(X, None, None)
    cdef Py_ssize_t k = A.shape[1], d = rows.d, j, i, chunk, first = 0, last, work = 0
    if k == 0 or A.shape[0] != d or not (offset.shape[0] == shares.shape[0] == table.shape[1] == k):
        raise ValueError("A, offset, shares and table must have as many clusters, at least one, and A columns as X")
    if table.shape[0] != rows.n:
        raise ValueError("table must have as many rows as X")
    cdef Py_ssize_t padded = (k + SM_CLUSTERS - 1) // SM_CLUSTERS * SM_CLUSTERS
    cdef Py_ssize_t size = max(<Py_ssize_t> SIDE, CHUNK // k)
    cdef double[:, ::1] columns = np.zeros((d, padded))
    cdef double[::1] begin = np.zeros(padded)
    for i in range(k):
        begin[i] = offset[i]
        for j in range(d):
            columns[j, i] = A[j, i]
    cdef int threads = n_threads if rows.n * k * (d + PRODUCTS) > PAYS else 1
    cdef double[::1] buffer = np.empty(threads * SIDE * d)
    cdef Py_ssize_t n_chunks = (rows.n + size - 1) // size
    cdef Py_ssize_t step = max(<Py_ssize_t> 2 * threads, LINEAR_WORK // (size * k * (d + PRODUCTS)))
    cdef ParallelLoop loop
    cdef Clusters clusters = Clusters(k, padded, &columns[0, 0], &begin[0], &shares[0], NULL, NULL, NULL, NULL, 0.0)
    cdef const double[::1] origin, inverse, price, factor
    if squares is not None:
        origin, inverse, price, factor, clusters.power = squares
        if not (origin.shape[0] == inverse.shape[0] == d) or not (price.shape[0] == factor.shape[0] == k):
            raise ValueError("origin and inverse must have columns as X, price and factor as many clusters as A")
        clusters.origin, clusters.inverse = &origin[0], &inverse[0]
        clusters.price, clusters.factor = &price[0], &factor[0]
    with nogil:
        while first < n_chunks:
            last = min(n_chunks, first + step)
            loop = begin_loop(last - first, threads)
            for chunk in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                linear_chunk(&rows, &clusters, chunk, size, begin_chunk(&loop), &buffer[0], &table[0, 0])
            end_loop(&loop)
            poll_signals(&work, 1, 0)
            first = last
