"""The sweeps over the partitions of a collection: of DP-means, then of the hard HDP.

``Step`` is a sweep, as the driver sends it to the workers, and ``State`` what a worker keeps of a
partition; ``CollectionSweep`` makes the sweeps, on the driver. A state records which step it is the
result of. Where it is lost, or belongs to other steps, a sweep from the centers of the step has the
same labels.

``HDPStep``, ``HDPState`` and ``CollectionHDPSweep`` are those of the hard HDP (KJ12, Algorithm 2),
for partitions of whole data sets. Data sets are visited in the order of their names, whatever
partitions they lie in. Step 4 (rows) and step 5 (local clusters) open global clusters in that
order, and a data set needs the clusters that data sets before it opened. So a partition adds those
of other partitions just before its first data set that comes later. A sweep depends on the centers
and on which of them each data set has local clusters, not on labels; the driver has both.
"""

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from smallvar._core.frame import mean_rounding
from smallvar._core.validation import one_row
from smallvar._sweeps.dpmeans import DPSweep
from smallvar._sweeps.hdp import HDPSweep
from smallvar._sweeps.means import next_centers
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
class Step:
    """A sweep, with the step before that led to its centers.

    ``iteration`` counts the moves of the centers. ``kind`` is the sweep: "create" opens clusters
    row by row, "farthest" seeks the row to open one at, "assign" opens none; "stay" is no sweep,
    the centers have only moved.
    """

    fit: str
    iteration: int
    kind: str
    frame: Any  # Frame, with layout
    spherical: bool
    centers: Any  # at the start
    lam: float
    cap: int
    max_opened: int  # clusters that one partition may open
    opened: Opened  # centers opened so far in this sweep
    remap: Any = None  # new numbers of the clusters of the step before, -1: removed
    previous: "Step | None" = None  # the step before; without centers where they are not needed
    sums: bool = False  # whether to return the sums of the clusters,
    total: bool = False  # the squared distances from the origin,
    error: bool = False  # the squared distances from the assigned centers
    keep: bool = True  # whether the worker keeps the state

    def preceding(self, p):
        """Clusters that partition p has to know before it sweeps."""
        return self.opened.before(p if self.kind == "create" else 0)

    def run(self, p, block, state, own):
        """The result of the step on partition p, from its state (None: none); ``own`` is None.

        A state that is the result of this step, or of the step before, saves time. Where it is
        lost, a new state begins at the centers of the step.
        """
        if state is not None and state.iteration != self.iteration:
            if self.previous is not None and state.matches(p, self.previous):
                state.advance(p, self)
            else:
                state = None
        if state is None and self.kind == "stay":
            # "stay" makes no labels: repeat the step before, whose labels are needed
            state = State(block, self.previous)
            state.sweep_rows(p, self.previous)
            state.sweep.present_sums()
            # after the last sweep of a fit that converged, centers have not moved
            if self.previous.iteration != self.iteration:
                state.advance(p, self)
        elif state is None:
            state = State(block, self)
        result = StepResult(int(state.fresh))
        if self.kind != "stay":
            # a sweep is made unless the state has made it, after the same centers of others
            if state.kind != self.kind or state.preceding != self.preceding(p):
                state.sweep_rows(p, self)
            k = len(state.opened)
            result.opened[p] = state.opened, np.full(k, p), np.ones(k)
            result.about[p] = state.moved
            if state.farthest is not None:
                result.farthest[p] = state.farthest
        if self.sums:
            sums, k = state.sweep.present_sums(), state.sweep.k
            result.sums = sums.cells[:k].copy(), sums.counts[:k].copy()
            result.total = state.sweep.squares(False) if self.total else None
        if self.error:
            result.error = state.sweep.squares(True)
        if self.keep:
            put_state(self.fit, p, state)
        return result


