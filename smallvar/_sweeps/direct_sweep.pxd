"""The sweep over nearest centers of many rows, in C memory. See direct_sweep.pyx."""

from libc.stdint cimport int64_t

from smallvar._sweeps.direct_memory cimport Memory
from smallvar._sweeps.rows cimport Rows
from smallvar._sweeps.state cimport State
from smallvar._sweeps.sums cimport sums_t

cdef enum:
    BLOCKS = 15             # blocks of memory that grow with the number of centers


cdef struct DirectSweep:
    State state
    Memory* memory          # the caller's
    Py_ssize_t capacity     # centers that there is memory for
    void* blocks[BLOCKS]
    int* remap              # capacity: new number of each cluster, -1: dropped
    Py_ssize_t step         # points of a stretch, see next_step


cdef bint begin_sweep(
    DirectSweep* sweep, Memory* memory, const Rows* rows, int* labels, const double* origin, double reach,
    double rounding, bint bounds
) noexcept nogil
cdef bint set_centers(DirectSweep* sweep, const double* centers, Py_ssize_t k) noexcept nogil
cdef void assign(DirectSweep* sweep) noexcept nogil
cdef bint create(DirectSweep* sweep, double lam, Py_ssize_t max_clusters) noexcept nogil
cdef bint assign_and_open(DirectSweep* sweep, double lam, bint* opened) noexcept nogil
cdef Py_ssize_t count_moves(const DirectSweep* sweep) noexcept nogil
cdef void add_to_sums(DirectSweep* sweep, bint moves, const sums_t* sums) noexcept nogil
cdef double move_centers(
    DirectSweep* sweep, const sums_t* sums, double total, double* mean, Py_ssize_t n_before, bint one_is_new
) noexcept nogil
cdef bint drop_empty(DirectSweep* sweep, const sums_t* sums) noexcept nogil
cdef void add_squares(const DirectSweep* sweep, int64_t* digits) noexcept nogil
cdef void write_squares(const DirectSweep* sweep, double* squares) noexcept nogil
