"""D-Means: clusters that move, die and come back from one time step to the next."""

import math
from contextlib import contextmanager
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted

from smallvar._base import Estimator, unchanged_on_error, warn_not_converged
from smallvar._penalty import farthest_first
from smallvar._starts import best_of
from smallvar._sweeps.dynamic import DynamicStep
from smallvar._sweeps.rounds import assign
from smallvar._validation import check_flag, check_lam, check_number, check_reach, learned, shown

DEFAULT_T_Q, DEFAULT_K_TAU = 6.8, 1.01  # those of the authors' own example
GUESS = 8  # clusters, for a penalty from the data


class MovingClusters(ClusterMixin, Estimator):
    """Base of D-Means and its kernel forms: what happens from one time step to the next.

    A form says how a step is clustered: ``_cluster`` returns the labels (old clusters in their
    order, then the new ones), the counts, whether its sweeps came to an end, and the clusters, in
    a type of its own. ``_no_cluster`` is a step without data, ``_keep`` makes those
    that ``alive`` selects the state, ``_mark`` is what tracks say of the active ones, ``_penalty``
    is lam from data.
    """

    cluster_ids_: NDArray[np.int64]
    weights_: NDArray[np.float64]
    ages_: NDArray[np.int64]
    labels_: NDArray[np.int64]
    n_clusters_: int
    objective_: float
    n_steps_: int
    lam_: float
    q_: float
    tau_: float

    def _check_parameters(self):
        check_lam(self.lam, finite=True)
        pairs = {"t_q": self.t_q, "k_tau": self.k_tau, "q": self.q, "tau": self.tau}
        given = [name for name, value in pairs.items() if value is not None]
        if given not in ([], ["t_q", "k_tau"], ["q", "tau"]):
            raise ValueError(
                "either t_q and k_tau or q and tau must be given, or none of the four, got "
                f"{', '.join(f'{name}={shown(pairs[name])}' for name in given)}"
            )
        check_number(self.t_q, "t_q", low=1, low_open=True, none=True)
        check_number(self.k_tau, "k_tau", low=1, none=True)
        check_number(self.q, "q", low=0, none=True)
        check_number(self.tau, "tau", low=0, none=True)
        for name in ("k_tau", "q", "tau"):
            if pairs[name] is not None and math.isinf(pairs[name]):
                raise ValueError(f"{name} must be finite, got {shown(pairs[name])}")
        check_number(self.n_init, "n_init", low=1, integer=True)
        check_flag(self.record, "record")

    def _begin(self, d, recording):
        """No clusters yet."""
        self.cluster_ids_ = np.zeros(0, dtype=np.int64)
        self.weights_ = np.zeros(0)
        self.ages_ = np.zeros(0, dtype=np.int64)
        self.n_steps_ = 0
        self._next_id = 0
        self._generator = check_random_state(self.random_state)
        for name in ("lam_", "q_", "tau_", "_resolved"):
            vars(self).pop(name, None)
        self._recorded = [] if recording else None

    def _draws(self):
        """Whether a step draws random numbers."""
        return self.n_init > 1

    @contextmanager
    def _undone_on_error(self):
        """Take back what a failed step did to the generator and to the record."""
        recorded = len(self._recorded or [])
        state = self._generator.get_state() if self._draws() else None
        try:
            yield
        except BaseException:
            if state is not None:
                self._generator.set_state(state)
            if self._recorded is not None:
                del self._recorded[recorded:]
            raise

    def _resolve_penalties(self, X, n_threads):
        """The penalties lam, Q and tau as numbers, from the first data."""
        names = ("lam", "t_q", "k_tau", "q", "tau")
        self._resolved = {name: getattr(self, name) for name in names}
        lam = self.lam
        if isinstance(lam, str):
            lam = self._penalty(X, min(GUESS, X.shape[0]), n_threads)
        self.lam_ = float(lam)
        if self.q is not None:
            self.q_, self.tau_ = float(self.q), float(self.tau)
            return
        t_q, k_tau = DEFAULT_T_Q, DEFAULT_K_TAU
        if self.t_q is not None:
            t_q, k_tau = float(self.t_q), float(self.k_tau)
        # CKH 4.2.3: Q = lam / T_Q, tau = (T_Q (k_tau - 1) + 1) / (T_Q - 1)
        self.q_ = float(self.lam_ / t_q)
        self.tau_ = float(k_tau - 1 if np.isinf(t_q) else (t_q * (k_tau - 1) + 1) / (t_q - 1))

    def _step(self, X, n_threads, time):
        """One time step; returns whether its sweeps came to an end."""
        old = len(self.ages_)
        ids, converged = self.cluster_ids_, True
        if X.shape[0]:
            if not hasattr(self, "lam_"):
                self._resolve_penalties(X, n_threads)
            # gamma_k = 1 / (1 / v_k + tau D_k), CKH section 4; then v = gamma + n, D = 1
            gamma = 1.0 / (1.0 / self.weights_ + self.tau_ * self.ages_)
            penalty = np.minimum(self.q_ * self.ages_, self.lam_)  # Q D, not above lam by rounding
            labels, counts, clusters, converged = self._cluster(X, gamma, penalty, n_threads)
            new = len(counts) - old
            active = counts > 0
            weights, ages = self.weights_, self.ages_
            revived = ids[active[:old] & (ages > 1)]
            if new:
                ids = np.append(ids, self._next_id + np.arange(new))
                weights, gamma = np.append(weights, np.zeros(new)), np.append(gamma, np.zeros(new))
                ages = np.append(ages, np.zeros(new, dtype=np.int64))
            weights = np.where(active, gamma + counts, weights)
            ages = np.where(active, 1, ages + 1)
            self.labels_ = ids[labels]
        else:
            weights, ages, new = self.weights_, self.ages_ + 1, 0
            active, revived = np.zeros(old, dtype=bool), ids[:0]
            self.labels_ = np.zeros(0, dtype=np.int64)
            clusters, counts = self._no_cluster(), np.zeros(old)
        dead = self._dead(ages)
        if self._recorded is not None:
            self._recorded.append(
                (
                    time,
                    self.objective_,
                    ids[active],
                    self._mark(clusters, active, counts),
                    ids[old:],
                    ids[dead],
                    revived,
                )
            )
        if self.verbose:
            print(
                f"step {self.n_steps_ + 1}: {X.shape[0]} points, {active.sum()} clusters, "
                f"{new} of them new, {len(revived)} revived, {dead.sum()} forgotten, objective "
                f"{self.objective_:.8g}"
            )
        if dead.any():
            ids, weights, ages = ids[~dead], weights[~dead], ages[~dead]
            self._keep(clusters, ~dead)
        else:
            self._keep(clusters, None)
        self.cluster_ids_, self.weights_, self.ages_ = ids, weights, ages
        self.n_clusters_ = len(ids)
        self._next_id += new
        self.n_steps_ += 1
        return converged

    def _dead(self, ages):
        """Clusters to forget. Ages are compared with t_q: Q D may exceed lam by rounding."""
        if not hasattr(self, "lam_"):
            return np.zeros(len(ages), dtype=bool)
        if self.q is not None:
            return self.q_ * ages > self.lam_
        return ages > (DEFAULT_T_Q if self.t_q is None else float(self.t_q))

    def _record_of(self, field):
        """One field of what was recorded, step by step."""
        if vars(self).get("_recorded") is None:
            raise AttributeError(
                f"{type(self).__name__} has no record: use fit, or partial_fit with record=True"
            )
        return [step[field] for step in self._recorded]

    @property
    def times_(self) -> NDArray[Any]:  # numpydoc ignore=RT01
        """The times of the steps."""
        return np.array(self._record_of(0))

    @property
    def step_objectives_(self) -> NDArray[np.float64]:  # numpydoc ignore=RT01
        """Objective of every step."""
        return np.array(self._record_of(1))

    @property
    def births_(self) -> list[NDArray[np.int64]]:  # numpydoc ignore=RT01
        """Number the new clusters of each step."""
        return self._record_of(4)

    @property
    def deaths_(self) -> list[NDArray[np.int64]]:  # numpydoc ignore=RT01
        """Number the clusters forgotten at the end of each step."""
        return self._record_of(5)

    @property
    def revivals_(self) -> list[NDArray[np.int64]]:  # numpydoc ignore=RT01
        """Number the clusters that came back in each step."""
        return self._record_of(6)

    @property
    def tracks_(self) -> dict[int, NDArray[np.float64]]:  # numpydoc ignore=RT01
        """Map the number of every cluster to the steps in which it was seen."""
        ids, marks = self._record_of(2), self._record_of(3)
        if not ids:
            return {}
        number = np.repeat(np.arange(len(ids)), [len(step) for step in ids])
        rows = np.column_stack([number, np.concatenate(marks)])
        ids = np.concatenate(ids)
        order = np.argsort(ids, kind="stable")
        found, first = np.unique(ids[order], return_index=True)
        pieces = np.split(rows[order], first[1:]) if len(found) else []
        return dict(zip(found.tolist(), pieces, strict=True))

    def partial_fit(self, X: ArrayLike, y: object = None) -> Self:
        """Take in one time step.

        ``lam``, ``t_q``, ``k_tau``, ``q`` and ``tau`` must stay what they were at the first batch
        that was not empty.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The batch; it may have no rows.
        y : None
            Ignored.

        Returns
        -------
        self : estimator
            The updated estimator.
        """
        with unchanged_on_error(self):
            self._check_parameters()
            n_threads = self._threads()
            first = not hasattr(self, "n_steps_")
            X = self._validate(X, reset=first, least=0)
            check_reach(X)
            if first:
                self._begin(X.shape[1], self.record)
            elif not self.record:
                self._recorded = None
            elif self._recorded is None:
                raise ValueError("record must be set before the first step, got record=True")
            for name in ("weights_", "ages_"):
                learned(self, name, len(self.cluster_ids_))
            for name, value in vars(self).get("_resolved", {}).items():
                if getattr(self, name) != value:
                    raise ValueError(
                        f"{name} must stay what it was at the first batch, {shown(value)}, got "
                        f"{shown(getattr(self, name))}"
                    )
            with self._undone_on_error():
                if not self._step(X, n_threads, self.n_steps_):
                    warn_not_converged(self, self.n_iter_)
        return self

    def fit(self, X: ArrayLike, y: object = None, *, times: ArrayLike | None = None) -> Self:
        """Cluster a whole record, from scratch.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            All data.
        y : None
            Ignored.
        times : array-like of shape (n_samples,), default=None
            The time of each row: numbers, dates or anything else that sorts. Rows of the same time
            are one step, steps are taken in ascending order, and rows within a step in the order
            given. None: all rows are one step.

        Returns
        -------
        self : estimator
            The fitted estimator.
        """
        with unchanged_on_error(self):
            self._check_parameters()
            n_threads = self._threads()
            X = self._validate(X, reset=True)
            check_reach(X)
            values, order, steps = _steps(times, X.shape[0])
            self._begin(X.shape[1], True)
            labels = np.empty(X.shape[0], dtype=np.int64)
            converged = True
            with self._undone_on_error():
                for value, rows in zip(values, np.split(order, steps), strict=True):
                    batch = X if times is None else X[rows]
                    converged &= self._step(batch, n_threads, value)
                    labels[rows] = self.labels_
                self.labels_ = labels
                if not converged:
                    warn_not_converged(self, self.n_iter_)
        return self


