"""The number of global clusters of the hard HDP that data sets with few local ones support."""

import numpy as np
from scipy.special import gammaln

from smallvar._centers.dpmeans import fit_dpmeans
from smallvar._centers.starts import Fit
from smallvar._core.fit_loop import LoopSettings
from smallvar._core.frame import RowsFrame
from smallvar._core.groups import Groups
from smallvar._core.validation import check_weights, unit_of
from smallvar._selection.criterion import Criterion
from smallvar._selection.path import FEW

ROWS = 20_000  # rows of the data sets that numbers of clusters are compared on
RATIO = 1.25  # of neighboring numbers in the first comparison, above 1 / (RATIO - 1)
SWEEPS = 5  # sweeps of pooled rows for each number before data sets drop local clusters


def label_code(counts, sets, n_clusters):
    """Length in nats of a code for the labels of data sets, given their numbers of local clusters.

    ``counts`` are the rows of the local clusters, ``sets`` the data set of each, without gaps. A
    data set of N rows and m local clusters says which global ones they are, how many rows each
    has, and which these are: log C(K, m) + log C(N - 1, m - 1) + log(N! / prod N_k!).
    """
    rows, locals_ = np.bincount(sets, counts), np.bincount(sets).astype(float)
    rows = np.maximum(rows, locals_)  # light rows
    code = _log_choices(n_clusters, locals_) + _log_choices(rows - 1.0, locals_ - 1.0)
    code += gammaln(np.bincount(sets, counts) + 1.0)
    return float(code.sum() - gammaln(counts + 1.0).sum())


def _log_choices(n, m):
    """log C(n, m)."""
    return gammaln(n + 1.0) - gammaln(m + 1.0) - gammaln(n - m + 1.0)


def shared_criterion(criterion, labels, n_clusters, sets):
    """The criterion of labels of several data sets: the lower, the better.

    It is that of the pooled rows, with a code for the labels of each data set by itself in place of
    one for all rows together, where that is shorter. With one data set both are the same.
    """
    sweep = criterion.relabeled(labels, n_clusters)
    V = criterion(sweep)[0]
    share = criterion.distinct / criterion.n
    pairs, of = np.unique(sets.number.astype(np.int64) * n_clusters + labels, return_inverse=True)
    counts = share * np.bincount(of, criterion.weight)
    code = label_code(counts, pairs // n_clusters, n_clusters)
    pooled = np.bincount(pairs % n_clusters, counts, n_clusters)
    code -= label_code(pooled, np.zeros(n_clusters, dtype=np.intp), n_clusters)
    return V + 2.0 * min(0.0, code)


class _Sample:
    """Whole data sets, up to ROWS rows, and the criterion on them."""

    def __init__(self, X, weight, sets, rng, n_threads):
        if len(X) > ROWS:
            order = rng.permutation(len(sets))
            taken = np.cumsum(np.bincount(sets.number)[order]) <= ROWS
            taken[0] = True
            rows = np.flatnonzero(np.isin(sets.number, order[taken]))
            X, sets = X[rows], Groups(sets.number[rows], len(rows))
            weight = None if weight is None else check_weights(weight[rows], len(rows))
        weight = None if weight is None else weight / unit_of(weight)
        self.X, self.weight, self.sets, self.n_threads = X, weight, sets, n_threads
        varying = RowsFrame(X, weight, n_threads).spread > 0.0
        self.varies = bool(varying.any())
        if self.varies:
            X = X if varying.all() else np.ascontiguousarray(X[:, varying])
            frame = RowsFrame(X, weight, n_threads)
            self.criterion = Criterion(X, weight, frame, n_threads)

    def value(self, centers, refine):
        """The criterion with these pooled centers to begin at."""
        k = len(centers)
        if k > max(1, self.criterion.cap):
            return np.inf
        pooled = pooled_clusters(self.X, self.weight, centers, SWEEPS, self.n_threads)
        labels, k = refine(self.X, self.weight, self.sets, pooled)
        return shared_criterion(self.criterion, labels, k, self.sets)


def pooled_clusters(X, weight, centers, max_iter, n_threads, callback=None):
    """Plain sweeps of all rows from these centers; no cluster opens."""
    loop = LoopSettings(max_iter, callback=callback)
    fit = Fit(X.shape[0], 1.0, loop, max_clusters=len(centers), init=centers)
    return fit_dpmeans(X, weight, fit, None, n_threads)


def choose_number(X, weight, sets, path, refine, rng, n_threads):
    """The number of clusters on a merge path of the pooled rows that data sets support best.

    ``refine(X, weight, sets, pooled)`` returns the labels that data sets end at, and the number of
    their clusters. Numbers on the path are compared a quarter apart first, then those next to the
    best; that of the path itself is kept where no other is better by the price of a parameter.
    """
    if len(sets) == 1:
        return path.best
    sample = _Sample(X, weight, sets, rng, n_threads)
    if not sample.varies:
        return path.best
    counts = [int(k) for k in path.n_clusters if k <= path.longest]
    values = {}

    def compare(numbers):
        for k in numbers:
            if k not in values:
                values[k] = sample.value(path.centers(k), refine)
        return min(values, key=lambda k: (values[k], k))

    apart = [counts[0]]
    for k in counts:
        if k >= max(apart[-1] + 1, int(RATIO * apart[-1])):
            apart.append(k)
    best = compare(sorted({*apart, path.best}))
    tried = sorted(values)
    i = tried.index(best)
    low, high = tried[max(i - 1, 0)], tried[min(i + 1, len(tried) - 1)]
    between = [k for k in counts if low < k < high]
    best = compare(between[:: max(1, len(between) // FEW)])
    return path.best if values[path.best] <= values[best] + sample.criterion.tie else best
