"""The least of affine scores of every point, with as few scores as bounds allow.

A Bregman divergence is affine in its first argument, but for a term that all centers share: about a place m,

    D(x, mu_k) = D(x, m) + s_k(x),    s_k(x) = b_k - g_k . (x - m),    b_k = D(m, mu_k),  g_k = F'(mu_k) - F'(m).

So the nearest center is the one with the least score, and tiles of points are compared with all centers as in
dense.pyx, b_k in the place of the squared norm and g_k in that of twice the center.

There is no triangle inequality, but when the centers move, s_k(x) changes by at most

    db_k + ||dg_k|| ||x - m||    (upward),    -db_k + ||dg_k|| ||x - m||    (downward),

the lengths in any fixed units of the columns. So each point has an upper bound u of the divergence from its assigned
center and a lower bound l of that from every other one, as in nearest.pyx (Hamerly 2010), and keeps its label without
any score while u < l by more than rounding.

Decisions are those of exact divergences, as in divergences.pyx. They are computed where the two least scores of a point
differ by no more than rounding, and where a bound does not say whether a penalty is exceeded.
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL, sqrt
from libc.string cimport memset

from smallvar._sweeps.divergences cimport C_LOGISTIC, merging_cost, positive_summand
from smallvar._sweeps.kernels cimport PANEL, sv_gather_dd, sv_gather_fd, tile_top2_d
from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport Rows, point, poll_signals, read_row, rows_of, value_of, weight_of
from smallvar._sweeps.sums cimport Sums, mean_of_sums, sums_move_d, sums_t, sums_weight

import numpy as np

from smallvar._sweeps.dpmeans import MEAN_ROUNDING

cdef enum:
    AFFINE_CHUNK = 1024     # points that a thread handles at a time; results do not depend on it
    AFFINE_LANES = 8        # points of a tile
    AFFINE_WORK = 1 << 28   # multiply-adds between two checks for signals

cdef extern from *:
    """
    #define SMALLVAR_LARGEST_BOUND 1e29
    #define SMALLVAR_OUTWARD 0x1p-50
    #define SMALLVAR_EPSILON 0x1p-52
    """
    # scores beyond would be above HUGE_DISTANCE_d, with which tiles begin
    const double LARGEST_BOUND "SMALLVAR_LARGEST_BOUND"
    # by this share a bound is rounded outward: four roundings
    const double OUTWARD "SMALLVAR_OUTWARD"
    const double EPSILON "SMALLVAR_EPSILON"

cdef enum:
    SUMMAND_ROUNDING = 16       # roundings in a summand; as many more as there are columns are in their sum
    # in relative units: the logarithms in divergences are at most 745, with factors below ten times it
    LOGARITHM_ROUNDING = 8000


cdef struct AffinePoints:
    Rows rows                   # in the order of visit
    int* labels                 # n
    const double* place         # d: m
    const double* base          # n: D(x, m)
    const double* length        # n: ||x - m||, in units of the columns
    const double* size          # n: how much rounding there is in exact divergences, see tolerance
    double* upper_bounds        # n: of the divergence from the assigned center
    double* lower_bounds        # n: of that from every other center


cdef struct AffineCenters:
    Py_ssize_t n
    Py_ssize_t padded           # their number, filled up to a multiple of PANEL
    const double* means         # n x d
    bint on_border              # whether components are on the border of the domain, infinitely far from points inside
    const double* slopes        # -g_k in panels
    const double* offsets       # b_k
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
    int kind                    # of the divergence
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
    """Whether the divergence of a point from center k is infinite, by a component on the border of the domain."""
    cdef const double* mean = affine.centers.means + k * affine.points.rows.d
    cdef Py_ssize_t j
    for j in range(affine.points.rows.d):
        if mean[j] == 0.0 or mean[j] == 1.0 and affine.kind == C_LOGISTIC:
            if value_of(&affine.points.rows, i, j) != mean[j]:
                return True
    return False


cdef double exact_divergence(const Affine* affine, Py_ssize_t i, Py_ssize_t k, double most) noexcept nogil:
    """The divergence of a point from center k; where it is above ``most``, any number that is."""
    cdef const double* mean = affine.centers.means + k * affine.points.rows.d
    cdef double total = 0.0
    cdef Py_ssize_t j
    for j in range(affine.points.rows.d):
        total += positive_summand(affine.kind, value_of(&affine.points.rows, i, j), mean[j])
        if total > most:
            break
    return total


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
            or affine.centers.on_border and is_infinitely_far(affine, i, nearest[m])
        ):
            compare_exactly(affine, i, error)
        else:
            affine.points.labels[i] = nearest[m]
            affine.points.upper_bounds[i], affine.points.lower_bounds[i] = nearer + error, runner_up - error


cdef void compare_exactly(Affine* affine, Py_ssize_t i, double error) noexcept nogil:
    """Give a point the label of its nearest center, the first of several; there is no lower bound."""
    cdef double least = exact_divergence(affine, i, 0, HUGE_VAL), value
    cdef Py_ssize_t k, nearest = 0
    for k in range(1, affine.centers.n):
        value = exact_divergence(affine, i, k, least)
        if value < least:
            nearest, least = k, value
    affine.points.labels[i] = <int> nearest
    affine.points.upper_bounds[i] = least + (error if error < HUGE_VAL else 0.0)
    affine.points.lower_bounds[i] = 0.0


cdef inline bint is_apart(const Affine* affine, double nearer, double runner_up, double slack) noexcept nogil:
    """Whether one divergence is below another one, by more than slack and what logarithms are off."""
    cdef double relative = 2.0 * affine.rounding.logarithms
    return (1.0 + relative) * nearer + slack < (1.0 - relative) * runner_up


cdef double weighted_divergence(const Affine* affine, Py_ssize_t i, double limit) noexcept nogil:
    """The weighted divergence of a point from its assigned center; -1 where bounds say that ``limit`` is above."""
    cdef double bound = divergence_bound(affine, i), w = weight_of(&affine.points.rows, i)
    cdef double error = tolerance(affine, bound, affine.points.size[i])
    if (1.0 + 2.0 * affine.rounding.logarithms) * (affine.points.upper_bounds[i] + error) * w < limit:
        return -1.0
    return w * exact_divergence(affine, i, affine.points.labels[i], HUGE_VAL)


cdef void assign_chunk(Affine* affine, Py_ssize_t start, Py_ssize_t stop, int thread) noexcept nogil:
    cdef Py_ssize_t[AFFINE_LANES] points
    cdef unsigned char[AFFINE_CHUNK] failed
    cdef double* tile = affine.tiles + thread * AFFINE_LANES * (affine.points.rows.d + 1)
    cdef Py_ssize_t i, size = 0
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


cdef bint keeps_label(const Affine* affine, Py_ssize_t i) noexcept nogil:
    """Whether no other center is nearer."""
    cdef double bound = divergence_bound(affine, i)
    cdef double error = tolerance(affine, bound, affine.points.size[i])
    return bound < LARGEST_BOUND and is_apart(
        affine, affine.points.upper_bounds[i], affine.points.lower_bounds[i], 2.0 * error
    )


cdef void divergences_of_chunk(
    const Affine* affine, Py_ssize_t chunk, const int* center, double* out, int thread
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(chunk * AFFINE_CHUNK, min(affine.points.rows.n, (chunk + 1) * AFFINE_CHUNK)):
        out[i] = exact_divergence(affine, i, center[i], HUGE_VAL)


cdef struct MovingMeans:        # the clusters of a collapsed sweep
    Py_ssize_t n
    Py_ssize_t d
    Py_ssize_t capacity
    double* mean                # capacity x d
    double* weight              # capacity
    double* cost                # capacity: of putting a point into each cluster
    double* point               # d: its values
    const double* low           # d: the range of all points, in which rounding must leave means
    const double* high
    double rounding             # how far means are off, in relative units: see MEAN_ROUNDING


cdef hold_means(MovingMeans* clusters, Sums sums, means):
    """Give clusters that have these means memory for more of them; returns what keeps that alive, first the means."""
    cdef Py_ssize_t c, d = clusters.d, k = min(len(means), clusters.n)
    cdef double[:, ::1] mean
    cdef double[::1] weight, cost
    clusters.capacity = 2 * clusters.n + 8
    sums.reserve(clusters.capacity)
    grown = np.zeros((clusters.capacity, d))
    grown[:k] = means[:k]
    mean, weight, cost = grown, np.zeros(clusters.capacity), np.empty(clusters.capacity)
    for c in range(k):
        weight[c] = sums_weight(&sums.table, c)
    clusters.mean, clusters.weight, clusters.cost = &mean[0, 0], &weight[0], &cost[0]
    return grown, weight, cost


cdef Py_ssize_t cheapest_cluster(
    const Affine* affine, Py_ssize_t i, const MovingMeans* clusters, const sums_t* sums, double lam
) noexcept nogil:
    """The cluster that a point costs least in, or the number of clusters if that is one of its own, at the cost lam."""
    cdef Py_ssize_t c, j, d = clusters.d, best = 0, label = affine.points.labels[i]
    cdef double w = weight_of(&affine.points.rows, i), least = lam, s, share, without, apart, tied
    cdef double* x = clusters.point
    cdef double* cost = clusters.cost
    cdef const double* mean
    read_row(&affine.points.rows, i, x, 1)
    for c in range(clusters.n):
        mean = clusters.mean + c * d
        if sums.count[c] == 0.0 or c == label and sums.count[c] == 1.0:
            cost[c] = HUGE_VAL
        elif c == label:    # it costs w D(x, m) + s D(m', m), m' being the mean without the point
            s = clusters.weight[c] - w
            share, cost[c], apart = w / s, 0.0, 0.0
            for j in range(d):
                without = min(max(mean[j] - share * (x[j] - mean[j]), clusters.low[j]), clusters.high[j])
                cost[c] += positive_summand(affine.kind, x[j], mean[j])
                apart += positive_summand(affine.kind, without, mean[j])
            cost[c] = w * cost[c] + s * apart
        else:
            cost[c] = merging_cost(affine.kind, mean, clusters.weight[c], x, w, d, HUGE_VAL)
        least = min(least, cost[c])
    # a cost c is off by about sqrt(c w) times what its mean is off by
    tied = least + clusters.rounding * (least + sqrt(least) * sqrt(w * affine.points.size[i]))
    while best < clusters.n and not cost[best] <= tied:
        best += 1
    return best


cdef void move_point(
    Affine* affine, Py_ssize_t i, Py_ssize_t joined, MovingMeans* clusters, const sums_t* sums
) noexcept nogil:
    """A point, whose values are in ``clusters``, goes to another cluster; the means of both follow."""
    cdef int left = affine.points.labels[i], to = <int> joined, c
    cdef Py_ssize_t m, j, at = 0
    cdef double w = weight_of(&affine.points.rows, i)
    cdef double* mean
    sums_move_d(clusters.point, 1, 1, &at, &left, &to, &w, sums)
    affine.points.labels[i] = to
    for m in range(2):
        c = to if m else left
        if sums.count[c] > 0.0:
            mean = clusters.mean + c * clusters.d
            mean_of_sums(sums, c, mean, 1)
            clusters.weight[c] = sums_weight(sums, c)
            for j in range(clusters.d):
                mean[j] = min(max(mean[j], clusters.low[j]), clusters.high[j])


cdef class AffineSweep:
    """Points, scores and bounds of a fit, and the sweeps that find the nearest center of each point.

    kind : of the divergence, see divergences.pyx
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
    cdef readonly object upper_bounds, lower_bounds
    cdef double[3] largest              # of base, length and size

    def __init__(
        self, int kind, X, const double[::1] weight, const Py_ssize_t[::1] order, int[::1] label,
        const double[::1] place, const double[::1] base, const double[::1] length, const double[::1] size,
        int n_threads,
    ):
        cdef Affine* affine = &self.scores
        cdef Py_ssize_t n = label.shape[0]
        cdef double[::1] upper = np.full(n, np.inf), lower = np.zeros(n)
        cdef double[::1] tiles = np.empty(n_threads * AFFINE_LANES * (X.shape[1] + 1))
        affine.kind, affine.points.rows = kind, rows_of(X, None, None)
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
        affine.tiles = &tiles[0]
        self.n_threads, self.upper_bounds, self.lower_bounds = n_threads, np.asarray(upper), np.asarray(lower)
        self.arrays = [(X, weight, order, label, place, base, length, size, tiles), None, None]
        self.largest = [np.max(base), np.max(length), np.max(size)]
        affine.rounding.roundoff = (affine.points.rows.d + SUMMAND_ROUNDING) * EPSILON
        affine.rounding.logarithms = LOGARITHM_ROUNDING * EPSILON

    def set_centers(
        self, const double[:, ::1] means, slope, offset, bint on_border, double largest_slope, double largest_term
    ):
        """Centers, and their scores offset_k - slope_k . (x - m); bounds of the last sweep do not hold.

        means : IN array (k, d);  slope, offset : IN arrays (k, d) and (k,)
        on_border : whether components of centers are on the border of the domain
        largest_slope, largest_term : bounds on the lengths of slopes, and on what an offset is the difference of
        """
        cdef Affine* affine = &self.scores
        cdef Py_ssize_t k = slope.shape[0], d = slope.shape[1]
        cdef double[:, :, ::1] slopes
        cdef double[::1] offsets
        affine.centers.n, affine.centers.padded = k, (k + PANEL - 1) // PANEL * PANEL
        table, numbers = np.zeros((affine.centers.padded, d)), np.full(affine.centers.padded, np.inf)
        table[:k], numbers[:k] = -slope, offset
        slopes = np.ascontiguousarray(table.reshape(affine.centers.padded // PANEL, PANEL, d).transpose(0, 2, 1))
        offsets = numbers
        affine.centers.slopes, affine.centers.offsets = &slopes[0, 0, 0], &offsets[0]
        affine.centers.means, affine.centers.on_border = &means[0, 0], on_border
        self.arrays[1] = [means, slopes, offsets]
        affine.centers.largest_offset = np.max(offset)
        affine.centers.largest_slope, affine.centers.largest_term = largest_slope, largest_term
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

    def assign(self, Py_ssize_t first, Py_ssize_t last):
        """Assign points first..last-1 to their nearest centers."""
        cdef Affine* affine = &self.scores
        cdef Py_ssize_t multiply_adds = affine.points.rows.d * (affine.centers.padded + 2), n_chunks, at_once, chunk
        cdef ParallelLoop loop
        self._check(first, last)
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

    def _check(self, first, last):
        if not 0 <= first <= last <= self.scores.points.rows.n or self.arrays[1] is None:
            raise ValueError("there must be centers, and points first..last-1")

    def first_beyond(self, Py_ssize_t first, Py_ssize_t last, double lam):
        """The first of points first..last-1 whose weighted divergence from its center exceeds lam; -1: none."""
        cdef Py_ssize_t i, found = -1
        self._check(first, last)
        with nogil:
            for i in range(first, last):
                if weighted_divergence(&self.scores, i, lam) > lam:
                    found = i
                    break
                poll_signals(&self.work, self.scores.points.rows.d, AFFINE_WORK)
        return found

    def farthest(self, double lam):
        """The first point with the largest weighted divergence from its center, if that exceeds lam; otherwise -1."""
        cdef Py_ssize_t i, farthest = -1
        cdef double value
        self._check(0, 0)
        with nogil:
            for i in range(self.scores.points.rows.n):
                value = weighted_divergence(&self.scores, i, lam)
                if value > lam:
                    farthest, lam = i, value
                poll_signals(&self.work, self.scores.points.rows.d, AFFINE_WORK)
        return farthest

    def divergences(self, const int[::1] center):
        """The exact divergence of each point from one of the centers, (n,)."""
        cdef Py_ssize_t n = self.scores.points.rows.n, d = self.scores.points.rows.d
        cdef Py_ssize_t n_chunks = (n + AFFINE_CHUNK - 1) // AFFINE_CHUNK, chunk
        cdef double[::1] out = np.empty(n)
        cdef ParallelLoop loop
        self._check(0, n)
        if center.shape[0] != n:
            raise ValueError("center must match X")
        with nogil:
            loop = begin_loop(n_chunks, self.n_threads if SUMMAND_ROUNDING * n * d > PAYS else 1)
            for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                divergences_of_chunk(&self.scores, chunk, &center[0], &out[0], begin_chunk(&loop))
            end_loop(&loop)
        return np.asarray(out)

    def collapse(self, Sums sums, means, double lam, Py_ssize_t cap):
        """One collapsed sweep (MB13, eq. 8-9): means are those of the present labels at all times.

        Point i leaves its cluster and goes where the objective is lowest. Joining a cluster of weight s and mean m
        costs w D(x, m') + s D(m, m'), m' being the joint mean; being alone costs lam. Costs that differ by no more
        than rounding are equal: the first cluster is taken, and an old one before a new one.

        sums : INOUT, of the members of the clusters;  means : IN (k, d), their means
        Returns the points that moved, and the means of all clusters; those without members have any.
        """
        cdef Py_ssize_t i, left, joined, n_used = np.count_nonzero(sums.counts), moved = 0
        cdef double cost
        cdef bint alone
        cdef MovingMeans clusters
        cdef const double[::1] low = sums.layout.low, high = sums.layout.high
        cdef double[::1] values = np.empty(low.shape[0])
        clusters.n, clusters.d, clusters.rounding = len(means), self.scores.points.rows.d, MEAN_ROUNDING
        clusters.low, clusters.high, clusters.point = &low[0], &high[0], &values[0]
        arrays = hold_means(&clusters, sums, means)
        with nogil:
            for i in range(self.scores.points.rows.n):
                left = self.scores.points.labels[i]
                alone = sums.table.count[left] == 1.0
                cost = lam if n_used - alone < cap else HUGE_VAL
                joined = cheapest_cluster(&self.scores, i, &clusters, &sums.table, cost)
                poll_signals(&self.work, SUMMAND_ROUNDING * clusters.n * clusters.d, AFFINE_WORK)
                if joined == left or joined == clusters.n and alone:
                    continue
                if joined == clusters.n:
                    clusters.n += 1
                    n_used += 1
                    if clusters.n > clusters.capacity:
                        with gil:
                            arrays = hold_means(&clusters, sums, arrays[0])
                move_point(&self.scores, i, joined, &clusters, &sums.table)
                n_used -= alone
                moved += 1
        return moved, arrays[0][:clusters.n]
