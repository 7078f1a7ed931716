"""Bregman divergences, exact: the summands in float64, added in the order of the columns; and means in their domains.

D(x, mu) = F(x) - F(mu) - F'(mu) (x - mu), summed over the columns; 0 log 0 is 0.
"""

from libc.math cimport fabs

from smallvar._sweeps.rows cimport poll_signals, real_x
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
    """
    # of the largest value: a mean from exact sums, which keep 50 bits of each value, is no further off
    const double MEAN_ERROR "SMALLVAR_MEAN_ERROR"


cdef together(x, mu):
    """Two arrays, broadcast together and with axes in front, so that there are three; and the shape of the result."""
    shape = np.broadcast_shapes(x.shape, mu.shape)
    axes = (None,) * (3 - len(shape))
    return *(np.broadcast_to(np.asarray(a, dtype=np.float64), shape)[axes] for a in (x, mu)), shape


def summands(int kind, x, mu):
    """The divergence in each column, for arrays that broadcast together; may be less than 0 by rounding."""
    a, b, shape = together(x, mu)
    cdef const double[:, :, :] points = a, centers = b
    cdef double[:, :, ::1] out = np.empty(a.shape)
    cdef Py_ssize_t i, m, j
    with nogil:
        for i in range(out.shape[0]):
            for m in range(out.shape[1]):
                for j in range(out.shape[2]):
                    out[i, m, j] = summand(kind, points[i, m, j], centers[i, m, j])
    return np.asarray(out).reshape(shape)


def divergences(int kind, x, mu):
    """The divergences of points, along the last axis, from centers that broadcast together with them."""
    a, b, shape = together(x, mu)
    cdef const double[:, :, :] points = a, centers = b
    cdef double[:, ::1] out = np.empty(a.shape[:2])
    cdef Py_ssize_t i, m, j
    cdef double total, value
    with nogil:
        for i in range(out.shape[0]):
            for m in range(out.shape[1]):
                total = 0.0
                for j in range(points.shape[2]):
                    value = summand(kind, points[i, m, j], centers[i, m, j])
                    total += 0.0 if value <= 0.0 else value     # NaN stays
                out[i, m] = total
    return np.asarray(out).reshape(shape[:-1])


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
