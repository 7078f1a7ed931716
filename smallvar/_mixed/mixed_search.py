"""The search for the merge path of a table: descents on samples of its rows.

Clusters are merged by a ``MixedDescent`` twice, coarsely on few rows and then finely on more.
"""

from copy import copy, deepcopy
from dataclasses import replace

import numpy as np

from smallvar._core.progress import ProgressEvent
from smallvar._mixed.mixed_boundaries import TableBoundaries
from smallvar._mixed.mixed_path import MixedMergePath
from smallvar._selection.least_size import no_such_number
from smallvar._selection.search import (
    CLUSTERS_A_MERGER,
    COARSE_PATH_ROWS,
    COARSE_SWEEPS,
    FEW_CLUSTERS,
    FEWEST_CLUSTERS,
    FINE_PATH_ROWS,
    FINE_SWEEPS,
    FIRST_SWEEPS,
    PATH_ROWS_A_CLUSTER,
    around,
    coarse,
)
from smallvar._selection.touching import number_by_support

# clusters above which a rough descent halts: COARSE_PATH_ROWS rows may be too few for them
MANY_CLUSTERS = 64


def find_path(problem, rng, init):
    """The path of a table from these centers (None: from seeds), and its best number."""
    if problem.least is not None and problem.fit.n_clusters is not None:
        found = _find_path(problem, rng, init)
        if found is None:
            # some of the clusters around this number are too small: from many to one
            free = copy(problem)
            free.fit = replace(problem.fit, n_clusters=None)
            found = _find_path(free, rng, init, problem.fit.n_clusters)
        if found is None:
            raise no_such_number(problem.fit.n_clusters, problem.asked)
        return found
    return _find_path(problem, rng, init)


def _with_least_size(problem, clusterings, number):
    """Clusterings all of whose clusters have the least size, and the best one; or None, None."""
    best = {}
    for clustering in (c.large for c in clusterings if c.large is not None):
        before = best.get(clustering.k)
        if before is None or clustering.criterion < before.criterion:
            best[clustering.k] = clustering
    kept = [best[k] for k in sorted(best)]
    if number is None:
        return kept, problem.best(kept)
    return (kept, best[number]) if number in best else (None, None)


