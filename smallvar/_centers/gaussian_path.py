"""Merge paths of Gaussian clusters: greedy mergers from many clusters down to the best number.

A path is made on a PointGaussians, ``state``: its rows, and the clusters of the labels it is given.
"""

import numpy as np
from sklearn.cluster import kmeans_plusplus

from smallvar._centers.gaussians import roots_of
from smallvar._core.config import resolve_threads
from smallvar._core.frame import RowsFrame
from smallvar._core.validation import check_reach, varying_columns
from smallvar._sweeps.sums import exact_total

PATH_SWEEPS = 4  # largest number after a merger
KMEANS_SWEEPS = 20  # largest number in the k-means that a path begins with
# the first mergers are made on a sample: for each cluster at the top, ROWS_A_CLUSTER rows, or
# ROWS_A_COLUMN for each column; the path on all rows begins at ABOVE_SAMPLE times their number
ROWS_A_CLUSTER, ROWS_A_COLUMN, ABOVE_SAMPLE = 100, 4, 1.5
# largest absolute values of float32 rows whose squares can be summed
SMALLEST_SQUARED, LARGEST_SQUARED = 1e-12, 1e12
# per unit of weight: the largest rise of the objective on a path before a lower minimum. A merger
# of two halves of a Gaussian lowers it by 0.37
WORSE = 0.5
# starts end when AGREEING_STARTS have the lowest objective, up to AGREEMENT per unit of weight
AGREEMENT, AGREEING_STARTS = 1e-5, 3


def distant_rows(X, k, w, rng):
    """Rows of X drawn by k-means++, by the columns that vary: the others have only rounding."""
    check_reach(X)  # again: a callback may have written to them
    varying = varying_columns(X)
    columns = X if varying is None else X[:, varying]
    largest = float(np.abs(columns).max())
    if columns.dtype == np.float32 and not SMALLEST_SQUARED < largest < LARGEST_SQUARED:
        # k-means++ squares in float32; a power of two as a factor does not change its draws
        columns = np.ldexp(columns, -np.frexp(largest)[1])
    return X[kmeans_plusplus(columns, k, sample_weight=w, random_state=rng)[1]]


def merge_path(state, label, k):
    """Yield clusterings into fewer and fewer clusters: number, labels and objective of each.

    Each merger unites the pair that raises the objective least; a few sweeps follow. Clusters that
    lose all their rows are dropped.
    """
    objective = state.refit(label, k)
    while True:
        for _ in range(PATH_SWEEPS):
            before = label
            label = state.assign()[0]
            if np.array_equal(label, before):
                break
            label, k = state.leave_out_emptied(label, k)
            objective = state.refit(label, k)
        yield k, label, objective
        if k == 1:
            return
        label = state.unite(*state.cheapest_pair())
        k -= 1
        objective = state.refit(label, k)


def plain_clusters(data, seeds, covariance):
    """Labels of a short k-means in the metric of this covariance, and the number of clusters."""
    X, weight = data.X, data.w if data.layout.weighted else None
    if not np.array_equal(covariance, np.eye(X.shape[1])):
        # with S^-1 = W'W, squared Mahalanobis distances are ||W x - W y||^2
        root = roots_of(covariance[None], None)[0][0]
        X, seeds = X @ root.T, seeds @ root.T
    seeds = np.ascontiguousarray(seeds, dtype=np.float64)
    sweep = RowsFrame(X, weight, resolve_threads(None), seeds).sweep(len(seeds), bounded=True)
    sweep.start(seeds)
    for _ in range(KMEANS_SWEEPS):
        sweep.assign()
        if not sweep.moved():
            break
        if sweep.needs_float64:
            sweep.use_float64()
        sweep.move_centers()
    used, label = np.unique(sweep.labels, return_inverse=True)
    return label.astype(np.int32), len(used)


def promising(state, begin, number):
    """Yield number, labels and objective of clusterings until no better one can follow.

    ``begin`` are the labels at the top, and their number; ``number`` is the given one, or None.
    """
    least = np.inf
    for k, label, objective in merge_path(state, *begin):
        yield k, label, objective
        least = min(least, objective)
        # the least that may follow: no penalties are left, and WORSE has been regained
        bound = objective - state.lam * k - WORSE * state.total
        if bound > least if number is None else k <= number:
            return


def cut_path(state, begin, number):
    """Number and labels of the lowest objective, or of the given number (None: passed over)."""
    best, least = (None, None), np.inf
    for k, label, objective in promising(state, begin, number):
        if objective < least if number is None else k == number:
            best, least = (k, label), objective
    return best


def rows_for(k, d):
    """How many rows a sample has in which there are k clusters."""
    return k * max(ROWS_A_CLUSTER, ROWS_A_COLUMN * d)


def begin_path(state, seeds, n_seeds, number, rng):
    """Labels at the top of a path on ``state``, and the number of their clusters.

    They are those of a k-means. If there are many rows, k-means and the first mergers are made on a
    sample, and all rows then join clusters of its path. ``seeds`` are the centers where
    k-means begins; None: ``n_seeds`` are drawn. ``number`` is as for ``promising``.
    """
    n_seeds = n_seeds if seeds is None else len(seeds)
    data = state.data.sample(rows_for(n_seeds, state.X.shape[1]), rng)
    if seeds is None:
        seeds = distant_rows(data.X, n_seeds, data.w, rng)
    begin = plain_clusters(
        data, seeds, state.identity if state.given_covariances is None else state.given_covariances
    )
    if data is state.data:  # few rows: no sample
        return begin
    coarse = type(state)(
        data.X, data.w, state.lam, state.scale, state.reg, state.given_covariances, data
    )
    found = []
    for clustering in promising(coarse, begin, number):
        found.append(clustering)
        # the next one would have fewer clusters than the path on all rows begins with
        if number is not None and clustering[0] - 1 < ABOVE_SAMPLE * number:
            break
    # the last one with at least ABOVE_SAMPLE times the best, or the given, number of clusters
    least_k = ABOVE_SAMPLE * (min(found, key=lambda c: c[2])[0] if number is None else number)
    above = [c for c in found if c[0] >= least_k]
    k, label, _ = above[-1] if above else found[0]
    coarse.refit(label, k)
    state.take(coarse)
    used, label = np.unique(state.assign()[0], return_inverse=True)
    return label.astype(np.int32), len(used)


def until_some_agree(starts, w):
    """Yield starts until AGREEING_STARTS of them have found the lowest objective."""
    least, agreeing, same = np.inf, 0, AGREEMENT * exact_total(w)
    for start in starts:
        yield start
        if start.objective < least - same:
            agreeing = 0
        agreeing += start.objective <= least + same
        least = min(least, start.objective)
        if agreeing == AGREEING_STARTS:
            return
