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
from scipy.stats import special_ortho_group
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import scale

from smallvar import DPMeans, MahalanobisMeans


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


class Mixture(GaussianMixture):
    """With labels; of ``n_components`` or, where that is a range, as many as BIC says."""

    def fit(self, X):
        """The best of ten starts; of three for each number of a range."""
        if isinstance(self.n_components, int):
            super().fit(X)
            best = self
        else:
            tried = [GaussianMixture(k, n_init=3, random_state=0) for k in self.n_components]
            best = min((one.fit(X) for one in tried), key=lambda one: one.bic(X))
        self.labels_ = best.predict(X)
        return self


def long_set(number, stream=0):
    """2 to 6 Gaussian clusters in 2, 3, 5 or 10 dimensions, some 3 to 18 times as long as wide."""
    rng = np.random.default_rng([number, stream])
    d, k = (2, 3, 5, 10)[number % 4], 2 + number % 5
    centers = rng.normal(size=(k, d)) * (3.0 if d > 2 else 4.0)
    X, y = [], []
    for c in range(k):
        n = int(rng.integers(60, 300))
        spread = rng.uniform(0.5, 1.0, size=d)
        spread[0] = rng.uniform(3.0, 9.0)
        turn = special_ortho_group.rvs(d, random_state=int(rng.integers(1 << 30)))
        X.append(rng.normal(size=(n, d)) * spread @ turn + centers[c])
        y += [c] * n
    return f"long {number}: d={d}", np.vstack(X), np.array(y)


def shaped_sets():
    """Real sets, and those with known clusters of M. Gagolewski's collection that are not large."""
    for name in ("iris", "wine", "breast_cancer"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        yield name, scale(X), y
    path = Path(os.environ.get("SMALLVAR_DATA", "")) / "known_k" / "known_k.npz"
    if not path.is_file():
        return
    with np.load(path) as sets:
        for name in sorted({key.split(".")[0] for key in sets.files} - {"iris", "wine"}):
            X, y = sets[f"{name}.X"].astype(float), sets[f"{name}.y"].astype(int)
            if len(X) <= 2500 and X.shape[1] <= 16:
                yield name, X, np.where(y == 0, -1, y) if y.min() == 0 else y


def shapes(sets=None):
    """Clusters of any shape; those with a "K" are told their number."""
    for name, X, y in sets if sets is not None else map(long_set, range(12)):
        k = len(np.unique(y[y >= 0]))
        yield Case(
            name,
            X,
            y,
            {
                "now": MahalanobisMeans,
                "before": lambda: MahalanobisMeans(8, volume="clusters"),
                "now K": lambda k=k: MahalanobisMeans(k),
                "seeds K": lambda k=k: MahalanobisMeans(k, init="k-means++"),
                "before K": lambda k=k: MahalanobisMeans(k, volume="clusters"),
                "KMeans K": lambda k=k: KMeans(k, n_init=10),
                "mixture K": lambda k=k: Mixture(k, n_init=10),
                "BIC": lambda: Mixture(range(1, 13)),
            },
        )


def real_shapes():
    """The same on real sets, and on sets with clusters of many kinds, most of them compact."""
    yield from shapes(shaped_sets())


HEADER = (
    f"{'data':24s} {'defaults':10s} {'found':>6s} {'true':>5s} {'ARI':>6s} {'NMI':>6s} {'s':>8s}"
)
FAMILIES = {"points": points, "shapes": shapes, "real_shapes": real_shapes}


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("family", nargs="*", default=list(FAMILIES), help=", ".join(FAMILIES))
    for family in parser.parse_args().family:
        print(f"{family}: {FAMILIES[family].__doc__}")
        print(HEADER)
        lines = {}
        for case in FAMILIES[family]():
            for which, make in case.estimators.items():
                model = make()
                if "random_state" in model.get_params():
                    model.set_params(random_state=0)
                k, true, ari, nmi, s = outcome(model, case)
                lines.setdefault(which, []).append((k == true, k > true, ari, nmi, s))
                print(
                    f"{case.name:24s} {which:10s} {k:6d} {true:5d} {ari:6.3f} {nmi:6.3f} {s:8.2f}"
                )
        for which, all_of in lines.items():
            right, more, ari, nmi, s = np.mean(all_of, axis=0)
            print(
                f"{'mean':24s} {which:10s} {right:6.2f} {more:5.2f} {ari:6.3f} {nmi:6.3f} {s:8.2f}"
            )
        print("(in the mean: how often as many clusters as there are, and how often more)\n")


if __name__ == "__main__":
    main()
