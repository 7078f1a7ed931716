"""Sweeps of DP-means: clusters opened in order, sums and means.

KJ12 is Kulis & Jordan (2012), MB13 Broderick, Kulis & Jordan (2013).
"""

from cython.parallel cimport prange
from libc.math cimport sqrt
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

from smallvar._sweeps.nearest cimport Engine
from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.restless cimport choose_restless, forget_restless
from smallvar._sweeps.rows cimport point, read_row, real_x, start_of, weight_of
from smallvar._sweeps.state cimport (
    BIG,
    CHUNK,
    WORK,
    State,
    is_far,
    lower,
    reduce_lower,
    set_lower,
    squared_distance,
    upper,
)
from smallvar._sweeps.sums cimport (
    MAX_SUM_THREADS,
    ACCUMULATOR_DIGITS,
    Sums,
    move_points,
    move_rows,
    sums_clear,
    sums_copy,
    sums_length,
    sums_t,
    sums_total,
    sums_unite,
    sums_weight,
    accumulator_add,
    accumulator_round,
    accumulator_merge,
)
from smallvar._sweeps.tolerances cimport BOUND_AT_CENTER, C_ZERO_RESULTANT, DISTANCE_MARGIN, LIMIT_MARGIN

import numpy as np

cdef enum:
    LOT = 64            # clusters opened at a time in an ordered pass, before later points are compared with them
    WIDE = 4096         # columns from which there is no room for more than those

ZERO_RESULTANT = C_ZERO_RESULTANT  # the same number for Python


cdef void move_chunk(const State* s, Py_ssize_t chunk, const sums_t* sums) noexcept nogil:
    """Add the moves that a chunk lists to the sums."""
    cdef Py_ssize_t[CHUNK] at
    cdef int[CHUNK] joined
    cdef double[CHUNK] w
    cdef Py_ssize_t m, i, size = s.n_moved[chunk]
    for m in range(size):
        i = chunk * CHUNK + s.moved[chunk * CHUNK + m]
        at[m] = start_of(&s.rows, i)
        joined[m] = s.label[i]
        w[m] = weight_of(&s.rows, i)
    move_rows(&s.rows, size, at, s.moved_from + chunk * CHUNK, joined, w, sums)


cdef void squares_of_chunk(
    const real_x* x, const State* s, Py_ssize_t chunk, const double* about, int64_t* digits
) noexcept nogil:
    """Weighted squared distances of a chunk's points from one point, or from their own centers (about NULL)."""
    cdef double[CHUNK] square
    cdef Py_ssize_t i, start = chunk * CHUNK, size = min(s.n - start, <Py_ssize_t> CHUNK)
    for i in range(size):
        square[i] = squared_distance(
            point(x, &s.rows, start + i), s.rows.col, s.c + s.label[start + i] * s.d if about == NULL else about, s.d
        )
        if s.rows.weight != NULL:
            square[i] *= s.rows.weight[start + i]
    accumulator_add(digits, square, size)


# ---- chunks of the loops: each writes to its points, or to what its thread owns --------------------------------------


cdef void distances_of_chunk(const State* s, Py_ssize_t c, double* out) noexcept nogil:
    """Squared distances of a chunk's points to their own centers."""
    cdef const double* center
    cdef Py_ssize_t i
    for i in range(c * CHUNK, min(s.n, (c + 1) * CHUNK)):
        center = s.c + s.label[i] * s.d
        if s.rows.single:
            out[i] = squared_distance(point(<const float*> s.rows.x, &s.rows, i), s.rows.col, center, s.d)
        else:
            out[i] = squared_distance(point(<const double*> s.rows.x, &s.rows, i), s.rows.col, center, s.d)


cdef void relabel_chunk(State* s, Py_ssize_t c, const int* remap) noexcept nogil:
    """Labels of a chunk by the new number of each cluster; where that is -1, label 0 and no bound."""
    cdef Py_ssize_t i
    cdef int z
    for i in range(c * CHUNK, min(s.n, (c + 1) * CHUNK)):
        z = remap[s.label[i]]
        if z < 0:
            s.label[i] = 0
            if s.u != NULL:
                s.u[i] = BIG
        else:
            s.label[i] = z


