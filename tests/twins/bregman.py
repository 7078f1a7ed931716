"""DP-means with another divergence: D(x, mu) for the squared distance."""

import math

import numpy as np

from twins.dpmeans import Result
from twins.exact import layout, means_within, prepare, without_gaps

OFF_BORDER = 0.1  # of the way from the border to the mean of all rows


def divergences(X, centers, name):
    """All D(x_i, c), the columns added one after the other; 0 log 0 = 0."""
    total = np.zeros((len(X), len(centers)))
    for j in range(X.shape[1]):
        x, mu = X[:, j, None], centers[None, :, j]
        with np.errstate(all="ignore"):
            if name == "squared_euclidean":
                total += np.square(x - mu)
            elif name == "kl":
                total += np.where(x > 0, x * np.log(x / mu) - x + mu, mu)
            elif name == "itakura_saito":
                total += x / mu - np.log(x / mu) - 1
            elif name == "logistic":
                total += np.where(x > 0, x * np.log(x / mu), 0)
                total += np.where(x < 1, (1 - x) * np.log((1 - x) / (1 - mu)), 0)
    return total


def bregman_means(X, weights, labels):
    """Means from sums about 0 that keep 50 bits of every value, within those of the cluster."""
    return means_within(X, weights, labels, layout(X, weights, np.zeros(X.shape[1]), 0))


def own_divergence(X, weights, labels, centers, name):
    """Weighted sum of the rows' divergences from their own centers."""
    own = [
        divergences(x[None], c[None], name)[0, 0] for x, c in zip(X, centers[labels], strict=True)
    ]
    return math.fsum(weights * np.array(own))


def opened(x, w, distance, lam, mean, name):
    """The center of a cluster that opens at x, and whether it is off the border.

    A component on the border of the domain is infinitely far from every x that is not there. It is
    moved a part of the way to the mean of all rows, if the cluster is worth lam with that center,
    too.
    """
    center, inside = x.copy(), x
    if name == "logistic":
        mean, inside = np.clip(mean, 1e-6, 1.0 - 1e-6), np.clip(x, 1e-6, 1.0 - 1e-6)
    border = {"kl": x == 0.0, "logistic": (x == 0.0) | (x == 1.0)}.get(name, np.zeros(len(x), bool))
    border &= inside != mean  # not where all rows are on the border
    center[border] += OFF_BORDER * (mean - x)[border]
    if border.any() and w * (distance - divergences(x[None], center[None], name)[0, 0]) > lam:
        return center, True
    return x, False


def _bregman_serial(X, w, lam, centers, cap, name, mean):
    table = divergences(X, centers, name)
    labels = np.empty(len(X), dtype=int)
    for i in range(len(X)):
        if w[i] * table[i].min() > lam and len(centers) < cap:
            labels[i] = len(centers)
            center, _ = opened(X[i], w[i], table[i].min(), lam, mean, name)
            centers = np.vstack([centers, center])
            table = np.hstack([table, divergences(X, center[None], name)])
        else:
            labels[i] = table[i].argmin()
    return labels, centers


def _bregman_delayed(X, w, lam, centers, cap, name, mean):
    table = divergences(X, centers, name)
    labels, cost = table.argmin(axis=1), w * table.min(axis=1)
    far = cost.argmax()
    if cost[far] > lam and len(centers) < cap:
        center, off_border = opened(X[far], w[far], table[far].min(), lam, mean, name)
        if off_border and lam > 0.0:  # rows that are nearer to it join at once
            nearer = divergences(X, center[None], name)[:, 0] < table.min(axis=1)
            labels[nearer] = len(centers)
        labels[far] = len(centers)
        centers = np.vstack([centers, center])
    return labels, centers


