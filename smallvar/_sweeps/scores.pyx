"""Scores (approximate distances) of batches of points against centers, and the labels that follow.

A score is the squared distance less ||x||^2, approximately, with a known bound on its error. Where scores differ by
less than the bound, the decision is taken in the deciding arithmetic, squared_distance.
"""

from libc.math cimport HUGE_VAL, sqrt

from smallvar._sweeps.rows cimport point, real_x
from smallvar._sweeps.state cimport (
    CHUNK,
    State,
    exact_distance,
    padded,
    real_c,
    record_move,
    set_lower,
    surely_far,
    upper,
)
from smallvar._sweeps.tolerances cimport ROUNDOFF_DOUBLE, ROUNDOFF_SINGLE, PRODUCT_UNDERFLOW

cdef extern from "simd.h" nogil:
    const float HUGE_DISTANCE_f
    const double HUGE_DISTANCE_d
    void sv_own_distances_d(Py_ssize_t, const double**, const int*, const double*, Py_ssize_t, double*)
    void sv_own_distances_f(Py_ssize_t, const float**, const int*, const double*, Py_ssize_t, double*)
    void sv_gather_ff(const float**, Py_ssize_t, const double*, double, float*, double*)
    void sv_gather_fd(const float**, Py_ssize_t, const double*, double, double*, double*)
    void sv_gather_df(const double**, Py_ssize_t, const double*, double, float*, double*)
    void sv_gather_dd(const double**, Py_ssize_t, const double*, double, double*, double*)
    const Py_ssize_t SV_PANEL
    void tile_top2_f(const float*, Py_ssize_t, const float*, const float*, Py_ssize_t, Py_ssize_t, int, float*, float*,
                     int*)
    void tile_top2_d(const double*, Py_ssize_t, const double*, const double*, Py_ssize_t, Py_ssize_t, int, double*,
                     double*, int*)
    void tile_distances_f(const float*, Py_ssize_t, const float*, const float*, Py_ssize_t, Py_ssize_t, float*)
    void tile_distances_d(const double*, Py_ssize_t, const double*, const double*, Py_ssize_t, Py_ssize_t, double*)
    void sv_upper(Py_ssize_t, const double*, double, float*)
    void sv_lower(Py_ssize_t, const double*, float*)
    int sv_few_distances_d(Py_ssize_t, const double**, const int*, const double*, Py_ssize_t, double*)
    int sv_few_distances_f(Py_ssize_t, const float**, const int*, const double*, Py_ssize_t, double*)
    void SV_PREFETCH(const void*)

cdef enum:
    MAX_LANES = 16
    CENTER_BYTES = 1 << 17  # of the centers that tiles are scored against at a time: a part of the cache
    PIECE = 48       # centers whose scores decide holds at a time


cdef double error_bound(const State* s, double squares) noexcept nogil:
    """Bound on |squares + score - deciding distance * scale^2| for a point with ||x||^2 = squares.

    A score is a chain of d + 1 roundings of terms that sum to at most ||c||^2 + 2 ||x|| ||c|| in size, its inputs
    rounded once each; the deciding distance itself carries d + 2 float64 roundings.
    """
    cdef double eps = ROUNDOFF_SINGLE if s.single else ROUNDOFF_DOUBLE
    cdef double size = s.longest + 2.0 * sqrt(squares * s.longest)
    return (s.d + 8) * (eps * size + 2.0 * ROUNDOFF_DOUBLE * (squares + s.longest)) + PRODUCT_UNDERFLOW


cdef int exact_nearest(
    const real_x* x, const State* s, Py_ssize_t i, Py_ssize_t k0, Py_ssize_t k1, double* distance
) noexcept nogil:
    """Nearest of centers k0..k1-1 in the deciding arithmetic, the lowest index at a tie."""
    cdef Py_ssize_t k, best = k0
    cdef double t, least = exact_distance(x, s, i, k0)
    for k in range(k0 + 1, k1):
        t = exact_distance(x, s, i, k)
        if t < least:
            least = t
            best = k
    distance[0] = least
    return <int> best


