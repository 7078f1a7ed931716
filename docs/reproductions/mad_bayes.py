"""MAD-Bayes: the experiments of Broderick, Kulis and Jordan (2013), section 5.

    SMALLVAR_DATA=folder python docs/reproductions/mad_bayes.py --figure mad_bayes.png

takes some ten minutes of one core, `--quick` some fifteen seconds (fewer repetitions, starts and
sweeps). The folder must have what the authors' program, published as bp-means by Tamara Broderick,
comes with: bp_means_tabletop_pca100.csv (100 principal components of the photos, see
feature_quality.py), bp_means_tabletop_60x80_rgb.npz (the photos themselves as `X`, 100 x 60 x 80 x
3) and bp_means_simulated.csv (100 dice pictures of 14 x 14 pixels, 0 or 255). The faces come with
scikit-image (`pip install scikit-image`); where that is missing, they are left out.

What is read differently from the paper:

- lam = 20 for the photos and 40 for the dice, from the README of the program. The paper has
  lambda^2 = 1 for photos whose scale it does not say.
- The IBP sampler (ibp_sampler.py) draws alpha and the variances by Gibbs steps, with priors of our
  own choice: gamma(1, 1) for alpha and inverse gamma(1, 1) for the variances, of data scaled to
  mean square 1. The paper does not say what its hyperpriors are. The sampler starts at the
  paper's alpha = 1 and feature variance 0.5, and at noise variance 1, for which it has no number.
- Chains from other starts have three pairs of alpha and feature variance.
- Instead of the 400 FEI faces of 250 x 300 pixels, 100 faces of 25 x 25: the subset of Labeled
  Faces in the Wild in scikit-image. They are less alike in pose and light, and hardly show hair.
  The mean is not subtracted.
- The collapsed form takes the best of all combinations of features for a row, as in the paper, but
  one feature after the other in a start that has more than 12.
- Times are those of the processor, on one thread.
"""

import argparse
import io
import os
import sys
import time
from pathlib import Path

import matplotlib
import numpy as np
from ibp_sampler import IndianBuffet
from PIL import Image  # matplotlib needs it anyway
from sklearn.cluster import KMeans
from sklearn.decomposition import NMF, PCA

from smallvar import BPMeans, KFeatures, feature_path

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import MultipleLocator

try:
    from skimage.data import lfw_subset
except ImportError:
    lfw_subset = None

COMPONENTS, PHOTOS = "bp_means_tabletop_pca100.csv", "bp_means_tabletop_60x80_rgb.npz"
DICE = "bp_means_simulated.csv"
LAM = {"photos": 20.0, "dice": 40.0}
STARTS = {"collapsed": 1000, "sweep": 1000, "stepwise": 1000}
NAMES = {"collapsed": "collapsed BP-means", "sweep": "BP-means", "stepwise": "stepwise K-features"}
PUBLISHED = {  # seconds for a run, seconds for all, features: Figure 1
    "collapsed": ("11", "11,000", "5"),
    "sweep": ("0.36", "360", "6"),
    "stepwise": ("0.10", "155", "5"),
}
README_ERRORS = {
    "photos": [615.9, 423.2, 295.3, 205.8, 161.2, 156.1, 150.9, 143.5],
    "dice": [768.5, 518.1, 252.0, 0.0],
}
PAIRS = [(0.01, 0.1), (0.1, 1.0), (1.0, 10.0)]  # alpha and feature variance at the start

WHY = {
    "algorithms": """
"mean" starts from a feature for all, as the paper; "data" from none, as the authors' program. Every
row is a whole experiment, repeated with other seeds: the number of features depends on which local
minima the starts happened to find, and the published one is a single draw from such a spread.
"Lowest in": so many repetitions end no higher than BPMeans(lam=...). Times: compiled code instead
of Matlab, a computer of today. The paper gives no objective or likelihood for this table.""",
    "errors": """
Best of the starts of K-features, first feature "data" or "mean"; feature_path has 50 starts with 50
swaps each. From K = 6 on, best of 1,000 is luck, in the README as here.""",
    "gibbs": """
Published: 10 features, stable for more than 900 sweeps, and never fewer than 7 from other starts.
The scale, the noise variance and the priors behind the published number are not known. The sampler
draws one bit at a time and seldom leaves the mode it has reached, so that the number depends on the
start; the log joint density of bits and data, these scaled to mean square 1, says which modes are
better. "error" is the least squares of the last Z, in the units of table 2.""",
    "runtimes": """
Gibbs and K-features at the same allocation, both in Python with numpy, differ by what has to be
done: the sampler inverts a matrix and solves for A in every row. The paper's code is Matlab.""",
    "dice": """
The README has no number of features for this lam; the pictures have four. There is no noise: where
the sampler has as many features as explain all pixels, its noise variance falls until no bit can
change. From one feature it does not get away: a second one begins with a single row, for which 196
numbers are too dear.""",
    "parts": """
The photos at 60 x 80 pixels, less noisy than the components above. All methods are told five parts
(PCA: the mean and four). NMF and PCA may use a part by any amount, K-features only as a whole.""",
    "faces": """
Other faces, fewer and coarser, so that only the kind of result can be compared: a face for all, and
two differences that are independent enough for all four combinations to be common.""",
}


