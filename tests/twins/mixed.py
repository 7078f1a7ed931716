"""DP-means on tables: sums of divergences over the cells that are there, one row after the other.

A table is a list of columns, each (kind, values, variance): numbers with NaN, or codes with -1 for
missing cells; kinds as in the estimator, for codes the variance is not used. Numbers come before
codes. A cluster is a list of parameters: means, and arrays of shares.
"""

import math

import numpy as np

from twins.dpmeans import Result
from twins.exact import without_gaps

CODES = ("bernoulli", "categorical")
A = 1.0  # the pseudo-count
SEED_COUNT = 0.5  # rows of the overall mean that are added to a start's counts
OFF_BORDER = 0.1  # of the way from 0 to the overall mean
TIE = 1e-9


def cell_divergence(kind, variance, x, mu):
    """D_j(x, mu) of a cell that is there."""
    if kind in CODES:
        return -float(np.log(mu[x]))
    delta = x - mu
    if kind in ("normal", "ordered"):
        return 0.5 / variance * (delta * delta)
    if mu == 0.0:
        return math.inf if x > 0.0 else 0.0
    ratio = 0.0
    if x > 0.0:
        near = abs(delta) <= 0.5 * mu
        ratio = math.log1p(delta / mu) if near else math.log(x) - math.log(mu)
    value = x * ratio - delta if kind == "poisson" else delta / mu - ratio
    return 1.0 / variance * max(value, 0.0)


def is_there(kind, x):
    """Whether a cell is not missing."""
    return x >= 0 if kind in CODES else not math.isnan(x)


def row_divergence(table, i, cluster):
    """The sum over the cells of row i."""
    total = 0.0
    for (kind, x, variance), mu in zip(table, cluster, strict=True):
        if is_there(kind, x[i]):
            total += cell_divergence(kind, variance, x[i], mu)
    return total


def overall(table, w):
    """Means and shares of all rows."""
    out = []
    for kind, x, _ in table:
        seen = [i for i in range(len(x)) if is_there(kind, x[i])]
        weight_sum = math.fsum(w[i] for i in seen)
        if kind in CODES:
            m = max(x) + 1
            out.append(
                np.array(
                    [math.fsum(w[i] for i in seen if x[i] == v) / weight_sum for v in range(m)]
                )
            )
        else:
            out.append(math.fsum(w[i] * x[i] for i in seen) / weight_sum)
    return out


def without_unused(table, whole):
    """Levels whose rows have weight zero are missing."""
    return [
        (kind, np.where(p[x] > 0.0, x, -1) if kind in CODES else x, variance)
        for (kind, x, variance), p in zip(table, whole, strict=True)
    ]


def best_cluster(table, w, members, whole):
    """The parameters that are best for some rows: means; shares with the pseudo-count."""
    out = []
    for (kind, x, _), p in zip(table, whole, strict=True):
        seen = [i for i in members if is_there(kind, x[i])]
        weight_sum = math.fsum(w[i] for i in seen)
        if kind in CODES:
            n = np.array([math.fsum(w[i] for i in seen if x[i] == v) for v in range(len(p))])
            out.append((n + A * p) / (weight_sum + A))
        else:
            out.append(math.fsum(w[i] * x[i] for i in seen) / weight_sum if seen else p)
    return out


def prior(table, cluster, whole):
    """a sum_v p_v log(p_v / mu_v) over the columns of codes."""
    total = 0.0
    for (kind, _, _), mu, p in zip(table, cluster, whole, strict=True):
        if kind in CODES:
            total += sum(A * q * math.log(q / m) for q, m in zip(p, mu, strict=True) if q > 0.0)
    return total


def error(table, w, labels, clusters, whole):
    """The objective but for lam K."""
    total = [w[i] * row_divergence(table, i, clusters[labels[i]]) for i in range(len(w))]
    return math.fsum(total) + math.fsum(prior(table, c, whole) for c in clusters)


def cost_alone(table, w, i, whole):
    """What row i costs in a cluster of its own."""
    alone = best_cluster(table, w, [i], whole)
    return w[i] * row_divergence(table, i, alone) + prior(table, alone, whole)


