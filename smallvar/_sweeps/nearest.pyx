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

Three things are added to the test.

1. Points that exceed a penalty, which may open a cluster.
2. A lower bound of their own for the few centers that move far. The lower bound of a point falls by the largest shift
   among the other centers, in each sweep. Where a few centers move far and the others hardly at all, these few would
   spoil the bounds of all points. So the centers are in two groups, each with a lower bound (Yinyang's idea, Ding et
   al. 2015, with a group that changes): a point whose bound for the slow centers holds is compared with the m fast
   ones only.
3. Centers that are opened during a sweep. In Algorithm 1 of Kulis & Jordan (2012) a point sees the clusters that points
   before it have opened. Centers are opened by points in their order, in batches; then the points after the first of
   them, which have labels already, are compared with those of the batch that were opened before their turn. Let u be
   the upper bound of a point, and t the distance from its center to the nearest center of the batch. If 2 u < t no new
   center is nearer, by the triangle inequality.

How distances are computed, for dense and for sparse rows, is in dense.pyx and sparse.pyx.
"""

from cython.parallel cimport prange
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
from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.state cimport (
    BATCH,
    BIG,
    CHUNK,
    Batch,
    State,
    add_to_batch,
    is_beyond,
    is_surely_within,
    knows_center_distances,
    lower_bound,
    record_move,
    reduce_lower_bounds,
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


# ---- centers that move far -------------------------------------------------------------------------------------------


cdef enum:
    N_THRESHOLDS = 12   # thresholds of the shift that are tried: centers above one would be the fast ones
    FAST_SAMPLE = 1000  # points that the cost of a choice is estimated from
    GATHER = 40         # centers that a point is compared with in the time that it takes to load it
    MIN_SLOW = 3        # slow centers for each fast one, at least
    MIN_NUMBERS = 4096  # numbers of all centers from which comparing a point with one of them saves time

cdef extern from *:
    """
    #define SMALLVAR_SMALLEST_SHIFT 3e-19
    #define SMALLVAR_WORTH_A_CHANGE 0.7
    """
    # scaled distance: a center that moved less did not move, since its square is 0 in float32
    const double SMALLEST_SHIFT "SMALLVAR_SMALLEST_SHIFT"
    # of the present cost: a new choice takes two more passes over the bounds and makes them worse, so it must cost less
    const double WORTH_A_CHANGE "SMALLVAR_WORTH_A_CHANGE"


cdef struct Thresholds:             # the choices of fast centers that are compared
    double[N_THRESHOLDS] n_fast     # centers that move more than the threshold
    float[N_THRESHOLDS] max_slow    # the largest shift of all others
    double[N_THRESHOLDS] n_all      # sampled points that would be compared with all centers
    double n_failed                 # sampled points that would be if no center were fast
    double present_failed           # sampled points that fail the test with the present choice,
    double present_all              # and those of them that are compared with all centers


cdef void clear_fast_centers(State* state) noexcept nogil:
    """All centers are slow from now on: the lower bound is one for all of them."""
    cdef float* lower_bounds = state.bounds.lower_bounds
    cdef float* lower_bounds_fast = state.bounds.lower_bounds_fast
    cdef Py_ssize_t i, m
    if state.fast.n == 0:
        return
    for m in range(state.fast.n):
        state.fast.is_fast[state.fast.indices[m]] = False
    state.fast.n = 0
    # the smaller of both holds for all centers
    for i in range(state.points.n):
        lower_bounds[i] = lower_bounds[i] if lower_bounds[i] < lower_bounds_fast[i] else lower_bounds_fast[i]
    for i in range(state.points.n):
        lower_bounds_fast[i] = BIG


cdef void add_fast_center(State* state, Py_ssize_t k) noexcept nogil:
    state.fast.indices[state.fast.n] = <int> k
    state.fast.is_fast[k] = True
    state.fast.n += 1


cdef void update_max_other_shifts(State* state) noexcept nogil:
    """The largest shift among the slow and among the fast centers, each center left out of its own."""
    cdef const float* shift = state.bounds.center_shift
    cdef float[2] first, second         # the two largest shifts of a group: slow ones, fast ones
    cdef Py_ssize_t[2] farthest
    cdef Py_ssize_t k, group
    first[0], first[1], second[0], second[1], farthest[0], farthest[1] = 0.0, 0.0, 0.0, 0.0, -1, -1
    for k in range(state.centers.n):
        group = state.fast.is_fast[k]
        if shift[k] > first[group]:
            second[group] = first[group]
            first[group] = shift[k]
            farthest[group] = k
        else:
            second[group] = max(second[group], shift[k])
    for k in range(state.centers.n):
        state.bounds.max_other_shift[k] = second[0] if k == farthest[0] else first[0]
        state.bounds.max_other_shift_fast[k] = second[1] if k == farthest[1] else first[1]


cdef void set_thresholds(const State* state, float largest, Thresholds* thresholds) noexcept nogil:
    """Halves of the largest shift, and last the smallest one that counts."""
    cdef const float* shift = state.bounds.center_shift
    cdef float threshold = largest
    cdef Py_ssize_t q, k
    for q in range(N_THRESHOLDS):
        threshold = threshold * <float> 0.5 if q < N_THRESHOLDS - 1 else <float> SMALLEST_SHIFT
        thresholds.n_fast[q], thresholds.max_slow[q], thresholds.n_all[q] = 0.0, 0.0, 0.0
        for k in range(state.centers.n):
            if shift[k] > threshold:
                thresholds.n_fast[q] += 1.0
            else:
                thresholds.max_slow[q] = max(thresholds.max_slow[q], shift[k])


cdef void count_failures(const State* state, float largest, Thresholds* thresholds) noexcept nogil:
    """How many points of a sample would fail the test of the next sweep with each choice."""
    cdef Py_ssize_t n = state.points.n, step = max(<Py_ssize_t> 1, n // FAST_SAMPLE), i = 0, q
    cdef float upper, lower, slow, fast
    cdef int z
    thresholds.n_failed = thresholds.present_failed = thresholds.present_all = 0.0
    while i < n:
        z = state.points.labels[i]
        upper = state.bounds.upper_bounds[i] + state.bounds.center_shift[z]
        if not upper < state.bounds.center_half_distances[z]:  # these pass whatever the choice
            slow = state.bounds.lower_bounds[i] - state.bounds.max_other_shift[z]
            fast = state.bounds.lower_bounds_fast[i] - state.bounds.max_other_shift_fast[z]
            if not upper < min(slow, fast):
                thresholds.present_failed += 1.0
                thresholds.present_all += not upper < slow
            # a new choice begins with one bound for all centers, see clear_fast_centers
            lower = min(state.bounds.lower_bounds[i], state.bounds.lower_bounds_fast[i])
            if not upper < lower - largest:
                thresholds.n_failed += 1.0
                for q in range(N_THRESHOLDS):
                    thresholds.n_all[q] += not upper < lower - thresholds.max_slow[q]
        i += step


cdef Py_ssize_t cheapest(const State* state, const Thresholds* thresholds) noexcept nogil:
    """The threshold that costs least, N_THRESHOLDS for no fast center, or -1: the present choice is as good.

    A point that is compared with m centers costs m + GATHER.
    """
    cdef double n = state.centers.n, all_centers = n + GATHER, cost
    cdef double least = WORTH_A_CHANGE * (
        thresholds.present_all * all_centers
        + (thresholds.present_failed - thresholds.present_all) * (state.fast.n + GATHER)
    )
    cdef Py_ssize_t q, best = -1
    if state.fast.n > 0 and thresholds.n_failed * all_centers < least:
        least, best = thresholds.n_failed * all_centers, N_THRESHOLDS
    for q in range(N_THRESHOLDS):
        cost = (thresholds.n_failed - thresholds.n_all[q]) * (thresholds.n_fast[q] + GATHER)
        cost += thresholds.n_all[q] * all_centers
        if cost < least and thresholds.n_fast[q] * (MIN_SLOW + 1) <= n:
            least, best = cost, q
    return best


cdef void reconsider(State* state) noexcept nogil:
    """Choose the centers that are fast from now on, if that is clearly cheaper than the present choice."""
    cdef const float* shift = state.bounds.center_shift
    cdef Thresholds thresholds
    cdef float largest = 0.0
    cdef Py_ssize_t k, i, best
    update_max_other_shifts(state)
    for k in range(state.centers.n):
        largest = max(largest, shift[k])
    set_thresholds(state, largest, &thresholds)
    count_failures(state, largest, &thresholds)
    best = cheapest(state, &thresholds)
    if best < 0:
        return
    clear_fast_centers(state)
    if best == N_THRESHOLDS:
        return
    for k in range(state.centers.n):
        if shift[k] > thresholds.max_slow[best]:
            add_fast_center(state, k)
    # what holds for all centers holds for those of each group
    for i in range(state.points.n):
        state.bounds.lower_bounds_fast[i] = state.bounds.lower_bounds[i]


cdef void choose_fast_centers(State* state, Py_ssize_t new_center, Py_ssize_t min_centers) noexcept nogil:
    """Fast centers for the next sweep, after the centers have moved.

    new_center : the only one opened in this sweep, or -1; among many numbers it is always fast: so lower_bounds
        need not be reduced; sv_filter_fast reduces lower_bounds_fast
    min_centers : centers from which others may be fast
    """
    cdef bint may_be = state.bounds.valid and state.bounds.lower_bounds_fast != NULL
    state.fast.has_new = new_center >= 0 and may_be and state.centers.n * state.points.d >= MIN_NUMBERS
    if may_be and state.centers.n >= (MIN_SLOW + 1 if state.fast.has_new else min_centers):
        reconsider(state)
    else:
        clear_fast_centers(state)
    if state.fast.has_new and not state.fast.is_fast[new_center]:
        add_fast_center(state, new_center)
    update_max_other_shifts(state)
    if state.fast.n > 0:
        state.backend.copy_fast(state)


# ---- centers that are opened during a sweep --------------------------------------------------------------------------


cdef bint is_nearer(const State* state, Py_ssize_t i, Py_ssize_t k, Py_ssize_t other, int thread) noexcept nogil:
    """Whether point i is nearer to center k than to another one, in exact arithmetic."""
    cdef double distance, error, other_distance, other_error
    state.backend.distances(state, i, k, k + 1, &distance, &error)
    state.backend.distances(state, i, other, other + 1, &other_distance, &other_error)
    if distance + error < other_distance - other_error:
        return True
    if distance - error > other_distance + other_error:
        return False
    if error == 0.0 and other_error == 0.0:     # a tie of exact distances
        return False
    return state.backend.exact_distance(state, i, k, thread) < state.backend.exact_distance(state, i, other, thread)


cdef int nearest_of_new(
    const State* state, Py_ssize_t i, double cutoff, Py_ssize_t first, Py_ssize_t last, int thread
) noexcept nogil:
    """The nearest of centers first..last-1 to point i, exactly."""
    cdef Batch batch
    batch.size = 0
    add_to_batch(&batch, i, -1.0)
    state.backend.nearest_exactly(state, &batch, &cutoff, first, last, thread)
    return batch.nearest[0]


cdef void compare_batch(
    State* state, Batch* batch, Py_ssize_t first_new, Py_ssize_t last_new, int thread
) noexcept nogil:
    """Compare points with the new centers first_new..last_new-1: labels and bounds."""
    cdef double square = state.frame.scale * state.frame.scale, upper, assigned, distance
    cdef Py_ssize_t m, i
    cdef int label
    cdef unsigned short at_start = 0
    state.backend.two_nearest(state, batch, &state.centers.packed, first_new, last_new, thread)
    for m in range(batch.size):
        i = batch.points[m]
        upper = <double> state.bounds.upper_bounds[i] * state.bounds.upper_bounds[i]
        if batch.assigned[m] >= 0.0:
            upper = batch.assigned[m] * square * (1.0 + DISTANCE_MARGIN)
        # the label stays where the nearest new center is surely farther than the assigned one
        if batch.least[m] - batch.error[m] > upper:
            reduce_lower_bounds(state, i, lower_bound(batch.least[m] - batch.error[m]))
            continue
        # else the nearest new center, exactly, and then whether it is nearer than the assigned one, surely or exactly
        label = batch.nearest[m]
        if not batch.second[m] - batch.least[m] > 2.0 * batch.error[m]:
            label = nearest_of_new(state, i, batch.least[m] + 2.0 * batch.error[m], first_new, last_new, thread)
        # the distance of the assigned one at least; where it is not known there are no lower bounds
        assigned = max(0.0, batch.assigned[m]) * square * (1.0 - DISTANCE_MARGIN)
        if not batch.least[m] + batch.error[m] < assigned:
            if not is_nearer(state, i, label, state.points.labels[i], thread):
                reduce_lower_bounds(state, i, lower_bound(batch.least[m] - batch.error[m]))
                continue
        # the center that is left becomes one of the others
        reduce_lower_bounds(state, i, lower_bound(min(assigned, batch.second[m] - batch.error[m])))
        state.backend.assigned_distances(state, i, &at_start, 1, &label, &distance)
        state.bounds.upper_bounds[i] = upper_bound(distance, state.frame.scale)
        state.points.labels[i] = label
    batch.size = 0


cdef void compare_chunk(
    State* state, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t first_new, const Py_ssize_t* opened_at, int thread
) noexcept nogil:
    """Compare points start..stop-1 of one chunk with the new centers that were opened before them."""
    cdef Batch batch
    cdef unsigned short listed[CHUNK]   # points that may be nearer to a new center, less start,
    cdef int assigned[CHUNK]            # their centers,
    cdef double distances[CHUNK]        # and the squared distances to these, if those between centers are known
    cdef Py_ssize_t i, q, n_listed = 0, n_new = state.centers.n - first_new, n_before = 0, n_batch = 0
    cdef bint by_center_distances = knows_center_distances(state)
    cdef float* upper_bounds = state.bounds.upper_bounds
    cdef const float* batch_distances = state.bounds.batch_distances
    cdef int z
    for i in range(start, stop):
        z = state.points.labels[i]
        if opened_at[0] >= i or z >= first_new:
            continue  # none was opened before it, or it has opened or joined one of the batch itself
        # 2 u < t, first with the bound at hand, then with that of the distance
        if by_center_distances and 2.0 * upper_bounds[i] < batch_distances[z]:
            continue
        listed[n_listed], assigned[n_listed], distances[n_listed] = <unsigned short> (i - start), z, -1.0
        n_listed += 1
    if by_center_distances:
        state.backend.assigned_distances(state, start, listed, n_listed, assigned, distances)
    batch.size = 0
    for q in range(n_listed):
        i = start + listed[q]
        if by_center_distances:
            upper_bounds[i] = upper_bound(distances[q], state.frame.scale)
            if 2.0 * upper_bounds[i] < batch_distances[assigned[q]]:
                continue
        while n_before < n_new and opened_at[n_before] < i:
            n_before += 1
        if batch.size > 0 and n_batch != n_before:  # points of a batch are compared with the same centers
            compare_batch(state, &batch, first_new, first_new + n_batch, thread)
        n_batch = n_before
        add_to_batch(&batch, i, distances[q])
        if batch.size == state.scratch.batch:
            compare_batch(state, &batch, first_new, first_new + n_batch, thread)
    if batch.size > 0:
        compare_batch(state, &batch, first_new, first_new + n_batch, thread)


cdef void compare_part(
    State* state, Py_ssize_t chunk, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t first_new,
    const Py_ssize_t* opened_at, int thread
) noexcept nogil:
    """Those of points start..stop-1 that are in a chunk."""
    compare_chunk(
        state, max(start, chunk * CHUNK), min(stop, (chunk + 1) * CHUNK), first_new, opened_at, thread
    )


cdef void assign_to_new_centers(
    State* state, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t first_new, const Py_ssize_t* opened_at, int threads
) noexcept nogil:
    """Give points start..stop-1 the labels of centers from first_new on where these are nearer.

    opened_at : the point at which each of these was opened, ascending; it is compared with points after it
    """
    cdef Py_ssize_t chunk, first = start // CHUNK, last = (stop + CHUNK - 1) // CHUNK
    cdef ParallelLoop loop = begin_loop(last - first, threads)
    if loop.threads == 1:
        for chunk in range(first, last):
            compare_part(state, chunk, start, stop, first_new, opened_at, 0)
    else:
        for chunk in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            compare_part(state, chunk, start, stop, first_new, opened_at, begin_chunk(&loop))
    end_loop(&loop)


cdef void reduce_bounds_of_chunk(State* state, Py_ssize_t chunk, int thread) noexcept nogil:
    """Lower bounds of a chunk's points: the last center has become one of the others."""
    cdef Batch batch
    cdef Py_ssize_t i, m, last = state.centers.n - 1
    batch.size = 0
    for i in range(chunk * CHUNK, min(state.points.n, (chunk + 1) * CHUNK)):
        add_to_batch(&batch, i, -1.0)
        if batch.size < state.scratch.batch and i + 1 < min(state.points.n, (chunk + 1) * CHUNK):
            continue
        state.backend.two_nearest(state, &batch, &state.centers.packed, last, last + 1, thread)
        for m in range(batch.size):
            if state.points.labels[batch.points[m]] != last:
                reduce_lower_bounds(state, batch.points[m], lower_bound(batch.least[m] - batch.error[m]))
        batch.size = 0


cdef void reduce_bounds_to_last(State* state, int threads) noexcept nogil:
    """Compare all points with the last center, which is new, where distances between centers are not known."""
    cdef Py_ssize_t chunk, n_chunks = (state.points.n + CHUNK - 1) // CHUNK
    cdef ParallelLoop loop = begin_loop(n_chunks, threads)
    for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
        reduce_bounds_of_chunk(state, chunk, begin_chunk(&loop))
    end_loop(&loop)
