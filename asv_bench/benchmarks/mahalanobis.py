"""MahalanobisMeans."""

from smallvar import MahalanobisMeans

from .common import Timed, blobs


class Mahalanobis(Timed):
    """Full covariances."""

    param_names = ["rows"]
    params = [[1_000, 50_000]]

    def make(self, rows):
        """Ten blobs in eight dimensions."""
        X, truth = blobs(rows, 8, 10)
        return X, truth, MahalanobisMeans(10, random_state=0)
