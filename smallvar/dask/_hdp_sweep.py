"""The sweep of the hard HDP over partitions of whole data sets: what workers do, and the driver.

Labels and centers are those of one machine, whatever data sets a partition has. Data sets are
visited in the order of their names; step 4 (rows) and step 5 (local clusters) open global clusters
in that order, and a data set needs those that data sets before it opened. So partitions go ahead
with what is known, clusters that were opened elsewhere coming in where their data set has its
turn; the driver puts together what they opened, in order, and those partitions for which it turns
out to be incomplete go again. The first data set is right at once, and with each round at least
one more.

A sweep depends on the centers and on which of them each data set has local clusters, not on labels.
Both are with the driver, so nothing is lost with a worker: what workers keep is where the sums hold
each row, which only saves adding them up again.
"""

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from smallvar._sweeps.hdp import HDPSweep
from smallvar.dask._part import TooMany, add_sums
from smallvar.dask._sweep import GROWTH, read, sums_of
from smallvar.dask._team import put_state, take_state, threads_here


@dataclass
class Clusters:
    """Clusters opened in a step, in the order of the data sets that opened them."""

    centers: np.ndarray
    owners: np.ndarray  # numbers of the data sets
    masses: np.ndarray  # weights of what opened them
    parts: np.ndarray  # partitions of the data sets

    @classmethod
    def none(cls, d):
        """Not one."""
        no = np.empty(0, dtype=np.intp)
        return cls(np.empty((0, d)), no, np.empty(0), no)

    def __len__(self):
        return len(self.owners)

    def __eq__(self, other):
        return np.array_equal(self.owners, other.owners) and np.array_equal(
            self.centers, other.centers
        )

    def only(self, kept):
        """Those for which ``kept`` is true."""
        return Clusters(self.centers[kept], self.owners[kept], self.masses[kept], self.parts[kept])

    def elsewhere(self, p):
        """Those of other partitions."""
        return self.only(self.parts != p) if len(self) else self

    def before(self, number):
        """Those of data sets before this one."""
        return self.only(slice(np.searchsorted(self.owners, number)))

    def after(self, number):
        """Those of this data set and the ones behind it."""
        return self.only(slice(np.searchsorted(self.owners, number), None))


@dataclass
class Own:
    """The data sets of a partition, and their local clusters at the start of a sweep."""

    numbers: np.ndarray  # of the data sets among all, ascending
    sizes: np.ndarray  # how many local clusters each has
    used: np.ndarray  # on which global ones, a data set after the other
    digest: bytes = b""  # of the local labels


@dataclass
class Step:
    """A sweep over all partitions, as far as its clusters are known."""

    fit: str
    turn: int  # sweeps before
    layout: object
    lam_local: float
    lam_global: float
    centers: np.ndarray  # at the start
    most: int  # clusters that one partition may open
    rows: Clusters  # opened in step 4
    locals: Clusters | None = None  # opened in step 5; None: this step is not asked for
    sums: bool = False  # what is asked for: sums of the global clusters,
    means: np.ndarray | None = None  # or the error from these means
    keep: bool = True  # whether the state is worth to be kept


class State:
    """A partition in the course of a fit; of any sweep before, it is of use for the next one."""

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
            threads_here() if step.keep else 1,  # tasks that read their rows run side by side
            block.weight[order] if step.layout.weighted else None,
        )
        self.ends = np.searchsorted(number, np.arange(len(block.sets) + 1)).tolist()
        self.turn = self.rows = self.locals = None
        self.fresh = True

    def follow(self, p, step, own):
        """Steps 4 and 5 as the step has them, unless that is done."""
        rows = step.rows.elsewhere(p)
        early = rows.before(own.numbers[-1])
        done = self.turn == step.turn and self.rows[0] == early
        if step.locals is None:
            if not done:
                self._visit_rows(step, own, early)
            return
        late = rows.after(own.numbers[-1])
        known = step.locals.elsewhere(p).before(own.numbers[-1])
        if done and self.locals is not None and self.locals[:2] == (late, known):
            return
        if not done or self.locals is not None:
            self._visit_rows(step, own, early)
        self._visit_locals(own, late, known)

    def _visit_rows(self, step, own, early):
        sweep, begun = self.sweep, len(step.centers)
        self.turn = self.rows = self.locals = None
        sweep.begin(step.centers, own.sizes, own.used)

        def visit(start, stop):
            if sweep.visit_points(start, stop, begun + len(early) + step.most) < stop:
                raise TooMany

        self._visit(visit, own.numbers, early)
        opened = self._opened(begun, own)
        if len(opened[1]) > step.most:
            raise TooMany
        self.turn, self.rows = step.turn, (early, opened)

    def _visit_locals(self, own, late, known):
        sweep = self.sweep
        sweep.append(late.centers)
        begun = sweep.k
        sweep.begin_locals()
        self._visit(sweep.visit_locals, own.numbers, known)
        labels, local_labels, _, sizes, lists = sweep.result()
        self.labels = labels, local_labels
        found = sizes, np.concatenate(lists), blake2b(local_labels).digest()
        self.locals = late, known, self._opened(begun, own), found

    def _visit(self, visit, numbers, known):
        """Visit all data sets; clusters of others come in before the first one behind their own."""
        first, at = 0, np.searchsorted(numbers, known.owners)
        for j in np.unique(at):
            visit(first, self.ends[j])
            self.sweep.append(known.centers[at == j])
            first = self.ends[j]
        visit(first, self.ends[-1])

    def _opened(self, begun, own):
        centers, group, masses = self.sweep.opened(begun)
        return centers, own.numbers[group], masses


