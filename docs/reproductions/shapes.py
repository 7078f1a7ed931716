"""Are clusters of any shape found? ``ShapeMeans()`` beside ``DPMeans()`` and HDBSCAN.

The sets are of four kinds:

- ``shapes``: half moons, rings, spirals, sines, rings linked in space, bars side by side, a core in
  a ring, and single arcs. Four sets of each, with more noise from the first to the last.
- ``single``: one cloud (uniform, a bar, normal, long, with heavy tails, exponential), in 2 to 11
  columns.
- ``compact``: blobs, three slanted clusters, and two normal clusters 3 to 4 standard deviations
  apart.
- ``benchmarks``: M. Gagolewski's Clustering Benchmarks, from known_k/shapes.npz in the folder
  SMALLVAR_DATA (arrays NAME.X and NAME.y0, NAME.y1, ...: labelings, 0 for noise), or with
  ``--battery FOLDER`` from a checkout of github.com/gagolews/clustering-data-v1, sets of up to
  10,000 rows. Without either they are left out.

Then ``limits``: how often the number is right, and the mean ARI, of five sets each, as a gap gets
narrow, clusters overlap, one cluster gets denser than another one that it touches, rows get few, or
noise (rows drawn evenly over a box, or columns) is added.

The benchmarks, and other sets of most of these families, were in view when the rules of
``ShapeMeans`` were chosen.

HDBSCAN is called twice: as it is, and with ``min_cluster_size=n / 50, min_samples=10`` (n rows), a
choice that is better on most of these sets. "exact" are sets with the true number of clusters,
where those of less than .5% of the rows do not count; none at all count as one. ARI is the adjusted
Rand index; rows without a true cluster are left out. Where a set has several labelings, any of them
will do.

``python docs/reproductions/shapes.py`` takes ten minutes on one core; ``--quick`` takes a quarter
of the generated sets and no others.
"""

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.cluster import HDBSCAN
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import scale

from smallvar import DPMeans, ShapeMeans

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "asv_bench"))

from known_k import gzipped

MOST_ROWS, LEAST_SHARE = 10_000, 0.005


def on_circle(rng, n):
    """Points on the circle of radius 1."""
    angle = rng.uniform(0, 2 * np.pi, size=n)
    return np.column_stack([np.cos(angle), np.sin(angle)])


def moons(rng, n, step):
    return make_moons(n, noise=0.05 + 0.03 * step, random_state=rng.integers(1 << 31))


def circles(rng, n, step):
    noise, seed = 0.03 + 0.02 * step, rng.integers(1 << 31)
    return make_circles(n, noise=noise, factor=0.5, random_state=seed)


