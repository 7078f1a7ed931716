"""The nearest center of every point, with as few distances as bounds allow (Hamerly 2010).

For each point there is an upper bound u of the distance to its assigned center z, and a lower bound l of the distance
to every other center. h_z is half the distance from center z to its nearest other center. A point keeps its label
without any distance while

    u < max(l, h_z),

and, where there is a penalty, u is below that as well: else the point may exceed it (sv_filter and the others, simd.h).

With u < l no other center is nearer. With u < h_z neither: the triangle inequality gives any other center a distance
of at least 2 h_z - u > u. When centers move, u grows by the shift of z and l falls by the largest shift of another
center.

A sweep visits the points in chunks. Points that fail the test get a fresh u and are tested again. Those that fail
again are compared with all centers: approximately, in batches, with a bound on the error; where the two nearest centers
differ by less than twice that error the point is *ambiguous*, and exact distances decide. So labels depend neither on
chunks nor on threads nor on the instruction set.

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
    lower_bound,
    record_move,
    set_lower_bounds,
    upper_bound,
    weight_at,
)
from smallvar._sweeps.tolerances cimport DISTANCE_MARGIN, FARTHEST_MARGIN, PENALTY_MARGIN

import os

import numpy as np

cdef enum:
    TILE_BYTES = 1 << 18    # of the points of a batch, at most: a part of the cache
    TILE = 16               # points of a batch are a multiple of this
    LISTED = 128            # points whose distances to their assigned centers are computed together
    NUMBERS = 6             # numbers of 8 bytes for each center and column, of all there is, at most

cdef enum:                  # what a chunk's flags say of a point
    EXCEEDS = 2             # beyond the penalty from every center; 0 or 1 are those of sv_filter


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
    unsigned char flags[CHUNK]


cdef bint exceeds_penalty(const State* state, Py_ssize_t i, Py_ssize_t k, double distance, int thread) noexcept nogil:
    """Whether point i is beyond the penalty from center k, in exact arithmetic.

    distance : squared, good to DISTANCE_MARGIN or too large
    """
    cdef double error
    if weight_at(state, i) * distance < state.penalty.lam * (1.0 - PENALTY_MARGIN):
        return False
    state.backend.distances(state, i, k, k + 1, &distance, &error)
    if not is_beyond(state, i, distance + error):
        return False
    return is_beyond(state, i, distance - error) or is_beyond(
        state, i, state.backend.exact_distance(state, i, k, thread)
    )


cdef void assign_batch(State* state, Chunk* chunk) noexcept nogil:
    """Compare the failed points with all centers: labels and bounds, but for the ambiguous ones."""
    cdef Batch* batch = &chunk.failed
    cdef Ambiguous* ambiguous = &chunk.ambiguous
    cdef double second[BATCH]
    cdef double distances[BATCH]
    cdef float upper[BATCH]
    cdef float lower[BATCH]
    cdef unsigned short offsets[BATCH]      # of the points that get another label
    cdef unsigned short places[BATCH]       # and their places in the batch
    cdef int centers[BATCH]
    cdef double square = state.frame.scale * state.frame.scale
    cdef Py_ssize_t m, i, place, n_new = 0
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
            places[n_new] = <unsigned short> m
            offsets[n_new] = <unsigned short> (i - chunk.start)
            centers[n_new] = batch.nearest[m]
            n_new += 1
            if batch.nearest[m] != state.points.labels[i]:
                record_move(state, i, batch.nearest[m])
    # of sparse rows, one distance more would cost a tenth of all approximate ones, which are bound enough
    if is_sparse(&state.points.rows):
        for m in range(n_new):
            place = places[m]
            distances[m] = max(0.0, batch.least[place] + batch.error[place]) / square
    else:
        state.backend.assigned_distances(state, chunk.start, offsets, n_new, centers, distances)
    for m in range(n_new):
        batch.assigned[places[m]] = distances[m]
    if state.bounds.upper_bounds != NULL:
        sv_upper(batch.size, batch.assigned, state.frame.scale, upper)
        sv_lower(batch.size, second, lower)
        for m in range(batch.size):
            state.bounds.upper_bounds[batch.points[m]] = upper[m]
            set_lower_bounds(state, batch.points[m], lower[m])
    if state.penalty.find_exceeding:
        for m in range(batch.size):
            i = batch.points[m]
            if exceeds_penalty(state, i, state.points.labels[i], batch.assigned[m], chunk.thread):
                chunk.flags[i - chunk.start] = EXCEEDS
    state.results.n_approximate[chunk.number] += batch.size * state.centers.n
    batch.size = 0


cdef void resolve_ambiguous(State* state, Chunk* chunk) noexcept nogil:
    """Labels of the ambiguous points, by exact distances.

    Their lower bounds are known already: the second approximate distance, less its error, is a bound for all centers
    but the approximately nearest one, and if that is not the nearest it is no nearer than the one that is.
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
    cdef double square = state.frame.scale * state.frame.scale, assigned, other, error, distance
    cdef Py_ssize_t m, i
    cdef int label, old
    state.backend.two_nearest(state, batch, &state.fast.packed, 0, state.fast.n, chunk.thread)
    for m in range(batch.size):
        i = batch.points[m]
        old = state.points.labels[i]
        label = state.fast.indices[batch.nearest[m]]
        distance = batch.assigned[m]
        assigned = distance * square
        error = batch.error[m]
        # the least distance may be that of the assigned center, if that is fast: then the second counts
        other = (batch.second[m] if label == old else batch.least[m]) - error
        if other > assigned * (1.0 + DISTANCE_MARGIN):
            label = old
        elif (
            label != old
            and other + 2.0 * error < assigned * (1.0 - DISTANCE_MARGIN)
            and batch.second[m] - batch.least[m] > 2.0 * error
        ):
            distance = state.backend.exact_distance(state, i, label, chunk.thread)
        else:
            label = nearest_fast_center(state, i, old, &distance, chunk.thread)
            state.results.n_ambiguous[chunk.number] += 1
        if label != old:
            assigned *= 1.0 - DISTANCE_MARGIN
            other = min(assigned, batch.second[m] - error)
            # if the old center is slow, it is one of the others from now on
            state.bounds.lower_bounds[i] = min(state.bounds.lower_bounds[i], lower_bound(assigned))
            record_move(state, i, label)
            state.bounds.upper_bounds[i] = upper_bound(distance, state.frame.scale)
        state.bounds.lower_bounds_fast[i] = lower_bound(other)
        if state.penalty.find_exceeding and exceeds_penalty(state, i, label, distance, chunk.thread):
            chunk.flags[i - chunk.start] = EXCEEDS
    state.results.n_approximate[chunk.number] += batch.size * state.fast.n
    batch.size = 0


