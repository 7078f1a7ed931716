"""How long a description of a record is, given the states of its rows."""

from hashlib import blake2b

import numpy as np
from scipy.signal import lfilter
from scipy.special import gammaln

from smallvar._time.record import NORMAL

PRICE = 2.0  # of a coordinate of a center, in log(rows)
# r_t is predicted by phi times a mean of the rows before, to which each row comes with weight g:
# not at all, of levels that drift slowly, of autoregressive noise
PREDICTIONS = (
    *((1.0, 0.01), (1.0, 0.03), (1.0, 0.1)),
    *((0.2, 1.0), (0.4, 1.0), (0.6, 1.0), (0.8, 1.0), (0.95, 1.0)),
)
DEGREES = 20.0, 10.0, 6.0, 4.0, 3.0, 2.5  # of freedom, besides those of normal noise
WORSE = 0.02  # of a row's deviance: fewer degrees are not tried where some were worse by that
STEPS = 8  # for the scale, at each number of degrees
CLIP = 3.0  # scales beyond which errors count as this, where predictions are compared
LEAST = 0.01  # of the variance of the noise: errors that are smaller are rounding
WINDOW, WINDOWS = 4096, 16  # of more rows, so many stretches of this length are looked at


def _mean(values, weight):
    """The weighted mean; not by BLAS, whose sums depend on its threads."""
    return float(np.einsum("i,i->", weight, values))


def _medians(values):
    """The median of each column; along rows of memory, which is faster than np.median."""
    columns = np.ascontiguousarray(values.T)
    half = columns.shape[1] // 2
    columns.partition(half, axis=1)
    upper = columns[:, half]
    return upper if columns.shape[1] % 2 else 0.5 * (columns[:, :half].max(axis=1) + upper)


def t_deviance(squares, weight, d):
    """Minus twice the mean log density of t distributed rows, by their squared lengths.

    ``weight`` are the shares of the rows; variances are at least LEAST. Normal where that is best,
    else with the best number of degrees of freedom.
    """
    variance = max(_mean(squares, weight) / d, LEAST)
    lowest = d * np.log(2.0 * np.pi * variance) + _mean(squares, weight) / variance
    for nu in DEGREES if variance > LEAST else ():
        for _ in range(STEPS):
            variance *= (nu + d) / d * _mean(squares / (nu * variance + squares), weight)
            variance = max(variance, LEAST)
        norm = gammaln((nu + d) / 2.0) - gammaln(nu / 2.0) - d / 2.0 * np.log(nu * np.pi * variance)
        value = (nu + d) * _mean(np.log1p(squares / (nu * variance)), weight) - 2.0 * norm
        if value > lowest + WORSE:
            break
        lowest = min(lowest, value)
    return lowest


class Description:
    """Length of a description of a record, twice in nats, given states of its rows.

    Parameters
    ----------
    record : Record
        The record.
    noise : ndarray
        Eigenvalues of the covariance of its noise, times the mean weight.
    """

    def __init__(self, record, noise):
        self.record, n = record, record.n
        self.rows, self.known = None, {}  # lengths, by what they are of
        if n > WINDOW * WINDOWS:
            first = np.linspace(0, n - WINDOW, WINDOWS).astype(np.intp)
            self.rows = (first[:, None] + np.arange(WINDOW)).ravel()
        weight = np.ones(n) if record.weight is None else record.weight
        self.weight = weight if self.rows is None else weight[self.rows]
        self.weight = self.weight / self.weight.sum()
        variance = float(noise.sum()) / record.mass / record.X.shape[1]
        self.least = np.sqrt(LEAST * variance) or np.sqrt(np.finfo(float).tiny)

    def __call__(self, labels, k):
        """The length for these labels, of ``k`` states."""
        key = k, blake2b(np.ascontiguousarray(labels)).digest()
        if key not in self.known:
            self.known[key] = self._length(labels, k)
        return self.known[key]

    def _length(self, labels, k):
        record = self.record
        n, d = record.X.shape
        centers = record.sums(labels, k)[0]
        rows = slice(None) if self.rows is None else self.rows
        left = record.X[rows] - centers[labels[rows]]
        sequences = len(record.begin) - 1
        switches, most = int(np.count_nonzero(record.opens(labels))) - sequences, n - sequences
        code = gammaln(most + 1.0) - gammaln(switches + 1.0) - gammaln(most - switches + 1.0)
        code += switches * np.log(max(k - 1, 1)) + sequences * np.log(k)
        return self._noise(left) + 2.0 * code + PRICE * np.log(n) * d * k

    def _noise(self, left):
        """What is left of the rows, with the prediction that leaves the smallest errors."""
        n, d = self.record.n, left.shape[1]
        errors, scale = left, self._scale(left)
        length = self._spread(errors, scale)
        price, best = 0.0, length
        for phi, g in PREDICTIONS:
            predicted = lfilter([1.0, -phi], [1.0, -phi * (1.0 - g)], left, axis=0)
            own = self._scale(predicted)
            spread = self._spread(predicted, own) + 2.0 * np.log(n) / n
            if spread < best:
                errors, scale, price, best = predicted, own, 2.0 * np.log(n), spread
        squares = np.square(errors / scale).sum(axis=1)
        return n * (t_deviance(squares, self.weight, d) + 2.0 * np.log(scale).sum()) + price

    def _scale(self, errors):
        """Of each column, robust."""
        return np.maximum(_medians(np.abs(errors)) / NORMAL, self.least)

    def _spread(self, errors, scale):
        """The sum of log variances, of errors without the largest."""
        clipped = np.clip(errors / scale, -CLIP, CLIP)
        variance = np.maximum(np.einsum("i,ij->j", self.weight, np.square(clipped)), LEAST)
        return float((np.log(variance) + 2.0 * np.log(scale)).sum())
