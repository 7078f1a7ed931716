"""D-Means on points that are known by a kernel: by exchange, and by a spectral relaxation."""

from copy import copy
from functools import partial
from inspect import signature

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array
from sklearn.utils.validation import check_array, check_is_fitted

from smallvar._base import check_number, check_symmetric
from smallvar._dynamic import MovingClusters
from smallvar._gram import KernelEstimator, warn_far
from smallvar._lapack import eigh
from smallvar._penalty import among, farthest_by
from smallvar._spectral import Rounding, eigen_above, first_appearance, yu_shi
from smallvar._starts import best_of

TIE = 1e-12  # of the largest kernel value or penalty: costs that are equal
LINK = 1e-9  # of the largest gain by a link: what HiGHS tells apart, and what a tie may cost
EXPLAINED = 1e-9  # of ||phi||^2 or of the largest K_ii: greedy selection ends here
RIDGE = 1e-3  # of the largest K_ii, on changes of the coefficients
WINDOW = 4096  # points looked at together between two that move


def match_clusters(new_costs, old_costs):
    """Link the clusters of a time step to old clusters at the least total cost.

    Minimizes, over xi >= 0 with sum_l xi_kl <= 1 for each cluster k of the step and sum_k xi_kl <=
    1 for each old cluster l,

        sum_k new_costs_k (1 - sum_l xi_kl) + sum_kl old_costs_kl xi_kl,

    a linear program whose solutions are integers: each cluster is new or continues one old cluster,
    and no two continue the same.

    Parameters
    ----------
    new_costs : array-like of shape (n_clusters,)
        Cost of each cluster if it is new.
    old_costs : array-like of shape (n_clusters, n_old)
        Cost of each cluster if it continues each of the old ones.

    Returns
    -------
    link : ndarray of shape (n_clusters,), int64
        Index of the old cluster that each continues, -1 for a new one. At a tie it continues an
        old one; gains and losses by a link below 1e-9 of the largest count as ties.

    Raises
    ------
    ValueError
        If the costs are not finite numbers or their shapes do not agree.

    References
    ----------
    Campbell, Kulis & How (2017), Dynamic clustering algorithms via small-variance analysis of
    Markov chain mixture models, section 5.4, equation 51.

    Examples
    --------
    >>> from smallvar import match_clusters
    >>> match_clusters([5.0, 5.0, 5.0], [[1.0, 2.0], [2.0, 9.0], [6.0, 7.0]])
    array([ 1,  0, -1])
    """
    new_costs = check_array(
        new_costs, ensure_2d=False, dtype=np.float64, ensure_min_samples=0, input_name="new_costs"
    )
    old_costs = check_array(
        old_costs,
        dtype=np.float64,
        ensure_min_samples=0,
        ensure_min_features=0,
        input_name="old_costs",
    )
    if new_costs.ndim != 1 or old_costs.shape[0] != len(new_costs):
        raise ValueError(
            "old_costs must have one row for each entry of new_costs, a vector, got shapes "
            f"{old_costs.shape} and {new_costs.shape}"
        )
    link = np.full(len(new_costs), -1)
    gain = new_costs[:, None] - old_costs
    scale = float(np.abs(gain).max(initial=0)) or 1.0
    k, old = np.nonzero(gain >= -LINK * scale)  # no other link can pay
    if len(k):
        pairs = np.arange(len(k))
        at_most_one = csr_array(
            (np.ones(2 * len(k)), (np.append(k, len(new_costs) + old), np.append(pairs, pairs))),
            shape=(sum(gain.shape), len(k)),
        )
        found = linprog(
            -(gain[k, old] / scale + 2 * LINK),
            A_ub=at_most_one,
            b_ub=np.ones(sum(gain.shape)),
            method="highs-ds",  # a simplex ends at a vertex
            options={"dual_feasibility_tolerance": 1e-10},
        )
        if found.status != 0:
            raise RuntimeError(f"HiGHS found no matching: {found.message}")
        chosen = found.x > 0.5
        link[k[chosen]] = old[chosen]
    return link


