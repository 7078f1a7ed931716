"""DP-means with links between rows (RDP-means): one row after the other, one link after the other.

The objective is sum_i w_i ||x_i - mu_{z_i}||^2 + lam K + price (violated links).
"""

import numpy as np

from twins.dpmeans import Result, _serial_sweep
from twins.exact import (
    nearest,
    prepare,
    rounding_of,
    squared_distances,
    sum_of_squares,
    weighted_means,
    without_gaps,
)  # fmt: skip


def n_violated(labels, must, cannot):
    """Number of violated links."""
    return sum(labels[i] != labels[j] for i, j in must) + sum(
        labels[i] == labels[j] for i, j in cannot
    )


def joined(n, pairs):
    """The group of each of n rows that pairs connect, numbered by first rows."""
    group = np.arange(n)
    for i, j in pairs:
        group[group == group[j]] = group[i]
    first = {}
    return np.array([first.setdefault(g, len(first)) for g in group.tolist()], dtype=int)


def _colors(n, links, position):
    """Rows by color, most neighbors first, each the first color that no neighbor has."""
    near = [{j for pair in links for j in pair if i in pair} - {i} for i in range(n)]
    color = {}
    for i in sorted((i for i in range(n) if near[i]), key=lambda i: (-len(near[i]), position[i])):
        color[i] = min(set(range(n + 1)) - {color[j] for j in near[i] if j in color})
    return [i for _, _, i in sorted((c, position[i], i) for i, c in color.items())]


def _exchange(cost, labels, links, linked):
    """Rows of two clusters that links connect change sides where that is cheaper."""
    ends = {tuple(sorted((int(labels[i]), int(labels[j])))) for i, j in links}
    for a, b in sorted(ends):
        inside = [i for i in linked if labels[i] in (a, b)]
        group = joined(len(labels), [p for p in links if {*labels[list(p)]} <= {a, b}])
        for g in sorted({group[i] for i in inside}) if a != b else ():
            rows = [i for i in inside if group[i] == g]
            here = sum(cost[i, labels[i]] for i in rows)
            there = sum(cost[i, a + b - labels[i]] for i in rows)
            if there - here < -1e-12 * (there + here):
                labels[rows] = a + b - labels[rows]


def serial(X, lam, must, cannot, price, *, weights=None, cap=np.inf, order=None):
    """Sweeps of Algorithm 1 of KJ12 for rows without links, then the rows with links.

    If must-links are contracted, the groups are rows.
    """
    X, weights, _ = prepare(X, weights, None)
    must = {tuple(sorted(p)) for p in must if weights[list(p)].all() and p[0] != p[1]}
    cannot = {tuple(sorted(p)) for p in cannot if weights[list(p)].all()}
    group = joined(len(X), must) if np.isinf(price) else np.arange(len(X))
    G = group == np.arange(group.max() + 1)[:, None]
    w = G @ weights
    whole, x = X, (G * weights @ X) / np.where(w > 0, w, 1)[:, None]
    x[w == 0] = X[[np.flatnonzero(row)[0] for row in G[w == 0]]]
    if np.isinf(price):
        must, cannot = set(), {tuple(sorted(group[list(p)])) for p in cannot}
    links, n = [*must, *cannot], len(x)
    order = np.arange(n) if order is None else order
    visited = _colors(n, links, np.argsort(order))
    free = np.array([i for i in order if i not in set(visited) and w[i] > 0], dtype=int)
    rounding = rounding_of(x[w > 0])
    used = np.flatnonzero(w > 0)
    centers = weighted_means(x[used], w[used], np.zeros(len(used), dtype=int))
    labels, path, n_iter, counted, fixed = np.zeros(n, dtype=int), [], 0, 0, False
    labels[visited] = -1
    while not fixed and counted < 300:
        before, k_before = labels.copy(), len(centers)
        if len(free):
            labels[free], centers = _serial_sweep(x[free], w[free], lam, centers, cap)
        links_of = {i: [p for p in links if i in p] for i in visited}
        for i in visited:
            cost, price_of = [], []
            for c in range(len(centers)):
                # violated links, less those of a row that is alone
                near = [p for p in links_of[i] if labels[sum(p) - i] == c]
                bad = sum(p in cannot for p in near) - sum(p in must for p in near)
                distance = w[i] * squared_distances(x[[i]], centers[[c]])[0, 0]
                cost.append(distance if np.isinf(price) else distance + price * bad)
                price_of.append(bad if np.isinf(price) else 0)
            fewest, least, c = min(zip(price_of, cost, range(len(cost)), strict=True))
            opens = fewest > 0 or least > max(lam, w[i] * rounding)
            labels[i] = len(centers) if opens and len(centers) < cap else c
            if labels[i] == len(centers):
                centers = np.vstack([centers, x[i]])
        if all(labels[i] == before[i] for i in visited):
            _exchange(w[:, None] * squared_distances(x, centers), labels, links, visited)
        created = len(centers) > k_before
        fixed = not created and np.array_equal(labels, before)
        labels[used], _ = without_gaps(labels[used])
        centers = weighted_means(x[used], w[used], labels[used])
        bad = n_violated(labels, must, cannot)
        error = sum_of_squares(whole[weights > 0], weights[weights > 0],
                               labels[group][weights > 0], centers)  # fmt: skip
        path.append(error + lam * len(centers) + (price * bad if bad else 0.0))
        n_iter, counted = n_iter + 1, counted + (not created)
    labels[w == 0] = nearest(x[w == 0], centers)[0]
    return Result(labels[group], centers, path[-1], np.array(path), n_iter, fixed)