@dataclass
class Answer:
    """What partitions answer; in the dictionaries, by their numbers."""

    rows: dict[int, Any]  # clusters opened in step 4: centers, data sets, weights
    locals: dict[int, Any]  # and in step 5
    found: dict[int, Any]  # sizes, used and digest, as in Own, after step 5
    fresh: int  # partitions that had no state
    sums: tuple[Any, Any] | None = None
    error: np.ndarray | None = None


def visit(parts, step, each):
    """A step on these partitions, as far as their state is not that already."""
    return add_answers(
        [_visit(p, block, step, own) for (p, block), own in zip(parts, each, strict=True)]
    )


def _visit(p, block, step, own):
    state = take_state(step.fit, p) or State(block, step)
    out = Answer({}, {}, {}, int(state.fresh))
    state.fresh = False
    state.follow(p, step, own)
    out.rows[p] = state.rows[1]
    if step.locals is not None:
        *_, out.locals[p], out.found[p] = state.locals
    if step.sums:
        out.sums = state.sweep.global_sums()
    if step.means is not None:
        out.error = state.sweep.squares(step.means[: state.sweep.k])
    if step.keep:
        state.labels = None
        put_state(step.fit, p, state)
    return out


def add_answers(several):
    """What all of them answer."""
    total = Answer({}, {}, {}, 0)
    for one in several:
        for name in ("rows", "locals", "found"):
            getattr(total, name).update(getattr(one, name))
        total.fresh += one.fresh
    total.sums = add_sums([one.sums for one in several])
    digits = [one.error for one in several if one.error is not None]
    total.error = sum(digits) if digits else None
    return total


def labels_after(p, step, block, own):
    """Labels of the rows of a partition, numbered as in the sweep, and local labels."""
    state = State(block, step)
    state.follow(p, step, own)
    return state.labels


# ---- the driver ----------------------------------------------------------------------------------


def in_order(answers, used, lam, d):
    """Clusters opened, as far as is known, by the answers of partitions to those they had ``used``.

    The answer of a data set is right if so were all before it. Of the others, which are guesses, is
    left out what is near to a cluster before.
    """
    runs = []
    for p, (centers, owners, masses) in answers.items():
        for first, last in _runs(owners):
            runs.append((owners[first], p, centers[first:last], masses[first:last]))
    runs.sort(key=lambda run: run[0])
    total = sum(len(run[3]) for run in runs)
    out = Clusters(
        np.empty((total, d)), np.empty(total, np.intp), np.empty(total), np.empty(total, np.intp)
    )
    right, n = dict.fromkeys(answers, (0, 0)), 0  # clusters put in order, and of those, used
    for owner, p, centers, masses in runs:
        if right[p] is not None:
            at, met = right[p]
            others = out.only(slice(at, n)).elsewhere(p)
            end = np.searchsorted(used[p].owners, owner)
            same = used[p].only(slice(met, end)) == others
            right[p] = (n, end) if same else None
        if right[p] is None and n:
            near = cdist(centers, out.centers[:n], "sqeuclidean").min(axis=1) * masses <= lam
            centers, masses = centers[~near], masses[~near]
        new = slice(n, n + len(masses))
        out.centers[new], out.owners[new], out.masses[new], out.parts[new] = (
            centers,
            owner,
            masses,
            p,
        )
        n = new.stop
    return out.only(slice(n))


def _runs(values):
    ends = [*(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)] if len(values) else []
    return zip([0, *ends][:-1], ends, strict=True)


