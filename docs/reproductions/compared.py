"""smallvar beside scikit-learn and HDBSCAN: what finds the clusters of which data.

Each block is a kind of data, eight sets of 400 to 1,200 rows each, but for the last blocks:

- ``single``: one cloud (normal, uniform, skewed or long);
- ``round``: 2 to 7 normal clusters of variance 1, means 4.5 to 7 apart at least;
- ``long``: the same, with a standard deviation of 3 in one direction of each, and .6 in the others;
- ``any shape``: moons, rings, three waves and two spirals;
- ``noise``: round clusters, and a fifth as many rows drawn evenly over a box (left out of ARI);
- ``mixed table``: numbers, amounts, words and flags, a tenth of the cells missing. The methods of
  others get medians and the most frequent word for gaps, columns of 0 and 1 for words, and numbers
  transformed to be about normal (Yeo-Johnson) and scaled;
- ``text``: word counts of topics as tf-idf, 20 columns of ``TruncatedSVD`` for all methods, with
  rows scaled to length 1;
- ``number known``: round and long clusters, k given to all methods that take it;
- ``many rows``: one set of 200,000 rows, 8 columns and 20 clusters, with ``MiniBatchKMeans`` and
  ``KMeans`` that are given k. HDBSCAN gets 20,000 of the rows, since its time grows faster.

"right" are the sets with the true number of clusters, where clusters of less than .5% of the rows
do not count, and noise alone counts as one. ARI is the adjusted Rand index. "time" is processor
time in units of the first line of the block, "memory" (many rows) the largest memory of the fit
beyond the rows, in units of the rows. `KMeans` takes the number from 2 to 12 with the best
silhouette, `GaussianMixture` from 1 to 12 with the lowest BIC; HDBSCAN is that of scikit-learn, as
it is, and with ``min_cluster_size=n / 50, min_samples=10``.

At the end: **new rows**, the ARI of half of the rows that were not fitted, in the sets of ``round``
with the number given; **probabilities**, for clusters that overlap, with the number given, how far
the mean of the largest probability is from the share of rows that it is right for, by tenths of
that probability; and **weights**, the ARI of a fit with weights 1, 2 and 3 and one of rows
repeated so often.

``python docs/reproductions/compared.py`` takes some minutes; ``--quick`` takes two sets of each.
"""

import argparse
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import (
    HDBSCAN,
    AgglomerativeClustering,
    KMeans,
    MiniBatchKMeans,
    SpectralClustering,
)
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import make_circles, make_moons
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PowerTransformer, normalize

from smallvar import (
    DPMeans,
    MahalanobisMeans,
    MixedDPMeans,
    RobustDPMeans,
    ShapeMeans,
    SphericalDPMeans,
)

SETS, MOST, LEAST_SHARE = 8, 12, 0.005


# Data: rows and true labels, -1 for noise -----------------------------------------------------


def means_apart(rng, k, d, gap):
    """Means of clusters, no two nearer than ``gap``."""
    while True:
        means = rng.uniform(-1, 1, size=(k, d)) * gap * k ** (1 / d)
        squares = ((means[:, None] - means) ** 2).sum(axis=2)
        if np.sqrt(squares[~np.eye(k, dtype=bool)].min(initial=np.inf)) >= gap:
            return means


def round_clusters(rng, gap=None):
    gap = rng.uniform(4.5, 7) if gap is None else gap
    k, d, n = (int(rng.integers(*bounds)) for bounds in ((2, 8), (2, 7), (400, 1201)))
    labels = rng.choice(k, size=n, p=rng.dirichlet(np.full(k, 6.0)))
    return means_apart(rng, k, d, gap)[labels] + rng.normal(size=(n, d)), labels


def long_clusters(rng):
    k, d, n = (int(rng.integers(*bounds)) for bounds in ((2, 7), (2, 5), (400, 1201)))
    labels = rng.integers(k, size=n)
    turns = np.linalg.qr(rng.normal(size=(k, d, d)))[0] * np.r_[3.0, np.full(d - 1, 0.6)]
    rows = np.einsum("nj,nij->ni", rng.normal(size=(n, d)), turns[labels])
    return means_apart(rng, k, d, rng.uniform(4.5, 7))[labels] + rows, labels