def _bregman_collapsed(X, w, lam, labels, cap, name, reach):
    """One visit of each row: it goes where the objective of the labels is lowest."""
    labels = labels.copy()
    k = labels.max() + 1
    for i in range(len(X)):
        others = np.arange(len(X)) != i
        alone = not (labels[others] == labels[i]).any()
        cost = np.full(k, np.inf)
        for c in np.unique(labels[others]):
            members = others & (labels == c)
            s, m = w[members].sum(), np.average(X[members], axis=0, weights=w[members])
            joint = (s * m + w[i] * X[i]) / (s + w[i])
            cost[c] = w[i] * divergences(X[i : i + 1], joint[None], name)[0, 0]
            cost[c] += s * divergences(m[None], joint[None], name)[0, 0]
        free = len(np.unique(labels[others])) < cap
        least = min(cost.min(), lam if free else np.inf)
        tie = 1e-12 * (least + np.sqrt(least * w[i] * reach[i]))
        good = np.flatnonzero(cost <= least + tie)
        if good.size:
            labels[i] = good[0]
        elif not alone:
            labels[i] = k
            k += 1
    return labels, k


def bregman(
    X,
    lam,
    name,
    algorithm="serial",
    *,
    weights=None,
    init=None,
    max_clusters=None,
    max_iter=300,
    order=None,
):
    """DP-means with a divergence, one row after the other."""
    X_all, weights, rows = prepare(X, weights, order)
    X, w = X_all[rows], weights[rows]
    cap = np.inf if max_clusters is None else max_clusters
    given = init is not None
    labels = np.zeros(len(X), dtype=int)
    centers = np.array(init, dtype=float) if given else bregman_means(X, w, labels)
    if algorithm == "collapsed" and given:
        labels, kept = without_gaps(divergences(X, centers, name).argmin(axis=1))
        centers = centers[kept]
    mean = bregman_means(X, w, np.zeros(len(X), dtype=int))[0]
    reach = X.sum(axis=1) + mean.sum() if name == "kl" else np.full(len(X), X.shape[1])
    path, n_iter, counted, fixed = [], 0, 0, False
    while not fixed and counted < max_iter:
        previous = labels
        if algorithm == "collapsed":
            n_before = labels.max() + 1
            labels, n_now = _bregman_collapsed(X, w, lam, labels, cap, name, reach)
        else:
            n_before = len(centers)
            sweep = _bregman_serial if algorithm == "serial" else _bregman_delayed
            labels, centers = sweep(X, w, lam, centers, cap, name, mean)
            n_now = len(centers)
        created = n_now > n_before
        fixed = not created and np.array_equal(labels, previous) and not (given and n_iter == 0)
        labels, _ = without_gaps(labels)
        centers = bregman_means(X, w, labels)
        path.append(own_divergence(X, w, labels, centers, name) + lam * len(centers))
        n_iter += 1
        counted += not created
    if not fixed and algorithm != "collapsed":
        labels, kept = without_gaps(divergences(X, centers, name).argmin(axis=1))
        centers = centers[kept]
        path.append(own_divergence(X, w, labels, centers, name) + lam * len(centers))
    all_labels = divergences(X_all, centers, name).argmin(axis=1)
    all_labels[rows] = labels
    return Result(all_labels, centers, path[-1], np.array(path), n_iter, fixed)


def merge_cheapest(between, mean, weights, sums, count):
    """Merge the cheapest pair ``count`` times, by a table of all costs; pairs and costs.

    A merger costs w_a D(mu_a, m) + w_b D(mu_b, m), m the joint mean; at a tie it is the first pair.
    """
    k = len(mean)
    alive, table = np.ones(k, dtype=bool), np.full((k, k), np.inf)

    def costs_of(a, others):
        w = weights[others, None]
        joint = mean[a] + w / (weights[a] + w) * (mean[others] - mean[a])
        joint[(joint == 0.0) & (mean[a] != mean[others])] = 5e-324
        return weights[a] * between(mean[a], joint) + weights[others] * between(mean[others], joint)

    for a in range(k - 1):
        table[a, a + 1 :] = costs_of(a, np.arange(a + 1, k))
    pairs, costs = [], []
    for _ in range(count):
        a, b = np.unravel_index(table.argmin(), table.shape)
        pairs.append((a, b))
        costs.append(table[a, b])
        sums.unite(a, b)
        mean[a], weights[a] = sums.center(a)
        alive[b] = False
        table[b], table[:, b] = np.inf, np.inf
        before, after = np.flatnonzero(alive[:a]), a + 1 + np.flatnonzero(alive[a + 1 :])
        table[before, a], table[a, after] = costs_of(a, before), costs_of(a, after)
    return np.array(pairs), np.array(costs)
