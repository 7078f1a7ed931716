"""Sweeps of feature allocations: BP-means, its collapsed form, K-features, and whole starts of them.

A start of a small problem takes less time than a call from Python, so a start is compiled as a whole: seeding,
sweeps, least squares, until nothing changes. Small problems run in parallel over starts, large ones over points.
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.math cimport HUGE_VAL, fabs, frexp, ldexp, sqrt
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memset

from smallvar._sweeps.pool cimport PAYS, item_now, next_item, run
from smallvar._sweeps.rows cimport Rows, point, read_row, real_x, rows_of, weight_of

from smallvar._sweeps.sums import Layout

import numpy as np

cdef extern from "_lanes.h" nogil:
    enum:
        LANES "SF_LANES"
    const double DEAD "SF_DEAD"
    const double TIE "SF_TIE"
    void* sf_take(size_t)
    void sf_give(void*)
    Py_ssize_t sf_gather_d(const double*, Py_ssize_t, Py_ssize_t, double*)
    Py_ssize_t sf_gather_f(const float*, Py_ssize_t, Py_ssize_t, double*)
    void sf_load_bits(Py_ssize_t, const unsigned char*, double*)
    void sf_store_bits(Py_ssize_t, const double*, unsigned char*)
    void sf_residual(Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, const double*, const double*, double*, double*)
    void sf_dots(Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, const double*, double*)
    int sf_flip(Py_ssize_t, Py_ssize_t, const double*, const double*, int, double*, double*, double*, double*)
    void sf_exact(Py_ssize_t, Py_ssize_t, const double*, const double*, const int*, const double*, const double*,
                  double*, double*, double*)
    void sf_with(Py_ssize_t, const double*, const double*, double*)
    double sf_dot(Py_ssize_t, const double*, const double*)
    double sf_largest(Py_ssize_t, const double*, const double*)
    void sf_add_up(Py_ssize_t, const double*, const double*, const double*, double*)
    void sf_axpy(Py_ssize_t, double, const double*, double*)
    void sf_cut_d(Py_ssize_t, Py_ssize_t, double, const double*, Py_ssize_t, const double*, double*)
    void sf_cut_f(Py_ssize_t, Py_ssize_t, double, const float*, Py_ssize_t, const double*, double*)

cdef enum:
    ROUND = 8192        # tiles of a round: proposals are made for it in parallel, then taken up in order
    RUN = 16            # tiles that a thread takes at a time
    PART = 16           # tiles of a partial sum of squared residuals, for draws; no run ends within one
    PACKED = 1 << 21    # data of at most this many values are held as tiles, larger ones gathered in each sweep
    SMALL = 1 << 18     # values up to which threads share out starts instead of points
    GROUPS = 16         # partial sums of a round,
    SUMS = 1 << 22      # and values they may have in all
    REFRESH = 32        # rank-one updates between two fresh inverses
    PASSES = 1000       # over the bits of a row: a few, but for ties that rounding hides
    CALL = 2000         # multiply-adds that take as long as what else a small sweep does
    WORK = 1 << 26      # multiply-adds between two looks at the signals

cdef double DEPENDENT = 1e-9    # share of a column's square outside the span of the earlier ones that counts as zero
cdef double NOTHING = 1e-26     # share of the data's square that counts as zero

# What a sweep does: the "rule" of a problem
cdef enum:
    SWEEP = 0           # BP-means: coordinates, features created and removed in order
    COLLAPSED = 1       # collapsed BP-means
    COORDINATE = 2      # K-features
    EXACT = 3           # K-features, the best of all rows

RULES = {"sweep": SWEEP, "collapsed": COLLAPSED, "coordinate": COORDINATE, "exact": EXACT}
SEEDS = {"mean": 0, "data": 1}


cdef struct Problem:            # what all starts share and only read
    Rows rows
    Py_ssize_t n                # those of rows, by shorter names
    Py_ssize_t d
    Py_ssize_t tiles
    double* packed              # tiles x d x LANES, or NULL
    double energy               # sum of w ||x||^2
    double lam
    int rule
    bint fixed                  # K-features: the number of features stays
    Py_ssize_t cap              # largest number of features
    int max_iter
    double tol
    Py_ssize_t n_swaps
    bint verbose
    # exact sums of w x, about 0, see _sums.h
    Py_ssize_t bins
    Py_ssize_t layers           # of Z'WZ: as many bins, or 1 where it counts
    const double* magic         # bins x (d + 1)
    const double* mean          # d


cdef struct Scratch:            # one thread's
    double* x                   # d x LANES
    double* r                   # d x LANES
    double* z                   # room x LANES
    double* g                   # room x LANES
    double* work                # room x LANES
    double* piece               # bins x d, of one row, and as many of its weight
    double[3] bins              # of a sum


cdef struct Start:              # one start
    Py_ssize_t k                # features, dead ones included while a sweep lasts
    Py_ssize_t dead
    Py_ssize_t room             # features there is memory for, a multiple of 8
    unsigned char* z            # tiles x room x LANES, zero behind the features there are
    unsigned char* old          # the same for the tiles of a round, as it was before
    unsigned char* touched      # lanes of each tile of a round that changed
    unsigned char* far          # whether a point of it is to open a feature
    double* rows                # room x d: A
    double* at                  # d x room: A transposed
    double* gram                # room x room: A A'
    double* mm                  # layers x room x room: the bins of Z'WZ, nothing above the diagonal
    double* bb                  # room x bins x d: those of Z'WX
    double* m                   # room x room: Z'WZ, as last read
    double* b                   # room x d: Z'WX likewise
    double* count               # room: users of each feature
    double* refund              # room
    double* rr                  # tiles x LANES: squared residuals, those of padding 0
    double[3] magic             # for their sum
    double* parts               # their weighted sums over PART tiles each
    double* partial             # groups x (layers x k x k + k + k x bins x d)
    double* square              # 3 x room x room: for the small systems
    double* spare               # room x d: for the small systems
    double* quadratic           # 2^k: z A A' z' in Gray order
    int* flips                  # 2^k: the bit each step of the Gray code turns
    Py_ssize_t* kept            # 2 x room
    Scratch* scratch            # one for each thread
    int threads
    # collapsed
    double* p                   # room x room: (Z'WZ)^-1
    double* vec                 # 12 x room
    double* wide                # 4 x d
    double* rest                # 2 x room x room + room x d: P, G and A without one column
    double drift                # largest relative change by a refresh
    Py_ssize_t updates
    # the run
    uint64_t rng
    double error                # sum of w ||r||^2
    double objective
    double* path
    Py_ssize_t n_path
    Py_ssize_t path_room
    Py_ssize_t changes          # of the last sweep: rows changed,
    Py_ssize_t created          # features created,
    Py_ssize_t removed          # features removed or placed anew
    Py_ssize_t round            # tiles of the next round
    bint settled                # A is the least squares solution for Z
    bint converged
    int n_iter
    Py_ssize_t number           # which start this is
    Py_ssize_t* stop            # not 0 where the other starts are to end, or NULL
    Py_ssize_t work


# ----------------------------------------------------------------------------------------------------------------------
# Memory


cdef void* take(size_t bytes) except NULL nogil:
    cdef void* memory = sf_take(bytes)
    if memory == NULL:
        with gil:
            raise MemoryError("not enough memory for the features")
    return memory


cdef double* zeros(Py_ssize_t count) except NULL nogil:
    cdef double* memory = <double*> take(max(count, <Py_ssize_t> 1) * sizeof(double))
    memset(memory, 0, count * sizeof(double))
    return memory


cdef inline Py_ssize_t sums_size(const Problem* p, Py_ssize_t k) noexcept nogil:
    """Values in a group of sums."""
    return k * (k * p.layers + 1 + p.bins * p.d)


cdef Py_ssize_t group_count(const Problem* p, Py_ssize_t k, Py_ssize_t tiles) noexcept nogil:
    """Groups of the sums over these tiles."""
    cdef Py_ssize_t groups = min(<Py_ssize_t> GROUPS, tiles // 64)
    return max(<Py_ssize_t> 1, min(groups, <Py_ssize_t> SUMS // max(<Py_ssize_t> 1, sums_size(p, k))))


cdef void release_scratch(Start* s) noexcept nogil:
    cdef int t
    if s.scratch != NULL:
        for t in range(s.threads):
            sf_give(s.scratch[t].x)
            sf_give(s.scratch[t].r)
            sf_give(s.scratch[t].z)
            sf_give(s.scratch[t].g)
            sf_give(s.scratch[t].work)
            sf_give(s.scratch[t].piece)


cdef void release(Start* s) noexcept nogil:
    release_scratch(s)
    sf_give(s.scratch)
    sf_give(s.z)
    sf_give(s.old)
    sf_give(s.touched)
    sf_give(s.far)
    sf_give(s.rows)
    sf_give(s.at)
    sf_give(s.gram)
    sf_give(s.mm)
    sf_give(s.bb)
    sf_give(s.m)
    sf_give(s.b)
    sf_give(s.count)
    sf_give(s.refund)
    sf_give(s.rr)
    sf_give(s.parts)
    sf_give(s.partial)
    sf_give(s.square)
    sf_give(s.spare)
    sf_give(s.quadratic)
    sf_give(s.flips)
    sf_give(s.kept)
    sf_give(s.p)
    sf_give(s.vec)
    sf_give(s.wide)
    sf_give(s.rest)
    sf_give(s.path)
    memset(s, 0, sizeof(Start))


cdef Py_ssize_t round_tiles(const Problem* p) noexcept nogil:
    return max(<Py_ssize_t> 1, min(p.tiles, <Py_ssize_t> ROUND))


cdef int allocate(const Problem* p, Start* s, Py_ssize_t room, int threads) except -1 nogil:
    """Memory for ``room`` features. A start that fails here is released by its owner."""
    cdef Py_ssize_t d = p.d, length = round_tiles(p), i, sums, groups
    cdef int t
    room = max(<Py_ssize_t> 8, (room + 7) // 8 * 8)
    s.room = room
    sums = sums_size(p, room)
    groups = max(<Py_ssize_t> 1, min(<Py_ssize_t> GROUPS, length // 64))
    s.z = <unsigned char*> take(p.tiles * room * LANES)
    memset(s.z, 0, p.tiles * room * LANES)
    s.old = <unsigned char*> take(length * room * LANES)
    memset(s.old, 0, length * room * LANES)
    s.touched = <unsigned char*> take(length)
    s.far = <unsigned char*> take(length)
    s.rows = zeros(room * d)
    s.at = zeros(d * room)
    s.gram = zeros(room * room)
    s.mm = zeros(p.layers * room * room)
    s.bb = zeros(room * p.bins * d)
    s.m = zeros(room * room)
    s.b = zeros(room * d)
    s.count = zeros(room)
    s.refund = zeros(room)
    s.rr = zeros(p.tiles * LANES)
    s.parts = zeros((p.tiles + PART - 1) // PART)
    s.partial = zeros(max(sums, min(groups * sums, <Py_ssize_t> SUMS)))
    s.square = zeros(3 * room * room)
    s.spare = zeros(room * d)
    s.kept = <Py_ssize_t*> take(2 * room * sizeof(Py_ssize_t))
    if p.rule == COLLAPSED:
        s.p = zeros(room * room)
        s.vec = zeros(12 * room)
        s.wide = zeros(4 * d)
        s.rest = zeros(2 * room * room + room * d)
    if p.rule == EXACT:
        s.quadratic = zeros(<Py_ssize_t> 1 << p.cap)
        s.flips = <int*> take((<Py_ssize_t> 1 << p.cap) * sizeof(int))
        for i in range(1, <Py_ssize_t> 1 << p.cap):
            t = 0
            while not (i >> t) & 1:
                t += 1
            s.flips[i] = t
    s.threads = threads
    s.scratch = <Scratch*> take(threads * sizeof(Scratch))
    memset(s.scratch, 0, threads * sizeof(Scratch))
    for t in range(threads):
        s.scratch[t].x = zeros(d * LANES)
        s.scratch[t].r = zeros(d * LANES)
        s.scratch[t].z = zeros(room * LANES)
        s.scratch[t].g = zeros(room * LANES)
        s.scratch[t].work = zeros(room * LANES)
        s.scratch[t].piece = zeros(p.bins * (d + 1))
    return 0


cdef void copy_square(const double* a, Py_ssize_t room, double* b, Py_ssize_t new_room, Py_ssize_t k) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(k):
        memcpy(b + i * new_room, a + i * room, k * sizeof(double))


cdef struct Transfer:
    const Problem* p
    const Start* a
    Start* b


cdef void transfer_item(void* context, Py_ssize_t item, int slot) noexcept nogil:
    cdef const Transfer* c = <const Transfer*> context
    cdef Py_ssize_t t, k = c.a.k
    for t in range(item * RUN, min(c.p.tiles, (item + 1) * RUN)):
        memcpy(c.b.z + t * c.b.room * LANES, c.a.z + t * c.a.room * LANES, k * LANES)
        memset(c.b.z + (t * c.b.room + k) * LANES, 0, (c.b.room - k) * LANES)


cdef void copy_state(const Problem* p, const Start* a, Start* b) noexcept nogil:
    """Z, A and the sums of one start into another that has room for them."""
    cdef Py_ssize_t j, k = a.k, width = p.bins * p.d
    b.k, b.dead = k, a.dead
    cdef Transfer z = Transfer(p, a, b)
    run(transfer_item, &z, 0, (p.tiles + RUN - 1) // RUN, threads_for(p, a, p.tiles))
    memcpy(b.rows, a.rows, k * p.d * sizeof(double))
    memcpy(b.bb, a.bb, k * width * sizeof(double))
    memset(b.bb + k * width, 0, (b.room - k) * width * sizeof(double))
    for j in range(p.d):
        memcpy(b.at + j * b.room, a.at + j * a.room, k * sizeof(double))
    copy_square(a.gram, a.room, b.gram, b.room, k)
    memset(b.mm, 0, p.layers * b.room * b.room * sizeof(double))
    for j in range(p.layers):
        copy_square(a.mm + j * a.room * a.room, a.room, b.mm + j * b.room * b.room, b.room, k)
    memset(b.count, 0, b.room * sizeof(double))
    memcpy(b.count, a.count, k * sizeof(double))
    memcpy(b.rr, a.rr, p.tiles * LANES * sizeof(double))
    b.error, b.objective, b.settled = a.error, a.objective, a.settled


cdef int grow(const Problem* p, Start* s) except -1 nogil:
    """Room for more features; everything but the scratch of a running sweep is kept."""
    cdef Start bigger
    cdef Py_ssize_t t, length = round_tiles(p)
    cdef bint done = False
    memset(&bigger, 0, sizeof(Start))
    try:
        allocate(p, &bigger, 2 * s.room, s.threads)
        done = True
    finally:
        if not done:
            release(&bigger)
    copy_state(p, s, &bigger)
    for t in range(length):
        memcpy(bigger.old + t * bigger.room * LANES, s.old + t * s.room * LANES, s.k * LANES)
    memcpy(bigger.touched, s.touched, length)
    memcpy(bigger.spare, s.spare, p.d * sizeof(double))
    if s.p != NULL:
        copy_square(s.p, s.room, bigger.p, bigger.room, s.k)
    bigger.drift, bigger.updates = s.drift, s.updates
    bigger.stop = s.stop
    bigger.rng, bigger.path, bigger.n_path, bigger.path_room = s.rng, s.path, s.n_path, s.path_room
    bigger.changes, bigger.created, bigger.removed, bigger.round = s.changes, s.created, s.removed, s.round
    bigger.n_iter, bigger.number, bigger.work, bigger.converged = s.n_iter, s.number, s.work, s.converged
    s.path = NULL
    release(s)
    s[0] = bigger
    return 0


cdef int look(Start* s, Py_ssize_t work) except -1 nogil:
    """Raise KeyboardInterrupt if Ctrl-C was pressed; looks several times a second.

    Only the main thread hears of it, so it leaves word for the others.
    """
    if s.stop != NULL and item_now(s.stop):
        with gil:
            raise KeyboardInterrupt
    s.work += work + CALL
    if s.work > WORK:
        s.work = 0
        with gil:
            try:
                PyErr_CheckSignals()
            except BaseException:
                if s.stop != NULL:
                    next_item(s.stop)
                raise
    return 0


cdef int push(Start* s, double value) except -1 nogil:
    cdef double* longer
    if s.n_path == s.path_room:
        longer = <double*> take((2 * s.path_room + 64) * sizeof(double))
        if s.n_path:
            memcpy(longer, s.path, s.n_path * sizeof(double))
        sf_give(s.path)
        s.path = longer
        s.path_room = 2 * s.path_room + 64
    s.path[s.n_path] = value
    s.n_path += 1
    return 0


# ----------------------------------------------------------------------------------------------------------------------
# Points


cdef void gather(const real_x* x, const Problem* p, Py_ssize_t tile, double* out) noexcept nogil:
    cdef Py_ssize_t j, l, i, moved = 0
    cdef const real_x* xi
    if p.rows.col == 1 and (tile + 1) * LANES <= p.n:
        if real_x is float:
            moved = sf_gather_f(x + tile * LANES * p.rows.row, p.rows.row, p.d, out)
        else:
            moved = sf_gather_d(x + tile * LANES * p.rows.row, p.rows.row, p.d, out)
    for l in range(LANES):
        i = tile * LANES + l
        if i < p.n:
            xi = point(x, &p.rows, i)
            for j in range(moved, p.d):
                out[j * LANES + l] = xi[j * p.rows.col]
        else:
            for j in range(p.d):
                out[j * LANES + l] = 0.0


cdef const double* tile_of(const Problem* p, Py_ssize_t tile, double* space) noexcept nogil:
    """The data of a tile, gathered into ``space`` where they are not held packed."""
    if p.packed != NULL:
        return p.packed + tile * p.d * LANES
    if p.rows.single:
        gather(<const float*> p.rows.x, p, tile, space)
    else:
        gather(<const double*> p.rows.x, p, tile, space)
    return space


cdef inline int lanes_of(const Problem* p, Py_ssize_t tile) noexcept nogil:
    """Mask of the lanes that hold points."""
    return (1 << min(<Py_ssize_t> LANES, p.n - tile * LANES)) - 1


cdef inline unsigned char* bit(Start* s, Py_ssize_t i, Py_ssize_t k) noexcept nogil:
    return s.z + ((i // LANES) * s.room + k) * LANES + i % LANES


cdef void residuals(const Problem* p, Start* s, Py_ssize_t tile, Scratch* w) noexcept nogil:
    """Residuals of a tile and their squares, into w.r and s.rr."""
    cdef double rr[LANES]
    cdef int l
    cdef const double* x = tile_of(p, tile, w.x)
    sf_load_bits(s.k, s.z + tile * s.room * LANES, w.z)
    sf_residual(p.d, s.k, s.room, x, w.z, s.at, w.r, rr)
    for l in range(LANES):
        s.rr[tile * LANES + l] = rr[l] if tile * LANES + l < p.n else 0.0


cdef void residual_of(const Problem* p, Start* s, Py_ssize_t i, double* r) noexcept nogil:
    """The residual of one point, bit for bit as in its tile."""
    cdef Py_ssize_t j
    residuals(p, s, i // LANES, s.scratch)
    for j in range(p.d):
        r[j] = s.scratch.r[j * LANES + i % LANES]


cdef double total(const Problem* p, Start* s) noexcept nogil:
    """Sum of w ||r||^2, in any order the same, and those of parts of PART tiles."""
    cdef int t, i, bits = 0, exponent
    cdef double largest = sf_largest(p.n, s.rr, p.rows.weight)
    frexp(largest, &exponent)
    while (<Py_ssize_t> 1 << bits) < p.n:
        bits += 1
    for i in range(3):
        s.magic[i] = ldexp(1.5, exponent + 52 - (i + 1) * min(40, 52 - bits)) if largest > 0.0 else 0.0
    for t in range(s.threads):
        memset(s.scratch[t].bins, 0, 3 * sizeof(double))
    share(total_run, p, s, 0, p.tiles, 0, 0)
    for t in range(1, s.threads):
        for i in range(3):
            s.scratch[0].bins[i] += s.scratch[t].bins[i]
    return s.scratch[0].bins[2] + s.scratch[0].bins[1] + s.scratch[0].bins[0]


cdef void total_run(const Round* r, Py_ssize_t t0, Py_ssize_t t1, Scratch* w) noexcept nogil:
    cdef const Problem* p = r.p
    cdef Start* s = r.s
    cdef Py_ssize_t start, part, i
    cdef const double* weight
    cdef double[3] bins
    for part in range(t0 // PART, (t1 + PART - 1) // PART):
        start = part * PART * LANES
        weight = NULL if p.rows.weight == NULL else p.rows.weight + start
        memset(bins, 0, 3 * sizeof(double))
        sf_add_up(min(p.n - start, <Py_ssize_t> PART * LANES), s.rr + start, weight, s.magic, bins)
        for i in range(3):
            w.bins[i] += bins[i]
        s.parts[part] = bins[2] + bins[1] + bins[0]


cdef inline double cleared(const Problem* p, double error) noexcept nogil:
    """A squared error, or zero where it is nothing but rounding."""
    return error if error > NOTHING * p.energy else 0.0


cdef struct Round:
    void (*each)(const Round*, Py_ssize_t, Py_ssize_t, Scratch*) noexcept nogil
    const Problem* p
    Start* s
    Py_ssize_t first            # tiles
    Py_ssize_t last
    Py_ssize_t start            # points
    Py_ssize_t stop


cdef int threads_for(const Problem* p, const Start* s, Py_ssize_t tiles) noexcept nogil:
    """One thread where a pass over so many tiles is too short to be shared out."""
    return s.threads if tiles * LANES * p.d * (2 * s.k + 1) >= PAYS else 1


cdef void share(
    void (*each)(const Round*, Py_ssize_t, Py_ssize_t, Scratch*) noexcept nogil,
    const Problem* p, Start* s, Py_ssize_t first, Py_ssize_t last, Py_ssize_t start, Py_ssize_t stop
) noexcept nogil:
    """each(round, t0, t1, scratch) for runs of the tiles first..last-1: it writes to these tiles and its scratch."""
    cdef Round r = Round(each, p, s, first, last, start, stop)
    run(share_item, &r, 0, (last - first + RUN - 1) // RUN, threads_for(p, s, last - first))


cdef void share_item(void* context, Py_ssize_t item, int slot) noexcept nogil:
    cdef const Round* r = <const Round*> context
    cdef Py_ssize_t t0 = r.first + item * RUN
    r.each(r, t0, min(r.last, t0 + RUN), &r.s.scratch[slot])


cdef double evaluate(const Problem* p, Start* s) noexcept nogil:
    """All residuals from the data themselves; returns the sum of their weighted squares."""
    share(evaluate_run, p, s, 0, p.tiles, 0, 0)
    return total(p, s)


cdef void evaluate_run(const Round* r, Py_ssize_t t0, Py_ssize_t t1, Scratch* w) noexcept nogil:
    cdef Py_ssize_t t
    for t in range(t0, t1):
        residuals(r.p, r.s, t, w)


cdef int keep_better(
    const Problem* p, Start* s, Py_ssize_t tile, int changed, const double* before, Scratch* w
) noexcept nogil:
    """Store the proposed rows of a tile whose residuals are shorter indeed; returns their lanes."""
    cdef double rr[LANES]
    cdef const double* x = p.packed + tile * p.d * LANES if p.packed != NULL else w.x
    cdef Py_ssize_t i, l
    sf_residual(p.d, s.k, s.room, x, w.z, s.at, w.r, rr)
    for l in range(LANES):
        if (changed >> l) & 1:
            if rr[l] < (1.0 - TIE) * before[l] - NOTHING * p.energy / p.n:
                s.rr[tile * LANES + l] = rr[l]
                for i in range(s.k):
                    s.z[(tile * s.room + i) * LANES + l] = w.z[i * LANES + l] != 0.0
            else:
                s.rr[tile * LANES + l] = before[l]
                changed &= ~(1 << l)
    return changed


cdef int visit(
    const Problem* p, Start* s, Py_ssize_t tile, int mask, const double* refund, Scratch* w
) noexcept nogil:
    """Choose new rows of Z for the lanes of a tile in ``mask``; returns the lanes that changed."""
    cdef double rr[LANES]
    cdef double before[LANES]
    cdef double swing[LANES]
    cdef double best[LANES]
    cdef double fall[LANES]
    cdef unsigned char* z = s.z + tile * s.room * LANES
    cdef const double* x = tile_of(p, tile, w.x)
    cdef int changed = 0, l
    cdef Py_ssize_t i, code
    cdef bint rough = False
    sf_load_bits(s.k, z, w.z)
    sf_residual(p.d, s.k, s.room, x, w.z, s.at, w.r, rr)
    if s.k > 0:
        sf_dots(p.d, s.k, s.room, w.r, s.at, w.g)
        if p.rule == EXACT:
            sf_exact(s.k, s.room, s.gram, s.quadratic, s.flips, w.z, w.g, w.work, best, fall)
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
                        s.rr[tile * LANES + l] = rr[l]
                return keep_better(p, s, tile, changed, before, w)
        else:
            changed = sf_flip(s.k, s.room, s.gram, refund, mask, w.z, w.g, rr, swing)
            if changed:
                sf_store_bits(s.k, w.z, z)
                for l in range(LANES):
                    rough |= swing[l] * 3e-15 > 1e-12 * rr[l]
                if rough:  # features much longer than the residual came and went
                    sf_residual(p.d, s.k, s.room, x, w.z, s.at, w.r, rr)
    for l in range(LANES):
        if (mask >> l) & 1:
            s.rr[tile * LANES + l] = rr[l]
    return changed


cdef void propose_run(const Round* r, Py_ssize_t t0, Py_ssize_t t1, Scratch* w) noexcept nogil:
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
            s.far[t - first] |= weight_of(&p.rows, i) * s.rr[i] > p.lam


cdef void propose(const Problem* p, Start* s, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """New rows of Z for the points start..stop-1, all from the same features."""
    share(propose_run, p, s, start // LANES, (stop + LANES - 1) // LANES, start, stop)


# ----------------------------------------------------------------------------------------------------------------------
# Sums: Z'WZ, Z'WX and the number of users


cdef void cut_weight(const Problem* p, double weight, double* piece) noexcept nogil:
    """The pieces of a weight; 1 where Z'WZ counts."""
    cdef Py_ssize_t layer
    cdef double magic
    if p.layers == 1:
        piece[0] = 1.0
        return
    for layer in range(p.layers):
        magic = p.magic[layer * (p.d + 1) + p.d]
        piece[layer] = (weight + magic) - magic
        weight -= piece[layer]


