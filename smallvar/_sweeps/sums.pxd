"""Exact sums, for the sweeps that add up rows."""

from libc.math cimport ilogb, ldexp, sqrt
from libc.stdint cimport int64_t

from smallvar._sweeps.rows cimport Rows, entries_of, is_sparse, weight_of

cdef extern from "_sums.h" nogil:
    ctypedef struct sums_t:
        Py_ssize_t d
        Py_ssize_t bins
        bint weighted
        const double* origin
        const double* magic
        double* cell
        double* count
    enum:
        ACCUMULATOR_DIGITS
    void sums_move_f(const float*, Py_ssize_t, Py_ssize_t, const Py_ssize_t*, const int*, const int*, const double*,
                     const sums_t*)
    void sums_move_d(const double*, Py_ssize_t, Py_ssize_t, const Py_ssize_t*, const int*, const int*, const double*,
                     const sums_t*)
    void sums_entries_f(const float*, const int*, Py_ssize_t, double, const sums_t*, Py_ssize_t)
    void sums_entries_d(const double*, const int*, Py_ssize_t, double, const sums_t*, Py_ssize_t)
    double sums_total(const sums_t*, Py_ssize_t, Py_ssize_t)
    double sums_quotient(const sums_t*, Py_ssize_t, Py_ssize_t, double)
    double sums_weight(const sums_t*, Py_ssize_t)
    void sums_clear(const sums_t*, Py_ssize_t, Py_ssize_t)
    void sums_unite(const sums_t*, Py_ssize_t, const sums_t*, Py_ssize_t)
    void sums_copy(const sums_t*, Py_ssize_t, Py_ssize_t)
    void accumulator_add(int64_t*, const double*, Py_ssize_t)
    void accumulator_merge(int64_t*, const int64_t*)
    double accumulator_round(int64_t*, Py_ssize_t, Py_ssize_t)


cdef enum:
    RARE_ONE_IN = 128           # except in one row of so many, 50 bits of a number are kept; see Layout
    MAX_SUM_THREADS = 64        # most threads that add up at the same time, each into sums of its own


cdef inline double sums_length(const sums_t* sums, Py_ssize_t k) noexcept nogil:
    """Length of the sum of w x of cluster k, where the origin is 0.

    The sum is divided by a power of two near the weight, as squares of light rows would underflow.
    """
    cdef double mean, squares = 0.0, unit = ldexp(1.0, ilogb(sums_weight(sums, k)))
    cdef Py_ssize_t j
    for j in range(sums.d):
        mean = sums_total(sums, k, j) / unit
        squares += mean * mean
    return sqrt(squares) * unit


cdef inline void move_rows(
    const Rows* r, Py_ssize_t size, const Py_ssize_t* at, const int* left, const int* joined, const double* weight,
    const sums_t* sums
) noexcept nogil:
    """Move the rows that begin at these elements from clusters left (NULL: from none) to clusters joined; -1: none."""
    if r.single:
        sums_move_f(<const float*> r.x, r.col, size, at, left, joined, weight, sums)
    else:
        sums_move_d(<const double*> r.x, r.col, size, at, left, joined, weight, sums)


cdef inline void move_entries(const Rows* r, Py_ssize_t i, int k, double sign, const sums_t* sums) noexcept nogil:
    """Add sparse point i to cluster k (sign 1), or take it out (-1); nothing is done if k is -1 or its weight is 0."""
    cdef Py_ssize_t stop, m = entries_of(r, i, &stop)
    cdef double w = sign * weight_of(r, i)
    if w == 0.0 or k < 0:
        return
    if r.single:
        sums_entries_f(<const float*> r.x + m, r.column + m, stop - m, w, sums, k)
    else:
        sums_entries_d(<const double*> r.x + m, r.column + m, stop - m, w, sums, k)


cdef void move_points(
    const Rows* r, Py_ssize_t start, Py_ssize_t stop, const int* left, const int* joined, const sums_t* sums
) noexcept nogil


cdef struct Accumulator:    # an exact sum, see _sums.h
    int64_t[ACCUMULATOR_DIGITS] digit


cdef struct Bins:           # how the numbers of some rows are cut into pieces, see Layout
    Py_ssize_t count            # bins
    int width                   # bits of a bin
    int bits                    # that are kept of the largest numbers


cdef double origin_of_column(double low, double high) noexcept nogil
cdef bint begin_bins(
    const double* low, const double* high, const double* origin, Py_ssize_t d, Py_ssize_t n, double lightest,
    double heaviest, double* reach, double* unit, Bins* bins
) noexcept nogil
cdef void limits_of_bins(const double* reach, Py_ssize_t d, const Bins* bins, double* limit) noexcept nogil
cdef bint add_bin(const double* small, Py_ssize_t d, double most, Bins* bins) noexcept nogil
cdef void magic_of_bins(const double* unit, Py_ssize_t d, const Bins* bins, double* magic) noexcept nogil
cdef void mean_of_sums(const sums_t* sums, Py_ssize_t k, double* mean, Py_ssize_t step) noexcept nogil


cdef class Sums:
    cdef sums_t table                   # for the functions of _sums.h; its pointers are into arrays and layout
    cdef readonly object layout
    cdef object arrays                  # cells (capacity, bins, d + 1) and counts (capacity,)
    cdef readonly Py_ssize_t capacity   # clusters there is memory for

    cpdef reserve(self, Py_ssize_t k)
