"""The sweep of DP-means over partitions: what a Start drives, made of rounds of tasks.

Labels and centers are those of one machine on the concatenated rows. A partition opens clusters in
the order of its rows, and needs those that partitions before it have opened in the same sweep. So
all sweep at once with what is known; the driver puts together what they opened, in order; those
for which it turns out to be incomplete sweep again. The first partition is right at once, and with
each round at least one more, so this ends, and then all are right (optimistic concurrency control,
Pan et al. 2013, but exact). Sums and squared distances are exact whatever the order (see _sums.h).
"""

from dataclasses import replace

import numpy as np
from scipy.spatial.distance import cdist

from smallvar._core.frame import Frame
from smallvar._sweeps.means import next_centers
from smallvar._sweeps.sums import Layout, Stream, Sums
from smallvar.dask._part import (
    Opened,
    Step,
    TooMany,
    add_facts,
    add_sums,
    add_visits,
    facts,
    small,
    visit,
    whole,
    without_centers,
)

GROWTH = 4  # partitions that are looked at together in the first sweep: 1, 4, 16, ...
MOST = 100_000  # clusters that a partition may open in one sweep


def facts_of(team):
    """Facts about all rows; partitions without rows are left out from then on."""
    known = team.call(facts, None, fold=add_facts)[0]
    team.keep(p for p, size in known.sizes.items() if size)
    if not team.numbers:
        raise ValueError("X must have at least one row, got none in any partition")
    if known.n == 0:
        raise ValueError("sample_weight must have a positive entry, got all zeros")
    return known


class TeamFrame(Frame):
    """The place of all rows of a team."""

    def __init__(self, team, known, centers=None, sums_from=None, rounding=None):
        weighted = not known.alike
        mass = known.mass if weighted else None
        super().__init__(known.used, known.all_rows, mass, known.sparse, centers, sums_from)
        if rounding is not None:
            self.rounding = rounding
        extremes = known.extremes if weighted else None

        def count(origin, limit):
            return team.call(small, (weighted, origin, limit), fold=sum)[0]

        self.layout = Layout.of_statistics(
            *known.used, known.n, extremes, count, origin=self.sums_from
        )


def mean_of(team, frame):
    """The mean of all rows."""
    cells, counts = team.call(whole, frame.layout, fold=add_sums)[0]
    return sums_of(frame.layout, cells, counts).means[0]


def sums_of(layout, cells, counts, k=None):
    """Sums that hold what partitions added up."""
    sums = Sums(layout, len(counts) if k is None else k)
    sums.cells[: len(counts)], sums.counts[: len(counts)] = cells, counts
    return sums


def read(digits):
    """The value of an exact sum."""
    return float(Stream(digits[None, None], 0).read([0])[1][0])


