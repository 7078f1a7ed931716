"""The problem of a fit to directions: starts, and penalties from the rows or from a merge path."""

from itertools import pairwise

import numpy as np
from scipy.sparse import issparse
from scipy.spatial.distance import pdist

from smallvar._centers.dpmeans import RowsProblem
from smallvar._centers.starts import Start
from smallvar._centers.unit_rows import length_rounding, unit_rows
from smallvar._core.frame import RowsFrame, nearest_sweep
from smallvar._core.validation import mean_weight, one_row, some_rows
from smallvar._selection.envelope import penalty_within
from smallvar._selection.sphere import directions

ERROR_SHARE = 0.5  # of a squared distance: 1 - cos is half of it
# of paths; rows of the first pass: wide clusters are worth a center from some 20 rows on
PATH_OPTIONS = {"coarse_rows": 20_000, "family": directions}


def first_row(X, weight, order=None):
    """The first row visited that has weight, as a center."""
    rows = np.arange(X.shape[0]) if order is None else order
    row = rows[0] if weight is None else rows[int((weight[rows] > 0.0).argmax())]
    return one_row(X, row)[None]


def as_directions(centers, X, weight, n_threads):
    """Means of a path as centers of length 1; a mean of zero becomes the first row instead."""
    centers[~centers.any(axis=1)] = first_row(X, weight)
    return unit_rows(centers, n_threads)


def opening_penalty(X, weight, centers, n_threads):
    """A penalty at which no row of these clusters opens one, and rows of other directions do.

    With distances 1 - cosine, it is sqrt(within max(within, between)) times the mean weight:

    - ``within`` is the largest distance of a row from the nearest first row of a cluster. A cluster
      opens at a row, so all rows should be within the penalty of these rows.
    - ``between`` is a typical distance of a row from the nearest center but its own.

    The result is at least the largest weighted distance of a row from its own center. The second
    result is ``within``; where it is 0, the penalty is a right angle, a placeholder.
    """
    used = np.arange(X.shape[0]) if weight is None else np.flatnonzero(weight)
    weights = 1.0 if weight is None else weight[used]
    sweep = nearest_sweep(X, None, centers, n_threads)
    # 1 - cos = ||x - mu||^2 / 2 for vectors of length 1
    to_center = 0.5 * sweep.assigned_distances()[used]
    # the first row of each cluster, at which it would open
    labels, first = np.unique(sweep.labels[used], return_index=True)
    rows, seeds = some_rows(X, used[first]), centers.copy()
    seeds[labels] = rows.toarray() if issparse(X) else rows
    sweep.set_centers(seeds)
    within = 0.5 * float(sweep.assigned_distances()[used].max())
    # For two centers at cosine c, a row at cosine b to its own center has the cosine b c to the
    # other one, on average over the directions in which it may be off. Here c is that of the two
    # nearest centers, b the mean over the rows.
    apart = 0.5 * pdist(centers, "sqeuclidean")
    cosine = 1.0 - float(apart[apart > 0.0].min(initial=1.0))
    between = 1.0 - cosine * (1.0 - float(to_center.mean()))
    # at least ``within``, or rows of a cluster would open others
    lam = np.sqrt(within * max(within, between)) if within > 0.0 else 1.0
    # w (1 - cos) of no row exceeds the penalty, however heavy the row
    return max(lam * mean_weight(weight), float((weights * to_center).max())), within


def saving(path, X, weight, n_threads):
    """A penalty for the best number of a path: by how much a cluster lowers the objective there."""
    counts = path.n_clusters
    i = int(np.searchsorted(counts, path.best))
    near = [k for k in counts[max(0, i - 1) : i + 2].tolist() if k <= path.longest]
    path.improve_some(near)
    error = {}
    for k in near:
        centers = as_directions(path.centers(k), X, weight, n_threads)
        error[k] = ERROR_SHARE * nearest_sweep(X, weight, centers, n_threads).squared_error()
    # the objective saved by each cluster more, below and above the best number
    slopes = [(error[a] - error[b]) / (b - a) for a, b in pairwise(near)]
    slopes = [max(slope, 0.0) for slope in slopes]
    if path.best == 1:
        # a second cluster saves at most the whole error, so it does not pay at twice that
        return 2.0 * max([error[1], *slopes]) or 1.0
    # the best number stays best for lam from what one cluster more would save to what the last
    # of them has saved
    return penalty_within(slopes[1] if len(slopes) > 1 else 0.0, slopes[0])


class Sphere(RowsFrame):
    """The frame of rows of length 1: sums are from 0, ``rounding`` is that of the lengths."""

    def __init__(self, X, weight, n_threads, centers=None):
        super().__init__(X, weight, n_threads, centers, np.zeros(X.shape[1]))
        self.rounding = length_rounding(X)


class SphereProblem(RowsProblem):
    """Rows of length 1; the directions of a fit are no means, which the path keeps."""

    adopts = False

    def __init__(self, fit, X, weight, n_threads):
        super().__init__(fit, X, weight, n_threads, **PATH_OPTIONS)

    def start(self, point):
        """The Start at the given centers, or at the first row."""
        centers, order = point.centers, point.order
        if centers is None:
            centers = first_row(self.X, self.weight, order)
        elif self.fit.lam is None:  # the centers of a path are means inside the sphere
            centers = as_directions(centers, self.X, self.weight, self.n_threads)
        # sums from the origin: their direction is that of the center
        frame = Sphere(self.X, self.weight, self.n_threads, centers)
        sweep = frame.sweep(len(centers), True, order=order, spherical=True)
        return Start(point, sweep, centers, False, order, ERROR_SHARE)

    def penalty(self, path):
        """By how much a cluster lowers the objective for the best number of the path."""
        return saving(path, self.X, self.weight, self.n_threads)
