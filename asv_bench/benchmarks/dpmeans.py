"""DPMeans with a penalty of its own."""

import numpy as np
from sklearn.cluster import KMeans

from smallvar import DPMeans

from .common import CASES, LARGE, MEDIUM, SMALL, Fit, Timed, blobs, penalty


class Algorithms(Fit):
    """The three algorithms from the global mean to convergence, from tiny to large."""

    param_names = ["case", "algorithm"]
    params = [list(CASES), ["serial", "delayed", "collapsed"]]

    def make(self, case, algorithm):
        n, d, k = CASES[case]
        if case == LARGE and algorithm != "serial":
            raise NotImplementedError("takes too long to be repeated")
        return *blobs(n, d, k), DPMeans(lam=penalty(d), algorithm=algorithm)


class Threads(Timed):
    """Both precisions, one thread and two, on the largest case."""

    param_names = ["dtype", "n_threads"]
    params = [["float32", "float64"], [1, 2]]

    def make(self, dtype, n_threads):
        n, d, k = CASES[LARGE]
        return *blobs(n, d, k, dtype), DPMeans(lam=penalty(d), n_threads=n_threads)


class SmallPenalty(Fit):
    """A lam so small that a sweep opens many clusters, the ordered part of Algorithm 1."""

    param_names = ["algorithm"]
    params = [["serial", "delayed"]]

    def make(self, algorithm):
        return *blobs(20_000, 16, 50), DPMeans(lam=40.0, algorithm=algorithm)


# in float32, as embeddings come
WIDE = {
    "500k x 5, 50 clusters, float32": (500_000, 5, 50),
    "80k x 200, 200 clusters, float32": (80_000, 200, 200),
    "20k x 768, 500 clusters, float32": (20_000, 768, 500),
}


class AgainstKMeans:
    """Same starting centers, nothing new opened, to strict convergence: the same work for both."""

    param_names = ["case", "estimator"]
    params = [list(CASES)[:-1] + list(WIDE), ["DPMeans", "KMeans"]]

    def setup(self, case, estimator):
        """Take rows as starting centers."""
        n, d, k = (CASES | WIDE)[case]
        # Clusters that touch: where they do not, some centers lose all their points, which KMeans
        # places anew and DPMeans drops.
        self.X, _ = blobs(n, d, k, "float32" if case in WIDE else "float64", d**0.5)
        start = self.X[np.random.default_rng(9).choice(n, k, replace=False)]
        if estimator == "DPMeans":
            self.estimator = DPMeans(lam=1e30, init=start)
        else:
            self.estimator = KMeans(k, init=start, n_init=1, tol=0)

    def time_fit(self, case, estimator):
        """Seconds."""
        self.estimator.fit(self.X)

    def track_sse(self, case, estimator):
        """Sum of squared errors per row, which should be the same."""
        return self.estimator.fit(self.X).inertia_ / len(self.X)

    track_sse.unit = "SSE / row"


class Predict:
    """Labels for new points, one or many."""

    param_names = ["n_rows", "n_clusters"]
    params = [[1, 1_000, 100_000], [10, 1_000]]

    def setup(self, n_rows, n_clusters):
        """Fit to the centers, so that there is nothing to sweep."""
        self.X, _ = blobs(max(n_rows, n_clusters), 16, n_clusters)
        start = self.X[:n_clusters]
        self.model = DPMeans(lam=1e30, init=start).fit(start)
        self.X = self.X[:n_rows]

    def time_predict(self, n_rows, n_clusters):
        """Seconds."""
        self.model.predict(self.X)


class Transform:
    """Distances of points to all centers."""

    param_names = ["n_rows", "n_columns", "n_clusters"]
    params = [[1, 20_000], [2, 128], [200]]

    def setup(self, n_rows, n_columns, n_clusters):
        """Fit to the centers, so that there is nothing to sweep."""
        self.X, _ = blobs(max(n_rows, n_clusters), n_columns, n_clusters)
        start = self.X[:n_clusters]
        self.model = DPMeans(lam=1e30, init=start).fit(start)
        self.X = self.X[:n_rows]

    def time_transform(self, n_rows, n_columns, n_clusters):
        """Seconds."""
        self.model.transform(self.X)


class Probabilities:
    """Probabilities and outlier scores of new points, beside their labels."""

    param_names = ["n_rows", "method"]
    params = [[1, 1_000, 1_000_000], ["predict", "predict_proba", "outlier_scores"]]

    def setup(self, n_rows, method):
        """Fit, and measure the spread of the rows."""
        X, _ = blobs(max(n_rows, 10_000), 16, 20, noise=2.0)
        self.model = DPMeans(lam=1e30, init=X[:20]).fit(X[:10_000])
        self.model.predict_proba(X[:1])
        self.X = X[:n_rows]

    def time_method(self, n_rows, method):
        """Seconds."""
        getattr(self.model, method)(self.X)


class RowModels:
    """The first probabilities after a fit, which the spread of the rows is measured for."""

    param_names = ["case"]
    params = [[SMALL, MEDIUM, LARGE]]

    def setup(self, case):
        """Fit."""
        n, d, k = CASES[case]
        self.X, _ = blobs(n, d, k)
        self.model = DPMeans(lam=penalty(d)).fit(self.X)

    def time_first(self, case):
        """Seconds."""
        self.model._fitted_rows.results.clear()
        self.model.predict_proba(self.X[:1])