def say(text=""):
    print(text, flush=True)


def timed(call):
    """What the call returns, and its seconds on the processor."""
    begin = time.process_time()
    value = call()
    return value, time.process_time() - begin


def squared_error(X, Z):
    """The least ||X - Z A||^2."""
    return float(np.square(X - Z @ np.linalg.lstsq(Z.astype(float), X, rcond=None)[0]).sum())


def spelled(values):
    """How often each: "5 (14 of 20), 6 (6)"."""
    values, counts = np.unique(values, return_counts=True)
    first, *rest = [f"{v} ({c}" for v, c in zip(values, counts, strict=True)]
    return ", ".join([f"{first} of {counts.sum()})", *(f"{each})" for each in rest)])


def algorithms(X, name, repeats, share):
    """The table of Figure 1 for the algorithms of smallvar, each repeated with other seeds."""
    model = BPMeans(lam=LAM[name], n_threads=1, random_state=0)
    _, seconds = timed(lambda: model.fit(X))
    lowest = model.objective_ * (1 + 1e-6)
    say(f"{'':27s}{'seconds a run':>18s}{'seconds in all':>20s}  features")
    header = f"{'algorithm, first':27s}{'paper':>8s}{'found':>10s}{'paper':>10s}{'found':>10s}"
    say(f"{header}  {'paper':7s}{'found':28s}{'objectives':>17s}{'lowest in':>11s}")
    for algorithm, starts in STARTS.items():
        for init in ("mean", "data"):
            n_init = max(2, int(starts * share))
            ks, objectives, times, runs = [], [], [], []
            for seed in range(repeats):
                other = BPMeans(
                    lam=LAM[name], algorithm=algorithm, init=init, n_swaps=0, n_threads=1
                )
                other.set_params(n_init=n_init, random_state=seed)
                _, duration = timed(lambda other=other: other.fit(X))
                ks.append(other.n_components_)
                objectives.append(other.objective_)
                times.append(duration)
                # stepwise has tried every number up to the one after K
                runs.append(n_init * (ks[-1] + 1 if algorithm == "stepwise" else 1))
            each, total, k = PUBLISHED[algorithm] if name == "photos" else ("", "", "")
            run, span = np.median(np.divide(times, runs)), (min(objectives), max(objectives))
            say(
                f"{NAMES[algorithm] + ', ' + init:27s}{each:>8s}{run:10.5f}"
                f"{total:>10s}{np.median(times):10.2f}  {k:7s}{spelled(ks):28s}"
                f"{span[0]:8.1f} .. {span[1]:5.1f}{np.sum(np.less_equal(objectives, lowest)):11d}"
            )
    say(
        f"{'BPMeans(lam=...), defaults':27s}{'':28s}{seconds:10.2f}  {'':7s}"
        f"{model.n_components_:<28d}{model.objective_:8.1f}"
    )
    auto = BPMeans(n_threads=1, random_state=0).fit(X)
    say(f"BPMeans(), which chooses lam: {auto.n_components_} features")
    return model


def errors(X, name, share):
    """Least squared error for each number of features, as in the README of the program."""
    few = max(5, int(50 * share))
    path = feature_path(X, len(README_ERRORS[name]), n_init=few, n_swaps=50, random_state=0)
    starts = max(2, int(1000 * share))
    say(f"{'K':>3s}{'README':>10s}{'data':>10s}{'mean':>10s}{'feature_path':>14s}")
    for k, published in enumerate(README_ERRORS[name], 1):
        found = [
            KFeatures(k, init=init, n_init=starts, n_swaps=0, random_state=0, n_threads=1).fit(X)
            for init in ("data", "mean")
        ]
        line = "".join(f"{model.objective_:10.1f}" for model in found)
        say(f"{k:3d}{published:10.1f}{line}{path.error[k]:14.1f}")


