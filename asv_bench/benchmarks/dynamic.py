"""DynamicMeans and its kernel forms."""

import numpy as np

from smallvar import DynamicMeans, KernelDynamicMeans, SpectralDynamicMeans

from .common import Timed, blobs


class DynamicRecord(Timed):
    """A hundred steps of moving Gaussians."""

    param_names = ["clusters"]
    params = [[5, 25]]

    def make(self, clusters):
        """15 points per cluster and step."""
        rng = np.random.default_rng(0)
        path = rng.random((clusters, 2)) + np.cumsum(
            0.05 * rng.standard_normal((100, clusters, 2)), axis=0
        )
        X = np.repeat(path, 15, axis=1).reshape(-1, 2)
        X += 0.05 * rng.standard_normal(X.shape)
        model = DynamicMeans(lam=0.05, t_q=6.8, k_tau=1.01, random_state=0)
        return X, None, _Timed(model, np.repeat(np.arange(100), 15 * clusters))


class _Timed:
    """An estimator whose fit knows the times."""

    def __init__(self, model, times):
        self.model, self.times = model, times

    def fit(self, X):
        """Fit and return the model."""
        return self.model.fit(X, times=self.times)


class DynamicPartialFit:
    """One step of a running stream, small and large."""

    param_names = ["n_rows", "clusters"]
    params = [[75, 200, 100_000], [5, 50]]

    def setup(self, n_rows, clusters):
        """Let the model meet every cluster."""
        rng = np.random.default_rng(0)
        centers = 10 * rng.random((clusters, 2))
        X = centers[rng.integers(clusters, size=n_rows)]
        self.batch = X + 0.1 * rng.standard_normal(X.shape)
        self.model = DynamicMeans(lam=2.0, t_q=6.8, k_tau=1.01, n_init=1).partial_fit(self.batch)

    def time_partial_fit(self, n_rows, clusters):
        """Seconds."""
        self.model.partial_fit(self.batch)


class KernelStep:
    """One step of kernel D-Means."""

    def setup(self):
        """Fill the budget of every cluster."""
        self.batch, _ = blobs(200, 2, 10)
        self.model = KernelDynamicMeans(lam=1.0, gamma=0.1, random_state=0)
        for _ in range(6):
            self.model.partial_fit(self.batch)

    def time_partial_fit(self):
        """Seconds."""
        self.model.partial_fit(self.batch)


class SpectralStep:
    """One step of SD-Means."""

    def setup(self):
        """Let the model meet every cluster."""
        X, _ = blobs(400, 2, 5)
        self.batch = X
        self.model = SpectralDynamicMeans(
            lam=40.0, t_q=5.0, k_tau=1.1, kernel="rbf", gamma=0.05, random_state=0
        ).partial_fit(X)

    def time_partial_fit(self):
        """Seconds."""
        self.model.partial_fit(self.batch)
