"""DP-means, k-means and Gibbs sampling on 8 UCI sets: Table 1 of Kulis and Jordan (2012).

    SMALLVAR_DATA=folder python docs/reproductions/kulis_jordan.py

takes half an hour of one core (resume.py: it can be stopped), nearly all of it Gibbs sampling, and
prints the table with the published numbers beside; with ``--quick`` 20 seconds, by fewer runs and
sweeps. The rest of the
paper's experiments: kulis_jordan_figure.py (three Gaussians), kulis_jordan_patches.py (the time of
a sweep), hdp_toy.py (the hard HDP).

The folder must have uci/NAME.csv, NAME one of wine, iris, pima, soybean, car, balance_scale,
breast_cancer, vehicle: one line of names, then rows of numbers, the class last. All are from the
UCI repository; wine and iris are also in scikit-learn, pima, vehicle and soybean in the R package
mlbench. Nominal columns are coded 0, 1, ... in the order of the repository; nothing is scaled.
Soybean is the training file without rows that have missing values (266 rows, 15 classes); other
readings of it follow below the table where their files are there: 290 rows with gaps filled, by
the most frequent value ("mode") or by 0, and the small soybean set (47 rows, 4 classes).

What the paper leaves open, and here is chosen:

- A run has 30% of the rows, drawn at random, for validation, and the others in random order.
- k-means is scikit-learn's, with the number of classes and one start.
- Gibbs sampling is Algorithm 3 of Neal (2000), with the posterior of the paper's Algorithm 2 and
  less correlation. Data are centered, since the prior of the means is. rho = 100 as in the paper.
  alpha and sigma are those with the largest NMI on the validation rows (60 sweeps, of which the
  last 20 count): alpha from 0.01, 0.1, 1, 10, sigma from 0.1, 0.3, 1 times the mean variance
  of the columns. (With a smaller sigma there are tens to hundreds of clusters, which NMI rewards.)
  5,000 sweeps after 1,000 of burn-in, as in the paper, of which every tenth counts. How much the
  second half of the sweeps differs from the first is printed.

Two methods that the paper does not have need no number of clusters and no classes: "auto" is
DPMeans(lam="auto"), "mixture" scikit-learn's BayesianGaussianMixture with its defaults, a Dirichlet
process of at most 20 components with covariances of their own, and 100 iterations.
"""

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from dp_sampler import DirichletProcess
from resume import resumed
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import (
    adjusted_mutual_info_score,
    adjusted_rand_score,
    normalized_mutual_info_score,
)
from sklearn.mixture import BayesianGaussianMixture
from threadpoolctl import threadpool_limits

from smallvar import DPMeans, farthest_first_lambda

PAPER = {  # NMI of DP-means, k-means, Gibbs sampling
    "wine": (0.41, 0.43, 0.42),
    "iris": (0.75, 0.76, 0.73),
    "pima": (0.02, 0.03, 0.02),
    "soybean": (0.72, 0.66, 0.73),
    "car": (0.07, 0.05, 0.15),
    "balance_scale": (0.17, 0.11, 0.14),
    "breast_cancer": (0.04, 0.03, 0.04),
    "vehicle": (0.18, 0.18, 0.17),
}
VARIANTS = ("soybean_290_mode", "soybean_290_fill0", "soybean_small", "iris_uci")
METHODS = ("DP-means", "k-means", "Gibbs", "auto", "mixture")
METRICS = {
    "NMI": normalized_mutual_info_score,
    "ARI": adjusted_rand_score,
    "AMI": adjusted_mutual_info_score,
}
RHO, COMPONENTS = 100.0, 20
GRID = np.array([(a, s) for a in (0.01, 0.1, 1.0, 10.0) for s in (0.1, 0.3, 1.0)])


def file_of(name):
    return Path(os.environ.get("SMALLVAR_DATA", ""), "uci", f"{name}.csv")


