"""Methods of fitted estimators on dask collections, with lazy results.

The estimators on dask collections have the fitted attributes of those on one machine. So each
method builds the local estimator (``LocalCounterpart``) and calls it on every partition
(``LazyMethods``); the functions at the end put the delayed results together.
"""

from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from dask import compute, delayed, is_dask_collection
from sklearn.utils.validation import check_is_fitted

from smallvar._core.estimator import learned_attributes, with_learned
from smallvar._core.validation import as_weights
from smallvar.dask._collection import CollectionParts
from smallvar.dask._executor import call_realigned

# dtypes of the lazy results; that of "transform" depends on the dtype of X
RESULT_TYPES = {"predict": np.int32} | dict.fromkeys(
    ("cosines", "predict_proba", "score_samples", "outlier_scores"), np.float64
)


def _call_method(method, model, X, **options):
    """Result of a method of a local estimator; "cosines" is the second result of ``predict``."""
    if method == "cosines":
        return model.predict(X, return_cosines=True)[1]
    return getattr(model, method)(X, **options)


def _width(model, method, unknown=False):
    """The columns of what a method returns, as the end of its shape: none for an array (n,)."""
    if method not in ("transform", "predict_proba"):
        return ()
    centers = getattr(model, "cluster_centers_", None)
    return ((model.n_clusters_ if centers is None else len(centers)) + unknown,)


def _call_on_part(method, model, X, **options):
    """Result of a method of a local estimator on a partition, which may have no rows."""
    if X.shape[0]:
        return _call_method(method, model, X, **options)
    # float32 is the type that does not change that of the other partitions
    dtype = RESULT_TYPES.get(method, np.float32)
    return np.empty((0, *_width(model, method, **options)), dtype=dtype)


def _error_score(model, X, weight):
    """Minus the weighted error of a partition: its score without the penalty for clusters."""
    weight = None if weight is None else as_weights(weight, X.shape[0])
    if X.shape[0] == 0 or (weight is not None and not weight.any()):
        return 0.0
    return model.score(X, sample_weight=weight) + model.lam_ * len(model.cluster_centers_)


class LocalCounterpart:
    """Base of estimators that have a counterpart for data of one machine.

    ``_local`` is the class of that counterpart; ``_lazy`` names the fitted attributes that are dask
    arrays.
    """

    _local: Any
    _lazy: tuple[str, ...] = ("labels_",)
    get_params: Any

    def _as_local(self):
        """Unfitted local estimator, with the parameters that both classes have."""
        names = self._local().get_params(deep=False)
        parameters = {name: value for name, value in self.get_params().items() if name in names}
        return self._local(**parameters)

    def _fitted_local(self, computed=False):
        """Fitted local estimator; it has the lazy attributes only if ``computed``."""
        check_is_fitted(self)
        learned = learned_attributes(self)
        lazy = {name: learned.pop(name) for name in self._lazy if name in learned}
        if computed:
            learned.update(zip(lazy, compute(*lazy.values()), strict=True))
        return with_learned(self._as_local(), learned)

    def _learn_columns(self, parts):
        """Set the number of columns, and their names if they have any."""
        self.n_features_in_ = parts.n_features
        vars(self).pop("feature_names_in_", None)
        if parts.names is not None:
            self.feature_names_in_ = parts.names


