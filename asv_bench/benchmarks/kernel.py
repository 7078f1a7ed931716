"""KernelDPMeans and KernelHDPMeans."""

from smallvar import KernelDPMeans, KernelHDPMeans

from .common import Fit, Timed, blobs
from .hdp import Bound, shared


class Kernel(Fit):
    """RBF kernel, in both algorithms; float32 is held at half the memory."""

    param_names = ["rows", "algorithm", "dtype"]
    params = [[1_000, 5_000], ["serial", "collapsed"], ["float32", "float64"]]

    def make(self, rows, algorithm, dtype):
        """Ten blobs in ten dimensions."""
        X, truth = blobs(rows, 10, 10, dtype)
        return X, truth, KernelDPMeans(lam=0.6, kernel="rbf", gamma=0.01, algorithm=algorithm)


class KernelBlocks(Timed):
    """A Gram matrix that is not held (a tenth of it would be); the sums over the clusters are."""

    param_names = ["rows"]
    params = [[1_000, 5_000]]

    def make(self, rows):
        """Ten blobs in ten dimensions."""
        X, truth = blobs(rows, 10, 10)
        return X, truth, KernelDPMeans(lam=0.6, kernel="rbf", gamma=0.01, max_memory=0.8 * rows**2)


class KernelHDP(Fit):
    """Many data sets in feature space."""

    param_names = ["sets"]
    params = [[10, 100]]

    def make(self, sets):
        """Data sets of 20 rows."""
        X, group, truth = shared(sets, 20)
        model = KernelHDPMeans(lam_local=0.5, lam_global=1.0, kernel="rbf", gamma=0.5)
        return X, truth, Bound(model, group)


class KernelByNumber(Fit):
    """A penalty from the number of clusters, and few sweeps: most of the time is the matrix."""

    param_names = ["rows"]
    params = [[1_000, 3_000]]

    def make(self, rows):
        """Ten blobs in four dimensions."""
        X, truth = blobs(rows, 4, 10)
        return X, truth, KernelDPMeans(guess=10)
