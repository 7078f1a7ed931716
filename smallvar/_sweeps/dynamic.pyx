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

A *step* is several sweeps, and has two callers: `DynamicStep`, for batches in Python, and `step`, for batches in C
memory, without Python objects. The latter also does what MovingClusters (_time/moving.py) does from one step to the
next.

Letters are the paper's: of old clusters, phi is the center, gamma the weight, faded by age, and Q D the price of
reviving them; theta is a center now, lam the price of a new cluster.
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL, INFINITY, fabs, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from smallvar._sweeps.direct cimport (
    AT_FIRST,
    BAD_SIZE,
    BAD_VALUE,
    NO_MEMORY,
    NOT_CONVERGED,
    OK,
    OUT_OF_RANGE,
    DirectTable,
    begin_table,
    check_rows,
    reserve_sums,
)
from smallvar._sweeps.in_order cimport (
    IN_ORDER_CHUNK,
    IN_ORDER_WORK,
    InOrderState,
    InOrderSweep,
    begin_scratch,
    end_of_round,
    points_between_checks,
    reserve_clusters,
    row_buffer,
    sc_least,
    set_center,
    squared_distance,
)
from smallvar._sweeps.memory cimport Memory, free_all, take, widen
from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport Rows, poll_signals, refuse_rows, row_at, value_of, weight_of
from smallvar._sweeps.sums cimport (
    ACCUMULATOR_DIGITS,
    Accumulator,
    Sums,
    accumulator_add,
    accumulator_round,
    move_points,
    sums_clear,
    sums_quotient,
    sums_t,
    sums_total,
    sums_weight,
)
from smallvar._sweeps.tolerances cimport (
    C_LARGEST_ERROR,
    C_LARGEST_REACH,
    C_LARGEST_WEIGHT_RATIO,
    C_SMALLEST_REACH,
    DISTANCE_MARGIN,
)

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


cdef struct DynamicBounds:      # of costs in the clusters that a point is not in
    # n: when the proposal was made, the root of the least of these costs / w, plus other_shift of the proposed cluster
    # at that time: what other_shift has grown by since is taken off by subtracting it as it is now
    double* lower
    double* other_shift         # of each cluster: the largest shift of any other one, added up over all sweeps
    Py_ssize_t first_valid      # bounds of the points before this one are from before a cluster came or went


cdef struct DynamicState:
    InOrderState* in_order
    const sums_t* sums          # of the points in each cluster, updated with every commit
    double lam
    Py_ssize_t n_old            # old clusters, which come before the new ones
    const double* phi           # n_old x d: their centers
    const double* gamma         # n_old: their weights, faded by age
    const double* penalty       # n_old: Q D
    double* theta               # k x d: means after a sweep; in_order.columns may have newer centers
    Py_ssize_t* count           # of each cluster: its points
    int* label                  # n: cluster of each point, -1: none yet
    int* proposed               # n: the cheapest cluster, or OPEN
    double* assigned_cost       # n: weighted squared distance to the assigned center, at the start of the sweep
    DynamicBounds bounds
    # the run so far
    bint between_sweeps         # proposals are being made by which the objective at the new means is known
    Py_ssize_t start            # in a sweep: the point that comes next
    Py_ssize_t end_of_proposed  # the first point that has no proposal
    bint changed                # whether a point has changed cluster in the sweep
    double fixed                # the objective but for sum_i w_i ||y_i - theta_{z_i}||^2
    double objective            # after the last sweep
    int n_iter                  # sweeps
    bint converged
    Py_ssize_t work             # multiply-adds since the last check for signals


