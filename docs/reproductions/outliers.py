"""Rows far away, together or apart, and rows anywhere: what they do to the clusters of the others.

Three tables about ``RobustDPMeans()``, beside methods that also label rows as noise, or none:

- ``unchanged``: 1,000 rows in blobs, and outliers added to them. How often are the labels of the
  1,000 rows, up to their numbers, exactly those that the same method gives them alone?
- ``noise``: generated clusters among rows drawn evenly over a box. ARI of the rows in clusters,
  precision and recall of the label noise.
- ``real``: the sets of ``asv_bench/known_k.py``, none of which has rows labeled as noise in the
  files used here: as they are, to see how many rows are called noise, and with 5% of rows drawn
  evenly over their bounding box, doubled in width, as noise. Sets beyond 12,000 rows and 64 columns
  are left out.

No paper is reproduced. k-means-- (Chawla & Gionis 2013) is written here as in its Algorithm 1, with
ten starts by k-means++, and is given the true number of clusters and of noise rows. DBSCAN has no
default that suits all scales: it is fitted with 12 radii, quantiles of the distance of the fifth
neighbor from 50% to 99.5%, and the one with the best ARI *to the truth* counts. HDBSCAN is
scikit-learn's, by its defaults. "Forest" is ``DPMeans()`` on the rows that scikit-learn's
IsolationForest, by its defaults, does not call outliers; "DPMeans" has no noise, so its clusters of
less than 1% of the rows count as noise in precision and recall.

``python docs/reproductions/outliers.py`` takes five minutes on one core; ``--quick`` 35 seconds.
With the folder of the sets in SMALLVAR_DATA (known_k/known_k.npz, from M. Gagolewski's Clustering
Benchmarks, https://clustering-benchmarks.gagolewski.com) all of them are used, else those that
scikit-learn has.
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.cluster import DBSCAN, HDBSCAN, kmeans_plusplus
from sklearn.datasets import make_blobs
from sklearn.ensemble import IsolationForest
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import NearestNeighbors

from smallvar import DPMeans, RobustDPMeans

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "asv_bench"))

from known_k import real

NOISE = -1


def outliers(kind, X, rng):
    """Rows to add to X, of one of these kinds."""
    d = X.shape[1]
    middle, reach = X.mean(axis=0), np.linalg.norm(X - X.mean(axis=0), axis=1).max()

    def ring(size, far):
        direction = rng.normal(size=(size, d))
        direction /= np.linalg.norm(direction, axis=1)[:, None]
        return middle + direction * far * reach * rng.uniform(1, 2, size=(size, 1))

    if kind == "5 apart, 2 times as far":
        return ring(5, 2)
    if kind == "5 apart, 1000 times":
        return ring(5, 1000)
    if kind == "5 together":
        return ring(1, 3) + 0.1 * rng.normal(size=(5, d))
    if kind == "20 apart":
        return ring(20, 2)
    half = np.ptp(X, axis=0) / 2
    box = rng.uniform(-1.5, 1.5, size=(50, d)) * half + X.min(axis=0) + half
    return box if kind == "50 in a box" else np.vstack([box, ring(5, 10)])


KINDS = (
    "5 apart, 2 times as far",
    "5 apart, 1000 times",
    "5 together",
    "20 apart",
    "50 in a box",
    "50 in a box, 5 apart",
)


def far_apart(n, k, d, gap, rng):
    """Gaussian blobs of variance 1 whose centers are at least ``gap`` apart."""
    side = 3.0
    while True:
        centers = rng.uniform(0, side, size=(20 * k, d))
        kept = centers[:1]
        for c in centers[1:]:
            if len(kept) < k and np.linalg.norm(kept - c, axis=1).min() >= gap:
                kept = np.vstack([kept, c])
        if len(kept) == k:
            break
        side *= 1.2
    seed = int(rng.integers(2**31))
    return make_blobs(n, centers=kept, random_state=seed)


def same(a, b):
    """Whether two labelings are equal up to the numbers of the clusters; noise is noise."""
    pairs = set(zip(a.tolist(), b.tolist(), strict=True))
    one_to_one = len({i for i, _ in pairs}) == len(pairs) == len({j for _, j in pairs})
    return one_to_one and all((i == NOISE) == (j == NOISE) for i, j in pairs)


def robust(X, truth):
    """By default."""
    return RobustDPMeans(random_state=0).fit(X).labels_


def plain(X, truth):
    """DPMeans, small clusters as noise."""
    labels = DPMeans(random_state=0).fit(X).labels_
    small = np.bincount(labels) < 0.01 * len(X)
    return np.where(small[labels], NOISE, labels)


def density(X, truth):
    """HDBSCAN."""
    return HDBSCAN(copy=True).fit(X).labels_


def forest(X, truth):
    """DPMeans without what an isolation forest calls outliers."""
    inside = IsolationForest(random_state=0).fit_predict(X) > 0
    labels = np.full(len(X), NOISE)
    labels[inside] = DPMeans(random_state=0).fit(X[inside]).labels_
    return labels


def dbscan(X, truth):
    """DBSCAN with the best of 12 radii, the truth known."""
    used = truth != NOISE
    fifth = NearestNeighbors(n_neighbors=5).fit(X).kneighbors()[0][:, -1]
    best, labels = -2.0, None
    for radius in np.quantile(fifth, 1 - np.geomspace(0.005, 0.5, 12)):
        found = DBSCAN(eps=max(radius, 1e-12)).fit(X).labels_
        value = adjusted_rand_score(truth[used], found[used])
        if value > best:
            best, labels = value, found
    return labels


def trimmed(X, truth, n_init=10):
    """k-means-- with the true numbers of clusters and of noise rows."""
    k, lost = len(np.unique(truth[truth != NOISE])), int((truth == NOISE).sum())
    best, result = np.inf, None
    for seed in range(n_init):
        centers = kmeans_plusplus(X, k, random_state=seed)[0].astype(float)
        labels = None
        for _ in range(300):
            squares = np.square(X).sum(axis=1)[:, None] - 2 * X @ centers.T
            squares = np.maximum(squares + np.square(centers).sum(axis=1), 0)
            before, labels = labels, squares.argmin(axis=1)
            own = squares.min(axis=1)
            labels[np.argsort(own)[len(X) - lost :]] = NOISE
            if before is not None and (labels == before).all():
                break
            for c in np.unique(labels[labels != NOISE]):
                centers[c] = X[labels == c].mean(axis=0)
        error = own[labels != NOISE].sum()
        if error < best:
            best, result = error, labels
    return result


METHODS = {
    "RobustDPMeans": robust,
    "DPMeans": plain,
    "HDBSCAN": density,
    "forest": forest,
    "DBSCAN*": dbscan,
    "k-means--*": trimmed,
}


def unchanged(runs):
    """How often outliers change no other label."""
    methods = {name: METHODS[name] for name in ("RobustDPMeans", "HDBSCAN", "forest")}
    methods["DPMeans"] = lambda X, truth: DPMeans(random_state=0).fit(X).labels_
    shapes = ((5, 2), (8, 2), (12, 8), (20, 16))
    print(f"Labels of 1,000 rows unchanged by rows added to them, of {runs * len(shapes)} draws")
    print(f"{'rows added':26s}" + "".join(f"{name:>15s}" for name in methods))
    counts = {kind: dict.fromkeys(methods, 0) for kind in KINDS}
    lost = 0
    for k, d in shapes:
        for run in range(runs):
            rng = np.random.default_rng([run, k])
            X, truth = far_apart(1000, k, d, 9.0, rng)
            alone = {name: method(X, truth) for name, method in methods.items()}
            lost += int((alone["RobustDPMeans"] == NOISE).sum())
            for kind in KINDS:
                extra = outliers(kind, X, rng)
                both = np.vstack([X, extra])
                known = np.append(truth, np.full(len(extra), NOISE))
                for name, method in methods.items():
                    labels = method(both, known)[: len(X)]
                    counts[kind][name] += same(labels, alone[name])
    for kind, found in counts.items():
        print(f"{kind:26s}" + "".join(f"{count:15d}" for count in found.values()))
    total = 1000 * runs * len(shapes)
    print(f"Rows that RobustDPMeans calls noise where there is none: {lost} of {total}\n")


def scores(labels, truth):
    """ARI of the rows in clusters, precision and recall of noise, share called noise."""
    noise, called = truth == NOISE, labels == NOISE
    hits = (noise & called).sum()
    precision = hits / called.sum() if called.any() and noise.any() else np.nan
    recall = hits / noise.sum() if noise.any() else np.nan
    ari = adjusted_rand_score(truth[~noise], labels[~noise])
    return ari, precision, recall, called.mean()


def report(sets, methods, title):
    """A line a method: means of the scores, and how often the number of clusters is right."""
    print(title)
    print(f"{'':14s}{'K right':>8s}{'ARI':>7s}{'precision':>11s}{'recall':>8s}{'noise':>8s}")
    table = {}
    for name in methods:
        rows, right = [], 0
        for X, truth in sets.values():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                labels = METHODS[name](X, truth)
            rows.append(scores(labels, truth))
            found = len(np.unique(labels[labels != NOISE]))
            right += found == len(np.unique(truth[truth != NOISE]))
        table[name] = rows
        kept = np.array(rows)
        known = ~np.isnan(kept)
        mean = [kept[known[:, j], j].mean() if known[:, j].any() else np.nan for j in range(4)]
        found_noise = "".join(
            f"{'-' if np.isnan(share) else f'{share:.2f}':>{width}s}"
            for share, width in ((mean[1], 11), (mean[2], 8))
        )
        print(
            f"{name:14s}{right:5d}/{len(sets):<2d}{mean[0]:7.3f}{found_noise}{100 * mean[3]:7.2f}%"
        )
    print()
    return table


def with_noise(X, truth, share, widen, rng):
    """X and rows drawn evenly over its bounding box, ``widen`` times as wide, as noise."""
    size = max(1, int(share * len(X)))
    low, high = X.min(axis=0), X.max(axis=0)
    middle, half = (low + high) / 2, widen * (high - low) / 2
    extra = middle + rng.uniform(-1, 1, size=(size, X.shape[1])) * half
    return np.vstack([X, extra]), np.append(truth, np.full(size, NOISE))


def generated(runs):
    """Clusters in a box with noise: name -> rows and truth."""
    sets = {}
    for run in range(runs):
        for k, d, share in ((5, 2, 0.05), (8, 2, 0.1), (8, 2, 0.3), (12, 8, 0.1), (20, 16, 0.3)):
            rng = np.random.default_rng([run, k, d])
            X, truth = far_apart(1500, k, d, 7.0, rng)
            sets[f"{k}, {d}-d, {share}, {run}"] = with_noise(X, truth, share, 1.5, rng)
    return sets


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", default=["unchanged", "noise", "real"])
    parser.add_argument("--quick", action="store_true", help="fewer runs and sets")
    options = parser.parse_args()
    if "unchanged" in options.tables:
        unchanged(1 if options.quick else 2)
    if "noise" in options.tables:
        sets = generated(1 if options.quick else 4)
        report(
            sets,
            METHODS,
            f"{len(sets)} generated sets, 5 to 30% noise in a box (*: given some truth)",
        )
    if "real" in options.tables:
        sets = {
            name: (np.asarray(X, dtype=float), np.asarray(truth))
            for name, (X, truth) in real().items()
            if X.shape[1] <= 64 and len(X) <= (600 if options.quick else 12_000)
        }
        methods = ("RobustDPMeans", "DPMeans", "HDBSCAN", "forest")
        table = report(sets, methods, f"{len(sets)} real sets as they are")
        for name, one, two in zip(sets, table["RobustDPMeans"], table["DPMeans"], strict=True):
            if one[3] > 0.005 or abs(one[0] - two[0]) > 0.01:
                print(
                    f"  {name}: noise {100 * one[3]:.1f}%, ARI {one[0]:.3f} (DPMeans {two[0]:.3f})"
                )
        noisy = {
            name: with_noise(*pair, 0.05, 2.0, np.random.default_rng(i))
            for i, (name, pair) in enumerate(sets.items())
        }
        report(
            noisy, METHODS, "The same with 5% of rows in a box twice as wide (*: given some truth)"
        )


if __name__ == "__main__":
    main()
