"""BPMeans and KFeatures."""

import numpy as np

from smallvar import BPMeans, KFeatures

from .common import Timed

# name: rows, columns, features
PLANTED = {
    "100 x 100, 5 features": (100, 100, 5),
    "1k x 64, 10 features": (1_000, 64, 10),
    "20k x 64, 20 features": (20_000, 64, 20),
    "200k x 64, 20 features": (200_000, 64, 20),
}
TINY, SMALL, MEDIUM, LARGE = PLANTED


def planted(n, d, k, dtype="float64"):
    """Sums of a random subset of k features, and noise; the subsets, and the truth's error."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((k, d))
    Z = (rng.random((n, k)) < 0.3).astype(np.float64)
    noise = 0.3 * rng.standard_normal((n, d))
    return (Z @ A + noise).astype(dtype), Z, float((noise**2).sum())


class Features(Timed):
    """Adds the result: the error relative to that of the truth."""

    def track_error(self, *params):
        """Squared error, relative to that of the features the data were made of."""
        return self.estimator.fit(self.X).reconstruction_err_ ** 2 / self.truth

    def track_n_components(self, *params):
        """K."""
        return int(self.estimator.fit(self.X).n_components_)

    track_error.unit = "of the error of the truth"
    track_n_components.unit = "features"


class Starts(Features):
    """A hundred starts, shared out among the threads."""

    param_names = ["case", "estimator"]
    params = [[TINY, SMALL], ["coordinate", "exact", "sweep", "collapsed", "swaps"]]

    def make(self, case, estimator):
        """A penalty of half of what a feature explains keeps the true ones."""
        n, d, k = PLANTED[case]
        X, _, truth = planted(n, d, k)
        options = {"n_init": 100, "n_swaps": 0, "random_state": 0}
        if estimator in ("coordinate", "exact"):
            return X, truth, KFeatures(k, assign=estimator, **options)
        if estimator == "swaps":
            return X, truth, KFeatures(k, **options | {"n_init": 10, "n_swaps": 10})
        return X, truth, BPMeans(lam=0.1 * n * d, algorithm=estimator, **options)


class LargeStart(Features):
    """One start, its points shared out among the threads; 50 sweeps."""

    param_names = ["case", "dtype", "n_threads"]
    params = [[MEDIUM, LARGE], ["float32", "float64"], [1, 2]]

    def make(self, case, dtype, n_threads):
        """Stop after as many sweeps in each case, so that times compare."""
        n, d, k = PLANTED[case]
        X, _, truth = planted(n, d, k, dtype)
        options = {"n_threads": n_threads, "random_state": 0}
        model = KFeatures(k, n_init=1, n_swaps=0, max_iter=50, **options)
        return X, truth, model


class Defaults(Features):
    """The defaults: starts that end where they agree, and for BPMeans the number of features."""

    param_names = ["n_rows", "estimator"]
    params = [[500, 5_000], ["KFeatures", "BPMeans"]]

    def make(self, n_rows, estimator):
        """Eight features; only KFeatures is told so."""
        X, _, truth = planted(n_rows, 64, 8)
        models = {"KFeatures": KFeatures(8), "BPMeans": BPMeans()}
        return X, truth, models[estimator].set_params(random_state=0, n_threads=1)


class Transform:
    """Features of new rows, one or many."""

    param_names = ["n_rows", "assign"]
    params = [[1, 100_000], ["coordinate", "exact"]]

    def setup(self, n_rows, assign):
        """Fit to few rows."""
        X, Z, _ = planted(100_000, 64, 10)
        self.model = KFeatures(10, assign=assign, init=Z[:1000]).fit(X[:1000])
        self.X = X[:n_rows]

    def time_transform(self, n_rows, assign):
        """Seconds."""
        self.model.transform(self.X)
