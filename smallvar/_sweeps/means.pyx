"""Sums and means of the clusters of sweeps over nearest centers, and how centers, bounds and tables follow them."""

from cython.parallel cimport prange
from libc.math cimport isfinite
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

from smallvar._sweeps.nearest cimport choose_fast_centers, clear_fast_centers, pack_centers, threads_worth
from smallvar._sweeps.memory cimport take
from smallvar._sweeps.nearest_sweep cimport NearestSweep, Sweep, reserve_fast_bounds
from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport is_sparse, poll_signals, refuse_rows, start_of
from smallvar._sweeps.sparse cimport exact_distances_of_chunk
from smallvar._sweeps.state cimport (
    BIG,
    CHUNK,
    WORK,
    Bounds,
    ChunkResults,
    State,
    knows_center_distances,
    memory_of,
    upper_bound,
    weight_at,
)
from smallvar._sweeps.sums cimport (
    ACCUMULATOR_DIGITS,
    MAX_SUM_THREADS,
    Sums,
    accumulator_add,
    accumulator_merge,
    accumulator_round,
    move_entries,
    move_points,
    move_rows,
    sums_clear,
    sums_copy,
    sums_length,
    sums_t,
    sums_quotient,
    sums_unite,
    sums_weight,
)
from smallvar._sweeps.tolerances cimport C_ZERO_RESULTANT

import numpy as np

ZERO_RESULTANT = C_ZERO_RESULTANT  # the same number for Python


# ---- chunks of the loops: each writes to its points, or to what its thread owns --------------------------------------


cdef void exact_distances(
    const State* state, Py_ssize_t chunk, int thread, bint sparse, const Py_ssize_t* order, double* out
) noexcept nogil:
    """Exact squared distances of a chunk's points to their centers; of sparse rows points are taken by ``order``.

    OUT out: n, of which those of the chunk are set
    """
    if sparse:
        exact_distances_of_chunk(&state.points.rows, state.centers.coordinates, state.points.labels, order, chunk,
                                 <double*> memory_of(state, thread), out)
    else:
        state.backend.squares(state, chunk, NULL, out + chunk * CHUNK, thread)


cdef void relabel_chunk(State* state, Py_ssize_t chunk, const int* remap) noexcept nogil:
    """Labels of a chunk by the new number of each cluster; where that is -1, label 0 and no bound."""
    cdef Py_ssize_t i
    cdef int z
    for i in range(chunk * CHUNK, min(state.points.n, (chunk + 1) * CHUNK)):
        z = remap[state.points.labels[i]]
        state.points.labels[i] = max(0, z)
        if z < 0 and state.bounds.upper_bounds != NULL:
            state.bounds.upper_bounds[i] = BIG


cdef void add_squares_of_chunk(
    const State* state, Py_ssize_t chunk, const double* place, int64_t* digits, int thread
) noexcept nogil:
    """Weighted squared distances of a chunk's points from a place, or from their centers (NULL), to an exact sum."""
    cdef double[CHUNK] square
    cdef Py_ssize_t i, start = chunk * CHUNK, size = min(state.points.n - start, <Py_ssize_t> CHUNK)
    state.backend.squares(state, chunk, place, square, thread)
    if state.points.rows.weight != NULL:
        for i in range(size):
            square[i] *= state.points.rows.weight[start + i]
    accumulator_add(digits, square, size)


cdef void add_moves_of_chunk(const State* state, Py_ssize_t chunk, const sums_t* sums) noexcept nogil:
    """Add the moves that a chunk lists to the sums."""
    cdef Py_ssize_t[CHUNK] starts
    cdef int[CHUNK] joined
    cdef double[CHUNK] weights
    cdef Py_ssize_t m, i, n = state.results.n_moved[chunk]
    for m in range(n):
        i = chunk * CHUNK + state.results.moved[chunk * CHUNK + m]
        starts[m] = start_of(&state.points.rows, i)
        joined[m] = state.points.labels[i]
        weights[m] = weight_at(state, i)
    move_rows(&state.points.rows, n, starts, state.results.moved_from + chunk * CHUNK, joined, weights, sums)


cdef void add_chunk(const State* state, Py_ssize_t chunk, bint moves, const sums_t* sums) noexcept nogil:
    """Add all points of a chunk to the sums, or only the moves that it lists."""
    if moves:
        add_moves_of_chunk(state, chunk, sums)
    else:
        move_points(&state.points.rows, chunk * CHUNK, min(state.points.n, (chunk + 1) * CHUNK), NULL,
                    state.points.labels + chunk * CHUNK, sums)


