"""Sweeps that visit one point after the other, and compute costs in parallel: D-Means and the hard HDP.

A point joins the cluster of the least cost, offset + factor * ||x - center||^2, among the clusters as it finds them:
single points open clusters, leave them empty, or make them cheaper for later points. Between two such changes a cost
does not depend on the points before. So for a round of points the cheapest clusters are proposed in parallel, from the
clusters as they are (`propose`); then the proposals are committed one after the other, in the order of the points (in
dynamic.pyx and hdp.pyx). A commit that changes a cost ends this: the proposals after it are made anew, or amended where
only one cost has changed. A proposal that is committed was thus made from the very costs that a visit of one point
after the other would find, and results do not depend on the length of rounds, nor on threads. Rounds are short after a
change and then double, so that not many more proposals are made than committed.

`assign` and `error_of` are for fixed clusters, where nothing depends on the order.
"""

from cython.parallel cimport prange
from libc.string cimport memset

from smallvar._sweeps.memory cimport free_all, take, widen
from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport poll_signals, read_row, row_at, rows_of, weight_of
from smallvar._sweeps.sums cimport (
    ACCUMULATOR_DIGITS,
    Accumulator,
    accumulator_add,
    accumulator_merge,
    accumulator_round,
)

import numpy as np

cdef enum:
    POINT_OVERHEAD = 100    # multiply-adds that take as long as what a point costs beside them if it goes alone


cdef Py_ssize_t cheapest(const InOrderState* state, Py_ssize_t i, double* cost, int thread) noexcept nogil:
    """The cheapest cluster of point i, the first at a tie (see sc_ties); -1: all are infinite.

    A weighted point has its weight in place of the factors of clusters.  OUT cost: the least
    """
    cdef Py_ssize_t k
    cdef double second, w = weight_of(&state.rows, i)
    cdef double* costs = state.costs + thread * state.capacity
    cdef double* factor = state.factor
    if state.rows.weight != NULL:
        factor = state.factors + thread * state.capacity
        for k in range(state.k):
            factor[k] = w
    k = sc_least(
        row_at(&state.rows, i, row_buffer(state, thread)), state.d, state.columns, state.capacity,
        state.k, offset_of(state, i), factor, costs, cost, &second,
    )
    return first_tied(costs, k, cost[0], second, w * state.rounding)


cdef void propose_chunk(
    const InOrderState* state, Py_ssize_t start, Py_ssize_t stop, int* label, double* cost, Py_ssize_t chunk, int thread
) noexcept nogil:
    """The part of `propose` for one chunk of the points start..stop-1.

    Points of one data set go side by side, one in each lane of a vector, if all centers have factor 1 and the empty
    lanes take less time than the overhead of points that go one by one, with centers side by side. Both ways give the
    same bits.
    """
    cdef Py_ssize_t lane, last, size, i = start + chunk * IN_ORDER_CHUNK
    cdef bint clear
    cdef double[POINTS] least
    cdef double[POINTS] nearest
    cdef double* x = row_buffer(state, thread)
    stop = min(stop, i + IN_ORDER_CHUNK)
    while i < stop:
        last = min(stop, i + POINTS)
        if state.group != NULL:
            last = end_of_group(state, i, last)
        size = last - i
        # one point at a time: with factors, or where few are left and a block would be mostly padding
        if (
            state.rows.weight != NULL or state.factor != NULL
            or (POINTS - size) * state.d * state.k > POINT_OVERHEAD * size
        ):
            label[i - start] = <int> cheapest(state, i, &cost[i - start], thread)
            i += 1
        else:
            for lane in range(POINTS):  # lanes that are left over repeat the last point
                read_row(&state.rows, min(i + lane, last - 1), x + lane, POINTS)
            clear = sc_least_block(
                x, state.d, state.columns, state.capacity, state.k, offset_of(state, i),
                state.rounding, least, nearest,
            )
            for lane in range(size):
                label[i + lane - start], cost[i + lane - start] = <int> nearest[lane], least[lane]
                if not clear:
                    label[i + lane - start] = <int> cheapest(
                        state, i + lane, &cost[i + lane - start], thread
                    )
            i += size


