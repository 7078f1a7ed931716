"""Sweeps of DP-means: nearest centers, and clusters opened; sums and means are in means.pyx.

The objective is sum_i w_i ||x_i - mu_{z_i}||^2 + lam K. A sweep assigns each point to its nearest center, or to a new
one at the point itself where w_i ||x_i - mu||^2 > lam for all centers; then centers become the means of their points.

KJ12 is Kulis & Jordan (2012), MB13 Broderick, Kulis & Jordan (2013).
"""

from libc.math cimport HUGE_VAL, sqrt
from libc.string cimport memcpy, memset

from smallvar._sweeps.means cimport MeansSweep, follow_centers, reduce_to_nearest, shift_center
from smallvar._sweeps.nearest cimport (
    assign_to_new_centers,
    exceeds_penalty,
    pack_centers,
    reduce_bounds_to_last,
    threads_worth,
)
from smallvar._sweeps.nearest_sweep cimport assign_chunks
from smallvar._sweeps.rows cimport read_row, value_of, weight_of
from smallvar._sweeps.state cimport (
    BIG,
    CHUNK,
    Bounds,
    Penalty,
    State,
    knows_center_distances,
    lower_bound,
    reduce_lower_bounds,
    set_lower_bounds,
    upper_bound,
)
from smallvar._sweeps.sums cimport sums_clear, sums_quotient, sums_weight
from smallvar._sweeps.tolerances cimport BOUND_AT_CENTER, DISTANCE_MARGIN, LIMIT_MARGIN

import numpy as np

cdef extern from "_exact.h" nogil:
    void sc_squares(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, double*)

cdef extern from *:
    """
    #define SMALLVAR_MEAN_ROUNDING 1e-12
    """
    # of the length of a row: how far a mean may be off, and costs that follow from it; costs that are closer tie
    const double C_MEAN_ROUNDING "SMALLVAR_MEAN_ROUNDING"

MEAN_ROUNDING = C_MEAN_ROUNDING  # the same number for Python

cdef enum:
    MANY_COLUMNS = 4096     # columns from which memory is made for only one such batch of centers in advance, not four
    FEW_EACH = 4            # where clusters of fewer rows on average open, without a cap, they get this part of memory


cdef float penalty_limit(const State* state, double lam) noexcept nogil:
    """The penalty as a scaled distance, less LIMIT_MARGIN: points whose upper bound is below it do not exceed it."""
    return <float> min(<double> BIG, sqrt(lam) * state.frame.scale * (1.0 - LIMIT_MARGIN))


