"""Sweeps over the rows of Z."""

from smallvar._sweeps.features.state cimport FeatureProblem, FeatureScratch, FeatureState

# also for the proposals of search.pyx, which minimize the same terms
cdef int keep_better(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t tile, const double* x, int changed,
    const double* squares, FeatureScratch* scratch
) noexcept nogil
cdef bint encode_pass(const FeatureProblem* problem, FeatureState* state) except -1 nogil
cdef int fixed_sweep(const FeatureProblem* problem, FeatureState* state) except -1 nogil
cdef int free_sweep(const FeatureProblem* problem, FeatureState* state) except -1 nogil
