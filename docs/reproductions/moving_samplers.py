"""D-Means against samplers on moving Gaussians: section 8.1 of Campbell, Kulis and How (2017).

    python docs/reproductions/moving_samplers.py [--quick] [--figure FILE]

takes five hours of one core (resume.py: it can be stopped), with --quick ten seconds. Records are
those of moving_gaussians.py as the paper words them: 15 points for each cluster, with standard
deviation 0.05, centers that move by as much, and death with probability 0.05. All are scored by
that script's `label_accuracy`.

D-Means          3 starts, with the parameters of the authors' program (lam=0.05, t_q=6.8) and with
                 the best of the maps of moving_gaussians.py (lam=0.06, t_q=3); k_tau=1.01.
Gibbs            `gibbs_step` of ddp_sampler.py. The sample that goes on to the next step is the one
                 with the most points right, or, without the truth, the most probable one.
particles        `particle_step`, 100 particles as in the paper. In each step the particle is taken
                 that has the most points right, or, without the truth, the history of one of the
                 particles that are left at the end.
variational      mean-field inference for a Dirichlet process mixture (Blei and Jordan, 2006), by
                 scikit-learn's BayesianGaussianMixture, for each step alone; clusters get the
                 number of the nearest one in the step before (`linked` of moving_gaussians.py).

Read differently from the paper:

- Gibbs has 5000 samples there, which plain numpy would take days for. It makes 5 of them here, in
  as many sweeps; what more samples bring is in a table of its own. Centers are integrated out, so a
  sample is worth more.
- 50 trials of 100 steps there; how many here is said first (--records, --steps, --samples).
- Samplers have "the true generative model parameters" there. The generator has no alpha, and its
  centers are uniform: here they are Gaussian with the same mean and variance, and alpha is the best
  of a few for 5 clusters, on other records.
- What the variational method does from step to step is not said.
- Time is CPU time. Chains for several records and for both choices run side by side in the same
  arrays, and their time is divided by their number.
"""

import argparse
import io
import time
import warnings
from pathlib import Path

import matplotlib
import numpy as np
from ddp_sampler import Mixture, States, gibbs_step, particle_step
from matplotlib.ticker import NullFormatter
from moving_gaussians import (
    COUNTS,
    DEATH,
    SD,
    alone,
    draw,
    dynamic,
    label_accuracy,
    linked,
    match_step,
)
from PIL import Image  # matplotlib needs it anyway
from resume import resumed
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture
from threadpoolctl import threadpool_limits

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ALPHAS, TRIED = (0.1, 1.0, 10.0), (16, 3)  # so many records and samples
SAMPLES, PARTICLES, MOST = 5, 100, 40  # MOST: clusters of the variational method
TRADE = {"D-Means": (1, 3, 10, 30), "Gibbs": (1, 5, 20, 100)}
BLOCK = 5  # records whose chains run side by side
NAMES = (
    "D-Means, program's",
    "D-Means, best",
    "Gibbs, by the truth",
    "Gibbs, probable",
    "particles, by truth",
    "particles, one",
    "variational, linked",
)
TITLES = (
    "accuracy, consistent",
    "accuracy, step by step",
    "clusters a step",
    "milliseconds of CPU a step",
)
WHY = """
Why they differ: the figures of the paper are lost, what is left of them is in these sentences.
Here D-Means is compiled and the samplers are plain numpy, so of the times only the order of
magnitude means anything. Gibbs makes a few samples a step, not 5000, the first by labeling each
point given those before it. All but D-Means know the noise; the samplers also know how clusters
move and die. The variational method knows nothing of other steps; its clusters are linked one
to one, by distance."""


def mixture(alpha):
    """The generator of moving_gaussians.py, as far as the mixture can say it."""
    return Mixture(alpha, 1 - DEATH, SD, SD, place=0.5, reach=np.sqrt(1 / 12))


def best_by_truth(candidates, worth, true, partner):
    """Which labels of a step have most points right under consistent matching; then most worth."""
    shares = [match_step(labels, true, partner)[0] for labels in candidates]
    return np.lexsort((worth, shares))[-1]


