"""SegmentMeans."""

import numpy as np

from smallvar import SegmentMeans

from .common import Fit


def record(rows, columns, states, stay, noise=1.0):
    """Rows that stay in a state for a while, and the state of each."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(states, columns)) * 6 * max(1.0, states ** (1 / columns) / 2)
    lengths = 2 + rng.poisson(stay, size=rows // max(1, stay) + 1)
    order = rng.integers(states, size=len(lengths))
    truth = np.repeat(order, lengths)[:rows]
    truth = np.append(truth, np.full(rows - len(truth), truth[-1]))
    return centers[truth] + noise * rng.standard_normal((rows, columns)), truth


class Segments(Fit):
    """Time in the rows, and in the length of the stays: pieces are sought among all rows."""

    param_names = ["rows", "columns", "states", "stay"]
    params = [[1_000, 10_000, 100_000], [1, 8], [3, 10], [10, 1_000]]

    def make(self, rows, columns, states, stay):
        """A record and an estimator that chooses everything."""
        X, truth = record(rows, columns, states, stay)
        return X, truth, SegmentMeans()


class Prices(Fit):
    """Time with penalties given, so that moves are tried from several starts."""

    param_names = ["rows", "states"]
    params = [[1_000, 100_000], [3, 10]]

    def make(self, rows, states):
        """A record and an estimator with penalties of the order of the noise's own."""
        X, truth = record(rows, 4, states, 50)
        return X, truth, SegmentMeans(lam=100.0, lam_switch=20.0)


class Unordered(Fit):
    """Time where rows are in no order, so that each is a piece at low prices."""

    param_names = ["rows", "lam"]
    params = [[1_000, 100_000], ["auto", 10_000.0]]

    def make(self, rows, lam):
        """A record and an estimator."""
        X, truth = record(rows, 16, 10, 0)
        rng = np.random.default_rng(1)
        order = rng.permutation(rows)
        return X[order], truth[order], SegmentMeans(lam=lam, max_iter=20)
