"""Sweeps over nearest centers: their memory, and the class that wraps it; what a sweep does is in nearest.pyx.

A ``Sweep`` is C memory and needs no Python objects: the functions of smallvar/cython_api.pxd run on it, too. Those that
return a bint return whether there was memory.
"""

from cython.parallel cimport prange
from libc.math cimport INFINITY
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy, memset

from smallvar._sweeps.dense cimport dense_backend
from smallvar._sweeps.memory cimport Memory, free_all, overflows, take, widen
from smallvar._sweeps.nearest cimport (
    MIN_FAST_CENTERS,
    assign_chunk,
    clear_fast_centers,
    float64_pays,
    pack_centers,
    threads_worth,
    tiles_of_batch,
)
from smallvar._sweeps.kernels cimport LANES_SINGLE, PANEL
from smallvar._sweeps.parallel cimport ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport Rows, is_sparse, poll_signals, rows_of
from smallvar._sweeps.sparse cimport SPARSE_PAD, sparse_backend
from smallvar._sweeps.state cimport BIG, CHUNK, WORK, ChunkResults, State

import os
from contextlib import suppress

import numpy as np

cdef enum:
    FLOAT64_PER_COORDINATE = 6  # memory for one coordinate of a center, in all tables, sums and copies, at most
    FLOAT64_IN_TABLES = 2       # the same in a sweep that neither opens clusters nor moves them
    HARDLY_ANY = 1 << 26        # bytes that are there, without asking the system
    LINE = 64                   # bytes of a cache line, at which packed centers and scratch memory begin
    # blocks of memory that grow with the number of centers
    COORDINATES = 0
    TABLES = 1                  # seven of them
    INDICES = 8
    IS_FAST = 9
    REMAP = 10
    VALUES = 11                 # from here on what is computed from centers, and not kept where a block grows
    NORMS = 12
    FAST_VALUES = 13
    FAST_NORMS = 14
    SQUARED_NORMS = 15
    DISTANCES = 16