cdef Py_ssize_t next_step(Py_ssize_t step, Py_ssize_t opened) noexcept nogil:
    """Points of the next stretch: few where many clusters are opened, as fewer see centers that are out of date."""
    if opened > NEW_CENTERS:
        return max(<Py_ssize_t> CHUNK, step // 2 // CHUNK * CHUNK)
    return min(2 * step, <Py_ssize_t> 1 << 40) if opened < NEW_CENTERS // 4 else step


# ---- clusters that points beyond the penalty open --------------------------------------------------------------------


cdef Listed listed_points(Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """The points start..stop-1 that are listed as beyond the penalty, from the first one on."""
    return Listed(start // CHUNK, (stop + CHUNK - 1) // CHUNK, stop, 0)


cdef bint has_next(const State* state, Listed* listed) noexcept nogil:
    """Go on to the next point listed, if need be; whether there is one."""
    while listed.chunk < listed.last and listed.m == state.results.n_exceeding[listed.chunk]:
        listed.chunk, listed.m = listed.chunk + 1, 0
    return listed.chunk < listed.last


cdef bint open_batch(State* state, Listed* listed, Py_ssize_t max_clusters, int n_threads) noexcept nogil:
    """Visit points that exceed the penalty until these have opened a batch of clusters; whether to go on after it.

    There must be memory for NEW_CENTERS more. The points after them are compared with the new centers.
    """
    cdef Py_ssize_t[NEW_CENTERS] opened_at
    cdef Py_ssize_t first_new = state.centers.n
    cdef bint done = False
    # until the batch is full, or no cluster may be opened any more, or no point is left
    while has_next(state, listed):
        done = state.centers.n >= max_clusters
        if done or state.centers.n - first_new == NEW_CENTERS:
            break
        join_or_open(
            state, listed.chunk * CHUNK + state.results.exceeding[listed.chunk * CHUNK + listed.m], first_new,
            opened_at, n_threads
        )
        listed.m += 1
    if state.centers.n == first_new:
        return False  # the last points have opened none
    record_opened(state, first_new, n_threads)
    assign_to_new_centers(
        state, opened_at[0] + 1, listed.stop, first_new, opened_at,
        threads_worth(state, listed.stop - opened_at[0], n_threads)
    )
    return not done


cdef void record_opened(State* state, Py_ssize_t first_new, int n_threads) noexcept nogil:
    """Centers from ``first_new`` on are a batch opened in this sweep: bounds take them into account from now on."""
    state.bounds.opened = True
    if knows_center_distances(state):
        update_new_center_distances(state, first_new, n_threads)
    else:
        state.bounds.valid = False  # they say nothing about the new centers


cdef void update_new_center_distances(State* state, Py_ssize_t first_new, int n_threads) noexcept nogil:
    """For every center, the distance of the nearest other one of a batch that was opened, those from ``first_new`` on.

    OUT bounds.batch_distances: this;  INOUT bounds.new_center_half_distances: the least of half of it and what it was
    """
    cdef Bounds* bounds = &state.bounds
    cdef Py_ssize_t k
    for k in range(state.centers.n):
        bounds.batch_distances[k] = BIG
    reduce_to_nearest(state, first_new, bounds.batch_distances, n_threads)
    for k in range(state.centers.n):
        bounds.new_center_half_distances[k] = min(
            bounds.new_center_half_distances[k], <float> 0.5 * bounds.batch_distances[k]
        )


cdef void join_or_open(
    State* state, Py_ssize_t i, Py_ssize_t first_new, Py_ssize_t* opened_at, int n_threads
) noexcept nogil:
    """Point i exceeds the penalty from all known centers: it joins one opened since, or opens its own."""
    cdef double[NEW_CENTERS] distance
    cdef double[NEW_CENTERS] error
    cdef double least, least_error, second = HUGE_VAL
    cdef double square = state.frame.scale * state.frame.scale * (1.0 - DISTANCE_MARGIN)
    cdef Py_ssize_t k, n_new = state.centers.n - first_new, nearest = state.points.labels[i]
    if not exceeds_penalty(state, i, nearest, HUGE_VAL, 0):
        return  # it has joined a center of an earlier batch
    state.backend.distances(state, i, nearest, nearest + 1, &least, &least_error)
    state.backend.distances(state, i, first_new, state.centers.n, distance, error)
    for k in range(n_new):
        if distance[k] + error[k] < least - least_error or (
            distance[k] - error[k] <= least + least_error
            and is_exactly_nearer(state, i, first_new + k, nearest)
        ):
            second = min(second, least - least_error)
            nearest, least, least_error = first_new + k, distance[k], error[k]
        else:
            second = min(second, distance[k] - error[k])
    if exceeds_penalty(state, i, nearest, HUGE_VAL, 0):
        opened_at[n_new] = i
        open_at(state, i, n_threads)
        state.points.labels[i] = <int> state.centers.n - 1
        state.bounds.upper_bounds[i] = <float> BOUND_AT_CENTER
        set_lower_bounds(state, i, lower_bound((least - least_error) * square))
    else:  # nearest is a new center, since the assigned one is too far
        state.points.labels[i] = <int> nearest
        state.bounds.upper_bounds[i] = upper_bound(least + least_error, state.frame.scale)
        reduce_lower_bounds(state, i, lower_bound(second * square))


cdef bint is_exactly_nearer(const State* state, Py_ssize_t i, Py_ssize_t k, Py_ssize_t other) noexcept nogil:
    """Whether center k is nearer to point i than another one, by exact distances."""
    return state.backend.exact_distance(state, i, k, 0) < state.backend.exact_distance(state, i, other, 0)


cdef void open_at(State* state, Py_ssize_t i, int n_threads) noexcept nogil:
    """A new center at point i; there must be memory for it."""
    read_row(&state.points.rows, i, state.centers.coordinates + state.centers.n * state.points.d, 1)
    add_center(state, n_threads)


cdef void add_center(State* state, int n_threads) noexcept nogil:
    """Add the center whose coordinates have been written behind those of the others."""
    cdef Py_ssize_t k = state.centers.n
    state.bounds.new_center_half_distances[k] = BIG
    state.bounds.last_new_center_distances[k] = BIG
    state.bounds.center_half_distances[k] = 0.0  # not known before update_half_distances
    state.centers.n += 1
    pack_centers(state, k, n_threads)


cdef Py_ssize_t farthest_listed(const State* state, double* distance) noexcept nogil:
    """The point with the largest weighted distance beyond the penalty that chunks have found, -1: there is none."""
    cdef Py_ssize_t c, i = -1
    distance[0] = state.penalty.lam
    for c in range((state.points.n + CHUNK - 1) // CHUNK):
        if state.results.farthest[c] >= 0 and state.results.farthest_distance[c] > distance[0]:
            distance[0], i = state.results.farthest_distance[c], state.results.farthest[c]
    return i


cdef void open_alone(State* state, Py_ssize_t i, int n_threads) noexcept nogil:
    """Point i opens the one cluster of a sweep of delayed creation; there must be memory for it."""
    cdef double scale = state.frame.scale
    cdef double distance = state.backend.exact_distance(state, i, state.points.labels[i], 0)
    state.bounds.upper_bounds[i] = <float> BOUND_AT_CENTER
    set_lower_bounds(state, i, lower_bound(distance * scale * scale * (1.0 - DISTANCE_MARGIN)))
    open_at(state, i, n_threads)
    state.points.labels[i] = <int> state.centers.n - 1
    if knows_center_distances(state):
        update_new_center_distances(state, state.centers.n - 1, n_threads)
    else:
        reduce_bounds_to_last(state, threads_worth(state, state.points.n, n_threads))


# ---- the sweep -------------------------------------------------------------------------------------------------------


cdef class DPSweep(MeansSweep):
    """Algorithm 1 of KJ12, its variant with delayed creation, and the means they share; for dense and sparse rows.

    A sweep is ``create``, or ``seek_farthest``, ``assign`` and ``open_farthest`` (delayed creation: one cluster a
    sweep); then ``move_centers``, once.

    Parameters are those of MeansSweep.
    """

    def start(self, const double[:, ::1] centers):
        """Begin a run at these centers; all labels are 0."""
        self.set_centers(centers)
        memset(self.state.points.labels, 0, self.state.points.n * sizeof(int))
        self.n_before = self.state.centers.n
        self.farthest_point = -1
        self.have_sums = False
        self.n_unassigned = 0

    # ---- opening clusters ------------------------------------------------------------------------------------

    def create(self, double lam, Py_ssize_t max_clusters):
        """One sweep of KJ12, Algorithm 1: nearest centers, clusters opened in the order of the points.

        The nearest known centers of a stretch of points are found in parallel. Only points that exceed the penalty
        from those can open a cluster: an ordered pass compares them with the centers opened since the stretch began.
        Then the points after each new center are compared with it, again in parallel. So each point sees what it would
        see if all were visited one after the other. At the cap (MB13 eq. 12) none is opened.
        """
        cdef Penalty* penalty = &self.state.penalty
        cdef Py_ssize_t position = 0, end, opened
        self.check_bounds()
        penalty.lam = lam
        penalty.find_exceeding = self.state.centers.n < max_clusters
        penalty.limit = penalty_limit(self.state, lam) if penalty.find_exceeding else BIG
        with nogil:
            while position < self.state.points.n:
                end = min(self.state.points.n, position + min(self.sweep.step, self.chunks_at_once() * CHUNK))
                assign_chunks(&self.sweep, position // CHUNK, (end + CHUNK - 1) // CHUNK)
                opened = 0
                if penalty.find_exceeding:
                    opened = self.open_in_order(position, end, max_clusters)
                    if self.state.centers.n >= max_clusters:
                        penalty.find_exceeding, penalty.limit = False, BIG
                self.sweep.step = next_step(self.sweep.step, opened)
                self.check_signals((end - position) * (self.state.centers.n + 2))
                position = end
        penalty.find_exceeding, penalty.limit = False, BIG
        self.state.bounds.shifts_taken = True

    cdef check_bounds(self):
        """Raise where points have no bounds, without which no cluster can be opened."""
        if self.state.bounds.upper_bounds == NULL:
            raise ValueError("clusters are opened by bounds, and this sweep has none")

    cdef Py_ssize_t open_in_order(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t max_clusters) except -1 nogil:
        """Ordered pass over the points of a stretch that exceed the penalty; returns how many clusters it opened."""
        cdef State* state = self.state
        cdef Listed listed = listed_points(start, stop)
        cdef Py_ssize_t n_before = state.centers.n, spare
        cdef bint few
        while has_next(state, &listed):  # before memory is made for a batch that nothing opens
            if self.sweep.capacity < state.centers.n + NEW_CENTERS:
                few = max_clusters > state.points.n and FEW_EACH * (state.centers.n - self.n_before) > state.points.n
                spare = state.centers.n + NEW_CENTERS * (3 if state.points.d < MANY_COLUMNS else 0)
                with gil:
                    self.reserve(state.centers.n + NEW_CENTERS, spare, FEW_EACH if few else 1)
            if not open_batch(state, &listed, max_clusters, self.n_threads):
                break
            self.check_signals(NEW_CENTERS * (stop - start + state.centers.n))
        return state.centers.n - n_before

    def seek_farthest(self, double lam, bint seek):
        """Say whether ``assign`` is to look for the point with the largest weighted squared distance beyond lam."""
        if seek:
            self.check_bounds()
        self.state.penalty.lam = lam
        self.state.penalty.find_farthest = seek

    def farthest_found(self):
        """The point that open_farthest would open a cluster at, and its weighted distance; None if there is none."""
        cdef double distance = 0.0
        cdef Py_ssize_t i = farthest_listed(self.state, &distance)
        return None if i < 0 else (i, distance)

    def open_farthest(self):
        """Delayed creation (after Dinari & Freifeld 2022): the point that ``assign`` found opens a cluster, if any."""
        cdef State* state = self.state
        cdef Py_ssize_t i
        point_and_distance = self.farthest_found()
        if point_and_distance is None:
            return False
        i = point_and_distance[0]
        self.reserve(state.centers.n + 1)
        self.farthest_point = i
        self.farthest_is_added = False
        self.farthest_left = state.points.labels[i]
        with nogil:
            open_alone(state, i, self.n_threads)
        return True

    # ---- a sweep over some of the rows, whose centers have members elsewhere too -----------------------------

    def append(self, const double[:, ::1] centers):
        """Add centers that were opened elsewhere, by rows that are not in this sweep.

        Either before the points are assigned, which may then join them, or after that: then they have no members here.
        """
        cdef State* state = self.state
        cdef Py_ssize_t c, first_new = state.centers.n, d = state.points.d
        if centers.shape[1] != d:
            raise ValueError(f"centers must have {d} columns, got {centers.shape[1]}")
        if centers.shape[0] == 0:
            return
        self.reserve(first_new + centers.shape[0])
        for c in range(centers.shape[0]):
            memcpy(state.centers.coordinates + state.centers.n * d, &centers[c, 0], d * sizeof(double))
            add_center(state, self.n_threads)
        with nogil:
            record_opened(state, first_new, self.n_threads)
        if self.have_sums:
            self.reserve_sums(state.centers.n)
            sums_clear(&self.sums.table, first_new, state.centers.n)

    def move_to(self, const double[:, ::1] centers, const int[::1] remap):
        """End a sweep with centers computed elsewhere.

        centers : IN array (kept, d)
        remap : IN array (k,): the new number of each cluster, ascending, or -1: dropped, its points go to cluster 0
            and into no sums
        """
        cdef Py_ssize_t k, kept = 0
        if remap.shape[0] != self.state.centers.n or centers.shape[1] != self.state.points.d:
            raise ValueError("remap must match the clusters, centers the columns")
        for k in range(remap.shape[0]):
            if remap[k] >= 0:
                if remap[k] != kept:
                    raise ValueError("remap must number the centers in order")
                kept += 1
        if kept != centers.shape[0]:
            raise ValueError(f"remap must keep {centers.shape[0]} clusters, one for each center, got {kept}")
        kept = 0
        self.reserve_sums(self.state.centers.n)
        for k in range(self.state.centers.n):
            self.sweep.remap[k] = -1
            if remap[k] >= 0:
                shift_center(&self.sweep, &self.sums.table, k, kept, &centers[kept, 0])
                kept += 1
            elif self.sums.table.count[k] > 0.0:
                self.have_sums = False
        with nogil:
            self.state.centers.n = kept
            follow_centers(&self.sweep, self.n_before, remap.shape[0], self.farthest_point >= 0)
        self.n_before = self.state.centers.n
        self.farthest_point = -1


# ---- collapsed sweeps (MB13): means move with each point -------------------------------------------------------------


cdef class CollapsedSweep(DPSweep):
    """A sweep is ``collapse``, and ``move_centers`` ends it."""

    cdef object columns_array
    cdef double* columns            # d x capacity, the means in columns
    cdef double* cost               # capacity: of putting a point into each cluster
    cdef double* weight             # capacity: weights of the clusters
    cdef Py_ssize_t columns_capacity  # clusters there is memory for

    cdef load(self):
        """Means of all clusters in columns, so that the distances of a point to all of them are d passes over rows."""
        cdef Py_ssize_t k, capacity = 2 * self.state.centers.n + 16
        cdef double[:, ::1] columns
        if self.columns_array is None or self.columns_array.shape[1] < self.state.centers.n + 1:
            self.columns_array = np.zeros((self.state.points.d + 2, capacity))
        columns = self.columns_array
        self.columns, self.columns_capacity = &columns[0, 0], columns.shape[1]
        self.cost, self.weight = &columns[self.state.points.d, 0], &columns[self.state.points.d + 1, 0]
        self.reserve_sums(self.columns_capacity)
        for k in range(self.state.centers.n):
            self.set_column(k)

    cdef void set_column(self, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t j
        cdef double weight = sums_weight(&self.sums.table, k)
        for j in range(self.state.points.d):
            self.columns[j * self.columns_capacity + k] = sums_quotient(&self.sums.table, k, j, weight)
        self.weight[k] = weight

    def collapse(self, double lam, Py_ssize_t max_clusters):
        """One collapsed sweep (MB13 eq. 8-9): means are those of the present labels at all times.

        Point i leaves its cluster and goes where the objective is lowest. Joining cluster c costs
        w s / (w + s) ||x - m||^2, with s and m the weight and mean of c without i; being alone costs lam. Costs that
        differ by no more than rounding are equal: the lowest index wins, and an old cluster before a new one.

        Returns the points that moved and the clusters opened; ``move_centers`` ends the sweep.
        """
        cdef State* state = self.state
        cdef Py_ssize_t i, best, n_used, moved = 0, opened = 0
        cdef double[::1] row = np.empty(state.points.d)
        cdef bint alone, may_open
        if not self.have_sums:
            self.add_all()
        self.load()
        n_used = state.centers.n  # clusters that have members
        with nogil:
            for i in range(state.points.n):
                if weight_of(&state.points.rows, i) == 0.0:
                    continue
                self.check_signals(state.centers.n)
                alone = self.sums.table.count[state.points.labels[i]] == 1.0
                may_open = n_used - alone < max_clusters
                best = self.cheapest(i, lam if may_open else HUGE_VAL, alone, &row[0])
                if best == state.points.labels[i] or (best == state.centers.n and alone):
                    continue
                if best == state.centers.n:
                    if best == self.columns_capacity:
                        with gil:
                            self.load()
                    state.centers.n += 1
                    n_used += 1
                    opened += 1
                    sums_clear(&self.sums.table, best, state.centers.n)
                moved += 1
                n_used -= alone
                self.move(i, best, alone)
        self.reserve(state.centers.n)
        return moved, opened

    cdef Py_ssize_t cheapest(self, Py_ssize_t i, double lam, bint alone, double* row) noexcept nogil:
        """The cluster that point i costs least in, or the number of clusters if that is one of its own.

        lam : what a new cluster costs;  alone : whether the point is the only one in its cluster;  row : d, scratch
        """
        cdef const State* state = self.state
        cdef Py_ssize_t k, j, n = state.centers.n, label = state.points.labels[i], best = 0
        cdef double w = weight_of(&state.points.rows, i), least = lam, square = 0.0, allowance
        for j in range(state.points.d):
            row[j] = value_of(&state.points.rows, i, j) - state.frame.origin[j]
            square += row[j] * row[j]
        sc_squares(row, state.points.d, self.columns, self.columns_capacity, n, self.cost)
        for k in range(n):
            if self.sums.table.count[k] == 0.0 or (alone and k == label):
                self.cost[k] = HUGE_VAL
            elif k == label:  # ||x - m|| = ||x - mean|| W / (W - w), W and mean those with i
                self.cost[k] *= w * (self.weight[k] / (self.weight[k] - w))
            else:
                self.cost[k] *= w * (self.weight[k] / (self.weight[k] + w))
            least = min(least, self.cost[k])
        # a cost c is off by about sqrt(c w) times what its mean is off by
        allowance = least + C_MEAN_ROUNDING * (least + sqrt(least) * sqrt(w * square)) + w * state.frame.rounding
        while best < n and not self.cost[best] <= allowance:
            best += 1
        return best

    cdef void move(self, Py_ssize_t i, Py_ssize_t joined, bint alone) noexcept nogil:
        """Point i goes to another cluster; the means of both follow, but where it was alone."""
        cdef int left = self.state.points.labels[i]
        self.move_point(i, left, <int> joined)
        if not alone:
            self.set_column(left)
        self.set_column(joined)
        self.state.points.labels[i] = <int> joined
