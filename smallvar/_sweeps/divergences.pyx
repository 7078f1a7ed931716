"""Bregman divergences, exact: the summands in float64, added in the order of the columns; means in their domains; and
mergers.

D(x, mu) = F(x) - F(mu) - F'(mu) (x - mu), summed over the columns; 0 log 0 is 0.
"""

from libc.float cimport DBL_MAX
from libc.math cimport HUGE_VAL, fabs

from smallvar._sweeps.pairs cimport Pairs
from smallvar._sweeps.rows cimport poll_signals, real_x
from smallvar._sweeps.sums cimport Sums, mean_of_sums, sums_clear, sums_unite, sums_weight
from smallvar._sweeps.tolerances cimport C_OFF_BORDER, C_OPENED_OFF_BORDER

import numpy as np

KULLBACK_LEIBLER = 0        # x log(x / mu) - x + mu
ITAKURA_SAITO = 1           # x / mu - log(x / mu) - 1
LOGISTIC = 2                # x log(x / mu) + (1 - x) log((1 - x) / (1 - mu))
OFF_BORDER, OPENED_OFF_BORDER = C_OFF_BORDER, C_OPENED_OFF_BORDER     # the same numbers for Python

cdef enum:
    RANGE_ROWS = 1024       # rows whose range is taken before means are compared with it, at least

cdef extern from *:
    """
    #define SMALLVAR_MEAN_ERROR 0x1p-44
    #define SMALLVAR_BOUND_ROUNDING (1.0 - 0x1p-30)
    """
    # of the largest value: a mean from exact sums, which keep 50 bits of each value, is no further off
    const double MEAN_ERROR "SMALLVAR_MEAN_ERROR"
    # a factor of bounds: makes up for the rounding of sums
    const double BOUND_ROUNDING "SMALLVAR_BOUND_ROUNDING"

cdef extern from "_divergence_bounds.h" nogil:
    # OUT the last argument: the sum over columns of the bounds of DivergencePairs, divided by K
    void sd_counts(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, const double*, double*)
    void sd_positive(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, const double*, double*)
    void sd_fractions(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, const double*, double*)


cdef together(x, mu):
    """Two arrays, broadcast together and with axes in front, so that there are three; and the shape of the result."""
    shape = np.broadcast_shapes(x.shape, mu.shape)
    axes = (None,) * (3 - len(shape))
    single = x.dtype == np.float32  # rows may be many: they are not copied
    x, mu = np.asarray(x, dtype=np.float32 if single else np.float64), np.asarray(mu, dtype=np.float64)
    return *(np.broadcast_to(a, shape)[axes] for a in (x, mu)), shape


cdef fill_summands(int kind, const real_x[:, :, :] points, const double[:, :, :] centers, double[:, :, ::1] out):
    cdef Py_ssize_t i, m, j
    with nogil:
        for i in range(out.shape[0]):
            for m in range(out.shape[1]):
                for j in range(out.shape[2]):
                    out[i, m, j] = summand(kind, points[i, m, j], centers[i, m, j])


cdef fill_divergences(int kind, const real_x[:, :, :] points, const double[:, :, :] centers, double[:, ::1] out):
    cdef Py_ssize_t i, m, j, work = 0
    cdef double total
    with nogil:
        for i in range(out.shape[0]):
            poll_signals(&work, out.shape[1] * points.shape[2], 1 << 24)
            for m in range(out.shape[1]):
                total = 0.0
                for j in range(points.shape[2]):
                    total += positive_summand(kind, points[i, m, j], centers[i, m, j])
                out[i, m] = total


def summands(int kind, x, mu):
    """The divergence in each column, for arrays that broadcast together; may be less than 0 by rounding."""
    points, centers, shape = together(x, mu)
    out = np.empty(points.shape)
    if points.dtype == np.float32:
        fill_summands[float](kind, points, centers, out)
    else:
        fill_summands[double](kind, points, centers, out)
    return out.reshape(shape)


def divergences(int kind, x, mu):
    """The divergences of points, along the last axis, from centers that broadcast together with them."""
    points, centers, shape = together(x, mu)
    out = np.empty(points.shape[:2])
    if points.dtype == np.float32:
        fill_divergences[float](kind, points, centers, out)
    else:
        fill_divergences[double](kind, points, centers, out)
    return out.reshape(shape[:-1])


