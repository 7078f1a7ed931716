"""The sweep of the hard HDP (Kulis & Jordan 2012, Algorithm 2): data sets have parts of global clusters."""

from libc.stdint cimport int64_t
from libc.string cimport memcmp, memcpy

from smallvar._sweeps.rounds cimport (
    CHUNK,
    LONGEST,
    POINTS,
    Rounds,
    end_of_group,
    propose,
    sc_least,
    sc_least_block,
    square,
    squared_error,
)
from smallvar._sweeps.rows cimport row_at, weight_of
from smallvar._sweeps.sums cimport (
    ACCUMULATOR_DIGITS,
    Sums,
    Accumulator,
    move_points,
    sums_clear,
    sums_t,
    sums_total,
    sums_unite,
    sums_weight,
)

import numpy as np

cdef enum:
    RUN = 256           # points handed to the sums at a time
    NO_CAP = 0x7fffffff  # of global clusters


cdef class HDPSweep(Rounds):
    """Algorithm 2 of Kulis & Jordan (2012). A local cluster is a pair of a data set and a global cluster.

    X : IN array (n, d), float32 or float64, any strides
    order : IN array (n,), intp: the rows, those of a data set together
    group : IN array (n,), int32: the data set of each, 0, 1, ... in the order of visit
    layout : of the sums of X and weight
    weight : IN array (n,), positive, in the order of visit; or None: 1 each
    """

    cdef Py_ssize_t sets                # number of data sets
    cdef double lam_local               # penalty of a local cluster
    cdef double lam_global              # penalty of a global one
    cdef int[::1] label                 # in the order of visit
    cdef int[::1] old                   # before the sweep
    cdef double[:, ::1] centers         # room x d
    cdef Sums local                     # of the local clusters, brought up to date with every change
    cdef Sums total                     # of the global ones: the sums of their local clusters
    cdef int[:, ::1] place              # data sets x room: where a local cluster has its sums, -1: there is none
    cdef list free                      # places that were given back
    cdef Py_ssize_t taken               # no place from here on was ever in use
    cdef bint placed                    # whether the points are in the sums
    cdef Py_ssize_t[::1] count          # points of the local clusters of one data set
    cdef int[::1] target                # where the local clusters of a data set went
    cdef int[::1] nearest               # of each local cluster: the nearest global one,
    cdef double[::1] least              # and its squared distance
    cdef double[::1] none               # offsets that are 0
    cdef int64_t[:, ::1] digits         # threads x ACCUMULATOR_DIGITS, scratch of an exact sum
    cdef readonly Py_ssize_t n_local    # number of local clusters
    cdef readonly double error          # weighted sum of squared distances to the own centers
    cdef readonly double farthest       # the largest cost of a point in the last sweep,
    cdef readonly double split          # and of a local cluster: what decides whether they open global ones
    cdef int[::1] opener                # the data set that opened a cluster; -1: it was there, or is another machine's
    cdef double[::1] opener_mass        # and the weight of the point, or local cluster, at which it did
    cdef Py_ssize_t high                # no data set has a place for a cluster from here on, but for those of now
    cdef int[::1] other                 # in drop: the nearest cluster that the point's data set has beside its own,
    cdef double[::1] gap                # and how much more that one costs

    def __init__(
        self, X, order, int[::1] group, Py_ssize_t sets, double lam_local, double lam_global, layout, mean,
        int n_threads, weight=None,
    ):
        cdef Py_ssize_t j
        cdef double[::1] first = mean
        self.attach(X, order, np.asarray(group), n_threads, weight)
        self.sets, self.lam_local, self.lam_global = sets, lam_local, lam_global
        self.local, self.total, self.free = Sums(layout, min(self.p.n, 2 * sets)), Sums(layout, 1), []
        self.digits = np.empty((n_threads, ACCUMULATOR_DIGITS), dtype=np.int64)
        self.make_room(16)
        self.t.factor = NULL
        self.t.k = 1
        self.put(0, &first[0])
        for j in range(self.p.d):
            self.centers[0, j] = first[j]
        self.label, self.old = np.zeros(self.p.n, dtype=np.int32), np.empty(self.p.n, dtype=np.int32)
        self.round = CHUNK

    def start(self, const double[:, ::1] centers, const int[::1] labels):
        """Begin at these centers (IN, k x d) instead of the mean, each point in a cluster (IN, (n,), by row)."""
        cdef Py_ssize_t i, j, k, g
        if centers.shape[1] != self.p.d or labels.shape[0] != self.p.n:
            raise ValueError("centers and labels must match X")
        if not 0 <= np.min(labels) <= np.max(labels) < centers.shape[0]:
            raise ValueError(f"labels must be >= 0 and < {centers.shape[0]}")
        if centers.shape[0] > self.t.room:
            self.make_room(centers.shape[0])
        self.t.k = centers.shape[0]
        for k in range(self.t.k):
            self.put(k, &centers[k, 0])
            for j in range(self.p.d):
                self.centers[k, j] = centers[k, j]
        for g in range(self.sets):
            for k in range(self.t.k):
                self.t.offset[g * self.t.room + k] = self.lam_local
        with nogil:
            for i in range(self.p.n):
                g, k = self.p.group[i], labels[self.p.rows.order[i]]
                self.label[i] = <int> k
                self.t.offset[g * self.t.room + k] = 0.0
                if self.place[g, k] < 0:
                    self.take_place(&self.place[g, k])
            i = 0
            while i < self.p.n:
                k = end_of_group(&self.p, i, self.p.n)
                self.add_set(i, k)
                i = k
        self.placed = True

    def drop(self):
        """Data sets give up local clusters, the cheapest first, while that costs less than lam_local; returns how many.

        The points of such a cluster go to the nearest center of those that their data set keeps.
        """
        cdef Py_ssize_t start = 0, stop, dropped = 0
        if not self.placed:
            raise ValueError("points must be in clusters, by start or a sweep")
        self.other, self.gap = np.empty(self.p.n, dtype=np.int32), np.empty(self.p.n)
        with nogil:
            while start < self.p.n:
                stop = end_of_group(&self.p, start, self.p.n)
                dropped += self.drop_of_set(start, stop)
                start = stop
        return dropped

    cdef Py_ssize_t drop_of_set(self, Py_ssize_t start, Py_ssize_t stop) except -1 nogil:
        cdef Py_ssize_t g = self.p.group[start], i, m, used = 0, before, least, c = -1
        cdef int* place = &self.place[g, 0]
        cdef int* kept = &self.target[0]
        cdef double* loss = &self.least[0]
        for m in range(self.t.k):
            if place[m] >= 0:
                kept[used] = <int> m
                used += 1
        before = used
        while used > 1:
            for m in range(used):
                loss[kept[m]] = 0.0
            for i in range(start, stop):
                if c < 0 or self.label[i] == c or self.other[i] == c:
                    if self.label[i] == c:
                        self.hand_over(i, self.other[i])
                    self.next_best(i, kept, used)
                    self.check_signals(used * self.p.d)
                loss[self.label[i]] += self.gap[i]
            if c >= 0:
                self.give_back(place, c)
                self.t.offset[g * self.t.room + c] = self.lam_local
            least = 0
            for m in range(1, used):
                if loss[kept[m]] < loss[kept[least]]:
                    least = m
            c = kept[least]
            if not loss[c] < self.lam_local:
                return before - used
            used -= 1
            for m in range(least, used):
                kept[m] = kept[m + 1]
        if c >= 0:  # a single cluster is left
            for i in range(start, stop):
                self.hand_over(i, kept[0])
            self.give_back(place, c)
            self.t.offset[g * self.t.room + c] = self.lam_local
        return before - used

    cdef void next_best(self, Py_ssize_t i, const int* kept, Py_ssize_t used) noexcept nogil:
        """The nearest of the centers kept but for the point's own, and what it would cost to go there."""
        cdef const double* x = row_at(&self.p.rows, i, self.p.space)
        cdef double own = square(&self.p, x, &self.centers[self.label[i], 0]), best = 0.0, t
        cdef Py_ssize_t m
        self.other[i] = -1
        for m in range(used):
            if kept[m] != self.label[i]:
                t = square(&self.p, x, &self.centers[kept[m], 0])
                if self.other[i] < 0 or t < best:
                    self.other[i], best = kept[m], t
        self.gap[i] = weight_of(&self.p.rows, i) * (best - own)

    cdef void make_room(self, Py_ssize_t room):
        cdef Py_ssize_t k = self.t.k
        self.reserve(room, self.sets)
        self.t.factor = NULL
        centers, count = np.zeros((room, self.p.d)), np.zeros(room, dtype=np.intp)
        opener, mass = np.full(room, -1, dtype=np.int32), np.zeros(room)
        place = np.full((self.sets, room), -1, dtype=np.int32)
        if k:
            centers[:k], count[:k] = self.centers[:k], self.count[:k]
            opener[:k], mass[:k] = self.opener[:k], self.opener_mass[:k]
            place[:, :self.place.shape[1]] = self.place  # begin() makes k smaller, not the labels
        self.centers, self.count, self.place = centers, count, place
        self.opener, self.opener_mass = opener, mass
        self.total.reserve(room)
        self.target, self.none = np.zeros(room, dtype=np.int32), np.zeros(room)
        self.nearest, self.least = np.zeros(room, dtype=np.int32), np.zeros(room)

    @property
    def k(self):
        """Number of global clusters."""
        return self.t.k

    def sweep(self):
        """Steps 4 to 6; returns whether anything changed, and how many global clusters were created."""
        cdef Py_ssize_t before = self.t.k, created
        cdef bint same
        memcpy(&self.old[0], &self.label[0], self.p.n * sizeof(int))
        self.farthest = 0.0
        self.visit_points(0, self.p.n)
        self.begin_locals()
        self.visit_locals(0, self.p.n)
        with nogil:
            created = self.t.k - before
            same = created == 0 and memcmp(&self.old[0], &self.label[0], self.p.n * sizeof(int)) == 0
            self.move_centers()
            self.error = squared_error(&self.p, &self.centers[0, 0], &self.label[0], <Accumulator*> &self.digits[0, 0])
        return not same, created

    cpdef Py_ssize_t visit_points(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t most=NO_CAP) except -1:
        """Step 4 for the points start..stop-1; returns the next one, before stop where clusters are more than most."""
        while start < stop:
            if self.t.k == self.t.room:
                if self.t.k > most:
                    break
                self.make_room(2 * self.t.room)
            with nogil:
                start = self.advance(start, stop)
        return start

    cpdef int begin_locals(self) except -1:
        """Between steps 4 and 5."""
        cdef Py_ssize_t g, c
        self.n_local, self.split = 0, 0.0
        with nogil:
            sums_clear(&self.total.table, 0, self.t.room)
            for g in range(self.sets if self.t.k < self.high else 0):
                for c in range(self.t.k, self.high):
                    if self.place[g, c] >= 0:  # all points have left it
                        self.give_back(&self.place[g, 0], c)
        self.high = self.t.k
        return 0

    cpdef int visit_locals(self, Py_ssize_t start, Py_ssize_t stop) except -1:
        """Step 5 for the data sets of the points start..stop-1."""
        cdef Py_ssize_t end
        with nogil:
            while start < stop:
                end = end_of_group(&self.p, start, stop)
                if self.t.k + min(self.t.k, end - start) > self.t.room:
                    with gil:
                        self.make_room(2 * self.t.room)
                if not self.placed:
                    self.add_set(start, end)
                self.move_locals(start, end)
                self.check_signals((end - start + self.t.k * self.t.k) * self.p.d)
                start = end
        if stop == self.p.n:
            self.placed = True
        return 0

    # ---- centers that data sets elsewhere have a part in ------------------------------------------------------

    def begin(self, const double[:, ::1] centers, const long long[::1] sizes, const int[::1] used):
        """Begin a sweep at these centers (IN, k x d), as often as wanted.

        Data set g has sizes[g] local clusters (IN), on the centers ``used`` (IN), a data set after the other.
        Labels may be any, of an earlier sweep: step 4 does not depend on them, they only say where sums have points.
        """
        cdef Py_ssize_t g, k, m, end = 0, start = 0
        if centers.shape[1] != self.p.d or sizes.shape[0] != self.sets or np.sum(sizes) != used.shape[0]:
            raise ValueError("centers must match X, sizes the data sets, used the sizes")
        if used.shape[0] and not 0 <= np.min(used) <= np.max(used) < centers.shape[0]:
            raise ValueError(f"used must be >= 0 and < {centers.shape[0]}")
        self.high = max(self.high, self.t.k)
        if centers.shape[0] > self.t.room:
            self.make_room(centers.shape[0] + 16)
        self.t.k = 0
        for k in range(centers.shape[0]):
            self.open_global(&centers[k, 0], -1, 0.0)
        for g in range(self.sets):
            end = start + sizes[g]
            for m in range(start, end):
                self.t.offset[g * self.t.room + used[m]] = 0.0
            start = end

    def append(self, const double[:, ::1] centers):
        """Clusters that data sets elsewhere have opened; those to come may join them."""
        cdef Py_ssize_t k
        if centers.shape[1] != self.p.d:
            raise ValueError(f"centers must have {self.p.d} columns, got {centers.shape[1]}")
        if self.t.k + centers.shape[0] > self.t.room:
            self.make_room(max(2 * self.t.room, self.t.k + centers.shape[0]))
        for k in range(centers.shape[0]):
            self.open_global(&centers[k, 0], -1, 0.0)

    def opened(self, Py_ssize_t first):
        """Clusters from this one on that were opened here: centers, data sets, weights of what opened them."""
        own = first + np.flatnonzero(np.asarray(self.opener)[first : self.t.k] >= 0)
        return np.asarray(self.centers)[own], np.asarray(self.opener)[own], np.asarray(self.opener_mass)[own]

    def global_sums(self):
        """Cells and counts of the global clusters after step 5, see Sums."""
        return self.total.cells[: self.t.k].copy(), self.total.counts[: self.t.k].copy()

    def squares(self, const double[:, ::1] centers):
        """The exact sum of the weighted squared distances to the own ones of the centers (IN, k x d): int64 digits."""
        if centers.shape[0] != self.t.k or centers.shape[1] != self.p.d:
            raise ValueError(f"centers must have shape ({self.t.k}, {self.p.d})")
        with nogil:
            squared_error(&self.p, &centers[0, 0], &self.label[0], <Accumulator*> &self.digits[0, 0])
        return np.asarray(self.digits[0]).copy()

    cdef Py_ssize_t advance(self, Py_ssize_t start, Py_ssize_t last) except -1 nogil:
        """Step 4 for a round of points, before the point last; returns the next point.

        Global cluster p costs w ||x - mu_p||^2, plus lam_local unless the data set has a local cluster on p.
        """
        cdef Py_ssize_t stop = min(last, start + self.span()), i = start, end, k
        cdef double* offset
        cdef bint everywhere
        propose(&self.p, &self.t, start, stop, &self.proposal[0], &self.cost[0])
        self.check_signals((stop - start) * self.p.d * (self.t.k + 4))
        self.round = min(2 * self.round, <Py_ssize_t> LONGEST)
        while i < stop:
            k = self.proposal[i - start]
            offset = self.t.offset + self.p.group[i] * self.t.room
            everywhere = self.cost[i - start] > self.lam_local + self.lam_global
            self.farthest = max(self.farthest, self.cost[i - start])
            if everywhere:
                if self.t.k == self.t.room:
                    return i
                k = self.open_global(
                    row_at(&self.p.rows, i, self.p.space), self.p.group[i], weight_of(&self.p.rows, i)
                )
            self.hand_over(i, k)
            i += 1
            if everywhere or offset[k] != 0.0:
                offset[k] = 0.0
                # for later points only cluster k has become cheaper: the next few proposals are amended, the
                # others made anew
                end = stop if everywhere else end_of_group(&self.p, i - 1, stop)
                if end - i > CHUNK:
                    end = stop = i + CHUNK
                    self.round = CHUNK
                self.amend(i, end, k, start)
        return stop

    cdef int hand_over(self, Py_ssize_t i, Py_ssize_t k) except -1 nogil:
        """Point i goes to its data set's part of cluster k; in the first sweep sums are made later, by add_set."""
        cdef Py_ssize_t g = self.p.group[i]
        cdef int left
        if k == self.label[i] and self.placed:
            return 0
        if self.place[g, k] < 0:
            self.take_place(&self.place[g, k])
        if self.placed:
            left = self.place[g, self.label[i]]
            move_points(&self.p.rows, i, i + 1, &left, &self.place[g, k], &self.local.table)
        self.label[i] = <int> k
        return 0

    cdef void add_set(self, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
        """Add up all points of a data set, in the first sweep."""
        cdef int[RUN] joined
        cdef const int* place = &self.place[self.p.group[start], 0]
        cdef Py_ssize_t m, size
        while start < stop:
            size = min(<Py_ssize_t> RUN, stop - start)
            for m in range(size):
                joined[m] = place[self.label[start + m]]
            move_points(&self.p.rows, start, start + size, NULL, joined, &self.local.table)
            start += size

    cdef int take_place(self, int* place) except -1 nogil:
        """A place for the sums of a new local cluster."""
        with gil:
            if self.free:
                place[0] = self.free.pop()
            else:
                self.local.reserve(self.taken + 1)
                place[0] = <int> self.taken
                self.taken += 1
        return 0

    cdef void amend(self, Py_ssize_t i, Py_ssize_t stop, Py_ssize_t k, Py_ssize_t start) noexcept nogil:
        """Proposals for the points i..stop-1 of a round that began at start, now that cluster k has become cheaper."""
        cdef double t
        for i in range(i, stop):
            t = square(&self.p, row_at(&self.p.rows, i, self.p.space), &self.centers[k, 0])
            t = self.t.offset[self.p.group[i] * self.t.room + k] + weight_of(&self.p.rows, i) * t
            if t < self.cost[i - start] or (t == self.cost[i - start] and k < self.proposal[i - start]):
                self.cost[i - start], self.proposal[i - start] = t, <int> k

    cdef Py_ssize_t open_global(self, const double* center, int opener, double mass) noexcept nogil:
        cdef Py_ssize_t k = self.t.k, j
        self.t.k += 1
        self.put(k, center)
        for j in range(self.p.d):
            self.centers[k, j] = center[j]
        for j in range(self.sets):
            self.t.offset[j * self.t.room + k] = self.lam_local
        self.count[k], self.opener[k], self.opener_mass[k] = 0, opener, mass
        return k

    cdef int move_locals(self, Py_ssize_t start, Py_ssize_t stop) except -1 nogil:
        """Step 5 for one data set, from its sums: S_jc goes to argmin_p sum w ||x - mu_p||^2, or opens a cluster.

        As sum w ||x - mu_p||^2 = sum w ||x - mean||^2 + sum w ||mean - mu_p||^2, only the last term is compared.
        """
        cdef Py_ssize_t i, c, p, there = self.t.k
        cdef const sums_t* sums = &self.local.table
        cdef double* x = self.p.space
        cdef int* place = &self.place[self.p.group[start], 0]
        cdef Py_ssize_t* count = &self.count[0]
        cdef int* target = &self.target[0]
        cdef int* label = &self.label[0]
        cdef double least, second
        cdef bint moved = False
        for c in range(there):
            count[c] = <Py_ssize_t> sums.count[place[c]] if place[c] >= 0 else 0
            target[c] = <int> c if count[c] else -1
            if place[c] >= 0 and count[c] == 0:
                self.give_back(place, c)
        self.nearest_to_locals(place, there)
        for c in range(there):
            if target[c] < 0:
                continue
            p, least = self.nearest[c], self.least[c]
            if p < 0 or self.t.k > there:
                self.local_mean(place[c], x, 1)
                p = sc_least(
                    x, self.p.d, self.t.columns, self.t.room, self.t.k, &self.none[0], NULL, self.p.costs, &least,
                    &second,
                )
            least *= sums_weight(sums, place[c])
            self.split = max(self.split, least)
            if least > self.lam_global:
                self.local_mean(place[c], x, 1)
                p = self.open_global(x, self.p.group[start], sums_weight(sums, place[c]))
            if p == c:
                continue
            if place[p] < 0:
                place[p], place[c] = place[c], -1
            else:
                sums_unite(sums, place[p], sums, place[c])
                sums_clear(sums, place[c], place[c] + 1)
                self.give_back(place, c)
            moved = True
            count[p] += count[c]
            count[c] = 0
            target[c] = <int> p
            self.nearest[p] = -1  # its mean has changed
        if moved:
            # a local cluster that joined another before that one's turn has moved on with it
            for c in range(there - 1, -1, -1):
                p = target[c]
                if c < p < there and target[p] >= 0:
                    target[c] = target[p]
            for i in range(start, stop):
                label[i] = target[label[i]]
        for p in range(self.t.k):
            if place[p] >= 0:
                self.n_local += 1
                sums_unite(&self.total.table, p, sums, place[p])
        return 0

    cdef int give_back(self, int* place, Py_ssize_t c) except -1 nogil:
        """A data set has no part of cluster c any more: another local cluster may have the place, whose sums are 0."""
        with gil:
            self.free.append(place[c])
        place[c] = -1
        return 0

    cdef inline void local_mean(self, Py_ssize_t place, double* out, Py_ssize_t step) noexcept nogil:
        cdef const sums_t* sums = &self.local.table
        cdef double mass = sums_weight(sums, place)
        cdef Py_ssize_t j
        for j in range(self.p.d):
            out[j * step] = sums.origin[j] + sums_total(sums, place, j) / mass

    cdef void nearest_to_locals(self, const int* place, Py_ssize_t there) noexcept nogil:
        """The global clusters nearest to the means of a data set's local clusters, before any of these moves."""
        cdef Py_ssize_t c, j, l = 0, m
        cdef double[POINTS] least
        cdef double[POINTS] arg
        cdef Py_ssize_t[POINTS] local
        for c in range(there):
            if self.count[c]:
                local[l] = c
                l += 1
            if l == POINTS or (l and c == there - 1):
                for m in range(l):
                    self.local_mean(place[local[m]], self.p.space + m, POINTS)
                for j in range(self.p.d if l < POINTS else 0):
                    for m in range(l, POINTS):
                        self.p.space[j * POINTS + m] = self.p.space[j * POINTS]
                sc_least_block(
                    self.p.space, self.p.d, self.t.columns, self.t.room, there, &self.none[0], least, arg
                )
                for m in range(l):
                    self.nearest[local[m]], self.least[local[m]] = <int> arg[m], least[m]
                l = 0

    cdef void move_centers(self) noexcept nogil:
        """Step 6: means over all data sets; empty clusters vanish."""
        cdef Py_ssize_t k = 0, p, i, g, j, room = self.t.room
        cdef const sums_t* sums = &self.total.table
        cdef int* target = &self.target[0]
        cdef int* label = &self.label[0]
        cdef int* place
        cdef double mass
        for p in range(self.t.k):
            target[p] = -1
            if sums.count[p]:
                target[p] = <int> k
                mass = sums_weight(sums, p)
                for j in range(self.p.d):
                    self.centers[k, j] = sums.origin[j] + sums_total(sums, p, j) / mass
                self.put(k, &self.centers[k, 0])
                k += 1
        for g in range(self.sets):
            place = &self.place[g, 0]
            for p in range(self.t.k):
                if target[p] >= 0:
                    place[target[p]] = place[p]
            for p in range(k, self.t.k):
                place[p] = -1
            for p in range(k):
                self.t.offset[g * room + p] = 0.0 if place[p] >= 0 else self.lam_local
        if k < self.t.k:
            for i in range(self.p.n):
                label[i] = target[label[i]]
        self.t.k = k

    def result(self):
        """Labels, local labels and centers, and the number and list of the global clusters that each data set uses."""
        cdef Py_ssize_t start = 0, stop, i, k, g, row, begin = 0, end = 0
        labels, local_labels = np.empty(self.p.n, dtype=np.int32), np.empty(self.p.n, dtype=np.int32)
        all_used, sizes = np.empty(self.n_local, dtype=np.int32), np.empty(self.sets, dtype=np.int64)
        cdef int[::1] label = labels, local = local_labels, used = all_used
        cdef long long[::1] size = sizes
        cdef list lists = [None] * self.sets
        while start < self.p.n:
            stop = end_of_group(&self.p, start, self.p.n)
            g = self.p.group[start]
            for k in range(self.t.k):
                if self.place[g, k] >= 0:
                    self.target[k] = <int> (end - begin)
                    used[end] = <int> k
                    end += 1
            for i in range(start, stop):
                row = self.p.rows.order[i]
                label[row] = self.label[i]
                local[row] = self.target[self.label[i]]
            size[g], lists[g] = end - begin, all_used[begin:end]
            start, begin = stop, end
        return labels, local_labels, np.asarray(self.centers)[: self.t.k].copy(), sizes, lists
