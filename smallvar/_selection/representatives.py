"""Rows that stand for a clustering: those nearest to the centers, and beside the boundaries."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smallvar._core.validation import some_rows
from smallvar._selection.boundaries import pairs_that_touch

MOST_COMPARED = 1 << 20  # distances, or numbers of rows, at a time


class Representatives(NamedTuple):
    """Numbers of rows of the fit that stand for its clusters.

    Attributes
    ----------
    centers : ndarray of shape (n_clusters,)
        For each cluster, its row that is nearest to the center.
    boundaries : dict
        For each two clusters ``(a, b)``, a < b, that touch: the row of a, and the row of b, whose
        distances to the two are most nearly equal. Two clusters touch if, for at least two rows
        (with sample weights, their weight), one is their own and the other one is the nearest of
        all others; if some rows of a cluster are so, only these are compared.
    """

    centers: NDArray[np.intp]
    boundaries: dict[tuple[int, int], tuple[int, int]]


class _Least:
    """The row with the least value in each cell of a table, the first one at a tie."""

    def __init__(self, *shape):
        self.value, self.row = np.full(shape, np.inf), np.full(shape, -1, dtype=np.intp)

    def take(self, cluster, rows, values):
        """Take values of rows, for the cells of a cluster: (n,) or (n, cells)."""
        place = values.argmin(axis=0)
        value = np.take_along_axis(values, place[np.newaxis], axis=0)[0]
        less = value < self.value[cluster]
        self.value[cluster] = np.where(less, value, self.value[cluster])
        self.row[cluster] = np.where(less, rows[place], self.row[cluster])


def find_representatives(X, weight, labels, k, distances):
    """Return the Representatives of rows with labels 0 to k - 1; rows of weight zero are left out.

    ``distances(rows)`` are those of some rows from all clusters.
    """
    used = np.flatnonzero(labels >= 0 if weight is None else (labels >= 0) & (weight > 0.0))
    center, beside, any_row = _Least(k), _Least(k, k), _Least(k, k)
    contacts = np.zeros((k, k))
    size = max(1, MOST_COMPARED // max(k, X.shape[1]))
    for start in range(0, len(used), size):
        rows = used[start : start + size]
        table = np.array(distances(some_rows(X, rows)), dtype=np.float64)
        own = labels[rows]
        near = table[np.arange(len(rows)), own]
        with np.errstate(invalid="ignore"):
            gaps = np.abs(table - near[:, np.newaxis])
        gaps[np.isnan(gaps)] = np.inf  # both are infinite
        table[np.arange(len(rows)), own] = gaps[np.arange(len(rows)), own] = np.inf
        second = table.argmin(axis=1)
        np.add.at(contacts, (own, second), 1.0 if weight is None else weight[rows])
        facing = np.where(second[:, np.newaxis] == np.arange(k), gaps, np.inf)
        for cluster in np.unique(own).tolist():
            at = np.flatnonzero(own == cluster)
            center.take(cluster, rows[at], near[at])
            beside.take(cluster, rows[at], facing[at])
            any_row.take(cluster, rows[at], gaps[at])
    row = np.where(beside.row >= 0, beside.row, any_row.row)
    pairs = pairs_that_touch(contacts)[0] if k > 1 else []
    boundaries = {(int(a), int(b)): (int(row[a, b]), int(row[b, a])) for a, b in pairs}
    return Representatives(center.row, dict(sorted(boundaries.items())))
