"""The merge path as a result: clusterings, penalties and confidences.

``ClusterPath`` has what users see, ``MergePath`` also what its search and fits need. It keeps the
clusterings of the descent, and brings them to fixed points of k-means sweeps, at once if that is
cheap, else when their errors are first asked for.
"""

from copy import copy

import numpy as np
from numpy.typing import NDArray

from smallvar._core.config import one_blas_thread, resolve_threads
from smallvar._core.frame import nearest_sweep
from smallvar._core.validation import Data, check_data, check_number
from smallvar._selection.boundaries import count_without_gap
from smallvar._selection.columns import BLOCK_ROWS
from smallvar._selection.confidence import shares, weighed
from smallvar._selection.envelope import (
    Path,
    as_seen_by_users,
    best_first,
    envelope,
    penalty_within,
    ratios,
)
from smallvar._selection.sample import PathClustering, PathProblem
from smallvar._selection.scale import MOST_CONFIDENT, MOST_CONFIDENT_RARE, NONE_WIDE, Wide

# multiply-adds of one sweep at each clustering: up to so many, all are brought to fixed points
CHEAP = 1 << 22
# of an error: sweeps to a fixed point are taken to lower it by no more than the rest
LEAST_SWEPT_ERROR = 0.99
# confidence at most in clusters where the criterion is lowest for a single one: the gap between two
# does not say that it is the only one
MOST_OF_TWO = 0.5


