"""Starts of DP-means on rows with links: compiled sweeps for rows without links, numpy for others.

The rows are the nodes of RowLinks: see ``smallvar/_core/links.py``.
"""

import math

import numpy as np
from scipy.sparse import issparse

from smallvar._centers.starts import Start
from smallvar._core.validation import some_rows
from smallvar._sweeps.dpmeans import DPSweep
from smallvar._sweeps.exact import distances_to_centers
from smallvar._sweeps.means import next_centers
from smallvar._sweeps.sums import Sums


class LinkedSweep(DPSweep):
    """A sweep over all rows in which those of a LinkedNodes, ``nodes``, count as weightless.

    ``assign_linked`` assigns these; means are those of all rows.
    """

    def __init__(self, nodes, X, weight, order, labels, frame, *settings):
        rows = some_rows(X, nodes.rows)
        self.points = (rows.toarray() if issparse(rows) else rows).astype(np.float64)
        self.nodes, self.layout, self.rounding = nodes, frame.layout, frame.rounding
        self.at = nodes.rows if order is None else np.argsort(order)[nodes.rows]
        self.weight, free, self.squares = weight[self.at], weight.copy(), None
        free[self.at] = 0.0
        super().__init__(X, free, order, labels, frame, *settings)

    @property
    def labels(self):
        """Cluster of each row, in the order of visit."""
        labels = np.array(super().labels)
        labels[self.at] = self.nodes.labels
        return labels

    def start(self, centers):
        """Begin at these centers; linked rows are in no cluster yet."""
        super().start(centers)
        self.nodes.labels[:] = -1

    def _costs(self, centers):
        """Weighted squared distances of the linked rows to these centers."""
        costs = np.empty((len(self.points), len(centers)))
        distances_to_centers(self.points, centers, costs, self.n_threads, squared=True)
        return costs * self.weight[:, None]

    def assign_linked(self, opens_beyond, cap):
        """Assign the linked rows; returns how many moved, and the number of clusters opened."""
        least, costs = np.maximum(opens_beyond, self.weight * self.rounding), self._costs
        moved, opened = self.nodes.assign(
            costs(self.centers), lambda i: costs(self.points[[i]])[:, 0], least, cap
        )
        self.append(self.points[opened])
        return moved, len(opened)

    def move_centers(self):
        """End the sweep as DPSweep does; returns the error."""
        sums = Sums(self.layout, self.k)
        sums.add(self.points, self.nodes.labels, self.weight, self.n_threads)
        sums.merge(self.present_sums())
        # sum w ||x - origin||^2, which the error follows from, is found once, by the exact error
        centers, number, error, _ = next_centers(sums, self.centers, self.squares or 0.0, False)
        self.nodes.labels = number[self.nodes.labels]
        self.move_to(centers, number)
        if self.squares is None:
            exact = self.squared_error()
            self.squares, error = exact - error, exact
        return error

    def squared_error(self):
        """Weighted error about the assigned centers, row by row."""
        costs, labels = self._costs(self.centers), self.nodes.labels
        return super().squared_error() + math.fsum(costs[np.arange(len(labels)), labels])


class LinkedStart(Start):
    """A start on rows with links; their price is part of the objective."""

    def run(self, loop):
        """Sweep to the end, then make the objective agree with the labels."""
        super().run(loop)
        self.progress.correct(self.progress.objective + self.sweep.nodes.penalty)
        return self

    def step(self):
        """Do one sweep; returns the numbers of rows moved and of clusters opened."""
        moved, opened = super().step()
        moved_linked, opened_linked = self.sweep.assign_linked(self.opens_beyond, self.cap)
        return moved + moved_linked, opened + opened_linked

    def measured(self, error):
        """The objective after a sweep."""
        return super().measured(error) + self.sweep.nodes.penalty

    def finish(self):
        """Labels of the last sweep stay: the nearest centers might violate links."""
