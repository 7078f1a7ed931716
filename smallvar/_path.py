"""How many clusters: the merge path, its criterion, and the penalties for which each number is best."""

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln
from sklearn.utils import check_array, check_random_state

from smallvar._base import (
    DTYPES,
    Space,
    aligned,
    check_number,
    check_weights,
)
from smallvar._config import resolve_threads
from smallvar._sweeps.merge import MergeSweep

COARSE = 5000  # rows from which the number of clusters is first looked for
FINER = 4  # times as many rows tell it exactly
SHAPES = (200.0, 50.0, 20.0, 10.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0)  # degrees of freedom, beside infinity


def envelope(k, error):
    """Penalties between which each number k of clusters is the best: error + lam k is least there.

    ``k`` ascends. Returns low and high, arrays; low > high where another number is always better.
    """
    k, error = np.asarray(k, dtype=np.float64), np.asarray(error, dtype=np.float64)
    low, high = np.zeros(len(k)), np.full(len(k), np.inf)
    for i in range(len(k)):
        if i + 1 < len(k):
            low[i] = max(0.0, ((error[i] - error[i + 1 :]) / (k[i + 1 :] - k[i])).max())
        if i:
            high[i] = ((error[:i] - error[i]) / (k[i] - k[:i])).min()
    return low, high


def seed(sweep, X, weight, size, rng, noise):
    """Open ``size`` clusters at rows far apart: drawn by weight times squared distance, in rounds."""
    first = rng.random()
    if weight is None:
        row = int(first * X.shape[0])
    else:
        total = np.cumsum(weight)
        row = int(np.searchsorted(total, first * total[-1], side="right"))
    sweep.start(np.array(X[row : row + 1], dtype=np.float64))
    sweep.assign()
    while sweep.k < size:
        claim = sweep.own_distances()
        claim[claim <= noise] = 0.0
        if weight is not None:
            claim *= weight
        total = np.cumsum(claim)
        if not total[-1] > 0.0:
            break  # every row has its equal among the seeds
        draws = rng.random(min(size - sweep.k, max(1, sweep.k // 4)))
        sweep.seed(np.unique(np.searchsorted(total, draws * total[-1], side="right")))
    sweep.move_centers()


class Criterion:
    """V of a clustering: its complete-data likelihood, one shape for all clusters, and a price for parameters."""

    def __init__(self, X, weight, space, n_distinct):
        self.X, self.weight, self.space = X, weight, space
        self.n = float(X.shape[0] if weight is None else weight.sum())
        self.u, self.d = n_distinct, X.shape[1]
        self.most = max(1, n_distinct // 3)
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
        K, n, d, u = sweep.k, self.n, self.d, self.u
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


class Descent:
    """A set of rows, clusters on them, and the way down to one cluster."""

    def __init__(self, X, weight, n_threads, rng):
        self.X, self.weight, self.rng = X, weight, rng
        self.space = Space(X, weight, n_threads)
        self.labels = np.zeros(X.shape[0], dtype=np.int32)
        self.sweep = MergeSweep(X, weight, None, self.labels, self.space, n_threads, 8, True)
        self.criterion = Criterion(X, weight, self.space, count_distinct(X))

    def error(self):
        return self.sweep.squared_error()

    def coarse(self, size):
        sweep = self.sweep
        seed(sweep, self.X, self.weight, size, self.rng, self.space.noise)
        sweep.settle(FIRST)
        V, centers = {}, {}
        while True:
            K = sweep.k
            if K == 1 or K <= self.criterion.most:
                V[K] = self.criterion(sweep)
            centers[K] = sweep.centers
            if K == 1:
                break
            sweep.merge(max(1, K // 10))
            sweep.settle(3)
        return V, centers

    def fine(self, centers):
        sweep = self.sweep
        sweep.start(centers)
        sweep.assign()
        sweep.move_centers()
        sweep.settle(5)
        V, S, C = {}, {}, {}
        while True:
            K = sweep.k
            if K == 1 or K <= self.criterion.most:
                V[K] = self.criterion(sweep)
            S[K] = self.error()
            C[K] = sweep.centers
            if K == 1:
                break
            sweep.merge(1)
            sweep.settle(5)
        return V, S, C

FIRST = 10

def find(X, weight, rng, n_threads, verbose=0):
    n = X.shape[0]
    m = min(n, COARSE)
    size = None
    order = rng.permutation(n)
    while True:
        rows = np.sort(order[:m])
        D = Descent(X if m == n else X[rows], None if weight is None else weight[rows], n_threads, rng)
        size = max(size or 0, min(m // 2, max(20, int(4 * np.sqrt(m)))), 1)
        V, centers = D.coarse(size)
        K = min(V, key=V.get)
        if verbose: print("coarse", m, size, K, V[K])
        if K > 0.45 * max(centers) and (m < n or size < m // 2):
            m, size = min(n, 4 * m), min(2 * size, m // 2)
            continue
        big = min(n, FINER * m)
        if big > m:
            rows = np.sort(order[:big])
            D = Descent(X if big == n else X[rows], None if weight is None else weight[rows], n_threads, rng)
        top = min((k for k in centers if k >= 1.25 * K + 10), default=max(centers))
        V, S, C = D.fine(centers[top])
        best = min(V, key=V.get)
        if verbose: print("fine", big, top, best, V[best])
        if best > 0.9 * top and (m < n or size < m // 2):
            m, size = min(n, 4 * m), min(2 * size, m // 2)
            continue
        return best, V, S, C


def auto_labels(X, verbose=0, n_threads=1):
    from smallvar import DPMeans
    X = np.ascontiguousarray(X, dtype=float)
    keep = X.std(0) > 0
    if not keep.any():
        return np.zeros(len(X), int)
    best, V, S, C = find(X[:, keep], None, np.random.default_rng(0), n_threads, verbose)
    return DPMeans(np.inf, init=C[best], max_clusters=best, n_threads=n_threads).fit(X[:, keep]).labels_
