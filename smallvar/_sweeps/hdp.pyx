"""The sweep of the hard HDP (Kulis & Jordan 2012, Algorithm 2): data sets have parts of global clusters.

Step 4 visits one point after the other. A point's cost in a global cluster changes with the points before it only where
one of these opens the cluster, or is the first of its data set to join it: then it falls. Proposals, the cheapest
clusters of a round of points, are made in parallel and committed in order (see in_order.pyx). After a commit by which a
cluster has become cheaper, later proposals of the round for which it is cheaper are compared with that cluster alone;
if these are more than IN_ORDER_CHUNK, the round ends after so many. So each point goes where it would if nothing were
done in parallel. Step 5 visits one local cluster after the other.

g is a data set; c and p are global clusters, p (the paper's letter) one that a point or local cluster may go to.
"""

from libc.limits cimport INT_MAX
from libc.math cimport HUGE_VAL
from libc.string cimport memcmp, memcpy

from smallvar._sweeps.in_order cimport (
    IN_ORDER_CHUNK,
    MAX_ROUND,
    InOrderSweep,
    cheapest,
    end_of_group,
    end_of_round,
    first_tied,
    propose,
    sc_least,
    sc_ties,
    set_center,
    squared_distance,
    squared_error,
)
from smallvar._sweeps.rows cimport refuse_rows, row_at, weight_of
from smallvar._sweeps.sums cimport (
    Sums,
    mean_of_sums,
    move_points,
    sums_clear,
    sums_t,
    sums_unite,
    sums_weight,
)

import numpy as np

cdef enum:
    NONE = -1           # no cluster; no row of sums
    HDP_BATCH = 256     # points added to the sums at a time


cdef class LocalSums:
    """Sums of the local clusters: a local cluster is a pair of a data set and a global cluster, with points."""

    cdef Sums sums
    cdef int[:, ::1] row            # data sets x capacity: the row of sums of a local cluster; NONE: there is none
    cdef list free                  # rows that were given back, whose sums are 0
    cdef Py_ssize_t n_used          # rows that were ever in use: those from here on are not

    cdef int take(self, int* row) except -1 nogil:
        """Give a new local cluster a row, whose sums are 0.  OUT row: an entry of self.row."""
        with gil:
            if self.free:
                row[0] = self.free.pop()
            else:
                self.sums.reserve(self.n_used + 1)
                row[0] = <int> self.n_used
                self.n_used += 1
        return 0

    cdef int give_back(self, int* row) except -1 nogil:
        """Take back the row of a local cluster without points, whose sums are 0.  INOUT row: an entry of self.row."""
        with gil:
            self.free.append(row[0])
        row[0] = NONE
        return 0


cdef struct Drop:               # scratch of `drop`, for one data set at a time
    Py_ssize_t n_kept
    int* kept                   # the global clusters that the data set keeps, ascending
    double* loss                # of each global cluster: by how much the cost of its points would rise without it
    int* second                 # of each point: the nearest other cluster that is kept; NONE: there is none
    double* gap                 # of each point: how much more that one costs than the assigned one


