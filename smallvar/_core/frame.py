"""The frame of the data (origin, scale, rounding), and sweeps that find nearest centers in it.

``RowsFrame`` is the frame of rows in memory. ``nearest`` labels rows by their nearest centers, with
a short cut for few rows (``FewRows``), and ``added_to`` adds the rows to a stream of sums.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from smallvar._core.validation import check_spread, one_row
from smallvar._sweeps.dpmeans import DPSweep
from smallvar._sweeps.exact import nearest_of_few, nearest_seed
from smallvar._sweeps.ranges import column_range
from smallvar._sweeps.rows import LARGEST_REACH, SMALLEST_REACH, UNSOUND
from smallvar._sweeps.sums import COLUMN_ROUNDING, Layout, Sums, exact_total, round_origin

# multiply-adds, and an overhead for each distance, up to which no sweep is made
FEW_PRODUCTS, PER_DISTANCE = 1 << 19, 8
# of the largest absolute value of a column: a mean that lies farther outside the rows is not one of
# theirs, as they have changed. Exact sums, the least exact of which are good to 2^-44, stay within
BEYOND_ROWS = 1e-6
FEW_SUMMED = 127  # rows up to which sums are exact without bins


def column_rounding(low, high):
    """Bounds on the rounding of column means, for values between ``low`` and ``high``."""
    # the mean of a constant column is exact
    largest = np.maximum(np.abs(low), np.abs(high))
    return np.where(high > low, largest * COLUMN_ROUNDING, 0.0)


def mean_rounding(low, high):
    """Bound on the squared distance of a rounded mean of rows from the exact one."""
    # added in the order of the columns, as in direct.pyx
    return float(np.cumsum(np.square(column_rounding(low, high)))[-1])


def check_means(means, layout):
    """Raise unless means of rows lie, but for rounding, between the rows that the layout is for."""
    low, high = layout.low, layout.high
    slack = BEYOND_ROWS * np.maximum(np.abs(low), np.abs(high))
    if not ((low - slack <= means) & (means <= high + slack)).all():
        raise ValueError(UNSOUND)


class Frame:
    """The coordinates in which sweeps compute; they do not depend on the order of the rows.

    ``origin`` is a point near the rows with short binary fractions, which is subtracted before
    approximate distances are computed; it is 0 for sparse rows. ``sums_from`` is the point that is
    subtracted before sums are computed, the same by default. ``scale`` is a power of two that
    brings data and centers, less the origin, into [-1, 1]. ``rounding`` is the squared distance by
    which a mean of equal rows may be off. ``layout`` has the bins of sums, ``mean`` the weighted
    mean. Rows of weight zero matter only for the scale.

    ``used`` and ``all_rows`` are the ranges (low, high) of the columns, over rows of positive
    weight and over all; ``total_weight`` is None if there are no weights.
    """

    layout: Layout
    mean: NDArray[np.float64]

    def __init__(self, used, all_rows, total_weight, sparse, centers=None, sums_from=None):
        low, high = self._range = used
        self.origin = round_origin(low, high)
        self.sums_from = self.origin if sums_from is None else sums_from
        if sparse:
            self.origin = np.zeros(len(low))
        self.spread = high - low
        low, high = all_rows
        reach = max((high - self.origin).max(), (self.origin - low).max())
        if centers is not None:
            reach = max(reach, np.abs(centers - self.origin).max())
        if not reach >= 0.0:
            raise ValueError(UNSOUND)
        if reach > 0 and not SMALLEST_REACH < reach < LARGEST_REACH:
            raise ValueError(
                f"X must be spread over more than 1e-140 and less than 1e140, got {reach:.3g}: "
                "squared distances would leave the range of float64; rescale the data"
            )
        check_spread(0.0 if total_weight is None else total_weight, float(reach))
        # a power of two: scaling rounds nothing
        self.scale = 2.0 ** -math.ceil(math.log2(reach)) if reach > 0 else 1.0
        self.rounding = mean_rounding(*used)

    def column_rounding(self):
        """Bounds on the rounding of a mean in each column."""
        return column_rounding(*self._range)


class RowsFrame(Frame):
    """The frame of rows in memory; ``layout`` and ``mean`` are computed at first use."""

    def __init__(self, X, weight, n_threads, centers=None, sums_from=None):
        self.X, self.weight, self.n_threads = X, weight, n_threads
        self._layout = self._center = None
        used = all_rows = column_range(X, weight, n_threads)
        # rows of weight zero are labeled, too: they must fit into the scale
        if weight is not None and not weight.all():
            all_rows = column_range(X, None, n_threads)
        total_weight = None if weight is None else float(weight.sum())
        super().__init__(used, all_rows, total_weight, issparse(X), centers, sums_from)

    # no functools.cached_property: in Python 3.11 it has a lock, which may be held at a fork

    @property
    def layout(self):
        """The layout of the bins of sums."""
        if self._layout is None:
            low, high = self._range
            data = self.X, self.weight, self.n_threads
            self._layout = Layout(*data, origin=self.sums_from, low=low, high=high)
        return self._layout

    @property
    def center(self):
        """The weighted mean of all rows, and their total weight."""
        if self._center is None:
            self._center = self.layout.center(self.X, self.weight, self.n_threads)
        return self._center

    @property
    def mean(self):
        """The weighted mean of all rows."""
        return self.center[0]

    def sweep(self, capacity, bounded=False, kind=DPSweep, order=None, **options):
        """A sweep over the rows in this order (None: as given), with memory for some clusters."""
        weight, labels = self.weight, np.zeros(self.X.shape[0], dtype=np.int32)
        if weight is not None and order is not None:
            weight = weight[order]
        settings = self, self.n_threads, capacity, bounded
        return kind(self.X, weight, order, labels, *settings, **options)


def nearest_sweep(X, weight, centers, n_threads, sums_from=None):
    """A sweep over the data whose labels are the nearest of these centers."""
    sweep = RowsFrame(X, weight, n_threads, centers, sums_from).sweep(len(centers))
    sweep.set_centers(centers)
    sweep.assign()
    return sweep


class FewRows:
    """The results of a sweep for few rows, whose labels and distances are known already."""

    def __init__(self, X, weight, centers, labels, distances, sums_from):
        self.X, self.weight, self.k = X, weight, len(centers)
        self.labels, self._distances, self._sums_from = labels, distances, sums_from

    def assigned_distances(self):
        """Squared distance of each row from its assigned center."""
        return self._distances

    def squared_error(self):
        """Weighted sum of squared distances, rounded once."""
        weighted = self._distances if self.weight is None else self.weight * self._distances
        return exact_total(weighted)

    def cluster_sums(self):
        """The sums of the rows of each cluster."""
        sums = Sums(Layout(self.X, self.weight, 1, origin=self._sums_from), self.k)
        sums.add(self.X, self.labels, self.weight)
        return sums


def nearest(X, weight, centers, n_threads, sums_from=None):
    """A sweep, or FewRows with the same bits, whose labels are the nearest of these centers."""
    work = X.shape[0] * len(centers) * (X.shape[1] + PER_DISTANCE)
    if work <= FEW_PRODUCTS and not issparse(X):
        result = nearest_of_few(X, centers)
        if result is not None:
            return FewRows(X, weight, centers, *result, sums_from)
    return nearest_sweep(X, weight, centers, n_threads, sums_from)


def nearest_again(sweep, X, weight, centers, n_threads):
    """The result of ``nearest`` for the same rows after the centers have moved."""
    if isinstance(sweep, FewRows):
        return nearest(X, weight, centers, n_threads)
    sweep.set_centers(centers)
    sweep.assign()
    return sweep


def nearest_row(X, weight, row, distance, n_threads):
    """A row as a new seed: its values, and what ``nearest_seed`` returns with it."""
    seed = one_row(X, row)
    farthest = nearest_seed(X, weight, seed, distance, n_threads)
    if not distance[row] == 0.0:  # else the same row would be the farthest again and again
        raise ValueError(UNSOUND)
    return seed, *farthest


def added_to(stream, X, weight, sweep, factor=1.0, n_threads=1):
    """The stream of sums with the rows of a result of ``nearest``, and how many joined each.

    The rows count with their weights times ``factor``.
    """
    scaled = weight
    if factor != 1.0:
        scaled = np.full(X.shape[0], factor) if weight is None else weight * factor
    if X.shape[0] <= FEW_SUMMED and not issparse(X):
        added = stream.with_rows(X, scaled, sweep.labels, sweep.k)
        if added is not None:
            return added
    if factor == 1.0:
        sums = sweep.cluster_sums()
    else:
        sums = Sums(Layout(X, scaled, n_threads, origin=np.zeros(X.shape[1])), sweep.k)
        sums.add(X, sweep.labels, scaled, n_threads)
    return stream.with_batch(sums, sweep.k), sums.counts[: sweep.k]
