"""The boundaries between clusters of any program: ``boundary_evidence``, and its table."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smallvar._core.config import resolve_threads
from smallvar._core.row_names import names_of_rows
from smallvar._core.validation import Data, check_data, check_weights
from smallvar._selection.boundaries import find_boundaries
from smallvar._selection.touching import LEAST_EVIDENCE

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_PRINTED = 40  # boundaries


@dataclass(frozen=True, eq=False, repr=False)
class BoundaryTable:
    """The boundaries between clusters that touch, and what the rows say of each.

    :func:`.boundary_evidence` returns one. ``len`` is the number of boundaries, and ``print`` shows
    a table of them.

    Attributes
    ----------
    clusters : ndarray of shape (n_boundaries, 2)
        Labels of the two clusters of each boundary, in ascending order.
    n_rows : ndarray of shape (n_boundaries,)
        Rows of both clusters; with sample weights, their weight.
    merge_cost : ndarray of shape (n_boundaries,), float64
        By how much the sum of squared distances from the centers grows if the two clusters become
        one, n_a n_b / (n_a + n_b) ||mu_a - mu_b||^2, in squared units of the data times weight. At
        a penalty ``lam`` above it, one cluster has the lower objective of DP-means.
    evidence : ndarray of shape (n_boundaries,), float64
        Logarithm of how much likelier two bells are than one body, in nats: positive where there is
        a gap. NaN where nothing can be said: along the line from one cluster to the other, rows
        have fewer than seven different places.
    valley : ndarray of shape (n_boundaries,), float64
        Depth of the valley between the two bells that fit best: 0 where there is none, 1 where no
        rows are between. NaN where nothing can be said.
    verdict : ndarray of shape (n_boundaries,), str
        "gap" for evidence of 3 nats or more, "none" for 0 or less, and "unclear" for what is
        between, and where nothing can be said.
    labels : ndarray of shape (n_clusters,)
        Labels of all clusters, in ascending order.
    edges : ndarray of shape (n_boundaries, 33), float64
        Edges of 32 bins along the line between the two clusters; the mean of the first one is at
        -1/2, that of the second one at 1/2. NaN where nothing can be said, here and below.
    counts : ndarray of shape (n_boundaries, 32), float64
        Rows in these bins, the first and last one with all beyond.
    bells, body : ndarray of shape (n_boundaries, 32), float64
        Rows that the two densities expect there: two normal ones, and a single body.
    """

    clusters: NDArray[Any]
    n_rows: NDArray[Any]
    merge_cost: NDArray[np.float64]
    evidence: NDArray[np.float64]
    valley: NDArray[np.float64]
    verdict: NDArray[np.str_]
    labels: NDArray[Any]
    edges: NDArray[np.float64]
    counts: NDArray[np.float64]
    bells: NDArray[np.float64]
    body: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.evidence)

    def __repr__(self) -> str:
        n, k = len(self), len(self.labels)
        first = f"{n} boundar{'y' if n == 1 else 'ies'} of {k} cluster{'' if k == 1 else 's'}"
        if not n:
            return first
        lines = [("clusters", "rows", "merge cost", "evidence", "valley", "verdict")]
        for i in range(min(n, MOST_PRINTED)):
            numbers = (
                f"{self.n_rows[i]:,.0f}",
                _in_four_digits(self.merge_cost[i]),
                f"{round(self.evidence[i], 1) + 0.0:,.1f}",
                f"{self.valley[i]:.2f}",
            )
            lines.append((" | ".join(map(str, self.clusters[i])), *numbers, str(self.verdict[i])))
        # the verdict, the last column, stands left and needs no width
        first_width, *widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
        text = [
            "  ".join([pair.ljust(first_width), *map(str.rjust, numbers, widths), verdict])
            for pair, *numbers, verdict in lines
        ]
        rest = [f"... {n - MOST_PRINTED} more"] if n > MOST_PRINTED else []
        return "\n".join([first, *text, *rest])

    def to_frame(self) -> "DataFrame":
        """Return the table as a data frame of pandas.

        Returns
        -------
        frame : pandas.DataFrame
            With columns "first", "second" (the clusters), "n_rows", "merge_cost", "evidence",
            "valley" and "verdict".
        """
        import pandas

        fields = {"first": self.clusters[:, 0], "second": self.clusters[:, 1]}
        for name in ("n_rows", "merge_cost", "evidence", "valley", "verdict"):
            fields[name] = getattr(self, name)
        return pandas.DataFrame(fields)

    def index_of(self, first: Any, second: Any) -> int:
        """Return the number of the boundary between two clusters.

        Parameters
        ----------
        first, second : int or str
            Labels of the clusters, in any order.

        Returns
        -------
        i : int
            Their place in the table. A ValueError says so if they do not touch.
        """
        for label in (first, second):
            if not np.any(self.labels == label):
                raise ValueError(f"{label!r} is none of the {len(self.labels)} clusters")
        a, b = self.clusters.T
        found = np.flatnonzero(((a == first) & (b == second)) | ((a == second) & (b == first)))
        if not len(found):
            raise ValueError(f"clusters {first!r} and {second!r} do not touch")
        return int(found[0])


def _in_four_digits(cost):
    """A number with four digits or, from a thousand to a billion, as a whole number."""
    return f"{cost:,.0f}" if 1e3 <= cost < 1e9 else f"{cost:.4g}"


def boundary_evidence(
    X: Data,
    labels: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    n_threads: int | None = None,
) -> BoundaryTable:
    """Whether the boundaries between clusters are gaps, or cut one group of rows in two.

    The labels may be of any program. Seen along the line from one cluster to the other, the rows of
    both look like two bells with a valley between, or like one body. Two densities are fitted to
    them, one for each, and compared by their log-likelihoods:

        evidence = log-likelihood(two bells) - log-likelihood(one body)

    It is in *nats*, the unit of natural logarithms: evidence T says that the rows are exp(T) times
    likelier with two bells. At 3 nats, these are odds of 20 to 1, and the boundary is called a gap.
    At 0 or less the rows look like one body. If the best two bells have no valley between them, the
    evidence is at most 0.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        The rows, as they were clustered: if columns were scaled, with the same scales.
    labels : array-like of shape (n_samples,)
        The cluster of each row: numbers or strings. Rows with negative numbers, the noise of many
        programs, are left out.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights >= 0 of the rows, not all zero; None means 1 each. Weight 2 is the same as two equal
        rows.
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.

    Returns
    -------
    table : BoundaryTable
        A line for each two clusters that touch: for at least two rows, one cluster is their own and
        the mean of the other one is the nearest of all others. Pairs are in ascending order, and
        there are none with fewer than two clusters. ``table.to_frame()`` is a data frame.

    Raises
    ------
    ValueError, TypeError
        If ``X`` is not a finite, numeric, two-dimensional array, ``labels`` are not one for each
        row, or some are missing.

    See Also
    --------
    DPMeans : Finds the number of clusters, partly by this evidence.

    Notes
    -----
    What it cannot see:

    - a gap that is narrow beside the clusters, and one within a cluster;
    - that rows are missing: where rows between clusters are labeled noise, a gap is left;
    - groups that touch, and differ in density only: a dense group in a thin one;
    - anything sure of few rows: below some fifty rows a boundary is seldom clear;
    - bent clusters. Rows are seen along one straight line, where a gap that is bent is blurred. Cut
      such clusters into more pieces, and look at the boundaries of these.

    The line is that of Fisher's discriminant, w = (S / n + r I)^-1 (m_b - m_a), with the scatter
    matrix S of the rows about the means of their clusters and a small ridge r; rows are placed on
    it by moments without themselves. Only rows that face each other count: those that, moved along
    m_b - m_a to the plane between the two means, are nearer to no third one. All rows of both fill
    a part of space with a waist between them, where one normal cloud cut into eight by k-means
    seems to have gaps. The likelihoods are those of the counts in 32 equal bins
    between the 1% and 99% quantiles. The bells are two normal densities. The body is two uniform
    pieces that touch, blurred by a normal density. Each has five parameters.

    Examples
    --------
    k-means with six clusters cuts two half moons. Five of the boundaries are between the moons, the
    other four cut one of them:

    >>> from sklearn.cluster import DBSCAN, KMeans
    >>> from sklearn.datasets import make_blobs, make_moons
    >>> from smallvar import boundary_evidence
    >>> X, _ = make_moons(2000, noise=0.1, random_state=0)
    >>> labels = KMeans(6, n_init=5, random_state=0).fit_predict(X)
    >>> boundary_evidence(X, labels)
    9 boundaries of 6 clusters
    clusters  rows  merge cost  evidence  valley  verdict
    0 | 2      669       163.6      25.4    0.89  gap
    0 | 3      660       136.5     -10.3    0.43  none
    0 | 4      677       148.8     -10.2    0.42  none
    1 | 4      653       232.2     128.5    1.00  gap
    1 | 5      698       150.9     -10.2    0.33  none
    2 | 3      625       203.3     129.3    1.00  gap
    2 | 4      642         110     156.6    1.00  gap
    2 | 5      687       145.8     -10.5    0.34  none
    4 | 5      695       177.9      32.3    0.90  gap

    Here DBSCAN labels 56 rows -1, which are left out:

    >>> X, _ = make_blobs(900, centers=3, random_state=1)
    >>> labels = DBSCAN(eps=0.6, min_samples=10).fit_predict(X)
    >>> boundary_evidence(X, labels)
    2 boundaries of 3 clusters
    clusters  rows  merge cost  evidence  valley  verdict
    0 | 1      566      20,324     232.5    1.00  gap
    0 | 2      564       3,723      78.0    0.94  gap
    """
    X = check_data(X, sparse=True)
    values = names_of_rows(labels, "labels", X.shape[0])
    weight = check_weights(sample_weight, X.shape[0])
    names, number = np.unique(values, return_inverse=True)
    # negative numbers, the first ones, are noise; names have no sign
    noise = np.count_nonzero(names < 0) if names.dtype.kind in "if" else 0
    names, number = names[noise:], number.reshape(-1) - noise
    found = find_boundaries(X, weight, number, len(names), resolve_threads(n_threads))
    return table_of(found, names, weight is not None)


def table_of(found, names, weighted):
    """The BoundaryTable of Boundaries between clusters of these names."""
    order = np.lexsort(found.pairs.T[::-1])  # by the first cluster of a pair, then by the second
    known = found.known[order]
    evidence, valley = (np.where(known, a[order], np.nan) for a in (found.evidence, found.valley))
    sides = [evidence >= LEAST_EVIDENCE, evidence <= 0.0]
    n_rows = found.weight[order]
    return BoundaryTable(
        clusters=names[found.pairs[order]],
        n_rows=n_rows if weighted else n_rows.astype(np.intp),
        evidence=evidence,
        valley=valley,
        verdict=np.select(sides, ["gap", "none"], "unclear"),
        labels=names,
        **{
            name: getattr(found, name)[order]
            for name in ("merge_cost", "edges", "counts", "bells", "body")
        },
    )