def any_shape(rng, number):
    n, seed = int(rng.integers(400, 1201)), int(rng.integers(1 << 31))
    if number % 4 == 0:
        return make_moons(n, noise=0.08, random_state=seed)
    if number % 4 == 1:
        return make_circles(n, noise=0.05, factor=0.5, random_state=seed)
    if number % 4 == 2:
        labels, x = rng.integers(3, size=n), rng.uniform(0, 10, size=n)
        return np.column_stack([x, 2 * np.sin(x) + 3 * labels + rng.normal(0, 0.2, n)]), labels
    labels, angle = rng.integers(2, size=n), 3 * np.pi * np.sqrt(rng.uniform(0.03, 1, size=n))
    arm = (angle * (1 - 2 * labels))[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return arm + rng.normal(0, 0.3, size=(n, 2)), labels


def single(rng, number):
    n, d = int(rng.integers(400, 1201)), int(rng.integers(2, 7))
    rows = [
        rng.normal(size=(n, d)),
        rng.uniform(size=(n, d)),
        rng.gamma(2.0, size=(n, d)),
        rng.normal(size=(n, d)) * np.r_[4.0, np.ones(d - 1)],
    ]
    return rows[number % 4], np.zeros(n, dtype=int)


def noisy(rng):
    X, labels = round_clusters(rng, gap=7.0)
    far = rng.uniform(X.min(axis=0) - 3, X.max(axis=0) + 3, size=(len(X) // 5, X.shape[1]))
    return np.vstack([X, far]), np.r_[labels, np.full(len(far), -1)]


def mixed_table(rng):
    k, n = int(rng.integers(2, 6)), int(rng.integers(400, 1201))
    labels = rng.integers(k, size=n)
    words = np.array(["red", "green", "blue", "white", "black"])
    favorite = np.where(rng.random(n) < 0.75, rng.permutation(5)[labels], rng.integers(5, size=n))
    table = pd.DataFrame(
        {
            "size": rng.permutation(k)[labels] * 12.0 + rng.normal(50, 4, size=n),
            "price": np.exp(rng.permutation(k)[labels] + rng.normal(3, 0.4, size=n)).round(2),
            "color": words[favorite],
            "member": rng.random(n) < rng.uniform(0.1, 0.9, size=k)[labels],
            "age": rng.integers(18, 80, size=n),
        }
    ).astype({"color": object, "member": object, "age": float})
    return table.mask(rng.random(table.shape) < 0.1), labels


def text(rng):
    """Rows of 200 words, drawn from 3,000 by their topic."""
    k, n = int(rng.integers(3, 8)), int(rng.integers(400, 1201))
    labels = rng.integers(k, size=n)
    common = 1 / np.arange(1.0, 3001)
    topics = common * rng.gamma(1.0, size=(k, 3000))
    topics /= topics.sum(axis=1, keepdims=True)
    counts = np.array([rng.multinomial(200, topics[label]) for label in labels])
    rows = TruncatedSVD(20, random_state=0).fit_transform(TfidfTransformer().fit_transform(counts))
    return normalize(rows), labels


# Methods: labels -----------------------------------------------------------------------------


def silhouette(X):
    """Labels of k-means with the best silhouette."""
    found = [KMeans(k, n_init=10, random_state=0).fit_predict(X) for k in range(2, MOST + 1)]
    return max(found, key=lambda labels: silhouette_score(X, labels))


def mixture(X, n_clusters=None):
    """Labels of the Gaussian mixture with the lowest BIC."""
    counts = range(1, MOST + 1) if n_clusters is None else [n_clusters]
    models = [GaussianMixture(k, n_init=3, random_state=0).fit(X) for k in counts]
    return min(models, key=lambda model: model.bic(X)).predict(X)


def hdbscan(X):
    return HDBSCAN(copy=True).fit_predict(X)


def tuned_hdbscan(X):
    size = max(5, len(X) // 50)
    return HDBSCAN(min_cluster_size=size, min_samples=10, copy=True).fit_predict(X)


OTHERS = {
    "KMeans, best silhouette": silhouette,
    "GaussianMixture, lowest BIC": mixture,
    "HDBSCAN()": hdbscan,
    "HDBSCAN, n / 50 and 10": tuned_hdbscan,
}


def fitted(model):
    """A function that returns the labels of the model."""
    return lambda X: model.set_params(random_state=0).fit_predict(X)


def encoded(method):
    """The method for a table: gaps filled, numbers made normal, words as columns of 0 and 1."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), PowerTransformer())
    words = make_pipeline(
        SimpleImputer(strategy="most_frequent", missing_values=np.nan),
        OneHotEncoder(sparse_output=False),
    )

    def run(table):
        table = table.assign(member=table["member"].map({True: "yes", False: "no"}))
        columns = make_column_transformer(
            (numbers, make_column_selector(dtype_include=float)),
            (words, make_column_selector(dtype_exclude=float)),
        )
        return method(columns.fit_transform(table))

    return run


BLOCKS = {
    "single": (single, {"DPMeans()": DPMeans(), "ShapeMeans()": ShapeMeans()}),
    "round": (round_clusters, {"DPMeans()": DPMeans(), "ShapeMeans()": ShapeMeans()}),
    "long": (long_clusters, {"MahalanobisMeans()": MahalanobisMeans(), "DPMeans()": DPMeans()}),
    "any shape": (any_shape, {"ShapeMeans()": ShapeMeans(), "DPMeans()": DPMeans()}),
    "noise": (noisy, {"RobustDPMeans()": RobustDPMeans(), "DPMeans()": DPMeans()}),
    "mixed table": (mixed_table, {"MixedDPMeans()": MixedDPMeans()}),
    "text": (text, {"SphericalDPMeans()": SphericalDPMeans(), "DPMeans()": DPMeans()}),
}

KNOWN = {
    "DPMeans(n_clusters=k)": lambda X, k: DPMeans(n_clusters=k, random_state=0).fit_predict(X),
    "MahalanobisMeans(k)": lambda X, k: MahalanobisMeans(k, random_state=0).fit_predict(X),
    "KMeans(k)": lambda X, k: KMeans(k, n_init=10, random_state=0).fit_predict(X),
    "GaussianMixture(k)": mixture,
    "AgglomerativeClustering(k)": lambda X, k: AgglomerativeClustering(k).fit_predict(X),
    "SpectralClustering(k)": lambda X, k: SpectralClustering(k, random_state=0).fit_predict(X),
}


# Measures ------------------------------------------------------------------------------------


def sets(make, number):
    """Rows and labels of the sets of a kind; the seeds are of this script alone."""
    numbered = make in (any_shape, single)
    for i in range(number):
        rng = np.random.default_rng([48, i])
        yield make(rng, i) if numbered else make(rng)


def judge(labels, truth):
    """Whether the number is right, and the ARI without rows of noise."""
    sizes = np.bincount(labels[labels >= 0]) if (labels >= 0).any() else np.array([len(labels)])
    found = max(1, int((sizes >= LEAST_SHARE * len(labels)).sum()))
    known = truth >= 0
    return found == truth.max() + 1, adjusted_rand_score(truth[known], labels[known])


def block(title, methods, data):
    """Print a line for each method: right numbers, mean ARI and processor time."""
    print(f"\n{title:16s}{len(data):2d} sets              right    ARI     time")
    unit = None
    for name, method in methods.items():
        begin = time.process_time()
        results = [judge(method(*args), truth) for *args, truth in data]
        seconds = time.process_time() - begin
        unit = unit or seconds
        right, agreement = np.mean(results, axis=0)
        right = round(right * len(data))
        print(f"  {name:32s}{right:3d}{agreement:9.2f}{seconds / unit:9.1f}", flush=True)


LARGE = {
    "DPMeans()": (DPMeans, {}, 1),
    "DPMeans(n_clusters=k)": (DPMeans, {"n_clusters": 20}, 1),
    "KMeans(k)": (KMeans, {"n_clusters": 20, "n_init": 1}, 1),
    "MiniBatchKMeans(k)": (MiniBatchKMeans, {"n_clusters": 20, "n_init": 1}, 1),
    "HDBSCAN(), a tenth of the rows": (HDBSCAN, {"copy": True}, 10),
}


def memory(field):
    """What Linux says of the memory of this process, in bytes; NaN elsewhere."""
    path = Path("/proc/self/status")
    if not path.exists():
        return np.nan
    return 1024.0 * int(re.search(rf"{field}:\s+(\d+) kB", path.read_text())[1])


def large(name, quick):
    """Fit a method to the large set; print what is found, seconds, and memory beyond the rows."""
    rng, n, k = np.random.default_rng(48), 20_000 if quick else 200_000, 20
    truth = rng.integers(k, size=n)
    X = means_apart(rng, k, 8, 8.0)[truth] + rng.normal(size=(n, 8))
    make, options, step = LARGE[name]
    X, truth, model = np.ascontiguousarray(X[::step]), truth[::step], make(**options)
    if name != "HDBSCAN(), a tenth of the rows":
        model.set_params(random_state=0)
    if Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")  # the peak is what is taken now
    before = memory("VmRSS")
    begin = time.process_time()
    labels = model.fit_predict(X)
    seconds = time.process_time() - begin
    size = memory("VmHWM") - before
    right, agreement = judge(labels, truth)
    print(int(right), agreement, seconds, size / X.nbytes)


def many_rows(quick):
    """The block of one large set, each method in a process of its own."""
    unit = None
    rows = "20,000" if quick else "200,000"
    print(f"\nmany rows        {rows} rows       right    ARI     time   memory")
    for name in LARGE:
        command = [sys.executable, __file__, "--large", name, *(["--quick"] if quick else [])]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        right, agreement, seconds, size = map(float, printed.split())
        unit = unit or seconds
        told = f"  {name:32s}{'yes' if right else 'no':>3s}{agreement:9.2f}"
        print(f"{told}{seconds / unit:9.1f}{size:9.1f}", flush=True)


def matched(labels, truth):
    """The true label that each label stands for."""
    table = contingency_matrix(truth, labels)
    rows, columns = linear_sum_assignment(-table)
    return dict(zip(columns.tolist(), rows.tolist(), strict=True))


def calibration(probabilities, truth):
    """Mean distance of the largest probability from how often it is right, by tenths."""
    chosen, sure = probabilities.argmax(axis=1), probabilities.max(axis=1)
    names = matched(chosen, truth)
    right = np.array([names.get(label, -1) for label in chosen.tolist()]) == truth
    tenths = np.minimum((10 * sure).astype(int), 9)
    return sum(
        abs((sure[tenths == t] - right[tenths == t]).sum()) for t in np.unique(tenths)
    ) / len(truth)


def other_abilities(number):
    """New rows, probabilities and weights."""
    models = {
        "DPMeans(n_clusters=k)": lambda k: DPMeans(n_clusters=k, random_state=0),
        "MahalanobisMeans(k)": lambda k: MahalanobisMeans(k, random_state=0),
        "KMeans(k)": lambda k: KMeans(k, n_init=10, random_state=0),
        "GaussianMixture(k)": lambda k: GaussianMixture(k, n_init=3, random_state=0),
    }
    print("\nmethod                          new rows   probabilities   weights")
    apart = list(sets(round_clusters, number))
    overlap = list(sets(lambda rng: round_clusters(rng, gap=3.0), number))
    for name, make in models.items():
        new, sure, weighted = [], [], []
        for X, truth in apart:
            model = make(truth.max() + 1).fit(X[::2])
            new.append(adjusted_rand_score(truth[1::2], model.predict(X[1::2])))
        for X, truth in overlap:
            model = make(truth.max() + 1).fit(X)
            if hasattr(model, "predict_proba"):
                sure.append(calibration(model.predict_proba(X), truth))
            weights = 1 + np.arange(len(X)) % 3
            if name != "GaussianMixture(k)":
                few = model.fit(X, sample_weight=weights).predict(X)
                many = model.fit(np.repeat(X, weights, axis=0)).predict(X)
                weighted.append(adjusted_rand_score(few, many))
        cells = [f"{np.mean(values):.3f}" if values else "none" for values in (new, sure, weighted)]
        print(f"{name:32s}{cells[0]:>8s}{cells[1]:>16s}{cells[2]:>10s}", flush=True)
    print(f"{'HDBSCAN()':32s}{'none':>8s}{'none':>16s}{'none':>10s}")


def main():
    """Print the blocks."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two sets of each kind")
    parser.add_argument("--large", choices=LARGE, help="only this method, for many rows")
    options = parser.parse_args()
    if options.large:
        large(options.large, options.quick)
        return
    number = 2 if options.quick else SETS
    for title, (make, ours) in BLOCKS.items():
        others = OTHERS
        if title == "mixed table":
            others = {name: encoded(method) for name, method in OTHERS.items()}
        methods = {name: fitted(model) for name, model in ours.items()} | others
        block(title, methods, list(sets(make, number)))
    known = [
        (X, int(truth.max()) + 1, truth)
        for make in (round_clusters, long_clusters)
        for X, truth in sets(make, number)
    ]
    block("number known", KNOWN, known)
    many_rows(options.quick)
    other_abilities(number)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
