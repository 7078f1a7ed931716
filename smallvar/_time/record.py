"""Records, which are rows in an order: their noise, their pieces, and states of the pieces."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from smallvar._core.frame import RowsFrame, nearest_sweep
from smallvar._core.linear_algebra import eigenvalues
from smallvar._core.validation import mean_weight, unit_of
from smallvar._selection.descent import descent_by_squares
from smallvar._sweeps.in_order import error_of
from smallvar._sweeps.segments import pieces, viterbi
from smallvar._sweeps.sums import Sums

MOST_DIFFERENCES = 1 << 16  # differences that the noise is estimated from
MOST_ENTRIES = 1 << 24  # of these differences in all
COLUMNS_TOGETHER = 4  # of these differences that are looked at together
WIDE_STEPS = 1024  # from so many columns on, as many differences are used for the covariance
SMALLEST_STEP = 1e-150  # absolute: the square of a smaller difference of neighboring rows is lost
SMALLEST_PRICE, LARGEST_PRICE = 1e-300, 1e300  # of a piece, of the mean weight: costs are finite
NORMAL_MEDIAN = 0.6744897501960817  # median of the absolute value of a standard normal variable
TRIM, KEPT = 3.0, 0.9733369246625415  # differences beyond so many of their scales are no noise
MOST_OPENINGS = 2048  # rows at which a piece may have begun
MOST_PIECES = 1024  # which are merged all together
MOST_UNITED = 1 << 14  # of more, evenly spread ones are united, and the others go to the nearest
PIECES_AT_A_TIME = 1 << 14  # pieces whose distances from their unions are found at a time
# at most FEW_STATES states are merged one at a time, of more one in STEP_PART
FEW_STATES, STEP_PART, MERGER_SWEEPS = 64, 20, 5


@dataclass
class Segments:
    """State, neighboring states, mean and weight of each segment of a labeling."""

    states: NDArray[np.int32]
    before: NDArray[np.int32]  # state of the segment before; -1 at the beginning of a sequence
    after: NDArray[np.int32]  # and of the one after; -1 at the end
    means: NDArray[np.float64]
    weights: NDArray[np.float64]


@dataclass
class Pieces:
    """Pieces of a record, from which the path of the states begins."""

    numbers: NDArray[np.int32]  # the piece of each row
    first: NDArray[np.bool_]  # whether a sequence begins with the piece
    means: NDArray[np.float64]
    weights: NDArray[np.float64]
    error: float  # weighted squared error of the rows from the means of their pieces
    path: list["Segmentation"] | None = None  # as of a switch that is free, once found


@dataclass
class Segmentation:
    """A clustering of the pieces on the path of the states."""

    k: int  # number of states
    of: NDArray[np.intp]  # the union that each piece is in
    of_unions: NDArray[np.int32]  # states of the unions
    switches: int
    loss: float  # squared error and switches

    @property
    def states(self):
        """States of the pieces."""
        return self.of_unions[self.of]


class Record:
    """Rows, all of positive weight, sequence by sequence.

    Sequence j has the rows ``begin[j]`` to ``begin[j + 1] - 1``; ``first`` is true at the first row
    of each. ``mean_weight`` is that of the rows, ``unit`` what weights are divided by, against
    overflow.
    """

    def __init__(self, X, weight, begin, n_threads):
        self.X, self.weight, self.begin, self.n_threads = X, weight, begin, n_threads
        self.frame = RowsFrame(X, weight, n_threads)
        self.n, self.mean_weight = len(X), mean_weight(weight)
        self.unit = unit_of(weight)
        self.first = np.zeros(self.n, dtype=bool)
        self.first[begin[:-1]] = True

    def viterbi(self, centers, price):
        """The cheapest labels, given the centers."""
        return viterbi(self.X, self.begin, self.weight, centers, price, self.n_threads)

    def opens(self, labels):
        """Whether a segment begins at each row."""
        opens = self.first.copy()
        opens[1:] |= labels[1:] != labels[:-1]
        return opens

    def sums(self, labels, k):
        """Means and weights of ``k`` clusters of the rows."""
        sums = Sums(self.frame.layout, k)
        sums.add(self.X, labels, self.weight, self.n_threads)
        return sums.means[:k], sums.totals[1][:k]

    def error(self, labels, centers):
        """The weighted squared error from the assigned centers."""
        return error_of(self.X, labels, centers, self.n_threads, self.weight)

    def segments(self, labels):
        """The segments of these labels."""
        opens = self.opens(labels)
        number = np.cumsum(opens, dtype=np.int32) - np.int32(1)
        rows = np.flatnonzero(opens)
        state, first = labels[rows], self.first[rows]
        before, after = np.append(-1, state[:-1]), np.append(state[1:], -1)
        before[first] = -1
        after[:-1][first[1:]] = -1
        return Segments(state, before, after, *self.sums(number, len(rows)))


# ---- noise -------------------------------------------------------------------------------------


def _variance(steps):
    """Variance of the noise in each column, and the scale of its differences.

    ``steps`` are differences of neighboring rows. Their variance, without those beyond TRIM scales,
    is twice that of the noise. If most are 0, numbers are rounded: the variance is that of rounding
    to the least difference.
    """
    sizes = np.abs(steps)
    scale = np.median(sizes, axis=0) / NORMAL_MEDIAN
    noise = sizes <= TRIM * scale
    variance = np.square(np.where(noise, sizes, 0.0)).sum(axis=0) / noise.sum(axis=0) / (2.0 * KEPT)
    for j in np.flatnonzero(scale == 0.0):
        if sizes[:, j].any():
            variance[j] = sizes[sizes[:, j] > 0.0, j].min() ** 2 / 12.0
            scale[j] = np.sqrt(2.0 * variance[j])
    return variance, scale


def _some(rows, d):
    """At most MOST_DIFFERENCES of these rows, evenly spaced; fewer of many columns."""
    most = max(2 * WIDE_STEPS, min(MOST_DIFFERENCES, MOST_ENTRIES // d))
    return rows[:: -(-len(rows) // most) or 1].copy()


def noise_of(record):
    """Eigenvalues, descending, of the covariance of the noise of a row.

    The covariance is that of differences of neighboring rows, which states that last do not change
    much.
    """
    d, rounding = record.X.shape[1], np.maximum(record.frame.column_rounding(), SMALLEST_STEP)
    near = _some(np.flatnonzero(~record.first[1:]), d)
    steps, used = np.empty((len(near), d), order="F"), np.zeros(d, dtype=bool)
    # some columns at a time: memory beside the steps is little
    for columns in gen_batches(d, COLUMNS_TOGETHER, min_batch_size=2):
        after, before = record.X[near + 1, columns], record.X[near, columns]
        step = np.subtract(after, before, dtype=np.float64, order="C")
        step[np.abs(step) <= rounding[columns]] = 0.0
        if step.any():
            variance, scale = _variance(step)
            used[columns] = kept = variance > 0.0
            step = np.clip(step, -TRIM * scale, TRIM * scale, order="F")
            square = np.where(kept, np.square(step).mean(axis=0), 1.0)
            step *= np.sqrt(variance / square)
        steps[:, columns] = step
    if not used.any():
        return _of_covariance(np.asarray(record.X, dtype=np.float64) - record.frame.mean)
    return _of_covariance(steps if used.all() else steps[:, used])


def _of_covariance(steps):
    """Eigenvalues of the mean of r r' over these rows r, descending."""
    if steps.shape[1] > WIDE_STEPS:
        steps = steps[:: -(-len(steps) // WIDE_STEPS)]
    n = len(steps)
    S = steps @ steps.T if n < steps.shape[1] else steps.T @ steps
    return eigenvalues(S)[::-1].clip(0.0) / n


def prices(noise, n):
    """What a state, and a switch, must save so that noise alone opens none of the n^2 / 2 segments.

    A segment of noise saves by a mean of its own sum_j e_j chi_j^2, which exceeds
    sum e + 2 sqrt(x sum e^2) + 2 e_1 x with a probability below exp(-x) (Laurent & Massart 2000,
    lemma 1). With x = 2 log n, that is the price of a state plus that of two switches.
    """
    x = 2.0 * np.log(max(n, 2))
    spread = noise[0] * np.sqrt(x * np.square(noise / noise[0]).sum())
    return float(noise.sum() + 2.0 * spread), float(noise[0] * x)


# ---- pieces, and the path from a state for each of them down to a single one ---------------------


def cut(record, price):
    """The pieces of a record at this price of a piece."""
    weight = None if record.weight is None else record.weight / record.unit
    X, begin, frame = record.X, record.begin, record.frame
    with np.errstate(over="ignore", under="ignore"):
        price = np.float64(price) / record.unit
    price = float(np.clip(price, SMALLEST_PRICE, LARGEST_PRICE))
    opens = pieces(X, begin, weight, frame.origin, price, MOST_OPENINGS)
    number = np.cumsum(opens, dtype=np.int32) - np.int32(1)
    means, weights = record.sums(number, int(number[-1]) + 1)
    return Pieces(number, record.first[opens], means, weights, record.error(number, means))


def _descent(mean, weights, n_threads):
    """A MergeDescent that begins with a cluster for each of these rows, equal ones together."""
    descent = descent_by_squares(RowsFrame(mean, weights, n_threads))
    descent.start(mean)
    return descent


def _merged(mean, weights, n_threads):
    """Merge pieces to a quarter as many unions: the union of each piece, and their number."""
    sweep = _descent(mean, weights, n_threads).sweep
    sweep.merge(max(0, sweep.k - max(1, len(mean) // 4)))
    return sweep.labels, sweep.k


def _means(mean, weights, labels, k):
    """Means and weights of unions."""
    total = np.bincount(labels, weights, k)
    return np.column_stack([np.bincount(labels, weights * m, k) / total for m in mean.T]), total


def _united(mean, weights, n_threads):
    """Means and weights of unions of pieces, and the union that each piece is in.

    There are at most about MOST_PIECES unions, which can be merged all together.
    """
    if len(mean) > MOST_UNITED:
        return _nearest_united(mean, weights, n_threads)
    of = np.arange(len(mean))
    while len(mean) > MOST_PIECES:
        labels, k = np.empty(len(mean), dtype=np.int64), 0
        for start in range(0, len(mean), MOST_PIECES):
            few = slice(start, start + MOST_PIECES)
            local, size = _merged(mean[few], weights[few], n_threads)
            labels[few], k = k + local, k + size
        mean, weights = _means(mean, weights, labels, k)
        of = labels[of]
    return mean, weights, of


def _nearest_united(mean, weights, n_threads):
    """``_united`` of many pieces: some of them are merged, the others join the nearest union.

    Pieces that are far from all unions are merged among themselves.
    """
    chosen = np.arange(0, len(mean), -(-len(mean) // MOST_UNITED))
    centers = _united(mean[chosen], weights[chosen], n_threads)[0]
    sweep = nearest_sweep(mean, weights, centers, n_threads)
    labels = sweep.labels.astype(np.int64)
    far = np.sort(np.argsort(weights * sweep.assigned_distances(), kind="stable")[-MOST_PIECES:])
    labels[far] = len(centers) + _merged(mean[far], weights[far], n_threads)[0]
    _, labels = np.unique(labels, return_inverse=True)  # some may be nearest to none
    return *_means(mean, weights, labels, int(labels.max()) + 1), labels


def _way_down(record, parts):
    """Stops of ``path_of``, from few states to many, with a loss in which switches cost nothing."""
    mean, weights, of = _united(parts.means, parts.weights / record.unit, record.n_threads)
    squares = np.empty(len(of))
    for batch in gen_batches(len(of), PIECES_AT_A_TIME):
        gap = parts.means[batch] - mean[of[batch]]
        squares[batch] = np.einsum("ij,ij->i", gap, gap)
    within = parts.error + float(parts.weights @ squares)
    descent = _descent(mean, weights, record.n_threads)
    candidates = []

    def mergers(k):
        return 1 if k <= FEW_STATES else max(1, min(k - FEW_STATES, k // STEP_PART))

    for k in descent.down(mergers, MERGER_SWEEPS):
        labels = np.array(descent.sweep.labels)
        candidate = Segmentation(
            k, of, labels, 0, within + descent.sweep.squared_error() * record.unit
        )
        opens, state = parts.first.copy(), candidate.states
        opens[1:] |= state[1:] != state[:-1]
        candidate.switches = int(opens.sum()) - len(record.begin) + 1
        candidates.append(candidate)
    return candidates[::-1]


def path_of(record, parts, price):
    """Candidates on the path, from few states to many.

    From a state for each piece the two are merged whose union adds least to the squared error, with
    sweeps over the pieces after every merger.
    """
    if parts.path is None:
        parts.path = _way_down(record, parts)
    return [
        replace(candidate, loss=candidate.loss + price * candidate.switches)
        for candidate in parts.path
    ]


class Cuts:
    """The pieces of a record at several prices.

    Equal pieces at different prices are the same object, so that their path is computed once.
    """

    def __init__(self, record):
        self.record = record
        self.by_price = []  # prices and pieces

    def at(self, price):
        """The pieces at this price."""
        parts = self._between(price)
        if parts is None:
            parts = cut(self.record, price)
            for _, other in self.by_price:
                if np.array_equal(other.numbers, parts.numbers):
                    parts = other
        self.by_price.append((price, parts))
        return parts

    def _between(self, price):
        """The pieces at this price, if they follow from those at other prices; else None.

        The number of pieces falls with the price. So pieces that are best at a lower and at a
        higher price are best between them, and whole sequences remain best at all higher prices.
        """
        whole = len(self.record.begin) - 1
        below = [(at, parts) for at, parts in self.by_price if at <= price]
        above = [parts for at, parts in self.by_price if at >= price]
        for _, parts in below:
            if len(parts.means) == whole or any(parts is other for other in above):
                return parts
        return None
