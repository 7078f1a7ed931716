"""Parallel proposals for sweeps that visit one point after the other. See in_order.pyx."""

from libc.stdint cimport int64_t

from smallvar._sweeps.memory cimport Memory
from smallvar._sweeps.rows cimport Rows
from smallvar._sweeps.sums cimport Accumulator

cdef extern from "_exact.h" nogil:
    Py_ssize_t sc_least(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, const double*, const double*,
                        double*, double*, double*)
    bint sc_least_block(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, const double*, double,
                        double*, double*)
    bint sc_ties(double, double, double)
    enum:
        POINTS "SC_POINTS"

cdef enum:
    IN_ORDER_CHUNK = 512    # points that a thread proposes clusters for at a time
    MAX_ROUND = 1 << 20     # points of a round, at most
    IN_ORDER_WORK = 1 << 28  # multiply-adds between two checks for signals


cdef struct InOrderState:
    # points, in the order of visit
    Rows rows
    Py_ssize_t n
    Py_ssize_t d
    const int* group        # data set of each point, or NULL: points have none
    # clusters: joining one costs offset + factor * ||x - center||^2
    Py_ssize_t k
    Py_ssize_t capacity     # clusters there is memory for
    double* columns         # d x capacity: the centers in columns
    double* offset          # capacity, or data sets x capacity where points have data sets
    double* factor          # capacity; or NULL: all 1
    double rounding         # squared distance by which a center may be off; below 0: only equal costs tie
    # scratch, of which each thread has its own row
    int threads             # that a loop may use
    double* buffers         # threads x (d x POINTS): the points that costs are computed for
    double* costs           # threads x capacity: of one point in all clusters
    double* factors         # threads x capacity: those for a point that has a weight
    Accumulator* sums       # threads: exact sums
    Py_ssize_t round_length     # points of the next round, at most
    Memory memory           # of clusters and scratch


cdef inline double* row_buffer(const InOrderState* state, int thread) noexcept nogil:
    """Memory of a thread for the values of points, d x POINTS."""
    return state.buffers + thread * state.d * POINTS


cdef inline Py_ssize_t end_of_group(const InOrderState* state, Py_ssize_t i, Py_ssize_t stop) noexcept nogil:
    """The first point after i that is of another data set, or stop."""
    cdef Py_ssize_t end = i + 1
    while end < stop and state.group[end] == state.group[i]:
        end += 1
    return end


cdef inline const double* offset_of(const InOrderState* state, Py_ssize_t i) noexcept nogil:
    """What point i pays for joining each cluster, beside its distance."""
    return state.offset + (0 if state.group == NULL else state.group[i] * state.capacity)


cdef inline Py_ssize_t first_tied(
    const double* cost, Py_ssize_t k, double least, double second, double rounding
) noexcept nogil:
    """The first cluster whose cost ties with that of cluster k, the least; ``second`` is the least of the others."""
    cdef Py_ssize_t p
    if sc_ties(least, second, rounding):
        for p in range(k):
            if sc_ties(least, cost[p], rounding):
                return p
    return k


cdef inline double squared_distance(const double* x, const double* center, Py_ssize_t d) noexcept nogil:
    """||x - center||^2, columns added in order as in _exact.h: both give the same bits."""
    cdef Py_ssize_t j
    cdef double total = 0.0
    for j in range(d):
        total += (x[j] - center[j]) * (x[j] - center[j])
    return total


cdef inline void set_center(InOrderState* state, Py_ssize_t k, const double* center) noexcept nogil:
    """Set the center of cluster k in the columns that costs are computed from."""
    cdef Py_ssize_t j
    for j in range(state.d):
        state.columns[j * state.capacity + k] = center[j]


cdef inline Py_ssize_t points_between_checks(const InOrderState* state) noexcept nogil:
    """How many points may be proposed for between two checks for signals."""
    return max(<Py_ssize_t> POINTS, IN_ORDER_WORK // (state.d * (state.k + 4)))


cdef inline Py_ssize_t end_of_round(InOrderState* state, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """End of a round that begins at point ``start``, at most ``stop``; the next round will be twice as long."""
    stop = min(stop, start + min(state.round_length, points_between_checks(state)))
    state.round_length = min(2 * state.round_length, <Py_ssize_t> MAX_ROUND)
    return stop


cdef bint begin_scratch(InOrderState* state, int threads) noexcept nogil
cdef bint reserve_clusters(InOrderState* state, Py_ssize_t capacity, Py_ssize_t sets) noexcept nogil
cdef Py_ssize_t cheapest(const InOrderState* state, Py_ssize_t i, double* cost, int thread) noexcept nogil
cdef void propose(
    const InOrderState* state, Py_ssize_t start, Py_ssize_t stop, int* label, double* cost
) noexcept nogil
cdef double squared_error(const InOrderState* state, const double* centers, const int* label) noexcept nogil


cdef class InOrderSweep:
    cdef InOrderState state
    cdef list point_arrays              # keep the buffers of points alive
    cdef int64_t[:, ::1] digits         # likewise for state.sums
    cdef Py_ssize_t work                # multiply-adds since the last check for signals

    cdef void attach(self, X, order, group, int threads, const double[::1] weight=*)
    cdef void reserve(self, Py_ssize_t capacity, Py_ssize_t sets)
    cdef int check_signals(self, Py_ssize_t work) except -1 nogil
