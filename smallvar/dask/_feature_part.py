"""One partition on a worker: its rows of Z, and the steps of a start of BP-means over them.

A row of Z follows from the one before, so it cannot be had from the features alone. But every step
is a function of the one before it and of what was sent: the steps of a start, which are kept, lead
to the same rows of Z anywhere. A worker that has no state says so, and is sent all of them.
"""

from dataclasses import dataclass, field

import numpy as np

from smallvar._sweeps.features.parts import FeaturePart
from smallvar.dask._team import Block, put_state, take_state, threads_here


@dataclass
class ActiveRows(Block):
    """The rows of positive weight of a partition, and which of its rows they are (None: all)."""

    active: np.ndarray | None = None
    reach: tuple[float, float] | None = None  # least and largest number in all its rows


@dataclass
class Setting:
    """What all steps of a fit share."""

    fit: str
    layout: object  # of the sums over all rows, about 0
    weighted: bool
    lam: float
    cap: int  # most features there may be
    n: int  # rows of positive weight
    before: dict[int, int]  # such rows in the partitions before each one
    energy: float = 0.0  # sum of w ||x||^2, once it is known


@dataclass
class Begun:
    """What a sweep of one partition starts from, apart from its rows of Z."""

    opened: np.ndarray  # features opened in partitions before
    vacant: np.ndarray  # of the old features and these: which were removed there,
    shared: np.ndarray  # and which have users in other partitions

    def __eq__(self, other):
        return all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("opened", "vacant", "shared")
        )


@dataclass
class Move:
    """A step: how the features go on, and what is done with the rows of Z.

    ``kind`` is "begin" (from given rows, or from none, or all have the one feature), "look" (only
    residuals), "join" (rows whose residual shrinks take the last feature) or "sweep".
    """

    number: int
    after: int | None  # number of the step before
    kind: str
    features: np.ndarray
    width: int = 0  # numbers of features that the step before left, the removed ones included,
    kept: np.ndarray | None = None  # and those of them that are still there
    hold: tuple[int, ...] = ()  # steps to which there may be a way back


@dataclass
class Answer:
    """What a partition says about a step."""

    largest: float  # w ||r||^2
    users: np.ndarray  # of each feature
    opened: np.ndarray | None = None  # in a sweep: features opened that are still there,
    vacant: np.ndarray | None = None  # whether each of the others was removed,
    counts: tuple[int, ...] = (0, 0, 0)  # and numbers of rows changed, features created, removed


@dataclass
class Answers:
    """What several partitions say, by number, and those of them that have to be told all."""

    of: dict[int, Answer] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)


def add_answers(several):
    """What all of them say."""
    total = Answers()
    for one in several:
        total.of.update(one.of)
        total.lost += one.lost
    return total


class RowsOfZ:
    """A partition in the course of a fit."""

    def __init__(self, block, setting):
        weight = block.weight if setting.weighted else None
        self.part = FeaturePart(
            block.X,
            weight,
            setting.layout,
            setting.lam,
            setting.cap,
            setting.energy,
            threads_here(),
        )
        self.active = block.active
        self.number, self.saved = None, {}

    def is_after(self, number):
        """Whether the state is that after a step, or could be made so."""
        if self.number != number and number in self.saved:
            n, k, bits = self.saved[number]
            rows = np.unpackbits(bits, count=n * k).reshape(n, k)
            self.part.set_rows(rows)
            self.number = number
        return self.number == number

    def go(self, move, own):
        """Take the next step; returns the answer."""
        part, answer = self.part, {}
        if move.kind == "begin":
            shape = len(part.X), len(move.features)
            if own is not None:
                own = own if self.active is None else np.ascontiguousarray(own[self.active])
            part.set_rows(np.ones(shape, dtype=np.uint8) if own is None else own)
            self.saved = {}
        else:
            self.saved = {i: rows for i, rows in self.saved.items() if i in move.hold}
            if self.number in move.hold and self.number not in self.saved:
                rows = part.rows
                self.saved[self.number] = *rows.shape, np.packbits(rows)
            part.extend(move.width)
            if move.kept is not None:
                part.keep(move.kept)
        opened = own.opened if move.kind == "sweep" else move.features[:0]
        part.set_features(np.vstack((move.features, opened)))
        self.number = move.number
        if move.kind == "join":
            part.join()
        elif move.kind == "sweep":
            answer = self._sweep(own)
        else:
            part.evaluate()
        return Answer(part.largest(), part.users, **answer)

    def _sweep(self, begun):
        part, known = self.part, self.part.k
        counts = part.sweep(begun.vacant.view(np.uint8), begun.shared.view(np.uint8))
        vacant = part.vacant
        if vacant[known:].any():  # opened and removed here: the others need not know
            vacant[:known] = False
            part.keep(np.flatnonzero(~vacant))
            vacant = part.vacant
        return {"opened": part.features[known:], "vacant": vacant[:known], "counts": counts}


