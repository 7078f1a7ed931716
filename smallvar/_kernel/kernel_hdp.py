"""The kernel HDP: the hard HDP (KJ12, Algorithm 2) in the feature space of a kernel.

``_KernelHDPStart`` has the sweeps of one start: step 4 moves points, step 5, with ``_LocalMoves``,
moves local clusters. Then the estimator, and at the end the local penalty of the farthest-first
rule (KJ12, section 6.3). Where a start by merging clusters begins is in hdp_start.py.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from smallvar._core.estimator import keywords_only, warn_not_converged
from smallvar._core.groups import Groups, local_labels_of
from smallvar._core.validation import (
    check_lam,
    check_option,
    check_weights,
    mean_weight,
)
from smallvar._kernel.gram import GRAM_BLOCK, batches
from smallvar._kernel.hdp_start import merge_path_start
from smallvar._kernel.partition import (
    KernelClusters,
    Partition,
    PartitionStart,
    cheapest_cluster,
    distances_to,
    distances_to_mean,
    farthest_first,
    guessed_penalty,
    kernel_rounding,
)
from smallvar._selection.penalty import global_lambda, local_lambda

GLOBAL_RULES = ("points", "farthest-first")  # for lam_global
KERNEL_HDP_INITS = ("auto", "mean", "merge")
# numbers of clusters in a data set, and in all, for rules; cut to the numbers of rows
LOCAL_GUESS, GLOBAL_GUESS = 5, 15
LOCAL_SUM_ROWS = 256  # rows of a block of K that sums within local clusters are computed from


class _KernelHDPStart(PartitionStart):
    """One start of the kernel HDP.

    Points of positive weight are indexed in the order of their visit, ``order``, data set by data
    set; ``group`` is the data set of each. A local cluster is a pair of a data set (the number of
    its run in that order) and a global cluster. Distances, ``diagonal`` and sums of K over pairs of
    points are multiplied by the weights of the points.
    """

    def __init__(self, clusters, order, group, lam_local, lam_global, rounding):
        super().__init__(clusters, order, rounding)
        first = np.append(True, group[1:] != group[:-1])
        self.run_of = np.cumsum(first) - 1
        self.stop = np.append(np.flatnonzero(first)[1:], len(order))[self.run_of]
        self.lam_local, self.lam_global = lam_local, lam_global
        # never open a global cluster for a distance that rounding alone can make
        self.weight = clusters.weight[order]
        self.least_global = max(lam_global, rounding * self.weight.sum())
        self.diagonal = self.weight * clusters.diagonal[order]
        self.kernel_sums = np.zeros(len(order))  # sum of K over the local cluster of each point,
        self.kernel_sums_labels = np.full(len(order), -1)  # for these labels

    @property
    def k(self):
        """Number of global clusters."""
        return self.clusters.k

    @property
    def n_local(self):
        """Number of local clusters."""
        return len(np.unique(self.run_of * self.clusters.k + self.clusters.label[self.order]))

    def current_objective(self):
        """Objective of the present partition: its error, and the penalties for its clusters."""
        clusters = self.clusters
        return clusters.error + self.lam_local * self.n_local + self.lam_global * clusters.k

    def progress_text(self):
        """Text on the present partition, to print."""
        return f"{self.clusters.k} global clusters, {self.n_local} local ones, {{}}"

    def sweep(self):
        """Make steps 4 and 5 of KJ12, Algorithm 2.

        Returns labels, the number of global clusters, and whether either changed.
        """
        clusters = self.clusters
        size = float(np.abs(clusters.norm).max())
        # squared distances of the points to the global clusters; rows are added for those that open
        self.distance = self.weight * clusters.costs(self.order) + self.diagonal
        self.n_global = clusters.k
        new = self.move_points(size)
        _LocalMoves(self, new, size).visit_all()
        label = clusters.label.copy()
        label[self.order] = new
        changed = self.n_global > clusters.k or bool((label != clusters.label).any())
        return label, self.n_global, changed

    def add_global(self, distance):
        """Add a global cluster, at these squared distances from the points; returns its number."""
        if self.n_global == len(self.distance):
            self.distance = np.concatenate([self.distance, np.empty_like(self.distance)])
        self.distance[self.n_global] = distance
        self.n_global += 1
        return self.n_global - 1

    def move_points(self, size):
        """Make step 4: assign each point where it costs least; returns the labels.

        A global cluster costs the squared distance, and ``lam_local`` if the data set does not use
        it yet; a new one costs ``lam_local + lam_global``.
        """
        clusters, run = self.clusters, self.run_of
        n = len(run)
        used = np.zeros((run[-1] + 1, self.n_global), dtype=bool)
        used[run, clusters.label[self.order]] = True
        new, least, tie = cheapest_cluster(
            self.distance + self.lam_local * ~used[run].T,
            self.weight * size + np.abs(self.diagonal),
        )
        new = new.astype(np.int32)
        limit = self.lam_local + self.least_global + tie
        opens = (least > limit) | ~used[run, new]
        at = 0
        # each iteration opens one local cluster, and maybe its global one, at the next point for
        # which that is cheapest; of the costs of later points only that of this cluster changes
        while at < n:
            i = at + int(opens[at:].argmax())
            if not opens[i]:
                break
            at, j = i + 1, run[i]
            if least[i] > limit[i]:
                row = clusters.gram.rows(self.order[i : i + 1])[0]
                distance = clusters.distances_to(self.order[i], row)[self.order]
                g = self.add_global(self.weight * distance)
                used = np.pad(used, ((0, 0), (0, 1)))
                new[i], later = g, np.s_[i + 1 :]
                cost = self.distance[g, later] + self.lam_local * (run[later] != j)
            else:
                g, later = new[i], np.s_[i + 1 : self.stop[i]]
                cost = self.distance[g, later]
            used[j, g] = True
            better = cost < least[later] - tie[later]
            better |= (cost <= least[later] + tie[later]) & (g < new[later])
            better |= new[later] == g
            better = i + 1 + np.flatnonzero(better)
            new[better] = g
            least[better] = cost[better - i - 1]
            opens[better] = (least[better] > limit[better]) | ~used[run[better], g]
        return new

    def sum_between(self, a, b):
        """Sum of K over pairs of a point of ``a`` and one of ``b``, in the unit of weights."""
        order, relative = self.order, self.weight / self.clusters.unit
        total, step = 0.0, max(1, GRAM_BLOCK // len(b))
        for batch in batches(len(a), step):
            K = self.clusters.gram.block(order[a[batch]], order[b])
            total += float((relative[a[batch], None] * K * self.weight[b]).sum())
        return total

    def update_kernel_sums(self, new, local, order):
        """Update ``kernel_sums`` for the data sets whose labels have changed to ``new``.

        ``local`` are the numbers of the points' local clusters, ``order`` sorts the points by them.
        """
        stale = np.zeros(self.run_of[-1] + 1, dtype=bool)
        stale[self.run_of[self.kernel_sums_labels != new]] = True
        order = order[stale[self.run_of[order]]]  # local clusters are still contiguous
        cluster = local[order]
        for batch in batches(len(order), LOCAL_SUM_ROWS):
            start = np.searchsorted(cluster, cluster[batch][0])
            stop = np.searchsorted(cluster, cluster[batch][-1], side="right")
            K = self.clusters.gram.block(self.order[order[batch]], self.order[order[start:stop]])
            K *= self.weight[order[start:stop]]
            K = np.where(cluster[batch][:, None] == cluster[start:stop], K, 0.0)
            self.kernel_sums[order[batch]] = K.sum(axis=1)
        self.kernel_sums_labels = new.copy()


class _LocalMoves:
    """Local clusters in step 5 of a sweep, and where each would go.

    Local cluster m has the weight ``count[m]``, ``total[m]`` = sum of K_ii, ``square[m]`` = sum of
    K over pairs of its points in the unit of weights, and ``cost[c, m]``, the sum of its squared
    distances to the global cluster c. ``target`` is the cheapest c, ``least`` its cost, ``tie`` the
    rounding. ``origin`` is its global cluster before the step. ``local`` is the number of each
    point's local cluster at the start of the step. ``new`` are the labels, which change; ``size``
    is what rounding errors of a distance are relative to.
    """

    def __init__(self, start, new, size):
        self.start, self.new, self.size, self.k = start, new, size, start.n_global
        self.keys, self.local = np.unique(start.run_of * self.k + new, return_inverse=True)
        self.order = np.argsort(self.local, kind="stable")
        self.first = np.searchsorted(self.local[self.order], np.arange(len(self.keys) + 1))
        start.update_kernel_sums(new, self.local, self.order)
        self.count, unit = np.bincount(self.local, start.weight), start.clusters.unit
        self.total = np.bincount(self.local, start.diagonal)
        self.square = np.bincount(self.local, start.weight / unit * start.kernel_sums)
        distance = start.distance[: self.k, self.order]
        self.cost = np.add.reduceat(distance, self.first[:-1], axis=1)
        self.target, self.least, self.tie = cheapest_cluster(
            self.cost, self.count * size + np.abs(self.total)
        )
        self.origin = self.keys % self.k
        # all points of those local clusters that others have joined before their visit
        self.joined = {}
        self.opens, self.moves = np.zeros((2, len(self.keys)), dtype=bool)
        self.update_moves(np.s_[:])

    def update_moves(self, m):
        """Set which of the local clusters ``m`` open a global cluster, and which move at all.

        Opening costs lam_global, and saves the distances from the target except those from the own
        mean: sum_i ||x_i - mean||^2 = sum_i K_ii - square / count.
        """
        scatter = self.total[m] - self.square[m] / (self.count[m] / self.start.clusters.unit)
        limit = self.start.least_global + scatter
        self.opens[m] = self.least[m] > limit + self.tie[m]
        self.moves[m] = self.opens[m] | (self.target[m] != self.origin[m])

    def points_of(self, m):
        """The points of local cluster m at the start of the step."""
        return self.order[self.first[m] : self.first[m + 1]]

    def visit_all(self):
        """Move the local clusters, in order, where they cost least (step 5)."""
        at = 0
        while at < len(self.keys):
            m = at + int(self.moves[at:].argmax())
            if not self.moves[m]:
                break
            at = m + 1
            points = self.joined.pop(m, self.points_of(m))
            if self.opens[m]:
                self._open_global(m, points)
            else:
                self._join(m, points)

    def _open_global(self, m, points):
        """Make local cluster m, with these points, a global cluster of its own.

        It becomes the target of the local clusters after m for which it is cheapest.
        """
        start, at = self.start, m + 1
        # ||x_i - mean||^2 = K_ii - 2 sum_{j in m} K_ij / count + square / count^2
        row = np.zeros((1, len(start.clusters.label)))
        start.clusters.gram.add(
            row, start.order[points], np.zeros(len(points), dtype=np.intp), start.weight[points]
        )
        norm = self.square[m] / self.count[m] / (self.count[m] / start.clusters.unit)
        mean_row = row[0][start.order] / self.count[m]
        c = start.add_global(start.diagonal + start.weight * (norm - 2.0 * mean_row))
        cost = np.bincount(self.local, start.distance[c])
        # ``local`` does not have the points that joined these
        for later, points_of_later in self.joined.items():
            cost[later] = start.distance[c, points_of_later].sum()
        self.cost = np.concatenate([self.cost, cost[None]])
        better = at + np.flatnonzero(cost[at:] < self.least[at:] - self.tie[at:])
        self.target[better], self.least[better] = c, cost[better]
        self.update_moves(better)
        self.new[points] = c

    def _join(self, m, points):
        """Move local cluster m to its target, and unite it with the local cluster there, if any."""
        start, c = self.start, self.target[m]
        self.new[points] = c
        key = start.run_of[points[0]] * self.k + c
        joined = int(np.searchsorted(self.keys, key))
        if c < self.k and m < joined < len(self.keys) and self.keys[joined] == key:
            other_points = self.joined.get(joined, self.points_of(joined))
            self.square[joined] += self.square[m] + 2.0 * start.sum_between(points, other_points)
            self.total[joined] += self.total[m]
            self.count[joined] += self.count[m]
            self.cost[:, joined] += self.cost[:, m]
            self.joined[joined] = np.concatenate([other_points, points])
            index = np.array([joined])
            self.target[index], self.least[index], self.tie[index] = cheapest_cluster(
                self.cost[:, index], self.count[index] * self.size + np.abs(self.total[index])
            )
            self.update_moves(index)


class KernelHDPMeans(KernelClusters):
    """Hard HDP in the feature space of a kernel: several data sets that share clusters.

    Minimizes, over labels and the numbers of clusters,

        sum_i w_i ||phi(x_i) - m_{z_i}||^2 + lam_local * (number of local clusters)
            + lam_global * K,

    the objective of :class:`HDPMeans` for points phi(x_i), whose inner products are the kernel, of
    weights w_i: a data set pays ``lam_local`` for each of the K global clusters that it uses, and
    all of them together ``lam_global`` for each that exists.

    Parameters
    ----------
    lam_local : float or "farthest-first", default="farthest-first"
        Penalty for each local cluster, a squared distance in feature space, > 0. "farthest-first"
        derives it from the data, by the rule of :func:`hdp_lambdas` for 5 clusters in a data set.
    lam_global : float, "points" or "farthest-first", default="points"
        Penalty for each global cluster, > 0, or the rule that derives it from the data, for 15
        clusters in all. "points" is that of :func:`farthest_first_lambda` for all rows as one
        data set. "farthest-first" is that of :func:`hdp_lambdas`, which adds up distances over
        data sets: for the kernel "rbf", whose squared distances are at most 2, all that is not
        small then ends in one cluster.
    kernel : str or callable, default="rbf"
        A kernel of :func:`sklearn.metrics.pairwise.pairwise_kernels`; "precomputed", where the data
        are the Gram matrix; or a function of two arrays, of shapes (n, n_features) and (m,
        n_features), that returns their kernel matrix, of shape (n, m), such as ``functools.partial(
        polynomial_kernel, degree=2)`` for a parameter other than ``gamma``.
    gamma : float, default=None
        Parameter of the kernels "rbf", "laplacian", "chi2", "poly" and "sigmoid", >= 0. None: for
        "rbf", 0.3 / (median squared distance between rows); for "laplacian", the same with the
        distance that it is made of, the sum of absolute differences; for the others, and where all
        rows are equal, scikit-learn's default, for most 1 / n_features. The median is over rows
        with a weight, copies once, of 500 rows if there are more. A function is given ``gamma`` if
        it is not None.
    init : {"auto", "mean", "merge"}, default="auto"
        Where starts begin. "mean": at one cluster of all points, as in the paper. "merge": at the
        clusters that merging leads to, see Notes. "auto": at "mean" if both penalties are numbers,
        else at each of the two, and the lower objective is kept.
    n_init : int, default=1
        Number of starts at each place where they begin: the first visits data sets in sorted order
        and their rows as given, the others in random orders. The one with the lowest objective is
        kept.
    max_iter : int, default=300
        Largest number of sweeps; those that open global clusters do not
        count, but there are at most ``max_iter + n_samples``.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times its value after the first
        sweep. 0 runs to a fixed point.
    max_memory : float, default=2e9
        Bytes for the Gram matrix. It is held where it fits, in the type of the data (float32 or
        float64); otherwise its rows are computed again, block by block, wherever they are needed.
        Besides there are a few tables of (n_clusters, n_samples) float64 numbers.
    random_state : int, RandomState instance or None, default=None
        Generator of the random orders.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int32
        Global cluster of each row.
    local_labels_ : ndarray of shape (n_samples,), int32
        Number of the row's local cluster within its data set.
    groups_ : ndarray of shape (n_groups,)
        The data sets, sorted.
    local_clusters_ : list of ndarray of int32
        For each data set, the global clusters of its local ones: a row with local label l in data
        set j has the global label ``local_clusters_[j][l]``.
    n_local_clusters_ : ndarray of shape (n_groups,), int64
        Number of local clusters of each data set.
    n_clusters_ : int
        Number of global clusters.
    inertia_ : float
        Weighted sum of squared distances to the assigned means, in feature space.
    objective_ : float
        ``inertia_ + lam_local_ * n_local_clusters_.sum() + lam_global_ * n_clusters_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep; it never rises, unless the Gram matrix is indefinite.
    lam_local_ : float
        The local penalty used.
    lam_global_ : float
        The global penalty used.
    gamma_ : float or None
        The ``gamma`` used, in the methods too; None where the kernel has none.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    X_fit_ : ndarray of shape (n_samples, n_features) or None
        The data, for distances to new points; None for a precomputed kernel.
    center_labels_ : ndarray of shape (n_samples,), int32
        The cluster whose mean a row is part of: ``labels_``; -1 for rows of weight zero.
    center_weights_ : ndarray of shape (n_samples,), float64
        Weight of each row in that mean; those of a mean sum to 1.
    center_norms_ : ndarray of shape (n_clusters,), float64
        Squared norms of the means; for the kernel "linear" and data far from zero, of the means
        less a point near the data.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit``, for data that are not finite, numeric and two-dimensional, a precomputed
        matrix that is not square and symmetric, a kernel that returns anything but finite real
        numbers in the right shape, and parameters out of their bounds. The estimator is then as
        it was before.

    See Also
    --------
    HDPMeans : The hard HDP on points, without a kernel; much faster.
    KernelDPMeans : One data set.

    Notes
    -----
    Algorithm 2 from a single cluster opens none where no point is farther from the mean than
    ``lam_local + lam_global``, and clusters that it has opened never merge. With ``init="merge"``
    a start begins elsewhere: about 4 sqrt(n_samples) farthest-first points, at least 20, become
    clusters, with three sweeps in which points go to the nearest mean. Then always the two clusters
    are merged whose union changes the objective, penalties included, by least, down to one. Of all
    these clusterings the one with the lowest objective is where the sweeps of Algorithm 2 begin.

    A row of weight w joins a cluster at w times the squared distance, and opens one if that
    exceeds the penalties. Penalties that rules derive are proportional to the mean weight. Rows of
    weight zero take no part in the fit. They get the label that ``predict`` with the same weights
    gives them: the nearest of the clusters that their data set has. A data set in which all rows
    have weight zero is not among ``groups_``; its local labels are -1.

    Indefinite Gram matrices and ``kernel="precomputed"``: see :class:`KernelDPMeans`.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means: new algorithms via Bayesian nonparametrics, sections
    4 (Algorithm 2) and 5.2.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import KernelHDPMeans
    >>> X = np.array([[0.0], [1.0], [10.0], [0.5], [20.0], [21.0]])
    >>> groups = ["a", "a", "a", "b", "b", "b"]
    >>> model = KernelHDPMeans(lam_local=2.0, lam_global=5.0, kernel="linear").fit(X, groups=groups)
    >>> model.labels_
    array([1, 1, 0, 1, 2, 2], dtype=int32)
    >>> model.predict([[9.0], [1.0]], groups=["a", "b"])
    array([0, 1], dtype=int32)
    """

    local_labels_: NDArray[np.int32]
    groups_: NDArray[Any]
    local_clusters_: list[NDArray[np.int32]]
    n_local_clusters_: NDArray[np.int64]
    lam_local_: float
    lam_global_: float

    @keywords_only
    def __init__(
        self,
        *,
        lam_local: float | Literal["farthest-first"] = "farthest-first",
        lam_global: float | Literal["points", "farthest-first"] = "points",
        kernel: str | Callable[..., ArrayLike] = "rbf",
        gamma: float | None = None,
        init: Literal["auto", "mean", "merge"] = "auto",
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 0.0,
        max_memory: float = 2e9,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.lam_local = lam_local
        self.lam_global = lam_global
        self.kernel = kernel
        self.gamma = gamma
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.max_memory = max_memory
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self):
        check_lam(self.lam_local, finite=True, name="lam_local")
        check_lam(self.lam_global, finite=True, name="lam_global", options=GLOBAL_RULES)
        check_option(self.init, "init", KERNEL_HDP_INITS)
        self._check_common()

    def fit(
        self,
        X: ArrayLike,
        y: object = None,
        *,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Cluster the data sets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows of all data sets; for ``kernel="precomputed"`` their Gram matrix, of shape
            (n_samples, n_samples). float32 and float64 are used as they are, other types converted
            once.
        y : None
            Ignored.
        groups : array-like of shape (n_samples,), default=None
            The data set that each row is from: numbers or strings. None: all from one.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each.

        Returns
        -------
        self : KernelHDPMeans
            The fitted estimator.
        """
        self._check_parameters()
        rng = self._rng()
        X = self._validate_kernel(X, reset=True)
        n = X.shape[0]
        all_sets, weight = Groups(groups, n), check_weights(sample_weight, n)
        rules = [isinstance(lam, str) for lam in (self.lam_local, self.lam_global)]
        weight = self._relative(weight, all(rules))
        clusters = Partition(self._gram(X, weight), weight, np.zeros(n, dtype=np.int32))
        rows, sets, rounding = clusters.active, all_sets, kernel_rounding(clusters)
        if len(rows) < n:
            sets = all_sets.of(rows)
        lam_local, lam_global = self._penalties(clusters, sets, rounding)

        inits: tuple[str, ...] = (self.init,)
        if self.init == "auto":
            inits = ("mean", "merge") if any(rules) else ("mean",)

        begins = (
            merge_path_start(clusters, sets, lam_local, lam_global) if init == "merge" else clusters
            for init in inits
        )
        starts = (
            _KernelHDPStart(begin, rows[at], sets.number[at], lam_local, lam_global, rounding)
            for begin in begins
            for at in (sets.order(rng if i else None) for i in range(self.n_init))
        )
        best = self._best_start(starts, len(inits) * self.n_init)
        clusters = best.clusters
        used, norm = clusters.weight > 0, clusters.norm
        center_label = np.where(used, clusters.label, np.int32(-1))
        self._store_means(X, center_label, clusters.weight, clusters.cluster_weight, norm)
        self.labels_, self.groups_ = clusters.label, sets.names
        local = sets.local(clusters.label[rows], clusters.k)
        self.local_clusters_, self.n_local_clusters_ = local[1:]
        self.n_clusters_ = clusters.k
        self.inertia_ = clusters.error
        self.lam_local_, self.lam_global_ = lam_local, lam_global
        self._multiply("inertia_", "objective_", "objective_path_", "lam_local_", "lam_global_")
        idle, group = np.flatnonzero(~used), all_sets.among(sets.names)
        if len(idle):
            cost = clusters.costs(idle) + self._openings(group[idle], np.zeros(len(idle)))
            self.labels_[idle] = cheapest_cluster(cost, np.abs(norm).max())[0]
        self.local_labels_ = local_labels_of(group, self.labels_, self.local_clusters_, clusters.k)
        if not best.progress.ended:
            warn_not_converged(self, self.n_iter_)
        return self

    def _penalties(self, clusters, sets, rounding):
        """The penalties as numbers; ``clusters`` has all points in one."""
        gram, rows, unit = clusters.gram, clusters.active, mean_weight(clusters.weight)
        lam_local, lam_global = self.lam_local, self.lam_global
        if isinstance(lam_local, str):
            lam_local = unit * local_penalty(gram, rows, sets, rounding)
        if isinstance(lam_global, str):
            if lam_global == "points":
                lam_global = guessed_penalty(clusters, min(GLOBAL_GUESS, len(rows)), rounding)
            else:
                distance, to_row = distances_to_mean(clusters), partial(distances_to, gram, rows)
                lam_global = unit * global_lambda(sets, distance, to_row, GLOBAL_GUESS, rounding)
        return float(lam_local), float(lam_global)

    def _openings(self, group, weight):
        """What rows of these data sets pay for joining each cluster, divided by their weights.

        Rows of weight zero open no local cluster. Data sets that the fit has not seen would pay for
        all alike.
        """
        opens = np.zeros((len(self.groups_) + 1, self.n_clusters_), dtype=bool)
        for j, used in enumerate(self.local_clusters_):
            opens[j] = True
            opens[j, used] = False
        with np.errstate(divide="ignore", over="ignore"):
            return np.where(opens[group].T, self.lam_local_ / weight, 0.0)

    def predict(
        self, X: ArrayLike, groups: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> NDArray[np.int32]:
        """Global cluster of new rows, at the costs of the fit; no row opens a global cluster.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data; for ``kernel="precomputed"`` their kernel with the training points.
        groups : array-like of shape (n_samples,), default=None
            The data set of each row. One that the fit has not seen, or None, has no local clusters
            yet, so that the nearest mean is the cheapest.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each. A light row does not open a local cluster
            in its data set where a heavy one does. A row of weight zero never opens one.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Number of the cluster; at a tie the lowest one.
        """
        check_is_fitted(self)
        X = self._validate_kernel(X, reset=False)
        weight = check_weights(sample_weight, X.shape[0])
        if groups is None:
            return self._assign(X)[0]
        group = Groups(groups, X.shape[0]).among(self.groups_)
        weight = np.ones(len(group)) if weight is None else weight
        return self._assign(X, lambda few: self._openings(group[few], weight[few]))[0]


def local_penalty(gram, points, groups, rounding):
    """Penalty of a local cluster of these points, by the farthest-first rule in each data set."""

    def rule(members):
        rows = points[members]
        within = np.zeros(len(rows))  # sums of K over the data set
        for batch in batches(len(rows), max(1, GRAM_BLOCK // len(rows))):
            within[batch] = gram.block(rows[batch], rows).sum(axis=1)
        within /= len(rows)
        distance = gram.diagonal[rows] - 2.0 * within + within.mean()
        return farthest_first(gram, rows, distance, min(LOCAL_GUESS, len(rows)), rounding)

    return local_lambda(groups, rule)
