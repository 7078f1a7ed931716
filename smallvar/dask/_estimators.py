"""Estimators of clusters on dask collections: the results of one machine."""

from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import vstack

import smallvar
from smallvar._centers.center_estimator import at_centers
from smallvar._centers.spherical import LOOK, as_directions, length_rounding, saving, unit_rows
from smallvar._centers.starts import Start, run_starts
from smallvar._core.estimator import keywords_only, unchanged_on_error, warn_not_converged
from smallvar._core.validation import (
    check_flag,
    check_init,
    check_number,
    check_option,
    some_rows,
)
from smallvar._selection.path import find_path
from smallvar._selection.penalty import GUESS
from smallvar.dask._collection import Parts, prepared
from smallvar.dask._lazy import Lazy, lazily
from smallvar.dask._sweep import MOST, TeamFrame, TeamSweep, facts_of, mean_of
from smallvar.dask._team import current_client, team_of

SAMPLE = 200_000  # rows that "auto" looks at


def some_of(parts, shared, each):
    """Some rows of each partition, by their indices, with their weights."""
    return {
        p: (some_rows(block.X, rows), None if block.weight is None else block.weight[rows])
        for (p, block), rows in zip(parts, each, strict=True)
    }


def draw(team, known, rng, most):
    """Rows in their order, all of them or a random sample of ``most``, and their weights."""
    numbers = team.numbers
    ends = np.cumsum([known.sizes[p] for p in numbers])
    n = int(ends[-1])
    rows = np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))
    chosen = np.split(rows, np.searchsorted(rows, ends[:-1]))
    each = {
        p: part - (end - known.sizes[p]) for p, part, end in zip(numbers, chosen, ends, strict=True)
    }
    found = {}
    for some in team.call(some_of, None, each):
        found.update(some)
    X = [found[p][0] for p in numbers]
    X = vstack(X, format="csr") if known.sparse else np.concatenate(X)
    weight = None if known.alike else np.concatenate([found[p][1] for p in numbers])
    return X, weight


