"""Fits of smallvar.dask on the threads of one machine."""

from smallvar import DPMeans

from .common import blobs, penalty

try:
    import dask.array as da

    from smallvar.dask import fit
except ImportError:  # an optional dependency
    da = None


class Partitions:
    """DPMeans on a dask array: time, and what is found, which one machine finds, too."""

    param_names = ["rows", "partitions"]
    params = [[10_000, 100_000], [4, 16]]

    def setup(self, n, partitions):
        """Make the data."""
        if da is None:
            raise NotImplementedError("dask is not installed")
        X, _ = blobs(n, 16, 20)
        self.X = da.from_array(X, chunks=(-(-n // partitions), 16))
        self.model = DPMeans(lam=penalty(16))

    def time_fit(self, n, partitions):
        """Seconds."""
        fit(self.model, self.X)

    def track_objective(self, n, partitions):
        """SSE + lam K per row."""
        return fit(self.model, self.X).objective_ / n

    def track_n_clusters(self, n, partitions):
        """K."""
        return int(fit(self.model, self.X).n_clusters_)

    track_objective.unit = "objective / row"
