"""What every estimator makes of data and nothing else, now and with its former defaults.

    SMALLVAR_DATA=folder python docs/reproductions/defaults.py [family ...]

prints a table for each family: clusters found and there, agreement with the truth (adjusted Rand
index, normalized mutual information) and seconds. Sets that need files are left out without them.
"""

import argparse
import time
from dataclasses import dataclass, field

import numpy as np
from sklearn import datasets
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.preprocessing import scale

from smallvar import DPMeans, farthest_first_lambda


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


def add_outliers(X, n_outliers, where, seed=0):
    """Rows in all directions, 3 to 10 times as far out as the data reach, or in a clump."""
    rng = np.random.default_rng(seed)
    low, high = X.min(axis=0), X.max(axis=0)
    reach = np.linalg.norm(high - low) / 2
    way = rng.normal(size=(1 if where == "clump" else n_outliers, X.shape[1]))
    way /= np.linalg.norm(way, axis=1)[:, None]
    if where == "clump":
        rows = 6 * reach * way + 0.1 * X.std(axis=0) * rng.normal(size=(n_outliers, X.shape[1]))
    else:
        rows = reach * rng.uniform(3, 10, size=(n_outliers, 1)) * way
    return np.vstack([X, (low + high) / 2 + rows])


def outliers():
    """Farthest-first with rows far away, for the true number as the guess."""
    sets = {}
    for name in ("iris", "wine", "breast_cancer", "digits"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        sets[name] = X if name == "digits" else scale(X), y
    sets["8 blobs"] = datasets.make_blobs(1000, 2, centers=8, cluster_std=0.3, random_state=0)
    sets["12 blobs, 8-d"] = datasets.make_blobs(2000, 8, centers=12, random_state=0)
    sets["20 blobs, 16-d"] = datasets.make_blobs(3000, 16, centers=20, random_state=0)
    centers = [(0, 0), (7, 1), (3, 6), (-5, 5), (9, 8), (-6, -4), (4, -5)]
    sizes = [300, 200, 150, 100, 60, 40, 30]
    sets["30 to 300 rows"] = datasets.make_blobs(sizes, 2, centers=centers, random_state=0)
    X, y = datasets.make_blobs(1000, 2, centers=5, cluster_std=0.4, random_state=3)
    sets["on a grid"] = np.round(2 * X) / 2, y
    X, y = datasets.make_blobs(200, 2, centers=5, cluster_std=0.4, random_state=4)
    sets["five copies"] = np.repeat(X, 5, axis=0), np.repeat(y, 5)
    for name, (X, y) in sets.items():
        k = len(np.unique(y))
        for n_outliers, where in ((0, "far"), (5, "far"), (20, "far"), (5, "clump"), (20, "clump")):
            data = add_outliers(X, n_outliers, where)
            published = farthest_first_lambda(data, k, count_alone=True)
            models = {
                "now": lambda k=k: DPMeans("farthest-first", n_clusters=k),
                "before": lambda lam=published: DPMeans(lam),
            }
            label = name if n_outliers == 0 else f"{name}, {n_outliers} {where}"
            yield Case(label, data, np.append(y, np.full(n_outliers, -1)), models)


HEADER = (
    f"{'data':24s} {'defaults':10s} {'found':>6s} {'true':>5s} {'ARI':>6s} {'NMI':>6s} {'s':>8s}"
)
FAMILIES = {"points": points, "outliers": outliers}


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
