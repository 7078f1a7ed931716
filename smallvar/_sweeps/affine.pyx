"""The least of affine scores of every point, with as few scores as bounds allow.

A Bregman divergence is affine in its first argument, but for a term that all centers share: about a place m,

    D(x, mu_k) = D(x, m) + s_k(x),    s_k(x) = b_k - g_k . (x - m),    b_k = D(m, mu_k),  g_k = F'(mu_k) - F'(m).

So the nearest center is the one with the least score, and tiles of points are compared with all centers as in
dense.pyx, b_k in the place of the squared norm and g_k in that of twice the center.

There is no triangle inequality, but when the centers move, s_k(x) changes by at most

    db_k + ||dg_k|| ||x - m||    (upward),    -db_k + ||dg_k|| ||x - m||    (downward),

the lengths in any fixed units of the columns. So each point has an upper bound u of the divergence from its assigned
center and a lower bound l of that from every other one, as in nearest.pyx (Hamerly 2010), and keeps its label without
any score while u < l by more than rounding, and u is below the penalty.

Decisions are those of exact divergences, which are left to the caller: points whose two least scores differ by no more
than rounding are *unsure*.
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL, sqrt
from libc.string cimport memset

from smallvar._sweeps.kernels cimport PANEL, sv_gather_dd, sv_gather_fd, tile_top2_d
from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport Rows, point, poll_signals, read_row, rows_of, value_of

import numpy as np

cdef enum:
    AFFINE_CHUNK = 1024     # points that a thread handles at a time; results do not depend on it
    AFFINE_LANES = 8        # points of a tile
    AFFINE_WORK = 1 << 28   # multiply-adds between two checks for signals

cdef extern from *:
    """
    #define SMALLVAR_LARGEST_BOUND 1e29
    #define SMALLVAR_OUTWARD 0x1p-50
    """
    # scores beyond would be above HUGE_DISTANCE_d, with which tiles begin
    const double LARGEST_BOUND "SMALLVAR_LARGEST_BOUND"
    # by this share a bound is rounded outward: four roundings
    const double OUTWARD "SMALLVAR_OUTWARD"

# what flags say of a point that was compared with all centers
UNSURE = 1                  # its two nearest centers, or whether its divergence is finite
BEYOND_PENALTY = 2                  # whether it is within the penalty, but for rounding

cdef enum:
    C_UNSURE = 1
    C_BEYOND = 2


cdef struct AffinePoints:
    Rows rows                   # in the order of visit
    int* labels                 # n
    const double* place         # d: m
    const double* base          # n: D(x, m)
    const double* length        # n: ||x - m||, in units of the columns
    const double* size          # n: how much rounding there is in exact divergences, see tolerance
    double* upper_bounds        # n: of the divergence from the assigned center
    double* lower_bounds        # n: of that from every other center
    unsigned char* flags        # n


cdef struct InfiniteColumns:    # columns where only one x is at a finite divergence from a center
    const Py_ssize_t* begin     # k + 1: those of center k lie from begin[k] on; or NULL: no center has any
    const Py_ssize_t* columns
    const double* values        # that x


cdef struct AffineCenters:
    Py_ssize_t padded           # their number, filled up to a multiple of PANEL
    const double* slopes        # -g_k in panels
    const double* offsets       # b_k
    InfiniteColumns infinite
    double largest_offset
    double largest_slope        # ||g_k||, at most
    double largest_term         # of what an offset is the difference, at most, but for the offset itself


cdef struct AffineRounding:
    double roundoff             # of sums, relative to their largest terms,
    double logarithms           # and of exact divergences, relative to them
    double largest_error        # tolerance of any point, at most


cdef struct Moves:              # since the bounds were made, of each center; NULL: there are no bounds
    const double* rise          # db_k
    const double* rise_length   # ||dg_k||
    const double* fall          # of any other center: -db, at most
    const double* fall_length   # ||dg||, at most


cdef struct Affine:
    AffinePoints points
    AffineCenters centers
    AffineRounding rounding
    Moves moves
    double limit                # the penalty, as a weighted divergence
    double* tiles               # AFFINE_LANES (d + 1) numbers of each thread


cdef inline double divergence_bound(const Affine* affine, Py_ssize_t i) noexcept nogil:
    """A bound on the divergences of a point from all centers, and on the terms that these are sums of."""
    cdef const AffineCenters* centers = &affine.centers
    return affine.points.base[i] + centers.largest_offset + centers.largest_slope * affine.points.length[i]


cdef inline double tolerance(const Affine* affine, double bound, double size) noexcept nogil:
    """How far base + score, and the exact divergence but for its logarithms, may be from the true one.

    A summand of a divergence is the difference of numbers whose square is no larger than size times the divergence.
    """
    return affine.rounding.roundoff * (bound + affine.centers.largest_term + sqrt(size * bound))


cdef bint is_infinitely_far(const Affine* affine, Py_ssize_t i, Py_ssize_t k) noexcept nogil:
    """Whether the divergence of a point from center k is infinite."""
    cdef Py_ssize_t m
    for m in range(affine.centers.infinite.begin[k], affine.centers.infinite.begin[k + 1]):
        if value_of(&affine.points.rows, i, affine.centers.infinite.columns[m]) != affine.centers.infinite.values[m]:
            return True
    return False


cdef void load_tile(const Affine* affine, const Py_ssize_t* points, Py_ssize_t size, double* tile) noexcept nogil:
    """x - m of AFFINE_LANES points, value j of point m at [j * AFFINE_LANES + m], filled up with the last one."""
    cdef const float* single[AFFINE_LANES]
    cdef const double* double_[AFFINE_LANES]
    cdef double[AFFINE_LANES] squares
    cdef Py_ssize_t m, j, d = affine.points.rows.d
    if affine.points.rows.col != 1:
        for m in range(AFFINE_LANES):
            read_row(&affine.points.rows, points[min(m, size - 1)], tile + m, AFFINE_LANES)
            for j in range(d):
                tile[j * AFFINE_LANES + m] -= affine.points.place[j]
    elif affine.points.rows.single:
        for m in range(AFFINE_LANES):
            single[m] = point(<const float*> affine.points.rows.x, &affine.points.rows, points[min(m, size - 1)])
        sv_gather_fd(single, d, affine.points.place, 1.0, tile, squares)
    else:
        for m in range(AFFINE_LANES):
            double_[m] = point(<const double*> affine.points.rows.x, &affine.points.rows, points[min(m, size - 1)])
        sv_gather_dd(double_, d, affine.points.place, 1.0, tile, squares)


cdef void compare(Affine* affine, const Py_ssize_t* points, Py_ssize_t size, double* tile) noexcept nogil:
    """Compare at most AFFINE_LANES points with all centers: labels, bounds and flags."""
    cdef double[AFFINE_LANES] least
    cdef double[AFFINE_LANES] second
    cdef int[16] nearest    # the kernel wants 64 bytes
    cdef double bound, error, nearer, runner_up
    cdef Py_ssize_t m, i
    load_tile(affine, points, size, tile)
    tile_top2_d(
        tile, affine.points.rows.d, affine.centers.slopes, affine.centers.offsets, 0, affine.centers.padded, False,
        least, second, nearest,
    )
    for m in range(size):
        i = points[m]
        bound = divergence_bound(affine, i)
        error = tolerance(affine, bound, affine.points.size[i])
        nearer, runner_up = max(affine.points.base[i] + least[m], 0.0), affine.points.base[i] + second[m]
        if (
            not (bound < LARGEST_BOUND and is_apart(affine, nearer, runner_up, 4.0 * error))
            or affine.centers.infinite.begin != NULL and is_infinitely_far(affine, i, nearest[m])
        ):
            affine.points.flags[i] = C_UNSURE
            affine.points.upper_bounds[i], affine.points.lower_bounds[i] = HUGE_VAL, 0.0
            continue
        affine.points.labels[i] = nearest[m]
        affine.points.upper_bounds[i], affine.points.lower_bounds[i] = nearer + error, runner_up - error
        if affine.limit < HUGE_VAL and not is_within(affine, i, affine.points.upper_bounds[i] + error):
            affine.points.flags[i] = C_BEYOND


cdef inline bint is_apart(const Affine* affine, double nearer, double runner_up, double slack) noexcept nogil:
    """Whether one divergence is below another one, by more than slack and what logarithms are off."""
    cdef double relative = 2.0 * affine.rounding.logarithms
    return (1.0 + relative) * nearer + slack < (1.0 - relative) * runner_up


cdef inline bint is_within(const Affine* affine, Py_ssize_t i, double upper) noexcept nogil:
    """Whether the penalty is above the weighted bound, by more than rounding."""
    cdef double weight = 1.0 if affine.points.rows.weight == NULL else affine.points.rows.weight[i]
    return (1.0 + 2.0 * affine.rounding.logarithms) * upper * weight < affine.limit


cdef void assign_chunk(Affine* affine, Py_ssize_t start, Py_ssize_t stop, int thread) noexcept nogil:
    cdef Py_ssize_t[AFFINE_LANES] points
    cdef unsigned char[AFFINE_CHUNK] failed
    cdef double* tile = affine.tiles + thread * AFFINE_LANES * (affine.points.rows.d + 1)
    cdef Py_ssize_t i, size = 0
    memset(affine.points.flags + start, 0, stop - start)
    if affine.moves.rise == NULL:
        memset(failed, 1, stop - start)
    else:
        test_bounds(affine, start, stop, failed)
    for i in range(start, stop):
        if failed[i - start] and not (affine.moves.rise != NULL and keeps_label(affine, i)):
            points[size] = i
            size += 1
            if size == AFFINE_LANES:
                compare(affine, points, size, tile)
                size = 0
    if size > 0:
        compare(affine, points, size, tile)


cdef void test_bounds(Affine* affine, Py_ssize_t start, Py_ssize_t stop, unsigned char* failed) noexcept nogil:
    """Bounds after the centers moved, and a test that is stricter than keeps_label, but faster."""
    cdef double rise, fall, upper, lower, slack = 2.0 * affine.rounding.largest_error
    cdef Py_ssize_t i, z
    for i in range(start, stop):
        z = affine.points.labels[i]
        rise = affine.moves.rise[z] + affine.moves.rise_length[z] * affine.points.length[i]
        fall = affine.moves.fall[z] + affine.moves.fall_length[z] * affine.points.length[i]
        upper = (affine.points.upper_bounds[i] + rise) * (1.0 + OUTWARD)
        lower = (affine.points.lower_bounds[i] - fall) * (1.0 - OUTWARD)
        upper = max(upper, 0.0)
        affine.points.upper_bounds[i], affine.points.lower_bounds[i] = upper, lower
        failed[i - start] = not is_apart(affine, upper, lower, slack)
    if affine.limit < HUGE_VAL:
        for i in range(start, stop):
            failed[i - start] |= not is_within(affine, i, affine.points.upper_bounds[i] + slack)


cdef bint keeps_label(const Affine* affine, Py_ssize_t i) noexcept nogil:
    """Whether no other center is nearer, and the penalty is above."""
    cdef double bound = divergence_bound(affine, i), upper = affine.points.upper_bounds[i]
    cdef double error = tolerance(affine, bound, affine.points.size[i])
    if not (is_apart(affine, upper, affine.points.lower_bounds[i], 2.0 * error) and bound < LARGEST_BOUND):
        return False
    return not affine.limit < HUGE_VAL or is_within(affine, i, upper + error)


cdef class AffineSweep:
    """Points, scores and bounds of a fit, and the sweep that finds the least score of each point.

    X : IN array (m, d), float32 or float64, any strides, may be read-only
    weight : IN array (n,) float64 > 0 in the order of visit, or None
    order : IN array (n,) intp, the rows that are visited; None: all, as given
    label : INOUT array (n,) int32 in the order of visit
    place : IN array (d,) float64, m
    base, length, size : IN arrays (n,) float64 in the order of visit: D(x, m), the length of x - m, and what a squared
        length is for squared distances
    """

    cdef Affine scores
    cdef int n_threads
    cdef Py_ssize_t work
    cdef list arrays                    # kept alive: those of points, of centers, of moves
    cdef readonly object upper_bounds, flags
    cdef double[3] largest              # of base, length and size

    def __init__(
        self, X, const double[::1] weight, const Py_ssize_t[::1] order, int[::1] label, const double[::1] place,
        const double[::1] base, const double[::1] length, const double[::1] size, int n_threads,
    ):
        cdef Affine* affine = &self.scores
        cdef Py_ssize_t n = label.shape[0]
        cdef double[::1] upper = np.full(n, np.inf), lower = np.zeros(n)
        cdef double[::1] tiles = np.empty(n_threads * AFFINE_LANES * (X.shape[1] + 1))
        cdef unsigned char[::1] flags = np.zeros(n, dtype=np.uint8)
        affine.points.rows = rows_of(X, None, None)
        if order is not None:
            affine.points.rows.order, affine.points.rows.n = &order[0], order.shape[0]
        if weight is not None:
            affine.points.rows.weight = &weight[0]
        if n != affine.points.rows.n or place.shape[0] != affine.points.rows.d or not (
            base.shape[0] == length.shape[0] == size.shape[0] == n
        ):
            raise ValueError("labels and all numbers of points must match X")
        if weight is not None and weight.shape[0] != n:
            raise ValueError("weight must match X")
        affine.points.labels, affine.points.place, affine.points.base = &label[0], &place[0], &base[0]
        affine.points.length, affine.points.size = &length[0], &size[0]
        affine.points.upper_bounds, affine.points.lower_bounds = &upper[0], &lower[0]
        affine.points.flags, affine.tiles = &flags[0], &tiles[0]
        self.n_threads, self.upper_bounds, self.flags = n_threads, np.asarray(upper), np.asarray(flags)
        points = (X, weight, order, label, place, base, length, size, lower, tiles)
        self.arrays = [points, None, None]
        self.largest = [np.max(base), np.max(length), np.max(size)]

    def set_scores(
        self, slope, offset, infinite, double largest_slope, double largest_term, double roundoff, double logarithms
    ):
        """Scores offset_k - slope_k . (x - m).

        slope, offset : IN arrays (k, d) and (k,)
        infinite : IN array (k, d), 1 where the divergence is infinite for x > 0, 2 where it is for x < 1, else 0;
            None: there are none
        largest_slope, largest_term : bounds on the lengths of slopes, and on what an offset is the difference of
        roundoff, logarithms : shares of the terms of a sum, and of an exact divergence, that rounding may be
        """
        cdef Affine* affine = &self.scores
        cdef Py_ssize_t k = slope.shape[0], d = slope.shape[1]
        cdef double[:, :, ::1] slopes
        cdef double[::1] offsets
        cdef Py_ssize_t[::1] begin, columns
        cdef double[::1] values
        affine.centers.padded = (k + PANEL - 1) // PANEL * PANEL
        table, numbers = np.zeros((affine.centers.padded, d)), np.full(affine.centers.padded, np.inf)
        table[:k], numbers[:k] = -slope, offset
        slopes = np.ascontiguousarray(table.reshape(affine.centers.padded // PANEL, PANEL, d).transpose(0, 2, 1))
        offsets = numbers
        affine.centers.slopes, affine.centers.offsets = &slopes[0, 0, 0], &offsets[0]
        affine.centers.infinite.begin = NULL
        self.arrays[1] = [slopes, offsets]
        if infinite is not None:
            center, column = np.nonzero(infinite)
            begin, columns = np.searchsorted(center, np.arange(k + 1)), np.ascontiguousarray(column)
            values = np.where(infinite[center, column] == 1, 0.0, 1.0)
            affine.centers.infinite = InfiniteColumns(&begin[0], &columns[0], &values[0])
            self.arrays[1] += [begin, columns, values]
        affine.centers.largest_offset = np.max(offset)
        affine.centers.largest_slope, affine.centers.largest_term = largest_slope, largest_term
        affine.rounding.roundoff = roundoff
        affine.rounding.logarithms = logarithms
        bound = self.largest[0] + affine.centers.largest_offset + largest_slope * self.largest[1]
        affine.rounding.largest_error = tolerance(affine, bound, self.largest[2]) if bound < LARGEST_BOUND else HUGE_VAL
        self.set_moves(None)

    def set_moves(self, const double[:, ::1] moves):
        """How scores differ from those of the bounds; None: there are no bounds.

        moves : IN array (4, k): rise, rise_length, fall, fall_length of Affine, rounded up
        """
        cdef Affine* affine = &self.scores
        self.arrays[2] = moves
        affine.moves.rise = affine.moves.rise_length = affine.moves.fall = affine.moves.fall_length = NULL
        if moves is not None:
            affine.moves = Moves(&moves[0, 0], &moves[1, 0], &moves[2, 0], &moves[3, 0])

    def assign(self, Py_ssize_t first, Py_ssize_t last, double limit):
        """Assign points first..last-1 to their least scores, but for unsure ones, whose labels stay.

        limit : weighted divergences that are not surely below it are flagged; infinite: none
        """
        cdef Affine* affine = &self.scores
        cdef Py_ssize_t multiply_adds = affine.points.rows.d * (affine.centers.padded + 2), n_chunks, at_once, chunk
        cdef ParallelLoop loop
        if not 0 <= first <= last <= affine.points.rows.n or self.arrays[1] is None:
            raise ValueError("there must be scores, and points first..last-1")
        affine.limit = limit
        at_once = max(<Py_ssize_t> 2 * self.n_threads, AFFINE_WORK // (AFFINE_CHUNK * multiply_adds)) * AFFINE_CHUNK
        with nogil:
            while first < last:
                n_chunks = (min(at_once, last - first) + AFFINE_CHUNK - 1) // AFFINE_CHUNK
                loop = begin_loop(n_chunks, self.n_threads if AFFINE_CHUNK * n_chunks * multiply_adds > PAYS else 1)
                for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                    assign_chunk(
                        affine, first + chunk * AFFINE_CHUNK, min(last, first + (chunk + 1) * AFFINE_CHUNK),
                        begin_chunk(&loop)
                    )
                end_loop(&loop)
                poll_signals(&self.work, n_chunks * AFFINE_CHUNK * multiply_adds, AFFINE_WORK)
                first += n_chunks * AFFINE_CHUNK
