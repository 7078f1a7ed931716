"""The rows of a fit of the hard HDP (Kulis & Jordan 2012, section 4), and the starts made of them.

``HDPStart`` repeats sweeps until nothing changes; ``LocalClusters`` labels rows once the clusters
are known; ``HDPProblem`` has the rows, measured by squared distances. ``divergence_hdp`` has those
that are measured by a divergence.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from smallvar._centers.divergence import blocks
from smallvar._centers.dpmeans import RowsProblem
from smallvar._centers.starts import DPFit, run_starts
from smallvar._core.fit_loop import LoopSettings, Progress, RecordedStart
from smallvar._core.frame import RowsFrame, mean_rounding
from smallvar._core.groups import local_labels_of
from smallvar._selection.cluster_path import MergePath
from smallvar._selection.columns import count_distinct
from smallvar._selection.criterion import DensityCriterion
from smallvar._selection.penalty import global_of_rows, local_of_rows
from smallvar._sweeps.divergences import join_cheapest
from smallvar._sweeps.hdp import HDPSweep
from smallvar._sweeps.in_order import assign, error_of
from smallvar._sweeps.sums import exact_total

LOCAL_PENALTY = 3.0  # lam_local by default, in variances times log(distinct rows)
# numbers of clusters in a data set, and in all, that the farthest-first rule is asked for
LOCAL_GUESS, GLOBAL_GUESS = 5, 15


class HDPStart(RecordedStart):
    """One start of the hard HDP: sweeps until nothing changes.

    With ``drops`` the start begins at a fixed point. Steps in which data sets give up local
    clusters then alternate with runs of sweeps, until neither changes anything.
    """

    def __init__(self, sweep, lam_local, lam_global, drops=False):
        self.sweep, self.lam_local, self.lam_global = sweep, lam_local, lam_global
        self.drops, self.counts = drops, []

    @property
    def k(self):
        """Number of global clusters."""
        return self.sweep.k

    def run(self, n, loop):
        """Sweep over n rows to the end."""
        sweep, progress = self.sweep, Progress(loop, n)
        self.progress, at_fixed_point = progress, self.drops
        while progress.should_continue:
            # a drop lowers the objective, but may leave rows and centers out of place: sweep again
            dropped = sweep.drop() if at_fixed_point else 0
            changed, created = sweep.sweep()
            changed = changed or dropped > 0
            progress.record(
                sweep.error + self.lam_local * sweep.n_local + self.lam_global * sweep.k,
                f"{sweep.k} global clusters, {sweep.n_local} local ones, {{}}",
                changed=changed,
                opened=created,
                converged=not changed and (at_fixed_point or not self.drops),
                n_clusters=sweep.k,
                n_open=sweep.k + sweep.n_local,
            )
            at_fixed_point = self.drops and not changed
            self.counts.append(sweep.k)
        return self


@dataclass(frozen=True)
class LocalClusters:
    """The global clusters that each data set uses, and the penalty for a further one.

    ``names`` are the data sets, sorted; ``used`` has, for each of them, the global clusters of its
    local ones (int32).
    """

    names: NDArray[Any]
    used: list[NDArray[np.int32]]
    centers: NDArray[np.float64]
    lam_local: float
    rule: Any = None

    def assign(self, X, group, weight, n_threads):
        """Labels of the cheapest global clusters (KJ12, step 4, no cluster opened).

        A cluster c costs a row of data set j and weight w

            w ||x - mu_c||^2 + (lam_local unless data set j uses c).

        Rows of weight zero get the nearest of the clusters that their data set uses. ``group`` is
        the number of the data set of each row, ``len(names)`` for a data set that the fit has not
        seen.
        """
        # offset[j, c]: penalty of a row of data set j in cluster c; last row: unknown data sets
        offset = np.full((len(self.names) + 1, len(self.centers)), self.lam_local)
        for j, used in enumerate(self.used):
            offset[j, used] = 0.0
        labels = self.cheapest(X, group, offset, n_threads, weight)
        if weight is not None and not weight.all():
            idle = np.flatnonzero(weight == 0.0)
            # the nearest of the clusters that the data set uses; any, if that is not known
            offset[offset > 0.0] = np.inf
            offset[-1] = 0.0
            labels[idle] = self.cheapest(X[idle], group[idle], offset, n_threads)
        return labels

    def cheapest(self, X, group, offset, n_threads, weight=None):
        """The cluster of each row with the least w D(x, mu_c) + offset[group, c].

        The first that its data set may have, where these are all infinite.
        """
        if self.rule is None:
            rounding = mean_rounding(self.centers.min(axis=0), self.centers.max(axis=0))
            return assign(X, group, self.centers, offset, n_threads, weight, rounding=rounding)
        labels = np.empty(len(X), dtype=np.int32)
        join_cheapest(
            self.rule.kind, X, weight, group, self.centers, offset, labels, np.empty(len(X))
        )
        return labels

    def error(self, X, labels, n_threads, weight):
        """Weighted sum of divergences from the assigned centers."""
        if self.rule is None:
            return error_of(X, labels, self.centers, n_threads, weight)
        if weight is not None:  # rows without weight may be infinitely far
            X, labels, weight = X[weight > 0.0], labels[weight > 0.0], weight[weight > 0.0]
        out = self.rule.between(X, self.centers[labels])
        return exact_total(out if weight is None else weight * out)

    def label_idle(self, labels, X, weight, sets, n_threads):
        """Set the global and local ``labels`` (INOUT, two columns) of rows of weight zero."""
        idle = np.flatnonzero(weight == 0.0)
        group = sets.among(self.names)[idle]
        global_labels = self.assign(X[idle], group, weight[idle], n_threads)
        labels[idle, 0] = global_labels
        labels[idle, 1] = local_labels_of(group, global_labels, self.used, len(self.centers))


@dataclass(frozen=True)
class HDPSettings:
    """The settings of a fit of the hard HDP, for all of its rows or a sample of them.

    The penalties are numbers, or names of rules by which they follow from the rows. ``n_clusters``
    is an exact number of global clusters, or None. ``unit`` is the mean weight of all rows, the
    penalty where the rows have no variance; weights are in units of ``lightest``. ``rule`` is the
    divergence, None for squared distances.
    """

    lam_local: float | str
    lam_global: float | str
    n_clusters: int | None
    n_init: int
    loop: LoopSettings
    unit: float
    lightest: float
    rule: Any


@dataclass
class HDPFitted:
    """The result of a fit: the best start, and the penalties that are known at its end only.

    ``penalties`` are the bounds of the global penalties that fit the result, and ``path`` the merge
    path from which the starts began, where there is one.
    """

    start: HDPStart
    lam_global: float
    path: MergePath | None = None
    penalties: tuple[float, float] | None = None

    @property
    def objective_path(self):
        """The objective after every sweep; starts from a path do not know the global penalty."""
        path, start = np.array(self.start.progress.path), self.start
        if self.lam_global != start.lam_global:
            path += self.lam_global * np.array(start.counts)
        return path


class HDPProblem:
    """The rows of a fit, with their data sets, and the starts that are made of them."""

    def __init__(self, settings, X, weight, sets, n_threads):
        self.settings, self.rule, self.n_threads = settings, settings.rule, n_threads
        self.X, self.weight, self.sets = X, weight, sets

    def of(self, X, weight, sets):
        """The problem of other rows, with these settings."""
        settings = self.settings
        if self.given_local is not None:
            settings = replace(settings, lam_local=self.given_local)
        return type(self)(settings, X, weight, sets, self.n_threads)

    @cached_property
    def frame(self):
        """The frame of the rows."""
        return RowsFrame(self.X, self.weight, self.n_threads)

    def as_one_set(self, fit):
        """The rows as one data set, for starts of k-means."""
        return RowsProblem(fit, self.X, self.weight, self.n_threads)

    def pooled_path(self, rng):
        """A fit of all rows as one data set, from a merge path."""
        settings = self.settings
        loop = replace(settings.loop, tol=0.0)
        numbers = {"n_clusters": settings.n_clusters, "n_init": settings.n_init}
        return run_starts(self.as_one_set(DPFit(self.X.shape[0], None, loop, **numbers)), rng)

    def pooled(self, centers, loop):
        """A fit by k-means sweeps of all rows from these centers; no cluster opens."""
        fit = DPFit(self.X.shape[0], 1.0, loop, max_clusters=len(centers), init=centers)
        return run_starts(self.as_one_set(fit), None)

    @cached_property
    def criterion(self):
        """The criterion of labels of these rows, in the columns that vary; None if none does."""
        varying = np.ptp(self.X, axis=0) > 0.0
        if not varying.any():
            return None
        return self.criterion_of(self.X if varying.all() else self.X[:, varying].copy("C"))

    def criterion_of(self, X):
        """The criterion of a merge path of rows."""
        return DensityCriterion(RowsFrame(X, self.weight, self.n_threads))

    def farthest_local(self):
        """The local penalty of the farthest-first rule, for rows of weight 1."""
        return local_of_rows(self.X, self.sets, LOCAL_GUESS, self.n_threads)

    def farthest_global(self):
        """The global penalty of the farthest-first rule, for rows of weight 1."""
        return global_of_rows(self.X, self.sets, GLOBAL_GUESS, self.n_threads)

    def distances(self, means, centers):
        """Squared distances of means from centers."""
        return cdist(means, centers, "sqeuclidean")

    def _given(self, lam, farthest):
        """A penalty that does not depend on a start, as a number; None for "auto"."""
        if lam == "auto":
            return None
        return self.settings.unit * farthest() if lam == "farthest-first" else float(lam)

    @cached_property
    def given_local(self):
        """The penalty of a local cluster; None where it follows from pooled clusters."""
        return self._given(self.settings.lam_local, self.farthest_local)

    @property
    def given_global(self):
        """The penalty of a global cluster; None where it follows from the result."""
        return self._given(self.settings.lam_global, self.farthest_global)

    def local_penalty(self, pooled):
        """The penalty of a local cluster; "auto" derives it from the pooled clusters."""
        if self.given_local is not None:
            return self.given_local
        derived = self.derived_penalty(pooled) if pooled.inertia > 0.0 else 0.0
        return float(derived or self.settings.unit)

    @cached_property
    def n_distinct(self):
        """The number of distinct rows."""
        return count_distinct(self.X)

    def derived_penalty(self, pooled):
        """The local penalty 3 s^2 log(u), for u distinct rows.

        s^2 = inertia / (u d), where d is the number of columns that vary, is the variance within
        the pooled clusters.
        """
        n_distinct = self.n_distinct
        n_varying = int((self.frame.spread > 0.0).sum())
        variance = LOCAL_PENALTY * pooled.inertia / (n_distinct * n_varying)
        return variance * float(np.log(n_distinct))

    def sweep(self, order, lam_local, lam_global):
        """The sweep of these rows, visited in this order."""
        weight = None if self.weight is None else self.weight[order]
        sets = self.sets.number[order], len(self.sets)
        frame = self.frame.layout, self.frame.mean, self.frame.rounding
        return HDPSweep(self.X, order, *sets, lam_local, lam_global, *frame, self.n_threads, weight)

    def from_mean(self, order, lam_local, lam_global):
        """Run Algorithm 2 from the mean of all rows, which are visited in this order."""
        start = HDPStart(self.sweep(order, lam_local, lam_global), lam_local, lam_global)
        return start.run(self.X.shape[0], self.settings.loop)

    def from_pooled(self, pooled, loop):
        """Run the sweeps from pooled clusters, in which data sets drop local clusters.

        A data set drops a local cluster that saves it less than the local penalty. No global
        cluster opens, as the global penalty is infinite.
        """
        lam_local = self.local_penalty(pooled)
        sweep = self.sweep(self.sets.order(), lam_local, np.inf)
        sweep.start(pooled.centers, pooled.labels)
        return HDPStart(sweep, lam_local, 0.0, drops=True).run(self.X.shape[0], loop)

    def largest_global_penalty(self, labels, centers):
        """The penalty above which some global cluster, were it gone, would not be opened again.

        If global cluster c were gone, a local cluster j on c, of weight s_j and mean m_j, would
        open it again (KJ12, step 5) where s_j min_{p != c} ||m_j - mu_p||^2 exceeds the global
        penalty. The result is the maximum of that over the local clusters on c, minimized over c.
        It is infinite for a single cluster.
        """
        X, weight, sets, k = self.X, self.weight, self.sets, len(centers)
        if k == 1:
            return np.inf
        # a pair is a local cluster
        pairs, pair_of_row = sets.pairs(labels, k)
        weights, assigned = np.bincount(pair_of_row, weight), pairs % k
        means = np.empty((len(pairs), X.shape[1]))
        for j in range(X.shape[1]):
            column = X[:, j] if weight is None else weight * X[:, j]
            means[:, j] = np.bincount(pair_of_row, column) / weights
        largest = np.zeros(k)
        for batch in blocks(len(pairs), centers.size):
            distances = self.distances(means[batch], centers)
            # without the cluster itself
            distances[np.arange(len(distances)), assigned[batch]] = np.inf
            np.maximum.at(largest, assigned[batch], weights[batch] * distances.min(axis=1))
        return float(largest.min())
