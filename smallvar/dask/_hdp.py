"""The hard HDP on dask collections: each data set whole in one partition."""

from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from dask import compute, delayed, is_dask_collection

import smallvar
from smallvar._centers.hdp import HDPStart, LocalClusters, local_clusters
from smallvar._core.estimator import keywords_only, unchanged_on_error, warn_not_converged
from smallvar._core.validation import check_lam, check_number, check_option, check_reach
from smallvar._sweeps.in_order import error_of
from smallvar.dask._hdp_sweep import TeamSweep, labels_after
from smallvar.dask._lazy import Remote, each_part, joined
from smallvar.dask._part import add_facts, add_sums, facts, whole
from smallvar.dask._sets import (
    SetParts,
    all_names,
    check_whole,
    names_of,
    prepared_sets,
    united,
    whole_sets,
    with_weight,
)
from smallvar.dask._sweep import MOST, TeamFrame, sums_of
from smallvar.dask._team import current_client, here, team_of, threads_here

# ---- one partition -------------------------------------------------------------------------------


def both_labels(model, n_features, local, p, step, own, remap, X, pair):
    """Global and local labels of the rows of a partition, (n, 2).

    ``local`` are the local clusters of the data sets of this partition.
    """
    X, weight, sets = whole_sets(model, n_features, X, pair)
    out = np.empty((X.shape[0], 2), dtype=np.int32)
    rows = np.arange(len(X)) if weight is None else np.flatnonzero(weight)
    if len(rows):
        labels, out[rows, 1] = labels_after(p, step, with_weight(X, weight, sets), own)
        out[rows, 0] = remap[labels]
    if len(rows) < len(X):
        local.label_idle(out, X, weight, sets, threads_here())
    return out


def predicted(model, X, pair):
    """Labels of new rows of a partition, the rows and their data sets; any weights may be 0."""
    X, weight, sets = whole_sets(model, model.n_features_in_, X, pair)
    group = np.full(len(X), len(model.groups_), dtype=np.int32)
    if len(X) == 0:
        return group, X, weight, sets
    check_reach(X)
    if pair[1] is not None:
        group = sets.among(model.groups_)
    labels = local_clusters(model).assign(X, group, weight, threads_here())
    return labels, X, weight, sets


def predicted_labels(model, X, pair):
    """Labels alone."""
    return predicted(model, X, pair)[0]


def score_of(model, X, pair):
    """Squared error of a partition, and the names and global clusters of its local ones."""
    labels, X, weight, sets = predicted(model, X, pair)
    if len(X) == 0:
        return 0.0, set()
    error = error_of(X, labels, model.cluster_centers_, threads_here(), weight)
    used = slice(None) if weight is None else weight > 0.0
    return error, set(
        zip(sets.names[sets.number[used]].tolist(), labels[used].tolist(), strict=True)
    )


# ---- all of them ---------------------------------------------------------------------------------


