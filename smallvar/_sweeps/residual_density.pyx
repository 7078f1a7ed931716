"""Densities of residuals: what the criterion for the number of clusters asks of a clustering.

Residuals are the differences of rows and the centers of their clusters. ``fit_residual_density`` fits a spherical
density that all clusters share, a Gaussian or a multivariate t, to their squared lengths r2; with the scale s2,

    Gaussian:  -2 log f = r2 / s2 + d log(2 pi s2)
    t, nu:     -2 log f = (nu + d) log(1 + r2 / (nu s2)) + d log(nu pi s2) - 2 log(Gamma((nu + d) / 2) / Gamma(nu / 2)).

``own_covariance_distances`` measures residuals by a covariance matrix of each cluster instead.
"""

from libc.math cimport HUGE_VAL, M_PI as pi, lgamma, log, log1p
from libc.string cimport memcpy

from smallvar._sweeps.rows cimport Rows, rows_of, value_of, weight_of

import numpy as np

cdef extern from *:
    """
    #define SMALLVAR_SMALLEST_UNIT 1e-300
    """
    # the unit that squared residuals are divided by is at least this, so that quotients are finite
    const double SMALLEST_UNIT "SMALLVAR_SMALLEST_UNIT"

cdef enum:
    N_SHAPES = 7            # t densities that are tried
    SCALE_STEPS = 2         # of the fixed-point iteration for the scale, for each t density
    OCTAVE_BITS = 5         # squared lengths are counted in bins, 2^5 of them from a power of two to the next one

cdef double[7] SHAPES = [200.0, 50.0, 20.0, 10.0, 6.0, 4.0, 3.0]    # degrees of freedom nu


cdef struct Range:          # of squared residuals, after they were corrected
    double mean_before      # their mean before the correction
    double total            # sum of w r2
    double smallest
    double largest


cdef Range correct_squares(
    double[::1] squares, const double[::1] weight, const int[::1] label, const double[::1] correction, double n
) noexcept nogil:
    """Raise each r2 by mean(r2) * correction[label], in place: residuals from a mean of the same rows are too short."""
    cdef Range out = Range(0.0, 0.0, HUGE_VAL, 0.0)
    cdef double value, total = 0.0
    cdef Py_ssize_t i
    for i in range(squares.shape[0]):
        total += squares[i] if weight is None else weight[i] * squares[i]
    out.mean_before = total / n
    for i in range(squares.shape[0]):
        value = squares[i] + out.mean_before * correction[label[i]]
        value = value if value > 0.0 else 0.0  # -0.0 would be in no bin
        squares[i] = value
        out.total += value if weight is None else weight[i] * value
        out.largest = max(out.largest, value)
        out.smallest = min(out.smallest, value)
    return out


cdef inline long long bin_of(double value) noexcept nogil:
    """Number of the bin that a value >= 0 lies in: its exponent and the first OCTAVE_BITS bits of its fraction."""
    cdef long long bits
    memcpy(&bits, &value, 8)
    return bits >> (52 - OCTAVE_BITS)


cdef Py_ssize_t count_squares(
    const double[::1] squares, const double[::1] weight, double unit, double n, long long low, Py_ssize_t size,
    double* share, double* mean
) noexcept nogil:
    """Compute share of the weight, and mean of r2 / unit, of the bins low..low+size-1 that have any weight.

    Returns how many these are.  INOUT share, mean: size zeros
    """
    cdef Py_ssize_t i, b, used = 0
    cdef double value, w
    for i in range(squares.shape[0]):
        value = squares[i] / unit
        w = 1.0 if weight is None else weight[i]
        b = bin_of(value) - low
        share[b] += w
        mean[b] += w * value
    for b in range(size):
        if share[b] > 0.0:
            mean[used] = mean[b] / share[b]
            share[used] = share[b] / n
            used += 1
    return used


cdef double best_t_deviance(const double* share, const double* mean, Py_ssize_t size, Py_ssize_t d) noexcept nogil:
    """The least mean of -2 log f over the t densities, for squared lengths ``mean`` with these shares of the weight."""
    cdef double best = HUGE_VAL, s2 = 1.0, total, nu, value
    cdef Py_ssize_t m, b
    for m in range(N_SHAPES):
        nu = SHAPES[m]
        for _ in range(SCALE_STEPS):
            total = 0.0
            for b in range(size):
                total += share[b] * mean[b] / (nu + mean[b] / s2)
            s2 = (nu + d) / d * total
        total = 0.0
        for b in range(size):
            total += share[b] * log1p(mean[b] / (nu * s2))
        value = (nu + d) * total - 2.0 * (lgamma((nu + d) / 2.0) - lgamma(nu / 2.0)) + d * log(nu * pi * s2)
        best = min(best, value)
    return best


