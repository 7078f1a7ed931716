"""Sweeps of collapsed BP-means."""

from smallvar._sweeps.features.state cimport FeatureProblem, FeatureState

cdef enum:
    C_MOST_TRIED = 12   # features up to which all 2^k rows can be tried

cdef int refresh(const FeatureProblem* problem, FeatureState* state) except -1 nogil
cdef int collapsed_sweep(const FeatureProblem* problem, FeatureState* state) except -1 nogil
