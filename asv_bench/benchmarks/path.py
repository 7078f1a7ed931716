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


class AutoWide(Fit):
    """The same in many columns: more than rows, and so many that they matter most."""

    param_names = ["rows", "columns"]
    params = [[60, 1000], [200, 1600]]

    def make(self, rows, columns):
        return *blobs(rows, columns, 3), DPMeans(random_state=0)


class Merge(Fit):
    """The merge path for a given penalty, that of a tenth of a cluster's squared error."""

    param_names = ["case"]
    params = [[SMALL, MEDIUM]]

    def make(self, case):
        n, d, k = CASES[case]
        return *blobs(n, d, k), DPMeans(lam=n * d / k / 10, algorithm="merge", random_state=0)


class SmallAuto(Fit):
    """The data choose, where there are few of them: the time is that of many short steps."""

    param_names = ["case"]
    params = [["50 x 2", "178 x 13", "1000 x 2"]]

    def make(self, case):
        n, d = map(int, case.split(" x "))
        return *blobs(n, d, 4), DPMeans(random_state=0)


class Lattice(Fit):
    """Hundreds of clusters in two columns."""

    params = [[400]]

    def make(self, k):
        X, truth = blobs(20_000, 2, k)
        return X, truth, DPMeans(random_state=0)