cdef void weighted_factors(const DynamicState* state, double w, double* factors) noexcept nogil:
    """Compute the factors of ||y - c||^2 for a point of weight w.

    They are w, or w gamma / (w + gamma) for an old cluster without points.  OUT factors: k
    """
    cdef Py_ssize_t k
    for k in range(state.in_order.k):
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
    const DynamicState* state, Py_ssize_t start, Py_ssize_t stop, bint bounded, Py_ssize_t chunk, int thread
) noexcept nogil:
    """The part of `propose` for one chunk of the points start..stop-1."""
    cdef const InOrderState* in_order = state.in_order
    cdef Py_ssize_t i, k, d = in_order.d
    cdef double least, second, distance, w = 1.0
    cdef const double* x
    cdef const double* factor = in_order.factor
    cdef double* factors = in_order.factors + thread * in_order.capacity
    start += chunk * IN_ORDER_CHUNK
    for i in range(start, min(stop, start + IN_ORDER_CHUNK)):
        x, w = row_at(&in_order.rows, i, row_buffer(in_order, thread)), weight_of(&in_order.rows, i)
        if bounded:
            k = state.label[i]
            distance = squared_distance(x, state.theta + k * d, d)
            state.assigned_cost[i] = w * distance
            if stays(state, i, w, distance):
                state.proposed[i] = <int> k
                continue
        if in_order.rows.weight != NULL:
            weighted_factors(state, w, factors)
            factor = factors
        k = sc_least(
            x, d, in_order.columns, in_order.capacity, in_order.k, in_order.offset, factor,
            in_order.costs + thread * in_order.capacity, &least, &second,
        )
        if k >= 0 and least <= state.lam:
            state.proposed[i] = <int> k
            state.bounds.lower[i] = sqrt(min(second / w, LARGEST_COST)) + state.bounds.other_shift[k]
        else:
            state.proposed[i] = OPEN


cdef void propose(DynamicState* state, Py_ssize_t stop, bint bounded) noexcept nogil:
    """Propose clusters for the points from end_of_proposed on, and set the bounds of those that are computed anew.

    stop : the new end_of_proposed
    bounded : use bounds, where all points are in clusters, and set assigned_cost
    """
    cdef const InOrderState* in_order = state.in_order
    cdef Py_ssize_t start = state.end_of_proposed, size = stop - start
    cdef Py_ssize_t chunk, n_chunks = (size + IN_ORDER_CHUNK - 1) // IN_ORDER_CHUNK
    # 4 distances a point: with bounds most points take one, and some one to each cluster
    cdef Py_ssize_t work = size * in_order.d * (4 if bounded else in_order.k)
    cdef ParallelLoop loop = begin_loop(n_chunks, in_order.threads if work >= PAYS else 1)
    if loop.threads == 1:
        for chunk in range(n_chunks):
            propose_chunk(state, start, stop, bounded, chunk, 0)
    else:
        for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            propose_chunk(state, start, stop, bounded, chunk, begin_chunk(&loop))
    end_loop(&loop)
    state.end_of_proposed = stop
    state.work += size * in_order.d * (in_order.k + 4)


# ---- a run -----------------------------------------------------------------------------------------------------------


cdef bint reserve_points(DynamicState* state) noexcept nogil:
    """Memory for what is known of each point; returns whether there was any."""
    cdef Py_ssize_t n = state.in_order.n
    state.label = <int*> take(&state.in_order.memory, 2, n, sizeof(int))
    state.bounds.lower = <double*> take(&state.in_order.memory, 2, n, sizeof(double))
    state.proposed, state.assigned_cost = state.label + n, state.bounds.lower + n
    return state.label != NULL and state.bounds.lower != NULL


cdef bint reserve_dynamic(DynamicState* state, Py_ssize_t capacity) noexcept nogil:
    """Raise the capacity for clusters, in all tables but the sums; those there are stay.

    Returns whether there was memory.
    """
    cdef Memory* memory = &state.in_order.memory
    cdef Py_ssize_t d = state.in_order.d, old = state.in_order.capacity
    return (
        widen(memory, <void**> &state.count, 1, old, capacity, sizeof(Py_ssize_t))
        and widen(memory, <void**> &state.theta, 1, old * d, capacity * d, sizeof(double))
        and widen(memory, <void**> &state.bounds.other_shift, 1, old, capacity, sizeof(double))
        and widen(memory, <void**> &state.in_order.factor, 1, old, capacity, sizeof(double))
        and reserve_clusters(state.in_order, capacity, 1)
    )


cdef void begin_run(DynamicState* state) noexcept nogil:
    """Set up the first sweep: no points in any cluster, and only the old ones there."""
    cdef Py_ssize_t i, k
    for i in range(state.in_order.n):
        state.label[i] = -1
    state.bounds.first_valid, state.in_order.round_length, state.in_order.k = 0, 1, state.n_old
    state.start, state.end_of_proposed, state.n_iter, state.objective = 0, 0, 0, HUGE_VAL
    state.between_sweeps = state.changed = state.converged = False
    sums_clear(state.sums, 0, state.in_order.capacity)
    for k in range(state.in_order.capacity):
        state.count[k], state.bounds.other_shift[k] = 0, 0.0
    for k in range(state.n_old):
        retire(state, k)


