"""Moving Gaussians: section 8.1 of Campbell, Kulis and How (2017).

    python docs/reproductions/moving_gaussians.py [--quick] [--figure FILE]

takes half an hour of one core (resume.py: it can be stopped), prints the tables of
docs/guide/dynamic_quality.rst and draws results/moving_gaussians.png, or the file that --figure
names. There are 50 records of each kind, as in the paper. --quick makes one record of each kind for
the tables, with 5 clusters, and coarse maps of one, and draws only where it is told. A record has
100 steps and a fixed number of clusters, each with 15 points a step around its center. Centers
start uniform in the unit square and move in every step. Before each step but the first, a cluster
dies with probability 0.05, and a new one, with a number of its own, starts at a random place. There
are two readings of how points and centers spread:

words    as the paper says: isotropic Gaussians of standard deviation 0.05 in each direction.
         Nothing is said of the border; here centers are reflected there.
program  as the example that comes with the authors' program (dynamic-means by Trevor Campbell)
         does it: a normal length of standard deviation 0.05 in a uniform direction, which has half
         the variance and piles points up at the center. There is no border.

A third kind of record is not in the paper:

sparse   as words, but with 3 points a step, steps of standard deviation 0.01, and each cluster
         not seen in a step with probability 0.3.

Accuracy is that of the paper, under consistent matching (`label_accuracy` says how), and the same
with every step on its own. What the others do is cluster each step alone. "Fresh" gives all
clusters of a step new numbers; "linked" takes over the number of the nearest center of the step
before, one to one with the least sum of squared distances, unless it is more than lam away. k-means
is told the true number of clusters of every step. All make three starts (k-means from k-means++
seeds) on one thread. The parameters of DynamicMeans are those of the program, t_q=6.8 among them;
t_q=3 is from the maps of "words", which are made from other records. The maps are Figures 1(a) and
1(b) of the paper; its Figure 1(c), how long a step takes at all their settings, is a histogram.
"""

import argparse
import io
import time
import warnings
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image  # matplotlib needs it anyway
from resume import resumed
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from smallvar import DPMeans, DynamicMeans

matplotlib.use("Agg")
import matplotlib.pyplot as plt

STEPS, POINTS, SD, DEATH = 100, 15, 0.05, 0.05
LAM, T_Q, K_TAU, STARTS = 0.05, 6.8, 1.01, 3
COUNTS = (5, 10, 15, 20, 25)
LAMS = np.array([0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.12, 0.2, 0.3])
T_QS = np.array([1.5, 2, 3, 4, 5, 6, 7, 10, 15, 30])
K_TAUS = np.array([1, 1.01, 1.03, 1.1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3])
METHODS = (
    "DynamicMeans",
    "DynamicMeans, t_q=3",
    "DPMeans, fresh",
    "DPMeans, linked",
    "KMeans, fresh",
    "KMeans, linked",
)
PICTURE = Path(__file__).resolve().parent / "results" / "moving_gaussians.png"


def spread(rng, n, reading, sd=SD):
    """Displacements of points or centers."""
    if reading != "program":
        return sd * rng.standard_normal((n, 2))
    angle = 2 * np.pi * rng.random(n)
    length = SD * rng.standard_normal(n)
    return length[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])


def draw(n_clusters, seed, reading):
    """Points and true clusters of every step."""
    rng = np.random.default_rng(seed)
    centers = rng.random((n_clusters, 2))
    ids, used = np.arange(n_clusters), n_clusters
    record = []
    for step in range(STEPS):
        if step:
            motion = 0.01 if reading == "sparse" else SD
            centers = centers + spread(rng, n_clusters, reading, motion)
            if reading != "program":
                centers = 1 - np.abs(1 - np.abs(centers))  # reflected at 0 and at 1
            dead = np.flatnonzero(rng.random(n_clusters) < DEATH)
            centers[dead] = rng.random((len(dead), 2))
            ids[dead] = used + np.arange(len(dead))
            used += len(dead)
        seen = np.arange(n_clusters)
        if reading == "sparse":
            seen = seen[rng.random(n_clusters) >= 0.3]
            seen = seen if len(seen) else np.arange(1)
        which = rng.permutation(seen.repeat(3 if reading == "sparse" else POINTS))
        X = centers[which] + spread(rng, len(which), reading)
        record.append((X, ids[which]))
    return record


def label_accuracy(found, truth, consistent=True):
    """Share of points whose found cluster is matched with their true one, averaged over steps.

    ``found`` and ``truth`` hold an array of labels for every step. In each step, points are set
    aside whose found or true label has been matched before; the labels of the others are matched
    one to one so that most points are in matched pairs; pairs without a common point are dropped,
    the others hold for good, or, without ``consistent``, for this step.
    """
    partner, shares = {}, []
    for labels, true in zip(found, truth, strict=True):
        share, matched = match_step(labels, true, partner)
        shares.append(share)
        partner = matched if consistent else {}
    return float(np.mean(shares))


