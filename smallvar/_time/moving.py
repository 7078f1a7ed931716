"""``MovingClusters``, the base of D-Means and its kernel forms (Campbell, Kulis & How, 2017).

It has what happens from one time step to the next: weights of old clusters fade, clusters are born,
die and are revived, steps are recorded, and ``fit`` splits rows into steps. How the rows of one
step are clustered is up to the subclasses. CKH is the paper; section 4 has D-Means.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, starmap
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from smallvar._core.estimator import (
    Estimator,
    check_parameters,
    usable_rows,
    warn_not_converged,
)
from smallvar._core.fit_loop import NO_CAP
from smallvar._core.progress import ProgressEvent
from smallvar._core.row_names import exact_array, read_times, several_kinds
from smallvar._core.tables import GAPS_IN_TIME
from smallvar._core.validation import (
    check_flag,
    check_lam,
    check_number,
    check_ratio,
    check_reach,
    check_spread,
    check_stays,
    check_verbose,
    check_weights,
    learned,
    mean_weight,
    shown,
)
from smallvar._selection.confidence import warn_if_unclear
from smallvar._selection.penalty import BatchPenalty
from smallvar._sweeps.rows import LARGEST_WEIGHT_RATIO

DEFAULT_T_Q, DEFAULT_K_TAU = 6.8, 1.01  # values of the example of the paper's authors
LONGEST_GAP = NO_CAP  # steps without data at a time: ages are sums of them, and int64


class StepRecord(NamedTuple):
    """Record of a time step, by numbers (ids) of clusters."""

    time: Any
    objective: float
    ids: NDArray[np.int64]  # clusters with points
    track_values: NDArray[np.float64]  # a row for each of these: the columns of ``tracks_``
    births: NDArray[np.int64]
    deaths: NDArray[np.int64]
    revivals: NDArray[np.int64]


@dataclass
class TimeStep:
    """The rows of a time step."""

    time: Any
    rows: Sequence[int] | NDArray[np.intp]  # with weight
    weightless: Sequence[int] | NDArray[np.intp]  # without weight, up to the next step
    elapsed: int = 1  # number of steps since the one before


@dataclass
class ClusteredStep:
    """A clustering of a time step: clusters are the old ones in their order, then the new ones."""

    labels: NDArray[np.intp]
    weights: NDArray[np.float64]  # total weight of the points of each cluster
    clusters: Any  # their centers, in the type of the subclass
    converged: bool


class MovingClusters(ClusterMixin, Estimator):
    """Base of D-Means and its kernel forms: what happens from one time step to the next.

    A subclass says how a step is clustered, by these methods:

    - ``_cluster`` returns a ``ClusteredStep``, with clusters in a type of its own;
    - ``_clusters_of_empty_step`` returns the clusters after a step without data, unchanged;
    - ``_store_clusters`` stores the clusters that the mask ``alive`` selects as the state;
    - ``_track_values`` returns what ``tracks_`` has for the clusters seen in a ClusteredStep;
    - ``_penalty`` returns a BatchPenalty, derived from the rows of a batch; what is not None for
      ``within`` is chosen again, see there;
    - ``_cheapest`` returns, for each row, the first of the clusters ``among`` with the least
      ``offset + factor`` times its squared distance, as an index into them. A ``factor`` of None is
      1 for each, without offsets.

    Weights of rows are None but for subclasses whose ``fit`` and ``partial_fit`` take them.
    """

    _LAMS: tuple[str, ...] = ("farthest-first",)
    _gaps_advice = GAPS_IN_TIME
    _found: BatchPenalty | None = None  # where the data choose the penalty

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
        check_verbose(self.verbose)
        check_lam(self.lam, finite=True, options=self._LAMS)
        pairs = {"t_q": self.t_q, "k_tau": self.k_tau, "q": self.q, "tau": self.tau}
        given = [name for name, value in pairs.items() if value is not None]
        if given not in ([], ["t_q", "k_tau"], ["q", "tau"]):
            raise ValueError(
                "either t_q and k_tau or q and tau must be given, or none of the four, got "
                f"{', '.join(f'{name}={shown(pairs[name])}' for name in given)}"
            )
        for name, low in (("t_q", 1), ("k_tau", 1), ("q", 0), ("tau", 0)):
            value = check_number(pairs[name], name, low=low, low_open=name == "t_q", none=True)
            if name != "t_q" and value is not None and math.isinf(value):
                raise ValueError(f"{name} must be finite, got {shown(value)}")
        check_number(self.n_init, "n_init", low=1, integer=True)
        check_flag(self.record, "record")

    def _reset(self, d, recording):
        """Reset the state to that before the first step; ``d`` is the number of columns."""
        self.cluster_ids_ = np.zeros(0, dtype=np.int64)
        self.weights_ = np.zeros(0)
        self.ages_ = np.zeros(0, dtype=np.int64)
        self.n_steps_ = 0
        self._next_id = 0
        self._generator = check_random_state(self.random_state)
        self._forget("lam_", "q_", "tau_", "path_", "_found")
        # parameters that must not change between steps
        self._fixed_parameters, self._initial_random_state = {}, self.random_state
        self._recorded = [] if recording else None  # StepRecords

    def _uses_random_numbers(self):
        """Whether a step draws random numbers."""
        return self.n_init > 1

    def _resolve_penalties(self, X, weight, n_threads):
        """Set the penalties lam, Q and tau as numbers, from the first batch with rows.

        They may be set again from a later one, see ``BatchPenalty``.
        """
        names = ("lam", "guess", "t_q", "k_tau", "q", "tau", "divergence", "directions")
        self._fixed_parameters = {
            name: getattr(self, name) for name in names if hasattr(self, name)
        }
        lam = self.lam
        if isinstance(lam, str):
            found = self._penalty(X, weight, n_threads)
            if self._found is not None:
                found = self._found.after(found)
                if found is self._found:
                    return
            self._found = found
            if found.path is not None:
                self.path_ = found.path
            lam = found.lam
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
        if isinstance(self.lam, str):  # tau is one over a weight: in the unit of the given weights
            self.tau_ /= mean_weight(weight)
        if not math.isfinite(self.tau_):
            raise ValueError(
                "t_q and k_tau must make tau = (t_q (k_tau - 1) + 1) / (t_q - 1) finite, got "
                f"t_q={shown(t_q)} and k_tau={shown(k_tau)}"
            )

    def _skip_steps(self, steps):
        """Make ``steps`` steps without data; returns the ids of the clusters that die in them."""
        ids, ages = self.cluster_ids_, self.ages_ + steps
        dead = self._is_dead(ages)
        self._set_state(ids, self.weights_, ages, self._clusters_of_empty_step(), ~dead)
        self.n_steps_ += steps
        return ids[dead]

    def _set_state(self, ids, weights, ages, clusters, alive):
        """Set the state to the clusters that are alive."""
        self._store_clusters(clusters, alive)
        self.cluster_ids_, self.weights_, self.ages_ = ids[alive], weights[alive], ages[alive]
        self.n_clusters_ = len(self.cluster_ids_)

    def _step(self, X, weight, n_threads, time, elapsed):
        """Make one time step, ``elapsed`` after the last; returns whether it converged."""
        forgotten = self._skip_steps(elapsed - 1) if elapsed > 1 else self.cluster_ids_[:0]
        n_old = len(self.ages_)
        if X.shape[0]:
            gamma, clustered = self._clustered(X, weight, n_threads)
        else:
            gamma, nothing = np.zeros(n_old), np.zeros(0, dtype=np.intp)
            clusters = self._clusters_of_empty_step()
            clustered = ClusteredStep(nothing, np.zeros(n_old), clusters, True)
        n_new, seen = len(clustered.weights) - n_old, clustered.weights > 0
        ids, weights, ages = self.cluster_ids_, self.weights_, self.ages_
        if n_new:
            ids = np.append(ids, self._next_id + np.arange(n_new))
            weights, gamma = (np.append(a, np.zeros(n_new)) for a in (weights, gamma))
            ages = np.append(ages, np.zeros(n_new, dtype=np.int64))
        weights = np.where(seen, gamma + clustered.weights, weights)
        ages = np.where(seen, 1, ages + 1)
        self.labels_ = ids[clustered.labels]
        dead = self._is_dead(ages)
        callback = self._callback()
        if self._recorded is not None or callback is not None:
            step = StepRecord(
                time=time,
                objective=self.objective_,
                ids=ids[seen],
                track_values=self._track_values(clustered),
                births=ids[n_old:],
                deaths=np.append(forgotten, ids[dead]),
                revivals=ids[:n_old][seen[:n_old] & (self.ages_ > 1)],
            )
            self._report_step(step, callback)
        self._set_state(ids, weights, ages, clustered.clusters, ~dead)
        self._next_id += n_new
        self.n_steps_ += 1
        return clustered.converged

    def _clustered(self, X, weight, n_threads):
        """Faded weights of the old clusters, and the ClusteredStep, at penalties set if need be."""
        if self._found is not None:
            self._found = self._found.counted()
        found, n_old = self._found, len(self.ages_)
        choose = not hasattr(self, "lam_") or (found is not None and found.is_due)
        if choose:
            self._resolve_penalties(X, weight, n_threads)
        gamma, clustering = self._cluster_faded(X, weight, n_threads)
        if choose or found is None or found.within is None:
            return gamma, clustering
        # the penalty is from a single cluster, and here the rows open another
        if len(clustering.weights) > max(n_old, 1):
            before = self.lam_
            self._resolve_penalties(X, weight, n_threads)
            if self.lam_ != before:
                return self._cluster_faded(X, weight, n_threads)
        return gamma, clustering

    def _cluster_faded(self, X, weight, n_threads):
        """Faded weights of the old clusters, and the ClusteredStep, at the present penalties."""
        # gamma_k = 1 / (1 / v_k + tau D_k), CKH section 4; then v = gamma + n, D = 1
        gamma, penalty = self._costs(self.weights_, self.ages_)
        return gamma, self._cluster(X, weight, gamma, penalty, n_threads)

    def _report_step(self, step, callback):
        """Record a step, and call the callback, if there is one."""
        if self._recorded is not None:
            self._recorded.append(step)
        if callback is not None:
            number, k, n = self.n_steps_ + 1, len(step.ids), len(self.labels_)
            message = (
                f"step {number}: {n} points, {k} clusters, {len(step.births)} of them new, "
                f"{len(step.revivals)} revived, {len(step.deaths)} forgotten, "
                f"objective {step.objective:.8g}"
            )
            callback(ProgressEvent("time step", number, message, k, step.objective, n))

    def _costs(self, weights, ages):
        """Faded weights gamma of old clusters of these ages, and penalties Q D to revive them."""
        gamma = 1.0 / (1.0 / weights + self.tau_ * ages)
        return gamma, np.minimum(self.q_ * ages, self.lam_)  # rounding may exceed lam

    def _is_dead(self, ages):
        """Mask of clusters to forget: Q D > lam. With t_q ages are compared, without rounding."""
        if not hasattr(self, "lam_"):
            return np.zeros(len(ages), dtype=bool)
        if self.q is not None:
            return self.q_ * ages > self.lam_
        return ages > (DEFAULT_T_Q if self.t_q is None else float(self.t_q))

    def _recorded_field(self, field):
        """List of one field of the records of all steps."""
        if vars(self).get("_recorded") is None:
            raise AttributeError(
                f"{type(self).__name__} has no record: use fit, or partial_fit with record=True"
            )
        return [getattr(step, field) for step in self._recorded]

    @property
    def times_(self) -> NDArray[Any]:  # numpydoc ignore=RT01
        """The times of the steps."""
        return exact_array(self._recorded_field("time"))

    @property
    def step_objectives_(self) -> NDArray[np.float64]:  # numpydoc ignore=RT01
        """Objective of every step."""
        return np.array(self._recorded_field("objective"))

    @property
    def births_(self) -> list[NDArray[np.int64]]:  # numpydoc ignore=RT01
        """List the ids of the clusters that are new in each step."""
        return self._recorded_field("births")

    @property
    def deaths_(self) -> list[NDArray[np.int64]]:  # numpydoc ignore=RT01
        """List the ids of the clusters forgotten in the gap before each step, and at its end."""
        return self._recorded_field("deaths")

    @property
    def revivals_(self) -> list[NDArray[np.int64]]:  # numpydoc ignore=RT01
        """List the ids of the clusters that came back in each step."""
        return self._recorded_field("revivals")

    @property
    def tracks_(self) -> dict[int, NDArray[np.float64]]:  # numpydoc ignore=RT01
        """Map the id of each cluster to the steps in which it was seen."""
        ids, values = self._recorded_field("ids"), self._recorded_field("track_values")
        if not ids:
            return {}
        number = np.repeat(np.arange(len(ids)), [len(step) for step in ids])
        rows = np.column_stack([number, np.concatenate(values)])
        ids = np.concatenate(ids)
        order = np.argsort(ids, kind="stable")
        seen_ids, first = np.unique(ids[order], return_index=True)
        return dict(zip(seen_ids.tolist(), np.split(rows[order], first[1:]), strict=False))

    def partial_fit(self, X: ArrayLike, y: object = None, *, elapsed: int = 1) -> Self:
        """Cluster one more time step.

        ``lam``, ``t_q``, ``k_tau``, ``q``, ``tau`` and the kernel must not change after the first
        batch that is not empty, ``random_state`` not after the first batch.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The batch; it may have no rows.
        y : None
            Ignored.
        elapsed : int, default=1
            Number of steps since the last batch, from 1 to 2**31 - 1: with 3, two steps without
            data lie in between.

        Returns
        -------
        self : estimator
            The updated estimator.
        """
        return self._fit_step(X, None, elapsed)

    def fit(
        self,
        X: ArrayLike,
        y: object = None,
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
        return self._fit(X, None, times, step)

    def predict(self, X: ArrayLike, *, dormant: bool = False) -> NDArray[np.int64]:
        """Return the number of the nearest cluster of those active in the last step, for each row.

        Distances are those of the objective, squared, without a penalty. No row opens a cluster.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data. A callable kernel is evaluated on these rows and all kept points.
        dormant : bool, default=False
            Include dormant clusters, which live but were not active in the last step. An active
            cluster costs the squared distance. A dormant one costs what it would have cost to
            revive it in that step, when its age was D = ``ages_`` - 1: Q D + gamma / (1 + gamma)
            times the squared distance, with gamma = 1 / (1 / v + tau D) and its weight v.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int64
            Numbers out of ``cluster_ids_``; at a tie the first.
        """
        check_is_fitted(self)
        self._check_parameters()
        check_flag(dormant, "dormant")
        X = self._validate(X, reset=False)
        if not len(self.cluster_ids_):
            raise ValueError("no cluster lives, so none can be predicted")
        if not (dormant or (learned(self, "ages_", len(self.cluster_ids_)) == 1).any()):
            raise ValueError(
                "no cluster was seen in the last step, so none can be predicted; dormant=True "
                "includes those that live"
            )
        return self._nearest(X, dormant, self._threads())

    def _nearest(self, X, dormant, n_threads):
        """Labels of ``predict``; -1 if there is no cluster to choose from."""
        k = len(self.cluster_ids_)
        weights, ages = learned(self, "weights_", k), learned(self, "ages_", k)
        active = ages == 1
        among = np.ones(k, dtype=bool) if dormant else active
        if not among.any():
            return np.full(X.shape[0], -1, dtype=np.int64)
        offset, factor = np.zeros(among.sum()), None
        if dormant:
            # ages before the last step; that of an active cluster is 0, so it has no penalty, and
            # its center has moved already
            gamma, offset = self._costs(weights, ages - 1)
            factor = np.where(active, 1.0, gamma / (1.0 + gamma))
        return self.cluster_ids_[among][self._cheapest(X, among, offset, factor, n_threads)]

    def _fit_step(self, X, sample_weight, elapsed):
        """Cluster one time step: the implementation of ``partial_fit``."""
        self._check_parameters()
        n_threads, first = self._threads(), not hasattr(self, "n_steps_")
        X = self._validate(X, reset=first, least=0)
        check_reach(X)
        if check_number(elapsed, "elapsed", low=1, integer=True) > LONGEST_GAP:
            raise ValueError(f"elapsed must be <= {LONGEST_GAP}, got {shown(elapsed)}")
        weight = check_step_weights(sample_weight, X)
        if first:
            self._reset(X.shape[1], self.record)
        elif not self.record:
            self._recorded = None
        elif self._recorded is None:
            raise ValueError("record must be set before the first step, got record=True")
        else:
            self._recorded = list(self._recorded)  # a step that fails leaves the list as it was
        for name in ("weights_", "ages_"):
            learned(self, name, len(self.cluster_ids_))
        check_stays(self, {"random_state": self._initial_random_state, **self._fixed_parameters})
        n, elapsed = X.shape[0], int(elapsed)
        rows, weightless = (
            (range(n), ())
            if weight is None
            else (np.flatnonzero(weight), np.flatnonzero(weight == 0))
        )
        time = self.n_steps_ + elapsed - 1
        steps = [TimeStep(time, rows, weightless, elapsed)]
        return self._fit_steps(X, weight, steps, n_threads)

    def _fit(self, X, sample_weight, times, step):
        """Cluster all time steps, from scratch: the implementation of ``fit``."""
        n_threads = self._threads()
        X, weight, steps = checked_record(self, X, sample_weight, times, step)
        self._reset(X.shape[1], True)
        return self._fit_steps(X, weight, steps, n_threads)

    def _fit_steps(self, X, weight, steps, n_threads):
        """Make these steps, and set the labels of all rows; returns the estimator."""
        begins = not hasattr(self, "lam_")
        state = self._generator.get_state() if self._uses_random_numbers() else None
        try:
            if not self._make_steps(X, weight, steps, n_threads):
                warn_not_converged(self, self.n_iter_, " of a time step")
        except BaseException:
            if state is not None:
                self._generator.set_state(state)
            raise
        if begins and self._found is not None and self._found.within is not None:
            warn_if_unclear(self)  # the penalty rests on a single cluster
        return self

    def _make_steps(self, X, weight, steps, n_threads):
        """Make these steps and set the labels of all rows; returns whether all converged."""
        labels, converged = np.empty(len(X), dtype=np.int64), True
        for step in steps:
            rows = step.rows
            if len(rows) == len(X):  # the only step, and rows as given
                return self._step(X, weight, n_threads, step.time, step.elapsed)
            step_weight = None if weight is None else weight[rows]
            converged &= self._step(X[rows], step_weight, n_threads, step.time, step.elapsed)
            labels[rows] = self.labels_
            if len(step.weightless):
                labels[step.weightless] = self._nearest(X[step.weightless], False, n_threads)
        self.labels_ = labels
        return converged


def checked_record(estimator, X, sample_weight, times, step):
    """Checked rows and weights of a record, and its TimeSteps; sets the columns of an estimator."""
    check_parameters(estimator)
    X, _ = usable_rows(estimator, X)
    check_reach(X)
    weight = check_step_weights(sample_weight, X)
    return X, weight, time_steps(times, step, X.shape[0], weight)


def check_step_weights(sample_weight, X):
    """Checked weights of the rows X, None if all are 1.

    Weighted sums and squares of the rows must not overflow.
    """
    if sample_weight is None:
        return None
    if not X.shape[0]:
        if np.shape(sample_weight) != (0,):
            raise ValueError(f"sample_weight must have shape (0,), got {np.shape(sample_weight)}")
        return None
    weight = check_weights(sample_weight, X.shape[0])
    check_ratio(weight, LARGEST_WEIGHT_RATIO)
    if weight is not None:
        check_spread(float(weight.sum()), float(np.abs(X).max()))
    return weight


def time_steps(times, step, n, weight):
    """TimeSteps of n rows with these ``times``, in ascending order; ``step`` as in ``fit``."""
    check_number(step, "step", low=1, integer=True, none=True)
    if times is None:
        if step is not None:
            raise ValueError(f"step must be None without times, got {shown(step)}")
        times = np.zeros(n, dtype=np.int64)
    times, levels = read_times(times, n)
    if step is not None and (times.dtype.kind not in "iu" or levels is not None):
        kind = times.dtype if levels is None else "ordered categories"
        raise ValueError(
            f"times must be integers where step is given, got {kind}: count dates with "
            "(dates - dates.min()) // np.timedelta64(1, 'D')"
        )
    try:
        order = np.argsort(times, kind="stable")
    except TypeError:
        raise several_kinds("times", {type(time) for time in times.tolist()}) from None
    has_weight = np.ones(n, dtype=bool) if weight is None else weight[order] > 0
    order, weightless = order[has_weight], order[~has_weight]
    values, first = np.unique(times[order], return_index=True)
    after = np.maximum(np.searchsorted(values, times[weightless], side="right"), 1)
    weightless = np.split(weightless, np.searchsorted(after, np.arange(2, len(values) + 1)))
    gaps = [1] * len(values)
    if step is not None:
        numbers = values.tolist()
        gaps[1:] = (gap_between(a, b, int(step)) for a, b in pairwise(numbers))
    values = values if levels is None else levels[values]
    return starmap(TimeStep, zip(values, np.split(order, first[1:]), weightless, gaps, strict=True))


def gap_between(before, after, step):
    """Number of steps of length ``step`` from one time to another."""
    steps, rest = divmod(after - before, step)
    if rest:
        raise ValueError(f"times must be whole steps of {step} apart, got {before} and {after}")
    if steps > LONGEST_GAP:
        raise ValueError(
            f"times must be at most {LONGEST_GAP} steps apart, got {before} and {after}: make "
            f"step={step} larger"
        )
    return steps
