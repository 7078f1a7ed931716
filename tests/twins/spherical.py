"""DP-means on directions: rows and centers of length 1, cosines in place of distances.

As ||x - mu||^2 = 2 (1 - x . mu) where both have length 1, a row opens a cluster when its squared
distance to the nearest center exceeds 2 lam. Every decision takes that distance between the row as
it is stored and the center in float64.
"""

import numpy as np

from twins.dpmeans import Result
from twins.exact import (
    exact_sums,
    layout,
    nearest,
    prepare,
    quotients,
    sum_of_squares,
    without_gaps,
)


def lengths(X):
    """The length of each row, its squares added one column after the other."""
    total = np.zeros(len(X))
    for column in X.T:
        total += np.square(column)
    return np.sqrt(total)


def unit_rows(X):
    """Rows of length 1 up to rounding as they are, others divided by theirs, in their own type."""
    X = np.asarray(X)
    Y = X.astype(float)
    size = lengths(Y)
    off = ~(np.abs(np.square(Y).cumsum(axis=1)[:, -1] - 1) <= 64 * np.finfo(X.dtype).eps)
    # by a power of two first: squares then neither vanish nor overflow
    half = np.ldexp(Y, -np.frexp(np.abs(Y).max(axis=1))[1][:, None])
    size = lengths(half)
    return np.where(off[:, None], half / size[:, None], Y).astype(X.dtype)


def _sweep_serial(X, w, lam, rounding, centers, cap):
    """Rows in order; one whose largest cosine is below 1 - lam opens a cluster at itself."""
    labels = np.empty(len(X), dtype=int)
    for i, x in enumerate(X):
        (labels[i],), (distance,) = nearest(x[None], centers)
        if w[i] * distance > 2 * lam and distance > rounding and len(centers) < cap:
            labels[i] = len(centers)
            centers = np.vstack([centers, x])
    return labels, centers


def _sweep_delayed(X, w, lam, rounding, centers, cap):
    """All rows join their nearest center; then the farthest one may leave it."""
    labels, distance = nearest(X, centers)
    claim = np.where(distance > rounding, w * distance, 0.0)
    far = np.argmax(claim)
    if claim[far] > 2 * lam and len(centers) < cap:
        labels[far] = len(centers)
        centers = np.vstack([centers, X[far]])
    return labels, centers


SWEEPS = {"serial": _sweep_serial, "delayed": _sweep_delayed}


def directions(X, w, labels, centers):
    """Normalized sums; clusters without one are dropped: labels, centers, whether there were such.

    Their rows fall to cluster 0 until the next sweep: at any center at all they cost their weight.
    """
    total, weight_sums, low = exact_sums(
        X, w, labels, len(centers), layout(X, w, origin=np.zeros(X.shape[1]))
    )
    size = lengths(total)
    kept = np.flatnonzero(size > 2.0**-46 * weight_sums)
    if not len(kept):  # a last cluster stays where it is
        return np.zeros_like(labels), centers[:1], len(centers) > 1
    number = np.zeros(len(centers), dtype=int)
    number[kept] = np.arange(len(kept))
    return (
        number[labels],
        quotients(total[kept], low[kept], size[kept, None]),
        len(kept) < len(centers),
    )


def fit(
    X,
    lam,
    *,
    algorithm="serial",
    weights=None,
    init=None,
    max_clusters=None,
    max_iter=300,
    tol=0.0,
    order=None,
):
    """Sweeps from the first row, or from given centers, until nothing changes."""
    single = np.asarray(X).dtype == np.float32
    X_all, weights, rows = prepare(unit_rows(X), weights, order)
    X, w = X_all[rows], weights[rows]
    rounding = np.square(64 * np.finfo(np.float32 if single else float).eps)
    cap = np.inf if max_clusters is None else max_clusters
    labels = np.zeros(len(X), dtype=int)
    centers = X[:1] if init is None else unit_rows(np.asarray(init, dtype=float))
    path, n_iter, counted = [], 0, 0
    fixed = within_tol = lost = False

    def objective():
        return sum_of_squares(X, w, labels, centers) / 2 + lam * len(centers)

    while not (fixed or within_tol) and counted < max_iter:
        previous, n_before = labels, len(centers)
        labels, centers = SWEEPS[algorithm](X, w, lam, rounding, centers, cap)
        created = len(centers) > n_before
        fixed = n_iter > 0 and not (created or lost) and np.array_equal(labels, previous)
        labels, kept = without_gaps(labels)
        labels, centers, lost = directions(X, w, labels, centers[kept])
        path.append(objective())
        changed = not fixed
        within_tol = tol > 0 and n_iter > 0 and changed and path[-2] - path[-1] <= tol * path[0]
        n_iter += 1
        counted += not (created and (n_iter < 2 or path[-1] < path[-2]))
    if not fixed:
        labels, kept = without_gaps(nearest(X, centers)[0])
        centers = centers[kept]
        path.append(objective())
    all_labels = nearest(X_all, centers)[0]
    all_labels[rows] = labels
    return Result(all_labels, centers, path[-1], np.array(path), n_iter, fixed or within_tol)


def partial_fit(X, centers, sums, lam, *, weights=None, max_clusters=None):
    """One batch: the farthest row opens a cluster while it is beyond lam; then directions of sums.

    ``sums`` are those of all rows each center was ever given; returns labels, centers and sums.
    """
    X, w, rows = prepare(unit_rows(X), weights, None)
    cap = np.inf if max_clusters is None else max_clusters
    while len(centers) < cap:
        distance = w[rows] * nearest(X[rows], centers)[1]
        far = distance.argmax()
        if not distance[far] > 2 * lam:
            break
        centers = np.vstack([centers, X[rows][far]])
        sums = np.vstack([sums, np.zeros(X.shape[1])])
    labels = nearest(X, centers)[0]
    centers, sums = centers.copy(), sums.copy()
    np.add.at(sums, labels[rows], w[rows, None] * X[rows])
    moved = np.unique(labels[rows])
    centers[moved] = sums[moved] / lengths(sums[moved])[:, None]
    return nearest(X, centers)[0], centers, sums