def nearest(table, i, clusters):
    """The nearest cluster, at a tie the first, and the divergence."""
    distance = [row_divergence(table, i, c) for c in clusters]
    best = int(np.argmin(distance))
    return best, distance[best]


def opened(table, w, i, gain, lam, whole):
    """The cluster that opens at row i, and whether no poisson mean of it is 0.

    A mean of 0 is infinitely far from every row with more: it is moved a part of the way to that of
    all rows, if the cluster is worth lam with that center, too.
    """
    alone = best_cluster(table, w, [i], whole)
    moved = [
        OFF_BORDER * p if kind == "poisson" and x[i] == 0.0 else mu
        for (kind, x, _), mu, p in zip(table, alone, whole, strict=True)
    ]
    more = 0.0
    for (kind, x, variance), mu in zip(table, moved, strict=True):
        if kind == "poisson" and x[i] == 0.0:
            more += 1.0 / variance * mu
    off_border = more > 0.0 and gain - w[i] * more > lam
    return (moved, True) if off_border else (alone, False)


def _serial(table, w, lam, clusters, cap, whole):
    clusters, labels = list(clusters), []
    for i in range(len(w)):
        best, distance = nearest(table, i, clusters)
        gain = w[i] * distance
        if gain > lam and len(clusters) < cap and gain - cost_alone(table, w, i, whole) > lam:
            best = len(clusters)
            gain -= cost_alone(table, w, i, whole)
            clusters.append(opened(table, w, i, gain, lam, whole)[0])
        labels.append(best)
    return np.array(labels), len(clusters)


def _delayed(table, w, lam, clusters, cap, whole):
    labels, distances, farthest, most = [], [], None, lam
    for i in range(len(w)):
        best, distance = nearest(table, i, clusters)
        labels.append(best)
        distances.append(distance)
        gain = w[i] * distance
        if gain > lam:
            gain -= cost_alone(table, w, i, whole)
            if gain > most:
                farthest, most = i, gain
    if farthest is not None and len(clusters) < cap:
        center, off_border = opened(table, w, farthest, most, lam, whole)
        if off_border and lam > 0.0:  # rows that are nearer to it join at once
            for i, distance in enumerate(distances):
                if row_divergence(table, i, center) < distance:
                    labels[i] = len(clusters)
        labels[farthest] = len(clusters)
        return np.array(labels), len(clusters) + 1
    return np.array(labels), len(clusters)


def cluster_cost(table, w, members, whole):
    """The least part of the objective that some rows may have, but for lam."""
    best = best_cluster(table, w, members, whole)
    own = math.fsum(w[i] * row_divergence(table, i, best) for i in members)
    return own + prior(table, best, whole)


def _collapsed(table, w, lam, labels, cap, whole):
    labels = labels.copy()
    k = labels.max() + 1
    for i in range(len(w)):
        others = [[m for m in range(len(w)) if labels[m] == c and m != i] for c in range(k)]
        alone = not others[labels[i]]
        used = sum(1 for members in others if members)
        cost = np.full(k, math.inf)
        for c, members in enumerate(others):
            if members:
                cost[c] = cluster_cost(table, w, [*members, i], whole)
                cost[c] -= cluster_cost(table, w, members, whole)
        least = min(cost.min(), lam + cost_alone(table, w, i, whole) if used < cap else math.inf)
        good = np.flatnonzero(cost <= least + TIE * (w[i] + least))
        if len(good):
            labels[i] = good[0]
        elif not alone:
            labels[i] = k
            k += 1
    return labels, k


def seed(start, i, whole):
    """The cluster of a row of the start; counts with half a row of the overall mean."""
    alone = best_cluster(start, np.ones(len(start[0][1])), [i], whole)
    return [
        (mu + SEED_COUNT * p) / (1.0 + SEED_COUNT) if kind == "poisson" else mu
        for (kind, _, _), mu, p in zip(start, alone, whole, strict=True)
    ]


