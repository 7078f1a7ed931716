"""Collapsed sweeps of DP-means (Broderick, Kulis & Jordan 2013, MB13): means move with each point."""

from libc.math cimport HUGE_VAL, sqrt

from smallvar._sweeps.dpmeans cimport DPSweep
from smallvar._sweeps.rows cimport value_of, weight_of
from smallvar._sweeps.state cimport State
from smallvar._sweeps.sums cimport sums_clear, sums_total, sums_weight

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
    cdef double* weight               # capacity: weights of the clusters
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
            self.columns[j * self.columns_capacity + k] = sums_total(&self.sums.table, k, j) / weight
        self.weight[k] = weight

    def collapse(self, double lam, Py_ssize_t max_clusters):
        """One collapsed sweep (MB13 eq. 8-9): means are those of the present labels at all times.

        Point i leaves its cluster and goes where the objective is lowest. Joining cluster c costs
        w s / (w + s) ||x - m||^2, with s and m the weight and mean of c without i; being alone costs lam. Costs that
        differ by no more than rounding are equal: the lowest index wins, and an old cluster before a new one.

        Returns the points that moved and the clusters opened; ``move_centers`` ends the sweep.
        """
        cdef State* state = &self.state
        cdef Py_ssize_t i, k, n_used, best, own, moved = 0, opened = 0
        cdef double w, least, allowance, size
        cdef double[::1] row_array = np.empty(state.points.d)
        cdef double* row = &row_array[0]
        cdef bint alone
        if not self.have_sums:
            self.add_all()
        self.load()
        n_used = state.centers.n
        with nogil:
            for i in range(state.points.n):
                w = weight_of(&state.points.rows, i)
                if w == 0.0:
                    continue
                self.check_signals(state.centers.n)
                for k in range(state.points.d):
                    row[k] = value_of(&state.points.rows, i, k) - state.frame.origin[k]
                own = state.points.labels[i]
                alone = self.sums.table.count[own] == 1.0
                sc_squares(row, state.points.d, self.columns, self.columns_capacity, state.centers.n, self.cost)
                least = lam if n_used - alone < max_clusters else HUGE_VAL
                for k in range(state.centers.n):
                    if self.sums.table.count[k] == 0.0 or (alone and k == own):
                        self.cost[k] = HUGE_VAL
                    elif k == own:  # ||x - m|| = ||x - mean|| W / (W - w), W and mean those with i
                        self.cost[k] *= w * (self.weight[k] / (self.weight[k] - w))
                    else:
                        self.cost[k] *= w * (self.weight[k] / (self.weight[k] + w))
                    least = min(least, self.cost[k])
                # a cost c is off by about sqrt(c w) times what its mean is off by
                size = 0.0
                for k in range(state.points.d):
                    size += row[k] * row[k]
                allowance = least + C_MEAN_ROUNDING * (least + sqrt(least) * sqrt(w * size)) + w * state.frame.tolerance
                best = 0
                while best < state.centers.n and not self.cost[best] <= allowance:
                    best += 1
                if best == own or (best == state.centers.n and alone):
                    continue
                if best == state.centers.n:
                    if state.centers.n == self.columns_capacity:
                        with gil:
                            self.load()
                    state.centers.n += 1
                    n_used += 1
                    opened += 1
                    sums_clear(&self.sums.table, best, state.centers.n)
                moved += 1
                n_used -= alone
                self.move_point(i, <int> own, <int> best)
                if not alone:
                    self.set_column(own)
                self.set_column(best)
                state.points.labels[i] = <int> best
        self.reserve(state.centers.n)
        return moved, opened
