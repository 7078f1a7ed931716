"""What estimators of X ~ Z A with binary Z share: starts and swaps, rows of Z for features."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from smallvar._core.estimator import Estimator, callback_of
from smallvar._core.progress import ProgressEvent
from smallvar._core.validation import (
    DTYPES,
    as_floats,
    check_number,
    check_option,
    check_reach,
    check_verbose,
    check_weights,
    learned,
    shown,
    varying_columns,
)
from smallvar._sweeps.features.starts import FeatureSweep

INITS = ("alternate", "mean", "data")
EXACT_LIMIT = 12  # 2^12 rows of Z to choose from
# absolute, of weights and of weights times the largest square of X: sums stay within float64
SMALLEST_WEIGHTED, LARGEST_WEIGHTED = 1e-280, 1e280
# of relative weights: many starts reach the same features in another order, and rounding decides
# which of them is kept; it is to be the same for all multiples of the weights
WEIGHT_BITS = 32
# swaps where n_swaps is "auto": as many, but fewer where so many numbers in X make them slow
SWAPS, PATH_SWAPS, FEW_SWAPS, SWAP_NUMBERS = 20, 50, 2, 1 << 24
# starts where n_init is "auto": at most, and how many that find the lowest objective are enough
STARTS, ENOUGH = 10, 3


def check_named(init, where):
    """Raise where an array is given to start from, and the number of features is to be found."""
    if not isinstance(init, str):
        raise ValueError(
            f"init must be one of {', '.join(map(repr, INITS))} with {where}, got an array of "
            f"shape {np.shape(init)}"
        )


def check_masses(X, weight):
    """Raise where weighted squares would leave float64."""
    reach = max(abs(float(X.max())), abs(float(X.min()))) or 1.0
    low, high = weight[weight > 0].min(), weight.max()
    least, most = min(low, low * reach**2), max(high, high * reach**2)
    if least < SMALLEST_WEIGHTED or most > LARGEST_WEIGHTED:
        raise ValueError(
            "sample_weight must be such that weights, and weights times the largest square in X, "
            f"are above 1e-280 and below 1e280, got {low:.3g} to {high:.3g}; rescale them"
        )


def check_exact(k, name):
    """Raise where the exact choice of a row would have too many to choose from."""
    if k > EXACT_LIMIT:
        raise ValueError(
            f"{name} must be <= {EXACT_LIMIT} where assign is 'exact' (it tries 2^{name} rows), "
            f"got {name}={k}"
        )


def check_assignments(init, n_samples, width, name):
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
    other = ~np.isin(Z, (0.0, 1.0))
    if other.any():
        raise ValueError(f"init must hold only 0 and 1, got {shown(Z[other][0])}")
    return np.ascontiguousarray(Z, dtype=np.uint8)


def check_search(model):
    """Raise unless the parameters of the starts and swaps are within their bounds."""
    if isinstance(model.init, str):
        check_option(model.init, "init", INITS)
    for name in ("n_swaps", "n_init"):
        if isinstance(value := getattr(model, name), str):
            check_option(value, name, ("auto",))
        else:
            check_number(value, name, low=int(name == "n_init"), integer=True)
    check_number(model.max_iter, "max_iter", low=1, integer=True)
    check_number(model.tol, "tol", low=0)
    check_verbose(model.verbose)


def swaps_of(model, X, *, given=False, path=False):
    """Number of swaps after each start: by default as many as pay, none after one of the user's.

    What is too much goes by the size of the data alone: the result is the same anywhere.
    """
    if not isinstance(model.n_swaps, str):
        return min(model.n_swaps, 2**31 - 1)
    most = PATH_SWAPS if path else SWAPS
    return 0 if given else max(FEW_SWAPS, min(most, SWAP_NUMBERS // X.size))


def new_sweep(model, X, weight, rule, lam, cap, n_swaps, n_threads):
    """A sweep over these rows with the parameters of an estimator."""
    return FeatureSweep(
        X,
        weight,
        rule,
        lam,
        min(cap, X.shape[0]),
        min(model.max_iter, 2**31 - 1),
        model.tol,
        n_swaps,
        n_threads,
        _told(model),
    )


def _told(model):
    """What compiled starts call after a sweep; None if nobody listens."""
    callback = callback_of(model)
    if callback is None:
        return None

    def tell(start, n_iter, k, objective, changed, created):
        message = (
            f"start {start}, sweep {n_iter}: {k} features, objective {objective:.8g}, "
            f"{changed} rows changed, {created} features created"
        )
        callback(ProgressEvent("sweep", n_iter, message, k, objective))

    return tell


def draw_starts(model, rng, count=None):
    """States of the starts' generators, and which of them begin with the mean."""
    if count is None:
        count = STARTS if isinstance(model.n_init, str) else model.n_init
    states = rng.randint(2**63 - 1, size=count, dtype=np.int64).astype(np.uint64)
    init = model.init if isinstance(model.init, str) else INITS[0]
    modes = {"mean": [0], "data": [1], "alternate": [0, 1]}[init]  # as FeatureSweep.run has it
    return states, np.resize(np.array(modes, dtype=np.intc), count)


