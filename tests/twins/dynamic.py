"""Moving clusters: D-Means of Campbell, Kulis & How, also with a divergence or directions for D."""

import math
from dataclasses import dataclass

import numpy as np

from twins.bregman import OFF_BORDER, divergences
from twins.exact import squared_distances


def differences(X, centers, name):
    """All D(x_i, c): a divergence, or 1 - cosine."""
    if name == "directions":
        return squared_distances(X, centers) / 2
    return divergences(X, centers, name)


def difference(x, center, name):
    """D(x, c)."""
    return differences(x[None], center[None], name)[0, 0]


def best_center(phi, gamma, total, weight, name):
    """The best center for gamma points at phi and points of this sum and total weight."""
    center = (gamma * phi + total) / (gamma + weight)
    return center / np.sqrt(np.square(center).sum()) if name == "directions" else center


def off_border(center, share, mean, name):
    """The center moved off the border of the domain by the mean, as a tenth of this share."""
    border = {"kl": [0], "logistic": [0, 1]}.get(name, [])
    return np.where(np.isin(center, border), center + OFF_BORDER * share * (mean - center), center)


def revival(y, w, phi, gamma, name):
    """The best center for gamma points at phi and w at y, and what it costs both."""
    m = best_center(phi, gamma, w * y, w, name)
    return m, gamma * difference(phi, m, name) + w * difference(y, m, name)


def best_centers(Y, w, labels, phi, gamma, price, lam, name):
    """The best center of each cluster that has points, the old ones first, and the objective."""
    centers, objective = {}, 0.0
    for k in np.unique(labels):
        mine, own = Y[labels == k], w[labels == k]
        is_old, total = k < len(phi), (own[:, None] * mine).sum(axis=0)
        centers[k] = best_center(
            *((phi[k], gamma[k]) if is_old else (0.0, 0.0)), total, own.sum(), name
        )
        objective += own @ differences(mine, centers[k][None], name)[:, 0]
        objective += price[k] + gamma[k] * difference(phi[k], centers[k], name) if is_old else lam
    return centers, objective


@dataclass
class Step:
    """One time step of D-Means: clusters are the old ones in their order, then the new ones."""

    labels: np.ndarray
    centers: np.ndarray
    weight_sums: np.ndarray
    objective: float
    path: np.ndarray
    n_iter: int


