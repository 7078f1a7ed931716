"""The hard Gaussian HDP: many data sets that share clusters."""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from sklearn.base import ClusterMixin
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from smallvar._centers.center_estimator import NearestCenters
from smallvar._centers.dpmeans import fit_dpmeans
from smallvar._centers.hdp_choice import choose_number, pooled_clusters
from smallvar._centers.starts import Fit
from smallvar._core.estimator import keywords_only, unchanged_on_error, warn_not_converged
from smallvar._core.fit_loop import LoopSettings, Progress, best_of
from smallvar._core.frame import RowsFrame
from smallvar._core.groups import Groups
from smallvar._core.validation import (
    check_lam,
    check_number,
    check_reach,
    check_weights,
    learned,
    mean_weight,
)
from smallvar._selection.columns import count_distinct
from smallvar._selection.envelope import penalty_within
from smallvar._selection.lambda_path import LambdaPath
from smallvar._selection.penalty import LAMS, global_of_rows, local_of_rows
from smallvar._sweeps.hdp import HDPSweep
from smallvar._sweeps.in_order import assign, error_of

PRICE = 3.0  # of a local cluster, in variances times log(distinct rows)


class HDPStart:
    """One start of the hard HDP.

    With ``drops`` it begins at a fixed point, goes on with data sets giving up local clusters, and
    ends where neither that nor a sweep changes anything.
    """

    def __init__(self, sweep, lam_local, lam_global, drops=False):
        self.sweep, self.lam_local, self.lam_global = sweep, lam_local, lam_global
        self.drops, self.counts = drops, []

    @property
    def k(self):
        """Number of global clusters."""
        return self.sweep.k

    @property
    def objective(self):
        """The objective at the end."""
        return self.progress.objective

    def run(self, n, loop):
        """Sweep over n rows to the end."""
        sweep, progress = self.sweep, Progress(loop, n)
        self.progress, settled = progress, self.drops
        while progress.should_continue:
            dropped = sweep.drop() if settled else 0
            changed, created = sweep.sweep()
            changed = changed or dropped > 0
            progress.record(
                sweep.error + self.lam_local * sweep.n_local + self.lam_global * sweep.k,
                f"{sweep.k} global clusters, {sweep.n_local} local ones, {{}}",
                changed=changed,
                opened=created,
                converged=not changed and (settled or not self.drops),
                n_clusters=sweep.k,
            )
            settled = self.drops and not changed
            self.counts.append(sweep.k)
        return self

    def objectives(self, lam_global):
        """The objective after every sweep."""
        path = np.array(self.progress.path)
        return path if lam_global == self.lam_global else path + lam_global * np.array(self.counts)


@dataclass(frozen=True)
class LocalClusters:
    """The global clusters that each data set uses, and what one more costs it.

    Attributes
    ----------
    names : ndarray of shape (n_groups,)
        The data sets, sorted.
    used : list of ndarray of int32
        For each data set, the global clusters of its local ones.
    centers : ndarray of shape (n_clusters, n_features)
        Centers of the global clusters.
    lam_local : float
        The penalty for each local cluster.
    """

    names: NDArray[Any]
    used: list[NDArray[np.int32]]
    centers: NDArray[np.float64]
    lam_local: float

    def assign(self, X, group, weight, n_threads):
        """The cheapest global cluster of each row; rows of weight zero open no local one.

        ``group`` is the data set of each row, ``len(names)`` for one that is not known.
        """
        offset = np.full((len(self.names) + 1, len(self.centers)), self.lam_local)
        for j, used in enumerate(self.used):
            offset[j, used] = 0.0
        labels = assign(X, group, self.centers, offset, n_threads, weight)
        if weight is not None and not weight.all():
            idle = np.flatnonzero(weight == 0.0)
            offset[offset > 0.0] = np.inf
            offset[-1] = 0.0
            labels[idle] = assign(X[idle], group[idle], self.centers, offset, n_threads)
        return labels

    def label_idle(self, labels, X, weight, sets, n_threads):
        """Set global and local labels of rows of weight zero, columns of ``labels`` (INOUT)."""
        idle = np.flatnonzero(weight == 0.0)
        group = sets.among(self.names)[idle]
        found = self.assign(X[idle], group, weight[idle], n_threads)
        number = np.full((len(self.names) + 1, len(self.centers)), -1, dtype=np.int32)
        for j, used in enumerate(self.used):
            number[j, used] = np.arange(len(used))
        labels[idle, 0], labels[idle, 1] = found, number[group, found]


