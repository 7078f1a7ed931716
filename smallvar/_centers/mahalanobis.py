"""K-means with a covariance for each cluster."""

import math
import warnings
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from smallvar._centers.center_estimator import CenterEstimator
from smallvar._centers.divergence import blocks
from smallvar._centers.gaussian_starts import GaussianStarts
from smallvar._centers.gaussians import (
    Data,
    Gaussians,
    PointGaussians,
    need_finite,
    roots_of,
)
from smallvar._core.estimator import named_parameters, warn_not_converged
from smallvar._core.identifiers import warn_of_identifiers
from smallvar._core.profiles import mean_differences, parts_of_squares
from smallvar._core.row_model import RowModelMixin, model_of_rows
from smallvar._core.validation import (
    as_floats,
    check_init,
    check_number,
    check_option,
    check_reach,
    check_symmetric,
    check_weights,
    exact_number,
    learned,
    level_of_caller,
    shown,
    varying_columns,
)
from smallvar._selection.confidence import warn_if_unclear
from smallvar._selection.penalty import GUESS, check_guess
from smallvar._sweeps.sums import exact_total

PRIOR = 0.1  # of the variance of all rows: that of the points a covariance is pulled toward


class MahalanobisMeans(RowModelMixin, CenterEstimator):
    """K-means whose clusters have covariances of their own, learned or known.

    Minimizes, over labels, centers mu_k, covariances S_k and shares p_k of the weight,

        sum_i w_i [(x_i - mu_k)' S_k^-1 (x_i - mu_k) + log det S_k - 2 log p_k]
        + sum_k [tr(reg I S_k^-1) + scale log det S_k - scale d (1 + log(reg / scale))] + lam * K

    k being the cluster of x_i: each point pays its squared Mahalanobis distance, for the volume of
    its cluster, and for how rare the cluster is (the classification likelihood of a mixture of
    Gaussians); each cluster pays what its covariance deviates from reg I / scale, which is never
    negative. The minimum over S_k is (T_k + reg I) / (W_k + scale), with W_k the weight of the
    members and T_k the sum of w_i (x_i - mu_k)(x_i - mu_k)' over them. The number of clusters K is
    found unless it is given. ``volume="clusters"`` is another objective, see Notes.

    Parameters
    ----------
    n_clusters : int, "auto" or None, default=None
        Number of clusters. None or "auto" finds it; with ``volume="clusters"`` that needs ``lam``,
        and ``n_clusters`` is then a guess that only enters ``reg_covar="auto"`` (None is 8).
    volume : {"points", "clusters"}, default="points"
        Who pays for the volume of a cluster: each of its points, or the cluster once, as published.
    lam : float, default=None
        Penalty of a cluster where K is found, >= 0. None is then the price of its parameters by the
        Bayesian information criterion, (1 + d + d(d + 1) / 2) log n, or (1 + d) log n with known
        covariances, n the number of rows of positive weight if ``reg_covar`` is "auto" (weights
        then count in units of their mean, so that a constant times them changes no label), else the
        sum of weights. With ``volume="clusters"`` None keeps K fixed,
        and opening a cluster at a point costs lam_eff = lam + scale d (1 + log(reg / scale)), which
        must be > 0; ``lam`` itself may be negative.
    scale : float, default=1.0
        How many points reg I / scale counts for, > 0. With ``volume="clusters"`` the weight of the
        volumes: all distances are proportional to it; with K fixed and covariances learned it
        changes no label.
    reg_covar : float or "auto", default="auto"
        The number reg > 0, in squared data units times weight: it is added to a *sum* of squares,
        and keeps covariances away from singular ones. "auto" is a tenth of the mean variance of
        the features, times ``scale``. That is the variance of all rows, the differences between
        clusters included: where clusters of few rows are very far apart, reg can exceed their own
        sums of squares, and ``covariances_`` is mostly reg (see there). Give a number then, such as
        a tenth of the variance within a cluster. With ``volume="clusters"`` reg >= 0, and "auto" is
        a tenth of the total sum of squares about the mean, per feature and per ``n_clusters``: the
        covariance of a cluster of average size is raised by a tenth of the overall variance.
    covariances : array-like of shape (n_features, n_features) or \
(n_clusters, n_features, n_features), default=None
        Known covariances, one for all clusters or one for each, which stay as they are. One for all
        where K is found or free. With ``volume="points"`` they have no prior, and
        ``scale`` and ``reg_covar`` are to be left alone.
    init : {"auto", "merge", "k-means++"} or array-like of shape (n_centers, n_features), \
default="auto"
        "merge": many clusters, found by k-means, are merged two by two, always those whose merger
        costs least, with sweeps in between; K is the number that describes the rows best (see
        Notes), with ``lam`` that of the lowest objective, or the given one. "k-means++": as many
        seeds as clusters, which the points join by Euclidean distance at first (by Mahalanobis
        distance with known covariances), and so they do for an array of
        seeds; n_centers is ``n_clusters`` with K fixed. Where K is found the mergers begin
        with an array's clusters: no more than those are found. "auto" is "merge" with
        ``volume="points"``, but "k-means++" with a known covariance for each cluster, and
        "k-means++" with ``volume="clusters"``, where ``lam`` and no array mean that the start is
        one cluster of all points.
    n_init : int, default=10
        Number of starts, each with its own seeds (with ``volume="clusters"`` and ``lam``: the first
        in the given order of the rows, the others in random orders). The one with the lowest
        objective is kept. Of starts that mergers begin there are no more once three have found the
        lowest objective. An array of seeds has one start, but with ``volume="clusters"`` and
        ``lam``.
    max_iter : int, default=300
        Largest number of sweeps after the mergers; those that open clusters do not count,
        but there are at most ``max_iter + n_samples``.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times the absolute value of that
        after the first sweep. 0 runs to a fixed point.
    random_state : int, RandomState instance or None, default=None
        Generator of the seeds and orders.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        Means of the clusters.
    covariances_ : ndarray of shape (n_clusters, n_features, n_features), float64
        S_k, covariance matrices in the usual sense, reg included: (T_k + reg I) / (W_k + scale).
        The covariance of the members alone is ((W_k + scale) S_k - reg I) / W_k. With
        ``volume="clusters"`` they grow with the number of members: ``scale * covariances_[k]`` over
        the members' weight is the covariance matrix. With ``volume="points"``, in columns in which
        the rows of the fit are constant: reg / ``scale`` on the diagonal, 0 elsewhere.
    weights_ : ndarray of shape (n_clusters,) or None
        Shares p_k of the weight; None with ``volume="clusters"``.
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of each row. Where ``max_iter`` or ``tol`` ended the fit, clusters may be left
        without rows.
    n_clusters_ : int
        Number of clusters.
    objective_ : float
        The objective; log det S_k may make it negative.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep, and after the last labels where ``max_iter`` or ``tol``
        ended the fit; it never rises.
    reg_covar_ : float
        reg.
    lam_ : float or None
        Penalty of a cluster; None with K fixed.
    lam_eff_ : float or None
        What opening a cluster costs with ``volume="clusters"`` and ``lam``, else None.
    confidence_ : float
        How likely ``n_clusters_`` is right, from 0 to 1, judged by generated data sets whose number
        is known (see Notes); below 0.5 there is an UnclearNumberWarning. NaN where not the data
        alone choose: ``n_clusters``, ``lam``, ``covariances`` or seeds are given.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    probabilities_ : ndarray of shape (n_samples,), float64
        The probability of its own cluster for each row, see :meth:`predict_proba`.
    outlier_scores_ : ndarray of shape (n_samples,), float64
        How strange each row is, from 0 to 1, see :meth:`outlier_scores`.
    profiles_ : DataFrame, Table or dict of arrays
        What sets each cluster apart: a row for each cluster and column. See
        :meth:`profile_clusters`.
    representatives_ : Representatives
        Numbers of rows that stand for the clusters: ``centers``, those nearest to the centers, and
        ``boundaries``, a dict with two rows for each pair of clusters that touch.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit``, for parameters out of their bounds or that do not go together, for
        covariances that are not symmetric and positive definite, where ``reg_covar`` is too small
        to keep a covariance from being singular, and where lam_eff is not > 0. The estimator is
        then as it was before.

    Warns
    -----
    UnclearNumberWarning
        If the data choose the number of clusters, and it is not clear.
    UserWarning
        If lam_eff >= scale: no point is ever so far from its own center.

    See Also
    --------
    DPMeans : Spheres, and a number of clusters that follows from ``lam``.
    BregmanDPMeans : Counts, positive values, fractions.

    Notes
    -----
    Each half of a sweep, labels given the rest and the rest given labels, lowers the objective or
    leaves it. A cluster that would lose its last row keeps the one for which staying costs least.
    Of more than 10,000 rows the mergers see a random sample; the first of them a smaller one, down
    to 1.5 times the number of clusters that it has. Of more than 50,000 rows (or 100, and 4 for
    each column, a cluster, if that is more and ``n_clusters`` is given) all starts see a sample,
    and the best one goes on with all rows. In a sample of one row in r, a parameter of a cluster
    costs at least 3 r with ``lam=None``, since the objective is lower for the rows to which it was
    fitted (AIC3, Bozdogan 1993).

    The objective takes tails, skewness and recorded steps of a cluster for more clusters. So where
    the data alone choose K, clusterings of merge paths are compared by the objective with -2 log of
    other densities instead of squared distances: the likelier of Gaussian and t (3 to 200 degrees
    of freedom), with h^2 / 12 added to the variance of columns recorded in steps of h. If columns
    are skewed by more than 1, that is done for their Yeo-Johnson transforms, too, with the Jacobian
    and the price of two parameters for each. The lowest value gives K; if it is not that of the
    lowest objective, mergers down to K give the clusters. ``confidence_`` follows from how much
    higher the value is beyond K, whether it is lowest for the same K with and without transforms,
    and for K = 1 from what a second cluster gains.

    With ``volume="points"`` and no known covariances, columns in which all rows of the fit are
    equal take no part: d does not count them, and ``predict``, ``transform`` and ``score`` do not
    look at them, whatever new rows have there (unless all columns are so).

    ``volume="clusters"`` minimizes, as published,

        sum_k [tr((T_k + reg I) S_k^-1) + scale log det S_k] + lam * K

    by S_k = (T_k + reg I) / scale. For the labels the distance alone decides: log det S_k belongs
    to the cluster, not to its points. As S_k grows with the number of members, a large cluster has
    a wider reach than a small one, unlike in a mixture of Gaussians.

    There, with K fixed, a cluster of few points has a log det S_k near d log(reg / scale), which is
    low if reg is small: for a small reg the lowest objective is that of K - 1 tiny clusters and a
    large one, and several starts will find it. A cluster that lost its last point restarts at the
    point that is worst fitted. Features are best on comparable scales, as reg is the same for all.

    With ``lam``, the squared distance of a point from its own center is below scale, whatever the
    data (about d scale / n_samples on average in one cluster of all), so lam_eff must be too. Where
    a few points open clusters, the others' distances grow toward the same bound, and they follow:
    K tends to 1 or to nearly n_samples, and what is between is found by tuning only. With a known
    covariance there is no such bound, and this is :class:`DPMeans` in coordinates in which it is
    the unit matrix; a cluster then costs lam_eff = lam + reg tr S^-1 + scale log det S.

    References
    ----------
    Celeux & Govaert (1992), A classification EM algorithm for clustering and two stochastic
    versions, for ``volume="points"``, with the price of a cluster by Schwarz (1978). Broderick,
    Kulis & Jordan (2013), MAD-Bayes, appendix E, with the prior's scale matrix kept, for
    ``volume="clusters"``.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import MahalanobisMeans
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2)) * [3, 0.5]  # two long, flat clusters
    >>> X[100:, 1] += 5
    >>> model = MahalanobisMeans(random_state=0).fit(X)
    >>> np.bincount(model.labels_[:100]), np.bincount(model.labels_[100:])
    (array([  0, 100]), array([100]))
    """

    covariances_: NDArray[np.float64]
    weights_: NDArray[np.float64] | None
    objective_path_: NDArray[np.float64]
    reg_covar_: float
    lam_: float | None
    lam_eff_: float | None
    confidence_: float

    @named_parameters
    def __init__(
        self,
        n_clusters: int | Literal["auto"] | None = None,
        *,
        volume: Literal["points", "clusters"] = "points",
        lam: float | None = None,
        scale: float = 1.0,
        reg_covar: float | Literal["auto"] = "auto",
        covariances: ArrayLike | None = None,
        init: Literal["auto", "merge", "k-means++"] | ArrayLike = "auto",
        n_init: int = 10,
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.volume = volume
        self.lam = lam
        self.scale = scale
        self.reg_covar = reg_covar
        self.covariances = covariances
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self):
        check_option(self.volume, "volume", ("points", "clusters"))
        exact_number(self.n_clusters)
        check_number(self.scale, "scale", low=0, low_open=True)
        if isinstance(self.reg_covar, str):
            check_option(self.reg_covar, "reg_covar", ("auto",))
        else:
            check_number(self.reg_covar, "reg_covar", low=0)
        for name in ("scale", "reg_covar"):
            if getattr(self, name) == math.inf:
                raise ValueError(f"{name} must be finite, got inf")
        self._check_starts()
        if isinstance(self.init, str):
            check_option(self.init, "init", ("auto", "merge", "k-means++"))
        if self.volume == "clusters":
            check_number(self.lam, "lam", low=-np.inf, low_open=True, none=True)
            if self._finds_number and self.lam is None:
                raise ValueError(
                    "n_clusters must be a number with volume='clusters' and lam=None, got "
                    f"{self.n_clusters!r}"
                )
            if isinstance(self.init, str) and self.init == "merge":
                raise ValueError("init must not be 'merge' with volume='clusters'")
            return
        check_number(self.lam, "lam", low=0, none=True)
        if self.lam == math.inf:
            raise ValueError("lam must be finite with volume='points', got inf")
        if not self._finds_number and self.lam is not None:
            raise ValueError(
                f"lam must be None with n_clusters={self.n_clusters} and volume='points', got "
                f"lam={shown(self.lam)}: it is the penalty where the number of clusters is found"
            )
        if self._finds_number and isinstance(self.init, str) and self.init == "k-means++":
            raise ValueError(
                f"init must not be 'k-means++' with n_clusters={self.n_clusters!r}, which merges"
            )
        if self.covariances is None and self.reg_covar == 0:
            raise ValueError("reg_covar must be > 0 with volume='points', got 0")
        if self.covariances is not None:
            for name, wanted in (("reg_covar", "auto"), ("scale", 1)):
                value = getattr(self, name)
                if value != wanted:
                    raise ValueError(
                        f"{name} must be {wanted!r} with covariances and volume='points', which "
                        f"have no prior, got {shown(value)}"
                    )

    @property
    def _finds_number(self):
        """Whether the number of clusters is not given."""
        return exact_number(self.n_clusters) is None

    @property
    def _number_is_free(self):
        """Whether the number of clusters is not fixed."""
        return self._finds_number if self.volume == "points" else self.lam is not None

    def _check_seeds(self, d):
        """Given seeds, or None."""
        if isinstance(self.init, str):
            return None
        seeds = check_init(self.init, d, None)
        if not self._number_is_free and len(seeds) != self.n_clusters:
            raise ValueError(f"init must have n_clusters={self.n_clusters} rows, got {len(seeds)}")
        return seeds

    def _check_covariances(self, d):
        """Known covariances, or None."""
        if self.covariances is None:
            return None
        try:
            given_covariances = as_floats(self.covariances)
        except (TypeError, ValueError) as error:
            raise ValueError(f"covariances must be numbers: {error}") from None
        # one matrix for all clusters or, where their number is known, one for each
        wanted = [(d, d)] if self._number_is_free else [(d, d), (self.n_clusters, d, d)]
        if given_covariances.shape not in wanted:
            free_by = f"n_clusters={self.n_clusters!r}" if self.volume == "points" else "lam given"
            raise ValueError(
                f"covariances must have shape {' or '.join(map(str, wanted))}"
                f"{f' with {free_by}' * self._number_is_free}, got {given_covariances.shape}"
            )
        if given_covariances.ndim == 3 and isinstance(self.init, str) and self.init == "merge":
            raise ValueError("init must not be 'merge' with a known covariance for each cluster")
        if not np.isfinite(given_covariances).all():
            raise ValueError("covariances must be finite, got NaN or infinity")
        stack = given_covariances.reshape(-1, d, d)
        for matrix in stack:
            check_symmetric(matrix, "covariances must be symmetric")

        def indefinite(k):
            least = np.linalg.eigvalsh(stack[k])[0]
            raise ValueError(
                f"covariances must be positive definite, got an eigenvalue of {least:.3g}"
                f"{f' in number {k}' if given_covariances.ndim == 3 else ''}"
            )

        roots_of(stack, indefinite)
        return given_covariances

    def _resolve_reg(self, data):
        if self.volume == "points" and self.covariances is not None:
            return 0.0
        if not isinstance(self.reg_covar, str):
            return float(self.reg_covar)
        X, w = data.X, data.w
        varying = varying_columns(X)
        d = X.shape[1] if varying is None else int(varying.sum())
        mean = data.layout.mean(X, w if data.layout.weighted else None, 1)
        squares = np.empty(len(w))
        for b in blocks(*X.shape):
            squares[b] = np.square(X[b] - mean).sum(axis=1)
        total = exact_total(w * squares)
        # a share of the mean variance of a column; of the sum of squares of a column and cluster
        if self.volume == "points":
            return PRIOR * float(self.scale) * total / d / exact_total(w) or 1.0
        return PRIOR * total / d / (GUESS if self._finds_number else self.n_clusters) or 1.0

    def _resolve_lam(self, d, data, known):
        """The penalty of a cluster: ``lam`` if it is given, else that of BIC; None with K fixed."""
        if not self._number_is_free or self.lam is not None:
            return None if self.lam is None else float(self.lam)
        return self._parameters(d, known) * math.log(max(exact_total(data.w), 2.0))

    @staticmethod
    def _parameters(d, known):
        """Those of a cluster: its share, its mean and, unless it is known, its covariance."""
        return 1 + d + (d * (d + 1) / 2 if known is None else 0)

    def _opening_cost(self, d, reg, given_covariances):
        """What a cluster costs that begins at a point; None with K fixed."""
        if self.lam is None or self.volume == "points":
            return None
        lam, scale = float(self.lam), float(self.scale)
        if given_covariances is not None:
            roots, logdet = roots_of(given_covariances[None], None)
            cost = lam + reg * np.square(roots).sum() + scale * logdet[0]
        elif reg == 0:
            raise ValueError("reg_covar must be > 0 with lam given, got 0")
        else:
            # tr(reg I S^-1) + scale log det S at S = reg I / scale, the covariance of one point
            cost = lam + scale * d * (1.0 + np.log(reg / scale))
        cost = float(cost)
        rest = cost - lam if np.isfinite(lam) else 0.0
        if not cost > 0:
            raise ValueError(
                f"lam must be > {-rest:.8g}, so that lam_eff, what opening a cluster costs, is > 0 "
                f"(n_features={d}, reg_covar={reg:.6g}, scale={scale:.6g}); got "
                f"lam={shown(lam)} and lam_eff={cost:.6g}"
            )
        if given_covariances is None and cost >= scale:
            warnings.warn(
                f"MahalanobisMeans: lam={lam:.8g} makes opening a cluster cost "
                f"lam_eff={cost:.6g}, but no point is ever as far as scale={scale:.6g} from "
                "its own center: no cluster will be opened. To have an effect lam must be below "
                f"{scale - rest:.8g}; K then tends to nearly n_samples.",
                UserWarning,
                stacklevel=level_of_caller(),
            )
        return cost

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Cluster the data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each. A weight is a factor in centers and
            covariances; rows of weight zero take no part and are labeled as by ``predict``.

        Returns
        -------
        self : MahalanobisMeans
            The fitted estimator.
        """
        self._check_parameters()
        rng = self._rng()
        X = self._validate(X, reset=True)
        check_reach(X)
        n, d = X.shape
        # the prices of BIC are for n rows: weights are divided by their mean, so they add to n
        weight, by_point = check_weights(sample_weight, n), self.volume == "points"
        by_data = self._finds_number and self.lam is None
        relative = by_data and isinstance(self.reg_covar, str)
        weight = self._relative(weight, relative and by_point, to_mean=True)
        w = np.ones(n) if weight is None else weight
        active = np.flatnonzero(w)
        if not self._number_is_free:
            check_guess(self.n_clusters, len(active), "n_clusters")
        seeds, given_covariances = self._check_seeds(d), self._check_covariances(d)
        # rows without weight are few or none: leave them out by a copy
        used = (X, w) if len(active) == n else (X[active], w[active])
        self._varying = None
        if by_point and self.covariances is None:
            self._varying = varying_columns(used[0])  # constant columns are left out
        seeds = seeds if seeds is None else self._columns(seeds)
        data = Data(self._columns(used[0]), used[1], weight is not None)
        reg = self._resolve_reg(data)
        cost = self._opening_cost(d, reg, given_covariances)
        lam = self._resolve_lam(data.X.shape[1], data, given_covariances)
        starts = GaussianStarts(
            *(self, seeds, given_covariances, exact_number(self.n_clusters), (reg, lam, cost)),
            *(self._parameters(data.X.shape[1], given_covariances), self._resolve_reg),
            *(self._loop(), rng),
        )
        best, choice = starts.best(data, by_data and by_point and seeds is None)
        if choice is not None and self._varying is not None:
            # the choice knows the columns that vary: their numbers among all
            columns = np.flatnonzero(self._varying)
            few_valued, skewed = columns[choice.few_valued], columns[choice.skewed]
            choice = choice._replace(few_valued=few_valued, skewed=skewed)
        self._keep(best.state, used[0], reg)
        self.weights_ = best.state.shares if best.state.by_point else None
        self.lam_ = lam
        self.labels_ = best.label
        if len(active) < n:
            self.labels_ = np.empty(n, dtype=np.int32)
            self.labels_[active] = best.label
            idle = np.flatnonzero(w == 0)  # their labels are those that predict gives
            self.labels_[idle] = self._fitted(X[idle], reg).assign()[0]
        self.n_clusters_ = best.k
        self.objective_ = best.objective
        self.objective_path_ = np.array(best.progress.path)
        self.reg_covar_ = reg
        self._multiply("objective_", "objective_path_", "reg_covar_")
        if lam is not None:
            self._multiply("lam_")
        self.lam_eff_ = cost
        self.n_iter_ = best.progress.n_iter
        self.confidence_ = np.nan if choice is None else choice.confidence
        self._remember_rows(X, weight)
        warn_of_identifiers(self, X)
        if not best.progress.ended:
            warn_not_converged(self, self.n_iter_)
        if choice is not None:
            warn_if_unclear(self, choice)
        return self

    def _keep(self, state, X, reg):
        """Learn centers and covariances, those of constant columns included."""
        self.cluster_centers_, self.covariances_ = state.centers, state.covariances
        if self._varying is None:
            return
        k, d = len(state.centers), X.shape[1]
        # in a constant column the center is its value, and the covariance that of the prior alone
        self.cluster_centers_ = np.tile(X[0].astype(np.float64), (k, 1))
        self.cluster_centers_[:, self._varying] = state.centers
        self.covariances_ = np.tile(reg / float(self.scale) * np.eye(d), (k, 1, 1))
        self.covariances_[np.ix_(range(k), self._varying, self._varying)] = state.covariances

    def _fitted(self, X, reg, w=None):
        """The clusters found, and other data."""
        w, d, by_point = np.ones(len(X)) if w is None else w, X.shape[1], self.weights_ is not None
        centers = learned(self, "cluster_centers_", None, d)
        covariances = learned(self, "covariances_", len(centers), d, d)
        shares = learned(self, "weights_", len(centers)) if by_point else None
        if self._varying is not None:
            covariances = covariances[:, self._varying][:, :, self._varying]
        check_number(self.scale, "scale", low=0, low_open=True)  # it may have been set since
        kind, scale = PointGaussians if by_point else Gaussians, float(self.scale) * self._unit
        state = kind(self._columns(X), w, self.lam_ or 0.0, scale, reg, None)
        state.set_clusters(self._columns(centers), covariances, shares)
        return state

    def _made_row_model(self, fitted):
        rows, weight, labels, centers = self._sample_for_model(fitted)
        covariances = learned(self, "covariances_", len(centers), *[rows.shape[1]] * 2)
        rows = rows.astype(np.float64, copy=False)
        return model_of_rows(rows, weight, labels, centers, covariances=covariances)

    def _gains(self, moments):
        delta, gains = mean_differences(moments), []
        for difference, covariance in zip(delta, self.covariances_, strict=True):
            # S^-1 is M M' with M the inverse of the transposed root of S
            M = np.linalg.inv(np.linalg.cholesky(covariance)).T
            unit = np.sqrt(np.diag(covariance))
            gains.append(parts_of_squares(difference[np.newaxis], M, unit)[0])
        return np.array(gains)

    def _mean_cost(self, moments):
        return float(max((moments.variance[-1] > 0.0).sum(), 1))  # of a Gaussian law

    def predict(self, X: ArrayLike) -> NDArray[np.int32]:
        """Cluster in which each row pays least.

        By its Mahalanobis distance, and by volume and share of the cluster where points pay for
        them (``volume="points"``).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Index into ``cluster_centers_``; at a tie the lowest one.
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        check_reach(X)
        return self._fitted(X, self.reg_covar_).assign()[0]

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Return the Mahalanobis distances (not squared) of each row to each center.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data.

        Returns
        -------
        distances : ndarray of shape (n_samples, n_clusters)
            The root of (x - mu_k)' S_k^-1 (x - mu_k), a pure number; float32 for float32 data.
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        check_reach(X)
        state = self._fitted(X, self.reg_covar_)
        out = np.empty((X.shape[0], len(state.centers)), dtype=X.dtype)
        for rows in blocks(X.shape[0], max(self.cluster_centers_.shape)):
            with np.errstate(over="ignore"):
                out[rows] = np.sqrt(state.distances(state.rows(rows)))
        need_finite(out, X)
        return out

    def score(
        self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Return minus the objective of data at the fitted centers and covariances.

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
            Minus the sum of w times what each row pays in its cheapest cluster, and of what the
            clusters cost without points.
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        check_reach(X)
        state = self._fitted(X, self.reg_covar_, check_weights(sample_weight, X.shape[0]))
        return -(exact_total(state.w * state.assign()[1]) + state.prior())
