"""Proposals for rounds of points, for the sweeps in the order of the points."""

from smallvar._sweeps.rows cimport Rows
from smallvar._sweeps.sums cimport Accumulator

cdef extern from "_exact.h" nogil:
    Py_ssize_t sc_least(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, const double*, const double*,
                        double*, double*, double*)
    void sc_least_block(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, const double*, double*,
                        double*)
    enum:
        POINTS "SC_POINTS"

cdef enum:
    CHUNK = 512         # points a thread takes at a time
    LONGEST = 1 << 20   # points of a round
    WORK = 1 << 28      # multiply-adds between two checks for signals


cdef struct Points:
    Rows rows
    Py_ssize_t n        # points, as in rows
    Py_ssize_t d        # columns, likewise
    const int* group    # data set of point i, or NULL
    int threads         # that a round may use
    double* space       # threads x d x POINTS, scratch: the points in hand
    double* costs       # threads x room, scratch: their costs
    double* factors     # likewise: the weight of the point in hand, for every cluster


cdef struct Table:      # the clusters; joining one costs offset + factor * weight * ||x - center||^2
    Py_ssize_t k        # clusters
    Py_ssize_t room     # clusters there is memory for
    double* columns     # d x room: the centers in columns
    double* offset      # room, or data sets x room
    double* factor      # room, or NULL: all 1


cdef inline double* row_space(const Points* p, int thread) noexcept nogil:
    return p.space + thread * p.d * POINTS


cdef inline Py_ssize_t end_of_group(const Points* p, Py_ssize_t i, Py_ssize_t stop) noexcept nogil:
    """The first point after i that is of another data set, or stop."""
    cdef Py_ssize_t last = i + 1
    while last < stop and p.group[last] == p.group[i]:
        last += 1
    return last


cdef inline double square(const Points* p, const double* x, const double* c) noexcept nogil:
    """||x - c||^2, columns in order as in _exact.h."""
    cdef Py_ssize_t j
    cdef double total = 0.0
    for j in range(p.d):
        total += (x[j] - c[j]) * (x[j] - c[j])
    return total


cdef void propose(
    const Points* p, const Table* t, Py_ssize_t start, Py_ssize_t stop, int* label, double* cost
) noexcept nogil
cdef double squared_error(const Points* p, const double* centers, const int* label, Accumulator* part) noexcept nogil


cdef class Rounds:
    cdef Points p
    cdef Table t
    cdef list arrays                    # keeps the buffers of p alive
    cdef object table_arrays            # and those of t
    cdef int[::1] proposal              # of the points of a round: the cheapest cluster
    cdef double[::1] cost               # and its cost
    cdef Py_ssize_t work                # multiply-adds since the last check for signals
    cdef Py_ssize_t round               # points of the next round, unless signals have to be checked before

    cdef void attach(self, X, order, group, int threads, const double[::1] weight=*)
    cdef void reserve(self, Py_ssize_t room, Py_ssize_t sets)
    cdef void put(self, Py_ssize_t k, const double* center) noexcept nogil
    cdef Py_ssize_t span(self) noexcept nogil
    cdef int check_signals(self, Py_ssize_t work) except -1 nogil
