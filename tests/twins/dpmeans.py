"""DP-means: serial, delayed, collapsed and streaming.

Rows without weight take no part and get the label of their nearest center in the end.
"""

from dataclasses import dataclass

import numpy as np

from twins import exact
from twins.exact import (
    nearest,
    prepare,
    rounding_of,
    squared_distances,
    sum_of_squares,
    weighted_means,
    without_gaps,
)


@dataclass
class Result:
    """What a fit returns; `objective_path` holds one value per sweep (and closing pass)."""

    labels: np.ndarray
    centers: np.ndarray
    objective: float
    objective_path: np.ndarray
    n_iter: int
    converged: bool

    @property
    def n_clusters(self):
        """Number of clusters."""
        return len(self.centers)


def _serial_sweep(X, w, lam, centers, cap):
    """One pass of Algorithm 1 over the rows in order; returns labels and centers.

    Centers do not move within a sweep, so a run of rows may take its distances to the
    centers known so far at once; only the centers that the run itself opens must be
    compared with its later rows, one by one.
    """
    labels, rounding = np.empty(len(X), dtype=int), rounding_of(X)
    for start in range(0, len(X), exact.RUN):
        run = slice(start, start + exact.RUN)
        x, label, dist = X[run], labels[run], np.empty(len(X[run]))
        label[:], dist[:] = nearest(x, centers)
        i = 0
        while len(centers) < cap:
            far = (w[run][i:] * dist[i:] > lam) & (dist[i:] > rounding)
            if not far.any():
                break
            i += far.argmax()
            label[i] = len(centers)
            centers = np.vstack([centers, x[i]])
            i += 1
            to_new = squared_distances(x[i:], centers[-1:])[:, 0]
            closer = to_new < dist[i:]
            label[i:][closer] = len(centers) - 1
            dist[i:][closer] = to_new[closer]
    return labels, centers


def _literal_sweep(X, w, lam, centers, cap):
    """One pass of Algorithm 1 without any shortcut (slow)."""
    centers, rounding = [list(map(float, c)) for c in centers], rounding_of(X)
    labels = []
    for x, w_i in zip(X.tolist(), w.tolist(), strict=True):
        d = []
        for c in centers:
            total = 0.0
            for x_j, c_j in zip(x, c, strict=True):
                total += (x_j - c_j) * (x_j - c_j)
            d.append(total)
        if w_i * min(d) > lam and min(d) > rounding and len(centers) < cap:
            labels.append(len(centers))
            centers.append(x)
        else:
            labels.append(d.index(min(d)))
    return np.array(labels), np.array(centers)


def _delayed_sweep(X, w, lam, centers, cap):
    """All rows join their nearest center; then the farthest one may leave it."""
    labels, dist = nearest(X, centers)
    claim = np.where(dist > rounding_of(X), w * dist, 0.0)
    far = np.argmax(claim)
    if claim[far] > lam and len(centers) < cap:
        labels[far] = len(centers)
        centers = np.vstack([centers, X[far]])
    return labels, centers


def _alternate(sweep, X, lam, weights, init, max_clusters, max_iter, tol, order):
    """Repeat `sweep` and the step of the means until nothing changes."""
    X_all, weights, rows = prepare(X, weights, order)
    X, w = X_all[rows], weights[rows]
    cap = np.inf if max_clusters is None else max_clusters
    given = init is not None
    labels = np.zeros(len(X), dtype=int)
    centers = np.array(init, dtype=float) if given else weighted_means(X, w, labels)
    path, n_iter, counted = [], 0, 0
    fixed = within_tol = False
    while not (fixed or within_tol) and counted < max_iter:
        previous, n_before = labels, len(centers)
        labels, centers = sweep(X, w, lam, centers, cap)
        created = len(centers) > n_before
        fixed = not created and np.array_equal(labels, previous) and not (given and n_iter == 0)
        labels, _ = without_gaps(labels)
        centers = weighted_means(X, w, labels)
        path.append(sum_of_squares(X, w, labels, centers) + lam * len(centers))
        within_tol = tol > 0 and n_iter > 0 and path[-2] - path[-1] <= tol * path[0]
        n_iter += 1
        counted += not created
    if not fixed:
        labels, kept = without_gaps(nearest(X, centers)[0])
        centers = centers[kept]
        path.append(sum_of_squares(X, w, labels, centers) + lam * len(centers))
    all_labels = nearest(X_all, centers)[0]
    all_labels[rows] = labels
    return Result(all_labels, centers, path[-1], np.array(path), n_iter, fixed or within_tol)


def serial(
    X, lam, *, weights=None, init=None, max_clusters=None, max_iter=300, tol=0.0, order=None
):
    """Algorithm 1 of KJ12; `order` is the order of visit."""
    return _alternate(_serial_sweep, X, lam, weights, init, max_clusters, max_iter, tol, order)


