"""Penalties for a guessed number of clusters, also in data sets, or features (KJ12 section 6.1)."""

import numpy as np

from twins.bregman import divergences
from twins.exact import squared_distances, weighted_means
from twins.kernel import kernel_distance


def farthest_first(X, n_clusters):
    """Penalty for a guessed number of clusters (KJ12 section 6.1)."""
    X = np.asarray(X, dtype=float)
    distances = squared_distances(X, weighted_means(X, np.ones(len(X)), np.zeros(len(X), int)))
    distances = distances[:, 0]
    found = []
    for _ in range(n_clusters):
        far = np.argmax(distances)
        found.append(float(distances[far]))
        distances = np.minimum(distances, squared_distances(X, X[far : far + 1])[:, 0])
    if found[-1] > 0:
        return found[-1]
    return min((value for value in found if value > 0), default=1.0)


def farthest_first_features(X, n_components):
    """Penalty for a guessed number of features: the least that one of them saves.

    Each is the longest residual that the earlier ones leave, used by all rows whose own
    residual shrinks; those with nothing to explain do not count.
    """
    R = np.array(X, dtype=float)
    energy = np.square(R).sum()
    saved = []
    for _ in range(n_components):
        square = np.square(R).sum(axis=1)
        if not square.sum() > 1e-26 * energy:
            break
        f = R[square.argmax()].copy()
        joined = np.square(R - f).sum(axis=1) < square
        R[joined] -= f
        saved.append(square.sum() - np.square(R).sum())
    return min(saved, default=1.0)


def hdp_lambdas(X, groups, n_local, n_global):
    """Penalties for guessed numbers of clusters, in each data set and in all of them."""
    X = np.asarray(X, dtype=float)
    sets = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    local = [
        farthest_first(X[rows], min(n_local, len(rows)))
        for rows in sets
        if np.ptp(X[rows], axis=0).any()
    ]
    distance = squared_distances(X, X.mean(axis=0)[None])[:, 0]
    found = []
    for _ in range(n_global):
        total = np.array([distance[rows].sum() for rows in sets])
        j = int(total.argmax())
        found.append(float(total[j]))
        far = sets[j][distance[sets[j]].argmax()]
        distance = np.minimum(distance, squared_distances(X, X[far : far + 1])[:, 0])
    return np.mean(local) if local else 1.0, found[-1]


def bregman_farthest_first(X, n_clusters, name):
    """KJ12 section 6.1 with D for the squared distance."""
    seeds, found = [X.mean(axis=0)], []
    for _ in range(n_clusters):
        least = divergences(X, np.array(seeds), name).min(axis=1)
        seeds.append(X[least.argmax()])
        found.append(float(least.max()))
    if found[-1] > 0:
        return found[-1]
    return min((value for value in found if value > 0), default=1.0)


def kernel_farthest_first(K, rows, n_clusters):
    """`farthest_first` of the points `rows`, in feature space."""
    a = np.zeros(len(K))
    a[rows] = 1 / len(rows)
    distances = np.array([kernel_distance(K, i, a) for i in rows])
    for _ in range(n_clusters):
        far = np.argmax(distances)
        found = distances[far]
        to_far = [kernel_distance(K, i, np.eye(len(K))[rows[far]]) for i in rows]
        distances = np.minimum(distances, to_far)
    return found
