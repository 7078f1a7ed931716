"""Sweeps over the nodes of a graph, for penalized cuts (Kulis & Jordan 2012, section 5.2).

A graph is given by the links between different nodes, in compressed rows (indptr, indices, weight), symmetric and
positive, and for each node by out, the sum of its links, and size: its degree, self-links included, for the normalized
cut, or the number of nodes that it stands for, for the ratio cut. Both cuts are the sum over clusters of out / size.
A node without links is a cluster of its own and stays it.
"""

from libc.math cimport HUGE_VAL

from smallvar._sweeps.rows cimport poll_signals

import numpy as np

cdef enum:
    WORK = 1 << 25      # links read between two checks for signals


cdef struct Cluster:
    double out          # links to the rest of the graph
    double size         # sum of the sizes of its nodes
    double link         # links to the node being visited; 0 between visits
    Py_ssize_t count    # nodes


cdef inline double joined(double out, double size, double o, double v, double link) noexcept nogil:
    """Change of out / size of a cluster when a node of out o and size v, with these links to it, joins."""
    # (out + o - 2 link) / (size + v) - out / size
    return (o - 2.0 * link - v * (out / size)) / (size + v)


cdef class GraphSweep:
    """A graph and the labels of its nodes."""

    cdef const long long[::1] indptr
    cdef const int[::1] indices
    cdef const double[::1] weight
    cdef const double[::1] out
    cdef const double[::1] size
    cdef int[::1] label
    cdef Py_ssize_t n                   # number of nodes
    cdef Py_ssize_t work                # links read since the last check for signals
    cdef object buffers                 # keeps clusters alive
    cdef Cluster* clusters
    cdef int[::1] touched               # clusters that the node being visited may go to
    cdef double[::1] cost               # and their costs
    cdef double lam                     # penalty of a cluster
    cdef double tie                     # costs that differ by no more are equal
    cdef readonly double cut            # of the labels at the last ``objective``
    cdef readonly Py_ssize_t k          # number of clusters

    cdef void attach(self, graph, labels, double lam, double tie, Py_ssize_t slots):
        cdef unsigned char[::1] raw
        cdef Py_ssize_t width
        self.indptr, self.indices, self.weight, self.out, self.size = graph
        self.label = labels
        self.n = self.out.shape[0]
        self.lam, self.tie = lam, tie
        raw = np.zeros(slots * sizeof(Cluster), dtype=np.uint8)
        self.buffers = raw
        self.clusters = <Cluster*> &raw[0]
        width = 2 * int(np.diff(graph[0]).max()) + 2
        self.touched = np.empty(width, dtype=np.int32)
        self.cost = np.empty(width)

    cdef int check_signals(self, Py_ssize_t work) except -1 nogil:
        """Raise KeyboardInterrupt if Ctrl-C was pressed, after some tenths of a second of work."""
        return poll_signals(&self.work, work, WORK)

    cdef int collect(self) except -1 nogil:
        """What the clusters are, from the labels."""
        cdef Py_ssize_t i, e
        cdef Cluster* own
        for i in range(self.n):
            own = self.clusters + self.label[i]
            own.count += 1
            own.size += self.size[i]
            for e in range(self.indptr[i], self.indptr[i + 1]):
                if self.label[self.indices[e]] != self.label[i]:
                    own.out += self.weight[e]
            self.check_signals(8 + self.indptr[i + 1] - self.indptr[i])
        return 0

    cdef inline bint takes(self, Py_ssize_t c) noexcept nogil:
        """Whether a node may join cluster c: not if that is a single node without links."""
        return self.clusters[c].count > 1 or self.clusters[c].out > 0

    cdef inline void touch(self, Py_ssize_t c, double link, Py_ssize_t* n_touched) noexcept nogil:
        """Add a link between the node being visited and cluster c."""
        if self.clusters[c].link == 0:
            self.touched[n_touched[0]] = <int> c
            n_touched[0] += 1
        self.clusters[c].link += link

    cdef double total(self, Py_ssize_t slots) noexcept nogil:
        cdef Py_ssize_t c, k = 0
        cdef double cut = 0.0
        for c in range(slots):
            if self.clusters[c].count > 0:
                k += 1
                if self.clusters[c].out > 0:
                    cut += self.clusters[c].out / self.clusters[c].size
        self.k, self.cut = k, cut
        return cut + self.lam * k


