"""Clusters of any shape on dask collections: pieces of a sample, boundaries of all rows.

Boundaries need three passes over the partitions: how many rows each piece has and their means;
scatter matrices and contacts; and counts of rows in the cells of lines between pieces. All of these
add up over partitions.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

import smallvar
from smallvar._core.estimator import keywords_only, learned_attributes, with_learned
from smallvar._core.frame import nearest
from smallvar._core.validation import check_option
from smallvar._selection.boundaries import (
    MOST_MOMENTS,
    ClusterMeans,
    ClusterRows,
    by_cells,
    compared,
    count_contacts,
    count_on_lines,
    pairs_that_touch,
    scatter_matrices,
)
from smallvar._selection.boundary_table import table_of
from smallvar._selection.cluster_path import ClusterPath
from smallvar._sweeps.projections import add_rows
from smallvar.dask._collection import CollectionParts, checked_block
from smallvar.dask._estimators import CHOICE_ROWS, sample_rows
from smallvar.dask._executor import current_client, open_executor, threads_here
from smallvar.dask._lazy import LazyLabels, concatenate_delayed, delayed_on_parts, lazy_result
from smallvar.dask._sweep import gather_facts


@dataclass
class NearestPieces:
    """What tells the piece of a row: centers in the metric of the path, and the model of noise.

    ``shared`` are the columns in which all centers are equal: they are 0 in the rows in which
    boundaries are looked for, times ``scale``.
    """

    path: ClusterPath
    centers: NDArray[np.float64]
    noise: Any
    scale: float = 1.0

    @property
    def shared(self):
        """The columns in which all centers are equal."""
        return self.path.noise_columns

    def rows(self, X):
        """Checked rows in the metric of the path, and the piece of each, -1 for noise."""
        n_threads = threads_here()
        rows = X if self.path.metric is None else self.path.measured(X)
        labels = nearest(rows, None, self.centers, n_threads).labels
        if self.noise is not None:
            labels[self.noise.predict(X) < 0] = -1
        if len(self.shared):
            rows = rows.copy()
            rows[:, self.shared] = 0.0
        return rows, labels

    @property
    def origins(self):
        """The centers, as the rows are."""
        centers = self.centers.copy()
        centers[:, self.shared] = 0.0
        return centers


def part_rows(block, pieces, means):
    """Rows of a partition by piece, less the means of the pieces in all partitions."""
    X, labels = pieces.rows(block.X)
    return ClusterRows(X, block.weight, labels, len(means.sizes), threads_here(), of=means)


# ---- on the workers ------------------------------------------------------------------------------


def sum_pieces(parts, pieces, each):
    """Weight of each piece, and sums of its rows less its center."""
    origins = pieces.origins
    sizes, sums = np.zeros(len(origins)), np.zeros(origins.shape)
    for _, block in parts:
        rows, labels = pieces.rows(block.X)
        weight, labels, kept = block.weight, labels.astype(np.intp), labels >= 0
        sizes += np.bincount(
            labels[kept], None if weight is None else weight[kept], minlength=len(sizes)
        )
        add_rows(rows, weight, labels, pieces.scale, origins, sums)
    return sizes, sums


def sum_scatter(parts, shared, each):
    """Scatter matrices of the pieces, and the contacts between them."""
    scatters = contacts = 0.0
    for _, block in parts:
        rows = part_rows(block, *shared)
        scatters, contacts = scatters + scatter_matrices(rows), contacts + count_contacts(rows)
    return scatters, contacts


def sum_cells(parts, shared, each):
    """The weight of rows in the cells of each pair; ``shared`` has all pairs, and those wanted."""
    pieces, means, touching, lines = shared
    counts = 0.0
    for _, block in parts:
        rows = part_rows(block, pieces, means)
        rows.pairs = touching
        counts = counts + count_on_lines(rows, *lines)
    return (counts,)


def added(several):
    """The sums of tuples of arrays."""
    return tuple(sum(arrays) for arrays in zip(*several, strict=True))


def pieces_on_part(model, n_features, pieces, X):
    """The piece of each row of a partition, which may have no rows."""
    X = checked_block(model, n_features, X, None).X
    return pieces.rows(X)[1] if X.shape[0] else np.empty(0, dtype=np.int32)


# ---- on the driver -------------------------------------------------------------------------------


def facts_and_sizes(executor):
    """The facts of all partitions, and their sizes."""
    facts = gather_facts(executor)
    return facts, facts.all_sizes


def boundaries_of_parts(executor, pieces):
    """The Boundaries of pieces by all rows; None where scatter matrices would be too large."""
    k, d = pieces.centers.shape
    if k * d * d > MOST_MOMENTS:
        return None
    sizes, sums = executor.call(sum_pieces, pieces, fold=added)[0]
    of_all = ClusterMeans.of_sums(sizes, sums, pieces.origins, pieces.scale)
    scatters, contacts = executor.call(sum_scatter, (pieces, of_all), fold=added)[0]
    pairs = pairs_that_touch(contacts)[0]

    def count(*lines):
        return executor.call(sum_cells, (pieces, of_all, pairs, lines), fold=added)[0][0]

    found = by_cells(of_all, scatters, pairs, np.arange(len(pairs)), count)
    return compared(pairs, of_all, found)


class ShapeMeans(LazyLabels, smallvar.ShapeMeans):
    """Clusters of any shape on dask collections, each a union of compact pieces without a gap.

    Maximizes, over partitions of the rows of a sample into clusters, the support by the boundaries
    between pieces, as :class:`smallvar.ShapeMeans` does. The sample are 200,000 rows, or all if
    there are no more: pieces and clusters are those of one machine for these rows. Each row then
    belongs to the cluster of its nearest piece, and the evidence of the boundaries is that of all
    rows.

    Runs on the dask client of the process, or on threads of this process where there is none.

    Parameters
    ----------
    n_clusters : int, "auto" or None, default=None
        The exact number of clusters. None or "auto": the data choose.
    noise : bool, default=False
        Whether rows far from all clusters, or in the sparse clutter between them, are noise (label
        -1), as :class:`smallvar.RobustDPMeans` finds it in the sample.
    random_state : int, RandomState instance or None, default=None
        Generator of the sample, and of the first clusters of merge paths.
    persist : bool or "auto", default="auto"
        Whether the workers hold the data in memory during the fit. "auto": if it takes no more than
        half of their memory. Otherwise the data are read for the sample and three times for the
        boundaries, with the same result.
    verbose : int, default=0
        Print a line for each step of the merge paths.

    Attributes
    ----------
    labels_ : dask Array of shape (n_samples,), int32
        Cluster of each row, -1 for noise. Lazy: computed from the data when used.
    n_clusters_ : int
        Number of clusters, noise not counted.
    confidence_ : float
        How likely the number of clusters is right, from 0 to 1, as on one machine.
    pieces_ : dask Array of shape (n_samples,), int32
        Piece of each row, -1 for noise. Lazy.
    piece_centers_ : ndarray of shape (n_pieces, n_features), float64
        Centers of the pieces: means of rows of the sample.
    piece_clusters_ : ndarray of shape (n_pieces,), int32
        Cluster of each piece.
    boundaries_ : BoundaryTable
        The boundaries between pieces that touch, of all rows. (Of the sample where scatter matrices
        of all pieces would have more than 4 million numbers.)
    merge_evidence_ : ndarray of shape (n_pieces - 1,), float64
        Evidence between the two clusters that merge, in the sample, as on one machine.
    path_ : ClusterPath
        The merge path of the sample.
    metric_ : ndarray of shape (n_features, n_directions) or None
        Matrix by which rows are multiplied before distances from pieces are measured; None:
        distances are those of the data.
    n_iter_ : int
        Sweeps to the compact clusters of the sample.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns of a DataFrame, if all are strings.

    Raises
    ------
    ValueError, TypeError, RuntimeError
        As from :class:`smallvar.dask.DPMeans`. The estimator is then as it was before.

    See Also
    --------
    smallvar.ShapeMeans : The estimator for one machine.

    References
    ----------
    As for :class:`smallvar.ShapeMeans`.

    Examples
    --------
    >>> import dask.array as da
    >>> from sklearn.datasets import make_moons
    >>> from smallvar.dask import ShapeMeans
    >>> X, _ = make_moons(2000, noise=0.08, random_state=0)
    >>> model = ShapeMeans(random_state=0).fit(da.from_array(X, chunks=(700, 2)))
    >>> model.n_clusters_
    2
    >>> model.predict([[0.0, 1.0], [1.0, -0.5]]).tolist()
    [1, 0]
    """

    _local = smallvar.ShapeMeans
    _lazy = ("labels_", "pieces_")
    labels_: Any
    pieces_: Any
    n_threads: int | None = None

    @keywords_only
    def __init__(
        self,
        *,
        n_clusters: int | Literal["auto"] | None = None,
        noise: bool = False,
        random_state: int | np.random.RandomState | None = None,
        persist: bool | Literal["auto"] = "auto",
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.noise = noise
        self.random_state = random_state
        self.persist = persist
        self.verbose = verbose

    def _check_parameters(self):
        super()._check_parameters()
        if not isinstance(self.persist, bool):
            check_option(self.persist, "persist", ("auto",))

    def fit(self, X: Any, y: object = None, sample_weight: Any = None) -> Self:
        """Cluster the data.

        Parameters
        ----------
        X : dask Array or DataFrame of shape (n_samples, n_features)
            Data, in any number of partitions of any length; dense or, in a dask array, CSR blocks.
            All columns in one chunk.
        y : None
            Ignored.
        sample_weight : dask Array or Series, or array-like, of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each. A dask collection must have the
            partitions of X.

        Returns
        -------
        self : ShapeMeans
            The fitted estimator.
        """
        self._check_parameters()
        parts = CollectionParts(X, sample_weight)
        prepare = partial(checked_block, self._as_local(), parts.n_features)

        before = learned_attributes(self)
        with current_client() as client:
            arguments = client, parts, parts.weights, prepare, self.persist, facts_and_sizes
            with open_executor(*arguments) as (executor, facts, sizes):
                executor.restrict(p for p, size in facts.sizes.items() if size)
                try:
                    self._fit_parts(executor, facts, sizes, parts)
                except BaseException:
                    with_learned(self, before)
                    raise
        return self

    def _fit_parts(self, executor, facts, sizes, parts):
        """Fit the sample, and learn the boundaries and lazy labels of all rows."""
        rows, weight = sample_rows(executor, facts, self._rng(), CHOICE_ROWS)
        local = self._as_local().fit(rows, sample_weight=weight)
        with_learned(self, learned_attributes(local))
        self._fitted_rows = None  # the sample
        self._learn_columns(parts)
        pieces = NearestPieces(self.path_, self._nearest, self._noise)
        # squares neither over- nor underflow; a power of 2 changes no bits
        reach = np.ptp(self._nearest, axis=0).max()
        pieces.scale = float(np.ldexp(1.0, -max(int(np.frexp(reach)[1]), -1000)))
        if rows.shape[0] < sum(facts.sizes.values()):
            found = boundaries_of_parts(executor, pieces)
            if found is not None:
                weighted = not facts.unit_weights
                self.boundaries_ = table_of(found, np.arange(len(self._nearest)), weighted)
        model = self._fitted_local()
        self.labels_ = lazy_result(model, "predict", parts, sizes)
        label = partial(pieces_on_part, self._as_local(), parts.n_features)
        results = delayed_on_parts(label, pieces, parts.rows)
        self.pieces_ = concatenate_delayed(results, sizes, np.int32)
