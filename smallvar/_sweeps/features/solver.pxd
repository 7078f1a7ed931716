"""Sums over the rows of Z, and the features that follow from them."""

from smallvar._sweeps.features.state cimport Problem, Start

cdef void add_round(const Problem* p, Start* s, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
cdef void read_sums(const Problem* p, Start* s) noexcept nogil
cdef int recount(const Problem* p, Start* s, Py_ssize_t known) except -1 nogil
cdef void place_feature(const Problem* p, Start* s, Py_ssize_t k) noexcept nogil
cdef void place_features(const Problem* p, Start* s) noexcept nogil
cdef int add_feature(const Problem* p, Start* s) except -1 nogil
cdef void compact(const Problem* p, Start* s, Py_ssize_t k) noexcept nogil
cdef void remove(const Problem* p, Start* s, Py_ssize_t k) noexcept nogil
cdef Py_ssize_t independent(const double* m, Py_ssize_t room, Py_ssize_t k, double* l, Py_ssize_t* kept) noexcept nogil
cdef void solve(const double* l, Py_ssize_t room, Py_ssize_t k, double* y, Py_ssize_t d) noexcept nogil
cdef double least_squares(const Problem* p, Start* s) noexcept nogil
