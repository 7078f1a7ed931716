"""Costs over the number of clusters or features, and the penalties for which each is best."""

from inspect import get_annotations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smallvar._core.validation import check_number

if TYPE_CHECKING:
    from pandas import DataFrame

COUNTS_AT_ONCE = 256  # numbers of clusters that are compared with all others at a time


def envelope(counts, errors, least=0.0):
    """Penalties from low to high for which each number of clusters is best: error + lam K is least.

    ``counts`` ascend, none twice; ``least`` is the smallest penalty there is. Where another number
    is always better, low is not below high.
    """
    K, errors = np.asarray(counts, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    low, high = np.full(len(K), least), np.full(len(K), np.inf)
    # each number is compared with all others: a block at a time, as that makes a square matrix
    for start in range(0, len(K), COUNTS_AT_ONCE):
        rows = slice(start, start + COUNTS_AT_ONCE)
        gap = K - K[rows, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            saved = (errors[rows, None] - errors) / gap  # by each cluster more, or lost by one less
        # more clusters bound the penalty from below, fewer from above
        low[rows] = np.where(gap > 0.0, saved, least).max(axis=1, initial=least)
        high[rows] = np.where(gap < 0.0, saved, np.inf).min(axis=1, initial=np.inf)
    return low, high


def best_first(counts, criterion, best):
    """The numbers of clusters: the best one, and then those of the lowest criterion first."""
    order = counts[np.argsort(criterion, kind="stable")]
    return np.concatenate(([best], order[order != best]))


def penalty_within(low, high, alone=1.0):
    """A penalty inside a range: the geometric mean of its ends, if it has both.

    Else half the upper end or twice the lower one; ``alone`` where there is neither.
    """
    if np.isinf(high):
        return float(2.0 * low if low > 0.0 else alone)
    return float((np.sqrt(low) * np.sqrt(high) if low > 0.0 else high / 2.0) or alone)


def as_seen_by_users(path):
    """The path without what its search needs: of the class that its own class extends."""
    kind = type(path).__base__
    names = set().union(*(get_annotations(each) for each in kind.__mro__))
    seen = object.__new__(kind)  # no __init__: all that users see has been computed
    vars(seen).update({n: v for n, v in vars(path).items() if n.startswith("_") or n in names})
    return seen


def penalty_of(i, ends, errors):
    """A penalty for which number i is best, from the ends of all ranges and the errors."""
    low, high = (end[i] for end in ends)
    most = high if high > 0.0 else np.inf  # fewer clusters have no larger error
    return penalty_within(low, most, 2.0 * errors[0] or 1.0)


class Path:
    """Solutions with different numbers K of clusters or features, and the penalties for each.

    What :func:`cluster_path`, :func:`feature_path` and :func:`cut_path` return is one.

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
    count_name, error_name : str
        What pictures call K and the error.
    """

    counts: NDArray[np.intp]
    error: NDArray[np.float64]
    criterion: NDArray[np.float64]
    lam_low: NDArray[np.float64]
    lam_high: NDArray[np.float64]
    best: int | None
    lam: float

    count_name: ClassVar[str] = "number of clusters"
    error_name: ClassVar[str] = "SSE, in squared data units"
    _columns: ClassVar[tuple[str, ...]] = ("counts", "error", "criterion", "lam_low", "lam_high")

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self._columns[0]}={self.counts[0]}..{self.counts[-1]}, "
            f"best={self.best}, lam={self.lam:.6g})"
        )

    def _in_unit(self, unit):
        """The path with errors and penalties multiplied by the unit of the weights."""
        for name in ("error", "lam_low", "lam_high", "lam"):
            setattr(self, name, getattr(self, name) * unit)
        return self

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
        return {name: getattr(self, name) for name in self._columns}

    def to_pandas(self) -> "DataFrame":
        """Return the table of the path; needs pandas.

        Returns
        -------
        table : pandas.DataFrame
            One row for each K, indexed by it.
        """
        import pandas as pd

        return pd.DataFrame(self.to_dict()).set_index(self._columns[0])
