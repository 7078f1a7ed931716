"""BregmanDPMeans: DP-means with a Bregman divergence in place of the squared distance.

Jiang, Kulis & Jordan (2012). The divergences and their sweeps are in ``divergence``, merge paths by
them in ``divergence_path``; "squared_euclidean" is ``DPMeans`` itself.
"""

from functools import partial
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from sklearn.utils.validation import check_is_fitted

from smallvar._centers.divergence import (
    DivergenceSweep,
    Reference,
    SumsFrame,
    farthest_first,
    nearest_by,
)
from smallvar._centers.divergence_path import Family
from smallvar._centers.divergence_rules import DIVERGENCES
from smallvar._centers.dpmeans import DPMeans, RowsProblem
from smallvar._centers.starts import Start, run_starts
from smallvar._core.config import at_most_blas_threads
from smallvar._core.estimator import keywords_only, warn_not_converged
from smallvar._core.profiles import mean_differences
from smallvar._core.row_model import RowModelMixin, model_of_costs
from smallvar._core.validation import (
    check_init,
    check_option,
    check_ratio,
    check_reach,
    check_weights,
    learned,
    mean_weight,
)
from smallvar._selection.confidence import warn_if_unclear
from smallvar._selection.penalty import cut_guess
from smallvar._sweeps.divergences import summands
from smallvar._sweeps.rows import LARGEST_WEIGHT_RATIO


def checked_reference(rule, X, weight, frame):
    """The Reference of rows at their mean, m0: D(x, mu) - D(x, m0) is affine in x."""
    reference = Reference(rule, X, frame.mean, frame)
    from_m0 = reference.divergences
    if weight is not None:
        used = np.flatnonzero(weight)  # the others may be infinitely far
        from_m0 = weight[used] * from_m0[used]
    total = float(from_m0.sum())
    # a row with a component near 0 may have a divergence beyond float64
    if not np.isfinite(total):
        raise ValueError(
            "X must have a finite (weighted) sum of divergences from its mean for "
            f"divergence={rule.name!r}, got {total} for values from "
            f"{float(X.min()):.3g} to {float(X.max()):.3g}: replace tiny values"
        )
    return reference


class DivergenceProblem(RowsProblem):
    """Rows clustered by a divergence; ``active`` are those of positive weight, None for all."""

    def __init__(self, fit, rule, X, weight, active, reference, n_threads):
        super().__init__(fit, X, weight, n_threads, family=Family(rule))
        self.rule, self.active, self.reference = rule, active, reference
        if fit.init is not None:  # off the border, as seeds of a path are
            self.options["init"] = rule.off_border(fit.init, reference.m0)

    def start(self, point):
        """The Start at the given centers, or at the mean."""
        rows, w = point.visited(self.active, self.weight)
        sweep = DivergenceSweep(self.rule, self.X, w, rows, self.reference, self.n_threads)
        are_means = point.centers is None
        centers = self.reference.frame.mean[None] if are_means else point.centers
        return Start(point, sweep, centers, are_means, rows)


def deviances(rule, centers, X, n_threads):
    """Twice the divergences of rows from centers: squared distances, for small divergences."""
    return 2.0 * rule.between(X[:, None], centers)


def log_volumes(rule, inside, X):
    """What the saddlepoint density of rows has besides their deviance: -1/2 sum_j log V(x_j).

    Of values on the border of the domain, V is taken for a value ``inside``, as Stirling's formula
    has it.
    """
    return -0.5 * np.log(rule.density_variance(np.asarray(X, np.float64), inside)).sum(axis=1)


