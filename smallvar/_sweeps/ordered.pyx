"""Sweeps whose clusters come and go with single points, in the order of the points: D-Means and the hard HDP.

Every point takes the least of offset + factor * ||x - c||^2 over the clusters. Proposals are made in parallel for a
round of points, from the clusters as they are, and taken up in order; a round ends where a cluster comes or goes, and
what lies behind that point is proposed anew. So the result is that of one point after the other.
"""

from libc.math cimport HUGE_VAL, sqrt
from libc.stdint cimport int64_t
from libc.string cimport memcmp, memcpy, memset

from smallvar._sweeps.pool cimport PAYS, run
from smallvar._sweeps.rows cimport Rows, check_signals, read_row, row_at, rows_of
from smallvar._sweeps.sums cimport (
    WIDE_DIGITS,
    Sums,
    Wide,
    move_points,
    sums_clear,
    sums_t,
    sums_total,
    sums_unite,
    wide_add,
    wide_read,
    wide_unite,
)

from smallvar._sweeps.sums import Layout

import numpy as np

cdef extern from "_costs.h" nogil:
    Py_ssize_t sc_least(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, const double*, const double*,
                        double*, double*, double*)
    void sc_least_block(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, const double*, double*,
                        double*)
    enum:
        POINTS "SC_POINTS"

cdef enum:
    CHUNK = 512         # points a thread takes at a time
    RUN = 256           # points handed to the sums at a time
    LONGEST = 1 << 20   # points of a round
    WORK = 1 << 28      # multiply-adds between two looks at the signals
    OPEN = -2           # proposal: a new cluster
    FEW = 100           # values of centers that may be read for naught, for each point that goes side by side


cdef struct Points:
    Rows rows
    Py_ssize_t n        # those of rows, by shorter names
    Py_ssize_t d
    const int* group    # data set of point i, or NULL
    int threads
    double* space       # threads x d x POINTS
    double* costs       # threads x room


cdef struct Table:      # the clusters
    Py_ssize_t k
    Py_ssize_t room
    double* columns     # d x room
    double* offset      # room, or data sets x room
    double* factor      # room, or NULL


cdef inline double* row_space(const Points* p, int thread) noexcept nogil:
    return p.space + thread * p.d * POINTS


cdef inline Py_ssize_t end_of_group(const Points* p, Py_ssize_t i, Py_ssize_t stop) noexcept nogil:
    """The first point behind i that is of another data set, or stop."""
    cdef Py_ssize_t last = i + 1
    while last < stop and p.group[last] == p.group[i]:
        last += 1
    return last


cdef inline double square(const Points* p, const double* x, const double* c) noexcept nogil:
    """||x - c||^2, columns in order as in _costs.h."""
    cdef Py_ssize_t j
    cdef double total = 0.0
    for j in range(p.d):
        total += (x[j] - c[j]) * (x[j] - c[j])
    return total


# What threads share out: an item is a chunk of points and writes to those, and to its thread's row of the scratch
# (rows, costs) and of exact sums.


cdef struct Proposals:
    const Points* p
    const Table* t
    Py_ssize_t start
    Py_ssize_t stop
    int* label
    double* cost


cdef void propose_item(void* context, Py_ssize_t chunk, int slot) noexcept nogil:
    cdef const Proposals* a = <const Proposals*> context
    cdef const Points* p = a.p
    cdef const Table* t = a.t
    cdef Py_ssize_t l, last, points, i = a.start + chunk * CHUNK, stop = min(a.stop, i + CHUNK)
    cdef double second
    cdef double least[POINTS]
    cdef double arg[POINTS]
    cdef double* x = row_space(p, slot)
    cdef const double* offset = t.offset
    while i < stop:
        last = min(stop, i + POINTS)
        if p.group != NULL:
            offset = t.offset + p.group[i] * t.room
            last = end_of_group(p, i, last)
        points = last - i
        if (POINTS - points) * p.d * t.k > FEW * points:
            read_row(&p.rows, i, x, 1)
            a.label[i - a.start] = <int> sc_least(
                x, p.d, t.columns, t.room, t.k, offset, NULL, p.costs + slot * t.room, &a.cost[i - a.start], &second
            )
            i += 1
        else:
            for l in range(POINTS):
                read_row(&p.rows, min(i + l, last - 1), x + l, POINTS)
            sc_least_block(x, p.d, t.columns, t.room, t.k, offset, least, arg)
            for l in range(points):
                a.label[i + l - a.start], a.cost[i + l - a.start] = <int> arg[l], least[l]
            i += points


