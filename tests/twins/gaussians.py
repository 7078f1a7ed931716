"""Costs of points in clusters with covariances, and moments, in plain loops."""

import numpy as np


def costs(X, centers, roots, charges):
    """charge + ||W (x - center)||^2, added column after column, (n, k)."""
    X = np.asarray(X, dtype=float)
    n, d = X.shape
    out = np.zeros((n, len(centers)))
    for k, (center, root) in enumerate(zip(centers, roots, strict=True)):
        for j in range(d):
            z = np.zeros(n)
            for i in range(j + 1):
                z += root[j, i] * (X[:, i] - center[i])
            out[:, k] += z * z
    return out + charges


def moments(X, w, order, label, k):
    """Mean and sum of w (x - mean)(x - mean)' of cluster k, members added in this order."""
    rows = [i for i in order if label[i] == k]
    center = np.average(X[rows], axis=0, weights=w[rows])
    center = np.clip(center, X[rows].min(axis=0), X[rows].max(axis=0))
    scatter = np.zeros((X.shape[1], X.shape[1]))
    for i in rows:
        scatter += np.outer(w[i] * (X[i] - center), X[i] - center)
    return center, scatter
