"""D-Means (Campbell, Kulis & How, 2017, section 4): clusters that move, die and are revived.

The time steps are those of ``MovingClusters``; a step is clustered by the compiled sweeps of
``DynamicStep``, or by divergences and directions in ``rule_step``.
"""

import math
import warnings
from functools import partial
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smallvar._core.estimator import keywords_only
from smallvar._core.fit_loop import NO_CAP, best_of
from smallvar._core.validation import (
    check_number,
    check_reach,
    learned,
    level_of_caller,
    mean_weight,
)
from smallvar._selection.cluster_path import ClusterPath
from smallvar._selection.path import find_path
from smallvar._selection.penalty import (
    LAM_RULES,
    BatchPenalty,
    cut_guess,
    farthest_first,
    opening_distance,
)
from smallvar._sweeps.dynamic import DynamicStep
from smallvar._sweeps.in_order import assign
from smallvar._time.moving import ClusteredStep, MovingClusters
from smallvar._time.rule_step import RuleStep, rule_of

LONE_ROWS = 2.0  # rows of a cluster at a time, on average: below, most are alone
UNEQUAL = 2  # ratio of the longest to the shortest time from one step to the next


class _DynamicStart(NamedTuple):
    """Result of one start of a time step."""

    objective: float
    n_iter: int
    converged: bool
    result: tuple[NDArray[Any], ...]  # see DynamicStep.result


