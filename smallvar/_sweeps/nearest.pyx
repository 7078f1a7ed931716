"""Block-distance engine: for each point the nearest center, touching as few distances as the bounds allow.

One sweep visits the points in chunks. A point passes without any distance while

    u_i < max(l_i, h_z)        u_i >= dist(x_i, own center z),  l_i <= dist(x_i, second nearest center),
                               h_z = half the distance from center z to its nearest other center

(Hamerly 2010). The others have u made exact and, if that does not help, are gathered into tiles of points that are
scored against all centers at once. Scores are approximate, with a known bound on their error; every decision that is
closer than the bound is taken again in the deciding arithmetic, squared_distance. So labels depend neither on chunks
nor on threads nor on the instruction set.
"""

from libc.math cimport HUGE_VAL, sqrt
from libc.stdint cimport uintptr_t
from libc.string cimport memchr, memset

from smallvar._sweeps.pool cimport PAYS, run
from smallvar._sweeps.rows cimport check_signals, point, real_x, rows_of

import numpy as np

cdef extern from "simd.h" nogil:
    const float HUGE_SCORE_f
    const double HUGE_SCORE_d
    const char* SMALLVAR_COMPILER
    const char* sv_set_name()
    const char* sv_set_names()
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
    void tile_scores_f(const float*, Py_ssize_t, const float*, const float*, Py_ssize_t, Py_ssize_t, float*)
    void tile_scores_d(const double*, Py_ssize_t, const double*, const double*, Py_ssize_t, Py_ssize_t, double*)
    void sv_upper(Py_ssize_t, const double*, double, float*)
    void sv_lower(Py_ssize_t, const double*, float*)
    void sv_second(Py_ssize_t, const int*, const float*, const float*, const float*, const float*, const float*, int,
                   int*)
    int sv_few_distances_d(Py_ssize_t, const double**, const int*, const double*, Py_ssize_t, double*)
    int sv_few_distances_f(Py_ssize_t, const float**, const int*, const double*, Py_ssize_t, double*)
    Py_ssize_t sv_list(Py_ssize_t, const unsigned char*, unsigned short*)
    void SV_PREFETCH(const void*)
    void sv_filter(Py_ssize_t, float*, float*, const int*, const float*, const float*, const float*, float,
                   unsigned char*)
    void sv_filter_opened(Py_ssize_t, float*, float*, const int*, const float*, const float*, const float*,
                          const float*, const float*, const double*, int, double, unsigned char*)
    void sv_filter_restless(Py_ssize_t, const float*, float*, const int*, const float*, const float*, const float*,
                            int, unsigned char*)

cdef enum:
    PAD = 6          # centers are padded to a multiple of this, that of all but one block of the kernels
    MAX_LANES = 16
    MAX_TILES = 4    # tiles that are scored together
    BATCH = 64       # their points, at most
    TILE_BYTES = 1 << 18    # memory of such tiles, and of the centers that they meet at a time, where it can be had
    CENTER_BYTES = 1 << 17
    PART = 128       # points whose own distances are computed together
    PIECE = 48       # centers whose scores are looked at one by one at a time
    MAX_RANKS = 12   # thresholds tried for the restless centers
    SAMPLE = 1000    # points asked
    GATHER = 40      # centers that could be scored while a point is looked up
    ROWS = 64        # centers of an item of a table

cdef double EPS_SINGLE = 2.0 ** -24
cdef double EPS_DOUBLE = 2.0 ** -53


cdef struct Batch:
    Py_ssize_t size
    Py_ssize_t index[BATCH]
    double own[BATCH]           # distance to the own center, good to 1e-9, or -1 where it is not known
    double squares[BATCH]       # ||x||^2 after shift and scale


cdef struct Close:      # points of a chunk whose scores do not tell which center is nearest
    Py_ssize_t size
    unsigned short offset[CHUNK]
    double bar[CHUNK]           # centers whose score is above are not the nearest


def compiler():
    """Name and version of the C compiler."""
    return SMALLVAR_COMPILER.decode()


def instruction_set():
    """Name of the instruction set whose kernels run."""
    return sv_set_name().decode()


def instruction_sets():
    """Names of the instruction sets that kernels are compiled for, lowest first."""
    return sv_set_names().decode().split(", ")


cdef inline double error_bound(const Sweep* s, double squares) noexcept nogil:
    """Bound on |squares + score - deciding distance * scale^2| for a point with ||x||^2 = squares.

    A score is a chain of d + 1 roundings of terms that sum to at most ||c||^2 + 2 ||x|| ||c|| in size, its inputs
    rounded once each; the deciding distance itself carries d + 2 float64 roundings.
    """
    cdef double eps = EPS_SINGLE if s.single else EPS_DOUBLE
    cdef double size = s.longest + 2.0 * sqrt(squares * s.longest)
    return (s.d + 8) * (eps * size + 2.0 * EPS_DOUBLE * (squares + s.longest)) + 1e-36


