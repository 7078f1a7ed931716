"""Rows whose columns are of several kinds, with cells that are missing: nearest centers, sums and divergences.

The divergence of a row from a cluster is a sum over the cells that are there,

    factor_j (x - mu)^2                      normal,         factor_j (x log(x / mu) - x + mu)    poisson,
    factor_j (x / mu - log(x / mu) - 1)      exponential,    -log mu_x                            codes,

mu the mean of the cluster or its share of the level x. But for a term that all clusters share each is affine in x or
is looked up, so that all clusters are compared by one pass over the cells (_mixed.h). Scores that differ by no more
than rounding are not decided by that: there divergences are computed as above, in the order of the columns, numbers
before codes; of equal ones the lowest cluster wins. So labels depend neither on threads nor on chunks.

Where there are many centers, and few of them have moved since the last pass, each point is compared with these and its
own. The others are compared by a bound, the least divergence of them in the last pass or before: it falls at most by
the smallest ratio of a factor to the one before. So Hamerly's bound (2010) needs no triangle inequality.

A share is that of the members and of ``pseudo_count`` more, which are distributed over the levels as all rows are. A
row alone in a cluster so has a cost of its own, ``cost_alone``, and a point opens a cluster where

    w D(x, mu) - cost_alone > lam.
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL, fabs, log

from smallvar._sweeps.mixed_rows cimport (
    C_EXPONENTIAL, C_NORMAL, C_POISSON, SUM_CHUNKS, SUM_ROWS, MixedRow, MixedRows, MixedTable, cost_alone, divergence,
    read_point, weight_of_point,
)
from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport poll_signals
from smallvar._sweeps.tolerances cimport C_OFF_BORDER, C_OPENED_OFF_BORDER

import numpy as np

cdef extern from "_mixed.h" nogil:
    enum:
        SM_PAD
    void sm_scores(const double*, const Py_ssize_t*, Py_ssize_t, const double*, const double*, const Py_ssize_t*,
                   Py_ssize_t, const double*, Py_ssize_t, double*)

cdef enum:
    MIXED_CHUNK = 1024      # points that a thread handles at a time; results do not depend on it
    BOUNDED = 32            # centers from which on there are bounds,
    MOST_MOVED = 2          # used where at most k / MOST_MOVED have moved
    MIXED_WORK = 1 << 27    # multiply-adds between two checks for signals

cdef extern from *:
    """
    #define SMALLVAR_MIXED_EPS 0x1p-52
    #define SMALLVAR_MIXED_SAME 1e-9
    """
    # nats: for lam = 0 a row that is no farther from its center opens no cluster. The mean of equal rows with weights
    # differs from them by rounding, so that clusters at them would open without end
    const double SAME "SMALLVAR_MIXED_SAME"
    const double EPS "SMALLVAR_MIXED_EPS"

NORMAL, POISSON, EXPONENTIAL = C_NORMAL, C_POISSON, C_EXPONENTIAL


cdef struct MixedCenters:
    Py_ssize_t k
    Py_ssize_t padded           # filled up to a multiple of SM_PAD
    const double* means         # k x p
    const double* slopes        # p x padded
    const double* offsets       # p x padded
    const double* costs         # levels x padded: -log of the shares
    const double* most_slope    # p: of all centers
    const double* most_offset   # p
    const double* most_cost     # of each level
    double most_error           # ``rounding`` of any row
    const unsigned char* zero_means  # k: whether a poisson mean is 0; or NULL: none is


cdef struct MixedBounds:        # of all points, where there are many centers
    double* least               # n (INOUT): at most the divergence from any center but that of ``label``
    int* label                  # n (INOUT): labels of the last pass
    const Py_ssize_t* kept      # of each center of that pass its number now, -1: it has moved; NULL: nothing is known
    MixedCenters moved          # slopes, offsets and costs of the centers that have moved since
    const Py_ssize_t* number    # their numbers
    double ratio                # that ``least`` is multiplied by


cdef struct ChunkResult:
    Py_ssize_t moved            # points whose label has changed
    Py_ssize_t farthest         # the point with the largest gain by opening a cluster, -1: none is above the limit
    double gain                 # that gain
    double pad[5]


cdef inline double exact(
    const MixedTable* table, const MixedCenters* centers, const MixedRow* row, Py_ssize_t k
) noexcept nogil:
    """The divergence of a row from center k."""
    cdef double total = 0.0
    cdef const double* mean = centers.means + k * table.p
    cdef Py_ssize_t m
    for m in range(row.n_numbers):
        total += table.factor[row.at[m]] * divergence(table.kind[row.at[m]], row.x[m], mean[row.at[m]])
    for m in range(row.n_levels):
        total += centers.costs[row.level[m] * centers.padded + k]
    return total


cdef inline double rounding(const MixedTable* table, const MixedCenters* centers, const MixedRow* row) noexcept nogil:
    """How far scores, and divergences as ``exact`` adds them up, may be from the true ones, together.

    The sizes are bounds on the terms that are added: for poisson x |log(x / m)| <= x^2 / m + m, for exponential
    |log(x / m)| <= x / m + m / x.
    """
    cdef double size = 0.0, x, place
    cdef Py_ssize_t m, j
    for m in range(row.n_numbers):
        j, x = row.at[m], row.x[m]
        place = table.place[j]
        size += fabs(row.shifted[m]) * centers.most_slope[j] + centers.most_offset[j]
        if table.kind[j] == C_NORMAL:
            size += table.factor[j] * row.shifted[m] * row.shifted[m]
        elif table.kind[j] == C_POISSON:
            size += table.factor[j] * (x * x / place + place)
        else:
            size += table.factor[j] * (x / place + place / x)
    for m in range(row.n_levels):
        size += centers.most_cost[row.level[m]]
    return (2.0 * (row.n_numbers + row.n_levels) + 32.0) * EPS * size


cdef bint is_infinitely_far(
    const MixedTable* table, const MixedCenters* centers, const MixedRow* row, Py_ssize_t k
) noexcept nogil:
    """Whether D(row, center k) is infinite: a count > 0 where the mean is 0. Its score is finite, see affine."""
    cdef Py_ssize_t m
    for m in range(row.n_numbers):
        if table.kind[row.at[m]] == C_POISSON and row.x[m] > 0.0 and centers.means[k * table.p + row.at[m]] == 0.0:
            return True
    return False


cdef inline void find_least(
    const double* score, Py_ssize_t n, Py_ssize_t* best, double* least, double* second
) noexcept nogil:
    """The two least scores, and the center of the least, the first one at a tie."""
    cdef Py_ssize_t k, first = 0
    cdef double low = HUGE_VAL, above = HUGE_VAL
    for k in range(n):
        if score[k] < above:    # seldom: most scores take one comparison
            if score[k] < low:
                above, low, first = low, score[k], k
            else:
                above = score[k]
    best[0], least[0], second[0] = first, low, above


cdef Py_ssize_t nearest(
    const MixedTable* table, const MixedCenters* centers, const MixedRow* row, double* score, double* gap
) noexcept nogil:
    """The nearest center; by ``gap`` (OUT) the divergence from it, as computed, is at least lower than others."""
    cdef double least, second, error, value
    cdef Py_ssize_t k, best, n_finite
    gap[0] = 0.0
    if centers.k == 1:
        return 0
    sm_scores(
        row.shifted, row.at, row.n_numbers, centers.slopes, centers.offsets, row.level, row.n_levels, centers.costs,
        centers.padded, score,
    )
    find_least(score, centers.k, &best, &least, &second)
    # scores are finite where divergences are infinite: then only centers at finite ones are compared
    if centers.zero_means != NULL and centers.zero_means[best] and is_infinitely_far(table, centers, row, best):
        n_finite = 0
        for k in range(centers.k):
            if centers.zero_means[k] and is_infinitely_far(table, centers, row, k):
                score[k] = HUGE_VAL
            else:
                n_finite += 1
        if n_finite == 0:
            return 0
        find_least(score, centers.k, &best, &least, &second)
    # each of the two may be off by the error
    error = centers.most_error
    if not second - least > 2.0 * error:
        error = rounding(table, centers, row)
    gap[0] = second - least - 4.0 * error
    if second - least > 2.0 * error:
        return best
    # ambiguous: exact divergences of all centers that may be the nearest
    gap[0] = -4.0 * error
    second = least + 4.0 * error
    least = HUGE_VAL
    best = 0
    for k in range(centers.k):
        if not score[k] > second:   # a score may be NaN
            value = exact(table, centers, row, k)
            if value < least:
                least, best = value, k
    return best


cdef double score_of(const MixedCenters* centers, const MixedRow* row, Py_ssize_t k) noexcept nogil:
    """The score that sm_scores gives center k: its divergence from the row, less what all centers share."""
    cdef double total = 0.0
    cdef Py_ssize_t m, place
    for m in range(row.n_numbers):
        place = row.at[m] * centers.padded + k
        total += row.shifted[m] * centers.slopes[place] + centers.offsets[place]
    for m in range(row.n_levels):
        total += centers.costs[row.level[m] * centers.padded + k]
    return total


cdef Py_ssize_t nearest_by_bound(
    const MixedTable* table, const MixedCenters* centers, const MixedRow* row, double* score, Py_ssize_t i,
    MixedBounds* bounds
) noexcept nogil:
    """The nearest center, if it is one that has moved or that of the last pass for certain; else -1."""
    cdef double least = HUGE_VAL, second = HUGE_VAL, error, value, distance
    cdef Py_ssize_t kept = bounds.kept[bounds.label[i]], best = -1
    if bounds.moved.k > 0:
        sm_scores(
            row.shifted, row.at, row.n_numbers, bounds.moved.slopes, bounds.moved.offsets, row.level, row.n_levels,
            bounds.moved.costs, bounds.moved.padded, score,
        )
        find_least(score, bounds.moved.k, &best, &least, &second)
        best = bounds.number[best]
    if kept >= 0:
        value = score_of(centers, row, kept)
        if value < least:
            second, least, best = least, value, kept
        elif not value >= second:
            second = value      # also NaN
    if best < 0:
        return -1
    error = centers.most_error
    if not second - least > 2.0 * error:
        return -1
    if centers.zero_means != NULL and centers.zero_means[best] and is_infinitely_far(table, centers, row, best):
        return -1
    distance = exact(table, centers, row, best)
    if not distance + 4.0 * error < bounds.ratio * bounds.least[i]:
        return -1
    bounds.least[i] = min(bounds.ratio * bounds.least[i], distance + (second - least - 4.0 * error))
    return best


cdef void assign_chunk(
    const MixedTable* table, const MixedCenters* centers, Py_ssize_t start, Py_ssize_t stop, double limit,
    MixedRow* row, double* score, int* labels, unsigned char* beyond, MixedBounds* bounds, ChunkResult* result
) noexcept nogil:
    """Labels of some points, and where opening a cluster gains more than the limit."""
    cdef Py_ssize_t i, label
    cdef double w, gain, distance, gap
    result.moved, result.farthest, result.gain = 0, -1, limit
    for i in range(start, stop):
        read_point(table, i, row)
        label = -1
        if bounds != NULL and bounds.kept != NULL:
            label = nearest_by_bound(table, centers, row, score, i, bounds)
        if label < 0:
            label = nearest(table, centers, row, score, &gap)
            if bounds != NULL:
                bounds.least[i] = exact(table, centers, row, label) + gap
        if bounds != NULL:
            bounds.label[i] = <int> label
        if labels[i] != label:
            labels[i] = <int> label
            result.moved += 1
        if limit < HUGE_VAL:
            w = weight_of_point(table, i)
            distance = exact(table, centers, row, label)
            gain = w * distance
            beyond[i] = gain > limit and (limit > 0.0 or distance > SAME)
            if beyond[i]:  # the cost alone is not negative, and takes logarithms: only where it can matter
                gain -= cost_alone(table, row, w)
                beyond[i] = gain > limit
                if gain > result.gain:
                    result.farthest, result.gain = i, gain


cdef void errors_of_part(
    const MixedTable* table, const MixedCenters* centers, Py_ssize_t start, Py_ssize_t stop, MixedRow* row,
    const int* labels, double* errors
) noexcept nogil:
    """Weighted sums of the divergences of each column of numbers in each cluster, without factors."""
    cdef Py_ssize_t i, m, j
    cdef const double* mean
    cdef double* own
    for i in range(start, stop):
        read_point(table, i, row)
        mean = centers.means + labels[i] * table.p
        own = errors + labels[i] * table.p
        for m in range(row.n_numbers):
            j = row.at[m]
            own[j] += weight_of_point(table, i) * divergence(table.kind[j], row.x[m], mean[j])


cdef void divergences_of_chunk(
    const MixedTable* table, const MixedCenters* centers, Py_ssize_t start, Py_ssize_t stop, MixedRow* row,
    const int* labels, double* out
) noexcept nogil:
    """Divergences of points from their own centers, or from all where there are no labels."""
    cdef Py_ssize_t i, k
    for i in range(start, stop):
        read_point(table, i, row)
        if labels != NULL:
            out[i] = exact(table, centers, row, labels[i])
        else:
            for k in range(centers.k):
                out[i * centers.k + k] = exact(table, centers, row, k)


cdef class MixedAssignment(MixedRows):
    """Packed rows, centers, and the passes that compare them.

    Centers are an array (k, p + levels): means of the numbers, shares of the levels.
    """

    cdef MixedCenters centers_
    cdef object center_arrays
    cdef readonly object centers
    cdef readonly object beyond
    cdef readonly Py_ssize_t n_moved, farthest
    cdef MixedBounds bounds
    cdef object bounded         # centers and factors of the last pass, and arrays of the bounds; None: there are none

    def __init__(self, *args):
        super().__init__(*args)
        self.beyond = np.zeros(0, dtype=np.uint8)
        self.farthest = -1

    @property
    def k(self):
        """Number of centers."""
        return len(self.centers)

    def set_centers(self, centers):
        """Measure by these centers, and by the factors as they are now."""
        cdef Py_ssize_t p = self.table.p, k = len(centers), padded = (k + SM_PAD - 1) // SM_PAD * SM_PAD
        kind, begin, place, shares = (np.asarray(a) for a in self.arrays["facts"])
        levels = int(begin[-1])
        centers = np.ascontiguousarray(centers, dtype=np.float64)
        if centers.ndim != 2 or k < 1 or centers.shape[1] != p + levels:
            raise ValueError("centers must have a mean for each column of numbers, and a share for each level")
        means = np.ascontiguousarray(centers[:, :p])
        slopes, offsets = np.zeros((max(1, p), padded)), np.zeros((max(1, p), padded))
        costs = np.zeros((max(1, levels), padded))
        zero_means = (kind == C_POISSON) & (means == 0.0)
        with np.errstate(all="ignore"):     # beyond float64 scores are NaN or infinite, and nothing is decided by them
            slope, offset = affine(kind, means, place, zero_means)
            slopes[:p, :k], offsets[:p, :k] = (slope * self.factor).T, (offset * self.factor).T
            costs[:levels, :k] = -np.log(centers[:, p:].T)
        costs[:levels][shares == 0.0] = 0.0
        most = [np.abs(a[:, :k]).max(axis=1) for a in (slopes, offsets, costs)]
        self.centers_.most_error = self.most_error(*most)
        has_zeros = zero_means.any(axis=1)
        self.keep_centers(centers, means, slopes, offsets, costs, most, has_zeros.view(np.uint8), has_zeros.any())

    def most_error(self, most_slope, most_offset, most_cost):
        """What ``rounding`` is at most for any row."""
        kind, begin, place, _ = (np.asarray(a) for a in self.arrays["facts"])
        p, q = len(kind), len(begin) - 1
        low, high = self.arrays["range"]
        with np.errstate(all="ignore"):
            far = np.maximum(np.abs(high - place), np.abs(low - place))
            own = np.where(kind == C_POISSON, high * high / place + place, high / place + place / low)
            own = self.factor * np.where(kind == C_NORMAL, far * far, own)
            size = far @ most_slope[:p] + most_offset[:p].sum() + own.sum() + most_cost.sum()
        return (2.0 * (p + q) + 36.0) * EPS * size

    cdef keep_centers(self, centers, const double[:, ::1] means, const double[:, ::1] slopes,
                      const double[:, ::1] offsets, const double[:, ::1] costs, most,
                      const unsigned char[::1] zero_means, bint has_zeros):
        cdef const double[::1] most_slope = most[0], most_offset = most[1], most_cost = most[2]
        cdef MixedCenters* to = &self.centers_
        self.centers, self.center_arrays = centers, (means, slopes, offsets, costs, most, zero_means)
        to.k, to.padded = len(centers), slopes.shape[1]
        to.means = &means[0, 0] if self.table.p else NULL
        to.slopes, to.offsets, to.costs = &slopes[0, 0], &offsets[0, 0], &costs[0, 0]
        to.most_slope, to.most_offset, to.most_cost = &most_slope[0], &most_offset[0], &most_cost[0]
        to.zero_means = &zero_means[0] if has_zeros else NULL

    def assign_points(self, Py_ssize_t first, Py_ssize_t last, double limit):
        """Points first..last-1 join their nearest centers; ``beyond`` tells where opening a cluster gains more.

        Of these, ``farthest`` is the one that gains most, the first one at a tie; -1: there is none.
        """
        cdef Py_ssize_t n = last - first, per_point, at_once, n_chunks, chunk, done = first
        cdef const MixedTable* table = &self.table
        cdef const MixedCenters* centers = &self.centers_
        cdef int[::1] labels = self.labels
        cdef unsigned char[::1] beyond
        cdef ParallelLoop loop
        cdef int thread
        cdef double gain = limit
        if not 0 <= first <= last <= table.n or self.centers is None:
            raise ValueError("there must be centers, and points first..last-1")
        if limit < HUGE_VAL and len(self.beyond) < table.n:
            self.beyond = np.zeros(table.n, dtype=np.uint8)
        self.n_moved, self.farthest = 0, -1
        if n == 0:
            return
        beyond = self.beyond
        cdef unsigned char* flags = &beyond[0] if beyond.shape[0] else NULL
        per_point = (table.p + table.q) * (centers.padded + 4) + 16
        at_once = max(<Py_ssize_t> 2 * self.n_threads, MIXED_WORK // (MIXED_CHUNK * per_point))
        cdef unsigned char[::1] memory = np.empty(at_once * sizeof(ChunkResult), dtype=np.uint8)
        cdef ChunkResult* results = <ChunkResult*> &memory[0]
        cdef double[:, ::1] score = np.empty((self.n_threads, centers.padded + 8))
        cdef MixedBounds* bounds = NULL
        known, self.bounded = self.bounded, None
        if centers.k >= BOUNDED and limit == HUGE_VAL and n == table.n:
            now = self.begin_bounds(known)
            bounds = &self.bounds
        with nogil:
            while done < last:
                n_chunks = min(at_once, (last - done + MIXED_CHUNK - 1) // MIXED_CHUNK)
                loop = begin_loop(n_chunks, self.n_threads if n_chunks * MIXED_CHUNK * per_point > PAYS else 1)
                for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                    thread = begin_chunk(&loop)
                    assign_chunk(
                        table, centers, done + chunk * MIXED_CHUNK, min(last, done + (chunk + 1) * MIXED_CHUNK), limit,
                        &self.rows[thread], &score[thread, 0], &labels[0], flags, bounds, &results[chunk],
                    )
                end_loop(&loop)
                for chunk in range(n_chunks):
                    self.n_moved += results[chunk].moved
                    if results[chunk].farthest >= 0 and results[chunk].gain > gain:
                        self.farthest, gain = results[chunk].farthest, results[chunk].gain
                poll_signals(&self.work, n_chunks * MIXED_CHUNK * per_point, MIXED_WORK)
                done += n_chunks * MIXED_CHUNK
        if bounds != NULL:
            self.bounded = now

    cdef begin_bounds(self, known):
        """Set ``bounds`` for a pass by what is ``known`` after the last one; returns what is known after this one."""
        cdef MixedBounds* to = &self.bounds
        cdef Py_ssize_t n = self.table.n, k = self.centers_.k, c
        cdef double[::1] least
        cdef int[::1] label
        cdef Py_ssize_t[::1] kept, number
        cdef const double[:, ::1] slopes, offsets, costs
        to.kept = NULL
        if known is None:
            least, label = np.empty(n), np.empty(n, dtype=np.int32)
        else:
            before, factor, least, label = known[:4]
        to.least, to.label = &least[0], &label[0]
        now = self.centers, self.factor.copy(), least, label
        if known is None:
            return now
        old = {center.tobytes(): c for c, center in enumerate(before)}
        kept, moved = np.full(len(before), -1, dtype=np.intp), []
        for c, center in enumerate(self.centers):
            at = old.pop(center.tobytes(), -1)
            if at < 0:
                moved.append(c)
            else:
                kept[at] = c
        if MOST_MOVED * len(moved) > k:
            return now
        padding = moved + [0] * ((len(moved) + SM_PAD - 1) // SM_PAD * SM_PAD - len(moved))
        number = np.array(padding, dtype=np.intp)
        slopes, offsets, costs = (np.asarray(a)[:, padding].copy() for a in self.center_arrays[1:4])
        to.moved.k, to.moved.padded = len(moved), len(padding)
        if moved:
            to.moved.slopes, to.moved.offsets, to.moved.costs = &slopes[0, 0], &offsets[0, 0], &costs[0, 0]
            to.number = &number[0]
        # less than the true ratio by more than rounding, as least divergences are multiplied again and again
        to.ratio = (1.0 - 8.0 * EPS) * np.min(self.factor / factor, initial=1.0)
        to.kept = &kept[0]
        return *now, (kept, number, slopes, offsets, costs)

    def open_in_order(self, Py_ssize_t first, Py_ssize_t last, double lam, Py_ssize_t cap, Py_ssize_t most):
        """Algorithm 1 on points that ``assign_points`` has compared with all centers, one after the other.

        Each of them opens a cluster if that gains more than lam, or joins one opened here if it is nearer. Stops before
        more than ``most`` clusters are opened; returns the point after the last one, and the centers opened.
        """
        cdef const MixedTable* table = &self.table
        cdef MixedCenters* centers = &self.centers_
        cdef MixedRow* row = &self.rows[0]
        cdef MixedCenters opened
        cdef Py_ssize_t i = first, k = centers.k, n = 0, c
        cdef int[::1] labels = self.labels
        cdef const unsigned char[::1] beyond = self.beyond
        cdef double w, distance, new_distance
        levels = table.begin[table.q]
        means, shares = np.zeros((most, max(1, table.p))), np.zeros((most, max(1, levels)))
        cdef double[:, ::1] mean = means, share = shares, cost = np.zeros((max(1, levels), most))
        opened.padded, opened.costs = most, &cost[0, 0]
        opened.means = &mean[0, 0]
        while i < last:
            if n == 0 and not beyond[i]:
                i += 1
                continue
            if n == most:
                break
            poll_signals(&self.work, (table.p + table.q) * (n + 2), MIXED_WORK)
            read_point(table, i, row)
            w = weight_of_point(table, i)
            distance = exact(table, centers, row, labels[i])
            for c in range(n):
                new_distance = exact(table, &opened, row, c)
                if new_distance < distance:
                    distance, labels[i] = new_distance, <int> (k + c)
            if (
                k + n < cap and w * distance > lam and (lam > 0.0 or distance > SAME)
                and w * distance - cost_alone(table, row, w) > lam
            ):
                open_center(table, row, w, 0.0, &mean[n, 0], &share[n, 0])
                move_off_border(table, row, w, w * distance - cost_alone(table, row, w), lam, &mean[n, 0])
                for c in range(table.begin[table.q]):
                    cost[c, n] = -log(share[n, c]) if share[n, c] > 0.0 else 0.0
                labels[i] = <int> (k + n)
                n += 1
            i += 1
        return i, np.hstack([means[:n, : table.p], shares[:n, :levels]])

    def opened_at(self, Py_ssize_t point, double lam):
        """The center of a cluster that opens at a point, and whether no poisson mean of it is 0 where it could be."""
        cdef const MixedTable* table = &self.table
        cdef MixedRow* row = &self.rows[0]
        cdef double w = weight_of_point(table, point), gain
        cdef const int[::1] labels = self.labels
        cdef double[:, ::1] mean = np.zeros((1, table.p + 1)), share = np.zeros((1, table.begin[table.q] + 1))
        cdef bint off_border
        read_point(table, point, row)
        gain = w * exact(table, &self.centers_, row, labels[point]) - cost_alone(table, row, w)
        open_center(table, row, w, 0.0, &mean[0, 0], &share[0, 0])
        off_border = move_off_border(table, row, w, gain, lam, &mean[0, 0])
        return np.hstack([np.asarray(mean)[:, :-1], np.asarray(share)[:, :-1]]), bool(off_border)

    def centers_at(self, const Py_ssize_t[::1] points, double prior_rows=0.0):
        """The centers of clusters of these points alone, or seeds at them: see ``seed_mean``."""
        cdef Py_ssize_t m, n = points.shape[0], levels = self.table.begin[self.table.q]
        means, shares = np.zeros((n, self.table.p + 1)), np.zeros((n, levels + 1))
        cdef double[:, ::1] mean = means, share = shares
        for m in range(n):
            if not 0 <= points[m] < self.table.n:
                raise ValueError("there must be such points")
            read_point(&self.table, points[m], &self.rows[0])
            open_center(
                &self.table, &self.rows[0], weight_of_point(&self.table, points[m]), prior_rows, &mean[m, 0],
                &share[m, 0],
            )
        return np.hstack([means[:, :-1], shares[:, :-1]])

    def divergences_alone(self, double prior_rows=0.0):
        """Divergences of all points from the centers that ``centers_at`` gives for them."""
        cdef const MixedTable* table = &self.table
        cdef double[::1] out = np.zeros(table.n)
        cdef MixedRow* row = &self.rows[0]
        cdef double w, a = table.pseudo_count
        cdef Py_ssize_t i, m, j
        with nogil:
            for i in range(table.n):
                read_point(table, i, row)
                w = weight_of_point(table, i)
                for m in range(row.n_numbers):
                    j = row.at[m]
                    out[i] += table.factor[j] * divergence(
                        table.kind[j], row.x[m], seed_mean(table, j, row.x[m], prior_rows)
                    )
                for m in range(row.n_levels):
                    out[i] -= log((w + a * table.shares[row.level[m]]) / (w + a))
                poll_signals(&self.work, table.p + table.q, MIXED_WORK)
        return np.asarray(out)

    def column_errors(self):
        """Weighted sums of the divergences of each column of numbers, without factors, from the own centers."""
        return self.cluster_errors().sum(axis=0)

    def cluster_errors(self):
        """The same of the members of each cluster, (k, p)."""
        cdef const MixedTable* table = &self.table
        cdef Py_ssize_t n = table.n, part, size = max(<Py_ssize_t> SUM_ROWS, (n + SUM_CHUNKS - 1) // SUM_CHUNKS)
        cdef Py_ssize_t n_chunks = (n + size - 1) // size
        cdef double[:, ::1] errors = np.zeros((max(<Py_ssize_t> 1, n_chunks), self.k * table.p + 8))
        cdef const int[::1] labels = self.labels
        cdef ParallelLoop loop
        with nogil:
            loop = begin_loop(n_chunks, self.n_threads if 8 * n * table.p > PAYS else 1)
            for part in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                errors_of_part(
                    table, &self.centers_, part * size, min(n, (part + 1) * size), &self.rows[begin_chunk(&loop)],
                    &labels[0], &errors[part, 0],
                )
            end_loop(&loop)
        poll_signals(&self.work, MIXED_WORK, 0)
        return np.asarray(errors)[:, : self.k * table.p].sum(axis=0).reshape(self.k, table.p)

    def divergences(self, bint to_assigned):
        """Divergences of all points from their own centers, (n,), or from all centers, (n, k)."""
        cdef const MixedTable* table = &self.table
        cdef Py_ssize_t n = table.n, first = 0, last, chunk, n_chunks = (n + MIXED_CHUNK - 1) // MIXED_CHUNK
        cdef Py_ssize_t k = 1 if to_assigned else self.centers_.k, work = MIXED_CHUNK * k * (table.p + table.q)
        cdef double[::1] out = np.empty(max(<Py_ssize_t> 1, n * k))
        cdef const int[::1] labels = self.labels
        cdef const int* label = &labels[0] if to_assigned and n else NULL
        cdef ParallelLoop loop
        with nogil:
            while first < n_chunks:
                last = min(n_chunks, first + max(<Py_ssize_t> self.n_threads, MIXED_WORK // work))
                loop = begin_loop(last - first, self.n_threads if 8 * (last - first) * work > PAYS else 1)
                for chunk in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                    divergences_of_chunk(
                        table, &self.centers_, chunk * MIXED_CHUNK, min(n, (chunk + 1) * MIXED_CHUNK),
                        &self.rows[begin_chunk(&loop)], label, &out[0],
                    )
                end_loop(&loop)
                poll_signals(&self.work, (last - first) * work, MIXED_WORK)
                first = last
        out_array = np.asarray(out)[: n * k]
        return out_array if to_assigned else out_array.reshape(n, k)


cdef inline double seed_mean(const MixedTable* table, Py_ssize_t j, double x, double prior_rows) noexcept nogil:
    """The mean of a seed at a number x: x itself, but for counts between x and the overall mean m.

    A mean of 0 is infinitely far from every row with a larger count. With the gamma law as a conjugate prior, worth b
    rows of the mean m, the mean given x is (x + b m) / (1 + b).
    """
    if table.kind[j] != C_POISSON or prior_rows == 0.0:
        return x
    return (x + prior_rows * table.place[j]) / (1.0 + prior_rows)


cdef bint move_off_border(
    const MixedTable* table, const MixedRow* row, double w, double gain, double lam, double* mean
) noexcept nogil:
    """Move means of 0 of a cluster that opens at a row (INOUT) toward those of all rows, where it is worth it.

    They are infinitely far from every row with more. With the moved ones the row costs w times the sum of their
    factor times mean more: the objective falls in any case if the gain less that exceeds lam. Returns if they moved.
    """
    cdef double more = 0.0
    cdef Py_ssize_t m, j
    for m in range(row.n_numbers):
        j = row.at[m]
        if table.kind[j] == C_POISSON and row.x[m] == 0.0:
            more += table.factor[j] * (C_OPENED_OFF_BORDER * table.place[j])
    if not (more > 0.0 and gain - w * more > lam):
        return False
    for m in range(row.n_numbers):
        j = row.at[m]
        if table.kind[j] == C_POISSON and row.x[m] == 0.0:
            mean[j] = C_OPENED_OFF_BORDER * table.place[j]
    return True


cdef void open_center(
    const MixedTable* table, const MixedRow* row, double w, double prior_rows, double* mean, double* share
) noexcept nogil:
    """The center of a cluster of one row: overall means and shares where it has no cell."""
    cdef Py_ssize_t j, m, v, level
    cdef double a = table.pseudo_count
    for j in range(table.p):
        mean[j] = table.place[j]
    for m in range(row.n_numbers):
        mean[row.at[m]] = seed_mean(table, row.at[m], row.x[m], prior_rows)
    for v in range(table.begin[table.q]):
        share[v] = table.shares[v]
    for m in range(row.n_levels):
        level = row.level[m]
        j = 0
        while table.begin[j + 1] <= level:
            j += 1
        for v in range(table.begin[j], table.begin[j + 1]):
            share[v] = (a * table.shares[v] + (w if v == level else 0.0)) / (a + w)


def affine(kind, means, place, walls):
    """Slopes g and offsets b of D(x, mu) = D(x, m) + g (x - m) + b, for means (k, p).

    Where a poisson mean is 0, that is right for x = 0, and below the true divergence, which is infinite, for others.
    """
    slope, offset = np.zeros(means.shape), np.zeros(means.shape)
    at = kind == C_NORMAL
    delta = place[at] - means[:, at]
    slope[:, at], offset[:, at] = 2.0 * delta, delta * delta
    at = kind == C_POISSON
    m = np.broadcast_to(place[at], means[:, at].shape)
    mu = np.where(walls[:, at], m * C_OFF_BORDER, means[:, at])
    ratio = np.where(np.abs(mu - m) <= 0.5 * m, np.log1p((mu - m) / m), np.log(mu) - np.log(m))
    slope[:, at], offset[:, at] = -ratio, means[:, at] - m - m * ratio
    at = kind == C_EXPONENTIAL
    m, mu = place[at], means[:, at]
    ratio = np.where(np.abs(mu - m) <= 0.5 * m, np.log1p((mu - m) / m), np.log(mu) - np.log(m))
    slope[:, at], offset[:, at] = (m - mu) / m / mu, ratio + (m - mu) / mu
    return slope, offset
