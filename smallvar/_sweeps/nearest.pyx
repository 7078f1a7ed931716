"""The nearest center of every point, with as few distances as bounds allow (Hamerly 2010).

For each point there is an upper bound u of the distance to its assigned center z, and a lower bound l of the distance
to every other center. h_z is half the distance from center z to its nearest other center. A point keeps its label
without any distance while

    u < max(l, h_z),

and, where clusters may be opened, while w u^2 < lam for its weight w: else it may exceed the penalty lam (sv_filter and
the other filters, simd.h).

With u < l no other center is nearer. With u < h_z neither: the triangle inequality gives any other center a distance
of at least 2 h_z - u > u. When centers move, u grows by the shift of z and l falls by the largest shift of another
center.

A sweep visits the points in chunks. Points that fail the test get a fresh u and are tested again, unless this would
take as long as it saves: where all centers have few numbers, or few points of the chunk have passed. Those that fail
again are compared with all centers: approximately, in batches, with a bound on the error, which is added to u and taken
off l; where the two nearest centers differ by less than twice that error the point is *ambiguous*, and exact distances
decide. So labels depend neither on chunks nor on threads nor on the instruction set.

Three things are added to the test: a lower bound of its own for the few centers that move far (fast_centers.pyx),
centers that were opened since the bounds were made (new_centers.pyx), and points that exceed a penalty, which may open
a cluster. How distances are computed, for dense and for sparse rows, is in dense.pyx and sparse.pyx.
"""

from libc.string cimport memchr, memset

from smallvar._sweeps.kernels cimport (
    LANES_SINGLE,
    SMALLVAR_COMPILER,
    sv_filter,
    sv_filter_again,
    sv_filter_fast,
    sv_filter_opened,
    sv_list,
    sv_lower,
    sv_set_name,
    sv_set_names,
    sv_upper,
)
from smallvar._sweeps.parallel cimport PAYS
from smallvar._sweeps.state cimport (
    BATCH,
    BIG,
    CHUNK,
    Batch,
    State,
    add_to_batch,
    is_beyond,
    is_surely_within,
    lower_bound,
    record_move,
    set_lower_bounds,
    upper_bound,
    weight_at,
)
from smallvar._sweeps.tolerances cimport DISTANCE_MARGIN, FARTHEST_MARGIN

cdef enum:
    BATCH_BYTES = 1 << 18   # of all tiles of a batch, at most, unless there is only one: a part of the cache
    LISTED_POINTS = 128     # points whose distances to their assigned centers are computed together
    ALMOST_ALL = 16         # a second test that fewer than one in so many pass is not made for the rest of a chunk
    LITTLE = 768            # work of comparing a point with all centers, below which there is no second test;
    OVERHEAD = 6            # a center counts as its columns and so many more

cdef enum:                  # a chunk's flag of a point
    EXCEEDS = 2             # beyond the penalty from every center; the filters set 0 or 1

cdef enum:                  # verdicts of sv_filter_again
    PASSES = 0
    FAILS_FAST = 1          # only a fast center can be nearer
    FAILS = 2


def compiler():
    """Name and version of the C compiler."""
    return SMALLVAR_COMPILER.decode()


def instruction_set():
    """Name of the instruction set whose kernels run."""
    return sv_set_name().decode()


def instruction_sets():
    """Names of the instruction sets that kernels are compiled for, lowest first."""
    return sv_set_names().decode().split(", ")


# ---- assignment of one chunk -----------------------------------------------------------------------------------------


cdef struct Ambiguous:              # points of a chunk whose nearest centers approximate distances do not tell
    Py_ssize_t size
    unsigned short offsets[CHUNK]   # which ones, counted from the first of the chunk
    double cutoffs[CHUNK]           # a center whose approximate distance is above is not the nearest


cdef struct Chunk:
    Py_ssize_t number
    Py_ssize_t start                # its first point
    Py_ssize_t size
    int thread                      # which handles it
    Batch failed                    # points to be compared with all centers
    Batch failed_fast               # points to be compared with the fast centers only
    Ambiguous ambiguous
    unsigned char flags[CHUNK]      # first 1 where a point fails the test, else 0; later EXCEEDS or 0


