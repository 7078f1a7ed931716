"""One time step of kernel D-Means (CKH, section 5): costs, links to old clusters, exchange."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array
from sklearn.utils.validation import check_array

from smallvar._core.lapack import eigh

# of the largest of lam, K_ii and the squared norms of old centers: costs of a row that are closer
# tie; times the rows, costs of a step and its starts
TIE = 1e-12
LINK = 1e-9  # of the largest gain by a link: gains that HiGHS cannot tell apart tie
DUAL_TOLERANCE = 1e-10  # of the same: the dual feasibility that HiGHS is asked for
EXPLAINED = 1e-9  # of ||phi||^2 or of the largest K_ii: greedy selection ends here
RIDGE = 1e-3  # of the largest K_ii, on changes of the coefficients
WINDOW = 4096  # most points whose costs are computed together, as if none moved


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
    link = np.full(len(if_new), -1)
    gain = if_new[:, None] - if_old
    scale = float(np.abs(gain).max(initial=0)) or 1.0
    k, old = np.nonzero(gain >= -LINK * scale)  # no other link can pay
    if len(k):
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
    lowers ||phi - sum a' phi(x)||^2 most, all a' refit. Once nothing of phi is left, which happens
    where many points are nearly the same for the kernel, the rest of the budget goes to points
    spread evenly over |a|: for a kernel that depends on all points of a step they may differ in
    the next. A small ridge in the last fit keeps coefficients near to what they were.
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
        gain[usable] = left[usable] * (left[usable] / pivot[usable])  # a square may overflow
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


@dataclass
class ClusterSums:
    """Sums of the kernel over the points of each of k clusters."""

    sizes: NDArray[np.int64]  # number of points n
    rows: NDArray[np.float64]  # sum_j K_ij for every point i, of shape (k, n_points)
    within: NDArray[np.float64]  # sum of K_ij over pairs of its points
    cross: NDArray[np.float64]  # sum of K_i,phi over its points, of shape (k, n_old)
    diagonal: NDArray[np.float64]  # sum of K_ii over its points


class Batch:
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
        """The sums of k clusters with these labels."""
        Z = csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), (k, len(labels)))
        S = Z @ self.K
        within = np.bincount(labels, weights=S[labels, np.arange(len(labels))], minlength=k)
        own = np.bincount(labels, weights=self.diagonal, minlength=k)
        return ClusterSums(np.bincount(labels, minlength=k), S, within, Z @ self.cross, own)

    def costs(self, labels, k):
        """Cost of each cluster if it is new, and if it continues each of the old ones.

        New: lam + sum K_ii - sum K_ij / n. Old: Q D + the line below.
        """
        sums = self.sums(labels, k)
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
            sums = b.sums(self.labels, k)
            self.n[:k], self.S[:k], self.within[:k] = sums.sizes, sums.rows, sums.within
            old = np.arange(self.n_old)
            self.cross[old] = sums.cross[old, old]

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
        cost[self.n_old : k][self.n[self.n_old : k] == 0] = np.inf  # it has lost all its points
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
        """Visit all points: costs are computed for a window of them, which ends where one moves."""
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
        cost, other = (link_costs(new, old, one).sum() for one in (before, link))
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
