"""The sweep of the hard HDP (KJ12, Algorithm 2) over partitions of whole data sets.

First what the workers do: ``OpenedClusters`` of a step, the ``HDPStep`` that the driver sends, the
``HDPState`` of a partition, and ``run_step``. Then the driver: ``merge_opened`` and
``CollectionHDPSweep``.

Labels and centers are those of one machine, whatever data sets a partition has. Data sets are
visited in the order of their names. Step 4 (rows) and step 5 (local clusters) open global clusters
in that order, and a data set needs the clusters that data sets before it opened. So all partitions
visit their data sets with the clusters known so far, and add those of other partitions just before
the first data set that comes later. The driver puts the clusters that they opened in order, and the
partitions that lacked some visit their data sets again. The first data set is right after the first
round, and with each round at least one more.

A sweep depends on the centers and on which of them each data set has local clusters, not on labels.
The driver has both, so a worker that dies costs only time. The states of the workers save adding
up sums again.
"""

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from smallvar._core.frame import mean_rounding
from smallvar._sweeps.hdp import HDPSweep
from smallvar.dask._executor import put_state, take_state, threads_here
from smallvar.dask._part import TooManyOpened, add_sums
from smallvar.dask._sweep import GROWTH, as_sums, exact_value


@dataclass
class OpenedClusters:
    """Clusters opened in a step, in the order of the data sets that opened them."""

    centers: np.ndarray
    owners: np.ndarray  # numbers of the data sets, ascending
    weights: np.ndarray  # weight of the row or the local cluster that opened each
    parts: np.ndarray  # partitions of the data sets

    @classmethod
    def none(cls, d):
        """Empty Clusters with ``d`` features."""
        empty = np.empty(0, dtype=np.intp)
        return cls(np.empty((0, d)), empty, np.empty(0), empty)

    def __len__(self):
        return len(self.owners)

    def __eq__(self, other):
        return np.array_equal(self.owners, other.owners) and np.array_equal(
            self.centers, other.centers
        )

    def only(self, kept):
        """Clusters selected by ``kept``, a mask or a slice."""
        columns = self.centers, self.owners, self.weights, self.parts
        return OpenedClusters(*(column[kept] for column in columns))

    def elsewhere(self, p):
        """Clusters opened by other partitions than ``p``."""
        return self.only(self.parts != p) if len(self) else self

    def before(self, number):
        """Clusters opened by data sets before this number."""
        return self.only(slice(np.searchsorted(self.owners, number)))

    def after(self, number):
        """Clusters opened by the data set of this number and by later ones."""
        return self.only(slice(np.searchsorted(self.owners, number), None))


@dataclass
class PartitionSets:
    """The data sets of a partition, and their local clusters at the start of a sweep."""

    numbers: np.ndarray  # numbers of the data sets among all, ascending
    n_local: np.ndarray  # number of local clusters of each
    used: np.ndarray  # global cluster of each local one, data set by data set
    digest: bytes = b""  # hash of the local labels


@dataclass
class HDPStep:
    """A sweep over all partitions, as the driver sends it, with the clusters known so far."""

    fit: str
    iteration: int  # number of sweeps before
    layout: object
    lam_local: float
    lam_global: float
    centers: np.ndarray  # at the start
    max_opened: int  # clusters that one partition may open
    rows: OpenedClusters  # opened in step 4
    locals: OpenedClusters | None = None  # opened in step 5; None: do step 4 only
    sums: bool = False  # whether to return the sums of the global clusters
    means: np.ndarray | None = None  # return the squared error from these means; None: do not
    keep: bool = True  # whether the worker keeps the state