cdef void test_again(State* state, Chunk* chunk, const unsigned short* listed, Py_ssize_t n) noexcept nogil:
    """Compute upper bounds of at most LISTED points from their distances, and test them again; batch those that fail.

    A batch that is full is handled at once, while its rows are in the cache.
    """
    cdef double distances[LISTED]
    cdef float upper[LISTED]
    cdef float lower[LISTED]
    cdef float lower_fast[LISTED]
    cdef int centers[LISTED]
    cdef int verdict[LISTED]                # 0: passes, 1: only fast centers can be nearer, 2: neither
    cdef Py_ssize_t q, i
    for q in range(n):
        i = chunk.start + listed[q]
        centers[q] = state.points.labels[i]
        lower[q] = state.bounds.lower_bounds[i]
        lower_fast[q] = state.bounds.lower_bounds_fast[i]
    state.backend.assigned_distances(state, chunk.start, listed, n, centers, distances)
    sv_upper(n, distances, state.frame.scale, upper)
    sv_filter_again(n, centers, upper, lower, lower_fast, state.bounds.center_half_distances,
                    state.bounds.new_center_half_distances, state.bounds.opened, verdict)
    for q in range(n):
        i = chunk.start + listed[q]
        state.bounds.upper_bounds[i] = upper[q]
        if verdict[q] == 2:
            add_to_batch(&chunk.failed, i, distances[q])
            if chunk.failed.size == state.scratch.batch:
                assign_batch(state, chunk)
        elif verdict[q] == 1:
            add_to_batch(&chunk.failed_fast, i, distances[q])
            if chunk.failed_fast.size == state.scratch.batch:
                assign_batch_to_fast(state, chunk)
        elif state.penalty.find_exceeding:
            chunk.flags[listed[q]] = EXCEEDS * exceeds_penalty(state, i, centers[q], distances[q], chunk.thread)


