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

from smallvar import DPMeans


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


HEADER = (
    f"{'data':24s} {'defaults':10s} {'found':>6s} {'true':>5s} {'ARI':>6s} {'NMI':>6s} {'s':>8s}"
)
FAMILIES = {"points": points}


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