def mixed(table, lam, algorithm="serial", *, weights=None, cap=math.inf, max_iter=300, start=None):
    """DP-means on a table. ``start``: rows of a table at which clusters begin."""
    n = len(table[0][1])
    weights = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    whole = overall(table, weights)
    table = without_unused(table, whole)
    rows = np.flatnonzero(weights)
    used = [(kind, np.asarray(x)[rows], variance) for kind, x, variance in table]
    w = weights[rows]
    clusters, labels, given = [whole], np.zeros(len(w), dtype=int), start is not None
    if given:
        clusters = [seed(start, i, whole) for i in range(len(start[0][1]))]
        if algorithm == "collapsed":
            labels = np.array([nearest(used, i, clusters)[0] for i in range(len(w))])
            labels, _ = without_gaps(labels)
    path, n_iter, counted, fixed = [], 0, 0, False
    while not fixed and counted < max_iter:
        before, n_before = labels, len(clusters)
        if algorithm == "collapsed":
            n_before = labels.max() + 1
            labels, n_now = _collapsed(used, w, lam, labels, cap, whole)
        else:
            sweep = _serial if algorithm == "serial" else _delayed
            labels, n_now = sweep(used, w, lam, clusters, cap, whole)
        opened = n_now > n_before
        fixed = not opened and np.array_equal(labels, before) and not (given and n_iter == 0)
        labels, _ = without_gaps(labels)
        clusters = [
            best_cluster(used, w, np.flatnonzero(labels == c), whole)
            for c in range(labels.max() + 1)
        ]
        path.append(error(used, w, labels, clusters, whole) + lam * len(clusters))
        n_iter += 1
        counted += not (opened and (n_iter == 1 or path[-1] < path[-2]))
    out = np.array([nearest(table, i, clusters)[0] for i in range(n)])
    out[rows] = labels
    return Result(out, clusters, path[-1], np.array(path), n_iter, fixed)


def merged(table, w, labels, count):
    """Merge the cheapest pair of clusters, ``count`` times over: pairs, costs and labels."""
    whole = overall(table, w)
    labels, pairs, costs = labels.copy(), [], []
    for _ in range(count):
        found = []
        clusters = np.unique(labels)
        own = {c: cluster_cost(table, w, np.flatnonzero(labels == c), whole) for c in clusters}
        for a in clusters:
            for b in clusters[clusters > a]:
                both = np.flatnonzero((labels == a) | (labels == b))
                found.append((cluster_cost(table, w, both, whole) - own[a] - own[b], a, b))
        cost, a, b = min(found)
        labels[labels == b] = a
        pairs.append((a, b))
        costs.append(cost)
    return np.array(pairs), np.array(costs), labels


def spread_costs(x, w, labels, floor, pooled_rows):
    """V_j of a normal column, with one variance of all clusters and with one of each."""
    seen = [i for i in range(len(x)) if is_there("normal", x[i])]
    weight, squares = {}, {}
    for c in set(labels.tolist()):
        own = [i for i in seen if labels[i] == c]
        weight[c] = math.fsum(w[i] for i in own)
        mean = math.fsum(w[i] * x[i] for i in own) / weight[c] if own else 0.0
        squares[c] = math.fsum(w[i] * (x[i] - mean) ** 2 for i in own)
    total = math.fsum(weight.values())
    pooled = math.fsum(squares.values()) / total
    separate = []
    for c, n in weight.items():
        variance = (squares[c] + pooled_rows * pooled) / (n + pooled_rows) + floor
        # minus twice the log-likelihood, but for a constant
        separate.append(n * (math.log(variance) - 1.0) + (squares[c] + n * floor) / variance)
    return total * math.log(pooled + floor), math.fsum(separate)


def best_of_all(table, lam, w, most):
    """The least objective of all partitions into at most ``most`` clusters."""
    n, whole, known = len(w), overall(table, w), {}

    def cost(members):
        if members not in known:
            known[members] = lam + cluster_cost(table, w, list(members), whole)
        return known[members]

    def search(i, groups):
        if i == n:
            return sum(cost(tuple(g)) for g in groups)
        least = math.inf
        for c in range(len(groups)):
            groups[c].append(i)
            least = min(least, search(i + 1, groups))
            groups[c].pop()
        if len(groups) < most:
            groups.append([i])
            least = min(least, search(i + 1, groups))
            groups.pop()
        return least

    return search(0, [])
