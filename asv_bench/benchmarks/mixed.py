"""MixedDPMeans."""

import numpy as np
import pandas as pd

from smallvar import MixedDPMeans

from .common import Fit, Timed


def table(n, gaps=0.0):
    """Numbers, counts, flags and categories of ten clusters, and the cluster of each row."""
    rng = np.random.default_rng(0)
    truth = rng.integers(10, size=n)
    columns = {}
    for j in range(8):
        columns[f"number{j}"] = rng.uniform(-5.0, 5.0, 10)[truth] + rng.standard_normal(n)
    for j in range(4):
        columns[f"count{j}"] = rng.poisson(rng.uniform(1.0, 30.0, 10)[truth]).astype(float)
        columns[f"flag{j}"] = rng.random(n) < rng.uniform(0.05, 0.95, 10)[truth]
        shares = rng.dirichlet(np.full(6, 0.4), 10).cumsum(axis=1)[truth]
        code = np.minimum((shares < rng.random(n)[:, None]).sum(axis=1), 5)
        columns[f"word{j}"] = pd.Categorical.from_codes(code, list("abcdef"))
    frame = pd.DataFrame(columns)
    for name in frame.columns[:8]:
        frame.loc[rng.random(n) < gaps, name] = np.nan
    return frame, truth


class Tables(Fit):
    """The number of clusters chosen, or given, without gaps and with."""

    param_names = ["n_clusters", "gaps"]
    params = [[None, 10], [0.0, 0.2]]

    def make(self, n_clusters, gaps):
        """Twenty columns of all kinds."""
        return *table(20_000, gaps), MixedDPMeans(n_clusters=n_clusters, random_state=0)


class Large(Timed):
    """A million rows, most of whose time is that of packing, labels and profiles."""

    param_names = ["gaps"]
    params = [[0.0, 0.2]]

    def make(self, gaps):
        """Twenty columns of all kinds."""
        return *table(1_000_000, gaps), MixedDPMeans(random_state=0)
