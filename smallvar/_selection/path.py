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

COARSE = 5000  # rows of the first, rough way down,
NUMBERS = 1 << 18  # but at most so many numbers, down to half as many rows
# rows of the fine way down (COARSE, where there are more columns than WIDE_COLUMNS), or so many for
# each cluster
FINE, WIDE_COLUMNS, ROWS = 20_000, 3500, 20
# the fine way down stops at every number of clusters below 2 STEPS, in its last part below FEW
STEPS, FEW = 50, 32
WIDER, GRAIN = 4, 1.5  # seeds tried for each there is room for; how much more the others must save
REFINED = 4  # ways down at most, each finer around the best number than the one before
SMALL = 2000  # rows that are merged from single rows on
FEWEST = 2  # clusters: where no more are found in few rows, more rows are looked at
PAST = 0.5  # of the best number: so far below it others are left to a way down that follows
SURE = 0.95  # confidence beyond which no transforms are tried
ROUNDING = 1e-3  # ties by which values of the same clusters, numbered otherwise, may differ
TURNS = 3  # ways down at most in the metric of the clusters, as long as each is better
FIRST_SWEEPS, COARSE_SWEEPS, FINE_SWEEPS = 5, 2, 5
PLAIN_SWEEPS = 2  # of the first fine ones, after which distances may be those of projections
ROOM = 1 << 22  # numbers that the centers of a path may take where the data take fewer


