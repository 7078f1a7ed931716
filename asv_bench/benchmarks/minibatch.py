"""MiniBatchDPMeans."""

from smallvar import MiniBatchDPMeans

from .common import CASES, MEDIUM, SMALL, Fit, blobs, penalty


class MiniBatch(Fit):
    """Batches from memory."""

    param_names = ["case"]
    params = [[SMALL, MEDIUM]]

    def make(self, case):
        n, d, k = CASES[case]
        return *blobs(n, d, k), MiniBatchDPMeans(lam=penalty(d), random_state=0)


class PartialFit:
    """One batch into a model that has seen others."""

    param_names = ["n_rows", "n_clusters"]
    params = [[1, 100, 4_096], [10, 500]]

    def setup(self, n_rows, n_clusters):
        """Let the model meet every cluster."""
        X, _ = blobs(20_000, 16, n_clusters)
        self.model = MiniBatchDPMeans(lam=penalty(16), random_state=0).fit(X)
        self.batch = X[:n_rows]

    def time_partial_fit(self, n_rows, n_clusters):
        """Seconds."""
        self.model.partial_fit(self.batch)
