"""The Bregman divergences: domain, tangent of F, and what to do on the border of the domain.

How to add one is said in docs/recipes.rst; the sweeps with them are in divergence.py.
"""

import numpy as np

from smallvar._sweeps.divergences import (
    ITAKURA_SAITO,
    KULLBACK_LEIBLER,
    LOGISTIC,
    OFF_BORDER,
    OPENED_OFF_BORDER,
    divergences,
    summands,
)

SMALLEST_QUOTIENT = 1e-300  # absolute: for smaller a / b, log(a) - log(b) is more accurate
# absolute: least distance of the reference of "logistic" from 0 and 1, for its logarithms
BORDER = 1e-6


def _log_quotient(a, b, delta):
    """log(a / b) of positive numbers, delta = a - b, to full precision even if a / b overflows."""
    quotient = a / b
    within = (quotient > SMALLEST_QUOTIENT) & (quotient < np.inf)
    value = np.where(within, np.log(quotient), np.log(a) - np.log(b))
    return np.where(np.abs(delta) <= 0.5 * b, np.log1p(delta / b), value)


class _Divergence:
    """D(x, mu) = F(x) - F(mu) - F'(mu).(x - mu), a sum over columns, on a domain low..high.

    ``kind`` is its number in divergences.pyx. ``tangent(mu, m0)`` returns F'(mu) - F'(m0) and the
    summands of D(m0, mu), for points inside the domain. Where a component of mu is on the border of
    the domain, the divergence of an x that is not there is infinite: a wall. ``size`` stands for
    the squared length of a row: means are good to MEAN_ROUNDING of its root. ``has_shape``: the
    exponential family has a shape, one more parameter.
    """

    low, high, low_is_in, has_shape = 0.0, np.inf, True, False

    def inside(self, mean):
        """A point inside the domain, not on its border, near the mean."""
        return mean

    def walls(self, centers):
        """Components of centers on the border: 1 at 0, 2 at 1 (uint8); None if there are none."""
        walls = (centers == 0) + 2 * (centers == self.high).view(np.uint8)
        return walls if self.low_is_in and walls.any() else None

    def off_border(self, centers, m0):
        """Centers whose components on the border are moved a part of the way to the mean m0.

        Not where all rows are on the border.
        """
        walls = self.walls(centers)
        walled = False if walls is None else (walls > 0) & (self.inside(centers) != m0)
        return np.where(walled, centers + OPENED_OFF_BORDER * (m0 - centers), centers)

    def scores(self, centers, m0):
        """Slopes g and offsets b of D(x, mu) = D(x, m0) + b - g . (x - m0).

        At a wall, the equation holds for the x on the wall; for others D is infinite.
        """
        inner, walls = centers, self.walls(centers)
        if walls is not None:
            lower, upper = m0 * OFF_BORDER, 1.0 - (1.0 - m0) * OFF_BORDER
            inner = np.where(walls == 1, lower, np.where(walls == 2, upper, centers))
        with np.errstate(all="ignore"):  # beyond float64 where centers are far below the data
            slope, offset = self.tangent(inner, m0)
            if walls is not None:
                # the equation at x = mu, where D = 0
                on_wall = slope * (centers - m0) - summands(self.kind, centers, m0)
                offset = np.where(walls > 0, on_wall, offset)
            return slope, offset.sum(axis=1)

    def size(self, X, m0):
        """The ``size`` of each row (see the class)."""
        return np.full(X.shape[0], float(X.shape[1]))

    def between(self, X, centers):
        """D(X, centers), broadcast over all axes but the last; columns are added in order."""
        return divergences(self.kind, X, centers)

    def check(self, X, name, divergence):
        """Raise if values are outside the domain; ``name`` is what the message calls X."""
        least, largest = float(X.min()), float(X.max())
        if least < self.low or (least == self.low and not self.low_is_in):
            sign = ">=" if self.low_is_in else ">"
            raise ValueError(
                f"{'Negative values in data: ' if least < 0 and name == 'X' else ''}{name} must be "
                f"{sign} {self.low:g} for divergence={divergence!r}, got {least!r}"
            )
        if largest > self.high:
            raise ValueError(
                f"{name} must be <= {self.high:g} for divergence={divergence!r}, got {largest!r}"
            )


class _KullbackLeibler(_Divergence):
    kind, name = KULLBACK_LEIBLER, "kl"

    def density_variance(self, X, inside):
        """The variance V(x) of the saddlepoint density."""
        return X + inside

    def variance(self, mean):
        return mean

    def tangent(self, mu, m0):
        # m0 is 0 only in a column that is 0 in all data, where any slope is right
        delta = mu - m0
        slope = np.where(m0 > 0, _log_quotient(mu, m0, delta), 0.0)
        return slope, delta - m0 * slope

    def size(self, X, m0):
        return X.sum(axis=1, dtype=np.float64) + m0.sum()


class _ItakuraSaito(_Divergence):
    kind, name, low_is_in, has_shape = ITAKURA_SAITO, "itakura_saito", False, True

    def density_variance(self, X, inside):
        """The variance V(x) of the saddlepoint density."""
        return np.square(X)

    def tangent(self, mu, m0):
        delta = mu - m0
        return delta / m0 / mu, _log_quotient(mu, m0, delta) - delta / mu


class _Logistic(_Divergence):
    kind, name, high = LOGISTIC, "logistic", 1.0

    def density_variance(self, X, inside):
        """The variance V(x) of the saddlepoint density."""
        return (X + inside) * (1.0 - X + inside)

    def variance(self, mean):
        return mean * (1.0 - mean)

    def inside(self, mean):
        return np.clip(mean, BORDER, 1.0 - BORDER)

    def tangent(self, mu, m0):
        log_mu = _log_quotient(mu, m0, mu - m0)
        log_rest = _log_quotient(1.0 - mu, 1.0 - m0, m0 - mu)
        return log_mu - log_rest, -m0 * log_mu - (1.0 - m0) * log_rest


DIVERGENCES = {rule.name: rule for rule in (_KullbackLeibler(), _ItakuraSaito(), _Logistic())}
