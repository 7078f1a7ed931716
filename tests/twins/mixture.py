"""Mixtures about given centers, row by row with the densities of scipy; EM leaves centers alone."""

import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, multivariate_t

FREEDOMS = (np.inf, 200.0, 50.0, 20.0, 10.0, 6.0, 4.0, 3.0)


def log_joint(X, centers, shares, scatters, freedom):
    """log p_k f(x; mu_k, S_k), (n, K)."""
    out = np.empty((len(X), len(centers)))
    for k, (mu, share, S) in enumerate(zip(centers, shares, scatters, strict=True)):
        if np.isinf(freedom):
            f = multivariate_normal(mu, S).logpdf(X)
        else:
            f = multivariate_t(mu, S, df=freedom).logpdf(X)
        out[:, k] = np.log(share) + f
    return out


def squares(X, centers, scatters):
    """(x - mu_k)' S_k^-1 (x - mu_k), (n, K)."""
    R = X[:, None] - centers
    return np.einsum("nki,kij,nkj->nk", R, np.linalg.inv(scatters), R)


def scatter(X, centers, memberships, shape, own, sizes):
    """The scatter of each cluster by these memberships, of rows whose weights add up to n."""
    n, d, K = sizes.sum(), X.shape[1], len(centers)
    R = X[:, None] - centers
    S = np.einsum("nk,nki,nkj->kij", memberships, R, R) * (n / (n - K))
    pooled = S.sum(axis=0) / n
    if own:
        prior = 2 + d * (shape == "full")
        S = (S + prior * pooled) / (sizes + prior)[:, None, None]
    else:
        S = np.repeat(pooled[None], K, axis=0)
    if shape == "spherical":
        return np.array([np.trace(s) / d * np.eye(d) for s in S])
    return np.array([np.diag(np.diag(s)) if shape == "columns" else s for s in S])


def likeliest(q, weight, d):
    """Degrees of freedom and scale of the likeliest density of squared distances q."""

    def value(freedom, s2):
        law = multivariate_normal(np.zeros(d), s2 * np.eye(d))
        if np.isfinite(freedom):
            law = multivariate_t(np.zeros(d), s2 * np.eye(d), freedom)
        rows = np.zeros((len(q), d))
        rows[:, 0] = np.sqrt(q)
        return weight @ np.atleast_1d(law.logpdf(rows))

    s2, best = weight @ q / (weight.sum() * d), None
    for freedom in FREEDOMS:
        for _ in range(20 if np.isfinite(freedom) else 0):
            s2 = (freedom + d) / d * (weight @ (q / (freedom + q / s2))) / weight.sum()
        if best is None or value(freedom, s2) > best[0]:
            best = value(freedom, s2), freedom, s2
    return best[1:]


def fit(X, weight, labels, centers, shape, own):
    """Shares, scatters and degrees of freedom of this form."""
    d, K = X.shape[1], len(centers)
    w = np.ones(len(X)) if weight is None else weight * max(1.0, len(X) / weight.sum())
    n = w.sum()
    hard = w[:, None] * (labels[:, None] == np.arange(K))
    sizes = hard.sum(axis=0)
    S = scatter(X, centers, hard, shape, own, sizes)
    freedom, s2 = likeliest(squares(X, centers, S)[np.arange(len(X)), labels], w, d)
    shares, S, before = sizes / n, S * s2, -np.inf
    for _ in range(100):
        L = log_joint(X, centers, shares, S, freedom)
        value = w @ logsumexp(L, axis=1) / n
        if not value > before + 1e-6:
            break
        before = value
        r = w[:, None] * np.exp(L - logsumexp(L, axis=1)[:, None])
        sizes = r.sum(axis=0)
        less = 1.0 if np.isinf(freedom) else (freedom + d) / (freedom + squares(X, centers, S))
        S = scatter(X, centers, r * less, shape, own, sizes)
        kept = r > 1e-10
        freedom, s2 = likeliest(squares(X, centers, S)[kept], r[kept], d)
        shares, S = sizes / n, S * s2
    return shares, S, freedom
