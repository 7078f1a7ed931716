"""The logarithm in Bregman divergences. See divergences.pyx."""

from libc.math cimport fabs, log, log1p


cdef inline double log_ratio(double x, double mu, double delta) noexcept nogil:
    """log(x / mu) for delta = x - mu, to full precision where they are near each other.

    A mean that is off by its last bit is then off by the square of that in the divergence.
    """
    if fabs(delta) <= 0.5 * mu:
        return log1p(delta / mu)
    return log(x) - log(mu)
