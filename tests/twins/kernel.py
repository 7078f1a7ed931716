"""Kernel forms (KJ12 section 5.2), those of D-Means too.

A mean is a row of coefficients a of the points: ||phi(x_i) - m||^2 = K_ii - 2 (a K)_i + a K a'.
"""

import numpy as np

from twins.exact import without_gaps


def kernel_distance(K, i, a):
    """Squared distance of point i to the mean with coefficients a."""
    return K[i, i] - 2 * a @ K[:, i] + a @ K @ a


def mean_coefficients(labels, weights):
    """One row for each cluster: the weights of its points, divided by their sum."""
    A = np.array([weights * (labels == c) for c in range(labels.max() + 1)])
    return A / A.sum(axis=1, keepdims=True)


def kernel_dp_means(
    K, lam, *, collapsed=False, weights=None, labels=None, cap=np.inf, max_iter=300
):
    """DP-means, point by point, from a Gram matrix; returns labels, path and number of sweeps."""
    n = len(K)
    weights = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    order = np.flatnonzero(weights > 0)
    labels = np.zeros(n, dtype=int) if labels is None else without_gaps(np.asarray(labels))[0]
    path, n_iter, counted, fixed = [], 0, 0, False
    while not fixed and counted < max_iter:
        before = labels.copy()
        A = list(mean_coefficients(labels, weights))
        k = len(A)
        for i in order:
            if collapsed:
                cost = []
                for c in range(len(A)):
                    members = (labels == c) & (np.arange(n) != i) & (weights > 0)
                    s = weights[members].sum()
                    a = weights * members / s if s else None
                    scale = weights[i] * s / (weights[i] + s)
                    cost.append(scale * kernel_distance(K, i, a) if s else np.inf)
                live = np.isfinite(cost).sum()
                least = min(*cost, lam if live < cap else np.inf)
                good = np.flatnonzero(np.array(cost) <= least + 1e-12 * (least + K[i, i]))
                was_alone = np.isinf(cost[labels[i]])
                if good.size:
                    labels[i] = good[0]
                elif not was_alone:
                    labels[i] = len(A)
                    A.append(None)
            else:
                distance = np.array([kernel_distance(K, i, a) for a in A])
                labels[i] = np.argmax(distance <= distance.min() + 1e-13 * K[i, i])
                if weights[i] * distance.min() > lam * (1 + 1e-12) and len(A) < cap:
                    labels[i] = len(A)
                    A.append(np.eye(n)[i])
        created = len(A) > k
        fixed = np.array_equal(labels[order], before[order]) and not created
        labels[order], _ = without_gaps(labels[order])
        labels[weights == 0] = 0
        A = mean_coefficients(labels, weights)
        path.append(gram_error(K, labels, weights, A) + lam * len(A))
        n_iter += 1
        counted += not created
    if not collapsed and not fixed:  # nearest mean, without opening
        labels = np.array([np.argmin([kernel_distance(K, i, a) for a in A]) for i in range(n)])
        error = gram_error(K, labels, weights, A)
        labels = without_gaps(labels)[0]
        path.append(error + lam * (labels.max() + 1))
    for i in np.flatnonzero(weights == 0):
        labels[i] = np.argmin([kernel_distance(K, i, a) for a in A])
    return labels, np.array(path), n_iter


def gram_error(K, labels, weights, A):
    """Weighted sum of squared distances to the means with these coefficients."""
    return sum(
        w * kernel_distance(K, i, A[c])
        for i, (w, c) in enumerate(zip(weights, labels, strict=True))
        if w
    )


def kernel_hdp(K, groups, lam_local, lam_global, *, max_iter=300):
    """Algorithm 2 of KJ12 from a Gram matrix; returns labels, path and number of sweeps."""
    n = len(K)
    sets = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    labels = np.zeros(n, dtype=int)
    path, n_iter, fixed = [], 0, False
    while not fixed and n_iter < max_iter:
        before = labels.copy()
        A = list(mean_coefficients(labels, np.ones(n)))
        k = len(A)
        for rows in sets:
            local = set(labels[rows])
            for i in rows:
                cost = [
                    kernel_distance(K, i, a) + (0 if p in local else lam_local)
                    for p, a in enumerate(A)
                ]
                labels[i] = np.argmin(cost)
                if min(cost) > lam_local + lam_global:
                    labels[i] = len(A)
                    A.append(np.eye(n)[i])
                local.add(labels[i])
        for rows in sets:
            for c in np.unique(labels[rows]):
                mine = rows[labels[rows] == c]
                mean = np.zeros(n)
                mean[mine] = 1 / len(mine)
                scatter = sum(kernel_distance(K, i, mean) for i in mine)
                cost = [sum(kernel_distance(K, i, a) for i in mine) for a in A]
                labels[mine] = np.argmin(cost)
                if min(cost) > lam_global + scatter:
                    labels[mine] = len(A)
                    A.append(mean)
        fixed = np.array_equal(labels, before) and len(A) == k
        labels, _ = without_gaps(labels)
        A = mean_coefficients(labels, np.ones(n))
        n_local = sum(len(set(labels[rows])) for rows in sets)
        error = gram_error(K, labels, np.ones(n), A)
        path.append(error + lam_local * n_local + lam_global * len(A))
        n_iter += 1
    return labels, np.array(path), n_iter


