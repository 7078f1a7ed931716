"""The memory of a start, its residuals r = x - z A, and its features.

Features are by least squares for given Z, A = (Z'WZ)^-1 Z'WX. Z'WZ, Z'WX and the number of users of each feature are
kept up by what each row changes. The sums are exact, in bins (see _sums.h), so they depend neither on the order of the
changes nor on the number of threads.
"""

from cython.parallel cimport prange
from libc.math cimport frexp, ldexp, sqrt
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memmove, memset

from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, atomic_read, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport poll_signals, read_row, row_at, weight_of

# ----------------------------------------------------------------------------------------------------------------------
# Memory


cdef void* new_memory(size_t bytes) except NULL nogil:
    """Memory, all zero, with room to begin at a cache line's boundary."""
    cdef void* memory = calloc(bytes + 64, 1)
    if memory == NULL:
        with gil:
            raise MemoryError("not enough memory for the features")
    return memory


cdef double* aligned(void* memory) noexcept nogil:
    """The first cache line's boundary in some memory: no vector is to straddle two lines."""
    return <double*> (<char*> memory + (64 - <size_t> memory % 64) % 64)


cdef inline void* next_bytes(char* arena, Py_ssize_t* used, Py_ssize_t bytes) noexcept nogil:
    """The next bytes of an arena (NULL: they are only counted), from a cache line's boundary on."""
    cdef Py_ssize_t start = used[0]
    used[0] += (bytes + 63) // 64 * 64
    return NULL if arena == NULL else arena + start


cdef inline double* doubles(char* arena, Py_ssize_t* used, Py_ssize_t count) noexcept nogil:
    return <double*> next_bytes(arena, used, count * <Py_ssize_t> sizeof(double))


