"""Seconds a sweep on 312,320 x 128: the end of section 6.2 of Kulis and Jordan (2012).

    python docs/reproductions/kulis_jordan_patches.py

prints them for DP-means, k-means and Gibbs sampling; ``--quick`` takes a tenth of the rows, and
some ten seconds of CPU time. The paper clusters the image patches of Photo Tourism (Snavely, Seitz
and Szeliski 2006), which are not at hand: here are as many rows and columns, drawn from 300
overlapping Gaussians that lie in 20 directions, plus noise in all. So times compare with each
other, and with the paper's only in their order of magnitude. lam, which the paper does not give, is
by the farthest-first rule for 100 clusters.

First DP-means runs from the mean to its fixed point, which gives the number K of clusters. Then
DP-means, capped at K, and k-means of scikit-learn make the same number of sweeps from the same
centers, K random rows; "elkan" keeps bounds of distances as DP-means does, "lloyd" does not. A
sweep costs the time of a whole fit over its sweeps. Fits take turns; ratios are of neighbors. On a
busy machine CPU time tells more than wall time does. A sweep of Gibbs sampling (dp_sampler.py, in
numpy, one thread) is timed on 5,000 rows, beginning at the clusters of DP-means: with K given, the
time goes by the number of rows.
"""

import argparse
import time
import warnings

import numpy as np
from dp_sampler import DirichletProcess
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from smallvar import DPMeans, farthest_first_lambda

ROWS, COLUMNS, RANK, TRUE, GUESS = 312_320, 128, 20, 300, 100
SWEEPS, GIBBS_ROWS = 5, 5_000


def draw(rows):
    """Rows of float32, as the paper's are of no higher precision."""
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((RANK, COLUMNS)) / np.sqrt(COLUMNS)
    directions *= 0.9 ** np.arange(RANK)[:, None]
    inner = 2.0 * rng.standard_normal((TRUE, RANK))[rng.integers(TRUE, size=rows)]
    X = (inner + rng.standard_normal((rows, RANK))) @ directions
    return (X + 0.1 * rng.standard_normal((rows, COLUMNS))).astype(np.float32)


def seconds_a_sweep(model, X, n_threads):
    """Wall time and CPU time of a fit over its sweeps."""
    with threadpool_limits(n_threads):
        begin = np.array([time.perf_counter(), time.process_time()])
        model.fit(X)
        return ([time.perf_counter(), time.process_time()] - begin) / model.n_iter_


def compare(X, lam, k, repeats, n_threads):
    """Prints medians over repeats."""
    times = {"DP-means": [], "KMeans, lloyd": [], "KMeans, elkan": []}
    for repeat in range(repeats):
        start = X[np.random.default_rng(repeat).choice(len(X), k, replace=False)]
        models = {
            "DP-means": DPMeans(
                lam=lam, max_clusters=k, init=start, max_iter=SWEEPS, n_threads=n_threads
            )
        }
        for algorithm in ("lloyd", "elkan"):
            models[f"KMeans, {algorithm}"] = KMeans(
                k, init=start, n_init=1, max_iter=SWEEPS, tol=0, algorithm=algorithm
            )
        for name, model in models.items():
            times[name].append(seconds_a_sweep(model, X, n_threads))
    for name, found in times.items():
        middle = np.median(found, axis=0)
        ratio = np.median(np.array(found) / times["DP-means"], axis=0)
        line = f"{n_threads:8d}  {name:16s}{middle[0]:10.3f}{ratio[0]:16.2f}"
        print(f"{line}{middle[1]:10.3f}{ratio[1]:16.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=ConvergenceWarning)  # stopped on purpose
    X = draw(ROWS // 10 if options.quick else ROWS)
    lam = farthest_first_lambda(X, GUESS, count_alone=True)
    threads = max(options.threads)
    model = DPMeans(lam=lam, n_threads=threads)
    seconds, _ = seconds_a_sweep(model, X, threads)
    k, sweeps = model.n_clusters_, model.n_iter_
    print(f"{X.shape[0]:,} x {X.shape[1]}, {X.dtype}; lam = {lam:.2f}")
    print("DP-means from the mean to the fixed point, clusters, sweeps, seconds a sweep:")
    print(f"  found      {k:6d}{sweeps:6d}{seconds:10.3f}  ({threads} threads)")
    print(f"  published  {'-':>6s}{63:6d}{37.9:10.1f}")

    rows = np.random.default_rng(1).choice(len(X), GIBBS_ROWS, replace=False)
    chain = DirichletProcess(
        X[rows] - X.mean(axis=0), model.inertia_ / X.size, 100.0, 1.0, chains=1
    )
    chain.labels[0], chain.width = model.labels_[rows], k
    begin = time.process_time()
    with threadpool_limits(1):
        chain.sweep()
    sampling = (time.process_time() - begin) / GIBBS_ROWS * len(X)
    print("Gibbs sampling, seconds a sweep:")
    print(f"  found      {sampling:22.1f}  (of CPU, from {GIBBS_ROWS:,} rows)")
    print(f"  published  {29.4:22.1f}")

    print(f"\n{SWEEPS} sweeps from {k} random rows, median of {options.repeats}\n")
    print(
        f"{'threads':>8s}  {'':16s}{'s a sweep':>10s}{'over DP-means':>16s}"
        f"{'CPU s':>10s}{'over DP-means':>16s}"
    )
    for n_threads in options.threads:
        compare(X, lam, k, options.repeats, n_threads)
    print(REASONS)


REASONS = """
Why they differ
Other data, machines of 2012 and no statement of K: the published times are not to be compared with
these. Published, a sweep of Gibbs sampling takes less time than one of DP-means; that it takes more
here also says that one is numpy's and the other compiled.
DP-means keeps bounds of distances, which lloyd does not; elkan does, one for each point and center,
and is slower than lloyd on these data.
"""


if __name__ == "__main__":
    main()
