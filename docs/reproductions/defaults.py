"""How often each estimator finds the number of clusters by default, and by other rules.

    SMALLVAR_DATA=folder python docs/reproductions/defaults.py [--quick] [family ...]

prints two tables for each family. The first has a line for each data set: the true number of
clusters (or features) and, for each estimator, the number found and in brackets the agreement of
the labels with the truth, 1 is perfect. The second has a line for each estimator: in how many data
sets it found the true number and in how many a larger one, and the means of the adjusted Rand
index, of the normalized mutual information and of the CPU seconds. Rows that have the same features
count as a cluster. Sets that need files are left out without them. All families take some
ten minutes; --quick takes the first set of each.
"""

import argparse
import os
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, random_array, triu
from scipy.spatial.distance import pdist
from scipy.stats import special_ortho_group
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import kneighbors_graph
from sklearn.preprocessing import scale

from smallvar import (
    BPMeans,
    BregmanDPMeans,
    DPMeans,
    DynamicMeans,
    HDPMeans,
    KernelDPMeans,
    KernelDynamicMeans,
    KernelHDPMeans,
    KFeatures,
    MahalanobisMeans,
    MiniBatchDPMeans,
    PenalizedCut,
    SpectralDPMeans,
    SpectralDynamicMeans,
    farthest_first_lambda,
)


@dataclass
class Case:
    """Data, what is known about them, and the estimators to try: a name, and how to make one.

    ``truth``: labels, negative where unknown; rows of Z for features.
    """

    name: str
    data: object
    truth: np.ndarray
    estimators: dict
    fit: dict = field(default_factory=dict)  # further arguments of fit


def outcome(model, case):
    """Numbers of clusters found and true, both measures of agreement, seconds."""
    begin = time.process_time()
    model.fit(case.data, **case.fit)
    seconds = time.process_time() - begin
    if hasattr(model, "assignments_"):
        labels, truth = labels_of(model.assignments_), labels_of(case.truth)
        found, true = model.n_components_, case.truth.shape[1]
    else:
        labels, truth = model.labels_, case.truth
        found, true = len(np.unique(labels)), len(np.unique(truth[truth >= 0]))
    known = truth >= 0
    truth, labels = truth[known], labels[known]
    ari, nmi = adjusted_rand_score(truth, labels), normalized_mutual_info_score(truth, labels)
    return found, true, ari, nmi, seconds


def labels_of(Z):
    """The same number for equal rows."""
    if not Z.shape[1]:
        return np.zeros(len(Z), dtype=int)
    return np.unique(Z, axis=0, return_inverse=True)[1].ravel()