class DynamicMeans(MovingClusters):
    """D-Means: DP-means for a sequence of batches, whose clusters keep their identity.

    Minimizes, at each time step, over labels and centers theta of the batch y,

        sum over active clusters k of [ lam if new, Q D_k if old ]
        + sum over old active k of gamma_k ||theta_k - phi_k||^2
        + sum_i ||y_i - theta_{z_i}||^2,

    where an old cluster was last seen D_k steps ago with center phi_k and weight v_k, and gamma_k =
    1 / (1 / v_k + tau D_k). A cluster that is not seen gets cheaper to replace than to revive, and
    is forgotten when Q D_k exceeds lam.

    Parameters
    ----------
    lam : float or "farthest-first", default="farthest-first"
        Penalty for each new cluster, in squared data units, > 0 and finite. "farthest-first"
        derives it from the first batch that is not empty and a guess of 8 clusters (cut to the
        size of the batch), see :func:`farthest_first_lambda`; there it stays.
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
        How fast the weight of an old center fades, >= 0. Both 0: one data set in batches.
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
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.
    verbose : int, default=0
        Print a line a step.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        Centers of the clusters that live, seen in the last step or not.
    cluster_ids_ : ndarray of shape (n_clusters,), int64
        Their numbers, which stay; new ones count up and are never used again.
    weights_ : ndarray of shape (n_clusters,), float64
        How many points a center stands for, old ones faded.
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
        Time steps so far.
    lam_ : float
        The penalty used.
    q_ : float
        Q.
    tau_ : float
        tau.
    step_objectives_ : ndarray of shape (n_steps,), float64
        Objective of every step. This and the following after ``fit``, or with ``record``.
    times_ : ndarray of shape (n_steps,)
        The times of the steps; 0, 1, ... with ``partial_fit``.
    tracks_ : dict of int to ndarray of shape (n_seen, 1 + n_features), float64
        For each cluster that ever lived, by number, the steps in which it was seen: the number of
        the step (an index into ``times_``), then the center.
    births_ : list of ndarray of int64
        Numbers of the clusters that are new in each step.
    deaths_ : list of ndarray of int64
        Numbers of those forgotten at the end of each step.
    revivals_ : list of ndarray of int64
        Numbers of those seen again after at least one step in which they were not.
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
    ``q`` times its age exceeds ``lam``). A step without data only ages the clusters. The state of
    an estimator, its generator included, can be pickled and goes on where it stopped.

    To tune: first ``lam`` on single batches, then ``t_q`` and ``k_tau`` on the sequence.

    References
    ----------
    Campbell, Kulis & How (2017), Dynamic clustering algorithms via small-variance analysis of
    Markov chain mixture models, section 4 (D-Means; parameters: 4.2.3).

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

    def __init__(
        self,
        lam: float | Literal["farthest-first"] = "farthest-first",
        *,
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
    ) -> None:
        self.lam = lam
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

    def _check_parameters(self):
        super()._check_parameters()
        check_number(self.max_iter, "max_iter", low=1, integer=True)

    def _begin(self, d, recording):
        super()._begin(d, recording)
        self.cluster_centers_ = np.zeros((0, d))

    def _penalty(self, X, guess, n_threads):
        return farthest_first(X, guess, None, n_threads)

    def _cluster(self, X, gamma, penalty, n_threads):
        phi = learned(self, "cluster_centers_", len(gamma), X.shape[1])

        def start(number):
            order = self._generator.permutation(X.shape[0]) if number else None
            step = DynamicStep(X, phi, gamma, penalty, self.lam_, n_threads)
            return step.run(order, min(self.max_iter, 2**31 - 1))

        best = best_of(map(start, range(self.n_init)))
        labels, centers, counts, _ = best.result()
        self.objective_, self.n_iter_ = best.objective, best.n_iter
        return labels, counts, centers, best.converged

    def _no_cluster(self):
        self.objective_, self.n_iter_ = 0.0, 0
        return self.cluster_centers_

    def _mark(self, centers, active, counts):
        return centers[active]

    def _keep(self, centers, alive):
        self.cluster_centers_ = centers if alive is None else centers[alive]

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Number of the nearest cluster among those seen in the last step.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int64
            Out of ``cluster_ids_``; at a tie the first.
        """
        check_is_fitted(self)
        self._check_parameters()
        X = self._validate(X, reset=False)
        check_reach(X)
        centers = learned(self, "cluster_centers_", len(self.cluster_ids_), X.shape[1])
        active = learned(self, "ages_", len(self.cluster_ids_)) == 1
        if not active.any():
            raise ValueError("no cluster was seen in the last step, so none can be predicted")
        centers = centers[active]
        labels = assign(X, None, centers, np.zeros((1, len(centers))), self._threads())
        return self.cluster_ids_[active][labels]


def _steps(times, n):
    """Distinct times, the order of the rows, and where in it each step but the first begins."""
    if times is None:
        return np.zeros(1, dtype=np.int64), np.arange(n), []
    times = check_array(times, ensure_2d=False, dtype=None, ensure_all_finite=True)
    if times.shape != (n,):
        raise ValueError(f"times must have shape ({n},), got {times.shape}")
    if times.dtype.kind in "mM" and np.isnat(times).any():
        raise ValueError("times must not be missing, got NaT")
    try:
        order = np.argsort(times, kind="stable")
    except TypeError as error:
        raise ValueError(f"times must be all numbers, all dates or all strings: {error}") from None
    values, first = np.unique(times[order], return_index=True)
    return values, order, first[1:]
