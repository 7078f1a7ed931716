"""Three Gaussians: Figure 2a-c of Kulis and Jordan (2012).

    python docs/reproductions/kulis_jordan_figure.py --figure FILE

prints what is seen in the figure beside what the paper says of its own, and draws it where
``--figure`` says. It takes five minutes of one core, nearly all of it Gibbs sampling; with
``--quick`` twenty seconds, by fewer sweeps.

The paper shows its data in a picture only. Here they are 100 points around each of three means with
variance 1; the means are 4.5 apart, so that the labels of the nearest true mean have about the NMI
published for DP-means, .89. For the number of clusters over lam they are also 10 apart. lam is by
the farthest-first rule of section 6.1 for 3 clusters.

Gibbs sampling begins with all points in one cluster and has rho = 100, as in the paper. Not
published, and chosen here: an inverse gamma prior (1, 1) of sigma, a gamma prior (1, 1) of alpha
where it is learned; where it is validated, the alpha of 1e-3, 1e-2, ..., 10 with the largest NMI on
another draw (100 sweeps, of which the last 50 count). "Algorithm 2" of Neal (2000) is the paper's,
which draws means and labels in turn, "Algorithm 3" has the means integrated out.
"""

import argparse
import io
import sys
import warnings
from pathlib import Path

import matplotlib
import numpy as np
from dp_sampler import DirichletProcess
from PIL import Image  # matplotlib needs it anyway
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import normalized_mutual_info_score as nmi
from threadpoolctl import threadpool_limits

from smallvar import DPMeans, cluster_path, farthest_first_lambda

matplotlib.use("Agg")
import matplotlib.pyplot as plt

APART, FAR, POINTS, RHO, PRIOR = 4.5, 10.0, 100, 100.0, (1.0, 1.0)
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
TRUTH = np.arange(3).repeat(POINTS)
CHAINS = 5  # of each kind
ALPHAS = np.array([1e-3, 1e-2, 1e-1, 1.0, 10.0])
SWEEPS = (1, 3, 10, 30, 100, 300, 1000, 1500, 2000, 3000, 4000, 5000)  # rows of the table
LAMS = np.geomspace(1, 5000, 52)
ORDERS = 20
KINDS = {"Algorithm 2": False, "Algorithm 3": True}


def draw(seed, apart=APART):
    """Points of the three clusters; TRUTH has their labels."""
    return apart * CORNERS[TRUTH] + np.random.default_rng(seed).standard_normal((len(TRUTH), 2))


def summary(name, values, clusters, sweeps=None):
    values, clusters = np.array(values), np.array(clusters)
    line = f"{name:34s}{values.mean():8.3f}{values.min():8.3f}{values.max():8.3f}"
    line += f"{np.mean(clusters == 3):12.0%}"
    print(line + (f"{np.median(sweeps):10.0f}{max(sweeps):6d}" if sweeps is not None else ""))


def fit_in_order(X, lam, seed, **options):
    """A fit to the rows in a random order; returns it and labels in the order of X."""
    order = np.random.RandomState(seed).permutation(len(X))
    model = DPMeans(lam=lam, **options).fit(X[order])
    return model, model.labels_[np.argsort(order)]


def runs(n_runs):
    """DP-means and k-means, over orders of one draw and over draws."""
    X = draw(0)
    lam = farthest_first_lambda(X, 3, count_alone=True)
    print(f"Figure 2a: 3 x {POINTS} points, means {APART} apart; lam = {lam:.1f}\n")
    columns = ["NMI", "least", "most", "3 clusters", "sweeps", "most"]
    print(
        f"{'':34s}"
        + "".join(f"{c:>{w}s}" for c, w in zip(columns, (8, 8, 8, 12, 10, 6), strict=True))
    )
    models = [fit_in_order(X, lam, run) for run in range(n_runs)]
    summary(
        f"DP-means, {n_runs} orders of a draw",
        [nmi(TRUTH, labels) for _, labels in models],
        [m.n_clusters_ for m, _ in models],
        [m.n_iter_ for m, _ in models],
    )
    found = []
    for seed in range(n_runs):
        Y = draw(seed)
        penalty = farthest_first_lambda(Y, 3, count_alone=True)
        found.append(fit_in_order(Y, penalty, seed))
    summary(
        f"DP-means, {n_runs} draws",
        [nmi(TRUTH, labels) for _, labels in found],
        [m.n_clusters_ for m, _ in found],
        [m.n_iter_ for m, _ in found],
    )
    for n_init in (1, 10):
        means = [
            KMeans(3, n_init=n_init, random_state=seed).fit(draw(seed)) for seed in range(n_runs)
        ]
        summary(
            f"k-means, {n_init} start{'s' * (n_init > 1)}, {n_runs} draws",
            [nmi(TRUTH, m.labels_) for m in means],
            [3] * n_runs,
        )
    auto = [DPMeans(random_state=seed).fit(draw(seed)) for seed in range(n_runs)]
    summary(
        f'DPMeans(lam="auto"), {n_runs} draws',
        [nmi(TRUTH, m.labels_) for m in auto],
        [m.n_clusters_ for m in auto],
    )
    nearest = [
        np.square(draw(seed)[:, None] - APART * CORNERS).sum(axis=2).argmin(axis=1)
        for seed in range(n_runs)
    ]
    summary(
        f"nearest true mean, {n_runs} draws", [nmi(TRUTH, one) for one in nearest], [3] * n_runs
    )
    print("published: DP-means .89 over 100 runs, always 3 clusters, within 8 iterations")
    early = [
        np.mean([nmi(TRUTH, fit_in_order(X, lam, run, max_iter=m)[1]) for run in range(n_runs)])
        for m in range(1, 9)
    ]
    print("NMI after 1, 2, ... sweeps: " + " ".join(f"{value:.2f}" for value in early))
    print("published: above .8 after three, typically")
    return X, models[0].labels_