def local_clusters(model):
    """The local clusters of a fitted HDPMeans."""
    used, centers = model.local_clusters_, model.cluster_centers_
    return LocalClusters(model.groups_, used, centers, model.lam_local_)


def _local_price(X, inertia, frame):
    """What a local cluster must save: PRICE times the variance within clusters times log(rows)."""
    rows = count_distinct(X)
    varying = int((frame.spread > 0.0).sum())
    if not inertia > 0.0:
        return 0.0
    return PRICE * inertia / (rows * varying) * float(np.log(rows))


def _worth(X, weight, labels, sets, centers):
    """The penalty above which some global cluster, were it gone, would be opened by no data set.

    A local cluster of weight m opens one at m times the squared distance from its mean to the
    nearest center; that is the most over its local clusters, and the least over global clusters.
    """
    k = len(centers)
    if k == 1:
        return np.inf
    pairs, of = np.unique(sets.number.astype(np.int64) * k + labels, return_inverse=True)
    mass, own = np.bincount(of, weight), pairs % k
    means = np.empty((len(pairs), X.shape[1]))
    for j in range(X.shape[1]):
        means[:, j] = np.bincount(of, X[:, j] if weight is None else weight * X[:, j]) / mass
    most = np.zeros(k)
    for few in gen_batches(len(pairs), 4096):
        squares = cdist(means[few], centers, "sqeuclidean")
        squares[np.arange(len(squares)), own[few]] = np.inf
        np.maximum.at(most, own[few], mass[few] * squares.min(axis=1))
    return float(most.min())


