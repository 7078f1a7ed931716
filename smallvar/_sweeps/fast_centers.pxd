"""A lower bound of their own for the few centers that move far."""

from smallvar._sweeps.state cimport State

cdef void clear_fast_centers(State* state) noexcept nogil
cdef void choose_fast_centers(State* state, Py_ssize_t new_center, Py_ssize_t min_centers) noexcept nogil