cdef inline double exact_distance(const real_x* x, const Sweep* s, Py_ssize_t i, Py_ssize_t k) noexcept nogil:
    return squared_distance(point(x, &s.rows, i), s.rows.col, s.c + k * s.d, s.d)


cdef int exact_nearest(
    const real_x* x, const Sweep* s, Py_ssize_t i, Py_ssize_t k0, Py_ssize_t k1, double* distance
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


cdef void fill(const real_x* x, const Sweep* s, Batch* b, real_c* block) noexcept nogil:
    """The batch's points, shifted and scaled, as tiles: element j of lane m of a tile at [j * lanes + m]."""
    cdef Py_ssize_t t, m, j, lanes = 16 if real_c is float else 8
    cdef const real_x* rows[MAX_LANES]
    cdef double value, squares
    cdef Py_ssize_t part
    for part in range((b.size + lanes - 1) // lanes):
        t = part * lanes
        for m in range(lanes):  # what is missing in the last tile is its last point again
            rows[m] = point(x, &s.rows, b.index[min(t + m, b.size - 1)])
        if s.rows.col == 1:
            if real_x is float and real_c is float:
                sv_gather_ff(rows, s.d, s.shift, s.scale, block + t * s.d, b.squares + t)
            elif real_x is float:
                sv_gather_fd(rows, s.d, s.shift, s.scale, block + t * s.d, b.squares + t)
            elif real_c is float:
                sv_gather_df(rows, s.d, s.shift, s.scale, block + t * s.d, b.squares + t)
            else:
                sv_gather_dd(rows, s.d, s.shift, s.scale, block + t * s.d, b.squares + t)
            continue
        for m in range(lanes):
            squares = 0.0
            for j in range(s.d):
                value = (<double> rows[m][j * s.rows.col] - s.shift[j]) * s.scale
                squares += value * value
                block[t * s.d + j * lanes + m] = <real_c> value
            b.squares[t + m] = squares


cdef inline void join(Batch* b, Py_ssize_t i, double own) noexcept nogil:
    b.index[b.size] = i
    b.own[b.size] = own
    b.size += 1


cdef inline double batch_error(const Sweep* s, const Batch* b) noexcept nogil:
    """error_bound for all points of a batch."""
    cdef Py_ssize_t m
    cdef double largest = 0.0
    for m in range(b.size):
        largest = max(largest, b.squares[m])
    return error_bound(s, largest)


cdef inline void record_move(Sweep* s, Py_ssize_t i, int label) noexcept nogil:
    """Give point i its new label and list the move (points of weight zero move nothing)."""
    cdef Py_ssize_t chunk = i // CHUNK, place
    if s.rows.weight == NULL or s.rows.weight[i] > 0.0:
        place = chunk * CHUNK + s.n_moved[chunk]
        s.moved[place] = <unsigned short> (i - chunk * CHUNK)
        s.moved_from[place] = s.label[i]
        s.n_moved[chunk] += 1
    s.label[i] = label


cdef inline Py_ssize_t padded(Py_ssize_t k) noexcept nogil:
    return (k + PAD - 1) // PAD * PAD


cdef void score(
    const Sweep* s, Py_ssize_t size, const real_c* block, const void* scaled, const void* norm, Py_ssize_t k0,
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
                tile_top2_f(block + t * lanes * s.d, s.d, <const float*> scaled, <const float*> norm, first, last,
                            first > k0, m1 + t * lanes, m2 + t * lanes, &arg[t][0])
            else:
                tile_top2_d(block + t * lanes * s.d, s.d, <const double*> scaled, <const double*> norm, first, last,
                            first > k0, m1 + t * lanes, m2 + t * lanes, &arg[t][0])
        first = last
    for t in range((size + lanes - 1) // lanes):
        for q in range(lanes):
            best[t * lanes + q] = arg[t][q]


cdef void distances_to(
    const real_x* x, const Sweep* s, Py_ssize_t start, const unsigned short* offset, Py_ssize_t size, const int* z,
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


cdef inline bint surely_far(const real_x* x, const Sweep* s, Py_ssize_t i, double distance) noexcept nogil:
    """Algorithm 1's test for a distance to the own center that is good to 1e-9."""
    cdef double weighted = distance if s.rows.weight == NULL else s.rows.weight[i] * distance
    if weighted < s.lam * (1.0 - 1e-8):
        return False
    if weighted < s.lam * (1.0 + 1e-8) or distance < 2.0 * s.noise:
        distance = exact_distance(x, s, i, s.label[i])
    return is_far(s, i, distance)


cdef void flush(
    const real_x* x, Sweep* s, Batch* b, real_c* block, Close* close, unsigned char* flag
) noexcept nogil:
    """Score the batch against all centers; settle labels and bounds of its points, but for the close calls."""
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
    fill(x, s, b, block)
    error = batch_error(s, b)
    score(s, b.size, block, s.scaled, s.norm, 0, padded(s.k), m1, m2, best)
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
    const real_x* x, Sweep* s, Py_ssize_t start, const Close* close, real_c* block, unsigned char* flag
) noexcept nogil:
    """Close calls of a chunk: the nearest of the centers below the bar, in the deciding arithmetic."""
    cdef real_c scores[PIECE * MAX_LANES]
    cdef double least[MAX_LANES]
    cdef int label[MAX_LANES]
    cdef Batch b
    cdef Py_ssize_t lanes = 16 if real_c is float else 8
    cdef Py_ssize_t q, m, i, k, first, count, part, piece
    cdef bint few = s.k * s.d < 1024    # then to look at all is the shorter way
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
            fill(x, s, &b, block)
            for piece in range((s.k + PIECE - 1) // PIECE):
                first = piece * PIECE
                count = min(<Py_ssize_t> PIECE, s.k - first)
                if real_c is float:
                    tile_scores_f(block, s.d, <const float*> s.scaled, <const float*> s.norm, first, first + count,
                                  scores)
                else:
                    tile_scores_d(block, s.d, <const double*> s.scaled, <const double*> s.norm, first, first + count,
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


cdef void flush_restless(
    const real_x* x, Sweep* s, Batch* b, real_c* block, unsigned char* flag
) noexcept nogil:
    """Score the batch against the restless centers. Every other one but the own is farther than l, and l above u."""
    cdef real_c m1[BATCH]
    cdef real_c m2[BATCH]
    cdef int best[BATCH]
    cdef Py_ssize_t m, q, i, chunk = b.index[0] // CHUNK
    cdef double error, own, other, distance, t
    cdef int label, z
    fill(x, s, b, block)
    error = batch_error(s, b)
    score(s, b.size, block, s.restless_scaled, s.restless_norm, 0, padded(s.n_restless), m1, m2, best)
    for m in range(b.size):
        i = b.index[m]
        z = s.label[i]
        distance = b.own[m]
        own = distance * s.scale * s.scale
        label = s.restless[best[m]]
        # at the least score the point may have met its own center again
        other = b.squares[m] + <double> (m2[m] if label == z else m1[m]) - error
        if other > own * (1.0 + 1e-9):
            label = z
        elif label != z and other + 2.0 * error < own * (1.0 - 1e-9) and <double> m2[m] - <double> m1[m] > 2.0 * error:
            distance = exact_distance(x, s, i, label)
        else:
            label = z
            distance = exact_distance(x, s, i, z)
            for q in range(s.n_restless):
                t = exact_distance(x, s, i, s.restless[q])
                if t < distance or (t == distance and s.restless[q] < label):
                    distance = t
                    label = s.restless[q]
            s.n_exact[chunk] += 1
        if label != z:
            own = own * (1.0 - 1e-9)
            other = min(own, b.squares[m] + <double> m2[m] - error)
            s.l[i] = min(s.l[i], lower(own))
            record_move(s, i, label)
            s.u[i] = upper(distance, s.scale)
        s.g[i] = lower(other)
        if s.seek and surely_far(x, s, i, distance):
            flag[i - chunk * CHUNK] = 2
    s.n_searched[chunk] += b.size * s.n_restless
    b.size = 0


cdef void assign_part(
    const real_x* x, Sweep* s, Py_ssize_t start, const unsigned short* listed, Py_ssize_t n, Batch* failed,
    Batch* aside, real_c* block, Close* close, unsigned char* flag
) noexcept nogil:
    """Points start + listed of a chunk, at most PART, that the filter did not let pass: u becomes exact.

    Whoever fails again is scored as soon as there is a batch of them, while its row is still at hand.
    """
    cdef double known[PART]
    cdef float u[PART]
    cdef float l[PART]
    cdef float g[PART]
    cdef int verdict[PART]
    cdef int center[PART]
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
                flush(x, s, failed, block, close, flag)
        elif verdict[q] == 1:
            join(aside, i, known[q])
            if aside.size == s.batch:
                flush_restless(x, s, aside, block, flag)
        elif s.seek:
            flag[listed[q]] = 2 if surely_far(x, s, i, known[q]) else 0


cdef void assign_chunk(
    const real_x* x, Sweep* s, Py_ssize_t chunk, real_c* block
) noexcept nogil:
    """Nearest centers of one chunk."""
    cdef unsigned char flag[CHUNK]
    cdef unsigned short listed[CHUNK + 8]  # sv_list wants the room
    cdef const unsigned char* at
    cdef Batch failed, aside
    cdef Close close
    cdef Py_ssize_t start = chunk * CHUNK, size = min(<Py_ssize_t> CHUNK, s.n - start)
    cdef Py_ssize_t o, q, n_listed
    failed.size = 0
    aside.size = 0
    close.size = 0
    s.n_moved[chunk] = 0
    s.n_far[chunk] = 0
    s.n_searched[chunk] = 0
    s.n_exact[chunk] = 0
    if s.lazy:
        if s.opened or (s.rows.weight != NULL and s.seek):
            sv_filter_opened(size, s.u + start, s.l + start, s.label + start, s.p, s.r, s.h, s.hd, s.fresh,
                             NULL if s.rows.weight == NULL else s.rows.weight + start, s.aside, s.limit, flag)
        else:
            sv_filter(size, s.u + start, s.l + start, s.label + start, s.p, s.r, s.h, <float> s.limit, flag)
        if s.n_restless > 0:
            sv_filter_restless(size, s.u + start, s.g + start, s.label + start, s.rg, s.h, s.fresh, s.opened, flag)
        n_listed = sv_list(size, flag, listed)
        if s.seek:
            memset(flag, 0, size)
        q = 0
        while q < n_listed:
            assign_part(x, s, start, listed + q, min(<Py_ssize_t> PART, n_listed - q), &failed, &aside, block,
                        &close, flag)
            q += PART
        if aside.size > 0:
            flush_restless(x, s, &aside, block, flag)
    else:
        memset(flag, 0, size)
        for o in range(size):
            join(&failed, start + o, -1.0)
            if failed.size == s.batch:
                flush(x, s, &failed, block, &close, flag)
    if failed.size > 0:
        flush(x, s, &failed, block, &close, flag)
    if close.size > 0:
        decide(x, s, start, &close, block, flag)
    if s.seek:
        at = <const unsigned char*> memchr(flag, 2, size)
        while at != NULL:
            s.far[start + s.n_far[chunk]] = <unsigned short> (at - flag)
            s.n_far[chunk] += 1
            at = <const unsigned char*> memchr(at + 1, 2, flag + size - at - 1)
    if s.farthest:
        farthest_of_chunk(x, s, chunk)


cdef inline double claim(const Sweep* s, Py_ssize_t i) noexcept nogil:
    """Upper bound of a point's weighted squared distance, scaled."""
    cdef double u = s.u[i]
    return u * u if s.rows.weight == NULL else s.rows.weight[i] * u * u


cdef void farthest_of_chunk(const real_x* x, Sweep* s, Py_ssize_t chunk) noexcept nogil:
    """The point with the largest weighted distance beyond lam, the first of them at a tie.

    u may be loose, so it tells only who cannot be the farthest. Whoever claims most is asked first: then few others
    are left to ask.
    """
    cdef Py_ssize_t i, start = chunk * CHUNK, stop = min(s.n, start + CHUNK), first = start, turn
    cdef float widest = -1.0
    cdef double distance, best = s.lam, largest = -1.0, square = s.scale * s.scale * (1.0 - 1e-6)
    s.far_index[chunk] = -1
    if s.rows.weight == NULL:  # the common case, as a loop that compilers turn into vector code
        for i in range(start, stop):
            widest = s.u[i] if s.u[i] > widest else widest
        while s.u[first] < widest:
            first += 1
    else:
        for i in range(start, stop):
            distance = claim(s, i)
            if distance > largest:
                largest = distance
                first = i
    for turn in range(start - 1, stop):
        i = first if turn < start else turn
        if claim(s, i) > best * square:
            distance = exact_distance(x, s, i, s.label[i])
            s.u[i] = upper(distance, s.scale)
            if not is_far(s, i, distance):
                continue
            if s.rows.weight != NULL:
                distance = distance * s.rows.weight[i]
            if distance > best or (distance == best and i < s.far_index[chunk]):
                best = distance
                s.far_index[chunk] = i
    s.far_distance[chunk] = best


cdef void flush_attracted(
    const real_x* x, Sweep* s, Batch* b, real_c* block, Py_ssize_t k0, Py_ssize_t k1
) noexcept nogil:
    """Let the batch's points choose between their own center (distance known) and centers k0..k1-1."""
    cdef real_c m1[BATCH]
    cdef real_c m2[BATCH]
    cdef int best[BATCH]
    cdef Py_ssize_t m, i
    cdef double error, own, distance, least, second
    cdef int label
    fill(x, s, b, block)
    error = batch_error(s, b)
    score(s, b.size, block, s.scaled, s.norm, k0, k1, m1, m2, best)
    for m in range(b.size):
        i = b.index[m]
        own = b.own[m]
        least = b.squares[m] + <double> m1[m]
        second = b.squares[m] + <double> m2[m]
        distance = own * s.scale * s.scale
        if least - error > distance * (1.0 + 1e-9):
            reduce_lower(s, i, lower(least - error))
            continue
        if least + error < distance * (1.0 - 1e-9) and second - least > 2.0 * error:
            label = best[m]
            distance = exact_distance(x, s, i, label)
        else:
            label = exact_nearest(x, s, i, k0, k1, &distance)
            if not distance < own:
                reduce_lower(s, i, lower(least - error))
                continue
        reduce_lower(s, i, lower(min(own * s.scale * s.scale * (1.0 - 1e-9), second - error)))
        s.u[i] = upper(distance, s.scale)
        s.label[i] = label
    b.size = 0


cdef void attract_chunk(
    const real_x* x, Sweep* s, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t k0, const Py_ssize_t* creator,
    real_c* block
) noexcept nogil:
    """Points start..stop-1 meet the centers k0.. that points before them opened.

    creator[m] is the point at which center k0 + m was opened, in ascending order.
    """
    cdef Batch batch
    cdef Py_ssize_t i, n_new = s.k - k0, seen = 0, batch_seen = 0
    cdef double distance
    cdef float u
    cdef int z
    batch.size = 0
    for i in range(start, stop):
        while seen < n_new and creator[seen] < i:
            seen += 1
        z = s.label[i]
        if seen == 0 or z >= k0:
            continue  # nothing opened yet, or already settled in the ordered pass
        if 2.0 * s.u[i] < s.near[z]:
            continue
        distance = exact_distance(x, s, i, z)
        u = upper(distance, s.scale)
        s.u[i] = u
        if 2.0 * u < s.near[z]:
            continue
        if batch.size > 0 and batch_seen != seen:
            flush_attracted(x, s, &batch, block, k0, k0 + batch_seen)
        batch_seen = seen
        join(&batch, i, distance)
        if batch.size == s.batch:
            flush_attracted(x, s, &batch, block, k0, k0 + batch_seen)
    if batch.size > 0:
        flush_attracted(x, s, &batch, block, k0, k0 + batch_seen)


cdef inline void center_block(Sweep* s, Py_ssize_t c, Py_ssize_t m, Batch* b, real_c* block) noexcept nogil:
    """Center c as lane m of a b."""
    cdef Py_ssize_t j, lanes = 16 if real_c is float else 8
    cdef double t, squares = 0.0
    for j in range(s.d):
        t = (s.c[c * s.d + j] - s.shift[j]) * s.scale
        squares += t * t
        block[j * lanes + m] = <real_c> t
    b.index[m] = c
    b.squares[m] = squares
    b.size = m + 1


cdef void lower_table_chunk(
    Sweep* s, Py_ssize_t first, Py_ssize_t last, Py_ssize_t k0, Py_ssize_t k1, float* table, real_c* block
) noexcept nogil:
    """table[c] = min(table[c], distance to the nearest center of k0..k1-1 other than c) for c in first..last-1."""
    cdef real_c m1[BATCH]
    cdef real_c m2[BATCH]
    cdef int best[BATCH]
    cdef Batch b
    cdef Py_ssize_t lanes = 16 if real_c is float else 8
    cdef Py_ssize_t m, c = first
    cdef double nearest
    while c < last:
        b.size = 0
        while c < last and b.size < lanes:
            m = b.size
            center_block(s, c, m, &b, block)
            c += 1
        score(s, b.size, block, s.scaled, s.norm, k0, k1, m1, m2, best)
        for m in range(b.size):
            # a center meets itself with the least score, up to rounding: any other one has at least the second
            nearest = <double> (m2[m] if k0 <= b.index[m] < k1 else m1[m])
            nearest += b.squares[m] - error_bound(s, b.squares[m])
            table[b.index[m]] = min(table[b.index[m]], lower(nearest))


cdef void copy_center(
    const real_c* scaled, const real_c* norm, Py_ssize_t d, Py_ssize_t k, real_c* to, real_c* to_norm, Py_ssize_t m
) noexcept nogil:
    """Center k becomes number m of others."""
    cdef Py_ssize_t j
    scaled = scaled + k // SV_PANEL * SV_PANEL * d + k % SV_PANEL
    to = to + m // SV_PANEL * SV_PANEL * d + m % SV_PANEL
    for j in range(d):
        to[j * SV_PANEL] = scaled[j * SV_PANEL]
    to_norm[m] = norm[k]


cdef void pad_centers(real_c* scaled, real_c* norm, Py_ssize_t d, Py_ssize_t k) noexcept nogil:
    """Dummies after the last center that never win, so that blocks of centers are full."""
    cdef Py_ssize_t m, j
    for m in range(k, padded(k)):
        for j in range(d):
            scaled[m // SV_PANEL * SV_PANEL * d + j * SV_PANEL + m % SV_PANEL] = 0.0
        norm[m] = HUGE_SCORE_f if real_c is float else HUGE_SCORE_d


# ---- what threads share out: an item writes to its own points (or centers) and chunk, and to its thread's tile -----


cdef struct Attraction:
    Sweep* s
    Py_ssize_t start
    Py_ssize_t stop
    Py_ssize_t k0
    const Py_ssize_t* creator


cdef struct Lowering:
    Sweep* s
    Py_ssize_t k0
    Py_ssize_t k1
    float* table


cdef void assign_item(void* context, Py_ssize_t c, int slot) noexcept nogil:
    cdef Sweep* s = <Sweep*> context
    cdef char* tile = tile_of(s, slot)
    if s.rows.single:
        if s.single:
            assign_chunk[float, float](<const float*> s.rows.x, s, c, <float*> tile)
        else:
            assign_chunk[float, double](<const float*> s.rows.x, s, c, <double*> tile)
    elif s.single:
        assign_chunk[double, float](<const double*> s.rows.x, s, c, <float*> tile)
    else:
        assign_chunk[double, double](<const double*> s.rows.x, s, c, <double*> tile)


cdef void attract_item(void* context, Py_ssize_t c, int slot) noexcept nogil:
    cdef const Attraction* a = <const Attraction*> context
    cdef Sweep* s = a.s
    cdef Py_ssize_t start = max(a.start, c * CHUNK), stop = min(a.stop, (c + 1) * CHUNK)
    cdef char* tile = tile_of(s, slot)
    if s.rows.single:
        if s.single:
            attract_chunk[float, float](<const float*> s.rows.x, s, start, stop, a.k0, a.creator, <float*> tile)
        else:
            attract_chunk[float, double](<const float*> s.rows.x, s, start, stop, a.k0, a.creator, <double*> tile)
    elif s.single:
        attract_chunk[double, float](<const double*> s.rows.x, s, start, stop, a.k0, a.creator, <float*> tile)
    else:
        attract_chunk[double, double](<const double*> s.rows.x, s, start, stop, a.k0, a.creator, <double*> tile)


cdef void lower_item(void* context, Py_ssize_t c, int slot) noexcept nogil:
    cdef const Lowering* a = <const Lowering*> context
    cdef Py_ssize_t start = c * ROWS, stop = min(a.s.k, (c + 1) * ROWS)
    if a.s.single:
        lower_table_chunk[float](a.s, start, stop, a.k0, a.k1, a.table, <float*> tile_of(a.s, slot))
    else:
        lower_table_chunk[double](a.s, start, stop, a.k0, a.k1, a.table, <double*> tile_of(a.s, slot))


cdef class Engine:
    """Points, centers and bounds of a fit, and the sweeps over them.

    Parameters
    ----------
    X : IN array (n, d), float32 or float64, any strides, may be read-only
    weight : IN array (n,) float64 in visiting order, or None
    order : IN array (n,) intp, a permutation: the i-th point visited is row order[i]; None: as given
    label : INOUT array (n,) int32 in visiting order
    space : has ``origin``, array (d,) float64, where sums and scores are taken from, ``scale``, a power of two that
        brings X - origin into [-1, 1], and ``noise``, the squared distance up to which two points may be the same
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
        cdef Py_ssize_t[::1] far_index
        if label.shape[0] != n or shift.shape[0] != d:
            raise ValueError("label and shift must match X")
        self.arrays = [X, weight, order, np.asarray(label), np.asarray(shift)]
        self.s.rows = rows_of(X, weight, order)
        self.s.n, self.s.d = n, d
        self.s.label = &label[0]
        self.s.shift = &shift[0]
        self.s.scale = space.scale
        self.s.noise = space.noise
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
        self.s.far_distance = &doubles[0]
        far_index = self.keep(np.zeros(2 * chunks, dtype=np.intp))
        self.s.far_index = &far_index[0]
        self.s.n_searched = &far_index[chunks]
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
        cdef float[::1] single
        cdef double[::1] double_
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
        scores_array = np.zeros(capacity * (d + 1), dtype=np.float32 if self.s.single else np.float64)
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
        if self.s.single:
            single = scores_array
            self.s.scaled, self.s.norm = <void*> &single[0], <void*> &single[capacity * d]
        else:
            double_ = scores_array
            self.s.scaled, self.s.norm = <void*> &double_[0], <void*> &double_[capacity * d]
        restless_array = np.zeros(capacity, dtype=np.int32)
        is_restless_array = np.zeros(capacity, dtype=np.uint8)
        restless_scores_array = np.zeros_like(scores_array)
        if old is not None:
            restless_array[:self.s.n_restless] = old[3][:self.s.n_restless]
            is_restless_array[restless_array[:self.s.n_restless]] = 1
        restless = restless_array
        is_restless = is_restless_array
        self.s.restless = &restless[0]
        self.s.is_restless = &is_restless[0]
        if self.s.single:
            single = restless_scores_array
            self.s.restless_scaled, self.s.restless_norm = <void*> &single[0], <void*> &single[capacity * d]
        else:
            double_ = restless_scores_array
            self.s.restless_scaled, self.s.restless_norm = <void*> &double_[0], <void*> &double_[capacity * d]
        self.center_arrays = (centers_array, tables_array, scores_array, restless_array, restless_scores_array,
                              is_restless_array)
        self.capacity = capacity
        with nogil:
            self.place_centers()
            self.copy_restless()

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
    def shift(self):
        """Origin of sums and scores, the caller's array."""
        return self.arrays[4]

    @property
    def searched(self):
        """Distances computed from scores in the last sweep."""
        cdef Py_ssize_t c, total = 0
        for c in range(self.n_chunks):
            total += self.s.n_searched[c]
        return total

    @property
    def decided_exactly(self):
        """Points of the last sweep whose scores were too close to tell."""
        cdef Py_ssize_t c, total = 0
        for c in range(self.n_chunks):
            total += self.s.n_exact[c]
        return total

    @property
    def crowded(self):
        """Whether so many float32 calls were close in the last sweep that float64 pays: more than one in 50."""
        return self.s.single and 50 * self.decided_exactly > self.s.n

    def set_centers(self, const double[:, ::1] centers):
        """Replace all centers; bounds no longer hold."""
        cdef Py_ssize_t k, j
        if centers.shape[1] != self.s.d:
            raise ValueError(f"centers must have {self.s.d} columns, got {centers.shape[1]}")
        self.forget_restless()
        self.s.k = 0
        self.reserve(centers.shape[0])
        self.s.k = centers.shape[0]
        for k in range(self.s.k):
            for j in range(self.s.d):
                self.s.c[k * self.s.d + j] = centers[k, j]
        self.place_centers()
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
        """Chunks between two looks at the signals, of a sweep that may need every distance."""
        return max(<Py_ssize_t> 2 * self.n_threads, WORK // (CHUNK * (self.s.k + 64) * self.s.d))

    cdef int check_signals(self, Py_ssize_t rows) except -1 nogil:
        """Raise KeyboardInterrupt if Ctrl-C was pressed, after some tenths of a second of work.

        rows : distances computed, or rows read, since the last call
        """
        return check_signals(&self.work, rows * self.s.d, WORK)

    cdef void place_center(self, Py_ssize_t k) noexcept nogil:
        """Refresh what the scores need of center k."""
        cdef Sweep* s = &self.s
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

    cdef void forget_restless(self) noexcept nogil:
        """All centers are calm from now on, and l is a bound for all of them."""
        cdef Sweep* s = &self.s
        cdef Py_ssize_t i, m
        if s.n_restless == 0:
            return
        for m in range(s.n_restless):
            s.is_restless[s.restless[m]] = False
        s.n_restless = 0
        for i in range(s.n):
            s.l[i] = s.l[i] if s.l[i] < s.g[i] else s.g[i]
        for i in range(s.n):
            s.g[i] = BIG

    cdef void drift_of_others(self) noexcept nogil:
        """r and rg from p: the largest drift among the calm and among the restless centers other than z."""
        cdef Sweep* s = &self.s
        cdef float[2] first, second
        cdef Py_ssize_t[2] farthest
        cdef Py_ssize_t k, t
        first[0], first[1], second[0], second[1], farthest[0], farthest[1] = 0.0, 0.0, 0.0, 0.0, -1, -1
        for k in range(s.k):
            t = s.is_restless[k]
            if s.p[k] > first[t]:
                second[t] = first[t]
                first[t] = s.p[k]
                farthest[t] = k
            else:
                second[t] = max(second[t], s.p[k])
        for k in range(s.k):
            s.r[k] = second[0] if k == farthest[0] else first[0]
            s.rg[k] = second[1] if k == farthest[1] else first[1]

    cdef void choose_restless(self, Py_ssize_t fresh) noexcept nogil:
        """Give the m centers that moved farthest a bound g of their own, so that their drift does not spoil l.

        A point that fails the test for g alone needs the m restless centers only, and knows their distance afresh
        afterwards; so a choice is kept as long as it serves. A sample of the points tells what the next sweep would
        cost with the present choice and with each m in question. A center opened alone (fresh, or -1) is always
        restless.
        """
        cdef Sweep* s = &self.s
        cdef Py_ssize_t k, q, m, best_m = 0, i, n_ranks = 0, step = max(<Py_ssize_t> 1, s.n // SAMPLE)
        cdef Py_ssize_t failed = 0, kept_failed = 0, kept_still = 0
        cdef double cost, best_cost, full = s.k + GATHER
        cdef Py_ssize_t rank_m[MAX_RANKS]
        cdef float rank_drift[MAX_RANKS]
        cdef Py_ssize_t still[MAX_RANKS]
        cdef float threshold, slack, low, u, most = 0.0
        s.aside = fresh >= 0 and s.lazy
        if not s.lazy or s.k < (4 if s.aside else self.restless_from):
            self.forget_restless()
        else:
            self.drift_of_others()
            # candidate thresholds: halves of the largest drift, with the number of centers above each
            for k in range(s.k):
                most = max(most, s.p[k])
            threshold = most
            while n_ranks < MAX_RANKS:
                threshold = threshold * <float> 0.5 if n_ranks < MAX_RANKS - 1 else <float> 3e-19
                m = 0
                slack = 0.0
                for k in range(s.k):
                    if s.p[k] > threshold:
                        m += 1
                    else:
                        slack = max(slack, s.p[k])
                rank_m[n_ranks] = m
                rank_drift[n_ranks] = slack
                still[n_ranks] = 0
                n_ranks += 1
            for m in range((s.n + step - 1) // step):
                i = m * step
                k = s.label[i]
                u = s.u[i] + s.p[k]
                if u < s.h[k]:
                    continue
                if not u < min(s.l[i] - s.r[k], s.g[i] - s.rg[k]):
                    kept_failed += 1
                    kept_still += not u < s.l[i] - s.r[k]
                low = min(s.l[i], s.g[i])
                if not u < low - most:
                    failed += 1
                    for q in range(n_ranks):
                        still[q] += not u < low - rank_drift[q]
            # a new choice takes two more passes over the bounds and leaves worse ones
            best_cost = 0.7 * (kept_still * full + (kept_failed - kept_still) * (s.n_restless + GATHER))
            best_m = -1
            if s.n_restless > 0 and failed * full < best_cost:
                best_cost = failed * full
                best_m = 0
            for q in range(n_ranks):
                cost = (failed - still[q]) * (rank_m[q] + GATHER) + still[q] * full
                if cost < best_cost and rank_m[q] * 4 <= s.k:
                    best_cost = cost
                    best_m = q + 1
            if best_m >= 0:
                self.forget_restless()
            if best_m > 0:
                for k in range(s.k):
                    if s.p[k] > rank_drift[best_m - 1]:
                        s.restless[s.n_restless] = <int> k
                        s.is_restless[k] = True
                        s.n_restless += 1
                for i in range(s.n):
                    s.g[i] = s.l[i]
        if s.aside and not s.is_restless[fresh]:
            s.restless[s.n_restless] = <int> fresh
            s.is_restless[fresh] = True
            s.n_restless += 1
        self.drift_of_others()
        self.copy_restless()

    cdef void copy_restless(self) noexcept nogil:
        """What the scores need of the restless centers, padded."""
        cdef Sweep* s = &self.s
        cdef Py_ssize_t m
        for m in range(s.n_restless):
            if s.single:
                copy_center(<const float*> s.scaled, <const float*> s.norm, s.d, s.restless[m],
                            <float*> s.restless_scaled, <float*> s.restless_norm, m)
            else:
                copy_center(<const double*> s.scaled, <const double*> s.norm, s.d, s.restless[m],
                            <double*> s.restless_scaled, <double*> s.restless_norm, m)
        self.pad(s.restless_scaled, s.restless_norm, s.n_restless)

    cdef void pad(self, void* scaled, void* norm, Py_ssize_t k) noexcept nogil:
        if self.s.single:
            pad_centers(<float*> scaled, <float*> norm, self.s.d, k)
        else:
            pad_centers(<double*> scaled, <double*> norm, self.s.d, k)

    cdef void place_centers(self) noexcept nogil:
        cdef Py_ssize_t k
        self.s.longest = 0.0
        for k in range(self.s.k):
            self.place_center(k)
        self.pad(self.s.scaled, self.s.norm, self.s.k)

    cdef int threads_for(self, Py_ssize_t points) noexcept nogil:
        """One thread where waking others would cost more than it gives."""
        return self.n_threads if points * (self.s.k * self.s.d + 16) > PAYS else 1

    cdef void assign_chunks(self, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
        run(assign_item, &self.s, first, last, self.threads_for((last - first) * CHUNK))

    cdef void attract_chunks(
        self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t k0, const Py_ssize_t* creator
    ) noexcept nogil:
        """Points start..stop-1 meet the centers k0.. opened at points before them."""
        cdef Attraction a = Attraction(&self.s, start, stop, k0, creator)
        run(attract_item, &a, start // CHUNK, (stop + CHUNK - 1) // CHUNK, self.threads_for(stop - start))

    cdef void lower_table(self, Py_ssize_t k0, Py_ssize_t k1, float* table) noexcept nogil:
        """table[c] = min(table[c], distance from center c to the nearest other one of k0..k1-1), for all c."""
        cdef Lowering a = Lowering(&self.s, k0, k1, table)
        run(lower_item, &a, 0, (self.s.k + ROWS - 1) // ROWS, self.threads_for(self.s.k))
