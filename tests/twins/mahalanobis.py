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


def classification_objective(X, w, labels, reg, scale, known):
    """Twice minus the log-likelihood of rows and labels, less n d log(2 pi), and the prior's part.

    At the best centers, covariances and shares for these labels; without the price of clusters.
    """
    d, total = X.shape[1], 0.0
    for k in range(labels.max() + 1):
        weight = w[labels == k]
        W = weight.sum()
        Y = X[labels == k] - weight @ X[labels == k] / W
        T = (weight[:, None] * Y).T @ Y
        total -= 2 * W * np.log(W / w.sum())
        if known is not None:
            S = known if known.ndim == 2 else known[k]
            total += np.trace(T @ np.linalg.inv(S)) + W * np.linalg.slogdet(S)[1]
            continue
        S = (T + reg * np.eye(d)) / (W + scale)
        total += np.trace((T + reg * np.eye(d)) @ np.linalg.inv(S))
        total += (W + scale) * np.linalg.slogdet(S)[1] - scale * d * (1 + np.log(reg / scale))
    return float(total)


def classification(X, seeds, *, scale=1.0, reg=1.0, known=None, weights=None):
    """The same where each point pays for the volume of its cluster; K fixed.

    Points join the cluster of the least squared Mahalanobis distance + log |S_k| - 2 log p_k. An
    emptied cluster keeps the row that pays least for staying.
    """
    n, d = X.shape
    w = np.ones(n) if weights is None else weights
    K = len(seeds)

    def table(centers, S, p):
        out = np.empty((n, K))
        for k in range(K):
            Y = X - centers[k]
            out[:, k] = (Y * np.linalg.solve(S[k], Y.T).T).sum(axis=1)
            out[:, k] += np.linalg.slogdet(S[k])[1] - 2 * np.log(p[k])
        return out

    def refit(labels):
        centers = means_within(X, w, labels)
        W = np.array([w[labels == k].sum() for k in range(K)])
        if known is not None:
            return centers, np.broadcast_to(known, (K, d, d)), W / w.sum()
        S = []
        for k in range(K):
            Y = X[labels == k] - centers[k]
            S.append(((w[labels == k, None] * Y).T @ Y + reg * np.eye(d)) / (W[k] + scale))
        return centers, np.array(S), W / w.sum()

    def objective(costs, labels, S):
        total = w @ costs[np.arange(n), labels]
        if known is None:
            for k in range(K):
                total += reg * np.trace(np.linalg.inv(S[k])) + scale * np.linalg.slogdet(S[k])[1]
                total -= scale * d * (1 + np.log(reg / scale))
        return float(total)

    first = np.array([np.eye(d)] * K) if known is None else np.broadcast_to(known, (K, d, d))
    costs = table(seeds, first, np.ones(K) / K)
    labels = costs.argmin(axis=1)
    own = w * costs[np.arange(n), labels]
    for k in range(K):
        count = np.bincount(labels, minlength=K)
        if count[k] == 0:
            worst = np.where(count[labels] > 1, own, -np.inf).argmax()
            labels[worst] = k
            own[worst] = 0.0
    path, n_iter = [], 1
    while True:
        centers, S, p = refit(labels)
        costs = table(centers, S, p)
        path.append(objective(costs, labels, S))
        before, labels = labels, costs.argmin(axis=1)
        least = costs.min(axis=1)
        n_iter += 1
        while len(np.unique(labels)) < K:
            for k in np.setdiff1d(np.arange(K), labels):
                rows = np.flatnonzero(before == k)
                labels[rows[(w[rows] * (costs[rows, k] - least[rows])).argmin()]] = k
        if np.array_equal(labels, before):
            return Covariances(labels, centers, S, path, n_iter)
        path.append(objective(costs, labels, S))
