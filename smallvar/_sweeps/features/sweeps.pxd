"""Sweeps over the rows of Z."""

from smallvar._sweeps.features.state cimport Problem, Start

cdef void tabulate(Start* s) noexcept nogil
cdef bint encode_pass(const Problem* p, Start* s) except -1 nogil
cdef int fixed_sweep(const Problem* p, Start* s) except -1 nogil
cdef int free_sweep(const Problem* p, Start* s) except -1 nogil
