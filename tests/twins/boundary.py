"""The evidence of a boundary: two bells against one body, by a general optimizer."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr

BINS = 32
# places and lengths in bins: the bounds of parameters
PLACE, SPREAD, LENGTH, BLUR, ODDS = (
    *((0, 32), np.log([1.5, 64]), np.log([1, 64]), np.log([0.6, 64]), (-8, 8)),
)


def evidence(X, labels, a, b, facing=None):
    """Nats for two bells, against one body, of the rows of two clusters; ``facing``: of some."""
    A, B = X[labels == a], X[labels == b]
    t = projections(A, B)
    if facing is not None:
        t = t[np.concatenate([facing[labels == a], facing[labels == b]])]
    counts = histogram(t) if len(t) else None
    if counts is None:
        return 0.0
    bells, best = fit(bells_below, counts, [PLACE, PLACE, SPREAD, SPREAD, ODDS])
    other = fit(body_below, counts, [PLACE, LENGTH, LENGTH, BLUR, ODDS])[1]
    return best - other if valley(bells) < 0.98 else min(best - other, 0.0)


def faces(X, means, labels, a, b):
    """Which rows of two clusters face each other, (n,).

    Moved along m_b - m_a to the plane between the two means, no third mean is nearer.
    """
    out = np.zeros(len(X), dtype=bool)
    normal, middle = means[b] - means[a], (means[a] + means[b]) / 2
    third = np.delete(means, [a, b], axis=0)
    for i in np.flatnonzero((labels == a) | (labels == b)):
        x = X[i] + (middle - X[i]) @ normal / max(normal @ normal, 1e-300) * normal
        distances = np.linalg.norm(x - third, axis=1)
        out[i] = (distances >= np.linalg.norm(x - means[a]) * (1 - 1e-12)).all()
    return out


def projections(A, B):
    """Each row along (S / n + r I)^-1 (m_b - m_a), of S and means without that row.

    The means are at -1/2 and 1/2.
    """
    n, d = len(A) + len(B), A.shape[1]
    r = max(1e-3, d / n) * np.trace(scatter(A) + scatter(B)) / n / d
    out = []
    for i in range(n):
        x = A[i] if i < len(A) else B[i - len(A)]
        rest_a = np.delete(A, i, axis=0) if i < len(A) and len(A) > 1 else A
        rest_b = np.delete(B, i - len(A), axis=0) if i >= len(A) and len(B) > 1 else B
        m_a, m_b = rest_a.mean(axis=0), rest_b.mean(axis=0)
        w = np.linalg.solve((scatter(rest_a) + scatter(rest_b)) / n + r * np.eye(d), m_b - m_a)
        out.append(w @ (x - (m_a + m_b) / 2) / (w @ (m_b - m_a)))
    return np.array(out)


def scatter(A):
    """Products of residuals from the mean, summed over rows."""
    return (A - A.mean(axis=0)).T @ (A - A.mean(axis=0))


def histogram(t):
    """The rows in each bin, by the distribution function interpolated between distinct values."""
    tie = 1e-9 * np.ptp(t)
    values = np.sort(t)
    runs = np.split(values, np.flatnonzero(np.diff(values) > tie) + 1)
    if len(runs) < 7:
        return None
    value = np.array([(run[0] + run[-1]) / 2 for run in runs])
    middle = (value[:-1] + value[1:]) / 2
    x = [2 * value[0] - middle[0], *middle, 2 * value[-1] - middle[-1]]
    below = np.cumsum([0] + [len(run) for run in runs])
    low, high = np.interp([0.01 * len(t), 0.99 * len(t)], below, x)
    edges = np.linspace(low, high, BINS + 1)
    return np.diff([0, *np.interp(edges[1:-1], x, below), len(t)])


def normal(z):
    """The density of a standard normal."""
    return np.exp(-z * z / 2) / np.sqrt(2 * np.pi)


def bells_below(p, x):
    """The distribution function of two normals."""
    q = 1 / (1 + np.exp(-p[4]))
    return q * ndtr((x - p[0]) / np.exp(p[2])) + (1 - q) * ndtr((x - p[1]) / np.exp(p[3]))


def body_below(p, x):
    """The distribution function of two uniform pieces that touch, blurred."""
    e, q = p[0], 1 / (1 + np.exp(-p[4]))
    a1, a2, s = np.exp(p[1:4])

    def H(u):
        return u * ndtr(u / s) + s * normal(u / s)

    first, second = (H(x - e + a1) - H(x - e)) / a1, (H(x - e) - H(x - e - a2)) / a2
    return q * first + (1 - q) * second


def starts(below, counts):
    """The histogram cut in two parts, at several places."""
    x = np.arange(BINS) + 0.5
    for cut in (2, 4, 8, 12, 16, 20, 24, 28, 30):
        sizes = counts[:cut].sum(), counts[cut:].sum()
        odds = np.log((sizes[0] + 1) / (sizes[1] + 1))
        if below is body_below:
            yield [cut, np.log(cut), np.log(BINS - cut), np.log(1.2), odds]
        else:
            parts = [(x[:cut], counts[:cut] + 1e-12), (x[cut:], counts[cut:] + 1e-12)]
            means = [np.average(y, weights=w) for y, w in parts]
            spreads = [
                np.average(y**2, weights=w) - m**2 for (y, w), m in zip(parts, means, strict=True)
            ]
            spreads = np.log(np.maximum(np.sqrt(spreads), 1.5))
            yield [*means, *spreads, odds]


def fit(below, counts, bounds):
    """The likeliest parameters, and their log-likelihood."""

    def cost(p):
        share = np.diff([0, *below(np.asarray(p), np.arange(1, BINS)), 1])
        return -(counts * np.log(np.maximum(share, 1e-12))).sum()

    precise = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 2000, "maxfun": 10**5}
    found = [
        minimize(cost, start, method="L-BFGS-B", bounds=bounds, options=precise)
        for start in starts(below, counts)
    ]
    best = min(found, key=lambda result: result.fun)
    return best.x, -best.fun


def valley(p):
    """The lowest density between two modes by the lower mode, on a fine grid; 1 for one mode."""
    x = np.linspace(min(p[:2]) - 1, max(p[:2]) + 1, 40001)
    q = 1 / (1 + np.exp(-p[4]))
    s1, s2 = np.exp(p[2:4])
    f = q * normal((x - p[0]) / s1) / s1 + (1 - q) * normal((x - p[1]) / s2) / s2
    modes = 1 + np.flatnonzero((f[1:-1] > f[:-2]) & (f[1:-1] >= f[2:]))
    return f[modes[0] : modes[-1] + 1].min() / f[modes].min()
