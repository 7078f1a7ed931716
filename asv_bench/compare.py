"""smallvar beside what a user would take instead: seconds, and the quality of what both find.

    python asv_bench/compare.py RIVAL [part of a name ...]

prints a line for each comparison of that rival, or for those with one of these parts in their
names; without a RIVAL, which there are. Times are medians of fits in turns, in one process. They
are CPU seconds of one thread, but where a name says "all cores" seconds of the clock. Rivals get
the true number of clusters where they need one.
"""

import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import cycle

import numpy as np
import pandas as pd
from benchmarks import data
from benchmarks.data import blobs, mixture, penalty
from sklearn.cluster import HDBSCAN, KMeans, MiniBatchKMeans, SpectralClustering
from sklearn.decomposition import NMF
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import normalize, scale
from threadpoolctl import threadpool_limits

try:
    import smallvar as sv
except ImportError:  # beside pdc_dp_means
    sv = None

ENOUGH = 2.0  # seconds of each fit in all after which no more turns are made, but for three
ONE = {"n_threads": 1, "random_state": 0}


@dataclass
class Comparison:
    """Functions without arguments that return a result, by name; the first is ours."""

    name: str
    fits: dict[str, Callable[[], object]]
    quality: Callable[[object], str] = lambda result: ""
    calls: int = 1  # in each turn, for what takes microseconds
    turns: int = 9

    def __str__(self):
        """Seconds and quality of each, and the ratio of the fastest rival to ours."""
        clock = time.perf_counter if "all cores" in self.name else time.process_time
        seconds = {name: [] for name in self.fits}
        results = {name: fit() for name, fit in self.fits.items()}  # with what is made once for all
        for turn in range(self.turns):
            for name, fit in self.fits.items():
                if turn < 3 or sum(seconds[name]) < ENOUGH:
                    begin = clock()
                    for _ in range(self.calls):
                        results[name] = fit()
                    seconds[name].append((clock() - begin) / self.calls)
        medians = {name: statistics.median(times) for name, times in seconds.items()}
        ours, *rivals = medians.values()
        told = (f"{k} {medians[k]:.4g} s {self.quality(results[k])}".rstrip() for k in medians)
        end = f"; ratio {min(rivals) / ours:.3g}" if rivals else ""
        return f"{self.name}: {'; '.join(told)}{end}"


def agreement(truth, score=adjusted_rand_score):
    """Of labels or a fitted estimator: the number of clusters, and the agreement with the truth."""

    def quality(found):
        labels = np.asarray(getattr(found, "labels_", found))
        name = "ARI" if score is adjusted_rand_score else "NMI"
        return f"(K {len(set(labels.tolist()) - {-1})}, {name} {score(truth, labels):.3f})"

    return quality


def auto(X, **options):
    """A fit of DPMeans without a number."""
    return lambda: sv.DPMeans(**ONE, **options).fit(X)


def kmeans(X, k, **options):
    """A fit of KMeans."""
    return lambda: KMeans(k, random_state=0, **options).fit(X)


def same_work():
    """DPMeans and KMeans from the same centers, nothing new opened, to strict convergence."""
    cases = [
        (200_000, 16, 50, 1.0, "float64"),
        (1_000_000, 3, 64, 0.2, "float64"),
        (300_000, 128, 500, 3.0, "float32"),
        (100_000, 2, 20, 0.3, "float64"),
        (200_000, 8, 1000, 0.5, "float64"),
        (80_000, 200, 200, 3.0, "float32"),
        (500_000, 5, 50, 1.5, "float32"),
        (100_000, 768, 1000, 6.0, "float32"),
        (1000, 2, 5, 0.2, "float64"),
    ]
    for seed, case in enumerate(cases):
        X, _ = mixture(*case, seed)
        n, d, k, *_ = case
        init = X[np.random.default_rng(9).choice(n, k, replace=False)]
        yield Comparison(
            f"{n} x {d}, {k}, all cores",
            {"smallvar": lambda X=X, init=init: sv.DPMeans(lam=1e30, init=init).fit(X)}
            | {name: kmeans(X, k, init=init, tol=0, algorithm=name) for name in ("lloyd", "elkan")},
            lambda model: f"({model.n_iter_} sweeps, SSE {model.inertia_:.6g})",
            turns=3 if X.size < 5e6 else 1,
        )