def fit_residual_density(double[::1] squares, const double[::1] weight, const int[::1] label,
                         const double[::1] correction, double n, Py_ssize_t d):
    """Fit a spherical density to squared lengths r2 of residuals of rows whose weights sum to n, in d dimensions.

    Each r2 is raised by mean(r2) * correction[label], in place. Tried are the Gaussian and t densities with nu = 200 to
    3 degrees of freedom; the scale of each comes from that of the one before by a few steps of

        s2 <- (nu + d) / d  mean(r2 / (nu + r2 / s2)).

    Returns -2 / n times the log-likelihood of the best, and whether it is a t density; infinity where r2 is not finite.
    For t densities, squared lengths in the same bin (32 from a power of two to the next) are replaced by their mean:
    the result is off by about 1e-5.
    """
    cdef Range r2
    cdef double unit, gaussian, t_density
    cdef long long low
    cdef Py_ssize_t size
    with nogil:
        r2 = correct_squares(squares, weight, label, correction, n)
    unit = max(r2.total / n / d, SMALLEST_UNIT)  # the scale of the Gaussian
    if not (-HUGE_VAL < r2.mean_before < HUGE_VAL and r2.largest < HUGE_VAL and unit < HUGE_VAL):
        return HUGE_VAL, False
    gaussian = d * (log(2.0 * pi) + 1.0)
    if r2.largest < 1.05 * d * unit:  # all lengths are near the mean or below: no tails, which a t density is for
        return gaussian + d * log(unit), False
    low = bin_of(r2.smallest / unit)
    size = bin_of(r2.largest / unit) - low + 1
    cdef double[:, ::1] table = np.zeros((2, size))
    with nogil:
        size = count_squares(squares, weight, unit, n, low, size, &table[0, 0], &table[1, 0])
        t_density = best_t_deviance(&table[0, 0], &table[1, 0], size, d)
    return min(gaussian, t_density) + d * log(unit), t_density < gaussian


def own_covariance_distances(X, const double[::1] weight, const int[::1] label, const double[:, ::1] centers,
                             double scale, double prior, double zero):
    """Squared Mahalanobis distances of rows to the centers of their clusters, by a covariance of each; for two columns.

    The covariance S of a cluster is averaged with the pooled one, as if the cluster had ``prior`` more rows of that.
    Returns r S^-1 r' of each residual r, (n,), and the determinant of each S, (k,). That is of rows times ``scale``,
    which keeps it within float64 and does not matter for the distances. It is 0 where S is a line, with one variance at
    most ``zero`` times the other; distances in such a cluster mean nothing.
    """
    cdef Rows rows = rows_of(X, weight, None)
    cdef Py_ssize_t i, k, n_clusters = centers.shape[0]
    cdef double x, y, square
    square_array = np.empty(rows.n)
    determinant_array = np.empty(n_clusters)
    cdef double[::1] squares = square_array, determinants = determinant_array
    cdef double[:, ::1] S = np.zeros((n_clusters, 4))   # of a cluster: sums of w x x, w x y, w y y and w
    cdef double[:, ::1] R = np.empty((rows.n, 2))       # residuals
    with nogil:
        for i in range(rows.n):
            k = label[i]
            x = (value_of(&rows, i, 0) - centers[k, 0]) * scale
            y = (value_of(&rows, i, 1) - centers[k, 1]) * scale
            add_product(&S[k, 0], weight_of(&rows, i), x, y)
            R[i, 0], R[i, 1] = x, y
        shrink_covariances(&S[0, 0], n_clusters, prior)
        for k in range(n_clusters):
            determinants[k] = divide_by_determinant(&S[k, 0], zero)
        for i in range(rows.n):
            k, x, y = label[i], R[i, 0], R[i, 1]
            # (x y) S^-1 (x y)': the inverse has S[2], -S[1], S[0] over the determinant
            square = S[k, 2] * x * x - 2.0 * S[k, 1] * x * y + S[k, 0] * y * y
            squares[i] = square if square > 0.0 else 0.0  # not below 0 by rounding
    return square_array, determinant_array


cdef inline void add_product(double* S, double w, double x, double y) noexcept nogil:
    """Add a residual (x, y) of weight w to the sums of a cluster."""
    S[0] += w * x * x
    S[1] += w * x * y
    S[2] += w * y * y
    S[3] += w


cdef void shrink_covariances(double* S, Py_ssize_t n_clusters, double prior) noexcept nogil:
    """Turn sums of products, four of each cluster, into covariances averaged with the pooled one."""
    cdef double pooled, weight
    cdef Py_ssize_t i, k
    for i in range(3):
        pooled = weight = 0.0
        for k in range(n_clusters):
            pooled += S[4 * k + i]
            weight += S[4 * k + 3]
        pooled *= prior / weight
        for k in range(n_clusters):
            S[4 * k + i] = (S[4 * k + i] + pooled) / (S[4 * k + 3] + prior)


cdef double divide_by_determinant(double* S, double zero) noexcept nogil:
    """Divide a covariance by its determinant, which is returned; 0 for a line (see own_covariance_distances)."""
    cdef double determinant = S[0] * S[2] - S[1] * S[1], trace = S[0] + S[2]
    cdef Py_ssize_t i
    for i in range(3):
        S[i] /= determinant if determinant != 0.0 else 1.0
    return determinant if determinant > zero * trace * trace else 0.0
