"""What a start is made of, besides sweeps."""

from smallvar._sweeps.features.state cimport Problem, Start

cdef void join(const Problem* p, Start* s) noexcept nogil
