"""How often is the number of clusters found? The README's comparison, on sets where it is known.

``python asv_bench/known_k.py`` fits ``DPMeans()``; with ``--rivals`` also what scikit-learn has for
this: HDBSCAN, a variational mixture of at most 30 Gaussians, and k-means with the number from 2 to
50 that has the best silhouette (which takes most of the time).

"real" are sets that scikit-learn ships. If the folder in SMALLVAR_DATA has known_k/known_k.npz, 26
sets more from M. Gagolewski's Clustering Benchmarks are among them: arrays NAME.X and NAME.y, the
true clusters from 1 on, 0 for noise. "generated" are mixtures made here.

``--battery FOLDER`` takes the sets of a checkout of github.com/gagolews/clustering-data-v1 instead:
files FOLDER/group/NAME.data.gz with rows and NAME.labels0.gz with the true clusters, from 1 on, 0
for noise. A set is compact if k-means from the true means keeps its clusters (ARI of at least 0.8);
compact sets and the others are summarized apart. The rivals are then HDBSCAN and k-means only.

``--save FILE`` appends each result to a file, as a line of JSON; what the file has already is taken
from there, so that a run that was ended goes on where it was.

Where a path has a ``confidence``, there is also how often the number found is the true one by
confidence, and the area under the ROC curve (AUC) of the confidence as a score of that.

Rows of noise are left out of the adjusted Rand index (ARI). A cluster counts if it has at least two
rows and at least 1% of the rows that a true cluster has on average; none at all counts as one.
"""

import argparse
import itertools
import json
import os
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.spatial.distance import cdist, pdist
from sklearn import datasets
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.metrics import adjusted_rand_score, roc_auc_score, silhouette_score
from sklearn.mixture import BayesianGaussianMixture
from sklearn.preprocessing import scale

from smallvar import DPMeans

NOISE = -1
COMPACT = 0.8  # least ARI of k-means from the true means where clusters are compact
COLUMNS = ("exact", "within 10%", "over twice", "K = 1", "ARI", "CPU s")
BINS = (0.0, 0.2, 0.5, 0.8, 1.0)  # of confidence


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