cdef bint proceed(DynamicState* state, int max_iter) noexcept nogil:
    """Do the next piece of a run: of a sweep, or of what is between two; returns whether the run goes on.

    There must be memory for one more cluster. The run ends where the objective falls no more.
    """
    cdef Py_ssize_t n = state.in_order.n
    if state.between_sweeps:
        propose(state, min(n, state.end_of_proposed + points_between_checks(state.in_order)), True)
        if state.end_of_proposed < n:
            return True
        state.between_sweeps = False
        return update_objective(state) and state.n_iter < max_iter
    advance(state)
    if state.start < n:
        return True
    state.n_iter += 1
    if not state.changed:
        state.converged = True
        return False
    move_centers(state)
    state.start = state.end_of_proposed = 0
    state.between_sweeps, state.changed = True, False
    return True


cdef bint update_objective(DynamicState* state) noexcept nogil:
    """Set the objective at the new means, for which all points have proposals; returns whether it falls."""
    cdef Accumulator total
    cdef double previous = state.objective
    memset(&total, 0, sizeof(total))
    accumulator_add(total.digit, state.assigned_cost, state.in_order.n)
    state.objective = state.fixed + accumulator_round(total.digit, 0, ACCUMULATOR_DIGITS)
    state.bounds.first_valid = 0  # proposals for the points before it have not used bounds but set them
    state.converged = not state.objective < previous
    return not state.converged


cdef void advance(DynamicState* state) noexcept nogil:
    """Commit proposals, from the point that comes next up to one that changes what later points pay."""
    cdef Py_ssize_t i
    if state.start == state.end_of_proposed:
        propose(state, end_of_round(state.in_order, state.start, state.in_order.n), False)
    for i in range(state.start, state.end_of_proposed):
        if state.proposed[i] != state.label[i]:
            state.changed = True
            if commit(state, i, state.label[i], state.proposed[i]):
                state.in_order.round_length = 1
                state.bounds.first_valid = state.end_of_proposed = i + 1
                break
    state.start = state.end_of_proposed


cdef bint commit(DynamicState* state, Py_ssize_t i, int left, int joined) noexcept nogil:
    """Point i leaves a cluster (-1: none) and joins or opens another one; returns whether that changes costs."""
    cdef Py_ssize_t j, d = state.in_order.d
    cdef double w, gamma
    cdef const double* phi
    cdef const double* y = row_at(&state.in_order.rows, i, state.in_order.buffers)
    # y may be there too: each of its values is read before it is replaced
    cdef double* revived = state.in_order.buffers
    cdef bint opens = joined == OPEN, empties = False
    if left >= 0:
        state.count[left] -= 1
        empties = state.count[left] == 0
    if opens:
        joined = <int> state.in_order.k
        state.in_order.k += 1
        open_at(state, joined, y)
    state.count[joined] += 1
    state.label[i] = joined
    move_points(&state.in_order.rows, i, i + 1, &left, &joined, state.sums)
    if state.count[joined] == 1 and joined < state.n_old:
        # the point revives it, at theta = (gamma phi + w y) / (gamma + w)
        w = weight_of(&state.in_order.rows, i)
        gamma, phi = state.gamma[joined], state.phi + joined * d
        for j in range(d):
            revived[j] = (gamma * phi[j] + w * y[j]) / (gamma + w)
        open_at(state, joined, revived)
        opens = True
    if empties:
        retire(state, left)
    return opens or empties


cdef void open_at(DynamicState* state, Py_ssize_t k, const double* center) noexcept nogil:
    """Open cluster k at this center: from now on points pay ||y - center||^2 to join it."""
    set_center(state.in_order, k, center)
    state.in_order.offset[k], state.in_order.factor[k] = 0.0, 1.0


cdef void retire(DynamicState* state, Py_ssize_t k) noexcept nogil:
    """Close cluster k, which has no points.

    If it is old, a point y of weight 1 revives it at Q D + gamma / (1 + gamma) ||y - phi||^2; see weighted_factors
    for other weights.
    """
    if k < state.n_old:
        set_center(state.in_order, k, state.phi + k * state.in_order.d)
        state.in_order.offset[k] = state.penalty[k]
        state.in_order.factor[k] = state.gamma[k] / (1.0 + state.gamma[k])
    else:
        state.in_order.offset[k] = HUGE_VAL


