"""Sweeps whose clusters come and go with single points, in the order of the points: D-Means and the hard HDP.

Every point takes the least of offset + factor * ||x - c||^2 over the clusters, or, in `propose` and where points have
weights, of offset + weight * ||x - c||^2. Proposals are made in parallel for a round of points, from the clusters as
they are, and taken up in order; a round ends where a cluster comes or goes, and the points after that one are proposed
anew. So the result is that of visiting one point after the other.
"""

from libc.stdint cimport int64_t
from libc.string cimport memset

from smallvar._sweeps.pool cimport PAYS, run
from smallvar._sweeps.rows cimport poll_signals, read_row, row_at, rows_of
from smallvar._sweeps.sums cimport (
    ACCUMULATOR_DIGITS, Accumulator, accumulator_add, accumulator_merge, accumulator_round,
)

import numpy as np

cdef enum:
    FEW = 100           # points go side by side where (empty lanes) * (values of centers) <= FEW * (points)


# Items of the loops that threads share out. An item is a chunk of points and writes to those, and to its thread's row
# of the scratch memory (space, costs) and of the exact sums.


cdef struct Proposals:      # for the points start..stop-1
    const Points* p
    const Table* t          # the clusters
    Py_ssize_t start
    Py_ssize_t stop
    int* label              # the cheapest cluster of each of them
    double* cost            # and its cost


cdef void propose_item(void* context, Py_ssize_t chunk, int slot) noexcept nogil:
    cdef const Proposals* a = <const Proposals*> context
    cdef const Points* p = a.p
    cdef const Table* t = a.t
    cdef Py_ssize_t k, l, last, points, i = a.start + chunk * CHUNK, stop = min(a.stop, i + CHUNK)
    cdef double second
    cdef double least[POINTS]
    cdef double arg[POINTS]
    cdef double* x = row_space(p, slot)
    cdef const double* offset = t.offset
    cdef double* factor = NULL if p.rows.weight == NULL else p.factors + slot * t.room
    while i < stop:
        last = min(stop, i + POINTS)
        if p.group != NULL:
            offset = t.offset + p.group[i] * t.room
            last = end_of_group(p, i, last)
        points = last - i
        if factor != NULL or (POINTS - points) * p.d * t.k > FEW * points:
            read_row(&p.rows, i, x, 1)
            if factor != NULL:
                for k in range(t.k):
                    factor[k] = p.rows.weight[i]
            a.label[i - a.start] = <int> sc_least(
                x, p.d, t.columns, t.room, t.k, offset, factor, p.costs + slot * t.room, &a.cost[i - a.start], &second
            )
            i += 1
        else:
            for l in range(POINTS):
                read_row(&p.rows, min(i + l, last - 1), x + l, POINTS)
            sc_least_block(x, p.d, t.columns, t.room, t.k, offset, least, arg)
            for l in range(points):
                a.label[i + l - a.start], a.cost[i + l - a.start] = <int> arg[l], least[l]
            i += points


cdef void propose(
    const Points* p, const Table* t, Py_ssize_t start, Py_ssize_t stop, int* label, double* cost
) noexcept nogil:
    """The cheapest cluster of the points start..stop-1, and its cost."""
    cdef Proposals a = Proposals(p, t, start, stop, label, cost)
    propose_by(propose_item, &a)