def splits(name, runs):
    """For each run: rows and classes for validation, and for clustering."""
    table = np.loadtxt(file_of(name), delimiter=",", skiprows=1)
    cut = round(0.3 * len(table))
    for run in range(runs):
        mixed = table[np.random.default_rng(run).permutation(len(table))]
        X, y = mixed[:, :-1], mixed[:, -1].astype(int)
        yield (X[:cut], y[:cut]), (X[cut:], y[cut:])


def scores(truth, labels):
    """NMI, ARI, AMI and the number of clusters."""
    return [metric(truth, labels) for metric in METRICS.values()] + [len(np.unique(labels))]


def centered(parts):
    """Rows of all runs, their classes, and the mean variance of the columns of each."""
    X = np.array([X - X.mean(axis=0) for X, _ in parts])
    return X, [y for _, y in parts], X.var(axis=1).mean(axis=1)


def validated(parts, sweeps):
    """alpha, and sigma in mean variances of the columns, for each run."""
    X, truths, variance = centered(parts)
    n = len(GRID)
    alpha, share = np.tile(GRID.T, len(parts))
    chains = DirichletProcess(
        X.repeat(n, axis=0), share * variance.repeat(n), RHO, alpha, chains=len(alpha), seed=1
    )
    total = np.zeros(len(alpha))
    for sweep in range(sweeps):
        chains.sweep()
        if sweep >= sweeps * 2 // 3 and sweep % 10 == 9:
            for i, labels in enumerate(chains.labels):
                total[i] += normalized_mutual_info_score(truths[i // n], labels)
    return GRID[total.reshape(-1, n).argmax(axis=1)].T


def gibbs(parts, burn_in, sweeps):
    """A row a run: scores, averaged over every tenth sweep; parameters; drift of NMI; seconds."""
    begin = time.process_time()
    alpha, share = validated([part for part, _ in parts], min(burn_in, 60))
    X, truths, variance = centered([part for _, part in parts])
    chains = DirichletProcess(X, share * variance, RHO, alpha, chains=len(X), seed=2)
    found = []
    for sweep in range(burn_in + sweeps):
        chains.sweep()
        if sweep >= burn_in and sweep % 10 == 9:
            found.append([scores(*pair) for pair in zip(truths, chains.labels, strict=True)])
    found = np.array(found)
    half = len(found) // 2
    drift = np.mean(found[half:, :, 0]) - np.mean(found[:half, :, 0])
    seconds = time.process_time() - begin
    same = np.broadcast_to([drift, seconds], (len(parts), 2))
    return np.column_stack((found.mean(axis=0), alpha, share, same))


def fits(parts):
    """Method -> scores of each run, for what is no sampling."""
    found = {name: [] for name in METHODS if name != "Gibbs"}
    for run, (_, (X, truth)) in enumerate(parts):
        k = len(np.unique(truth))
        models = {
            "DP-means": DPMeans(lam=farthest_first_lambda(X, k, count_alone=True)),
            "k-means": KMeans(k, n_init=1, random_state=run),
            "auto": DPMeans(random_state=run),
            "mixture": BayesianGaussianMixture(
                n_components=COMPONENTS,
                weight_concentration_prior_type="dirichlet_process",
                random_state=run,
            ),
        }
        for name, model in models.items():
            found[name].append(scores(truth, model.fit_predict(X)))
    return {name: np.array(rows) for name, rows in found.items()}


def published(found):
    """Table 1: the paper's NMI, and what is found here."""
    print("\nTable 1, NMI: published, found (standard deviation over runs)\n")
    print(f"{'':15s}{'DP-means':>20s}{'k-means':>20s}{'Gibbs':>20s}")
    for name, quoted in PAPER.items():
        line = f"{name:15s}"
        for method, number in zip(METHODS, quoted, strict=False):
            nmi = found[name][method][:, 0]
            line += f"{number:8.2f}{nmi.mean():6.2f} ({nmi.std():.2f})".replace("0.", ".")
        print(line)
    ahead = [
        sum(
            found[name]["DP-means"][:, 0].mean() > found[name][other][:, 0].mean() for name in PAPER
        )
        for other in ("k-means", "Gibbs")
    ]
    print(
        "\nDP-means has the larger NMI than k-means in 5 of 8 sets published, "
        f"{ahead[0]} found;\nthan Gibbs sampling in 4 published, {ahead[1]} found."
    )


def beside(found):
    """What NMI does not say: other metrics, and the number of clusters."""
    for column, metric in enumerate([*METRICS, "clusters"]):
        print(f"\n{metric}, mean over runs\n")
        classes = "classes" if metric == "clusters" else ""
        print(f"{'':18s}" + "".join(f"{method:>10s}" for method in METHODS) + f"{classes:>10s}")
        for name, rows in found.items():
            line = f"{name:18s}"
            for method in METHODS:
                value = rows[method][:, column].mean() if method in rows else None
                digits = 1 if metric == "clusters" else 3
                line += f"{'':10s}" if value is None else f"{value:10.{digits}f}"
            print(line + (f"{rows['classes']:10d}" if metric == "clusters" else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--burn-in", type=int, default=1000)
    parser.add_argument("--sweeps", type=int, default=5000, help="after the burn-in")
    parser.add_argument("--quick", action="store_true", help="2 runs, 30 sweeps")
    options = parser.parse_args()
    if options.quick:
        options.runs, options.burn_in, options.sweeps = 2, 10, 20
    missing = [str(file_of(name)) for name in PAPER if not file_of(name).is_file()]
    if missing:
        sys.exit(f"SMALLVAR_DATA must name a folder that has {', '.join(missing)}\n\n{__doc__}")
    warnings.filterwarnings("ignore", "KMeans is known to have a memory leak")
    warnings.filterwarnings("ignore", category=ConvergenceWarning)  # of the mixture
    found, notes = {}, []
    with threadpool_limits(1):
        for name in [*PAPER, *(v for v in VARIANTS if file_of(v).is_file())]:
            parts = list(splits(name, options.runs))
            begin = time.process_time()
            found[name] = fits(parts)
            found[name]["classes"] = len(np.unique(parts[0][1][1]))
            if name in PAPER:
                seconds = time.process_time() - begin
                key = name, options.runs, options.burn_in, options.sweeps
                rows = resumed(key, lambda parts=parts, key=key: gibbs(parts, *key[2:]))
                found[name]["Gibbs"] = rows[:, :4]
                alpha, share, (drift, sampling) = rows[:, 4], rows[:, 5], rows[0, 6:]
                both = f"{np.median(alpha):10g}{np.median(share):10g}"
                notes.append(f"{name:15s}{both}{seconds:12.1f}{sampling:12.1f}{drift:12.3f}")
                print(f"{name} is done", file=sys.stderr, flush=True)
    print(f"{options.runs} runs; Gibbs: {options.sweeps} sweeps after {options.burn_in}")
    published(found)
    beside(found)
    print("\nGibbs: median of alpha, and of sigma in mean variances; seconds of CPU for all runs;")
    print("NMI of the second half of the sweeps less that of the first\n")
    print(f"{'':15s}{'alpha':>10s}{'sigma':>10s}{'all others':>12s}{'Gibbs':>12s}{'drift':>12s}")
    print("\n".join(notes))
    print(REASONS)


REASONS = """
Why they differ
(figures: ten runs)
DP-means is within .03 of the published NMI on all sets, k-means too but on Balance Scale: its rows
are a full grid without clusters, each start ends elsewhere (standard deviation .08), and the paper
does not say how its k-means began. Random splits move the other means by about as much as they
differ. On Soybean no reading of the data has both published values, .72 and .66: 266 complete rows
and 290 filled ones give DP-means .69 to .70.
Gibbs sampling is ahead of the published NMI where it makes many more clusters than there are
classes (Pima, Car, Balance Scale, Breast Cancer, Vehicle: 11 to 51 for 2 to 4): alpha and sigma are
chosen by NMI, which rewards that, and the smallest sigma of the grid is mostly taken. The paper's
grid is not given. By ARI it is behind DP-means on four of the eight.
"auto" finds one cluster, or a few, where columns are codes of categories, which its densities
do not describe. "mixture" uses 18 or more of its 20 components on five of the eight.
"""


if __name__ == "__main__":
    main()