cdef void move_centers(DynamicState* state) noexcept nogil:
    """Move clusters that have points to their means, theta = (gamma phi + sum w y) / (gamma + sum w).

    Adds their shifts to other_shift, and sets the part of the objective that does not depend on single points.
    """
    cdef Py_ssize_t j, k, d = state.in_order.d, n_old = state.n_old, farthest = -1
    cdef double gamma, weight, difference, shift, largest = 0.0, second = 0.0
    cdef double* theta
    cdef const double* phi = NULL
    state.fixed = 0.0
    for k in range(state.in_order.k):
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
            difference = theta[j] - state.in_order.columns[k + j * state.in_order.capacity]
            shift += difference * difference
        set_center(state.in_order, k, theta)
        if shift > largest:
            largest, second, farthest = shift, largest, k
        elif shift > second:
            second = shift
    # the largest shift of any other center: the largest of all, but for the center that has it (Hamerly)
    largest, second = sqrt(largest), sqrt(second)
    for k in range(state.in_order.k):
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

    cdef DynamicState dynamic
    cdef tuple old                      # keeps phi, gamma and penalty alive
    cdef Sums sums
    cdef const double[::1] weight       # of the points as they are visited, or None
    cdef object row_weight              # the weights, as given
    cdef object order                   # of visit, or None
    cdef readonly double objective
    cdef readonly int n_iter            # sweeps
    cdef readonly bint converged

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
        self.dynamic.in_order, self.dynamic.lam, self.dynamic.n_old = &self.state, lam, n_old
        if n_old:
            self.dynamic.phi, self.dynamic.gamma, self.dynamic.penalty = &centers[0, 0], &gamma[0], &penalty[0]
        # sums from 0: theta is a mean of points and phi
        self.sums = Sums(Layout(X, weight, n_threads, origin=np.zeros(self.state.d)), n_old + 8)
        self.dynamic.sums = &self.sums.table
        if not reserve_points(&self.dynamic):
            raise MemoryError
        self.reserve_all(n_old + 8)

    def run(self, order, int max_iter):
        """Sweep over the points in this order (IN, or None for the order given) until the objective stops falling."""
        cdef bint goes_on = True
        self.begin(order)
        while goes_on:
            with nogil:
                goes_on = proceed(&self.dynamic, max_iter)
                poll_signals(&self.dynamic.work, 0, IN_ORDER_WORK)
            if self.state.k == self.state.capacity:  # a piece opens one cluster at most
                self.reserve_all(2 * self.state.capacity)
        if not self.dynamic.objective < HUGE_VAL:
            refuse_rows()
        self.objective, self.n_iter = self.dynamic.objective, self.dynamic.n_iter
        self.converged = self.dynamic.converged
        return self

    cdef void begin(self, order):
        """Set up the first sweep over the points in this order."""
        cdef const Py_ssize_t[::1] indices
        self.order, self.weight = order, self.row_weight
        self.state.rows.order = NULL
        if order is not None:
            indices = order
            self.state.rows.order = &indices[0]
            if self.row_weight is not None:
                self.weight = self.row_weight[order]
        if self.weight is not None:
            self.state.rows.weight = &self.weight[0]
        begin_run(&self.dynamic)

    cdef void reserve_all(self, Py_ssize_t capacity):
        """Raise the capacity for clusters, in all tables; those there are stay."""
        if not reserve_dynamic(&self.dynamic, capacity):
            raise MemoryError
        self.sums.reserve(capacity)

    def result(self):
        """Labels in the order of the rows, centers and weights of clusters.

        The clusters are the old ones and then the new ones that have points. Later runs leave the arrays as they are.
        """
        cdef Py_ssize_t i, k, m = 0, n = self.state.n, d = self.state.d
        cdef Py_ssize_t[::1] number = np.empty(self.state.k, dtype=np.intp), labels = np.empty(n, dtype=np.intp)
        cdef double[::1] weights = np.empty(self.state.k)
        cdef double[:, ::1] theta = np.empty((self.state.k, d))
        for k in range(self.state.k):
            number[k] = m
            if k < self.dynamic.n_old or self.dynamic.count[k] > 0:
                weights[m] = sums_weight(&self.sums.table, k)
                memcpy(&theta[m, 0], self.dynamic.theta + k * d, d * sizeof(double))
                m += 1
        for i in range(n):
            labels[i if self.state.rows.order == NULL else self.state.rows.order[i]] = number[self.dynamic.label[i]]
        return np.asarray(labels), np.asarray(theta)[:m].copy(), np.asarray(weights)[:m].copy()


# ---- a step in C memory ----------------------------------------------------------------------------------------------


