"""DP-means and spherical DP-means on dask collections, with the results of one machine.

First how rows are sampled from partitions, then ``DaskEstimator``, with what both estimators share,
then the estimators. Their sweeps over partitions are in _sweep.py.
"""

from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import vstack

import smallvar
from smallvar._centers.center_estimator import at_centers
from smallvar._centers.dpmeans import RowsProblem
from smallvar._centers.sphere_problem import ERROR_SHARE, SphereProblem, as_directions
from smallvar._centers.starts import DPProblem, Start, run_starts
from smallvar._centers.unit_rows import length_rounding, unit_rows, warn_of_zero_rows
from smallvar._core.estimator import keywords_only, warn_not_converged
from smallvar._core.validation import (
    check_flag,
    check_init,
    check_number,
    check_option,
    some_rows,
)
from smallvar._selection.penalty import GUESS
from smallvar.dask._collection import CollectionParts, checked_block
from smallvar.dask._executor import current_client, open_executor
from smallvar.dask._lazy import LazyMethods, lazy_result
from smallvar.dask._sweep import (
    MAX_OPENED,
    CollectionFrame,
    CollectionSweep,
    gather_facts,
    overall_mean,
)

CHOICE_ROWS = 200_000  # rows that "auto" and init="sample" are computed from


def take_rows(parts, shared, each):
    """Chosen rows of each partition, and their weights: a dict by partition.

    ``each`` are the indices of the rows within each partition. ``shared`` is not used.
    """
    return {
        p: (some_rows(block.X, rows), None if block.weight is None else block.weight[rows])
        for (p, block), rows in zip(parts, each, strict=True)
    }


def sample_rows(executor, facts, rng, max_rows):
    """Random sample of ``max_rows`` rows (all if there are no more) in order, and their weights.

    The weights are None if all are 1.
    """
    partitions = executor.numbers
    ends = np.cumsum([facts.sizes[p] for p in partitions])
    n = int(ends[-1])
    rows = np.arange(n) if n <= max_rows else np.sort(rng.choice(n, max_rows, replace=False))
    chosen = np.split(rows, np.searchsorted(rows, ends[:-1]))
    # indices within each partition
    each = {
        p: part - (end - facts.sizes[p])
        for p, part, end in zip(partitions, chosen, ends, strict=True)
    }
    taken = {}
    for rows_of_parts in executor.call(take_rows, None, each):
        taken.update(rows_of_parts)
    X = [taken[p][0] for p in partitions]
    X = vstack(X, format="csr") if facts.sparse else np.concatenate(X)
    weight = None if facts.unit_weights else np.concatenate([taken[p][1] for p in partitions])
    return X, weight


class DaskEstimator(LazyMethods):
    """Base of estimators whose sweeps go over all partitions of a dask collection."""

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

    def _initial_centers(self, executor, facts, rng, start):
        """Starting centers from ``init``; None if ``init`` is ``start``, the default's name."""
        if not (isinstance(self.init, str) and self.init == "sample"):
            return check_init(self.init, self.n_features_in_, self.max_clusters, start)
        if self._auto():
            raise ValueError(
                "init must not be 'sample' where the data choose lam: they do so from it"
            )
        X, weight = sample_rows(executor, facts, rng, CHOICE_ROWS)
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
        self._check_parameters()
        parts = CollectionParts(X, sample_weight)
        with current_client() as client:
            ended = self._fit_on(client, parts)
        if not ended:
            warn_not_converged(self, self.n_iter_)
        return self

    def _fit_on(self, client, parts):
        """Fit on the workers of a client; returns whether the sweeps ended before max_iter."""
        prepare = partial(checked_block, self._as_local(), parts.n_features)

        def inspect(executor):
            facts = gather_facts(executor)
            return facts, facts.all_sizes

        arguments = client, parts, parts.weights, prepare, self.persist, inspect
        with open_executor(*arguments) as (executor, facts, sizes):
            executor.restrict(p for p, size in facts.sizes.items() if size)
            warn_of_zero_rows(sum(sizes.values()) - sum(facts.sizes.values()))
            self._learn_columns(parts)
            self._dtype = facts.dtype

            def labels_of(centers):
                model = at_centers(self._as_local(), centers, parts.n_features, parts.names)
                return lazy_result(model, "predict", parts, sizes)

            return self._fit_partitions(executor, facts, labels_of)

    def _sample_for_path(self, executor, facts, rng):
        """Rows for the merge path, their weights, and the ratio of the total weight to theirs."""
        X, weight = sample_rows(executor, facts, rng, CHOICE_ROWS)
        sampled = X.shape[0] if weight is None else float(weight.sum())
        n = sum(facts.sizes.values())
        return X, weight, facts.total_weight / sampled if X.shape[0] < n else 1.0


