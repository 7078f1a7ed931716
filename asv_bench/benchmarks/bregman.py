"""BregmanDPMeans."""

import numpy as np

from smallvar import BregmanDPMeans

from .common import Fit


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
        return X, truth, BregmanDPMeans(lam=lam[divergence], divergence=divergence)


class GivenCenters(Fit):
    """Sweeps from given centers, in which none opens: bounds leave out most divergences."""

    param_names = ["divergence"]
    params = [["kl", "itakura_saito", "logistic"]]

    def make(self, divergence):
        """Twenty overlapping clusters of counts, of positive numbers, of bits."""
        rng = np.random.default_rng(0)
        truth, subset = rng.integers(20, size=20_000), rng.choice(20_000, 20, replace=False)
        if divergence == "kl":
            X = rng.poisson(rng.gamma(2.0, 5.0, (20, 16))[truth]).astype(float)
        elif divergence == "itakura_saito":
            X = rng.gamma(3.0, rng.gamma(2.0, 5.0, (20, 16))[truth])
        else:
            X = (rng.random((20_000, 16)) < rng.beta(0.5, 0.5, (20, 16))[truth]).astype(float)
        init = 0.5 * (X[subset] + X.mean(axis=0))
        return X, truth, BregmanDPMeans(lam=1e30, divergence=divergence, init=init)