cdef void add_members(
    const State* state, Py_ssize_t k, const Py_ssize_t* first, const Py_ssize_t* member, const sums_t* sums
) noexcept nogil:
    """Add the sparse points that have joined cluster k to its sum, and take off those that have left it.

    first : where the members of each cluster begin;  member : points, or ~point where one has left
    """
    cdef Py_ssize_t m
    for m in range(first[k], first[k + 1]):
        if member[m] < 0:
            move_entries(&state.points.rows, ~member[m], <int> k, -1.0, sums)
        else:
            move_entries(&state.points.rows, member[m], <int> k, 1.0, sums)


# ---- centers ---------------------------------------------------------------------------------------------------------


cdef int center_of(
    const sums_t* sums, Py_ssize_t k, bint spherical, double* center, double* error
) noexcept nogil:
    """Compute the center of cluster k; returns 1, or 0: it has no members, or -1: these have no common direction.

    INOUT error : sum w ||x||^2, of which the part that the center explains is taken
    """
    cdef double mean, size, weight, squares = 0.0
    cdef Py_ssize_t j
    if sums.count[k] <= 0.0:
        return 0
    size = weight = sums_weight(sums, k)
    if spherical:
        size = sums_length(sums, k)
        error[0] += weight
        if size <= C_ZERO_RESULTANT * weight:
            return -1
        error[0] -= 2.0 * size
    for j in range(sums.d):
        mean = sums_quotient(sums, k, j, size)
        squares += mean * mean
        center[j] = sums.origin[j] + mean
    if not spherical:
        error[0] -= weight * squares
    return 1


cdef void shift_center(
    Sweep* sweep, const sums_t* sums, Py_ssize_t k, Py_ssize_t kept, const double* center
) noexcept nogil:
    """Cluster k goes on as number kept, not above k, with this center."""
    cdef State* state = &sweep.state
    cdef double* coordinates = state.centers.coordinates
    cdef double t, shift = 0.0
    cdef Py_ssize_t j, d = state.points.d
    for j in range(d):
        t = center[j] - coordinates[k * d + j]
        shift += t * t
        coordinates[kept * d + j] = center[j]
    sweep.remap[k] = <int> kept
    sums_copy(sums, kept, k)
    state.bounds.center_shift[kept] = upper_bound(shift, state.frame.scale)
    state.bounds.last_new_center_distances[kept] = <float> 2.0 * state.bounds.new_center_half_distances[k]


cdef double shift_centers(
    Sweep* sweep, const sums_t* sums, bint spherical, double total, double* mean, Py_ssize_t* n_unassigned
) noexcept nogil:
    """Centers from sums, numbered anew without those that have none; returns the error.

    With x from the origin, w_c the sum of w in cluster c and S_c that of w x, the error is
    sum w ||x||^2 - sum_c ||S_c||^2 / w_c. For centers of length 1 it is sum w (||x||^2 + 1) - 2 sum_c ||S_c||. A
    cluster where S_c is zero costs the same wherever its center is: it is dropped, its points get label 0 and are
    counted as unassigned. If none has a direction, the first one stays where it is.

    total : sum of w ||x||^2;  mean : d, scratch
    OUT n_unassigned;  sweep.state.centers.n: how many are left, to be followed by follow_centers
    """
    cdef State* state = &sweep.state
    cdef double error = total
    cdef Py_ssize_t k, kept = 0, first = -1
    cdef int outcome
    n_unassigned[0] = 0
    for k in range(state.centers.n):
        sweep.remap[k] = -1
        outcome = center_of(sums, k, spherical, mean, &error)
        if outcome > 0:
            shift_center(sweep, sums, k, kept, mean)
            kept += 1
        elif outcome < 0:
            n_unassigned[0] += <Py_ssize_t> sums.count[k]
            first = k if first < 0 else first
    if first >= 0 and kept == 0:
        n_unassigned[0] -= <Py_ssize_t> sums.count[first]
        shift_center(sweep, sums, first, 0, state.centers.coordinates + first * state.points.d)
        kept = 1
    state.centers.n = kept
    return error


