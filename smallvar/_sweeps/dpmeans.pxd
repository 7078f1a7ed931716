"""The sweep of DP-means, for the sweeps that build on it. See dpmeans.pyx."""

from smallvar._sweeps.means cimport MeansSweep
from smallvar._sweeps.state cimport State

cdef enum:
    NEW_CENTERS = 64        # centers that an ordered pass opens before later points are compared with them


cdef struct Listed:         # where an ordered pass is in the lists of points beyond the penalty
    Py_ssize_t chunk
    Py_ssize_t last         # the chunk after the last one
    Py_ssize_t stop         # the point after the last one
    Py_ssize_t m            # of the points that the chunk lists


cdef float penalty_limit(const State* state, double lam) noexcept nogil
cdef Py_ssize_t next_step(Py_ssize_t step, Py_ssize_t opened) noexcept nogil
cdef Listed listed_points(Py_ssize_t start, Py_ssize_t stop) noexcept nogil
cdef bint has_next(const State* state, Listed* listed) noexcept nogil
cdef bint open_batch(State* state, Listed* listed, Py_ssize_t max_clusters, int n_threads) noexcept nogil
cdef void open_at(State* state, Py_ssize_t i, int n_threads) noexcept nogil
cdef Py_ssize_t farthest_listed(const State* state, double* distance) noexcept nogil
cdef void open_alone(State* state, Py_ssize_t i, int n_threads) noexcept nogil

cdef class DPSweep(MeansSweep):
    cdef Py_ssize_t open_in_order(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t max_clusters) except -1 nogil
    cdef check_bounds(self)
