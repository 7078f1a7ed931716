"""A table in C memory, checked, and sums of clusters. See direct_table.pyx."""

from smallvar._sweeps.direct_memory cimport Memory
from smallvar._sweeps.rows cimport Rows
from smallvar._sweeps.sums cimport sums_t

cdef enum:                  # outcomes of the functions, see smallvar/cython_api.pxd
    OK = 0
    NOT_CONVERGED = 1
    BAD_SIZE = -1
    BAD_VALUE = -2
    OUT_OF_RANGE = -3
    FULL = -4
    NO_MEMORY = -5
    SQUARES = 512           # squared distances that are added up at a time


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
cdef int reserve_sums(DirectTable* table, Py_ssize_t capacity) noexcept nogil
