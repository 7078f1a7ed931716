"""Assignment of points to centers that were opened in this sweep, and distances between centers."""

from cython.parallel cimport prange

from smallvar._sweeps.parallel cimport ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport real_x
from smallvar._sweeps.scores cimport BATCH, Batch, batch_error, error_bound, exact_nearest, fill, join, score
from smallvar._sweeps.state cimport CHUNK, State, exact_distance, lower, real_c, reduce_lower, tile_of, upper
from smallvar._sweeps.tolerances cimport DISTANCE_MARGIN

cdef enum:
    ROWS = 64       # centers whose entries of a table are one item


cdef void flush_attracted(
    const real_x* x, State* s, Batch* b, real_c* tiles, Py_ssize_t k0, Py_ssize_t k1
) noexcept nogil:
    """Let the batch's points choose between their own center (distance known) and centers k0..k1-1."""
    cdef real_c m1[BATCH]
    cdef real_c m2[BATCH]
    cdef int best[BATCH]
    cdef Py_ssize_t m, i
    cdef double error, own, distance, least, second
    cdef int label
    fill(x, s, b, tiles)
    error = batch_error(s, b)
    score(s, b.size, tiles, s.scaled, s.norm, k0, k1, m1, m2, best)
    for m in range(b.size):
        i = b.index[m]
        own = b.own[m]
        least = b.squares[m] + <double> m1[m]
        second = b.squares[m] + <double> m2[m]
        distance = own * s.scale * s.scale
        if least - error > distance * (1.0 + DISTANCE_MARGIN):
            reduce_lower(s, i, lower(least - error))
            continue
        if least + error < distance * (1.0 - DISTANCE_MARGIN) and second - least > 2.0 * error:
            label = best[m]
            distance = exact_distance(x, s, i, label)
        else:
            label = exact_nearest(x, s, i, k0, k1, &distance)
            if not distance < own:
                reduce_lower(s, i, lower(least - error))
                continue
        reduce_lower(s, i, lower(min(own * s.scale * s.scale * (1.0 - DISTANCE_MARGIN), second - error)))
        s.u[i] = upper(distance, s.scale)
        s.label[i] = label
    b.size = 0


cdef void attract_chunk(
    const real_x* x, State* s, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t k0, const Py_ssize_t* creator,
    real_c* tiles
) noexcept nogil:
    """Points start..stop-1 are compared with the centers k0.. that points before them opened.

    creator[m] is the point at which center k0 + m was opened, in ascending order.
    """
    cdef Batch batch
    cdef Py_ssize_t i, n_new = s.k - k0, seen = 0, batch_seen = 0
    cdef double distance
    cdef float u
    cdef int z
    batch.size = 0
    for i in range(start, stop):
        while seen < n_new and creator[seen] < i:
            seen += 1
        z = s.label[i]
        if seen == 0 or z >= k0:
            continue  # nothing opened yet, or it got its label in the ordered pass
        if 2.0 * s.u[i] < s.near[z]:
            continue
        distance = exact_distance(x, s, i, z)
        u = upper(distance, s.scale)
        s.u[i] = u
        if 2.0 * u < s.near[z]:
            continue
        if batch.size > 0 and batch_seen != seen:
            flush_attracted(x, s, &batch, tiles, k0, k0 + batch_seen)
        batch_seen = seen
        join(&batch, i, distance)
        if batch.size == s.batch:
            flush_attracted(x, s, &batch, tiles, k0, k0 + batch_seen)
    if batch.size > 0:
        flush_attracted(x, s, &batch, tiles, k0, k0 + batch_seen)


cdef inline void load_center(State* s, Py_ssize_t c, Py_ssize_t m, Batch* b, real_c* tiles) noexcept nogil:
    """Center c as point m of a batch."""
    cdef Py_ssize_t j, lanes = 16 if real_c is float else 8
    cdef double t, squares = 0.0
    for j in range(s.d):
        t = (s.c[c * s.d + j] - s.shift[j]) * s.scale
        squares += t * t
        tiles[j * lanes + m] = <real_c> t
    b.index[m] = c
    b.squares[m] = squares
    b.size = m + 1


