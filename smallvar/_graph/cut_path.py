"""The cut path: clusterings of a graph for a range of penalties, one for each number of clusters.

``CutPath`` is the public result. ``Clusterings`` keeps the best of many clusterings, and chooses
the number of clusters by a criterion or by the widest plateau.
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

    def __init__(self, clusterings, criterion, lam_low, lam_high, best, lam, ranking, lams=None):
        """``clusterings`` are one for each K, ascending; the other arguments are attributes."""
        self.counts = np.array([clustering.n_clusters for clustering in clusterings], dtype=np.intp)
        self.error = np.array([clustering.cut for clustering in clusterings])
        self.criterion, self.lam_low, self.lam_high = criterion, lam_low, lam_high
        self.best, self.lam, self.ranking, self.lams = best, lam, ranking, lams
        self._labels = {clustering.n_clusters: clustering.labels for clustering in clusterings}

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


class Clusterings:
    """The clustering of lowest cut for each number of clusters, from any number of clusterings.

    ``length(labels)`` is the description length of labels of the graph; ``lams`` are the penalties
    that were tried, None if the range is not bounded. ``low`` and ``high`` bound the penalties for
    which each is the best; ``plateaus`` are the indices of those that are best for some penalty and
    not trivial.
    """

    def __init__(self, graph, clusterings, length, lams=None):
        lowest = {}
        for c in clusterings:
            k = c.n_clusters
            if k not in lowest or c.cut < lowest[k].cut:
                lowest[k] = c
        self.kept = [lowest[k] for k in sorted(lowest)]
        self.lams = lams
        self.counts = np.array([c.n_clusters for c in self.kept], dtype=np.intp)
        lengths = [length(c.labels) if c.length is None else c.length for c in self.kept]
        self.criterion = np.array(lengths, dtype=np.float64)
        low, high = envelope(self.counts, [c.cut for c in self.kept], least=-np.inf)
        if lams is not None:
            low, high = np.maximum(low, lams[0]), np.minimum(high, lams[-1])
        self.low, self.high = low, high
        # trivial: a cluster for each node, or no more than one for each connected component
        useful = (low < high) & (self.counts > graph.components[0]) & (self.counts < len(graph))
        self.plateaus = np.flatnonzero(useful)

    def _path(self, best, lam, ranking):
        return CutPath(
            self.kept, self.criterion, self.low, self.high, best, lam, ranking, self.lams
        )

    def chosen(self, best, lam):
        """CutPath with a given choice of K and lam; the others are ranked by the criterion."""
        return self._path(best, lam, best_first(self.counts, self.criterion, best))

    def widest(self, *, log):
        """CutPath with the middle of the widest plateau, by lam or (``log``) by log(-lam)."""
        low, high, plateaus = self.low, self.high, self.plateaus
        ratio = [low[i] / high[i] if high[i] < 0.0 else np.inf for i in plateaus]
        ranked = plateaus[np.argsort(-np.array(ratio), kind="stable")]
        ranking = self.counts[ranked]
        if not len(plateaus):
            return self._path(None, np.nan, ranking)
        if log:
            i = ranked[0]
            lam = -math.sqrt(low[i] * high[i])
        else:
            i = plateaus[np.argmax(high[plateaus] - low[plateaus])]
            lam = float(low[i] + high[i]) / 2
        return self._path(int(self.counts[i]), lam, ranking)