def _state(p, setting, number):
    """The state of a partition after a step, or None."""
    state = take_state(setting.fit, p)
    return state if state is not None and state.is_after(number) else None


def step(parts, shared, each):
    """A step on these partitions; what each is told besides it is its own."""
    setting, move = shared
    out = Answers()
    for (p, block), own in zip(parts, each, strict=True):
        state = _state(p, setting, move.after) if move.after is not None else None
        if state is None and move.after is not None:
            out.lost.append(p)
            continue
        state = RowsOfZ(block, setting) if state is None else state
        out.of[p] = state.go(move, own)
        put_state(setting.fit, p, state)
    return out


@dataclass
class Tally:
    """What is asked for after a step, and then its sum over partitions."""

    number: int
    largest: float | None = None  # w ||r||^2 of all rows, if their sum is asked for,
    runs: bool = False  # and the sums that draws go by
    sums: bool = False  # Z'WZ, Z'WX
    rows: tuple[int, int] | None = None  # residuals of these rows, counted over all partitions


@dataclass
class Totals:
    """What partitions answer to that."""

    squares: np.ndarray | None = None  # bins
    runs: dict[int, np.ndarray] = field(
        default_factory=dict
    )  # of each partition: bins of each run of rows
    zz: np.ndarray | None = None  # bins
    zx: np.ndarray | None = None
    rows: dict[int, tuple[np.ndarray, np.ndarray]] = field(
        default_factory=dict
    )  # of each partition: w ||r||^2, r
    lost: list[int] = field(default_factory=list)


def tally(parts, shared, each):
    """Sums over these partitions."""
    setting, asked = shared
    return add_totals([_tally(p, setting, asked) for p, _ in parts])


def _tally(p, setting, asked):
    state = _state(p, setting, asked.number)
    if state is None:
        return Totals(lost=[p])
    out, part, before = Totals(), state.part, setting.before[p]
    if asked.largest is not None:
        bins = part.add_squares(asked.largest, setting.n, before)
        out.squares = bins.sum(axis=0)
        if asked.runs:
            out.runs[p] = bins
    if asked.sums:
        out.zz, out.zx = part.sums()
    if asked.rows is not None:
        n = len(part.X)
        first, last = (min(max(i - before, 0), n) for i in asked.rows)
        out.rows[p] = part.residuals(first, last)
    put_state(setting.fit, p, state)
    return out


def _padded(several, shape):
    total = np.zeros(shape)
    for one in several:
        total[tuple(slice(size) for size in one.shape)] += one  # exactly: bins leave room for all
    return total


def add_totals(several):
    """Sums over all of them; features that only later partitions have are the last ones."""
    total = Totals()
    for one in several:
        total.runs.update(one.runs)
        total.rows.update(one.rows)
        total.lost += one.lost
    for name in ("squares", "zz", "zx"):
        some = [getattr(one, name) for one in several if getattr(one, name) is not None]
        if some:
            shape = np.max([one.shape for one in some], axis=0)
            setattr(total, name, _padded(some, shape))
    return total


def retrace(parts, shared, each):
    """All steps so far on partitions that have no state, then what was asked for."""
    function, asked, moves = shared
    setting = asked[0]
    for (p, block), (owns, _) in zip(parts, each, strict=True):
        put_state(setting.fit, p, traced(block, setting, moves, owns))
    return function(parts, asked, [own for _, own in each])


def traced(block, setting, moves, owns):
    """The state after these steps."""
    state = RowsOfZ(block, setting)
    for move, own in zip(moves, owns, strict=True):
        state.go(move, own)
    return state
