"""How good a clustering is for its number of clusters: likelihood, entropy and a price for parameters."""

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln

SHAPES = (200.0, 50.0, 20.0, 10.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0)  # degrees of freedom, beside infinity


class Criterion:
    """V of a clustering: its complete-data likelihood, one shape for all clusters, and a price for parameters."""

    def __init__(self, X, weight, space):
        self.X, self.weight, self.space = X, weight, space
        self.n = float(X.shape[0] if weight is None else weight.sum())
        self.distinct, self.d = count_distinct(X), X.shape[1]
        self.total = self.scatter(None) if 1 < self.d else None

    def scatter(self, sweep):
        """Sum of w r r', r the residuals of the sweep, or of one cluster at the origin."""
        out = np.zeros((self.d, self.d))
        for start in range(0, self.X.shape[0], 4096):
            rows = slice(start, start + 4096)
            R = np.asarray(self.X[rows], dtype=np.float64)
            R = R - (self.space.origin if sweep is None else sweep.centers[sweep.labels[rows]])
            out += (R if self.weight is None else R * self.weight[rows, None]).T @ R
        return out

    def covariance(self, sweep):
        """The pooled covariance within clusters."""
        M = sweep.centers - self.space.origin
        within = self.total - (M * sweep.weights[:, None]).T @ M
        if np.trace(within) < 1e-6 * np.trace(self.total):
            within = self.scatter(sweep)
        return within / self.n

    def __call__(self, sweep):
        K, n, d, u = sweep.k, self.n, self.d, self.distinct
        p = sweep.weights / n
        entropy = -2.0 * n * (p * np.log(p)).sum()
        W = None
        if d > 1 and n - K > d:
            S = self.covariance(sweep)
            scale = np.sqrt(np.diag(S))
            if (scale > 0).all():
                try:
                    L = np.linalg.cholesky(S / scale / scale[:, None])
                    if np.diag(L).min() ** 2 > 1e-9:
                        W = solve_triangular(L, np.diag(1.0 / scale), lower=True)
                        logdet = 2 * np.log(scale * np.diag(L)).sum()
                except np.linalg.LinAlgError:
                    W = None
        unit = self.space.scale
        squares, image = sweep.residuals(
            None if W is None else np.ascontiguousarray(W / unit, dtype=np.float32), True
        )
        t, nu = shape_likelihood(squares, self.weight, n, d)
        price = 2.0 * np.log(u)
        best = (t + entropy) * u / n + price * (K * (d + 1) - 1 + 1 + (nu < np.inf))
        if W is not None:
            t, nu = shape_likelihood(image.astype(float), self.weight, n, d)
            best = min(
                best,
                (t + n * logdet + entropy) * u / n
                + price * (K * (d + 1) - 1 + d * (d + 1) / 2 + (nu < np.inf)),
            )
        return best


def shape_likelihood(squares, weight, n, d):
    """-2 log likelihood of a spherical t or Gaussian law for squared distances, and its degrees of freedom."""
    mean = max(float(squares.sum() if weight is None else weight @ squares) / n / d, 1e-300)
    value, mass = bins(squares / mean, weight)
    best, shape = n * d * (np.log(2 * np.pi) + 1.0), np.inf
    if value.max() >= 1.05 * d:
        s2 = 1.0
        for nu in SHAPES:
            for _ in range(8):
                s2 = (nu + d) / d * (mass @ (value / (nu + value / s2))) / n
            ll = (
                gammaln((nu + d) / 2) - gammaln(nu / 2) - d / 2 * np.log(nu * np.pi * s2)
                - (nu + d) / 2 * (mass @ np.log1p(value / (nu * s2))) / n
            )
            if -2 * n * ll < best:
                best, shape = -2 * n * ll, nu
            elif -2 * n * ll > best + 20:
                break
    return best + n * d * np.log(mean), shape


def bins(value, weight):
    """Values in 64 bins an octave: the mean of each and its weight."""
    place = value.view(np.int64) >> 46
    place -= place.min()
    mass = np.bincount(place, weight)
    total = np.bincount(place, value if weight is None else weight * value)
    some = mass > 0
    return total[some] / mass[some], mass[some].astype(float)


def count_distinct(X):
    """Number of distinct rows, by their hashes."""
    bits = np.ascontiguousarray(X, dtype=np.float64) + 0.0
    odd = np.random.default_rng(0).integers(2**63, size=X.shape[1], dtype=np.uint64) * 2 + 1
    h = bits.view(np.uint64)
    h = (h ^ (h >> np.uint64(29))) * odd
    return len(np.unique((h ^ (h >> np.uint64(32))).sum(axis=1)))
