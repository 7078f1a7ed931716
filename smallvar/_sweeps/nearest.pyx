"""Nearest centers of all points, with as few distances as the bounds allow.

One sweep visits the points in chunks. A point passes without any distance while

    u_i < max(l_i, h_z)        u_i >= dist(x_i, own center z),  l_i <= dist(x_i, second nearest center),
                               h_z = half the distance from center z to its nearest other center

(Hamerly 2010). For the others u is made exact; those that fail the test again are gathered into tiles of points and
scored against all centers at once. Scores are approximate, with a known bound on their error; every decision that is
closer than the bound is taken again in the deciding arithmetic, squared_distance. So labels depend neither on chunks
nor on threads nor on the instruction set.
"""

from cython.parallel cimport prange
from libc.stdint cimport uintptr_t
from libc.string cimport memset

from smallvar._sweeps.opened cimport attract_points, lower_distances
from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.restless cimport copy_restless, flush_restless, forget_restless
from smallvar._sweeps.rows cimport poll_signals, real_x, rows_of
from smallvar._sweeps.scores cimport (
    MAX_TILES, Batch, Close, decide, distances_to, flush, join, pad, place_center, place_centers,
)
from smallvar._sweeps.state cimport (
    BIG,
    CHUNK,
    WORK,
    State,
    exact_distance,
    is_far,
    list_far,
    real_c,
    surely_far,
    tile_of,
    upper,
)
from smallvar._sweeps.tolerances cimport FARTHEST_MARGIN

import numpy as np

cdef extern from "simd.h" nogil:
    const char* SMALLVAR_COMPILER
    const char* sv_set_name()
    const char* sv_set_names()
    const Py_ssize_t SV_PANEL
    void sv_upper(Py_ssize_t, const double*, double, float*)
    void sv_second(Py_ssize_t, const int*, const float*, const float*, const float*, const float*, const float*, int,
                   int*)
    Py_ssize_t sv_list(Py_ssize_t, const unsigned char*, unsigned short*)
    void sv_filter(Py_ssize_t, float*, float*, const int*, const float*, const float*, const float*, float,
                   unsigned char*)
    void sv_filter_opened(Py_ssize_t, float*, float*, const int*, const float*, const float*, const float*,
                          const float*, const float*, const double*, int, double, unsigned char*)
    void sv_filter_restless(Py_ssize_t, const float*, float*, const int*, const float*, const float*, const float*,
                            int, unsigned char*)

cdef enum:
    TILE_BYTES = 1 << 18    # memory of such tiles, where it can be had
    LISTED = 128     # listed points whose own distances are computed together


def compiler():
    """Name and version of the C compiler."""
    return SMALLVAR_COMPILER.decode()


def instruction_set():
    """Name of the instruction set whose kernels run."""
    return sv_set_name().decode()


def instruction_sets():
    """Names of the instruction sets that kernels are compiled for, lowest first."""
    return sv_set_names().decode().split(", ")


cdef void assign_listed(
    const real_x* x, State* s, Py_ssize_t start, const unsigned short* listed, Py_ssize_t n, Batch* failed,
    Batch* restless_only, real_c* tiles, Close* close, unsigned char* flag
) noexcept nogil:
    """Points start + listed of a chunk, at most LISTED, that failed the filter: u becomes exact, they are tested again.

    Those that fail again are scored as soon as they fill a batch, while their rows are in the cache: against all
    centers, or, where no calm center can be nearer, against the restless ones only.
    """
    cdef double known[LISTED]
    cdef float u[LISTED]
    cdef float l[LISTED]
    cdef float g[LISTED]
    cdef int verdict[LISTED]
    cdef int center[LISTED]
    cdef Py_ssize_t q, i
    for q in range(n):
        center[q] = s.label[start + listed[q]]
        l[q] = s.l[start + listed[q]]
        g[q] = s.g[start + listed[q]]
    distances_to(x, s, start, listed, n, center, known)
    sv_upper(n, known, s.scale, u)
    sv_second(n, center, u, l, g, s.h, s.hd, s.opened, verdict)
    for q in range(n):
        i = start + listed[q]
        s.u[i] = u[q]
        if verdict[q] == 2:
            join(failed, i, known[q])
            if failed.size == s.batch:
                flush(x, s, failed, tiles, close, flag)
        elif verdict[q] == 1:
            join(restless_only, i, known[q])
            if restless_only.size == s.batch:
                flush_restless(x, s, restless_only, tiles, flag)
        elif s.seek:
            flag[listed[q]] = 2 if surely_far(x, s, i, known[q]) else 0