def _coarse(k):
    return max(1, k // 10)


def _fine(low, single):
    """Single steps where few clusters are left, or above ``low`` if asked for; else larger ones."""

    def step(k):
        if k <= FEW or (single and k > low):
            return 1
        return max(1, min(k - FEW, k // (STEPS if k > low else 10)))

    return step


def _about(number):
    """Single steps around this number of clusters and where few are left; else larger ones."""
    span = 2 * (number // STEPS) + 2

    def step(k):
        if k <= FEW or abs(k - number) <= span:
            return 1
        above = k > number
        return max(1, min(k - (number + span if above else FEW), k // (STEPS if above else 10)))

    return step


def _fine_rows(d):
    """Rows of the fine way down, but for many clusters: of many columns fewer."""
    return FINE if d <= WIDE_COLUMNS else COARSE


def dense_bytes(X, rough=False):
    """Memory of the rows that a path is found on, as a dense array, and of square matrices."""
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
    look=None,
    callback=None,
    family=squared_euclidean,
    in_metric=False,
    transforms=True,
):
    """The path on checked data, best by the criterion or, for a given ``lam``, by the objective.

    With a ``number`` of clusters that one is the best: the path is found around it.

    If the clusters found are long, all in the same directions, further ways down measure distances
    as they do; the best one is the path. ``transforms``: one-sided columns are transformed where
    that describes the rows better. ``rough``: only few rows are used. ``look``: so many are
    for the first way down, None: as COARSE and NUMBERS say. ``callback`` is called after every way
    down, unless it is None. Where no ``lam`` is given, the clusterings of the path are brought to
    fixed points of plain sweeps: those that the penalty depends on at once, the others when they
    are asked for; where it is given, all of them are when they are asked for. ``in_metric``: where
    the best path is one in another metric, the sweeps are in that, and so is all of the path.
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
        tell = _Reporter(callback)
        path, plain, sample, turned = _find_in_metrics(problem, rng, init, rough, look, tell)
        plain_rows = transforms and family is squared_euclidean and not rough
        if plain_rows and lam is init is number is None:
            problem.transform = PowerTransform(sample.plain.X, sample.plain.weight)
            skewed = problem.transform.columns
            if skewed and not (path.best > 1 and path.confidence > SURE):
                other = _find_in_metrics(problem, rng, init, rough, look, tell)
                # densities in as many directions can be compared
                same = other[2].criterion.rank == sample.criterion.rank
                lower = same and other[0].value_per_row < path.value_per_row
                if lower and other[0].plausible:
                    path, _, sample, turned = other
            problem.transform = None
            columns = np.flatnonzero(problem.varying)
            path.skewed, path.few_valued = columns[skewed], columns[sample.criterion.few_valued]
        if not in_metric or turned is None or sample.raw is not None:
            path.settle(sample, plain)
            return path
        matrix, origin = np.zeros((X.shape[1], turned.matrix.shape[1])), problem.constant.copy()
        matrix[problem.varying], origin[problem.varying] = turned.matrix, turned.origin
        return path.in_metric(Metric(matrix, origin), X, weight, sample)


def _find_in_metrics(problem, rng, init, rough, look, tell):
    """The best path, that in the metric of the rows, their sample, and the metric of the best."""
    path, metric, sample = _find(problem, rng, init, rough, look, tell)
    plain, turned = path, None
    turns = TURNS if problem.lam is None and init is None else 0
    for _ in range(turns):
        if metric is None:
            break
        start = sample.turn(metric, path.modeled(path.longest))
        step = _fine(0, False) if problem.number is None else _about(problem.number)
        other, next_metric = _descend(problem, sample, start, step)
        n = sample.descent.X.shape[0]
        if n <= SMALL and problem.number is None and sample.criterion.floor.any():
            start, _, _ = _survey(problem, sample, max(20, int(4 * np.sqrt(n))), rng, tell)
            again, again_metric = _descend(problem, sample, start, step)
            if again.value < other.value - ROUNDING * sample.criterion.tie:
                other, next_metric = again, again_metric
        metric = next_metric
        tell("path", f"{other.longest} long clusters and fewer", other.best, other.n_samples)
        if not other.value < path.value - sample.criterion.tie:
            break
        path, turned = other, sample.metric
    return path, plain, sample, turned


class _Reporter:
    """Calls a callback, unless it is None, with an event for each way down."""

    def __init__(self, callback):
        self.callback, self.number = callback, 0

    def __call__(self, stage, words, best, n_samples):
        self.number += 1
        if self.callback is not None:
            message = f"{stage}: {words}, best {best}"
            self.callback(ProgressEvent(stage, self.number, message, best, n_samples=n_samples))


def _find(problem, rng, init, rough, look, tell):
    """The best path, its metric and its rows.

    Clusters of few rows each are lost in a small sample: where one or two clusters are found in
    one, a larger one is tried.
    """
    if look is None:
        look = max(COARSE // 2, min(COARSE, NUMBERS // problem.X.shape[1]))
    size = min(problem.n, look if problem.number is None else max(look, 4 * problem.number))
    found = _find_from(problem, rng, init, rough, size, tell)
    fine = _fine_rows(problem.X.shape[1])
    few = found[0].best <= FEWEST and problem.number is None and FEWEST != problem.most != 1
    if few and size < min(problem.n, fine) and init is None and not rough and problem.lam is None:
        other = _find_from(problem, rng, init, rough, min(problem.n, fine), tell, FEWEST)
        if other is not None and other[0].value_per_row < found[0].value_per_row:
            return other
    return found


def _find_from(problem, rng, init, rough, size, tell, above=0):
    """First from ``size`` rows and in large steps, then from more rows and in single steps.

    Rows and clusters are doubled until there are at least twice as many clusters at the top. None
    where the large steps find no more than ``above`` clusters.
    """
    number = problem.number
    room = 0 if number is None else 2 * number
    while True:
        sample = problem.sample(size, rng)
        limit = min(size, max(2, size // 2)) if problem.lam is number is None else size
        room = min(size, limit, max(20, int(4 * np.sqrt(size)), room))
        if init is None:
            every = 1 if above else 2
            start, wider, best = _survey(problem, sample, room, rng, tell, every)
            if best <= above:
                return None
        else:
            start, wider = init[:, problem.varying], 1
        last = rough or (size == problem.n and room == limit)
        if wider > 1 and not last:
            size, room = min(problem.n, 4 * size), wider * room
            continue
        more = max(size, _fine_rows(problem.X.shape[1]), ROWS * start.shape[0])
        more = min(problem.n, more)
        if more > size and not rough:
            sample = problem.sample(more, rng)
        low, single = (0, True) if init is not None else (len(start) // 3, False)
        reach, turns = len(start), REFINED
        while True:
            way = _fine(low, single) if number is None else _about(number)
            path, metric = _descend(problem, sample, start, way, not single)
            words = f"{path.n_samples} rows, {path.longest} clusters and fewer"
            tell("path", words, path.best, path.n_samples)
            if number is not None:
                return path, metric, sample
            missed = path.best <= low and path.best > FEW
            whole = path.counts[0] == 1  # else it has ended early, and another one must follow
            step = max(path.best // (10 if missed else STEPS), 0 if whole else 2)
            turns -= 1
            if step < 2 or (single and not missed) or not turns:
                break
            # the best is among the numbers left out around this one
            higher = path.n_clusters[path.n_clusters >= path.best + 2 * step + 2]
            top = higher[0] if len(higher) else path.longest
            start = path.modeled(min(top, path.longest))
            low, single = path.best - 2 * step, True
        full = path.best > 0.85 * reach and reach != problem.most
        if full and init is None and not last:
            size, room = min(problem.n, 4 * size), 2 * room
            continue
        return path, metric, sample


def _is_past(problem, stops, least):
    """Whether the last of these stops is far below the best one, which has ``least`` clusters.

    Another way down will come by all numbers below.
    """
    if problem.lam is not None or problem.number is not None:
        return False
    stops = list(stops)
    best = min(problem.allowed(stops), key=problem.value, default=stops[-1]).k
    return best >= least and stops[-1].k <= PAST * best


def _top(counts, best):
    """The number of clusters from which to go down in single steps to about the best one."""
    return min((k for k in counts if k >= best + best // 4 + 10), default=max(counts))


def _survey(problem, sample, room, rng, tell, every=2):
    """The way down in large steps: where that in single steps begins; how many times more room."""
    descent = sample.descent
    n = descent.X.shape[0]
    if n <= SMALL and problem.lam is problem.number is None:
        descent.start(descent.X)
        descent.merge(max(0, descent.sweep.k - room))
        descent.begin()
        return _survey_down(problem, sample, tell, every=every)
    sums = descent.seed(min(n, WIDER * room if problem.number is None else room), rng)
    k = len(sums) - 1
    # seeds beyond the room that lower the sum much more than those before: a finer grain
    grain = k > room and sums[room] > 0.0
    grain = grain and sums[room // WIDER] / sums[room] * (sums[k] / sums[room]) * GRAIN < 1.0
    descent.start(descent.sweep.centers[:room])
    return _survey_down(problem, sample, tell, grain, every)


def _survey_down(problem, sample, tell, grain=False, every=2):
    """From where the descent is; ``grain``: whether there may be many more clusters.

    The criterion is computed at ``every`` first, second, ... stop.
    """
    descent, n = sample.descent, sample.descent.X.shape[0]
    descent.settle(FIRST_SWEEPS)
    stops, centers = {}, {}
    for number, k in enumerate(descent.down(_coarse, COARSE_SWEEPS)):
        centers[k] = descent.sweep.centers
        if problem.number is None and (k == 1 or number % every == 0):
            lowest = problem.lowest(list(stops.values()))
            stops[k] = sample.stop(problem.lam is None, problem.lam is not None, lowest)
            if _is_past(problem, stops.values(), 2 * FEW):
                break
    if problem.number is not None:
        tell("coarse path", f"{n} rows, {max(centers)} clusters and fewer", problem.number, n)
        return centers[_top(centers, problem.number)], 1, problem.number
    best = min(reversed(problem.allowed(stops.values())), key=problem.value).k
    tell("coarse path", f"{n} rows, {max(stops)} clusters and fewer", best, n)
    wider = WIDER if grain else 2 if best > 0.5 * max(stops) else 1
    return centers[_top(centers, best)], wider, best


def _best(problem, stops, values):
    """The stop with the number asked for, the lowest objective, or the lowest criterion.

    Where the lowest criterion is not that of a single cluster, ``values`` (see scores) decide.
    """
    allowed = problem.allowed(stops)
    if problem.number is not None:  # in another metric a path may lack it: it is not taken then
        return allowed[0] if allowed else stops[0]
    best = min(allowed, key=problem.value)
    if problem.lam is not None or best.k == 1:
        return best
    allowed = {stop.k for stop in allowed}
    several = [i for i, stop in enumerate(stops) if stop.k > 1 and stop.k in allowed]
    return stops[min(several, key=lambda i: values[i])]


def _completed(problem, sample, found):
    """The stops, with one at the number asked for whose error is lower than those of fewer."""
    number = problem.number
    fewer = [stop for stop in found if number is not None and stop.k < number]
    if not fewer or sample.turned:
        return found
    base = min(fewer, key=lambda stop: stop.error)
    if any(stop.k == number and stop.error < base.error for stop in found):
        return found
    sample.descent.grow(base.centers, number)
    more = [stop for stop in found if stop.k > number]
    return [*more, sample.stop(True, True), *fewer]


def _descend(problem, sample, start, step, first=False):
    """The way down in single steps; the metric of its best clusters, None where that is plain.

    The first one ends where it is past a number so large that a finer way down follows.
    """
    descent, tie = sample.descent, sample.criterion.tie
    descent.start(start)
    descent.settle(PLAIN_SWEEPS)
    descent.project()
    descent.settle(FINE_SWEEPS - PLAIN_SWEEPS)
    found, lowest, with_metric = [], np.inf, []
    for k in descent.down(step, FINE_SWEEPS):
        found.append(
            sample.stop(True, True, problem.lowest(found) if k != problem.number else np.inf)
        )
        lowest = min(lowest, found[-1].criterion)
        if first and _is_past(problem, found, 2 * STEPS):
            break
        with_metric.append(found[-1])
        for stop in with_metric:
            if lowest + tie < stop.criterion and stop.k != problem.number:
                stop.metric = None  # it is not the best, and may be large
        with_metric = [stop for stop in with_metric if stop.metric is not None]
    found = _completed(problem, sample, found)
    stops, least = [], np.inf
    for stop in reversed(found):  # from few clusters up: one more that saves nothing is left out
        if stop.error < least or (stop.k == problem.number and not sample.turned):
            stops.append(stop)
            least = stop.error
    ranges = envelope([stop.k for stop in stops], [stop.error for stop in stops])
    values = scores(stops, ranges, tie)
    best = _best(problem, stops, values)
    taken = 0
    for stop in stops:
        taken += stop.centers.size
        kept = stop.k <= best.k + 1 or taken <= max(ROOM, problem.X.size)
        stop.centers = problem.whole(stop.centers) if kept else None
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