cdef void add_group(
    const Problem* p, Start* s, Py_ssize_t first, Py_ssize_t t0, Py_ssize_t t1, double* sums, Scratch* w
) noexcept nogil:
    """The changes of a round's tiles t0..t1-1, added to mm, count and bb, which lie one after the other."""
    cdef Py_ssize_t t, k, j, l, i, layer, size = s.k, d = p.d, room = s.room, width = p.bins * d
    cdef double* count = sums + p.layers * size * size
    cdef double* bb = count + size
    cdef double* m
    cdef double* mass = w.piece + width
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
                    cut_weight(p, weight, mass)
                    if p.rows.col != 1:
                        sf_cut_d(d, p.bins, weight, x + l, LANES, p.magic, w.piece)
                    elif p.rows.single:
                        sf_cut_f(d, p.bins, weight, point(<const float*> p.rows.x, &p.rows, i), 1, p.magic, w.piece)
                    else:
                        sf_cut_d(d, p.bins, weight, point(<const double*> p.rows.x, &p.rows, i), 1, p.magic, w.piece)
                # one bit after the other: the bits before k are new, those behind it old
                sign = 1.0 if new[k * LANES + l] else -1.0
                count[k] += sign
                for layer in range(p.layers):
                    m = sums + layer * size * size
                    part = sign * mass[layer]
                    for j in range(k):
                        if new[j * LANES + l]:
                            m[k * size + j] += part
                    m[k * size + k] += part
                    for j in range(k + 1, size):
                        if old[j * LANES + l]:
                            m[j * size + k] += part
                sf_axpy(width, sign, w.piece, bb + k * width)