cdef void assign_chunk(
    const real_x* x, State* s, Py_ssize_t chunk, real_c* tiles
) noexcept nogil:
    """Nearest centers of one chunk."""
    cdef unsigned char flag[CHUNK]
    cdef unsigned short listed[CHUNK + 8]  # sv_list may write 8 entries too many
    cdef Batch failed, restless_only
    cdef Close close
    cdef Py_ssize_t start = chunk * CHUNK, size = min(<Py_ssize_t> CHUNK, s.n - start)
    cdef Py_ssize_t o, q, n_listed
    failed.size = 0
    restless_only.size = 0
    close.size = 0
    s.n_moved[chunk] = 0
    s.n_far[chunk] = 0
    s.n_searched[chunk] = 0
    s.n_exact[chunk] = 0
    if s.lazy:
        if s.opened or (s.rows.weight != NULL and s.seek):
            sv_filter_opened(size, s.u + start, s.l + start, s.label + start, s.p, s.r, s.h, s.hd, s.fresh,
                             NULL if s.rows.weight == NULL else s.rows.weight + start, s.opened_restless, s.limit,
                             flag)
        else:
            sv_filter(size, s.u + start, s.l + start, s.label + start, s.p, s.r, s.h, <float> s.limit, flag)
        if s.n_restless > 0:
            sv_filter_restless(size, s.u + start, s.g + start, s.label + start, s.rg, s.h, s.fresh, s.opened, flag)
        n_listed = sv_list(size, flag, listed)
        if s.seek:
            memset(flag, 0, size)
        q = 0
        while q < n_listed:
            assign_listed(x, s, start, listed + q, min(<Py_ssize_t> LISTED, n_listed - q), &failed, &restless_only,
                          tiles, &close, flag)
            q += LISTED
        if restless_only.size > 0:
            flush_restless(x, s, &restless_only, tiles, flag)
    else:
        memset(flag, 0, size)
        for o in range(size):
            join(&failed, start + o, -1.0)
            if failed.size == s.batch:
                flush(x, s, &failed, tiles, &close, flag)
    if failed.size > 0:
        flush(x, s, &failed, tiles, &close, flag)
    if close.size > 0:
        decide(x, s, start, &close, tiles, flag)
    if s.seek:
        list_far(s, chunk, flag, size)
    if s.farthest:
        farthest_of_chunk(x, s, chunk)


cdef inline double largest_square(const State* s, Py_ssize_t i) noexcept nogil:
    """Upper bound of a point's weighted squared distance, scaled."""
    cdef double u = s.u[i]
    return u * u if s.rows.weight == NULL else s.rows.weight[i] * u * u


cdef void farthest_of_chunk(const real_x* x, State* s, Py_ssize_t chunk) noexcept nogil:
    """The point with the largest weighted distance beyond lam, the first of them at a tie.

    u may be far above the distance, so the distance is computed wherever u allows it to be the largest. The point with
    the largest u comes first: then u rules out most of the others.
    """
    cdef Py_ssize_t i, start = chunk * CHUNK, stop = min(s.n, start + CHUNK), first = start, turn
    cdef float widest = -1.0
    cdef double distance, best = s.lam, largest = -1.0, square = s.scale * s.scale * (1.0 - FARTHEST_MARGIN)
    s.farthest_index[chunk] = -1
    if s.rows.weight == NULL:  # the common case, as a loop that compilers turn into vector code
        for i in range(start, stop):
            widest = s.u[i] if s.u[i] > widest else widest
        while s.u[first] < widest:
            first += 1
    else:
        for i in range(start, stop):
            distance = largest_square(s, i)
            if distance > largest:
                largest = distance
                first = i
    for turn in range(start - 1, stop):
        i = first if turn < start else turn
        if largest_square(s, i) >= best * square:  # both may be 0
            distance = exact_distance(x, s, i, s.label[i])
            s.u[i] = upper(distance, s.scale)
            if not is_far(s, i, distance):
                continue
            if s.rows.weight != NULL:
                distance = distance * s.rows.weight[i]
            if distance > best or (distance == best and i < s.farthest_index[chunk]):
                best = distance
                s.farthest_index[chunk] = i
    s.farthest_distance[chunk] = best


