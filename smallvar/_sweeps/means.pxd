"""Sums and means of clusters, for the sweeps that build on them. See means.pyx."""

from libc.stdint cimport int64_t

from smallvar._sweeps.nearest_sweep cimport NearestSweep, Sweep
from smallvar._sweeps.state cimport State
from smallvar._sweeps.sums cimport Sums, sums_t

cdef int center_of(const sums_t* sums, Py_ssize_t k, bint spherical, double* center, double* error) noexcept nogil
cdef void add_squares_of_chunk(
    const State* state, Py_ssize_t chunk, const double* place, int64_t* digits, int thread
) noexcept nogil
cdef void add_chunk(const State* state, Py_ssize_t chunk, bint moves, const sums_t* sums) noexcept nogil
cdef void shift_center(
    Sweep* sweep, const sums_t* sums, Py_ssize_t k, Py_ssize_t kept, const double* center
) noexcept nogil
cdef double shift_centers(
    Sweep* sweep, const sums_t* sums, bint spherical, double total, double* mean, Py_ssize_t* n_unassigned
) noexcept nogil
cdef void follow_centers(Sweep* sweep, Py_ssize_t n_before, Py_ssize_t n_after, bint one_is_new) noexcept nogil
cdef void update_tables(Sweep* sweep, bint one_is_new) noexcept nogil
cdef Py_ssize_t drop_empty_centers(Sweep* sweep, const sums_t* sums) noexcept nogil
cdef Py_ssize_t count_moves(const Sweep* sweep) noexcept nogil
cdef void reduce_to_nearest(State* state, Py_ssize_t first, float* table, int n_threads) noexcept nogil

cdef class MeansSweep(NearestSweep):
    cdef Py_ssize_t n_before        # centers at the start of the sweep
    cdef Py_ssize_t farthest_point  # the point that open_farthest moved, or -1
    cdef int farthest_left          # and the cluster it left
    cdef bint farthest_is_added     # whether the sums know that it did
    cdef Sums sums                  # of the clusters, for the labels of the last move_centers
    cdef list thread_sums           # sums of all threads but the first
    cdef bint have_sums             # whether sums are that, not out of date
    cdef double* mean               # d: scratch
    cdef readonly double total      # sum of w ||x - origin||^2, -1: not known
    cdef bint spherical             # centers are sums divided by their length
    cdef Py_ssize_t n_unassigned    # points whose cluster had no direction, so that they are in none

    cdef double sum_squares(self, const double* place) except? -1.0
    cdef squares_digits(self, const double* place)
    cdef reserve_sums(self, Py_ssize_t k)
    cdef add_all(self)
    cdef add_moves(self, Py_ssize_t moved)
    cdef add(self, bint moves, Py_ssize_t points)
    cdef add_sparse(self, bint moves, Py_ssize_t points)
    cdef tuple members(self, bint moves)
    cdef tuple listed_moves(self)
    cdef int threads_for_sums(self, Py_ssize_t points)
    cdef begin_sums(self, sums_t* sums, int threads)
    cdef void end_sums(self, const sums_t* sums, int threads) noexcept nogil
    cdef double end_sweep(self) except? -1.0
    cdef void move_point(self, Py_ssize_t i, int left, int joined) noexcept nogil
