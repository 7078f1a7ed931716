"""Evidence of the boundaries between clusters of a table, along the difference of their costs."""

import numpy as np

from smallvar._mixed.measure import MixedSweep, divergences
from smallvar._selection.boundaries import pairs_that_touch
from smallvar._selection.boundary import NOTHING, boundary_along
from smallvar._selection.columns import COLUMN_ROWS
from smallvar._selection.touching import support_of

FOLDS = 8
# of what tells two clusters apart: rows with less in the cells that they have are left out
LEAST_TOLD, TINY = 0.5, 1e-300
QUARTILES = 0.25, 0.75  # of the rows on one side of a boundary


class TableBoundaries:
    """The boundaries between clusters of the path of a table, by rows of its last descent.

    A row of two clusters lies at the difference of what it costs at their centers. A center leans
    to the rows that it is the mean of, so that one body cut in two would look like two bells: each
    row is measured at the centers of the rows in the other FOLDS. Where cells are missing, the
    difference is set in relation to the mean ones of both clusters in the cells that are there.
    """

    def __init__(self, path, descent):
        self.path, some = path, slice(None, None, -(-descent.n // COLUMN_ROWS))
        self.numbers, self.codes = descent.numbers[some], descent.codes[some]
        self.weight = np.ones(len(self.numbers)) if descent.weight is None else descent.weight[some]
        self.fold = np.arange(len(self.numbers)) % FOLDS

    def support(self, k, least=0.0):
        """The support of k clusters, see ``support_of``; rows that are set aside do not count."""
        centers, n, beside = self.path.found(k), len(self.fold), self.path.beside(k)
        every = centers if beside is None else np.vstack([centers, beside])
        costs = np.empty((n, len(every)))
        for c in range(len(every)):
            sweep = self._sweep(slice(None), every[[c]])
            costs[:, c] = sweep.assigned_distances()
        labels = costs.argmin(axis=1)
        sizes = np.bincount(labels, minlength=k)[:k]
        if not sizes.all():
            return np.nan
        costs[np.arange(n), labels] = np.inf
        contacts = np.zeros((k, k))
        own = labels < k
        np.add.at(contacts, (labels[own], costs[own, :k].argmin(axis=1)), 1.0)
        without = []  # centers without the rows of each fold
        for i in range(FOLDS):
            rows = own & (self.fold != i)
            sweep = self._sweep(rows, centers)
            sweep.labels[:] = labels[rows]
            without.append(sweep.present_sums(k).centers(sweep.measure))
        without = np.array(without)

        def between(a, b):
            return self._boundary(labels, without[:, [a, b]], a, b)

        return support_of(pairs_that_touch(contacts)[0], sizes, between, least)

    def _boundary(self, labels, centers, a, b):
        """The Boundary between clusters a and b; ``centers`` (FOLDS, 2, ...) are their two."""
        used = np.flatnonzero((labels == a) | (labels == b))
        first, weight = labels[used] == a, self.weight[used]
        gains = self._cell_costs(used, centers[:, 0]) - self._cell_costs(used, centers[:, 1])
        there = ~np.isnan(gains)
        gains = np.where(there, gains, 0.0)
        mean = [
            (weight[side] @ gains[side]) / np.maximum(weight[side] @ there[side], TINY)
            for side in (first, ~first)
        ]
        apart = np.maximum(mean[1] - mean[0], 0.0)
        told = there @ apart
        kept = told > LEAST_TOLD * apart.sum()
        if not kept.any():
            return NOTHING
        middle = there @ (mean[0] + mean[1]) / 2.0
        return boundary_along(_alike((gains.sum(axis=1) - middle)[kept] / told[kept]), weight[kept])

    def _cell_costs(self, rows, centers):
        """What each cell of some rows costs at one center, (m, columns); NaN where missing."""
        measure, at = self.path.measure, centers[self.fold[rows]]
        p, columns = len(measure.kind), []
        for j, kind in enumerate(measure.kind):
            with np.errstate(divide="ignore", invalid="ignore"):
                cost = measure.factor[j] * divergences(kind, self.numbers[rows, j], at[:, j])
            # a count is infinitely far from a mean of 0
            columns.append(np.minimum(cost, cost[np.isfinite(cost)].max(initial=0.0)))
        for j in range(self.codes.shape[1]):
            code = self.codes[rows, j]
            share = at[np.arange(len(rows)), p + measure.begin[j] + np.maximum(code, 0)]
            columns.append(np.where(code < 0, np.nan, -np.log(share)))
        return np.stack(columns, axis=1)

    def _sweep(self, rows, centers):
        """A sweep of these rows at these centers, all labeled by the first one."""
        numbers, codes = (np.ascontiguousarray(a[rows]) for a in (self.numbers, self.codes))
        sweep = MixedSweep(self.path.measure, numbers, codes)
        sweep.start(centers)
        return sweep


def _alike(t):
    """Places with the same spread on both sides of 0.

    Costs grow with the distance from a center in units of the cluster, so that wide clusters are
    wide beside tight ones. A body may be denser on one side of its boundary than on the other.
    """
    t = t.copy()
    for side in (t < 0.0, t >= 0.0):
        if side.any():
            low, high = np.quantile(t[side], QUARTILES)
            t[side] /= (high - low) or np.ptp(t[side]) or max(np.abs(t[side]).max(), TINY)
    return t
