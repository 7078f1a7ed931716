"""How a start of BP-means or K-features is seeded: features at residuals drawn at random, like k-means++."""

from cython.parallel cimport prange
from libc.string cimport memset

from smallvar._sweeps.features.solver cimport add_feature, add_residual, remove
from smallvar._sweeps.features.state cimport (
    FEATURE_CHUNK,
    LANES,
    ZERO_SQUARE,
    FeatureProblem,
    FeatureScratch,
    FeatureState,
    bit,
    bits_of,
    check_interrupt,
    chunk_count,
    evaluate,
    sf_load_bits,
    sf_residual,
    sf_with,
    threads_for,
    tile_of,
    total,
)
from smallvar._sweeps.parallel cimport ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport weight_of


cdef void join_chunk(const FeatureProblem* problem, FeatureState* state, Py_ssize_t chunk, int thread) noexcept nogil:
    """Points of a chunk whose residual strictly shrinks take the last feature."""
    cdef Py_ssize_t tile, lane, i, k = state.k - 1, d = problem.points.d
    cdef const double* feature = state.features.rows + k * d
    cdef const double* x
    cdef FeatureScratch* scratch = state.scratch + thread
    cdef double squares[LANES]
    cdef double new_squares[LANES]
    for tile in range(chunk * FEATURE_CHUNK, min(problem.points.n_tiles, (chunk + 1) * FEATURE_CHUNK)):
        x = tile_of(&problem.points, tile, scratch.x)
        sf_load_bits(k, bits_of(state, tile), scratch.z)
        sf_residual(d, k, state.capacity, x, scratch.z, state.features.transposed, scratch.residual, squares)
        sf_with(d, scratch.residual, feature, new_squares)
        for lane in range(LANES):
            i = tile * LANES + lane
            if i < problem.points.n and new_squares[lane] < squares[lane]:
                bit(state, i, k)[0] = 1
                state.assignments.squares[i] = new_squares[lane]


cdef void join(const FeatureProblem* problem, FeatureState* state) noexcept nogil:
    """Points whose residual strictly shrinks take the last feature (MB13, section 5)."""
    cdef Py_ssize_t n_chunks = chunk_count(problem.points.n_tiles), chunk
    cdef ParallelLoop loop = begin_loop(n_chunks, threads_for(problem, state, problem.points.n_tiles))
    if loop.threads == 1:
        for chunk in range(n_chunks):
            join_chunk(problem, state, chunk, 0)
    else:
        for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            join_chunk(problem, state, chunk, begin_chunk(&loop))
    end_loop(&loop)


cdef Py_ssize_t draw(const FeatureProblem* problem, FeatureState* state, double error) noexcept nogil:
    """A point with probability proportional to its weighted squared residual (MB13, section 5).

    Whole chunks are passed over by their sums, so ``error`` has to come from `total`, with which `evaluate` ends.
    """
    cdef double target = uniform(&state.rng) * error, cumulated = 0.0, part
    cdef Py_ssize_t i = 0, last = 0, length = FEATURE_CHUNK * LANES, n = problem.points.n
    cdef const double* chunk_sums = state.assignments.chunk_sums
    while i + length < n and not cumulated + chunk_sums[i // length] > target:
        cumulated += chunk_sums[i // length]
        i += length
    for i in range(i, n):
        part = weight_of(&problem.points.rows, i) * state.assignments.squares[i]
        if part > 0.0:
            last = i
            cumulated += part
            if cumulated > target:
                return i
    return last


cdef int fill_up(const FeatureProblem* problem, FeatureState* state) except -1 nogil:
    """Add features without users up to K, where that is fixed and no residual is left to make one of."""
    while problem.fixed and state.k < problem.max_features:
        add_feature(problem, state, NULL)
    return 0


cdef int seed(const FeatureProblem* problem, FeatureState* state, int mode) except -1 nogil:
    """Seed features greedily (MB13, section 5), like k-means++. Leaves A as seeded, not as least squares."""
    cdef Py_ssize_t i
    cdef double error, before
    state.k = 0
    memset(state.assignments.bits, 0, problem.points.n_tiles * state.capacity * LANES)
    if mode == 0:
        add_feature(problem, state, problem.mean)
        for i in range(problem.points.n):
            bit(state, i, 0)[0] = 1
    error = evaluate(problem, state)
    while state.k < problem.max_features and error > ZERO_SQUARE * problem.energy:
        add_residual(problem, state, draw(problem, state, error))
        join(problem, state)
        before = error
        error = total(problem, state)
        check_interrupt(state, problem.points.n * problem.points.d * (state.k + 2))
        if not problem.fixed and not error + problem.lam < before:
            remove(problem, state, state.k - 1)
            break
    fill_up(problem, state)
    state.progress.solved = False
    return 0
