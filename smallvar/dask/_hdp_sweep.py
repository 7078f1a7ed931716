"""The sweeps of the hard HDP (KJ12, Algorithm 2) over partitions of whole data sets.

``HDPStep`` is a sweep, as the driver sends it to the workers, and ``HDPState`` what a worker keeps
of a partition; ``CollectionHDPSweep`` makes the sweeps, on the driver.

Data sets are visited in the order of their names, whatever partitions they lie in. Step 4 (rows)
and step 5 (local clusters) open global clusters in that order, and a data set needs the clusters
that data sets before it opened. So a partition adds those of other partitions just before its first
data set that comes later.

A sweep depends on the centers and on which of them each data set has local clusters, not on labels.
The driver has both, so a worker that dies costs only time.
"""

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from smallvar._core.frame import mean_rounding
from smallvar._sweeps.hdp import HDPSweep
from smallvar.dask._executor import put_state, threads_here
from smallvar.dask._part import (
    Opened,
    PartitionSweep,
    StepResult,
    TooManyOpened,
    as_sums,
    exact_value,
)


@dataclass
class PartitionSets:
    """The data sets of a partition, and their local clusters at the start of a sweep."""

    numbers: np.ndarray  # numbers of the data sets among all, ascending
    n_local: np.ndarray  # number of local clusters of each
    used: np.ndarray  # global cluster of each local one, data set by data set
    digest: bytes = b""  # hash of the local labels


@dataclass
class HDPStep:
    """A sweep over all partitions, with the clusters known so far."""

    fit: str
    iteration: int  # number of sweeps before
    layout: Any
    lam_local: float
    lam_global: float
    centers: Any  # at the start
    max_opened: int  # clusters that one partition may open
    opened: Opened  # in step 4
    opened_last: Opened | None = None  # in step 5; None: do step 4 only
    sums: bool = False  # whether to return the sums of the global clusters
    means: Any = None  # return the squared error from these means; None: do not
    keep: bool = True  # whether the worker keeps the state

    def run(self, p, block, state, sets):
        """Results of the step on partition p with these PartitionSets, from its state if any."""
        state = state or HDPState(block, self)
        result, state.fresh = StepResult(int(state.fresh)), False
        state.follow(p, self, sets)
        result.opened[p] = state.opened
        if self.opened_last is not None:
            result.opened_last[p], result.about[p] = state.opened_last, state.about
            result.sums = state.sweep.global_sums() if self.sums else None
        if self.means is not None:
            result.error = state.sweep.squares(self.means[: state.sweep.k])
        if self.keep:
            state.labels = None
            put_state(self.fit, p, state)
        return result


class HDPState:
    """State of a partition during a fit: an HDPSweep over its rows, and the steps done.

    A state of any earlier sweep can follow the next one, as a sweep does not depend on labels.
    ``done`` is, after step 4, the iteration and the clusters of other partitions that were known;
    ``done_last``, after step 5, those from step 4 after the last data set and those from step 5.
    """

    def __init__(self, block, step):
        order = block.sets.order()
        number = block.sets.number[order]
        weight = block.weight[order] if step.layout.weighted else None
        # tasks that read their rows run side by side
        threads = threads_here() if step.keep else 1
        rounding = mean_rounding(step.layout.low, step.layout.high)
        penalties = step.lam_local, step.lam_global
        about = step.layout, np.array(step.centers[0]), rounding, threads
        self.sweep = HDPSweep(block.X, order, number, len(block.sets), *penalties, *about, weight)
        self.ends = np.searchsorted(number, np.arange(len(block.sets) + 1)).tolist()
        self.iteration = self.done = self.done_last = None
        self.fresh = True

    def follow(self, p, step, sets):
        """Do steps 4 and 5 with the clusters of ``step``, as far as the state is not their result.

        ``sets`` are the PartitionSets of partition ``p``. Only clusters of other partitions matter:
        its own are opened again.
        """
        others, last = step.opened.elsewhere(p), sets.numbers[-1]
        known = step.iteration, others.before(last)
        if step.opened_last is None:
            if self.done != known:
                self._visit_rows(step, sets, known)
            return
        known_last = others.since(last), step.opened_last.elsewhere(p).before(last)
        if (self.done, self.done_last) == (known, known_last):
            return
        if self.done != known or self.done_last is not None:
            self._visit_rows(step, sets, known)
        self._visit_locals(sets, known_last)

    def _visit_rows(self, step, sets, known):
        """Make step 4 on all rows, with the clusters ``known`` of other partitions."""
        sweep, begin, (self.iteration, others) = self.sweep, len(step.centers), known
        self.done = self.done_last = None
        sweep.begin(step.centers, sets.n_local, sets.used)

        # visit_points may end before ``stop`` once there are more clusters than its limit
        def visit_rows(start, stop):
            if sweep.visit_points(start, stop, begin + len(others) + step.max_opened) < stop:
                raise TooManyOpened

        self._visit_sets(visit_rows, sets.numbers, others)
        self.opened = self._opened(begin, sets)
        if len(self.opened[1]) > step.max_opened:
            raise TooManyOpened
        self.done = known

    def _visit_locals(self, sets, known_last):
        """Make step 5, with the clusters ``known_last`` of other partitions."""
        sweep, (opened_after, others) = self.sweep, known_last
        sweep.append(opened_after.centers)
        begin = sweep.k
        sweep.begin_locals()
        self._visit_sets(sweep.visit_locals, sets.numbers, others)
        labels, local_labels, _, sizes, lists = sweep.result()
        self.labels = labels, local_labels
        self.about = sizes, np.concatenate(lists), blake2b(local_labels).digest()
        self.opened_last, self.done_last = self._opened(begin, sets), known_last

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