class HDPState:
    """State of a partition during a fit: an HDPSweep over its rows, and the steps done.

    A state of any earlier sweep can follow the next one, as a sweep does not depend on labels.
    ``rows`` is, after step 4, (clusters of other partitions, clusters opened here); ``locals``,
    after step 5, (clusters of others from step 4 after the last data set, those from step 5,
    clusters opened here, local clusters of the data sets).
    """

    def __init__(self, block, step):
        order = block.sets.order()
        number = block.sets.number[order]
        self.sweep = HDPSweep(
            block.X,
            order,
            number,
            len(block.sets),
            step.lam_local,
            step.lam_global,
            step.layout,
            np.array(step.centers[0]),
            mean_rounding(step.layout.low, step.layout.high),
            threads_here() if step.keep else 1,  # tasks that read their rows run side by side
            block.weight[order] if step.layout.weighted else None,
        )
        self.ends = np.searchsorted(number, np.arange(len(block.sets) + 1)).tolist()
        self.iteration = self.rows = self.locals = None
        self.fresh = True

    def follow(self, p, step, sets):
        """Do steps 4 and 5 with the clusters of ``step``, as far as the state is not their result.

        ``sets`` are the PartitionSets of partition ``p``. Only clusters of other partitions matter:
        its own are opened again.
        """
        rows = step.rows.elsewhere(p)
        opened_before = rows.before(sets.numbers[-1])
        done = self.iteration == step.iteration and self.rows[0] == opened_before
        if step.locals is None:
            if not done:
                self._visit_rows(step, sets, opened_before)
            return
        opened_after = rows.after(sets.numbers[-1])
        others = step.locals.elsewhere(p).before(sets.numbers[-1])
        if done and self.locals is not None and self.locals[:2] == (opened_after, others):
            return
        if not done or self.locals is not None:
            self._visit_rows(step, sets, opened_before)
        self._visit_locals(sets, opened_after, others)

    def _visit_rows(self, step, sets, others):
        """Make step 4 on all rows, with the clusters ``others`` of other partitions."""
        sweep, begin = self.sweep, len(step.centers)
        self.iteration = self.rows = self.locals = None
        sweep.begin(step.centers, sets.n_local, sets.used)

        # visit_points may end before ``stop`` once there are more clusters than its limit
        def visit_rows(start, stop):
            if sweep.visit_points(start, stop, begin + len(others) + step.max_opened) < stop:
                raise TooManyOpened

        self._visit_sets(visit_rows, sets.numbers, others)
        opened = self._opened(begin, sets)
        if len(opened[1]) > step.max_opened:
            raise TooManyOpened
        self.iteration, self.rows = step.iteration, (others, opened)

    def _visit_locals(self, sets, opened_after, others):
        """Make step 5, with the clusters ``others`` that other partitions opened in it.

        ``opened_after`` are clusters of step 4 that data sets after those of this partition opened.
        """
        sweep = self.sweep
        sweep.append(opened_after.centers)
        begin = sweep.k
        sweep.begin_locals()
        self._visit_sets(sweep.visit_locals, sets.numbers, others)
        labels, local_labels, _, sizes, lists = sweep.result()
        self.labels = labels, local_labels
        clusters = sizes, np.concatenate(lists), blake2b(local_labels).digest()
        self.locals = opened_after, others, self._opened(begin, sets), clusters

    def _visit_sets(self, visit_range, numbers, others):
        """Visit all data sets in order, by calls of ``visit_range`` for ranges of rows.

        Clusters of other partitions are appended before the first data set that comes after theirs.
        """
        # at: for each of these clusters, how many data sets here come before its own
        first, at = 0, np.searchsorted(numbers, others.owners)
        for j in np.unique(at):
            visit_range(first, self.ends[j])
            self.sweep.append(others.centers[at == j])
            first = self.ends[j]
        visit_range(first, self.ends[-1])

    def _opened(self, begin, sets):
        """Clusters opened here, from number ``begin`` on: centers, data sets and weights."""
        centers, group, weights = self.sweep.opened(begin)
        return centers, sets.numbers[group], weights


@dataclass
class HDPStepResult:
    """Results of a step on some partitions, returned to the driver; dicts are by partition."""

    rows: dict[int, Any]  # clusters opened in step 4: centers, data sets, weights
    locals: dict[int, Any]  # clusters opened in step 5, likewise
    sets: dict[int, Any]  # n_local, used and digest after step 5, as in PartitionSets
    fresh: int  # number of partitions that had no state
    sums: tuple[Any, Any] | None = None  # cells and counts
    error: np.ndarray | None = None  # exact sum of squared distances


def run_step(parts, step, each):
    """Results of a step on these partitions; ``each`` has their PartitionSets."""
    return merge_results(
        [_run_step(p, block, step, sets) for (p, block), sets in zip(parts, each, strict=True)]
    )


def _run_step(p, block, step, sets):
    """Results of a step on one partition, from its state if the worker has one."""
    state = take_state(step.fit, p) or HDPState(block, step)
    result = HDPStepResult({}, {}, {}, int(state.fresh))
    state.fresh = False
    state.follow(p, step, sets)
    result.rows[p] = state.rows[1]
    if step.locals is not None:
        *_, result.locals[p], result.sets[p] = state.locals
    if step.sums:
        result.sums = state.sweep.global_sums()
    if step.means is not None:
        result.error = state.sweep.squares(step.means[: state.sweep.k])
    if step.keep:
        state.labels = None
        put_state(step.fit, p, state)
    return result


