"""Sweeps over the nodes of a graph, for penalized cuts (Kulis & Jordan 2012, section 5.2).

A graph is given by the links between different nodes, in compressed rows (indptr, indices, weight), symmetric and
positive, and for each node by out, the sum of its links, and size: its degree, self-links included, for the normalized
cut, or the number of nodes that it stands for, for the ratio cut. Both cuts are the sum over clusters of out / size.
A node without links is a cluster of its own and stays it.

Nodes are visited one after the other by one thread: each visit changes what the nodes after it pay.
"""

from libc.math cimport HUGE_VAL

from smallvar._sweeps.rows cimport poll_signals

import numpy as np

cdef enum:
    GRAPH_WORK = 1 << 25  # links read between two checks for signals


cdef struct Cluster:
    double out          # links to the rest of the graph
    double size         # sum of the sizes of its nodes
    double link         # links to the node being visited; 0 between visits
    Py_ssize_t count    # nodes


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

    cdef void attach(self, graph, labels, double lam, double tie, Py_ssize_t capacity):
        cdef unsigned char[::1] raw
        cdef Py_ssize_t width
        self.indptr, self.indices, self.weight, self.out, self.size = graph
        self.label = labels
        self.n = self.out.shape[0]
        self.lam, self.tie = lam, tie
        raw = np.zeros(capacity * sizeof(Cluster), dtype=np.uint8)
        self.buffers = raw
        self.clusters = <Cluster*> &raw[0]
        width = 2 * int(np.diff(graph[0]).max()) + 2  # two clusters a link (BatchSweep), and two more
        self.touched = np.empty(width, dtype=np.int32)
        self.cost = np.empty(width)

    cdef int check_signals(self, Py_ssize_t work) except -1 nogil:
        """Raise KeyboardInterrupt if Ctrl-C was pressed, after some tenths of a second of work."""
        return poll_signals(&self.work, work, GRAPH_WORK)

    cdef int collect(self) except -1 nogil:
        """Add up the clusters, from the labels."""
        cdef Py_ssize_t i, e
        cdef Cluster* assigned
        for i in range(self.n):
            assigned = self.clusters + self.label[i]
            assigned.count += 1
            assigned.size += self.size[i]
            for e in range(self.indptr[i], self.indptr[i + 1]):
                if self.label[self.indices[e]] != self.label[i]:
                    assigned.out += self.weight[e]
            self.check_signals(8 + self.indptr[i + 1] - self.indptr[i])
        return 0

    cdef inline bint takes(self, Py_ssize_t c) noexcept nogil:
        """Whether a node may join cluster c: not if that is a single node without links."""
        return self.clusters[c].count > 1 or self.clusters[c].out > 0

    cdef inline void touch(self, Py_ssize_t c, double link, Py_ssize_t* n_touched) noexcept nogil:
        """Add a link between the node being visited and cluster c."""
        if self.clusters[c].link == 0:  # links are positive: it is not touched yet
            self.touched[n_touched[0]] = <int> c
            n_touched[0] += 1
        self.clusters[c].link += link

    cdef inline Py_ssize_t first_within_tie(
        self, Py_ssize_t n_touched, double best, Py_ssize_t excluded
    ) noexcept nogil:
        """The lowest of the touched clusters, but for one, whose cost ties with the best; -1: there is none."""
        cdef Py_ssize_t m, c, first = -1
        for m in range(n_touched):
            c = self.touched[m]
            if self.cost[m] <= best + self.tie and c != excluded and (first < 0 or c < first):
                first = c
        return first

    cdef inline void end_visit(self, Py_ssize_t n_touched) noexcept nogil:
        """Clear the links to the touched clusters."""
        cdef Py_ssize_t m
        for m in range(n_touched):
            self.clusters[self.touched[m]].link = 0.0

    def objective(self):
        """Cut + lam K of the labels (of a BatchSweep: as they came); sets `cut` and `k`."""
        cdef Py_ssize_t c
        self.k, self.cut = 0, 0.0
        for c in range(self.n):
            if self.clusters[c].count > 0:
                self.k += 1
                if self.clusters[c].out > 0:
                    self.cut += self.clusters[c].out / self.clusters[c].size
        return self.cut + self.lam * self.k