def number_unknown():
    """DPMeans without a number beside KMeans with the true one."""
    cases = [
        (1000, 2, 5, 0.1, "float64"),
        (100_000, 16, 50, 1.0, "float64"),
        (1_000_000, 3, 20, 0.1, "float64"),
        (1_000_000, 16, 50, 1.0, "float32"),
        (100_000, 128, 200, 3.0, "float32"),
    ]
    for seed, case in enumerate(cases):
        X, truth = mixture(*case, seed)
        n, d, k, *_ = case
        ours = sv.DPMeans(random_state=0)
        fits = {"smallvar": partial(ours.fit, X), "KMeans(k)": kmeans(X, k)}
        yield Comparison(f"{n} x {d}, {k}, all cores", fits, agreement(truth), turns=3)
    for n, d, k, starts in (
        *((178, 13, 3, 1), (10_000, 128, 20, 1), (10_000, 128, 20, 10), (30_000, 784, 10, 1)),
        *((30_000, 784, 10, 10), (60, 1600, 3, 1), (100, 20_000, 5, 1), (20_000, 2, 400, 1)),
    ):
        X, truth = blobs(n, d, k)
        fits = {"DPMeans()": auto(X), f"KMeans(k, n_init={starts})": kmeans(X, k, n_init=starts)}
        yield Comparison(f"DPMeans() {n} x {d}, {k}", fits, agreement(truth), turns=3)
    X, truth = data.directions(20_000, 128, 100)
    fits = {
        "SphericalDPMeans()": lambda: sv.SphericalDPMeans(**ONE).fit(X),
        "KMeans(k, n_init=10)": kmeans(normalize(X), 100, n_init=10),
    }
    yield Comparison("SphericalDPMeans() 20000 x 128, 100", fits, agreement(truth), turns=3)


def streams():
    """partial_fit, predict and transform beside those of k-means, and of river."""
    X = blobs(20_000, 32, 50)[0]
    init = X[:50].copy()

    def batches(model, size):
        rows = cycle([X[i : i + size] for i in range(0, len(X) - size + 1, size)])
        model.partial_fit(X[:4000])
        return lambda: model.partial_fit(next(rows))

    for size in (1, 100):
        fits = {
            "MiniBatchDPMeans": batches(sv.MiniBatchDPMeans(lam=1e9, init=init, **ONE), size),
            "MiniBatchKMeans": batches(MiniBatchKMeans(50, init=init, n_init=1), size),
        }
        if size == 1:
            with_river(fits, X)
        yield Comparison(f"partial_fit of {size} rows, 32 columns, K 50", fits, calls=100)
    for n, d, k, calls in ((1, 32, 50, 100), (20_000, 128, 200, 1)):
        X = blobs(20_000, d, k)[0]
        model = sv.DPMeans(lam=1e30, init=X[:k].copy(), max_iter=2, n_threads=1).fit(X)
        rival, rows = model.to_sklearn_kmeans(), X[:n]
        for method in ("predict", "transform"):
            fits = {
                f"{type(m).__name__}.{method}": partial(getattr(m, method), rows)
                for m in (model, rival)
            }
            yield Comparison(f"{method} of {n} rows, {d} columns, K {k}", fits, calls=calls)


def with_river(fits, X):
    """Add river's KMeans, which takes rows only, where it is installed."""
    try:
        from river.cluster import KMeans as Stream
    except ImportError:
        return
    model, rows = Stream(n_clusters=50, seed=0), cycle([dict(enumerate(x)) for x in X.tolist()])
    for _ in range(4000):
        model.learn_one(next(rows))
    fits["river KMeans.learn_one"] = lambda: model.learn_one(next(rows))


def hdbscan():
    """DPMeans without a number, on small tables."""
    from scipy.cluster.hierarchy import linkage
    from sklearn.datasets import load_wine

    wine = load_wine()
    sets = {f"{n} x {d}": blobs(n, d, k) for n, d, k in ((50, 2, 3), (1000, 2, 5), (1000, 50, 10))}
    sets |= {"wine, scaled": (scale(wine.data), wine.target), "2000 x 200": blobs(2000, 200, 10)}
    for name, (X, truth) in sets.items():
        fits = {"DPMeans()": auto(X), "HDBSCAN": partial(HDBSCAN(copy=True).fit, X)}
        yield Comparison(name, fits, agreement(truth))
        fits = {"DPMeans()": auto(X), "Ward's tree": partial(linkage, X, "ward")}
        yield Comparison(f"{name}, whole tree", fits)