cdef DynamicMeans* new_state(Py_ssize_t d, double lam, double q, double tau) noexcept nogil:
    """A state before the first step; NULL where an argument is wrong or there is no memory."""
    cdef DynamicMeans* state
    if d < 1 or not (0.0 < lam < INFINITY and 0.0 <= q < INFINITY and 0.0 <= tau < INFINITY):
        return NULL
    state = <DynamicMeans*> calloc(1, sizeof(DynamicMeans))
    if state != NULL:
        state.d, state.lam, state.q, state.tau = d, lam, q, tau
    return state


cdef void free_state(DynamicMeans* state) noexcept nogil:
    """Free a state; NULL is none."""
    if state != NULL:
        free_all(&state.old.memory)
        free(state)


cdef bint reserve_old(OldClusters* clusters, Py_ssize_t n, Py_ssize_t d) noexcept nogil:
    """Memory for n clusters; returns whether there was any. The caller frees it, also where this fails."""
    memset(clusters, 0, sizeof(clusters[0]))
    clusters.centers = <double*> take(&clusters.memory, n, d, sizeof(double))
    clusters.weights = <double*> take(&clusters.memory, 1, n, sizeof(double))
    clusters.ages = <int64_t*> take(&clusters.memory, 1, n, sizeof(int64_t))
    clusters.ids = <int64_t*> take(&clusters.memory, 1, n, sizeof(int64_t))
    return clusters.memory.n == 4


cdef bint dies(const DynamicMeans* state, int64_t age) noexcept nogil:
    """Whether a cluster of this age is forgotten: to revive it would cost more than a new one."""
    return state.q * age > state.lam


cdef struct DirectStep:
    DirectTable table
    InOrderState in_order
    DynamicState dynamic    # its pointers are into this struct and its memory
    int64_t* number         # of each of its old clusters, those that are alive before the step: its place among all
    int64_t* ids            # of each cluster that has points, after the step


cdef int step(
    DynamicMeans* means, const Rows* rows, int64_t elapsed, int max_iter, int64_t* ids, double* objective, int* n_iter
) noexcept nogil:
    """One step of D-Means, ``elapsed`` after the last; see smallvar/cython_api.pxd. A failed one leaves the state.

    Rows n = 0 is a step without points.
    """
    cdef DirectStep work
    cdef OldClusters after
    cdef int status = check_step(means, rows, elapsed, max_iter, ids)
    if status != OK:
        return status
    memset(&work, 0, sizeof(work))
    memset(&after, 0, sizeof(after))
    status = begin_step(&work, means, rows, elapsed)
    if status == OK and rows.n > 0:
        status = run(&work, max_iter)
    if status >= 0:
        work.ids = <int64_t*> take(&work.in_order.memory, 1, work.in_order.k, sizeof(int64_t))
        if work.ids == NULL or not reserve_old(&after, work.in_order.k, means.d):
            status = NO_MEMORY
        else:
            end_step(&work, means, elapsed, &after, ids)
            means.old, after = after, means.old
            if objective != NULL:
                objective[0] = work.dynamic.objective
            if n_iter != NULL:
                n_iter[0] = work.dynamic.n_iter
    free_all(&after.memory)
    free_all(&work.in_order.memory)
    free_all(&work.table.memory)
    return status


cdef int check_step(
    const DynamicMeans* state, const Rows* rows, int64_t elapsed, int max_iter, const int64_t* ids
) noexcept nogil:
    """OK where a step can be made of these arguments."""
    cdef Py_ssize_t i, j
    cdef double reach = 0.0, lightest = HUGE_VAL, heaviest = 0.0, total = 0.0
    cdef int status
    if state == NULL or rows.n < 0 or elapsed < 1 or elapsed > 0x7fffffff or max_iter < 1:
        return BAD_SIZE
    if rows.n == 0:
        return OK
    if ids == NULL or rows.d != state.d:
        return BAD_SIZE
    status = check_rows(rows)
    if status != OK:
        return status
    for i in range(rows.n):
        for j in range(rows.d):
            reach = max(reach, fabs(value_of(rows, i, j)))
        lightest, heaviest = min(lightest, weight_of(rows, i)), max(heaviest, weight_of(rows, i))
        total += weight_of(rows, i)
    if not lightest > 0.0:
        return BAD_VALUE
    if heaviest > C_LARGEST_WEIGHT_RATIO * lightest:
        return OUT_OF_RANGE
    if reach > 0.0 and not C_SMALLEST_REACH < reach < C_LARGEST_REACH:
        return OUT_OF_RANGE
    return OUT_OF_RANGE if rows.weight != NULL and total * reach * reach > C_LARGEST_ERROR else OK


