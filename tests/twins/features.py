"""Feature allocations (MB13 sections 3 to 5): minimize ||X - Z A||^2 + lam K, Z binary."""

from dataclasses import dataclass
from itertools import product

import numpy as np


@dataclass
class Features:
    """What a fit of features returns; `path` holds the objective after every sweep.

    `tied`: on the way Z'Z was singular with K fixed, so that different rows of Z had equal sums.
    """

    Z: np.ndarray
    A: np.ndarray
    objective: float
    error: float
    path: np.ndarray
    n_iter: int
    converged: bool
    tied: bool


def feature_error(X, Z, A, w):
    """Weighted ||X - Z A||^2."""
    return float(w @ np.square(X - Z @ A).sum(axis=1))


def least_squares(X, Z, w):
    """The A of minimum norm among those that minimize the weighted ||X - Z A||^2."""
    if not Z.shape[1]:
        return np.zeros((0, X.shape[1]))
    root = np.sqrt(w)[:, None]
    return np.linalg.lstsq(root * Z, root * X, rcond=1e-9)[0]


def independent_columns(Z, w):
    """The columns that do not depend on earlier ones."""
    kept = []
    for k in range(Z.shape[1]):
        if np.linalg.matrix_rank(np.sqrt(w)[:, None] * Z[:, [*kept, k]], tol=1e-6) > len(kept):
            kept.append(k)
    return kept


def uniforms(state):
    """The numbers in [0, 1) of the generator splitmix64."""
    mask = 2**64 - 1
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        yield ((z ^ (z >> 31)) >> 11) * 2.0**-53


def seed_features(X, random, *, lam=None, cap, mean, weights=None):
    """The greedy start (MB13 section 5); lam=None is a fixed number of features, `cap`.

    The first feature is the mean, used by all, or there is none yet. A row drawn with
    probability proportional to its squared residual gives its residual as a feature, which
    every row takes whose residual strictly shrinks.
    """
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    A = (w @ X / w.sum())[None] if mean else np.zeros((0, X.shape[1]))
    Z = np.ones((len(X), len(A)), dtype=int)
    energy = w @ np.square(X).sum(axis=1)
    while len(A) < cap:
        R = X - Z @ A
        square = np.square(R).sum(axis=1)
        if not w @ square > 1e-26 * energy:
            break
        f = R[np.searchsorted(np.cumsum(w * square), next(random) * (w @ square), side="right")]
        joined = np.square(R - f).sum(axis=1) < square
        gain = w @ np.where(joined, square - np.square(R - f).sum(axis=1), 0)
        if lam is not None and not gain > lam:
            break
        A, Z = np.vstack([A, f]), np.column_stack([Z, joined.astype(int)])
    if lam is None:
        unused = cap - len(A)
        A = np.vstack([A, np.zeros((unused, X.shape[1]))])
        Z = np.column_stack([Z, np.zeros((len(X), unused), dtype=int)])
    return Z, A


def _bp_sweep(X, w, lam, Z, A, cap):
    """One pass of BP-means over the rows; returns Z and A with the features it opened."""
    created = 0
    for n in range(len(X)):
        k = 0
        while k < len(A):
            cost = np.empty(2)
            for value in (0, 1):
                Z_nk = Z[n].copy()
                Z_nk[k] = value
                used = value or Z[:, k].sum() > Z[n, k]
                cost[value] = w[n] * np.square(X[n] - Z_nk @ A).sum() + lam * used
            if cost[1 - Z[n, k]] < cost[Z[n, k]]:
                Z[n, k] = 1 - Z[n, k]
            if Z[:, k].any():
                k += 1
            else:
                Z, A = np.delete(Z, k, axis=1), np.delete(A, k, axis=0)
        residual = X[n] - Z[n] @ A
        if w[n] * (residual @ residual) > lam and len(A) < cap:
            A = np.vstack([A, residual])
            Z = np.column_stack([Z, np.arange(len(X)) == n])
            created += 1
    return Z, A, created


def _k_features_sweep(X, w, Z, A, exact):
    """One pass of K-features; a feature that nobody uses restarts as the largest residual."""
    rows = np.array(list(product((0, 1), repeat=len(A)))) if exact else None
    for n in range(len(X)):
        if exact:
            costs = np.square(X[n] - rows @ A).sum(axis=1)
            if costs.min() < costs[(rows == Z[n]).all(axis=1)]:
                Z[n] = rows[costs.argmin()]
            continue
        for k in range(len(A)):
            cost = np.empty(2)
            for value in (0, 1):
                Z_nk = Z[n].copy()
                Z_nk[k] = value
                cost[value] = np.square(X[n] - Z_nk @ A).sum()
            if cost[1 - Z[n, k]] < cost[Z[n, k]]:
                Z[n, k] = 1 - Z[n, k]
    for k in np.flatnonzero(~Z.any(axis=0)):
        square = w * np.square(X - Z @ A).sum(axis=1)
        if not square.max() > 1e-26 * (w @ np.square(X).sum(axis=1)):
            break
        n = square.argmax()
        A[k] = X[n] - Z[n] @ A
        Z[n, k] = 1
    return Z, A


