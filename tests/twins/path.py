"""The mergers of a merge path with the sweeps between them, and the criterion of a clustering."""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

import twins.columns
from twins.exact import nearest, squared_distances, weighted_means, without_gaps


def law_of_distances(r2, w, u, d, counts, labels):
    """Mean of -2 log f for the best law f of squared distances, and whether it is a t law.

    A center takes 1 / n_k of the variance of its n_k rows along; each row gets it back, out of
    the n / (u - K) that K centers of u distinct rows have taken from the mean.
    """
    n, K = w.sum(), len(counts)
    back = n / (u - K) / counts if u > K else np.zeros(K)
    r2 = r2 + (w @ r2) / n * back[labels]
    unit = max((w @ r2) / n / d, 1e-300)
    gauss = d * (np.log(2 * np.pi) + 1)
    if r2.max() < 1.05 * d * unit:
        return gauss + d * np.log(unit), False
    r2, s2, values = r2 / unit, 1.0, []
    for nu in (200, 50, 20, 10, 6, 4, 3):
        for _ in range(2):
            s2 *= (nu + d) / d * (w @ (r2 / (nu * s2 + r2))) / n
        norm = gammaln((nu + d) / 2) - gammaln(nu / 2) - d / 2 * np.log(nu * np.pi * s2)
        values.append((nu + d) * (w @ np.log1p(r2 / (nu * s2))) / n - 2 * norm)
    return min(gauss, *values) + d * np.log(unit), min(values) < gauss


@dataclass
class Described:
    """What the criterion knows of rows before they are in clusters.

    ``u`` is the number of rows that count, ``cap`` the most clusters with a criterion, ``floor``
    the variance within a step of each column; the rows vary in the directions ``basis``.
    """

    u: int
    cap: int
    floor: np.ndarray
    basis: np.ndarray
    few_valued: np.ndarray

    @property
    def price(self):
        """What one more cluster must save."""
        return np.log(self.u) * (1.6 * self.basis.shape[1] + 3)


def described(X, w):
    """Rows that are equal count once, but where all columns were recorded in steps."""
    columns = twins.columns.recorded(X, w)
    different = columns.different
    u, cap = different, different // 3
    if columns.in_steps.all():
        u, cap = len(X), different
    basis = np.eye(X.shape[1])
    if 1 < X.shape[1] < u and columns.repeated.all():
        basis = basis[:, np.ptp(X, axis=0) > 0]
    elif 1 < X.shape[1] < u:
        centered = X - w @ X / w.sum()
        e, V = np.linalg.eigh((centered * w[:, None]).T @ centered)
        rank = max(1, (e > 1e-9 * e[-1]).sum())
        basis = basis if rank == len(e) else V[:, -rank:]
    return Described(u, cap, columns.floor, basis, columns.few_valued)