def enough_starts(model):
    """Number of starts with the lowest objective after which no more are made; 0: make all."""
    return ENOUGH if isinstance(model.n_init, str) else 0


def run_starts(model, sweep, rng, Z):
    """Run all starts of a sweep; the best one stays in it."""
    if Z is None:
        sweep.run(*draw_starts(model, rng), enough_starts(model))
    else:
        sweep.run_given(Z, int(draw_starts(model, rng, 1)[0][0]))


def rows_of_Z(X, weight, components, n_threads):
    """The best rows of Z for given features, or the best found where they are many."""
    k = len(components)
    sweep = FeatureSweep(X, weight, "coordinate", 0.0, k, 1, 0.0, 0, n_threads, None)
    return sweep.encode(components)


class FeatureEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Base of estimators whose result is X ~ Z A."""

    components_: NDArray[np.float64]
    assignments_: NDArray[np.int32]
    n_components_: int
    reconstruction_err_: float
    objective_: float
    objective_path_: NDArray[np.float64]
    n_iter_: int

    def _prepare(
        self, X: ArrayLike, sample_weight: ArrayLike | None, found: bool
    ) -> tuple[
        NDArray[np.floating],
        NDArray[np.floating],
        NDArray[np.float64] | None,
        NDArray[np.bool_] | None,
    ]:
        """Checked data without the rows of weight zero, and the weights of the others.

        Where the number of features is to be ``found``, constant columns are left out, too, and
        weights are in units of the lightest.
        """
        X = self._validate(X, reset=True)
        check_reach(X)
        weight = check_weights(sample_weight, X.shape[0])
        if weight is not None:
            check_masses(X, weight)
        used, rows, active = self._relative(weight, found, bits=WEIGHT_BITS), X, None
        if weight is not None and not weight.all():
            active = weight > 0
            rows, used = np.ascontiguousarray(X[active]), used[active]
        self._varying = varying_columns(rows) if found else None
        return X, self._columns(rows), used, active

    def _forget_path(self):
        vars(self).pop("path_", None)

    def _keep(self, sweep, X, active, n_threads):
        """Learned attributes."""
        self.components_, self.n_components_ = sweep.components(), sweep.k
        if self._varying is not None:
            self.components_ = np.zeros((sweep.k, X.shape[1]))
            self.components_[:, self._varying] = sweep.components()
        self.assignments_ = sweep.assignments()
        if active is not None:
            rows = np.empty((len(active), sweep.k), dtype=np.int32)
            rows[active] = self.assignments_
            rows[~active] = self._encode(np.ascontiguousarray(X[~active]), None, n_threads)[0]
            self.assignments_ = rows
        self.reconstruction_err_ = float(np.sqrt(sweep.error) * np.sqrt(self._unit))
        self.objective_ = sweep.objective
        self.objective_path_ = sweep.path()
        self._multiply(
            "objective_", "objective_path_", *(["path_"] if "path_" in vars(self) else [])
        )
        self.n_iter_ = sweep.n_iter

    def _encode(self, X, weight, n_threads):
        """Rows of Z for data, and the weighted squared error."""
        components = learned(self, "components_", self.n_components_, X.shape[1])
        return rows_of_Z(self._columns(X), weight, self._columns(components), n_threads)

    @property
    def _n_features_out(self):
        return self.n_components_

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # Z is int32 whatever the data are
        return tags

    def transform(self, X: ArrayLike) -> NDArray[np.int32]:
        """Find the features of each row.

        Those whose sum is closest to the row, the best of all combinations, by a search that
        leaves out what cannot be better. With more than 12 features it is cut short after 8,192
        steps, which few rows need, and the best combination met is taken. For the data of the fit
        this need not be ``assignments_``, where a row may have stopped short of its best.

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
        """Make the data that have exactly these features: Z A.

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
        """Return minus the objective of data with the fitted features.

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
