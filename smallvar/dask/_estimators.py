"""Estimators of clusters on dask collections: the results of one machine."""

from functools import partial
from typing import Any, Literal, Self

import dask.array as da
import numpy as np
from dask import compute, delayed, is_dask_collection
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse, vstack
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

import smallvar
from smallvar._base import unchanged_on_error, warn_not_converged
from smallvar._spherical import rounding
from smallvar._starts import Start
from smallvar._validation import as_floats, check_init, check_number, check_option, shown, some_rows
from smallvar.dask._sweep import MOST, TeamPlace, TeamSweep, facts_of, mean_of
from smallvar.dask._team import Block, Team, client_for, to_be_held

SAMPLE = 200_000  # rows that "auto" looks at


# ---- collections and their partitions --------------------------------------------------------------------------------


class Parts:
    """The partitions of a dask array or DataFrame, and of the weights of its rows, as delayed objects."""

    def __init__(self, X, sample_weight=None):
        columns = getattr(X, "columns", None)
        if not is_dask_collection(X) or not (columns is not None or isinstance(X, da.Array)):
            raise TypeError(
                f"X must be a dask array or DataFrame, got {type(X).__name__}: use "
                "dask.array.from_array, or the estimator of smallvar itself for data of one machine"
            )
        self.collection, self.names = X, None
        if columns is not None:
            self.n_features, self.sizes = len(columns), None
            if all(isinstance(name, str) for name in columns):
                self.names = np.asarray(columns, dtype=object)
            self.rows = X.to_delayed()
            itemsize = max(
                [np.dtype(t).itemsize for t in X.dtypes if isinstance(t, np.dtype)] or [8]
            )
        else:
            if X.ndim != 2 or X.numblocks[1] != 1:
                raise ValueError(
                    "X must have two dimensions and its columns in one chunk, got chunks "
                    f"{X.chunks}: use X.rechunk({{1: -1}})"
                )
            self.n_features = X.shape[1]
            self.sizes = X.chunks[0] if np.isfinite(X.chunks[0]).all() else None
            self.rows = X.to_delayed().ravel().tolist()
            itemsize = X.dtype.itemsize
        if not self.n_features:
            raise ValueError("X must have at least one column, got 0")
        self.row_bytes = itemsize * self.n_features
        self.weights = self._weights(sample_weight)

    def _weights(self, sample_weight):
        if sample_weight is None:
            return [None] * len(self.rows)
        if np.ndim(sample_weight) == 0 and not is_dask_collection(sample_weight):
            return [float(sample_weight)] * len(self.rows)
        if is_dask_collection(sample_weight):
            parts = np.ravel(np.array(sample_weight.to_delayed(), dtype=object)).tolist()
            if len(parts) != len(self.rows):
                raise ValueError(
                    f"sample_weight must have the partitions of X, got {len(parts)} for {len(self.rows)}"
                )
            return parts
        weight = as_floats(sample_weight)
        if self.sizes is None:
            raise ValueError(
                "sample_weight must be a dask collection where the sizes of the partitions of X are "
                "not known"
            )
        if weight.shape != (sum(self.sizes),):
            raise ValueError(
                f"sample_weight must have shape ({sum(self.sizes)},), got {weight.shape}"
            )
        return np.split(weight, np.cumsum(self.sizes)[:-1])


def prepared(model, n_features, X, weight):
    """A partition as the sweeps take it."""
    if X.shape[1:] != (n_features,):
        raise ValueError(f"X must have {n_features} columns, got shape {X.shape}")
    if X.shape[0] == 0:
        return Block(np.empty((0, n_features)), None if weight is None else np.empty(0))
    n = X.shape[0]
    X = model._validate(X, reset=True)
    if weight is None:
        return Block(X, None)
    try:
        weight = np.full(n, weight) if np.ndim(weight) == 0 else as_floats(weight)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight must be numbers: {error}") from None
    if weight.shape != (n,):
        raise ValueError(f"sample_weight must have shape ({n},), got {weight.shape}")
    if not (weight >= 0.0).all() or np.isinf(weight).any():
        raise ValueError("sample_weight must be finite and >= 0")
    positive = weight[weight > 0.0]
    if len(positive) and not 1e-300 <= positive.min() <= positive.max() <= 1e100:
        raise ValueError("sample_weight must be 0 or between 1e-300 and 1e100")
    return Block(X, weight)


