"""The spectral relaxation (KJ12 section 5.1): orthonormal Y instead of indicators."""

from dataclasses import dataclass

import numpy as np


@dataclass
class Spectral:
    """What the relaxation returns; `plain` and `centered` bound every clustering's objective."""

    labels: np.ndarray
    objective: float
    plain: float
    centered: float
    eigenvalues: np.ndarray
    Y: np.ndarray
    n_iter: int


def kernel_objective(K, labels, lam, weights=None):
    """DP-means objective in feature space: squared distances to the means, and lam for each."""
    w = np.ones(len(K)) if weights is None else np.asarray(weights, dtype=float)
    total = 0.0
    for c in np.unique(labels):
        rows = np.flatnonzero(labels == c)
        share = w[rows] / w[rows].sum()
        inner = K[np.ix_(rows, rows)]
        distances = K[rows, rows] - 2 * inner @ share + share @ inner @ share
        total += w[rows] @ distances + lam
    return float(total)


def rows_to_labels(Y, first, weights):
    """Yu & Shi's rounding of Y from one first row: labels, number of iterations, fits.

    What is within 1e-9 of the best is tied, and the lowest index taken.
    """
    m = Y.shape[1]
    Y = np.array(Y)
    Y[np.linalg.norm(Y, axis=1) <= 1e-10 * np.linalg.norm(Y, axis=1).max()] = 1
    Y = Y / np.linalg.norm(Y, axis=1)[:, None]
    chosen = [first]
    while len(chosen) < m:
        overlap = np.abs(Y @ Y[chosen].T).sum(axis=1)
        chosen.append(int((overlap <= overlap.min() + 1e-9).argmax()))
    R = Y[chosen].T
    fits, found = [], []  # tr X' Y R: ||X - Y R||^2 is 2 n minus twice that
    while True:
        turned = Y @ R
        X = np.eye(m)[(turned >= turned.max(axis=1)[:, None] - 1e-9).argmax(axis=1)]
        U, S, Vt = np.linalg.svd(X.T @ (weights[:, None] * Y))
        known = S / S[0] > 1e-10  # an empty column of X leaves its column of R open: zero
        R = (U[:, known] @ Vt[known]).T
        fits.append(S.sum())
        found.append(X.argmax(axis=1))
        if len(fits) > 1 and not fits[-1] > fits[-2] + 1e-12 * weights.sum():
            break
    return found[-2], len(found), np.array(fits)


def spectral(K, lam, *, weights=None, n_init=10, random_state=0):
    """All eigenvectors above lam, rounded from `n_init` rows; the best labels, and the bounds."""
    w = np.ones(len(K)) if weights is None else np.asarray(weights, dtype=float)
    root = np.sqrt(w)
    G = root[:, None] * K * root
    values, vectors = np.linalg.eigh(G)
    Y, above = vectors[:, values > lam][:, ::-1], values[values > lam][::-1]
    center = np.eye(len(K)) - np.outer(np.ones(len(K)), w / w.sum())
    Kc = center @ K @ center.T
    Gc = root[:, None] * Kc * root
    centered = np.linalg.eigvalsh(Gc)
    best = (np.zeros(len(K), dtype=int), lam + np.trace(Gc), 0)
    if Y.shape[1]:
        rng = np.random.RandomState(random_state)
        cumulative_weights = np.cumsum(w)
        best = None
        for start in range(n_init):
            first = (
                np.flatnonzero(cumulative_weights > rng.random_sample() * cumulative_weights[-1])[0]
                if start
                else 0
            )
            labels, n_iter, _ = rows_to_labels(Y, first, w)
            value = kernel_objective(K, labels, lam, w)
            if best is None or value < best[1] - 1e-12 * np.trace(np.abs(G)):
                best = labels, value, n_iter
    return Spectral(
        best[0],
        best[1],
        np.trace(G) - (above - lam).sum(),
        np.trace(Gc) + lam - np.maximum(centered - lam, 0).sum(),
        above,
        Y,
        best[2],
    )
