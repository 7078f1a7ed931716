"""The sweep of D-Means (Campbell, Kulis & How, section 4): points revive old clusters and open new ones, one by one.

Old clusters are those of earlier batches. In this batch they have no points at first, and the first point that joins
one revives it. A sweep begins with proposals for all points, made in parallel. They are committed in the order of the
points, up to a commit that changes what later points pay: it opens or revives a cluster, or takes the last point of
one. From there on proposals are made anew, for rounds that begin with one point and double (see in_order.pyx). While no
cluster comes or goes, costs do not depend on the points before, so that results are those of visiting one point after
the other.

*Bounds.* When a proposal is computed, the cost of the second cheapest cluster, by the weight of the point, gives a
lower bound for all clusters but the proposed one, as in Hamerly's k-means. Shifts of centers are taken off it. While no
cluster comes or goes, a point whose own cluster is nearer than the bound stays there, and costs one distance.

Letters are the paper's: of old clusters, phi is the center, gamma the weight, faded by age, and Q D the price of
reviving them; theta is a center now, lam the price of a new cluster.
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL, sqrt
from libc.string cimport memcpy, memset

from smallvar._sweeps.in_order cimport (
    IN_ORDER_CHUNK, InOrderClusters, InOrderSweep, InOrderPoints, InOrderScratch, end_of_round, points_between_checks,
    reserve_clusters, row_buffer, sc_least, set_center, squared_distance,
)
from smallvar._sweeps.memory cimport Memory, take, widen
from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport refuse_rows, row_at, weight_of
from smallvar._sweeps.sums cimport (
    ACCUMULATOR_DIGITS, Sums, Accumulator, move_points, sums_clear, sums_quotient, sums_total, sums_weight,
    accumulator_add, accumulator_round,
)
from smallvar._sweeps.tolerances cimport DISTANCE_MARGIN

from smallvar._sweeps.sums import Layout

import numpy as np

cdef enum:
    OPEN = -2           # proposal: a new cluster

cdef extern from *:
    """
    #define SMALLVAR_SPENT_BOUND 1e-4
    #define SMALLVAR_LARGEST_COST 1e300
    """
    # fraction of a bound as it was stored: where shifts have left no more than that, rounding counts and it is not used
    const double SPENT_BOUND "SMALLVAR_SPENT_BOUND"
    const double LARGEST_COST "SMALLVAR_LARGEST_COST"  # of the second cheapest cluster, so that bounds are finite


cdef void weighted_factors(
    const InOrderClusters* clusters, const DynamicState* state, double w, double* factors
) noexcept nogil:
    """Compute the factors of ||y - c||^2 for a point of weight w.

    They are w, or w gamma / (w + gamma) for an old cluster without points.  OUT factors: k
    """
    cdef Py_ssize_t k
    for k in range(clusters.k):
        factors[k] = w
    for k in range(state.n_old):
        if state.count[k] == 0:
            factors[k] = w * (state.gamma[k] / (w + state.gamma[k]))


cdef bint stays(const DynamicState* state, Py_ssize_t i, double w, double distance) noexcept nogil:
    """Whether bounds show that point i stays: its cluster, at this squared distance, costs less than others and lam.

    Its own cluster costs w * distance. Joining another one costs w times offset / w + factor / w * ||y - c||^2. As
    factor <= w, the root of this sum falls by no more than c has moved, which is no more than other_shift has grown
    since the bound was made: it is now at least ``bound``. The margin is far more than the rounding of both sides.
    """
    cdef double bound = state.bounds.lower[i] - state.bounds.other_shift[state.label[i]]
    return (
        i >= state.bounds.first_valid
        and w * distance <= state.lam
        and bound > SPENT_BOUND * state.bounds.lower[i]
        and distance < bound * bound * (1 - DISTANCE_MARGIN)
    )


cdef void propose_chunk(
    const InOrderPoints* points, const InOrderClusters* clusters, const InOrderScratch* scratch,
    const DynamicState* state, Py_ssize_t start, Py_ssize_t stop, bint bounded, Py_ssize_t chunk, int thread,
) noexcept nogil:
    """The part of `propose` for one chunk of the points start..stop-1."""
    cdef Py_ssize_t i, k
    cdef double least, second, w = 1.0
    cdef const double* x
    cdef const double* factor = clusters.factor
    cdef double* factors = scratch.factors + thread * clusters.capacity
    start += chunk * IN_ORDER_CHUNK
    for i in range(start, min(stop, start + IN_ORDER_CHUNK)):
        x = row_at(&points.rows, i, row_buffer(points, scratch, thread))
        w = weight_of(&points.rows, i)
        if bounded:
            k = state.label[i]
            state.assigned_distance[i] = squared_distance(x, state.theta + k * points.d, points.d)
            if stays(state, i, w, state.assigned_distance[i]):
                state.proposed[i] = <int> k
                continue
        if points.rows.weight != NULL:
            weighted_factors(clusters, state, w, factors)
            factor = factors
        k = sc_least(
            x, points.d, clusters.columns, clusters.capacity, clusters.k, clusters.offset, factor,
            scratch.costs + thread * clusters.capacity, &least, &second,
        )
        if k >= 0 and least <= state.lam:
            state.proposed[i] = <int> k
            state.bounds.lower[i] = sqrt(min(second / w, LARGEST_COST)) + state.bounds.other_shift[k]
        else:
            state.proposed[i] = OPEN


cdef void propose(const DynamicState* state, Py_ssize_t start, Py_ssize_t stop, bint bounded) noexcept nogil:
    """Propose a cluster for each of the points start..stop-1, and set the bounds of those that are computed anew.

    bounded : use bounds, where all points are in clusters, and set assigned_distance
    """
    cdef const InOrderPoints* points = state.points
    cdef const InOrderClusters* clusters = state.clusters
    cdef const InOrderScratch* scratch = state.scratch
    cdef Py_ssize_t chunk, n_chunks = (stop - start + IN_ORDER_CHUNK - 1) // IN_ORDER_CHUNK
    # 4 distances a point: with bounds most points take one, and some one to each cluster
    cdef Py_ssize_t work = (stop - start) * points.d * (4 if bounded else clusters.k)
    cdef ParallelLoop loop = begin_loop(n_chunks, scratch.threads if work >= PAYS else 1)
    if loop.threads == 1:
        for chunk in range(n_chunks):
            propose_chunk(points, clusters, scratch, state, start, stop, bounded, chunk, 0)
    else:
        for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            propose_chunk(points, clusters, scratch, state, start, stop, bounded, chunk, begin_chunk(&loop))
    end_loop(&loop)


cdef double total(const double* values, const double* weight, Py_ssize_t n) noexcept nogil:
    """The exact sum of these values, each times its weight (NULL: 1), rounded once."""
    cdef Accumulator wide
    cdef double[IN_ORDER_CHUNK] product
    cdef Py_ssize_t i, start = 0, stop
    memset(&wide, 0, sizeof(wide))
    if weight == NULL:
        accumulator_add(wide.digit, values, n)
        start = n
    while start < n:
        stop = min(n, start + IN_ORDER_CHUNK)
        for i in range(start, stop):
            product[i - start] = weight[i] * values[i]
        accumulator_add(wide.digit, product, stop - start)
        start = stop
    return accumulator_round(wide.digit, 0, ACCUMULATOR_DIGITS)


# ---- a run -----------------------------------------------------------------------------------------------------------


cdef bint reserve_points(DynamicState* state, Memory* memory) noexcept nogil:
    """Memory for what is known of each point; returns whether there was any."""
    cdef Py_ssize_t n = state.points.n
    state.label = <int*> take(memory, 2, n, sizeof(int))
    state.bounds.lower = <double*> take(memory, 2, n, sizeof(double))
    state.proposed, state.assigned_distance = state.label + n, state.bounds.lower + n
    return state.label != NULL and state.bounds.lower != NULL


cdef bint reserve_dynamic(DynamicState* state, Memory* memory, Py_ssize_t capacity) noexcept nogil:
    """Raise the capacity for clusters, in all tables but the sums; those there are stay.

    Returns whether there was memory.
    """
    cdef Py_ssize_t d = state.points.d, old = state.clusters.capacity
    return (
        widen(memory, <void**> &state.count, 1, old, capacity, sizeof(Py_ssize_t))
        and widen(memory, <void**> &state.theta, 1, old * d, capacity * d, sizeof(double))
        and widen(memory, <void**> &state.bounds.other_shift, 1, old, capacity, sizeof(double))
        and widen(memory, <void**> &state.clusters.factor, 1, old, capacity, sizeof(double))
        and reserve_clusters(state.clusters, state.scratch, memory, d, capacity, 1)
    )


cdef void begin_run(DynamicState* state) noexcept nogil:
    """Set up the first sweep: no points in any cluster, and only the old ones there."""
    cdef Py_ssize_t i, k
    for i in range(state.points.n):
        state.label[i] = -1
    state.bounds.first_valid, state.scratch.round_length, state.clusters.k = 0, 1, state.n_old
    sums_clear(state.sums, 0, state.clusters.capacity)
    for k in range(state.clusters.capacity):
        state.count[k], state.bounds.other_shift[k] = 0, 0.0
    for k in range(state.n_old):
        retire(state, k)


cdef double objective_of(DynamicState* state) noexcept nogil:
    """The objective at the new means, for which there are proposals with bounds for all points."""
    state.bounds.first_valid = 0  # proposals for the points before it have not used bounds but set them
    return state.fixed + total(state.assigned_distance, state.points.rows.weight, state.points.n)


cdef Py_ssize_t advance(
    DynamicState* state, Py_ssize_t start, Py_ssize_t* proposed, Py_ssize_t* changes
) noexcept nogil:
    """Commit proposals up to one that changes what later points pay; returns the point that comes next.

    INOUT proposed : the first point that has no proposal;  changes : number of points that changed cluster
    """
    cdef Py_ssize_t i
    if start == proposed[0]:
        proposed[0] = end_of_round(state.points, state.clusters, state.scratch, start, state.points.n)
        propose(state, start, proposed[0], False)
    for i in range(start, proposed[0]):
        if state.proposed[i] != state.label[i]:
            changes[0] += 1
            if commit(state, i, state.label[i], state.proposed[i]):
                state.scratch.round_length = 1
                state.bounds.first_valid = proposed[0] = i + 1
                return i + 1
    return proposed[0]


cdef bint commit(DynamicState* state, Py_ssize_t i, int left, int joined) noexcept nogil:
    """Point i leaves a cluster (-1: none) and joins or opens another one; returns whether that changes costs."""
    cdef Py_ssize_t j, d = state.points.d
    cdef double w, gamma
    cdef const double* phi
    cdef const double* y = row_at(&state.points.rows, i, state.scratch.rows)
    cdef double* revived = state.scratch.rows  # y may be there too: each of its values is read before it is replaced
    cdef bint opens = joined == OPEN, empties = False
    if left >= 0:
        state.count[left] -= 1
        empties = state.count[left] == 0
    if opens:
        joined = <int> state.clusters.k
        state.clusters.k += 1
        open_at(state, joined, y)
    state.count[joined] += 1
    state.label[i] = joined
    move_points(&state.points.rows, i, i + 1, &left, &joined, state.sums)
    if state.count[joined] == 1 and joined < state.n_old:
        # the point revives it, at theta = (gamma phi + w y) / (gamma + w)
        w, gamma, phi = weight_of(&state.points.rows, i), state.gamma[joined], state.phi + joined * d
        for j in range(d):
            revived[j] = (gamma * phi[j] + w * y[j]) / (gamma + w)
        open_at(state, joined, revived)
        opens = True
    if empties:
        retire(state, left)
    return opens or empties


cdef void open_at(DynamicState* state, Py_ssize_t k, const double* center) noexcept nogil:
    """Open cluster k at this center: from now on points pay ||y - center||^2 to join it."""
    set_center(state.clusters, state.points.d, k, center)
    state.clusters.offset[k], state.clusters.factor[k] = 0.0, 1.0


cdef void retire(DynamicState* state, Py_ssize_t k) noexcept nogil:
    """Close cluster k, which has no points.

    If it is old, a point y of weight 1 revives it at Q D + gamma / (1 + gamma) ||y - phi||^2; see weighted_factors
    for other weights.
    """
    if k < state.n_old:
        set_center(state.clusters, state.points.d, k, state.phi + k * state.points.d)
        state.clusters.offset[k] = state.penalty[k]
        state.clusters.factor[k] = state.gamma[k] / (1.0 + state.gamma[k])
    else:
        state.clusters.offset[k] = HUGE_VAL


cdef void move_centers(DynamicState* state) noexcept nogil:
    """Move clusters that have points to their means, theta = (gamma phi + sum w y) / (gamma + sum w).

    Adds their shifts to other_shift, and sets the part of the objective that does not depend on single points.
    """
    cdef Py_ssize_t j, k, d = state.points.d, n_old = state.n_old, farthest = -1
    cdef double gamma, weight, difference, shift, largest = 0.0, second = 0.0
    cdef double* theta
    cdef const double* phi = NULL
    state.fixed = 0.0
    for k in range(state.clusters.k):
        theta = state.theta + k * d
        if k < n_old:
            phi = state.phi + k * d
        if state.count[k] == 0:
            if k < n_old:
                memcpy(theta, phi, d * sizeof(double))
            continue
        gamma, weight = state.gamma[k] if k < n_old else 0.0, sums_weight(state.sums, k)
        state.fixed += state.penalty[k] if k < n_old else state.lam
        shift = 0.0
        for j in range(d):
            if k < n_old:
                theta[j] = (gamma * phi[j] + sums_total(state.sums, k, j)) / (gamma + weight)
                difference = theta[j] - phi[j]
                state.fixed += gamma * difference * difference
            else:
                theta[j] = sums_quotient(state.sums, k, j, weight)
            difference = theta[j] - state.clusters.columns[k + j * state.clusters.capacity]
            shift += difference * difference
        set_center(state.clusters, d, k, theta)
        if shift > largest:
            largest, second, farthest = shift, largest, k
        elif shift > second:
            second = shift
    # the largest shift of any other center: the largest of all, but for the center that has it (Hamerly)
    largest, second = sqrt(largest), sqrt(second)
    for k in range(state.clusters.k):
        state.bounds.other_shift[k] += second if k == farthest else largest


# ---- a step ----------------------------------------------------------------------------------------------------------


cdef class DynamicStep(InOrderSweep):
    """One batch of D-Means: old clusters revived, new ones opened, means moved, until the objective stops falling.

    Each ``run`` is a start of its own, in the memory of those before it.

    X : IN array (n, d), float32 or float64, any strides
    weight : IN array (n,), positive, or None: 1 each
    centers : IN array (k, d), the old clusters' centers phi
    gamma : IN array (k,), their weights, faded by age
    penalty : IN array (k,), Q times their ages
    """

    cdef DynamicState state
    cdef tuple old                      # keeps phi, gamma and penalty alive
    cdef Sums sums
    cdef const double[::1] weight       # of the points as they are visited, or None
    cdef object row_weight              # the weights, as given
    cdef object order                   # of visit, or None
    cdef readonly double objective
    cdef readonly int n_iter            # sweeps
    cdef readonly bint converged
    cdef list values                    # the objective after every sweep

    def __init__(
        self, X, weight, const double[:, ::1] centers, const double[::1] gamma, const double[::1] penalty, double lam,
        int n_threads,
    ):
        cdef Py_ssize_t n_old = centers.shape[0]
        if gamma.shape[0] != n_old or penalty.shape[0] != n_old:
            raise ValueError("gamma and penalty must match centers")
        if centers.shape[1] != X.shape[1]:
            raise ValueError(f"centers must have {X.shape[1]} columns, got {centers.shape[1]}")
        if weight is not None and weight.shape != (X.shape[0],):
            raise ValueError("weight must match X")
        self.attach(X, None, None, n_threads)
        self.row_weight, self.old = weight, (centers, gamma, penalty)
        self.state.points, self.state.clusters, self.state.scratch = &self.points, &self.clusters, &self.scratch
        self.state.lam, self.state.n_old = lam, n_old
        if n_old:
            self.state.phi, self.state.gamma, self.state.penalty = &centers[0, 0], &gamma[0], &penalty[0]
        # sums from 0: theta is a mean of points and phi
        self.sums = Sums(Layout(X, weight, n_threads, origin=np.zeros(self.points.d)), n_old + 8)
        self.state.sums = &self.sums.table
        if not reserve_points(&self.state, &self.memory):
            raise MemoryError
        self.reserve_all(n_old + 8)

    def run(self, order, int max_iter):
        """Sweep over the points in this order (IN, or None for the order given) until the objective stops falling."""
        cdef Py_ssize_t start, proposed, changes, n = self.points.n
        cdef double previous = HUGE_VAL
        self.begin(order)
        while True:
            start = proposed = changes = 0
            if self.n_iter:
                with nogil:
                    self.measure()
                self.values.append(self.objective)
                self.converged = not self.objective < previous
                if self.converged or self.n_iter >= max_iter:
                    break
                previous = self.objective
                proposed = n  # by measure
            while start < n:
                # a call of advance opens one cluster at most
                if self.clusters.k == self.clusters.capacity:
                    self.reserve_all(2 * self.clusters.capacity)
                with nogil:
                    if start == proposed:  # it makes proposals, for so many points at most
                        self.check_signals(
                            min(n - start, self.scratch.round_length) * self.points.d * (self.clusters.k + 4)
                        )
                    start = advance(&self.state, start, &proposed, &changes)
            self.n_iter += 1
            if changes == 0:
                self.values.append(self.objective)
                self.converged = True
                break
            with nogil:
                move_centers(&self.state)
        return self

    cdef void begin(self, order):
        """Set up the first sweep over the points in this order."""
        cdef const Py_ssize_t[::1] indices
        self.order, self.weight = order, self.row_weight
        self.points.rows.order = NULL
        if order is not None:
            indices = order
            self.points.rows.order = &indices[0]
            if self.row_weight is not None:
                self.weight = self.row_weight[order]
        if self.weight is not None:
            self.points.rows.weight = &self.weight[0]
        begin_run(&self.state)
        self.values, self.n_iter, self.converged = [], 0, False

    cdef void reserve_all(self, Py_ssize_t capacity):
        """Raise the capacity for clusters, in all tables; those there are stay."""
        if not reserve_dynamic(&self.state, &self.memory, capacity):
            raise MemoryError
        self.sums.reserve(capacity)

    cdef int measure(self) except -1 nogil:
        """Compute the objective at the new means, and make proposals for all points."""
        cdef Py_ssize_t start = 0, stop
        while start < self.points.n:
            stop = min(self.points.n, start + points_between_checks(&self.points, &self.clusters))
            propose(&self.state, start, stop, True)
            self.check_signals((stop - start) * self.points.d * (self.clusters.k + 4))
            start = stop
        self.objective = objective_of(&self.state)
        if not self.objective < HUGE_VAL:
            refuse_rows()
        return 0

    def result(self):
        """Labels in the order of the rows, centers and weights of clusters, and the objective after every sweep.

        The clusters are the old ones and then the new ones that have points. Later runs leave the arrays as they are.
        """
        cdef Py_ssize_t i, k, m = 0, n = self.points.n
        cdef Py_ssize_t[::1] number = np.empty(self.clusters.k, dtype=np.intp), labels = np.empty(n, dtype=np.intp)
        for k in range(self.clusters.k):
            number[k] = m
            m += k < self.state.n_old or self.state.count[k] > 0
        cdef double[::1] weights = np.empty(m)
        cdef double[:, ::1] theta = np.empty((m, self.points.d))
        for k in range(self.clusters.k):
            if k < self.state.n_old or self.state.count[k] > 0:
                weights[number[k]] = sums_weight(&self.sums.table, k)
                memcpy(&theta[number[k], 0], self.state.theta + k * self.points.d, self.points.d * sizeof(double))
        for i in range(n):
            labels[i if self.points.rows.order == NULL else self.points.rows.order[i]] = number[self.state.label[i]]
        return np.asarray(labels), np.asarray(theta), np.asarray(weights), np.array(self.values)