def _thin(K, coefficients, budget):
    """At most ``budget`` points and coefficients a' with sum a'_m phi(x_m) near phi.

    phi = sum_m a_m phi(x_m), ``coefficients`` a. Forward selection: the point whose addition
    lowers ||phi - sum a' phi(x)||^2 most, all a' refit. Once nothing of phi is left, which happens
    where many points are nearly the same for the kernel, the rest of the budget goes to points
    spread evenly over |a|: for a kernel that depends on all points of a step they may differ in
    the next. The last fit is minimal in the change of the coefficients, too (a small ridge).
    """
    m = len(coefficients)
    if m <= budget:
        return np.arange(m), coefficients
    wanted = K @ coefficients
    left, pivot = wanted.copy(), K.diagonal().copy()
    norm, top = float(coefficients @ wanted), float(max(pivot.max(), 0.0))
    L = np.zeros((budget, m))  # rows of the Cholesky factor
    free = np.ones(m, dtype=bool)
    chosen = []
    for t in range(budget):
        gain = np.full(m, -1.0)
        usable = free & (pivot > EXPLAINED * top)
        gain[usable] = left[usable] ** 2 / pivot[usable]
        j = int(gain.argmax())
        if not usable[j] or not gain[j] > EXPLAINED * abs(norm):
            break
        L[t] = (K[j] - L[:t, j] @ L[:t]) / np.sqrt(pivot[j])
        left -= L[t] * (left[j] / np.sqrt(pivot[j]))
        pivot -= L[t] ** 2
        free[j] = False
        chosen.append(j)
    more = budget - len(chosen)
    if more:
        rest = np.flatnonzero(free)
        mass = np.cumsum(np.abs(coefficients[rest]))
        place = np.searchsorted(mass, mass[-1] * (np.arange(more) + 0.5) / more)
        chosen = np.append(chosen, rest[np.unique(np.minimum(place, len(rest) - 1))]).astype(int)
    chosen = np.sort(chosen)
    own, start = K[np.ix_(chosen, chosen)], coefficients[chosen]
    values, vectors = eigh(own)
    change = vectors.T @ (wanted[chosen] - own @ start)
    ridge = RIDGE * top or 1.0
    # along an eigenvector of an indefinite K there is no least distance
    change[values < 0] = 0.0
    return chosen, start + vectors @ (change / (np.abs(values) + ridge))


class _Batch:
    """What costs follow from: kernel sums of a batch with itself and with the old centers.

    Old center l is sum_m a_m phi(x_m) over its kept points, those of all centers one after the
    other; gamma, penalty = Q D and lam as in the objective.
    """

    def __init__(self, K, coefficients, gamma, penalty, lam):
        sizes = np.array([len(a) for a in coefficients], dtype=int)
        n = K.shape[0] - sizes.sum()
        self.K, self.gamma, self.penalty, self.lam = K[:n, :n], gamma, penalty, lam
        self.diagonal = K.diagonal()[:n].copy()
        self.cross, self.norm = np.zeros((n, 0)), np.zeros(0)  # K_i,phi and K_phi,phi
        if len(sizes):
            first = np.append(0, np.cumsum(sizes)[:-1])
            weighted = K[:, n:] * np.concatenate(coefficients)
            cross = np.add.reduceat(weighted, first, axis=1)
            owner = np.repeat(np.arange(len(sizes)), sizes)
            own = cross[n:][np.arange(len(owner)), owner] * np.concatenate(coefficients)
            self.cross, self.norm = cross[:n], np.add.reduceat(own, first)
        largest = np.abs(self.diagonal).max(initial=0)
        self.tie = TIE * max(lam, float(largest), float(np.abs(self.norm).max(initial=0)))

    def sums(self, labels, k):
        """For each of k clusters: its points, sum_j K_ij, and the sums over its points.

        Those are the sums of K_ij over pairs, of K_i,phi and of K_ii.
        """
        Z = csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), (k, len(labels)))
        S = Z @ self.K
        within = np.bincount(labels, weights=S[labels, np.arange(len(labels))], minlength=k)
        own = np.bincount(labels, weights=self.diagonal, minlength=k)
        return np.bincount(labels, minlength=k), S, within, Z @ self.cross, own

    def costs(self, labels, k):
        """Cost of each cluster if it is new, and if it continues each of the old ones."""
        n, _, within, cross, own = self.sums(labels, k)
        # sum K_ii + gamma n / (gamma + n) K_phiphi - (sum K_ij + 2 gamma sum K_i,phi) / (gamma + n)
        n, total = n[:, None], self.gamma + n[:, None]
        old = self.penalty + own[:, None] + self.gamma * n / total * self.norm
        old -= (within[:, None] + 2.0 * self.gamma * cross) / total
        return self.lam + own - within / n[:, 0], old


def _link_costs(new, old, link):
    """Cost of each cluster under this link."""
    linked = link >= 0
    cost = new.copy()
    cost[linked] = old[linked, link[linked]]
    return cost


