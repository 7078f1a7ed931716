"""Costs over the number of clusters or features, and the penalties for which each is best."""

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smallvar._core.validation import check_number

if TYPE_CHECKING:
    from pandas import DataFrame


def envelope(counts, errors, least=0.0):
    """Penalties from low to high for which each number of clusters is best: error + lam K is least.

    ``counts`` ascend, none twice; ``least`` is the smallest penalty there is. Where another number
    is always better, low is not below high.
    """
    K, errors = np.asarray(counts, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    low, high = np.full(len(K), least), np.full(len(K), np.inf)
    for i in range(len(K)):
        if i + 1 < len(K):
            low[i] = max(least, ((errors[i] - errors[i + 1 :]) / (K[i + 1 :] - K[i])).max())
        if i:
            high[i] = ((errors[:i] - errors[i]) / (K[i] - K[:i])).min()
    return low, high


def penalty_within(low, high, alone=1.0):
    """A penalty inside a range: the geometric mean of its ends, if it has both.

    Else half the upper end or twice the lower one; ``alone`` where there is neither.
    """
    if np.isinf(high):
        return float(2.0 * low if low > 0.0 else alone)
    return float((np.sqrt(low) * np.sqrt(high) if low > 0.0 else high / 2.0) or alone)


class Path:
    """Solutions with different numbers K of clusters or features, and the penalties for each.

    What :func:`lambda_path`, :func:`feature_path` and :func:`cut_path` return is one.

    Attributes
    ----------
    counts : ndarray of shape (n_path,), intp
        The numbers K, ascending.
    error : ndarray of shape (n_path,), float64
        What the objective is besides ``lam * K``.
    criterion : ndarray of shape (n_path,), float64
        How good each K is: the lower, the better. Of those that are compared the lowest is chosen.
    lam_low, lam_high : ndarray of shape (n_path,), float64
        Between these penalties ``error + lam * K`` is lowest for this K. Only where ``lam_low <
        lam_high``: for others another K is always better.
    best : int or None
        The number chosen; None if none stands out.
    lam : float
        A penalty for it; NaN if there is none.
    """

    counts: NDArray[np.intp]
    error: NDArray[np.float64]
    criterion: NDArray[np.float64]
    lam_low: NDArray[np.float64]
    lam_high: NDArray[np.float64]
    best: int | None
    lam: float

    # what pictures call them
    count_name: ClassVar[str] = "number of clusters"
    error_name: ClassVar[str] = "SSE, in squared data units"
    columns: ClassVar[tuple[str, ...]] = ("counts", "error", "criterion", "lam_low", "lam_high")

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.columns[0]}={self.counts[0]}..{self.counts[-1]}, "
            f"best={self.best}, lam={self.lam:.6g})"
        )

    def at(self, lam: float) -> int:
        """Return the number K that is best for a penalty.

        Parameters
        ----------
        lam : float
            The penalty, finite.

        Returns
        -------
        k : int
            The one of ``counts`` with the least ``error + lam * k``, at a tie the lowest.
        """
        lam = check_number(lam, "lam")
        if np.isinf(lam):
            raise ValueError(f"lam must be finite, got {lam}")
        return int(self.counts[np.argmin(self.error + lam * self.counts)])

    def to_dict(self) -> dict[str, NDArray[Any]]:
        """Return the columns of the table of the path.

        Returns
        -------
        columns : dict of ndarray
            The number K, its error, criterion and range of penalties, under the names that they
            have as attributes.
        """
        return {name: getattr(self, name) for name in self.columns}

    def to_pandas(self) -> "DataFrame":
        """Return the table of the path; needs pandas.

        Returns
        -------
        table : pandas.DataFrame
            One row for each K, indexed by it.
        """
        import pandas as pd

        return pd.DataFrame(self.to_dict()).set_index(self.columns[0])


class FeaturePath(Path):
    """Errors with different numbers of features, found by :func:`feature_path`.

    Attributes
    ----------
    counts : ndarray of shape (n_path,), intp
        The numbers of features K: 0, 1, 2 and so on. ``n_components`` is another name for it.
    error : ndarray of shape (n_path,), float64
        The squared error, in squared data units.
    criterion : ndarray of shape (n_path,), float64
        The description length, in nats; infinite for more features than may be chosen.
    lam_low, lam_high : ndarray of shape (n_path,), float64
        The penalties between which this K has the lowest objective; NaN for a K that is best for
        none.
    best : int
        The K with the lowest criterion.
    lam : float
        A penalty for it.
    """

    count_name = "number of features"
    error_name = "squared error, in squared data units"
    columns = ("n_components", "error", "criterion", "lam_low", "lam_high")

    def __init__(self, counts, error, lam_low, lam_high, criterion, best, lam):
        self.counts = np.asarray(counts, dtype=np.intp)
        self.error, self.criterion = error, criterion
        self.lam_low, self.lam_high = lam_low, lam_high
        self.best, self.lam = best, lam

    @property
    def n_components(self) -> NDArray[np.intp]:  # numpydoc ignore=RT01
        """The numbers of features, ``counts``."""
        return self.counts


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

    def __init__(self, lams, found, trivial, judge, chosen=None):
        """``found`` are clusterings, ``trivial`` tells of a number of clusters whether it is.

        ``judge`` gives the criterion of labels. ``chosen`` are number and penalty; the ranking is
        by the criterion then.
        """
        lowest: dict[int, Any] = {}
        for one in found:
            k = one.n_clusters
            if k not in lowest or one.cut < lowest[k].cut:
                lowest[k] = one
        kept = [lowest[k] for k in sorted(lowest)]
        self.lams = lams
        self.counts = np.array([one.n_clusters for one in kept], dtype=np.intp)
        self.error = np.array([one.cut for one in kept])
        self.criterion = np.array([judge(one.labels) for one in kept], dtype=np.float64)
        self._labels = {one.n_clusters: one.labels for one in kept}
        low, high = envelope(self.counts, self.error, least=-np.inf)
        if lams is not None:
            low, high = np.maximum(low, lams[0]), np.minimum(high, lams[-1])
        self.lam_low, self.lam_high = low, high
        if chosen is not None:
            self.best, self.lam = chosen
            self.ranking = self.counts[np.argsort(self.criterion, kind="stable")]
            return
        self.best, self.lam = None, np.nan
        shown = np.flatnonzero(
            (low < high) & ~np.array([trivial(k) for k in self.counts], dtype=bool)
        )
        ratio = [low[i] / high[i] if high[i] < 0.0 else np.inf for i in shown]
        self.ranking = self.counts[shown[np.argsort(-np.array(ratio), kind="stable")]]
        if len(shown):
            i = shown[np.argmax(high[shown] - low[shown])]
            self.best, self.lam = int(self.counts[i]), float(low[i] + high[i]) / 2

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
