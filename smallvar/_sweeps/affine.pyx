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
    CHUNK = 1024            # points that a thread handles at a time; results do not depend on it
    LANES = 8               # points of a tile
    WORK = 1 << 28          # multiply-adds between two checks for signals

cdef extern from *:
    """
    #define SMALLVAR_LARGEST_REACH 1e29
    #define SMALLVAR_OUTWARD 0x1p-50
    """
    # scores beyond would be above HUGE_DISTANCE_d, with which tiles begin
    const double LARGEST_REACH "SMALLVAR_LARGEST_REACH"
    # by this share a bound is rounded outward: four roundings
    const double OUTWARD "SMALLVAR_OUTWARD"

# what flags say of a point that was compared with all centers
UNSURE = 1                  # its two nearest centers, or whether its divergence is finite
BEYOND = 2                  # whether it is within the penalty, but for rounding

cdef enum:
    C_UNSURE = 1
    C_BEYOND = 2


cdef struct Affine:
    Rows rows                   # the points, in the order of visit
    int* labels                 # n
    const double* place         # d: m
    const double* base          # n: D(x, m)
    const double* length        # n: ||x - m||, in units of the columns
    const double* size          # n: how much rounding there is in exact divergences, see tolerance
    double* upper_bounds        # n: of the divergence from the assigned center
    double* lower_bounds        # n: of that from every other center
    unsigned char* flags        # n
    # centers
    Py_ssize_t padded           # their number, filled up to a multiple of PANEL
    const double* slopes        # -g_k in panels
    const double* offsets       # b_k
    # walls of all centers, those of center k from walls[k] on: columns where only one x is at a finite divergence
    const Py_ssize_t* walls     # k + 1, or NULL
    const Py_ssize_t* wall_columns
    const double* wall_values   # that x
    double roundoff             # of sums, relative to their largest terms,
    double logarithms           # and of exact divergences, relative to them
    double largest_offset
    double steep                # ||g_k||, at most
    double lean                 # of what an offset is the difference, at most, but for the offset itself
    double largest_error        # tolerance of any point, at most
    # what has moved since the bounds were made, of each center; NULL: there are no bounds
    const double* rise          # db_k
    const double* rise_length   # ||dg_k||
    const double* fall          # of any other center: -db, at most
    const double* fall_length   # ||dg||, at most
    double limit                # the penalty, as a weighted divergence
    double* tiles               # LANES (d + 1) numbers of each thread


cdef inline double reach_of(const Affine* a, Py_ssize_t i) noexcept nogil:
    """A bound on the divergences of a point from all centers, and on the terms that these are sums of."""
    return a.base[i] + a.largest_offset + a.steep * a.length[i]


cdef inline double tolerance(const Affine* a, double reach, double size) noexcept nogil:
    """How far base + score, and the exact divergence but for its logarithms, may be from the true one.

    A summand of a divergence is the difference of numbers whose square is no larger than size times the divergence.
    """
    return a.roundoff * (reach + a.lean + sqrt(size * reach))


cdef bint is_walled_off(const Affine* a, Py_ssize_t i, Py_ssize_t k) noexcept nogil:
    """Whether the divergence of a point from center k is infinite."""
    cdef Py_ssize_t m
    for m in range(a.walls[k], a.walls[k + 1]):
        if value_of(&a.rows, i, a.wall_columns[m]) != a.wall_values[m]:
            return True
    return False


cdef void load_tile(const Affine* a, const Py_ssize_t* points, Py_ssize_t size, double* tile) noexcept nogil:
    """x - m of LANES points, value j of point m at [j * LANES + m], filled up with the last one."""
    cdef const float* single[LANES]
    cdef const double* double_[LANES]
    cdef double[LANES] squares
    cdef Py_ssize_t m, j, d = a.rows.d
    if a.rows.col != 1:
        for m in range(LANES):
            read_row(&a.rows, points[min(m, size - 1)], tile + m, LANES)
            for j in range(d):
                tile[j * LANES + m] -= a.place[j]
    elif a.rows.single:
        for m in range(LANES):
            single[m] = point(<const float*> a.rows.x, &a.rows, points[min(m, size - 1)])
        sv_gather_fd(single, d, a.place, 1.0, tile, squares)
    else:
        for m in range(LANES):
            double_[m] = point(<const double*> a.rows.x, &a.rows, points[min(m, size - 1)])
        sv_gather_dd(double_, d, a.place, 1.0, tile, squares)