class _Exchange:
    """Kernel D-Means on one batch: points move one at a time, then clusters are linked anew.

    Slots are the old clusters, then new ones. Of each: points n, sum_j K_ij for every i (S), its
    sum over the points (within), sum_i K_i,phi (cross), and what it costs apart from sum_i K_ii.
    """

    def __init__(self, batch, order, max_iter):
        self.batch, self.n_old = batch, len(batch.gamma)
        n = len(batch.diagonal)
        self.order = np.arange(n) if order is None else order
        self.labels = np.full(n, -1)
        self.path, self.n_iter, self.converged = [], 0, False
        self._hold(0)
        while self.n_iter < max_iter and not self.converged:
            moved = self._sweep()
            relinked = self._relink()
            self.converged = not (moved or relinked)
            self.n_iter += 1
        self.objective = self.path[-1]

    def _hold(self, n_new):
        """Sums of the labels as they are, with room for clusters to come."""
        b, k = self.batch, self.n_old + n_new
        self.used, room = k, k + 8
        fill = room - self.n_old
        self.gamma = np.append(b.gamma, np.zeros(fill))
        self.norm = np.append(b.norm, np.zeros(fill))
        self.base = np.append(b.penalty, np.full(fill, b.lam))
        self.to_old = np.vstack([b.cross.T, np.zeros((fill, len(b.diagonal)))])
        self.n, self.S = np.zeros(room), np.zeros((room, len(b.diagonal)))
        self.within, self.cross = np.zeros(room), np.zeros(room)
        if self.labels.min() >= 0:
            n, S, within, cross, _ = b.sums(self.labels, k)
            self.n[:k], self.S[:k], self.within[:k] = n, S, within
            old = np.arange(self.n_old)
            self.cross[old] = cross[old, old]

    def _grow(self):
        """Twice the room for new clusters."""
        for name in ("gamma", "norm", "to_old", "n", "S", "within", "cross"):
            value = getattr(self, name)
            setattr(self, name, np.concatenate([value, np.zeros_like(value)]))
        self.base = np.append(self.base, np.full(len(self.base), self.batch.lam))

    def _value(self, slots, n, within, cross):
        """Costs of slots with these sums, apart from sum_i K_ii."""
        gamma = self.gamma[slots]
        total = gamma + n
        with np.errstate(divide="ignore", invalid="ignore"):
            value = self.base[slots] + gamma * n / total * self.norm[slots]
            value = value - (within + 2.0 * gamma * cross) / total
        return np.where(n > 0, value, 0.0)

    def _moves(self, points):
        """For each of the points, the slot that it should be in; its own if none is better."""
        b, k = self.batch, self.used
        slots = np.arange(k)[:, None]
        own, columns = self.labels[points], np.arange(len(points))
        now = self._value(slots[:, 0], self.n[:k], self.within[:k], self.cross[:k])
        to_old, S, Kii = self.to_old[:k, points], self.S[:k, points], b.diagonal[points]
        n, within = self.n[:k, None], self.within[:k, None]
        cost = np.empty((k + 1, len(points)))
        cost[:k] = self._value(slots, n + 1, within + 2 * S + Kii, self.cross[:k, None] + to_old)
        cost[:k] -= now[:, None]
        cost[self.n_old : k][self.n[self.n_old : k] == 0] = np.inf  # left by all
        cost[k] = b.lam - Kii
        has = own >= 0
        mine, c = own[has], columns[has]
        without = self._value(
            mine,
            self.n[mine] - 1,
            self.within[mine] - 2 * S[mine, c] + Kii[has],
            self.cross[mine] - to_old[mine, c],
        )
        cost[mine, c] = now[mine] - without
        alone = (self.n[mine] == 1) & (mine >= self.n_old)
        cost[k, c[alone]] = np.inf  # it is a new cluster already
        least = cost.min(axis=0) + b.tie
        best = (cost <= least).argmax(axis=0)
        best[has] = np.where(cost[mine, c] <= least[has], mine, best[has])
        return best

    def _add(self, i, slot, sign):
        """Put point i into a slot, or take it out."""
        K = self.batch.K[i]
        self.within[slot] += sign * 2 * self.S[slot, i] + K[i]
        self.S[slot] += sign * K
        self.cross[slot] += sign * self.to_old[slot, i]
        self.n[slot] += sign
        if not self.n[slot]:
            self.within[slot] = self.cross[slot] = 0.0
            self.S[slot] = 0.0

    def _sweep(self):
        """Visit all points; a window of them is looked at until one moves."""
        position, window, moved = 0, 1, 0
        while position < len(self.order):
            points = self.order[position : position + window]
            best = self._moves(points)
            movers = np.flatnonzero(best != self.labels[points])
            if not len(movers):
                position, window = position + len(points), min(2 * window, WINDOW)
                continue
            i, slot = points[movers[0]], best[movers[0]]
            if self.labels[i] >= 0:
                self._add(i, self.labels[i], -1)
            if slot == self.used:
                self.used += 1
                if self.used == len(self.n):
                    self._grow()
            self._add(i, slot, 1)
            self.labels[i] = slot
            position, window, moved = position + movers[0] + 1, 1, moved + 1
        return moved

    def _relink(self):
        """Match clusters with old ones; returns whether that made a difference."""
        b = self.batch
        slots, labels = np.unique(self.labels, return_inverse=True)
        new, old = b.costs(labels, len(slots))
        before = np.where(slots < self.n_old, slots, -1)
        link = match_clusters(new, old)
        cost, other = (_link_costs(new, old, one).sum() for one in (before, link))
        tie = b.tie * len(self.labels)
        better = other < cost - tie or (
            other <= cost + tie and np.count_nonzero(link >= 0) > np.count_nonzero(before >= 0)
        )
        link = link if better else before
        fresh = link < 0
        link[fresh] = self.n_old + np.arange(fresh.sum())
        self.labels = link[labels]
        self._hold(int(fresh.sum()))
        self.path.append(float(other if better else cost))
        return better


