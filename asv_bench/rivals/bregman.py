"""BregmanDPMeans beside the same sweeps as one writes them in numpy."""

import numpy as np
import scipy.sparse
from sklearn.metrics import adjusted_rand_score

from smallvar import BregmanDPMeans

from . import Comparison

N, D, K = 100_000, 16, 20
SMALLEST, LARGEST = 1e-300, 1.0 - 2.0**-53  # of a component of a center that would be 0 or 1


def divergence_scores(X, centers, name):
    """D(x, c) for all rows and centers, but for terms of x alone: one matrix product."""
    if name == "kl":
        return centers.sum(axis=1) - X @ np.log(centers).T
    if name == "itakura_saito":
        return np.log(centers).sum(axis=1) + X @ (1.0 / centers).T
    other = np.log1p(-centers)
    return X @ (other - np.log(centers)).T - other.sum(axis=1)


def alone(X, name):
    """The terms of x alone."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.where(X > 0, X * np.log(X), 0.0)
        if name == "kl":
            return (log - X).sum(axis=1)
        if name == "itakura_saito":
            return -(np.log(X) + 1.0).sum(axis=1)
        return (log + np.where(X < 1, (1.0 - X) * np.log1p(-X), 0.0)).sum(axis=1)


def lloyd(X, centers, name, lam=np.inf):
    """Labels and number of sweeps; the row farthest beyond lam opens a cluster after a sweep."""
    labels, sweeps, n = None, 0, len(X)
    own = alone(X, name) if lam < np.inf else None
    while True:
        scores = divergence_scores(X, centers, name)
        new, sweeps, opened = scores.argmin(axis=1), sweeps + 1, False
        if lam < np.inf:
            least = own + scores[np.arange(n), new]
            far = int(least.argmax())
            opened = least[far] > lam
            if opened:
                new[far] = len(centers)
        if not opened and labels is not None and np.array_equal(new, labels):
            return labels, sweeps
        labels, k = new, len(centers) + opened
        members = scipy.sparse.csr_array((np.ones(n), labels, np.arange(n + 1)), (n, k))
        means = (members.T @ X) / np.maximum(np.bincount(labels, minlength=k), 1)[:, None]
        centers = np.clip(means, SMALLEST, LARGEST if name == "logistic" else None)


def problem(name):
    """Rows of 20 clusters, which of these they are from, and 20 starting centers.

    Some clusters of bits have none in some columns: centers on the border of the domain.
    """
    rng = np.random.default_rng(0)
    truth, subset = rng.integers(K, size=N), rng.choice(N, K, replace=False)
    if name == "kl":
        X = rng.poisson((rng.gamma(2.0, 5.0, (K, D)) + 0.5)[truth]).astype(float)
        return X, truth, X[subset] + 0.5
    if name == "itakura_saito":
        X = rng.gamma(3.0, rng.gamma(2.0, 5.0, (K, D))[truth] / 3.0) + 1e-6
        return X, truth, X[subset]
    X = (rng.random((N, D)) < 0.97 * rng.beta(0.5, 0.5, (K, D))[truth]).astype(float)
    return X, truth, 0.5 * (X[subset] + X.mean(axis=0))


def comparison(name, bound, lam=None):
    """From given centers, or from the mean for a given lam."""
    X, truth, centers = problem(name)
    options = {"lam": 1e30, "init": centers}
    if lam is not None:
        X, options = X + 0.5, {"lam": lam, "algorithm": "delayed"}  # no single row is on the border
    model = BregmanDPMeans(divergence=name, n_threads=1, **options)
    start = (centers, name) if lam is None else (X.mean(axis=0)[None], name, lam)

    def ours():
        fitted = model.set_params(max_iter=1000).fit(X)
        return fitted.labels_, fitted.n_iter_

    def quality(result):
        labels, sweeps = result
        k = int(labels.max()) + 1
        means = np.stack([X[labels == c].mean(axis=0) for c in range(k)])
        means = np.clip(means, SMALLEST, LARGEST if name == "logistic" else None)
        scores = divergence_scores(X, means, name)[np.arange(N), labels]
        error = float((alone(X, name) + scores).sum())
        ari = adjusted_rand_score(truth, labels)
        return f"({sweeps} sweeps, K {k}, D {error:.6g}, ARI {ari:.3f})"

    given = "given centers" if lam is None else f"lam {lam:g}"
    return Comparison(
        f"BregmanDPMeans {name} {N} x {D}, {given}",
        ours,
        {"numpy": lambda: lloyd(X, *start)},
        quality,
        bound,
    )


def comparisons():
    """Rows of counts, of positive numbers and of bits."""
    yield comparison("kl", 0.3)
    yield comparison("itakura_saito", 0.5)
    yield comparison("logistic", 1.0)
    yield comparison("kl", 1.0, lam=40.0)
