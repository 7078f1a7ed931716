"""What remains of the clusters of a fit: centers, spreads and weights, to compare with others.

``summarize`` describes the clusters of a fitted estimator, and ``Comparison`` compares those of two
fits: distances between their centers, and how far a cluster may move.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.utils import gen_batches

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
# fields of Clusters with an entry for each
OF_EACH = "centers", "variances", "weights", "counts", "ids", "away"


@dataclass(frozen=True)
class Clusters:
    """Centers, variances, weights and ids of the clusters of a fit, and of earlier ones.

    ``names`` (D,) are those of the coordinates: columns, and in tables with categories pairs of
    column and level, whose coordinate is the share of the level. ``centers`` and ``variances`` have
    shape (K, D); unknown variances are NaN. ``weights`` (K,) are those of the rows, ``total`` that
    of all rows, noise included, and ``counts`` (K,) the weights in units of the lightest row.
    ``space`` says which centers can be compared: "rows", "directions" or "tables". ``away`` (K,) is
    the number of tables since each cluster was last seen, 0 for those of the fit, which come first,
    in the order of its labels. ``next_id`` was never given to a cluster.
    """

    space: str
    n_features: int
    feature_names: tuple[Any, ...] | None
    names: tuple[Any, ...]
    centers: NDArray[np.float64]
    variances: NDArray[np.float64]
    weights: NDArray[np.float64]
    counts: NDArray[np.float64]
    total: float
    ids: NDArray[np.int64]
    away: NDArray[np.int64]
    next_id: int

    def __len__(self):
        return len(self.centers)

    def only(self, kept):
        """Some of the clusters."""
        return replace(self, **{name: getattr(self, name)[kept] for name in OF_EACH})

    def joined(self, others):
        """These clusters and others of the same space, in the coordinates of both."""
        names = tuple(dict.fromkeys(self.names + others.names))
        both = [clusters.along(names) for clusters in (self, others)]
        return replace(
            both[0], **{name: np.concatenate([getattr(c, name) for c in both]) for name in OF_EACH}
        )

    @property
    def present(self):
        """Numbers of the clusters of the fit itself."""
        return np.flatnonzero(self.away == 0)

    def columns_with_levels(self):
        """Names of the columns of categories."""
        return {name[0] for name in self.names if is_level(name)}

    def along(self, names):
        """The same clusters with these coordinates.

        A level that a known column does not have has share 0; what else is not there is NaN.
        """
        if names == self.names:
            return self
        at, known = {name: j for j, name in enumerate(self.names)}, self.columns_with_levels()
        centers, variances = (np.full((len(self), len(names)), np.nan) for _ in range(2))
        for j, name in enumerate(names):
            if name in at:
                centers[:, j] = self.centers[:, at[name]]
                variances[:, j] = self.variances[:, at[name]]
            elif is_level(name) and name[0] in known:
                centers[:, j] = variances[:, j] = 0.0
        return replace(self, names=names, centers=centers, variances=variances)


def is_level(name):
    """Whether a coordinate is the share of a level of a column."""
    return isinstance(name, tuple)


def summarize(model, X=None, weight=None):
    """The Clusters of a fitted estimator, with labels as ids; variances are from rows if given."""
    labels, k = np.asarray(model.labels_), int(model.n_clusters_)
    unit = unit_of(weight)
    w = np.ones(len(labels)) if weight is None else weight / unit
    weights, total = np.bincount(labels[labels >= 0], w[labels >= 0], minlength=k), w.sum()
    counts = weights / w[w > 0].min()
    space, names = "rows", tuple(range(model.n_features_in_))
    if isinstance(model, MixedDPMeans):
        space, (names, centers, variances) = "tables", table_coordinates(model)
    else:
        if isinstance(model, SphericalDPMeans):
            space, X = "directions", None if X is None else directions(X)
        if X is None:
            centers, variances = without_rows(model, labels, weights)
        else:
            given = None if isinstance(model, ShapeMeans) else np.asarray(model.cluster_centers_)
            centers, variances = of_rows(X, w, labels, k, given)
    if X is None and weight is None and isinstance(model, MiniBatchDPMeans):
        # labels are those of the last batch, weights those of all passes
        seen = model.cluster_weights_ / model.n_iter_
        if seen.sum() > total:
            weights = counts = seen
            total = seen.sum()
    feature_names = getattr(model, "feature_names_in_", None)
    return Clusters(
        space=space,
        n_features=model.n_features_in_,
        feature_names=None if feature_names is None else tuple(feature_names),
        names=names,
        centers=centers,
        variances=variances,
        weights=unit * weights,
        counts=counts,
        total=unit * total,
        ids=np.arange(k),
        away=np.zeros(k, dtype=np.int64),
        next_id=k,
    )


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
    share = csr_array((w[used], (labels[used], used)), shape=(k, X.shape[0]))
    weights = nonzero(np.asarray(share.sum(axis=1)).reshape(-1, 1))
    sums = share @ X if centers is None or issparse(X) else None
    if issparse(X):
        sums = sums.toarray()
    if centers is None:
        centers = sums / weights
    if issparse(X):
        # sum w (x - c)^2 = sum w x^2 - 2 c sum w x + c^2 sum w
        squares = (share @ X.multiply(X)).toarray() - 2 * centers * sums
        return centers, need_finite(np.maximum(squares / weights + centers**2, 0.0))
    variances = np.zeros(centers.shape)
    for batch in gen_batches(len(used), max(1, BLOCK // X.shape[1])):
        rows = used[batch]
        variances += share[:, rows] @ np.square(X[rows] - centers[labels[rows]])
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

    def __init__(self, new, old, max_move=None):
        self.new, self.old = new, old = comparable(new, old)
        self.distance, self.spreads, spreads_of_new = np.zeros((3, len(new), len(old)))
        for k in range(len(new)):
            step = np.nan_to_num(old.centers - new.centers[k])  # 0 where one is not known
            self.distance[k] = np.sqrt(np.square(step).sum(axis=1))
            square = np.square(step / nonzero(self.distance[k])[:, None])
            square[self.distance[k] == 0.0] = 1.0 / square.shape[1]  # the mean over all directions
            self.spreads[k] = np.sqrt((square * old.variances).sum(axis=1))
            spreads_of_new[k] = np.sqrt((square * new.variances[k]).sum(axis=1))
        both = self.spreads + spreads_of_new
        with np.errstate(divide="ignore", invalid="ignore"):
            self.apart = np.where(self.distance > 0, self.distance / both, 0.0)
        if max_move is not None:
            self.reach = np.full(both.shape, float(max_move))
            self.parts_reach = self.reach, self.reach
            return
        touch, near_new = TOUCH * both, HALF * gaps(new)[:, None]
        near_old = HALF * gaps(old)[None]
        self.reach = np.maximum(touch, np.minimum(near_new, near_old))
        self.parts_reach = np.maximum(touch, near_old), np.maximum(touch, near_new)


def gaps(clusters):
    """Distance of each cluster from the nearest other one of those present; 0 if there is none."""
    gap, present = np.zeros(len(clusters)), clusters.present
    for k, center in enumerate(clusters.centers):
        others = present[present != k]
        if len(others):
            step = np.nan_to_num(clusters.centers[others] - center)
            gap[k] = np.sqrt(np.square(step).sum(axis=1).min())
    return gap


def comparable(new, old):
    """Both in the same coordinates, with known variances, averaged with those of all clusters."""
    if new.space == "tables":
        names = coordinates_of_both(new, old)
        new, old = new.along(names), old.along(names)
    first, second = pooled_variances(new), pooled_variances(old)
    pooled = np.where(np.isnan(first), second, first), np.where(np.isnan(second), first, second)
    if np.isnan(pooled).all() and len(old):
        raise ValueError(
            "X must be given: neither model tells how large the spread of its clusters is"
        )
    scale = 1.0
    if new.space == "tables":  # columns have units of their own
        scale = nonzero(np.sqrt(0.5 * np.nan_to_num(pooled[0] + pooled[1])))
    return scaled(new, pooled[0], scale), scaled(old, pooled[1], scale)


def coordinates_of_both(new, old):
    """The coordinates of two tables in the columns of both: numbers, and all levels of either."""
    numbers = set(new.names) & set(old.names)
    columns = new.columns_with_levels() & old.columns_with_levels()
    names = [n for n in old.names + new.names if (n[0] in columns if is_level(n) else n in numbers)]
    if not names:
        raise ValueError("like must have a column by which both models cluster, got none")
    return tuple(dict.fromkeys(sorted(names, key=is_level)))


def pooled_variances(clusters):
    """The variance within the clusters, of each coordinate; NaN if it is not known."""
    weights = np.where(np.isnan(clusters.variances), 0.0, clusters.counts[:, None])
    total = weights.sum(axis=0)
    sums = (weights * np.nan_to_num(clusters.variances)).sum(axis=0)
    return np.divide(sums, total, out=np.full(len(total), np.nan), where=total > 0)


def scaled(clusters, pooled, scale):
    """The clusters in other units, with variances averaged with those within all clusters."""
    pooled = np.nan_to_num(pooled)  # 0 where nothing is known of either
    variances = np.where(np.isnan(clusters.variances), pooled, clusters.variances)
    share = (clusters.counts / (clusters.counts + ROWS_OF_ALL))[:, None]
    variances = (share * variances + (1 - share) * pooled) / scale**2
    return replace(clusters, centers=clusters.centers / scale, variances=variances)
