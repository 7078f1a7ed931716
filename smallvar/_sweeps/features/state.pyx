"""The memory of a start, and its residuals r = x - z A: of tiles, of a point, and the sum of w ||r||^2."""

from cython.parallel cimport prange
from libc.math cimport frexp, ldexp
from libc.string cimport memcpy, memset

from smallvar._sweeps.parallel cimport ParallelLoop, atomic_read, begin_chunk, begin_loop, end_loop
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


cdef void lay_out_collapsed(
    const FeatureProblem* problem, Collapsed* collapsed, Py_ssize_t capacity, char* arena, Py_ssize_t* used
) noexcept nogil:
    cdef Py_ssize_t square = capacity * capacity, d = problem.points.d
    cdef Py_ssize_t tried = <Py_ssize_t> 1 << min(problem.most_tried, problem.max_features)
    collapsed.inverse = doubles(arena, used, square)
    collapsed.reduced_inverse = doubles(arena, used, square)
    collapsed.reduced_gram = doubles(arena, used, square)
    collapsed.reduced_features = doubles(arena, used, capacity * d)
    collapsed.x = doubles(arena, used, d)
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
    cdef Py_ssize_t d = problem.points.d
    scratch.x = doubles(arena, used, d * LANES)
    scratch.residual = doubles(arena, used, d * LANES)
    scratch.z = doubles(arena, used, capacity * LANES)
    scratch.dots = doubles(arena, used, capacity * LANES)
    scratch.twice_dots = doubles(arena, used, capacity * LANES)
    scratch.pieces = doubles(arena, used, problem.bins.of_zx * d)
    scratch.weight_pieces = doubles(arena, used, problem.bins.of_zx)
    scratch.levels = <Level*> next_bytes(arena, used, capacity * <Py_ssize_t> sizeof(Level))


