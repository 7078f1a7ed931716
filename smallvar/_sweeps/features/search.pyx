"""The best row of Z for given features, by branch and bound.

For z in {0, 1}^k, z_i^2 = z_i, so for any alpha > 0

    ||x - z A||^2 + alpha sum_i (z_i - 1/2)^2 = ||R z' - y||^2 + const,  R'R = A A' + alpha I,  R'y = A x + alpha / 2,

and the second term on the left is alpha k / 4 for all z. With R upper triangular the square is a sum over i of
(y_i - sum_{j >= i} R_ij z_j)^2: bits are chosen from the last to the first, the nearer value first, and a choice whose
sum exceeds that of the best row so far is left with all rows that begin with it (Schnorr and Euchner, 1994). alpha
makes what is summed first count where features nearly depend on each other, or outnumber the columns.
"""

from cython.parallel cimport prange
from libc.math cimport sqrt

from smallvar._sweeps.features.state cimport (
    FEATURE_CHUNK,
    FEATURE_TIE,
    LANES,
    FeatureProblem,
    FeatureScratch,
    FeatureState,
    Level,
    RowSearch,
    check_interrupt,
    chunk_count,
    residuals,
    sf_dots,
    threads_for,
    tile_count,
    work_tiles,
)
from smallvar._sweeps.features.sweeps cimport keep_better
from smallvar._sweeps.parallel cimport ParallelLoop, begin_chunk, begin_loop, end_loop

cdef enum:
    NODES = 1 << 13     # choices of a bit for a row: enough for all there are where k = 12

cdef extern from *:
    """
    #define SMALLVAR_RIDGE 0.01
    """
    const double RIDGE "SMALLVAR_RIDGE"  # alpha, as a share of the mean square of a feature