def merge_results(several):
    """One result for all partitions, from the results for some partitions each."""
    total = HDPStepResult({}, {}, {}, 0)
    for result in several:
        for name in ("rows", "locals", "sets"):
            getattr(total, name).update(getattr(result, name))
        total.fresh += result.fresh
    total.sums = add_sums([result.sums for result in several])
    digits = [result.error for result in several if result.error is not None]
    total.error = sum(digits) if digits else None
    return total


def labels_after(p, step, block, sets):
    """Global labels (numbered as in the sweep) and local labels of a partition, after a step."""
    state = HDPState(block, step)
    state.follow(p, step, sets)
    return state.labels


# ---- the driver ----------------------------------------------------------------------------------


def merge_opened(opened_by, preceding, lam, d):
    """Clusters opened by all data sets so far, in the order of the data sets.

    ``opened_by[p]`` are (centers, data sets, weights) that partition p opened in its last visit,
    and ``preceding[p]`` the clusters of other partitions that it had then. As long as these agree
    with the merged clusters, the clusters that its data sets opened are right. From the first
    difference on they are guesses, and centers are left out whose weighted squared distance from an
    earlier one is at most ``lam``, as they would not open. ``d`` is the number of features.
    """
    runs = []  # clusters opened by one data set each
    for p, (centers, owners, weights) in opened_by.items():
        for first, last in _runs(owners):
            runs.append((owners[first], p, centers[first:last], weights[first:last]))
    runs.sort(key=lambda run: run[0])
    total = sum(len(run[3]) for run in runs)
    clusters = OpenedClusters(
        np.empty((total, d)), np.empty(total, np.intp), np.empty(total), np.empty(total, np.intp)
    )
    # for each partition that is right so far: the numbers of merged clusters, and of clusters in
    # its ``preceding``, that have been compared; None once they have differed
    valid_until, n = dict.fromkeys(opened_by, (0, 0)), 0
    for owner, p, centers, weights in runs:
        if valid_until[p] is not None:
            begin, n_met = valid_until[p]
            others = clusters.only(slice(begin, n)).elsewhere(p)
            end = np.searchsorted(preceding[p].owners, owner)
            same = preceding[p].only(slice(n_met, end)) == others
            valid_until[p] = (n, end) if same else None
        if valid_until[p] is None and n:
            near = cdist(centers, clusters.centers[:n], "sqeuclidean").min(axis=1) * weights <= lam
            centers, weights = centers[~near], weights[~near]
        new = slice(n, n + len(weights))
        clusters.centers[new], clusters.owners[new], clusters.weights[new], clusters.parts[new] = (
            centers,
            owner,
            weights,
            p,
        )
        n = new.stop
    return clusters.only(slice(n))


def _runs(values):
    """Pairs (first, end) of the runs of equal values."""
    ends = [*(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)] if len(values) else []
    return zip([0, *ends][:-1], ends, strict=True)


