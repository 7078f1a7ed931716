"""Mergers of the cheapest pair of clusters: the sweep of the merge path.

Merging clusters a and b, of weights w and means mu, raises the sum of weighted squared distances by Ward's cost

    w_a w_b / (w_a + w_b) ||mu_a - mu_b||^2.

The cluster that a and b become is their *union*. During a call of ``merge`` a union may be merged in turn; a cluster
that is not merged is a union of itself alone.

*Partners.* Each cluster has a partner, the one that is cheapest to merge with, the lowest number at a tie; so the
cheapest pair is a cluster and its partner. When b is merged into a, costs between other clusters stay what they are.
Ward's cost is reducible: with W the sum of the three weights,

    W cost(union, c) = (w_a + w_c) cost(a, c) + (w_b + w_c) cost(b, c) - w_c cost(a, b),

and where a and b are the cheapest pair, this is at least W times the cheaper of cost(a, c) and cost(b, c). So another
cluster c keeps its partner, and where that was a or b its cost is a bound, which no cost of c is below: c searches all
clusters again only if that is the least cost of all clusters. Rounding may still make the union cheaper than the
partner of c or the bound, or as cheap as the partner and of a lower number, so the two are compared: the costs of the
union with all clusters are computed anyway, to find its own partner. Between calls of ``merge`` centers
move, and a cluster that has moved may be cheaper for any other one: ``prepare`` compares them in the same way.

*Numbers.* The union has the number of a < b. The row of b stays in the tables, with weight 0, which counts as
infinitely expensive, until half of the rows are such: then they are dropped. At the end of the call the unions are
numbered in their order, without gaps. ``merge`` and the sweep know clusters by their numbers before the call
(``number``).

*Bounds.* Bounds refer to the centers as they were at the last sweep. Let the *drift* e_k be how far the center of the
union U of cluster k is from where that of k was then: the distance from the center that k has now, plus the shift of
that if it has moved since. A point of cluster k, with the upper bound u, is at most u + e_k away from the center of U.
A point of another union, with the lower bound l for all other clusters, is at least l - e_k away from it, for any k in
U. So bounds stay valid if the center of U counts as moved by the least e_k in U (``shared_drift``), and what e_k is
above that (``extra_drift``) is added to the upper bounds of the points of k. To the next sweep ``shared_drift`` is a
shift like any other: u grows by that of the point's center, l falls by the largest of another center.

The sweeps between mergers, sums and means are in nearest.pyx, dpmeans.pyx and means.pyx; how many mergers follow each
other, and which number of clusters is best, is decided in smallvar/_selection.
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL, sqrt
from libc.string cimport memcpy

from smallvar._sweeps.dpmeans cimport DPSweep, open_at
from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.nearest cimport assign_to_new_centers, clear_fast_centers
from smallvar._sweeps.means cimport count_moves, reduce_to_nearest, update_tables
from smallvar._sweeps.merge_clusters cimport (
    MOST_PAIRED, PAIRED_BLOCK, PAIRED_COLUMNS, MergeClusters, cost_error, cost_of_pair, find_partner, find_squares,
    find_squares_of_block, sc_first, sc_not_above, set_mean, unite_squares
)
from smallvar._sweeps.rows cimport refuse_rows
from smallvar._sweeps.state cimport (
    BIG, CHUNK, WORK, Bounds, State, record_move, squared_distance, upper_bound
)
from smallvar._sweeps.sums cimport sums_copy, sums_quotient, sums_t, sums_unite, sums_weight
from smallvar._sweeps.tolerances cimport ROUNDOFF_DOUBLE

import numpy as np

cdef enum:
    SEEDS = 256         # centers opened before all points are compared with them

cdef extern from *:
    """
    #define SMALLVAR_SLACK (1.0 + 0x1p-22)
    """
    const double SLACK "SMALLVAR_SLACK"  # a factor: makes up for the rounding of a float32 sum


cdef void renumber_chunk(
    State* state, Py_ssize_t chunk, const float* extra_drift, const int* new_number
) noexcept nogil:
    """Bring upper bounds and labels of a chunk's points up to date after mergers; lower bounds stay as they are."""
    cdef float* upper_bounds = state.bounds.upper_bounds
    cdef int* labels = state.points.labels
    cdef Py_ssize_t i
    for i in range(chunk * CHUNK, min(state.points.n, (chunk + 1) * CHUNK)):
        if extra_drift[labels[i]] > 0.0:
            upper_bounds[i] = (upper_bounds[i] + extra_drift[labels[i]]) * <float> SLACK
        labels[i] = new_number[labels[i]]


