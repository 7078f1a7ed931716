"""MahalanobisMeans beside a Gaussian mixture with full covariances, and beside DPMeans."""

import functools

import numpy as np
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from smallvar import DPMeans, MahalanobisMeans

from . import Comparison


def elongated(n, d, k, long=3.0, apart=6.0, seed=0):
    """Gaussian clusters, each stretched in a direction of its own, and the cluster of each row."""
    rng = np.random.default_rng(seed)
    z = rng.integers(k, size=n)
    turns = [np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(k)]
    shapes = np.array(turns) * np.r_[long, np.ones(d - 1)]
    centers = apart * np.sqrt(k / 4 if d == 2 else 1) * rng.normal(size=(k, d))
    return np.einsum("nij,nj->ni", shapes[z], rng.normal(size=(n, d))) + centers[z], z


def _quality(z, X, result):
    """ARI and the number of clusters."""
    labels = result.predict(X) if isinstance(result, GaussianMixture) else result.labels_
    return f"(ARI {adjusted_rand_score(z, labels):.4f}, K {len(np.unique(labels))})"


def comparisons():
    """With the number of clusters given, one start each and ten; and by default."""
    k = 10
    for n, d in ((10_000, 2), (10_000, 8)):
        X, z = elongated(n, d, k)
        yield Comparison(
            f"MahalanobisMeans({k}) {n} x {d}",
            lambda X=X: MahalanobisMeans(k, n_init=1, random_state=0).fit(X),
            {"GaussianMixture": lambda X=X: GaussianMixture(k, random_state=0).fit(X)},
            functools.partial(_quality, z, X),
            bound=1.0,
        )
        yield Comparison(
            f"MahalanobisMeans({k}), up to ten starts, {n} x {d}",
            lambda X=X: MahalanobisMeans(k, random_state=0).fit(X),
            {"GaussianMixture": lambda X=X: GaussianMixture(k, n_init=10, random_state=0).fit(X)},
            functools.partial(_quality, z, X),
            bound=1.0,
        )
    for n, d in ((5_000, 2), (5_000, 10), (5_000, 30)):
        X, z = elongated(n, d, k)
        yield Comparison(
            f"MahalanobisMeans() {n} x {d}",
            lambda X=X: MahalanobisMeans(random_state=0).fit(X),
            {"DPMeans": lambda X=X: DPMeans(random_state=0, n_threads=1).fit(X)},
            functools.partial(_quality, z, X),
            bound=5.0,
        )
