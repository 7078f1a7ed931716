"""The merge path as a result: clusterings, penalties and confidences.

``ClusterPath`` has what users see, ``MergePath`` also what its search and fits need. It keeps the
clusterings of the descent, and brings them to fixed points of k-means sweeps, at once if that is
cheap, else when their errors are first asked for.
"""

from copy import copy
from typing import Any

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
    penalty_of,
)
from smallvar._selection.sample import PathProblem
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
    few_valued: NDArray[np.intp] = np.empty(0, dtype=np.intp)
    skewed: NDArray[np.intp] = np.empty(0, dtype=np.intp)
    wide: Wide = NONE_WIDE
    rare: bool = False
    noise_columns: NDArray[np.intp]
    longest: int
    n_samples: int
    linkage: NDArray[np.float64]

    _columns = ("n_clusters", "inertia", "criterion", "lam_low", "lam_high")
    _metric: Any = None
    _unit: float = 1.0

    def __init__(self, problem, clusterings, best, tree, tie, n_samples, stays=False):
        self.counts = np.array([c.k for c in clusterings], dtype=np.intp)
        self.criterion = np.array([c.criterion for c in clusterings])
        self.best, self.tie, self.n_samples = best.k, float(tie), n_samples
        self.linkage = np.array(tree, dtype=np.float64).reshape(-1, 4)
        self.value = best.criterion
        self.confidence = 1.0 if len(clusterings) == 1 else np.nan
        self.confidences = np.full(len(clusterings), self.confidence)
        self.noise_columns, self._noise_error = problem.noise, problem.noise_error
        self.longest = max(c.k for c in clusterings if c.centers is not None)
        self.found_error = self._error = np.array([c.error for c in clusterings])
        self._ends = envelope(self.counts, self._error)
        self._centers = {c.k: c.centers for c in clusterings}
        self._beside = {c.k: c.beside for c in clusterings}
        self._problem, self._rows, self._family = problem, None, problem.family
        self.clusterings = clusterings  # until the number is final
        # numbers whose clusterings are to be brought to fixed points
        # clusters of a least size stay as they are: no sweeps change them any more
        swept = stays or not problem.varying.any()
        self._unswept = set() if swept else set(self.counts.tolist())
        self.stays, self._adopted = stays, False
        self._set_penalty()

    @property
    def _place(self):
        """The index of the best number."""
        return int(np.searchsorted(self.counts, self.best))

    def _set_penalty(self):
        """Set the penalty for the best number."""
        self.lam = penalty_of(self._place, self._ends, self._error)

    def without_gap(self) -> tuple[int, int] | None:
        """Count the boundaries between the best clusters that are no gaps.

        Returns
        -------
        found : tuple of int, or None
            How many are no gaps, and how many boundaries there are; None for a single cluster, and
            for divergences other than squared distances.
        """
        problem = self._problem
        if problem.of_divergence or self.best == 1:
            return None
        labels = self.labels(self.best, n_threads=problem.n_threads)
        X = problem.X if problem.varying.all() else problem.X[:, problem.varying]
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
            return self._problem.X
        return X if self._metric is None else self._metric(X)

    def _converge(self, sample, first=0, last=None):
        """Bring the clusterings ``counts[first:last]`` to fixed points.

        Each then has a smaller error than fewer clusters. Those that are at fixed points already,
        and an adopted one, stay as they are.
        """
        varying, whole = self._problem.varying, self._problem.whole
        # index of the clustering with the lowest error so far, of fewer clusters
        error, all_centers, lowest = self._error.copy(), dict(self._centers), None
        numbers = self.counts[first:last].tolist()
        for i, k in enumerate(numbers, first):
            least = np.inf if lowest is None else error[lowest]
            if all_centers[k] is None:  # not kept: only the error is known
                error[i] = min(error[i], least)
                continue
            centers = all_centers[k][:, varying]
            if k == self.best and self._adopted:
                error[i] = sample.error_of(centers)
            elif k in self._unswept:
                centers, error[i] = sample.fixed_point(centers)
                if not error[i] < least:  # begin again, from fewer clusters and the farthest rows
                    fewer = all_centers[int(self.counts[lowest])][:, varying]
                    centers, error[i] = sample.fixed_point(fewer, k)
                all_centers[k] = whole(centers)
            if error[i] < least:
                lowest = i
        self._centers, self._error = all_centers, error
        self._ends = envelope(self.counts, error)
        self._unswept = self._unswept.difference(numbers)

    def _complete(self, first=0, last=None):
        """Bring the clusterings ``counts[first:last]`` to fixed points, unless all are there."""
        if self._unswept:
            n, d = self._problem.X.shape
            with one_blas_thread(min(n, BLOCK_ROWS), d):
                self._converge(self._problem.rows_of(self._rows), first, last)

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
        self._complete()
        noise = self._noise_error
        return self._scaled(self._error + noise if noise else self._error)

    @property
    def lam_low(self) -> NDArray[np.float64]:  # type: ignore[override]  # numpydoc ignore=RT01
        """The lowest penalty for which each number of clusters is best."""
        self._complete()
        return self._scaled(self._ends[0])

    @property
    def lam_high(self) -> NDArray[np.float64]:  # type: ignore[override]  # numpydoc ignore=RT01
        """The highest penalty for which each number of clusters is best."""
        self._complete()
        return self._scaled(self._ends[1])

    def _scaled(self, values):
        """Errors or penalties for the weights of the user."""
        return values if self._unit == 1.0 else self._unit * values

    def _in_unit(self, unit):
        """The path with errors and penalties multiplied by the unit of the weights."""
        self._unit *= unit
        self.lam *= unit
        self.linkage[:, 2] *= np.sqrt(unit)  # its heights are roots of errors
        return self

    def __getstate__(self):
        self._complete()
        return vars(self) | {"_problem": None, "_rows": None}

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
        if k in self._unswept:
            self._complete()
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
        of_divergence = hasattr(self._family, "labels")
        if X is not None:
            X = check_data(X, sparse=not of_divergence and self._metric is None)
            columns = centers.shape[1] if self._metric is None else len(self._metric.matrix)
            if X.shape[1] != columns:
                raise ValueError(f"X must have {columns} columns, got {X.shape[1]}")
        elif self._problem is None:
            raise ValueError("X must be given: a path that was pickled has lost its rows")
        X, threads = self.measured(X), resolve_threads(n_threads)
        if of_divergence:
            return self._family.labels(X, centers)
        return nearest_sweep(X, None, centers, threads).labels


