"""Rows whose columns are of several kinds, packed; and clusters of them: collapsed sweeps, and mergers.

Numbers are a matrix, and codes are another one. The cost of a cluster is the least value of its part of the objective.
For a column of numbers that is the weighted divergence from the mean; for one of codes, with n_v of n members at level
v, p_v its overall share, a the pseudo-count and h(t) = t log t,

    phi = -sum_v h(n_v + a p_v) + h(n + a) + a sum_v p_v log p_v.
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL

from smallvar._sweeps.pairs cimport Pairs
from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport poll_signals

import numpy as np

cdef enum:
    MIXED_CLUSTERS_WORK = 1 << 24  # terms between two checks for signals

cdef extern from *:
    """
    #define SMALLVAR_MIXED_TIE 1e-9
    """
    # nats for a row of weight 1, and share of a cost: costs that are closer tie. They are sums of terms of some nats.
    const double MIXED_TIE "SMALLVAR_MIXED_TIE"

# ---- rows ------------------------------------------------------------------------------------------------------------


cdef inline void add_exactly(double* high, double* low, double value) noexcept nogil:
    """high + low += value: the rounding of ``high`` goes to ``low`` (Knuth's TwoSum)."""
    cdef double total = high[0] + value, part = total - high[0]
    low[0] += (high[0] - (total - part)) + (value - part)
    high[0] = total


cdef inline Py_ssize_t sums_width(const MixedTable* table) noexcept nogil:
    return 5 * table.p + 2 * table.begin[table.q] + 3


cdef void add_row(
    const MixedTable* table, const MixedRow* row, double w, double count, double* sums
) noexcept nogil:
    """Add a row to the sums of its cluster, or take it out (w and count negative).

    These are: w x (high p, low p), w (high p, low p), members (p), weights of the levels (high, low), and weight (high,
    low) and members of the cluster.
    """
    cdef Py_ssize_t m, j, p = table.p, levels = table.begin[table.q]
    cdef double* cell = sums
    # the layout of a cluster's numbers is that of the docstring, part after part
    for m in range(row.n_numbers):
        j = row.at[m]
        add_exactly(cell + j, cell + p + j, w * row.x[m])
        add_exactly(cell + 2 * p + j, cell + 3 * p + j, w)
        cell[4 * p + j] += count
    cell += 5 * p
    for m in range(row.n_levels):
        j = row.level[m]
        add_exactly(cell + j, cell + levels + j, w)
    cell += 2 * levels
    add_exactly(cell, cell + 1, w)
    cell[2] += count


cdef void add_part(
    const MixedTable* table, Py_ssize_t start, Py_ssize_t stop, MixedRow* row, const int* labels, double* sums
) noexcept nogil:
    """Add points to the sums of their clusters."""
    cdef Py_ssize_t i, width = sums_width(table)
    for i in range(start, stop):
        read_point(table, i, row)
        add_row(table, row, weight_of_point(table, i), 1.0, sums + labels[i] * width)


cdef void unite_parts(double* sums, const double* part, Py_ssize_t k, const MixedTable* table) noexcept nogil:
    """Add the sums of a part to those of the parts before."""
    cdef Py_ssize_t c, j, p = table.p, levels = table.begin[table.q], width = sums_width(table)
    cdef double* to
    cdef const double* from_part
    for c in range(k):
        to, from_part = sums + c * width, part + c * width
        for j in range(p):
            add_exactly(to + j, to + p + j, from_part[j])
            to[p + j] += from_part[p + j]
            add_exactly(to + 2 * p + j, to + 3 * p + j, from_part[2 * p + j])
            to[3 * p + j] += from_part[3 * p + j]
            to[4 * p + j] += from_part[4 * p + j]
        to, from_part = to + 5 * p, from_part + 5 * p
        for j in range(levels):
            add_exactly(to + j, to + levels + j, from_part[j])
            to[levels + j] += from_part[levels + j]
        to, from_part = to + 2 * levels, from_part + 2 * levels
        add_exactly(to, to + 1, from_part[0])
        to[1] += from_part[1]
        to[2] += from_part[2]


cdef class MixedRows:
    """Packed rows and their labels.

    numbers : IN array (m, p), float32 or float64, C order;  codes : IN array (m, q), int8, int16 or int32, C order
    weight : IN array (n,) float64 > 0 in the order of visit, or None
    order : IN array (n,) intp, the rows that are visited; None: all, as given
    kind : IN array (p,) int32;  begin : IN array (q + 1,) intp
    place : IN array (p,);  shares : IN array (levels,)
    """

    def __init__(
        self, numbers, codes, const double[::1] weight, const Py_ssize_t[::1] order, const int[::1] kind,
        const Py_ssize_t[::1] begin, const double[::1] place, const double[::1] shares, double pseudo_count,
        int n_threads,
    ):
        cdef Py_ssize_t p = numbers.shape[1], q = codes.shape[1], n = len(numbers) if order is None else len(order)
        cdef double[::1] factor = np.ones(max(1, p))
        for array in (numbers, codes):
            if not (array.flags.c_contiguous and array.flags.aligned and array.ndim == 2):
                raise ValueError("numbers and codes must be aligned matrices in C order")
        if (
            numbers.dtype not in (np.float32, np.float64) or codes.dtype not in (np.int8, np.int16, np.int32)
            or len(codes) != len(numbers) or kind.shape[0] != p or place.shape[0] != p or begin.shape[0] != q + 1
            or shares.shape[0] != begin[q] or (weight is not None and weight.shape[0] != n)
        ):
            raise ValueError("numbers, codes and what is said of them must match")
        if order is not None and n and not (np.min(order) >= 0 and np.max(order) < len(numbers)):
            raise ValueError("order must be rows")
        if q and len(codes) and not (np.max(codes, axis=0) < np.diff(begin)).all():
            raise ValueError("codes must be levels")
        self.labels = np.zeros(n, dtype=np.int32)
        self.n_threads = max(1, n_threads)
        self.table.numbers, self.table.codes = <void*> <size_t> numbers.ctypes.data, <void*> <size_t> codes.ctypes.data
        self.table.single, self.table.code_size = numbers.dtype == np.float32, codes.dtype.itemsize
        self.table.p, self.table.q, self.table.n, self.table.pseudo_count = p, q, n, pseudo_count
        self.table.order = &order[0] if order is not None and n else NULL
        self.table.weight = &weight[0] if weight is not None and n else NULL
        self.table.kind = &kind[0] if p else NULL
        self.table.place = &place[0] if p else NULL
        self.table.begin = &begin[0]
        self.table.shares = &shares[0] if begin[q] else NULL
        self.table.factor = &factor[0]
        low, high = (
            of_two.reduce(numbers, axis=0, initial=end).astype(np.float64)
            for of_two, end in ((np.fmin, np.inf), (np.fmax, -np.inf))
        )
        self.arrays = {
            "rows": (numbers, codes, weight, order), "facts": (kind, begin, place, shares),
            "factor": np.asarray(factor), "range": (low, high),
        }
        self.make_scratch()

    cdef make_scratch(self):
        """Memory for a decoded row of each thread."""
        cdef Py_ssize_t p = self.table.p, q = self.table.q, t, size = sizeof(MixedRow)
        cdef double[:, ::1] x = np.empty((self.n_threads, 2 * p + 8))
        cdef Py_ssize_t[:, ::1] at = np.empty((self.n_threads, p + q + 8), dtype=np.intp)
        cdef unsigned char[::1] rows = np.zeros(self.n_threads * size, dtype=np.uint8)
        self.rows = <MixedRow*> &rows[0]
        for t in range(self.n_threads):
            self.rows[t].x, self.rows[t].shifted = &x[t, 0], &x[t, p]
            self.rows[t].at, self.rows[t].level = &at[t, 0], &at[t, p]
        self.memory = x, at, rows

    def sums(self, Py_ssize_t k):
        """Sums of the clusters of the labels, (k, width), and their layout; see ``Sums`` in _mixed."""
        cdef const MixedTable* table = &self.table
        cdef Py_ssize_t width = sums_width(table), n = table.n, parts, size, part, n_chunks
        cdef const int[::1] labels = self.labels
        cdef ParallelLoop loop
        parts = max(<Py_ssize_t> 1, min(<Py_ssize_t> SUM_CHUNKS, SUM_NUMBERS // (k * width)))
        size = max(<Py_ssize_t> SUM_ROWS, (n + parts - 1) // parts)
        n_chunks = max(<Py_ssize_t> 1, (n + size - 1) // size)
        cdef double[:, ::1] sums = np.zeros((n_chunks, k * width))
        if n and not (np.min(labels) >= 0 and np.max(labels) < k):
            raise ValueError(f"labels must be >= 0 and < {k}")
        if n == 0:
            return np.asarray(sums).reshape(k, width)
        with nogil:
            loop = begin_loop(n_chunks, self.n_threads if 8 * n * (table.p + table.q) > PAYS else 1)
            for part in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                add_part(
                    table, part * size, min(n, (part + 1) * size), &self.rows[begin_chunk(&loop)], &labels[0],
                    &sums[part, 0],
                )
            end_loop(&loop)
            for part in range(1, n_chunks):
                unite_parts(&sums[0, 0], &sums[part, 0], k, table)
        poll_signals(&self.work, 1, 0)
        return np.asarray(sums)[0].reshape(k, width)

    def move_sums(self, double[:, ::1] sums, const int[::1] before):
        """Make the sums of the clusters of the labels ``before`` those of the labels (INOUT); rows have no weights.

        Then all but w x are whole numbers, of which nothing is left where there are no members.
        """
        cdef const MixedTable* table = &self.table
        cdef MixedRow* row = &self.rows[0]
        cdef const int[::1] labels = self.labels
        cdef Py_ssize_t i, j, m, p = table.p, k = sums.shape[0]
        cdef double* own
        if before.shape[0] != table.n or table.weight != NULL or sums.shape[1] != sums_width(table):
            raise ValueError("sums and labels must be those of these rows, without weights")
        if table.n and not (min(np.min(labels), np.min(before)) >= 0 and max(np.max(labels), np.max(before)) < k):
            raise ValueError(f"labels must be >= 0 and < {k}")
        with nogil:
            for i in range(table.n):
                if labels[i] == before[i]:
                    continue
                read_point(table, i, row)
                own = &sums[before[i], 0]
                add_row(table, row, -1.0, -1.0, own)
                for m in range(row.n_numbers):
                    j = row.at[m]
                    if own[4 * p + j] == 0.0:
                        own[j] = own[p + j] = 0.0
                add_row(table, row, 1.0, 1.0, &sums[labels[i], 0])
        poll_signals(&self.work, 1, 0)

    @property
    def factor(self):
        """What divergences of the columns of numbers are multiplied by, (p,): not a copy."""
        return self.arrays["factor"][: self.table.p]


# ---- clusters --------------------------------------------------------------------------------------------------------


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


cdef class MixedClusters(Pairs):
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
    cdef Py_ssize_t capacity

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
        """Merge the cheapest pair, ``count`` times over: see Pairs."""
        cdef Py_ssize_t a
        for a in range(self.k):
            self.set_phi(a)
        self.begin(self.k, 4 * self.rows.table.p + 16 * self.rows.table.begin[self.rows.table.q], self.rows.n_threads)
        return Pairs.merge(self, count)

    cdef double cost(self, Py_ssize_t a, Py_ssize_t b, double most) noexcept nogil:
        cdef const MixedTable* table = &self.rows.table
        cdef const MixedStatistics* clusters = &self.clusters
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

    cdef void set_phi(self, Py_ssize_t a) noexcept nogil:
        """Compute the costs of codes of a cluster."""
        cdef const MixedTable* table = &self.rows.table
        cdef const double* level = self.clusters.level + a * table.begin[table.q]
        cdef Py_ssize_t j
        for j in range(table.q):
            self.clusters.phi[a * table.q + j] = phi_of(table, j, level, NULL, self.clusters.prior[j])

    cdef void unite(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
        cdef const MixedTable* table = &self.rows.table
        cdef Py_ssize_t p = table.p, levels = table.begin[table.q], j
        cdef MixedStatistics* clusters = &self.clusters
        for j in range(p):
            clusters.weights[a * p + j] += clusters.weights[b * p + j]
            clusters.total[a * p + j] += clusters.total[b * p + j]
            clusters.count[a * p + j] += clusters.count[b * p + j]
        for j in range(levels):
            clusters.level[a * levels + j] += clusters.level[b * levels + j]
        self.set_phi(a)
        clusters.size[a] += clusters.size[b]
        clusters.size[b] = 0.0