def _find_path(problem, rng, init, wanted=None):
    """As ``find_path``; ``wanted`` is a number to choose, not to search for.

    None where no clustering of the given number has clusters of the least size.
    """
    number, callback = problem.fit.n_clusters, problem.fit.loop.callback
    size = min(problem.n, COARSE_PATH_ROWS if number is None else max(COARSE_PATH_ROWS, 4 * number))
    descent, clusterings, best = _coarse(problem, rng, init, size)
    larger = min(problem.n, FINE_PATH_ROWS)
    free = problem.moving and number is init is None and problem.most > FEWEST_CLUSTERS
    few = free and best.k <= FEWEST_CLUSTERS and descent.n < larger
    # clusters of few rows are lost in a small sample; other draws stay the same if there are none
    if few and _has_more(problem, deepcopy(rng), larger):
        found = _coarse(problem, rng, init, larger)
        if found[2].k > FEWEST_CLUSTERS:
            descent, clusterings, best = found
    size = descent.n
    # then a fine one from somewhat more clusters than the best number, on more rows
    above = [c for c in clusterings if c.k >= best.k + best.k // 4 + 10] or clusterings[-1:]
    fine_size = min(problem.n, max(size, FINE_PATH_ROWS, PATH_ROWS_A_CLUSTER * above[0].k))
    if fine_size > size:
        descent = problem.descent(fine_size, rng)
    if problem.moving:
        descent.sweep.measure = descent.sweep.measure.scaled(above[0].variance)
        descent.sweep.rows.factor[:] = descent.sweep.measure.factor
    descent.start(above[0].centers)
    descent.run_lloyd(FINE_SWEEPS)
    clusterings = problem.clusterings(descent, around(best.k, below=CLUSTERS_A_MERGER), FINE_SWEEPS)
    if number is not None and all(c.k != number for c in clusterings):
        # one more with this number, grown from the one with fewer clusters
        fewer = max((c for c in clusterings if c.k < number), key=lambda c: c.k)
        descent.grow(fewer.centers, number)
        clusterings = sorted([*clusterings, descent.clustering()], key=lambda c: c.k)
    if problem.least is None:
        best = problem.best(clusterings)
    else:
        clusterings, best = _with_least_size(problem, clusterings, wanted or number)
        if best is None:
            return None
    path = _path_of(problem, clusterings, best, descent)
    if problem.free and best.k > 1:
        boundaries = TableBoundaries(path, descent)
        number, confidence = number_by_support(path, boundaries.support_at, may_be_one=True)
        if number != best.k:
            best = next(c for c in clusterings if c.k == number)
            path = _path_of(problem, clusterings, best, descent)
        path.trust(confidence, problem.most)
    _tell(callback, "path", descent, clusterings, best)
    return path


def _path_of(problem, clusterings, best, descent):
    """The MixedMergePath of these clusterings with this best one."""
    # errors of the sample are scaled to the weight of all rows
    total = problem.n if problem.weight is None else float(problem.weight.sum())
    sampled = descent.n if descent.weight is None else float(descent.weight.sum())
    factor = problem.measure.scaled(best.variance).factor
    for clustering in clusterings:
        clustering.error = total / sampled * clustering.error_by(factor)
    if problem.least is None:
        clusterings = _kept(clusterings, best)
    return MixedMergePath(problem, clusterings, best, descent)


def _coarse(problem, rng, init, size):
    """A coarse descent on ``size`` rows and more, its clusterings, and the best one of these.

    Again, with more rows and seeds, while the best number is near the top.
    """
    number, callback = problem.fit.n_clusters, problem.fit.loop.callback
    n_seeds = max(20, int(4 * np.sqrt(size)), 0 if number is None else 2 * number)
    while True:
        descent = problem.descent(size, rng)
        n_seeds = min(n_seeds, size)
        if init is None:
            descent.seed(n_seeds, rng)
            descent.start(descent.sweep.centers)
        else:
            descent.start(init)
        top = descent.sweep.k
        descent.run_lloyd(FIRST_SWEEPS)
        if init is not None and top <= FEW_CLUSTERS:
            # the fine descent halts at all numbers from here on
            top = descent.clustering()
            return descent, [top], top
        clusterings = problem.clusterings(descent, coarse, COARSE_SWEEPS)
        best = problem.best(clusterings)
        _tell(callback, "coarse path", descent, clusterings, best)
        if best.k <= 0.5 * top or init is not None or (n_seeds == size == problem.n):
            return descent, clusterings, best
        size, n_seeds = min(problem.n, 4 * size), 2 * n_seeds


def _has_more(problem, rng, size):
    """Whether ``size`` rows seem to have many clusters, by a descent that is rough, and fast."""
    descent = problem.descent(size, rng)
    descent.seed(int(4 * np.sqrt(size)), rng)
    descent.start(descent.sweep.centers)
    descent.run_lloyd(COARSE_SWEEPS)
    return problem.best(problem.clusterings(descent, _rough, 1)).k > FEWEST_CLUSTERS


def _rough(k):
    """Number of mergers before the next clustering of a rough descent."""
    return k // 4 if k > MANY_CLUSTERS else max(1, k - FEWEST_CLUSTERS)


def _kept(clusterings, best):
    """Clusterings whose error is below that of all with fewer clusters, and the best one."""
    kept, least = [], np.inf
    for clustering in clusterings:
        if clustering.error < least or clustering is best:
            kept.append(clustering)
            least = min(least, clustering.error)
    return kept


def _tell(callback, stage, descent, clusterings, best):
    """Call the callback, unless it is None, with an event for the end of a descent."""
    if callback is not None:
        message = (
            f"{stage}: {descent.n} rows, {clusterings[-1].k} clusters and fewer, best {best.k}"
        )
        callback(ProgressEvent(stage, 1, message, best.k, n_samples=descent.n))
