"""Summands of Bregman divergences. See divergences.pyx."""

from libc.math cimport fabs, log, log1p, nextafter

cdef enum:
    C_KULLBACK_LEIBLER = 0
    C_ITAKURA_SAITO = 1
    C_LOGISTIC = 2


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


cdef inline double positive_summand(int kind, double x, double mu) noexcept nogil:
    """The divergence in one column, 0 where it is less by rounding; NaN stays."""
    cdef double value = summand(kind, x, mu)
    return 0.0 if value <= 0.0 else value


cdef inline double merging_cost(
    int kind, const double* a, double w, const double* b, double v, Py_ssize_t d, double most
) noexcept nogil:
    """w D(a, m) + v D(b, m), for the joint mean m of weights w at a and v at b; above ``most``, any number that is."""
    cdef double share = v / (w + v), joint, from_a = 0.0, from_b = 0.0
    cdef Py_ssize_t j
    for j in range(d):
        joint = a[j] + share * (b[j] - a[j])
        if joint == 0.0 and a[j] != b[j]:   # it has underflowed: the divergence would be infinite
            joint = nextafter(0.0, 1.0)
        from_a += positive_summand(kind, a[j], joint)
        from_b += positive_summand(kind, b[j], joint)
        if w * from_a + v * from_b > most:
            break   # no later summand lowers the cost
    return w * from_a + v * from_b
