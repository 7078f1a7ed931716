"""Sweeps over the rows of Z."""

from libc.stdint cimport uint64_t

from smallvar._sweeps.features.state cimport FeatureProblem, FeatureState

cdef bint encode_pass(const FeatureProblem* problem, FeatureState* state) except -1 nogil
cdef int fixed_sweep(const FeatureProblem* problem, FeatureState* state) except -1 nogil
cdef int free_sweep(const FeatureProblem* problem, FeatureState* state) except -1 nogil
cdef int search(const FeatureProblem* problem, FeatureState* state) except -1 nogil

cdef inline double uniform(uint64_t* rng) noexcept nogil:
    """The next number in [0, 1) of the generator splitmix64.  INOUT rng"""
    cdef uint64_t z
    rng[0] += <uint64_t> 0x9E3779B97F4A7C15
    z = rng[0]
    z = (z ^ (z >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t> 0x94D049BB133111EB
    z = z ^ (z >> 31)
    return <double> (z >> 11) * (1.0 / 9007199254740992.0)


cdef void join(const FeatureProblem* problem, FeatureState* state) noexcept nogil
cdef Py_ssize_t draw(const FeatureProblem* problem, FeatureState* state, double error) noexcept nogil
cdef int fill_up(const FeatureProblem* problem, FeatureState* state) except -1 nogil
cdef int seed(const FeatureProblem* problem, FeatureState* state, int mode) except -1 nogil
