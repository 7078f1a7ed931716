"""Merge paths by a Bregman divergence.

Pairs of clusters are merged by the information lost (Banerjee et al. 2005), and the number of
clusters is chosen by the likelihood of the divergence's exponential family. ``Family`` gives
``find_path`` both: the criterion, and the sweep that merges.
"""

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, gammaln

from smallvar._centers.divergence import DivergenceSweep, Reference, SumsFrame, nearest_centers
from smallvar._selection.descent import MergeDescent
from smallvar._sweeps.rows import UNSOUND
from smallvar._sweeps.sums import SMALLEST_POSITIVE

# absolute bounds for the gamma law: of the mean divergence to which its shape is fitted, and of the
# shape
SMALLEST_MEAN, LARGEST_MEAN, SMALLEST_SHAPE = 1e-12, 1e5, 1e-6
# of the way from a seed of the path to the mean: on the border of the domain it would be infinitely
# far from rows inside
SEEDED_OFF_BORDER = 0.05


def gamma_shape(mean):
    """The shape a of a gamma law by likelihood, for a mean divergence: log a - psi(a) = mean."""
    mean = min(max(mean, SMALLEST_MEAN), LARGEST_MEAN)
    return brentq(lambda a: np.log(a) - digamma(a) - mean, SMALLEST_SHAPE, 1.0 / mean + 1.0)


class _DivergenceMergeSweep(DivergenceSweep):
    """The sweep of a merge path for a divergence, with the methods of ``MergeSweep``."""

    remap = None  # new number of each cluster after some were dropped, -1 for those

    def seed(self, rows):
        """Append centers at these rows, moved off the border of the domain toward the mean."""
        seeds = np.asarray(self.X[rows], dtype=np.float64)
        self.set_centers(
            np.vstack([self.centers, seeds + SEEDED_OFF_BORDER * (self.reference.m0 - seeds)])
        )
        self.assign()

    def start(self, centers):
        """Begin at these centers; a single one is moved off the border of the domain."""
        if len(centers) == 1:
            centers = centers + SEEDED_OFF_BORDER * (self.reference.m0 - centers)
        super().start(centers)

    def _keep(self, centers, kept):
        """Set the centers without dropped clusters, and ``remap``, which the merge path reads."""
        self.remap = np.where(kept, np.cumsum(kept) - 1, -1)
        super()._keep(centers, kept)

    def merge(self, count):
        """Merge the cheapest pair ``count`` times; returns the pairs (a, b), a < b, and the costs.

        A merger costs w_a D(mu_a, m) + w_b D(mu_b, m), m the joint mean: the information lost.
        Pairs are in the numbers of the clusters before; the union keeps the number a.
        """
        k = self.k
        mean, weights, target = self.centers.copy(), self.weights.copy(), np.arange(k)
        table = np.full((k, k), np.inf)
        for a in range(k - 1):
            table[a, a + 1 :] = self._merge_costs(mean, weights, a, slice(a + 1, k))
        pairs, costs = np.empty((count, 2), dtype=np.intp), np.empty(count)
        for m in range(count):
            # the cheapest pair, a < b; at a tie the first
            a, b = np.unravel_index(table.argmin(), table.shape)
            if not table[a, b] < np.inf:
                raise ValueError(UNSOUND)
            pairs[m], costs[m] = (a, b), table[a, b]
            self.sums.unite(a, b)
            mean[a], weights[a] = self.sums.center(a)
            target[target == b] = a
            table[b], table[:, b] = np.inf, np.inf
            # only costs of pairs with the union change
            kept = np.flatnonzero(target == np.arange(k))
            cost = self._merge_costs(mean, weights, a, kept)
            table[a, kept[kept > a]] = cost[kept > a]
            table[kept[kept < a], a] = cost[kept < a]
        kept = np.flatnonzero(target == np.arange(k))
        number = np.cumsum(target == np.arange(k)) - 1
        self._renumber(number[target].astype(np.int32))
        self.sums.keep(kept)
        self.set_centers(mean[kept])
        self.move_centers()
        return pairs, costs

    def _merge_costs(self, mean, weights, a, candidates):
        """Costs of merging cluster a with each of the others."""
        w = weights[candidates, None]
        joint = mean[a] + w / (weights[a] + w) * (mean[candidates] - mean[a])
        # a joint mean is 0 only if both means are; if it underflows, the divergence is infinite
        joint[(joint == 0.0) & (mean[a] != mean[candidates])] = SMALLEST_POSITIVE
        between = self.rule.between
        lost = weights[a] * between(mean[a], joint)
        return lost + weights[candidates] * between(mean[candidates], joint)


class _FamilyCriterion:
    """The criterion of a merge path for a divergence: the exact likelihood of its family.

    V = (u / n) 2 sum_i w_i D(x_i, mu_{z_i}) - 2 u sum_k p_k log p_k + 2 log(u) (K (d + 1) - 1),

    with n the sum of weights and u the number of rows, but for terms that do not depend on the
    clusters. For "itakura_saito" the shape of the gamma law is fitted, one more parameter. Equal
    rows count separately, since bits and counts repeat by chance. All weights times a constant
    give the same value.
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
            a = gamma_shape(loss / d)
            loss = a * loss + d * (a - a * np.log(a) + gammaln(a))
        # minus twice the log-likelihood of rows and labels
        V = u * 2.0 * (loss - float(p @ np.log(p)))
        return V + 2.0 * np.log(u) * (K * (d + 1) - 1 + self.gamma), None, error


class Family:
    """The divergence of a merge path: called, it returns the criterion and the descent."""

    def __init__(self, rule):
        self.rule = rule

    def __call__(self, X, weight, n_threads):
        frame = SumsFrame(X, weight, n_threads)
        reference = Reference(self.rule, X, frame.mean, frame)
        sweep = _DivergenceMergeSweep(self.rule, X, weight, None, reference, n_threads)
        return _FamilyCriterion(self.rule, X, weight), MergeDescent(frame, sweep)

    def labels(self, X, centers):
        """Labels of the nearest centers."""
        return nearest_centers(self.rule, X, centers)
