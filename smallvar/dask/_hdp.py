"""The hard HDP on dask collections, each data set whole in one partition.

First what is computed for one partition after the fit (labels, predictions, scores), then the
estimator. Its sweep over partitions is in _hdp_sweep.py.
"""

from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from dask import compute, delayed, is_dask_collection

import smallvar
from smallvar._centers.hdp import local_clusters
from smallvar._centers.hdp_problem import HDPStart, LocalClusters
from smallvar._core.estimator import keywords_only, warn_not_converged
from smallvar._core.validation import check_lam, check_number, check_option, check_reach
from smallvar._sweeps.in_order import error_of
from smallvar.dask._executor import call_realigned, current_client, open_executor, threads_here
from smallvar.dask._hdp_sweep import CollectionHDPSweep, labels_after
from smallvar.dask._lazy import LocalCounterpart, concatenate_delayed, delayed_on_parts
from smallvar.dask._part import facts_of_parts, merge_facts
from smallvar.dask._sets import (
    SetParts,
    check_not_split,
    checked_set_block,
    checked_sets,
    concatenated_names,
    merge_dicts,
    names_of_sets,
    without_idle_rows,
)
from smallvar.dask._sweep import MAX_OPENED, CollectionFrame, overall_mean

# ---- one partition -------------------------------------------------------------------------------


def label_pairs(model, n_features, local, p, step, sets_of_part, remap, X, pair):
    """Global and local labels of the rows of a partition, shape (n, 2), by the last step again.

    ``local`` are the local clusters of the data sets of this partition after the fit; rows of
    weight zero are labeled by them. ``remap`` are the final numbers of the step's global clusters.
    """
    X, weight, sets = checked_sets(model, n_features, X, pair)
    out = np.empty((X.shape[0], 2), dtype=np.int32)
    rows = np.arange(len(X)) if weight is None else np.flatnonzero(weight)
    if len(rows):
        block = without_idle_rows(X, weight, sets)
        labels, out[rows, 1] = labels_after(p, step, block, sets_of_part)
        out[rows, 0] = remap[labels]
    if len(rows) < len(X):
        local.label_idle(out, X, weight, sets, threads_here())
    return out


def predict_rows(model, X, pair):
    """Predicted labels of a partition, with its checked rows, weights and data sets.

    ``model`` is the fitted local estimator; weights may all be zero.
    """
    X, weight, sets = checked_sets(model, model.n_features_in_, X, pair)
    # rows without a group, or of one that is not in the fit, have the number after all groups
    group = np.full(len(X), len(model.groups_), dtype=np.int32)
    if len(X) == 0:
        return group, X, weight, sets
    check_reach(X)
    if pair[1] is not None:
        group = sets.among(model.groups_)
    labels = local_clusters(model).assign(X, group, weight, threads_here())
    return labels, X, weight, sets


def predict_labels(model, X, pair):
    """Predicted labels of a partition."""
    return predict_rows(model, X, pair)[0]


def error_and_locals(model, X, pair):
    """Squared error of a partition, and its local clusters: (name of data set, label) pairs."""
    labels, X, weight, sets = predict_rows(model, X, pair)
    if len(X) == 0:
        return 0.0, set()
    error = error_of(X, labels, model.cluster_centers_, threads_here(), weight)
    used = slice(None) if weight is None else weight > 0.0
    return error, set(
        zip(sets.names[sets.number[used]].tolist(), labels[used].tolist(), strict=True)
    )


# ---- the estimator -------------------------------------------------------------------------------