class _KernelMovingClusters(MovingClusters, KernelEstimator):
    """Base of the kernel forms: kept points, the kernel of a step, prediction."""

    def _check_parameters(self):
        super()._check_parameters()
        if isinstance(self.kernel, str) and self.kernel == "precomputed":
            raise ValueError(
                "kernel must not be 'precomputed', for points of earlier steps are needed too; "
                "pass a callable"
            )
        self._check_kernel()
        check_number(self.budget, "budget", low=1, integer=True)

    def _begin(self, d, recording):
        super()._begin(d, recording)
        self.kept_points_, self.kept_coefficients_ = [], []

    def _validate(self, X, *, reset, least=1):
        X = super()._validate(X, reset=reset, least=least).astype(np.float64, copy=False)
        if len(X):
            warn_far(self, X)
        return X

    def _joint_kernel(self, X):
        """Kernel of the rows of X and the kept points after them."""
        points = np.concatenate([X, *self.kept_points_])
        source = self
        if callable(self.kernel) and _takes(self.kernel, "n_batch"):
            source = copy(self)
            source.kernel = partial(self.kernel, n_batch=X.shape[0])
        K = source._kernel_between(points, points)
        check_symmetric(K, "kernel must return a symmetric matrix for a set of points and itself")
        K = K.astype(np.float64, copy=False)
        return (K + K.T) / 2

    def _penalty(self, X, guess, n_threads):
        """The rule of farthest_first_lambda in feature space."""
        K = self._first_kernel = self._joint_kernel(X)
        look = among(
            K.diagonal() - 2 * K.mean(axis=0) + K.mean(),
            lambda far: K.diagonal() - 2 * K[far] + K[far, far],
        )
        return farthest_by(look, guess, TIE * np.abs(K).max()) or 1.0

    def _cluster(self, X, gamma, penalty, n_threads):
        K = vars(self).pop("_first_kernel", None)  # of this step, if it gave the penalty
        K = self._joint_kernel(X) if K is None else K
        batch = _Batch(K, self.kept_coefficients_, gamma, penalty, self.lam_)
        labels, converged = self._partition(batch)
        # new clusters are numbered by first appearance
        n_old, n = len(gamma), len(labels)
        fresh = labels >= n_old
        labels = labels.astype(np.int64)
        labels[fresh] = n_old + first_appearance(labels[fresh])
        counts = np.bincount(labels, minlength=n_old)
        points, coefficients = list(self.kept_points_), list(self.kept_coefficients_)
        first = n + np.append(0, np.cumsum([len(a) for a in coefficients], dtype=int))
        for k in np.flatnonzero(counts):
            rows, total = np.flatnonzero(labels == k), float(counts[k])
            a, kept, which = np.empty(0), X[:0], np.empty(0, dtype=int)
            if k < n_old:
                total += gamma[k]
                kept, which = points[k], np.arange(first[k], first[k + 1])
                a = coefficients[k] * (gamma[k] / total)
            which = np.append(rows, which)
            a = np.append(np.full(len(rows), 1.0 / total), a)
            chosen, a = _thin(K[np.ix_(which, which)], a, self.budget)
            points[k : k + 1] = [np.concatenate([X[rows], kept])[chosen]]
            coefficients[k : k + 1] = [a]
        return labels, counts, (points, coefficients), converged

    def _no_cluster(self):
        self.objective_ = 0.0
        return self.kept_points_, self.kept_coefficients_

    def _mark(self, clusters, active, counts):
        return counts[active, None].astype(np.float64)

    def _keep(self, clusters, alive):
        points, coefficients = clusters
        which = range(len(points)) if alive is None else np.flatnonzero(alive)
        self.kept_points_ = [points[k] for k in which]
        self.kept_coefficients_ = [coefficients[k] for k in which]

    def predict(self, X):
        """Number of the nearest cluster, in feature space, among those seen in the last step.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data. A callable kernel is evaluated on these rows and all kept points.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int64
            Out of ``cluster_ids_``; at a tie the first.
        """
        check_is_fitted(self)
        self._check_parameters()
        X = self._validate(X, reset=False)
        active = self.ages_ == 1
        if not active.any():
            raise ValueError("no cluster was seen in the last step, so none can be predicted")
        old = np.zeros(len(active))
        batch = _Batch(self._joint_kernel(X), self.kept_coefficients_, old, old, 0.0)
        distance = (batch.norm - 2 * batch.cross)[:, active]
        least = distance.min(axis=1, keepdims=True) + batch.tie
        return self.cluster_ids_[active][(distance <= least).argmax(axis=1)]


