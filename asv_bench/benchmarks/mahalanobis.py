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


class MahalanobisAuto(Timed):
    """The number of clusters is found."""

    param_names = ["columns"]
    params = [[2, 10, 30]]

    def make(self, columns):
        """Ten blobs of 200 rows."""
        X, truth = blobs(2_000, columns, 10)
        return X, truth, MahalanobisMeans(random_state=0)
