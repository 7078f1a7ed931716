"""DP-means with a penalty that falls with the number of clusters, after the Pitman-Yor process.

    python docs/reproductions/pitman_yor.py [--quick]

takes some minutes, and with --quick (one order of the rows, three sets, fewer penalties) 10 s.

Fan, Zeng and Cao (Non-parametric power-law data clustering, arXiv 1306.3003, 2013) derive
"pyp-means" from the Pitman-Yor process, for clusters of power-law sizes: a threshold that falls as
clusters are opened, and a step that merges centers. Their text was not at hand beyond the abstract,
so the form taken here is ours: with K clusters, another one opens at a squared distance above
lam - theta ln K, which is to minimize

    sum_i ||x_i - mu_{z_i}||^2 + lam K - theta ln (K - 1)!,

and after the sweeps the two clusters whose merger costs least are merged while that lowers the
objective. theta = 0 is DP-means (Kulis and Jordan's Algorithm 1), here with the same mergers.

Nothing new can be optimal. The penalty is concave in K: seen from K clusters, each further one
costs at most lam' = lam - theta ln K, and each one fewer saves at least that. So if a clustering
with K clusters has the lowest objective, it also has the lowest one of DP-means at lam'
(tests/test_pitman_yor.py goes through all partitions of a few points). What is left is whether the
way there is a better one.

Sets: 60 Gaussian clusters in 2 and in 8 columns, of sizes drawn from a Pitman-Yor process with
discount 0.6; 40 kinds of texts as counts of 50 words, of such sizes, as square roots of shares;
and sets with a known number of clusters of the Clustering Benchmarks collection of M. Gagolewski
(https://clustering-benchmarks.gagolewski.com, here from $SMALLVAR_DATA/known_k/known_k.npz; without
it they are left out). Both ways are run for many penalties, in several orders of the rows. Compared
are the best agreement with the truth (ARI) at any penalty, that at the true number of clusters, and
at each number that both find, the lowest squared error and the best ARI.
"""

import argparse
import os
from pathlib import Path

import numpy as np
from sklearn.metrics import adjusted_rand_score

from smallvar import cluster_path, farthest_first_lambda

RATIOS = (0.0, 0.05, 0.1, 0.15)  # theta / lam
KNOWN = ("r15", "aggregation", "d31", "wine")
MOST = 600  # rows of a set
HEAD = """\
ratio: theta / lam, 0 is DP-means; path: cluster_path. ARI: the best at any penalty, and its
number of clusters; the best at the number found that is nearest to the true one. At equal numbers,
against DP-means: how many of them; median of the squared error, per cent; how often it is lower :
higher; median of the difference in ARI.

                     true  ratio  best ARI     at the true  equal   error  low:high   ARI"""


def penalty(k, lam, theta):
    """That of k clusters: lam for the first, lam - theta ln j for one more than j."""
    return lam * k - theta * np.log(np.arange(1, k)).sum()


def means(X, labels):
    """Centers of the clusters that have rows, and labels without gaps."""
    labels = np.unique(labels, return_inverse=True)[1]
    size = np.bincount(labels)
    return np.array([np.bincount(labels, column) for column in X.T]).T / size[:, None], labels


def error(X, labels, centers):
    """The squared error."""
    return float(np.square(X - centers[labels]).sum())


def sweep(X, centers, lam, theta):
    """KJ12, Algorithm 1, with the threshold as it is when a row is visited."""
    table, k = np.empty((len(X) + len(centers), X.shape[1])), len(centers)
    table[:k] = centers
    labels = np.empty(len(X), dtype=int)
    for i, x in enumerate(X):
        difference = table[:k] - x
        distance = np.einsum("kj,kj->k", difference, difference)
        labels[i] = distance.argmin()
        if distance[labels[i]] > lam - theta * np.log(k):
            table[k], labels[i], k = x, k, k + 1
    return labels


def merge(X, labels, lam, theta):
    """The cheapest merger by Ward's cost, while it saves more than it costs."""
    merged = False
    while True:
        centers, labels = means(X, labels)
        k = len(centers)
        if k == 1:
            return labels, merged
        size = np.bincount(labels)
        cost = np.square(centers[:, None] - centers).sum(axis=2)
        cost *= size[:, None] * size / (size[:, None] + size)
        cost[np.tril_indices(k)] = np.inf
        a, b = np.unravel_index(cost.argmin(), cost.shape)
        if not cost[a, b] < penalty(k, lam, theta) - penalty(k - 1, lam, theta):
            return labels, merged
        labels[labels == b], merged = a, True


def cluster(X, lam, theta, mergers=True, most=50):
    """Labels: from one cluster at the mean, sweeps until nothing changes, mergers, sweeps again."""
    labels = np.zeros(len(X), dtype=int)
    for _ in range(most):
        before = labels
        centers, _ = means(X, labels)
        labels = means(X, sweep(X, centers, lam, theta))[1]
        if (labels == before).all():
            if not mergers:
                break
            labels, merged = merge(X, labels, lam, theta)
            if not merged:
                break
    return labels


