"""Centers opened in a sweep."""

from smallvar._sweeps.state cimport State

cdef void attract_points(
    State* s, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t k0, const Py_ssize_t* creator, int threads
) noexcept nogil
cdef void lower_distances(State* s, Py_ssize_t k0, Py_ssize_t k1, float* table, int threads) noexcept nogil