class State:
    """State of a partition during a fit: a DPSweep over its rows, and the step it is at.

    The sweep of step ``kind`` in ``iteration`` was made with the centers ``preceding``, opened by
    partitions before this one, and opened the centers ``opened``. ``farthest`` is the farthest row:
    its distance, number, values, weight and label.
    """

    def __init__(self, block, step):
        weight = block.weight if step.frame.layout.weighted else None
        self.block = block
        labels, centers = np.zeros(block.X.shape[0], dtype=np.int32), step.centers
        # tasks that read their rows run side by side
        threads = threads_here() if step.keep else 1
        settings = step.frame, threads, len(centers), True
        self.sweep = DPSweep(block.X, weight, None, labels, *settings, spherical=step.spherical)
        self.sweep.start(np.ascontiguousarray(centers))
        self.iteration, self.kind, self.preceding, self.opened = step.iteration, None, None, None
        self.farthest = None
        self.moved = None  # number of rows with a new label in the sweep, None: not known
        self.fresh = True  # no labels from an earlier sweep

    def matches(self, p, step):
        """Whether this state is the result of a step, with all clusters of that step."""
        if (self.iteration, self.kind) != (step.iteration, step.kind):
            return False
        own = step.opened.only(step.opened.parts == p).centers
        if step.kind == "farthest":
            return not len(own) or np.array_equal(self.farthest[2], own[0])
        return self.preceding == step.preceding(p) and np.array_equal(self.opened, own)

    def advance(self, p, step):
        """Move from the result of the previous step to the centers that ``step`` starts from."""
        previous, opened = step.previous, step.previous.opened
        if previous.kind != "farthest":
            self.sweep.append(opened.since(p + 1).centers)
        elif p in opened.parts:
            self.sweep.open_farthest()
            self.sweep.present_sums()
        else:
            self.sweep.append(opened.centers)
        self.sweep.move_to(step.centers, step.remap)
        self.iteration, self.kind, self.fresh = step.iteration, None, False

    def sweep_rows(self, p, step):
        """Make the sweep of ``step``, after the clusters that earlier partitions opened in it."""
        sweep, preceding = self.sweep, step.preceding(p)
        known = 0 if self.kind is None else len(self.preceding)
        if self.kind is None:
            sweep.append(preceding.centers)
        elif not len(self.opened) and self.preceding == preceding.only(slice(known)):
            # this partition opened none and has met some of these clusters: only the others are new
            sweep.append(preceding.centers[known:])
            sweep.recount()
        else:
            sweep.start(np.vstack((step.centers, preceding.centers)))
        self.opened, self.farthest = step.centers[:0], None
        if step.kind == "create":
            begin = sweep.k
            sweep.create(step.lam, min(step.cap, begin + step.max_opened + 1))
            self.opened = sweep.centers[begin:]
            if len(self.opened) > step.max_opened:
                raise TooManyOpened
        else:
            sweep.seek_farthest(step.lam, step.kind == "farthest" and step.cap > sweep.k)
            sweep.assign()
            found = sweep.farthest_found() if step.kind == "farthest" else None
            if found is not None:
                i, distance = found
                weight = 1.0 if self.block.weight is None else float(self.block.weight[i])
                row = one_row(self.block.X, i)
                self.farthest = distance, i, row, weight, int(sweep.labels[i])
        if sweep.needs_float64:
            sweep.use_float64()
        has_labels = not self.fresh or step.iteration == 0  # all labels are 0 at first
        self.moved = sweep.moved() if has_labels else None
        self.kind, self.preceding = step.kind, preceding


