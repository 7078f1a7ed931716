"""Points, centers and bounds of a fit in numpy's memory, and sweeps over them; what a sweep does is in nearest.pyx."""

from cython.parallel cimport prange
from libc.stdint cimport uintptr_t

from smallvar._sweeps.dense cimport dense_backend
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
from smallvar._sweeps.rows cimport is_sparse, poll_signals, rows_of
from smallvar._sweeps.sparse cimport SPARSE_PAD, sparse_backend
from smallvar._sweeps.state cimport BIG, CHUNK, WORK, State

import os
from contextlib import suppress

import numpy as np

cdef enum:
    FLOAT64_PER_COORDINATE = 6  # memory for one coordinate of a center, in all tables, sums and copies, at most
    FLOAT64_IN_TABLES = 2       # the same in a sweep that neither opens clusters nor moves them
    HARDLY_ANY = 1 << 26        # bytes that are there, without asking the system


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

    cpdef reserve(self, Py_ssize_t capacity, Py_ssize_t spare=0, int parts=1):
        """Make memory for this many centers, and some to spare where memory is not short; those that are there stay.

        Centers of sparse rows may take one of so many ``parts`` of the memory.
        """
        cdef State* state = &self.state
        cdef Py_ssize_t k = min(state.centers.n, self.capacity), d = state.points.d
        cdef double[:, ::1] coordinates
        cdef float[:, ::1] tables
        cdef int[::1] fast
        cdef unsigned char[::1] is_fast
        if capacity <= self.capacity:
            return
        if is_sparse(&state.points.rows):
            each = FLOAT64_IN_TABLES if state.bounds.upper_bounds == NULL else FLOAT64_PER_COORDINATE
            spare = min(spare, check_memory(capacity, d, each, 12 * k * d, parts) - capacity)
        capacity = ((capacity + spare) // PANEL + 2) * PANEL  # full panels, as dense.pyx packs centers, and some more
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
        """Whether approximate distances in float64 would take less time."""
        return float64_pays(&self.state, self.n_chunks)

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
        return threads_worth(&self.state, points, self.n_threads)
