"""The best row of Z for given features."""

from smallvar._sweeps.features.state cimport Problem, State

cdef int search(const Problem* problem, State* state) except -1 nogil