class DivergenceMixin(RowModelMixin):
    """An estimator with the parameter ``divergence``, whose centers are means of rows."""

    divergence: str

    def _rule(self):
        """The divergence, or None for "squared_euclidean"."""
        options = ("squared_euclidean", *DIVERGENCES)
        check_option(self.divergence, "divergence", options)
        return DIVERGENCES.get(self.divergence)

    def _validate(self, X: ArrayLike, *, reset: bool, least: int = 1) -> NDArray[np.floating]:
        rule = self._rule()
        X = super()._validate(X, reset=reset, least=least)
        if rule is not None:
            rule.check(X, "X", self.divergence)
            check_reach(X)
        return X

    def _made_row_model(self, fitted):
        rule = self._rule()
        if rule is None:
            return super()._made_row_model(fitted)
        X, n_threads = fitted.X, self._threads()
        centers = self._centers(rule, X.shape[1])
        costs = partial(deviances, rule, centers)
        taken, weight, labels = fitted.sample(
            centers.size, lambda: costs(X, n_threads)[np.arange(X.shape[0]), fitted.labels]
        )
        rows = X[taken]
        mean = np.average(rows, axis=0, weights=weight)[None]
        d = max(1, np.count_nonzero(np.ptp(rows, axis=0)))
        from_mean = partial(deviances, rule, mean)
        model = model_of_costs(costs, from_mean, rows, weight, labels, d, n_threads)
        # the dispersion of an exponential family is the unit of its deviance
        model.offset = partial(log_volumes, rule, float(model.mixture.scatter.values.min()) / 6.0)
        return model

    def _gains(self, moments):
        rule = self._rule()
        if rule is None:
            return super()._gains(moments)
        # by how much rows diverge less from their own mean than from that of all rows (Banerjee et
        # al. 2005, section 3.1)
        found = np.maximum(summands(rule.kind, moments.mean[:-1], moments.mean[-1]), 0.0)
        return np.where(mean_differences(moments) == 0.0, 0.0, found)

    def _centers(self, rule, d):
        """The fitted centers; the divergence may have been set to another one since."""
        centers = learned(self, "cluster_centers_", None, d)
        if rule is not None:
            rule.check(centers, "cluster_centers_", self.divergence)
        return centers

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.divergence != "squared_euclidean"
        return tags

    def _check_kmeans(self):
        if self._rule() is not None:
            raise ValueError(
                "divergence must be 'squared_euclidean' for a KMeans that predicts the same, got "
                f"{self.divergence!r}"
            )


