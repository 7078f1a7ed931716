"""The best start of a fit of the hard HDP, and the choice of its number of global clusters.

Candidates are the clusterings of a merge path of the pooled rows. Each is refined per data set and
rated by the criterion V of ``smallvar._selection``, in which a code for the labels of each data set
by itself replaces the code for all rows together. In order: the length of that code, the criterion,
the sample on which numbers are compared, the search over the path, and the starts.
"""

from dataclasses import replace

import numpy as np
from scipy.special import gammaln

from smallvar._centers.hdp_problem import HDPFitted
from smallvar._core.fit_loop import LoopSettings, best_of
from smallvar._core.groups import Groups
from smallvar._core.validation import check_weights, unit_of
from smallvar._selection.envelope import penalty_within
from smallvar._selection.search import FEW_CLUSTERS

COMPARED_ROWS = 20_000  # rows, at most, of the data sets on which numbers of clusters are compared
# of neighboring numbers in the first comparison (all numbers below 1 / (NUMBERS_RATIO - 1))
NUMBERS_RATIO = 1.25
POOLED_SWEEPS = 5  # Lloyd sweeps of the pooled rows before data sets drop local clusters
# sweeps per data set, at most, before numbers are compared: numbers too large converge slowly, and
# what later sweeps gain is small beside the differences of the criterion
COMPARED_SWEEPS = 10
FURTHER = 20  # pooled clusters beyond an exact number, of which data sets may give up all


def label_code(counts, sets, n_clusters):
    """Length in nats of a code for the labels of data sets, given their numbers of local clusters.

    ``counts`` are the numbers of rows of the local clusters, ``sets`` the data set of each (0, 1,
    ..., without gaps). The code of a data set of N rows and m local clusters says which of the K
    global clusters these are, how many rows each has, and which rows:
    log C(K, m) + log C(N - 1, m - 1) + log(N! / prod N_k!).
    """
    n_rows, n_local = np.bincount(sets, counts), np.bincount(sets).astype(float)
    n_rows = np.maximum(n_rows, n_local)  # weights below 1 may sum to less than n_local
    # which clusters, and how many rows in each: compositions of N into m positive parts
    code = log_choices(n_clusters, n_local) + log_choices(n_rows - 1.0, n_local - 1.0)
    code += gammaln(np.bincount(sets, counts) + 1.0)
    return float(code.sum() - gammaln(counts + 1.0).sum())


def log_choices(n, m):
    """Logarithm of the binomial coefficient C(n, m)."""
    return gammaln(n + 1.0) - gammaln(m + 1.0) - gammaln(n - m + 1.0)


