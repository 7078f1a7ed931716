"""DPMeans: k-means whose number of clusters follows from a penalty.

Kulis & Jordan (2012), Algorithm 1, with delayed creation (Dinari & Freifeld 2022), collapsed
updates (Broderick, Kulis & Jordan 2013, eq. 8-9) and merge paths. ``RowsProblem`` connects
the starts (``starts``) with the compiled sweeps, also for other estimators. The estimator follows.
"""

import warnings
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from smallvar._centers.center_estimator import CenterEstimator, NearestCenters
from smallvar._centers.large_clusters import LargeClusters, LargeStart, set_aside
from smallvar._centers.linked import LinkedStart, LinkedSweep
from smallvar._centers.starts import DPFit, DPProblem, Start, StartPoint, run_starts
from smallvar._core.estimator import keywords_only, warn_not_converged
from smallvar._core.fit_loop import LoopSettings
from smallvar._core.frame import RowsFrame, nearest_sweep
from smallvar._core.identifiers import warn_of_identifiers
from smallvar._core.links import LinkedNodes, check_links
from smallvar._core.row_model import RowModelMixin
from smallvar._core.validation import (
    Data,
    check_init,
    check_lam,
    check_number,
    check_option,
    check_ratio,
    check_weights,
    exact_number,
    level_of_caller,
    one_row,
    shown,
    sparse_rows,
)
from smallvar._selection.cluster_path import ClusterPath
from smallvar._selection.confidence import warn_if_unclear
from smallvar._selection.least_size import check_least_size, least_weight, no_such_number
from smallvar._selection.path import find_path
from smallvar._selection.penalty import LAM_RULES, check_exact_number, resolve_lam
from smallvar._sweeps.dpmeans import CollapsedSweep, DPSweep
from smallvar._sweeps.exact import nearest_seed
from smallvar._sweeps.rows import LARGEST_WEIGHT_RATIO

if TYPE_CHECKING:
    pass

# of lam: two centers nearer to each other than half the distance at which a row opens a cluster
SHARED = 0.25
MUCH_BETTER = 0.9  # an objective below this times that of one cluster is worth a warning


class RowsProblem(DPProblem):
    """Rows in memory, clustered by squared distances; ``options`` are more of ``find_path``.

    ``asked`` is the least size of a cluster as the user gave it; the rows are nodes of ``links``.
    """

    links = None

    def __init__(self, fit, X, weight, n_threads, asked=None, **options):
        super().__init__(fit)
        self.asked = asked
        self.X, self.weight, self.n_threads, self.options = X, weight, n_threads, options

    def start(self, point):
        """The Start at the given centers or, as in KJ12, Algorithm 1, at the mean."""
        # rows in the metric of the path, if it has one
        rows, centers = self.X if point.path is None else point.path.measured(), point.centers
        shared = None
        if point.path is not None and len(point.path.noise_columns):
            shared = SharedMeans(point.path, rows, self.weight)
            rows, centers = shared.emptied(rows), shared.emptied(centers)
        weight, kind_of_start = self.weight, Start
        if self.options.get("least") is not None:
            aside = set_aside(point.path, point.centers, self.X, weight, self.n_threads)
            sizes = self.options["least"], self.asked
            large = LargeClusters(*sizes, rows, weight, aside, self.n_threads)
            weight, kind_of_start = large.weight, partial(LargeStart, large)
        kind = CollapsedSweep if point.algorithm == "collapsed" else DPSweep
        if self.links is not None:
            rank = np.arange(len(weight)) if point.order is None else np.argsort(point.order)
            kind, kind_of_start = partial(LinkedSweep, LinkedNodes(self.links, rank)), LinkedStart
            if not point.exact:  # links may need more clusters than a path has
                point = replace(point, max_clusters=self.fit.max_clusters)
        frame = RowsFrame(rows, weight, self.n_threads, centers)
        are_means = centers is None
        centers = frame.mean.reshape(1, -1) if are_means else centers
        # collapsed sweeps move means with every row, so they visit rows in order and have no bounds
        sweep = frame.sweep(len(centers), kind is not CollapsedSweep, kind, point.order)
        return kind_of_start(point, sweep, centers, are_means, point.order, shared=shared)

    def path(self, rng):
        """A merge path of the rows."""
        options = self.fit.path_options | self.options
        path = find_path(self.X, self.weight, rng, self.n_threads, **options)
        if path is None:
            raise no_such_number(self.fit.n_clusters, self.asked)
        return path


