"""Clustering of tables in C memory, for callers that hold no Python objects. See direct.pyx."""

from smallvar._sweeps.rows cimport Rows


cdef int nearest_centers(
    const Rows* rows, const double* centers, Py_ssize_t k, int* labels, double* squares
) noexcept nogil
cdef int means_of_labels(
    const Rows* rows, const int* labels, Py_ssize_t k, double* means, double* weights
) noexcept nogil
cdef int dp_means(
    const Rows* rows, double lam, bint delayed, Py_ssize_t max_clusters, int max_iter, int* labels, double* centers,
    Py_ssize_t capacity, Py_ssize_t* n_clusters, double* objective, int* n_iter
) noexcept nogil