def gaussian_mixture():
    """MahalanobisMeans beside a Gaussian mixture with full covariances, one start and ten."""
    for n, d, k, starts in (
        *((10_000, 2, 10, 1), (10_000, 8, 10, 1), (10_000, 2, 10, 10), (10_000, 8, 10, 10)),
        *((5000, 30, 10, None), (30_000, 16, 300, None), (1_000_000, 16, 20, None)),
    ):
        X, truth = data.elongated(n, d, k)
        given = {} if starts is None else {"n_clusters": k, "n_init": starts}
        name = "MahalanobisMeans()" if starts is None else f"MahalanobisMeans(k, n_init={starts})"
        rival = GaussianMixture(k, n_init=starts or 1, random_state=0)
        fits = {
            name: lambda X=X, given=given: sv.MahalanobisMeans(**given, random_state=0).fit(X),
            "GaussianMixture(k)": partial(rival.fit_predict, X),
        }
        yield Comparison(f"{name} {n} x {d}, {k}", fits, agreement(truth), turns=3)


def spectral_clustering():
    """SpectralDPMeans, given the number, and KernelDPMeans beside kernel k-means in numpy."""
    for n in (2000, 4000):
        X, truth = blobs(n, 4, 10)
        ours = sv.SpectralDPMeans(lam="spectrum", guess=10, random_state=0)
        rival = SpectralClustering(10, gamma=ours.fit(X).gamma_, random_state=0)
        fits = {"SpectralDPMeans": partial(ours.fit, X)}
        fits["SpectralClustering"] = partial(rival.fit, X)
        yield Comparison(f"SpectralDPMeans {n} x 4", fits, agreement(truth))
    X, truth = blobs(3000, 4, 10)
    ours = sv.KernelDPMeans(guess=10).fit(X)
    rival = partial(kernel_kmeans, X, ours.n_clusters_, ours.gamma_, ours.n_iter_)
    fits = {"KernelDPMeans": partial(ours.fit, X), "kernel k-means in numpy": rival}
    yield Comparison("KernelDPMeans 3000 x 4", fits, agreement(truth))


def kernel_kmeans(X, k, gamma, sweeps):
    """Labels of kernel k-means, from the rows of k points, by so many sweeps at most."""
    K, n = rbf_kernel(X, gamma=gamma), len(X)
    label = K[:, np.random.default_rng(0).choice(n, k, replace=False)].argmax(axis=1)
    for _ in range(sweeps):
        Z = np.eye(k)[label]
        size, sums = np.maximum(Z.sum(axis=0), 1.0), K @ Z
        new = ((Z * sums).sum(axis=0) / size**2 - 2 * sums / size).argmin(axis=1)
        if np.array_equal(new, label):
            break
        label = new
    return label


def faiss():
    """Sweeps over many columns, as embeddings have: the first, which computes all distances; 20."""
    import faiss

    def of_faiss(X, init, sweeps):
        rival = faiss.Kmeans(X.shape[1], len(init), niter=sweeps, max_points_per_centroid=len(X))
        rival.train(X, init_centroids=init)

    for n, d, k in ((100_000, 384, 500), (100_000, 384, 1000)):
        X, _ = mixture(n, d, k, 4.0, "float32")
        init = X[np.random.default_rng(9).choice(n, k, replace=False)]
        for sweeps in (1, 20):
            ours = sv.DPMeans(lam=1e30, init=init, max_iter=sweeps)
            fits = {
                "smallvar": partial(ours.fit, X),
                "faiss": partial(of_faiss, X, init, sweeps),
                "KMeans": kmeans(X, k, init=init, n_init=1, tol=0, max_iter=sweeps),
            }
            yield Comparison(f"{sweeps} sweeps, {n} x {d}, {k}, all cores", fits, turns=3)


def pdc_dp_means():
    """Delayed creation from the mean of the data.

    pdc-dp-means needs scikit-learn before 1.3, so it runs in an environment without smallvar.
    """
    for lam, k in ((100.0, 50), (60.0, 50), (60.0, 200), (60.0, 300)):
        X, truth = mixture(200_000, 16, k, 1.0)
        if sv is not None:
            ours = sv.DPMeans(lam=lam, algorithm="delayed", max_iter=1000)
            fits = {"smallvar": partial(ours.fit, X)}
        else:
            from pdc_dp_means import DPMeans

            first = X.mean(axis=0)[None]
            rival = DPMeans(1, n_init=1, init=first, delta=lam, max_iter=1000, tol=0)
            fits = {"pdc-dp-means": partial(rival.fit, X)}
        quality = agreement(truth, normalized_mutual_info_score)
        yield Comparison(f"lam {lam:g}, {k} clusters, all cores", fits, quality, turns=3)


