"""How well one distribution describes a column of numbers, whatever its shape.

A cluster of one shape fits a column that is flat, skewed or has many equal values badly, and
cutting it into pieces would seem to say something. So a column is also compared with these
distributions of all rows together, none of which has more than one hump besides a value of its own.
"""

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from smallvar._mixed.measure import SMALLEST_MEAN, gamma_shape
from smallvar._sweeps.mixed import EXPONENTIAL, NORMAL

OFTEN = 0.1  # of the rows: a value that so many have may be one of its own
CONSTANT = np.log(2.0 * np.pi) + 1.0  # that of a Gaussian at its best, -2 log f = n (log s^2 + it)


def lowest(kind, x, w, step):
    """The lowest -2 log-likelihood of a column by one distribution, and its further parameters.

    Less the terms that the criterion leaves out. ``x`` and ``w``: the values that are there, and
    their weights; ``step``: the grid of the values, to which a value of its own is known.
    """
    n = float(w.sum())
    if kind == EXPONENTIAL:
        return _lognormal(x, w, n), 0
    if kind != NORMAL:
        return _negative_binomial(x, w, n) - saturated(x, w), 1
    found = [(_plain(x, w, n, step), 0)]
    if step == 1.0 and x.min() >= 0.0:
        found.append((_negative_binomial(x, w, n), 0))
    value, place = np.unique(x, return_inverse=True)
    mass = np.bincount(place, w)
    often = int(mass.argmax())
    if step > 0.0 and OFTEN * n < mass[often] < n and len(value) > 20:
        rest = x != value[often]
        share = mass[often] / n
        both = -2.0 * n * (share * np.log(share) + (1.0 - share) * np.log1p(-share))
        both += 2.0 * mass[often] * np.log(step)
        side = np.sign(x[rest] - value[often])
        apart = np.abs(x[rest] - value[often]) if (side == side[0]).all() else x[rest]
        found.append((both + _plain(apart, w[rest], n - mass[often], 0.0), 2))
    value, more = min(found)
    return value - n * CONSTANT, more


def saturated(x, w):
    """-2 log-likelihood of counts by Poisson laws of which each has its count for a mean."""
    return 2.0 * float(w @ (x - x * np.log(np.maximum(x, 1.0)) + gammaln(x + 1.0)))


def _plain(x, w, n, step):
    """The lowest of a Gaussian, a box and, of positive values, a gamma and a lognormal law."""
    mean = float(w @ x) / n
    variance = float(w @ np.square(x - mean)) / n + step**2 / 12.0
    width = float(x.max() - x.min()) * (1.0 + 2.0 / len(x)) + step
    if not (variance > 0.0 and width > 0.0):
        return np.inf
    found = [n * (np.log(variance) + CONSTANT), 2.0 * n * np.log(width)]
    if x.min() > 0.0:
        jacobian = 2.0 * float(w @ np.log(x))
        a = gamma_shape(max(np.log(mean) - 0.5 * jacobian / n, SMALLEST_MEAN))
        gamma = a * (np.log(mean) - 0.5 * jacobian / n) + a - a * np.log(a) + gammaln(a)
        found += [_lognormal(x, w, n) + jacobian, 2.0 * n * gamma + jacobian]
    return min(found)


def _lognormal(x, w, n):
    """But for the Jacobian."""
    logs = np.log(x)
    variance = float(w @ np.square(logs - float(w @ logs) / n)) / n
    return n * (np.log(max(variance, SMALLEST_MEAN)) + CONSTANT)


def _negative_binomial(x, w, n):
    """Of counts, whose variance may be above their mean."""
    value, place = np.unique(x, return_inverse=True)
    mass, mean = np.bincount(place, w), float(w @ x) / n

    def cost(log_shape):
        r = np.exp(log_shape)
        terms = gammaln(value + r) - gammaln(r) - gammaln(value + 1.0)
        terms += r * np.log(r / (r + mean)) + value * np.log(mean / (r + mean))
        return -2.0 * float(mass @ terms)

    return float(minimize_scalar(cost, bounds=(-5.0, 15.0), method="bounded").fun)
