"""Distances of sparse rows to centers, so that labels are those of the dense array of the same numbers.

A row is compared with all centers at once: packed centers have a row for each column of the data, with the values of
all centers side by side, and each stored entry of the data adds its multiple of one of them (Gustavson's product).
Where such approximate distances do not decide, ``near_distance`` does, which is good to some roundings; where that is
not enough, the exact distance of the expanded row. An entry that is not stored adds nothing to a squared norm or to a
sum of rows, as a 0 would (see Layout in sums.pyx), so these are the same bits.
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL, sqrt

from smallvar._sweeps.parallel cimport ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport Rows, entries_of, entry
from smallvar._sweeps.state cimport CHUNK, Backend, Batch, Packed, State, memory_of, squared_distance
from smallvar._sweeps.tolerances cimport PRODUCT_UNDERFLOW, ROUNDOFF_DOUBLE, ROUNDOFF_SINGLE

cdef extern from "_sparse.h" nogil:
    void csr_distances_ff(const float*, const int*, Py_ssize_t, double, const float*, Py_ssize_t, const float*,
                          Py_ssize_t, float*)
    void csr_distances_df(const double*, const int*, Py_ssize_t, double, const float*, Py_ssize_t, const float*,
                          Py_ssize_t, float*)
    void csr_distances_fd(const float*, const int*, Py_ssize_t, double, const double*, Py_ssize_t, const double*,
                          Py_ssize_t, double*)
    void csr_distances_dd(const double*, const int*, Py_ssize_t, double, const double*, Py_ssize_t, const double*,
                          Py_ssize_t, double*)
    int csr_least_f(float*, Py_ssize_t, double*)
    int csr_least_d(double*, Py_ssize_t, double*)
    void csr_tile(const double*, const double*, Py_ssize_t, double*)

cdef enum:
    PACKED_COLUMNS = 64  # columns of the data that a thread packs at a time

cdef extern from *:
    """
    #define SMALLVAR_DISTANCE_UNDERFLOW 1e-300
    #define SMALLVAR_OBJECTIVE_ROUNDING 1e-11
    """
    # a squared distance, added to the error of near_distance: what float64 loses where products underflow
    const double DISTANCE_UNDERFLOW "SMALLVAR_DISTANCE_UNDERFLOW"
    # of a squared distance: what rounding may take from one in the objective; beyond, it is computed exactly
    const double OBJECTIVE_ROUNDING "SMALLVAR_OBJECTIVE_ROUNDING"


# ---- single distances ------------------------------------------------------------------------------------------------


cdef double near_distance(const State* state, Py_ssize_t i, Py_ssize_t k, double* error) noexcept nogil:
    """||x_i - c_k||^2 from the stored entries S alone: sum_S (x_j - c_j)^2 + (||c||^2 - sum_S c_j^2).

    OUT error : how far that may be from the exact distance, which carries d + 2 roundings itself
    """
    cdef const Rows* rows = &state.points.rows
    cdef const double* c = state.centers.coordinates + k * state.points.d
    cdef Py_ssize_t stop, start = entries_of(rows, i, &stop), m
    cdef double apart = 0.0, inside = 0.0, norm = state.centers.squared_norms[k], x, y, distance
    for m in range(start, stop):
        y = c[rows.column[m]]
        x = entry(rows, m) - y
        apart += x * x
        inside += y * y
    distance = max(0.0, apart + (norm - inside))
    error[0] = 2.0 * ROUNDOFF_DOUBLE * (
        (state.points.d + 8) * distance + 4.0 * (stop - start + 8) * (apart + norm)
    ) + DISTANCE_UNDERFLOW
    return distance


cdef double exact_distance(const State* state, Py_ssize_t i, Py_ssize_t k, int thread) noexcept nogil:
    """The exact squared distance, of the row expanded into the thread's memory, which is zero before and after."""
    cdef const Rows* rows = &state.points.rows
    cdef double* row = <double*> memory_of(state, thread)
    cdef Py_ssize_t stop, start = entries_of(rows, i, &stop), m, d = state.points.d
    cdef double distance
    for m in range(start, stop):
        row[rows.column[m]] = entry(rows, m)
    distance = squared_distance(<const double*> row, 1, state.centers.coordinates + k * d, d)
    for m in range(start, stop):
        row[rows.column[m]] = 0.0
    return distance


