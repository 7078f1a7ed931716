"""The path of a graph: its clusterings over the penalty, or into every number of clusters."""

import math

import numpy as np
from numpy.typing import NDArray

from smallvar._core.validation import check_number
from smallvar._selection.envelope import Path, envelope


class CutPath(Path):
    """Clusterings of a graph into different numbers of clusters, found by :func:`cut_path`.

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
        The K of all plateaus that are not trivial, the widest in log(-lam) first.
    lams : ndarray of shape (n_lams,), float64, or None
        The penalties that were tried, ascending.
    """

    lams: NDArray[np.float64] | None
    ranking: NDArray[np.intp]

    error_name = "cut"
    columns = ("n_clusters", "cut", "criterion", "lam_low", "lam_high")

    def __init__(self, clusterings, criterion, lam_low, lam_high, best, lam, ranking, lams=None):
        """``clusterings`` are one for each K, ascending; the other arguments are attributes."""
        self.counts = np.array([found.n_clusters for found in clusterings], dtype=np.intp)
        self.error = np.array([found.cut for found in clusterings])
        self.criterion, self.lam_low, self.lam_high = criterion, lam_low, lam_high
        self.best, self.lam, self.ranking, self.lams = best, lam, ranking, lams
        self._labels = {found.n_clusters: found.labels for found in clusterings}

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
    """The clustering of lowest cut for each number of clusters, and what a path says of them.

    ``length`` is the description length of labels of the graph.
    """

    def __init__(self, graph, found, length, lams=None):
        lowest = {}
        for clustering in found:
            k = clustering.n_clusters
            if k not in lowest or clustering.cut < lowest[k].cut:
                lowest[k] = clustering
        self.kept = [lowest[k] for k in sorted(lowest)]
        self.lams = lams
        self.counts = np.array([one.n_clusters for one in self.kept], dtype=np.intp)
        lengths = [length(one.labels) if one.length is None else one.length for one in self.kept]
        self.criterion = np.array(lengths, dtype=np.float64)
        low, high = envelope(self.counts, [one.cut for one in self.kept], least=-np.inf)
        if lams is not None:
            low, high = np.maximum(low, lams[0]), np.minimum(high, lams[-1])
        self.low, self.high = low, high
        # trivial: a cluster for each node, or no more than one for each connected part
        useful = (low < high) & (self.counts > graph.parts[0]) & (self.counts < len(graph))
        self.plateaus = np.flatnonzero(useful)

    def _path(self, best, lam, ranking):
        return CutPath(
            self.kept, self.criterion, self.low, self.high, best, lam, ranking, self.lams
        )

    def chosen(self, best, lam):
        """The path with this choice, ranked by the criterion."""
        return self._path(best, lam, self.counts[np.argsort(self.criterion, kind="stable")])

    def widest(self, *, log):
        """The path whose choice is the middle of the widest plateau, of lam or of log(-lam)."""
        low, high, shown = self.low, self.high, self.plateaus
        ratio = [low[i] / high[i] if high[i] < 0.0 else np.inf for i in shown]
        ranked = shown[np.argsort(-np.array(ratio), kind="stable")]
        ranking = self.counts[ranked]
        if not len(shown):
            return self._path(None, np.nan, ranking)
        if log:
            i = ranked[0]
            lam = -math.sqrt(low[i] * high[i])
        else:
            i = shown[np.argmax(high[shown] - low[shown])]
            lam = float(low[i] + high[i]) / 2
        return self._path(int(self.counts[i]), lam, ranking)
