"""Distances of dense rows to centers, approximate ones with a bound on their error, and exact ones.

For a point x and a center c, brought into [-1, 1] by the frame,

    ||x - c||^2 = ||x||^2 + (||c||^2 - 2 x . c).

The bracket is computed for tiles of 16 (float32) or 8 (float64) points against blocks of centers, as a matrix product
is: about 20 times faster than exact distances, which wait for one addition after the other. Where approximate distances
differ by less than twice their error, exact ones decide.
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL, sqrt

from smallvar._sweeps.kernels cimport (
    HUGE_DISTANCE_d,
    HUGE_DISTANCE_f,
    PANEL,
    SV_PREFETCH,
    sv_assigned_distances_d,
    sv_assigned_distances_f,
    sv_few_distances_d,
    sv_few_distances_f,
    sv_gather_dd,
    sv_gather_df,
    sv_gather_fd,
    sv_gather_ff,
    tile_distances_d,
    tile_distances_f,
    tile_top2_d,
    tile_top2_f,
)
from smallvar._sweeps.parallel cimport ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport point, real_x
from smallvar._sweeps.state cimport (
    BATCH,
    CHUNK,
    Backend,
    Batch,
    Packed,
    State,
    lower_bound,
    memory_of,
    squared_distance,
)
from smallvar._sweeps.tolerances cimport ROUNDOFF_DOUBLE, ROUNDOFF_SINGLE, PRODUCT_UNDERFLOW

ctypedef fused real_a:      # type of approximate distances, and of what they are computed from
    float
    double

cdef enum:
    LANES_SINGLE = 16       # points of a tile in float32,
    LANES_DOUBLE = 8        # and in float64
    MAX_LANES = 16
    MAX_TILES = BATCH // LANES_SINGLE
    PADDED = 6              # packed centers are filled up to a multiple of this, that of the blocks of the kernels
    CENTER_BYTES = 1 << 17  # of packed centers that tiles are compared with at a time: a part of the cache
    FEW_NUMBERS = 1024      # of all centers, up to which exact distances are faster than approximate ones first
    CENTERS = 64            # centers that a thread handles at a time
    SIDE_BY_SIDE = 4        # rows whose exact distances are summed at a time, as additions of a row wait for each other
    PIECE = 48              # centers whose approximate distances nearest_exactly holds at a time


cdef inline Py_ssize_t padded(Py_ssize_t n) noexcept nogil:
    return (n + PADDED - 1) // PADDED * PADDED


# ---- single distances ------------------------------------------------------------------------------------------------


cdef double exact_distance(const State* state, Py_ssize_t i, Py_ssize_t k, int thread) noexcept nogil:
    """The exact squared distance of point i to center k."""
    cdef Py_ssize_t d = state.points.d
    cdef const double* c = state.centers.coordinates + k * d
    if state.points.rows.single:
        return squared_distance(
            point(<const float*> state.points.rows.x, &state.points.rows, i), state.points.rows.col, c, d
        )
    return squared_distance(
        point(<const double*> state.points.rows.x, &state.points.rows, i), state.points.rows.col, c, d
    )


cdef void distances(
    const State* state, Py_ssize_t i, Py_ssize_t first, Py_ssize_t last, double* out, double* error
) noexcept nogil:
    """Squared distances of point i to centers first..last-1: exact ones."""
    cdef Py_ssize_t k
    for k in range(first, last):
        out[k - first] = exact_distance(state, i, k, 0)
        error[k - first] = 0.0


cdef void squares(const State* state, Py_ssize_t chunk, const double* place, double* out, int thread) noexcept nogil:
    """Exact squared distances of a chunk's points to their centers, or to one place where that is not NULL."""
    if state.points.rows.single:
        squares_of_rows(<const float*> state.points.rows.x, state, chunk, place, out)
    else:
        squares_of_rows(<const double*> state.points.rows.x, state, chunk, place, out)


