"""Sweeps over the rows of Z."""

from smallvar._sweeps.features.state cimport Problem, Scratch, Start

cdef int keep_better(
    const Problem* p, Start* s, Py_ssize_t tile, int changed, const double* before, Scratch* w
) noexcept nogil
cdef bint encode_pass(const Problem* p, Start* s) except -1 nogil
cdef int fixed_sweep(const Problem* p, Start* s) except -1 nogil
cdef int free_sweep(const Problem* p, Start* s) except -1 nogil