def merged(K, groups, lam_local, lam_global, fewest, root, sweeps):
    """Where a start of the HDP begins with init="merge"; objectives are computed from scratch."""
    n = len(K)

    def distances(labels):
        A = mean_coefficients(labels, np.ones(n))
        return np.diag(K) - 2 * A @ K + np.einsum("ci,ij,cj->c", A, K, A)[:, None]

    def objective(labels):
        error = gram_error(K, labels, np.ones(n), mean_coefficients(labels, np.ones(n)))
        pairs = set(zip(groups.tolist(), labels.tolist(), strict=True))
        return error + lam_local * len(pairs) + lam_global * len(set(labels.tolist()))

    points, least = [], distances(np.zeros(n, dtype=int))[0]
    for _ in range(min(n, max(fewest, round(root * np.sqrt(n))))):
        if points and not least.max() > 0:
            break
        points.append(int(least.argmax()))
        apart = np.diag(K) - 2 * K[points] + np.diag(K)[points][:, None]
        apart[np.arange(len(points)), points] = 0
        least = apart.min(axis=0)
    labels = without_gaps(apart.argmin(axis=0))[0]
    for _ in range(sweeps):
        labels = without_gaps(distances(labels).argmin(axis=0))[0]
    best, lowest = labels, objective(labels)
    while labels.max() > 0:
        unions = []
        for a in range(labels.max() + 1):
            for b in range(a + 1, labels.max() + 1):
                union = without_gaps(np.where(labels == b, a, labels))[0]
                unions.append((objective(union), union))
        value, labels = min(unions, key=lambda pair: pair[0])
        if value < lowest:
            best, lowest = labels, value
    return best


def padded_matching(new, old):
    """Link of each cluster (-1: new) by the Hungarian method: every cluster may stay alone."""
    from scipy.optimize import linear_sum_assignment

    k, n_old = old.shape
    alone = np.where(np.eye(k, dtype=bool), np.asarray(new)[:, None], 1e6 + 1e3 * np.abs(new).max())
    rows, columns = linear_sum_assignment(np.hstack([old, alone]))
    return np.where(columns[np.argsort(rows)] < n_old, columns[np.argsort(rows)], -1)


def kernel_cluster_cost(K, mine, lam, cross, norm, gamma, penalty, slot):
    """Cost of the cluster with these points: it continues old cluster ``slot``, or is new."""
    if not len(mine):
        return 0.0
    trace = sum(K[i, i] for i in mine)
    within = sum(K[i, j] for i in mine for j in mine)
    n = len(mine)
    if slot >= len(gamma):
        return lam + trace - within / n
    g = gamma[slot]
    to_old = sum(cross[i, slot] for i in mine)
    return (
        penalty[slot] + trace + g * n / (g + n) * norm[slot] - (within + 2 * g * to_old) / (g + n)
    )


def kernel_dynamic_step(K, cross, norm, gamma, penalty, lam, *, order=None, max_iter=300):
    """Kernel D-Means on one batch: slots of the points (old ones first) and the path."""
    n, n_old = len(K), len(gamma)
    order = range(n) if order is None else order

    def cost(members, slot):
        return kernel_cluster_cost(K, members, lam, cross, norm, gamma, penalty, slot)

    members = {slot: [] for slot in range(n_old)}
    where = np.full(n, -1)
    path = []
    while len(path) < max_iter:
        changed = False
        for i in order:
            own = where[i]
            if own >= 0:
                members[own].remove(i)
            slots = sorted(slot for slot in members if slot < n_old or members[slot] or slot == own)
            if own < n_old or members[own]:
                slots.append(max(members, default=-1) + 1)
            rise = [cost([*members.get(s, []), i], s) - cost(members.get(s, []), s) for s in slots]
            best = slots[int(np.argmin(rise))]
            if own >= 0 and rise[slots.index(own)] <= min(rise) + 1e-12:
                best = own
            members.setdefault(best, []).append(i)
            changed |= best != own
            where[i] = best
        used = [slot for slot in sorted(members) if members[slot]]
        new = np.array([cost(members[slot], n_old) for slot in used])
        old = np.array([[cost(members[slot], k) for k in range(n_old)] for slot in used])
        link = padded_matching(new, old.reshape(len(used), n_old))
        before = sum(cost(members[slot], slot) for slot in used)
        after = sum(new[r] if k < 0 else old[r, k] for r, k in enumerate(link))
        if after < before - 1e-10:
            names, fresh = [], n_old
            for k in link:
                names.append(fresh if k < 0 else k)
                fresh += k < 0
            members = {slot: [] for slot in range(n_old)} | {
                name: members[slot] for name, slot in zip(names, used, strict=True)
            }
            where = np.array([next(s for s in members if i in members[s]) for i in range(n)])
            changed = True
        path.append(min(before, after))
        if not changed:
            break
    return where, np.array(path)


