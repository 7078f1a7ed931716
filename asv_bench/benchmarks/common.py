"""Data for the benchmarks, and what every benchmark of a fit measures."""

import warnings
from abc import ABC, abstractmethod

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import normalized_mutual_info_score

# name: rows, columns, clusters
CASES = {
    "1k x 2, 5 clusters": (1_000, 2, 5),
    "100k x 3, 300 clusters": (100_000, 3, 300),
    "10k x 128, 100 clusters": (10_000, 128, 100),
    "50k x 16, 50 clusters": (50_000, 16, 50),
    "1M x 16, 20 clusters": (1_000_000, 16, 20),
}
SMALL, *_, MEDIUM, LARGE = CASES


def blobs(n, d, k, dtype="float64", noise=1.0):
    """Gaussian clusters, and the number of the cluster each row is from."""
    rng = np.random.default_rng(0)
    # In few dimensions there is room for many clusters only if they are farther apart.
    centers = rng.uniform(-1, 1, size=(k, d)) * 6 * k ** (1 / d)
    truth = rng.integers(k, size=n)
    X = rng.standard_normal((n, d), dtype=dtype)
    X *= noise
    X += centers.astype(dtype)[truth]
    return X, truth


def penalty(d):
    """A lam that the distance between two points of one cluster hardly ever exceeds."""
    return 2 * (d + 6 * np.sqrt(2 * d))


class Timed(ABC):
    """Time and peak memory of one fit.

    The subclass names `params` and returns data and an unfitted estimator for each of them.
    """

    param_names: list
    params: list

    @abstractmethod
    def make(self, *params):
        """Return (X, truth, estimator); raise NotImplementedError to leave a case out."""

    def setup(self, *params):
        """Make the data."""
        warnings.simplefilter("ignore", ConvergenceWarning)
        self.X, self.truth, self.estimator = self.make(*params)

    def time_fit(self, *params):
        """Seconds."""
        self.estimator.fit(self.X)

    def peakmem_fit(self, *params):
        """Peak memory of the process, data included."""
        self.estimator.fit(self.X)


class Fit(Timed):
    """Also the result of the fit, so that speed cannot hide worse ones."""

    def track_objective(self, *params):
        """SSE + lam K per row."""
        return self.estimator.fit(self.X).objective_ / len(self.X)

    def track_n_clusters(self, *params):
        """K."""
        return int(self.estimator.fit(self.X).n_clusters_)

    def track_nmi(self, *params):
        """Agreement with the clusters that the data were drawn from."""
        return normalized_mutual_info_score(self.truth, self.estimator.fit(self.X).labels_)

    track_objective.unit = "objective / row"
    track_n_clusters.unit = "clusters"
    track_nmi.unit = "NMI"