cdef int begin_step(DirectStep* work, const DynamicMeans* means, const Rows* rows, int64_t elapsed) noexcept nogil:
    """Set up the old clusters that are alive, and memory for points and clusters."""
    cdef const OldClusters* old = &means.old
    cdef InOrderState* in_order = &work.in_order
    cdef DynamicState* state = &work.dynamic
    cdef Memory* memory = &in_order.memory
    cdef Py_ssize_t k, m = 0, d = means.d, n = max(<Py_ssize_t> 1, old.n)
    cdef double* phi = <double*> take(memory, n, d, sizeof(double))
    cdef double* gamma = <double*> take(memory, 2, n, sizeof(double))
    cdef double* zeros = <double*> take(memory, 1, d, sizeof(double))
    cdef int64_t age
    cdef int status
    work.number = <int64_t*> take(memory, 1, n, sizeof(int64_t))
    if phi == NULL or gamma == NULL or zeros == NULL or work.number == NULL:
        return NO_MEMORY
    work.table.rows = rows[0]
    if rows.n > 0:
        # sums from 0: theta is a mean of points and phi
        status = begin_table(&work.table, rows, zeros, old.n + AT_FIRST)
        if status != OK:
            return status
    for k in range(old.n):
        age = old.ages[k] + elapsed - 1
        if elapsed > 1 and dies(means, age):
            continue  # in the gap before this step
        work.number[m] = k
        memcpy(phi + m * d, old.centers + k * d, d * sizeof(double))
        # gamma_k = 1 / (1 / v_k + tau D_k); rounding may take Q D beyond lam
        gamma[m] = 1.0 / (1.0 / old.weights[k] + means.tau * age)
        gamma[n + m] = min(means.q * age, means.lam)
        m += 1
    in_order.rows, in_order.n, in_order.d, in_order.k = work.table.rows, rows.n, d, m
    state.in_order, state.sums, state.lam, state.n_old = in_order, &work.table.sums, means.lam, m
    state.phi, state.gamma, state.penalty = phi, gamma, gamma + n
    if reserve_points(state) and begin_scratch(in_order, 1) and reserve_dynamic(state, old.n + AT_FIRST):
        return OK
    return NO_MEMORY


cdef int run(DirectStep* work, int max_iter) noexcept nogil:
    """Sweeps until the objective stops falling."""
    cdef Py_ssize_t capacity
    begin_run(&work.dynamic)
    while proceed(&work.dynamic, max_iter):
        if work.in_order.k == work.in_order.capacity:
            capacity = 2 * work.in_order.capacity
            if not reserve_dynamic(&work.dynamic, capacity) or reserve_sums(&work.table, capacity) != OK:
                return NO_MEMORY
    return OK if work.dynamic.converged else NOT_CONVERGED


cdef void end_step(
    const DirectStep* work, DynamicMeans* means, int64_t elapsed, OldClusters* after, int64_t* ids
) noexcept nogil:
    """The clusters that live after the step, and the number of each point's cluster."""
    cdef const OldClusters* old = &means.old
    cdef const DynamicState* state = &work.dynamic
    cdef Py_ssize_t i, k, m, d = means.d
    cdef double weight
    for k in range(work.in_order.k):
        if state.count[k] > 0:
            weight, work.ids[k] = sums_weight(state.sums, k), means.next_id
            if k < state.n_old:
                weight, work.ids[k] = state.gamma[k] + weight, old.ids[work.number[k]]
            else:
                means.next_id += 1
            add_living(means, after, state.theta + k * d, weight, 1, work.ids[k])
        elif k < state.n_old:
            m = work.number[k]
            add_living(means, after, old.centers + m * d, old.weights[m], old.ages[m] + elapsed, old.ids[m])
    for i in range(work.in_order.n):
        ids[i] = work.ids[state.label[i]]


cdef void add_living(
    const DynamicMeans* state, OldClusters* after, const double* center, double weight, int64_t age, int64_t number
) noexcept nogil:
    """Add a cluster behind those that there are, unless it is forgotten."""
    cdef Py_ssize_t d = state.d, k = after.n
    if dies(state, age):
        return
    memcpy(after.centers + k * d, center, d * sizeof(double))
    after.weights[k], after.ages[k], after.ids[k] = weight, age, number
    after.n += 1
