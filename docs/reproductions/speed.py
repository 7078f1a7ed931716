"""Seconds of whole fits beside what users take instead, with the quality of what was found.

    python docs/reproductions/speed.py [--quick] [--figure FILE] [--keep FILE]

takes an hour or so of one core and prints a line for each fit: seconds of the processor on one
thread, the number of clusters and the adjusted Rand index with the true ones. --figure draws
seconds over rows and over clusters, with that index as the color. The data are Gaussian clusters
well apart, the columns 16. KMeans, MiniBatchKMeans, GaussianMixture and faiss are told the true
number, all others nothing; faiss, hdbscan and fast_hdbscan are left out where they are not
installed. Each fit is made as scaling.py makes its fits, after a small one (fast_hdbscan is
compiled then), and a series ends at the first one that takes more than 60 seconds or 8 GB. --keep
FILE writes what is measured to that file and takes from it what is there; --quick takes few rows.
"""

import argparse
import importlib.util
import os
import warnings
from pathlib import Path

os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np
import scaling
from benchmarks.data import blobs
from benchmarks.scaling import Points
from sklearn.cluster import HDBSCAN, KMeans, MiniBatchKMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from smallvar import DPMeans, MahalanobisMeans, RobustDPMeans, ShapeMeans


class FaissKMeans:
    """faiss.Kmeans, and the nearest center of each row."""

    def __init__(self, k):
        self.k = k

    def fit(self, X):
        """Fit, and keep the labels."""
        import faiss

        X = np.asarray(X, dtype=np.float32)
        model = faiss.Kmeans(X.shape[1], self.k, seed=1, verbose=False)
        model.train(X)
        self.labels_ = model.index.search(X, 1)[1][:, 0]
        return self


def of_package(package):
    """The HDBSCAN of another package."""
    return importlib.import_module(package).HDBSCAN()


# name: what makes the estimator, given the true number
OURS = {
    "DPMeans()": lambda k: DPMeans(random_state=0),
    "RobustDPMeans()": lambda k: RobustDPMeans(random_state=0),
    "MahalanobisMeans()": lambda k: MahalanobisMeans(random_state=0),
    "ShapeMeans()": lambda k: ShapeMeans(random_state=0),
}
RIVALS = {
    "KMeans(k)": lambda k: KMeans(k, random_state=0),
    "KMeans(k, n_init=10)": lambda k: KMeans(k, n_init=10, random_state=0),
    "MiniBatchKMeans(k)": lambda k: MiniBatchKMeans(k, random_state=0),
    "GaussianMixture(k)": lambda k: GaussianMixture(k, random_state=0),
    "HDBSCAN()": lambda k: HDBSCAN(copy=True),
    "faiss.Kmeans(d, k)": FaissKMeans,
    "hdbscan.HDBSCAN()": lambda k: of_package("hdbscan"),
    "fast_hdbscan.HDBSCAN()": lambda k: of_package("fast_hdbscan"),
}
RIVALS = {
    name: make
    for name, make in RIVALS.items()
    if "." not in name or importlib.util.find_spec(name.partition(".")[0])
}
METHODS = {**OURS, **RIVALS}


class Everything(Points):
    """Gaussian clusters well apart; KMeans, GaussianMixture and faiss are told their number."""

    base = (100_000, 16, 30)
    rows, columns, clusters = scaling.ROWS, (16,), scaling.CLUSTERS
    names = tuple(METHODS)

    def setup(self, case, name):
        """Make the data; one small fit."""
        n, d, k = self.cases[case]
        self.limits = threadpool_limits(1)
        self.X, self.truth = blobs(n, d, k)
        self.estimator = METHODS[name](k)
        warnings.simplefilter("ignore")  # numbers that are not clear; convergence
        METHODS[name](3).fit(np.ascontiguousarray(self.X[:200]))

    def track_quality(self, case, name):
        """The adjusted Rand index."""
        return adjusted_rand_score(self.truth, self.labels(case, name))

    track_quality.unit = "ARI"