def points():
    """DP-means, of all rows and in batches."""
    estimators = {
        "DPMeans()": DPMeans,
        "farthest-first": lambda: DPMeans(lam="farthest-first"),
        "MiniBatchDPMeans()": MiniBatchDPMeans,
        "batches, f.-first": lambda: MiniBatchDPMeans(lam="farthest-first"),
    }
    for name in ("iris", "wine", "breast_cancer", "digits"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        yield Case(name, X if name == "digits" else scale(X), y, estimators)
    X, y = datasets.make_blobs(2000, 8, centers=12, random_state=0)
    yield Case("12 blobs", X, y, estimators)


def counts():
    """Bregman DP-means: counts and powers, by their own divergence and by squared distances."""
    rng = np.random.default_rng(0)
    for number, (k, d, n) in enumerate(((3, 5, 300), (5, 20, 500), (8, 50, 800))):
        y = rng.integers(k, size=n)
        rates = rng.gamma(1.0, 6.0, size=(k, d)) + 0.2
        yield bregman(f"counts {number}, {d} columns", rng.poisson(rates[y]) + 0.0, y, "kl")
    for number, (k, d, n) in enumerate(((3, 8, 300), (6, 30, 600))):
        y = rng.integers(k, size=n)
        power = np.exp(rng.normal(scale=1.5, size=(k, d)))
        X = power[y] * rng.gamma(5.0, 0.2, size=(n, d))
        yield bregman(f"powers {number}, {d} columns", X, y, "itakura_saito")
    X, y = datasets.load_digits(return_X_y=True)
    yield bregman("digits", X, y, "kl")


def bregman(name, X, y, divergence):
    """A case with a divergence that suits the data."""
    estimators = {
        "divergence": lambda: BregmanDPMeans(divergence=divergence),
        "farthest-first": lambda: BregmanDPMeans(lam="farthest-first", divergence=divergence),
        "squared distances": BregmanDPMeans,
    }
    return Case(name, X, y, estimators)


def kernel_sets():
    """Name, data and truth of at most some 800 rows: round clusters, others, and none."""
    for name in ("iris", "wine", "breast_cancer", "digits"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        few = slice(None, None, 3 if name == "digits" else 1)
        yield name, (X if name == "digits" else scale(X))[few], y[few]
    yield "12 blobs", *datasets.make_blobs(600, 8, centers=12, random_state=0)
    yield "5 wide blobs", *datasets.make_blobs(600, 5, centers=5, cluster_std=2.0, random_state=0)
    yield "5 blobs in 2-d", *datasets.make_blobs(500, 2, centers=5, random_state=1)
    rng = np.random.default_rng(0)
    y = np.arange(6).repeat(50)
    yield "6 in 50-d", rng.standard_normal((6, 50))[y] + 0.7 * rng.standard_normal((300, 50)), y
    yield "moons", *datasets.make_moons(400, noise=0.06, random_state=0)
    yield "circles", *datasets.make_circles(400, noise=0.04, factor=0.4, random_state=0)
    for d in (1, 2, 10):
        yield f"one blob in {d}-d", rng.standard_normal((400, d)), np.zeros(400, int)
    yield "one square", rng.random((400, 2)), np.zeros(400, int)
    if "SMALLVAR_DATA" in os.environ:
        known = np.load(Path(os.environ["SMALLVAR_DATA"]) / "known_k" / "known_k.npz")
        for name in ("r15", "d31", "aggregation", "mk1", "s3", "lsun"):
            X, y = known[f"{name}.X"].astype(float), known[f"{name}.y"]
            few = np.flatnonzero(y > 0)[:: max(1, len(y) // 600)]
            yield name, X[few], y[few]


def kernels():
    """Spectral and kernel DP-means. "matrix": by eigenvectors, "K": given the true number."""
    for name, X, y in kernel_sets():
        k, median = len(np.unique(y)), np.median(pdist(X, "sqeuclidean"))
        estimators = {
            "Spectral": SpectralDPMeans,
            "matrix": lambda g=1 / median: SpectralDPMeans(kernel=rbf_kernel, gamma=g),
            "Spectral, K": lambda k=k: SpectralDPMeans(lam="spectrum", guess=k),
            "far.-first": lambda: SpectralDPMeans(lam="farthest-first", kernel="linear"),
            "Kernel": KernelDPMeans,
            "Kernel, K": lambda k=k: KernelDPMeans(guess=k),
            "gamma=1/d": lambda g=1 / X.shape[1]: KernelDPMeans(gamma=g),
        }
        yield Case(name, X, y, estimators)


def tracks(k, d, rows, *, steps=40, motion=0.05, hidden=0.1, death=0.02, size=10.0, seed=0):
    """Round clusters of standard deviation 1 / 4 that move by so much in a step and dimension.

    Unseen in a share of the steps; when one dies, another one begins elsewhere. Returns rows, their
    clusters, and times.
    """
    rng = np.random.default_rng(seed)
    centers, numbers, X, truth, times = size * rng.random((k, d)), np.arange(k), [], [], []
    for step in range(steps):
        centers += motion * rng.standard_normal((k, d))
        dead = np.flatnonzero(rng.random(k) < death)
        centers[dead], numbers[dead] = size * rng.random((len(dead), d)), numbers[dead] + k
        seen = rng.permutation(np.flatnonzero(rng.random(k) >= hidden).repeat(rows))
        X.append(centers[seen] + 0.25 * rng.standard_normal((len(seen), d)))
        truth.append(numbers[seen])
        times.append(np.full(len(seen), step))
    return np.concatenate(X), np.concatenate(truth), np.concatenate(times)


def batches(X, y, size, name):
    """Real rows in random order, some at a time: clusters that stay where they are."""
    order = np.random.default_rng(0).permutation(len(X))
    return name, X[order], y[order], np.arange(len(X)) // size


def aircraft(folder):
    """Positions around Paris as in the gallery, in kilometers."""
    table = np.genfromtxt(folder / "adsb_quickstart_20s.csv", delimiter=",", names=True)
    table = table[(table["groundspeed"] > 80) & (table["altitude"] < 50_000)]
    east = (table["longitude"] - 2.35) * 111.3 * np.cos(np.radians(48.86))
    north = (table["latitude"] - 48.86) * 111.2
    X = np.column_stack([east, north, 0.003048 * table["altitude"]])
    return "aircraft", X, table["id"].astype(int), table["seconds"].astype(int)


def moving():
    """D-Means and its kernel forms; truth and clusters are those of the whole record."""
    estimators = {
        "DynamicMeans()": DynamicMeans,
        "farthest-first": lambda: DynamicMeans(lam="farthest-first", t_q=6.8, k_tau=1.01),
        "kernel": KernelDynamicMeans,
        "spectral": SpectralDynamicMeans,
    }
    X, truth, times = tracks(5, 2, 15, steps=25, hidden=0.0, seed=1)
    later = (times > 4) | (truth == 0)
    sets = [
        batches(scale(datasets.load_iris().data), datasets.load_iris().target, 50, "iris, by 50"),
        batches(scale(datasets.load_wine().data), datasets.load_wine().target, 60, "wine, by 60"),
        batches(*datasets.load_digits(return_X_y=True), 300, "digits, by 300"),
        ("5 tracks", *tracks(5, 2, 15)),
        ("12 tracks", *tracks(12, 2, 15)),
        ("30 tracks, 8-d", *tracks(30, 8, 10)),
        ("6 tracks, 4 rows", *tracks(6, 2, 4)),
        ("8 tracks, seldom seen", *tracks(8, 3, 15, hidden=0.5, seed=1)),
        ("8 tracks, fast", *tracks(8, 3, 15, motion=0.3, seed=2)),
        ("1 track, then 5", X[later], truth[later], times[later]),
        ("5 tracks, overlapping", *tracks(5, 2, 15, size=3.0, motion=0.1, seed=3)),
    ]
    folder = Path(os.environ.get("SMALLVAR_DATA", "."))
    if (folder / "adsb_quickstart_20s.csv").exists():
        sets.append(aircraft(folder))
    for name, X, truth, times in sets:
        yield Case(name, X, truth, estimators, {"times": times})


def share(y, sets, used, per, seed):
    """Rows for data sets that have ``used`` of the classes, ``per`` of each; their data sets."""
    rng, classes = np.random.default_rng(seed), np.unique(y)
    rows = [
        rng.choice(np.flatnonzero(y == c), min(per, int((y == c).sum())), replace=False)
        for _ in range(sets)
        for c in rng.permutation(classes)[:used]
    ]
    return np.concatenate(rows), np.arange(sets).repeat(
        [sum(map(len, rows[j : j + used])) for j in range(0, sets * used, used)]
    )


class Pooled(DPMeans):
    """All rows as one data set."""

    def fit(self, X, y=None, *, groups):
        """Leave the data sets out."""
        return super().fit(X)


def data_sets():
    """The hard HDP: each group of rows has some of the clusters."""
    farthest = {"lam_local": "farthest-first", "lam_global": "farthest-first"}
    estimators = {
        "HDPMeans()": HDPMeans,
        "10 starts": lambda: HDPMeans(n_init=10),
        "f.-first": lambda: HDPMeans(**farthest),
        "f.-first, 10": lambda: HDPMeans(**farthest, n_init=10),
        "pooled": Pooled,
        "kernel": KernelHDPMeans,
        "k., f.-first": lambda: KernelHDPMeans(**farthest),
    }
    rng = np.random.default_rng(0)
    for name, means, sd, sets, used, per in (
        ("6 clusters, 4 sd", 4.0 * np.argwhere(np.ones((2, 3))), 1.0, 30, 3, 5),
        ("20 clusters in 8-d", 4.0 * rng.normal(size=(20, 8)), 1.0, 40, 4, 8),
        ("KJ12, section 6.3", rng.random((15, 2)), 0.1, 50, 5, 5),
    ):
        y = np.concatenate([rng.permutation(len(means))[:used] for _ in range(sets)]).repeat(per)
        X = means[y] + sd * rng.normal(size=(len(y), means.shape[1]))
        yield Case(name, X, y, estimators, {"groups": np.arange(sets).repeat(used * per)})
    for name, used, per in (("iris", 2, 10), ("wine", 2, 10), ("digits", 3, 20)):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        rows, groups = share(y, 20, used, per, 0)
        X = (X if name == "digits" else scale(X))[rows]
        yield Case(f"{name}, {used} of the classes", X, y[rows], estimators, {"groups": groups})
    X, y = datasets.make_blobs(600, 5, centers=5, random_state=0)
    yield Case("5 blobs, all in each", X, y, estimators, {"groups": np.arange(600) % 6})
    if "SMALLVAR_DATA" in os.environ:
        known = np.load(os.path.join(os.environ["SMALLVAR_DATA"], "known_k", "known_k.npz"))
        for name, used, per in (("r15", 4, 10), ("d31", 4, 10)):
            X, y = known[f"{name}.X"], known[f"{name}.y"]
            X, y = X[y > 0], y[y > 0]  # the others are noise
            rows, groups = share(y, 40, used, per, 0)
            case = f"{name}, {used} of the clusters"
            yield Case(case, X[rows], y[rows], estimators, {"groups": groups})


class Mixture(GaussianMixture):
    """With labels; of ``n_components`` or, where that is a range, as many as BIC says."""

    def fit(self, X):
        """The best of ten starts; of three for each number of a range."""
        if isinstance(self.n_components, int):
            super().fit(X)
            best = self
        else:
            tried = [GaussianMixture(k, n_init=3, random_state=0) for k in self.n_components]
            best = min((one.fit(X) for one in tried), key=lambda one: one.bic(X))
        self.labels_ = best.predict(X)
        return self


def long_set(number, stream=0):
    """2 to 6 Gaussian clusters in 2, 3, 5 or 10 dimensions, some 3 to 18 times as long as wide."""
    rng = np.random.default_rng([number, stream])
    d, k = (2, 3, 5, 10)[number % 4], 2 + number % 5
    centers = rng.normal(size=(k, d)) * (3.0 if d > 2 else 4.0)
    X, y = [], []
    for c in range(k):
        n = int(rng.integers(60, 300))
        spread = rng.uniform(0.5, 1.0, size=d)
        spread[0] = rng.uniform(3.0, 9.0)
        turn = special_ortho_group.rvs(d, random_state=int(rng.integers(1 << 30)))
        X.append(rng.normal(size=(n, d)) * spread @ turn + centers[c])
        y += [c] * n
    return f"long {number}: d={d}", np.vstack(X), np.array(y)


def shaped_sets():
    """Real sets, and those with known clusters of M. Gagolewski's collection that are not large."""
    for name in ("iris", "wine", "breast_cancer"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        yield name, scale(X), y
    path = Path(os.environ.get("SMALLVAR_DATA", "")) / "known_k" / "known_k.npz"
    if not path.is_file():
        return
    with np.load(path) as sets:
        for name in sorted({key.split(".")[0] for key in sets.files} - {"iris", "wine"}):
            X, y = sets[f"{name}.X"].astype(float), sets[f"{name}.y"].astype(int)
            if len(X) <= 2500 and X.shape[1] <= 16:
                yield name, X, np.where(y == 0, -1, y) if y.min() == 0 else y


def shapes(sets=None):
    """Clusters of any shape by MahalanobisMeans and others. "K": given the true number."""
    for name, X, y in sets if sets is not None else map(long_set, range(12)):
        k = len(np.unique(y[y >= 0]))
        yield Case(
            name,
            X,
            y,
            {
                "default": MahalanobisMeans,
                "K": lambda k=k: MahalanobisMeans(k),
                "K, k-means++": lambda k=k: MahalanobisMeans(k, init="k-means++"),
                "K, volume": lambda k=k: MahalanobisMeans(k, volume="clusters"),
                "KMeans, K": lambda k=k: KMeans(k, n_init=10),
                "mixture, K": lambda k=k: Mixture(k, n_init=10),
                "mixture, BIC": lambda: Mixture(range(1, 13)),
            },
        )


def real_shapes():
    """The same on real sets, and on sets with clusters of many kinds, most of them compact."""
    yield from shapes(shaped_sets())


def communities(name):
    """Adjacency matrix and communities of a graph in the folder; None without it."""
    folder = os.environ.get("SMALLVAR_DATA")
    if folder is None:
        return None
    edges, labels = (
        np.loadtxt(f"{folder}/graph_{name}_{what}.csv", delimiter=",", skiprows=1, dtype=int)
        for what in ("edges", "labels")
    )
    A = np.zeros((len(labels), len(labels)))
    A[edges[:, 0], edges[:, 1]] = A[edges[:, 1], edges[:, 0]] = 1
    return csr_array(A), labels[:, 1]


def benchmark(mixing, degree):
    """A graph of Lancichinetti, Fortunato and Radicchi (2008) of 3,000 nodes; needs networkx."""
    import networkx

    for seed in range(20):
        try:
            G = networkx.LFR_benchmark_graph(
                *(3000, 2.5, 1.5, mixing),
                average_degree=degree,
                max_degree=50,
                min_community=20,
                max_community=100,
                seed=seed,
            )
        except networkx.ExceededMaxIterations:
            continue
        break
    G.remove_edges_from(networkx.selfloop_edges(G))
    truth = np.empty(len(G), dtype=int)
    for c, nodes in enumerate({frozenset(G.nodes[v]["community"]) for v in G}):
        truth[list(nodes)] = c
    return networkx.to_scipy_sparse_array(G, range(len(G)), dtype=float, weight=None), truth


class Leiden:
    """The median of ten seeds, by NMI, of leidenalg's modularity; needs leidenalg and igraph."""

    def __init__(self, truth):
        self.truth = truth

    def get_params(self):
        """No parameters that can be set."""
        return {}

    def fit(self, A):
        """Clusters of the nodes."""
        import igraph
        import leidenalg

        links = A.tocoo()
        upper = links.row < links.col
        graph = igraph.Graph(n=A.shape[0], edges=np.c_[links.row[upper], links.col[upper]].tolist())
        found = [
            leidenalg.find_partition(
                graph, leidenalg.ModularityVertexPartition, weights=links.data[upper], seed=seed
            ).membership
            for seed in range(10)
        ]
        found.sort(key=lambda labels: normalized_mutual_info_score(self.truth, labels))
        self.labels_ = np.array(found[5])


def networks_with_communities():
    """Name, adjacency matrix and communities; the last has none."""
    for name in ("karate", "football"):
        if (known := communities(name)) is not None:
            yield name, *known
    for degree in (20, 10):
        for mixing in (0.2, 0.4, 0.5, 0.6):
            yield f"LFR, {degree} links, {mixing}", *benchmark(mixing, degree)
    rng = np.random.default_rng(0)
    links = triu(random_array((1000, 1000), density=0.008, rng=rng), 1) > 0
    yield "random links", (links + links.T).astype(float), np.zeros(1000, dtype=int)


def graphs_of_neighbors():
    """Name, points linked to the ten nearest, and the cluster of each."""
    for name in ("digits", "iris", "wine"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        A = kneighbors_graph(X if name == "digits" else scale(X), 10)
        yield f"{name}, 10 neighbors", A + A.T, y
    X, y = datasets.make_moons(1000, noise=0.05, random_state=0)
    A = kneighbors_graph(X, 10)
    yield "moons, 10 neighbors", A + A.T, y


def graphs():
    """PenalizedCut: networks, and points that are linked to their nearest neighbors."""
    estimators = {
        "PenalizedCut()": PenalizedCut,
        "plateau": lambda: PenalizedCut(lam="plateau"),
        "lam=None": lambda: PenalizedCut(lam=None),
    }
    for name, A, truth in chain(networks_with_communities(), graphs_of_neighbors()):
        leiden = {"Leiden": lambda truth=truth: Leiden(truth)} if find_spec("leidenalg") else {}
        yield Case(name, csr_array(A), truth, estimators | leiden)


def sums(seed, n, d, k, *, noise=0.5, share=0.5, positive=False):
    """Rows that are sums of k features at random, and who has which."""
    rng = np.random.default_rng(seed)
    A, Z = 2 * rng.standard_normal((k, d)), (rng.random((n, k)) < share).astype(int)
    return Z @ (np.abs(A) if positive else A) + noise * rng.standard_normal((n, d)), Z


def features():
    """BPMeans, and KFeatures with "auto" and with its default of eight features."""
    estimators = {
        "BPMeans()": BPMeans,
        "farthest-first": lambda: BPMeans(lam="farthest-first", n_swaps=0),
        'KFeatures("auto")': lambda: KFeatures("auto"),
        "KFeatures()": KFeatures,
    }
    kinds = {
        "150 x 12": sums(0, 150, 12, 5),
        "300 x 20": sums(1, 300, 20, 8),
        "1000 x 10": sums(2, 1000, 10, 6),
        "300 x 16, non-negative": sums(3, 300, 16, 5, positive=True),
        "400 x 30, rare features": sums(4, 400, 30, 8, share=0.15),
        "200 x 40, noisy": sums(5, 200, 40, 4, noise=2.0),
        "20000 x 16": sums(6, 20_000, 16, 6),
    }
    rng = np.random.default_rng(0)
    interests = [[5, 3, 0, 0, 0, 0], [0, 0, 4, 2, 1, 0], [0, 2, 0, 0, 3, 4]]
    Z = rng.integers(2, size=(200, 3))
    kinds["interests"] = Z @ interests + 0.5 * rng.standard_normal((200, 6)), Z
    path = Path(os.environ.get("SMALLVAR_DATA", "."), "bp_means_simulated.csv")
    if path.exists():
        X = np.loadtxt(path, delimiter=",", skiprows=1) / 255
        combinations = labels_of(X)  # without noise: equal rows have the same of four features
        kinds["pictures of dice"] = X, (combinations[:, None] >> np.arange(4)) & 1
    for name, (X, Z) in kinds.items():
        yield Case(name, X, Z, estimators)


# how many rows are added to data, and where
PLACES = ((0, "far"), (5, "far"), (20, "far"), (5, "clump"), (20, "clump"))


def add_outliers(X, n_outliers, where, seed=0):
    """Rows in all directions, 3 to 10 times as far out as the data reach, or in a clump."""
    rng = np.random.default_rng(seed)
    low, high = X.min(axis=0), X.max(axis=0)
    reach = np.linalg.norm(high - low) / 2
    way = rng.normal(size=(1 if where == "clump" else n_outliers, X.shape[1]))
    way /= np.linalg.norm(way, axis=1)[:, None]
    if where == "clump":
        rows = 6 * reach * way + 0.1 * X.std(axis=0) * rng.normal(size=(n_outliers, X.shape[1]))
    else:
        rows = reach * rng.uniform(3, 10, size=(n_outliers, 1)) * way
    return np.vstack([X, (low + high) / 2 + rows])


class Outliers:
    """DP-means by a farthest-first rule after outliers are added; labels of the other rows."""

    def __init__(self, n_outliers, where, guess, published):
        self.n_outliers, self.where = n_outliers, where
        self.guess, self.published = guess, published

    def get_params(self):
        """No parameters that can be set."""
        return {}

    def fit(self, X):
        """Labels of the rows of X."""
        data = add_outliers(X, self.n_outliers, self.where)
        lam = farthest_first_lambda(data, self.guess, count_alone=self.published)
        self.labels_ = DPMeans(lam=lam).fit(data).labels_[: len(X)]


def outliers():
    """DPMeans(lam="farthest-first") given the true number, with outliers, by both rules."""
    sets = {}
    for name in ("iris", "wine", "breast_cancer", "digits"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        sets[name] = X if name == "digits" else scale(X), y
    sets["8 blobs"] = datasets.make_blobs(1000, 2, centers=8, cluster_std=0.3, random_state=0)
    sets["12 blobs, 8-d"] = datasets.make_blobs(2000, 8, centers=12, random_state=0)
    sets["20 blobs, 16-d"] = datasets.make_blobs(3000, 16, centers=20, random_state=0)
    centers = [(0, 0), (7, 1), (3, 6), (-5, 5), (9, 8), (-6, -4), (4, -5)]
    sizes = [300, 200, 150, 100, 60, 40, 30]
    sets["30 to 300 rows"] = datasets.make_blobs(sizes, 2, centers=centers, random_state=0)
    X, y = datasets.make_blobs(1000, 2, centers=5, cluster_std=0.4, random_state=3)
    sets["on a grid"] = np.round(2 * X) / 2, y
    X, y = datasets.make_blobs(200, 2, centers=5, cluster_std=0.4, random_state=4)
    sets["five copies"] = np.repeat(X, 5, axis=0), np.repeat(y, 5)
    for name, (X, y) in sets.items():
        k = len(np.unique(y))
        for rule in ("published", "default"):
            estimators = {
                f"{n_outliers} {where}"
                if n_outliers
                else "none": lambda args=(*(n_outliers, where, k, rule == "published"),): Outliers(
                    *args
                )
                for n_outliers, where in PLACES
            }
            yield Case(f"{name}, {rule}", X, y, estimators)


# the measure of agreement in the table of data sets: NMI where there are many small clusters
FAMILIES = {
    "points": (points, "ARI"),
    "counts": (counts, "ARI"),
    "kernels": (kernels, "ARI"),
    "graphs": (graphs, "NMI"),
    "features": (features, "ARI"),
    "data_sets": (data_sets, "ARI"),
    "moving": (moving, "NMI"),
    "outliers": (outliers, "ARI"),
    "shapes": (shapes, "ARI"),
    "real_shapes": (real_shapes, "ARI"),
}


def tables(cases, measure):
    """Lines of both tables, those of the first as soon as they are known."""
    results = {}
    for case in cases:
        if not results:
            names = list(case.estimators)
            widths = [max(len(name), 10) + 2 for name in names]
            cells = "".join(f"{name:>{width}s}" for name, width in zip(names, widths, strict=True))
            yield f"{'data set':26s}{'true':>5s}{cells}"
        line = ""
        for (name, make), width in zip(case.estimators.items(), widths, strict=True):
            model = make()
            if "random_state" in model.get_params():
                model.set_params(random_state=0)
            found, true, ari, nmi, seconds = outcome(model, case)
            result = found == true, found > true, ari, nmi, seconds
            results.setdefault(name, []).append(result)
            agreement = f"({ari if measure == 'ARI' else nmi:.3f})"
            line += f"{f'{found} {agreement:>7s}':>{width}s}"
        yield f"{case.name:26s}{true:5d}{line}"
    yield ""
    yield f"{'over all data sets':26s}{'right':>6s}{'more':>6s}{'ARI':>7s}{'NMI':>7s}{'CPU s':>8s}"
    for name, lines in results.items():
        right, more = np.sum(lines, axis=0)[:2]
        ari, nmi, seconds = np.mean(lines, axis=0)[2:]
        yield f"{name:26s}{right:6.0f}{more:6.0f}{ari:7.3f}{nmi:7.3f}{seconds:8.2f}"


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("family", nargs="*", default=list(FAMILIES), help=", ".join(FAMILIES))
    parser.add_argument("--quick", action="store_true", help="the first set of each family")
    options = parser.parse_args()
    for family in options.family:
        function, measure = FAMILIES[family]
        print(f"{family}: {function.__doc__}\nNumber found, and {measure} in brackets.")
        for line in tables(islice(function(), 1 if options.quick else None), measure):
            print(line, flush=True)
        print()


if __name__ == "__main__":
    main()
