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


cdef struct InOrderPoints:  # in the order of visit
    Rows rows
    Py_ssize_t n
    Py_ssize_t d
    const int* group    # data set of each point, or NULL: points have none


cdef struct InOrderClusters:  # joining one costs offset + factor * ||x - center||^2
    Py_ssize_t k
    Py_ssize_t capacity     # clusters there is memory for
    double* columns         # d x capacity: the centers in columns
    double* offset          # capacity, or data sets x capacity where points have data sets
    double* factor          # capacity; or NULL: all 1
    double rounding         # squared distance by which a center may be off; below 0: only equal costs tie


cdef struct InOrderScratch:  # each thread has its own row
    int threads         # that a loop may use
    double* rows        # threads x (d x POINTS): the points that costs are computed for
    double* costs       # threads x capacity: of one point in all clusters
    double* factors     # threads x capacity: those for a point that has a weight
    Accumulator* sums   # threads: exact sums
    Py_ssize_t round_length     # points of the next round, at most


cdef inline double* row_buffer(const InOrderPoints* points, const InOrderScratch* scratch, int thread) noexcept nogil:
    """Memory of a thread for the values of points, d x POINTS."""
    return scratch.rows + thread * points.d * POINTS


cdef inline Py_ssize_t end_of_group(const InOrderPoints* points, Py_ssize_t i, Py_ssize_t stop) noexcept nogil:
    """The first point after i that is of another data set, or stop."""
    cdef Py_ssize_t end = i + 1
    while end < stop and points.group[end] == points.group[i]:
        end += 1
    return end


cdef inline const double* offset_of(
    const InOrderPoints* points, const InOrderClusters* clusters, Py_ssize_t i
) noexcept nogil:
    """What point i pays for joining each cluster, beside its distance."""
    return clusters.offset + (0 if points.group == NULL else points.group[i] * clusters.capacity)


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


cdef inline void set_center(InOrderClusters* clusters, Py_ssize_t d, Py_ssize_t k, const double* center) noexcept nogil:
    """Set the center of cluster k in the columns that costs are computed from."""
    cdef Py_ssize_t j
    for j in range(d):
        clusters.columns[j * clusters.capacity + k] = center[j]


cdef inline Py_ssize_t points_between_checks(
    const InOrderPoints* points, const InOrderClusters* clusters
) noexcept nogil:
    """How many points may be proposed for between two checks for signals."""
    return max(<Py_ssize_t> POINTS, IN_ORDER_WORK // (points.d * (clusters.k + 4)))


cdef inline Py_ssize_t end_of_round(
    const InOrderPoints* points, const InOrderClusters* clusters, InOrderScratch* scratch, Py_ssize_t start,
    Py_ssize_t stop,
) noexcept nogil:
    """End of a round that begins at point ``start``, at most ``stop``; the next round will be twice as long."""
    stop = min(stop, start + min(scratch.round_length, points_between_checks(points, clusters)))
    scratch.round_length = min(2 * scratch.round_length, <Py_ssize_t> MAX_ROUND)
    return stop


cdef bint begin_scratch(
    const InOrderPoints* points, InOrderScratch* scratch, Memory* memory, int threads
) noexcept nogil
cdef bint reserve_clusters(
    InOrderClusters* clusters, InOrderScratch* scratch, Memory* memory, Py_ssize_t d, Py_ssize_t capacity,
    Py_ssize_t sets,
) noexcept nogil
cdef Py_ssize_t cheapest(
    const InOrderPoints* points, const InOrderClusters* clusters, const InOrderScratch* scratch, Py_ssize_t i,
    double* cost, int thread,
) noexcept nogil
cdef void propose(
    const InOrderPoints* points, const InOrderClusters* clusters, const InOrderScratch* scratch, Py_ssize_t start,
    Py_ssize_t stop, int* label, double* cost,
) noexcept nogil
cdef double squared_error(
    const InOrderPoints* points, const InOrderScratch* scratch, const double* centers, const int* label,
) noexcept nogil


cdef class InOrderSweep:
    cdef InOrderPoints points
    cdef InOrderClusters clusters
    cdef InOrderScratch scratch
    cdef Memory memory                  # of clusters and scratch
    cdef list point_arrays              # keep the buffers of points alive
    cdef int64_t[:, ::1] digits         # likewise for scratch.sums
    cdef Py_ssize_t work                # multiply-adds since the last check for signals

    cdef void attach(self, X, order, group, int threads, const double[::1] weight=*)
    cdef void reserve(self, Py_ssize_t capacity, Py_ssize_t sets)
    cdef int check_signals(self, Py_ssize_t work) except -1 nogil
