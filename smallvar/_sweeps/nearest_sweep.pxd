"""Sweeps over nearest centers, for what builds on them. See nearest_sweep.pyx."""

from smallvar._sweeps.memory cimport Memory
from smallvar._sweeps.rows cimport Rows
from smallvar._sweeps.state cimport State

cdef enum:
    BLOCKS = 17


cdef struct Sweep:
    State state
    Memory* memory          # the caller's
    int threads
    Py_ssize_t n_chunks
    Py_ssize_t min_fast_centers     # from so many on some may be fast without one of them being new
    Py_ssize_t capacity     # centers that there is memory for
    void* blocks[BLOCKS]    # of memory that grows with the number of centers
    Py_ssize_t step         # points of a stretch, in which clusters open: see next_step
    int* remap              # capacity: new number of each cluster at the last renumbering, -1: dropped


cdef bint begin_sweep(
    Sweep* sweep, Memory* memory, const Rows* rows, int* labels, const double* origin, double scale, double rounding,
    bint bounds, int threads
) noexcept nogil
cdef bint reserve(Sweep* sweep, Py_ssize_t capacity) noexcept nogil
cdef bint reserve_fast_bounds(Sweep* sweep) noexcept nogil
cdef bint set_centers(Sweep* sweep, const double* centers, Py_ssize_t k) noexcept nogil
cdef void use_float64(Sweep* sweep) noexcept nogil
cdef void assign_chunks(Sweep* sweep, Py_ssize_t first, Py_ssize_t last) noexcept nogil


cdef class NearestSweep:
    cdef Sweep sweep
    cdef State* state                   # of the sweep
    cdef Memory memory
    cdef readonly int n_threads
    cdef Py_ssize_t n_chunks
    cdef object frame                   # as it was given
    cdef object label_array             # the caller's
    cdef list arrays                    # that the sweep reads
    cdef Py_ssize_t work                # elements read since the last check for signals

    cpdef reserve(self, Py_ssize_t capacity, Py_ssize_t spare=*, int parts=*)
    cdef void pack(self, Py_ssize_t first) noexcept nogil
    # chunks between two checks for signals: of a sweep that may compute all distances, of a loop that reads rows once
    cdef Py_ssize_t chunks_at_once(self) noexcept nogil
    cdef Py_ssize_t chunks_of_rows(self) noexcept nogil
    cdef int check_signals(self, Py_ssize_t rows) except -1 nogil
    cdef int threads_for(self, Py_ssize_t points) noexcept nogil
