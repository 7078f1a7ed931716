"""The choice of lam, t_q and k_tau of D-Means (Campbell, Kulis & How, 2017, 4.2.3) from a record.

``tune_dynamic`` searches the parameters whose labels have the lowest ``RecordCriterion``.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, xlogy
from sklearn.utils import check_random_state

from smallvar._centers.hdp_choice import label_code
from smallvar._core.config import resolve_threads
from smallvar._core.estimator import check_parameters
from smallvar._core.validation import check_number, mean_weight, shown
from smallvar._selection.columns import recorded
from smallvar._selection.penalty import farthest_first
from smallvar._time.dynamic import DynamicMeans
from smallvar._time.moving import checked_record

T_QS, K_TAUS = (1.5, 2.0, 3.0, 5.0, 8.0, 15.0), (1.0, 1.05, 1.2, 1.6, 2.5)
FIRST_T_QS, FIRST_K_TAU = (2.0, 8.0), 1.05  # with which lam is tried first
# lams tried: from the penalty for one cluster in a step to that for half as many as rows, at most
# MOST_GUESSED, in steps of at least LAM_RATIO
MOST_LAMS, LAM_RATIO, MOST_GUESSED = 16, 1.5, 64
TUNING_ROUNDS = 3  # of the search, at most
MOST_STEP_ROWS, MOST_ROWS_USED = 1000, 30_000  # rows of a step, and of all, that are used at most
LOG_RATIOS = (-14.0, 8.0)  # of the squared motion to the variance, searched
LEAST_ROW_VARIANCE = 1e-12  # relative to that of all rows


class RecordCriterion:
    """Minus twice the log-likelihood of rows and labels of a record: see :func:`.tune_dynamic`.

    ``time`` (n,) are the numbers of the steps of the rows, ascending, ``weight`` their weights or
    None. A new center is Gaussian like all rows together, and its term the expectation of that
    density's logarithm. The numbers of new clusters are Poisson; a cluster ends with one
    probability after each of its steps, and is unseen with another; a step's labels have the code
    of ``label_code``.
    """

    def __init__(self, X, weight, time):
        self.X, self.w = X.astype(np.float64), np.ones(len(X)) if weight is None else weight
        self.numbers, self.step_of_row = np.unique(time, return_inverse=True)
        self.X -= np.average(self.X, axis=0, weights=self.w)
        scale = np.abs(self.X).max()
        if not scale > 0.0:
            raise ValueError("X must have rows that differ")
        self.X /= scale  # so that squares are within float64; the criterion changes by a constant
        covariance = (self.X.T * self.w) @ self.X / self.w.sum()
        total = np.trace(covariance)
        self.d = total**2 / np.square(covariance).sum()  # number of independent columns
        self.variance = total / self.d
        # values recorded in steps tell nothing finer
        within_steps = recorded(self.X, self.w).variance.sum() / self.d
        self.least = max(LEAST_ROW_VARIANCE * self.variance, within_steps)

    def __call__(self, labels):
        """The criterion of labels, one for each row: the lower, the better."""
        self._find_sights(labels)
        options = {"bounds": LOG_RATIOS, "method": "bounded", "options": {"xatol": 0.05}}
        best = minimize_scalar(lambda log_r: self._rows(np.exp(log_r)), **options)
        return float(best.fun + 2.0 * self._labels())

    def _find_sights(self, labels):
        """Sort out the sights: one for each cluster and step with rows, by cluster, then time."""
        names, cluster = np.unique(labels, return_inverse=True)
        n_steps = len(self.numbers)
        pairs, sight = np.unique(cluster * n_steps + self.step_of_row, return_inverse=True)
        self.cluster, self.step = np.divmod(pairs, n_steps)
        self.n = np.bincount(sight, self.w)
        self.mean = np.empty((len(pairs), self.X.shape[1]))
        for j in range(self.X.shape[1]):
            self.mean[:, j] = np.bincount(sight, self.w * self.X[:, j]) / self.n
        self.scatter = float(self.w @ np.square(self.X - self.mean[sight]).sum(axis=1))
        self.first = np.flatnonzero(np.diff(self.cluster, prepend=-1))
        self.n_sights = np.diff(self.first, append=len(pairs))
        self.n_clusters = len(names)

    def _rows(self, r):
        """-2 log-likelihood of the rows, for steps of variance r s^2 and the best s^2."""
        first, time = self.first, self.numbers[self.step]
        square, log_det = self.scatter, np.log(self.n).sum()
        center, variance = self.mean[first], 1.0 / self.n[first]  # variances in units of s^2
        for i in range(1, self.n_sights.max()):
            going = self.n_sights > i
            at = first[going] + i
            predicted = variance[going] + r * (time[at] - time[at - 1])
            total = predicted + 1.0 / self.n[at]
            shift = self.mean[at] - center[going]
            square += float((np.square(shift).sum(axis=1) / total).sum())
            log_det += np.log(total).sum()
            gain = predicted / total
            center[going] += gain[:, None] * shift
            variance[going] = predicted * (1.0 - gain)
        # the first mean of a cluster is drawn like all rows, and says nothing of s^2
        free = self.w.sum() - self.n_clusters
        s2 = max(self.least, square / (free * self.d)) if free > 0.0 else self.least
        value = free * np.log(2.0 * np.pi * s2) + square / (s2 * self.d) + log_det
        return self.d * (value + self.n_clusters * (np.log(2.0 * np.pi * self.variance) + 1.0))

    def _labels(self):
        """-log-likelihood of the labels."""
        time, last = self.numbers[self.step], self.first + self.n_sights - 1
        births = np.bincount(self.step[self.first], minlength=len(self.numbers))
        lived = (time[last] - time[self.first]).sum()
        ended = (time[last] < self.numbers[-1]).sum()
        seen = len(time) - self.n_clusters
        code = births.sum() - xlogy(births.sum(), births.mean()) + gammaln(births + 1.0).sum()
        code += _binary_code(ended, lived) + _binary_code(seen, lived - seen)
        n_local = np.bincount(self.step).astype(np.float64)
        # which clusters a step has is said already: C(n_local, n_local) = 1
        return code + label_code(self.n, self.step, n_local)


def _binary_code(a, b):
    """Nats for a and b outcomes of a probability that is fitted to them."""
    return float(xlogy(a + b, a + b) - xlogy(a, a) - xlogy(b, b))


def _part_used(steps, rng):
    """Numbers of the rows of a record that are used, and the numbers of their steps."""
    used, times, now, n_rows = [], [], -1, 0
    for step in steps:
        now += step.elapsed
        rows = np.asarray(step.rows)
        if len(rows) > MOST_STEP_ROWS:
            rows = np.sort(rng.permutation(rows)[:MOST_STEP_ROWS])
        n_rows += len(rows)
        if n_rows > MOST_ROWS_USED and len(used) > 1:
            break
        used.append(rows)
        times.append(np.full(len(rows), now))
    if len(used) < 2:
        raise ValueError("times must have at least two steps, got 1")
    return np.concatenate(used), np.concatenate(times)


@dataclass(frozen=True)
class DynamicTuning:
    """What :func:`.tune_dynamic` has found.

    Attributes
    ----------
    lam, t_q, k_tau : float
        The parameters with the lowest criterion.
    criterion : float
        That criterion, see :func:`.tune_dynamic`.
    tried : dict of str to ndarray of shape (n_tried,)
        What was tried, in order: "lam", "t_q", "k_tau", "criterion", and "n_clusters" of the whole
        record.
    estimator : DynamicMeans
        Fitted to all rows with the parameters found.
    """

    lam: float
    t_q: float
    k_tau: float
    criterion: float
    tried: dict[str, NDArray[np.float64]]
    estimator: DynamicMeans


def tune_dynamic(
    X: ArrayLike,
    times: ArrayLike,
    *,
    lam: float | ArrayLike | None = None,
    t_q: float | ArrayLike | None = None,
    k_tau: float | ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    step: int | None = None,
    n_init: int = 3,
    random_state: int | np.random.RandomState | None = None,
    n_threads: int | None = None,
    verbose: int = 0,
) -> DynamicTuning:
    """Choose ``lam``, ``t_q`` and ``k_tau`` of :class:`DynamicMeans` by a record.

    Minimizes -2 log p(rows, labels) over the parameters that are tried, for the labels that
    ``DynamicMeans`` finds with them. In p each step is predicted from the steps before it; its own
    parameters are fitted to the labels (see Notes). True clusters need not be known.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        All rows of the record.
    times : array-like of shape (n_samples,)
        The time of each row, as for ``DynamicMeans.fit``. At least two steps.
    lam, t_q, k_tau : float or array-like of float, default=None
        A value to keep, or values to try. None: up to 16 penalties from the distances between rows,
        1.5 to 15 steps, and 1 to 2.5.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights >= 0, not all zero; None means 1 each. They are divided by their mean: the
        parameters are for weights of mean 1.
    step : int, default=None
        Length of a time step, as for ``DynamicMeans.fit``.
    n_init : int, default=3
        Orders in which the rows of a step are visited, see :class:`DynamicMeans`.
    random_state : int, RandomState instance or None, default=None
        Generator of a seed for all fits, and of the rows used.
    n_threads : int, default=None
        Threads; None: all that this process may use. The result does not depend on it.
    verbose : int, default=0
        Print a line for each setting tried.

    Returns
    -------
    tuning : DynamicTuning
        The parameters, the estimator fitted with them, and all that was tried.

    Raises
    ------
    ValueError, TypeError
        As from ``DynamicMeans.fit``; also for a single time step, and for rows that are all equal.

    See Also
    --------
    DynamicMeans : Clusters that move; ``partial_fit`` with the parameters found.

    Notes
    -----
    ``lam`` is tried first, for a short and a long memory, then all pairs of ``t_q`` and ``k_tau``
    with the best one, until nothing changes, at most three times: some 80 fits. Of a step at most
    1,000 rows are used, drawn at random, and of a record the first steps with 30,000 rows together.

    In p the rows of a cluster are Gaussian about its center, with one variance s^2 for all
    directions and clusters, and centers take Gaussian steps of variance r s^2, which gives a
    density of each step's rows given the earlier ones (Kalman, 1960). s^2, r, and the rates at
    which clusters are born, end and pause are those of the greatest likelihood. The first center of
    a cluster counts as what is expected of one that is drawn like all rows, wherever it lies.
    Correlated columns
    count as (tr C)^2 / tr C^2 (Satterthwaite, 1946), with C the covariance of all rows. So clusters
    have to be about round and alike: the finer a cloud without clusters is divided, the better or
    worse is it described, and then ``lam`` is better given.

    References
    ----------
    Campbell, Kulis & How (2017), 4.2.3, advise a grid. The criterion is our own.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import tune_dynamic
    >>> rng = np.random.default_rng(0)
    >>> times = np.repeat(np.arange(30), 20)
    >>> place = np.array([[0.0, 0.0], [1.0, 0.0]])[np.arange(600) % 2] + 0.02 * times[:, None]
    >>> X = place + 0.1 * rng.standard_normal((600, 2))
    >>> tuning = tune_dynamic(X, times, random_state=0)
    >>> tuning.estimator.n_clusters_
    2
    """
    check_number(n_init, "n_init", low=1, integer=True)
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    settings: dict[str, Any] = {"n_init": n_init, "random_state": seed, "n_threads": n_threads}
    n_threads = resolve_threads(n_threads)
    model = DynamicMeans(lam=1.0, **settings, verbose=verbose)
    checked, weight, steps = checked_record(model, X, sample_weight, times, step)
    # tau has the unit of one over a weight, so it is chosen for weights of mean 1
    weight = None if weight is None else weight / mean_weight(weight)
    rows, time = _part_used(steps, np.random.RandomState(seed))
    X_used, weight_used = checked[rows], None if weight is None else weight[rows]
    criterion = RecordCriterion(X_used, weight_used, time)
    options = {
        "lam": _values("lam", _lams(X_used, time, n_threads) if lam is None else lam),
        "t_q": _values("t_q", T_QS if t_q is None else t_q),
        "k_tau": _values("k_tau", K_TAUS if k_tau is None else k_tau),
    }
    tried: dict[tuple[float, ...], tuple[float, int]] = {}

    def rate(setting):
        """The criterion of a setting, computed once."""
        key = tuple(setting.values())
        if key not in tried:
            model = DynamicMeans(**setting, **settings)
            labels = model.fit(X_used, sample_weight=weight_used, times=time, step=1).labels_
            tried[key] = criterion(labels), len(np.unique(labels))
            if verbose:
                words = ", ".join(f"{name}={value:.6g}" for name, value in setting.items())
                print(f"{words}: criterion {tried[key][0]:.8g}, {tried[key][1]} clusters")
        return tried[key][0]

    def lowest(**options):
        """The setting of the lowest criterion; at a tie the first one, of the smallest values."""
        settings = itertools.product(*options.values())
        return min((dict(zip(options, values, strict=True)) for values in settings), key=rate)

    # clusters that are seen in every step, or pause
    t_qs = sorted({_nearest(options["t_q"], value) for value in FIRST_T_QS})
    first = options | {"t_q": t_qs, "k_tau": [_nearest(options["k_tau"], FIRST_K_TAU)]}
    best, before = lowest(**first), None
    for _ in range(TUNING_ROUNDS):
        if best == before:
            break
        before, best = best, lowest(**options | {"lam": [best["lam"]]})
        best = lowest(lam=options["lam"], t_q=[best["t_q"]], k_tau=[best["k_tau"]])
    estimator = DynamicMeans(**best, **settings, verbose=verbose)
    estimator.fit(X, sample_weight=weight, times=times, step=step)
    names = (*best, "criterion", "n_clusters")
    columns = np.array([(*key, *found) for key, found in tried.items()]).T
    table = dict(zip(names, columns, strict=True))
    return DynamicTuning(**best, criterion=rate(best), tried=table, estimator=estimator)


def _values(name, values):
    """The values of a parameter to try, ascending, in the bounds that the estimator has."""
    values = np.atleast_1d(values)
    if values.ndim != 1 or not len(values) or values.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be None, a number or numbers, got {shown(values.tolist())}")
    values = sorted(set(values.astype(float).tolist()))
    for value in values:
        check_parameters(DynamicMeans(**{"lam": 1.0, "t_q": 2.0, "k_tau": 1.0, name: value}))
    return values


def _nearest(values, value):
    """The one of ``values`` nearest to ``value`` by ratio."""
    return min(values, key=lambda other: abs(np.log(other / value)))


def _lams(X, time, n_threads):
    """Penalties to try: from one for the rows of a step to one for a single cluster in all."""
    numbers, sizes = np.unique(time, return_counts=True)
    rows = X[time == numbers[sizes.argmax()]]
    if not np.ptp(rows, axis=0).any():  # a row a step: the distances of all of them
        rows = X[:MOST_STEP_ROWS]
    most = max(1, min(MOST_GUESSED, len(rows) // 2))
    low, high = farthest_first(rows, most, None, n_threads), farthest_first(X, 1, None, n_threads)
    n = int(np.clip(np.log(high / low) / np.log(LAM_RATIO), 1, MOST_LAMS - 1)) + 1
    return np.geomspace(low, high, n)