def within_members(means, const real_x[:, :] X, const int[::1] label, const double[::1] share, double top):
    """Means (k, d) brought into the range of the values of their members, and below ``top`` unless all of these are.

    Rows are read no further than it takes to see that a mean is there already: mostly some thousands.

    means : NaN for clusters without members
    label : IN array (n,); -1: in no cluster
    share : IN array (k,), of the weight of its cluster that a row has, at least
    """
    cdef Py_ssize_t i = 0, j, c, k = means.shape[0], d = X.shape[1], stop, work = 0, pending = 1
    cdef double[:, ::1] mean = np.array(means, dtype=np.float64, order="C")
    low_array, high_array = np.full((k, d), np.inf), np.full((k, d), -np.inf)
    cdef double[:, ::1] low = low_array, high = high_array
    cdef unsigned char[::1] is_pending = np.ones(k, dtype=np.uint8)     # whether all of its rows have to be read
    with nogil:
        while i < X.shape[0] and pending > 0:
            stop = min(X.shape[0], i + max(<Py_ssize_t> RANGE_ROWS, RANGE_ROWS // 64 * k))
            poll_signals(&work, (stop - i) * d, 1 << 28)
            while i < stop:
                c = label[i]
                if c >= 0 and is_pending[c]:
                    for j in range(d):
                        low[c, j] = min(low[c, j], <double> X[i, j])
                        high[c, j] = max(high[c, j], <double> X[i, j])
                i += 1
            pending = 0
            for c in range(k):
                if is_pending[c]:
                    is_pending[c] = not is_within(&mean[c, 0], &low[c, 0], &high[c, 0], d, share[c], top)
                pending += is_pending[c]
    out, read = np.asarray(mean), np.asarray(is_pending, dtype=bool)
    clipped = np.clip(out[read], low_array[read], high_array[read])
    clipped[(clipped == top) & (low_array[read] < top)] = np.nextafter(top, 0.0)
    out[read] = clipped
    return out + 0.0    # -0 becomes 0


cdef bint is_within(
    const double* mean, const double* low, const double* high, Py_ssize_t d, double share, double top
) noexcept nogil:
    """Whether no value of further members can change the mean of a cluster, or there are no members.

    If one value is below the mean by t, the largest is above it by share * t at least, and the other way round.
    """
    cdef Py_ssize_t j
    for j in range(d):
        if share * max(mean[j] - low[j], high[j] - mean[j]) > MEAN_ERROR * max(fabs(low[j]), fabs(high[j])):
            continue
        if mean[j] < low[j] or mean[j] > high[j] or mean[j] == top:
            return False
    return True


def join_cheapest(
    int kind, const real_x[:, :] X, const double[::1] weight, const int[::1] group, const double[:, ::1] centers,
    double[:, ::1] offset, int[::1] labels, double[::1] costs, Py_ssize_t first=0, double limit=HUGE_VAL,
    bint is_free_then=False, bint stops_above=False,
):
    """Points from ``first`` on join the clusters p with the least w D(x, mu_p) + offset[group, p], the first at a tie.

    Returns the point at which this stops, which has its label and cost already; else their number.

    weight : IN array (n,) or None;  group : IN array (n,)
    offset : IN array (groups, k); with ``is_free_then`` it becomes 0 for a group once one of its points has joined
    labels, costs : INOUT arrays (n,)
    limit : a larger cost stops;  stops_above : so does a cluster of a higher number than the label before
    """
    cdef Py_ssize_t i, j, p, best, found = X.shape[0], work = 0
    cdef double w = 1.0, least, paid, total
    cdef bint stops
    with nogil:
        for i in range(first, X.shape[0]):
            poll_signals(&work, centers.shape[0] * X.shape[1], 1 << 24)
            if weight is not None:
                w = weight[i]
            best, least = 0, HUGE_VAL
            for p in range(centers.shape[0]):
                total, paid = 0.0, offset[group[i], p]
                for j in range(X.shape[1]):
                    total += positive_summand(kind, X[i, j], centers[p, j])
                    if w * total + paid > least:
                        break   # no later summand lowers the cost
                total = w * total
                if not total <= DBL_MAX:   # also 0 times infinity: of infinite costs the least offset counts
                    total = DBL_MAX
                if total + paid < least:
                    best, least = p, total + paid
            stops = least > limit or stops_above and best > labels[i]
            labels[i], costs[i] = <int> best, least
            if stops:
                found = i
                break
            if is_free_then:
                offset[group[i], best] = 0.0
    return found


cdef class DivergencePairs(Pairs):
    """Clusters whose merger costs w_a D(mu_a, m) + w_b D(mu_b, m), m being the joint mean.

    *Bounds.* Logarithms are computed only where a lower bound of the cost does not decide. With K = w_a w_b / (w_a +
    w_b) and t = |mu_a - mu_b|, from

        x log(x / m) - x + m >= 3 (x - m)^2 / (4 m + 2 x),
        x / m - log(x / m) - 1 >= 3 (x - m)^2 / (m (4 x + 2 m))

    and the convexity of 1 / y, a column costs at least 1.5 K t^2 over

        s = mu_a + mu_b + m                for counts,
        m (2 (mu_a + mu_b) - m)            for positive values,
        s (3 - s) / 3                      for fractions, the sum of 1 / s and 1 / (3 - s) being 3 / (s (3 - s)).

    mean, weight : INOUT arrays (k, d), (k,); ``merge`` replaces those of the first cluster by those of the union
    sums : INOUT, sums of the members
    """

    cdef int kind
    cdef double[:, ::1] mean, columns   # k x d, d x k: the same in columns
    cdef double[::1] weight
    cdef double[:, :, ::1] scratch      # of each thread: shares in the joint mean, and bounds
    cdef Sums sums

    def __init__(self, int kind, double[:, ::1] mean, double[::1] weight, Sums sums, int n_threads):
        if weight.shape[0] != mean.shape[0] or sums.capacity < mean.shape[0]:
            raise ValueError("mean, weight and sums must match")
        self.kind, self.mean, self.weight, self.sums = kind, mean, weight, sums
        self.columns = np.array(np.asarray(mean).T, order="C")
        self.scratch = np.empty((n_threads, 2, mean.shape[0]))
        self.begin(mean.shape[0], mean.shape[1], n_threads)

    cdef double cost(self, Py_ssize_t a, Py_ssize_t b, double most) noexcept nogil:
        return merging_cost(
            self.kind, &self.mean[a, 0], self.weight[a], &self.mean[b, 0], self.weight[b], self.mean.shape[1], most
        )

    cdef const double* bound_costs(self, Py_ssize_t a, Py_ssize_t first, int thread) noexcept nogil:
        cdef Py_ssize_t b, k = self.k, d = self.mean.shape[1]
        cdef double w = self.weight[a]
        cdef const double* mean = &self.mean[a, 0]
        cdef const double* columns = &self.columns[0, first]
        cdef double* shares = &self.scratch[thread, 0, 0]
        cdef double* bounds = &self.scratch[thread, 1, 0]
        for b in range(first, k):
            shares[b] = self.weight[b] / (w + self.weight[b])
        if self.kind == C_KULLBACK_LEIBLER:
            sd_counts(mean, d, columns, k, k - first, shares + first, bounds + first)
        elif self.kind == C_ITAKURA_SAITO:
            sd_positive(mean, d, columns, k, k - first, shares + first, bounds + first)
        else:
            sd_fractions(mean, d, columns, k, k - first, shares + first, bounds + first)
        for b in range(first, k):
            bounds[b] *= w * shares[b] * BOUND_ROUNDING     # w shares[b] is K
        return bounds

    cdef void unite(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
        cdef Py_ssize_t j
        sums_unite(&self.sums.table, a, &self.sums.table, b)
        sums_clear(&self.sums.table, b, b + 1)
        mean_of_sums(&self.sums.table, a, &self.mean[a, 0], 1)
        self.weight[a], self.weight[b] = sums_weight(&self.sums.table, a), 0.0
        for j in range(self.mean.shape[1]):
            self.columns[j, a] = self.mean[a, j]
