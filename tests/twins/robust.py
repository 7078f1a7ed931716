"""DP-means with noise: a row beyond a price from every center is in no cluster, at that price.

Sweeps label rows by the nearest center, or as noise (-1), and centers move to the means. At a fixed
point clusters that do not pay go; else pairs whose union costs less than lam are merged; else a
cluster opens where rows save more than lam by it. Rows without weight take no part.
"""

import itertools
import math

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.utils.random import sample_without_replacement

from twins.dpmeans import Result
from twins.exact import (
    exact_sums,
    layout,
    nearest,
    prepare,
    squared_distances,
    sum_of_squares,
    weighted_means,
    without_gaps,
)

SEEDS, SAMPLED, TRIED, MOVES, TIE = 200, 2000, 3, 20, 1e-12


def assign(X, centers, price):
    """Index of the nearest center of each row, or -1; and its squared distance from there."""
    labels, own = nearest(X, centers)
    return np.where(own > price, -1, labels), own


def objective(X, w, labels, centers, lam, price):
    """Error of the rows in clusters, lam for each cluster, price for each row of noise."""
    used = labels >= 0
    error = sum_of_squares(X[used], w[used], labels[used], centers)
    return error + lam * len(centers) + price * math.fsum(w[~used])


def least(X, w, lam, price, partitions):
    """The least objective over all labels, some row in a cluster: for tiny data."""
    best = np.inf
    for labels in map(np.array, partitions):
        for noise in range(-1, labels.max() + 1):
            used = labels != noise
            if used.any():
                compact = without_gaps(labels[used])[0]
                centers = weighted_means(X[used], w[used], compact)
                now = np.full(len(X), -1)
                now[used] = compact
                best = min(best, objective(X, w, now, centers, lam, price))
    return best


def closed(X, w, labels, own, centers, lam, price, band):
    """Centers without those whose rows do better elsewhere, or as noise, by more than lam."""

    def saving(k, left):
        rows = np.flatnonzero(labels == k)
        others = left[left != k]
        if len(rows) == 0:
            return 0.0, rows, None, None
        near, distance = nearest(X[rows], centers[others])
        saved = math.fsum(w[rows] * (np.minimum(price, distance) - own[rows]))
        return saved, rows, others[near], distance

    labels, own = labels.copy(), own.copy()
    left = np.arange(len(centers))
    savings = [saving(k, left)[0] for k in left]
    for k in sorted(left, key=lambda k: (savings[k], k)):
        if len(left) == 1 or not savings[k] < lam - band:
            break
        saved, rows, near, distance = saving(k, left)
        if saved < lam - band:
            left = left[left != k]
            if len(rows):
                labels[rows], own[rows] = np.where(distance > price, -1, near), distance
    return centers[left]


def merged(centers, weights, lam, band):
    """Centers with pairs merged, the cheapest first, no cluster twice."""
    cost = cdist(centers, centers, "sqeuclidean")
    cost *= weights[:, None] * (weights / (weights[:, None] + weights))
    pairs = [(cost[a, b], a, b) for a, b in itertools.combinations(range(len(centers)), 2)]
    centers, taken, gone = centers.copy(), set(), []
    for value, a, b in sorted(pairs):
        if value < lam - band and not {a, b} & taken:
            taken |= {a, b}
            centers[a] += weights[b] / (weights[a] + weights[b]) * (centers[b] - centers[a])
            gone.append(b)
    return np.delete(centers, gone, axis=0)


def opened(X, w, own, centers, lam, price, band, rng, cap):
    """Centers with further ones, each the best of three places of those drawn, while that pays."""
    cost, b = np.minimum(own, price), layout(X, w)
    seeds, sampled = np.flatnonzero(w * cost), np.flatnonzero(w > 0)
    if len(seeds) > SEEDS:
        total = np.cumsum(w * cost)
        drawn = rng.uniform(size=SEEDS) * total[-1]
        seeds = np.unique(np.minimum(np.searchsorted(total, drawn, side="right"), len(X) - 1))
    if len(sampled) > SAMPLED:
        sampled = sampled[
            np.sort(sample_without_replacement(len(sampled), SAMPLED, random_state=rng))
        ]
    table, added = cdist(X[seeds], X[sampled], "sqeuclidean"), 0
    while len(centers) < cap and added < len(seeds):
        saved = np.maximum(cost[sampled] - table, 0.0) * w[sampled]
        best, place = lam + band, None
        for seed in seeds[np.argsort(-saved.sum(axis=1), kind="stable")[:TRIED]]:
            center, kept = X[seed], -1.0
            for _ in range(MOVES):
                after = np.minimum(cost, squared_distances(X, center[None])[:, 0])
                rows = (after < cost) & (w > 0)
                value = math.fsum((w * (cost - after))[rows])
                if not value > kept + TIE * abs(kept) or not rows.any():
                    break
                kept, at, then = value, center, after
                center = weighted_means(X[rows], w[rows], np.zeros(rows.sum(), dtype=int), b)[0]
            if kept > best:
                best, place, costs = kept, at, then
        if place is None:
            break
        centers, cost, added = np.vstack([centers, place]), costs, added + 1
    return centers


def robust(X, lam, price, init, *, weights=None, max_clusters=None, max_iter=300, seed=0):
    """The fit from given centers; ``seed`` as ``random_state``."""
    X, w, _ = prepare(X, weights, None)
    rng = np.random.RandomState(seed)
    rng.randint(2**31 - 1)  # that of the paths
    cap = np.inf if max_clusters is None else max_clusters
    used, b = w > 0, layout(X, w)
    centers, labels = np.array(init, dtype=float), np.full(len(X), -1)
    path, n_iter, counted, fixed = [], 0, 0, False

    def found(centers):
        labels, own = assign(X, centers, price)
        if (labels[used] < 0).all():
            at = np.flatnonzero(used)[own[used].argmin()]
            centers = X[at : at + 1].copy()
            labels, own = assign(X, centers, price)
        return centers, labels, own

    while not fixed and counted < max_iter:
        before = labels
        centers, labels, own = found(centers)
        changed, other = not np.array_equal(labels[used], before[used]), None
        if not changed:
            band = TIE * abs(path[-1])
            if len(centers) > 1:
                other = closed(X[used], w[used], labels[used], own[used], centers, lam, price, band)
                if len(other) == len(centers):
                    rows = used & (labels >= 0)
                    weight_sums = exact_sums(X[rows], w[rows], labels[rows], len(centers), b)[1]
                    other = merged(centers, weight_sums, lam, band)
            if (other is None or len(other) == len(centers)) and len(centers) < cap:
                other = opened(X, w, own, centers, lam, price, band, rng, cap)
            if other is not None and len(other) != len(centers):
                centers, labels, own = found(other)
                changed = True
            else:
                other = None
        rows = used & (labels >= 0)
        compact, kept = without_gaps(labels[rows])
        labels = np.where(np.isin(labels, kept), np.searchsorted(kept, labels), -1)
        centers = weighted_means(X[rows], w[rows], compact, b)
        path.append(objective(X[used], w[used], labels[used], centers, lam, price))
        n_iter += 1
        fixed = not changed
        fell = len(path) < 2 or path[-1] < path[-2]
        counted += not (other is not None and fell)
    if not fixed:
        centers, labels, own = found(centers)
        kept = np.unique(labels[used & (labels >= 0)])
        centers = centers[kept]
        centers, labels, own = found(centers)
        path.append(objective(X[used], w[used], labels[used], centers, lam, price))
    labels = assign(X, centers, price)[0]
    return Result(labels, centers, path[-1], np.array(path), n_iter, fixed)