cdef void propose_by(void (*item)(void*, Py_ssize_t, int) noexcept nogil, Proposals* a) noexcept nogil:
    cdef Py_ssize_t size = a.stop - a.start
    run(item, a, 0, (size + CHUNK - 1) // CHUNK, a.p.threads if size * a.p.d * a.t.k >= PAYS else 1)


cdef void single_item(void* context, Py_ssize_t chunk, int slot) noexcept nogil:
    """As propose_item, one point at a time, with the factors and without groups."""
    cdef const Proposals* a = <const Proposals*> context
    cdef const Points* p = a.p
    cdef const Table* t = a.t
    cdef Py_ssize_t i, start = a.start + chunk * CHUNK
    cdef double second
    cdef const double* x
    for i in range(start, min(a.stop, start + CHUNK)):
        x = row_at(&p.rows, i, row_space(p, slot))
        a.label[i - a.start] = <int> sc_least(
            x, p.d, t.columns, t.room, t.k, t.offset, t.factor, p.costs + slot * t.room, &a.cost[i - a.start], &second
        )


cdef struct Errors:
    const Points* p
    const double* centers   # k x d
    const int* label        # n
    Accumulator* part              # of each slot: the sum over its chunks


cdef void error_item(void* context, Py_ssize_t chunk, int slot) noexcept nogil:
    cdef const Errors* a = <const Errors*> context
    cdef const Points* p = a.p
    cdef Py_ssize_t i, start = chunk * CHUNK, stop = min(p.n, start + CHUNK)
    cdef double[CHUNK] own
    for i in range(start, stop):
        own[i - start] = square(p, row_at(&p.rows, i, row_space(p, slot)), a.centers + a.label[i] * p.d)
        if p.rows.weight != NULL:
            own[i - start] *= p.rows.weight[i]
    accumulator_add(a.part[slot].digit, own, stop - start)


cdef double squared_error(const Points* p, const double* centers, const int* label, Accumulator* part) noexcept nogil:
    """Weighted sum of squared distances to the own centers (k x d), rounded once.  part: scratch, one a thread."""
    cdef int t
    cdef Errors a = Errors(p, centers, label, part)
    memset(part, 0, p.threads * sizeof(Accumulator))
    run(error_item, &a, 0, (p.n + CHUNK - 1) // CHUNK, p.threads if p.n * p.d >= PAYS else 1)
    for t in range(1, p.threads):
        accumulator_merge(part[0].digit, part[t].digit)
    return accumulator_round(part[0].digit, 0, ACCUMULATOR_DIGITS)


cdef class Rounds:
    """Points and clusters; the buffers belong to numpy arrays kept here."""

    cdef void attach(self, X, order, group, int threads, const double[::1] weight=None):
        cdef const int[::1] groups
        cdef double[::1] rows
        cdef Py_ssize_t n = X.shape[0], d = X.shape[1]
        self.arrays = [X, order, group, None if weight is None else weight.base]
        self.p.n, self.p.d, self.p.threads = n, d, threads
        self.p.rows = rows_of(X, weight, order)
        if group is not None:
            groups = group
            self.p.group = &groups[0]
        rows = np.empty(threads * d * POINTS)
        self.arrays.append(rows)
        self.p.space = &rows[0]
        self.proposal = np.empty(min(n, <Py_ssize_t> LONGEST), dtype=np.int32)
        self.cost = np.empty(min(n, <Py_ssize_t> LONGEST))

    cdef void reserve(self, Py_ssize_t room, Py_ssize_t sets):
        """Room for more clusters; those there are stay."""
        cdef double[:, ::1] columns, old_columns, offset, old_offset
        cdef double[::1] factor, costs
        cdef Py_ssize_t k = self.t.k
        columns = np.zeros((self.p.d, room))
        offset = np.zeros((sets, room))
        factor = np.ones(room)
        if k:
            old_columns, old_offset, old_factor = self.table_arrays[:3]
            np.asarray(columns)[:, :k] = np.asarray(old_columns)[:, :k]
            np.asarray(offset)[:, :k] = np.asarray(old_offset)[:, :k]
            np.asarray(factor)[:k] = np.asarray(old_factor)[:k]
        costs = np.empty(2 * self.p.threads * room)
        self.table_arrays = [columns, offset, factor, costs]
        self.t.columns, self.t.offset, self.t.room = &columns[0, 0], &offset[0, 0], room
        self.t.factor = &factor[0]
        self.p.costs, self.p.factors = &costs[0], &costs[self.p.threads * room]

    cdef void put(self, Py_ssize_t k, const double* center) noexcept nogil:
        cdef Py_ssize_t j
        for j in range(self.p.d):
            self.t.columns[j * self.t.room + k] = center[j]

    cdef Py_ssize_t span(self) noexcept nogil:
        """Points of the next round: not more than are done before the next check for signals."""
        return min(self.round, max(<Py_ssize_t> CHUNK, WORK // (self.p.d * (self.t.k + 4))))

    cdef int check_signals(self, Py_ssize_t work) except -1 nogil:
        """Raise KeyboardInterrupt if Ctrl-C was pressed, after some tenths of a second of work."""
        return poll_signals(&self.work, work, WORK)


def assign(X, group, const double[:, ::1] centers, const double[:, ::1] offset, int n_threads, weight=None,
           const double[::1] factor=None):
    """The cheapest of the centers (IN, k x d) for each row of X (IN), at w ||x - c||^2 + offset of its group (IN).

    group : IN array (n,), int32, rows of offset; or None: the only one
    weight : IN array (n,), the w; or None: 1 each
    factor : IN array (k,), the w of the centers instead, without groups; or None
    """
    cdef Rounds rounds = Rounds()
    cdef Proposals a
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
    rounds.attach(X, None, group, n_threads, weight)
    rounds.reserve(centers.shape[0], offset.shape[0])
    rounds.t.factor = NULL if factor is None else <double*> &factor[0]
    rounds.t.offset = <double*> &offset[0, 0]
    rounds.t.k = centers.shape[0]
    for k in range(centers.shape[0]):
        rounds.put(k, &centers[k, 0])
    with nogil:
        while start < n:
            rounds.round = LONGEST
            stop = min(n, start + rounds.span())
            if factor is None:
                propose(&rounds.p, &rounds.t, start, stop, &label[start], &cost[start])
            else:
                a = Proposals(&rounds.p, &rounds.t, start, stop, &label[start], &cost[start])
                propose_by(single_item, &a)
            rounds.check_signals((stop - start) * rounds.p.d * rounds.t.k)
            start = stop
    return np.asarray(label)


def error_of(X, const int[::1] labels, const double[:, ::1] centers, int n_threads, weight=None):
    """Weighted sum of squared distances of rows of X (IN) to their centers (IN, k x d), rounded once."""
    cdef Rounds rounds = Rounds()
    cdef double error
    cdef int64_t[:, ::1] digits = np.empty((n_threads, ACCUMULATOR_DIGITS), dtype=np.int64)
    if centers.shape[1] != X.shape[1] or labels.shape[0] != X.shape[0]:
        raise ValueError("centers and labels must match X")
    if X.shape[0] and not 0 <= np.min(labels) <= np.max(labels) < centers.shape[0]:
        raise ValueError(f"labels must be >= 0 and < {centers.shape[0]}")
    rounds.attach(X, None, None, n_threads, weight)
    with nogil:
        error = squared_error(&rounds.p, &centers[0, 0], &labels[0], <Accumulator*> &digits[0, 0])
    return error
