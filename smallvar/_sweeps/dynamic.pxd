"""A step of D-Means on structs, for callers with and without Python objects. See dynamic.pyx."""

from smallvar._sweeps.in_order cimport InOrderClusters, InOrderPoints, InOrderScratch
from smallvar._sweeps.memory cimport Memory
from smallvar._sweeps.sums cimport sums_t


cdef struct DynamicBounds:      # of costs in the clusters that a point is not in
    # n: when the proposal was made, the root of the least of these costs / w, plus other_shift of the proposed cluster
    # at that time: what other_shift has grown by since is taken off by subtracting it as it is now
    double* lower
    double* other_shift         # of each cluster: the largest shift of any other one, added up over all sweeps
    Py_ssize_t first_valid      # bounds of the points before this one are from before a cluster came or went


cdef struct DynamicState:
    InOrderPoints* points
    InOrderClusters* clusters
    InOrderScratch* scratch
    const sums_t* sums          # of the points in each cluster, updated with every commit
    double lam
    Py_ssize_t n_old            # old clusters, which come before the new ones
    const double* phi           # n_old x d: their centers
    const double* gamma         # n_old: their weights, faded by age
    const double* penalty       # n_old: Q D
    double* theta               # k x d: means after a sweep; clusters.columns may have newer centers
    Py_ssize_t* count           # of each cluster: its points
    int* label                  # n: cluster of each point, -1: none yet
    int* proposed               # n: the cheapest cluster, or OPEN
    double* assigned_distance   # n: squared distance to the assigned center, at the start of the sweep
    DynamicBounds bounds
    double fixed                # the objective but for sum_i w_i ||y_i - theta_{z_i}||^2


cdef bint reserve_points(DynamicState* state, Memory* memory) noexcept nogil
cdef bint reserve_dynamic(DynamicState* state, Memory* memory, Py_ssize_t capacity) noexcept nogil
cdef void begin_run(DynamicState* state) noexcept nogil
cdef void propose(const DynamicState* state, Py_ssize_t start, Py_ssize_t stop, bint bounded) noexcept nogil
cdef double objective_of(DynamicState* state) noexcept nogil
cdef Py_ssize_t advance(
    DynamicState* state, Py_ssize_t start, Py_ssize_t* proposed, Py_ssize_t* changes
) noexcept nogil
cdef void move_centers(DynamicState* state) noexcept nogil
