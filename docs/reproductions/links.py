"""Links between rows: DPMeans beside COP-KMeans, the same numbers of pairs, k given to both.

Pairs of rows are drawn at random, as many as 1, 5, 10 and 50 % of the rows, and linked by their
classes: must-link or cannot-link. Columns of wine are standardized. COP-KMeans (Wagstaff et al.
2001) visits the rows in random order from k-means++ centers, each joins the nearest center that no
link forbids, and a start fails if there is none; it has up to ten starts for one that does not.
Lines have means over the draws that did not fail: ARI and NMI of all rows, ARI of the rows without
links, and seconds of the processor. "price" has link_penalty = lam_ / 10, lam_ of the fit without
links. The rules were chosen on the first five draws; the table has these, then five others.

``python docs/reproductions/links.py`` takes minutes; ``--quick`` takes iris and one draw.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.cluster import kmeans_plusplus
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.preprocessing import scale

from smallvar import DPMeans


def sets():
    """Rows, classes, and their number, of each set."""
    iris, wine, digits = (load(return_X_y=True) for load in (load_iris, load_wine, load_digits))
    return {"iris": (*iris, 3), "wine": (scale(wine[0]), wine[1], 3), "digits": (*digits, 10)}


def cop_kmeans(X, k, must, cannot, seed, n_starts=10):
    """COP-KMeans; ValueError if all starts fail."""
    rng, n = np.random.RandomState(seed), len(X)
    group = np.arange(n)
    for i, j in must:
        group[group == group[j]] = group[i]
    members, apart = [np.flatnonzero(group == g) for g in range(n)], [[] for _ in range(n)]
    for i, j in cannot:
        apart[group[i]].append(group[j])
        apart[group[j]].append(group[i])
    for _ in range(n_starts):
        centers, labels = kmeans_plusplus(X, k, random_state=rng)[0], None
        for _ in range(100):  # it need not end: the order changes what links forbid
            before, labels = labels, np.full(n, -1)
            distance = np.square(X[:, None] - centers).sum(axis=2)
            for i in rng.permutation(n):
                if labels[i] < 0:
                    taken = {labels[j] for j in apart[group[i]]}
                    allowed = [c for c in range(k) if c not in taken]
                    if not allowed:
                        break
                    labels[members[group[i]]] = min(allowed, key=distance[i].__getitem__)
            if (labels < 0).any():
                break
            if before is not None and np.array_equal(labels, before):
                break
            used = [c for c in range(k) if (labels == c).any()]
            centers[used] = [X[labels == c].mean(axis=0) for c in used]
        if (labels >= 0).all():
            return labels
    raise ValueError("no start without a violated link")


def dp_means(X, k, must, cannot, seed, price=np.inf):
    """Labels of DPMeans with k clusters."""
    model = DPMeans(n_clusters=k, link_penalty=price, random_state=seed)
    return model.fit(X, must_link=must, cannot_link=cannot).labels_


METHODS = {
    "DPMeans": dp_means,
    "DPMeans, price": lambda X, k, must, cannot, seed: dp_means(
        *(X, k, must, cannot, seed), DPMeans(n_clusters=k, random_state=seed).fit(X).lam_ / 10
    ),
    "DPMeans, no links": lambda X, k, must, cannot, seed: dp_means(X, k, None, None, seed),
    "COP-KMeans": cop_kmeans,
}


def measured(method, X, y, k, share, seed):
    """ARI and NMI of all rows, ARI of those without links, and seconds; NaN if it fails."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(len(X), size=(2 * len(X), 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]][: max(1, round(share * len(X)))]
    same = y[pairs[:, 0]] == y[pairs[:, 1]]
    free = np.setdiff1d(np.arange(len(X)), pairs)
    begin = time.process_time()
    try:
        labels = method(X, k, pairs[same], pairs[~same], seed)
    except ValueError:
        return [np.nan] * 3 + [time.process_time() - begin]
    seconds = time.process_time() - begin
    scores = adjusted_rand_score(y, labels), normalized_mutual_info_score(y, labels)
    return [*scores, adjusted_rand_score(y[free], labels[free]), seconds]


def main():
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    warnings.filterwarnings("ignore")  # means of no draw
    for draws in [range(1)] if quick else [range(5), range(5, 10)]:
        print(f"\ndraws {draws[0]} to {draws[-1]}")
        print(f"{'set':7} {'pairs':>5}  {'method':18} {'ARI':>6} {'NMI':>6} {'ARI of free':>11}"
              f" {'seconds':>8} failed")  # fmt: skip
        for name, (X, y, k) in list(sets().items())[: 1 if quick else None]:
            for share in (0.01, 0.05, 0.1, 0.5):
                for label, method in METHODS.items():
                    rows = np.array([measured(method, X, y, k, share, seed) for seed in draws])
                    ari, nmi, free, seconds = np.nanmean(rows, axis=0)
                    failed = np.isnan(rows[:, 0]).sum()
                    print(f"{name:7} {share:5.0%}  {label:18} {ari:6.3f} {nmi:6.3f} {free:11.3f}"
                          f" {seconds:8.3f} {failed:6}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
