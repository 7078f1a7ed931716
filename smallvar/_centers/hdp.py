"""HDPMeans: the hard HDP, which clusters several data sets that share clusters.

Kulis & Jordan (2012), section 4, Algorithm 2. A sweep (``smallvar._sweeps.hdp``, or
``divergence_hdp`` for divergences) moves the rows (steps 4 and 5 of the paper) and then the centers
(step 6). The rows of a fit and their starts are in ``hdp_problem``. The number of global clusters
that the data support is chosen in ``hdp_choice``.
"""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from smallvar._centers.bregman import DivergenceMixin
from smallvar._centers.center_estimator import NearestCenters
from smallvar._centers.divergence_hdp import DivergenceHDPProblem
from smallvar._centers.divergence_rules import DIVERGENCES
from smallvar._centers.hdp_choice import best_fit
from smallvar._centers.hdp_problem import (
    HDPFitted,
    HDPProblem,
    HDPSettings,
    HDPStart,
    LocalClusters,
)
from smallvar._core.config import at_most_blas_threads
from smallvar._core.estimator import keywords_only, warn_not_converged
from smallvar._core.frame import RowsFrame
from smallvar._core.groups import Groups
from smallvar._core.identifiers import warn_of_identifiers
from smallvar._core.validation import (
    check_lam,
    check_reach,
    check_weights,
    exact_number,
    mean_weight,
)
from smallvar._selection.cluster_path import ClusterPath
from smallvar._selection.penalty import LAM_RULES, check_exact_number
from smallvar._selection.scale import warn_of_wide, wide_of_many
from smallvar._sweeps.ranges import column_range


def local_clusters(model):
    """The local clusters of a fitted HDPMeans."""
    used, rule = model.local_clusters_, DIVERGENCES.get(model.divergence)
    return LocalClusters(model.groups_, used, model.cluster_centers_, model.lam_local_, rule)


