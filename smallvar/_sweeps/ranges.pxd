"""The chunks of rows that loops over all of them read at a time."""

from smallvar._sweeps.rows cimport Rows

cdef enum:
    CHUNK_ELEMENTS = 1 << 16    # elements read at a time by one thread
    CHUNKS_AT_ONCE = 256        # chunks between two checks for signals


cdef inline Py_ssize_t rows_of_chunk(Py_ssize_t d) noexcept nogil:
    """How many rows of d columns make a chunk."""
    return max(<Py_ssize_t> 64, CHUNK_ELEMENTS // d)


cdef inline Py_ssize_t chunks_of(const Rows* r) noexcept nogil:
    """How many chunks the rows make."""
    return (r.n + rows_of_chunk(r.d) - 1) // rows_of_chunk(r.d)


cdef void range_of_values(const Rows* r, bint weighted, double* low, double* high) noexcept nogil
cdef void count_small_of_chunk(
    const Rows* r, Py_ssize_t chunk, int thread, const double* origin, const double* limit, double* count
) noexcept nogil