cdef void fill(const real_x* x, const State* s, Batch* b, real_c* tiles) noexcept nogil:
    """The batch's points, shifted and scaled, as tiles: element j of lane m of a tile at [j * lanes + m]."""
    cdef Py_ssize_t t, m, j, lanes = 16 if real_c is float else 8
    cdef const real_x* rows[MAX_LANES]
    cdef double value, squares
    cdef Py_ssize_t part
    for part in range((b.size + lanes - 1) // lanes):
        t = part * lanes
        for m in range(lanes):  # the last tile is filled up with its last point
            rows[m] = point(x, &s.rows, b.index[min(t + m, b.size - 1)])
        if s.rows.col == 1:
            if real_x is float and real_c is float:
                sv_gather_ff(rows, s.d, s.shift, s.scale, tiles + t * s.d, b.squares + t)
            elif real_x is float:
                sv_gather_fd(rows, s.d, s.shift, s.scale, tiles + t * s.d, b.squares + t)
            elif real_c is float:
                sv_gather_df(rows, s.d, s.shift, s.scale, tiles + t * s.d, b.squares + t)
            else:
                sv_gather_dd(rows, s.d, s.shift, s.scale, tiles + t * s.d, b.squares + t)
            continue
        for m in range(lanes):
            squares = 0.0
            for j in range(s.d):
                value = (<double> rows[m][j * s.rows.col] - s.shift[j]) * s.scale
                squares += value * value
                tiles[t * s.d + j * lanes + m] = <real_c> value
            b.squares[t + m] = squares


cdef double batch_error(const State* s, const Batch* b) noexcept nogil:
    """error_bound for all points of a batch."""
    cdef Py_ssize_t m
    cdef double largest = 0.0
    for m in range(b.size):
        largest = max(largest, b.squares[m])
    return error_bound(s, largest)


cdef void score(
    const State* s, Py_ssize_t size, const real_c* tiles, const void* scaled, const void* norm, Py_ssize_t k0,
    Py_ssize_t k1, real_c* m1, real_c* m2, int* best
) noexcept nogil:
    """Least and second least scores of a batch's points among centers k0..k1-1, and which one has the least."""
    cdef Py_ssize_t lanes = 16 if real_c is float else 8, t, q, first = k0, last
    cdef Py_ssize_t room = max(<Py_ssize_t> 1, CENTER_BYTES // (s.d * <Py_ssize_t> sizeof(real_c)) // SV_PANEL)
    cdef int arg[MAX_TILES][16]
    while first < k1:
        last = min(k1, (first // SV_PANEL + room) * SV_PANEL)
        for t in range((size + lanes - 1) // lanes):
            if real_c is float:
                tile_top2_f(tiles + t * lanes * s.d, s.d, <const float*> scaled, <const float*> norm, first, last,
                            first > k0, m1 + t * lanes, m2 + t * lanes, &arg[t][0])
            else:
                tile_top2_d(tiles + t * lanes * s.d, s.d, <const double*> scaled, <const double*> norm, first, last,
                            first > k0, m1 + t * lanes, m2 + t * lanes, &arg[t][0])
        first = last
    for t in range((size + lanes - 1) // lanes):
        for q in range(lanes):
            best[t * lanes + q] = arg[t][q]


cdef void distances_to(
    const real_x* x, const State* s, Py_ssize_t start, const unsigned short* offset, Py_ssize_t size, const int* z,
    double* out
) noexcept nogil:
    """Squared distances of points start + offset to centers z, good to 1e-9 relative, not deciding."""
    cdef const real_x* rows[CHUNK]
    cdef Py_ssize_t q
    cdef bint few
    if s.rows.col == 1:
        for q in range(size):
            rows[q] = point(x, &s.rows, start + offset[q])
            SV_PREFETCH(rows[q])
        if real_x is float:
            few = sv_few_distances_f(size, rows, z, s.c, s.d, out)
            if not few:
                sv_own_distances_f(size, rows, z, s.c, s.d, out)
        else:
            few = sv_few_distances_d(size, rows, z, s.c, s.d, out)
            if not few:
                sv_own_distances_d(size, rows, z, s.c, s.d, out)
    else:
        for q in range(size):
            out[q] = exact_distance(x, s, start + offset[q], z[q])


cdef void flush(
    const real_x* x, State* s, Batch* b, real_c* tiles, Close* close, unsigned char* flag
) noexcept nogil:
    """Score the batch against all centers; set labels and bounds of its points, but for the close ones."""
    cdef real_c m1[BATCH]
    cdef real_c m2[BATCH]
    cdef int best[BATCH]
    cdef float u[BATCH]
    cdef float l[BATCH]
    cdef double second[BATCH]
    cdef double known[BATCH]
    cdef unsigned short offset[BATCH]
    cdef unsigned short lane[BATCH]
    cdef int center[BATCH]
    cdef Py_ssize_t m, q, i, n_new = 0, chunk = b.index[0] // CHUNK, start = chunk * CHUNK
    cdef double error
    fill(x, s, b, tiles)
    error = batch_error(s, b)
    score(s, b.size, tiles, s.scaled, s.norm, 0, padded(s.k), m1, m2, best)
    for m in range(b.size):
        i = b.index[m]
        second[m] = b.squares[m] + <double> m2[m] - error
        if not <double> m2[m] - <double> m1[m] > 2.0 * error:
            close.offset[close.size] = <unsigned short> (i - start)
            close.bar[close.size] = <double> m1[m] + 2.0 * error
            close.size += 1
            b.own[m] = 0.0
        elif b.own[m] < 0.0 or best[m] != s.label[i]:
            lane[n_new] = <unsigned short> m
            offset[n_new] = <unsigned short> (i - start)
            center[n_new] = best[m]
            n_new += 1
            if best[m] != s.label[i]:
                record_move(s, i, best[m])
    distances_to(x, s, start, offset, n_new, center, known)
    for q in range(n_new):
        b.own[lane[q]] = known[q]
    if s.u != NULL:
        sv_upper(b.size, b.own, s.scale, u)
        sv_lower(b.size, second, l)
        for m in range(b.size):
            s.u[b.index[m]] = u[m]
            set_lower(s, b.index[m], l[m])
    if s.seek:
        for m in range(b.size):
            if surely_far(x, s, b.index[m], b.own[m]):
                flag[b.index[m] - start] = 2
    s.n_searched[chunk] += b.size * s.k
    b.size = 0


cdef void decide(
    const real_x* x, State* s, Py_ssize_t start, const Close* close, real_c* tiles, unsigned char* flag
) noexcept nogil:
    """Labels of the close points of a chunk: the nearest of the centers below the bar, in the deciding arithmetic."""
    cdef real_c scores[PIECE * MAX_LANES]
    cdef double least[MAX_LANES]
    cdef int label[MAX_LANES]
    cdef Batch b
    cdef Py_ssize_t lanes = 16 if real_c is float else 8
    cdef Py_ssize_t q, m, i, k, first, count, part, piece
    cdef bint few = s.k * s.d < 1024    # then all are compared exactly, which is faster
    cdef double t
    for part in range((close.size + lanes - 1) // lanes):
        q = part * lanes
        b.size = 0
        while b.size < lanes and q + b.size < close.size:
            i = start + close.offset[q + b.size]
            if few:
                label[b.size] = exact_nearest(x, s, i, 0, s.k, &least[b.size])
            else:
                least[b.size] = HUGE_VAL
                label[b.size] = 0
            join(&b, i, 0.0)
        if not few:
            fill(x, s, &b, tiles)
            for piece in range((s.k + PIECE - 1) // PIECE):
                first = piece * PIECE
                count = min(<Py_ssize_t> PIECE, s.k - first)
                if real_c is float:
                    tile_distances_f(tiles, s.d, <const float*> s.scaled, <const float*> s.norm, first, first + count,
                                     scores)
                else:
                    tile_distances_d(tiles, s.d, <const double*> s.scaled, <const double*> s.norm, first, first + count,
                                     scores)
                for k in range(count):
                    for m in range(b.size):
                        if not scores[k * lanes + m] > close.bar[q + m]:
                            t = exact_distance(x, s, b.index[m], first + k)
                            if t < least[m]:
                                least[m] = t
                                label[m] = <int> (first + k)
        for m in range(b.size):
            i = b.index[m]
            if label[m] != s.label[i]:
                record_move(s, i, label[m])
            if s.u != NULL:
                s.u[i] = upper(least[m], s.scale)
            if s.seek:
                flag[i - start] = 2 if surely_far(x, s, i, least[m]) else 0
    s.n_exact[start // CHUNK] += <int> close.size


# ---- tables that scores are computed from ----------------------------------------------------------------------------


cdef void pad_centers(real_c* scaled, real_c* norm, Py_ssize_t d, Py_ssize_t k) noexcept nogil:
    """Entries after the last center, which are never the nearest, so that blocks of centers are full."""
    cdef Py_ssize_t m, j
    for m in range(k, padded(k)):
        for j in range(d):
            scaled[m // SV_PANEL * SV_PANEL * d + j * SV_PANEL + m % SV_PANEL] = 0.0
        norm[m] = HUGE_DISTANCE_f if real_c is float else HUGE_DISTANCE_d


cdef void place_center(State* s, Py_ssize_t k) noexcept nogil:
    """Refresh the entry of center k in the tables that scores are computed from."""
    cdef Py_ssize_t j, at = k // SV_PANEL * SV_PANEL * s.d + k % SV_PANEL
    cdef double t, squares = 0.0
    for j in range(s.d):
        t = (s.c[k * s.d + j] - s.shift[j]) * s.scale
        squares += t * t
        if s.single:
            (<float*> s.scaled)[at + j * SV_PANEL] = <float> (-2.0 * t)
        else:
            (<double*> s.scaled)[at + j * SV_PANEL] = -2.0 * t
    if s.single:
        (<float*> s.norm)[k] = <float> squares
    else:
        (<double*> s.norm)[k] = squares
    s.longest = max(s.longest, squares)


cdef void pad(const State* s, void* scaled, void* norm, Py_ssize_t k) noexcept nogil:
    """Fill up these tables after the last of k centers."""
    if s.single:
        pad_centers(<float*> scaled, <float*> norm, s.d, k)
    else:
        pad_centers(<double*> scaled, <double*> norm, s.d, k)


cdef void place_centers(State* s) noexcept nogil:
    """Refresh the entries of all centers."""
    cdef Py_ssize_t k
    s.longest = 0.0
    for k in range(s.k):
        place_center(s, k)
    pad(s, s.scaled, s.norm, s.k)
