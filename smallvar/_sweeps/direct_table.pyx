"""A table in C memory: whether its rows are valid, the frame they are computed in, and the sums of clusters.

For the functions of direct.pyx and direct_dynamic.pyx, which hold no Python objects; the same rules as RowsFrame and
Layout have for the estimators.
"""

from libc.math cimport HUGE_VAL, INFINITY, fabs
from libc.string cimport memset

from smallvar._sweeps.direct_memory cimport extend, overflows, take
from smallvar._sweeps.ranges cimport chunks_of, count_small_of_chunk, range_of_values
from smallvar._sweeps.rows cimport Rows, point, real_x
from smallvar._sweeps.sums cimport (
    RARE_ONE_IN,
    Bins,
    add_bin,
    begin_bins,
    limits_of_bins,
    magic_of_bins,
    origin_of_column,
)
from smallvar._sweeps.tolerances cimport (
    C_COLUMN_ROUNDING,
    C_LARGEST_ERROR,
    C_LARGEST_REACH,
    C_LARGEST_WEIGHT,
    C_SMALLEST_REACH,
    C_SMALLEST_WEIGHT,
)


# ---- rows ------------------------------------------------------------------------------------------------------------


cdef Rows plain_rows(
    const void* x, bint single, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride, const double* weight
) noexcept nogil:
    """n rows of d numbers each, ``stride`` apart, float32 or float64; weights, or NULL: 1 each."""
    cdef Rows rows
    memset(&rows, 0, sizeof(rows))
    rows.x, rows.single, rows.n, rows.d, rows.row, rows.col, rows.weight = x, single, n, d, stride, 1, weight
    return rows


cdef bint are_finite(const Rows* rows, const real_x* x) noexcept nogil:
    """Whether no number of the rows is NaN or infinite."""
    cdef bint one_piece = rows.row == rows.d
    cdef Py_ssize_t size = rows.n * rows.d if one_piece else rows.d, i, j, l
    cdef const real_x* row
    cdef real_x[8] zero                 # x - x is NaN where x is not finite; eight sums do not wait for each other
    for i in range(1 if one_piece else rows.n):
        row, j = point(x, rows, i), 0
        for l in range(8):
            zero[l] = 0
        while j + 8 <= size:
            for l in range(8):
                zero[l] += row[j + l] - row[j + l]
            j += 8
        while j < size:
            zero[0] += row[j] - row[j]
            j += 1
        for l in range(8):
            if zero[l] != 0:
                return False
    return True


cdef int check_rows(const Rows* rows) noexcept nogil:
    """OK where there are rows of finite numbers, and weights >= 0 that are not all 0."""
    cdef Py_ssize_t i
    cdef double largest = 0.0
    cdef int status = OK
    if rows.x == NULL or rows.n < 1 or rows.d < 1 or rows.row < rows.d or overflows(rows.n, rows.row):
        return BAD_SIZE
    if not (are_finite(rows, <const float*> rows.x) if rows.single else are_finite(rows, <const double*> rows.x)):
        return BAD_VALUE
    if rows.weight == NULL:
        return OK
    for i in range(rows.n):
        if not 0.0 <= rows.weight[i] < INFINITY:
            return BAD_VALUE
        if 0.0 < rows.weight[i] < C_SMALLEST_WEIGHT or rows.weight[i] > C_LARGEST_WEIGHT:
            status = OUT_OF_RANGE
        largest = max(largest, rows.weight[i])
    return status if largest > 0.0 else BAD_VALUE


# ---- the frame and the sums of a table -------------------------------------------------------------------------------