cdef void propose(
    const InOrderState* state, Py_ssize_t start, Py_ssize_t stop, int* label, double* cost
) noexcept nogil:
    """Find the cheapest cluster of each of the points start..stop-1, the first at a tie, and the least cost.

    OUT label, cost (stop - start,)
    """
    cdef Py_ssize_t chunk, n_chunks = (stop - start + IN_ORDER_CHUNK - 1) // IN_ORDER_CHUNK
    cdef bint pays = (stop - start) * state.d * state.k >= PAYS
    cdef ParallelLoop loop = begin_loop(n_chunks, state.threads if pays else 1)
    if loop.threads == 1:
        for chunk in range(n_chunks):
            propose_chunk(state, start, stop, label, cost, chunk, 0)
    else:
        for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            propose_chunk(state, start, stop, label, cost, chunk, begin_chunk(&loop))
    end_loop(&loop)


cdef void error_chunk(
    const InOrderState* state, const double* centers, const int* label, Py_ssize_t chunk, int thread
) noexcept nogil:
    """Add weighted squared distances of a chunk to the sum of this thread."""
    cdef Py_ssize_t i, start = chunk * IN_ORDER_CHUNK, stop = min(state.n, start + IN_ORDER_CHUNK)
    cdef double[IN_ORDER_CHUNK] distance
    cdef const double* x
    for i in range(start, stop):
        x = row_at(&state.rows, i, row_buffer(state, thread))
        distance[i - start] = squared_distance(x, centers + label[i] * state.d, state.d)
        if state.rows.weight != NULL:
            distance[i - start] *= state.rows.weight[i]
    accumulator_add(state.sums[thread].digit, distance, stop - start)


cdef double squared_error(const InOrderState* state, const double* centers, const int* label) noexcept nogil:
    """Weighted sum of squared distances to the assigned centers (k x d), rounded once.

    OUT state.sums[0] : the exact sum
    """
    cdef int thread
    # each thread adds up the chunks that it gets; sums are exact, so it does not matter which these are
    cdef Py_ssize_t chunk, n_chunks = (state.n + IN_ORDER_CHUNK - 1) // IN_ORDER_CHUNK
    cdef ParallelLoop loop = begin_loop(n_chunks, state.threads if state.n * state.d >= PAYS else 1)
    memset(state.sums, 0, state.threads * sizeof(Accumulator))
    for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
        error_chunk(state, centers, label, chunk, begin_chunk(&loop))
    end_loop(&loop)
    for thread in range(1, loop.threads):
        accumulator_merge(state.sums[0].digit, state.sums[thread].digit)
    return accumulator_round(state.sums[0].digit, 0, ACCUMULATOR_DIGITS)


cdef bint begin_scratch(InOrderState* state, int threads) noexcept nogil:
    """Scratch memory for so many threads; returns whether there was memory."""
    state.threads = threads
    state.buffers = <double*> take(&state.memory, threads * state.d, POINTS, sizeof(double))
    return state.buffers != NULL


cdef bint reserve_clusters(InOrderState* state, Py_ssize_t capacity, Py_ssize_t sets) noexcept nogil:
    """Raise the capacity for clusters, with ``sets`` rows of offsets; those there are stay. ``factor`` is not set.

    Returns whether there was memory.
    """
    cdef Py_ssize_t old = state.capacity, threads = state.threads
    if not (
        widen(&state.memory, <void**> &state.columns, state.d, old, capacity, sizeof(double))
        and widen(&state.memory, <void**> &state.offset, sets, old, capacity, sizeof(double))
        and widen(&state.memory, <void**> &state.costs, 2 * threads, old, capacity, sizeof(double))
    ):
        return False
    state.capacity, state.factors = capacity, state.costs + threads * capacity
    return True


