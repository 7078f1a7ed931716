"""Sums over the rows of Z, and the features that follow from them."""

from smallvar._sweeps.features.state cimport FeatureProblem, FeatureState

cdef void add_round(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t start, Py_ssize_t stop, bint counts_users
) noexcept nogil
cdef void read_sums(const FeatureProblem* problem, FeatureState* state) noexcept nogil
cdef int recount(const FeatureProblem* problem, FeatureState* state, Py_ssize_t n_counted) except -1 nogil
cdef void update_tables(const FeatureProblem* problem, FeatureState* state, Py_ssize_t k) noexcept nogil
cdef void update_all_tables(const FeatureProblem* problem, FeatureState* state) noexcept nogil
cdef int add_feature(const FeatureProblem* problem, FeatureState* state, const double* feature) except -1 nogil
cdef int add_residual(const FeatureProblem* problem, FeatureState* state, Py_ssize_t i) except -1 nogil
cdef void compact(const FeatureProblem* problem, FeatureState* state, Py_ssize_t n_kept) noexcept nogil
cdef void remove(const FeatureProblem* problem, FeatureState* state, Py_ssize_t k) noexcept nogil
cdef Py_ssize_t independent(
    const double* zz, Py_ssize_t capacity, Py_ssize_t k, double* factor, Py_ssize_t* kept
) noexcept nogil
cdef void solve(
    const double* factor, Py_ssize_t capacity, Py_ssize_t k, double* y, Py_ssize_t width, Py_ssize_t stride
) noexcept nogil
cdef double least_squares(const FeatureProblem* problem, FeatureState* state) noexcept nogil