class HDPMeans(ClusterMixin, DivergenceMixin, NearestCenters):
    """Hard HDP: clusters several data sets, which share global clusters.

    Minimizes, over labels, centers and the numbers of clusters,

        sum_i ||x_i - mu_{z_i}||^2 + lam_local * (number of local clusters) + lam_global * K,

    where a local cluster consists of the rows of one data set in one of the K global clusters.
    Each data set pays ``lam_local`` for each global cluster that it uses, and ``lam_global`` is
    paid once for each global cluster. With weights w_i, squared distances are multiplied by them.
    By default both penalties are derived from the data. A Bregman divergence D(x_i, mu_{z_i}) may
    take the place of the squared distance, for counts, shares, bits or waiting times.

    Parameters
    ----------
    lam_local : float, "auto" or "farthest-first", default="auto"
        Penalty for each local cluster, in squared data units, > 0. "auto" derives it from the
        variance within the clusters of all rows together: see Notes.
        "farthest-first" is that of :func:`hdp_lambdas` for 5 clusters in a data set.
    lam_global : float, "auto" or "farthest-first", default="auto"
        Penalty for each global cluster, in squared data units, > 0. With "auto" the fit starts
        from the global clusters of a merge path of all rows together. Data sets then give up
        the local clusters that save less than ``lam_local``. The number of global clusters is the
        one with the lowest criterion: see Notes. "farthest-first" is that of
        :func:`hdp_lambdas` for 15 clusters in all.
    divergence : {"squared_euclidean", "kl", "itakura_saito", "logistic"}, \
default="squared_euclidean"
        The divergence D, as for :class:`BregmanDPMeans`. Penalties are then in units of D.
    n_clusters : int, "auto" or None, default=None
        The exact number of global clusters, if ``lam_global`` is "auto". At most the number of
        distinct rows, and of global clusters that save some data set ``lam_local_``. None or
        "auto": the data choose.
    n_init : int, default=1
        Number of starts: the first visits data sets in sorted order and their rows as given, the
        others in random orders. The start with the lowest objective is kept; ten starts often
        find a lower one. With "auto" it is the number of merge paths, of which the one with the
        lowest criterion is kept: one is mostly enough.
    max_iter : int, default=300
        Largest number of sweeps; those that open global clusters do not
        count, but there are at most ``max_iter + n_samples``.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times its value after the first
        sweep. 0 runs to a fixed point.
    random_state : int, RandomState instance or None, default=None
        Generator of the random orders, of the first clusters of a merge path, see
        :func:`cluster_path`, and, with many rows, of the samples on which numbers of clusters are
        compared.
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
        Weighted sum of squared distances to the assigned centers.
    objective_ : float
        ``inertia_ + lam_local_ * n_local_clusters_.sum() + lam_global_ * n_clusters_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep; it never rises.
    lam_local_ : float
        The local penalty used.
    lam_global_ : float
        The global penalty used.
    lam_global_range_ : tuple of float
        With ``lam_global="auto"`` only: the bounds of the penalties that fit the result. Above the
        first the result is a fixed point: no data set opens a global cluster. Above the second
        some global cluster would not be opened again if it were removed; infinite for a single
        cluster. ``lam_global_`` is their geometric mean, or the first if that is larger. It is half
        the second where the first is 0, and twice the first where the second is infinite; where
        both hold (a single cluster), twice ``inertia_`` (``lam_local_`` if that is 0).
    path_ : ClusterPath
        With "auto" only: the merge path of all rows together, see :func:`cluster_path`.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    probabilities_ : ndarray of shape (n_samples,), float64
        The probability of its own cluster for each row, see :meth:`predict_proba`.
    outlier_scores_ : ndarray of shape (n_samples,), float64
        How strange each row is, from 0 to 1, see :meth:`outlier_scores`.
    profiles_ : DataFrame, Table or dict of arrays
        What sets each cluster apart: a row for each cluster and column. See
        :meth:`profile_clusters`.
    representatives_ : Representatives
        Numbers of rows that stand for the clusters: ``centers``, those nearest to the centers, and
        ``boundaries``, a dict with two rows for each pair of clusters that touch.
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
    DPMeans : Clusters one data set.
    hdp_lambdas : Penalties from guesses of the numbers of clusters.
    hdp_bound : A lower bound on the objective.

    Notes
    -----
    With ``lam_global="auto"`` the fit begins at pooled clusters: those of ``path_``, a merge path
    of all rows together, after Lloyd sweeps. Each data set then drops its
    cheapest local cluster, whose rows go to the nearest one that it keeps, while that adds less
    than ``lam_local`` to the squared error. Sweeps of Algorithm 2 that open no global cluster
    follow; drops and sweeps alternate until nothing changes. ``lam_local="auto"`` is ::

        lam_local_ = 3 s^2 log(u),  s^2 = (weighted squared error of the pooled clusters) / (u d)

    with u distinct rows and d columns that vary. (By another divergence it is 3/2 phi log(u), with
    the dispersion phi and the number of rows u of :class:`BregmanDPMeans`: 1 for Poisson counts
    and bits, and the mean of 2 D / d for other numbers. For squared distances that is 2 s^2. The
    criterion is that of BregmanDPMeans, too.) The number of pooled clusters minimizes
    V + 2 min(0, sum_j L_j - L). V is the criterion of :func:`cluster_path` for the labels at which
    the data sets end, and L_j the length of a code for the labels of data set j by itself, ::

        L_j = log C(K, m_j) + log C(n_j - 1, m_j - 1) + log(n_j! / prod_c n_jc!),

    for n_j rows in m_j of the K clusters, n_jc in each. L is the length for all rows as one data
    set: where data sets have few clusters each, a further global cluster makes their codes hardly
    longer. ``path_.best``, the choice for the pooled rows, is kept unless another number is better
    by more than ``path_.tie``. With more than 20,000 rows, numbers are compared on whole data sets
    drawn at random, with about that many rows together. The result is then a fixed point of
    Algorithm 2 at both penalties; but Algorithm 2 started from the mean at these penalties need not
    find the same number of global clusters. With a number for ``lam_global`` the fit starts from
    the mean, as in the paper.

    In step 5 of Algorithm 2 the local clusters of a data set are visited in the order of their
    global clusters, each as it was when the visit of its data set began. One that moves to a global
    cluster that its data set has already is united with the local cluster there, which saves
    ``lam_local``; if that one is still to be visited, it then moves with the rows that have joined.

    By a divergence a local cluster moves by D of its mean. Components of an opened center on the
    border of the domain are moved as in BregmanDPMeans. Data outside the domain raise.

    A row of weight w joins a cluster at w times the squared distance, and opens one if that
    exceeds the penalties. Penalties that "auto" derives are proportional to the weights, those of
    "farthest-first" to their mean. Rows of weight zero take no part in the fit. They get the label
    that ``predict`` with the same weights gives them: the nearest of the clusters that their data
    set has. A data set in which all rows have weight zero is not among ``groups_``; its local
    labels are -1.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means: new algorithms via Bayesian nonparametrics, section
    4, Algorithm 2. Divergences: Jiang, Kulis & Jordan (2012).

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

    Both penalties derived from the data:

    >>> from sklearn.datasets import make_blobs
    >>> X, y = make_blobs(300, centers=4, random_state=2)
    >>> groups = 2 * np.arange(300) // 300 + 2 * (y > 1)
    >>> model = HDPMeans(random_state=0).fit(X, groups=groups)
    >>> model.n_clusters_, model.n_local_clusters_
    (4, array([2, 2, 2, 2]))
    """

    local_labels_: NDArray[np.int32]
    groups_: NDArray[Any]
    local_clusters_: list[NDArray[np.int32]]
    n_local_clusters_: NDArray[np.int64]
    n_clusters_: int
    objective_: float
    objective_path_: NDArray[np.float64]
    lam_local_: float
    lam_global_: float
    lam_global_range_: tuple[float, float]
    path_: ClusterPath

    @keywords_only
    def __init__(
        self,
        *,
        lam_local: float | Literal["auto", "farthest-first"] = "auto",
        lam_global: float | Literal["auto", "farthest-first"] = "auto",
        divergence: Literal[
            "squared_euclidean", "kl", "itakura_saito", "logistic"
        ] = "squared_euclidean",
        n_clusters: int | Literal["auto"] | None = None,
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.lam_local = lam_local
        self.lam_global = lam_global
        self.divergence = divergence
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    def _check_parameters(self):
        for name in ("lam_local", "lam_global"):
            check_lam(getattr(self, name), finite=True, name=name, options=LAM_RULES)
        check_exact_number(self, ("lam_global",))
        self._rule()
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
            The data set that each row is from: numbers or strings. None: all are from one.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each.

        Returns
        -------
        self : HDPMeans
            The fitted estimator.
        """
        self._check_parameters()
        rng, n_threads, rule = self._rng(), self._threads(), self._rule()
        X = self._validate(X, reset=True)
        # the ends of the columns tell as much as all numbers, and threads find them
        check_reach(np.array(column_range(X, None, n_threads)))
        sets = Groups(groups, X.shape[0])
        weight = check_weights(sample_weight, X.shape[0])
        from_data = isinstance(self.lam_local, str) and isinstance(self.lam_global, str)
        relative = self._relative(weight, from_data)
        # rows of weight zero take no part; they are labeled at the end
        some = None if weight is None or weight.all() else np.flatnonzero(weight)
        if some is None:
            problem = self._problem(rule, X, relative, sets, n_threads)
        else:
            positive = check_weights(relative[some], len(some))
            problem = self._problem(rule, X[some], positive, sets.of(some), n_threads)
        # merge paths by a divergence use BLAS
        with nullcontext() if rule is None else at_most_blas_threads(n_threads):
            fitted = best_fit(problem, rng)
        self._learn(fitted, problem.sets.names)
        if some is not None:
            labels = np.empty((X.shape[0], 2), dtype=np.int32)
            labels[some] = np.column_stack((self.labels_, self.local_labels_))
            local_clusters(self).label_idle(labels, X, relative, sets, n_threads)
            self.labels_, self.local_labels_ = labels.T.copy()
        self._remember_rows(X, weight)
        warn_of_identifiers(self, X)
        if from_data and rule is None:
            warn_of_wide(self, wide_of_many(X, weight))
        if not fitted.start.progress.ended:
            warn_not_converged(self, self.n_iter_)
        return self

    def _problem(self, rule, X, weight, sets, n_threads):
        """The rows of a fit, which all have weight, and its settings."""
        settings = HDPSettings(
            self.lam_local, self.lam_global, exact_number(self.n_clusters), self.n_init,
            self._loop(), mean_weight(weight), self._unit, rule,
        )  # fmt: skip
        kind = HDPProblem if rule is None else DivergenceHDPProblem
        return kind(settings, X, weight, sets, n_threads)

    def _fit_elsewhere(self, rows):
        lams = float(self.lam_local), float(self.lam_global)
        best = HDPStart(rows.sweep(*lams), *lams).run(rows.n_samples, self._loop())
        self._learn(HDPFitted(best, best.lam_global), rows.names)
        return best.progress.ended

    def _learn(self, fitted, names):
        """Set what is learned from the result of a fit, in the unit of the user's weights."""
        sweep, start = fitted.start.sweep, fitted.start
        self.groups_ = names
        self.labels_, self.local_labels_, self.cluster_centers_, *local = sweep.result()
        self.n_local_clusters_, self.local_clusters_ = local
        self.n_clusters_ = sweep.k
        self.inertia_ = sweep.error
        self.objective_path_ = fitted.objective_path
        self.objective_ = float(self.objective_path_[-1])
        self.lam_local_, self.lam_global_ = start.lam_local, fitted.lam_global
        self.n_iter_ = start.progress.n_iter
        self._forget("path_", "lam_global_range_")
        if fitted.path is not None:
            self.path_ = fitted.path
        if fitted.penalties is not None:
            self.lam_global_range_ = tuple(self._unit * bound for bound in fitted.penalties)
        # where both penalties are from the data, the fit had weights in units of the lightest
        self._multiply("inertia_", "objective_path_", "objective_", "lam_local_", "lam_global_")
        self._multiply("path_")

    def _cluster_distances(self, X):
        rule = self._rule()
        if rule is None:
            return cdist(X, self.cluster_centers_)
        return rule.between(X[:, None], self.cluster_centers_)

    def predict(
        self, X: ArrayLike, groups: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> NDArray[np.int32]:
        """Return the global cluster of new rows; no row opens one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data.
        groups : array-like of shape (n_samples,), default=None
            The data set of each row. A data set that the fit has not seen (None: all rows) has no
            local clusters yet, so that the nearest center is the cheapest.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each. The heavier a row, the nearer the center
            that it takes: a light row does not open a local cluster in its data set where a heavy
            one does. A row of weight zero never opens one.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Index into ``cluster_centers_``; at a tie the lowest index.
        """
        return self._predict(X, groups, sample_weight)[0]

    def _predict(self, X, groups, sample_weight):
        """Labels of rows, the checked rows and weights, and the local clusters."""
        check_is_fitted(self)
        self._check_parameters()
        X = self._validate(X, reset=False)
        check_reach(X)
        n_threads, weight = self._threads(), check_weights(sample_weight, X.shape[0])
        rule = self._rule()
        centers = self._centers(rule, X.shape[1])
        group = np.full(X.shape[0], len(self.groups_), dtype=np.int32)
        if groups is not None:
            group = Groups(groups, X.shape[0]).among(self.groups_)
        if weight is not None and rule is None:
            RowsFrame(X, weight, n_threads, centers)  # raises where weighted squares overflow
        local = replace(local_clusters(self), centers=centers)
        return local.assign(X, group, weight, n_threads), X, weight, local

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
            The data set of each row, as for ``predict``. None: all are from one.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
            ``-(sum of w * squared distance to the assigned center + lam_local_ * number of local
            clusters + lam_global_ * n_clusters_)``, with the labels of ``predict``; local clusters
            are those that rows with weight use.
        """
        labels, rows, weight, local = self._predict(X, groups, sample_weight)
        sets, centers = Groups(groups, len(rows)), local.centers
        pairs = sets.number.astype(np.int64) * len(centers) + labels
        n_local = len(np.unique(pairs if weight is None else pairs[weight > 0.0]))
        error = local.error(rows, labels, self._threads(), weight)
        return -(error + self.lam_local_ * n_local + self.lam_global_ * len(centers))