cdef void add_squares_of_chunk(const State* s, Py_ssize_t c, const double* about, int64_t* digits) noexcept nogil:
    """Weighted squared distances of a chunk's points, added to the digits of an exact sum."""
    if s.rows.single:
        squares_of_chunk(<const float*> s.rows.x, s, c, about, digits)
    else:
        squares_of_chunk(<const double*> s.rows.x, s, c, about, digits)


cdef void add_chunk(const State* s, Py_ssize_t c, bint moves, const sums_t* sums) noexcept nogil:
    """Add all points of a chunk to the sums, or only the moves that it lists."""
    if moves:
        move_chunk(s, c, sums)
    else:
        move_points(&s.rows, c * CHUNK, min(s.n, (c + 1) * CHUNK), NULL, s.label + c * CHUNK, sums)


cdef int center_of(
    const sums_t* sums, Py_ssize_t k, bint spherical, double* center, double* error
) noexcept nogil:
    """The center of cluster k; 0: it has no members; -1: its members have no direction in common.

    INOUT error : sum w ||x||^2, of which the part that the center explains is taken
    """
    cdef double m, size, mass, squares = 0.0
    cdef Py_ssize_t j
    if sums.count[k] <= 0.0:
        return 0
    size = mass = sums_weight(sums, k)
    if spherical:
        size = sums_length(sums, k)
        error[0] += mass
        if size <= C_ZERO_RESULTANT * mass:
            return -1
        error[0] -= 2.0 * size
    for j in range(sums.d):
        m = sums_total(sums, k, j) / size
        squares += m * m
        center[j] = sums.origin[j] + m
    if not spherical:
        error[0] -= mass * squares
    return 1


def next_centers(Sums sums, const double[:, ::1] centers, double total, bint spherical):
    """What move_centers would do with these sums: centers, remap, error, and the points that are adrift.

    sums : of all clusters
    centers : IN array (k, d): where they were
    total : sum of w ||x - origin||^2
    """
    cdef Py_ssize_t k, kept = 0, first = -1, adrift = 0
    cdef double error = total
    cdef double[:, ::1] after = np.empty((centers.shape[0] + 1, centers.shape[1]))
    cdef int[::1] remap = np.full(centers.shape[0], -1, dtype=np.int32)
    cdef int found
    for k in range(centers.shape[0]):
        found = center_of(&sums.table, k, spherical, &after[kept, 0], &error)
        if found > 0:
            remap[k] = <int> kept
            kept += 1
        elif found < 0:
            adrift += <Py_ssize_t> sums.table.count[k]
            first = k if first < 0 else first
    if first >= 0 and kept == 0:  # as in shift_centers
        adrift -= <Py_ssize_t> sums.table.count[first]
        after[0] = centers[first]
        remap[first] = 0
        kept = 1
    return np.asarray(after)[:kept].copy(), np.asarray(remap), error, adrift


