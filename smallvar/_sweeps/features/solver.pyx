"""Features by least squares for given Z, and the sums over its rows that this takes.

Z'WZ, Z'WX and the number of users of each feature are kept in bins, exactly, by what each row changes.
"""

from libc.math cimport sqrt
from libc.string cimport memcpy, memset

from smallvar._sweeps.features.state cimport (
    DEPENDENT,
    LANES,
    ZERO_SQUARE,
    Pass,
    Problem,
    Scratch,
    Start,
    check_interrupt,
    partial_count,
    grow,
    round_tiles,
    sf_axpy,
    sf_cut_d,
    sf_cut_f,
    sf_dot,
    share,
    sums_size,
    threads_for,
    tile_of,
)
from smallvar._sweeps.pool cimport run
from smallvar._sweeps.rows cimport point, weight_of

# ----------------------------------------------------------------------------------------------------------------------
# Sums


cdef void cut_weight(const Problem* p, double weight, double* piece) noexcept nogil:
    """The pieces of a weight, one a bin; 1 where there are no weights and Z'WZ counts rows."""
    cdef Py_ssize_t layer
    cdef double magic
    if p.layers == 1:
        piece[0] = 1.0
        return
    for layer in range(p.layers):
        magic = p.magic[layer * (p.d + 1) + p.d]
        piece[layer] = (weight + magic) - magic
        weight -= piece[layer]


cdef void add_partial(
    const Problem* p, Start* s, Py_ssize_t first, Py_ssize_t t0, Py_ssize_t t1, double* sums, Scratch* w
) noexcept nogil:
    """The changes of a round's tiles t0..t1-1, added to sums: Z'WZ (m), count and Z'WX (zx), one after the other."""
    cdef Py_ssize_t t, k, j, l, i, layer, size = s.k, d = p.d, room = s.room, width = p.bins * d
    cdef double* count = sums + p.layers * size * size
    cdef double* zx = count + size
    cdef double* m
    cdef double* weight_pieces = w.piece + width
    cdef const double* x
    cdef unsigned char* old
    cdef unsigned char* new
    cdef double sign, part, weight
    cdef bint cut
    for t in range(t0, t1):
        if not s.touched[t - first]:
            continue
        x = tile_of(p, t, w.x) if p.rows.col != 1 else NULL
        old = s.old + (t - first) * room * LANES
        new = s.z + t * room * LANES
        for l in range(LANES):
            i = t * LANES + l
            if not (s.touched[t - first] >> l) & 1 or i >= p.n:
                continue
            cut = False
            for k in range(size):
                if old[k * LANES + l] == new[k * LANES + l]:
                    continue
                if not cut:
                    cut = True
                    weight = weight_of(&p.rows, i)
                    cut_weight(p, weight, weight_pieces)
                    if p.rows.col != 1:
                        sf_cut_d(d, p.bins, weight, x + l, LANES, p.magic, w.piece)
                    elif p.rows.single:
                        sf_cut_f(d, p.bins, weight, point(<const float*> p.rows.x, &p.rows, i), 1, p.magic, w.piece)
                    else:
                        sf_cut_d(d, p.bins, weight, point(<const double*> p.rows.x, &p.rows, i), 1, p.magic, w.piece)
                # the row changes bit by bit: at bit k those before it are new, those after it still old
                sign = 1.0 if new[k * LANES + l] else -1.0
                count[k] += sign
                for layer in range(p.layers):
                    m = sums + layer * size * size
                    part = sign * weight_pieces[layer]
                    for j in range(k):
                        if new[j * LANES + l]:
                            m[k * size + j] += part
                    m[k * size + k] += part
                    for j in range(k + 1, size):
                        if old[j * LANES + l]:
                            m[j * size + k] += part
                sf_axpy(width, sign, w.piece, zx + k * width)


cdef struct Partials:           # sums over the tiles first..last-1, in parts
    const Problem* p            # what all starts share
    Start* s                    # the start whose sums these are
    Py_ssize_t first
    Py_ssize_t last
    Py_ssize_t length           # tiles of a partial sum