def sizes(rng, n, k, discount=0.6, strength=1.0):
    """The cluster of each of n rows: seats of a Pitman-Yor process, at most k tables."""
    counts, labels = [], []
    for _ in range(n):
        weights = np.append(np.array(counts) - discount, strength + discount * len(counts))
        if len(counts) == k:
            weights[-1] = 0.0
        table = int(rng.choice(len(weights), p=weights / weights.sum()))
        if table == len(counts):
            counts.append(0)
        counts[table] += 1
        labels.append(table)
    return np.array(labels)


def power_law(d):
    """Gaussian clusters of power-law sizes."""
    rng = np.random.default_rng(d)
    y = sizes(rng, MOST, 60)
    centers = rng.normal(size=(60, d)) * (14.0 if d == 2 else 2.5)
    return centers[y] + rng.normal(size=(MOST, d)), y


def words():
    """Kinds of texts of power-law sizes: 80 words each, as square roots of shares."""
    rng = np.random.default_rng(0)
    y = sizes(rng, MOST, 40)
    kinds = rng.dirichlet(np.full(50, 0.5), size=40)
    return np.sqrt(np.array([rng.multinomial(80, kinds[kind]) for kind in y]) / 80.0), y


def sets(quick):
    """By name: rows and their true clusters."""
    found = {"power law, 2 columns": power_law(2), "words": words()}
    if not quick:
        found["power law, 8 columns"] = power_law(8)
    file = Path(os.environ.get("SMALLVAR_DATA", "."), "known_k", "known_k.npz")
    if not file.is_file():
        print(f"{file} is not there: {', '.join(KNOWN)} are left out\n")
        return found
    with np.load(file) as data:
        for name in KNOWN[:1] if quick else KNOWN:
            X, y = data[f"{name}.X"].astype(np.float64), data[f"{name}.y"]
            some = np.sort(np.random.default_rng(0).permutation(len(X))[:MOST])
            X = X[some]
            found[name] = (X - X.mean(axis=0)) / X.std(axis=0), y[some]
    return found


def runs(X, y, ratio, orders, k, count):
    """Number of clusters, squared error, ARI of each run; ``k`` is the true number."""
    ends = [farthest_first_lambda(X, guess) for guess in (2, min(3 * k, len(X) // 3))]
    # penalties whose thresholds at the true number are the same for every ratio
    lams = np.geomspace(*ends, count) / (1.0 - ratio * np.log(k))
    found = []
    for seed in range(orders):
        order = np.random.default_rng(seed).permutation(len(X))
        for lam in lams:
            labels = cluster(X[order], lam, ratio * lam)
            centers, labels = means(X[order], labels)
            score = adjusted_rand_score(y[order], labels)
            found.append((len(centers), error(X[order], labels, centers), score))
    return found


def at_each(found):
    """By number of clusters: the lowest squared error, the best ARI."""
    counts = sorted({k for k, _, _ in found})
    return {
        k: (min(e for c, e, _ in found if c == k), max(a for c, _, a in found if c == k))
        for k in counts
    }


def line(name, k, ratio, here, plain):
    """One of the table; ``here`` and ``plain`` by number of clusters, as at_each has them."""
    best = max(here, key=lambda c: here[c][1])
    nearest = min(here, key=lambda c: abs(c - k))
    text = f"{name:21s}{k:4d}  {ratio:>5s}  {here[best][1]:.3f} ({best:3d})"
    text += f"  {here[nearest][1]:.3f} ({nearest:3d})"
    both = sorted(set(here) & set(plain) - {1})
    if here is not plain and both:
        error = np.array([100.0 * (here[c][0] / plain[c][0] - 1.0) for c in both])
        gained = np.median([here[c][1] - plain[c][1] for c in both])
        text += f"  {len(both):4d}  {np.median(error):+7.2f}"
        text += f"  {(error < -1e-7).sum():3d}:{(error > 1e-7).sum():<3d}  {gained:+.3f}"
    return text


def compare(name, X, y, orders, count):
    """Print the lines of a set."""
    k, plain = len(np.unique(y)), None
    for ratio in RATIOS:
        here = at_each(runs(X, y, ratio, orders, k, count))
        plain = here if plain is None else plain
        print(line(name, k, f"{ratio:.2f}", here, plain), flush=True)
    path = cluster_path(X, random_state=0)
    table = zip(path.n_clusters.tolist(), path.inertia.tolist(), strict=True)
    here = {c: (e, adjusted_rand_score(y, path.labels(c))) for c, e in table}
    print(line(name, k, "path", here, plain), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one order of the rows, three sets")
    options = parser.parse_args()
    orders, count = (1, 10) if options.quick else (2, 20)
    print(HEAD)
    for name, (X, y) in sets(options.quick).items():
        compare(name, X, y, orders, count)


if __name__ == "__main__":
    main()