def path_criterion(X, w, labels, about=None):
    """V of these labels, and the matrix that makes the clusters round (None: they are).

    V = (u / n) (-2 sum_i w_i log f(x_i) - 2 n sum_k p_k log p_k) + log(u) x the price of K
    centers and of f: spherical, spherical but for some directions, in the plane with a
    covariance for each cluster, and a box where there is one cluster. d is the number of
    directions in which the rows vary, if there are more rows than columns. A row is anywhere
    within its step: f is by its expected squares.
    """
    about = described(X, w) if about is None else about
    columns, counts, u, floor = X.shape[1], np.bincount(labels, w), about.u, about.floor
    n, K, unit, d = w.sum(), len(counts), np.log(about.u), about.basis.shape[1]
    means = weighted_means(X, w, labels)
    R = (X - means[labels]) @ about.basis
    F = about.basis.T @ np.diag(floor) @ about.basis  # covariance within a step
    base = -2 * u * (counts / n) @ np.log(counts / n) + about.price * (K - 1) + unit * 2 * d

    def value(r2, logdet, price):
        deviance, is_t = law_of_distances(r2, w, u, d, counts, labels)
        return base + u * (deviance + logdet) + unit * (price + 2 * is_t)

    candidates, metric = [value(np.square(R).sum(axis=1) + np.trace(F), 0, 2)], None
    e, U = np.linalg.eigh((R * w[:, None]).T @ R / n + F)
    e, U = e[::-1].clip(0), U[:, ::-1]
    best = np.inf, 0, None  # cost, long directions, variances
    for q in range(max(0, min(d - 1, u // 3 - K)) + 1):
        variances = np.append(e[:q], np.full(d - q, e[q:].mean()))
        if variances[-1] > 1e-9 * e[0]:
            parameters = d * q - q * (q - 1) / 2
            cost = u * np.log(variances).sum() + 2 * unit * parameters
            if cost < best[0]:
                best = cost, q, variances
                price = 2 * (parameters + 1)
    if best[1] > 0:
        variances = best[2]
        metric = U / np.sqrt(variances)
        r2 = np.square(R @ metric).sum(axis=1) + np.trace(metric.T @ F @ metric)
        candidates.append(value(r2, np.log(variances).sum(), price))
        metric = about.basis @ metric
    if columns == d == 2 and not floor.any():
        # the pooled covariance counts as 3 n / u rows in each cluster
        scale = 1 / max(np.abs(R).max(), 1e-300)
        own = np.zeros((K, 2, 2))
        np.add.at(own, labels, w[:, None, None] * (R * scale)[:, :, None] * (R * scale)[:, None, :])
        some = 3 * n / u
        own = (own + some * own.sum(axis=0) / n) / (counts + some)[:, None, None]
        det = own[:, 0, 0] * own[:, 1, 1] - np.square(own[:, 0, 1])
        trace = own[:, 0, 0] + own[:, 1, 1]
        if det.min() > 1e-9 * det.max() and (det > 1e-9 * trace**2).all():
            r2 = np.einsum("ij,ijk,ik->i", R * scale, np.linalg.inv(own)[labels], R * scale)
            logdet = counts @ np.log(det) / n - 4 * np.log(scale)
            candidates.append(value(r2, logdet, 1.6 * 3 * K))
    varying = np.ptp(X, axis=0) > 0
    if K == 1 and d == varying.sum():
        sides = np.ptp(X, axis=0) + np.sqrt(12 * floor)  # with half a step at both ends
        # rows tell of an end of a box at the rate n, twice as much as of other parameters
        box = 2 * u * np.log(sides[varying]).sum() + unit * 2 * 4 * d
        if box < min(candidates):
            return box, None
    return min(candidates), metric


def own_shapes(X, w, labels, about):
    """V by densities with a shape of their own: a variance of each column, covariances S_k.

    The covariance of a cluster is that of its n_k rows and (d + 2) n / u more of the pooled one.
    The first costs 2 log u a parameter, as other shapes, further ones 1.6 log u, as centers.
    Infinite where a density is singular, or has more parameters than there are rows.
    """
    counts, u, floor = np.bincount(labels, w), about.u, about.floor
    n, K, unit, d = w.sum(), len(counts), np.log(about.u), about.basis.shape[1]
    R = (X - weighted_means(X, w, labels)[labels]) @ about.basis
    F = about.basis.T @ np.diag(floor) @ about.basis
    base = -2 * u * (counts / n) @ np.log(counts / n) + about.price * (K - 1) + unit * 2 * d

    def value(r2, logdet, price):
        deviance, is_t = law_of_distances(r2, w, u, d, counts, labels)
        return base + u * (deviance + logdet) + unit * (price + 2 * is_t)

    candidates = [np.inf]
    used = np.ptp(X, axis=0) > 0
    if d == used.sum():
        R, F = (X - weighted_means(X, w, labels)[labels])[:, used], np.diag(floor[used])
        variance, around = w @ np.square(R) / n + floor[used], X.var(axis=0)[used]
        if (variance > 1e-9 * around).all():
            r2 = (np.square(R) / variance).sum(axis=1) + (floor[used] / variance).sum()
            candidates.append(value(r2, np.log(variance).sum(), 2 * d))
    size = d * (d + 1) // 2
    if d > 2 and K * size <= len(X) and np.bincount(labels).min() > d:
        S = np.array([(R * w[:, None])[labels == k].T @ R[labels == k] for k in range(K)])
        more = (d + 2) * n / u
        S = (S + more * S.sum(axis=0) / n) / (counts + more)[:, None, None] + F
        with np.errstate(divide="ignore"):
            logdet = np.linalg.slogdet(S)[1]
        conditional = 1 / np.diagonal(np.linalg.pinv(S), axis1=1, axis2=2)
        if (conditional > 1e-8 * np.diagonal(S, axis1=1, axis2=2)).all():
            r2 = np.einsum("ij,ijk,ik->i", R, np.linalg.inv(S)[labels], R)
            r2 += np.trace(np.linalg.inv(S) @ F, axis1=1, axis2=2)[labels]
            candidates.append(value(r2, counts @ logdet / n, size * (2 + 1.6 * (K - 1))))
    return min(candidates)


class Descent:
    """Clusters of the rows Y, with k-means sweeps and mergers of pairs."""

    def __init__(self, Y, w):
        self.Y, self.w = Y, w

    def start(self, centers):
        self.labels = without_gaps(nearest(self.Y, centers)[0])[0]
        self.centers = weighted_means(self.Y, self.w, self.labels)
        self.begin()

    def begin(self):
        """The tree begins at the clusters as they are."""
        self.ids, self.tree, self.height = list(range(len(self.centers))), [], 0.0
        self.size = [1] * len(self.centers)

    def run_lloyd(self, sweeps):
        for _ in range(sweeps):
            labels = nearest(self.Y, self.centers)[0]
            if np.array_equal(labels, self.labels):
                break
            self.labels, kept = without_gaps(labels)
            for k in sorted(set(range(len(self.centers))) - set(kept)):
                apart = squared_distances(self.centers[k : k + 1], self.centers[kept])
                self.join(kept[apart.argmin()], k, 0.0)
            self.ids = [self.ids[k] for k in kept]
            self.centers = weighted_means(self.Y, self.w, self.labels)

    def join(self, a, b, cost):
        """Note in the tree that cluster b became part of a."""
        pair = sorted((self.ids[a], self.ids[b]))
        self.height = max(self.height, np.sqrt(2 * cost))
        self.size.append(self.size[pair[0]] + self.size[pair[1]])
        self.tree.append((*pair, self.height, self.size[-1]))
        self.ids[a] = len(self.size) - 1

    def merge(self, count):
        """Ward's mergers, the cheapest first, the lowest indices at a tie."""
        weights = np.bincount(self.labels, self.w)
        centers, alive = self.centers.copy(), np.ones(len(weights), dtype=bool)
        table = np.full((len(weights), len(weights)), np.inf)
        changed = range(len(weights))
        for _ in range(count):
            for k in changed:
                cost = weights * weights[k] / (weights + weights[k])
                cost = cost * squared_distances(centers[k : k + 1], centers)[0]
                cost[~alive] = np.inf
                table[k, k + 1 :], table[:k, k] = cost[k + 1 :], cost[:k]
            a, b = np.unravel_index(table.argmin(), table.shape)
            self.join(a, b, table[a, b])
            centers[a] = (weights[a] * centers[a] + weights[b] * centers[b]) / (
                weights[a] + weights[b]
            )
            weights[a] += weights[b]
            self.labels[self.labels == b] = a
            alive[b], table[b], table[:, b] = False, np.inf, np.inf
            changed = [a]
        self.labels, kept = without_gaps(self.labels)
        self.ids = [self.ids[k] for k in kept]
        self.centers = weighted_means(self.Y, self.w, self.labels)
