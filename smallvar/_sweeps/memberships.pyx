"""Probabilities of clusters from logarithms of weights, or from squared distances."""

from cython.parallel cimport prange

from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop

cdef extern from "_memberships.h" nogil:
    void sm_softmax(Py_ssize_t, Py_ssize_t, const double*, double*)
    void sm_student(Py_ssize_t, Py_ssize_t, const double*, const double*, double, const double*, double*)

cdef enum:
    CHUNK = 4096            # probabilities of a chunk, but at least one row
    PRODUCTS = 32           # multiply-adds that one probability counts as


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
