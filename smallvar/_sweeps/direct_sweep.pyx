"""The sweep over nearest centers of many rows in C memory: State and passes of DPSweep, without Python objects.

It is for one thread, and for dense rows. What a pass does is in nearest.pyx, dpmeans.pyx and means.pyx; here are the
memory, and the order of the passes. A function that returns a bint returns whether there was memory.
"""

from libc.math cimport frexp, ldexp
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy, memset

from smallvar._sweeps.dense cimport dense_backend
from smallvar._sweeps.direct_memory cimport extend, overflows, take
from smallvar._sweeps.dpmeans cimport (
    NEW_CENTERS,
    Listed,
    farthest_listed,
    has_next,
    listed_points,
    next_step,
    open_alone,
    open_batch,
    penalty_limit,
)
from smallvar._sweeps.fast_centers cimport choose_fast_centers
from smallvar._sweeps.kernels cimport LANES_SINGLE, PANEL
from smallvar._sweeps.means cimport (
    add_chunk,
    add_squares_of_chunk,
    center_of,
    drop_empty_centers,
    follow_centers,
    shift_center,
    update_half_distances,
)
from smallvar._sweeps.nearest cimport MIN_FAST_CENTERS, assign_chunk, float64_pays, pack_centers, tiles_of_batch
from smallvar._sweeps.state cimport BIG, CHUNK, ChunkResults, record_move
from smallvar._sweeps.sums cimport sums_clear

cdef enum:                  # the blocks: what they hold for each center
    COORDINATES = 0
    TABLES = 1              # seven of them
    INDICES = 8
    IS_FAST = 9
    REMAP = 10
    VALUES = 11
    NORMS = 12
    FAST_VALUES = 13
    FAST_NORMS = 14
    LINE = 64               # bytes of a cache line, at which packed centers and scratch memory begin