cdef class CutSweep(GraphSweep):
    """Nodes that go, one at a time, where the penalized cut is lowest.

    graph : indptr IN (n + 1,) int64, indices IN (links,) int32, weight IN (links,), out IN (n,), size IN (n,)
    labels : INOUT (n,) int32, in 0..n-1
    lam : penalty of a cluster
    tie : costs that differ by no more are equal
    """

    cdef int[::1] free          # a stack of empty clusters
    cdef Py_ssize_t n_free

    def __init__(self, graph, labels, double lam, double tie):
        cdef Py_ssize_t c
        self.attach(graph, labels, lam, tie, len(labels))
        with nogil:
            self.collect()
        self.free = np.empty(self.n, dtype=np.int32)
        for c in range(self.n - 1, -1, -1):
            if self.clusters[c].count == 0:
                self.free[self.n_free] = <int> c
                self.n_free += 1

    cdef inline void move(self, Py_ssize_t i, Py_ssize_t target, double rest_out, double rest_size) noexcept nogil:
        """Put node i into cluster `target`; what is left of its own has links `rest_out` and size `rest_size`."""
        cdef Cluster* k = self.clusters + self.label[i]
        k.count -= 1
        if k.count == 0:
            k.out = k.size = 0.0
            self.free[self.n_free] = self.label[i]
            self.n_free += 1
        else:
            k.out, k.size = rest_out, rest_size
        k = self.clusters + target
        if k.count == 0:
            self.n_free -= 1
        k.out += self.out[i] - 2.0 * k.link
        k.size += self.size[i]
        k.count += 1
        self.label[i] = <int> target

    cdef bint visit(self, Py_ssize_t i) noexcept nogil:
        """Move node i to where it costs least, if that is less than where it is.

        It may go to a cluster that it has links to, or to one of its own.
        """
        cdef Cluster* clusters = self.clusters
        cdef Cluster* k
        cdef Py_ssize_t e, t, c, n_touched = 0, own = self.label[i], target = -1
        cdef double o = self.out[i], v = self.size[i]
        cdef double alone = o / v + self.lam, stay, best = HUGE_VAL, own_out, own_size
        cdef bint moves
        for e in range(self.indptr[i], self.indptr[i + 1]):
            self.touch(self.label[self.indices[e]], self.weight[e], &n_touched)
        k = clusters + own
        if k.count == 1:
            own_out = own_size = 0.0
            stay = alone
        else:
            own_out, own_size = k.out - o + 2.0 * k.link, k.size - v
            stay = joined(own_out, own_size, o, v, k.link)
        for t in range(n_touched):
            c = self.touched[t]
            k = clusters + c
            self.cost[t] = HUGE_VAL if c == own else joined(k.out, k.size, o, v, k.link)
            best = min(best, self.cost[t])
        for t in range(n_touched):
            c = self.touched[t]
            if self.cost[t] <= best + self.tie and c != own and (target < 0 or c < target):
                target = c
        if clusters[own].count > 1 and alone < best - self.tie:
            best = alone
            target = self.free[self.n_free - 1]
        moves = target >= 0 and best < stay - self.tie
        if moves:
            self.move(i, target, own_out, own_size)
        for t in range(n_touched):
            clusters[self.touched[t]].link = 0.0
        return moves

    def sweep(self, order):
        """Visit every node, in this order (IN, intp) or as they are numbered; returns how many moved."""
        cdef const Py_ssize_t[::1] visits
        cdef bint ordered = order is not None
        cdef Py_ssize_t j, i, moved = 0
        if ordered:
            visits = order
        with nogil:
            for j in range(self.n):
                i = visits[j] if ordered else j
                if self.indptr[i] < self.indptr[i + 1]:
                    moved += self.visit(i)
                self.check_signals(8 + self.indptr[i + 1] - self.indptr[i])
        return moved

    def objective(self):
        """Cut + lam K of the labels; sets `cut` and `k`."""
        return self.total(self.n)


