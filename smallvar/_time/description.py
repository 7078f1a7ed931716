"""How long a description of a record is, given the states of its rows."""

from hashlib import blake2b

import numpy as np
from scipy.signal import lfilter
from scipy.special import gammaln
from sklearn.utils import gen_batches

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
BLOCK = 1 << 16  # numbers at a time, some columns, which stay in the cache


def _mean(values, weight):
    """The weighted mean; not by BLAS, whose sums depend on its threads."""
    return float(np.einsum("i,i->", weight, values))


def _medians(columns):
    """The median of each row of memory; faster than np.median."""
    half = columns.shape[1] // 2
    columns = np.partition(columns, half, axis=1)
    upper = columns[:, half]
    return upper if columns.shape[1] % 2 else 0.5 * (columns[:, :half].max(axis=1) + upper)


def _predicted(left, number):
    """Errors of prediction of this number, the first of PREDICTIONS being 1; 0: of none."""
    if number == 0:
        return left
    phi, g = PREDICTIONS[number - 1]
    if g < 1.0:
        return lfilter([1.0, -phi], [1.0, -phi * (1.0 - g)], left)
    errors = left.copy()
    errors[:, 1:] -= phi * left[:, :-1]
    return errors


def _predictions(left):
    """The errors of all predictions, one after the other."""
    return (_predicted(left, number) for number in range(1 + len(PREDICTIONS)))


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
        self.windows, self.known = [slice(0, n)], {}  # lengths, by what they are of
        if n > WINDOW * WINDOWS:
            first = np.linspace(0, n - WINDOW, WINDOWS).astype(np.intp)
            self.windows = [slice(start, start + WINDOW) for start in first]
        self.weight = np.ones(n) if record.weight is None else record.weight
        self.weight = self._looked_at(self.weight)
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
        sequences = len(record.begin) - 1
        switches, most = int(np.count_nonzero(record.opens(labels))) - sequences, n - sequences
        code = gammaln(most + 1.0) - gammaln(switches + 1.0) - gammaln(most - switches + 1.0)
        code += switches * np.log(max(k - 1, 1)) + sequences * np.log(k)
        noise = self._noise(record.sums(labels, k)[0], labels)
        return noise + 2.0 * code + PRICE * np.log(n) * d * k

    def _noise(self, centers, labels):
        """What is left of the rows, with the prediction that leaves the smallest errors."""
        n, d = self.record.n, self.record.X.shape[1]
        scales, spreads = np.empty((1 + len(PREDICTIONS), d)), []
        blocks = list(gen_batches(d, max(1, BLOCK // len(self.weight))))
        labels = self._looked_at(labels)
        for block in blocks:
            left = self._left(centers, labels, block)
            found = [self._scale_and_spread(errors) for errors in _predictions(left)]
            scales[:, block] = [scale for scale, _ in found]
            spreads.append([spread for _, spread in found])
        lengths = np.sum(spreads, axis=0)
        lengths[1:] += 2.0 * np.log(n) / n
        best = int(lengths.argmin())
        squares = np.zeros(len(self.weight))
        for block in blocks:
            errors = _predicted(self._left(centers, labels, block), best)
            errors /= scales[best, block, None]
            squares += np.einsum("ji,ji->i", errors, errors)
        price = 2.0 * np.log(n) if best else 0.0
        deviance = t_deviance(squares, self.weight, d) + 2.0 * np.log(scales[best]).sum()
        return n * deviance + price

    def _looked_at(self, rows):
        """The rows in the windows."""
        return np.concatenate([rows[window] for window in self.windows])

    def _left(self, centers, labels, block):
        """Differences of rows and centers in these columns, a row of memory each."""
        left = centers[:, block].T.take(labels, axis=1)
        return np.subtract(self._looked_at(self.record.X[:, block]).T, left, out=left)

    def _scale_and_spread(self, errors):
        """A robust scale of each column; the sum of log variances, without the largest errors."""
        sizes = np.abs(errors)
        scale = np.maximum(_medians(sizes) / NORMAL, self.least)
        clipped = np.minimum(sizes / scale[:, None], CLIP)
        variance = np.maximum(np.einsum("i,ji->j", self.weight, np.square(clipped)), LEAST)
        return scale, float((np.log(variance) + 2.0 * np.log(scale)).sum())
