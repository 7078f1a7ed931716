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
        weight_sum = weights[mates].sum()
        s[i] = 4 * W / weight_sum
        if f > 0:
            mean = (weights[mates] * distances[mates]).sum() / weight_sum
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


def sample_of(X, weights, size, rng):
    """Rows drawn by weight, and how often each was."""
    total = np.cumsum(weights)
    points = rng.uniform(size=size) * total[-1]
    count = np.bincount([np.flatnonzero(total > point)[0] for point in points], minlength=len(X))
    rows = np.flatnonzero(count)
    return X[rows], count[rows].astype(float), total[-1] / size


def stratum(distance, mean):
    """Of 32: four a doubling of the squared distance, twelve from the mean on."""
    if distance == 0:
        return 0
    q, place = distance / mean, 20
    while q >= 2 or q < 1:
        q, place = (q / 2, place + 4) if q >= 2 else (q * 2, place - 4)
    return min(31, max(0, place + int(4 * (q - 1))))


def probabilities(X, n_rows, lam, weights, rng, size=None):
    """The probability of each row, the nearest seed, and the stratum of its squared distance."""
    some, of_some, share = (X, weights, 1.0) if size is None else sample_of(X, weights, size, rng)
    seeds = seeds_of(some, of_some, lam / share, max(1, n_rows // 32), rng)[0]
    labels, distances = nearest(X, seeds)
    if len(seeds) == 1:
        distances[distances <= rounding_of(X[weights > 0])] = 0
    s = bounds(X, weights, lam, seeds, labels, distances)
    weight_sums = np.bincount(labels, weights, minlength=len(seeds))
    error = np.bincount(labels, weights * distances, minlength=len(seeds))
    place = [
        stratum(distance, error[label] / weight_sums[label]) if weight_sums[label] > 0 else 0
        for label, distance in zip(labels, distances, strict=True)
    ]
    return chances(weights * s, n_rows), labels, place


def coreset(X, n_rows, lam, weights=None, seed=0, size=None):
    """Rows and their weights; seeds are found on a sample of this size, None: on all rows."""
    X = np.asarray(X, dtype=float)
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    if n_rows >= np.count_nonzero(weights):
        return np.flatnonzero(weights), weights[weights > 0]
    rng = np.random.RandomState(seed)
    p, labels, place = probabilities(X, n_rows, lam, weights, rng, size)
    index = [i for i in range(len(X)) if p[i] >= 1 - 1e-12]
    left, position = n_rows - len(index), 0.0
    rest = [i for i in range(len(X)) if 0 < p[i] < 1 - 1e-12]
    start = rng.uniform()
    for i in sorted(rest, key=lambda i: (labels[i], place[i], i)):
        # steps start, start + 1, ... through the sum of the probabilities
        before, position = position, position + p[i]
        index += [i] * int(np.ceil(position - start) - np.ceil(before - start))
    assert left == 0 or abs(position - left) < 1e-6
    index = np.sort(index).astype(int)
    return index, weights[index] / p[index]
