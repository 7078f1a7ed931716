"""Sweeps of DP-means: ordered creation, sums and means, collapsed updates, farthest-first."""

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport HUGE_VAL, sqrt
from libc.string cimport memset

from smallvar._sweeps._types cimport real_x
from smallvar._sweeps.nearest cimport BIG, CHUNK, WORK, Engine, Sweep, is_far, lower, point, squared_distance, upper
from smallvar._sweeps.pool cimport PAYS, run

import numpy as np

cdef extern from "_costs.h" nogil:
    void sc_squares(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, double*)

cdef enum:
    ROUND = 64          # clusters opened between two parallel steps of the creation pass
    MAX_GROUPS = 64     # partial sums of a reduction, added in order


cdef Py_ssize_t group_count(Py_ssize_t points, Py_ssize_t k, Py_ssize_t d) noexcept nogil:
    """Groups of a sum over points into k x d cells: a function of the problem alone, never of the threads."""
    cdef Py_ssize_t groups = min(<Py_ssize_t> MAX_GROUPS, points // (4 * k + 512))
    return max(<Py_ssize_t> 1, min(groups, (<Py_ssize_t> 1 << 21) // (k * (d + 2))))


cdef void add_point(
    const real_x* x, const Sweep* s, Py_ssize_t i, int label, double sign, Sums* sums
) noexcept nogil:
    """sums[label] += sign * w_i * (x_i - shift, 1)."""
    cdef double w = 1.0 if s.weight == NULL else s.weight[i]
    cdef double* total = sums.total + label * s.d
    cdef const real_x* xi = point(x, s, i)
    cdef Py_ssize_t j
    if w == 0.0:
        return
    w = w * sign
    if s.col == 1:
        for j in range(s.d):
            total[j] += w * (<double> xi[j] - s.shift[j])
    else:
        for j in range(s.d):
            total[j] += w * (<double> xi[j * s.col] - s.shift[j])
    sums.weight[label] += w
    sums.count[label] += 1 if sign > 0.0 else -1


cdef void add_points(const real_x* x, const Sweep* s, Py_ssize_t start, Py_ssize_t stop, Sums* sums) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(start, stop):
        add_point(x, s, i, s.label[i], 1.0, sums)


cdef void move_points(
    const real_x* x, const Sweep* s, Py_ssize_t first, Py_ssize_t last, Py_ssize_t far_point, int far_from, Sums* sums
) noexcept nogil:
    """The moves that chunks first..last-1 list; far_point left far_from after they were listed."""
    cdef Py_ssize_t chunk, m, place, i
    cdef int to
    for chunk in range(first, last):
        for m in range(s.n_moved[chunk]):
            place = chunk * CHUNK + m
            i = chunk * CHUNK + s.moved[place]
            to = far_from if i == far_point else s.label[i]
            add_point(x, s, i, s.moved_from[place], -1.0, sums)
            add_point(x, s, i, to, 1.0, sums)
        if chunk == far_point // CHUNK and far_point >= 0:
            add_point(x, s, far_point, far_from, -1.0, sums)
            add_point(x, s, far_point, s.label[far_point], 1.0, sums)


cdef double squares_of_chunk(const real_x* x, const Sweep* s, Py_ssize_t chunk, bint about_shift) noexcept nogil:
    """Weighted squared distances of a chunk's points to their own centers, or to the shift."""
    cdef Py_ssize_t i
    cdef double t, total = 0.0
    for i in range(chunk * CHUNK, min(s.n, (chunk + 1) * CHUNK)):
        t = squared_distance(point(x, s, i), s.col, s.shift if about_shift else s.c + s.label[i] * s.d, s.d)
        total += t if s.weight == NULL else t * s.weight[i]
    return total


cdef inline void shifted_row(const real_x* x, const Sweep* s, Py_ssize_t i, double* row) noexcept nogil:
    cdef const real_x* xi = point(x, s, i)
    cdef Py_ssize_t j
    for j in range(s.d):
        row[j] = <double> xi[j * s.col] - s.shift[j]


# ---- what threads share out: an item is a chunk and writes to its points or its place, or a group and its sums -----


cdef struct PerPoint:
    Sweep* s
    double* out
    const int* remap


cdef struct Squares:
    const Sweep* s
    bint about_shift
    double* partial


cdef struct Adding:
    const Sweep* s
    Sums* groups
    Py_ssize_t n_groups
    Py_ssize_t chunks
    Py_ssize_t far_point
    int far_from


cdef void distance_item(void* context, Py_ssize_t c, int slot) noexcept nogil:
    cdef const PerPoint* a = <const PerPoint*> context
    cdef const Sweep* s = a.s
    cdef const double* center
    cdef Py_ssize_t i
    for i in range(c * CHUNK, min(s.n, (c + 1) * CHUNK)):
        center = s.c + s.label[i] * s.d
        if s.x_single:
            a.out[i] = squared_distance(point(<const float*> s.x, s, i), s.col, center, s.d)
        else:
            a.out[i] = squared_distance(point(<const double*> s.x, s, i), s.col, center, s.d)


cdef void relabel_item(void* context, Py_ssize_t c, int slot) noexcept nogil:
    cdef const PerPoint* a = <const PerPoint*> context
    cdef Sweep* s = a.s
    cdef Py_ssize_t i
    cdef int z
    for i in range(c * CHUNK, min(s.n, (c + 1) * CHUNK)):
        z = a.remap[s.label[i]]
        if z < 0:
            s.label[i] = 0
            if s.u != NULL:
                s.u[i] = BIG
        else:
            s.label[i] = z


cdef void squares_item(void* context, Py_ssize_t c, int slot) noexcept nogil:
    cdef const Squares* a = <const Squares*> context
    if a.s.x_single:
        a.partial[c] = squares_of_chunk(<const float*> a.s.x, a.s, c, a.about_shift)
    else:
        a.partial[c] = squares_of_chunk(<const double*> a.s.x, a.s, c, a.about_shift)


cdef inline Sums* clear_group(const Adding* a, Py_ssize_t g) noexcept nogil:
    memset(a.groups[g].total, 0, a.s.k * (a.s.d + 2) * sizeof(double))
    return &a.groups[g]


cdef void add_item(void* context, Py_ssize_t g, int slot) noexcept nogil:
    cdef const Adding* a = <const Adding*> context
    cdef Sums* sums = clear_group(a, g)
    cdef Py_ssize_t start = g * a.chunks // a.n_groups * CHUNK
    cdef Py_ssize_t stop = min(a.s.n, (g + 1) * a.chunks // a.n_groups * CHUNK)
    if a.s.x_single:
        add_points(<const float*> a.s.x, a.s, start, stop, sums)
    else:
        add_points(<const double*> a.s.x, a.s, start, stop, sums)


cdef void move_item(void* context, Py_ssize_t g, int slot) noexcept nogil:
    cdef const Adding* a = <const Adding*> context
    cdef Sums* sums = clear_group(a, g)
    cdef Py_ssize_t first = g * a.chunks // a.n_groups, last = (g + 1) * a.chunks // a.n_groups
    if a.s.x_single:
        move_points(<const float*> a.s.x, a.s, first, last, a.far_point, a.far_from, sums)
    else:
        move_points(<const double*> a.s.x, a.s, first, last, a.far_point, a.far_from, sums)


cdef class DPSweep(Engine):
    """Algorithm 1 of Kulis & Jordan (2012), its delayed variant, and the means they share.

    A sweep is: ``create`` (or ``assign``, then ``open_farthest``) over all points, then ``move_centers``.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.step = 4 * CHUNK * self.n_threads
        self.partial_array = np.zeros(self.n_chunks)
        self.total = -1.0

    def start(self, const double[:, ::1] centers):
        """Begin a run at these centers; all labels are 0."""
        self.set_centers(centers)
        memset(self.s.label, 0, self.s.n * sizeof(int))
        self.n_before = self.s.k
        self.far_point = -1
        self.have_sums = False

    # ---- opening clusters ------------------------------------------------------------------------------------

    def create(self, double lam, Py_ssize_t max_clusters):
        """One sweep of Algorithm 1: nearest centers, opening clusters in the order of the points.

        Blocks of points look for their nearest known center in parallel. Only those still beyond lam can open a
        cluster: an ordered pass compares them with the centers opened since the block began. Then the points
        behind each new center compare themselves with it, again in parallel.
        """
        cdef Py_ssize_t position = 0, end, opened
        self.s.swept = True
        self.s.lam = lam
        self.s.seek = self.s.k < max_clusters
        self.s.limit = min(<double> BIG, sqrt(lam) * self.s.scale * (1.0 - 1e-6)) if self.s.seek else BIG
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
                if opened > ROUND:
                    self.step = max(<Py_ssize_t> CHUNK, self.step // 2 // CHUNK * CHUNK)
                elif opened < ROUND // 4:
                    self.step = min(2 * self.step, <Py_ssize_t> 1 << 40)
                self.check_signals((end - position) * (self.s.k + 2))
                position = end
        self.s.seek = False
        self.s.limit = BIG

    cdef Py_ssize_t open_in_order(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t max_clusters) except -1 nogil:
        """Ordered pass over the far points of one block; returns how many clusters it opened."""
        cdef Sweep* s = &self.s
        cdef Py_ssize_t creator[ROUND]
        cdef Py_ssize_t chunk = start // CHUNK, last = (stop + CHUNK - 1) // CHUNK
        cdef Py_ssize_t m = 0, c, k0, first_k = s.k
        cdef bint done = False
        while not done:
            if self.capacity < s.k + ROUND + 8:
                with gil:
                    self.reserve(2 * s.k + 4 * ROUND)
            k0 = s.k
            done = True
            while chunk < last:
                if m == s.n_far[chunk]:
                    chunk += 1
                    m = 0
                    continue
                if s.k - k0 == ROUND or s.k >= max_clusters:
                    done = s.k >= max_clusters
                    break
                self.settle_far(chunk * CHUNK + s.far[chunk * CHUNK + m], k0, creator)
                m += 1
            if s.k == k0:
                break
            for c in range(s.k):
                s.near[c] = BIG
            self.lower_table(k0, s.k, s.near)
            for c in range(s.k):
                s.hd[c] = min(s.hd[c], <float> 0.5 * s.near[c])
            s.opened = True
            self.attract_chunks(creator[0] + 1, stop, k0, creator)
        return s.k - first_k

    cdef double distance(self, Py_ssize_t i, Py_ssize_t k) noexcept nogil:
        cdef Sweep* s = &self.s
        if s.x_single:
            return squared_distance(point(<const float*> s.x, s, i), s.col, s.c + k * s.d, s.d)
        return squared_distance(point(<const double*> s.x, s, i), s.col, s.c + k * s.d, s.d)

    cdef void settle_far(self, Py_ssize_t i, Py_ssize_t k0, Py_ssize_t* creator) noexcept nogil:
        """Point i was beyond lam of its nearest known center: it joins one of k0.., opened since, or opens its own."""
        cdef Sweep* s = &self.s
        cdef double own = self.distance(i, s.label[i]), least = own, second = own, t
        cdef double square = s.scale * s.scale * (1.0 - 1e-9)
        cdef Py_ssize_t k, best = s.label[i]
        if not is_far(s, i, own):
            return  # an earlier round brought a center near
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
                s.u[i] = <float> 1e-37
                s.l[i] = lower(least * square)
        else:
            s.label[i] = <int> best
            if s.u != NULL:
                s.u[i] = upper(least, s.scale)
                s.l[i] = min(s.l[i], lower(second * square))

    cdef void open_at(self, Py_ssize_t i) noexcept nogil:
        """A new center at point i; there must be room."""
        cdef Sweep* s = &self.s
        cdef Py_ssize_t j, k = s.k
        for j in range(s.d):
            if s.x_single:
                s.c[k * s.d + j] = point(<const float*> s.x, s, i)[j * s.col]
            else:
                s.c[k * s.d + j] = point(<const double*> s.x, s, i)[j * s.col]
        s.hd[k] = BIG
        s.fresh[k] = BIG
        s.k += 1
        self.place_center(k)
        self.pad_centers()

    def seek_farthest(self, double lam, bint seek):
        """Whether ``assign`` looks for the point with the largest weighted distance beyond lam."""
        self.s.lam = lam
        self.s.farthest = seek

    def open_farthest(self):
        """Delayed creation: the point that ``assign`` found leaves for a cluster of its own. False if none did."""
        cdef Sweep* s = &self.s
        cdef Py_ssize_t c, i = -1
        cdef double best = s.lam
        for c in range(self.n_chunks):
            if s.far_index[c] >= 0 and s.far_distance[c] > best:
                best = s.far_distance[c]
                i = s.far_index[c]
        if i < 0:
            return False
        self.reserve(s.k + 8)
        self.far_point = i
        self.far_from = s.label[i]
        s.u[i] = <float> 1e-37
        s.l[i] = lower(self.distance(i, self.far_from) * s.scale * s.scale * (1.0 - 1e-9))
        self.open_at(i)
        s.label[i] = <int> s.k - 1
        with nogil:
            self.lower_table(s.k - 1, s.k, s.hd)
            for c in range(s.k):
                s.hd[c] = <float> 0.5 * s.hd[c]
        return True

    # ---- sums and means --------------------------------------------------------------------------------------

    def moved(self):
        """Points of positive weight that got another label from ``assign`` or ``create`` in this sweep."""
        cdef Py_ssize_t c, total = 0
        for c in range(self.n_chunks):
            total += self.s.n_moved[c]
        return total

    def move_centers(self, bint from_scratch=False):
        """Close the sweep: means from sums, empty clusters dropped, bounds and tables made ready for the next one.

        Returns the weighted sum of squared errors of the present labels about the new means, from the sums.
        """
        cdef Py_ssize_t moved = self.moved()
        cdef bint opened_in_order = self.s.k > self.n_before and self.far_point < 0
        cdef double error
        if (from_scratch or not self.have_sums or opened_in_order or 4 * moved > self.s.n
                or self.n_changes > 4 * self.s.n):
            self.add_up()
        elif moved > 0 or self.far_point >= 0:
            self.add_moves(moved)
        with nogil:
            error = self.shift_centers()
        self.n_before = self.s.k
        self.far_point = -1
        memset(self.s.n_moved, 0, self.n_chunks * sizeof(int))  # these moves are counted
        return error

    def drop_empty(self):
        """Forget clusters without a member of positive weight; the other centers stay where they are."""
        self.add_up()
        cdef Py_ssize_t k, j, kept = 0, old_k = self.s.k
        for k in range(old_k):
            self.remap[k] = <int> kept if self.sums.count[k] > 0.0 else -1
            if self.sums.count[k] > 0.0:
                for j in range(self.s.d):
                    self.s.c[kept * self.s.d + j] = self.s.c[k * self.s.d + j]
                kept += 1
        if kept < old_k:
            self.s.k = kept
            self.relabel()
            self.place_centers()
            self.s.lazy = False
        self.n_before = kept
        self.have_sums = False
        return kept < old_k

    def cluster_sums(self):
        """Sum of w (x - shift) and of w for each cluster: arrays (k, d) and (k,)."""
        self.add_up()
        return self.sum_arrays[0][:self.s.k].copy(), self.sum_arrays[1][:self.s.k].copy()

    def own_distances(self):
        """Squared distance of each point to its own center, (n,)."""
        cdef double[::1] out = np.empty(self.s.n)
        cdef PerPoint a = PerPoint(&self.s, &out[0], NULL)
        with nogil:
            run(distance_item, &a, 0, self.n_chunks, self.threads_for(self.s.n))
        return np.asarray(out)

    def squared_error(self):
        """Weighted sum of squared distances to the own centers, added up point by point."""
        return self.reduce(False)

    cdef double reduce(self, bint about_shift) except? -1.0:
        """Sum over chunks, in order, of the squared distances to the own centers or to the shift."""
        cdef Sweep* s = &self.s
        cdef double[::1] partial = self.partial_array
        cdef Squares a = Squares(s, about_shift, &partial[0])
        cdef Py_ssize_t c
        cdef double total = 0.0
        cdef Py_ssize_t first = 0, last
        with nogil:
            while first < self.n_chunks:
                last = min(self.n_chunks, first + max(1, WORK // (CHUNK * s.d)))
                run(squares_item, &a, first, last, self.threads_for(s.n))
                self.check_signals((last - first) * CHUNK)
                first = last
            for c in range(self.n_chunks):
                total += partial[c]
        return total

    cdef grow_sums(self, Py_ssize_t k):
        """Room for the sums of k clusters; those that are there stay."""
        cdef double[:, ::1] total
        cdef double[::1] weight, count
        cdef int[::1] remap
        old = self.sum_arrays
        if old is not None and len(old[1]) >= k:
            return
        size = 2 * k + 8
        arrays = np.zeros((size, self.s.d)), np.zeros(size), np.zeros(size), np.zeros(size, dtype=np.int32)
        if old is not None:
            for new_array, old_array in zip(arrays, old):
                new_array[:len(old_array)] = old_array
        total, weight, count, remap = arrays
        self.sums.total, self.sums.weight, self.sums.count = &total[0, 0], &weight[0], &count[0]
        self.remap = &remap[0]
        self.sum_arrays = arrays

    cdef Py_ssize_t group_sums(self, Py_ssize_t points, Sums* groups) except -1:
        """Buffers for each group of a reduction."""
        cdef Py_ssize_t k = self.s.k, d = self.s.d, g, size = k * (d + 2)
        cdef Py_ssize_t n_groups = min(group_count(points, k, d), self.n_chunks)
        cdef double[::1] doubles
        if self.group_array is None or len(self.group_array) < n_groups * size:
            self.group_array = np.empty(n_groups * size)
        doubles = self.group_array
        for g in range(n_groups):
            groups[g].total = &doubles[g * size]
            groups[g].weight = &doubles[g * size + k * d]
            groups[g].count = &doubles[g * size + k * d + k]
        return n_groups

    cdef void add_groups(self, Sums* groups, Py_ssize_t n_groups) noexcept nogil:
        """Add the groups to the sums, in order of the groups."""
        cdef Py_ssize_t g, j, k = self.s.k
        for g in range(n_groups):
            for j in range(k * self.s.d):
                self.sums.total[j] += groups[g].total[j]
            for j in range(k):
                self.sums.weight[j] += groups[g].weight[j]
                self.sums.count[j] += groups[g].count[j]

    cdef void clear_sums(self, Py_ssize_t k0, Py_ssize_t k1) noexcept nogil:
        memset(self.sums.total + k0 * self.s.d, 0, (k1 - k0) * self.s.d * sizeof(double))
        memset(self.sums.weight + k0, 0, (k1 - k0) * sizeof(double))
        memset(self.sums.count + k0, 0, (k1 - k0) * sizeof(double))

    cdef add_up(self):
        """Sums from scratch."""
        cdef Sweep* s = &self.s
        cdef Sums groups[MAX_GROUPS]
        cdef Py_ssize_t n_groups, first = 0, last, k = s.k
        cdef Adding a
        self.grow_sums(k)
        n_groups = self.group_sums(s.n, groups)
        a = Adding(s, &groups[0], n_groups, self.n_chunks, -1, 0)
        with nogil:
            while first < n_groups:
                last = min(n_groups, first + max(1, n_groups * WORK // (s.n * s.d)))
                run(add_item, &a, first, last, self.threads_for(s.n))
                self.check_signals((last - first) * (s.n // n_groups))
                first = last
            self.clear_sums(0, k)
            self.add_groups(groups, n_groups)
        if self.total < 0.0:
            self.total = self.reduce(True)
        self.have_sums = True
        self.fresh_sums = True
        self.n_changes = 0

    cdef add_moves(self, Py_ssize_t moved):
        """Sums changed by the points that moved, each counted out of its old and into its new cluster."""
        cdef Sweep* s = &self.s
        cdef Sums groups[MAX_GROUPS]
        cdef Py_ssize_t n_groups, k = s.k
        cdef Adding a
        self.grow_sums(k)
        self.clear_sums(self.n_before, k)
        n_groups = self.group_sums(2 * moved, groups)
        a = Adding(s, &groups[0], n_groups, self.n_chunks, self.far_point, self.far_from)
        with nogil:
            run(move_item, &a, 0, n_groups, self.threads_for(moved))
            self.add_groups(groups, n_groups)
        self.fresh_sums = False
        self.n_changes += moved + 1

    cdef double shift_centers(self) noexcept nogil:
        """Means, drift, remaining clusters; the error is sum w ||x||^2 - sum_c s_c ||mean_c||^2, about the shift."""
        cdef Sweep* s = &self.s
        cdef Py_ssize_t k, j, kept = 0, d = s.d, old_k = s.k
        cdef double t, m, drift, squares, error = self.total
        for k in range(old_k):
            self.remap[k] = -1
            if self.sums.count[k] <= 0.0:
                continue
            self.remap[k] = <int> kept
            drift = 0.0
            squares = 0.0
            for j in range(d):
                m = self.sums.total[k * d + j] / self.sums.weight[k]
                squares += m * m
                t = s.shift[j] + m - s.c[k * d + j]
                drift += t * t
                s.c[kept * d + j] = s.shift[j] + m
                self.sums.total[kept * d + j] = self.sums.total[k * d + j]
            self.sums.weight[kept] = self.sums.weight[k]
            self.sums.count[kept] = self.sums.count[k]
            error -= self.sums.weight[kept] * squares
            s.p[kept] = upper(drift, s.scale)
            s.fresh[kept] = <float> 2.0 * s.hd[k]
            kept += 1
        s.k = kept
        self.place_centers()
        if kept < old_k:
            self.relabel()
        s.opened = old_k > self.n_before
        # centers that move twice between two sweeps have drifted farther than p says
        s.lazy = s.u != NULL and s.swept
        s.swept = False
        self.renew_tables()
        return error

    cdef void renew_tables(self) noexcept nogil:
        """What else follows from centers and their drift p: r, h, the restless."""
        cdef Sweep* s = &self.s
        cdef Py_ssize_t k, farthest = 0
        cdef float largest = 0.0, next_largest = 0.0
        for k in range(s.k):
            if s.p[k] > largest:
                next_largest = largest
                largest = s.p[k]
                farthest = k
            else:
                next_largest = max(next_largest, s.p[k])
        for k in range(s.k):
            s.r[k] = next_largest if k == farthest else largest
            s.hd[k] = BIG
            s.h[k] = BIG
        if 4 * s.k <= s.n and s.u != NULL:
            self.lower_table(0, s.k, s.h)
        for k in range(s.k):
            # with one center alone nothing is ever nearer; with very many the table would cost a sweep
            s.h[k] = <float> 0.5 * s.h[k] if 4 * s.k <= s.n or s.k == 1 else 0.0
        self.choose_restless(s.k - 1 if self.far_point >= 0 else -1)

    cdef void relabel(self) noexcept nogil:
        """Labels after clusters were dropped. Only points of weight zero can have lost theirs: they start anew."""
        cdef PerPoint a = PerPoint(&self.s, NULL, self.remap)
        run(relabel_item, &a, 0, self.n_chunks, self.threads_for(self.s.n))

    # ---- collapsed updates -----------------------------------------------------------------------------------

    cdef load(self):
        """Means of all clusters in columns, so that the distances of a point to all of them are d passes over rows."""
        cdef Py_ssize_t k, room = 2 * self.s.k + 16
        cdef double[:, ::1] columns
        cdef double[::1] cost
        if self.columns_array is None or self.columns_array.shape[1] < self.s.k + 1:
            self.columns_array = np.zeros((self.s.d, room))
            self.cost_array = np.zeros(room)
        columns, cost = self.columns_array, self.cost_array
        self.columns, self.cost, self.room = &columns[0, 0], &cost[0], columns.shape[1]
        self.grow_sums(self.room)
        for k in range(self.s.k):
            self.set_column(k)

    cdef void set_column(self, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t j
        for j in range(self.s.d):
            self.columns[j * self.room + k] = self.sums.total[k * self.s.d + j] / self.sums.weight[k]

    def collapse(self, double lam, Py_ssize_t max_clusters):
        """One collapsed sweep (Broderick, Kulis & Jordan 2013, eq. 8-9): means are right at all times.

        Point i leaves its cluster and goes where the objective is lowest. Joining cluster c costs
        w s / (w + s) ||x - m||^2, with s and m the weight and mean of c without i; being alone costs lam. Costs that
        differ by what rounding may make of them are equal: the lowest index wins, and an old cluster before a new one.

        Returns the points that moved and the clusters opened; ``move_centers`` closes the sweep.
        """
        cdef Sweep* s = &self.s
        cdef Py_ssize_t i, k, live, best, own, moved = 0, opened = 0
        cdef double w, least, allowance, size
        cdef double[::1] row_array = np.empty(s.d)
        cdef double* row = &row_array[0]
        cdef bint alone
        if not (self.have_sums and self.fresh_sums):
            self.add_up()
        self.load()
        live = s.k
        with nogil:
            for i in range(s.n):
                w = 1.0 if s.weight == NULL else s.weight[i]
                if w == 0.0:
                    continue
                self.check_signals(s.k)
                if s.x_single:
                    shifted_row(<const float*> s.x, s, i, row)
                else:
                    shifted_row(<const double*> s.x, s, i, row)
                own = s.label[i]
                alone = self.sums.count[own] == 1.0
                sc_squares(row, s.d, self.columns, self.room, s.k, self.cost)
                least = lam if live - alone < max_clusters else HUGE_VAL
                for k in range(s.k):
                    if self.sums.count[k] == 0.0 or (alone and k == own):
                        self.cost[k] = HUGE_VAL
                    elif k == own:  # ||x - m|| = ||x - mean|| W / (W - w), W and mean those with i
                        self.cost[k] *= w * self.sums.weight[k] / (self.sums.weight[k] - w)
                    else:
                        self.cost[k] *= w * self.sums.weight[k] / (self.sums.weight[k] + w)
                    least = min(least, self.cost[k])
                # a mean is off by 1e-12 ||x|| at the most, a cost c then by about sqrt(c w) times that
                size = 0.0
                for k in range(s.d):
                    size += row[k] * row[k]
                allowance = least + 1e-12 * (least + sqrt(least) * sqrt(w * size)) + w * s.noise
                best = 0
                while best < s.k and not self.cost[best] <= allowance:
                    best += 1
                if best == own or (best == s.k and alone):
                    continue
                if best == s.k:
                    if s.k == self.room:
                        with gil:
                            self.load()
                    s.k += 1
                    live += 1
                    opened += 1
                    self.clear_sums(best, s.k)
                moved += 1
                live -= alone
                self.hand_over(row, w, own, -1.0)
                self.hand_over(row, w, best, 1.0)
                s.label[i] = <int> best
        self.reserve(s.k)
        self.have_sums = moved == 0
        return moved, opened

    cdef void hand_over(self, const double* row, double w, Py_ssize_t k, double sign) noexcept nogil:
        """Add a point to cluster k or take it away."""
        cdef Py_ssize_t j
        for j in range(self.s.d):
            self.sums.total[k * self.s.d + j] += sign * w * row[j]
        self.sums.weight[k] += sign * w
        self.sums.count[k] += sign
        if self.sums.count[k] > 0.0:
            self.set_column(k)


# ---- passes over the data alone ------------------------------------------------------------------------------

cdef struct Pass:
    const void* x               # n x d
    bint x_single
    Py_ssize_t row              # strides in elements
    Py_ssize_t col
    Py_ssize_t n
    Py_ssize_t d
    const double* weight        # n, or NULL
    Py_ssize_t n_groups
    double* partial             # n_groups x 4 x d
    const double* seed          # d
    double* distance            # n
    double* far_distance        # of each chunk
    Py_ssize_t* far_index


cdef Pass pass_over(const real_x[:, :] X, const double[::1] weight) except *:
    cdef Pass a
    memset(&a, 0, sizeof(Pass))
    if weight is not None and weight.shape[0] != X.shape[0]:
        raise ValueError("weight must match X")
    a.x, a.x_single, a.n, a.d = &X[0, 0], real_x is float, X.shape[0], X.shape[1]
    a.row, a.col = X.strides[0] // sizeof(real_x), X.strides[1] // sizeof(real_x)
    a.weight = NULL if weight is None else &weight[0]
    return a


cdef void column_sums(const real_x* x, const Pass* a, Py_ssize_t group) noexcept nogil:
    """Sum of w (x - x_0) and of w x, least and greatest value of each column."""
    cdef Py_ssize_t i, j, d = a.d, start = group * a.n // a.n_groups, stop = (group + 1) * a.n // a.n_groups
    cdef double* total = a.partial + 4 * d * group
    cdef double* raw = total + d
    cdef double* low = raw + d
    cdef double* high = low + d
    cdef double t, w
    for j in range(d):
        total[j] = 0.0
        raw[j] = 0.0
        low[j] = x[start * a.row + j * a.col]
        high[j] = low[j]
    for i in range(start, stop):
        w = 1.0 if a.weight == NULL else a.weight[i]
        for j in range(d):
            t = x[i * a.row + j * a.col]
            low[j] = min(low[j], t)
            high[j] = max(high[j], t)
            total[j] += w * (t - x[j * a.col])
            raw[j] += w * t


cdef void column_item(void* context, Py_ssize_t group, int slot) noexcept nogil:
    cdef const Pass* a = <const Pass*> context
    if a.x_single:
        column_sums(<const float*> a.x, a, group)
    else:
        column_sums(<const double*> a.x, a, group)


def column_statistics(const real_x[:, :] X, const double[::1] weight, int n_threads):
    """Weighted mean, origin, least and greatest value of each column: float64 arrays of shape (d,).

    The origin is where sums are best taken from: 0 where the data lie around it, so that sums of round numbers stay
    exact, else a round number near the mean, so that x - origin is exact for them.

    X : IN array (n, d);  weight : IN array (n,) or None
    """
    cdef Py_ssize_t n = X.shape[0], d = X.shape[1], first = 0, last
    cdef Py_ssize_t n_groups = max(<Py_ssize_t> 1, min(<Py_ssize_t> MAX_GROUPS, n // 4096))
    cdef Pass a = pass_over(X, weight)
    partial_array = np.empty((n_groups, 4, d))
    cdef double[:, :, ::1] partial = partial_array
    a.n_groups, a.partial = n_groups, &partial[0, 0, 0]
    while first < n_groups:
        last = min(n_groups, first + max(1, n_groups * WORK // (n * d)))
        with nogil:
            run(column_item, &a, first, last, n_threads if 8 * n * d > PAYS else 1)
        PyErr_CheckSignals()
        first = last
    mass = float(n) if weight is None else float(np.sum(weight))
    low, high = partial_array[:, 2].min(axis=0), partial_array[:, 3].max(axis=0)
    # summed in order of the groups: numpy adds along the first axis one row after the other
    mean = np.asarray(X[0], dtype=np.float64) + partial_array[:, 0].sum(axis=0) / mass
    raw_mean = partial_array[:, 1].sum(axis=0) / mass
    reach = np.maximum(high - mean, mean - low)
    around_zero = np.abs(mean) <= reach
    mean = np.where(around_zero, raw_mean, mean)
    step = 2.0 ** np.floor(np.log2(reach, where=reach > 0.0, out=np.zeros(d)))
    origin = np.where(around_zero, 0.0, np.where(reach > 0.0, np.round(mean / step) * step, mean))
    return mean, origin, low, high


cdef void nearest_seed_chunk(const real_x* x, const Pass* a, Py_ssize_t chunk) noexcept nogil:
    """distance[i] = min(distance[i], ||x_i - seed||^2); the largest one and its first index."""
    cdef Py_ssize_t i, index = -1
    cdef double t, largest = -1.0
    for i in range(chunk * CHUNK, min(a.n, (chunk + 1) * CHUNK)):
        if a.weight != NULL and a.weight[i] == 0.0:
            continue
        t = squared_distance(x + i * a.row, a.col, a.seed, a.d)
        if t < a.distance[i]:
            a.distance[i] = t
        t = a.distance[i] if a.weight == NULL else a.weight[i] * a.distance[i]
        if t > largest:
            largest = t
            index = i
    a.far_distance[chunk] = largest
    a.far_index[chunk] = index


cdef void nearest_seed_item(void* context, Py_ssize_t chunk, int slot) noexcept nogil:
    cdef const Pass* a = <const Pass*> context
    if a.x_single:
        nearest_seed_chunk(<const float*> a.x, a, chunk)
    else:
        nearest_seed_chunk(<const double*> a.x, a, chunk)


def nearest_seed(const real_x[:, :] X, const double[::1] weight, const double[::1] seed, double[::1] distance,
                 int n_threads):
    """One round of farthest-first traversal. Returns the point with the largest weighted distance, and that distance.

    X : IN array (n, d);  weight : IN array (n,) or None, rows of weight zero are left out;  seed : IN array (d,)
    distance : INOUT array (n,), squared distance to the nearest seed so far
    """
    cdef Py_ssize_t n = X.shape[0], chunks = (n + CHUNK - 1) // CHUNK, c, best_index = -1
    cdef Py_ssize_t first = 0, last
    cdef double best = -1.0
    cdef double[::1] far_distance = np.empty(chunks)
    cdef Py_ssize_t[::1] far_index = np.empty(chunks, dtype=np.intp)
    cdef Pass a = pass_over(X, weight)
    a.seed, a.distance, a.far_distance, a.far_index = &seed[0], &distance[0], &far_distance[0], &far_index[0]
    while first < chunks:
        last = min(chunks, first + max(1, WORK // (CHUNK * X.shape[1])))
        with nogil:
            run(nearest_seed_item, &a, first, last, n_threads if 8 * n * a.d > PAYS else 1)
        PyErr_CheckSignals()
        first = last
    for c in range(chunks):
        if far_distance[c] > best:
            best = far_distance[c]
            best_index = far_index[c]
    return best_index, best
