"""farthest_first_lambda."""

from smallvar import farthest_first_lambda

from .common import CASES, LARGE, SMALL, blobs


class FarthestFirst:
    """The penalty from a guess."""

    param_names = ["case", "n_clusters"]
    params = [[SMALL, LARGE], [8, 100]]

    def setup(self, case, n_clusters):
        """Make the data."""
        self.X, _ = blobs(*CASES[case])

    def time_farthest_first_lambda(self, case, n_clusters):
        """Seconds."""
        farthest_first_lambda(self.X, n_clusters)
