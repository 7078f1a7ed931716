"""Yeo-Johnson transforms of one-sided columns."""

from copy import copy
from functools import cached_property

import numpy as np

from smallvar._selection.columns import (
    FEW_VALUES,
    SORTED_NUMBERS,
    distinct_values,
    evenly_spaced_rows,
)

SKEWED_COLUMN = 1.0  # absolute skewness beyond which a column is one-sided
# Powers that are searched. Columns are fitted in units of their standard deviation, in which no
# value of 5,000 is above 100, so that squares of transforms are far within float64.
LEAST_POWER, MOST_POWER = -44.0, 46.0
NARROW = 1e-3  # width of the interval from which a parabola leads to the power
NEAR_ZERO = 1e-100
GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0  # the part of an interval that a golden section leaves


class PowerTransform:
    """Yeo-Johnson transforms of the one-sided columns of X, which keep their standard deviation.

    ``columns`` are the indices of these columns, ``parts`` origin, unit, power and spread of each.
    The origin is the median or the least value of the column, whichever is likelier. They are
    fitted when they are first asked for.
    """

    def __init__(self, X, weight):
        X, weight = evenly_spaced_rows(X, weight)
        self.columns, self._one_sided, step = [], [], max(1, SORTED_NUMBERS // len(X))
        for start in range(0, X.shape[1], step):
            part = X[:, start : start + step]
            low, size = part.min(axis=0), np.ptp(part, axis=0)
            scaled = (part - low) / np.where(size > 0.0, size, 1.0)  # cubes stay within float64
            deviation = scaled.std(axis=0)
            unit, centered = size * deviation, scaled - scaled.mean(axis=0)
            third = np.einsum("ij,ij,ij->j", centered, centered, centered) / len(X)
            # the unit is zero where rows are equal, or differ by subnormal numbers only
            skewed = (unit > 0.0) & (np.abs(third) >= SKEWED_COLUMN * deviation**3)
            one_sided = [
                j
                for j in np.flatnonzero(skewed).tolist()
                if len(distinct_values(part[:, j], weight).value) >= FEW_VALUES
            ]
            if one_sided:
                self.columns += [start + j for j in one_sided]
                self._one_sided.append((part[:, one_sided], low[one_sided], unit[one_sided]))

    @cached_property
    def parts(self):
        """Origin, unit, power and spread of each column."""
        parts = []
        for x, low, unit in self._one_sided:
            fitted = []
            for origin in (np.median(x, axis=0), low):
                likelihood, power, spread = fit_powers((x - origin) / unit)
                fitted.append([likelihood, origin, unit, power, spread])
            median, least = np.array(fitted)
            parts += np.where(median[0] > least[0], median, least)[1:].T.tolist()
        self._one_sided = []  # rows that are no longer needed
        return parts

    def __getstate__(self):
        """What a copy has: the transforms, and not the rows that they are fitted to."""
        return {"columns": self.columns, "parts": self.parts}

    def of(self, kept):
        """The transforms of rows in these columns only."""
        new, parts = copy(self), dict(zip(self.columns, self.parts, strict=True))
        new.columns = [i for i, j in enumerate(kept) if j in parts]
        new.parts = [parts[j] for j in kept if j in parts]
        return new

    def __call__(self, X):
        """Return the transformed rows, and for each row the logarithm of the Jacobian."""
        out = np.array(X, dtype=np.float64)
        log_slope = np.zeros(len(out))
        for j, (origin, unit, power, spread) in zip(self.columns, self.parts, strict=True):
            s = _signed_log((out[:, j] - origin) / unit)
            out[:, j] = unit / spread * _transformed(s, power)
            log_slope += (power - 1.0) * s - np.log(spread)
        return out, log_slope


def fit_powers(z):
    """The likeliest power of each column, by the Gaussian likelihood of its transform.

    Returns, for each column, the log-likelihood, the power, and the standard deviation of the
    transformed z. The likelihood is log-concave in the power (Marchand et al. 2022, SecureFedYJ:
    secure feature Gaussianization), so that golden sections lead to its maximum.
    """
    s = _signed_log(z)
    total = s.sum(axis=0)

    def cost(power):
        y = _transformed(s, power)
        y -= y.mean(axis=0)
        variance = np.einsum("ij,ij->j", y, y) / len(y)
        return 0.5 * len(y) * np.log(variance) - (power - 1.0) * total

    a, b = np.full(len(total), LEAST_POWER), np.full(len(total), MOST_POWER)
    c, d = b - GOLDEN * (b - a), a + GOLDEN * (b - a)
    at_c, at_d = cost(c), cost(d)
    while b[0] - a[0] > NARROW:  # the intervals of all columns are equally wide
        left = at_c < at_d
        a, b = np.where(left, a, c), np.where(left, d, b)
        new = np.where(left, b - GOLDEN * (b - a), a + GOLDEN * (b - a))
        at_new = cost(new)
        c, d = np.where(left, new, d), np.where(left, c, new)
        at_c, at_d = np.where(left, at_new, at_d), np.where(left, at_c, at_new)
    power = 0.5 * (a + b)
    low, middle, high = (cost(power + move) for move in (-NARROW, 0.0, NARROW))
    bend = np.maximum(high - 2.0 * middle + low, np.finfo(float).eps)  # 0 by rounding at the ends
    power -= NARROW * np.clip(0.5 * (high - low) / bend, -1.0, 1.0)
    return -cost(power), power, _transformed(s, power).std(axis=0)


def _signed_log(z):
    """log(1 + z), and -log(1 - z) for z < 0; not quite zero, as transforms divide by multiples."""
    s = np.copysign(np.log1p(np.abs(z)), z)
    s[np.abs(s) < NEAR_ZERO] = NEAR_ZERO
    return s


def _transformed(s, power):
    """The transform, with s that of ``_signed_log``: the derivative is exp((power - 1) s).

    It is s (exp(x) - 1) / x with x = power s for s > 0, and x = (power - 2) s for s < 0.
    """
    x = np.abs(s) + (power - 1.0) * s
    return s * (np.expm1(x) / x)
