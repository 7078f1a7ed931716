"""Clusters with covariances of their own (MB13 appendix E)."""

from dataclasses import dataclass

import numpy as np

from twins.exact import means_within, without_gaps


@dataclass
class Covariances:
    """What a fit with covariances returns; `path` holds the objective after every half-sweep."""

    labels: np.ndarray
    centers: np.ndarray
    S: np.ndarray
    path: list
    n_iter: int


def mahalanobis_objective(X, w, labels, centers, S, lam, scale, reg):
    """sum_k tr((scatter_k + reg I) S_k^-1) + scale log |S_k| + lam K."""
    total = lam * len(centers)
    for k in range(len(centers)):
        Y = X[labels == k] - centers[k]
        scatter = (w[labels == k, None] * Y).T @ Y
        total += np.trace((scatter + reg * np.eye(X.shape[1])) @ np.linalg.inv(S[k]))
        total += scale * np.linalg.slogdet(S[k])[1]
    return float(total)


def mahalanobis(X, seeds, *, lam=None, scale=1.0, reg=1.0, known=None, weights=None, order=None):
    """MB13 appendix E with the prior's scale matrix reg I kept: K fixed, or free from one cluster.

    Points join the center of the least Mahalanobis distance. K fixed: a cluster without points
    begins anew at the row with the largest one of those not alone. K free: a row farther than what
    a cluster costs opens one.
    """
    X = np.asarray(X, dtype=float)
    n, d = X.shape
    w = np.ones(n) if weights is None else weights
    order = np.arange(n) if order is None else order
    eye = np.eye(d)

    def table(centers, S):
        out = np.empty((n, len(centers)))
        for k in range(len(centers)):
            Y = X - centers[k]
            out[:, k] = (Y * np.linalg.solve(S[k], Y.T).T).sum(axis=1)
        return out

    def given(k):
        return None if known is None else np.broadcast_to(known, (k, d, d))

    def refit(labels, k):
        centers = means_within(X, w, labels)
        if known is not None:
            return centers, given(k)
        S = []
        for c in range(k):
            Y = X[labels == c] - centers[c]
            S.append(((w[labels == c, None] * Y).T @ Y + reg * eye) / scale)
        return centers, np.array(S)

    def restart(labels, distances, k):
        own = w * distances[np.arange(n), labels]
        for c in range(k):
            if not (labels == c).any():
                count = np.bincount(labels, minlength=k)
                worst = np.where(count[labels] > 1, own, -1).argmax()
                labels[worst], own[worst] = c, 0.0
        return labels

    path, n_iter = [], 0
    if lam is None:
        lam, free, k = 0.0, False, len(seeds)
        S = np.array([eye] * k) if known is None else given(k)
        distances = table(seeds, S)
        labels = restart(distances.argmin(axis=1), distances, k)
        n_iter = 1
    else:
        free, k, labels = True, 1, np.zeros(n, dtype=int)
        start = reg / scale * eye if known is None else known
        cost = lam + reg * np.trace(np.linalg.inv(start)) + scale * np.linalg.slogdet(start)[1]
    centers, S = refit(labels, k)
    path.append(mahalanobis_objective(X, w, labels, centers, S, lam, scale, reg))
    while True:
        before = labels
        distances = table(centers, S)
        labels = np.empty(n, dtype=int)
        opened = False
        for i in order:
            labels[i] = distances[i].argmin()
            if free and w[i] * distances[i].min() > cost:
                labels[i] = distances.shape[1]
                S = np.concatenate([S, start[None]])
                centers = np.vstack([centers, X[i]])
                distances = np.hstack([distances, table(X[i : i + 1], start[None])])
                opened = True
        n_iter += 1
        if free:
            labels, kept = without_gaps(labels)
            centers, S, k = centers[kept], S[kept], len(kept)
        else:
            emptied = np.setdiff1d(np.arange(k), labels)
            labels = restart(labels, distances, k)
            centers = np.array(centers)
            for c in emptied:
                centers[c] = X[labels == c][0]
        if not opened and np.array_equal(labels, before):
            return Covariances(labels, centers, S, path, n_iter)
        path.append(mahalanobis_objective(X, w, labels, centers, S, lam, scale, reg))
        centers, S = refit(labels, k)
        path.append(mahalanobis_objective(X, w, labels, centers, S, lam, scale, reg))
