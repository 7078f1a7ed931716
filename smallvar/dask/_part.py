"""One partition on a worker: facts about its rows, and sweeps of DP-means over them.

In this order: ``Facts`` and sums over all rows, which the driver needs before the first sweep;
``Step``, which the driver sends for a sweep; ``State``, what a worker keeps of a partition;
``run_step``, which the workers call, and ``StepResult``, which they return.

A state (labels, bounds, sums) only saves time between two sweeps. It records which step it is the
result of. Where it is lost, or belongs to other steps, a sweep from the centers of the step has the
same labels.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from smallvar._core.validation import one_row
from smallvar._sweeps.dpmeans import DPSweep
from smallvar._sweeps.ranges import column_range, count_small
from smallvar._sweeps.sums import Sums
from smallvar.dask._executor import put_state, take_state, threads_here


@dataclass
class Facts:
    """Facts about the rows of some partitions; dicts are by partition.

    ``low`` and ``high`` are the ranges of the columns, of the rows of positive weight (first row)
    and of all rows; they are infinite, low above high, where there are no such rows.
    """

    sizes: dict[int, int]  # number of rows that take part
    all_sizes: dict[int, int]  # number of all rows
    low: Any
    high: Any
    weights: tuple[float, float] = (np.inf, 0.0)  # least and largest positive weight
    n: int = 0  # rows of positive weight
    total_weight: float = 0.0
    unit_weights: bool = True  # whether all weights are 1
    sparse: bool = False
    dtypes: frozenset[Any] = frozenset()
    first: tuple[float, Any] = (np.inf, None)  # partition and values of the first row with weight
    names: dict[int, Any] = field(default_factory=dict)  # all data sets,
    used: dict[int, Any] = field(default_factory=dict)  # and those of the rows that take part


def facts_of_parts(parts, shared, each):
    """Facts about the rows of these partitions."""
    return merge_facts([_facts_of_part(p, block) for p, block in parts])


def _facts_of_part(p, block):
    """Facts about the rows of partition ``p``."""
    X, weight, threads = block.X, block.weight, threads_here()
    low = np.full((2, X.shape[1]), np.inf)
    facts = Facts({p: X.shape[0]}, {p: block.n_total}, low, -low)
    if block.sets is not None:
        facts.names, facts.used = {p: block.names}, {p: block.sets.names}
    if X.shape[0] == 0:
        return facts
    facts.sparse, facts.dtypes = not isinstance(X, np.ndarray), frozenset([X.dtype])
    facts.low[:], facts.high[:] = column_range(X, None, threads)
    facts.n, facts.total_weight, row = X.shape[0], float(X.shape[0]), 0
    if weight is not None:
        positive = weight[weight > 0.0]
        facts.n, facts.total_weight = len(positive), float(positive.sum())
        facts.unit_weights = bool((weight == 1.0).all())
        facts.low[0], facts.high[0] = np.inf, -np.inf
        if len(positive):
            row = int(np.argmax(weight > 0.0))
            facts.weights = float(positive.min()), float(positive.max())
            facts.low[0], facts.high[0] = column_range(X, weight, threads)
    if facts.n:
        facts.first = p, one_row(X, row)
    return facts


def merge_facts(several):
    """Facts about all rows, from the facts about some partitions each."""

    def each(name):
        return [getattr(facts, name) for facts in several]

    least, largest = zip(*each("weights"), strict=True)
    return Facts(
        merge_dicts(each("sizes")),
        merge_dicts(each("all_sizes")),
        np.min(each("low"), axis=0),
        np.max(each("high"), axis=0),
        (min(least), max(largest)),
        sum(each("n")),
        sum(each("total_weight")),
        all(each("unit_weights")),
        any(each("sparse")),
        frozenset().union(*each("dtypes")),
        min(each("first"), key=lambda found: found[0]),
        merge_dicts(each("names")),
        merge_dicts(each("used")),
    )


def merge_dicts(several):
    """Union of dictionaries with different keys."""
    return {key: value for result in several for key, value in result.items()}


def count_small_values(parts, shared, each):
    """Number of rows with 0 < |x - origin| < limit, for each column.

    ``shared`` are whether the rows have weights, the origin and the limit.
    """
    weighted, origin, limit = shared
    return sum(
        count_small(block.X, block.weight if weighted else None, origin, limit, threads_here())
        for _, block in parts
    )


def sum_all_rows(parts, layout, each):
    """Exact sums and count of all rows, as of a single cluster: cells and counts."""
    sums = Sums(layout, 1)
    for _, block in parts:
        label = np.zeros(block.X.shape[0], dtype=np.int32)
        sums.add(block.X, label, block.weight if layout.weighted else None, threads_here())
    return sums.cells.copy(), sums.counts.copy()


def add_sums(several):
    """Cells and counts added up over partitions, which have one layout; None if all are None.

    A partition may have sums of fewer clusters: it has no rows in those opened later.
    """
    present = [sums for sums in several if sums is not None]
    if not present:
        return None
    k = max(len(counts) for _, counts in present)
    cells, counts = np.zeros((k, *present[0][0].shape[1:])), np.zeros(k)
    for cell, count in present:
        cells[: len(count)] += cell  # exactly: bins leave room for all rows
        counts[: len(count)] += count
    return cells, counts


@dataclass
class Opened:
    """Centers opened in a sweep, in the order of the rows, and the partitions that opened them."""

    centers: np.ndarray
    owners: np.ndarray  # numbers of the partitions, ascending

    def before(self, p):
        """Centers opened by partitions before ``p``."""
        return self.centers[: np.searchsorted(self.owners, p)]

    def of(self, p):
        """Centers opened by partition ``p``."""
        return self.centers[slice(*np.searchsorted(self.owners, [p, p + 1]))]

    def after(self, p):
        """Centers opened by partitions after ``p``."""
        return self.centers[np.searchsorted(self.owners, p + 1) :]


@dataclass
class Step:
    """A sweep, as the driver sends it to the workers, with the step before that led to its centers.

    ``iteration`` counts the moves of the centers. ``kind`` is the sweep: "create" opens clusters
    row by row, "farthest" seeks the row to open one at, "assign" opens none; "stay" is no sweep,
    the centers have only moved.
    """

    fit: str
    iteration: int
    kind: str
    frame: object  # Frame, with layout
    spherical: bool
    centers: np.ndarray  # at the start
    lam: float
    cap: int
    max_opened: int  # clusters that one partition may open
    opened: Opened  # centers opened so far in this sweep
    remap: np.ndarray | None = None  # new numbers of the clusters of the step before, -1: removed
    previous: "Step | None" = None  # the step before; without centers where they are not needed
    sums: bool = False  # whether to return the sums of the clusters,
    total: bool = False  # the squared distances from the origin,
    error: bool = False  # the squared distances from the assigned centers
    keep: bool = True  # whether the worker keeps the state


class TooManyOpened(Exception):
    """A partition opens more clusters than ``max_opened``."""


class State:
    """State of a partition during a fit: a DPSweep over its rows, and the step it is at.

    The sweep of step ``kind`` in ``iteration`` was made with the centers ``preceding``, opened by
    partitions before this one, and opened the centers ``opened``.
    """

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
        self.iteration, self.kind, self.preceding, self.opened = step.iteration, None, None, None
        self.farthest = None
        self.moved = None  # number of rows with a new label in the sweep, None: not known
        self.fresh = True  # no labels from an earlier sweep

    def matches(self, p, step):
        """Whether this state is the result of a step, with all clusters of that step."""
        if self.iteration != step.iteration or self.kind != step.kind:
            return False
        opened = step.opened
        if step.kind == "farthest":
            chosen = len(opened.of(p)) > 0
            return not chosen or np.array_equal(self.farthest[2], opened.of(p)[0])
        return np.array_equal(self.preceding, opened.before(p)) and np.array_equal(
            self.opened, opened.of(p)
        )

    def advance(self, p, step):
        """Move from the result of the previous step to the centers that ``step`` starts from."""
        opened = step.previous.opened
        if step.previous.kind == "farthest" and len(opened.of(p)):
            self.sweep.open_farthest()
            self.sweep.present_sums()
        elif step.previous.kind == "farthest":
            self.sweep.append(opened.centers)
        else:
            self.sweep.append(opened.after(p))
        self.sweep.move_to(step.centers, step.remap)
        self.iteration, self.kind, self.fresh = step.iteration, None, False

    def sweep_rows(self, p, step):
        """Make the sweep of ``step``, after the clusters that earlier partitions opened in it."""
        preceding = step.opened.before(p) if step.kind == "create" else step.opened.centers[:0]
        if self.kind is None:
            self.sweep.append(preceding)
        elif len(self.opened) == 0 and np.array_equal(
            self.preceding, preceding[: len(self.preceding)]
        ):
            # this partition opened none and has met some of these clusters: only the others are new
            self.sweep.append(preceding[len(self.preceding) :])
            self.sweep.recount()
        else:
            self.sweep.start(np.vstack((step.centers, preceding)))
        if step.kind == "create":
            begin = self.sweep.k
            self.sweep.create(step.lam, min(step.cap, begin + step.max_opened + 1))
            self.opened = self.sweep.centers[begin:]
            if len(self.opened) > step.max_opened:
                raise TooManyOpened
        else:
            self.sweep.seek_farthest(step.lam, step.kind == "farthest" and step.cap > self.sweep.k)
            self.sweep.assign()
            self.opened = preceding
            self.farthest = self.sweep.farthest_found() if step.kind == "farthest" else None
            if self.farthest is not None:
                i, distance = self.farthest
                weight = 1.0 if self.block.weight is None else float(self.block.weight[i])
                label = int(self.sweep.labels[i])
                self.farthest = distance, i, one_row(self.block.X, i), weight, label
        if self.sweep.needs_float64:
            self.sweep.use_float64()
        has_labels = not self.fresh or step.iteration == 0  # all labels are 0 at first
        self.moved = self.sweep.moved() if has_labels else None
        self.kind, self.preceding = step.kind, preceding


@dataclass
class StepResult:
    """Results of a step on some partitions, returned to the driver.

    A farthest row is (distance, its number in the partition, its values, its weight, its label).
    """

    opened: dict[int, Any]  # by partition: the centers that it opened
    farthest: dict[int, Any]  # by partition: its farthest row
    moved: int | None  # rows with a new label; None if not known for some partition
    fresh: int  # partitions that had no state
    sums: tuple[Any, Any] | None = None  # cells and counts
    total: np.ndarray | None = None  # exact sum of squared distances from the origin
    error: np.ndarray | None = None  # and from the assigned centers


def run_step(parts, step, each):
    """The merged result of a step on these partitions; ``each`` is not used."""
    return merge_results([_run_step(p, block, step) for p, block in parts])


def _run_step(p, block, step):
    """The result of a step on one partition.

    A kept state that is the result of this step, or of the step before, saves time. Where it is
    lost, a new state begins at the centers of the step.
    """
    state = take_state(step.fit, p)
    if state is not None and state.iteration != step.iteration:
        if step.previous is not None and state.matches(p, step.previous):
            state.advance(p, step)
        else:
            state = None
    if state is None and step.kind == "stay":
        # "stay" makes no labels: repeat the step before, whose labels are needed
        state = State(block, step.previous, step.previous.centers)
        state.sweep_rows(p, step.previous)
        state.sweep.present_sums()
        # after the last sweep of a fit that converged, centers have not moved
        if step.previous.iteration != step.iteration:
            state.advance(p, step)
    elif state is None:
        state = State(block, step, step.centers)
    result = StepResult({}, {}, 0, int(state.fresh))
    if step.kind != "stay":
        # a sweep is made unless the state has made it, after the same centers of earlier partitions
        preceding = step.opened.before(p) if step.kind == "create" else step.opened.centers[:0]
        if state.kind != step.kind or not np.array_equal(state.preceding, preceding):
            state.sweep_rows(p, step)
        result.moved = state.moved
        result.opened[p] = state.opened
        if state.farthest is not None:
            result.farthest[p] = state.farthest
    if step.sums:
        sums, k = state.sweep.present_sums(), state.sweep.k
        result.sums = sums.cells[:k].copy(), sums.counts[:k].copy()
        result.total = state.sweep.squares(False) if step.total else None
    if step.error:
        result.error = state.sweep.squares(True)
    if step.keep:
        put_state(step.fit, p, state)
    return result


def merge_results(several):
    """The result for all partitions, from results for some partitions each."""
    total = StepResult({}, {}, 0, 0)
    for result in several:
        total.opened.update(result.opened)
        total.farthest.update(result.farthest)
        unknown = total.moved is None or result.moved is None
        total.moved = None if unknown else total.moved + result.moved
        total.fresh += result.fresh
    total.sums = add_sums([result.sums for result in several])
    for name in ("total", "error"):
        digits = [getattr(result, name) for result in several if getattr(result, name) is not None]
        setattr(total, name, sum(digits) if digits else None)
    return total


def without_centers(step):
    """A copy of the step that is small to send: enough for ``State.matches`` and ``advance``."""
    return replace(step, centers=None, frame=None, previous=None, remap=None)
