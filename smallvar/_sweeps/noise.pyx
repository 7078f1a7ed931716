"""Sweeps of DP-means with noise: a row beyond a price from every center is in no cluster."""

from cython.parallel cimport prange
from libc.stdint cimport int64_t
from libc.string cimport memset

from smallvar._sweeps.dpmeans cimport DPSweep, penalty_limit
from smallvar._sweeps.parallel cimport ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport Rows, point, rows_of, start_of, weight_of
from smallvar._sweeps.state cimport CHUNK, ChunkResults, State, squared_distance
from smallvar._sweeps.sums cimport (
    MAX_SUM_THREADS,
    ACCUMULATOR_DIGITS,
    move_rows,
    sums_clear,
    sums_t,
    accumulator_add,
    accumulator_round,
    accumulator_merge,
)

import numpy as np


cdef void mark_chunk(
    State* state, const Rows* rows, Py_ssize_t chunk, int* shown, const sums_t* sums, int64_t* digits
) noexcept nogil:
    """Labels of a chunk from the nearest centers and the list of rows beyond the price; sums follow changes.

    Sets state.results.n_moved[chunk], too.

    rows : with the weights
    INOUT shown : n: clusters, -1: noise
    INOUT sums, digits : of this thread: sums, and an accumulator of changes of sum w ||x - origin||^2 in clusters
    """
    cdef int[CHUNK] now
    cdef Py_ssize_t[CHUNK] at
    cdef int[CHUNK] left
    cdef int[CHUNK] joined
    cdef double[CHUNK] weights
    cdef double[CHUNK] square
    cdef ChunkResults* results = &state.results
    cdef Py_ssize_t start = chunk * CHUNK, size = min(state.points.n - start, <Py_ssize_t> CHUNK), i, m = 0, q = 0
    cdef double weight
    # the sweep gives every row a label; those beyond the price of that center are noise
    for i in range(size):
        now[i] = state.points.labels[start + i]
    for i in range(results.n_exceeding[chunk]):
        now[results.exceeding[start + i]] = -1
    for i in range(size):
        if now[i] == shown[start + i]:
            continue
        weight = weight_of(rows, start + i)
        if weight > 0.0:
            at[m] = start_of(rows, start + i)
            left[m] = shown[start + i]
            joined[m] = now[i]
            weights[m] = weight
            # rows that become noise, or no longer are, change the total of squares; a move between clusters does not
            if left[m] < 0 or now[i] < 0:
                weight = -weight if now[i] < 0 else weight
                if rows.single:
                    square[q] = squared_distance(
                        point(<const float*> rows.x, rows, start + i), rows.col, sums.origin, rows.d
                    )
                else:
                    square[q] = squared_distance(
                        point(<const double*> rows.x, rows, start + i), rows.col, sums.origin, rows.d
                    )
                square[q] *= weight
                q += 1
            m += 1
        shown[start + i] = now[i]
    # in place of the moves between nearest centers, which the sums do not follow
    results.n_moved[chunk] = <int> m
    move_rows(rows, m, at, left, joined, weights, sums)
    accumulator_add(digits, square, q)


cdef class NoiseSweep(DPSweep):
    """Rows beyond a price from every center are noise: they have label -1, and no part in means.

    A sweep is ``assign``, then ``move_centers``. Weights do not matter to the nearest centers, nor to which rows are
    far: they are in the sums alone.

    X : IN array (n, d);  weight : IN array (n,) or None
    frame : where the rows lie, as for DPSweep, with the layout of the sums
    capacity : int, room for this many centers
    """

    cdef Rows weighted              # the rows with their weights
    cdef object shown_array
    cdef int* shown                 # n: labels, -1: noise, as in the sums; state.points.labels: nearest centers
    cdef object wide                # digits of sum w ||x - origin||^2 over the rows in clusters

    def __init__(self, X, const double[::1] weight, frame, int n_threads, Py_ssize_t capacity):
        cdef int[::1] shown
        self.shown_array = shown = np.full(X.shape[0], -1, dtype=np.int32)
        super().__init__(X, None, None, np.zeros(X.shape[0], dtype=np.int32), frame, n_threads, capacity, True)
        self.weighted = rows_of(X, weight, None)
        self.state.frame.rounding = 0.0      # whether a row is noise is not to depend on how far away another one is
        self.arrays.append(weight)
        self.shown = &shown[0]

    def start(self, const double[:, ::1] centers):
        """Begin at these centers; all rows are noise."""
        super().start(centers)
        self.reserve_sums(self.state.centers.n)
        sums_clear(&self.sums.table, 0, self.state.centers.n)
        self.shown_array[:] = -1
        self.wide = np.zeros(ACCUMULATOR_DIGITS, dtype=np.int64)

    @property
    def labels(self):
        """Labels, -1 for noise: not a copy."""
        return self.shown_array

    def assign(self, double price):
        """Each row joins its nearest center, or is noise if its squared distance from there is above ``price``."""
        cdef State* state = self.state
        state.penalty.lam = price
        state.penalty.find_exceeding = True
        state.penalty.limit = penalty_limit(state, price)
        super().assign()
        state.penalty.find_exceeding = False
        self.mark()

    cdef mark(self):
        """Labels, and sums that follow them."""
        cdef State* state = self.state
        cdef int t, threads = self.threads_for_sums(state.points.n)
        cdef sums_t[MAX_SUM_THREADS] sums
        cdef int64_t[:, ::1] digits = np.zeros((threads, ACCUMULATOR_DIGITS), dtype=np.int64)
        cdef int64_t[::1] total = self.wide
        cdef Py_ssize_t c, first = 0, last
        cdef ParallelLoop loop
        self.begin_sums(sums, threads)
        with nogil:
            while first < self.n_chunks:
                last = min(self.n_chunks, first + self.chunks_of_rows())
                loop = begin_loop(last - first, threads)
                for c in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                    t = begin_chunk(&loop)
                    mark_chunk(state, &self.weighted, c, self.shown, &sums[t], &digits[t, 0])
                end_loop(&loop)
                self.check_signals((last - first) * CHUNK)
                first = last
            self.end_sums(sums, threads)
        # integers: the order does not matter
        for t in range(threads):
            accumulator_merge(&total[0], &digits[t, 0])

    @property
    def weights(self):
        """Weights of the clusters as rows are labeled now, (k,)."""
        return self.sums.totals[1][:self.state.centers.n]

    def move_centers(self):
        """End the sweep: means from sums, empty clusters dropped; there must be a row in some cluster.

        Returns sum w ||x - mean||^2 over the rows in clusters, from the sums.
        """
        cdef int64_t[::1] digits = self.wide.copy()
        cdef Py_ssize_t before = self.state.centers.n
        cdef double error
        self.total = accumulator_round(&digits[0], 0, ACCUMULATOR_DIGITS)
        error = self.end_sweep()
        # these moves are in the sums already
        memset(self.state.results.n_moved, 0, self.n_chunks * sizeof(int))
        if self.state.centers.n < before:
            used = self.shown_array >= 0
            self.shown_array[used] = np.asarray(<int[:self.sweep.capacity]> self.sweep.remap)[self.shown_array[used]]
        return error
