"""A fit to a coreset beside DPMeans on all rows."""

import numpy as np

from smallvar import DPMeans, coreset

from . import Comparison

N_ROWS, PER_CLUSTER = 3_000, 50


def _blobs(n, d, k):
    rng = np.random.default_rng(0)
    centers = rng.uniform(-10, 10, size=(k, d))
    return centers[rng.integers(k, size=n)] + rng.normal(size=(n, d))


def comparisons():
    """The time of the draw and the fit; the squared error on all rows."""
    X = _blobs(1_000_000, 16, PER_CLUSTER)
    lam = 16 * len(X) / PER_CLUSTER / 10

    def ours():
        index, weight = coreset(X, N_ROWS, lam, random_state=0, n_threads=1)
        few = DPMeans(lam=lam, algorithm="merge", random_state=0, n_threads=1)
        return few.fit(X[index], sample_weight=weight)

    def quality(model):
        error = -model.score(X) - model.lam_ * model.n_clusters_
        return f"(error {error:.5g}, K {model.n_clusters_})"

    yield Comparison(
        "coreset 1000000 x 16, and DPMeans on it",
        ours,
        {"DPMeans": lambda: DPMeans(random_state=0, n_threads=1).fit(X)},
        quality,
        bound=0.9,
        turns=3,
    )