def _collapsed_errors(X, w, Z, n, rows):
    """tr X'(W - WZ (Z'WZ)^-1 Z'W) X for each of the ``rows`` as row n of Z; no other is changed.

    It is ||X - Z A||^2 at the least squares solution A, which solves Z'WZ A = Z'WX.
    """
    others = np.arange(len(X)) != n
    Zo, Xo, wo = Z[others], X[others], w[others]
    left = Zo.T @ (wo[:, None] * Zo) + w[n] * rows[:, :, None] * rows[:, None, :]
    right = Zo.T @ (wo[:, None] * Xo) + w[n] * rows[:, :, None] * X[n]
    A = np.linalg.solve(left, right)
    own = w[n] * np.square(X[n] - np.einsum("rk,rkd->rd", rows, A)).sum(axis=1)
    return own + np.einsum("n,rnd->r", wo, np.square(Xo - Zo @ A))


def _best_row(costs, rows, present, margin):
    """The row that costs least; of those that tie the present one, else the one that keeps most.

    Rows are looked at in the order of their differences from the present one: those that keep the
    first feature as it is come first, then the second, and so on.
    """
    weights = 2 ** np.arange(rows.shape[1])[::-1]
    by_flips = np.argsort((rows != present) @ weights)
    best = by_flips[0]
    for candidate in by_flips:
        if costs[candidate] < costs[best] - margin:
            best = candidate
    return best


def _collapsed_bp_sweep(X, w, lam, Z, cap, tries_rows):
    """One pass of collapsed BP-means, everything evaluated directly.

    "Choose z_{n,1:K} to minimize the objective" (MB13 section 4.1): the best of all rows. Or, for
    more than 12 features or unless it ``tries_rows``, flips of single bits until none helps.
    """
    created, rounding = 0, 1e-13 * (w @ np.square(X).sum(axis=1))
    for n in range(len(X)):
        others = np.arange(len(X)) != n
        kept = independent_columns(Z[others], w[others])
        Zn, present = Z[:, kept], Z[n, kept]
        A = least_squares(X[others], Zn[others], w[others])
        rest = feature_error(X[others], Zn[others], A, w[others])

        def costs(rows, Zn=Zn, n=n, rest=rest):
            return _collapsed_errors(X, w, Zn, n, np.asarray(rows)) - rest

        best = costs([present])[0]
        old = best if len(kept) == Z.shape[1] else lam
        margin = 1e-9 * old + rounding
        z = present
        tries = tries_rows and len(kept) <= 12
        if tries:
            rows = np.array(list(product((0, 1), repeat=len(kept))))
            every = costs(rows)
            number = _best_row(every, rows, present, margin)
            z, best = rows[number], every[number]
        flipped = not tries
        while flipped:
            flipped = False
            for k in range(len(kept)):
                z_k = z.copy()
                z_k[k] = 1 - z[k]
                if (cost := costs([z_k])[0]) < best - margin:
                    z, best, flipped = z_k, cost, True
        alone = lam < best - margin and len(kept) < cap
        if (lam if alone else best) < old - margin:
            Z = Zn.copy()
            Z[n] = z
            if alone:
                Z = np.column_stack([Z, ~others])
                created += 1
    return Z, created


def _refit(X, w, lam, Z):
    """Least squares for Z, without the columns that do nothing unless K is fixed (lam=None)."""
    if lam is None:
        return Z, least_squares(X, Z, w)
    Z = Z[:, independent_columns(Z, w)]
    A = least_squares(X, Z, w)
    useful = (w @ Z) * np.square(A).sum(axis=1) > 1e-26 * (w @ np.square(X).sum(axis=1))
    return Z[:, useful], A[useful]


