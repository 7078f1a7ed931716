"""Sums over the rows of Z, and the features that follow from them."""

from smallvar._sweeps.features.state cimport Problem, State

cdef void add_round(
    const Problem* problem, State* state, Py_ssize_t start, Py_ssize_t stop, bint counts_users
) noexcept nogil
cdef void read_sums(const Problem* problem, State* state) noexcept nogil
cdef int recount(const Problem* problem, State* state, Py_ssize_t n_counted) except -1 nogil
cdef void update_tables(const Problem* problem, State* state, Py_ssize_t k) noexcept nogil
cdef void update_all_tables(const Problem* problem, State* state) noexcept nogil
cdef int add_feature(const Problem* problem, State* state, const double* feature) except -1 nogil
cdef int add_residual(const Problem* problem, State* state, Py_ssize_t i) except -1 nogil
cdef void compact(const Problem* problem, State* state, Py_ssize_t n_kept) noexcept nogil
cdef void remove(const Problem* problem, State* state, Py_ssize_t k) noexcept nogil
cdef Py_ssize_t independent(
    const double* zz, Py_ssize_t capacity, Py_ssize_t k, double* factor, Py_ssize_t* kept
) noexcept nogil
cdef void solve(
    const double* factor, Py_ssize_t capacity, Py_ssize_t k, double* y, Py_ssize_t width, Py_ssize_t stride
) noexcept nogil
cdef double least_squares(const Problem* problem, State* state) noexcept nogil
