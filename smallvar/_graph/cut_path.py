"""The cut path: clusterings of a graph for a range of penalties, one for each number of clusters.

``CutPath`` is the public result, whose number of clusters ``choose`` is given, and
``choose_widest`` finds.
"""

import math

import numpy as np
from numpy.typing import NDArray

from smallvar._core.validation import check_number
from smallvar._selection.envelope import Path, best_first, envelope


class CutPath(Path):  # numpydoc ignore=PR01
    """Clusterings of a graph into different numbers of clusters, found by :func:`.cut_path`.

    Attributes
    ----------
    counts : ndarray of shape (n_path,), intp
        The numbers of clusters K that were found, ascending. ``n_clusters`` is another name for it.
    error : ndarray of shape (n_path,), float64
        The lowest cut found for each. ``cut`` is another name for it.
    criterion : ndarray of shape (n_path,), float64
        The description length of the links, in nats.
    lam_low, lam_high : ndarray of shape (n_path,), float64
        Between these penalties ``cut + lam * K`` is lowest for this K, within the range of
        ``lams``. Only where ``lam_low < lam_high``: for others another K is always better.
    best : int or None
        The K of the widest plateau that is not trivial: not a cluster for each node, nor for each
        connected part. None if there is none.
    lam : float
        The middle of that plateau; NaN if there is none.
    ranking : ndarray of intp
        The K of all plateaus that are not trivial, the widest in log(-lam) first; for
        ``PenalizedCut(lam="auto")`` all K, the shortest description length first, but for merged
        clusters of neighbors, which come before them.
    lams : ndarray of shape (n_lams,), float64, or None
        The penalties that were tried, ascending.
    """

    lams: NDArray[np.float64] | None
    ranking: NDArray[np.intp]

    error_name = "cut"
    _columns = ("n_clusters", "cut", "criterion", "lam_low", "lam_high")

    def __init__(self, clusterings, length, lams=None):
        """``clusterings`` are any number; the one of lowest cut is kept for each K.

        ``length(labels)`` is the description length of labels, ``lams`` are the penalties that were
        tried, None if their range is not bounded.
        """
        lowest = {}
        for clustering in clusterings:
            before = lowest.setdefault(clustering.k, clustering)
            if clustering.cut < before.cut:
                lowest[clustering.k] = clustering
        kept = [lowest[k] for k in sorted(lowest)]
        lengths = [length(c.labels) if c.length is None else c.length for c in kept]
        self.counts = np.array([c.k for c in kept], dtype=np.intp)
        self.error, self.criterion = np.array([c.cut for c in kept]), np.array(lengths, dtype=float)
        low, high = envelope(self.counts, self.error, least=-np.inf)
        if lams is not None:
            low, high = np.maximum(low, lams[0]), np.minimum(high, lams[-1])
        self.lam_low, self.lam_high, self.lams = low, high, lams
        self._labels = {c.k: c.labels for c in kept}

    @property
    def n_clusters(self) -> NDArray[np.intp]:  # numpydoc ignore=RT01
        """The numbers of clusters, ``counts``."""
        return self.counts

    @property
    def cut(self) -> NDArray[np.float64]:  # numpydoc ignore=RT01
        """The cut for each number of clusters, ``error``."""
        return self.error

    def labels(self, k: int | np.integer | None = None) -> NDArray[np.int32]:
        """Return the clustering into ``k`` clusters.

        Parameters
        ----------
        k : int, default=None
            One of ``counts``; None means ``best``.

        Returns
        -------
        labels : ndarray of shape (n_nodes,), int32
            Cluster of each node.
        """
        if k is None:
            if self.best is None:
                raise ValueError("k must be given: no number of clusters stands out")
            k = self.best
        check_number(k, "k", low=1, integer=True)
        if k not in self._labels:
            raise ValueError(f"k must be one of {self.counts.tolist()}, got k={k}")
        return self._labels[k].copy()


def choose(path, best, lam):
    """The CutPath with this choice of K and a penalty for it, its K ranked by the criterion."""
    path.best, path.lam = best, lam
    path.ranking = best_first(path.counts, path.criterion, best)
    return path


def choose_widest(path, graph, *, log):
    """The CutPath with the middle of its widest plateau, by lam or (``log``) by log(-lam).

    Trivial clusterings are no plateau: a cluster for each node, or no more than one for each
    connected component.
    """
    low, high = path.lam_low, path.lam_high
    useful = (path.counts > graph.components[0]) & (path.counts < len(graph))
    plateaus = np.flatnonzero((low < high) & useful)
    ratio = [low[i] / high[i] if high[i] < 0.0 else np.inf for i in plateaus]
    ranked = plateaus[np.argsort(-np.array(ratio), kind="stable")]
    path.best, path.lam, path.ranking = None, np.nan, path.counts[ranked]
    if len(plateaus):
        i = ranked[0] if log else plateaus[np.argmax(high[plateaus] - low[plateaus])]
        path.best = int(path.counts[i])
        path.lam = -math.sqrt(low[i] * high[i]) if log else float(low[i] + high[i]) / 2
    return path