cdef void distances(
    const State* state, Py_ssize_t i, Py_ssize_t first, Py_ssize_t last, double* out, double* error
) noexcept nogil:
    """Squared distances of point i to centers first..last-1, good to some roundings."""
    cdef Py_ssize_t k
    for k in range(first, last):
        out[k - first] = near_distance(state, i, k, &error[k - first])


cdef void assigned_distances(
    const State* state, Py_ssize_t start, const unsigned short* offsets, Py_ssize_t n, const int* centers, double* out
) noexcept nogil:
    """Squared distances of points start + offsets to one center each, or slightly more."""
    cdef Py_ssize_t q
    cdef double error
    for q in range(n):
        out[q] = near_distance(state, start + offsets[q], centers[q], &error)
        out[q] += error


cdef double square_about(const Rows* rows, Py_ssize_t i, const double* place) noexcept nogil:
    """Squared distance of the stored entries of a row from a place that is 0 elsewhere."""
    cdef Py_ssize_t stop, m = entries_of(rows, i, &stop)
    cdef double total = 0.0, t
    while m < stop:
        t = entry(rows, m) - place[rows.column[m]]
        total += t * t
        m += 1
    return total


cdef void squares(const State* state, Py_ssize_t chunk, const double* place, double* out, int thread) noexcept nogil:
    """Squared distances of a chunk's points to their centers, or to one place where that is not NULL."""
    cdef Py_ssize_t start = chunk * CHUNK, i
    cdef double t, error
    cdef int z
    for i in range(start, min(state.points.n, start + CHUNK)):
        if place != NULL:
            t = square_about(&state.points.rows, i, place)
        else:
            z = state.points.labels[i]
            t = near_distance(state, i, z, &error)
            if error > 2.0 * ROUNDOFF_DOUBLE * (state.points.d + 8) * t + OBJECTIVE_ROUNDING * t:
                t = exact_distance(state, i, z, thread)
        out[i - start] = t


# ---- distances of one row to many centers ----------------------------------------------------------------------------


cdef void approximate(
    const State* state, Py_ssize_t i, const Packed* packed, Py_ssize_t first, Py_ssize_t last, double* out
) noexcept nogil:
    """||c||^2 - 2 x . c of centers first..last-1, in the frame.

    OUT out : numbers of the type of the packed centers, SPARSE_PAD more than centers
    """
    cdef const Rows* rows = &state.points.rows
    cdef Py_ssize_t stop, start = entries_of(rows, i, &stop), n = stop - start, count = last - first
    cdef Py_ssize_t stride = packed.stride
    cdef const int* column = rows.column + start
    cdef const float* x = <const float*> rows.x + start
    cdef const double* x_double = <const double*> rows.x + start
    cdef const float* values = <const float*> packed.values + first
    cdef const double* values_double = <const double*> packed.values + first
    cdef const float* norms = <const float*> packed.norms + first
    cdef const double* norms_double = <const double*> packed.norms + first
    cdef double scale = state.frame.scale
    if state.centers.single and rows.single:
        csr_distances_ff(x, column, n, scale, values, stride, norms, count, <float*> out)
    elif state.centers.single:
        csr_distances_df(x_double, column, n, scale, values, stride, norms, count, <float*> out)
    elif rows.single:
        csr_distances_fd(x, column, n, scale, values_double, stride, norms_double, count, out)
    else:
        csr_distances_dd(x_double, column, n, scale, values_double, stride, norms_double, count, out)


cdef inline double* distances_of(const State* state, int thread) noexcept nogil:
    """The thread's memory for one distance to each center."""
    return state.scratch.distances + thread * state.scratch.stride


cdef double square_of(const State* state, Py_ssize_t i) noexcept nogil:
    """||x||^2 in the frame."""
    cdef Py_ssize_t stop, m = entries_of(&state.points.rows, i, &stop)
    cdef double total = 0.0, t
    while m < stop:
        t = entry(&state.points.rows, m) * state.frame.scale
        total += t * t
        m += 1
    return total