class Few(Everything):
    """The same with few rows."""

    base = (1000, 16, 5)
    rows, clusters = (500, 1000), (5, 10)


def table(family, found):
    """A line for each fit."""
    print(
        "Seconds of the processor on one thread, number of clusters, adjusted Rand index, MB beside"
    )
    print("the data. KMeans, MiniBatchKMeans, GaussianMixture and faiss are told the number.")
    for case in family.cases:
        print(f"\n{case}")
        for name in family.names:
            seconds, k, quality, memory = found[case, name]
            if np.isfinite(seconds):
                print(f"{name:24s}{seconds:10.4f}{k:8.0f}{quality:8.3f}{memory / 1e6:9.0f}")
    print(f"\nExponent of time over rows from {scaling.LEAST:,} on, and over clusters")
    for name in family.names:
        slopes = [scaling.exponent(family, found, axis, name) for axis in ("rows", "clusters")]
        print(f"{name:24s}" + "".join(f"{slope:8.2f}" for slope in slopes))


def draw(family, found, file):
    """Seconds over rows and over clusters; the color is the quality."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    style = {"axes.spines.top": False, "axes.spines.right": False, "font.size": 9}
    with plt.rc_context(style):
        fig, axes = plt.subplots(1, 2, figsize=(9.6, 4.6), layout="constrained", sharey=True)
        for ax, axis in zip(axes, ("rows", "clusters"), strict=True):
            points, ends = scaling.along(family, axis), {}
            numbers = np.array([number for number, _ in points])
            for name in family.names:
                seconds, _, quality, _ = np.array([found[case, name] for _, case in points]).T
                there = np.isfinite(seconds)
                ours = name in OURS
                ax.plot(
                    numbers[there],
                    seconds[there],
                    "-" if ours else "--",
                    color="0.35" if ours else "0.75",
                    lw=1.6 if ours else 1.0,
                    zorder=1,
                )
                dots = ax.scatter(
                    numbers[there],
                    seconds[there],
                    *(46 if ours else 26, quality[there]),
                    cmap="viridis",
                    vmin=0,
                    vmax=1,
                    marker="o" if ours else "s",
                    edgecolors="0.3",
                    linewidths=0.6,
                    zorder=2,
                )
                if there.any():
                    ends[name] = numbers[there][-1], seconds[there][-1]
            ax.set(xscale="log", yscale="log", xlabel=axis)
            ax.set_xticks(numbers, [scaling.short(number) for number in numbers])
            ax.minorticks_off()
            ax.yaxis.set_major_formatter("{x:g}")
            ax.grid(axis="y", color="0.9", lw=0.6)
            write_names(ax, ends)
        axes[0].set_ylabel("seconds of the processor, one thread")
        fig.colorbar(dots, ax=axes, label="agreement with the true clusters (ARI)", shrink=0.8)
        fig.savefig(file, dpi=130)


def write_names(ax, ends, gap=1.5):
    """Names at the ends of lines, one above the other where these are close together."""
    right = max(x for x, _ in ends.values())
    for at_right in (True, False):
        place, inside = (
            0.0,
            [(y, x, name) for name, (x, y) in ends.items() if (x == right) == at_right],
        )
        for y, x, name in sorted(inside):
            place = max(y, gap * place)
            ax.annotate(
                name,
                (x, place),
                xytext=(8 if at_right else -6, 0 if at_right else 3),
                textcoords="offset points",
                color="black" if name in OURS else "0.45",
                fontsize=7.5,
                va="center",
                ha="left" if at_right else "right",
                annotation_clip=False,
            )


def main():
    """Print the table; draw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rows")
    parser.add_argument("--figure", type=Path, help="draw to this file")
    parser.add_argument("--keep", type=Path, help="file of what was measured")
    options = parser.parse_args()
    family = Few if options.quick else Everything
    found = scaling.measured(family, options.keep, scaling.ENOUGH / (10 if options.quick else 1))
    table(family, found)
    if options.figure:
        draw(family, found, options.figure)


if __name__ == "__main__":
    main()
