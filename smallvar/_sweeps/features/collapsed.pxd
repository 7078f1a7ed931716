"""Sweeps of collapsed BP-means."""

from smallvar._sweeps.features.state cimport Problem, State

cdef enum:
    C_MOST_TRIED = 12   # features up to which all 2^k rows can be tried

cdef int refresh(const Problem* problem, State* state) except -1 nogil
cdef int collapsed_sweep(const Problem* problem, State* state) except -1 nogil
