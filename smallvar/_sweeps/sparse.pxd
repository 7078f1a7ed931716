"""Deciding distances of sparse rows, for what takes them all at once."""

from smallvar._sweeps.rows cimport Rows


cdef struct Tiling:         # deciding distances of all points
    const Rows* rows
    const double* center    # one of d; or those of the labels:
    const int* label
    const Py_ssize_t* member    # points, those of equal labels together
    Py_ssize_t n
    char* tiles             # of each thread, CSR_LANES x d zeros
    Py_ssize_t tile_size
    double* out             # n


cdef Py_ssize_t tile_numbers(Py_ssize_t d) noexcept nogil  # of float64, for rows of d columns
cdef void tile_chunk(const Tiling* a, Py_ssize_t block, int thread) noexcept nogil
