"""Exact sums, for the sweeps that add up rows."""

from libc.stdint cimport int64_t

from smallvar._sweeps.rows cimport Rows

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
        WIDE_DIGITS
    void sums_move_f(const float*, Py_ssize_t, Py_ssize_t, const Py_ssize_t*, const int*, const int*, const double*,
                     const sums_t*)
    void sums_move_d(const double*, Py_ssize_t, Py_ssize_t, const Py_ssize_t*, const int*, const int*, const double*,
                     const sums_t*)
    double sums_total(const sums_t*, Py_ssize_t, Py_ssize_t)
    double sums_weight(const sums_t*, Py_ssize_t)
    void sums_clear(const sums_t*, Py_ssize_t, Py_ssize_t)
    void sums_unite(const sums_t*, Py_ssize_t, const sums_t*, Py_ssize_t)
    void sums_copy(const sums_t*, Py_ssize_t, Py_ssize_t)
    void wide_add(int64_t*, const double*, Py_ssize_t)
    void wide_unite(int64_t*, const int64_t*)
    double wide_read(int64_t*, Py_ssize_t, Py_ssize_t)


cdef enum:
    MOST_PARTS = 64     # most threads that add up at the same time, each into its own part


cdef inline void move_rows(
    const Rows* r, Py_ssize_t size, const Py_ssize_t* at, const int* left, const int* joined, const double* weight,
    const sums_t* sums
) noexcept nogil:
    """The rows that begin at these elements go from clusters left (NULL: from nowhere) to clusters joined."""
    if r.single:
        sums_move_f(<const float*> r.x, r.col, size, at, left, joined, weight, sums)
    else:
        sums_move_d(<const double*> r.x, r.col, size, at, left, joined, weight, sums)


cdef void move_points(
    const Rows* r, Py_ssize_t start, Py_ssize_t stop, const int* left, const int* joined, const sums_t* sums
) noexcept nogil


cdef struct Wide:       # an exact sum, see _sums.h
    int64_t[WIDE_DIGITS] digit


cdef class Sums:
    cdef sums_t s
    cdef readonly object layout
    cdef object arrays              # cells (room, bins, d + 1) and counts (room,)
    cdef readonly Py_ssize_t room

    cpdef reserve(self, Py_ssize_t k)
