"""C-level functions of smallvar, for other compiled libraries: ``from smallvar.cython_api cimport dp_means_d, OK``.

All functions take plain pointers, hold no Python objects, need no GIL and raise nothing: they return OK (0),
NOT_CONVERGED (1), or a negative number that says what is wrong. They run in the thread that calls them, so that a loop
with threads of the caller may call them from every thread. They give the bits of the estimators named.

A trailing f or d is the type of the rows, float32 or float64. IN arguments are only read; OUT arguments must have the
size given, and their contents are undefined where the outcome is negative. Memory is the caller's; what a function
allocates it frees, but for a state of D-Means.

x : IN, n rows of d numbers; a row lies in one piece, and one begins ``stride`` >= d numbers after the other
weight : IN (n,), weights of the rows, >= 0 and not all 0, or NULL: 1 each
"""

from libc.stdint cimport int64_t

cpdef enum Outcome:
    OK = 0
    NOT_CONVERGED = 1   # max_iter sweeps did not suffice; the results are those of the last one
    # a NULL pointer that must not be one, a number of rows, columns, ... out of its bounds, or a table of them that is
    # larger than can be addressed
    BAD_SIZE = -1
    BAD_VALUE = -2      # rows, centers, weights, labels or penalties are NaN, infinite, or out of their bounds
    OUT_OF_RANGE = -3   # squares, or sums of weighted squares, would leave float64: rescale the data or the weights
    FULL = -4           # more clusters than there is memory for
    NO_MEMORY = -5

cdef int API_VERSION    # 1; a function that is here now keeps its signature as long as it is 1


# The nearest center of each row, the first one at a tie: DPMeans.predict.
#
# centers : IN (k, d);  labels : OUT (n,);  squares : OUT (n,), squared distances to these centers, or NULL
cdef int nearest_centers_f(
    const float* x, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride, const double* centers, Py_ssize_t k, int* labels,
    double* squares
) noexcept nogil
cdef int nearest_centers_d(
    const double* x, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride, const double* centers, Py_ssize_t k, int* labels,
    double* squares
) noexcept nogil


# The weighted mean of the rows of each label, from exact sums: they depend on neither the order of the rows nor on how
# the caller shares them out among threads. It is the mean that DPMeans moves a center to.
#
# labels : IN (n,), 0..k-1, or -1: in no cluster
# means : OUT (k, d), NaN where a label has no rows;  weights : OUT (k,), sums of weights, or NULL
cdef int means_of_labels_f(
    const float* x, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride, const double* weight, const int* labels,
    Py_ssize_t k, double* means, double* weights
) noexcept nogil
cdef int means_of_labels_d(
    const double* x, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride, const double* weight, const int* labels,
    Py_ssize_t k, double* means, double* weights
) noexcept nogil


# DP-means from the mean of the rows: DPMeans(lam=lam, algorithm=..., max_clusters=..., max_iter=max_iter).fit. It
# minimizes sum_i w_i ||x_i - mu_{z_i}||^2 + lam K.
#
# lam : penalty for each cluster, in squared data units, finite and > 0 (>= 0 with max_clusters): a row opens a cluster
#     where its weight times its squared distance from all centers exceeds it
# delayed : 0: "serial", Kulis & Jordan (2012), Algorithm 1; else "delayed": one cluster at most in a sweep, at the row
#     farthest beyond the penalty
# max_clusters : the most clusters, at which rows beyond the penalty join their nearest center; 0: no bound
# max_iter : the most sweeps, >= 1; sweeps that open clusters and lower the objective do not count
# labels : OUT (n,);  centers : OUT (capacity, d), of which n_clusters are set
# capacity : clusters that centers has memory for, >= 1; max_clusters is enough, and so is n. FULL where more clusters
#     are open at a time, beside one that has lost all its rows
# n_clusters : OUT;  objective, n_iter : OUT, or NULL
cdef int dp_means_f(
    const float* x, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride, const double* weight, double lam, int delayed,
    Py_ssize_t max_clusters, int max_iter, int* labels, double* centers, Py_ssize_t capacity, Py_ssize_t* n_clusters,
    double* objective, int* n_iter
) noexcept nogil
cdef int dp_means_d(
    const double* x, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride, const double* weight, double lam, int delayed,
    Py_ssize_t max_clusters, int max_iter, int* labels, double* centers, Py_ssize_t capacity, Py_ssize_t* n_clusters,
    double* objective, int* n_iter
) noexcept nogil


# D-Means, one time step after the other: DynamicMeans(lam=lam, q=q, tau=tau, n_init=1).partial_fit.
#
# A state is made by dynamic_means_new and freed by dynamic_means_free; it belongs to one thread at a time. A step that
# fails leaves it as it was.

# A state before the first step, or NULL where an argument is wrong or there is no memory.
#
# lam : penalty for a new cluster, > 0;  q : for each step that a revived one was not seen, >= 0;
# tau : how fast the weight of an old center fades, >= 0
cdef void* dynamic_means_new(Py_ssize_t d, double lam, double q, double tau) noexcept nogil
cdef void dynamic_means_free(void* state) noexcept nogil

# One step of n >= 0 points, ``elapsed`` >= 1 steps after the last; weights > 0.
#
# ids : OUT (n,), the number of each point's cluster, which does not change from step to step
# objective, n_iter : OUT, or NULL
cdef int dynamic_means_step_f(
    void* state, const float* x, Py_ssize_t n, Py_ssize_t stride, const double* weight, int64_t elapsed, int max_iter,
    int64_t* ids, double* objective, int* n_iter
) noexcept nogil
cdef int dynamic_means_step_d(
    void* state, const double* x, Py_ssize_t n, Py_ssize_t stride, const double* weight, int64_t elapsed, int max_iter,
    int64_t* ids, double* objective, int* n_iter
) noexcept nogil

# The clusters that live after the last step: their number, or -1 where state is NULL. The arrays hold ``capacity``
# clusters, of which min(capacity, number) are set; each may be NULL.
#
# ids : OUT (capacity,);  centers : OUT (capacity, d);  weights : OUT (capacity,)
# ages : OUT (capacity,), steps since each was seen, 1 for those of the last step
cdef Py_ssize_t dynamic_means_clusters(
    const void* state, Py_ssize_t capacity, int64_t* ids, double* centers, double* weights, int64_t* ages
) noexcept nogil
