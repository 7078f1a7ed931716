"""Sweeps of the merge path: seeds far apart, mergers of the cheapest pair, residuals for the likelihood.

Merging clusters a and b raises the squared error by Ward's cost

    w_a w_b / (w_a + w_b) ||mu_a - mu_b||^2.

The cheapest partner of each cluster is kept, so that after a merger only clusters whose partner has changed look for
a new one. The bounds of the points stay valid: the center of a union has moved from each of the two it replaces.
"""

from libc.math cimport HUGE_VAL, M_PI as pi, lgamma, log, log1p
from libc.string cimport memcpy

from smallvar._sweeps.dpmeans cimport DPSweep
from smallvar._sweeps.pool cimport PAYS, run
from smallvar._sweeps.restless cimport forget_restless
from smallvar._sweeps.rows cimport point, real_x, value_of, weight_of
from smallvar._sweeps.scores cimport distances_to, place_centers
from smallvar._sweeps.state cimport BIG, CHUNK, WORK, State, tile_of, upper
from smallvar._sweeps.sums cimport sums_copy, sums_t, sums_total, sums_unite, sums_weight

import numpy as np

cdef extern from "_exact.h" nogil:
    Py_ssize_t sc_cheapest(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, const double*, Py_ssize_t,
                           double*, double*)

cdef extern from "simd.h" nogil:
    const Py_ssize_t SV_PANEL
    void sv_images(const float*, Py_ssize_t, const float*, Py_ssize_t, float*)

cdef enum:
    SEEDS = 256         # centers opened before all points are compared with them
    LANES = 16          # points of a tile

cdef extern from *:
    """
    #define SMALLVAR_SLACK (1.0 + 0x1p-22)
    #define SMALLVAR_SMALLEST_UNIT 1e-300
    """
    const double SLACK "SMALLVAR_SLACK"  # makes a float32 larger by more than its rounding
    # a mean squared residual: the least unit that squared residuals are counted in, so that quotients are finite
    const double SMALLEST_UNIT "SMALLVAR_SMALLEST_UNIT"


cdef void residuals_of_chunk(
    const real_x* x, const State* s, Py_ssize_t chunk, const float* w, Py_ssize_t rows, double unit, float* block,
    double* length, float* image
) noexcept nogil:
    """Squared lengths of the residuals of one chunk's points, and of their images: see MergeSweep.residuals."""
    cdef unsigned short offset[CHUNK]
    cdef float images[LANES]
    cdef Py_ssize_t i = chunk * CHUNK, stop = min(s.n, (chunk + 1) * CHUNK), m, j, size
    cdef const real_x* xi
    cdef const double* c
    cdef double t, total
    if rows == 0:
        for m in range(stop - i):
            offset[m] = <unsigned short> m
        distances_to(x, s, i, offset, stop - i, s.label + i, length + i)
        return
    while i < stop:
        size = min(<Py_ssize_t> LANES, stop - i)
        for m in range(size):
            xi = point(x, &s.rows, i + m)
            c = s.c + s.label[i + m] * s.d
            total = 0.0
            for j in range(s.d):
                t = <double> xi[j * s.rows.col] - c[j]
                total += t * t
                block[j * LANES + m] = <float> (t * unit)
            length[i + m] = total
        sv_images(block, s.d, w, rows, images)
        for m in range(size):
            image[i + m] = images[m]
        i += size


# ---- items of the loops that threads share out: each writes to its points or its cluster, and its thread's scratch ---


cdef struct Residuals:      # see MergeSweep.residuals
    const State* s
    const float* w          # the rows of W in panels
    Py_ssize_t rows         # of W
    double unit             # a factor of the residuals
    double* length          # n: their squared lengths
    float* image            # n: those of their images under W


cdef struct Partners:       # see MergeSweep
    Py_ssize_t k            # clusters
    Py_ssize_t d            # columns
    Py_ssize_t width
    const double* mean
    const double* column
    const double* mass
    const int* listed
    double* cost
    double* ward
    int* partner


