"""How often is the number of clusters found? The README's comparison, on sets where it is known.

``python asv_bench/known_k.py`` fits ``DPMeans()``; with ``--rivals`` also what scikit-learn has for
this: HDBSCAN, a variational mixture of at most 30 Gaussians, and k-means with the number from 2 to
50 that has the best silhouette (which takes most of the time).

"real" are sets that scikit-learn ships. If the folder in SMALLVAR_DATA has known_k/known_k.npz, 26
sets more from M. Gagolewski's Clustering Benchmarks are among them: arrays NAME.X and NAME.y, the
true clusters from 1 on, 0 for noise. "generated" are mixtures made here.

Rows of noise are left out of the adjusted Rand index (ARI). A cluster counts if it has at least two
rows and at least 1% of the rows that a true cluster has on average; none at all counts as one.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.spatial.distance import cdist, pdist
from sklearn import datasets
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.mixture import BayesianGaussianMixture
from sklearn.preprocessing import scale

from smallvar import DPMeans

NOISE = -1
COLUMNS = ("exact", "ARI", "over twice", "wrongly 1", "CPU s")


def real():
    """Name -> rows and true clusters."""
    iris, wine = datasets.load_iris(), datasets.load_wine()
    cancer, digits = datasets.load_breast_cancer(), datasets.load_digits()
    sets = {
        "iris": (iris.data, iris.target),
        "iris, scaled": (scale(iris.data), iris.target),
        "wine": (wine.data, wine.target),
        "wine, scaled": (scale(wine.data), wine.target),
        "breast cancer, scaled": (scale(cancer.data), cancer.target),
        "digits": (digits.data, digits.target),
    }
    file = Path(os.environ.get("SMALLVAR_DATA", "."), "known_k", "known_k.npz")
    if file.exists():
        with np.load(file) as arrays:
            for name in sorted({key[:-2] for key in arrays} - set(sets)):
                sets[name] = arrays[f"{name}.X"].astype(float), arrays[f"{name}.y"] - 1
    return sets


def far_apart(k, d, gap, rng):
    """So many points in a cube, the two nearest of them ``gap`` apart."""
    points = rng.uniform(size=(1, d))
    while len(points) < k:
        drawn = rng.uniform(size=(20, d))
        points = np.vstack([points, drawn[cdist(drawn, points).min(axis=1).argmax()]])
    return points * (gap / pdist(points).min()) if k > 1 else points


SHAPES = {  # mean 0, variance 1 in each column
    "round": lambda rng, size: rng.normal(size=size),
    "heavy tails": lambda rng, size: rng.standard_t(5, size=size) / np.sqrt(5 / 3),
    "cubes": lambda rng, size: rng.uniform(-np.sqrt(3), np.sqrt(3), size=size),
    "skewed": lambda rng, size: rng.gamma(3, size=size) / np.sqrt(3) - np.sqrt(3),
}


def mixture(rng, n, d, k, shape="round", gap=7, sizes=1, spreads=1, long=None, noise=0.0, far=0):
    """Rows and true clusters: ``k`` clusters in ``d`` columns, centers at least ``gap`` apart.

    ``sizes`` and ``spreads`` are the largest one divided by the smallest; ``long``: "alike" or
    "each" in directions of its own; ``noise``: a share of rows anywhere, ``far``: so many far away.
    """
    share = rng.permutation(np.geomspace(1, sizes, k))
    truth = rng.choice(k, size=n, p=share / share.sum())
    X = SHAPES[shape](rng, (n, d))
    if long:
        lengths = np.geomspace(1, 3, d)
        for c in range(k):
            if c == 0 or long == "each":
                turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
            X[truth == c] = (X[truth == c] * lengths / lengths.mean()) @ turn
    X *= rng.permutation(np.geomspace(1, spreads, k) / np.sqrt(spreads))[truth, None]
    X += far_apart(k, d, gap, rng)[truth]
    lost = rng.permutation(n)[: int(noise * n)]
    X[lost] = rng.uniform(X.min(axis=0), X.max(axis=0), size=(len(lost), d))
    away = rng.permutation(n)[:far]
    X[away] = X.mean(axis=0) + 30 * np.sqrt(d) * rng.normal(size=(len(away), d))
    truth[lost] = truth[away] = NOISE
    return X, truth


def generated(seed):
    """Name -> rows and true clusters, each set from a generator of its own."""
    sets = {}

    def add(name, n, d, k, **options):
        rng = np.random.default_rng([seed, len(sets)])
        sets[f"{k}, {name}, {n} x {d}"] = mixture(rng, n, d, k, **options)

    for shape in SHAPES:
        for d in (2, 16):
            add(shape, 1000, d, 1, shape=shape)
    add("long", 2000, 16, 1, long="alike")
    add("few rows", 30, 4, 1)
    for n, d, k in ((30, 2, 3), (60, 30, 3), (3000, 2, 30), (5000, 8, 60), (2000, 64, 12)):
        add("round", n, d, k)
    for d, k in ((2, 6), (8, 10), (32, 8)):
        add("close", 2000, d, k, gap=5)
        for shape in ("heavy tails", "cubes", "skewed"):
            add(shape, 2000, d, k, shape=shape)
        add("sizes 1 to 20", 2000, d, k, sizes=20)
        add("spreads 1 to 3", 2000, d, k, spreads=3, gap=9)
        for long in ("alike", "each"):
            add(f"long, {long}", 2000, d, k, long=long)
        add("10% noise", 2000, d, k, noise=0.1, gap=9)
        add("10 rows far away", 2000, d, k, far=10)
    return sets


def mixture_labels(X, seed):
    """Labels by a variational mixture of at most 30 Gaussians."""
    most = min(30, len(X) // 2)
    model = BayesianGaussianMixture(n_components=most, max_iter=300, random_state=seed)
    return model.fit_predict(X)


def silhouette_labels(X, seed):
    """Labels by k-means with the number from 2 to 50 that has the best silhouette."""
    best, found = -2.0, None
    for k in range(2, min(51, len(X))):
        labels = KMeans(k, n_init=3, random_state=seed).fit_predict(X)
        score = silhouette_score(X, labels, sample_size=min(len(X), 3000), random_state=seed)
        if score > best:
            best, found = score, labels
    return found


FITS = {
    "smallvar DPMeans()": lambda X, seed: DPMeans(random_state=seed).fit_predict(X),
    "HDBSCAN()": lambda X, seed: HDBSCAN(copy=True).fit_predict(X),
    "BayesianGaussianMixture(30)": mixture_labels,
    "KMeans, best silhouette": silhouette_labels,
}


def judge(X, truth, labels):
    """True number, number found, and agreement."""
    known = truth != NOISE
    k = int(truth.max()) + 1
    counts = np.bincount(labels[labels >= 0], minlength=1)
    found = max(1, int((counts >= max(2, 0.01 * len(X) / k)).sum()))
    if k == 1:
        return k, found, float(found == 1)
    return k, found, adjusted_rand_score(truth[known], labels[known])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rivals", action="store_true", help="other estimators too")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random")
    options = parser.parse_args()
    names = list(FITS) if options.rivals else list(FITS)[:1]
    kinds = {"real": real(), "generated": generated(options.seed)}
    table = []
    for kind, sets in kinds.items():
        for name in names:
            rows = []
            for title, (X, truth) in sets.items():
                begin = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    labels = FITS[name](X, options.seed)
                seconds = time.process_time() - begin
                k, found, ari = judge(X, truth, labels)
                rows.append((found == k, ari, found > 2 * k, found == 1 < k, seconds))
                line = f"{name}, {title}: {k}, found {found}, ARI {ari:.3f}, {seconds:.2f} s"
                print(line, flush=True)
            exact, ari, twice, one, seconds = zip(*rows, strict=True)
            summary = (sum(exact), np.mean(ari), sum(twice), sum(one), sum(seconds))
            table.append((f"{name}, {len(sets)} {kind}", summary))
    print()
    print(f"{'':48s}" + "".join(f"{column:>12s}" for column in COLUMNS))
    for name, (exact, ari, twice, one, seconds) in table:
        print(f"{name:48s}{exact:12d}{ari:12.3f}{twice:12d}{one:12d}{seconds:12.1f}")


if __name__ == "__main__":
    main()
