"""What fitted estimators say of dask collections, computed when it is asked for."""

from typing import Any

import dask.array as da
import numpy as np
from dask import compute, delayed, is_dask_collection
from sklearn.utils.validation import check_is_fitted

from smallvar.dask._collection import Parts


def _cosines(model, X):
    return model.predict(X, return_cosines=True)[1]


METHODS = {  # of lazy results: how they are computed, and their type where it is not that of X
    "predict": (lambda model, X: model.predict(X), np.int32),
    "cosines": (_cosines, np.float64),
    "transform": (lambda model, X: model.transform(X), None),
}


def _apply(model, method, X):
    """A method of a local estimator on a partition."""
    function, kind = METHODS[method]
    if X.shape[0] == 0:
        shape = (0, len(model.cluster_centers_)) if kind is None else 0
        return np.empty(shape, dtype=np.float64 if kind is None else kind)
    return function(model, X)


def _score_of(model, X, weight):
    if X.shape[0] == 0 or (weight is not None and not np.any(weight)):
        return 0.0
    return model.score(X, sample_weight=weight) + model.lam_ * len(model.cluster_centers_)


class Lazy:
    """What is asked of a fitted estimator for a dask collection stays lazy.

    ``_local`` is the estimator of one machine with the same attributes.
    """

    _local: Any
    labels_: Any
    n_iter_: int
    fit: Any

    def _as_local(self):
        """The local estimator with the parameters that it has, not fitted."""
        known = self._local._get_param_names()
        given = {name: value for name, value in self.get_params().items() if name in known}
        return self._local(**given)

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
        check_is_fitted(self)
        model, given = self._as_local(), self._get_param_names()
        learned = {name: value for name, value in vars(self).items() if name not in given}
        learned.pop("labels_", None)
        vars(model).update(learned)
        if labels and hasattr(self, "labels_"):
            model.labels_ = np.asarray(self.labels_)
        return model

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
        check_is_fitted(self)
        model = self.to_local(labels=False)
        if not is_dask_collection(X):
            return METHODS[method][0](model, X)
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
        check_is_fitted(self)
        model = self.to_local(labels=False)
        if not is_dask_collection(X):
            return model.score(X, sample_weight=sample_weight)
        parts = Parts(X, sample_weight)
        pairs = zip(parts.rows, parts.weights, strict=True)
        scores = compute(*(delayed(_score_of)(model, *pair) for pair in pairs))
        return float(np.sum(scores)) - model.lam_ * len(model.cluster_centers_)


def lazily(model, method, parts, sizes=None):
    """A method of a local estimator on all partitions, as a dask array."""
    if sizes is None and parts.sizes is not None:
        sizes = dict(enumerate(parts.sizes))
    kind = METHODS[method][1]
    width = (len(model.cluster_centers_),) if kind is None else ()
    kind = kind or getattr(parts.collection, "dtype", np.float64)
    shared = delayed(model)
    pieces = [
        da.from_delayed(
            delayed(_apply)(shared, method, rows),
            (np.nan if sizes is None else sizes[p], *width),
            dtype=kind,
        )
        for p, rows in enumerate(parts.rows)
    ]
    return da.concatenate(pieces, allow_unknown_chunksizes=True)
