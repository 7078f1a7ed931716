"""What remains of the clusters of a fit: centers, spreads and weights, to compare with others.

``summarize`` describes the clusters of a fitted estimator, and ``Comparison`` compares those of two
fits: distances between their centers, and how far a cluster may move.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from smallvar._centers.mahalanobis import MahalanobisMeans
from smallvar._centers.minibatch import MiniBatchDPMeans
from smallvar._centers.shapes import ShapeMeans
from smallvar._centers.sphere_problem import ERROR_SHARE
from smallvar._centers.spherical import SphericalDPMeans
from smallvar._core.linear_algebra import need_finite
from smallvar._core.validation import unit_of
from smallvar._mixed.mixed_dpmeans import MixedDPMeans

# A variance within a cluster is averaged with that within all clusters, as if the cluster had so
# many rows more of that: the number that the criterion of mixed tables has, too
ROWS_OF_ALL = 3.0
# Two normal clusters that touch where each has this many standard deviations to its center have 1
# row in 100 on the other's side, 1 in 200 each: farther apart they are two clusters
TOUCH = 2.576
# A cluster that moves by less than this share of the distance to its nearest neighbor stays nearer
# to its old place than to any other
HALF = 0.5
SQUARED = "squared_euclidean"
BLOCK = 1 << 20  # numbers of a block of rows, of which squares are made


@dataclass(frozen=True)
class Clusters:
    """Centers, variances and weights of clusters.

    ``names`` (D,) are those of the coordinates: columns, and in tables with categories pairs of
    column and level, whose coordinate is the share of the level. ``centers`` and ``variances`` have
    shape (K, D); unknown variances are NaN. ``weights`` (K,) are those of the rows, ``total`` that
    of all rows, noise included, and ``counts`` (K,) the weights in units of the lightest row.
    ``space`` says which centers can be compared: "rows", "directions" or "tables".
    """

    space: str
    names: tuple[Any, ...]
    centers: NDArray[np.float64]
    variances: NDArray[np.float64]
    weights: NDArray[np.float64]
    counts: NDArray[np.float64]
    total: float

    def __len__(self):
        return len(self.centers)

    def only(self, kept):
        """Some of the clusters."""
        names = "centers", "variances", "weights", "counts"
        return replace(self, **{name: getattr(self, name)[kept] for name in names})

    def joined(self, others):
        """These clusters and others of the same space, in the coordinates of both."""
        names = self.names + tuple(name for name in others.names if name not in set(self.names))
        first, second = self.along(names), others.along(names)
        fields = "centers", "variances", "weights", "counts"
        both = {n: np.concatenate([getattr(first, n), getattr(second, n)]) for n in fields}
        return replace(first, **both)

    def along(self, names):
        """The same clusters with these coordinates.

        A level that a known column does not have has share 0; what else is not there is NaN.
        """
        if names == self.names:
            return self
        at = {name: j for j, name in enumerate(self.names)}
        columns = {name[0] for name in self.names if isinstance(name, tuple)}
        centers, variances = (np.full((len(self), len(names)), np.nan) for _ in range(2))
        for j, name in enumerate(names):
            if name in at:
                centers[:, j] = self.centers[:, at[name]]
                variances[:, j] = self.variances[:, at[name]]
            elif isinstance(name, tuple) and name[0] in columns:
                centers[:, j] = variances[:, j] = 0.0
        return replace(self, names=names, centers=centers, variances=variances)


def summarize(model, X=None, weight=None):
    """The Clusters of a fitted estimator; their variances are from its rows, where given."""
    labels = np.asarray(model.labels_)
    k = int(model.n_clusters_)
    unit = unit_of(weight)
    w = np.ones(len(labels)) if weight is None else weight / unit
    weights = np.bincount(labels[labels >= 0], w[labels >= 0], minlength=k)
    counts = weights / w[w > 0].min()
    if isinstance(model, MixedDPMeans):
        space, (names, centers, variances) = "tables", table_coordinates(model)
    else:
        space = "directions" if isinstance(model, SphericalDPMeans) else "rows"
        names = tuple(range(model.n_features_in_))
        if X is None:
            centers, variances = without_rows(model, labels, weights)
        else:
            if space == "directions":
                X = directions(X)
            given = None if isinstance(model, ShapeMeans) else np.asarray(model.cluster_centers_)
            centers, variances = of_rows(X, w, labels, k, given)
    total = w.sum()
    if X is None and weight is None and isinstance(model, MiniBatchDPMeans):
        # labels are those of the last batch, weights those of all passes
        seen = model.cluster_weights_ / model.n_iter_
        if seen.sum() > total:
            weights = counts = seen
            total = seen.sum()
    return Clusters(space, names, centers, variances, unit * weights, counts, unit * total)


def directions(X):
    """Rows of length 1, as float64; those of length 0 stay."""
    if issparse(X):
        X = csr_array(X, dtype=np.float64, copy=True)
        largest = np.maximum(X.max(axis=1).toarray(), -X.min(axis=1).toarray()).reshape(-1)
        X.data /= np.repeat(nonzero(largest), np.diff(X.indptr))  # so that no square overflows
        length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).reshape(-1))
        X.data /= np.repeat(nonzero(length), np.diff(X.indptr))
        return X
    X = X / nonzero(np.abs(X).max(axis=1, keepdims=True).astype(np.float64))
    return X / nonzero(np.linalg.norm(X, axis=1, keepdims=True))


def nonzero(values):
    """The values, 1 instead of 0: divisors."""
    return np.where(values == 0.0, 1.0, values)


@np.errstate(over="ignore", invalid="ignore")
def of_rows(X, w, labels, k, centers):
    """Means (unless given) and variances about them of the rows of each cluster."""
    used = np.flatnonzero((labels >= 0) & (w > 0))
    shape = k, X.shape[0]
    share = csr_array((w[used], (labels[used], used)), shape=shape)
    weights = nonzero(np.asarray(share.sum(axis=1)).reshape(-1, 1))
    dense = (lambda a: a.toarray()) if issparse(X) else np.asarray
    if centers is None:
        centers = dense(share @ X) / weights
    variances = np.zeros(centers.shape)
    if issparse(X):
        # sum w (x - c)^2 = sum w x^2 - 2 c sum w x + c^2 sum w
        squares = (share @ X.multiply(X)).toarray() - 2 * centers * (share @ X).toarray()
        variances = np.maximum(squares / weights + centers**2, 0.0)
        return centers, need_finite(variances)
    size = max(1, BLOCK // X.shape[1])
    for start in range(0, len(used), size):
        rows = used[start : start + size]
        differences = np.square(X[rows] - centers[labels[rows]])
        variances += share[:, rows] @ differences
    return centers, need_finite(variances / weights)


def without_rows(model, labels, weights):
    """Centers and variances of the clusters as far as the estimator has them."""
    if isinstance(model, ShapeMeans):
        count = len(model.piece_centers_)
        pieces = np.maximum(np.bincount(model.pieces_[model.pieces_ >= 0], minlength=count), 1)
        total = np.bincount(model.piece_clusters_, pieces)[model.piece_clusters_]
        share = csr_array((pieces / total, (model.piece_clusters_, np.arange(count))))
        centers = share @ model.piece_centers_
        return centers, np.full(centers.shape, np.nan)
    centers = np.array(model.cluster_centers_, dtype=np.float64)
    variances = np.full(centers.shape, np.nan)
    if isinstance(model, MahalanobisMeans):
        if model.volume == "points":  # else they grow with the members
            variances[:] = np.diagonal(model.covariances_, axis1=1, axis2=2)
        return centers, variances
    total = weights.sum()
    if total > 0 and getattr(model, "divergence", SQUARED) == SQUARED:
        # one spread for all clusters and columns
        share = ERROR_SHARE if isinstance(model, SphericalDPMeans) else 1.0
        variances[:] = model.inertia_ / share / (total * centers.shape[1])
    return centers, variances


def table_coordinates(model):
    """Names, means and variances of the columns, and shares of the levels, of a mixed table."""
    names, centers, variances = [], [], []
    for column in model.columns_:
        mean = model.cluster_parameters_[column.name]
        if mean.ndim == 2:
            names += [(column.name, level) for level in column.levels]
            centers.append(mean)
            variances.append(mean * (1 - mean))
            continue
        names.append(column.name)
        centers.append(mean[:, None])
        # the variance is s^2 times 1, mean or mean^2 by the law of the column
        power = {"poisson": 1, "exponential": 2}.get(column.kind, 0)
        variances.append(model.spreads_[column.name] ** 2 * mean[:, None] ** power)
    return tuple(names), np.hstack(centers), np.hstack(variances)


class Comparison:
    """Distances of new clusters (rows) from old ones (columns), and how far they may be.

    ``distance`` is in the units of the data, or, for tables, of the spread of each column;
    ``spreads`` the standard deviation within the old cluster along the line between the centers,
    ``apart`` the distance over the sum of that of both. ``reach`` is the largest distance at which
    the new one can be the old one after a move, and ``parts_reach`` that of a part of the old one,
    and of an old part of the new one. (The parts of a cluster may be near each other.)
    """

    def __init__(self, new, old, present, max_move=None):
        new, old = comparable(new, old)
        self.new, self.old = new, old
        n, m = len(new), len(old)
        self.distance, self.spreads, other = (np.zeros((n, m)) for _ in range(3))
        for k in range(n):
            step = np.nan_to_num(old.centers - new.centers[k])  # 0 where one is not known
            self.distance[k] = np.sqrt(np.square(step).sum(axis=1))
            square = np.square(step / nonzero(self.distance[k])[:, None])
            square[self.distance[k] == 0.0] = 1.0 / square.shape[1]  # the mean over all directions
            self.spreads[k] = np.sqrt((square * old.variances).sum(axis=1))
            other[k] = np.sqrt((square * new.variances[k]).sum(axis=1))
        both = self.spreads + other
        with np.errstate(divide="ignore", invalid="ignore"):
            self.apart = np.where(self.distance > 0, self.distance / both, 0.0)
        touch, near = TOUCH * both, HALF * gaps(new, np.arange(n))[:, None]
        near_old = HALF * gaps(old, present)[None]
        self.reach = np.maximum(touch, np.minimum(near, near_old))
        self.parts_reach = np.maximum(touch, near_old), np.maximum(touch, near)
        if max_move is not None:
            self.reach = np.full((n, m), float(max_move))
            self.parts_reach = self.reach, self.reach


def gaps(clusters, present):
    """Distance of each cluster from the nearest other one of those present; 0 if there is none."""
    gap = np.zeros(len(clusters))
    for k, center in enumerate(clusters.centers):
        others = present[present != k]
        if len(others):
            step = np.nan_to_num(clusters.centers[others] - center)
            gap[k] = np.sqrt(np.square(step).sum(axis=1).min())
    return gap


def comparable(new, old):
    """Both in the same coordinates, with known variances, averaged with those of all clusters."""
    if new.space == "tables":
        numbers, levels = (
            [{name for name in a.names if isinstance(name, tuple) == is_level} for a in (new, old)]
            for is_level in (False, True)
        )
        columns = {name for name, _ in levels[0]} & {name for name, _ in levels[1]}
        names = [n for n in old.names if n in numbers[0]]
        names += [n for n in old.names if isinstance(n, tuple) and n[0] in columns]
        names += [n for n in new.names if isinstance(n, tuple) and n[0] in columns - set(names)]
        names = tuple(dict.fromkeys(names))
        if not names:
            raise ValueError("like must have a column by which both models cluster, got none")
        new, old = new.along(names), old.along(names)
    first, second = (pooled_variances(a) for a in (new, old))
    pooled = np.where(np.isnan(first), second, first), np.where(np.isnan(second), first, second)
    if np.isnan(pooled).all() and len(old):
        raise ValueError(
            "X must be given: neither model tells how large the spread of its clusters is"
        )
    new, old = (with_pooled(a, v) for a, v in zip((new, old), pooled, strict=True))
    if new.space == "tables":  # columns have units of their own
        spread = nonzero(np.sqrt(0.5 * np.nan_to_num(pooled[0] + pooled[1])))
        new, old = (
            replace(a, centers=a.centers / spread, variances=a.variances / spread**2)
            for a in (new, old)
        )
    return new, old


def pooled_variances(clusters):
    """The variance within the clusters, of each coordinate; NaN if it is not known."""
    weights = np.where(np.isnan(clusters.variances), 0.0, clusters.counts[:, None])
    total = weights.sum(axis=0)
    sums = (weights * np.nan_to_num(clusters.variances)).sum(axis=0)
    return np.divide(sums, total, out=np.full(len(total), np.nan), where=total > 0)


def with_pooled(clusters, pooled):
    """The clusters, whose variances are averaged with those within all clusters."""
    pooled = np.nan_to_num(pooled)  # 0 where nothing is known of either
    variances = np.where(np.isnan(clusters.variances), pooled, clusters.variances)
    share = (clusters.counts / (clusters.counts + ROWS_OF_ALL))[:, None]
    return replace(clusters, variances=share * variances + (1 - share) * pooled)