cdef void assign_points(State* s, Py_ssize_t c, int thread) noexcept nogil:
    """Nearest centers of one chunk, by the types of the data and of the scores."""
    cdef char* tile = tile_of(s, thread)
    if s.rows.single:
        if s.single:
            assign_chunk[float, float](<const float*> s.rows.x, s, c, <float*> tile)
        else:
            assign_chunk[float, double](<const float*> s.rows.x, s, c, <double*> tile)
    elif s.single:
        assign_chunk[double, float](<const double*> s.rows.x, s, c, <float*> tile)
    else:
        assign_chunk[double, double](<const double*> s.rows.x, s, c, <double*> tile)


cdef class Engine:
    """Points, centers and bounds of a fit, and the sweeps over them.

    Parameters
    ----------
    X : IN array (n, d), float32 or float64, any strides, may be read-only; or what rows_of takes
    weight : IN array (n,) float64 in visiting order, or None
    order : IN array (n,) intp, a permutation: the i-th point visited is row order[i]; None: as given
    label : INOUT array (n,) int32 in visiting order
    space : has ``origin``, array (d,) float64, where sums and scores are taken from, ``scale``, a power of two that
        brings X - origin into [-1, 1], and ``rounding``, the squared distance up to which two points may be the same
    n_threads : int
    capacity : int, room for this many centers
    bounds : bool, keep u and l (else every sweep is dense)
    """

    def __init__(self, X, weight, order, int[::1] label, space, int n_threads, Py_ssize_t capacity, bint bounds):
        cdef const double[::1] shift = space.origin
        cdef Py_ssize_t n = X.shape[0], d = X.shape[1], chunks = (n + CHUNK - 1) // CHUNK, tiles_at_once
        cdef float[::1] bound
        cdef unsigned char[::1] tiles
        cdef unsigned short[::1] offsets
        cdef int[::1] ints
        cdef double[::1] doubles
        cdef Py_ssize_t[::1] farthest_index
        if label.shape[0] != n or shift.shape[0] != d:
            raise ValueError("label and shift must match X")
        self.arrays = [X, weight, order, np.asarray(label), np.asarray(shift)]
        self.s.rows = rows_of(X, weight, order)
        self.s.n, self.s.d = n, d
        self.s.label = &label[0]
        self.s.shift = &shift[0]
        self.s.scale = space.scale
        self.s.rounding = space.rounding
        self.s.single = True
        self.n_threads = n_threads
        self.n_chunks = chunks
        self.restless_from = 96
        self.s.lam = np.inf
        self.s.limit = BIG
        # lists of the chunks
        ints = self.keep(np.zeros(3 * chunks, dtype=np.int32))
        self.s.n_moved = &ints[0]
        self.s.n_far = &ints[chunks]
        self.s.n_exact = &ints[2 * chunks]
        doubles = self.keep(np.zeros(chunks))
        self.s.farthest_distance = &doubles[0]
        farthest_index = self.keep(np.zeros(2 * chunks, dtype=np.intp))
        self.s.farthest_index = &farthest_index[0]
        self.s.n_searched = &farthest_index[chunks]
        offsets = self.keep(np.empty(2 * chunks * CHUNK, dtype=np.uint16))
        self.s.moved = &offsets[0]
        self.s.far = &offsets[chunks * CHUNK]
        ints = self.keep(np.empty(chunks * CHUNK, dtype=np.int32))
        self.s.moved_from = &ints[0]
        if bounds:
            bound = self.keep(np.full(3 * n, BIG, dtype=np.float32))
            self.s.u = &bound[0]
            self.s.l = &bound[n]
            self.s.g = &bound[2 * n]
        # tiles of a thread, on cache lines of their own
        tiles_at_once = max(<Py_ssize_t> 1, min(<Py_ssize_t> MAX_TILES, TILE_BYTES // (64 * d)))
        self.s.tile_size = 64 * (d * tiles_at_once + 1)
        self.s.batch = 16 * tiles_at_once
        tiles = self.keep(np.empty(self.s.tile_size * n_threads + 64, dtype=np.uint8))
        self.s.tiles = <char*> ((<uintptr_t> &tiles[0] + 63) // 64 * 64)
        self.reserve(capacity)

    cdef keep(self, array):
        self.arrays.append(array)
        return array

    cpdef reserve(self, Py_ssize_t capacity):
        """Make room for this many centers; those that are there stay."""
        cdef double[:, ::1] centers
        cdef float[:, ::1] tables
        cdef int[::1] restless
        cdef unsigned char[::1] is_restless
        cdef Py_ssize_t k, d = self.s.d
        if capacity <= self.capacity:
            return
        capacity = (capacity + 2 * SV_PANEL) // SV_PANEL * SV_PANEL
        old = self.center_arrays
        centers_array = np.zeros((capacity, d))
        tables_array = np.full((7, capacity), BIG, dtype=np.float32)
        if old is not None:
            k = min(self.s.k, <Py_ssize_t> len(old[0]))
            centers_array[:k] = old[0][:k]
            tables_array[:, :k] = old[1][:, :k]
        centers = centers_array
        tables = tables_array
        self.s.c = &centers[0, 0]
        self.s.p, self.s.r, self.s.h = &tables[0, 0], &tables[1, 0], &tables[2, 0]
        self.s.hd, self.s.fresh, self.s.near = &tables[3, 0], &tables[4, 0], &tables[5, 0]
        self.s.rg = &tables[6, 0]
        restless_array = np.zeros(capacity, dtype=np.int32)
        is_restless_array = np.zeros(capacity, dtype=np.uint8)
        if old is not None:
            restless_array[:self.s.n_restless] = old[3][:self.s.n_restless]
            is_restless_array[restless_array[:self.s.n_restless]] = 1
        restless = restless_array
        is_restless = is_restless_array
        self.s.restless = &restless[0]
        self.s.is_restless = &is_restless[0]
        self.center_arrays = (centers_array, tables_array, self.reserve_scores(capacity), restless_array,
                              is_restless_array)
        self.capacity = capacity
        with nogil:
            self.place()
            copy_restless(&self.s)

    cdef tuple reserve_scores(self, Py_ssize_t capacity):
        """Room for the tables that scores are computed from; returns the arrays."""
        cdef float[::1] single
        cdef double[::1] double_
        cdef Py_ssize_t size = capacity * self.s.d
        arrays = tuple(np.zeros(size + capacity, dtype=np.float32 if self.s.single else np.float64) for _ in range(2))
        if self.s.single:
            single = arrays[0]
            self.s.scaled, self.s.norm = <void*> &single[0], <void*> &single[size]
            single = arrays[1]
            self.s.restless_scaled, self.s.restless_norm = <void*> &single[0], <void*> &single[size]
        else:
            double_ = arrays[0]
            self.s.scaled, self.s.norm = <void*> &double_[0], <void*> &double_[size]
            double_ = arrays[1]
            self.s.restless_scaled, self.s.restless_norm = <void*> &double_[0], <void*> &double_[size]
        return arrays

    cdef void place(self) noexcept nogil:
        """Place all centers: in the tables that scores are computed from."""
        place_centers(&self.s)

    cdef void place_last(self) noexcept nogil:
        """Place the last center, which is new."""
        place_center(&self.s, self.s.k - 1)
        pad(&self.s, self.s.scaled, self.s.norm, self.s.k)

    @property
    def k(self):
        """Number of centers."""
        return self.s.k

    @property
    def centers(self):
        """Copy of the centers, (k, d)."""
        return self.center_arrays[0][:self.s.k].copy()

    @property
    def labels(self):
        """Labels in visiting order, the caller's array."""
        return self.arrays[3]

    @property
    def searched(self):
        """Distances computed from scores in the last sweep."""
        cdef Py_ssize_t c, total = 0
        for c in range(self.n_chunks):
            total += self.s.n_searched[c]
        return total

    @property
    def decided_exactly(self):
        """Points of the last sweep that were close."""
        cdef Py_ssize_t c, total = 0
        for c in range(self.n_chunks):
            total += self.s.n_exact[c]
        return total

    @property
    def crowded(self):
        """Whether so many points were close in the last sweep that scores in float64 pay: more than one in 50."""
        return self.s.single and 50 * self.decided_exactly > self.s.n

    def set_centers(self, const double[:, ::1] centers):
        """Replace all centers; bounds no longer hold."""
        cdef Py_ssize_t k, j
        if centers.shape[1] != self.s.d:
            raise ValueError(f"centers must have {self.s.d} columns, got {centers.shape[1]}")
        forget_restless(&self.s)
        self.s.k = 0
        self.reserve(centers.shape[0])
        self.s.k = centers.shape[0]
        for k in range(self.s.k):
            for j in range(self.s.d):
                self.s.c[k * self.s.d + j] = centers[k, j]
        self.place()
        self.s.lazy = False
        self.s.opened = False

    def assign(self):
        """One sweep: the nearest center of every point; opens none."""
        cdef Py_ssize_t first = 0, last
        self.s.swept = True
        with nogil:
            while first < self.n_chunks:
                last = min(self.n_chunks, first + self.chunks_at_once())
                self.assign_chunks(first, last)
                self.check_signals((last - first) * CHUNK * (self.s.k + 2))
                first = last

    def use_double(self):
        """Score in float64 from now on; bounds still hold."""
        cdef Py_ssize_t capacity = self.capacity
        if not self.s.single:
            return
        self.s.single = False
        self.s.batch = self.s.batch // 2
        self.capacity = 0
        self.reserve(capacity)

    cdef Py_ssize_t chunks_at_once(self) noexcept nogil:
        """Chunks between two checks for signals, in a sweep that may need every distance."""
        return max(<Py_ssize_t> 2 * self.n_threads, WORK // (CHUNK * (self.s.k + 64) * self.s.d))

    cdef int check_signals(self, Py_ssize_t rows) except -1 nogil:
        """Raise KeyboardInterrupt if Ctrl-C was pressed, after some tenths of a second of work.

        rows : distances computed, or rows read, since the last call
        """
        return poll_signals(&self.work, rows * self.s.d, WORK)

    cdef int threads_for(self, Py_ssize_t points) noexcept nogil:
        """One thread where waking others would cost more time than it saves."""
        return self.n_threads if points * (self.s.k * self.s.d + 16) > PAYS else 1

    cdef void assign_chunks(self, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
        cdef State* s = &self.s
        cdef Py_ssize_t c
        cdef ParallelLoop loop
        loop = begin_loop(last - first, self.threads_for((last - first) * CHUNK))
        if loop.threads == 1:
            for c in range(first, last):
                assign_points(s, c, 0)
        else:
            for c in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                assign_points(s, c, begin_chunk(&loop))
        end_loop(&loop)

    cdef void attract(
        self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t k0, const Py_ssize_t* creator
    ) noexcept nogil:
        """Points start..stop-1 are compared with the centers k0.. opened at points before them."""
        attract_points(&self.s, start, stop, k0, creator, self.threads_for(stop - start))

    cdef void lower_table(self, Py_ssize_t k0, Py_ssize_t k1, float* table) noexcept nogil:
        """table[c] = min(table[c], distance from center c to the nearest other one of k0..k1-1), for all c."""
        lower_distances(&self.s, k0, k1, table, self.threads_for(self.s.k))
