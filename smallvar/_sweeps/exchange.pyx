"""The sweep of kernel D-Means (Campbell, Kulis & How, section 5): points move between clusters, one by one.

Clusters are the old ones, then those that are new in this batch. One of n points adds to the objective, beside the sum
of K_ii over its points, which does not depend on labels,

    base + gamma n / (gamma + n) K_phi,phi - (sum K_ij + 2 gamma sum K_i,phi) / (gamma + n),

with base = Q D, or lam and gamma = 0 if it is new; without points it adds nothing. A point that is visited goes to the
cluster that makes this sum over clusters rise least, among the clusters as points before it have left them. Costs tie
that differ by no more than ``tie``: at a tie a point stays, or else takes the first cluster.
"""

from libc.math cimport HUGE_VAL
from libc.string cimport memset

from smallvar._sweeps.rows cimport poll_signals

import numpy as np

cdef enum:
    EXCHANGE_WORK = 1 << 24  # multiply-adds, or as long, between two checks for signals
    VISIT = 8           # multiply-adds that take as long as the cost of one cluster


cdef struct ExchangeClusters:
    Py_ssize_t n                # points of the batch
    Py_ssize_t n_old
    Py_ssize_t k                # old and new, those that have lost all their points too
    Py_ssize_t capacity
    const double* gamma         # of each old cluster
    const double* norm          # n_old: K_phi,phi
    const double* penalty       # n_old: Q D
    const double* to_old        # n x n_old: K_i,phi
    double lam
    double tie
    double* size                # capacity: number of points
    double* within              # capacity: sum of K_ij over pairs of points
    double* cross               # capacity: sum of K_i,phi; 0 for new clusters
    double* cost                # capacity: see cost_of
    double* to_points           # capacity x n: sum of K_ij over the points j of the cluster, for each point i
    double* rise                # capacity: scratch of `cheapest`


cdef inline double cost_of(
    const ExchangeClusters* clusters, Py_ssize_t k, double size, double within, double cross
) noexcept nogil:
    """What cluster k costs with so many points and these sums, apart from sum K_ii."""
    cdef double gamma, total
    if size == 0.0:
        return 0.0
    if k >= clusters.n_old:
        return clusters.lam - within / size
    gamma = clusters.gamma[k]
    total = gamma + size
    return clusters.penalty[k] + gamma * size / total * clusters.norm[k] - (within + 2.0 * gamma * cross) / total


cdef Py_ssize_t cheapest(
    const ExchangeClusters* clusters, Py_ssize_t i, double K_ii, Py_ssize_t assigned
) noexcept nogil:
    """The cluster that point i of cluster ``own`` (-1: of none yet) should be in; number k is a new one."""
    cdef Py_ssize_t k, n_old = clusters.n_old, new = clusters.k
    cdef const double* to_old = clusters.to_old + i * n_old
    cdef double* rise = clusters.rise
    cdef double to_points, least = HUGE_VAL
    for k in range(new):
        to_points = clusters.to_points[k * clusters.n + i]
        if k == assigned:
            rise[k] = clusters.cost[k] - cost_of(
                clusters, k, clusters.size[k] - 1.0, clusters.within[k] - 2.0 * to_points + K_ii,
                clusters.cross[k] - to_old[k] if k < n_old else 0.0,
            )
        elif k < n_old:
            rise[k] = cost_of(
                clusters, k, clusters.size[k] + 1.0, clusters.within[k] + 2.0 * to_points + K_ii,
                clusters.cross[k] + to_old[k],
            ) - clusters.cost[k]
        elif clusters.size[k] > 0.0:
            rise[k] = cost_of(
                clusters, k, clusters.size[k] + 1.0, clusters.within[k] + 2.0 * to_points + K_ii, 0.0
            ) - clusters.cost[k]
        else:
            rise[k] = HUGE_VAL  # it has lost all its points
        least = min(least, rise[k])
    # a point that is alone in a new cluster gains nothing by another one
    rise[new] = HUGE_VAL if assigned >= n_old and clusters.size[assigned] == 1.0 else clusters.lam - K_ii
    least = min(least, rise[new]) + clusters.tie
    if assigned >= 0 and rise[assigned] <= least:
        return assigned
    k = 0
    while rise[k] > least:
        k += 1
    return k


cdef void add(ExchangeClusters* clusters, Py_ssize_t k, Py_ssize_t i, const double* K_i, double sign) noexcept nogil:
    """Put point i into cluster k (sign 1) or take it out (-1).  K_i : n, the kernel of the point with each point."""
    cdef Py_ssize_t j, n = clusters.n
    cdef double* to_points = clusters.to_points + k * n
    clusters.within[k] += sign * 2.0 * to_points[i] + K_i[i]
    for j in range(n):
        to_points[j] += sign * K_i[j]
    if k < clusters.n_old:
        clusters.cross[k] += sign * clusters.to_old[i * clusters.n_old + k]
    clusters.size[k] += sign
    if clusters.size[k] == 0.0:  # without the rounding of what has come and gone
        clusters.within[k] = clusters.cross[k] = 0.0
        memset(to_points, 0, n * sizeof(double))
    clusters.cost[k] = cost_of(clusters, k, clusters.size[k], clusters.within[k], clusters.cross[k])