def dynamic_step(
    Y, centers, weights, ages, lam, q, tau, *, sample_weight=None, order=None, max_iter=300,
    name="squared_euclidean",
):  # fmt: skip
    """D-Means on one batch: revive old clusters, open new ones, move the means, repeat."""
    Y = np.asarray(Y, dtype=float)
    w = np.ones(len(Y)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    order = range(len(Y)) if order is None else order
    phi = np.asarray(centers, dtype=float).reshape(-1, Y.shape[1])
    old = len(phi)
    gamma = 1 / (1 / np.asarray(weights, dtype=float) + tau * np.asarray(ages, dtype=float))
    theta = list(phi)
    count = [0] * old
    gone = set()
    mean = np.average(Y, axis=0, weights=w)
    labels = np.full(len(Y), -1)
    path, n_iter = [], 0
    while n_iter < max_iter:
        before = labels.copy()
        for i in order:
            cost = np.empty(len(theta))
            for k in range(len(theta)):
                if k in gone:
                    cost[k] = np.inf
                elif count[k]:
                    cost[k] = w[i] * difference(Y[i], theta[k], name)
                elif name != "squared_euclidean":
                    both = revival(Y[i], w[i], phi[k], gamma[k], name)[1]
                    cost[k] = min(q * ages[k], lam) + both
                else:
                    distance = squared_distances(Y[i : i + 1], phi[k][None])[0, 0]
                    cost[k] = q * ages[k] + w[i] * gamma[k] / (w[i] + gamma[k]) * distance
            if len(theta) and cost.min() <= lam:
                k = int(cost.argmin())
                if not count[k]:
                    theta[k] = revival(Y[i], w[i], phi[k], gamma[k], name)[0]
                    moved = off_border(theta[k], w[i] / (gamma[k] + w[i]), mean, name)
                    price = min(q * ages[k], lam) + gamma[k] * difference(phi[k], moved, name)
                    cost[k] = lam  # now the least of the alternatives is min(cost)
                    if price + w[i] * difference(Y[i], moved, name) < cost.min():
                        theta[k] = moved
            else:
                k = len(theta)
                moved = off_border(Y[i], 1.0, mean, name)
                pays = lam + w[i] * difference(Y[i], moved, name) < cost.min(initial=np.inf)
                theta.append(moved if pays else Y[i])
                count.append(0)
            count[k] += 1
            left, labels[i] = labels[i], k
            if left >= 0:
                count[left] -= 1
                if not count[left]:
                    if left >= old:
                        gone.add(left)
                    else:
                        theta[left] = phi[left]
        moved, objective = best_centers(Y, w, labels, phi, gamma, q * np.asarray(ages), lam, name)
        theta = [moved.get(k, center) for k, center in enumerate(theta)]
        n_iter += 1
        path.append(objective)
        if np.array_equal(labels, before) or (n_iter > 1 and not path[-1] < path[-2]):
            break
    kept = np.array([k for k in range(len(theta)) if k not in gone], dtype=int)
    labels = np.searchsorted(kept, labels)
    theta = np.array([theta[k] for k in kept]).reshape(-1, Y.shape[1])
    weight_sums = np.bincount(labels, w, minlength=len(kept))
    return Step(labels, theta, weight_sums, path[-1], np.array(path), n_iter)


class Stream:
    """A stream: one step after the other, and what clusters remember."""

    def __init__(self, d, lam, *, t_q=None, k_tau=None, q=None, tau=None, name="squared_euclidean"):
        self.name = name
        if t_q is None and q is None:
            t_q, k_tau = 6.8, 1.01
        if q is None:
            q = lam / t_q
            tau = k_tau - 1 if np.isinf(t_q) else (t_q * (k_tau - 1) + 1) / (t_q - 1)
        self.lam, self.q, self.tau, self.t_q = lam, q, tau, t_q
        self.phi, self.v, self.ages = np.zeros((0, d)), np.zeros(0), np.zeros(0, dtype=int)
        self.ids, self.next_id = np.zeros(0, dtype=int), 0

    def starts(self, Y, orders, sample_weight=None):
        """The step from each order of the points, of these weights."""
        args = (self.phi, self.v, self.ages, self.lam, self.q, self.tau)
        return [
            dynamic_step(Y, *args, sample_weight=sample_weight, order=order, name=self.name)
            for order in orders
        ]

    def ids_after(self, step):
        """Numbers of the clusters of a step, those that are new counted on."""
        new = len(step.weight_sums) - len(self.ids)
        return np.append(self.ids, self.next_id + np.arange(new))

    def take(self, step):
        """Go on with this step (None: no rows); returns who was born, died, came back, was seen."""
        weight_sums = np.zeros(len(self.ids)) if step is None else step.weight_sums
        centers = self.phi if step is None else step.centers
        ids = self.ids if step is None else self.ids_after(step)
        old, new, active = len(self.ids), len(weight_sums) - len(self.ids), weight_sums > 0
        gamma = np.append(1 / (1 / self.v + self.tau * self.ages), np.zeros(new))
        v = np.where(active, gamma + weight_sums, np.append(self.v, np.zeros(new)))
        revived = ids[:old][active[:old] & (self.ages > 1)]
        ages = np.where(active, 1, np.append(self.ages, np.zeros(new, dtype=int)) + 1)
        dead = self.q * ages > self.lam if self.t_q is None else ages > self.t_q
        self.phi, self.v, self.ages, self.ids = centers[~dead], v[~dead], ages[~dead], ids[~dead]
        self.next_id += new
        return ids[old:], ids[dead], revived, ids[active], centers[active]

    def predict(self, X, dormant=False):
        """The nearest active cluster; or the cheapest of all for one more row of the last step."""
        X = np.asarray(X, dtype=float)
        cost = differences(X, self.phi, self.name)
        if not dormant:
            active = self.ages == 1
            return self.ids[active][cost[:, active].argmin(axis=1)]
        for k, age in enumerate(self.ages - 1):
            if age:
                gamma = 1 / (1 / self.v[k] + self.tau * age)
                cost[:, k] = min(self.q * age, self.lam) + gamma / (1 + gamma) * cost[:, k]
                for i, y in enumerate(X if self.name != "squared_euclidean" else []):
                    both = revival(y, 1, self.phi[k], gamma, self.name)[1]
                    cost[i, k] = min(self.q * age, self.lam) + both
        return self.ids[cost.argmin(axis=1)]


def record_criterion(steps, numbers, labels, weights, least=0.0):
    """-2 log p(rows, labels) of a record, step by step and cluster by cluster; s^2, r by a grid."""
    X, w, z = np.concatenate(steps), np.concatenate(weights), np.concatenate(labels)
    C = np.cov(X.T, aweights=w, ddof=0).reshape(X.shape[1], X.shape[1])
    d = np.trace(C) ** 2 / (C**2).sum()
    spread = np.trace(C) / d
    sights = {}  # cluster -> (time, weight, mean, scatter) of each step that it is seen in
    code = 0.0
    for time, rows, own, mine in zip(numbers, steps, weights, labels, strict=True):
        sizes = []
        for k in np.unique(mine):
            n, there = own[mine == k].sum(), rows[mine == k]
            mean = own[mine == k] @ there / n
            scatter = own[mine == k] @ ((there - mean) ** 2).sum(axis=1)
            sights.setdefault(k, []).append((time, n, mean, scatter))
            sizes.append(n)
        n, m = sum(sizes), len(sizes)
        code += math.lgamma(n + 1) - sum(math.lgamma(size + 1) for size in sizes)
        n = max(n, m)  # weights below 1
        code += math.lgamma(n) - math.lgamma(m) - math.lgamma(n - m + 1)  # log C(n - 1, m - 1)
    births = [sum(seen[0][0] == time for seen in sights.values()) for time in numbers]
    rate = np.mean(births)
    code -= sum(b * math.log(rate) - rate - math.lgamma(b + 1) for b in births)
    lived = sum(seen[-1][0] - seen[0][0] for seen in sights.values())
    ended = sum(seen[-1][0] < numbers[-1] for seen in sights.values())
    again = sum(len(seen) - 1 for seen in sights.values())
    for a, b in ((ended, lived), (again, lived - again)):
        code -= sum(x * math.log(x / (a + b)) for x in (a, b) if x)

    def rows_at(r):
        square, log_det = 0.0, 0.0
        for seen in sights.values():
            before = None
            for time, n, mean, scatter in seen:
                square, log_det = square + scatter, log_det + math.log(n)
                if before is None:
                    center, variance = mean, 1 / n
                else:
                    predicted = variance + r * (time - before)
                    square += ((mean - center) ** 2).sum() / (predicted + 1 / n)
                    log_det += math.log(predicted + 1 / n)
                    gain = predicted / (predicted + 1 / n)
                    center, variance = center + gain * (mean - center), predicted * (1 - gain)
                before = time
        free = w.sum() - len(sights)
        s2 = max(least, square / (free * d))
        value = d * (free * math.log(2 * math.pi * s2) + log_det) + square / s2
        return value + len(sights) * d * (math.log(2 * math.pi * spread) + 1)

    assert set(sights) == set(z)
    return min(rows_at(math.exp(x)) for x in np.linspace(-14, 8, 441)) + 2 * code