class LazyLabels(LocalCounterpart):
    """Mixin with the methods of fitted clusters, whose results for dask collections are lazy.

    Except ``score``, for which there must be a penalty.
    """

    labels_: Any
    n_iter_: int
    fit: Any

    def to_local(self, labels: bool = True) -> Any:
        """Return the fitted estimator of one machine with the same centers.

        Parameters
        ----------
        labels : bool, default=True
            Compute ``labels_``, which takes memory for all rows; otherwise the result has no
            ``labels_``.

        Returns
        -------
        model : estimator
            Its predictions are those of this estimator.
        """
        return self._fitted_local(labels)

    def predict(self, X: Any) -> Any:
        """Nearest center of each row; no row opens a cluster.

        Parameters
        ----------
        X : dask Array or DataFrame, or array-like, of shape (n_samples, n_features)
            New data.

        Returns
        -------
        labels : dask Array of shape (n_samples,), int32
            Index into ``cluster_centers_``; at a tie the lowest one. Lazy; an ndarray if X is not a
            dask collection.
        """
        return self._mapped("predict", X)

    def transform(self, X: Any) -> Any:
        """Compute the distance of each row to each center, as the estimator of one machine does.

        Parameters
        ----------
        X : dask Array or DataFrame, or array-like, of shape (n_samples, n_features)
            New data.

        Returns
        -------
        distances : dask Array of shape (n_samples, n_clusters)
            Distances, not squared. Lazy; an ndarray if X is not a dask collection.
        """
        return self._mapped("transform", X)

    def _mapped(self, method, X, **options):
        """Result of a method of the local estimator; lazy if X is a dask collection."""
        model = self._fitted_local()
        if not is_dask_collection(X):
            return _call_method(method, model, X, **options)
        return lazy_result(model, method, CollectionParts(X), **options)

    def fit_predict(
        self, X: Any, y: object = None, sample_weight: Any = None, **others: Any
    ) -> Any:
        """Fit and return the labels of the data.

        Parameters
        ----------
        X : dask Array or DataFrame of shape (n_samples, n_features)
            Data, as for ``fit``.
        y : None
            Ignored.
        sample_weight : dask Array or Series, or array-like, of shape (n_samples,), default=None
            Weights, as for ``fit``.
        **others : dict
            ``fit`` takes none.

        Returns
        -------
        labels : dask Array of shape (n_samples,), int32
            ``labels_`` of the fit.
        """
        return self.fit(X, sample_weight=sample_weight, **others).labels_


class LazyMethods(LazyLabels):
    """Mixin with the methods of fitted clusters that have centers and a penalty."""

    def score(self, X: Any, y: object = None, sample_weight: Any = None) -> float:
        """Return minus the objective of data at the fitted centers.

        Parameters
        ----------
        X : dask Array or DataFrame, or array-like, of shape (n_samples, n_features)
            Data.
        y : None
            Ignored.
        sample_weight : dask Array or Series, or array-like, of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
            Equal to that of the estimator of one machine, up to rounding.
        """
        model = self._fitted_local()
        if not is_dask_collection(X):
            return model.score(X, sample_weight=sample_weight)
        parts = CollectionParts(X, sample_weight)
        scores = compute(delayed_on_parts(_error_score, model, parts.rows, parts.weights))[0]
        return float(np.sum(scores)) - model.lam_ * len(model.cluster_centers_)


def delayed_on_parts(function, model, *lists):
    """Delayed results of ``function(model, ...)`` with the entries of ``lists``, by partition."""
    shared, function = delayed(model, traverse=False), delayed(partial(call_realigned, function))
    return [function(shared, *arguments) for arguments in zip(*lists, strict=True)]


def concatenate_delayed(results, sizes, dtype, *width):
    """Dask array of the delayed arrays of partitions, with ``sizes`` rows each (None: unknown).

    ``width`` is the number of columns, left out for arrays of one dimension.
    """
    return da.concatenate(
        [
            da.from_delayed(rows, (np.nan if sizes is None else sizes[p], *width), dtype=dtype)
            for p, rows in enumerate(results)
        ],
        allow_unknown_chunksizes=True,
    )


def lazy_result(model, method, parts, sizes=None, **options):
    """Dask array of the results of a method of a local estimator on all partitions."""
    dtype = RESULT_TYPES.get(method)
    if dtype is None:
        types = getattr(parts.collection, "dtypes", None)
        types = [parts.collection.dtype] if types is None else types
        dtype = np.float32 if all(t == np.float32 for t in types) else np.float64
    results = delayed_on_parts(partial(_call_on_part, method, **options), model, parts.rows)
    sizes = parts.sizes if sizes is None else sizes
    return concatenate_delayed(results, sizes, dtype, *_width(model, method, **options))
