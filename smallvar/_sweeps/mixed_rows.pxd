"""Rows whose columns are of several kinds, with cells that are missing. See mixed_rows.pyx."""

from libc.math cimport log

from smallvar._sweeps.divergences cimport log_ratio

cdef enum:
    C_NORMAL = 0
    C_POISSON = 1
    C_EXPONENTIAL = 2


cdef struct MixedTable:         # packed rows, and what they are measured by
    const void* numbers         # n x p, float32 or float64; NaN: missing
    const void* codes           # n x q, integers of code_size bytes; < 0: missing
    bint single                 # whether numbers are float32
    int code_size
    Py_ssize_t p
    Py_ssize_t q
    Py_ssize_t n                # points
    const Py_ssize_t* order     # point i is row order[i]; NULL: as given
    const double* weight        # of point i, or NULL
    const int* kind             # p
    const double* factor        # p: what a divergence is multiplied by
    const double* place         # p: the columns' overall means
    const Py_ssize_t* begin     # q + 1: levels begin[j]..begin[j + 1] - 1 are those of column j
    const double* shares        # of each level, overall; 0: cells of this level count as missing
    double pseudo_count


cdef struct MixedRow:           # the cells of a row that are there
    double* x                   # values of the numbers
    double* shifted             # less the place of the column
    Py_ssize_t* at              # and their columns
    Py_ssize_t* level           # levels of the codes
    Py_ssize_t n_numbers
    Py_ssize_t n_levels


cdef inline double divergence(int kind, double x, double mu) noexcept nogil:
    """The divergence of a number from a mean, before it is multiplied by the factor of its column."""
    cdef double delta = x - mu, value
    if kind == C_NORMAL:
        return delta * delta
    if kind == C_POISSON:
        value = x * log_ratio(x, mu, delta) - delta if x > 0.0 else -delta
    else:
        value = delta / mu - log_ratio(x, mu, delta)
    return 0.0 if value <= 0.0 else value   # by rounding; NaN stays


cdef inline double times_log(double t) noexcept nogil:
    """t log t."""
    return t * log(t) if t > 0.0 else 0.0


cdef inline double weight_of_point(const MixedTable* table, Py_ssize_t i) noexcept nogil:
    return 1.0 if table.weight == NULL else table.weight[i]


cdef void read_point(const MixedTable* table, Py_ssize_t i, MixedRow* row) noexcept nogil
cdef double cost_alone(const MixedTable* table, const MixedRow* row, double w) noexcept nogil


cdef class MixedRows:
    cdef MixedTable table
    cdef MixedRow* rows              # of each thread
    cdef object arrays, memory
    cdef readonly int n_threads
    cdef readonly object labels

    cdef make_scratch(self)
