"""DPMeans() without a number beside HDBSCAN on small data, and KMeans given it on a lattice."""

import subprocess
import sys
import warnings

import numpy as np
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import scale

from smallvar import DPMeans, UnclearNumberWarning

from . import Comparison

SIZES = ((50, 2, 3), (178, 13, 3), (1000, 2, 5))  # rows, columns, clusters
FIRST_FIT = """
import time
import numpy as np
from smallvar import DPMeans
X = np.random.default_rng(0).normal(size=(200, 2))
begin = time.perf_counter()
DPMeans(random_state=0).fit(X)
print(time.perf_counter() - begin)
"""


def mixture(n, d, k):
    """Round clusters, and the cluster of each row."""
    rng = np.random.default_rng(0)
    centers, truth = rng.uniform(-10, 10, (k, d)), rng.integers(k, size=n)
    return centers[truth] + rng.standard_normal((n, d)), truth


def lattice(n=100_000, k=500, deviation=0.12):
    """Clusters at the points of a lattice, and the cluster of each row."""
    rng = np.random.default_rng(0)
    truth = rng.integers(k, size=n)
    return np.column_stack([truth % 25, truth // 25]) + deviation * rng.normal(size=(n, 2)), truth


def quality(truth):
    """The number of clusters, and how well they agree with the true ones."""

    def told(model):
        found = len(set(model.labels_.tolist()) - {-1})
        return f"K {found} ARI {adjusted_rand_score(truth, model.labels_):.3f}"

    return told


def first_fit():
    """Seconds of the first fit of a process, with an import before."""
    run = [sys.executable, "-c", FIRST_FIT]
    return float(subprocess.run(run, capture_output=True, check=True, text=True).stdout)


def comparisons():
    """Yield them."""
    warnings.simplefilter("ignore", UnclearNumberWarning)
    wine = load_wine()
    data = {f"{n} x {d}": (*mixture(n, d, k), k) for n, d, k in SIZES}
    data["wine, scaled"] = scale(wine.data), wine.target, 3
    for name, (X, truth, k) in data.items():
        yield Comparison(
            f"DPMeans() {name}",
            lambda X=X: DPMeans(random_state=0).fit(X),
            {"HDBSCAN": lambda X=X: HDBSCAN(copy=True).fit(X)},
            quality(truth),
            2.0,
        )
        yield Comparison(
            f"DPMeans() {name}, number given to KMeans",
            lambda X=X: DPMeans(random_state=0).fit(X),
            {"KMeans": lambda X=X, k=k: KMeans(k, random_state=0).fit(X)},
            quality(truth),
        )
    X, truth = lattice()
    yield Comparison(
        "DPMeans() lattice of 500, 100,000 x 2",
        lambda: DPMeans(random_state=0).fit(X),
        {"KMeans": lambda: KMeans(500, random_state=0).fit(X)},
        quality(truth),
        1.0,
    )
    yield Comparison("first fit of a process", first_fit, quality=lambda s: f"{1e3 * s:.0f} ms")
