"""The hard Gaussian HDP: many data sets that share clusters."""

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from smallvar._base import Estimator, unchanged_on_error, warn_not_converged
from smallvar._centers import mean_noise
from smallvar._groups import Groups
from smallvar._penalty import global_of_rows, local_of_rows
from smallvar._starts import Progress, best_of
from smallvar._sweeps.hdp import HDPSweep
from smallvar._sweeps.rounds import assign
from smallvar._sweeps.sums import Layout
from smallvar._validation import check_lam, check_number, check_reach, learned


class _Start:
    """One start of the hard HDP."""

    def __init__(self, sweep, lam_local, lam_global):
        self.sweep, self.lam_local, self.lam_global = sweep, lam_local, lam_global

    @property
    def k(self):
        """Number of global clusters."""
        return self.sweep.k

    @property
    def objective(self):
        """The objective at the end."""
        return self.progress.objective

    def run(self, n, max_iter, tol, verbose):
        """Sweep over n rows to the end."""
        sweep, progress = self.sweep, Progress(max_iter, tol, n, verbose)
        self.progress = progress
        while progress.goes_on:
            changed, created = sweep.sweep()
            progress.record(
                sweep.error + self.lam_local * sweep.n_local + self.lam_global * sweep.k,
                f"{sweep.k} global clusters, {sweep.n_local} local ones, {{}}",
                changed=changed,
                opened=created,
            )
        return self


class HDPMeans(ClusterMixin, Estimator):
    """Hard Gaussian HDP: clusters several data sets, which share global clusters.

    Minimizes, over labels, centers and the numbers of clusters,

        sum_i ||x_i - mu_{z_i}||^2 + lam_local * (number of local clusters) + lam_global * K,

    where a local cluster is what a data set has of one of the K global clusters: a data set pays
    ``lam_local`` for each global cluster that it uses, and all of them together ``lam_global`` for
    each that exists.

    Parameters
    ----------
    lam_local : float or "farthest-first", default="farthest-first"
        Penalty for each local cluster, in squared data units, > 0. "farthest-first" derives it
        from the data and the guess ``n_local``, see :func:`hdp_lambdas`.
    lam_global : float or "farthest-first", default="farthest-first"
        Penalty for each global cluster, in squared data units, > 0. "farthest-first" derives it
        from the data and the guess ``n_global``.
    n_local : int, default=5
        Guess of the number of clusters in a data set, cut to its size; not a bound.
    n_global : int, default=15
        Guess of the number of clusters in all, cut to the number of rows; not a bound.
    n_init : int, default=1
        Number of starts: the first visits data sets in sorted order and their rows as given, the
        others in random orders. The one with the lowest objective is kept.
    max_iter : int, default=300
        Largest number of sweeps; those that open global clusters do not
        count, but there are at most ``max_iter + n_samples``.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times its value after the first
        sweep. 0 runs to a fixed point.
    random_state : int, RandomState instance or None, default=None
        Generator of the random orders.
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        Means of the global clusters, over all data sets.
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
        Sum of squared distances to the own centers.
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
        From ``fit``, for data that are not finite, numeric and two-dimensional, and for parameters
        out of their bounds. The estimator is then as it was before.

    See Also
    --------
    DPMeans : One data set.
    hdp_lambdas : The default penalties.

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
    n_iter_: int

    def __init__(
        self,
        lam_local: float | Literal["farthest-first"] = "farthest-first",
        lam_global: float | Literal["farthest-first"] = "farthest-first",
        *,
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
            check_lam(getattr(self, name), finite=True, name=name)
        check_number(self.n_local, "n_local", low=1, integer=True)
        check_number(self.n_global, "n_global", low=1, integer=True)
        self._check_starts()

    def fit(self, X: ArrayLike, y: object = None, *, groups: ArrayLike | None = None) -> Self:
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
            lam_local, lam_global = self.lam_local, self.lam_global
            if isinstance(lam_local, str):
                lam_local = local_of_rows(X, sets, self.n_local, n_threads)
            if isinstance(lam_global, str):
                lam_global = global_of_rows(X, sets, self.n_global, n_threads)
            lam_local, lam_global = float(lam_local), float(lam_global)
            layout = Layout(X, None, n_threads)
            mean = layout.mean(X, None, n_threads)
            # the global penalty, or more than rounding alone can make
            floor = max(lam_global, mean_noise(layout.low, layout.high) * X.shape[0])

            def start(number):
                order = sets.order(rng if number else None)
                sweep = HDPSweep(
                    X,
                    order,
                    sets.number[order],
                    len(sets),
                    lam_local,
                    floor,
                    layout,
                    mean,
                    n_threads,
                )
                one = _Start(sweep, lam_local, lam_global)
                return one.run(X.shape[0], self.max_iter, self.tol, self.verbose)

            best = best_of(map(start, range(self.n_init)), total=self.n_init, verbose=self.verbose)
            sweep, progress = best.sweep, best.progress
            self.groups_ = sets.names
            self.labels_, self.local_labels_, self.cluster_centers_, *local = sweep.result()
            self.n_local_clusters_, self.local_clusters_ = local
            self.n_clusters_ = sweep.k
            self.inertia_ = sweep.error
            self.objective_, self.objective_path_ = best.objective, np.array(progress.path)
            self.lam_local_, self.lam_global_ = lam_local, lam_global
            self.n_iter_ = progress.n_iter
            if not progress.ended:
                warn_not_converged(self, self.n_iter_)
        return self

    def predict(self, X: ArrayLike, groups: ArrayLike | None = None) -> NDArray[np.int32]:
        """Global cluster of new rows, at the costs of the fit; no row opens a global cluster.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data.
        groups : array-like of shape (n_samples,), default=None
            The data set of each row. One that the fit has not seen, or None, has no local clusters
            yet, so that the nearest center is the cheapest.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Index into ``cluster_centers_``; at a tie the lowest one.
        """
        check_is_fitted(self)
        self._check_parameters()
        X = self._validate(X, reset=False)
        check_reach(X)
        centers = learned(self, "cluster_centers_", None, X.shape[1])
        offset = np.full((len(self.groups_) + 1, len(centers)), self.lam_local_)
        for j, used in enumerate(self.local_clusters_):
            offset[j, used] = 0.0
        group = np.full(X.shape[0], len(self.groups_), dtype=np.int32)
        if groups is not None:
            group = Groups(groups, X.shape[0]).among(self.groups_)
        return assign(X, group, centers, offset, self._threads())