class HDPMeans(LocalCounterpart, smallvar.HDPMeans):
    """Hard Gaussian HDP on a dask collection: the results of one machine.

    Minimizes, over labels, centers and the numbers of clusters,

        sum_i ||x_i - mu_{z_i}||^2 + lam_local * (number of local clusters) + lam_global * K,

    as :class:`smallvar.HDPMeans` does with numbers for both penalties: labels, centers and the
    objective after every sweep are equal, bit for bit. Each data set must lie whole in one
    partition, whichever. Both penalties must be numbers; the rules "auto" and "farthest-first" of
    :class:`smallvar.HDPMeans` are not available, see Notes.

    Parameters
    ----------
    lam_local : float
        Penalty for each local cluster, in squared data units, > 0.
    lam_global : float
        Penalty for each global cluster, in squared data units, > 0.
    divergence : {"squared_euclidean"}, default="squared_euclidean"
        Other divergences of :class:`smallvar.HDPMeans` are refused.
    max_iter : int, default=300
        Largest number of sweeps; those that open global clusters do not
        count, but there are at most ``max_iter + n_samples``.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times its value after the first
        sweep. 0 runs to a fixed point.
    persist : bool or "auto", default="auto"
        Whether the workers hold the data in memory during the fit. Otherwise every pass reads them
        again, two passes a sweep. "auto": hold them if they take at most half of the memory.
    max_opened : int, default=100_000
        Largest number of global clusters that a partition may open in a sweep; beyond it, ``fit``
        ends with an error.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        (Weighted) means of the global clusters, over all data sets.
    labels_ : dask Array of shape (n_samples,), int32
        Global cluster of each row. Lazy: computed by the last sweep once more.
    local_labels_ : dask Array of shape (n_samples,), int32
        Number of the row's local cluster within its data set. Lazy.
    groups_ : ndarray of shape (n_groups,)
        The data sets, sorted.
    local_clusters_ : list of ndarray of int32
        For each data set, the global cluster of each local one: a row with local label l in data
        set j has the global label ``local_clusters_[j][l]``.
    n_local_clusters_ : ndarray of shape (n_groups,), int64
        Number of local clusters of each data set.
    n_clusters_ : int
        Number of global clusters.
    inertia_ : float
        Weighted sum of squared distances to the assigned centers.
    objective_ : float
        ``inertia_ + lam_local_ * n_local_clusters_.sum() + lam_global_ * n_clusters_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep; it never rises.
    lam_local_ : float
        The local penalty used.
    lam_global_ : float
        The global penalty used.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit``, for a data set in more than one partition, for data that are not finite,
        numeric and two-dimensional, and for parameters out of their bounds. The estimator is then
        as it was before.
    RuntimeError
        If a partition opens more than ``max_opened`` clusters, or the cluster fails.

    See Also
    --------
    smallvar.HDPMeans : For data of one machine; it also chooses penalties.
    smallvar.hdp_lambdas : Penalties from guesses of the numbers of clusters.

    Notes
    -----
    Data sets are visited in the order of their names, as on one machine, whatever partitions they
    lie in. Fits are fastest where partitions follow each other in that order, as after
    ``set_index``: they then take fewer rounds while clusters open. To choose penalties from the
    data, fit :class:`smallvar.HDPMeans` to a sample of whole data sets, and take its ``lam_local_``
    and ``lam_global_``.

    A sweep depends on the centers and on which of them each data set uses. The driver has both, so
    a worker that dies costs time, but does not change the result.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means: new algorithms via Bayesian nonparametrics, section
    4, Algorithm 2. Pan, Gonzalez, Jegelka, Broderick & Jordan (2013), Optimistic concurrency
    control for distributed unsupervised learning.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from smallvar.dask import HDPMeans
    >>> X = da.from_array(np.array([[0.0], [1.0], [10.0], [0.5], [20.0], [21.0]]), chunks=3)
    >>> groups = da.from_array(np.array(["a", "a", "a", "b", "b", "b"]), chunks=3)
    >>> model = HDPMeans(lam_local=2.0, lam_global=5.0).fit(X, groups=groups)
    >>> model.labels_.compute()
    array([1, 1, 0, 1, 2, 2], dtype=int32)
    >>> model.n_local_clusters_
    array([2, 2])
    """

    _local = smallvar.HDPMeans
    _lazy = ("labels_", "local_labels_")
    n_init = 1
    n_local = 5
    n_global = 15
    random_state = None
    n_threads = None

    @keywords_only
    def __init__(
        self,
        *,
        lam_local: float,
        lam_global: float,
        divergence: Literal["squared_euclidean"] = "squared_euclidean",
        max_iter: int = 300,
        tol: float = 0.0,
        persist: bool | Literal["auto"] = "auto",
        max_opened: int = MAX_OPENED,
        verbose: int = 0,
    ) -> None:
        self.lam_local = lam_local
        self.lam_global = lam_global
        self.divergence = divergence
        self.max_iter = max_iter
        self.tol = tol
        self.persist = persist
        self.max_opened = max_opened
        self.verbose = verbose

    def _check_parameters(self):
        for name in ("lam_local", "lam_global"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise ValueError(
                    f"{name} must be a number > 0 for a dask collection, got {value!r}: fit "
                    f"smallvar.HDPMeans to a sample of whole data sets and take its {name}_"
                )
            check_lam(value, finite=True, name=name)
        if self.divergence != "squared_euclidean":
            raise ValueError(
                "divergence must be 'squared_euclidean' for a dask collection, got "
                f"{self.divergence!r}: fit smallvar.HDPMeans"
            )
        if not isinstance(self.persist, bool):
            check_option(self.persist, "persist", ("auto",))
        check_number(self.max_opened, "max_opened", low=1, integer=True)
        self._check_starts()

    def to_local(self, labels: bool = True) -> smallvar.HDPMeans:
        """Return the fitted estimator of one machine with the same centers.

        Parameters
        ----------
        labels : bool, default=True
            Compute ``labels_`` and ``local_labels_``, which takes memory for all rows; otherwise
            the result has neither.

        Returns
        -------
        model : smallvar.HDPMeans
            Its predictions are those of this estimator.
        """
        return self._fitted_local(labels)

    def fit(
        self, X: Any, y: object = None, *, groups: Any = None, sample_weight: Any = None
    ) -> Self:
        """Cluster the data sets.

        Parameters
        ----------
        X : dask Array or DataFrame of shape (n_samples, n_features)
            The rows of all data sets, in any number of partitions of any length, those of a data
            set in one partition. All columns in one chunk.
        y : None
            Ignored.
        groups : dask Array or Series, or array-like, of shape (n_samples,), or a column name
            The data set that each row is from: numbers or strings. A dask collection must have the
            partitions of X. A name is that of a column of a DataFrame X; this column is then not
            part of the data.
        sample_weight : dask Array or Series, or array-like, of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each. A dask collection must have the
            partitions of X.

        Returns
        -------
        self : HDPMeans
            The fitted estimator.
        """
        self._check_parameters()
        if groups is None:
            raise ValueError(
                "groups must say which data set each row is from, got None: all rows from one "
                "are for smallvar.HDPMeans"
            )
        parts = SetParts(X, groups, sample_weight)
        with current_client() as client:
            ended = self._fit_on(client, parts)
        if not ended:
            warn_not_converged(self, self.n_iter_)
        return self

    def _fit_on(self, client, parts):
        """Fit on the workers of a client; returns whether the sweeps ended before max_iter."""
        prepare = partial(checked_set_block, self._as_local(), parts.n_features)

        def inspect(executor):
            info = executor.call(names_of_sets, None, fold=merge_dicts)[0]
            return info, {p: size for p, (size, *_) in info.items()}

        arguments = client, parts, parts.pairs, prepare, self.persist, inspect
        with open_executor(*arguments) as (executor, info, sizes):
            self._learn_columns(parts)
            return self._fit_partitions(executor, dict(sorted(info.items())), sizes, parts)

    def _fit_partitions(self, executor, info, sizes, parts):
        """Fit the partitions, and set the fitted attributes; returns whether the sweeps ended."""
        if not any(sizes.values()):
            raise ValueError("X must have at least one row, got none in any partition")
        check_reach(np.array([[max(max_abs for *_, max_abs in info.values())]]))
        check_not_split(info)
        executor.restrict(p for p, (_, _, names, _) in info.items() if len(names))
        if not executor.numbers:
            raise ValueError("sample_weight must have a positive entry, got all zeros")
        facts = executor.call(facts_of_parts, None, fold=merge_facts)[0]
        frame = CollectionFrame(executor, facts)
        center = overall_mean(executor, frame)
        # number the data sets of all partitions in the order of their names
        names = [info[p][2] for p in executor.numbers]
        sets = concatenated_names(names)
        ends = np.cumsum([len(part) for part in names])[:-1]
        numbers = dict(zip(executor.numbers, np.split(sets.number, ends), strict=True))
        lam_local, lam_global = float(self.lam_local), float(self.lam_global)
        sweep = CollectionHDPSweep(
            executor, frame.layout, center, numbers, lam_local, lam_global, self.max_opened
        )
        start = HDPStart(sweep, lam_local, lam_global).run(facts.n, self._loop())
        self._dtype = facts.dtype
        self.groups_ = sets.names
        lists = [None] * len(sets)  # global clusters of each data set
        for part_sets in sweep.sets.values():
            used = np.split(part_sets.used, np.cumsum(part_sets.n_local)[:-1])
            for j, clusters in zip(part_sets.numbers.tolist(), used, strict=True):
                lists[j] = clusters
        self.local_clusters_ = lists
        self.n_local_clusters_ = np.array([len(used) for used in lists], dtype=np.int64)
        self.cluster_centers_, self.n_clusters_ = sweep.centers, sweep.k
        self.inertia_ = sweep.error
        self.objective_path_ = start.objectives(lam_global)
        self.objective_ = float(self.objective_path_[-1])
        self.lam_local_, self.lam_global_ = lam_local, lam_global
        self.n_iter_ = start.progress.n_iter
        labels = self._labels(parts, sweep, sizes)
        self.labels_, self.local_labels_ = labels[:, 0], labels[:, 1]
        return start.progress.ended

    def _labels(self, parts, sweep, sizes):
        """Global and local labels of all rows, a lazy dask array: made by the last step again."""
        last = delayed(replace(sweep.last_step, keep=False, sums=False))
        n_features = parts.n_features
        out = []
        for p, rows in enumerate(parts.rows):
            part_sets, sets_before = sweep.sets.get(p), sweep.sets_before.get(p)
            chosen = [] if part_sets is None else part_sets.numbers.tolist()
            used = [self.local_clusters_[j] for j in chosen]
            names, centers = self.groups_[chosen], self.cluster_centers_
            local = LocalClusters(names, used, centers, self.lam_local_)
            task = p, last, sets_before, sweep.remap, rows, parts.pairs[p]
            out.append(
                delayed(call_realigned)(label_pairs, self._as_local(), n_features, local, *task)
            )
        return concatenate_delayed(out, sizes, np.int32, 2)

    def predict(self, X: Any, groups: Any = None, sample_weight: Any = None) -> Any:
        """Global cluster of new rows, at the costs of the fit; no row opens a global cluster.

        Parameters
        ----------
        X : dask Array or DataFrame, or array-like, of shape (n_samples, n_features)
            New data. Data sets need not be whole in a partition.
        groups : dask Array or Series, or array-like, or a column name, default=None
            The data set of each row, as for ``fit``. One that the fit has not seen, or None, has no
            local clusters yet, so that the nearest center is the cheapest.
        sample_weight : dask Array or Series, or array-like, of shape (n_samples,), default=None
            Weights >= 0; None means 1 each. The squared distance that a new local cluster saves
            counts times the weight, so a row of small weight opens one less easily, and a row of
            weight zero never.

        Returns
        -------
        labels : dask Array of shape (n_samples,), int32
            Index into ``cluster_centers_``; at a tie the lowest one. Lazy; an ndarray if X is not a
            dask collection.
        """
        model = self._fitted_local()
        if not is_dask_collection(X):
            return model.predict(X, groups, sample_weight)
        parts = SetParts(X, groups, sample_weight)
        self._check_columns(parts)
        out = delayed_on_parts(predict_labels, model, parts.rows, parts.pairs)
        return concatenate_delayed(out, parts.sizes, np.int32)

    def score(
        self, X: Any, y: object = None, groups: Any = None, sample_weight: Any = None
    ) -> float:
        """Return minus the objective of data at the fitted centers.

        Parameters
        ----------
        X : dask Array or DataFrame, or array-like, of shape (n_samples, n_features)
            Data. Data sets need not be whole in a partition.
        y : None
            Ignored.
        groups : dask Array or Series, or array-like, or a column name, default=None
            The data set of each row, as for ``predict``. None: all from one.
        sample_weight : dask Array or Series, or array-like, of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
            Equal to that of the estimator of one machine, up to rounding.
        """
        model = self._fitted_local()
        if not is_dask_collection(X):
            return model.score(X, groups=groups, sample_weight=sample_weight)
        parts = SetParts(X, groups, sample_weight)
        self._check_columns(parts)
        scores = compute(delayed_on_parts(error_and_locals, model, parts.rows, parts.pairs))[0]
        errors, clusters = zip(*scores, strict=True)
        n_local = len(set().union(*clusters))
        return -(sum(errors) + self.lam_local_ * n_local + self.lam_global_ * self.n_clusters_)

    def _check_columns(self, parts):
        if parts.n_features != self.n_features_in_:
            raise ValueError(
                f"X must have {self.n_features_in_} columns, as in fit, got {parts.n_features}"
            )
