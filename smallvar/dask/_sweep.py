"""The sweep of DP-means over the partitions of a collection, as the driver makes it.

Labels and centers are those of one machine on the concatenated rows. A row opens a cluster if it is
farther than lam from all centers, also from those that rows before it opened in the same sweep. So
a partition needs the clusters that earlier partitions open. All partitions sweep at once with the
clusters known so far (a speculative pass). The driver puts what they opened in order, and the
partitions that lacked a cluster sweep again. After each round at least one more partition is
right, the first one after the first round, so the rounds end, and then all partitions are right:
optimistic concurrency control (Pan et al., 2013), but exact.

Sums and squared distances are exact whatever the order of additions (see _sums.h).
"""

from dataclasses import replace

import numpy as np
from scipy.spatial.distance import cdist

from smallvar._centers.unit_rows import no_direction
from smallvar._core.frame import Frame
from smallvar._sweeps.means import next_centers
from smallvar._sweeps.sums import Layout, Stream, Sums
from smallvar.dask._part import (
    Opened,
    Step,
    TooManyOpened,
    add_sums,
    count_small_values,
    facts_of_parts,
    merge_facts,
    merge_results,
    run_step,
    sum_all_rows,
    without_centers,
)

# growth of the batches of the first sweep: 1, 4, 16, ... partitions, as most clusters are opened in
# the first rows
GROWTH = 4
MAX_OPENED = 100_000  # clusters that a partition may open in one sweep


def gather_facts(executor):
    """Facts about all rows; the executor is restricted to the partitions that have rows."""
    facts = executor.call(facts_of_parts, None, fold=merge_facts)[0]
    executor.restrict(p for p, size in facts.sizes.items() if size)
    n = sum(facts.all_sizes.values())
    if not n:
        raise ValueError("X must have at least one row, got none in any partition")
    if not executor.numbers and not facts.names:
        raise ValueError(no_direction(n))
    if facts.n == 0:
        raise ValueError("sample_weight must have a positive entry, got all zeros")
    return facts


class CollectionFrame(Frame):
    """Frame (origin, scale, rounding, layout of the sums) of all rows of a collection."""

    def __init__(self, executor, facts, centers=None, sums_from=None, rounding=None):
        weighted = not facts.unit_weights
        total_weight = facts.total_weight if weighted else None
        used, every = zip(facts.low, facts.high, strict=True)
        super().__init__(used, every, total_weight, facts.sparse, centers, sums_from)
        if rounding is not None:
            self.rounding = rounding
        extremes = facts.weights if weighted else None

        def count(origin, limit):
            return executor.call(count_small_values, (weighted, origin, limit), fold=sum)[0]

        self.layout = Layout.of_statistics(*used, facts.n, extremes, count, origin=self.sums_from)


def overall_mean(executor, frame):
    """Weighted mean of all rows."""
    cells, counts = executor.call(sum_all_rows, frame.layout, fold=add_sums)[0]
    return as_sums(frame.layout, cells, counts).means[0]


def as_sums(layout, cells, counts, k=None):
    """Sums object of ``k`` clusters from the cells and counts that partitions returned."""
    sums = Sums(layout, len(counts) if k is None else k)
    sums.cells[: len(counts)], sums.counts[: len(counts)] = cells, counts
    return sums


def exact_value(digits):
    """Float64 value of an exact sum, which is given by its digits."""
    return float(Stream(digits[None, None], 0).read([0])[1][0])


