"""ShapeMeans, and the evidence of all boundaries of a clustering."""

import warnings

from sklearn.cluster import KMeans
from sklearn.datasets import make_moons
from sklearn.metrics import normalized_mutual_info_score

from smallvar import ShapeMeans, boundary_evidence

from .common import CASES, MEDIUM, SMALL, Timed, blobs

MOONS = {"1k rows": 1_000, "20k rows": 20_000, "100k rows": 100_000}


class Moons(Timed):
    """Two half moons, each of several pieces."""

    param_names = ["rows"]
    params = [list(MOONS)]

    def make(self, rows):
        X, truth = make_moons(MOONS[rows], noise=0.08, random_state=0)
        return X, truth, ShapeMeans(random_state=0)

    def track_nmi(self, rows):
        """Agreement with the moons."""
        return normalized_mutual_info_score(self.truth, self.estimator.fit(self.X).labels_)

    track_nmi.unit = "NMI"


class Compact(Timed):
    """Blobs: how much longer than DPMeans."""

    param_names = ["case"]
    params = [[SMALL, MEDIUM]]

    def make(self, case):
        return *blobs(*CASES[case]), ShapeMeans(random_state=0)


class Boundaries:
    """All boundaries of a given clustering."""

    param_names = ["case", "n_threads"]
    params = [[SMALL, MEDIUM], [1, 2]]

    def setup(self, case, n_threads):
        """Make the data, and cut each cluster in two."""
        warnings.simplefilter("ignore")
        n, d, k = CASES[case]
        self.X, _ = blobs(n, d, k)
        self.labels = KMeans(2 * k, n_init=1, max_iter=10, random_state=0).fit_predict(self.X)

    def time_evidence(self, case, n_threads):
        """Seconds."""
        boundary_evidence(self.X, self.labels, n_threads=n_threads)

    def peakmem_evidence(self, case, n_threads):
        """Peak memory of the process, data included."""
        boundary_evidence(self.X, self.labels, n_threads=n_threads)
