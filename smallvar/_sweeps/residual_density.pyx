"""Densities of residuals: what the criterion for the number of clusters asks of a clustering.

Residuals are the differences of rows and the centers of their clusters. ``fit_residual_density`` fits a spherical
density that all clusters share, a Gaussian or a multivariate t, to their squared lengths r2; with the scale s2,

    Gaussian:  -2 log f = r2 / s2 + d log(2 pi s2)
    t, nu:     -2 log f = (nu + d) log(1 + r2 / (nu s2)) + d log(nu pi s2) - 2 log(Gamma((nu + d) / 2) / Gamma(nu / 2)).

``own_covariance_distances`` measures residuals by a covariance matrix of each cluster instead. ``SmallCriterion`` is
the whole criterion for few rows of few columns, where most of the time would go into calls of numpy.
"""

from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.math cimport HUGE_VAL, M_PI as pi, fabs, lgamma, log, sqrt
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from smallvar._sweeps.rows cimport Rows, real_x, refuse_rows, rows_of, value_of, weight_of

import numpy as np
from scipy.linalg import LinAlgError, cython_lapack

cdef extern from *:
    """
    #define SMALLVAR_SMALLEST_UNIT 1e-300
    """
    # the unit that squared residuals are divided by is at least this, so that quotients are finite
    const double SMALLEST_UNIT "SMALLVAR_SMALLEST_UNIT"

cdef enum:
    N_SHAPES = 7            # t densities that are tried
    WORK_OF_COLUMN = 34     # numbers that dsyev works with for a column: blocks of 32, and two more
    T_SCALE_STEPS = 2       # of the fixed-point iteration for the scale, for each t density
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
    """The least mean of -2 log f over the t densities, for bins of means of r2 / unit and these shares."""
    cdef double best = HUGE_VAL, s2 = 1.0, total, nu, value
    cdef Py_ssize_t m, b
    for m in range(N_SHAPES):
        nu = SHAPES[m]
        for _ in range(T_SCALE_STEPS):
            total = 0.0
            for b in range(size):
                total += share[b] * mean[b] / (nu * s2 + mean[b])
            s2 *= (nu + d) / d * total
        total = 0.0
        for b in range(size):
            total += share[b] * log(1.0 + mean[b] / (nu * s2))
        value = (nu + d) * total - 2.0 * (lgamma((nu + d) / 2.0) - lgamma(nu / 2.0)) + d * log(nu * pi * s2)
        best = min(best, value)
    return best


cpdef (double, bint) fit_residual_density(double[::1] squares, const double[::1] weight, const int[::1] label,
                                          const double[::1] correction, double n, Py_ssize_t d) except *:
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
    cdef double* table
    cdef long long low
    cdef Py_ssize_t size, used
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
    table = <double*> calloc(2 * size, sizeof(double))
    if table == NULL:
        raise MemoryError
    with nogil:
        used = count_squares(squares, weight, unit, n, low, size, table, table + size)
        t_density = best_t_deviance(table, table + size, used, d)
    free(table)
    return min(gaussian, t_density) + d * log(unit), t_density < gaussian


def tangent_vectors(const real_x[:, ::1] X, const Py_ssize_t[::1] rows, const double[::1] mu, const double[::1] apart,
                    const double[::1] half, double length):
    """Tangent vectors of some rows over ``length``, in the plane at mu (sphere.py): an array (m, d).

    Differences are of float64; the result is float32.

    rows : IN array (m,), numbers of rows;  apart, half : IN arrays (n,), 1 - c and (1 + c) / 2 for a row at cosine c
    """
    cdef Py_ssize_t m = rows.shape[0], d = X.shape[1], i, j
    out = np.empty((m, d), dtype=np.float32)
    cdef float[:, ::1] t = out
    cdef const real_x* x
    cdef double cosine, factor, unit = 1.0 / length
    with nogil:
        for i in range(m):
            x = &X[rows[i], 0]
            cosine, factor = 1.0 - apart[rows[i]], 1.0 / sqrt(half[rows[i]])
            for j in range(d):
                t[i, j] = <float> ((x[j] * unit - cosine * mu[j]) * factor)
    return out


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
    square_array = np.empty(rows.n)
    determinant_array = np.empty(n_clusters)
    cdef double[::1] squares = square_array, determinants = determinant_array
    cdef double[:, ::1] S = np.zeros((n_clusters, 4))   # of a cluster: sums of w x x, w x y, w y y and w
    cdef double[:, ::1] R = np.empty((rows.n, 2))       # residuals
    with nogil:
        for i in range(rows.n):
            for k in range(2):
                R[i, k] = value_of(&rows, i, k) - centers[label[i], k]
        distances_by_own(R, weight, label, scale, prior, zero, S, squares, determinants)
    return square_array, determinant_array


