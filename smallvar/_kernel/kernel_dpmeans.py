"""Kernel DP-means: the objective of DP-means in the feature space of a kernel.

``_KernelStart`` has the sweeps of one start: Algorithm 1 of KJ12, with the kernel distances of
section 5.2, or the collapsed sweep of MB13, eq. 8-9, on ``_CollapsedSums``. Then the estimator.
"""

from collections.abc import Callable
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from smallvar._core.estimator import LabelsMixin, keywords_only, warn_not_converged
from smallvar._core.fit_loop import NO_CAP
from smallvar._core.validation import (
    check_lam,
    check_number,
    check_option,
    check_ratio,
    check_weights,
)
from smallvar._kernel.gram import batches
from smallvar._kernel.partition import (
    SMALL_TABLE,
    TABLE_TIE,
    KernelClusters,
    Partition,
    PartitionStart,
    cheapest_cluster,
    guessed_penalty,
    kernel_rounding,
)
from smallvar._selection.penalty import cut_guess

# points whose costs are computed together, as if none of them moved: at first, and at most
FIRST_WINDOW, LAST_WINDOW = 16, 4096
WEIGHTS = 1e6  # largest ratio of weights for which points may be taken out of clusters
LEAST_REST = 1e-15  # least weight of a cluster without a point, relative to that of the point
COST_TIE = 1e-12  # costs that differ by less than this times the least cost tie


class _CollapsedSums:
    """Sums over clusters in a collapsed sweep, which change with every point that moves.

    Cluster c has ``weight[c]`` = s_c, ``square[c]`` = sum_{i, j in c} w_i w_j K_ij / unit, and
    ``count[c]`` points, of which it may lose all: it then keeps its number during the sweep.
    """

    def __init__(self, clusters, order):
        self.clusters, self.label = clusters, clusters.label.copy()
        self.weight = clusters.cluster_weight.copy()
        self.square = clusters.norm * (self.weight * (self.weight / clusters.unit))
        self.count = np.bincount(self.label[order], minlength=clusters.k)
        self.table = None if clusters.sums is None else clusters.sums.copy()  # has room for more

    @property
    def k(self):
        """Number of clusters, those without points included."""
        return len(self.weight)

    @property
    def sums(self):
        """Sums of Partition, None if they are not held."""
        return None if self.table is None else self.table[: self.k]

    @property
    def n_used(self):
        """Number of clusters with points."""
        return np.count_nonzero(self.count)

    def costs(self, rows):
        """Costs of these points in each cluster, (k, m) array, with sizes and sums.

        By MB13, eq. 8, adding a point of weight w to a cluster of weight s raises its error by
        w s / (w + s) ||x - mean||^2. The cost of its own cluster, whose s and mean include the
        point, is what its error would fall by: w s / (s - w) ||x - mean||^2. It is infinite if the
        point is alone there. ``sizes`` are what rounding errors of the distances are relative to.
        """
        clusters = self.clusters
        if self.sums is not None:
            sums = self.sums[:, rows]
        else:
            sums = clusters.sums_at(rows, self.label, self.k)
        assigned, w, columns = self.label[rows], clusters.weight[rows], np.arange(len(rows))
        alone = self.count[assigned] == 1
        s = np.where(self.weight > 0, self.weight, 1.0)[:, None]
        distance = sums * (-2.0 / s)
        distance += self.square[:, None] / s / (s / clusters.unit)
        sizes = np.abs(distance).max(axis=0) + np.abs(clusters.diagonal[rows])
        distance += clusters.diagonal[rows]
        factor = w * (s / (w + s))
        rest = np.where(alone, 1.0, s[assigned, 0] - w)
        factor[assigned, columns] = w * (s[assigned, 0] / np.maximum(rest, LEAST_REST * w))
        cost = distance * factor
        cost[self.count == 0] = np.inf
        cost[assigned[alone], columns[alone]] = np.inf
        return cost, sizes, sums

    def move(self, i, new, sums):
        """Move point i to cluster ``new``, which is opened if it is k; ``sums`` are those of i."""
        clusters, old, w = self.clusters, self.label[i], self.clusters.weight[i]
        if new == self.k:
            self.weight, self.square, self.count = (
                np.append(array, array.dtype.type(0))
                for array in (self.weight, self.square, self.count)
            )
            sums = np.append(sums, 0.0)
            if self.table is not None and len(self.table) < self.k:
                fits = clusters.can_hold_sums(2 * len(self.table))
                self.table = np.vstack([self.table, np.zeros_like(self.table)]) if fits else None
        row = w * clusters.gram.rows(np.array([i]))[0]
        for c, sign in ((old, -1), (new, 1)):
            self.square[c] += w / clusters.unit * (sign * 2.0 * sums[c] + row[i])
            if self.table is not None:
                self.table[c] += sign * row
            self.weight[c] += sign * w
            self.count[c] += sign
        if not self.count[old]:
            self.weight[old] = 0.0
        self.label[i] = new