def run_chain(X, Z, sweeps, seed, alpha, feature):
    """K and log joint after every sweep, the chain, seconds for a sweep."""
    chain = IndianBuffet(
        X / np.sqrt(np.square(X).mean()),
        Z,
        np.random.default_rng(seed),
        alpha=alpha,
        feature=feature,
    )
    ks, logs, seconds = [], [], 0.0
    for _ in range(sweeps):
        _, duration = timed(chain.step)
        seconds += duration
        ks.append(chain.Z.shape[1])
        logs.append(chain.log_joint())
    return np.array(ks), np.array(logs), chain, seconds / sweeps


def starts_of_chains(n, best):
    """The initializations of section 5.1."""
    rng = np.random.default_rng(0)
    return {
        "one feature for all": np.ones((n, 1)),
        "5 random features": rng.integers(2, size=(n, 5)),
        "10 random features": rng.integers(2, size=(n, 10)),
        "result of BP-means": best,
    }


def heading(label, last):
    say(f"{label:34s}{'features, last ' + str(last):34s}{'log joint':>12s}{'error':>10s}")


def describe(label, X, ks, logs, chain, last):
    say(
        f"{label:34s}{spelled(ks[-last:]):34s}{logs[-last:].mean():12.1f}"
        f"{squared_error(X, chain.Z):10.1f}"
    )


def gibbs(X, best, sweeps, short, last):
    """The Gibbs row of Figure 1, and chains from other starts; the K of all chains."""
    heading("start; alpha, feature variance", last)
    ks, logs, chain, seconds = run_chain(X, np.ones((len(X), 1)), sweeps, 0, 1.0, 0.5)
    describe(f"one for all; 1, 0.5; {sweeps} sweeps", X, ks, logs, chain, last)
    say(f"the same chain, last {9 * sweeps // 10}: {spelled(ks[-9 * sweeps // 10 :])}")
    traces, pooled = {}, []
    for label, Z in starts_of_chains(len(X), best).items():
        for seed, (alpha, feature) in enumerate(PAIRS):
            found, logs, other, _ = run_chain(X, Z, short, seed, alpha, feature)
            describe(f"{label}; {alpha:g}, {feature:g}", X, found, logs, other, last)
            traces.setdefault(label, []).append(found)
            pooled.extend(found[-last:])
    say(f"All but the first, {short} sweeps each, last {last} together: {spelled(pooled)}")
    fixed = IndianBuffet(chain.X, best, np.random.default_rng(0))
    logs = []
    for _ in range(50):
        fixed.draw_alpha()
        fixed.draw_variances()
        logs.append(fixed.log_joint())
    say(f"log joint of the result of BP-means, bits as they are: {np.mean(logs[10:]):.1f}")
    return traces, chain, seconds


def hard_sweep(X, Z):
    """Both steps of K-features (eq. 14), in plain numpy as the sampler: bits, then A."""
    A = np.linalg.lstsq(Z, X, rcond=None)[0]
    G, Z = A @ A.T, Z.copy()
    for x, z in zip(X, Z, strict=True):
        toward = A @ (x - z @ A)
        for k in range(len(z)):
            sign = 1.0 - 2.0 * z[k]
            if 2 * sign * toward[k] > G[k, k]:
                z[k] += sign
                toward -= sign * G[k]
    return Z


def sweep_times(X, chain, seconds, starts):
    """A sweep of each kind at the same allocation, and whole starts of smallvar."""
    hard = [timed(lambda: hard_sweep(X, chain.Z))[1] for _ in range(20)]
    model = BPMeans(lam=LAM["photos"], n_init=starts, init="mean", n_swaps=0, n_threads=1)
    _, whole = timed(lambda: model.set_params(random_state=0).fit(X))
    whole /= starts
    say(f"{'':44s}{'paper':>10s}{'found':>12s}")
    for label, published, found in (
        ("Gibbs, a sweep, plain numpy", "8.5 s", f"{1e3 * seconds:.1f} ms"),
        ("K-features, a sweep, plain numpy", "", f"{1e3 * np.median(hard):.1f} ms"),
        ("BP-means, a start until it stops, smallvar", "0.36 s", f"{1e3 * whole:.3f} ms"),
        ("1,000 sweeps of Gibbs / 1,000 starts", "24", f"{seconds / whole:.0f}"),
    ):
        say(f"{label:44s}{published:>10s}{found:>12s}")


