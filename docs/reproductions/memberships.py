"""Are probabilities of clusters right, and do outlier scores find outliers?

**Probabilities.** A model is fitted to one half of the rows of a set; ``predict_proba`` of the
other half is held against the true clusters, each cluster matched with one true cluster. The rows
are collected in bins by the probability of their most likely cluster: it is calibrated if the mean
probability of a bin is the share of its rows that are in the right cluster. The Brier score is the
mean squared difference of all probabilities of a row from 0 and 1. The sets are Gaussian clusters
(round, with shared or own covariances, of unequal size or spread, pairs that overlap), clusters of
t distributions with 3 and 5 degrees of freedom, skewed ones (gamma, lognormal), discrete ones
(counts, scores, flags), and labeled tables. ``HDBSCAN()`` has no probabilities of new rows, so its
own of the first half are taken: they are strengths of membership and not meant as chances.

**Outlier scores.** Outliers, 1, 5 or 20% of the rows, are added to generated clusters: evenly in
the bounding box, made wider by a fifth ("box"), beyond the reach of a cluster by 2.5 to 5 of its
standard deviations ("local"), between two clusters, far from all, or scattered by a t distribution
with two degrees of freedom around a center. In labeled tables the smallest class, with a twentieth
of the other rows at most, is taken for outliers. The table has the mean area under the ROC curve
(AUC). GLOSH, the scores of the package hdbscan, is left out where that is not installed.

The tables are read from real_tables/numeric.npz in the folder SMALLVAR_DATA (see number.py);
without the file they are left out. ``python docs/reproductions/memberships.py`` takes some ten
minutes of one core; ``--quick`` takes a few generated sets of one seed.
"""

import argparse
import itertools
import warnings
import zlib
from importlib.util import find_spec

import numpy as np
from number import clusters, discrete, gaussian, heavy, long, pair, skewed, tables
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import HDBSCAN
from sklearn.ensemble import IsolationForest
from sklearn.metrics import adjusted_rand_score, confusion_matrix, roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import LocalOutlierFactor

from smallvar import DPMeans, MahalanobisMeans, MixedDPMeans, RobustDPMeans

BINS = (0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1)
FEW = 500  # a bin with fewer rows is not shown
MOST_ROWS, MOST_COLUMNS = 3000, 60  # of a labeled table whose outliers are looked for
KINDS = ("box", "local", "between", "far", "t")


def one_longer(rng, n, d):
    """Gaussian, twice as long in the first column."""
    return rng.normal(size=(n, d)) * np.r_[2, np.ones(d - 1)]


def tails(rng, n, d):
    """Rows of a t distribution with five degrees of freedom."""
    return rng.normal(size=(n, d)) / np.sqrt(rng.chisquare(5, size=(n, 1)) / 5)


def lognormal(rng, n, d):
    return np.exp(0.5 * rng.normal(size=(n, d))) / 0.6


def generated(seed):
    """Kind, name, rows and true clusters, each set from a generator of its own, in random order."""
    recipes = []

    def add(kind, name, make, *arguments, **options):
        recipes.append((kind, name, make, arguments, options))

    for k, d in ((3, 2), (5, 3), (8, 2), (4, 6), (6, 12)):
        for gap in (2, 3, 4, 5, 6):
            add("Gaussian", f"round {k} {d} {gap}", clusters, k, d, gap, n=200)
    for k, d in ((3, 2), (4, 4), (5, 8)):
        for gap in (4, 6):
            shared, own = {"shape": one_longer}, {"shape": long}
            add("Gaussian", f"shared {k} {d} {gap}", clusters, k, d, gap, n=200, **shared)
            add("Gaussian", f"own {k} {d} {gap}", clusters, k, d, gap, n=200, **own)
            for shape in (heavy, tails):
                name = f"{shape.__name__} {k} {d} {gap}"
                add("t", name, clusters, k, d, gap + 2, shape=shape, n=200)
            for shape in (skewed, lognormal):
                name = f"{shape.__name__} {k} {d} {gap}"
                add("skewed", name, clusters, k, d, gap, shape=shape, n=200)
        add("Gaussian", f"sizes {k} {d}", clusters, k, d, 4.5, ratio=10, n=200)
        add("Gaussian", f"spreads {k} {d}", clusters, k, d, 7, spread=3, n=200)
    for d, gap, share in itertools.product((2, 10), (2.5, 3, 4), (0.5, 0.25)):
        add("Gaussian", f"pair {d} {gap} {share}", pair, d, gap, share)
    for (kind, d), k in itertools.product((("counts", 8), ("scores", 12), ("flags", 25)), (3, 6)):
        add("discrete", f"{kind} {k}", discrete, k, d, kind)
    for i, (kind, name, make, arguments, options) in enumerate(recipes):
        rng = np.random.default_rng([seed, i])
        X, truth = make(rng, *arguments, **options)
        order = rng.permutation(len(X))
        yield kind, name, X[order], truth[order]


