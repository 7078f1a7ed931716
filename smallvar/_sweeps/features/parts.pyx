"""The steps of a start of BP-means, one by one, for rows that are a part of all: others put the parts together.

A part's bits are those of these rows in a start over all rows, whose squares and sums depend on no tile.
"""

from libc.string cimport memcpy, memset

from smallvar._sweeps.features.solver cimport (
    add_feature,
    compact,
    least_squares,
    place_feature,
    place_features,
    recount,
)
from smallvar._sweeps.features.starts cimport join
from smallvar._sweeps.features.state cimport (
    FREE,
    LANES,
    NOTHING,
    PART,
    VACANT,
    Problem,
    Start,
    allocate,
    bit,
    choose_bins,
    evaluate,
    largest_square,
    release,
    residual_of,
    round_tiles,
    set_energy,
    sf_add_up,
)
from smallvar._sweeps.features.sweeps cimport free_pass
from smallvar._sweeps.rows cimport rows_of, weight_of

import numpy as np

RUN_ROWS = PART * LANES  # rows over which draws add up squares
NO_ERROR = NOTHING  # share of the square of all data that counts as none


cdef class FeaturePart:
    """Rows of a part, their rows of Z, and the features that they are given.

    X : IN array (n, d), float32 or float64, any strides, n > 0;  weight : IN array (n,), float64, > 0, or None
    layout : the Layout of all rows, about 0;  lam, cap : the penalty, and the most features there may be
    energy : sum of w ||x||^2 of all rows
    """

    cdef Problem p
    cdef Start s
    cdef readonly object X, weight, layout

    def __cinit__(self):
        memset(&self.p, 0, sizeof(Problem))
        memset(&self.s, 0, sizeof(Start))

    def __dealloc__(self):
        release(&self.s)

    def __init__(self, X, weight, layout, double lam, Py_ssize_t cap, double energy, int n_threads):
        cdef const double[:, ::1] magic = layout.magic
        self.X, self.weight, self.layout = X, weight, layout
        self.p.n, self.p.d = X.shape
        self.p.tiles = (self.p.n + LANES - 1) // LANES
        self.p.rows = rows_of(X, weight, None)
        self.p.rule, self.p.lam, self.p.cap = FREE, lam, cap
        set_energy(&self.p, energy)
        self.p.bins, self.p.magic = layout.bins, &magic[0, 0]
        self.p.layers = 1 if weight is None else layout.bins
        allocate(&self.p, &self.s, min(cap, <Py_ssize_t> 16), n_threads)

    @property
    def k(self):
        """Number of features, the vacant included."""
        return self.s.k

    @property
    def users(self):
        """How many rows have each feature: (k,)."""
        return np.array([self.s.count[i] for i in range(self.s.k)])

    @property
    def vacant(self):
        """Which features were removed: (k,)."""
        cdef Py_ssize_t i, room = self.s.room
        return np.array([self.s.gram[i * room + i] == VACANT for i in range(self.s.k)], dtype=bool)

    @property
    def features(self):
        """A: (k, d)."""
        cdef double[:, ::1] out
        result = np.empty((self.s.k, self.p.d))
        if self.s.k:
            out = result
            memcpy(&out[0, 0], self.s.features, self.s.k * self.p.d * sizeof(double))
        return result

    @property
    def rows(self):
        """Z: (n, k), bytes."""
        cdef unsigned char[:, ::1] out
        cdef Py_ssize_t i, j
        result = np.empty((self.p.n, self.s.k), dtype=np.uint8)
        out = result
        with nogil:
            for i in range(self.p.n):
                for j in range(self.s.k):
                    out[i, j] = bit(&self.s, i, j)[0]
        return result

    def set_rows(self, const unsigned char[:, ::1] Z):
        """Take these rows of Z (IN, (n, k)); features and squares have to be told anew."""
        cdef Py_ssize_t i, j, k = Z.shape[1]
        cdef int threads = self.s.threads
        if Z.shape[0] != self.p.n:
            raise ValueError(f"Z must have {self.p.n} rows, got {Z.shape[0]}")
        if k > self.s.room:
            release(&self.s)
            allocate(&self.p, &self.s, k, threads)
        memset(self.s.z, 0, self.p.tiles * self.s.room * LANES)
        self.s.k, self.s.vacant = k, 0
        with nogil:
            for i in range(self.p.n):
                for j in range(k):
                    bit(&self.s, i, j)[0] = Z[i, j]
            recount(&self.p, &self.s, 0)

    def extend(self, Py_ssize_t k):
        """Features that no row has, until there are k."""
        memset(self.s.spare, 0, self.p.d * sizeof(double))
        while self.s.k < k:
            add_feature(&self.p, &self.s)

    def keep(self, const Py_ssize_t[::1] kept):
        """The features of these numbers (IN), ascending, become 0, 1, ...; no row has the others, or it loses them."""
        cdef Py_ssize_t i
        for i in range(kept.shape[0]):
            if not (0 if i == 0 else kept[i - 1] + 1) <= kept[i] < self.s.k:
                raise ValueError(f"kept must ascend and be below {self.s.k}")
            self.s.kept[i] = kept[i]
        with nogil:
            compact(&self.p, &self.s, kept.shape[0])

    def set_features(self, const double[:, ::1] features):
        """A (IN, (k, d)), all that there are or more, which no row has yet."""
        if features.shape[0] < self.s.k or features.shape[1] != self.p.d:
            raise ValueError(
                f"features must have shape ({self.s.k}, {self.p.d}), got ({features.shape[0]}, {features.shape[1]})"
            )
        self.extend(features.shape[0])
        self.s.vacant = 0
        if self.s.k:
            memcpy(self.s.features, &features[0, 0], self.s.k * self.p.d * sizeof(double))
        place_features(&self.p, &self.s)

    def evaluate(self):
        """All residuals from the data."""
        with nogil:
            evaluate(&self.p, &self.s)

    def join(self):
        """Rows whose residual shrinks take the last feature, which none has."""
        with nogil:
            join(&self.p, &self.s)
            recount(&self.p, &self.s, self.s.k - 1)

    def sweep(self, const unsigned char[::1] vacant, const unsigned char[::1] shared):
        """MB13 eq. 6 for these rows; returns how many changed, and the numbers of features created and removed.

        vacant, shared : IN (k,): which features were removed already, and which have users in other parts
        """
        cdef Py_ssize_t k, before = self.s.k
        if vacant.shape[0] != before or shared.shape[0] != before:
            raise ValueError(f"vacant and shared must have length {before}")
        for k in range(before):
            if vacant[k]:
                memset(self.s.features + k * self.p.d, 0, self.p.d * sizeof(double))
                place_feature(&self.p, &self.s, k)
                self.s.vacant += 1
            self.s.count[k] += shared[k]  # a feature loses its last user here only where no other part has one
        for k in range(before):
            if vacant[k]:
                self.s.gram[k * self.s.room + k] = VACANT
        self.s.changes = self.s.created = self.s.removed = 0
        self.s.round = round_tiles(&self.p)
        with nogil:
            free_pass(&self.p, &self.s)
        for k in range(before):
            self.s.count[k] -= shared[k]
        return self.s.changes, self.s.created, self.s.removed

    def largest(self):
        """The largest w ||r||^2."""
        return largest_square(&self.p, &self.s)

    def add_squares(self, double largest, Py_ssize_t n, Py_ssize_t before):
        """Sums of w ||r||^2 as bins, for each run of rows over which draws add up, counted from the first row of all.

        largest : of all n rows, of which ``before`` precede these
        """
        cdef Py_ssize_t length = PART * LANES, first = before // length, i = 0, size
        cdef Py_ssize_t last = (before + self.p.n - 1) // length
        cdef double[:, ::1] bins = np.zeros((last - first + 1, 3))
        cdef const double* w = self.p.rows.weight
        choose_bins(&self.s, largest, n)
        with nogil:
            while i < self.p.n:
                size = min(self.p.n - i, length - (before + i) % length)
                sf_add_up(
                    size, self.s.squares + i, NULL if w == NULL else w + i, self.s.magic,
                    &bins[(before + i) // length - first, 0],
                )
                i += size
        return np.asarray(bins)

    def sums(self):
        """The bins of Z'WZ, (layers, k, k), nothing above the diagonal, and of Z'WX, (k, bins, d)."""
        cdef Py_ssize_t k = self.s.k, room = self.s.room, layer, i, j, size = self.p.bins * self.p.d
        zz_array, zx_array = np.zeros((self.p.layers, k, k)), np.zeros((k, self.p.bins, self.p.d))
        cdef double[:, :, ::1] zz = zz_array, zx = zx_array
        for i in range(k):
            for layer in range(self.p.layers):
                for j in range(i + 1):
                    zz[layer, i, j] = self.s.zz_bins[(layer * room + i) * room + j]
            memcpy(&zx[i, 0, 0], self.s.zx_bins + i * size, size * sizeof(double))
        return zz_array, zx_array

    def residuals(self, Py_ssize_t start, Py_ssize_t stop):
        """w ||r||^2 as it was left, (stop - start,), and r, (stop - start, d), of the rows start..stop-1."""
        cdef Py_ssize_t i
        cdef double[::1] squares = np.empty(stop - start)
        cdef double[:, ::1] r = np.empty((stop - start, self.p.d))
        if not 0 <= start <= stop <= self.p.n:
            raise ValueError(f"start and stop must be between 0 and {self.p.n}, got {start} and {stop}")
        for i in range(start, stop):
            squares[i - start] = weight_of(&self.p.rows, i) * self.s.squares[i]
            residual_of(&self.p, &self.s, i, &r[i - start, 0])
        return np.asarray(squares), np.asarray(r)


def solve(const double[:, ::1] features, zz, zx, double energy):
    """Least squares from sums over all rows, given the features before: as least_squares in solver.pyx.

    features : IN (k, d);  zz : IN (layers, k, k) and zx : IN (k, bins, d), bins;  energy : sum of w ||x||^2
    Returns the features, the numbers of those that were kept, and by how much the squared error falls.
    """
    cdef Problem p
    cdef Start s
    cdef const double[:, :, ::1] zz_bins = np.ascontiguousarray(zz), zx_bins = np.ascontiguousarray(zx)
    cdef Py_ssize_t k = features.shape[0], i, j, layer
    cdef double[:, ::1] out
    cdef double fall
    memset(&p, 0, sizeof(Problem))
    memset(&s, 0, sizeof(Start))
    p.rule, p.d, p.energy = FREE, features.shape[1], energy
    p.layers, p.bins = zz.shape[0], zx.shape[1]
    if zz.shape != (p.layers, k, k) or zx.shape != (k, p.bins, p.d):
        raise ValueError(f"zz and zx must match features, got {zz.shape} and {zx.shape}")
    allocate(&p, &s, k, 1)
    try:
        s.k = k
        for i in range(k):
            memcpy(s.features + i * p.d, &features[i, 0], p.d * sizeof(double))
            memcpy(s.zx_bins + i * p.bins * p.d, &zx_bins[i, 0, 0], p.bins * p.d * sizeof(double))
            for layer in range(p.layers):
                for j in range(i + 1):
                    s.zz_bins[(layer * s.room + i) * s.room + j] = zz_bins[layer, i, j]
        with nogil:
            fall = least_squares(&p, &s)
        result = np.empty((s.k, p.d))
        if s.k:
            out = result
            memcpy(&out[0, 0], s.features, s.k * p.d * sizeof(double))
        return result, np.array([s.kept[i] for i in range(s.k)], dtype=np.intp), fall
    finally:
        release(&s)