class TeamSweep:
    """What a start of the hard HDP drives, as HDPSweep, over the partitions of a team.

    ``numbers`` are those of the data sets of each partition, ``center`` is the mean of all rows.
    """

    def __init__(self, team, layout, center, numbers, lam_local, lam_global, most):
        self.team, self.lam_local, self.most = team, lam_local, most
        self.none = Clusters.none(len(center))
        self.own = {  # one local cluster each, on the one global cluster that there is
            p: Own(own, np.ones(len(own), np.int64), np.zeros(len(own), np.int32))
            for p, own in numbers.items()
        }
        self.order = sorted(self.own, key=lambda p: self.own[p].numbers[0])
        self.next = Step(
            team.fit,
            0,
            layout,
            lam_local,
            lam_global,
            center[None],
            most,
            self.none,
            keep=team.held,
        )
        self.error = np.nan

    @property
    def k(self):
        """Number of global clusters."""
        return len(self.next.centers)

    @property
    def centers(self):
        """The global ones."""
        return self.next.centers

    @property
    def n_local(self):
        """Number of local clusters."""
        return int(sum(own.sizes.sum() for own in self.own.values()))

    def visit(self, step, numbers=None):
        """Answers of partitions, one for all."""
        numbers = self.order if numbers is None else numbers
        try:
            out = self.team.call(visit, step, self.own, numbers, fold=add_answers)[0]
        except TooMany:
            raise RuntimeError(
                f"lam_local={self.lam_local:.6g} and lam_global={step.lam_global:.6g} open more "
                f"than {self.most} global clusters in one partition: take larger ones, or a larger "
                "max_opened"
            ) from None
        if out.fresh and step.turn > 0 and step.keep:
            self.team.lost()
        return out

    def sweep(self):
        """Steps 4 to 6; whether anything changed, and how many global clusters were created."""
        step, out = self._visit_rows(self.next)
        step, out, found = self._visit_locals(step, out)
        created = len(step.rows) + len(step.locals)
        # the first labels are all 0, as those of a single cluster are
        changed = created > 0 or (step.turn > 0 and self._differ(found))
        sums = sums_of(step.layout, *out.sums, k=len(step.centers) + created)
        totals, masses = (values[: len(step.centers) + created] for values in sums.totals)
        with np.errstate(invalid="ignore"):
            means = step.layout.origin + totals / masses[:, None]
        if changed or step.turn == 0:
            self.error = read(self.visit(replace(step, sums=False, means=means)).error)
        kept = sums.counts[: len(means)] > 0.0
        self.last, self.begun = step, self.own
        self.remap = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
        self.own = {
            p: Own(self.own[p].numbers, sizes, self.remap[used], digest)
            for p, (sizes, used, digest) in found.items()
        }
        self.next = replace(self.next, turn=step.turn + 1, centers=means[kept])
        return changed, created

    def _differ(self, found):
        """Whether any label differs from that before: local labels, and what they stand for."""
        return any(
            own.digest != found[p][2]
            or not np.array_equal(own.sizes, found[p][0])
            or not np.array_equal(own.used, found[p][1])
            for p, own in self.own.items()
        )

    def _used(self, opened, p):
        """The clusters that partition p has to know of others while its data sets are visited."""
        return opened.elsewhere(p).before(self.own[p].numbers[-1])

    def _visit_rows(self, step):
        """Step 4. Where no cluster opens, which is the rule, step 5 has begun."""
        numbers = self.order
        width = 1 if step.turn == 0 else len(numbers)
        lam = step.lam_local + step.lam_global
        answers, used, out = {}, {}, None
        while True:
            now = {p: self._used(step.rows, p) for p in numbers[:width]}
            todo = [p for p in now if p not in used or used[p] != now[p]]
            if not todo and width >= len(numbers):
                break
            if not todo:
                width = GROWTH * width + 1
                continue
            ahead = step.turn > 0 and out is None
            asked = replace(step, locals=self.none, sums=True) if ahead else step
            out = self.visit(asked, todo)
            answers.update(out.rows)
            used.update((p, now[p]) for p in todo)
            step = replace(step, rows=in_order(answers, used, lam, step.centers.shape[1]))
        return step, out if step.turn > 0 and len(step.rows) == 0 else None

    def _visit_locals(self, step, out):
        """Step 5; ``out`` are answers to it without clusters of others, if there are any."""
        numbers = self.order
        answers, used, found = {}, {}, {}
        todo, now = numbers, dict.fromkeys(numbers, self.none)
        step = replace(step, locals=self.none, sums=True)
        while todo:
            if out is None:
                out = self.visit(replace(step, sums=len(todo) == len(numbers)), todo)
            answers.update(out.locals)
            found.update(out.found)
            used.update((p, now[p]) for p in todo)
            complete, all_of_them = out, len(todo) == len(numbers)
            opened = in_order(answers, used, step.lam_global, step.centers.shape[1])
            step, out = replace(step, locals=opened), None
            now = {p: self._used(opened, p) for p in numbers}
            todo = [p for p in numbers if used[p] != now[p]]
        if not all_of_them:
            complete = self.visit(step)
        return step, complete, found
