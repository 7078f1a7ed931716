"""Collapsed sweeps of DP-means (Broderick, Kulis & Jordan 2013, MB13): means move with each point."""

from libc.math cimport HUGE_VAL, sqrt

from smallvar._sweeps.dpmeans cimport DPSweep
from smallvar._sweeps.rows cimport value_of, weight_of
from smallvar._sweeps.state cimport State
from smallvar._sweeps.sums cimport sums_clear, sums_quotient, sums_weight

import numpy as np

cdef extern from "_exact.h" nogil:
    void sc_squares(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, double*)

cdef extern from *:
    """
    #define SMALLVAR_MEAN_ROUNDING 1e-12
    """
    # of the length of a row: how far a mean may be off, and costs that follow from it; costs that are closer tie
    const double C_MEAN_ROUNDING "SMALLVAR_MEAN_ROUNDING"

MEAN_ROUNDING = C_MEAN_ROUNDING  # the same number for Python


cdef class CollapsedSweep(DPSweep):
    """A sweep is ``collapse``, and ``move_centers`` ends it."""

    cdef object columns_array
    cdef double* columns            # d x capacity, the means in columns
    cdef double* cost               # capacity: of putting a point into each cluster
    cdef double* weight             # capacity: weights of the clusters
    cdef Py_ssize_t columns_capacity  # clusters there is memory for

    cdef load(self):
        """Means of all clusters in columns, so that the distances of a point to all of them are d passes over rows."""
        cdef Py_ssize_t k, capacity = 2 * self.state.centers.n + 16
        cdef double[:, ::1] columns
        if self.columns_array is None or self.columns_array.shape[1] < self.state.centers.n + 1:
            self.columns_array = np.zeros((self.state.points.d + 2, capacity))
        columns = self.columns_array
        self.columns, self.columns_capacity = &columns[0, 0], columns.shape[1]
        self.cost, self.weight = &columns[self.state.points.d, 0], &columns[self.state.points.d + 1, 0]
        self.reserve_sums(self.columns_capacity)
        for k in range(self.state.centers.n):
            self.set_column(k)

    cdef void set_column(self, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t j
        cdef double weight = sums_weight(&self.sums.table, k)
        for j in range(self.state.points.d):
            self.columns[j * self.columns_capacity + k] = sums_quotient(&self.sums.table, k, j, weight)
        self.weight[k] = weight

    def collapse(self, double lam, Py_ssize_t max_clusters):
        """One collapsed sweep (MB13 eq. 8-9): means are those of the present labels at all times.

        Point i leaves its cluster and goes where the objective is lowest. Joining cluster c costs
        w s / (w + s) ||x - m||^2, with s and m the weight and mean of c without i; being alone costs lam. Costs that
        differ by no more than rounding are equal: the lowest index wins, and an old cluster before a new one.

        Returns the points that moved and the clusters opened; ``move_centers`` ends the sweep.
        """
        cdef State* state = self.state
        cdef Py_ssize_t i, best, n_used, moved = 0, opened = 0
        cdef double[::1] row = np.empty(state.points.d)
        cdef bint alone, may_open
        if not self.have_sums:
            self.add_all()
        self.load()
        n_used = state.centers.n  # clusters that have members
        with nogil:
            for i in range(state.points.n):
                if weight_of(&state.points.rows, i) == 0.0:
                    continue
                self.check_signals(state.centers.n)
                alone = self.sums.table.count[state.points.labels[i]] == 1.0
                may_open = n_used - alone < max_clusters
                best = self.cheapest(i, lam if may_open else HUGE_VAL, alone, &row[0])
                if best == state.points.labels[i] or (best == state.centers.n and alone):
                    continue
                if best == state.centers.n:
                    if best == self.columns_capacity:
                        with gil:
                            self.load()
                    state.centers.n += 1
                    n_used += 1
                    opened += 1
                    sums_clear(&self.sums.table, best, state.centers.n)
                moved += 1
                n_used -= alone
                self.move(i, best, alone)
        self.reserve(state.centers.n)
        return moved, opened

    cdef Py_ssize_t cheapest(self, Py_ssize_t i, double lam, bint alone, double* row) noexcept nogil:
        """The cluster that point i costs least in, or the number of clusters if that is one of its own.

        lam : what a new cluster costs;  alone : whether the point is the only one in its cluster;  row : d, scratch
        """
        cdef const State* state = self.state
        cdef Py_ssize_t k, j, n = state.centers.n, label = state.points.labels[i], best = 0
        cdef double w = weight_of(&state.points.rows, i), least = lam, square = 0.0, allowance
        for j in range(state.points.d):
            row[j] = value_of(&state.points.rows, i, j) - state.frame.origin[j]
            square += row[j] * row[j]
        sc_squares(row, state.points.d, self.columns, self.columns_capacity, n, self.cost)
        for k in range(n):
            if self.sums.table.count[k] == 0.0 or (alone and k == label):
                self.cost[k] = HUGE_VAL
            elif k == label:  # ||x - m|| = ||x - mean|| W / (W - w), W and mean those with i
                self.cost[k] *= w * (self.weight[k] / (self.weight[k] - w))
            else:
                self.cost[k] *= w * (self.weight[k] / (self.weight[k] + w))
            least = min(least, self.cost[k])
        # a cost c is off by about sqrt(c w) times what its mean is off by
        allowance = least + C_MEAN_ROUNDING * (least + sqrt(least) * sqrt(w * square)) + w * state.frame.rounding
        while best < n and not self.cost[best] <= allowance:
            best += 1
        return best

    cdef void move(self, Py_ssize_t i, Py_ssize_t joined, bint alone) noexcept nogil:
        """Point i goes to another cluster; the means of both follow, but where it was alone."""
        cdef int left = self.state.points.labels[i]
        self.move_point(i, left, <int> joined)
        if not alone:
            self.set_column(left)
        self.set_column(joined)
        self.state.points.labels[i] = <int> joined
