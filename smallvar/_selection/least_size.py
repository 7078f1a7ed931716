"""Clusterings all of whose clusters have a least size: what small clusters become, and the path.

A clustering of the descent that has clusters below the size leads to two that have none:

* their rows are *set aside*: they are labeled by the nearest large cluster, whose center they do
  not move, since a single row that is far enough would drag a mean to anywhere;
* their rows *join* the nearest large cluster, and Lloyd sweeps follow. A cluster that falls below
  the size meanwhile is left out, the smallest first, and sweeps begin again: there are fewer
  clusters each time, so this ends.

Both are judged by the criterion of all rows. For each number of clusters the better one stays on
the path, and the number is chosen among these.
"""

import math
from dataclasses import replace
from numbers import Real

import numpy as np

from smallvar._core.frame import nearest_sweep
from smallvar._core.validation import check_number, exact_number, shown
from smallvar._selection.criterion import Relabeled
from smallvar._selection.descent import descent_by_squares
from smallvar._selection.sample import PathClustering

JOINED_SWEEPS = 300  # at most, between two looks at the sizes: as many as a fit has
ROUNDING = 1e-9  # of a size: sums of weights are rounded


def check_least_size(estimator, given=("lam",)):
    """Raise unless ``min_cluster_size`` of an estimator is in bounds, and its number is found.

    ``given`` names the parameters that make a penalty, of which each must be "auto".
    """
    least = estimator.min_cluster_size
    if least is None:
        return
    if not (isinstance(least, Real) and 0.0 < least < 1.0):
        if isinstance(least, (float, np.floating)):
            raise ValueError(
                "min_cluster_size must be an integer >= 1, a share between 0 and 1, or None, got "
                f"{shown(least)}"
            )
        check_number(least, "min_cluster_size", low=1, integer=True, none=True)
    for name in given:
        value = getattr(estimator, name)
        if not (isinstance(value, str) and value == "auto"):
            raise ValueError(
                f"min_cluster_size must be None unless {name} is 'auto': sizes bound the number of "
                f"clusters that is chosen, got min_cluster_size={shown(least)} and "
                f"{name}={shown(value)}"
            )


def least_weight(estimator, weight, n_samples):
    """The least weight of a cluster of checked rows; None where no cluster can be below it."""
    least = estimator.min_cluster_size
    if least is None:
        return None
    total = float(n_samples) if weight is None else math.fsum(weight)
    least = float(least) * (total if isinstance(least, Real) and least < 1 else 1.0)
    if least > total * (1.0 + ROUNDING):
        raise ValueError(
            f"min_cluster_size must be <= {total:g}, the "
            f"{'number of rows' if weight is None else 'sum of the weights'}, got "
            f"min_cluster_size={shown(estimator.min_cluster_size)}"
        )
    number = exact_number(estimator.n_clusters)
    if number is not None and number * least > total * (1.0 + ROUNDING):
        raise no_such_number(number, estimator.min_cluster_size)
    lightest = 1.0 if weight is None else float(weight[weight > 0].min())
    return None if least <= lightest else least


def no_such_number(number, least):
    """The error where there are not so many clusters of this size."""
    return ValueError(
        f"no clustering into n_clusters={number} clusters of min_cluster_size={shown(least)} was "
        "found: one of the two must be smaller"
    )


def small(sizes, least):
    """The mask of sizes below the least one."""
    return sizes * (1.0 + ROUNDING) < least


