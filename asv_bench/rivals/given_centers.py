"""DPMeans from given centers, with a penalty beyond every distance: the work of k-means."""

import numpy as np
from sklearn.cluster import KMeans

from rivals import Comparison
from smallvar import DPMeans


def _touching(n, d, k, spread, seed):
    """Rows in float32 around k normal centers, and k of the rows to begin at."""
    rng = np.random.default_rng(seed)
    centers = 3.0 * rng.normal(size=(k, d))
    X = centers[rng.integers(k, size=n)] + spread * rng.normal(size=(n, d))
    X = X.astype(np.float32)
    return X, X[rng.choice(n, k, replace=False)]


def comparisons():
    """Many columns and few, in float32, to strict convergence."""
    for n, d, k, spread, bound in ((60_000, 200, 150, 3.0, 0.4), (400_000, 5, 40, 1.5, 0.17)):
        X, start = _touching(n, d, k, spread, seed=0)
        yield Comparison(
            f"DPMeans from given centers {n} x {d}, K {k}",
            lambda X=X, start=start: DPMeans(lam=1e30, init=start).fit(X),
            {name: _kmeans(name, X, start) for name in ("lloyd", "elkan")},
            lambda model: f"inertia {model.inertia_:.6g}",
            bound=bound,
            turns=3,
        )


def _kmeans(algorithm, X, start):
    kmeans = KMeans(len(start), init=start, n_init=1, tol=0, algorithm=algorithm)
    return lambda: kmeans.fit(X)
