"""Coresets: rough seeds, bounds on sensitivities, the systematic draw."""

import numpy as np

from twins.exact import nearest, rounding_of, weighted_means


def seeds_of(X, weights, lam, most, rng):
    """Seeds, the nearest of each row, and its squared distance.

    From the mean; in rounds, as many rows as there are seeds are drawn by weight times squared
    distance, each once, and added. The round that does not lower error + lam k is taken back.
    """
    used = weights > 0
    seeds = weighted_means(X[used], weights[used], np.zeros(used.sum(), int))
    found = []
    while True:
        labels, distances = nearest(X, seeds)
        if len(seeds) == 1:  # the mean is rounded, other seeds are rows
            distances[distances <= rounding_of(X[used])] = 0
        error = np.cumsum(weights * distances)
        found.append((error[-1] + lam * len(seeds), seeds, labels, distances))
        if len(found) > 1 and not found[-1][0] < found[-2][0]:
            return found[-2][1:]
        if len(seeds) >= most or error[-1] == 0:
            return found[-1][1:]
        points = rng.uniform(size=min(len(seeds), most - len(seeds))) * error[-1]
        rows = np.unique([np.flatnonzero(error > point)[0] for point in points])
        seeds = np.vstack([seeds, X[rows]])


def bounds(X, weights, lam, seeds, labels, distances):
    """a d / f + 2 a e_b / f + 4 W / W_b, as the docstring of coreset has it."""
    k, W = len(seeds), weights.sum()
    f = ((weights * distances).sum() + lam * k) / W
    a = 16 * (np.log(k) + 2)
    s = np.zeros(len(X))
    for i in np.flatnonzero(weights):
        mates = labels == labels[i]
        mass = weights[mates].sum()
        s[i] = 4 * W / mass
        if f > 0:
            mean = (weights[mates] * distances[mates]).sum() / mass
            s[i] += a * distances[i] / f + 2 * a * mean / f
    return s


def chances(size, n_rows):
    """min(1, c size) that add up to n_rows, c found by halving an interval."""
    low, high = 0.0, n_rows / size[size > 0].min()
    for _ in range(2000):
        c = (low + high) / 2
        if c in (low, high):
            break
        low, high = (c, high) if np.minimum(1, c * size).sum() < n_rows else (low, c)
    return np.minimum(1, high * size)


def probabilities(X, n_rows, lam, weights, rng):
    """The probability of each row, the nearest seed, and its squared distance."""
    seeds, labels, distances = seeds_of(X, weights, lam, max(1, n_rows // 32), rng)
    s = bounds(X, weights, lam, seeds, labels, distances)
    return chances(weights * s, n_rows), labels, distances


def coreset(X, n_rows, lam, weights=None, seed=0):
    """Rows and their weights."""
    X = np.asarray(X, dtype=float)
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    if n_rows >= np.count_nonzero(weights):
        return np.flatnonzero(weights), weights[weights > 0]
    rng = np.random.RandomState(seed)
    p, labels, distances = probabilities(X, n_rows, lam, weights, rng)
    index = [i for i in range(len(X)) if p[i] >= 1 - 1e-12]
    left, position = n_rows - len(index), 0.0
    rest = [i for i in range(len(X)) if 0 < p[i] < 1 - 1e-12]
    start = rng.uniform()
    for i in sorted(rest, key=lambda i: (labels[i], distances[i], i)):
        # steps start, start + 1, ... through the sum of the probabilities
        before, position = position, position + p[i]
        index += [i] * int(np.ceil(position - start) - np.ceil(before - start))
    assert left == 0 or abs(position - left) < 1e-6
    index = np.sort(index).astype(int)
    return index, weights[index] / p[index]