def match_step(labels, true, partner):
    """Share of the points of a step in matched pairs, and the pairs of this step and before.

    ``partner`` has the true label of each found one that was matched before.
    """
    partner, taken = dict(partner), set(partner.values())
    names, row = np.unique(labels, return_inverse=True)
    true_names, column = np.unique(true, return_inverse=True)
    common = np.zeros((len(names), len(true_names)), dtype=int)
    np.add.at(common, (row, column), 1)
    free = np.array([name not in partner for name in names.tolist()])
    true_free = np.array([name not in taken for name in true_names.tolist()])
    left = common * free[:, None] * true_free
    for i, j in zip(*linear_sum_assignment(left, maximize=True), strict=True):
        if left[i, j]:
            partner[names[i].item()] = true_names[j].item()
    matched = [partner.get(name) for name in labels.tolist()]
    return np.mean([a == b for a, b in zip(matched, true.tolist(), strict=True)]), partner


def dynamic(record, lam=LAM, t_q=T_Q, k_tau=K_TAU, starts=STARTS):
    """Labels of every step."""
    model = DynamicMeans(lam=lam, t_q=t_q, k_tau=k_tau, n_init=starts, random_state=0, n_threads=1)
    return [model.partial_fit(X).labels_ for X, _ in record]


def alone(record, estimator):
    """Fresh labels of every step and the centers that belong to each."""
    labels, centers, used = [], [], 0
    for X, truth in record:
        if isinstance(estimator, KMeans):
            estimator.set_params(n_clusters=len(np.unique(truth)))
        estimator.fit(X)
        labels.append(used + estimator.labels_)
        centers.append(estimator.cluster_centers_)
        used += len(centers[-1])
    return labels, centers


def linked(labels, centers, lam=LAM):
    """The same with the labels of near centers of the step before."""
    result, used, before, names = [], 0, None, None
    for step, (one, middle) in enumerate(zip(labels, centers, strict=True)):
        first = sum(len(others) for others in centers[:step])
        new = np.full(len(middle), -1)
        if before is not None:
            distance = cdist(middle, before, "sqeuclidean")
            for i, j in zip(*linear_sum_assignment(np.minimum(distance, lam)), strict=True):
                if distance[i, j] < lam:
                    new[i] = names[j]
        missing = np.flatnonzero(new < 0)
        new[missing] = used + np.arange(len(missing))
        used += len(missing)
        result.append(new[one - first])
        before, names = middle, new
    return result


def compare(n_clusters, repetitions, reading):
    """Name -> accuracy, accuracy step by step, clusters a step, milliseconds a step."""
    rows = np.array(
        [
            resumed((reading, n_clusters, seed), lambda seed=seed: score(n_clusters, seed, reading))
            for seed in range(repetitions)
        ]
    )
    means, medians = rows.mean(axis=0), np.median(rows, axis=0)
    return {name: [*means[i, :3], medians[i, 3]] for i, name in enumerate(METHODS)}


def score(n_clusters, seed, reading):
    """The rows of ``compare`` for one record."""
    record, found = draw(n_clusters, seed, reading), []
    truth = [true for _, true in record]

    def note(labels, seconds):
        """Keep what a fit comes to."""
        row = (
            label_accuracy(labels, truth),
            label_accuracy(labels, truth, consistent=False),
            np.mean([len(np.unique(one)) for one in labels]),
            1e3 * seconds / STEPS,
        )
        found.append(row)

    for t_q in (T_Q, 3):
        begin = time.process_time()
        labels = dynamic(record, t_q=t_q)
        note(labels, time.process_time() - begin)
    for estimator in (
        DPMeans(lam=LAM, n_init=STARTS, random_state=0, n_threads=1),
        KMeans(n_clusters, n_init=STARTS, random_state=0),
    ):
        begin = time.process_time()
        labels, centers = alone(record, estimator)
        seconds = time.process_time() - begin
        note(labels, seconds)
        note(linked(labels, centers), seconds)
    return found


def table(readings, repetitions, counts):
    """Accuracies for every kind of record, method and number of clusters."""
    for reading in readings:
        rows = {k: compare(k, repetitions, reading) for k in counts}
        titles = [
            "accuracy, consistent",
            "accuracy, step by step",
            "clusters a step",
            "milliseconds of CPU a step (median)",
        ]
        for column, title in enumerate(titles):
            print(f"\n{reading}: {title}")
            print(f"{'clusters':20s}" + "".join(f"{k:10d}" for k in counts))
            for name in rows[counts[0]]:
                found = [rows[k][name][column] for k in counts]
                print(f"{name:20s}" + "".join(f"{value:10.2f}" for value in found), flush=True)