cdef class HDPSweep(InOrderSweep):
    """Algorithm 2 of Kulis & Jordan (2012). A local cluster is a pair of a data set and a global cluster.

    X : IN array (n, d), float32 or float64, any strides
    order : IN array (n,), intp: the rows, those of a data set together
    group : IN array (n,), int32: the data set of each, 0, 1, ... in the order of visit
    layout : of the sums of X and weight
    rounding : squared distance by which a mean may be off: costs that differ by no more are equal, see sc_ties
    weight : IN array (n,), positive, in the order of visit; or None: 1 each
    """

    cdef Py_ssize_t sets                # number of data sets
    cdef double lam_local               # penalty of a local cluster
    cdef double lam_global              # penalty of a global one
    cdef int[::1] label                 # in the order of visit
    cdef int[::1] previous_label        # before the sweep
    cdef int[::1] proposed              # of the points of a round: the cheapest cluster
    cdef double[::1] cost               # and its cost
    cdef double[:, ::1] centers         # capacity x d
    cdef double[::1] no_offset          # zeros, where a kernel wants offsets
    cdef LocalSums local                # of the local clusters, updated with every commit
    cdef Sums total                     # of the global ones: the sums of their local clusters
    cdef bint is_summed                 # whether the points are in the local sums
    cdef int[::1] target                # in step 5: where the local cluster on each global one goes, or NONE
    cdef Py_ssize_t end_of_local        # rows of sums left from earlier sweeps are on global clusters below this
    cdef int[::1] opener                # the data set that opened a cluster; NONE: it was there, or is from elsewhere
    cdef double[::1] opener_weight      # and the weight of the point, or local cluster, at which it did
    cdef readonly Py_ssize_t n_local    # number of local clusters
    cdef readonly double error          # weighted sum of squared distances to the assigned centers
    # in the last sweep, what was compared with penalties to decide whether a global cluster is opened:
    cdef readonly double farthest       # the largest cost of a point in step 4
    cdef readonly double split          # the largest cost of a local cluster in step 5

    def __init__(
        self, X, order, int[::1] group, Py_ssize_t sets, double lam_local, double lam_global, layout, mean,
        double rounding, int n_threads, weight=None,
    ):
        cdef double[::1] first = mean
        self.attach(X, order, np.asarray(group), n_threads, weight)
        self.sets, self.lam_local, self.lam_global = sets, lam_local, lam_global
        self.state.rounding = rounding
        self.local, self.total = LocalSums(), Sums(layout, 1)
        self.local.sums, self.local.free = Sums(layout, min(self.state.n, 2 * sets)), []
        self.reserve_all(16)
        self.add_global(&first[0], NONE, 0.0, 0.0)
        self.label = np.zeros(self.state.n, dtype=np.int32)
        self.previous_label = np.empty(self.state.n, dtype=np.int32)
        self.proposed = np.empty(min(self.state.n, <Py_ssize_t> MAX_ROUND), dtype=np.int32)
        self.cost = np.empty(min(self.state.n, <Py_ssize_t> MAX_ROUND))
        self.state.round_length = IN_ORDER_CHUNK

    def start(self, const double[:, ::1] centers, const int[::1] labels):
        """Begin at these centers (IN, k x d) instead of the mean, each point in a cluster (IN, (n,), by row)."""
        cdef Py_ssize_t i, k, g
        if centers.shape[1] != self.state.d or labels.shape[0] != self.state.n:
            raise ValueError("centers and labels must match X")
        if not 0 <= np.min(labels) <= np.max(labels) < centers.shape[0]:
            raise ValueError(f"labels must be >= 0 and < {centers.shape[0]}")
        self.replace_globals(centers, centers.shape[0])
        with nogil:
            for i in range(self.state.n):
                g, k = self.state.group[i], labels[self.state.rows.order[i]]
                self.label[i] = <int> k
                self.state.offset[g * self.state.capacity + k] = 0.0
                if self.local.row[g, k] == NONE:
                    self.local.take(&self.local.row[g, k])
            i = 0
            while i < self.state.n:
                k = end_of_group(&self.state, i, self.state.n)
                self.add_set(i, k)
                i = k
        self.is_summed = True

    # ---- data sets give up local clusters ---------------------------------------------------------------------

    def drop(self):
        """Data sets give up local clusters, the cheapest first, while that costs less than lam_local; returns how many.

        The points of such a cluster go to the nearest center of those that their data set keeps.
        """
        cdef Py_ssize_t start = 0, stop, dropped = 0
        cdef Drop drop
        cdef int[::1] kept = np.empty(self.state.k, dtype=np.int32), second = np.empty(self.state.n, dtype=np.int32)
        cdef double[::1] loss = np.empty(self.state.k), gap = np.empty(self.state.n)
        if not self.is_summed:
            raise ValueError("points must be in clusters, by start or a sweep")
        drop.kept, drop.loss = &kept[0], &loss[0]
        drop.second, drop.gap = &second[0], &gap[0]
        with nogil:
            while start < self.state.n:
                stop = end_of_group(&self.state, start, self.state.n)
                dropped += self.drop_of_set(start, stop, &drop)
                start = stop
        return dropped

    cdef Py_ssize_t drop_of_set(self, Py_ssize_t start, Py_ssize_t stop, Drop* drop) except -1 nogil:
        """The part of `drop` for the data set of the points start..stop-1; returns how many it gives up."""
        cdef Py_ssize_t g = self.state.group[start], i, m, before, least, dropped = NONE
        cdef int* row = &self.local.row[g, 0]
        drop.n_kept = 0
        for m in range(self.state.k):
            if row[m] != NONE:
                drop.kept[drop.n_kept] = <int> m
                drop.n_kept += 1
        before = drop.n_kept
        while drop.n_kept > 1:
            for m in range(drop.n_kept):
                drop.loss[drop.kept[m]] = 0.0
            # reassign the points of the cluster dropped last, and add up the losses of all others anew
            for i in range(start, stop):
                # the second cluster of a point is another one only where it was dropped, or the assigned one was
                if dropped == NONE or self.label[i] == dropped or drop.second[i] == dropped:
                    if self.label[i] == dropped:
                        self.reassign(i, drop.second[i])
                    self.find_second(i, drop)
                    self.check_signals(drop.n_kept * self.state.d)
                drop.loss[self.label[i]] += drop.gap[i]
            if dropped != NONE:
                self.remove_local(g, dropped)
            least = 0
            for m in range(1, drop.n_kept):
                if drop.loss[drop.kept[m]] < drop.loss[drop.kept[least]]:
                    least = m
            dropped = drop.kept[least]
            if not drop.loss[dropped] < self.lam_local:
                return before - drop.n_kept
            drop.n_kept -= 1
            for m in range(least, drop.n_kept):
                drop.kept[m] = drop.kept[m + 1]
        if dropped != NONE:  # a single cluster is left, and takes the points of the one dropped last
            for i in range(start, stop):
                self.reassign(i, drop.kept[0])
            self.remove_local(g, dropped)
        return before - drop.n_kept

    cdef int remove_local(self, Py_ssize_t g, Py_ssize_t c) except -1 nogil:
        """Remove the local cluster of data set g on c, which has no points: the data set would pay for it again."""
        self.state.offset[g * self.state.capacity + c] = self.lam_local
        return self.local.give_back(&self.local.row[g, c])

    cdef void find_second(self, Py_ssize_t i, Drop* drop) noexcept nogil:
        """Set ``second`` and ``gap`` of point i."""
        cdef Py_ssize_t m, d = self.state.d
        cdef const double* x = row_at(&self.state.rows, i, self.state.buffers)
        cdef double assigned = squared_distance(x, &self.centers[self.label[i], 0], d), best = 0.0, distance
        drop.second[i] = NONE
        for m in range(drop.n_kept):
            if drop.kept[m] != self.label[i]:
                distance = squared_distance(x, &self.centers[drop.kept[m], 0], d)
                if drop.second[i] == NONE or distance < best:
                    drop.second[i], best = drop.kept[m], distance
        drop.gap[i] = weight_of(&self.state.rows, i) * (best - assigned)

    # ---- the global clusters ----------------------------------------------------------------------------------

    cdef void reserve_all(self, Py_ssize_t capacity):
        """Raise the capacity for global clusters, in all tables; those there are stay."""
        cdef Py_ssize_t k = self.state.k
        self.reserve(capacity, self.sets)
        centers, opener_weight = np.zeros((capacity, self.state.d)), np.zeros(capacity)
        opener = np.full(capacity, NONE, dtype=np.int32)
        row = np.full((self.sets, capacity), NONE, dtype=np.int32)
        if k:
            # all of them, beyond k too: after begin, rows are still on the clusters of the sweep before
            row[:, :self.local.row.shape[1]] = self.local.row
            centers[:k], opener[:k], opener_weight[:k] = self.centers[:k], self.opener[:k], self.opener_weight[:k]
        self.centers, self.opener, self.opener_weight, self.local.row = centers, opener, opener_weight, row
        self.total.reserve(capacity)
        self.target, self.no_offset = np.zeros(capacity, dtype=np.int32), np.zeros(capacity)

    cdef Py_ssize_t add_global(
        self, const double* center, int opener, double opener_weight, double offset
    ) noexcept nogil:
        """Add a global cluster, which has memory, and return its number.

        opener, opener_weight : see the fields;  offset : what each data set pays for its first point there
        """
        cdef Py_ssize_t k = self.state.k, g
        self.state.k += 1
        set_center(&self.state, k, center)
        memcpy(&self.centers[k, 0], center, self.state.d * sizeof(double))
        for g in range(self.sets):
            self.state.offset[g * self.state.capacity + k] = offset
        self.opener[k], self.opener_weight[k] = opener, opener_weight
        return k

    cdef void replace_globals(self, const double[:, ::1] centers, Py_ssize_t capacity):
        """Make these the global clusters; every data set pays for its first point in any of them."""
        cdef Py_ssize_t k
        if centers.shape[0] > self.state.capacity:
            self.reserve_all(capacity)
        self.state.k = 0
        for k in range(centers.shape[0]):
            self.add_global(&centers[k, 0], NONE, 0.0, self.lam_local)

    @property
    def k(self):
        """Number of global clusters."""
        return self.state.k

    # ---- a sweep ----------------------------------------------------------------------------------------------

    def sweep(self):
        """Steps 4 to 6; returns whether anything changed, and how many global clusters were created."""
        cdef Py_ssize_t before = self.state.k, created
        cdef bint same
        memcpy(&self.previous_label[0], &self.label[0], self.state.n * sizeof(int))
        self.farthest = 0.0
        self.visit_points(0, self.state.n)
        self.begin_locals()
        self.visit_locals(0, self.state.n)
        with nogil:
            created = self.state.k - before
            same = created == 0 and memcmp(&self.previous_label[0], &self.label[0], self.state.n * sizeof(int)) == 0
        self.move_centers()
        with nogil:
            self.error = squared_error(&self.state, &self.centers[0, 0], &self.label[0])
            if not self.error < HUGE_VAL:
                refuse_rows()
        return not same, created

    cpdef Py_ssize_t visit_points(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t most=INT_MAX) except -1:
        """Step 4 for the points start..stop-1; returns the point that comes next.

        That is before ``stop`` if memory for clusters ran out when they were more than ``most``: no more is made then.
        """
        while start < stop:
            if self.state.k == self.state.capacity:
                if self.state.k > most:
                    break
                self.reserve_all(2 * self.state.capacity)
            with nogil:
                start = self.advance(start, stop)
        return start

    cpdef int begin_locals(self) except -1:
        """Prepare step 5: global sums are 0, and no rows are on clusters of an earlier sweep that are no more."""
        cdef Py_ssize_t g, c
        self.n_local, self.split = 0, 0.0
        with nogil:
            sums_clear(&self.total.table, 0, self.state.capacity)
            for g in range(self.sets if self.state.k < self.end_of_local else 0):
                for c in range(self.state.k, self.end_of_local):
                    if self.local.row[g, c] != NONE:  # its points went to clusters below k in step 4
                        self.local.give_back(&self.local.row[g, c])
        self.end_of_local = self.state.k
        return 0

    cpdef int visit_locals(self, Py_ssize_t start, Py_ssize_t stop) except -1:
        """Step 5 for the data sets of the points start..stop-1."""
        cdef Py_ssize_t end
        with nogil:
            while start < stop:
                end = end_of_group(&self.state, start, stop)
                # each local cluster may open a global one, and there are no more of them than points
                if self.state.k + min(self.state.k, end - start) > self.state.capacity:
                    with gil:
                        self.reserve_all(2 * self.state.capacity)
                if not self.is_summed:
                    self.add_set(start, end)
                self.move_locals(start, end)
                self.check_signals((end - start) * self.state.d)
                start = end
        if stop == self.state.n:
            self.is_summed = True
        return 0

    # ---- step 4: points ---------------------------------------------------------------------------------------

    cdef Py_ssize_t advance(self, Py_ssize_t start, Py_ssize_t last) except -1 nogil:
        """Step 4 for a round of points, before the point last; returns the point that comes next.

        Global cluster p costs w ||x - mu_p||^2, plus lam_local unless the data set has a local cluster on p. A new one
        costs lam_local + lam_global. The round ends early where one is to be opened and there is no memory for it.
        """
        cdef Py_ssize_t stop = end_of_round(&self.state, start, last)
        cdef Py_ssize_t i = start, end, k
        cdef double* offset
        cdef double weight
        cdef bint opens
        propose(&self.state, start, stop, &self.proposed[0], &self.cost[0])
        self.check_signals((stop - start) * self.state.d * (self.state.k + 4))
        while i < stop:
            k = self.proposed[i - start]
            offset = self.state.offset + self.state.group[i] * self.state.capacity
            weight = weight_of(&self.state.rows, i)
            opens = self.exceeds(self.cost[i - start], self.lam_local + self.lam_global, weight)
            self.farthest = max(self.farthest, self.cost[i - start])
            if opens:
                if self.state.k == self.state.capacity:
                    return i
                k = self.add_global(
                    row_at(&self.state.rows, i, self.state.buffers), self.state.group[i], weight, self.lam_local,
                )
            elif k < 0:  # no cluster is at a finite distance
                refuse_rows()
            self.reassign(i, k)
            i += 1
            if opens or offset[k] != 0.0:
                offset[k] = 0.0
                # only cluster k has become cheaper: a new one for all points, an old one for those of this data set.
                # Their proposals are amended; if they are more than IN_ORDER_CHUNK, the round ends after so many
                end = stop if opens else end_of_group(&self.state, i - 1, stop)
                if end - i > IN_ORDER_CHUNK:
                    end = stop = i + IN_ORDER_CHUNK
                    self.state.round_length = IN_ORDER_CHUNK
                self.amend(i, end, k, start)
                self.check_signals((end - i) * self.state.d)
        return stop

    cdef inline bint exceeds(self, double cost, double penalty, double weight) noexcept nogil:
        """Whether the cost of a point, or a local cluster, of this weight exceeds a penalty by more than rounding."""
        return cost > penalty and not sc_ties(penalty, cost, weight * self.state.rounding)

    cdef void amend(self, Py_ssize_t i, Py_ssize_t stop, Py_ssize_t k, Py_ssize_t start) noexcept nogil:
        """Amend the proposals for points i..stop-1 of the round that began at start: cluster k has become cheaper."""
        cdef double cost, least, weight
        cdef const double* x
        for i in range(i, stop):
            x, weight = row_at(&self.state.rows, i, self.state.buffers), weight_of(&self.state.rows, i)
            least = self.cost[i - start]
            cost = squared_distance(x, &self.centers[k, 0], self.state.d) * weight
            cost += self.state.offset[self.state.group[i] * self.state.capacity + k]
            if sc_ties(min(cost, least), max(cost, least), weight * self.state.rounding):
                self.proposed[i - start] = <int> cheapest(
                    &self.state, i, &self.cost[i - start], 0
                )
            elif cost < least:
                self.cost[i - start], self.proposed[i - start] = cost, <int> k

    cdef int reassign(self, Py_ssize_t i, Py_ssize_t k) except -1 nogil:
        """Move point i to the local cluster of its data set on k; before is_summed, add_set makes the sums later."""
        cdef Py_ssize_t g = self.state.group[i]
        cdef int left
        if k == self.label[i] and self.is_summed:
            return 0
        if self.local.row[g, k] == NONE:
            self.local.take(&self.local.row[g, k])
        if self.is_summed:
            left = self.local.row[g, self.label[i]]
            move_points(&self.state.rows, i, i + 1, &left, &self.local.row[g, k], &self.local.sums.table)
        self.label[i] = <int> k
        return 0

    cdef void add_set(self, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
        """Add all points start..stop-1, of one data set, to its local sums, which are 0."""
        cdef int[HDP_BATCH] joined
        cdef const int* row = &self.local.row[self.state.group[start], 0]
        cdef Py_ssize_t m, size
        while start < stop:
            size = min(<Py_ssize_t> HDP_BATCH, stop - start)
            for m in range(size):
                joined[m] = row[self.label[start + m]]
            move_points(&self.state.rows, start, start + size, NULL, joined, &self.local.sums.table)
            start += size

    # ---- step 5: local clusters -------------------------------------------------------------------------------

    cdef int move_locals(self, Py_ssize_t start, Py_ssize_t stop) except -1 nogil:
        """Step 5 for one data set, from its sums: S_jc goes to argmin_p sum w ||x - mu_p||^2, or opens a cluster.

        As sum w ||x - mu_p||^2 = sum w ||x - mean||^2 + sum w ||mean - mu_p||^2, only the last term is compared. Where
        two local clusters meet on one global cluster, they become one.
        """
        cdef Py_ssize_t c, p, n_before = self.state.k
        cdef int g = self.state.group[start]
        cdef int* row = &self.local.row[g, 0]
        cdef int* target = &self.target[0]
        cdef bint moved = False
        for c in range(n_before):
            target[c] = NONE
            if row[c] != NONE and self.local.sums.table.count[row[c]] > 0:
                target[c] = <int> c
            elif row[c] != NONE:  # it lost its points in step 4
                self.local.give_back(&row[c])
        for c in range(n_before):
            if target[c] != NONE:
                p = self.choose_global(row[c], g)
                if p < 0:  # none is at a finite distance
                    refuse_rows()
                self.check_signals(self.state.k * self.state.d)
                if p != c:
                    self.move_local(row, c, p)
                    moved = True
        if moved:
            self.relabel(start, stop, n_before)
        for p in range(self.state.k):
            if row[p] != NONE:
                self.n_local += 1
                sums_unite(&self.total.table, p, &self.local.sums.table, row[p])
        return 0

    cdef Py_ssize_t choose_global(self, Py_ssize_t row, int g) noexcept nogil:
        """The global cluster nearest to the mean of a local one of data set g, the first that ties, or a new one."""
        cdef Py_ssize_t p
        cdef double* mean = self.state.buffers
        cdef double least, second, weight = sums_weight(&self.local.sums.table, row)
        mean_of_sums(&self.local.sums.table, row, mean, 1)
        p = sc_least(
            mean, self.state.d, self.state.columns, self.state.capacity, self.state.k, &self.no_offset[0],
            NULL, self.state.costs, &least, &second,
        )
        p = first_tied(self.state.costs, p, least, second, self.state.rounding)
        self.split = max(self.split, least * weight)
        if self.exceeds(least * weight, self.lam_global, weight):
            p = self.add_global(mean, g, weight, self.lam_local)
        return p

    cdef int move_local(self, int* row, Py_ssize_t c, Py_ssize_t p) except -1 nogil:
        """Local cluster c of a data set becomes its local cluster on p, or joins the one that is there."""
        cdef const sums_t* sums = &self.local.sums.table
        if row[p] == NONE:
            row[p], row[c] = row[c], NONE
        else:
            sums_unite(sums, row[p], sums, row[c])
            sums_clear(sums, row[c], row[c] + 1)
            self.local.give_back(&row[c])
        self.target[c] = <int> p
        return 0

    cdef void relabel(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t n_before) noexcept nogil:
        """Set the labels of a data set's points after its local clusters have moved."""
        cdef Py_ssize_t i, c, p
        cdef int* target = &self.target[0]
        # local cluster c joined p > c, which was visited later, so that both have gone to target[p]
        for c in range(n_before - 1, -1, -1):
            p = target[c]
            if c < p < n_before and target[p] != NONE:
                target[c] = target[p]
        for i in range(start, stop):
            self.label[i] = target[self.label[i]]

    # ---- step 6: means ----------------------------------------------------------------------------------------

    cdef void move_centers(self):
        """Step 6: set centers to means over all data sets; clusters without points are removed, the rest renumbered."""
        cdef Py_ssize_t k = 0, p, i, g, k_before = self.state.k
        cdef const sums_t* sums = &self.total.table
        cdef int[::1] number = np.empty(k_before, dtype=np.int32)
        with nogil:
            for p in range(k_before):
                number[p] = NONE
                if sums.count[p]:
                    number[p] = <int> k
                    mean_of_sums(sums, p, &self.centers[k, 0], 1)
                    set_center(&self.state, k, &self.centers[k, 0])
                    k += 1
            for g in range(self.sets):
                self.renumber_locals(g, &number[0], k_before, k)
            if k < k_before:
                for i in range(self.state.n):
                    self.label[i] = number[self.label[i]]
            self.state.k = k

    cdef void renumber_locals(self, Py_ssize_t g, const int* number, Py_ssize_t k_before, Py_ssize_t k) noexcept nogil:
        """Renumber the local clusters of data set g, and set what it pays for each of the k global clusters left."""
        cdef int* row = &self.local.row[g, 0]
        cdef Py_ssize_t p
        for p in range(k_before):
            if number[p] != NONE:
                row[number[p]] = row[p]
        for p in range(k, k_before):
            row[p] = NONE
        for p in range(k):
            self.state.offset[g * self.state.capacity + p] = 0.0 if row[p] != NONE else self.lam_local

    def result(self):
        """Labels and local labels by row, centers, number and list of the global clusters that each data set uses."""
        order, group = self.point_arrays[1:3]
        labels, local_labels = np.empty((2, self.state.n), dtype=np.int32)
        uses = np.asarray(self.local.row)[:, : self.state.k] != NONE  # data sets x k
        sizes = uses.sum(axis=1, dtype=np.int64)
        lists = np.split(np.nonzero(uses)[1].astype(np.int32), sizes.cumsum()[: self.sets - 1])
        labels[order] = self.label
        local_labels[order] = (uses.cumsum(axis=1) - 1)[group, self.label]
        return labels, local_labels, np.asarray(self.centers)[: self.state.k].copy(), sizes, lists

    # ---- centers that data sets elsewhere have a part in ------------------------------------------------------

    def begin(self, const double[:, ::1] centers, const long long[::1] sizes, const int[::1] used):
        """Begin a sweep at these centers (IN, k x d); may be called again, to begin it anew.

        Data set g has sizes[g] local clusters (IN), on the centers ``used`` (IN), a data set after the other.
        Labels stay those of an earlier sweep: step 4 does not depend on them, they only say which sums have the points.
        """
        cdef Py_ssize_t g, m, end = 0, start = 0
        if centers.shape[1] != self.state.d or sizes.shape[0] != self.sets or np.sum(sizes) != used.shape[0]:
            raise ValueError("centers must match X, sizes the data sets, used the sizes")
        if used.shape[0] and not 0 <= np.min(used) <= np.max(used) < centers.shape[0]:
            raise ValueError(f"used must be >= 0 and < {centers.shape[0]}")
        self.end_of_local = max(self.end_of_local, self.state.k)
        self.replace_globals(centers, centers.shape[0] + 16)
        for g in range(self.sets):
            end = start + sizes[g]
            for m in range(start, end):
                self.state.offset[g * self.state.capacity + used[m]] = 0.0
            start = end

    def append(self, const double[:, ::1] centers):
        """Add clusters opened in other partitions (IN, m x d), behind those there are; points to come may join them."""
        cdef Py_ssize_t k, total = self.state.k + centers.shape[0]
        if centers.shape[1] != self.state.d:
            raise ValueError(f"centers must have {self.state.d} columns, got {centers.shape[1]}")
        if total > self.state.capacity:
            self.reserve_all(max(2 * self.state.capacity, total))
        for k in range(centers.shape[0]):
            self.add_global(&centers[k, 0], NONE, 0.0, self.lam_local)

    def opened(self, Py_ssize_t first):
        """Clusters from this one on that were opened here: centers, data sets, weights of what opened them."""
        here = first + np.flatnonzero(np.asarray(self.opener)[first : self.state.k] != NONE)
        return np.asarray(self.centers)[here], np.asarray(self.opener)[here], np.asarray(self.opener_weight)[here]

    def global_sums(self):
        """Cells and counts of the global clusters after step 5, see Sums."""
        return self.total.cells[: self.state.k].copy(), self.total.counts[: self.state.k].copy()

    def squares(self, const double[:, ::1] centers):
        """The exact sum of weighted squared distances to the assigned ones of centers (IN, k x d), as int64 digits."""
        if centers.shape[0] != self.state.k or centers.shape[1] != self.state.d:
            raise ValueError(f"centers must have shape ({self.state.k}, {self.state.d})")
        with nogil:
            squared_error(&self.state, &centers[0, 0], &self.label[0])
        return np.asarray(self.digits[0]).copy()