class _PartitionsProblem(DPProblem):
    """The rows of all partitions; ``sample`` is the RowsProblem of a sample, where lam is None.

    ``share`` is the ratio of the total weight to that of the sample.
    """

    def __init__(self, fit, executor, facts, labels_of, max_opened):
        super().__init__(fit)
        self.executor, self.facts, self.labels_of = executor, facts, labels_of
        self.max_opened, self.sample, self.share = max_opened, None, 1.0

    def started(self, point, frame, centers, are_means, share=1.0, **options):
        """The Start at these centers."""
        options |= {"max_opened": self.max_opened}
        sweep = CollectionSweep(self.executor, frame, self.labels_of, **options)
        return Start(point, sweep, centers, are_means, share=share)

    def start(self, point):
        """The Start at the given centers, or at the mean."""
        frame, centers = CollectionFrame(self.executor, self.facts, point.centers), point.centers
        if centers is None:
            centers = overall_mean(self.executor, frame).reshape(1, -1)
        return self.started(point, frame, centers, point.centers is None)

    def path(self, rng):
        """The merge path of the sample."""
        return self.sample.path(rng)

    def penalty(self, path):
        """The penalty of a path: errors, so penalties, grow with the weight of the rows."""
        return self.share * self.sample.penalty(path)


class _DirectionsProblem(_PartitionsProblem):
    """Rows of length 1; ``sample`` is a SphereProblem."""

    adopts = False

    def start(self, point):
        """The Start at the given centers, or at the first row."""
        centers = self.facts.first[1][None] if point.centers is None else point.centers
        sample = self.sample
        if sample is not None:  # centers from a path are means, of any length
            centers = as_directions(centers, sample.X, sample.weight, sample.n_threads)
        # sums of directions are about 0; only the type of rows counts for the rounding of lengths
        origin = np.zeros(centers.shape[1])
        rounding = length_rounding(np.empty(0, dtype=self.facts.dtype))
        frame = CollectionFrame(self.executor, self.facts, centers, origin, rounding)
        return self.started(point, frame, centers, False, ERROR_SHARE, spherical=True)


