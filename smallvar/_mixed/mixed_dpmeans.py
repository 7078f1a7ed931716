"""DP-means for tables whose columns are of several kinds, with cells that are missing."""

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from smallvar._centers.starts import DPFit, run_starts
from smallvar._core.estimator import (
    LabelsMixin,
    check_fitted,
    keywords_only,
    warn_not_converged,
)
from smallvar._core.mixture import RowsOfCosts, RowsOfLikelihoods
from smallvar._core.profiles import as_table
from smallvar._core.row_model import RowModelMixin, model_of_costs
from smallvar._core.tables import opened
from smallvar._core.validation import (
    check_lam,
    check_option,
    check_sparse,
    check_weights,
    exact_number,
)
from smallvar._mixed.columns import Column, pack, repack, weighted_columns
from smallvar._mixed.deviances import MixedDeviances, MixedVolumes, RowsOfTable
from smallvar._mixed.families import better_families
from smallvar._mixed.imputing import imputed
from smallvar._mixed.measure import SEED_COUNT, MixedSweep, check_values, measure_of
from smallvar._mixed.mixed_path import MixedPath, MixedProblem
from smallvar._mixed.mixed_search import find_path
from smallvar._mixed.profiles import profiles
from smallvar._selection.confidence import warn_if_unclear
from smallvar._selection.least_size import check_least_size, least_weight
from smallvar._selection.penalty import check_exact_number
from smallvar._selection.representatives import Representatives, find_representatives

# share of the clusters at which a path begins that it may find to be the best number
REFOUND = 0.6
MIXED_ALGORITHMS = ("serial", "delayed", "collapsed", "merge")


class _TableProblem(MixedProblem):
    """The rows of a table; ``asked`` are the names of columns whose kind the user has given."""

    asked: set[str]

    def path(self, rng):
        """The merge path; replaces the columns and the measure if other families are better."""
        fit = self.fit
        found = find_path(self, rng, fit.init)
        if fit.lam is not None or fit.init is not None or found.best == 1:
            return found
        # kinds were found from whole columns: within clusters others may fit better. Then the path
        # is found again by these, and taken if its criterion is lower
        columns, raised = better_families(self.packed, found, self.weight, found.rows, self.asked)
        if columns == self.packed.columns:
            return found
        new = copy(self)
        new.packed = replace(self.packed, columns=columns)
        new.measure = measure_of(new.packed, self.weight, self.n_threads)
        # from the clusters found, of which there are more than the best number; from seeds if most
        # of them are kept
        most, again = REFOUND * found.longest, None
        if found.best <= most:
            again = find_path(new, rng, found.found(found.longest))
        if again is None or again.best > most:
            again = find_path(new, rng, None)
        # criteria of different families leave out different terms: ``raised`` makes up for them
        if not again.value + raised < found.value:
            return found
        self.packed, self.measure = new.packed, new.measure
        return again