cdef void propose(
    const Points* p, const Table* t, Py_ssize_t start, Py_ssize_t stop, int* label, double* cost
) noexcept nogil:
    """The cheapest cluster of the points start..stop-1, and its cost."""
    cdef Proposals a = Proposals(p, t, start, stop, label, cost)
    run(propose_item, &a, 0, (stop - start + CHUNK - 1) // CHUNK,
        p.threads if (stop - start) * p.d * t.k >= PAYS else 1)


cdef struct Errors:
    const Points* p
    const double* centers
    const int* label
    Wide* part          # of each slot


cdef void error_item(void* context, Py_ssize_t chunk, int slot) noexcept nogil:
    cdef const Errors* a = <const Errors*> context
    cdef const Points* p = a.p
    cdef Py_ssize_t i, start = chunk * CHUNK, stop = min(p.n, start + CHUNK)
    cdef double[CHUNK] own
    for i in range(start, stop):
        own[i - start] = square(p, row_at(&p.rows, i, row_space(p, slot)), a.centers + a.label[i] * p.d)
    wide_add(a.part[slot].digit, own, stop - start)


cdef double squared_error(const Points* p, const double* centers, const int* label, Wide* part) noexcept nogil:
    """Sum of squared distances to the own centers (k x d), rounded once.  part: scratch, one a thread."""
    cdef int t
    cdef Errors a = Errors(p, centers, label, part)
    memset(part, 0, p.threads * sizeof(Wide))
    run(error_item, &a, 0, (p.n + CHUNK - 1) // CHUNK, p.threads if p.n * p.d >= PAYS else 1)
    for t in range(1, p.threads):
        wide_unite(part[0].digit, part[t].digit)
    return wide_read(part[0].digit, 0, WIDE_DIGITS)


cdef class Sweep:
    """Points and clusters; the buffers belong to numpy arrays kept here."""

    cdef Points p
    cdef Table t
    cdef list arrays
    cdef object table_arrays
    cdef int[::1] proposal
    cdef double[::1] cost
    cdef Py_ssize_t work
    cdef Py_ssize_t round               # points of the next round, but for the signals

    cdef void attach(self, X, order, group, int threads):
        cdef const int[::1] groups
        cdef double[::1] rows
        cdef Py_ssize_t n = X.shape[0], d = X.shape[1]
        self.arrays = [X, order, group]
        self.p.n, self.p.d, self.p.threads = n, d, threads
        self.p.rows = rows_of(X, None, order)
        if group is not None:
            groups = group
            self.p.group = &groups[0]
        rows = np.empty(threads * d * POINTS)
        self.arrays.append(rows)
        self.p.space = &rows[0]
        self.proposal = np.empty(min(n, <Py_ssize_t> LONGEST), dtype=np.int32)
        self.cost = np.empty(min(n, <Py_ssize_t> LONGEST))

    cdef void reserve(self, Py_ssize_t room, Py_ssize_t sets):
        """Room for more clusters; those there are stay."""
        cdef double[:, ::1] columns, old_columns, offset, old_offset
        cdef double[::1] factor, costs
        cdef Py_ssize_t k = self.t.k
        columns = np.zeros((self.p.d, room))
        offset = np.zeros((sets, room))
        factor = np.ones(room)
        if k:
            old_columns, old_offset, old_factor = self.table_arrays[:3]
            np.asarray(columns)[:, :k] = np.asarray(old_columns)[:, :k]
            np.asarray(offset)[:, :k] = np.asarray(old_offset)[:, :k]
            np.asarray(factor)[:k] = np.asarray(old_factor)[:k]
        costs = np.empty(self.p.threads * room)
        self.table_arrays = [columns, offset, factor, costs]
        self.t.columns, self.t.offset, self.t.room = &columns[0, 0], &offset[0, 0], room
        self.t.factor = &factor[0]
        self.p.costs = &costs[0]

    cdef inline void put(self, Py_ssize_t k, const double* center) noexcept nogil:
        cdef Py_ssize_t j
        for j in range(self.p.d):
            self.t.columns[j * self.t.room + k] = center[j]

    cdef Py_ssize_t span(self) noexcept nogil:
        """Points of the next round: not more than are done before the next look at the signals."""
        return min(self.round, max(<Py_ssize_t> CHUNK, WORK // (self.p.d * (self.t.k + 4))))

    cdef int check_signals(self, Py_ssize_t work) except -1 nogil:
        """Raise KeyboardInterrupt if Ctrl-C was pressed, after some tenths of a second of work."""
        return check_signals(&self.work, work, WORK)


# ----------------------------------------------------------------------------------------------------------------------
# D-Means


cdef struct Lazy:
    double* own                 # squared distance of each point to its center, at the start of the sweep
    double* bound               # root of the least cost of the other clusters when last seen, plus the own one's drift
    const double* drift         # for each cluster: how far the others have moved at most, in all sweeps
    const double* theta         # k x d
    const int* label
    int* proposal               # a cluster, or OPEN
    double lam
    Py_ssize_t stale            # the bounds of the points before this one hold no more
    bint full                   # all costs of all points


cdef struct Looks:
    const Points* p
    const Table* t
    const Lazy* s
    Py_ssize_t start
    Py_ssize_t stop


cdef void look_item(void* context, Py_ssize_t chunk, int slot) noexcept nogil:
    cdef const Looks* a = <const Looks*> context
    cdef const Points* p = a.p
    cdef const Table* t = a.t
    cdef const Lazy* s = a.s
    cdef Py_ssize_t i, k, start = a.start + chunk * CHUNK
    cdef double own, r, least, second
    cdef const double* x
    for i in range(start, min(a.stop, start + CHUNK)):
        x = row_at(&p.rows, i, row_space(p, slot))
        if not s.full:
            k = s.label[i]
            own = square(p, x, s.theta + k * p.d)
            s.own[i] = own
            # |x - c'| >= root of its cost then - how far it moved; rounding is far below 1e-9 of them
            r = s.bound[i] - s.drift[k]
            if i >= s.stale and own <= s.lam and r > 1e-4 * s.bound[i] and own < r * r * (1 - 1e-9):
                s.proposal[i] = <int> k
                continue
        k = sc_least(
            x, p.d, t.columns, t.room, t.k, t.offset, t.factor, p.costs + slot * t.room, &least, &second
        )
        if k >= 0 and least <= s.lam:
            s.proposal[i] = <int> k
            s.bound[i] = sqrt(min(second, 1e300)) + s.drift[k]
        else:
            s.proposal[i] = OPEN


cdef void look_at(const Points* p, const Table* t, const Lazy* s, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """Proposals for the points start..stop-1."""
    cdef Looks a = Looks(p, t, s, start, stop)
    cdef Py_ssize_t work = (stop - start) * p.d * (t.k if s.full else 4)
    run(look_item, &a, 0, (stop - start + CHUNK - 1) // CHUNK, p.threads if work >= PAYS else 1)


cdef double total(const double* values, Py_ssize_t n) noexcept nogil:
    """Their sum, rounded once."""
    cdef Wide wide
    memset(&wide, 0, sizeof(wide))
    wide_add(wide.digit, values, n)
    return wide_read(wide.digit, 0, WIDE_DIGITS)


cdef class DynamicStep(Sweep):
    """One batch of D-Means: old clusters revived, new ones opened, means moved, until the objective stops falling.

    A point that is nearer to its center than any other cluster can have come since all costs were computed stays.

    X : IN array (n, d), float32 or float64, any strides
    centers : IN array (k, d), the old clusters' centers phi
    gamma : IN array (k,), their weights, faded by age
    penalty : IN array (k,), Q times their ages
    """

    cdef Lazy s
    cdef Py_ssize_t old
    cdef const double[:, ::1] phi
    cdef const double[::1] gamma
    cdef const double[::1] penalty
    cdef Py_ssize_t[::1] count
    cdef double[:, ::1] theta
    cdef Sums sums                      # of the points, kept up with every change
    cdef double[::1] drift
    cdef double[::1] own
    cdef double[::1] bound
    cdef int[::1] label
    cdef double fixed                   # what of the objective does not depend on the labels
    cdef readonly double objective
    cdef readonly int n_iter
    cdef readonly bint converged
    cdef list values

    def __init__(
        self, X, const double[:, ::1] centers, const double[::1] gamma, const double[::1] penalty, double lam,
        int n_threads,
    ):
        self.old = centers.shape[0]
        self.phi, self.gamma, self.penalty, self.s.lam = centers, gamma, penalty, lam
        if gamma.shape[0] != self.old or penalty.shape[0] != self.old:
            raise ValueError("gamma and penalty must match centers")
        if centers.shape[1] != X.shape[1]:
            raise ValueError(f"centers must have {X.shape[1]} columns, got {centers.shape[1]}")
        self.attach(X, None, None, n_threads)
        # about 0: a mean is not that of the points alone
        self.sums = Sums(Layout(X, None, n_threads, origin=np.zeros(self.p.d)), self.old + 8)

    def run(self, order, int max_iter):
        """Sweeps with the points in this order (IN, or None for the order given)."""
        cdef Py_ssize_t k, start, ready, changes, n = self.p.n
        cdef const Py_ssize_t[::1] indices
        cdef double previous = HUGE_VAL
        if order is not None:
            indices = order
            self.arrays.append(order)
            self.p.rows.order = &indices[0]
        self.t.k = 0
        self.make_room(self.old + 8)
        self.t.k = self.old
        self.label = np.full(n, -1, dtype=np.int32)
        self.proposal = np.empty(n, dtype=np.int32)
        self.own, self.bound = np.empty(n), np.empty(n)
        self.s.label, self.s.proposal = &self.label[0], &self.proposal[0]
        self.s.own, self.s.bound, self.s.stale = &self.own[0], &self.bound[0], 0
        for k in range(self.old):
            self.rest(k)
        self.values = []
        self.n_iter = 0
        self.converged = False
        self.round = 1
        while True:
            start = ready = changes = 0
            if self.n_iter:
                with nogil:
                    self.measure()
                self.values.append(self.objective)
                self.converged = not self.objective < previous
                if self.converged or self.n_iter >= max_iter:
                    break
                previous = self.objective
                ready = n
            while start < n:
                if self.t.k == self.t.room:
                    self.make_room(2 * self.t.room)
                with nogil:
                    start = self.advance(start, &ready, &changes)
            self.n_iter += 1
            if changes == 0:
                self.values.append(self.objective)
                self.converged = True
                break
            with nogil:
                self.move()
        return self

    cdef void make_room(self, Py_ssize_t room):
        cdef Py_ssize_t k = self.t.k
        self.reserve(room, 1)
        count, drift = np.zeros(room, dtype=np.intp), np.zeros(room)
        theta = np.zeros((room, self.p.d))
        if k:
            count[:k], drift[:k], theta[:k] = self.count[:k], self.drift[:k], self.theta[:k]
        self.count, self.drift, self.theta = count, drift, theta
        self.sums.reserve(room)
        self.s.drift, self.s.theta = &self.drift[0], &self.theta[0, 0]

    cdef void rest(self, Py_ssize_t k) noexcept nogil:
        """An old cluster that no point of the batch has, revived at cost Q D + gamma / (1 + gamma) ||y - phi||^2."""
        self.put(k, &self.phi[k, 0])
        self.t.offset[k] = self.penalty[k]
        self.t.factor[k] = self.gamma[k] / (1.0 + self.gamma[k])

    cdef int measure(self) except -1 nogil:
        """The objective at the new means, and proposals for all points."""
        cdef Py_ssize_t start = 0, stop
        self.s.full = False
        while start < self.p.n:
            stop = min(self.p.n, start + max(<Py_ssize_t> CHUNK, WORK // (self.p.d * (self.t.k + 4))))
            look_at(&self.p, &self.t, &self.s, start, stop)
            self.check_signals((stop - start) * self.p.d * (self.t.k + 4))
            start = stop
        self.s.stale = 0
        self.objective = self.fixed + total(&self.own[0], self.p.n)
        return 0

    cdef Py_ssize_t advance(self, Py_ssize_t start, Py_ssize_t* ready, Py_ssize_t* changes) except -1 nogil:
        """Take up proposals until a cluster comes or goes; returns the next point."""
        cdef Py_ssize_t i, k, j
        cdef int left
        cdef const double* y
        cdef double* revived = self.p.space
        cdef bint event = False
        if start == ready[0]:
            ready[0] = min(self.p.n, start + self.span())
            self.s.full = True
            look_at(&self.p, &self.t, &self.s, start, ready[0])
            self.check_signals((ready[0] - start) * self.p.d * (self.t.k + 4))
            self.round = min(2 * self.round, <Py_ssize_t> LONGEST)
        for i in range(start, ready[0]):
            k = self.proposal[i]
            left = self.label[i]
            if k == left:
                continue
            y = row_at(&self.p.rows, i, self.p.space)
            if left >= 0:
                self.count[left] -= 1
                if self.count[left] == 0:
                    event = True
            if k == OPEN:
                k = self.t.k
                self.t.k += 1
                self.open_at(k, y)
                event = True
            changes[0] += 1
            self.count[k] += 1
            self.label[i] = <int> k
            self.hand_over(i, left, <int> k)
            if self.count[k] == 1 and k < self.old:  # revive it, between its center and the point
                for j in range(self.p.d):
                    revived[j] = (self.gamma[k] * self.phi[k, j] + y[j]) / (self.gamma[k] + 1.0)
                self.open_at(k, revived)
                event = True
            if event:
                if left >= 0 and self.count[left] == 0:
                    if left >= self.old:
                        self.t.offset[left] = HUGE_VAL
                    else:
                        self.rest(left)
                self.round = 1
                self.s.stale = ready[0] = i + 1
                return i + 1
        return ready[0]

    cdef void open_at(self, Py_ssize_t k, const double* center) noexcept nogil:
        self.put(k, center)
        self.t.offset[k], self.t.factor[k] = 0.0, 1.0

    cdef void hand_over(self, Py_ssize_t i, int left, int joined) noexcept nogil:
        """Point i goes from one cluster (-1: from nowhere) to another one."""
        move_points(&self.p.rows, i, i + 1, &left, &joined, &self.sums.s)

    cdef void move(self) noexcept nogil:
        """Means of the active clusters, theta = (gamma phi + sum y) / (gamma + n), and how far they moved."""
        cdef Py_ssize_t j, k, d = self.p.d, first = -1
        cdef double gamma, t, moved, largest = 0.0, next_ = 0.0
        self.fixed = 0.0
        for k in range(self.t.k):
            if self.count[k] == 0:
                if k < self.old:
                    memcpy(&self.theta[k, 0], &self.phi[k, 0], d * sizeof(double))
                continue
            gamma = self.gamma[k] if k < self.old else 0.0
            self.fixed += self.penalty[k] if k < self.old else self.s.lam
            moved = 0.0
            for j in range(d):
                if k < self.old:
                    self.theta[k, j] = (gamma * self.phi[k, j] + sums_total(&self.sums.s, k, j)) / (
                        gamma + self.count[k]
                    )
                    t = self.theta[k, j] - self.phi[k, j]
                    self.fixed += gamma * t * t
                else:
                    self.theta[k, j] = sums_total(&self.sums.s, k, j) / self.count[k]
                t = self.theta[k, j] - self.t.columns[k + j * self.t.room]
                moved += t * t
            self.put(k, &self.theta[k, 0])
            if moved > largest:
                largest, next_, first = moved, largest, k
            elif moved > next_:
                next_ = moved
        largest, next_ = sqrt(largest), sqrt(next_)
        for k in range(self.t.k):
            self.drift[k] += next_ if k == first else largest

    def result(self):
        """Labels in the order of the rows, centers, counts, path; the old clusters, then the new ones with points."""
        cdef Py_ssize_t k
        cdef bint whole = True
        labels, counts = np.asarray(self.label), np.asarray(self.count)[: self.t.k]
        theta = np.asarray(self.theta)[: self.t.k]
        for k in range(self.old, self.t.k):
            whole &= self.count[k] > 0
        if not whole:
            kept = counts > 0
            kept[: self.old] = True
            labels, counts, theta = (np.cumsum(kept) - 1)[labels], counts[kept], theta[kept]
        if self.p.rows.order != NULL:
            by_row = np.empty_like(labels)
            by_row[self.arrays[len(self.arrays) - 1]] = labels
            labels = by_row
        return labels, theta, counts, np.array(self.values)


# ----------------------------------------------------------------------------------------------------------------------
# Hard HDP


cdef class HDPSweep(Sweep):
    """Algorithm 2 of Kulis & Jordan (2012). A local cluster is a pair of a data set and a global cluster.

    X : IN array (n, d), float32 or float64, any strides
    order : IN array (n,), intp: the rows, those of a data set together
    group : IN array (n,), int32: the data set of each, 0, 1, ... in the order of visit
    layout : of the sums of X
    """

    cdef Py_ssize_t sets
    cdef double lam_local
    cdef double lam_global
    cdef int[::1] label                 # in the order of visit
    cdef int[::1] old                   # before the sweep
    cdef double[:, ::1] centers         # room x d
    cdef Sums local                     # of the local clusters, kept up with every change; those of a global one add up
    cdef Sums total                     # to its own
    cdef int[:, ::1] place              # data sets x room: where a local cluster has its sums, -1: there is none
    cdef list free                      # places that were given back
    cdef Py_ssize_t taken               # no place from here on was ever in use
    cdef bint placed                    # whether the points are in the sums
    cdef Py_ssize_t[::1] count          # of one data set
    cdef int[::1] target                # where the local clusters of a data set went
    cdef int[::1] nearest               # of each local cluster: the nearest global one,
    cdef double[::1] least              # and its squared distance
    cdef double[::1] none               # no offsets
    cdef int64_t[:, ::1] digits         # threads x WIDE_DIGITS
    cdef readonly Py_ssize_t n_local
    cdef readonly double error

    def __init__(
        self, X, order, int[::1] group, Py_ssize_t sets, double lam_local, double lam_global, layout, mean,
        int n_threads,
    ):
        cdef Py_ssize_t j
        cdef double[::1] first = mean
        self.attach(X, order, np.asarray(group), n_threads)
        self.sets, self.lam_local, self.lam_global = sets, lam_local, lam_global
        self.local, self.total, self.free = Sums(layout, min(self.p.n, 2 * sets)), Sums(layout, 1), []
        self.digits = np.empty((n_threads, WIDE_DIGITS), dtype=np.int64)
        self.make_room(16)
        self.t.factor = NULL
        self.t.k = 1
        self.put(0, &first[0])
        for j in range(self.p.d):
            self.centers[0, j] = first[j]
        self.label, self.old = np.zeros(self.p.n, dtype=np.int32), np.empty(self.p.n, dtype=np.int32)
        self.round = CHUNK

    cdef void make_room(self, Py_ssize_t room):
        cdef Py_ssize_t k = self.t.k
        self.reserve(room, self.sets)
        self.t.factor = NULL
        centers, count = np.zeros((room, self.p.d)), np.zeros(room, dtype=np.intp)
        place = np.full((self.sets, room), -1, dtype=np.int32)
        if k:
            centers[:k], count[:k], place[:, :k] = self.centers[:k], self.count[:k], self.place[:, :k]
        self.centers, self.count, self.place = centers, count, place
        self.total.reserve(room)
        self.target, self.none = np.zeros(room, dtype=np.int32), np.zeros(room)
        self.nearest, self.least = np.zeros(room, dtype=np.int32), np.zeros(room)

    @property
    def k(self):
        """Number of global clusters."""
        return self.t.k

    def sweep(self):
        """Steps 4 to 6; returns whether anything changed, and how many global clusters were created."""
        cdef Py_ssize_t start = 0, stop, before = self.t.k, created
        cdef bint same
        memcpy(&self.old[0], &self.label[0], self.p.n * sizeof(int))
        while start < self.p.n:
            if self.t.k == self.t.room:
                self.make_room(2 * self.t.room)
            with nogil:
                start = self.advance(start)
        self.n_local = 0
        start = 0
        with nogil:
            sums_clear(&self.total.s, 0, self.t.room)
            while start < self.p.n:
                stop = end_of_group(&self.p, start, self.p.n)
                if self.t.k + min(self.t.k, stop - start) > self.t.room:
                    with gil:
                        self.make_room(2 * self.t.room)
                if not self.placed:
                    self.add_set(start, stop)
                self.move_locals(start, stop)
                self.check_signals((stop - start + self.t.k * self.t.k) * self.p.d)
                start = stop
            self.placed = True
            created = self.t.k - before
            same = created == 0 and memcmp(&self.old[0], &self.label[0], self.p.n * sizeof(int)) == 0
            self.finish()
            self.error = squared_error(&self.p, &self.centers[0, 0], &self.label[0], <Wide*> &self.digits[0, 0])
        return not same, created

    cdef Py_ssize_t advance(self, Py_ssize_t start) except -1 nogil:
        """Step 4 for a round of points; returns the next point."""
        cdef Py_ssize_t stop = min(self.p.n, start + self.span()), i = start, end, k
        cdef double* offset
        cdef bint everywhere
        propose(&self.p, &self.t, start, stop, &self.proposal[0], &self.cost[0])
        self.check_signals((stop - start) * self.p.d * (self.t.k + 4))
        self.round = min(2 * self.round, <Py_ssize_t> LONGEST)
        while i < stop:
            k = self.proposal[i - start]
            offset = self.t.offset + self.p.group[i] * self.t.room
            everywhere = self.cost[i - start] > self.lam_local + self.lam_global
            if everywhere:
                if self.t.k == self.t.room:
                    return i
                k = self.open_global(row_at(&self.p.rows, i, self.p.space))
            self.hand_over(i, k)
            i += 1
            if everywhere or offset[k] != 0.0:
                offset[k] = 0.0
                # cheaper now for what lies behind, and nothing else is: a few points are amended, more proposed anew
                end = stop if everywhere else end_of_group(&self.p, i - 1, stop)
                if end - i > CHUNK:
                    end = stop = i + CHUNK
                    self.round = CHUNK
                self.amend(i, end, k, start)
        return stop

    cdef int hand_over(self, Py_ssize_t i, Py_ssize_t k) except -1 nogil:
        """Point i goes to its data set's part of cluster k; in the first sweep it is added up later."""
        cdef Py_ssize_t g = self.p.group[i]
        cdef int left
        if k == self.label[i] and self.placed:
            return 0
        if self.place[g, k] < 0:
            self.take_place(&self.place[g, k])
        if self.placed:
            left = self.place[g, self.label[i]]
            move_points(&self.p.rows, i, i + 1, &left, &self.place[g, k], &self.local.s)
        self.label[i] = <int> k
        return 0

    cdef void add_set(self, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
        """All points of a data set, in the first sweep."""
        cdef int[RUN] joined
        cdef const int* place = &self.place[self.p.group[start], 0]
        cdef Py_ssize_t m, size
        while start < stop:
            size = min(<Py_ssize_t> RUN, stop - start)
            for m in range(size):
                joined[m] = place[self.label[start + m]]
            move_points(&self.p.rows, start, start + size, NULL, joined, &self.local.s)
            start += size

    cdef int take_place(self, int* place) except -1 nogil:
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
            t = self.t.offset[self.p.group[i] * self.t.room + k] + t
            if t < self.cost[i - start] or (t == self.cost[i - start] and k < self.proposal[i - start]):
                self.cost[i - start], self.proposal[i - start] = t, <int> k

    cdef Py_ssize_t open_global(self, const double* center) noexcept nogil:
        cdef Py_ssize_t k = self.t.k, j
        self.t.k += 1
        self.put(k, center)
        for j in range(self.p.d):
            self.centers[k, j] = center[j]
        for j in range(self.sets):
            self.t.offset[j * self.t.room + k] = self.lam_local
        self.count[k] = 0
        return k

    cdef int move_locals(self, Py_ssize_t start, Py_ssize_t stop) except -1 nogil:
        """Step 5 for one data set, from the sums and sizes of its local clusters."""
        cdef Py_ssize_t i, c, p, there = self.t.k
        cdef const sums_t* sums = &self.local.s
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
            if count[c] * least > self.lam_global:
                self.local_mean(place[c], x, 1)
                p = self.open_global(x)
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
            self.nearest[p] = -1  # its mean is another now
        if moved:
            # what went to a cluster before that one's own turn went on with it
            for c in range(there - 1, -1, -1):
                p = target[c]
                if c < p < there and target[p] >= 0:
                    target[c] = target[p]
            for i in range(start, stop):
                label[i] = target[label[i]]
        for p in range(self.t.k):
            if place[p] >= 0:
                self.n_local += 1
                sums_unite(&self.total.s, p, sums, place[p])
        return 0

    cdef int give_back(self, int* place, Py_ssize_t c) except -1 nogil:
        """A data set has no part of cluster c any more; its sums are 0."""
        with gil:
            self.free.append(place[c])
        place[c] = -1
        return 0

    cdef inline void local_mean(self, Py_ssize_t place, double* out, Py_ssize_t step) noexcept nogil:
        cdef const sums_t* sums = &self.local.s
        cdef double count = sums.count[place]
        cdef Py_ssize_t j
        for j in range(self.p.d):
            out[j * step] = sums.origin[j] + sums_total(sums, place, j) / count

    cdef void nearest_to_locals(self, const int* place, Py_ssize_t there) noexcept nogil:
        """The global clusters nearest to the means of a data set's local clusters, as all of them stand."""
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

    cdef void finish(self) noexcept nogil:
        """Step 6: means over all data sets; empty clusters vanish."""
        cdef Py_ssize_t k = 0, p, i, g, j, room = self.t.room
        cdef const sums_t* sums = &self.total.s
        cdef int* target = &self.target[0]
        cdef int* label = &self.label[0]
        cdef int* place
        for p in range(self.t.k):
            target[p] = -1
            if sums.count[p]:
                target[p] = <int> k
                for j in range(self.p.d):
                    self.centers[k, j] = sums.origin[j] + sums_total(sums, p, j) / sums.count[p]
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


def assign(X, group, const double[:, ::1] centers, const double[:, ::1] offset, int n_threads):
    """The cheapest of the centers (IN, k x d) for each row of X (IN), at ||x - c||^2 + offset of its group (IN).

    group : IN array (n,), int32, rows of offset; or None: the only one
    """
    cdef Sweep sweep = Sweep()
    cdef Py_ssize_t k, start = 0, stop, n = X.shape[0]
    cdef int[::1] label = np.empty(n, dtype=np.int32)
    cdef double[::1] cost = np.empty(n)
    k = centers.shape[0]
    if k == 0 or centers.shape[1] != X.shape[1] or offset.shape[1] != k:
        raise ValueError(f"centers must be some, of {X.shape[1]} columns, each with offsets, got {centers.shape[0]} of "
                         f"{centers.shape[1]} columns and offsets for {offset.shape[1]}")
    if group is not None and n and not 0 <= np.min(group) <= np.max(group) < offset.shape[0]:
        raise ValueError(f"group must be the number of a row of offset, < {offset.shape[0]}")
    sweep.attach(X, None, group, n_threads)
    sweep.reserve(centers.shape[0], offset.shape[0])
    sweep.t.factor = NULL
    sweep.t.offset = <double*> &offset[0, 0]
    sweep.t.k = centers.shape[0]
    for k in range(centers.shape[0]):
        sweep.put(k, &centers[k, 0])
    with nogil:
        while start < n:
            sweep.round = LONGEST
            stop = min(n, start + sweep.span())
            propose(&sweep.p, &sweep.t, start, stop, &label[start], &cost[start])
            sweep.check_signals((stop - start) * sweep.p.d * sweep.t.k)
            start = stop
    return np.asarray(label)
