"""The search for a merge path: descents on samples of the rows, coarse and fine, in metrics."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from smallvar._core.progress import ProgressEvent
from smallvar._selection.cluster_path import MergePath
from smallvar._selection.descent import check_reached
from smallvar._selection.own_shapes import AROUND, FEWEST_JUDGED, MOST_JUDGED, OwnShapes
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

# How much of a fit is likely done, measured on generated tables of 4,000 to 500,000 rows. Where a
# round of a search begins, and its share, if the search is not sure of its number: the descents by
# the rows as they are, those with transforms of columns, and those by some of the columns
ROUND_SHARES = (0.0, 0.85), (0.85, 0.1), (0.95, 0.05)
TRANSFORMED, SELECTED = 1, 2
# of a round: each descent by distances of the rows, at most so much for all of them; and what is
# done after the last one in the metric of the clusters
DESCENT, DESCENTS, LONG = 0.1, 0.6, 0.85
# What follows a search that is sure, in units of it: fixed points of a sample, and sweeps over all
# rows, which cost 1 / 50 of it if they are as many as those of the sample.
FIXED_POINTS, SWEEPS = 0.1, 1 / 50


def coarse(k):
    """Number of mergers before the next clustering of a coarse descent."""
    return max(1, k // 10)


def _fine(first, last, end=FEW_CLUSTERS, below=10):
    """Step function: single mergers from ``last`` clusters to ``first``, and where few are left.

    Before that one in CLUSTERS_A_MERGER clusters, not beyond ``end``, after that one in ``below``.
    """

    def step(k):
        if k <= FEW_CLUSTERS or first <= k <= last:
            return 1
        halt, part = (end, CLUSTERS_A_MERGER) if k > last else (FEW_CLUSTERS, below)
        return max(1, min(k - halt, k // part))

    return step


def around(number, below=10):
    """Step function: single mergers around ``number``, below it one in ``below`` clusters."""
    span = 2 * (number // CLUSTERS_A_MERGER) + 2
    return _fine(number - span, number + span, number + span, below)


def fine_rows(d):
    """Number of rows of the fine descent for d columns, unless there are many clusters."""
    return FINE_PATH_ROWS if d <= WIDE_COLUMNS else COARSE_PATH_ROWS


def is_sure(path, confidence=SURE_CONFIDENCE):
    """Whether the number of a path is so clear that no others need to be tried."""
    return path.best > 1 and path.confidence > confidence


def judge(path, sample):
    """Judge the clusterings near the best one by densities with a shape of their own."""
    most = max(FEWEST_JUDGED, path.best + AROUND)
    path.judge(OwnShapes(sample.criterion), most, sample)


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
    """The settings of a search (see ``find_path``), and events for its descents.

    ``n`` is the number of rows of a fit whose events say how much of it is likely done, else None.
    ``done``, that share, never falls; ``within`` is that of the round.
    """

    def __init__(self, rng, init, coarse_rows, callback, n=None):
        self.rng, self.init, self.coarse_rows = rng, init, coarse_rows
        self.callback, self.n, self.n_events, self.done = callback, n, 0, 0.0
        self.begin(0)

    def begin(self, number):
        """Begin a round of descents, one of ROUND_SHARES."""
        self.round, self.within = number, 0.0

    def report(self, n, k, best, path=None, left=0):
        """Call the callback, unless it is None, with an event for a descent on n rows from k down.

        ``path`` is what a fine one has found; ``left`` is how many descents in the metric of the
        clusters there may be from this one on, 0: it is by distances of the rows.
        """
        self.n_events += 1
        if self.callback is None:
            return
        stage = "coarse path" if path is None else "path"
        message = f"{stage}: {n} rows, {k} clusters and fewer, best {best}"
        if left:
            self.within += (LONG - self.within) / left
        else:
            self.within = max(self.within, min(DESCENTS, self.within + DESCENT))
        # whether the number is sure, which no coarse descent says, decides how many others follow
        if self.n is not None and (path is not None or self.done > 0.0):
            begin, share = ROUND_SHARES[self.round]
            done = begin + share * self.within
            # few clusters may be more in a larger sample
            if path is not None and is_sure(path) and best > FEWEST_CLUSTERS:
                done = 1.0 / (1.0 + FIXED_POINTS + SWEEPS * self.n / n)
            self.done = max(self.done, done)
            message += f", about {self.done:.0%} done"
        event = ProgressEvent(stage, self.n_events, message, best, None, n, self.done or None)
        self.callback(event)


def find_in_metrics(search, problem, compared=False):
    """The best path; its metric is that in which it was found.

    Where it is to be ``compared`` with one that was not sure, own shapes are tried as there.
    """
    found = _find(search, problem)
    metric, sample = found.metric, found.sample
    found = replace(found, metric=None, plain=found.path)
    n_descents = METRIC_DESCENTS if problem.lam is None and search.init is None else 0
    step = _fine(0, 0) if problem.number is None else around(problem.number)
    for left in range(n_descents, 0, -1):
        if metric is None:
            break
        # again from the same clusters, in the metric that makes the best ones round
        start = sample.use_metric(metric, found.path.modeled(found.path.longest))
        candidate, metric = _descend(sample, start, step)
        n, tie = candidate.n_samples, sample.criterion.tie
        if n <= SINGLE_ROWS and problem.number is None and sample.criterion.floor.any():
            # few rows: mergers from single rows in this metric may lead to better clusters
            start = _survey(search, sample, max(20, int(4 * np.sqrt(n))))[0]
            again, again_metric = _descend(sample, start, step)
            if again.value < candidate.value - CRITERION_ROUNDING * tie:
                candidate, metric = again, again_metric
        search.report(n, candidate.longest, candidate.best, candidate, left)
        if not candidate.value < found.path.value - tie:
            break
        found = replace(found, path=candidate, metric=sample.metric)
    if problem.free_by_squares and (compared or not is_sure(found.path, SURER_CONFIDENCE)):
        judge(found.path, sample)
    return found


def _find(search, problem):
    """The path in the metric of the rows, the metric of its best clusters, and the sample.

    In a small sample, clusters of few rows are lost. If it has only one or two clusters, a larger
    sample is tried; in many columns, where that takes long, one in between before.
    """
    d, size = problem.X.shape[1], search.coarse_rows
    if size is None:
        size = max(COARSE_PATH_ROWS // 2, min(COARSE_PATH_ROWS, COARSE_NUMBERS // d))
    size = min(problem.n, max(size, 4 * (problem.number or 0)))
    found = _find_from(search, problem, size)
    few = found.path.best <= FEWEST_CLUSTERS and problem.most not in (1, FEWEST_CLUSTERS)
    fine = min(problem.n, fine_rows(d))
    if few and size < fine and problem.free and search.init is None:
        between = d > SAMPLED_TWICE and size < COARSE_PATH_ROWS < fine
        for rows in [COARSE_PATH_ROWS, fine] if between else [fine]:
            larger = _find_from(search, problem, rows, FEWEST_CLUSTERS)
            if larger is None or not larger.path.value_per_row < found.path.value_per_row:
                continue
            if rows == fine or larger.path.best > FEWEST_CLUSTERS:
                return larger
    return found


def _find_from(search, problem, size, above=0):
    """The path, the metric of its best clusters, and the sample, beginning with ``size`` rows.

    A coarse descent on ``size`` rows finds where a fine descent on more rows begins. If the best
    number is near the largest one, both are made again, with more rows and clusters. Returns None
    if the coarse descent finds no more than ``above`` clusters.
    """
    n, d, init = problem.n, problem.X.shape[1], search.init
    capacity = 2 * (problem.number or 0)  # clusters at the top of the coarse descent
    while True:
        sample = problem.sample(size, search.rng)
        limit = min(size, max(2, size // 2)) if problem.free else size
        capacity = min(limit, max(20, int(4 * np.sqrt(size)), capacity))
        largest = size == n and capacity == limit
        last = largest or init is not None or problem.number is not None
        if init is None:
            start, best, factor = _survey(search, sample, capacity, 1 if above else 2)
        else:
            start, best, factor = init[:, problem.varying], len(init), 1
        if factor == 1 or last:
            if best <= above:
                return None
            fine_size = max(min(fine_rows(d), FINE_NUMBERS // d), PATH_ROWS_A_CLUSTER * len(start))
            if size < min(n, fine_size):
                sample = problem.sample(min(n, fine_size), search.rng)
            path, metric = _refine(search, sample, start)
            full = path.best > 0.85 * len(start) and len(start) != problem.most
            if last or not full:
                return FoundPath(path, metric, sample)
            factor = 2
        size, capacity = min(n, 4 * size), factor * capacity


def _refine(search, sample, start):
    """The path of the last of some fine descents, and the metric of its best clusters.

    Each has single mergers in a narrower range around the best number of the one before.
    """
    number = sample.problem.number
    low, single = (0, True) if search.init is not None else (len(start) // 3, False)
    for _ in range(REFINED):
        step_of = _fine(low + 1, np.inf if single else low) if number is None else around(number)
        path, metric = _descend(sample, start, step_of, not single)
        search.report(path.n_samples, path.longest, path.best, path)
        missed = path.best <= low and path.best > FEW_CLUSTERS  # below ``low`` steps are large
        whole = path.counts[0] == 1  # else it has ended early, and another one must follow
        step = max(path.best // (10 if missed else CLUSTERS_A_MERGER), 0 if whole else 2)
        if number is not None or step < 2 or (single and not missed):
            break
        # a better number may be among those left out around this one: again from above it
        higher = path.counts[path.counts >= path.best + 2 * step + 2]
        start = path.modeled(min([path.longest, *higher[:1]]))
        low, single = path.best - 2 * step, True
    return path, metric


def _is_past(problem, clusterings, least):
    """Whether a descent may end: the last of these clusterings is far below the best one.

    Only if the best has at least ``least`` clusters: then a finer descent follows, which comes to
    all lower numbers.
    """
    # the first one has the most clusters
    if not problem.free or clusterings[0].k < least:
        return False
    best = min(problem.allowed(clusterings), key=problem.value, default=clusterings[-1]).k
    return best >= least and clusterings[-1].k <= PAST * best


def _survey(search, sample, capacity, every=2):
    """The centers at which the fine descent begins, by a coarse one from ``capacity`` clusters.

    Also the best number, and by which factor the capacity should grow (1: it is large enough). The
    criterion is computed at each clustering (``every`` = 1), at every second one (2), and so on,
    and for K = 1.
    """
    problem, descent, n = sample.problem, sample.descent, sample.descent.X.shape[0]
    number, factor = problem.number, 1
    if n <= SINGLE_ROWS and problem.free:
        descent.start()
        descent.merge(max(0, descent.sweep.k - capacity))
        descent.begin()
    else:
        seeds = min(n, WIDER * capacity if number is None else capacity)
        sums = descent.seed(seeds, search.rng)
        # sums[j] is the error with j seeds. Many small clusters: seeds beyond the capacity divide
        # it by GRAIN times as much as the seeds before, from a quarter of the capacity on
        if len(sums) - 1 > capacity and sums[capacity] > 0.0:
            grain = GRAIN if n < FINE_PATH_ROWS else LARGE_GRAIN
            ratio = sums[capacity // WIDER] / sums[capacity] * (sums[-1] / sums[capacity])
            factor = WIDER if ratio * grain < 1.0 else 1
        descent.start(descent.sweep.centers[:capacity])
    descent.run_lloyd(FIRST_SWEEPS)
    clusterings, centers = [], {}
    for i, k in enumerate(descent.down(coarse, COARSE_SWEEPS)):
        centers[k] = descent.sweep.centers
        if number is None and (k == 1 or i % every == 0):
            clusterings.append(sample.clustering(problem.lam is None))
            if _is_past(problem, clusterings, 2 * FEW_CLUSTERS):
                break
    best, most = number, max(centers)
    if number is None:
        best = min(reversed(problem.allowed(clusterings)), key=problem.value).k
    search.report(n, most, best)
    factor = 2 if factor == 1 and best > 0.5 * most else factor
    top = min((k for k in centers if k >= best + best // 4 + 10), default=most)
    return centers[top], best, factor


def _completed(sample, clusterings):
    """The clusterings, with one of the given number whose error is below those of fewer clusters.

    If the descent has none, it grows from the clustering with fewer clusters and the least error.
    """
    number = sample.problem.number
    fewer = [c for c in clusterings if number is not None and c.k < number]
    if not fewer or sample.metric is not None:
        return clusterings
    base = min(fewer, key=lambda c: c.error)
    if any(c.k == number and c.error < base.error for c in clusterings):
        return clusterings
    # where the number is given, this is a descent by distances of the rows
    sample.fixed_point(base.centers, number)
    check_reached(sample.descent.sweep.k, number)
    return [*(c for c in clusterings if c.k > number), sample.clustering(), *fewer]


def _descend(sample, start, step, first=False):
    """The path of a fine descent, and the metric of its best clusters (None: that of the rows).

    It begins at the centers ``start``, with ``step(k)`` mergers at k clusters. The ``first``
    descent may end before K = 1, see ``_is_past``.
    """
    problem, descent, tie = sample.problem, sample.descent, sample.criterion.tie
    descent.start(start)
    descent.run_lloyd(UNPROJECTED_SWEEPS)
    descent.project()
    descent.run_lloyd(FINE_SWEEPS - UNPROJECTED_SWEEPS)
    visited = []
    for k in descent.down(step, FINE_SWEEPS):
        visited.append(sample.clustering(labeled=problem.free_by_squares and k <= MOST_JUDGED))
        if first and _is_past(problem, visited, 2 * CLUSTERS_A_MERGER):
            break
    # from few clusters to many, left out where the error is not below that of fewer clusters
    clusterings, least = [], np.inf
    for clustering in reversed(_completed(sample, visited)):
        if clustering.error < least or (clustering.k == problem.number and sample.metric is None):
            clusterings.append(clustering)
            least = clustering.error
    if not clusterings:  # no error is finite
        raise ValueError(UNSOUND)
    best = problem.best(clusterings, sample.criterion)
    # centers of many clusters are not kept where they take more memory than the data
    taken = 0
    for clustering in clusterings:
        taken += clustering.centers.size
        kept = clustering.k <= best.k + 1 or taken <= max(ROOM, problem.X.size)
        clustering.centers = problem.whole(clustering.centers) if kept else None
    # heights are roots of errors of the sample, whose share of all weight is sample.share
    tree = descent.tree
    tree[:, 2] /= np.sqrt(sample.share)
    path = MergePath(problem, clusterings, best, tree, tie, descent.X.shape[0])
    path.weigh(sample)
    # clusters of a number that is not allowed may describe the rows far better
    lowest = min(c.criterion for c in visited)
    described = best.k == problem.number or not lowest + tie < best.criterion
    return path, best.metric if described else None