def validated(sweeps):
    """The alpha with the largest NMI on another draw."""
    n = len(ALPHAS) * CHAINS
    alpha = ALPHAS.repeat(CHAINS)
    chains = DirichletProcess(
        draw(1000), 1.0, RHO, alpha, chains=n, sigma_prior=PRIOR, seed=3
    )  # not centered: the prior of the means is wide
    total = np.zeros(len(ALPHAS))
    for sweep in range(sweeps):
        chains.sweep()
        if sweep >= sweeps // 2:
            values = [nmi(TRUTH, labels) for labels in chains.labels]
            total += np.reshape(values, (-1, CHAINS)).mean(axis=1)
    mean = [f"{a:g}: {2 * t / sweeps:.3f}" for a, t in zip(ALPHAS, total, strict=True)]
    print(f"\nalpha on another draw: NMI {', '.join(mean)}")
    return ALPHAS[total.argmax()]


def traces(X, most):
    """Name -> NMI and number of clusters of every sweep, of each chain."""
    alpha = validated(min(100, most))
    found = {}
    for kind, collapsed in KINDS.items():
        chains = DirichletProcess(
            X,
            1.0,
            RHO,
            alpha,
            chains=2 * CHAINS,
            collapsed=collapsed,
            sigma_prior=PRIOR,
            alpha_prior=PRIOR,
            seed=4,
        )
        rows = []
        for _ in range(most if not collapsed else most // 5):
            chains.sweep()
            chains.alpha[CHAINS:] = alpha  # the second half keeps it
            values = [nmi(TRUTH, labels) for labels in chains.labels]
            rows.append([values, chains.n_clusters])
        rows = np.array(rows)
        found[f"{kind}, alpha learned"] = rows[..., :CHAINS]
        found[f"{kind}, alpha = {alpha:g}"] = rows[..., CHAINS:]
    print(f"\nFigure 2b: NMI, and clusters, after so many sweeps: mean of {CHAINS} chains\n")
    print(f"{'sweeps':>8s}" + "".join(f"{name:>30s}" for name in found))
    for sweep in SWEEPS:
        line = f"{sweep:8d}"
        for rows in found.values():
            cell = ""
            if sweep <= len(rows):
                value, clusters = rows[sweep - 1].mean(axis=1)
                cell = f"{value:.3f} {clusters:6.1f}"
            line += f"{cell:>30s}"
        print(line)
    for name, rows in found.items():
        above = [int(np.argmax(v > 0.8)) + 1 if (v > 0.8).any() else None for v in rows[:, 0].T]
        last = rows[len(rows) // 2 :]
        print(
            f"{name}: NMI above .8 first in sweep {above}; in the second half NMI "
            f"{last[:, 0].mean():.3f}, 3 clusters in {np.mean(last[:, 1] == 3):.0%} of the sweeps"
        )
    print(
        "published: alpha learned, good at about 1,500 sweeps, later more than three clusters; "
        "alpha\nvalidated, three clusters from about 3,000 sweeps on"
    )
    return found


def stretch(k):
    """The longest run of penalties with three clusters, as text."""
    three = np.flatnonzero(np.asarray(k) == 3)
    if not len(three):
        return "never"
    parts = np.split(three, np.flatnonzero(np.diff(three) > 1) + 1)
    part = max(parts, key=len)
    low, high = LAMS[part[0]], LAMS[part[-1]]
    return f"from {low:.1f} to {high:.1f}, a factor of {high / low:.1f}"


def numbers(apart):
    """Name -> K for each of LAMS."""
    X = draw(0, apart)
    orders = np.array(
        [[fit_in_order(X, lam, o)[0].n_clusters_ for lam in LAMS] for o in range(ORDERS)]
    )
    warm, centers = [], "mean"
    for lam in LAMS[::-1]:
        model = DPMeans(lam=lam, init=centers).fit(X)
        warm.append(model.n_clusters_)
        centers = model.cluster_centers_
    path = cluster_path(X, random_state=0)
    found = {
        "from the mean": np.median(orders, axis=0),
        "warm starts": np.array(warm[::-1]),
        "merge path": np.array([path.at(lam) for lam in LAMS]),
    }
    print(f"\nFigure 2c, means {apart:g} apart: number of clusters over lam")
    print(f"(from the mean: least, median, most of {ORDERS} orders)\n")
    print(f"{'lam':>9s}{'from the mean':>18s}{'warm starts':>14s}{'merge path':>14s}")
    for i in range(0, len(LAMS), 3):
        mean = f"{orders[:, i].min()} {found['from the mean'][i]:g} {orders[:, i].max()}"
        print(f"{LAMS[i]:9.2f}{mean:>18s}{warm[::-1][i]:14d}{found['merge path'][i]:14d}")
    for name, k in found.items():
        print(f"3 clusters, {name}: lam {stretch(k)}")
    exact = path.counts == 3
    print(
        "3 clusters have the lowest objective of the path for lam "
        f"from {path.lam_low[exact][0]:.1f} to {path.lam_high[exact][0]:.1f}"
    )
    return found


def picture(file, X, labels, found, k):
    """The panels of the paper; K over lam for both distances of the means."""
    style = {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
    with plt.rc_context(style):
        fig, axes = plt.subplots(2, 2, figsize=(8, 6), layout="constrained")
        points, trace, *curves = axes.flat
        points.scatter(*X.T, c=[f"C{label}" for label in labels], s=7)
        points.set_aspect("equal")
        points.set_title("three Gaussians, clusters of DP-means", fontsize=10)
        for i, (name, rows) in enumerate(found.items()):
            sweeps = np.arange(1, len(rows) + 1)
            trace.plot(sweeps, rows[:, 0].mean(axis=1), f"C{i}", lw=1, label=name)
        trace.axhline(nmi(TRUTH, labels), color="0.5", ls="--", lw=1, label="DP-means")
        trace.set(xscale="log", xlabel="sweeps of Gibbs sampling", ylabel="NMI", ylim=(0, 1.02))
        trace.legend(fontsize=8, loc="lower right")
        trace.set_title(f"mean of {CHAINS} chains", fontsize=10)
        for curve, (apart, numbers_of) in zip(curves, k.items(), strict=True):
            for (name, number), line in zip(numbers_of.items(), ("-", "--", ":"), strict=True):
                curve.plot(LAMS, number, line, label=name)
            curve.set(xscale="log", yscale="log", xlabel="lam", ylabel="number of clusters")
            curve.axhline(3, color="0.7", lw=0.7, zorder=0)
            curve.set_yticks([1, 3, 10, 30], [1, 3, 10, 30])
            curve.minorticks_off()
            curve.set_title(f"means {apart:g} standard deviations apart", fontsize=10)
        curves[0].legend(fontsize=8)
        drawn = io.BytesIO()
        fig.savefig(drawn, dpi=110)
    Image.open(drawn).convert("RGB").quantize(128).save(file, optimize=True)
    print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", type=Path, help="where to draw it")
    parser.add_argument("--quick", action="store_true", help="10 runs, 30 sweeps of Gibbs sampling")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "KMeans is known to have a memory leak")
    # of few sweeps on purpose; and of a lam beyond all distances, which ends at one cluster
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
    warnings.filterwarnings("ignore", "one cluster is left")
    with threadpool_limits(1):
        X, labels = runs(10 if options.quick else 100)
        found = traces(X, 30 if options.quick else SWEEPS[-1])
        k = {apart: numbers(apart) for apart in (APART, FAR)}
        print("published: three clusters over a large interval of lam (no numbers)")
    print(REASONS)
    if options.figure:
        picture(options.figure, X, labels, found, k)


REASONS = """
Why they differ
2a  The data differ: the paper's are not given. Over draws DP-means is as good as the true means
    allow, in up to 9 sweeps (published: 8). Draw 0, whose 100 orders come closer to what the paper
    does, is a harder one: some orders end with another number of clusters, most need 11 sweeps or
    so, and the first sweeps, from chance points, are worse than published.
2b  Here chains have an NMI above .8 after 6 to 36 sweeps (one: 114), not 1,500 or 3,000. The paper
    does not give its priors or the alpha that it chose, and the speed depends on them: with alpha =
    0.001 the NMI is still .06 in the second half of 100 sweeps (on the other draw, above), so with
    a smaller alpha yet thousands of sweeps are credible. What is alike: Gibbs sampling goes
    on visiting other numbers than three, in 31% of the sweeps where alpha is learned, in 52% with
    alpha = 1. Both algorithms come to the same shares, as they have the same posterior.
2c  From the mean, three clusters are no plateau, even with means 10 standard deviations apart:
    points far from each other open a fourth cluster in the first sweep, and it stays. In one order
    it may be otherwise; the paper does not say how many it looked at. Warm starts, from large lam
    down, have the plateau, and the merge path a much wider one, where lam is what a cluster must
    save (the objective), not a distance. The path has no more than 15 clusters here, for any lam.
"""


if __name__ == "__main__":
    main()
