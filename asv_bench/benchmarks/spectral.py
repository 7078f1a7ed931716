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


class Spectrum(Fit):
    """Few eigenvectors of a kernel matrix, from a Krylov space; "laplacian" has a longer tail."""

    param_names = ["rows", "kernel"]
    params = [[1_000, 2_000], ["rbf", "laplacian"]]

    def make(self, rows, kernel):
        """Ten blobs in four dimensions."""
        X, truth = blobs(rows, 4, 10)
        model = SpectralDPMeans(lam="spectrum", guess=10, kernel=kernel, random_state=0)
        return X, truth, model
