"""Distances of sparse rows, for the sweeps over nearest centers. See sparse.pyx."""

from smallvar._sweeps.rows cimport Rows
from smallvar._sweeps.state cimport Backend, State

cdef extern from "_sparse.h" nogil:
    enum:
        SPARSE_PAD "CSR_PAD"        # numbers that a table has more than centers, as vectors may reach beyond
        TILE_ROWS "CSR_LANES"       # rows whose exact distances are computed side by side

cdef const Backend* sparse_backend() noexcept nogil
cdef void exact_distances_of_chunk(
    const Rows* rows, const double* centers, const int* labels, const Py_ssize_t* order, Py_ssize_t chunk,
    double* tile, double* out
) noexcept nogil
