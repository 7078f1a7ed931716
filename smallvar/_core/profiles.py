"""Tables of what sets clusters apart: their format, and those of columns of numbers.

A table has a row for each cluster and column, see ``FIELDS``. ``cluster_moments`` are means and
variances of columns in the clusters, ``number_profiles`` the fields of a table made from them.
"""

import importlib
import sys
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, issparse

FIELDS = (
    *("cluster", "size", "column", "kind", "summary", "apart", "saved"),
    *("mean", "spread", "level", "share", "overall", "missing"),
)
NUMBER_FIELDS = (
    *("cluster", "size", "column", "summary", "apart", "saved"),
    *("mean", "spread", "overall"),
)
PROFILE_ROWS, PROFILE_NUMBERS = 1 << 16, 1 << 22  # rows at a time, and numbers of all their cells
NO_SPREAD = 1e-12  # of the spread of a column: means and spreads in a cluster below are rounding
# times the mean: as far as the rounded mean of all rows may be from that of one cluster
MEAN_NOISE = 8 * float(np.finfo(float).eps)


class ColumnMoments(NamedTuple):
    """Weight, mean and variance of the cells of each cluster and column; last, of all rows.

    Each is of shape (k + 1, d); mean and variance are NaN where there is no cell.
    """

    weight: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]


def cluster_moments(X, weight, labels, k):
    """ColumnMoments of rows with labels 0 to k - 1; in dense rows NaN is a cell that is missing."""
    n, d = X.shape
    weight = np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64)
    if labels.min(initial=0) < 0:  # rows in no cluster
        weight, labels = np.where(labels < 0, 0.0, weight), np.maximum(labels, 0)
    data = X, weight, labels, k
    origin = np.zeros(d)
    if issparse(X):
        sums = _moments_of_sparse(*data)
    else:
        origin = _origin(X)
        sums = _moments_of_dense(*data, origin)
    return _with_all(*sums, origin)


