"""Merge paths by a Bregman divergence.

Pairs of clusters are merged by the information lost (Banerjee et al. 2005), and the number of
clusters is chosen by the likelihood of the divergence's exponential family. ``Family`` gives
``find_path`` both: the criterion, and the sweep that merges.
"""

from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, gammaln, xlogy

from smallvar._centers.divergence import DivergenceSweep, Reference, SumsFrame, nearest_by
from smallvar._selection.columns import recorded
from smallvar._selection.cost_boundaries import TINY, CostBoundaries
from smallvar._selection.descent import MergeDescent
from smallvar._sweeps.divergences import DivergencePairs, summands

# absolute bounds for the gamma law: of the mean divergence to which its shape is fitted, and of the
# shape
SMALLEST_MEAN, LARGEST_MEAN, SMALLEST_SHAPE = 1e-12, 1e5, 1e-6
# of the variance of independent columns: that of the sums of rows if they are constant but for
# rounding, so that one column follows from the others
CONSTANT_SUM = 1e-3
# means of counts below which the mean deviance counts as zero, and beyond which it is 1 to 1/200
SMALL_COUNT, LARGE_COUNT = 1e-8, 64.0
# of the way from a seed of the path to the mean: on the border of the domain it would be infinitely
# far from rows inside
SEEDED_OFF_BORDER = 0.05


def gamma_shape(mean):
    """The shape a of a gamma law by likelihood, for a mean divergence: log a - psi(a) = mean."""
    mean = min(max(mean, SMALLEST_MEAN), LARGEST_MEAN)
    return brentq(lambda a: np.log(a) - digamma(a) - mean, SMALLEST_SHAPE, 1.0 / mean + 1.0)


@cache
def _deviance_table():
    """Logarithms of means up to LARGE_COUNT, and the mean of 2 D for Poisson counts of each."""
    means = np.geomspace(SMALL_COUNT, LARGE_COUNT, 512)[:, None]
    counts = np.arange(4.0 * LARGE_COUNT)
    probability = np.exp(xlogy(counts, means) - means - gammaln(counts + 1.0))
    deviance = 2.0 * (xlogy(counts, counts / means) - counts + means)
    return np.log(means[:, 0]), (probability * deviance).sum(axis=1)


def poisson_deviance(means):
    """The mean of 2 D(x, mean) for Poisson counts x: near 1 for large means, 0 for the mean 0."""
    logarithms, deviances = _deviance_table()
    return np.interp(np.log(np.maximum(means, SMALL_COUNT)), logarithms, deviances, right=1.0)


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
        target = np.arange(self.k)
        mean, weights = self.centers.copy(), np.array(self.weights)
        clusters = DivergencePairs(self.rule.kind, mean, weights, self.sums, self.n_threads)
        pairs, costs = clusters.merge(count)
        for a, b in pairs.tolist():
            target[target == b] = a
        kept = np.flatnonzero(target == np.arange(self.k))
        number = np.cumsum(target == np.arange(self.k)) - 1
        self._renumber(number[target].astype(np.int32))
        self.sums.keep(kept)
        self.set_centers(mean[kept])
        self.move_centers()
        return pairs, costs


