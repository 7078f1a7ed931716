"""K-means with a covariance for each cluster."""

import math
import warnings
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import kmeans_plusplus
from sklearn.utils.validation import check_is_fitted

from smallvar._base import unchanged_on_error, warn_not_converged
from smallvar._centers import CenterEstimator
from smallvar._divergence import blocks
from smallvar._gaussians import Data, Gaussians, GaussianStart, need_finite, roots_of
from smallvar._penalty import check_guess
from smallvar._starts import best_of
from smallvar._sweeps.sums import exact_total
from smallvar._validation import (
    as_floats,
    check_init,
    check_number,
    check_option,
    check_reach,
    check_symmetric,
    check_weights,
    shown,
)


class MahalanobisMeans(CenterEstimator):
    """K-means whose clusters have covariances of their own, learned or known.

    Minimizes, over labels, centers mu_k and covariances S_k,

        sum_k [tr((T_k + reg I) S_k^-1) + scale log det S_k] + lam * K

    where T_k = sum of w_i (x_i - mu_k)(x_i - mu_k)' over the members of k: each point pays its
    squared Mahalanobis distance (x - mu_k)' S_k^-1 (x - mu_k), each cluster for the volume of its
    covariance. The minimum over S_k is (T_k + reg I) / scale. The number of clusters K is fixed
    unless ``lam`` is given.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters. With ``lam``, a guess that only enters ``reg_covar="auto"``.
    lam : float, default=None
        None keeps K fixed. A number is the penalty of a cluster: K is then free, and opening a
        cluster at a point costs lam_eff = lam + scale d (1 + log(reg / scale)), which must be > 0;
        ``lam`` itself may be negative. See Notes before you use it.
    scale : float, default=1.0
        Weight of the volumes, > 0. All distances are proportional to it; with K fixed and
        covariances learned it changes no label.
    reg_covar : float or "auto", default="auto"
        The number reg >= 0, in squared data units times weight: it is added to a *sum* of
        squares. "auto" is a tenth of the total sum of squares about the mean, per feature and per
        ``n_clusters``: the covariance of a cluster of average size is raised by a tenth of the
        overall variance. Much less invites clusters of a few points, see Notes.
    covariances : array-like of shape (n_features, n_features) or \
(n_clusters, n_features, n_features), default=None
        Known covariances, one for all clusters or one for each, which stay as they are. With
        ``lam`` one for all.
    init : "k-means++" or array-like of shape (n_centers, n_features), default="k-means++"
        Seeds, which the points join by Euclidean distance at first (by Mahalanobis distance with
        known covariances); n_centers is ``n_clusters`` with K fixed. With ``lam`` and no array the
        start is one cluster of all points.
    n_init : int, default=10
        Number of starts, each with its own seeds (with ``lam``: the first in the given order of
        the rows, the others in random orders). The one with the lowest objective is kept. An array
        of seeds with K fixed has one start.
    max_iter : int, default=300
        Largest number of sweeps; those that open clusters do not count,
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
        S_k. They grow with the number of members: ``scale * covariances_[k]`` over the members'
        weight is the covariance matrix in the usual sense, reg included.
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of each row. Where ``max_iter`` or ``tol`` ended the fit, clusters may be left
        without rows.
    n_clusters_ : int
        Number of clusters.
    objective_ : float
        The objective; log det S_k may make it negative.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep; it never rises.
    reg_covar_ : float
        reg.
    lam_eff_ : float or None
        What opening a cluster costs; None with K fixed.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit``, for parameters out of their bounds, for covariances that are not symmetric and
        positive definite, where ``reg_covar`` is too small to keep a covariance from being
        singular, and where lam_eff is not > 0. The estimator is then as it was before.

    Warns
    -----
    UserWarning
        If lam_eff >= scale: no point is ever so far from its own center.

    See Also
    --------
    DPMeans : Spheres, and a number of clusters that follows from ``lam``.
    BregmanDPMeans : Counts, positive values, fractions.

    Notes
    -----
    Each half of a sweep, labels given the rest and the rest given labels, lowers the objective or
    leaves it. For the labels the distance alone decides: log det S_k belongs to the cluster, not to
    its points. As S_k grows with the number of members, a large cluster has a wider reach than a
    small one, unlike in a mixture of Gaussians.

    With K fixed, a cluster of few points has a log det S_k near d log(reg / scale), which is low if
    reg is small: for a small reg the lowest objective is that of K - 1 tiny clusters and a large
    one, and several starts will find it. A cluster that lost its last point restarts at the point
    that is worst fitted. Features are best on comparable scales, as reg is the same for all.

    With K free, the squared distance of a point from its own center is below scale, whatever the
    data (about d scale / n_samples on average in one cluster of all), so lam_eff must be too. Where
    a few points open clusters, the others' distances grow towards the same bound, and they follow:
    K tends to 1 or to nearly n_samples, and what is between is found by tuning only. With a known
    covariance there is no such bound, and this is :class:`DPMeans` in coordinates in which it is
    the unit matrix; a cluster then costs lam_eff = lam + reg tr S^-1 + scale log det S.

    References
    ----------
    Broderick, Kulis & Jordan (2013), MAD-Bayes, appendix E, with the prior's scale matrix kept.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import MahalanobisMeans
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2)) * [3, 0.5]  # two long, flat clusters
    >>> X[100:, 1] += 5
    >>> model = MahalanobisMeans(2, random_state=0).fit(X)
    >>> np.bincount(model.labels_[:100]), np.bincount(model.labels_[100:])
    (array([  0, 100]), array([100]))
    """

    covariances_: NDArray[np.float64]
    objective_path_: NDArray[np.float64]
    reg_covar_: float
    lam_eff_: float | None

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        lam: float | None = None,
        scale: float = 1.0,
        reg_covar: float | Literal["auto"] = "auto",
        covariances: ArrayLike | None = None,
        init: Literal["k-means++"] | ArrayLike = "k-means++",
        n_init: int = 10,
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
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
        check_number(self.n_clusters, "n_clusters", low=1, integer=True)
        check_number(self.lam, "lam", low=-np.inf, low_open=True, none=True)
        check_number(self.scale, "scale", low=0, low_open=True)
        if isinstance(self.reg_covar, str):
            check_option(self.reg_covar, "reg_covar", ("auto",))
        else:
            check_number(self.reg_covar, "reg_covar", low=0)
        for name in ("scale", "reg_covar"):
            if getattr(self, name) == math.inf:
                raise ValueError(f"{name} must be finite, got inf")
        self._check_starts()

    def _check_seeds(self, d):
        """Given seeds, or None."""
        if isinstance(self.init, str):
            check_option(self.init, "init", ("k-means++",))
            return None
        seeds = check_init(self.init, d, None)
        if self.lam is None and len(seeds) != self.n_clusters:
            raise ValueError(f"init must have n_clusters={self.n_clusters} rows, got {len(seeds)}")
        return seeds

    def _check_covariances(self, d):
        """Known covariances, or None."""
        if self.covariances is None:
            return None
        try:
            known = as_floats(self.covariances)
        except (TypeError, ValueError) as error:
            raise ValueError(f"covariances must be numbers: {error}") from None
        wanted = [(d, d)] if self.lam is not None else [(d, d), (self.n_clusters, d, d)]
        if known.shape not in wanted:
            raise ValueError(
                f"covariances must have shape {' or '.join(map(str, wanted))}"
                f"{' with lam given' if self.lam is not None else ''}, got {known.shape}"
            )
        if not np.isfinite(known).all():
            raise ValueError("covariances must be finite, got NaN or infinity")
        stack = known.reshape(-1, d, d)
        for one in stack:
            check_symmetric(one, "covariances must be symmetric")

        def indefinite(k):
            least = np.linalg.eigvalsh(stack[k])[0]
            raise ValueError(
                f"covariances must be positive definite, got an eigenvalue of {least:.3g}"
                f"{f' in number {k}' if known.ndim == 3 else ''}"
            )

        roots_of(stack, indefinite)
        return known

    def _resolve_reg(self, data):
        if not isinstance(self.reg_covar, str):
            return float(self.reg_covar)
        X, w = data.X, data.w
        mean = data.layout.mean(X, w if data.layout.weighted else None, 1)
        squares = np.empty(len(w))
        for b in blocks(*X.shape):
            squares[b] = np.square(X[b] - mean).sum(axis=1)
        return 0.1 * exact_total(w * squares) / X.shape[1] / self.n_clusters or 1.0

    def _opening_cost(self, d, reg, known):
        """What a cluster costs that begins at a point; None with K fixed."""
        if self.lam is None:
            return None
        lam, scale = float(self.lam), float(self.scale)
        if known is not None:
            roots, logdet = roots_of(known[None], None)
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
        if known is None and cost >= scale:
            warnings.warn(
                f"MahalanobisMeans: lam={lam:.8g} makes opening a cluster cost "
                f"lam_eff={cost:.6g}, but no point is ever as far as scale={scale:.6g} from "
                "its own center: no cluster will be opened. To have an effect lam must be below "
                f"{scale - rest:.8g}; K then tends to nearly n_samples.",
                UserWarning,
                stacklevel=3,
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
            Weights >= 0, not all zero; None means 1 each. A weight is a mass in centers and
            covariances; rows of weight zero take no part and are labeled as by ``predict``.

        Returns
        -------
        self : MahalanobisMeans
            The fitted estimator.
        """
        with unchanged_on_error(self):
            self._check_parameters()
            rng = self._rng()
            X = self._validate(X, reset=True)
            check_reach(X)
            n, d = X.shape
            w = check_weights(sample_weight, n)
            w = np.ones(n) if w is None else w
            active = np.flatnonzero(w)
            if self.lam is None:
                check_guess(self.n_clusters, len(active))
            seeds, known = self._check_seeds(d), self._check_covariances(d)
            # rows without weight are few or none: leave them out by a copy
            used = (X, w) if len(active) == n else (X[active], w[active])
            data = Data(*used, sample_weight is not None)
            reg = self._resolve_reg(data)
            cost = self._opening_cost(d, reg, known)
            total = 1 if seeds is not None and cost is None else self.n_init
            starts = (
                self._start(data, seeds, known, reg, cost, start, rng) for start in range(total)
            )
            best = best_of(starts, total=total, verbose=self.verbose)
            self.cluster_centers_ = best.state.centers
            self.covariances_ = best.state.covariances
            self.labels_ = best.label
            if len(active) < n:
                self.labels_ = np.empty(n, dtype=np.int32)
                self.labels_[active] = best.label
                idle = np.flatnonzero(w == 0)
                self.labels_[idle] = self._fitted(X[idle], reg).assign()[0]
            self.n_clusters_ = best.k
            self.objective_ = best.objective
            self.objective_path_ = np.array(best.progress.path)
            self.reg_covar_ = reg
            self.lam_eff_ = cost
            self.n_iter_ = best.progress.n_iter
            if not best.progress.ended:
                warn_not_converged(self, self.n_iter_)
        return self

    def _start(self, data, seeds, known, reg, cost, start, rng):
        X, w = data.X, data.w
        lam = 0.0 if self.lam is None else float(self.lam)
        state = Gaussians(X, w, lam, float(self.scale), reg, known, data)
        order = np.arange(len(w)) if start == 0 or cost is None else rng.permutation(len(w))
        if seeds is None and cost is not None:
            one, label = GaussianStart(state, 1, cost, order), np.zeros(len(w), dtype=np.int32)
            return one.run(label, False, self.max_iter, self.tol, self.verbose)
        if seeds is None:
            seeds = kmeans_plusplus(X, self.n_clusters, sample_weight=w, random_state=rng)[0]
        state.centers = seeds.astype(np.float64)
        first = state.identity if known is None else known
        state.set_covariances(np.broadcast_to(first, (len(seeds), *state.identity.shape)))
        label, least = state.assign()
        one = GaussianStart(state, len(seeds), cost, order)
        one.label = label
        if cost is None:
            one._restart(least)
        else:
            kept, label = np.unique(label, return_inverse=True)
            one.label, one.k = label.astype(np.int32), len(kept)
        return one.run(one.label, True, self.max_iter, self.tol, self.verbose)

    def _fitted(self, X, reg, w=None):
        """The clusters found, and other data."""
        lam = 0.0 if self.lam is None else float(self.lam)
        w = np.ones(X.shape[0]) if w is None else w
        state = Gaussians(X, w, lam, float(self.scale), reg, None)
        state.centers = self.cluster_centers_
        state.set_covariances(self.covariances_)
        return state

    def predict(self, X: ArrayLike) -> NDArray[np.int32]:
        """Cluster of the least Mahalanobis distance from each row.

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
        out = np.empty((X.shape[0], self.n_clusters_), dtype=X.dtype)
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
            Minus the sum of w * squared distance to the nearest center, and of what the clusters
            cost without points.
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        check_reach(X)
        state = self._fitted(X, self.reg_covar_, check_weights(sample_weight, X.shape[0]))
        return -(exact_total(state.w * state.assign()[1]) + state.prior())