cdef Py_ssize_t lay_out(const FeatureProblem* problem, FeatureState* state, char* arena) noexcept nogil:
    """Set where each buffer lies, for the capacity and threads of a state; returns the bytes of all. NULL: only that.

    A new buffer needs a line here and a field in a struct; one that outlives a sweep, a line in copy_state too.
    """
    cdef Py_ssize_t capacity = state.capacity, d = problem.points.d, n_tiles = problem.points.n_tiles, used = 0
    cdef Py_ssize_t square = capacity * capacity, tile = capacity * LANES, length = round_tiles(problem)
    cdef Py_ssize_t codes = <Py_ssize_t> 1 << problem.max_features if problem.rule == EXACT else 0
    cdef Py_ssize_t partials = max(<Py_ssize_t> 1, min(<Py_ssize_t> PARTIALS, length // 64))
    cdef Py_ssize_t sums = sums_size(problem, capacity), integer = sizeof(Py_ssize_t)
    cdef FeatureScratch counted
    cdef int thread
    state.assignments.bits = <unsigned char*> next_bytes(arena, &used, n_tiles * tile)
    state.assignments.squares = doubles(arena, &used, n_tiles * LANES)
    state.assignments.chunk_sums = doubles(arena, &used, chunk_count(n_tiles))
    state.round.old_bits = <unsigned char*> next_bytes(arena, &used, length * tile)
    state.round.changed = <unsigned char*> next_bytes(arena, &used, length)
    state.round.may_create = <unsigned char*> next_bytes(arena, &used, length)
    state.round.removal_gain = doubles(arena, &used, capacity)
    state.features.rows = doubles(arena, &used, capacity * d)
    state.features.transposed = doubles(arena, &used, d * capacity)
    state.features.gram = doubles(arena, &used, square)
    state.features.removed = <unsigned char*> next_bytes(arena, &used, capacity)
    state.sums.users = doubles(arena, &used, capacity)
    state.sums.zz_bins = doubles(arena, &used, problem.bins.of_zz * square)
    state.sums.zx_bins = doubles(arena, &used, capacity * problem.bins.of_zx * d)
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
    cdef Py_ssize_t bytes, step
    cdef int flipped
    new.capacity, new.threads = max(<Py_ssize_t> 8, (capacity + 7) // 8 * 8), threads
    bytes = lay_out(problem, &new, NULL)  # only counts them
    new.arena = <char*> new_memory(bytes)
    memset(new.arena, 0, bytes)
    lay_out(problem, &new, new.arena)
    if problem.rule == EXACT:
        for step in range(1, <Py_ssize_t> 1 << problem.max_features):
            flipped = 0
            while not (step >> flipped) & 1:  # the lowest bit of the step is the one that the Gray code flips
                flipped += 1
            new.gray_code.flips[step] = flipped
    state[0] = new
    return 0


cdef void release(FeatureState* state) noexcept nogil:
    sf_free(state.arena)
    sf_free(state.progress.path)
    memset(state, 0, sizeof(FeatureState))


cdef void copy_square(
    const double* source, Py_ssize_t capacity, double* target, Py_ssize_t target_capacity, Py_ssize_t k
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(k):
        memcpy(target + i * target_capacity, source + i * capacity, k * sizeof(double))


cdef void copy_bits_chunk(
    const FeatureState* source, FeatureState* target, Py_ssize_t n_tiles, Py_ssize_t chunk
) noexcept nogil:
    cdef Py_ssize_t tile, k = source.k
    for tile in range(chunk * FEATURE_CHUNK, min(n_tiles, (chunk + 1) * FEATURE_CHUNK)):
        memcpy(bits_of(target, tile), bits_of(source, tile), k * LANES)
        memset(bits_of(target, tile) + k * LANES, 0, (target.capacity - k) * LANES)


cdef void copy_bits(const FeatureProblem* problem, const FeatureState* source, FeatureState* target) noexcept nogil:
    """Copy Z."""
    cdef Py_ssize_t n_tiles = problem.points.n_tiles, n_chunks = chunk_count(n_tiles), chunk
    cdef ParallelLoop loop = begin_loop(n_chunks, threads_for(problem, source, n_tiles))
    if loop.threads == 1:
        for chunk in range(n_chunks):
            copy_bits_chunk(source, target, n_tiles, chunk)
    else:
        for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            begin_chunk(&loop)
            copy_bits_chunk(source, target, n_tiles, chunk)
    end_loop(&loop)


cdef void copy_state(const FeatureProblem* problem, const FeatureState* source, FeatureState* target) noexcept nogil:
    """Copy Z, A and the sums into a state that has capacity for them."""
    cdef Py_ssize_t j, k = source.k, d = problem.points.d, width = problem.bins.of_zx * d
    cdef Py_ssize_t capacity = source.capacity, target_capacity = target.capacity
    cdef const Features* features = &source.features
    cdef const FeatureSums* sums = &source.sums
    target.k = k
    copy_bits(problem, source, target)
    # the capacities may differ, and with them where the rows of matrices begin
    memcpy(target.assignments.squares, source.assignments.squares, problem.points.n_tiles * LANES * sizeof(double))
    memcpy(target.features.rows, features.rows, k * d * sizeof(double))
    for j in range(d):
        memcpy(
            target.features.transposed + j * target_capacity, features.transposed + j * capacity, k * sizeof(double)
        )
    copy_square(features.gram, capacity, target.features.gram, target_capacity, k)
    memcpy(target.features.removed, features.removed, k)
    target.features.n_removed = features.n_removed
    # sums behind the last feature have to be zero: a feature that is added begins with none
    memset(target.sums.users, 0, target_capacity * sizeof(double))
    memcpy(target.sums.users, sums.users, k * sizeof(double))
    memset(target.sums.zz_bins, 0, problem.bins.of_zz * target_capacity * target_capacity * sizeof(double))
    for j in range(problem.bins.of_zz):
        copy_square(
            sums.zz_bins + j * capacity * capacity, capacity,
            target.sums.zz_bins + j * target_capacity * target_capacity, target_capacity, k,
        )
    memcpy(target.sums.zx_bins, sums.zx_bins, k * width * sizeof(double))
    memset(target.sums.zx_bins + k * width, 0, (target_capacity - k) * width * sizeof(double))
    target.progress.error, target.progress.objective = source.progress.error, source.progress.objective
    target.progress.solved = source.progress.solved


cdef int grow(const FeatureProblem* problem, FeatureState* state) except -1 nogil:
    """Double the capacity. Everything is kept but scratch memory."""
    cdef FeatureState bigger = state[0]  # with the random generator, the progress and its path
    cdef Py_ssize_t tile, length = round_tiles(problem)
    allocate(problem, &bigger, 2 * state.capacity, state.threads)
    copy_state(problem, state, &bigger)
    for tile in range(length):
        memcpy(old_bits_of(&bigger, tile), old_bits_of(state, tile), state.k * LANES)
    memcpy(bigger.round.changed, state.round.changed, length)
    if problem.rule == COLLAPSED:
        copy_square(state.collapsed.inverse, state.capacity, bigger.collapsed.inverse, bigger.capacity, state.k)
    sf_free(state.arena)
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
        longer = <double*> new_memory((2 * progress.path_capacity + 64) * sizeof(double))
        if progress.n_path:
            memcpy(longer, progress.path, progress.n_path * sizeof(double))
        sf_free(progress.path)
        progress.path = longer
        progress.path_capacity = 2 * progress.path_capacity + 64
    progress.path[progress.n_path] = value
    progress.n_path += 1
    return 0


# ----------------------------------------------------------------------------------------------------------------------
# Points


cdef void gather(const real_x* x, const FeaturePoints* points, Py_ssize_t tile, double* out) noexcept nogil:
    """Write a tile, d x LANES, zero behind the last point."""
    cdef Py_ssize_t j, lane, i, n_moved = 0
    cdef const real_x* xi
    if points.rows.col == 1 and (tile + 1) * LANES <= points.n:
        if real_x is float:
            n_moved = sf_gather_f(x + tile * LANES * points.rows.row, points.rows.row, points.d, out)
        else:
            n_moved = sf_gather_d(x + tile * LANES * points.rows.row, points.rows.row, points.d, out)
    # the columns that do not fill a vector, or all
    for lane in range(LANES):
        i = tile * LANES + lane
        if i < points.n:
            xi = point(x, &points.rows, i)
            for j in range(n_moved, points.d):
                out[j * LANES + lane] = xi[j * points.rows.col]
        else:
            for j in range(points.d):
                out[j * LANES + lane] = 0.0


cdef void gather_tile(const FeaturePoints* points, Py_ssize_t tile, double* out) noexcept nogil:
    if points.rows.single:
        gather(<const float*> points.rows.x, points, tile, out)
    else:
        gather(<const double*> points.rows.x, points, tile, out)


cdef const double* tile_of(const FeaturePoints* points, Py_ssize_t tile, double* space) noexcept nogil:
    """The values of a tile, gathered into ``space`` where they are not held packed."""
    if points.packed != NULL:
        return points.packed + tile * points.d * LANES
    gather_tile(points, tile, space)
    return space


cdef void pack(FeaturePoints* points) noexcept nogil:
    """Gather all tiles into points.packed."""
    cdef Py_ssize_t tile
    for tile in range(points.n_tiles):
        gather_tile(points, tile, points.packed + tile * points.d * LANES)


cdef const double* residuals(
    const FeatureProblem* problem, const FeatureState* state, Py_ssize_t tile, FeatureScratch* scratch, double* squares
) noexcept nogil:
    """Residuals of a tile (scratch.residual), their squares, and its rows of Z (scratch.z); returns x, d x LANES."""
    cdef const double* x = tile_of(&problem.points, tile, scratch.x)
    sf_load_bits(state.k, bits_of(state, tile), scratch.z)
    sf_residual(
        problem.points.d, state.k, state.capacity, x, scratch.z, state.features.transposed, scratch.residual, squares
    )
    return x


cdef void residual_of(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t i, double* residual
) noexcept nogil:
    """The residual of one point, bit for bit as in its tile."""
    cdef double squares[LANES]
    cdef Py_ssize_t j
    residuals(problem, state, i // LANES, state.scratch, squares)
    for j in range(problem.points.d):
        residual[j] = state.scratch.residual[j * LANES + i % LANES]


cdef void total_chunk(
    const FeatureProblem* problem, FeatureState* state, const double* magic, Py_ssize_t chunk, int thread
) noexcept nogil:
    cdef Py_ssize_t start = chunk * FEATURE_CHUNK * LANES, i, n = min(
        problem.points.n - start, <Py_ssize_t> FEATURE_CHUNK * LANES
    )
    cdef const double* weight = problem.points.rows.weight
    cdef double* total_bins = state.scratch[thread].total_bins
    cdef double[3] bins
    memset(bins, 0, 3 * sizeof(double))
    if weight != NULL:
        weight += start
    sf_add_up(n, state.assignments.squares + start, weight, magic, bins)
    for i in range(3):
        total_bins[i] += bins[i]
    state.assignments.chunk_sums[chunk] = bins[2] + bins[1] + bins[0]


cdef double total(const FeatureProblem* problem, FeatureState* state) noexcept nogil:
    """Sum of w ||r||^2, exact in three bins (see _sums.h), so that it depends on no order; sets chunk_sums."""
    cdef Py_ssize_t n = problem.points.n, n_tiles = problem.points.n_tiles, n_chunks = chunk_count(n_tiles), chunk
    cdef int thread, i, bits = 0, exponent
    cdef double largest = sf_largest(n, state.assignments.squares, problem.points.rows.weight)
    cdef double[3] magic
    cdef double* total_bins = state.scratch.total_bins
    cdef ParallelLoop loop
    # n numbers below 2^exponent: a piece of 52 - log2(n) bits can be added n times without rounding
    frexp(largest, &exponent)
    while (<Py_ssize_t> 1 << bits) < n:
        bits += 1
    for i in range(3):
        magic[i] = ldexp(1.5, exponent + 52 - (i + 1) * min(40, 52 - bits)) if largest > 0.0 else 0.0
    for thread in range(state.threads):
        memset(state.scratch[thread].total_bins, 0, 3 * sizeof(double))
    loop = begin_loop(n_chunks, threads_for(problem, state, n_tiles))
    if loop.threads == 1:
        for chunk in range(n_chunks):
            total_chunk(problem, state, magic, chunk, 0)
    else:
        for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            total_chunk(problem, state, magic, chunk, begin_chunk(&loop))
    end_loop(&loop)
    # exact, too, so that it does not matter which thread had which chunks
    for thread in range(1, state.threads):
        for i in range(3):
            total_bins[i] += state.scratch[thread].total_bins[i]
    return total_bins[2] + total_bins[1] + total_bins[0]


cdef void evaluate_chunk(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t chunk, int thread
) noexcept nogil:
    cdef double squares[LANES]
    cdef Py_ssize_t tile, lane
    for tile in range(chunk * FEATURE_CHUNK, min(problem.points.n_tiles, (chunk + 1) * FEATURE_CHUNK)):
        residuals(problem, state, tile, state.scratch + thread, squares)
        for lane in range(LANES):
            state.assignments.squares[tile * LANES + lane] = (
                squares[lane] if tile * LANES + lane < problem.points.n else 0.0
            )


cdef double evaluate(const FeatureProblem* problem, FeatureState* state) noexcept nogil:
    """Sum of w ||r||^2, all residuals computed from the data."""
    cdef Py_ssize_t n_chunks = chunk_count(problem.points.n_tiles), chunk
    cdef ParallelLoop loop = begin_loop(n_chunks, threads_for(problem, state, problem.points.n_tiles))
    if loop.threads == 1:
        for chunk in range(n_chunks):
            evaluate_chunk(problem, state, chunk, 0)
    else:
        for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            evaluate_chunk(problem, state, chunk, begin_chunk(&loop))
    end_loop(&loop)
    return total(problem, state)
