"""Sums and means of clusters, for the sweeps that build on them. See means.pyx."""

from libc.stdint cimport int64_t

from smallvar._sweeps.nearest_sweep cimport NearestSweep
from smallvar._sweeps.state cimport State
from smallvar._sweeps.sums cimport Sums, sums_t

cdef int center_of(const sums_t* sums, Py_ssize_t k, bint spherical, double* center, double* error) noexcept nogil
cdef void add_squares_of_chunk(
    const State* state, Py_ssize_t chunk, const double* place, int64_t* digits, int thread
) noexcept nogil
cdef void add_chunk(const State* state, Py_ssize_t chunk, bint moves, const sums_t* sums) noexcept nogil
cdef void shift_center(
    State* state, const sums_t* sums, int* remap, Py_ssize_t k, Py_ssize_t kept, const double* center
) noexcept nogil
cdef void follow_centers(
    State* state, const int* remap, Py_ssize_t kept, Py_ssize_t n_before, bint one_is_new, int n_threads
) noexcept nogil
cdef Py_ssize_t drop_empty_centers(State* state, const sums_t* sums, int* remap, int n_threads) noexcept nogil
cdef void reduce_to_nearest(State* state, Py_ssize_t first, float* table, int n_threads) noexcept nogil
cdef void update_half_distances(State* state, int n_threads) noexcept nogil

cdef class MeansSweep(NearestSweep):
    cdef Py_ssize_t n_before        # centers at the start of the sweep
    cdef Py_ssize_t farthest_point  # the point that open_farthest moved, or -1
    cdef int farthest_left          # and the cluster it left
    cdef bint farthest_is_added     # whether the sums know that it did
    cdef Sums sums                  # of the clusters, for the labels of the last move_centers
    cdef list thread_sums           # sums of all threads but the first
    cdef bint have_sums             # whether sums are that, not out of date
    cdef double* mean               # d: scratch
    cdef int* remap                 # new number of each cluster, -1: dropped
    cdef object remap_array
    cdef readonly double total      # sum of w ||x - origin||^2, -1: not known
    cdef bint spherical             # centers are sums divided by their length
    cdef Py_ssize_t n_unassigned    # points whose cluster had no direction, so that they are in none

    cdef Py_ssize_t count_listed(self) noexcept nogil
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
    cdef void move_point(self, Py_ssize_t i, int left, int joined) noexcept nogil
    cdef double shift_centers(self) except? -1.0 nogil
    cdef void move_center(self, Py_ssize_t k, Py_ssize_t kept, const double* center) noexcept nogil
    cdef void end_move(self, Py_ssize_t kept) noexcept nogil
    cdef void update_tables(self) noexcept nogil
    cdef void reserve_fast_bounds(self) noexcept nogil
    cdef make_fast_bounds(self)