def some_of(parts, shared, each):
    """Some rows of each partition, by their indices, with their weights."""
    return {
        p: (some_rows(block.X, rows), None if block.weight is None else block.weight[rows])
        for (p, block), rows in zip(parts, each, strict=True)
    }


def draw(team, known, rng, most):
    """Rows in their order, all of them or a random sample of ``most``, and their weights."""
    numbers = team.numbers
    ends = np.cumsum([known.sizes[p] for p in numbers])
    n = int(ends[-1])
    rows = np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))
    chosen = np.split(rows, np.searchsorted(rows, ends[:-1]))
    each = {
        p: part - (end - known.sizes[p]) for p, part, end in zip(numbers, chosen, ends, strict=True)
    }
    found = {}
    for some in team.call(some_of, None, each):
        found.update(some)
    X = [found[p][0] for p in numbers]
    X = vstack(X, format="csr") if known.sparse else np.concatenate(X)
    weight = None if known.alike else np.concatenate([found[p][1] for p in numbers])
    return X, weight


# ---- what the estimators share ---------------------------------------------------------------------------------------


def _apply(model, method, X):
    """A method of a local estimator on a partition."""
    if X.shape[0] == 0:
        shape = (0,) if method == "predict" else (0, len(model.cluster_centers_))
        # the type of the others is that of the result
        return np.empty(shape, dtype=np.int32 if method == "predict" else np.float32)
    return getattr(model, method)(X)


def _score_of(model, X, weight):
    if X.shape[0] == 0 or (weight is not None and not np.any(weight)):
        return 0.0
    return model.score(X, sample_weight=weight) + model.lam_ * len(model.cluster_centers_)


