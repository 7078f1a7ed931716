"""The sweeps of DP-means over the partitions of a collection.

``Step`` is a sweep, as the driver sends it to the workers, and ``State`` what a worker keeps of a
partition; ``CollectionSweep`` makes the sweeps, on the driver.

A state records which step it is the result of. Where it is lost, or belongs to other steps, a sweep
from the centers of the step has the same labels.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from smallvar._core.validation import one_row
from smallvar._sweeps.dpmeans import DPSweep
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