cdef class CutSweep(GraphSweep):
    """Nodes that go, one at a time, where the penalized cut is lowest.

    graph : indptr IN (n + 1,) int64, indices IN (links,) int32, weight IN (links,), out IN (n,), size IN (n,)
    labels : INOUT (n,) int32, in 0..n-1
    lam : penalty of a cluster
    tie : costs that differ by no more are equal
    """

    cdef int[::1] free          # a stack of empty clusters
    cdef Py_ssize_t n_free
    cdef unsigned char[::1] waiting     # nodes that the next `sweep_again` visits
    cdef bint is_modular                # see LinkSweep

    def __init__(self, graph, labels, double lam, double tie):
        cdef Py_ssize_t c
        self.attach(graph, labels, lam, tie, len(labels))
        with nogil:
            self.collect()
        self.free, self.waiting = np.empty(self.n, dtype=np.int32), np.zeros(self.n, dtype=np.uint8)
        for c in range(self.n - 1, -1, -1):
            if self.clusters[c].count == 0:
                self.free[self.n_free] = <int> c
                self.n_free += 1

    cdef inline Py_ssize_t touch_neighbors(self, Py_ssize_t i) noexcept nogil:
        """Add the links of node i to the clusters of its neighbors; returns how many clusters these are."""
        cdef Py_ssize_t e, n_touched = 0
        for e in range(self.indptr[i], self.indptr[i + 1]):
            self.touch(self.label[self.indices[e]], self.weight[e], &n_touched)
        return n_touched

    cdef inline void move(self, Py_ssize_t i, Py_ssize_t target, double rest_out, double rest_size) noexcept nogil:
        """Put node i into cluster `target`; what is left of the one it leaves has these links and this size."""
        cdef Cluster* cluster = self.clusters + self.label[i]
        cluster.count -= 1
        if cluster.count == 0:
            cluster.out = cluster.size = 0.0
            self.free[self.n_free] = self.label[i]
            self.n_free += 1
        else:
            cluster.out, cluster.size = rest_out, rest_size
        cluster = self.clusters + target
        if cluster.count == 0:
            self.n_free -= 1
        cluster.out += self.out[i] - 2.0 * cluster.link
        cluster.size += self.size[i]
        cluster.count += 1
        self.label[i] = <int> target

    cdef inline double joining_cost(
        self, double out, double size, double node_out, double node_size, double link
    ) noexcept nogil:
        """What it costs that a node, with these links to it, joins a cluster that has this out and size without it."""
        if self.is_modular:
            return self.lam * node_size * size - link
        # (out + node_out - 2 link) / (size + node_size) - out / size
        return (node_out - 2.0 * link - node_size * (out / size)) / (size + node_size)

    cdef bint visit(self, Py_ssize_t i) noexcept nogil:
        """Move node i to where it costs least, if that is less than where it is.

        It may go to a cluster that it has links to, or to one of its own. Costs are changes of the objective from where
        the node is in no cluster at all, or for a LinkSweep alone.
        """
        cdef Py_ssize_t e, m, c, n_touched = self.touch_neighbors(i), assigned = self.label[i], target
        cdef Cluster* cluster = self.clusters + assigned
        cdef double out = self.out[i], size = self.size[i], rest_out = 0.0, rest_size = 0.0, best = HUGE_VAL
        cdef double alone = 0.0 if self.is_modular else out / size + self.lam, stay = alone
        cdef bint is_single = cluster.count == 1, moves
        if not is_single:
            rest_out, rest_size = cluster.out - out + 2.0 * cluster.link, cluster.size - size
            stay = self.joining_cost(rest_out, rest_size, out, size, cluster.link)
        for m in range(n_touched):
            c = self.touched[m]
            cluster = self.clusters + c
            self.cost[m] = HUGE_VAL
            if c != assigned:
                self.cost[m] = self.joining_cost(cluster.out, cluster.size, out, size, cluster.link)
            best = min(best, self.cost[m])
        target = self.first_within_tie(n_touched, best, assigned)
        # at a tie a node stays where it is, and else goes to an old cluster before a new one
        if not is_single and alone < best - self.tie:
            best = alone
            target = self.free[self.n_free - 1]
        moves = target >= 0 and best < stay - self.tie
        if moves:
            self.move(i, target, rest_out, rest_size)
        if self.is_modular:  # else all nodes wait at all times
            self.waiting[i] = False
            for e in range(self.indptr[i], self.indptr[i + 1] if moves else self.indptr[i]):
                if self.label[self.indices[e]] != target:
                    self.waiting[self.indices[e]] = True
        self.end_visit(n_touched)
        return moves

    def sweep(self, order):
        """Visit every node, in this order (IN, intp) or as they are numbered; returns how many moved."""
        cdef Py_ssize_t i
        for i in range(self.n):
            self.waiting[i] = self.indptr[i] < self.indptr[i + 1]
        return self.sweep_again(order)

    def sweep_again(self, order):
        """A sweep after the first one.

        A LinkSweep visits the nodes of which a neighbor in another cluster moved since their last visit. Where none
        moves, a whole sweep may still move a few: sizes have changed, too.
        """
        cdef const Py_ssize_t[::1] visits = np.arange(self.n) if order is None else order
        cdef Py_ssize_t j, i, moved = 0
        with nogil:
            for j in range(self.n):
                i = visits[j]
                if self.waiting[i]:
                    moved += self.visit(i)
                    self.check_signals(8 + self.indptr[i + 1] - self.indptr[i])
        return moved


