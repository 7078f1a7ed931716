"""The search of a fit of SegmentMeans for the best states.

``SegmentStart`` is one start: sweeps, and moves of states at their fixed points. ``StateSearch``
chooses the penalties that were not given, and the best of several starts.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.utils import gen_batches

from smallvar._core.fit_loop import OBJECTIVE_TIE, LoopSettings, Progress, best_of
from smallvar._core.groups import first_appearance
from smallvar._selection.confidence import NumberChoice, of_states, shares
from smallvar._selection.envelope import envelope, penalty_within
from smallvar._sweeps.rows import UNSOUND
from smallvar._time.record import (
    COORDINATE_PRICE,
    Candidate,
    Description,
    Pieces,
    Record,
    noise_of,
    numbers_of_runs,
    prices,
)

TRIALS = 3  # pieces that are tried as new states at a fixed point
LLOYD = 10  # k-means sweeps over the segments of a state that is split in two
SEGMENTS_AT_A_TIME = 4096  # segments that are compared with all states at a time
CANDIDATES = 3  # numbers of states on the path from which a fit goes on
LEVELS = 1.0, 2.0, 4.0, 8.0, 16.0  # variances of the noise that are tried, relative to the estimate
LOWER = *(4.0**-power for power in range(1, 9)), 0.0  # for more states than these have
# numbers of states that are compared: all up to ALL, above each at least COUNT_RATIO times the last
ALL, COUNT_RATIO = 16, 1.25
# a piece costs a switch and a part of a state: ratio of the parts that are tried
SMALL_STATE_RATIO = 4.0


class SegmentStart:
    """One start: sweeps, and moves of whole segments, until neither lowers the objective.

    ``labels`` are the states of the rows, renumbered by first appearance, ``price`` is the penalty
    for a switch, ``cap`` the largest number of states. ``pieces`` are those that moves may make a
    state of; without them (None) there are sweeps only. ``counts`` are the numbers of states after
    the sweeps.
    """

    def __init__(self, record, labels, lam, price, cap, pieces=None):
        self.record, self.lam, self.price, self.cap, self.pieces = record, lam, price, cap, pieces
        self.progress, self.counts = None, []
        self.set_labels(labels)

    def set_labels(self, labels, centers=None):
        """Set the labels and all that follows from them; ``centers`` None: the means."""
        record, self.labels = self.record, first_appearance(labels)
        if centers is None:
            centers = record.sums(self.labels, int(self.labels.max()) + 1)[0]
        self.centers, self.error = centers, record.error(self.labels, centers)
        self.switches = record.switches(self.labels)
        self.objective = self.error + self.price * self.switches + self.lam * self.k
        self.cheapest = None

    @property
    def k(self):
        """Number of states."""
        return len(self.centers)

    def lowers(self, labels):
        """Set these labels if their objective is lower, by more than rounding; returns whether."""
        before = dict(vars(self))
        self.set_labels(labels)
        lower = self.objective < before["objective"] - OBJECTIVE_TIE * abs(before["objective"])
        if not lower:
            vars(self).update(before)
        return lower

    def resume(self, lam, pieces):
        """Continue after an end, with another penalty for a state, and with moves to ``pieces``."""
        # the objectives so far, as they would be with this penalty
        more = (lam - self.lam) * np.array(self.counts)
        self.progress.resume((np.array(self.progress.path) + more).tolist())
        self.lam, self.pieces, self.objective = lam, pieces, self.progress.objective

    def sweep(self):
        """The cheapest labels for the centers; ``self.labels`` itself if these are the cheapest.

        They are kept until the labels change.
        """
        if self.cheapest is None:
            labels = self.record.viterbi(self.centers, self.price)
            self.cheapest = self.labels if np.array_equal(labels, self.labels) else labels
        return self.cheapest

    def run(self, loop):
        """Sweep and move segments to the end; returns this start."""
        if self.progress is None:
            self.progress = Progress(loop, self.record.n)
        progress = self.progress
        while progress.should_continue:
            before, was = self.k, self.objective
            labels, moved = self.sweep(), 0
            if labels is not self.labels:
                moved = int(np.count_nonzero(labels != self.labels))
                self.set_labels(labels)
            # rows at a tie may move forever by rounding of the means, with the same objective
            converged = not moved or (progress.n_iter > 0 and not self.objective < was)
            changed = not converged
            if converged and self.pieces is not None:
                changed = self.drop() or self.split() or self.open()
            self.counts.append(self.k)
            progress.record(
                self.objective,
                f"{self.k} states, {self.switches} switches, {{}}, {moved} rows moved",
                changed=changed,
                opened=self.k > before,
                n_clusters=self.k,
            )
        labels = self.sweep()
        if labels is not self.labels:
            # sweeps ended before a fixed point: centers stay, but for those without rows
            _, first = np.unique(labels, return_index=True)
            centers = self.centers[labels[np.sort(first)]]
            self.set_labels(self.record.viterbi(centers, self.price), centers)
            self.progress.path.append(self.objective)
            self.counts.append(self.k)
        return self

    def drop(self):
        """Drop the state whose segments cost least in other states, if that lowers the objective.

        Returns whether it did. Dropping saves lam, and costs what the segments cost more elsewhere.
        """
        k, segments = self.k, self.record.segments(self.labels)
        if k == 1 or self.lam == 0.0:
            return False
        cost, nearest = np.empty(len(segments.states)), np.empty(len(segments.states), np.int32)
        for batch in gen_batches(len(cost), SEGMENTS_AT_A_TIME):
            cost[batch], nearest[batch] = self._elsewhere(segments, batch)
        saved = self.lam - np.bincount(segments.states, cost, k)
        least = int(saved.argmax())
        if not saved[least] > 0.0:
            return False
        return self._moves_segments(np.where(segments.states == least, nearest, segments.states))

    def _elsewhere(self, segments, batch):
        """Extra cost of segments in the best other state, and which state that is.

        It is the extra squared error, less ``price`` for each neighbor that is in that state.
        """
        state, every = segments.states[batch], np.arange(batch.stop - batch.start)
        squares = cdist(segments.means[batch], self.centers, "sqeuclidean")
        squares = segments.weights[batch, None] * squares
        cost = squares - squares[every, state, None]
        for neighbor in (segments.before[batch], segments.after[batch]):
            joins = np.flatnonzero(neighbor >= 0)
            cost[joins, neighbor[joins]] -= self.price
        cost[every, state] = np.inf
        return cost.min(axis=1), cost.argmin(axis=1)

    def _moves_segments(self, states):
        """Move the present segments to these states if that lowers the objective; whether."""
        return self.lowers(states[numbers_of_runs(self.record.opens(self.labels))])

    def split(self):
        """Split states in two if their segments save more than lam by it; returns whether any was.

        At the cap, those that save most are split.
        """
        most, splits = self.cap - self.k, []
        if most < 1:
            return False
        segments = self.record.segments(self.labels)
        order = np.argsort(segments.states, kind="stable")
        parts = np.split(order, np.cumsum(np.bincount(segments.states))[:-1])
        for members, center in zip(parts, self.centers, strict=True):
            if len(members) > 1:
                gain, far = halves(segments.means[members], segments.weights[members], center)
                if gain > self.lam:
                    splits.append((gain, members[far]))
        splits.sort(key=lambda pair: -pair[0])
        states = segments.states.copy()
        for number, (_, part) in enumerate(splits[:most]):
            states[part] = self.k + number
        return bool(splits) and self._moves_segments(states)

    def open(self):
        """Open a state at the mean of one of ``pieces``, if that lowers the objective.

        Returns whether it did. The pieces that save most squared error are tried. At best, a new
        state saves two switches besides.
        """
        if self.k >= self.cap:
            return False
        gain = self._gains()
        for best in np.argsort(-gain, kind="stable")[:TRIALS]:
            if gain[best] + 2.0 * self.price > self.lam:
                centers = np.vstack([self.centers, self.pieces.means[best]])
                if self.lowers(self.record.viterbi(centers, self.price)):
                    return True
        return False

    def _gains(self):
        """Squared error that the rows of each piece would save with its mean as their center."""
        record, pieces = self.record, self.pieces
        # means and weights of the runs of rows that have the same piece and the same state
        opens = record.opens(self.labels) | record.opens(pieces.numbers)
        rows = np.flatnonzero(opens)
        means, weights = record.sums(numbers_of_runs(opens), len(rows))
        piece = pieces.numbers[rows]
        squares = [
            np.einsum("ij,ij->i", gap, gap)
            for gap in (means - self.centers[self.labels[rows]], means - pieces.means[piece])
        ]
        return np.bincount(piece, weights * (squares[0] - squares[1]))


def halves(means, weights, center):
    """Squared error that segments save with two centers, and which of them join the second one.

    Found by k-means with two clusters: one begins at ``center``, the mean of all, the other at the
    segment of the largest error.
    """

    def centers_of(far):
        return [np.average(means[part], axis=0, weights=weights[part]) for part in (~far, far)]

    apart = np.square(means - center).sum(axis=1)
    second = means[int((weights * apart).argmax())]
    far = np.square(means - second).sum(axis=1) < apart
    for _ in range(LLOYD):
        if far.all() or not far.any():
            return 0.0, far
        to_first, to_second = (np.square(means - c).sum(axis=1) for c in centers_of(far))
        before, far = far, to_second < to_first
        if (far == before).all():
            break
    if far.all() or not far.any():
        return 0.0, far
    first, second = centers_of(far)
    of_first, of_second = float(weights[~far].sum()), float(weights[far].sum())
    gap = second - first
    return of_second * (of_first / (of_second + of_first)) * float(gap @ gap), far


@dataclass
class Level:
    """A level of the noise: the penalties at it, and the path of the states for these."""

    least: float  # the least penalty of a state
    price: float  # of a switch
    pieces: Pieces
    path: list[Candidate]


@dataclass
class StateSearch:
    """The search of a fit for the states of a record; what is None the data choose.

    ``number`` is the exact number of states, ``cap`` the largest one.
    """

    record: Record
    lam: float | None
    lam_switch: float | None
    number: int | None
    cap: int
    n_init: int
    loop: LoopSettings
    pieces_by_price: list[tuple[float, Pieces]] = field(default_factory=list)

    @cached_property
    def noise(self):
        """Eigenvalues of the covariance of the noise, times the mean weight, descending."""
        record = self.record
        # less than a mean may be off by is no noise
        return np.maximum(noise_of(record), record.frame.rounding) * record.mean_weight

    @cached_property
    def description(self):
        """The Description of the record."""
        return Description(self.record, self.noise)

    def best(self):
        """The best start, and the NumberChoice of its states; None where that was not free."""
        if None not in (self.lam, self.lam_switch):
            return self.best_at(self.lam, self.penalties(1.0)[0], self.lam_switch), None
        start, level = self.shortest()
        if self.lam is not None:
            return self.best_at(self.lam, level.least, level.price), None
        best = self.improved(start, level)
        return best, self.choice(best.k) if self.number is None else None

    def penalties(self, level):
        """The least penalty of a state, and that of a switch, at a level of the noise.

        Both are the mean weight if there is no noise.
        """
        noise = level * self.noise
        least = price = self.record.mean_weight if level else 0.0
        if noise[0] > 0.0:
            least, price = prices(noise, self.record.n)
        return least, price if self.lam_switch is None else self.lam_switch

    def best_at(self, lam, least, price):
        """The best of the starts at given penalties, from the cheapest candidates of all pieces."""
        starts = []
        for pieces in self.several_pieces(lam, least, price):
            path = [candidate for candidate in pieces.path(price) if candidate.k <= self.cap]
            path.sort(key=lambda candidate: candidate.loss + lam * candidate.k)
            starts += [(pieces, candidate) for candidate in path[:CANDIDATES]]
        runs = (self.run(pieces.labels(states), lam, price, pieces) for pieces, states in starts)
        return best_of(runs, total=len(starts), callback=self.loop.callback)

    def run(self, labels, lam, price, pieces=None, cap=None):
        """The SegmentStart at these labels and penalties, run."""
        cap = self.cap if cap is None else cap
        return SegmentStart(self.record, labels, lam, price, cap, pieces).run(self.loop)

    def several_pieces(self, lam, least, price):
        """The pieces that starts begin with, at ``n_init`` prices."""
        share = min(lam or np.inf, 0.5 * (self.noise.sum() + least))
        for number in range(self.n_init):  # 1, 1/4, 4, 1/16, 16 ...
            power = (number + 1) // 2 * (-1.0 if number % 2 else 1.0)
            yield self.pieces_at(price + SMALL_STATE_RATIO**power * share)

    def pieces_at(self, price):
        """The pieces at a price; equal ones are the same object, whose path is computed once.

        The number of pieces falls with the price. So pieces that are best at a lower and at a
        higher price are best between them, and whole sequences remain best at all higher prices.
        """
        above = [pieces for at, pieces in self.pieces_by_price if at >= price]
        for at, pieces in self.pieces_by_price:
            if at <= price and (pieces in above or len(pieces.means) == pieces.first.sum()):
                break
        else:
            pieces = Pieces(self.record, price)
            for _, other in self.pieces_by_price:
                if np.array_equal(other.numbers, pieces.numbers):
                    pieces = other
        self.pieces_by_price.append((price, pieces))
        return pieces

    def shortest(self):
        """The start whose states have the shortest description, and the Level it is found at.

        At each level of the noise, those candidates go on that describe the record best. With an
        exact number of states, these are candidates of that number, or of the largest below it:
        without a penalty, states open up to the number as long as they save more than their
        switches cost. If they do so only where a switch costs less, lower levels follow.
        """
        shortest, chosen, reached = np.inf, None, 0
        free = self.number is not None and self.lam_switch is None
        for noise_level in chain(LEVELS, LOWER if free else ()):
            if noise_level < 1.0 and chosen is not None:
                break
            level = self.level(noise_level)
            for start in self.starts(level):
                reached = max(reached, start.k)
                length = self.description(start.labels, start.k)
                if length < shortest and self.number in (None, start.k):
                    shortest, chosen = length, (start, level)
        if self.number is not None and reached < self.number:
            raise ValueError(
                f"n_clusters={self.number} states are not found: beside {reached} another one "
                "would save no more squared error than its switches cost"
            )
        if chosen is None:  # no description is finite
            raise ValueError(UNSOUND)
        return chosen

    def level(self, noise_level):
        """The Level of the noise at so many times its estimate."""
        least, price = self.penalties(noise_level)
        # a mean for every piece takes up the noise of its columns
        pieces = self.pieces_at(price + 0.5 * (noise_level * self.noise.sum() + least))
        path = pieces.path(price)
        if self.number is None:
            most = min(self.cap, max(1, self.record.n // 3))
            path = [candidate for candidate in path if candidate.k <= most]
        return Level(least, price, pieces, path)

    def starts(self, level):
        """Yield the starts from the candidates of a level that describe the record best, run."""
        pieces, price, number = level.pieces, level.price, self.number
        if number is not None:
            states = [candidate for candidate in level.path if candidate.k <= number][-1]
            yield self.run(pieces.labels(states), 0.0, price, pieces, cap=number)
            return
        described = [
            (self.description(pieces.labels(states), states.k), states.k, states)
            for states in spaced(level.path)
        ]
        for _, _, states in sorted(described, key=lambda each: each[:2])[:CANDIDATES]:
            yield self.run(pieces.labels(states), level.least, price)

    def improved(self, best, level):
        """The best start of as many states, at a penalty for which their number is best."""
        price, labels = level.price, best.labels
        least = level.least if self.number is None else 0.0
        lam, length = penalty_of_number(best, level.path, least), self.description(labels, best.k)
        if self.number is None:
            best.resume(lam, level.pieces)
            best.run(self.loop)
        # moves may have made states that describe the record less well
        if self.number is not None or self.description(best.labels, best.k) > length:
            best = self.run(labels, lam, price)
        runs = [best]
        # starts of a single state are all the same
        for pieces in self.several_pieces(lam, level.least, price) if best.k > 1 else ():
            same_number = [states for states in pieces.path(price) if states.k == best.k]
            runs += [self.run(pieces.labels(states), lam, price) for states in same_number]
        return best_of([run for run in runs if run.k == best.k])

    def choice(self, number):
        """The NumberChoice of this number of states among all numbers that were described."""
        lengths = self.description.shortest()
        counts = np.array(sorted(lengths))
        values = np.array([lengths[k] for k in counts])
        i = int(np.searchsorted(counts, number))
        if i == len(counts) or counts[i] != number:  # moves have made a number not described before
            counts, values = np.insert(counts, i, number), np.insert(values, i, values.min())
        n, d = self.record.X.shape
        price = COORDINATE_PRICE * np.log(n)
        fewer, more = values[:i] - values[i], values[i + 1 :] - values[i]
        confidence = of_states(number, n, price * d, fewer, more)
        confidences = shares(values, i, confidence, price)
        return NumberChoice(number, counts, confidence, confidences, in_order=True)


def spaced(path):
    """The candidates with up to ALL states, and of the others those spaced by COUNT_RATIO."""
    kept = []
    for candidate in path:
        if candidate.k <= ALL or candidate.k >= COUNT_RATIO * kept[-1].k:
            kept.append(candidate)
    return kept


def penalty_of_number(start, path, least):
    """A penalty >= ``least`` for which a start's number of states is best among those of a path."""
    loss = {candidate.k: candidate.loss for candidate in path}
    loss[start.k] = min(start.objective - start.lam * start.k, loss.get(start.k, np.inf))
    counts = sorted(loss)
    i = counts.index(start.k)
    low, high = envelope(counts, [loss[k] for k in counts], least)
    return max(float(low[i]), penalty_within(low[i], max(high[i], 0.0)))
