"""The rows that a merge path is found on, and clusterings of them."""

from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils.random import sample_without_replacement

from smallvar._core.frame import RowsFrame
from smallvar._core.validation import some_rows, unit_of
from smallvar._selection.column_selection import price_of_others
from smallvar._selection.columns import count_distinct, filled_values, rows_filled, spaced
from smallvar._selection.components import RoundMetric
from smallvar._selection.criterion import DensityCriterion, Relabeled
from smallvar._selection.descent import check_distinct, descent_by_squares, lloyd_sweeps
from smallvar._selection.sphere import directions, sharpest
from smallvar._sweeps.ranges import column_range

DENSE_BYTES = 1 << 30  # of sparse data, what a path may hold as dense arrays
LAST_SWEEPS = 300  # at most, that bring a clustering of a path to a fixed point


def squared_euclidean(X, weight, n_threads):
    """The criterion and the descent for squared distances."""
    frame = RowsFrame(X, weight, n_threads)
    return DensityCriterion(frame), descent_by_squares(frame)


class PathProblem:
    """The data of a path: rows without weight and constant columns left out, weights near 1.

    And what is wanted: ``lam``, None for the lowest criterion, and at ``most`` so many clusters;
    or exactly this ``number`` of them.
    """

    noise_error, noise_transform = 0.0, None

    def __init__(
        self, X, weight, n_threads, family=squared_euclidean, lam=None, most=None, number=None
    ):
        self.family, self.n_threads, self.lam, self.most = family, n_threads, lam, most
        self.number = None if number is None else int(number)
        self.least = None  # weight of a cluster; None: any
        self.rows, self.unit, self.transform = None, unit_of(weight), None
        if weight is not None:
            self.rows = None if weight.all() else np.flatnonzero(weight)
            weight = weight / self.unit
        self.X, self.weight = X, weight
        self._leave_filled_out()
        self.n = X.shape[0] if self.rows is None else len(self.rows)
        self.total = float(X.shape[0] if weight is None else weight.sum())
        self.constant, high = column_range(X, weight, n_threads)
        self.varying = self.constant < high
        # columns in which all clusters have the mean of the rows
        self.noise = np.empty(0, dtype=np.intp)

    @property
    def free(self):
        """Whether neither the penalty nor the number of clusters is given."""
        return self.lam is self.number is None

    @property
    def free_by_squares(self):
        """Whether neither is given, and distances are squared ones."""
        return self.free and self.family is squared_euclidean

    def _leave_filled_out(self):
        """Leave rows out that have a value filled in, if that leaves most of them."""
        if issparse(self.X) or not self.free_by_squares:
            return
        some = slice(None) if self.rows is None else spaced(self.rows)
        filled = filled_values(self.X[some], None if self.weight is None else self.weight[some])
        if filled:
            used = np.arange(self.X.shape[0]) if self.rows is None else self.rows
            kept = used[~rows_filled(self.X, filled)[used]]
            if len(kept) > 0.5 * len(used):
                self.rows = kept

    def sample(self, size, rng):
        """A sample of ``size`` rows for the path; more if too few of them are distinct."""
        rows = self.rows
        if size < self.n:
            drawn = np.sort(sample_without_replacement(self.n, size, random_state=rng))
            rows = drawn if rows is None else rows[drawn]
        sample = self.rows_of(rows)
        if self.number is not None:
            distinct = count_distinct(sample.plain.X)
            if distinct < self.number and size < self.n:
                # too few of these rows differ: of more rows, or of all, enough may
                return self.sample(4 * size, rng)
            check_distinct(distinct, self.number)
        return sample

    def rows_of(self, rows):
        """The Sample of these rows (None: all)."""
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
        others = np.ascontiguousarray(X[:, self.noise]) if len(self.noise) else None
        if not self.varying.all():
            X = X[:, self.varying]
        return Sample(X, weight, rows, self, others)

    def in_columns(self, selected):
        """The problem with the same mean for all clusters in all varying columns but these.

        ``selected`` are indices of the varying columns; the others are constant to the descent.
        """
        new, columns = copy(self), np.flatnonzero(self.varying)
        new.noise = np.delete(columns, selected)
        new.varying = np.zeros_like(self.varying)
        new.varying[columns[selected]] = True
        if self.transform is not None:
            new.transform = self.transform.of(selected)
            new.noise_transform = self.transform.of(np.delete(np.arange(len(columns)), selected))
        new.constant = self.constant.copy()
        used = slice(None) if self.rows is None else self.rows
        weight = None if self.weight is None else self.weight[used]
        X = self.X.tocsc() if issparse(self.X) else self.X
        for j in new.noise:
            x = X[:, [j]].toarray()[:, 0] if issparse(X) else X[:, j]
            x = x[used].astype(np.float64)
            mean = new.constant[j] = np.average(x, weights=weight)
            squares = np.square(x - mean)
            error = squares.sum() if weight is None else weight @ squares
            new.noise_error += self.unit * float(error)
        return new

    def of_rows(self, rows, own):
        """The problem of some rows only: of the ``rows`` (None: all) those in the mask ``own``."""
        new = copy(self)
        new.rows = np.flatnonzero(own) if rows is None else rows[own]
        new.n, new.least = len(new.rows), None
        return new

    @property
    def of_divergence(self):
        """Whether distances are not squared ones: the family then labels rows itself."""
        return hasattr(self.family, "labels")

    def whole(self, centers):
        """Centers with the constant columns put back."""
        if self.varying.all():
            return centers
        out = np.tile(self.constant, (len(centers), 1))
        out[:, self.varying] = centers
        return out

    def value(self, clustering):
        """The criterion that is compared: the lower, the better."""
        return (
            clustering.criterion if self.lam is None else clustering.error + self.lam * clustering.k
        )

    def allowed(self, clusterings):
        """The clusterings with the number of clusters that is given, or at most the largest."""
        if self.number is not None:
            return [c for c in clusterings if c.k == self.number]
        return [c for c in clusterings if self.most is None or c.k <= self.most]

    def best(self, clusterings, criterion):
        """The clustering of the given number, the lowest objective, or the lowest criterion.

        Of directions, where that is not a single cluster, it may be the bend of the criterion, see
        ``sharpest``.
        """
        # a path in another metric may lack the number; any will do, as it is not used then
        best = min(self.allowed(clusterings) or clusterings[:1], key=self.value)
        if self.free and best.k > 1 and self.family is directions:
            best = min(best, sharpest(clusterings, criterion.price_of_cluster), key=lambda c: c.k)
        return best


