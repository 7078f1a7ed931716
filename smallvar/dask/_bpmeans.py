"""BP-means on dask collections: the results of one machine."""

from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self

import dask.array as da
import numpy as np
from dask import compute, delayed, is_dask_collection
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

import smallvar
from smallvar._core.estimator import unchanged_on_error, warn_not_converged
from smallvar._core.validation import check_lam, check_reach
from smallvar._features.feature_estimator import (
    check_assignments,
    check_masses,
    start_modes,
    start_states,
    swaps_of,
)
from smallvar._sweeps.sums import Layout
from smallvar.dask._collection import Parts, prepared
from smallvar.dask._feature_part import ActiveRows, Setting, traced
from smallvar.dask._feature_starts import FeatureStart
from smallvar.dask._lazy import Remote, each_part, joined
from smallvar.dask._part import add_sums, small, whole
from smallvar.dask._sweep import facts_of, sums_of
from smallvar.dask._team import current_client, team_of, threads_here

# ---- partitions --------------------------------------------------------------------------------


def active_rows(model, n_features, X, weight):
    """A partition as the sweeps take it: rows of positive weight."""
    block = prepared(model, n_features, X, weight)
    reach = (float(block.X.min()), float(block.X.max())) if block.X.size else None
    if block.weight is None or block.weight.all():
        return ActiveRows(block.X, block.weight, None, reach)
    active = block.weight > 0.0
    return ActiveRows(np.ascontiguousarray(block.X[active]), block.weight[active], active, reach)


def extents(parts, shared, each):
    """Of each partition: how many rows it has and how many are active, least and largest number."""
    return {
        p: (len(b.X) if b.active is None else len(b.active), len(b.X), b.reach) for p, b in parts
    }


def assigned(shared, rows, weight, owns):
    """Rows of Z of a partition: those of the start that was kept, all of its steps once more."""
    model, prepare, setting, moves, kept = shared
    block = prepared(model, model.n_features_in_, rows, weight)
    Z = np.zeros((block.X.shape[0], model.n_components_), dtype=np.int32)
    some = prepare(rows, weight)
    active = slice(None) if some.active is None else some.active
    if len(some.X):
        part = traced(some, setting, moves, owns).part
        if kept is not None:
            part.keep(kept)
        Z[active] = part.rows
    if some.active is not None and not some.active.all():
        idle = np.ascontiguousarray(block.X[~active])
        Z[~active] = model._encode(idle, None, threads_here())[0]
    return Z


def _transform(model, X):
    if X.shape[0] == 0:
        return np.zeros((0, model.n_components_), dtype=np.int32)
    return model.transform(X)


def _inverse_transform(model, Z):
    if Z.shape[0] == 0:
        return np.zeros((0, model.n_features_in_))
    return model.inverse_transform(Z)


def _error_of(model, X, weight):
    if X.shape[0] == 0 or (weight is not None and not np.any(weight)):
        return 0.0
    return -model.score(X, sample_weight=weight) - model.lam_ * model.n_components_


def look(team):
    """What extents tells of all partitions, and their sizes."""
    found = {p: one for some in team.call(extents, None) for p, one in some.items()}
    return found, {p: size for p, (size, _, _) in found.items()}


# ---- the estimator -------------------------------------------------------------------------------