class OnTeam(Lazy):
    """Fits the partitions of a dask collection, all in every sweep."""

    n_init = 1
    shuffle = False
    guess = GUESS
    n_threads: int | None = None

    def _check_parameters(self):
        super()._check_parameters()
        check_option(self.algorithm, "algorithm", ("serial", "delayed"))
        if isinstance(self.lam, str):
            check_option(self.lam, "lam", ("auto",))
        if not isinstance(self.persist, bool):
            check_option(self.persist, "persist", ("auto",))
        check_number(self.max_opened, "max_opened", low=1, integer=True)

    def _begin_at(self, team, known, rng, start):
        """The centers to begin at; None: as ``start`` says."""
        if not (isinstance(self.init, str) and self.init == "sample"):
            return check_init(self.init, self.n_features_in_, self.max_clusters, start)
        if self._auto():
            raise ValueError(
                "init must not be 'sample' where the data choose lam: they do so from it"
            )
        X, weight = draw(team, known, rng, SAMPLE)
        model = self._as_local().set_params(init=start, verbose=0)
        return model.fit(X, sample_weight=weight).cluster_centers_

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
        self : object
            The fitted estimator.
        """
        with unchanged_on_error(self):
            self._check_parameters()
            parts = Parts(X, sample_weight)
            with current_client() as client:
                ended = self._fit_on(client, parts)
            if not ended:
                warn_not_converged(self, self.n_iter_)
        return self

    def _fit_on(self, client, parts):
        prepare = partial(prepared, self._as_local(), parts.n_features)

        def look(team):
            known = facts_of(team)
            return known, known.sizes

        together = client, parts, parts.weights, prepare, self.persist, look
        with team_of(*together) as (team, known, sizes):
            team.keep(p for p, size in sizes.items() if size)
            self._learn_columns(parts)
            self._dtype = known.dtype

            def labels(centers):
                model = at_centers(self._as_local(), centers, parts.n_features, parts.names)
                return lazily(model, "predict", parts, sizes)

            return self._fit_team(team, known, labels)

    def _draw(self, team, known, rng):
        """The rows that a merge path is found on, their weights, and how many each stands for."""
        X, weight = draw(team, known, rng, SAMPLE)
        n, mass = sum(known.sizes.values()), len(X) if weight is None else float(weight.sum())
        return X, weight, known.mass / mass if X.shape[0] < n else 1.0


class DPMeans(OnTeam, smallvar.DPMeans):
    """DP-means on dask collections: labels and centers are those of one machine.

    Minimizes, over labels, centers and their number K,

        sum_i w_i ||x_i - mu_{z_i}||^2 + lam * K,

    as :class:`smallvar.DPMeans` does, for rows that are spread over the partitions of a dask array
    or DataFrame. For a number ``lam`` the labels are those of one machine on the concatenated rows,
    and centers, objectives and the number of sweeps have the same bits, for any partitions, any
    number of workers, and whatever fails on the way.

    Runs on the dask client of the process, or on threads of this process where there is none.

    Parameters
    ----------
    lam : float or "auto", default="auto"
        Penalty for each cluster, in squared data units, > 0 (0 is allowed together with
        ``max_clusters``). "auto" chooses the number of clusters on a random sample of 200,000 rows,
        or on all rows if they are no more: see :func:`smallvar.lambda_path`. Its centers then are
        where the sweeps over all rows begin.
    n_clusters : int, default=None
        The exact number of clusters, with "auto" only. At most ``max_clusters`` and the number of
        distinct rows in the sample. None: the data choose.
    max_clusters : int, default=None
        Never have more clusters than this.
    algorithm : {"serial", "delayed"}, default="serial"
        "serial" is Algorithm 1 of the paper: rows in order, each one beyond ``lam`` opens a cluster
        at once. "delayed" opens at most one cluster a sweep, and a sweep is a round trip to all
        workers.
    init : {"mean", "sample"} or array-like of shape (n_centers, n_features), default="mean"
        Starting centers; "mean" is the (weighted) mean of the data, "sample" are the clusters of a
        random sample of 200,000 rows at the same penalty. Faster, but not the result of one
        machine: fewer clusters, and an objective that is higher (see the guide).
    max_iter : int, default=300
        Largest number of sweeps; those that open clusters do not count.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times its value after the first
        sweep. 0 runs to a fixed point.
    random_state : int, RandomState instance or None, default=None
        Generator of the sample of "auto" and "sample", and of the merge path.
    persist : bool or "auto", default="auto"
        Whether the workers hold the data in memory during the fit. "auto": if it takes no more than
        half of their memory. Otherwise every sweep reads the data again, with the same result.
    max_opened : int, default=100000
        Clusters that one partition may open in a sweep. Beyond that the fit fails: ``lam`` is too
        small for so many rows.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        Means of the clusters, in order of creation.
    labels_ : dask Array of shape (n_samples,), int32
        Cluster of each row. Lazy: computed from the data when it is asked for.
    n_clusters_ : int
        Number of clusters found.
    inertia_ : float
        Weighted sum of squared distances to the own centers.
    objective_ : float
        ``inertia_ + lam_ * n_clusters_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep, and after the last labels where ``max_iter`` or ``tol``
        ended the fit; it never rises.
    lam_ : float
        The penalty used.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    path_ : LambdaPath
        The merge path of the sample, with "auto" only.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns of a DataFrame, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit``, for data that are not finite, numeric and two-dimensional, with the number of
        the partition, and for parameters out of their bounds.
    RuntimeError
        If workers die again and again, the scheduler is lost, or more than ``max_opened`` clusters
        open. The estimator is then as it was before.

    See Also
    --------
    smallvar.DPMeans : The same on one machine: faster for all that fits its memory.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means: new algorithms via Bayesian nonparametrics,
    Algorithm 1. Pan et al. (2013), Optimistic concurrency control for distributed unsupervised
    learning.

    Examples
    --------
    >>> import dask.array as da
    >>> from sklearn.datasets import make_blobs
    >>> from smallvar.dask import DPMeans
    >>> X, _ = make_blobs(3000, centers=5, random_state=3)
    >>> model = DPMeans(lam=40.0).fit(da.from_array(X, chunks=(800, 2)))
    >>> model.n_clusters_
    5
    >>> model.labels_[:4].compute()
    array([1, 3, 1, 2], dtype=int32)
    >>> model.to_local().predict(X[:4])
    array([1, 3, 1, 2], dtype=int32)
    """

    _local = smallvar.DPMeans

    @keywords_only("squared data units")
    def __init__(
        self,
        *,
        lam: float | Literal["auto"] = "auto",
        n_clusters: int | None = None,
        max_clusters: int | None = None,
        algorithm: Literal["serial", "delayed"] = "serial",
        init: Literal["mean", "sample"] | ArrayLike = "mean",
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        persist: bool | Literal["auto"] = "auto",
        max_opened: int = MOST,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.n_clusters = n_clusters
        self.max_clusters = max_clusters
        self.algorithm = algorithm
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.persist = persist
        self.max_opened = max_opened
        self.verbose = verbose

    def _auto(self):
        return isinstance(self.lam, str)

    def _fit_team(self, team, known, labels):
        rng, n_threads = self._rng(), self._threads()
        given = self._begin_at(team, known, rng, "mean")
        n = sum(known.sizes.values())

        def make_start(point):
            frame, centers = TeamFrame(team, known, point.centers), point.centers
            if centers is None:
                centers = mean_of(team, frame).reshape(1, -1)
            sweep = TeamSweep(team, frame, labels, most=self.max_opened)
            return Start(point, sweep, centers, point.centers is None)

        if not self._auto():
            fit = self._described(n, float(self.lam), given)
            return self._learn(run_starts(fit, rng, make_start)).ended
        X, weight, times = self._draw(team, known, rng)

        def path(rng, **options):
            return find_path(X, weight, rng, n_threads, **options)

        def penalty(path):
            return times * path.lam

        fit = self._described(n, None, given)
        return self._learn(run_starts(fit, rng, make_start, path, penalty)).ended


class SphericalDPMeans(OnTeam, smallvar.SphericalDPMeans):
    """Spherical DP-means on dask collections: labels and centers are those of one machine.

    Minimizes, over labels, unit vectors mu and their number K,

        sum_i w_i (1 - x_i . mu_{z_i}) + lam * K

    for rows x_i of length 1 (others are divided by their length), as
    :class:`smallvar.SphericalDPMeans` does, for rows that are spread over the partitions of a dask
    array or DataFrame. For a number the labels are those of one machine on the concatenated rows,
    and centers, objectives and the number of sweeps have the same bits.

    Runs on the dask client of the process, or on threads of this process where there is none.

    Parameters
    ----------
    min_cosine : float, default=None
        Instead of ``lam``, which is ``1 - min_cosine``: a row opens a cluster if its largest cosine
        with a center is below. In (-1, 1).
    lam : float, "auto" or None, default=None
        Penalty for each cluster, > 0. None and "auto": the data choose, on a random sample of
        200,000 rows, or on all rows if they are no more; if ``min_cosine`` is not given.
    n_clusters : int, default=None
        The exact number of clusters, with "auto" only. At most ``max_clusters`` and the number of
        distinct rows in the sample. None: the data choose.
    max_clusters : int, default=None
        Never have more clusters than this.
    algorithm : {"serial", "delayed"}, default="serial"
        "serial" opens clusters row by row, "delayed" at most one a sweep, and a sweep is a round
        trip to all workers.
    init : {"first", "sample"} or array-like of shape (n_centers, n_features), default="first"
        Starting centers; "first" is the first row of positive weight, "sample" are the clusters of
        a random sample of 200,000 rows at the same penalty: fewer sweeps over all rows, which then
        open what the sample missed; no longer the result of one machine.
    max_iter : int, default=300
        Largest number of sweeps; those that open clusters do not count.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times its value after the first
        sweep.
    random_state : int, RandomState instance or None, default=None
        Generator of the sample of "auto" and "sample", and of the merge path.
    persist : bool or "auto", default="auto"
        Whether the workers hold the data in memory during the fit. "auto": if it takes no more than
        half of their memory. Otherwise every sweep reads the data again, with the same result.
    max_opened : int, default=100000
        Clusters that one partition may open in a sweep. Beyond that the fit fails.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        Directions of the clusters, of length 1, in order of creation.
    resultant_lengths_ : ndarray of shape (n_clusters,), float64
        Lengths of the sums of their members.
    labels_ : dask Array of shape (n_samples,), int32
        Cluster of each row. Lazy: computed from the data when it is asked for.
    n_clusters_ : int
        Number of clusters found.
    inertia_ : float
        Weighted sum of 1 - cosine with the own center.
    objective_ : float
        ``inertia_ + lam_ * n_clusters_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep, and after the last labels where ``max_iter`` or ``tol``
        ended the fit; it never rises.
    lam_, min_cosine_ : float
        The penalty used, and the cosine below which a new row would open a cluster.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    path_ : LambdaPath
        The merge path of the sample, with "auto" only.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns of a DataFrame, if all are strings.

    Raises
    ------
    ValueError, TypeError, RuntimeError
        As from :class:`smallvar.dask.DPMeans`, and for rows of length 0.

    See Also
    --------
    smallvar.SphericalDPMeans : The same on one machine: faster for all that fits its memory.

    References
    ----------
    Straub, Campbell, How & Fisher (2015), Small-variance nonparametric clustering on the
    hypersphere. Pan et al. (2013), Optimistic concurrency control for distributed unsupervised
    learning.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from smallvar.dask import SphericalDPMeans
    >>> X = np.array([[1.0, 0.1], [0.1, 3.0], [2.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    >>> model = SphericalDPMeans(min_cosine=0.8).fit(da.from_array(X, chunks=(2, 2)))
    >>> model.labels_.compute()
    array([0, 1, 0, 1, 2], dtype=int32)
    """

    _local = smallvar.SphericalDPMeans

    @keywords_only("units of 1 - cosine")
    def __init__(
        self,
        *,
        min_cosine: float | None = None,
        lam: float | Literal["auto"] | None = None,
        n_clusters: int | None = None,
        max_clusters: int | None = None,
        algorithm: Literal["serial", "delayed"] = "serial",
        init: Literal["first", "sample"] | ArrayLike = "first",
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        persist: bool | Literal["auto"] = "auto",
        max_opened: int = MOST,
        verbose: int = 0,
    ) -> None:
        self.min_cosine = min_cosine
        self.lam = lam
        self.n_clusters = n_clusters
        self.max_clusters = max_clusters
        self.algorithm = algorithm
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.persist = persist
        self.max_opened = max_opened
        self.verbose = verbose

    def _auto(self):
        return self.min_cosine is None and (self.lam is None or isinstance(self.lam, str))

    def _fit_team(self, team, known, labels):
        rng, n_threads = self._rng(), self._threads()
        zero = np.zeros(self.n_features_in_)
        given = self._begin_at(team, known, rng, "first")
        given = None if given is None else unit_rows(given, n_threads, "init")
        rounding = length_rounding(np.empty(0, dtype=known.dtype))
        n, X, weight = sum(known.sizes.values()), None, None

        def make_start(point):
            centers = known.first[1][None] if point.centers is None else point.centers
            if X is not None:
                centers = as_directions(centers, X, weight, n_threads)
            frame = TeamFrame(team, known, centers, zero, rounding)
            sweep = TeamSweep(team, frame, labels, spherical=True, most=self.max_opened)
            return Start(point, sweep, centers, False, share=self._error_share)

        if not self._auto():
            lam = 1.0 - float(self.min_cosine) if self.lam is None else float(self.lam)
            fit = self._described(n, lam, given)
            return self._learn(run_starts(fit, rng, make_start), None, None, n_threads).ended
        X, weight, times = self._draw(team, known, rng)

        def path(rng, **options):
            return find_path(X, weight, rng, n_threads, look=LOOK, transforms=False, **options)

        def penalty(path):
            return saving(path, X, weight, n_threads, times)

        fit = self._described(n, None, given)
        fitted = run_starts(fit, rng, make_start, path, penalty, adopt=False)
        return self._learn(fitted, X, weight, n_threads).ended

    def predict(self, X: Any, *, return_cosines: bool = False) -> Any:
        """Center of the largest cosine with each row; no row opens a cluster.

        Parameters
        ----------
        X : dask Array or DataFrame, or array-like, of shape (n_samples, n_features)
            New data, rows of any length but 0.
        return_cosines : bool, default=False
            Return these cosines, too: what is below ``min_cosine_`` would have opened a cluster.

        Returns
        -------
        labels : dask Array, or ndarray for what is no dask collection, (n_samples,), int32
            Index into ``cluster_centers_``; at a tie the lowest one. Lazy.
        cosines : the same, float64
            Only if ``return_cosines``.
        """
        check_flag(return_cosines, "return_cosines")
        labels = self._mapped("predict", X)
        return (labels, self._mapped("cosines", X)) if return_cosines else labels