@dataclass
class PathClustering:
    """A clustering on the descent: its number of clusters, centers, criterion and error.

    ``metric`` is the metric in which the clusters are round, None if they are so in that of
    the data; ``modeled`` are the centers of the rows that the criterion is of, and ``own_error`` is
    the error in the metric of the descent. A criterion or an error that was not computed is
    infinite or NaN; ``labels`` are kept of one that may be judged again. Where clusters must have a
    least size, ``assigned`` are the labels on the descent; of clusterings that were made from
    these, ``own`` is the mask of the rows that the centers are the means of (None: all), and
    ``beside`` are the means of the small clusters of the others.
    """

    k: int
    centers: NDArray[np.float64] | None
    criterion: float = np.inf
    error: float = np.nan
    metric: RoundMetric | None = None
    modeled: NDArray[np.float64] | None = None
    own_error: float = np.nan
    labels: NDArray[np.int32] | None = None
    assigned: NDArray[np.int32] | None = None
    own: NDArray[np.bool_] | None = None
    beside: NDArray[np.float64] | None = None


class Sample:
    """Rows, a descent on them, and the criterion.

    ``share`` is what an error of theirs is of that of all rows; ``rows`` are their numbers, None
    for all. Where the problem has a transform, criterion and descent are of the rows transformed;
    with a ``metric``, the descent is on these times a matrix. ``others`` are the rows in columns of
    noise, which count in the criterion only. Errors and centers are always those
    of the rows as they are; ``plain`` is the descent on them.
    """

    def __init__(self, X, weight, rows, problem, others=None):
        self.share = (X.shape[0] if weight is None else float(weight.sum())) / problem.total
        self.share /= problem.unit
        self.problem, self.rows, self.metric, self.raw = problem, rows, None, None
        transform, n_threads = problem.transform, problem.n_threads
        used, slope = (X, None) if transform is None else transform(X)
        self.criterion, self.descent = problem.family(used, weight, n_threads)
        self.plain = self.descent
        if transform is not None:
            self.plain = descent_by_squares(RowsFrame(X, weight, n_threads))
            self.raw = Relabeled(self.plain.frame)
            self.criterion.charge(slope, len(transform.columns))
        if others is not None:
            of_others = weight, n_threads, problem.noise_transform
            price = price_of_others(others, *of_others, X.shape[1])
            self.criterion.constant += self.criterion.distinct * price

    def use_metric(self, metric, centers):
        """Merge clusters in this metric from here on; returns what the centers are in it."""
        frame = RowsFrame(metric.rows(), self.plain.weight, self.problem.n_threads)
        self.metric, self.descent = metric, descent_by_squares(frame)
        return metric(centers)

    def clustering(self, evaluate=True, labeled=False):
        """The clustering at which the descent is now, with its criterion if that is wanted.

        Labels are kept where ``labeled``.
        """
        sweep, own_error = self.descent.sweep, None
        assigned = sweep.labels.copy() if self.problem.least is not None else None
        if self.metric is not None or self.raw is not None:
            own_error = sweep.squared_error()
        if self.metric is not None:
            sweep = self.criterion.relabeled(sweep.labels, sweep.k)
        clustering = PathClustering(sweep.k, sweep.centers, assigned=assigned)
        clustering.modeled = clustering.centers
        evaluate = evaluate and clustering.k <= max(1, self.criterion.cap)
        if evaluate:
            clustering.criterion, clustering.metric, error = self.criterion(sweep)
            clustering.labels = sweep.labels.copy() if labeled else None
        if self.raw is not None:
            sweep = self.raw(sweep.labels, sweep.k)
            clustering.centers = sweep.centers
        if self.raw is not None or not evaluate:
            error = sweep.squared_error()
        clustering.error = error / self.share
        clustering.own_error = clustering.error if own_error is None else own_error
        return clustering

    def fixed_point(self, centers, number=None):
        """Centers at which plain sweeps from these end, and the error of the nearest.

        They are as many, or the ``number`` that is given: others open at the farthest rows.
        """
        plain, sweep = self.plain, self.plain.sweep
        number, left = number or len(centers), LAST_SWEEPS
        sweep.start(np.ascontiguousarray(centers))
        if sweep.k < number:
            sweep.assign()
            plain.open_farthest(number)
            centers = sweep.centers
        while left > 0:
            # centers that were given, or opened, move to their means whether rows have moved or not
            sweep.assign()
            if sweep.needs_float64:
                sweep.use_float64()
            sweep.move_centers()
            left -= 1
            if plain.open_farthest(number):
                continue
            swept, dropped = lloyd_sweeps(sweep, left)
            left -= swept
            if dropped is None:
                break
            plain.open_farthest(number)
        if not left > 0:  # centers have moved since the last assignment
            sweep.assign()
        if sweep.k < number:  # as many rows are too near to each other to be told apart
            return centers, self.error_of(centers)
        return sweep.centers, sweep.squared_error() / self.share

    def error_of(self, centers):
        """The error of the rows from the nearest of these centers."""
        sweep, centers = self.plain.sweep, np.ascontiguousarray(centers)
        sweep.start(centers)
        sweep.set_centers(centers)  # a divergence does not begin at a single center itself
        sweep.assign()
        return sweep.squared_error() / self.share
