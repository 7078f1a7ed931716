"""Sweeps over the nodes of a graph, for penalized cuts.

A graph is given by the links between different nodes, in compressed rows (indptr, indices, weight), symmetric and
positive, and for each node by out, the sum of its links, and size: its degree, self-links included, for the normalized
cut, or the number of nodes that it stands for, for the ratio cut. Both cuts are the sum over clusters of out / size.
A node without links is a cluster of its own and stays it.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport HUGE_VAL, fabs

import numpy as np

cdef enum:
    WORK = 1 << 25      # links read between two looks at the signals
    BLOCK = 16          # clusters in a leaf of the search tree
    SLOPES = 12         # of either sign, each a quarter of the one before


cdef struct Cluster:
    double out          # links to the rest of the graph
    double size
    double link         # links to the node being visited; 0 between visits
    Py_ssize_t count    # nodes


cdef inline double joined(double out, double size, double o, double v, double link) noexcept nogil:
    """Change of out / size when a node (o, v) that has these links to the cluster joins it."""
    # (out + o - 2 link) / (size + v) - out / size
    return (o - 2.0 * link - v * (out / size)) / (size + v)


cdef class Sweep:
    """A graph and the labels of its nodes."""

    cdef const long long[::1] indptr
    cdef const int[::1] indices
    cdef const double[::1] weight
    cdef const double[::1] out
    cdef const double[::1] size
    cdef int[::1] label
    cdef Py_ssize_t n
    cdef Py_ssize_t work
    cdef object buffers
    cdef Cluster* clusters
    cdef int[::1] touched
    cdef double[::1] cost
    cdef double lam
    cdef double tie
    cdef readonly double cut
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

    cdef int look(self, Py_ssize_t work) except -1 nogil:
        """Raise KeyboardInterrupt if Ctrl-C was pressed; looks every few tenths of a second."""
        self.work += work
        if self.work > WORK:
            self.work = 0
            with gil:
                PyErr_CheckSignals()
        return 0

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
            self.look(8 + self.indptr[i + 1] - self.indptr[i])
        return 0

    cdef inline bint takes(self, Py_ssize_t c) noexcept nogil:
        """Whether a node may join it: not a single node without links."""
        return self.clusters[c].count > 1 or self.clusters[c].out > 0

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


cdef class CutSweep(Sweep):
    """Nodes that go, one at a time, where the penalized cut is lowest.

    graph : indptr IN (n + 1,) int64, indices IN (links,) int32, weight IN (links,), out IN (n,), size IN (n,)
    labels : INOUT (n,) int32, in 0..n-1
    lam : penalty of a cluster
    tie : costs that differ by no more are equal
    everywhere : a node may go to any cluster, not only to those that it has links to
    """

    cdef bint everywhere
    cdef int[::1] free          # a stack of empty clusters
    cdef Py_ssize_t n_free
    # a tree over blocks of clusters, to find one without links to the node; below tree node t are 2 t and 2 t + 1
    cdef Py_ssize_t leaves
    cdef Py_ssize_t s           # the slope in use
    cdef double[::1] slope      # ascending
    cdef double[:, ::1] top     # largest out / size - slope * size below a tree node; -inf: no cluster
    cdef double[::1] low        # smallest and largest size
    cdef double[::1] high

    def __init__(self, graph, labels, double lam, double tie, bint everywhere):
        cdef Py_ssize_t c
        self.attach(graph, labels, lam, tie, len(labels))
        self.everywhere = everywhere
        with nogil:
            self.collect()
        self.free = np.empty(self.n, dtype=np.int32)
        for c in range(self.n - 1, -1, -1):
            if self.clusters[c].count == 0:
                self.free[self.n_free] = <int> c
                self.n_free += 1
        if everywhere:
            self.plant()

    cdef void plant(self):
        cdef Py_ssize_t t
        ratio = np.divide(self.out, self.size, out=np.zeros(self.n), where=np.asarray(self.out) > 0)
        steps = (ratio.max() or 1.0) / np.min(self.size) * 0.25 ** np.arange(SLOPES)
        self.slope = np.concatenate([-steps, [0.0], steps[::-1]])
        self.leaves = 1
        while self.leaves * BLOCK < self.n:
            self.leaves *= 2
        self.top = np.full((2 * self.leaves, self.slope.shape[0]), -np.inf)
        self.low = np.full(2 * self.leaves, np.inf)
        self.high = np.zeros(2 * self.leaves)
        with nogil:
            for t in range(self.leaves, 2 * self.leaves):
                self.set_leaf(t)
            for t in range(self.leaves - 1, 0, -1):
                self.set_parent(t)

    cdef void set_leaf(self, Py_ssize_t t) noexcept nogil:
        cdef Py_ssize_t c, s, slopes = 2 * SLOPES + 1
        cdef double ratio, size
        cdef double* top = &self.top[t, 0]
        cdef const double* slope = &self.slope[0]
        self.low[t], self.high[t] = HUGE_VAL, 0.0
        for s in range(slopes):
            top[s] = -HUGE_VAL
        for c in range((t - self.leaves) * BLOCK, min(self.n, (t - self.leaves + 1) * BLOCK)):
            if self.takes(c):
                size = self.clusters[c].size
                ratio = self.clusters[c].out / size
                self.low[t], self.high[t] = min(self.low[t], size), max(self.high[t], size)
                for s in range(slopes):
                    top[s] = max(top[s], ratio - slope[s] * size)

    cdef bint set_parent(self, Py_ssize_t t) noexcept nogil:
        cdef Py_ssize_t s
        cdef double value = min(self.low[2 * t], self.low[2 * t + 1])
        cdef bint changed = value != self.low[t]
        cdef double* top = &self.top[t, 0]
        cdef const double* left = &self.top[2 * t, 0]
        cdef const double* right = &self.top[2 * t + 1, 0]
        self.low[t] = value
        value = max(self.high[2 * t], self.high[2 * t + 1])
        changed |= value != self.high[t]
        self.high[t] = value
        for s in range(2 * SLOPES + 1):
            value = max(left[s], right[s])
            changed |= value != top[s]
            top[s] = value
        return changed

    cdef void update(self, Py_ssize_t c) noexcept nogil:
        cdef Py_ssize_t t = self.leaves + c // BLOCK
        self.set_leaf(t)
        t //= 2
        while t > 0 and self.set_parent(t):
            t //= 2

    cdef inline bint beaten(self, Py_ssize_t t, double o, double v, double best) noexcept nogil:
        """Whether a cluster below tree node t may cost less than `best`, links left out of account."""
        # It does if out / size - beta size > o / v + beta v, where beta = -best / v. The largest left side is convex
        # in beta: below its chord between two slopes, and falling at least as fast as the smallest size.
        cdef double beta = -best / v, need = o / v - best, bound, chord
        cdef Py_ssize_t s = self.s
        cdef const double* top = &self.top[t, s]
        bound = top[0] - (beta - self.slope[s]) * (self.low[t] if beta > self.slope[s] else self.high[t])
        if s < 2 * SLOPES and beta > self.slope[s]:
            chord = top[0] + (top[1] - top[0]) * ((beta - self.slope[s]) / (self.slope[s + 1] - self.slope[s]))
            bound = min(bound, chord)
        return bound > need - 1e-13 * (fabs(need) + o / v)

    cdef inline void choose_slope(self, double v, double best) noexcept nogil:
        self.s = 2 * SLOPES
        while self.s > 0 and self.slope[self.s] > -best / v:
            self.s -= 1

    cdef Py_ssize_t search(self, double o, double v, Py_ssize_t own, double* best, bint first) noexcept nogil:
        """The cheapest cluster below `best`, which becomes its cost, or the first one; -1 if there is none."""
        cdef Py_ssize_t stack[128]
        cdef Py_ssize_t t, c, found = -1, depth = 1
        cdef double cost
        cdef Cluster* k
        stack[0] = 1
        self.choose_slope(v, best[0])
        while depth > 0:
            depth -= 1
            t = stack[depth]
            if not self.beaten(t, o, v, best[0]):
                continue
            if t < self.leaves:
                # the one that promises more comes first
                c = not first and self.top[2 * t + 1, self.s] > self.top[2 * t, self.s]
                stack[depth], stack[depth + 1] = 2 * t + 1 - c, 2 * t + c
                depth += 2
                continue
            for c in range((t - self.leaves) * BLOCK, min(self.n, (t - self.leaves + 1) * BLOCK)):
                if c != own and self.takes(c):
                    k = self.clusters + c
                    cost = joined(k.out, k.size, o, v, 0.0)
                    if cost < best[0]:
                        best[0], found = cost, c
                        if first:
                            return found
                        self.choose_slope(v, best[0])
        return found

    cdef Py_ssize_t elsewhere(self, double o, double v, Py_ssize_t own, double* best) noexcept nogil:
        """The cluster, links left out of account, that beats `best`, which becomes its cost; -1 if there is none."""
        cdef double least = best[0] - self.tie
        cdef Py_ssize_t c = self.search(o, v, own, &least, False)
        if c >= 0:
            best[0] = least
            least += self.tie
            c = self.search(o, v, own, &least, True)
        return c

    cdef bint visit(self, Py_ssize_t i) noexcept nogil:
        """Move node i to where it costs least, if that is less than where it is."""
        cdef Cluster* clusters = self.clusters
        cdef Cluster* k
        cdef Py_ssize_t e, t, c, n_touched = 0, own = self.label[i], target = -1
        cdef double o = self.out[i], v = self.size[i]
        cdef double alone = o / v + self.lam, stay, best = HUGE_VAL, own_out, own_size
        for e in range(self.indptr[i], self.indptr[i + 1]):
            c = self.label[self.indices[e]]
            k = clusters + c
            if k.link == 0:
                self.touched[n_touched] = <int> c
                n_touched += 1
            k.link += self.weight[e]
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
        if self.everywhere:
            best = min(best, stay)
            c = self.elsewhere(o, v, own, &best)
            target = c if c >= 0 else target
        if clusters[own].count > 1 and alone < best - self.tie:
            best = alone
            target = self.free[self.n_free - 1]
        best = best if target >= 0 and best < stay - self.tie else HUGE_VAL
        if best < HUGE_VAL:
            k = clusters + own
            k.count -= 1
            if k.count == 0:
                k.out = k.size = 0.0
                self.free[self.n_free] = <int> own
                self.n_free += 1
            else:
                k.out, k.size = own_out, own_size
            k = clusters + target
            if k.count == 0:
                self.n_free -= 1
            k.out += o - 2.0 * k.link
            k.size += v
            k.count += 1
            self.label[i] = <int> target
        for t in range(n_touched):
            clusters[self.touched[t]].link = 0.0
        if best < HUGE_VAL and self.everywhere:
            self.update(own)
            self.update(target)
        return best < HUGE_VAL

    def sweep(self, order):
        """Visit every node, in this order (IN, intp) or as they are numbered; returns how many moved."""
        cdef const Py_ssize_t[::1] places
        cdef bint ordered = order is not None
        cdef Py_ssize_t j, i, moved = 0
        if ordered:
            places = order
        with nogil:
            for j in range(self.n):
                i = places[j] if ordered else j
                if self.indptr[i] < self.indptr[i + 1]:
                    moved += self.visit(i)
                self.look(8 + self.indptr[i + 1] - self.indptr[i])
        return moved

    def objective(self):
        """Cut + lam K of the labels; sets `cut` and `k`."""
        return self.total(self.n)


cdef class BatchSweep(Sweep):
    """Weighted kernel DP-means with the kernel that makes it a penalized cut.

    Clusters stay what they are during a sweep, but for those that a node opens. With B the matrix shift V - L, V the
    sizes and L the graph's Laplacian, node i in cluster c costs

        B_ii / v_i - 2 sum_{j in c} B_ij / v_c + v_i (shift v_c - out_c) / v_c^2,

    and lam + shift opens a cluster. Arguments as in CutSweep; `labels` are replaced by those of the sweep.
    """

    cdef double shift
    cdef int[::1] fresh
    cdef int[::1] founded

    def __init__(self, graph, labels, double lam, double tie, double shift):
        self.attach(graph, labels, lam, tie, 2 * len(labels))
        self.shift = shift
        with nogil:
            self.collect()
        self.fresh = np.empty(self.n, dtype=np.int32)
        self.founded = np.full(self.n, -1, dtype=np.int32)

    def objective(self):
        """Cut + lam K of the labels as they came; sets `cut` and `k`."""
        return self.total(self.n)

    cdef inline double height(self, Py_ssize_t c) noexcept nogil:
        cdef Cluster* k = self.clusters + c
        return (self.shift - k.out / k.size) / k.size

    def sweep(self, order):
        """One sweep from the labels as they came; returns how many nodes moved."""
        cdef const Py_ssize_t[::1] places
        cdef bint ordered = order is not None
        cdef Py_ssize_t j, i, c, moved = 0, next_one = self.n, lowest = -1
        cdef double least = HUGE_VAL
        if ordered:
            places = order
        with nogil:
            for c in range(self.n):
                if self.takes(c) and self.height(c) < least:
                    lowest, least = c, self.height(c)
            for j in range(self.n):
                i = places[j] if ordered else j
                self.fresh[i] = self.label[i]
                if self.indptr[i] < self.indptr[i + 1]:
                    c = self.choose(i, lowest)
                    if c < 0:
                        c = next_one
                        next_one += 1
                        self.clusters[c].out, self.clusters[c].size = self.out[i], self.size[i]
                        self.founded[i] = <int> c
                        if self.height(c) < least:
                            lowest, least = c, self.height(c)
                    self.fresh[i] = <int> c
                    moved += c != self.label[i]
                self.look(8 + self.indptr[i + 1] - self.indptr[i])
            for i in range(self.n):
                self.label[i] = self.fresh[i]
        return moved

    cdef inline void touch(self, Py_ssize_t c, double link, Py_ssize_t* n_touched) noexcept nogil:
        if self.clusters[c].link == 0:
            self.touched[n_touched[0]] = <int> c
            n_touched[0] += 1
        self.clusters[c].link += link

    cdef Py_ssize_t choose(self, Py_ssize_t i, Py_ssize_t lowest) noexcept nogil:
        """The cheapest cluster of node i, its own where that is a tie; -1: a new one is cheaper."""
        cdef Py_ssize_t e, t, c, n_touched = 0, own = self.label[i], target = -1
        cdef double v = self.size[i], diagonal = self.shift * v - self.out[i], best = HUGE_VAL, stay = HUGE_VAL
        cdef Cluster* k
        for e in range(self.indptr[i], self.indptr[i + 1]):
            self.touch(self.label[self.indices[e]], self.weight[e], &n_touched)
            if self.founded[self.indices[e]] >= 0:
                self.touch(self.founded[self.indices[e]], self.weight[e], &n_touched)
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
# Between the levels


def number_labels(const int[::1] labels, order):
    """Labels (in 0..n-1) numbered by first appearance in this order, and how many there are."""
    cdef Py_ssize_t j, i, n = labels.shape[0]
    cdef int k = 0
    cdef int[::1] number = np.full(n, -1, dtype=np.int32), out = np.empty(n, dtype=np.int32)
    cdef const Py_ssize_t[::1] places
    cdef bint ordered = order is not None
    if ordered:
        places = order
    with nogil:
        for j in range(n):
            i = places[j] if ordered else j
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
            work += indptr[i + 1] - indptr[i]
            if work > WORK:
                work = 0
                with gil:
                    PyErr_CheckSignals()
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
                work += indptr[i + 1] - indptr[i]
            new_indptr[c + 1] = at
            for e in range(new_indptr[c], at):
                d = new_indices[e]
                new_weight[e] = link[d]
                out[c] += link[d]
                link[d] = 0.0
            if work > WORK:
                work = 0
                with gil:
                    PyErr_CheckSignals()
    return (
        np.asarray(new_indptr), np.asarray(new_indices)[:at].copy(), np.asarray(new_weight)[:at].copy(),
        np.asarray(out), np.asarray(size),
    )
