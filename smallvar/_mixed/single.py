"""Likelihoods of a column of numbers under single distributions of several shapes.

A family such as the Gaussian fits a column badly that is flat, skewed or has many equal values:
cutting it into clusters then raises the likelihood though there are none. So the likelihood of
clusters is compared with that of these distributions of all rows. Each has one mode, and maybe a
point mass: one value with a probability of its own.
"""

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from smallvar._centers.divergence_path import SMALLEST_MEAN, gamma_shape
from smallvar._sweeps.mixed import EXPONENTIAL, NORMAL

POINT_MASS = 0.1  # of the weight: a value with more of it may be a point mass
LONG_TAILS = 4.0  # kurtosis from which on a t law is tried; that of a Gaussian is 3
DEGREES = (2.0, 4.0, 8.0)  # of freedom: likelihoods of those in between are hardly higher
T_ITERATIONS = 20
LEAST_SCALE = 1e-4  # of the variance: with less, the t law is about equal values, not long tails
# -2 log-likelihood of n values under the best Gaussian is n (log s^2 + CONSTANT)
CONSTANT = np.log(2.0 * np.pi) + 1.0


def lowest(kind, x, w, step):
    """The lowest -2 log-likelihood of a column by one distribution, and its extra parameters.

    ``x`` are the values that are not missing, ``w`` their weights, ``step`` the grid of the values
    (0: none). Terms that ``MixedCriterion`` leaves out are left out here, too: those
    that do not depend on the clusters. The parameters are those beyond the one of the family.
    """
    n = float(w.sum())
    if kind == EXPONENTIAL:
        return _lognormal(x, w, n), 0
    if kind != NORMAL:
        return _negative_binomial(x, w, n) - saturated(x, w), 1
    candidates = [(_plain(x, w, n, step), 0)]
    if step == 1.0 and x.min() >= 0.0:
        candidates.append((_negative_binomial(x, w, n), 0))
    candidates.append((_student(x, w, n, step), 1))
    value, index = np.unique(x, return_inverse=True)
    weights = np.bincount(index, w)
    often = int(weights.argmax())
    if step > 0.0 and POINT_MASS * n < weights[often] < n and len(value) > 20:
        # a mixture: the value with probability ``share``, and a distribution of the others. As a
        # density the point mass is share / step, the others (1 - share) times theirs
        rest = x != value[often]
        share = weights[often] / n
        mixture = -2.0 * n * (share * np.log(share) + (1.0 - share) * np.log1p(-share))
        mixture += 2.0 * weights[often] * np.log(step)
        # where all others are on one side, their distances from the value may be skewed amounts
        side = np.sign(x[rest] - value[often])
        others = np.abs(x[rest] - value[often]) if (side == side[0]).all() else x[rest]
        candidates.append((mixture + _plain(others, w[rest], n - weights[often], 0.0), 2))
    value, extra = min(candidates)
    return value - n * CONSTANT, extra


def saturated(x, w):
    """-2 log-likelihood of counts in the saturated model: each is Poisson with itself as mean."""
    return 2.0 * float(w @ (x - x * np.log(np.maximum(x, 1.0)) + gammaln(x + 1.0)))


def _plain(x, w, n, step):
    """The lowest -2 log-likelihood of these laws: Gaussian, uniform; if x > 0, gamma, lognormal."""
    mean = float(w @ x) / n
    variance = float(w @ np.square(x - mean)) / n + step**2 / 12.0  # and that within a step
    width = float(x.max() - x.min()) * (1.0 + 2.0 / len(x)) + step
    if not (variance > 0.0 and width > 0.0):
        return np.inf
    candidates = [n * (np.log(variance) + CONSTANT), 2.0 * n * np.log(width)]
    if x.min() > 0.0:
        # the density of x is that of log x, times the Jacobian 1 / x
        jacobian = 2.0 * float(w @ np.log(x))
        mean_divergence = np.log(mean) - 0.5 * jacobian / n
        a = gamma_shape(max(mean_divergence, SMALLEST_MEAN))
        gamma = a * mean_divergence + a - a * np.log(a) + gammaln(a)
        candidates += [_lognormal(x, w, n) + jacobian, 2.0 * n * gamma + jacobian]
    return min(candidates)


def _student(x, w, n, step):
    """-2 log-likelihood under the best t law of DEGREES; infinite where tails are not long.

    Location and scale are found by expectation maximization with an expanded parameter (Liu, Rubin
    & Wu 1998).
    """
    within = step**2 / 12.0
    mean = float(w @ x) / n
    squares = np.square(x - mean)
    variance = float(w @ squares) / n
    if not variance > 0.0 or float(w @ np.square(squares / variance)) / n < LONG_TAILS:
        return np.inf
    least = np.inf
    for nu in DEGREES:
        place, scale = mean, variance + within
        for _ in range(T_ITERATIONS):
            v = w / (nu + np.square(x - place) / scale)
            total = float(v.sum())
            place = float(v @ x) / total
            scale = float(v @ np.square(x - place)) / total + within
            if scale < LEAST_SCALE * variance:
                return np.inf
        terms = (nu + 1.0) * np.log1p(np.square(x - place) / (nu * scale))
        constant = 2.0 * (gammaln(0.5 * nu) - gammaln(0.5 * nu + 0.5)) + np.log(nu * np.pi * scale)
        least = min(least, float(w @ terms) + n * constant)
    return least


def _lognormal(x, w, n):
    """-2 log-likelihood under the best lognormal law, without the Jacobian: of log x."""
    logs = np.log(x)
    variance = float(w @ np.square(logs - float(w @ logs) / n)) / n
    return n * (np.log(max(variance, SMALLEST_MEAN)) + CONSTANT)


def _negative_binomial(x, w, n):
    """-2 log-likelihood under the best negative binomial law, of variance mean + mean^2 / shape."""
    value, index = np.unique(x, return_inverse=True)
    weights, mean = np.bincount(index, w), float(w @ x) / n

    def cost(log_shape):
        r = np.exp(log_shape)
        terms = gammaln(value + r) - gammaln(r) - gammaln(value + 1.0)
        terms += r * np.log(r / (r + mean)) + value * np.log(mean / (r + mean))
        return -2.0 * float(weights @ terms)

    return float(minimize_scalar(cost, bounds=(-5.0, 15.0), method="bounded").fun)
