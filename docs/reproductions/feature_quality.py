"""What a start of each kind is worth: squared error over the number of starts, and over time.

    SMALLVAR_DATA=folder python docs/reproductions/feature_quality.py [--quick] [--figure FILE]

takes about four minutes of one core, prints the tables of docs/guide/feature_starts.rst and draws
results/feature_quality.png, or the file that --figure names. --quick takes 2% of the starts, and
draws only where it is told. The folder must have bp_means_tabletop_pca100.csv: one line of
names, then 100 rows of 100 numbers, the principal components of the 100 tabletop photos of
Griffiths and Ghahramani (2011). The photos come with the program of Broderick, Kulis and Jordan
(2013), published as bp-means by Tamara Broderick. As in that program, the pixels of all three color
channels go from 0 to 1 and are divided by the square root of 99; the mean photo is subtracted and
100 components are kept.

The estimators keep the best of their starts. Here every start counts, so the compiled class below
them is used. Every kind has as many starts as fit into about the same time.
"""

import argparse
import io
import os
import sys
import time
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image  # matplotlib needs it anyway
from scipy.special import gammaln
from smallvar._sweeps.features.starts import MOST_TRIED, FeatureSweep

matplotlib.use("Agg")
import matplotlib.pyplot as plt

NAME = "bp_means_tabletop_pca100.csv"
PICTURE = Path(__file__).resolve().parent / "results" / "feature_quality.png"
PUBLISHED = {5: 161.2, 8: 143.5}  # best of 1,000 starts, from the README of the authors' program
BLOCKS = 20  # all kinds take turns, so that a busy machine slows all of them
LAM = 1e-6  # so small that "sweep" and "collapsed" open all features they may

# name: (rule, swaps, color, line, starts for K = 5 and K = 8)
KINDS = {
    "coordinate": ("coordinate", 0, "C0", "-", (100_000, 100_000)),
    "coordinate, 10 swaps": ("coordinate", 10, "C0", "--", (15_000, 15_000)),
    "coordinate, 100 swaps": ("coordinate", 100, "C0", ":", (1_800, 1_800)),
    "exact": ("exact", 0, "C1", "-", (80_000, 50_000)),
    "exact, 10 swaps": ("exact", 10, "C1", "--", (12_000, 7_000)),
    "exact, 100 swaps": ("exact", 100, "C1", ":", (1_400, 800)),
    "sweep": ("sweep", 0, "C2", "-", (100_000, 90_000)),
    "collapsed": ("collapsed", 0, "C3", "-", (40_000, 25_000)),
    "collapsed, bit by bit": ("bit by bit", 0, "C3", "--", (60_000, 50_000)),
}


def run(X, rule, k, swaps, starts, rng):
    """Squared errors of single starts, and seconds for each, on one thread."""
    lam = 0.0 if rule in ("coordinate", "exact") else LAM
    most_tried = 0 if rule == "bit by bit" else MOST_TRIED  # features up to which rows are whole
    name = "collapsed" if rule == "bit by bit" else rule
    sweep = FeatureSweep(X, None, name, lam, k, 1000, 0.0, swaps, 1, None, most_tried)
    states = rng.integers(2**63, size=starts, dtype=np.uint64)
    modes = np.arange(starts, dtype=np.intc) % 2  # init="alternate"
    begin = time.process_time()  # not the time that others take
    sweep.run(states, modes)
    seconds = (time.process_time() - begin) / starts
    if sweep.k != k:
        raise RuntimeError(f"{rule} ended with {sweep.k} features instead of {k}")
    return sweep.objectives, seconds


