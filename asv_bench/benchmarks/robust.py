"""RobustDPMeans."""

import numpy as np

from smallvar import RobustDPMeans

from .common import CASES, LARGE, SMALL, Fit, Timed, blobs


def with_noise(n, d, k, share=0.005):
    """Blobs, and rows drawn evenly over a box around them, of label -1."""
    X, truth = blobs(n, d, k)
    rng = np.random.default_rng(1)
    lost = rng.random(n) < share
    X[lost] = rng.uniform(X.min() - 10, X.max() + 10, size=(lost.sum(), d))
    truth[lost] = -1
    return X, truth


class Automatic(Fit):
    """Number of clusters, penalty and price from the data."""

    param_names = ["case"]
    params = [[SMALL, LARGE]]

    def make(self, case):
        return *with_noise(*CASES[case]), RobustDPMeans(random_state=0)


class Sweeps(Timed):
    """From a row of each cluster, to a fixed point of the sweeps."""

    param_names = ["n_threads"]
    params = [[1, 2]]

    def make(self, n_threads):
        n, d, k = CASES[LARGE]
        X, truth = with_noise(n, d, k)
        first = X[np.unique(truth, return_index=True)[1][1:]]
        lam = d * n / k  # more than a cluster's half saves, less than a cluster
        return X, truth, RobustDPMeans(lam=lam, price=100.0, init=first, n_threads=n_threads)
