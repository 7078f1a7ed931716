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
