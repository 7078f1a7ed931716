"""Evidence of the boundaries between clusters along the difference of what rows cost at centers."""

import numpy as np

from smallvar._selection.boundaries import pairs_that_touch
from smallvar._selection.boundary import NOTHING, boundary_along, spread_over_steps
from smallvar._selection.columns import COLUMN_ROWS
from smallvar._selection.touching import support_of

FOLDS = 8
# of what tells two clusters apart: rows with less in the cells that they have are left out
LEAST_TOLD, TINY = 0.5, 1e-300
QUARTILES = 0.25, 0.75  # of the rows on one side of a boundary


class CostBoundaries:
    """The boundaries between clusters whose costs are sums over cells, by rows of a descent.

    A row of two clusters lies at the difference of what it costs at their centers. A center leans
    to the rows that it is the mean of, so that one body cut in two would look like two bells: each
    row is measured at the centers of the rows in the other FOLDS. Where cells are missing, the
    difference is set in relation to the mean ones of both clusters in the cells that are there.
    Values recorded in steps are anywhere within their step, or any two of a few values would look
    like a gap: differences of such costs are linear in the values, so a step of all columns is as
    long as they vary, uniformly, along the difference.

    A subclass has ``costs(centers)``, what each row costs at each center, (n, k);
    ``means(used, labels, k)``, the centers of the rows in a mask; ``cell_costs(rows, centers)``,
    what each cell of some rows costs, at a center for each row, NaN where it is missing; and
    ``step``, (d,), the part of the range of each column that is a step, 0 where there is none.
    """

    def __init__(self, n, weight):
        """``some`` are the rows that are looked at, ``weight`` is None or that of all n."""
        self.some = slice(None, None, -(-n // COLUMN_ROWS))
        self.weight = np.ones(n)[self.some] if weight is None else weight[self.some]
        self.fold = np.arange(len(self.weight)) % FOLDS

    def support(self, centers, least=0.0, beside=None):
        """The support of clusters, see ``support_of``; rows nearer to ``beside`` do not count."""
        k, n = len(centers), len(self.fold)
        costs = self.costs(centers if beside is None else np.vstack([centers, beside]))
        labels = costs.argmin(axis=1)
        sizes = np.bincount(labels, minlength=k)[:k]
        if not sizes.all():
            return np.nan
        costs[np.arange(n), labels] = np.inf
        contacts, own = np.zeros((k, k)), labels < k
        np.add.at(contacts, (labels[own], costs[own, :k].argmin(axis=1)), 1.0)
        # centers without the rows of each fold
        without = [self.means(own & (self.fold != i), labels, k) for i in range(FOLDS)]
        without = np.array(without)

        def between(a, b):
            return self._boundary(labels, without[:, [a, b]], a, b)

        return support_of(pairs_that_touch(contacts)[0], sizes, between, least)

    def _boundary(self, labels, centers, a, b):
        """The Boundary between clusters a and b; ``centers`` (FOLDS, 2, ...) are their two."""
        used = np.flatnonzero((labels == a) | (labels == b))
        first, weight = labels[used] == a, self.weight[used]
        costs = [self.cell_costs(used, centers[self.fold[used], i]) for i in (0, 1)]
        gains = costs[0] - costs[1]
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
        length = np.linalg.norm(self.step * np.ptp(gains, axis=0))
        places = (gains.sum(axis=1) - middle)[kept] / told[kept]
        places, weight = spread_over_steps(places, weight[kept], length / told[kept])
        return boundary_along(_alike(places), weight)


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
