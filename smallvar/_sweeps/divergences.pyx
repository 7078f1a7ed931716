"""Bregman divergences, exact: the summands in float64, added in the order of the columns.

D(x, mu) = F(x) - F(mu) - F'(mu) (x - mu), summed over the columns; 0 log 0 is 0.
"""

from libc.math cimport fabs, log, log1p

import numpy as np

KULLBACK_LEIBLER = 0        # x log(x / mu) - x + mu
ITAKURA_SAITO = 1           # x / mu - log(x / mu) - 1
LOGISTIC = 2                # x log(x / mu) + (1 - x) log((1 - x) / (1 - mu))

cdef enum:
    C_KULLBACK_LEIBLER = 0
    C_ITAKURA_SAITO = 1


cdef inline double log_ratio(double x, double mu, double delta) noexcept nogil:
    """log(x / mu) for delta = x - mu, to full precision where they are near each other.

    A mean that is off by its last bit is then off by the square of that in the divergence.
    """
    if fabs(delta) <= 0.5 * mu:
        return log1p(delta / mu)
    return log(x) - log(mu)


cdef inline double relative_entropy(double x, double mu, double delta) noexcept nogil:
    """x log(x / mu) - x + mu."""
    return x * log_ratio(x, mu, delta) - delta if x > 0.0 else -delta


cdef inline double summand(int kind, double x, double mu) noexcept nogil:
    """The divergence in one column."""
    cdef double delta = x - mu
    if kind == C_KULLBACK_LEIBLER:
        return relative_entropy(x, mu, delta)
    if kind == C_ITAKURA_SAITO:
        return delta / mu - log_ratio(x, mu, delta)
    return relative_entropy(x, mu, delta) + relative_entropy(1.0 - x, 1.0 - mu, mu - x)


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