class HDPMeans(Remote, smallvar.HDPMeans):
    """Hard Gaussian HDP on a dask collection: the results of one machine.

    Minimizes, over labels, centers and the numbers of clusters,

        sum_i ||x_i - mu_{z_i}||^2 + lam_local * (number of local clusters) + lam_global * K,

    as :class:`smallvar.HDPMeans` does with numbers for both penalties: labels, centers and the
    objective after every sweep are the same, bit for bit. Each data set must lie whole in one
    partition, whichever. There is no "auto" here, nor "farthest-first": both penalties must be
    numbers. Those that :class:`smallvar.HDPMeans` finds in some whole data sets are a beginning.

    Parameters
    ----------
    lam_local : float
        Penalty for each local cluster, in squared data units, > 0.
    lam_global : float
        Penalty for each global cluster, in squared data units, > 0.
    max_iter : int, default=300
        Largest number of sweeps; those that open global clusters do not
        count, but there are at most ``max_iter + n_samples``.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times its value after the first
        sweep. 0 runs to a fixed point.
    persist : bool or "auto", default="auto"
        Hold the data in the memory of the workers; else every pass reads them anew, two passes a
        sweep. "auto": if they take at most half of it.
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
        Global cluster of each row. Lazy: the last sweep once more.
    local_labels_ : dask Array of shape (n_samples,), int32
        Number of the row's local cluster within its data set. Lazy.
    groups_ : ndarray of shape (n_groups,)
        The data sets, sorted.
    local_clusters_ : list of ndarray of int32
        For each data set, the global clusters of its local ones: a row with local label l in data
        set j has the global label ``local_clusters_[j][l]``.
    n_local_clusters_ : ndarray of shape (n_groups,), int64
        Number of local clusters of each data set.
    n_clusters_ : int
        Number of global clusters.
    inertia_ : float
        Weighted sum of squared distances to the own centers.
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
    lie in. It is fastest, by fewer rounds while clusters open, where partitions follow each other
    in that order, as after ``set_index``. For penalties that the data choose, fit
    :class:`smallvar.HDPMeans` to a sample of whole data sets, and take its ``lam_local_`` and
    ``lam_global_``.

    A sweep depends on the centers and on which of them each data set uses. Both are kept outside
    of the workers, so a worker that dies changes nothing but the time.

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

    @keywords_only("squared data units")
    def __init__(
        self,
        *,
        lam_local: float,
        lam_global: float,
        max_iter: int = 300,
        tol: float = 0.0,
        persist: bool | Literal["auto"] = "auto",
        max_opened: int = MOST,
        verbose: int = 0,
    ) -> None:
        self.lam_local = lam_local
        self.lam_global = lam_global
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
        if not isinstance(self.persist, bool):
            check_option(self.persist, "persist", ("auto",))
        check_number(self.max_opened, "max_opened", low=1, integer=True)
        self._check_starts()

    def to_local(self, labels: bool = True) -> smallvar.HDPMeans:
        """Return the fitted estimator of one machine with the same centers.

        Parameters
        ----------
        labels : bool, default=True
            Compute ``labels_`` and ``local_labels_``, which takes memory for all rows; else it has
            none.

        Returns
        -------
        model : smallvar.HDPMeans
            It predicts the same.
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
            partitions of X; the name is that of a column of a DataFrame, which is then none of the
            data.
        sample_weight : dask Array or Series, or array-like, of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each. A dask collection must have the
            partitions of X.

        Returns
        -------
        self : HDPMeans
            The fitted estimator.
        """
        with unchanged_on_error(self):
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
        prepare = partial(prepared_sets, self._as_local(), parts.n_features)

        def look(team):
            known = team.call(names_of, None, fold=united)[0]
            return known, {p: size for p, (size, *_) in known.items()}

        together = client, parts, parts.pairs, prepare, self.persist, look
        with team_of(*together) as (team, known, sizes):
            self._learn_columns(parts)
            return self._fit_team(team, dict(sorted(known.items())), sizes, parts)

    def _fit_team(self, team, known, sizes, parts):
        if not any(sizes.values()):
            raise ValueError("X must have at least one row, got none in any partition")
        check_reach(np.array([[max(reach for *_, reach in known.values())]]))
        check_whole(known)
        team.keep(p for p, (_, _, names, _) in known.items() if len(names))
        if not team.numbers:
            raise ValueError("sample_weight must have a positive entry, got all zeros")
        total = team.call(facts, None, fold=add_facts)[0]
        frame = TeamFrame(team, total)
        sums = team.call(whole, frame.layout, fold=add_sums)[0]
        center, mass = sums_of(frame.layout, *sums).center(0)
        names = [known[p][2] for p in team.numbers]
        sets = all_names(names)
        ends = np.cumsum([len(some) for some in names])[:-1]
        numbers = dict(zip(team.numbers, np.split(sets.number, ends), strict=True))
        lam_local, lam_global = float(self.lam_local), float(self.lam_global)
        # the global penalty, or more than rounding alone can make
        floor = max(lam_global, frame.rounding * mass)
        sweep = TeamSweep(team, frame.layout, center, numbers, lam_local, floor, self.max_opened)
        start = HDPStart(sweep, lam_local, lam_global).run(total.n, self._loop())
        self._dtype = total.dtype
        self.groups_ = sets.names
        lists = [None] * len(sets)
        for own in sweep.own.values():
            used = np.split(own.used, np.cumsum(own.sizes)[:-1])
            for j, clusters in zip(own.numbers.tolist(), used, strict=True):
                lists[j] = clusters
        self.local_clusters_ = lists
        self.n_local_clusters_ = np.array([len(used) for used in lists], dtype=np.int64)
        self.cluster_centers_, self.n_clusters_ = sweep.centers, sweep.k
        self.inertia_ = sweep.error
        self.objective_path_ = start.objectives(lam_global)
        self.objective_ = float(self.objective_path_[-1])
        self.lam_local_, self.lam_global_ = lam_local, lam_global
        self.n_iter_ = start.progress.n_iter
        both = self._labels(parts, sweep, sizes)
        self.labels_, self.local_labels_ = both[:, 0], both[:, 1]
        return start.progress.ended

    def _labels(self, parts, sweep, sizes):
        """Both labels of all rows, a lazy dask array: the last sweep once more."""
        last = delayed(replace(sweep.last, keep=False, sums=False))
        n_features = parts.n_features
        out = []
        for p, rows in enumerate(parts.rows):
            own, begun = sweep.own.get(p), sweep.begun.get(p)
            chosen = [] if own is None else own.numbers.tolist()
            used = [self.local_clusters_[j] for j in chosen]
            names, centers = self.groups_[chosen], self.cluster_centers_
            local = LocalClusters(names, used, centers, self.lam_local_)
            task = p, last, begun, sweep.remap, rows, parts.pairs[p]
            out.append(delayed(here)(both_labels, self._as_local(), n_features, local, *task))
        return joined(out, sizes, np.int32, 2)

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
            Weights >= 0; None means 1 each. A light row does not pay for a local cluster where a
            heavy one does, and one of weight zero never.

        Returns
        -------
        labels : dask Array, or ndarray for what is no dask collection, (n_samples,), int32
            Index into ``cluster_centers_``; at a tie the lowest one. Lazy.
        """
        model = self._fitted_local()
        if not is_dask_collection(X):
            return model.predict(X, groups, sample_weight)
        parts = SetParts(X, groups, sample_weight)
        self._check_columns(parts)
        out = each_part(predicted_labels, model, parts.rows, parts.pairs)
        return joined(out, parts.sizes, np.int32)

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
            As the estimator of one machine has it, up to rounding.
        """
        model = self._fitted_local()
        if not is_dask_collection(X):
            return model.score(X, groups=groups, sample_weight=sample_weight)
        parts = SetParts(X, groups, sample_weight)
        self._check_columns(parts)
        scores = compute(each_part(score_of, model, parts.rows, parts.pairs))[0]
        errors, clusters = zip(*scores, strict=True)
        n_local = len(set().union(*clusters))
        return -(sum(errors) + self.lam_local_ * n_local + self.lam_global_ * self.n_clusters_)

    def _check_columns(self, parts):
        if parts.n_features != self.n_features_in_:
            raise ValueError(
                f"X must have {self.n_features_in_} columns, as in fit, got {parts.n_features}"
            )
