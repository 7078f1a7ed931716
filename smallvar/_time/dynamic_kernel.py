"""Kernel forms of D-Means (Campbell, Kulis & How, 2017, sections 5 and 6).

``_KernelMovingClusters`` has what both share: centers as sums over kept points, and the kernel of a
time step. ``KernelDynamicMeans`` (KD-Means) moves single points, ``SpectralDynamicMeans``
(SD-Means) rounds a spectral relaxation.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from itertools import compress
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smallvar._core.estimator import keywords_only
from smallvar._core.fit_loop import best_of
from smallvar._core.groups import first_appearance
from smallvar._core.linear_algebra import RoundedLabels, eigen_above, yu_shi
from smallvar._core.validation import check_number, check_symmetric, shown
from smallvar._kernel.gram import KernelEstimator, warn_remote
from smallvar._selection.penalty import GUESS, BatchPenalty, farthest_by
from smallvar._time.exchange import (
    MATCH_TIE,
    Batch,
    Exchange,
    link_costs,
    match_clusters,
    thin_center,
)
from smallvar._time.moving import ClusteredStep, MovingClusters


@dataclass
class Center:
    """Center of a cluster in feature space: the sum of coefficient times kept point."""

    points: NDArray[np.float64]
    coefficients: NDArray[np.float64]
    # kernel between the points; None for a callable, whose values may depend on the whole set
    kernel: NDArray[np.float64] | None


class _KernelMovingClusters(MovingClusters, KernelEstimator):
    """Base of the kernel forms: kept points, the kernel of a step, and prediction.

    A subclass has ``_partition``, which returns labels for a Batch and whether it converged.
    """

    gamma_: float | None
    _kept: list[Center]

    @property
    def kept_points_(self) -> list[NDArray[np.float64]]:  # numpydoc ignore=RT01
        """List the kept points of each cluster."""
        return [center.points for center in self._centers()]

    @property
    def kept_coefficients_(self) -> list[NDArray[np.float64]]:  # numpydoc ignore=RT01
        """List the coefficients of the kept points of each cluster."""
        return [center.coefficients for center in self._centers()]

    def _centers(self):
        if "_kept" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no kept points: it is not fitted")
        return self._kept

    def _check_parameters(self):
        super()._check_parameters()
        if isinstance(self.kernel, str) and self.kernel == "precomputed":
            raise ValueError(
                "kernel must not be 'precomputed', for points of earlier steps are needed too; "
                "pass a callable"
            )
        self._check_kernel()
        check_number(self.budget, "budget", low=1, integer=True)
        check_number(self.max_memory, "max_memory", low=0, low_open=True)

    def _reset(self, d, recording):
        """Forget all clusters, and the kernel of the fit (``_learned_by``)."""
        super()._reset(d, recording)
        self._kept = []
        self._forget("gamma_", "_learned_by")

    def _resolve_penalties(self, X, weight, n_threads):
        self._learn_kernel(X)
        # points that were kept before the data had distances: their kernel may have another gamma
        kernel = self._kernel_of_fit()
        self._kept = [
            center
            if center.kernel is None
            else replace(center, kernel=symmetrized(kernel.between(center.points, center.points)))
            for center in self._kept
        ]
        super()._resolve_penalties(X, weight, n_threads)
        self._fixed_parameters["gamma"] = self.gamma

    def _validate(self, X: ArrayLike, *, reset: bool, least: int = 1) -> NDArray[np.float64]:
        if not reset:  # parameters may have been set since the fit
            self._check_same_kernel()
        X = super()._validate(X, reset=reset, least=least).astype(np.float64, copy=False)
        if len(X):
            warn_remote(self, X)
        return X

    def _kernel_of_step(self, X):
        """Kernel of the rows of X and the kept points: ``K`` and ``kept`` of a Batch."""
        kernel, points = self._kernel_of_fit(), self.kept_points_
        n, kept = X.shape[0], sum(map(len, points))
        # a function is called for all points with each other
        size = 8 * (n + kept) * (n + kept if callable(self.kernel) else n)
        if size > self.max_memory:
            raise ValueError(
                f"max_memory must be at least {size} for a step of {n} rows and {kept} kept "
                f"points, the bytes of its kernel, got {shown(self.max_memory)}: pass fewer rows "
                "at a time"
            )
        if not callable(self.kernel):  # values do not depend on the other points of the set
            X = np.array(X)  # it may be read-only, which some compiled kernels refuse
            K = [symmetrized(kernel.between(X, X))]
            if points:
                K.append(kernel.between(X, np.concatenate(points)))
            return np.hstack(K), [center.kernel for center in self._kept]
        if has_parameter(self.kernel, "n_batch"):
            kernel = replace(kernel, function=partial(self.kernel, n_batch=X.shape[0]))
        points = np.concatenate([X, *points])
        K = kernel.between(points, points)
        check_symmetric(K, "kernel must return a symmetric matrix for a set of points and itself")
        return symmetrized(K.astype(np.float64, copy=False)), None

    def _penalty(self, X, weight, n_threads):
        """Penalty by the rule of farthest_first_lambda, in feature space."""
        self._first_kernel = self._kernel_of_step(X)
        K = self._first_kernel[0][: len(X), : len(X)]  # without kept points
        lam = farthest_by(
            K.diagonal() - 2 * K.mean(axis=0) + K.mean(),
            lambda i: K.diagonal() - 2 * K[i] + K[i, i],
            min(GUESS, len(X)),
            MATCH_TIE * np.abs(K).max(),
        )
        return BatchPenalty(None, lam or 1.0, None if lam else 0.0)

    def _cluster(self, X, weight, gamma, penalty, n_threads):
        first_kernel = vars(self).pop("_first_kernel", None)  # computed already, for the penalty
        K, kept = self._kernel_of_step(X) if first_kernel is None else first_kernel
        batch = Batch(K, self.kept_coefficients_, gamma, penalty, self.lam_, kept)
        labels, converged = self._partition(batch)
        # new clusters are numbered by first appearance
        n_old = len(gamma)
        labels = labels.astype(np.int64)
        labels[labels >= n_old] = n_old + first_appearance(labels[labels >= n_old])
        counts = np.bincount(labels, minlength=n_old)
        centers = self._kept + [None] * (len(counts) - n_old)
        for k in np.flatnonzero(counts):
            centers[k] = self._center(batch, X, np.flatnonzero(labels == k), k, centers[k])
        return ClusteredStep(labels, counts, centers, converged)

    def _center(self, batch, X, rows, k, old):
        """Center of the rows of cluster k of a step, and of its ``old`` center; None: it is new."""
        if old is None:
            K, points, coefficients = batch.kernel_of(rows), X[rows], np.empty(0)
            total = float(len(rows))
        else:  # phi <- (gamma phi + sum of phi(y)) / (gamma + n)
            K, points = batch.kernel_of(rows, k), np.concatenate([X[rows], old.points])
            total = float(len(rows)) + batch.gamma[k]
            coefficients = old.coefficients * (batch.gamma[k] / total)
        coefficients = np.append(np.full(len(rows), 1.0 / total), coefficients)
        thinned, coefficients = thin_center(K, coefficients, self.budget)
        K = None if callable(self.kernel) else K[np.ix_(thinned, thinned)]
        return Center(points[thinned], coefficients, K)

    def _clusters_of_empty_step(self):
        self.objective_ = 0.0
        return self._kept

    def _track_values(self, clustered):
        return clustered.weights[clustered.weights > 0, None].astype(np.float64)

    def _store_clusters(self, clusters, alive):
        self._kept = list(compress(clusters, alive))

    def _cheapest(self, X, among, offset, factor, n_threads):
        K, kept = self._kernel_of_step(X)
        zero = np.zeros(len(among))
        lam = 0.0 if factor is None else self.lam_
        batch = Batch(K, self.kept_coefficients_, zero, zero, lam, kept)
        cost = (batch.norm - 2 * batch.cross)[:, among]  # without K_ii, which is equal for all
        if factor is not None:
            cost = offset + factor * (batch.diagonal[:, None] + cost)
        least = cost.min(axis=1, keepdims=True) + batch.tie
        return (cost <= least).argmax(axis=1)


def symmetrized(K):
    """K made exactly symmetric."""
    return (K + K.T) / 2


def has_parameter(function, name):
    """Whether a callable has a parameter of this name."""
    try:
        return name in signature(function).parameters
    except (TypeError, ValueError):  # some compiled functions have no signature
        return False


class KernelDynamicMeans(_KernelMovingClusters):
    """Kernel D-Means: clusters of any shape that keep their identity from batch to batch.

    Minimizes, at each time step, over labels of the batch y,

        sum over new clusters of [ lam + sum_i K_ii - (sum_ij K_ij) / n ]
        + sum over old clusters seen of [ Q D + sum_i K_ii + gamma n / (gamma + n) K_phi,phi
        - (sum_ij K_ij + 2 gamma sum_i K_i,phi) / (gamma + n) ],

    the objective of :class:`DynamicMeans` in the feature space of the kernel K: sums are over the n
    points of a cluster, phi is its center when it was last seen, D steps ago, with weight v, and
    gamma = 1 / (1 / v + tau D). A center is a sum over at most ``budget`` points that are kept.

    Parameters
    ----------
    lam : float or "farthest-first", default="farthest-first"
        Penalty for each new cluster, a squared distance in feature space, > 0 and finite.
        "farthest-first" derives it from the first batch whose rows are not all equal and a guess
        of 8 clusters (cut to the size of the batch), by the rule of :func:`farthest_first_lambda`
        in feature space, and keeps it.
    t_q : float, default=None
        Number of time steps after which a cluster that was not seen is forgotten, > 1; infinity
        for never. Q = lam / t_q.
    k_tau : float, default=None
        How far a cluster may move in a step, >= 1: k_tau * lam is the largest squared distance at
        which a long-lived cluster is revived after one step. tau = (t_q (k_tau - 1) + 1) / (t_q -
        1). Without ``t_q``, ``k_tau``, ``q`` and ``tau``, t_q = 6.8 and k_tau = 1.01.
    q : float, default=None
        Penalty for each step that a revived cluster was not seen, >= 0; with ``tau`` instead of
        ``t_q`` and ``k_tau``.
    tau : float, default=None
        How fast the weight of an old center fades, >= 0. With ``q`` and ``tau`` both 0, the batches
        are parts of one data set.
    kernel : str or callable, default="rbf"
        A kernel of :func:`sklearn.metrics.pairwise.pairwise_kernels` (not "precomputed"), or a
        callable that takes two arrays of rows and returns the kernel of each row of the first with
        each of the second. It is called once in each step, with the points of the step as both
        arrays: the rows of the batch, then the kept points. So its values may depend on the whole
        set. If it has a parameter ``n_batch``, this is the number of rows of the batch.
    gamma : float, default=None
        Parameter of the kernels "rbf", "laplacian", "chi2", "poly" and "sigmoid", >= 0. None: for
        "rbf", 0.3 / (median squared distance between rows); for "laplacian", the same with the
        distance that it is made of, the sum of absolute differences; for the others, and where all
        rows are equal, scikit-learn's default, for most 1 / n_features. The median is over the rows
        of the first batch that has any, copies once, of 500 rows if there are more; later batches
        do not change it. A function is given ``gamma`` if it is not None.
    budget : int, default=100
        Largest number of kept points of a cluster, >= 1.
    max_memory : float, default=2e9
        Bytes that the kernel of a step (of its rows with each other and all kept points, 8 bytes
        each) may take; a step with more points is refused. Other tables of a step take up to three
        times as much.
    n_init : int, default=3
        Orders in which the points of a step are visited, the first as given, the others random.
        The result with the lowest objective goes on.
    max_iter : int, default=300
        Largest number of sweeps in a step.
    record : bool, default=False
        Keep tracks, births, deaths, revivals and objectives in ``partial_fit`` too, where they grow
        with every step. Without it they are those of ``fit``, up to the next ``partial_fit``.
    random_state : int, RandomState instance or None, default=None
        Generator of the random orders.
    verbose : int, default=0
        Print a line a step.

    Attributes
    ----------
    kept_points_ : list of ndarray of shape (n_kept, n_features), float64
        For each cluster that lives, seen in the last step or not, the points its center is made
        of.
    kept_coefficients_ : list of ndarray of shape (n_kept,), float64
        Their coefficients: the center is the sum of coefficient times point, in feature space.
    cluster_ids_ : ndarray of shape (n_clusters,), int64
        Numbers of the clusters, which do not change; new ones count up and are never used again.
    weights_ : ndarray of shape (n_clusters,), float64
        Weight of each center: the number of its points, with those of earlier steps faded.
    ages_ : ndarray of shape (n_clusters,), int64
        Steps since a cluster was seen: 1 for those of the last step.
    labels_ : ndarray of shape (n_samples,), int64
        Number of each row's cluster: of the last batch, or, after ``fit``, of all rows.
    n_clusters_ : int
        Number of clusters that live.
    objective_ : float
        Objective of the last step; 0 if it was empty.
    objective_path_ : ndarray of shape (n_iter,), float64
        Objective after every sweep of the last step.
    n_iter_ : int
        Sweeps of the last step.
    n_steps_ : int
        Time steps so far, those of gaps included.
    lam_ : float
        The penalty used.
    gamma_ : float or None
        The ``gamma`` used; None where the kernel has none.
    q_ : float
        Q.
    tau_ : float
        tau.
    step_objectives_ : ndarray of shape (n_batches,), float64
        Objective of every step with a batch. This and the following after ``fit``, or with
        ``record``.
    times_ : ndarray of shape (n_batches,)
        The times of these steps; with ``partial_fit`` their numbers, from 0.
    tracks_ : dict of int to ndarray of shape (n_seen, 2), float64
        For each cluster that ever lived, by number, the steps in which it was seen: the number of
        the step (an index into ``times_``), then how many points it had.
    births_ : list of ndarray of int64
        Numbers of the clusters that are new in each step.
    deaths_ : list of ndarray of int64
        Numbers of the clusters forgotten in the gap before each step, and at its end.
    revivals_ : list of ndarray of int64
        Numbers of the clusters seen again after at least one step in which they were not.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit`` and ``partial_fit``, for data that are not finite, numeric and
        two-dimensional, for a kernel that returns anything but a finite symmetric matrix, and for
        parameters out of their bounds. The estimator is then as it was before.

    See Also
    --------
    SpectralDynamicMeans : A relaxation of the same objective, less prone to poor optima.
    DynamicMeans : Clusters that are round.
    KernelDPMeans : One data set, without time.

    Notes
    -----
    After a step, the center of a cluster is gamma / (gamma + n) of the old one plus 1 / (gamma +
    n) of each of its n points. If it is made of more than ``budget`` points, some are chosen by
    forward selection: always the one whose addition lowers the squared distance of center and
    approximation most, refit with a small ridge. A step takes memory for the kernel of its rows
    with each other and all kept points. The estimator holds the kernel between the kept points of
    each cluster, in float64. A callable is evaluated, in each step, for all these points with each
    other.

    A cluster dies at the end of the step in which its age exceeds ``t_q`` (with ``q``: in which
    ``q`` times its age exceeds ``lam``). A step without data only ages the clusters. An estimator
    can be pickled, with its generator (and a kernel that can be), and then goes on where it
    stopped.

    References
    ----------
    Campbell, Kulis & How (2017), Dynamic clustering algorithms via small-variance analysis of
    Markov chain mixture models, sections 5.1, 5.2 and 6.1 (KD-Means).

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import KernelDynamicMeans
    >>> def same_radius(X, Y):
    ...     X, Y = (np.linalg.norm(Z, axis=1) for Z in (X, Y))
    ...     return np.exp(-((X[:, None] - Y) ** 2))
    >>> angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    >>> circle = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> model = KernelDynamicMeans(lam=0.5, t_q=4.0, k_tau=1.1, kernel=same_radius)
    >>> np.bincount(model.partial_fit(np.concatenate([circle, 4 * circle])).labels_)
    array([40, 40])
    >>> model.partial_fit(4.2 * circle).cluster_ids_, model.ages_  # the small one is not seen
    (array([0, 1]), array([2, 1]))
    """

    objective_path_: NDArray[np.float64]
    n_iter_: int

    @keywords_only
    def __init__(
        self,
        *,
        lam: float | Literal["farthest-first"] = "farthest-first",
        t_q: float | None = None,
        k_tau: float | None = None,
        q: float | None = None,
        tau: float | None = None,
        kernel: str | Callable[..., ArrayLike] = "rbf",
        gamma: float | None = None,
        budget: int = 100,
        max_memory: float = 2e9,
        n_init: int = 3,
        max_iter: int = 300,
        record: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.t_q = t_q
        self.k_tau = k_tau
        self.q = q
        self.tau = tau
        self.kernel = kernel
        self.gamma = gamma
        self.budget = budget
        self.max_memory = max_memory
        self.n_init = n_init
        self.max_iter = max_iter
        self.record = record
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self):
        super()._check_parameters()
        check_number(self.max_iter, "max_iter", low=1, integer=True)

    def _partition(self, batch):
        n = len(batch.diagonal)

        def start(number):
            order = self._generator.permutation(n) if number else None
            return Exchange(batch, order, self.max_iter)

        best = best_of(map(start, range(self.n_init)), rounding=batch.tie * n)
        self.objective_, self.n_iter_ = best.objective, best.n_iter
        self.objective_path_ = np.array(best.path)
        return best.labels, best.converged

    def _clusters_of_empty_step(self):
        self.objective_path_, self.n_iter_ = np.zeros(0), 0
        return super()._clusters_of_empty_step()


class SpectralDynamicMeans(_KernelMovingClusters):
    """SD-Means: spectral clustering of batches whose clusters keep their identity.

    Minimizes the objective of :class:`KernelDynamicMeans`, at each time step, by a relaxation: the
    eigenvectors with an eigenvalue above lam of

        G = [[K_yy, K_y,phi Gamma^1/2], [Gamma^1/2 K_phi,y, diag(gamma K_phi,phi + Q D)]],

    with a row for each point y of the batch and one for each old center phi, Gamma = diag(gamma),
    are rounded to a partition of the points, and its clusters are linked to old ones at the least
    cost (:func:`match_clusters`).

    Parameters
    ----------
    lam : float or "farthest-first", default="farthest-first"
        Penalty for each new cluster, a squared distance in feature space, > 0 and finite.
        "farthest-first" derives it from the first batch whose rows are not all equal and a guess
        of 8 clusters (cut to the size of the batch), by the rule of :func:`farthest_first_lambda`
        in feature space, and keeps it.
    t_q : float, default=None
        Number of time steps after which a cluster that was not seen is forgotten, > 1; infinity
        for never. Q = lam / t_q.
    k_tau : float, default=None
        How far a cluster may move in a step, >= 1: k_tau * lam is the largest squared distance at
        which a long-lived cluster is revived after one step. tau = (t_q (k_tau - 1) + 1) / (t_q -
        1). Without ``t_q``, ``k_tau``, ``q`` and ``tau``, t_q = 6.8 and k_tau = 1.01.
    q : float, default=None
        Penalty for each step that a revived cluster was not seen, >= 0; with ``tau`` instead of
        ``t_q`` and ``k_tau``.
    tau : float, default=None
        How fast the weight of an old center fades, >= 0. With ``q`` and ``tau`` both 0, the batches
        are parts of one data set.
    kernel : str or callable, default="rbf"
        A kernel of :func:`sklearn.metrics.pairwise.pairwise_kernels` (not "precomputed"), or a
        callable that takes two arrays of rows and returns the kernel of each row of the first with
        each of the second. It is called once in each step, with the points of the step as both
        arrays: the rows of the batch, then the kept points. So its values may depend on the whole
        set. If it has a parameter ``n_batch``, this is the number of rows of the batch.
    gamma : float, default=None
        Parameter of the kernels "rbf", "laplacian", "chi2", "poly" and "sigmoid", >= 0. None: for
        "rbf", 1 / (median squared distance between rows); for "laplacian", the same with the
        distance that it is made of, the sum of absolute differences; for the others, and where all
        rows are equal, scikit-learn's default, for most 1 / n_features. The median is over the rows
        of the first batch that has any, copies once, of 500 rows if there are more; later batches
        do not change it. A function is given ``gamma`` if it is not None.
    budget : int, default=100
        Largest number of kept points of a cluster, >= 1.
    max_memory : float, default=2e9
        Bytes that the kernel of a step (of its rows with each other and all kept points, 8 bytes
        each) may take; a step with more points is refused. Other tables of a step take up to three
        times as much.
    n_init : int, default=3
        Starts of the rounding. The result with the lowest objective goes on.
    record : bool, default=False
        Keep tracks, births, deaths, revivals and objectives in ``partial_fit`` too, where they grow
        with every step. Without it they are those of ``fit``, up to the next ``partial_fit``.
    random_state : int, RandomState instance or None, default=None
        Generator of the starts.
    verbose : int, default=0
        Print a line a step.

    Attributes
    ----------
    kept_points_ : list of ndarray of shape (n_kept, n_features), float64
        For each cluster that lives, seen in the last step or not, the points its center is made
        of.
    kept_coefficients_ : list of ndarray of shape (n_kept,), float64
        Their coefficients: the center is the sum of coefficient times point, in feature space.
    cluster_ids_ : ndarray of shape (n_clusters,), int64
        Numbers of the clusters, which do not change; new ones count up and are never used again.
    weights_ : ndarray of shape (n_clusters,), float64
        Weight of each center: the number of its points, with those of earlier steps faded.
    ages_ : ndarray of shape (n_clusters,), int64
        Steps since a cluster was seen: 1 for those of the last step.
    labels_ : ndarray of shape (n_samples,), int64
        Number of each row's cluster: of the last batch, or, after ``fit``, of all rows.
    n_clusters_ : int
        Number of clusters that live.
    objective_ : float
        Objective of the last step; 0 if it was empty.
    bound_ : float
        Lower bound on the objective of any clustering of the last step; 0 if it was empty.
    eigenvalues_ : ndarray of shape (n_above,), float64
        Eigenvalues of G above lam in the last step, falling; the largest one if none is.
    n_steps_ : int
        Time steps so far, those of gaps included.
    lam_ : float
        The penalty used.
    gamma_ : float or None
        The ``gamma`` used; None where the kernel has none.
    q_ : float
        Q.
    tau_ : float
        tau.
    step_objectives_ : ndarray of shape (n_batches,), float64
        Objective of every step with a batch. This and the following after ``fit``, or with
        ``record``.
    times_ : ndarray of shape (n_batches,)
        The times of these steps; with ``partial_fit`` their numbers, from 0.
    tracks_ : dict of int to ndarray of shape (n_seen, 2), float64
        For each cluster that ever lived, by number, the steps in which it was seen: the number of
        the step (an index into ``times_``), then how many points it had.
    births_ : list of ndarray of int64
        Numbers of the clusters that are new in each step.
    deaths_ : list of ndarray of int64
        Numbers of the clusters forgotten in the gap before each step, and at its end.
    revivals_ : list of ndarray of int64
        Numbers of the clusters seen again after at least one step in which they were not.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit`` and ``partial_fit``, for data that are not finite, numeric and
        two-dimensional, for a kernel that returns anything but a finite symmetric matrix, and for
        parameters out of their bounds. The estimator is then as it was before.

    See Also
    --------
    KernelDynamicMeans : The same objective, by moves of single points.
    DynamicMeans : Clusters that are round.
    SpectralDPMeans : One data set, without time.

    Notes
    -----
    What becomes of the center of a cluster after a step, what is kept of it, when clusters die and
    that pickled estimators go on is as for :class:`KernelDynamicMeans`.

    References
    ----------
    Campbell, Kulis & How (2017), Dynamic clustering algorithms via small-variance analysis of
    Markov chain mixture models, sections 5.3, 5.4 and 6 (SD-Means). RoundedLabels: Yu &
    Shi (2003), Multiclass spectral clustering.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import SpectralDynamicMeans
    >>> angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    >>> circle = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> model = SpectralDynamicMeans(lam=10.0, t_q=4.0, k_tau=1.1, gamma=0.2, random_state=0)
    >>> np.bincount(model.partial_fit(np.concatenate([circle, circle + [5, 0]])).labels_)
    array([40, 40])
    >>> int(model.partial_fit(circle + [5.5, 0]).labels_[0]), model.ages_
    (1, array([2, 1]))
    """

    bound_: float
    eigenvalues_: NDArray[np.float64]
    _gamma_scale = 1.0

    @keywords_only
    def __init__(
        self,
        *,
        lam: float | Literal["farthest-first"] = "farthest-first",
        t_q: float | None = None,
        k_tau: float | None = None,
        q: float | None = None,
        tau: float | None = None,
        kernel: str | Callable[..., ArrayLike] = "rbf",
        gamma: float | None = None,
        budget: int = 100,
        max_memory: float = 2e9,
        n_init: int = 3,
        record: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.t_q = t_q
        self.k_tau = k_tau
        self.q = q
        self.tau = tau
        self.kernel = kernel
        self.gamma = gamma
        self.budget = budget
        self.max_memory = max_memory
        self.n_init = n_init
        self.record = record
        self.random_state = random_state
        self.verbose = verbose

    def _uses_random_numbers(self):
        return True

    def _partition(self, batch):
        # CKH, section 5.3: G = [[K_yy, K_y,phi Gamma^1/2], [.., diag(gamma K_phi,phi + Q D)]]
        n, n_old = batch.cross.shape
        root = np.sqrt(batch.gamma)
        G = np.zeros((n + n_old, n + n_old))
        G[:n, :n] = batch.K
        G[:n, n:] = batch.cross * root
        G[n:, :n] = G[:n, n:].T
        G[n:, n:] = np.diag(batch.gamma * batch.norm + batch.penalty)
        values, vectors = eigen_above(G, batch.lam, self._generator, least=1)
        self.eigenvalues_ = values
        excess = np.maximum(values - batch.lam, 0.0).sum()
        # cost >= tr G - sum over eigenvalues above lam of (eigenvalue - lam) - lam (old clusters)
        self.bound_ = float(np.trace(G) - excess - batch.lam * n_old)

        def linked(labels):
            new, old = batch.costs(labels, int(labels.max()) + 1)
            link = match_clusters(new, old)
            return RoundedLabels(float(link_costs(new, old, link).sum()), labels, link)

        roundings = yu_shi(vectors[:n], self._generator, self.n_init)
        starts = (linked(labels) for labels, _ in roundings)
        best = best_of(starts, rounding=batch.tie * n)
        labels, link, self.objective_ = best.labels, best.extra, best.objective
        is_new = link < 0
        link[is_new] = n_old + np.arange(is_new.sum())
        return link[labels], True

    def _clusters_of_empty_step(self):
        self.bound_, self.eigenvalues_ = 0.0, np.zeros(0)
        return super()._clusters_of_empty_step()
