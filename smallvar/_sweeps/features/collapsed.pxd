"""Sweeps of collapsed BP-means."""

from smallvar._sweeps.features.state cimport Problem, Start

cdef int refresh(const Problem* p, Start* s) except -1 nogil
cdef int collapsed_sweep(const Problem* p, Start* s) except -1 nogil
