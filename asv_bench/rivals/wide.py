"""The number of clusters chosen in wide data, beside k-means that is told it."""

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from rivals import Comparison
from smallvar import DPMeans


def _blobs(n, d, k):
    """Rows around k centers, and the numbers of these."""
    rng = np.random.default_rng(0)
    centers, label = rng.uniform(-10.0, 10.0, (k, d)), rng.integers(k, size=n)
    return centers[label] + rng.normal(size=(n, d)), label


def comparisons():
    """Rows of more columns, and of more columns than rows."""
    for n, d, k in ((10_000, 128, 20), (30_000, 784, 10)):
        yield _beside_kmeans(f"DPMeans() {n} x {d}, K {k}", *_blobs(n, d, k), k)
    for n, d, k, bound in ((60, 1600, 3, 0.1), (100, 20_000, 5, 5.0), (100, 100_000, 5, None)):
        X, truth = _blobs(n, d, k)
        yield Comparison(
            f"DPMeans() {n} x {d}, K {k}",
            lambda X=X: DPMeans(random_state=0).fit(X).labels_,
            quality=_against(truth),
            bound=bound,
        )


def _beside_kmeans(name, X, truth, k):
    return Comparison(
        name,
        lambda: DPMeans(random_state=0).fit(X).labels_,
        {"KMeans(K)": lambda: KMeans(k, random_state=0).fit(X).labels_},
        _against(truth),
        bound=2.0,
        turns=3,
    )


def _against(truth):
    return lambda labels: f"K {labels.max() + 1} ARI {adjusted_rand_score(truth, labels):.3f}"