cdef void add_item(void* context, Py_ssize_t g, int slot) noexcept nogil:
    """Partial sum g."""
    cdef const Partials* a = <const Partials*> context
    cdef Py_ssize_t t0 = a.first + g * a.length
    add_partial(
        a.p, a.s, a.first, t0, min(a.last, t0 + a.length), a.s.partial + g * sums_size(a.p, a.s.k), &a.s.scratch[slot]
    )


cdef void add_round(const Problem* p, Start* s, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """The changes of a round."""
    cdef Py_ssize_t first = start // LANES, last = (stop + LANES - 1) // LANES
    cdef Py_ssize_t k = s.k, partials = partial_count(p, k, last - first), g, i, layer, size = sums_size(p, k)
    cdef Partials a = Partials(p, s, first, last, (last - first + partials - 1) // partials)
    cdef double* sums
    memset(s.partial, 0, partials * size * sizeof(double))
    run(add_item, &a, 0, partials, threads_for(p, s, last - first))
    for g in range(partials):
        sums = s.partial + g * size
        for layer in range(p.layers):
            for i in range(k):
                sf_axpy(i + 1, 1.0, sums + (layer * k + i) * k, s.zz_bins + (layer * s.room + i) * s.room)
        sf_axpy(k, 1.0, sums + p.layers * k * k, s.count)
        sf_axpy(k * p.bins * p.d, 1.0, sums + p.layers * k * k + k, s.zx_bins)


cdef void read_sums(const Problem* p, Start* s) noexcept nogil:
    """Z'WZ and Z'WX from their bins, from the last one up."""
    cdef Py_ssize_t i, j, b, k = s.k, d = p.d, room = s.room
    cdef const double* bins
    cdef double value
    for i in range(k):
        for j in range(i + 1):
            value = s.zz_bins[((p.layers - 1) * room + i) * room + j]
            for b in range(p.layers - 2, -1, -1):
                value += s.zz_bins[(b * room + i) * room + j]
            s.zz[i * room + j] = s.zz[j * room + i] = value
        bins = s.zx_bins + i * p.bins * d
        memcpy(s.zx + i * d, bins + (p.bins - 1) * d, d * sizeof(double))
        for b in range(p.bins - 2, -1, -1):
            sf_axpy(d, 1.0, bins + b * d, s.zx + i * d)


cdef int recount(const Problem* p, Start* s, Py_ssize_t known) except -1 nogil:
    """The sums, where those of the first ``known`` features are there already."""
    cdef Py_ssize_t first = 0, last, t, length = round_tiles(p)
    if known == 0:
        memset(s.zz_bins, 0, p.layers * s.room * s.room * sizeof(double))
        memset(s.zx_bins, 0, s.room * p.bins * p.d * sizeof(double))
        memset(s.count, 0, s.room * sizeof(double))
    while first < p.tiles:
        last = min(p.tiles, first + length)
        memset(s.old, 0, length * s.room * LANES)
        for t in range(first, last):
            memcpy(s.old + (t - first) * s.room * LANES, s.z + t * s.room * LANES, known * LANES)
        memset(s.touched, 255, last - first)
        add_round(p, s, first * LANES, min(p.n, last * LANES))
        check_interrupt(s, (last - first) * LANES * p.d * s.k)
        first = last
    return 0


# ----------------------------------------------------------------------------------------------------------------------
# Features


cdef void place_feature(const Problem* p, Start* s, Py_ssize_t k) noexcept nogil:
    """Bring A transposed and A A' up to date with row k of A."""
    cdef Py_ssize_t i, j
    cdef double dot
    for j in range(p.d):
        s.at[j * s.room + k] = s.features[k * p.d + j]
    for i in range(s.k):
        dot = sf_dot(p.d, s.features + k * p.d, s.features + i * p.d)
        s.gram[k * s.room + i] = dot
        s.gram[i * s.room + k] = dot


cdef void place_features(const Problem* p, Start* s) noexcept nogil:
    """The same for all rows of A."""
    cdef Py_ssize_t i, j, k
    for k in range(s.k):
        for j in range(p.d):
            s.at[j * s.room + k] = s.features[k * p.d + j]
        for i in range(k + 1):
            s.gram[k * s.room + i] = sf_dot(p.d, s.features + k * p.d, s.features + i * p.d)
            s.gram[i * s.room + k] = s.gram[k * s.room + i]


cdef int add_feature(const Problem* p, Start* s) except -1 nogil:
    """A feature that no point uses yet: the first row of spare."""
    cdef Py_ssize_t k, t, layer
    if s.k == s.room:
        grow(p, s)
    k = s.k
    s.k += 1
    memcpy(s.features + k * p.d, s.spare, p.d * sizeof(double))
    place_feature(p, s, k)
    s.count[k] = 0.0
    for layer in range(p.layers):
        for t in range(s.k):
            s.zz_bins[(layer * s.room + k) * s.room + t] = 0.0
            s.zz_bins[(layer * s.room + t) * s.room + k] = 0.0
    memset(s.zx_bins + k * p.bins * p.d, 0, p.bins * p.d * sizeof(double))
    return 0


cdef void compact_run(const Pass* r, Py_ssize_t t0, Py_ssize_t t1, Scratch* w) noexcept nogil:
    cdef Start* s = r.s
    cdef Py_ssize_t t, i, k = r.stop
    cdef unsigned char* z
    for t in range(t0, t1):
        z = s.z + t * s.room * LANES
        for i in range(k):
            memcpy(z + i * LANES, z + s.kept[i] * LANES, LANES)
        memset(z + k * LANES, 0, (s.k - k) * LANES)


cdef void compact(const Problem* p, Start* s, Py_ssize_t k) noexcept nogil:
    """Keep the features kept[:k], in this (ascending) order."""
    cdef Py_ssize_t i, j, layer, d = p.d, room = s.room, width = p.bins * p.d
    cdef double* m
    cdef const Py_ssize_t* kept = s.kept
    share(compact_run, p, s, 0, p.tiles, 0, k)
    for i in range(k):
        if kept[i] != i:
            memcpy(s.features + i * d, s.features + kept[i] * d, d * sizeof(double))
            memcpy(s.zx_bins + i * width, s.zx_bins + kept[i] * width, width * sizeof(double))
        s.count[i] = s.count[kept[i]]
        for j in range(k):
            s.gram[i * room + j] = s.gram[kept[i] * room + kept[j]]
        for layer in range(p.layers):
            m = s.zz_bins + layer * room * room
            for j in range(i + 1):
                m[i * room + j] = m[kept[i] * room + kept[j]]
    for j in range(d):
        for i in range(k):
            s.at[j * room + i] = s.at[j * room + kept[i]]
    s.k = k


cdef void remove(const Problem* p, Start* s, Py_ssize_t k) noexcept nogil:
    """Take feature k away."""
    cdef Py_ssize_t i, count = 0
    for i in range(s.k):
        if i != k:
            s.kept[count] = i
            count += 1
    compact(p, s, count)


# ----------------------------------------------------------------------------------------------------------------------
# Least squares


cdef Py_ssize_t independent(const double* m, Py_ssize_t room, Py_ssize_t k, double* l, Py_ssize_t* kept) noexcept nogil:
    """Cholesky factor of m over the columns that do not depend on earlier ones; returns how many.

    IN m: k x room.  OUT l: lower triangle, rows and columns those kept; kept: k, those columns, then the others.
    """
    cdef Py_ssize_t i, j, c, count = 0, others = 0
    cdef double t
    for c in range(k):
        for i in range(count):  # the row of column c
            t = m[c * room + kept[i]]
            for j in range(i):
                t -= l[count * room + j] * l[i * room + j]
            l[count * room + i] = t / l[i * room + i]
        t = m[c * room + c]
        for j in range(count):
            t -= l[count * room + j] * l[count * room + j]
        if t > DEPENDENT * m[c * room + c]:
            l[count * room + count] = sqrt(t)
            kept[count] = c
            count += 1
    for c in range(k):
        i = 0
        while i < count and kept[i] != c:
            i += 1
        if i == count:
            kept[count + others] = c
            others += 1
    return count


cdef void solve(const double* l, Py_ssize_t room, Py_ssize_t k, double* y, Py_ssize_t d) noexcept nogil:
    """y <- (L L')^-1 y, y: k x d."""
    cdef Py_ssize_t i, j
    for i in range(k):
        for j in range(i):
            sf_axpy(d, -l[i * room + j], y + j * d, y + i * d)
        scale(d, 1.0 / l[i * room + i], y + i * d)
    for i in range(k - 1, -1, -1):
        for j in range(i + 1, k):
            sf_axpy(d, -l[j * room + i], y + j * d, y + i * d)
        scale(d, 1.0 / l[i * room + i], y + i * d)


cdef inline void scale(Py_ssize_t d, double factor, double* y) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(d):
        y[j] *= factor


cdef void shortest(Start* s, Py_ssize_t k, Py_ssize_t rank, Py_ssize_t d) noexcept nogil:
    """Of all least squares solutions the one of minimum norm: A = C' (C C')^-1 A_S.

    Z = Z_S C: the columns S (kept[:rank]) are those of the identity in C, the others M_SS^-1 M_S,rest.
    INOUT spare: A_S in its first rows, then A.
    """
    cdef Py_ssize_t room = s.room, rest = k - rank, i, j, q
    cdef double* c = s.small + room * room      # rank x rest: the columns of C behind the identity
    cdef double* l = s.small
    cdef double* cc = s.small + 2 * room * room
    cdef double t
    for i in range(rank):
        for j in range(rest):
            c[i * rest + j] = s.zz[s.kept[i] * room + s.kept[rank + j]]
    solve(l, room, rank, c, rest)
    for i in range(rank):
        for j in range(i + 1):
            cc[i * room + j] = (i == j) + sf_dot(rest, c + i * rest, c + j * rest)
    for i in range(rank):  # its Cholesky factor: C C' = I + (something positive), so it has one
        for j in range(i + 1):
            t = cc[i * room + j]
            for q in range(j):
                t -= cc[i * room + q] * cc[j * room + q]
            cc[i * room + j] = sqrt(t) if i == j else t / cc[j * room + j]
    solve(cc, room, rank, s.spare, d)
    for j in range(rest):
        memset(s.spare + (rank + j) * d, 0, d * sizeof(double))
        for i in range(rank):
            sf_axpy(d, c[i * rest + j], s.spare + i * d, s.spare + (rank + j) * d)


cdef double least_squares(const Problem* p, Start* s) noexcept nogil:
    """A = least squares for Z; columns that depend on earlier ones or have A_k = 0 are dropped unless K is fixed.

    Returns by how much the squared error falls: tr D' Z'WZ D, D = A - (A before). MB13, after eq. 6.
    """
    cdef Py_ssize_t k = s.k, d = p.d, room = s.room, i, j, rank, count
    cdef double fall = 0.0, dot
    cdef double* y
    read_sums(p, s)
    rank = independent(s.zz, room, k, s.small, s.kept)
    for i in range(rank):
        memcpy(s.spare + i * d, s.zx + s.kept[i] * d, d * sizeof(double))
    solve(s.small, room, rank, s.spare, d)
    if p.fixed and rank < k:
        shortest(s, k, rank, d)
        count = k
    else:
        count = rank
    # rows <- D, then the quadratic form, then rows <- A
    for i in range(k):
        scale(d, -1.0, s.features + i * d)
    for i in range(count):
        sf_axpy(d, 1.0, s.spare + i * d, s.features + s.kept[i] * d)
    for i in range(k):
        for j in range(i + 1):
            if s.zz[i * room + j] != 0.0:
                dot = sf_dot(d, s.features + i * d, s.features + j * d)
                fall += (1.0 if i == j else 2.0) * s.zz[i * room + j] * dot
    for i in range(k):
        memset(s.features + i * d, 0, d * sizeof(double))
    for i in range(count):
        memcpy(s.features + s.kept[i] * d, s.spare + i * d, d * sizeof(double))
    if not p.fixed:
        count = 0
        for i in range(rank):
            y = s.features + s.kept[i] * d
            if s.zz[s.kept[i] * room + s.kept[i]] * sf_dot(d, y, y) > ZERO_SQUARE * p.energy:
                s.kept[count] = s.kept[i]
                count += 1
        if count < k:
            s.removed += k - count
            compact(p, s, count)
    place_features(p, s)
    s.solved = True
    return fall