class DPMeans(DaskEstimator, smallvar.DPMeans):  # type: ignore[misc]  # without links
    """DP-means on dask collections: labels and centers are those of one machine.

    Minimizes, over labels, centers and their number K,

        sum_i w_i ||x_i - mu_{z_i}||^2 + lam * K,

    as :class:`smallvar.DPMeans` does, for rows that are spread over the partitions of a dask array
    or DataFrame. For a number ``lam`` the labels are those of one machine on the concatenated rows,
    and centers, objectives and the number of sweeps are equal bit for bit, for any partitions, any
    number of workers, and if workers die during the fit.

    Runs on the dask client of the process, or on threads of this process where there is none.

    Parameters
    ----------
    lam : float or "auto", default="auto"
        Penalty for each cluster, in squared data units, > 0 (0 is allowed together with
        ``max_clusters``). "auto" chooses the number of clusters on a random sample of 200,000 rows,
        or on all rows if there are no more: see :func:`smallvar.cluster_path`. The sweeps over all
        rows then begin at the centers of the sample.
    n_clusters : int, "auto" or None, default=None
        The exact number of clusters, if ``lam`` is "auto". At most ``max_clusters`` and the number
        of distinct rows in the sample. None or "auto": the data choose.
    max_clusters : int, default=None
        Never have more clusters than this.
    algorithm : {"serial", "delayed"}, default="serial"
        "serial" is Algorithm 1 of the paper: rows in order, each one beyond ``lam`` opens a cluster
        at once. "delayed" opens at most one cluster a sweep, and a sweep is a round trip to all
        workers.
    init : {"mean", "sample"} or array-like of shape (n_centers, n_features), default="mean"
        Starting centers; "mean" is the (weighted) mean of the data, "sample" are the clusters of a
        random sample of 200,000 rows at the same penalty. "sample" is faster, but the result is not
        that of one machine: it has fewer clusters, and a higher objective (see the guide).
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
        Cluster of each row. Lazy: computed from the data when used.
    n_clusters_ : int
        Number of clusters found.
    inertia_ : float
        Weighted sum of squared distances to the assigned centers.
    objective_ : float
        ``inertia_ + lam_ * n_clusters_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep, and after the last labels where ``max_iter`` or ``tol``
        ended the fit; it never rises.
    lam_ : float
        The penalty used.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    path_ : ClusterPath
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
    smallvar.DPMeans : DP-means on one machine, which is faster for data that fits its memory.

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

    @keywords_only
    def __init__(
        self,
        *,
        lam: float | Literal["auto"] = "auto",
        n_clusters: int | Literal["auto"] | None = None,
        max_clusters: int | None = None,
        algorithm: Literal["serial", "delayed"] = "serial",
        init: Literal["mean", "sample"] | ArrayLike = "mean",
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        persist: bool | Literal["auto"] = "auto",
        max_opened: int = MAX_OPENED,
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

    def _fit_partitions(self, executor, facts, labels_of):
        """Fit DP-means, and learn the result; returns whether the sweeps ended before max_iter.

        ``labels_of(centers)`` returns the lazy labels of all rows.
        """
        rng, n_threads = self._rng(), self._threads()
        init = self._initial_centers(executor, facts, rng, "mean")
        n = sum(facts.sizes.values())

        fit = self._described(n, None if self._auto() else float(self.lam), init)
        problem = _PartitionsProblem(fit, executor, facts, labels_of, self.max_opened)
        if fit.lam is None:
            # the merge path of a sample gives the penalty, and the centers where the sweeps begin
            X, weight, problem.share = self._sample_for_path(executor, facts, rng)
            problem.sample = RowsProblem(fit, X, weight, n_threads)
        return self._learn(run_starts(problem, rng)).ended


class SphericalDPMeans(DaskEstimator, smallvar.SphericalDPMeans):  # type: ignore[misc]
    """Spherical DP-means on dask collections: labels and centers are those of one machine.

    Minimizes, over labels, unit vectors mu and their number K,

        sum_i w_i (1 - x_i . mu_{z_i}) + lam * K

    for rows x_i of length 1 (others are divided by their length), as
    :class:`smallvar.SphericalDPMeans` does, for rows that are spread over the partitions of a dask
    array or DataFrame. For a number ``lam`` the labels are those of one machine on the concatenated
    rows, and centers, objectives and the number of sweeps are equal bit for bit.

    Runs on the dask client of the process, or on threads of this process where there is none.

    Parameters
    ----------
    min_cosine : float, default=None
        A row opens a cluster if its largest cosine with a center is below ``min_cosine``. In
        (-1, 1). Given instead of ``lam``, which then is ``1 - min_cosine``.
    lam : float, "auto" or None, default=None
        Penalty for each cluster, > 0. "auto" chooses the number of clusters on a random sample of
        200,000 rows, or on all rows if there are no more. None is "auto", unless ``min_cosine`` is
        given.
    n_clusters : int, "auto" or None, default=None
        The exact number of clusters, if ``lam`` is "auto". At most ``max_clusters`` and the number
        of distinct rows in the sample. None or "auto": the data choose.
    max_clusters : int, default=None
        Never have more clusters than this.
    algorithm : {"serial", "delayed"}, default="serial"
        "serial" opens clusters row by row, "delayed" at most one a sweep, and a sweep is a round
        trip to all workers.
    init : {"first", "sample"} or array-like of shape (n_centers, n_features), default="first"
        Starting centers; "first" is the first row of positive weight, "sample" are the clusters of
        a random sample of 200,000 rows at the same penalty. "sample" takes fewer sweeps over all
        rows, which open the clusters that the sample missed; the result is not that of one machine.
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
        Cluster of each row; -1 for a row of length zero. Lazy: computed from the data when used.
    n_clusters_ : int
        Number of clusters found.
    inertia_ : float
        Weighted sum of 1 - cosine with the assigned center, of the rows that have one.
    objective_ : float
        ``inertia_ + lam_ * n_clusters_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep, and after the last labels where ``max_iter`` or ``tol``
        ended the fit; it never rises.
    lam_, min_cosine_ : float
        The penalty used, and the cosine below which a new row would open a cluster.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    path_ : ClusterPath
        The merge path of the sample, with "auto" only.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns of a DataFrame, if all are strings.

    Raises
    ------
    ValueError, TypeError, RuntimeError
        As from :class:`smallvar.dask.DPMeans`, and where no row has a length above 0.

    See Also
    --------
    smallvar.SphericalDPMeans : The estimator for one machine, faster for data that fits its memory.

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

    @keywords_only
    def __init__(
        self,
        *,
        min_cosine: float | None = None,
        lam: float | Literal["auto"] | None = None,
        n_clusters: int | Literal["auto"] | None = None,
        max_clusters: int | None = None,
        algorithm: Literal["serial", "delayed"] = "serial",
        init: Literal["first", "sample"] | ArrayLike = "first",
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        persist: bool | Literal["auto"] = "auto",
        max_opened: int = MAX_OPENED,
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

    def _fit_partitions(self, executor, facts, labels_of):
        """Fit spherical DP-means, and learn the result; returns whether the sweeps ended.

        ``labels_of(centers)`` returns the lazy labels of all rows.
        """
        rng, n_threads = self._rng(), self._threads()
        init = self._initial_centers(executor, facts, rng, "first")
        init = None if init is None else unit_rows(init, n_threads, "init")
        n, X, weight = sum(facts.sizes.values()), None, None

        lam = None
        if not self._auto():
            lam = 1.0 - float(self.min_cosine) if self.lam is None else float(self.lam)
        fit = self._described(n, lam, init)
        problem = _DirectionsProblem(fit, executor, facts, labels_of, self.max_opened)
        if lam is None:
            X, weight, problem.share = self._sample_for_path(executor, facts, rng)
            problem.sample = SphereProblem(fit, X, weight, n_threads)
        return self._learn(run_starts(problem, rng), X, weight, n_threads).ended

    def predict(self, X: Any, *, return_cosines: bool = False) -> Any:
        """Center of the largest cosine with each row; no row opens a cluster.

        Parameters
        ----------
        X : dask Array or DataFrame, or array-like, of shape (n_samples, n_features)
            New data.
        return_cosines : bool, default=False
            Return these cosines, too. A row whose cosine is below ``min_cosine_`` would have opened
            a cluster in the fit.

        Returns
        -------
        labels : dask Array of shape (n_samples,), int32
            Index into ``cluster_centers_``; at a tie the lowest one; -1 for a row of length zero.
            Lazy; an ndarray if X is not a dask collection.
        cosines : dask Array of shape (n_samples,), float64
            Cosine of each row with its center, if ``return_cosines``; 0 for a row of length zero.
            Lazy; an ndarray if X is not a dask collection.
        """
        check_flag(return_cosines, "return_cosines")
        labels = self._mapped("predict", X)
        return (labels, self._mapped("cosines", X)) if return_cosines else labels
