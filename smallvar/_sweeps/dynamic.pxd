"""D-Means in C memory, for callers that hold no Python objects. See dynamic.pyx."""

from libc.stdint cimport int64_t

from smallvar._sweeps.memory cimport Memory
from smallvar._sweeps.rows cimport Rows


cdef struct OldClusters:    # the clusters that live after a step
    Py_ssize_t n
    double* centers         # n x d: phi
    double* weights         # n: v
    int64_t* ages           # n: steps since each was seen, 1 for those of the last step
    int64_t* ids            # n: numbers that do not change
    Memory memory


cdef struct DynamicMeans:
    Py_ssize_t d
    double lam              # price of a new cluster
    double q                # of each step that a revived one was not seen
    double tau              # how fast the weight of an old center fades
    int64_t next_id
    OldClusters old


cdef DynamicMeans* new_state(Py_ssize_t d, double lam, double q, double tau) noexcept nogil
cdef void free_state(DynamicMeans* state) noexcept nogil
cdef int step(
    DynamicMeans* means, const Rows* rows, int64_t elapsed, int max_iter, int64_t* ids, double* objective, int* n_iter
) noexcept nogil
