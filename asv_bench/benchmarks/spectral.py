"""SpectralDPMeans."""

from smallvar import SpectralDPMeans

from .common import Fit, blobs


class Spectral(Fit):
    """Dense eigenvectors of a kernel matrix."""

    param_names = ["rows", "rounding"]
    params = [[500, 1_500], ["yu-shi", "kmeans"]]

    def make(self, rows, rounding):
        """Ten blobs in ten dimensions."""
        X, truth = blobs(rows, 10, 10)
        model = SpectralDPMeans(
            lam=0.03 * rows, kernel="rbf", gamma=0.02, rounding=rounding, random_state=0
        )
        return X, truth, model