def spirals(rng, n, step):
    """Two arms with one and a half turns each."""
    angle = 3 * np.pi * np.sqrt(rng.uniform(size=n // 2))
    arm = angle[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    X = np.vstack([arm, -arm])
    return X + rng.normal(0, 0.2 + 0.05 * step, size=X.shape), np.arange(2).repeat(n // 2)


def sines(rng, n, step):
    """Three waves, one above the other."""
    truth = np.arange(3).repeat(n // 3)
    t = rng.uniform(-4, 4, size=len(truth))
    X = np.column_stack([t, np.sin(t) + 2.2 * truth])
    return X + rng.normal(0, 0.12 + 0.05 * step, size=X.shape), truth


def links(rng, n, step):
    """Two rings in three columns, each through the other."""
    first, second = on_circle(rng, n // 2), on_circle(rng, n // 2)
    zero = np.zeros(n // 2)
    X = np.vstack(
        [np.column_stack([*first.T, zero]), np.column_stack([1 + second[:, 0], zero, second[:, 1]])]
    )
    return X + rng.normal(0, 0.05 + 0.03 * step, size=X.shape), np.arange(2).repeat(n // 2)


def bars(rng, n, step):
    """Two uniform bars of eight to one, with a gap of .35 to .95 of their width."""
    truth = rng.integers(2, size=n)
    X = rng.uniform(size=(n, 2)) * [8, 1]
    X[:, 1] += (1.35 + 0.2 * step) * truth
    return X, truth


def core(rng, n, step):
    """A normal cluster in the middle of a ring."""
    truth = rng.integers(2, size=n)
    ring = 4 * on_circle(rng, n) + rng.normal(0, 0.3 + 0.1 * step, size=(n, 2))
    return np.where(truth[:, None] == 0, rng.normal(0, 0.5, size=(n, 2)), ring), truth


def arc(rng, n, step):
    """Half a ring, a single cluster."""
    angle = rng.uniform(0, np.pi, size=n)
    X = 5 * np.column_stack([np.cos(angle), np.sin(angle)])
    return X + rng.normal(0, 0.4 + 0.2 * step, size=X.shape), np.zeros(n, dtype=int)


CLOUDS = {  # single clusters: generator, rows, step
    "uniform": lambda rng, n, step: rng.uniform(size=(n, 2 + step)),
    "bar": lambda rng, n, step: rng.uniform(size=(n, 2)) * [6, 1],
    "normal": lambda rng, n, step: rng.normal(size=(n, 2 + 3 * step)),
    "long": lambda rng, n, step: rng.normal(size=(n, 2 + step)) * np.r_[5, np.ones(1 + step)],
    "heavy tails": lambda rng, n, step: rng.standard_t(3, size=(n, 2 + step)),
    "exponential": lambda rng, n, step: rng.exponential(size=(n, 2 + step)),
}


def blobs(rng, n, step):
    """Six normal clusters in 2 to 11 columns."""
    options = {"centers": 6, "center_box": (-14, 14), "random_state": rng.integers(1 << 31)}
    return make_blobs(n, 2 + 3 * step, **options)


def slanted(rng, n, step):
    """Three normal clusters, side by side, all long in the same direction."""
    centers = np.array([[0, 0], [4, 0], [8, 1]])
    X, truth = make_blobs(n, centers=centers, random_state=rng.integers(1 << 31))
    return X @ np.array([[1, 0], [1.5, 0.4]]), truth


def pair(rng, n, step, apart):
    """Two normal clusters so many standard deviations apart, in 2 to 11 columns."""
    truth = rng.integers(2, size=n)
    X = rng.normal(size=(n, 2 + 3 * step))
    X[:, 0] += apart * truth
    return X, truth


def generated(seed):
    """Yield kind, name, rows and labelings of sets, each from a generator of its own."""
    recipes = [
        *(("shapes", f.__name__, f) for f in (moons, circles, spirals, sines, links, bars, core)),
        ("shapes", "arc", arc),
        *(("single", name, cloud) for name, cloud in CLOUDS.items()),
        *(("compact", f.__name__, f) for f in (blobs, slanted)),
        *(
            ("compact", f"pair, {apart} apart", lambda *a, apart=apart: pair(*a, apart))
            for apart in (3, 3.5, 4)
        ),
    ]
    for i, (kind, name, make) in enumerate(recipes):
        for step in range(4):
            rng = np.random.default_rng([seed, i, step])
            n = int(rng.choice([400, 800, 1600]))
            made = make(rng, n, step)
            X, truth = made if isinstance(made, tuple) else (made, np.zeros(n, dtype=int))
            yield kind, f"{name} {step + 1}", X, [truth]


def benchmarks(folder):
    """Yield kind, name, rows and labelings, -1 for noise, of the Clustering Benchmarks."""
    if folder is not None:
        for file in sorted(folder.glob("*/*.data.gz")):
            stem = file.name.removesuffix(".data.gz")
            labelings = sorted(file.parent.glob(f"{stem}.labels*.gz"))
            if all(map(gzipped, (file, *labelings))):
                truths = [np.loadtxt(path, dtype=int, ndmin=1) - 1 for path in labelings]
                if truths and len(truths[0]) <= MOST_ROWS:
                    X = np.loadtxt(file, ndmin=2)
                    yield "benchmarks", f"{file.parent.name}/{stem}", X, truths
        return
    file = Path(os.environ.get("SMALLVAR_DATA", "."), "known_k", "shapes.npz")
    if not file.exists():
        print("no benchmarks: neither --battery nor known_k/shapes.npz in SMALLVAR_DATA\n")
        return
    with np.load(file) as arrays:
        for name in sorted(key[:-2] for key in arrays if key.endswith(".X")):
            truths = [arrays[key] - 1 for key in arrays if key.startswith(f"{name}.y")]
            yield "benchmarks", name, arrays[f"{name}.X"].astype(float), truths


def gap(rng, width):
    """Two uniform bars of eight to one, so far apart in widths of a bar."""
    truth = rng.integers(2, size=1000)
    X = rng.uniform(size=(1000, 2)) * [8, 1]
    X[:, 1] += (1 + width) * truth
    return X, truth


def density(rng, ratio):
    """Two squares side by side, the one so many times as dense as the other."""
    truth = (rng.uniform(size=1000) < ratio / (1 + ratio)).astype(int)
    X = rng.uniform(size=(1000, 2))
    X[:, 0] += truth
    return X, truth


def inside(rng, radius):
    """A disk with half of the rows inside a square from -1 to 1."""
    truth = rng.integers(2, size=1000)
    disk = radius * np.sqrt(rng.uniform(size=(1000, 1))) * on_circle(rng, 1000)
    return np.where(truth[:, None] == 1, disk, rng.uniform(-1, 1, size=(1000, 2))), truth


def half_moons(rng, n):
    """Two half moons of so many rows."""
    return make_moons(n, noise=0.08, random_state=rng.integers(1 << 31))


def among_noise(rng, share):
    """Two half moons, and a share of rows that are drawn evenly over a box, -1."""
    X, truth = make_moons(1000, noise=0.06, random_state=rng.integers(1 << 31))
    noise = rng.permutation(1000)[: int(1000 * share)]
    X[noise], truth[noise] = rng.uniform([-1.5, -1], [2.5, 1.5], size=(len(noise), 2)), -1
    return X, truth


def more_columns(rng, columns):
    """Two half moons, and columns of normal noise of the same spread."""
    X, truth = half_moons(rng, 1000)
    return scale(np.hstack([X, rng.normal(size=(1000, columns))])), truth


LIMITS = {  # title: (generator, its values)
    "bars, gap of {} widths": (gap, (0.1, 0.2, 0.3, 0.5)),
    "normal, {} sd apart": (lambda rng, apart: pair(rng, 1000, 0, apart), (2, 2.5, 3, 4)),
    "one {} times as dense": (density, (3, 10, 30)),
    "disk of radius {} inside": (inside, (0.05, 0.1, 0.2)),
    "moons, {} rows": (half_moons, (50, 100, 200, 400)),
    "moons, {:.0%} noise": (among_noise, (0.02, 0.05, 0.1, 0.2, 0.4)),
    "moons, {} noise columns": (more_columns, (1, 2, 4, 8)),
}

WITH_NOISE = "ShapeMeans(noise=True)"
METHODS = {
    "ShapeMeans()": lambda X: ShapeMeans(random_state=0).fit_predict(X),
    WITH_NOISE: lambda X: ShapeMeans(noise=True, random_state=0).fit_predict(X),
    "DPMeans()": lambda X: DPMeans(random_state=0).fit_predict(X),
    "HDBSCAN()": lambda X: HDBSCAN(copy=True).fit_predict(X),
    "HDBSCAN(n / 50, 10)": lambda X: HDBSCAN(
        min_cluster_size=max(5, len(X) // 50), min_samples=10, copy=True
    ).fit_predict(X),
}
AT_LIMITS = ("ShapeMeans()", WITH_NOISE, "HDBSCAN(n / 50, 10)")


def result_of(method, X, truths):
    """Numbers of clusters, the one found, whether it is exact, ARI, and seconds."""
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # UnclearNumberWarning
        labels = METHODS[method](X)
    seconds = time.process_time() - begin
    sizes = np.bincount(labels[labels >= 0], minlength=1)
    found = max(1, int(np.sum(sizes >= max(2, LEAST_SHARE * len(X)))))
    numbers = sorted({len(np.unique(truth[truth >= 0])) for truth in truths})
    ari = max(adjusted_rand_score(t[t >= 0], labels[t >= 0]) for t in truths)
    return numbers, found, found in numbers, ari, seconds


def limits(seed):
    """Print a line for each value of each limit: how many of five are exact, and the mean ARI."""
    print(f"\n{'':28s}" + "".join(f"{method:>25s}" for method in AT_LIMITS))
    for title, (make, values) in LIMITS.items():
        for value in values:
            line = f"{title.format(value):28s}"
            for method in AT_LIMITS:
                rows = []
                for i in range(5):
                    X, truth = make(np.random.default_rng([seed, i]), value)
                    rows.append(result_of(method, X, [truth]))
                exact, ari = sum(row[2] for row in rows), np.mean([row[3] for row in rows])
                line += f"{f'{exact} of 5, ARI {ari:.2f}':>25s}"
            print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="of generated sets")
    parser.add_argument("--battery", type=Path, help="checkout of the Clustering Benchmarks")
    parser.add_argument("--quick", action="store_true", help="few generated sets, no benchmarks")
    options = parser.parse_args()
    sets = list(generated(options.seed))
    sets = sets[1::4] if options.quick else [*sets, *benchmarks(options.battery)]
    results = {}
    for kind, name, X, truths in sets:
        X = np.ascontiguousarray(X)
        for method in (method for method in METHODS if method != WITH_NOISE):
            row = result_of(method, X, truths)
            results.setdefault((kind, method), []).append(row)
            if method == "ShapeMeans()":
                numbers, found, exact, ari, _ = row
                true = " or ".join(map(str, numbers))
                wrong = "" if exact else ", wrong"
                print(f"{kind}, {name}: {true}, found {found}, ARI {ari:.2f}{wrong}", flush=True)
    print(f"\n{'':34s}  sets  exact    ARI     CPU s")
    for (kind, method), rows in results.items():
        exact = sum(row[2] for row in rows)
        ari, seconds = np.mean([row[3] for row in rows]), sum(row[4] for row in rows)
        line = f"{f'{kind}, {method}':34s}{len(rows):6d}{exact:7d}{ari:7.3f}{seconds:10.1f}"
        print(line)
    if not options.quick:
        limits(options.seed)


if __name__ == "__main__":
    main()