cdef int begin_table(DirectTable* table, const Rows* rows, const double* sums_from, Py_ssize_t capacity) noexcept nogil:
    """Set up checked rows as RowsFrame and Layout do, with memory for the sums of so many clusters.

    sums_from : IN d: the origin of the sums, or NULL: a round point near the rows

    The caller frees ``table.memory``, also where this fails.
    """
    cdef Py_ssize_t i, j, n_used = 0, d = rows.d
    cdef double lightest = HUGE_VAL, heaviest = 0.0, total = 0.0, reach = 0.0, rounding
    cdef bint ones = True, zeros = False
    cdef double *low
    cdef double *high
    memset(table, 0, sizeof(table[0]))
    table.rows = rows[0]
    if rows.weight != NULL:
        for i in range(rows.n):
            if rows.weight[i] > 0.0:
                n_used += 1
                lightest, heaviest = min(lightest, rows.weight[i]), max(heaviest, rows.weight[i])
            total += rows.weight[i]
            ones, zeros = ones and rows.weight[i] == 1.0, zeros or rows.weight[i] == 0.0
        if ones:
            table.rows.weight = NULL  # as check_weights has it
    if table.rows.weight == NULL:
        n_used, lightest, heaviest, total = rows.n, 0.0, 0.0, 0.0
    low = <double*> take(&table.memory, 2, d, sizeof(double))
    table.origin = <double*> take(&table.memory, 1, d, sizeof(double))
    if low == NULL or table.origin == NULL:
        return NO_MEMORY
    high = low + d
    range_of_values(&table.rows, False, low, high)
    # the spread of all rows about the origin of those that have weight
    if zeros:
        range_of_values(&table.rows, True, low, high)
    for j in range(d):
        table.origin[j] = origin_of_column(low[j], high[j]) if sums_from == NULL else sums_from[j]
        rounding = C_COLUMN_ROUNDING * max(fabs(low[j]), fabs(high[j])) if high[j] > low[j] else 0.0
        table.rounding += rounding * rounding
    if zeros:
        reach = reach_of_rows(&table.rows, table.origin)
    else:
        for j in range(d):
            reach = max(reach, max(high[j] - table.origin[j], table.origin[j] - low[j]))
    table.reach = reach
    if (reach > 0.0 and not C_SMALLEST_REACH < reach < C_LARGEST_REACH) or total * reach * reach > C_LARGEST_ERROR:
        return OUT_OF_RANGE
    return begin_sums(table, low, high, n_used, lightest, heaviest, capacity)


cdef double reach_of_rows(const Rows* rows, const double* origin) noexcept nogil:
    """The largest difference of any number of the rows from the origin of its column."""
    cdef double reach = 0.0, x
    cdef Py_ssize_t i, j
    for i in range(rows.n):
        for j in range(rows.d):
            x = point(<const float*> rows.x, rows, i)[j] if rows.single else point(<const double*> rows.x, rows, i)[j]
            reach = max(reach, fabs(x - origin[j]))
    return reach


cdef int begin_sums(
    DirectTable* table, const double* low, const double* high, Py_ssize_t n_used, double lightest, double heaviest,
    Py_ssize_t capacity
) noexcept nogil:
    """Choose the bins of the sums, as Layout does, and make memory for so many clusters."""
    cdef Py_ssize_t d = table.rows.d, chunk, j
    cdef Bins bins
    cdef bint again
    cdef double* magic
    cdef double* reach = <double*> take(&table.memory, 4, d + 1, sizeof(double))
    if reach == NULL:
        return NO_MEMORY
    cdef double* limit = reach + d
    cdef double* small = reach + 2 * d
    cdef double* unit = reach + 3 * d
    if not begin_bins(low, high, table.origin, d, n_used, lightest, heaviest, reach, unit, &bins):
        return OUT_OF_RANGE
    again = True
    while again:
        limits_of_bins(reach, d, &bins, limit)
        for j in range(d):
            small[j] = 0.0
        for chunk in range(chunks_of(&table.rows)):
            count_small_of_chunk(&table.rows, chunk, 0, table.origin, limit, small)
        again = add_bin(small, d, <double> n_used / RARE_ONE_IN, &bins)
    magic = <double*> take(&table.memory, bins.count, d + 1, sizeof(double))
    table.sums.cell = <double*> take(&table.memory, capacity * bins.count, d + 1, sizeof(double))
    table.sums.count = <double*> take(&table.memory, 1, capacity, sizeof(double))
    if magic == NULL or table.sums.cell == NULL or table.sums.count == NULL:
        return NO_MEMORY
    magic_of_bins(unit, d, &bins, magic)
    table.sums.d, table.sums.bins, table.sums.weighted = d, bins.count, table.rows.weight != NULL
    table.sums.origin, table.sums.magic, table.capacity = table.origin, magic, capacity
    return OK


cdef int reserve_sums(DirectTable* table, Py_ssize_t capacity) noexcept nogil:
    """Make the memory of the sums suffice for so many clusters; those that are there stay."""
    cdef Py_ssize_t size = table.sums.bins * (table.sums.d + 1) * sizeof(double), old = table.capacity
    if capacity <= old:
        return OK
    if not extend(&table.memory, <void**> &table.sums.cell, old * size, capacity * size):
        return NO_MEMORY
    if not extend(&table.memory, <void**> &table.sums.count, old * sizeof(double), capacity * sizeof(double)):
        return NO_MEMORY
    table.capacity = capacity
    return OK
