"""Merge paths by a Bregman divergence."""

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, gammaln

from smallvar._centers.divergence import DivergenceSweep, Masses, Reference, nearest_centers
from smallvar._selection.descent import Descent
from smallvar._sweeps.sums import SMALLEST_POSITIVE

# the gamma law: mean divergences that a shape is fitted to, and the least shape; absolute
SMALLEST_MEAN, LARGEST_MEAN, SMALLEST_SHAPE = 1e-12, 1e5, 1e-6


class _DivergenceMergeSweep(DivergenceSweep):
    """The sweep of a merge path for a divergence, with the methods of ``MergeSweep``."""

    remap = None

    @property
    def weights(self):
        """Weights of the clusters."""
        return self.mass

    def seed(self, rows):
        """Centers near these rows, moved a little toward the mean: no component is on a border."""
        seeds = np.asarray(self.X[rows], dtype=np.float64)
        self.set_centers(np.vstack([self.centers, seeds + 0.05 * (self.about.m0 - seeds)]))
        self.assign()

    def start(self, centers):
        """Begin at these centers."""
        super().start(centers + 0.05 * (self.about.m0 - centers) if len(centers) == 1 else centers)

    def settle(self, most):
        """Sweeps until no row moves or clusters are dropped; see ``MergeSweep``."""
        for n_sweeps in range(1, most + 1):
            before, centers = self.k, self.centers
            self.assign()
            if self.moved() == 0:
                return n_sweeps, None
            self.move_centers()
            if self.k < before:
                return n_sweeps, centers
        return most, None

    def _keep(self, centers, kept):
        self.remap = np.where(kept, np.cumsum(kept) - 1, -1)
        super()._keep(centers, kept)

    def merge(self, count):
        """Merge the cheapest pair, ``count`` times over; pairs as numbered before, and costs.

        A merger costs w_a D(mu_a, m) + w_b D(mu_b, m), m the joint mean: the information lost.
        """
        k = self.k
        mean, mass, target = self.centers.copy(), self.mass.copy(), np.arange(k)
        table = np.full((k, k), np.inf)
        for a in range(k - 1):
            table[a, a + 1 :] = self._lost(mean, mass, a, slice(a + 1, k))
        pairs, costs = np.empty((count, 2), dtype=np.intp), np.empty(count)
        for m in range(count):
            a, b = np.unravel_index(table.argmin(), table.shape)
            pairs[m], costs[m] = (a, b), table[a, b]
            self.sums.unite(a, b)
            mean[a], mass[a] = self.sums.center(a)
            target[target == b] = a
            table[b], table[:, b] = np.inf, np.inf
            kept = np.flatnonzero(target == np.arange(k))
            lost = self._lost(mean, mass, a, kept)
            table[a, kept[kept > a]] = lost[kept > a]
            table[kept[kept < a], a] = lost[kept < a]
        kept = np.flatnonzero(target == np.arange(k))
        number = np.cumsum(target == np.arange(k)) - 1
        self._renumber(number[target].astype(np.int32))
        self.sums.keep(kept)
        self.set_centers(mean[kept])
        self.move_centers()
        return pairs, costs

    def _lost(self, mean, mass, a, others):
        w = mass[others, None]
        joint = mean[a] + w / (mass[a] + w) * (mean[others] - mean[a])
        # 0 only if both are, or the divergence would be infinite
        joint[(joint == 0.0) & (mean[a] != mean[others])] = SMALLEST_POSITIVE
        between = self.rule.between
        return mass[a] * between(mean[a], joint) + mass[others] * between(mean[others], joint)


class _FamilyCriterion:
    """The criterion of a merge path for a divergence: the exact likelihood of its family.

    V = (u / n) 2 sum_i w_i D(x_i, mu_{z_i}) - 2 u sum_k p_k log p_k + 2 log(u) (K (d + 1) - 1),

    n the sum of weights, u the number of rows, terms that do not depend on the clusters left out;
    for "itakura_saito" the shape of the gamma law is one more parameter, fitted. Equal rows count
    each on their own, since bits and counts repeat; all weights times a constant are the same.
    """

    def __init__(self, rule, X, weight):
        self.gamma, self.d = rule.has_shape, X.shape[1]
        self.n = float(len(X) if weight is None else weight.sum())
        self.distinct, self.cap = len(X), len(X) // 3
        self.tie = 2.0 * np.log(self.distinct)

    def __call__(self, sweep):
        n, d, u, K = self.n, self.d, self.distinct, sweep.k
        p = sweep.weights / n
        error = sweep.squared_error()
        loss = error / n
        if self.gamma:
            # -log f = a D + a - a log a + log Gamma(a) + log x; the mean of D is log a - psi(a)
            mean = min(max(loss / d, SMALLEST_MEAN), LARGEST_MEAN)
            low, high = SMALLEST_SHAPE, 1.0 / mean + 1.0
            a = brentq(lambda a: np.log(a) - digamma(a) - mean, low, high)
            loss = a * loss + d * (a - a * np.log(a) + gammaln(a))
        V = u * 2.0 * (loss - float(p @ np.log(p)))
        return V + 2.0 * np.log(u) * (K * (d + 1) - 1 + self.gamma), None, error


class Family:
    """What a merge path needs to know of a divergence."""

    def __init__(self, rule):
        self.rule = rule

    def __call__(self, X, weight, n_threads, unit):
        mass = Masses(X, weight, n_threads)
        about = Reference(self.rule, X, mass.mean, mass)
        sweep = _DivergenceMergeSweep(self.rule, X, weight, None, about, n_threads)
        return _FamilyCriterion(self.rule, X, weight), Descent(X, weight, sweep)

    def labels(self, X, centers):
        """Labels of the nearest centers."""
        return nearest_centers(self.rule, X, centers)
