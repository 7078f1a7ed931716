"""One time step of kernel D-Means (CKH, section 5): costs, links to old clusters, exchange."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import linprog
from scipy.sparse import csr_array
from sklearn.utils.validation import check_array

from smallvar._core.lapack import eigh
from smallvar._sweeps.exchange import ExchangeSweep, sums_by_label

# of the largest of lam, K_ii and the squared norms of old centers: costs of a row that are closer
# tie; times the rows, costs of a step and its starts
TIE = 1e-12
LINK = 1e-9  # of the largest gain by a link: gains that HiGHS cannot tell apart tie
DUAL_TOLERANCE = 1e-10  # of the same: the dual feasibility that HiGHS is asked for
EQUAL_GAIN = 1e-9  # of the largest gain of greedy selection: of those that are closer, the first
EXPLAINED = 1e-9  # of ||phi||^2 or of the largest K_ii: greedy selection ends here
RIDGE = 1e-3  # of the largest K_ii, on changes of the coefficients
DEFINITE = 1e-12  # of the largest K_ii: negative eigenvalues of K that are smaller are rounding


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
    """Link clusters as ``match_clusters`` does, at costs that were checked."""
    link = np.full(len(if_new), -1)
    gain = if_new[:, None] - if_old
    scale = float(np.abs(gain).max(initial=0)) or 1.0
    pays = gain >= -LINK * scale  # no other link can pay
    some = np.flatnonzero(pays.any(axis=1))
    best = gain[some].argmax(axis=1) if len(some) else some
    if len(np.unique(best)) == len(best):
        link[some] = best  # no two want the same old cluster most: no constraint binds
        return link
    k, old = np.nonzero(pays)
    pairs = np.arange(len(k))
    at_most_one = csr_array(
        (np.ones(2 * len(k)), (np.append(k, len(if_new) + old), np.append(pairs, pairs))),
        shape=(sum(gain.shape), len(k)),
    )
    found = linprog(
        -(gain[k, old] / scale + 2 * LINK),
        A_ub=at_most_one,
        b_ub=np.ones(sum(gain.shape)),
        method="highs-ds",  # a simplex ends at a vertex
        options={"dual_feasibility_tolerance": DUAL_TOLERANCE},
    )
    if found.status != 0:
        raise RuntimeError(f"HiGHS found no matching: {found.message}")
    chosen = found.x > 0.5
    link[k[chosen]] = old[chosen]
    return link


def thin(K, coefficients, budget):
    """At most ``budget`` points and coefficients a' with sum a'_m phi(x_m) near phi.

    phi = sum_m a_m phi(x_m), ``coefficients`` a. Forward selection: the point whose addition
    lowers ||phi - sum a' phi(x)||^2 most, at a tie the first one, all a' refit. Once nothing of
    phi is left, which happens where many points are nearly the same for the kernel, the rest of
    the budget goes to points spread evenly over |a|: for a kernel that depends on all points of a
    step they may differ in the next. A small ridge in the last fit keeps coefficients near to what
    they were.
    """
    m = len(coefficients)
    if m <= budget:
        return np.arange(m), coefficients
    wanted = K @ coefficients
    left, pivot = wanted.copy(), K.diagonal().copy()
    norm, top = float(coefficients @ wanted), float(max(pivot.max(), 0.0))
    L = np.zeros((budget, m))  # rows of the Cholesky factor
    chosen = []
    for t in range(budget):
        pivot[pivot <= EXPLAINED * top] = np.inf  # no longer a candidate, with a gain of 0
        gain = left * (left / pivot)  # a square may overflow
        j = int((gain >= (1 - EQUAL_GAIN) * gain.max()).argmax())
        if not gain[j] > EXPLAINED * abs(norm):
            break
        root = np.sqrt(pivot[j])
        L[t] = (K[j] - L[:t, j] @ L[:t]) / root
        left -= L[t] * (left[j] / root)
        pivot -= L[t] ** 2
        pivot[j] = np.inf
        chosen.append(j)
    more = budget - len(chosen)
    if more:
        rest = np.delete(np.arange(m), chosen)
        mass = np.cumsum(np.abs(coefficients[rest]))
        place = np.searchsorted(mass, mass[-1] * (np.arange(more) + 0.5) / more)
        chosen = np.append(chosen, rest[np.unique(np.minimum(place, len(rest) - 1))]).astype(int)
    chosen = np.sort(chosen)
    own, start = K[np.ix_(chosen, chosen)], coefficients[chosen]
    return chosen, start + _change(own, wanted[chosen] - own @ start, top)


def _change(K, missing, top):
    """The coefficients that add ``missing`` to the kernel with each point, with a small ridge.

    Along an eigenvector of an indefinite K there is no least distance: they are 0 there.
    """
    ridge, m = RIDGE * top or 1.0, len(K)
    try:
        cho_factor(K + DEFINITE * top * np.eye(m), overwrite_a=True, check_finite=False)
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
    rows: NDArray[np.float64]  # sum_j K_ij for every point i, of shape (k, n_points)
    within: NDArray[np.float64]  # sum of K_ij over pairs of its points
    cross: NDArray[np.float64]  # sum of K_i,phi over its points, of shape (k, n_old)
    diagonal: NDArray[np.float64]  # sum of K_ii over its points


def to_centers(K, kept, coefficients):
    """K_i,phi of each row of K with each center, and K_phi,phi.

    Center l is sum_m a_m phi(x_m), ``coefficients`` a, over its kept points: the columns of K are
    those of all centers one after the other, ``kept`` the kernel of those of each center.
    """
    if not coefficients:
        return np.zeros((len(K), 0)), np.zeros(0)
    first = np.append(0, np.cumsum([len(a) for a in coefficients[:-1]], dtype=int))
    cross = np.add.reduceat(K * np.concatenate(coefficients), first, axis=1)
    return cross, np.array([a @ W @ a for W, a in zip(kept, coefficients, strict=True)])


def cost_tie(lam, diagonal, norm):
    """Difference of costs up to which they tie, for rows of this diagonal of K."""
    largest = (float(np.abs(values).max(initial=0)) for values in (diagonal, norm))
    return TIE * max(lam, *largest)


class Batch:
    """What costs follow from: kernel sums of a batch with itself and with the old centers.

    gamma, penalty = Q D and lam are as in the objective, ``coefficients`` as in ``to_centers``.
    ``K`` is the kernel of the batch with itself and then with the kept points, ``kept`` that of
    those of each center with each other; if it is None, ``K`` has rows for the kept points, too.
    """

    def __init__(self, K, coefficients, gamma, penalty, lam, kept=None):
        sizes = [len(a) for a in coefficients]
        n = K.shape[1] - sum(sizes)
        self.first = n + np.append(0, np.cumsum(sizes, dtype=int))  # kept points of each center
        self.kept = [K[a:b, a:b] for a, b in pairwise(self.first)] if kept is None else kept
        self.rows, self.K = K[:n], np.ascontiguousarray(K[:n, :n])
        self.gamma, self.penalty, self.lam = gamma, penalty, lam
        self.diagonal = self.K.diagonal().copy()
        self.cross, self.norm = to_centers(K[:n, n:], self.kept, coefficients)
        self.tie = cost_tie(lam, self.diagonal, self.norm)

    def kernel_of(self, rows, center=None):
        """The kernel of some rows of the batch and, after them, the kept points of a center."""
        if center is None:
            return self.K[np.ix_(rows, rows)]
        which = np.append(rows, np.arange(self.first[center], self.first[center + 1]))
        top = self.rows[np.ix_(rows, which)]
        return np.vstack([top, np.hstack([top[:, len(rows) :].T, self.kept[center]])])

    def sums(self, labels, k):
        """The sums of k clusters with these labels."""
        labels = labels.astype(np.intp, copy=False)
        S = sums_by_label(self.K, labels, k)
        within = np.bincount(labels, weights=S[labels, np.arange(len(labels))], minlength=k)
        cross, own = sums_by_label(self.cross, labels, k), np.bincount(labels, self.diagonal, k)
        return ClusterSums(np.bincount(labels, minlength=k), S, within, cross, own)

    def costs(self, labels, k):
        """Cost of each cluster if it is new, and if it continues each of the old ones."""
        return self.costs_of(self.sums(labels, k))

    def costs_of(self, sums):
        """``costs`` of clusters with these sums.

        New: lam + sum K_ii - sum K_ij / n. Old: Q D + the line below.
        """
        # sum K_ii + gamma n / (gamma + n) K_phiphi - (sum K_ij + 2 gamma sum K_i,phi) / (gamma + n)
        n, total = sums.sizes[:, None], self.gamma + sums.sizes[:, None]
        old = self.penalty + sums.diagonal[:, None] + self.gamma * n / total * self.norm
        old -= (sums.within[:, None] + 2.0 * self.gamma * sums.cross) / total
        return self.lam + sums.diagonal - sums.within / sums.sizes, old


def link_costs(new, old, link):
    """Cost of each cluster under this link."""
    linked = link >= 0
    cost = new.copy()
    cost[linked] = old[linked, link[linked]]
    return cost


class Exchange:
    """Kernel D-Means on one batch: points move one at a time, then clusters are linked anew.

    ``labels`` are numbers of clusters: the old ones, then those that are new.
    """

    def __init__(self, batch, order, max_iter):
        self.batch, self.n_old = batch, len(batch.gamma)
        n = len(batch.diagonal)
        order = np.arange(n) if order is None else order
        self.labels = np.full(n, -1)
        self.path, self.n_iter, self.converged = [], 0, False
        self.sweep = ExchangeSweep(
            *(batch.K, batch.cross, batch.gamma, batch.norm, batch.penalty, batch.lam, batch.tie)
        )
        while self.n_iter < max_iter and not self.converged:
            moved = self.sweep.run(order, self.labels)
            relinked = self._relink()
            self.converged = not (moved or relinked)
            self.n_iter += 1
        self.objective = self.path[-1]

    def _relink(self):
        """Match clusters with old ones; returns whether that made a difference."""
        b = self.batch
        found, labels = np.unique(self.labels, return_inverse=True)
        sums = b.sums(labels, len(found))
        new, old = b.costs_of(sums)
        before = np.where(found < self.n_old, found, -1)
        link = match(new, old)
        cost, other = (link_costs(new, old, one).sum() for one in (before, link))
        tie = b.tie * len(self.labels)
        better = other < cost - tie or (
            other <= cost + tie and np.count_nonzero(link >= 0) > np.count_nonzero(before >= 0)
        )
        link = link if better else before
        fresh = link < 0
        link[fresh] = self.n_old + np.arange(fresh.sum())
        self.labels = link[labels]
        self.sweep.set_clusters(link, sums.sizes, sums.rows, sums.within, sums.cross)
        self.path.append(float(other if better else cost))
        return better