def gzipped(path):
    """Whether this is a gzip file, rather than missing or the pointer of a large-file storage."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def names_in(file):
    """Names of the sets in an .npz file of arrays NAME.X and NAME.y."""
    with np.load(file) as arrays:
        return {key[:-2] for key in arrays if key.endswith(".X")}


def battery(folder, left_out, most_rows):
    """Name -> file of rows and true clusters; reason -> names of the sets that are skipped.

    ``left_out`` has names of groups or sets, with or without their group.
    """
    sets, skipped = {}, {}
    for file in sorted(folder.glob("*/*.labels0.gz")):
        group, name = file.parent.name, file.name.removesuffix(".labels0.gz")
        data = file.with_name(f"{name}.data.gz")
        if left_out & {group, name, f"{group}/{name}"}:
            reason = "left out"
        elif not gzipped(file) or not gzipped(data):
            reason = "without a gzip file of rows or labels"
        elif len(truth := np.loadtxt(file, dtype=int, ndmin=1)) > most_rows:
            reason = f"of more than {most_rows:,} rows"
        else:
            sets[f"{group}/{name}"] = data, truth - 1
            continue
        skipped.setdefault(reason, []).append(f"{group}/{name}")
    return sets, skipped


def kind_of(X, truth):
    """Kind of a set of the battery: "compact" or "other"."""
    known = truth != NOISE
    means = np.array([X[truth == c].mean(axis=0) for c in np.unique(truth[known])])
    labels = KMeans(len(means), init=means, n_init=1).fit_predict(X)
    return "compact" if adjusted_rand_score(truth[known], labels[known]) >= COMPACT else "other"


def dpmeans_labels(X, seed):
    """Labels by DP-means, and the confidence in their number if the path has one."""
    model = DPMeans(random_state=seed).fit(X)
    return model.labels_, getattr(model.path_, "confidence", None)


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
    "smallvar DPMeans()": dpmeans_labels,
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


def result_of(method, X, truth, seed):
    """Result of a method on a set: a dict of plain numbers."""
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = FITS[method](X, seed)
    seconds = time.process_time() - begin
    labels, confidence = labels if isinstance(labels, tuple) else (labels, None)
    k, found, ari = judge(X, truth, labels)
    return {
        "n": len(X),
        "d": X.shape[1],
        "k": k,
        "found": found,
        "ari": round(float(ari), 6),
        "seconds": round(seconds, 3),
        "confidence": None if confidence is None else float(confidence),
    }


def in_words(result):
    """One line that tells a result."""
    words = "{method}, {set}: {k}, found {found}, ARI {ari:.3f}, {seconds:.2f} s".format(**result)
    if result["confidence"] is not None:
        words += f", confidence {result['confidence']:.2f}"
    return words


def summary_of(results):
    """Table with a line for each method and kind of set."""
    lines = [f"{'':48s}" + "".join(f"{column:>12s}" for column in COLUMNS)]
    for kind in dict.fromkeys(result["kind"] for result in results):
        for method in dict.fromkeys(result["method"] for result in results):
            rows = [r for r in results if (r["kind"], r["method"]) == (kind, method)]
            if not rows:
                continue
            k, found, ari, seconds = (
                np.array([row[name] for row in rows]) for name in ("k", "found", "ari", "seconds")
            )
            counts = (found == k, abs(found - k) <= 0.1 * k, found > 2 * k, (found == 1) & (k > 1))
            lines.append(
                f"{f'{method}, {len(rows)} {kind}':48s}"
                + "".join(f"{count.sum():12d}" for count in counts)
                + f"{ari.mean():12.3f}{seconds.sum():12.1f}"
            )
    return "\n".join(lines)


def calibration_of(results):
    """Lines that tell how often the number is the true one, by confidence."""
    confidence = np.array([result["confidence"] for result in results])
    exact = np.array([result["found"] == result["k"] for result in results])
    both = 0 < exact.sum() < len(exact)
    auc = f"AUC {roc_auc_score(exact, confidence):.3f}" if both else "no AUC: all alike"
    lines = [f"{len(exact)} sets, {exact.sum()} exact, {auc}"]
    which = np.digitize(confidence, BINS[1:-1])
    for i, (low, high) in enumerate(itertools.pairwise(BINS)):
        chosen = which == i
        if chosen.any():
            lines.append(
                f"    from {low} to {high}: {chosen.sum():4d} sets, {exact[chosen].mean():.2f} "
                f"of them exact, mean confidence {confidence[chosen].mean():.2f}"
            )
    return lines


def arguments():
    """Arguments of the command line, with the sets and methods that they ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--rivals", action="store_true", help="other estimators too")
    add("--seed", type=int, default=0, help="of all that is random")
    add("--save", type=Path, metavar="FILE", help="append results to this file, repeat none of it")
    add("--battery", type=Path, metavar="FOLDER", help="a checkout of clustering-data-v1")
    add("--skip", nargs="+", default=[], metavar="NAME", help="of the battery: sets or groups")
    add("--known", type=Path, metavar="FILE.npz", help="skip the sets that this file has, too")
    add("--most-rows", type=int, default=20_000, metavar="N", help="skip sets of more rows")
    options = parser.parse_args()
    methods = list(FITS) if options.rivals else list(FITS)[:1]
    if options.battery is None:
        kinds = {"real": real(), "generated": generated(options.seed)}
        sets = {(kind, title): rows for kind in kinds for title, rows in kinds[kind].items()}
        return options, methods, sets, {}
    left_out = set(options.skip) | (names_in(options.known) if options.known else set())
    sets, skipped = battery(options.battery, left_out, options.most_rows)
    if not sets and not skipped:
        parser.error(f"{options.battery} has no files group/NAME.labels0.gz")
    methods = [method for method in methods if FITS[method] is not mixture_labels]
    return options, methods, {(None, title): rows for title, rows in sets.items()}, skipped


def main():
    options, methods, sets, skipped = arguments()
    done, results = {}, []
    if options.save is not None and options.save.exists():
        for line in options.save.read_text(encoding="utf-8").splitlines():
            result = json.loads(line)
            done[result["set"], result["method"], result["seed"]] = result
    for (kind, title), (X, truth) in sets.items():
        for method in methods:
            result = done.get((title, method, options.seed))
            if result is None:
                if isinstance(X, Path):
                    X = np.loadtxt(X, ndmin=2)
                kind = kind or kind_of(X, truth)
                result = {"set": title, "kind": kind, "method": method, "seed": options.seed}
                result |= result_of(method, X, truth, options.seed)
                if options.save is not None:
                    with options.save.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(result) + "\n")
            results.append(result)
            print(in_words(result), flush=True)
    print()
    print(summary_of(results))
    sure = [result for result in results if result["confidence"] is not None]
    kinds = dict.fromkeys(result["kind"] for result in sure)
    for kind in [*kinds, "all"] if len(kinds) > 1 else kinds:
        chosen = [result for result in sure if kind in (result["kind"], "all")]
        first, *lines = calibration_of(chosen)
        print(f"\nconfidence, {kind}: {first}", *lines, sep="\n")
    for reason, names in skipped.items():
        print(f"\n{len(names)} sets {reason}: {', '.join(names)}")


if __name__ == "__main__":
    main()
