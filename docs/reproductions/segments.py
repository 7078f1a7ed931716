"""Records with known states: how many states are found, and how well rows are separated.

    python docs/reproductions/segments.py            # the tables of docs/guide/segments.rst
    python docs/reproductions/segments.py --quick
    python docs/reproductions/segments.py speed
    python docs/reproductions/segments.py limits
    SMALLVAR_DATA=folder python docs/reproductions/segments.py aircraft

The first takes some minutes, `speed` two; the others a few seconds. Rivals are left out where they
are not installed: hmmlearn and ruptures.

No figure of Roychowdhury, Jiang and Kulis (2013) is reproduced: their data are not here, and their
objective prices transitions by their estimated probabilities, ours all alike. The records are drawn
here: states with a least distance in standard deviations of the noise, which stay for a number of
rows, geometric but at least 2; the next state is any other one. Rivals are given what they cannot
find: K-means and Gaussian mixtures the true number of states, ruptures the variance of the noise
for the penalty (d + 1) log n of a piece (and the true number of states for the K-means of its
pieces), hmmlearn the true number, or numbers 1 to 10 of which BIC chooses. The script for
`aircraft` reads adsb_quickstart_20s.csv: frames of aircraft every 20 s, id, seconds and altitude
among the columns, as the sample data of the Python package `traffic` (quickstart) give them.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.signal import lfilter
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from smallvar import SegmentMeans

try:
    from hmmlearn.hmm import GaussianHMM
except ImportError:
    GaussianHMM = None
try:
    import ruptures
except ImportError:
    ruptures = None

ROWS = 1000
# columns, states, least distance of states, mean stay in rows, noise
RECORDS = [
    (1, 1, 0, 100, "normal"),
    (5, 1, 0, 100, "normal"),
    (1, 1, 0, 100, "autoregressive .5"),
    (1, 2, 3, 100, "normal"),
    (1, 3, 2, 50, "normal"),
    (1, 4, 5, 10, "normal"),
    (1, 8, 4, 30, "normal"),
    (2, 2, 1.5, 50, "normal"),
    (2, 3, 4, 30, "rounded to 2"),
    (2, 4, 6, 50, "autoregressive .5"),
    (2, 4, 4, 30, "t, 5 degrees"),
    (2, 5, 3, 20, "normal"),
    (5, 3, 2, 30, "normal"),
    (5, 6, 3, 30, "normal"),
    (20, 4, 3, 30, "normal"),
    (20, 8, 6, 10, "normal"),
]


def draw(columns, states, gap, stay, noise, seed, rows=ROWS):
    """Rows, and the state of each."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(states, columns))
    if states > 1:
        apart = np.linalg.norm(centers[:, None] - centers, axis=2)
        centers *= gap / apart[~np.eye(states, dtype=bool)].min()
    truth, t, state = np.empty(rows, dtype=int), 0, 0
    while t < rows:
        length = 1 + rng.geometric(1.0 / (stay - 1))
        truth[t : t + length] = state
        t += length
        if states > 1:
            state = (state + rng.integers(1, states)) % states
    errors = rng.normal(size=(rows, columns))
    if noise.startswith("t"):
        errors = rng.standard_t(5, size=errors.shape) * np.sqrt(3 / 5)
    elif noise.startswith("auto"):
        errors = lfilter([np.sqrt(0.75)], [1.0, -0.5], errors, axis=0)
    X = centers[truth] + errors
    return (2.0 * np.round(X / 2.0) if noise.startswith("round") else X), truth


def markov(X, k, seed, starts=3):
    """The best of some Gaussian hidden Markov models, and its BIC."""
    best, value = None, -np.inf
    for start in range(starts):
        model = GaussianHMM(k, n_iter=50, random_state=seed + start)
        try:
            score = model.fit(X).score(X)
        except ValueError:  # a state that lost all rows
            continue
        if score > value:
            best, value = model, score
    if best is None:
        return np.zeros(len(X), dtype=int), np.inf
    free = k * k - 1 + 2 * k * X.shape[1]
    return best.predict(X), free * np.log(len(X)) - 2.0 * value


