"""C-level functions of smallvar for other compiled libraries; what they do is said in cython_api.pxd.

From Python there is only ``Outcome``, the numbers that they return, and ``__pyx_capi__``, from which C++, numba and
ctypes take them.
"""

from libc.stdint cimport int64_t
from libc.string cimport memcpy

from smallvar._sweeps cimport direct, dynamic
from smallvar._sweeps.direct cimport plain_rows
from smallvar._sweeps.dynamic cimport DynamicMeans
from smallvar._sweeps.rows cimport Rows

API_VERSION = 1


cdef int nearest_centers_f(
    const float* x, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride, const double* centers, Py_ssize_t k, int* labels,
    double* squares
) noexcept nogil:
    cdef Rows rows = plain_rows(x, True, n, d, stride, NULL)
    return direct.nearest_centers(&rows, centers, k, labels, squares)


cdef int nearest_centers_d(
    const double* x, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride, const double* centers, Py_ssize_t k, int* labels,
    double* squares
) noexcept nogil:
    cdef Rows rows = plain_rows(x, False, n, d, stride, NULL)
    return direct.nearest_centers(&rows, centers, k, labels, squares)


cdef int means_of_labels_f(
    const float* x, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride, const double* weight, const int* labels,
    Py_ssize_t k, double* means, double* weights
) noexcept nogil:
    cdef Rows rows = plain_rows(x, True, n, d, stride, weight)
    return direct.means_of_labels(&rows, labels, k, means, weights)


cdef int means_of_labels_d(
    const double* x, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride, const double* weight, const int* labels,
    Py_ssize_t k, double* means, double* weights
) noexcept nogil:
    cdef Rows rows = plain_rows(x, False, n, d, stride, weight)
    return direct.means_of_labels(&rows, labels, k, means, weights)


cdef int dp_means_f(
    const float* x, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride, const double* weight, double lam, int delayed,
    Py_ssize_t max_clusters, int max_iter, int* labels, double* centers, Py_ssize_t capacity, Py_ssize_t* n_clusters,
    double* objective, int* n_iter
) noexcept nogil:
    cdef Rows rows = plain_rows(x, True, n, d, stride, weight)
    return direct.dp_means(&rows, lam, delayed != 0, max_clusters, max_iter, labels, centers, capacity, n_clusters,
                           objective, n_iter)


cdef int dp_means_d(
    const double* x, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride, const double* weight, double lam, int delayed,
    Py_ssize_t max_clusters, int max_iter, int* labels, double* centers, Py_ssize_t capacity, Py_ssize_t* n_clusters,
    double* objective, int* n_iter
) noexcept nogil:
    cdef Rows rows = plain_rows(x, False, n, d, stride, weight)
    return direct.dp_means(&rows, lam, delayed != 0, max_clusters, max_iter, labels, centers, capacity, n_clusters,
                           objective, n_iter)


cdef void* dynamic_means_new(Py_ssize_t d, double lam, double q, double tau) noexcept nogil:
    return dynamic.new_state(d, lam, q, tau)


cdef void dynamic_means_free(void* state) noexcept nogil:
    dynamic.free_state(<DynamicMeans*> state)


cdef int dynamic_means_step_f(
    void* state, const float* x, Py_ssize_t n, Py_ssize_t stride, const double* weight, int64_t elapsed, int max_iter,
    int64_t* ids, double* objective, int* n_iter
) noexcept nogil:
    cdef Rows rows = plain_rows(x, True, n, columns_of(state), stride, weight)
    return dynamic.step(<DynamicMeans*> state, &rows, elapsed, max_iter, ids, objective, n_iter)


cdef int dynamic_means_step_d(
    void* state, const double* x, Py_ssize_t n, Py_ssize_t stride, const double* weight, int64_t elapsed, int max_iter,
    int64_t* ids, double* objective, int* n_iter
) noexcept nogil:
    cdef Rows rows = plain_rows(x, False, n, columns_of(state), stride, weight)
    return dynamic.step(<DynamicMeans*> state, &rows, elapsed, max_iter, ids, objective, n_iter)


cdef Py_ssize_t columns_of(const void* state) noexcept nogil:
    """How many columns the points of a state have; 0 where it is NULL."""
    return 0 if state == NULL else (<const DynamicMeans*> state).d


cdef Py_ssize_t dynamic_means_clusters(
    const void* state, Py_ssize_t capacity, int64_t* ids, double* centers, double* weights, int64_t* ages
) noexcept nogil:
    cdef const DynamicMeans* means = <const DynamicMeans*> state
    cdef Py_ssize_t n
    if state == NULL:
        return -1
    n = max(<Py_ssize_t> 0, min(capacity, means.old.n))
    if n > 0:
        if ids != NULL:
            memcpy(ids, means.old.ids, n * sizeof(int64_t))
        if centers != NULL:
            memcpy(centers, means.old.centers, n * means.d * sizeof(double))
        if weights != NULL:
            memcpy(weights, means.old.weights, n * sizeof(double))
        if ages != NULL:
            memcpy(ages, means.old.ages, n * sizeof(int64_t))
    return means.old.n
