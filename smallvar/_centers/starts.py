"""The starts of DP-means: their settings, the sweeps of each, and the choice of the best one.

``DPFit`` describes a fit, ``StartPoint`` where one start begins, ``Fitted`` the result. ``Start``
drives a ``Sweep``, which may be by squared distances or divergences, in memory or on a cluster.
``run_starts`` runs all starts, from a merge path where the fit requires one.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smallvar._core.fit_loop import NO_CAP, LoopSettings, Progress, RecordedStart, best_of
from smallvar._selection.cluster_path import MergePath
from smallvar._selection.descent import check_reached
from smallvar._sweeps.stopping import CANCELLATION

MERGE_CANDIDATES = 3  # numbers of clusters on a merge path that are tried for a given lam


@dataclass(frozen=True)
class DPFit:
    """The settings of a fit of DP-means, independent of where its rows are.

    ``lam`` is None where it follows from a merge path; ``n_clusters`` is then the exact number, if
    one is wanted. ``algorithm`` is one of DPMeans, ``init`` the centers given by the user.
    """

    n_samples: int
    lam: float | None
    loop: LoopSettings
    algorithm: str = "serial"
    max_clusters: int | None = None
    n_clusters: int | None = None
    init: NDArray[np.float64] | None = None
    n_init: int = 1

    @property
    def path_options(self):
        """The options of ``find_path`` that follow from the settings."""
        return {
            "lam": self.lam, "most": self.max_clusters, "number": self.n_clusters,
            "init": self.init, "callback": self.loop.callback,
        }  # fmt: skip

    def orders(self, rng):
        """Yield the order of visit of each start; None means the order of the rows."""
        for i in range(self.n_init):
            yield rng.permutation(self.n_samples) if i > 0 else None


@dataclass(frozen=True)
class StartPoint:
    """Where one start of a fit begins.

    ``order`` are the rows in the order of visit (None: as given), ``centers`` the starting centers
    (None: the mean, or another default of the estimator). ``algorithm`` is "serial", "delayed" or
    "collapsed". ``path`` is the merge path that the centers are from. ``exact``: there must be
    exactly ``max_clusters`` clusters.
    """

    order: NDArray[np.intp] | None
    centers: NDArray[np.float64] | None
    lam: float
    algorithm: str
    max_clusters: int | None
    path: MergePath | None = None
    exact: bool = False

    def visited(self, active, weight):
        """Rows of positive weight in the order of visit (None: all as given), and weights."""
        rows = active
        if self.order is not None:
            rows = self.order if active is None else self.order[weight[self.order] > 0]
        return rows, weight if weight is None or rows is None else weight[rows]


@dataclass(frozen=True)
class Fitted:
    """The result of a fit: that of its best start.

    ``labels`` are in the order of the rows; ``inertia`` is the weighted error. ``ended``: the
    sweeps converged before ``max_iter``. ``path`` is the merge path from which the start began,
    ``sweep`` the sweep in its last state.
    """

    labels: Any
    centers: NDArray[np.float64]
    inertia: float
    objective: float
    lam: float
    objective_path: NDArray[np.float64]
    n_iter: int
    ended: bool
    path: MergePath | None
    sweep: Any

    @property
    def n_clusters(self):
        """Number of clusters."""
        return len(self.centers)


class Sweep(Protocol):
    """The interface of a sweep: clusters of rows, and passes over the rows in the order of visit.

    ``DPSweep`` is a sweep for squared distances (``CollapsedSweep`` if means move with each row),
    ``DivergenceSweep`` one for divergences. ``lam`` is the penalty, ``cap`` the largest number of
    clusters.
    """

    k: int  # clusters
    centers: np.ndarray  # of shape (k, n_features)
    labels: np.ndarray  # cluster of each row, in the order of visit
    total: float  # weighted error of all rows about one point: the scale of rounding in sums
    # whether approximate distances in float32 are too often ambiguous; use_float64() then helps
    needs_float64: bool

    def start(self, centers):
        """Set the centers, and all labels to 0."""

    def create(self, lam, cap):
        """KJ12, Algorithm 1: each row joins its nearest center, or opens a cluster at once."""

    def seek_farthest(self, lam, seek):
        """Set whether the next ``assign`` finds the row farthest beyond lam."""

    def assign(self):
        """Each row joins its nearest center."""

    def open_farthest(self):
        """Open a cluster at the row farthest beyond lam, if any: delayed creation."""

    def collapse(self, lam, cap):
        """Move rows one by one, and means (MB13, eq. 8-9); returns rows moved, clusters opened."""

    def moved(self):
        """Number of rows whose label has changed in the sweep."""

    def move_centers(self):
        """Move centers to the means, drop empty clusters; returns the error, from sums."""

    def drop_empty(self):
        """Drop clusters without members; returns whether there were any. Other centers stay."""

    def squared_error(self):
        """Weighted error about the assigned centers, row by row."""


class Start(RecordedStart):
    """One start of DP-means: sweeps until nothing changes, or until tol or max_iter ends them.

    ``centers`` are the starting centers; ``are_means`` says that they are the means of the clusters
    given by the labels of the sweep. ``order`` are the rows that the sweep visits, in this order
    (None: all as given). ``share`` is the factor of the sweep's error in the objective: 1/2 for
    directions, as 1 - cos is half the squared distance. ``shared`` are columns in which all centers
    have the mean of all rows, which the sweep does not see (None: there are none).

    If the number of clusters is exact, a cluster that has lost its last row is replaced: clusters
    open as for lam = 0, up to that number. The penalty in the objective is then that of the exact
    number in every sweep, so that the objective never rises.
    """

    def __init__(self, point, sweep, centers, are_means, order=None, share=1.0, shared=None):
        self.sweep, self.order, self.lam = sweep, order, point.lam
        self.algorithm, self.are_means = point.algorithm, are_means
        self.cap = NO_CAP if point.max_clusters is None else point.max_clusters
        self.exact = point.max_clusters if point.exact else 0
        self.share, self.path, self.shared = share, point.path, shared
        self.error_beside = 0.0 if shared is None else shared.error
        # a row opens a cluster beyond this weighted distance
        self.opens_beyond = 0.0 if point.exact else point.lam / share
        sweep.start(centers)

    @property
    def k(self):
        """Number of clusters."""
        return self.sweep.k

    def run(self, loop):
        """Sweep to the end, then make labels, centers and objective agree."""
        sweep = self.sweep
        progress = self.progress = Progress(loop, len(sweep.labels))
        # collapsed sweeps need means of the labels from the beginning
        if self.algorithm == "collapsed":
            if not self.are_means:
                sweep.assign()
            sweep.move_centers()
        while progress.should_continue:
            moved, opened = self.step()
            # given centers are not means yet if the first sweep changes no label: no fixed point
            first = progress.n_iter == 0
            converged = not (moved or opened) and not (first and not self.are_means)
            same_objective = converged and not first
            progress.record(
                progress.objective if same_objective else self.measured(sweep.move_centers()),
                f"{sweep.k} clusters, {{}}, {moved} points moved, {opened} clusters opened",
                changed=not converged,
                opened=opened,
                n_clusters=sweep.k,
            )
        if self.algorithm == "collapsed":
            self.refill()
        elif not progress.converged:
            self.finish()
        check_reached(sweep.k, self.exact)
        self.inertia = self.share * sweep.squared_error() + self.error_beside
        progress.correct(self.inertia + self.lam * sweep.k)
        return self

    def step(self):
        """Do one sweep; returns the numbers of points moved and of clusters opened."""
        sweep, before = self.sweep, self.sweep.k
        if self.algorithm == "collapsed":
            return sweep.collapse(0.0 if self.exact else self.lam, self.cap)
        if self.algorithm == "serial":
            sweep.create(self.opens_beyond, self.cap)
        else:
            # delayed creation: one cluster at most, at the row farthest beyond lam
            may_open = before < self.cap
            sweep.seek_farthest(self.opens_beyond, may_open)
            sweep.assign()
            if may_open:
                sweep.open_farthest()
        if sweep.needs_float64:
            sweep.use_float64()
        return sweep.moved(), sweep.k - before

    def measured(self, error):
        """The objective after a sweep; ``error`` is from sums, used where it is accurate enough."""
        # sums give the error as a difference, which may be mostly rounding
        if not error > CANCELLATION * self.sweep.total:
            error = self.sweep.squared_error()
        inertia = self.share * error + self.error_beside
        return inertia + self.lam * max(self.sweep.k, self.exact)

    def refill(self):
        """Sweep (collapsed) until the exact number of clusters is reached."""
        sweep, opened = self.sweep, True
        while sweep.k < self.exact and opened:
            opened = sweep.collapse(0.0, self.cap)[1] > 0
            sweep.move_centers()

    def finish(self):
        """Make labels those of the nearest centers, if sweeps did not end at a fixed point."""
        sweep, opened = self.sweep, True
        while opened:
            sweep.seek_farthest(self.opens_beyond, False)
            sweep.assign()
            if sweep.drop_empty():  # rows of weight zero may have been in such a cluster
                sweep.assign()
            opened, before = False, sweep.k
            # replace a dropped cluster by the row farthest from its center, and assign again
            if before < self.exact:
                sweep.seek_farthest(self.opens_beyond, True)
                sweep.assign()
                sweep.open_farthest()
                opened = sweep.k > before
                sweep.move_centers()
        self.progress.path.append(np.nan)  # run() corrects it

    def result(self, n_samples):
        """The result of this start; ``n_samples`` is the number of all rows."""
        sweep, labels = self.sweep, self.sweep.labels
        if self.order is not None:
            labels = np.empty(n_samples, dtype=np.int32)
            labels[self.order] = sweep.labels
        progress = self.progress
        ended = np.array(progress.path), progress.n_iter, progress.ended
        costs = self.inertia, self.objective, self.lam
        centers = sweep.centers if self.shared is None else self.shared.whole(sweep.centers)
        return Fitted(labels, centers, *costs, *ended, self.path, sweep)


class DPProblem(ABC):
    """The rows of a fit and its settings (a DPFit): what the starts and merge paths are made of.

    ``adopts``: where the penalty follows from a path, that takes the centers of the fit.
    """

    adopts = True

    def __init__(self, fit):
        self.fit = fit

    @abstractmethod
    def start(self, point):
        """The Start for a StartPoint."""

    @abstractmethod
    def path(self, rng):
        """A merge path of the rows, or of a sample, where ``lam`` is None or for "merge"."""

    def penalty(self, path):
        """The penalty that follows from a path."""
        return path.lam


def run_starts(problem, rng):
    """Run the starts of a DPProblem, from merge paths if it needs them; returns the best result."""
    fit = problem.fit
    if fit.lam is not None and fit.algorithm != "merge":
        points = (
            StartPoint(order, fit.init, fit.lam, fit.algorithm, fit.max_clusters)
            for order in fit.orders(rng)
        )
        total = fit.n_init
    else:
        points, total = _points_of_paths(problem, rng)
    finished = (problem.start(point).run(fit.loop) for point in points)
    best = best_of(finished, total=total, callback=fit.loop.callback).result(fit.n_samples)
    if problem.adopts and fit.lam is None:
        best.path.adopt(best.centers)
    return best


def _points_of_paths(problem, rng):
    """Clusterings of merge paths to start from, and their number (None: not known in advance)."""
    fit = problem.fit
    paths = ((order, problem.path(rng)) for order in fit.orders(rng))
    if fit.lam is not None:
        # "merge" for a given lam: collapsed sweeps from the best few numbers of clusters
        return (
            StartPoint(order, path.found(k), fit.lam, "collapsed", fit.max_clusters, path)
            for order, path in paths
            for k in _candidates(path, fit)
        ), None
    # from the clustering chosen on the best path, as the objectives of different penalties do not
    # compare; delayed creation keeps an exact number
    order, path = min(paths, key=lambda pair: _rank(pair[1]))
    exact, k = fit.n_clusters is not None, path.best
    algorithm = "delayed" if exact else "serial"
    if fit.algorithm == "collapsed":
        algorithm = "collapsed"
    lam = problem.penalty(path)
    return [StartPoint(order, path.found(k), lam, algorithm, k, path, exact)], 1


def _rank(path):
    """The criterion and the error of the clustering chosen on a path: lower is better."""
    return path.value, path.found_error[path.counts.searchsorted(path.best)]


def _candidates(path, fit):
    """The numbers of clusters with the lowest objectives on a path, best first."""
    objective = path.found_error + fit.lam * path.n_clusters
    most = path.longest if fit.max_clusters is None else min(fit.max_clusters, path.longest)
    ranked = path.n_clusters[np.argsort(objective, kind="stable")].tolist()
    return [k for k in ranked if k <= most][:MERGE_CANDIDATES]