cdef void distances_by_own(
    const double[:, ::1] R, const double[::1] weight, const int[::1] label, double scale, double prior, double zero,
    double[:, ::1] S, double[::1] squares, double[::1] determinants
) noexcept nogil:
    """own_covariance_distances of these residuals, (n, 2).  INOUT S : (k, 4), zeros"""
    cdef double x, y, square
    cdef Py_ssize_t i, k
    for i in range(R.shape[0]):
        add_product(&S[label[i], 0], 1.0 if weight is None else weight[i], R[i, 0] * scale, R[i, 1] * scale)
    shrink_covariances(&S[0, 0], S.shape[0], prior)
    for k in range(S.shape[0]):
        determinants[k] = divide_by_determinant(&S[k, 0], zero)
    for i in range(R.shape[0]):
        k, x, y = label[i], R[i, 0] * scale, R[i, 1] * scale
        # (x y) S^-1 (x y)': the inverse has S[2], -S[1], S[0] over the determinant
        square = S[k, 2] * x * x - 2.0 * S[k, 1] * x * y + S[k, 0] * y * y
        squares[i] = square if square > 0.0 else 0.0  # not below 0 by rounding


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


# ---- eigenvectors of a small matrix ----------------------------------------------------------------------------------


# LAPACK by its address: a call of numpy.linalg takes longer than the eigenvectors of ten columns
ctypedef void (*dsyev_t)(char*, char*, int*, double*, int*, double*, double*, int*, int*) noexcept nogil
_capsule = cython_lapack.__pyx_capi__["dsyev"]
cdef dsyev_t dsyev = <dsyev_t> PyCapsule_GetPointer(_capsule, PyCapsule_GetName(_capsule))


