"""Distances of dense rows, for the sweeps over nearest centers."""

from smallvar._sweeps.state cimport Backend, State

cdef const Backend* dense_backend() noexcept nogil
cdef void assigned_distances(
    const State* state, Py_ssize_t start, const unsigned short* offsets, Py_ssize_t n, const int* centers, double* out
) noexcept nogil
