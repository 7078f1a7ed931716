"""What every estimator makes of data and nothing else, now and with its former defaults.

    SMALLVAR_DATA=folder python docs/reproductions/defaults.py [family ...]

prints a table for each family: clusters found and there, agreement with the truth (adjusted Rand
index, normalized mutual information) and seconds. Sets that need files are left out without them.
"""

import argparse
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.spatial.distance import pdist
from sklearn import datasets
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import scale

from smallvar import DPMeans, KernelDPMeans, KernelHDPMeans, SpectralDPMeans


@dataclass
class Case:
    """Data, what is known about them, and the estimators to try: a name, and how to make one."""

    name: str
    data: object
    truth: np.ndarray
    estimators: dict
    fit: dict = field(default_factory=dict)  # further arguments of fit


def outcome(model, case):
    """One line: clusters, agreement, seconds."""
    begin = time.perf_counter()
    model.fit(case.data, **case.fit)
    seconds = time.perf_counter() - begin
    known = case.truth >= 0
    truth, labels = case.truth[known], model.labels_[known]
    ari, nmi = adjusted_rand_score(truth, labels), normalized_mutual_info_score(truth, labels)
    return len(np.unique(model.labels_)), len(np.unique(truth)), ari, nmi, seconds


def points():
    """DP-means."""
    now, before = {"now": DPMeans}, {"before": lambda: DPMeans("farthest-first")}
    for name in ("iris", "wine", "breast_cancer", "digits"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        yield Case(name, X if name == "digits" else scale(X), y, now | before)
    X, y = datasets.make_blobs(2000, 8, centers=12, random_state=0)
    yield Case("12 blobs", X, y, now | before)


def kernel_sets():
    """Name, data and truth of at most some 800 rows: round clusters, others, and none."""
    for name in ("iris", "wine", "breast_cancer", "digits"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        few = slice(None, None, 3 if name == "digits" else 1)
        yield name, (X if name == "digits" else scale(X))[few], y[few]
    yield "12 blobs", *datasets.make_blobs(600, 8, centers=12, random_state=0)
    yield "5 wide blobs", *datasets.make_blobs(600, 5, centers=5, cluster_std=2.0, random_state=0)
    yield "5 blobs in 2-d", *datasets.make_blobs(500, 2, centers=5, random_state=1)
    rng = np.random.default_rng(0)
    y = np.arange(6).repeat(50)
    yield "6 in 50-d", rng.standard_normal((6, 50))[y] + 0.7 * rng.standard_normal((300, 50)), y
    yield "moons", *datasets.make_moons(400, noise=0.06, random_state=0)
    yield "circles", *datasets.make_circles(400, noise=0.04, factor=0.4, random_state=0)
    for d in (1, 2, 10):
        yield f"one blob in {d}-d", rng.standard_normal((400, d)), np.zeros(400, int)
    yield "one square", rng.random((400, 2)), np.zeros(400, int)
    if "SMALLVAR_DATA" in os.environ:
        known = np.load(Path(os.environ["SMALLVAR_DATA"]) / "known_k" / "known_k.npz")
        for name in ("r15", "d31", "aggregation", "mk1", "s3", "lsun"):
            X, y = known[f"{name}.X"].astype(float), known[f"{name}.y"]
            few = np.flatnonzero(y > 0)[:: max(1, len(y) // 600)]
            yield name, X[few], y[few]


def kernels():
    """Spectral and kernel DP-means: "guess" knows the number, "matrix" has no rows to look at."""
    for name, X, y in kernel_sets():
        k, scikit, median = len(np.unique(y)), 1 / X.shape[1], np.median(pdist(X, "sqeuclidean"))
        estimators = {
            "SP now": SpectralDPMeans,
            "SP matrix": lambda g=1 / median: SpectralDPMeans(kernel=rbf_kernel, gamma=g),
            "SP guess": lambda k=k: SpectralDPMeans("spectrum", n_clusters=k),
            "SP before": lambda: SpectralDPMeans("farthest-first", kernel="linear"),
            "K now": KernelDPMeans,
            "K guess": lambda k=k: KernelDPMeans(n_clusters=k),
            "K 1/d": lambda g=scikit: KernelDPMeans(gamma=g),
        }
        yield Case(name, X, y, estimators)
    X, y = datasets.make_blobs(600, 5, centers=5, random_state=0)
    yield Case(
        "5 blobs, 6 groups", X, y, {"KHDP now": KernelHDPMeans}, {"groups": np.arange(600) % 6}
    )


HEADER = (
    f"{'data':24s} {'defaults':10s} {'found':>6s} {'true':>5s} {'ARI':>6s} {'NMI':>6s} {'s':>8s}"
)
FAMILIES = {"points": points, "kernels": kernels}


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("family", nargs="*", default=list(FAMILIES), help=", ".join(FAMILIES))
    for family in parser.parse_args().family:
        print(f"{family}: {FAMILIES[family].__doc__}")
        print(HEADER)
        for case in FAMILIES[family]():
            for which, make in case.estimators.items():
                model = make()
                if "random_state" in model.get_params():
                    model.set_params(random_state=0)
                k, true, ari, nmi, s = outcome(model, case)
                print(
                    f"{case.name:24s} {which:10s} {k:6d} {true:5d} {ari:6.3f} {nmi:6.3f} {s:8.2f}"
                )
        print()


if __name__ == "__main__":
    main()
