"""Gaps that depend on the cluster: how much MixedDPMeans loses, and what flags bring back.

    python docs/reproductions/mixed_gaps.py [--quick]

takes half a minute and prints the table of docs/guide/mixed_quality.rst. Tables of 1,000 rows have
4 clusters and columns of one kind: 8 numbers (means 1.5 standard deviations apart), 10 codes of 5
levels, or 20 yes-or-no answers. In every second cluster each cell is missing with probability 0.4;
or as many cells are missing anywhere; or there is beside each column a flag that says whether its
cell is missing. The figures are the adjusted Rand index and, in brackets, the number of clusters
found, means over 10 tables.
"""

import argparse

import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_rand_score

from smallvar import MixedDPMeans

ROWS, CLUSTERS, MISSING = 1_000, 4, 0.4


def numbers(rng, truth):
    """Gaussian columns of variance 1."""
    return 1.5 * rng.normal(size=(CLUSTERS, 8))[truth] + rng.normal(size=(len(truth), 8))


def codes(rng, truth):
    """Categories, by probabilities of each cluster."""
    shares = rng.dirichlet(np.full(5, 0.5), size=(CLUSTERS, 10)).cumsum(axis=2)
    levels = (rng.random((len(truth), 10, 1)) > shares[truth]).sum(axis=2)
    return np.array(list("abcdef"))[levels].astype(object)


def answers(rng, truth):
    """Flags, by probabilities of each cluster."""
    return (rng.random((len(truth), 20)) < rng.random((CLUSTERS, 20))[truth]).astype(object)


KINDS = {"numbers": numbers, "codes": codes, "answers": answers}


def tables(kind, seed):
    """The true clusters, and the table with no gaps and with each kind of gaps, by name."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(CLUSTERS, size=ROWS)
    X = KINDS[kind](rng, truth)
    columns = [f"c{j}" for j in range(X.shape[1])]
    whole = pd.DataFrame(X, columns=columns)
    by_cluster = (truth % 2 == 1)[:, None] & (rng.random(X.shape) < MISSING)
    anywhere = rng.random(X.shape) < by_cluster.mean()
    gaps = whole.mask(by_cluster)
    flags = pd.DataFrame(by_cluster, columns=[f"{name} missing" for name in columns])
    return truth, {
        "none": whole,
        "in every second cluster": gaps,
        "the same, with flags": pd.concat([gaps, flags], axis=1),
        "as many, anywhere": whole.mask(anywhere),
    }


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one table of each kind")
    seeds = 1 if parser.parse_args().quick else 10
    results = {}
    for kind in KINDS:
        for seed in range(seeds):
            truth, variants = tables(kind, seed)
            for name, table in variants.items():
                model = MixedDPMeans(random_state=0).fit(table)
                result = adjusted_rand_score(truth, model.labels_), model.n_clusters_
                results.setdefault((name, kind), []).append(result)
    print(f"{'gaps':26s}" + "".join(f"{kind:>14s}" for kind in KINDS))
    for name in dict.fromkeys(name for name, _ in results):
        means = [np.mean(results[name, kind], axis=0) for kind in KINDS]
        print(f"{name:26s}" + "".join(f"{f'{m[0]:.2f} ({m[1]:.1f})':>14s}" for m in means))


if __name__ == "__main__":
    main()
