"""How many starts are worth it? Estimators whose starts are drawn at random, with 1 to 30 starts.

The sets are iris, wine, breast cancer (scaled) and 600 digits, and twelve generated ones of 2 to 8
long Gaussian clusters in 2 to 7 columns. "best" counts the sets for which so many starts have the
lowest objective of all four columns; "K" those whose number of clusters is the true one (given to
the second and third estimator); ARI is the adjusted Rand index; seconds are of the processor.

``python docs/reproductions/starts.py`` takes half a minute; ``--quick`` takes three sets.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import scale

from smallvar import MahalanobisMeans, SpectralDPMeans

STARTS = (1, 3, 10, 30)

MODELS = {
    "MahalanobisMeans()": lambda k: MahalanobisMeans(),
    "MahalanobisMeans(n_clusters=k)": lambda k: MahalanobisMeans(n_clusters=k),
    "the same, volume='clusters'": lambda k: MahalanobisMeans(n_clusters=k, volume="clusters"),
    "SpectralDPMeans()": lambda k: SpectralDPMeans(),
    "the same, rounding='kmeans'": lambda k: SpectralDPMeans(rounding="kmeans"),
}


def long_clusters(seed):
    """Rows and labels of Gaussian clusters, each long in directions of its own."""
    rng = np.random.default_rng(seed)
    k, d, n = (int(rng.integers(*bounds)) for bounds in ((2, 9), (2, 8), (150, 700)))
    labels = rng.integers(k, size=n)
    means = 4 * rng.normal(size=(k, d))
    shapes = rng.normal(size=(k, d, d)) / np.sqrt(d) + np.eye(d) / 2
    rows = np.einsum("nij,nj->ni", shapes[labels], rng.normal(size=(n, d)))
    return means[labels] + rows, labels


def sets(quick):
    """Rows and true labels of each set."""
    for load in (load_iris, load_wine, load_breast_cancer)[: 1 if quick else 3]:
        X, labels = load(return_X_y=True)
        yield scale(X), labels
    if not quick:
        X, labels = load_digits(return_X_y=True)
        yield X[:600], labels[:600]
    yield from map(long_clusters, range(2 if quick else 12))


def main():
    """Print a line for each estimator and number of starts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="three sets")
    options = parser.parse_args()
    data = list(sets(options.quick))
    print(f"{len(data)} sets\n\n{'':32s}starts  best   K    ARI  seconds")
    for name, make in MODELS.items():
        objective, right, agreement, seconds = np.zeros((4, len(STARTS), len(data)))
        for j, (X, labels) in enumerate(data):
            k = len(np.unique(labels))
            for i, n_init in enumerate(STARTS):
                begin = time.process_time()
                model = make(k).set_params(n_init=n_init, random_state=0).fit(X)
                seconds[i, j] = time.process_time() - begin
                objective[i, j] = model.objective_
                right[i, j] = model.n_clusters_ == k
                agreement[i, j] = adjusted_rand_score(labels, model.labels_)
        best = objective <= objective.min(axis=0) + 1e-9 * np.abs(objective.min(axis=0))
        for i, n_init in enumerate(STARTS):
            print(
                f"{name if i == 0 else '':32s}{n_init:6d}{best[i].sum():6d}{int(right[i].sum()):4d}"
                f"{agreement[i].mean():7.3f}{seconds[i].sum():9.1f}"
            )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