cdef struct Groups:
    const Problem* p
    Start* s
    Py_ssize_t first
    Py_ssize_t last
    Py_ssize_t length           # tiles of a group


cdef void add_item(void* context, Py_ssize_t g, int slot) noexcept nogil:
    """Group g, into sums of its own."""
    cdef const Groups* a = <const Groups*> context
    cdef Py_ssize_t t0 = a.first + g * a.length
    add_group(
        a.p, a.s, a.first, t0, min(a.last, t0 + a.length), a.s.partial + g * sums_size(a.p, a.s.k), &a.s.scratch[slot]
    )


cdef void add_round(const Problem* p, Start* s, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """The changes of a round."""
    cdef Py_ssize_t first = start // LANES, last = (stop + LANES - 1) // LANES
    cdef Py_ssize_t k = s.k, groups = group_count(p, k, last - first), g, i, layer, size = sums_size(p, k)
    cdef Groups a = Groups(p, s, first, last, (last - first + groups - 1) // groups)
    cdef double* sums
    memset(s.partial, 0, groups * size * sizeof(double))
    run(add_item, &a, 0, groups, threads_for(p, s, last - first))
    for g in range(groups):
        sums = s.partial + g * size
        for layer in range(p.layers):
            for i in range(k):
                sf_axpy(i + 1, 1.0, sums + (layer * k + i) * k, s.mm + (layer * s.room + i) * s.room)
        sf_axpy(k, 1.0, sums + p.layers * k * k, s.count)
        sf_axpy(k * p.bins * p.d, 1.0, sums + p.layers * k * k + k, s.bb)


cdef void read_sums(const Problem* p, Start* s) noexcept nogil:
    """Z'WZ and Z'WX from their bins, from the last one up."""
    cdef Py_ssize_t i, j, b, k = s.k, d = p.d, room = s.room
    cdef const double* bins
    cdef double value
    for i in range(k):
        for j in range(i + 1):
            value = s.mm[((p.layers - 1) * room + i) * room + j]
            for b in range(p.layers - 2, -1, -1):
                value += s.mm[(b * room + i) * room + j]
            s.m[i * room + j] = s.m[j * room + i] = value
        bins = s.bb + i * p.bins * d
        memcpy(s.b + i * d, bins + (p.bins - 1) * d, d * sizeof(double))
        for b in range(p.bins - 2, -1, -1):
            sf_axpy(d, 1.0, bins + b * d, s.b + i * d)


cdef int recount(const Problem* p, Start* s, Py_ssize_t known) except -1 nogil:
    """The sums, where those of the first ``known`` features are there already."""
    cdef Py_ssize_t first = 0, last, t, length = round_tiles(p)
    if known == 0:
        memset(s.mm, 0, p.layers * s.room * s.room * sizeof(double))
        memset(s.bb, 0, s.room * p.bins * p.d * sizeof(double))
        memset(s.count, 0, s.room * sizeof(double))
    while first < p.tiles:
        last = min(p.tiles, first + length)
        memset(s.old, 0, length * s.room * LANES)
        for t in range(first, last):
            memcpy(s.old + (t - first) * s.room * LANES, s.z + t * s.room * LANES, known * LANES)
        memset(s.touched, 255, last - first)
        add_round(p, s, first * LANES, min(p.n, last * LANES))
        look(s, (last - first) * LANES * p.d * s.k)
        first = last
    return 0


# ----------------------------------------------------------------------------------------------------------------------
# Features


cdef void place(const Problem* p, Start* s, Py_ssize_t k) noexcept nogil:
    """Let the tables follow row k of A."""
    cdef Py_ssize_t i, j
    cdef double dot
    for j in range(p.d):
        s.at[j * s.room + k] = s.rows[k * p.d + j]
    for i in range(s.k):
        dot = sf_dot(p.d, s.rows + k * p.d, s.rows + i * p.d)
        s.gram[k * s.room + i] = dot
        s.gram[i * s.room + k] = dot


cdef void place_all(const Problem* p, Start* s) noexcept nogil:
    cdef Py_ssize_t i, j, k
    for k in range(s.k):
        for j in range(p.d):
            s.at[j * s.room + k] = s.rows[k * p.d + j]
        for i in range(k + 1):
            s.gram[k * s.room + i] = sf_dot(p.d, s.rows + k * p.d, s.rows + i * p.d)
            s.gram[i * s.room + k] = s.gram[k * s.room + i]


cdef void tabulate(Start* s) noexcept nogil:
    """z G z' of every row, in Gray order."""
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


cdef int add_feature(const Problem* p, Start* s) except -1 nogil:
    """A feature that nobody uses yet: the first row of spare."""
    cdef Py_ssize_t k, t, layer
    if s.k == s.room:
        grow(p, s)
    k = s.k
    s.k += 1
    memcpy(s.rows + k * p.d, s.spare, p.d * sizeof(double))
    place(p, s, k)
    s.count[k] = 0.0
    for layer in range(p.layers):
        for t in range(s.k):
            s.mm[(layer * s.room + k) * s.room + t] = 0.0
            s.mm[(layer * s.room + t) * s.room + k] = 0.0
    memset(s.bb + k * p.bins * p.d, 0, p.bins * p.d * sizeof(double))
    return 0


cdef void compact_run(const Round* r, Py_ssize_t t0, Py_ssize_t t1, Scratch* w) noexcept nogil:
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
            memcpy(s.rows + i * d, s.rows + kept[i] * d, d * sizeof(double))
            memcpy(s.bb + i * width, s.bb + kept[i] * width, width * sizeof(double))
        s.count[i] = s.count[kept[i]]
        for j in range(k):
            s.gram[i * room + j] = s.gram[kept[i] * room + kept[j]]
        for layer in range(p.layers):
            m = s.mm + layer * room * room
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
    cdef double* c = s.square + room * room      # rank x rest: the columns of C behind the identity
    cdef double* l = s.square
    cdef double* cc = s.square + 2 * room * room
    cdef double t
    for i in range(rank):
        for j in range(rest):
            c[i * rest + j] = s.m[s.kept[i] * room + s.kept[rank + j]]
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


cdef double settle(const Problem* p, Start* s) noexcept nogil:
    """A = least squares for Z, columns that depend on earlier ones (or do nothing) dropped unless K is fixed.

    Returns by how much the squared error falls: tr D' Z'WZ D, D = A - A before.
    """
    cdef Py_ssize_t k = s.k, d = p.d, room = s.room, i, j, rank, count
    cdef double fall = 0.0
    cdef double* y
    read_sums(p, s)
    rank = independent(s.m, room, k, s.square, s.kept)
    for i in range(rank):
        memcpy(s.spare + i * d, s.b + s.kept[i] * d, d * sizeof(double))
    solve(s.square, room, rank, s.spare, d)
    if p.fixed and rank < k:
        shortest(s, k, rank, d)
        count = k
    else:
        count = rank
    # rows <- D, then the quadratic form, then rows <- A
    for i in range(k):
        scale(d, -1.0, s.rows + i * d)
    for i in range(count):
        sf_axpy(d, 1.0, s.spare + i * d, s.rows + s.kept[i] * d)
    for i in range(k):
        for j in range(i + 1):
            if s.m[i * room + j] != 0.0:
                fall += (1.0 if i == j else 2.0) * s.m[i * room + j] * sf_dot(d, s.rows + i * d, s.rows + j * d)
    for i in range(k):
        memset(s.rows + i * d, 0, d * sizeof(double))
    for i in range(count):
        memcpy(s.rows + s.kept[i] * d, s.spare + i * d, d * sizeof(double))
    if not p.fixed:
        count = 0
        for i in range(rank):
            y = s.rows + s.kept[i] * d
            if s.m[s.kept[i] * room + s.kept[i]] * sf_dot(d, y, y) > NOTHING * p.energy:
                s.kept[count] = s.kept[i]
                count += 1
        if count < k:
            s.removed += k - count
            compact(p, s, count)
    place_all(p, s)
    s.settled = True
    return fall


# ----------------------------------------------------------------------------------------------------------------------
# Seeding


cdef inline double uniform(uint64_t* state) noexcept nogil:
    """The next number in [0, 1) of the generator splitmix64."""
    cdef uint64_t z
    state[0] += <uint64_t> 0x9E3779B97F4A7C15
    z = state[0]
    z = (z ^ (z >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t> 0x94D049BB133111EB
    z = z ^ (z >> 31)
    return <double> (z >> 11) * (1.0 / 9007199254740992.0)


cdef void join_run(const Round* r, Py_ssize_t t0, Py_ssize_t t1, Scratch* w) noexcept nogil:
    """Points whose residual strictly shrinks take up the last feature, f."""
    cdef const Problem* p = r.p
    cdef Start* s = r.s
    cdef Py_ssize_t t, l, i, k = s.k - 1
    cdef const double* f = s.rows + k * p.d
    cdef double rr[LANES]
    cdef double rf[LANES]
    cdef const double* x
    for t in range(t0, t1):
        x = tile_of(p, t, w.x)
        sf_load_bits(k, s.z + t * s.room * LANES, w.z)
        sf_residual(p.d, k, s.room, x, w.z, s.at, w.r, rr)
        sf_with(p.d, w.r, f, rf)
        for l in range(LANES):
            i = t * LANES + l
            if i < p.n and rf[l] < rr[l]:
                s.z[(t * s.room + k) * LANES + l] = 1
                s.rr[i] = rf[l]


cdef void join(const Problem* p, Start* s) noexcept nogil:
    share(join_run, p, s, 0, p.tiles, 0, 0)


cdef Py_ssize_t draw(const Problem* p, Start* s, double error) noexcept nogil:
    """A point with probability proportional to its weighted squared residual."""
    cdef double target = uniform(&s.rng) * error, sum0 = 0.0, part
    cdef Py_ssize_t i = 0, last = 0, length = PART * LANES
    while i + length < p.n and not sum0 + s.parts[i // length] > target:  # as total left them
        sum0 += s.parts[i // length]
        i += length
    for i in range(i, p.n):
        part = weight_of(&p.rows, i) * s.rr[i]
        if part > 0.0:
            last = i
            sum0 += part
            if sum0 > target:
                return i
    return last


cdef int seed(const Problem* p, Start* s, int mode) except -1 nogil:
    """The greedy start of MB13 section 5, like k-means++. Leaves A as seeded, not as least squares."""
    cdef Py_ssize_t i
    cdef double error, before
    s.k = s.dead = 0
    memset(s.z, 0, p.tiles * s.room * LANES)
    if mode == 0:
        memcpy(s.spare, p.mean, p.d * sizeof(double))
        add_feature(p, s)
        for i in range(p.n):
            bit(s, i, 0)[0] = 1
    error = evaluate(p, s)
    while s.k < p.cap and error > NOTHING * p.energy:
        i = draw(p, s, error)
        residual_of(p, s, i, s.spare)
        add_feature(p, s)
        join(p, s)
        before = error
        error = total(p, s)
        look(s, p.n * p.d * (s.k + 2))
        if not p.fixed and not error + p.lam < before:
            remove(p, s, s.k - 1)
            break
    while p.fixed and s.k < p.cap:  # nothing left to explain: features that nobody uses
        memset(s.spare, 0, p.d * sizeof(double))
        add_feature(p, s)
    s.settled = False
    return 0


# ----------------------------------------------------------------------------------------------------------------------
# Sweeps


cdef inline Py_ssize_t row_work(const Problem* p, const Start* s) noexcept nogil:
    """Multiply-adds of a new row of Z, K fixed."""
    return p.d * (2 * s.k + 1) + ((s.k + 4) << s.k if p.rule == EXACT else 0)


cdef inline Py_ssize_t work_tiles(const Problem* p, Py_ssize_t each) noexcept nogil:
    """Tiles of the next round, so much work a row: not more than are done before the next look at the signals."""
    return min(round_tiles(p), max(<Py_ssize_t> 64, WORK // (LANES * each)))


cdef int fixed_sweep(const Problem* p, Start* s) except -1 nogil:
    """K-features: every row anew; then features that nobody uses restart as the largest residuals."""
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
        look(s, (stop - start) * each)
        start = stop
    for k in range(s.k):
        if s.count[k] != 0.0:
            continue
        farthest, largest = 0, 0.0
        for i in range(p.n):
            if weight_of(&p.rows, i) * s.rr[i] > largest:
                largest = weight_of(&p.rows, i) * s.rr[i]
                farthest = i
        if not largest > NOTHING * p.energy:
            break
        residual_of(p, s, farthest, s.spare)
        memcpy(s.rows + k * p.d, s.spare, p.d * sizeof(double))
        place(p, s, k)
        t = farthest // LANES
        memcpy(s.old, s.z + t * s.room * LANES, s.k * LANES)
        bit(s, farthest, k)[0] = 1
        s.touched[0] = 1 << (farthest % LANES)
        add_round(p, s, t * LANES, t * LANES + 1)
        s.rr[farthest] = 0.0
        s.removed += 1
    return 0


cdef inline int bits_set(int mask) noexcept nogil:
    cdef int count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


cdef int create(const Problem* p, Start* s, Py_ssize_t i, Py_ssize_t first, Py_ssize_t last) except -1 nogil:
    """A feature equal to the residual of point i, which alone uses it."""
    cdef Py_ssize_t k, t
    residual_of(p, s, i, s.spare)
    add_feature(p, s)
    k = s.k - 1
    bit(s, i, k)[0] = 1
    s.count[k] = 1.0
    for t in range(last - first):  # nobody in this round had it, whatever was in this place before
        memset(s.old + (t * s.room + k) * LANES, 0, LANES)
    s.touched[i // LANES - first] |= 1 << (i % LANES)
    s.rr[i] = 0.0
    return 0


cdef bint has_last_user(const Start* s, Py_ssize_t place) noexcept nogil:
    """Whether a point of this tile of a round had a feature that now has one user."""
    cdef Py_ssize_t k, l
    cdef const unsigned char* old = s.old + place * s.room * LANES
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
    """Walk through a round in order: refunds, removals, creations; returns where the features changed.

    Proposals hold for the features as they were when the round began, and for features that keep other users. The
    rest of a round is proposed again once a feature has come or gone.
    """
    cdef Py_ssize_t first = start // LANES, i, k, t, l, sole = 0, place_of
    cdef bint alone, event = False
    cdef unsigned char* z
    cdef unsigned char* old
    for k in range(s.k):
        sole += s.count[k] == 1.0
    i = start - 1
    while i + 1 < stop:
        i += 1
        t, l = i // LANES, i % LANES
        place_of = t - first
        if not s.touched[place_of] and not s.far[place_of] and not (sole and has_last_user(s, place_of)):
            i = (t + 1) * LANES - 1
            continue
        if not sole and not (s.touched[place_of] >> l) & 1 and not weight_of(&p.rows, i) * s.rr[i] > p.lam:
            continue
        old = s.old + place_of * s.room * LANES + l
        z = s.z + t * s.room * LANES + l
        if sole:
            alone = False
            for k in range(s.k):
                s.refund[k] = 0.0
                if s.count[k] == 1.0 and old[k * LANES]:
                    s.refund[k] = p.lam / weight_of(&p.rows, i)
                    alone = True
            if alone:  # the last user of a feature may save its penalty
                for k in range(s.k):
                    z[k * LANES] = old[k * LANES]
                s.touched[place_of] &= ~(1 << l)
                s.touched[place_of] |= visit(p, s, t, 1 << l, s.refund, s.scratch)
        if (s.touched[place_of] >> l) & 1:
            s.changes += 1
            sole = 0
            for k in range(s.k):
                if z[k * LANES] != old[k * LANES]:
                    s.count[k] += 1.0 if z[k * LANES] else -1.0
                    if s.count[k] == 0.0:
                        bury(p, s, k)
                        event = True
                sole += s.count[k] == 1.0
        if weight_of(&p.rows, i) * s.rr[i] > p.lam and s.k - s.dead < p.cap:
            create(p, s, i, first, (stop + LANES - 1) // LANES)
            s.created += 1
            event = True
        if event:
            for place_of in range(t - first, (stop + LANES - 1) // LANES - first):  # withdraw what lies behind i
                for l in range(LANES):
                    if (first + place_of) * LANES + l > i and (s.touched[place_of] >> l) & 1:
                        for k in range(s.k):
                            s.z[((first + place_of) * s.room + k) * LANES + l] = (
                                s.old[(place_of * s.room + k) * LANES + l]
                            )
                        s.touched[place_of] &= ~(1 << l)
            return i + 1
    return stop


cdef void bury(const Problem* p, Start* s, Py_ssize_t k) noexcept nogil:
    """No point takes up a removed feature; its place is given back after the sweep."""
    memset(s.rows + k * p.d, 0, p.d * sizeof(double))
    place(p, s, k)
    s.gram[k * s.room + k] = DEAD
    s.dead += 1
    s.removed += 1


cdef int free_sweep(const Problem* p, Start* s) except -1 nogil:
    """BP-means: rounds of proposals, taken up in order. A round that is cut short makes the next one shorter."""
    cdef Py_ssize_t start = 0, stop, reached, i, k
    cdef double* users = s.refund
    while start < p.n:
        stop = min(p.n, (start // LANES + s.round) * LANES)
        propose(p, s, start, stop)
        reached = take_up(p, s, start, stop)
        users = s.refund  # the walk counts users itself
        for k in range(s.k):
            users[k] = s.count[k]
        add_round(p, s, start, reached)
        for k in range(s.k):
            s.count[k] = users[k]
        look(s, (stop - start) * p.d * (2 * s.k + 1))
        s.round = 1 if reached < stop else min(2 * s.round, work_tiles(p, row_work(p, s)))
        start = reached
    if s.dead:
        k = 0
        for i in range(s.k):
            if s.gram[i * s.room + i] != DEAD:
                s.kept[k] = i
                k += 1
        compact(p, s, k)
        s.dead = 0
    return 0


# ----------------------------------------------------------------------------------------------------------------------
# Collapsed BP-means: P = (Z'WZ)^-1, A = P Z'WX and G = A A' follow every row by rank-one updates


cdef void row_of(const Problem* p, Py_ssize_t i, double* out) noexcept nogil:
    cdef Py_ssize_t j
    if p.packed != NULL:
        for j in range(p.d):
            out[j] = p.packed[((i // LANES) * p.d + j) * LANES + i % LANES]
    else:
        read_row(&p.rows, i, out, 1)


cdef int refresh(const Problem* p, Start* s) except -1 nogil:
    """P, A and G from the sums, columns that depend on earlier ones dropped."""
    cdef Py_ssize_t k = s.k, room = s.room, i, j, rank
    cdef double most = 0.0, off = 0.0
    read_sums(p, s)
    rank = independent(s.m, room, k, s.square, s.kept)
    if rank < k:
        s.removed += k - rank
        s.updates = 0
        compact(p, s, rank)
        read_sums(p, s)
        k = rank
    cdef double* inverse = s.square + room * room
    memset(inverse, 0, k * k * sizeof(double))
    for i in range(k):
        inverse[i * k + i] = 1.0
    solve(s.square, room, k, inverse, k)
    memcpy(s.spare, s.b, k * p.d * sizeof(double))
    solve(s.square, room, k, s.spare, p.d)
    if s.updates:
        for i in range(k):
            for j in range(k):
                most = max(most, fabs(inverse[i * k + j]))
                off = max(off, fabs(inverse[i * k + j] - s.p[i * room + j]))
        s.drift = max(s.drift, off / most)
        most = off = 0.0
        for i in range(k * p.d):
            most = max(most, fabs(s.spare[i]))
            off = max(off, fabs(s.spare[i] - s.rows[i]))
        if most > 0.0:
            s.drift = max(s.drift, off / most)
    for i in range(k):
        memcpy(s.p + i * room, inverse + i * k, k * sizeof(double))
    memcpy(s.rows, s.spare, k * p.d * sizeof(double))
    place_all(p, s)
    s.updates = 0
    return 0


cdef void without(const Problem* p, Start* s, Py_ssize_t gone, double* pp, double* gg, double* aa) noexcept nogil:
    """P, G and A of the problem without column ``gone``."""
    cdef Py_ssize_t k = s.k, room = s.room, i, j, a = 0, b
    cdef double ci, cj
    for i in range(k):
        if i == gone:
            continue
        ci = s.p[i * room + gone] / s.p[gone * room + gone]
        b = 0
        for j in range(k):
            if j == gone:
                continue
            cj = s.p[j * room + gone] / s.p[gone * room + gone]
            pp[a * room + b] = s.p[i * room + j] - ci * s.p[gone * room + j]
            gg[a * room + b] = (
                s.gram[i * room + j] - ci * s.gram[gone * room + j] - cj * s.gram[gone * room + i]
                + ci * cj * s.gram[gone * room + gone]
            )
            b += 1
        memcpy(aa + a * p.d, s.rows + i * p.d, p.d * sizeof(double))
        sf_axpy(p.d, -ci, s.rows + gone * p.d, aa + a * p.d)
        a += 1


cdef int write_row(const Problem* p, Start* s, Py_ssize_t i, const double* z) except -1 nogil:
    """Row i of Z becomes z, and the sums follow."""
    cdef Py_ssize_t t = i // LANES, k
    memcpy(s.old, s.z + t * s.room * LANES, s.k * LANES)
    for k in range(s.k):
        bit(s, i, k)[0] = z[k] != 0.0
    s.touched[0] = 1 << (i % LANES)
    add_round(p, s, t * LANES, t * LANES + 1)
    return 0


cdef int reconsider(const Problem* p, Start* s, Py_ssize_t i) except -1 nogil:
    """Take row i out, find its best place, and put it there if the objective falls.

    With P, A and G of the other rows, row z costs w ||x - z A||^2 / (1 + w z P z'), and a feature of its own costs lam.
    """
    cdef Py_ssize_t k = s.k, size = s.k, room = s.room, d = p.d, j, l, gone = -1
    cdef double* z = s.vec
    cdef double* pz = s.vec + room          # P z of the row as it was, P with the row
    cdef double* ar = s.vec + 2 * room      # A r likewise
    cdef double* g = s.vec + 3 * room       # A r of the row as it would be, A without it
    cdef double* q = s.vec + 4 * room       # P z likewise
    cdef double* u = s.vec + 5 * room
    cdef double* full = s.vec + 6 * room
    cdef double* x = s.wide
    cdef double* r = s.wide + d
    cdef double* pp = s.p
    cdef double* gg = s.gram
    cdef double* aa = s.rows
    cdef double w = weight_of(&p.rows, i), h = 0.0, top = 0.0, rr, xx, f, t, sign, num, den, cost, old, margin
    cdef double new_num, new_den
    cdef bint alone, flipped = True
    cdef int passes = 0
    row_of(p, i, x)
    for j in range(k):
        z[j] = bit(s, i, j)[0]
    for j in range(k):
        pz[j] = sf_dot(k, pp + j * room, z)
        h += w * z[j] * pz[j]
    if 1.0 - h < DEPENDENT:
        # without this row the columns depend on each other, P z being what they cancel by: the last of them goes
        for j in range(k):
            top = max(top, fabs(pz[j]))
        for j in range(k):
            if fabs(pz[j]) > 1e-7 * top:
                gone = j
        if gone < 0:
            return 0
        pp, gg, aa = s.rest, s.rest + room * room, s.rest + 2 * room * room
        without(p, s, gone, pp, gg, aa)
        size = k - 1
        for j in range(gone, size):
            z[j] = z[j + 1]
        h = 0.0
        for j in range(size):
            pz[j] = sf_dot(size, pp + j * room, z)
            h += w * z[j] * pz[j]
        if 1.0 - h < DEPENDENT:
            return 0
    memcpy(r, x, d * sizeof(double))
    for j in range(size):
        if z[j] != 0.0:
            sf_axpy(d, -1.0, aa + j * d, r)
    rr, xx = sf_dot(d, r, r), sf_dot(d, x, x)
    for j in range(size):
        ar[j] = sf_dot(d, aa + j * d, r)
    f = 1.0 / (1.0 - h)
    t = w * f
    for j in range(size):
        g[j] = (ar[j] - t * pz[j] * rr) * f
        q[j] = pz[j] * f
    num, den = rr * f * f, f
    cost = w * num / den
    old = cost if gone < 0 else p.lam
    for j in range(size):
        xx += gg[j * room + j]
    margin = 1e-11 * sqrt(max(cost, old)) * sqrt(w * xx) + 1e-22 * w * xx  # what rounding may make of a cost
    while flipped and passes < PASSES:
        flipped = False
        passes += 1
        for j in range(size):
            sign = 1.0 - 2.0 * z[j]
            new_num = num - 2.0 * sign * g[j] + gg[j * room + j] - 2.0 * t * pz[j] * ar[j] + t * t * rr * pz[j] * pz[j]
            new_den = den + w * (2.0 * sign * q[j] + pp[j * room + j] + t * pz[j] * pz[j])
            if not w * max(new_num, 0.0) / new_den < cost - margin:
                continue
            for l in range(size):
                g[l] -= sign * (
                    gg[j * room + l] - t * (pz[j] * ar[l] + ar[j] * pz[l]) + t * t * rr * pz[j] * pz[l]
                )
                q[l] += sign * (pp[j * room + l] + t * pz[j] * pz[l])
            z[j] += sign
            num, den = max(new_num, 0.0), new_den
            cost = w * num / den
            flipped = True
    alone = p.lam < cost - margin and size < p.cap
    if not (p.lam if alone else cost) < old - margin:
        return 0
    s.changes += 1
    if gone < 0 and not alone:
        write_row(p, s, i, z)
        for j in range(size):
            sf_axpy(d, -t * pz[j], r, aa + j * d)
            for l in range(size):
                pp[j * room + l] += t * pz[j] * pz[l]
                gg[j * room + l] += t * t * rr * pz[j] * pz[l] - t * (pz[j] * ar[l] + ar[j] * pz[l])
        memcpy(r, x, d * sizeof(double))
        for j in range(size):
            if z[j] != 0.0:
                sf_axpy(d, -1.0, aa + j * d, r)
        rr = sf_dot(d, r, r)
        for j in range(size):
            u[j] = w * q[j] / den
        for j in range(size):
            sf_axpy(d, u[j], r, aa + j * d)
            for l in range(size):
                pp[j * room + l] -= u[j] * q[l]
                gg[j * room + l] += u[j] * g[l] + g[j] * u[l] + u[j] * u[l] * rr
        s.updates += 1
        if s.updates >= max(<Py_ssize_t> REFRESH, k) or f > 1e4 or den > 1e4:
            refresh(p, s)
        return 0
    for j in range(size):  # back to the columns as they are numbered now
        full[j if gone < 0 or j < gone else j + 1] = z[j]
    if gone >= 0:
        full[gone] = 0.0
    write_row(p, s, i, full)
    if gone >= 0:
        remove(p, s, gone)
        s.removed += 1
    if alone:
        memset(s.spare, 0, d * sizeof(double))
        add_feature(p, s)
        for j in range(s.k):
            s.vec[j] = bit(s, i, j)[0]
        s.vec[s.k - 1] = 1.0
        write_row(p, s, i, s.vec)
        s.created += 1
    s.updates = 0
    refresh(p, s)
    return 0


cdef int collapsed_sweep(const Problem* p, Start* s) except -1 nogil:
    cdef Py_ssize_t i
    for i in range(p.n):
        reconsider(p, s, i)
        look(s, (2 * s.k + 1) * p.d + 3 * s.k * s.k)
    refresh(p, s)
    return 0


# ----------------------------------------------------------------------------------------------------------------------
# Starts


cdef int converge(const Problem* p, Start* s) except -1 nogil:
    """Sweeps until nothing changes, or tol or max_iter ends them."""
    cdef int counted = 0
    cdef bint was_settled, fell
    cdef double fall, previous
    cdef Py_ssize_t begin = s.n_path
    s.converged = False
    while True:
        was_settled = s.settled
        s.changes = s.created = s.removed = 0
        if p.rule == COLLAPSED:
            collapsed_sweep(p, s)
            s.error = evaluate(p, s)
        else:
            if p.fixed:
                fixed_sweep(p, s)
            else:
                free_sweep(p, s)
            previous = total(p, s)
            fall = settle(p, s) if s.changes or s.created or s.removed or not was_settled else 0.0
            s.error = previous - fall
            if s.error < 1e-3 * previous:  # cancellation
                s.error = evaluate(p, s)
        look(s, p.n)
        s.error = cleared(p, s.error)
        s.n_iter += 1
        s.objective = s.error + (0.0 if p.fixed else p.lam * s.k)
        push(s, s.objective)
        if p.verbose:
            with gil:
                print(
                    f"start {s.number + 1}, sweep {s.n_iter}: {s.k} features, objective {s.objective:.8g}, "
                    f"{s.changes} rows changed, {s.created} features created"
                )
        if was_settled and not (s.changes or s.created or s.removed):
            s.converged = True
            break
        if p.tol > 0 and s.n_path > begin + 1 and s.path[s.n_path - 2] - s.objective <= p.tol * s.path[0]:
            s.converged = True
            break
        # sweeps that open features do not count, but where rounding opens them it would never end
        fell = s.n_path == begin + 1 or s.objective < s.path[s.n_path - 2]
        counted += not (s.created and fell and s.n_path - begin - counted <= p.n)
        if counted >= p.max_iter:
            break
    return 0


cdef int swap(const Problem* p, Start* s, Start* trial) except -1 nogil:
    """Move one feature elsewhere and sweep again; keep the result if it is better.

    Where K is free, taking a feature away and seeding one are moves of their own as well.
    """
    cdef Py_ssize_t k, known, n_path = s.n_path
    cdef double error
    cdef bint converged = s.converged, death = True, birth = True
    if not p.fixed:
        k = <Py_ssize_t> (uniform(&s.rng) * 3)
        death, birth = k != 1 and s.k > 0, k != 2 or s.k == 0
    if trial.room < s.room:
        release(trial)
        allocate(p, trial, s.room, s.threads)
    copy_state(p, s, trial)
    if death:
        remove(p, s, <Py_ssize_t> (uniform(&s.rng) * s.k))
        settle(p, s)
    error = evaluate(p, s)
    known = s.k
    if birth and s.k < p.cap and error > NOTHING * p.energy:
        k = draw(p, s, error)
        residual_of(p, s, k, s.spare)
        add_feature(p, s)
        join(p, s)
    while p.fixed and s.k < p.cap:
        memset(s.spare, 0, p.d * sizeof(double))
        add_feature(p, s)
    if s.k > known:
        recount(p, s, known)
    settle(p, s)
    if p.rule == COLLAPSED:
        refresh(p, s)
    s.round = round_tiles(p)
    converge(p, s)
    s.n_path = n_path
    if s.objective < trial.objective - 1e-12 * (trial.objective + s.path[0]):
        push(s, s.objective)
    else:
        copy_state(p, trial, s)
        s.converged = converged
    return 0


cdef int run_start(const Problem* p, Start* s, Start* trial, int mode, bint given) except -1 nogil:
    """One start, from seeding to a fixed point. ``given``: Z is there already."""
    cdef Py_ssize_t _
    s.n_path = s.n_iter = 0
    s.removed = 0
    s.round = round_tiles(p)
    s.drift = 0.0
    if not given:
        seed(p, s, mode)
    recount(p, s, 0)
    if given or p.rule == COLLAPSED:
        settle(p, s)
    if p.rule == COLLAPSED:
        refresh(p, s)
    converge(p, s)
    for _ in range(p.n_swaps):
        swap(p, s, trial)
    # the error from the data themselves
    settle(p, s)
    s.error = cleared(p, evaluate(p, s))
    s.objective = s.error + (0.0 if p.fixed else p.lam * s.k)
    s.path[s.n_path - 1] = s.objective
    return 0


cdef bint better(const Start* a, const Start* b) noexcept nogil:
    return b.number < 0 or a.objective < b.objective or (a.objective == b.objective and a.number < b.number)


cdef struct Copies:
    Py_ssize_t n
    Py_ssize_t k
    Start* s
    int* out


cdef void copy_item(void* context, Py_ssize_t item, int slot) noexcept nogil:
    cdef const Copies* a = <const Copies*> context
    cdef Py_ssize_t i, j
    for i in range(item * RUN * LANES, min(a.n, (item + 1) * RUN * LANES)):
        for j in range(a.k):
            a.out[i * a.k + j] = bit(a.s, i, j)[0]


cdef class FeatureSweep:
    """Starts of BP-means or K-features on one set of data; the best one is kept.

    X : IN array (n, d), float32 or float64, any strides, may be read-only
    weight : IN array (n,), float64, > 0, or None
    rule : "sweep", "collapsed" (penalty lam), "coordinate" or "exact" (K fixed)
    cap : largest number of features; K where it is fixed
    """

    cdef Problem p
    cdef Start best
    cdef Start trial
    cdef Py_ssize_t stopped
    cdef readonly object X, weight
    cdef readonly int n_threads
    cdef readonly object objectives     # of all starts
    cdef object layout, mean            # of the sums

    def __cinit__(self):
        memset(&self.p, 0, sizeof(Problem))
        memset(&self.best, 0, sizeof(Start))
        memset(&self.trial, 0, sizeof(Start))
        self.best.number = -1

    def __dealloc__(self):
        release(&self.best)
        release(&self.trial)
        sf_give(self.p.packed)

    def __init__(
        self, X, weight, str rule, double lam, Py_ssize_t cap, int max_iter, double tol, Py_ssize_t n_swaps,
        int n_threads, bint verbose,
    ):
        cdef Py_ssize_t t, n = X.shape[0], d = X.shape[1]
        self.X, self.weight, self.n_threads = X, weight, n_threads
        self.p.n, self.p.d, self.p.tiles = n, d, (n + LANES - 1) // LANES
        self.p.rows = rows_of(X, weight, None)
        self.p.rule = RULES[rule]
        self.p.fixed = rule in ("coordinate", "exact")
        self.p.lam, self.p.cap, self.p.max_iter, self.p.tol = lam, cap, max_iter, tol
        self.p.n_swaps, self.p.verbose = n_swaps, verbose
        self.p.bins = self.p.layers = 1
        if self.p.tiles * LANES * d <= PACKED:
            self.p.packed = <double*> take(self.p.tiles * LANES * d * sizeof(double))
            for t in range(self.p.tiles):
                if self.p.rows.single:
                    gather(<const float*> self.p.rows.x, &self.p, t, self.p.packed + t * d * LANES)
                else:
                    gather(<const double*> self.p.rows.x, &self.p, t, self.p.packed + t * d * LANES)

    cdef prepare(self):
        """The bins of the sums, which only starts need."""
        cdef const double[:, ::1] magic
        cdef const double[::1] mean
        if self.layout is not None:
            return
        release(&self.best)
        self.best.number = -1
        # about 0: a sum of w x is asked for
        self.layout = Layout(self.X, self.weight, self.n_threads, origin=np.zeros(self.p.d))
        self.mean = self.layout.mean(self.X, self.weight, self.n_threads)
        magic, mean = self.layout.magic, self.mean
        self.p.magic, self.p.mean = &magic[0, 0], &mean[0]
        self.p.bins = self.layout.bins
        self.p.layers = 1 if self.weight is None else self.layout.bins

    cdef Py_ssize_t first_room(self):
        return min(self.p.cap, <Py_ssize_t> 16) if not self.p.fixed else self.p.cap

    def measure(self):
        """Sum of w ||x||^2, which is also the error without any feature."""
        if self.best.room == 0:
            allocate(&self.p, &self.best, self.first_room(), self.n_threads)
        cdef Py_ssize_t k = self.best.k
        self.best.k = 0
        with nogil:
            self.p.energy = evaluate(&self.p, &self.best)
        self.best.k = k
        return self.p.energy

    def farthest_first(self):
        """The least that one of ``cap`` features saves, each the longest residual that the earlier ones leave.

        Features that have nothing to explain do not count; 1 if there is nothing at all.
        """
        cdef Py_ssize_t i, farthest
        cdef double before, after = self.measure(), least = HUGE_VAL
        while self.best.k < self.p.cap and after > NOTHING * self.p.energy:
            farthest = 0
            for i in range(self.p.n):
                if self.best.rr[i] > self.best.rr[farthest]:
                    farthest = i
            residual_of(&self.p, &self.best, farthest, self.best.spare)
            add_feature(&self.p, &self.best)
            with nogil:
                join(&self.p, &self.best)
            before, after = after, total(&self.p, &self.best)
            least = min(least, before - after)
            PyErr_CheckSignals()
        return least if least < HUGE_VAL else 1.0

    def run_given(self, unsigned char[:, ::1] Z, uint64_t state):
        """One start from the rows of Z (IN)."""
        cdef Py_ssize_t i, j
        if Z.shape[0] != self.p.n or Z.shape[1] > self.p.cap:
            raise ValueError(f"Z must be ({self.p.n}, at most {self.p.cap}), got ({Z.shape[0]}, {Z.shape[1]})")
        self.prepare()
        self.measure()
        release(&self.best)
        allocate(&self.p, &self.best, max(Z.shape[1], self.first_room()), self.n_threads)
        self.best.k, self.best.number, self.best.rng = Z.shape[1], 0, state
        for i in range(self.p.n):
            for j in range(Z.shape[1]):
                bit(&self.best, i, j)[0] = Z[i, j]
        if self.p.n_swaps:
            allocate(&self.p, &self.trial, self.best.room, self.n_threads)
        with nogil:
            run_start(&self.p, &self.best, &self.trial, 0, True)
        self.objectives = np.array([self.best.objective])

    def run(self, const uint64_t[::1] states, const int[::1] modes):
        """One start from each state of the generator (IN), by the mean (mode 0) or the data (1)."""
        cdef Py_ssize_t count = states.shape[0], i, slots
        cdef int threads = self.n_threads, inner
        cdef double[::1] objectives
        cdef Start* starts
        cdef Starts a
        self.objectives = np.empty(count)
        objectives = self.objectives
        self.prepare()
        self.measure()
        inner = 1 if self.p.n * self.p.d <= SMALL else threads
        slots = min(<Py_ssize_t> (threads if inner == 1 else 1), count)
        starts = <Start*> take(3 * slots * sizeof(Start))
        memset(starts, 0, 3 * slots * sizeof(Start))
        try:
            for i in range(3 * slots):
                if i % 3 < 2 or self.p.n_swaps:
                    allocate(&self.p, &starts[i], self.first_room(), inner)
                starts[i].number = -1
                starts[i].stop = &self.stopped
            self.stopped = 0
            a = Starts(&self.p, starts, 0, count, &states[0], &modes[0], &objectives[0], &self.stopped, 0, NULL)
            with nogil:
                run(starts_item, &a, 0, slots, slots)
            if a.error != NULL:
                error = <object> a.error
                Py_DECREF(error)
                raise error
            for i in range(slots):
                if starts[3 * i].number >= 0 and better(&starts[3 * i], &self.best):
                    release(&self.best)
                    self.best = starts[3 * i]
                    self.best.stop = NULL
                    memset(&starts[3 * i], 0, sizeof(Start))
        finally:
            for i in range(3 * slots):
                release(&starts[i])
            sf_give(starts)

    @property
    def k(self):
        """Number of features."""
        return self.best.k

    @property
    def objective(self):
        """Error + lam K; the error alone where K is fixed."""
        return self.best.objective

    @property
    def error(self):
        """Sum of w ||x - z A||^2."""
        return self.best.error

    @property
    def n_iter(self):
        """Sweeps."""
        return self.best.n_iter

    @property
    def converged(self):
        """Whether the sweeps came to a fixed point, or tol ended them."""
        return bool(self.best.converged)

    @property
    def drift(self):
        """Largest relative error that rank-one updates had gathered when the state was refreshed."""
        return self.best.drift

    def sums(self):
        """Z'WZ, Z'WX and the number of users of each feature, as kept up."""
        cdef Py_ssize_t k = self.best.k, room = self.best.room
        read_sums(&self.p, &self.best)
        return (
            np.array([[self.best.m[i * room + j] for j in range(k)] for i in range(k)]).reshape(k, k),
            np.array([[self.best.b[i * self.p.d + j] for j in range(self.p.d)] for i in range(k)]),
            np.array([self.best.count[i] for i in range(k)]),
        )

    def path(self):
        """The objective after every sweep."""
        return np.array([self.best.path[i] for i in range(self.best.n_path)])

    def components(self):
        """A, (k, d)."""
        cdef double[:, ::1] out
        result = np.empty((self.best.k, self.p.d))
        if self.best.k:
            out = result
            memcpy(&out[0, 0], self.best.rows, self.best.k * self.p.d * sizeof(double))
        return result

    def assignments(self):
        """Z, (n, k), int32."""
        cdef int[:, ::1] out
        cdef Copies a
        result = np.empty((self.p.n, self.best.k), dtype=np.int32)
        if self.best.k:
            out = result
            a = Copies(self.p.n, self.best.k, &self.best, &out[0, 0])
            with nogil:
                run(copy_item, &a, 0, self.p.tiles // RUN + 1, threads_for(&self.p, &self.best, self.p.tiles))
        return result

    def encode(self, const double[:, ::1] components):
        """Rows of Z for the data given these features (IN): coordinate passes from zero, or the exact best.

        Returns Z and the sum of w ||x - z A||^2.
        """
        cdef Py_ssize_t k = components.shape[0]
        cdef int passes = 0
        if k and components.shape[1] != self.p.d:
            raise ValueError(f"components must have {self.p.d} columns, got {components.shape[1]}")
        if self.p.rule == EXACT and k != self.p.cap:
            raise ValueError(f"components must be {self.p.cap}, got {k}")
        cdef bint changed = True
        self.measure()
        release(&self.best)
        allocate(&self.p, &self.best, k, self.n_threads)
        self.best.k = k
        if k:
            memcpy(self.best.rows, &components[0, 0], k * self.p.d * sizeof(double))
        place_all(&self.p, &self.best)
        if self.p.rule == EXACT:
            tabulate(&self.best)
        with nogil:
            while changed and passes < PASSES:
                changed = encode_pass(&self.p, &self.best)
                passes += 1
            self.best.error = evaluate(&self.p, &self.best)
        return self.assignments(), self.best.error


cdef bint encode_pass(const Problem* p, Start* s) except -1 nogil:
    cdef Py_ssize_t start = 0, stop, t, each = row_work(p, s)
    cdef bint changed = False
    while start < p.n:
        stop = min(p.n, start + work_tiles(p, each) * LANES)
        propose(p, s, start, stop)
        for t in range((stop - start + LANES - 1) // LANES):
            changed |= s.touched[t] != 0
        look(s, (stop - start) * each)
        start = stop
    return changed and p.rule != EXACT


cdef int one(
    const Problem* p, Start* slot, Py_ssize_t number, uint64_t state, int mode, double* objective
) except -1 nogil:
    """A start in a thread's slot: the best so far, the present one, and one for swaps."""
    cdef Start better_one
    slot[1].number = number
    slot[1].rng = state
    run_start(p, slot + 1, slot + 2, mode, False)
    objective[0] = slot[1].objective
    if slot[0].number < 0 or better(slot + 1, slot):
        better_one = slot[1]
        slot[1] = slot[0]
        slot[0] = better_one
    return 0


cdef struct Starts:
    const Problem* p
    Start* slots                # three for each thread
    Py_ssize_t next             # the start to be made next
    Py_ssize_t count
    const uint64_t* states
    const int* modes
    double* objectives
    Py_ssize_t* stop
    Py_ssize_t failed
    PyObject* error             # what ended them


cdef void starts_item(void* context, Py_ssize_t item, int slot) noexcept with gil:
    """Starts, one after the other, until none is left; each writes to its own objective and its thread's slot.

    Whoever may raise an error needs a thread state, and to make one takes the GIL: once for all starts.
    """
    cdef Starts* a = <Starts*> context
    cdef Py_ssize_t i
    try:
        with nogil:
            while True:
                i = next_item(&a.next)
                if i >= a.count:
                    break
                one(a.p, a.slots + 3 * slot, i, a.states[i], a.modes[i], &a.objectives[i])
    except BaseException as error:
        if next_item(&a.failed) == 0:
            Py_INCREF(error)
            a.error = <PyObject*> error
        next_item(a.stop)


def uniforms(uint64_t state, Py_ssize_t count):
    """The first numbers of a start's generator."""
    return np.array([uniform(&state) for _ in range(count)])
