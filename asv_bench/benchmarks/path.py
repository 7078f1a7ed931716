"""DPMeans that chooses the number, or merges down to it."""

from smallvar import DPMeans

from .common import CASES, MEDIUM, SMALL, Fit, blobs


class Auto(Fit):
    """The data choose: the merge path, its criterion and the last sweeps."""

    param_names = ["case"]
    params = [list(CASES)]

    def make(self, case):
        n, d, k = CASES[case]
        return *blobs(n, d, k), DPMeans(random_state=0)


class Merge(Fit):
    """The merge path for a given penalty, that of a tenth of a cluster's squared error."""

    param_names = ["case"]
    params = [[SMALL, MEDIUM]]

    def make(self, case):
        n, d, k = CASES[case]
        return *blobs(n, d, k), DPMeans(lam=n * d / k / 10, algorithm="merge", random_state=0)