def serial_literal(
    X, lam, *, weights=None, init=None, max_clusters=None, max_iter=300, tol=0.0, order=None
):
    """`serial`, one distance at a time: slow, for small data."""
    return _alternate(_literal_sweep, X, lam, weights, init, max_clusters, max_iter, tol, order)


def delayed(X, lam, *, weights=None, init=None, max_clusters=None, max_iter=300, tol=0.0):
    """DP-means that opens at most one cluster in a sweep, at its end: the farthest row."""
    return _alternate(_delayed_sweep, X, lam, weights, init, max_clusters, max_iter, tol, None)


def collapsed(
    X, lam, *, weights=None, init=None, max_clusters=None, max_iter=300, tol=0.0, order=None
):
    """Collapsed DP-means (MB13 eq. 8-9): the objective in the labels alone.

    Row i leaves its cluster and goes where the objective is lowest: joining a cluster of
    weight s and mean m costs w s / (w + s) ||x - m||^2, being alone costs lam. Costs that
    differ by what rounding may make of them are ties: means are good to 1e-12 of ||x||.
    """
    X_all, weights, rows = prepare(X, weights, order)
    X, w = X_all[rows], weights[rows]
    cap = np.inf if max_clusters is None else max_clusters
    labels = np.zeros(len(X), dtype=int)
    if init is not None:
        labels, _ = without_gaps(nearest(X, np.array(init, dtype=float))[0])
    origin = weighted_means(X, w, np.zeros(len(X), dtype=int))[0]
    Y = X - origin
    rounding = rounding_of(X)
    length = np.sqrt(np.square(Y).sum(axis=1))
    path, n_iter, counted = [], 0, 0
    fixed = within_tol = False
    while not (fixed or within_tol) and counted < max_iter:
        before = labels.copy()
        n_before = labels.max() + 1
        size = np.bincount(labels)
        weight_sums = np.bincount(labels, w)
        mean = weighted_means(Y, w, labels)
        for i in range(len(Y)):
            c = labels[i]
            size[c] -= 1
            if size[c]:
                mean[c] -= w[i] / (weight_sums[c] - w[i]) * (Y[i] - mean[c])
                weight_sums[c] -= w[i]
            live = size > 0
            cost = np.where(
                live,
                w[i] * (weight_sums / (w[i] + weight_sums)) * np.square(mean - Y[i]).sum(axis=1),
                np.inf,
            )
            cost_alone = lam if live.sum() < cap else np.inf
            least = min(cost.min(), cost_alone)
            tie = 1e-12 * (least + np.sqrt(least * w[i]) * length[i]) + w[i] * rounding
            good = np.flatnonzero(live & (cost <= least + tie))
            if good.size:
                new = good[0]
            elif not live[c]:
                new = c  # a singleton that stays alone keeps its number
            else:
                new = len(size)
                size, weight_sums = np.append(size, 0), np.append(weight_sums, 0.0)
                mean = np.vstack([mean, Y[i]])
            if size[new]:
                weight_sums[new] += w[i]
                mean[new] += w[i] / weight_sums[new] * (Y[i] - mean[new])
            else:
                weight_sums[new], mean[new] = w[i], Y[i]
            size[new] += 1
            labels[i] = new
        created = len(size) > n_before
        fixed = np.array_equal(labels, before) and not (init is not None and n_iter == 0)
        labels, _ = without_gaps(labels)
        centers = weighted_means(X, w, labels)
        path.append(sum_of_squares(X, w, labels, centers) + lam * len(centers))
        within_tol = tol > 0 and n_iter > 0 and path[-2] - path[-1] <= tol * path[0]
        n_iter += 1
        counted += not created
    all_labels = nearest(X_all, centers)[0]
    all_labels[rows] = labels
    return Result(all_labels, centers, path[-1], np.array(path), n_iter, fixed or within_tol)


def minibatch_step(X, centers, counts, lam, *, weights=None, max_clusters=None):
    """One batch of streaming DP-means: returns labels, centers and their weights.

    While a row of the batch is beyond lam, the farthest one opens a center at itself.
    Then all rows join their nearest center, and every center becomes the mean of all
    the weight it has ever received (learning rate: new weight / all weight).
    """
    X, w, rows = prepare(X, weights, None)
    cap = np.inf if max_clusters is None else max_clusters
    centers = np.array(centers, dtype=float)
    counts = np.array(counts, dtype=float)
    while len(centers) < cap:
        distances = nearest(X[rows], centers)[1]
        far = np.argmax(w[rows] * distances)
        if not w[rows][far] * distances[far] > lam:
            break
        centers = np.vstack([centers, X[rows][far]])
        counts = np.append(counts, 0.0)
    labels = nearest(X, centers)[0]
    new_weight = np.bincount(labels, w, minlength=len(centers))
    for c in np.flatnonzero(new_weight):
        counts[c] += new_weight[c]
        batch_mean = np.average(X[labels == c], axis=0, weights=w[labels == c])
        centers[c] += new_weight[c] / counts[c] * (batch_mean - centers[c])
    return labels, centers, counts