def _takes(function, name):
    """Whether a callable has a parameter of this name."""
    try:
        return name in signature(function).parameters
    except (TypeError, ValueError):  # some compiled ones do not tell
        return False


class KernelDynamicMeans(_KernelMovingClusters):
    """Kernel D-Means: clusters of any shape that keep their identity from batch to batch.

    Minimizes, at each time step, over labels of the batch y,

        sum over new clusters of [ lam + sum_i K_ii - (sum_ij K_ij) / n ]
        + sum over old clusters seen of [ Q D + sum_i K_ii + gamma n / (gamma + n) K_phi,phi
        - (sum_ij K_ij + 2 gamma sum_i K_i,phi) / (gamma + n) ],

    the objective of :class:`DynamicMeans` in the feature space of the kernel K: sums are over the n
    points of a cluster, phi is its center when it was last seen, D steps ago, with weight v, and
    gamma = 1 / (1 / v + tau D). A center is a sum over at most ``budget`` points that are kept.

    Parameters
    ----------
    lam : float or "farthest-first", default="farthest-first"
        Penalty for each new cluster, a squared distance in feature space, > 0 and finite.
        "farthest-first" derives it from the first batch that is not empty and a guess of 8 clusters
        (cut to the size of the batch), by the rule of :func:`farthest_first_lambda` in feature
        space; there it stays.
    t_q : float, default=None
        Number of time steps after which a cluster that was not seen is forgotten, > 1; infinity
        for never. Q = lam / t_q.
    k_tau : float, default=None
        How far a cluster may move in a step, >= 1: k_tau * lam is the largest squared distance at
        which a long-lived cluster is revived after one step. tau = (t_q (k_tau - 1) + 1) / (t_q -
        1). Without ``t_q``, ``k_tau``, ``q`` and ``tau``, t_q = 6.8 and k_tau = 1.01.
    q : float, default=None
        Penalty for each step that a revived cluster was not seen, >= 0; with ``tau`` instead of
        ``t_q`` and ``k_tau``.
    tau : float, default=None
        How fast the weight of an old center fades, >= 0. Both 0: one data set in batches.
    kernel : str or callable, default="rbf"
        A kernel of :func:`sklearn.metrics.pairwise.pairwise_kernels` (not "precomputed"), or a
        callable that takes two arrays of rows and returns the kernel of each row of the first with
        each of the second. Once a step it is given the points of the step twice: the rows of the
        batch, then the kept points. So it may depend on the whole set. A callable with a parameter
        ``n_batch`` is told by it how many of the rows are the batch.
    gamma : float, default=None
        Parameter of the kernels "rbf", "laplacian", "poly", "sigmoid" and "chi2"; None means 1 /
        n_features (1 for "chi2").
    kernel_params : dict, default=None
        Further arguments of the kernel.
    budget : int, default=100
        Largest number of kept points of a cluster, >= 1.
    n_init : int, default=3
        Orders in which the points of a step are visited, the first as given, the others random.
        The result with the lowest objective goes on.
    max_iter : int, default=300
        Largest number of sweeps in a step.
    record : bool, default=False
        Keep tracks, births, deaths, revivals and objectives in ``partial_fit`` too, where they grow
        with every step. Without it they are those of ``fit``, up to the next ``partial_fit``.
    random_state : int, RandomState instance or None, default=None
        Generator of the random orders.
    verbose : int, default=0
        Print a line a step.

    Attributes
    ----------
    kept_points_ : list of ndarray of shape (n_kept, n_features), float64
        For each cluster that lives, seen in the last step or not, the points its center is made
        of.
    kept_coefficients_ : list of ndarray of shape (n_kept,), float64
        Their coefficients: the center is the sum of coefficient times point, in feature space.
    cluster_ids_ : ndarray of shape (n_clusters,), int64
        Numbers of the clusters, which stay; new ones count up and are never used again.
    weights_ : ndarray of shape (n_clusters,), float64
        How many points a center stands for, old ones faded.
    ages_ : ndarray of shape (n_clusters,), int64
        Steps since a cluster was seen: 1 for those of the last step.
    labels_ : ndarray of shape (n_samples,), int64
        Number of each row's cluster: of the last batch, or, after ``fit``, of all rows.
    n_clusters_ : int
        Number of clusters that live.
    objective_ : float
        Objective of the last step; 0 if it was empty.
    objective_path_ : ndarray of shape (n_iter,), float64
        Objective after every sweep of the last step.
    n_iter_ : int
        Sweeps of the last step.
    n_steps_ : int
        Time steps so far.
    lam_ : float
        The penalty used.
    q_ : float
        Q.
    tau_ : float
        tau.
    step_objectives_ : ndarray of shape (n_steps,), float64
        Objective of every step. This and the following after ``fit``, or with ``record``.
    times_ : ndarray of shape (n_steps,)
        The times of the steps; 0, 1, ... with ``partial_fit``.
    tracks_ : dict of int to ndarray of shape (n_seen, 2), float64
        For each cluster that ever lived, by number, the steps in which it was seen: the number of
        the step (an index into ``times_``), then how many points it had.
    births_ : list of ndarray of int64
        Numbers of the clusters that are new in each step.
    deaths_ : list of ndarray of int64
        Numbers of those forgotten at the end of each step.
    revivals_ : list of ndarray of int64
        Numbers of those seen again after at least one step in which they were not.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit`` and ``partial_fit``, for data that are not finite, numeric and
        two-dimensional, for a kernel that returns anything but a finite symmetric matrix, and for
        parameters out of their bounds. The estimator is then as it was before.

    See Also
    --------
    SpectralDynamicMeans : The same objective, less prone to poor optima.
    DynamicMeans : Clusters that are round.
    KernelDPMeans : One data set, without time.

    Notes
    -----
    After a step, the center of a cluster is gamma / (gamma + n) of the old one plus 1 / (gamma +
    n) of each of its n points. If these are more than ``budget`` kept points, some are chosen by
    forward selection: always the one whose addition lowers the squared distance of center and
    approximation most, refit with a small ridge. A step takes memory for the kernel of its rows and
    all kept points with each other, in float64.

    A cluster dies at the end of the step in which its age exceeds ``t_q`` (with ``q``: in which
    ``q`` times its age exceeds ``lam``). A step without data only ages the clusters. The state of
    an estimator, its generator included, can be pickled (with a kernel that can) and goes on where
    it stopped.

    References
    ----------
    Campbell, Kulis & How (2017), Dynamic clustering algorithms via small-variance analysis of
    Markov chain mixture models, sections 5.1, 5.2 and 6.1 (KD-Means).

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import KernelDynamicMeans
    >>> def same_radius(X, Y):
    ...     X, Y = (np.linalg.norm(Z, axis=1) for Z in (X, Y))
    ...     return np.exp(-((X[:, None] - Y) ** 2))
    >>> angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    >>> circle = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> model = KernelDynamicMeans(lam=0.5, t_q=4.0, k_tau=1.1, kernel=same_radius)
    >>> np.bincount(model.partial_fit(np.concatenate([circle, 4 * circle])).labels_)
    array([40, 40])
    >>> model.partial_fit(4.2 * circle).cluster_ids_, model.ages_  # the small one is not seen
    (array([0, 1]), array([2, 1]))
    """

    def __init__(
        self,
        lam="farthest-first",
        *,
        t_q=None,
        k_tau=None,
        q=None,
        tau=None,
        kernel="rbf",
        gamma=None,
        kernel_params=None,
        budget=100,
        n_init=3,
        max_iter=300,
        record=False,
        random_state=None,
        verbose=0,
    ):
        self.lam = lam
        self.t_q = t_q
        self.k_tau = k_tau
        self.q = q
        self.tau = tau
        self.kernel = kernel
        self.gamma = gamma
        self.kernel_params = kernel_params
        self.budget = budget
        self.n_init = n_init
        self.max_iter = max_iter
        self.record = record
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self):
        super()._check_parameters()
        check_number(self.max_iter, "max_iter", low=1, integer=True)

    def _partition(self, batch):
        n = len(batch.diagonal)

        def start(number):
            order = self._generator.permutation(n) if number else None
            return _Exchange(batch, order, self.max_iter)

        best = best_of(map(start, range(self.n_init)), rounding=batch.tie * n)
        self.objective_, self.n_iter_ = best.objective, best.n_iter
        self.objective_path_ = np.array(best.path)
        return best.labels, best.converged

    def _no_cluster(self):
        self.objective_path_, self.n_iter_ = np.zeros(0), 0
        return super()._no_cluster()


