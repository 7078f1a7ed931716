"""The search for a merge path: descents on samples of the rows, coarse and fine, in metrics."""

from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smallvar._core.progress import ProgressEvent
from smallvar._selection.best_number import best_clustering, completed
from smallvar._selection.cluster_path import MergePath
from smallvar._selection.envelope import envelope
from smallvar._selection.own_shapes import AROUND, FEWEST_JUDGED, MOST_JUDGED, OwnShapes
from smallvar._selection.sample import squared_euclidean
from smallvar._sweeps.rows import UNSOUND

# A "descent" is a series of mergers from many clusters to one, with k-means sweeps in between. It
# halts at some numbers of clusters: their clusterings make the path.
COARSE_PATH_ROWS = 5000  # rows of the first, coarse descent,
# or fewer, so that rows * columns <= COARSE_NUMBERS, but at least COARSE_PATH_ROWS / 2
COARSE_NUMBERS = 1 << 18
# rows of the fine descent (COARSE_PATH_ROWS, where there are more columns than WIDE_COLUMNS), but
# at least PATH_ROWS_A_CLUSTER for each cluster
FINE_PATH_ROWS, WIDE_COLUMNS, PATH_ROWS_A_CLUSTER = 20_000, 3500, 20
# or fewer, so that rows * columns <= FINE_NUMBERS, but at least those of the coarse one: in many
# columns, more rows of clusters with covariances of their own find pieces of these
FINE_NUMBERS = 2 * COARSE_NUMBERS
# where the coarse sample has too few clusters, and there are more columns than this, a sample of
# COARSE_PATH_ROWS is tried before one of FINE_PATH_ROWS
SAMPLED_TWICE = 512
# a fine descent merges k // CLUSTERS_A_MERGER clusters at a time; where FEW_CLUSTERS are left, one
CLUSTERS_A_MERGER, FEW_CLUSTERS = 50, 32
# Seeds drawn are WIDER times the capacity; there may be more clusters than the capacity if the last
# seeds divide the error by GRAIN times as much as those before (see ``_survey``). In a sample of
# FINE_PATH_ROWS and more LARGE_GRAIN will do: errors of seeds of a cloud scatter less.
WIDER, GRAIN, LARGE_GRAIN = 4, 1.5, 1 / 0.92
REFINED = 4  # descents at most, each finer around the best number than the one before
SINGLE_ROWS = 2000  # rows that are merged from single rows on
FEWEST_CLUSTERS = 2  # clusters: where no more are found in few rows, a larger sample is tried
PAST = 0.5  # a descent ends at this part of the best number if another one follows
SURE_CONFIDENCE = 0.95  # confidence beyond which no transforms are tried,
SURER_CONFIDENCE = 0.97  # and no own shapes and selections of columns, which are cheaper
# of a tie: criteria of the same clusters in another order may differ by this
CRITERION_ROUNDING = 1e-3
METRIC_DESCENTS = 3  # descents at most in the metric of the clusters, as long as each is better
FIRST_SWEEPS, COARSE_SWEEPS, FINE_SWEEPS = 5, 2, 5
# of the first FINE_SWEEPS; in later sweeps distances may be of projected rows
UNPROJECTED_SWEEPS = 2
ROOM = 1 << 22  # numbers in the centers of a path, kept even where X has fewer


