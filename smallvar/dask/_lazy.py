"""What fitted estimators say of dask collections, computed when it is asked for."""

from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from dask import compute, delayed, is_dask_collection
from sklearn.utils.validation import check_is_fitted

from smallvar._core.estimator import learned_attributes, with_learned
from smallvar.dask._collection import Parts
from smallvar.dask._team import here

KINDS = {"predict": np.int32, "cosines": np.float64}  # of lazy results; others are as X


def _asked(method, model, X):
    """A method of a local estimator."""
    if method == "cosines":
        return model.predict(X, return_cosines=True)[1]
    return getattr(model, method)(X)


def _of_part(method, model, X):
    """The same for a partition, which may have no rows."""
    if X.shape[0]:
        return _asked(method, model, X)
    if method in KINDS:
        return np.empty(0, dtype=KINDS[method])
    # the type of the others is that of the result
    return np.empty((0, len(model.cluster_centers_)), dtype=np.float32)


def _score_of(model, X, weight):
    if X.shape[0] == 0 or (weight is not None and not np.any(weight)):
        return 0.0
    return model.score(X, sample_weight=weight) + model.lam_ * len(model.cluster_centers_)


class Remote:
    """An estimator on dask collections, and the one of one machine with the same attributes.

    The latter is ``_local``; ``_lazy`` are the attributes that are dask arrays.
    """

    _local: Any
    _lazy: tuple[str, ...] = ("labels_",)
    get_params: Any

    def _as_local(self):
        """The local estimator with the parameters that it has, not fitted."""
        known = self._local().get_params(deep=False)
        given = {name: value for name, value in self.get_params().items() if name in known}
        return self._local(**given)

    def _fitted_local(self, computed=False):
        """The local estimator, fitted; with the lazy attributes only if these are computed."""
        check_is_fitted(self)
        learned = learned_attributes(self)
        lazy = {name: learned.pop(name) for name in self._lazy if name in learned}
        if computed:
            learned.update(zip(lazy, compute(*lazy.values()), strict=True))
        return with_learned(self._as_local(), learned)

    def _learn_columns(self, parts):
        """How many columns the data have, and their names."""
        self.n_features_in_ = parts.n_features
        vars(self).pop("feature_names_in_", None)
        if parts.names is not None:
            self.feature_names_in_ = parts.names


class Lazy(Remote):
    """What is asked of fitted clusters for a dask collection stays lazy."""

    labels_: Any
    n_iter_: int
    fit: Any

    def to_local(self, labels: bool = True) -> Any:
        """Return the fitted estimator of one machine with the same centers.

        Parameters
        ----------
        labels : bool, default=True
            Compute ``labels_``, which takes memory for all rows; else it has none.

        Returns
        -------
        model : estimator
            It predicts the same.
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
        labels : dask Array, or ndarray for what is no dask collection, (n_samples,), int32
            Index into ``cluster_centers_``; at a tie the lowest one. Lazy.
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
        distances : dask Array, or ndarray for what is no dask collection, (n_samples, n_clusters)
            Lazy.
        """
        return self._mapped("transform", X)

    def _mapped(self, method, X):
        model = self._fitted_local()
        if not is_dask_collection(X):
            return _asked(method, model, X)
        return lazily(model, method, Parts(X))

    def fit_predict(self, X: Any, y: object = None, sample_weight: Any = None) -> Any:
        """Fit and return the labels of the data.

        Parameters
        ----------
        X : dask Array or DataFrame of shape (n_samples, n_features)
            Data, as for ``fit``.
        y : None
            Ignored.
        sample_weight : dask Array or Series, or array-like, of shape (n_samples,), default=None
            Weights, as for ``fit``.

        Returns
        -------
        labels : dask Array of shape (n_samples,), int32
            ``labels_`` of the fit.
        """
        return self.fit(X, sample_weight=sample_weight).labels_

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
            As the estimator of one machine has it, up to rounding.
        """
        model = self._fitted_local()
        if not is_dask_collection(X):
            return model.score(X, sample_weight=sample_weight)
        parts = Parts(X, sample_weight)
        scores = compute(each_part(_score_of, model, parts.rows, parts.weights))[0]
        return float(np.sum(scores)) - model.lam_ * len(model.cluster_centers_)


def each_part(function, model, *lists):
    """A function of a model and what there is of each partition, delayed."""
    shared, function = delayed(model, traverse=False), delayed(partial(here, function))
    return [function(shared, *some) for some in zip(*lists, strict=True)]


def joined(results, sizes, kind, *width):
    """A dask array of the delayed arrays of partitions; ``sizes`` by partition, or None."""
    return da.concatenate(
        [
            da.from_delayed(rows, (np.nan if sizes is None else sizes[p], *width), dtype=kind)
            for p, rows in enumerate(results)
        ],
        allow_unknown_chunksizes=True,
    )


def lazily(model, method, parts, sizes=None):
    """A method of a local estimator on all partitions, as a dask array."""
    kind = KINDS.get(method)
    width = (len(model.cluster_centers_),) if kind is None else ()
    if kind is None:
        types = getattr(parts.collection, "dtypes", None)
        types = [parts.collection.dtype] if types is None else types
        kind = np.float32 if all(t == np.float32 for t in types) else np.float64
    results = each_part(partial(_of_part, method), model, parts.rows)
    return joined(results, parts.sizes if sizes is None else sizes, kind, *width)
