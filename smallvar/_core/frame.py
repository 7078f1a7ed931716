"""The frame of the data (origin, scale, rounding), and sweeps in it that find nearest centers."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from smallvar._core.validation import LARGEST_REACH, SMALLEST_REACH, check_spread
from smallvar._sweeps.dpmeans import DPSweep
from smallvar._sweeps.exact import nearest_of_few
from smallvar._sweeps.ranges import column_range
from smallvar._sweeps.sums import Layout, Sums, exact_total, round_origin

# of the largest value of a column that varies: how far a mean may be off, some 1e-15 of that value
COLUMN_ROUNDING = 2.0**-49
# multiply-adds, with some for each distance, up to which all distances take less time than a sweep
FEW, PER_DISTANCE = 1 << 19, 8
FEW_SUMMED = 127  # rows up to which sums keep every bit without bins; of more these drop some


def column_rounding(low, high):
    """By how much a mean of values between these, in a column each, may be off by rounding."""
    # the mean of a constant column is exact
    largest = np.maximum(np.abs(low), np.abs(high))
    return np.where(high > low, largest * COLUMN_ROUNDING, 0.0)


def mean_rounding(low, high):
    """Squared distance by which a mean of rows between these values may be off by rounding."""
    return float(np.square(column_rounding(low, high)[high > low]).sum())


class Frame:
    """Where rows lie, as the sweeps need it; all of it follows from the rows as a set.

    ``origin``, a round point near the rows, that sums and scores are taken from; ``scale``, a power
    of two that brings data and centers, less the origin, into [-1, 1]; ``rounding``, the squared
    distance up to which a mean of equal rows may be off by rounding; ``layout`` of the sums, and
    ``mean`` (weighted); sums are taken from ``sums_from``. Rows without weight matter to the scale
    alone. Scores of sparse rows are taken from 0.

    ``used`` and ``all_rows`` are the ranges of the columns, over rows of positive weight and over
    all; ``mass`` is the sum of weights, None: no weights.
    """

    layout: Layout
    mean: NDArray[np.float64]

    def __init__(self, used, all_rows, mass, sparse, centers=None, sums_from=None):
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
        if reach > 0 and not SMALLEST_REACH < reach < LARGEST_REACH:
            raise ValueError(
                f"X must be spread over more than 1e-140 and less than 1e140, got {reach:.3g}: "
                "squared distances would leave the range of float64; rescale the data"
            )
        check_spread(0.0 if mass is None else mass, float(reach))
        self.scale = 2.0 ** -math.ceil(math.log2(reach)) if reach > 0 else 1.0
        self.rounding = mean_rounding(*used)

    def column_rounding(self):
        """What of a difference may be rounding, in each column."""
        return column_rounding(*self._range)


class RowsFrame(Frame):
    """The place of these rows; its ``layout`` and ``mean`` are made when they are asked for."""

    def __init__(self, X, weight, n_threads, centers=None, sums_from=None):
        self._data = X, weight, n_threads
        self._layout = self._center = None
        used = all_rows = column_range(X, weight, n_threads)
        if weight is not None and not weight.all():
            all_rows = column_range(X, None, n_threads)
        mass = None if weight is None else float(weight.sum())
        super().__init__(used, all_rows, mass, issparse(X), centers, sums_from)

    # functools.cached_property of Python 3.11 has a lock, which a forked child would find locked

    @property
    def layout(self):
        """The bins of the sums."""
        if self._layout is None:
            low, high = self._range
            self._layout = Layout(*self._data, origin=self.sums_from, low=low, high=high)
        return self._layout

    @property
    def center(self):
        """The mean of all rows, and their weight."""
        if self._center is None:
            self._center = self.layout.center(*self._data)
        return self._center

    @property
    def mean(self):
        """The mean of all rows."""
        return self.center[0]


def nearest_sweep(X, weight, centers, n_threads, sums_from=None):
    """A sweep over the data whose labels are the nearest of these centers."""
    space = RowsFrame(X, weight, n_threads, centers, sums_from)
    labels = np.zeros(X.shape[0], dtype=np.int32)
    sweep = DPSweep(X, weight, None, labels, space, n_threads, len(centers), False)
    sweep.set_centers(centers)
    sweep.assign()
    return sweep


class FewRows:
    """What a sweep says of rows at their nearest centers, where these are known already."""

    def __init__(self, X, weight, centers, labels, distances, sums_from):
        self.X, self.weight, self.k = X, weight, len(centers)
        self.labels, self._distances, self._sums_from = labels, distances, sums_from

    def assigned_distances(self):
        """Exact squared distance of each row to its center."""
        return self._distances

    def squared_error(self):
        """Weighted sum of these, rounded once."""
        weighted = self._distances if self.weight is None else self.weight * self._distances
        return exact_total(weighted)

    def cluster_sums(self):
        """The sums of the clusters."""
        sums = Sums(Layout(self.X, self.weight, 1, origin=self._sums_from), self.k)
        sums.add(self.X, self.labels, self.weight)
        return sums


def nearest(X, weight, centers, n_threads, sums_from=None):
    """The nearest of these centers to each row: a sweep, or what stands for it where rows are few.

    Both have ``k``, ``labels``, ``assigned_distances``, ``squared_error`` and ``cluster_sums``,
    with the same bits.
    """
    work = X.shape[0] * len(centers) * (X.shape[1] + PER_DISTANCE)
    if work <= FEW and not issparse(X):
        found = nearest_of_few(X, centers)
        if found is not None:
            return FewRows(X, weight, centers, *found, sums_from)
    return nearest_sweep(X, weight, centers, n_threads, sums_from)


def nearest_again(found, X, weight, centers, n_threads):
    """``nearest`` of the same rows after the centers have moved among them."""
    if isinstance(found, FewRows):
        return nearest(X, weight, centers, n_threads)
    found.set_centers(centers)
    found.assign()
    return found


def added_to(stream, X, weight, found):
    """The stream with rows of ``nearest``, and how many of positive weight each cluster has."""
    if X.shape[0] <= FEW_SUMMED and not issparse(X):
        added = stream.with_rows(X, weight, found.labels, found.k)
        if added is not None:
            return added
    sums = found.cluster_sums()
    return stream.with_batch(sums, found.k), sums.counts[: found.k]