class MixedDPMeans(LabelsMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, RowModelMixin):
    """DP-means for tables of numbers, counts, flags and categories, with cells that are missing.

    Minimizes, over labels, the parameters of the clusters and their number K,

        sum_i w_i sum_j D_j(x_ij, mu_{z_i j}) + prior + lam * K,

    a sum over the cells that are there, with a divergence by the kind of the column ::

        "normal", "ordered"          (x - mu)^2 / (2 s_j^2)
        "poisson"                    (x log(x / mu) - x + mu) / s_j^2
        "exponential"                (x / mu - log(x / mu) - 1) / s_j^2
        "bernoulli", "categorical"   -log mu_x, mu_x the share of the level x in the cluster

    which are, but for terms that do not depend on the clusters, minus log-likelihoods, so that all
    columns count in one unit. The prior adds one row to each cluster, spread over the levels of a
    column as all rows are, which keeps shares off 0.

    Parameters
    ----------
    lam : float or "auto", default="auto"
        Penalty for each cluster, in units of the divergence, > 0 (0 is allowed together with
        ``max_clusters``). "auto" chooses the number of clusters by the likelihood of rows and
        labels along a merge path (see Notes).
    n_clusters : int, "auto" or None, default=None
        The exact number of clusters, if ``lam`` is "auto".
    columns : "auto" or dict, default="auto"
        The kind of a column by its name (in an array, its position): one of those above, "auto",
        or None to leave it out. Kinds that are not given are found from types and values.
    max_clusters : int, default=None
        Never have more clusters than this. At the cap a far row joins its nearest cluster.
    min_cluster_size : int or float, default=None
        The least sum of weights of the rows of a cluster, without weights their number; a float
        between 0 and 1 is a share of all. Only with ``lam="auto"``. The number of clusters is
        chosen among clusterings without smaller clusters: on the merge path the rows of smaller
        ones are set aside. They cost as much there as rows do on average in a single cluster, and
        at the end they join the nearest cluster without moving its center; see :class:`DPMeans`.
    algorithm : {"serial", "delayed", "collapsed", "merge"}, default="serial"
        As for :class:`DPMeans`.
    init : "mean" or table of shape (n_centers, n_features), default="mean"
        Rows to start at; "mean" is the cluster of all rows. With "auto" and "merge" they are where
        the path begins.
    n_init : int, default=1
        Number of starts; the one with the lowest objective is kept; with "auto" that with the
        lowest criterion.
    max_iter : int, default=300
        Largest number of sweeps; those that open clusters do not count.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times its value after the first
        sweep. 0 runs to a fixed point.
    random_state : int, RandomState instance or None, default=None
        Generator of the random orders, and of the rows and first clusters of a merge path.
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of each row.
    n_clusters_ : int
        Number of clusters found.
    columns_ : tuple of Column
        The columns that take part: ``name``, ``kind``, ``levels``, ``step``, and the ``reason`` for
        the kind in words.
    left_out_ : dict
        Names of the other columns, and why they are left out.
    cluster_parameters_ : dict
        For each column of ``columns_`` by name: the means of the clusters, of shape (n_clusters,);
        of bernoulli and categorical columns the shares of their levels, of shape (n_clusters,
        n_levels). Ordered columns whose levels are words have the mean position.
    spreads_ : dict
        The s_j of the columns of numbers, by name. With ``lam="auto"`` they are those within the
        clusters found, s_j^2 of poisson at least 1; for a number for ``lam`` the standard
        deviations of normal columns, 1 for others. They stay as they are during the sweeps.
    probabilities_ : ndarray of shape (n_samples,), float64
        The probability of its own cluster for each row, see :meth:`predict_proba`.
    outlier_scores_ : ndarray of shape (n_samples,), float64
        How strange each row is, from 0 to 1, see :meth:`outlier_scores`.
    representatives_ : Representatives
        Numbers of rows that stand for the clusters: ``centers``, those nearest to the centers, and
        ``boundaries``, a dict with two rows for each pair of clusters that touch.
    profiles_ : DataFrame, Table or dict of arrays
        A row for each cluster and column, first those that set the cluster apart: ``cluster``,
        ``size``, ``column``, ``kind``, ``summary`` (in words, with the number of rows if a tenth
        and more have no value), ``apart`` (by how much the cluster's cells are likelier by
        its own parameters than by those of all rows, nats for each row), ``saved`` (the column's
        share of that, summed over the cluster; NaN for one cluster),
        ``mean`` and ``spread`` or ``level`` and its ``share``, ``overall`` (that of all rows), and
        the share ``missing``. Of the library that the table is of; else a dict.
    inertia_ : float
        Weighted sum of the divergences from the own clusters, and the prior.
    objective_ : float
        ``inertia_ + lam_ * n_clusters_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep; it never rises.
    lam_ : float
        The penalty used.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    path_ : MixedPath
        The merge path, with "auto" or "merge" only: ``counts``, ``criterion``, ``confidence``,
        ``lam_low`` and ``lam_high`` as of :func:`cluster_path`.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit``, for columns that cannot be of their kind, and for parameters out of their
        bounds. The estimator is then as it was before.

    See Also
    --------
    DPMeans : Columns that are all numbers, in one unit.
    BregmanDPMeans : Columns that are all of one kind.

    Notes
    -----
    "auto" takes the K on the merge path that minimizes minus twice the log-likelihood of rows and
    labels, with the families above (of poisson and exponential columns with a spread of their own:
    Efron's double Poisson and the gamma law), plus 2 log(n) for every mean, log(n) for every share
    and 4 log(n) for every cluster. A normal column may have a variance in each cluster, averaged
    with that within all clusters as if the cluster had 3 rows more of that, for 1.6 log(n) each
    beyond the first; distances have one for all. A column in which the clusters differ by less
    than that is taken to have one distribution, be it flat, skewed, with long tails (Student t), or
    with a value that many rows share. Of more than 5,000 rows (20,000 for the last part of the
    path, and where 5,000 have no more than two clusters) a sample is used. These laws take the
    columns to be independent within a cluster: where they are not, as in many measurements of the
    same things, several clusters stand for one.

    A mean of 0 is infinitely far from every row with a positive count. Seeds of a path and rows of
    ``init`` therefore have poisson means between theirs and those of all rows, as a conjugate gamma
    prior gives them, and a cluster that opens at a row takes others in as with
    :class:`BregmanDPMeans`.

    A row opens a cluster where w * D(x, mu) less what it costs in a cluster of its own exceeds
    ``lam`` for every cluster. That cost is 0 but for codes, whose shares have the prior.

    The weight of a row is that of so many equal rows. With "auto" only ratios of weights matter:
    the prior of a cluster then is worth a row of mean weight, and all weights times a constant
    multiply the penalty and the objective by it, as for :class:`DPMeans`. A level whose rows all
    have weight zero counts as missing, and a column without two values in rows of positive weight
    is left out. A cluster without a cell in a column has the mean or the shares of all rows.

    References
    ----------
    Jiang, Kulis & Jordan (2012), Small-variance asymptotics for exponential family Dirichlet
    process mixture models. Banerjee, Merugu, Dhillon & Ghosh (2005), Clustering with Bregman
    divergences. Efron (1986), Double exponential families and their use in generalized linear
    regression.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import MixedDPMeans
    >>> X = {
    ...     "height": [1.0, 1.2, 0.9, np.nan, 5.1, 5.0, 4.8, 5.2],
    ...     "color": ["red", "red", "red", "red", "blue", None, "blue", "blue"],
    ... }
    >>> model = MixedDPMeans(n_clusters=2, random_state=0).fit(X)
    >>> model.labels_
    array([1, 1, 1, 1, 0, 0, 0, 0], dtype=int32)
    >>> model.cluster_parameters_["height"].round(2).tolist()
    [5.03, 1.03]
    >>> model.predict({"height": [np.nan, 4.0], "color": ["red", None]})
    array([1, 0], dtype=int32)
    """

    labels_: NDArray[np.int32]
    n_clusters_: int
    columns_: tuple[Column, ...]
    left_out_: dict[str, str]
    cluster_parameters_: dict[str, NDArray[np.float64]]
    spreads_: dict[str, float]
    inertia_: float
    objective_: float
    objective_path_: NDArray[np.float64]
    lam_: float
    n_iter_: int
    path_: MixedPath

    @keywords_only
    def __init__(
        self,
        *,
        lam: float | Literal["auto"] = "auto",
        n_clusters: int | Literal["auto"] | None = None,
        columns: Literal["auto"] | Mapping[Any, str | None] = "auto",
        max_clusters: int | None = None,
        min_cluster_size: float | None = None,
        algorithm: Literal["serial", "delayed", "collapsed", "merge"] = "serial",
        init: Any = "mean",
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.n_clusters = n_clusters
        self.columns = columns
        self.max_clusters = max_clusters
        self.min_cluster_size = min_cluster_size
        self.algorithm = algorithm
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    @property
    def profiles_(self) -> Any:  # numpydoc ignore=RT01
        """A row for each cluster and column, as a new table."""
        if "_profiles" not in vars(self):
            raise AttributeError(f"this {type(self).__name__} has no profiles_: it must be fitted")
        return as_table(self._profiles, self._library)

    @property
    def representatives_(self) -> Representatives:  # numpydoc ignore=RT01
        """The rows of the fit nearest to the centers, and beside the boundaries."""
        check_fitted(self)
        return self._of_rows("representatives_", self._represented)

    def _represented(self, rows):
        costs, n_threads = MixedDeviances(self._measure, self._centers), self._threads()
        data = rows.X, rows.weight, rows.labels, self.n_clusters_
        return find_representatives(*data, lambda part: costs(part, n_threads))

    @property
    def _n_features_out(self):
        return self.n_clusters_

    def _check_parameters(self):
        self._check_starts()
        check_lam(self.lam, capped=self.max_clusters is not None, options=("auto",))
        check_exact_number(self)
        check_least_size(self)
        check_option(self.algorithm, "algorithm", MIXED_ALGORITHMS)

    def fit(self, X: Any, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Cluster the rows of a table.

        Parameters
        ----------
        X : DataFrame, Table, dict of arrays, or array-like of shape (n_samples, n_features)
            The table, of pandas, polars, pyarrow or numpy. None, NaN and null are missing cells.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each.

        Returns
        -------
        self : MixedDPMeans
            The fitted estimator.
        """
        self._check_parameters()
        rng, n_threads = self._rng(), self._threads()
        self._note_library(X)
        # casts of numbers beyond float32 and of nulls warn, and are checked afterwards
        with np.errstate(over="ignore", invalid="ignore"):
            packed = pack(self._checked(X, reset=True), self.columns)
        self._note_columns(X, packed)
        given_weight = weight = check_weights(sample_weight, len(packed.numbers))
        least = least_weight(self, weight, len(packed.numbers))
        # the prior of a cluster is worth a row of mean weight
        weight = self._relative(weight, isinstance(self.lam, str), to_mean=True)
        packed = weighted_columns(packed, weight)
        check_values(packed)
        self.columns_, self.left_out_ = packed.columns, packed.left_out
        measure = measure_of(packed, weight, n_threads)
        least = None if least is None else least / self._unit
        best = self._fit(packed, measure, weight, rng, n_threads, least)
        packed = replace(packed, columns=self.columns_)  # of the families found
        self._profiles = profiles(
            packed, self.labels_, weight, self.cluster_parameters_, self.spreads_
        )
        self._remember_rows(RowsOfTable(packed.numbers, packed.codes), given_weight)
        if not best.ended:
            warn_not_converged(self, self.n_iter_)
        warn_if_unclear(self, best.path)
        return self

    def _checked(self, X, *, reset):
        """X itself if it is a table, else an array, checked by scikit-learn but for its values."""
        check_sparse(X, type(self).__name__, False)
        tables = "iloc", "column_names", "height", "collect"  # of pandas, pyarrow and polars
        # tables have columns of several types, which validate_data would make into one array
        if isinstance(X, Mapping) or any(map(partial(hasattr, X), tables)) or _fields(X):
            return X
        X = opened(X)
        if not hasattr(X, "dtype"):
            X = _array_of(X)
        return validate_data(
            self,
            X,
            reset=reset,
            dtype=None,
            ensure_all_finite="allow-nan",
            ensure_min_samples=2 if reset else 1,
        )

    def _note_columns(self, X, packed):
        """Set ``n_features_in_`` and, for a table, ``feature_names_in_``."""
        vars(self).pop("feature_names_in_", None)
        self.n_features_in_ = packed.n_columns
        names = [None]
        if packed.named and (isinstance(X, Mapping) or _fields(X)):
            names = list(_fields(X) or X)
        elif packed.named:  # of pyarrow, else of pandas and polars
            names = list(getattr(X, "column_names", X.columns))
        if all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.array(names, dtype=object)

    def _fit(self, packed, measure, weight, rng, n_threads, least):
        """Run all starts, and set the result from the best one, which is returned.

        ``least`` is the least weight of a cluster, None: any.
        """
        fit = DPFit(
            len(packed.numbers), None if isinstance(self.lam, str) else float(self.lam),
            self._loop(), self.algorithm, self.max_clusters, exact_number(self.n_clusters),
            self._centers_given(measure, n_threads), self.n_init,
        )  # fmt: skip
        sizes = least, self.min_cluster_size
        problem = _TableProblem(fit, packed, measure, weight, n_threads, *sizes)
        problem.asked = self._asked()
        best = run_starts(problem, rng)
        self.columns_ = problem.packed.columns
        self._learn_common(best)
        self._measure, self._centers = best.sweep.measure, best.centers
        named = self._measure.of_columns(self.columns_, self._centers)
        self.cluster_parameters_, self.spreads_ = named
        if problem.rows is not None:
            # idle rows, of weight zero, are not visited: they get the label that predict gives
            idle = np.flatnonzero(weight == 0)
            self.labels_[idle] = self._nearest(packed.numbers[idle], packed.codes[idle]).labels
        return best

    def _asked(self):
        """Names of the columns whose kind the user has given, or that are left out."""
        columns = {} if isinstance(self.columns, str) else self.columns
        asked = {key for key, kind in columns.items() if kind != "auto"}
        return {f"x{key}" if isinstance(key, int) else str(key) for key in asked}

    def _centers_given(self, measure, n_threads):
        """The centers of the rows of ``init``; None for "mean"."""
        if isinstance(self.init, str):
            check_option(self.init, "init", ("mean",))
            return None
        rows = repack(self.init, self.columns_)
        check_values(rows, "init")
        count = len(rows.numbers)
        if self.max_clusters is not None and count > self.max_clusters:
            raise ValueError(
                f"init must have at most max_clusters={self.max_clusters} rows, got {count}"
            )
        made = measure.rows(rows.numbers, rows.codes, None, None, n_threads)
        return made.centers_at(np.arange(count), SEED_COUNT)

    def _nearest(self, numbers, codes, weight=None):
        """A sweep over these rows, in their nearest clusters."""
        sweep = MixedSweep(self._measure, numbers, codes, weight, None, self._threads())
        sweep.start(self._centers)
        sweep.assign()
        return sweep

    def _packed(self, X):
        """Rows with the columns of the fit."""
        check_fitted(self)
        packed = repack(self._checked(X, reset=False), self.columns_)
        check_values(packed)
        return packed

    def _judged_rows(self, X):
        packed = self._packed(X)
        return RowsOfTable(packed.numbers, packed.codes)

    def _measured(self, X):
        return X, self._centers

    def _made_row_model(self, fitted):
        rows, n_threads = fitted.X, self._threads()
        costs = MixedDeviances(self._measure, self._centers)
        taken, weight, labels = fitted.sample(
            self._centers.size,
            lambda: costs(rows, n_threads)[np.arange(len(fitted.labels)), fitted.labels],
        )
        rows = rows[taken]
        own = costs(rows, n_threads)[np.arange(len(labels)), labels]
        # as many dimensions as make 1 the unit of divergences, which have the spreads of the fit
        d = float(np.average(own, weights=weight)) or 1.0
        overall = MixedDeviances(self._measure, self._measure.overall())
        # Shares of levels are probabilities, whose divergences have no unit to be measured.
        kind = RowsOfLikelihoods if rows.codes.size else RowsOfCosts
        settings = costs, overall, rows, weight, labels, d, n_threads, kind
        return model_of_costs(*settings, offset=MixedVolumes(self._measure, d))

    def predict(self, X: Any) -> NDArray[np.int32]:
        """Cluster of the least divergence from each row; no row opens a cluster.

        Parameters
        ----------
        X : DataFrame, Table, dict of arrays, or array-like of shape (n_samples, n_features)
            New rows. The columns of a table are found by name, in any order. A level that the fit
            has not seen counts as missing, of which a warning tells.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Cluster of each row; at a tie the lowest one.
        """
        packed = self._packed(X)
        return self._nearest(packed.numbers, packed.codes).labels

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Compute the divergence of each row from each cluster.

        Parameters
        ----------
        X : DataFrame, Table, dict of arrays, or array-like of shape (n_samples, n_features)
            New rows, as for ``predict``.

        Returns
        -------
        divergences : ndarray of shape (n_samples, n_clusters)
            In units of ``lam``; infinite for a positive count where a cluster has only zeros.
        """
        packed = self._packed(X)
        rows = self._measure.rows(packed.numbers, packed.codes, None, None, self._threads())
        rows.set_centers(self._centers)
        return rows.divergences(False)

    def impute(self, X: Any) -> Any:
        """Fill missing cells with what is typical of the cluster of their row.

        That is the mean of a column of numbers, rounded for counts and other whole numbers, the
        nearest value of an ordered one, and the level with the largest share of a category. So all
        filled cells of a column have the same value within a cluster, and vary less than real data.
        Use the table to look at or to predict from. Variances, tests and correlations computed from
        it are biased.

        Parameters
        ----------
        X : DataFrame, Table, dict of arrays, or array-like of shape (n_samples, n_features)
            Rows, as for ``predict``.

        Returns
        -------
        filled : DataFrame, Table, dict or ndarray
            A copy of the table, of the same library. Columns that take no part stay as they are.
        """
        labels = self.predict(X)
        return imputed(X, self.columns_, labels, self.cluster_parameters_)

    def score(self, X: Any, y: object = None, sample_weight: ArrayLike | None = None) -> float:
        """Return minus the objective of rows at the fitted clusters.

        Parameters
        ----------
        X : DataFrame, Table, dict of arrays, or array-like of shape (n_samples, n_features)
            Rows, as for ``predict``.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
            ``-(sum of w * least divergence + prior + lam_ * n_clusters_)``.
        """
        packed = self._packed(X)
        weight = check_weights(sample_weight, len(packed.numbers))
        sweep = self._nearest(packed.numbers, packed.codes)
        # the prior belongs to the clusters, not to the rows, so it is added once
        least = sweep.assigned_distances()
        total = float(least.sum() if weight is None else weight @ least)
        prior = self._unit * float(self._measure.prior(self._centers))
        return -(total + prior + self.lam_ * self.n_clusters_)


def _array_of(rows):
    """An array of rows in lists, in which numbers beside words stay numbers."""
    try:
        array = np.asarray(rows)
        return np.asarray(rows, dtype=object) if array.dtype.kind in "US" else array
    except (TypeError, ValueError) as error:
        raise ValueError(f"X must be a table, or rows of one length: {error}") from None


def _fields(X):
    """The names of the fields of a structured array; None for all else."""
    return getattr(getattr(X, "dtype", None), "names", None)