def gibbs(records, informed, n_samples, alpha):
    """Labels of every step for each record, and seconds a step of one of them.

    ``informed`` says for each record whether samples are chosen by its truth.
    """
    states = States(mixture(alpha), len(records), 2, 0)
    partners, found, seconds = [{} for _ in records], [[] for _ in records], 0.0
    for step in zip(*records, strict=True):
        points = np.stack([X for X, _ in step])
        begin = time.process_time()
        columns, worth = gibbs_step(states, points, n_samples)
        seconds += time.process_time() - begin
        chosen = worth.argmax(axis=0)
        names = np.stack([states.named(sample) for sample in columns])
        for r in np.flatnonzero(informed):
            chosen[r] = best_by_truth(names[:, r], worth[:, r], step[r][1], partners[r])
        begin = time.process_time()
        labels = states.end(columns[chosen, states.rows], points)
        seconds += time.process_time() - begin
        for r, one in enumerate(labels):
            found[r].append(one)
            partners[r] = match_step(one, step[r][1], partners[r])[1]
    return found, seconds / len(records) / len(found[0])


def particles(record, n_particles, alpha):
    """Labels of every step chosen by the truth, those of one history, and seconds a step."""
    states = States(mixture(alpha), n_particles, 2, 0)
    partner, best, history, seconds = {}, [], [], 0.0
    for X, true in record:
        begin = time.process_time()
        columns, before = particle_step(states, X[None])
        names = states.end(columns, X[None])
        seconds += time.process_time() - begin
        history = [labels[before] for labels in history] + [names]
        kinds = np.unique(names, axis=0)
        best.append(kinds[best_by_truth(kinds, np.zeros(len(kinds)), true, partner)])
        partner = match_step(best[-1], true, partner)[1]
    return best, [labels[0] for labels in history], seconds / len(record)