def labels_after(p, step, block, sets):
    """Global labels (numbered as in the sweep) and local labels of a partition, after a step."""
    state = HDPState(block, step)
    state.follow(p, step, sets)
    return state.labels


class CollectionHDPSweep(PartitionSweep):
    """The sweep of a start of the hard HDP (see HDPStart), over the partitions of an executor.

    ``numbers`` are the numbers of the data sets of each partition, ``center`` is the mean of all
    rows. ``each`` are the PartitionSets after the last sweep, ``sets_before`` those before it.
    """

    def __init__(self, executor, layout, center, numbers, lam_local, lam_global, max_opened):
        self.executor, self.lam_local, self.lam_global = executor, lam_local, lam_global
        self.penalties = f"lam_local={lam_local:.6g}, lam_global={lam_global:.6g}"
        self.each = {  # at first each data set has one local cluster, of the only global one
            p: PartitionSets(
                in_part, np.ones(len(in_part), np.int64), np.zeros(len(in_part), np.int32)
            )
            for p, in_part in numbers.items()
        }
        self.order = sorted(self.each, key=lambda p: self.each[p].numbers[0])
        self.none, lams = Opened.none(len(center)), (lam_local, lam_global)
        settings = layout, *lams, center[None], max_opened, self.none
        self.next_step = HDPStep(executor.fit, 0, *settings, keep=executor.held)
        self.error = np.nan

    @property
    def k(self):
        """Number of global clusters."""
        return len(self.next_step.centers)

    @property
    def centers(self):
        """Centers of the global clusters."""
        return self.next_step.centers

    @property
    def n_local(self):
        """Number of local clusters."""
        return int(sum(sets.n_local.sum() for sets in self.each.values()))

    def result(self):
        """As HDPSweep.result after the last sweep, but without labels, which the workers have."""
        lists = {}  # global clusters of each data set
        for sets in self.each.values():
            used = np.split(sets.used, np.cumsum(sets.n_local)[:-1])
            lists.update(zip(sets.numbers.tolist(), used, strict=True))
        lists = [lists[j] for j in range(len(lists))]
        return None, None, self.centers, np.array([len(used) for used in lists], np.int64), lists

    def needed(self, opened, p):
        """Clusters of other partitions, opened by data sets before the last one of ``p``."""
        return opened.elsewhere(p).before(self.each[p].numbers[-1])

    def sweep(self):
        """Make steps 4 to 6; returns whether labels changed, and the number of clusters created."""
        step, result = self.next_step, None
        if step.iteration:  # mostly no row opens a cluster: step 5 is made in the same pass
            step = replace(step, opened_last=self.none)
        step, result, _ = self.passes(step, "opened", self.lam_local + self.lam_global)
        result = None if len(step.opened) or not step.iteration else result
        step = replace(step, opened_last=self.none)
        step, result, about = self.passes(step, "opened_last", self.lam_global, result)
        sums = (result or self.run_step(replace(step, sums=True))).sums
        created = len(step.opened) + len(step.opened_last)
        # before the first sweep there are no labels to compare: they count as those of one cluster
        changed = created > 0 or (step.iteration > 0 and self._differ(about))
        sums = as_sums(step.layout, sums, k=len(step.centers) + created)
        means = sums.means[: len(step.centers) + created]
        if changed or step.iteration == 0:
            self.error = exact_value(self.run_step(replace(step, sums=False, means=means)).error)
        kept = sums.counts[: len(means)] > 0.0
        self.last_step, self.sets_before = step, self.each
        self.remap = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
        self.each = {
            p: PartitionSets(self.each[p].numbers, n_local, self.remap[used], digest)
            for p, (n_local, used, digest) in about.items()
        }
        self.next_step = replace(self.next_step, iteration=step.iteration + 1, centers=means[kept])
        return changed, created

    def _differ(self, about):
        """Whether any local label differs from that before, or its global cluster."""
        return any(
            sets.digest != about[p][2]
            or not np.array_equal(sets.n_local, about[p][0])
            or not np.array_equal(sets.used, about[p][1])
            for p, sets in self.each.items()
        )