cdef void squares_of_chunk(const State* state, Py_ssize_t chunk, double* squares) noexcept nogil:
    """Squared lengths of the residuals of a chunk's points."""
    cdef unsigned short offsets[CHUNK]
    cdef Py_ssize_t start = chunk * CHUNK, size = min(state.points.n - start, <Py_ssize_t> CHUNK), m
    for m in range(size):
        offsets[m] = <unsigned short> m
    state.backend.assigned_distances(state, start, offsets, size, state.points.labels + start, squares + start)


cdef class MergeSweep(DPSweep):
    """Sweeps over a fixed number of clusters, and mergers between them."""

    cdef MergeClusters clusters          # as they were after the last mergers, until prepare brings them up to date
    cdef int* listed                # scratch: clusters whose partner is to be found among all others
    cdef int* offered               # scratch: clusters that another one may be cheaper for than their partner
    # in a call of merge, the lower number that each cluster was merged into, its own if none; end_mergers follows these
    # to the union and stores its number
    cdef int* merged_into
    cdef unsigned char* is_changed  # whether mean or weight differ from those after the last mergers
    # drift e_k, see Bounds above: float32 in the unit of bounds, distances times Frame.scale, rounded up
    cdef float* shared_drift        # of a union: the least drift of a cluster in it
    cdef float* extra_drift         # of a cluster: its own drift less shared_drift of its union
    cdef object merge_arrays        # the memory of all these

    def __init__(self, *args):
        super().__init__(*args)
        # fast centers, the few that move far, have a lower bound of their own (nearest.pyx). A merger moves one
        # center far and hardly any other; 4 is the least number of centers of which MIN_SLOW allows a fast one
        self.sweep.min_fast_centers = 4

    def seed(self, const Py_ssize_t[::1] rows):
        """Open centers at the points with these numbers in visiting order; all points are compared with them."""
        cdef State* state = self.state
        cdef Bounds* bounds = &self.state.bounds
        cdef Py_ssize_t i, k, first_new, done = 0, size = rows.shape[0]
        cdef Py_ssize_t[SEEDS] opened_at
        self.check_bounds()
        for k in range(SEEDS):
            opened_at[k] = -1  # before all points
        if not bounds.shifts_taken:  # centers have moved, and upper bounds were made before
            for i in range(state.points.n):
                bounds.upper_bounds[i] = BIG
        self.reserve(state.centers.n + size)
        with nogil:
            while done < size:
                first_new = state.centers.n
                while done < size and state.centers.n - first_new < SEEDS:
                    open_at(state, rows[done], self.n_threads)
                    done += 1
                # t of nearest.pyx, for all centers: most points have 2 u < t, so that they need not be compared
                for k in range(state.centers.n):
                    bounds.batch_distances[k] = BIG
                reduce_to_nearest(state, first_new, bounds.batch_distances, self.n_threads)
                self.check_signals(state.centers.n * (state.centers.n - first_new))
                assign_to_new_centers(
                    state, 0, state.points.n, first_new, opened_at, self.threads_for(state.points.n)
                )
                self.check_signals(state.points.n * (state.centers.n - first_new))
        self.n_before = state.centers.n
        self.have_sums = False
        clear_fast_centers(state)
        for i in range(state.points.n):  # not every point was compared with every center
            bounds.lower_bounds[i] = 0.0
        # u and l = 0 hold, also after a move, which makes them valid. A sweep before a move compares every point, as
        # center_half_distances leave out the new centers until then
        bounds.valid = False
        bounds.shifts_taken = True

    @property
    def weights(self):
        """Copy of the weights of the clusters, (k,)."""
        cdef Py_ssize_t k
        cdef double[::1] out = np.empty(self.state.centers.n)
        if not self.have_sums:
            self.add_all()
        for k in range(self.state.centers.n):
            out[k] = sums_weight(&self.sums.table, k)
        return np.asarray(out)

    @property
    def remap(self):
        """New number of each cluster at the last renumbering, by ``move_centers`` (-1: dropped) or ``merge``."""
        return np.array(<int[:self.sweep.capacity]> self.sweep.remap)

    def run_lloyd(self, Py_ssize_t most):
        """Lloyd sweeps until no point moves, ``most`` at the most, or until clusters have lost their last point.

        Returns the number of sweeps, and the centers before the last one if clusters were dropped after it (``remap``
        says which), else None.
        """
        cdef Py_ssize_t k, n_sweeps = 0
        centers = None
        while n_sweeps < most and centers is None:
            self.assign()
            n_sweeps += 1
            if self.needs_float64:
                self.use_float64()
            if count_moves(&self.sweep) == 0:
                break
            self.present_sums()
            for k in range(self.state.centers.n):
                if centers is None and not self.sums.table.count[k] > 0.0:
                    centers = self.centers
            self.move_centers()
        return n_sweeps, centers

    def follow(self, const int[::1] labels):
        """Take these labels instead of those of ``assign``; to be followed by ``move_centers``.

        Returns how many points have moved. Bounds no longer hold.
        """
        cdef State* state = self.state
        cdef Py_ssize_t i
        if labels.shape[0] != state.points.n:
            raise ValueError(f"there must be {state.points.n} labels, got {labels.shape[0]}")
        for i in range(state.points.n):
            if not 0 <= labels[i] < state.centers.n:
                raise ValueError(f"labels must be >= 0 and < {state.centers.n}, got {labels[i]}")
        self.present_sums()  # so that no move is listed
        for i in range(state.points.n):
            if labels[i] != state.points.labels[i]:
                record_move(state, i, labels[i])
        state.bounds.valid = state.bounds.shifts_taken = False
        return count_moves(&self.sweep)

    # ---- mergers ---------------------------------------------------------------------------------------------

    def merge(self, Py_ssize_t count):
        """Merge the cheapest pair, ``count`` times over; after ``move_centers``, with no point moved since.

        Cluster a becomes the union of a and b, a < b; in the end clusters are numbered without gaps. Returns the pairs
        (a, b), (count, 2), as numbered before the call, and Ward's costs, (count,).
        """
        cdef MergeClusters* clusters = &self.clusters
        cdef Py_ssize_t k, a, b, m
        cdef double least
        if not 0 <= count < self.state.centers.n:
            raise ValueError(f"count must be >= 0 and < {self.state.centers.n}, got {count}")
        pair_array = np.empty((count, 2), dtype=np.intp)
        cost_array = np.empty(count)
        cdef Py_ssize_t[:, ::1] pair = pair_array
        cdef double[::1] merger_cost = cost_array
        self.check_bounds()
        if count == 0:
            return pair_array, cost_array
        self.prepare()
        with nogil:
            for k in range(clusters.k):
                self.merged_into[k] = clusters.number[k] = <int> k
            for m in range(count):
                if 2 * (self.state.centers.n - m) <= clusters.k:
                    self.drop_merged()
                # the cheapest pair is the cluster with the least partner_cost and its partner
                a = sc_first(clusters.partner_cost, clusters.k, &least)
                while a >= 0 and clusters.partner[a] < 0:
                    find_partner(clusters, a, 0)
                    self.check_signals(clusters.k)
                    a = sc_first(clusters.partner_cost, clusters.k, &least)
                if a < 0:  # no cost is finite: Frame keeps costs finite, and there is another cluster
                    refuse_rows()
                merger_cost[m] = least
                b = clusters.partner[a]
                if b < a:
                    a, b = b, a
                pair[m, 0], pair[m, 1] = clusters.number[a], clusters.number[b]
                self.unite(a, b)
                self.check_signals(4 * clusters.k)
            self.end_mergers()
        return pair_array, cost_array

    cdef reserve_clusters(self):
        """Make the tables suffice for all clusters that there are; where they grow, what was in them is lost."""
        cdef Py_ssize_t k = self.state.centers.n, d = self.state.points.d
        cdef double[::1] doubles
        cdef double[::1] pairs
        cdef float[::1] floats
        cdef int[::1] ints
        cdef unsigned char[::1] flags
        if self.merge_arrays is not None and k <= self.clusters.capacity:
            return
        self.merge_arrays = (
            np.zeros((2 * d + 3 + self.n_threads) * k), np.zeros(2 * k, dtype=np.float32),
            np.zeros(5 * k, dtype=np.int32), np.zeros(k, dtype=np.uint8),
            np.empty(k * k if k <= MOST_PAIRED and d >= PAIRED_COLUMNS else 1),
        )
        doubles, floats, ints, flags, pairs = self.merge_arrays
        # with k = 0 clusters in the tables, take_clusters counts all as changed
        self.clusters = MergeClusters(
            0, d, k, &doubles[0], &doubles[d * k], &doubles[2 * d * k], &ints[0], &doubles[(2 * d + 1) * k],
            &doubles[(2 * d + 3) * k], &ints[3 * k], k, NULL, &doubles[(2 * d + 2) * k], 0.0, 0.0, 0.0
        )
        if pairs.shape[0] == k * k:
            self.clusters.squares = &pairs[0]
        self.bound_errors()
        self.listed, self.merged_into, self.is_changed = &ints[k], &ints[2 * k], &flags[0]
        self.offered = &ints[4 * k]
        self.shared_drift, self.extra_drift = &floats[0], &floats[k]

    cdef void bound_errors(self) noexcept nogil:
        """Set first_error and error_of_union, see Error bound in merge_clusters.pxd."""
        cdef MergeClusters* clusters = &self.clusters
        cdef double farthest = 4.0 * clusters.d / (self.state.frame.scale * self.state.frame.scale)  # a square
        cdef double rounding = self.state.frame.rounding
        # also the rounding of costs and of limits, a few u
        clusters.first_error = (clusters.d + 16) * ROUNDOFF_DOUBLE * farthest
        clusters.error_of_union = (
            16.0 * ROUNDOFF_DOUBLE * farthest + 4.0 * sqrt(rounding * farthest) + 4.0 * rounding
        )

    cdef prepare(self):
        """Bring means, weights and partners of all clusters up to date with the sweep.

        Clusters that have changed, or whose partner has, search all clusters. The others keep their partner, unless one
        that has changed is cheaper.
        """
        cdef MergeClusters* clusters = &self.clusters
        cdef Py_ssize_t k, n_changed, n_listed = 0
        cdef bint all_listed
        self.reserve_clusters()
        if not self.have_sums:
            self.add_all()
        with nogil:
            n_changed = self.take_clusters()
            all_listed = 4 * n_changed > clusters.k  # so many that comparing all with all takes less time
            for k in range(clusters.k):
                if all_listed or (
                    not self.is_changed[k] and (clusters.partner[k] < 0 or self.is_changed[clusters.partner[k]])
                ):
                    self.listed[n_listed] = <int> k
                    n_listed += 1
            if all_listed:
                self.find_all_squares()
            else:
                for k in range(clusters.k):
                    if self.is_changed[k]:
                        if clusters.squares != NULL:
                            find_squares(clusters, k)
                        self.offer_partner(k)  # and find its own, which no later offer changes: costs are symmetric
                        self.check_signals(2 * clusters.k)
            self.find_partners(n_listed)

    cdef Py_ssize_t take_clusters(self) noexcept nogil:
        """Copy means and weights from the sweep; returns how many changed: all, if there were more or fewer before."""
        cdef MergeClusters* clusters = &self.clusters
        cdef Py_ssize_t k, j, n_changed = 0
        cdef const double* center
        cdef double weight
        cdef bint same
        for k in range(self.state.centers.n):
            center, weight = self.state.centers.coordinates + k * clusters.d, sums_weight(&self.sums.table, k)
            same = clusters.k == self.state.centers.n and clusters.weight[k] == weight
            for j in range(clusters.d):
                same = same and clusters.mean[k * clusters.d + j] == center[j]
            self.is_changed[k] = not same
            if not same:
                n_changed += 1
                clusters.weight[k] = weight
                set_mean(clusters, k, center)
        clusters.k = self.state.centers.n
        return n_changed

    cdef int find_all_squares(self) except -1 nogil:
        """Set the squared distances of all pairs, if they are kept, by the means."""
        cdef MergeClusters* clusters = &self.clusters
        cdef Py_ssize_t block, n_blocks = (clusters.k + PAIRED_BLOCK - 1) // PAIRED_BLOCK
        cdef Py_ssize_t first = 0, last, work = PAIRED_BLOCK * clusters.k * clusters.d
        cdef ParallelLoop loop
        if clusters.squares == NULL:
            return 0
        clusters.largest_error, clusters.pitch = 0.0, clusters.k
        while first < n_blocks:
            last = min(n_blocks, first + max(<Py_ssize_t> self.n_threads, WORK // work))
            loop = begin_loop(last - first, self.n_threads if (last - first) * work > PAYS else 1)
            for block in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                begin_chunk(&loop)
                find_squares_of_block(clusters, block)
            end_loop(&loop)
            self.check_signals((last - first) * PAIRED_BLOCK * clusters.k)
            first = last
        return 0

    cdef int find_partners(self, Py_ssize_t size) except -1 nogil:
        """Find the partner of each of the ``size`` listed clusters among all others."""
        cdef MergeClusters* clusters = &self.clusters
        cdef Py_ssize_t i, first = 0, last, work = clusters.k * (clusters.d if clusters.squares == NULL else 4)
        cdef ParallelLoop loop
        while first < size:
            last = min(size, first + max(<Py_ssize_t> self.n_threads, WORK // work))
            loop = begin_loop(last - first, self.n_threads if (last - first) * work > PAYS else 1)
            for i in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                find_partner(clusters, self.listed[i], begin_chunk(&loop))
            end_loop(&loop)
            self.check_signals((last - first) * clusters.k)
            first = last
        return 0

    cdef void offer_partner(self, Py_ssize_t k) noexcept nogil:
        """Find the partner of cluster k, which has changed, and make k the partner of those that it is cheaper for.

        At a tie the lower number is the partner. Rows without weight may get a partner, too, which is never read.
        """
        cdef MergeClusters* clusters = &self.clusters
        cdef const double* costs = clusters.scratch_costs
        cdef double cost, error = 0.0
        cdef Py_ssize_t i, c
        if clusters.squares != NULL:
            error = cost_error(clusters, clusters.weight[k])
        find_partner(clusters, k, 0)
        for i in range(sc_not_above(costs, error, clusters.partner_cost, clusters.k, self.offered)):
            c = self.offered[i]
            cost = costs[c] if error == 0.0 else cost_of_pair(clusters, k, c)
            if cost < clusters.partner_cost[c] or (cost == clusters.partner_cost[c] and k < clusters.partner[c]):
                clusters.partner_cost[c], clusters.partner[c] = cost, <int> k

    cdef void unite(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
        """Make cluster a the union of a and b, and b a row without weight; find the partner of a."""
        cdef MergeClusters* clusters = &self.clusters
        cdef const sums_t* sums = &self.sums.table
        cdef Py_ssize_t j, k, into = clusters.number[a]
        cdef double* mean = clusters.mean + a * clusters.d
        if clusters.squares != NULL:
            unite_squares(clusters, a, b, clusters.weight[a] / (clusters.weight[a] + clusters.weight[b]))
        sums_unite(sums, into, sums, clusters.number[b])
        clusters.weight[a] = sums_weight(sums, into)
        for j in range(clusters.d):
            mean[j] = sums.origin[j] + sums_quotient(sums, into, j, clusters.weight[a])
        set_mean(clusters, a, mean)  # from row a itself: this sets the column
        clusters.weight[b] = 0.0
        clusters.partner_cost[b] = HUGE_VAL
        self.merged_into[clusters.number[b]] = <int> into
        for k in range(clusters.k):
            if clusters.partner[k] == a or clusters.partner[k] == b:
                clusters.partner[k] = -1
        self.offer_partner(a)

    cdef void drop_merged(self) noexcept nogil:
        """Drop the rows without weight from the tables of clusters; the others keep their order."""
        cdef MergeClusters* clusters = &self.clusters
        cdef int* kept = self.listed  # numbers of the rows that are kept
        cdef Py_ssize_t i, j, k, n = 0, pitch = clusters.pitch
        for k in range(clusters.k):
            if self.merged_into[clusters.number[k]] == clusters.number[k]:
                self.sweep.remap[k], kept[n] = <int> n, <int> k
                n += 1
        clusters.pitch = n
        for i in range(n):
            k = kept[i]  # >= i, so that nothing is overwritten that is still to be read
            clusters.number[i], clusters.weight[i] = clusters.number[k], clusters.weight[k]
            clusters.partner_cost[i] = clusters.partner_cost[k]
            clusters.partner[i] = self.sweep.remap[clusters.partner[k]] if clusters.partner[k] >= 0 else -1
            set_mean(clusters, i, clusters.mean + k * clusters.d)
            if clusters.squares != NULL:
                clusters.error[i] = clusters.error[k]
                for j in range(n):
                    clusters.squares[i * n + j] = clusters.squares[k * pitch + kept[j]]
        clusters.k = n

    cdef void end_mergers(self) noexcept nogil:
        """Make the unions the clusters of the sweep: centers, sums, labels and bounds follow."""
        cdef State* state = self.state
        cdef Py_ssize_t k
        # ascending: a cluster is merged into a lower number, whose own union is known by then
        for k in range(state.centers.n):
            self.merged_into[k] = self.merged_into[self.merged_into[k]]
        self.drop_merged()
        for k in range(self.clusters.k):
            self.sweep.remap[self.clusters.number[k]] = <int> k
        self.measure_drift()  # from the centers and shifts that number_unions overwrites
        self.number_unions()
        clear_fast_centers(state)  # they are listed by their old numbers
        self.renumber_points()
        state.centers.n = self.n_before = self.clusters.k
        self.farthest_point = -1
        if state.bounds.opened:  # lower bounds may not have taken in what the last sweep opened
            state.bounds.valid = False
        state.bounds.opened = False  # last_new_center_distances have the old numbers
        state.bounds.shifts_taken = False  # center_shift is shared_drift, which the next sweep is to take off
        self.pack(0)  # centers have moved,
        update_tables(&self.sweep, False)  # and so have distances between them

    cdef void measure_drift(self) noexcept nogil:
        """Set shared_drift and extra_drift, see Bounds above; extra_drift is the whole drift before the last loop."""
        cdef State* state = self.state
        cdef Py_ssize_t k, union, d = state.points.d
        cdef double squared
        for k in range(state.centers.n):
            squared = squared_distance(
                state.centers.coordinates + k * d, 1, self.clusters.mean + self.sweep.remap[self.merged_into[k]] * d, d
            )
            self.extra_drift[k] = upper_bound(squared, state.frame.scale)
            if not state.bounds.shifts_taken:  # there was no sweep since the last move
                self.extra_drift[k] += state.bounds.center_shift[k]
            self.shared_drift[k] = self.extra_drift[k]
        for k in range(state.centers.n):
            union = self.merged_into[k]
            self.shared_drift[union] = min(self.shared_drift[union], self.extra_drift[k])
        for k in range(state.centers.n):
            self.extra_drift[k] = (self.extra_drift[k] - self.shared_drift[self.merged_into[k]]) * <float> SLACK

    cdef void number_unions(self) noexcept nogil:
        """Number the unions 0, 1, ... in their order, as in the tables of clusters, in those of the sweep.

        INOUT ``remap``: of the numbers of unions, the new ones; then of all clusters that of their union. Centers
        become those of the unions, and center_shift is shared_drift.
        """
        cdef State* state = self.state
        cdef MergeClusters* clusters = &self.clusters
        cdef Py_ssize_t k, i, d = state.points.d
        for i in range(clusters.k):
            k = clusters.number[i]  # >= i, so that nothing is overwritten that is still to be read
            sums_copy(&self.sums.table, i, k)
            # with the last shift in it, shared_drift is a float32 sum, which may have been rounded down
            state.bounds.center_shift[i] = self.shared_drift[k] * <float> SLACK
        memcpy(state.centers.coordinates, clusters.mean, clusters.k * d * sizeof(double))
        for k in range(state.centers.n):
            self.sweep.remap[k] = self.sweep.remap[self.merged_into[k]]

    cdef void renumber_points(self) noexcept nogil:
        """Bring upper bounds and labels of all points up to date after mergers."""
        cdef State* state = self.state
        cdef Py_ssize_t chunk
        cdef ParallelLoop loop = begin_loop(self.n_chunks, self.threads_for(state.points.n))
        for chunk in prange(self.n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            begin_chunk(&loop)
            renumber_chunk(state, chunk, self.extra_drift, self.sweep.remap)
        end_loop(&loop)

    cdef int threads_for(self, Py_ssize_t points) noexcept nogil:
        """Threads for a loop over so many points; 1 where waking others would cost more time than it saves.

        Between mergers bounds leave few distances to compute. So where they hold, the work of a sweep over all points
        is taken to be the distances of the last one, instead of all distances as in NearestSweep, and about 16 for each
        point, whose bounds are looked at.
        """
        cdef Py_ssize_t c, work = 0
        if self.state.bounds.valid and points == self.state.points.n:
            for c in range(self.n_chunks):
                work += self.state.results.n_approximate[c]
            work = work * self.state.points.d + 16 * points
        else:
            work = points * self.state.centers.n * self.state.points.d
        return self.n_threads if work > PAYS else 1

    # ---- residuals -------------------------------------------------------------------------------------------

    def residuals(self):
        """Squared lengths ||x_i - mu_{z_i}||^2, (n,)."""
        cdef State* state = self.state
        cdef Py_ssize_t first = 0, last, chunk, row_work = 4  # of a point, in distances
        cdef int threads = self.n_threads if state.points.n * state.points.d * row_work > PAYS else 1
        cdef ParallelLoop loop
        square_array = np.empty(state.points.n)
        cdef double[::1] squares = square_array
        with nogil:
            while first < self.n_chunks:
                last = first + max(<Py_ssize_t> self.n_threads, WORK // (CHUNK * state.points.d * row_work))
                last = min(self.n_chunks, last)
                loop = begin_loop(last - first, threads)
                for chunk in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                    begin_chunk(&loop)
                    squares_of_chunk(state, chunk, &squares[0])
                end_loop(&loop)
                self.check_signals((last - first) * CHUNK * row_work)
                first = last
        return square_array
