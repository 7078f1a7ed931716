"""The base of estimators of features: checks of data, Z for given features, probabilities."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from smallvar._core.config import one_blas_thread
from smallvar._core.estimator import Estimator
from smallvar._core.validation import (
    DTYPES,
    check_number,
    check_option,
    check_reach,
    check_verbose,
    check_weights,
    learned,
    varying_columns,
)
from smallvar._features.starts import (
    FEATURE_INITS,
    WEIGHT_BITS,
    FeatureStarts,
    check_weight_range,
    rows_of_Z,
)

# predict_proba: numbers of the residuals that are computed at a time
RESIDUAL_NUMBERS = 1 << 18
# p_f: rows that are added with a feature, and as many without it (the prior of Jeffreys), so that
# no share is 0 or 1
SHARE_ROWS = 0.5


class FeatureEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Base of estimators whose result is X ~ Z A."""

    components_: NDArray[np.float64]
    assignments_: NDArray[np.int32]
    n_components_: int
    reconstruction_err_: float
    objective_: float
    objective_path_: NDArray[np.float64]
    n_iter_: int

    def _check_parameters(self):
        """Raise unless the parameters of the starts and swaps are within their bounds."""
        if isinstance(self.init, str):
            check_option(self.init, "init", FEATURE_INITS)
        for name in ("n_swaps", "n_init"):
            if isinstance(value := getattr(self, name), str):
                check_option(value, name, ("auto",))
            else:
                check_number(value, name, low=int(name == "n_init"), integer=True)
        check_number(self.max_iter, "max_iter", low=1, integer=True)
        check_number(self.tol, "tol", low=0)
        check_verbose(self.verbose)

    def _prepare(self, X, sample_weight, choose_number):
        """Checked data, the FeatureStarts of the fit, and the mask of rows of weight > 0.

        The fit leaves out rows of weight zero (mask None: there are none). If it is to
        ``choose_number``, the number of features, it also leaves out constant columns, and weights
        are in units of the lightest.
        """
        n_threads = self._threads()
        X = self._validate(X, reset=True)
        check_reach(X)
        weight = check_weights(sample_weight, X.shape[0])
        if weight is not None:
            check_weight_range(X, weight)
        relative, rows, active = self._relative(weight, choose_number, bits=WEIGHT_BITS), X, None
        if weight is not None and not weight.all():
            active = weight > 0
            rows, relative = np.ascontiguousarray(X[active]), relative[active]
        self._varying = varying_columns(rows) if choose_number else None
        self._forget("path_")
        return X, FeatureStarts(self, self._columns(rows), relative, n_threads), active

    def _keep(self, sweep, starts, X, active):
        """Set the learned attributes from the best start of ``sweep``.

        ``X`` are all rows, ``active`` the mask of those that ``starts`` had (None: all).
        """
        self.components_, self.n_components_ = sweep.components(), sweep.k
        if self._varying is not None:  # features are 0 in the constant columns, left out of the fit
            self.components_ = np.zeros((sweep.k, X.shape[1]))
            self.components_[:, self._varying] = sweep.components()
        self.assignments_ = sweep.assignments()
        self._learn_noise(sweep, X if active is None else X[active], starts.weight)
        if active is not None:  # rows of weight zero choose among the fitted features
            Z = np.empty((len(active), sweep.k), dtype=np.int32)
            Z[active] = self.assignments_
            Z[~active] = self._encode(np.ascontiguousarray(X[~active]), None, starts.n_threads)[0]
            self.assignments_ = Z
        # the sweep had weights divided by _unit: errors, objectives and penalties are multiplied
        self.reconstruction_err_ = float(np.sqrt(sweep.error) * np.sqrt(self._unit))
        self.objective_ = sweep.objective
        self.objective_path_ = sweep.path()
        self._multiply("objective_", "objective_path_", "path_")
        self.n_iter_ = sweep.n_iter

    def _learn_noise(self, sweep, X, weight):
        """Set the variance of the noise, and the log odds of each feature, from rows of the fit.

        s^2 = E / (w m d) m / (m - K): the error E over the numbers in the w rows (sum of weights),
        d columns that are not constant; K d of them are taken up by the features. m is w, or the
        number of rows where that is more.
        """
        Z, varying = self.assignments_, varying_columns(X)
        d = X.shape[1] if varying is None else int(varying.sum())
        total = float(len(Z) if weight is None else weight.sum())
        count = max(total * self._unit, len(Z))
        free = max(count - sweep.k, 0.0)
        self._noise_variance = sweep.error / (total * d) * (count / free) if free else 0.0
        share = (Z.sum(axis=0) if weight is None else weight @ Z) / total
        rows = count * share + SHARE_ROWS, count * (1.0 - share) + SHARE_ROWS
        self._log_odds = np.log(rows[0]) - np.log(rows[1])

    def _encode(self, X, weight, n_threads):
        """Rows of Z for data with the fitted features, and the weighted squared error."""
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

        A row has the features whose sum is closest to it, of all combinations. The search leaves
        out combinations that cannot be better. With more than 12 features it ends after 8,192
        steps, which few rows need, with the best combination so far. For the data of the fit the
        result may differ from ``assignments_``: there a row may not have its best combination.

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

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Compute the probability of each feature of a row, given the row's other features.

        With the features A of the fit, s^2 the variance of its noise and p_f the share of its rows
        that have feature f, a row x with the features z of ``transform`` has f with the log odds

            log(p_f / (1 - p_f)) + (||x - z_0 A||^2 - ||x - z_1 A||^2) / (2 s^2),

        z_0 being z without f and z_1 with it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_components), float64
            From 0 to 1. They do not sum to 1, as a row may have any number of features.

        Notes
        -----
        s^2 is the squared error of the fit over its degrees of freedom: (n - K) d for n rows, d
        columns that are not constant and K features. p_f counts half a row more with the feature
        and half a row more without it, so that a feature of all rows, or of none, is not certain.
        Without noise (s = 0) probabilities are 0 and 1, or p_f where both costs are equal.

        The other features of the row are taken for certain. Where features are alike, so that a
        row could have either, the probabilities are too near to 0 and 1. They may also be on the
        other side of 1/2 than ``transform``, which knows no shares.

        Examples
        --------
        >>> import numpy as np
        >>> from smallvar import KFeatures
        >>> rng = np.random.default_rng(0)
        >>> has = rng.integers(2, size=(200, 2))
        >>> X = has @ [[4.0, 0.0, 1.0], [0.0, 3.0, 1.0]] + rng.standard_normal((200, 3))
        >>> model = KFeatures(n_components=2, random_state=0).fit(X)
        >>> order = model.components_[:, 1].argsort()
        >>> model.predict_proba([[4.0, 3.0, 2.0], [2.0, 0.0, 0.5]])[:, order].round(2)
        array([[1.  , 1.  ],
               [0.63, 0.  ]])
        """
        Z = self.transform(X)
        components = learned(self, "components_", self.n_components_, self.n_features_in_)
        squares, out = np.square(components).sum(axis=1), np.empty(Z.shape)
        X = self._validate(X, reset=False)
        size = max(1, RESIDUAL_NUMBERS // X.shape[1])
        with one_blas_thread(min(size, len(X)), X.shape[1]), np.errstate(all="ignore"):
            for start in range(0, len(X), size):
                z = Z[start : start + size]
                # with R = x - z A: half of what the cost falls by where f is switched on
                gain = (X[start : start + size] - z @ components) @ components.T
                gain += (z - 0.5) * squares
                # 0 / 0 is a tie without noise
                evidence = np.nan_to_num(
                    gain / self._noise_variance, nan=0.0, posinf=np.inf, neginf=-np.inf
                )
                out[start : start + size] = expit(self._log_odds + evidence)
        return out

    def inverse_transform(self, Z: ArrayLike) -> NDArray[np.float64]:
        """Return the rows that are sums of given features: Z A.

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