cdef bint exceeds_penalty(const State* state, Py_ssize_t i, Py_ssize_t k, double distance, int thread) noexcept nogil:
    """Whether point i is beyond the penalty from center k, in exact arithmetic.

    distance : squared, good to DISTANCE_MARGIN or too large; HUGE_VAL: not known
    """
    cdef double near, error
    if is_surely_within(state, i, distance):
        return False
    state.backend.distances(state, i, k, k + 1, &near, &error)
    if not is_beyond(state, i, near + error):
        return False
    return is_beyond(state, i, near - error) or is_beyond(
        state, i, state.backend.exact_distance(state, i, k, thread)
    )


cdef void assign_batch(State* state, Chunk* chunk) noexcept nogil:
    """Compare the failed points with all centers: labels and bounds. Ambiguous ones get only their lower bound here."""
    cdef Batch* batch = &chunk.failed
    cdef Ambiguous* ambiguous = &chunk.ambiguous
    cdef double second[BATCH]
    cdef float upper[BATCH]
    cdef float lower[BATCH]
    cdef double per_square = 1.0 / (state.frame.scale * state.frame.scale)     # a power of two: exact
    cdef Py_ssize_t m, i
    state.backend.two_nearest(state, batch, &state.centers.packed, 0, state.centers.n, chunk.thread)
    for m in range(batch.size):
        i = batch.points[m]
        second[m] = batch.second[m] - batch.error[m]
        if not batch.second[m] - batch.least[m] > 2.0 * batch.error[m]:
            ambiguous.offsets[ambiguous.size] = <unsigned short> (i - chunk.start)
            ambiguous.cutoffs[ambiguous.size] = batch.least[m] + 2.0 * batch.error[m]
            ambiguous.size += 1
            batch.assigned[m] = 0.0         # a placeholder: resolve_ambiguous sets bound and flag anew
        elif batch.assigned[m] < 0.0 or batch.nearest[m] != state.points.labels[i]:
            # upper bound enough: test_again and exceeds_penalty compute a better one where that is needed
            batch.assigned[m] = max(0.0, batch.least[m] + batch.error[m]) * per_square
            if batch.nearest[m] != state.points.labels[i]:
                record_move(state, i, batch.nearest[m])
    if state.bounds.upper_bounds != NULL:
        sv_upper(batch.size, batch.assigned, state.frame.scale, upper)
        sv_lower(batch.size, second, lower)
        for m in range(batch.size):
            state.bounds.upper_bounds[batch.points[m]] = upper[m]
            set_lower_bounds(state, batch.points[m], lower[m])
    if state.penalty.find_exceeding:
        for m in range(batch.size):
            i = batch.points[m]
            if not is_surely_within(state, i, batch.assigned[m]) and exceeds_penalty(
                state, i, state.points.labels[i], batch.assigned[m], chunk.thread
            ):
                chunk.flags[i - chunk.start] = EXCEEDS
    state.results.n_approximate[chunk.number] += batch.size * state.centers.n
    batch.size = 0


cdef inline void add_failed(State* state, Chunk* chunk, Py_ssize_t i, double assigned) noexcept nogil:
    """Put a point into the batch of those that are compared with all centers, and handle the batch if it is full."""
    add_to_batch(&chunk.failed, i, assigned)
    if chunk.failed.size == state.scratch.batch:
        assign_batch(state, chunk)


cdef void resolve_ambiguous(State* state, Chunk* chunk) noexcept nogil:
    """Labels of the ambiguous points, by exact distances.

    Their lower bounds, second - error, are set already. They hold for all centers but the approximately nearest one, a.
    If the exactly nearest one, b, is not a, they hold for a as well: d(a) >= d(b) >= second - error.
    """
    cdef Ambiguous* ambiguous = &chunk.ambiguous
    cdef Batch* batch = &chunk.failed       # it is empty by now
    cdef Py_ssize_t done = 0, m, i
    while done < ambiguous.size:
        batch.size = 0
        while batch.size < state.scratch.batch and done + batch.size < ambiguous.size:
            add_to_batch(batch, chunk.start + ambiguous.offsets[done + batch.size], -1.0)
        state.backend.nearest_exactly(
            state, batch, ambiguous.cutoffs + done, 0, state.centers.n, chunk.thread
        )
        for m in range(batch.size):
            i = batch.points[m]
            if batch.nearest[m] != state.points.labels[i]:
                record_move(state, i, batch.nearest[m])
            if state.bounds.upper_bounds != NULL:
                state.bounds.upper_bounds[i] = upper_bound(batch.assigned[m], state.frame.scale)
            if state.penalty.find_exceeding:
                chunk.flags[i - chunk.start] = EXCEEDS * exceeds_penalty(
                    state, i, batch.nearest[m], batch.assigned[m], chunk.thread
                )
        done += batch.size
    state.results.n_ambiguous[chunk.number] += <int> ambiguous.size


