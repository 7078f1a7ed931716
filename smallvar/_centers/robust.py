"""RobustDPMeans: DP-means in which rows far from every cluster are noise, each at a price.

The objective is that of Kulis & Jordan (2012) plus ``price`` for each row of noise. ``fit`` first
surveys the data (``_survey``): merge paths find rough clusters, the price, and the penalty. The
descent on the objective, and the price of ``price="auto"``, are in ``noise``.
"""

from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.random import sample_without_replacement
from sklearn.utils.validation import check_is_fitted

from smallvar._centers.center_estimator import CenterEstimator
from smallvar._centers.noise import Search, labels_and_distances, price_of
from smallvar._centers.uniform_noise import UniformNoise
from smallvar._core.estimator import keywords_only, warn_not_converged
from smallvar._core.fit_loop import OBJECTIVE_TIE
from smallvar._core.frame import nearest_row
from smallvar._core.identifiers import warn_of_identifiers
from smallvar._core.row_model import RowModelMixin
from smallvar._core.validation import (
    Data,
    check_init,
    check_lam,
    check_weights,
    exact_number,
    learned,
    some_rows,
)
from smallvar._selection.cluster_path import ClusterPath
from smallvar._selection.columns import count_distinct
from smallvar._selection.confidence import warn_if_unclear
from smallvar._selection.descent import check_reached
from smallvar._selection.path import find_path
from smallvar._selection.penalty import check_exact_number
from smallvar._sweeps.sums import exact_total

MAX_PATHS = 4  # merge paths, each of the rows near the clusters of the one before
REFILLS = 10  # times that clusters without a row within the price are replaced, for an exact number
# of the weight of the cluster of an average row: lighter clusters are dropped
SMALLEST_SHARE = 1 / 30
SAMPLE_ROWS = 50_000  # rows at most from which sizes of clusters, and the price, are estimated


def _sample(rows, weight, seed):
    """At most SAMPLE_ROWS rows at random, their weights, and their share of the total weight."""
    if len(rows) <= SAMPLE_ROWS:
        return rows, weight, 1.0
    # a generator of its own: the same sample for the same rows on every call
    rng = np.random.RandomState(seed)
    drawn = sample_without_replacement(len(rows), SAMPLE_ROWS, random_state=rng)
    sample = some_rows(rows, drawn)
    if weight is None:
        return sample, None, SAMPLE_ROWS / len(rows)
    return sample, weight[drawn], weight[drawn].sum() / weight.sum()


def _only(rows, distances, labels, k, weight):
    """The arguments, of some rows only."""
    return distances[rows], labels[rows], k, None if weight is None else weight[rows]


def refilled(X, weight, centers, number, n_threads):
    """Centers, and the rows farthest from all of them, one after another, up to a number."""
    distance = labels_and_distances(X, centers, n_threads)[1]
    while len(centers) < number:
        row = int((distance if weight is None else weight * distance).argmax())
        if not distance[row] > 0.0:
            check_reached(len(centers), number)
        seed, *_ = nearest_row(X, weight, row, distance, n_threads)
        centers = np.vstack([centers, seed])
    return centers


