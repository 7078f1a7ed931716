"""Summands of Bregman divergences. See divergences.pyx."""

from libc.math cimport fabs, log, log1p

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
