"""Time over rows, columns and clusters: each estimator beside what is used in its place.

docs/reproductions/scaling.py draws the results. Each estimator is given a penalty or, where
it makes one from a number or takes none, the true number; BPMeans, RobustDPMeans, SegmentMeans
and ShapeMeans are told nothing. Its rival knows the true number, but for HDBSCAN. One start each,
one thread, seconds of the processor.
"""

import time
import warnings
from abc import ABC, abstractmethod
from importlib.util import find_spec

import numpy as np
from sklearn.base import clone
from sklearn.cluster import HDBSCAN, KMeans, MiniBatchKMeans, SpectralClustering
from sklearn.datasets import make_moons
from sklearn.decomposition import NMF
from sklearn.metrics import normalized_mutual_info_score
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

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
    MixedDPMeans,
    PenalizedCut,
    RobustDPMeans,
    SegmentMeans,
    ShapeMeans,
    SpectralDPMeans,
    SpectralDynamicMeans,
    SphericalDPMeans,
    TopicMeans,
)

from .data import Bound, blobs, communities, penalty, record


def cases(base, rows, columns, clusters):
    """Name -> (rows, columns, clusters): the base, and others that differ from it in one."""
    n, d, k = base
    sizes = [(r, d, k) for r in rows] + [(n, c, k) for c in columns] + [(n, d, c) for c in clusters]
    return {f"{short(n)} x {d}, {k} clusters": (n, d, k) for n, d, k in dict.fromkeys(sizes)}


def short(n):
    """20k for 20000."""
    for unit, letter in ((1_000_000, "M"), (1000, "k")):
        if n >= 10 * unit or n == 1_000_000 == unit:
            return f"{n // unit}{letter}"
    return str(n)


class Scaling(ABC):
    """Seconds of the processor for a fit, and what it found."""

    timer = time.process_time
    number = 1
    repeat = (1, 5, 2.0)
    warmup_time = 0.0
    timeout = 300
    param_names = ["case", "estimator"]
    base = (20_000, 16, 20)
    rows = (1000, 5000, 20_000, 100_000, 500_000)
    columns = (4, 16, 64, 256)
    clusters = (5, 20, 80, 320)
    names = ("DPMeans", "KMeans")  # ours, the rival
    rival_rows = 10**9  # no more for the rival
    rival_from = "sklearn"  # the package without which the rival is left out

    def __init_subclass__(cls):
        """Make the cases of the sizes that the class names."""
        cls.cases = cases(cls.base, cls.rows, cls.columns, cls.clusters)
        cls.params = [list(cls.cases), list(cls.names)]

    @abstractmethod
    def data(self, n, d, k):
        """Return what both are fitted to, and the cluster of each row."""

    @abstractmethod
    def ours(self, n, d, k):
        """Return the estimator, with a penalty."""

    @abstractmethod
    def rival(self, n, d, k):
        """Return the rival, told the number."""

    def setup(self, case, estimator):
        """Make the data; one thread for all that OpenMP and BLAS do."""
        warnings.simplefilter("ignore")  # of convergence, and of KMeans on Windows
        size = self.cases[case]
        ours = estimator == self.names[0]
        if not ours and size[0] > self.rival_rows:
            raise NotImplementedError("takes too long to be repeated")
        if not ours and find_spec(self.rival_from) is None:
            raise NotImplementedError(f"needs {self.rival_from}")
        self.limits = threadpool_limits(1)
        self.X, self.truth = self.data(*size)
        self.estimator = self.ours(*size) if ours else self.rival(*size)

    def time_fit(self, case, estimator):
        """Seconds."""
        self.estimator.fit(self.X)

    def labels(self, case, estimator):
        """Cluster of each row."""
        model = self.estimator.fit(self.X)
        return model.labels_ if hasattr(model, "labels_") else model.predict(self.X)

    def track_quality(self, case, estimator):
        """Agreement with the clusters that the data were drawn from."""
        return normalized_mutual_info_score(self.truth, self.labels(case, estimator))

    def track_n_clusters(self, case, estimator):
        """K."""
        return len(np.unique(self.labels(case, estimator)))

    track_quality.unit = "NMI"
    track_n_clusters.unit = "clusters"


