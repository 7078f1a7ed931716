"""Penalties for a guessed number of clusters, also in data sets, or features (KJ12 section 6.1)."""

import numpy as np

from twins.bregman import divergences
from twins.exact import squared_distances, weighted_means
from twins.kernel import kernel_distance


def penalty_of(distances, to_row, n_clusters, count_alone, size=None):
    """The farthest-first rule; ``size(distances)`` is the row to add and what its distance counts.

    Of the seeds with company, the first ``n_clusters`` give D; those without
    count up to 9 D. Where there is no D, or more than 100 seeds are alone before it, all count.
    """
    size = size or (lambda distances: (int(np.argmax(distances)), float(distances.max())))
    least = 1 if count_alone else np.ceil(len(distances) / (10 * n_clusters))
    found, company = [], []
    for _ in range(len(distances)):
        row, value = size(distances)
        nearer = np.minimum(distances, to_row(row))
        found.append(value)
        company.append(np.sum(nearer < distances) >= least)
        distances = nearer
        if np.sum(company) == n_clusters or len(found) > n_clusters + 100:
            break
    found, company = np.array(found), np.array(company) & (np.array(found) > 0)
    if company.sum() >= n_clusters:
        last = np.flatnonzero(company)[n_clusters - 1]
        if np.sum(~company[:last]) <= 100:
            found = found[company | (found <= 9 * found[last])]
    found = found[:n_clusters]
    return float(found[found > 0].min(initial=np.inf)) if (found > 0).any() else 1.0


def farthest_first(X, n_clusters, count_alone=False):
    """Penalty for a guessed number of clusters (KJ12 section 6.1), without far and lone rows."""
    X = np.asarray(X, dtype=float)
    mean = weighted_means(X, np.ones(len(X)), np.zeros(len(X), int))
    return penalty_of(
        squared_distances(X, mean)[:, 0],
        lambda i: squared_distances(X, X[i : i + 1])[:, 0],
        n_clusters,
        count_alone,
    )


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


def hdp_lambdas(X, groups, n_local, n_global, count_alone=False):
    """Penalties for guessed numbers of clusters, in each data set and in all of them."""
    X = np.asarray(X, dtype=float)
    sets = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    local = [
        farthest_first(X[rows], min(n_local, len(rows)), count_alone)
        for rows in sets
        if np.ptp(X[rows], axis=0).any()
    ]

    def size(distances):
        total = np.array([distances[rows].sum() for rows in sets])
        rows = sets[int(total.argmax())]
        return rows[distances[rows].argmax()], float(total.max())

    found = penalty_of(
        squared_distances(X, X.mean(axis=0)[None])[:, 0],
        lambda i: squared_distances(X, X[i : i + 1])[:, 0],
        n_global,
        count_alone,
        size,
    )
    return np.mean(local) if local else 1.0, found


def bregman_farthest_first(X, n_clusters, name):
    """The same with D for the squared distance."""
    return penalty_of(
        divergences(X, X.mean(axis=0)[None], name)[:, 0],
        lambda i: divergences(X, X[i : i + 1], name)[:, 0],
        n_clusters,
        False,
    )


def kernel_farthest_first(K, rows, n_clusters):
    """`farthest_first` of the points `rows`, in feature space."""
    a = np.zeros(len(K))
    a[rows] = 1 / len(rows)
    return penalty_of(
        np.array([kernel_distance(K, i, a) for i in rows]),
        lambda j: [kernel_distance(K, i, np.eye(len(K))[rows[j]]) for i in rows],
        n_clusters,
        False,
    )