cdef void compare(Affine* a, const Py_ssize_t* points, Py_ssize_t size, double* tile) noexcept nogil:
    """Compare at most LANES points with all centers: labels, bounds and flags."""
    cdef double[LANES] least
    cdef double[LANES] second
    cdef int[16] nearest    # the kernel wants 64 bytes
    cdef double reach, error, nearer, other
    cdef Py_ssize_t m, i
    load_tile(a, points, size, tile)
    tile_top2_d(tile, a.rows.d, a.slopes, a.offsets, 0, a.padded, False, least, second, nearest)
    for m in range(size):
        i = points[m]
        reach = reach_of(a, i)
        error = tolerance(a, reach, a.size[i])
        nearer, other = max(a.base[i] + least[m], 0.0), a.base[i] + second[m]
        if (
            not (reach < LARGEST_REACH and is_apart(a, nearer, other, 4.0 * error))
            or a.walls != NULL and is_walled_off(a, i, nearest[m])
        ):
            a.flags[i] = C_UNSURE
            a.upper_bounds[i], a.lower_bounds[i] = HUGE_VAL, 0.0
            continue
        a.labels[i] = nearest[m]
        a.upper_bounds[i], a.lower_bounds[i] = nearer + error, other - error
        if a.limit < HUGE_VAL and not is_within(a, i, a.upper_bounds[i] + error):
            a.flags[i] = C_BEYOND


cdef inline bint is_apart(const Affine* a, double nearer, double other, double slack) noexcept nogil:
    """Whether one divergence is below another one, by more than slack and what logarithms are off."""
    return (1.0 + 2.0 * a.logarithms) * nearer + slack < (1.0 - 2.0 * a.logarithms) * other


cdef inline bint is_within(const Affine* a, Py_ssize_t i, double upper) noexcept nogil:
    """Whether the penalty is above the weighted bound, by more than rounding."""
    return (1.0 + 2.0 * a.logarithms) * upper * (1.0 if a.rows.weight == NULL else a.rows.weight[i]) < a.limit


cdef void assign_chunk(Affine* a, Py_ssize_t start, Py_ssize_t stop, int thread) noexcept nogil:
    cdef Py_ssize_t[LANES] points
    cdef unsigned char[CHUNK] failed
    cdef double* tile = a.tiles + thread * LANES * (a.rows.d + 1)
    cdef Py_ssize_t i, size = 0
    memset(a.flags + start, 0, stop - start)
    if a.rise == NULL:
        memset(failed, 1, stop - start)
    else:
        test_bounds(a, start, stop, failed)
    for i in range(start, stop):
        if failed[i - start] and not (a.rise != NULL and keeps_label(a, i)):
            points[size] = i
            size += 1
            if size == LANES:
                compare(a, points, size, tile)
                size = 0
    if size > 0:
        compare(a, points, size, tile)


cdef void test_bounds(Affine* a, Py_ssize_t start, Py_ssize_t stop, unsigned char* failed) noexcept nogil:
    """Bounds after the centers moved, and a test that is stricter than keeps_label, but faster."""
    cdef double upper, lower, slack = 2.0 * a.largest_error
    cdef Py_ssize_t i, z
    for i in range(start, stop):
        z = a.labels[i]
        upper = (a.upper_bounds[i] + (a.rise[z] + a.rise_length[z] * a.length[i])) * (1.0 + OUTWARD)
        lower = (a.lower_bounds[i] - (a.fall[z] + a.fall_length[z] * a.length[i])) * (1.0 - OUTWARD)
        upper = max(upper, 0.0)
        a.upper_bounds[i], a.lower_bounds[i] = upper, lower
        failed[i - start] = not is_apart(a, upper, lower, slack)
    if a.limit < HUGE_VAL:
        for i in range(start, stop):
            failed[i - start] |= not is_within(a, i, a.upper_bounds[i] + slack)


cdef bint keeps_label(const Affine* a, Py_ssize_t i) noexcept nogil:
    """Whether no other center is nearer, and the penalty is above."""
    cdef double reach = reach_of(a, i), error = tolerance(a, reach, a.size[i]), upper = a.upper_bounds[i]
    if not (is_apart(a, upper, a.lower_bounds[i], 2.0 * error) and reach < LARGEST_REACH):
        return False
    return not a.limit < HUGE_VAL or is_within(a, i, upper + error)