def available_memory():
    """Bytes that this process may still take: of the machine, and of the container that it may be in."""
    found = [1 << 62]
    with suppress(AttributeError, ValueError, OSError):  # not on every system
        page = os.sysconf("SC_PAGE_SIZE")
        found.append(os.sysconf("SC_PHYS_PAGES") * page)
        with open("/proc/meminfo") as file:
            found += [1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable")]
        with open("/proc/self/statm") as file:
            resident = page * int(file.read().split()[1])
        for name in ("memory.max", "memory/memory.limit_in_bytes"):
            with suppress(ValueError, OSError), open("/sys/fs/cgroup/" + name) as file:  # "max": no limit
                found.append(int(file.read()) - resident)
    return min(found)


def check_memory(k, d, each=FLOAT64_PER_COORDINATE, held=0, parts=1):
    """How many dense centers of sparse rows, and what is computed from them, there is memory for; raise if not for k.

    each : numbers of 8 bytes for a coordinate;  held : bytes that there are already
    parts : of so many parts of the memory the centers may take one
    """
    each *= 8 * int(d)
    if k * each <= HARDLY_ANY:
        return 2 * k + HARDLY_ANY
    memory = (available_memory() + held) // parts
    if k * each > memory:
        most = f" to clusters of fewer than {parts} rows without max_clusters" if parts > 1 else ""
        raise MemoryError(
            f"{k} clusters of {d} columns take {k * each} bytes, since centers are dense, more than the {memory} bytes "
            f"available{most}: take a larger lam, set max_clusters, or make fewer columns (sklearn's TruncatedSVD)"
        )
    return memory // each


# ---- memory ----------------------------------------------------------------------------------------------------------


cdef inline void* aligned(void* block) noexcept nogil:
    """The first cache line of a block that has LINE bytes more than are needed."""
    return <void*> ((<uintptr_t> block + LINE - 1) // LINE * LINE)


cdef bint begin_sweep(
    Sweep* sweep, Memory* memory, const Rows* rows, int* labels, const double* origin, double scale, double rounding,
    bint bounds, int threads
) noexcept nogil:
    """Set up a sweep over rows with these labels, see State; it has no centers yet.

    memory : the caller's, who frees it, also where this fails
    bounds : keep bounds of the points, else every sweep computes all distances
    """
    cdef State* state = &sweep.state
    cdef Py_ssize_t i, tiles = tiles_of_batch(rows.d)
    # a float64 tile takes as much, for half the points; and so does one of exact distances of sparse rows
    cdef Py_ssize_t tile_bytes = LANES_SINGLE * <Py_ssize_t> sizeof(float) * rows.d
    memset(sweep, 0, sizeof(sweep[0]))
    sweep.memory, sweep.threads, sweep.n_chunks = memory, threads, (rows.n + CHUNK - 1) // CHUNK
    sweep.min_fast_centers, sweep.step = MIN_FAST_CENTERS, 4 * CHUNK * threads
    state.points.rows, state.points.n, state.points.d, state.points.labels = rows[0], rows.n, rows.d, labels
    state.frame.origin, state.frame.scale, state.frame.rounding = origin, scale, rounding
    state.backend = sparse_backend() if is_sparse(rows) else dense_backend()
    state.centers.single, state.penalty.lam, state.penalty.limit = True, INFINITY, BIG
    state.scratch.size, state.scratch.batch = tile_bytes * tiles + LINE, LANES_SINGLE * tiles
    state.scratch.memory = <char*> take(memory, threads, state.scratch.size + LINE, 1)  # zeros, for expanded rows
    if state.scratch.memory == NULL or not allocate_results(sweep):
        return False
    state.scratch.memory = <char*> aligned(state.scratch.memory)
    if bounds:
        state.bounds.upper_bounds = <float*> take(memory, 2, rows.n, sizeof(float))
        if state.bounds.upper_bounds == NULL:
            return False
        state.bounds.lower_bounds = state.bounds.upper_bounds + rows.n
        for i in range(2 * rows.n):
            state.bounds.upper_bounds[i] = BIG
    return True


cdef bint allocate_results(Sweep* sweep) noexcept nogil:
    """Memory for what each chunk finds."""
    cdef ChunkResults* results = &sweep.state.results
    cdef Py_ssize_t n = sweep.n_chunks
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


cdef bint reserve_fast_bounds(Sweep* sweep) noexcept nogil:
    """Memory for the lower bounds of fast centers; without it, there are none."""
    cdef float* bounds
    cdef Py_ssize_t i
    if sweep.state.bounds.lower_bounds_fast != NULL or sweep.state.backend.copy_fast == NULL:
        return True
    bounds = <float*> take(sweep.memory, 1, sweep.state.points.n, sizeof(float))
    if bounds == NULL:
        return False
    for i in range(sweep.state.points.n):
        bounds[i] = BIG
    sweep.state.bounds.lower_bounds_fast = bounds
    return True


cdef Py_ssize_t bytes_of(const Sweep* sweep, Py_ssize_t block, Py_ssize_t capacity, bint single) noexcept nogil:
    """Bytes of a block for so many centers, packed in float32 or float64."""
    cdef bint sparse = is_sparse(&sweep.state.points.rows)
    cdef Py_ssize_t d = sweep.state.points.d, packed = sizeof(float) if single else sizeof(double)
    # blocks begin on a cache line, and vectors may read SPARSE_PAD numbers beyond the last one
    cdef Py_ssize_t spare = LINE + SPARSE_PAD * <Py_ssize_t> sizeof(double)
    if block == COORDINATES:
        return sizeof(double) * capacity * d
    if block < VALUES:
        return capacity if block == IS_FAST else sizeof(int) * capacity
    # sparse rows have no fast centers
    if sparse and (block == FAST_VALUES or block == FAST_NORMS) or not sparse and block >= SQUARED_NORMS:
        return 0
    if block == DISTANCES:
        return sizeof(double) * (capacity + SPARSE_PAD) * sweep.threads
    if block == SQUARED_NORMS:
        return sizeof(double) * capacity
    return packed * capacity * (d if block == VALUES or block == FAST_VALUES else 1) + spare


cdef bint make_room(Sweep* sweep, Py_ssize_t capacity, Py_ssize_t first, bint single) noexcept nogil:
    """Memory of the blocks from ``first`` on for so many centers; those that are there stay, also where it fails."""
    cdef State* state = &sweep.state
    cdef Py_ssize_t m, k, kept, old = sweep.capacity
    cdef bint done = not overflows(capacity, state.points.d + 1)
    cdef float* table
    for m in range(first, BLOCKS):
        kept = bytes_of(sweep, m, old, single) if m < VALUES else 0
        done = done and widen(sweep.memory, &sweep.blocks[m], 1, kept, bytes_of(sweep, m, capacity, single), 1)
        if done and TABLES <= m < INDICES:
            # nothing is known of centers to come: no bound that is made of these excludes one
            table = <float*> sweep.blocks[m]
            for k in range(old, capacity):
                table[k] = BIG
    if done:
        sweep.capacity, state.centers.single = capacity, single
    if sweep.capacity > 0:
        set_pointers(sweep)
        pack_all(sweep)
    return done


cdef void set_pointers(Sweep* sweep) noexcept nogil:
    """What the passes over the points read and write, in the blocks."""
    cdef State* state = &sweep.state
    state.centers.coordinates, sweep.remap = <double*> sweep.blocks[COORDINATES], <int*> sweep.blocks[REMAP]
    state.bounds.center_shift = <float*> sweep.blocks[TABLES]
    state.bounds.max_other_shift = <float*> sweep.blocks[TABLES + 1]
    state.bounds.max_other_shift_fast = <float*> sweep.blocks[TABLES + 2]
    state.bounds.center_half_distances = <float*> sweep.blocks[TABLES + 3]
    state.bounds.new_center_half_distances = <float*> sweep.blocks[TABLES + 4]
    state.bounds.last_new_center_distances = <float*> sweep.blocks[TABLES + 5]
    state.bounds.batch_distances = <float*> sweep.blocks[TABLES + 6]
    state.fast.indices, state.fast.is_fast = <int*> sweep.blocks[INDICES], <unsigned char*> sweep.blocks[IS_FAST]
    state.centers.packed.values = aligned(sweep.blocks[VALUES])
    state.centers.packed.norms = aligned(sweep.blocks[NORMS])
    state.fast.packed.values = aligned(sweep.blocks[FAST_VALUES])
    state.fast.packed.norms = aligned(sweep.blocks[FAST_NORMS])
    state.centers.packed.stride = state.fast.packed.stride = sweep.capacity
    state.centers.squared_norms = <double*> sweep.blocks[SQUARED_NORMS]
    state.scratch.distances = <double*> sweep.blocks[DISTANCES]
    state.scratch.stride = sweep.capacity + SPARSE_PAD


cdef bint reserve(Sweep* sweep, Py_ssize_t capacity) noexcept nogil:
    """Make memory for so many centers, in full panels, as dense.pyx packs them, and some more."""
    if capacity <= sweep.capacity:
        return True
    return make_room(sweep, (capacity // PANEL + 2) * PANEL, COORDINATES, sweep.state.centers.single)


cdef void use_float64(Sweep* sweep) noexcept nogil:
    """Approximate distances in float64 from now on, where there is memory; bounds still hold."""
    if sweep.state.centers.single and make_room(sweep, sweep.capacity, VALUES, False):
        sweep.state.scratch.batch = sweep.state.scratch.batch // 2  # in the same memory


cdef void pack_all(Sweep* sweep) noexcept nogil:
    """Pack all centers anew, and the fast ones."""
    pack_centers(&sweep.state, 0, sweep.threads)
    if sweep.state.fast.n > 0:
        sweep.state.backend.copy_fast(&sweep.state)


cdef bint set_centers(Sweep* sweep, const double* centers, Py_ssize_t k) noexcept nogil:
    """Replace all centers; bounds no longer hold."""
    cdef State* state = &sweep.state
    clear_fast_centers(state)
    state.centers.n = 0
    if not reserve(sweep, k):
        return False
    state.centers.n = k
    memcpy(state.centers.coordinates, centers, k * state.points.d * sizeof(double))
    pack_centers(state, 0, sweep.threads)
    state.bounds.valid = state.bounds.shifts_taken = state.bounds.opened = False
    return True


# ---- passes ----------------------------------------------------------------------------------------------------------


cdef void assign_chunks(Sweep* sweep, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    """Nearest centers of the points of these chunks."""
    cdef State* state = &sweep.state
    cdef Py_ssize_t chunk
    cdef ParallelLoop loop = begin_loop(last - first, threads_worth(state, (last - first) * CHUNK, sweep.threads))
    if loop.threads == 1:
        for chunk in range(first, last):
            assign_chunk(state, chunk, 0)
    else:
        for chunk in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            assign_chunk(state, chunk, begin_chunk(&loop))
    end_loop(&loop)


# ---- the class -------------------------------------------------------------------------------------------------------


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

    def __cinit__(self, *args, **kwargs):
        self.state = &self.sweep.state

    def __init__(self, X, weight, order, int[::1] label, frame, int n_threads, Py_ssize_t capacity, bint bounds):
        cdef const double[::1] origin = frame.origin
        cdef Rows rows = rows_of(X, weight, order)
        if label.shape[0] != rows.n or origin.shape[0] != rows.d:
            raise ValueError("label and origin must match X")
        self.label_array, self.frame, self.arrays = np.asarray(label), frame, [X, weight, order, origin]
        self.n_threads = n_threads
        free_all(&self.memory)
        if not begin_sweep(
            &self.sweep, &self.memory, &rows, &label[0], &origin[0], frame.scale, frame.rounding, bounds, n_threads
        ):
            raise MemoryError(f"there is no memory for labels and bounds of {rows.n} rows")
        self.n_chunks = self.sweep.n_chunks
        self.reserve(capacity)

    def __dealloc__(self):
        free_all(&self.memory)

    cpdef reserve(self, Py_ssize_t capacity, Py_ssize_t spare=0, int parts=1):
        """Make memory for this many centers, and some to spare where memory is not short; those that are there stay.

        Centers of sparse rows may take one of so many ``parts`` of the memory.
        """
        cdef Py_ssize_t k = min(self.state.centers.n, self.sweep.capacity), d = self.state.points.d
        if capacity <= self.sweep.capacity:
            return
        if is_sparse(&self.state.points.rows):
            each = FLOAT64_IN_TABLES if self.state.bounds.upper_bounds == NULL else FLOAT64_PER_COORDINATE
            spare = min(spare, check_memory(capacity, d, each, 12 * k * d, parts) - capacity)
        if not reserve(&self.sweep, capacity + spare):
            raise MemoryError(f"there is no memory for {capacity} clusters of {d} columns")

    cdef void pack(self, Py_ssize_t first) noexcept nogil:
        """Bring what approximate distances are computed from up to date, for the centers from ``first`` on."""
        pack_centers(self.state, first, self.n_threads)

    @property
    def k(self):
        """Number of centers."""
        return self.state.centers.n

    @property
    def centers(self):
        """Copy of the centers, (k, d)."""
        cdef Py_ssize_t k = self.state.centers.n, d = self.state.points.d
        return np.array(<double[:k, :d]> self.state.centers.coordinates) if k else np.empty((0, d))

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
        """Whether approximate distances in float64 would take less time."""
        return float64_pays(self.state, self.n_chunks)

    def use_float64(self):
        """Approximate distances in float64 from now on; bounds still hold."""
        use_float64(&self.sweep)

    def set_centers(self, const double[:, ::1] centers):
        """Replace all centers; bounds no longer hold."""
        if centers.shape[1] != self.state.points.d:
            raise ValueError(f"centers must have {self.state.points.d} columns, got {centers.shape[1]}")
        self.state.centers.n = 0
        self.reserve(centers.shape[0])
        set_centers(&self.sweep, &centers[0, 0], centers.shape[0])

    def assign(self):
        """One sweep: the nearest center of every point; opens none."""
        cdef Py_ssize_t first = 0, last
        with nogil:
            while first < self.n_chunks:
                last = min(self.n_chunks, first + self.chunks_at_once())
                assign_chunks(&self.sweep, first, last)
                # + 2: the row itself is read once or twice
                self.check_signals((last - first) * CHUNK * (self.state.centers.n + 2))
                first = last
        self.state.bounds.shifts_taken = True

    cdef Py_ssize_t chunks_at_once(self) noexcept nogil:
        """Chunks between two checks for signals, in a sweep that may need every distance.

        At least one for each thread; the rest of the work on a point counts as 64 distances.
        """
        return max(
            <Py_ssize_t> self.n_threads, WORK // (CHUNK * (self.state.centers.n + 64) * self.state.points.d)
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
        return threads_worth(self.state, points, self.n_threads)