cdef void two_nearest(
    const State* state, Batch* batch, const Packed* packed, Py_ssize_t first, Py_ssize_t last, int thread
) noexcept nogil:
    """The two nearest of centers first..last-1 to each point of a batch, approximately.

    The error is that of dense.pyx, but for the chain, which has as many terms as there are entries.
    """
    cdef double* out = distances_of(state, thread)
    cdef double roundoff = ROUNDOFF_SINGLE if state.centers.single else ROUNDOFF_DOUBLE
    cdef double[2] least
    cdef double square, size, largest = state.centers.largest_norm
    cdef Py_ssize_t m, i, stop, n
    for m in range(batch.size):
        i = batch.points[m]
        n = -entries_of(&state.points.rows, i, &stop)
        n += stop
        square = square_of(state, i)
        approximate(state, i, packed, first, last, out)
        if state.centers.single:
            batch.nearest[m] = <int> first + csr_least_f(<float*> out, last - first, least)
        else:
            batch.nearest[m] = <int> first + csr_least_d(out, last - first, least)
        size = largest + 2.0 * sqrt(square * largest)
        batch.least[m], batch.second[m] = square + least[0], square + least[1]
        batch.error[m] = (n + 8) * roundoff * size + PRODUCT_UNDERFLOW * (n + 1)
        batch.error[m] += (state.points.d + 8) * 4.0 * ROUNDOFF_DOUBLE * (square + largest)


cdef bint is_candidate(const State* state, const double* out, Py_ssize_t k, double cutoff) noexcept nogil:
    return not ((<const float*> out)[k] if state.centers.single else out[k]) > cutoff


cdef void nearest_exactly(
    const State* state, Batch* batch, const double* cutoffs, Py_ssize_t first, Py_ssize_t last, int thread
) noexcept nogil:
    """The nearest of centers first..last-1 in exact arithmetic, the lowest index at a tie, and about its distance."""
    cdef double* out = distances_of(state, thread)
    cdef Py_ssize_t m, i, k, n_left
    cdef double bound, distance, error, least, cutoff
    for m in range(batch.size):
        i = batch.points[m]
        approximate(state, i, &state.centers.packed, first, last, out)
        cutoff = cutoffs[m] - square_of(state, i)
        bound = HUGE_VAL        # the nearest center is no farther than this
        batch.nearest[m] = <int> first  # where no distance is finite
        for k in range(first, last):
            if is_candidate(state, out, k - first, cutoff):
                distance = near_distance(state, i, k, &error)
                if distance + error < bound:
                    bound, batch.nearest[m] = distance + error, <int> k
        n_left = 0
        for k in range(first, last):
            if is_candidate(state, out, k - first, cutoff):
                n_left += near_distance(state, i, k, &error) - error <= bound
        batch.assigned[m] = bound
        if n_left == 1:
            continue
        least = HUGE_VAL
        for k in range(first, last):
            if is_candidate(state, out, k - first, cutoff) and near_distance(state, i, k, &error) - error <= bound:
                distance = exact_distance(state, i, k, thread)
                if distance < least:
                    least, batch.nearest[m] = distance, <int> k
        batch.assigned[m] = least


# ---- packed centers: a row for each column of the data ---------------------------------------------------------------


cdef void pack_norm(State* state, Py_ssize_t k) noexcept nogil:
    """The squared norm of center k by compensated summation (Kahan), so that it is as good as one rounding."""
    cdef const double* c = state.centers.coordinates + k * state.points.d
    cdef double total = 0.0, lost = 0.0, t, y
    cdef Py_ssize_t j
    for j in range(state.points.d):
        y = c[j] * c[j] - lost
        t = total + y
        lost = (t - total) - y
        total = t
    state.centers.squared_norms[k] = total
    total *= state.frame.scale * state.frame.scale
    if state.centers.single:
        (<float*> state.centers.packed.norms)[k] = <float> total
    else:
        (<double*> state.centers.packed.norms)[k] = total


