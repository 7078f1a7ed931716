"""Sweeps over the rows of Z."""

from smallvar._sweeps.features.state cimport Problem, Scratch, State

# also for the proposals of search.pyx, which minimize the same terms
cdef int keep_better(
    const Problem* problem, State* state, Py_ssize_t tile, const double* x, int changed, const double* squares,
    Scratch* scratch
) noexcept nogil
cdef bint encode_pass(const Problem* problem, State* state) except -1 nogil
cdef int fixed_sweep(const Problem* problem, State* state) except -1 nogil
cdef int free_sweep(const Problem* problem, State* state) except -1 nogil