def nmf():
    """Features beside NMF, which is told their number; of positive data, as it needs them."""
    X, _, truth = data.sums_of_features(5000, 64, 8)

    def quality(model):
        error = model.reconstruction_err_**2 / truth
        return f"(K {len(model.components_)}, {error:.4f} of the error of the truth)"

    for model in (sv.KFeatures(8, **ONE), sv.BPMeans(**ONE)):
        fits = {type(model).__name__: partial(model.fit, X)}
        fits["NMF"] = partial(NMF(8, random_state=0).fit, X - X.min())
        yield Comparison(f"{type(model).__name__} 5000 x 64", fits, quality)


def leiden():
    """Communities of planted partitions beside igraph's Leiden method for modularity."""
    import igraph

    for n, k in ((3000, 30), (20_000, 100)):
        for degree in (10, 20):
            A, truth = data.communities(n * degree // 2, k, degree)
            links = A.tocoo()
            upper = links.row < links.col
            graph = igraph.Graph(n=n, edges=np.c_[links.row[upper], links.col[upper]])
            graph.es["weight"] = links.data[upper]

            def rival(graph=graph):
                random.seed(0)
                return np.array(graph.community_leiden("modularity", weights="weight").membership)

            fits = {
                "PenalizedCut": lambda A=A: sv.PenalizedCut(random_state=0).fit(A),
                "Leiden": rival,
            }
            quality = agreement(truth, normalized_mutual_info_score)
            yield Comparison(f"{n} nodes, {degree} links each", fits, quality)


def numpy():
    """The sweeps of divergences, and the starts of features, as one writes them in numpy."""
    for divergence in ("kl", "itakura_saito", "logistic"):
        X, truth = data.positive(100_000, 16, 20, divergence)
        rows = np.random.default_rng(1).choice(len(X), 20, replace=False)
        init = 0.5 * (X[rows] + X.mean(axis=0))
        options = {"lam": 1e30, "init": init, "max_iter": 1000, "n_threads": 1}
        ours = sv.BregmanDPMeans(divergence=divergence, **options)
        fits = {
            "BregmanDPMeans": partial(ours.fit, X),
            "numpy": partial(lloyd, X, init, divergence),
        }
        yield Comparison(f"{divergence} 100000 x 16, given centers", fits, agreement(truth))
    X, _, _ = data.sums_of_features(100, 100, 5)
    rng = np.random.default_rng(0)
    ours = sv.KFeatures(5, n_init=200, n_swaps=0, **ONE)
    fits = {
        "KFeatures": lambda: ours.fit(X).objective_,
        "numpy": lambda: min(start_of_features(X, 5, rng) for _ in range(200)),
    }
    yield Comparison(
        "200 starts of features, 100 x 100", fits, lambda error: f"(error {error:.2f})", turns=3
    )


def lloyd(X, centers, divergence):
    """Labels by Lloyd's algorithm for a divergence, from given centers."""
    labels, n, k = None, len(X), len(centers)
    while True:
        if divergence == "kl":
            scores = centers.sum(axis=1) - X @ np.log(centers).T
        elif divergence == "itakura_saito":
            scores = np.log(centers).sum(axis=1) + X @ (1.0 / centers).T
        else:
            other = np.log1p(-centers)
            scores = X @ (other - np.log(centers)).T - other.sum(axis=1)
        new = scores.argmin(axis=1)
        if labels is not None and np.array_equal(new, labels):
            return labels
        labels, members = new, np.zeros((n, k))
        members[np.arange(n), labels] = 1.0
        centers = (members.T @ X) / np.maximum(members.sum(axis=0), 1)[:, None]
        centers = np.clip(centers, 1e-300, 1 - 2.0**-53 if divergence == "logistic" else None)


def start_of_features(X, k, rng):
    """The squared error of one start of K-features, vectorized over the rows."""
    A, Z = X.mean(axis=0)[None], np.ones((len(X), 1))
    while len(A) < k:
        R = X - Z @ A
        square = (R**2).sum(axis=1)
        f = R[rng.choice(len(X), p=square / square.sum())]
        Z = np.column_stack([Z, ((R - f) ** 2).sum(axis=1) < square])
        A = np.vstack([A, f])
    while True:
        before = Z.copy()
        for j in range(k):
            without = X - Z @ A + np.outer(Z[:, j], A[j])
            Z[:, j] = ((without - A[j]) ** 2).sum(axis=1) < (without**2).sum(axis=1)
        A = np.linalg.lstsq(Z, X, rcond=None)[0]
        if np.array_equal(Z, before):
            return ((X - Z @ A) ** 2).sum()


def mixed_tables():
    """MixedDPMeans beside KPrototypes, StepMix, and DPMeans of one-hot codes."""
    frame, truth = data.table(10_000)
    words = [name for name in frame if name.startswith(("flag", "word"))]
    others = [name for name in frame if name not in words]
    codes = frame.assign(**{name: pd.factorize(frame[name])[0] for name in words})
    numbers = scale(frame[others])
    one_hot = np.hstack([numbers, pd.get_dummies(frame[words].astype(str)).to_numpy(float)])

    def k_prototypes():
        from kmodes.kprototypes import KPrototypes

        both = np.hstack([numbers.astype(object), codes[words].to_numpy(object)])
        places = list(range(len(others), both.shape[1]))
        return KPrototypes(10, n_init=1, random_state=0).fit_predict(both, categorical=places)

    def stepmix():
        from stepmix.stepmix import StepMix
        from stepmix.utils import get_mixed_descriptor

        rows, kinds = get_mixed_descriptor(codes, continuous=others, categorical=words)
        model = StepMix(10, measurement=kinds, random_state=0, progress_bar=0, rel_tol=1e-6)
        return model.fit(rows).predict(rows)

    for name, rival in (
        *(("DPMeans() of codes", auto(one_hot)), ("KPrototypes(k)", k_prototypes)),
        ("StepMix(k)", stepmix),
    ):
        fits = {"MixedDPMeans()": lambda: sv.MixedDPMeans(**ONE).fit(frame), name: rival}
        yield Comparison(f"10000 x 20 beside {name}", fits, agreement(truth), turns=1)


def smallvar():
    """Estimators and attributes beside DPMeans, and other ways to the same result."""
    for n, d, k in ((1000, 2, 5), (100_000, 16, 20)):
        X, truth = blobs(n, d, k)
        for name in ("probabilities_", "outlier_scores_", "profiles_"):
            fits = {name: lambda X=X, name=name: getattr(auto(X)(), name), "the fit": auto(X)}
            yield Comparison(f"DPMeans() and {name}, {n} x {d}", fits)
        fits = {"ShapeMeans()": lambda X=X: sv.ShapeMeans(**ONE).fit(X), "DPMeans()": auto(X)}
        yield Comparison(f"ShapeMeans() {n} x {d}", fits, agreement(truth))
    X, groups, truth = data.data_sets(100, 500)
    fits = {"HDPMeans()": lambda: sv.HDPMeans(n_threads=1).fit(X, groups=groups)}
    fits["DPMeans(), pooled"] = auto(X)
    yield Comparison("HDPMeans() 100 sets of 500 rows", fits, agreement(truth))
    X, truth = data.positive(2000, 16, 10, "kl")
    fits = {"BregmanDPMeans()": lambda: sv.BregmanDPMeans(divergence="kl", **ONE).fit(X)}
    fits["DPMeans() of roots"] = auto(np.sqrt(X))
    yield Comparison("BregmanDPMeans() kl 2000 x 16", fits, agreement(truth))
    Y, truth = blobs(1_000_000, 16, 20)
    given = {"lam": penalty(16), "n_threads": 1}
    fits = {
        "DPMeans(lam)": lambda: sv.DPMeans(**given).fit(Y),
        "the same from the centers of DPMeans()": lambda: sv.DPMeans(
            **given, init=auto(Y)().cluster_centers_
        ).fit(Y),
        "DPMeans() of a coreset": lambda: of_coreset(Y),
    }
    yield Comparison("DPMeans(lam) 1000000 x 16, 20", fits, agreement(truth), turns=3)


def of_coreset(X):
    """Labels of all rows by a fit to 3,000 of them."""
    lam = X.size / 20 / 10
    index, weight = sv.coreset(X, 3000, lam, **ONE)
    model = sv.DPMeans(lam=lam, algorithm="merge", **ONE)
    return model.fit(X[index], sample_weight=weight).predict(X)


RIVALS = {
    function.__name__: function
    for function in (
        *(same_work, number_unknown, streams, hdbscan, gaussian_mixture, spectral_clustering),
        *(faiss, pdc_dp_means, nmf, leiden, numpy, mixed_tables, smallvar),
    )
}


def main(rival="", *parts):
    """Print the comparisons of a rival."""
    if rival not in RIVALS:
        told = (f"{name:20s}{run.__doc__.splitlines()[0]}" for name, run in RIVALS.items())
        raise SystemExit("\n".join([__doc__, *told]))
    warnings.simplefilter("ignore")
    for comparison in RIVALS[rival]():
        if not parts or any(part in comparison.name for part in parts):
            cores = nullcontext() if "all cores" in comparison.name else threadpool_limits(1)
            with cores:
                print(comparison, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
