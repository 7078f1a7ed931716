"""Coresets of 1 % of the rows against all rows, and against as many drawn with equal chances.

    python docs/reproductions/coresets.py [--quick] [--only NAME]
    python docs/reproductions/coresets.py --errors

takes some minutes on two cores, and with --quick (100,000 rows instead of a million, 2 seeds) 20 s.

Bachem, Lucic and Krause (Coresets for nonparametric estimation - the case of DP-means, ICML 2015)
report, in their abstract, an objective 2.4 % above that of all rows at a 45th of the time, and
22.5 % for rows drawn with equal chances. Their sets are not here, and the text of the paper was not
at hand: the bound by which rows are drawn is that of their later paper for k-means (Practical
coreset constructions for machine learning, 2017, Algorithm 2), with the penalties in the objective.
Unlike there, a row is drawn once at most.

Sets of a million rows: 50 Gaussian clusters of equal size in 8 columns; the same with sizes that go
with 1 / rank^2; the same of equal size among 2 % of rows from a heavy-tailed distribution; and two
sets of two columns with 15 and 100 compact clusters, drawn with replacement and moved by 2 % of a
standard deviation: s4 and birch2 of the Clustering Benchmarks collection of M. Gagolewski
(https://clustering-benchmarks.gagolewski.com, here from $SMALLVAR_DATA/known_k/known_k.npz, arrays
NAME.X; without it the two are left out).

The penalty is the one that lam="auto" finds on all rows, the algorithm "merge". The objective is
that of the centers found, on all rows. The second table is what lam="auto" finds on the rows drawn
for lam=0, where the penalty is not known. Times are seconds of CPU, of drawing and fit together.

With --errors, ten seconds: how well the squared error at given centers, those that lam="auto" finds
on all of 50,000 rows, is estimated from 500 of them. The root mean square of 60 draws, as coreset
makes them, independently with replacement by the same bounds as in the papers, and with equal
chances.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np

from smallvar import DPMeans, coreset
from smallvar._centers.coreset import ROWS_A_SEED, rough, sensitivities

KNOWN = ("s4", "birch2")


def gaussians(rng, n, share):
    """So many rows of 50 clusters with these shares."""
    centers = 5.0 * rng.normal(size=(50, 8))
    which = rng.choice(50, size=n, p=share / share.sum())
    return centers[which] + rng.normal(size=(n, 8))


def heavy(rng, n):
    """Two in a hundred rows are of a t distribution with 2 degrees of freedom."""
    X = gaussians(rng, n, np.ones(50))
    stray = rng.random(n) < 0.02
    X[stray] = 10.0 * rng.standard_t(2.0, size=(np.count_nonzero(stray), 8))
    return X


def again(X):
    """Draws more rows from a small set."""

    def drawn(rng, n):
        few = X.astype(np.float64)
        return few[rng.integers(len(few), size=n)] + 0.02 * few.std(axis=0) * rng.normal(
            size=(n, few.shape[1])
        )

    return drawn


def sets():
    """By name: what makes so many rows."""
    found = {
        "equal sizes": lambda rng, n: gaussians(rng, n, np.ones(50)),
        "unequal sizes": lambda rng, n: gaussians(rng, n, 1.0 / np.arange(1, 51) ** 2),
        "heavy tails": heavy,
    }
    file = Path(os.environ.get("SMALLVAR_DATA", "."), "known_k", "known_k.npz")
    if file.is_file():
        with np.load(file) as data:
            found |= {name: again(data[f"{name}.X"]) for name in KNOWN}
    else:
        print(f"{file} is not there: {' and '.join(KNOWN)} are left out\n")
    return found


def timed(function, *args, **options):
    """What it returns, and the seconds of CPU."""
    begin = time.process_time()
    value = function(*args, **options)
    return value, time.process_time() - begin


def equal_chances(X, m, seed):
    """So many rows, each with the same chance, and their weights."""
    index = np.sort(np.random.default_rng(seed).choice(len(X), m, replace=False))
    return index, np.full(m, len(X) / m)


def compare(X, m, seeds):
    """The full fit and fits to few rows: one line of each table."""
    auto, seconds_auto = timed(DPMeans(random_state=0).fit, X)
    model = DPMeans(lam=auto.lam_, algorithm="merge", random_state=0)
    full, seconds = timed(model.fit, X)
    objective = full.objective_
    line = [f"{full.n_clusters_:4d} {seconds:6.1f} s"]
    numbers = [f"{auto.n_clusters_:4d} {seconds_auto:6.1f} s"]
    ways = {
        "coreset": lambda lam, seed: coreset(X, m, lam, random_state=seed),
        "equal chances": lambda lam, seed: equal_chances(X, m, seed),
    }
    for draw in ways.values():
        excess, found, took, chosen = [], [], [], []
        for seed in range(seeds):
            (index, weight), drawn = timed(draw, auto.lam_, seed)
            few = DPMeans(lam=auto.lam_, algorithm="merge", random_state=0)
            _, fitted = timed(few.fit, X[index], sample_weight=weight)
            excess.append(100.0 * (-few.score(X) / objective - 1.0))
            found.append(few.n_clusters_)
            took.append(drawn + fitted)
            index, weight = draw(0.0, seed)
            few = DPMeans(random_state=0).fit(X[index], sample_weight=weight)
            chosen.append(few.n_clusters_)
        line.append(
            f"{np.median(excess):7.2f} {max(excess):7.2f} {min(found):4d}-{max(found):<4d}"
            f"{np.median(took):5.1f} s"
        )
        numbers.append(", ".join(map(str, chosen)).rjust(25))
    return " | ".join(line), " | ".join(numbers)


def estimates(X, m, seeds):
    """The error of the estimates, per cent: as coreset draws, independently, with equal chances."""
    model = DPMeans(random_state=0).fit(X)
    square = model.transform(X).min(axis=1) ** 2
    found = []
    for seed in range(seeds):
        index, weight = coreset(X, m, model.lam_, random_state=seed)
        rng = np.random.RandomState(seed)
        k, labels, distance = rough(X, None, model.lam_, m // ROWS_A_SEED, rng, 1)
        chance = sensitivities(k, labels, distance, None, model.lam_)
        chance /= chance.sum()
        drawn = rng.choice(len(X), m, p=chance)
        equal, same = equal_chances(X, m, seed)
        found.append(
            (
                weight @ square[index],
                (square[drawn] / chance[drawn]).mean(),
                same @ square[equal],
            )
        )
    return 100.0 * np.sqrt(np.square(np.array(found) / square.sum() - 1.0).mean(axis=0))


def print_errors():
    """The table of --errors."""
    print(
        "50,000 rows, 500 drawn, 60 times: error of the squared error at given centers, per cent\n"
    )
    print(f"{'':13s} {'coreset':>9s} {'independent':>13s} {'equal chances':>15s}")
    for name, make in sets().items():
        ours, independent, equal = estimates(make(np.random.default_rng(0), 50_000), 500, 60)
        print(f"{name:13s} {ours:9.2f} {independent:13.2f} {equal:15.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="100,000 rows, 2 seeds")
    parser.add_argument("--only", help="the set of this name")
    parser.add_argument("--errors", action="store_true", help="the errors of estimates instead")
    options = parser.parse_args()
    if options.errors:
        print_errors()
        return
    n, seeds = (100_000, 2) if options.quick else (1_000_000, 5)
    m = n // 100
    warnings.simplefilter("ignore")  # of fits that end at max_iter
    print(f"{n} rows, {m} drawn, {seeds} seeds; per cent above the objective of all rows\n")
    print(f"{'':13s} |   all rows    | {'coreset':^31s} | {'equal chances':^31s}")
    head = f"{'median':>7s} {'worst':>7s} {'K':^9s}{'CPU':>7s}"
    print(f"{'':13s} | {'K':>4s} {'CPU':>8s} | {head} | {head}")
    chosen = {}
    for name, make in sets().items():
        if options.only in (None, name):
            X = make(np.random.default_rng(0), n)
            line, chosen[name] = compare(X, m, seeds)
            print(f"{name:13s} | {line}", flush=True)
    print("\nthe number of clusters by lam='auto', for each seed\n")
    print(f"{'':13s} |   all rows    | {'coreset, lam=0':>25s} | {'equal chances':>25s}")
    for name, line in chosen.items():
        print(f"{name:13s} | {line}")


if __name__ == "__main__":
    main()