cdef void lower_table_chunk(
    State* s, Py_ssize_t first, Py_ssize_t last, Py_ssize_t k0, Py_ssize_t k1, float* table, real_c* tiles
) noexcept nogil:
    """table[c] = min(table[c], distance to the nearest center of k0..k1-1 other than c) for c in first..last-1."""
    cdef real_c m1[BATCH]
    cdef real_c m2[BATCH]
    cdef int best[BATCH]
    cdef Batch b
    cdef Py_ssize_t lanes = 16 if real_c is float else 8
    cdef Py_ssize_t m, c = first
    cdef double nearest
    while c < last:
        b.size = 0
        while c < last and b.size < lanes:
            m = b.size
            load_center(s, c, m, &b, tiles)
            c += 1
        score(s, b.size, tiles, s.scaled, s.norm, k0, k1, m1, m2, best)
        for m in range(b.size):
            # a center's least score is that of itself, up to rounding: any other one has at least the second
            nearest = <double> (m2[m] if k0 <= b.index[m] < k1 else m1[m])
            nearest += b.squares[m] - error_bound(s, b.squares[m])
            table[b.index[m]] = min(table[b.index[m]], lower(nearest))


# ---- loops over chunks: each writes to its points or centers, and to its thread's tile ------------------------------


cdef void attract(
    State* s, Py_ssize_t c, Py_ssize_t first, Py_ssize_t last, Py_ssize_t k0, const Py_ssize_t* creator, int thread
) noexcept nogil:
    """The points first..last-1 that are in chunk c, by the types of the data and of the scores."""
    cdef Py_ssize_t start = max(first, c * CHUNK), stop = min(last, (c + 1) * CHUNK)
    cdef char* tile = tile_of(s, thread)
    if s.rows.single:
        if s.single:
            attract_chunk[float, float](<const float*> s.rows.x, s, start, stop, k0, creator, <float*> tile)
        else:
            attract_chunk[float, double](<const float*> s.rows.x, s, start, stop, k0, creator, <double*> tile)
    elif s.single:
        attract_chunk[double, float](<const double*> s.rows.x, s, start, stop, k0, creator, <float*> tile)
    else:
        attract_chunk[double, double](<const double*> s.rows.x, s, start, stop, k0, creator, <double*> tile)


cdef void lower_rows(
    State* s, Py_ssize_t c, Py_ssize_t k0, Py_ssize_t k1, float* table, int thread
) noexcept nogil:
    """Entries of ROWS centers, by the type of the scores."""
    cdef Py_ssize_t start = c * ROWS, stop = min(s.k, (c + 1) * ROWS)
    if s.single:
        lower_table_chunk[float](s, start, stop, k0, k1, table, <float*> tile_of(s, thread))
    else:
        lower_table_chunk[double](s, start, stop, k0, k1, table, <double*> tile_of(s, thread))


cdef void attract_points(
    State* s, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t k0, const Py_ssize_t* creator, int threads
) noexcept nogil:
    """Points start..stop-1 are compared with the centers k0.. opened at points before them."""
    cdef Py_ssize_t c, first = start // CHUNK, last = (stop + CHUNK - 1) // CHUNK
    cdef ParallelLoop loop
    loop = begin_loop(last - first, threads)
    if loop.threads == 1:
        for c in range(first, last):
            attract(s, c, start, stop, k0, creator, 0)
    else:
        for c in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            attract(s, c, start, stop, k0, creator, begin_chunk(&loop))
    end_loop(&loop)


cdef void lower_distances(State* s, Py_ssize_t k0, Py_ssize_t k1, float* table, int threads) noexcept nogil:
    """table[c] = min(table[c], distance from center c to the nearest other one of k0..k1-1), for all c."""
    cdef Py_ssize_t c, last = (s.k + ROWS - 1) // ROWS
    cdef ParallelLoop loop
    loop = begin_loop(last, threads)
    if loop.threads == 1:
        for c in range(last):
            lower_rows(s, c, k0, k1, table, 0)
    else:
        for c in prange(last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            lower_rows(s, c, k0, k1, table, begin_chunk(&loop))
    end_loop(&loop)
