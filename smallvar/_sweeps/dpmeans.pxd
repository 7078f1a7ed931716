"""The sweep of DP-means, for the sweeps that build on it."""

from smallvar._sweeps.nearest cimport Engine


cdef struct Sums:
    double* total       # k x d: sum of w (x - shift)
    double* weight      # k
    double* count       # k: members of positive weight


cdef class DPSweep(Engine):
    cdef Py_ssize_t step            # points handled between two ordered passes
    cdef Py_ssize_t n_before        # centers at the start of the sweep
    cdef Py_ssize_t far_point       # the point that open_farthest moved, or -1
    cdef int far_from               # and the cluster it left
    cdef Sums sums
    cdef int* remap
    cdef object sum_arrays
    cdef object group_array
    cdef object partial_array
    cdef bint have_sums
    cdef readonly bint fresh_sums   # added up from scratch and not changed since
    cdef Py_ssize_t n_changes       # moves added to the sums since they were fresh
    cdef readonly double total      # sum of w ||x - shift||^2
    # collapsed sweeps
    cdef object columns_array
    cdef object cost_array
    cdef double* columns            # d x room, the means in columns
    cdef double* cost               # room
    cdef Py_ssize_t room

    cdef Py_ssize_t open_in_order(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t max_clusters) except -1 nogil
    cdef double distance(self, Py_ssize_t i, Py_ssize_t k) noexcept nogil
    cdef void settle_far(self, Py_ssize_t i, Py_ssize_t k0, Py_ssize_t* creator) noexcept nogil
    cdef void open_at(self, Py_ssize_t i) noexcept nogil
    cdef double reduce(self, bint about_shift) except? -1.0
    cdef grow_sums(self, Py_ssize_t k)
    cdef Py_ssize_t group_sums(self, Py_ssize_t points, Sums* groups) except -1
    cdef void add_groups(self, Sums* groups, Py_ssize_t n_groups) noexcept nogil
    cdef void clear_sums(self, Py_ssize_t k0, Py_ssize_t k1) noexcept nogil
    cdef add_up(self)
    cdef add_moves(self, Py_ssize_t moved)
    cdef double shift_centers(self) noexcept nogil
    cdef void renew_tables(self) noexcept nogil
    cdef void relabel(self) noexcept nogil
    cdef load(self)
    cdef void set_column(self, Py_ssize_t k) noexcept nogil
    cdef void hand_over(self, const double* row, double w, Py_ssize_t k, double sign) noexcept nogil