def _iterate(X, w, lam, Z, A, sweep, max_iter, tol):
    """Repeat `sweep` and least squares until Z stays. A=None: least squares for Z."""
    refitted = A is None
    if refitted:
        Z, A = _refit(X, w, lam, Z)
    path, n_iter, counted = [], 0, 0
    fixed = enough = tied = False
    while not (fixed or enough) and counted < max_iter:
        before = Z
        tied = tied or (Z.shape[1] > 0 and np.linalg.matrix_rank(Z) < Z.shape[1])
        Z, A, created = sweep(Z.copy(), A.copy())
        Z, A = _refit(X, w, lam, Z)
        fixed = refitted and Z.shape == before.shape and np.array_equal(Z, before)
        refitted = True
        path.append(feature_error(X, Z, A, w) + (0 if lam is None else lam * len(A)))
        enough = tol > 0 and n_iter > 0 and path[-2] - path[-1] <= tol * path[0]
        n_iter += 1
        counted += not created
    error = feature_error(X, Z, A, w)
    return Features(Z, A, path[-1], error, np.array(path), n_iter, fixed or enough, tied)


def bp_means(
    X, lam, Z, A=None, *, collapsed="", max_features=None, weights=None, max_iter=300, tol=0.0
):
    """BP-means (MB13 eq. 6) from Z and A, or its collapsed form (eq. 10).

    ``collapsed``: "auto", a row is the best of all 2^K up to 12 features, or "coordinate", bit by
    bit.
    """
    X = np.asarray(X, dtype=float)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    cap = np.inf if max_features is None else max_features

    def sweep(Z, A):
        if collapsed:
            Z, created = _collapsed_bp_sweep(X, w, lam, Z, cap, collapsed == "auto")
            return Z, A, created
        return _bp_sweep(X, w, lam, Z, A, cap)

    A = None if collapsed else A
    return _iterate(X, w, lam, np.array(Z, dtype=int), A, sweep, max_iter, tol)


def k_features(X, Z, A=None, *, exact=False, weights=None, max_iter=300, tol=0.0):
    """K-features (MB13 eq. 14) from Z and A."""
    X = np.asarray(X, dtype=float)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)

    def sweep(Z, A):
        return *_k_features_sweep(X, w, Z, A, exact), 0

    return _iterate(X, w, None, np.array(Z, dtype=int), A, sweep, max_iter, tol)


def encode(X, A, *, exact=False):
    """Rows of Z for given features: coordinate passes from zero, or the best of all rows."""
    X = np.asarray(X, dtype=float)
    Z = np.zeros((len(X), len(A)), dtype=int)
    while True:
        before = Z.copy()
        w = np.zeros(len(X))  # no feature restarts: no residual has any weight
        Z, _ = _k_features_sweep(X, w, Z, A.copy(), exact)
        if exact or np.array_equal(Z, before):
            return Z


def description_length(X, Z, error, weights=None):
    """u d log(error / energy) + 2 u sum_k h(p_k) + 2 K (d + 1) log u; u counts distinct rows."""
    w = np.ones(len(X)) if weights is None else weights
    squares = np.square(X).sum(axis=0)
    u, d = len(np.unique(X, axis=0)), np.count_nonzero(squares > 1e-20 * squares.sum())
    p = w @ Z / w.sum()
    if Z.shape[1] > max(1, u // 3):
        return np.inf
    p = p[(p > 0) & (p < 1)]
    entropy = -(p * np.log(p) + (1 - p) * np.log(1 - p)).sum()
    d = min(d, u)
    energy = w @ np.square(X).sum(axis=1)
    return u * d * np.log(error / energy) + 2 * u * entropy + 2 * Z.shape[1] * (d + 1) * np.log(u)


def noise_variance(X, Z, A, weights=None):
    """s^2: the squared error over its degrees of freedom, (n - K) d, no constant columns."""
    w = np.ones(len(X)) if weights is None else weights
    X, Z, w = X[w > 0], Z[w > 0], w[w > 0]
    n = max(w.sum(), len(X))
    d = int((X.min(axis=0) < X.max(axis=0)).sum())
    error = w @ np.square(X - Z @ A).sum(axis=1) * n / w.sum()
    return error / ((n - len(A)) * d)


def log_odds(Z, weights=None):
    """log(p_f / (1 - p_f)) of each feature, with half a row more that has it, and half without."""
    w = np.ones(len(Z)) if weights is None else weights
    n = max(w.sum(), (w > 0).sum())
    p = w @ Z / w.sum()
    return np.log((n * p + 0.5) / (n * (1 - p) + 0.5))


def probabilities(X, Z, A, variance, odds):
    """The probability of each feature of each row, given the others as Z has them."""
    out = np.empty(Z.shape)
    for i, x in enumerate(X):
        for f in range(len(A)):
            with_f, without = Z[i].copy(), Z[i].copy()
            with_f[f], without[f] = 1, 0
            cost = np.square(x - without @ A).sum() - np.square(x - with_f @ A).sum()
            out[i, f] = 1.0 / (1.0 + np.exp(-odds[f] - cost / (2.0 * variance)))
    return out
