"""Columns of wide units, beside which the others hardly count in the distances."""

import warnings
from numbers import Real
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from smallvar._core.validation import columns_in_words, level_of_caller

# share of the sum of squared distances that few columns must have: of two to four
# columns, more, as clusters in so few dimensions may well lie along a line
SHARE, SHARE_OF_FEW = 0.9, {2: 0.9999, 3: 0.99, 4: 0.99}
ONE_IN, MOST_FEW = 4, 10  # few: at most one in so many columns, and so many at most (not pixels)
LEAST_SPREAD_RATIO = 10.0  # of standard deviations, the widest to the narrowest
# least correlation of two columns, and of more, which components rounded to a few digits have; that
# of a sample, in standard errors
UNCORRELATED_TWO, UNCORRELATED, SAMPLE_ERRORS = 1e-6, 1e-3, 5.0
# rows like those of texts: so many columns, and at most this share of numbers that are not zero
FEWEST_WORDS, SHARE_OF_WORDS = 500, 0.05
MOST_CONFIDENT_RARE = 0.4  # confidence in a number of clusters of such rows, at most
SPREAD_CELLS = 1 << 22  # more are not needed to tell the spread of columns
ROUNDED = 1e-12  # of the largest value: numbers that differ by less are equal
FEWEST = 10  # rows, which tell the spread of columns
MOST_CONFIDENT = 0.5  # confidence in a number of clusters that few columns decide on, at most


class ScaleWarning(UserWarning):
    """Few columns make up nearly all of the distances, so that others hardly count.

    Columns that are measured in different units count by their units: grams beside millimeters,
    income beside age. Standardize them (``sklearn.preprocessing.StandardScaler``), or use
    :class:`MixedDPMeans`, which needs no scaling. Principal components, whose spread is not a
    matter of units, are known by having no correlation, and are not warned of. ``path_.wide`` are
    the columns; ``path_.confidence`` is at most 0.5. It can be silenced by
    ``warnings.filterwarnings("ignore", category=smallvar.ScaleWarning)``.
    """


class Wide(NamedTuple):
    """Columns that make up nearly all of the squared distances, the widest first, and their share.

    There are none unless these are few; ``others`` is how many others vary.
    """

    columns: NDArray[np.intp]
    share: float
    others: int


NONE_WIDE = Wide(np.empty(0, dtype=np.intp), 0.0, 0)


def wide_columns(X, weight=None, whole=True, labels=None):
    """The wide columns of rows; ``whole`` is whether X are all rows, or a sample of them.

    A column may be wide because K clusters, ``labels``, are far apart in it, whatever its unit: as
    its variance counts K^2 times that within clusters, if that is less. K clusters side by side
    that just touch have so much.
    """
    X = np.asarray(X, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        variance = _variances(X, weight)
        if labels is not None:
            within, K = X.copy(), labels.max() + 1
            for rows in (labels == k for k in np.unique(labels)):
                part = None if weight is None else weight[rows]
                within[rows] -= np.average(X[rows], axis=0, weights=part)
            variance = np.minimum(variance, K**2 * _variances(within, weight))
    # variances beyond float64 do not compare
    if not np.isfinite(variance).all():
        return NONE_WIDE
    order = np.argsort(-variance, kind="stable")
    # constant columns, and those that differ by rounding only, or whose variance is below float64,
    # tell nothing of units
    low, high = X.min(axis=0), X.max(axis=0)
    differ = high - low > ROUNDED * np.maximum(np.abs(low), np.abs(high))
    order = order[(differ & (variance > 0.0))[order]]
    d, spread = len(order), variance[order]
    if d < 2 or len(X) < FEWEST or spread[0] <= LEAST_SPREAD_RATIO**2 * spread[-1]:
        return NONE_WIDE
    part = (spread / spread[0]).cumsum()
    k = 1 + int(np.searchsorted(part, SHARE_OF_FEW.get(d, SHARE) * part[-1]))
    if k > max(1, min(d // ONE_IN, MOST_FEW)) or _uncorrelated(X, order, weight, whole):
        return NONE_WIDE
    return Wide(order[:k], float(part[k - 1] / part[-1]), d - k)


def wide_of_many(X, weight=None):
    """The wide columns of rows that may be very many: every so-manieth of them tells.

    They are dense; of sparse rows, whose columns have one unit, there are none.
    """
    if issparse(X):
        return NONE_WIDE
    step = max(1, X.shape[0] * X.shape[1] // SPREAD_CELLS)
    rows = np.asarray(X[::step], dtype=np.float64)
    return wide_columns(rows, None if weight is None else weight[::step], whole=step == 1)


def _variances(X, weight):
    """The variances of columns."""
    mean = np.average(X, axis=0, weights=weight)
    return np.average(np.square(X - mean), axis=0, weights=weight)


def _uncorrelated(X, columns, weight, whole):
    """Whether no two of the columns are correlated, as principal components are not."""
    covariance = np.cov(X[:, columns], rowvar=False, aweights=weight, ddof=0)
    spread = np.sqrt(np.diag(covariance))
    correlation = covariance / spread / spread[:, np.newaxis]
    np.fill_diagonal(correlation, 0.0)
    several = UNCORRELATED if len(columns) > 2 else UNCORRELATED_TWO
    least = several if whole else SAMPLE_ERRORS / np.sqrt(len(X))
    return bool(np.abs(correlation).max() <= least)


def mostly_zero(X):
    """Whether rows of at least ``FEWEST_WORDS`` columns are mostly zero, as words of texts are.

    Distances between such rows are nearly all alike, so one or two clusters describe them best.
    """
    count = np.count_nonzero(X.data) if issparse(X) else np.count_nonzero(X)
    return bool(count <= SHARE_OF_WORDS * X.shape[0] * X.shape[1])


def warn_of_scale(estimator, path):
    """Warn where the path has found that few columns make up nearly all of the distances."""
    wide = getattr(path, "wide", NONE_WIDE)
    # the metric of a path is that of the clusters, whatever the units; a number for lam is in units
    # that the user knows
    given = isinstance(getattr(estimator, "lam", None), Real)
    if len(wide.columns) and path.metric is None and not given:
        warn_of_wide(estimator, wide)


def warn_of_wide(estimator, wide):
    """Warn that these columns make up nearly all of the distances, if there are any."""
    if not len(wide.columns):
        return
    names = columns_in_words(wide.columns, getattr(estimator, "feature_names_in_", None))
    warnings.warn(
        f"{wide_in_words(wide, names)}. If their units differ, standardize the columns "
        "(sklearn.preprocessing.StandardScaler), or use smallvar.MixedDPMeans, which needs no "
        "scaling",
        ScaleWarning,
        stacklevel=level_of_caller(),
    )


def wide_in_words(wide, names):
    """Text of what wide columns do, which are called ``names``."""
    one = len(wide.columns) == 1
    they = f"column {names} makes" if one else f"columns {names} make"
    share = f"{np.floor(1000.0 * wide.share) / 10.0:.3g}%"  # never 100%
    rest = "column hardly counts" if wide.others == 1 else f"{wide.others} hardly count"
    return f"{they} up {share} of the squared distances between rows, and the other {rest}"
