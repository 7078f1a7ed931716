"""Merge paths of Gaussian clusters: from many clusters down to the number that is wanted."""

import numpy as np
from sklearn.cluster import kmeans_plusplus

from smallvar._centers.gaussians import roots_of
from smallvar._core.config import resolve_threads
from smallvar._core.frame import RowsFrame
from smallvar._core.validation import varying_columns
from smallvar._sweeps.dpmeans import DPSweep
from smallvar._sweeps.sums import exact_total

PATH_SWEEPS = 4  # after a merger
PLAIN_SWEEPS = 20  # of a k-means that seeds a start
# the first mergers see so many rows for each cluster at first, or for each cluster and column; they
# end at COARSE times the number of clusters that they find
ROWS_A_CLUSTER, ROWS_A_COLUMN, COARSE = 100, 4, 1.5
SMALL, LARGE = 1e-12, 1e12  # of float32: numbers whose squares can be summed in that type
# by weight: how far a path rises before a lower minimum, at most. Halves of a Gaussian that merge
# lower the objective by 0.37
WORSE = 0.5
# by weight: objectives of starts that differ by less count as one; and after how many there is none
AGREEMENT, ENOUGH = 1e-5, 3


def distant_rows(X, k, w, rng):
    """Rows drawn by k-means++: from columns that vary, as others have nothing but rounding."""
    varying = varying_columns(X)
    columns = X if varying is None else X[:, varying]
    largest = float(np.abs(columns).max())
    if columns.dtype == np.float32 and not SMALL < largest < LARGE:
        # k-means++ squares in the type of the rows; a power of two changes none of its draws
        columns = np.ldexp(columns, -np.frexp(largest)[1])
    return X[kmeans_plusplus(columns, k, sample_weight=w, random_state=rng)[1]]


def merge_path(state, label, k):
    """Clusterings into ever fewer clusters: number, labels and objective of each.

    Greedy mergers, a few sweeps after each; clusters that lose all their rows are gone.
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
    """Labels of a short k-means in the metric of this covariance, and how many there are."""
    X, weight = data.X, data.w if data.layout.weighted else None
    if not np.array_equal(covariance, np.eye(X.shape[1])):
        root = roots_of(covariance[None], None)[0][0]
        X, seeds = X @ root.T, seeds @ root.T
    seeds = np.ascontiguousarray(seeds, dtype=np.float64)
    threads, label = resolve_threads(None), np.zeros(len(data.w), dtype=np.int32)
    frame = RowsFrame(X, weight, threads, seeds)
    sweep = DPSweep(X, weight, None, label, frame, threads, len(seeds), True)
    sweep.start(seeds)
    for _ in range(PLAIN_SWEEPS):
        sweep.assign()
        if not sweep.moved():
            break
        if sweep.needs_float64:
            sweep.use_float64()
        sweep.move_centers()
    found, label = np.unique(sweep.labels, return_inverse=True)
    return label.astype(np.int32), len(found)


def stops(path, begin, number):
    """Clusterings of a path, as far down as may be of use: number, labels and objective of each.

    ``begin``: labels and number of clusters; ``number``: how many are wanted, None: it is found.
    """
    least = np.inf
    for k, label, objective in merge_path(path, *begin):
        yield k, label, objective
        least = min(least, objective)
        beyond = objective - path.lam * k - WORSE * path.total  # all clusters for nothing
        if beyond > least if number is None else k <= number:
            return


def cut_path(path, begin, number):
    """Number of clusters and labels: those wanted, None if they were passed over, or the best."""
    best, least = (None, None), np.inf
    for k, label, objective in stops(path, begin, number):
        if objective < least if number is None else k == number:
            best, least = (k, label), objective
    return best


def begin_path(path, seeds, many, number, rng):
    """Labels that a path begins with, and their number: of a path of fewer rows, or k-means.

    ``seeds``: of the k-means, None: they are drawn, ``many``.
    """
    many = many if seeds is None else len(seeds)
    data = path.data.sample(many * max(ROWS_A_CLUSTER, ROWS_A_COLUMN * path.X.shape[1]), rng)
    if seeds is None:
        seeds = distant_rows(data.X, many, data.w, rng)
    begin = plain_clusters(data, seeds, path.identity if path.known is None else path.known)
    if data is path.data:
        return begin
    coarse = type(path)(data.X, data.w, path.lam, path.scale, path.reg, path.known, data)
    found = []
    for stop in stops(coarse, begin, number):
        found.append(stop)
        # the stops to come have fewer clusters than are taken up
        if number is not None and stop[0] - 1 < COARSE * number:
            break
    wanted = COARSE * (min(found, key=lambda stop: stop[2])[0] if number is None else number)
    above = [stop for stop in found if stop[0] >= wanted]
    k, label, _ = above[-1] if above else found[0]
    coarse.refit(label, k)
    path.take(coarse)
    found, label = np.unique(path.assign()[0], return_inverse=True)
    return label.astype(np.int32), len(found)


def until_some_agree(starts, w):
    """Starts, until ENOUGH of them have found the lowest objective."""
    least, found, same = np.inf, 0, AGREEMENT * exact_total(w)
    for start in starts:
        yield start
        if start.objective < least - same:
            found = 0
        found += start.objective <= least + same
        least = min(least, start.objective)
        if found == ENOUGH:
            return
