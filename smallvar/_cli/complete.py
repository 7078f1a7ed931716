"""The rows without gaps, of a table of numbers that has a few: do they lead to the same number?"""

import warnings
from typing import NamedTuple

import numpy as np

from smallvar._cli.progress import ProgressLine
from smallvar._cli.words import counted
from smallvar._selection.confidence import CLEAR_CONFIDENCE
from smallvar._selection.scale import wide_of_many

FEW_GAPS = 0.1  # share of the rows that may have gaps: the others stand for all of them


class Complete(NamedTuple):
    """What the rows without gaps lead to: their clusters, and the options that ask for them."""

    options: str
    n_gaps: int  # rows that have gaps
    share: float  # of all rows
    k: int
    confidence: float

    def in_words(self):
        """Text of a next step."""
        rows = counted(self.n_gaps, "row")
        return (
            f"{self.options}: without the {rows} ({self.share:.1%}) with gaps there "
            f"{'is' if self.k == 1 else 'are'} {counted(self.k, 'cluster')} (confidence "
            f"{self.confidence:.2f})"
        )

    def doubt(self, k):
        """The answer, in place of one that calls k clusters clear."""
        return (
            f"{counted(k, 'cluster')}, but this number is not clear: without the rows that have "
            f"gaps there {'is' if self.k == 1 else 'are'} {self.k}."
        )


def without_gaps(args, table, model):
    """The Complete rows of a table of numbers with few gaps, if they have another number; or None.

    With gaps the columns are taken as independent, and a few of them may change the number.
    """
    from sklearn.preprocessing import StandardScaler

    from smallvar import DPMeans

    try:
        names = [name for name in table.titles if name not in model.left_out_]
        X = np.column_stack([np.asarray(table.X[name], dtype=np.float64) for name in names])
    except (TypeError, ValueError):
        return None  # words
    complete = ~np.isnan(X).any(axis=1)
    n_gaps = len(X) - int(complete.sum())
    if args.kinds is not None or not 0 < n_gaps <= FEW_GAPS * len(X):
        return None
    X, options = X[complete], "--drop-missing"
    if len(wide_of_many(X).columns):
        X, options = StandardScaler().fit_transform(X), f"{options} --scale"
    with warnings.catch_warnings(), ProgressLine("trying --drop-missing"):
        warnings.simplefilter("ignore")
        other = DPMeans(random_state=args.seed or 0, max_clusters=args.max_clusters)
        try:
            other.fit(X)
        except (ValueError, MemoryError):  # as for numbers whose squares leave float64
            return None
    if other.n_clusters_ == model.n_clusters_ or other.path_.confidence < CLEAR_CONFIDENCE:
        return None
    return Complete(
        options, n_gaps, n_gaps / len(complete), other.n_clusters_, other.path_.confidence
    )