cdef int nearest_fast_center(
    const State* state, Py_ssize_t i, int label, double* distance, int thread
) noexcept nogil:
    """The nearest of the assigned center and the fast ones, exactly, the lowest index at a tie."""
    cdef int nearest = label, k
    cdef Py_ssize_t m
    cdef double t
    distance[0] = state.backend.exact_distance(state, i, label, thread)
    for m in range(state.fast.n):
        k = state.fast.indices[m]
        t = state.backend.exact_distance(state, i, k, thread)
        if t < distance[0] or (t == distance[0] and k < nearest):
            distance[0], nearest = t, k
    return nearest


cdef void assign_batch_to_fast(State* state, Chunk* chunk) noexcept nogil:
    """Compare points with the fast centers only: their lower bounds say that no slow one is nearer."""
    cdef Batch* batch = &chunk.failed_fast
    cdef double square = state.frame.scale * state.frame.scale, distance, scaled, rest_bound, error
    cdef Py_ssize_t m, i
    cdef int old, candidate, label
    state.backend.two_nearest(state, batch, &state.fast.packed, 0, state.fast.n, chunk.thread)
    for m in range(batch.size):
        i = batch.points[m]
        old = state.points.labels[i]
        candidate = state.fast.indices[batch.nearest[m]]
        # rows are dense, since others have no fast centers: the distance is good to DISTANCE_MARGIN on both sides
        distance = batch.assigned[m]
        scaled = distance * square
        error = batch.error[m]
        # a bound for every fast center but old: if old is fast, it may be the candidate itself
        rest_bound = (batch.second[m] if candidate == old else batch.least[m]) - error
        if rest_bound > scaled * (1.0 + DISTANCE_MARGIN):
            label = old
        elif (
            candidate != old
            and rest_bound + 2.0 * error < scaled * (1.0 - DISTANCE_MARGIN)
            and batch.second[m] - batch.least[m] > 2.0 * error
        ):
            label = candidate
            distance = state.backend.exact_distance(state, i, label, chunk.thread)
        else:
            label = nearest_fast_center(state, i, old, &distance, chunk.thread)
            state.results.n_ambiguous[chunk.number] += 1
        if label != old:  # else the upper bound is that of test_again
            # old is one of the others from now on, among the fast or the slow ones. If label is not the candidate, that
            # is no nearer than label, so second - error is a bound for it too (as in resolve_ambiguous)
            scaled *= 1.0 - DISTANCE_MARGIN
            rest_bound = min(scaled, batch.second[m] - error)
            state.bounds.lower_bounds[i] = min(state.bounds.lower_bounds[i], lower_bound(scaled))
            record_move(state, i, label)
            state.bounds.upper_bounds[i] = upper_bound(distance, state.frame.scale)
        state.bounds.lower_bounds_fast[i] = lower_bound(rest_bound)
        if state.penalty.find_exceeding and exceeds_penalty(state, i, label, distance, chunk.thread):
            chunk.flags[i - chunk.start] = EXCEEDS
    state.results.n_approximate[chunk.number] += batch.size * state.fast.n
    batch.size = 0


cdef Py_ssize_t test_again(State* state, Chunk* chunk, const unsigned short* listed, Py_ssize_t n) noexcept nogil:
    """Compute upper bounds of LISTED_POINTS points or fewer from distances, test them again, and batch those that fail.

    A batch that is full is handled at once, while its rows are in the cache. Returns how many go to all centers.
    """
    cdef double distances[LISTED_POINTS]
    cdef float upper[LISTED_POINTS]
    cdef float lower[LISTED_POINTS]
    cdef float lower_fast[LISTED_POINTS]
    cdef int centers[LISTED_POINTS]
    cdef int verdict[LISTED_POINTS]
    cdef Py_ssize_t q, i, n_failed = 0
    for q in range(n):
        i = chunk.start + listed[q]
        centers[q] = state.points.labels[i]
        lower[q] = state.bounds.lower_bounds[i]
        lower_fast[q] = state.bounds.lower_bounds_fast[i] if state.fast.n > 0 else BIG
    state.backend.assigned_distances(state, chunk.start, listed, n, centers, distances)
    sv_upper(n, distances, state.frame.scale, upper)
    sv_filter_again(n, centers, upper, lower, lower_fast, state.bounds.center_half_distances,
                    state.bounds.new_center_half_distances, state.bounds.opened, verdict)
    for q in range(n):
        i = chunk.start + listed[q]
        state.bounds.upper_bounds[i] = upper[q]
        if verdict[q] == FAILS:
            n_failed += 1
            add_failed(state, chunk, i, distances[q])
        elif verdict[q] == FAILS_FAST:
            add_to_batch(&chunk.failed_fast, i, distances[q])
            if chunk.failed_fast.size == state.scratch.batch:
                assign_batch_to_fast(state, chunk)
        elif state.penalty.find_exceeding:
            chunk.flags[listed[q]] = EXCEEDS * exceeds_penalty(state, i, centers[q], distances[q], chunk.thread)
    return n_failed


