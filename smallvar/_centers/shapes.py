"""ShapeMeans: clusters of any shape, each a union of pieces of a merge path.

``fit`` finds compact clusters as DPMeans does and, unless their number is clear, finer and finer
clusterings. Which pieces belong together, and which clustering is taken, is decided in
``smallvar/_selection/pieces.py``.
"""

import warnings
from copy import copy
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.random import sample_without_replacement

from smallvar._centers.center_estimator import at_centers
from smallvar._centers.dpmeans import DPMeans, RowsProblem, SharedMeans, means_of
from smallvar._centers.robust import RobustDPMeans
from smallvar._centers.starts import DPFit, run_starts
from smallvar._core.estimator import LabelsMixin, check_fitted, keywords_only
from smallvar._core.fit_loop import LoopSettings
from smallvar._core.frame import nearest, nearest_sweep
from smallvar._core.identifiers import warn_of_identifiers
from smallvar._core.profiles import cluster_moments
from smallvar._core.row_model import RowModelMixin
from smallvar._core.validation import (
    Data,
    check_flag,
    check_verbose,
    check_weights,
    exact_number,
    level_of_caller,
    some_rows,
    unit_of,
)
from smallvar._selection.boundary_table import BoundaryTable, table_of
from smallvar._selection.cluster_path import ClusterPath
from smallvar._selection.columns import count_different, count_distinct
from smallvar._selection.confidence import CLEAR_CONFIDENCE, UnclearNumberWarning
from smallvar._selection.described import DescribedMixin
from smallvar._selection.least_size import (
    check_least_size,
    least_weight,
    no_such_number,
    small,
)
from smallvar._selection.path import find_path
from smallvar._selection.pieces import (
    PATH_NUMBER,
    ShapeChoice,
    choose,
    find_pieces,
    is_clear,
    numbers_of_pieces,
)
from smallvar._selection.scale import MOST_CONFIDENT, ScaleWarning, warn_of_scale

ROWS_OF_PIECES = 20_000  # of which finer clusterings are compared, at most
# of the largest number of a column: in a smaller range are at most 256 numbers of float64
SAME_NUMBER = 2.0**-44
# Weights are divided by the power of two in this times their mean, to half of that: rows count .8
# to 1.6 times on average, and weights of 1 and 2, or of 1 and some less, are as they are.
LEAST_UNIT = 1.25
MAX_ITER = 300  # sweeps to the compact clusters


def count_rows(X):
    """How many rows differ; in dense ones, by more than rounding."""
    if issparse(X):
        return count_distinct(X)
    low, high = X.min(axis=0), X.max(axis=0)
    some = high - low > SAME_NUMBER * np.maximum(np.abs(low), np.abs(high))
    return count_different(X) if some.any() else 1