cdef void assign_by_bounds(State* state, Chunk* chunk) noexcept nogil:
    """Take the shifts of the centers off the bounds, and compare the points that fail the test."""
    cdef unsigned short listed[CHUNK + 8]   # sv_list may write 8 entries too many
    cdef Py_ssize_t start = chunk.start, size = chunk.size, q = 0, n_listed
    cdef float* upper = state.bounds.upper_bounds + start
    cdef float* lower = state.bounds.lower_bounds + start
    cdef const int* labels = state.points.labels + start
    cdef const double* weight = NULL if state.points.rows.weight == NULL else state.points.rows.weight + start
    if state.bounds.opened or (weight != NULL and state.penalty.find_exceeding):
        sv_filter_opened(size, upper, lower, labels, state.bounds.center_shift, state.bounds.max_other_shift,
                         state.bounds.center_half_distances, state.bounds.new_center_half_distances,
                         state.bounds.last_new_center_distances, weight, state.fast.has_new, state.penalty.limit,
                         chunk.flags)
    else:
        sv_filter(size, upper, lower, labels, state.bounds.center_shift, state.bounds.max_other_shift,
                  state.bounds.center_half_distances, state.penalty.limit, chunk.flags)
    if state.fast.n > 0:
        sv_filter_fast(size, upper, state.bounds.lower_bounds_fast + start, labels, state.bounds.max_other_shift_fast,
                       state.bounds.center_half_distances, state.bounds.last_new_center_distances,
                       state.bounds.opened, chunk.flags)
    n_listed = sv_list(size, chunk.flags, listed)
    if state.penalty.find_exceeding:
        memset(chunk.flags, 0, size)
    while q < n_listed:
        test_again(state, chunk, listed + q, min(<Py_ssize_t> LISTED, n_listed - q))
        q += LISTED
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
            add_to_batch(&chunk.failed, i, -1.0)
            if chunk.failed.size == state.scratch.batch:
                assign_batch(state, &chunk)
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
        # of weight 0 both sides may be 0, as best is for lam 0
        if not weight_at(state, i) * <double> upper_bounds[i] * upper_bounds[i] >= best * square:
            continue
        state.backend.distances(state, i, state.points.labels[i], state.points.labels[i] + 1, &distance, &error)
        upper_bounds[i] = upper_bound(distance + error, state.frame.scale)
        if error > 0.0 and weight_at(state, i) * (distance + error) >= best:
            distance = state.backend.exact_distance(state, i, state.points.labels[i], chunk.thread)
        if not is_beyond(state, i, distance):
            continue
        distance *= weight_at(state, i)
        if distance > best or (distance == best and i < farthest):
            best, farthest = distance, i
    state.results.farthest[chunk.number] = farthest
    state.results.farthest_distance[chunk.number] = best


# ---- the sweep -------------------------------------------------------------------------------------------------------


def check_memory(k, d):
    """Raise where the dense centers of sparse rows, and what is computed from them, would not fit this machine."""
    wanted = NUMBERS * 8 * int(k) * int(d)
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

    Parameters
    ----------
    X : IN array (n, d), float32 or float64, any strides, may be read-only; or sparse rows, as rows_of takes them
    weight : IN array (n,) float64 in visiting order, or None
    order : IN array (n,) intp, a permutation: the i-th point visited is row order[i]; None: as given
    label : INOUT array (n,) int32 in visiting order
    frame : has ``origin``, array (d,) float64, and ``scale``, a power of two, so that (X - origin) scale is in [-1, 1],
        and ``rounding``, the squared distance up to which two points may be the same
    n_threads : int
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
        self.arrays = [X, weight, order, np.asarray(label), np.asarray(origin)]
        state.points.rows = rows_of(X, weight, order)
        state.points.n, state.points.d, state.points.labels = n, d, &label[0]
        state.frame.origin, state.frame.scale, state.frame.tolerance = &origin[0], frame.scale, frame.rounding
        state.backend = sparse_backend() if is_sparse(&state.points.rows) else dense_backend()
        state.centers.single = True
        state.penalty.lam, state.penalty.limit = np.inf, BIG
        self.n_threads = n_threads
        self.n_chunks = (n + CHUNK - 1) // CHUNK
        self.min_fast_centers = 96
        self.allocate_results()
        self.allocate_scratch()
        if bounds:
            bound = self.keep(np.full(3 * n, BIG, dtype=np.float32))
            state.bounds.upper_bounds = &bound[0]
            state.bounds.lower_bounds = &bound[n]
            state.bounds.lower_bounds_fast = &bound[2 * n]
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
        """Memory of each thread for tiles of points (dense rows) or one expanded row (sparse rows: zeros)."""
        cdef State* state = &self.state
        cdef Py_ssize_t d = state.points.d
        cdef Py_ssize_t tiles = max(<Py_ssize_t> 1, min(<Py_ssize_t> BATCH // TILE, TILE_BYTES // (64 * d)))
        cdef unsigned char[::1] memory
        state.scratch.size = 64 * (d * tiles + 1)
        state.scratch.batch = TILE * tiles
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
        capacity = (capacity + 2 * PANEL) // PANEL * PANEL
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
        cdef unsigned char[::1] values, norms
        cdef double[::1] doubles
        if sparse:
            stride = (self.capacity + SPARSE_PAD - 1) // SPARSE_PAD * SPARSE_PAD
        self.packed_arrays = []
        for table in range(1 if sparse else 2):
            values = np.zeros(bytes_each * (d * stride + SPARSE_PAD) + 64, dtype=np.uint8)
            norms = np.zeros(bytes_each * (stride + SPARSE_PAD) + 64, dtype=np.uint8)
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
        cdef Py_ssize_t size = (self.state.centers.n - first) * self.state.points.d
        self.state.backend.pack(&self.state, first, self.n_threads if size > PAYS else 1)

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
        return self.arrays[3]

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
            self.state.scratch.batch = self.state.scratch.batch // 2
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
        """Chunks between two checks for signals, in a sweep that may need every distance."""
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
        return self.n_threads if points * (self.state.centers.n * self.state.points.d + 16) > PAYS else 1
