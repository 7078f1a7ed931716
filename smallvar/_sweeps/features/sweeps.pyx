"""Sweeps over the rows of Z: BP-means (MB13 eq. 6), whose features come and go, and K-features (MB13 eq. 14)."""

from libc.string cimport memcpy, memset

from smallvar._sweeps.features.solver cimport add_feature, add_round, compact, place_feature
from smallvar._sweeps.features.state cimport (
    EXACT,
    LANES,
    TIE,
    VACANT,
    ZERO_SQUARE,
    Pass,
    Problem,
    Scratch,
    Start,
    bit,
    check_interrupt,
    lanes_of,
    residual_of,
    row_work,
    sf_dots,
    sf_exact,
    sf_flip,
    sf_load_bits,
    sf_residual,
    sf_store_bits,
    share,
    tile_of,
    work_tiles,
)
from smallvar._sweeps.rows cimport weight_of

cdef extern from *:
    """
    #define SMALLVAR_FLIP_ROUNDING 3e-15
    #define SMALLVAR_RESIDUAL_ROUNDING 1e-12
    """
    # of the squares of the features flipped in a row: the rounding error of its squared residual by flips
    const double FLIP_ROUNDING "SMALLVAR_FLIP_ROUNDING"
    # of a squared residual: where the flips' rounding error is more, it is computed from the data
    const double RESIDUAL_ROUNDING "SMALLVAR_RESIDUAL_ROUNDING"


cdef void tabulate(Start* s) noexcept nogil:
    """z G z' of all 2^k rows z, G = A A', in Gray order."""
    cdef Py_ssize_t step, code = 0, i
    cdef int turned
    cdef double value = 0.0, change
    for step in range(1, <Py_ssize_t> 1 << s.k):
        turned = s.flips[step]
        code ^= <Py_ssize_t> 1 << turned
        change = 0.0
        for i in range(s.k):
            if i != turned and (code >> i) & 1:
                change += 2.0 * s.gram[turned * s.room + i]
        change += s.gram[turned * s.room + turned]
        value = value + change if (code >> turned) & 1 else value - change
        s.quadratic[step] = value


cdef int keep_better(
    const Problem* p, Start* s, Py_ssize_t tile, int changed, const double* before, Scratch* w
) noexcept nogil:
    """Store those proposed rows of a tile whose residuals, computed anew, are shorter; returns their lanes."""
    cdef double rr[LANES]
    cdef const double* x = p.packed + tile * p.d * LANES if p.packed != NULL else w.x
    cdef Py_ssize_t i, l
    sf_residual(p.d, s.k, s.room, x, w.z, s.at, w.residual, rr)
    for l in range(LANES):
        if (changed >> l) & 1:
            if rr[l] < (1.0 - TIE) * before[l] - p.zero_square:
                s.squares[tile * LANES + l] = rr[l]
                for i in range(s.k):
                    s.z[(tile * s.room + i) * LANES + l] = w.z[i * LANES + l] != 0.0
            else:
                s.squares[tile * LANES + l] = before[l]
                changed &= ~(1 << l)
    return changed


cdef int visit(
    const Problem* p, Start* s, Py_ssize_t tile, int mask, const double* refund, Scratch* w
) noexcept nogil:
    """Choose new rows of Z for the lanes of a tile in ``mask``, by sf_flip (MB13 eq. 6) or sf_exact, see _features.h.

    Returns the lanes that changed.
    """
    cdef double rr[LANES]
    cdef double before[LANES]
    cdef double swing[LANES]
    cdef double anew[LANES]
    cdef double best[LANES]
    cdef double fall[LANES]
    cdef unsigned char* z = s.z + tile * s.room * LANES
    cdef const double* x = tile_of(p, tile, w.x)
    cdef int changed = 0, l
    cdef Py_ssize_t i, code
    cdef bint rough = False
    sf_load_bits(s.k, z, w.z)
    sf_residual(p.d, s.k, s.room, x, w.z, s.at, w.residual, rr)
    if s.k > 0:
        sf_dots(p.d, s.k, s.room, w.residual, s.at, w.dots)
        if p.rule == EXACT:
            sf_exact(s.k, s.room, s.gram, s.quadratic, s.flips, w.z, w.dots, w.work, best, fall)
            for l in range(LANES):
                if (mask >> l) & 1 and fall[l] > 0.0:
                    code = <Py_ssize_t> best[l]
                    for i in range(s.k):
                        if (w.z[i * LANES + l] != 0.0) != ((code >> i) & 1):
                            w.z[i * LANES + l] = (code >> i) & 1
                            changed |= 1 << l
            if changed:
                for l in range(LANES):
                    before[l] = rr[l]
                    if (mask >> l) & 1:
                        s.squares[tile * LANES + l] = rr[l]
                return keep_better(p, s, tile, changed, before, w)
        else:
            changed = sf_flip(s.k, s.room, s.gram, refund, mask, w.z, w.dots, rr, swing)
            if changed:
                sf_store_bits(s.k, w.z, z)
                for l in range(LANES):
                    rough |= swing[l] * FLIP_ROUNDING > RESIDUAL_ROUNDING * rr[l]
                if rough:  # the features flipped are much longer than the residual: its square is mostly rounding
                    sf_residual(p.d, s.k, s.room, x, w.z, s.at, w.residual, anew)
                    for l in range(LANES):  # whatever points share the tile
                        if swing[l] * FLIP_ROUNDING > RESIDUAL_ROUNDING * rr[l]:
                            rr[l] = anew[l]
    for l in range(LANES):
        if (mask >> l) & 1:
            s.squares[tile * LANES + l] = rr[l]
    return changed