cdef void squares_of_rows(
    const real_x* x, const State* state, Py_ssize_t chunk, const double* place, double* out
) noexcept nogil:
    cdef Py_ssize_t d = state.points.d, stride = state.points.rows.col, start = chunk * CHUNK
    cdef Py_ssize_t size = min(state.points.n - start, <Py_ssize_t> CHUNK), i = 0, j, m
    cdef const real_x* rows[SIDE_BY_SIDE]
    cdef const double* centers[SIDE_BY_SIDE]
    cdef double[SIDE_BY_SIDE] total
    cdef double t
    while i < size:
        for m in range(SIDE_BY_SIDE):
            rows[m] = point(x, &state.points.rows, start + min(i + m, size - 1))
            centers[m] = place
            if place == NULL:
                centers[m] = state.centers.coordinates + state.points.labels[start + min(i + m, size - 1)] * d
            total[m] = 0.0
        for j in range(d):
            for m in range(SIDE_BY_SIDE):
                t = <double> rows[m][j * stride] - centers[m][j]
                total[m] += t * t
        for m in range(min(<Py_ssize_t> SIDE_BY_SIDE, size - i)):
            out[i + m] = total[m]
        i += SIDE_BY_SIDE


cdef void assigned_distances(
    const State* state, Py_ssize_t start, const unsigned short* offsets, Py_ssize_t n, const int* centers, double* out
) noexcept nogil:
    """Squared distances of points start + offsets to one center each, good to DISTANCE_MARGIN."""
    cdef Py_ssize_t q
    if state.points.rows.col != 1:
        for q in range(n):
            out[q] = exact_distance(state, start + offsets[q], centers[q], 0)
    elif state.points.rows.single:
        assigned_distances_of(<const float*> state.points.rows.x, state, start, offsets, n, centers, out)
    else:
        assigned_distances_of(<const double*> state.points.rows.x, state, start, offsets, n, centers, out)


cdef void assigned_distances_of(
    const real_x* x, const State* state, Py_ssize_t start, const unsigned short* offsets, Py_ssize_t n,
    const int* centers, double* out
) noexcept nogil:
    """The same where a row lies in one piece: several rows go side by side through vector code."""
    cdef const real_x* rows[CHUNK]
    cdef const double* c = state.centers.coordinates
    cdef Py_ssize_t q, d = state.points.d
    for q in range(n):
        rows[q] = point(x, &state.points.rows, start + offsets[q])
        SV_PREFETCH(rows[q])
    if real_x is float:
        if not sv_few_distances_f(n, rows, centers, c, d, out):
            sv_assigned_distances_f(n, rows, centers, c, d, out)
    else:
        if not sv_few_distances_d(n, rows, centers, c, d, out):
            sv_assigned_distances_d(n, rows, centers, c, d, out)


# ---- distances of many points to many centers ------------------------------------------------------------------------


cdef double error_bound(const State* state, double squares) noexcept nogil:
    """How far an approximate distance of a point with ||x||^2 = squares may be from the exact one, squared and scaled.

    The bracket is a chain of d + 1 roundings of terms that sum to at most ||c||^2 + 2 ||x|| ||c|| in size, its inputs
    rounded once each; the exact distance itself carries d + 2 float64 roundings, and so does ||x||^2.
    """
    cdef double roundoff = ROUNDOFF_SINGLE if state.centers.single else ROUNDOFF_DOUBLE
    cdef double largest = state.centers.largest_norm, size = largest + 2.0 * sqrt(squares * largest)
    return (state.points.d + 8) * (roundoff * size + 2.0 * ROUNDOFF_DOUBLE * (squares + largest)) + PRODUCT_UNDERFLOW


cdef void load_tile(
    const real_x* x, const State* state, const Py_ssize_t* points, Py_ssize_t n, real_a* tile, double* squares
) noexcept nogil:
    """Points in the frame as a tile, value j of point m at [j * lanes + m], filled up with the last one.

    OUT squares : of each lane, ||x||^2 in the frame
    """
    cdef const real_x* rows[MAX_LANES]
    cdef Py_ssize_t m, j, d = state.points.d, stride = state.points.rows.col
    cdef Py_ssize_t lanes = LANES_SINGLE if real_a is float else LANES_DOUBLE
    cdef const double* origin = state.frame.origin
    cdef double scale = state.frame.scale, value, total
    for m in range(lanes):
        rows[m] = point(x, &state.points.rows, points[min(m, n - 1)])
    if stride == 1:
        if real_x is float and real_a is float:
            sv_gather_ff(rows, d, origin, scale, tile, squares)
        elif real_x is float:
            sv_gather_fd(rows, d, origin, scale, tile, squares)
        elif real_a is float:
            sv_gather_df(rows, d, origin, scale, tile, squares)
        else:
            sv_gather_dd(rows, d, origin, scale, tile, squares)
        return
    for m in range(lanes):
        total = 0.0
        for j in range(d):
            value = (<double> rows[m][j * stride] - origin[j]) * scale
            total += value * value
            tile[j * lanes + m] = <real_a> value
        squares[m] = total