def with_base(Z):
    """The same sums from a feature for all, where the features allow that."""
    new = np.ones((len(Z), 1))
    for column in Z.T:
        more = np.column_stack([new, column])
        if np.linalg.matrix_rank(more) == more.shape[1]:
            new = more
    return new if new.shape[1] == Z.shape[1] else Z.astype(float)


def decompositions(X, k):
    """Parts of K-features, NMF and PCA with k parts each, and the squared error of each, relative.

    X is not centered; errors are relative to that of the mean. The parts of K-features other than
    the one for all are given to those rows that are in the minority.
    """
    flat = X.reshape(len(X), -1)
    around = np.square(flat - flat.mean(axis=0)).sum()
    u, s, _ = np.linalg.svd(flat, full_matrices=False)  # all distances in few columns
    model = KFeatures(k, n_init=100, random_state=0, n_threads=1).fit(u * s)
    Z = with_base(model.assignments_)
    rare = Z.mean(axis=0) <= 0.5
    base = Z.all(axis=0)
    if base.any():
        Z = np.where(rare | base, Z, 1 - Z)
    parts = {"K-features": np.linalg.lstsq(Z, flat, rcond=None)[0]}
    shares = {"K-features": np.square(flat - Z @ parts["K-features"]).sum() / around}
    nmf = NMF(k, init="nndsvda", max_iter=2000).fit(flat)
    parts["NMF"] = nmf.components_
    shares["NMF"] = np.square(flat - nmf.transform(flat) @ nmf.components_).sum() / around
    pca = PCA(k - 1).fit(flat)
    parts["PCA"] = np.vstack([pca.mean_, pca.components_])
    shares["PCA"] = 1 - pca.explained_variance_ratio_.sum()
    parts = {name: p.reshape(k, *X.shape[1:]) for name, p in parts.items()}
    return Z, parts, shares