def _origin(X):
    """A point near the rows: squares of what is far from zero would cancel."""
    sampled = X[:: max(1, -(-X.shape[0] // PROFILE_ROWS))].astype(np.float64)
    there = (~np.isnan(sampled)).sum(axis=0)
    return np.where(there > 0, np.nansum(sampled, axis=0) / np.maximum(there, 1), 0.0)


def _parts(X, weight, labels, k):
    """Yield blocks of rows, their labels, and the matrix (k, rows) of weights by cluster."""
    n, d = X.shape
    size = max(1, min(PROFILE_ROWS, PROFILE_NUMBERS // max(d, 1)))
    for start in range(0, n if d else 0, size):
        rows = slice(start, start + size)
        facts = weight[rows], labels[rows], np.arange(len(labels[rows]) + 1)
        yield X[rows], labels[rows], csc_array(facts, shape=(k, len(labels[rows])))


def _moments_of_dense(X, weight, labels, k, origin):
    """Weight of the cells, their means less the origin, and sums of squares about these."""
    shape = k, X.shape[1]
    there, total, square = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for x, _, members in _parts(X, weight, labels, k):
        x = x.astype(np.float64) - origin
        seen = ~np.isnan(x)
        there += members @ seen.astype(np.float64)
        total += members @ np.where(seen, x, 0.0)
    mean = np.divide(total, there, out=np.zeros(shape), where=there > 0.0)
    # about the mean of each cluster: the spread of equal cells is then 0 but for rounding
    for x, label, members in _parts(X, weight, labels, k):
        x = x.astype(np.float64) - origin
        square += members @ np.where(np.isnan(x), 0.0, x - mean[label]) ** 2
    return there, mean, square


def _moments_of_sparse(X, weight, labels, k):
    """The same of CSR rows, without a dense copy; the origin is 0."""
    shape = k, X.shape[1]
    stored, total, square = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    size = np.bincount(labels, weights=weight, minlength=k)[:, np.newaxis]

    def parts():
        for x, label, members in _parts(csr_array(X), weight, labels, k):
            row = np.repeat(label, np.diff(x.indptr))
            yield x, row, members

    def summed(members, x, values):
        cells = csr_array((values, x.indices, x.indptr), shape=x.shape)
        return (members.tocsr() @ cells).toarray()

    for x, _, members in parts():
        total += summed(members, x, x.data.astype(np.float64))
        stored += summed(members, x, np.ones(len(x.data)))
    mean = np.divide(total, size, out=np.zeros(shape), where=size > 0.0)
    for x, label, members in parts():
        square += summed(members, x, (x.data - mean[label, x.indices]) ** 2)
    square += np.maximum(size - stored, 0.0) * mean**2  # of the zeros, which are not stored
    return np.broadcast_to(size, shape), mean, square


def _with_all(weight, mean, square, origin):
    """The ColumnMoments with those of all rows; what is rounding is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        every = weight.sum(axis=0)
        whole = (weight * mean).sum(axis=0) / every
        total = square.sum(axis=0) + (weight * (mean - whole) ** 2).sum(axis=0)
        weight, square = np.vstack([weight, every]), np.vstack([square, total])
        mean = np.where(weight > 0.0, np.vstack([mean, whole]), np.nan)
        variance = square / weight
    least = NO_SPREAD * np.sqrt(variance[-1])
    variance[variance <= least**2] = 0.0
    mean = mean + origin
    mean[np.abs(mean) <= least] = 0.0
    return ColumnMoments(weight, mean, variance)


def mean_differences(moments):
    """Means of the clusters less that of all rows, (k, d); rounding is 0."""
    mean, spread = moments.mean, np.sqrt(moments.variance[-1])
    delta = mean[:-1] - mean[-1]
    least = NO_SPREAD * np.nan_to_num(spread) + MEAN_NOISE * np.abs(mean[-1])
    return np.where(np.abs(delta) > least, delta, 0.0)


def parts_of_squares(delta, metric, unit):
    """The squared length of rows times a matrix, divided among their columns, (k, d).

    ``delta`` are the rows (k, d), ``metric`` the matrix M, (d, m), and ``unit`` one number for each
    column. With U s V' the singular values of M, its rows multiplied by the units, the squares of
    U s U' (delta / unit) add up to ||delta M||^2. Of the rotations of delta M, this is the one
    nearest to the columns themselves (Garthwaite & Koch 2016, Evaluating the contributions of
    individual variables to a quadratic form), and it does not depend on their units.
    """
    used = unit > 0.0
    unit = np.where(used, unit, 1.0)
    U, s, _ = np.linalg.svd(unit[:, np.newaxis] * metric, full_matrices=False)
    parts = ((np.where(used, delta, 0.0) / unit) @ U * s) @ U.T
    return np.square(parts)


def number_profiles(moments, gains, cost, names, *, weighted=False, most=None):
    """Fields of a table of columns of numbers: arrays by NUMBER_FIELDS.

    ``gains`` (k, d) are what a row of a cluster costs less, on average, by its own center than by
    the one of all rows, in each column; ``cost`` is what a row costs by its own center, and
    ``names`` are those of the columns. At most ``most`` columns of each cluster, those that set it
    apart, are in the table. ``apart`` is the gain in nats: 2 cost / d estimates the dispersion, by
    which costs are divided (for squared distances it is twice the variance of a column).
    """
    order = np.argsort(-gains, axis=1, kind="stable")[:, :most]
    at = np.repeat(np.arange(len(order)), order.shape[1]), order.ravel()
    varying = (moments.variance[-1] > 0.0) | (gains > 0.0).any(axis=0)
    total = gains.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        saved = gains / total
        apart = np.where(gains > 0.0, gains * varying.sum() / np.float64(2.0 * cost), 0.0)
    size = moments.weight[:-1, 0]
    mean, spread = moments.mean[at], np.sqrt(moments.variance[at])
    fields = {
        "cluster": at[0].astype(np.int64),
        "size": (size if weighted else np.rint(size).astype(np.int64))[at[0]],
        "column": np.array(names, dtype=object)[at[1]],
        "summary": np.array(list(map(in_words, mean, spread)), dtype=object),
        "apart": apart[at],
        "saved": saved[at],
        "mean": mean,
        "spread": spread,
        "overall": moments.mean[-1][at[1]],
    }
    return {name: fields[name] for name in NUMBER_FIELDS}


def in_words(mean, spread):
    """Text of a mean and a spread; of the mean alone where the spread is not known."""
    return shown(mean) if np.isnan(spread) else f"{shown(mean, spread)} ± {shown(spread)}"


def shown(value, spread=None):
    """A number with as many digits as its spread gives a meaning to."""
    scale = abs(value) if spread is None or not spread > 0.0 else spread
    if not np.isfinite(value) or scale == 0.0:
        return f"{value:g}"
    digits = int(max(1 - np.floor(np.log10(scale)), 0))
    value = round(float(value), digits) + 0.0  # not -0.0
    if abs(value) >= 1e6 or digits > 6:
        return f"{value:.3g}"
    return f"{value:{',' if abs(value) >= 1e4 else ''}.{digits}f}"


def library_of(X):
    """Name of the library of a table, pandas, polars or pyarrow; None for all else."""
    kinds = {"pandas": ["DataFrame"], "polars": ["DataFrame"], "pyarrow": ["Table", "RecordBatch"]}
    for name, types in kinds.items():
        library = sys.modules.get(name)  # a table of a library means that it is imported
        if library is not None and isinstance(X, tuple(getattr(library, t) for t in types)):
            return name
    return None


def as_table(fields, library):
    """The fields as a table of a library, by its name; a copy as a dict for None."""
    if library is None:
        return dict(fields)
    module = importlib.import_module(library)
    if library == "pandas":
        return module.DataFrame(fields)
    make = module.DataFrame if library == "polars" else module.table
    return make({name: cells.tolist() for name, cells in fields.items()})
