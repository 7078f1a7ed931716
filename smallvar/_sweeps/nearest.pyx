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

from cython.parallel cimport prange
from libc.stdint cimport uintptr_t
from libc.string cimport memchr, memset

from smallvar._sweeps.dense cimport dense_backend
from smallvar._sweeps.fast_centers cimport clear_fast_centers
from smallvar._sweeps.kernels cimport (
    LANES_SINGLE,
    PANEL,
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
from smallvar._sweeps.rows cimport is_sparse, poll_signals, rows_of
from smallvar._sweeps.sparse cimport SPARSE_PAD, sparse_backend
from smallvar._sweeps.state cimport (
    BATCH,
    BIG,
    CHUNK,
    WORK,
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

import os

import numpy as np

cdef enum:
    BATCH_BYTES = 1 << 18   # of all tiles of a batch, at most, unless there is only one: a part of the cache
    LISTED_POINTS = 128     # points whose distances to their assigned centers are computed together
    ALMOST_ALL = 16         # a second test that fewer than one in so many pass is not made for the rest of a chunk
    LITTLE = 768            # work of comparing a point with all centers, below which there is no second test;
    OVERHEAD = 6            # a center counts as its columns and so many more
    FLOAT64_PER_COORDINATE = 6  # memory for one coordinate of a center, in all tables, sums and copies, at most

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


cdef void pack_centers(State* state, Py_ssize_t first, int n_threads) noexcept nogil:
    """Bring what approximate distances are computed from up to date, for the centers from ``first`` on."""
    cdef Py_ssize_t size = (state.centers.n - first) * state.points.d
    state.backend.pack(state, first, n_threads if size > PAYS else 1)


def check_memory(k, d):
    """Raise where the dense centers of sparse rows, and what is computed from them, would not fit this machine."""
    wanted = FLOAT64_PER_COORDINATE * 8 * int(k) * int(d)
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every system
        return
    if wanted > memory:
        raise MemoryError(
            f"{k} clusters of {d} columns take {wanted} bytes, more than the {memory} of this machine, since centers "
            "are dense: take a larger lam, set max_clusters, or make fewer columns (sklearn's TruncatedSVD)"
        )


cdef void* aligned(const unsigned char[::1] array) noexcept:
    """The first cache line of an array that has 64 bytes more than are needed."""
    return <void*> ((<uintptr_t> &array[0] + 63) // 64 * 64)


cdef class NearestSweep:
    """Points, centers and bounds of a fit, and the sweep that assigns each point to its nearest center.

    X : IN array (n, d), float32 or float64, any strides, may be read-only; or sparse rows, as rows_of takes them
    weight : IN array (n,) float64 in visiting order, or None
    order : IN array (n,) intp, a permutation: the i-th point visited is row order[i]; None: as given
    label : INOUT array (n,) int32 in visiting order
    frame : has ``origin``, array (d,) float64, and ``scale``, a power of two, so that (X - origin) scale is in [-1, 1],
        and ``rounding``, the squared distance up to which two points may be the same
    capacity : int, memory for this many centers
    bounds : bool, keep bounds of the points (else every sweep computes all distances)
    """

    def __init__(self, X, weight, order, int[::1] label, frame, int n_threads, Py_ssize_t capacity, bint bounds):
        cdef const double[::1] origin = frame.origin
        cdef State* state = &self.state
        cdef Py_ssize_t n = X.shape[0], d = X.shape[1]
        cdef float[::1] bound
        if label.shape[0] != n or origin.shape[0] != d:
            raise ValueError("label and origin must match X")
        self.label_array, self.frame = np.asarray(label), frame
        self.arrays = [X, weight, order, np.asarray(origin)]
        state.points.rows = rows_of(X, weight, order)
        state.points.n, state.points.d, state.points.labels = n, d, &label[0]
        state.frame.origin, state.frame.scale, state.frame.rounding = &origin[0], frame.scale, frame.rounding
        state.backend = sparse_backend() if is_sparse(&state.points.rows) else dense_backend()
        state.centers.single = True
        state.penalty.lam, state.penalty.limit = np.inf, BIG
        self.n_threads = n_threads
        self.n_chunks = (n + CHUNK - 1) // CHUNK
        self.min_fast_centers = MIN_FAST_CENTERS
        self.allocate_results()
        self.allocate_scratch()
        if bounds:
            bound = self.keep(np.full(2 * n, BIG, dtype=np.float32))
            state.bounds.upper_bounds = &bound[0]
            state.bounds.lower_bounds = &bound[n]
        self.reserve(capacity)

    cdef keep(self, array):
        self.arrays.append(array)
        return array

    cdef allocate_results(self):
        """Memory for what each chunk finds."""
        cdef State* state = &self.state
        cdef Py_ssize_t chunks = self.n_chunks
        cdef int[::1] ints = self.keep(np.zeros(3 * chunks, dtype=np.int32))
        cdef double[::1] doubles = self.keep(np.zeros(chunks))
        cdef Py_ssize_t[::1] sizes = self.keep(np.zeros(2 * chunks, dtype=np.intp))
        cdef unsigned short[::1] offsets = self.keep(np.empty(2 * chunks * CHUNK, dtype=np.uint16))
        cdef int[::1] moved_from = self.keep(np.empty(chunks * CHUNK, dtype=np.int32))
        state.results.n_moved = &ints[0]
        state.results.n_exceeding = &ints[chunks]
        state.results.n_ambiguous = &ints[2 * chunks]
        state.results.farthest_distance = &doubles[0]
        state.results.farthest = &sizes[0]
        state.results.n_approximate = &sizes[chunks]
        state.results.moved = &offsets[0]
        state.results.exceeding = &offsets[chunks * CHUNK]
        state.results.moved_from = &moved_from[0]

    cdef allocate_scratch(self):
        """Memory of each thread for the tiles of a batch; of sparse rows zeros, for expanded rows."""
        cdef State* state = &self.state
        # a float64 tile takes as much, for half the points; and so does one of exact distances of sparse rows
        cdef Py_ssize_t tile_bytes = LANES_SINGLE * <Py_ssize_t> sizeof(float) * state.points.d
        cdef Py_ssize_t tiles = tiles_of_batch(state.points.d)
        cdef unsigned char[::1] memory
        state.scratch.size = tile_bytes * tiles + 64
        state.scratch.batch = LANES_SINGLE * tiles
        memory = self.keep(np.zeros(state.scratch.size * self.n_threads + 64, dtype=np.uint8))
        state.scratch.memory = <char*> aligned(memory)

    cpdef reserve(self, Py_ssize_t capacity):
        """Make memory for this many centers; those that are there stay."""
        cdef State* state = &self.state
        cdef Py_ssize_t k = min(state.centers.n, self.capacity), d = state.points.d
        cdef double[:, ::1] coordinates
        cdef float[:, ::1] tables
        cdef int[::1] fast
        cdef unsigned char[::1] is_fast
        if capacity <= self.capacity:
            return
        if is_sparse(&state.points.rows):
            check_memory(capacity, d)
        capacity = (capacity // PANEL + 2) * PANEL  # full panels, as dense.pyx packs centers, and some to spare
        arrays = {
            "coordinates": np.zeros((capacity, d)),
            "tables": np.full((7, capacity), BIG, dtype=np.float32),
            "fast": np.zeros(capacity, dtype=np.int32),
            "is_fast": np.zeros(capacity, dtype=np.uint8),
        }
        if self.center_arrays is not None:
            arrays["coordinates"][:k] = self.center_arrays["coordinates"][:k]
            arrays["tables"][:, :k] = self.center_arrays["tables"][:, :k]
            arrays["fast"][:state.fast.n] = self.center_arrays["fast"][:state.fast.n]
            arrays["is_fast"][:k] = self.center_arrays["is_fast"][:k]
        self.center_arrays, self.capacity = arrays, capacity
        coordinates, tables = arrays["coordinates"], arrays["tables"]
        fast, is_fast = arrays["fast"], arrays["is_fast"]
        state.centers.coordinates = &coordinates[0, 0]
        state.bounds.center_shift, state.bounds.max_other_shift = &tables[0, 0], &tables[1, 0]
        state.bounds.max_other_shift_fast, state.bounds.center_half_distances = &tables[2, 0], &tables[3, 0]
        state.bounds.new_center_half_distances = &tables[4, 0]
        state.bounds.last_new_center_distances, state.bounds.batch_distances = &tables[5, 0], &tables[6, 0]
        state.fast.indices, state.fast.is_fast = &fast[0], &is_fast[0]
        self.reserve_packed()

    cdef reserve_packed(self):
        """Memory for what approximate distances are computed from, filled anew."""
        cdef State* state = &self.state
        cdef Py_ssize_t d = state.points.d, stride = self.capacity, bytes_each = 4 if state.centers.single else 8
        cdef bint sparse = is_sparse(&state.points.rows)
        cdef Py_ssize_t pad = SPARSE_PAD if sparse else 0
        cdef unsigned char[::1] values, norms
        cdef double[::1] doubles
        if sparse:
            stride = (self.capacity + SPARSE_PAD - 1) // SPARSE_PAD * SPARSE_PAD
        self.packed_arrays = []
        for table in range(1 if sparse else 2):  # of all centers, and of dense rows that of the fast ones
            values = np.zeros(bytes_each * (d * stride + pad) + 64, dtype=np.uint8)
            norms = np.zeros(bytes_each * (stride + pad) + 64, dtype=np.uint8)
            self.packed_arrays += [np.asarray(values), np.asarray(norms)]
            if table == 0:
                state.centers.packed.values, state.centers.packed.norms = aligned(values), aligned(norms)
                state.centers.packed.stride = stride
            else:
                state.fast.packed.values, state.fast.packed.norms = aligned(values), aligned(norms)
                state.fast.packed.stride = stride
        if sparse:
            state.scratch.stride = stride + SPARSE_PAD
            doubles = np.zeros(stride + self.n_threads * state.scratch.stride)
            self.packed_arrays.append(np.asarray(doubles))
            state.centers.squared_norms, state.scratch.distances = &doubles[0], &doubles[stride]
        with nogil:
            self.pack(0)
            if state.fast.n > 0:
                state.backend.copy_fast(state)

    cdef void pack(self, Py_ssize_t first) noexcept nogil:
        """Bring what approximate distances are computed from up to date, for the centers from ``first`` on."""
        pack_centers(&self.state, first, self.n_threads)

    @property
    def k(self):
        """Number of centers."""
        return self.state.centers.n

    @property
    def centers(self):
        """Copy of the centers, (k, d)."""
        return self.center_arrays["coordinates"][:self.state.centers.n].copy()

    @property
    def labels(self):
        """Labels in visiting order, the caller's array."""
        return self.label_array

    @property
    def n_approximate(self):
        """Distances that were approximated in the last sweep."""
        cdef Py_ssize_t c, total = 0
        for c in range(self.n_chunks):
            total += self.state.results.n_approximate[c]
        return total

    @property
    def needs_float64(self):
        """Whether so many points were ambiguous in the last sweep that float64 pays: more than one in 50."""
        cdef Py_ssize_t c, total = 0
        for c in range(self.n_chunks):
            total += self.state.results.n_ambiguous[c]
        return self.state.centers.single and 50 * total > self.state.points.n

    def use_float64(self):
        """Approximate distances in float64 from now on; bounds still hold."""
        if self.state.centers.single:
            self.state.centers.single = False
            self.state.scratch.batch = self.state.scratch.batch // 2  # in the same memory
            self.reserve_packed()

    def set_centers(self, const double[:, ::1] centers):
        """Replace all centers; bounds no longer hold."""
        cdef State* state = &self.state
        cdef Py_ssize_t k, j, d = state.points.d
        if centers.shape[1] != d:
            raise ValueError(f"centers must have {d} columns, got {centers.shape[1]}")
        clear_fast_centers(state)
        state.centers.n = 0
        self.reserve(centers.shape[0])
        state.centers.n = centers.shape[0]
        for k in range(state.centers.n):
            for j in range(d):
                state.centers.coordinates[k * d + j] = centers[k, j]
        self.pack(0)
        state.bounds.valid = False
        state.bounds.shifts_taken = False
        state.bounds.opened = False

    def assign(self):
        """One sweep: the nearest center of every point; opens none."""
        cdef Py_ssize_t first = 0, last
        with nogil:
            while first < self.n_chunks:
                last = min(self.n_chunks, first + self.chunks_at_once())
                self.assign_chunks(first, last)
                # + 2: the row itself is read once or twice
                self.check_signals((last - first) * CHUNK * (self.state.centers.n + 2))
                first = last
        self.state.bounds.shifts_taken = True

    cdef void assign_chunks(self, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
        cdef State* state = &self.state
        cdef Py_ssize_t chunk
        cdef ParallelLoop loop = begin_loop(last - first, self.threads_for((last - first) * CHUNK))
        if loop.threads == 1:
            for chunk in range(first, last):
                assign_chunk(state, chunk, 0)
        else:
            for chunk in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                assign_chunk(state, chunk, begin_chunk(&loop))
        end_loop(&loop)

    cdef Py_ssize_t chunks_at_once(self) noexcept nogil:
        """Chunks between two checks for signals, in a sweep that may need every distance.

        At least two for each thread; the rest of the work on a point counts as 64 distances.
        """
        return max(
            <Py_ssize_t> 2 * self.n_threads, WORK // (CHUNK * (self.state.centers.n + 64) * self.state.points.d)
        )

    cdef Py_ssize_t chunks_of_rows(self) noexcept nogil:
        """Chunks between two checks for signals, where each row is read once."""
        return max(<Py_ssize_t> 1, WORK // (CHUNK * self.state.points.d))

    cdef int check_signals(self, Py_ssize_t rows) except -1 nogil:
        """Raise KeyboardInterrupt if Ctrl-C was pressed, after some tenths of a second of work.

        rows : distances computed, or rows read, since the last call
        """
        return poll_signals(&self.work, rows * self.state.points.d, WORK)

    cdef int threads_for(self, Py_ssize_t points) noexcept nogil:
        """One thread where waking others would cost more time than it saves."""
        return threads_worth(&self.state, points, self.n_threads)