class DynamicMeans(MovingClusters):
    """D-Means: DP-means for a sequence of batches, whose clusters keep their identity.

    Minimizes, at each time step, over labels and centers theta of the batch y,

        sum over clusters k with rows of [ lam if new, Q D_k if old ]
        + sum over the old ones of gamma_k ||theta_k - phi_k||^2
        + sum_i w_i ||y_i - theta_{z_i}||^2,

    where an old cluster was last seen D_k steps ago with center phi_k and weight v_k, and gamma_k =
    1 / (1 / v_k + tau D_k). The longer a cluster is not seen, the more it costs to revive it; it is
    forgotten when that, Q D_k, exceeds the cost lam of a new one.

    Parameters
    ----------
    lam : float, "auto" or "farthest-first", default="auto"
        Penalty for each new cluster, in squared data units, > 0 and finite: the squared distance at
        which a cluster opens. "auto" and "farthest-first" derive it from the first batch that is
        not empty; later batches keep it, but for two cases below. "farthest-first" is the rule of
        :func:`farthest_first_lambda` for ``guess`` clusters. "auto" takes the number of clusters K
        that :func:`cluster_path` chooses, and the geometric mean of the rule for K and for K + 1
        clusters, times the mean weight of the rows. If the path finds a single cluster, the penalty
        is four times the largest weighted squared distance within it, as in
        :class:`MiniBatchDPMeans`, and it is chosen again, up to the first batch whose own path has
        several clusters. (Of batches whose rows open no cluster, only 16 and then every power of
        two are looked at.) After a batch whose rows are all equal, which has no distances, both
        rules go by the next.
    guess : int, default=8
        Guess of the number of clusters in the first batch, for "farthest-first" only. At most the
        number of rows, to which the default is cut. There is no exact number to ask for: clusters
        open and die in every step.
    t_q : float, default=None
        Number of time steps after which a cluster that was not seen is forgotten, > 1; infinity
        for never. Q = lam / t_q.
    k_tau : float, default=None
        How far a cluster may move in a step, >= 1: k_tau * lam is the largest squared distance at
        which a long-lived cluster is revived after one step. tau = (t_q (k_tau - 1) + 1) / (t_q -
        1). Without ``t_q``, ``k_tau``, ``q`` and ``tau``, t_q = 6.8 and k_tau = 1.01.
    q : float, default=None
        Penalty for each step that a revived cluster was not seen, >= 0, in squared data units;
        with ``tau`` instead of ``t_q`` and ``k_tau``.
    tau : float, default=None
        How fast the weight of an old center fades, >= 0. With ``q`` and ``tau`` both 0, the batches
        are parts of one data set. Its unit is one over a weight: the value that follows from
        ``t_q`` and ``k_tau`` is for rows of weight 1, or, if ``lam`` is derived from the data, for
        rows of the mean weight of the first batch.
    n_init : int, default=3
        Orders in which the points of a step are visited, the first as given, the others random.
        The result with the lowest objective goes on.
    max_iter : int, default=300
        Largest number of sweeps in a step.
    record : bool, default=False
        Keep tracks, births, deaths, revivals and objectives in ``partial_fit`` too, where they grow
        with every step. Without it they are those of ``fit``, up to the next ``partial_fit``.
    random_state : int, RandomState instance or None, default=None
        Generator of the random orders, and of the path of ``lam="auto"``.
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.
    verbose : int, default=0
        Print a line a step.
    divergence : {"squared_euclidean", "kl", "itakura_saito", "logistic"}, \
default="squared_euclidean"
        A divergence D of :class:`BregmanDPMeans` in place of the squared distance (see Notes).
    directions : bool, default=False
        Rows and centers are directions, of length 1, and D = 1 - cosine, as for
        :class:`SphericalDPMeans`. Rows of length zero are refused.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        Centers of the clusters that live, seen in the last step or not.
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
    n_iter_ : int
        Sweeps of the last step.
    n_steps_ : int
        Time steps so far, those of gaps included.
    lam_ : float
        The penalty of the last step; that of all steps, unless the first ones had a single cluster.
    path_ : ClusterPath
        The merge path behind ``lam="auto"``, with that only: of the batch from which ``lam_`` was
        chosen, not of all rows. See :func:`cluster_path`.
    q_ : float
        Q.
    tau_ : float
        tau.
    step_objectives_ : ndarray of shape (n_batches,), float64
        Objective of every step with a batch. This and the following after ``fit``, or with
        ``record``.
    times_ : ndarray of shape (n_batches,)
        The times of these steps; with ``partial_fit`` their numbers, from 0.
    tracks_ : dict of int to ndarray of shape (n_seen, 1 + n_features), float64
        For each cluster that ever lived, by number, the steps in which it was seen: the number of
        the step (an index into ``times_``), then the center.
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
        two-dimensional, and for parameters out of their bounds. The estimator is then as it was
        before.

    See Also
    --------
    DPMeans : One data set, without time.
    MiniBatchDPMeans : Batches of one data set.

    Notes
    -----
    A cluster dies at the end of the step in which its age exceeds ``t_q`` (with ``q``: in which
    ``q`` times its age exceeds ``lam``). A step without data only ages the clusters; ``step`` of
    ``fit`` and ``elapsed`` of ``partial_fit`` give the number of these steps between two batches.
    An estimator can be pickled, with its generator, and then goes on where it stopped.

    A row of weight w counts w times in means, objective and ``weights_``: it opens a cluster
    where w times its squared distance exceeds ``lam``, and to revive one costs it Q D + w gamma /
    (w + gamma) times the squared distance. The ratio of weights is at most 1e12. Rows of weight
    zero are left out, and times that have only such rows are no steps. Their labels are those of
    ``predict`` after the step of their time or the last one before it, -1 if no cluster lives.

    With a divergence or directions, D takes the place of the squared distance, in ``lam`` and ``q``
    too. The best theta is (gamma phi + sum w y) / (gamma + sum w), for directions at length 1, and
    a row revives a cluster at Q D_k + gamma D(phi, m) + w D(y, m), m = (gamma phi + w y) / (gamma +
    w). For other than squared distances gamma is right to second order of small moves. A component
    on the border of the domain is infinitely far from rows that differ there. Where a row opens or
    revives a cluster, it is w / (10 (gamma + w)) of the way to the mean of the batch until the
    sweep ends, unless that is dearer than another choice; "farthest-first" has such centers, too.

    To tune: :func:`tune_dynamic`, or first ``lam`` on single batches, then ``t_q`` and ``k_tau`` on
    the sequence. ``fit`` warns where clusters have about one row at a time and times are unequally
    far apart, without ``step`` and any number for the penalties: the first batch says little then.

    References
    ----------
    Campbell, Kulis & How (2017), Dynamic clustering algorithms via small-variance analysis of
    Markov chain mixture models, section 4 (D-Means; parameters: 4.2.3). Banerjee, Merugu, Dhillon &
    Ghosh (2005), Clustering with Bregman divergences. Straub, Campbell, How & Fisher (2015),
    Small-variance nonparametric clustering on the hypersphere.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import DynamicMeans
    >>> model = DynamicMeans(lam=1.0, t_q=4.0, k_tau=1.1)
    >>> model.partial_fit([[0.0, 0.0], [0.2, 0.0], [5.0, 5.0]]).labels_
    array([0, 0, 1])
    >>> model.partial_fit([[5.2, 5.1], [9.0, 0.0]]).labels_
    array([1, 2])
    >>> model.partial_fit([[0.3, 0.1]]).labels_  # cluster 0 is back
    array([0])
    >>> model.ages_
    array([1, 2, 2])
    """

    cluster_centers_: NDArray[np.float64]
    n_iter_: int
    path_: ClusterPath

    @keywords_only
    def __init__(
        self,
        *,
        lam: float | Literal["auto", "farthest-first"] = "auto",
        guess: int = 8,
        t_q: float | None = None,
        k_tau: float | None = None,
        q: float | None = None,
        tau: float | None = None,
        n_init: int = 3,
        max_iter: int = 300,
        record: bool = False,
        random_state: int | np.random.RandomState | None = None,
        n_threads: int | None = None,
        verbose: int = 0,
        divergence: Literal[
            "squared_euclidean", "kl", "itakura_saito", "logistic"
        ] = "squared_euclidean",
        directions: bool = False,
    ) -> None:
        self.lam = lam
        self.guess = guess
        self.t_q = t_q
        self.k_tau = k_tau
        self.q = q
        self.tau = tau
        self.n_init = n_init
        self.max_iter = max_iter
        self.record = record
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose
        self.divergence = divergence
        self.directions = directions

    _LAMS = LAM_RULES

    def _check_parameters(self):
        super()._check_parameters()
        check_number(self.guess, "guess", low=1, integer=True)
        check_number(self.max_iter, "max_iter", low=1, integer=True)
        self._rule()

    def _rule(self):
        """The rule of divergences or directions, None for squared distances."""
        return rule_of(self.divergence, self.directions)

    def _validate(self, X, *, reset, least=1):
        X, rule = super()._validate(X, reset=reset, least=least), self._rule()
        return X if rule is None or not len(X) else rule.checked(X, self._threads())

    def _reset(self, d, recording):
        super()._reset(d, recording)
        self.cluster_centers_ = np.zeros((0, d))

    def _uses_random_numbers(self):
        return super()._uses_random_numbers() or self.lam == "auto"

    def _penalty(self, X, weight, n_threads):
        rule, farthest, opening, options = self._rule(), farthest_first, opening_distance, {}
        if rule is not None:
            farthest, opening, options = rule.farthest, rule.opening, rule.path_options
        if self.lam == "farthest-first":
            guess = self.guess if self._found is None else min(self.guess, len(X))
            lam = mean_weight(weight) * farthest(X, cut_guess(guess, len(X)), None, n_threads)
            return BatchPenalty(None, lam, None if np.ptp(X, axis=0).any() else 0.0)
        path = find_path(X, weight, self._generator, n_threads, **options).seen()
        k = path.best
        if k == 1:
            lam, within = opening(X, weight, path.centers(k), n_threads)
            return BatchPenalty(path, lam, within)
        # between the distance at which the last of k clusters opens and that of one too many
        lams = [farthest(X, min(guess, len(X)), None, n_threads) for guess in (k, k + 1)]
        lam = mean_weight(weight) * lams[-1] * math.sqrt(lams[0] / lams[-1])
        return BatchPenalty(path, lam, None)

    def _cluster(self, X, weight, gamma, penalty, n_threads):
        phi = learned(self, "cluster_centers_", len(gamma), X.shape[1])
        rule = self._rule()
        kind = DynamicStep if rule is None else partial(RuleStep, rule)
        step = kind(X, weight, phi, gamma, penalty, self.lam_, n_threads)

        def start(number):
            order = self._generator.permutation(X.shape[0]) if number else None
            step.run(order, min(self.max_iter, NO_CAP))
            return _DynamicStart(step.objective, step.n_iter, step.converged, step.result())

        best = best_of(map(start, range(self.n_init)))
        labels, centers, weights = best.result
        self.objective_, self.n_iter_ = best.objective, best.n_iter
        return ClusteredStep(labels, weights, centers, best.converged)

    def _clusters_of_empty_step(self):
        self.objective_, self.n_iter_ = 0.0, 0
        return self.cluster_centers_

    def _track_values(self, clustered):
        return clustered.clusters[clustered.weights > 0]

    def _store_clusters(self, centers, alive):
        self.cluster_centers_ = centers[alive]

    def fit(
        self,
        X: ArrayLike,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        *,
        times: ArrayLike | None = None,
        step: int | None = None,
    ) -> Self:
        """Cluster a whole record, from scratch.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            All data.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each.
        times : array-like of shape (n_samples,), default=None
            The time of each row: numbers, dates or anything else that sorts; those of an ordered
            Categorical of pandas (Enum of polars) in the order of the categories. Text is read as
            numbers or dates if all of it is; else it is sorted as text, with a warning where that
            is another order than that of the rows. Rows of the same time are one step, steps are
            taken in ascending order, and rows within a step in the order given. None: all rows are
            one step.
        step : int, default=None
            Length of a time step, for times that are integers: steps at which no time occurs count
            as steps without data. None: the times that occur are consecutive steps, however far
            apart they are.

        Returns
        -------
        self : estimator
            The fitted estimator.
        """
        self._fit(X, sample_weight, times, step)
        if step is None and isinstance(self.lam, str) and self.t_q is None and self.q is None:
            self._warn_of_gaps()
        return self

    def _warn_of_gaps(self):
        """Warn if steps differ in length, and each has about one row of a cluster."""
        n_seen, times = sum(map(len, self.tracks_.values())), self.times_
        if not len(self.labels_) < LONE_ROWS * n_seen:
            return
        gaps = np.diff(times) if times.dtype.kind in "iufM" else times[:0]
        if len(gaps) and gaps.max() >= UNEQUAL * gaps.min():
            warnings.warn(
                f"times are {gaps.min()} to {gaps.max()} apart, clusters have about one row at a "
                "time, and the parameters follow from the first rows: smallvar.tune_dynamic finds "
                "lam, t_q and k_tau for the record, and step counts the time without rows",
                UserWarning,
                stacklevel=level_of_caller(),
            )

    def partial_fit(
        self,
        X: ArrayLike,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        *,
        elapsed: int = 1,
    ) -> Self:
        """Cluster one more time step.

        ``lam``, ``guess``, ``t_q``, ``k_tau``, ``q``, ``tau``, ``divergence`` and ``directions``
        must not change after the first batch that is not empty, ``random_state`` not after the
        first batch.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The batch; it may have no rows.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each.
        elapsed : int, default=1
            Number of steps since the last batch, from 1 to 2**31 - 1: with 3, two steps without
            data lie in between.

        Returns
        -------
        self : estimator
            The updated estimator.
        """
        return self._fit_step(X, sample_weight, elapsed)

    def _cheapest(self, X, among, offset, factor, n_threads):
        check_reach(X)
        centers = learned(self, "cluster_centers_", len(among), X.shape[1])[among]
        if (rule := self._rule()) is not None:
            # active clusters have moved already: infinite gamma
            ages = self.ages_[among] - 1
            gamma = np.where(ages > 0, self._costs(self.weights_[among], ages)[0], np.inf)
            return rule.cheapest(X, centers, offset, gamma)
        return assign(X, None, centers, offset[None], n_threads, factor=factor)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.divergence != "squared_euclidean"
        return tags
