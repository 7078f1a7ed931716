"""Clusters of rows whose columns are of several kinds: collapsed sweeps, and mergers.

The cost of a cluster is the least value of its part of the objective. For a column of numbers that is the weighted
divergence from the mean; for one of codes, with n_v of n members at level v, p_v its overall share, a the pseudo-count
and h(t) = t log t,

    phi = -sum_v h(n_v + a p_v) + h(n + a) + a sum_v p_v log p_v.
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL

from smallvar._sweeps.mixed_rows cimport (
    C_NORMAL, MixedRow, MixedRows, MixedTable, cost_alone, divergence, read_point, times_log, weight_of_point
)
from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport poll_signals, refuse_rows

import numpy as np

cdef enum:
    MIXED_CLUSTERS_WORK = 1 << 24  # terms between two checks for signals

cdef extern from *:
    """
    #define SMALLVAR_MIXED_TIE 1e-9
    """
    # nats for a row of weight 1, and share of a cost: costs that are closer tie. They are sums of terms of some nats.
    const double MIXED_TIE "SMALLVAR_MIXED_TIE"


ctypedef double* DoublePointer


cdef struct MixedStatistics:
    double* weights         # k x p: weight of the members with a number,
    double* total           # k x p: their sum,
    double* count           # k x p: how many these are
    double* level           # k x levels: weight of the members at a level,
    double* level_weights   # k x q: and at any
    double* size            # k: members
    double* phi             # k x q: the costs of codes
    const double* prior     # q: a sum_v p_v log p_v


cdef double joining(
    const MixedTable* table, const MixedStatistics* clusters, const Py_ssize_t* column, const MixedRow* row, double w,
    Py_ssize_t k
) noexcept nogil:
    """By how much the cost of a cluster rises if a row joins it."""
    cdef double cost = 0.0, weight_sum, mean, joint, x, n, n_v, a = table.pseudo_count, share
    cdef Py_ssize_t m, j, at, p = table.p, levels = table.begin[table.q]
    for m in range(row.n_numbers):
        j, x = row.at[m], row.x[m]
        at = k * p + j
        if clusters.count[at] == 0.0:
            continue
        weight_sum = clusters.weights[at]
        mean = clusters.total[at] / weight_sum
        if table.kind[j] == C_NORMAL:
            cost += table.factor[j] * (w * (weight_sum / (weight_sum + w))) * (x - mean) * (x - mean)
        else:
            joint = mean + w / (weight_sum + w) * (x - mean)
            if joint > 0.0:
                cost += table.factor[j] * (
                    w * divergence(table.kind[j], x, joint) + weight_sum * divergence(table.kind[j], mean, joint)
                )
    for m in range(row.n_levels):
        at = row.level[m]
        share, n_v = table.shares[at], clusters.level[k * levels + at]
        n = clusters.level_weights[k * table.q + column[at]]
        cost += times_log(n + w + a) - times_log(n + a)
        cost -= times_log(n_v + w + a * share) - times_log(n_v + a * share)
    return cost


cdef void move_row(
    const MixedTable* table, const MixedStatistics* clusters, const Py_ssize_t* column, const MixedRow* row, double w,
    double sign, Py_ssize_t k
) noexcept nogil:
    """Add a row to a cluster (sign 1), or take it out (-1)."""
    cdef Py_ssize_t m, at, levels = table.begin[table.q]
    for m in range(row.n_numbers):
        at = k * table.p + row.at[m]
        clusters.count[at] += sign
        clusters.weights[at] += sign * w
        clusters.total[at] += sign * w * row.x[m]
        if clusters.count[at] == 0.0:
            clusters.weights[at] = clusters.total[at] = 0.0
    for m in range(row.n_levels):
        at = row.level[m]
        clusters.level[k * levels + at] = max(0.0, clusters.level[k * levels + at] + sign * w)
        at = k * table.q + column[at]
        clusters.level_weights[at] = max(0.0, clusters.level_weights[at] + sign * w)
    clusters.size[k] += sign


cdef double phi_of(
    const MixedTable* table, Py_ssize_t j, const double* levels_a, const double* levels_b, double prior
) noexcept nogil:
    """The cost of the codes of a column, of the members of one cluster, or of two."""
    cdef double n = 0.0, n_v, cost = 0.0, a = table.pseudo_count
    cdef Py_ssize_t v
    for v in range(table.begin[j], table.begin[j + 1]):
        n_v = levels_a[v] if levels_b == NULL else levels_a[v] + levels_b[v]
        n += n_v
        cost -= times_log(n_v + a * table.shares[v])
    return cost + times_log(n + a) + prior


cdef double merging(
    const MixedTable* table, const MixedStatistics* clusters, Py_ssize_t a, Py_ssize_t b
) noexcept nogil:
    """By how much the costs of two clusters rise if they become one."""
    cdef double cost = 0.0, weight_a, weight_b, mean_a, mean_b, joint
    cdef Py_ssize_t j, p = table.p, levels = table.begin[table.q]
    for j in range(p):
        if clusters.count[a * p + j] == 0.0 or clusters.count[b * p + j] == 0.0:
            continue
        weight_a, weight_b = clusters.weights[a * p + j], clusters.weights[b * p + j]
        mean_a, mean_b = clusters.total[a * p + j] / weight_a, clusters.total[b * p + j] / weight_b
        if table.kind[j] == C_NORMAL:
            joint = mean_a - mean_b
            cost += table.factor[j] * (weight_a * (weight_b / (weight_a + weight_b))) * joint * joint
        else:
            joint = mean_a + weight_b / (weight_a + weight_b) * (mean_b - mean_a)
            if joint > 0.0:
                cost += table.factor[j] * weight_a * divergence(table.kind[j], mean_a, joint)
                cost += table.factor[j] * weight_b * divergence(table.kind[j], mean_b, joint)
    for j in range(table.q):
        cost += phi_of(table, j, clusters.level + a * levels, clusters.level + b * levels, clusters.prior[j])
        cost -= clusters.phi[a * table.q + j] + clusters.phi[b * table.q + j]
    return cost


cdef void fill_row(
    const MixedTable* table, const MixedStatistics* clusters, Py_ssize_t a, Py_ssize_t first, Py_ssize_t k,
    double* costs
) noexcept nogil:
    """Costs of merging cluster a with those from ``first`` on that have members."""
    cdef Py_ssize_t b
    for b in range(first, k):
        costs[b] = merging(table, clusters, a, b) if b != a and clusters.size[b] > 0.0 else HUGE_VAL


cdef class MixedClusters:
    """What is known of the clusters of the labels of some rows, for changes of single rows and for mergers.

    weights, total, count : arrays (k, p), the weights of members with a number, their sums, and how many these are
    level : array (k, levels), weights of the members at each level
    size : array (k,), members
    """

    cdef MixedRows rows
    cdef MixedStatistics clusters
    cdef object arrays
    cdef object column
    cdef double[::1] prior
    cdef Py_ssize_t k, capacity, work

    def __init__(self, MixedRows rows, weights, total, count, level, size):
        cdef Py_ssize_t j, v
        begin = np.asarray([rows.table.begin[j] for j in range(rows.table.q + 1)], dtype=np.intp)
        self.rows, self.k, self.capacity = rows, len(size), len(size)
        self.column = np.repeat(np.arange(rows.table.q), np.diff(begin)).astype(np.intp)
        self.prior = np.zeros(rows.table.q + 1)
        level_weights = np.zeros((len(size), rows.table.q))
        for j in range(rows.table.q):
            level_weights[:, j] = level[:, begin[j]:begin[j + 1]].sum(axis=1)
            for v in range(rows.table.begin[j], rows.table.begin[j + 1]):
                self.prior[j] += rows.table.pseudo_count * times_log(rows.table.shares[v])
        self.arrays = [weights, total, count, level, level_weights, size[:, None], np.zeros((len(size), rows.table.q))]
        self.reserve(self.k)

    cdef reserve(self, Py_ssize_t k):
        """Memory for so many clusters."""
        cdef double[:, ::1] array
        cdef DoublePointer[7] at
        cdef int m
        kept = []
        for m in range(7):
            size = self.arrays[m].shape[1]
            flat = np.zeros((1, (k + 1) * size + 1))
            flat[0, : self.k * size] = np.asarray(self.arrays[m])[: self.k].ravel()
            array = flat
            at[m] = &array[0, 0]
            kept.append(flat[0, : (k + 1) * size].reshape(k + 1, size))
        self.arrays, self.capacity = kept, k
        self.clusters = MixedStatistics(at[0], at[1], at[2], at[3], at[4], at[5], at[6], &self.prior[0])

    def collapse(self, double lam, Py_ssize_t cap):
        """One collapsed sweep (MB13 eq. 8-9): each row goes where the objective is lowest, and means move with it.

        Costs that differ by no more than rounding are equal: the lowest index wins, and an old cluster before a new
        one. Returns the points that moved and the clusters opened.
        """
        cdef const MixedTable* table = &self.rows.table
        cdef MixedRow* row = &self.rows.rows[0]
        cdef MixedStatistics* clusters = &self.clusters
        cdef const Py_ssize_t[::1] column_array = np.append(self.column, 0)
        cdef const Py_ssize_t* column = &column_array[0]
        cdef int[::1] labels = self.rows.labels
        cdef double[::1] cost
        cdef Py_ssize_t i, k, best, n_used = 0, moved = 0, opened = 0, assigned
        cdef double w, least, alone
        cdef bint was_alone
        self.reserve(2 * self.k + 16)
        costs = np.empty(self.capacity + 1)
        cost = costs
        for k in range(self.k):
            n_used += clusters.size[k] > 0.0
        for i in range(table.n):
            poll_signals(&self.work, self.k * (table.p + table.q), MIXED_CLUSTERS_WORK)
            if self.k == self.capacity:
                self.reserve(2 * self.k + 16)
                clusters = &self.clusters
                costs = np.empty(self.capacity + 1)
                cost = costs
            with nogil:
                read_point(table, i, row)
                w, assigned = weight_of_point(table, i), labels[i]
                move_row(table, clusters, column, row, w, -1.0, assigned)
                was_alone = clusters.size[assigned] == 0.0
                alone = lam + cost_alone(table, row, w) if n_used - was_alone < cap else HUGE_VAL
                least = alone
                for k in range(self.k):
                    cost[k] = joining(table, clusters, column, row, w, k) if clusters.size[k] > 0.0 else HUGE_VAL
                    least = min(least, cost[k])
                least += MIXED_TIE * (w + least)
                best = 0
                while best < self.k and not cost[best] <= least:
                    best += 1
                if best == self.k and was_alone:
                    best = assigned
                elif best == self.k:
                    self.k += 1
                    opened += 1
                    n_used += 1
                elif was_alone:
                    n_used -= 1
                move_row(table, clusters, column, row, w, 1.0, best)
                if best != assigned:
                    labels[i] = <int> best
                    moved += 1
        return moved, opened

    def merge(self, Py_ssize_t count):
        """Merge the cheapest pair, ``count`` times over.

        Returns the pairs, the second of which goes into the first, as numbered before, and what they cost.
        """
        cdef const MixedTable* table = &self.rows.table
        cdef MixedStatistics* clusters = &self.clusters
        cdef Py_ssize_t k = self.k, a, b, c, m, j, levels = table.begin[table.q], per_pair, first = 0, last
        cdef double[:, ::1] costs = np.full((k, k), np.inf)
        cdef double[::1] least = np.full(k, np.inf)
        cdef Py_ssize_t[::1] partner = np.zeros(k, dtype=np.intp)
        cdef Py_ssize_t[:, ::1] pairs = np.empty((count, 2), dtype=np.intp)
        cdef double[::1] paid = np.empty(count)
        cdef double[::1] fresh = np.empty(k)
        cdef ParallelLoop loop
        per_pair = 4 * table.p + 16 * levels
        for a in range(k):
            for j in range(table.q):
                clusters.phi[a * table.q + j] = phi_of(table, j, clusters.level + a * levels, NULL, clusters.prior[j])
        with nogil:
            while first < k:
                last = min(k, first + max(<Py_ssize_t> self.rows.n_threads, MIXED_CLUSTERS_WORK // (k * per_pair)))
                loop = begin_loop(last - first, self.rows.n_threads if (last - first) * k * per_pair > PAYS else 1)
                for a in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                    begin_chunk(&loop)
                    fill_row(table, clusters, a, a + 1, k, &costs[a, 0])
                end_loop(&loop)
                poll_signals(&self.work, (last - first) * k * per_pair, MIXED_CLUSTERS_WORK)
                first = last
            for a in range(k):
                find_partner(costs[a], a, k, &least[a], &partner[a])
            for m in range(count):
                a = 0
                for c in range(1, k):
                    if least[c] < least[a]:
                        a = c
                if not least[a] < HUGE_VAL:  # NaN and infinite numbers
                    refuse_rows()
                b = partner[a]
                pairs[m, 0], pairs[m, 1], paid[m] = a, b, least[a]
                self.unite(a, b)
                fill_row(table, clusters, a, 0, k, &fresh[0])
                for c in range(k):
                    costs[min(b, c), max(b, c)] = HUGE_VAL
                    if c != a:
                        costs[min(a, c), max(a, c)] = fresh[c]
                for c in range(k):
                    if c < b and partner[c] == b or c < a and partner[c] == a or c == a or c == b:
                        find_partner(costs[c], c, k, &least[c], &partner[c])
                    elif c < a and fresh[c] < least[c]:
                        least[c], partner[c] = fresh[c], a
                poll_signals(&self.work, k * per_pair, MIXED_CLUSTERS_WORK)
        return np.asarray(pairs), np.asarray(paid)

    cdef void unite(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
        """All members of cluster b go to cluster a."""
        cdef const MixedTable* table = &self.rows.table
        cdef Py_ssize_t p = table.p, q = table.q, levels = table.begin[q], j
        cdef MixedStatistics* clusters = &self.clusters
        for j in range(p):
            clusters.weights[a * p + j] += clusters.weights[b * p + j]
            clusters.total[a * p + j] += clusters.total[b * p + j]
            clusters.count[a * p + j] += clusters.count[b * p + j]
        for j in range(levels):
            clusters.level[a * levels + j] += clusters.level[b * levels + j]
        for j in range(q):
            clusters.level_weights[a * q + j] += clusters.level_weights[b * q + j]
            clusters.phi[a * q + j] = phi_of(table, j, clusters.level + a * levels, NULL, clusters.prior[j])
        clusters.size[a] += clusters.size[b]
        clusters.size[b] = 0.0


cdef void find_partner(
    const double[::1] costs, Py_ssize_t a, Py_ssize_t k, double* least, Py_ssize_t* partner
) noexcept nogil:
    """The cluster after a that costs least to merge with it; of equal ones the first."""
    cdef Py_ssize_t b
    least[0], partner[0] = HUGE_VAL, a
    for b in range(a + 1, k):
        if costs[b] < least[0]:
            least[0], partner[0] = costs[b], b