class Points(Scaling):
    """DPMeans, Algorithm 1 from the global mean, and KMeans from k-means++ seeds."""

    rows = (1000, 5000, 20_000, 100_000, 1_000_000)

    def data(self, n, d, k):
        return blobs(n, d, k)

    def ours(self, n, d, k):
        return DPMeans(lam=penalty(d), n_threads=1)

    def rival(self, n, d, k):
        return KMeans(k, n_init=1, random_state=0)


class Batches(Points):
    """One pass in batches of 4096 rows."""

    names = ("MiniBatchDPMeans", "MiniBatchKMeans")

    def ours(self, n, d, k):
        return MiniBatchDPMeans(lam=penalty(d), max_iter=1, random_state=0, n_threads=1)

    def rival(self, n, d, k):
        options = {"max_iter": 1, "max_no_improvement": None, "batch_size": 4096, "n_init": 1}
        return MiniBatchKMeans(k, **options, random_state=0)


class Directions(Scaling):
    """Rows of length 1."""

    names = ("SphericalDPMeans", "KMeans")
    base = (20_000, 64, 20)
    columns = (32, 64, 256, 1024)
    rows = (1000, 5000, 20_000, 100_000)

    def data(self, n, d, k):
        rng = np.random.default_rng(0)
        truth = rng.integers(k, size=n)
        X = rng.standard_normal((k, d))[truth] + 0.5 * rng.standard_normal((n, d))
        return normalize(X), truth

    def ours(self, n, d, k):
        return SphericalDPMeans(min_cosine=0.4, n_threads=1)

    def rival(self, n, d, k):
        return KMeans(k, n_init=1, random_state=0)


class Divergence(Scaling):
    """Counts: the Kullback-Leibler divergence, and squared distances."""

    names = ("BregmanDPMeans", "KMeans")
    rows = (1000, 5000, 20_000, 100_000)

    def data(self, n, d, k):
        rng = np.random.default_rng(0)
        truth = rng.integers(k, size=n)
        return rng.poisson(rng.uniform(5, 200, (k, d))[truth]).astype(float), truth

    def ours(self, n, d, k):
        return BregmanDPMeans(lam=penalty(d) / 2, divergence="kl", n_threads=1)

    def rival(self, n, d, k):
        return KMeans(k, n_init=1, random_state=0)


class Topics(Divergence):
    """The same counts, as words in documents of a topic each."""

    names = ("TopicMeans", "KMeans")

    def ours(self, n, d, k):
        return TopicMeans(random_state=0, n_threads=1)


class Shapes(Scaling):
    """Full covariances."""

    names = ("MahalanobisMeans", "GaussianMixture")
    base = (20_000, 8, 10)
    rows = (1000, 5000, 20_000, 100_000)
    columns = (4, 8, 16, 32)
    clusters = (5, 10, 20, 40)

    def data(self, n, d, k):
        return blobs(n, d, k)

    def ours(self, n, d, k):
        return MahalanobisMeans(k, n_init=1, random_state=0)

    def rival(self, n, d, k):
        return GaussianMixture(k, random_state=0)


class Features(Scaling):
    """Sums of features, who has which; ours finds their number, the rival finds weights."""

    names = ("BPMeans", "NMF")
    base = (20_000, 64, 10)
    rows = (1000, 5000, 20_000, 100_000)
    columns = (32, 64, 256)
    clusters = (5, 10, 20)

    def data(self, n, d, k):
        rng = np.random.default_rng(0)
        A = rng.random((k, d)) < 0.15
        Z = rng.random((n, k)) < 0.3
        return np.maximum(Z @ A.astype(float) + 0.1 * rng.standard_normal((n, d)), 0.0), Z

    def ours(self, n, d, k):
        return BPMeans(n_init=1, random_state=0, n_threads=1)

    def rival(self, n, d, k):
        return NMF(k, random_state=0)

    def track_quality(self, case, estimator):
        """Share of the squares about the mean that the features leave."""
        model = self.estimator.fit(self.X)
        return model.reconstruction_err_**2 / np.square(self.X - self.X.mean(axis=0)).sum()

    def track_n_clusters(self, case, estimator):
        """Features."""
        return len(self.estimator.fit(self.X).components_)

    track_quality.unit = "of the squares"