def grids(repetitions, reading, lams, t_qs, k_taus):
    """For 5 clusters, over (t_q, lam) and over (t_q, k_tau): accuracies; milliseconds of all."""

    def found(seed):
        """Accuracy and milliseconds a step of one record at all settings."""
        record = draw(5, 1000 + seed, reading)
        truth, rows = [true for _, true in record], []
        settings = [{"lam": lam, "t_q": t_q} for t_q in t_qs for lam in lams]
        settings += [{"k_tau": k_tau, "t_q": t_q} for t_q in t_qs for k_tau in k_taus]
        for setting in settings:
            begin = time.process_time()
            labels = dynamic(record, **setting)
            seconds = time.process_time() - begin
            rows.append((label_accuracy(labels, truth), 1e3 * seconds / STEPS))
        return rows

    tables = [
        resumed((reading, "map", len(lams), seed), lambda seed=seed: found(seed))
        for seed in range(repetitions)
    ]
    accuracy, times = np.mean(tables, axis=0)[:, 0], np.median(tables, axis=0)[:, 1]
    left, right = np.split(accuracy, [len(t_qs) * len(lams)])
    return left.reshape(len(t_qs), -1), right.reshape(len(t_qs), -1), times


def maps(repetitions, picture, every):
    """The picture, or None, of every so many-th value."""
    lams, t_qs, k_taus = LAMS[::every], T_QS[::every], K_TAUS[::every]
    fig, axes = plt.subplots(2, 3, figsize=(9.6, 6.2), layout="constrained")
    for row, reading in zip(axes, ("words", "program"), strict=True):
        *both, times = grids(repetitions, reading, lams, t_qs, k_taus)
        low, middle, high = np.quantile(times, (0.05, 0.5, 0.95))
        print(
            f"{reading}: milliseconds a step at {len(times)} settings: {middle:.2f}, "
            f"90% of them {low:.2f} to {high:.2f}"
        )
        row[2].hist(times, bins=30)
        row[2].set(xlabel="milliseconds a step", ylabel="settings", xlim=(0, None))
        row[2].spines[["top", "right"]].set_visible(False)
        for ax, grid, columns, name in zip(
            row[:2],
            both,
            (lams, k_taus),
            ("lam", "k_tau"),
            strict=True,
        ):
            best = np.unravel_index(grid.argmax(), grid.shape)
            print(
                f"{reading}: best accuracy {grid.max():.2f} at {name}={columns[best[1]]:g}, "
                f"t_q={t_qs[best[0]]:g}"
            )
            image = ax.pcolormesh(grid, vmin=0.1, vmax=0.75, cmap="viridis")
            ticks = [f"{value:g}".lstrip("0") for value in columns]
            ax.set_xticks(np.arange(len(columns)) + 0.5, ticks)
            ax.set_yticks(np.arange(len(t_qs)) + 0.5, [f"{value:g}" for value in t_qs])
            ax.tick_params(length=0, labelsize=7)
            ax.set_xlabel(name)
            other = f"k_tau = {K_TAU}" if name == "lam" else f"lam = {LAM}"
            ax.set_title(f"{reading}, {other}", fontsize=10)
            x = np.interp(LAM if name == "lam" else K_TAU, columns, np.arange(len(columns)))
            y = np.interp(T_Q, t_qs, np.arange(len(t_qs)))
            ax.plot(x + 0.5, y + 0.5, "+", color="black", ms=13, mew=4)
            ax.plot(x + 0.5, y + 0.5, "+", color="white", ms=12, mew=2)
        row[0].set_ylabel("t_q")
    fig.colorbar(image, ax=axes[:, :2], shrink=0.6, label="label accuracy")
    buffer = io.BytesIO()
    fig.savefig(buffer, dpi=110)
    if picture:
        Image.open(buffer).convert("RGB").quantize(128).save(picture, optimize=True)
        print(f"{picture.name}: {picture.stat().st_size / 1000:.0f} kB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=50, help="records in the tables")
    parser.add_argument("--maps", type=int, default=50, help="records in the maps; 0 for no maps")
    parser.add_argument("--quick", action="store_true", help="one record of each kind")
    parser.add_argument("--figure", type=Path, help="draw to this file")
    arguments = parser.parse_args()
    repetitions, n_maps, counts = arguments.repetitions, arguments.maps, COUNTS
    picture, every = arguments.figure or PICTURE, 1
    if arguments.quick:
        repetitions, n_maps, counts = 1, 1, COUNTS[:1]
        picture, every = arguments.figure, 5
    warnings.filterwarnings("ignore", "KMeans is known to have a memory leak")
    with threadpool_limits(1):
        if repetitions:
            table(("words", "program", "sparse"), repetitions, counts)
        if n_maps:
            maps(n_maps, picture, every)


if __name__ == "__main__":
    main()
