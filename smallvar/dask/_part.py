"""One partition on a worker: facts about its rows, and sweeps of DP-means over them.

What a worker keeps of a partition between two sweeps (labels, bounds, sums) only saves time. It
says itself what it is the state of; where it is lost, or is that of another history, a sweep from
the centers that were sent has the same labels.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from smallvar._core.validation import one_row
from smallvar._sweeps.dpmeans import DPSweep
from smallvar._sweeps.ranges import column_range, count_small
from smallvar._sweeps.sums import Sums
from smallvar.dask._team import put_state, take_state, threads_here


@dataclass
class Facts:
    """What is known of rows wherever they are; ``used`` are ranges of rows of positive weight."""

    sizes: dict[int, int]  # of each partition: its number of rows
    used: tuple[Any, Any] | None = None
    all_rows: tuple[Any, Any] | None = None
    n: int = 0  # rows of positive weight
    mass: float = 0.0
    extremes: tuple[float, float] | None = None  # least and largest positive weight
    alike: bool = True  # whether all weights are 1
    sparse: bool = False
    dtype: type = np.float64
    first: tuple[int, Any] | None = None  # number of a partition, its first row of positive weight


def _range_of_both(a, b):
    if a is None or b is None:
        return b if a is None else a
    return np.minimum(a[0], b[0]), np.maximum(a[1], b[1])


def facts(parts, shared, each):
    """Facts about these partitions."""
    return add_facts([_facts(p, block) for p, block in parts])


def _facts(p, block):
    X, weight = block.X, block.weight
    out = Facts({p: X.shape[0]}, sparse=not isinstance(X, np.ndarray), dtype=X.dtype.type)
    if X.shape[0] == 0:
        return out
    out.all_rows = column_range(X, None, threads_here())
    out.used, out.n, out.mass = out.all_rows, X.shape[0], float(X.shape[0])
    row = 0
    if weight is not None:
        used = weight[weight > 0.0]
        out.n, out.mass, out.alike = len(used), float(used.sum()), bool((weight == 1.0).all())
        out.used = None
        if len(used):
            row, out.extremes = int(np.argmax(weight > 0.0)), (float(used.min()), float(used.max()))
            out.used = column_range(X, weight, threads_here())
    if out.n:
        out.first = p, one_row(X, row)
    return out


def add_facts(several):
    """Facts about all of the rows."""
    total = Facts({})
    for one in several:
        total.sizes.update(one.sizes)
        total.used = _range_of_both(total.used, one.used)
        total.all_rows = _range_of_both(total.all_rows, one.all_rows)
        total.n, total.mass = total.n + one.n, total.mass + one.mass
        total.alike, total.sparse = total.alike and one.alike, total.sparse or one.sparse
        total.dtype = np.result_type(total.dtype, one.dtype).type if total.n > one.n else one.dtype
        if one.extremes is not None:
            low, high = total.extremes or one.extremes
            total.extremes = min(low, one.extremes[0]), max(high, one.extremes[1])
        if one.first is not None and (total.first is None or one.first[0] < total.first[0]):
            total.first = one.first
    return total


def small(parts, shared, each):
    """How many rows are near to an origin, by columns."""
    weighted, origin, limit = shared
    return sum(
        count_small(b.X, b.weight if weighted else None, origin, limit, threads_here())
        for _, b in parts
    )


def whole(parts, layout, each):
    """The sums of all rows."""
    sums = Sums(layout, 1)
    for _, block in parts:
        label = np.zeros(block.X.shape[0], dtype=np.int32)
        sums.add(block.X, label, block.weight if layout.weighted else None, threads_here())
    return sums.cells.copy(), sums.counts.copy()


def add_sums(several):
    """Cells and counts of one layout; clusters that only some know of follow at the end."""
    some = [one for one in several if one is not None]
    if not some:
        return None
    k = max(len(counts) for _, counts in some)
    cells, counts = np.zeros((k, *some[0][0].shape[1:])), np.zeros(k)
    for cell, count in some:
        cells[: len(count)] += cell  # exactly: bins leave room for all rows
        counts[: len(count)] += count
    return cells, counts


@dataclass
class Opened:
    """Centers opened in a sweep, in the order of the rows, and the partitions that they are of."""

    centers: np.ndarray
    owners: np.ndarray

    def before(self, p):
        """Those of partitions before this one."""
        return self.centers[: np.searchsorted(self.owners, p)]

    def of(self, p):
        """Those of this partition."""
        return self.centers[slice(*np.searchsorted(self.owners, [p, p + 1]))]

    def after(self, p):
        """Those of partitions after this one."""
        return self.centers[np.searchsorted(self.owners, p + 1) :]


@dataclass
class Step:
    """A sweep over all partitions: what it starts from, and how those centers came to be.

    ``turn`` counts the moves of the centers. ``kind`` is "create", "farthest", "assign", or "stay":
    no sweep, the centers have only moved.
    """

    fit: str
    turn: int
    kind: str
    frame: object  # Frame, with layout
    spherical: bool
    centers: np.ndarray  # at the start
    lam: float
    cap: int
    most: int  # clusters that one partition may open
    opened: Opened
    remap: np.ndarray | None = None  # of the clusters at the end of the step before
    previous: "Step | None" = None  # that step; without its centers where they are not needed
    sums: bool = False  # what is asked for: sums,
    total: bool = False  # squared distances from the origin,
    error: bool = False  # and from the own centers
    keep: bool = True  # whether the state is worth to be kept


class TooMany(Exception):
    """A partition opens more clusters than it may."""


class State:
    """A partition in the course of a fit."""

    def __init__(self, block, step, centers):
        weight = block.weight if step.frame.layout.weighted else None
        self.block = block
        labels = np.zeros(block.X.shape[0], dtype=np.int32)
        self.sweep = DPSweep(
            block.X,
            weight,
            None,
            labels,
            step.frame,
            threads_here() if step.keep else 1,  # tasks that read their rows run side by side
            len(centers),
            True,
            spherical=step.spherical,
        )
        self.sweep.start(np.ascontiguousarray(centers))
        self.turn, self.kind, self.used, self.own = step.turn, None, None, None
        self.found = None
        self.moved = None  # rows with a new label in that sweep, if it is known
        self.fresh = True  # it has no labels from an earlier sweep

    def is_after(self, p, step):
        """Whether this is what the step leaves behind."""
        if self.turn != step.turn or self.kind != step.kind:
            return False
        opened = step.opened
        if step.kind == "farthest":
            chosen = len(opened.of(p)) > 0
            return not chosen or np.array_equal(self.found[2], opened.of(p)[0])
        return np.array_equal(self.used, opened.before(p)) and np.array_equal(
            self.own, opened.of(p)
        )

    def follow(self, p, step):
        """From the end of the previous step to the centers that this one starts from."""
        opened = step.previous.opened
        if step.previous.kind == "farthest" and len(opened.of(p)):
            self.sweep.open_farthest()
            self.sweep.present_sums()
        elif step.previous.kind == "farthest":
            self.sweep.append(opened.centers)
        else:
            self.sweep.append(opened.after(p))
        self.sweep.move_to(step.centers, step.remap)
        self.turn, self.kind, self.fresh = step.turn, None, False

    def sweep_once(self, p, step):
        """The sweep of this step, with the clusters that partitions before this one opened."""
        begun = step.opened.before(p) if step.kind == "create" else step.opened.centers[:0]
        if self.kind is None:
            self.sweep.append(begun)
        elif len(self.own) == 0 and np.array_equal(self.used, begun[: len(self.used)]):
            self.sweep.append(begun[len(self.used) :])
            self.sweep.recount()
        else:
            self.sweep.start(np.vstack((step.centers, begun)))
        if step.kind == "create":
            known = self.sweep.k
            self.sweep.create(step.lam, min(step.cap, known + step.most + 1))
            self.own = self.sweep.centers[known:]
            if len(self.own) > step.most:
                raise TooMany
        else:
            self.sweep.seek_farthest(step.lam, step.kind == "farthest" and step.cap > self.sweep.k)
            self.sweep.assign()
            self.own = begun
            self.found = self.sweep.farthest_found() if step.kind == "farthest" else None
            if self.found is not None:
                i, distance = self.found
                weight = 1.0 if self.block.weight is None else float(self.block.weight[i])
                label = int(self.sweep.labels[i])
                self.found = distance, i, one_row(self.block.X, i), weight, label
        if self.sweep.needs_float64:
            self.sweep.use_float64()
        known = not self.fresh or step.turn == 0  # all labels are 0 at first
        self.moved = self.sweep.moved() if known else None
        self.kind, self.used = step.kind, begun


@dataclass
class Visit:
    """What partitions answer."""

    opened: dict[int, Any]  # of each partition: the centers that it opened
    found: dict[int, Any]  # of each partition: its farthest row
    moved: int | None  # rows with a new label; None where some partition does not know
    fresh: int  # partitions that had no state
    sums: tuple[Any, Any] | None = None
    total: np.ndarray | None = None
    error: np.ndarray | None = None


def visit(parts, step, each):
    """A step on these partitions, as far as their state is not that already."""
    return add_visits([_visit(p, block, step) for p, block in parts])


def _visit(p, block, step):
    state = take_state(step.fit, p)
    if state is not None and state.turn != step.turn:
        if step.previous is not None and state.is_after(p, step.previous):
            state.follow(p, step)
        else:
            state = None
    if state is None and step.kind == "stay":  # labels are those of the step before
        state = State(block, step.previous, step.previous.centers)
        state.sweep_once(p, step.previous)
        state.sweep.present_sums()
        if step.previous.turn != step.turn:  # the last sweep of a fit that converged moves nothing
            state.follow(p, step)
    elif state is None:
        state = State(block, step, step.centers)
    out = Visit({}, {}, 0, int(state.fresh))
    if step.kind != "stay":
        begun = step.opened.before(p) if step.kind == "create" else step.opened.centers[:0]
        if state.kind != step.kind or not np.array_equal(state.used, begun):
            state.sweep_once(p, step)
        out.moved = state.moved
        out.opened[p] = state.own
        if state.found is not None:
            out.found[p] = state.found
    if step.sums:
        sums, k = state.sweep.present_sums(), state.sweep.k
        out.sums = sums.cells[:k].copy(), sums.counts[:k].copy()
        out.total = state.sweep.squares(False) if step.total else None
    if step.error:
        out.error = state.sweep.squares(True)
    if step.keep:
        put_state(step.fit, p, state)
    return out


def add_visits(several):
    """What all of them answer."""
    total = Visit({}, {}, 0, 0)
    for one in several:
        total.opened.update(one.opened)
        total.found.update(one.found)
        unknown = total.moved is None or one.moved is None
        total.moved = None if unknown else total.moved + one.moved
        total.fresh += one.fresh
    total.sums = add_sums([one.sums for one in several])
    for name in ("total", "error"):
        digits = [getattr(one, name) for one in several if getattr(one, name) is not None]
        setattr(total, name, sum(digits) if digits else None)
    return total


def without_centers(step):
    """What a warm partition has to know of the step before."""
    return replace(step, centers=None, frame=None, previous=None, remap=None)
