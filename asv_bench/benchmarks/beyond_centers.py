"""Kernels, graphs, spectra, other divergences."""

import numpy as np
from scipy.sparse import coo_array

from smallvar import (
    BregmanDPMeans,
    KernelDPMeans,
    KernelHDPMeans,
    MahalanobisMeans,
    PenalizedCut,
    SpectralDPMeans,
    SpectralDynamicMeans,
)

from .common import Fit, Timed, blobs
from .groups_and_time import _Bound, shared


class Kernel(Fit):
    """RBF kernel, in both algorithms; float32 is held at half the memory."""

    param_names = ["rows", "algorithm", "dtype"]
    params = [[1_000, 5_000], ["serial", "collapsed"], ["float32", "float64"]]

    def make(self, rows, algorithm, dtype):
        """Ten blobs in ten dimensions."""
        X, truth = blobs(rows, 10, 10, dtype)
        return X, truth, KernelDPMeans(0.6, kernel="rbf", gamma=0.01, algorithm=algorithm)


class KernelBlocks(Timed):
    """A Gram matrix that is not held."""

    param_names = ["rows"]
    params = [[5_000]]

    def make(self, rows):
        """Ten blobs in ten dimensions."""
        X, truth = blobs(rows, 10, 10)
        return X, truth, KernelDPMeans(0.6, kernel="rbf", gamma=0.01, max_memory=1e6)


class KernelHDP(Fit):
    """Many data sets in feature space."""

    param_names = ["sets"]
    params = [[10, 100]]

    def make(self, sets):
        """Data sets of 20 rows."""
        X, group, truth = shared(sets, 20)
        return X, truth, _Bound(KernelHDPMeans(0.5, 1.0, kernel="rbf", gamma=0.5), group)


def planted(edges, communities=100, degree=20, mixing=0.2):
    """A graph of equal communities, and the community of each node."""
    rng = np.random.default_rng(0)
    n = 2 * edges // degree
    truth = np.arange(n) % communities
    a = rng.integers(n, size=edges)
    inside = rng.random(edges) > mixing
    members = n // communities
    b = np.where(
        inside,
        truth[a] + communities * rng.integers(members, size=edges),
        rng.integers(n, size=edges),
    )
    A = coo_array((np.ones(2 * edges), (np.append(a, b), np.append(b, a))), (n, n)).tocsr()
    return A, truth


def power_law(edges):
    """A graph of nodes whose degrees follow a power law."""
    rng = np.random.default_rng(0)
    n = edges // 4
    mass = np.cumsum(np.minimum(rng.pareto(1.2, n) + 1, 5 * np.sqrt(n)))
    a, b = np.searchsorted(mass, rng.random((2, edges)) * mass[-1])
    return coo_array((np.ones(2 * edges), (np.append(a, b), np.append(b, a))), (n, n)).tocsr()


class Cut(Timed):
    """Time in the number of edges, one start."""

    param_names = ["edges", "graph", "cut"]
    params = [[10_000, 100_000, 1_000_000], ["planted", "power law"], ["normalized", "ratio"]]

    def make(self, edges, graph, cut):
        """The adjacency matrix."""
        A, truth = planted(edges) if graph == "planted" else (power_law(edges), None)
        return A, truth, PenalizedCut(cut=cut, n_init=1, random_state=0)


class Spectral(Fit):
    """Dense eigenvectors of a kernel matrix."""

    param_names = ["rows", "rounding"]
    params = [[500, 1_500], ["yu-shi", "kmeans"]]

    def make(self, rows, rounding):
        """Ten blobs in ten dimensions."""
        X, truth = blobs(rows, 10, 10)
        model = SpectralDPMeans(
            0.03 * rows, kernel="rbf", gamma=0.02, rounding=rounding, random_state=0
        )
        return X, truth, model


class Divergences(Fit):
    """Counts, positive numbers and fractions against the same in squared distance."""

    param_names = ["divergence"]
    params = [["squared_euclidean", "kl", "itakura_saito", "logistic"]]

    def make(self, divergence):
        """Twenty clusters of 50,000 rows, with a penalty that opens about as many."""
        rng = np.random.default_rng(0)
        centers = rng.uniform(0.1, 0.9, (20, 20))
        truth = rng.integers(20, size=50_000)
        X = np.clip(centers[truth] * rng.gamma(50.0, 0.02, (50_000, 20)), 0.01, 0.99)
        lam = {"squared_euclidean": 1.0, "kl": 1.5, "itakura_saito": 3.0, "logistic": 4.0}
        return X, truth, BregmanDPMeans(lam[divergence], divergence=divergence)


class Mahalanobis(Timed):
    """Full covariances."""

    param_names = ["rows"]
    params = [[1_000, 50_000]]

    def make(self, rows):
        """Ten blobs in eight dimensions."""
        X, truth = blobs(rows, 8, 10)
        return X, truth, MahalanobisMeans(10, random_state=0)


class SpectralStep:
    """One step of SD-Means."""

    def setup(self):
        """Let the model meet every cluster."""
        X, _ = blobs(400, 2, 5)
        self.batch = X
        self.model = SpectralDynamicMeans(
            40.0, t_q=5.0, k_tau=1.1, kernel="rbf", gamma=0.05, random_state=0
        ).partial_fit(X)

    def time_partial_fit(self):
        """Seconds."""
        self.model.partial_fit(self.batch)
