"""PenalizedCut."""

import numpy as np
from scipy.sparse import coo_array

from smallvar import PenalizedCut

from .common import Timed


def planted(edges, communities=100, degree=20, mixing=0.2):
    """A graph of equal communities, and the community of each node."""
    rng = np.random.default_rng(0)
    n = 2 * edges // degree
    truth = np.arange(n) % communities
    a = rng.integers(n, size=edges)
    inside = rng.random(edges) > mixing
    members = n // communities
    b = np.where(
        inside,
        truth[a] + communities * rng.integers(members, size=edges),
        rng.integers(n, size=edges),
    )
    A = coo_array((np.ones(2 * edges), (np.append(a, b), np.append(b, a))), (n, n)).tocsr()
    return A, truth


def power_law(edges):
    """A graph of nodes whose degrees follow a power law."""
    rng = np.random.default_rng(0)
    n = edges // 4
    cumulative = np.cumsum(np.minimum(rng.pareto(1.2, n) + 1, 5 * np.sqrt(n)))
    a, b = np.searchsorted(cumulative, rng.random((2, edges)) * cumulative[-1])
    return coo_array((np.ones(2 * edges), (np.append(a, b), np.append(b, a))), (n, n)).tocsr()


class Cut(Timed):
    """Time in the number of edges, one start."""

    param_names = ["edges", "graph", "cut"]
    params = [[10_000, 100_000, 1_000_000], ["planted", "power law"], ["normalized", "ratio"]]

    def make(self, edges, graph, cut):
        """The adjacency matrix."""
        A, truth = planted(edges) if graph == "planted" else (power_law(edges), None)
        return A, truth, PenalizedCut(lam=None, cut=cut, n_init=1, random_state=0)


class Communities(Timed):
    """The defaults: a range of resolutions, and starts."""

    param_names = ["nodes", "degree"]
    params = [[3_000, 20_000], [10, 20]]

    def make(self, nodes, degree):
        """A planted partition."""
        A, truth = planted(nodes * degree // 2, 30 if nodes == 3_000 else 100, degree)
        return A, truth, PenalizedCut(random_state=0)