class _FamilyCriterion:
    """The criterion of a merge path for a divergence: the likelihood of its family.

    V = (u / n) 2 sum_i w_i D(x_i, mu_{z_i}) - 2 u sum_k p_k log p_k + 2 log(u) (K (d + 1) - 1),

    with n the sum of weights and u the number of rows, but for terms that do not depend on the
    clusters. For "itakura_saito" the shape of the gamma law is fitted, one more parameter. Equal
    rows count separately, since bits and counts repeat by chance, but equal rows of fractions do
    not. All weights times a constant give the same value.

    A fraction or an amount stands for an unknown number of counts, and counts may vary more than
    those of the family. So 2 D is divided by a dispersion phi, as in the quasi-likelihood of Nelder
    & Pregibon (1987), in which a row has the density phi^(-d/2) exp(-D / phi) times a constant: the
    likeliest phi is the mean of 2 D / d, which takes one more parameter. For counts, d is the mean
    of 2 D for a Poisson law, about 1 for each column where counts are not small, and phi is 1
    without that parameter where this gives the lower V. Bits can have no other dispersion.
    """

    def __init__(self, rule, X, weight, sweep):
        self.rule, self.d, self.weight, self.sweep = rule, X.shape[1], weight, sweep
        self.n = float(len(X) if weight is None else weight.sum())
        self.distinct, self.cap = len(X), len(X) // 3
        self.whole = not rule.has_shape and not (X % 1.0).any()
        self.floor = 0.0
        if not rule.has_shape and not self.whole:
            self._read_fractions(X, weight)
        self.tie = self.price = 2.0 * np.log(self.distinct)
        self.price_of_cluster = self.price * (self.d + 1)

    def _read_fractions(self, X, weight):
        """Set the numbers of distinct rows and of directions, and the least mean of 2 D.

        That of values recorded in steps, whose variance is at least that within a step.
        """
        X = X.astype(np.float64, copy=False)
        mean = np.average(X, axis=0, weights=weight)
        from_mean = X - mean
        variance = np.average(np.square(from_mean), axis=0, weights=weight)
        sum_variance = np.average(np.square(from_mean.sum(axis=1)), weights=weight)
        if sum_variance < CONSTANT_SUM * variance.sum():
            self.d -= 1
        varying = variance > 0.0  # not where it underflows
        if not varying.any():
            return
        columns = recorded(X[:, varying], weight)
        self.floor = float((columns.variance / self.rule.variance(mean[varying])).sum())
        if not columns.in_steps.all():  # else equal rows are to be expected
            self.distinct, self.cap = columns.n_different, columns.n_different // 3

    def _deviance(self, loss, p, centers):
        """Minus twice the log-likelihood of a row, on average, and the phi by which 2 D is divided.

        The first has its share of the price of phi. ``loss`` is the mean of D, ``p`` are the shares
        of the clusters.
        """
        d, price = self.d, self.price / self.distinct
        if self.rule.has_shape:
            # -log f = a D + a - a log a + log Gamma(a) + log x; the mean of D is log a - psi(a)
            a = gamma_shape(loss / d)
            return 2.0 * (a * loss + d * (a - a * np.log(a) + gammaln(a))) + price, 1.0 / a
        if not self.whole:
            phi = max((2.0 * loss + self.floor) / d, SMALLEST_MEAN)
            return d * (1.0 + np.log(phi)) + price, phi
        if self.rule.high > 1.0:
            # counts have a dispersion of their own where this shortens the description
            d = float(p @ poisson_deviance(centers).sum(axis=1))
            if 2.0 * loss > d:
                wide = d * (1.0 + np.log(2.0 * loss / d)) + price
                if wide < 2.0 * loss:
                    return wide, 2.0 * loss / d
        return 2.0 * loss, 1.0

    def relabeled(self, labels, n_clusters):
        """The sweep at the means of these labels, none of 0..n_clusters-1 missing."""
        sweep = self.sweep
        sweep.sums = None
        sweep.start(np.repeat(sweep.reference.m0[None], n_clusters, axis=0))
        sweep.labels[:] = labels
        sweep.move_centers()
        return sweep

    def dispersion(self, loss, p, centers):
        """The phi by which 2 D is divided, for ``loss`` and ``p`` as in ``_deviance``."""
        return self._deviance(loss, p, centers)[1]

    def __call__(self, sweep):
        u, K = self.distinct, sweep.k
        p = sweep.weights / self.n
        error = sweep.squared_error()
        deviance, _ = self._deviance(error / self.n, p, sweep.centers)
        # minus twice the log-likelihood of rows and labels
        V = u * (deviance - 2.0 * float(p @ np.log(p)))
        return V + self.price * (K * (self.d + 1) - 1), None, error


class DivergenceBoundaries(CostBoundaries):
    """The boundaries between clusters of a path by a divergence, by rows of its sample."""

    def __init__(self, rule, path, sample):
        X, weight = sample.descent.X, sample.descent.weight
        super().__init__(len(X), weight)
        self.rule, self.path, self.X = rule, path, X[self.some].astype(np.float64)
        self.mean, ranges = np.average(self.X, axis=0, weights=self.weight), np.ptp(self.X, axis=0)
        self.step = np.sqrt(12.0 * recorded(self.X, self.weight).variance) / np.maximum(
            ranges, TINY
        )

    def support_at(self, k, least=0.0):
        """The support of k clusters of the path."""
        return self.support(self.path.found(k)[:, self.path.varying], least)

    def costs(self, centers):
        """What each row costs at each center."""
        return np.column_stack([self.rule.between(self.X, center) for center in centers])

    def means(self, used, labels, k):
        """Means of the rows in a mask and one more, the mean of all: no center is on the border."""
        members = (labels == np.arange(k)[:, None]) * (self.weight * used)
        return (members @ self.X + self.mean) / (members.sum(axis=1, keepdims=True) + 1.0)

    def cell_costs(self, rows, centers):
        """What each cell of some rows costs, at a center for each."""
        return summands(self.rule.kind, self.X[rows], centers)


class Family:
    """The divergence of a merge path: called, it returns the criterion and the descent."""

    def __init__(self, rule):
        self.rule = rule
        # clusters that differ in scale all begin near 0: they have no gaps, but are no one body
        self.may_be_one = not rule.has_shape

    def __call__(self, X, weight, n_threads):
        frame = SumsFrame(X, weight, n_threads)
        reference = Reference(self.rule, X, frame.mean, frame)
        sweep = _DivergenceMergeSweep(self.rule, X, weight, None, reference, n_threads)
        return _FamilyCriterion(self.rule, X, weight, sweep), MergeDescent(frame, sweep)

    def boundaries(self, path, sample):
        """The boundaries between the clusters of a path."""
        return DivergenceBoundaries(self.rule, path, sample)

    def labels(self, X, centers):
        """Labels of the nearest centers."""
        return nearest_by(self.rule, X, None, centers).labels
