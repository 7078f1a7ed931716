"""The sweep of DP-means, for the sweeps that build on it."""

from libc.stdint cimport int64_t

from smallvar._sweeps.nearest cimport Engine
from smallvar._sweeps.sums cimport Sums, sums_t


cdef class DPSweep(Engine):
    cdef Py_ssize_t step            # points of a round
    cdef Py_ssize_t n_before        # centers at the start of the sweep
    cdef Py_ssize_t farthest_point  # the point that open_farthest moved, or -1
    cdef int farthest_left          # and the cluster it left
    cdef object space               # has the layout of the sums
    cdef Sums sums                  # of the clusters, for the labels of the last move_centers
    cdef list thread_sums           # sums of all threads but the first
    cdef bint have_sums             # whether sums are that, not out of date
    cdef double* mean               # d: scratch
    cdef int* remap                 # new number of each cluster, -1: dropped
    cdef object remap_array
    cdef readonly double total      # sum of w ||x - origin||^2, -1: not known
    cdef bint spherical             # centers are sums divided by their length
    cdef Py_ssize_t adrift          # points whose cluster had no direction, so that they are in none

    cdef Py_ssize_t open_in_order(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t max_clusters) except -1 nogil
    cdef double distance(self, Py_ssize_t i, Py_ssize_t k) noexcept nogil
    cdef void join_or_open(self, Py_ssize_t i, Py_ssize_t k0, Py_ssize_t* creator) noexcept nogil
    cdef void open_at(self, Py_ssize_t i) noexcept nogil
    cdef double reduce(self, const double* about) except? -1.0
    cdef add_all_squares(self, const double* about)
    cdef void add_squares(
        self, const double* about, int64_t* digits, Py_ssize_t first, Py_ssize_t last, int threads
    ) noexcept nogil
    cdef grow_sums(self, Py_ssize_t k)
    cdef add_up(self)
    cdef add_moves(self, Py_ssize_t moved)
    cdef account(self, bint moves, Py_ssize_t points)
    cdef int adders(self, Py_ssize_t points)
    cdef Py_ssize_t chunks_of_rows(self) noexcept nogil
    cdef begin_sums(self, sums_t* sums, int threads)
    cdef void end_sums(self, const sums_t* sums, int threads) noexcept nogil
    cdef void move_point(self, Py_ssize_t i, int left, int joined) noexcept nogil
    cdef double shift_centers(self) noexcept nogil
    cdef void move_center(self, Py_ssize_t k, Py_ssize_t kept, const double* center) noexcept nogil
    cdef void end_move(self, Py_ssize_t kept) noexcept nogil
    cdef void renew_tables(self) noexcept nogil
    cdef void relabel(self) noexcept nogil
