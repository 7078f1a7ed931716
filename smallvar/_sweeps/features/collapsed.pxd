"""Sweeps of collapsed BP-means."""

from smallvar._sweeps.features.state cimport Problem, State

cdef int refresh(const Problem* problem, State* state) except -1 nogil
cdef int collapsed_sweep(const Problem* problem, State* state) except -1 nogil