cdef void follow_centers(
    Sweep* sweep, Py_ssize_t n_before, Py_ssize_t n_after, bint one_is_new
) noexcept nogil:
    """All centers have moved, and some may be gone: labels, bounds and tables over centers follow.

    n_before, n_after : centers at the start and at the end of the sweep
    one_is_new : the last center was opened by open_farthest
    """
    cdef State* state = &sweep.state
    pack_centers(state, 0, sweep.threads)
    if state.centers.n < n_after:
        clear_fast_centers(state)
        relabel(state, sweep.remap, sweep.threads)
    state.bounds.opened = n_after > n_before
    # only if a sweep has taken the last shifts off: there is one column of shifts, that of this move
    state.bounds.valid = state.bounds.upper_bounds != NULL and state.bounds.shifts_taken
    if state.bounds.opened and not one_is_new and not knows_center_distances(state):
        state.bounds.valid = False
    state.bounds.shifts_taken = False
    update_tables(sweep, one_is_new)


cdef void update_tables(Sweep* sweep, bint one_is_new) noexcept nogil:
    """The tables over centers, and the fast centers, after all centers have moved."""
    cdef State* state = &sweep.state
    update_half_distances(state, sweep.threads)
    if state.bounds.valid and (one_is_new or state.centers.n >= sweep.min_fast_centers):
        reserve_fast_bounds(sweep)
    choose_fast_centers(state, state.centers.n - 1 if one_is_new else -1, sweep.min_fast_centers)


cdef void relabel(State* state, const int* remap, int n_threads) noexcept nogil:
    """Labels after clusters were dropped. Points of such a cluster get label 0 and no bound."""
    cdef Py_ssize_t chunk, n_chunks = (state.points.n + CHUNK - 1) // CHUNK
    cdef ParallelLoop loop = begin_loop(n_chunks, threads_worth(state, state.points.n, n_threads))
    for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
        begin_chunk(&loop)
        relabel_chunk(state, chunk, remap)
    end_loop(&loop)


cdef Py_ssize_t drop_empty_centers(Sweep* sweep, const sums_t* sums) noexcept nogil:
    """Forget clusters without a member of positive weight; returns how many are left. The sums keep their numbers."""
    cdef State* state = &sweep.state
    cdef Py_ssize_t k, d = state.points.d, kept = 0, n = state.centers.n
    cdef double* coordinates = state.centers.coordinates
    for k in range(n):
        sweep.remap[k] = <int> kept if sums.count[k] > 0.0 else -1
        if sums.count[k] > 0.0:  # kept <= k: none is overwritten before it is read
            memcpy(coordinates + kept * d, coordinates + k * d, d * sizeof(double))
            kept += 1
    if kept < n:
        state.centers.n = kept
        relabel(state, sweep.remap, sweep.threads)
        pack_centers(state, 0, sweep.threads)
        clear_fast_centers(state)
        state.bounds.valid = False
    return kept


cdef void reduce_to_nearest(State* state, Py_ssize_t first, float* table, int n_threads) noexcept nogil:
    """table[k] = min(table[k], distance from center k to the nearest other one from ``first`` on), for all k."""
    cdef Py_ssize_t n = state.centers.n
    state.backend.reduce_to_nearest(state, first, n, table, threads_worth(state, n, n_threads))


cdef void update_half_distances(State* state, int n_threads) noexcept nogil:
    """The tables of half the distances between centers, after all centers have moved."""
    cdef Bounds* bounds = &state.bounds
    cdef Py_ssize_t k, n = state.centers.n
    # with very many centers the table would take as long as a sweep
    cdef bint pays = bounds.upper_bounds != NULL and knows_center_distances(state) and 4 * n <= state.points.n
    for k in range(n):
        bounds.new_center_half_distances[k] = BIG
        # BIG: to be reduced, or there is no other center; 0: not known
        bounds.center_half_distances[k] = BIG if pays or n == 1 else <float> 0.0
    if pays:
        reduce_to_nearest(state, 0, bounds.center_half_distances, n_threads)
    for k in range(n):
        bounds.center_half_distances[k] *= <float> 0.5


cdef Py_ssize_t count_moves(const Sweep* sweep) noexcept nogil:
    """How many moves the chunks list: points of positive weight with another label, see MeansSweep.moved."""
    cdef Py_ssize_t c, total = 0
    for c in range(sweep.n_chunks):
        total += sweep.state.results.n_moved[c]
    return total


