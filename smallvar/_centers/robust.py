"""DP-means with noise: rows far from every cluster are in none, each at a price."""

from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.random import sample_without_replacement
from sklearn.utils.validation import check_is_fitted

from smallvar._centers.center_estimator import CenterEstimator
from smallvar._centers.noise import Search, labels_and_distances, price_of
from smallvar._core.estimator import keywords_only, unchanged_on_error, warn_not_converged
from smallvar._core.fit_loop import TIE
from smallvar._core.validation import (
    Data,
    check_init,
    check_lam,
    check_number,
    check_verbose,
    check_weights,
    learned,
    some_rows,
)
from smallvar._selection.columns import count_distinct
from smallvar._selection.confidence import warn_if_unclear
from smallvar._selection.lambda_path import LambdaPath
from smallvar._selection.path import find_path
from smallvar._sweeps.sums import exact_total

TURNS = 4  # paths at most, each without the rows that are far from the clusters of the one before
TINY = 1 / 30  # of the weight of the cluster that a row is in on average: less is no cluster
JUDGED = 50_000  # rows at most from which sizes of clusters, and the price, are estimated


class RobustDPMeans(CenterEstimator):
    """DP-means with noise: a row too far from every cluster is in none.

    Minimizes, over labels (-1 is noise), centers and their number K >= 1,

        sum_{z_i >= 0} w_i ||x_i - mu_{z_i}||^2 + lam * K + price * sum_{z_i = -1} w_i.

    A row whose squared distance from every center is more than ``price`` costs that instead and
    has no part in the means, so that rows far away, however far, move no center. A cluster is worth
    having if its rows save more than ``lam`` against going to other clusters or being noise: m
    rows far from everything else are one only if they are worth more than ``lam``, so that m
    > ``lam / price`` for rows of weight 1. By default the data choose both.

    Parameters
    ----------
    lam : float or "auto", default="auto"
        Penalty for each cluster, in squared data units times weight, > 0 and finite: what a cluster
        must save. It is of the order of the squared error of a whole cluster, and no distance.
        "auto" takes the clusters of :func:`lambda_path`, of the rows that are left when those far
        from them have been set aside.
    price : float or "auto", default="auto"
        What a row of weight 1 costs as noise, in squared data units, > 0 and finite: the square
        of the distance from a center at which noise begins. "auto" puts it where, of rows as many
        as the data have, one in twenty data sets without noise has a row beyond it: see Notes.
    max_clusters : int, default=None
        Never have more clusters than this.
    init : "path" or array-like of shape (n_centers, n_features), default="path"
        Starting centers; "path" takes those of the merge path, see :func:`lambda_path`. Where lam
        and price are numbers, the sweeps begin at centers given; else the path does.
    max_iter : int, default=300
        Largest number of sweeps; those in which clusters come or go do not count, but there are at
        most ``max_iter + n_samples``.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times its value after the first
        sweep. 0 runs to a fixed point.
    random_state : int, RandomState instance or None, default=None
        Generator of the first clusters of merge paths (and, of many rows, the sample), see
        :func:`lambda_path`, and of the rows where a further cluster is tried.
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        Means of the clusters.
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of each row, -1 for noise.
    n_clusters_ : int
        Number of clusters found, the noise not counted.
    inertia_ : float
        Weighted sum of squared distances to the own centers, over rows that are not noise.
    noise_weight_ : float
        Sum of the weights of the noise.
    objective_ : float
        ``inertia_ + lam_ * n_clusters_ + price_ * noise_weight_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep, and after the last labels where ``max_iter`` or ``tol``
        ended the fit; it never rises.
    lam_ : float
        The penalty used. With "auto", that of the path, or where that is less, the least that one
        of the clusters found saves.
    price_ : float
        The price used.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    path_ : LambdaPath
        The merge path of the rows that were not set aside, unless ``init`` and both penalties are
        given. See :func:`lambda_path`.
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
    DPMeans : The same without noise: every row is in some cluster.
    sklearn.cluster.HDBSCAN : Clusters of any shape, by density, and noise.

    Notes
    -----
    Sweeps label every row by its nearest center, or as noise, and move centers to the means. At a
    fixed point of these, clusters that do not pay go, pairs whose union costs less than ``lam``
    are merged, and of ``lam`` given, a cluster opens where rows save more than that by it (the
    best of a few places drawn among the rows, each moved to the mean of the rows that save). Each
    step lowers the objective by what was computed exactly. With ``lam="auto"`` the number of
    clusters stays that of the path, less those that no row is within the price of. With few centers
    given and many clusters wanted the search takes long: each is looked for in all rows; the path
    does not. With ``lam="auto"`` all
    weights times a constant change no label and multiply ``lam_``; ``price`` is for a row of weight
    1 in any case. Rows of weight zero take no part and are labeled as by ``predict``. At
    equality a row is in a cluster, the one of the lowest index.

    **Before the sweeps** a path is found, clusters with less than 1/30 of the weight of the
    cluster that a row is in on average are dropped (for ``lam`` given: those whose rows would cost
    less as noise), rows beyond the price are set aside, and another path is found without these,
    until the same rows are set aside again, three times at most. Of more than 50,000 rows, so many
    are drawn for the sizes of clusters and the price.

    **price="auto"**: squared distances within clusters are taken to be gamma distributed, as they
    nearly are in Gaussian clusters of any covariance. The shape is that of which the median and
    the 80% quantile of all squared distances, each divided by the median of its cluster, have the
    same ratio; the scale is the median in a cluster that is as wide as, or wider than, those of
    90% of the rows. The price is the quantile that 0.05 of u rows exceed on average, u the number
    of distinct rows. Where ``lam`` is given, it is at most ``lam`` over the mean weight of a row,
    so that no row of mean weight is worth a cluster of its own. Where most rows are at their
    centers, as of many equal ones, the quantiles are those of all other rows together.

    Robust centers, as the median of means, are no option here: they bound what outliers do to the
    centers of clusters that are there, but not to their number, and leave outliers in them.

    References
    ----------
    The penalty is that of Kulis & Jordan (2012), Revisiting k-means. Noise at a fixed distance:
    Dave (1991), Characterization and detection of noise in clustering. Rows without a cluster in
    k-means: Chawla & Gionis (2013), k-means--: a unified approach to clustering and outlier
    detection.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_blobs
    >>> from smallvar import RobustDPMeans
    >>> X, _ = make_blobs(300, centers=4, random_state=2)
    >>> far = np.array([[40.0, 0.0], [-30.0, 50.0], [0.0, -60.0]])
    >>> model = RobustDPMeans(random_state=0).fit(np.vstack([X, far]))
    >>> model.n_clusters_
    4
    >>> model.labels_[-3:]
    array([-1, -1, -1], dtype=int32)
    >>> model.predict([[1000.0, 1000.0]])
    array([-1], dtype=int32)
    """

    lam: float | Literal["auto"]
    inertia_: float
    noise_weight_: float
    objective_path_: NDArray[np.float64]
    lam_: float
    price_: float
    path_: LambdaPath

    @keywords_only("squared data units")
    def __init__(
        self,
        *,
        lam: float | Literal["auto"] = "auto",
        price: float | Literal["auto"] = "auto",
        max_clusters: int | None = None,
        init: Literal["path"] | ArrayLike = "path",
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.price = price
        self.max_clusters = max_clusters
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    def fit(self, X: Data, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Cluster the data.

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
        self : RobustDPMeans
            The fitted estimator.
        """
        with unchanged_on_error(self):
            check_verbose(self.verbose)
            check_lam(self.lam, finite=True, options=("auto",))
            check_lam(self.price, finite=True, name="price", options=("auto",))
            check_number(self.max_clusters, "max_clusters", low=1, integer=True, none=True)
            check_number(self.max_iter, "max_iter", low=1, integer=True)
            check_number(self.tol, "tol", low=0)
            rng, n_threads = self._rng(), self._threads()
            X = self._validate(X, reset=True)
            weight = check_weights(sample_weight, X.shape[0])
            given = check_init(self.init, X.shape[1], self.max_clusters, "path")
            self._fit(X, weight, given, rng, n_threads)
            if not self._ended:
                warn_not_converged(self, self.n_iter_)
            warn_if_unclear(self)
        return self

    def _fit(self, X, weight, given, rng, n_threads):
        vars(self).pop("path_", None)
        auto = isinstance(self.lam, str)
        weight = self._relative(weight, auto)
        lam = None if auto else float(self.lam)
        price = None if isinstance(self.price, str) else float(self.price)
        seed, centers = rng.randint(2**31 - 1), given
        if given is None or lam is None or price is None:
            centers, price, lam_found = self._survey(X, weight, given, lam, price, seed, n_threads)
        search = Search(X, weight, n_threads, rng, self.max_clusters, centers)
        search.run(
            lam_found if auto else lam,
            price,
            centers,
            self._loop(),
            fixed=auto,
        )
        if auto:
            search.lower_lam()
        self.cluster_centers_, self.labels_ = search.centers, search.labels
        self.n_clusters_ = len(search.centers)
        self.inertia_, self.noise_weight_ = search.inertia, search.lost()
        self.objective_ = search.progress.objective
        self.objective_path_ = np.array(search.progress.path)
        self.lam_, self.price_ = search.lam, price
        self.n_iter_ = search.progress.n_iter
        self._multiply("inertia_", "noise_weight_", "objective_", "objective_path_", "lam_")
        if hasattr(self, "path_"):
            self._multiply("path_")
        self._ended = search.progress.ended

    def _survey(self, X, weight, given, lam, price, seed, n_threads):
        """Where clusters are, the price, and the penalty of the path; ``path_`` is learned.

        The path that counts is that of the rows not far from the clusters of the path before.
        """
        used = np.ones(X.shape[0], dtype=bool) if weight is None else weight > 0.0
        found, kept, automatic = price, used, price is None
        for turn in range(TURNS):
            rows = X if kept.all() else some_rows(X, kept)
            mass = None if weight is None else weight[kept]
            path = find_path(
                rows,
                mass,
                np.random.RandomState(seed),
                n_threads,
                lam=lam,
                most=self.max_clusters,
                init=given,
                callback=self._callback(),
            )
            centers = path.found(path.best)
            some, share = rows, 1.0
            if len(rows) > JUDGED:
                drawn = sample_without_replacement(
                    len(rows), JUDGED, random_state=np.random.RandomState(seed)
                )
                some, share = some_rows(rows, drawn), JUDGED / len(rows)
                if mass is not None:
                    share = mass[drawn].sum() / mass.sum()
                    mass = mass[drawn]
            labels, own = labels_and_distances(some, centers, n_threads)
            total = np.bincount(labels, mass, len(centers)) / share
            top = total.max()  # squares of small weights would be 0
            common = top * np.square(total / top).sum() / (total / top).sum()
            if automatic:
                distinct = count_distinct(some) * (len(rows) / len(some))
                value = price_of(own, labels, len(centers), mass, distinct)
                if value is not None:
                    found = value
                elif turn == 0:  # all rows are at centers; later the price before is kept
                    found = path.lam / common
                if lam is not None:
                    found = min(found, lam / (total.sum() / len(rows)))
            large = total >= TINY * common
            if lam is not None:
                saved = np.maximum(found - own, 0.0)
                saved = np.bincount(labels, saved if mass is None else mass * saved, len(centers))
                large = saved / share > lam * (1.0 + TIE)
                large[saved.argmax()] = True
            centers = centers[large]
            if turn == TURNS - 1:
                break
            _, own = labels_and_distances(X, centers, n_threads)
            near = used & (own <= found)
            if (near == kept).all() or not near.any():
                break
            kept = near
        self.path_ = path
        return centers, found, path.lam

    def predict(self, X: Data) -> NDArray[np.int32]:
        """Nearest center of each row, or noise.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Index into ``cluster_centers_``, at a tie the lowest one; -1 where the squared distance
            from every center is more than ``price_``.
        """
        return self._labeled(X)[0]

    def score(self, X: Data, y: object = None, sample_weight: ArrayLike | None = None) -> float:
        """Return minus the objective of data at the fitted centers.

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
            ``-(sum of w * min(squared distance to the nearest center, price_) + lam_ *
            n_clusters_)``.
        """
        labels, own = self._labeled(X)
        weight = check_weights(sample_weight, len(labels))
        cost = np.where(labels < 0, self.price_, own)
        error = exact_total(cost if weight is None else weight * cost)
        return -(error + self.lam_ * len(self.cluster_centers_))

    def _labeled(self, X):
        """Labels of rows, and their squared distances from the nearest center."""
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        centers = learned(self, "cluster_centers_", None, X.shape[1])
        labels, own = labels_and_distances(X, centers, self._threads())
        labels[own > self.price_] = -1
        return labels, own