class LargeClusterings:
    """The best clustering of each number in which each cluster has the ``least`` weight.

    They are those of a path; ``sample`` are the rows that it was found on.
    """

    def __init__(self, path, sample, least):
        self.path, self.sample, self.criterion = path, sample, sample.criterion
        self.frame, self.weight = self.criterion.frame, self.criterion.weight
        self.least = least * sample.share  # of the rows of the sample
        self.relabeled = Relabeled(self.frame)
        self.raw = Relabeled(sample.plain.frame)
        self.descent, self.cap = descent_by_squares(self.frame), max(1, self.criterion.cap)
        self.best = {}
        for clustering in path.clusterings:
            labels, k = clustering.assigned, clustering.k
            large = ~small(self._sizes(labels, k), self.least)
            self._offer([clustering] if large.all() else self._of(labels, k, large))

    def chosen(self, bounds):
        """The path of these clusterings; None if there is none of the number asked for.

        ``bounds`` are the largest number of clusters, and the number asked for.
        """
        if bounds[1] is not None and bounds[1] not in self.best:
            return None
        kept = [replace(self.best[k]) for k in sorted(self.best)]
        self._count_aside(kept)
        return self.path.replaced(kept, bounds, self.sample)

    def add(self, path, number):
        """Take the clusterings of another path, of the rows that that of ``number`` has not aside.

        The rows that it has stay aside.
        """
        rows, best, n_threads = self.raw.frame.X, self.best[number], self.frame.n_threads
        own, labels = best.own, np.empty(len(best.own), dtype=np.int32)
        others = nearest_sweep(np.ascontiguousarray(rows[~own]), None, best.beside, n_threads)
        rows = np.ascontiguousarray(rows[own])
        for clustering in path.clusterings:
            if clustering.centers is None:
                continue
            centers = np.ascontiguousarray(clustering.centers[:, self.path.varying])
            labels[own] = nearest_sweep(rows, None, centers, n_threads).labels
            # clusters of rows set aside come after the others, and are never large
            labels[~own] = len(centers) + others.labels
            used, dense = np.unique(labels, return_inverse=True)
            large = ~small(self._sizes(dense, len(used)), self.least) & (used < len(centers))
            self._offer(self._of(dense.astype(np.int32), len(used), large))

    def _offer(self, clusterings):
        """Keep those clusterings that are the best of their number so far."""
        for new in clusterings:
            old = self.best.setdefault(new.k, new)
            if (new.criterion, new.error) < (old.criterion, old.error):
                self.best[new.k] = new

    def _sizes(self, labels, k):
        """The weights of k clusters."""
        return np.bincount(labels, self.weight, minlength=k)

    def _of(self, labels, k, large):
        """The clusterings by the large ones of k clusters, some of which are not large."""
        if not large.any():
            return []
        own = large[labels]
        centers = self.relabeled(labels, k).centers[large]
        # the number of each cluster among the large ones; those of other rows are replaced
        new = (np.cumsum(large) - 1)[labels].astype(np.int32)
        new[~own] = nearest_sweep(self.frame.X[~own], None, centers, self.frame.n_threads).labels
        means = self.raw(labels, k).centers
        aside = self._made(new, centers, means[large], own, means[~large])
        return [self._joined(new, len(centers)), aside]

    def _made(self, labels, centers, raw_centers, own=None, beside=None):
        """The clustering with these labels and centers, of the rows of the descent and as given.

        ``own`` is the mask of the rows that the centers are the means of, and ``beside`` are the
        means of the small clusters of the others.
        """
        k, value = len(centers), np.inf
        if k <= self.cap:
            value = self.criterion(self.relabeled(labels, k, centers), own=own)[0]
        error = self.raw(labels, k, raw_centers).squared_error() / self.sample.share
        model = None, raw_centers, error, labels
        return PathClustering(k, raw_centers, value, error, *model, own=own, beside=beside)

    def _joined(self, labels, k):
        """The clustering at which sweeps from these labels of large clusters end."""
        sweep, centers = self.descent.sweep, self.relabeled(labels, k).centers
        # sweeps may make a cluster too small: without it they begin again, with one cluster less
        while True:
            self.descent.start(centers)
            self.descent.run_lloyd(JOINED_SWEEPS)
            sizes = self._sizes(sweep.labels, sweep.k)
            if sweep.k == 1 or not small(sizes, self.least).any():
                break
            centers = np.delete(sweep.centers, int(sizes.argmin()), axis=0)
        labels, k = sweep.labels.copy(), sweep.k
        return self._made(labels, self.relabeled(labels, k).centers, self.raw(labels, k).centers)

    def _count_aside(self, clusterings):
        """Make the rows that the best of these sets aside count in all errors as they do there.

        They may be so far that errors are theirs, and tell nothing of the clusters.
        """
        best = min(clusterings, key=lambda c: (c.criterion, c.k))
        if best.own is None:
            return
        weight = 1.0 if self.weight is None else self.weight
        within, beside = weight * best.own, weight * ~best.own
        constant = float(self._squares(best) @ beside)
        for clustering in clusterings:
            error = float(self._squares(clustering) @ within) + constant
            clustering.error = clustering.own_error = error / self.sample.share

    def _squares(self, clustering):
        """Squared distances of the rows as given from the centers of their clusters."""
        labels, centers = clustering.labels, clustering.centers
        if clustering.assigned is not None:
            labels, centers = clustering.assigned, None
        return self.raw(labels, clustering.k, centers).residuals()