class ShapeMeans(
    DescribedMixin, LabelsMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, RowModelMixin
):
    """Clusters of any shape, each a union of compact pieces with no gap between them.

    Maximizes, over partitions of the rows into clusters C, the support by the boundaries between
    the pieces of several clusterings, as a share of all,

        sum_{a, b in different clusters} (T_ab - 1/2) - sum_{a, b in the same cluster} (T_ab - 1/2),

    over the pairs a, b of pieces that touch. T_ab is the evidence that there is a gap between two
    pieces, the logarithm of a likelihood ratio: see :func:`boundary_evidence`. The clusterings are
    those of a merge path, from the compact clusters that :class:`DPMeans` would find to ones of
    many small pieces. Two long, bent or hollow clusters are so found as two, where DPMeans and
    k-means cut them to pieces; and a single group of rows is found as one.

    Where the number of compact clusters is clear, these are the clusters.

    Parameters
    ----------
    n_clusters : int, "auto" or None, default=None
        The exact number of clusters: pieces merge, those with the least evidence between them
        first, until so many clusters are left. None or "auto": the data choose.
    min_cluster_size : int or float, default=None
        The least sum of weights of the rows of a cluster, without weights their number; a float
        between 0 and 1 is a share of all (noise not counted). A lighter cluster joins the one with
        the least evidence of a gap between them, or the nearest if it touches none, in each of the
        clusterings that are compared. Pieces may be lighter. None: clusters may have any size.
    noise : bool, default=False
        Whether rows far from all clusters, or in the sparse clutter between them, are set aside as
        noise (label -1) before, as :class:`RobustDPMeans` finds it.
    random_state : int, RandomState instance or None, default=None
        Generator of the first clusters of merge paths and, of many rows, of samples.
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.
    verbose : int, default=0
        Print a line for each step of the merge paths.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of each row, -1 for noise. Clusters are numbered by their first pieces.
    n_clusters_ : int
        Number of clusters, noise not counted.
    confidence_ : float
        How likely the number of clusters is right, from 0 to 1: the share that was right, of sets
        with a known number. NaN for a given ``n_clusters``.
    pieces_ : ndarray of shape (n_samples,), int32
        Piece of each row, -1 for noise.
    piece_centers_ : ndarray of shape (n_pieces, n_features), float64
        Means of the rows of each piece.
    piece_clusters_ : ndarray of shape (n_pieces,), int32
        Cluster of each piece.
    boundaries_ : BoundaryTable
        The boundaries between pieces that touch: rows, evidence in nats, depth of the valley. See
        :func:`boundary_evidence`, which also computes them of all rows: of more than 20,000 rows,
        these are of the sample that decided.
    merge_evidence_ : ndarray of shape (n_pieces - 1,), float64
        Evidence, in nats, between the two clusters that merge, as pieces merge down to one: entry
        ``n_pieces - k`` is that between the two of k clusters with the least. Infinite where no two
        clusters touch. A number k of clusters suggests itself where it is large, after small ones.
    path_ : ClusterPath
        The merge path of compact clusters. See :func:`cluster_path`.
    metric_ : ndarray of shape (n_features, n_directions) or None
        Matrix by which rows are multiplied before distances from pieces are measured, if clusters
        are elongated in common directions; None: distances are those of the data.
    n_iter_ : int
        Sweeps to the compact clusters, the last, unchanging one included.
    probabilities_ : ndarray of shape (n_samples,), float64
        The probability of its own cluster for each row, see :meth:`predict_proba`.
        0 for rows that are noise.
    outlier_scores_ : ndarray of shape (n_samples,), float64
        How strange each row is, from 0 to 1, see :meth:`outlier_scores`.
    profiles_ : DataFrame, Table or dict of arrays
        What sets each cluster apart: a row for each cluster and column. See
        :meth:`profile_clusters`.
    representatives_ : Representatives
        Numbers of rows that stand for the clusters: ``centers``, those nearest to the centers, and
        ``boundaries``, a dict with two rows for each pair of clusters that touch.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit``, for data that are not finite, numeric and two-dimensional, and for parameters
        out of their bounds. The estimator is then as it was before.

    See Also
    --------
    DPMeans : Compact clusters, each with one center.
    boundary_evidence : The evidence of the boundaries between clusters of any program.
    sklearn.cluster.HDBSCAN : Clusters of any shape by density, which may differ from row to row.

    Notes
    -----
    **Pieces.** The first clustering is that of DPMeans with ``metric="auto"``: K clusters. They are
    taken as they are if the confidence p in K is at least 0.8, or at least 0.5, with evidence of at
    least 3 - log(p / (1 - p)) at each boundary. Else there are up to eight more clusterings, into
    1.5 K pieces and 2, 4, 8, 12, 20, 32 and 48 above K, with at least eight rows a piece. They are
    compared on at most 20,000 rows.

    **Evidence.** Two pieces touch if they are a row's own and its nearest other one, for at least
    two rows. Only rows that face each other count: those that, moved straight to the boundary
    between the two, are nearer to no third piece. Of a log-concave density they have no valley, as
    the part of space that they fill is widest at the boundary.

    **Mergers.** Within each clustering, the two clusters with the least evidence between them,
    added up over their pieces, merge first, as long as it is below 5 nats. What is left are the
    candidates, with all rows as one and the compact clusters as they are. The score above gets 1/10
    of the mean adjusted Rand index between the candidate and what each clustering leads to.

    It cannot see gaps that are narrow beside the pieces, nor clusters that differ in density only
    and touch. Clusters of fewer than some fifty rows give little evidence.

    A row of weight w counts w times, and not at all for weight zero; it is then labeled as by
    ``predict``. Weights are in units of a power of two near their mean, so that their own unit does
    not matter. Columns should be on comparable scales, as for k-means.

    References
    ----------
    Compact clusters: Kulis & Jordan (2012), Revisiting k-means. Merging the components of a mixture
    to clusters, there by their entropy: Baudry, Raftery, Celeux, Lo & Gottardo (2010), Combining
    mixture components for clustering.

    Examples
    --------
    >>> from smallvar import ShapeMeans
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(1000, noise=0.08, random_state=0)
    >>> model = ShapeMeans(random_state=0).fit(X)
    >>> model.n_clusters_
    2
    >>> int((model.labels_ == (y if model.labels_[0] == y[0] else 1 - y)).sum())
    999
    >>> model.predict([[0.0, 1.0], [1.0, -0.5]]).tolist()
    [0, 1]
    """

    labels_: NDArray[np.int32]
    pieces_: NDArray[np.int32]
    piece_centers_: NDArray[np.float64]
    piece_clusters_: NDArray[np.int32]
    merge_evidence_: NDArray[np.float64]
    boundaries_: BoundaryTable
    path_: ClusterPath
    metric_: NDArray[np.float64] | None
    n_clusters_: int
    n_iter_: int
    confidence_: float
    min_cluster_size: float | None = None  # for a subclass without the parameter
    _takes_sparse = True
    _noise: RobustDPMeans | None = None

    @keywords_only
    def __init__(
        self,
        *,
        n_clusters: int | Literal["auto"] | None = None,
        min_cluster_size: float | None = None,
        noise: bool = False,
        random_state: int | np.random.RandomState | None = None,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.min_cluster_size = min_cluster_size
        self.noise = noise
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    @property
    def _n_features_out(self):
        return self.n_clusters_

    def _check_parameters(self):
        exact_number(self.n_clusters)
        check_least_size(self, ())
        check_flag(self.noise, "noise")
        check_verbose(self.verbose)

    def fit(self, X: Data, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Cluster the data.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. float32 and float64 are used as they are. Sparse data (not with ``noise``) stay
            sparse; distances are then Euclidean.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each.

        Returns
        -------
        self : ShapeMeans
            The fitted estimator.
        """
        self._check_parameters()
        rng, n_threads = self._rng(), self._threads()
        X = self._validate(X, reset=True)
        weight = check_weights(sample_weight, X.shape[0])
        kept = np.arange(X.shape[0])
        self._noise = None
        if self.noise:
            kept = self._set_noise_aside(X, weight, rng)
        everything = len(kept) == X.shape[0]
        rows = X if everything else some_rows(X, kept)
        self._fit(rows, weight if everything or weight is None else weight[kept], rng, n_threads)
        if not everything:
            for name in ("labels_", "pieces_"):
                numbers = np.full(X.shape[0], -1, dtype=np.int32)
                numbers[kept] = getattr(self, name)
                setattr(self, name, numbers)
        self._remember_rows(X, weight, components=self.pieces_)
        warn_of_identifiers(self, X)
        self._warn_if_unclear()
        return self

    def _set_noise_aside(self, X, weight, rng):
        """The rows that are no noise; remembers what tells noise."""
        if issparse(X):
            raise ValueError("noise must be False for sparse X, got True: use X.toarray()")
        settings = {"n_threads": self.n_threads, "verbose": self.verbose, "random_state": rng}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnclearNumberWarning)  # of its own number
            warnings.simplefilter("ignore", ScaleWarning)  # told below, with names of columns
            noise = RobustDPMeans(**settings).fit(X, sample_weight=weight)
        self._noise = noise.set_params(n_threads=None, verbose=0, random_state=None)
        return np.flatnonzero(noise.labels_ >= 0)

    def _fit(self, X, weight, rng, n_threads):
        """Fit checked rows."""
        relative = self._relative(weight)
        loop, n = LoopSettings(MAX_ITER, 0.0, self._callback()), X.shape[0]
        options = {"in_metric": not issparse(X), "select": True}
        least, share = least_weight(self, weight, n), 0.0
        state = rng.get_state()
        problem = RowsProblem(DPFit(n, None, loop), X, relative, n_threads, **options)
        compact = run_starts(problem, rng)
        if least is not None:
            least /= self._unit
            share = least / (n if relative is None else float(relative.sum()))
            if small(np.bincount(compact.labels, relative), least).any():
                rng.set_state(state)
                options |= {"in_metric": False, "least": least}
                problem = RowsProblem(DPFit(n, None, loop), X, relative, n_threads, **options)
                compact = run_starts(problem, rng)
        path = compact.path
        rows, centers, shared = path.measured(), compact.centers, None
        if len(path.noise_columns):
            shared = SharedMeans(path, rows, relative)
            rows, centers = shared.emptied(rows), shared.emptied(centers)
        choice = self._choose(rows, relative, compact.labels, centers, path, rng, n_threads, share)
        pieces = choice.pieces
        labels = compact.labels
        # other pieces than the compact clusters: all rows, not only those of the sample
        if pieces.centers is not centers:
            labels = nearest_sweep(rows, None, pieces.centers, n_threads).labels
        clusters = choice.clusters
        if least is not None:  # of all rows, not only of those of the sample
            weights = np.bincount(labels, relative, pieces.k)
            clusters = pieces.with_least_size(clusters, weights, least)
            self._check_number(int(clusters.max()) + 1)
        self.pieces_, self.piece_clusters_ = labels, clusters.astype(np.int32)
        self.labels_ = self.piece_clusters_[labels]
        self.n_clusters_, self.n_iter_ = int(clusters.max()) + 1, compact.n_iter
        self.merge_evidence_, self.path_ = pieces.evidence, path.seen()
        self.boundaries_ = table_of(pieces.boundaries, np.arange(pieces.k), weight is not None)
        self.metric_, self.confidence_ = path.metric, choice.confidence
        if len(path.wide.columns) and path.metric is None:
            self.confidence_ = min(self.confidence_, MOST_CONFIDENT)
        self._multiply("path_")
        self._nearest = pieces.centers if shared is None else shared.whole(pieces.centers)
        self.piece_centers_ = self._nearest.copy()
        # in another metric, the public centers are means of the data
        if self.metric_ is not None:
            self.piece_centers_ = means_of(X, relative, labels, n_threads)

    def _check_number(self, k):
        """Raise if the number of clusters is given, and fewer have the least size."""
        number = exact_number(self.n_clusters)
        if number is not None and k < number:
            raise no_such_number(number, self.min_cluster_size)

    def _choose(self, X, weight, labels, centers, path, rng, n_threads, share, size=None):
        """The ShapeChoice of pieces and clusters of rows in the metric of the path.

        Clusters have at least this ``share`` of the weight. It is made by a sample of ``size``
        rows, and of more if too few pieces have rows there.
        """
        number, k, size = exact_number(self.n_clusters), len(centers), size or ROWS_OF_PIECES
        rows = np.arange(X.shape[0]) if weight is None else np.flatnonzero(weight)
        whole = len(rows) <= size
        if not whole:
            drawn = sample_without_replacement(len(rows), size, random_state=rng)
            first = np.unique(labels[rows], return_index=True)[1]  # so that no cluster is lost
            rows = rows[np.union1d(drawn, first)]
        some = X if len(rows) == X.shape[0] else some_rows(X, rows)
        part = None
        if weight is not None:  # evidence counts rows, whatever the unit of their weights
            part = weight[rows] / unit_of(LEAST_UNIT * weight[rows])
        found = [find_pieces(some, part, labels[rows], centers, n_threads)]
        total = len(rows) if part is None else float(part.sum())
        least = share * total
        if number is None and is_clear(found[0], path.found_confidence):
            return ShapeChoice(found[0], np.arange(found[0].k), path.found_confidence)
        numbers = numbers_of_pieces(k, total, count_rows(some), number)
        if numbers:
            finest = max(q for q in numbers if q <= max(PATH_NUMBER, 2 * k, number or 0))
            options = {"number": finest, "callback": self._callback()}
            finer = find_path(X, weight, rng, n_threads, **options)
            counts = finer.counts[finer.counts <= finer.longest]
            for q in {int(counts[np.abs(counts - q).argmin()]): None for q in numbers}:
                if q > 1 and q != k:
                    near = nearest_sweep(some, None, finer.found(q), n_threads).labels
                    found.append(find_pieces(some, part, near, finer.found(q), n_threads))
        if not whole and number is not None and max(p.k for p in found) < number:
            return self._choose(X, weight, labels, centers, path, rng, n_threads, share, 4 * size)
        if k == 1:
            found = found[1:] or found
        choice = choose(found, part, k > 1, path.found_confidence, number, least)
        if choice is None:
            raise no_such_number(number, self.min_cluster_size)
        return choice

    def _warn_if_unclear(self):
        """Warn where the data chose the number of clusters, and it is not clear."""
        warn_of_scale(self, self.path_)
        if not self.confidence_ < CLEAR_CONFIDENCE:
            return
        n, none = len(self.boundaries_), int((self.boundaries_.verdict != "gap").sum())
        warnings.warn(
            f"the number of clusters, {self.n_clusters_}, is not clear (confidence "
            f"{self.confidence_:.2f}): {none} of {n} boundaries between pieces are no clear gaps; "
            "compare n_clusters with other numbers, see merge_evidence_",
            UnclearNumberWarning,
            stacklevel=level_of_caller(),
        )

    def _left_out(self):
        return self.path_.noise_columns if self.metric_ is None else []

    def _mean_cost(self, moments):
        """The mean squared distance of a row from the mean of its cluster."""
        within = moments
        if self.metric_ is not None:
            within = self._of_rows("moments in the metric", self._measured_moments)
        weight = within.weight[:-1]
        return float(np.nansum(weight * within.variance[:-1]) / weight[:, 0].sum())

    def _measured_moments(self, rows):
        return cluster_moments(
            self._measured(rows.X)[0], rows.weight, rows.labels, self.n_clusters_
        )

    def _measured(self, X):
        """Rows and centers of pieces in the coordinates in which distances are measured."""
        return X if self.metric_ is None else self.path_.measured(X), self._nearest

    def predict(self, X: Data) -> NDArray[np.int32]:
        """Return the cluster of the nearest piece of each row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            New data.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Clusters; with ``noise``, -1 for rows that :class:`RobustDPMeans` has as noise.
        """
        check_fitted(self)
        X = self._validate(X, reset=False)
        rows, _ = self._measured(X)
        labels = self.piece_clusters_[nearest(rows, None, self._nearest, self._threads()).labels]
        if self._noise is not None:
            noise = copy(self._noise).set_params(n_threads=self.n_threads)
            labels[noise.predict(X) < 0] = -1
        return labels

    def transform(self, X: Data) -> NDArray[np.floating]:
        """Compute the distance of each row from the nearest piece of each cluster.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            New data.

        Returns
        -------
        distances : ndarray of shape (n_samples, n_clusters)
            Euclidean distances (not squared), in data units or those of ``metric_``; float32 for
            float32 data.
        """
        check_fitted(self)
        X = self._validate(X, reset=False)
        rows, _ = self._measured(X)
        model = at_centers(DPMeans(n_threads=self.n_threads), self._nearest, rows.shape[1])
        # not the table that scikit-learn's transform_output may ask for
        distances = np.asarray(model.transform(rows), dtype=X.dtype)
        order = np.argsort(self.piece_clusters_, kind="stable")
        first = np.searchsorted(self.piece_clusters_[order], np.arange(self.n_clusters_))
        return np.minimum.reduceat(distances[:, order], first, axis=1)