class MergePath(ClusterPath):
    """A ClusterPath with what its search, and the fits that begin at it, need."""

    seen = as_seen_by_users

    # whether the number is no result of prices alone; the confidence before ``finish`` bounds it
    plausible, found_confidence = True, 1.0

    def weigh(self, sample, shared=None):
        """Set the confidences, after the descent on this sample.

        ``shared`` is the criterion by shapes that all clusters share, None: that of the path.
        """
        problem, criterion, self._rows = self._problem, sample.criterion, sample.rows
        allowed = problem.allowed(self.clusterings)
        self.value = min((c.criterion for c in allowed), default=np.inf)
        self.value_per_row = self.value / criterion.distinct
        given = not problem.lam is problem.number is None
        if given or len(self.counts) == 1:
            return
        # the largest penalty for which the number is best over the smallest, by errors in the
        # metric of the descent, and by those in the metric of the rows
        ratios = []
        for ends in (envelope(self.counts, [c.own_error for c in self.clusterings]), self._ends):
            low, high = (end[self._place] for end in ends)
            # no number is beyond that of the distinct rows; beyond a least size none is known
            last = np.inf if problem.least is None else 0.0
            ratios.append((high / low if low > 0.0 else last) if low < high else 0.0)
        self.confidence, self.confidences, gap = weighed(
            *(self.counts, self.criterion if shared is None else shared, self._compared()),
            *(self.best, criterion.tie, ratios),
            *(criterion.distinct, criterion.price_of_cluster, sample.raw is not None),
        )
        # one cluster describes the rows best even without the price of others
        self.plausible = self.best > 1 or bool(gap > 0.0)

    def _compared(self):
        """The criterion of each number, infinite beyond the largest one that may be chosen."""
        most = np.inf if self._problem.most is None else self._problem.most
        return np.where(self.counts <= most, self.criterion, np.inf)

    def judge(self, shapes, most, sample):
        """Lower the criteria of clusterings that these shapes describe better, and choose again.

        Only clusterings into at most ``most`` clusters, of which labels were kept, are judged.
        """
        for clustering in self.clusterings:
            if clustering.labels is not None and clustering.k <= most:
                value = shapes(clustering.labels, clustering.k, clustering.own)
                clustering.criterion = min(clustering.criterion, value)
        shared, self.criterion = self.criterion, np.array([c.criterion for c in self.clusterings])
        self.best = self._problem.best(self.clusterings, sample.criterion).k
        self.weigh(sample, shared)

    def replaced(self, clusterings, bounds, sample):
        """Return a path with these clusterings instead, which stay as they are.

        ``bounds`` are the largest number of clusters, and the number asked for.
        """
        problem = copy(self._problem)
        problem.most, problem.number = bounds
        for clustering in clusterings:
            # clusterings of the descent have their centers in all columns already
            if clustering.assigned is None:
                clustering.centers = problem.whole(clustering.centers)
            if clustering.beside is not None:
                clustering.beside = problem.whole(clustering.beside)
        best = problem.best(clusterings, sample.criterion)
        path = MergePath(problem, clusterings, best, self.linkage, self.tie, self.n_samples, True)
        path.weigh(sample)
        return path

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
        self.confidences = shares(self._compared(), self._place, confidence, self.tie)

    def finish(self, wide, rare):
        """Bound the confidence where a gap or few columns decide, or rows are mostly zero: rare.

        Then forget what was needed only until the number was final.
        """
        self.wide, self.rare, self.found_confidence = wide, rare, self.confidence
        most = MOST_CONFIDENT_RARE if rare else MOST_CONFIDENT if len(wide.columns) else 1.0
        if self.best > 1 and self.criterion.argmin() == 0:
            most = min(most, MOST_OF_TWO)
        if self.confidence > most and len(self.counts) > 1:
            self.choose(self.best, most)
        self._set_penalty()
        del self.clusterings

    def modeled(self, k):
        """The centers of the descent, of the rows as the criterion models them."""
        return next(c.modeled for c in self.clusterings if c.k == k)

    def found(self, k):
        """The centers at a fixed point if they were brought to one, else those of the descent."""
        return self._centers[k].copy()

    def in_metric(self, metric, X, weight, sample):
        """Go on with the same mergers, with centers, errors and penalties in this metric."""
        old, kept = self._problem, self.counts <= self.longest
        problem = PathProblem(metric(X), weight, old.n_threads, old.family, None, old.most)
        sample, self._problem, self._metric = problem.rows_of(sample.rows), problem, metric
        self.noise_columns, self._noise_error = problem.noise, problem.noise_error
        for name in ("counts", "criterion", "confidences"):
            setattr(self, name, getattr(self, name)[kept])
        centers = self._centers = {k: metric(self._centers[k]) for k in self.counts.tolist()}
        errors = np.array([sample.error_of(c[:, problem.varying]) for c in centers.values()])
        self.found_error, self._error, self._unswept = errors, errors, set(centers)
        self._converge(sample)
        self._set_penalty()
        return self

    def improve(self, sample, plain):
        """Improve the clusterings of the descent on this sample, and set the penalty.

        ``plain`` is the path in the metric of the data, maybe this one: if it has a better
        clustering for a number, that is taken. The best number keeps its own, brought to its fixed
        point, unless the error there is hardly below that of fewer clusters.

        If it is cheap, all clusterings are brought to fixed points, and the penalty follows from
        their errors. Else that is done when they are asked for, and the penalty stays that of the
        descent. For a given ``lam`` nothing is done.
        """
        if self._problem.lam is not None or self.stays:
            return
        if plain is not self:
            self._take(plain, sample)
        kept = self.counts[self.counts <= self.longest]
        if sample.plain.X.size * int(kept.sum()) <= CHEAP:
            self._converge(sample)
            self._set_penalty()

    def _take(self, plain, sample):
        """Take clusterings of ``plain``, the path in the metric of the data, where it is better."""
        error, last = self.found_error, min(self.longest, plain.longest)
        _, index, plain_index = np.intersect1d(self.counts, plain.counts, return_indices=True)
        for i, j in zip(index, plain_index, strict=True):
            k = int(self.counts[i])
            if k <= last and k != self.best and plain.found_error[j] < error[i]:
                self._centers[k], error[i] = plain.found(k), plain.found_error[j]
        # the best number: its own clustering, unless it is no better than those of fewer clusters
        i = self._place
        centers, error[i] = sample.fixed_point(self._centers[self.best][:, self.varying])
        self._centers[self.best] = self._problem.whole(centers)
        if error[i] < LEAST_SWEPT_ERROR * error[:i].min(initial=np.inf):
            self._unswept.discard(self.best)
        elif self.best <= last and self.best in plain.counts:
            self._centers[self.best] = plain.found(self.best)
            error[i] = plain.found_error[plain.counts == self.best][0]

    def improve_some(self, counts):
        """Bring the clusterings into these numbers to fixed points, and the others not yet.

        Also those of fewer clusters whose errors, lowered by sweeps, may end below these: each
        clustering must have a smaller error than those of fewer clusters.
        """
        first, last = np.searchsorted(self.counts, [min(counts), max(counts)]).tolist()
        below = LEAST_SWEPT_ERROR * self.found_error[:first] < self.found_error[first]
        first = first if not below.any() else int(below.argmax())
        self._complete(first, last + 1)

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
                self._error[self._place] = sample.error_of(centers[:, self.varying])
            elif self.varying.any():
                self._adopted = True
                self._unswept.add(self.best)