class TeamSweep:
    """A Sweep (see _core/fit_loop.py) whose rows are the partitions of a team."""

    needs_float64 = False  # workers see to that themselves

    def __init__(self, team, frame, labels, spherical=False, most=MOST):
        self.team, self.frame, self.spherical = team, frame, spherical
        self.labels_of = labels
        self.most = most
        self.total = -1.0

    def start(self, centers):
        """Begin at these centers."""
        self.centers, self.turn, self.before, self.remap = np.array(centers), 0, None, None
        self.none = Opened(np.empty((0, self.centers.shape[1])), np.empty(0, dtype=np.intp))
        self.reach, self.seek = np.inf, False
        self.n_unassigned = self.changed = 0
        self.opened = self.none

    @property
    def k(self):
        """Number of clusters."""
        return len(self.centers) + len(self.opened.centers)

    @property
    def labels(self):
        """Nearest centers, a lazy dask array."""
        return self.labels_of(self.centers)

    def step(self, kind, lam=np.inf, cap=0, **asked):
        """What partitions are told of a sweep."""
        before = self.before
        if before is not None and kind != "stay":
            before = without_centers(before)
        return Step(
            self.team.fit,
            self.turn,
            kind,
            self.frame,
            self.spherical,
            self.centers,
            lam,
            cap,
            self.most,
            self.none,
            self.remap,
            before,
            keep=self.team.held,
            **asked,
        )

    def visit(self, step, numbers=None):
        """Answers of partitions, by number, and those of all of them added up."""
        try:
            out = self.team.call(visit, step, numbers=numbers, fold=add_visits)[0]
        except TooMany:
            raise RuntimeError(
                f"lam={self.lam_shown:.6g} opens more than {self.most} clusters in one partition: "
                "take a larger lam, or set max_clusters"
            ) from None
        if out.fresh and step.turn > 0 and step.keep:
            self.team.lost()
        return out

    # ---- the sweeps ----

    def create(self, lam, cap):
        """KJ12, Algorithm 1, as if the rows were visited in order."""
        self.lam_shown = lam
        step = self.step("create", lam, cap)
        numbers = self.team.numbers
        size = GROWTH if self.turn == 0 else len(numbers)
        answers, used, moved, first, width = {}, {}, 0, 0, 1 if self.turn == 0 else size
        out = None
        while first < len(numbers):
            wave = numbers[first : first + width]
            todo, base = wave, step.opened
            while todo:
                complete = len(todo) == len(numbers) and step.opened is self.none
                out = self.visit(self._with_sums(step) if complete else step, todo)
                answers.update(out.opened)
                used.update((p, step.opened.before(p)) for p in todo)
                opened = self._in_order(base, wave, answers, used, lam)
                todo = [p for p in wave if not np.array_equal(used[p], opened.before(p))]
                step = replace(step, opened=opened)
            moved = None if moved is None or out.moved is None else moved + out.moved
            first, width = first + width, width * size
        self.opened = step.opened
        alone = out.sums is not None and len(self.opened.centers) == 0
        self._end(step, out if alone else None, moved)

    def _in_order(self, base, wave, answers, used, lam):
        """Centers opened, as far as is known; guesses of others leave out what is near to those."""
        centers, owners = [base.centers], [base.owners]
        for p in wave:
            before, own = np.vstack(centers), answers[p]
            if len(own) and not np.array_equal(used[p], before):
                near = cdist(own, before, "sqeuclidean").min(axis=1, initial=np.inf) <= lam
                own = own[~near]
            centers.append(own)
            owners.append(np.full(len(own), p))
        return Opened(np.vstack(centers), np.concatenate(owners))

    def seek_farthest(self, lam, seek):
        """Whether ``assign`` looks for the row with the largest weighted distance beyond lam."""
        self.reach, self.seek = lam, seek

    def assign(self):
        """Each row joins its nearest center."""
        cap = len(self.centers) + 1 if self.seek else 0
        step = self.step("farthest" if self.seek else "assign", self.reach, cap)
        out = self.visit(self._with_sums(step))
        self.found = None
        for p, found in sorted(out.found.items()):
            if self.found is None or found[0] > self.found[1][0]:
                self.found = p, found
        self._end(step, out, out.moved)

    def open_farthest(self):
        """That row opens a cluster."""
        if self.found is None:
            return
        p, (_, _, row, weight, left) = self.found
        k = len(self.centers)
        self.sums.reserve(k + 1)
        self.sums.move_row(row, weight, left, k)
        self.opened = Opened(row[None], np.array([p]))
        self.before = replace(self.before, opened=self.opened)

    def _end(self, step, out, moved):
        """Keep the sums of a sweep that is over; they may have to be asked for."""
        if out is None:
            out = self.visit(self._with_sums(step))
        if out.total is not None:
            self.total = read(out.total)
        self.sums = sums_of(self.frame.layout, *out.sums, k=self.k)
        self.before = step
        if moved is None:  # some partitions had lost their labels: whether the means say so
            after = next_centers(self.sums, self._all_centers(), 0.0, self.spherical)[0]
            moved = int(not np.array_equal(after, self.centers))
        self.changed = moved

    def _with_sums(self, step):
        """The same, and partitions are to send their sums."""
        return replace(step, sums=True, total=self.total < 0.0)

    def _all_centers(self):
        return np.vstack((self.centers, self.opened.centers))

    # ---- what comes after a sweep ----

    def moved(self):
        """Rows with another label than before the sweep."""
        return self.changed + self.n_unassigned

    def move_centers(self):
        """Means of the members, empty clusters dropped; returns the error, by sums."""
        centers, remap, error, self.n_unassigned = next_centers(
            self.sums, self._all_centers(), self.total, self.spherical
        )
        self._move(centers, remap)
        return error

    def _move(self, centers, remap):
        self.before = replace(self.before, opened=self.opened)
        self.centers, self.remap, self.opened = centers, remap, self.none
        self.turn += 1

    def drop_empty(self):
        """Forget clusters without members; the other centers stay where they are."""
        centers = self._all_centers()
        kept = self.sums.counts[: len(centers)] > 0.0
        remap = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
        self._move(centers[kept], remap)
        return not kept.all()

    def squared_error(self):
        """Weighted error from the own centers, row by row."""
        return read(self.visit(self.step("stay", error=True)).error)

    def cluster_sums(self):
        """The sums of the last sweep."""
        return self.sums
