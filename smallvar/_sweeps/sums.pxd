"""Exact sums, for the sweeps that add up rows."""

from libc.stdint cimport int64_t

from smallvar._sweeps._types cimport real_x

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
    MOST_PARTS = 64     # threads that add up at a time


cdef struct Rows:
    const void* x           # n x d, of any strides
    bint single
    Py_ssize_t row          # strides in elements
    Py_ssize_t col
    Py_ssize_t n
    Py_ssize_t d
    const double* weight    # n, or NULL


cdef Rows rows_of(const real_x[:, :] X, const double[::1] weight) except *


cdef struct Wide:
    int64_t[WIDE_DIGITS] digit


cdef class Sums:
    cdef sums_t s
    cdef readonly object layout
    cdef object arrays              # cells (room, bins, d + 1) and counts (room,)
    cdef readonly Py_ssize_t room

    cpdef reserve(self, Py_ssize_t k)