cdef class LinkSweep(CutSweep):
    """Nodes that go, one at a time, where links exceed what degrees alone would make most: modularity.

    Minimizes sum_c (out_c + lam size_c^2) / 2, with out and size as in CutSweep: for lam = gamma / (sum of sizes) and
    degrees as sizes that is to maximize the modularity of resolution gamma. Arguments as in CutSweep.
    """

    cdef bint visit(self, Py_ssize_t i) noexcept nogil:
        """Move node i to where it costs least, if that is less than where it is."""
        cdef Cluster* clusters = self.clusters
        cdef Cluster* k
        cdef Py_ssize_t e, t, c, n_touched = 0, own = self.label[i], target = -1
        cdef double o = self.out[i], v = self.size[i], price = self.lam * v, stay, best = HUGE_VAL
        cdef bint moves
        for e in range(self.indptr[i], self.indptr[i + 1]):
            self.touch(self.label[self.indices[e]], self.weight[e], &n_touched)
        k = clusters + own
        stay = price * (k.size - v) - k.link if k.count > 1 else 0.0
        for t in range(n_touched):
            c = self.touched[t]
            k = clusters + c
            self.cost[t] = HUGE_VAL if c == own else price * k.size - k.link
            best = min(best, self.cost[t])
        for t in range(n_touched):
            c = self.touched[t]
            if self.cost[t] <= best + self.tie and c != own and (target < 0 or c < target):
                target = c
        if clusters[own].count > 1 and 0.0 < best - self.tie:
            best = 0.0
            target = self.free[self.n_free - 1]
        moves = target >= 0 and best < stay - self.tie
        if moves:
            k = clusters + own
            self.move(i, target, k.out + (2.0 * k.link - o), k.size - v)
        for t in range(n_touched):
            clusters[self.touched[t]].link = 0.0
        return moves

    def objective(self):
        """The sum of the labels; sets `k`."""
        cdef Py_ssize_t c
        cdef double out = 0.0, square = 0.0
        self.k = 0
        for c in range(self.n):
            if self.clusters[c].count > 0:
                self.k += 1
                out += self.clusters[c].out
                square += self.clusters[c].size * self.clusters[c].size
        return (out + self.lam * square) / 2.0


cdef class BatchSweep(GraphSweep):
    """Weighted kernel DP-means with the kernel that makes it a penalized cut (KJ12, Theorem 5.3).

    Out and size of clusters stay what they are during a sweep; clusters that nodes open are added to them. With B the
    matrix shift V - L, V the sizes and L the graph's Laplacian, node i in cluster c costs

        B_ii / v_i - 2 sum_{j in c} B_ij / v_c + v_i (shift v_c - out_c) / v_c^2,

    and lam + shift opens a cluster. Arguments as in CutSweep; `labels` are replaced by those of the sweep.
    """

    cdef double shift           # s, KJ12's sigma
    cdef int[::1] new_label
    cdef int[::1] opened        # the cluster that each node opened in this sweep, or -1

    def __init__(self, graph, labels, double lam, double tie, double shift):
        self.attach(graph, labels, lam, tie, 2 * len(labels))
        self.shift = shift
        with nogil:
            self.collect()
        self.new_label = np.empty(self.n, dtype=np.int32)
        self.opened = np.full(self.n, -1, dtype=np.int32)

    def objective(self):
        """Cut + lam K of the labels as they came; sets `cut` and `k`."""
        return self.total(self.n)

    cdef inline double height(self, Py_ssize_t c) noexcept nogil:
        """(shift v_c - out_c) / v_c^2: the part of a node's cost that depends on cluster c alone, over v_i."""
        cdef Cluster* k = self.clusters + c
        return (self.shift - k.out / k.size) / k.size

    def sweep(self, order):
        """One sweep from the labels as they came; returns how many nodes moved."""
        cdef const Py_ssize_t[::1] visits
        cdef bint ordered = order is not None
        cdef Py_ssize_t j, i, c, moved = 0, next_one = self.n, lowest = -1
        cdef double least = HUGE_VAL
        if ordered:
            visits = order
        with nogil:
            for c in range(self.n):
                if self.takes(c) and self.height(c) < least:
                    lowest, least = c, self.height(c)
            for j in range(self.n):
                i = visits[j] if ordered else j
                self.new_label[i] = self.label[i]
                if self.indptr[i] < self.indptr[i + 1]:
                    c = self.choose(i, lowest)
                    if c < 0:
                        c = next_one
                        next_one += 1
                        self.clusters[c].out, self.clusters[c].size = self.out[i], self.size[i]
                        self.opened[i] = <int> c
                        if self.height(c) < least:
                            lowest, least = c, self.height(c)
                    self.new_label[i] = <int> c
                    moved += c != self.label[i]
                self.check_signals(8 + self.indptr[i + 1] - self.indptr[i])
            for i in range(self.n):
                self.label[i] = self.new_label[i]
        return moved

    cdef Py_ssize_t choose(self, Py_ssize_t i, Py_ssize_t lowest) noexcept nogil:
        """The cheapest cluster of node i, its own where that is a tie; -1: a new one is cheaper."""
        cdef Py_ssize_t e, t, c, n_touched = 0, own = self.label[i], target = -1
        cdef double v = self.size[i], diagonal = self.shift * v - self.out[i], best = HUGE_VAL, stay = HUGE_VAL
        cdef Cluster* k
        for e in range(self.indptr[i], self.indptr[i + 1]):
            self.touch(self.label[self.indices[e]], self.weight[e], &n_touched)
            if self.opened[self.indices[e]] >= 0:
                self.touch(self.opened[self.indices[e]], self.weight[e], &n_touched)
        self.touch(own, max(diagonal, 0.0), &n_touched)
        if lowest >= 0 and self.clusters[lowest].link == 0:
            self.touched[n_touched] = <int> lowest
            n_touched += 1
        for t in range(n_touched):
            c = self.touched[t]
            k = self.clusters + c
            self.cost[t] = diagonal / v - 2.0 * k.link / k.size + v * self.height(c)
            best = min(best, self.cost[t])
            if c == own:
                stay = self.cost[t]
        for t in range(n_touched):
            c = self.touched[t]
            if self.cost[t] <= best + self.tie and (target < 0 or c < target):
                target = c
            self.clusters[c].link = 0.0
        if stay <= best + self.tie:
            target = own
        if best > self.lam + self.shift + self.tie and self.clusters[own].count > 1:
            target = -1
        return target