class RobustDPMeans(RowModelMixin, CenterEstimator):
    """DP-means with noise: a row too far from every center is in no cluster.

    Minimizes, over labels (-1 is noise), centers and their number K >= 1,

        sum_{z_i >= 0} w_i ||x_i - mu_{z_i}||^2 + lam * K + price * sum_{z_i = -1} w_i.

    A row whose squared distance from every center exceeds ``price`` costs ``price`` instead. It
    has no part in the means, so that rows far away, however far, move no center. A cluster lowers
    the objective if its rows would cost more than ``lam`` more in other clusters or as noise. So m
    rows of weight 1 far from all others are a cluster only if m > ``lam / price``. By default both
    are derived from the data.

    Parameters
    ----------
    lam : float or "auto", default="auto"
        Penalty for each cluster, in squared data units times weight, > 0 and finite: the amount
        by which a cluster must lower the squared error and the prices of noise, not a distance.
        "auto" takes the clusters that :func:`cluster_path` finds among the rows that are left when
        rows far from all clusters are set aside.
    n_clusters : int, "auto" or None, default=None
        The exact number of clusters, if ``lam`` is "auto": the clusters of that number on the merge
        path. At most ``max_clusters`` and the number of distinct rows that are not set aside. None
        or "auto": the data choose.
    price : float or "auto", default="auto"
        Cost of a row of weight 1 that is noise, in squared data units, > 0 and finite: the square
        of the distance from a center at which noise begins. "auto" estimates it from the squared
        distances within clusters, such that about one in twenty data sets of that size without
        noise would have a row beyond it, or less where there is noise among the clusters: see
        Notes.
    max_clusters : int, default=None
        Never have more clusters than this.
    init : "path" or array-like of shape (n_centers, n_features), default="path"
        Starting centers; "path" takes those of the merge path, see :func:`cluster_path`. Given
        centers are where the sweeps begin if ``lam`` and ``price`` are numbers, and where the
        merge path begins if not.
    max_iter : int, default=300
        Largest number of sweeps; those in which clusters come or go do not count, but there are at
        most ``max_iter + n_samples``.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times its value after the first
        sweep. 0 runs to a fixed point.
    random_state : int, RandomState instance or None, default=None
        Generator of the first clusters of merge paths (and, of many rows, the sample), see
        :func:`cluster_path`, and of the rows where a further cluster is tried.
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
        Number of clusters, noise not counted.
    inertia_ : float
        Weighted sum of squared distances to the assigned centers, over rows that are not noise.
    noise_weight_ : float
        Sum of the weights of the noise.
    objective_ : float
        ``inertia_ + lam_ * n_clusters_ + price_ * noise_weight_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep, and after the last labels where ``max_iter`` or ``tol``
        ended the fit; it never rises.
    lam_ : float
        The penalty used. With "auto", the penalty of the path, or the least that one of the
        clusters saves, if that is less.
    price_ : float
        The price used.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    path_ : ClusterPath
        The merge path of the rows that were not set aside, unless ``init`` and both penalties are
        given. See :func:`cluster_path`.
    probabilities_ : ndarray of shape (n_samples,), float64
        The probability of its own cluster for each row, see :meth:`predict_proba`.
        0 for rows that are noise.
    outlier_scores_ : ndarray of shape (n_samples,), float64
        How strange each row is, from 0 to 1, see :meth:`outlier_scores`.
    profiles_ : DataFrame, Table or dict of arrays
        What sets each cluster apart: a row for each cluster and column, noise left out. See
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
        From ``fit``, for data that are not finite, numeric and two-dimensional, and for parameters
        out of their bounds. The estimator is then as it was before.

    See Also
    --------
    DPMeans : Without noise: every row is in some cluster.
    ShapeMeans : Clusters of any shape, and the same noise with ``noise=True``.
    sklearn.cluster.HDBSCAN : Clusters of any shape, by density, and noise.

    Notes
    -----
    Sweeps label every row by its nearest center, or as noise, and move centers to the means. At a
    fixed point the number of clusters may change. Clusters that save less than ``lam`` are removed,
    and pairs whose union costs less than ``lam`` are merged. If ``lam`` is a number, a cluster
    opens where it saves more than ``lam``: at the best of a few rows drawn, moved to the mean of
    the rows that it saves cost. Each step lowers the objective, by an exactly computed amount.
    With ``lam="auto"`` the number of clusters stays that of the path, less the clusters that have
    no row within the price. Few given centers for many clusters take long, since each cluster is
    then searched for in all rows. With ``lam="auto"`` all weights times a constant change no label
    and multiply ``lam_``; ``price`` is for a row of weight 1 in any case. Rows of weight zero take
    no part and are labeled as by ``predict``. At equality a row is in a cluster, the one of the
    lowest index.

    **Before the sweeps** a merge path is found. Clusters with less than 1/30 of the weight of the
    cluster of an average row are dropped (if ``lam`` is a number: clusters that save less than
    ``lam`` against noise), and rows beyond the price are set aside. Another path is found without
    these rows, until the same rows are set aside again, three times at most. With more than 50,000
    rows, the sizes of clusters and the price are estimated on a sample of 50,000.

    **Noise among the clusters** makes a path with wide clusters of noise. Where ``lam`` and
    ``price`` are "auto", the sparsest clusters are dropped as noise if that makes rows and labels
    more likely: with n_0 the weight of the noise, V the volume of the box around the rows, and f
    round Gaussian densities that follow from the medians of squared distances, ::

        sum_k sum_{i in k} log(n_k f(x_i; mu_k, s_k)) + n_0 log(n_0 / V)
            - log(n) / 2 (K (d + 2) + 2 d)

    is larger than without noise. There is no such noise unless one of its clusters has 1/30 of the
    weight of the cluster of an average row, nor if it were half of the rows. It is looked for among
    the clusters of a path without ``max_clusters`` and ``n_clusters``. Rows in small clusters
    and clusters of equal rows do not widen the box. A wide cluster differs from noise in that it
    leaves most of the box empty; noise that does, such as a wide Gaussian cloud, is clusters.

    **price="auto"**: squared distances within clusters are taken to be gamma distributed, as they
    nearly are in Gaussian clusters of any covariance. The shape is fitted to the ratio of the 80%
    quantile to the median of all squared distances, each divided by the median of its cluster. The
    scale is the median in a cluster at least as wide as the clusters of 90% of the rows. The price
    is the quantile that 0.05 of u rows exceed on average, u the number of distinct rows. If there
    is noise among the clusters, the price is no more than the squared distance r beyond which it is
    denser than the clusters: where the densities of r in them, and in the noise, are equal. It is
    no less than the 80% quantile. If ``lam`` is a number, the price is at most ``lam`` over the
    mean weight of a row, so that no row of mean weight is worth a cluster of its own. Where most
    rows are at their centers, as with many equal rows, the quantiles are those of all other rows
    together.

    Robust centers, such as the median of means, are no substitute: they bound the influence of
    outliers on the centers of given clusters, but not on the number of clusters, and outliers stay
    in their clusters.

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
    path_: ClusterPath

    @keywords_only
    def __init__(
        self,
        *,
        lam: float | Literal["auto"] = "auto",
        n_clusters: int | Literal["auto"] | None = None,
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
        self.n_clusters = n_clusters
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
        self._check_starts()
        check_lam(self.lam, finite=True, options=("auto",))
        check_lam(self.price, finite=True, name="price", options=("auto",))
        check_exact_number(self)
        rng, n_threads = self._rng(), self._threads()
        X = self._validate(X, reset=True)
        weight = check_weights(sample_weight, X.shape[0])
        given = check_init(self.init, X.shape[1], self.max_clusters, "path")
        self._fit(X, weight, given, rng, n_threads)
        self._remember_rows(X, weight)
        warn_of_identifiers(self, X)
        if not self._ended:
            warn_not_converged(self, self.n_iter_)
        warn_if_unclear(self)
        return self

    def _fit(self, X, weight, given, rng, n_threads):
        """Fit checked data; ``given`` are the user's centers, or None."""
        self._forget("path_")
        auto = isinstance(self.lam, str)
        weight = self._relative(weight, auto)
        lam = None if auto else float(self.lam)
        price = None if isinstance(self.price, str) else float(self.price)
        seed, centers = rng.randint(2**31 - 1), given
        if given is None or lam is None or price is None:
            # what is not given follows from merge paths
            centers, price, path_lam = self._survey(X, weight, given, lam, price, seed, n_threads)
        number, cap = exact_number(self.n_clusters), self.max_clusters
        for _ in range(REFILLS):
            search = Search(X, weight, n_threads, rng, cap, centers)
            search.run(path_lam if auto else lam, price, centers, self._loop(), fixed=auto)
            if number is None or len(search.centers) == number:
                break
            centers = refilled(X, weight, search.centers, number, n_threads)
        else:
            raise ValueError(
                f"n_clusters={number} clusters with a row within price={price:.6g} are not found: "
                f"{len(search.centers)} are left after {REFILLS} times"
            )
        if auto:
            search.lower_lam()
        self.cluster_centers_, self.labels_ = search.centers, search.labels
        self.n_clusters_ = len(search.centers)
        self.inertia_, self.noise_weight_ = search.inertia, search.noise_weight()
        self.objective_ = search.progress.objective
        self.objective_path_ = np.array(search.progress.path)
        self.lam_, self.price_ = search.lam, price
        self.n_iter_ = search.progress.n_iter
        self._multiply(
            "inertia_", "noise_weight_", "objective_", "objective_path_", "lam_", "path_"
        )
        self._ended = search.progress.ended

    def _survey(self, X, weight, given, lam, price, seed, n_threads):
        """Rough centers, the price, and the penalty of the merge path; sets ``path_``.

        Each path is that of the rows that are not far from the clusters of the path before.
        ``lam`` and ``price`` are None where they follow from the data.
        """
        used = np.ones(X.shape[0], dtype=bool) if weight is None else weight > 0.0
        kept, automatic, number = used, price is None, exact_number(self.n_clusters)
        noise, free, most = UniformNoise(), automatic and lam is None, self.max_clusters
        for n_paths in range(1, MAX_PATHS + 1):
            rows = X if kept.all() else some_rows(X, kept)
            w = None if weight is None else weight[kept]
            options = {"lam": lam, "most": most, "number": number, "init": given}
            if n_paths == 1:  # rows far away, or noise, might be clusters of the first path
                options |= {"most": None if free else most, "number": None, "gaps": False}
            path_rng = np.random.RandomState(seed)
            path = find_path(rows, w, path_rng, n_threads, **options, callback=self._callback())
            # distances and sizes in the clusters of this path, from a sample of its rows
            centers = path.found(path.best)
            sample, w, share = _sample(rows, w, seed)
            labels, distances = labels_and_distances(sample, centers, n_threads)
            sizes = np.bincount(labels, w, len(centers)) / share
            # weight of the cluster of an average row: sum s_k^2 / sum s_k
            largest = sizes.max()  # squares of small weights would be 0
            common = largest * np.square(sizes / largest).sum() / (sizes / largest).sum()
            # drop small clusters, which may consist of outliers
            large = sizes >= SMALLEST_SHARE * common
            if automatic:
                clusters = sample, distances, labels, len(centers), w
                in_clusters, distinct = slice(None), count_distinct(sample)
                # drop clusters of noise, too, but not of a path with as few as allowed
                if free and (n_paths == 1 or path.best != most):
                    aside = used & ~kept
                    others = some_rows(X, aside), None if weight is None else weight[aside]
                    sparse, in_noise = noise.find(*clusters, distinct, large, others, share)
                    large, in_clusters = large & ~sparse, ~in_noise
                distinct *= len(rows) / len(sample)
                estimate = price_of(*_only(in_clusters, *clusters[1:]), distinct, noise)
                if estimate is not None:
                    price = estimate
                elif n_paths == 1:  # all rows are at centers; later the price before is kept
                    price = path.lam / common
                if lam is not None:  # a cluster of average size must be able to save lam
                    price = min(price, lam / (sizes.sum() / len(rows)))
            if lam is not None:  # a cluster stays if its rows would cost more as noise
                saved = np.maximum(price - distances, 0.0)
                saved = np.bincount(labels, saved if w is None else w * saved, len(centers))
                large = saved / share > lam * (1.0 + OBJECTIVE_TIE)
                large[saved.argmax()] = True
            path_centers, centers = centers, centers[large]
            if n_paths == MAX_PATHS:
                break
            # set aside the rows beyond the price; stop when these are the same as before
            _, distances = labels_and_distances(X, centers, n_threads)
            near = used & (distances <= price)
            if np.count_nonzero(near) < (number or 1):  # hardly a row is within a given price
                near = kept
            allowed = number in (None, path.best) and not (most and path.best > most)
            if (near == kept).all() and allowed:
                break
            kept = near
        self.path_ = path.seen()
        # an exact number: small clusters among the rows that are left count, too
        return centers if number is None else path_centers, price, path.lam

    def predict(self, X: Data) -> NDArray[np.int32]:
        """Return the nearest center of each row, or -1 for noise.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Index into ``cluster_centers_``, at a tie the lowest index; -1 where the squared
            distance from every center is more than ``price_``.
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
        labels, distances = self._labeled(X)
        weight = check_weights(sample_weight, len(labels))
        # min(squared distance, price) for each row
        cost = np.where(labels < 0, self.price_, distances)
        error = exact_total(cost if weight is None else weight * cost)
        return -(error + self.lam_ * len(self.cluster_centers_))

    def _labeled(self, X):
        """Labels of rows, and the squared distances from the nearest centers."""
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        centers = learned(self, "cluster_centers_", None, X.shape[1])
        labels, distances = labels_and_distances(X, centers, self._threads())
        labels[distances > self.price_] = -1
        return labels, distances
