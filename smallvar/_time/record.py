"""Records, which are rows in an order: their noise, pieces, states of these, and description.

In this order: ``Record``; the noise of a record and the penalties that follow from it; ``Pieces``,
which are merged to the states that a fit begins with; ``Description``, the length by which
SegmentMeans compares numbers of states and switches.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.special import gammaln
from sklearn.utils import gen_batches

from smallvar._core.frame import RowsFrame, nearest_sweep
from smallvar._core.groups import Groups
from smallvar._core.linear_algebra import eigenvalues
from smallvar._core.validation import check_weights, mean_weight, unit_of
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
COORDINATE_PRICE = 2.0  # length of a coordinate of a center, in units of log(number of rows)
# Pairs (phi, g): row r_t is predicted by phi times an exponential mean of the rows before, in which
# a row has weight g. The first ones are for levels that drift slowly, the others for autoregressive
# noise.
PREDICTIONS = (
    *((1.0, 0.01), (1.0, 0.03), (1.0, 0.1)),
    *((0.2, 1.0), (0.4, 1.0), (0.6, 1.0), (0.8, 1.0), (0.95, 1.0)),
)
DEGREES_OF_FREEDOM = 20.0, 10.0, 6.0, 4.0, 3.0, 2.5  # tried besides normal noise
MAX_RISE = 0.02  # fewer degrees of freedom are not tried once the deviance of a row rises by this
NOISE_STEPS = 8  # steps of the fixed point for the scale, for each number of degrees of freedom
MAX_ERROR = 3.0  # in scales: larger errors count as this where predictions are compared
LEAST_ERROR = 0.01  # relative to the variance of the noise: smaller errors are rounding
WINDOW_LENGTH, N_WINDOWS = 4096, 16  # longer records are described by these stretches of rows
AT_A_TIME = 1 << 16  # numbers of the columns that are handled at a time, as many as fit the cache


@dataclass
class Segments:
    """State, neighboring states, mean and weight of each segment of a labeling."""

    states: NDArray[np.int32]
    before: NDArray[np.int32]  # state of the segment before; -1 at the beginning of a sequence
    after: NDArray[np.int32]  # and of the one after; -1 at the end
    means: NDArray[np.float64]
    weights: NDArray[np.float64]


class Record:
    """Rows of sequences, one sequence after another.

    Sequence j has the rows ``begin[j]`` to ``begin[j + 1] - 1``; ``first`` is true at the first row
    of each. ``order`` are the numbers of the rows as they were given (None: the same).
    ``mean_weight`` is that of the rows, ``unit`` what weights are divided by, against overflow.
    """

    def __init__(self, X, weight, begin, n_threads, order=None):
        self.X, self.weight, self.begin, self.order = X, weight, begin, order
        self.n, self.n_threads = len(X), n_threads
        self.mean_weight, self.unit = mean_weight(weight), unit_of(weight)
        self.first = np.zeros(self.n, dtype=bool)
        self.first[begin[:-1]] = True

    @classmethod
    def of(cls, X, weight, groups, n_threads):
        """Record of the rows ``X``, whose sequences are given by ``groups`` (None: one)."""
        sets, order = Groups(groups, X.shape[0]), None
        number = sets.number
        if (number[1:] < number[:-1]).any():
            order = sets.order()
            X, weight, number = X[order], None if weight is None else weight[order], number[order]
        begin = np.concatenate([[0], np.flatnonzero(np.diff(number)) + 1, [len(number)]])
        return cls(X, weight, begin, n_threads, order)

    def active(self):
        """Record of the rows with positive weight only; it has no ``order``."""
        if self.weight is None or self.weight.all():
            return self
        rows = np.flatnonzero(self.weight)
        weight = check_weights(self.weight[rows], len(rows))  # None if all are 1
        begin = np.unique(np.searchsorted(rows, self.begin))  # without sequences that have no rows
        return Record(self.X[rows], weight, begin, self.n_threads)

    @cached_property
    def frame(self):
        """The frame of the rows."""
        return RowsFrame(self.X, self.weight, self.n_threads)

    def viterbi(self, centers, price):
        """The labels of least cost at these centers and this penalty for a switch."""
        return viterbi(self.X, self.begin, self.weight, centers, price, self.n_threads)

    def opens(self, labels):
        """Whether a segment begins at each row."""
        opens = self.first.copy()
        opens[1:] |= labels[1:] != labels[:-1]
        return opens

    def switches(self, labels):
        """Number of switches."""
        return int(np.count_nonzero(self.opens(labels))) - len(self.begin) + 1

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
        rows = np.flatnonzero(opens)
        state, first = labels[rows], self.first[rows]
        before, after = np.append(-1, state[:-1]), np.append(state[1:], -1)
        before[first] = -1
        after[:-1][first[1:]] = -1
        means, weights = self.sums(numbers_of_runs(opens), len(rows))
        return Segments(state, before, after, means, weights)

    def as_given(self, labels):
        """Labels in the order in which rows were given."""
        if self.order is None:
            return labels
        as_given = np.empty_like(labels)
        as_given[self.order] = labels
        return as_given

    def beginnings(self, labels):
        """Numbers, as given, of the rows at which segments begin."""
        rows = np.flatnonzero(self.opens(labels))
        return rows if self.order is None else self.order[rows]


def numbers_of_runs(opens):
    """The number of the run of rows that each row is in, from the rows at which runs begin."""
    return np.cumsum(opens, dtype=np.int32) - np.int32(1)


# ---- noise -------------------------------------------------------------------------------------


def variance_and_scale(steps):
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


def noise_of(record):
    """Eigenvalues, descending, of the covariance of the noise of a row.

    The covariance is that of differences of neighboring rows, which states that last do not change
    much.
    """
    d, rounding = record.X.shape[1], np.maximum(record.frame.column_rounding(), SMALLEST_STEP)
    near = np.flatnonzero(~record.first[1:])
    most = max(2 * WIDE_STEPS, min(MOST_DIFFERENCES, MOST_ENTRIES // d))
    near = near[:: -(-len(near) // most) or 1]  # evenly spaced
    steps, used = np.empty((len(near), d), order="F"), np.zeros(d, dtype=bool)
    # some columns at a time: memory beside the steps is little
    for columns in gen_batches(d, COLUMNS_TOGETHER, min_batch_size=2):
        after, before = record.X[near + 1, columns], record.X[near, columns]
        step = np.subtract(after, before, dtype=np.float64, order="C")
        step[np.abs(step) <= rounding[columns]] = 0.0
        if step.any():
            variance, scale = variance_and_scale(step)
            used[columns] = kept = variance > 0.0
            step = np.clip(step, -TRIM * scale, TRIM * scale, order="F")
            square = np.where(kept, np.square(step).mean(axis=0), 1.0)
            step *= np.sqrt(variance / square)
        steps[:, columns] = step
    if not used.any():
        return covariance_eigenvalues(np.asarray(record.X, dtype=np.float64) - record.frame.mean)
    return covariance_eigenvalues(steps if used.all() else steps[:, used])


def covariance_eigenvalues(steps):
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


@dataclass
class Candidate:
    """States of the pieces of a record, on the path of their mergers."""

    k: int  # number of states
    states: NDArray[np.int32]  # of the unions of pieces
    switches: int
    loss: float  # squared error, and penalties for switches


class Pieces:
    """The pieces of a record at a price for each, which minimize squared error and price.

    ``numbers`` is the piece of each row, ``error`` the squared error from the ``means``.
    """

    def __init__(self, record, price):
        weight = None if record.weight is None else record.weight / record.unit
        with np.errstate(over="ignore", under="ignore"):
            price = np.float64(price) / record.unit
        price = float(np.clip(price, SMALLEST_PRICE, LARGEST_PRICE))
        origin = record.frame.origin
        opens = pieces(record.X, record.begin, weight, origin, price, MOST_OPENINGS)
        self.record, self.numbers = record, numbers_of_runs(opens)
        self.first = record.first[opens]  # whether a sequence begins with the piece
        self.means, self.weights = record.sums(self.numbers, len(self.first))
        self.error = record.error(self.numbers, self.means)

    def path(self, price):
        """Candidates on the path at a penalty for a switch, from few states to many.

        From a state for each piece the two are merged whose union adds least to the squared error,
        with sweeps over the pieces after every merger.
        """
        return [
            replace(candidate, loss=candidate.loss + price * candidate.switches)
            for candidate in self.free_path
        ]

    @cached_property
    def free_path(self):
        """The path at which switches cost nothing; sets ``unions``, that of each piece."""
        record = self.record
        means, weights, self.unions = united(
            self.means, self.weights / record.unit, record.n_threads
        )
        squares = np.empty(len(self.unions))
        for batch in gen_batches(len(squares), PIECES_AT_A_TIME):
            gap = self.means[batch] - means[self.unions[batch]]
            squares[batch] = np.einsum("ij,ij->i", gap, gap)
        within = self.error + float(self.weights @ squares)
        descent = descent_of(means, weights, record.n_threads)
        candidates = []

        def mergers(k):
            return 1 if k <= FEW_STATES else max(1, min(k - FEW_STATES, k // STEP_PART))

        for k in descent.down(mergers, MERGER_SWEEPS):
            states = np.array(descent.sweep.labels)
            of_pieces = states[self.unions]
            changes = (of_pieces[1:] != of_pieces[:-1]) & ~self.first[1:]
            loss = within + descent.sweep.squared_error() * record.unit
            candidates.append(Candidate(k, states, int(changes.sum()), loss))
        return candidates[::-1]

    def labels(self, candidate):
        """States of the rows for a candidate of the path."""
        return candidate.states[self.unions][self.numbers]


def descent_of(means, weights, n_threads):
    """A MergeDescent that begins with a cluster for each of these rows, equal ones together."""
    descent = descent_by_squares(RowsFrame(means, weights, n_threads))
    descent.start(means)
    return descent


def merged(means, weights, n_threads):
    """Merge pieces to a quarter as many unions: the union of each piece, and their number."""
    sweep = descent_of(means, weights, n_threads).sweep
    sweep.merge(max(0, sweep.k - max(1, len(means) // 4)))
    return sweep.labels, sweep.k


def means_of_unions(means, weights, labels, k):
    """Means and weights of unions."""
    total = np.bincount(labels, weights, k)
    return np.column_stack([np.bincount(labels, weights * m, k) / total for m in means.T]), total


def united(means, weights, n_threads):
    """Means and weights of unions of pieces, and the union that each piece is in.

    There are at most about MOST_PIECES unions, which can be merged all together. Of more than
    MOST_UNITED pieces some are merged, and the others join the nearest union; those that are far
    from all unions are merged among themselves.
    """
    if len(means) > MOST_UNITED:
        chosen = np.arange(0, len(means), -(-len(means) // MOST_UNITED))
        centers = united(means[chosen], weights[chosen], n_threads)[0]
        sweep = nearest_sweep(means, weights, centers, n_threads)
        labels, distances = sweep.labels.astype(np.int64), weights * sweep.assigned_distances()
        far = np.sort(np.argsort(distances, kind="stable")[-MOST_PIECES:])
        labels[far] = len(centers) + merged(means[far], weights[far], n_threads)[0]
        _, labels = np.unique(labels, return_inverse=True)  # some may be nearest to none
        return *means_of_unions(means, weights, labels, int(labels.max()) + 1), labels
    unions = np.arange(len(means))
    while len(means) > MOST_PIECES:
        labels, k = np.empty(len(means), dtype=np.int64), 0
        for part in gen_batches(len(means), MOST_PIECES):
            local, size = merged(means[part], weights[part], n_threads)
            labels[part], k = k + local, k + size
        means, weights = means_of_unions(means, weights, labels, k)
        unions = labels[unions]
    return means, weights, unions


# ---- description ---------------------------------------------------------------------------------


def weighted_mean(values, weight):
    """Weighted mean, for weights that sum to 1; not by BLAS, whose sums depend on its threads."""
    return float(np.einsum("i,i->", weight, values))


def prediction_errors(residuals, number):
    """Errors of prediction ``number``, 1 being the first of PREDICTIONS; 0: of no prediction.

    residuals : ndarray of shape (columns, rows)
    """
    if number == 0:
        return residuals
    phi, g = PREDICTIONS[number - 1]
    if g < 1.0:
        return lfilter([1.0, -phi], [1.0, -phi * (1.0 - g)], residuals)
    errors = residuals.copy()
    errors[:, 1:] -= phi * residuals[:, :-1]
    return errors


def t_deviance(squares, weight, d):
    """Minus twice the mean log density of rows in ``d`` dimensions, from their squared lengths.

    The density is t with the best of the degrees of freedom, or normal if that is best; its
    variance is estimated, and at least LEAST_ERROR. ``weight`` are the shares of the rows.
    """
    variance = max(weighted_mean(squares, weight) / d, LEAST_ERROR)
    lowest = d * np.log(2.0 * np.pi * variance) + weighted_mean(squares, weight) / variance
    for nu in DEGREES_OF_FREEDOM if variance > LEAST_ERROR else ():
        for _ in range(NOISE_STEPS):
            variance *= (nu + d) / d * weighted_mean(squares / (nu * variance + squares), weight)
            variance = max(variance, LEAST_ERROR)
        norm = gammaln((nu + d) / 2.0) - gammaln(nu / 2.0) - d / 2.0 * np.log(nu * np.pi * variance)
        value = (nu + d) * weighted_mean(np.log1p(squares / (nu * variance)), weight) - 2.0 * norm
        if value > lowest + MAX_RISE:
            break
        lowest = min(lowest, value)
    return lowest


class Description:
    """Twice the description length of a record in nats, given the states of its rows.

    Parameters
    ----------
    record : Record
        The record.
    noise : ndarray
        Eigenvalues of the covariance of its noise, times the mean weight.
    """

    def __init__(self, record, noise):
        self.record, n = record, record.n
        self.windows = [slice(0, n)]  # rows that the noise is described of
        self.lengths = {}  # lengths computed before, by number of states and hash of the labels
        if n > WINDOW_LENGTH * N_WINDOWS:
            first = np.linspace(0, n - WINDOW_LENGTH, N_WINDOWS).astype(np.intp)
            self.windows = [slice(start, start + WINDOW_LENGTH) for start in first]
        weight = np.ones(n) if record.weight is None else record.weight
        self.weight = self._in_windows(weight)
        self.weight = self.weight / self.weight.sum()
        variance = float(noise.sum()) / record.mean_weight / record.X.shape[1]
        self.least = np.sqrt(LEAST_ERROR * variance) or np.sqrt(np.finfo(float).tiny)

    def __call__(self, labels, k):
        """Description length for these labels of ``k`` states."""
        key = k, blake2b(np.ascontiguousarray(labels)).digest()
        if key not in self.lengths:
            self.lengths[key] = self._compute(labels, k)
        return self.lengths[key]

    def shortest(self):
        """The shortest description of each number of states that was described."""
        shortest = {}
        for (k, _), length in self.lengths.items():
            shortest[k] = min(length, shortest.get(k, np.inf))
        return shortest

    def _compute(self, labels, k):
        """Description length for these labels: of noise, switches and centers."""
        record = self.record
        n, d = record.X.shape
        sequences, switches = len(record.begin) - 1, record.switches(labels)
        m = n - sequences  # rows at which a switch is possible
        # log of (m choose switches), and the states: any first one, then another than before
        code = gammaln(m + 1.0) - gammaln(switches + 1.0) - gammaln(m - switches + 1.0)
        code += switches * np.log(max(k - 1, 1)) + sequences * np.log(k)
        noise = self._noise_length(record.sums(labels, k)[0], labels)
        return noise + 2.0 * code + COORDINATE_PRICE * np.log(n) * d * k

    def _noise_length(self, centers, labels):
        """Length of the residuals, with the prediction that leaves the smallest errors."""
        n, d = self.record.n, self.record.X.shape[1]
        scales, log_variances = np.empty((1 + len(PREDICTIONS), d)), []
        blocks = list(gen_batches(d, max(1, AT_A_TIME // len(self.weight))))
        labels = self._in_windows(labels)
        for block in blocks:
            residuals = self._residuals(centers, labels, block)
            errors = (prediction_errors(residuals, i) for i in range(1 + len(PREDICTIONS)))
            pairs = [self._scale_and_log_variance(error) for error in errors]
            scales[:, block] = [scale for scale, _ in pairs]
            log_variances.append([log_variance for _, log_variance in pairs])
        lengths = np.sum(log_variances, axis=0)
        lengths[1:] += 2.0 * np.log(n) / n
        best = int(lengths.argmin())
        squares = np.zeros(len(self.weight))
        for block in blocks:
            errors = prediction_errors(self._residuals(centers, labels, block), best)
            errors /= scales[best, block, None]
            squares += np.einsum("ji,ji->i", errors, errors)
        code = 2.0 * np.log(n) if best else 0.0
        deviance = t_deviance(squares, self.weight, d) + 2.0 * np.log(scales[best]).sum()
        return n * deviance + code

    def _in_windows(self, rows):
        """The rows in the windows."""
        return np.concatenate([rows[window] for window in self.windows])

    def _residuals(self, centers, labels, block):
        """Rows minus their centers in a block of columns, one column after the other in memory."""
        residuals = centers[:, block].T.take(labels, axis=1)
        return np.subtract(self._in_windows(self.record.X[:, block]).T, residuals, out=residuals)

    def _scale_and_log_variance(self, errors):
        """Robust scale of each column, and the sum of log variances with large errors cut.

        The scale is that of normal errors with the same median of |error|.
        """
        sizes = np.abs(errors)
        scale = np.maximum(np.median(sizes, axis=1) / NORMAL_MEDIAN, self.least)
        clipped = np.minimum(sizes / scale[:, None], MAX_ERROR)
        variance = np.maximum(np.einsum("i,ji->j", self.weight, np.square(clipped)), LEAST_ERROR)
        return scale, float((np.log(variance) + 2.0 * np.log(scale)).sum())
