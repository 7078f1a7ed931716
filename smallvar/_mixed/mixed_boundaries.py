"""Evidence of the boundaries between clusters of a table."""

import numpy as np

from smallvar._mixed.measure import MixedSweep, divergences
from smallvar._selection.cost_boundaries import CostBoundaries


class TableBoundaries(CostBoundaries):
    """The boundaries between clusters of the path of a table, by rows of its last descent."""

    def __init__(self, path, descent):
        super().__init__(descent.n, descent.weight)
        self.path = path
        self.numbers, self.codes = descent.numbers[self.some], descent.codes[self.some]
        ranges = np.fmax.reduce(self.numbers) - np.fmin.reduce(self.numbers)
        self.step = np.zeros(ranges.size + self.codes.shape[1])
        self.step[: ranges.size] = path.measure.step / np.where(ranges > 0.0, ranges, np.inf)

    def support_at(self, k, least=0.0):
        """The support of k clusters of the path; rows that are set aside do not count."""
        return self.support(self.path.found(k), least, self.path.beside(k))

    def costs(self, centers):
        """What each row costs at each center."""
        each = [self._sweep(slice(None), center[None]) for center in centers]
        return np.column_stack([sweep.assigned_distances() for sweep in each])

    def means(self, used, labels, k):
        """Centers of the rows in a mask."""
        sweep = self._sweep(used, np.repeat(self.path.measure.overall(), k, axis=0))
        sweep.labels[:] = labels[used]
        return sweep.present_sums(k).centers(sweep.measure)

    def cell_costs(self, rows, centers):
        """What each cell of some rows costs, at a center for each; NaN where missing."""
        measure, columns = self.path.measure, []
        p = len(measure.kind)
        for j, kind in enumerate(measure.kind):
            with np.errstate(divide="ignore", invalid="ignore"):
                cost = measure.factor[j] * divergences(kind, self.numbers[rows, j], centers[:, j])
            # a count is infinitely far from a mean of 0
            columns.append(np.minimum(cost, cost[np.isfinite(cost)].max(initial=0.0)))
        for j in range(self.codes.shape[1]):
            code = self.codes[rows, j]
            share = centers[np.arange(len(rows)), p + measure.begin[j] + np.maximum(code, 0)]
            columns.append(np.where(code < 0, np.nan, -np.log(share)))
        return np.stack(columns, axis=1)

    def _sweep(self, rows, centers):
        """A sweep of these rows at these centers, all labeled by the first one."""
        numbers, codes = (np.ascontiguousarray(a[rows]) for a in (self.numbers, self.codes))
        sweep = MixedSweep(self.path.measure, numbers, codes)
        sweep.start(centers)
        return sweep