cdef void assign_by_bounds(State* state, Chunk* chunk) noexcept nogil:
    """Take the shifts of the centers off the bounds, and compare the points that fail the test."""
    cdef unsigned short listed[CHUNK + 8]   # sv_list may write 8 entries too many
    cdef Py_ssize_t start = chunk.start, size = chunk.size, q = 0, n_listed, n_tested, n_failed
    # whether the points left are compared with all centers at once, since the test would save less time than it takes
    cdef bint test_is_over = state.fast.n == 0 and state.centers.n * (state.points.d + OVERHEAD) < LITTLE
    cdef float* upper = state.bounds.upper_bounds + start
    cdef float* lower = state.bounds.lower_bounds + start
    cdef const int* labels = state.points.labels + start
    cdef const double* weight = NULL if state.points.rows.weight == NULL else state.points.rows.weight + start
    # both filters: u += center_shift[z], l -= max_other_shift[z]; the flag is 1 unless u < max(l, h_z) and u < limit.
    # sv_filter_opened: before that l = min(l, last_new[z] - u), unless has_new; and u < h_new[z] is required. It also
    # is the filter for weights, w u^2 < limit^2: where no center was opened, its two tables of new centers are BIG
    if state.bounds.opened or (weight != NULL and state.penalty.find_exceeding):
        sv_filter_opened(size, upper, lower, labels, state.bounds.center_shift, state.bounds.max_other_shift,
                         state.bounds.center_half_distances, state.bounds.new_center_half_distances,
                         state.bounds.last_new_center_distances, weight, state.fast.has_new, state.penalty.limit,
                         chunk.flags)
    else:
        sv_filter(size, upper, lower, labels, state.bounds.center_shift, state.bounds.max_other_shift,
                  state.bounds.center_half_distances, state.penalty.limit, chunk.flags)
    if state.fast.n > 0:  # the same test of the bound for the fast centers, u being up to date; it only adds flags
        sv_filter_fast(size, upper, state.bounds.lower_bounds_fast + start, labels, state.bounds.max_other_shift_fast,
                       state.bounds.center_half_distances, state.bounds.last_new_center_distances,
                       state.bounds.opened, chunk.flags)
    n_listed = sv_list(size, chunk.flags, listed)
    if state.penalty.find_exceeding:
        memset(chunk.flags, 0, size)
    while q < n_listed:
        if test_is_over:
            add_failed(state, chunk, start + listed[q], -1.0)
            q += 1
        else:
            n_tested = min(<Py_ssize_t> LISTED_POINTS, n_listed - q)
            n_failed = test_again(state, chunk, listed + q, n_tested)
            test_is_over = n_tested == LISTED_POINTS and ALMOST_ALL * (n_tested - n_failed) < n_tested
            q += n_tested
    if chunk.failed_fast.size > 0:
        assign_batch_to_fast(state, chunk)


cdef void list_exceeding(State* state, const Chunk* chunk) noexcept nogil:
    """List the points of a chunk that exceed the penalty."""
    cdef const unsigned char* end = chunk.flags + chunk.size
    cdef const unsigned char* at = <const unsigned char*> memchr(chunk.flags, EXCEEDS, chunk.size)
    cdef Py_ssize_t n = 0
    while at != NULL:
        state.results.exceeding[chunk.start + n] = <unsigned short> (at - chunk.flags)
        n += 1
        at = <const unsigned char*> memchr(at + 1, EXCEEDS, end - at - 1)
    state.results.n_exceeding[chunk.number] = <int> n


