"""SphericalDPMeans() beside k-means of the same rows divided by their lengths, given the number."""

import tracemalloc

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import normalize

from smallvar import SphericalDPMeans

from . import Comparison


def directions(n, d, k, dtype=np.float64):
    """Rows of any length about k directions, and the direction of each."""
    rng = np.random.default_rng(0)
    centers, truth = normalize(rng.standard_normal((k, d))), rng.integers(k, size=n)
    X = np.empty((n, d), dtype=dtype)
    for start in range(0, n, 10_000):
        part = slice(start, start + 10_000)
        noise = rng.standard_normal((len(truth[part]), d)) * (0.5 / np.sqrt(d))
        X[part] = (centers[truth[part]] + noise) * rng.uniform(0.5, 2.0, (len(noise), 1))
    return X, truth


def memory(X, **options):
    """The most memory that a fit has beside X, as a part of that of X."""
    tracemalloc.start()
    try:
        model = SphericalDPMeans(random_state=0, n_threads=1, **options).fit(X)
        return tracemalloc.get_traced_memory()[1] / X.nbytes, model.n_clusters_
    finally:
        tracemalloc.stop()


def comparisons():
    """Time beside k-means; memory of large data, in the place of seconds."""
    X, truth = directions(20_000, 64, 100)
    unit = normalize(X)
    yield Comparison(
        "SphericalDPMeans() 20000 x 64, K 100",
        lambda: SphericalDPMeans(random_state=0, n_threads=1).fit(X).labels_,
        {"KMeans(K)": lambda: KMeans(100, random_state=0).fit(unit).labels_},
        lambda labels: f"K {labels.max() + 1} ARI {adjusted_rand_score(truth, labels):.3f}",
        bound=2.0,
        turns=5,
    )
    for n, d in ((1_000_000, 16), (100_000, 500)):
        for dtype in ("float64", "float32"):
            for options in ({}, {"min_cosine": 0.5}):
                X = directions(n, d, 20, dtype)[0]
                yield Comparison(
                    f"SphericalDPMeans memory {n} x {d} {dtype} {options or 'auto'}",
                    lambda X=X, options=options: memory(X, **options),
                    quality=lambda found: f"{found[0]:.3f} X beside X (at most .25), K {found[1]}",
                    turns=1,
                )
