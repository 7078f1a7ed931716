"""Densities with a shape of their own for clusters of a path: covariances, and widths of columns.

On the way down a clustering is judged by densities that all clusters share but for few directions
(criterion.py). At the end of a path its clusterings are judged once more, by

* from three columns on, and where each cluster has more rows than columns, a covariance matrix S_k
  for each cluster, averaged with the pooled one as if the cluster had d + 2 rows more of that,
  Gaussian or t;
* one variance for each column, the same in all clusters, Gaussian or t.

The first is what long clusters in different directions need, the second what columns of different
spread need: without it only a single cluster could have a width for each column, that of its box.
"""

from itertools import pairwise

import numpy as np

from smallvar._selection.components import PARAMETER_PRICE, ZERO_VARIANCE
from smallvar._selection.criterion import given_back
from smallvar._sweeps.residual_density import fit_residual_density

# price of a parameter of each further covariance, times log(distinct rows): that of a center
OWN_PRICE = 1.6
# clusterings into at most so many clusters are judged, or AROUND more than the number chosen
FEWEST_JUDGED, AROUND, MOST_JUDGED = 10, 3, 64
SHRINKAGE = 2  # rows, besides one for each column, that the pooled covariance counts as


class OwnShapes:
    """V of clusterings, as a ``DensityCriterion``, by densities with a shape of their own."""

    def __init__(self, criterion):
        self.criterion, components, used = criterion, criterion.components, criterion.varying
        self.d, frame = criterion.rank, criterion.frame
        # rows times a scale that keeps their squares within float64
        self.scale = frame.scale
        # one variance for each column only where no column follows from others, but constant ones
        # (there are no components of a single column)
        self.by_column = components is None or self.d == used.sum()
        if self.by_column:
            self.rows = criterion.X[:, used] - frame.mean[used]
            self.floor = np.diag(criterion.floor[used])
        else:
            self.rows, self.floor = components.leading, components.floor
        self.rows, self.floor = self.rows * self.scale, self.floor * self.scale**2
        # leading components may be fewer than the directions, of many columns
        self.in_full = self.rows.shape[1] == self.d
        self.least = ZERO_VARIANCE * self.rows.var(axis=0)

    def __call__(self, labels, k, own=None):
        """V by the better of the two densities; infinite where neither can be had.

        ``own``: the mask of the rows that means and covariances are of, None: all.
        """
        c, d, n, u = self.criterion, self.d, self.criterion.n, self.criterion.distinct
        order = np.argsort(labels, kind="stable")
        labels, R = labels[order], self.rows[order]
        weight = np.ones(len(R)) if c.weight is None else c.weight[order]
        weights = np.bincount(labels, weight, minlength=k)
        if not weights.all() or not self.in_full:
            return np.inf
        first = np.searchsorted(labels, np.arange(k + 1))
        counted = weight if own is None else weight * own[order]
        within = np.bincount(labels, counted, minlength=k)
        sums = np.add.reduceat(R * counted[:, None], first[:-1], axis=0)
        R -= (sums / within[:, None])[labels]
        back = n / (u - k) / weights if u > k else np.zeros(k)

        def value(squares, logdet, price):
            rest = back
            if own is not None:
                squares, rest = given_back(squares, weight, own[order], labels, back)
            deviance, is_t = fit_residual_density(squares, weight, labels, rest, n, d)
            price += PARAMETER_PRICE * (d + is_t)
            logdet -= 2.0 * d * np.log(self.scale)
            return u * (deviance + logdet) + np.log(u) * price

        best = self._by_widths(R, counted, value) if self.by_column else np.inf
        if d > 2 and k * d * (d + 1) // 2 <= len(R) and np.diff(first).min() > d:
            best = min(best, self._by_covariances(R, counted, within, first, value))
        entropy = -2.0 * u / n * float(weights @ np.log(weights / n))
        return best + entropy + (k - 1) * c.price_of_cluster + c.constant

    def _by_widths(self, R, weight, value):
        """The part of V that differs, by one variance for each column."""
        squares, floor = np.square(R), np.diag(self.floor)
        variance = np.average(squares, axis=0, weights=weight) + floor
        if not (variance > self.least).all():
            return np.inf
        sums = squares @ (1.0 / variance) + (floor / variance).sum()
        return value(sums, float(np.log(variance).sum()), PARAMETER_PRICE * self.d)

    def _by_covariances(self, R, weight, weights, first, value):
        """The part of V that differs, by a covariance matrix for each cluster."""
        d, k, n = self.d, len(weights), weights.sum()
        parts = [slice(i, j) for i, j in pairwise(first)]
        W = R * np.sqrt(weight)[:, None]
        S = np.array([W[part].T @ W[part] for part in parts])
        # weights relative to the distinct rows, as rows count in V
        prior = (d + SHRINKAGE) * n / self.criterion.distinct
        S = (S + prior / n * S.sum(axis=0)) / (weights + prior)[:, None, None] + self.floor
        try:
            L = np.linalg.cholesky(S)
        except np.linalg.LinAlgError:
            return np.inf
        diagonals = np.diagonal(L, axis1=1, axis2=2)
        if not (diagonals**2 > ZERO_VARIANCE * np.diagonal(S, axis1=1, axis2=2)).all():
            return np.inf
        inverse = np.linalg.inv(L)
        images = np.vstack([R[part] @ A.T for part, A in zip(parts, inverse, strict=True)])
        # a row is anywhere within its step: its expected square
        within = ((inverse @ self.floor) * inverse).sum(axis=(1, 2))
        squares = np.square(images).sum(axis=1) + np.repeat(within, np.diff(first))
        logdet = 2.0 * float(weights @ np.log(diagonals).sum(axis=1)) / n
        # the first one is what a single cluster has in other densities, at the price of those
        price = PARAMETER_PRICE + OWN_PRICE * (k - 1)
        return value(squares, logdet, price * (d * (d + 1) // 2))
