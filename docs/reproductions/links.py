"""Links between rows: DPMeans beside COP-KMeans, the same numbers of pairs, k given to both.

Pairs of rows are drawn at random, as many as 1, 5, 10 and 50 % of the rows, and linked by their
classes. Columns of wine are standardized. COP-KMeans (Wagstaff et al. 2001) visits rows in random
order from k-means++ centers, each joins the nearest center that no link forbids, and a start fails
if there is none; the first of up to ten starts that does not fail counts. For each method: ARI, NMI
and ARI of the rows without links, means of the draws that did not fail, and how many did; then
seconds of the processor. "price" is link_penalty = lam_ / 10, lam_ of the fit without links. The
rules were chosen on the first five draws.

``python docs/reproductions/links.py`` takes minutes; ``--quick`` takes iris and one draw.
"""

import argparse
import time
from functools import partial

import numpy as np
from sklearn.cluster import kmeans_plusplus
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.preprocessing import scale

from smallvar import DPMeans


def cop_kmeans(X, k, must, cannot, seed):
    """COP-KMeans; None if all starts fail."""
    rng, n = np.random.RandomState(seed), len(X)
    group = np.arange(n)
    for i, j in must:
        group[group == group[j]] = group[i]
    members, apart = [np.flatnonzero(group == g) for g in range(n)], [[] for _ in range(n)]
    for i, j in cannot:
        apart[group[i]].append(group[j])
        apart[group[j]].append(group[i])
    for _ in range(10):
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
            if (labels < 0).any() or np.array_equal(labels, before):
                break
            used = [c for c in range(k) if (labels == c).any()]
            centers[used] = [X[labels == c].mean(axis=0) for c in used]
        if (labels >= 0).all():
            return labels
    return None


def dp_means(X, k, must, cannot, seed, at_price=False):
    """Labels of DPMeans with k clusters, by request at a price of links; None if it finds none."""
    model = DPMeans(n_clusters=k, random_state=seed)
    if at_price:
        model.link_penalty = model.fit(X).lam_ / 10
    try:
        return model.fit_predict(X, must_link=must, cannot_link=cannot)
    except ValueError:
        return None


METHODS = {
    "no links": lambda X, k, must, cannot, seed: dp_means(X, k, None, None, seed),
    "DPMeans": dp_means,
    "price": partial(dp_means, at_price=True),
    "COP-KMeans": cop_kmeans,
}


def measured(method, X, y, k, share, seed):
    """ARI and NMI of all rows, ARI of those without links (NaN: failed), and seconds."""
    pairs = np.random.default_rng(seed).integers(len(X), size=(2 * len(X), 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]][: max(1, round(share * len(X)))]
    same, free = y[pairs[:, 0]] == y[pairs[:, 1]], np.setdiff1d(np.arange(len(X)), pairs)
    begin = time.process_time()
    labels = method(X, k, pairs[same], pairs[~same], seed)
    seconds = time.process_time() - begin
    if labels is None:
        return [np.nan] * 3 + [seconds]
    scores = adjusted_rand_score(y, labels), normalized_mutual_info_score(y, labels)
    return [*scores, adjusted_rand_score(y[free], labels[free]), seconds]


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one draw of iris")
    quick = parser.parse_args().quick
    iris, wine, digits = (load(return_X_y=True) for load in (load_iris, load_wine, load_digits))
    sets = {"iris": (*iris, 3), "wine": (scale(wine[0]), wine[1], 3), "digits": (*digits, 10)}
    print(f"{'set':6} {'pairs':>5} draws", *(f"{name:>16}" + 13 * " " for name in METHODS))
    for name, (X, y, k) in list(sets.items())[: 1 if quick else None]:
        for share in (0.01, 0.05, 0.1, 0.5):
            for draws in [range(1)] if quick else [range(5), range(5, 10)]:
                print(f"{name:6} {share:5.0%} {draws[0]} to {draws[-1]}", end="")
                for method in METHODS.values():
                    rows = np.array([measured(method, X, y, k, share, seed) for seed in draws])
                    failed, means = np.isnan(rows[:, 0]).sum(), np.nanmean(rows, axis=0)
                    print(" {:6.3f} {:.3f} {:.3f} {} {:5.3f}s"
                          .format(*means[:3], failed, means[3]), end="")  # fmt: skip
                print(flush=True)


if __name__ == "__main__":
    main()
