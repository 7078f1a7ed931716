"""Moving clusters: D-Means of Campbell, Kulis & How."""

from dataclasses import dataclass

import numpy as np

from twins.exact import squared_distances


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
    Y, centers, weights, ages, lam, q, tau, *, sample_weight=None, order=None, max_iter=300
):
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
                    cost[k] = w[i] * squared_distances(Y[i : i + 1], theta[k][None])[0, 0]
                else:
                    distance = squared_distances(Y[i : i + 1], phi[k][None])[0, 0]
                    cost[k] = q * ages[k] + w[i] * gamma[k] / (w[i] + gamma[k]) * distance
            if len(theta) and cost.min() <= lam:
                k = int(cost.argmin())
                if not count[k]:
                    theta[k] = (gamma[k] * phi[k] + w[i] * Y[i]) / (gamma[k] + w[i])
            else:
                k = len(theta)
                theta.append(Y[i])
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
        objective = 0.0
        for k in range(len(theta)):
            if not count[k]:
                continue
            mine, own = Y[labels == k], w[labels == k]
            total = (own[:, None] * mine).sum(axis=0)
            if k < old:
                theta[k] = (gamma[k] * phi[k] + total) / (gamma[k] + own.sum())
                objective += q * ages[k] + gamma[k] * np.square(theta[k] - phi[k]).sum()
            else:
                theta[k] = total / own.sum()
                objective += lam
            objective += (own * np.square(mine - theta[k]).sum(axis=1)).sum()
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

    def __init__(self, d, lam, *, t_q=None, k_tau=None, q=None, tau=None):
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
            dynamic_step(Y, *args, sample_weight=sample_weight, order=order) for order in orders
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
        cost = squared_distances(X, self.phi)
        if not dormant:
            active = self.ages == 1
            return self.ids[active][cost[:, active].argmin(axis=1)]
        for k, age in enumerate(self.ages - 1):
            if age:
                gamma = 1 / (1 / self.v[k] + self.tau * age)
                cost[:, k] = min(self.q * age, self.lam) + gamma / (1 + gamma) * cost[:, k]
        return self.ids[cost.argmin(axis=1)]
