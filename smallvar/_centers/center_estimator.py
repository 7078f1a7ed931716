"""Bases of the estimators with centers in the space of the data.

``NearestCenters`` is for those whose ``predict`` is that of k-means, and converts them to a
scikit-learn KMeans; ``CenterEstimator`` has ``predict``, ``transform`` and ``score``.
``at_centers`` makes a fitted estimator from centers alone.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.sparse import issparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import gen_batches

from smallvar._core.estimator import Estimator, LabelsMixin, check_fitted, with_learned
from smallvar._core.frame import nearest
from smallvar._core.validation import DTYPES, Data, check_weights, learned, some_rows
from smallvar._selection.described import DescribedMixin
from smallvar._sweeps.exact import distances_to_centers

if TYPE_CHECKING:
    from sklearn.cluster import KMeans


class NearestCenters(DescribedMixin, Estimator):
    """Base of estimators whose ``predict`` returns the nearest center, as that of k-means does."""

    cluster_centers_: NDArray[np.float64]
    labels_: NDArray[np.int32]
    inertia_: float
    n_iter_: int
    _dtype = np.float64

    def to_sklearn_kmeans(self, dtype: DTypeLike | None = None) -> "KMeans":
        """Return a fitted scikit-learn KMeans with these centers.

        Use it wherever a fitted ``KMeans`` is required, such as for ONNX export. Fitted again, it
        minimizes the squared error for this number of clusters, without a penalty. ValueError where
        distances are not Euclidean, by a ``metric_`` or a divergence: no KMeans predicts the same.

        Parameters
        ----------
        dtype : {numpy.float64, numpy.float32}, default=None
            The type of its centers; None means that of the data of the fit. Methods of ``KMeans``
            take data of the type of its centers only.

        Returns
        -------
        kmeans : sklearn.cluster.KMeans
            With copies of ``cluster_centers_`` and ``labels_``, and the ``inertia_``, ``n_iter_``,
            ``n_features_in_`` and, if there are any, ``feature_names_in_``. It predicts the same
            labels, except at ties up to rounding. Its ``score`` is minus the squared error, without
            penalties. Its ``init`` is these centers.

        Examples
        --------
        >>> from smallvar import DPMeans
        >>> model = DPMeans(lam=4.0).fit([[0.0, 0.0], [0.0, 1.0], [9.0, 9.0], [9.0, 8.0]])
        >>> kmeans = model.to_sklearn_kmeans()
        >>> kmeans.cluster_centers_
        array([[0. , 0.5],
               [9. , 8.5]])
        >>> kmeans.predict([[8.0, 8.0]])
        array([1], dtype=int32)
        """
        from sklearn.cluster import KMeans

        self._check_kmeans()
        check_fitted(self)
        try:
            kind = np.dtype(self._dtype if dtype is None else dtype)
        except TypeError:
            kind = None
        if kind not in DTYPES:
            raise ValueError(f"dtype must be numpy.float64, numpy.float32 or None, got {dtype!r}")
        # centers that the user has replaced are checked, and may be beyond the wanted type
        centers = learned(self, "cluster_centers_", None, self.n_features_in_)
        reach = float(np.abs(centers).max())
        with np.errstate(over="ignore"):
            centers = centers.astype(kind)
        if not np.isfinite(centers).all():
            raise ValueError(f"dtype must hold cluster_centers_, got {kind} for {reach:.3g}")
        # a fit to one row sets the private attributes that this version of KMeans needs
        row = np.zeros((1, centers.shape[1]), dtype=kind)
        kmeans = KMeans(1, init=row, n_init=1).fit(row)
        kmeans.set_params(n_clusters=len(centers), init=centers.copy())
        if "_n_features_out" in vars(kmeans):  # of ClassNamePrefixFeaturesOutMixin
            kmeans._n_features_out = len(centers)
        kmeans.cluster_centers_ = centers
        kmeans.labels_ = np.array(self.labels_)
        # the inertia of KMeans is the squared error itself
        kmeans.inertia_, kmeans.n_iter_ = self.inertia_ / self._error_share, self.n_iter_
        if hasattr(self, "feature_names_in_"):
            kmeans.feature_names_in_ = self.feature_names_in_.copy()
        return kmeans

    def _check_kmeans(self):
        """Raise if a KMeans with these centers would not predict the same."""


def at_centers(model, centers, n_features, names=None):
    """The unfitted estimator ``model`` with these centers, ready to predict."""
    attributes = {"cluster_centers_": centers, "n_features_in_": n_features, "labels_": None}
    if names is not None:
        attributes["feature_names_in_"] = names
    return with_learned(model, attributes | {"n_iter_": 0, "lam_": 0.0})


def _distances_of_sparse(X, centers, out):
    """Write the distances of sparse rows to all centers to ``out``; returns the largest one."""
    norms = np.einsum("kj,kj->k", centers, centers)
    # ||x - c||^2 = ||x||^2 - 2 x.c + ||c||^2, in blocks that bound the memory of float64 copies
    for rows in gen_batches(X.shape[0], 4096):
        with np.errstate(over="ignore", invalid="ignore"):
            block = some_rows(X, rows).astype(np.float64, copy=False)
            squares = np.asarray(block.multiply(block).sum(axis=1)).reshape(-1, 1)
            squares = squares - 2.0 * (block @ centers.T) + norms
            out[rows] = np.sqrt(np.maximum(squares, 0.0))
    return out.max()


class CenterEstimator(
    DescribedMixin, LabelsMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator
):
    """Base of estimators whose result is a set of centers in the space of the data."""

    cluster_centers_: NDArray[np.float64]
    labels_: NDArray[np.int32]
    n_clusters_: int
    objective_: float
    n_iter_: int

    @property
    def _n_features_out(self):
        return self.cluster_centers_.shape[0]

    def predict(self, X: Data) -> NDArray[np.int32]:
        """Return the nearest center of each row; no row opens a cluster.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Index into ``cluster_centers_``; at a tie the lowest index.
        """
        check_fitted(self)
        return self._nearest(self._validate(X, reset=False)).labels

    def _nearest(self, X, weight=None):
        """A sweep over checked rows whose labels are the nearest centers."""
        X, centers = self._measured(X)
        return nearest(X, weight, centers, self._threads())

    def transform(self, X: Data) -> NDArray[np.floating]:
        """Compute the Euclidean distances (not squared) of each row to each center.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data.

        Returns
        -------
        distances : ndarray of shape (n_samples, n_clusters)
            In data units, float32 for float32 data. They are the roots of the squared distances
            that ``predict`` compares, computed in float64: the relative error is at most
            (n_features + 4) 1e-16, however near a row is to a center, and the distance to the
            predicted center is the least. For sparse data the error is about 1e-8 times the lengths
            of row and center.
        """
        check_fitted(self)
        X = self._validate(X, reset=False)
        dtype = X.dtype  # of the result; in another metric rows become float64
        X, centers = self._measured(X)
        distances = np.empty((X.shape[0], len(centers)), dtype=dtype)
        if issparse(X):
            largest = _distances_of_sparse(X, centers, distances)
        else:
            largest = distances_to_centers(X, centers, distances, self._threads())
        # distances are computed in float64, and may be beyond float32
        with np.errstate(over="ignore"):
            finite = np.isfinite(dtype.type(largest))
        if not finite:
            reach = float(np.abs(X.data if issparse(X) else X).max())
            raise ValueError(
                "X must be so near the centers that squared distances, and distances as "
                f"{dtype}, are finite, got entries up to {reach:.3g}"
            )
        return distances

    def score(self, X: Data, y: object = None, sample_weight: ArrayLike | None = None) -> float:
        """Return minus the objective of data at the fitted centers.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
            ``-(sum of w * D + lam_ * n_clusters_)``, with D the squared distance to the nearest
            center, or what the objective of the class has in its place. Rows of length zero, which
            have no direction, are left out where D is 1 - cosine.
        """
        check_fitted(self)
        X = self._validate(X, reset=False)
        error = self._nearest(X, check_weights(sample_weight, X.shape[0])).squared_error()
        return -(self._error_share * error + self.lam_ * len(self.cluster_centers_))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