cdef void load_tiles(const State* state, const Batch* batch, real_a* tiles, double* squares) noexcept nogil:
    """The points of a batch as tiles, one after the other."""
    cdef Py_ssize_t first = 0, d = state.points.d, lanes = LANES_SINGLE if real_a is float else LANES_DOUBLE
    while first < batch.size:
        if state.points.rows.single:
            load_tile(<const float*> state.points.rows.x, state, batch.points + first, batch.size - first,
                      tiles + first * d, squares + first)
        else:
            load_tile(<const double*> state.points.rows.x, state, batch.points + first, batch.size - first,
                      tiles + first * d, squares + first)
        first += lanes


cdef void two_least(
    const State* state, Py_ssize_t size, const real_a* tiles, const Packed* packed, Py_ssize_t first, Py_ssize_t last,
    real_a* least, real_a* second, int* nearest
) noexcept nogil:
    """The two least brackets of each point of some tiles, and the center that has the least one."""
    cdef Py_ssize_t d = state.points.d, lanes = LANES_SINGLE if real_a is float else LANES_DOUBLE
    # so many centers that they stay in the cache while all tiles are compared with them
    cdef Py_ssize_t step = max(<Py_ssize_t> 1, CENTER_BYTES // (d * <Py_ssize_t> sizeof(real_a)) // PANEL) * PANEL
    cdef Py_ssize_t begin = first, end, m
    cdef int indices[MAX_TILES][16]     # each tile has room for 16 numbers, which the kernel wants
    while begin < last:
        end = min(last, begin // PANEL * PANEL + step)
        m = 0
        # from the second piece on, the kernels go on from the two least ones found so far
        while m < size:
            if real_a is float:
                tile_top2_f(tiles + m * d, d, <const float*> packed.values, <const float*> packed.norms, begin, end,
                            begin > first, least + m, second + m, &indices[m // lanes][0])
            else:
                tile_top2_d(tiles + m * d, d, <const double*> packed.values, <const double*> packed.norms, begin, end,
                            begin > first, least + m, second + m, &indices[m // lanes][0])
            m += lanes
        begin = end
    for m in range(size):
        nearest[m] = indices[m // lanes][m % lanes]


cdef void two_nearest_of_tiles(
    const State* state, Batch* batch, const Packed* packed, Py_ssize_t first, Py_ssize_t last, real_a* tiles
) noexcept nogil:
    cdef double squares[BATCH]
    cdef real_a least[BATCH]
    cdef real_a second[BATCH]
    cdef double largest = 0.0, error
    cdef Py_ssize_t m
    load_tiles(state, batch, tiles, squares)
    two_least(state, batch.size, tiles, packed, first, last, least, second, batch.nearest)
    # one error bound for the batch, that of its longest point
    for m in range(batch.size):
        largest = max(largest, squares[m])
    error = error_bound(state, largest)
    for m in range(batch.size):
        batch.least[m] = squares[m] + <double> least[m]
        batch.second[m] = squares[m] + <double> second[m]
        batch.error[m] = error


cdef void two_nearest(
    const State* state, Batch* batch, const Packed* packed, Py_ssize_t first, Py_ssize_t last, int thread
) noexcept nogil:
    """The two nearest of centers first..last-1, approximately; after the last center come padded ones."""
    if packed != &state.centers.packed or last == state.centers.n:
        last = padded(last)
    if state.centers.single:
        two_nearest_of_tiles(state, batch, packed, first, last, <float*> memory_of(state, thread))
    else:
        two_nearest_of_tiles(state, batch, packed, first, last, <double*> memory_of(state, thread))


cdef void nearest_of_tile(
    const State* state, Batch* batch, Py_ssize_t begin, const double* cutoffs, Py_ssize_t first, Py_ssize_t last,
    real_a* tile
) noexcept nogil:
    """The nearest center of each point of a tile, by exact distances of the centers that are not above its cutoff."""
    cdef double squares[MAX_LANES]
    cdef real_a brackets[PIECE * MAX_LANES]
    cdef Py_ssize_t lanes = LANES_SINGLE if real_a is float else LANES_DOUBLE
    cdef Py_ssize_t size = min(lanes, batch.size - begin), count, k, m
    cdef Py_ssize_t piece = first // PANEL * PANEL  # the kernel begins with a whole block
    cdef const Py_ssize_t* points = batch.points + begin
    cdef int* nearest = batch.nearest + begin
    cdef double* least = batch.assigned + begin
    cdef double t
    if state.points.rows.single:
        load_tile(<const float*> state.points.rows.x, state, points, size, tile, squares)
    else:
        load_tile(<const double*> state.points.rows.x, state, points, size, tile, squares)
    for m in range(size):
        nearest[m], least[m] = <int> first, HUGE_VAL
    while piece < last:
        count = min(<Py_ssize_t> PIECE, last - piece)
        if real_a is float:
            tile_distances_f(tile, state.points.d, <const float*> state.centers.packed.values,
                             <const float*> state.centers.packed.norms, piece, piece + count, brackets)
        else:
            tile_distances_d(tile, state.points.d, <const double*> state.centers.packed.values,
                             <const double*> state.centers.packed.norms, piece, piece + count, brackets)
        for k in range(max(<Py_ssize_t> 0, first - piece), count):
            for m in range(size):
                # ||x||^2 + (||c||^2 - 2 x c): only what is not above the cutoff can be the nearest
                if not squares[m] + <double> brackets[k * lanes + m] > cutoffs[begin + m]:
                    t = exact_distance(state, points[m], piece + k, 0)
                    if t < least[m]:
                        nearest[m], least[m] = <int> (piece + k), t
        piece += count


cdef void nearest_exactly(
    const State* state, Batch* batch, const double* cutoffs, Py_ssize_t first, Py_ssize_t last, int thread
) noexcept nogil:
    """The nearest of centers first..last-1 in exact arithmetic, the lowest index at a tie, and its distance."""
    cdef Py_ssize_t m = 0, k
    cdef double t
    if (last - first) * state.points.d < FEW_NUMBERS:
        for m in range(batch.size):
            batch.nearest[m], batch.assigned[m] = <int> first, exact_distance(state, batch.points[m], first, thread)
            for k in range(first + 1, last):
                t = exact_distance(state, batch.points[m], k, thread)
                if t < batch.assigned[m]:
                    batch.nearest[m], batch.assigned[m] = <int> k, t
        return
    while m < batch.size:
        if state.centers.single:
            nearest_of_tile(state, batch, m, cutoffs, first, last, <float*> memory_of(state, thread))
            m += LANES_SINGLE
        else:
            nearest_of_tile(state, batch, m, cutoffs, first, last, <double*> memory_of(state, thread))
            m += LANES_DOUBLE


# ---- distances between centers ---------------------------------------------------------------------------------------


cdef void load_centers(const State* state, Py_ssize_t k, Py_ssize_t n, real_a* tile, double* squares) noexcept nogil:
    """Centers k..k+n-1 as a tile, as load_tile does for points; lanes beyond n keep what they have."""
    cdef Py_ssize_t m, j, d = state.points.d, lanes = LANES_SINGLE if real_a is float else LANES_DOUBLE
    cdef double value, total
    for m in range(n):
        total = 0.0
        for j in range(d):
            value = (state.centers.coordinates[(k + m) * d + j] - state.frame.origin[j]) * state.frame.scale
            total += value * value
            tile[j * lanes + m] = <real_a> value
        squares[m] = total


cdef void nearest_of_chunk(
    const State* state, Py_ssize_t chunk, Py_ssize_t first, Py_ssize_t last, float* table, real_a* tile
) noexcept nogil:
    """Entries of the table for a chunk of CENTERS centers."""
    cdef double squares[MAX_LANES]
    cdef real_a least[MAX_LANES]
    cdef real_a second[MAX_LANES]
    cdef int nearest[MAX_LANES]
    cdef Py_ssize_t lanes = LANES_SINGLE if real_a is float else LANES_DOUBLE
    cdef Py_ssize_t k = chunk * CENTERS, stop = min(state.centers.n, k + CENTERS), n, m
    cdef double distance
    while k < stop:
        n = min(lanes, stop - k)
        load_centers(state, k, n, tile, squares)
        two_least(state, n, tile, &state.centers.packed, first, last, least, second, nearest)
        for m in range(n):
            # the least distance of a center is that to itself, up to rounding: any other one has at least the second
            distance = squares[m] + <double> (second[m] if first <= k + m < last else least[m])
            table[k + m] = min(table[k + m], lower_bound(distance - error_bound(state, squares[m])))
        k += n


cdef void nearest_of_centers(
    const State* state, Py_ssize_t chunk, Py_ssize_t first, Py_ssize_t last, float* table, int thread
) noexcept nogil:
    if state.centers.single:
        nearest_of_chunk(state, chunk, first, last, table, <float*> memory_of(state, thread))
    else:
        nearest_of_chunk(state, chunk, first, last, table, <double*> memory_of(state, thread))


cdef void reduce_to_nearest(
    const State* state, Py_ssize_t first, Py_ssize_t last, float* table, int threads
) noexcept nogil:
    """table[k] = min(table[k], distance from center k to the nearest other one of first..last-1), for all centers."""
    cdef Py_ssize_t chunk, n_chunks = (state.centers.n + CENTERS - 1) // CENTERS
    cdef ParallelLoop loop = begin_loop(n_chunks, threads)
    if loop.threads == 1:
        for chunk in range(n_chunks):
            nearest_of_centers(state, chunk, first, last, table, 0)
    else:
        for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            nearest_of_centers(state, chunk, first, last, table, begin_chunk(&loop))
    end_loop(&loop)


# ---- packed centers: panels of PANEL centers, whose values of a column lie side by side ------------------------------


cdef inline Py_ssize_t panel_of(Py_ssize_t k, Py_ssize_t d) noexcept nogil:
    """Number of the first packed value of center k; those of the other columns follow PANEL apart."""
    return k // PANEL * PANEL * d + k % PANEL


cdef void pack_centers(State* state, Py_ssize_t first, real_a* values, real_a* norms) noexcept nogil:
    """Pack the centers from ``first`` on, PANEL side by side, times -2, and their squared norms.  OUT values, norms"""
    cdef Py_ssize_t k, j, d = state.points.d
    cdef double t, total
    cdef real_a* packed
    for k in range(first, state.centers.n):
        packed = values + panel_of(k, d)
        total = 0.0
        for j in range(d):
            t = (state.centers.coordinates[k * d + j] - state.frame.origin[j]) * state.frame.scale
            total += t * t
            packed[j * PANEL] = <real_a> (-2.0 * t)
        norms[k] = <real_a> total
        state.centers.largest_norm = max(state.centers.largest_norm, total)
    pad(values, norms, state.centers.n, d)


cdef void pad(real_a* values, real_a* norms, Py_ssize_t n, Py_ssize_t d) noexcept nogil:
    """Fill up the last block of n packed centers with ones that are never the nearest."""
    cdef Py_ssize_t k, j
    for k in range(n, padded(n)):
        for j in range(d):
            values[panel_of(k, d) + j * PANEL] = 0.0
        norms[k] = HUGE_DISTANCE_f if real_a is float else HUGE_DISTANCE_d


cdef void pack(State* state, Py_ssize_t first, int threads) noexcept nogil:
    """Pack the centers from ``first`` on, after they have changed."""
    if first == 0:
        state.centers.largest_norm = 0.0
    if state.centers.single:
        pack_centers(state, first, <float*> state.centers.packed.values, <float*> state.centers.packed.norms)
    else:
        pack_centers(state, first, <double*> state.centers.packed.values, <double*> state.centers.packed.norms)


cdef void copy_fast_centers(State* state, real_a* values, real_a* norms) noexcept nogil:
    cdef const real_a* all_values = <const real_a*> state.centers.packed.values
    cdef const real_a* all_norms = <const real_a*> state.centers.packed.norms
    cdef Py_ssize_t m, j, d = state.points.d, source, target
    for m in range(state.fast.n):
        source, target = panel_of(state.fast.indices[m], d), panel_of(m, d)
        for j in range(d):
            values[target + j * PANEL] = all_values[source + j * PANEL]
        norms[m] = all_norms[state.fast.indices[m]]
    pad(values, norms, state.fast.n, d)


cdef void copy_fast(State* state) noexcept nogil:
    """A packed table of the fast centers alone."""
    if state.centers.single:
        copy_fast_centers(state, <float*> state.fast.packed.values, <float*> state.fast.packed.norms)
    else:
        copy_fast_centers(state, <double*> state.fast.packed.values, <double*> state.fast.packed.norms)


cdef Backend DENSE_BACKEND = Backend(
    two_nearest, nearest_exactly, distances, assigned_distances, exact_distance, squares, pack, copy_fast,
    reduce_to_nearest,
)


cdef const Backend* dense_backend() noexcept nogil:
    return &DENSE_BACKEND
