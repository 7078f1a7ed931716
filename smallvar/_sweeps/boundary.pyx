"""Two densities fitted to a histogram: two normals ("bells"), and one body of two pieces that touch ("body").

The five parameters of each, and its distribution function F, with Phi and phi those of a standard normal:

    bells:  m1, m2, log s1, log s2, logit q;    F(x) = q Phi((x - m1) / s1) + (1 - q) Phi((x - m2) / s2)
    body:   e, log a1, log a2, log s, logit q;  F(x) = q (H(x - e + a1) - H(x - e)) / a1
                                                     + (1 - q) (H(x - e) - H(x - e - a2)) / a2,

where H(x) = x Phi(x / s) + s phi(x / s). The body is uniform from e - a1 to e with share q, and from e to e + a2 with
the rest, blurred by a normal of spread s. The likelihood is that of the counts of bins 0 to 1, 1 to 2, and so on; the
first one has no lower end, the last one no upper end.
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL, M_PI as pi, M_SQRT1_2, erfc, exp, fabs, log, sqrt

from smallvar._sweeps.parallel cimport ParallelLoop, begin_chunk, begin_loop, end_loop

import numpy as np

cdef extern from *:
    """
    #define SMALLVAR_LEAST_PROBABILITY 1e-12
    #define SMALLVAR_CONVERGED 1e-11
    #define SMALLVAR_ROUNDING 1e-15
    #define SMALLVAR_LEAST_GAIN 1e-9
    #define SMALLVAR_MOST_DAMPING 1e12
    #define SMALLVAR_DAMPED 1e-3
    #define SMALLVAR_LEAST_DAMPING 1e-6
    #define SMALLVAR_SAME_MODE 1e-3
    #define SMALLVAR_NEAR 1e-9
    """
    # of a bin: so that a row where a density has vanished costs 28 nats, not infinity
    const double LEAST_PROBABILITY "SMALLVAR_LEAST_PROBABILITY"
    # nats that one more step is expected to gain: a fit ends there
    const double CONVERGED "SMALLVAR_CONVERGED"
    # of a log-likelihood: a step may seem to lose that much
    const double ROUNDING "SMALLVAR_ROUNDING"
    # nats: a step that should gain less than this, and does not gain, is one of rounding, by which likelihoods of gaps
    # differ most: probabilities of their bins are differences of F
    const double LEAST_GAIN "SMALLVAR_LEAST_GAIN"
    # a fit also ends where even steps with this damping gain nothing: by rounding
    const double MOST_DAMPING "SMALLVAR_MOST_DAMPING"
    # steps with more damping than this are too short to tell whether a fit ends
    const double DAMPED "SMALLVAR_DAMPED"
    # where a step gains nothing, damping rises from at least this
    const double LEAST_DAMPING "SMALLVAR_LEAST_DAMPING"
    # of the distance of two means: modes that are nearer are one
    const double SAME_MODE "SMALLVAR_SAME_MODE"
    # of the distance of two means: a step of mean shift that is shorter is the last
    const double NEAR "SMALLVAR_NEAR"

cdef enum:
    N = 5               # parameters of each density
    N_SCORING = 10      # steps from each start, by expected information
    N_FITS = 3          # the best of them go on, by the curvature
    N_STEPS = 200       # of those, at most: 5 are usual
    N_SHIFTS = 1000     # steps of mean shift from a mean to a mode, at most
    N_SECTIONS = 60     # of the search for the lowest point between two modes

ctypedef double (*DistributionFunction)(const double*, double, double*, double*) noexcept nogil


cdef struct Histogram:
    Py_ssize_t n_bins
    const double* count     # n_bins
    double total
    bint two_bells          # the density that is fitted


cdef inline double Phi(double z) noexcept nogil:
    return 0.5 * erfc(-z * M_SQRT1_2)


cdef inline double phi(double z) noexcept nogil:
    return exp(-0.5 * z * z) / sqrt(2.0 * pi)


cdef void unlog(bint two_bells, const double* p, double* v) noexcept nogil:
    """Parameters without logarithms: m1, m2, s1, s2, q or e, a1, a2, s, q."""
    cdef Py_ssize_t i
    for i in range(4):
        v[i] = p[i] if i == 0 or (two_bells and i == 1) else exp(p[i])
    v[4] = 1.0 / (1.0 + exp(-p[4]))


cdef double bells(const double* v, double x, double* slope, double* curve) noexcept nogil:
    """F(x) of two normals, its derivatives by the parameters, and second derivatives (lower triangle) or NULL."""
    cdef double s1 = v[2], s2 = v[3], q = v[4], r = 1.0 - q
    cdef double z1 = (x - v[0]) / s1, z2 = (x - v[1]) / s2
    cdef double Phi1 = Phi(z1), Phi2 = Phi(z2), phi1 = phi(z1), phi2 = phi(z2)
    slope[0] = -q * phi1 / s1
    slope[1] = -r * phi2 / s2
    slope[2] = -q * phi1 * z1
    slope[3] = -r * phi2 * z2
    slope[4] = q * r * (Phi1 - Phi2)
    if curve != NULL:
        curve[0] = slope[2] / (s1 * s1)
        curve[N] = curve[3 * N] = curve[2 * N + 1] = curve[3 * N + 2] = 0.0
        curve[N + 1] = slope[3] / (s2 * s2)
        curve[2 * N] = slope[0] * (z1 * z1 - 1.0)
        curve[2 * N + 2] = slope[2] * (z1 * z1 - 1.0)
        curve[3 * N + 1] = slope[1] * (z2 * z2 - 1.0)
        curve[3 * N + 3] = slope[3] * (z2 * z2 - 1.0)
        curve[4 * N] = r * slope[0]
        curve[4 * N + 1] = -q * slope[1]
        curve[4 * N + 2] = r * slope[2]
        curve[4 * N + 3] = -q * slope[3]
        curve[4 * N + 4] = (r - q) * slope[4]
    return q * Phi1 + r * Phi2


cdef double body(const double* v, double x, double* slope, double* curve) noexcept nogil:
    """F(x) of two pieces that touch, its derivatives by the parameters, and second derivatives or NULL."""
    cdef double a1 = v[1], a2 = v[2], s = v[3], q = v[4], r = 1.0 - q
    cdef double u1 = x - v[0] + a1, u0 = x - v[0], u2 = x - v[0] - a2
    # dH / dx = Phi(x / s) and dH / ds = phi(x / s)
    cdef double Phi1 = Phi(u1 / s), Phi0 = Phi(u0 / s), Phi2 = Phi(u2 / s)
    cdef double phi1 = phi(u1 / s) / s, phi0 = phi(u0 / s) / s, phi2 = phi(u2 / s) / s
    cdef double H0 = u0 * Phi0 + s * s * phi0
    # of each piece F, and its derivatives by e, log a and log s
    cdef double F1 = (u1 * Phi1 + s * s * phi1 - H0) / a1, F2 = (H0 - u2 * Phi2 - s * s * phi2) / a2
    cdef double e1 = -(Phi1 - Phi0) / a1, e2 = -(Phi0 - Phi2) / a2
    cdef double a1_1 = Phi1 - F1, a2_2 = Phi2 - F2
    cdef double s1 = s * s * (phi1 - phi0) / a1, s2 = s * s * (phi0 - phi2) / a2
    slope[0] = q * e1 + r * e2
    slope[1] = q * a1_1
    slope[2] = r * a2_2
    slope[3] = q * s1 + r * s2
    slope[4] = q * r * (F1 - F2)
    if curve != NULL:
        curve[0] = q * (phi1 - phi0) / a1 + r * (phi0 - phi2) / a2
        curve[N] = q * (-phi1 - e1)
        curve[N + 1] = q * (a1 * phi1 - a1_1)
        curve[2 * N] = r * (-phi2 - e2)
        curve[2 * N + 1] = 0.0
        curve[2 * N + 2] = r * (-a2 * phi2 - a2_2)
        curve[3 * N] = q * (phi1 * u1 - phi0 * u0) / a1 + r * (phi0 * u0 - phi2 * u2) / a2
        curve[3 * N + 1] = q * (-phi1 * u1 - s1)
        curve[3 * N + 2] = r * (-phi2 * u2 - s2)
        curve[3 * N + 3] = slope[3] + (
            q * (phi1 * u1 * u1 - phi0 * u0 * u0) / a1 + r * (phi0 * u0 * u0 - phi2 * u2 * u2) / a2
        )
        curve[4 * N] = q * r * (e1 - e2)
        curve[4 * N + 1] = r * slope[1]
        curve[4 * N + 2] = -q * slope[2]
        curve[4 * N + 3] = q * r * (s1 - s2)
        curve[4 * N + 4] = (r - q) * slope[4]
    return q * F1 + r * F2


cdef double derive(
    const Histogram* histogram, const double* p, double* gradient, double* information, double* curvature
) noexcept nogil:
    """The log-likelihood of the counts, and its derivatives.

    OUT gradient : (N,);  information : (N, N), the expected one of Fisher, n sum of dp dp' / p over the bins;
    curvature : (N, N), minus the second derivatives, of which the lower triangle counts, or NULL
    """
    cdef DistributionFunction F = bells if histogram.two_bells else body
    cdef double low = 0.0, high, share, likelihood = 0.0, observed, expected
    cdef double[N] v, slope_low, slope_high, difference, total_gradient
    cdef double[N * N] curve_low, curve_high, total_information, total_curvature
    cdef double* curve = NULL if curvature == NULL else &curve_high[0]
    cdef Py_ssize_t b, i, j
    unlog(histogram.two_bells, p, v)
    for i in range(N):
        slope_low[i] = total_gradient[i] = 0.0
    for i in range(N * N):
        curve_low[i] = curve_high[i] = total_information[i] = total_curvature[i] = 0.0
    for b in range(histogram.n_bins):
        if b < histogram.n_bins - 1:
            high = F(v, b + 1.0, slope_high, curve)
        else:
            high = 1.0
            for i in range(N):
                slope_high[i] = 0.0
            for i in range(N * N):
                curve_high[i] = 0.0
        share = high - low
        if share > LEAST_PROBABILITY:
            observed, expected = histogram.count[b] / share, histogram.total / share
            for i in range(N):
                difference[i] = slope_high[i] - slope_low[i]
            for i in range(N):
                total_gradient[i] += observed * difference[i]
                for j in range(N):
                    total_information[i * N + j] += expected * difference[i] * difference[j]
            if curvature != NULL:
                for i in range(N):
                    for j in range(N):
                        total_curvature[i * N + j] += observed * (
                            difference[i] / share * difference[j] - (curve_high[i * N + j] - curve_low[i * N + j])
                        )
        likelihood += histogram.count[b] * log(max(share, LEAST_PROBABILITY))
        low = high
        for i in range(N):
            slope_low[i] = slope_high[i]
        if curvature != NULL:
            for i in range(N * N):
                curve_low[i] = curve_high[i]
    for i in range(N):
        gradient[i] = total_gradient[i]
    for i in range(N * N):
        information[i] = total_information[i]
        if curvature != NULL:
            curvature[i] = total_curvature[i]
    return likelihood


cdef bint solve(
    const double* A, const double* information, const double* gradient, const bint* fixed, double damping, double* step
) noexcept nogil:
    """Solve (A + damping diag(information)) step = gradient by a Cholesky factor; 0 for fixed parameters.

    Whether the matrix is positive definite.
    """
    cdef double[N * N] L
    cdef double total
    cdef Py_ssize_t i, j, k
    for i in range(N):
        for j in range(i + 1):
            if i == j:
                # a parameter that changes nothing has no step
                total = 1.0
                if not fixed[i] and information[i * N + i] > 0.0:
                    total = A[i * N + i] + damping * information[i * N + i]
            else:
                total = 0.0 if fixed[i] or fixed[j] else A[i * N + j]
            for k in range(j):
                total -= L[i * N + k] * L[j * N + k]
            if i == j:
                if not total > 0.0:
                    return False
                L[i * N + i] = sqrt(total)
            else:
                L[i * N + j] = total / L[j * N + j]
    for i in range(N):
        total = 0.0 if fixed[i] else gradient[i]
        for k in range(i):
            total -= L[i * N + k] * step[k]
        step[i] = total / L[i * N + i]
    for i in range(N - 1, -1, -1):
        total = step[i]
        for k in range(i + 1, N):
            total -= L[k * N + i] * step[k]
        step[i] = total / L[i * N + i]
    return True


cdef double climb(
    const Histogram* histogram, const double* low, const double* high, bint newton, double* p
) noexcept nogil:
    """Raise the likelihood from p toward a maximum within bounds, and return it.

    Steps are damped (Levenberg-Marquardt): N_SCORING ones of scoring or, with ``newton``, those of Newton's method up
    to the maximum. A parameter at a bound beyond which the likelihood rises is fixed for the step.
    INOUT p : (N,)
    """
    cdef double[N] gradient, trial_gradient, step, trial
    cdef double[N * N] information, trial_information, curvature, trial_curvature
    cdef bint[N] fixed
    cdef const double* matrix = &curvature[0] if newton else &information[0]
    cdef double* now = &curvature[0] if newton else NULL
    cdef double* there = &trial_curvature[0] if newton else NULL
    cdef double value, trial_value, expected, damping = DAMPED
    cdef bint inside
    cdef Py_ssize_t i, j, _
    for i in range(N):
        p[i] = min(max(p[i], low[i]), high[i])
    value = derive(histogram, p, gradient, information, now)
    for _ in range(N_STEPS if newton else N_SCORING):
        for i in range(N):
            fixed[i] = (p[i] <= low[i] and gradient[i] < 0.0) or (p[i] >= high[i] and gradient[i] > 0.0)
        while True:
            expected, inside = 0.0, True
            if solve(matrix, information, gradient, fixed, damping, step):
                for i in range(N):
                    trial[i] = min(max(p[i] + step[i], low[i]), high[i])
                    expected += gradient[i] * (trial[i] - p[i])
                    inside = inside and trial[i] == p[i] + step[i]
                if inside and damping <= DAMPED and expected < CONVERGED:
                    return value
                trial_value = derive(histogram, trial, trial_gradient, trial_information, there)
                if trial_value >= value - ROUNDING * fabs(value):
                    break
                if inside and expected < LEAST_GAIN:
                    return value
            damping = max(4.0 * damping, LEAST_DAMPING)
            if damping > MOST_DAMPING:
                return value
        damping *= 0.2
        for i in range(N):
            p[i], gradient[i] = trial[i], trial_gradient[i]
            for j in range(i + 1):
                information[i * N + j] = trial_information[i * N + j]
                if newton:
                    curvature[i * N + j] = trial_curvature[i * N + j]
        value = trial_value
    return value


cdef void fit_one(
    const Histogram* histogram, Py_ssize_t n_starts, const double* low, const double* high,
    double* starts, double* values, Py_ssize_t n_fits, double* parameters, double* likelihoods
) noexcept nogil:
    """Fit a density from all starts, and go on with the n_fits best.

    INOUT starts : n_starts x N;  OUT values : n_starts;  parameters : n_fits x N;  likelihoods : n_fits
    """
    cdef Py_ssize_t i, j, best
    for i in range(n_starts):
        values[i] = climb(histogram, low, high, False, starts + i * N)
    for j in range(n_fits):
        best = 0
        for i in range(1, n_starts):
            if values[i] > values[best]:
                best = i
        values[best] = -HUGE_VAL
        for i in range(N):
            parameters[j * N + i] = starts[best * N + i]
        likelihoods[j] = climb(histogram, low, high, True, parameters + j * N)


def fit(bint two_bells, const double[:, ::1] counts, starts, const double[::1] low, const double[::1] high,
        int n_threads=1):
    """Fit a density to each of m histograms: the bells, or the body.

    Returns parameters, (m, n_fits, 5), and log-likelihoods, (m, n_fits), of the N_FITS best fits or of fewer starts.

    counts : IN array (m, n_bins);  starts : IN array (m, n_starts, 5);  low, high : IN arrays (5,), bounds
    """
    cdef Py_ssize_t m = counts.shape[0], n_starts = starts.shape[1], n_fits = min(N_FITS, n_starts), i, b
    cdef double[:, :, ::1] points = np.array(starts, order="C")
    parameter_array, likelihood_array = np.empty((m, n_fits, N)), np.empty((m, n_fits))
    cdef double[:, :, ::1] parameters = parameter_array
    cdef double[:, ::1] likelihoods = likelihood_array, values = np.empty((m, n_starts))
    cdef ParallelLoop loop
    if m == 0:
        return parameter_array, likelihood_array
    cdef char[::1] memory = np.empty(m * sizeof(Histogram), dtype=np.int8)
    cdef Histogram* histogram = <Histogram*> &memory[0]
    with nogil:
        for i in range(m):
            histogram[i] = Histogram(counts.shape[1], &counts[i, 0], 0.0, two_bells)
            for b in range(counts.shape[1]):
                histogram[i].total += counts[i, b]
        loop = begin_loop(m, n_threads)
        for i in prange(m, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            begin_chunk(&loop)
            fit_one(&histogram[i], n_starts, &low[0], &high[0], &points[i, 0, 0], &values[i, 0], n_fits,
                    &parameters[i, 0, 0], &likelihoods[i, 0])
        end_loop(&loop)
    return parameter_array, likelihood_array


def distribution(bint two_bells, parameters, const double[::1] x):
    """F(x) for each set of parameters: (..., n).  parameters : (..., 5);  x : (n,)"""
    cdef DistributionFunction F = bells if two_bells else body
    cdef double[N] v, slope
    cdef Py_ssize_t i, j
    cdef const double[:, ::1] p = np.ascontiguousarray(parameters, dtype=np.float64).reshape(-1, N)
    value_array = np.empty((p.shape[0], x.shape[0]))
    cdef double[:, ::1] values = value_array
    for i in range(p.shape[0]):
        unlog(two_bells, &p[i, 0], v)
        for j in range(x.shape[0]):
            values[i, j] = F(v, x[j], slope, NULL)
    return value_array.reshape(*parameters.shape[:-1], x.shape[0])


# ---- the valley between two bells ------------------------------------------------------------------------------------


cdef double density(const double* p, double x, double* shifted) noexcept nogil:
    """The density of the bells at x, and the x that a step of mean shift leads to, where it is no lower."""
    cdef double s1 = exp(p[2]), s2 = exp(p[3]), q = 1.0 / (1.0 + exp(-p[4]))
    cdef double f1 = q / s1 * phi((x - p[0]) / s1), f2 = (1.0 - q) / s2 * phi((x - p[1]) / s2)
    cdef double w1 = f1 / (s1 * s1), w2 = f2 / (s2 * s2)
    shifted[0] = (w1 * p[0] + w2 * p[1]) / (w1 + w2) if w1 + w2 > 0.0 else x
    return f1 + f2


cdef double mode_from(const double* p, double x) noexcept nogil:
    """The mode that mean shift from x leads to."""
    cdef double shifted
    cdef Py_ssize_t _
    for _ in range(N_SHIFTS):
        density(p, x, &shifted)
        if fabs(shifted - x) <= NEAR * fabs(p[1] - p[0]):
            break
        x = shifted
    return x


cdef double valley_of(const double* p) noexcept nogil:
    """Lowest density of the bells between their two modes, as a share of that at the lower mode; 1 with one mode."""
    cdef double left = mode_from(p, p[0]), right = mode_from(p, p[1]), lower, x1, x2, unused, lowest
    cdef Py_ssize_t _
    if fabs(right - left) <= SAME_MODE * fabs(p[1] - p[0]):
        return 1.0
    lower = min(density(p, left, &unused), density(p, right, &unused))
    # between two modes there is one minimum, so that thirds in which it is not are left out
    for _ in range(N_SECTIONS):
        x1 = left + (right - left) / 3.0
        x2 = right - (right - left) / 3.0
        if density(p, x1, &unused) < density(p, x2, &unused):
            right = x2
        else:
            left = x1
    lowest = density(p, 0.5 * (left + right), &unused)
    return min(lowest / lower, 1.0) if lower > 0.0 else 1.0


def valley(parameters):
    """Lowest density of bells between two modes, as a share of that at the lower mode; 1 with one mode.

    parameters : (..., 5)
    """
    cdef const double[:, ::1] p = np.ascontiguousarray(parameters, dtype=np.float64).reshape(-1, N)
    return np.array([valley_of(&p[i, 0]) for i in range(p.shape[0])]).reshape(parameters.shape[:-1])


# ---- histograms ------------------------------------------------------------------------------------------------------


cdef Py_ssize_t distinct_values(
    const double* v, const double* w, Py_ssize_t n, double tie, double* value, double* reached
) noexcept nogil:
    """How many values differ by more than tie from the one before; these values, and the weight up to each."""
    cdef Py_ssize_t i, m = 0, begin = 0
    cdef double total = 0.0
    for i in range(n):
        total += 1.0 if w == NULL else w[i]
        if i == n - 1 or v[i + 1] - v[i] > tie:
            value[m], reached[m] = 0.5 * (v[begin] + v[i]), total
            begin = i + 1
            m += 1
    return m


cdef inline double between(double x, double x0, double x1, double y0, double y1) noexcept nogil:
    return (y1 - y0) / (x1 - x0) * (x - x0) + y0


def histogram(const double[::1] v, const double[::1] w, Py_ssize_t n_bins, double tail, double same, Py_ssize_t least):
    """Edges of equal bins, and the weight in each; None for fewer than ``least`` distinct values.

    A value stands for the interval up to the middles between it and its neighbors, in which its rows are taken to be
    spread evenly. So values recorded in steps do not leave bins empty, and values that no rows have in between are no
    gap. The bins are between two quantiles, and the outer ones have the weight of all beyond.

    v : IN array (n,), ascending;  w : IN array (n,), positive weights, or None
    tail : share of the weight below the first edge, and above the last;  same : of the range, nearer values are one
    """
    cdef Py_ssize_t n = v.shape[0], m, i, b
    cdef double total, x, before
    if n < least:
        return None, None
    cdef double[::1] value = np.empty(n), reached = np.empty(n), ends = np.empty(n + 1)
    edge_array, count_array = np.empty(n_bins + 1), np.empty(n_bins)
    cdef double[::1] edges = edge_array, counts = count_array
    with nogil:
        m = distinct_values(&v[0], NULL if w is None else &w[0], n, same * (v[n - 1] - v[0]), &value[0], &reached[0])
        if m >= least:
            for i in range(1, m):
                ends[i] = 0.5 * (value[i - 1] + value[i])
            ends[0], ends[m] = 2.0 * value[0] - ends[1], 2.0 * value[m - 1] - ends[m - 1]
            total = reached[m - 1]
            i = 0
            while reached[i] <= tail * total:
                i += 1
            edges[0] = between(tail * total, reached[i - 1] if i else 0.0, reached[i], ends[i], ends[i + 1])
            while i < m - 1 and reached[i] <= (1.0 - tail) * total:
                i += 1
            x = (1.0 - tail) * total
            edges[n_bins] = between(x, reached[i - 1] if i else 0.0, reached[i], ends[i], ends[i + 1])
            before, i = 0.0, 0
            for b in range(1, n_bins):
                edges[b] = edges[0] + b * ((edges[n_bins] - edges[0]) / n_bins)
                while i < m - 1 and ends[i + 1] <= edges[b]:
                    i += 1
                x = between(edges[b], ends[i], ends[i + 1], reached[i - 1] if i else 0.0, reached[i])
                counts[b - 1], before = x - before, x
            counts[n_bins - 1] = total - before
    if m < least:
        return None, None
    return edge_array, count_array