class HDPMeans(ClusterMixin, NearestCenters):
    """Hard Gaussian HDP: clusters several data sets, which share global clusters.

    Minimizes, over labels, centers and the numbers of clusters,

        sum_i ||x_i - mu_{z_i}||^2 + lam_local * (number of local clusters) + lam_global * K,

    where a local cluster is what a data set has of one of the K global clusters: a data set pays
    ``lam_local`` for each global cluster that it uses, and all of them together ``lam_global`` for
    each that exists. With weights w_i, squared distances are multiplied by them. By default the
    data choose both penalties.

    Parameters
    ----------
    lam_local : float, "auto" or "farthest-first", default="auto"
        Penalty for each local cluster, in squared data units, > 0. "auto" is what a local cluster
        must save, from the spread within the clusters of all rows together: see Notes.
        "farthest-first" derives it from the data and the guess ``n_local``, see
        :func:`hdp_lambdas`.
    lam_global : float, "auto" or "farthest-first", default="auto"
        Penalty for each global cluster, in squared data units, > 0. With "auto" the global
        clusters are those of a merge path of all rows together, of which data sets then give up
        what does not save them ``lam_local``; their number is the one that the data sets, few
        clusters in each, support best: see Notes. "farthest-first" derives it
        from the data and the guess ``n_global``.
    n_local : int, default=5
        Guess of the number of clusters in a data set, cut to its size; not a bound.
    n_global : int, default=15
        Guess of the number of clusters in all, cut to the number of rows; not a bound.
    n_init : int, default=1
        Number of starts: the first visits data sets in sorted order and their rows as given, the
        others in random orders. The one with the lowest objective is kept; it pays to try ten. With
        "auto" the number of merge paths, of which the one with the lowest criterion is kept: one
        is mostly enough.
    max_iter : int, default=300
        Largest number of sweeps; those that open global clusters do not
        count, but there are at most ``max_iter + n_samples``.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times its value after the first
        sweep. 0 runs to a fixed point.
    random_state : int, RandomState instance or None, default=None
        Generator of the random orders, and of the first clusters (and, of many rows, the samples)
        of a merge path, see :func:`lambda_path`, and of the choice of the number of clusters.
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        (Weighted) means of the global clusters, over all data sets.
    labels_ : ndarray of shape (n_samples,), int32
        Global cluster of each row.
    local_labels_ : ndarray of shape (n_samples,), int32
        Number of the row's local cluster within its data set.
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
    lam_global_range_ : tuple of float
        With ``lam_global="auto"`` only. Above the first number the result is a fixed point: no
        data set opens a global cluster. Above the second there is a global cluster that no data
        set would open if it were not there; infinite for a single one. ``lam_global_`` is their
        geometric mean, or the first if that is larger; half the second where the first is 0, twice
        the first where the second is infinite, and where both are so, for a single cluster, twice
        ``inertia_`` (``lam_local_`` if that is 0).
    path_ : LambdaPath
        With "auto" only: the merge path of all rows together, see :func:`lambda_path`.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit``, for data that are not finite, numeric and two-dimensional, and for parameters
        out of their bounds. The estimator is then as it was before.

    See Also
    --------
    DPMeans : One data set.
    hdp_lambdas : Penalties from guesses of the numbers of clusters.

    Notes
    -----
    With ``lam_global="auto"`` the fit begins at pooled clusters: those of ``path_``, a merge path
    of all rows together, after plain sweeps. Each data set then drops its
    cheapest local cluster, whose rows go to the nearest one that it keeps, while that adds less
    than ``lam_local`` to the squared error; sweeps of Algorithm 2 that open no global cluster
    follow, and both take turns until nothing changes. ``lam_local="auto"`` is ::

        lam_local_ = 3 s^2 log(u),  s^2 = (weighted squared error of the pooled clusters) / (u d)

    with u distinct rows and d columns that vary. The number of pooled clusters minimizes the
    criterion V of :func:`lambda_path`, taken of the labels that data sets end at, plus
    2 min(0, sum_j L_j - L), where L_j is the length of a code for the labels of data set j by
    itself, ::

        L_j = log C(K, m_j) + log C(n_j - 1, m_j - 1) + log(n_j! / prod_c n_jc!),

    for n_j rows in m_j of the K clusters, n_jc in each, and L is that of all rows as one data set:
    where data sets have few clusters each, a further global cluster makes their labels hardly
    longer. ``path_.best``, which is chosen without a look at the data sets, is kept unless another
    number is better by more than ``path_.tie``. Of more than 20,000 rows, numbers are compared on
    so many, of data sets drawn at random. What ``lam_global_`` then means is that the
    result is a fixed point of Algorithm 2 at both penalties; the number of global clusters has
    been chosen before, and Algorithm 2 from the mean need not find it again at them. With a number
    for ``lam_global`` all goes as for numbers, from the mean.

    A row of weight w joins a cluster at w times the squared distance, and opens one if that
    exceeds the penalties; those that are found go with the weights, "farthest-first" ones with
    their mean. Rows of weight zero take no part; they get the label that ``predict``
    with the same weights gives them: the nearest of the clusters that their data set has. A data
    set of such rows alone is not among ``groups_``; its local labels are -1.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means: new algorithms via Bayesian nonparametrics, section
    4, Algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import HDPMeans
    >>> X = np.array([[0.0], [1.0], [10.0], [0.5], [20.0], [21.0]])
    >>> groups = ["a", "a", "a", "b", "b", "b"]
    >>> model = HDPMeans(lam_local=2.0, lam_global=5.0).fit(X, groups=groups)
    >>> model.labels_
    array([1, 1, 0, 1, 2, 2], dtype=int32)
    >>> model.n_local_clusters_
    array([2, 2])
    >>> model.predict([[9.0], [1.0]], groups=["a", "b"])
    array([0, 1], dtype=int32)

    Without numbers, the data choose:

    >>> from sklearn.datasets import make_blobs
    >>> X, y = make_blobs(300, centers=4, random_state=2)
    >>> groups = 2 * np.arange(300) // 300 + 2 * (y > 1)
    >>> model = HDPMeans(random_state=0).fit(X, groups=groups)
    >>> model.n_clusters_, model.n_local_clusters_
    (4, array([2, 2, 2, 2]))
    """

    cluster_centers_: NDArray[np.float64]
    labels_: NDArray[np.int32]
    local_labels_: NDArray[np.int32]
    groups_: NDArray[Any]
    local_clusters_: list[NDArray[np.int32]]
    n_local_clusters_: NDArray[np.int64]
    n_clusters_: int
    inertia_: float
    objective_: float
    objective_path_: NDArray[np.float64]
    lam_local_: float
    lam_global_: float
    lam_global_range_: tuple[float, float]
    path_: LambdaPath
    n_iter_: int

    @keywords_only("squared data units")
    def __init__(
        self,
        *,
        lam_local: float | Literal["auto", "farthest-first"] = "auto",
        lam_global: float | Literal["auto", "farthest-first"] = "auto",
        n_local: int = 5,
        n_global: int = 15,
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.lam_local = lam_local
        self.lam_global = lam_global
        self.n_local = n_local
        self.n_global = n_global
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    def _check_parameters(self):
        for name in ("lam_local", "lam_global"):
            check_lam(getattr(self, name), finite=True, name=name, options=LAMS)
        check_number(self.n_local, "n_local", low=1, integer=True)
        check_number(self.n_global, "n_global", low=1, integer=True)
        self._check_starts()

    def fit(
        self,
        X: ArrayLike,
        y: object = None,
        *,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Cluster the data sets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows of all data sets. float32 and float64 in any memory layout are used as they
            are, other types converted once.
        y : None
            Ignored.
        groups : array-like of shape (n_samples,), default=None
            The data set that each row is from: numbers or strings. None: all from one.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each.

        Returns
        -------
        self : HDPMeans
            The fitted estimator.
        """
        with unchanged_on_error(self):
            self._check_parameters()
            rng, n_threads = self._rng(), self._threads()
            X = self._validate(X, reset=True)
            check_reach(X)
            sets = Groups(groups, X.shape[0])
            weight = check_weights(sample_weight, X.shape[0])
            found = isinstance(self.lam_local, str) and isinstance(self.lam_global, str)
            relative = self._relative(weight, found)
            if weight is None or weight.all():
                ended = self._fit(X, relative, sets, rng, n_threads)
            else:
                rows = np.flatnonzero(weight)
                active = Groups(sets.names[sets.number[rows]], len(rows))
                heavy = check_weights(relative[rows], len(rows))
                ended = self._fit(X[rows], heavy, active, rng, n_threads)
                labels = np.empty((X.shape[0], 2), dtype=np.int32)
                labels[rows] = np.column_stack((self.labels_, self.local_labels_))
                local_clusters(self).label_idle(labels, X, weight, sets, n_threads)
                self.labels_, self.local_labels_ = labels.T.copy()
            if not ended:
                warn_not_converged(self, self.n_iter_)
        return self

    def _fit(self, X, weight, sets, rng, n_threads):
        """Fit rows that all have weight; whether the sweeps came to an end."""
        frame = RowsFrame(X, weight, n_threads)
        lam_local, lam_global, loop = self.lam_local, self.lam_global, self._loop()
        for name in ("path_", "lam_global_range_"):
            vars(self).pop(name, None)
        pooled = None
        if "auto" in (lam_local, lam_global):
            pooling = LoopSettings(self.max_iter, callback=loop.callback)
            fit = Fit(X.shape[0], None, pooling, n_init=self.n_init)
            pooled = fit_dpmeans(X, weight, fit, rng, n_threads)
            self.path_ = pooled.path
        given = lam_local
        if lam_local == "farthest-first":
            given = local_of_rows(X, sets, self.n_local, n_threads) * mean_weight(weight)
        if lam_global == "farthest-first":
            lam_global = global_of_rows(X, sets, self.n_global, n_threads) * mean_weight(weight)

        def local_price(rows, frame, pooled):
            if given != "auto":
                return float(given)
            return float(_local_price(rows, pooled.inertia, frame) or mean_weight(weight))

        def sweep_of(rows, weight, sets, frame, lam_local, order, floor):
            return HDPSweep(
                rows,
                order,
                sets.number[order],
                len(sets),
                lam_local,
                floor,
                frame.layout,
                frame.mean,
                n_threads,
                None if weight is None else weight[order],
            )

        def dropped(rows, weight, sets, frame, pooled, loop):
            """The start from pooled clusters, in which data sets drop local ones."""
            lam_local = local_price(rows, frame, pooled)
            sweep = sweep_of(rows, weight, sets, frame, lam_local, sets.order(), np.inf)
            sweep.start(pooled.centers, pooled.labels)
            return HDPStart(sweep, lam_local, 0.0, drops=True).run(rows.shape[0], loop)

        def refine(rows, weight, sets, pooled):
            frame = RowsFrame(rows, weight, n_threads)
            quiet = LoopSettings(self.max_iter)
            sweep = dropped(rows, weight, sets, frame, pooled, quiet).sweep
            return sweep.result()[0], sweep.k

        if lam_global == "auto":
            path = self.path_
            k = choose_number(X, weight, sets, path, refine, rng, n_threads)
            if k != path.best:
                most = self.max_iter
                pooled = pooled_clusters(X, weight, path.centers(k), most, n_threads, loop.callback)
            best = dropped(X, weight, sets, frame, pooled, loop)
            sweep, lam_local = best.sweep, best.lam_local
            low = max(sweep.split, sweep.farthest - lam_local)
            labels, _, centers, *_ = sweep.result()
            self.lam_global_range_ = low, _worth(X, weight, labels, sets, centers)
            inside = penalty_within(*self.lam_global_range_, 2.0 * sweep.error or lam_local)
            lam_global = max(float(low), inside)  # whatever rounding does
        else:
            lam_global = float(lam_global)
            lam_local = local_price(X, frame, pooled)
            # the global penalty, or more than rounding alone can make
            floor = max(lam_global, frame.rounding * frame.center[1])
            starts = (
                HDPStart(
                    sweep_of(X, weight, sets, frame, lam_local, order, floor), lam_local, lam_global
                ).run(X.shape[0], loop)
                for order in (sets.order(rng if i else None) for i in range(self.n_init))
            )
            best = best_of(starts, total=self.n_init, callback=loop.callback)
        sweep, progress = best.sweep, best.progress
        self.groups_ = sets.names
        self.labels_, self.local_labels_, self.cluster_centers_, *local = sweep.result()
        self.n_local_clusters_, self.local_clusters_ = local
        self.n_clusters_ = sweep.k
        self.inertia_ = sweep.error
        self.objective_path_ = best.objectives(lam_global)
        self.objective_ = float(self.objective_path_[-1])
        self.lam_local_, self.lam_global_ = lam_local, lam_global
        self.n_iter_ = progress.n_iter
        self._multiply("inertia_", "objective_path_", "objective_", "lam_local_", "lam_global_")
        if hasattr(self, "path_"):
            self._multiply("path_")
        if hasattr(self, "lam_global_range_"):
            self.lam_global_range_ = tuple(self._unit * bound for bound in self.lam_global_range_)
        return progress.ended

    def predict(
        self, X: ArrayLike, groups: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> NDArray[np.int32]:
        """Global cluster of new rows, at the costs of the fit; no row opens a global cluster.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data.
        groups : array-like of shape (n_samples,), default=None
            The data set of each row. One that the fit has not seen, or None, has no local clusters
            yet, so that the nearest center is the cheapest.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each. A light row does not pay for a local
            cluster where a heavy one does, and one of weight zero never.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Index into ``cluster_centers_``; at a tie the lowest one.
        """
        return self._predict(X, groups, sample_weight)[0]

    def _predict(self, X, groups, sample_weight):
        """Labels, and what they were found from."""
        check_is_fitted(self)
        self._check_parameters()
        X = self._validate(X, reset=False)
        check_reach(X)
        n_threads, weight = self._threads(), check_weights(sample_weight, X.shape[0])
        centers = learned(self, "cluster_centers_", None, X.shape[1])
        group = np.full(X.shape[0], len(self.groups_), dtype=np.int32)
        if groups is not None:
            group = Groups(groups, X.shape[0]).among(self.groups_)
        if weight is not None:
            RowsFrame(X, weight, n_threads, centers)  # squares times weights stay within float64
        local = replace(local_clusters(self), centers=centers)
        return local.assign(X, group, weight, n_threads), X, weight, centers

    def score(
        self,
        X: ArrayLike,
        y: object = None,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Return minus the objective of data at the fitted centers.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data.
        y : None
            Ignored.
        groups : array-like of shape (n_samples,), default=None
            The data set of each row, as for ``predict``. None: all from one.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
            ``-(sum of w * squared distance to the own center + lam_local_ * number of local
            clusters + lam_global_ * n_clusters_)``, with the labels of ``predict``; local clusters
            are those that rows with weight use.
        """
        labels, rows, weight, centers = self._predict(X, groups, sample_weight)
        sets = Groups(groups, len(rows))
        pairs = sets.number.astype(np.int64) * len(centers) + labels
        n_local = len(np.unique(pairs if weight is None else pairs[weight > 0.0]))
        error = error_of(rows, labels, centers, self._threads(), weight)
        return -(error + self.lam_local_ * n_local + self.lam_global_ * len(centers))
