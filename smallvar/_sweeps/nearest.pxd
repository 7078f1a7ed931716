"""The sweep over nearest centers, for the sweeps that build on it. See nearest.pyx."""

from smallvar._sweeps.state cimport State

cdef enum:
    MIN_FAST_CENTERS = 96   # measured: with fewer, comparing a point with all of them costs little


cdef bint exceeds_penalty(const State* state, Py_ssize_t i, Py_ssize_t k, double distance, int thread) noexcept nogil
cdef void assign_chunk(State* state, Py_ssize_t number, int thread) noexcept nogil
cdef Py_ssize_t tiles_of_batch(Py_ssize_t d) noexcept nogil
cdef int threads_worth(const State* state, Py_ssize_t points, int n_threads) noexcept nogil
cdef bint float64_pays(const State* state, Py_ssize_t n_chunks) noexcept nogil
cdef void pack_centers(State* state, Py_ssize_t first, int n_threads) noexcept nogil
cdef void clear_fast_centers(State* state) noexcept nogil
cdef void choose_fast_centers(State* state, Py_ssize_t new_center, Py_ssize_t min_centers) noexcept nogil
cdef void assign_to_new_centers(
    State* state, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t first_new, const Py_ssize_t* opened_at, int threads
) noexcept nogil
cdef void reduce_bounds_to_last(State* state, int threads) noexcept nogil
