"""Aircraft and video: sections 8.4 and 8.5 of Campbell, Kulis and How (2017).

    SMALLVAR_DATA=folder python docs/reproductions/dynamic_data.py [aircraft] [video] [--quick]

takes a minute of one core, with --quick ten seconds. `--figure NAME.png` draws NAME_aircraft.png
and NAME_video.png.

Aircraft. The paper has a week of flights over the United States, 17,895 of them, 600 labeled by
hand, in windows of half an hour. Here are three hours around Paris: adsb_quickstart_20s.csv, as
described in docs/examples/plot_aircraft.py (the sample "quickstart" of the Python package traffic).
What is done to them is the same: a Gaussian process for each flight gives its velocity, north and
east, at any place from where it was and how fast; on a lattice of 10 latitudes and 20 longitudes
its mean is a row of 400 numbers. D-Means (3 starts) and Gibbs sampling (50 samples, `gibbs_step` of
ddp_sampler.py) take these rows by half hours, DP-means (3 starts) all at once. Constants of the
process are ours: a squared exponential of length 25 km, velocities of 150 m/s with an error of 10.

Nobody labeled these flights. What stands in: the airport (Charles de Gaulle, Orly or another) that
a flight leaves or comes to, which its lower end tells, and in which of eight directions from Paris
its other end is; where both ends are high or both low, its course. So accuracies are of other
labels than in the paper, but under the same matching, and nothing is weighted. Each method has the
penalty with the highest accuracy of a few (Gibbs: the standard deviation of the noise), by the very
labels that it is then scored by. The picture has the one with the highest NMI.

Video. Colors of pixels are clustered, frame by frame. The paper has the film Sintel; here are 30
frames of carphone (carphone_30x144x176_rgb.npz, as `X`; in many collections of test videos), all
pixels. Parameters are lost; those of docs/examples/plot_flicker.py are used: lam=50^2, t_q=15,
k_tau=1.01. DP-means has the penalty of a few with the nearest number of colors, k-means is told it;
both begin anew in each frame. Flicker is the mean squared change of the quantized color of a pixel
that itself changes by 2 of 255 at most, from one frame to the next. Kept are those of these pixels
that keep their cluster; clusters of DP-means and k-means are linked to those of the frame before by
`linked` of moving_gaussians.py.
"""

import argparse
import io
import os
import time
import warnings
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np
from ddp_sampler import Mixture, States, gibbs_step
from moving_gaussians import label_accuracy, linked
from PIL import Image  # matplotlib needs it anyway
from sklearn.cluster import KMeans
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import normalized_mutual_info_score as nmi
from threadpoolctl import threadpool_limits

from smallvar import DPMeans, DynamicMeans

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DATA = Path(os.environ.get("SMALLVAR_DATA", "."))
STARTS = 3

# Aircraft -------------------------------------------------------------------------------------

WINDOW, GAP, LEAST = 1800, 600, 10  # seconds of a window, of a gap between flights; positions
LENGTH, SPEED, ERROR = 25.0, 150.0, 10.0  # kilometers, meters a second
LOW, NEAR = 2000.0, 20.0  # meters up and kilometers away: still at an airport
AIRPORTS = np.array([[49.01, 2.55], [48.725, 2.37]])  # Charles de Gaulle and Orly
LENGTHS = (800, 1000, 1200, 1400, 1600)  # square roots of lam: m/s over the lattice
NOISES = (20, 30, 40, 50)  # standard deviation of a number, of Gibbs
AIR_T_Q, AIR_K_TAU, SURVIVAL, ALPHA = 5.0, 1.05, 0.9, 1.0
SAMPLES = 50


def kilometers(latitude, longitude):
    """East and north of Paris."""
    east = (longitude - 2.35) * 111.3 * np.cos(np.radians(48.86))
    return np.column_stack([east, (latitude - 48.86) * 111.2])


def flights():
    """Kilometers east and north, seconds, velocities east and north, and heights of each flight."""
    table = np.genfromtxt(DATA / "adsb_quickstart_20s.csv", delimiter=",", names=True)
    table = table[(table["groundspeed"] > 80) & (table["altitude"] < 50_000)]
    result = []
    for name in np.unique(table["id"]):
        rows = np.sort(table[table["id"] == name], order="seconds")
        for part in np.split(rows, np.flatnonzero(np.diff(rows["seconds"]) > GAP) + 1):
            if len(part) >= LEAST:
                way = np.radians(part["track"])
                speed = 0.5144 * part["groundspeed"]
                velocity = speed[:, None] * np.column_stack([np.sin(way), np.cos(way)])
                place = kilometers(part["latitude"], part["longitude"])
                result.append((place, part["seconds"], velocity, 0.3048 * part["altitude"]))
    return result


