"""The best row of Z for given features."""

from smallvar._sweeps.features.state cimport FeatureProblem, FeatureState

cdef int search(const FeatureProblem* problem, FeatureState* state) except -1 nogil
