"""DPMeans over sparse rows."""

import numpy as np
from scipy.sparse import csr_array
from sklearn.cluster import KMeans

from smallvar import DPMeans, farthest_first_lambda


def words(n, d, k, length=90, seed=0):
    """Rows of so many words, a third from one of k topics: float32, unit length, like TF-IDF."""
    rng = np.random.default_rng(seed)
    rank = np.arange(d) + 10.0
    own = (d / 10 * (np.power(d / 10.0, rng.random((n, length // 3))) - 1) / (d / 10)).astype(int)
    own = (own * 7919 + rng.integers(0, k, n)[:, None] * 104_729) % d
    common = rng.choice(d, (n, length - length // 3), p=1 / rank / np.sum(1 / rank))
    columns = np.concatenate([own, common], axis=1).astype(np.int32)  # KMeans takes no int64
    rows = np.repeat(np.arange(n, dtype=np.int32), length)
    X = csr_array((np.ones(columns.size, np.float32), (rows, columns.ravel())), (n, d))
    X.data /= np.sqrt(1.0 + np.bincount(X.indices, minlength=d)[X.indices]).astype(np.float32)
    X.data /= np.repeat(np.sqrt(X.multiply(X).sum(axis=1)), np.diff(X.indptr)).astype(np.float32)
    return X


class AgainstKMeans:
    """Same starting centers, nothing new opened, to strict convergence."""

    param_names = ["estimator"]
    params = [["DPMeans", "KMeans"]]

    def setup(self, estimator):
        """Take rows as starting centers."""
        self.X = words(20_000, 20_000, 100)
        centers = self.X[np.random.default_rng(0).choice(20_000, 100, replace=False)].toarray()
        if estimator == "DPMeans":
            self.model = DPMeans(lam=1e9, init=centers.astype(np.float64))
        else:
            self.model = KMeans(100, init=centers, n_init=1, tol=0, algorithm="lloyd")

    def time_fit(self, estimator):
        """Seconds."""
        self.model.fit(self.X)

    def peakmem_fit(self, estimator):
        """Bytes, data and libraries included."""
        self.model.fit(self.X)


class Rest:
    """What else reads sparse rows."""

    def setup(self):
        """Fit a model."""
        self.X = words(20_000, 20_000, 100)
        self.model = DPMeans(lam=1e9, init=self.X[:100].toarray()).fit(self.X)

    def time_predict(self):
        """Seconds."""
        self.model.predict(self.X)

    def time_transform(self):
        """Seconds."""
        self.model.transform(self.X)

    def time_farthest_first_lambda(self):
        """Seconds."""
        farthest_first_lambda(self.X, 10)

    def time_serial_from_a_row(self):
        """Seconds."""
        DPMeans(lam=1.7, init=self.X[:1].toarray(), max_clusters=200, max_iter=3).fit(self.X)
