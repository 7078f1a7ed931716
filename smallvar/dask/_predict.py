"""Functions of fitted estimators and dask collections, with lazy results.

Each calls a method of the model on every partition; ``lazy_result`` puts the results together.
First what one partition gives, then the labels of a fit, then the functions for users.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from dask import compute, delayed
from sklearn.utils.validation import check_is_fitted

import smallvar
from smallvar._centers.hdp import local_clusters
from smallvar._core.estimator import check_columns, copy_of, rows_as_fitted
from smallvar._core.fitted_rows import without_rows
from smallvar._core.row_model import measure_mixture
from smallvar._core.validation import as_weights, check_flag, check_reach
from smallvar._sweeps.in_order import error_of
from smallvar.dask._executor import (
    Block,
    Parts,
    call_realigned,
    checked_sets,
    name_partition,
    threads_here,
)
from smallvar.dask._sweep import labels_after

# estimators that are fitted to collections, and parameters that must have their defaults, as other
# values cannot be honored for partitions
SUPPORTED = {
    smallvar.DPMeans: ("n_init", "metric", "min_cluster_size", "link_penalty"),
    smallvar.SphericalDPMeans: ("n_init",),
    smallvar.MiniBatchDPMeans: ("batch_size", "max_iter", "tol"),
    smallvar.HDPMeans: ("n_init", "n_clusters", "divergence"),
    smallvar.ShapeMeans: ("min_cluster_size",),
}
LAZY = "labels_", "local_labels_"  # attributes that a model is sent to workers without


def supported(model):
    """The class of smallvar that a model is of; TypeError if that is not one of SUPPORTED."""
    kinds = (kind for kind in type(model).__mro__ if kind.__module__.startswith("smallvar."))
    kind = next(kinds, None)
    if kind not in SUPPORTED:
        names = ", ".join(kind.__name__ for kind in SUPPORTED)
        raise TypeError(f"model must be one of {names}, got {type(model).__name__}")
    return kind


# ---- one partition -------------------------------------------------------------------------------


def _call_on_part(method, empty, options, model, X, *_):
    """Result of a method of a model for a partition; ``empty`` where it has no rows."""
    return getattr(model, method)(X, **options) if X.shape[0] else empty


def _error_of_part(model, X, weight, *_):
    """The weighted error of a partition: its score without the penalty for clusters; no sets."""
    weight = None if weight is None else as_weights(weight, X.shape[0])
    if X.shape[0] == 0 or (weight is not None and not weight.any()):
        return 0.0, set()
    penalty = model.lam_ * len(model.cluster_centers_)
    return -(model.score(X, sample_weight=weight) + penalty), set()


def _rows_in_sets(model, X, weight, groups, _):
    """Predicted labels of a partition with data sets, its checked rows, weights and Groups.

    The weights may all be zero.
    """
    n = X.shape[0]
    weight, sets = None if weight is None else as_weights(weight, n), checked_sets(groups, n)
    if n == 0:
        return np.empty(0, dtype=np.int32), X, weight, sets
    X = rows_as_fitted(model, X)
    check_reach(X)
    # rows without a group, or of one that is not in the fit, have the number after all groups
    unknown = np.full(n, len(model.groups_), dtype=np.int32)
    group = unknown if groups is None else sets.among(model.groups_)
    return local_clusters(model).assign(X, group, weight, threads_here()), X, weight, sets


def _labels_in_sets(*arguments):
    """Predicted labels of a partition with data sets."""
    return _rows_in_sets(*arguments)[0]


def _error_in_sets(model, *part):
    """Squared error of a partition, and its local clusters: (name of data set, label) pairs."""
    labels, X, weight, sets = _rows_in_sets(model, *part)
    if len(labels) == 0:
        return 0.0, set()
    error = error_of(X, labels, model.cluster_centers_, threads_here(), weight)
    used = slice(None) if weight is None else weight > 0.0
    names = sets.names[sets.number[used]].tolist()
    return error, set(zip(names, labels[used].tolist(), strict=True))


def _fitted_labels_in_sets(step, remap, sets_before, model, X, weight, groups, p):
    """Global and local labels of the rows of a partition, shape (n, 2), by the last step again.

    ``remap`` are the final numbers of the step's global clusters.
    """
    n = X.shape[0]
    out = np.empty((n, 2), dtype=np.int32)
    if n == 0:
        return out
    X, sets = rows_as_fitted(model, X), checked_sets(groups, n)
    weight = None if weight is None else as_weights(weight, n)
    rows = np.arange(n) if weight is None else np.flatnonzero(weight)
    if len(rows):
        block = Block(X[rows], None if weight is None else weight[rows], n, sets.of(rows))
        labels, out[rows, 1] = labels_after(p, step, block, sets_before[p])
        out[rows, 0] = remap[labels]
    if len(rows) < n:
        local_clusters(model).label_idle(out, X, weight, sets, threads_here())
    return out


# ---- all partitions ------------------------------------------------------------------------------


def call_on_part(function, *arguments):
    """Call a function on a partition, whose number, the last argument, errors name."""
    with name_partition(arguments[-1]):
        return call_realigned(function, *arguments)


def delayed_on_parts(function, model, parts):
    """Delayed results of ``function(model, X, weight, groups, p)`` for each partition p."""
    shared, function = delayed(model, traverse=False), delayed(partial(call_on_part, function))
    return [function(shared, *part, p) for p, part in enumerate(parts.each)]


def array_of_parts(function, model, parts, dtype, *width):
    """Dask array of the results of ``delayed_on_parts``.

    ``width`` is the number of columns, left out for arrays of one dimension.
    """
    sizes = [np.nan] * len(parts.each) if parts.sizes is None else parts.sizes
    results = zip(sizes, delayed_on_parts(function, model, parts), strict=True)
    arrays = [da.from_delayed(rows, (n, *width), dtype=dtype) for n, rows in results]
    return da.concatenate(arrays, allow_unknown_chunksizes=True)


def labels_of_parts(model, parts):
    """Lazy labels of ``parts``, by the method ``predict``."""
    label = partial(_call_on_part, "predict", np.empty(0, dtype=np.int32), {})
    return array_of_parts(label, without_rows(model, *LAZY), parts, np.int32)


def labels_of_sets(model, parts, sweep):
    """Lazy global and local labels after a fit of a hard HDP: by the last step of its sweep."""
    last = replace(sweep.last_step, keep=False, sums=False)
    label = partial(_fitted_labels_in_sets, last, sweep.remap, sweep.sets_before)
    labels = array_of_parts(label, without_rows(model, *LAZY), parts, np.int32, 2)
    return labels[:, 0], labels[:, 1]


def new_parts(model, X, sample_weight=None, groups=None):
    """The Parts of new rows, whose columns must be those of the fit of the model."""
    parts = Parts(X, sample_weight, groups)
    check_columns(model, parts.no_rows())
    return parts


def lazy_result(model, method, X, unknown=None):
    """Dask array of the results of a method of the model for the partitions of X."""
    supported(model)
    check_is_fitted(model)
    if not hasattr(model, method):
        raise TypeError(f"model must have the method {method}, got {type(model).__name__}")
    parts, model, dtype, shape, options = new_parts(model, X), copy_of(model), np.float64, (), {}
    for name in LAZY:
        vars(model).pop(name, None)
    if method == "transform":
        dtype, shape = parts.dtype, (model.n_clusters_,)
    else:
        measure_mixture(model)  # here, where the rows of the fit, or a sample, may be
    if unknown is not None:
        options, shape = {"unknown": unknown}, (model.n_clusters_ + unknown,)
    call = partial(_call_on_part, method, np.empty((0, *shape), dtype), options)
    return array_of_parts(call, model, parts, dtype, *shape)


# ---- for users -----------------------------------------------------------------------------------


def _check_sets(model, groups, sample_weight=None):
    """Whether a model is of data sets; ValueError where ``groups`` or weights have no meaning."""
    if supported(model) is smallvar.HDPMeans:
        return True
    for name, value in (("groups", groups), ("sample_weight", sample_weight)):
        if value is not None:
            raise ValueError(f"{name} must be None for {type(model).__name__}: it is for HDPMeans")
    return False


def predict(model: Any, X: Any, *, groups: Any = None, sample_weight: Any = None) -> Any:
    """Label new rows, as the method ``predict`` of the model does.

    Parameters
    ----------
    model : DPMeans, SphericalDPMeans, MiniBatchDPMeans, HDPMeans or ShapeMeans
        A fitted estimator of smallvar.
    X : dask Array or DataFrame of shape (n_samples, n_features)
        New data, with the columns of the fit.
    groups : dask Array or Series, or array-like, or a column name, default=None
        For HDPMeans: the data set of each row, which need not be whole in a partition.
    sample_weight : dask Array or Series, or array-like, of shape (n_samples,), default=None
        For HDPMeans: weights >= 0.

    Returns
    -------
    labels : dask Array of shape (n_samples,), int32
        Lazy: computed where the rows are.

    Examples
    --------
    >>> import dask.array as da
    >>> import smallvar.dask
    >>> model = smallvar.DPMeans(lam=4.0).fit([[0.0], [1.0], [9.0]])
    >>> smallvar.dask.predict(model, da.from_array([[8.0], [0.0]], chunks=1)).compute()
    array([1, 0], dtype=int32)
    """
    check_is_fitted(model)
    in_sets = _check_sets(model, groups, sample_weight)
    parts = new_parts(model, X, sample_weight, groups)
    if not in_sets:
        return labels_of_parts(model, parts)
    return array_of_parts(_labels_in_sets, without_rows(model, *LAZY), parts, np.int32)


def transform(model: Any, X: Any) -> Any:
    """Compute distances of new rows, as the method ``transform`` of the model does.

    Parameters
    ----------
    model : DPMeans, SphericalDPMeans, MiniBatchDPMeans or ShapeMeans
        A fitted estimator of smallvar.
    X : dask Array or DataFrame of shape (n_samples, n_features)
        New data, with the columns of the fit.

    Returns
    -------
    distances : dask Array of shape (n_samples, n_clusters)
        Lazy; float32 for float32 data.

    Examples
    --------
    >>> import dask.array as da
    >>> import smallvar.dask
    >>> model = smallvar.DPMeans(lam=4.0).fit([[0.0], [1.0], [9.0]])
    >>> smallvar.dask.transform(model, da.from_array([[8.0], [0.0]], chunks=1)).compute()
    array([[7.5, 1. ],
           [0.5, 9. ]])
    """
    return lazy_result(model, "transform", X)


def predict_proba(model: Any, X: Any, *, unknown: bool = False) -> Any:
    """Compute probabilities of clusters, as the method ``predict_proba`` of the model does.

    Parameters
    ----------
    model : DPMeans, SphericalDPMeans, MiniBatchDPMeans, HDPMeans or ShapeMeans
        A fitted estimator of smallvar.
    X : dask Array or DataFrame of shape (n_samples, n_features)
        New data, with the columns of the fit.
    unknown : bool, default=False
        Add a last column: the probability that the row belongs to no known cluster.

    Returns
    -------
    probabilities : dask Array of shape (n_samples, n_clusters) or (n_samples, n_clusters + 1)
        Lazy.

    Examples
    --------
    >>> import dask.array as da
    >>> import smallvar.dask
    >>> model = smallvar.DPMeans(lam=4.0).fit([[0.0], [1.0], [9.0], [9.5]])
    >>> probabilities = smallvar.dask.predict_proba(model, da.from_array([[8.0], [0.0]], chunks=1))
    >>> probabilities.compute().round(2)
    array([[0., 1.],
           [1., 0.]])
    """
    check_flag(unknown, "unknown")
    return lazy_result(model, "predict_proba", X, unknown)


def score_samples(model: Any, X: Any) -> Any:
    """Log densities of rows, as the method ``score_samples`` of the model gives them.

    Parameters
    ----------
    model : DPMeans, SphericalDPMeans, MiniBatchDPMeans, HDPMeans or ShapeMeans
        A fitted estimator of smallvar.
    X : dask Array or DataFrame of shape (n_samples, n_features)
        New data, with the columns of the fit.

    Returns
    -------
    log_density : dask Array of shape (n_samples,), float64
        Lazy.

    Examples
    --------
    >>> import dask.array as da
    >>> import smallvar.dask
    >>> model = smallvar.DPMeans(lam=4.0).fit([[0.0], [1.0], [9.0], [9.5]])
    >>> density = smallvar.dask.score_samples(model, da.from_array([[0.5], [5.0]], chunks=1))
    >>> int(density.argmax().compute())
    0
    """
    return lazy_result(model, "score_samples", X)


def outlier_scores(model: Any, X: Any) -> Any:
    """How strange rows are, as the method ``outlier_scores`` of the model tells.

    Parameters
    ----------
    model : DPMeans, SphericalDPMeans, MiniBatchDPMeans, HDPMeans or ShapeMeans
        A fitted estimator of smallvar.
    X : dask Array or DataFrame of shape (n_samples, n_features)
        New data, with the columns of the fit.

    Returns
    -------
    scores : dask Array of shape (n_samples,), float64
        From 0, ordinary, to 1, like no row of the fit. Lazy.

    Examples
    --------
    >>> import dask.array as da
    >>> import smallvar.dask
    >>> model = smallvar.DPMeans(lam=4.0).fit([[0.0], [1.0], [9.0], [9.5]])
    >>> scores = smallvar.dask.outlier_scores(model, da.from_array([[0.5], [50.0]], chunks=1))
    >>> scores.compute().round(1)
    array([0., 1.])
    """
    return lazy_result(model, "outlier_scores", X)


def score(model: Any, X: Any, *, sample_weight: Any = None, groups: Any = None) -> float:
    """Compute minus the objective of rows at the fitted centers, at once.

    Parameters
    ----------
    model : DPMeans, SphericalDPMeans, MiniBatchDPMeans or HDPMeans
        A fitted estimator of smallvar.
    X : dask Array or DataFrame of shape (n_samples, n_features)
        Data, with the columns of the fit.
    sample_weight : dask Array or Series, or array-like, of shape (n_samples,), default=None
        Weights >= 0.
    groups : dask Array or Series, or array-like, or a column name, default=None
        For HDPMeans: the data set of each row. None: all are from one.

    Returns
    -------
    score : float
        That of the method ``score`` of the model, up to rounding.

    Examples
    --------
    >>> import dask.array as da
    >>> import smallvar.dask
    >>> model = smallvar.DPMeans(lam=4.0).fit([[0.0], [1.0], [9.0]])
    >>> smallvar.dask.score(model, da.from_array([[0.0], [1.0], [9.0]], chunks=2))
    -8.5
    """
    check_is_fitted(model)
    in_sets = _check_sets(model, groups)
    if not hasattr(model, "score"):
        raise TypeError(f"model must have an objective of new rows, got {type(model).__name__}")
    parts = new_parts(model, X, sample_weight, groups)
    error_of_part = _error_in_sets if in_sets else _error_of_part
    found = compute(delayed_on_parts(error_of_part, without_rows(model, *LAZY), parts))[0]
    errors, used = zip(*found, strict=True)
    penalty = model.lam_global_ if in_sets else model.lam_
    in_data_sets = model.lam_local_ * len(set().union(*used)) if in_sets else 0.0
    return -(sum(errors) + in_data_sets + penalty * len(model.cluster_centers_))