cdef class LinkSweep(CutSweep):
    """Nodes that go, one at a time, where links exceed what degrees alone would make most: modularity.

    Minimizes sum_c (out_c + lam size_c^2) / 2, with out and size as in CutSweep: for lam = gamma / (sum of sizes) and
    degrees as sizes that is to maximize the modularity of resolution gamma. Costs of a node in a cluster are changes of
    this sum from the node alone: lam size_i size_c - link. Arguments as in CutSweep.
    """

    def __init__(self, graph, labels, double lam, double tie):
        CutSweep.__init__(self, graph, labels, lam, tie)
        self.is_modular = True

    def objective(self):
        """The sum to be minimized, of the labels; sets `k`."""
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

    cdef inline double height(self, Py_ssize_t c) noexcept nogil:
        """(shift v_c - out_c) / v_c^2: the part of a node's cost that depends on cluster c alone, over v_i."""
        cdef Cluster* cluster = self.clusters + c
        return (self.shift - cluster.out / cluster.size) / cluster.size

    def sweep(self, order):
        """One sweep from the labels as they came; returns how many nodes moved."""
        cdef const Py_ssize_t[::1] visits = np.arange(self.n) if order is None else order
        cdef Py_ssize_t j, i, c, moved = 0, next_one = self.n, lowest = -1
        cdef double least = HUGE_VAL
        with nogil:
            for c in range(self.n):
                if self.takes(c) and self.height(c) < least:
                    lowest, least = c, self.height(c)
            for j in range(self.n):
                i = visits[j]
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
        """The cheapest cluster of node i, the lowest at a tie; -1: a new one is cheaper.

        Of clusters without links to the node only the one of the lowest height can be the cheapest.
        """
        cdef Py_ssize_t e, m, c, n_touched = 0, assigned = self.label[i], target
        cdef double size = self.size[i], diagonal = self.shift * size - self.out[i], best = HUGE_VAL
        cdef Cluster* cluster
        for e in range(self.indptr[i], self.indptr[i + 1]):
            self.touch(self.label[self.indices[e]], self.weight[e], &n_touched)
            if self.opened[self.indices[e]] >= 0:
                self.touch(self.opened[self.indices[e]], self.weight[e], &n_touched)
        # links stand for the entries B_ij, and the diagonal one for B_ii
        self.touch(assigned, max(diagonal, 0.0), &n_touched)
        if lowest >= 0 and self.clusters[lowest].link == 0:
            self.touched[n_touched] = <int> lowest
            n_touched += 1
        for m in range(n_touched):
            c = self.touched[m]
            cluster = self.clusters + c
            self.cost[m] = diagonal / size - 2.0 * cluster.link / cluster.size + size * self.height(c)
            best = min(best, self.cost[m])
        target = self.first_within_tie(n_touched, best, -1)
        self.end_visit(n_touched)
        if best > self.lam + self.shift + self.tie:  # a node that is alone has a cluster of its own
            target = assigned if self.clusters[assigned].count == 1 else -1
        return target


# ----------------------------------------------------------------------------------------------------------------------
# Between the levels of a multilevel descent


def number_labels(const int[::1] labels, order):
    """Labels (in 0..n-1) numbered by first appearance in this order, and how many there are."""
    cdef Py_ssize_t j, i, n = labels.shape[0]
    cdef int k = 0
    cdef int[::1] number = np.full(n, -1, dtype=np.int32), out = np.empty(n, dtype=np.int32)
    cdef const Py_ssize_t[::1] visits = np.arange(n) if order is None else order
    with nogil:
        for j in range(n):
            i = visits[j]
            if number[labels[i]] < 0:
                number[labels[i]] = k
                k += 1
            out[i] = number[labels[i]]
    return np.asarray(out), k


def contract(graph, labels, Py_ssize_t n_clusters):
    """The graph whose nodes are the clusters 0..K-1; links within one are left out."""
    cdef const long long[::1] indptr = graph[0]
    cdef const int[::1] indices = graph[1]
    cdef const double[::1] weight = graph[2]
    cdef const double[::1] old_size = graph[4]
    cdef const int[::1] label = labels
    cdef Py_ssize_t c, d, i, j = 0, e, n = label.shape[0], n_links = 0, work = 0
    cdef const Py_ssize_t[::1] members = labels.argsort(kind="stable")
    cdef long long[::1] new_indptr = np.zeros(n_clusters + 1, dtype=np.int64)
    cdef int[::1] new_indices = np.empty(indices.shape[0], dtype=np.int32)
    cdef double[::1] new_weight = np.empty(indices.shape[0])
    # link: from cluster c to each other one, 0 where there is none
    cdef double[::1] link = np.zeros(n_clusters), out = np.zeros(n_clusters), size = np.zeros(n_clusters)
    with nogil:
        for c in range(n_clusters):
            while j < n and label[members[j]] == c:
                i = members[j]
                j += 1
                size[c] += old_size[i]
                for e in range(indptr[i], indptr[i + 1]):
                    d = label[indices[e]]
                    if d == c:
                        continue
                    if link[d] == 0:
                        new_indices[n_links] = <int> d
                        n_links += 1
                    link[d] += weight[e]
                poll_signals(&work, indptr[i + 1] - indptr[i], GRAPH_WORK)
            new_indptr[c + 1] = n_links
            for e in range(new_indptr[c], n_links):
                d = new_indices[e]
                new_weight[e] = link[d]
                out[c] += link[d]
                link[d] = 0.0
    return (
        np.asarray(new_indptr), np.asarray(new_indices)[:n_links].copy(), np.asarray(new_weight)[:n_links].copy(),
        np.asarray(out), np.asarray(size),
    )