class BregmanDPMeans(DivergenceMixin, DPMeans):
    """DP-means with a Bregman divergence in place of the squared Euclidean distance.

    Minimizes, over labels, centers and their number K,

        sum_i w_i D(x_i, mu_{z_i}) + lam * K,

    with one of the divergences ::

        "squared_euclidean"   sum_j (x_j - mu_j)^2                                     all x
        "kl"                  sum_j x_j log(x_j / mu_j) - x_j + mu_j                   x >= 0
        "itakura_saito"       sum_j x_j / mu_j - log(x_j / mu_j) - 1                   x > 0
        "logistic"            sum_j x_j log(x_j / mu_j)
                                    + (1 - x_j) log((1 - x_j) / (1 - mu_j))       0 <= x <= 1

    These are, up to terms that do not depend on the clusters, the negative log-likelihoods of
    Gaussian (variance 1/2), Poisson, exponential and Bernoulli variables with mean mu_j. For all of
    them the best center is the arithmetic mean.

    Parameters
    ----------
    lam : float, "auto" or "farthest-first", default="auto"
        Penalty for each cluster, in units of D, > 0 (0 is allowed together with ``max_clusters``).
        "auto" chooses the number of clusters by the likelihood of the divergence's family along a
        merge path (see Notes). "farthest-first" derives a penalty from the data and
        ``guess``, with D as the distance.
    divergence : {"squared_euclidean", "kl", "itakura_saito", "logistic"}, \
default="squared_euclidean"
        The divergence D. "squared_euclidean" gives the results of :class:`DPMeans`.
    n_clusters : int, "auto" or None, default=None
        The exact number of clusters, if ``lam`` is "auto": the clusters of that number on the merge
        path, and the penalty for which it is best. At most ``max_clusters`` and the number of
        distinct rows (of positive weight). None or "auto": the data choose.
    guess : int, default=8
        Guess of the number of clusters for ``lam="farthest-first"``, not a bound, at most the
        number of rows (to which the default is cut). Not used otherwise.
    max_clusters : int, default=None
        Never have more clusters than this. At the cap a far point joins its nearest cluster.
    algorithm : {"serial", "delayed", "collapsed", "merge"}, default="serial"
        As for :class:`DPMeans`. In "serial" and "delayed" a point x opens a cluster where
        w * D(x, mu) > ``lam`` for every center. In "collapsed" it goes where the objective is
        lowest: joining a cluster of weight s and mean m costs w D(x, m') + s D(m, m'), with m' the
        joint mean. In "merge" two clusters become one at the cost s D(m, m') + s' D(m'', m').
    init : "mean" or array-like of shape (n_centers, n_features), default="mean"
        Starting centers, in the domain of D; "mean" is the (weighted) mean of the data.
    n_init : int, default=1
        Number of starts, the first in the given order, the others in random order. The start with
        the lowest objective is kept; with "auto" the path with the lowest criterion.
    max_iter : int, default=300
        Largest number of sweeps; those that open clusters do not count,
        but there are at most ``max_iter + n_samples``.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times its value after the first
        sweep. 0 runs to a fixed point.
    random_state : int, RandomState instance or None, default=None
        Generator of the random orders, and of the first clusters of a merge path.
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        Means of the clusters, in order of creation.
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of each row.
    n_clusters_ : int
        Number of clusters found.
    inertia_ : float
        Weighted sum of divergences from the assigned centers.
    objective_ : float
        ``inertia_ + lam_ * n_clusters_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep, and after the last labels where ``max_iter`` or ``tol``
        ended the fit; it never rises.
    lam_ : float
        The penalty used.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    path_ : ClusterPath
        The merge path, with "auto" or "merge" only: see :func:`cluster_path`.
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
        From all methods, for data outside the domain of D, and as for :class:`DPMeans`.

    See Also
    --------
    DPMeans : With squared Euclidean distances.
    MahalanobisMeans : Clusters with their own covariances.

    Notes
    -----
    "auto" takes the K on the merge path that minimizes minus twice the log-likelihood of rows and
    labels, with the families above (for "itakura_saito" the gamma law, its shape fitted too), plus
    2 log(n) for each of the K (d + 1) - 1 parameters, n the number of rows of positive weight. Of
    the weights only ratios matter. Whole numbers are counts. Other numbers with "kl" and
    "logistic", fractions or amounts, stand for an unknown number of counts: with phi the mean of
    2 D / d, D counts as phi times smaller, and d log(phi) is added for each row (a
    quasi-likelihood), so that fractions and percents have the same clusters; n is the number of
    distinct rows, and d one less than the number of columns if all rows have the same sum. Counts
    that vary more than Poisson ones have such a dispersion phi, too, if that shortens the
    description.
    For "squared_euclidean" see :func:`cluster_path`.

    0 log 0 is 0. A center with a component on the border of the domain (all members are 0 there,
    or all are 1) is infinitely far from every x that differs there. Where a point opens a cluster,
    the components of its center that are on the border are therefore a tenth of the way to the mean
    of all rows until the sweep ends, if the cluster is worth ``lam`` with that center, too; with
    "delayed", the points that are nearer to it than to their own center join at once. An infinite
    divergence exceeds every ``lam``. At the cap, or in ``predict``, a point joins the
    nearest center at a finite divergence, and the first center if there is none.

    References
    ----------
    Jiang, Kulis & Jordan (2012), Small-variance asymptotics for exponential family Dirichlet
    process mixture models. Banerjee, Merugu, Dhillon & Ghosh (2005), Clustering with Bregman
    divergences. "collapsed" after Broderick, Kulis & Jordan (2013), MAD-Bayes, eq. 8-9.
    Dispersion: Nelder & Pregibon (1987), An extended quasi-likelihood function.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import BregmanDPMeans
    >>> X = np.array([[2, 1], [3, 1], [200, 210], [231, 190], [1, 30], [2, 34]])
    >>> model = BregmanDPMeans(lam=10.0, divergence="kl").fit(X)
    >>> model.labels_
    array([0, 0, 1, 1, 2, 2], dtype=int32)
    >>> model.cluster_centers_.tolist()
    [[2.5, 1.0], [215.5, 200.0], [1.5, 32.0]]
    >>> model.predict([[5, 3], [5, 25]])
    array([0, 2], dtype=int32)
    """

    _takes_sparse = False

    @keywords_only
    def __init__(
        self,
        *,
        lam: float | Literal["auto", "farthest-first"] = "auto",
        divergence: Literal[
            "squared_euclidean", "kl", "itakura_saito", "logistic"
        ] = "squared_euclidean",
        n_clusters: int | Literal["auto"] | None = None,
        guess: int = 8,
        max_clusters: int | None = None,
        algorithm: Literal["serial", "delayed", "collapsed", "merge"] = "serial",
        init: Literal["mean"] | ArrayLike = "mean",
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            lam=lam,
            n_clusters=n_clusters,
            guess=guess,
            max_clusters=max_clusters,
            algorithm=algorithm,
            init=init,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
            n_threads=n_threads,
            verbose=verbose,
        )
        self.divergence = divergence

    def fit(  # type: ignore[override]  # without links
        self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Cluster the data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data in the domain of the divergence. float32 and float64 in any memory layout are used
            as they are, other types converted once.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each.

        Returns
        -------
        self : BregmanDPMeans
            The fitted estimator.
        """
        rule = self._rule()
        if rule is None:
            return super().fit(X, sample_weight=sample_weight)
        self._check_parameters()
        rng, n_threads = self._rng(), self._threads()
        X = self._validate(X, reset=True)
        weight = check_weights(sample_weight, X.shape[0])
        if self.algorithm in ("collapsed", "merge"):
            check_ratio(weight, LARGEST_WEIGHT_RATIO, self.algorithm)
        given = check_init(self.init, X.shape[1], self.max_clusters)
        if given is not None:
            rule.check(given, "init", self.divergence)
        relative = self._relative(weight, isinstance(self.lam, str))
        # merge paths use BLAS
        with at_most_blas_threads(n_threads), np.errstate(over="ignore"):
            problem = self._problem(rule, X, relative, given, n_threads)
            best = self._learn(run_starts(problem, rng))
            if problem.active is not None:
                # rows of weight zero are not visited: they get the label that predict gives
                idle = np.flatnonzero(weight == 0)
                self.labels_[idle] = nearest_by(rule, X[idle], None, best.centers, n_threads).labels
        self._remember_rows(X, weight)
        if not best.ended:
            warn_not_converged(self, self.n_iter_)
        warn_if_unclear(self)
        return self

    def _problem(self, rule, X, weight, given, n_threads):
        """The rows of a fit, and its settings."""
        n, used = X.shape[0], X
        active = None if weight is None or weight.all() else np.flatnonzero(weight)
        # sums from the origin of the rows: centers are means for every divergence (Banerjee et al.)
        frame = SumsFrame(X, weight, n_threads)
        lam = None if self.lam == "auto" else self.lam
        if isinstance(lam, str):
            # the rule starts from the mean of active rows, each counted once
            center = frame.mean
            if weight is not None:
                used = X if active is None else X[active]
                equal = None if active is None else (weight > 0).astype(np.float64)
                center = SumsFrame(X, equal, n_threads).mean
            guess = cut_guess(self.guess, n)
            lam = mean_weight(weight) * (farthest_first(rule, used, center, guess) or 1.0)
        reference = checked_reference(rule, X, weight, frame)
        fit = self._described(n, None if lam is None else float(lam), given)
        return DivergenceProblem(fit, rule, X, weight, active, reference, n_threads)

    def _nearest(self, X, weight=None):
        rule = self._rule()
        if rule is None:
            return super()._nearest(X, weight)
        centers = self._centers(rule, X.shape[1])
        return nearest_by(rule, X, weight, centers, self._threads())

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Return the divergence of each row from each center.

        For "squared_euclidean" that is the squared distance, while :class:`DPMeans` returns the
        distance.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data in the domain of the divergence.

        Returns
        -------
        divergences : ndarray of shape (n_samples, n_clusters)
            In units of ``lam``; may be infinite; float32 for float32 data.
        """
        rule = self._rule()
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        centers = self._centers(rule, X.shape[1])
        if rule is None:
            table = cdist(X, centers, "sqeuclidean")
        else:
            table = rule.between(X[:, None], centers)
        with np.errstate(over="ignore"):
            out = table.astype(X.dtype, copy=False)
        # a divergence may be infinite, but a finite one must not become so in float32
        if (np.isinf(out) & (np.isfinite(table) | (rule is None))).any():
            raise ValueError(
                f"X must be so near the centers that divergences are finite as {X.dtype}, got "
                f"entries up to {float(np.abs(X).max()):.3g}"
            )
        return out