cdef class AffineSweep:
    """Points, scores and bounds of a fit, and the sweep that finds the least score of each point.

    Parameters
    ----------
    X : IN array (m, d), float32 or float64, any strides, may be read-only
    weight : IN array (n,) float64 > 0 in the order of visit, or None
    order : IN array (n,) intp, the rows that are visited; None: all, as given
    label : INOUT array (n,) int32 in the order of visit
    place : IN array (d,) float64, m
    base, length, size : IN arrays (n,) float64 in the order of visit: D(x, m), the length of x - m, and what a squared
        length is for squared distances
    n_threads : int
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
        cdef Affine* a = &self.scores
        cdef Py_ssize_t n = label.shape[0]
        cdef double[::1] upper = np.full(n, np.inf), lower = np.zeros(n)
        cdef double[::1] tiles = np.empty(n_threads * LANES * (X.shape[1] + 1))
        cdef unsigned char[::1] flags = np.zeros(n, dtype=np.uint8)
        a.rows = rows_of(X, None, None)
        if order is not None:
            a.rows.order, a.rows.n = &order[0], order.shape[0]
        if weight is not None:
            a.rows.weight = &weight[0]
        if n != a.rows.n or not (base.shape[0] == length.shape[0] == size.shape[0] == n) or place.shape[0] != a.rows.d:
            raise ValueError("labels and all numbers of points must match X")
        if weight is not None and weight.shape[0] != n:
            raise ValueError("weight must match X")
        a.labels, a.place, a.base, a.length, a.size = &label[0], &place[0], &base[0], &length[0], &size[0]
        a.upper_bounds, a.lower_bounds, a.flags, a.tiles = &upper[0], &lower[0], &flags[0], &tiles[0]
        self.n_threads, self.upper_bounds, self.flags = n_threads, np.asarray(upper), np.asarray(flags)
        points = (X, weight, order, label, place, base, length, size, lower, tiles)
        self.arrays = [points, None, None]
        self.largest = [np.max(base), np.max(length), np.max(size)]

    def set_scores(self, slope, offset, walls, double steep, double lean, double roundoff, double logarithms):
        """Scores offset_k - slope_k . (x - m).

        Parameters
        ----------
        slope, offset : IN arrays (k, d) and (k,)
        walls : IN array (k, d), 1 where the divergence is infinite for x > 0, 2 where it is for x < 1, and 0 elsewhere;
            None: there are none
        steep, lean : bounds on the lengths of slopes, and on what an offset is the difference of
        roundoff, logarithms : shares of the terms of a sum, and of an exact divergence, that rounding may be
        """
        cdef Affine* a = &self.scores
        cdef Py_ssize_t k = slope.shape[0], d = slope.shape[1]
        cdef double[:, :, ::1] slopes
        cdef double[::1] offsets
        cdef Py_ssize_t[::1] begin, columns
        cdef double[::1] values
        a.padded = (k + PANEL - 1) // PANEL * PANEL
        table, numbers = np.zeros((a.padded, d)), np.full(a.padded, np.inf)
        table[:k], numbers[:k] = -slope, offset
        slopes = np.ascontiguousarray(table.reshape(a.padded // PANEL, PANEL, d).transpose(0, 2, 1))
        offsets = numbers
        a.slopes, a.offsets, a.walls = &slopes[0, 0, 0], &offsets[0], NULL
        self.arrays[1] = [slopes, offsets]
        if walls is not None:
            center, column = np.nonzero(walls)
            begin, columns = np.searchsorted(center, np.arange(k + 1)), np.ascontiguousarray(column)
            values = np.where(walls[center, column] == 1, 0.0, 1.0)
            a.walls, a.wall_columns, a.wall_values = &begin[0], &columns[0], &values[0]
            self.arrays[1] += [begin, columns, values]
        a.largest_offset, a.steep, a.lean, a.roundoff = np.max(offset), steep, lean, roundoff
        a.logarithms = logarithms
        reach = self.largest[0] + a.largest_offset + steep * self.largest[1]
        a.largest_error = tolerance(a, reach, self.largest[2]) if reach < LARGEST_REACH else HUGE_VAL
        self.set_moves(None)

    def set_moves(self, const double[:, ::1] moves):
        """How scores differ from those of the bounds; None: there are no bounds.

        moves : IN array (4, k): rise, rise_length, fall, fall_length of Affine, rounded up
        """
        cdef Affine* a = &self.scores
        self.arrays[2] = moves
        a.rise = a.rise_length = a.fall = a.fall_length = NULL
        if moves is not None:
            a.rise, a.rise_length, a.fall, a.fall_length = &moves[0, 0], &moves[1, 0], &moves[2, 0], &moves[3, 0]

    def assign(self, Py_ssize_t first, Py_ssize_t last, double limit):
        """Assign points first..last-1 to their least scores, but for unsure ones, whose labels stay.

        limit : weighted divergences that are not surely below it are flagged; infinite: none
        """
        cdef Affine* a = &self.scores
        cdef Py_ssize_t multiply_adds = a.rows.d * (a.padded + 2), n_chunks, at_once, chunk
        cdef ParallelLoop loop
        if not 0 <= first <= last <= a.rows.n or self.arrays[1] is None:
            raise ValueError("there must be scores, and points first..last-1")
        a.limit = limit
        at_once = max(<Py_ssize_t> 2 * self.n_threads, WORK // (CHUNK * multiply_adds)) * CHUNK
        with nogil:
            while first < last:
                n_chunks = (min(at_once, last - first) + CHUNK - 1) // CHUNK
                loop = begin_loop(n_chunks, self.n_threads if CHUNK * n_chunks * multiply_adds > PAYS else 1)
                if loop.threads == 1:
                    for chunk in range(n_chunks):
                        assign_chunk(a, first + chunk * CHUNK, min(last, first + (chunk + 1) * CHUNK), 0)
                else:
                    for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                        assign_chunk(
                            a, first + chunk * CHUNK, min(last, first + (chunk + 1) * CHUNK), begin_chunk(&loop)
                        )
                end_loop(&loop)
                poll_signals(&self.work, n_chunks * CHUNK * multiply_adds, WORK)
                first += n_chunks * CHUNK
