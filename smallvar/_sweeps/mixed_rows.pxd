"""Rows whose columns are of several kinds, with cells that are missing. See mixed_rows.pyx."""

from libc.math cimport log
from libc.stdint cimport int8_t, int16_t, int32_t

from smallvar._sweeps.divergences cimport log_ratio

cdef enum:
    C_NORMAL = 0
    C_POISSON = 1
    C_EXPONENTIAL = 2

cdef enum:
    SUM_ROWS = 4096         # points that are added up one after the other, at least
    SUM_CHUNKS = 32         # parts of the points, each of which is added up one point after the other, at most
    SUM_NUMBERS = 1 << 22   # numbers that the sums of all parts take, at most


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


cdef inline void shift(const MixedTable* table, MixedRow* row, Py_ssize_t j, double x) noexcept nogil:
    if x == x:
        row.x[row.n_numbers] = x
        row.shifted[row.n_numbers] = x - table.place[j]
        row.at[row.n_numbers] = j
        row.n_numbers += 1


cdef inline void look_up(const MixedTable* table, MixedRow* row, Py_ssize_t j, Py_ssize_t code) noexcept nogil:
    if code >= 0 and table.shares[table.begin[j] + code] > 0.0:
        row.level[row.n_levels] = table.begin[j] + code
        row.n_levels += 1


cdef inline void read_point(const MixedTable* table, Py_ssize_t i, MixedRow* row) noexcept nogil:
    """The cells of a point that are there."""
    cdef Py_ssize_t j, at = i if table.order == NULL else table.order[i]
    cdef const float* single = <const float*> table.numbers + at * table.p
    cdef const double* double_ = <const double*> table.numbers + at * table.p
    cdef const int8_t* small = <const int8_t*> table.codes + at * table.q
    cdef const int16_t* short_ = <const int16_t*> table.codes + at * table.q
    cdef const int32_t* long_ = <const int32_t*> table.codes + at * table.q
    row.n_numbers = row.n_levels = 0
    if table.single:
        for j in range(table.p):
            shift(table, row, j, single[j])
    else:
        for j in range(table.p):
            shift(table, row, j, double_[j])
    if table.code_size == 1:
        for j in range(table.q):
            look_up(table, row, j, small[j])
    elif table.code_size == 2:
        for j in range(table.q):
            look_up(table, row, j, short_[j])
    else:
        for j in range(table.q):
            look_up(table, row, j, long_[j])


cdef inline double cost_alone(const MixedTable* table, const MixedRow* row, double w) noexcept nogil:
    """What a point of weight w costs in a cluster of its own: that of shares with the pseudo-count.

    For a column with n members in all, n_v of level v, whose overall share is p_v, and h(t) = t log t, that is

        min over mu of -sum_v n_v log mu_v + a sum_v p_v log(p_v / mu_v)
            = -sum_v h(n_v + a p_v) + h(n + a) + a sum_v p_v log p_v.
    """
    cdef double total = 0.0, share, a = table.pseudo_count
    cdef Py_ssize_t m
    for m in range(row.n_levels):
        share = table.shares[row.level[m]]
        total += times_log(w + a) - times_log(w + a * share) - (1.0 - share) * times_log(a) + a * times_log(share)
    return total


cdef class MixedRows:
    cdef MixedTable table
    cdef MixedRow* rows              # of each thread
    cdef object arrays, memory
    cdef Py_ssize_t work             # since the last check for signals
    cdef readonly int n_threads
    cdef readonly object labels

    cdef make_scratch(self)