cdef void pack_columns(State* state, Py_ssize_t block, Py_ssize_t first) noexcept nogil:
    """The values of centers from ``first`` on in a block of PACKED_COLUMNS columns."""
    cdef Py_ssize_t begin = block * PACKED_COLUMNS, end = min(state.points.d, begin + PACKED_COLUMNS), k, j
    cdef Py_ssize_t d = state.points.d, stride = state.centers.packed.stride
    cdef const double* c = state.centers.coordinates
    cdef double factor = -2.0 * state.frame.scale
    if state.centers.single:
        for k in range(first, state.centers.n):
            for j in range(begin, end):
                (<float*> state.centers.packed.values)[j * stride + k] = <float> (factor * c[k * d + j])
    else:
        for k in range(first, state.centers.n):
            for j in range(begin, end):
                (<double*> state.centers.packed.values)[j * stride + k] = factor * c[k * d + j]


cdef void pack(State* state, Py_ssize_t first, int threads) noexcept nogil:
    """Pack the centers from ``first`` on, after they have changed."""
    cdef Py_ssize_t k, block, n = state.centers.n, blocks = (state.points.d + PACKED_COLUMNS - 1) // PACKED_COLUMNS
    cdef double square = state.frame.scale * state.frame.scale
    cdef ParallelLoop loop = begin_loop(n - first, threads)
    if loop.threads == 1:
        for k in range(first, n):
            pack_norm(state, k)
    else:
        for k in prange(first, n, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            begin_chunk(&loop)
            pack_norm(state, k)
    end_loop(&loop)
    loop = begin_loop(blocks, threads)
    if loop.threads == 1:
        for block in range(blocks):
            pack_columns(state, block, first)
    else:
        for block in prange(blocks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            begin_chunk(&loop)
            pack_columns(state, block, first)
    end_loop(&loop)
    if first == 0:
        state.centers.largest_norm = 0.0
    for k in range(first, n):
        state.centers.largest_norm = max(state.centers.largest_norm, state.centers.squared_norms[k] * square)


cdef Backend SPARSE = Backend(
    two_nearest, nearest_exactly, distances, assigned_distances, exact_distance, squares, pack, NULL, NULL
)


cdef const Backend* sparse_backend() noexcept nogil:
    return &SPARSE


# ---- exact distances of all points -----------------------------------------------------------------------------------


cdef void finish_tile(
    const Rows* rows, const double* center, const Py_ssize_t* points, Py_ssize_t n, double* tile, double* out
) noexcept nogil:
    """Distances of the points of a tile, which is all zero afterward."""
    cdef double[TILE_ROWS] distance
    cdef Py_ssize_t lane, m, stop
    csr_tile(tile, center, rows.d, distance)
    for lane in range(n):
        out[points[lane]] = distance[lane]
        m = entries_of(rows, points[lane], &stop)
        while m < stop:
            tile[rows.column[m] * TILE_ROWS + lane] = 0.0
            m += 1


cdef void exact_distances_of_chunk(
    const Rows* rows, const double* centers, const int* labels, const Py_ssize_t* order, Py_ssize_t chunk,
    double* tile, double* out
) noexcept nogil:
    """Exact squared distances of points to one center each, in tiles of TILE_ROWS points of the same center.

    labels : the center of each point; NULL: there is one center
    order : the chunk has the points order[chunk CHUNK..], of which those of equal labels should lie together; NULL:
        the points in their order
    INOUT tile : d x TILE_ROWS zeros, in the memory of a thread
    """
    cdef Py_ssize_t[TILE_ROWS] points
    cdef Py_ssize_t q, i, m, stop, n = 0, last = min(rows.n, (chunk + 1) * CHUNK)
    cdef const double* center = centers
    cdef const double* assigned = centers
    for q in range(chunk * CHUNK, last):
        i = q if order == NULL else order[q]
        if labels != NULL:
            assigned = centers + labels[i] * rows.d
        if n > 0 and (assigned != center or n == TILE_ROWS):
            finish_tile(rows, center, points, n, tile, out)
            n = 0
        center = assigned
        m = entries_of(rows, i, &stop)
        while m < stop:
            tile[rows.column[m] * TILE_ROWS + n] = entry(rows, m)
            m += 1
        points[n] = i
        n += 1
    if n > 0:
        finish_tile(rows, center, points, n, tile, out)