cdef struct Renumbering:
    State* s
    const int* remap        # new number of each cluster


cdef void residuals_item(void* context, Py_ssize_t c, int slot) noexcept nogil:
    cdef const Residuals* a = <const Residuals*> context
    cdef const State* s = a.s
    cdef float* tile = <float*> tile_of(s, slot)
    if s.rows.single:
        residuals_of_chunk(<const float*> s.rows.x, s, c, a.w, a.rows, a.unit, tile, a.length, a.image)
    else:
        residuals_of_chunk(<const double*> s.rows.x, s, c, a.w, a.rows, a.unit, tile, a.length, a.image)


cdef void find_partner(const Partners* a, Py_ssize_t k, int slot) noexcept nogil:
    a.partner[k] = <int> sc_cheapest(a.mean + k * a.d, a.d, a.column, a.width, a.k, a.mass, k, a.cost + slot * a.width,
                                     &a.ward[k])


cdef void partner_item(void* context, Py_ssize_t q, int slot) noexcept nogil:
    cdef const Partners* a = <const Partners*> context
    find_partner(a, a.listed[q], slot)


cdef void renumber_item(void* context, Py_ssize_t c, int slot) noexcept nogil:
    """Bounds and labels of a chunk's points after mergers."""
    cdef const Renumbering* a = <const Renumbering*> context
    cdef State* s = a.s
    cdef Py_ssize_t i
    for i in range(c * CHUNK, min(s.n, (c + 1) * CHUNK)):
        if s.near[s.label[i]] > 0.0:
            s.u[i] = (s.u[i] + s.near[s.label[i]]) * <float> SLACK
        s.label[i] = a.remap[s.label[i]]


