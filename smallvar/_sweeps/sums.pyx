"""Exact sums of rows by cluster: they depend neither on the order of the rows nor on how these are shared out.

A sum of float64 numbers is exact as long as all of them are multiples of one power of two, the *grain*, and the sum
stays below 2^53 grains. So each w (x - origin) is cut into two pieces (three or more where the data need it), the first
a multiple of a coarse grain, the second of a grain 2^width finer, and each is added to a sum of its own, a *bin*. What
is left of a number after that is dropped. It does not depend on the other numbers, and is

- at most 2^-50 times the largest number of the column, for every number;
- at most 2^-50 times the number itself, but for a share ``rare`` of the rows, whose numbers may be too small for that.

``Layout`` chooses origin, grains and bins for the rows of a fit, ``Sums`` adds rows up, ``Stream`` goes on over batches
whose bins differ, and ``exact_total`` adds any numbers. The equations are in _sums.h.
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL, copysign, fabs, frexp, ldexp, rint
from libc.stdint cimport int64_t
from libc.string cimport memset

from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.ranges cimport CHUNKS_AT_ONCE, chunks_of, rows_of_chunk
from smallvar._sweeps.rows cimport (
    Rows,
    is_sparse,
    poll_signals,
    refuse_rows,
    rows_of,
    start_of,
    value_of,
    weight_of,
)
from smallvar._sweeps.tolerances cimport C_COLUMN_ROUNDING

from smallvar._sweeps.ranges import column_range, count_small

import numpy as np

cdef extern from "_sums.h" nogil:
    void accumulator_add_one(int64_t*, Py_ssize_t, double)

cdef enum:
    SUM_BLOCK = 256             # rows handed to the sums at a time
    KEPT_BITS = 50              # bits that are kept of a number,
    MAX_WIDTH = 40              # most bits of a bin
    MAX_BINS = 64
    ROWS_BITS = 64              # a stream may have up to 2^64 rows

cdef extern from *:
    """
    #define SMALLVAR_SMALLEST_POSITIVE 5e-324
    #define SMALLVAR_LARGEST_TERM 1e300
    """
    # the least positive float64: a mean that is not 0 but would round to 0 becomes this
    const double C_SMALLEST_POSITIVE "SMALLVAR_SMALLEST_POSITIVE"
    const double LARGEST_TERM "SMALLVAR_LARGEST_TERM"  # of X times weights, so that sums stay within float64

# the same numbers for Python
COLUMN_ROUNDING = C_COLUMN_ROUNDING


# ---- rows to and from clusters ---------------------------------------------------------------------------------------


cdef void add_chunk(const Rows* r, Py_ssize_t chunk, int thread, const int* label, const sums_t* sums) noexcept nogil:
    """Add the rows of a chunk to the sums of this thread."""
    cdef Py_ssize_t start = chunk * rows_of_chunk(r.d)
    move_points(r, start, min(r.n, start + rows_of_chunk(r.d)), NULL, label + start, &sums[thread])


cdef void move_points(
    const Rows* r, Py_ssize_t start, Py_ssize_t stop, const int* left, const int* joined, const sums_t* sums
) noexcept nogil:
    """Move points start..stop-1 from clusters left to clusters joined, one entry a point.

    -1 is no cluster, as for a point that is not in any sums yet; left may be NULL: -1 for all.
    """
    cdef Py_ssize_t[SUM_BLOCK] at
    cdef Py_ssize_t done = 0, m, size
    if is_sparse(r):
        # entry by entry: an origin of 0 leaves nothing to add for those that are not stored
        for m in range(stop - start):
            if left == NULL or left[m] != joined[m]:
                if left != NULL:
                    move_entries(r, start + m, left[m], -1.0, sums)
                move_entries(r, start + m, joined[m], 1.0, sums)
        return
    # where rows are visited in another order, start_of says where each lies
    while done < stop - start:
        size = min(<Py_ssize_t> SUM_BLOCK, stop - start - done)
        for m in range(size):
            at[m] = start_of(r, start + done + m)
        move_rows(r, size, at, NULL if left == NULL else left + done, joined + done,
                  NULL if r.weight == NULL else r.weight + start + done, sums)
        done += size


# ---- bins, and sums in them ------------------------------------------------------------------------------------------


cdef double power_above(double value) noexcept nogil:
    """The least power of two that is not below a value >= 0; 0 for 0."""
    cdef int exponent = 0
    cdef double fraction = frexp(value, &exponent)
    return ldexp(1.0, exponent - (fraction == 0.5)) if fraction > 0.0 else 0.0


cdef double origin_of_column(double low, double high) noexcept nogil:
    """The origin of the sums of a column between these values, see round_origin."""
    cdef double half = 0.5 * high - 0.5 * low, middle = low + half, step
    cdef int exponent
    if fabs(middle) <= 3.0 * half:  # beyond that a value less the origin is exact (Sterbenz)
        return 0.0
    if half <= 0.0:
        return low
    frexp(half, &exponent)
    step = ldexp(1.0, exponent - 1)  # the power of two that is not above half
    return rint(middle / step) * step


def round_origin(const double[::1] low, const double[::1] high):
    """The origin of the sums of each column, so that sums of round numbers stay exact.

    0 where that is no farther from the middle of the data than 1.5 times their width, else a round number near the
    middle; for a constant column, its value.
    """
    cdef double[::1] origin = np.empty(low.shape[0])
    cdef Py_ssize_t j
    for j in range(low.shape[0]):
        origin[j] = origin_of_column(low[j], high[j])
    return np.asarray(origin)


cdef bint begin_bins(
    const double* low, const double* high, const double* origin, Py_ssize_t d, Py_ssize_t n, double lightest,
    double heaviest, double* reach, double* unit, Bins* bins
) noexcept nogil:
    """The least bins for n rows between ``low`` and ``high``, of weights between these (0: no weights).

    False where sums might leave float64.  OUT reach: d;  unit: d + 1, see Layout
    """
    cdef Py_ssize_t j, rows = n - 1
    cdef double top = 1.0
    cdef int exponent, top_exponent, row_bits = 0
    cdef bint fits = True
    bins.bits = KEPT_BITS
    if heaviest > 0.0:  # the lightest row keeps as many bits as the heaviest
        top = power_above(heaviest)
        frexp(top, &top_exponent)
        frexp(lightest, &exponent)
        bins.bits += top_exponent - exponent
    unit[d] = top
    fits = top < LARGEST_TERM
    for j in range(d):
        reach[j] = power_above(max(fabs(high[j] - origin[j]), fabs(low[j] - origin[j])))
        unit[j] = reach[j] * top
        fits = fits and unit[j] < LARGEST_TERM
    while rows > 0:
        rows, row_bits = rows >> 1, row_bits + 1
    # n pieces, each at most 2^width grains in size, stay below 2^53 of them
    bins.width = max(1, min(<int> MAX_WIDTH, 52 - row_bits))
    bins.count = max(2, (bins.bits + bins.width - 1) // bins.width)
    return fits


cdef void limits_of_bins(const double* reach, Py_ssize_t d, const Bins* bins, double* limit) noexcept nogil:
    """The size below which a number of each column loses some of its bits.  OUT limit: d"""
    cdef Py_ssize_t j
    for j in range(d):
        limit[j] = ldexp(reach[j], bins.bits - <int> bins.count * bins.width)


cdef bint add_bin(const double* small, Py_ssize_t d, double most, Bins* bins) noexcept nogil:
    """Add a bin if any column has more than so many rows below its limit, and MAX_BINS allows it."""
    cdef Py_ssize_t j
    for j in range(d):
        if small[j] > most:
            bins.count += 1
            return bins.count < MAX_BINS
    return False


cdef void magic_of_bins(const double* unit, Py_ssize_t d, const Bins* bins, double* magic) noexcept nogil:
    """The numbers that cut off the pieces, see _sums.h.  OUT magic: bins.count x (d + 1)"""
    cdef Py_ssize_t b, j
    for b in range(bins.count):
        for j in range(d + 1):
            magic[b * (d + 1) + j] = ldexp(1.5 * ldexp(unit[j], <int> (-bins.width * (b + 1))), 52)


class Layout:
    """The bins in which the rows of some data are summed; it depends on the set of rows, not on their order.

    ``unit`` (d + 1,), powers of two, bound each column's w |x - origin|, and the weights. ``bins`` bins of ``width``
    bits keep 50 bits of the largest numbers of a column, and 50 bits of every number except in a share ``rare`` of the
    rows, which may lie too near to the origin (in more of them where that takes more than MAX_BINS bins). ``magic``
    (bins, d + 1) are the numbers that cut off the pieces, see _sums.h.

    X : IN array (n, d), float32 or float64, or sparse rows;  weight : IN array (n,) or None
    origin : IN array (d,), or None: a round point near the data. Of sparse rows it is 0 in every column in which a row
        of positive weight has an entry that is not stored, as the round point is, so that only stored ones are summed
    low, high : IN arrays (d,), the column_range of X and weight, where it is known
    """

    def __init__(self, X, weight, n_threads, *, origin=None, low=None, high=None, rare=1.0 / RARE_ONE_IN):
        if low is None:
            low, high = column_range(X, weight, n_threads)
        n, extremes = X.shape[0], None
        if weight is not None:
            used = weight[weight > 0.0]
            n, extremes = len(used), (float(used.min()), float(used.max()))
        self._choose(low, high, origin, n, extremes, rare,
                     lambda origin, limit: count_small(X, weight, origin, limit, n_threads))

    @classmethod
    def of_statistics(cls, low, high, n, extremes, count, *, origin=None, rare=1.0 / RARE_ONE_IN):
        """A layout from what is known of all rows of positive weight, wherever they are.

        low, high : their column_range;  n : how many there are
        extremes : the least and the largest of their weights, or None: no weights
        count : called with origin and limit, gives their count_small
        """
        layout = cls.__new__(cls)
        layout._choose(low, high, origin, n, extremes, rare, count)
        return layout

    def _choose(self, low, high, origin, n, extremes, rare, count):
        """Set origin, unit, width, bins and magic, see of_statistics."""
        cdef Py_ssize_t d = len(low)
        self.low, self.high = low, high
        self.origin = round_origin(low, high) if origin is None else np.ascontiguousarray(origin, dtype=np.float64)
        self.unit = np.empty(d + 1)
        cdef const double[::1] least = low, most = high, middle = self.origin, small
        cdef double[::1] unit = self.unit, reach = np.empty(d), limit = np.empty(d)
        cdef double[:, ::1] magic
        cdef Bins bins
        cdef double lightest = 0.0, heaviest = 0.0
        self.weighted = extremes is not None
        if self.weighted:
            lightest, heaviest = extremes
        if not begin_bins(&least[0], &most[0], &middle[0], d, n, lightest, heaviest, &reach[0], &unit[0], &bins):
            raise ValueError(
                "X must stay below 1e300 in size, times sample_weight, got rows whose sums leave float64"
            )
        again = bins.count < MAX_BINS
        while again:
            limits_of_bins(&reach[0], d, &bins, &limit[0])
            small = count(self.origin, np.asarray(limit))
            again = add_bin(&small[0], d, rare * n, &bins)
        self.width, self.bins = bins.width, bins.count
        self.magic = magic = np.empty((self.bins, d + 1))
        magic_of_bins(&unit[0], d, &bins, &magic[0, 0])

    def center(self, X, weight, n_threads):
        """Mean of these rows, and their weight."""
        sums = Sums(self, 1)
        sums.add(X, np.zeros(X.shape[0], dtype=np.int32), weight, n_threads)
        return sums.center(0)

    def mean(self, X, weight, n_threads):
        """Mean of these rows."""
        return self.center(X, weight, n_threads)[0]


cdef void mean_of_sums(const sums_t* sums, Py_ssize_t k, double* mean, Py_ssize_t step) noexcept nogil:
    """The mean of a cluster; NaN if it has no members.  OUT mean: its d values, ``step`` apart"""
    cdef double weight = sums_weight(sums, k), total, offset
    cdef Py_ssize_t j
    for j in range(sums.d):
        total, offset = sums_total(sums, k, j), sums_quotient(sums, k, j, weight)
        if offset == 0.0 and total != 0.0:  # below the least positive float64: it must not become 0
            offset = copysign(C_SMALLEST_POSITIVE, total)
        mean[j * step] = sums.origin[j] + offset


cdef class Sums:
    """Sums of w (x - origin) and of w, and numbers of members, of clusters of rows.

    layout : a Layout, the bins;  k : clusters there is memory for at first
    """

    def __init__(self, layout, Py_ssize_t k):
        cdef const double[::1] origin = layout.origin
        cdef const double[:, ::1] magic = layout.magic
        self.layout = layout
        self.table.d, self.table.bins, self.table.weighted = origin.shape[0], layout.bins, layout.weighted
        self.table.origin, self.table.magic = &origin[0], &magic[0, 0]
        self.reserve(k)

    cpdef reserve(self, Py_ssize_t k):
        """Make the memory suffice for k clusters; those that are there stay, and new memory is 0."""
        cdef double[:, :, ::1] cell
        cdef double[::1] count
        if k <= self.capacity:
            return
        old, size = self.arrays, k if self.arrays is None else 2 * k + 8
        arrays = np.zeros((size, self.table.bins, self.table.d + 1)), np.zeros(size)
        if old is not None:
            for new_array, old_array in zip(arrays, old):
                new_array[:len(old_array)] = old_array
        cell, count = arrays
        self.table.cell, self.table.count = &cell[0, 0, 0], &count[0]
        self.arrays, self.capacity = arrays, size

    def add(self, X, const int[::1] label, const double[::1] weight, int n_threads=1):
        """Add rows X (n, d) of these weights, (n,) or None, to the clusters label, (n,); -1: to none."""
        cdef Rows rows = rows_of(X, weight, None)
        cdef Py_ssize_t n_chunks = chunks_of(&rows), first = 0, last, chunk, work = 0
        cdef int t, threads = 1
        cdef sums_t[MAX_SUM_THREADS] of_thread
        cdef ParallelLoop loop
        self._check(X.shape[1], rows.n, label, weight)
        # sums of each thread take as much time to unite as clusters times threads
        if 8 * rows.n * self.table.d > PAYS and rows.n > 8 * self.capacity:
            threads = min(n_threads, <int> MAX_SUM_THREADS)
        of_threads = [Sums(self.layout, self.capacity) for _ in range(1, threads)]
        of_thread[0] = self.table
        for t in range(1, threads):
            of_thread[t] = (<Sums> of_threads[t - 1]).table
        while first < n_chunks:
            last = min(n_chunks, first + CHUNKS_AT_ONCE)
            with nogil:
                loop = begin_loop(last - first, threads)
                for chunk in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                    add_chunk(&rows, chunk, begin_chunk(&loop), &label[0], &of_thread[0])
                end_loop(&loop)
                poll_signals(&work, 1, 0)
            first = last
        for sums_of_thread in of_threads:
            self.merge(sums_of_thread)

    def move(self, X, const int[::1] label, const int[::1] to, const double[::1] weight):
        """Move rows from cluster label[i] to to[i]; -1: no cluster. Only these sums change.

        IN X : (n, d);  label, to : (n,);  weight : (n,) or None, as when the rows were added
        """
        self._check(X.shape[1], X.shape[0], label, weight)
        self._check(X.shape[1], X.shape[0], to, weight)
        if X.shape[0] == 0:
            return
        cdef Rows rows = rows_of(X, weight, None)
        move_points(&rows, 0, rows.n, &label[0], &to[0], &self.table)

    def move_row(self, const double[::1] x, double w, int left, int joined):
        """Move one row of weight w from a cluster to another one; -1: no cluster. The numbers are not checked."""
        cdef Py_ssize_t at = 0
        sums_move_d(&x[0], 1, 1, &at, &left, &joined, &w, &self.table)

    def _check(self, Py_ssize_t d, Py_ssize_t n, const int[::1] label, weight):
        if d != self.table.d or label.shape[0] != n or (weight is not None) != self.table.weighted:
            raise ValueError("X, label and weight must match the layout and each other")
        if weight is not None and weight.shape[0] != n:
            raise ValueError("weight must match X")
        if n and not (-1 <= np.min(label) and np.max(label) < self.capacity):
            raise ValueError(f"label must be >= -1 and < {self.capacity}")

    def merge(self, Sums other):
        """Add to each cluster the members of the cluster of the same number in ``other``, of the same layout."""
        cdef Py_ssize_t k
        if other.layout is not self.layout and not (
            np.array_equal(other.layout.magic, self.layout.magic)
            and np.array_equal(other.layout.origin, self.layout.origin)
            and other.layout.weighted == self.layout.weighted
        ):
            raise ValueError("only sums of one layout can be merged")
        self.reserve(other.capacity)
        for k in range(other.capacity):
            sums_unite(&self.table, k, &other.table, k)

    @property
    def cells(self):
        """What is in the bins, (capacity, bins, d + 1), the last column for the weights: not a copy."""
        return self.arrays[0]

    @property
    def counts(self):
        """Numbers of members, (capacity,): not a copy."""
        return self.arrays[1]

    @property
    def totals(self):
        """Sums of w (x - origin), (capacity, d), and of w, (capacity,)."""
        cdef Py_ssize_t k, j
        cdef double[:, ::1] total = np.empty((self.capacity, self.table.d))
        cdef double[::1] weight = np.empty(self.capacity)
        for k in range(self.capacity):
            weight[k] = sums_weight(&self.table, k)
            for j in range(self.table.d):
                total[k, j] = sums_total(&self.table, k, j)
        return np.asarray(total), np.asarray(weight)

    def center(self, Py_ssize_t k):
        """Mean of a cluster that has members, and its weight."""
        cdef double[::1] mean = np.empty(self.table.d)
        mean_of_sums(&self.table, k, &mean[0], 1)
        return np.asarray(mean), sums_weight(&self.table, k)

    def unite(self, Py_ssize_t a, Py_ssize_t b):
        """Add all members of cluster b to cluster a; b is left without any."""
        sums_unite(&self.table, a, &self.table, b)
        sums_clear(&self.table, b, b + 1)

    def keep(self, kept):
        """Keep the clusters of these numbers, ascending, as 0, 1, ..., and remove the others."""
        cdef Py_ssize_t c = 0, k
        for k in kept:
            sums_copy(&self.table, c, k)
            c += 1
        sums_clear(&self.table, c, self.capacity)

    @property
    def means(self):
        """Means, (capacity, d); NaN where there are no members."""
        cdef double[:, ::1] mean = np.empty((self.capacity, self.table.d))
        cdef Py_ssize_t k
        for k in range(self.capacity):
            mean_of_sums(&self.table, k, &mean[k, 0], 1)
        return np.asarray(mean)


class Stream:
    """Exact sums of w x and of w of clusters, over all batches so far.

    ``digits`` (k, d + 1, size) are those of accumulators from the digit ``first`` on, where digit q counts
    2^(32 q - 1075), see _sums.h. A batch that has larger or finer numbers than those before adds digits on either side.
    """

    def __init__(self, digits, first):
        self.digits, self.first = digits, first

    @classmethod
    def of(cls, centers, weights):
        """A stream in which each cluster has had one row, of its weight, at its center; none where that is 0."""
        stream = cls(np.zeros((0, centers.shape[1] + 1, 0), dtype=np.int64), 0)
        used = np.flatnonzero(weights > 0.0)
        if len(used) == 0:
            return stream.with_batch(None, len(centers))
        X, weights = np.ascontiguousarray(centers[used]), np.ascontiguousarray(weights[used])
        sums = Sums(Layout(X, weights, 1, origin=np.zeros(X.shape[1])), len(centers))
        sums.add(X, used.astype(np.int32), weights)
        return stream.with_batch(sums, len(centers))

    def with_batch(self, Sums sums, Py_ssize_t k):
        """A new stream: the first k clusters, some of them new, with the members that the sums of a batch add."""
        if sums is None:
            return self._with_digits(0, -1, k)
        # digits from that of the finest grain to that of the largest sum
        unit = sums.layout.unit[sums.layout.unit > 0.0]
        finest = int(np.log2(unit.min())) - sums.layout.width * sums.layout.bins
        last = (int(np.log2(unit.max())) + ROWS_BITS + 1075) // 32 + 1
        stream = self._with_digits(max(0, finest + 1075) // 32, last, k)
        absorb(stream.digits, stream.first, sums)
        return stream

    def _with_digits(self, Py_ssize_t lowest, Py_ssize_t last, Py_ssize_t k):
        """A copy with the first k clusters, some of them new, that has digits lowest..last too."""
        cdef Py_ssize_t first = self.first, size = self.digits.shape[2]
        if size and lowest <= last:
            lowest, last = min(lowest, first), max(last, first + size - 1)
        elif size:
            lowest, last = first, first + size - 1
        if last - lowest + 1 == size and k == len(self.digits):
            return Stream(self.digits.copy(), first)
        # the old digits keep their powers of two: those of this stream may begin lower
        digits = np.zeros((k, self.digits.shape[1], last - lowest + 1), dtype=np.int64)
        kept = self.digits[:k]
        if kept.size:
            digits[: len(kept), :, first - lowest : first - lowest + size] = kept
        return Stream(digits, lowest)

    def with_rows(self, X, const double[::1] weight, const int[::1] label, Py_ssize_t k):
        """with_batch for the dense rows of a small batch, without bins, and how many rows of weight each cluster has.

        Every bit of w x is kept. None where that, or a sum, might leave float64: a Layout says so.

        label : IN array (n,), each >= 0 and < k
        """
        # a copy: the digits that are made for these numbers must be those of the numbers added
        copy = np.array(X)
        cdef Rows rows = rows_of(copy, weight, None)
        cdef int lowest, highest
        cdef Py_ssize_t i
        if label.shape[0] != rows.n or rows.d + 1 != self.digits.shape[1]:
            raise ValueError("X and label must match the stream")
        for i in range(rows.n):
            if not 0 <= label[i] < k:
                raise ValueError(f"label must be >= 0 and < {k}")
        if not exponents_of(&rows, &lowest, &highest):
            return None
        stream = self._with_digits(lowest >> 5, (highest + 52 + ROWS_BITS) // 32 + 1, k)
        return stream, absorb_rows(stream.digits, stream.first, &rows, label)

    def only(self, kept):
        """A new stream with the clusters that ``kept`` selects: a mask, a slice or numbers."""
        return Stream(self.digits[kept], self.first)

    def __len__(self):
        return len(self.digits)

    def read(self, clusters):
        """Sums of w x, (m, d), and of w, (m,), of these clusters that have members, each rounded once."""
        total = read_digits(self.digits, self.first, np.ascontiguousarray(clusters, dtype=np.intp))
        return total[:, :-1], total[:, -1]


cdef absorb(int64_t[:, :, ::1] digits, Py_ssize_t first, Sums sums):
    """Add what the bins of a batch hold. Carries are left to read_digits: digits hold 2^28 batches without carries."""
    cdef Py_ssize_t k, j, b, stride = sums.table.d + 1
    cdef const double* cell
    # with_batch has made digits for sums that are smaller
    cdef double beyond = ldexp(np.max(sums.layout.unit), ROWS_BITS)
    for k in range(min(digits.shape[0], sums.capacity)):
        if sums.table.count[k] == 0.0:
            continue
        for j in range(stride):
            for b in range(sums.table.bins):
                cell = sums.table.cell + (k * sums.table.bins + b) * stride + j
                if not fabs(cell[0]) < beyond:
                    refuse_rows()
                accumulator_add_one(&digits[k, j, 0], first, cell[0])
            if j == sums.table.d and not sums.table.weighted:
                accumulator_add_one(&digits[k, j, 0], first, sums.table.count[k])


cdef bint exponents_of(const Rows* r, int* lowest, int* highest) noexcept nogil:
    """The least and largest exponent of w x that is not 0, and of w, as float64 stores it; False: too large, or NaN."""
    cdef Py_ssize_t i, j
    cdef double w, t, most = 0.0, least = HUGE_VAL
    for i in range(r.n):
        w = weight_of(r, i)
        if w == 0.0:
            continue
        most, least = max(most, w), min(least, w)
        for j in range(r.d):
            t = fabs(w * value_of(r, i, j))
            if not t < HUGE_VAL:  # max would pass over NaN
                return False
            most = max(most, t)
            if t > 0.0:
                least = min(least, t)
    if not most < 0.5 * LARGEST_TERM:
        return False
    frexp(min(least, most), lowest)
    frexp(most, highest)
    lowest[0], highest[0] = max(1, lowest[0] + 1022), max(1, highest[0] + 1022)
    return True


cdef absorb_rows(int64_t[:, :, ::1] digits, Py_ssize_t first, const Rows* r, const int[::1] label):
    """Add rows, and count those of each cluster, (k,); carries are left to read_digits."""
    cdef Py_ssize_t i, j
    cdef double w
    cdef Py_ssize_t[::1] count = np.zeros(digits.shape[0], dtype=np.intp)
    for i in range(r.n):
        w = weight_of(r, i)
        if w == 0.0:
            continue
        count[label[i]] += 1
        for j in range(r.d):
            accumulator_add_one(&digits[label[i], j, 0], first, w * value_of(r, i, j))
        accumulator_add_one(&digits[label[i], r.d, 0], first, w)
    return np.asarray(count)


cdef read_digits(int64_t[:, :, ::1] digits, Py_ssize_t first, const Py_ssize_t[::1] clusters):
    """Sums of these clusters, (m, d + 1), each rounded once."""
    cdef Py_ssize_t m, j
    cdef double[:, ::1] out = np.empty((clusters.shape[0], digits.shape[1]))
    for m in range(clusters.shape[0]):
        for j in range(digits.shape[1]):
            out[m, j] = accumulator_round(&digits[clusters[m], j, 0], first, digits.shape[2])
    return np.asarray(out)


def exact_total(const double[::1] values):
    """The sum of finite numbers, rounded once."""
    cdef Accumulator total
    memset(&total, 0, sizeof(total))
    accumulator_add(total.digit, &values[0] if values.shape[0] else NULL, values.shape[0])
    return accumulator_round(total.digit, 0, ACCUMULATOR_DIGITS)
