"""Sweeps of DP-means over sparse rows: the same labels as over the dense array of the same numbers.

A row is scored against all centers at once: the table of scores has a row for each column of the data, with the values
of all centers side by side, and each stored entry adds its multiple of one of them. As for dense rows, decisions that
are closer than the error of the scores are taken again: first by ``near``, good to some roundings, then, where that is
not enough, by the deciding arithmetic on the expanded row. An entry that is not stored adds nothing to a squared norm
or to a sum of rows, as a 0 would (see Layout in sums.pyx), so these are the same bits.
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL, sqrt
from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memset

from smallvar._sweeps.dpmeans cimport DPSweep
from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.restless cimport choose_restless
from smallvar._sweeps.rows cimport entries_of, entry, poll_signals, weight_of
from smallvar._sweeps.state cimport (
    BIG, CHUNK, WORK, State, is_far, list_far, lower, record_move, set_lower, squared_distance, tile_of, upper,
)
from smallvar._sweeps.sums cimport ACCUMULATOR_DIGITS, move_entries, sums_t, accumulator_add
from smallvar._sweeps.tolerances cimport (
    BOUND_AT_CENTER, DISTANCE_MARGIN, FARTHEST_MARGIN, ROUNDOFF_DOUBLE, ROUNDOFF_SINGLE, PRODUCT_UNDERFLOW,
)

import os

import numpy as np

cdef extern from "simd.h" nogil:
    Py_ssize_t sv_list(Py_ssize_t, const unsigned char*, unsigned short*)
    void sv_filter(Py_ssize_t, float*, float*, const int*, const float*, const float*, const float*, float,
                   unsigned char*)
    void sv_filter_opened(Py_ssize_t, float*, float*, const int*, const float*, const float*, const float*,
                          const float*, const float*, const double*, int, double, unsigned char*)

cdef extern from "_sparse.h" nogil:
    enum:
        CSR_PAD
        CSR_LANES
    void csr_scores_ff(const float*, const int*, Py_ssize_t, double, const float*, Py_ssize_t, const float*,
                       Py_ssize_t, float*)
    void csr_scores_df(const double*, const int*, Py_ssize_t, double, const float*, Py_ssize_t, const float*,
                       Py_ssize_t, float*)
    void csr_scores_fd(const float*, const int*, Py_ssize_t, double, const double*, Py_ssize_t, const double*,
                       Py_ssize_t, double*)
    void csr_scores_dd(const double*, const int*, Py_ssize_t, double, const double*, Py_ssize_t, const double*,
                       Py_ssize_t, double*)
    int csr_least_f(float*, Py_ssize_t, double*)
    int csr_least_d(double*, Py_ssize_t, double*)
    void csr_tile(const double*, const double*, Py_ssize_t, double*)

cdef enum:
    COLUMNS = 64        # of the data, whose rows of the table of scores are one item
    TABLES = 6          # numbers of 8 bytes for each center and column, of all there is, at most

cdef extern from *:
    """
    #define SMALLVAR_DISTANCE_UNDERFLOW 1e-300
    #define SMALLVAR_OBJECTIVE_ROUNDING 1e-11
    """
    # a squared distance, added to the error bound of ``near``: what float64 loses where products underflow
    const double DISTANCE_UNDERFLOW "SMALLVAR_DISTANCE_UNDERFLOW"
    # of a squared distance: what rounding may take from one in the objective; beyond, it is computed exactly
    const double OBJECTIVE_ROUNDING "SMALLVAR_OBJECTIVE_ROUNDING"


cdef struct View:           # what the items of loops need beside the state
    State* s
    Py_ssize_t stride       # numbers of a row of the table of scores, one for each center there is room for
    double* square          # of each center, its squared norm
    double* scores          # of each thread, stride + CSR_PAD numbers
    Py_ssize_t n_before     # centers at the start of the sweep


# ---- distances -------------------------------------------------------------------------------------------------------


cdef double near(const View* v, Py_ssize_t i, Py_ssize_t k, double* error) noexcept nogil:
    """||x_i - c_k||^2 from the stored entries alone.

    OUT error : how far that may be from the deciding distance, which carries d + 2 roundings itself
    """
    cdef const State* s = v.s
    cdef const double* c = s.c + k * s.d
    cdef Py_ssize_t stop, start = entries_of(&s.rows, i, &stop), m
    cdef double apart = 0.0, inside = 0.0, x, y, distance
    for m in range(start, stop):
        y = c[s.rows.column[m]]
        x = entry(&s.rows, m) - y
        apart += x * x
        inside += y * y
    distance = max(0.0, apart + (v.square[k] - inside))
    error[0] = 2.0 * ROUNDOFF_DOUBLE * ((s.d + 8) * distance + 4.0 * (stop - start + 8) * (apart + v.square[k]))
    error[0] += DISTANCE_UNDERFLOW
    return distance


cdef double exact(const View* v, Py_ssize_t i, Py_ssize_t k, double* buffer) noexcept nogil:
    """The deciding distance.  INOUT buffer: d zeros."""
    cdef const State* s = v.s
    cdef Py_ssize_t stop, start = entries_of(&s.rows, i, &stop), m
    cdef double distance
    for m in range(start, stop):
        buffer[s.rows.column[m]] = entry(&s.rows, m)
    distance = squared_distance(<const double*> buffer, 1, s.c + k * s.d, s.d)
    for m in range(start, stop):
        buffer[s.rows.column[m]] = 0.0
    return distance


cdef bint nearer(
    const View* v, Py_ssize_t i, Py_ssize_t a, Py_ssize_t b, double* buffer
) noexcept nogil:
    """Whether center a is nearer than center b, by the deciding distances."""
    cdef double e, f, t = near(v, i, a, &e), u = near(v, i, b, &f)
    if t + e < u - f:
        return True
    if t - e > u + f:
        return False
    return exact(v, i, a, buffer) < exact(v, i, b, buffer)


cdef bint far(const View* v, Py_ssize_t i, Py_ssize_t k, double* buffer) noexcept nogil:
    """is_far for the deciding distance of center k."""
    cdef double e, t = near(v, i, k, &e), w = weight_of(&v.s.rows, i)
    if w * (t + e) < v.s.lam or t + e < v.s.rounding:
        return False
    if w * (t - e) > v.s.lam and t - e > v.s.rounding:
        return True
    return is_far(v.s, i, exact(v, i, k, buffer))


# ---- nearest centers -------------------------------------------------------------------------------------------------


cdef struct Scored:         # a point against a range of centers
    double squares          # ||x||^2, scaled
    double error            # of squares + score
    double first            # the least score
    double second
    int best                # the center that has the least one, counted from the first of the range


cdef void score(const View* v, Py_ssize_t i, Py_ssize_t k0, Py_ssize_t k1, double* scores, Scored* out) noexcept nogil:
    """Scores of centers k0..k1-1, as numbers of the type of the table."""
    cdef const State* s = v.s
    cdef Py_ssize_t stop, start = entries_of(&s.rows, i, &stop), m, size
    cdef const int* column = s.rows.column + start
    cdef const float* x = <const float*> s.rows.x + start
    cdef const double* y = <const double*> s.rows.x + start
    cdef const float* table = <const float*> s.scaled + k0
    cdef const double* wide = <const double*> s.scaled + k0
    cdef const float* norm = <const float*> s.norm + k0
    cdef const double* wide_norm = <const double*> s.norm + k0
    cdef double[2] least
    cdef double t
    out.squares = 0.0
    for m in range(start, stop):
        t = entry(&s.rows, m) * s.scale
        out.squares += t * t
    size = stop - start
    if s.single:
        if s.rows.single:
            csr_scores_ff(x, column, size, s.scale, table, v.stride, norm, k1 - k0, <float*> scores)
        else:
            csr_scores_df(y, column, size, s.scale, table, v.stride, norm, k1 - k0, <float*> scores)
        out.best = csr_least_f(<float*> scores, k1 - k0, least)
    else:
        if s.rows.single:
            csr_scores_fd(x, column, size, s.scale, wide, v.stride, wide_norm, k1 - k0, scores)
        else:
            csr_scores_dd(y, column, size, s.scale, wide, v.stride, wide_norm, k1 - k0, scores)
        out.best = csr_least_d(scores, k1 - k0, least)
    out.first, out.second = least[0], least[1]
    # as error_bound in scores.pyx, but for the chain, which has as many terms as there are entries
    t = s.longest + 2.0 * sqrt(out.squares * s.longest)
    out.error = (size + 8) * (ROUNDOFF_SINGLE if s.single else ROUNDOFF_DOUBLE) * t + PRODUCT_UNDERFLOW * (size + 1)
    out.error += (s.d + 8) * 4.0 * ROUNDOFF_DOUBLE * (out.squares + s.longest)


cdef inline double score_of(const View* v, const double* scores, Py_ssize_t k) noexcept nogil:
    return (<const float*> scores)[k] if v.s.single else scores[k]


cdef int decide(
    const View* v, Py_ssize_t i, Py_ssize_t k0, Py_ssize_t k1, const double* scores, double bar, double* buffer
) noexcept nogil:
    """Nearest of those centers k0..k1-1 whose scores are not above the bar, by deciding distances; first at a tie."""
    cdef Py_ssize_t k, candidates = 0, best = k0
    cdef double t, error, least = HUGE_VAL, bound = HUGE_VAL
    for k in range(k0, k1):
        if not score_of(v, scores, k - k0) > bar:
            t = near(v, i, k, &error)
            bound = min(bound, t + error)
    for k in range(k0, k1):
        if not score_of(v, scores, k - k0) > bar:
            t = near(v, i, k, &error)
            if t - error <= bound:
                candidates += 1
                best = k
    if candidates == 1:
        return <int> best
    for k in range(k0, k1):
        if not score_of(v, scores, k - k0) > bar:
            t = near(v, i, k, &error)
            if t - error <= bound:
                t = exact(v, i, k, buffer)
                if t < least:
                    least = t
                    best = k
    return <int> best


cdef void assign_point(
    const View* v, Py_ssize_t i, Py_ssize_t chunk, double* scores, double* buffer, unsigned char* flag
) noexcept nogil:
    """Nearest of all centers."""
    cdef State* s = v.s
    cdef Scored a
    cdef int label
    cdef double square
    score(v, i, 0, s.k, scores, &a)
    label = a.best
    if not a.second - a.first > 2.0 * a.error:
        s.n_exact[chunk] += 1
        label = decide(v, i, 0, s.k, scores, a.first + 2.0 * a.error, buffer)
    if label != s.label[i]:
        record_move(s, i, label)
    square = max(0.0, a.squares + score_of(v, scores, label) + a.error)
    if s.u != NULL:
        s.u[i] = upper(square, 1.0)
        set_lower(s, i, lower(a.squares + a.second - a.error))
    if s.seek:
        # w distance, scaled, is below this
        square *= weight_of(&s.rows, i)
        if not square < s.lam * s.scale * s.scale * (1.0 - DISTANCE_MARGIN) and far(v, i, label, buffer):
            flag[i - chunk * CHUNK] = 2


cdef void assign_chunk(const View* v, Py_ssize_t chunk, double* scores, double* buffer) noexcept nogil:
    """Nearest centers of one chunk."""
    cdef State* s = v.s
    cdef unsigned char flag[CHUNK]
    cdef unsigned short listed[CHUNK + 8]  # sv_list may write 8 entries too many
    cdef Py_ssize_t start = chunk * CHUNK, size = min(<Py_ssize_t> CHUNK, s.n - start), q, i, n_listed
    cdef double distance, error
    s.n_moved[chunk] = 0
    s.n_far[chunk] = 0
    s.n_searched[chunk] = 0
    s.n_exact[chunk] = 0
    # bounds say nothing about centers that were opened in this sweep
    if s.lazy and s.k == v.n_before:
        if s.seek and s.rows.weight != NULL:
            sv_filter_opened(size, s.u + start, s.l + start, s.label + start, s.p, s.r, s.h, s.hd, s.fresh,
                             s.rows.weight + start, True, s.limit, flag)
        else:
            sv_filter(size, s.u + start, s.l + start, s.label + start, s.p, s.r, s.h, <float> s.limit, flag)
        n_listed = sv_list(size, flag, listed)
        memset(flag, 0, size)
        for q in range(n_listed):
            i = start + listed[q]
            distance = near(v, i, s.label[i], &error)
            s.u[i] = upper(distance + error, s.scale)
            if not s.u[i] < s.l[i]:
                assign_point(v, i, chunk, scores, buffer, flag)
                s.n_searched[chunk] += s.k
            elif s.seek and far(v, i, s.label[i], buffer):
                flag[listed[q]] = 2
    else:
        memset(flag, 0, size)
        for i in range(start, start + size):
            assign_point(v, i, chunk, scores, buffer, flag)
        s.n_searched[chunk] = size * s.k
    if s.seek:
        list_far(s, chunk, flag, size)
    if s.farthest:
        farthest_of_chunk(v, chunk, buffer)


cdef void farthest_of_chunk(const View* v, Py_ssize_t chunk, double* buffer) noexcept nogil:
    """The point with the largest weighted distance beyond lam, the first of them at a tie."""
    cdef State* s = v.s
    cdef Py_ssize_t i, start = chunk * CHUNK, stop = min(s.n, start + CHUNK), m
    cdef double distance, error, w, bar = s.lam, best = s.lam, square = s.scale * s.scale * (1.0 - FARTHEST_MARGIN)
    cdef double most[CHUNK]
    s.farthest_index[chunk] = -1
    for i in range(start, stop):  # which points may be it
        m = i - start
        w = weight_of(&s.rows, i)
        most[m] = -1.0
        if not w * <double> s.u[i] * <double> s.u[i] >= bar * square:
            continue
        distance = near(v, i, s.label[i], &error)
        most[m] = w * (distance + error)
        s.u[i] = upper(distance + error, s.scale)
        if distance - error > s.rounding:
            bar = max(bar, w * (distance - error))
    for i in range(start, stop):
        if most[i - start] >= bar:
            distance = exact(v, i, s.label[i], buffer)
            if not is_far(s, i, distance):
                continue
            distance *= weight_of(&s.rows, i)
            if distance > best:
                best = distance
                s.farthest_index[chunk] = i
    s.farthest_distance[chunk] = best


# ---- chunks of the loops that threads share out ----------------------------------------------------------------------


cdef inline double* scores_of(const View* v, int thread) noexcept nogil:
    """The memory for scores of a thread."""
    return v.scores + thread * (v.stride + CSR_PAD)


cdef void assign_points(const View* v, Py_ssize_t c, int thread) noexcept nogil:
    """Nearest centers of one chunk, with the memory of a thread."""
    assign_chunk(v, c, scores_of(v, thread), <double*> tile_of(v.s, thread))


cdef void attract_chunk(
    const View* v, Py_ssize_t c, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t k0, const Py_ssize_t* creator, int thread
) noexcept nogil:
    """Points of a chunk that come after the creators of new centers are compared with these."""
    cdef State* s = v.s
    cdef double* scores = scores_of(v, thread)
    cdef double* buffer = <double*> tile_of(s, thread)
    cdef Py_ssize_t i, seen = 0, n_new = s.k - k0
    cdef Scored found
    cdef double distance, error
    cdef int z
    for i in range(max(start, c * CHUNK), min(stop, (c + 1) * CHUNK)):
        while seen < n_new and creator[seen] < i:
            seen += 1
        if seen == 0 or s.label[i] >= k0:
            continue  # nothing opened yet, or it got its label in the ordered pass
        score(v, i, k0, k0 + seen, scores, &found)
        if found.squares + found.first - found.error > <double> s.u[i] * <double> s.u[i]:
            continue
        z = <int> k0 + found.best
        if not found.second - found.first > 2.0 * found.error:
            z = decide(v, i, k0, k0 + seen, scores, found.first + 2.0 * found.error, buffer)
        if nearer(v, i, z, s.label[i], buffer):
            s.label[i] = z
            distance = near(v, i, z, &error)
            s.u[i] = upper(distance + error, s.scale)


cdef void lower_chunk(const View* v, Py_ssize_t c, int thread) noexcept nogil:
    """The last center has become one of the others of every point of a chunk that it is not the own one of."""
    cdef State* s = v.s
    cdef Py_ssize_t i
    cdef Scored found
    for i in range(c * CHUNK, min(s.n, (c + 1) * CHUNK)):
        if s.label[i] != s.k - 1:
            score(v, i, s.k - 1, s.k, scores_of(v, thread), &found)
            s.l[i] = min(s.l[i], lower(found.squares + found.first - found.error))


cdef void place_norm(const View* v, Py_ssize_t k) noexcept nogil:
    """The squared norm of center k, compensated, so that it is as good as one rounding."""
    cdef const double* c = v.s.c + k * v.s.d
    cdef double total = 0.0, lost = 0.0, t, y
    cdef Py_ssize_t j
    for j in range(v.s.d):
        y = c[j] * c[j] - lost
        t = total + y
        lost = (t - total) - y
        total = t
    v.square[k] = total
    total *= v.s.scale * v.s.scale
    if v.s.single:
        (<float*> v.s.norm)[k] = <float> total
    else:
        (<double*> v.s.norm)[k] = total


cdef void place_columns(const View* v, Py_ssize_t block) noexcept nogil:
    """Rows of the table of scores from the centers."""
    cdef State* s = v.s
    cdef Py_ssize_t j0 = block * COLUMNS, j1 = min(s.d, j0 + COLUMNS), k, j
    cdef double factor = -2.0 * s.scale
    if s.single:
        for k in range(s.k):
            for j in range(j0, j1):
                (<float*> s.scaled)[j * v.stride + k] = <float> (factor * s.c[k * s.d + j])
    else:
        for k in range(s.k):
            for j in range(j0, j1):
                (<double*> s.scaled)[j * v.stride + k] = factor * s.c[k * s.d + j]


cdef void add_squares_of_chunk(
    const View* v, Py_ssize_t c, const double* about, int64_t* digits, int thread
) noexcept nogil:
    """Weighted squared distances of a chunk from one point, or from the own centers (about NULL), added to digits."""
    cdef const State* s = v.s
    cdef double[CHUNK] square
    cdef Py_ssize_t i, m, stop, start = c * CHUNK, size = min(s.n - start, <Py_ssize_t> CHUNK)
    cdef double t, error
    for i in range(start, start + size):
        if about != NULL:
            t = 0.0
            m = entries_of(&s.rows, i, &stop)
            while m < stop:
                error = entry(&s.rows, m) - about[s.rows.column[m]]
                t += error * error
                m += 1
        else:
            t = near(v, i, s.label[i], &error)
            if error > 2.0 * ROUNDOFF_DOUBLE * (s.d + 8) * t + OBJECTIVE_ROUNDING * t:
                t = exact(v, i, s.label[i], <double*> tile_of(s, thread))
        square[i - start] = t * weight_of(&s.rows, i)
    accumulator_add(digits, square, size)


cdef void add_members(
    const State* s, Py_ssize_t k, const Py_ssize_t* first, const Py_ssize_t* member, const sums_t* sums
) noexcept nogil:
    """Add the points that have joined cluster k to its sum, and take off those that have left it.

    first : where the members of each cluster begin;  member : points, or ~point where one has left
    """
    cdef Py_ssize_t m
    for m in range(first[k], first[k + 1]):
        if member[m] < 0:
            move_entries(&s.rows, ~member[m], <int> k, -1.0, sums)
        else:
            move_entries(&s.rows, member[m], <int> k, 1.0, sums)


cdef Py_ssize_t tile_numbers(Py_ssize_t d) noexcept nogil:
    return CSR_LANES * d


cdef void flush_tile(
    const Tiling* a, double* tile, const Py_ssize_t* point, Py_ssize_t size, const double* center
) noexcept nogil:
    """Distances of the points of a tile, which is all zero afterward."""
    cdef double out[CSR_LANES]
    cdef Py_ssize_t lane, m, stop
    csr_tile(tile, center, a.rows.d, out)
    for lane in range(size):
        a.out[point[lane]] = out[lane]
        m = entries_of(a.rows, point[lane], &stop)
        while m < stop:
            tile[a.rows.column[m] * CSR_LANES + lane] = 0.0
            m += 1


cdef void tile_chunk(const Tiling* a, Py_ssize_t block, int thread) noexcept nogil:
    """Exact distances of a block of points to one center each."""
    cdef double* tile = <double*> (a.tiles + thread * a.tile_size)
    cdef Py_ssize_t point[CSR_LANES]
    cdef Py_ssize_t q, i, m, stop, size = 0, last = min(a.n, (block + 1) * CHUNK)
    cdef const double* center = a.center
    cdef const double* own
    for q in range(block * CHUNK, last):
        i = q if a.member == NULL else a.member[q]
        own = a.center if a.label == NULL else a.center + a.label[i] * a.rows.d
        if size > 0 and (own != center or size == CSR_LANES):
            flush_tile(a, tile, point, size, center)
            size = 0
        center = own
        m = entries_of(a.rows, i, &stop)
        while m < stop:
            tile[a.rows.column[m] * CSR_LANES + size] = entry(a.rows, m)
            m += 1
        point[size] = i
        size += 1
    if size > 0:
        flush_tile(a, tile, point, size, center)


def room_for(k, d):
    """Raise where the centers, and what is computed from them, would not fit the memory of this machine."""
    wanted = TABLES * 8 * int(k) * int(d)
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every system
        return
    if wanted > memory:
        raise MemoryError(
            f"{k} clusters of {d} columns take {wanted} bytes, more than the {memory} of this machine, since centers "
            "are dense: take a larger lam, set max_clusters, or make fewer columns (sklearn's TruncatedSVD)"
        )


cdef class SparseSweep(DPSweep):
    """DPSweep over sparse rows. Serial and delayed only.

    A center that was opened is compared with the points at once, so there are no tables of distances between centers;
    none is restless.
    """

    cdef View v
    cdef object norms       # keeps squared norms and scratch memory alive

    def __init__(self, *args, bint spherical=False):
        super().__init__(*args, spherical=spherical)
        memset(self.s.tiles, 0, self.s.tile_size * self.n_threads)

    cpdef reserve(self, Py_ssize_t capacity):
        if capacity > self.capacity:
            room_for(capacity, self.s.d)
        DPSweep.reserve(self, capacity)

    cdef tuple reserve_scores(self, Py_ssize_t capacity):
        cdef Py_ssize_t stride = (capacity + CSR_PAD - 1) // CSR_PAD * CSR_PAD, size = self.s.d * stride
        cdef Py_ssize_t bytes_each = 4 if self.s.single else 8
        cdef unsigned char[::1] table, norm
        cdef double[::1] doubles
        arrays = (
            np.zeros(bytes_each * (size + CSR_PAD) + 64, dtype=np.uint8),
            np.zeros(bytes_each * (stride + CSR_PAD) + 64, dtype=np.uint8),
        )
        table, norm = arrays
        self.s.scaled = <void*> ((<uintptr_t> &table[0] + 63) // 64 * 64)
        self.s.norm = <void*> ((<uintptr_t> &norm[0] + 63) // 64 * 64)
        self.s.restless_scaled = self.s.restless_norm = NULL
        self.norms = doubles = np.zeros(stride + self.n_threads * (stride + CSR_PAD))
        self.v.s, self.v.stride = &self.s, stride
        self.v.square, self.v.scores = &doubles[0], &doubles[stride]
        return arrays

    cdef void place(self) noexcept nogil:
        cdef const View* v = &self.v
        cdef int threads = self.n_threads if self.s.k * self.s.d > PAYS else 1
        cdef Py_ssize_t c, k, blocks = (self.s.d + COLUMNS - 1) // COLUMNS
        cdef ParallelLoop loop
        loop = begin_loop(self.s.k, threads)
        if loop.threads == 1:
            for c in range(self.s.k):
                place_norm(v, c)
        else:
            for c in prange(self.s.k, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                begin_chunk(&loop)
                place_norm(v, c)
        end_loop(&loop)
        loop = begin_loop(blocks, threads)
        if loop.threads == 1:
            for c in range(blocks):
                place_columns(v, c)
        else:
            for c in prange(blocks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                begin_chunk(&loop)
                place_columns(v, c)
        end_loop(&loop)
        self.s.longest = 0.0
        for k in range(self.s.k):
            self.s.longest = max(self.s.longest, self.v.square[k] * self.s.scale * self.s.scale)

    cdef void place_last(self) noexcept nogil:
        cdef Py_ssize_t j, k = self.s.k - 1
        cdef double factor = -2.0 * self.s.scale
        place_norm(&self.v, k)
        self.s.longest = max(self.s.longest, self.v.square[k] * self.s.scale * self.s.scale)
        for j in range(self.s.d):
            if self.s.single:
                (<float*> self.s.scaled)[j * self.v.stride + k] = <float> (factor * self.s.c[k * self.s.d + j])
            else:
                (<double*> self.s.scaled)[j * self.v.stride + k] = factor * self.s.c[k * self.s.d + j]

    cdef void assign_chunks(self, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
        cdef const View* v = &self.v
        cdef Py_ssize_t c
        cdef ParallelLoop loop
        self.v.n_before = self.n_before
        loop = begin_loop(last - first, self.threads_for((last - first) * CHUNK))
        if loop.threads == 1:
            for c in range(first, last):
                assign_points(v, c, 0)
        else:
            for c in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                assign_points(v, c, begin_chunk(&loop))
        end_loop(&loop)

    cdef void attract(
        self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t k0, const Py_ssize_t* creator
    ) noexcept nogil:
        cdef const View* v = &self.v
        cdef Py_ssize_t c, first = start // CHUNK, last = (stop + CHUNK - 1) // CHUNK
        cdef ParallelLoop loop
        loop = begin_loop(last - first, self.threads_for(stop - start))
        if loop.threads == 1:
            for c in range(first, last):
                attract_chunk(v, c, start, stop, k0, creator, 0)
        else:
            for c in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                attract_chunk(v, c, start, stop, k0, creator, begin_chunk(&loop))
        end_loop(&loop)

    cdef void lower_table(self, Py_ssize_t k0, Py_ssize_t k1, float* table) noexcept nogil:
        pass

    cdef double distance(self, Py_ssize_t i, Py_ssize_t k) noexcept nogil:
        return exact(&self.v, i, k, <double*> tile_of(&self.s, 0))

    cdef void join_or_open(self, Py_ssize_t i, Py_ssize_t k0, Py_ssize_t* creator) noexcept nogil:
        cdef State* s = &self.s
        cdef View* v = &self.v
        cdef double* buffer = <double*> tile_of(s, 0)
        cdef Py_ssize_t k, best = s.label[i]
        cdef double distance, error
        if not far(v, i, best, buffer):
            return  # it has joined a center of an earlier lot
        for k in range(k0, s.k):
            if nearer(v, i, k, best, buffer):
                best = k
        if far(v, i, best, buffer):
            creator[s.k - k0] = i
            self.open_at(i)
            s.label[i] = <int> s.k - 1
            if s.u != NULL:
                s.u[i] = <float> BOUND_AT_CENTER
        elif best != s.label[i]:
            s.label[i] = <int> best
            if s.u != NULL:
                distance = near(v, i, best, &error)
                s.u[i] = upper(distance + error, s.scale)

    def open_farthest(self):
        cdef const View* v = &self.v
        cdef Py_ssize_t c
        cdef ParallelLoop loop
        if not DPSweep.open_farthest(self):
            return False
        with nogil:
            loop = begin_loop(self.n_chunks, self.threads_for(self.s.n))
            if loop.threads == 1:
                for c in range(self.n_chunks):
                    lower_chunk(v, c, 0)
            else:
                for c in prange(self.n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                    lower_chunk(v, c, begin_chunk(&loop))
            end_loop(&loop)
        return True

    cdef void renew_tables(self) noexcept nogil:
        cdef State* s = &self.s
        cdef Py_ssize_t k
        for k in range(s.k):
            s.h[k] = 0.0
            s.hd[k] = s.fresh[k] = BIG
        if s.opened and self.farthest_point < 0:  # the bounds say nothing about the new centers
            s.lazy = False
        choose_restless(s, -1, 1 << 62)

    cdef void add_squares(
        self, const double* about, int64_t* digits, Py_ssize_t first, Py_ssize_t last, int threads
    ) noexcept nogil:
        cdef const View* v = &self.v
        cdef Py_ssize_t c
        cdef int thread
        cdef ParallelLoop loop = begin_loop(last - first, threads)
        if loop.threads == 1:
            for c in range(first, last):
                add_squares_of_chunk(v, c, about, digits, 0)
        else:
            for c in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                thread = begin_chunk(&loop)
                add_squares_of_chunk(v, c, about, digits + thread * ACCUMULATOR_DIGITS, thread)
        end_loop(&loop)

    def own_distances(self):
        cdef double[::1] out = np.empty(self.s.n)
        cdef Py_ssize_t[::1] member = np.argsort(self.labels, kind="stable")
        cdef Tiling a = Tiling(&self.s.rows, self.s.c, self.s.label, &member[0], self.s.n, self.s.tiles,
                               self.s.tile_size, &out[0])
        cdef Py_ssize_t c, first = 0, last
        cdef ParallelLoop loop
        with nogil:
            while first < self.n_chunks:
                last = min(self.n_chunks, first + self.chunks_of_rows())
                loop = begin_loop(last - first, self.threads_for(self.s.n))
                if loop.threads == 1:
                    for c in range(first, last):
                        tile_chunk(&a, c, 0)
                else:
                    for c in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                        tile_chunk(&a, c, begin_chunk(&loop))
                end_loop(&loop)
                self.check_signals((last - first) * CHUNK)
                first = last
        return np.asarray(out)

    cdef account(self, bint moves, Py_ssize_t points):
        """Sums by cluster, each of which one thread adds up."""
        cdef State* s = &self.s
        cdef Py_ssize_t[::1] first = np.zeros(s.k + 2, dtype=np.intp)
        cdef Py_ssize_t[::1] member = np.empty(max(1, 2 * points if moves else points), dtype=np.intp)
        cdef Py_ssize_t c, m, i, k, last, turn, step
        cdef int threads = self.n_threads if 8 * points * s.d > PAYS else 1
        cdef ParallelLoop loop
        # first[k + 1] counts the members of k, then is where the next one of k goes, in the end where those of k end
        for turn in range(2):
            for c in range(self.n_chunks):
                if moves:
                    for m in range(c * CHUNK, c * CHUNK + s.n_moved[c]):
                        i = c * CHUNK + s.moved[m]
                        if turn == 0:
                            first[s.moved_from[m] + 2] += 1
                            first[s.label[i] + 2] += 1
                        else:
                            member[first[s.moved_from[m] + 1]] = ~i
                            first[s.moved_from[m] + 1] += 1
                            member[first[s.label[i] + 1]] = i
                            first[s.label[i] + 1] += 1
                    continue
                for i in range(c * CHUNK, min(s.n, (c + 1) * CHUNK)):
                    if turn == 0:
                        first[s.label[i] + 2] += 1
                    else:
                        member[first[s.label[i] + 1]] = i
                        first[s.label[i] + 1] += 1
            if turn == 0:
                for k in range(s.k):
                    first[k + 2] += first[k + 1]
        step = max(<Py_ssize_t> self.n_threads, WORK // (s.d * max(1, points // s.k)))
        with nogil:
            k = 0
            while k < s.k:
                last = min(s.k, k + step)
                loop = begin_loop(last - k, threads)
                if loop.threads == 1:
                    for c in range(k, last):
                        add_members(s, c, &first[0], &member[0], &self.sums.table)
                else:
                    for c in prange(k, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                        begin_chunk(&loop)
                        add_members(s, c, &first[0], &member[0], &self.sums.table)
                end_loop(&loop)
                poll_signals(&self.work, WORK, WORK - 1)
                k = last
