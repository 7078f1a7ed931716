"""Feature allocations: rows that belong to several groups at once, X ~ Z A with binary Z."""

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from smallvar._base import Estimator, unchanged_on_error, warn_not_converged
from smallvar._envelope import FeaturePath, envelope
from smallvar._penalty import check_guess, cut_guess
from smallvar._sweeps.features.starts import FeatureSweep
from smallvar._validation import (
    DTYPES,
    as_floats,
    check_data,
    check_lam,
    check_number,
    check_option,
    check_reach,
    check_weights,
    learned,
)

INITS = ("alternate", "mean", "data")
EXACT_LIMIT = 12  # 2^12 rows of Z to choose from


def _check_masses(X, weight):
    """Raise where weighted squares would leave float64."""
    reach = max(abs(float(X.max())), abs(float(X.min()))) or 1.0
    low, high = weight[weight > 0].min(), weight.max()
    if min(low, low * reach**2) < 1e-280 or max(high, high * reach**2) > 1e280:
        raise ValueError(
            "sample_weight must be such that weights, and weights times the largest square in X, "
            f"are above 1e-280 and below 1e280, got {low:.3g} to {high:.3g}; rescale them"
        )


def _check_exact(k, name):
    """Raise where the exact choice of a row would have too many to choose from."""
    if k > EXACT_LIMIT:
        raise ValueError(
            f"{name} must be <= {EXACT_LIMIT} where assign is 'exact' (it tries 2^{name} rows), "
            f"got {name}={k}"
        )


def _check_assignments(init, n_samples, width, name):
    """Given rows of Z as an array of bytes; ``width`` is the number of columns or its bound."""
    try:
        Z = as_floats(init)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"init must be one of {', '.join(map(repr, INITS))} or a binary array: {error}"
        ) from None
    fits = Z.ndim == 2 and Z.shape[0] == n_samples
    if not fits or (Z.shape[1] != width if name == "n_components" else Z.shape[1] > width):
        relation = "" if name == "n_components" else "at most "
        raise ValueError(
            f"init must have shape (n_samples, n_features) = ({n_samples}, {relation}"
            f"{name}={width}), got {Z.shape}"
        )
    if not np.isin(Z, (0.0, 1.0)).all():
        raise ValueError("init must hold only 0 and 1")
    return np.ascontiguousarray(Z, dtype=np.uint8)


