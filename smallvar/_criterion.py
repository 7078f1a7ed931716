"""How good a clustering is for its number of clusters: likelihood, entropy and a price for parameters."""

import numpy as np

from smallvar._sweeps.merge import fit_shape

PRICE = 1.75  # of a parameter, in log(distinct rows)
SMALL = 1e-9  # of the largest eigenvalue: variances below are none
BLOCK = 4096


class Criterion:
    """V of a clustering of these rows: the lower, the better the data speak for it.

    V = (u / n) (-2 sum_i w_i log f(x_i; mu_{z_i}) - 2 n sum_k p_k log p_k) + c log(u) parameters,

    n the sum of weights, u the number of distinct rows, p_k = n_k / n. f is the best of a few
    shapes that all clusters share: t or Gaussian, with a covariance that is spherical, or
    spherical but for q directions.
    """

    def __init__(self, X, weight, space, judge):
        self.X, self.weight, self.space = X, weight, space
        self.n = float(X.shape[0] if weight is None else weight.sum())
        self.distinct, self.d = count_distinct(X), X.shape[1]
        self.total = self._scatter(None) if self.d > 1 else None
        self.judge = judge

    def _scatter(self, sweep):
        """Sum of w r r', r the residuals of the sweep, or from the origin."""
        out = np.zeros((self.d, self.d))
        for start in range(0, self.X.shape[0], BLOCK):
            rows = slice(start, start + BLOCK)
            R = np.asarray(self.X[rows], dtype=np.float64)
            R = R - (self.space.origin if sweep is None else sweep.centers[sweep.labels[rows]])
            out += (R if self.weight is None else R * self.weight[rows, None]).T @ R
        return out

    def _covariance(self, sweep):
        """The pooled covariance within clusters."""
        M = sweep.centers - self.space.origin
        within = self.total - (M * sweep.weights[:, None]).T @ M
        if np.trace(within) < 1e-6 * np.trace(self.total):
            within = self._scatter(sweep)  # the difference is mostly rounding
        return within / self.n

    def sweep_of(self, labels, k):
        """The sweep of labels that came about in another space."""
        self.judge.start(np.zeros((k, self.d)))
        self.judge.labels[:] = labels
        self.judge.move_centers(True)
        return self.judge

    def __call__(self, sweep):
        """V, and the directions in which clusters are long: (V, rows of unit length over spread)."""
        K, n, d, u = sweep.k, self.n, self.d, self.distinct
        p = sweep.weights / n
        price = PRICE * np.log(u)
        base = -2.0 * u * float(p @ np.log(p)) + price * (K * (d + 1) - 1)
        q, e, U = 0, None, None
        if d > 1:
            q, e, U = self._directions(self._covariance(sweep), K, price)
        W = None
        if q:
            s = (e.sum() - e[:q].sum()) / (d - q)
            if e[0] < 1e4 * s and 2 * q < d:
                W = U[:, :q].T * np.sqrt(1.0 / s - 1.0 / e[:q])[:, None]
            else:
                W = U.T / np.sqrt(np.append(e[:q], np.full(d - q, s)))[:, None]
            W = W / self.space.scale
        squares, image = sweep.residuals(None if W is None else np.ascontiguousarray(W, dtype=np.float32))
        t, shaped = fit_shape(squares, self.weight, n, d)
        V, metric = base + u * t + price * (1 + shaped), None
        if q:
            r2 = squares / s - image if len(W) == q else image.astype(np.float64)
            t, shaped = fit_shape(np.maximum(r2, 0.0), self.weight, n, d)
            logdet = float(np.log(e[:q]).sum() + (d - q) * np.log(s))
            other = base + u * (t + logdet) + price * (d * q - q * (q - 1) / 2 + 1 + shaped)
            if other < V:
                V = other
            metric = U / np.sqrt(np.append(e[:q], np.full(d - q, s)))
            if other > V:
                metric = None
        if d == 2 and OWN:
            V = min(V, self._own(sweep, base, price))
        if K == 1 and BOX:
            box = 2.0 * u * float(np.log(self.space.spread).sum()) + price * 2 * d
            V = min(V, box)
        return V, metric

    def _own(self, sweep, base, price):
        labels, K, d = sweep.labels, sweep.k, self.d
        R = np.asarray(self.X, dtype=np.float64) - sweep.centers[labels]
        w = self.weight
        S = np.zeros((K, d, d))
        for a in range(d):
            for b in range(a + 1):
                v = R[:, a] * R[:, b]
                S[:, a, b] = S[:, b, a] = np.bincount(labels, v if w is None else v * w, minlength=K)
        pooled = S.sum(axis=0) / self.n
        c = sweep.weights
        S = (S + (d + 1) * pooled) / (c + d + 1)[:, None, None]
        e, V = np.linalg.eigh(S)
        if not (e > 1e-12 * np.trace(pooled) / d).all():
            return np.inf
        W = V / np.sqrt(e)[:, None, :]
        r2 = np.square(np.einsum("ni,nij->nj", R, W[labels])).sum(axis=1)
        logdet = float(c @ np.log(e).sum(axis=1)) / self.n
        t, shaped = fit_shape(r2, w, self.n, d)
        return base + self.distinct * (t + logdet) + price * (K * d * (d + 1) / 2 + shaped)

    def _directions(self, S, K, price):
        """How many directions q are worth their price, with eigenvalues and vectors, largest first."""
        d, u = self.d, self.distinct
        most = min(d - 1, int(max(1, u / 3) - K))
        if most < 1 or not np.trace(S) > 0.0:
            return 0, None, None
        e = np.linalg.eigvalsh(S)[::-1].clip(0.0)
        q = np.arange(most + 1)
        head = np.append(0.0, np.cumsum(np.log(np.maximum(e[:most], 1e-300))))
        tail = np.maximum(e.sum() - np.append(0.0, np.cumsum(e[:most])), 0.0) / (d - q)
        good = tail > SMALL * e[0]
        cost = np.where(
            good,
            u * (head + (d - q) * np.log(np.maximum(tail, 1e-300))) + price * (d * q - q * (q - 1) / 2),
            np.inf,
        )
        q = int(cost.argmin())
        if q == 0:
            return 0, None, None
        e, U = np.linalg.eigh(S)
        return q, e[::-1], U[:, ::-1]


OWN = BOX = True


def count_distinct(X):
    """Number of distinct rows, by a hash of 64 bits for each."""
    odd = np.random.default_rng(0).integers(2**63, size=X.shape[1], dtype=np.uint64) * 2 + 1
    hashes = np.empty(X.shape[0], dtype=np.uint64)
    for start in range(0, X.shape[0], BLOCK):
        rows = np.ascontiguousarray(X[start : start + BLOCK], dtype=np.float64) + 0.0  # no -0.0
        bits = rows.view(np.uint64)
        bits = (bits ^ (bits >> np.uint64(29))) * odd
        hashes[start : start + BLOCK] = (bits ^ (bits >> np.uint64(32))).sum(axis=1)
    return len(np.unique(hashes))