def coarse(k):
    """Number of mergers before the next clustering of a coarse descent."""
    return max(1, k // 10)


def _fine(low, single):
    """Step function: one merger for few clusters or ``single`` above ``low``, else more."""

    def step(k):
        if k <= FEW_CLUSTERS or (single and k > low):
            return 1
        return max(1, min(k - FEW_CLUSTERS, k // (CLUSTERS_A_MERGER if k > low else 10)))

    return step


def around(number, below=10):
    """Step function: single mergers around ``number``, below it one in ``below`` clusters."""
    span = 2 * (number // CLUSTERS_A_MERGER) + 2

    def step(k):
        if k <= FEW_CLUSTERS or abs(k - number) <= span:
            return 1
        above = k > number
        return max(
            1,
            min(
                k - (number + span if above else FEW_CLUSTERS),
                k // (CLUSTERS_A_MERGER if above else below),
            ),
        )

    return step


def fine_rows(d):
    """Number of rows of the fine descent for d columns, unless there are many clusters."""
    return FINE_PATH_ROWS if d <= WIDE_COLUMNS else COARSE_PATH_ROWS


def is_sure(path, confidence=SURE_CONFIDENCE):
    """Whether the number of a path is so clear that no others need to be tried."""
    return path.best > 1 and path.confidence > confidence


def judge(path, sample):
    """Judge the clusterings near the best one by densities with a shape of their own."""
    most = max(FEWEST_JUDGED, path.best + AROUND)
    path.judge(OwnShapes(sample.criterion), most, best_clustering, sample)


@dataclass
class FoundPath:
    """A path, the metric of its best clusters (None: that of the rows), and its sample.

    ``plain`` is the path in the metric of the rows.
    """

    path: MergePath
    metric: Any
    sample: Any
    plain: MergePath | None = None


class PathSearch:
    """The rows of a search and its settings (see ``find_path``), and events for its descents."""

    def __init__(self, problem, rng, init, rough, coarse_rows, callback):
        self.problem, self.rng, self.init, self.rough = problem, rng, init, rough
        self.coarse_rows, self.callback, self.n_events = coarse_rows, callback, 0
        self.share = None

    def of(self, problem):
        """The same search of another problem."""
        new = copy(self)
        new.problem = problem
        return new

    def begin(self, number):
        """Count a round of descents, see `Share`."""
        if self.share is not None:
            self.share.begin(number)

    def enlarge(self):
        """Say that the search goes on with more rows."""
        if self.share is not None:
            self.share.enlarge()

    def report(self, stage, words, best, n_samples, path=None, long=False):
        """Call the callback, unless it is None, with an event for a descent, which may be ``long``.

        That is, in the metric of the clusters; ``path`` is what a fine one has found.
        """
        self.n_events += 1
        if self.callback is not None:
            message, done = f"{stage}: {words}, best {best}", None
            if self.share is not None:
                # few clusters may be more in a larger sample
                sure = path is not None and is_sure(path) and best > FEWEST_CLUSTERS
                done = self.share.after("long" if long else stage, sure, n_samples)
            if done is not None:
                message += f", about {done:.0%} done"
            event = ProgressEvent(stage, self.n_events, message, best, None, n_samples, done)
            self.callback(event)


def find_in_metrics(search, compared=False):
    """The best path; its metric is that in which it was found.

    Where it is to be ``compared`` with one that was not sure, own shapes are tried as there.
    """
    problem, found = search.problem, _find(search)
    metric, sample = found.metric, found.sample
    found = FoundPath(found.path, None, sample, found.path)
    n_descents = METRIC_DESCENTS if problem.lam is None and search.init is None else 0
    for _ in range(n_descents):
        if metric is None:
            break
        # again from the same clusters, in the metric that makes the best ones round
        start = sample.use_metric(metric, found.path.modeled(found.path.longest))
        step = _fine(0, False) if problem.number is None else around(problem.number)
        candidate, next_metric = _descend(problem, sample, start, step)
        n = sample.descent.X.shape[0]
        if n <= SINGLE_ROWS and problem.number is None and sample.criterion.floor.any():
            # few rows: mergers from single rows in this metric may lead to better clusters
            start = _survey(search, sample, max(20, int(4 * np.sqrt(n)))).centers
            again, again_metric = _descend(problem, sample, start, step)
            if again.value < candidate.value - CRITERION_ROUNDING * sample.criterion.tie:
                candidate, next_metric = again, again_metric
        metric = next_metric
        words = f"{candidate.longest} long clusters and fewer"
        search.report("path", words, candidate.best, candidate.n_samples, candidate, True)
        if not candidate.value < found.path.value - sample.criterion.tie:
            break
        found = replace(found, path=candidate, metric=sample.metric)
    free = problem.family is squared_euclidean and problem.lam is problem.number is None
    if free and (compared or not is_sure(found.path, SURER_CONFIDENCE)):
        judge(found.path, sample)
    return found


def _find(search):
    """The path in the metric of the rows, the metric of its best clusters, and the sample.

    In a small sample, clusters of few rows are lost. If it has only one or two clusters, a larger
    sample is tried; in many columns, where that takes long, one in between before.
    """
    problem, coarse_rows = search.problem, search.coarse_rows
    if coarse_rows is None:
        coarse_rows = max(
            COARSE_PATH_ROWS // 2, min(COARSE_PATH_ROWS, COARSE_NUMBERS // problem.X.shape[1])
        )
    size = min(
        problem.n, coarse_rows if problem.number is None else max(coarse_rows, 4 * problem.number)
    )
    found = _find_from(search, size)
    fine = min(problem.n, fine_rows(problem.X.shape[1]))
    free = problem.lam is problem.number is search.init is None and not search.rough
    few = found.path.best <= FEWEST_CLUSTERS and problem.most not in (1, FEWEST_CLUSTERS)
    again = free and few and size < fine
    if again:
        search.enlarge()
        sizes = [fine]
        if problem.X.shape[1] > SAMPLED_TWICE and size < COARSE_PATH_ROWS < fine:
            sizes = [COARSE_PATH_ROWS, fine]
        for rows in sizes:
            larger = _find_from(search, rows, FEWEST_CLUSTERS)
            if larger is None or not larger.path.value_per_row < found.path.value_per_row:
                continue
            if rows == fine or larger.path.best > FEWEST_CLUSTERS:
                return larger
    return found


def _find_from(search, size, above=0):
    """The path, the metric of its best clusters, and the sample, beginning with ``size`` rows.

    A coarse descent on ``size`` rows finds where a fine descent on more rows begins. If the best
    number is near the largest one, both are made again, with more rows and clusters. Returns None
    if the coarse descent finds no more than ``above`` clusters.
    """
    problem, init, rough, rng = search.problem, search.init, search.rough, search.rng
    number = problem.number
    capacity = 0 if number is None else 2 * number  # clusters at the top of the coarse descent
    while True:
        sample = problem.sample(size, rng)
        limit = min(size, max(2, size // 2)) if problem.lam is number is None else size
        capacity = min(size, limit, max(20, int(4 * np.sqrt(size)), capacity))
        if init is None:
            every = 1 if above else 2
            survey = _survey(search, sample, capacity, every)
            start, factor = survey.centers, survey.factor
        else:
            start, factor = init[:, problem.varying], 1
        last = rough or (size == problem.n and capacity == limit)
        if factor > 1 and not last:
            size, capacity = min(problem.n, 4 * size), factor * capacity
            continue
        if init is None and survey.best <= above:
            return None
        d = problem.X.shape[1]
        fine_size = max(
            size, min(fine_rows(d), FINE_NUMBERS // d), PATH_ROWS_A_CLUSTER * start.shape[0]
        )
        fine_size = min(problem.n, fine_size)
        if fine_size > size and not rough:
            sample = problem.sample(fine_size, rng)
        # fine descents, each with single mergers in a narrower range around the best number
        low, single = (0, True) if init is not None else (len(start) // 3, False)
        largest, left = len(start), REFINED
        while True:
            step_of = _fine(low, single) if number is None else around(number)
            path, metric = _descend(problem, sample, start, step_of, not single)
            words = f"{path.n_samples} rows, {path.longest} clusters and fewer"
            search.report("path", words, path.best, path.n_samples, path)
            if number is not None:
                return FoundPath(path, metric, sample)
            missed = path.best <= low and path.best > FEW_CLUSTERS  # below ``low`` steps are large
            whole = path.counts[0] == 1  # else it has ended early, and another one must follow
            step = max(path.best // (10 if missed else CLUSTERS_A_MERGER), 0 if whole else 2)
            left -= 1
            if step < 2 or (single and not missed) or not left:
                break
            # a better number may be among those left out around this one: again from above it
            higher = path.n_clusters[path.n_clusters >= path.best + 2 * step + 2]
            top = higher[0] if len(higher) else path.longest
            start = path.modeled(min(top, path.longest))
            low, single = path.best - 2 * step, True
        full = path.best > 0.85 * largest and largest != problem.most
        if full and init is None and not last:
            size, capacity = min(problem.n, 4 * size), 2 * capacity
            continue
        return FoundPath(path, metric, sample)


def _is_past(problem, clusterings, least):
    """Whether a descent may end: the last of these clusterings is far below the best one.

    Only if the best has at least ``least`` clusters: then a finer descent follows, which comes to
    all lower numbers.
    """
    clusterings = list(clusterings)
    # the first one has the most clusters
    if problem.lam is not None or problem.number is not None or clusterings[0].k < least:
        return False
    best = min(problem.allowed(clusterings), key=problem.value, default=clusterings[-1]).k
    return best >= least and clusterings[-1].k <= PAST * best


def _top(counts, best):
    """The number of clusters, of those in ``counts``, at which the fine descent begins."""
    return min((k for k in counts if k >= best + best // 4 + 10), default=max(counts))


class _Survey(NamedTuple):
    """The centers at which the fine descent begins, and the best number of clusters.

    ``factor``: by which the capacity should grow before that (1: it is large enough).
    """

    centers: NDArray[np.float64]
    factor: int
    best: int


def _survey(search, sample, capacity, every=2):
    """The _Survey by a coarse descent from at most ``capacity`` clusters."""
    problem, descent = search.problem, sample.descent
    n = descent.X.shape[0]
    if n <= SINGLE_ROWS and problem.lam is problem.number is None:
        descent.start()
        descent.merge(max(0, descent.sweep.k - capacity))
        descent.begin()
        return _survey_down(search, sample, every=every)
    sums = descent.seed(
        min(n, WIDER * capacity if problem.number is None else capacity), search.rng
    )
    k = len(sums) - 1
    # sums[j] is the error with j seeds. Many small clusters: seeds beyond the capacity divide it by
    # GRAIN times as much as the seeds before, from a quarter of the capacity on
    fine_grained = k > capacity and sums[capacity] > 0.0
    if fine_grained:
        grain = GRAIN if n < FINE_PATH_ROWS else LARGE_GRAIN
        ratio = sums[capacity // WIDER] / sums[capacity] * (sums[k] / sums[capacity])
        fine_grained = ratio * grain < 1.0
    descent.start(descent.sweep.centers[:capacity])
    return _survey_down(search, sample, fine_grained, every)


def _survey_down(search, sample, fine_grained=False, every=2):
    """The coarse descent from the present clusters of the descent; returns as ``_survey``.

    ``fine_grained``: whether there may be many more clusters. The criterion is computed at each
    clustering (``every`` = 1), at every second one (2), and so on, and for K = 1.
    """
    problem, descent, n = search.problem, sample.descent, sample.descent.X.shape[0]
    descent.run_lloyd(FIRST_SWEEPS)
    clusterings, centers = {}, {}
    for number, k in enumerate(descent.down(coarse, COARSE_SWEEPS)):
        centers[k] = descent.sweep.centers
        if problem.number is None and (k == 1 or number % every == 0):
            clusterings[k] = sample.clustering(problem.lam is None, problem.lam is not None)
            if _is_past(problem, clusterings.values(), 2 * FEW_CLUSTERS):
                break
    if problem.number is not None:
        search.report(
            "coarse path", f"{n} rows, {max(centers)} clusters and fewer", problem.number, n
        )
        return _Survey(centers[_top(centers, problem.number)], 1, problem.number)
    best = min(reversed(problem.allowed(clusterings.values())), key=problem.value).k
    search.report("coarse path", f"{n} rows, {max(clusterings)} clusters and fewer", best, n)
    factor = WIDER if fine_grained else 2 if best > 0.5 * max(clusterings) else 1
    return _Survey(centers[_top(centers, best)], factor, best)


def _descend(problem, sample, start, step, first=False):
    """The path of a fine descent, and the metric of its best clusters (None: that of the rows).

    It begins at the centers ``start``, with ``step(k)`` mergers at k clusters. The ``first``
    descent may end before K = 1, see ``_is_past``.
    """
    descent, tie = sample.descent, sample.criterion.tie
    descent.start(start)
    descent.run_lloyd(UNPROJECTED_SWEEPS)
    descent.project()
    descent.run_lloyd(FINE_SWEEPS - UNPROJECTED_SWEEPS)
    free = problem.family is squared_euclidean and problem.lam is problem.number is None
    visited, lowest, with_metric = [], np.inf, []
    for k in descent.down(step, FINE_SWEEPS):
        visited.append(sample.clustering(True, True, free and k <= MOST_JUDGED))
        lowest = min(lowest, visited[-1].criterion)
        if first and _is_past(problem, visited, 2 * CLUSTERS_A_MERGER):
            break
        # only the best clustering needs its metric, which may be a large matrix
        with_metric.append(visited[-1])
        for clustering in with_metric:
            if lowest + tie < clustering.criterion and clustering.k != problem.number:
                clustering.metric = None
        with_metric = [c for c in with_metric if c.metric is not None]
    visited = completed(problem, sample, visited)
    # from few clusters to many, left out where the error is not below that of fewer clusters
    clusterings, least = [], np.inf
    for clustering in reversed(visited):
        if clustering.error < least or (clustering.k == problem.number and sample.metric is None):
            clusterings.append(clustering)
            least = clustering.error
    if not clusterings:  # no error is finite
        raise ValueError(UNSOUND)
    ranges = envelope([c.k for c in clusterings], [c.error for c in clusterings])
    best = best_clustering(problem, clusterings, sample.criterion)
    # centers of many clusters are not kept where they take more memory than the data
    taken = 0
    for clustering in clusterings:
        taken += clustering.centers.size
        kept = clustering.k <= best.k + 1 or taken <= max(ROOM, problem.X.size)
        clustering.centers = problem.whole(clustering.centers) if kept else None
    # heights are roots of errors of the sample, whose share of all weight is sample.share
    tree = descent.tree
    tree[:, 2] /= np.sqrt(sample.share)
    path = MergePath(problem, clusterings, best, ranges, tree, tie, descent.X.shape[0])
    path.value_per_row = path.value / sample.criterion.distinct
    path.weigh(sample)
    return path, best.metric