def forward_selection(K, a, budget):
    """Points chosen one by one, each time the one that leaves the least of sum a_m phi(x_m)."""
    chosen = []
    while len(chosen) < budget:
        errors = {}
        for j in set(range(len(a))) - set(chosen):
            subset = [*chosen, j]
            c = np.linalg.lstsq(K[np.ix_(subset, subset)], K[subset] @ a, rcond=None)[0]
            errors[j] = a @ K @ a - 2 * c @ K[subset] @ a + c @ K[np.ix_(subset, subset)] @ c
        chosen.append(min(errors, key=errors.get))
    return chosen


class ExchangeSweep:
    """The sweep of ``kernel_dynamic_step`` from sums that follow each move: the compiled one.

    The clusters are the old ones, then the new ones, those without points too.
    """

    def __init__(self, K, to_old, gamma, norm, penalty, lam, tie):
        self.K, self.n_old, self.lam, self.tie = K, len(gamma), lam, tie
        new = np.zeros(
            len(K)
        )  # as many as there may be: with the first sweep after a matching, 2 n
        self.gamma, self.norm = (np.append(value, [new, new]) for value in (gamma, norm))
        self.base = np.append(penalty, np.full(2 * len(K), lam))
        self.to_old = np.vstack([to_old.T, np.zeros((2 * len(K), len(K)))])
        self.set_clusters(
            np.zeros(0, int), [], np.zeros((0, len(K))), [], np.zeros((0, self.n_old))
        )

    def set_clusters(self, numbers, sizes, to_points, within, cross):
        """Replace all clusters."""
        room = len(self.gamma)
        self.n, self.within, self.cross = np.zeros((3, room))
        self.to_points = np.zeros((room, len(self.K)))
        self.k = self.n_old + np.count_nonzero(numbers >= self.n_old)
        self.n[numbers], self.to_points[numbers], self.within[numbers] = sizes, to_points, within
        for row, k in enumerate(numbers):
            self.cross[k] = cross[row, k] if k < self.n_old else 0.0

    def value(self, k, n, within, cross):
        """Costs of clusters k with these sums, apart from sum_i K_ii."""
        gamma = self.gamma[k]
        with np.errstate(divide="ignore", invalid="ignore"):
            value = self.base[k] + gamma * n / (gamma + n) * self.norm[k]
            value = value - (within + 2.0 * gamma * cross) / (gamma + n)
        return np.where(n > 0, value, 0.0)

    def cheapest(self, i, own):
        """The cluster that point i of cluster ``own`` should be in."""
        k, Kii = np.arange(self.k), self.K[i, i]
        n, within, cross = (sums[: self.k] for sums in (self.n, self.within, self.cross))
        S, to_old = self.to_points[: self.k, i], self.to_old[: self.k, i]
        now = self.value(k, n, within, cross)
        rise = np.append(self.value(k, n + 1, within + 2 * S + Kii, cross + to_old) - now, 0.0)
        rise[self.k] = self.lam - Kii
        rise[: self.k][(k >= self.n_old) & (n == 0)] = np.inf
        if own >= 0:
            without = self.value(k, n - 1, within - 2 * S + Kii, cross - to_old)
            rise[own] = (now - without)[own]
            if own >= self.n_old and n[own] == 1:
                rise[self.k] = np.inf
        good = rise <= rise.min() + self.tie
        return own if own >= 0 and good[own] else int(good.argmax())

    def add(self, k, i, sign):
        """Put point i into cluster k, or take it out."""
        self.within[k] += sign * 2 * self.to_points[k, i] + self.K[i, i]
        self.to_points[k] += sign * self.K[i]
        self.cross[k] += sign * self.to_old[k, i]
        self.n[k] += sign
        if not self.n[k]:
            self.within[k] = self.cross[k] = 0.0
            self.to_points[k] = 0.0

    def run(self, order, labels):
        """Visit all points once; returns how many moved."""
        moved = 0
        for i in order:
            k = self.cheapest(i, labels[i])
            if k == labels[i]:
                continue
            if labels[i] >= 0:
                self.add(labels[i], i, -1)
            self.k = max(self.k, k + 1)
            self.add(k, i, 1)
            labels[i] = k
            moved += 1
        return moved
