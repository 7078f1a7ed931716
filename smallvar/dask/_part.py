"""What the sweeps over partitions of DP-means and of the hard HDP have in common.

In this order: ``Facts`` about all rows, and sums of them, which a fit needs before its first sweep;
``Opened``, the clusters that partitions open in a sweep, and ``StepResult``, what they return;
``PartitionSweep``, which the driver makes the sweeps with.

Labels and centers are those of one machine on the concatenated rows. A row opens a cluster if it is
farther than the penalty from all centers, also from those that rows before it opened in the same
sweep. So a partition needs the clusters that earlier rows of other partitions open. All partitions
sweep at once with the clusters known so far (a speculative pass). The driver puts what they opened
in order, and the partitions that lacked a cluster sweep again. With each pass at least one more
partition, or data set, is right, so the passes end, and then all are right: optimistic concurrency
control (Pan et al., 2013), but exact.

A worker keeps the state of a partition between two sweeps (labels, bounds, sums), which only saves
time. Sums and squared distances are exact whatever the order of additions (see _sums.h).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from smallvar._centers.unit_rows import no_direction
from smallvar._core.frame import Frame
from smallvar._core.validation import one_row
from smallvar._sweeps.ranges import column_range, count_small
from smallvar._sweeps.sums import Layout, Stream, Sums
from smallvar.dask._executor import take_state, threads_here

# growth of the number of partitions in the passes of the first sweep: 1, 5, 21, ..., as most
# clusters are opened in the first rows
GROWTH = 4
MAX_OPENED = 100_000  # clusters that a partition may open in one sweep


def merge(several):
    """One Facts or StepResult for all partitions, from those of some partitions each."""
    names = vars(several[0])
    merged = {name: MERGE[name]([getattr(one, name) for one in several]) for name in names}
    return type(several[0])(**merged)


def merge_dicts(several):
    """Union of dictionaries with different keys."""
    return {key: value for result in several for key, value in result.items()}


# ---- all rows ------------------------------------------------------------------------------------


@dataclass
class Facts:
    """Facts about the rows of some partitions; dicts are by partition.

    ``low`` and ``high`` are the ranges of the columns, of the rows of positive weight (first row)
    and of all rows; they are infinite, low above high, where there are no such rows.
    """

    sizes: dict[int, int]  # number of rows that take part
    all_sizes: dict[int, int]  # number of all rows
    names: dict[int, Any]  # all data sets,
    used: dict[int, Any]  # and those of the rows that take part
    low: Any
    high: Any
    lightest: float = np.inf  # least positive weight
    heaviest: float = 0.0
    n: int = 0  # rows of positive weight
    total_weight: float = 0.0
    unit_weights: bool = True  # whether all weights are 1
    sparse: bool = False
    dtypes: frozenset[Any] = frozenset()
    first: tuple[float, Any] = (np.inf, None)  # partition and values of the first row with weight


def facts_of_parts(parts, shared, each):
    """Facts about the rows of these partitions."""
    return merge([_facts_of_part(p, block) for p, block in parts])


def _facts_of_part(p, block):
    """Facts about the rows of partition ``p``."""
    X, weight, threads = block.X, block.weight, threads_here()
    low = np.full((2, X.shape[1]), np.inf)
    sets = [{}, {}] if block.sets is None else [{p: block.names}, {p: block.sets.names}]
    facts = Facts({p: X.shape[0]}, {p: block.n_total}, *sets, low, -low)
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
            facts.lightest, facts.heaviest = float(positive.min()), float(positive.max())
            facts.low[0], facts.high[0] = column_range(X, weight, threads)
    if facts.n:
        facts.first = p, one_row(X, row)
    return facts


def gather_facts(executor):
    """Facts about all rows; the executor is restricted to the partitions that have rows."""
    facts = executor.call(facts_of_parts, None, fold=merge)[0]
    executor.restrict(p for p, size in facts.sizes.items() if size)
    n = sum(facts.all_sizes.values())
    if not n:
        raise ValueError("X must have at least one row, got none in any partition")
    if not executor.numbers and not facts.names:
        raise ValueError(no_direction(n))
    if facts.n == 0:
        raise ValueError("sample_weight must have a positive entry, got all zeros")
    return facts


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


class CollectionFrame(Frame):
    """Frame (origin, scale, rounding, layout of the sums) of all rows of a collection."""

    def __init__(self, executor, facts, centers=None, sums_from=None, rounding=None):
        weighted = not facts.unit_weights
        total_weight = facts.total_weight if weighted else None
        used, every = zip(facts.low, facts.high, strict=True)
        super().__init__(used, every, total_weight, facts.sparse, centers, sums_from)
        if rounding is not None:
            self.rounding = rounding
        extremes = (facts.lightest, facts.heaviest) if weighted else None

        def count(origin, limit):
            return executor.call(count_small_values, (weighted, origin, limit), fold=sum)[0]

        self.layout = Layout.of_statistics(*used, facts.n, extremes, count, origin=self.sums_from)


def overall_mean(executor, frame):
    """Weighted mean of all rows."""
    return as_sums(frame.layout, executor.call(sum_all_rows, frame.layout, fold=add_sums)[0]).means[
        0
    ]


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


def as_sums(layout, cells_and_counts, k=None):
    """Sums object of ``k`` clusters from the cells and counts that partitions returned."""
    cells, counts = cells_and_counts
    sums = Sums(layout, len(counts) if k is None else k)
    sums.cells[: len(counts)], sums.counts[: len(counts)] = cells, counts
    return sums


def add_digits(several):
    """Exact sum of the digits of exact sums; None if all are None."""
    digits = [part for part in several if part is not None]
    return sum(digits) if digits else None


def exact_value(digits):
    """Float64 value of an exact sum, which is given by its digits."""
    return float(Stream(digits[None, None], 0).read([0])[1][0])


# ---- sweeps --------------------------------------------------------------------------------------


@dataclass(eq=False)
class Opened:
    """Clusters opened in a sweep, in the order of the rows.

    ``owners`` are the numbers of the partitions that opened them or, in the hard HDP, of the data
    sets, which are visited in the order of their names; they ascend. ``parts`` are the partitions.
    """

    centers: np.ndarray
    owners: np.ndarray
    parts: np.ndarray

    @classmethod
    def none(cls, d):
        """No clusters, with ``d`` features."""
        empty = np.empty(0, dtype=np.intp)
        return cls(np.empty((0, d)), empty, empty)

    def __len__(self):
        return len(self.owners)

    def __eq__(self, other):
        return other is not None and (
            np.array_equal(self.owners, other.owners)
            and np.array_equal(self.centers, other.centers)
        )

    def only(self, kept):
        """Clusters selected by ``kept``, a mask or a slice."""
        return Opened(self.centers[kept], self.owners[kept], self.parts[kept])

    def elsewhere(self, p):
        """Clusters opened by other partitions than ``p``."""
        return self.only(self.parts != p) if len(self) else self

    def before(self, owner):
        """Clusters opened by owners before this one."""
        return self.only(slice(np.searchsorted(self.owners, owner)))

    def since(self, owner):
        """Clusters opened by this owner and later ones."""
        return self.only(slice(np.searchsorted(self.owners, owner), None))


def merge_opened(opened_by, preceding, lam, d):
    """The Opened of all partitions so far; ``d`` is the number of features.

    ``opened_by[p]`` are (centers, owners, weights) that partition p opened in its last pass, and
    ``preceding[p]`` the clusters of other partitions that it had then. As long as these agree with
    the merged clusters, what it opened is right. From the first difference on they are guesses, and
    centers are left out whose weighted squared distance from an earlier one is at most ``lam``, as
    they would not open.
    """
    runs = []  # clusters opened by one owner each
    for p, (centers, owners, weights) in opened_by.items():
        ends = np.flatnonzero(np.diff(owners, append=-1)) + 1
        for first, last in zip([0, *ends[:-1]], ends, strict=True) if len(ends) else ():
            runs.append((owners[first], p, centers[first:last], weights[first:last]))
    total, n = sum(len(weights) for *_, weights in runs), 0
    found = Opened(np.empty((total, d)), np.empty(total, np.intp), np.empty(total, np.intp))
    for owner, p, centers, weights in sorted(runs, key=lambda run: run[0]):
        earlier = found.only(slice(n))
        if n and preceding[p].before(owner) != earlier.elsewhere(p):
            near = cdist(centers, earlier.centers, "sqeuclidean").min(axis=1) * weights <= lam
            centers = centers[~near]
        new = slice(n, n + len(centers))
        found.centers[new], found.owners[new], found.parts[new] = centers, owner, p
        n = new.stop
    return found.only(slice(n))


class TooManyOpened(Exception):
    """A partition opens more clusters than ``max_opened``."""


@dataclass
class StepResult:
    """Results of a step on some partitions, returned to the driver; dicts are by partition.

    Opened clusters are (centers, owners, weights of the rows or local clusters that opened them).
    """

    fresh: int  # partitions that had no state
    opened: dict[int, Any] = field(default_factory=dict)
    opened_last: dict[int, Any] = field(default_factory=dict)  # by local clusters, of the hard HDP
    farthest: dict[int, Any] = field(default_factory=dict)  # the farthest row
    # rows with a new label (None: not known), or the local clusters of data sets
    about: dict[int, Any] = field(default_factory=dict)
    sums: tuple[Any, Any] | None = None  # cells and counts
    total: Any = None  # exact sum of squared distances from the origin,
    error: Any = None  # and from the assigned centers


# how values of several partitions become one, by the names of fields
MERGE: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("sizes", "all_sizes", "names", "used"), merge_dicts),
    **dict.fromkeys(("opened", "opened_last", "farthest", "about"), merge_dicts),
    **dict.fromkeys(("n", "total_weight", "fresh"), sum),
    **{"low": partial(np.min, axis=0), "high": partial(np.max, axis=0)},
    **{"lightest": min, "heaviest": max, "unit_weights": all, "sparse": any},
    "dtypes": lambda several: frozenset().union(*several),
    "first": partial(min, key=itemgetter(0)),
    **{"sums": add_sums, "total": add_digits, "error": add_digits},
}


def run_step(parts, step, each):
    """The merged result of a step on these partitions; ``each`` is what it has for each of them."""
    return merge(
        [
            step.run(p, block, take_state(step.fit, p), own)
            for (p, block), own in zip(parts, each, strict=True)
        ]
    )


class PartitionSweep(ABC):
    """Sweeps over the partitions of an executor, in steps that the workers run.

    ``order`` are the numbers of the partitions, ``each`` what a step needs to know of each of them,
    and ``penalties`` a text.
    """

    each: Any = None

    @abstractmethod
    def needed(self, opened, p):
        """The clusters of other partitions that partition ``p`` has to know."""

    def run_step(self, step, numbers=None):
        """Results of a step on the partitions of these numbers (None: all), as one StepResult."""
        numbers = self.order if numbers is None else numbers
        try:
            result = self.executor.call(run_step, step, self.each, numbers, fold=merge)[0]
        except TooManyOpened:
            raise RuntimeError(
                f"{self.penalties}: more than {step.max_opened} clusters open in one partition; "
                "take a larger penalty, or a larger max_opened"
            ) from None
        if result.fresh and step.iteration > 0 and step.keep:  # a worker lost its partitions
            self.executor.relocate()
        return result

    def passes(self, step, name, lam, result=None):
        """Pass over the partitions until each had the clusters that it needs.

        ``name`` is the field of the step, and of its results, for the clusters that the passes
        open. ``result`` is that of a first pass over all partitions, if there is one. Returns the
        step with all clusters; the result of the last pass, with sums, or None if that was not over
        all partitions; and ``about`` of the results for all of them.
        """
        opened_by, preceding, about, todo = {}, {}, {}, self.order
        width = len(self.order) if step.iteration or result is not None else 1
        while True:
            opened = getattr(step, name)
            current = {p: self.needed(opened, p) for p in self.order[:width]}
            todo = [p for p in current if preceding.get(p) != current[p]]
            if not todo and width >= len(self.order):
                return step, result, about
            if not todo:
                width = GROWTH * width + 1
                continue
            complete = len(todo) == len(self.order)
            if result is None or preceding:
                result = self.run_step(replace(step, sums=complete), todo)
            opened_by.update(getattr(result, name))
            about.update(result.about)
            preceding.update((p, current[p]) for p in todo)
            opened = merge_opened(opened_by, preceding, lam, step.centers.shape[1])
            step, result = replace(step, **{name: opened}), result if complete else None