cdef void exchange(RowSearch* search, Py_ssize_t capacity, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    """Exchange the features i and j of the order, of which only the rows of R above i are known."""
    cdef Py_ssize_t m, number = search.order[i]
    cdef double value = search.pivots[i]
    cdef double* r = search.factor
    search.order[i] = search.order[j]
    search.order[j] = number
    search.pivots[i] = search.pivots[j]
    search.pivots[j] = value
    for m in range(i):
        value = r[m * capacity + i]
        r[m * capacity + i] = r[m * capacity + j]
        r[m * capacity + j] = value


cdef bint factorize(FeatureState* state) noexcept nogil:
    """Compute alpha, the order of the features and R for these; returns False if all features are zero.

    Of the features left the one with the least pivot comes first. Bits are chosen from the last one on, so those that
    decide most are chosen first.
    """
    cdef Py_ssize_t k = state.k, capacity = state.capacity, i, j, m, least
    cdef RowSearch* search = &state.search
    cdef const double* gram = state.features.gram
    cdef double* r = search.factor
    cdef double value
    search.alpha = 0.0
    for i in range(k):
        search.alpha += gram[i * capacity + i]
    search.alpha *= RIDGE / k
    if not search.alpha > 0.0:
        return False
    for i in range(k):
        search.order[i] = i
        search.pivots[i] = gram[i * capacity + i] + search.alpha
    for i in range(k):
        least = i
        for j in range(i + 1, k):
            if search.pivots[j] < search.pivots[least]:
                least = j
        exchange(search, capacity, i, least)
        r[i * capacity + i] = sqrt(search.pivots[i])
        for j in range(i + 1, k):
            value = gram[search.order[i] * capacity + search.order[j]]
            for m in range(i):
                value -= r[m * capacity + i] * r[m * capacity + j]
            value /= r[i * capacity + i]  # the diagonal is positive: no pivot is below alpha
            r[i * capacity + j] = value
            search.pivots[j] = max(search.alpha, search.pivots[j] - value * value)
    return True


cdef double set_targets(const FeatureState* state, int lane, FeatureScratch* scratch) noexcept nogil:
    """Set y and the bits for a lane, whose row is in scratch.z and A x in scratch.dots; returns ||R z' - y||^2."""
    cdef Py_ssize_t k = state.k, capacity = state.capacity, i, j
    cdef const double* r = state.search.factor
    cdef const Py_ssize_t* order = state.search.order
    cdef Level* levels = scratch.levels
    cdef double value, square = 0.0
    # R'y = A x + alpha / 2, forward
    for i in range(k):
        value = scratch.dots[order[i] * LANES + lane] + 0.5 * state.search.alpha
        for j in range(i):
            value -= r[j * capacity + i] * levels[j].target
        levels[i].target = value / r[i * capacity + i]
        levels[i].bit = scratch.z[order[i] * LANES + lane]
    for i in range(k):
        value = levels[i].target
        for j in range(i, k):
            value -= r[i * capacity + j] * levels[j].bit
        square += value * value
    return square


cdef bint search_row(const FeatureState* state, int lane, FeatureScratch* scratch) noexcept nogil:
    """Find a better row for a lane of a tile, depth first; returns whether there is one, then in scratch.z."""
    cdef Py_ssize_t k = state.k, capacity = state.capacity, i = k - 1, j, n_nodes = 0
    cdef const double* r = state.search.factor
    cdef Level* levels = scratch.levels
    cdef Level* level = levels + i
    cdef double bound = set_targets(state, lane, scratch) * (1.0 - FEATURE_TIE), value, sum_
    cdef bint is_better = False
    # the row so far is the bound; each step chooses a bit of level i, given those above
    level.left, level.n_tried = level.target, 0
    while n_nodes < NODES:
        if level.n_tried == 2:  # back to the bit above
            i += 1
            if i == k:
                break
            level = levels + i
            continue
        if level.n_tried == 0:  # the nearer value first
            level.bit = 1.0 if level.left > 0.5 * r[i * capacity + i] else 0.0
        else:
            level.bit = 1.0 - level.bit
        level.n_tried += 1
        n_nodes += 1
        value = level.left - r[i * capacity + i] * level.bit
        sum_ = value * value + (levels[i + 1].sum if i + 1 < k else 0.0)
        if not sum_ < bound:  # nor is the other value better, which is farther
            level.n_tried = 2
        elif i == 0:
            bound, is_better = sum_, True
            for j in range(k):
                levels[j].best = levels[j].bit
        else:
            level.sum = sum_
            i -= 1
            level = levels + i
            value = level.target
            for j in range(i + 1, k):
                value -= r[i * capacity + j] * levels[j].bit
            level.left, level.n_tried = value, 0
    if is_better:
        for i in range(k):
            scratch.z[state.search.order[i] * LANES + lane] = levels[i].best
    return is_better


cdef void search_chunk(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t first, Py_ssize_t last, Py_ssize_t chunk, int thread
) noexcept nogil:
    """Find better rows for one chunk of the tiles first..last-1."""
    cdef Py_ssize_t tile, first_tile = first + chunk * FEATURE_CHUNK
    cdef FeatureScratch* scratch = state.scratch + thread
    cdef double squares[LANES]
    cdef const double* x
    cdef int changed, lane
    for tile in range(first_tile, min(last, first_tile + FEATURE_CHUNK)):
        x = residuals(problem, state, tile, scratch, squares)
        sf_dots(problem.points.d, state.k, state.capacity, x, state.features.transposed, scratch.dots)
        changed = 0
        for lane in range(min(problem.points.n - tile * LANES, <Py_ssize_t> LANES)):
            state.assignments.squares[tile * LANES + lane] = squares[lane]
            if squares[lane] > 0.0 and search_row(state, lane, scratch):
                changed |= 1 << lane
        if changed:
            keep_better(problem, state, tile, x, changed, squares, scratch)


cdef void search_tiles(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t first, Py_ssize_t last
) noexcept nogil:
    cdef Py_ssize_t n_chunks = chunk_count(last - first), chunk
    cdef ParallelLoop loop = begin_loop(n_chunks, threads_for(problem, state, last - first))
    if loop.threads == 1:
        for chunk in range(n_chunks):
            search_chunk(problem, state, first, last, chunk, 0)
    else:
        for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            search_chunk(problem, state, first, last, chunk, begin_chunk(&loop))
    end_loop(&loop)


cdef int search(const FeatureProblem* problem, FeatureState* state) except -1 nogil:
    """Find the best row for each point, or the best of those met in so many steps; never a worse one than it has."""
    cdef Py_ssize_t start = 0, stop, work = problem.points.d * (2 * state.k + 1) + NODES * state.k
    if not factorize(state):
        return 0
    while start < problem.points.n:
        stop = min(problem.points.n, start + work_tiles(problem, work) * LANES)
        search_tiles(problem, state, start // LANES, tile_count(stop))
        check_interrupt(state, (stop - start) * work)
        start = stop
    return 0