def features(found):
    """Mean velocities on the lattice, a row a flight."""
    places = np.vstack([place for place, *_ in found])
    low, high = places.min(axis=0), places.max(axis=0)
    east, north = np.meshgrid(
        np.linspace(low[0], high[0], 20), np.linspace(low[1], high[1], 10), indexing="ij"
    )
    lattice = np.column_stack([east.ravel(), north.ravel()])
    process = GaussianProcessRegressor(RBF(LENGTH), alpha=(ERROR / SPEED) ** 2, optimizer=None)
    rows = [process.fit(place, v / SPEED).predict(lattice).ravel() for place, _, v, _ in found]
    return SPEED * np.array(rows)


def stand_ins(found):
    """Labels: from or to which airport, and the direction of the other end; or the course."""
    airports, names = kilometers(*AIRPORTS.T), []
    for place, _, _, height in found:
        low = [height[:3].mean() < LOW, height[-3:].mean() < LOW]
        begin, end = place[0], place[-1]
        kind, way = "by", end - begin
        if low[0] != low[1]:
            near, other = (begin, end) if low[0] else (end, begin)
            far = np.hypot(*(airports - near).T)
            port = far.argmin() if far.min() < NEAR else len(airports)
            kind, way = f"{'from' if low[0] else 'to'} {port}", other - airports.mean(axis=0)
        names.append(f"{kind} {round(np.arctan2(way[1], way[0]) / (np.pi / 4)) % 8}")
    return np.unique(names, return_inverse=True)[1]


def by_dmeans(steps, root, seed):
    """Labels of every window, and seconds."""
    model = DynamicMeans(
        lam=root**2, t_q=AIR_T_Q, k_tau=AIR_K_TAU, n_init=STARTS, random_state=seed, n_threads=1
    )
    begin = time.process_time()
    labels = [model.partial_fit(X).labels_ for X in steps]
    return labels, time.process_time() - begin


def by_dpmeans(steps, root, seed):
    """The same, clustered at once. A shuffle makes trials differ, as the first start does not."""
    X = np.vstack(steps)
    order = np.random.default_rng(seed).permutation(len(X))
    model = DPMeans(lam=root**2, n_init=STARTS, random_state=seed, n_threads=1)
    labels = np.empty(len(X), dtype=int)
    begin = time.process_time()
    labels[order] = model.fit(X[order]).labels_
    seconds = time.process_time() - begin
    return np.split(labels, np.cumsum([len(X) for X in steps])[:-1]), seconds


def by_gibbs(steps, noise, seed, n_samples=SAMPLES):
    """The same; of the samples of a window, the most probable goes on."""
    X = np.vstack(steps)
    states = States(
        Mixture(ALPHA, SURVIVAL, noise, noise / 4, X.mean(axis=0), X.std()), 1, X.shape[1], seed
    )
    labels, begin = [], time.process_time()
    for points in steps:
        columns, worth = gibbs_step(states, points[None], n_samples)
        labels.append(states.end(columns[worth[:, 0].argmax()], points[None])[0])
    return labels, time.process_time() - begin


