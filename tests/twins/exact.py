"""What all twins stand on: distances, sums that depend on no order, numbers of clusters.

Every decision compares the float64 sum of squared differences, added in the order of
the columns; ties go to the lowest index.
"""

import math
from dataclasses import dataclass

import numpy as np

RUN = 256  # rows whose distances `serial` takes at once; no result depends on it


def squared_distances(X, centers):
    """All ||x_i - c||^2, the columns added one after the other."""
    total = np.zeros((len(X), len(centers)), dtype=X.dtype)
    for j in range(X.shape[1]):
        total += np.square(X[:, j, None] - centers[None, :, j])
    return total


def nearest(X, centers):
    """Index of, and squared distance to, the nearest center of each row."""
    labels, distances = np.empty(len(X), dtype=int), np.empty(len(X))
    for start in range(0, len(X), RUN):
        run = slice(start, start + RUN)
        table = squared_distances(X[run], centers)
        labels[run] = table.argmin(axis=1)
        distances[run] = table.min(axis=1)
    return labels, distances


@dataclass
class Bins:
    """How numbers are cut for sums that depend on no order: see `cut`."""

    origin: np.ndarray
    unit: np.ndarray
    width: int
    bins: int


def power_above(values):
    """The least power of two not below each value, 0 for 0."""
    powers = [2.0 ** math.ceil(math.log2(v)) if v > 0 else 0.0 for v in np.ravel(values)]
    return np.array(powers).reshape(np.shape(values))


def layout(X, weights, origin=None, rare=1 / 128):
    """Bins for the sums of these rows; it depends on the rows as a set.

    The origin is 0 where the data are not far from it for their width, else a round number
    near their middle. Units bound w |x - origin|, and the weights. A bin of b bits adds up 2^(53-b)
    rows without rounding. There are as many bins as it takes to keep 50 bits of all weights, and of
    all but a share `rare` of the w (x - origin) that are not 0.
    """
    used = weights > 0
    X, weights = X[used], weights[used]
    low, high = X.min(axis=0), X.max(axis=0)
    half = high / 2 - low / 2
    middle = low + half
    step = np.array([2.0 ** math.floor(math.log2(h)) if h > 0 else 1.0 for h in half])
    round_middle = np.where(half > 0, np.rint(middle / step) * step, low)
    if origin is None:
        origin = np.where(np.abs(middle) <= 3 * half, 0.0, round_middle)
    reach = power_above(np.maximum(np.abs(high - origin), np.abs(low - origin)))
    heaviest = float(power_above(weights.max()))
    bits = 50 + math.ceil(math.log2(heaviest) - math.log2(weights.min()))
    width = max(1, min(40, 52 - (len(X) - 1).bit_length()))
    bins = max(2, math.ceil(bits / width))
    size = np.abs(X - origin)
    while bins < 64:
        small = (size > 0) & (size < np.ldexp(reach, bits - bins * width))
        if small.sum(axis=0).max() <= rare * len(X):
            break
        bins += 1
    return Bins(origin, np.append(reach, 1.0) * heaviest, width, bins)


def cut(values, unit, b):
    """The pieces of values (n, d), |value| <= unit (d,): multiples of unit 2^(-width m), m = 1, 2..

    Each is the multiple nearest to what the ones before have left, the even one at a tie.
    """
    pieces, left = [], values
    for m in range(1, b.bins + 1):
        grain = np.ldexp(np.where(unit > 0, unit, 1.0), -m * b.width)
        pieces.append(np.rint(left / grain) * grain)
        left = left - pieces[-1]
    return pieces


def exact_sums(X, weights, labels, k, b):
    """Sums of w (x - origin) and of w of clusters 0..k-1, and what rounding has cut off the former.

    Those of the pieces are added, the last first. All sums of pieces are exact, so that it is all
    one how bincount adds them.
    """
    table = np.column_stack([weights[:, None] * (X - b.origin), weights])
    total, low = np.zeros((2, k, table.shape[1]))
    for piece in reversed(cut(table, b.unit, b)):
        addend = np.array([np.bincount(labels, column, k) for column in piece.T]).T
        total, error = total + addend, sum_error(total, addend)
        low += error
    return total[:, :-1], total[:, -1], low[:, :-1]


def sum_error(a, b):
    """What the float64 sum of a and b lacks to the exact one (Knuth)."""
    total = a + b
    part = total - a
    return (a - (total - part)) + (b - part)


def quotients(total, low, divisor):
    """(total + low) / divisor, rounded once; the remainder of a product in halves (Dekker)."""
    quotient = total / divisor
    (a, b), (c, d) = halves(quotient), halves(divisor)
    product = quotient * divisor
    error = ((a * c - product) + a * d + b * c) + b * d
    return quotient + ((total - product) - error + low) / divisor


def halves(x):
    """Two numbers of half the bits each that add up to x."""
    high = x * (2.0**27 + 1)
    high = high - (high - x)
    return high, x - high


def weighted_means(X, weights, labels, b=None):
    """Mean of each cluster 0..K-1 (none empty), from the exact sums of the pieces."""
    b = layout(X, weights) if b is None else b
    total, weight_sums, low = exact_sums(X, weights, labels, labels.max() + 1, b)
    return b.origin + quotients(total, low, weight_sums[:, None])


def sum_of_squares(X, weights, labels, centers):
    """Weighted SSE of given labels and centers: the sum of the float64 terms, rounded once."""
    own = np.zeros(len(X))
    for j in range(X.shape[1]):
        own += np.square(X[:, j] - centers[labels, j])
    return math.fsum(weights * own)


def without_gaps(labels):
    """Labels renumbered 0..K-1 in their old order, and the old numbers that are kept."""
    kept, labels = np.unique(labels, return_inverse=True)
    return labels, kept


def prepare(X, weights, order):
    """Data in float64, weights, and the rows with weight in the order of visit."""
    X = np.asarray(X, dtype=float)
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    order = np.arange(len(X)) if order is None else np.asarray(order)
    return X, weights, order[weights[order] > 0]


def rounding_of(X):
    """Squared distance by which a mean of rows may be off by rounding: it counts as 0."""
    return np.square(np.abs(X).max(axis=0)[np.ptp(X, axis=0) > 0] * 2.0**-49).sum()


def means_within(X, weights, labels, b=None):
    """Means that lie within the values of the cluster: that of equal ones is exact."""
    means = weighted_means(X, weights, labels, b)
    low = [X[labels == c].min(axis=0) for c in range(len(means))]
    high = [X[labels == c].max(axis=0) for c in range(len(means))]
    return np.clip(means, low, high) + 0.0  # never -0


def first_appearance(labels, order=None):
    """Labels numbered by first appearance, in the order of visit."""
    order = range(len(labels)) if order is None else order
    names = list(dict.fromkeys(labels[i] for i in order))
    return np.array([names.index(label) for label in labels])
