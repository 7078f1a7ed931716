"""Feature allocations: rows that belong to several groups at once, X ~ Z A with binary Z."""

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from smallvar._core.config import resolve_threads
from smallvar._core.estimator import (
    check_parameters,
    keywords_only,
    named_parameters,
    warn_not_converged,
)
from smallvar._core.progress import ProgressEvent
from smallvar._core.validation import (
    check_data,
    check_lam,
    check_number,
    check_option,
    check_reach,
    check_weights,
    mean_weight,
    relative_weights,
    varying_columns,
)
from smallvar._features.feature_estimator import FeatureEstimator
from smallvar._features.feature_path import FeaturePath, Steps, choose
from smallvar._features.starts import (
    WEIGHT_BITS,
    FeatureStarts,
    check_assignments,
    check_exact,
    check_named,
    check_weight_range,
)
from smallvar._selection.penalty import check_guess, cut_guess
from smallvar._sweeps.features.starts import MOST_TRIED


class BPMeans(FeatureEstimator):
    """BP-means: features that rows share, their number from a penalty.

    Minimizes, over binary Z (who has which feature), the features A and their number K,

        ||X - Z A||^2 + lam * K,

    the squared Frobenius norm plus a price ``lam`` for each feature. Where clustering gives every
    row to one center, here a row is the sum of any subset of the features. In photos of a table, a
    row of X is one photo, flattened (``photos.reshape(len(photos), -1)``), and a feature is an
    object on the table.

    Parameters
    ----------
    lam : float, "auto" or "farthest-first", default="auto"
        Penalty for each feature, in squared data units, > 0 and finite. "auto" chooses the number
        of features, and with it the penalty, by how short a description of the data they make:
        see :func:`feature_path`. "farthest-first" derives it from the data and the guess
        ``n_components``: so many features are taken greedily, each the residual of the row that
        the earlier ones explain worst, used by all rows whose own residual shrinks; ``lam`` is the
        least by which one of them lowers the squared error.
    n_components : int, default=8
        Guess of the number of features for ``lam="farthest-first"``, not a bound, at most the
        number of rows (to which the default is cut). Not used with a number as ``lam``.
    max_features : int, default=None
        Never have more features than this, nor, also within a sweep, than rows of weight > 0.
    algorithm : {"sweep", "collapsed", "stepwise"}, default="sweep"
        "sweep" is BP-means: each row in order flips its bits one by one and, if its squared
        residual still exceeds ``lam``, opens a feature; then A is the least squares solution.
        "collapsed" takes a row out, sets A to least squares for the others, and chooses the row
        by what it then adds, A following; slower, fewer poor optima. "stepwise" runs
        :class:`KFeatures` for 0, 1, 2, ... features until the objective rises.
    assign : {"auto", "exact", "coordinate"}, default="auto"
        How a row of "collapsed" chooses its features. "exact": the best of all 2^K rows, as in the
        paper; ``max_features`` must be at most 12. "coordinate": bit after bit until no flip
        helps, which is faster and ends in poor optima more often. "auto" is "exact" while there
        are at most 12 features, and "coordinate" with more. Rows of "sweep" and "stepwise" choose
        bit after bit, so that these refuse "exact". The path of ``lam="auto"`` chooses as
        :func:`feature_path` says.
    init : {"alternate", "mean", "data"} or array-like of shape (n_samples, k), default="alternate"
        How a start is seeded: its first feature is the mean of the data, used by all ("mean", the
        paper), or there is none yet ("data"); either is best where the other never gets, so the
        default alternates them. Then a row is drawn with probability proportional to its squared
        residual, the residual becomes a feature, and every row takes it whose own residual
        shrinks, as long as the objective falls. An array is a start of your own: rows of Z, used
        for a single start ("sweep" and "collapsed" only). With ``lam="auto"`` "sweep" and
        "collapsed" go on from the features of the path, unless there is such an array.
    n_init : int or "auto", default="auto"
        Number of random starts (for each number of features in "stepwise"). The one with the
        lowest objective is kept. "auto": at most 10, fewer where three have found the lowest
        objective. Where the number of features is found, only few are made for each number at
        first; see :func:`feature_path`.
    n_swaps : int or "auto", default="auto"
        After each start, so many times: take a random feature away, seed another one, sweep
        again, and keep the result if the objective is lower; or only take one away, or only seed
        one, since their number is free ("stepwise" keeps it). One is given up where 20 sweeps
        that gain as much as the last would not lower the objective. Not in the paper (0); worth
        more than as many starts. "auto" is 20; 50 on the path to a K that is chosen, where that is
        over 8; on large data fewer, 2^24 divided by the size of ``X`` but at least 2; and 0
        after a start of your own.
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
    path_ : FeaturePath
        With ``lam="auto"`` only: other numbers of features, as :func:`feature_path` returns them.
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
    ``lam``, which goes with the mean weight where it is found, so that all weights times a constant
    change no feature. Rows of weight zero take no part and are encoded as by ``transform``. Unless
    ``lam`` is a number, constant columns take no part either: ``components_`` are 0 there, and
    errors, ``reconstruction_err_`` among them, leave them out. A feature that loses its last user
    is removed and its penalty refunded; so is one whose column of Z depends on earlier columns,
    for the same fit is had without it, and a feature of zeros: data that are all zero leave none of
    those that ``init`` gives. The data are not centered: a feature that all rows share is what they
    have in common.

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

    @keywords_only
    def __init__(
        self,
        *,
        lam: float | Literal["auto", "farthest-first"] = "auto",
        n_components: int = 8,
        max_features: int | None = None,
        algorithm: Literal["sweep", "collapsed", "stepwise"] = "sweep",
        assign: Literal["auto", "exact", "coordinate"] = "auto",
        init: Literal["alternate", "mean", "data"] | ArrayLike = "alternate",
        n_init: int | Literal["auto"] = "auto",
        n_swaps: int | Literal["auto"] = "auto",
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
        self.assign = assign
        self.init = init
        self.n_init = n_init
        self.n_swaps = n_swaps
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    def _check_parameters(self):
        check_lam(self.lam, finite=True, options=("auto", "farthest-first"))
        check_number(self.n_components, "n_components", low=1, integer=True)
        check_number(self.max_features, "max_features", low=1, integer=True, none=True)
        check_option(self.algorithm, "algorithm", ("sweep", "collapsed", "stepwise"))
        if self.algorithm == "stepwise":
            check_named(self.init, "algorithm='stepwise'")
        check_option(self.assign, "assign", ("auto", "exact", "coordinate"))
        if self.assign == "exact":
            if self.algorithm != "collapsed":
                raise ValueError(
                    "assign must be 'auto' or 'coordinate' unless algorithm is 'collapsed', got "
                    f"'exact' with algorithm={self.algorithm!r}"
                )
            remedy = f"; with assign='auto' rows are exact up to {MOST_TRIED} features"
            check_exact(self.max_features, "max_features", remedy)
        super()._check_parameters()

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
        self._check_parameters()
        rng = self._rng()
        rows, starts, active = self._prepare(X, sample_weight, isinstance(self.lam, str))
        n, cap, lam = len(starts.X), self.max_features, self.lam
        cap, Z = n if cap is None else min(cap, n), None
        if not isinstance(self.init, str):
            Z = check_assignments(self.init, len(rows), cap, "max_features", active)
        given = Z is not None
        # "auto": unless Z is given, the sweeps go on from Z of the path, with as many features
        if lam == "auto":
            exact = MOST_TRIED if self.assign == "exact" else 0
            self.path_, chosen = choose(starts, exact, cap, rng, self._callback())
            lam = self.path_.lam
            if Z is None and self.algorithm != "stepwise":
                Z, cap = chosen, self.path_.best
        elif isinstance(lam, str):
            # the rule counts each row once; costs of rows are weighted, so lam is scaled
            guess = cut_guess(self.n_components, n, "n_components")
            unweighted = FeatureStarts(self, starts.X, None, starts.n_threads)
            lam = unweighted.sweep("coordinate", 0.0, guess).farthest_first()
            lam *= mean_weight(starts.weight)
        lam = float(lam)  # in the unit of the weights of the fit, see _relative
        if self.algorithm == "stepwise":
            sweep, path, converged = self._stepwise(starts, lam, cap, rng)
        else:
            swaps = starts.swaps(given=given)
            if Z is not None and not given:
                swaps = 0  # the path has already swapped for this Z
            most_tried = 0 if self.assign == "coordinate" else MOST_TRIED
            sweep = starts.sweep(self.algorithm, lam, cap, swaps, most_tried)
            converged = starts.run(sweep, rng, Z).converged
        self.lam_ = lam
        self._multiply("lam_")
        self._keep(sweep, starts, rows, active)
        if self.algorithm == "stepwise":
            self.objective_, self.objective_path_ = path[-1], np.array(path)
            self._multiply("objective_", "objective_path_")
        if not converged:
            warn_not_converged(self, self.n_iter_)
        return self

    def _stepwise(self, starts, lam, cap, rng):
        """Fit K-features for K = 0, 1, 2, ... until the objective rises, or K is ``cap``.

        Returns the sweep of the best K, the objective of each K, and whether the sweep converged.
        """
        swaps, callback = starts.swaps(), self._callback()
        best = starts.sweep("coordinate", 0.0, 0)
        best.encode(np.zeros((0, starts.X.shape[1])))
        path, converged = [best.error], True
        for k in range(1, cap + 1):
            sweep = starts.run(starts.sweep("coordinate", 0.0, k, swaps), rng)
            objective = sweep.error + lam * k
            if callback is not None:
                message = f"{k} features: objective {objective:.8g}"
                callback(ProgressEvent("features", k, message, k, objective))
            if not objective <= path[-1]:  # higher, or not a number
                break
            best, converged = sweep, sweep.converged
            path.append(objective)
        return best, path, converged


class KFeatures(FeatureEstimator):
    """K-features: a fixed number of features that rows share.

    Minimizes, over binary Z (who has which feature) and K features A,

        ||X - Z A||^2,

    the squared Frobenius norm: k-means whose rows may belong to several clusters at once, or to
    none.

    Parameters
    ----------
    n_components : int or "auto", default=8
        Number of features, K, at most the number of samples. "auto" chooses it by how short a
        description of the data they make: see :func:`feature_path`. It may find 0. Constant
        columns then take no part: ``components_`` are 0 there, and errors leave them out.
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
    n_init : int or "auto", default="auto"
        Number of random starts. The one with the lowest objective is kept. "auto": at most 10,
        fewer where three have found the lowest objective. Where the number of features is found,
        only few are made for each number at first; see :func:`feature_path`.
    n_swaps : int or "auto", default="auto"
        After each start, so many times: take a random feature away, seed another one, sweep
        again, and keep the result if the objective is lower. One is given up where 20 sweeps
        that gain as much as the last would not lower the objective. Not in the paper (0); worth
        more than as many starts. "auto" is 20; 50 on the path to a K that is chosen, where that is
        over 8; on large data fewer, 2^24 divided by the size of ``X`` but at least 2; and 0
        after a start of your own.
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
    path_ : FeaturePath
        With ``n_components="auto"`` only: other numbers of features, as :func:`feature_path`
        returns them.
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

    @named_parameters
    def __init__(
        self,
        n_components: int | Literal["auto"] = 8,
        *,
        assign: Literal["coordinate", "exact"] = "coordinate",
        init: Literal["alternate", "mean", "data"] | ArrayLike = "alternate",
        n_init: int | Literal["auto"] = "auto",
        n_swaps: int | Literal["auto"] = "auto",
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

    def _check_parameters(self):
        if isinstance(self.n_components, str):
            check_option(self.n_components, "n_components", ("auto",))
            check_named(self.init, "n_components='auto'")
        else:
            check_number(self.n_components, "n_components", low=1, integer=True)
        check_option(self.assign, "assign", ("coordinate", "exact"))
        if self.assign == "exact" and self.n_components != "auto":
            check_exact(self.n_components, "n_components")
        super()._check_parameters()

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
        self._check_parameters()
        rng = self._rng()
        rows, starts, active = self._prepare(X, sample_weight, self.n_components == "auto")
        k, n, swaps, Z = self.n_components, len(starts.X), starts.swaps(), None
        # "auto": the sweeps go on from Z of the path, which has already made swaps
        if k == "auto":
            exact = MOST_TRIED if self.assign == "exact" else 0
            self.path_, Z = choose(starts, exact, exact or n, rng, self._callback())
            k, swaps = self.path_.best, 0
        else:
            check_guess(k, n, "n_components")
        if not isinstance(self.init, str):
            Z = check_assignments(self.init, len(rows), k, "n_components", active)
            swaps = starts.swaps(given=True)
        sweep = starts.run(starts.sweep(self.assign, 0.0, k, swaps), rng, Z)
        self._keep(sweep, starts, rows, active)
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
        Parameters of :class:`KFeatures` other than ``n_components``; "auto" swaps are 50 where
        ``assign`` is "coordinate". Besides the ``n_init`` random
        starts there is one from the result for K - 1, which counts among the three that are to
        agree for "auto", so the error never rises with K.

    Returns
    -------
    path : FeaturePath
        Arrays ``counts``, ``error``, ``criterion``, ``lam_low``, ``lam_high``, for 0, 1, ...,
        ``max_components`` features, or as many as there are rows, if they are fewer. The criterion
        is the description length, see Notes; infinite for more features than a third of the
        distinct rows, and more than one. And two numbers:

        best
            The K with the lowest criterion.
        lam
            A penalty for it: the geometric mean of the ends of its range (of the error's slopes to
            larger and to smaller K, where it is best for none).

    Raises
    ------
    ValueError, TypeError
        As from ``KFeatures.fit``.

    See Also
    --------
    BPMeans : With ``lam="auto"``, the features of the number chosen.

    Notes
    -----
    With u distinct rows, d columns (not counting those with less than 1e-20 of ||X||^2, such as
    columns of zeros, and at most u), p_k the share of the rows that have feature k, and
    h(p) = -p log p - (1 - p) log(1 - p), the criterion is ::

        u d log(||X - Z A||^2 / ||X||^2) + 2 u sum_k h(p_k) + 2 K (d + 1) log u,

    twice what it takes to tell the data, in nats: residuals of one variance, who has which
    feature, and the features. It charges for rows and not only for features, as ``lam`` does.
    An error below 1e-20 of ||X||^2 counts as none. Constant columns take no part at all, unless
    all are constant; all weights times a constant multiply errors and penalties.

    ``BPMeans(lam="auto")`` and ``KFeatures(n_components="auto")`` go on until three numbers of
    features (or a third of the best one) have not lowered the criterion. Up to 8 features rows
    choose exactly there (see ``assign``), then as ``assign`` says. They look at all rows up
    to 16,384 numbers in ``X``, else at a random sample of so many (but at least 500 rows). With
    ``n_init="auto"`` they begin each number of features with the start from the number before,
    and up to 8 features with two random starts; the others are made for the best number and the
    one before it.

    References
    ----------
    Broderick, Kulis & Jordan (2013), MAD-Bayes, eq. 6 and 14. Rissanen (1978), Modeling by
    shortest data description.

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
    check_named(model.init, "feature_path")
    check_parameters(model)
    if model.assign == "exact":
        check_exact(max_components, "max_components")
    X = check_data(X)
    check_reach(X)
    weight, unit = check_weights(sample_weight, X.shape[0]), 1.0
    if weight is not None:
        check_weight_range(X, weight)
        if not weight.all():
            X, weight = np.ascontiguousarray(X[weight > 0]), weight[weight > 0]
        weight, unit = relative_weights(weight, WEIGHT_BITS)
    varying = varying_columns(X)
    if varying is not None:
        X = np.ascontiguousarray(X[:, varying])
    rng = check_random_state(model.random_state)
    exact = MOST_TRIED if model.assign == "exact" else 0
    steps = Steps(FeatureStarts(model, X, weight, resolve_threads(model.n_threads)), exact, rng)
    for _ in range(min(max_components, len(X))):
        steps.go_on()
    if not steps.converged:
        warn_not_converged(model, steps.n_iter)
    return steps.path(unit)