cdef class DPSweep(Engine):
    """Algorithm 1 of KJ12, its variant with delayed creation, and the means they share.

    A sweep is: ``create`` (or ``assign``, then ``open_farthest``) over all points, then ``move_centers``.

    spherical : bool, points have length 1, and so have centers: sums divided by their length, not by their weight.
        The layout of the space must take sums from 0.
    """

    def __init__(self, *args, bint spherical=False):
        super().__init__(*args)
        self.spherical = spherical
        cdef double[::1] mean = self.keep(np.empty(self.s.d))
        self.mean = &mean[0]
        self.step = 4 * CHUNK * self.n_threads
        self.space = args[4]
        self.thread_sums = []
        self.total = -1.0

    def start(self, const double[:, ::1] centers):
        """Begin a run at these centers; all labels are 0."""
        self.set_centers(centers)
        memset(self.s.label, 0, self.s.n * sizeof(int))
        self.n_before = self.s.k
        self.farthest_point = -1
        self.have_sums = False
        self.adrift = 0

    # ---- opening clusters ------------------------------------------------------------------------------------

    def create(self, double lam, Py_ssize_t max_clusters):
        """One sweep of KJ12, Algorithm 1: nearest centers, clusters opened in the order of the points.

        The nearest known centers of a round of points are found in parallel. Only points that are far from those can
        open a cluster: an ordered pass compares them with the centers opened since the round began. Then the points
        after each new center are compared with it, again in parallel. At the cap (MB13 eq. 12) none is opened.
        """
        cdef Py_ssize_t position = 0, end, opened
        self.s.swept = True
        self.s.lam = lam
        self.s.seek = self.s.k < max_clusters
        self.s.limit = min(<double> BIG, sqrt(lam) * self.s.scale * (1.0 - LIMIT_MARGIN)) if self.s.seek else BIG
        with nogil:
            while position < self.s.n:
                end = min(self.s.n, position + min(self.step, self.chunks_at_once() * CHUNK))
                self.assign_chunks(position // CHUNK, (end + CHUNK - 1) // CHUNK)
                opened = 0
                if self.s.seek:
                    opened = self.open_in_order(position, end, max_clusters)
                    if self.s.k >= max_clusters:
                        self.s.seek = False
                        self.s.limit = BIG
                if opened > LOT:
                    self.step = max(<Py_ssize_t> CHUNK, self.step // 2 // CHUNK * CHUNK)
                elif opened < LOT // 4:
                    self.step = min(2 * self.step, <Py_ssize_t> 1 << 40)
                self.check_signals((end - position) * (self.s.k + 2))
                position = end
        self.s.seek = False
        self.s.limit = BIG

    cdef Py_ssize_t open_in_order(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t max_clusters) except -1 nogil:
        """Ordered pass over the far points of a round; returns how many clusters it opened."""
        cdef State* s = &self.s
        cdef Py_ssize_t creator[LOT]
        cdef Py_ssize_t chunk = start // CHUNK, last = (stop + CHUNK - 1) // CHUNK
        cdef Py_ssize_t m = 0, c, k0, first_k = s.k
        cdef bint done = False
        while chunk < last and s.n_far[chunk] == 0:
            chunk += 1
        if chunk == last:
            return 0
        while not done:
            if self.capacity < s.k + LOT + 8:
                with gil:
                    self.reserve(2 * s.k + (4 * LOT if s.d < WIDE else LOT + 8))
            k0 = s.k
            done = True
            while chunk < last:
                if m == s.n_far[chunk]:
                    chunk += 1
                    m = 0
                    continue
                if s.k - k0 == LOT or s.k >= max_clusters:
                    done = s.k >= max_clusters
                    break
                self.join_or_open(chunk * CHUNK + s.far[chunk * CHUNK + m], k0, creator)
                m += 1
            if s.k == k0:
                break
            for c in range(s.k):
                s.near[c] = BIG
            self.lower_table(k0, s.k, s.near)
            for c in range(s.k):
                s.hd[c] = min(s.hd[c], <float> 0.5 * s.near[c])
            s.opened = True
            self.attract(creator[0] + 1, stop, k0, creator)
        return s.k - first_k

    cdef double distance(self, Py_ssize_t i, Py_ssize_t k) noexcept nogil:
        cdef State* s = &self.s
        if s.rows.single:
            return squared_distance(point(<const float*> s.rows.x, &s.rows, i), s.rows.col, s.c + k * s.d, s.d)
        return squared_distance(point(<const double*> s.rows.x, &s.rows, i), s.rows.col, s.c + k * s.d, s.d)

    cdef void join_or_open(self, Py_ssize_t i, Py_ssize_t k0, Py_ssize_t* creator) noexcept nogil:
        """Point i was far from all known centers: it joins one of k0.., opened since, or opens its own."""
        cdef State* s = &self.s
        cdef double own = self.distance(i, s.label[i]), least = own, second = own, t
        cdef double square = s.scale * s.scale * (1.0 - DISTANCE_MARGIN)
        cdef Py_ssize_t k, best = s.label[i]
        if not is_far(s, i, own):
            return  # it has joined a center of an earlier lot
        for k in range(k0, s.k):
            t = self.distance(i, k)
            if t < least:
                second = least
                least = t
                best = k
            elif t < second:
                second = t
        if is_far(s, i, least):
            creator[s.k - k0] = i
            self.open_at(i)
            s.label[i] = <int> s.k - 1
            if s.u != NULL:
                s.u[i] = <float> BOUND_AT_CENTER
                set_lower(s, i, lower(least * square))
        else:
            s.label[i] = <int> best
            if s.u != NULL:
                s.u[i] = upper(least, s.scale)
                reduce_lower(s, i, lower(second * square))

    cdef void open_at(self, Py_ssize_t i) noexcept nogil:
        """A new center at point i; there must be room."""
        cdef State* s = &self.s
        cdef Py_ssize_t k = s.k
        read_row(&s.rows, i, s.c + k * s.d, 1)
        s.hd[k] = BIG
        s.fresh[k] = BIG
        s.k += 1
        self.place_last()

    def seek_farthest(self, double lam, bint seek):
        """Whether ``assign`` looks for the point with the largest weighted distance beyond lam."""
        self.s.lam = lam
        self.s.farthest = seek

    def open_farthest(self):
        """Delayed creation (after Dinari & Freifeld 2022): the point that ``assign`` found opens a cluster, if any."""
        cdef State* s = &self.s
        cdef Py_ssize_t c, i
        found = self.farthest_found()
        if found is None:
            return False
        i = found[0]
        self.reserve(s.k + 8)
        self.farthest_point = i
        self.farthest_left = s.label[i]
        s.u[i] = <float> BOUND_AT_CENTER
        set_lower(s, i, lower(self.distance(i, self.farthest_left) * s.scale * s.scale * (1.0 - DISTANCE_MARGIN)))
        self.open_at(i)
        s.label[i] = <int> s.k - 1
        with nogil:
            self.lower_table(s.k - 1, s.k, s.hd)
            for c in range(s.k):
                s.hd[c] = <float> 0.5 * s.hd[c]
        return True

    # ---- sums and means --------------------------------------------------------------------------------------

    def moved(self):
        """Points of positive weight that got another label from ``assign`` or ``create`` in this sweep, or had none."""
        cdef Py_ssize_t c, total = self.adrift
        for c in range(self.n_chunks):
            total += self.s.n_moved[c]
        return total

    def move_centers(self):
        """End the sweep: means from sums, empty clusters dropped, bounds and tables made ready for the next sweep.

        Returns sum_i w_i ||x_i - mu_{z_i}||^2 of the present labels and the new means, from the sums.
        """
        cdef double error
        self.present_sums()
        if self.total < 0.0:
            self.total = self.reduce(self.sums.table.origin)
        with nogil:
            error = self.shift_centers()
        self.n_before = self.s.k
        self.farthest_point = -1
        return error

    def present_sums(self):
        """The sums of the clusters as points are labeled now, by what moved where that is less work: not a copy.

        Read ``moved`` first: it counts the moves that are not in the sums yet.
        """
        cdef Py_ssize_t moved = self.moved()
        cdef bint opened_in_order = self.s.k > self.n_before and self.farthest_point < 0
        if not self.have_sums or opened_in_order or 2 * moved > self.s.n:
            self.add_up()
        elif moved > 0 or self.farthest_point >= 0:
            self.add_moves(moved)
        memset(self.s.n_moved, 0, self.n_chunks * sizeof(int))
        return self.sums

    def drop_empty(self):
        """Forget clusters without a member of positive weight; the other centers stay where they are."""
        self.add_up()
        cdef Py_ssize_t k, j, kept = 0, old_k = self.s.k
        for k in range(old_k):
            self.remap[k] = <int> kept if self.sums.table.count[k] > 0.0 else -1
            if self.sums.table.count[k] > 0.0:
                for j in range(self.s.d):
                    self.s.c[kept * self.s.d + j] = self.s.c[k * self.s.d + j]
                kept += 1
        if kept < old_k:
            self.s.k = kept
            self.relabel()
            self.place()
            forget_restless(&self.s)
            self.s.lazy = False
        self.n_before = kept
        self.have_sums = False
        return kept < old_k

    def cluster_sums(self):
        """The sums of the clusters as they are labeled now: not a copy."""
        self.add_up()
        return self.sums

    def own_distances(self):
        """Squared distance of each point to its own center, (n,)."""
        cdef double[::1] out = np.empty(self.s.n)
        cdef const State* s = &self.s
        cdef Py_ssize_t c
        cdef ParallelLoop loop
        with nogil:
            loop = begin_loop(self.n_chunks, self.threads_for(s.n))
            if loop.threads == 1:
                for c in range(self.n_chunks):
                    distances_of_chunk(s, c, &out[0])
            else:
                for c in prange(self.n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                    begin_chunk(&loop)
                    distances_of_chunk(s, c, &out[0])
            end_loop(&loop)
        return np.asarray(out)

    def squared_error(self):
        """Weighted sum of squared distances to the own centers: that of the rounded ones, rounded once."""
        return self.reduce(NULL)

    def squares(self, bint own):
        """The exact sum of the weighted squared distances to the own centers, or to the origin: int64 digits.

        Those of several parts of the rows can be added; see Stream.
        """
        return self.add_all_squares(NULL if own else self.sums.table.origin)

    cdef double reduce(self, const double* about) except? -1.0:
        """Sum of the squared distances to the own centers (about NULL) or to one place."""
        cdef int64_t[::1] digits = self.add_all_squares(about)
        return accumulator_round(&digits[0], 0, ACCUMULATOR_DIGITS)

    cdef add_all_squares(self, const double* about):
        cdef State* s = &self.s
        cdef int threads = self.threads_for(s.n)
        cdef int64_t[:, ::1] wide = np.zeros((threads, ACCUMULATOR_DIGITS), dtype=np.int64)
        cdef Py_ssize_t t, first = 0, last
        with nogil:
            while first < self.n_chunks:
                last = min(self.n_chunks, first + self.chunks_of_rows())
                self.add_squares(about, &wide[0, 0], first, last, threads)
                self.check_signals((last - first) * CHUNK)
                first = last
            for t in range(1, threads):
                accumulator_merge(&wide[0, 0], &wide[t, 0])
        return np.asarray(wide[0])

    cdef void add_squares(
        self, const double* about, int64_t* digits, Py_ssize_t first, Py_ssize_t last, int threads
    ) noexcept nogil:
        """Those of some chunks, added to the digits that each thread has."""
        cdef const State* s = &self.s
        cdef Py_ssize_t c
        cdef ParallelLoop loop
        loop = begin_loop(last - first, threads)
        if loop.threads == 1:
            for c in range(first, last):
                add_squares_of_chunk(s, c, about, digits)
        else:
            for c in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                add_squares_of_chunk(s, c, about, digits + begin_chunk(&loop) * ACCUMULATOR_DIGITS)
        end_loop(&loop)

    cdef grow_sums(self, Py_ssize_t k):
        """Room for the sums of k clusters; those that are there stay."""
        cdef int[::1] remap
        if self.sums is None:
            self.sums = Sums(self.space.layout, k)
        self.sums.reserve(k)
        if self.remap_array is None or len(self.remap_array) < k:
            self.remap_array = remap = np.zeros(self.sums.capacity, dtype=np.int32)
            self.remap = &remap[0]

    cdef add_up(self):
        """Sums of all points."""
        self.grow_sums(self.s.k)
        sums_clear(&self.sums.table, 0, self.s.k)
        self.account(False, self.s.n)
        self.have_sums = True

    cdef add_moves(self, Py_ssize_t moved):
        """Sums changed by the points that moved, each counted out of its old and into its new cluster."""
        cdef State* s = &self.s
        cdef Py_ssize_t k = s.k, chunk, m
        cdef bint listed = False
        self.grow_sums(k)
        sums_clear(&self.sums.table, self.n_before, k)
        self.account(True, moved)
        if self.farthest_point >= 0:  # it is listed if it had moved before it opened its own cluster
            chunk = self.farthest_point // CHUNK
            for m in range(s.n_moved[chunk]):
                listed |= chunk * CHUNK + s.moved[chunk * CHUNK + m] == self.farthest_point
            if not listed:
                self.move_point(self.farthest_point, self.farthest_left, s.label[self.farthest_point])

    cdef account(self, bint moves, Py_ssize_t points):
        """Add the points of all chunks, or only the moves that these list, to the sums: ``points`` in all."""
        cdef sums_t[MAX_SUM_THREADS] sums
        cdef const State* s = &self.s
        cdef int threads = self.adders(points)
        cdef Py_ssize_t c, first = 0, last
        cdef ParallelLoop loop
        self.begin_sums(sums, threads)
        with nogil:
            while first < self.n_chunks:
                last = min(self.n_chunks, first + self.chunks_of_rows())
                loop = begin_loop(last - first, threads)
                if loop.threads == 1:
                    for c in range(first, last):
                        add_chunk(s, c, moves, &sums[0])
                else:
                    for c in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                        add_chunk(s, c, moves, &sums[begin_chunk(&loop)])
                end_loop(&loop)
                self.check_signals((last - first) * CHUNK)
                first = last
            self.end_sums(sums, threads)

    cdef int adders(self, Py_ssize_t points):
        """How many threads are worth while where so many points are added to sums."""
        if 8 * points * self.s.d > PAYS and points > 8 * self.s.k:
            return min(self.n_threads, <int> MAX_SUM_THREADS)
        return 1

    cdef Py_ssize_t chunks_of_rows(self) noexcept nogil:
        """Chunks between two checks for signals where each row is read once."""
        return max(<Py_ssize_t> 1, WORK // (CHUNK * self.s.d))

    cdef begin_sums(self, sums_t* sums, int threads):
        """Sums for each thread to add to: the first thread has those of the clusters, the others begin at zero."""
        cdef Py_ssize_t t, k = self.s.k
        while len(self.thread_sums) < threads - 1:
            self.thread_sums.append(Sums(self.space.layout, k))
        sums[0] = self.sums.table
        for t in range(1, threads):
            (<Sums> self.thread_sums[t - 1]).reserve(k)
            sums[t] = (<Sums> self.thread_sums[t - 1]).table
            sums_clear(&sums[t], 0, k)

    cdef void end_sums(self, const sums_t* sums, int threads) noexcept nogil:
        """Add the sums of all threads to those of the clusters; sums are exact, so the order does not matter."""
        cdef Py_ssize_t k, t
        for t in range(1, threads):
            for k in range(self.s.k):
                sums_unite(&sums[0], k, &sums[t], k)

    cdef void move_point(self, Py_ssize_t i, int left, int joined) noexcept nogil:
        """Point i goes from one cluster to another one."""
        cdef State* s = &self.s
        move_points(&s.rows, i, i + 1, &left, &joined, &self.sums.table)

    cdef double shift_centers(self) noexcept nogil:
        """Means, drift, remaining clusters; the error is sum w ||x||^2 - sum_c s_c ||mean_c||^2, about the origin.

        For centers of length 1 it is sum w (||x||^2 + 1) - 2 sum_c ||s_c mean_c||. A cluster whose sum vanishes costs
        its weight wherever its center is: its points fall to the first cluster, and are counted as adrift.
        """
        cdef State* s = &self.s
        cdef Py_ssize_t k, kept = 0, old_k = s.k, first = -1
        cdef double error = self.total
        cdef int found
        self.adrift = 0
        for k in range(old_k):
            self.remap[k] = -1
            found = center_of(&self.sums.table, k, self.spherical, self.mean, &error)
            if found > 0:
                self.move_center(k, kept, self.mean)
                kept += 1
            elif found < 0:
                self.adrift += <Py_ssize_t> self.sums.table.count[k]
                first = k if first < 0 else first
        if first >= 0 and kept == 0:  # none has a direction: the first one stays where it is
            self.adrift -= <Py_ssize_t> self.sums.table.count[first]
            self.move_center(first, 0, s.c + first * s.d)
            kept = 1
        if self.adrift > 0:
            self.have_sums = False
        self.end_move(kept)
        return error

    cdef void move_center(self, Py_ssize_t k, Py_ssize_t kept, const double* center) noexcept nogil:
        """Cluster k goes on as number kept, not above k, with this center."""
        cdef State* s = &self.s
        cdef double t, drift = 0.0
        cdef Py_ssize_t j
        for j in range(s.d):
            t = center[j] - s.c[k * s.d + j]
            drift += t * t
            s.c[kept * s.d + j] = center[j]
        self.remap[k] = <int> kept
        sums_copy(&self.sums.table, kept, k)
        s.p[kept] = upper(drift, s.scale)
        s.fresh[kept] = <float> 2.0 * s.hd[k]

    cdef void end_move(self, Py_ssize_t kept) noexcept nogil:
        """All centers have moved, and so many are left: labels, tables and bounds follow."""
        cdef State* s = &self.s
        cdef Py_ssize_t old_k = s.k
        s.k = kept
        self.place()
        if kept < old_k:
            forget_restless(s)
            self.relabel()
        s.opened = old_k > self.n_before
        # only if a sweep has taken the last p off the bounds: p is the drift of one move
        s.lazy = s.u != NULL and s.swept
        s.swept = False
        self.renew_tables()

    # ---- centers that other points have a part in, whose rows are elsewhere ----------------------------------

    def append(self, const double[:, ::1] centers):
        """Centers that were opened elsewhere: before a sweep all points may join them, after it none has."""
        cdef State* s = &self.s
        cdef Py_ssize_t c, k0 = s.k, count = centers.shape[0]
        if centers.shape[1] != s.d:
            raise ValueError(f"centers must have {s.d} columns, got {centers.shape[1]}")
        if count == 0:
            return
        self.reserve(k0 + count)
        for c in range(count):
            memcpy(s.c + s.k * s.d, &centers[c, 0], s.d * sizeof(double))
            s.hd[s.k] = s.fresh[s.k] = BIG
            s.k += 1
            self.place_last()
        for c in range(s.k):
            s.near[c] = BIG
        with nogil:
            self.lower_table(k0, s.k, s.near)
        for c in range(s.k):
            s.hd[c] = min(s.hd[c], <float> 0.5 * s.near[c])
        s.opened = True
        if self.have_sums:
            self.grow_sums(s.k)
            sums_clear(&self.sums.table, k0, s.k)

    def recount(self):
        """The next sums are made of all points: moves of more than one sweep are not listed."""
        self.have_sums = False

    def farthest_found(self):
        """The point that open_farthest would open a cluster at, and its weighted distance; None if there is none."""
        cdef double best = self.s.lam
        cdef Py_ssize_t c, i = -1
        for c in range(self.n_chunks):
            if self.s.farthest_index[c] >= 0 and self.s.farthest_distance[c] > best:
                best = self.s.farthest_distance[c]
                i = self.s.farthest_index[c]
        return None if i < 0 else (i, best)

    def move_to(self, const double[:, ::1] centers, const int[::1] remap):
        """End a sweep with centers computed elsewhere.

        centers : IN array (kept, d)
        remap : IN array (k,): the new number of each cluster, ascending, or -1: dropped, its points go to cluster 0
            and into no sums
        """
        cdef Py_ssize_t k, kept = 0
        if remap.shape[0] != self.s.k or centers.shape[1] != self.s.d:
            raise ValueError("remap must match the clusters, centers the columns")
        self.grow_sums(self.s.k)
        for k in range(self.s.k):
            self.remap[k] = -1
            if remap[k] >= 0:
                if remap[k] != kept or kept == centers.shape[0]:
                    raise ValueError("remap must number the centers in order")
                self.move_center(k, kept, &centers[kept, 0])
                kept += 1
            elif self.sums.table.count[k] > 0.0:
                self.have_sums = False
        with nogil:
            self.end_move(kept)
        self.n_before = self.s.k
        self.farthest_point = -1

    cdef void renew_tables(self) noexcept nogil:
        """The tables h, r and rg, and the restless, from the centers and how far they moved, p."""
        cdef State* s = &self.s
        cdef Py_ssize_t k
        for k in range(s.k):
            s.hd[k] = BIG
            s.h[k] = BIG
        if 4 * s.k <= s.n and s.u != NULL:
            self.lower_table(0, s.k, s.h)
        for k in range(s.k):
            # with one center no other is nearer; with very many the table would take as long as a sweep
            s.h[k] = <float> 0.5 * s.h[k] if 4 * s.k <= s.n or s.k == 1 else 0.0
        choose_restless(s, s.k - 1 if self.farthest_point >= 0 else -1, self.restless_from)

    cdef void relabel(self) noexcept nogil:
        """Labels after clusters were dropped. Points of such a cluster get label 0 and no bound."""
        cdef State* s = &self.s
        cdef Py_ssize_t c
        cdef ParallelLoop loop
        loop = begin_loop(self.n_chunks, self.threads_for(s.n))
        if loop.threads == 1:
            for c in range(self.n_chunks):
                relabel_chunk(s, c, self.remap)
        else:
            for c in prange(self.n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                begin_chunk(&loop)
                relabel_chunk(s, c, self.remap)
        end_loop(&loop)
