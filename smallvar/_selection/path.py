"""The merge path: clusterings into every number of clusters, and the penalties that suit each."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.utils import check_random_state

from smallvar._core.config import one_blas_thread, resolve_threads
from smallvar._core.progress import ProgressEvent, callback_for
from smallvar._core.validation import (
    Data,
    check_data,
    check_number,
    check_verbose,
    check_weights,
)
from smallvar._selection.columns import BLOCK, PowerTransform
from smallvar._selection.descent import Metric, check_distinct
from smallvar._selection.envelope import envelope, scores
from smallvar._selection.lambda_path import LambdaPath
from smallvar._selection.sample import DENSE_BYTES, Clustering, Problem, squared_euclidean
from smallvar._sweeps.rows import UNSOUND

# A "way down" is a series of mergers from many clusters to one, with k-means sweeps in between. It
# halts at some numbers of clusters, its "stops": the clusterings of a path.
COARSE = 5000  # rows of the first, coarse way down,
NUMBERS = 1 << 18  # or fewer, so that rows * columns <= NUMBERS, but at least COARSE / 2
# rows of the fine way down (COARSE, where there are more columns than WIDE_COLUMNS), but at least
# ROWS for each cluster
FINE, WIDE_COLUMNS, ROWS = 20_000, 3500, 20
# a fine way down merges k // STEPS clusters at a time; where FEW are left, one at a time
STEPS, FEW = 50, 32
# seeds drawn are WIDER times the capacity; there may be more clusters than the capacity if the last
# seeds lower the error GRAIN times as much as those before (see ``_survey``)
WIDER, GRAIN = 4, 1.5
REFINED = 4  # ways down at most, each finer around the best number than the one before
SMALL = 2000  # rows that are merged from single rows on
FEWEST = 2  # clusters: where no more are found in few rows, a larger sample is tried
PAST = 0.5  # a way down ends at this part of the best number if another one follows
SURE = 0.95  # confidence beyond which no transforms are tried
ROUNDING = 1e-3  # of a tie: criteria of the same clusters in another order may differ by this
TURNS = 3  # ways down at most in the metric of the clusters, as long as each is better
FIRST_SWEEPS, COARSE_SWEEPS, FINE_SWEEPS = 5, 2, 5
PLAIN_SWEEPS = 2  # of the first FINE_SWEEPS; in later sweeps distances may be of projected rows
ROOM = 1 << 22  # numbers in the centers of a path, kept even where X has fewer


def _coarse(k):
    """Number of mergers before the next stop of a coarse way down."""
    return max(1, k // 10)


def _fine(low, single):
    """The step function of a fine way down: the number of mergers at k clusters.

    Where few clusters are left, one; with ``single`` one above ``low``, too; else more.
    """

    def step(k):
        if k <= FEW or (single and k > low):
            return 1
        return max(1, min(k - FEW, k // (STEPS if k > low else 10)))

    return step


def _about(number):
    """The step function of a way down with single mergers around this number of clusters."""
    span = 2 * (number // STEPS) + 2

    def step(k):
        if k <= FEW or abs(k - number) <= span:
            return 1
        above = k > number
        return max(1, min(k - (number + span if above else FEW), k // (STEPS if above else 10)))

    return step


def _fine_rows(d):
    """Number of rows of the fine way down for d columns, unless there are many clusters."""
    return FINE if d <= WIDE_COLUMNS else COARSE


def dense_bytes(X, rough=False):
    """Bytes of the rows that a path is found on, as a dense array, and of square matrices."""
    n, d = X.shape
    rows = min(n, COARSE if rough else _fine_rows(d))
    return 8 * (rows * d + 4 * min(rows, d) ** 2)


def find_path(
    X,
    weight,
    rng,
    n_threads,
    *,
    lam=None,
    most=None,
    number=None,
    init=None,
    rough=False,
    coarse_rows=None,
    callback=None,
    family=squared_euclidean,
    in_metric=False,
    transforms=True,
):
    """The merge path of checked data, with the number of clusters chosen.

    The number has the lowest criterion or, for a given ``lam``, the lowest objective, of those up
    to ``most``. A given ``number`` is the one chosen, and the path is found around it.

    If the clusters found are long, all in the same directions, further ways down measure distances
    in the metric that makes them round, and the best way down gives the path.

    Where no ``lam`` is given, the clusterings are brought to fixed points of plain sweeps: those
    that the penalty depends on at once, the others when the path is asked for them. For a given
    ``lam`` all are brought there when asked for.

    - ``init``: the centers at which the way down begins, None: seeds.
    - ``rough``: only few rows are used.
    - ``coarse_rows``: number of rows of the first way down, None: by COARSE and NUMBERS.
    - ``callback``: called after every way down, unless it is None.
    - ``family``: makes the criterion and the descent: ``squared_euclidean`` or that of divergences.
    - ``in_metric``: if the best path is in another metric, the fixed points and all of the path are
      in that metric, too.
    - ``transforms``: one-sided columns are transformed where that describes the rows better.
    """
    if issparse(X) and dense_bytes(X, rough) > DENSE_BYTES:
        raise ValueError(
            "lam must be a number (or 'farthest-first') for sparse X of this shape: the merge path "
            f"behind 'auto' would hold {dense_bytes(X, rough)} bytes of dense rows and matrices "
            f"for {X.shape[1]} columns, more than {DENSE_BYTES}; or make fewer columns by "
            "sklearn.decomposition.TruncatedSVD"
        )
    problem = Problem(X, weight, n_threads, family, lam, most, number)
    if not problem.varying.any():
        check_distinct(1, number)
        single = Clustering(1, problem.constant[None], criterion=0.0, error=0.0)
        return LambdaPath(problem, [single], single, ([0.0], [np.inf]), [], 0.0, problem.n)
    with one_blas_thread(min(X.shape[0], BLOCK), X.shape[1]):
        report = _Reporter(callback)
        path, plain, sample, metric = _find_in_metrics(
            problem, rng, init, rough, coarse_rows, report
        )
        plain_rows = transforms and family is squared_euclidean and not rough
        if plain_rows and lam is init is number is None:
            problem.transform = PowerTransform(sample.plain.X, sample.plain.weight)
            skewed = problem.transform.columns
            if skewed and not (path.best > 1 and path.confidence > SURE):
                transformed = _find_in_metrics(problem, rng, init, rough, coarse_rows, report)
                # densities compare only if they are of equally many directions
                same = transformed[2].criterion.rank == sample.criterion.rank
                lower = same and transformed[0].value_per_row < path.value_per_row
                if lower and transformed[0].plausible:
                    path, _, sample, metric = transformed
            problem.transform = None
            columns = np.flatnonzero(problem.varying)
            path.skewed, path.few_valued = columns[skewed], columns[sample.criterion.few_valued]
        if not in_metric or metric is None or sample.raw is not None:
            path.settle(sample, plain)
            return path
        # the metric of all columns: constant ones have the factor 0
        matrix, origin = np.zeros((X.shape[1], metric.matrix.shape[1])), problem.constant.copy()
        matrix[problem.varying], origin[problem.varying] = metric.matrix, metric.origin
        return path.in_metric(Metric(matrix, origin), X, weight, sample)


def _find_in_metrics(problem, rng, init, rough, coarse_rows, report):
    """The best path, the path in the metric of the rows, the sample, and the metric of the best.

    The last is None if the best path is in the metric of the rows.
    """
    path, metric, sample = _find(problem, rng, init, rough, coarse_rows, report)
    plain, best_metric = path, None
    turns = TURNS if problem.lam is None and init is None else 0
    for _ in range(turns):
        if metric is None:
            break
        # down again from the same clusters, in the metric that makes the best ones round
        start = sample.turn(metric, path.modeled(path.longest))
        step = _fine(0, False) if problem.number is None else _about(problem.number)
        candidate, next_metric = _descend(problem, sample, start, step)
        n = sample.descent.X.shape[0]
        if n <= SMALL and problem.number is None and sample.criterion.floor.any():
            # few rows: mergers from single rows in this metric may lead to better clusters
            start, _, _ = _survey(problem, sample, max(20, int(4 * np.sqrt(n))), rng, report)
            again, again_metric = _descend(problem, sample, start, step)
            if again.value < candidate.value - ROUNDING * sample.criterion.tie:
                candidate, next_metric = again, again_metric
        metric = next_metric
        words = f"{candidate.longest} long clusters and fewer"
        report("path", words, candidate.best, candidate.n_samples)
        if not candidate.value < path.value - sample.criterion.tie:
            break
        path, best_metric = candidate, sample.metric
    return path, plain, sample, best_metric


class _Reporter:
    """A function that calls the callback, unless it is None, with an event for each way down."""

    def __init__(self, callback):
        self.callback, self.number = callback, 0

    def __call__(self, stage, words, best, n_samples):
        self.number += 1
        if self.callback is not None:
            message = f"{stage}: {words}, best {best}"
            self.callback(ProgressEvent(stage, self.number, message, best, n_samples=n_samples))


def _find(problem, rng, init, rough, coarse_rows, report):
    """The path in the metric of the rows, the metric of its best clusters, and the sample.

    In a small sample, clusters of few rows are lost. If it has only one or two clusters, a larger
    sample is tried.
    """
    if coarse_rows is None:
        coarse_rows = max(COARSE // 2, min(COARSE, NUMBERS // problem.X.shape[1]))
    size = min(
        problem.n, coarse_rows if problem.number is None else max(coarse_rows, 4 * problem.number)
    )
    found = _find_from(problem, rng, init, rough, size, report)
    fine = _fine_rows(problem.X.shape[1])
    more_allowed = problem.number is None and problem.most not in (1, FEWEST)
    few = found[0].best <= FEWEST and more_allowed
    if few and size < min(problem.n, fine) and init is None and not rough and problem.lam is None:
        larger = _find_from(problem, rng, init, rough, min(problem.n, fine), report, FEWEST)
        if larger is not None and larger[0].value_per_row < found[0].value_per_row:
            return larger
    return found


def _find_from(problem, rng, init, rough, size, report, above=0):
    """The path, the metric of its best clusters, and the sample, beginning with ``size`` rows.

    A coarse way down on ``size`` rows finds where a fine way down on more rows begins. If the best
    number is near the largest one, both are made again, with more rows and clusters. Returns None
    if the coarse way down finds no more than ``above`` clusters.
    """
    number = problem.number
    capacity = 0 if number is None else 2 * number  # clusters at the top of the coarse way down
    while True:
        sample = problem.sample(size, rng)
        limit = min(size, max(2, size // 2)) if problem.lam is number is None else size
        capacity = min(size, limit, max(20, int(4 * np.sqrt(size)), capacity))
        if init is None:
            every = 1 if above else 2
            start, factor, best = _survey(problem, sample, capacity, rng, report, every)
            if best <= above:
                return None
        else:
            start, factor = init[:, problem.varying], 1
        last = rough or (size == problem.n and capacity == limit)
        if factor > 1 and not last:
            size, capacity = min(problem.n, 4 * size), factor * capacity
            continue
        fine_size = max(size, _fine_rows(problem.X.shape[1]), ROWS * start.shape[0])
        fine_size = min(problem.n, fine_size)
        if fine_size > size and not rough:
            sample = problem.sample(fine_size, rng)
        # fine ways down, each with single mergers in a narrower range around the best number
        low, single = (0, True) if init is not None else (len(start) // 3, False)
        largest, turns = len(start), REFINED
        while True:
            step_of = _fine(low, single) if number is None else _about(number)
            path, metric = _descend(problem, sample, start, step_of, not single)
            words = f"{path.n_samples} rows, {path.longest} clusters and fewer"
            report("path", words, path.best, path.n_samples)
            if number is not None:
                return path, metric, sample
            missed = path.best <= low and path.best > FEW  # below ``low`` steps are large
            whole = path.counts[0] == 1  # else it has ended early, and another one must follow
            step = max(path.best // (10 if missed else STEPS), 0 if whole else 2)
            turns -= 1
            if step < 2 or (single and not missed) or not turns:
                break
            # a better number may be among those left out around this one: down again from above it
            higher = path.n_clusters[path.n_clusters >= path.best + 2 * step + 2]
            top = higher[0] if len(higher) else path.longest
            start = path.modeled(min(top, path.longest))
            low, single = path.best - 2 * step, True
        full = path.best > 0.85 * largest and largest != problem.most
        if full and init is None and not last:
            size, capacity = min(problem.n, 4 * size), 2 * capacity
            continue
        return path, metric, sample


def _is_past(problem, stops, least):
    """Whether a way down may end: the last of these stops is far below the best one.

    Only if the best has at least ``least`` clusters: then a finer way down follows, which comes to
    all lower numbers.
    """
    if problem.lam is not None or problem.number is not None:
        return False
    stops = list(stops)
    best = min(problem.allowed(stops), key=problem.value, default=stops[-1]).k
    return best >= least and stops[-1].k <= PAST * best


def _top(counts, best):
    """The number of clusters, of those in ``counts``, at which the fine way down begins."""
    return min((k for k in counts if k >= best + best // 4 + 10), default=max(counts))


def _survey(problem, sample, capacity, rng, report, every=2):
    """The coarse way down, from at most ``capacity`` clusters.

    Returns the centers at which the fine way down begins, the factor by which the capacity should
    grow before that (1: it is large enough), and the best number of clusters.
    """
    descent = sample.descent
    n = descent.X.shape[0]
    if n <= SMALL and problem.lam is problem.number is None:
        descent.start(descent.X)
        descent.merge(max(0, descent.sweep.k - capacity))
        descent.begin()
        return _survey_down(problem, sample, report, every=every)
    sums = descent.seed(min(n, WIDER * capacity if problem.number is None else capacity), rng)
    k = len(sums) - 1
    # sums[j] is the error with j seeds. Many small clusters: seeds beyond the capacity divide it by
    # GRAIN times as much as the seeds before, from a quarter of the capacity on
    fine_grained = k > capacity and sums[capacity] > 0.0
    fine_grained = (
        fine_grained
        and sums[capacity // WIDER] / sums[capacity] * (sums[k] / sums[capacity]) * GRAIN < 1.0
    )
    descent.start(descent.sweep.centers[:capacity])
    return _survey_down(problem, sample, report, fine_grained, every)


def _survey_down(problem, sample, report, fine_grained=False, every=2):
    """The coarse way down from the present clusters of the descent; returns as ``_survey``.

    ``fine_grained``: whether there may be many more clusters. The criterion is computed at each
    stop (``every`` = 1), at every second one (2), and so on, and for K = 1.
    """
    descent, n = sample.descent, sample.descent.X.shape[0]
    descent.run_lloyd(FIRST_SWEEPS)
    stops, centers = {}, {}
    for number, k in enumerate(descent.down(_coarse, COARSE_SWEEPS)):
        centers[k] = descent.sweep.centers
        if problem.number is None and (k == 1 or number % every == 0):
            lowest = problem.lowest(list(stops.values()))
            stops[k] = sample.stop(problem.lam is None, problem.lam is not None, lowest)
            if _is_past(problem, stops.values(), 2 * FEW):
                break
    if problem.number is not None:
        report("coarse path", f"{n} rows, {max(centers)} clusters and fewer", problem.number, n)
        return centers[_top(centers, problem.number)], 1, problem.number
    best = min(reversed(problem.allowed(stops.values())), key=problem.value).k
    report("coarse path", f"{n} rows, {max(stops)} clusters and fewer", best, n)
    factor = WIDER if fine_grained else 2 if best > 0.5 * max(stops) else 1
    return centers[_top(centers, best)], factor, best


def _best(problem, stops, values):
    """The stop with the given number of clusters, the lowest objective, or the lowest criterion.

    If the lowest criterion is not that of a single cluster, the lowest of ``values``, which are
    ``scores`` of the stops, decides among the others.
    """
    allowed = problem.allowed(stops)
    if problem.number is not None:
        # a path in another metric may lack the number; any stop will do, as it is not used then
        return allowed[0] if allowed else stops[0]
    best = min(allowed, key=problem.value)
    if problem.lam is not None or best.k == 1:
        return best
    allowed = {stop.k for stop in allowed}
    several = [i for i, stop in enumerate(stops) if stop.k > 1 and stop.k in allowed]
    return stops[min(several, key=lambda i: values[i])]


def _completed(problem, sample, stops):
    """The stops, with one at the given number of clusters whose error is below those of fewer.

    If the way down has none, it grows from the stop with fewer clusters and the least error.
    """
    number = problem.number
    fewer = [stop for stop in stops if number is not None and stop.k < number]
    if not fewer or sample.turned:
        return stops
    base = min(fewer, key=lambda stop: stop.error)
    if any(stop.k == number and stop.error < base.error for stop in stops):
        return stops
    sample.descent.grow(base.centers, number)
    more = [stop for stop in stops if stop.k > number]
    return [*more, sample.stop(True, True), *fewer]


def _descend(problem, sample, start, step, first=False):
    """The path of a fine way down, and the metric of its best clusters (None: that of the rows).

    It goes down from the centers ``start``, by ``step(k)`` mergers at k clusters. The ``first`` way
    down may end before K = 1, see ``_is_past``.
    """
    descent, tie = sample.descent, sample.criterion.tie
    descent.start(start)
    descent.run_lloyd(PLAIN_SWEEPS)
    descent.project()
    descent.run_lloyd(FINE_SWEEPS - PLAIN_SWEEPS)
    visited, lowest, with_metric = [], np.inf, []
    for k in descent.down(step, FINE_SWEEPS):
        bound = problem.lowest(visited) if k != problem.number else np.inf
        visited.append(sample.stop(True, True, bound))
        lowest = min(lowest, visited[-1].criterion)
        if first and _is_past(problem, visited, 2 * STEPS):
            break
        # only the best stop needs its metric, which may be a large matrix
        with_metric.append(visited[-1])
        for stop in with_metric:
            if lowest + tie < stop.criterion and stop.k != problem.number:
                stop.metric = None
        with_metric = [stop for stop in with_metric if stop.metric is not None]
    visited = _completed(problem, sample, visited)
    # from few clusters to many: a stop is left out if its error is not below that of fewer clusters
    stops, least = [], np.inf
    for stop in reversed(visited):
        if stop.error < least or (stop.k == problem.number and not sample.turned):
            stops.append(stop)
            least = stop.error
    if not stops:  # no error is finite
        raise ValueError(UNSOUND)
    ranges = envelope([stop.k for stop in stops], [stop.error for stop in stops])
    values = scores(stops, ranges, tie)
    best = _best(problem, stops, values)
    # centers of many clusters are not kept where they take more memory than the data
    taken = 0
    for stop in stops:
        taken += stop.centers.size
        kept = stop.k <= best.k + 1 or taken <= max(ROOM, problem.X.size)
        stop.centers = problem.whole(stop.centers) if kept else None
    # heights are roots of errors of the sample, whose share of all weight is sample.share
    tree = descent.tree
    tree[:, 2] /= np.sqrt(sample.share)
    path = LambdaPath(problem, stops, best, ranges, tree, tie, descent.X.shape[0])
    path.value_per_row = path.value / sample.criterion.distinct
    path.weigh(stops, values, ranges, sample)
    return path, best.metric


def lambda_path(
    X: Data,
    *,
    sample_weight: ArrayLike | None = None,
    max_clusters: int | None = None,
    random_state: int | np.random.RandomState | None = None,
    n_threads: int | None = None,
    verbose: int = 0,
) -> LambdaPath:
    """Find clusterings into every number of clusters, and the number the data speak for.

    For every K from 1 on this minimizes the k-means objective

        S(K) = sum_i w_i ||x_i - mu_{z_i}||^2

    by merging the pair of clusters that raises it least, (w_a w_b / (w_a + w_b)) ||mu_a - mu_b||^2,
    from many clusters down to one, with k-means sweeps after every merger, and at last to a fixed
    point for every K. So the K for which S(K) + lam K is least is known for all lam at once. Among
    all K the one is chosen that minimizes a description length, the ``criterion``: see Notes.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Data; float32 and float64 are used as they are. Of sparse data the rows that are used become
        dense: refused where these, and square matrices of as many rows as there are columns, or of
        rows used if these are fewer, take more than 1 GiB.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights >= 0, not all zero; None means 1 each.
    max_clusters : int, default=None
        Never choose more clusters than this.
    random_state : int, RandomState instance or None, default=None
        Generator of the first clusters, and of the rows used where there are many: more than
        5,000, with many columns 2,500.
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.
    verbose : int, default=0
        Print how the search goes on.

    Returns
    -------
    path : LambdaPath
        Arrays ``counts``, ``error``, ``criterion``, ``lam_low``, ``lam_high``, ``ranking``,
        ``linkage``; the number chosen, ``best``, how likely it is right, ``confidence``, and a
        penalty for it, ``lam``; centers and labels by ``path.centers(k)`` and ``path.labels(k)``.

    Raises
    ------
    ValueError, TypeError
        If ``X`` is not a finite, numeric, two-dimensional array, or a parameter is out of bounds.

    See Also
    --------
    DPMeans : With ``lam="auto"``, the clusters of the number chosen.

    Notes
    -----
    With u distinct rows, n the sum of weights and p_k the share of cluster k, the criterion is ::

        (u / n) (-2 sum_i w_i log f(x_i; mu_{z_i}) - 2 n sum_k p_k log p_k)
            + log(u) (1.6 (K - 1) d + 3 (K - 1) + 2 d + 2 (parameters of f)),

    f being the best of a few densities that all clusters share: t (with 3 to 200 degrees of
    freedom) or Gaussian, round, or long in q directions (probabilistic principal components). d is
    the number of directions in which the rows vary at all: columns that are linear combinations
    of others add none. Where that is the number of columns, a single cluster may also be a uniform
    box, and in two columns each cluster may have a covariance of its own.

    *Values recorded in steps.* A column recorded in steps of h (flags, years, counts, rounded
    measurements) tells nothing finer: h**2 / 12, the variance within a step, is added to its
    variance in f. So cutting rows by the m values of a column gains log(m) a row, which is what the
    labels cost. In a column of numbers where many rows share one value, h is the distance of the
    others from it; for categories in one-hot coding it is such that m levels gain log(m). Where all
    columns are recorded in steps, u is the number of rows.

    *One-sided columns.* If columns are skewed by more than 1, and the number is not clear, the path
    is found again with their Yeo-Johnson transforms. It decides on the number if its criterion,
    with the Jacobian, two parameters and .3 u for each such column, is lower. Centers, errors,
    labels and penalties are those of the rows as given.

    *Long clusters.* The way down is taken again in the metric that makes clusters round, from the
    same clusters, and decides if its criterion is lower by more than 2 log(u), the price of a
    parameter; errors and labels are those of plain sweeps from its clusters into the number chosen,
    and for other numbers from those of the way before where these are better.

    *Nearly equal criteria.* From each criterion above K = 1 is taken the price of a parameter times
    log(lam_high / lam_low), which counts up to log(4): of two numbers that are about as good, that
    one is chosen whose clustering is best over the wider range of penalties.

    *Rows.* Rows of weight zero and constant columns take no part, nor do rows in which a gap seems
    to be filled: by the mean or median of a column, a value that 3% of the rows and more share, but
    that is off the grid of the others, or the only one that is shared. At most a third as many
    clusters as distinct rows are chosen (all, where all columns are recorded in steps). Up to 2,000
    rows are merged from single rows on, so that the number does not depend on ``random_state``.
    More rows begin at some 4 sqrt(n) of them, drawn far apart: of 5,000, and where no more than two
    clusters are found, of 20,000. Of more than 20,000 rows (5,000 where there are more than 3,500
    columns; 20 for each cluster in any case) a random sample is used; penalties and inertia are
    those of all rows.

    *Many columns.* Where there are eight columns and more for each cluster, distances on the way
    down, after its first sweeps, are those in the space of the centers that it begins at.

    References
    ----------
    Ward (1963), Hierarchical grouping to optimize an objective function. Biernacki, Celeux &
    Govaert (2000), Assessing a mixture model for clustering with the integrated completed
    likelihood. Tipping & Bishop (1999), Mixtures of probabilistic principal component analyzers.
    Yeo & Johnson (2000), A new family of power transformations to improve normality or symmetry.
    The penalty is that of Kulis & Jordan (2012), Revisiting k-means, section 3.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from smallvar import lambda_path
    >>> X, _ = make_blobs(300, centers=4, random_state=2)
    >>> path = lambda_path(X, random_state=0)
    >>> path.best, path.ranking[:3].tolist()
    (4, [4, 3, 5])
    >>> path.lam_low[3].round(), path.lam_high[3].round()
    (np.float64(66.0), np.float64(369.0))
    >>> path.centers(4).shape, path.labels(2).max()
    ((4, 2), np.int32(1))
    """
    check_verbose(verbose)
    check_number(max_clusters, "max_clusters", low=1, integer=True, none=True)
    check_number(n_threads, "n_threads", low=1, integer=True, none=True)
    X = check_data(X, sparse=True)
    weight = check_weights(sample_weight, X.shape[0])
    rng = check_random_state(random_state)
    threads = resolve_threads(n_threads)
    callback = callback_for(verbose)
    return find_path(X, weight, rng, threads, most=max_clusters, callback=callback)
