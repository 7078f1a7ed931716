"""Probabilities of clusters from logarithms of weights, or from squared distances."""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL, exp, log
from libc.string cimport memcpy

from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop

cdef enum:
    CHUNK = 4096            # probabilities of a chunk, but at least one row
    PRODUCTS = 32           # multiply-adds that one probability counts as
    LEAST_LOG = -708        # below the largest logarithm: weights of lower ones are 0, as exp takes longest for them


cdef void normalize_row(
    double* row, Py_ssize_t k, const double* offset, const double* factor, double power, const double* shares
) noexcept nogil:
    """The probabilities of a row; ``offset`` is NULL if it has logarithms of weights."""
    cdef double largest = -HUGE_VAL, total = 0.0
    cdef Py_ssize_t i
    if offset != NULL and power > 0.0:
        for i in range(k):
            row[i] = offset[i] - power * log(1.0 + factor[i] * row[i])
    elif offset != NULL:
        for i in range(k):
            row[i] = offset[i] - factor[i] * row[i]
    for i in range(k):
        largest = row[i] if row[i] > largest else largest
    for i in range(k):
        row[i] -= largest   # NaN, of distances beyond float64, has no weight
        row[i] = exp(row[i]) if row[i] > LEAST_LOG else 0.0
        total += row[i]
    if largest == -HUGE_VAL:
        total = 1.0
        memcpy(row, shares, k * sizeof(double))
    total = 1.0 / total
    for i in range(k):
        row[i] *= total


cdef void normalize_chunk(
    double[:, ::1] table, Py_ssize_t first, Py_ssize_t size, const double* offset, const double* factor, double power,
    const double* shares, int thread
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(first, min(first + size, table.shape[0])):
        normalize_row(&table[i, 0], table.shape[1], offset, factor, power, shares)


cdef normalize(
    double[:, ::1] table, const double* offset, const double* factor, double power, const double* shares, int n_threads
):
    cdef Py_ssize_t n = table.shape[0], k = table.shape[1], chunk
    cdef Py_ssize_t size = max(<Py_ssize_t> 1, CHUNK // k), n_chunks = (n + size - 1) // size
    cdef ParallelLoop loop
    with nogil:
        loop = begin_loop(n_chunks, n_threads if n * k * PRODUCTS > PAYS else 1)
        for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            normalize_chunk(table, chunk * size, size, offset, factor, power, shares, begin_chunk(&loop))
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
