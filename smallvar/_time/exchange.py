"""One time step of kernel D-Means (CKH section 5: Campbell, Kulis & How, 2017).

``match_clusters`` links clusters of a step to old ones (section 5.4), ``thin_center`` approximates
a center by fewer points (section 6.1), ``Batch`` computes the costs of clusters from kernel sums,
and ``Exchange`` is one start of KD-Means: sweeps that move single points, and links.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import linprog
from scipy.sparse import csc_array, csr_array
from sklearn.utils.validation import check_array

from smallvar._core.linear_algebra import eigh, stoppable_if_large
from smallvar._sweeps.exchange import ExchangeSweep

# Costs of a row tie if they differ by less than this times the largest of lam, K_ii and the squared
# norms of old centers; for costs of a step, times the number of rows as well
MATCH_TIE = 1e-12
# relative to the largest gain by a link: gains closer than LINK_TIE tie, as HiGHS cannot tell them
# apart; DUAL_TOLERANCE is the dual feasibility that HiGHS must reach
LINK_TIE = 1e-9
DUAL_TOLERANCE = 1e-10
QUICK_PAIRS = 10**5  # links of which the best are found quickly enough not to be interrupted
GAIN_TIE = 1e-9  # forward selection takes the first of the gains closer than this to the largest
MIN_GAIN = 1e-9  # relative to ||phi||^2 or the largest K_ii: forward selection ends at such gains
RIDGE = 1e-3  # relative to the largest K_ii: the ridge on changes of the coefficients
DEFINITE = 1e-12  # relative to the largest K_ii: smaller negative eigenvalues of K are rounding


def match_clusters(new_costs: ArrayLike, old_costs: ArrayLike) -> NDArray[np.int64]:
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
    if_new = check_array(
        new_costs, ensure_2d=False, dtype=np.float64, ensure_min_samples=0, input_name="new_costs"
    )
    if_old = check_array(
        old_costs,
        dtype=np.float64,
        ensure_min_samples=0,
        ensure_min_features=0,
        input_name="old_costs",
    )
    if if_new.ndim != 1 or if_old.shape[0] != len(if_new):
        raise ValueError(
            "old_costs must have one row for each entry of new_costs, a vector, got shapes "
            f"{if_old.shape} and {if_new.shape}"
        )
    return match(if_new, if_old)


def match(if_new, if_old):
    """Links of ``match_clusters``, for checked costs."""
    link = np.full(len(if_new), -1)
    gain = if_new[:, None] - if_old
    scale = float(np.abs(gain).max(initial=0)) or 1.0
    pays = gain >= -LINK_TIE * scale  # links that lower the cost, or leave it equal
    linkable = np.flatnonzero(pays.any(axis=1))
    best = gain[linkable].argmax(axis=1) if len(linkable) else linkable
    if len(np.unique(best)) == len(best):
        link[linkable] = best  # the best links differ, so they meet the constraints
        return link
    # a linear program: x = 1 for a link that is made. Rows of the matrix are the clusters, and then
    # the old ones, each of which has at most one link
    k, old = np.nonzero(pays)
    pairs = np.arange(len(k))
    at_most_one = csr_array(
        (np.ones(2 * len(k)), (np.append(k, len(if_new) + old), np.append(pairs, pairs))),
        shape=(sum(gain.shape), len(k)),
    )
    solution = stoppable_if_large(
        linprog,
        -(gain[k, old] / scale + 2 * LINK_TIE),
        quick=QUICK_PAIRS,
        A_ub=at_most_one,
        b_ub=np.ones(sum(gain.shape)),
        method="highs-ds",  # a simplex method ends at a vertex, which is integral
        options={"dual_feasibility_tolerance": DUAL_TOLERANCE},
    )
    if solution.status != 0:
        kind = MemoryError if "Memory" in solution.message else RuntimeError
        raise kind(f"HiGHS found no matching: {solution.message}")
    chosen = solution.x > 0.5
    link[k[chosen]] = old[chosen]
    return link


def thin_center(K, coefficients, budget):
    """Indices of at most ``budget`` points, and coefficients a' with sum a'_m phi(x_m) near phi.

    phi = sum_m a_m phi(x_m) is the center with the ``coefficients`` a. Forward selection adds the
    point that lowers ||phi - sum a' phi(x)||^2 most when all a' are refit, at a tie the first one.
    If nothing is left to explain, as many points are nearly equal for the kernel, the rest of the
    budget goes to points spread evenly over |a|: for a kernel that depends on all points of a step
    they may differ in the next step. A small ridge in the last fit keeps coefficients near those
    that they had.
    """
    m = len(coefficients)
    if m <= budget:
        return np.arange(m), coefficients
    target = K @ coefficients
    residual, pivot = target.copy(), K.diagonal().copy()
    target_norm, largest = float(coefficients @ target), float(max(pivot.max(), 0.0))
    L = np.zeros((budget, m))  # rows of the Cholesky factor of K for the chosen points
    chosen = []
    for t in range(budget):
        pivot[pivot <= MIN_GAIN * largest] = np.inf  # no candidate: its gain is 0
        gain = residual * (residual / pivot)  # a square may overflow
        j = int((gain >= (1 - GAIN_TIE) * gain.max()).argmax())
        if not gain[j] > MIN_GAIN * abs(target_norm):
            break
        # what point j explains is taken from the residual, and from the variances of the others
        root = np.sqrt(pivot[j])
        L[t] = (K[j] - L[:t, j] @ L[:t]) / root
        residual -= L[t] * (residual[j] / root)
        pivot -= L[t] ** 2
        pivot[j] = np.inf
        chosen.append(j)
    n_more = budget - len(chosen)
    if n_more:
        # one point from each of n_more equal shares of |a|
        rest = np.delete(np.arange(m), chosen)
        cumulative = np.cumsum(np.abs(coefficients[rest]))
        position = np.searchsorted(cumulative, cumulative[-1] * (np.arange(n_more) + 0.5) / n_more)
        chosen = np.append(chosen, rest[np.unique(np.minimum(position, len(rest) - 1))]).astype(int)
    chosen = np.sort(chosen)
    K, start = K[np.ix_(chosen, chosen)], coefficients[chosen]
    return chosen, start + ridge_change(K, target[chosen] - K @ start, largest)


def ridge_change(K, missing, largest):
    """Changes c of coefficients with K c near ``missing``, by ridge regression.

    Along eigenvectors with negative eigenvalues of an indefinite K there is no least distance, so c
    is 0 there. ``largest`` is the largest K_ii.
    """
    ridge, m = RIDGE * largest or 1.0, len(K)
    try:
        cho_factor(K + DEFINITE * largest * np.eye(m), overwrite_a=True, check_finite=False)
    except LinAlgError:
        values, vectors = eigh(K)
        change = vectors.T @ missing
        change[values < 0] = 0.0
        return vectors @ (change / (np.abs(values) + ridge))
    definite = cho_factor(K + ridge * np.eye(m), overwrite_a=True, check_finite=False)
    return cho_solve(definite, missing, check_finite=False)


@dataclass
class ClusterSums:
    """Sums of the kernel over the points of each of k clusters."""

    sizes: NDArray[np.int64]  # number of points n
    rows: NDArray[np.float64]  # sum_j K_ij over points j of a cluster, for every i: (k, n_points)
    within: NDArray[np.float64]  # sum of K_ij over pairs of points of a cluster
    cross: NDArray[np.float64]  # sum of K_i,phi over points of a cluster, shape (k, n_old)
    diagonal: NDArray[np.float64]  # sum of K_ii over points of a cluster


class Batch:
    """The kernel of a batch with itself and with the old centers, from which costs follow.

    ``K`` has a row for each point of the batch, and columns for these points and then for the kept
    points of all centers. ``kept`` are the kernels between the kept points of each center; if it is
    None, ``K`` has rows for the kept points, too. Center l is the sum of ``coefficients[l]`` times
    its kept points; gamma, penalty = Q D and lam are those of the objective. ``cross`` is K_i,phi
    of each row with each center, ``norm`` K_phi,phi of each center, ``tie`` the difference up to
    which costs of a row tie.
    """

    def __init__(self, K, coefficients, gamma, penalty, lam, kept=None):
        sizes = [len(a) for a in coefficients]
        n = K.shape[1] - sum(sizes)
        self.first = n + np.append(0, np.cumsum(sizes, dtype=int))  # kept points of each center
        self.kept = [K[a:b, a:b] for a, b in pairwise(self.first)] if kept is None else kept
        self.rows, self.K = K[:n], np.ascontiguousarray(K[:n, :n])
        self.gamma, self.penalty, self.lam = gamma, penalty, lam
        self.diagonal, self.cross = self.K.diagonal().copy(), np.zeros((n, 0))
        if sizes:
            terms = K[:n, n:] * np.concatenate(coefficients)
            self.cross = np.add.reduceat(terms, self.first[:-1] - n, axis=1)
        self.norm = np.array([a @ W @ a for W, a in zip(self.kept, coefficients, strict=True)])
        squares = np.abs(np.append(self.diagonal, self.norm))
        self.tie = MATCH_TIE * max(lam, float(squares.max(initial=0)))

    def kernel_of(self, rows, center=None):
        """Kernel between rows of the batch, followed by the kept points of a center, if given."""
        if center is None:
            return self.K[np.ix_(rows, rows)]
        columns = np.append(rows, np.arange(self.first[center], self.first[center + 1]))
        upper = self.rows[np.ix_(rows, columns)]
        return np.vstack([upper, np.hstack([upper[:, len(rows) :].T, self.kept[center]])])

    def sums(self, labels, k):
        """ClusterSums of k clusters with these labels."""
        n = len(labels)
        in_cluster = csc_array((np.ones(n), labels, np.arange(n + 1)), shape=(k, n))
        rows = in_cluster @ self.K  # added in the order of the points
        within = np.bincount(labels, weights=rows[labels, np.arange(n)], minlength=k)
        cross = in_cluster @ self.cross
        diagonal = np.bincount(labels, self.diagonal, k)
        return ClusterSums(np.bincount(labels, minlength=k), rows, within, cross, diagonal)

    def costs(self, labels, k):
        """Costs of the clusters if new, shape (k,), and if they continue old ones, (k, n_old)."""
        return self.costs_of(self.sums(labels, k))

    def costs_of(self, sums):
        """``costs`` of clusters with these sums (CKH, section 5.1).

        A new cluster costs lam + sum K_ii - sum K_ij / n. One that continues an old cluster costs
        Q D + sum K_ii + gamma n / (gamma + n) K_phi,phi
        - (sum K_ij + 2 gamma sum K_i,phi) / (gamma + n).
        """
        n, total = sums.sizes[:, None], self.gamma + sums.sizes[:, None]
        old = self.penalty + sums.diagonal[:, None] + self.gamma * n / total * self.norm
        old -= (sums.within[:, None] + 2.0 * self.gamma * sums.cross) / total
        return self.lam + sums.diagonal - sums.within / sums.sizes, old


def link_costs(new, old, link):
    """Cost of each cluster with these links to old clusters (-1: new)."""
    linked = link >= 0
    cost = new.copy()
    cost[linked] = old[linked, link[linked]]
    return cost


class Exchange:
    """One start of kernel D-Means on a batch: sweeps that move single points, then link clusters.

    ``labels`` are numbers of clusters: first the old clusters, then new ones. ``path`` has the
    objective after every sweep.
    """

    def __init__(self, batch, order, max_iter):
        self.batch, self.n_old = batch, len(batch.gamma)
        n = len(batch.diagonal)
        order = np.arange(n) if order is None else order
        self.labels = np.full(n, -1)
        self.path, self.n_iter, self.converged = [], 0, False
        gamma, norm, penalty = batch.gamma, batch.norm, batch.penalty
        self.sweep = ExchangeSweep(batch.K, batch.cross, gamma, norm, penalty, batch.lam, batch.tie)
        while self.n_iter < max_iter and not self.converged:
            moved = self.sweep.run(order, self.labels)
            relinked = self._relink()
            self.converged = not (moved or relinked)
            self.n_iter += 1
        self.objective = self.path[-1]

    def _relink(self):
        """Link the clusters to old ones again; returns whether that improved the links.

        Links are replaced if the cost falls, or if more clusters continue old ones at equal cost.
        """
        batch = self.batch
        ids, labels = np.unique(self.labels, return_inverse=True)
        sums = batch.sums(labels, len(ids))
        new, old = batch.costs_of(sums)
        before = np.where(ids < self.n_old, ids, -1)
        link = match(new, old)
        cost, new_cost = (link_costs(new, old, links).sum() for links in (before, link))
        tie = batch.tie * len(self.labels)
        better = new_cost < cost - tie or (
            new_cost <= cost + tie and np.count_nonzero(link >= 0) > np.count_nonzero(before >= 0)
        )
        link = link if better else before
        is_new = link < 0
        link[is_new] = self.n_old + np.arange(is_new.sum())
        self.labels = link[labels]
        self.sweep.set_clusters(link, sums.sizes, sums.rows, sums.within, sums.cross)
        self.path.append(float(new_cost if better else cost))
        return better