class ClusterPath(Path):  # numpydoc ignore=PR01
    """Clusterings of the same rows into many numbers of clusters, found by :func:`.cluster_path`.

    Attributes
    ----------
    counts : ndarray of shape (n_path,), intp
        The numbers of clusters K, ascending from 1; ``n_clusters`` is another name for it. All up
        to 32, and those around the best; of
        others some are left out, above 100 most, and all whose clustering, on the descent, had no
        smaller error than one with fewer clusters.
    error : ndarray of shape (n_path,), float64
        The weighted sum of squared distances of the rows that the path was found on to the nearest
        of ``centers(k)``; ``inertia`` is another name for it. If there are more rows than
        ``n_samples``, an estimate of the sum of all.
    criterion : ndarray of shape (n_path,), float64
        The criterion of :func:`.cluster_path`, the lower, the better; infinite for more clusters
        than a third of the distinct rows.
    tie : float
        The price of a parameter: criteria that differ by less are nearly as good as equal.
    lam_low, lam_high : ndarray of shape (n_path,), float64
        Between these penalties ``inertia + lam * K`` is lowest for this K. Where ``lam_low`` is not
        below ``lam_high``, another K is always better. ``lam_low`` is 0 at the end of the path.
    best : int
        The number chosen.
    confidence : float
        How likely this number is right, from 0 to 1, judged by data sets whose number is known: by
        the range of its penalties, how far the next best number is behind, and the evidence of
        boundaries between clusters. For a single cluster above .5 only where rows on both sides of
        the best boundary look like one body. NaN where the number or the penalty was given. At most
        .5 where few columns decide: ``wide``.
    confidences : ndarray of shape (n_path,), float64
        The confidence in every number; what ``confidence`` leaves is shared by the criterion.
    few_valued, skewed : ndarray of intp
        Columns with fewer than ten values, and columns with a long tail.
    wide : tuple of ndarray of intp, and float
        Columns that make up nearly all of the squared distances between rows, and their share of
        these; see :class:`.ScaleWarning`. There are none unless they are few.
    rare : bool
        Whether rows are many columns that are mostly zero, as words of texts are: ``confidence`` is
        then low.
    noise_columns : ndarray of intp
        Columns in which one mean for all rows describes them better than a mean for each cluster:
        the number was chosen by the other columns. Empty where that was by all.
    lam : float
        A penalty for it: the geometric mean of its ``lam_low`` and ``lam_high`` (whichever is the
        larger), or twice ``lam_low`` where it is 1; of much data nearly so. It is the
        amount by which a cluster must lower the squared error, not a distance.
    ranking : ndarray of shape (n_path,), intp
        All K: the one chosen, and then those of the lowest criterion first.
    longest : int
        The largest K whose centers are kept; for larger K there are only the errors.
    n_samples : int
        The rows that the path was found on: all, or a random sample of them.
    metric : ndarray of shape (n_features, n_directions) or None
        Where :class:`DPMeans` was asked for labels in the metric that makes clusters round, and the
        best path is one in such a metric: the matrix by which rows are multiplied. Centers are then
        those of rows so multiplied, and errors and penalties are in their squared units.
    linkage : ndarray of shape (n_leaves - 1, 4), float64
        The mergers, in the format of ``scipy.cluster.hierarchy``: the leaves are the clusters at
        which the descent began, a height is the root of twice what a merger added to the inertia
        then (in the metric of the clusters, where they are long), or that of the merger before
        where that is more.

    Notes
    -----
    The clusterings are fixed points of plain k-means sweeps, begun at those of the descent (where a
    fit had a ``min_cluster_size``: as they are there, and only such as have no smaller clusters;
    rows set aside then count in all errors by their distance in the one of the lowest criterion,
    and in ``labels`` by the nearest center). After
    a fit with ``lam="auto"``, the one into ``best`` clusters is that of the fit: ``labels(best)``
    are its ``labels_``. Of much data the others are brought to their fixed points when the path is
    first asked for them, which takes about as long as finding the path; so the rows must not be
    changed in between.
    """

    tie: float
    best: int
    confidence: float
    confidences: NDArray[np.float64]
    few_valued: NDArray[np.intp]
    wide: Wide
    rare: bool
    noise_columns: NDArray[np.intp]
    longest: int
    n_samples: int
    linkage: NDArray[np.float64]

    _columns = ("n_clusters", "inertia", "criterion", "lam_low", "lam_high")

    def __init__(self, problem, clusterings, best, ranges, tree, tie, n_samples, metric=None):
        self.counts = np.array([c.k for c in clusterings], dtype=np.intp)
        self.criterion = np.array([c.criterion for c in clusterings])
        self.best, self.tie, self.n_samples = best.k, float(tie), n_samples
        self.linkage = np.array(tree, dtype=np.float64).reshape(-1, 4)
        self.value = min((c.criterion for c in problem.allowed(clusterings)), default=np.inf)
        single = len(clusterings) == 1
        self.confidence = 1.0 if single else np.nan
        self.confidences = np.full(len(clusterings), self.confidence)
        self.few_valued, self._skewed = np.empty(0, dtype=np.intp), None
        self.wide, self.rare, self.found_confidence = NONE_WIDE, False, self.confidence
        self.noise_columns, self._noise_error = problem.noise, problem.noise_error
        self.plausible = True
        self.value_per_row = self.value
        self.longest = max(c.k for c in clusterings if c.centers is not None)
        self.found_error = np.array([c.error for c in clusterings])
        self._table = self.found_error, *(np.array(bound) for bound in ranges)
        self._centers = {c.k: c.centers for c in clusterings}
        self._modeled = {c.k: c.modeled for c in clusterings}
        self._X, self._family = problem.X, problem.family
        self._labels_itself = problem.of_divergence
        self._metric, self._unit = metric, 1.0
        self._clusterings, self._ranges = clusterings, ranges  # until the number is final
        self._by_shared_shapes = self.criterion.copy()
        # _at_fixed_point: numbers whose clusterings are at fixed points, or must stay as they are
        self._problem, self._rows, self._at_fixed_point = problem, None, set()
        self._adopted, self._complete = False, not problem.varying.any()
        # whether no sweeps change the clusterings any more, as clusters have a least size
        self.stays, self._beside = False, {}
        self._choose()

    def _choose(self):
        """Set the penalty for the best number."""
        error, low, high = self._table
        i = int(np.searchsorted(self.counts, self.best))
        most = high[i] if high[i] > 0.0 else np.inf  # fewer clusters have no larger error
        self.lam = penalty_within(low[i], most, 2.0 * error[0] or 1.0)

    @property
    def skewed(self) -> NDArray[np.intp]:  # numpydoc ignore=RT01
        """The columns with a long tail."""
        if self._skewed is None:
            return np.empty(0, dtype=np.intp)
        columns, transform = self._skewed
        return columns[transform.columns]

    def without_gap(self) -> tuple[int, int] | None:
        """Count the boundaries between the best clusters that are no gaps.

        Returns
        -------
        found : tuple of int, or None
            How many are no gaps, and how many boundaries there are; None for a single cluster, and
            for divergences other than squared distances.
        """
        problem = self._problem
        if self._labels_itself or self.best == 1:
            return None
        labels = self.labels(self.best, n_threads=problem.n_threads)
        X = self._X if problem.varying.all() else self._X[:, problem.varying]
        return count_without_gap(X, problem.weight, labels, self.best, problem.n_threads)

    @property
    def metric(self) -> NDArray[np.float64] | None:  # numpydoc ignore=RT01
        """The matrix by which rows are multiplied; None: distances are those of the data."""
        return None if self._metric is None else self._metric.matrix.copy()

    def measured(self, X: NDArray[np.floating] | None = None) -> NDArray[np.floating]:
        """Return rows in the metric of the path.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features), default=None
            Rows; None means those of the path, in its metric already.

        Returns
        -------
        rows : ndarray of shape (n_samples, n_directions)
            Differences of the rows from one point, times ``metric``; if that is None, the rows.
        """
        if X is None:
            return self._X
        return X if self._metric is None else self._metric(X)

    def _converge_all(self, sample):
        """Bring all clusterings to fixed points; each then has a smaller error than fewer clusters.

        Those that are at fixed points already, and an adopted one, stay as they are.
        """
        self._converge(sample, 0, len(self.counts))
        self._at_fixed_point = {k for k in self._centers if self._centers[k] is not None}
        self._table = self._table[0], *envelope(self.counts, self._table[0])
        self._complete = True

    def _converge(self, sample, first, last):
        """Bring the clusterings ``counts[first:last]`` to fixed points, as ``_converge_all``."""
        varying, whole = self._problem.varying, self._problem.whole
        # index of the clustering with the lowest error so far, of fewer clusters
        error, all_centers, lowest = self._table[0].copy(), dict(self._centers), None
        for i, k in zip(range(first, last), self.counts[first:last].tolist(), strict=True):
            least = np.inf if lowest is None else error[lowest]
            if all_centers[k] is None:  # not kept: only the error is known
                error[i] = min(error[i], least)
                continue
            centers = all_centers[k][:, varying]
            if k == self.best and self._adopted:
                error[i] = sample.error_of(centers)
            elif k not in self._at_fixed_point:
                centers, error[i] = sample.fixed_point(centers)
                if not error[i] < least:  # begin again, from fewer clusters and the farthest rows
                    fewer = all_centers[int(self.counts[lowest])][:, varying]
                    centers, error[i] = sample.fixed_point(fewer, k)
                all_centers[k] = whole(centers)
            if error[i] < least:
                lowest = i
        self._centers = all_centers
        self._table = error, *self._table[1:]

    def _completed(self):
        """Errors, and ends of penalties, once all clusterings are at fixed points."""
        if not self._complete:
            n, d = self._problem.X.shape
            with one_blas_thread(min(n, BLOCK_ROWS), d):
                self._converge_all(self._problem.rows_of(self._rows))
        return self._table

    def _column(self, i):
        """Errors (0), lower (1) or upper (2) ends of penalties, for the weights of the user."""
        column = self._completed()[i]
        return column if self._unit == 1.0 else column * self._unit

    @property
    def ranking(self) -> NDArray[np.intp]:  # numpydoc ignore=RT01
        """All numbers: the one chosen, and then those of the lowest criterion first."""
        return best_first(self.counts, self.criterion, self.best)

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
        error = self._column(0)
        return error + self._unit * self._noise_error if self._noise_error else error

    @property
    def lam_low(self) -> NDArray[np.float64]:  # type: ignore[override]  # numpydoc ignore=RT01
        """The lowest penalty for which each number of clusters is best."""
        return self._column(1)

    @property
    def lam_high(self) -> NDArray[np.float64]:  # type: ignore[override]  # numpydoc ignore=RT01
        """The highest penalty for which each number of clusters is best."""
        return self._column(2)

    def _in_unit(self, unit):
        """The path with errors and penalties multiplied by the unit of the weights."""
        self._unit *= unit
        self.lam *= unit
        self.linkage[:, 2] *= np.sqrt(unit)  # its heights are roots of errors
        return self

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
        if k not in self._at_fixed_point:
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
            X = check_data(X, sparse=not self._labels_itself and self._metric is None)
            columns = centers.shape[1] if self._metric is None else len(self._metric.matrix)
            if X.shape[1] != columns:
                raise ValueError(f"X must have {columns} columns, got {X.shape[1]}")
            if self._metric is not None:
                X = self._metric(X)
        threads = resolve_threads(n_threads)
        if self._labels_itself:
            return self._family.labels(X, centers)
        return nearest_sweep(X, None, centers, threads).labels


