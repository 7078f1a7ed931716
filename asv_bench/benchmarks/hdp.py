"""HDPMeans."""

import numpy as np

from smallvar import HDPMeans

from .common import Fit


def shared(sets, rows, clusters=30, own=5):
    """Data sets of some of the clusters each, and the number of the cluster each row is from."""
    rng = np.random.default_rng(0)
    centers = rng.random((clusters, 2)) * 10
    pick = rng.random((sets, clusters)).argsort(axis=1)[:, :own]
    group = np.repeat(np.arange(sets), rows)
    truth = pick[group, rng.integers(own, size=len(group))]
    return centers[truth] + 0.2 * rng.standard_normal((len(group), 2)), group, truth


class Bound:
    """An estimator whose fit knows the groups."""

    def __init__(self, model, group):
        self.model, self.group = model, group

    def fit(self, X):
        """Fit and return the model."""
        return self.model.fit(X, groups=self.group)


class HDP(Fit):
    """Time in the number of data sets and in their size."""

    param_names = ["sets", "rows"]
    params = [[10, 100, 1_000], [100, 1_000]]

    def make(self, sets, rows):
        """Bind the groups, so that fit takes the data alone."""
        X, group, truth = shared(sets, rows)
        model = HDPMeans(lam_local=10.0, lam_global=500.0)
        return X, truth, Bound(model, group)