class OnTeam:
    """Fits the partitions of a dask collection; whatever else is asked of it stays lazy.

    ``_local`` is the estimator of one machine with the same attributes.
    """

    _local: Any
    n_init = 1
    shuffle = False
    n_clusters = 8
    n_threads = None

    def _check_parameters(self):
        super()._check_parameters()
        check_option(self.algorithm, "algorithm", ("serial", "delayed"))
        if isinstance(self.lam, str):
            check_option(self.lam, "lam", ("auto",))
        if not isinstance(self.persist, bool):
            check_option(self.persist, "persist", ("auto",))
        check_number(self.max_opened, "max_opened", low=1, integer=True)

    def _as_local(self):
        """The local estimator with the parameters that it has, not fitted."""
        known = self._local._get_param_names()
        given = {name: value for name, value in self.get_params().items() if name in known}
        return self._local(**given)

    def to_local(self, labels: bool = True) -> Any:
        """Return the fitted estimator of one machine with the same centers.

        Parameters
        ----------
        labels : bool, default=True
            Compute ``labels_``, which takes memory for all rows; else it has none.

        Returns
        -------
        model : estimator
            It predicts the same.
        """
        check_is_fitted(self)
        model = self._as_local()
        learned = {name: value for name, value in vars(self).items() if name.endswith("_")}
        learned.pop("labels_", None)
        vars(model).update(learned, _dtype=self._dtype)
        if labels and hasattr(self, "labels_"):
            model.labels_ = np.asarray(self.labels_)
        return model

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
        with unchanged_on_error(self):
            self._check_parameters()
            parts = Parts(X, sample_weight)
            with client_for(None) as client:
                ended = self._fit_on(client, parts)
            if not ended:
                warn_not_converged(self, self.n_iter_)
        return self

    def _fit_on(self, client, parts):
        prepare = partial(prepared, self._as_local(), parts.n_features)
        known, held = None, True
        if parts.sizes is None and self.persist == "auto":  # how large it is has to be found out
            team = Team(client, parts.rows, parts.weights, prepare, False)
            known = facts_of(team)
            parts.sizes = [known.sizes[p] for p in range(len(parts.rows))]
        nbytes = 0 if parts.sizes is None else parts.row_bytes * sum(parts.sizes)
        held = to_be_held(client, parts.collection, self.persist, nbytes)
        team = Team(client, parts.rows, parts.weights, prepare, held)
        try:
            known = facts_of(team) if known is None else known
            team.numbers = sorted(p for p, size in known.sizes.items() if size)
            self.n_features_in_ = parts.n_features
            vars(self).pop("feature_names_in_", None)
            if parts.names is not None:
                self.feature_names_in_ = parts.names
            self._dtype = known.dtype

            def labels(centers):
                model = self._as_local()
                vars(model).update(
                    cluster_centers_=centers,
                    n_features_in_=parts.n_features,
                    labels_=None,
                    n_iter_=0,
                    lam_=0.0,
                )
                if parts.names is not None:
                    model.feature_names_in_ = parts.names
                return lazily(model, "predict", parts, known.sizes)

            return self._fit_team(team, known, labels)
        finally:
            team.close()

    def predict(self, X: Any) -> Any:
        """Nearest center of each row; no row opens a cluster.

        Parameters
        ----------
        X : dask Array or DataFrame, or array-like, of shape (n_samples, n_features)
            New data.

        Returns
        -------
        labels : dask Array, or ndarray for what is no dask collection, (n_samples,), int32
            Index into ``cluster_centers_``; at a tie the lowest one. Lazy.
        """
        return self._mapped("predict", X)

    def transform(self, X: Any) -> Any:
        """Compute the distance of each row to each center, as the estimator of one machine does.

        Parameters
        ----------
        X : dask Array or DataFrame, or array-like, of shape (n_samples, n_features)
            New data.

        Returns
        -------
        distances : dask Array, or ndarray for what is no dask collection, (n_samples, n_clusters)
            Lazy.
        """
        return self._mapped("transform", X)

    def _mapped(self, method, X):
        check_is_fitted(self)
        model = self.to_local(labels=False)
        if not is_dask_collection(X):
            return getattr(model, method)(X)
        return lazily(model, method, Parts(X))

    def fit_predict(self, X: Any, y: object = None, sample_weight: Any = None) -> Any:
        """Fit and return the labels of the data.

        Parameters
        ----------
        X : dask Array or DataFrame of shape (n_samples, n_features)
            Data, as for ``fit``.
        y : None
            Ignored.
        sample_weight : dask Array or Series, or array-like, of shape (n_samples,), default=None
            Weights, as for ``fit``.

        Returns
        -------
        labels : dask Array of shape (n_samples,), int32
            ``labels_`` of the fit.
        """
        return self.fit(X, sample_weight=sample_weight).labels_

    def score(self, X: Any, y: object = None, sample_weight: Any = None) -> float:
        """Return minus the objective of data at the fitted centers.

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
        check_is_fitted(self)
        model = self.to_local(labels=False)
        if not is_dask_collection(X):
            return model.score(X, sample_weight=sample_weight)
        parts = Parts(X, sample_weight)
        pairs = zip(parts.rows, parts.weights, strict=True)
        scores = compute(*(delayed(_score_of)(model, *pair) for pair in pairs))
        return float(np.sum(scores)) - model.lam_ * len(model.cluster_centers_)


def lazily(model, method, parts, sizes=None):
    """A method of a local estimator on all partitions, as a dask array."""
    model = delayed(model)
    width = () if method == "predict" else (parts.n_features,)
    if sizes is None and parts.sizes is not None:
        sizes = dict(enumerate(parts.sizes))
    kind = np.int32
    if method == "transform":
        types = getattr(parts.collection, "dtypes", None)
        types = [parts.collection.dtype] if types is None else types
        kind = np.float32 if all(t == np.float32 for t in types) else np.float64
        width = (len(model.cluster_centers_.compute()),)
    return da.concatenate(
        [
            da.from_delayed(
                delayed(_apply)(model, method, rows),
                (np.nan if sizes is None else sizes[p], *width),
                dtype=kind,
            )
            for p, rows in enumerate(parts.rows)
        ],
        allow_unknown_chunksizes=True,
    )


class DPMeans(OnTeam, smallvar.DPMeans):
    """DP-means on a dask collection: labels and centers are those of one machine.

    TODO
    """

    _local = smallvar.DPMeans

    def __init__(
        self,
        lam: float | Literal["auto"] = "auto",
        *,
        max_clusters: int | None = None,
        algorithm: Literal["serial", "delayed"] = "serial",
        init: Literal["mean"] | ArrayLike = "mean",
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        persist: bool | Literal["auto"] = "auto",
        max_opened: int = MOST,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.max_clusters = max_clusters
        self.algorithm = algorithm
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.persist = persist
        self.max_opened = max_opened
        self.verbose = verbose

    def _fit_team(self, team, known, labels):
        rng, n_threads = self._rng(), self._threads()
        given = check_init(self.init, self.n_features_in_, self.max_clusters)
        n = sum(known.sizes.values())

        def start(order, centers, lam, algorithm, given, cap):
            place = TeamPlace(team, known, centers if given else None)
            if centers is None:
                centers = mean_of(team, place).reshape(1, -1)
            sweep = TeamSweep(team, place, labels, most=self.max_opened)
            return Start(sweep, None, centers, lam, algorithm, given, cap)

        lam, X, weight = self.lam, np.broadcast_to(0.0, (n, 1)), None
        penalty = None
        if lam == "auto":
            X, weight = draw(team, known, rng, SAMPLE)
            mass = len(X) if weight is None else float(weight.sum())
            times, lam = known.mass / mass if X.shape[0] < n else 1.0, None

            def penalty(path):
                return times * path.lam
        else:
            lam = float(lam)
        best = self._run(X, weight, lam, given, rng, n_threads, start, penalty)
        return best.progress.ended


class SphericalDPMeans(OnTeam, smallvar.SphericalDPMeans):
    """Spherical DP-means on a dask collection: labels and centers are those of one machine.

    TODO
    """

    _local = smallvar.SphericalDPMeans

    def __init__(
        self,
        lam: float | Literal["auto"] | None = None,
        *,
        min_cosine: float | None = None,
        max_clusters: int | None = None,
        algorithm: Literal["serial", "delayed"] = "serial",
        init: Literal["first"] | ArrayLike = "first",
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        persist: bool | Literal["auto"] = "auto",
        max_opened: int = MOST,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.min_cosine = min_cosine
        self.max_clusters = max_clusters
        self.algorithm = algorithm
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.persist = persist
        self.max_opened = max_opened
        self.verbose = verbose

    def _fit_team(self, team, known, labels):
        rng, n_threads = self._rng(), self._threads()
        zero = np.zeros(self.n_features_in_)
        given = self._given_centers(zero[None], n_threads)
        noise = rounding(np.empty(0, dtype=known.dtype))
        n = sum(known.sizes.values())

        def sweep_from(centers):
            if centers is None:
                centers = known.first[1][None]
            place = TeamPlace(team, known, centers, zero, noise)
            sweep = TeamSweep(team, place, labels, spherical=True, most=self.max_opened)
            return sweep, centers

        auto = self.min_cosine is None and self.lam in (None, "auto")
        X, weight, times = np.broadcast_to(0.0, (n, 1)), None, 1.0
        if auto:
            X, weight = draw(team, known, rng, SAMPLE)
            times = known.mass / (len(X) if weight is None else float(weight.sum()))
            times = times if X.shape[0] < n else 1.0
        best = self._fit(X, weight, given, rng, n_threads, sweep_from, times)
        return best.progress.ended
