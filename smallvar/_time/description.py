"""Description length of a record, given the states of its rows.

The criterion by which SegmentMeans chooses numbers of states and switches: the length of the noise,
with t distributed and autoregressive errors, of the switches, and of the centers.
"""

from hashlib import blake2b

import numpy as np
from scipy.signal import lfilter
from scipy.special import gammaln
from sklearn.utils import gen_batches

from smallvar._time.record import NORMAL_MEDIAN

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


def weighted_mean(values, weight):
    """Weighted mean, for weights that sum to 1; not by BLAS, whose sums depend on its threads."""
    return float(np.einsum("i,i->", weight, values))


def medians(columns):
    """Median of each row of an array, faster than np.median."""
    half = columns.shape[1] // 2
    columns = np.partition(columns, half, axis=1)
    upper = columns[:, half]
    return upper if columns.shape[1] % 2 else 0.5 * (columns[:, :half].max(axis=1) + upper)


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
        sequences = len(record.begin) - 1
        m = n - sequences  # rows at which a switch is possible
        switches = int(np.count_nonzero(record.opens(labels))) - sequences
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
        scale = np.maximum(medians(sizes) / NORMAL_MEDIAN, self.least)
        clipped = np.minimum(sizes / scale[:, None], MAX_ERROR)
        variance = np.maximum(np.einsum("i,ji->j", self.weight, np.square(clipped)), LEAST_ERROR)
        return scale, float((np.log(variance) + 2.0 * np.log(scale)).sum())