class MergePath(ClusterPath):
    """A ClusterPath with what its search, and the fits that begin at it, need."""

    seen = as_seen_by_users

    def set_skewed(self, columns, transform):
        """Say that those of these columns are skewed that the transform has."""
        self._skewed = columns, transform

    def weigh(self, sample):
        """Set the confidences, after the descent on this sample."""
        problem, criterion = self._problem, sample.criterion
        clusterings, ranges = self._clusterings, self._ranges
        self._rows = sample.rows
        given = not problem.lam is problem.number is None
        if given or len(clusterings) == 1:
            return
        i = int(np.searchsorted(self.counts, self.best))
        # by errors in the metric of the descent, and by those in the metric of the rows
        widths = envelope(self.counts, [c.own_error for c in clusterings])
        # no number is beyond that of the distinct rows; beyond those of a least size none is known
        last = np.inf if problem.least is None else 0.0
        both = ratios(widths, last)[i], ratios(ranges, last)[i]
        self.confidence, self.confidences, gap = weighed(
            *(self.counts, self._by_shared_shapes, self._compared(), self.best, criterion.tie),
            *(both, criterion.distinct, criterion.price_of_cluster, sample.raw is not None),
        )
        # one cluster describes the rows best even without the price of others
        self.plausible = self.best > 1 or bool(gap > 0.0)

    def _compared(self):
        """The criterion of each number, infinite beyond the largest one that may be chosen."""
        most = self._problem.most
        return (
            self.criterion
            if most is None
            else np.where(self.counts <= most, self.criterion, np.inf)
        )

    def judge(self, shapes, most, sample):
        """Lower the criteria of clusterings that these shapes describe better, and choose again.

        Only clusterings into at most ``most`` clusters, of which labels were kept, are judged.
        """
        for i, clustering in enumerate(self._clusterings):
            if clustering.labels is not None and clustering.k <= most:
                value = shapes(clustering.labels, clustering.k, clustering.own)
                clustering.criterion = min(clustering.criterion, value)
                self.criterion[i] = clustering.criterion
        self.best = self._problem.best(self._clusterings, sample.criterion).k
        allowed = self._problem.allowed(self._clusterings)
        self.value = min((c.criterion for c in allowed), default=np.inf)
        self.value_per_row = self.value / sample.criterion.distinct
        self._choose()
        self.weigh(sample)

    def clusterings(self):
        """Return the clusterings of the descent, until the number is final."""
        return list(self._clusterings)

    def whole(self, centers):
        """Return centers with the constant columns put back."""
        return self._problem.whole(centers)

    def replaced(self, clusterings, bounds, sample):
        """Return a path with these clusterings instead, which stay as they are.

        ``bounds`` are the largest number of clusters, and the number asked for.
        """
        problem = copy(self._problem)
        problem.most, problem.number = bounds
        ranges = envelope([c.k for c in clusterings], [c.error for c in clusterings])
        best = problem.best(clusterings, sample.criterion)
        options = self.linkage, self.tie, self.n_samples
        path = MergePath(problem, clusterings, best, ranges, *options)
        path.value_per_row = path.value / sample.criterion.distinct
        path.stay(clusterings)
        path.weigh(sample)
        return path

    def stay(self, clusterings):
        """Keep these clusterings as they are."""
        self.stays, self._complete = True, True
        self._beside = {c.k: c.beside for c in clusterings if c.beside is not None}

    def beside(self, k):
        """Return the means of the small clusters whose rows are set aside; None: there are none."""
        return self._beside.get(k)

    @property
    def noise_means(self):
        """The mean that all clusters have in each of the columns of noise."""
        return self._problem.constant[self.noise_columns]

    @property
    def varying(self):
        """The mask of the columns in which clusters have different means."""
        return self._problem.varying

    def choose(self, number, confidence):
        """Set the number of clusters, and the confidence in it."""
        self.best, self.confidence = number, confidence
        i = int(np.searchsorted(self.counts, number))
        self.confidences = shares(self._compared(), i, confidence, self.tie)
        self._choose()

    @property
    def gain_over_one(self):
        """The difference of the lowest criterion from that of a single cluster."""
        return float(self.criterion[0] - self.value)

    def labelings(self):
        """Return labels and number of the clusterings whose labels were kept."""
        return [(c.labels, c.k) for c in self._clusterings if c.labels is not None]

    def finish(self, wide, rare):
        """Bound the confidence where a gap or few columns decide, or rows are mostly zero: rare.

        Then forget what was needed only until the number was final.
        """
        self.wide, self.rare, self.found_confidence = wide, rare, self.confidence
        unscaled = len(wide.columns) > 0 and self.metric is None
        most = MOST_CONFIDENT_RARE if rare else MOST_CONFIDENT if unscaled else 1.0
        if self.best > 1 and self.criterion.argmin() == 0:
            most = min(most, MOST_OF_TWO)
        if self.confidence > most and len(self.counts) > 1:
            self.confidence = most
            i = int(np.searchsorted(self.counts, self.best))
            self.confidences = shares(self._compared(), i, self.confidence, self.tie)
        for name in ("_clusterings", "_ranges", "_by_shared_shapes"):
            vars(self).pop(name, None)

    def modeled(self, k):
        """The centers of the descent, of the rows as the criterion models them."""
        return self._modeled[k]

    def found(self, k):
        """The centers at a fixed point if they were brought to one, else those of the descent."""
        return self._centers[k].copy()

    def in_metric(self, metric, X, weight, sample):
        """The path with the same mergers, with centers, errors and penalties in this metric."""
        old = self._problem
        problem = PathProblem(metric(X), weight, old.n_threads, old.family, None, old.most)
        new_sample, clusterings = problem.rows_of(sample.rows), []
        counts = self.counts[self.counts <= self.longest]
        for k, criterion in zip(counts.tolist(), self.criterion[: len(counts)], strict=True):
            centers = metric(self._centers[k])
            error = new_sample.error_of(centers[:, problem.varying])
            clusterings.append(PathClustering(k, centers, criterion, error))
        ranges = envelope(counts, [c.error for c in clusterings])
        best = clusterings[int(np.searchsorted(counts, self.best))]
        options = self.linkage, self.tie, self.n_samples, metric
        path = MergePath(problem, clusterings, best, ranges, *options)
        names = ("confidence", "found_confidence", "confidences", "few_valued", "_skewed")
        for name in (*names, "wide", "rare"):
            value = getattr(self, name)
            setattr(path, name, value[: len(counts)] if name == "confidences" else value)
        path.improve(new_sample, path, everything=True)
        return path

    def improve(self, sample, plain, everything=False):
        """Improve the clusterings of the descent on this sample, and set the penalty.

        ``plain`` is the path in the metric of the data, maybe this one: if it has a better
        clustering for a number, that is taken. The best number keeps its own, brought to its fixed
        point, unless the error there is hardly below that of fewer clusters.

        If it is cheap, or with ``everything``, all clusterings are brought to fixed points, and the
        penalty follows from their errors. Else that is done when they are asked for, and the
        penalty stays that of the descent. For a given ``lam`` nothing is done.
        """
        if self._problem.lam is not None or self.stays:
            return
        if plain is not self:
            self._take(plain, sample)
        kept = self.counts[self.counts <= self.longest]
        if everything or sample.plain.X.size * int(kept.sum()) <= CHEAP:
            self._converge_all(sample)
            self._choose()

    def _take(self, plain, sample):
        """Take clusterings of ``plain``, the path in the metric of the data, where it is better."""
        error, last = self.found_error, min(self.longest, plain.longest)
        _, index, plain_index = np.intersect1d(self.counts, plain.counts, return_indices=True)
        for i, j in zip(index, plain_index, strict=True):
            k = int(self.counts[i])
            if k <= last and k != self.best and plain.found_error[j] < error[i]:
                self._centers[k], error[i] = plain.found(k), plain.found_error[j]
        # the best number: its own clustering, unless it is no better than those of fewer clusters
        i = int(np.searchsorted(self.counts, self.best))
        least = error[:i].min(initial=np.inf)
        centers = self._centers[self.best][:, self._problem.varying]
        centers, error[i] = sample.fixed_point(centers)
        self._centers[self.best] = self._problem.whole(centers)
        if error[i] < LEAST_SWEPT_ERROR * least:
            self._at_fixed_point.add(self.best)
        elif self.best <= last and self.best in plain.counts:
            self._centers[self.best] = plain.found(self.best)
            error[i] = plain.found_error[plain.counts == self.best][0]

    def improve_some(self, counts):
        """Bring the clusterings into these numbers to fixed points, and the others not yet.

        Also those of fewer clusters whose errors, lowered by sweeps, may end below these: each
        clustering must have a smaller error than those of fewer clusters.
        """
        if self._complete:
            return
        first, last = np.searchsorted(self.counts, [min(counts), max(counts)]).tolist()
        below = LEAST_SWEPT_ERROR * self.found_error[:first] < self.found_error[first]
        first = first if not below.any() else int(below.argmax())
        with one_blas_thread(min(self._problem.X.shape[0], BLOCK_ROWS), self._problem.X.shape[1]):
            self._converge(self._problem.rows_of(self._rows), first, last + 1)
        counts_done = self.counts[first : last + 1].tolist()
        self._at_fixed_point |= {k for k in counts_done if self._centers[k] is not None}

    def adopt(self, centers):
        """Take the centers of a fit that went on from those of the best number, if as many.

        Where clusters have a least size, the fit may have lost some: the number is then that left.
        """
        left = int(np.searchsorted(self.counts, len(centers)))
        if self.stays and self.counts[left] == len(centers) < self.best:
            self.best, self.confidence = len(centers), float(self.confidences[left])
        before = self._centers[self.best]
        if centers.shape == before.shape and not np.array_equal(centers, before):
            self._centers[self.best] = centers.copy()
            if self.stays:
                sample = self._problem.rows_of(self._rows)
                i = int(np.searchsorted(self.counts, self.best))
                self._table[0][i] = sample.error_of(centers[:, self._problem.varying])
            elif self._problem.varying.any():
                self._adopted, self._complete = True, False
