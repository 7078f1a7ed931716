"""The merge path: clusterings into every number of clusters, and the penalties that suit each."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from scipy.spatial.distance import cdist
from sklearn.utils import check_random_state
from sklearn.utils.random import sample_without_replacement

from smallvar._core.config import one_blas_thread, resolve_threads
from smallvar._core.frame import RowsFrame, nearest_sweep
from smallvar._core.progress import ProgressEvent, callback_for
from smallvar._core.validation import (
    Data,
    check_data,
    check_number,
    check_verbose,
    check_weights,
    some_rows,
    unit_of,
)
from smallvar._selection.columns import (
    PowerTransform,
    count_distinct,
    filled_values,
    rows_filled,
)
from smallvar._selection.confidence import of_several, of_single, shares
from smallvar._selection.criterion import BLOCK, Criterion, Relabeled
from smallvar._selection.envelope import Path, envelope, penalty_within
from smallvar._sweeps.merge import MergeSweep
from smallvar._sweeps.sums import column_range

COARSE = 5000  # rows of the first, rough way down,
NUMBERS = 1 << 18  # but at most so many numbers, down to half as many rows
FINE, ROWS = 20_000, 20  # rows of the fine way down, or so many for each cluster
# the fine way down stops at every number of clusters below 2 STEPS, in its last part below FEW
STEPS, FEW = 50, 32
WIDER, GRAIN = 4, 1.5  # seeds tried for each there is room for; how much more the others must save
REFINED = 4  # ways down at most, each finer around the best number than the one before
ROWS_LOOKED_AT = 5000
WIDE = 4.0
SMALL = 2000
FEWEST = 2  # clusters: where no more are found in few rows, more rows are looked at
TURNS = 3  # ways down at most in the metric of the clusters, as long as each is better
FIRST_SWEEPS, COARSE_SWEEPS, FINE_SWEEPS = 5, 2, 5
DENSE_BYTES = 1 << 30  # of sparse data, what a path may hold as dense arrays
ROOM = 1 << 22  # numbers that the centers of a path may take where the data take fewer
LAST_SWEEPS = 300  # at most, that bring a clustering of a path to a fixed point
CHEAP = 1 << 22  # multiply-adds of one sweep for each: so many are no matter, and all are brought
MARGIN = 0.99  # of an error: what sweeps to a fixed point may leave, when a penalty is chosen


class Descent:
    """Rows, clusters on them, and the way down to a single one.

    ``ids`` are the clusters as they stood at the top, ``tree`` the mergers since: rows (id, id,
    height, clusters of the top in it), as in scipy's linkages.
    """

    def __init__(self, X, weight, sweep, frame=None):
        self.X, self.weight, self.sweep, self.frame = X, weight, sweep, frame
        self.rounding = 0.0 if frame is None else frame.rounding

    def seed(self, size, rng):
        """Centers at ``size`` rows far apart, drawn in rounds by weight times squared distance.

        Returns the sum of these for every number of centers.
        """
        sweep, n = self.sweep, self.X.shape[0]
        total = np.arange(1.0, n + 1.0) if self.weight is None else np.cumsum(self.weight)
        (row,) = draw(total, 1, rng)
        sweep.start(np.array(self.X[row : row + 1], dtype=np.float64))
        sweep.assign()
        sums = [0.0]
        while sweep.k < size:
            distance = sweep.own_distances()
            distance[distance <= self.rounding] = 0.0
            total = np.cumsum(distance if self.weight is None else self.weight * distance)
            sums += [total[-1]] * (sweep.k + 1 - len(sums))
            if not total[-1] > 0.0:
                break  # every row is equal to a seed
            sweep.seed(draw(total, min(size - sweep.k, max(1, sweep.k // 2)), rng))
        return sums

    def start(self, centers):
        """The clusters of the nearest of these centers."""
        self.sweep.start(np.ascontiguousarray(centers, dtype=np.float64))
        self.sweep.assign()
        self.sweep.move_centers()
        self.begin()

    def begin(self):
        """Where the clusters are now is the top of the tree."""
        self.ids, self.tree, self.height = np.arange(self.sweep.k), [], 0.0
        self.leaves = np.ones(self.sweep.k)

    def settle(self, most):
        """Sweeps until no row moves, ``most`` at the most."""
        sweep = self.sweep
        for _ in range(most):
            before, centers = sweep.k, sweep.centers
            sweep.assign()
            moved = sweep.moved()
            if sweep.crowded:
                sweep.use_double()
            if moved == 0:
                break
            sweep.move_centers()
            if sweep.k < before:
                self._drop(sweep.remap[:before], centers)

    def grow(self, centers, number):
        """Clusters of these centers and of rows far from them, ``number`` in all, at a fixed point.

        While there are fewer, the row farthest from its center opens one. The tree stays.
        """
        sweep, changed = self.sweep, True
        sweep.start(np.ascontiguousarray(centers, dtype=np.float64))
        while changed:
            before = sweep.k
            sweep.seek_farthest(0.0, before < number)
            sweep.assign()
            if before < number:
                sweep.open_farthest()
            if sweep.crowded:
                sweep.use_double()
            changed = sweep.moved() > 0 or sweep.k > before
            if changed:
                sweep.move_centers()
        sweep.seek_farthest(0.0, False)
        check_reached(sweep.k, number)

    def _drop(self, remap, centers):
        """Clusters that lost their last row: in the tree they are merged with the nearest one."""
        kept = np.flatnonzero(remap >= 0)
        for k in np.flatnonzero(remap < 0):
            nearest = kept[cdist(centers[k : k + 1], centers[kept])[0].argmin()]
            self._join(nearest, k, 0.0)
        self.ids = self.ids[kept]

    def _join(self, a, b, cost):
        """Note in the tree that b went into a; heights never fall."""
        self.height = max(self.height, np.sqrt(2.0 * cost))
        first, second = sorted((self.ids[a], self.ids[b]))
        size = self.leaves[first] + self.leaves[second]
        self.tree.append((first, second, self.height, size))
        self.ids[a] = len(self.leaves)
        self.leaves = np.append(self.leaves, size)

    def merge(self, count):
        """The cheapest pair of clusters becomes one, ``count`` times over."""
        pairs, costs = self.sweep.merge(count)
        for (a, b), cost in zip(pairs, costs, strict=True):
            self._join(a, b, cost)
        self.ids = np.delete(self.ids, pairs[:, 1])

    def down(self, step, sweeps):
        """Yield at every stop on the way down: the number of clusters."""
        while True:
            yield self.sweep.k
            if self.sweep.k == 1:
                return
            self.merge(step(self.sweep.k))
            self.settle(sweeps)


def draw(total, size, rng):
    """Distinct rows, drawn by the steps of this cumulated sum; fewer where one is drawn twice."""
    rows = np.searchsorted(total, rng.uniform(size=size) * total[-1], side="right")
    return np.unique(np.minimum(rows, len(total) - 1))


def _coarse(k):
    return max(1, k // 10)


class Metric:  # numpydoc ignore=PR01
    """A metric that makes clusters round: the distance of rows after a matrix, from an origin."""

    def __init__(self, matrix, origin):
        self.matrix, self.origin = matrix, origin

    def __call__(self, X):
        """The rows, less the origin, times the matrix."""
        out = np.empty((X.shape[0], self.matrix.shape[1]))
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            for i in range(0, X.shape[0], BLOCK):
                out[i : i + BLOCK] = (X[i : i + BLOCK] - self.origin) @ self.matrix
        if not np.isfinite(out).all():
            raise ValueError("X must be so near the rows of the fit that distances are finite")
        return out


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


def check_distinct(found, number, where=""):
    """Raise where there are fewer distinct rows than clusters asked for."""
    if number is not None and found < number:
        raise ValueError(
            f"n_clusters must be <= {found}, the number of distinct rows{where}, got "
            f"n_clusters={number}"
        )


def check_reached(found, number):
    """Raise where rows that differ are too near each other to make so many clusters."""
    check_distinct(found, number, " (up to rounding)")


def _descent(X, weight, n_threads):
    """A Descent by squared distances."""
    frame, label = RowsFrame(X, weight, n_threads), np.zeros(X.shape[0], dtype=np.int32)
    sweep = MergeSweep(X, weight, None, label, frame, n_threads, 8, True)
    return Descent(X, weight, sweep, frame)


def squared_euclidean(X, weight, n_threads, unit):
    """Criterion and descent for squared distances, which do not depend on the unit of weights."""
    descent = _descent(X, weight, n_threads)
    return Criterion(X, weight, descent.frame, n_threads), descent


class _Problem:
    """The data of a path: rows without weight and constant columns left out, weights near 1.

    And what is wanted: ``lam``, None for the lowest criterion, and at ``most`` so many clusters;
    or exactly this ``number`` of them.
    """

    def __init__(self, X, weight, n_threads, family, lam, most, number=None):
        self.family, self.n_threads, self.lam, self.most = family, n_threads, lam, most
        self.number = None if number is None else int(number)
        self.rows, self.unit, self.transform = None, unit_of(weight), None
        if weight is not None:
            self.rows = None if weight.all() else np.flatnonzero(weight)
            weight = weight / self.unit
        self.X, self.weight = X, weight
        self._leave_filled_out()
        self.n = X.shape[0] if self.rows is None else len(self.rows)
        self.total = float(X.shape[0] if weight is None else weight.sum())
        low, high = column_range(X, None, n_threads)
        self.varying = low < high
        self.constant = low

    def _leave_filled_out(self):
        """Leave rows out that have a value filled in, if that leaves most of them."""
        if (
            issparse(self.X)
            or self.family is not squared_euclidean
            or not self.lam is self.number is None
        ):
            return
        found = filled_values(self.X, self.weight)
        if not found:
            return
        used = np.ones(self.X.shape[0], dtype=bool) if self.weight is None else self.weight > 0.0
        kept = used & ~rows_filled(self.X, found)
        if kept.sum() > 0.5 * used.sum():
            self.rows = np.flatnonzero(kept)

    def sample(self, size, rng):
        """So many rows, to go down on; more if too few of them are distinct."""
        rows = self.rows
        if size < self.n:
            drawn = np.sort(sample_without_replacement(self.n, size, random_state=rng))
            rows = drawn if rows is None else rows[drawn]
        sample = self.take(rows)
        if self.number is not None:
            distinct = count_distinct(sample.plain.X)
            if distinct < self.number:
                if size < self.n:
                    return self.sample(4 * size, rng)
                check_distinct(distinct, self.number)
        return sample

    def take(self, rows):
        """These rows, None: all, to go down on."""
        X, weight = self.X, self.weight
        if rows is not None:
            X, weight = some_rows(X, rows), None if weight is None else weight[rows]
        if issparse(X):
            dense = 8 * X.shape[0] * X.shape[1]
            if self.number is not None and dense > DENSE_BYTES:
                raise ValueError(
                    "n_clusters must be smaller for sparse X of this shape (or of so few distinct "
                    f"rows): the merge path would hold {dense} bytes of dense rows, more than "
                    f"{DENSE_BYTES}, got n_clusters={self.number}"
                )
            X = X.toarray()
        if not self.varying.all():
            X = X[:, self.varying]
        return _Sample(X, weight, rows, self)

    def whole(self, centers):
        """Centers with the constant columns put back."""
        out = np.tile(self.constant, (len(centers), 1))
        out[:, self.varying] = centers
        return out

    def value(self, stop):
        """The criterion that is compared: the lower, the better."""
        return stop.criterion if self.lam is None else stop.error + self.lam * stop.k

    def allowed(self, stops):
        """Those with as many clusters as are wanted, or no more."""
        if self.number is not None:
            return [stop for stop in stops if stop.k == self.number]
        return [stop for stop in stops if self.most is None or stop.k <= self.most]


@dataclass
class Clustering:
    """A clustering on the way down: its number of clusters, centers, criterion and error.

    ``metric`` is the matrix in whose metric the clusters are round, None if they are so in that of
    the data. A criterion or an error that was not computed is infinite or NaN.
    """

    k: int
    centers: NDArray[np.float64] | None
    criterion: float = np.inf
    error: float = np.nan
    metric: NDArray[np.float64] | None = None
    modeled: NDArray[np.float64] | None = None
    own_error: float = np.nan


class _Sample:
    """Rows, a descent on them, and the criterion.

    ``share`` is what an error of theirs is of that of all rows; ``rows`` are their numbers, None
    for all. Once turned, the descent is on the rows times a matrix; errors, criterion and centers
    are still those of the rows as they are, and ``plain`` the descent on these.
    """

    def __init__(self, X, weight, rows, problem):
        self.share = (X.shape[0] if weight is None else float(weight.sum())) / problem.total
        self.share /= problem.unit
        self.rows, self.turned, self.raw = rows, False, None
        slope, plain = None, None
        if problem.transform is not None:
            plain = _descent(X, weight, problem.n_threads)
            self.raw = Relabeled(X, weight, plain.frame, problem.n_threads)
            X, slope = problem.transform(X)
        made = problem.family(X, weight, problem.n_threads, problem.unit)
        self.criterion, self.descent = made
        self.plain = plain or self.descent
        if slope is not None:
            self.criterion.charge(slope, len(problem.transform.columns))

    def turn(self, metric, centers):
        """From here on go down in this metric; returns what the centers are in it."""
        c = self.criterion
        self.metric = Metric(metric, c.frame.origin)
        self.descent, self.turned = _descent(self.metric(c.X), c.weight, c.n_threads), True
        return self.metric(centers)

    def stop(self, judge, measure):
        """The clustering at which the descent is now; its criterion and its error where wanted."""
        sweep = self.descent.sweep
        own = sweep.squared_error() if (judge or measure) and (self.turned or self.raw) else None
        if self.turned:
            sweep = self.criterion.relabeled(sweep.labels, sweep.k)
        found = Clustering(sweep.k, sweep.centers)
        found.modeled = found.centers
        if judge and found.k <= max(1, self.criterion.cap):
            found.criterion, found.metric, error = self.criterion(sweep)
            found.error = error / self.share
        elif measure:
            found.error = sweep.squared_error() / self.share
        if self.raw is not None:
            sweep = self.raw(sweep.labels, sweep.k)
            found.centers = sweep.centers
            if judge or measure:
                found.error = sweep.squared_error() / self.share
        found.own_error = found.error if own is None else own
        return found

    def fixed_point(self, centers):
        """Centers at which plain sweeps from these end, as many, and the error of the nearest."""
        sweep, opened = self.plain.sweep, True
        sweep.start(np.ascontiguousarray(centers))
        for _ in range(LAST_SWEEPS):
            sweep.assign()
            moved = sweep.moved()
            if sweep.crowded:
                sweep.use_double()
            if not (moved or opened):
                break
            sweep.move_centers()
            opened = self._open_farthest(len(centers))
        else:
            sweep.assign()
        if sweep.k < len(centers):  # as many rows are too near to each other to be told apart
            return centers, self.error_of(centers)
        return sweep.centers, sweep.squared_error() / self.share

    def _open_farthest(self, size):
        """Where sweeps have emptied clusters, others open at the farthest rows; whether any did."""
        sweep, weight, k = self.plain.sweep, self.plain.weight, self.plain.sweep.k
        while sweep.k < size:
            distance = sweep.own_distances()
            distance[distance <= self.plain.rounding] = 0.0
            row = int((distance if weight is None else weight * distance).argmax())
            if not distance[row] > 0.0:
                break
            sweep.seed(np.array([row]))
        return sweep.k > k

    def grown(self, centers, size):
        """These centers, and more at the rows farthest from all of them."""
        sweep = self.plain.sweep
        sweep.start(np.ascontiguousarray(centers))
        sweep.assign()
        self._open_farthest(size)
        return sweep.centers

    def error_of(self, centers):
        """The error of the rows from the nearest of these centers."""
        sweep, centers = self.plain.sweep, np.ascontiguousarray(centers)
        sweep.start(centers)
        sweep.set_centers(centers)  # a divergence does not begin at a single center itself
        sweep.assign()
        return sweep.squared_error() / self.share


def dense_bytes(X, rough=False):
    """Memory of the rows that a path is found on, as a dense array, and of matrices d x d."""
    d = X.shape[1]
    return 8 * d * (min(X.shape[0], COARSE if rough else FINE) + 4 * d)


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
    as they do; the best one is the path. ``rough``: only few rows are used. ``look``: so many are
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
    problem = _Problem(X, weight, n_threads, family, lam, most, number)
    if not problem.varying.any():
        check_distinct(1, number)
        single = Clustering(1, problem.constant[None], criterion=0.0, error=0.0)
        return LambdaPath(problem, [single], single, ([0.0], [np.inf]), [], 0.0, problem.n)
    with one_blas_thread():
        tell = _Reporter(callback)
        path, plain, sample, turned = _find_in_metrics(problem, rng, init, rough, look, tell)
        if lam is None and init is None and not rough and transforms and number is None:
            problem.transform = PowerTransform(sample.plain.X, sample.plain.weight)
            skewed = problem.transform.columns
            if skewed:
                other = _find_in_metrics(problem, rng, init, rough, look, tell)
                if other[0].value_per_row < path.value_per_row and other[0].plausible:
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
            if again.value < other.value:
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
    few = found[0].best <= FEWEST and problem.number is None and FEWEST != problem.most != 1
    if few and size < min(problem.n, FINE) and init is None and not rough and problem.lam is None:
        other = _find_from(problem, rng, init, rough, min(problem.n, FINE), tell, FEWEST)
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
            start, wider, best = _survey(problem, sample, room, rng, tell)
            if best <= above:
                return None
        else:
            start, wider = init[:, problem.varying], 1
        last = rough or (size == problem.n and room == limit)
        if wider > 1 and not last:
            size, room = min(problem.n, 4 * size), wider * room
            continue
        more = min(problem.n, max(size, FINE, ROWS * start.shape[0]))
        if more > size and not rough:
            sample = problem.sample(more, rng)
        low, single = (0, True) if init is not None else (len(start) // 3, False)
        reach, turns = len(start), REFINED
        while True:
            way = _fine(low, single) if number is None else _about(number)
            path, metric = _descend(problem, sample, start, way)
            words = f"{path.n_samples} rows, {path.longest} clusters and fewer"
            tell("path", words, path.best, path.n_samples)
            if number is not None:
                return path, metric, sample
            missed = path.best <= low and path.best > FEW
            step = path.best // (10 if missed else STEPS)
            turns -= 1
            if step < 2 or (single and not missed) or not turns:
                break
            # the best is among the numbers left out around this one
            above = path.n_clusters[path.n_clusters >= path.best + 2 * step + 2]
            top = above[0] if len(above) else path.longest
            start = path.modeled(min(top, path.longest))
            low, single = path.best - 2 * step, True
        full = path.best > 0.85 * reach and reach != problem.most
        if full and init is None and not last:
            size, room = min(problem.n, 4 * size), 2 * room
            continue
        return path, metric, sample


def _top(counts, best):
    """The number of clusters from which to go down in single steps to about the best one."""
    return min((k for k in counts if k >= best + best // 4 + 10), default=max(counts))


def _survey(problem, sample, room, rng, tell):
    """The way down in large steps: where that in single steps begins; how many times more room."""
    descent = sample.descent
    n = descent.X.shape[0]
    if n <= SMALL and problem.lam is problem.number is None:
        descent.start(descent.X)
        descent.merge(max(0, descent.sweep.k - room))
        descent.begin()
        return _survey_down(problem, sample, tell)
    sums = descent.seed(min(n, WIDER * room if problem.number is None else room), rng)
    k = len(sums) - 1
    # seeds beyond the room that lower the sum much more than those before: a finer grain
    grain = k > room and sums[room] > 0.0
    grain = grain and sums[room // WIDER] / sums[room] * (sums[k] / sums[room]) * GRAIN < 1.0
    descent.start(descent.sweep.centers[:room])
    return _survey_down(problem, sample, tell, grain)


def _survey_down(problem, sample, tell, grain=False):
    """From where the descent is; ``grain``: whether there may be many more clusters."""
    descent, n = sample.descent, sample.descent.X.shape[0]
    descent.settle(FIRST_SWEEPS)
    stops, centers = {}, {}
    for number, k in enumerate(descent.down(_coarse, COARSE_SWEEPS)):
        centers[k] = descent.sweep.centers
        if problem.number is None and (k == 1 or number % 2 == 0):
            stops[k] = sample.stop(problem.lam is None, problem.lam is not None)
    if problem.number is not None:
        tell("coarse path", f"{n} rows, {max(centers)} clusters and fewer", problem.number, n)
        return centers[_top(centers, problem.number)], 1, problem.number
    best = min(reversed(problem.allowed(stops.values())), key=problem.value).k
    tell("coarse path", f"{n} rows, {max(stops)} clusters and fewer", best, n)
    wider = WIDER if grain else 2 if best > 0.5 * max(stops) else 1
    return centers[_top(centers, best)], wider, best


def _ratios(ranges):
    """The largest penalty for which each number is best over the smallest; 0 if it never is."""
    low, high = ranges
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((low > 0.0) & (low < high), high / low, 0.0)


def _scores(stops, ranges, tie):
    """The criterion of each number, less a bonus if it is best over a wide range of penalties.

    Criteria that differ by less than ``tie``, the price of a parameter, are nearly as good as
    equal: the number is preferred whose clustering stands out.
    """
    bonus = tie * np.log(np.clip(_ratios(ranges), 1.0, WIDE))
    several = np.array([stop.k > 1 for stop in stops])
    return np.array([stop.criterion for stop in stops]) - bonus * several


def _best(problem, stops, scores):
    """The stop with the number asked for, the lowest objective, or the lowest criterion.

    Where the lowest criterion is not that of a single cluster, scores decide.
    """
    allowed = problem.allowed(stops)
    if problem.number is not None:  # in another metric a path may lack it: it is not taken then
        return allowed[0] if allowed else stops[0]
    best = min(allowed, key=problem.value)
    if problem.lam is not None or best.k == 1:
        return best
    allowed = {stop.k for stop in allowed}
    several = [i for i, stop in enumerate(stops) if stop.k > 1 and stop.k in allowed]
    return stops[min(several, key=lambda i: scores[i])]


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


def _descend(problem, sample, start, step):
    """The way down in single steps; the metric of its best clusters, None where that is plain."""
    descent, tie = sample.descent, sample.criterion.tie
    descent.start(start)
    descent.settle(FINE_SWEEPS)
    found, lowest = [], np.inf
    for _ in descent.down(step, FINE_SWEEPS):
        found.append(sample.stop(True, True))
        lowest = min(lowest, found[-1].criterion)
        for stop in found:
            if lowest + tie < stop.criterion and stop.k != problem.number:
                stop.metric = None
    found = _completed(problem, sample, found)
    stops, least = [], np.inf
    for stop in reversed(found):  # from few clusters up: one more that saves nothing is left out
        if stop.error < least or (stop.k == problem.number and not sample.turned):
            stops.append(stop)
            least = stop.error
    ranges = envelope([stop.k for stop in stops], [stop.error for stop in stops])
    scores = _scores(stops, ranges, tie)
    best = _best(problem, stops, scores)
    taken = 0
    for stop in stops:
        taken += stop.centers.size
        kept = stop.k <= best.k + 1 or taken <= max(ROOM, problem.X.size)
        stop.centers = problem.whole(stop.centers) if kept else None
    scale = np.sqrt(sample.share)
    tree = [(a, b, height / scale, size) for a, b, height, size in descent.tree]
    path = LambdaPath(problem, stops, best, ranges, tree, tie, descent.X.shape[0])
    path.weigh(stops, scores, ranges, sample)
    return path, best.metric


class LambdaPath(Path):
    """Clusterings of the same rows into many numbers of clusters, found by :func:`lambda_path`.

    Attributes
    ----------
    counts : ndarray of shape (n_path,), intp
        The numbers of clusters K, ascending from 1; ``n_clusters`` is another name for it. All up
        to 32, and those around the best; of
        others some are left out, above 100 most, and all whose clustering, on the way down, had no
        smaller error than one with fewer clusters.
    error : ndarray of shape (n_path,), float64
        The weighted sum of squared distances of the rows that the path was found on to the nearest
        of ``centers(k)``; ``inertia`` is another name for it. If there are more rows than
        ``n_samples``, an estimate of the sum of all.
    criterion : ndarray of shape (n_path,), float64
        The criterion of :func:`lambda_path`, the lower, the better; infinite for more clusters
        than a third of the distinct rows.
    tie : float
        Criteria that differ by less are as good as equal.
    lam_low, lam_high : ndarray of shape (n_path,), float64
        Between these penalties ``inertia + lam * K`` is lowest for this K. Where ``lam_low`` is not
        below ``lam_high``, another K is always better. ``lam_low`` is 0 at the end of the path.
    best : int
        The number chosen.
    lam : float
        A penalty for it: the geometric mean of its ``lam_low`` and ``lam_high`` (whichever is the
        larger), or twice ``lam_low`` where it is 1; of much data nearly so. It is what a cluster
        must save, of the order of the squared error of a whole cluster, and no distance.
    ranking : ndarray of shape (n_path,), intp
        All K, those of the lowest criterion first.
    longest : int
        The largest K whose centers are kept; of more clusters only what was known on the way down.
    n_samples : int
        The rows that the path was found on: all, or a random sample of them.
    metric : ndarray of shape (n_features, n_directions) or None
        Where :class:`DPMeans` was asked for labels in the metric that makes clusters round, and the
        best path is one in such a metric: the matrix by which rows are multiplied. Centers are then
        those of rows so multiplied, and errors and penalties are in their squared units.
    linkage : ndarray of shape (n_leaves - 1, 4), float64
        The mergers, in the format of ``scipy.cluster.hierarchy``: the leaves are the clusters at
        which the way down began, a height is the root of twice what a merger added to the inertia
        then (in the metric of the clusters, where they are long), or that of the merger before
        where that is more.

    Notes
    -----
    The clusterings are fixed points of plain k-means sweeps, begun at those of the way down. After
    a fit with ``lam="auto"``, the one into ``best`` clusters is that of the fit: ``labels(best)``
    are its ``labels_``. Of much data the others are brought to their fixed points when the path is
    first asked for them, which takes about as long as finding the path; so the rows must not be
    changed in between.
    """

    tie: float
    best: int
    ranking: NDArray[np.intp]
    longest: int
    n_samples: int
    linkage: NDArray[np.float64]

    columns = ("n_clusters", "inertia", "criterion", "lam_low", "lam_high")

    def __init__(self, problem, stops, best, ranges, tree, tie, n_samples, metric=None):
        self.counts = np.array([stop.k for stop in stops], dtype=np.intp)
        self.criterion = np.array([stop.criterion for stop in stops])
        self.best, self.tie, self.n_samples = best.k, float(tie), n_samples
        self.ranking = self.n_clusters[np.argsort(self.criterion, kind="stable")]
        self.linkage = np.array(tree, dtype=np.float64).reshape(-1, 4)
        self.value = min((stop.criterion for stop in problem.allowed(stops)), default=np.inf)
        single = len(stops) == 1
        self.confidence = 1.0 if single else np.nan
        self.confidences = np.full(len(stops), self.confidence)
        self.few_valued = self.skewed = np.empty(0, dtype=np.intp)
        self.plausible = True
        self.value_per_row = self.value / n_samples
        self.longest = max(stop.k for stop in stops if stop.centers is not None)
        self.found_error = np.array([stop.error for stop in stops])
        self._table = self.found_error, *(np.array(bound) for bound in ranges)
        self._centers = {stop.k: stop.centers for stop in stops}
        self._modeled = {stop.k: stop.modeled for stop in stops}
        self._X, self._family = problem.X, problem.family
        self._metric = metric
        # what brings the clusterings to fixed points; those that are, or must stay as they are
        self._problem, self._rows, self._settled = problem, None, set()
        self._adopted, self._complete = False, not problem.varying.any()
        self._choose()

    def _choose(self):
        """The penalty for the best number."""
        error, low, high = self._table
        i = int(np.searchsorted(self.counts, self.best))
        most = high[i] if high[i] > 0.0 else np.inf  # fewer clusters have no larger error
        self.lam = penalty_within(low[i], most, 2.0 * error[0] or 1.0)

    def weigh(
        self,
        stops: list[Clustering],
        scores: NDArray[np.float64],
        ranges: tuple[NDArray[np.float64], NDArray[np.float64]],
        sample: _Sample,
    ) -> None:  # numpydoc ignore=PR01
        """Say how sure the number is, after the way down on this sample."""
        problem, criterion = self._problem, sample.criterion
        given = not problem.lam is problem.number is None
        if given or problem.family is not squared_euclidean or len(stops) == 1:
            return
        i = int(np.searchsorted(self.counts, self.best))
        others = np.delete(scores, i)
        if self.best > 1:
            own = envelope(self.counts, [stop.own_error for stop in stops])
            gap = (others.min() - scores[i]) / criterion.tie
            confidence = of_several(_ratios(own)[i], _ratios(ranges)[i], gap)
        else:
            second = 1 + int(self.criterion[1:].argmin())
            gap = self.criterion[second] - self.criterion[0]
            gap -= criterion.price_of_cluster * (self.counts[second] - 1)
            gap = gap / criterion.distinct if np.isfinite(gap) else np.inf
            self.plausible = bool(gap > 0.0)
            confidence = of_single(gap, criterion.distinct, sample.raw is not None)
        self.confidence = confidence
        self.confidences = shares(scores, i, confidence, criterion.tie)

    def modeled(self, k: int) -> NDArray[np.float64]:  # numpydoc ignore=PR01,RT01
        """The centers as they were found on the way down, of the rows that it was on."""
        return self._modeled[k]

    def found(self, k: int) -> NDArray[np.float64]:  # numpydoc ignore=PR01,RT01
        """The centers as they were found on the way down, or at a fixed point where that is known.

        Where a penalty is given, those to go on from, as long as nothing else is asked for.
        """
        return self._centers[k].copy()

    def in_metric(
        self,
        metric: Metric,
        X: NDArray[np.floating],
        weight: NDArray[np.float64] | None,
        sample: _Sample,
    ) -> "LambdaPath":  # numpydoc ignore=PR01,RT01
        """The same way down with centers, errors, labels and penalties in this metric."""
        old = self._problem
        problem = _Problem(metric(X), weight, old.n_threads, old.family, None, old.most)
        turned, stops = problem.take(sample.rows), []
        counts = self.counts[self.counts <= self.longest]
        for k, criterion in zip(counts.tolist(), self.criterion[: len(counts)], strict=True):
            centers = metric(self._centers[k])
            error = turned.error_of(centers[:, problem.varying])
            stops.append(Clustering(k, centers, criterion, error))
        ranges = envelope(counts, [stop.error for stop in stops])
        best = stops[int(np.searchsorted(counts, self.best))]
        options = self.linkage, self.tie, self.n_samples, metric
        path = LambdaPath(problem, stops, best, ranges, *options)
        path.settle(turned, path, everything=True)
        return path

    @property
    def metric(self) -> NDArray[np.float64] | None:  # numpydoc ignore=RT01
        """The matrix by which rows are multiplied; None: distances are those of the data."""
        return None if self._metric is None else self._metric.matrix.copy()

    def measured(
        self, X: NDArray[np.floating] | None = None
    ) -> NDArray[np.floating]:  # numpydoc ignore=PR01,RT01
        """Return rows as distances are measured between them; None: those of the path."""
        if X is None:
            return self._X
        return X if self._metric is None else self._metric(X)

    def settle(
        self, sample: _Sample, plain: "LambdaPath", everything: bool = False
    ) -> None:  # numpydoc ignore=PR01
        """After the way down on this sample: other clusterings, and the penalty, follow from it.

        ``plain`` is the path that was found in the metric of the data: where it has a better
        clustering, that is taken; for the best number only where the other one, at its fixed point,
        is hardly better than one with fewer clusters. Sweeps to a fixed point are made for the best
        number, for those around it, and for those on which the range of its penalties depends.
        """
        self._rows = sample.rows
        if self._problem.lam is not None:
            return
        if plain is not self:
            self._take(plain, sample)
        kept = self.counts[self.counts <= self.longest]
        if everything or sample.plain.X.size * int(kept.sum()) <= CHEAP:
            self._settle_all(sample)
            self._choose()
        else:
            self._settle_some(sample)

    def _take(self, plain, sample):
        """Clusterings of the path in the metric of the data, where they are better."""
        error, last = self.found_error, min(self.longest, plain.longest)
        _, mine, others = np.intersect1d(self.counts, plain.counts, return_indices=True)
        for i, j in zip(mine, others, strict=True):
            k = int(self.counts[i])
            if k <= last and k != self.best and plain.found_error[j] < error[i]:
                self._centers[k], error[i] = plain.found(k), plain.found_error[j]
        i = int(np.searchsorted(self.counts, self.best))
        centers, least = (
            self._centers[self.best][:, self._problem.varying],
            error[:i].min(initial=np.inf),
        )
        centers, error[i] = sample.fixed_point(centers)
        self._centers[self.best] = self._problem.whole(centers)
        if error[i] < MARGIN * least:
            self._settled.add(self.best)
        elif self.best <= last and self.best in plain.counts:
            self._centers[self.best] = plain.found(self.best)
            error[i] = plain.found_error[plain.counts == self.best][0]

    def _settle_some(self, sample):
        """The best number at its fixed point, and the others that its penalty depends on."""
        varying, counts = self._problem.varying, self.counts
        error, last = self.found_error.copy(), int(np.searchsorted(counts, self.longest))
        i = int(np.searchsorted(counts, self.best))
        todo = {j for j in (i - 1, i, i + 1) if 0 <= j <= last}
        while todo:
            for j in sorted(todo):
                k = int(counts[j])
                centers, error[j] = sample.fixed_point(self._centers[k][:, varying])
                self._centers[k] = self._problem.whole(centers)
                self._settled.add(k)
            self._table = error, *envelope(counts, error)
            self._choose()
            # those at the ends of the range, and those that might be better at the penalty
            with np.errstate(divide="ignore", invalid="ignore"):
                slope = (error[i] - error) / (counts - counts[i])
            near = MARGIN * error + self.lam * counts <= error[i] + self.lam * counts[i]
            near[i + 1 :][slope[i + 1 :] >= slope[i + 1 :].max(initial=0.0)] = True
            near[:i][slope[:i] <= slope[:i].min(initial=np.inf)] = True
            todo = {j for j in np.flatnonzero(near).tolist() if j <= last}
            todo = {j for j in todo if int(counts[j]) not in self._settled}

    def _settle_all(self, sample):
        """All clusterings at fixed points, each with a smaller error than those of fewer clusters.

        The best one, and others that have been at fixed points before, stay as they are.
        """
        varying, whole = self._problem.varying, self._problem.whole
        error, found, lowest = self._table[0].copy(), dict(self._centers), None
        for i, k in enumerate(self.counts.tolist()):
            least = np.inf if lowest is None else error[lowest]
            if found[k] is None:
                error[i] = min(error[i], least)
                continue
            centers = found[k][:, varying]
            if k == self.best and self._adopted:
                error[i] = sample.error_of(centers)
            elif k not in self._settled:
                centers, error[i] = sample.fixed_point(centers)
                if not error[i] < least:
                    fewer = found[int(self.counts[lowest])][:, varying]
                    centers, error[i] = sample.fixed_point(sample.grown(fewer, k))
                found[k] = whole(centers)
            if error[i] < least:
                lowest = i
        self._centers, self._settled = found, {k for k in found if found[k] is not None}
        self._table = error, *envelope(self.counts, error)
        self._complete = True

    def _completed(self):
        """Errors, and the penalties from low to high for which each number is best."""
        if not self._complete:
            with one_blas_thread():
                self._settle_all(self._problem.take(self._rows))
        return self._table

    def adopt(self, centers: NDArray[np.float64]) -> None:  # numpydoc ignore=PR01
        """Take the centers of a fit that went on from those of the best number, if as many."""
        before = self._centers[self.best]
        if centers.shape == before.shape and not np.array_equal(centers, before):
            self._centers[self.best] = centers.copy()
            if self._problem.varying.any():
                self._adopted, self._complete = True, False

    @property
    def n_clusters(self) -> NDArray[np.intp]:  # numpydoc ignore=RT01
        """The numbers of clusters, ``counts``."""
        return self.counts

    @property
    def inertia(self) -> NDArray[np.float64]:  # numpydoc ignore=RT01
        """The sum of squared distances for each number of clusters, ``error``."""
        return self.error

    @property
    def error(self) -> NDArray[np.float64]:  # type: ignore[override]  # numpydoc ignore=RT01
        """The weighted sum of squared distances to the nearest centers."""
        return self._completed()[0]

    @property
    def lam_low(self) -> NDArray[np.float64]:  # type: ignore[override]  # numpydoc ignore=RT01
        """The lowest penalty for which each number of clusters is best."""
        return self._completed()[1]

    @property
    def lam_high(self) -> NDArray[np.float64]:  # type: ignore[override]  # numpydoc ignore=RT01
        """The highest penalty for which each number of clusters is best."""
        return self._completed()[2]

    def __getstate__(self):
        self._completed()
        lost = ("_X", "_problem", "_rows", "_modeled")
        return {name: value for name, value in vars(self).items() if name not in lost}

    def centers(self, k: int | np.integer) -> NDArray[np.float64]:
        """Return the centers of the clustering into ``k`` clusters.

        Parameters
        ----------
        k : int
            One of ``n_clusters``.

        Returns
        -------
        centers : ndarray of shape (k, n_features), float64
            The means of the clusters (of the rows that the path was found on; after a fit with
            ``lam="auto"``, for the number chosen, those of the fit). In another ``metric`` of shape
            (k, n_directions): means of the rows multiplied by it.
        """
        check_number(k, "k", low=1, integer=True)
        if k not in self._centers:
            last = self.n_clusters[-1]
            where = f"the path ends at {last}" if k > last else "see n_clusters"
            raise ValueError(f"k must be on the path, got k={k}: {where}")
        if self._centers[k] is None:
            raise ValueError(f"k must be <= {self.longest}, got k={k}: centers beyond are not kept")
        if k not in self._settled:
            self._completed()
        centers = self._centers[k]
        if self._metric is not None:
            return centers + self._metric.origin @ self._metric.matrix
        return centers.copy()

    def labels(
        self, k: int | np.integer, X: Data | None = None, *, n_threads: int | None = None
    ) -> NDArray[np.int32]:
        """Label rows by the nearest of the centers of ``k`` clusters.

        Parameters
        ----------
        k : int
            One of ``n_clusters``.
        X : array-like of shape (n_samples, n_features), default=None
            Rows; None means those that the path was found for. They are not pickled along.
        n_threads : int, default=None
            Threads; None means all that this process may use.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Row of ``centers(k)``.
        """
        self.centers(k)
        centers = self._centers[k]
        if X is None:
            X = getattr(self, "_X", None)
            if X is None:
                raise ValueError("X must be given: a path that was pickled has lost its rows")
        else:
            X = check_data(X, sparse=self._family is squared_euclidean and self._metric is None)
            columns = centers.shape[1] if self._metric is None else len(self._metric.matrix)
            if X.shape[1] != columns:
                raise ValueError(f"X must have {columns} columns, got {X.shape[1]}")
            if self._metric is not None:
                X = self._metric(X)
        check_number(n_threads, "n_threads", low=1, integer=True, none=True)
        if self._family is not squared_euclidean:
            return self._family.labels(X, centers)
        return nearest_sweep(X, None, centers, resolve_threads(n_threads)).labels


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
        dense: refused where these, and matrices of n_features x n_features, take more than 1 GiB.
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
        ``linkage``; the number chosen, ``best``, and a penalty for it, ``lam``; centers and labels
        by ``path.centers(k)`` and ``path.labels(k)``.

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
    box, and in two columns each cluster may have a covariance of its own. If clusters are long, the
    way down is taken again in the metric that makes them round, from the same clusters, and decides
    if its criterion is lower by more than 2 log(u), the price of a parameter; errors and labels are
    those of plain sweeps from its clusters into the number chosen, and for other numbers from those
    of the way before where these are better. Numbers above 1
    whose criteria differ by less are a tie: the one with the widest range ``lam_high / lam_low`` is
    chosen.

    Rows of weight zero and constant columns take no part. At most a third as many clusters as
    distinct rows are chosen. Of more than 20,000 rows (and 20 for each cluster) a random sample
    is used; penalties and inertia are those of all rows.

    References
    ----------
    Ward (1963), Hierarchical grouping to optimize an objective function. Biernacki, Celeux &
    Govaert (2000), Assessing a mixture model for clustering with the integrated completed
    likelihood. Tipping & Bishop (1999), Mixtures of probabilistic principal component analyzers.
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