class CollectionSweep(PartitionSweep):
    """A Sweep (see _centers/starts.py) over the partitions of an executor.

    ``centers`` are those at the start of the sweep, ``opened`` those that it opened. ``previous``
    is the last step whose sweep is over, ``remap`` the new number of each of its clusters, -1 if it
    was dropped. ``total`` is the weighted sum of squared distances from the origin, -1 before it is
    computed. ``changed`` is the number of rows that got another label in the sweep;
    ``n_unassigned`` that of rows whose cluster was dropped because its sum has no direction
    (spherical clustering only).
    """

    needs_float64 = False  # workers change to float64 themselves

    def __init__(self, executor, frame, n_samples, max_opened, spherical=False):
        self.executor, self.frame, self.spherical = executor, frame, spherical
        # the workers have the labels; these say how many there are, and take no memory
        self.labels = np.broadcast_to(np.int32(-1), n_samples)
        self.order, self.max_opened = executor.numbers, max_opened
        self.total = -1.0

    def start(self, centers):
        """Begin at these centers."""
        self.centers, self.iteration = np.array(centers), 0
        self.previous, self.remap = None, None
        # ``none``: no opened centers, the value of ``opened`` between sweeps
        self.opened = self.none = Opened.none(self.centers.shape[1])
        self.limit, self.seek = np.inf, False
        self.n_unassigned = self.changed = 0

    @property
    def k(self):
        """Number of clusters."""
        return len(self.centers) + len(self.opened)

    def needed(self, opened, p):
        """The clusters of earlier partitions."""
        return opened.before(p)

    def step(self, kind, lam=np.inf, cap=0, **wanted):
        """Step of this kind from the present centers; ``wanted`` are its results besides labels."""
        previous = self.previous
        if previous is not None and kind != "stay":  # small to send: enough to know the state by
            previous = replace(previous, centers=None, frame=None, previous=None, remap=None)
        about = self.executor.fit, self.iteration, kind, self.frame, self.spherical, self.centers
        bounds = lam, cap, self.max_opened, self.none
        return Step(*about, *bounds, self.remap, previous, keep=self.executor.held, **wanted)

    # ---- the sweeps ----

    def create(self, lam, cap):
        """Sweep of KJ12, Algorithm 1, with the result of visiting all rows in order."""
        self.penalties = f"lam={lam:.6g}"
        step = self.step("create", lam, cap, total=self.total < 0.0)
        step, result, moved = self.passes(step, "opened", lam)
        self.opened = step.opened
        self._end(step, result or self.run_step(replace(step, sums=True)), moved)

    def seek_farthest(self, lam, seek):
        """Set whether ``assign`` seeks the row with the largest weighted distance beyond lam."""
        self.limit, self.seek = lam, seek

    def assign(self):
        """Assign each row to its nearest center, and seek the farthest row if ``seek`` is set."""
        # a cap for one more cluster; without it no row is sought
        cap = len(self.centers) + 1 if self.seek else 0
        kind = "farthest" if self.seek else "assign"
        step = self.step(kind, self.limit, cap, sums=True, total=self.total < 0.0)
        result = self.run_step(step)
        # (partition, its farthest row) of the largest weighted distance; at a tie the first
        # partition
        found = sorted(result.farthest.items())
        self.farthest = max(found, key=lambda item: item[1][0], default=None)
        self._end(step, result, result.about)

    def open_farthest(self):
        """Open a cluster at the farthest row that ``assign`` found, if it found one."""
        if self.farthest is None:
            return
        p, (_, _, row, weight, label) = self.farthest
        k = len(self.centers)
        self.sums.reserve(k + 1)
        self.sums.move_row(row, weight, label, k)
        self.opened = Opened(row[None], np.array([p]), np.array([p]))
        self.previous = replace(self.previous, opened=self.opened)

    def _end(self, step, result, moved):
        """Store the results of a sweep that is over.

        ``moved`` are the numbers of rows with a new label in each partition, None where it had lost
        its labels.
        """
        if result.total is not None:
            self.total = exact_value(result.total)
        self.sums = as_sums(self.frame.layout, result.sums, k=self.k)
        self.previous = step
        if None in moved.values():
            # without the labels before the sweep: it changed nothing if all means stay as they are
            after = next_centers(self.sums, self._all_centers(), 0.0, self.spherical)[0]
            self.changed = int(not np.array_equal(after, self.centers))
        else:
            self.changed = sum(moved.values())

    def _all_centers(self):
        """Centers at the start of the sweep, followed by those that it opened."""
        return np.vstack((self.centers, self.opened.centers))

    # ---- after a sweep ----

    def moved(self):
        """Number of rows that moved in the sweep, or that lost their cluster before it.

        1 or 0 if the labels before the sweep were lost (see `_end`). The fit has converged at 0.
        """
        return self.changed + self.n_unassigned

    def move_centers(self):
        """Move the centers to the means of their clusters; returns the squared error.

        Clusters are dropped if they are empty or, in spherical clustering, if their sum has no
        direction. The error is ``total`` less what the means explain, not a sum over the rows.
        """
        centers, remap, error, self.n_unassigned = next_centers(
            self.sums, self._all_centers(), self.total, self.spherical
        )
        self._move(centers, remap)
        return error

    def _move(self, centers, remap):
        """Replace the centers and begin the next iteration; ``remap`` renumbers the clusters."""
        self.previous = replace(self.previous, opened=self.opened)
        self.centers, self.remap, self.opened = centers, remap, self.none
        self.iteration += 1

    def drop_empty(self):
        """Drop clusters without members, and leave the others; returns whether any was dropped."""
        centers = self._all_centers()
        kept = self.sums.counts[: len(centers)] > 0.0
        remap = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
        self._move(centers[kept], remap)
        return not kept.all()

    def squared_error(self):
        """Weighted sum of squared distances to the assigned centers, added up row by row."""
        return exact_value(self.run_step(self.step("stay", error=True)).error)

    def cluster_sums(self):
        """Sums of the clusters after the last sweep."""
        return self.sums


# ---- the hard HDP --------------------------------------------------------------------------------


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