cdef class InOrderSweep:
    """Points, clusters and scratch memory; the buffers of points belong to numpy arrays kept here."""

    def __dealloc__(self):
        free_all(&self.state.memory)

    cdef void attach(self, X, order, group, int threads, const double[::1] weight=None):
        """Set the points, visited in this order (None: as they are), and make scratch memory for so many threads.

        X : IN array (n, d);  order : IN array (n,), intp, or None
        group, weight : IN arrays (n,), int32 and float64, in the order of visit, or None
        """
        cdef const int[::1] groups
        cdef Py_ssize_t n = X.shape[0], d = X.shape[1]
        self.state.n, self.state.d, self.state.rows = n, d, rows_of(X, weight, order)
        if group is not None:
            groups = group
            self.state.group = &groups[0]
        if not begin_scratch(&self.state, threads):
            raise MemoryError
        self.digits = np.empty((threads, ACCUMULATOR_DIGITS), dtype=np.int64)
        self.state.sums = <Accumulator*> &self.digits[0, 0]
        self.point_arrays = [X, order, group, None if weight is None else weight.base]

    cdef void reserve(self, Py_ssize_t capacity, Py_ssize_t sets):
        """Raise the capacity for clusters, with ``sets`` rows of offsets; those there are stay."""
        # the old buffers are freed: no caller keeps a pointer into them across this call
        if not reserve_clusters(&self.state, capacity, sets):
            raise MemoryError

    cdef int check_signals(self, Py_ssize_t work) except -1 nogil:
        """Raise KeyboardInterrupt if Ctrl-C was pressed; that is looked for after every IN_ORDER_WORK multiply-adds."""
        return poll_signals(&self.work, work, IN_ORDER_WORK)


def assign(X, group, const double[:, ::1] centers, const double[:, ::1] offset, int n_threads, weight=None,
           const double[::1] factor=None, double rounding=-1.0):
    """Number of the center that minimizes offset + w ||x - c||^2 for each row x of X, the first at a tie: int32, (n,).

    X : IN array (n, d);  centers : IN array (k, d)
    offset : IN array (groups, k);  group : IN array (n,), int32: the row of offset for each row of X; or None: row 0
    weight : IN array (n,), the w; or None: 1 each
    factor : IN array (k,), a w for each center instead, without groups and weights; or None
    rounding : squared distance by which a center may be off; below 0: only equal costs tie
    """
    cdef InOrderSweep sweep = InOrderSweep()
    cdef Py_ssize_t k, start = 0, stop, n = X.shape[0]
    cdef int[::1] label = np.empty(n, dtype=np.int32)
    cdef double[::1] cost = np.empty(n)
    k = centers.shape[0]
    if k == 0 or centers.shape[1] != X.shape[1] or offset.shape[1] != k:
        raise ValueError(f"centers must be some, of {X.shape[1]} columns, each with offsets, got {centers.shape[0]} of "
                         f"{centers.shape[1]} columns and offsets for {offset.shape[1]}")
    if group is not None and n and not 0 <= np.min(group) <= np.max(group) < offset.shape[0]:
        raise ValueError(f"group must be the number of a row of offset, < {offset.shape[0]}")
    if factor is not None and (group is not None or weight is not None or factor.shape[0] != k):
        raise ValueError(f"factor must be of {k} centers, without groups and weights")
    sweep.attach(X, None, group, n_threads, weight)
    sweep.reserve(centers.shape[0], offset.shape[0])
    # these tables are only read, so they may be the caller's
    sweep.state.factor = NULL if factor is None else <double*> &factor[0]
    sweep.state.offset = <double*> &offset[0, 0]
    sweep.state.k, sweep.state.rounding = centers.shape[0], rounding
    for k in range(centers.shape[0]):
        set_center(&sweep.state, k, &centers[k, 0])
    with nogil:
        while start < n:
            stop = min(n, start + points_between_checks(&sweep.state))
            propose(&sweep.state, start, stop, &label[start], &cost[start])
            sweep.check_signals((stop - start) * sweep.state.d * sweep.state.k)
            start = stop
    return np.asarray(label)


def error_of(X, const int[::1] labels, const double[:, ::1] centers, int n_threads, weight=None):
    """Weighted sum of squared distances of rows of X (IN) to the centers (IN, k x d) of their labels, rounded once."""
    cdef InOrderSweep sweep = InOrderSweep()
    cdef double error
    if centers.shape[1] != X.shape[1] or labels.shape[0] != X.shape[0]:
        raise ValueError("centers and labels must match X")
    if X.shape[0] and not 0 <= np.min(labels) <= np.max(labels) < centers.shape[0]:
        raise ValueError(f"labels must be >= 0 and < {centers.shape[0]}")
    sweep.attach(X, None, None, n_threads, weight)
    with nogil:
        error = squared_error(&sweep.state, &centers[0, 0], &labels[0])
    return error
