"""The sweep of DP-means, for the sweeps that build on it. See dpmeans.pyx."""

from smallvar._sweeps.means cimport MeansSweep
from smallvar._sweeps.state cimport State

cdef float penalty_limit(const State* state, double lam) noexcept nogil

cdef class DPSweep(MeansSweep):
    cdef Py_ssize_t step            # points of a stretch, whose nearest known centers are found in parallel

    cdef Py_ssize_t open_in_order(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t max_clusters) except -1 nogil
    cdef check_bounds(self)
    cdef void record_opened(self, Py_ssize_t first_new) noexcept nogil
    cdef void update_new_center_distances(self, Py_ssize_t first_new) noexcept nogil
    cdef void join_or_open(self, Py_ssize_t i, Py_ssize_t first_new, Py_ssize_t* opened_at) noexcept nogil
    cdef bint is_exactly_nearer(self, Py_ssize_t i, Py_ssize_t k, Py_ssize_t other) noexcept nogil
    cdef void open_at(self, Py_ssize_t i) noexcept nogil
    cdef void add_center(self) noexcept nogil
