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
from smallvar._selection.coordinates import SpanCoordinates
from smallvar._selection.criterion import Relabeled
from smallvar._selection.descent import lloyd_sweeps
from smallvar._selection.sample import PathClustering
from smallvar._sweeps.merge import MergeSweep

JOINED_SWEEPS = 20  # at most, between two looks at the sizes
ROUNDING = 1e-9  # of a size: sums of weights are rounded


def check_least_size(estimator, given=("lam",)):
    """Raise unless ``min_cluster_size`` of an estimator is in bounds, and its number is found.

    ``given`` names the parameters that make a penalty, of which each must be "auto".
    """
    least = estimator.min_cluster_size
    if least is None:
        return
    if isinstance(least, Real) and not isinstance(least, (bool, np.bool_)) and 0.0 < least < 1.0:
        check_number(least, "min_cluster_size", low=0)
    else:
        if isinstance(least, (float, np.floating)):
            raise ValueError(
                "min_cluster_size must be an integer >= 1, a share between 0 and 1, or None, got "
                f"{shown(least)}"
            )
        check_number(least, "min_cluster_size", low=1, integer=True)
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
    """The error where so many clusters of this size are not there."""
    return ValueError(
        f"n_clusters={number} clusters of min_cluster_size={shown(least)} are not in X: one of the "
        "two must be smaller"
    )


def small(sizes, least):
    """The mask of sizes below the least one."""
    return sizes * (1.0 + ROUNDING) < least


class _LargeClusters:
    """What clusterings of a sample become where each cluster must have the ``least`` weight."""

    def __init__(self, sample, least):
        self.sample, self.criterion = sample, sample.criterion
        self.frame, self.weight = self.criterion.frame, self.criterion.weight
        self.least = least * sample.share  # of the rows of the sample
        self.relabeled = Relabeled(self.frame)
        self.raw = Relabeled(sample.plain.frame)
        self.sweep = self.frame.sweep(8, bounded=True, kind=MergeSweep)

    def sizes(self, labels, k):
        """The weights of k clusters."""
        return np.bincount(labels, self.weight, minlength=k)

    def of(self, clustering):
        """The clusterings without small clusters that one of the descent leads to."""
        labels, k = clustering.assigned, clustering.k
        large = ~small(self.sizes(labels, k), self.least)
        if large.all():
            return [clustering]
        if not large.any():
            return []
        number = np.where(large, np.cumsum(large) - 1, -1)
        own = large[labels]
        centers = np.ascontiguousarray(self.relabeled(labels, k).centers[large])
        rows = np.ascontiguousarray(self.frame.X[~own])
        new = number[labels].astype(np.int32)
        new[~own] = nearest_sweep(rows, None, centers, self.frame.n_threads).labels
        found = [self._joined(new, len(centers))]
        # with more columns than rows, the coordinates of centers are those of means of all rows
        if not isinstance(self.criterion.coordinates, SpanCoordinates):
            found.append(self._set_aside(labels, k, large, new, own, centers))
        return found

    def _set_aside(self, labels, k, large, new, own, centers):
        """The clustering whose centers are the means of ``own`` rows only."""
        sweep = _labeled(self.relabeled.sweep, new, centers)
        K = len(centers)
        value = self.criterion(sweep, own=own)[0] if self._cap >= K else np.inf
        all_centers = self.raw(labels, k).centers
        centers, beside = all_centers[large], all_centers[~large]
        error = _labeled(self.raw.sweep, new, centers).squared_error() / self.sample.share
        return PathClustering(
            K, centers, value, error, None, centers, error, new, own=own, beside=beside
        )

    @property
    def _cap(self):
        return max(1, self.criterion.cap)

    def _joined(self, labels, k):
        """The clustering at which sweeps from these labels of large clusters end."""
        sweep, centers = self.sweep, self.relabeled(labels, k).centers
        while True:
            sweep.start(np.ascontiguousarray(centers))
            sweep.assign()
            if sweep.needs_float64:
                sweep.use_float64()
            sweep.move_centers()
            lloyd_sweeps(sweep, JOINED_SWEEPS)
            sizes = self.sizes(sweep.labels, sweep.k)
            if sweep.k == 1 or not small(sizes, self.least).any():
                break
            centers = np.delete(sweep.centers, int(sizes.argmin()), axis=0)
        labels, k = sweep.labels.copy(), sweep.k
        sweep = self.relabeled(labels, k)
        value = self.criterion(sweep)[0] if k <= self._cap else np.inf
        sweep = self.raw(labels, k)
        error = sweep.squared_error() / self.sample.share
        return PathClustering(k, sweep.centers, value, error, None, sweep.centers, error, labels)

    def count_aside(self, clusterings):
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
        if clustering.assigned is not None:
            return self.raw(clustering.assigned, clustering.k).residuals()[0]
        self.raw(clustering.labels, clustering.k)
        return _labeled(self.raw.sweep, clustering.labels, clustering.centers).residuals()[0]


def _labeled(sweep, labels, centers):
    """The sweep with these labels and centers, which need not be the means."""
    sweep.start(np.ascontiguousarray(centers))
    sweep.labels[:] = labels
    return sweep


def with_least_size(path, sample, least, bounds, choose):
    """The path of clusterings in which each cluster has the ``least`` weight, chosen again.

    ``bounds`` are the largest number of clusters, and the number asked for; ``choose`` returns the
    best of some clusterings, and their scores. None if there is no clustering of that number.
    """
    clusters, best = _LargeClusters(sample, least), {}
    for clustering in path.clusterings():
        for found in clusters.of(clustering):
            rank = found.criterion, found.error
            if found.k not in best or rank < (best[found.k].criterion, best[found.k].error):
                best[found.k] = found
    kept = [best[k] for k in sorted(best)]
    clusters.count_aside(kept)
    for i, clustering in enumerate(kept):
        if clustering.assigned is None:
            beside = None if clustering.beside is None else path.whole(clustering.beside)
            kept[i] = replace(clustering, centers=path.whole(clustering.centers), beside=beside)
    if bounds[1] is not None and bounds[1] not in best:
        return None
    return path.replaced(kept, bounds, choose, sample)
