"""Clustering of tables in C memory, for callers that hold no Python objects. See direct.pyx."""

from smallvar._sweeps.memory cimport Memory
from smallvar._sweeps.rows cimport Rows
from smallvar._sweeps.sums cimport sums_t

cdef enum:
    # outcomes of the functions, see smallvar/cython_api.pxd
    OK = 0
    NOT_CONVERGED = 1
    BAD_SIZE = -1
    BAD_VALUE = -2
    OUT_OF_RANGE = -3
    FULL = -4
    NO_MEMORY = -5
    AT_FIRST = 8            # clusters that there is memory for at first


cdef struct DirectTable:    # checked rows, the frame they are computed in, and sums of clusters
    Rows rows
    double* origin          # d: taken from rows before they are summed
    double reach            # the largest difference of a number of the rows from the origin
    double rounding         # squared distance up to which a row may be as far from a mean by rounding alone
    sums_t sums
    Py_ssize_t capacity     # clusters that sums have memory for
    Memory memory


cdef Rows plain_rows(
    const void* x, bint single, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride, const double* weight
) noexcept nogil
cdef int check_rows(const Rows* rows) noexcept nogil
cdef int begin_table(DirectTable* table, const Rows* rows, const double* sums_from, Py_ssize_t capacity) noexcept nogil
cdef int reserve_sums(DirectTable* table, Py_ssize_t k) noexcept nogil
cdef int nearest_centers(
    const Rows* rows, const double* centers, Py_ssize_t k, int* labels, double* squares
) noexcept nogil
cdef int means_of_labels(
    const Rows* rows, const int* labels, Py_ssize_t k, double* means, double* weights
) noexcept nogil
cdef int dp_means(
    const Rows* rows, double lam, bint delayed, Py_ssize_t max_clusters, int max_iter, int* labels, double* centers,
    Py_ssize_t capacity, Py_ssize_t* n_clusters, double* objective, int* n_iter
) noexcept nogil