cdef void propose_run(const Pass* r, Py_ssize_t t0, Py_ssize_t t1, Scratch* w) noexcept nogil:
    """New rows for the tiles t0..t1-1 of a round."""
    cdef const Problem* p = r.p
    cdef Start* s = r.s
    cdef Py_ssize_t t, i, first = r.first, start = r.start, stop = r.stop
    cdef int mask
    for t in range(t0, t1):
        mask = lanes_of(p, t)
        if t * LANES < start:
            mask &= ~((1 << (start - t * LANES)) - 1)
        if stop < (t + 1) * LANES:
            mask &= (1 << (stop - t * LANES)) - 1
        memcpy(s.old + (t - first) * s.room * LANES, s.z + t * s.room * LANES, s.k * LANES)
        s.touched[t - first] = visit(p, s, t, mask, NULL, w)
        s.far[t - first] = 0
        for i in range(t * LANES, min(p.n, (t + 1) * LANES)):
            s.far[t - first] |= weight_of(&p.rows, i) * s.squares[i] > p.floor


cdef void propose(const Problem* p, Start* s, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """New rows of Z for the points start..stop-1, all from the same features."""
    share(propose_run, p, s, start // LANES, (stop + LANES - 1) // LANES, start, stop)


cdef bint encode_pass(const Problem* p, Start* s) except -1 nogil:
    """New rows of Z for all points, the features fixed; returns whether another pass may change more."""
    cdef Py_ssize_t start = 0, stop, t, each = row_work(p, s)
    cdef bint changed = False
    while start < p.n:
        stop = min(p.n, start + work_tiles(p, each) * LANES)
        propose(p, s, start, stop)
        for t in range((stop - start + LANES - 1) // LANES):
            changed |= s.touched[t] != 0
        check_interrupt(s, (stop - start) * each)
        start = stop
    return changed


# ----------------------------------------------------------------------------------------------------------------------
# K-features


cdef inline int bits_set(int mask) noexcept nogil:
    cdef int count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


cdef int fixed_sweep(const Problem* p, Start* s) except -1 nogil:
    """K-features (MB13 eq. 14): every row anew; then features without users restart as the largest residuals."""
    cdef Py_ssize_t start = 0, stop, t, i, k, farthest, each = row_work(p, s)
    cdef double largest
    if p.rule == EXACT:
        tabulate(s)
    while start < p.n:
        stop = min(p.n, start + work_tiles(p, each) * LANES)
        propose(p, s, start, stop)
        for t in range((stop - start + LANES - 1) // LANES):
            s.changes += bits_set(s.touched[t])
        add_round(p, s, start, stop)
        check_interrupt(s, (stop - start) * each)
        start = stop
    for k in range(s.k):
        if s.count[k] != 0.0:
            continue
        farthest, largest = 0, 0.0
        for i in range(p.n):
            if weight_of(&p.rows, i) * s.squares[i] > largest:
                largest = weight_of(&p.rows, i) * s.squares[i]
                farthest = i
        if not largest > ZERO_SQUARE * p.energy:
            break
        residual_of(p, s, farthest, s.spare)
        memcpy(s.features + k * p.d, s.spare, p.d * sizeof(double))
        place_feature(p, s, k)
        t = farthest // LANES
        memcpy(s.old, s.z + t * s.room * LANES, s.k * LANES)
        bit(s, farthest, k)[0] = 1
        s.touched[0] = 1 << (farthest % LANES)
        add_round(p, s, t * LANES, t * LANES + 1)
        s.squares[farthest] = 0.0
        s.removed += 1
    return 0


# ----------------------------------------------------------------------------------------------------------------------
# BP-means


cdef int create(const Problem* p, Start* s, Py_ssize_t i, Py_ssize_t first, Py_ssize_t last) except -1 nogil:
    """A feature equal to the residual of point i, which alone uses it."""
    cdef Py_ssize_t k, t
    residual_of(p, s, i, s.spare)
    add_feature(p, s)
    k = s.k - 1
    bit(s, i, k)[0] = 1
    s.count[k] = 1.0
    for t in range(last - first):  # no point of this round had it; its number may be that of a removed one
        memset(s.old + (t * s.room + k) * LANES, 0, LANES)
    s.touched[i // LANES - first] |= 1 << (i % LANES)
    s.squares[i] = 0.0
    return 0


cdef bint has_last_user(const Start* s, Py_ssize_t within) noexcept nogil:
    """Whether a point of this tile had, before the round, a feature that now has one user."""
    cdef Py_ssize_t k, l
    cdef const unsigned char* old = s.old + within * s.room * LANES
    cdef unsigned char any_
    for k in range(s.k):
        if s.count[k] == 1.0:
            any_ = 0
            for l in range(LANES):
                any_ |= old[k * LANES + l]
            if any_:
                return True
    return False


cdef Py_ssize_t take_up(const Problem* p, Start* s, Py_ssize_t start, Py_ssize_t stop) except -1 nogil:
    """Take up a round of proposals in order, with refunds, removals and creations; returns the next point.

    Proposals hold as long as the features are those of the round's beginning, each with users other than the point.
    So a point that is the last user of a feature is visited again, with lam / w refunded for leaving it (MB13 eq. 6),
    and once a feature is opened or removed the rest of the round is proposed anew.
    """
    cdef Py_ssize_t first = start // LANES, i, k, t, l, sole = 0, within
    cdef bint alone, event = False
    cdef unsigned char* z
    cdef unsigned char* old
    for k in range(s.k):
        sole += s.count[k] == 1.0
    i = start - 1
    while i + 1 < stop:
        i += 1
        t, l = i // LANES, i % LANES
        within = t - first
        if not s.touched[within] and not s.far[within] and not (sole and has_last_user(s, within)):
            i = (t + 1) * LANES - 1
            continue
        if not sole and not (s.touched[within] >> l) & 1 and not weight_of(&p.rows, i) * s.squares[i] > p.floor:
            continue
        old = s.old + within * s.room * LANES + l
        z = s.z + t * s.room * LANES + l
        if sole:
            alone = False
            for k in range(s.k):
                s.refund[k] = 0.0
                if s.count[k] == 1.0 and old[k * LANES]:
                    s.refund[k] = p.lam / weight_of(&p.rows, i)
                    alone = True
            if alone:  # leaving the feature would save its penalty
                for k in range(s.k):
                    z[k * LANES] = old[k * LANES]
                s.touched[within] &= ~(1 << l)
                s.touched[within] |= visit(p, s, t, 1 << l, s.refund, s.scratch)
        if (s.touched[within] >> l) & 1:
            s.changes += 1
            sole = 0
            for k in range(s.k):
                if z[k * LANES] != old[k * LANES]:
                    s.count[k] += 1.0 if z[k * LANES] else -1.0
                    if s.count[k] == 0.0:
                        vacate(p, s, k)
                        event = True
                sole += s.count[k] == 1.0
        if weight_of(&p.rows, i) * s.squares[i] > p.floor and s.k - s.vacant < p.cap:
            create(p, s, i, first, (stop + LANES - 1) // LANES)
            s.created += 1
            event = True
        if event:
            for within in range(t - first, (stop + LANES - 1) // LANES - first):  # proposals after i are taken back
                for l in range(LANES):
                    if (first + within) * LANES + l > i and (s.touched[within] >> l) & 1:
                        for k in range(s.k):
                            s.z[((first + within) * s.room + k) * LANES + l] = (
                                s.old[(within * s.room + k) * LANES + l]
                            )
                        s.touched[within] &= ~(1 << l)
            return i + 1
    return stop


cdef void vacate(const Problem* p, Start* s, Py_ssize_t k) noexcept nogil:
    """Remove a feature: no point takes it up any more, and its number is given back at the end of the sweep."""
    memset(s.features + k * p.d, 0, p.d * sizeof(double))
    place_feature(p, s, k)
    s.gram[k * s.room + k] = VACANT
    s.vacant += 1
    s.removed += 1


cdef int free_sweep(const Problem* p, Start* s) except -1 nogil:
    """BP-means (MB13 eq. 6): rounds of proposals, taken up in order. After one that is cut short comes a short one."""
    cdef Py_ssize_t start = 0, stop, reached, i, k
    cdef double* users = s.refund
    while start < p.n:
        stop = min(p.n, (start // LANES + s.round) * LANES)
        propose(p, s, start, stop)
        reached = take_up(p, s, start, stop)
        users = s.refund  # take_up has counted the users, add_round would count them twice
        for k in range(s.k):
            users[k] = s.count[k]
        add_round(p, s, start, reached)
        for k in range(s.k):
            s.count[k] = users[k]
        check_interrupt(s, (stop - start) * p.d * (2 * s.k + 1))
        s.round = 1 if reached < stop else min(2 * s.round, work_tiles(p, row_work(p, s)))
        start = reached
    if s.vacant:
        k = 0
        for i in range(s.k):
            if s.gram[i * s.room + i] != VACANT:
                s.kept[k] = i
                k += 1
        compact(p, s, k)
        s.vacant = 0
    return 0