def halves(X, truth, seed):
    """Rows and clusters of two random halves."""
    order = np.random.default_rng(seed).permutation(len(X))
    one, two = order[: len(X) // 2], order[len(X) // 2 :]
    return X[one], truth[one], X[two], truth[two]


def fitted(estimator):
    """Probabilities of rows by an estimator with predict_proba."""

    def probabilities(fit, fit_truth, rows, truth):
        return estimator(fit_truth.max() + 1).fit(fit).predict_proba(rows), truth

    return probabilities


def strengths(fit, fit_truth, rows, truth):
    """Those of HDBSCAN for the rows of the fit: 0 in all clusters but one, or in all."""
    model = HDBSCAN(copy=True).fit(fit)
    P = np.zeros((len(fit), max(1, model.labels_.max() + 1)))
    inside = np.flatnonzero(model.labels_ >= 0)
    P[inside, model.labels_[inside]] = model.probabilities_[inside]
    return P, fit_truth


PROBABILITIES = {
    "DPMeans()": fitted(lambda k: DPMeans(random_state=0)),
    "MahalanobisMeans()": fitted(lambda k: MahalanobisMeans(random_state=0)),
    "DPMeans(n_clusters=k)": fitted(lambda k: DPMeans(n_clusters=k, random_state=0)),
    "GaussianMixture(k)": fitted(lambda k: GaussianMixture(k, random_state=0)),
    "GaussianMixture(k), round": fitted(
        lambda k: GaussianMixture(k, covariance_type="spherical", random_state=0)
    ),
    "HDBSCAN()": strengths,
}


def assess(P, truth):
    """Largest probability and whether it is right, for each row; Brier score, ARI, clusters."""
    chosen, K, k = P.argmax(axis=1), P.shape[1], truth.max() + 1
    size = max(K, k)
    table = confusion_matrix(chosen, truth, labels=range(size))
    class_of = linear_sum_assignment(-table)[1]  # cluster K and later ones have no rows
    right = np.zeros((len(P), size))
    right[:, class_of] = np.pad(P, ((0, 0), (0, size - K)))
    squares = np.square(right - np.eye(size)[truth]).sum(axis=1)
    ari = adjusted_rand_score(truth, chosen)
    return P.max(axis=1), class_of[chosen] == truth, squares.mean(), ari, K


def labeled():
    """Rows and classes of labeled tables, as ``generated`` has them."""
    for kind, name, X, truth in tables():
        if X.shape[1] <= MOST_COLUMNS:
            yield kind, name, X, truth


def all_assessed(sets):
    """What each method says of each set: a list of dicts, with the kind and k of the set."""
    results = []
    for kind, name, X, truth in sets:
        parts = halves(X, truth, zlib.crc32(name.encode()))
        entry = {"kind": kind, "k": truth.max() + 1}
        for method, probabilities in PROBABILITIES.items():
            entry[method] = assess(*probabilities(*parts))
        results.append(entry)
    return results


def show_bins(title, results, method):
    """Print mean probability, share right and number of rows in each bin."""
    found = [entry[method] for entry in results if entry[method][-1] == entry["k"]]
    if not found:
        return
    top = np.concatenate([values[0] for values in found])
    right = np.concatenate([values[1] for values in found])
    which = np.digitize(top, BINS[1:-1])
    lines = [""] * 3
    for i in range(1, len(BINS) - 1):
        inside = which == i
        enough = inside.sum() >= FEW
        lines[0] += f"{top[inside].mean():10.3f}" if enough else f"{'-':>10s}"
        lines[1] += f"{right[inside].mean():10.3f}" if enough else f"{'-':>10s}"
        lines[2] += f"{inside.sum():10d}"
    print(f"{title}, {method}: {len(found)} of {len(results)} sets")
    for word, line in zip(("mean probability", "share right", "rows"), lines, strict=True):
        print(f"    {word:20s}{line}")


def show_scores(title, results):
    """Print the mean Brier score and ARI of each method."""
    for method in PROBABILITIES:
        values = [entry[method] for entry in results]
        brier, ari = (np.mean([value[i] for value in values]) for i in (2, 3))
        print(f"{title}, {method}".ljust(56) + f"{brier:8.4f}{ari:8.3f}{len(values):6d}")


def probabilities_of(sets):
    """Print all about probabilities."""
    results = all_assessed(sets)
    groups = {
        "Gaussian and t": ("Gaussian", "t"),
        "skewed": ("skewed",),
        "discrete": ("discrete",),
        "real": ("real compact", "real other"),
    }
    print("PROBABILITIES OF THE MOST LIKELY CLUSTER, of sets where the method has the true number")
    heads = "".join(f"{f'{low}-{high}':>10s}" for low, high in itertools.pairwise(BINS[1:]))
    print(" " * 24 + heads)
    for title, kinds in groups.items():
        part = [entry for entry in results if entry["kind"] in kinds]
        for method in PROBABILITIES:
            show_bins(title, part, method)
    print("\n" + "sets where DPMeans() has the true number".ljust(56) + "   Brier     ARI  sets")
    found = [entry for entry in results if entry["DPMeans()"][-1] == entry["k"]]
    for kind in dict.fromkeys(entry["kind"] for entry in found):
        show_scores(kind, [entry for entry in found if entry["kind"] == kind])
    print("\n" + "all sets".ljust(56) + "   Brier     ARI  sets")
    for kind in dict.fromkeys(entry["kind"] for entry in results):
        show_scores(kind, [entry for entry in results if entry["kind"] == kind])


def outliers(rng, X, truth, kind, n):
    """``n`` rows that belong to no cluster."""
    d, k = X.shape[1], truth.max() + 1
    centers = np.array([X[truth == c].mean(axis=0) for c in range(k)])
    spreads = np.array([X[truth == c].std() for c in range(k)])
    middle, half = (X.min(axis=0) + X.max(axis=0)) / 2, np.ptp(X, axis=0) / 2
    near = rng.integers(k, size=n)
    directions = rng.normal(size=(n, d))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    if kind == "box":
        return middle + 1.2 * half * rng.uniform(-1, 1, size=(n, d))
    if kind == "local":
        lengths = spreads[near] * (np.sqrt(d) + rng.uniform(2.5, 5, size=n))
        return centers[near] + directions * lengths[:, None]
    if kind == "between":
        other = (near + rng.integers(1, k, size=n)) % k
        return (centers[near] + centers[other]) / 2 + 0.3 * rng.normal(size=(n, d))
    if kind == "far":
        lengths = np.linalg.norm(half) * rng.uniform(1.5, 4, size=n)
        return middle + directions * lengths[:, None]
    return centers[near] + 2.5 * spreads[near, None] * rng.standard_t(2, size=(n, d))


def with_outliers(seed):
    """Kind of outliers, kind of clusters, rows, and which are outliers."""
    shapes = {"round": gaussian, "own": long, "t": tails, "skewed": skewed, "spreads": gaussian}
    grid = itertools.product(((4, 2), (5, 6)), shapes, KINDS, (0.01, 0.05, 0.2))
    for i, ((k, d), shape, kind, share) in enumerate(grid):
        rng = np.random.default_rng([seed, i])
        spread, gap = (4, 14) if shape == "spreads" else (1, 8)
        X, truth = clusters(rng, k, d, gap, shape=shapes[shape], spread=spread, n=150)
        added = outliers(rng, X, truth, kind, max(3, round(share * len(X) / (1 - share))))
        yield kind, shape, np.vstack([X, added]), np.arange(len(X) + len(added)) >= len(X)


def rare_classes():
    """The same of labeled tables, with the smallest class as outliers."""
    for _, name, X, truth in labeled():
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        rare = np.bincount(truth).argmin()
        usual = rng.permutation(np.flatnonzero(truth != rare))[:MOST_ROWS]
        few = rng.permutation(np.flatnonzero(truth == rare))[: max(5, len(usual) // 20)]
        if len(few) >= 5:
            chosen = np.r_[usual, few]
            yield "real", name, X[chosen], np.arange(len(chosen)) >= len(usual)


def of_hdbscan(X):
    """GLOSH."""
    from hdbscan import HDBSCAN

    return np.nan_to_num(HDBSCAN().fit(X).outlier_scores_)


OURS = {
    "DPMeans()": lambda X: DPMeans(random_state=0).fit(X).outlier_scores_,
    "RobustDPMeans()": lambda X: RobustDPMeans(random_state=0).fit(X).outlier_scores_,
    "MahalanobisMeans()": lambda X: MahalanobisMeans(random_state=0).fit(X).outlier_scores_,
    "MixedDPMeans()": lambda X: MixedDPMeans(random_state=0).fit(X).outlier_scores_,
}
OTHERS = {
    "IsolationForest()": lambda X: -IsolationForest(random_state=0).fit(X).score_samples(X),
    "LocalOutlierFactor()": lambda X: -LocalOutlierFactor().fit(X).negative_outlier_factor_,
    "LocalOutlierFactor(50)": lambda X: -LocalOutlierFactor(50).fit(X).negative_outlier_factor_,
}
if find_spec("hdbscan"):
    OTHERS["GLOSH"] = of_hdbscan
CLOSE = 0.01  # AUC are called equal up to so much


def scores_of(sets):
    """Print the AUC of outlier scores."""
    if "GLOSH" not in OTHERS:
        print("no GLOSH: hdbscan is not installed")
    methods = OURS | OTHERS
    kinds, areas = [], []
    for kind, _, X, rare in sets:
        kinds.append(kind)
        areas.append([roc_auc_score(rare, score(X)) for score in methods.values()])
    kinds, areas = np.array(kinds), np.array(areas)
    best = areas[:, len(OURS) :].max(axis=1)
    shown = [*KINDS, "real"]
    print("\nAUC OF OUTLIER SCORES")
    print(" " * 26 + "".join(f"{kind:>9s}" for kind in shown) + "   good, generated   good, real")
    real = kinds == "real"
    for name, column in [*zip(methods, areas.T, strict=True), ("the best of smallvar", None)]:
        values = areas[:, : len(OURS)].max(axis=1) if column is None else column
        cells = [f"{values[kinds == kind].mean():9.3f}" if kind in kinds else "" for kind in shown]
        good = values >= best - CLOSE
        counts = f"{good[~real].sum():10d} of {(~real).sum()}{good[real].sum():9d} of {real.sum()}"
        print(f"{name:26s}{''.join(cells)}{counts}")
    print(f"good: at least the best of the {len(OTHERS)} others in that set, less {CLOSE}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--quick", action="store_true", help="few sets of one seed")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.quick:
        probabilities_of(itertools.islice(generated(0), 0, None, 6))
        scores_of(itertools.islice(with_outliers(0), 0, None, 13))
        return
    sets = itertools.chain.from_iterable(map(generated, options.seeds))
    probabilities_of(itertools.chain(sets, labeled()))
    scores_of(itertools.chain(with_outliers(0), rare_classes()))


if __name__ == "__main__":
    main()
