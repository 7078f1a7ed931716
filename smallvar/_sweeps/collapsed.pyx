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
    cdef double* columns            # d x room, the means in columns
    cdef double* cost               # room: of putting a point into each cluster
    cdef double* mass               # room: weights of the clusters
    cdef Py_ssize_t room            # clusters there is memory for

    cdef load(self):
        """Means of all clusters in columns, so that the distances of a point to all of them are d passes over rows."""
        cdef Py_ssize_t k, room = 2 * self.s.k + 16
        cdef double[:, ::1] columns
        if self.columns_array is None or self.columns_array.shape[1] < self.s.k + 1:
            self.columns_array = np.zeros((self.s.d + 2, room))
        columns = self.columns_array
        self.columns, self.room = &columns[0, 0], columns.shape[1]
        self.cost, self.mass = &columns[self.s.d, 0], &columns[self.s.d + 1, 0]
        self.grow_sums(self.room)
        for k in range(self.s.k):
            self.set_column(k)

    cdef void set_column(self, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t j
        cdef double mass = sums_weight(&self.sums.table, k)
        for j in range(self.s.d):
            self.columns[j * self.room + k] = sums_total(&self.sums.table, k, j) / mass
        self.mass[k] = mass

    def collapse(self, double lam, Py_ssize_t max_clusters):
        """One collapsed sweep (MB13 eq. 8-9): means are those of the present labels at all times.

        Point i leaves its cluster and goes where the objective is lowest. Joining cluster c costs
        w s / (w + s) ||x - m||^2, with s and m the weight and mean of c without i; being alone costs lam. Costs that
        differ by no more than rounding are equal: the lowest index wins, and an old cluster before a new one.

        Returns the points that moved and the clusters opened; ``move_centers`` ends the sweep.
        """
        cdef State* s = &self.s
        cdef Py_ssize_t i, k, n_used, best, own, moved = 0, opened = 0
        cdef double w, least, allowance, size
        cdef double[::1] row_array = np.empty(s.d)
        cdef double* row = &row_array[0]
        cdef bint alone
        if not self.have_sums:
            self.add_up()
        self.load()
        n_used = s.k
        with nogil:
            for i in range(s.n):
                w = weight_of(&s.rows, i)
                if w == 0.0:
                    continue
                self.check_signals(s.k)
                for k in range(s.d):
                    row[k] = value_of(&s.rows, i, k) - s.shift[k]
                own = s.label[i]
                alone = self.sums.table.count[own] == 1.0
                sc_squares(row, s.d, self.columns, self.room, s.k, self.cost)
                least = lam if n_used - alone < max_clusters else HUGE_VAL
                for k in range(s.k):
                    if self.sums.table.count[k] == 0.0 or (alone and k == own):
                        self.cost[k] = HUGE_VAL
                    elif k == own:  # ||x - m|| = ||x - mean|| W / (W - w), W and mean those with i
                        self.cost[k] *= w * (self.mass[k] / (self.mass[k] - w))
                    else:
                        self.cost[k] *= w * (self.mass[k] / (self.mass[k] + w))
                    least = min(least, self.cost[k])
                # a cost c is off by about sqrt(c w) times what its mean is off by
                size = 0.0
                for k in range(s.d):
                    size += row[k] * row[k]
                allowance = least + C_MEAN_ROUNDING * (least + sqrt(least) * sqrt(w * size)) + w * s.rounding
                best = 0
                while best < s.k and not self.cost[best] <= allowance:
                    best += 1
                if best == own or (best == s.k and alone):
                    continue
                if best == s.k:
                    if s.k == self.room:
                        with gil:
                            self.load()
                    s.k += 1
                    n_used += 1
                    opened += 1
                    sums_clear(&self.sums.table, best, s.k)
                moved += 1
                n_used -= alone
                self.move_point(i, <int> own, <int> best)
                if not alone:
                    self.set_column(own)
                self.set_column(best)
                s.label[i] = <int> best
        self.reserve(s.k)
        return moved, opened