class BPMeans(Remote, smallvar.BPMeans):
    """BP-means on dask collections: features and rows of Z are those of one machine.

    Minimizes, over binary Z (who has which feature), the features A and their number K,

        ||X - Z A||^2 + lam * K,

    as :class:`smallvar.BPMeans` does with ``algorithm="sweep"``, for rows that are spread over the
    partitions of a dask array or DataFrame. With the same parameters rows of Z are those of one
    machine on the concatenated rows, and features, objectives and the number of sweeps have the
    same bits, for any partitions, any number of workers, and whatever fails on the way.

    Runs on the dask client of the process, or on threads of this process where there is none. The
    workers hold the data, rows of Z, and squared residuals in memory during the fit.

    Parameters
    ----------
    lam : float
        Penalty for each feature, in squared data units, > 0 and finite. A number: for what "auto"
        and "farthest-first" find take :class:`smallvar.BPMeans` on a sample; for a sample of n of N
        rows, the penalty of all rows is N / n times its ``lam_``.
    max_features : int, default=None
        Never have more features than this.
    init : {"alternate", "mean", "data"} or array-like of shape (n_samples, k), default="alternate"
        How a start is seeded: its first feature is the mean of the data, used by all ("mean"), or
        there is none yet ("data"), or these alternate. An array, which may be a dask array, is a
        start of your own: rows of Z; it passes through the memory of this process.
    n_init : int, default=10
        Number of random starts, one after the other. The one with the lowest objective is kept.
    n_swaps : int or "auto", default="auto"
        Features taken away and seeded anew after each start, as on one machine. Each is a start's
        worth of sweeps; 0 and ``n_init=1`` are the shortest fit.
    max_iter : int, default=300
        Largest number of sweeps of a start; those that open features do not count.
    tol : float, default=0.0
        Stop a start when a sweep lowers the objective by at most ``tol`` times its value after the
        first sweep. 0 runs to a fixed point.
    random_state : int, RandomState instance or None, default=None
        Generator of the starts.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features), float64
        The features, A, in order of creation.
    assignments_ : dask Array of shape (n_samples, n_components), int32
        Z: 1 where a row has a feature, else 0. Lazy: computed from the data when it is asked for,
        by the steps of the start that was kept.
    n_components_ : int
        Number of features found; 0 is a valid answer.
    reconstruction_err_ : float
        Frobenius norm of X - Z A; rows weighted.
    objective_ : float
        ``reconstruction_err_ ** 2 + lam_ * n_components_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep, then after every successful swap; it never rises.
    lam_ : float
        The penalty used.
    n_iter_ : int
        Sweeps of the start that was kept, those for swaps included.
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
        If workers die again and again, or the scheduler is lost. The estimator is then as it was
        before.

    See Also
    --------
    smallvar.BPMeans : The same on one machine: faster for all that fits its memory.

    Notes
    -----
    In a sweep a row changes what it has, so Z follows from the Z before. What leads from the start
    to the present Z are the features of each sweep, which the driver keeps: a few numbers for each
    partition and sweep. A worker that takes the place of one that was lost goes through these once
    more, for the partitions lost only, and so does ``assignments_``.

    A sweep takes two round trips to the workers or more, where features are opened or lose their
    last users in one partition and others have to know; a seed takes four.

    References
    ----------
    Broderick, Kulis & Jordan (2013), MAD-Bayes, eq. 6 and 15; section 5 (seeds). Pan et al. (2013),
    Optimistic concurrency control for distributed unsupervised learning.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from smallvar.dask import BPMeans
    >>> pen, book = np.array([4.0, 0.0, 0.0, 1.0]), np.array([0.0, 3.0, 3.0, 0.0])
    >>> X = np.array([pen, book, pen + book, pen, 0 * pen])
    >>> model = BPMeans(lam=2.0, init="data", n_init=1, n_swaps=0, random_state=0)
    >>> model = model.fit(da.from_array(X, chunks=(2, 4)))
    >>> model.components_.round(9) + 0.0
    array([[4., 0., 0., 1.],
           [0., 3., 3., 0.]])
    >>> model.assignments_.compute()
    array([[1, 0],
           [0, 1],
           [1, 1],
           [1, 0],
           [0, 0]], dtype=int32)
    >>> model.objective_
    4.0
    """

    _local = smallvar.BPMeans
    _lazy = ("assignments_",)
    assignments_: Any
    n_components = 8
    algorithm = "sweep"
    n_threads = None

    def __init__(
        self,
        lam: float,
        *,
        max_features: int | None = None,
        init: Literal["alternate", "mean", "data"] | ArrayLike = "alternate",
        n_init: int = 10,
        n_swaps: int | Literal["auto"] = "auto",
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.max_features = max_features
        self.init = init
        self.n_init = n_init
        self.n_swaps = n_swaps
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self):
        if isinstance(self.lam, str):
            raise ValueError(
                f"lam must be a number > 0, got {self.lam!r}: smallvar.BPMeans on a sample of the "
                "rows finds one"
            )
        check_lam(self.lam, finite=True)
        super()._check_parameters()

    def to_local(self, assignments: bool = True) -> smallvar.BPMeans:
        """Return the fitted estimator of one machine with the same features.

        Parameters
        ----------
        assignments : bool, default=True
            Compute ``assignments_``, which takes memory for all rows; else it has none.

        Returns
        -------
        model : smallvar.BPMeans
            It transforms to the same.
        """
        return self._fitted_local(assignments)

    # ---- fit ----

    def fit(self, X: Any, y: object = None, sample_weight: Any = None) -> Self:
        """Find the features of the data.

        Parameters
        ----------
        X : dask Array or DataFrame of shape (n_samples, n_features)
            Data, in any number of partitions of any length, all columns in one chunk.
        y : None
            Ignored.
        sample_weight : dask Array or Series, or array-like, of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each. A dask collection must have the
            partitions of X.

        Returns
        -------
        self : BPMeans
            The fitted estimator.
        """
        with unchanged_on_error(self):
            self._check_parameters()
            parts = Parts(X, sample_weight)
            with current_client() as client:
                prepare = partial(active_rows, self._as_local(), parts.n_features)
                together = client, parts, parts.weights, prepare, True, look
                with team_of(*together) as (team, found, sizes):
                    best = self._fit_team(team, found, sizes)
            self._learn(best, parts, prepare, sizes)
            if not best.converged:
                warn_not_converged(self, self.n_iter_)
        return self

    def _fit_team(self, team, found, sizes):
        """The best start."""
        reach = [ends for _, _, ends in found.values() if ends is not None]
        if not reach:
            raise ValueError("X must have at least one row, got none in any partition")
        reach = np.array([np.min(reach), np.max(reach)])
        check_reach(reach)
        if not any(active for _, active, _ in found.values()):
            raise ValueError("sample_weight must have a positive entry, got all zeros")
        known = facts_of(team)
        weighted = not known.alike
        if weighted:
            check_masses(reach, np.array(known.extremes))
        setting = self._setting(team, known, weighted)
        given = self._given(sizes, setting.cap)
        options = self.max_iter, self.tol, bool(self.verbose)

        probe = FeatureStart(team, setting, *options)
        probe.begin(np.empty((0, len(known.used[0]))))
        setting = replace(setting, energy=probe.total())
        states = start_states(self, self._rng(), given is not None).tolist()
        swaps = swaps_of(
            self, np.broadcast_to(0.0, (setting.n, len(known.used[0]))), given=given is not None
        )
        mean = sums_of(setting.layout, *team.call(whole, setting.layout, fold=add_sums)[0]).means[0]
        best, turn = None, probe.turn
        modes = start_modes(self, len(states))
        for number, (state, mode) in enumerate(zip(states, modes, strict=True)):
            start = FeatureStart(team, setting, *options, number, state, turn)
            start.run(swaps, mean if mode == 0 else None, given)
            turn = start.turn
            if best is None or start.objective < best.objective:
                best = start
        return best

    def _setting(self, team, known, weighted):
        """What all steps share."""
        extremes = known.extremes if weighted else None

        def count(origin, limit):
            return team.call(small, (weighted, origin, limit), fold=sum)[0]

        layout = Layout.of_parts(
            *known.used, known.n, extremes, count, origin=np.zeros(len(known.used[0]))
        )
        cap = known.n if self.max_features is None else min(self.max_features, known.n)
        ends = np.cumsum([known.sizes[p] for p in team.numbers]).tolist()
        before = dict(zip(team.numbers, [0, *ends[:-1]], strict=True))
        return Setting(team.fit, layout, weighted, float(self.lam), cap, known.n, before)

    def _given(self, sizes, cap):
        """Given rows of Z, by partition, and how many features they have; None: there are none."""
        if isinstance(self.init, str):
            return None
        numbers = sorted(sizes)
        ends = np.cumsum([sizes[p] for p in numbers])
        Z = check_assignments(self.init, int(ends[-1]), cap, "max_features")
        return dict(zip(numbers, np.split(Z, ends[:-1]), strict=True)), Z.shape[1]

    def _learn(self, best, parts, prepare, sizes):
        """Learned attributes."""
        self._learn_columns(parts)
        self.components_, self.n_components_ = np.array(best.features), best.k
        self.lam_ = best.setting.lam
        self.reconstruction_err_ = float(np.sqrt(best.error))
        self.objective_, self.objective_path_ = best.objective, np.array(best.path)
        self.n_iter_ = best.n_iter
        shared = self._fitted_local(), prepare, best.setting, best.moves, best.kept
        owns = [
            delayed([own.get(p) for own in best.owns], traverse=False)
            for p in range(len(parts.rows))
        ]
        rows = each_part(assigned, shared, parts.rows, parts.weights, owns)
        self.assignments_ = joined(rows, sizes, np.int32, best.k)

    # ---- what is asked of it afterward ----

    def _mapped(self, function, X, width, kind):
        parts = Parts(X)
        results = each_part(function, self._fitted_local(), parts.rows)
        return joined(results, parts.sizes, kind, width)

    def transform(self, X: Any) -> Any:
        """Find the features of each row, as the estimator of one machine does.

        Parameters
        ----------
        X : dask Array or DataFrame, or array-like, of shape (n_samples, n_features)
            Data.

        Returns
        -------
        Z : dask Array, or ndarray for what is no dask collection, (n_samples, n_components), int32
            1 where the row has the feature, else 0. Lazy.
        """
        check_is_fitted(self)
        if not is_dask_collection(X):
            return self._fitted_local().transform(X)
        return self._mapped(_transform, X, self.n_components_, np.int32)

    def inverse_transform(self, Z: Any) -> Any:
        """Make the data that have exactly these features: Z A.

        Parameters
        ----------
        Z : dask Array or DataFrame, or array-like, of shape (n_samples, n_components)
            Rows of 0 and 1.

        Returns
        -------
        X : dask Array, or ndarray for what is no dask collection, (n_samples, n_features), float64
            Sums of the features. Lazy.
        """
        check_is_fitted(self)
        if not is_dask_collection(Z):
            return self._fitted_local().inverse_transform(Z)
        if len(Z.shape) == 2 and Z.shape[1] == self.n_components_ == 0:
            shape = len(Z) if is_dask_collection(getattr(Z, "columns", None)) else Z.shape[0]
            return da.zeros((shape, self.n_features_in_))
        return self._mapped(_inverse_transform, Z, self.n_features_in_, np.float64)

    def score(self, X: Any, y: object = None, sample_weight: Any = None) -> float:
        """Return minus the objective of data with the fitted features.

        Parameters
        ----------
        X : dask Array or DataFrame, or array-like, of shape (n_samples, n_features)
            Data.
        y : None
            Ignored.
        sample_weight : dask Array or Series, or array-like, of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
            As the estimator of one machine has it, up to rounding.
        """
        model = self._fitted_local()
        if not is_dask_collection(X):
            return model.score(X, sample_weight=sample_weight)
        parts = Parts(X, sample_weight)
        errors = compute(each_part(_error_of, model, parts.rows, parts.weights))[0]
        return -float(np.sum(errors)) - model.lam_ * model.n_components_