class SharedMeans:
    """Columns in which all clusters have the mean of all rows, as a path has found.

    Sweeps run on rows that are 0 there, ``emptied``: these columns add the same to the distances of
    a row from all centers. ``error`` is what they add to the error.
    """

    def __init__(self, path, X, weight):
        self.columns, self.means = path.noise_columns, path.noise_means
        beside = X[:, self.columns]
        beside = (beside.toarray() if issparse(beside) else beside) - self.means
        squares = np.square(beside).sum(axis=1)
        self.error = float(squares.sum() if weight is None else weight @ squares)

    def emptied(self, X):
        """Return rows or centers with zeros in these columns."""
        X = X.copy()
        if issparse(X):
            X.data[np.isin(X.indices, self.columns)] = 0.0
            X.eliminate_zeros()
        else:
            X[:, self.columns] = 0.0
        return X

    def whole(self, centers):
        """Return centers with the means in these columns."""
        centers = centers.copy()
        centers[:, self.columns] = self.means
        return centers


def means_of(X, weight, labels, n_threads):
    """The (weighted) means of the clusters given by labels 0..k-1."""
    k = int(labels.max()) + 1
    sweep = RowsFrame(X, weight, n_threads).sweep(k)
    sweep.start(np.zeros((k, X.shape[1])))
    sweep.labels[:] = labels
    sweep.move_centers()
    return sweep.centers


def nearest_pair(centers):
    """The two centers nearest to each other, and their squared distance (None, inf: one center)."""
    least, pair = np.inf, None
    for i in range(len(centers) - 1):
        squares = np.square(centers[i + 1 :] - centers[i]).sum(axis=1)
        j = int(squares.argmin())
        if squares[j] < least:
            least, pair = float(squares[j]), (i, i + 1 + j)
    return pair, least


