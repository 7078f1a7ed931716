"""Shared clusters: the hard HDP (KJ12 Algorithm 2)."""

from dataclasses import dataclass

import numpy as np

from twins.exact import layout, squared_distances, sum_of_squares, weighted_means, without_gaps


@dataclass
class Hierarchy:
    """What a fit of the hard HDP returns."""

    labels: np.ndarray
    centers: np.ndarray
    n_local: np.ndarray
    objective: float
    path: np.ndarray
    n_iter: int


def hdp(X, groups, lam_local, lam_global, *, max_iter=300):
    """Algorithm 2 of KJ12. Local clusters are pairs (data set, global cluster)."""
    X = np.asarray(X, dtype=float)
    sets = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    labels = np.zeros(len(X), dtype=int)
    b, one = layout(X, np.ones(len(X))), np.ones(len(X))
    centers = weighted_means(X, one, labels, b)
    path, n_iter = [], 0
    while n_iter < max_iter:
        before = labels.copy()
        opened = len(centers)
        for rows in sets:  # step 4
            local = set(labels[rows])
            for i in rows:
                cost = squared_distances(X[i : i + 1], centers)[0]
                cost += [0 if p in local else lam_local for p in range(len(centers))]
                if cost.min() > lam_local + lam_global:
                    labels[i] = len(centers)
                    centers = np.vstack([centers, X[i]])
                else:
                    labels[i] = cost.argmin()
                local.add(labels[i])
        for rows in sets:  # step 5
            for c in np.unique(labels[rows]):
                mine = rows[labels[rows] == c]
                mean = weighted_means(X[mine], one[mine], np.zeros(len(mine), dtype=int), b)[0]
                cost = len(mine) * squared_distances(mean[None], centers)[0]
                if cost.min() > lam_global:
                    labels[mine] = len(centers)
                    centers = np.vstack([centers, mean])
                else:
                    labels[mine] = cost.argmin()
        created = len(centers) > opened
        fixed = np.array_equal(labels, before) and not created
        labels, _ = without_gaps(labels)  # step 6
        centers = weighted_means(X, one, labels, b)
        n_local = np.array([len(set(labels[rows])) for rows in sets])
        sse = sum_of_squares(X, one, labels, centers)
        path.append(sse + lam_local * n_local.sum() + lam_global * len(centers))
        n_iter += 1
        if fixed:
            break
    return Hierarchy(labels, centers, n_local, path[-1], np.array(path), n_iter)