class CollectionSweep:
    """A Sweep (see _centers/starts.py) over the partitions of an executor.

    ``centers`` are those at the start of the sweep, ``opened`` those that it opened. ``previous``
    is the last step whose sweep is over, ``remap`` the new number of each of its clusters, -1 if it
    was dropped. ``total`` is the weighted sum of squared distances from the origin, -1 before it is
    computed. ``changed`` is the number of rows that got another label in the sweep;
    ``n_unassigned`` that of rows whose cluster was dropped because its sum has no direction
    (spherical clustering only).
    """

    needs_float64 = False  # workers change to float64 themselves

    def __init__(self, executor, frame, n_samples, spherical=False, max_opened=MAX_OPENED):
        self.executor, self.frame, self.spherical = executor, frame, spherical
        # the workers have the labels; these say how many there are, and take no memory
        self.labels = np.broadcast_to(np.int32(-1), n_samples)
        self.max_opened = max_opened
        self.total = -1.0

    def start(self, centers):
        """Begin at these centers."""
        self.centers, self.iteration = np.array(centers), 0
        self.previous, self.remap = None, None
        # ``none``: no opened centers, the value of ``opened`` between sweeps
        self.none = Opened(np.empty((0, self.centers.shape[1])), np.empty(0, dtype=np.intp))
        self.limit, self.seek = np.inf, False
        self.n_unassigned = self.changed = 0
        self.opened = self.none

    @property
    def k(self):
        """Number of clusters."""
        return len(self.centers) + len(self.opened.centers)

    def step(self, kind, lam=np.inf, cap=0, **wanted):
        """Step of this kind from the present centers; ``wanted`` are its results besides labels."""
        previous = self.previous
        if previous is not None and kind != "stay":
            previous = without_centers(previous)
        return Step(
            self.executor.fit,
            self.iteration,
            kind,
            self.frame,
            self.spherical,
            self.centers,
            lam,
            cap,
            self.max_opened,
            self.none,
            self.remap,
            previous,
            keep=self.executor.held,
            **wanted,
        )

    def run_step(self, step, numbers=None):
        """Results of a step on the partitions of these numbers (None: all), as one StepResult."""
        try:
            result = self.executor.call(run_step, step, numbers=numbers, fold=merge_results)[0]
        except TooManyOpened:
            raise RuntimeError(
                f"lam={self.lam_shown:.6g} opens more than {self.max_opened} clusters in one "
                "partition: take a larger lam, or set max_clusters"
            ) from None
        if result.fresh and step.iteration > 0 and step.keep:  # a worker lost its partitions
            self.executor.relocate()
        return result

    # ---- the sweeps ----

    def create(self, lam, cap):
        """Sweep of KJ12, Algorithm 1, with the result of visiting all rows in order.

        Partitions sweep in batches. ``preceding[p]`` are the clusters of earlier partitions that
        partition p had in its last pass; a batch is done when these are right for all of it.
        """
        self.lam_shown = lam
        step = self.step("create", lam, cap)
        numbers = self.executor.numbers
        growth = GROWTH if self.iteration == 0 else len(numbers)
        opened_by, preceding, moved, first = {}, {}, 0, 0
        width = 1 if self.iteration == 0 else growth
        result = None
        while first < len(numbers):
            batch = numbers[first : first + width]
            todo, base = batch, step.opened
            while todo:
                # one pass over all partitions: if none opens a cluster, these sums are right
                complete = len(todo) == len(numbers) and step.opened is self.none
                result = self.run_step(self._with_sums(step) if complete else step, todo)
                opened_by.update(result.opened)
                preceding.update((p, step.opened.before(p)) for p in todo)
                opened = self._in_order(base, batch, opened_by, preceding, lam)
                todo = [p for p in batch if not np.array_equal(preceding[p], opened.before(p))]
                step = replace(step, opened=opened)
            moved = None if moved is None or result.moved is None else moved + result.moved
            first, width = first + width, width * growth
        self.opened = step.opened
        # sums of a pass are final only if it covered all partitions and no cluster was opened
        final = result.sums is not None and len(self.opened.centers) == 0
        self._end(step, result if final else None, moved)

    def _in_order(self, base, batch, opened_by, preceding, lam):
        """Centers opened by a batch, in order, after those of ``base``.

        A partition that lacked a cluster has only guesses; of these, centers within lam of an
        earlier one are left out, as they would not open.
        """
        centers, owners = [base.centers], [base.owners]
        for p in batch:
            before, opened = np.vstack(centers), opened_by[p]
            if len(opened) and not np.array_equal(preceding[p], before):
                near = cdist(opened, before, "sqeuclidean").min(axis=1, initial=np.inf) <= lam
                opened = opened[~near]
            centers.append(opened)
            owners.append(np.full(len(opened), p))
        return Opened(np.vstack(centers), np.concatenate(owners))

    def seek_farthest(self, lam, seek):
        """Set whether ``assign`` seeks the row with the largest weighted distance beyond lam."""
        self.limit, self.seek = lam, seek

    def assign(self):
        """Assign each row to its nearest center, and seek the farthest row if ``seek`` is set."""
        # a cap for one more cluster; without it no row is sought
        cap = len(self.centers) + 1 if self.seek else 0
        step = self.step("farthest" if self.seek else "assign", self.limit, cap)
        result = self.run_step(self._with_sums(step))
        # (partition, its farthest row as in StepResult), of the largest weighted distance; at a tie
        # the first partition
        self.farthest = None
        for p, farthest in sorted(result.farthest.items()):
            if self.farthest is None or farthest[0] > self.farthest[1][0]:
                self.farthest = p, farthest
        self._end(step, result, result.moved)

    def open_farthest(self):
        """Open a cluster at the farthest row that ``assign`` found, if it found one."""
        if self.farthest is None:
            return
        p, (_, _, row, weight, label) = self.farthest
        k = len(self.centers)
        self.sums.reserve(k + 1)
        self.sums.move_row(row, weight, label, k)
        self.opened = Opened(row[None], np.array([p]))
        self.previous = replace(self.previous, opened=self.opened)

    def _end(self, step, result, moved):
        """Store the results of a sweep that is over.

        ``result`` has the sums of the clusters; if it is None, another pass computes them.
        ``moved`` is the number of rows with a new label, None if a partition had lost its labels.
        """
        if result is None:
            result = self.run_step(self._with_sums(step))
        if result.total is not None:
            self.total = exact_value(result.total)
        self.sums = as_sums(self.frame.layout, *result.sums, k=self.k)
        self.previous = step
        # without the labels before the sweep: it changed nothing if all means stay as they are
        if moved is None:
            after = next_centers(self.sums, self._all_centers(), 0.0, self.spherical)[0]
            moved = int(not np.array_equal(after, self.centers))
        self.changed = moved

    def _with_sums(self, step):
        """The step that also returns sums and, if it is not known yet, ``total``."""
        return replace(step, sums=True, total=self.total < 0.0)

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