cdef int find_eigenpairs(double[:, ::1] V, double[::1] e, double[::1] work) except -1:
    """Eigenvalues, >= 0 and falling, and eigenvectors of a symmetric matrix that has no negative ones but by rounding.

    INOUT V : (d, d), the matrix, then in its rows the vectors.  OUT e : (d,);  work : (WORK_OF_COLUMN d,), scratch
    """
    cdef int d = <int> V.shape[0], size = <int> work.shape[0], info = 0
    cdef Py_ssize_t i, j
    cdef double total = 0.0
    for i in range(d):
        for j in range(d):
            total += fabs(V[i, j])
    if not total < HUGE_VAL:  # LAPACK might not converge, or not end
        refuse_rows()
    dsyev(b"V", b"L", &d, &V[0, 0], &d, &e[0], &work[0], &size, &info)
    if info != 0:
        raise LinAlgError(f"dsyev found no eigenvectors (info {info})")
    for i in range((d + 1) // 2):  # they ascend, vectors in columns by Fortran's order
        e[i], e[d - 1 - i] = max(0.0, e[d - 1 - i]), max(0.0, e[i])
        for j in range(d):
            V[i, j], V[d - 1 - i, j] = V[d - 1 - i, j], V[i, j]
    return 0


def eigenpairs(S):
    """Eigenvalues, >= 0 and falling, and eigenvectors, in rows, of a symmetric matrix without negative ones."""
    V, e = np.array(S, dtype=np.float64), np.empty(len(S))
    find_eigenpairs(V, e, np.empty(WORK_OF_COLUMN * len(S)))
    return e, V


# ---- the criterion of few rows and columns ---------------------------------------------------------------------------


cdef class SmallCriterion:
    """V of a clustering of few rows in few columns, all of them directions in which the rows vary.

    The same number as that of DensityCriterion (smallvar/_selection/criterion.py, where it is explained), in float64.

    X, weight : IN arrays (n, d) and (n,), or None
    floor : IN array (d,), the variance within a step of each column
    n, distinct, price_of_cluster : the sum of weights, distinct rows and the price of a cluster
    volume : the logarithm of the volume of the box of all rows
    scale : of the frame
    prices : of a parameter, and of one of a cluster's own covariance
    zero : of the largest variance: less is rounding
    """

    cdef Rows rows
    cdef const double[::1] weight, floor
    cdef double n, price_of_cluster, volume, scale, zero, price, own_price, floor_sum
    cdef Py_ssize_t distinct
    cdef double[:, ::1] R           # residuals, (n, d)
    cdef double[::1] squares, work  # their squared lengths, (n,), and what is made of these
    cdef double[:, ::1] U           # the pooled covariance, then its eigenvectors
    cdef double[::1] e, lapack      # eigenvalues; scratch
    cdef object X

    def __init__(self, X, weight, const double[::1] floor, double n, Py_ssize_t distinct, double price_of_cluster,
                 double volume, double scale, prices, double zero):
        self.X, self.weight, self.floor = X, weight, floor
        self.rows = rows_of(X, weight, None)
        self.n, self.distinct, self.price_of_cluster, self.volume = n, distinct, price_of_cluster, volume
        self.scale, self.zero = scale, zero
        self.price, self.own_price = prices
        self.floor_sum = np.sum(floor)
        self.R = np.empty((self.rows.n, self.rows.d))
        self.squares, self.work = np.empty(self.rows.n), np.empty(self.rows.n)
        self.U, self.e = np.empty((self.rows.d, self.rows.d)), np.empty(self.rows.d)
        self.lapack = np.empty(WORK_OF_COLUMN * self.rows.d)

    def __call__(self, const int[::1] label, const double[:, ::1] centers, const double[::1] weights):
        """V, the squared error, and the number, variances and directions of the long ones.

        label : IN array (n,);  centers, weights : IN arrays (k, d) and (k,), of the clusters

        Variances, (d,), fall, those of all directions but the long ones being their mean. They are None, as are the
        directions, (d, d), in rows, where none is long or a box is better.
        """
        cdef Py_ssize_t k, n_clusters = centers.shape[0], d = self.rows.d, q = 0, most
        cdef double entropy = 0.0, logdet, base, error, V, box, unit = log(self.distinct)
        cdef double[::1] correction = np.zeros(n_clusters)
        error = self.take_residuals(label, centers)
        for k in range(n_clusters):
            entropy -= weights[k] * log(weights[k] / self.n)
            # squares about a mean are too small by 1 / n_k of the variance of its rows: add that
            if self.distinct > n_clusters:
                correction[k] = self.n / (self.distinct - n_clusters) / weights[k]
        base = 2.0 * self.distinct / self.n * entropy + (n_clusters - 1) * self.price_of_cluster + unit * self.price * d
        self.work[:] = self.squares
        V = base + self.description(label, correction, self.floor_sum, 0.0, self.price)
        most = min(d - 1, self.distinct // 3 - n_clusters)
        if d > 1 and most > 0:
            find_eigenpairs(self.U, self.e, self.lapack)
            q = self.count_long(most)
        if q > 0:
            logdet = self.measure(q)
            V = min(V, base + self.description(label, correction, 0.0, logdet,
                                               self.price * (d * q - q * (q - 1) / 2.0 + 1.0)))
        if d == 2 and not self.floor_sum > 0.0:
            logdet = self.measure_by_own(label, weights)
            if logdet < HUGE_VAL:
                V = min(V, base + self.description(label, correction, 0.0, logdet, self.own_price * 3 * n_clusters))
        box = 2.0 * self.distinct * self.volume + unit * self.price * 4 * d
        if n_clusters == 1 and box < V:
            V, q = box, 0
        if q == 0:
            return V, error, 0, None, None
        return V, error, q, np.array(self.e), np.array(self.U)

    cdef double take_residuals(self, const int[::1] label, const double[:, ::1] centers) noexcept:
        """Compute residuals, their squared lengths and pooled covariance; returns the weighted sum of the lengths."""
        cdef double[:, ::1] R = self.R, S = self.U
        cdef Py_ssize_t i, j, k, d = self.rows.d
        cdef double error = 0.0, square, product, w
        S[:, :] = 0.0
        for i in range(self.rows.n):
            square = 0.0
            w = weight_of(&self.rows, i)
            for j in range(d):
                R[i, j] = value_of(&self.rows, i, j) - centers[label[i], j]
                square += R[i, j] * R[i, j]
            self.squares[i] = square
            error += w * square
            for j in range(d):
                product = w * R[i, j]
                for k in range(j + 1):
                    S[j, k] += product * R[i, k]
        for j in range(d):
            for k in range(j + 1):
                S[j, k] /= self.n
                S[k, j] = S[j, k]
            S[j, j] += self.floor[j]
        return error

    cdef double description(self, const int[::1] label, const double[::1] correction, double shift, double logdet,
                            double price):
        """The cost of the rows by a density of the squared lengths in ``work``, plus shift, and of its parameters."""
        cdef double deviance
        cdef bint is_t
        cdef Py_ssize_t i
        for i in range(self.rows.n):
            self.work[i] += shift
        deviance, is_t = fit_residual_density(self.work, self.weight, label, correction, self.n, self.rows.d)
        return self.distinct * (deviance + logdet) + log(self.distinct) * (price + self.price * is_t)

    cdef Py_ssize_t count_long(self, Py_ssize_t most) noexcept:
        """How many directions are worth their price; all other eigenvalues become their mean.

        q maximizes the penalized Gaussian likelihood of a covariance that is spherical but for q directions.
        """
        cdef double[::1] e = self.e
        cdef Py_ssize_t d = e.shape[0], q, best = 0, j
        cdef double rest = 0.0, head = 0.0, cost, least = HUGE_VAL, mean, mean_of_best = 0.0
        cdef double unit = self.price * log(self.distinct)
        if not e[0] > 0.0:
            return 0
        for j in range(d):
            rest += e[j]
        for q in range(most + 1):
            mean = rest / (d - q)
            if mean > self.zero * e[0]:
                cost = self.distinct * (head + (d - q) * log(mean)) + unit * (d * q - q * (q - 1) / 2.0)
                if cost < least:
                    best, least, mean_of_best = q, cost, mean
            head += log(e[q]) if e[q] > 0.0 else -HUGE_VAL
            rest = max(0.0, rest - e[q])
        for j in range(best, d):
            e[j] = mean_of_best
        return best

    cdef double measure(self, Py_ssize_t q) noexcept:
        """Squared lengths by the covariance of q long directions, into ``work``; returns log det of it.

        r' S^-1 r = (r' r - sum_j p_j^2) / e_d + sum_j p_j^2 / e_j, with p = U' r and j = 1..q.
        """
        cdef double[:, ::1] R = self.R, U = self.U
        cdef double[::1] e = self.e
        cdef Py_ssize_t i, j, k, d = self.rows.d
        cdef double logdet = 0.0, p, plain, in_units, floor_plain = self.floor_sum, floor_in_units = 0.0, square
        for j in range(q):
            for k in range(d):
                floor_plain -= U[j, k] * U[j, k] * self.floor[k]
                floor_in_units += U[j, k] * U[j, k] * self.floor[k] / e[j]
        for i in range(self.rows.n):
            plain = in_units = 0.0
            for j in range(q):
                p = 0.0
                for k in range(d):
                    p += U[j, k] * R[i, k]
                plain += p * p
                in_units += p * p / e[j]
            square = max(0.0, self.squares[i] - plain + floor_plain)
            self.work[i] = square / e[d - 1] + in_units + floor_in_units
        for j in range(d):
            logdet += log(e[j])
        return logdet

    cdef double measure_by_own(self, const int[::1] label, const double[::1] weights):
        """Squared lengths by the covariance of each cluster, into ``work``, in two columns.

        Returns the mean of their log det, infinity where one is a line next to others.
        """
        cdef Py_ssize_t k, n_clusters = weights.shape[0]
        cdef double[:, ::1] S = np.zeros((n_clusters, 4))
        cdef double logdet = 0.0, least = HUGE_VAL, most = 0.0
        cdef double[::1] determinants = np.empty(n_clusters)
        distances_by_own(self.R, self.weight, label, self.scale, 3.0 * self.n / self.distinct, self.zero, S,
                         self.work, determinants)
        for k in range(n_clusters):
            least, most = min(least, determinants[k]), max(most, determinants[k])
        if not least > self.zero * most:
            return HUGE_VAL
        for k in range(n_clusters):
            logdet += weights[k] * log(determinants[k])
        return logdet / self.n - 4.0 * log(self.scale)