class GivenFeatures(Features):
    """The same sums of features, their number given to both."""

    names = ("KFeatures", "NMF")

    def ours(self, n, d, k):
        return KFeatures(k, n_init=1, random_state=0, n_threads=1)


class Noise(Scaling):
    """Clusters, and a twentieth of the rows anywhere in a box; both are told nothing."""

    names = ("RobustDPMeans", "HDBSCAN")
    base = (20_000, 8, 20)
    rows = (1000, 5000, 20_000, 100_000)
    columns = (4, 8, 16)
    clusters = (5, 20, 80)
    rival_rows = 20_000

    def data(self, n, d, k):
        X, truth = blobs(n, d, k)
        rng = np.random.default_rng(1)
        noise = rng.random(n) < 0.05
        X[noise] = rng.uniform(1.5 * X.min(axis=0), 1.5 * X.max(axis=0), (noise.sum(), d))
        return X, np.where(noise, -1, truth)

    def ours(self, n, d, k):
        return RobustDPMeans(random_state=0, n_threads=1)

    def rival(self, n, d, k):
        return HDBSCAN(copy=True)

    def track_n_clusters(self, case, estimator):
        """K, noise not counted."""
        labels = self.labels(case, estimator)
        return len(np.unique(labels[labels >= 0]))


class Moons(Noise):
    """Half moons, and columns of noise; both are told nothing."""

    names = ("ShapeMeans", "HDBSCAN")
    base = (20_000, 2, 4)
    rows = (1000, 5000, 20_000, 100_000)
    columns = (2, 3, 4)
    clusters = (2, 4, 8)

    def data(self, n, d, k):
        X, truth = make_moons(n, noise=0.08, random_state=0)
        rng = np.random.default_rng(1)
        pair = rng.integers(k // 2, size=n)
        X[:, 1] += 2.5 * pair
        return np.hstack([X, 0.08 * rng.standard_normal((n, d - 2))]), 2 * pair + truth

    def ours(self, n, d, k):
        return ShapeMeans(random_state=0, n_threads=1)


class Prototypes:
    """KPrototypes whose last columns, half of them, are categories."""

    def __init__(self, k):
        self.k = k

    def fit(self, X):
        """Fit, and keep the labels."""
        from kmodes.kprototypes import KPrototypes

        places = list(range(X.shape[1] // 2, X.shape[1]))
        model = KPrototypes(self.k, n_init=1, init="random", random_state=0)
        self.labels_ = model.fit_predict(X, categorical=places)
        return self


class Tables(Scaling):
    """Half of the columns numbers, half categories of four levels; both are told the number."""

    names = ("MixedDPMeans", "KPrototypes")
    rows = (1000, 5000, 20_000, 100_000, 500_000)
    columns = (4, 16, 64)
    clusters = (5, 20, 80)
    rival_rows = 5000
    rival_from = "kmodes"

    def data(self, n, d, k):
        numbers, truth = blobs(n, d // 2, k)
        rng = np.random.default_rng(1)
        shares = rng.dirichlet(np.full(4, 0.4), (d - d // 2, k)).cumsum(axis=-1)
        codes = [(own[truth] < rng.random(n)[:, None]).sum(axis=1).clip(max=3) for own in shares]
        return np.hstack([numbers, np.column_stack(codes)]), truth

    def ours(self, n, d, k):
        kinds = {j: "normal" if j < d // 2 else "categorical" for j in range(d)}
        return MixedDPMeans(n_clusters=k, columns=kinds, random_state=0, n_threads=1)

    def rival(self, n, d, k):
        return Prototypes(k)


class Record(Scaling):
    """A record that stays in a state for 50 rows or so; ours is told nothing."""

    names = ("SegmentMeans", "GaussianHMM")
    base = (20_000, 8, 10)
    rows = (1000, 5000, 20_000, 100_000)
    columns = (2, 8, 32)
    clusters = (5, 10, 20)
    rival_rows = 20_000
    rival_from = "hmmlearn"

    def data(self, n, d, k):
        return record(n, d, k, 50)

    def ours(self, n, d, k):
        return SegmentMeans(n_threads=1)

    def rival(self, n, d, k):
        from hmmlearn.hmm import GaussianHMM

        return GaussianHMM(k, covariance_type="spherical", n_iter=100, random_state=0)


class DataSets(Scaling):
    """Data sets of 100 rows from five of the clusters; the rival has all rows in one."""

    names = ("HDPMeans", "KMeans")
    rows = (1000, 5000, 20_000, 100_000)

    def data(self, n, d, k):
        rng = np.random.default_rng(0)
        pick = rng.random((n // 100, k)).argsort(axis=1)[:, :5]
        self.sets = np.repeat(np.arange(n // 100), 100)
        truth = pick[self.sets, rng.integers(5, size=n)]
        centers = rng.uniform(-1, 1, size=(k, d)) * 6 * k ** (1 / d)
        return centers[truth] + rng.standard_normal((n, d)), truth

    def ours(self, n, d, k):
        return Bound(
            HDPMeans(lam_local=penalty(d), lam_global=penalty(d), n_threads=1), groups=self.sets
        )

    def rival(self, n, d, k):
        return KMeans(k, n_init=1, random_state=0)


class PerStep:
    """A clustering of each time step by itself."""

    def __init__(self, model, times):
        self.model, self.times = model, times

    def fit(self, X):
        """Fit to every step; labels do not go from one to the next."""
        steps = [clone(self.model).fit(rows) for rows in np.split(X, cuts(self.times))]
        self.labels_ = np.concatenate([step.labels_ for step in steps])
        return self


def cuts(times):
    """Where a new step begins."""
    return np.flatnonzero(np.diff(times)) + 1


class Steps(Scaling):
    """Clusters that move in 20 steps; the rival begins afresh in each."""

    names = ("DynamicMeans", "KMeans")
    rows = (1000, 5000, 20_000, 100_000, 500_000)
    clusters = (5, 20, 80)

    def data(self, n, d, k):
        rng = np.random.default_rng(0)
        X, truth = blobs(n, d, k)
        self.times = np.repeat(np.arange(20), n // 20)
        motion = np.cumsum(0.2 * rng.standard_normal((20, k, d)), axis=0)
        return X + motion[self.times, truth], truth

    def ours(self, n, d, k):
        model = DynamicMeans(
            lam=penalty(d), t_q=5, k_tau=1.05, n_init=1, random_state=0, n_threads=1
        )
        return Bound(model, times=self.times)

    def rival(self, n, d, k):
        return PerStep(KMeans(k, n_init=1, random_state=0), self.times)

    def track_quality(self, case, estimator):
        """Agreement within a step, mean of all."""
        labels, where = self.labels(case, estimator), cuts(self.times)
        pairs = zip(np.split(self.truth, where), np.split(labels, where), strict=True)
        return float(np.mean([normalized_mutual_info_score(*pair) for pair in pairs]))

    track_quality.unit = "NMI"


def kernel_penalty(d):
    """The distance of ``penalty``, after the "rbf" kernel."""
    return 2.0 - 2.0 * np.exp(-0.03 / d * penalty(d))


def spectral_clustering(k, d):
    """The rival of all that use that kernel."""
    return SpectralClustering(k, gamma=0.03 / d, n_init=1, random_state=0)


class Kernels(Scaling):
    """The "rbf" kernel."""

    names = ("KernelDPMeans", "SpectralClustering")
    base = (1500, 16, 10)
    rows = (200, 500, 1500, 5000)
    columns = (4, 16, 64, 256)
    clusters = (5, 10, 20, 40)

    def data(self, n, d, k):
        return blobs(n, d, k)

    def ours(self, n, d, k):
        return KernelDPMeans(lam="farthest-first", guess=k, gamma=0.03 / d)

    def rival(self, n, d, k):
        return spectral_clustering(k, d)


class Spectrum(Kernels):
    """The "rbf" kernel, by eigenvectors."""

    names = ("SpectralDPMeans", "SpectralClustering")

    def ours(self, n, d, k):
        return SpectralDPMeans(lam="spectrum", guess=k, gamma=0.03 / d, random_state=0)


class KernelSets(DataSets):
    """Data sets of 100 rows from five of the clusters, the "rbf" kernel."""

    names = ("KernelHDPMeans", "SpectralClustering")
    base, rows = (1500, 16, 10), (400, 1500, 5000)
    columns, clusters = (4, 16, 64, 256), (5, 10, 20)

    def ours(self, n, d, k):
        lam = 0.7 * kernel_penalty(d)  # twice that is less than 1, or no point leaves the mean
        return Bound(
            KernelHDPMeans(lam_local=lam, lam_global=lam, gamma=0.03 / d), groups=self.sets
        )

    def rival(self, n, d, k):
        return spectral_clustering(k, d)


class KernelSteps(Steps):
    """Clusters that move in 20 steps, the "rbf" kernel; the rival begins afresh in each."""

    names = ("KernelDynamicMeans", "SpectralClustering")
    base, rows = (4000, 16, 10), (1000, 4000, 16_000)
    columns, clusters = (4, 16, 64, 256), (5, 10, 20)

    def ours(self, n, d, k):
        return self.tracker(KernelDynamicMeans, kernel_penalty(d), d)

    def tracker(self, kind, lam, d):
        """Return the estimator, bound to the times."""
        model = kind(lam=lam, t_q=5, k_tau=1.05, gamma=0.03 / d, n_init=1, random_state=0)
        return Bound(model, times=self.times)

    def rival(self, n, d, k):
        return PerStep(spectral_clustering(k, d), self.times)


class SpectralSteps(KernelSteps):
    """Clusters that move in 20 steps, by eigenvectors; the rival begins afresh in each."""

    names = ("SpectralDynamicMeans", "SpectralClustering")

    def ours(self, n, d, k):
        lam = 0.3 * n / 20 / k  # of the squared norms of a cluster
        return self.tracker(SpectralDynamicMeans, lam, d)


class Louvain:
    """Communities by networkx."""

    def fit(self, graph):
        """Cluster of each node."""
        from networkx.algorithms.community import louvain_communities

        self.labels_ = np.empty(len(graph), dtype=int)
        for c, nodes in enumerate(louvain_communities(graph, seed=0)):
            self.labels_[list(nodes)] = c
        return self


class Graphs(Scaling):
    """Planted communities; rows are nodes, columns the links of a node."""

    names = ("PenalizedCut", "Louvain")
    base = (20_000, 10, 100)
    rows = (1000, 5000, 20_000, 100_000)
    columns = (10, 20, 40)
    clusters = (20, 100, 500)
    rival_rows = 20_000
    rival_from = "networkx"

    def setup(self, case, estimator):
        """Give the rival its own kind of graph; making that is not timed."""
        super().setup(case, estimator)
        if estimator == "Louvain":
            import networkx

            self.X = networkx.from_scipy_sparse_array(self.X)

    def data(self, n, d, k):
        return communities(n * d // 2, k, d)

    def ours(self, n, d, k):
        return PenalizedCut(lam=None, n_init=1, random_state=0)

    def rival(self, n, d, k):
        return Louvain()


FAMILIES = (
    *(
        Points,
        Batches,
        Directions,
        Divergence,
        Topics,
        Shapes,
        Tables,
        Noise,
        Moons,
        Record,
        Features,
    ),
    *(GivenFeatures, DataSets, Steps, Kernels, Spectrum, KernelSets, KernelSteps, SpectralSteps),
    Graphs,
)