class DPMeans(NearestCenters, RowModelMixin, CenterEstimator):
    """DP-means clustering: the number of clusters follows from a penalty.

    Minimizes, over labels, centers and their number K,

        sum_i w_i ||x_i - mu_{z_i}||^2 + lam * K,

    the k-means objective plus a penalty ``lam`` for each cluster. By default ``lam`` follows from
    the data.

    A number for ``lam`` can have two meanings. In the objective it is the amount by which a cluster
    must lower the squared error, of the order of the squared error of a whole cluster: "auto" finds
    such a number, and ``algorithm="merge"`` minimizes the objective for it. Or it is the squared
    distance at which a cluster opens, of the order of the squared radius of a cluster: the other
    algorithms, which visit one point at a time, use it so. Given a number of the first kind, they
    end with a single cluster.

    Parameters
    ----------
    lam : float, "auto" or "farthest-first", default="auto"
        Penalty for each cluster, in squared data units, > 0 (0 is allowed together with
        ``max_clusters``: that is k-means). "auto" chooses the number of clusters, and with it the
        penalty, by a criterion for how well they describe the data: see :func:`cluster_path`.
        "farthest-first" derives it from the data and ``guess``, see :func:`farthest_first_lambda`.
    n_clusters : int, "auto" or None, default=None
        The exact number of clusters, if ``lam`` is "auto": the clusters of that number on the
        merge path, and the penalty for which it is best. At most ``max_clusters`` and the number of
        distinct rows (of positive weight). None or "auto": the data choose.
    guess : int, default=8
        Guess of the number of clusters for ``lam="farthest-first"``, not a bound, at most the
        number of rows (to which the default is cut). Not used otherwise.
    max_clusters : int, default=None
        Never have more clusters than this. At the cap a far point joins its nearest cluster.
    min_cluster_size : int or float, default=None
        The least sum of weights of the rows of a cluster, without weights their number; a float
        between 0 and 1 is a share of all. The number of clusters is chosen among clusterings
        without smaller clusters, see Notes. Only with ``lam="auto"`` and ``metric="euclidean"``.
        None: clusters may have any size.
    algorithm : {"serial", "delayed", "collapsed", "merge"}, default="serial"
        How to minimize for a given ``lam``. "serial" is Algorithm 1 of the paper: points are
        visited in order, and each one beyond ``lam`` opens a cluster at once. "delayed" opens at
        most one cluster a sweep, at the point with the largest weighted distance: fewer redundant
        clusters. "collapsed" moves the means with each point; its fixed points are stronger local
        optima, but it runs on one thread. "merge" starts from many clusters, repeatedly merges the
        pair that costs least, and continues by collapsed sweeps from the three numbers of clusters
        with the lowest objective: it finds the lowest objective, and is the only choice for a
        large ``lam``. With ``lam="auto"`` the clusters are those of the merge path, brought to a
        fixed point by collapsed sweeps for "collapsed", by Lloyd sweeps for all others. If one of
        ``n_clusters`` loses its last row there, the row farthest from its center replaces it.
    metric : {"euclidean", "auto"}, default="euclidean"
        With "auto", which requires ``lam="auto"``, distances are those of the best merge path. If
        clusters are elongated in common directions, that may be a path in a metric that makes them
        round (see :func:`cluster_path`); the labels are then those for which the number of clusters
        was chosen. Dense data only.
    link_penalty : float, default=inf
        Price of each violated link of ``fit``, in the unit of ``lam``, > 0. Infinite: no link may
        be violated, and an error says so where no such clustering is found; see Notes.
    init : "mean" or array-like of shape (n_centers, n_features), default="mean"
        Starting centers; "mean" is the (weighted) mean of the data. With "auto" and "merge" the
        merge path begins at given centers, so that the result has no more clusters than these,
        unless ``n_clusters`` is larger.
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
        Generator of the random orders, and of the first clusters (and, of many rows, the sample)
        of a merge path, see :func:`cluster_path`.
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        Means of the clusters, in order of creation; in the units of the data, whatever the metric.
        In ``path_.noise_columns``, if there are any, the mean of all rows, so that these columns
        do not matter for labels.
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of each row.
    n_clusters_ : int
        Number of clusters found.
    inertia_ : float
        Weighted sum of squared distances to the assigned centers.
    objective_ : float
        ``inertia_ + lam_ * n_clusters_``.
    n_violated_ : int
        With links only: the number of violated ones. ``objective_`` is higher by ``link_penalty``
        for each.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep, and after the last labels where ``max_iter`` or ``tol``
        ended the fit; it never rises.
    lam_ : float
        The penalty used.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    path_ : ClusterPath
        The merge path, with "auto" or "merge" only: other numbers of clusters, their errors, and
        the penalties for which they are best. See :func:`cluster_path`.
    metric_ : ndarray of shape (n_features, n_directions) or None
        With ``metric="auto"`` only: the matrix by which rows are multiplied before distances are
        measured; constant columns have zeros. ``inertia_``, ``objective_``, ``lam_``, ``path_``,
        ``transform``, ``score`` and ``predict`` are for the transformed rows. None if squared
        Euclidean distances were best.
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
        From ``fit``, for data that are not finite, numeric and two-dimensional, and for parameters
        out of their bounds. The estimator is then as it was before.

    See Also
    --------
    MiniBatchDPMeans : DP-means from batches of the data.
    cluster_path : The merge path behind ``lam="auto"``.
    farthest_first_lambda : A penalty from a guess of the number of clusters.

    Notes
    -----
    A point of weight w counts w times in means and objective, and opens a cluster if w times its
    squared distance exceeds ``lam``. Rows of weight zero take no part and are labeled as by
    ``predict``. Ties go to the lowest index. With ``lam="auto"`` and "farthest-first" all weights
    times a constant change no label and multiply ``lam_``: the squared distance of "farthest-first"
    is multiplied by the mean of the positive weights. (Weights are then divided by the lightest and
    rounded to 48 bits.)

    With a ``min_cluster_size`` the merge path is found as without it. Each of its clusterings that
    has smaller clusters is replaced by one without them, in which the rows of the small ones are
    set aside, labeled by the nearest large cluster without moving its center, or join that and are
    swept again, whichever has the lower criterion. Of several clusterings into as many clusters the
    one with the lowest criterion is kept. ``path_`` has these only, and ``path_.confidence`` is
    that of the number among them. The sweeps of the fit leave the rows out that are set aside; they
    are in ``labels_``, ``inertia_`` and ``objective_``, and labels are those of ``predict``. A
    cluster that falls below the size in these sweeps is left out. ``cluster_centers_`` are means of
    the other rows.

    Links between rows, ``must_link`` and ``cannot_link`` of ``fit``, add ``link_penalty`` to the
    objective for each must-link between two clusters and each cannot-link within one. After the
    rows without links, a sweep assigns those with links in turn, by their distances and the links
    to the present labels of others; where none moves, rows that links connect change sides between
    two clusters together, if that is better. With an infinite price the rows that must-links join
    are one row at their mean, ``lam="auto"`` and ``n_clusters`` begin at the merge path of these
    rows, which ``path_`` is of, and each sweep violates the fewest links. ``n_clusters`` is kept.
    If "auto" chooses the number, rows with links may open more clusters, up to ``max_clusters``,
    where that lowers the objective for the ``lam_`` of the path. A pair counts once; links of rows
    of weight zero do not count. Only for "serial"; not with ``min_cluster_size`` or a metric.
    ``predict`` knows no links: of the rows of the fit it need not return ``labels_``.

    ``fit`` warns if it ends with a single cluster because ``lam`` exceeds every squared distance
    from the mean, while merging would find a much lower objective.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means: new algorithms via Bayesian nonparametrics,
    Algorithm 1. Delayed creation after Dinari & Freifeld (2022). "collapsed" and the cap:
    Broderick, Kulis & Jordan (2013), MAD-Bayes, eq. 8-9 and 12. Links at a price: Khashabi,
    Wieting, Liu & Liang (2015), Clustering with side information (RDP-means).

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import DPMeans
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 9.0], [9.0, 8.0], [0.0, 9.0]])
    >>> model = DPMeans(lam=4.0).fit(X)
    >>> model.n_clusters_
    3
    >>> model.labels_
    array([0, 0, 1, 1, 2], dtype=int32)
    >>> model.predict([[8.0, 8.0]])
    array([1], dtype=int32)
    >>> model.objective_
    13.0

    The penalty, and so the number of clusters, derived from the data:

    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(300, centers=4, random_state=2)
    >>> DPMeans(random_state=0).fit(X).n_clusters_
    4
    """

    lam: float | Literal["auto", "farthest-first"] | None
    objective_path_: NDArray[np.float64]
    lam_: float
    n_violated_: int
    path_: ClusterPath
    # for subclasses without the parameters
    metric: Literal["euclidean", "auto"] = "euclidean"
    min_cluster_size: float | None = None
    link_penalty: float = np.inf
    metric_: NDArray[np.float64] | None

    @keywords_only
    def __init__(
        self,
        *,
        lam: float | Literal["auto", "farthest-first"] = "auto",
        n_clusters: int | Literal["auto"] | None = None,
        guess: int = 8,
        max_clusters: int | None = None,
        min_cluster_size: float | None = None,
        algorithm: Literal["serial", "delayed", "collapsed", "merge"] = "serial",
        metric: Literal["euclidean", "auto"] = "euclidean",
        link_penalty: float = np.inf,
        init: Literal["mean"] | ArrayLike = "mean",
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.n_clusters = n_clusters
        self.guess = guess
        self.max_clusters = max_clusters
        self.min_cluster_size = min_cluster_size
        self.algorithm = algorithm
        self.metric = metric
        self.link_penalty = link_penalty
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    _takes_sparse = True

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        takes_them = isinstance(self.algorithm, str) and self.algorithm in ("serial", "delayed")
        tags.input_tags.sparse &= takes_them and self.metric == "euclidean"
        return tags

    def _check_parameters(self):
        self._check_starts()
        check_lam(self.lam, capped=self.max_clusters is not None, options=LAM_RULES)
        check_exact_number(self)
        check_least_size(self)
        check_option(self.algorithm, "algorithm", ("serial", "delayed", "collapsed", "merge"))
        check_option(self.metric, "metric", ("euclidean", "auto"))
        check_number(self.link_penalty, "link_penalty", low=0, low_open=True)
        if self.metric == "auto" and self.lam != "auto":
            raise ValueError(
                f"metric must be 'euclidean' for a penalty that is not \"auto\", got 'auto' and "
                f"lam={self.lam!r}: a metric is found together with the number of clusters"
            )
        if self.metric == "auto" and self.min_cluster_size is not None:
            raise ValueError(
                "min_cluster_size must be None with metric='auto', got "
                f"{shown(self.min_cluster_size)}: small clusters join others by Euclidean distances"
            )

    def fit(
        self,
        X: Data,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        *,
        must_link: ArrayLike | None = None,
        cannot_link: ArrayLike | None = None,
    ) -> Self:
        """Cluster the data.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. float32 and float64 in any memory layout are used as they are, other types
            converted once. Sparse data stay sparse (CSR; other formats are converted once) and give
            the labels of the dense array of the same numbers; not for "collapsed" and "merge".
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each.
        must_link, cannot_link : array-like of shape (n_pairs, 2), default=None
            Numbers of two rows each that are to be in one cluster, or in two: see ``link_penalty``.

        Returns
        -------
        self : DPMeans
            The fitted estimator.
        """
        self._check_parameters()
        rng, n_threads = self._rng(), self._threads()
        X = self._validate(X, reset=True)
        if issparse(X) and self.algorithm in ("collapsed", "merge"):
            raise ValueError(
                f"DPMeans with algorithm={self.algorithm!r} takes dense data only, got sparse "
                "X: use 'serial' or 'delayed', X.toarray(), or fewer columns by "
                "sklearn.decomposition.TruncatedSVD"
            )
        if issparse(X) and self.metric == "auto":
            raise ValueError(
                "DPMeans with metric='auto' takes dense data only, got sparse X: use "
                "'euclidean', X.toarray(), or fewer columns by "
                "sklearn.decomposition.TruncatedSVD"
            )
        weight = check_weights(sample_weight, X.shape[0])
        links = check_links(self, must_link, cannot_link, weight, X.shape[0])
        if self.algorithm in ("collapsed", "merge"):
            check_ratio(weight, LARGEST_WEIGHT_RATIO, self.algorithm)
        given = check_init(self.init, X.shape[1], self.max_clusters)
        least = least_weight(self, weight, X.shape[0])
        # a penalty that is found does not depend on the scale of the weights
        relative = self._relative(weight, isinstance(self.lam, str))
        least = None if least is None else least / self._unit
        best = self._fit(X, relative, given, rng, n_threads, least, links)
        self._remember_rows(X, weight)
        warn_of_identifiers(self, X)
        if given is None and links is None:
            self._warn_if_alone(X, weight, n_threads)
        if not best.ended:
            warn_not_converged(self, self.n_iter_, **self._shared_cluster(weight))
        warn_if_unclear(self)
        return self

    def _described(self, n_samples, lam, given):
        """The settings of a fit with this penalty (None: from a path) and the user's centers."""
        numbers = self.max_clusters, exact_number(self.n_clusters)
        starts = given, self.n_init
        return DPFit(n_samples, lam, self._loop(), self.algorithm, *numbers, *starts)

    def _fit(self, X, weight, given, rng, n_threads, least, links):
        """Fit checked data, with clusters of the ``least`` weight; returns the best start."""
        lam = None
        if self.lam != "auto":
            lam = resolve_lam(self.lam, X, self.guess, weight, n_threads)
        fit = self._described(X.shape[0], lam, given)
        in_metric = self.metric == "auto"
        options = {"in_metric": in_metric, "select": not in_metric}
        if least is not None:
            options |= {"least": least, "asked": self.min_cluster_size}
        problem = RowsProblem(fit, X, weight, n_threads, **options)
        run = run_starts if links is None else partial(self._run_linked, links)
        best = self._learn(run(problem, rng))
        self._forget("metric_", "_metric_centers")
        # centers of the fit are in the metric; the public ones are means of the data
        if in_metric:
            self.metric_ = self.path_.metric
            if self.metric_ is not None:
                self._metric_centers = best.centers
                self.cluster_centers_ = means_of(X, weight, self.labels_, n_threads)
        visits_all = self.algorithm != "collapsed" and links is None
        if not visits_all and weight is not None and not weight.all():
            # rows of weight zero are not visited: they get the label of predict
            idle = np.flatnonzero(weight == 0)
            rows, centers = self._measured(X[idle])
            self.labels_[idle] = nearest_sweep(rows, None, centers, n_threads).labels
        return best

    def _fit_elsewhere(self, rows):
        rng, n_threads = self._rng(), self._threads()
        lam = None if self.lam == "auto" else float(self.lam)
        given = check_init(self.init, rows.n_features, self.max_clusters)
        fit = self._described(rows.n_samples, lam, given)
        return self._learn(run_starts(rows.problem(fit, rng, n_threads), rng)).ended

    def _run_linked(self, links, problem, rng):
        """The best start on rows with links; those that must-links join are one row."""
        links.price /= self._unit
        rows, weight, inside = links.contracted(problem.X, problem.weight)
        problem.X, problem.weight = sparse_rows(rows) if issparse(rows) else rows, weight
        problem.fit, problem.links = replace(problem.fit, n_samples=len(weight)), links
        best = run_starts(problem, rng)
        self.n_violated_ = links.n_violated(best.sweep.nodes, best.n_clusters)
        labels, costs = best.labels[links.groups], ("inertia", "objective", "objective_path")
        return replace(best, labels=labels, **{n: getattr(best, n) + inside for n in costs})

    def _measured(self, X):
        """Rows and centers in the metric of the fit, in which nearest centers are found."""
        if "_metric_centers" not in vars(self):
            return super()._measured(X)
        return self.path_.measured(X), self._metric_centers

    def _check_kmeans(self):
        if "_metric_centers" in vars(self):
            raise ValueError(
                "metric_ must be None for a KMeans that predicts the same: fit one to the rows "
                "times metric_, or this with metric='euclidean'"
            )

    def _learn(self, fitted):
        """Set the learned attributes from the result of a fit, which is returned."""
        self.cluster_centers_ = fitted.centers
        self._learn_common(fitted)
        return fitted

    def _shared_cluster(self, weight):
        """What a warning says of two centers that seem to lie in one cluster.

        Sweeps move the boundary between the two through the rows that they share, in ever smaller
        steps. Weighted rows open clusters at other distances: nothing is said of them.
        """
        if hasattr(self, "path_") or weight is not None:
            return {}
        pair, square = nearest_pair(self.cluster_centers_)
        if not square < SHARED * self.lam_:
            return {}
        cause = (
            f": one cluster seems to be shared by centers {pair[0]} and {pair[1]}, whose squared "
            f"distance of {square:.3g} is small beside lam={self.lam_:.6g}"
        )
        return {"cause": cause, "remedy": ", or begin at init=DPMeans().fit(X).cluster_centers_"}

    def _warn_if_alone(self, X, weight, n_threads):
        """Warn if a single cluster misses a much lower objective.

        Algorithm 1 stays at one cluster if no row is beyond lam from the mean, even if several
        clusters have a lower objective: one more start begins at two rows far from each other.
        """
        # one cluster costs inertia_ + lam, so more cannot be better if lam exceeds inertia_
        alone = self.n_clusters_ == 1 and self.max_clusters != 1 and not hasattr(self, "path_")
        if not alone or not self.lam_ < self.inertia_:
            return
        # rows of weight zero are no ends; how heavy the others are does not matter for that
        used = None if weight is None else (weight > 0.0).astype(np.float64)
        ends, distance = [self.cluster_centers_[0]], np.empty(X.shape[0])
        for _ in range(2):  # the row farthest from the mean, and the one farthest from that
            distance[:] = np.inf
            ends.append(one_row(X, nearest_seed(X, used, ends[-1], distance, n_threads)[0]))
        fit = DPFit(X.shape[0], self.lam_, LoopSettings(self.max_iter, float(self.tol)))
        point = StartPoint(None, np.array(ends[1:]), self.lam_, "serial", self.max_clusters)
        other = RowsProblem(fit, X, weight, n_threads).start(point).run(fit.loop)
        if other.objective < MUCH_BETTER * self.objective_:
            warnings.warn(
                f"one cluster is left because lam={self.lam_:.6g} exceeds the squared distance of "
                f"every point from the mean, but {other.k} clusters have an objective of "
                f"{other.objective:.6g} instead of {self.objective_:.6g}: use "
                + ("" if issparse(X) else "algorithm='merge', or ")
                + "lam='auto' to let the data choose.",
                UserWarning,
                stacklevel=level_of_caller(),
            )