# ----------------------------------------------------------------------------------------------------------------------
# Between the levels of a multilevel descent


def number_labels(const int[::1] labels, order):
    """Labels (in 0..n-1) numbered by first appearance in this order, and how many there are."""
    cdef Py_ssize_t j, i, n = labels.shape[0]
    cdef int k = 0
    cdef int[::1] number = np.full(n, -1, dtype=np.int32), out = np.empty(n, dtype=np.int32)
    cdef const Py_ssize_t[::1] visits
    cdef bint ordered = order is not None
    if ordered:
        visits = order
    with nogil:
        for j in range(n):
            i = visits[j] if ordered else j
            if number[labels[i]] < 0:
                number[labels[i]] = k
                k += 1
            out[i] = number[labels[i]]
    return np.asarray(out), k


def contract(graph, labels, Py_ssize_t n_clusters):
    """The graph whose nodes are the clusters 0..K-1 (none empty); links within one are left out."""
    cdef const long long[::1] indptr = graph[0]
    cdef const int[::1] indices = graph[1]
    cdef const double[::1] weight = graph[2]
    cdef const double[::1] old_size = graph[4]
    cdef const int[::1] label = labels
    cdef Py_ssize_t n = label.shape[0], c, d, i, j, e, at = 0, work = 0
    cdef const Py_ssize_t[::1] members = np.argsort(labels, kind="stable")
    cdef const Py_ssize_t[::1] first = np.searchsorted(labels[members], np.arange(n_clusters + 1))
    cdef long long[::1] new_indptr = np.zeros(n_clusters + 1, dtype=np.int64)
    cdef Py_ssize_t room = 0
    cdef int[::1] new_indices
    cdef double[::1] new_weight
    cdef double[::1] link = np.zeros(n_clusters), out = np.zeros(n_clusters), size = np.zeros(n_clusters)
    with nogil:
        for i in range(n):
            for e in range(indptr[i], indptr[i + 1]):
                room += label[indices[e]] != label[i]
            poll_signals(&work, indptr[i + 1] - indptr[i], WORK)
    new_indices, new_weight = np.empty(room, dtype=np.int32), np.empty(room)
    with nogil:
        for c in range(n_clusters):
            for j in range(first[c], first[c + 1]):
                i = members[j]
                size[c] += old_size[i]
                for e in range(indptr[i], indptr[i + 1]):
                    d = label[indices[e]]
                    if d == c:
                        continue
                    if link[d] == 0:
                        new_indices[at] = <int> d
                        at += 1
                    link[d] += weight[e]
                poll_signals(&work, indptr[i + 1] - indptr[i], WORK)
            new_indptr[c + 1] = at
            for e in range(new_indptr[c], at):
                d = new_indices[e]
                new_weight[e] = link[d]
                out[c] += link[d]
                link[d] = 0.0
    return (
        np.asarray(new_indptr), np.asarray(new_indices)[:at].copy(), np.asarray(new_weight)[:at].copy(),
        np.asarray(out), np.asarray(size),
    )