class Variational:
    """A Dirichlet process mixture with known noise, as `alone` of moving_gaussians.py wants it."""

    def __init__(self, alpha):
        sure = 1e6  # points that the known variance is worth
        self.model = BayesianGaussianMixture(
            n_components=MOST,
            covariance_type="spherical",
            weight_concentration_prior=alpha,
            covariance_prior=sure * SD**2,
            degrees_of_freedom_prior=sure,
            mean_prior=np.full(2, 0.5),
            mean_precision_prior=12 * SD**2,
            init_params="k-means++",
            random_state=0,
        )

    def fit(self, X):
        """Labels from 0 on, and the means that belong to them."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # 100 iterations will do
            labels = self.model.fit_predict(X)
        kept, self.labels_ = np.unique(labels, return_inverse=True)
        self.cluster_centers_ = self.model.means_[kept]
        return self


def scores(labels, record):
    """Accuracies and clusters a step."""
    truth = [true for _, true in record]
    return (
        label_accuracy(labels, truth),
        label_accuracy(labels, truth, consistent=False),
        np.mean([len(np.unique(one)) for one in labels]),
    )


def compare(records, alpha, n_samples):
    """Each of NAMES, in order -> for each record accuracies, clusters, milliseconds a step."""
    found = {}

    def note(name, labels, record, seconds):
        """Keep what a fit to one record comes to."""
        found.setdefault(name, []).append((*scores(labels, record), 1e3 * seconds))

    for record in records:
        for name, parameters in [
            ("D-Means, program's", {}),
            ("D-Means, best", {"lam": 0.06, "t_q": 3}),
        ]:
            begin = time.process_time()
            labels = dynamic(record, **parameters)
            note(name, labels, record, (time.process_time() - begin) / len(record))
    informed = np.repeat([True, False], len(records))
    labels, seconds = gibbs([*records, *records], informed, n_samples, alpha)
    for record, one, told in zip([*records, *records], labels, informed, strict=True):
        note("Gibbs, by the truth" if told else "Gibbs, probable", one, record, seconds)
    for record in records:
        best, history, seconds = particles(record, PARTICLES, alpha)
        note("particles, by truth", best, record, seconds)
        note("particles, one", history, record, seconds)
        begin = time.process_time()
        labels = linked(*alone(record, Variational(alpha)))
        note("variational, linked", labels, record, (time.process_time() - begin) / len(record))
    return {name: np.array(rows) for name, rows in found.items()}


def compared(records, alpha, n_samples):
    """``compare``, a block of records after the other."""
    k, blocks = len(np.unique(records[0][0][1])), []
    for start in range(0, len(records), BLOCK):
        block = records[start : start + BLOCK]
        key = "compare", k, len(block[0]), alpha, n_samples, start, len(block)
        blocks.append(
            resumed(key, lambda block=block: [*compare(block, alpha, n_samples).values()])
        )
    return dict(zip(NAMES, np.concatenate(blocks, axis=1), strict=True))


def choose_alpha(records, n_samples):
    """The alpha with which the most probable samples are right most often."""
    accuracy = []
    for alpha in ALPHAS:
        labels, _ = gibbs(records, np.zeros(len(records), dtype=bool), n_samples, alpha)
        pairs = zip(labels, records, strict=True)
        accuracy.append(np.mean([scores(one, record)[0] for one, record in pairs]))
    best = ALPHAS[int(np.argmax(accuracy))]
    print(f"accuracy of Gibbs for 5 clusters by alpha, on other records; {best:g} is taken")
    print("".join(f"{alpha:8g}" for alpha in ALPHAS))
    print("".join(f"{value:8.2f}" for value in accuracy))
    return best


def trade(records, alpha, sizes):
    """Method -> rows of effort, accuracies and milliseconds a step."""
    rows = {"D-Means": [], "Gibbs": []}
    for starts in sizes["D-Means"]:
        begin = time.process_time()
        labels = [dynamic(record, lam=0.06, t_q=3, starts=starts) for record in records]
        seconds = (time.process_time() - begin) / len(records) / len(records[0])
        rows["D-Means"].append((starts, labels, seconds))
    for n_samples in sizes["Gibbs"]:
        labels, seconds = gibbs(records, np.ones(len(records), dtype=bool), n_samples, alpha)
        rows["Gibbs"].append((n_samples, labels, seconds))
    print("\n5 clusters: what more starts and more samples (chosen by the truth) bring")
    print(f"{'':10s}{'number':>8s}{'consistent':>12s}{'step by step':>14s}{'ms a step':>11s}")
    result = {}
    for name, entries in rows.items():
        for number, found, seconds in entries:
            pairs = zip(found, records, strict=True)
            both = np.mean([scores(labels, record)[:2] for labels, record in pairs], axis=0)
            print(f"{name:10s}{number:8d}{both[0]:12.2f}{both[1]:14.2f}{1e3 * seconds:11.2f}")
            result.setdefault(name, []).append((*both, 1e3 * seconds))
    return {name: np.array(entries) for name, entries in result.items()}


def table(rows, counts):
    """Every figure, for every method and number of clusters, means over the records."""
    for column, title in enumerate(TITLES):
        print(f"\n{title}")
        print(f"{'true clusters':22s}" + "".join(f"{k:9d}" for k in counts))
        for name in rows[counts[0]]:
            values = [rows[k][name][:, column].mean() for k in counts]
            print(f"{name:22s}" + "".join(f"{value:9.2f}" for value in values))


def verdict(rows, counts):
    """The sentences of the paper beside the figures."""
    ours = "D-Means, best"
    others = [name for name in rows[counts[0]] if not name.startswith("D-Means")]
    print("\npublished: D-Means is more accurate than the other algorithms\nfound, consistent:")
    for k in counts:
        own = rows[k][ours][:, 0]
        best = max(others, key=lambda name, k=k: rows[k][name][:, 0].mean())
        gap = own - rows[k][best][:, 0]
        error = f" +- {gap.std(ddof=1) / np.sqrt(len(gap)):.2f}" if len(gap) > 1 else ""
        print(
            f"  {k:2d} clusters: {own.mean():.2f}, best other {own.mean() - gap.mean():.2f}, "
            f"difference {gap.mean():+.2f}{error}: {best}"
        )
    print("\npublished: step by step, the others come closer\nfound: accuracy less that of D-Means")
    print(f"  {'mean over all sizes':22s}{'consistent':>12s}{'step by step':>14s}")
    for name in others:
        gap = np.mean([rows[k][name] - rows[k][ours] for k in counts], axis=(0, 1))
        print(f"  {name:22s}{gap[0]:+12.2f}{gap[1]:+14.2f}")
    print("\npublished: D-Means takes less time\nfound: times that of D-Means")
    for name in others:
        ratio = [rows[k][name][:, 3].mean() / rows[k][ours][:, 3].mean() for k in counts]
        print(f"  {name:22s}{min(ratio):5.0f} to {max(ratio):.0f}")
    print(WHY)


def picture(rows, counts, traded, file):
    """After Figures 1(d), 1(e) and 1(f) of the paper."""
    fig, axes = plt.subplots(1, 3, figsize=(9.5, 3.4), layout="constrained")
    for number, name in enumerate(rows[counts[0]]):
        style = {"color": f"C{number}", "marker": "o", "ms": 3.5, "label": name}
        for ax, column in zip(axes[:2], (0, 3), strict=True):
            ax.plot(counts, [rows[k][name][:, column].mean() for k in counts], **style)
    axes[0].set(ylabel="accuracy, consistent", ylim=(0, None))
    axes[1].set(ylabel="CPU milliseconds a step", yscale="log")
    for ax in axes[:2]:
        ax.set(xlabel="true clusters", xticks=counts)
    for (name, values), color in zip(traded.items(), ("C1", "C2"), strict=True):
        axes[2].plot(values[:, 2], values[:, 0], "o-", ms=3.5, color=color, label=name)
        axes[2].plot(values[:, 2], values[:, 1], "o--", ms=3.5, color=color)
    axes[2].plot([], [], "--", color="0.5", label="step by step")
    axes[2].set(xlabel="CPU milliseconds a step", xscale="log", ylim=(0, 1), ylabel="accuracy")
    axes[2].xaxis.set_minor_formatter(NullFormatter())
    axes[2].legend(fontsize=8, frameon=False, loc="lower right")
    handles, names = axes[0].get_legend_handles_labels()
    fig.legend(handles, names, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    fig.savefig(buffer, dpi=110)
    Image.open(buffer).convert("RGB").quantize(128).save(file, optimize=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=50, help="records of each kind")
    parser.add_argument("--steps", type=int, default=100, help="steps of each, at most 100")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="of Gibbs in a step")
    parser.add_argument(
        "--quick", action="store_true", help="one record of 12 steps, up to 10 clusters"
    )
    parser.add_argument("--figure", type=Path, help="draw figures 1(d) to 1(f) to this file")
    options = parser.parse_args()
    n_records, n_samples, counts, sizes = options.records, options.samples, COUNTS, TRADE
    steps = slice(options.steps)
    if options.quick:
        n_records, n_samples, counts, steps = 1, 3, COUNTS[:2], slice(12)
        sizes = {name: values[:2] for name, values in TRADE.items()}

    def records(k, first=0, n=n_records):
        """So many, with seeds from ``first`` on."""
        return [draw(k, first + seed, "words")[steps] for seed in range(n)]

    warnings.filterwarnings("ignore", "KMeans is known to have a memory leak")
    print(f"Records: {n_records} of {steps.stop} steps; Gibbs: {n_samples} samples in a step\n")
    with threadpool_limits(1):
        alpha = choose_alpha(records(5, 1000, TRIED[0]), TRIED[1])
        rows = {k: compared(records(k), alpha, n_samples) for k in counts}
        table(rows, counts)
        traded = trade(records(5), alpha, sizes)
    verdict(rows, counts)
    if options.figure:
        picture(rows, counts, traded, options.figure)


if __name__ == "__main__":
    main()
