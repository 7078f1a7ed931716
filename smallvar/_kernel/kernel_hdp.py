"""The hard HDP on points that are known by a kernel."""

from collections.abc import Callable
from copy import copy
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from smallvar._core.estimator import keywords_only, unchanged_on_error, warn_not_converged
from smallvar._core.groups import Groups
from smallvar._core.validation import check_lam, check_number, check_option
from smallvar._kernel.gram import BLOCK, batches
from smallvar._kernel.partition import (
    KernelClusters,
    Partition,
    PartitionStart,
    cheapest,
    farthest_first,
    kernel_rounding,
)
from smallvar._selection.penalty import global_lambda, local_lambda

RULES = ("points", "farthest-first")  # for lam_global
INITS = ("auto", "mean", "merge")
TILE = 256  # rows of the local clusters whose kernel is taken at once
FEWEST, ROOT = 20, 4.0  # clusters that are merged: at least FEWEST, and ROOT times sqrt(n_samples)
SWEEPS = 3  # sweeps before they are merged


class _Start(PartitionStart):
    """One start of the hard HDP. Points are in the order of visit: ``order``, data set by data set.

    A local cluster is a pair of a data set (the number of its run in that order) and a global one.
    """

    def __init__(self, clusters, order, group, lam_local, lam_global, rounding):
        super().__init__(clusters, order, rounding)
        first = np.append(True, group[order][1:] != group[order][:-1])
        self.run_of = np.cumsum(first) - 1
        self.stop = np.append(np.flatnonzero(first)[1:], len(order))[self.run_of]
        self.lam_local, self.lam_global = lam_local, lam_global
        self.floor = max(lam_global, rounding * len(order))  # above what rounding alone can make
        self.diagonal = clusters.diagonal[order]
        self.inside = np.zeros(len(order))  # sum of K over the point's local cluster
        self.seen = np.full(len(order), -1)  # for these labels

    @property
    def k(self):
        """Number of global clusters."""
        return self.clusters.k

    @property
    def n_local(self):
        """Number of local clusters."""
        return len(np.unique(self.run_of * self.clusters.k + self.clusters.label[self.order]))

    def measured(self):
        """Error and penalties of the present partition."""
        clusters = self.clusters
        return clusters.error + self.lam_local * self.n_local + self.lam_global * clusters.k

    def words(self):
        """What there is after a sweep."""
        return f"{self.clusters.k} global clusters, {self.n_local} local ones, {{}}"

    def renumber(self, number):
        """The local clusters follow."""
        self.seen = np.append(number, -1)[self.seen]

    def sweep(self):
        """Steps 4 and 5 of KJ12, Algorithm 2; returns labels, their number, whether any changed."""
        clusters = self.clusters
        size = float(np.abs(clusters.norm).max())
        # squared distances of the points to the global clusters, those opened in the sweep too
        self.distance = clusters.costs(self.order) + self.diagonal
        self.n_global = clusters.k
        new = self.move_points(size)
        self.move_locals(new, size)
        label = np.empty_like(new)
        label[self.order] = new
        changed = self.n_global > clusters.k or bool((label != clusters.label).any())
        return label, self.n_global, changed

    def add_global(self, distance):
        """A new global cluster at these distances; returns its number."""
        if self.n_global == len(self.distance):
            self.distance = np.concatenate([self.distance, np.empty_like(self.distance)])
        self.distance[self.n_global] = distance
        self.n_global += 1
        return self.n_global - 1

    def move_points(self, size):
        """Step 4: each point goes where it costs least; returns the labels."""
        clusters, run = self.clusters, self.run_of
        n = len(run)
        has = np.zeros((run[-1] + 1, max(16, 2 * self.n_global)), dtype=bool)
        has[run, clusters.label[self.order]] = True
        new, least, tie = cheapest(
            self.distance + self.lam_local * ~has[run, : self.n_global].T,
            size + np.abs(self.diagonal),
        )
        new = new.astype(np.int32)
        limit = self.lam_local + self.floor + tie
        opens = (least > limit) | ~has[run, new]
        at = 0
        # each turn opens one local cluster, and maybe its global one, for the next point that it is
        # cheapest for; of the later points only the costs of that cluster change
        while at < n:
            i = at + int(opens[at:].argmax())
            if not opens[i]:
                break
            at, j = i + 1, run[i]
            if least[i] > limit[i]:
                row = clusters.gram.rows(self.order[i : i + 1])[0]
                c = self.add_global(clusters.to_point(self.order[i], row)[self.order])
                if c == has.shape[1]:
                    has = np.concatenate([has, np.zeros_like(has)], axis=1)
                new[i], later = c, np.s_[i + 1 :]
                cost = self.distance[c, later] + self.lam_local * (run[later] != j)
            else:
                c, later = new[i], np.s_[i + 1 : self.stop[i]]
                cost = self.distance[c, later]
            has[j, c] = True
            better = cost < least[later] - tie[later]
            better |= (cost <= least[later] + tie[later]) & (c < new[later])
            better |= new[later] == c
            better = i + 1 + np.flatnonzero(better)
            new[better] = c
            least[better] = cost[better - i - 1]
            opens[better] = (least[better] > limit[better]) | ~has[run[better], c]
        return new

    def move_locals(self, new, size):
        """Step 5, on labels ``new``: each local cluster as a whole goes where it costs least."""
        run, there = self.run_of, self.n_global
        keys, local = np.unique(run * there + new, return_inverse=True)
        order = np.argsort(local, kind="stable")
        first = np.searchsorted(local[order], np.arange(len(keys) + 1))
        self.add_inside(new, local, order)
        count = np.diff(first).astype(float)
        total = np.bincount(local, self.diagonal)
        square = np.bincount(local, self.inside)  # sum of K over pairs of its points
        cost = np.add.reduceat(self.distance[:there, order], first[:-1], axis=1)
        target, least, tie = cheapest(cost, count * size + np.abs(total))
        origin = keys % there

        def moves(m):
            # sum ||x - mean||^2 = sum K_ii - square / count
            opens = least[m] > self.floor + total[m] - square[m] / count[m] + tie[m]
            return opens, opens | (target[m] != origin[m])

        rows = {}  # of the local clusters that others have joined before their turn
        opens, goes = moves(np.s_[:])
        at = 0
        while at < len(keys):
            m = at + int(goes[at:].argmax())
            if not goes[m]:
                break
            at = m + 1
            mine = rows.pop(m, order[first[m] : first[m + 1]])
            if opens[m]:
                row = np.zeros((1, len(new)))
                self.clusters.gram.add(
                    row, self.order[mine], np.zeros(len(mine), dtype=np.intp), np.ones(len(mine))
                )
                row = row[0][self.order] / count[m]
                c = self.add_global(self.diagonal - 2.0 * row + square[m] / count[m] ** 2)
                other = np.bincount(local, self.distance[c])
                for later, points in rows.items():
                    other[later] = self.distance[c, points].sum()
                cost = np.concatenate([cost, other[None]])
                better = at + np.flatnonzero(other[at:] < least[at:] - tie[at:])
                target[better], least[better] = c, other[better]
                opens[better], goes[better] = moves(better)
                new[mine] = c
                continue
            c = target[m]
            new[mine] = c
            key = run[mine[0]] * there + c
            joined = int(np.searchsorted(keys, key))
            if c < there and m < joined < len(keys) and keys[joined] == key:
                theirs = rows.get(joined, order[first[joined] : first[joined + 1]])
                square[joined] += square[m] + 2.0 * self.between(mine, theirs)
                total[joined] += total[m]
                count[joined] += count[m]
                cost[:, joined] += cost[:, m]
                rows[joined] = np.concatenate([theirs, mine])
                few = np.array([joined])
                target[few], least[few], tie[few] = cheapest(
                    cost[:, few], count[few] * size + np.abs(total[few])
                )
                opens[few], goes[few] = moves(few)

    def between(self, mine, theirs):
        """Sum of K over pairs of a point of the one and a point of the other."""
        step = max(1, BLOCK // len(theirs))
        return sum(
            float(self.clusters.gram.block(self.order[mine[few]], self.order[theirs]).sum())
            for few in batches(len(mine), step)
        )

    def add_inside(self, new, local, order):
        """Bring ``inside`` up to date for the data sets whose labels have changed."""
        stale = np.zeros(self.run_of[-1] + 1, dtype=bool)
        stale[self.run_of[self.seen != new]] = True
        order = order[stale[self.run_of[order]]]  # local clusters are still contiguous
        of = local[order]
        for few in batches(len(order), TILE):
            start = np.searchsorted(of, of[few][0])
            stop = np.searchsorted(of, of[few][-1], side="right")
            K = self.clusters.gram.block(self.order[order[few]], self.order[order[start:stop]])
            K = np.where(of[few][:, None] == of[start:stop], K, 0.0)
            self.inside[order[few]] = K.sum(axis=1)
        self.seen = new.copy()


class KernelHDPMeans(KernelClusters):
    """Hard HDP in the feature space of a kernel: several data sets that share clusters.

    Minimizes, over labels and the numbers of clusters,

        sum_i ||phi(x_i) - m_{z_i}||^2 + lam_local * (number of local clusters) + lam_global * K,

    the objective of :class:`HDPMeans` for points phi(x_i), whose inner products are the kernel: a
    data set pays ``lam_local`` for each of the K global clusters that it uses, and all of them
    together ``lam_global`` for each that exists.

    Parameters
    ----------
    lam_local : float or "farthest-first", default="farthest-first"
        Penalty for each local cluster, a squared distance in feature space, > 0. "farthest-first"
        derives it from the data and the guess ``n_local``, by the rule of :func:`hdp_lambdas`.
    lam_global : float, "points" or "farthest-first", default="points"
        Penalty for each global cluster, > 0, or the rule that derives it from the data and the
        guess ``n_global``. "points" is that of :func:`farthest_first_lambda` for all rows as one
        data set. "farthest-first" is that of :func:`hdp_lambdas`, which adds up distances over
        data sets: for the kernel "rbf", whose squared distances are at most 2, all that is not
        small then ends in one cluster.
    kernel : str or callable, default="rbf"
        A kernel of :func:`sklearn.metrics.pairwise.pairwise_kernels`; "precomputed", where the data
        are the Gram matrix; or a function of two arrays, of shapes (n, n_features) and (m,
        n_features), that returns their kernel matrix, of shape (n, m).
    gamma : float, default=None
        Parameter of the kernels "rbf", "laplacian", "chi2", "poly" and "sigmoid", >= 0. None: for
        "rbf", 0.3 / (median squared distance between rows); for "laplacian", the same with the
        distance that it is made of, the sum of absolute differences; for the others, and where all
        rows are equal, scikit-learn's default, for most 1 / n_features. The median is over rows,
        copies once, of 500 rows if there are more. A function is given ``gamma`` if it is not None.
    kernel_params : dict, default=None
        Further parameters of the kernel, such as ``degree`` and ``coef0``.
    n_local : int, default=5
        Guess of the number of clusters in a data set, cut to its size; not a bound.
    n_global : int, default=15
        Guess of the number of clusters in all, cut to the number of rows; not a bound.
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
        Sum of squared distances to the own means, in feature space.
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
        The cluster whose mean a row is part of: ``labels_``.
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
    HDPMeans : The same for points themselves, much faster.
    KernelDPMeans : One data set.

    Notes
    -----
    Algorithm 2 from a single cluster opens none where no point is farther from the mean than
    ``lam_local + lam_global``, and clusters that it has opened never merge. With ``init="merge"``
    a start begins elsewhere: about 4 sqrt(n_samples) farthest-first points, at least 20, become
    clusters, with three sweeps in which points go to the nearest mean. Then always the two clusters
    are merged whose union changes the objective, penalties included, by least, down to one. Of all
    these clusterings the one with the lowest objective is where the sweeps of Algorithm 2 begin.

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

    @keywords_only("squared units of the feature space")
    def __init__(
        self,
        *,
        lam_local: float | Literal["farthest-first"] = "farthest-first",
        lam_global: float | Literal["points", "farthest-first"] = "points",
        kernel: str | Callable[..., ArrayLike] = "rbf",
        gamma: float | None = None,
        kernel_params: dict[str, Any] | None = None,
        n_local: int = 5,
        n_global: int = 15,
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
        self.kernel_params = kernel_params
        self.n_local = n_local
        self.n_global = n_global
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.max_memory = max_memory
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self):
        check_lam(self.lam_local, finite=True, name="lam_local")
        check_lam(self.lam_global, finite=True, name="lam_global", options=RULES)
        check_number(self.n_local, "n_local", low=1, integer=True)
        check_number(self.n_global, "n_global", low=1, integer=True)
        check_option(self.init, "init", INITS)
        self._check_common()

    def fit(self, X: ArrayLike, y: object = None, *, groups: ArrayLike | None = None) -> Self:
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

        Returns
        -------
        self : KernelHDPMeans
            The fitted estimator.
        """
        with unchanged_on_error(self):
            self._check_parameters()
            rng = self._rng()
            X = self._validate_kernel(X, reset=True)
            n = X.shape[0]
            sets = Groups(groups, n)
            clusters = Partition(self._gram(X), None, np.zeros(n, dtype=np.int32))
            rounding = kernel_rounding(clusters)
            lam_local, lam_global = self.lam_local, self.lam_global
            if isinstance(lam_local, str):
                lam_local = local_of_gram(clusters.gram, sets, self.n_local, rounding)
            if lam_global == "points":
                guess, distance = min(self.n_global, n), clusters.nearest()[1]
                lam_global = farthest_first(clusters.gram, np.arange(n), distance, guess, rounding)
                lam_global = lam_global or 1.0
            elif lam_global == "farthest-first":
                lam_global = global_of_gram(clusters, sets, self.n_global, rounding)
            lam_local, lam_global = float(lam_local), float(lam_global)

            inits: tuple[str, ...] = (self.init,)
            if self.init == "auto":
                rules = isinstance(self.lam_local, str) or isinstance(self.lam_global, str)
                inits = ("mean", "merge") if rules else ("mean",)

            def starts():
                for init in inits:
                    begin = clusters
                    if init == "merge":
                        begin = merged(clusters, sets, lam_local, lam_global)
                    for number in range(self.n_init):
                        order = sets.order(rng if number else None)
                        yield _Start(begin, order, sets.number, lam_local, lam_global, rounding)

            best = self._best_start(starts(), len(inits) * self.n_init)
            found = best.clusters
            self._keep(X, found.label, found.weight, found.mass, found.norm)
            self.labels_, self.groups_ = found.label, sets.names
            self.local_labels_, *local = sets.local(found.label, found.k)
            self.local_clusters_, self.n_local_clusters_ = local
            self.n_clusters_ = found.k
            self.inertia_ = found.error
            self.lam_local_, self.lam_global_ = lam_local, lam_global
            if not best.progress.ended:
                warn_not_converged(self, self.n_iter_)
        return self

    def predict(self, X: ArrayLike, groups: ArrayLike | None = None) -> NDArray[np.int32]:
        """Global cluster of new rows, at the costs of the fit; no row opens a global cluster.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data; for ``kernel="precomputed"`` their kernel with the training points.
        groups : array-like of shape (n_samples,), default=None
            The data set of each row. One that the fit has not seen, or None, has no local clusters
            yet, so that the nearest mean is the cheapest.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Number of the cluster; at a tie the lowest one.
        """
        check_is_fitted(self)
        X = self._validate_kernel(X, reset=False)
        if groups is None:
            return self._assign(X)[0]
        group = Groups(groups, X.shape[0]).among(self.groups_)
        opens = np.ones((len(self.groups_) + 1, self.n_clusters_), dtype=bool)
        for j, used in enumerate(self.local_clusters_):
            opens[j, used] = False
        return self._assign(X, lambda few: self.lam_local_ * opens[group[few]].T)[0]


def _farthest_points(clusters, k):
    """Up to ``k`` points, each the farthest from those before; the first from the mean."""
    found, distance = [], clusters.nearest()[1]
    for _ in range(k):
        i = int(distance.argmax())
        to_i = clusters.to_point(i, clusters.gram.rows(np.array([i]))[0])
        if found and not distance[i] > 0.0:
            break
        nearer = to_i < distance if found else np.ones(len(distance), dtype=bool)
        distance = np.where(nearer, to_i, distance)
        distance[i] = 0.0
        found.append((i, nearer))
    label = np.zeros(len(distance), dtype=np.int32)
    for number, (i, nearer) in enumerate(found):
        label[nearer] = number
        label[i] = number
    return label, len(found)


def merged(clusters, sets, lam_local, lam_global):
    """The partition with the lowest objective on the way from many clusters to one, by merging.

    ``clusters`` has all points in one.
    """
    n = len(clusters.label)
    label, k = _farthest_points(clusters, min(n, max(FEWEST, round(ROOT * np.sqrt(n)))))
    found = copy(clusters)
    found.put(label, k)
    for _ in range(SWEEPS):
        found.put(found.nearest()[0], found.k)
    k, label, mass = found.k, found.label, found.mass.copy()
    inner = np.zeros((k, k))  # sum of K over pairs of a point of the one and a point of the other
    for few, sums in found.parts():
        inner += np.array([np.bincount(label[few], row, k) for row in sums])
    has = np.zeros((len(sets), k), dtype=np.float32)  # which data sets have a local cluster there
    has[sets.number, label] = 1.0

    def changes(a):
        # the squared error is sum K_ii - sum over clusters of inner_aa / mass_a
        own = inner.diagonal() / mass
        union = (inner[a, a] + 2.0 * inner[a] + inner.diagonal()) / (mass[a] + mass)
        shared = (has[:, a] @ has).astype(np.float64)  # local clusters that a union saves
        return own[a] + own - union - lam_global - lam_local * shared

    change = np.array([changes(a) for a in range(k)])
    alive, number = np.ones(k, dtype=bool), np.arange(k)
    total, lowest, best = 0.0, 0.0, number.copy()
    np.fill_diagonal(change, np.inf)
    for _ in range(k - 1):
        a, b = sorted(divmod(int(change.argmin()), k))
        total += change[a, b]
        inner[a] += inner[b]
        inner[:, a] += inner[:, b]
        mass[a] += mass[b]
        has[:, a] = np.maximum(has[:, a], has[:, b])
        number[number == b], alive[b] = a, False
        change[b], change[:, b] = np.inf, np.inf
        change[a] = change[:, a] = np.where(alive & (np.arange(k) != a), changes(a), np.inf)
        if total < lowest:
            lowest, best = total, number.copy()
    found.put(best[label].astype(np.int32), k)
    return found


def local_of_gram(gram, groups, n_local, rounding):
    """The penalty of a local cluster, in feature space."""

    def rule(rows):
        within = np.zeros(len(rows))  # sums of K over the data set
        for few in batches(len(rows), max(1, BLOCK // len(rows))):
            within[few] = gram.block(rows[few], rows).sum(axis=1)
        within /= len(rows)
        distance = gram.diagonal[rows] - 2.0 * within + within.mean()
        return farthest_first(gram, rows, distance, min(n_local, len(rows)), rounding)

    return local_lambda(groups, rule)


def global_of_gram(clusters, groups, n_global, rounding):
    """The penalty of a global cluster, in feature space."""

    def to_row(i):
        return clusters.to_point(i, clusters.gram.rows(np.array([i]))[0])

    return global_lambda(groups, clusters.nearest()[1], to_row, n_global, rounding)