cdef class ExchangeSweep:
    """Sweeps over the points of a batch; the clusters have no points at first.

    K : IN array (n, n), the kernel of the batch
    to_old : IN array (n, n_old), K_i,phi;  gamma, norm, penalty : IN arrays (n_old,), gamma, K_phi,phi and Q D
    """

    cdef ExchangeClusters clusters          # its pointers are into the arrays below
    cdef const double[:, ::1] K
    cdef list old_arrays
    cdef double[:, ::1] sums        # size, within, cross, cost, and scratch
    cdef double[:, ::1] to_points
    cdef Py_ssize_t work            # since the last check for signals

    def __init__(
        self, const double[:, ::1] K, const double[:, ::1] to_old, const double[::1] gamma, const double[::1] norm,
        const double[::1] penalty, double lam, double tie,
    ):
        cdef Py_ssize_t n = K.shape[0], n_old = gamma.shape[0]
        if n == 0 or K.shape[1] != n or to_old.shape[0] != n or to_old.shape[1] != n_old:
            raise ValueError("K must be square, with rows, and to_old must match it")
        if norm.shape[0] != n_old or penalty.shape[0] != n_old:
            raise ValueError("norm and penalty must match gamma")
        self.K, self.old_arrays = K, [to_old, gamma, norm, penalty]
        self.clusters.n, self.clusters.n_old, self.clusters.k = n, n_old, 0
        self.clusters.lam, self.clusters.tie = lam, tie
        if n_old:
            self.clusters.to_old, self.clusters.gamma = &to_old[0, 0], &gamma[0]
            self.clusters.norm, self.clusters.penalty = &norm[0], &penalty[0]
        self.reserve(n_old + 8)
        self.clusters.k = n_old

    cdef void reserve(self, Py_ssize_t capacity):
        """Raise the capacity for clusters; those there are stay."""
        cdef Py_ssize_t k = self.clusters.k
        sums, to_points = np.zeros((5, capacity)), np.zeros((capacity, self.clusters.n))
        if k:
            sums[:, :k], to_points[:k] = self.sums[:, :k], self.to_points[:k]
        self.sums, self.to_points = sums, to_points
        self.clusters.capacity = capacity
        self.clusters.size, self.clusters.within = &self.sums[0, 0], &self.sums[1, 0]
        self.clusters.cross, self.clusters.cost = &self.sums[2, 0], &self.sums[3, 0]
        self.clusters.rise, self.clusters.to_points = &self.sums[4, 0], &self.to_points[0, 0]

    def set_clusters(
        self, const Py_ssize_t[::1] numbers, const Py_ssize_t[::1] sizes, const double[:, ::1] to_points,
        const double[::1] within, const double[:, ::1] cross,
    ):
        """Replace all clusters by those with these numbers, of which new ones follow the old without gaps.

        numbers, sizes, within : IN arrays (k,);  to_points : IN array (k, n);  cross : IN array (k, n_old), the sum of
            K_i,phi for each old cluster
        """
        cdef ExchangeClusters* clusters = &self.clusters
        cdef Py_ssize_t c, k, n_old = clusters.n_old, end = n_old
        for c in range(numbers.shape[0]):
            end += numbers[c] >= n_old
        if numbers.shape[0] and not 0 <= np.min(numbers) <= np.max(numbers) < end:
            raise ValueError(f"numbers must be >= 0 and < {end}")
        if to_points.shape[1] != clusters.n or cross.shape[1] != n_old or numbers.shape[0] != to_points.shape[0]:
            raise ValueError("to_points and cross must match numbers and K")
        clusters.k = 0
        self.sums[:] = 0.0
        self.to_points[:] = 0.0
        if end + 1 >= clusters.capacity:
            self.reserve(end + 8)
        clusters.k = end
        for c in range(numbers.shape[0]):
            k = numbers[c]
            clusters.size[k], clusters.within[k] = sizes[c], within[c]
            clusters.cross[k] = cross[c, k] if k < n_old else 0.0
            self.to_points[k] = to_points[c]
            clusters.cost[k] = cost_of(clusters, k, clusters.size[k], clusters.within[k], clusters.cross[k])

    def run(self, const Py_ssize_t[::1] order, Py_ssize_t[::1] labels):
        """Visit all points once in this order; returns how many of them moved.

        order : IN array (n,), a permutation
        labels : INOUT array (n,): cluster of each point, -1: none yet
        """
        cdef Py_ssize_t place = 0, moved = 0
        if order.shape[0] != self.clusters.n or labels.shape[0] != self.clusters.n:
            raise ValueError("order and labels must match K")
        if not -1 <= np.min(labels) <= np.max(labels) < self.clusters.k:
            raise ValueError(f"labels must be >= -1 and < {self.clusters.k}")
        while place < self.clusters.n:
            # there is always room for one more: scratch, and a cluster that opens
            if self.clusters.k + 1 >= self.clusters.capacity:
                self.reserve(2 * self.clusters.capacity)
            with nogil:
                place = self.visit(&order[0], place, &labels[0], &moved)
        return moved

    cdef Py_ssize_t visit(
        self, const Py_ssize_t* order, Py_ssize_t place, Py_ssize_t* labels, Py_ssize_t* moved
    ) except -1 nogil:
        """Visit points from this place on, up to one that takes the last room for clusters; returns the next place."""
        cdef ExchangeClusters* clusters = &self.clusters
        cdef Py_ssize_t i, k
        while place < clusters.n and clusters.k + 1 < clusters.capacity:
            i = order[place]
            place += 1
            k = cheapest(clusters, i, self.K[i, i], labels[i])
            poll_signals(&self.work, VISIT * clusters.k, EXCHANGE_WORK)
            if k == labels[i]:
                continue
            if labels[i] >= 0:
                add(clusters, labels[i], i, &self.K[i, 0], -1.0)
            clusters.k = max(clusters.k, k + 1)
            add(clusters, k, i, &self.K[i, 0], 1.0)
            labels[i] = k
            moved[0] += 1
            poll_signals(&self.work, 2 * clusters.n, EXCHANGE_WORK)
        return place
