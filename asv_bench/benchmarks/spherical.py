"""SphericalDPMeans with the penalty that it finds, and with a given one on more rows."""

import numpy as np
from sklearn.preprocessing import normalize

from smallvar import SphericalDPMeans

from .common import Timed

CASES = {
    "20k x 64, 100 directions": (20_000, 64, 100, {}),
    "1M x 16, 20 directions, min_cosine": (1_000_000, 16, 20, {"min_cosine": 0.3}),
}


class Directions(Timed):
    """Rows of any length."""

    param_names = ["case", "dtype"]
    params = [list(CASES), ["float64", "float32"]]
    timeout = 300

    def make(self, case, dtype):
        """The data and the estimator."""
        n, d, k, options = CASES[case]
        rng = np.random.default_rng(0)
        truth = rng.integers(k, size=n)
        X = rng.standard_normal((n, d), dtype=np.float32)
        X *= 0.5 / np.sqrt(d)
        X += normalize(rng.standard_normal((k, d)))[truth]
        X *= rng.uniform(0.5, 2.0, (n, 1)).astype(np.float32)
        return X.astype(dtype), truth, SphericalDPMeans(random_state=0, **options)
