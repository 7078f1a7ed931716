"""Mergers of the cheapest pair of clusters, by any cost of a pair.

Each cluster has a partner, of those after it the one that is cheapest to merge with, the first at a tie; the cheapest
pair is a cluster and its partner. A cluster whose partner was merged, or has changed, keeps the old cost as a bound,
and searches again once that is the least of all. (Ward's costs never fall by a merger, which merge.pyx makes use of.)
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL

from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport poll_signals, refuse_rows

import numpy as np

cdef enum:
    PAIRS_WORK = 1 << 26    # multiply-adds between two checks for signals


cdef class Pairs:
    """Clusters, and the partner of each: a class for each kind of cost has ``cost`` and ``unite``."""

    cdef begin(self, Py_ssize_t k, Py_ssize_t per_pair, int n_threads):
        """Memory for k clusters without partners."""
        self.k, self.per_pair, self.n_threads = k, per_pair, n_threads
        self.least, self.partner = np.full(k, np.inf), np.arange(k)
        self.united = np.zeros(k, dtype=np.intp)
        self.stale, self.gone = np.zeros(k, dtype=np.uint8), np.zeros(k, dtype=np.uint8)

    cdef double cost(self, Py_ssize_t a, Py_ssize_t b, double most) noexcept nogil:
        """The cost of merging two clusters, the latest union first; where it is above ``most``, any number that is."""
        return HUGE_VAL

    cdef void unite(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
        """Make cluster a the union of both."""

    cdef const double* bound_costs(self, Py_ssize_t a, Py_ssize_t first, int thread) noexcept nogil:
        """Lower bounds, or NaN, of the costs of cluster a with those from ``first`` on, at their numbers; or NULL."""
        return NULL

    def merge(self, Py_ssize_t count):
        """Merge the cheapest pair, ``count`` times over; of equal ones the first.

        Returns the pairs a < b, (count, 2), as numbered before, and what they cost, (count,). Unions have the number a.
        """
        cdef Py_ssize_t a, b, c, m, first = 0, last, per_cluster = self.k * self.per_pair
        cdef Py_ssize_t[:, ::1] pairs = np.empty((count, 2), dtype=np.intp)
        cdef double[::1] costs = np.empty(count)
        cdef const double* bounds
        cdef ParallelLoop loop
        if count >= self.k:
            raise ValueError(f"count must be < {self.k}, got {count}")
        with nogil:
            while first < self.k:
                last = min(self.k, first + max(<Py_ssize_t> self.n_threads, PAIRS_WORK // per_cluster))
                loop = begin_loop(last - first, self.n_threads if (last - first) * per_cluster > PAYS else 1)
                for a in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                    self.find_partner(a, self.bound_costs(a, a, begin_chunk(&loop)))
                end_loop(&loop)
                poll_signals(&self.work, (last - first) * per_cluster, PAIRS_WORK)
                first = last
            for m in range(count):
                a = self.first_of_cheapest()
                b = self.partner[a]
                pairs[m, 0], pairs[m, 1], costs[m] = a, b, self.least[a]
                self.unite(a, b)
                self.united[a] = m + 1
                self.remove(b)
                bounds = self.bound_costs(a, 0, 0)
                self.find_partner(a, bounds)
                for c in range(a):
                    self.stale[c] |= self.partner[c] == a and not self.gone[c]
                    if not self.gone[c] and (bounds == NULL or not bounds[c] > self.least[c]):
                        self.consider(c, a)
                poll_signals(&self.work, 2 * per_cluster, PAIRS_WORK)
        return np.asarray(pairs), np.asarray(costs)

    cdef void consider(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
        """Make b > a the partner of a if it is cheaper, or as cheap and of a lower number.

        If ``least`` is only a bound, others may be as cheap.
        """
        cdef double cost
        if self.united[b] > self.united[a]:
            cost = self.cost(b, a, self.least[a])
        else:
            cost = self.cost(a, b, self.least[a])
        if not cost >= self.least[a] or (cost == self.least[a] and b < self.partner[a] and not self.stale[a]):
            # NaN comes before all others, so that it is seen
            self.partner[a], self.least[a], self.stale[a] = b, cost if cost == cost else -HUGE_VAL, False

    cdef void find_partner(self, Py_ssize_t a, const double* bounds) noexcept nogil:
        """Find the partner of cluster a among those after it, by lower bounds of its costs, if there are any."""
        cdef Py_ssize_t b, first = a
        self.partner[a], self.least[a], self.stale[a] = a, HUGE_VAL, False
        if bounds != NULL:
            for b in range(a + 1, self.k):
                if not self.gone[b] and (first == a or bounds[b] < bounds[first]):
                    first = b
            if first > a:   # so that few of the others have to be compared
                self.consider(a, first)
        for b in range(a + 1, self.k):
            if not self.gone[b] and b != first and (bounds == NULL or not bounds[b] > self.least[a]):
                self.consider(a, b)

    cdef void remove(self, Py_ssize_t b) noexcept nogil:
        """Take cluster b out: it is no partner of any."""
        cdef Py_ssize_t c
        self.gone[b], self.stale[b], self.least[b] = True, False, HUGE_VAL
        for c in range(b):
            self.stale[c] |= self.partner[c] == b and not self.gone[c]  # other costs are not below ``least``

    cdef Py_ssize_t first_of_cheapest(self) except -1 nogil:
        """The first cluster of a cheapest pair; an error if its cost is not finite."""
        cdef Py_ssize_t a, best = 0
        while True:
            for a in range(self.k):
                if self.least[a] < self.least[best]:
                    best = a
            if not self.stale[best]:
                break
            self.find_partner(best, self.bound_costs(best, best, 0))
            best = 0
        if not -HUGE_VAL < self.least[best] < HUGE_VAL:
            refuse_rows()
        return best


cdef class PairTable(Pairs):
    """Clusters whose costs are computed elsewhere, in a table.

    The table has them as numbered at first; ``used`` are the numbers of those still there.
    """

    cdef double[:, ::1] costs
    cdef object used

    def __init__(self, Py_ssize_t k):
        self.begin(k, 1, 1)
        self.costs, self.used = np.empty((k, k)), np.arange(k)

    cdef double cost(self, Py_ssize_t a, Py_ssize_t b, double most) noexcept nogil:
        return self.costs[a, b]

    def keep(self, kept):
        """Take out all clusters but those."""
        for b in np.delete(self.used, kept):
            self.remove(b)
        self.used = self.used[kept]

    def cheapest(self, a, b, const double[::1] costs):
        """The cheapest pair, of equal ones the first, with new costs of the pairs a < b, (m,)."""
        cdef const Py_ssize_t[::1] first = self.used[a], second = self.used[b]
        cdef Py_ssize_t i, best
        for i in range(costs.shape[0]):
            self.costs[first[i], second[i]] = costs[i]
            self.stale[first[i]] |= self.partner[first[i]] == second[i]
        for i in range(costs.shape[0]):
            self.consider(first[i], second[i])
        best = self.first_of_cheapest()
        return tuple(np.searchsorted(self.used, (best, self.partner[best])).tolist())