def shared_criterion(criterion, labels, n_clusters, sets):
    """The criterion of labels of several data sets: the lower, the better.

    V + 2 min(0, sum_j L_j - L), where V is the criterion of the pooled rows, L_j the length of the
    code for the labels of data set j, and L that for all rows as one data set. V has the code of
    length L in it, as -2 times a log likelihood. The other codes replace it where they are shorter
    together. With one data set the second term is 0.
    """
    sweep = criterion.relabeled(labels, n_clusters)
    V = criterion(sweep)[0]
    distinct_share = criterion.distinct / criterion.n
    # a pair is a local cluster: data set * n_clusters + global cluster
    pair_of_row = sets.number.astype(np.int64) * n_clusters + labels
    pairs = np.flatnonzero(np.bincount(pair_of_row))
    # repeated rows count once, as in the criterion
    counts = distinct_share * np.bincount(pair_of_row, criterion.weight)[pairs]
    code = label_code(counts, pairs // n_clusters, n_clusters)
    pooled = np.bincount(pairs % n_clusters, counts, n_clusters)
    # ``code`` is now sum_j L_j - L
    code -= label_code(pooled, np.zeros(n_clusters, dtype=np.intp), n_clusters)
    return V + 2.0 * min(0.0, code)


def sample_of(problem, rng):
    """The HDPProblem of whole data sets, drawn at random, up to COMPARED_ROWS rows together."""
    X, weight, sets = problem.X, problem.weight, problem.sets
    if len(X) > COMPARED_ROWS:
        order = rng.permutation(len(sets))
        drawn = np.cumsum(np.bincount(sets.number)[order]) <= COMPARED_ROWS
        # one data set at least, even if it is larger
        drawn[0] = True
        rows = np.flatnonzero(np.isin(sets.number, order[drawn]))
        X, sets = X[rows], Groups(sets.number[rows], len(rows))
        weight = None if weight is None else check_weights(weight[rows], len(rows))
    return problem.of(X, None if weight is None else weight / unit_of(weight), sets)


def value_of(problem, centers):
    """The criterion that data sets reach from pooled centers; infinite for too many."""
    if len(centers) > max(1, problem.criterion.cap):
        return np.inf
    pooled = problem.pooled(centers, LoopSettings(POOLED_SWEEPS))
    loop = LoopSettings(min(problem.settings.loop.max_iter, COMPARED_SWEEPS))
    # data sets leave clusters: fewer may remain
    sweep = problem.from_pooled(pooled, loop).sweep
    return shared_criterion(problem.criterion, sweep.result()[0], sweep.k, problem.sets)


def choose_number(problem, path, rng):
    """The number of clusters on a merge path of all rows with the lowest shared criterion.

    ``problem`` is the HDPProblem of the rows. Numbers that differ by a quarter are compared first,
    then those between the neighbors of the best. The number of the path itself is kept unless
    another one is better by more than ``tie``, the cost of one parameter.
    """
    if len(problem.sets) == 1:
        return path.best
    sample = sample_of(problem, rng)
    if sample.criterion is None:
        return path.best
    available = [int(k) for k in path.n_clusters if k <= path.longest]
    values = {}

    def compare(numbers):
        """The best number of clusters of all that were compared so far, these included."""
        for k in numbers:
            if k not in values:
                values[k] = value_of(sample, path.centers(k))
        return min(values, key=lambda k: (values[k], k))

    # numbers in a geometric sequence, and the choice for the pooled rows
    coarse = [available[0]]
    for k in available:
        if k >= max(coarse[-1] + 1, int(NUMBERS_RATIO * coarse[-1])):
            coarse.append(k)
    best = compare(sorted({*coarse, path.best}))
    compared = sorted(values)
    i = compared.index(best)
    low, high = compared[max(i - 1, 0)], compared[min(i + 1, len(compared) - 1)]
    # then up to FEW_CLUSTERS numbers between the neighbors of the best one
    between = [k for k in available if low < k < high]
    best = compare(between[:: max(1, len(between) // FEW_CLUSTERS)])
    return path.best if values[path.best] <= values[best] + sample.criterion.tie else best


def best_fit(problem, rng):
    """The best start for the rows of an HDPProblem, as HDPFitted."""
    settings, pooled, path = problem.settings, None, None
    if "auto" in (settings.lam_local, settings.lam_global):
        # a merge path of all rows as one data set: clusters to start from, and their variance
        pooled = problem.pooled_path(rng)
        path = pooled.path.seen()
    if settings.lam_global == "auto":
        return _best_pooled(problem, pooled, path, rng)
    lam_local, lam_global = problem.local_penalty(pooled), problem.given_global
    orders = (problem.sets.order(rng if i else None) for i in range(settings.n_init))
    starts = (problem.from_mean(order, lam_local, lam_global) for order in orders)
    best = best_of(starts, total=settings.n_init, callback=settings.loop.callback)
    return HDPFitted(best, lam_global, path)


def _best_pooled(problem, pooled, path, rng):
    """The start from pooled clusters of a path, with a global penalty that fits its result."""
    loop, number = problem.settings.loop, problem.settings.n_clusters

    def start_at(k):
        """The start from the k pooled clusters of the path; fewer may remain."""
        clusters = pooled
        if k != path.best:  # of which ``pooled`` are the clusters
            clusters = problem.pooled(path.centers(k), replace(loop, tol=0.0))
        return problem.from_pooled(clusters, loop)

    if number is None:
        best = start_at(choose_number(problem, path, rng))
    else:
        best = _exact_start(problem, path, start_at)
    sweep = best.sweep
    # at a lower penalty a row (step 4) or a local cluster (step 5) would open a global cluster
    low = max(sweep.split, sweep.farthest - best.lam_local)
    labels, _, centers, *_ = sweep.result()
    high = problem.largest_global_penalty(labels, centers)
    inside = penalty_within(low, high, 2.0 * sweep.error or best.lam_local)
    # rounding may put ``inside`` below ``low``
    return HDPFitted(best, max(float(low), inside), path, (low, high))


def _exact_start(problem, path, start_at):
    """The start that ends with the exact number of global clusters.

    Data sets may give up all local clusters of a global one, so more may be needed at first.
    """
    number, most = problem.settings.n_clusters, 0
    for k in path.n_clusters:
        if number <= k <= min(path.longest, number + FURTHER):
            start = start_at(int(k))
            if start.k == number:
                return start
            most = max(most, start.k if start.k < number else 0)
    raise ValueError(
        f"n_clusters={number} global clusters are not found: {most} are left of up to "
        f"{number + FURTHER}, as data sets keep local clusters only that save "
        f"lam_local={start.lam_local * problem.settings.lightest:.6g}"
    )