class SpectralDynamicMeans(_KernelMovingClusters):
    """SD-Means: spectral clustering of batches whose clusters keep their identity.

    Minimizes the objective of :class:`KernelDynamicMeans`, at each time step, by a relaxation: the
    eigenvectors with an eigenvalue above lam of

        G = [[K_yy, K_y,phi Gamma^1/2], [Gamma^1/2 K_phi,y, diag(gamma K_phi,phi + Q D)]],

    with a row for each point y of the batch and one for each old center phi, Gamma = diag(gamma),
    are rounded to a partition of the points, and its clusters are linked to old ones at the least
    cost (:func:`match_clusters`).

    Parameters
    ----------
    lam : float or "farthest-first", default="farthest-first"
        Penalty for each new cluster, a squared distance in feature space, > 0 and finite.
        "farthest-first" derives it from the first batch that is not empty and a guess of 8 clusters
        (cut to the size of the batch), by the rule of :func:`farthest_first_lambda` in feature
        space; there it stays.
    t_q : float, default=None
        Number of time steps after which a cluster that was not seen is forgotten, > 1; infinity
        for never. Q = lam / t_q.
    k_tau : float, default=None
        How far a cluster may move in a step, >= 1: k_tau * lam is the largest squared distance at
        which a long-lived cluster is revived after one step. tau = (t_q (k_tau - 1) + 1) / (t_q -
        1). Without ``t_q``, ``k_tau``, ``q`` and ``tau``, t_q = 6.8 and k_tau = 1.01.
    q : float, default=None
        Penalty for each step that a revived cluster was not seen, >= 0; with ``tau`` instead of
        ``t_q`` and ``k_tau``.
    tau : float, default=None
        How fast the weight of an old center fades, >= 0. Both 0: one data set in batches.
    kernel : str or callable, default="rbf"
        A kernel of :func:`sklearn.metrics.pairwise.pairwise_kernels` (not "precomputed"), or a
        callable that takes two arrays of rows and returns the kernel of each row of the first with
        each of the second. Once a step it is given the points of the step twice: the rows of the
        batch, then the kept points. So it may depend on the whole set. A callable with a parameter
        ``n_batch`` is told by it how many of the rows are the batch.
    gamma : float, default=None
        Parameter of the kernels "rbf", "laplacian", "poly", "sigmoid" and "chi2"; None means 1 /
        n_features (1 for "chi2").
    kernel_params : dict, default=None
        Further arguments of the kernel.
    budget : int, default=100
        Largest number of kept points of a cluster, >= 1.
    n_init : int, default=3
        Starts of the rounding. The result with the lowest objective goes on.
    record : bool, default=False
        Keep tracks, births, deaths, revivals and objectives in ``partial_fit`` too, where they grow
        with every step. Without it they are those of ``fit``, up to the next ``partial_fit``.
    random_state : int, RandomState instance or None, default=None
        Generator of the starts.
    verbose : int, default=0
        Print a line a step.

    Attributes
    ----------
    kept_points_ : list of ndarray of shape (n_kept, n_features), float64
        For each cluster that lives, seen in the last step or not, the points its center is made
        of.
    kept_coefficients_ : list of ndarray of shape (n_kept,), float64
        Their coefficients: the center is the sum of coefficient times point, in feature space.
    cluster_ids_ : ndarray of shape (n_clusters,), int64
        Numbers of the clusters, which stay; new ones count up and are never used again.
    weights_ : ndarray of shape (n_clusters,), float64
        How many points a center stands for, old ones faded.
    ages_ : ndarray of shape (n_clusters,), int64
        Steps since a cluster was seen: 1 for those of the last step.
    labels_ : ndarray of shape (n_samples,), int64
        Number of each row's cluster: of the last batch, or, after ``fit``, of all rows.
    n_clusters_ : int
        Number of clusters that live.
    objective_ : float
        Objective of the last step; 0 if it was empty.
    bound_ : float
        Lower bound on the objective of any clustering of the last step; 0 if it was empty.
    eigenvalues_ : ndarray of shape (n_above,), float64
        Eigenvalues of G above lam in the last step, falling; the largest one if none is.
    n_steps_ : int
        Time steps so far.
    lam_ : float
        The penalty used.
    q_ : float
        Q.
    tau_ : float
        tau.
    step_objectives_ : ndarray of shape (n_steps,), float64
        Objective of every step. This and the following after ``fit``, or with ``record``.
    times_ : ndarray of shape (n_steps,)
        The times of the steps; 0, 1, ... with ``partial_fit``.
    tracks_ : dict of int to ndarray of shape (n_seen, 2), float64
        For each cluster that ever lived, by number, the steps in which it was seen: the number of
        the step (an index into ``times_``), then how many points it had.
    births_ : list of ndarray of int64
        Numbers of the clusters that are new in each step.
    deaths_ : list of ndarray of int64
        Numbers of those forgotten at the end of each step.
    revivals_ : list of ndarray of int64
        Numbers of those seen again after at least one step in which they were not.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit`` and ``partial_fit``, for data that are not finite, numeric and
        two-dimensional, for a kernel that returns anything but a finite symmetric matrix, and for
        parameters out of their bounds. The estimator is then as it was before.

    See Also
    --------
    KernelDynamicMeans : The same objective, point by point.
    DynamicMeans : Clusters that are round.
    SpectralDPMeans : One data set, without time.

    Notes
    -----
    After a step, the center of a cluster is gamma / (gamma + n) of the old one plus 1 / (gamma +
    n) of each of its n points. If these are more than ``budget`` kept points, some are chosen by
    forward selection: always the one whose addition lowers the squared distance of center and
    approximation most, refit with a small ridge. A step takes memory for the kernel of its rows and
    all kept points with each other, in float64.

    A cluster dies at the end of the step in which its age exceeds ``t_q`` (with ``q``: in which
    ``q`` times its age exceeds ``lam``). A step without data only ages the clusters. The state of
    an estimator, its generator included, can be pickled (with a kernel that can) and goes on where
    it stopped.

    References
    ----------
    Campbell, Kulis & How (2017), Dynamic clustering algorithms via small-variance analysis of
    Markov chain mixture models, sections 5.3, 5.4 and 6 (SD-Means). Rounding: Yu &
    Shi (2003), Multiclass spectral clustering.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import SpectralDynamicMeans
    >>> angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    >>> circle = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> model = SpectralDynamicMeans(lam=10.0, t_q=4.0, k_tau=1.1, gamma=0.2, random_state=0)
    >>> np.bincount(model.partial_fit(np.concatenate([circle, circle + [5, 0]])).labels_)
    array([40, 40])
    >>> int(model.partial_fit(circle + [5.5, 0]).labels_[0]), model.ages_
    (1, array([2, 1]))
    """

    def __init__(
        self,
        lam="farthest-first",
        *,
        t_q=None,
        k_tau=None,
        q=None,
        tau=None,
        kernel="rbf",
        gamma=None,
        kernel_params=None,
        budget=100,
        n_init=3,
        record=False,
        random_state=None,
        verbose=0,
    ):
        self.lam = lam
        self.t_q = t_q
        self.k_tau = k_tau
        self.q = q
        self.tau = tau
        self.kernel = kernel
        self.gamma = gamma
        self.kernel_params = kernel_params
        self.budget = budget
        self.n_init = n_init
        self.record = record
        self.random_state = random_state
        self.verbose = verbose

    def _draws(self):
        return True

    def _partition(self, batch):
        n, n_old = batch.cross.shape
        root = np.sqrt(batch.gamma)
        G = np.zeros((n + n_old, n + n_old))
        G[:n, :n] = batch.K
        G[:n, n:] = batch.cross * root
        G[n:, :n] = G[:n, n:].T
        G[n:, n:] = np.diag(batch.gamma * batch.norm + batch.penalty)
        values, vectors = eigen_above(G, batch.lam, self._generator, least=1)
        self.eigenvalues_ = values
        above = np.maximum(values - batch.lam, 0.0).sum()
        self.bound_ = float(np.trace(G) - above - batch.lam * n_old)

        def linked(labels):
            new, old = batch.costs(labels, int(labels.max()) + 1)
            link = match_clusters(new, old)
            return Rounding(float(_link_costs(new, old, link).sum()), labels, link)

        starts = map(linked, yu_shi(vectors[:n], self._generator, self.n_init))
        best = best_of(starts, rounding=batch.tie * n)
        labels, link, self.objective_ = best.labels, best.more, best.objective
        fresh = link < 0
        link[fresh] = n_old + np.arange(fresh.sum())
        return link[labels], True

    def _no_cluster(self):
        self.bound_, self.eigenvalues_ = 0.0, np.zeros(0)
        return super()._no_cluster()