class _KernelStart(PartitionStart):
    """One start of kernel DP-means."""

    def __init__(self, clusters, order, lam, algorithm, max_clusters, rounding):
        super().__init__(clusters, order[clusters.weight[order] > 0], rounding)
        self.lam, self.cap = lam, NO_CAP if max_clusters is None else max_clusters
        self.collapsed = algorithm == "collapsed"

    def run(self, loop):
        """Sweep to the end, then set the labels to return."""
        super().run(loop)
        self.finish()
        return self

    @property
    def k(self):
        """Number of clusters at the end."""
        return len(self.norm)

    def sweep(self):
        """Make one sweep; returns labels, the number of clusters, and whether points moved."""
        step = self.collapse if self.collapsed else self.create
        label, self.n_moved, self.n_opened = step()
        return label, self.clusters.k + self.n_opened, self.n_moved > 0

    def current_objective(self):
        """Objective of the present partition: its error, and the penalties."""
        return self.clusters.error + self.lam * self.clusters.k

    def progress_text(self):
        """Text on the last sweep, to print."""
        return (
            f"{self.clusters.k} clusters, {{}}, {self.n_moved} points moved, "
            f"{self.n_opened} clusters opened"
        )

    def finish(self):
        """Set the labels to return, and the means and the error they go with.

        After a fixed point of Algorithm 1 these are the labels of the sweeps. Otherwise points go
        to the nearest mean once more; points without weight always do, and are in no mean.
        """
        clusters = self.clusters
        weightless = np.flatnonzero(clusters.weight == 0)
        self.label, self.inertia = clusters.label.copy(), clusters.error
        self.center_label = np.where(clusters.weight > 0, clusters.label, np.int32(-1))
        self.norm, self.cluster_weight = clusters.norm, clusters.cluster_weight
        unfinished = not self.progress.converged and not self.collapsed
        if not (unfinished or len(weightless)):
            return
        nearest, least, _ = clusters.nearest()
        self.label[weightless] = nearest[weightless]
        if unfinished:
            kept = np.unique(nearest[clusters.active])
            new_number = np.full(clusters.k + 1, -1, dtype=np.int32)  # the last one for -1
            new_number[kept] = np.arange(len(kept))
            self.center_label = new_number[self.center_label]
            self.norm, self.cluster_weight = self.norm[kept], self.cluster_weight[kept]
            # means that are nearest only to points without weight are dropped: these points get the
            # nearest of the others
            dropped = weightless[new_number[nearest[weightless]] < 0]
            for batch in batches(len(dropped), clusters.gram.step):
                cost = clusters.costs(dropped[batch])[kept]
                nearest[dropped[batch]] = kept[cheapest_cluster(cost, np.abs(self.norm).max())[0]]
            self.label = new_number[nearest]
            self.inertia = float(clusters.weight @ least)
            self.progress.path.append(self.inertia + self.lam * len(self.norm))

    def create(self):
        """Make one sweep of KJ12, Algorithm 1; returns labels, points moved and clusters opened.

        Means do not move during the sweep, so distances to them are computed at once.
        """
        clusters, order = self.clusters, self.order
        label, least, tie = clusters.nearest()
        new, weight = label[order], clusters.weight[order]
        least, tie = least[order], tie[order]
        limit = np.maximum(self.lam, weight * self.rounding) + weight * tie
        remaining = np.flatnonzero(weight * least > limit)
        k = clusters.k
        # each iteration opens a cluster at the first remaining point, whose mean is that point, and
        # moves later points that are nearer to it
        while len(remaining) and k < self.cap:
            i = remaining[0]
            row = clusters.gram.rows(order[i : i + 1])[0]
            distance = clusters.distances_to(order[i], row)
            new[i], later = k, np.s_[i + 1 :]
            distance = distance[order[later]]
            closer = distance < least[later] - tie[later]
            new[later][closer] = k
            least[later][closer] = distance[closer]
            k += 1
            remaining = remaining[1:]
            remaining = remaining[weight[remaining] * least[remaining] > limit[remaining]]
        label[order] = new
        active = clusters.active
        moved = int(np.count_nonzero(label[active] != clusters.label[active]))
        return label, moved, k - clusters.k

    def collapse(self):
        """Make one collapsed sweep (MB13, eq. 8-9); returns labels, points moved, clusters opened.

        Costs are computed for a window of points, as if none of them moved. The first that does
        changes the sums, and the next window begins behind it.
        """
        clusters, order = self.clusters, self.order
        state = _CollapsedSums(clusters, order)
        at, window, moved = 0, FIRST_WINDOW, 0
        while at < len(order):
            rows = order[at : at + window]
            assigned, w = state.label[rows], clusters.weight[rows]
            # if a point that is alone opens a cluster, its own becomes empty
            alone = state.count[assigned] == 1
            cost, sizes, sums = state.costs(rows)
            opening = np.where(state.n_used - alone < self.cap, self.lam, np.inf)
            least = np.minimum(cost.min(axis=0), opening)
            # at a tie, a present cluster rather than a new one, and the first of several
            tied = cost <= least + COST_TIE * least + w * (TABLE_TIE * sizes + self.rounding)
            best = np.where(tied.any(axis=0), tied.argmax(axis=0), state.k)
            # a point that is alone stays if opening a cluster is cheapest
            moving = np.flatnonzero((best != assigned) & ~((best == state.k) & alone))
            if not len(moving):
                at += len(rows)
                window = min(2 * window, LAST_WINDOW, max(1, SMALL_TABLE // state.k))
                continue
            j = moving[0]
            at, window, moved = at + j + 1, FIRST_WINDOW, moved + 1
            state.move(rows[j], best[j], sums[:, j])
        return state.label, moved, state.k - clusters.k


class KernelDPMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, LabelsMixin, KernelClusters):
    """DP-means in the feature space of a kernel: clusters that need not be round.

    Minimizes, over labels and the number of clusters K,

        sum_i w_i ||phi(x_i) - m_{z_i}||^2 + lam * K,

    the objective of :class:`DPMeans` for points phi(x_i), whose inner products are the kernel; m_c
    is the weighted mean of a cluster's phi(x_i). All that is needed is the Gram matrix, the kernel
    of each point with each other one.

    Parameters
    ----------
    lam : float or "farthest-first", default="farthest-first"
        Penalty for each cluster, a squared distance in feature space, > 0 (0 is allowed together
        with ``max_clusters``: that is kernel k-means). "farthest-first" derives it from the data
        and ``guess``, by the rule of :func:`farthest_first_lambda`, times the mean of the positive
        weights.
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
        with a weight, copies once, of 500 rows if there are more. A function is given ``gamma``
        if it is not None.
    guess : int, default=8
        Guess of the number of clusters for ``lam="farthest-first"``, not a bound, at most the
        number of rows (to which the default is cut). Not used with a number as ``lam``. There is
        no exact number to ask for: points known by a kernel have no merge path.
    max_clusters : int, default=None
        Never have more clusters than this. At the cap a far point joins its nearest cluster.
    algorithm : {"serial", "collapsed"}, default="serial"
        "serial" is Algorithm 1 of the paper: points in order, each one beyond ``lam`` opens a
        cluster at once. "collapsed" moves the means with each point: slower, and stops only at
        stronger optima.
    init : "mean" or array-like of shape (n_samples,), default="mean"
        Starting labels, integers; "mean" is one cluster of all points.
    n_init : int, default=1
        Number of starts, the first in the given order, the others in random order. The one with
        the lowest objective is kept.
    max_iter : int, default=300
        Largest number of sweeps; those that open clusters do not count,
        but there are at most ``max_iter + n_samples``.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times its value after the first
        sweep. 0 runs to a fixed point.
    max_memory : float, default=2e9
        Bytes for the Gram matrix and for tables of (n_clusters, n_samples) float64 numbers. The
        matrix is held where it fits, in the type of the data (float32 or float64); otherwise its
        rows are computed again, block by block, wherever they are needed. The tables take 24 bytes
        for each of their entries; where that does not fit what the matrix leaves, each sweep goes
        through the whole matrix instead.
    random_state : int, RandomState instance or None, default=None
        Generator of the random orders.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of each row, in order of creation.
    n_clusters_ : int
        Number of clusters found.
    inertia_ : float
        Weighted sum of squared distances to the assigned means, in feature space.
    objective_ : float
        ``inertia_ + lam_ * n_clusters_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep, and after the last labels where ``max_iter`` or ``tol``
        ended the fit; it never rises, unless the Gram matrix is indefinite.
    lam_ : float
        The penalty used.
    gamma_ : float or None
        The ``gamma`` used, in the methods too; None where the kernel has none.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    X_fit_ : ndarray of shape (n_samples, n_features) or None
        The data, for distances to new points; None for a precomputed kernel.
    center_labels_ : ndarray of shape (n_samples,), int32
        The cluster whose mean a row is part of, -1 for none: ``labels_``, but for rows without
        weight, and where ``tol`` or ``max_iter`` ended the sweeps.
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
    DPMeans : DP-means on points, without a kernel; much faster.
    KernelHDPMeans : Several data sets with shared clusters.

    Notes
    -----
    A kernel whose Gram matrix is indefinite belongs to no distance (matrices that are only
    conditionally positive definite, such as minus squared distances, do). A warning is given where
    one is found, for kernels that may be; the objective may then rise, and the sweeps go on until
    nothing changes or ``max_iter`` ends them.

    With ``kernel="precomputed"``, ``predict`` takes the kernel between new and training points, of
    shape (n_new, n_samples); ``transform`` and ``score`` are not available.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means: new algorithms via Bayesian nonparametrics, sections
    3 and 5.2. "collapsed" and the cap: Broderick, Kulis & Jordan (2013), MAD-Bayes, eq. 8-9 and 12.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import KernelDPMeans
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 9.0], [9.0, 8.0], [0.0, 9.0]])
    >>> model = KernelDPMeans(guess=3).fit(X)
    >>> model.labels_
    array([1, 1, 2, 2, 0], dtype=int32)
    >>> round(model.gamma_, 5), round(model.lam_, 2)  # 0.3 / 81.5, the median
    (0.00368, 0.18)
    >>> model.predict([[8.0, 8.0]])
    array([2], dtype=int32)
    >>> model.transform([[8.0, 8.0]]).round(2)
    array([[0.65, 0.85, 0.1 ]])
    """

    lam_: float

    @keywords_only
    def __init__(
        self,
        *,
        lam: float | Literal["farthest-first"] = "farthest-first",
        kernel: str | Callable[..., ArrayLike] = "rbf",
        gamma: float | None = None,
        guess: int = 8,
        max_clusters: int | None = None,
        algorithm: Literal["serial", "collapsed"] = "serial",
        init: Literal["mean"] | ArrayLike = "mean",
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 0.0,
        max_memory: float = 2e9,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.kernel = kernel
        self.gamma = gamma
        self.guess = guess
        self.max_clusters = max_clusters
        self.algorithm = algorithm
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.max_memory = max_memory
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self):
        check_number(self.max_clusters, "max_clusters", low=1, integer=True, none=True)
        check_lam(self.lam, capped=self.max_clusters is not None)
        check_number(self.guess, "guess", low=1, integer=True)
        check_option(self.algorithm, "algorithm", ("serial", "collapsed"))
        self._check_common()

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Cluster the data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data; for ``kernel="precomputed"`` the Gram matrix, of shape (n_samples, n_samples).
            float32 and float64 are used as they are, other types converted once.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each.

        Returns
        -------
        self : KernelDPMeans
            The fitted estimator.
        """
        self._check_parameters()
        rng = self._rng()
        X = self._validate_kernel(X, reset=True)
        n = X.shape[0]
        weight = check_weights(sample_weight, n)
        if self.algorithm == "collapsed":
            check_ratio(weight, WEIGHTS, self.algorithm)
        label = check_labels(self.init, weight, n, self.max_clusters)
        guess = cut_guess(self.guess, n) if isinstance(self.lam, str) else None
        weight = self._relative(weight, isinstance(self.lam, str))
        gram = self._gram(X, weight)
        clusters = Partition(gram, weight, np.zeros(n, dtype=np.int32), gram.capacity)
        rounding = kernel_rounding(clusters)
        lam = float(self.lam if guess is None else guessed_penalty(clusters, guess, rounding))
        if label is not None:
            clusters = Partition(gram, weight, label, gram.capacity)

        orders = (rng.permutation(n) if i else np.arange(n) for i in range(self.n_init))
        starts = (
            _KernelStart(clusters, order, lam, self.algorithm, self.max_clusters, rounding)
            for order in orders
        )
        best = self._best_start(starts, self.n_init)
        self._store_means(X, best.center_label, clusters.weight, best.cluster_weight, best.norm)
        self.labels_ = best.label
        self.n_clusters_ = len(best.norm)
        self.inertia_ = best.inertia
        self.lam_ = lam
        self._multiply("inertia_", "objective_", "objective_path_", "lam_")
        if not best.progress.ended:
            warn_not_converged(self, self.n_iter_)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int32]:
        """Nearest mean of each row, in feature space; no row opens a cluster.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data; for ``kernel="precomputed"`` their kernel with the training points.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Number of the cluster; at a tie the lowest one.
        """
        check_is_fitted(self)
        return self._assign(self._validate_kernel(X, reset=False))[0]

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Compute distances (not squared) of each row to each mean, in feature space.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data.

        Returns
        -------
        distances : ndarray of shape (n_samples, n_clusters)
            Float32 for float32 data. Not available for ``kernel="precomputed"``.
        """
        check_is_fitted(self)
        X = self._validate_kernel(X, reset=False)
        self_kernel = self._self_kernel(X, "transform")
        distances = np.empty((X.shape[0], self.n_clusters_), dtype=X.dtype)
        for batch, cost in self._costs(X):
            distances[batch] = np.sqrt(np.maximum(cost + self_kernel[batch], 0.0)).T
        return distances

    def score(
        self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Return minus the objective of data at the fitted means.

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
            ``-(sum of w * squared distance to the nearest mean + lam_ * n_clusters_)``. Not
            available for ``kernel="precomputed"``.
        """
        check_is_fitted(self)
        X = self._validate_kernel(X, reset=False)
        weight = check_weights(sample_weight, X.shape[0])
        squared = self._assign(X)[1] + self._self_kernel(X, "score")
        error = squared.sum() if weight is None else weight @ squared
        return -(float(error) + self.lam_ * self.n_clusters_)

    @property
    def _n_features_out(self):
        return self.n_clusters_

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def check_labels(init, weight, n, max_clusters):
    """Starting labels as 0, 1, ... without gaps; None for "mean"."""
    if isinstance(init, str):
        check_option(init, "init", ("mean",))
        return None
    label = np.asarray(init)
    if label.dtype.kind not in "iu":
        raise ValueError(f"init must be 'mean' or integer labels, got {label.dtype}")
    if label.shape != (n,):
        raise ValueError(f"init must have shape ({n},), got {label.shape}")
    label = np.unique(label, return_inverse=True)[1].astype(np.int32)
    n_labels = len(np.unique(label if weight is None else label[weight > 0]))
    if max_clusters is not None and n_labels > max_clusters:
        raise ValueError(
            f"init must have at most max_clusters={max_clusters} labels, got {n_labels}"
        )
    return label