def combinations(Z):
    """How many rows have each combination of features, most common first: "100 (33), ..."."""
    rows, counts = np.unique(Z.astype(int), axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return ", ".join(f"{''.join(map(str, rows[i]))} ({counts[i]})" for i in order)


def faces_table(faces, Z, shares):
    flat = faces.reshape(len(faces), -1)
    around = np.square(flat - flat.mean(axis=0)).sum()
    u, s, _ = np.linalg.svd(flat, full_matrices=False)
    path = feature_path(u * s, 6, n_init=20, n_swaps=20, random_state=0)
    say(f"3 features are best for lam from {path.lam_low[3]:.0f} to {path.lam_high[3]:.0f};")
    say(f"BPMeans(), which chooses lam, has {BPMeans(random_state=0).fit(u * s).n_components_}")
    say("3 features: 100 (139), 110 (106), 101 (80), 111 (75) of 400 in the paper")
    say(f"            {combinations(Z)} found")
    means = {}
    for k, published in ((3, "154, 151, 95"), (4, "150, 121, 74, 55")):
        model = KMeans(k, n_init=20, random_state=0).fit(flat)
        sizes = ", ".join(map(str, sorted(np.bincount(model.labels_), reverse=True)))
        say(f"{k} clusters: {published} of 400 in the paper; {sizes} found")
        shares[f"{k} clusters"] = model.inertia_ / around
        means[k] = model.cluster_centers_.reshape(k, *faces.shape[1:])
    return means


def shares_table(shares):
    """Squared errors relative to that of the mean."""
    say("".join(f"{name:>14s}" for name in shares))
    say("".join(f"{share:14.3f}" for share in shares.values()))


def show(ax, picture, difference):
    """A picture, or a difference on gray ground, scaled so that it is seen."""
    most = np.abs(picture).max()
    picture = 0.5 + 0.5 * picture / most if difference else picture / max(1.0, most)
    ax.imshow(np.clip(picture, 0, 1), cmap="gray", vmin=0, vmax=1)
    ax.set(xticks=[], yticks=[])


def show_parts(grid, parts, signed):
    """A line for each method; parts after the first are differences where it is signed."""
    for line, (name, pictures) in zip(grid, parts.items(), strict=True):
        line[0].set_ylabel(name, fontsize=8)
        for ax in line[len(pictures) :]:
            ax.axis("off")
        for i, (ax, picture) in enumerate(zip(line, pictures, strict=False)):
            show(ax, picture, i > 0 and name in signed)


def draw(photos, faces, traces, file):
    """Parts of photos and of faces, and the number of features of the chains."""
    height = 4.2 if faces else 2.4
    fig = plt.figure(figsize=(7.0, 2.9 + height), layout="constrained")
    above, below = fig.subfigures(2, 1, height_ratios=[2.9, height])
    show_parts(above.subplots(3, 5), photos, ("K-features", "PCA"))
    right = below
    if faces:
        left, right = below.subfigures(1, 2)
        show_parts(left.subplots(len(faces), 4), faces, ("PCA",))
    ax = right.subplots()
    for color, (label, chains) in enumerate(traces.items()):
        for i, ks in enumerate(chains):
            sweeps = np.arange(1, len(ks) + 1)
            ax.plot(sweeps, ks, f"C{color}", lw=0.8, label=None if i else label)
    ax.set(xscale="log", xlabel="Gibbs sweep", ylabel="features", ylim=(0, 20))
    ax.yaxis.set_major_locator(MultipleLocator(5))
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    drawn = io.BytesIO()
    fig.savefig(drawn, dpi=120)
    Image.open(drawn).convert("RGB").quantize(256, kmeans=2).save(file, optimize=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, starts, sweeps")
    parser.add_argument("--figure", type=Path, help="file to draw the parts and chains to")
    options = parser.parse_args()
    folder = Path(os.environ.get("SMALLVAR_DATA", "."))
    missing = [name for name in (COMPONENTS, PHOTOS, DICE) if not (folder / name).exists()]
    if missing:
        sys.exit(f"SMALLVAR_DATA must name a folder that has {missing[0]}\n\n{__doc__}")
    X = np.loadtxt(folder / COMPONENTS, delimiter=",", skiprows=1)
    dice = np.loadtxt(folder / DICE, delimiter=",", skiprows=1) / 255
    photos = np.load(folder / PHOTOS)["X"] / 255
    repeats, share = (2, 0.1) if options.quick else (20, 1.0)
    sweeps, short, last = (40, 12, 6) if options.quick else (1000, 1000, 100)

    say("1. Tabletop photos, lam = 20 (Figure 1, left)\n")
    best = algorithms(X, "photos", repeats, share).assignments_
    say(WHY["algorithms"])
    say("\n2. Tabletop photos, squared error for each number of features\n")
    errors(X, "photos", share)
    say(WHY["errors"])
    say("\n3. Tabletop photos, IBP Gibbs sampler (Figure 1, left and right)\n")
    traces, chain, seconds = gibbs(X, best, sweeps, short, last)
    say(WHY["gibbs"])
    say("\n4. Runtimes, one thread\n")
    sweep_times(X, chain, seconds, int(1000 * share))
    say(WHY["runtimes"])
    say("\n5. Dice pictures, lam = 40; squared error for each number of features\n")
    best = algorithms(dice, "dice", max(2, repeats // 4), share).assignments_
    say()
    errors(dice, "dice", share)
    say()
    heading(f"Gibbs, {max(12, short // 3)} sweeps; start", last // 2)
    for label, Z in starts_of_chains(len(dice), best).items():
        ks, logs, chain, _ = run_chain(dice, Z, max(12, short // 3), 0, 1.0, 0.5)
        describe(label, dice, ks, logs, chain, last // 2)
    say(WHY["dice"])
    say("\n6. Tabletop photos, 5 parts: squared error, relative to that about the mean\n")
    _, photo_parts, shares = decompositions(photos, 5)
    shares_table(shares)
    say(WHY["parts"])
    face_parts = None
    if lfw_subset is None:
        say("\nscikit-image is not installed: no faces")
    else:
        say("\n7. Faces (Figure 3)\n")
        faces = lfw_subset()[:100]
        Z, face_parts, shares = decompositions(faces, 3)
        means = faces_table(faces, Z, shares)
        say()
        shares_table(shares)
        say(WHY["faces"])
        features = face_parts["K-features"]
        if Z[:, 0].all():  # as in the paper: the base feature alone and with each of the others
            features[1:] += features[0]
        face_parts |= {f"{k} clusters": pictures for k, pictures in means.items()}
    if options.figure:
        draw(photo_parts, face_parts, traces, options.figure)


if __name__ == "__main__":
    main()
