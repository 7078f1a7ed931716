"""The sweep of D-Means (Campbell, Kulis & How, section 4): points revive old clusters and open new ones, one by one."""

from libc.math cimport HUGE_VAL, sqrt
from libc.string cimport memcpy, memset

from smallvar._sweeps.pool cimport PAYS, run
from smallvar._sweeps.rounds cimport CHUNK, LONGEST, WORK, Points, Rounds, Table, row_space, sc_least, square
from smallvar._sweeps.rows cimport row_at, weight_of
from smallvar._sweeps.sums cimport (
    ACCUMULATOR_DIGITS, Sums, Accumulator, move_points, sums_total, sums_weight, accumulator_add, accumulator_round,
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
    # of a bound when it was made: once drift has left no more of it, its rounding counts and it is not used
    const double SPENT_BOUND "SMALLVAR_SPENT_BOUND"
    const double LARGEST_COST "SMALLVAR_LARGEST_COST"  # of another cluster, so that the bound stays finite


cdef struct Lazy:
    double* own                 # squared distance of each point to its center, at the start of the sweep
    double* bound               # root of the least cost of the other clusters, plus drift of the own one, when computed
    const double* drift         # of each cluster: how far any other one has moved, in all sweeps together
    const double* theta         # k x d: the centers
    const int* label            # n: cluster of each point, -1: none yet
    const Py_ssize_t* count     # of each cluster: its points
    const double* gamma         # of each old cluster: its weight, faded by age
    Py_ssize_t old              # number of old clusters
    double* factor              # threads x room, scratch: those of the table for the point in hand; NULL: all weigh 1
    int* proposal               # n: a cluster, or OPEN
    double lam                  # cost of a new cluster
    Py_ssize_t stale            # the bounds of the points before this one no longer hold
    bint full                   # compute all costs of all points


cdef struct LazyRound:          # proposals for the points start..stop-1
    const Points* p
    const Table* t              # the clusters
    const Lazy* s
    Py_ssize_t start
    Py_ssize_t stop


cdef const double* weighted_factors(const Table* t, const Lazy* s, double w, double* out) noexcept nogil:
    """Of ||y - c||^2 for a point of weight w: w, or w gamma / (w + gamma) for an old cluster without points."""
    cdef Py_ssize_t k
    for k in range(t.k):
        out[k] = w
    for k in range(s.old):
        if s.count[k] == 0:
            out[k] = w * (s.gamma[k] / (w + s.gamma[k]))
    return out


cdef void lazy_item(void* context, Py_ssize_t chunk, int slot) noexcept nogil:
    cdef const LazyRound* a = <const LazyRound*> context
    cdef const Points* p = a.p
    cdef const Table* t = a.t
    cdef const Lazy* s = a.s
    cdef Py_ssize_t i, k, start = a.start + chunk * CHUNK
    cdef double own, r, least, second, w = 1.0
    cdef const double* x
    cdef const double* factor = t.factor
    for i in range(start, min(a.stop, start + CHUNK)):
        x = row_at(&p.rows, i, row_space(p, slot))
        if s.factor != NULL:
            w = p.rows.weight[i]
        if not s.full:
            k = s.label[i]
            own = square(p, x, s.theta + k * p.d)
            s.own[i] = own
            # ||x - c'|| >= root of its cost then - how far c' moved since; the margin is far more than their rounding
            r = s.bound[i] - s.drift[k]
            if (
                i >= s.stale
                and w * own <= s.lam
                and r > SPENT_BOUND * s.bound[i]
                and own < r * r * (1 - DISTANCE_MARGIN)
            ):
                s.proposal[i] = <int> k
                continue
        if s.factor != NULL:
            factor = weighted_factors(t, s, w, s.factor + slot * t.room)
        k = sc_least(x, p.d, t.columns, t.room, t.k, t.offset, factor, p.costs + slot * t.room, &least, &second)
        if k >= 0 and least <= s.lam:
            s.proposal[i] = <int> k
            s.bound[i] = sqrt(min(second / w, LARGEST_COST)) + s.drift[k]
        else:
            s.proposal[i] = OPEN


cdef void propose_lazily(
    const Points* p, const Table* t, const Lazy* s, Py_ssize_t start, Py_ssize_t stop
) noexcept nogil:
    """Proposals for the points start..stop-1."""
    cdef LazyRound a = LazyRound(p, t, s, start, stop)
    cdef Py_ssize_t work = (stop - start) * p.d * (t.k if s.full else 4)
    run(lazy_item, &a, 0, (stop - start + CHUNK - 1) // CHUNK, p.threads if work >= PAYS else 1)


cdef double total(const double* values, const double* weight, Py_ssize_t n) noexcept nogil:
    """Their sum, each times its weight (NULL: 1), rounded once."""
    cdef Accumulator wide
    cdef double[CHUNK] product
    cdef Py_ssize_t i, start = 0, stop
    memset(&wide, 0, sizeof(wide))
    if weight == NULL:
        accumulator_add(wide.digit, values, n)
        start = n
    while start < n:
        stop = min(n, start + CHUNK)
        for i in range(start, stop):
            product[i - start] = weight[i] * values[i]
        accumulator_add(wide.digit, product, stop - start)
        start = stop
    return accumulator_round(wide.digit, 0, ACCUMULATOR_DIGITS)


cdef class DynamicStep(Rounds):
    """One batch of D-Means: old clusters revived, new ones opened, means moved, until the objective stops falling.

    A point stays where it is without further costs while it is nearer to its center than any other cluster can have
    moved to it since its costs were computed.

    X : IN array (n, d), float32 or float64, any strides
    weight : IN array (n,), positive, or None: 1 each
    centers : IN array (k, d), the old clusters' centers phi
    gamma : IN array (k,), their weights, faded by age
    penalty : IN array (k,), Q times their ages
    """

    cdef Lazy s
    cdef Py_ssize_t old                 # number of old clusters, which come before the new ones
    cdef const double[:, ::1] phi       # old x d: their centers before the step
    cdef const double[::1] gamma        # old: the weights of these
    cdef const double[::1] penalty      # old: Q D
    cdef Py_ssize_t[::1] count          # points of each cluster
    cdef double[:, ::1] theta           # room x d: the centers now
    cdef Sums sums                      # of the points, brought up to date with every change
    cdef double[::1] drift              # these three: buffers of s
    cdef double[::1] own
    cdef double[::1] bound
    cdef int[::1] label
    cdef const double[::1] weight       # of the points as they are visited, or None
    cdef object given                   # the weights, as given
    cdef object order                   # of visit, or None
    cdef double fixed                   # the objective but for sum_i ||y_i - theta_{z_i}||^2
    cdef readonly double objective
    cdef readonly int n_iter            # sweeps
    cdef readonly bint converged
    cdef list values                    # the objective after every sweep

    def __init__(
        self, X, weight, const double[:, ::1] centers, const double[::1] gamma, const double[::1] penalty, double lam,
        int n_threads,
    ):
        self.old = centers.shape[0]
        self.phi, self.gamma, self.penalty, self.s.lam = centers, gamma, penalty, lam
        if gamma.shape[0] != self.old or penalty.shape[0] != self.old:
            raise ValueError("gamma and penalty must match centers")
        if centers.shape[1] != X.shape[1]:
            raise ValueError(f"centers must have {X.shape[1]} columns, got {centers.shape[1]}")
        if weight is not None and weight.shape != (X.shape[0],):
            raise ValueError("weight must match X")
        self.attach(X, None, None, n_threads)
        self.given, self.s.old = weight, self.old
        self.s.gamma = &gamma[0] if self.old else NULL
        # sums from 0: theta is a mean of points and phi
        self.sums = Sums(Layout(X, weight, n_threads, origin=np.zeros(self.p.d)), self.old + 8)

    def run(self, order, int max_iter):
        """Sweeps with the points in this order (IN, or None for the order given)."""
        cdef Py_ssize_t k, start, ready, changes, n = self.p.n
        cdef const Py_ssize_t[::1] indices
        cdef double previous = HUGE_VAL
        self.order, self.weight = order, self.given
        if order is not None:
            indices = order
            self.p.rows.order = &indices[0]
            if self.given is not None:
                self.weight = self.given[order]
        if self.weight is not None:
            self.p.rows.weight = &self.weight[0]
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
        self.s.drift, self.s.theta, self.s.count = &self.drift[0], &self.theta[0, 0], &self.count[0]
        if self.given is not None:
            self.s.factor = self.p.factors

    cdef void rest(self, Py_ssize_t k) noexcept nogil:
        """Old cluster k has no points: reviving it costs Q D + gamma / (1 + gamma) ||y - phi||^2."""
        self.put(k, &self.phi[k, 0])
        self.t.offset[k] = self.penalty[k]
        self.t.factor[k] = self.gamma[k] / (1.0 + self.gamma[k])

    cdef int measure(self) except -1 nogil:
        """The objective at the new means, and proposals for all points."""
        cdef Py_ssize_t start = 0, stop
        self.s.full = False
        while start < self.p.n:
            stop = min(self.p.n, start + max(<Py_ssize_t> CHUNK, WORK // (self.p.d * (self.t.k + 4))))
            propose_lazily(&self.p, &self.t, &self.s, start, stop)
            self.check_signals((stop - start) * self.p.d * (self.t.k + 4))
            start = stop
        self.s.stale = 0
        self.objective = self.fixed + total(&self.own[0], self.p.rows.weight, self.p.n)
        return 0

    cdef Py_ssize_t advance(self, Py_ssize_t start, Py_ssize_t* ready, Py_ssize_t* changes) except -1 nogil:
        """Take up proposals until a cluster comes or goes; returns the next point."""
        cdef Py_ssize_t i, k, j
        cdef int left
        cdef double w
        cdef const double* y
        cdef double* revived = self.p.space
        cdef bint event = False
        if start == ready[0]:
            ready[0] = min(self.p.n, start + self.span())
            self.s.full = True
            propose_lazily(&self.p, &self.t, &self.s, start, ready[0])
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
            if self.count[k] == 1 and k < self.old:  # revive it at theta = (gamma phi + w y) / (gamma + w)
                w = weight_of(&self.p.rows, i)
                for j in range(self.p.d):
                    revived[j] = (self.gamma[k] * self.phi[k, j] + w * y[j]) / (self.gamma[k] + w)
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
        move_points(&self.p.rows, i, i + 1, &left, &joined, &self.sums.table)

    cdef void move(self) noexcept nogil:
        """Means of clusters that are seen, theta = (gamma phi + sum w y) / (gamma + sum w), and how far they moved."""
        cdef Py_ssize_t j, k, d = self.p.d, first = -1
        cdef double gamma, mass, t, moved, largest = 0.0, next_ = 0.0
        self.fixed = 0.0
        for k in range(self.t.k):
            if self.count[k] == 0:
                if k < self.old:
                    memcpy(&self.theta[k, 0], &self.phi[k, 0], d * sizeof(double))
                continue
            gamma, mass = self.gamma[k] if k < self.old else 0.0, sums_weight(&self.sums.table, k)
            self.fixed += self.penalty[k] if k < self.old else self.s.lam
            moved = 0.0
            for j in range(d):
                if k < self.old:
                    self.theta[k, j] = (gamma * self.phi[k, j] + sums_total(&self.sums.table, k, j)) / (gamma + mass)
                    t = self.theta[k, j] - self.phi[k, j]
                    self.fixed += gamma * t * t
                else:
                    self.theta[k, j] = sums_total(&self.sums.table, k, j) / mass
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
        """Labels in the order of the rows, centers, masses, path: of the old clusters, then of new ones with points."""
        cdef Py_ssize_t k
        labels = np.asarray(self.label)
        masses = np.array([sums_weight(&self.sums.table, k) for k in range(self.t.k)])
        theta = np.asarray(self.theta)[: self.t.k]
        kept = np.asarray(self.count)[: self.t.k] > 0
        kept[: self.old] = True
        if not kept.all():
            labels, masses, theta = (np.cumsum(kept) - 1)[labels], masses[kept], theta[kept]
        if self.order is not None:
            by_row = np.empty_like(labels)
            by_row[self.order] = labels
            labels = by_row
        return labels, theta, masses, np.array(self.values)
