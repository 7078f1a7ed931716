"""Noise that is spread evenly over a box in which clusters are.

A merge path makes many small, wide clusters of such noise. Which of the clusters they are follows
from a likelihood of rows and labels; where noise begins, from the densities of both.
"""

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaincinv, gammaln, logsumexp

from smallvar._centers.noise import MIDDLE, UPPER, medians_of
from smallvar._selection.columns import recorded, spaced

ROUNDS = 4  # of finding the rows of noise and the density of the noise, each from the other
MOST_NOISE = 0.5  # of the weight: if more is noise, it is not noise that differs from the others


class UniformNoise:
    """Noise of even density over a box, as learned from the clusterings of merge paths.

    ``found``: whether there is any. ``log_density`` is the logarithm of its weight per volume, in
    units in which the rows of a path weigh as much as there are distinct ones: ``unit`` times their
    own weight.
    """

    def __init__(self):
        self.low, self.high = np.inf, -np.inf
        self.found, self.log_density, self.unit = False, -np.inf, 1.0

    def find(self, rows, distance, labels, k, weight, distinct, large, others, share):
        """Which clusters are noise, and which rows; none if all are better in clusters.

        ``distance`` and ``labels`` are the squared distances of rows, of which so many are
        ``distinct``, from their centers, and their clusters (< k), of which some are ``large``:
        noise must have some of these, as small ones may be a few outliers. ``others`` are the rows
        set aside before, and their weights, of which this ``share`` counts: if the rows are a
        sample.
        """
        nothing = np.zeros(k, dtype=bool), np.zeros(len(rows), dtype=bool)
        medians = medians_of(distance, labels, k, weight)
        # rows in small clusters may be far away, and so may many equal ones
        inner = rows[(large & (medians > 0.0))[labels]]
        if k == 1 or not len(inner):
            return nothing
        low, high = inner.min(axis=0), inner.max(axis=0)
        if self.found:
            low, high = np.minimum(low, self.low), np.maximum(high, self.high)
        varying = high > low
        if not varying.any():
            return nothing
        self.low, self.high = low, high
        w = np.ones(len(rows)) if weight is None else weight
        self.unit = distinct / w.sum()
        w = self.unit * w
        outside = self.unit * share * self._weight_inside(*others)
        d = self.d = np.count_nonzero(varying)
        # a column recorded in steps varies by one step at least, as in the criterion of a path
        floor = np.where(varying, recorded(rows, weight).variance, 0.0)
        self.log_volume = float(np.log((high - low + np.sqrt(12.0 * floor))[varying]).sum())
        # variances of round Gaussian clusters, from the medians of their squared distances
        variances = medians / (2.0 * gammaincinv(d / 2, MIDDLE)) + floor.sum() / d
        variances = np.maximum(variances, variances.min(where=variances > 0.0, initial=np.inf))
        with np.errstate(divide="ignore"):
            peaks = np.log(np.bincount(labels, w, k)) - d / 2 * np.log(2.0 * np.pi * variances)
        log_density = peaks[labels] - distance / (2.0 * variances[labels])
        dense, level = self._cut(peaks, log_density, labels, w, outside)
        # of a cluster, noise must not be denser within the UPPER quantile of distances
        dense &= peaks - level >= gammaincinv(d / 2, UPPER)
        noise = ~dense[labels] | (log_density < level)
        too_much = outside + w[noise].sum() > MOST_NOISE * (outside + w.sum())
        if too_much or not (large & dense).any() or not (self.found or (large & ~dense).any()):
            return nothing
        self.found, self.log_density = True, level
        return ~dense, noise

    def _weight_inside(self, rows, weight):
        """The weight of the rows that are in the box."""
        inside = ((rows >= self.low) & (rows <= self.high)).all(axis=1)
        return float(inside.sum() if weight is None else weight[inside].sum())

    def _cut(self, peaks, log_density, labels, w, outside):
        """Which clusters are dense by the likelihood, and the log density of the noise.

        The sparsest clusters, and rows at which the noise is denser than their clusters, are noise,
        of weight n_0 with what is ``outside``. As many clusters are noise as maximize the
        log-likelihood of rows and labels less log(n) / 2 for each parameter,

            sum_k sum_{i in k} log(n_k f(x_i; mu_k, s_k)) + n_0 log(n_0 / volume)
                - (K (d + 2) + 2 d [any cluster is noise]) log(n) / 2.
        """
        k, d, price = len(peaks), self.d, np.log(outside + w.sum()) / 2
        # without any finite likelihood, as of rows beyond the range of squares, no noise
        order, best, found = np.argsort(peaks, kind="stable"), -np.inf, (0, -np.inf)
        log_density, w, place = spaced(log_density), spaced(w), np.empty(k, dtype=int)
        place[order] = np.arange(k)
        place = place[spaced(labels)]
        # the sample of rows weighs as much as all
        w = w * ((np.exp(2.0 * price) - outside) / w.sum())
        for cut in range(k):
            sparse = noise = place < cut
            for _ in range(ROUNDS):
                level = np.log(max(outside + w[noise].sum(), 1.0)) - self.log_volume
                noise = sparse | (log_density < level)
            value = (w * log_density)[~noise].sum() + (outside + w[noise].sum()) * level
            value -= ((k - cut) * (d + 2) + (2 * d if cut else 0)) * price
            if value > best:
                best, found = value, (cut, level)
        cut, level = found
        dense = np.ones(k, dtype=bool)
        dense[order[:cut]] = False
        return dense, level

    def bound(self, sizes, scales, shape, low, high):
        """The squared distance beyond which noise is denser than clusters, within [low, high].

        Squared distances r in clusters follow gamma laws. The noise within a distance of K centers
        has the weight K V r^(d / 2) exp(log_density), V the volume of the unit ball.
        """
        if not self.found:
            return high
        used, half = (sizes > 0.0) & (scales > 0.0), self.d / 2
        log_sizes, scales = np.log(sizes[used] * self.unit), scales[used]
        noise = self.log_density + np.log(len(scales)) + half * np.log(np.pi) - gammaln(half)

        def excess(r):
            """Log density of r in clusters, less that of the noise."""
            law = (shape - 1.0) * np.log(r / scales) - r / scales - np.log(scales)
            return logsumexp(log_sizes + law) - gammaln(shape) - noise - (half - 1.0) * np.log(r)

        if not excess(high) < 0.0:
            return high
        return float(brentq(excess, low, high)) if excess(low) > 0.0 else low