class CollectionHDPSweep:
    """The sweep of a start of the hard HDP (see HDPStart), over the partitions of an executor.

    ``numbers`` are the numbers of the data sets of each partition, ``center`` is the mean of all
    rows. ``sets`` are the PartitionSets after the last sweep, ``sets_before`` those before it.
    """

    def __init__(self, executor, layout, center, numbers, lam_local, lam_global, max_opened):
        self.executor, self.lam_local, self.max_opened = executor, lam_local, max_opened
        self.none = OpenedClusters.none(len(center))
        self.sets = {  # at first each data set has one local cluster, of the only global one
            p: PartitionSets(
                in_part, np.ones(len(in_part), np.int64), np.zeros(len(in_part), np.int32)
            )
            for p, in_part in numbers.items()
        }
        self.order = sorted(self.sets, key=lambda p: self.sets[p].numbers[0])
        self.next_step = HDPStep(
            executor.fit,
            0,
            layout,
            lam_local,
            lam_global,
            center[None],
            max_opened,
            self.none,
            keep=executor.held,
        )
        self.error = np.nan

    @property
    def k(self):
        """Number of global clusters."""
        return len(self.next_step.centers)

    @property
    def centers(self):
        """Centers of the global clusters."""
        return self.next_step.centers

    def result(self):
        """As HDPSweep.result after the last sweep, but without labels, which the workers have."""
        n_sets = sum(len(sets.numbers) for sets in self.sets.values())
        lists = [None] * n_sets  # global clusters of each data set
        for sets in self.sets.values():
            used = np.split(sets.used, np.cumsum(sets.n_local)[:-1])
            for j, clusters in zip(sets.numbers.tolist(), used, strict=True):
                lists[j] = clusters
        return None, None, self.centers, np.array([len(used) for used in lists], np.int64), lists

    @property
    def n_local(self):
        """Number of local clusters."""
        return int(sum(sets.n_local.sum() for sets in self.sets.values()))

    def run_step(self, step, numbers=None):
        """Results of a step on the partitions of these numbers (None: all), as one result."""
        numbers = self.order if numbers is None else numbers
        try:
            result = self.executor.call(run_step, step, self.sets, numbers, fold=merge_results)[0]
        except TooManyOpened:
            raise RuntimeError(
                f"lam_local={self.lam_local:.6g} and lam_global={step.lam_global:.6g} open more "
                f"than {self.max_opened} global clusters in one partition: take larger ones, or a "
                "larger max_opened"
            ) from None
        if result.fresh and step.iteration > 0 and step.keep:  # a worker lost its partitions
            self.executor.relocate()
        return result

    def sweep(self):
        """Make steps 4 to 6; returns whether labels changed, and the number of clusters created."""
        step, result = self._visit_rows(self.next_step)
        step, result, local_clusters = self._visit_locals(step, result)
        created = len(step.rows) + len(step.locals)
        # before the first sweep there are no labels to compare: they count as those of one cluster
        changed = created > 0 or (step.iteration > 0 and self._differ(local_clusters))
        sums = as_sums(step.layout, *result.sums, k=len(step.centers) + created)
        means = sums.means[: len(step.centers) + created]
        if changed or step.iteration == 0:
            self.error = exact_value(self.run_step(replace(step, sums=False, means=means)).error)
        kept = sums.counts[: len(means)] > 0.0
        self.last_step, self.sets_before = step, self.sets
        self.remap = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
        self.sets = {
            p: PartitionSets(self.sets[p].numbers, n_local, self.remap[used], digest)
            for p, (n_local, used, digest) in local_clusters.items()
        }
        self.next_step = replace(self.next_step, iteration=step.iteration + 1, centers=means[kept])
        return changed, created

    def _differ(self, local_clusters):
        """Whether any local label differs from that before, or its global cluster."""
        return any(
            sets.digest != local_clusters[p][2]
            or not np.array_equal(sets.n_local, local_clusters[p][0])
            or not np.array_equal(sets.used, local_clusters[p][1])
            for p, sets in self.sets.items()
        )

    def _preceding(self, opened, p):
        """Clusters of other partitions that ``p`` needs: those before its last data set."""
        return opened.elsewhere(p).before(self.sets[p].numbers[-1])

    def _visit_rows(self, step):
        """Make step 4; returns the step with the clusters opened, and results for step 5 or None.

        In all sweeps but the first mostly no row opens a cluster. So step 5 is made in the same
        round, and its results are returned if none was opened.
        """
        numbers = self.order
        width = 1 if step.iteration == 0 else len(numbers)
        lam = step.lam_local + step.lam_global
        opened_by, preceding, result = {}, {}, None
        while True:
            current = {p: self._preceding(step.rows, p) for p in numbers[:width]}
            todo = [p for p in current if p not in preceding or preceding[p] != current[p]]
            if not todo and width >= len(numbers):
                break
            if not todo:
                width = GROWTH * width + 1
                continue
            ahead = step.iteration > 0 and result is None  # make step 5 in the same round
            sent = replace(step, locals=self.none, sums=True) if ahead else step
            result = self.run_step(sent, todo)
            opened_by.update(result.rows)
            preceding.update((p, current[p]) for p in todo)
            step = replace(
                step, rows=merge_opened(opened_by, preceding, lam, step.centers.shape[1])
            )
        return step, result if step.iteration > 0 and len(step.rows) == 0 else None

    def _visit_locals(self, step, result):
        """Make step 5; returns the step, results with sums of all partitions, and local clusters.

        ``result`` are the results of all partitions without clusters of others, or None.
        """
        numbers = self.order
        opened_by, preceding, local_clusters = {}, {}, {}
        todo, current = numbers, dict.fromkeys(numbers, self.none)
        step = replace(step, locals=self.none, sums=True)
        while todo:
            if result is None:
                result = self.run_step(replace(step, sums=len(todo) == len(numbers)), todo)
            opened_by.update(result.locals)
            local_clusters.update(result.sets)
            preceding.update((p, current[p]) for p in todo)
            complete, visited_all = result, len(todo) == len(numbers)
            opened = merge_opened(opened_by, preceding, step.lam_global, step.centers.shape[1])
            step, result = replace(step, locals=opened), None
            current = {p: self._preceding(opened, p) for p in numbers}
            todo = [p for p in numbers if preceding[p] != current[p]]
        if not visited_all:
            complete = self.run_step(step)
        return step, complete, local_clusters