def next_centers(Sums sums, const double[:, ::1] centers, double total, bint spherical):
    """Centers, remap, error and number of unassigned points, as move_centers would have them from these sums.

    sums : of all clusters
    centers : IN array (k, d): where they were
    total : sum of w ||x - origin||^2
    """
    cdef Py_ssize_t k, kept = 0, first = -1, unassigned = 0
    cdef double error = total
    cdef double[:, ::1] after = np.empty((centers.shape[0] + 1, centers.shape[1]))
    cdef int[::1] remap = np.full(centers.shape[0], -1, dtype=np.int32)
    cdef int outcome
    for k in range(centers.shape[0]):
        outcome = center_of(&sums.table, k, spherical, &after[kept, 0], &error)
        if outcome > 0:
            remap[k] = <int> kept
            kept += 1
        elif outcome < 0:
            unassigned += <Py_ssize_t> sums.table.count[k]
            first = k if first < 0 else first
    if first >= 0 and kept == 0:  # as in shift_centers
        unassigned -= <Py_ssize_t> sums.table.count[first]
        after[0] = centers[first]
        remap[first] = 0
        kept = 1
    return np.asarray(after)[:kept].copy(), np.asarray(remap), error, unassigned


cdef class MeansSweep(NearestSweep):
    """The sums and the means of the clusters of a sweep over nearest centers; for dense and sparse rows.

    ``move_centers`` ends a sweep. Parameters are those of NearestSweep, and

    frame : also has ``layout``, the Layout of the sums
    spherical : bool, points have length 1, and so have centers: sums divided by their length, not by their weight.
        The layout of the frame must take sums from 0.
    """

    def __init__(self, *args, bint spherical=False):
        super().__init__(*args)
        self.spherical = spherical
        self.mean = <double*> take(&self.memory, 1, self.state.points.d, sizeof(double))
        if self.mean == NULL:
            raise MemoryError(f"there is no memory for a row of {self.state.points.d} columns")
        self.thread_sums = []
        self.total = -1.0

    def moved(self):
        """Points of positive weight that got another label from ``assign`` or ``create`` in this sweep, or had none.

        Where ``create`` opened clusters, not those that joined them.
        """
        return count_moves(&self.sweep) + self.n_unassigned

    def move_centers(self):
        """End the sweep: means from sums, empty clusters dropped, bounds and tables made ready for the next sweep.

        Returns sum_i w_i ||x_i - mu_{z_i}||^2 of the present labels and the new means, from the sums.
        """
        self.present_sums()
        if self.total < 0.0:
            self.total = self.sum_squares(self.sums.table.origin)
        return self.end_sweep()

    cdef double end_sweep(self) except? -1.0:
        """``move_centers`` from the sums as they are."""
        cdef double error
        cdef Py_ssize_t n_after = self.state.centers.n
        with nogil:
            error = shift_centers(
                &self.sweep, &self.sums.table, self.spherical, self.total, self.mean, &self.n_unassigned
            )
            if self.n_unassigned > 0:
                self.have_sums = False  # these points get label 0, and the sum of that cluster is without them
            follow_centers(&self.sweep, self.n_before, n_after, self.farthest_point >= 0)
        if not isfinite(error):
            refuse_rows()
        self.n_before = self.state.centers.n
        self.farthest_point = -1
        return error

    def present_sums(self):
        """Sums of the present labels, from the listed moves where these are few, else from all points: not a copy.

        The list of moves is empty afterward.
        """
        cdef Py_ssize_t moved = count_moves(&self.sweep)
        cdef bint opened_in_order = self.state.centers.n > self.n_before and self.farthest_point < 0
        if not self.have_sums or opened_in_order or 2 * moved > self.state.points.n:
            self.add_all()
        elif moved > 0 or self.farthest_point >= 0:
            self.add_moves(moved)
        self.farthest_is_added = True
        memset(self.state.results.n_moved, 0, self.n_chunks * sizeof(int))
        return self.sums

    def drop_empty(self):
        """Forget clusters without a member of positive weight; the other centers stay where they are."""
        cdef Py_ssize_t kept, n = self.state.centers.n
        self.add_all()
        kept = drop_empty_centers(&self.sweep, &self.sums.table)
        self.n_before = kept
        self.have_sums = False  # they have the old numbers, and moves that are still listed are in them already
        return kept < n

    def cluster_sums(self):
        """The sums of the clusters as they are labeled now: not a copy."""
        self.add_all()
        self.have_sums = False  # moves that are still listed are in these sums already
        return self.sums

    def assigned_distances(self):
        """Exact squared distance of each point to its center, (n,)."""
        cdef double[::1] out = np.empty(self.state.points.n)
        cdef const State* state = self.state
        cdef Py_ssize_t chunk, first = 0, last
        cdef int threads = self.threads_for(state.points.n)
        cdef bint sparse = is_sparse(&state.points.rows)
        # sparse points of one cluster lie together in tiles
        cdef Py_ssize_t[::1] order = np.argsort(self.labels, kind="stable") if sparse else np.zeros(1, dtype=np.intp)
        cdef ParallelLoop loop
        with nogil:
            while first < self.n_chunks:
                last = min(self.n_chunks, first + self.chunks_of_rows())
                loop = begin_loop(last - first, threads)
                for chunk in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                    exact_distances(state, chunk, begin_chunk(&loop), sparse, &order[0], &out[0])
                end_loop(&loop)
                self.check_signals((last - first) * CHUNK)
                first = last
        return np.asarray(out)

    def squared_error(self):
        """Sum of w ||x - c||^2, c the assigned center: each product is a float64, their exact sum is rounded once."""
        return self.sum_squares(NULL)

    def squares(self, bint assigned):
        """The exact sum of the weighted squared distances to the assigned centers, or to the origin: int64 digits.

        Those of several statistics of the rows can be added; see Stream.
        """
        return self.squares_digits(NULL if assigned else self.sums.table.origin)

    cdef double sum_squares(self, const double* place) except? -1.0:
        """Sum of the squared distances to the assigned centers (NULL) or to one place."""
        cdef int64_t[::1] digits = self.squares_digits(place)
        return accumulator_round(&digits[0], 0, ACCUMULATOR_DIGITS)

    cdef squares_digits(self, const double* place):
        """The same as the digits of an exact sum."""
        cdef const State* state = self.state
        cdef int threads = self.threads_for(state.points.n), thread
        cdef int64_t[:, ::1] digits = np.zeros((threads, ACCUMULATOR_DIGITS), dtype=np.int64)
        cdef Py_ssize_t chunk, t, first = 0, last
        cdef ParallelLoop loop
        with nogil:
            while first < self.n_chunks:
                last = min(self.n_chunks, first + self.chunks_of_rows())
                loop = begin_loop(last - first, threads)
                for chunk in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                    thread = begin_chunk(&loop)
                    add_squares_of_chunk(state, chunk, place, &digits[thread, 0], thread)
                end_loop(&loop)
                self.check_signals((last - first) * CHUNK)
                first = last
            for t in range(1, threads):  # integers: it does not matter which thread had which chunk
                accumulator_merge(&digits[0, 0], &digits[t, 0])
        return np.asarray(digits[0])

    cdef reserve_sums(self, Py_ssize_t k):
        """Memory for the sums of k clusters; those that are there stay."""
        if self.sums is None:
            self.sums = Sums(self.frame.layout, k)
        self.sums.reserve(k)

    cdef add_all(self):
        """Sums of all points."""
        self.reserve_sums(self.state.centers.n)
        sums_clear(&self.sums.table, 0, self.state.centers.n)
        self.add(False, self.state.points.n)
        self.have_sums = True

    cdef add_moves(self, Py_ssize_t moved):
        """Sums changed by the points that moved, each counted out of its old and into its new cluster."""
        cdef State* state = self.state
        cdef Py_ssize_t n = state.centers.n, chunk, m
        cdef bint listed = False, opened = self.farthest_point >= 0 and not self.farthest_is_added
        self.reserve_sums(n)
        if opened:
            sums_clear(&self.sums.table, self.n_before, n)
        self.add(True, moved)
        if opened:  # the point is listed if it had moved before it opened its own cluster
            chunk = self.farthest_point // CHUNK
            for m in range(state.results.n_moved[chunk]):
                listed |= chunk * CHUNK + state.results.moved[chunk * CHUNK + m] == self.farthest_point
            if not listed:
                self.move_point(self.farthest_point, self.farthest_left, state.points.labels[self.farthest_point])

    cdef add(self, bint moves, Py_ssize_t points):
        """Add the points of all chunks, or only the moves that these list, to the sums: ``points`` in all."""
        cdef sums_t[MAX_SUM_THREADS] sums
        cdef const State* state = self.state
        cdef int threads = self.threads_for_sums(points)
        cdef Py_ssize_t chunk, first = 0, last
        cdef ParallelLoop loop
        if is_sparse(&state.points.rows):
            self.add_sparse(moves, points)
            return
        self.begin_sums(sums, threads)
        with nogil:
            while first < self.n_chunks:
                last = min(self.n_chunks, first + self.chunks_of_rows())
                loop = begin_loop(last - first, threads)
                if loop.threads == 1:
                    for chunk in range(first, last):
                        add_chunk(state, chunk, moves, &sums[0])
                else:
                    for chunk in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                        add_chunk(state, chunk, moves, &sums[begin_chunk(&loop)])
                end_loop(&loop)
                self.check_signals((last - first) * CHUNK)
                first = last
            self.end_sums(sums, threads)

    cdef add_sparse(self, bint moves, Py_ssize_t points):
        """``add`` for sparse rows: cluster by cluster, since sums of each thread would take too much memory."""
        cdef const State* state = self.state
        cdef Py_ssize_t k = 0, last, c, n = state.centers.n
        cdef Py_ssize_t[::1] first, member
        cdef Py_ssize_t step = max(<Py_ssize_t> self.n_threads, WORK // (state.points.d * max(1, points // n)))
        cdef int threads = self.n_threads if 8 * points * state.points.d > PAYS else 1  # 8: see threads_for_sums
        cdef ParallelLoop loop
        first, member = self.members(moves)
        with nogil:
            while k < n:
                last = min(n, k + step)
                loop = begin_loop(last - k, threads)
                if loop.threads == 1:
                    for c in range(k, last):
                        add_members(state, c, &first[0], &member[0], &self.sums.table)
                else:
                    for c in prange(k, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                        begin_chunk(&loop)
                        add_members(state, c, &first[0], &member[0], &self.sums.table)
                end_loop(&loop)
                poll_signals(&self.work, 1, 0)  # every time: a step is about WORK
                k = last

    cdef tuple members(self, bint moves):
        """Where the members of each cluster begin, (k + 1,), and these, by cluster, ~i for a point that left."""
        labels = self.labels
        points = np.arange(len(labels))
        if moves:
            i, left = self.listed_moves()
            labels = np.concatenate([left, labels[i]])
            points = np.concatenate([~i, i])
        order = np.argsort(labels, kind="stable")
        first = np.zeros(self.state.centers.n + 1, dtype=np.intp)
        np.cumsum(np.bincount(labels, minlength=self.state.centers.n), out=first[1:])
        return first, np.append(points[order], 0).astype(np.intp)

    cdef tuple listed_moves(self):
        """The points that the chunks list as moved, and the labels these had."""
        cdef const ChunkResults* results = &self.state.results
        cdef Py_ssize_t c, m, q = 0, total = count_moves(&self.sweep)
        cdef Py_ssize_t[::1] points = np.empty(total, dtype=np.intp)
        cdef int[::1] left = np.empty(total, dtype=np.int32)
        for c in range(self.n_chunks):
            for m in range(c * CHUNK, c * CHUNK + results.n_moved[c]):
                points[q], left[q] = c * CHUNK + results.moved[m], results.moved_from[m]
                q += 1
        return np.asarray(points), np.asarray(left)

    cdef int threads_for_sums(self, Py_ssize_t points):
        """How many threads are worth while where so many points are added to sums.

        To add a number takes as long as 8 multiply-adds. The sums of the threads are united cluster by cluster, which
        pays where there are 8 points or more for each.
        """
        if 8 * points * self.state.points.d > PAYS and points > 8 * self.state.centers.n:
            return min(self.n_threads, <int> MAX_SUM_THREADS)
        return 1

    cdef begin_sums(self, sums_t* sums, int threads):
        """Sums for each thread to add to: the first thread has those of the clusters, the others begin at zero."""
        cdef Py_ssize_t t, n = self.state.centers.n
        while len(self.thread_sums) < threads - 1:
            self.thread_sums.append(Sums(self.frame.layout, n))
        sums[0] = self.sums.table
        for t in range(1, threads):
            (<Sums> self.thread_sums[t - 1]).reserve(n)
            sums[t] = (<Sums> self.thread_sums[t - 1]).table
            sums_clear(&sums[t], 0, n)

    cdef void end_sums(self, const sums_t* sums, int threads) noexcept nogil:
        """Add the sums of all threads to those of the clusters; sums are exact, so the order does not matter."""
        cdef Py_ssize_t k, t
        for t in range(1, threads):
            for k in range(self.state.centers.n):
                sums_unite(&sums[0], k, &sums[t], k)

    cdef void move_point(self, Py_ssize_t i, int left, int joined) noexcept nogil:
        """Point i goes from one cluster to another one."""
        move_points(&self.state.points.rows, i, i + 1, &left, &joined, &self.sums.table)

    def recount(self):
        """The next sums are made of all points: moves of more than one sweep are not listed."""
        self.have_sums = False