cdef inline void* aligned(void* block) noexcept nogil:
    """The first cache line of a block that has LINE bytes more than are needed."""
    return <void*> ((<uintptr_t> block + LINE - 1) // LINE * LINE)


cdef inline Py_ssize_t chunks(const DirectSweep* sweep) noexcept nogil:
    return (sweep.state.points.n + CHUNK - 1) // CHUNK


cdef double scale_of(double reach) noexcept nogil:
    """The power of two that brings numbers up to ``reach`` into [-1, 1], as Frame has it."""
    cdef int exponent = 0
    cdef double fraction = frexp(reach, &exponent)
    return ldexp(1.0, (fraction == 0.5) - exponent) if reach > 0.0 else 1.0


# ---- memory ----------------------------------------------------------------------------------------------------------


cdef bint begin_sweep(
    DirectSweep* sweep, Memory* memory, const Rows* rows, int* labels, const double* origin, double reach,
    double rounding, bint bounds
) noexcept nogil:
    """Set up a sweep over rows that lie within ``reach`` of the origin in each column, with their labels."""
    cdef State* state = &sweep.state
    cdef Py_ssize_t i, tile_bytes = LANES_SINGLE * <Py_ssize_t> sizeof(float) * rows.d
    cdef Py_ssize_t tiles = tiles_of_batch(rows.d)
    memset(sweep, 0, sizeof(sweep[0]))
    sweep.memory, sweep.step = memory, 4 * CHUNK
    state.points.rows, state.points.n, state.points.d, state.points.labels = rows[0], rows.n, rows.d, labels
    state.frame.origin, state.frame.scale, state.frame.rounding = origin, scale_of(reach), rounding
    state.backend, state.centers.single, state.penalty.limit = dense_backend(), True, BIG
    state.scratch.size, state.scratch.batch = tile_bytes * tiles + LINE, LANES_SINGLE * tiles
    state.scratch.memory = <char*> take(memory, 1, state.scratch.size + LINE, 1)
    if state.scratch.memory == NULL or not allocate_results(sweep):
        return False
    state.scratch.memory = <char*> aligned(state.scratch.memory)
    if bounds:
        state.bounds.upper_bounds = <float*> take(memory, 3, rows.n, sizeof(float))
        if state.bounds.upper_bounds == NULL:
            return False
        state.bounds.lower_bounds = state.bounds.upper_bounds + rows.n
        state.bounds.lower_bounds_fast = state.bounds.upper_bounds + 2 * rows.n
        for i in range(3 * rows.n):
            state.bounds.upper_bounds[i] = BIG
    return True


cdef bint allocate_results(DirectSweep* sweep) noexcept nogil:
    """Memory for what each chunk finds."""
    cdef ChunkResults* results = &sweep.state.results
    cdef Py_ssize_t n = chunks(sweep)
    cdef int* ints = <int*> take(sweep.memory, 3, n, sizeof(int))
    cdef Py_ssize_t* sizes = <Py_ssize_t*> take(sweep.memory, 2, n, sizeof(Py_ssize_t))
    cdef unsigned short* offsets = <unsigned short*> take(sweep.memory, 2 * n, CHUNK, sizeof(short))
    results.farthest_distance = <double*> take(sweep.memory, 1, n, sizeof(double))
    results.moved_from = <int*> take(sweep.memory, n, CHUNK, sizeof(int))
    if (ints == NULL or sizes == NULL or offsets == NULL or results.farthest_distance == NULL
            or results.moved_from == NULL):
        return False
    results.n_moved, results.n_exceeding, results.n_ambiguous = ints, ints + n, ints + 2 * n
    results.farthest, results.n_approximate = sizes, sizes + n
    results.moved, results.exceeding = offsets, offsets + n * CHUNK
    return True


cdef Py_ssize_t bytes_of(Py_ssize_t block, Py_ssize_t d) noexcept nogil:
    """Bytes of a block for each center."""
    if block == COORDINATES or block == VALUES or block == FAST_VALUES:
        return 8 * d
    if block == NORMS or block == FAST_NORMS:
        return 8
    return 1 if block == IS_FAST else 4


cdef bint reserve(DirectSweep* sweep, Py_ssize_t capacity) noexcept nogil:
    """Make memory for so many centers; those that are there stay."""
    cdef State* state = &sweep.state
    cdef Py_ssize_t m, k, size, old = sweep.capacity, d = state.points.d
    cdef float* table
    if capacity <= old:
        return True
    capacity = (capacity // PANEL + 2) * PANEL  # full panels, as dense.pyx packs centers, and some to spare
    if overflows(capacity, d + 1):
        return False
    for m in range(BLOCKS):
        size = bytes_of(m, d)
        if old == 0:
            sweep.blocks[m] = take(sweep.memory, 1, capacity * size + LINE, 1)
            if sweep.blocks[m] == NULL:
                return False
        elif not extend(sweep.memory, &sweep.blocks[m], old * size + LINE, capacity * size + LINE):
            return False
        if TABLES <= m < INDICES:
            # nothing is known of centers to come: no bound that is made of these excludes one
            table = <float*> sweep.blocks[m]
            for k in range(old, capacity):
                table[k] = BIG
    sweep.capacity, sweep.remap = capacity, <int*> sweep.blocks[REMAP]
    state.centers.coordinates = <double*> sweep.blocks[COORDINATES]
    state.bounds.center_shift = <float*> sweep.blocks[TABLES]
    state.bounds.max_other_shift = <float*> sweep.blocks[TABLES + 1]
    state.bounds.max_other_shift_fast = <float*> sweep.blocks[TABLES + 2]
    state.bounds.center_half_distances = <float*> sweep.blocks[TABLES + 3]
    state.bounds.new_center_half_distances = <float*> sweep.blocks[TABLES + 4]
    state.bounds.last_new_center_distances = <float*> sweep.blocks[TABLES + 5]
    state.bounds.batch_distances = <float*> sweep.blocks[TABLES + 6]
    state.fast.indices = <int*> sweep.blocks[INDICES]
    state.fast.is_fast = <unsigned char*> sweep.blocks[IS_FAST]
    state.centers.packed.values = aligned(sweep.blocks[VALUES])
    state.centers.packed.norms = aligned(sweep.blocks[NORMS])
    state.fast.packed.values = aligned(sweep.blocks[FAST_VALUES])
    state.fast.packed.norms = aligned(sweep.blocks[FAST_NORMS])
    state.centers.packed.stride = state.fast.packed.stride = capacity
    pack_all(sweep)
    return True


cdef void pack_all(DirectSweep* sweep) noexcept nogil:
    """Pack all centers anew, and the fast ones."""
    pack_centers(&sweep.state, 0, 1)
    if sweep.state.fast.n > 0:
        sweep.state.backend.copy_fast(&sweep.state)


cdef bint set_centers(DirectSweep* sweep, const double* centers, Py_ssize_t k) noexcept nogil:
    """The first centers, k of them."""
    if not reserve(sweep, k):
        return False
    memcpy(sweep.state.centers.coordinates, centers, k * sweep.state.points.d * sizeof(double))
    sweep.state.centers.n = k
    pack_all(sweep)
    return True


# ---- passes ----------------------------------------------------------------------------------------------------------


cdef void assign_chunks(DirectSweep* sweep, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    cdef Py_ssize_t chunk
    for chunk in range(first, last):
        assign_chunk(&sweep.state, chunk, 0)


cdef void end_pass(DirectSweep* sweep) noexcept nogil:
    """Shifts are taken off the bounds; approximate distances in float64 from now on, if too many are ambiguous."""
    cdef State* state = &sweep.state
    state.bounds.shifts_taken = True
    if float64_pays(state, chunks(sweep)):
        state.centers.single = False
        state.scratch.batch //= 2  # in the same memory
        pack_all(sweep)


cdef void assign(DirectSweep* sweep) noexcept nogil:
    """Each point joins its nearest center."""
    assign_chunks(sweep, 0, chunks(sweep))
    end_pass(sweep)


cdef bint create(DirectSweep* sweep, double lam, Py_ssize_t max_clusters) noexcept nogil:
    """One sweep of KJ12, Algorithm 1, as DPSweep.create."""
    cdef State* state = &sweep.state
    cdef Listed listed
    cdef Py_ssize_t position = 0, end, before
    state.penalty.lam = lam
    state.penalty.find_exceeding = state.centers.n < max_clusters
    state.penalty.limit = penalty_limit(state, lam) if state.penalty.find_exceeding else BIG
    while position < state.points.n:
        end, before = min(state.points.n, position + sweep.step), state.centers.n
        assign_chunks(sweep, position // CHUNK, (end + CHUNK - 1) // CHUNK)
        if state.penalty.find_exceeding:
            # in the order of the points, as each new center may be near to points that come later
            listed = listed_points(position, end)
            while has_next(state, &listed):
                if sweep.capacity < state.centers.n + NEW_CENTERS:
                    if not reserve(sweep, 2 * state.centers.n + NEW_CENTERS):
                        return False
                if not open_batch(state, &listed, max_clusters, 1):
                    break
            if state.centers.n >= max_clusters:
                state.penalty.find_exceeding, state.penalty.limit = False, BIG
        sweep.step = next_step(sweep.step, state.centers.n - before)
        position = end
    state.penalty.find_exceeding, state.penalty.limit = False, BIG
    end_pass(sweep)
    return True


cdef bint assign_and_open(DirectSweep* sweep, double lam, bint* opened) noexcept nogil:
    """One sweep of delayed creation: the point farthest beyond the penalty, if any, opens a cluster at the end."""
    cdef State* state = &sweep.state
    cdef const ChunkResults* results = &state.results
    cdef double distance = 0.0
    cdef Py_ssize_t i, m, first
    cdef bint is_listed = False
    if not reserve(sweep, state.centers.n + 1):
        return False
    state.penalty.lam, state.penalty.find_farthest = lam, True
    assign_chunks(sweep, 0, chunks(sweep))
    state.penalty.find_farthest = False
    i = farthest_listed(state, &distance)
    opened[0] = i >= 0
    if opened[0]:
        first = i // CHUNK * CHUNK
        for m in range(results.n_moved[i // CHUNK]):
            is_listed |= first + results.moved[first + m] == i
        if not is_listed:
            record_move(state, i, state.points.labels[i])  # to where open_alone puts it
        open_alone(state, i, 1)
    end_pass(sweep)
    return True


# ---- sums and centers ------------------------------------------------------------------------------------------------


cdef Py_ssize_t count_moves(const DirectSweep* sweep) noexcept nogil:
    """How many points of positive weight got another label in this pass, but for those that join what ``create`` opens.
    """
    cdef Py_ssize_t c, total = 0
    for c in range(chunks(sweep)):
        total += sweep.state.results.n_moved[c]
    return total


cdef void add_to_sums(DirectSweep* sweep, bint moves, const sums_t* sums) noexcept nogil:
    """Sums follow the labels: by the moves that are listed, or made anew of all points. The lists are empty then."""
    cdef Py_ssize_t c
    if not moves:
        sums_clear(sums, 0, sweep.state.centers.n)
    for c in range(chunks(sweep)):
        add_chunk(&sweep.state, c, moves, sums)
    memset(sweep.state.results.n_moved, 0, chunks(sweep) * sizeof(int))


cdef double move_centers(
    DirectSweep* sweep, const sums_t* sums, double total, double* mean, Py_ssize_t n_before, bint one_is_new
) noexcept nogil:
    """Means from sums, empty clusters dropped, bounds and tables made ready; returns the error, from the sums.

    total : sum of w ||x - origin||^2;  mean : d, scratch;  n_before, one_is_new : see follow_centers
    """
    cdef State* state = &sweep.state
    cdef double error = total
    cdef Py_ssize_t k, kept = 0, n = state.centers.n
    for k in range(n):
        # centers that are left move up to the places of empty ones, so that labels have no gaps
        sweep.remap[k] = -1
        if center_of(sums, k, False, mean, &error) > 0:
            shift_center(state, sums, sweep.remap, k, kept, mean)
            kept += 1
    sums_clear(sums, kept, n)
    follow_centers(state, sweep.remap, kept, n_before, one_is_new, 1)
    update_half_distances(state, 1)
    choose_fast_centers(state, kept - 1 if one_is_new else -1, MIN_FAST_CENTERS)
    return error


cdef bint drop_empty(DirectSweep* sweep, const sums_t* sums) noexcept nogil:
    """Forget clusters without a member of positive weight; returns whether there were any."""
    cdef Py_ssize_t n = sweep.state.centers.n
    return drop_empty_centers(&sweep.state, sums, sweep.remap, 1) < n


cdef void add_squares(const DirectSweep* sweep, int64_t* digits) noexcept nogil:
    """Add the weighted squared distances to the assigned centers to an exact sum."""
    cdef Py_ssize_t c
    for c in range(chunks(sweep)):
        add_squares_of_chunk(&sweep.state, c, NULL, digits, 0)


cdef void write_squares(const DirectSweep* sweep, double* squares) noexcept nogil:
    """Write the squared distance of each point to its center."""
    cdef Py_ssize_t c
    for c in range(chunks(sweep)):
        sweep.state.backend.squares(&sweep.state, c, NULL, squares + c * CHUNK, 0)
