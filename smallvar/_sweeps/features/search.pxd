"""The best row of Z for given features."""

from smallvar._sweeps.features.state cimport Problem, Start

cdef int search(const Problem* p, Start* s) except -1 nogil