cdef class MergeSweep(DPSweep):
    """Sweeps over a fixed number of clusters, and mergers between them."""

    cdef object merge_arrays
    cdef Py_ssize_t width       # clusters there is memory for
    cdef Py_ssize_t known       # clusters in these tables
    cdef double* mean           # width x d: the means
    cdef double* column         # d x width: the same in columns
    cdef double* mass           # width: weights of the clusters; 0 where one is gone
    cdef double* ward           # width: Ward's cost of merging with the cheapest partner
    cdef int* partner           # width: that partner, the lowest index at a tie; -1 where it must be looked for
    cdef int* listed            # width: scratch, clusters to look at
    cdef int* target            # width: scratch, the cluster that each becomes
    cdef double[:, ::1] costs   # scratch, a row for each thread

    def __init__(self, *args):
        super().__init__(*args)
        self.restless_from = 4  # a merger moves one center far and hardly any other

    def seed(self, const Py_ssize_t[::1] rows):
        """Open centers at these points (in the order of visit); all points are compared with them."""
        cdef State* s = &self.s
        cdef Py_ssize_t q, c, k0, done = 0, size = rows.shape[0]
        cdef Py_ssize_t creator[SEEDS]
        for q in range(SEEDS):
            creator[q] = -1
        self.reserve(s.k + size + 8)
        with nogil:
            while done < size:
                k0 = s.k
                while done < size and s.k - k0 < SEEDS:
                    self.open_at(rows[done])
                    done += 1
                for c in range(s.k):
                    s.near[c] = BIG
                self.lower_table(k0, s.k, s.near)
                self.attract(0, s.n, k0, creator)
                self.check_signals(s.n * (s.k - k0))
        self.n_before = s.k
        self.have_sums = False
        s.swept = False  # l is no bound: not every point was compared with every center

    @property
    def weights(self):
        """Copy of the weights of the clusters, (k,)."""
        cdef Py_ssize_t k
        return np.array([sums_weight(&self.sums.s, k) for k in range(self.s.k)])

    @property
    def remap(self):
        """Where each cluster went when ``move_centers`` last dropped empty ones; -1: nowhere."""
        return self.remap_array.copy()

    # ---- mergers ---------------------------------------------------------------------------------------------

    def merge(self, Py_ssize_t count):
        """Merge the cheapest pair, ``count`` times over, after ``move_centers``.

        Cluster a becomes the union of a and b, a < b; in the end clusters are numbered without gaps. Returns the pairs,
        (count, 2), as numbered before the call, and Ward's costs, (count,).
        """
        cdef State* s = &self.s
        cdef Py_ssize_t k, a, b, m
        if not 0 <= count < s.k:
            raise ValueError(f"count must be >= 0 and < {s.k}, got {count}")
        pair_array = np.empty((count, 2), dtype=np.intp)
        cost_array = np.empty(count)
        cdef Py_ssize_t[:, ::1] pair = pair_array
        cdef double[::1] cost = cost_array
        if count == 0:
            return pair_array, cost_array
        self.prepare()
        with nogil:
            for k in range(s.k):
                self.target[k] = <int> k
            for m in range(count):
                a = 0
                for k in range(1, s.k):
                    if self.ward[k] < self.ward[a]:
                        a = k
                b = self.partner[a]
                if b < a:
                    a, b = b, a
                pair[m, 0] = a
                pair[m, 1] = b
                cost[m] = self.ward[a]
                self.unite(a, b)
                self.check_signals(4 * s.k)
            for k in range(s.k):  # ascending, and targets are lower: that of the target is final by now
                self.target[k] = self.target[self.target[k]]
            self.renumber()
        return pair_array, cost_array

    cdef prepare(self):
        """Means, weights and partners of all clusters, as they are now."""
        cdef State* s = &self.s
        cdef Py_ssize_t k, j, n_changed = 0, n_lost = 0
        cdef double[:, ::1] tables
        cdef int[:, ::1] ints
        cdef bint same
        if self.merge_arrays is None or self.width < s.k:
            self.width = s.k
            tables_array = np.zeros((2 * s.d + 2, self.width))
            ints_array = np.zeros((3, self.width), dtype=np.int32)
            tables, ints = tables_array, ints_array
            self.mean, self.column = &tables[0, 0], &tables[s.d, 0]
            self.mass, self.ward = &tables[2 * s.d, 0], &tables[2 * s.d + 1, 0]
            self.partner, self.listed, self.target = &ints[0, 0], &ints[1, 0], &ints[2, 0]
            self.costs = np.empty((self.n_threads, self.width))
            self.merge_arrays = tables_array, ints_array
            self.known = 0
        if not self.have_sums:
            self.add_up()
        with nogil:
            for k in range(s.k):
                same = self.known == s.k and self.mass[k] == sums_weight(&self.sums.s, k)
                for j in range(s.d):
                    same = same and self.mean[k * s.d + j] == s.c[k * s.d + j]
                self.target[k] = not same
                if not same:
                    n_changed += 1
                    self.mass[k] = sums_weight(&self.sums.s, k)
                    for j in range(s.d):
                        self.mean[k * s.d + j] = s.c[k * s.d + j]
                        self.column[j * self.width + k] = s.c[k * s.d + j]
            for k in range(s.k):
                if 4 * n_changed > s.k or self.target[k] or self.target[self.partner[k]]:
                    self.listed[n_lost] = <int> k
                    n_lost += 1
            if n_lost < s.k:
                for k in range(s.k):
                    if self.target[k]:
                        self.renew_partners(k)
            self.find_partners(n_lost)
            self.known = s.k
            self.check_signals(n_lost * s.k)

    cdef void find_partners(self, Py_ssize_t size) noexcept nogil:
        """The cheapest partner of each listed cluster, from all others."""
        cdef Partners a = self.partners()
        run(partner_item, &a, 0, size, self.n_threads if size * a.k * a.d > PAYS else 1)

    cdef Partners partners(self) noexcept nogil:
        return Partners(self.s.k, self.s.d, self.width, self.mean, self.column, self.mass, self.listed,
                        &self.costs[0, 0], self.ward, self.partner)

    cdef void renew_partners(self, Py_ssize_t k) noexcept nogil:
        """The partner of cluster k, whose mean has changed; k becomes the partner of others where it is cheapest."""
        cdef double* cost = &self.costs[0, 0]
        cdef Py_ssize_t c
        cdef Partners a = self.partners()
        find_partner(&a, k, 0)
        for c in range(self.s.k):
            if cost[c] < self.ward[c] or (cost[c] == self.ward[c] and k < self.partner[c]):
                self.ward[c] = cost[c]
                self.partner[c] = <int> k

    cdef void unite(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
        """Cluster a becomes the union of a and b; b is gone."""
        cdef State* s = &self.s
        cdef const sums_t* sums = &self.sums.s
        cdef Py_ssize_t j, k, n_lost = 0
        sums_unite(sums, a, sums, b)
        self.mass[a] = sums_weight(sums, a)
        for j in range(s.d):
            self.mean[a * s.d + j] = sums.origin[j] + sums_total(sums, a, j) / self.mass[a]
            self.column[j * self.width + a] = self.mean[a * s.d + j]
        self.mass[b] = 0.0
        self.ward[b] = HUGE_VAL
        self.target[b] = <int> a
        for k in range(s.k):
            if self.mass[k] > 0.0 and (k == a or self.partner[k] == a or self.partner[k] == b):
                self.listed[n_lost] = <int> k
                n_lost += 1
        self.renew_partners(a)
        self.find_partners(n_lost)

    cdef void renumber(self) noexcept nogil:
        """Number clusters without gaps after mergers: points, centers, tables; bounds take in how far centers moved."""
        cdef State* s = &self.s
        cdef Renumbering renumbering = Renumbering(s, self.remap)
        cdef Py_ssize_t k, j, kept = 0, d = s.d
        cdef double t, drift
        # how far each center is from that of its union, plus the drift that no sweep has taken off the bounds yet
        for k in range(s.k):
            drift = 0.0
            for j in range(d):
                t = s.c[k * d + j] - self.mean[self.target[k] * d + j]
                drift += t * t
            s.near[k] = upper(drift, s.scale) + (<float> 0.0 if s.swept else s.p[k])
            s.fresh[k] = s.near[k]
        for k in range(s.k):
            # l drops by p of a union: the least drift of its parts will do, as l is a bound for all of them
            if s.fresh[k] < s.fresh[self.target[k]]:
                s.fresh[self.target[k]] = s.fresh[k]
        for k in range(s.k):
            s.near[k] = (s.near[k] - s.fresh[self.target[k]]) * <float> SLACK
        for k in range(s.k):
            if self.target[k] == k:
                self.remap[k] = <int> kept
                self.mass[kept] = self.mass[k]
                self.ward[kept] = self.ward[k]
                self.partner[kept] = self.partner[k]
                sums_copy(&self.sums.s, kept, k)
                s.p[kept] = s.fresh[k] * <float> SLACK
                for j in range(d):
                    self.mean[kept * d + j] = self.mean[k * d + j]
                    s.c[kept * d + j] = self.mean[k * d + j]
                kept += 1
        for j in range(d):
            for k in range(kept):
                self.column[j * self.width + k] = self.mean[k * d + j]
        for k in range(kept):
            self.partner[k] = self.remap[self.partner[k]] if kept > 1 else 0
        for k in range(s.k):
            self.remap[k] = self.remap[self.target[k]]
        forget_restless(&self.s)
        run(renumber_item, &renumbering, 0, self.n_chunks, self.threads_for(s.n))
        s.k = kept
        self.known = kept
        self.n_before = kept
        self.farthest_point = -1
        s.opened = False
        s.swept = False
        place_centers(&self.s)
        self.renew_tables()

    cdef int threads_for(self, Py_ssize_t points) noexcept nogil:
        """One thread where waking others would cost more time than it saves: most sweeps here compute few distances."""
        cdef Py_ssize_t c, work = 0
        if self.s.lazy and points == self.s.n:
            for c in range(self.n_chunks):
                work += self.s.n_searched[c]
            work = work * self.s.d + 16 * points
        else:
            work = points * self.s.k * self.s.d
        return self.n_threads if work > PAYS else 1

    def planes(self, double some, double small):
        """Where there are two columns: squared distances by a covariance of each cluster's own.

        Each is averaged with the pooled one, as if it had ``some`` more rows of that. Returns (n,) distances and (k,)
        determinants of the covariances of the rows times the scale of the space, 0 for a line: where the one variance
        is at most ``small`` times the other.
        """
        cdef State* s = &self.s
        cdef Py_ssize_t i, k
        cdef double w, x, y, det
        cdef double[3] pooled
        square_array = np.empty(s.n)
        det_array = np.empty(s.k)
        cdef double[::1] square = square_array
        cdef double[::1] dets = det_array
        cdef double[:, ::1] S = np.zeros((s.k, 4))
        cdef double[:, ::1] R = np.empty((s.n, 2))
        with nogil:
            for i in range(s.n):
                k = s.label[i]
                w = weight_of(&s.rows, i)
                x = (value_of(&s.rows, i, 0) - s.c[2 * k]) * s.scale
                y = (value_of(&s.rows, i, 1) - s.c[2 * k + 1]) * s.scale
                R[i, 0] = x
                R[i, 1] = y
                S[k, 0] += w * x * x
                S[k, 1] += w * x * y
                S[k, 2] += w * y * y
                S[k, 3] += w
            for i in range(3):
                pooled[i] = 0.0
                w = 0.0
                for k in range(s.k):
                    pooled[i] += S[k, i]
                    w += S[k, 3]
                pooled[i] *= some / w
            for k in range(s.k):
                for i in range(3):
                    S[k, i] = (S[k, i] + pooled[i]) / (S[k, 3] + some)
                det = S[k, 0] * S[k, 2] - S[k, 1] * S[k, 1]
                x = S[k, 0] + S[k, 2]
                dets[k] = det if det > small * x * x else 0.0
                for i in range(3):
                    S[k, i] /= det if det != 0.0 else 1.0
            for i in range(s.n):
                k = s.label[i]
                x = R[i, 0]
                y = R[i, 1]
                w = S[k, 2] * x * x - 2.0 * S[k, 1] * x * y + S[k, 0] * y * y
                square[i] = w if w > 0.0 else 0.0  # by rounding
        return square_array, det_array

    # ---- residuals -------------------------------------------------------------------------------------------

    def residuals(self, const float[:, ::1] W=None, double unit=1.0):
        """Squared lengths ||x_i - mu_{z_i}||^2, (n,), and ||W (x_i - mu_{z_i}) unit||^2, (n,) in float32, or None.

        W : IN array (r, d), or None;  unit: a factor that keeps squares of residuals within float32
        """
        cdef State* s = &self.s
        cdef Py_ssize_t rows = 0 if W is None else W.shape[0]
        length_array = np.empty(s.n)
        image_array = np.zeros(s.n if rows else 1, dtype=np.float32)
        cdef double[::1] length = length_array
        cdef float[::1] image = image_array
        cdef Residuals a = Residuals(s, NULL, rows, unit, &length[0], &image[0])
        cdef const float[:, :, ::1] panels
        cdef Py_ssize_t first = 0, last
        if rows and W.shape[1] != s.d:
            raise ValueError(f"W must have {s.d} columns, got {W.shape[1]}")
        if rows:
            padded = np.zeros(((rows + SV_PANEL - 1) // SV_PANEL * SV_PANEL, s.d), dtype=np.float32)
            padded[:rows] = W
            panels = np.ascontiguousarray(padded.reshape(-1, SV_PANEL, s.d).transpose(0, 2, 1))
            a.w = &panels[0, 0, 0]
        with nogil:
            while first < self.n_chunks:
                last = min(self.n_chunks, first + max(2 * self.n_threads, WORK // (CHUNK * s.d * (rows + 4))))
                run(residuals_item, &a, first, last, self.n_threads if s.n * s.d * (rows + 4) > PAYS else 1)
                self.check_signals((last - first) * CHUNK * (rows + 1))
                first = last
        return length_array, image_array if rows else None


# ---- the shape of clusters -----------------------------------------------------------------------------------

cdef enum:
    N_SHAPES = 7
    SHAPE_STEPS = 2
    FINE_BITS = 5           # bins of squared distances: 32 an octave

cdef double[7] SHAPES = [200.0, 50.0, 20.0, 10.0, 6.0, 4.0, 3.0]


def fit_shape(double[::1] squares, const double[::1] weight, const int[::1] label, const double[::1] back,
              double n, Py_ssize_t d):
    """Fit a spherical density to squared distances r2 of rows whose weights sum to n, in d dimensions.

    Each r2 is raised by mean(r2) * back[label], in place. Tried are the Gaussian and t densities with nu = 200 to 3
    degrees of freedom; the scale of each comes from that of the one before by a few steps of

        s2 <- (nu + d) / d  mean(r2 / (nu + r2 / s2)).

    Returns -2 / n times the log-likelihood of the best, and whether it is a t density; infinity where r2 is not finite.
    Distances in the same 32nd of an octave are replaced by their mean: the result is off by about 1e-5 a row.
    """
    cdef Py_ssize_t i, m, b, n_bins, used = 0, rows = squares.shape[0]
    cdef double total = 0.0, mean, unit, s2, best, value, nu, largest = 0.0, smallest = HUGE_VAL
    cdef double* r2 = &squares[0]
    cdef const int* z = &label[0]
    cdef const double* w = NULL if weight is None else &weight[0]
    cdef long long low
    cdef bint shaped = False
    with nogil:
        if w == NULL:
            for i in range(rows):
                total += r2[i]
        else:
            for i in range(rows):
                total += w[i] * r2[i]
        mean = total / n
        total = 0.0
        for i in range(rows):
            value = r2[i] + mean * back[z[i]]
            value = value if value > 0.0 else 0.0  # -0.0 would be in no bin
            r2[i] = value
            total += value if w == NULL else w[i] * value
            largest = max(largest, value)
            smallest = min(smallest, value)
        unit = max(total / n / d, SMALLEST_UNIT)
    if not (-HUGE_VAL < mean < HUGE_VAL and largest < HUGE_VAL and unit < HUGE_VAL):
        return HUGE_VAL, False
    best = d * (log(2.0 * pi) + 1.0)
    if largest < 1.05 * d * unit:
        return best + d * log(unit), False
    low = octave_part(smallest / unit)
    n_bins = octave_part(largest / unit) - low + 1
    cdef double[:, ::1] table = np.zeros((2, n_bins))
    cdef double* mass = &table[0, 0]
    cdef double* bin = &table[1, 0]
    with nogil:
        for i in range(rows):
            value = r2[i] / unit
            b = octave_part(value) - low
            if w == NULL:
                mass[b] += 1.0
                bin[b] += value
            else:
                mass[b] += w[i]
                bin[b] += w[i] * value
        for b in range(n_bins):
            if mass[b] > 0.0:
                bin[used] = bin[b] / mass[b]
                mass[used] = mass[b] / n
                used += 1
        s2 = 1.0
        for m in range(N_SHAPES):
            nu = SHAPES[m]
            for _ in range(SHAPE_STEPS):
                mean = 0.0
                for b in range(used):
                    mean += mass[b] * bin[b] / (nu + bin[b] / s2)
                s2 = (nu + d) / d * mean
            mean = 0.0
            for b in range(used):
                mean += mass[b] * log1p(bin[b] / (nu * s2))
            value = (nu + d) * mean - 2.0 * (lgamma((nu + d) / 2.0) - lgamma(nu / 2.0)) + d * log(nu * pi * s2)
            if value < best:
                best = value
                shaped = True
    return best + d * log(unit), shaped


cdef inline long long octave_part(double value) noexcept nogil:
    """Number of the 32nd of an octave that a value >= 0 lies in."""
    cdef long long bits
    memcpy(&bits, &value, 8)
    return bits >> (52 - FINE_BITS)
