"""The memory of a start, and passes over its points: tiles, residuals, their squares."""

from libc.math cimport frexp, ldexp
from libc.string cimport memcpy, memset

from smallvar._sweeps.pool cimport item_now, next_item, run
from smallvar._sweeps.rows cimport point, poll_signals, real_x

# ----------------------------------------------------------------------------------------------------------------------
# Memory


cdef void* new_memory(size_t bytes) except NULL nogil:
    cdef void* memory = sf_allocate(bytes)
    if memory == NULL:
        with gil:
            raise MemoryError("not enough memory for the features")
    return memory


cdef inline void* next_bytes(char* arena, Py_ssize_t* used, Py_ssize_t bytes) noexcept nogil:
    """The next bytes of an arena (NULL: they are only counted), from a cache line's boundary on."""
    cdef Py_ssize_t start = used[0]
    used[0] += (bytes + 63) // 64 * 64
    return NULL if arena == NULL else arena + start


cdef inline double* doubles(char* arena, Py_ssize_t* used, Py_ssize_t count) noexcept nogil:
    return <double*> next_bytes(arena, used, count * <Py_ssize_t> sizeof(double))


cdef Py_ssize_t lay_out(const Problem* p, Start* s, char* arena) noexcept nogil:
    """Set where each buffer of a start lies, for its room and threads; returns the bytes of all. Arena NULL: only that.

    A new buffer needs a line here and a field in the struct; one that outlives a sweep, a line in copy_state too.
    """
    cdef Py_ssize_t room = s.room, d = p.d, length = round_tiles(p), codes = 0, used = 0, sums = sums_size(p, room)
    cdef Py_ssize_t partials = max(<Py_ssize_t> 1, min(<Py_ssize_t> PARTIALS, length // 64))
    cdef bint collapsed = p.rule == COLLAPSED
    cdef Scratch counted
    cdef Scratch* w = &counted
    cdef int t
    if p.rule == EXACT:
        codes = <Py_ssize_t> 1 << p.cap
    s.z = <unsigned char*> next_bytes(arena, &used, p.tiles * room * LANES)
    s.old = <unsigned char*> next_bytes(arena, &used, length * room * LANES)
    s.touched = <unsigned char*> next_bytes(arena, &used, length)
    s.far = <unsigned char*> next_bytes(arena, &used, length)
    s.squares = doubles(arena, &used, p.tiles * LANES)
    s.parts = doubles(arena, &used, (p.tiles + PART - 1) // PART)
    s.features = doubles(arena, &used, room * d)
    s.at = doubles(arena, &used, d * room)
    s.gram = doubles(arena, &used, room * room)
    s.zz_bins = doubles(arena, &used, p.layers * room * room)
    s.zx_bins = doubles(arena, &used, room * p.bins * d)
    s.zz = doubles(arena, &used, room * room)
    s.zx = doubles(arena, &used, room * d)
    s.count = doubles(arena, &used, room)
    s.partial = doubles(arena, &used, max(sums, min(partials * sums, <Py_ssize_t> SUMS)))
    s.refund = doubles(arena, &used, room)
    s.small = doubles(arena, &used, 3 * room * room)
    s.spare = doubles(arena, &used, room * d)
    s.kept = <Py_ssize_t*> next_bytes(arena, &used, 2 * room * <Py_ssize_t> sizeof(Py_ssize_t))
    s.quadratic = doubles(arena, &used, codes)
    s.flips = <int*> next_bytes(arena, &used, codes * <Py_ssize_t> sizeof(int))
    s.inverse = doubles(arena, &used, room * room if collapsed else 0)
    s.vec = doubles(arena, &used, 12 * room if collapsed else 0)
    s.wide = doubles(arena, &used, 4 * d if collapsed else 0)
    s.rest = doubles(arena, &used, 2 * room * room + room * d if collapsed else 0)
    s.scratch = <Scratch*> next_bytes(arena, &used, s.threads * <Py_ssize_t> sizeof(Scratch))
    for t in range(s.threads):
        if arena != NULL:
            w = s.scratch + t
        w.x = doubles(arena, &used, d * LANES)
        w.residual = doubles(arena, &used, d * LANES)
        w.z = doubles(arena, &used, room * LANES)
        w.dots = doubles(arena, &used, room * LANES)
        w.work = doubles(arena, &used, room * LANES)
        w.piece = doubles(arena, &used, p.bins * (d + 1))
    return used


cdef int allocate(const Problem* p, Start* s, Py_ssize_t room, int threads) except -1 nogil:
    """Give a start new memory, all zero, for so many features. What it had before is the caller's to free."""
    cdef Start new = s[0]
    cdef Py_ssize_t bytes, i, t
    new.room, new.threads = max(<Py_ssize_t> 8, (room + 7) // 8 * 8), threads
    bytes = lay_out(p, &new, NULL)
    new.arena = <char*> new_memory(bytes)
    memset(new.arena, 0, bytes)
    lay_out(p, &new, new.arena)
    if p.rule == EXACT:
        for i in range(1, <Py_ssize_t> 1 << p.cap):
            t = 0
            while not (i >> t) & 1:
                t += 1
            new.flips[i] = <int> t
    s[0] = new
    return 0


cdef void release(Start* s) noexcept nogil:
    sf_free(s.arena)
    sf_free(s.path)
    memset(s, 0, sizeof(Start))


cdef void copy_square(const double* a, Py_ssize_t room, double* b, Py_ssize_t new_room, Py_ssize_t k) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(k):
        memcpy(b + i * new_room, a + i * room, k * sizeof(double))


cdef struct Transfer:           # of Z from a to b
    const Problem* p            # what both share
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
    b.k, b.vacant = k, a.vacant
    cdef Transfer z = Transfer(p, a, b)
    run(transfer_item, &z, 0, (p.tiles + RUN - 1) // RUN, threads_for(p, a, p.tiles))
    memcpy(b.features, a.features, k * p.d * sizeof(double))
    memcpy(b.zx_bins, a.zx_bins, k * width * sizeof(double))
    memset(b.zx_bins + k * width, 0, (b.room - k) * width * sizeof(double))
    for j in range(p.d):
        memcpy(b.at + j * b.room, a.at + j * a.room, k * sizeof(double))
    copy_square(a.gram, a.room, b.gram, b.room, k)
    memset(b.zz_bins, 0, p.layers * b.room * b.room * sizeof(double))
    for j in range(p.layers):
        copy_square(a.zz_bins + j * a.room * a.room, a.room, b.zz_bins + j * b.room * b.room, b.room, k)
    memset(b.count, 0, b.room * sizeof(double))
    memcpy(b.count, a.count, k * sizeof(double))
    memcpy(b.squares, a.squares, p.tiles * LANES * sizeof(double))
    b.error, b.objective, b.solved = a.error, a.objective, a.solved


cdef int grow(const Problem* p, Start* s) except -1 nogil:
    """Room for more features; everything but the scratch memory of a running sweep is kept."""
    cdef Start bigger = s[0]
    cdef Py_ssize_t t, length = round_tiles(p)
    allocate(p, &bigger, 2 * s.room, s.threads)
    copy_state(p, s, &bigger)
    for t in range(length):
        memcpy(bigger.old + t * bigger.room * LANES, s.old + t * s.room * LANES, s.k * LANES)
    memcpy(bigger.touched, s.touched, length)
    memcpy(bigger.spare, s.spare, p.d * sizeof(double))
    if p.rule == COLLAPSED:
        copy_square(s.inverse, s.room, bigger.inverse, bigger.room, s.k)
    sf_free(s.arena)
    s[0] = bigger
    return 0


cdef int check_interrupt(Start* s, Py_ssize_t work) except -1 nogil:
    """Raise KeyboardInterrupt if Ctrl-C was pressed; it is looked for several times a second.

    Python hands signals to its main thread only, which sets ``stop`` for the starts in other threads.
    """
    if s.stop != NULL and item_now(s.stop):
        with gil:
            raise KeyboardInterrupt
    s.work += work + CALL
    if s.work > WORK:
        with gil:
            try:
                poll_signals(&s.work, 0, WORK)
            except BaseException:
                if s.stop != NULL:
                    next_item(s.stop)
                raise
    return 0


cdef int push(Start* s, double value) except -1 nogil:
    cdef double* longer
    if s.n_path == s.path_room:
        longer = <double*> new_memory((2 * s.path_room + 64) * sizeof(double))
        if s.n_path:
            memcpy(longer, s.path, s.n_path * sizeof(double))
        sf_free(s.path)
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


cdef void pack(Problem* p) noexcept nogil:
    """Gather all tiles into p.packed."""
    cdef Py_ssize_t t
    for t in range(p.tiles):
        if p.rows.single:
            gather(<const float*> p.rows.x, p, t, p.packed + t * p.d * LANES)
        else:
            gather(<const double*> p.rows.x, p, t, p.packed + t * p.d * LANES)


cdef void residuals(const Problem* p, Start* s, Py_ssize_t tile, Scratch* w) noexcept nogil:
    """Residuals of a tile and their squares, into w.residual and s.squares."""
    cdef double rr[LANES]
    cdef int l
    cdef const double* x = tile_of(p, tile, w.x)
    sf_load_bits(s.k, s.z + tile * s.room * LANES, w.z)
    sf_residual(p.d, s.k, s.room, x, w.z, s.at, w.residual, rr)
    for l in range(LANES):
        s.squares[tile * LANES + l] = rr[l] if tile * LANES + l < p.n else 0.0


cdef void residual_of(const Problem* p, Start* s, Py_ssize_t i, double* r) noexcept nogil:
    """The residual of one point, bit for bit as in its tile, whose squares stay as they are."""
    cdef double rr[LANES]
    cdef Py_ssize_t j, tile = i // LANES
    cdef Scratch* w = s.scratch
    cdef const double* x = tile_of(p, tile, w.x)
    sf_load_bits(s.k, s.z + tile * s.room * LANES, w.z)
    sf_residual(p.d, s.k, s.room, x, w.z, s.at, w.residual, rr)
    for j in range(p.d):
        r[j] = w.residual[j * LANES + i % LANES]


cdef double total(const Problem* p, Start* s) noexcept nogil:
    """Sum of w ||r||^2, the same in any order; s.parts are those over PART tiles each."""
    cdef int t, i, bits = 0, exponent
    cdef double largest = sf_largest(p.n, s.squares, p.rows.weight)
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


cdef void total_run(const Pass* r, Py_ssize_t t0, Py_ssize_t t1, Scratch* w) noexcept nogil:
    cdef const Problem* p = r.p
    cdef Start* s = r.s
    cdef Py_ssize_t start, part, i
    cdef const double* weight
    cdef double[3] bins
    for part in range(t0 // PART, (t1 + PART - 1) // PART):
        start = part * PART * LANES
        weight = NULL if p.rows.weight == NULL else p.rows.weight + start
        memset(bins, 0, 3 * sizeof(double))
        sf_add_up(min(p.n - start, <Py_ssize_t> PART * LANES), s.squares + start, weight, s.magic, bins)
        for i in range(3):
            w.bins[i] += bins[i]
        s.parts[part] = bins[2] + bins[1] + bins[0]


cdef void share(
    void (*each)(const Pass*, Py_ssize_t, Py_ssize_t, Scratch*) noexcept nogil,
    const Problem* p, Start* s, Py_ssize_t first, Py_ssize_t last, Py_ssize_t start, Py_ssize_t stop
) noexcept nogil:
    """each(round, t0, t1, scratch) for runs of the tiles first..last-1: it writes to these tiles and its scratch."""
    cdef Pass r = Pass(each, p, s, first, last, start, stop)
    run(share_item, &r, 0, (last - first + RUN - 1) // RUN, threads_for(p, s, last - first))


cdef void share_item(void* context, Py_ssize_t item, int slot) noexcept nogil:
    cdef const Pass* r = <const Pass*> context
    cdef Py_ssize_t t0 = r.first + item * RUN
    r.each(r, t0, min(r.last, t0 + RUN), &r.s.scratch[slot])


cdef double evaluate(const Problem* p, Start* s) noexcept nogil:
    """All residuals from the data themselves; returns the sum of their weighted squares."""
    share(evaluate_run, p, s, 0, p.tiles, 0, 0)
    return total(p, s)


cdef void evaluate_run(const Pass* r, Py_ssize_t t0, Py_ssize_t t1, Scratch* w) noexcept nogil:
    cdef Py_ssize_t t
    for t in range(t0, t1):
        residuals(r.p, r.s, t, w)
