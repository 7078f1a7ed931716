"""Scores of batches of points against centers, and what they decide."""

from smallvar._sweeps.rows cimport real_x
from smallvar._sweeps.state cimport CHUNK, State, real_c

cdef enum:
    MAX_TILES = 4   # tiles of 16 points that are scored together
    BATCH = 16 * MAX_TILES


cdef struct Batch:      # points that are scored together
    Py_ssize_t size
    Py_ssize_t index[BATCH]     # which points these are
    double own[BATCH]           # distance to the own center, good to 1e-9, or -1 where it is not known
    double squares[BATCH]       # ||x||^2 after shift and scale


cdef struct Close:      # the close points of a chunk
    Py_ssize_t size
    unsigned short offset[CHUNK]    # which points these are, from the beginning of the chunk
    double bar[CHUNK]               # a center whose score is above is not the nearest


cdef inline void join(Batch* b, Py_ssize_t i, double own) noexcept nogil:
    """Put point i into the batch."""
    b.index[b.size] = i
    b.own[b.size] = own
    b.size += 1


cdef double error_bound(const State* s, double squares) noexcept nogil
cdef int exact_nearest(
    const real_x* x, const State* s, Py_ssize_t i, Py_ssize_t k0, Py_ssize_t k1, double* distance
) noexcept nogil
cdef void fill(const real_x* x, const State* s, Batch* b, real_c* tiles) noexcept nogil
cdef double batch_error(const State* s, const Batch* b) noexcept nogil
cdef void score(
    const State* s, Py_ssize_t size, const real_c* tiles, const void* scaled, const void* norm, Py_ssize_t k0,
    Py_ssize_t k1, real_c* m1, real_c* m2, int* best
) noexcept nogil
cdef void distances_to(
    const real_x* x, const State* s, Py_ssize_t start, const unsigned short* offset, Py_ssize_t size, const int* z,
    double* out
) noexcept nogil
cdef void flush(
    const real_x* x, State* s, Batch* b, real_c* tiles, Close* close, unsigned char* flag
) noexcept nogil
cdef void decide(
    const real_x* x, State* s, Py_ssize_t start, const Close* close, real_c* tiles, unsigned char* flag
) noexcept nogil
cdef void place_center(State* s, Py_ssize_t k) noexcept nogil
cdef void pad(const State* s, void* scaled, void* norm, Py_ssize_t k) noexcept nogil
cdef void place_centers(State* s) noexcept nogil