def aircraft(quick, figure):
    """A table after Table 2, and a picture after Figure 4."""
    found = flights()
    X, labels = features(found), stand_ins(found)
    window = np.array([seconds[0] // WINDOW for _, seconds, *_ in found]).astype(int)
    order = np.argsort(window, kind="stable")
    cuts = np.searchsorted(window[order], np.arange(1, window.max() + 1))
    steps, truth = np.split(X[order], cuts), np.split(labels[order], cuts)
    sizes = ", ".join(str(len(step)) for step in steps)
    print(
        f"Aircraft: {len(X)} flights in {len(steps)} half hours ({sizes}), "
        f"{len(np.unique(labels))} labels that stand in"
    )
    methods = {
        "D-Means": (by_dmeans, LENGTHS, 20),
        "DP-means": (by_dpmeans, LENGTHS, 20),
        "Gibbs": (by_gibbs, NOISES, 3),
    }
    if quick:
        methods["Gibbs"] = (partial(by_gibbs, n_samples=10), NOISES, 1)
    every = np.concatenate(truth)

    def scores(fit):
        """Accuracies, NMI, clusters, seconds."""
        found, seconds = fit
        labels = np.concatenate(found)
        stepwise = label_accuracy(found, truth, consistent=False)
        clusters = len(np.unique(labels))
        return label_accuracy(found, truth), stepwise, nmi(every, labels), clusters, seconds

    head = ("parameter", "accuracy", "stepwise", "NMI", "clusters")
    print(("\n{:10s}" + "{:>10s}" * len(head)).format("", *head))
    best, pictured = {}, None
    for name, (method, values, _) in methods.items():
        rows = []
        for value in values[1:3] if quick else values:
            fit = method(steps, value, 100)
            rows.append((*scores(fit)[:4], value, fit[0]))
            numbers = "".join(f"{number:10.3f}" for number in rows[-1][:3])
            print(f"{name:10s}{value:10g}{numbers}{rows[-1][3]:10d}")
        best[name] = max(rows, key=lambda row: row[0])[4]
        if name == "D-Means":
            pictured = max(rows, key=lambda row: row[2])[5]
    head = ("parameter", "accuracy", "spread", "stepwise", "NMI", "clusters", "seconds", "trials")
    print(("\n{:10s}" + "{:>10s}" * len(head)).format("", *head))
    seconds = {}
    for name, (method, _, trials) in methods.items():
        trials = 1 if quick else trials
        rows = np.array([scores(method(steps, best[name], seed)) for seed in range(trials)])
        accuracy, stepwise, alike, clusters, _ = rows.mean(axis=0)
        seconds[name] = np.median(rows[:, 4])
        print(
            f"{name:10s}{best[name]:10g}{accuracy:10.3f}{rows[:, 0].std():10.3f}{stepwise:10.3f}"
            f"{alike:10.3f}{clusters:10.1f}{seconds[name]:10.3f}{trials:10d}"
        )
    print(AIR_WORDS.format(*(seconds[k] / seconds["D-Means"] for k in ("Gibbs", "DP-means"))))
    if figure:
        file = figure.with_name(f"{figure.stem}_aircraft.png")
        draw_flights([found[i] for i in order], pictured, file)


AIR_WORDS = """
published                                    found
D-Means has the highest accuracy             see above; of other labels
it takes the least time, by more than an     Gibbs {:.0f} times, DP-means {:.1f} times its time
  order of magnitude
the 12 largest clusters are the major flows  the picture: departures and approaches, and in
  of traffic, with their hours                 which half hours they are used

Why they differ: a flight in the paper crosses a continent, here it is 100 km around one city. Its
accuracies and times are lost; its labels are a person's, those here follow from the data. In the
third half hour Charles de Gaulle turns its runways around (departures go west up to minute 73, east
from minute 81 on): flows end and others begin between the same places, where the stand-ins go on,
which costs all methods accuracy. DP-means has 236 flights to cluster at once, not 17,895."""


def draw_flights(found, steps, file):
    """The largest clusters on the map, and how many flights of them each half hour has."""
    labels = np.concatenate(steps)
    names, sizes = np.unique(labels, return_counts=True)
    largest = names[np.argsort(-sizes, kind="stable")[:12]]
    fig, axes = plt.subplots(3, 4, figsize=(8, 7.2), layout="constrained", sharex=True, sharey=True)
    for ax, name in zip(axes.flat, largest, strict=False):
        for (place, *_), label in zip(found, labels, strict=True):
            if label == name:
                ax.plot(*place.T, color="C0", lw=0.9)
                ax.plot(*place[-1], "o", color="C3", ms=3)
        counts = [(one == name).sum() for one in steps]
        ax.set_title("  ".join(str(n) for n in counts), fontsize=9)
        ax.set(aspect="equal")
    fig.supxlabel("km east", fontsize=10)
    fig.supylabel("km north", fontsize=10)
    save(fig, file)


# Video ----------------------------------------------------------------------------------------

LAM, T_Q, K_TAU = 50.0**2, 15.0, 1.01
OTHERS = (32, 36, 40, 44, 48, 52)  # square roots of lam, for DP-means


def follow(frames):
    """Labels and palettes of D-Means, and seconds a frame; palettes as number -> color."""
    model = DynamicMeans(lam=LAM, t_q=T_Q, k_tau=K_TAU, n_init=STARTS, random_state=0, n_threads=1)
    labels, colors, begin = [], [], time.process_time()
    for frame in frames:
        model.partial_fit(frame)
        labels.append(model.labels_)
        colors.append(model.cluster_centers_[np.searchsorted(model.cluster_ids_, model.labels_)])
    return labels, colors, (time.process_time() - begin) / len(frames)


def anew(frames, estimator):
    """The same with a fit to every frame; clusters are linked afterwards."""
    labels, palettes, used, begin = [], [], 0, time.process_time()
    for frame in frames:
        estimator.fit(frame)
        labels.append(used + estimator.labels_)
        palettes.append(estimator.cluster_centers_)
        used += len(palettes[-1])
    seconds = (time.process_time() - begin) / len(frames)
    first = np.cumsum([0, *map(len, palettes)])
    colors = [p[one - f] for p, one, f in zip(palettes, labels, first[:-1], strict=True)]
    return linked(labels, palettes, LAM), colors, seconds


def video(quick, figure):
    """A table, and pictures after Figure 5."""
    frames = np.load(DATA / "carphone_30x144x176_rgb.npz")["X"].astype(float)
    frames = frames[:6, ::2, ::2] if quick else frames
    shape = frames.shape[1:3]
    frames = frames.reshape(len(frames), -1, 3)
    still = np.abs(np.diff(frames, axis=0)).max(axis=2) <= 2
    print(
        f"\nVideo: {len(frames)} frames of {frames.shape[1]} pixels, {still.mean():.0%} of which "
        "stay the same from one to the next"
    )
    results = {"D-Means": follow(frames)}
    k = round(np.mean([len(np.unique(one)) for one in results["D-Means"][0]]))
    few = frames[::5]

    def n_colors(root):
        """Of DP-means, on average."""
        model = DPMeans(lam=root**2, n_init=STARTS, max_iter=1000, random_state=0, n_threads=1)
        return np.mean([model.fit(frame).n_clusters_ for frame in few])

    root = min(OTHERS, key=lambda root: abs(n_colors(root) - k))
    model = DPMeans(lam=root**2, n_init=STARTS, max_iter=1000, random_state=0, n_threads=1)
    results[f"DP-means {root}^2"] = anew(frames, model)
    results[f"k-means {k}"] = anew(frames, KMeans(k, n_init=STARTS, max_iter=1000, random_state=0))
    head = ("colors", "at least", "at most", "in all", "kept", "flicker", "error", "s a frame")
    print(("\n{:16s}" + "{:>10s}" * len(head)).format("", *head))
    flicker = {}
    for name, (labels, colors, seconds) in results.items():
        counts = [len(np.unique(one)) for one in labels]
        change = (np.diff(colors, axis=0) ** 2).sum(axis=2)
        flicker[name] = (change * still).sum(axis=1) / still.sum(axis=1)
        kept = (np.diff(labels, axis=0) == 0)[still].mean()
        error = ((colors - frames) ** 2).sum(axis=2).mean()
        print(
            f"{name:16s}{np.mean(counts):10.1f}{min(counts):10d}{max(counts):10d}"
            f"{len(np.unique(np.concatenate(labels))):10d}{kept:10.1%}{change[still].mean():10.1f}"
            f"{error:10.1f}{seconds:10.3f}"
        )
    first, *rest = (one.mean() for one in flicker.values())
    print(VIDEO_WORDS.format(*(one / first for one in rest)))
    if figure:
        file = figure.with_name(f"{figure.stem}_video.png")
        draw_frames(shape, results, flicker, file)


VIDEO_WORDS = """
published                                    found
flicker is significantly reduced against     DP-means flickers {:.1f} times as much, k-means {:.1f}
  DP-means and k-means, frame by frame         times

Why they differ: the curves of the paper are lost, and so is how it measures flicker. Its film has
cuts, at which clusters die and are born; carphone has none."""


def draw_frames(shape, results, flicker, file):
    """Three frames by cluster, and flicker over time."""
    n_changes = len(next(iter(flicker.values())))
    shown = np.linspace(0, n_changes, 3).astype(int)
    fig = plt.figure(figsize=(7.4, 6.2), layout="constrained")
    upper, lower = fig.subfigures(2, 1, height_ratios=(2.8, 1))
    axes = upper.subplots(len(results), 3)
    for ax, t in zip(axes[0], shown, strict=True):
        ax.set_title(f"frame {t}", fontsize=10)
    for row, (name, (labels, _, _)) in zip(axes, results.items(), strict=True):
        row[0].set_ylabel(name)
        for ax, t in zip(row, shown, strict=True):
            ax.imshow(labels[t].reshape(shape) % 20, cmap="tab20", vmin=0, vmax=19)
    for ax in axes.flat:
        ax.set(xticks=[], yticks=[])
    ax = lower.subplots()
    for name, values in flicker.items():
        ax.plot(np.arange(1, n_changes + 1), values, label=name)
    ax.set(xlabel="frame", ylabel="flicker", ylim=(0, None))
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=8, frameon=False, ncols=3)
    save(fig, file)


def save(fig, file):
    """A small file."""
    buffer = io.BytesIO()
    fig.savefig(buffer, dpi=100)
    Image.open(buffer).convert("RGB").quantize(64).save(file, optimize=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="*", default=["aircraft", "video"])
    parser.add_argument("--quick", action="store_true", help="fewer trials, smaller frames")
    parser.add_argument("--figure", type=Path, help="draw NAME_aircraft and NAME_video")
    options = parser.parse_args()
    parts = {"aircraft": aircraft, "video": video}
    if unknown := set(options.part) - set(parts):
        parser.error(f"part must be aircraft or video, got {', '.join(sorted(unknown))}")
    warnings.filterwarnings("ignore", "KMeans is known to have a memory leak")
    with threadpool_limits(1):
        for part in options.part:
            parts[part](options.quick, options.figure)


if __name__ == "__main__":
    main()