def pieces_of_ruptures(X):
    """The piece of each row, by exact segmentation at the penalty (d + 1) log n, variance 1."""
    penalty = (X.shape[1] + 1) * np.log(len(X))
    ends = ruptures.KernelCPD(kernel="linear", min_size=1).fit(X).predict(pen=penalty)
    return np.repeat(np.arange(len(ends)), np.diff([0, *ends]))


def by_pieces(X, k):
    """K-means, given the number, of the means of the pieces that ruptures finds."""
    piece = pieces_of_ruptures(X)
    size = np.bincount(piece)
    means = np.column_stack([np.bincount(piece, x) / size for x in X.T])
    kmeans = KMeans(min(k, len(means)), n_init=10, random_state=0)
    return kmeans.fit(means, sample_weight=size).labels_[piece]


def fits(X, k, seed, most):
    """Name -> labels."""
    found = {"SegmentMeans": SegmentMeans().fit(X).labels_}
    found["KMeans, given K"] = KMeans(k, n_init=10, random_state=seed).fit(X).labels_
    found["GaussianMixture, given K"] = (
        GaussianMixture(k, n_init=3, random_state=seed).fit(X).predict(X)
    )
    if GaussianHMM is not None:
        found["hmmlearn, given K"] = markov(X, k, seed)[0]
        tried = [markov(X, number, seed, 1) for number in range(1, most + 1)]
        found["hmmlearn, BIC"] = min(tried, key=lambda one: one[1])[0]
    if ruptures is not None:
        found["ruptures + KMeans, given K"] = by_pieces(X, k)
    return found


def records(quick):
    """Number of states found, and agreement with the truth."""
    seeds, most, chosen = (1, 4, RECORDS[::4]) if quick else (3, 10, RECORDS)
    right, total, names = {}, 0, []
    print("columns, states, distance, stay, noise: ARI of each (states found, where not given)")
    for record in chosen:
        lines = {}
        for seed in range(seeds):
            X, truth = draw(*record, seed)
            k = len(np.unique(truth))
            total += 1
            for name, labels in fits(X, k, seed, most).items():
                number = len(np.unique(labels))
                lines.setdefault(name, []).append((adjusted_rand_score(truth, labels), number))
                right[name] = right.get(name, 0) + (number == k)
        names = list(lines)
        print(", ".join(map(str, record)))
        for name, values in lines.items():
            numbers = "" if "given" in name else " " + str([number for _, number in values])
            print(f"    {name:28s} {np.mean([ari for ari, _ in values]):.3f}{numbers}")
        for name, values in lines.items():
            right[name, "ari"] = right.get((name, "ari"), 0.0) + sum(ari for ari, _ in values)
    print(f"\nover all {total} records: mean ARI, share with the right number of states")
    for name in names:
        share = "(given)" if "given" in name else f"{right[name] / total:.2f}"
        print(f"    {name:28s} {right[name, 'ari'] / total:.3f} {share}")


def speed(quick):
    """Seconds of a fit."""
    rows = 10_000 if quick else 100_000
    X, truth = draw(8, 10, 5, 200, "normal", 0, rows)
    print(f"{rows} rows, 8 columns, 10 states: seconds, ARI")

    def show(name, function):
        begin = time.perf_counter()
        labels = function()
        seconds = time.perf_counter() - begin
        print(f"    {name:38s} {seconds:7.2f} {adjusted_rand_score(truth, labels):.3f}", flush=True)

    show("SegmentMeans", lambda: SegmentMeans().fit(X).labels_)
    show("SegmentMeans, one thread", lambda: SegmentMeans(n_threads=1).fit(X).labels_)
    model = SegmentMeans().fit(X)
    show("SegmentMeans, predict", lambda: model.predict(X))
    show("KMeans, given K", lambda: KMeans(10, n_init=1, random_state=0).fit(X).labels_)
    if GaussianHMM is not None:
        show("hmmlearn, given K, one start", lambda: markov(X, 10, 0, 1)[0])
    if ruptures is not None:
        some = X[:10_000]
        begin = time.perf_counter()
        pieces_of_ruptures(some)
        seconds = time.perf_counter() - begin
        print(f"    ruptures, the first {len(some)} rows: {seconds:.2f}")
        begin = time.perf_counter()
        SegmentMeans().fit(some)
        print(f"    SegmentMeans, the same rows: {time.perf_counter() - begin:.2f}")