cdef void lay_out_collapsed(
    const FeatureProblem* problem, Collapsed* collapsed, Py_ssize_t capacity, char* arena, Py_ssize_t* used
) noexcept nogil:
    cdef Py_ssize_t square = capacity * capacity, d = problem.d
    cdef Py_ssize_t tried = <Py_ssize_t> 1 << min(problem.most_tried, problem.max_features)
    collapsed.inverse = doubles(arena, used, square)
    collapsed.reduced_inverse = doubles(arena, used, square)
    collapsed.reduced_gram = doubles(arena, used, square)
    collapsed.reduced_features = doubles(arena, used, capacity * d)
    collapsed.row = doubles(arena, used, d)
    collapsed.residual = doubles(arena, used, d)
    collapsed.other_residual = doubles(arena, used, d)
    collapsed.z = doubles(arena, used, capacity)
    collapsed.old_z = doubles(arena, used, capacity)
    collapsed.p_z = doubles(arena, used, capacity)
    collapsed.a_r = doubles(arena, used, capacity)
    collapsed.other_p_z = doubles(arena, used, capacity)
    collapsed.other_a_r = doubles(arena, used, capacity)
    collapsed.step = doubles(arena, used, capacity)
    collapsed.full_z = doubles(arena, used, capacity)
    collapsed.numerators = doubles(arena, used, tried)
    collapsed.denominators = doubles(arena, used, tried)
    collapsed.flip_step = doubles(arena, used, max(<Py_ssize_t> 1, tried // 2))


cdef void lay_out_scratch(
    const FeatureProblem* problem, FeatureScratch* scratch, Py_ssize_t capacity, char* arena, Py_ssize_t* used
) noexcept nogil:
    cdef Py_ssize_t d = problem.d
    scratch.x = doubles(arena, used, d * LANES)
    scratch.residual = doubles(arena, used, d * LANES)
    scratch.z = doubles(arena, used, capacity * LANES)
    scratch.dots = doubles(arena, used, capacity * LANES)
    scratch.twice_dots = doubles(arena, used, capacity * LANES)
    scratch.pieces = doubles(arena, used, (problem.bins_of_zx + 1) * d)
    scratch.weight_pieces = doubles(arena, used, problem.bins_of_zx)
    scratch.levels = <Level*> next_bytes(arena, used, capacity * <Py_ssize_t> sizeof(Level))


cdef Py_ssize_t lay_out(const FeatureProblem* problem, FeatureState* state, char* arena) noexcept nogil:
    """Set where each buffer lies, for the capacity and threads of a state; returns the bytes of all. NULL: only that.

    A new buffer needs a line here and a field in a struct; one that outlives a sweep, a line in copy_state too.
    """
    cdef Py_ssize_t capacity = state.capacity, d = problem.d, n_tiles = problem.n_tiles, used = 0
    cdef Py_ssize_t square = capacity * capacity, tile = capacity * LANES, length = round_tiles(problem)
    cdef Py_ssize_t codes = <Py_ssize_t> 1 << problem.max_features if problem.rule == EXACT else 0
    cdef Py_ssize_t partials = max(<Py_ssize_t> 1, min(<Py_ssize_t> PARTIALS, length // 64))
    cdef Py_ssize_t sums = sums_size(problem, capacity), integer = sizeof(Py_ssize_t)
    cdef FeatureScratch counted
    cdef int thread
    state.assignments.bits = <unsigned char*> next_bytes(arena, &used, n_tiles * tile)
    state.assignments.squares = doubles(arena, &used, n_tiles * LANES)
    state.assignments.chunk_sums = doubles(arena, &used, (n_tiles + FEATURE_CHUNK - 1) // FEATURE_CHUNK)
    state.round.old_bits = <unsigned char*> next_bytes(arena, &used, length * tile)
    state.round.changed = <unsigned char*> next_bytes(arena, &used, length)
    state.round.may_create = <unsigned char*> next_bytes(arena, &used, length)
    state.round.removal_gain = doubles(arena, &used, capacity)
    state.features.rows = doubles(arena, &used, capacity * d)
    state.features.transposed = doubles(arena, &used, d * capacity)
    state.features.gram = doubles(arena, &used, square)
    state.features.removed = <unsigned char*> next_bytes(arena, &used, capacity)
    state.sums.users = doubles(arena, &used, capacity)
    state.sums.zz_bins = doubles(arena, &used, problem.bins_of_zz * square)
    state.sums.zx_bins = doubles(arena, &used, capacity * problem.bins_of_zx * d)
    state.sums.zz = doubles(arena, &used, square)
    state.sums.zx = doubles(arena, &used, capacity * d)
    state.sums.partial = doubles(arena, &used, max(sums, min(partials * sums, <Py_ssize_t> SUMS)))
    state.solver.factor = doubles(arena, &used, square)
    state.solver.dependent = doubles(arena, &used, square if problem.fixed else 0)
    state.solver.dependent_factor = doubles(arena, &used, square if problem.fixed else 0)
    state.solver.solution = doubles(arena, &used, capacity * d)
    state.solver.kept = <Py_ssize_t*> next_bytes(arena, &used, capacity * integer)
    state.gray_code.flips = <int*> next_bytes(arena, &used, codes * <Py_ssize_t> sizeof(int))
    state.gray_code.quadratic = doubles(arena, &used, codes)
    state.search.factor = doubles(arena, &used, square)
    state.search.pivots = doubles(arena, &used, capacity)
    state.search.order = <Py_ssize_t*> next_bytes(arena, &used, capacity * integer)
    if problem.rule == COLLAPSED:
        lay_out_collapsed(problem, &state.collapsed, capacity, arena, &used)
    state.scratch = <FeatureScratch*> next_bytes(arena, &used, state.threads * <Py_ssize_t> sizeof(FeatureScratch))
    for thread in range(state.threads):
        lay_out_scratch(problem, &counted if arena == NULL else state.scratch + thread, capacity, arena, &used)
    return used


cdef int allocate(const FeatureProblem* problem, FeatureState* state, Py_ssize_t capacity, int threads) except -1 nogil:
    """Give a state new memory, all zero, for so many features. The memory that it had is the caller's to free."""
    cdef FeatureState new = state[0]
    cdef Py_ssize_t bytes
    new.capacity, new.threads = max(<Py_ssize_t> 8, (capacity + 7) // 8 * 8), threads
    bytes = lay_out(problem, &new, NULL)  # only counts them
    new.arena = <char*> new_memory(bytes)
    lay_out(problem, &new, <char*> aligned(new.arena))
    state[0] = new
    return 0


cdef void release(FeatureState* state) noexcept nogil:
    free(state.arena)
    free(state.progress.path)
    memset(state, 0, sizeof(FeatureState))


cdef void copy_state(const FeatureProblem* problem, const FeatureState* source, FeatureState* target) noexcept nogil:
    """Copy Z, A and the sums into a state that has capacity for them; the capacities may differ."""
    cdef Py_ssize_t i, b, tile, k = source.k, d = problem.d, width = problem.bins_of_zx * d
    cdef Py_ssize_t capacity = source.capacity, target_capacity = target.capacity
    cdef const FeatureSums* sums = &source.sums
    target.k = k
    for tile in range(problem.n_tiles):
        memcpy(bits_of(target, tile), bits_of(source, tile), k * LANES)
        memset(bits_of(target, tile) + k * LANES, 0, (target_capacity - k) * LANES)
    memcpy(target.assignments.squares, source.assignments.squares, problem.n_tiles * LANES * sizeof(double))
    memcpy(target.features.rows, source.features.rows, k * d * sizeof(double))
    memcpy(target.features.removed, source.features.removed, k)
    target.features.n_removed = source.features.n_removed
    memcpy(target.sums.users, sums.users, k * sizeof(double))
    for b in range(problem.bins_of_zz):
        for i in range(k):
            memcpy(
                target.sums.zz_bins + (b * target_capacity + i) * target_capacity,
                sums.zz_bins + (b * capacity + i) * capacity, k * sizeof(double),
            )
    memcpy(target.sums.zx_bins, sums.zx_bins, k * width * sizeof(double))
    update_all_tables(problem, target)
    target.progress.error, target.progress.objective = source.progress.error, source.progress.objective
    target.progress.solved = source.progress.solved


cdef int grow(const FeatureProblem* problem, FeatureState* state) except -1 nogil:
    """Double the capacity. Everything is kept but scratch memory."""
    cdef FeatureState bigger = state[0]  # with the random generator, the progress and its path
    cdef Py_ssize_t index, length = round_tiles(problem), row = state.capacity * LANES
    allocate(problem, &bigger, 2 * state.capacity, state.threads)
    copy_state(problem, state, &bigger)
    for index in range(length):
        memcpy(bigger.round.old_bits + 2 * index * row, state.round.old_bits + index * row, state.k * LANES)
    memcpy(bigger.round.changed, state.round.changed, length)
    free(state.arena)
    state[0] = bigger
    return 0


cdef int check_interrupt(FeatureState* state, Py_ssize_t work) except -1 nogil:
    """Raise KeyboardInterrupt if Ctrl-C was pressed; it is looked for several times a second.

    Python hands signals to its main thread only. Where a start fails there, ``stop`` ends those in other threads.
    """
    cdef Progress* progress = &state.progress
    if progress.stop != NULL and atomic_read(progress.stop):
        with gil:
            raise KeyboardInterrupt
    progress.work += work + CALL
    if progress.work > FEATURE_WORK:
        with gil:
            poll_signals(&progress.work, 0, FEATURE_WORK)
    return 0


cdef int push(Progress* progress, double value) except -1 nogil:
    """Append a value to the path."""
    cdef double* longer
    if progress.n_path == progress.path_capacity:
        progress.path_capacity = 2 * progress.path_capacity + 64
        longer = <double*> new_memory(progress.path_capacity * sizeof(double))
        if progress.n_path:
            memcpy(longer, progress.path, progress.n_path * sizeof(double))
        free(progress.path)
        progress.path = longer
    progress.path[progress.n_path] = value
    progress.n_path += 1
    return 0


# ----------------------------------------------------------------------------------------------------------------------
# Points


cdef void each_chunk(
    const FeatureProblem* problem, FeatureState* state, ChunkFunction function, Py_ssize_t first, Py_ssize_t last,
    Py_ssize_t length
) noexcept nogil:
    """Call a function for the tiles first..last-1, ``length`` at a time: in parallel, unless they are too few."""
    cdef Py_ssize_t n_chunks = (last - first + length - 1) // length, chunk
    cdef bint pays = (last - first) * LANES * problem.d * (2 * state.k + 1) >= PAYS
    cdef ParallelLoop loop = begin_loop(n_chunks, state.threads if pays else 1)
    if loop.threads == 1:
        for chunk in range(n_chunks):
            function(problem, state, chunk, first + chunk * length, min(last, first + (chunk + 1) * length), 0)
    else:
        for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            function(
                problem, state, chunk, first + chunk * length, min(last, first + (chunk + 1) * length),
                begin_chunk(&loop),
            )
    end_loop(&loop)


cdef const double* tile_of(const FeatureProblem* problem, Py_ssize_t tile, double* space) noexcept nogil:
    """The values of a tile, d x LANES, gathered into ``space`` where they are not held packed; zero behind the last."""
    cdef Py_ssize_t j, lane, i
    if problem.packed != NULL:
        return problem.packed + tile * problem.d * LANES
    for lane in range(LANES):
        i = tile * LANES + lane
        if i < problem.n:
            read_row(&problem.rows, i, space + lane, LANES)
        else:
            for j in range(problem.d):
                space[j * LANES + lane] = 0.0
    return space


cdef const double* residuals(
    const FeatureProblem* problem, const FeatureState* state, Py_ssize_t tile, FeatureScratch* scratch, double* squares
) noexcept nogil:
    """Residuals of a tile (scratch.residual), their squares, and its rows of Z (scratch.z); returns x, d x LANES."""
    cdef const double* x = tile_of(problem, tile, scratch.x)
    cdef const unsigned char* bits = bits_of(state, tile)
    cdef Py_ssize_t i
    for i in range(state.k * LANES):
        scratch.z[i] = bits[i]
    sf_residual(
        problem.d, state.k, state.capacity, x, scratch.z, state.features.transposed, scratch.residual, squares
    )
    return x


cdef void residual_of(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t i, double* residual
) noexcept nogil:
    """The residual of one point, bit for bit as in its tile."""
    cdef double squares[LANES]
    cdef Py_ssize_t j
    residuals(problem, state, i // LANES, state.scratch, squares)
    for j in range(problem.d):
        residual[j] = state.scratch.residual[j * LANES + i % LANES]


cdef double total(const FeatureProblem* problem, FeatureState* state) noexcept nogil:
    """Sum of w ||r||^2, exact in three bins (see _sums.h), so that it depends on no order; sets chunk_sums."""
    cdef Py_ssize_t n = problem.n, length = FEATURE_CHUNK * LANES, chunk, i
    cdef const double* squares = state.assignments.squares
    cdef int bits = 0, exponent, b
    cdef double largest = 0.0, value, piece
    cdef double[3] magic
    cdef double[3] bins
    cdef double[3] total_bins
    for i in range(n):
        largest = max(largest, weight_of(&problem.rows, i) * squares[i])
    # n numbers below 2^exponent: a piece of 52 - log2(n) bits can be added n times without rounding
    frexp(largest, &exponent)
    while (<Py_ssize_t> 1 << bits) < n:
        bits += 1
    for b in range(3):
        magic[b] = ldexp(1.5, exponent + 52 - (b + 1) * min(40, 52 - bits)) if largest > 0.0 else 0.0
        total_bins[b] = 0.0
    for chunk in range((n + length - 1) // length):
        memset(bins, 0, 3 * sizeof(double))
        for i in range(chunk * length, min(n, (chunk + 1) * length)):
            value = weight_of(&problem.rows, i) * squares[i]
            for b in range(3):
                piece = (value + magic[b]) - magic[b]
                value -= piece
                bins[b] += piece
        for b in range(3):
            total_bins[b] += bins[b]
        state.assignments.chunk_sums[chunk] = bins[2] + bins[1] + bins[0]
    return total_bins[2] + total_bins[1] + total_bins[0]


cdef void evaluate_chunk(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t _, Py_ssize_t first, Py_ssize_t last, int thread
) noexcept nogil:
    """Squared residuals of the points of the tiles first..last-1, without weights; 0 for padding.

    OUT state.assignments.squares
    """
    cdef double squares[LANES]
    cdef Py_ssize_t tile, lane
    for tile in range(first, last):
        residuals(problem, state, tile, state.scratch + thread, squares)
        for lane in range(LANES):
            state.assignments.squares[tile * LANES + lane] = squares[lane] if tile * LANES + lane < problem.n else 0.0


cdef double evaluate(const FeatureProblem* problem, FeatureState* state) noexcept nogil:
    """Sum of w ||r||^2, all residuals computed from the data."""
    each_chunk(problem, state, evaluate_chunk, 0, problem.n_tiles, FEATURE_CHUNK)
    return total(problem, state)


# ----------------------------------------------------------------------------------------------------------------------
# Sums


cdef void cut_point(const FeatureProblem* problem, Py_ssize_t i, FeatureScratch* scratch) noexcept nogil:
    """Cut w and w x of point i to pieces, one a bin, into scratch; w is 1 where Z'WZ counts rows."""
    cdef Py_ssize_t d = problem.d, b
    cdef double weight = weight_of(&problem.rows, i), magic
    sf_cut(
        d, problem.bins_of_zx, weight, row_at(&problem.rows, i, scratch.x), problem.magic, scratch.pieces
    )
    scratch.weight_pieces[0] = 1.0
    if problem.bins_of_zz > 1:
        for b in range(problem.bins_of_zz):
            magic = problem.magic[b * (d + 1) + d]
            scratch.weight_pieces[b] = (weight + magic) - magic
            weight -= scratch.weight_pieces[b]


cdef void add_row(
    const FeatureProblem* problem, Py_ssize_t size, const unsigned char* old, const unsigned char* new, Py_ssize_t i,
    double* sums, FeatureScratch* scratch
) noexcept nogil:
    """Add to sums (zz_bins, users, zx_bins, one after the other) what changes as a row of Z becomes a new one.

    IN old, new: the row, values LANES apart.
    """
    cdef Py_ssize_t n_zz = problem.bins_of_zz, width = problem.bins_of_zx * problem.d, j, k = 0, b
    cdef double* users = sums + n_zz * size * size
    cdef double* zx = users + size
    cdef double* zz
    cdef double sign, piece
    while k < size and old[k * LANES] == new[k * LANES]:
        k += 1
    if k == size:
        return
    cut_point(problem, i, scratch)
    for k in range(k, size):
        if old[k * LANES] == new[k * LANES]:
            continue
        # the row changes bit by bit: at bit k those before it are new, those after it still old
        sign = 1.0 if new[k * LANES] else -1.0
        users[k] += sign
        for b in range(n_zz):
            zz = sums + b * size * size
            piece = sign * scratch.weight_pieces[b]
            for j in range(k):
                if new[j * LANES]:
                    zz[k * size + j] += piece
            zz[k * size + k] += piece
            for j in range(k + 1, size):
                if old[j * LANES]:
                    zz[j * size + k] += piece
        sf_axpy(width, sign, scratch.pieces, zx + k * width)


cdef void add_chunk(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t chunk, Py_ssize_t first, Py_ssize_t last, int thread
) noexcept nogil:
    """Compute partial sum ``chunk``: what these tiles of the round change."""
    cdef Py_ssize_t tile, i
    cdef double* sums = state.sums.partial + chunk * sums_size(problem, state.k)
    for tile in range(first, last):
        for i in range(tile * LANES, min(problem.n, (tile + 1) * LANES)):
            if (changed_of(state, tile)[0] >> (i % LANES)) & 1:
                add_row(
                    problem, state.k, old_bits_of(state, tile) + i % LANES, bits_of(state, tile) + i % LANES, i, sums,
                    state.scratch + thread,
                )


cdef void add_round(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t stop, bint counts_users
) noexcept nogil:
    """Bring the sums up to date with a round, up to the point ``stop``. ``counts_users``: those of features, too."""
    cdef Py_ssize_t first = state.round.first_tile, n_tiles = tile_count(stop) - first, k = state.k, chunk, i, b
    cdef Py_ssize_t n_zz = problem.bins_of_zz, size = sums_size(problem, k), length
    # as many partial sums whatever the number of threads, since each has to be cleared and added
    cdef Py_ssize_t n_chunks = min(<Py_ssize_t> PARTIALS, n_tiles // 64), capacity = state.capacity
    cdef double* partial
    n_chunks = max(<Py_ssize_t> 1, min(n_chunks, <Py_ssize_t> SUMS // max(<Py_ssize_t> 1, size)))
    length = (n_tiles + n_chunks - 1) // n_chunks
    memset(state.sums.partial, 0, n_chunks * size * sizeof(double))
    each_chunk(problem, state, add_chunk, first, first + n_tiles, length)
    for chunk in range(n_chunks):
        partial = state.sums.partial + chunk * size
        for b in range(n_zz):
            for i in range(k):
                sf_axpy(i + 1, 1.0, partial + (b * k + i) * k, state.sums.zz_bins + (b * capacity + i) * capacity)
        if counts_users:
            sf_axpy(k, 1.0, partial + n_zz * k * k, state.sums.users)
        sf_axpy(k * problem.bins_of_zx * problem.d, 1.0, partial + n_zz * k * k + k, state.sums.zx_bins)


cdef void begin_row(FeatureState* state, Py_ssize_t i) noexcept nogil:
    """Begin a round of point i alone, whose row of Z is about to change."""
    cdef Py_ssize_t tile = i // LANES
    state.round.first_tile = tile
    memcpy(old_bits_of(state, tile), bits_of(state, tile), state.k * LANES)
    state.round.changed[0] = 1 << (i % LANES)


cdef void read_sums(const FeatureProblem* problem, FeatureState* state) noexcept nogil:
    """Read Z'WZ and Z'WX from their bins, the smallest pieces first."""
    cdef Py_ssize_t i, j, b, k = state.k, d = problem.d, capacity = state.capacity
    cdef Py_ssize_t n_zz = problem.bins_of_zz, n_zx = problem.bins_of_zx
    cdef FeatureSums* sums = &state.sums
    cdef const double* bins
    cdef double value
    for i in range(k):
        for j in range(i + 1):
            value = sums.zz_bins[((n_zz - 1) * capacity + i) * capacity + j]
            for b in range(n_zz - 2, -1, -1):
                value += sums.zz_bins[(b * capacity + i) * capacity + j]
            sums.zz[i * capacity + j] = sums.zz[j * capacity + i] = value
        bins = sums.zx_bins + i * n_zx * d
        memcpy(sums.zx + i * d, bins + (n_zx - 1) * d, d * sizeof(double))
        for b in range(n_zx - 2, -1, -1):
            sf_axpy(d, 1.0, bins + b * d, sums.zx + i * d)


cdef int recount(const FeatureProblem* problem, FeatureState* state, Py_ssize_t n_counted) except -1 nogil:
    """Sum up the rows of Z, where the sums of the first ``n_counted`` features are there already."""
    cdef Py_ssize_t first = 0, last, tile, capacity = state.capacity, length = round_tiles(problem)
    if n_counted == 0:
        memset(state.sums.zz_bins, 0, problem.bins_of_zz * capacity * capacity * sizeof(double))
        memset(state.sums.zx_bins, 0, capacity * problem.bins_of_zx * problem.d * sizeof(double))
        memset(state.sums.users, 0, capacity * sizeof(double))
    while first < problem.n_tiles:
        last = min(problem.n_tiles, first + length)
        # as if the rows had been zero but for the features counted
        state.round.first_tile = first
        memset(state.round.old_bits, 0, length * capacity * LANES)
        for tile in range(first, last):
            memcpy(old_bits_of(state, tile), bits_of(state, tile), n_counted * LANES)
        memset(state.round.changed, 255, last - first)
        add_round(problem, state, min(problem.n, last * LANES), True)
        check_interrupt(state, (last - first) * LANES * problem.d * state.k)
        first = last
    return 0


# ----------------------------------------------------------------------------------------------------------------------
# Features


cdef void update_tables(const FeatureProblem* problem, FeatureState* state, Py_ssize_t k) noexcept nogil:
    """Bring A transposed and A A' up to date with row k of A."""
    cdef Py_ssize_t i, j, d = problem.d, capacity = state.capacity
    cdef Features* features = &state.features
    cdef double dot
    for j in range(d):
        features.transposed[j * capacity + k] = features.rows[k * d + j]
    for i in range(state.k):
        dot = sf_dot(d, features.rows + k * d, features.rows + i * d)
        features.gram[k * capacity + i] = dot
        features.gram[i * capacity + k] = dot


cdef void update_all_tables(const FeatureProblem* problem, FeatureState* state) noexcept nogil:
    """Bring A transposed and A A' up to date with all rows of A."""
    cdef Py_ssize_t k
    for k in range(state.k):
        update_tables(problem, state, k)


cdef void append(const FeatureProblem* problem, FeatureState* state) noexcept nogil:
    """Make the row of A behind those there are a feature, without users."""
    cdef Py_ssize_t i, b, k = state.k, capacity = state.capacity, width = problem.bins_of_zx * problem.d
    cdef double* zz
    state.k += 1
    state.features.removed[k] = False
    update_tables(problem, state, k)
    state.sums.users[k] = 0.0
    for b in range(problem.bins_of_zz):
        zz = state.sums.zz_bins + b * capacity * capacity
        for i in range(state.k):
            zz[k * capacity + i] = 0.0
            zz[i * capacity + k] = 0.0
    memset(state.sums.zx_bins + k * width, 0, width * sizeof(double))


cdef int add_feature(const FeatureProblem* problem, FeatureState* state, const double* feature) except -1 nogil:
    """Add a feature that no point uses yet. IN feature: d, outside of the state's memory; NULL: zero."""
    cdef Py_ssize_t d = problem.d
    if state.k == state.capacity:
        grow(problem, state)
    if feature == NULL:
        memset(state.features.rows + state.k * d, 0, d * sizeof(double))
    else:
        memcpy(state.features.rows + state.k * d, feature, d * sizeof(double))
    append(problem, state)
    return 0


cdef int add_residual(const FeatureProblem* problem, FeatureState* state, Py_ssize_t i) except -1 nogil:
    """Add a feature equal to the residual of point i, which no point uses yet."""
    if state.k == state.capacity:
        grow(problem, state)
    residual_of(problem, state, i, state.features.rows + state.k * problem.d)
    append(problem, state)
    return 0


cdef void compact(const FeatureProblem* problem, FeatureState* state, Py_ssize_t n_kept) noexcept nogil:
    """Keep the features kept[:n_kept], whose numbers ascend, so that nothing is overwritten that is still needed."""
    cdef Py_ssize_t i, j, b, tile, d = problem.d, capacity = state.capacity, width = problem.bins_of_zx * d
    cdef FeatureSums* sums = &state.sums
    cdef double* rows = state.features.rows
    cdef double* zz
    cdef unsigned char* bits
    cdef const Py_ssize_t* kept = state.solver.kept
    for tile in range(problem.n_tiles):
        bits = bits_of(state, tile)
        for i in range(n_kept):
            memmove(bits + i * LANES, bits + kept[i] * LANES, LANES)
        memset(bits + n_kept * LANES, 0, (state.k - n_kept) * LANES)
    for i in range(n_kept):
        memmove(rows + i * d, rows + kept[i] * d, d * sizeof(double))
        memmove(sums.zx_bins + i * width, sums.zx_bins + kept[i] * width, width * sizeof(double))
        sums.users[i] = sums.users[kept[i]]
        for b in range(problem.bins_of_zz):
            zz = sums.zz_bins + b * capacity * capacity
            for j in range(i + 1):
                zz[i * capacity + j] = zz[kept[i] * capacity + kept[j]]
    state.k = n_kept
    update_all_tables(problem, state)


cdef void remove(const FeatureProblem* problem, FeatureState* state, Py_ssize_t k) noexcept nogil:
    """Remove feature k."""
    cdef Py_ssize_t i, n_kept = 0
    for i in range(state.k):
        if i != k:
            state.solver.kept[n_kept] = i
            n_kept += 1
    compact(problem, state, n_kept)


# ----------------------------------------------------------------------------------------------------------------------
# Least squares


cdef Py_ssize_t independent(
    const double* zz, Py_ssize_t capacity, Py_ssize_t k, double* factor, Py_ssize_t* kept
) noexcept nogil:
    """Cholesky factor of Z'WZ over the columns that do not depend on earlier ones; returns how many.

    IN zz: k x capacity.  OUT factor: lower triangle, rows and columns those kept; kept: k, those, then the others.
    """
    cdef Py_ssize_t i, j, c, rank = 0, n_others = 0
    cdef double value
    for c in range(k):
        for i in range(rank):  # the row of column c
            value = zz[c * capacity + kept[i]]
            for j in range(i):
                value -= factor[rank * capacity + j] * factor[i * capacity + j]
            factor[rank * capacity + i] = value / factor[i * capacity + i]
        # what the columns kept so far leave of the square of column c
        value = zz[c * capacity + c]
        for j in range(rank):
            value -= factor[rank * capacity + j] * factor[rank * capacity + j]
        if value > DEPENDENT * zz[c * capacity + c]:
            factor[rank * capacity + rank] = sqrt(value)
            kept[rank] = c
            rank += 1
    for c in range(k):
        i = 0
        while i < rank and kept[i] != c:
            i += 1
        if i == rank:
            kept[rank + n_others] = c
            n_others += 1
    return rank


cdef void solve(
    const double* factor, Py_ssize_t capacity, Py_ssize_t k, double* y, Py_ssize_t width, Py_ssize_t stride
) noexcept nogil:
    """Solve L L' s = y for the Cholesky factor L. INOUT y: k x width, rows stride apart; becomes s."""
    cdef Py_ssize_t i, j
    for i in range(k):
        for j in range(i):
            sf_axpy(width, -factor[i * capacity + j], y + j * stride, y + i * stride)
        scale(width, 1.0 / factor[i * capacity + i], y + i * stride)
    for i in range(k - 1, -1, -1):
        for j in range(i + 1, k):
            sf_axpy(width, -factor[j * capacity + i], y + j * stride, y + i * stride)
        scale(width, 1.0 / factor[i * capacity + i], y + i * stride)


cdef inline void scale(Py_ssize_t d, double factor, double* y) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(d):
        y[j] *= factor


cdef void least_norm(FeatureState* state, Py_ssize_t k, Py_ssize_t rank, Py_ssize_t d) noexcept nogil:
    """Compute the least squares solution of least norm, A = C' (C C')^-1 A_S.

    Z = Z_S C for the independent columns S (kept[:rank]): those of C are the identity, the others M_SS^-1 M_S,rest with
    M = Z'WZ.  INOUT solver.solution: A_S in its first rows, then A.
    """
    cdef Py_ssize_t capacity = state.capacity, n_rest = k - rank, i, j, m
    cdef Solver* solver = &state.solver
    cdef double* c = solver.dependent  # rank x n_rest: the columns of C behind the identity
    cdef double* factor = solver.dependent_factor
    cdef double value
    for i in range(rank):
        for j in range(n_rest):
            c[i * n_rest + j] = state.sums.zz[solver.kept[i] * capacity + solver.kept[rank + j]]
    solve(solver.factor, capacity, rank, c, n_rest, n_rest)
    for i in range(rank):
        for j in range(i + 1):
            factor[i * capacity + j] = (i == j) + sf_dot(n_rest, c + i * n_rest, c + j * n_rest)
    for i in range(rank):  # the Cholesky factor of C C', which exists: C C' is the identity plus a square
        for j in range(i + 1):
            value = factor[i * capacity + j]
            for m in range(j):
                value -= factor[i * capacity + m] * factor[j * capacity + m]
            factor[i * capacity + j] = sqrt(value) if i == j else value / factor[j * capacity + j]
    solve(factor, capacity, rank, solver.solution, d, d)
    for j in range(n_rest):
        memset(solver.solution + (rank + j) * d, 0, d * sizeof(double))
        for i in range(rank):
            sf_axpy(d, c[i * n_rest + j], solver.solution + i * d, solver.solution + (rank + j) * d)


cdef double replace_features(const FeatureProblem* problem, FeatureState* state, Py_ssize_t count) noexcept nogil:
    """Make the rows kept[:count] of A the solutions and the others zero; returns by how much the squared error falls.

    That is tr D' Z'WZ D, D = A - (A before), since A is least squares for Z.
    """
    cdef Py_ssize_t k = state.k, d = problem.d, i, j
    cdef double* rows = state.features.rows
    cdef const double* solution = state.solver.solution
    cdef const Py_ssize_t* kept = state.solver.kept
    cdef double decrease = 0.0, product
    for i in range(k):  # D takes the place of A for the quadratic form
        scale(d, -1.0, rows + i * d)
    for i in range(count):
        sf_axpy(d, 1.0, solution + i * d, rows + kept[i] * d)
    for i in range(k):
        for j in range(i + 1):
            product = state.sums.zz[i * state.capacity + j]
            if product != 0.0:
                decrease += (1.0 if i == j else 2.0) * product * sf_dot(d, rows + i * d, rows + j * d)
    memset(rows, 0, k * d * sizeof(double))
    for i in range(count):
        memcpy(rows + kept[i] * d, solution + i * d, d * sizeof(double))
    return decrease


cdef double least_squares(const FeatureProblem* problem, FeatureState* state) noexcept nogil:
    """Set A to least squares for Z; returns by how much the squared error falls. MB13, after eq. 6.

    Columns that depend on earlier ones or have A_k = 0 are dropped, unless K is fixed.
    """
    cdef Py_ssize_t k = state.k, d = problem.d, i, c, rank, n_kept = 0
    cdef Solver* solver = &state.solver
    cdef double decrease
    cdef double* feature
    read_sums(problem, state)
    rank = independent(state.sums.zz, state.capacity, k, solver.factor, solver.kept)
    for i in range(rank):
        memcpy(solver.solution + i * d, state.sums.zx + solver.kept[i] * d, d * sizeof(double))
    solve(solver.factor, state.capacity, rank, solver.solution, d, d)
    if problem.fixed and rank < k:
        least_norm(state, k, rank, d)
    decrease = replace_features(problem, state, k if problem.fixed else rank)
    if not problem.fixed:
        for i in range(rank):
            c = solver.kept[i]
            feature = state.features.rows + c * d
            if state.sums.zz[c * state.capacity + c] * sf_dot(d, feature, feature) > ZERO_SQUARE * problem.energy:
                solver.kept[n_kept] = c
                n_kept += 1
        if n_kept < k:
            state.progress.n_removed += k - n_kept
            compact(problem, state, n_kept)
    update_all_tables(problem, state)
    state.progress.solved = True
    return decrease
