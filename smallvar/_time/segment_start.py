"""One start of segments of records: sweeps, and moves of states at their fixed points.

``SegmentLabeling`` holds the states of all rows, ``SegmentStart`` improves one to a fixed point.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.utils import gen_batches

from smallvar._core.fit_loop import OBJECTIVE_TIE, Progress
from smallvar._core.groups import first_appearance

TRIALS = 3  # pieces that are tried as new states at a fixed point
LLOYD = 10  # k-means sweeps over the segments of a state that is split in two


@dataclass
class SegmentLabeling:
    """States of the rows, numbered by first appearance, and what the objective needs of them."""

    labels: NDArray[np.int32]
    centers: NDArray[np.float64]
    error: float
    switches: int

    @property
    def k(self):
        """Number of states."""
        return len(self.centers)


class SegmentStart:
    """One start: sweeps, and moves of whole segments, until neither lowers the objective.

    ``price`` is the penalty for a switch, ``cap`` the largest number of states. ``parts`` are the
    pieces that moves may make a state of; without them (None) there are sweeps only. ``counts`` are
    the numbers of states after the sweeps.
    """

    def __init__(self, record, labels, lam, price, cap, parts=None):
        self.record, self.lam, self.price, self.cap, self.parts = record, lam, price, cap, parts
        self.progress, self.counts = None, []
        self.take(self.measured(labels))

    def measured(self, labels):
        """Labeling with these labels, renumbered by first appearance, and means as centers."""
        record, labels = self.record, first_appearance(labels)
        centers = record.sums(labels, int(labels.max()) + 1)[0]
        return self._with_centers(labels, centers)

    def _with_centers(self, labels, centers):
        """Labeling with these labels and centers, its error and its number of switches."""
        record = self.record
        switches = int(np.count_nonzero(record.opens(labels))) - len(record.begin) + 1
        return SegmentLabeling(labels, centers, record.error(labels, centers), switches)

    def take(self, labeling):
        """Make this the labeling of the start."""
        self.labels, self.centers = labeling.labels, labeling.centers
        self.error, self.switches = labeling.error, labeling.switches
        self.objective, self.cheapest = self.objective_of(labeling), None

    def objective_of(self, labeling):
        """The objective of a labeling."""
        return labeling.error + self.price * labeling.switches + self.lam * labeling.k

    def lower(self, labels):
        """Take these labels if their objective is lower, by more than rounding."""
        labeling = self.measured(labels)
        lower = self.objective_of(labeling) < self.objective - OBJECTIVE_TIE * abs(self.objective)
        if lower:
            self.take(labeling)
        return lower

    @property
    def k(self):
        """Number of states."""
        return len(self.centers)

    def resume(self, lam, parts):
        """Continue after an end, with another penalty for a state, and with moves to ``parts``."""
        # the objectives so far, as they would be with this penalty
        more = (lam - self.lam) * np.array(self.counts)
        self.progress.resume((np.array(self.progress.path) + more).tolist())
        self.lam, self.parts, self.objective = lam, parts, self.progress.objective

    def sweep(self):
        """The cheapest labels for the centers; ``self.labels`` itself if these are the cheapest.

        They are kept until the labeling changes.
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
                self.take(self.measured(labels))
            # rows at a tie may move forever by rounding of the means, with the same objective
            converged = not moved or (progress.n_iter > 0 and not self.objective < was)
            changed = not converged
            if converged and self.parts is not None:
                changed = self.drop() or self.split() or self.open()
            self.counts.append(self.k)
            progress.record(
                self.objective,
                f"{self.k} states, {self.switches} switches, {{}}, {moved} rows moved",
                changed=changed,
                opened=self.k > before,
                n_clusters=self.k,
            )
        self.finish()
        return self

    def finish(self):
        """Take the cheapest labels for the centers, if sweeps ended before a fixed point.

        The centers do not move, but those without rows are dropped.
        """
        record, labels = self.record, self.sweep()
        if labels is self.labels:
            return
        _, first = np.unique(labels, return_index=True)
        centers = self.centers[labels[np.sort(first)]]
        self.take(self._with_centers(record.viterbi(centers, self.price), centers))
        self.progress.path.append(self.objective)
        self.counts.append(self.k)

    def drop(self):
        """Drop the state whose segments cost least in other states, if that lowers the objective.

        Returns whether it did. Dropping saves lam, and costs what the segments cost more elsewhere.
        """
        k, segments = self.k, self.record.segments(self.labels)
        if k == 1 or self.lam == 0.0:
            return False
        cost = np.empty(len(segments.states))
        for batch in gen_batches(len(cost), 4096):
            cost[batch], _ = self._elsewhere(segments, batch)
        saved = self.lam - np.bincount(segments.states, cost, k)
        least = int(saved.argmax())
        if not saved[least] > 0.0:
            return False
        to = segments.states.copy()
        in_least = np.flatnonzero(to == least)
        for batch in gen_batches(len(in_least), 4096):
            to[in_least[batch]] = self._elsewhere(segments, in_least[batch])[1]
        return self.lower(self._spread(to))

    def _elsewhere(self, segments, some):
        """Extra cost of the segments ``some`` in the best other state, and which state that is.

        It is the extra squared error, less ``price`` for each neighbor that is in that state.
        """
        state, before, after = segments.states[some], segments.before[some], segments.after[some]
        weights, every = segments.weights[some], np.arange(len(state))
        squares = weights[:, None] * cdist(segments.means[some], self.centers, "sqeuclidean")
        cost = squares - squares[every, state, None]
        for neighbor in (before, after):
            joins = np.flatnonzero(neighbor >= 0)
            cost[joins, neighbor[joins]] -= self.price
        cost[every, state] = np.inf
        return cost.min(axis=1), cost.argmin(axis=1)

    def _spread(self, of_segment):
        """Labels of the rows from those of the present segments."""
        return of_segment[np.cumsum(self.record.opens(self.labels)) - 1]

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
                gain, far = _halves(segments.means[members], segments.weights[members], center)
                if gain > self.lam:
                    splits.append((gain, members[far]))
        splits.sort(key=lambda pair: -pair[0])
        to = segments.states.copy()
        for number, (_, part) in enumerate(splits[:most]):
            to[part] = self.k + number
        return bool(splits) and self.lower(self._spread(to))

    def open(self):
        """Open a state at the mean of one of ``parts``, if that lowers the objective.

        Returns whether it did. The pieces that save most squared error are tried. At best, a new
        state saves two switches besides.
        """
        if self.k >= self.cap:
            return False
        record, parts, gain = self.record, self.parts, self._gains()
        for best in np.argsort(-gain, kind="stable")[:TRIALS]:
            if gain[best] + 2.0 * self.price > self.lam:
                centers = np.vstack([self.centers, parts.means[best]])
                if self.lower(record.viterbi(centers, self.price)):
                    return True
        return False

    def _gains(self):
        """Squared error that the rows of each piece would save with its mean as their center."""
        record, parts = self.record, self.parts
        # an atom is a run of rows with the same piece and the same state
        atom = record.opens(self.labels)
        atom[1:] |= parts.numbers[1:] != parts.numbers[:-1]
        rows = np.flatnonzero(atom)
        number = np.cumsum(atom, dtype=np.int32) - np.int32(1)
        mean, weights = record.sums(number, len(rows))
        piece, state = parts.numbers[rows], self.labels[rows]
        to_state, to_piece = mean - self.centers[state], mean - parts.means[piece]
        gain = weights * (
            np.einsum("ij,ij->i", to_state, to_state) - np.einsum("ij,ij->i", to_piece, to_piece)
        )
        return np.bincount(piece, gain)


def _halves(mean, weights, center):
    """Squared error that segments save with two centers, and which of them join the second one.

    Found by k-means with two clusters: one begins at ``center``, the mean of all, the other at the
    segment of the largest error.
    """
    apart = np.square(mean - center).sum(axis=1)
    second = mean[int((weights * apart).argmax())]
    far = np.square(mean - second).sum(axis=1) < apart
    for _ in range(LLOYD):
        if far.all() or not far.any():
            return 0.0, far
        two = [np.average(mean[part], axis=0, weights=weights[part]) for part in (~far, far)]
        near, away = (np.square(mean - point).sum(axis=1) for point in two)
        now = away < near
        if (now == far).all():
            break
        far = now
    if far.all() or not far.any():
        return 0.0, far
    heavy = float(weights[far].sum())
    gap = np.average(mean[far], axis=0, weights=weights[far])
    gap = gap - np.average(mean[~far], axis=0, weights=weights[~far])
    rest = float(weights[~far].sum())
    return heavy * (rest / (heavy + rest)) * float(gap @ gap), far