cdef void assign_chunk(State* state, Py_ssize_t number, int thread) noexcept nogil:
    """Nearest centers of one chunk."""
    cdef Chunk chunk
    cdef Py_ssize_t i
    chunk.number, chunk.thread, chunk.start = number, thread, number * CHUNK
    chunk.size = min(<Py_ssize_t> CHUNK, state.points.n - chunk.start)
    chunk.failed.size = chunk.failed_fast.size = chunk.ambiguous.size = 0
    state.results.n_moved[number] = 0
    state.results.n_exceeding[number] = 0
    state.results.n_approximate[number] = 0
    state.results.n_ambiguous[number] = 0
    if state.bounds.valid:
        assign_by_bounds(state, &chunk)
    else:
        memset(chunk.flags, 0, chunk.size)
        for i in range(chunk.start, chunk.start + chunk.size):
            add_failed(state, &chunk, i, -1.0)
    if chunk.failed.size > 0:
        assign_batch(state, &chunk)
    if chunk.ambiguous.size > 0:
        resolve_ambiguous(state, &chunk)
    if state.penalty.find_exceeding:
        list_exceeding(state, &chunk)
    if state.penalty.find_farthest:
        find_farthest(state, &chunk)


cdef void find_farthest(State* state, const Chunk* chunk) noexcept nogil:
    """The point of a chunk with the largest weighted squared distance beyond the penalty, the first of them at a tie.

    A point is passed over if its upper bound is below the largest distance found so far. The point with the largest
    bound comes first, so that most others are.
    """
    cdef float* upper_bounds = state.bounds.upper_bounds
    cdef double square = state.frame.scale * state.frame.scale * (1.0 - FARTHEST_MARGIN)
    cdef double best = state.penalty.lam, largest = -1.0, bound, distance, error
    cdef Py_ssize_t i, q, first = chunk.start, stop = chunk.start + chunk.size, farthest = -1
    for i in range(chunk.start, stop):
        bound = weight_at(state, i) * upper_bounds[i] * upper_bounds[i]
        if bound > largest:
            largest, first = bound, i
    for q in range(chunk.start - 1, stop):
        i = first if q < chunk.start else q
        # ties pass by the margin; the lower index wins them. Where lam is 0, 0 >= 0 passes too; is_beyond rejects it
        if not weight_at(state, i) * <double> upper_bounds[i] * upper_bounds[i] >= best * square:
            continue
        state.backend.distances(state, i, state.points.labels[i], state.points.labels[i] + 1, &distance, &error)
        upper_bounds[i] = upper_bound(distance + error, state.frame.scale)
        if weight_at(state, i) * (distance + error) < best:
            continue
        if error > 0.0:
            distance = state.backend.exact_distance(state, i, state.points.labels[i], chunk.thread)
        if not is_beyond(state, i, distance):
            continue
        distance *= weight_at(state, i)
        if distance > best or (distance == best and i < farthest):
            best, farthest = distance, i
    state.results.farthest[chunk.number] = farthest
    state.results.farthest_distance[chunk.number] = best


# ---- the sweep -------------------------------------------------------------------------------------------------------


cdef Py_ssize_t tiles_of_batch(Py_ssize_t d) noexcept nogil:
    """Tiles of float32 rows of d columns that are compared with the centers together."""
    return max(<Py_ssize_t> 1, min(<Py_ssize_t> BATCH // LANES_SINGLE,
                                   BATCH_BYTES // (LANES_SINGLE * <Py_ssize_t> sizeof(float) * d)))


cdef int threads_worth(const State* state, Py_ssize_t points, int n_threads) noexcept nogil:
    """One thread where waking others would cost more time than it saves; 16: what the test of a point costs."""
    return n_threads if points * (state.centers.n * state.points.d + 16) > PAYS else 1


cdef bint float64_pays(const State* state, Py_ssize_t n_chunks) noexcept nogil:
    """Whether so many points were ambiguous in the last sweep that float64 pays: more than one in 50."""
    cdef Py_ssize_t c, total = 0
    for c in range(n_chunks):
        total += state.results.n_ambiguous[c]
    return state.centers.single and 50 * total > state.points.n


cdef void pack_centers(State* state, Py_ssize_t first, int n_threads) noexcept nogil:
    """Bring what approximate distances are computed from up to date, for the centers from ``first`` on."""
    cdef Py_ssize_t size = (state.centers.n - first) * state.points.d
    state.backend.pack(state, first, n_threads if size > PAYS else 1)
