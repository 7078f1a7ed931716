"""Centers that are opened during a sweep."""

from smallvar._sweeps.state cimport State

cdef void assign_to_new_centers(
    State* state, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t first_new, const Py_ssize_t* opened_at, int threads
) noexcept nogil
cdef bint is_nearer(const State* state, Py_ssize_t i, Py_ssize_t k, Py_ssize_t other, int thread) noexcept nogil
cdef void reduce_bounds_to_last(State* state, int threads) noexcept nogil
