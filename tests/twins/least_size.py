"""Clusterings in which each cluster has a least size, by plain numpy; see least_size.py."""

import numpy as np

from twins.exact import squared_distances


def nearest_of(X, centers):
    """The number of the nearest center of each row, the first at a tie."""
    return squared_distances(X, centers).argmin(axis=1)


def means(X, w, labels, k):
    """Weighted means of the clusters."""
    return np.array([np.average(X[labels == j], axis=0, weights=w[labels == j]) for j in range(k)])


def set_aside(X, w, labels, least):
    """Labels and centers of the large clusters; rows of the others join, and move no center."""
    sizes = np.bincount(labels, w)
    large = [j for j in range(len(sizes)) if sizes[j] >= least]
    centers = means(X, w, labels, len(sizes))
    out = nearest_of(X, centers[large])
    for new, j in enumerate(large):
        out[labels == j] = new
    aside = ~np.isin(labels, large)
    return out, centers[large], centers[sizes < least], aside


def fit(X, w, centers, beside, least):
    """Sweeps from these centers, without the rows nearest to small clusters, until all are large.

    Returns labels of all rows, centers, and the error of all rows.
    """
    own = nearest_of(X, np.vstack([centers, beside])) < len(centers)
    Y, v = X[own], w[own]
    while True:
        labels = nearest_of(Y, centers)
        while True:
            used = np.unique(labels)
            centers = np.array([np.average(Y[labels == j], axis=0, weights=v[labels == j])
                                for j in used])  # fmt: skip
            before, labels = labels, nearest_of(Y, centers)
            if len(used) == len(centers) and np.array_equal(before, labels):
                break
        sizes = np.bincount(labels, v, len(centers))
        if len(centers) == 1 or sizes.min() >= least:
            break
        centers = np.delete(centers, sizes.argmin(), axis=0)
    labels = nearest_of(X, centers)
    return labels, centers, float(w @ np.square(X - centers[labels]).sum(axis=1))