class _FeatureEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Base of estimators whose result is X ~ Z A."""

    components_: NDArray[np.float64]
    assignments_: NDArray[np.int32]
    n_components_: int
    reconstruction_err_: float
    objective_: float
    objective_path_: NDArray[np.float64]
    n_iter_: int

    _exact = False

    def _check_common(self):
        if isinstance(self.init, str):
            check_option(self.init, "init", INITS)
        check_number(self.n_swaps, "n_swaps", low=0, integer=True)
        self._check_starts()

    def _prepare(
        self, X: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[
        NDArray[np.floating],
        NDArray[np.floating],
        NDArray[np.float64] | None,
        NDArray[np.bool_] | None,
    ]:
        """Checked data without the rows of weight zero, and the weights of the others."""
        X = self._validate(X, reset=True)
        check_reach(X)
        weight = check_weights(sample_weight, X.shape[0])
        if weight is not None:
            _check_masses(X, weight)
        if weight is None or weight.all():
            return X, X, weight, None
        active = weight > 0
        return X, np.ascontiguousarray(X[active]), weight[active], active

    def _sweep(self, X, weight, rule, lam, cap, n_threads):
        return FeatureSweep(
            X,
            weight,
            rule,
            lam,
            min(cap, X.shape[0]),
            min(self.max_iter, 2**31 - 1),
            self.tol,
            min(self.n_swaps, 2**31 - 1),
            n_threads,
            bool(self.verbose),
        )

    def _start(self, sweep, rng, Z):
        """Run all starts of a sweep; the best one stays in it."""
        states = rng.randint(2**63 - 1, size=self.n_init if Z is None else 1, dtype=np.int64)
        if Z is not None:
            sweep.run_given(Z, int(states[0]))
            return
        modes = {"mean": [0], "data": [1], "alternate": [0, 1]}[self.init]
        sweep.run(states.astype(np.uint64), np.resize(np.array(modes, dtype=np.intc), len(states)))

    def _keep(self, sweep, X, active, n_threads):
        """Learned attributes."""
        self.components_, self.n_components_ = sweep.components(), sweep.k
        self.assignments_ = sweep.assignments()
        if active is not None:
            rows = np.empty((len(active), sweep.k), dtype=np.int32)
            rows[active] = self.assignments_
            rows[~active] = self._encode(np.ascontiguousarray(X[~active]), None, n_threads)[0]
            self.assignments_ = rows
        self.reconstruction_err_ = float(np.sqrt(sweep.error))
        self.objective_ = sweep.objective
        self.objective_path_ = sweep.path()
        self.n_iter_ = sweep.n_iter

    def _encode(self, X, weight, n_threads):
        """Rows of Z for data, and the weighted squared error."""
        components = learned(self, "components_", self.n_components_, X.shape[1])
        k = len(components)
        rule = "exact" if self._exact else "coordinate"
        if self._exact:
            _check_exact(k, "n_components_")
        sweep = FeatureSweep(X, weight, rule, 0.0, k, 1, 0.0, 0, n_threads, False)
        return sweep.encode(components)

    @property
    def _n_features_out(self):
        return self.n_components_

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # Z is int32 whatever the data are
        return tags

    def transform(self, X: ArrayLike) -> NDArray[np.int32]:
        """Features of each row.

        Bits are flipped one after the other, from none set, until no flip brings the row closer
        to its sum of features (or the best of all combinations is taken, where ``assign`` is
        "exact"). For the data of the fit this need not be ``assignments_``, which come from
        other starting points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_components), int32
            1 where the row has the feature, else 0.
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        check_reach(X)
        return self._encode(X, None, self._threads())[0]

    def inverse_transform(self, Z: ArrayLike) -> NDArray[np.float64]:
        """Data that have exactly these features: Z A.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_components)
            Rows of 0 and 1.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features), float64
            Sums of the features.
        """
        check_is_fitted(self)
        if self.n_components_ == 0 and np.ndim(Z) == 2 and np.shape(Z)[1] == 0:
            return np.zeros((np.shape(Z)[0], self.n_features_in_))
        rows = check_array(Z, dtype=DTYPES)
        if rows.shape[1] != self.n_components_:
            raise ValueError(
                f"Z must have n_components_={self.n_components_} columns, got {rows.shape[1]}"
            )
        return rows @ self.components_

    def score(
        self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Minus the objective of data with the fitted features.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
            Minus the (weighted) sum of squared distances between the rows and the sums of their
            features, as found by ``transform``, less the penalty of the features if there is one.
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        check_reach(X)
        weight = check_weights(sample_weight, X.shape[0])
        error = self._encode(X, weight, self._threads())[1]
        return -(error + getattr(self, "lam_", 0.0) * self.n_components_)


class BPMeans(_FeatureEstimator):
    """BP-means: features that rows share, their number from a penalty.

    Minimizes, over binary Z (who has which feature), the features A and their number K,

        ||X - Z A||^2 + lam * K,

    the squared Frobenius norm plus a price ``lam`` for each feature. Where clustering gives every
    row to one center, here a row is the sum of any subset of the features.

    Parameters
    ----------
    lam : float or "farthest-first", default="farthest-first"
        Penalty for each feature, in squared data units, > 0 and finite. "farthest-first" derives
        it from the data and the guess ``n_components``: so many features are taken greedily, each
        the residual of the row that the earlier ones explain worst, used by all rows whose own
        residual shrinks; ``lam`` is the least by which one of them lowers the squared error.
        :func:`feature_path` shows what other values would give.
    n_components : int, default=8
        Guess of the number of features for ``lam="farthest-first"``, not a bound, at most the
        number of rows (to which the default is cut). Not used with a number as ``lam``.
    max_features : int, default=None
        Never have more features than this.
    algorithm : {"sweep", "collapsed", "stepwise"}, default="sweep"
        "sweep" is BP-means: each row in order flips its bits one by one and, if its squared
        residual still exceeds ``lam``, opens a feature; then A is the least squares solution.
        "collapsed" lets A follow every single row; slower, fewer poor optima. "stepwise" runs
        :class:`KFeatures` for 0, 1, 2, ... features until the objective rises.
    init : {"alternate", "mean", "data"} or array-like of shape (n_samples, k), default="alternate"
        How a start is seeded: its first feature is the mean of the data, used by all ("mean", the
        paper), or there is none yet ("data"); either is best where the other never gets, so the
        default alternates them. Then a row is drawn with probability proportional to its squared
        residual, the residual becomes a feature, and every row takes it whose own residual
        shrinks, as long as the objective falls. An array is a start of your own: rows of Z, used
        for a single start ("sweep" and "collapsed" only).
    n_init : int, default=10
        Number of random starts (for each number of features in "stepwise"). The one with the
        lowest objective is kept.
    n_swaps : int, default=0
        After each start, so many times: take a random feature away, seed another one, sweep
        again, and keep the result if the objective is lower; or only take one away, or only seed
        one, since their number is free ("stepwise" keeps it). Not in the paper; often worth more
        than as many starts.
    max_iter : int, default=300
        Largest number of sweeps of a start; those that open features do not
        count, but there are at most ``max_iter + n_samples``.
    tol : float, default=0.0
        Stop a start when a sweep lowers the objective by at most ``tol`` times its value after the
        first sweep. 0 runs to a fixed point.
    random_state : int, RandomState instance or None, default=None
        Generator of the starts.
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features), float64
        The features, A, in order of creation.
    assignments_ : ndarray of shape (n_samples, n_components), int32
        Z: 1 where a row has a feature, else 0.
    n_components_ : int
        Number of features found; 0 is a valid answer.
    reconstruction_err_ : float
        Frobenius norm of X - Z A, not squared, as in scikit-learn; rows weighted.
    objective_ : float
        ``reconstruction_err_ ** 2 + lam_ * n_components_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep (with "stepwise", for every number of features from 0),
        then after every successful swap; it never rises.
    lam_ : float
        The penalty used.
    n_iter_ : int
        Sweeps of the start that was kept, those for swaps included.
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
    KFeatures : The same with a fixed number of features.
    feature_path : Objective and number of features over ``lam``.

    Notes
    -----
    A row of weight w counts w times in the objective, and opens a feature at w * residual >
    ``lam``; rows of weight zero take no part and are encoded as by ``transform``. A feature that
    loses its last user is removed and its penalty refunded; so is one whose column of Z depends
    on earlier columns, for the same fit is had without it. The data are not centered: a feature
    that all rows share is what they have in common.

    References
    ----------
    Broderick, Kulis & Jordan (2013), MAD-Bayes: MAP-based asymptotic derivations from Bayes,
    eq. 6 ("sweep"), 10 ("collapsed"), 14 ("stepwise"), 15 (``max_features``); section 5 (seeds).

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import BPMeans
    >>> pen, book = np.array([4.0, 0.0, 0.0, 1.0]), np.array([0.0, 3.0, 3.0, 0.0])
    >>> X = np.array([pen, book, pen + book, pen, 0 * pen])
    >>> model = BPMeans(lam=2.0, init="data", random_state=0).fit(X)
    >>> model.n_components_
    2
    >>> order = model.components_[:, 0].argsort()
    >>> model.components_[order].round(9) + 0.0
    array([[0., 3., 3., 0.],
           [4., 0., 0., 1.]])
    >>> model.assignments_[:, order]
    array([[0, 1],
           [1, 0],
           [1, 1],
           [0, 1],
           [0, 0]], dtype=int32)
    >>> model.objective_
    4.0
    """

    lam_: float

    def __init__(
        self,
        lam: float | Literal["farthest-first"] = "farthest-first",
        *,
        n_components: int = 8,
        max_features: int | None = None,
        algorithm: Literal["sweep", "collapsed", "stepwise"] = "sweep",
        init: Literal["alternate", "mean", "data"] | ArrayLike = "alternate",
        n_init: int = 10,
        n_swaps: int = 0,
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.n_components = n_components
        self.max_features = max_features
        self.algorithm = algorithm
        self.init = init
        self.n_init = n_init
        self.n_swaps = n_swaps
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    def _check_parameters(self):
        check_lam(self.lam, finite=True)
        check_number(self.n_components, "n_components", low=1, integer=True)
        check_number(self.max_features, "max_features", low=1, integer=True, none=True)
        check_option(self.algorithm, "algorithm", ("sweep", "collapsed", "stepwise"))
        self._check_common()

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Find the features of the data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data. float32 and float64 in any memory layout are used as they are, other types
            converted once.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each.

        Returns
        -------
        self : BPMeans
            The fitted estimator.
        """
        with unchanged_on_error(self):
            self._check_parameters()
            rng, n_threads = self._rng(), self._threads()
            X, rows, weight, active = self._prepare(X, sample_weight)
            cap = len(rows) if self.max_features is None else min(self.max_features, len(rows))
            Z = None
            if not isinstance(self.init, str):
                if self.algorithm == "stepwise":
                    raise ValueError("init must be a string where algorithm is 'stepwise'")
                Z = _check_assignments(self.init, len(X), cap, "max_features")
                Z = Z if active is None else np.ascontiguousarray(Z[active])
            lam = self.lam
            if isinstance(lam, str):
                guess = cut_guess(self.n_components, len(rows), "n_components")
                probe = self._sweep(rows, None, "coordinate", 0.0, guess, n_threads)
                lam = probe.farthest_first()
            lam = float(lam)
            if self.algorithm == "stepwise":
                sweep, path, converged = self._stepwise(rows, weight, lam, cap, rng, n_threads)
            else:
                sweep = self._sweep(rows, weight, self.algorithm, lam, cap, n_threads)
                self._start(sweep, rng, Z)
                converged = sweep.converged
            self.lam_ = lam
            self._keep(sweep, X, active, n_threads)
            if self.algorithm == "stepwise":
                self.objective_, self.objective_path_ = path[-1], np.array(path)
            if not converged:
                warn_not_converged(self, self.n_iter_)
        return self

    def _stepwise(self, X, weight, lam, cap, rng, n_threads):
        """K-features for K = 0, 1, 2, ... until the objective rises."""
        best = self._sweep(X, weight, "coordinate", 0.0, 0, n_threads)
        best.encode(np.zeros((0, X.shape[1])))
        path, converged = [best.error], True
        for k in range(1, cap + 1):
            sweep = self._sweep(X, weight, "coordinate", 0.0, k, n_threads)
            self._start(sweep, rng, None)
            objective = sweep.error + lam * k
            if self.verbose:
                print(f"{k} features: objective {objective:.8g}")
            if objective > path[-1]:
                break
            best, converged = sweep, sweep.converged
            path.append(objective)
        return best, path, converged


class KFeatures(_FeatureEstimator):
    """K-features: a fixed number of features that rows share.

    Minimizes, over binary Z (who has which feature) and K features A,

        ||X - Z A||^2,

    the squared Frobenius norm: k-means whose rows may belong to several clusters at once, or to
    none.

    Parameters
    ----------
    n_components : int, default=8
        Number of features, K, at most the number of samples.
    assign : {"coordinate", "exact"}, default="coordinate"
        How a row chooses its features: bit after bit, as in the paper, or the best of all 2^K
        rows, for at most 12 features. "exact" costs 2^K steps a row; a start more often ends in a
        good optimum.
    init : {"alternate", "mean", "data"} or array-like of shape (n_samples, k), default="alternate"
        How a start is seeded: its first feature is the mean of the data, used by all ("mean", the
        paper), or there is none yet ("data"); either is best where the other never gets, so the
        default alternates them. Then a row is drawn with probability proportional to its squared
        residual, the residual becomes a feature, and every row takes it whose own residual
        shrinks. An array is a start of your own: rows of Z, used for a single start.
    n_init : int, default=10
        Number of random starts. The one with the lowest objective is kept.
    n_swaps : int, default=0
        After each start, so many times: take a random feature away, seed another one, sweep
        again, and keep the result if the objective is lower. Not in the paper; often worth more
        than as many starts.
    max_iter : int, default=300
        Largest number of sweeps of a start.
    tol : float, default=0.0
        Stop a start when a sweep lowers the objective by at most ``tol`` times its value after the
        first sweep. 0 runs to a fixed point.
    random_state : int, RandomState instance or None, default=None
        Generator of the starts.
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features), float64
        The features, A.
    assignments_ : ndarray of shape (n_samples, n_components), int32
        Z: 1 where a row has a feature, else 0.
    n_components_ : int
        Number of features.
    reconstruction_err_ : float
        Frobenius norm of X - Z A, not squared, as in scikit-learn; rows weighted.
    objective_ : float
        ``reconstruction_err_ ** 2``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep, then after every successful swap; it never rises.
    n_iter_ : int
        Sweeps of the start that was kept, those for swaps included.
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
    BPMeans : The number of features from a penalty.
    feature_path : The objective over the number of features.

    Notes
    -----
    Where columns of Z depend on each other, A is the solution of minimum norm. A feature that
    nobody uses starts again as the largest residual. Rows of weight zero take no part and are
    encoded as by ``transform``.

    References
    ----------
    Broderick, Kulis & Jordan (2013), MAD-Bayes: MAP-based asymptotic derivations from Bayes,
    eq. 14 and section 5 (seeds).

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import KFeatures
    >>> X = np.array([[1.0, 0.0], [0.0, 5.0], [1.0, 5.0], [0.0, 0.0]])
    >>> model = KFeatures(n_components=2, init="data", random_state=0).fit(X)
    >>> round(model.objective_, 9)
    0.0
    >>> model.components_[model.components_[:, 0].argsort()].round(9) + 0.0
    array([[0., 5.],
           [1., 0.]])
    >>> model.inverse_transform(model.transform([[0.9, 5.2]]))
    array([[1., 5.]])
    """

    def __init__(
        self,
        n_components: int = 8,
        *,
        assign: Literal["coordinate", "exact"] = "coordinate",
        init: Literal["alternate", "mean", "data"] | ArrayLike = "alternate",
        n_init: int = 10,
        n_swaps: int = 0,
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.assign = assign
        self.init = init
        self.n_init = n_init
        self.n_swaps = n_swaps
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    @property
    def _exact(self):
        return self.assign == "exact"

    def _check_parameters(self):
        check_number(self.n_components, "n_components", low=1, integer=True)
        check_option(self.assign, "assign", ("coordinate", "exact"))
        if self._exact:
            _check_exact(self.n_components, "n_components")
        self._check_common()

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Find the features of the data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data. float32 and float64 in any memory layout are used as they are, other types
            converted once.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each.

        Returns
        -------
        self : KFeatures
            The fitted estimator.
        """
        with unchanged_on_error(self):
            self._check_parameters()
            rng, n_threads = self._rng(), self._threads()
            X, rows, weight, active = self._prepare(X, sample_weight)
            check_guess(self.n_components, len(rows), "n_components")
            Z = None
            if not isinstance(self.init, str):
                Z = _check_assignments(self.init, len(X), self.n_components, "n_components")
                Z = Z if active is None else np.ascontiguousarray(Z[active])
            sweep = self._sweep(rows, weight, self.assign, 0.0, self.n_components, n_threads)
            self._start(sweep, rng, Z)
            self._keep(sweep, X, active, n_threads)
            if not sweep.converged:
                warn_not_converged(self, self.n_iter_)
        return self


def feature_path(
    X: ArrayLike,
    max_components: int = 10,
    *,
    sample_weight: ArrayLike | None = None,
    **options: Any,
) -> FeaturePath:
    """Squared error over the number of features, and the penalties that lead to each number.

    For K = 0, 1, ..., ``max_components`` this minimizes

        ||X - Z A||^2

    over binary Z with K columns and A, as :class:`KFeatures` does. As an objective with a penalty
    is ``error + lam * K``, the errors also tell which K any ``lam`` leads to: the K of the lower
    convex hull of the errors. Plotted over K, the errors bend where further features stop to
    explain much; a K that is best for a wide range of ``lam`` is a good choice.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Data.
    max_components : int, default=10
        Largest number of features to try; cut to the number of samples.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.
    **options
        Parameters of :class:`KFeatures` other than ``n_components``. Besides the ``n_init`` random
        starts there is one from the result for K - 1, so the error never rises with K.

    Returns
    -------
    path : FeaturePath
        Arrays ``counts``, ``error``, ``lam_low``, ``lam_high``; the number that is best for the
        widest range of penalties, ``best``, and a penalty for it, ``lam``.

    Raises
    ------
    ValueError, TypeError
        As from ``KFeatures.fit``.

    References
    ----------
    Broderick, Kulis & Jordan (2013), MAD-Bayes, eq. 6 and 14.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import feature_path
    >>> X = np.array([[4.0, 0.0], [0.0, 3.0], [4.0, 3.0], [4.0, 0.5], [0.0, 0.0]])
    >>> path = feature_path(X, 3, random_state=0)
    >>> path.error.round(3)
    array([66.25 , 14.167,  0.15 ,  0.   ])
    >>> path.lam_low.round(3)
    array([52.083, 14.017,  0.15 ,  0.   ])
    """
    check_number(max_components, "max_components", low=1, integer=True)
    if "n_components" in options:
        raise TypeError("n_components must not be given: it goes from 0 to max_components")
    model = KFeatures(**options)
    if not isinstance(model.init, str):
        raise ValueError("init must be one of 'alternate', 'mean', 'data'")
    if model.assign == "exact":
        _check_exact(max_components, "max_components")
    X = check_data(X)
    weight = check_weights(sample_weight, X.shape[0])
    active = len(X) if weight is None else np.count_nonzero(weight)
    model.random_state = check_random_state(model.random_state)
    energy = KFeatures(1, n_threads=model.n_threads)
    energy.components_, energy.n_components_ = np.zeros((0, X.shape[1])), 0
    energy.n_features_in_ = X.shape[1]
    errors, Z = [-energy.score(X, sample_weight=weight)], np.zeros((len(X), 0), dtype=np.int32)
    for k in range(1, min(max_components, active) + 1):
        model.set_params(n_components=k, init=options.get("init", "alternate"))
        model.fit(X, sample_weight=weight)
        error, seeded = model.objective_, model.assignments_
        model.set_params(init=np.column_stack([Z, np.zeros(len(X), dtype=np.int32)]))
        model.fit(X, sample_weight=weight)
        Z = seeded if error <= model.objective_ else model.assignments_
        errors.append(min(error, model.objective_))
    K, squared = np.arange(len(errors)), np.array(errors)
    low, high = envelope(K, squared)
    never = ~(low < high)
    low[never] = high[never] = np.nan
    return FeaturePath(K, squared, low, high)