def aircraft(quick):
    """Vertical speed of aircraft in feet a minute: a sequence for each."""
    folder = os.environ.get("SMALLVAR_DATA")
    if folder is None:
        raise SystemExit("SMALLVAR_DATA must name the folder with adsb_quickstart_20s.csv")
    table = np.genfromtxt(Path(folder, "adsb_quickstart_20s.csv"), delimiter=",", names=True)
    table = table[np.lexsort((table["seconds"], table["id"]))]
    known = np.isfinite(table["altitude"])
    table = table[known]
    step = np.diff(table["seconds"])
    rows = np.flatnonzero((np.diff(table["id"]) == 0) & (step <= 60.0))
    climb = (np.diff(table["altitude"])[rows] / step[rows] * 60.0).reshape(-1, 1)
    # altitudes that were not received right
    sound = np.abs(climb[:, 0]) < 6000.0
    climb, groups = climb[sound], table["id"][rows][sound]
    if quick:
        few = groups < np.quantile(groups, 0.3)
        climb, groups = climb[few], groups[few]
    count = len(np.unique(groups))
    print(f"{len(climb)} rows of {count} aircraft, feet a minute")
    same = np.diff(groups) == 0
    # a switch must save two rows that are 1,000 feet a minute off, a state 500 of them
    for lam, lam_switch in (("auto", "auto"), ("auto", 2e6), (5e8, 2e6)):
        model = SegmentMeans(lam=lam, lam_switch=lam_switch).fit(climb, groups=groups)
        kmeans = KMeans(model.n_clusters_, n_init=10, random_state=0).fit(climb)
        jumps = int((np.diff(kmeans.labels_)[same] != 0).sum())
        print(f"lam={model.lam_:.3g}, lam_switch={model.lam_switch_:.3g}:")
        print(f"    {model.n_clusters_} states, {model.n_switches_} switches; KMeans: {jumps}")
        centers = np.sort(model.cluster_centers_[:, 0]).round().astype(int).tolist()
        print(f"    centers {centers}")
        print(f"    KMeans  {np.sort(kmeans.cluster_centers_[:, 0]).round().astype(int).tolist()}")


def limits(quick):
    """What is no record of states, or has outliers: the number of states and of switches."""
    seeds = 1 if quick else 5
    names = ["normal", "t, 4 degrees", "autoregressive .9", "random walk", "sine and noise .1"]
    for name in names:
        found = []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            X = rng.normal(size=(2000, 5))
            if name.startswith("t"):
                X = rng.standard_t(4, size=X.shape)
            elif name.startswith("auto"):
                X = lfilter([1.0], [1.0, -0.9], X, axis=0)
            elif name.startswith("random"):
                X = np.cumsum(X, axis=0)
            elif name.startswith("sine"):
                X = np.sin(np.arange(1000) / 50)[:, None] + 0.1 * X[:1000, :1]
            model = SegmentMeans().fit(X)
            found.append((model.n_clusters_, model.n_switches_))
        print(f"{name:20s} states, switches: {found}")


def main():
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parts = {"records": records, "speed": speed, "aircraft": aircraft, "limits": limits}
    parser.add_argument("parts", nargs="*", metavar="part", help="records, speed, aircraft, limits")
    parser.add_argument("--quick", action="store_true", help="fewer records, smaller data")
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rivals that did not converge
        for part in arguments.parts or ["records"]:
            parts[part](arguments.quick)


if __name__ == "__main__":
    main()