def measure(X, k, share):
    """Name -> errors of all starts, median of the seconds for one."""
    rng = np.random.default_rng(k)
    column = 0 if k == 5 else 1
    errors, seconds = {name: [] for name in KINDS}, {name: [] for name in KINDS}
    for _ in range(BLOCKS):
        for name, (rule, swaps, _, _, starts) in KINDS.items():
            count = max(2, int(starts[column] * share) // BLOCKS)
            found, duration = run(X, rule, k, swaps, count, rng)
            errors[name].append(found)
            seconds[name].append(duration)
    return {name: (np.concatenate(errors[name]), float(np.median(seconds[name]))) for name in KINDS}


def expected_best(errors, m):
    """Mean of the least of m values drawn without replacement."""
    least, n = np.sort(errors), len(errors)
    rank = np.arange(n - m + 1)  # the least has this rank, the others come from behind it
    log = gammaln(n - rank) - gammaln(n - rank - m + 1) - gammaln(n + 1) + gammaln(n - m + 1)
    return float(np.exp(log + np.log(m)) @ least[: n - m + 1])


def stepwise(X, k, counts, share, draws=20_000):
    """Mean error and seconds of stepwise K-features with m starts for each number of features.

    It stops when the error rises from one number to the next, which with few starts it may do
    early. The starts are drawn, with replacement, from single ones.
    """
    rng = np.random.default_rng(100 + k)
    steps = [run(X, "coordinate", j, 0, int(20_000 * share), rng) for j in range(1, k + 1)]
    means, times = [], []
    for m in counts:
        last, duration = np.full(draws, np.inf), np.zeros(draws)
        running = np.ones(draws, dtype=bool)
        for errors, seconds in steps:
            rank = len(errors) * (1 - rng.random(draws) ** (1 / m))  # of the least of m
            best = np.sort(errors)[rank.astype(int)]
            duration += running * m * seconds
            running &= best <= last
            last = np.where(running, best, last)
        means.append(last.mean())
        times.append(duration.mean())
    return np.array(means), np.array(times)


def up_to(n):
    """Numbers from 1 to n, evenly spaced in their logarithm."""
    return np.unique(np.geomspace(1, n, 60).astype(int))


def table(k, results, best):
    """Rows for the guide."""
    unit = results["coordinate"][1]
    goal = best * (1 + 1e-6) if k == 5 else PUBLISHED[k]
    print(f"\nK = {k}: least error {best:.3f}, a coordinate start takes {unit * 1e6:.0f} us")
    header = ["kind", "starts", "total s", "time of one", "median", "best", "share", "ms to 99%"]
    print(("{:22s}" + "{:>12s}" * 7).format(*header))
    for name, (errors, seconds) in results.items():
        share = np.mean(errors <= goal)
        needed = max(1.0, np.log(0.01) / np.log1p(-share)) if share else np.inf  # starts
        print(
            f"{name:22s}{len(errors):12,d}{len(errors) * seconds:12.1f}{seconds / unit:12.1f}"
            f"{np.median(errors):12.1f}{errors.min():12.2f}{share:12.3%}"
            f"{1e3 * needed * seconds:12.1f}"
        )
    print(
        f"share of the starts that end at or below {goal:.2f}; time until one does, 99 times of 100"
    )


def draw(axes, k, X, results, best, share):
    by_starts, by_seconds = axes
    for name, (errors, seconds) in results.items():
        _, _, color, line, _ = KINDS[name]
        m = up_to(len(errors) // 10)  # beyond, the mean rests on too few starts
        value = [expected_best(errors, each) for each in m]
        by_starts.plot(m, value, line, color=color, lw=1.4)
        by_seconds.plot(m * seconds, value, line, color=color, lw=1.4, label=name)
    m = up_to(2_000)
    value, seconds = stepwise(X, k, m, share)
    by_starts.plot(m, value, color="C4", lw=1.4)
    by_seconds.plot(seconds, value, color="C4", lw=1.4, label="stepwise")
    print(f"stepwise, {m[-1]} starts for each number: {value[-1]:.2f} after {seconds[-1]:.2f} s")
    for ax in axes:
        label = "authors' program, best of 1,000"
        ax.axhline(PUBLISHED[k], color="0.6", lw=0.8, zorder=0, label=label)
        ax.set(xscale="log", ylim=(best - (6 if k == 5 else 2), 205 if k == 5 else 170))
    by_starts.set(xlim=(1, 1e4), ylabel=f"squared error, K = {k}")
    by_seconds.set(xlim=(1e-4, 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2%% of the starts")
    parser.add_argument("--figure", type=Path, help="draw to this file")
    options = parser.parse_args()
    share = 0.02 if options.quick else 1.0
    figure = options.figure or (None if options.quick else PICTURE)
    folder = os.environ.get("SMALLVAR_DATA")
    if not folder or not Path(folder, NAME).exists():
        sys.exit(f"SMALLVAR_DATA must name a folder that has {NAME}\n\n{__doc__}")
    X = np.loadtxt(Path(folder, NAME), delimiter=",", skiprows=1)

    style = {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
    with plt.rc_context(style):
        fig, axes = plt.subplots(2, 2, figsize=(6.2, 6.6), sharey="row", layout="constrained")
        for row, k in zip(axes, (5, 8), strict=True):
            results = measure(X, k, share)
            best = min(errors.min() for errors, _ in results.values())
            table(k, results, best)
            draw(row, k, X, results, best, share)
        axes[1, 0].set(xlabel="starts")
        axes[1, 1].set(xlabel="seconds on one thread")
        labeled = axes[0, 1].get_legend_handles_labels()
        order = [0, 1, 2, 6, 7, 3, 4, 5, 8, 9]  # two columns: coordinate and exact on top
        handles, labels = ([each[i] for i in order] for each in labeled)
        fig.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9)
        drawn = io.BytesIO()
        fig.savefig(drawn, dpi=140)
    if figure:
        Image.open(drawn).convert("RGB").quantize(128).save(figure, optimize=True)


if __name__ == "__main__":
    main()
