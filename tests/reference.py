"""Plain numpy twins of the compiled sweeps, written to be read next to the papers.

KJ12 is Kulis & Jordan, *Revisiting k-means: new algorithms via Bayesian nonparametrics*
(2012); MB13 is Broderick, Kulis & Jordan, *MAD-Bayes* (2013). In all of them ``lam`` is
the penalty of a cluster in squared data units and ``weights`` are masses.

Every decision compares the float64 sum of squared differences, added in the order of
the columns; ties go to the lowest index; rows without weight take no part and get the
label of their nearest center in the end.

Features (X is about Z A, Z binary) stand at the end of the file.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

RUN = 256  # rows whose distances `serial` takes at once; no result depends on it


@dataclass
class Result:
    """What a fit returns; `objective_path` holds one value per sweep (and closing pass)."""

    labels: np.ndarray
    centers: np.ndarray
    objective: float
    objective_path: np.ndarray
    n_iter: int
    converged: bool

    @property
    def n_clusters(self):
        """Number of clusters."""
        return len(self.centers)


def squared_distances(X, centers):
    """All ||x_i - c||^2, the columns added one after the other."""
    total = np.zeros((len(X), len(centers)))
    for j in range(X.shape[1]):
        total += np.square(X[:, j, None] - centers[None, :, j])
    return total


def nearest(X, centers):
    """Index of, and squared distance to, the nearest center of each row."""
    labels, distances = np.empty(len(X), dtype=int), np.empty(len(X))
    for start in range(0, len(X), RUN):
        run = slice(start, start + RUN)
        table = squared_distances(X[run], centers)
        labels[run] = table.argmin(axis=1)
        distances[run] = table.min(axis=1)
    return labels, distances


def weighted_means(X, weights, labels):
    """Mean of each cluster 0..K-1 (none empty), summed in extended precision."""
    order = np.argsort(labels, kind="stable")
    first = np.searchsorted(labels[order], np.arange(labels.max() + 1))
    w = weights[order].astype(np.longdouble)[:, None]
    total = np.add.reduceat(w * X[order], first, axis=0)
    return (total / np.add.reduceat(w, first, axis=0)).astype(float)


def sum_of_squares(X, weights, labels, centers):
    """Weighted SSE of given labels and centers."""
    return float(weights @ np.square(X - centers[labels]).sum(axis=1))


def without_gaps(labels):
    """Labels renumbered 0..K-1 in their old order, and the old numbers that are kept."""
    kept, labels = np.unique(labels, return_inverse=True)
    return labels, kept


def _prepare(X, weights, order):
    """Data in float64, weights, and the rows with weight in the order of visit."""
    X = np.asarray(X, dtype=float)
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    order = np.arange(len(X)) if order is None else np.asarray(order)
    return X, weights, order[weights[order] > 0]


def _serial_sweep(X, w, lam, centers, cap):
    """One pass of Algorithm 1 over the rows in order; returns labels and centers.

    Centers do not move within a sweep, so a run of rows may take its distances to the
    centers known so far at once; only the centers that the run itself opens must be
    compared with its later rows, one by one.
    """
    labels = np.empty(len(X), dtype=int)
    for start in range(0, len(X), RUN):
        run = slice(start, start + RUN)
        x, label, dist = X[run], labels[run], np.empty(len(X[run]))
        label[:], dist[:] = nearest(x, centers)
        i = 0
        while len(centers) < cap and np.any(w[run][i:] * dist[i:] > lam):
            i += np.argmax(w[run][i:] * dist[i:] > lam)
            label[i] = len(centers)
            centers = np.vstack([centers, x[i]])
            i += 1
            to_new = squared_distances(x[i:], centers[-1:])[:, 0]
            closer = to_new < dist[i:]
            label[i:][closer] = len(centers) - 1
            dist[i:][closer] = to_new[closer]
    return labels, centers


def _literal_sweep(X, w, lam, centers, cap):
    """One pass of Algorithm 1 without any shortcut (slow)."""
    centers = [list(map(float, c)) for c in centers]
    labels = []
    for x, w_i in zip(X.tolist(), w.tolist(), strict=True):
        d = []
        for c in centers:
            total = 0.0
            for x_j, c_j in zip(x, c, strict=True):
                total += (x_j - c_j) * (x_j - c_j)
            d.append(total)
        if w_i * min(d) > lam and len(centers) < cap:
            labels.append(len(centers))
            centers.append(x)
        else:
            labels.append(d.index(min(d)))
    return np.array(labels), np.array(centers)


def _delayed_sweep(X, w, lam, centers, cap):
    """All rows join their nearest center; then the farthest one may leave it."""
    labels, dist = nearest(X, centers)
    far = np.argmax(w * dist)
    if w[far] * dist[far] > lam and len(centers) < cap:
        labels[far] = len(centers)
        centers = np.vstack([centers, X[far]])
    return labels, centers


def _alternate(sweep, X, lam, weights, init, max_clusters, max_iter, tol, order):
    """Repeat `sweep` and the step of the means until nothing changes."""
    X_all, weights, rows = _prepare(X, weights, order)
    X, w = X_all[rows], weights[rows]
    cap = np.inf if max_clusters is None else max_clusters
    given = init is not None
    labels = np.zeros(len(X), dtype=int)
    centers = np.array(init, dtype=float) if given else weighted_means(X, w, labels)
    path, n_iter, counted = [], 0, 0
    fixed = settled = False
    while not (fixed or settled) and counted < max_iter:
        previous, n_before = labels, len(centers)
        labels, centers = sweep(X, w, lam, centers, cap)
        created = len(centers) > n_before
        fixed = not created and np.array_equal(labels, previous) and not (given and n_iter == 0)
        labels, _ = without_gaps(labels)
        centers = weighted_means(X, w, labels)
        path.append(sum_of_squares(X, w, labels, centers) + lam * len(centers))
        settled = tol > 0 and n_iter > 0 and path[-2] - path[-1] <= tol * path[0]
        n_iter += 1
        counted += not created
    if not fixed:
        labels, kept = without_gaps(nearest(X, centers)[0])
        centers = centers[kept]
        path.append(sum_of_squares(X, w, labels, centers) + lam * len(centers))
    all_labels = nearest(X_all, centers)[0]
    all_labels[rows] = labels
    return Result(all_labels, centers, path[-1], np.array(path), n_iter, fixed or settled)


def serial(
    X, lam, *, weights=None, init=None, max_clusters=None, max_iter=300, tol=0.0, order=None
):
    """Algorithm 1 of KJ12; `order` is the order of visit."""
    return _alternate(_serial_sweep, X, lam, weights, init, max_clusters, max_iter, tol, order)


def serial_literal(
    X, lam, *, weights=None, init=None, max_clusters=None, max_iter=300, tol=0.0, order=None
):
    """`serial`, one distance at a time: slow, for small data."""
    return _alternate(_literal_sweep, X, lam, weights, init, max_clusters, max_iter, tol, order)


def delayed(X, lam, *, weights=None, init=None, max_clusters=None, max_iter=300, tol=0.0):
    """DP-means that opens at most one cluster in a sweep, at its end: the farthest row."""
    return _alternate(_delayed_sweep, X, lam, weights, init, max_clusters, max_iter, tol, None)


def collapsed(
    X, lam, *, weights=None, init=None, max_clusters=None, max_iter=300, tol=0.0, order=None
):
    """Collapsed DP-means (MB13 eq. 8-9): the objective in the labels alone.

    Row i leaves its cluster and goes where the objective is lowest: joining a cluster of
    weight s and mean m costs w s / (w + s) ||x - m||^2, being alone costs lam. Costs that
    differ by what rounding may make of them are ties: means are good to 1e-12 of ||x||.
    """
    X_all, weights, rows = _prepare(X, weights, order)
    X, w = X_all[rows], weights[rows]
    cap = np.inf if max_clusters is None else max_clusters
    labels = np.zeros(len(X), dtype=int)
    if init is not None:
        labels, _ = without_gaps(nearest(X, np.array(init, dtype=float))[0])
    origin = weighted_means(X, w, np.zeros(len(X), dtype=int))[0]
    Y = X - origin
    varies = np.ptp(X, axis=0) > 0
    noise = np.square(np.abs(X).max(axis=0)[varies] * 2.0**-49).sum()
    length = np.sqrt(np.square(Y).sum(axis=1))
    path, n_iter, counted = [], 0, 0
    fixed = settled = False
    while not (fixed or settled) and counted < max_iter:
        before = labels.copy()
        n_before = labels.max() + 1
        size = np.bincount(labels)
        mass = np.bincount(labels, w)
        mean = weighted_means(Y, w, labels)
        for i in range(len(Y)):
            c = labels[i]
            size[c] -= 1
            if size[c]:
                mean[c] -= w[i] / (mass[c] - w[i]) * (Y[i] - mean[c])
                mass[c] -= w[i]
            live = size > 0
            cost = np.where(
                live, w[i] * mass / (w[i] + mass) * np.square(mean - Y[i]).sum(axis=1), np.inf
            )
            cost_alone = lam if live.sum() < cap else np.inf
            least = min(cost.min(), cost_alone)
            tie = 1e-12 * (least + np.sqrt(least * w[i]) * length[i]) + w[i] * noise
            good = np.flatnonzero(live & (cost <= least + tie))
            if good.size:
                new = good[0]
            elif not live[c]:
                new = c  # a singleton that stays alone keeps its number
            else:
                new = len(size)
                size, mass = np.append(size, 0), np.append(mass, 0.0)
                mean = np.vstack([mean, Y[i]])
            if size[new]:
                mass[new] += w[i]
                mean[new] += w[i] / mass[new] * (Y[i] - mean[new])
            else:
                mass[new], mean[new] = w[i], Y[i]
            size[new] += 1
            labels[i] = new
        created = len(size) > n_before
        fixed = np.array_equal(labels, before) and not (init is not None and n_iter == 0)
        labels, _ = without_gaps(labels)
        centers = weighted_means(X, w, labels)
        path.append(sum_of_squares(X, w, labels, centers) + lam * len(centers))
        settled = tol > 0 and n_iter > 0 and path[-2] - path[-1] <= tol * path[0]
        n_iter += 1
        counted += not created
    all_labels = nearest(X_all, centers)[0]
    all_labels[rows] = labels
    return Result(all_labels, centers, path[-1], np.array(path), n_iter, fixed or settled)


def farthest_first(X, n_clusters):
    """Penalty for a guessed number of clusters (KJ12 section 6.1)."""
    X = np.asarray(X, dtype=float)
    distances = squared_distances(X, weighted_means(X, np.ones(len(X)), np.zeros(len(X), int)))
    distances = distances[:, 0]
    found = []
    for _ in range(n_clusters):
        far = np.argmax(distances)
        found.append(float(distances[far]))
        distances = np.minimum(distances, squared_distances(X, X[far : far + 1])[:, 0])
    if found[-1] > 0:
        return found[-1]
    return min((value for value in found if value > 0), default=1.0)


def minibatch_step(X, centers, counts, lam, *, weights=None, max_clusters=None):
    """One batch of streaming DP-means: returns labels, centers and their weights.

    While a row of the batch is beyond lam, the farthest one opens a center at itself.
    Then all rows join their nearest center, and every center becomes the mean of all
    the mass it has ever received (learning rate: new mass / all mass).
    """
    X, w, rows = _prepare(X, weights, None)
    cap = np.inf if max_clusters is None else max_clusters
    centers = np.array(centers, dtype=float)
    counts = np.array(counts, dtype=float)
    while len(centers) < cap:
        distances = nearest(X[rows], centers)[1]
        far = np.argmax(w[rows] * distances)
        if not w[rows][far] * distances[far] > lam:
            break
        centers = np.vstack([centers, X[rows][far]])
        counts = np.append(counts, 0.0)
    labels = nearest(X, centers)[0]
    new_mass = np.bincount(labels, w, minlength=len(centers))
    for c in np.flatnonzero(new_mass):
        counts[c] += new_mass[c]
        batch_mean = np.average(X[labels == c], axis=0, weights=w[labels == c])
        centers[c] += new_mass[c] / counts[c] * (batch_mean - centers[c])
    return labels, centers, counts


# Feature allocations (MB13 sections 3 to 5): minimize ||X - Z A||^2 + lam K, Z binary.


@dataclass
class Features:
    """What a fit of features returns; `path` holds the objective after every sweep.

    `tied`: on the way Z'Z was singular with K fixed, so that different rows of Z had equal sums.
    """

    Z: np.ndarray
    A: np.ndarray
    objective: float
    error: float
    path: np.ndarray
    n_iter: int
    converged: bool
    tied: bool


def feature_error(X, Z, A, w):
    """Weighted ||X - Z A||^2."""
    return float(w @ np.square(X - Z @ A).sum(axis=1))


def least_squares(X, Z, w):
    """The A of minimum norm among those that minimize the weighted ||X - Z A||^2."""
    if not Z.shape[1]:
        return np.zeros((0, X.shape[1]))
    root = np.sqrt(w)[:, None]
    return np.linalg.lstsq(root * Z, root * X, rcond=1e-9)[0]


def independent_columns(Z, w):
    """The columns that do not depend on earlier ones."""
    kept = []
    for k in range(Z.shape[1]):
        if np.linalg.matrix_rank(np.sqrt(w)[:, None] * Z[:, [*kept, k]], tol=1e-6) > len(kept):
            kept.append(k)
    return kept


def uniforms(state):
    """The numbers in [0, 1) of the generator splitmix64."""
    mask = 2**64 - 1
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        yield ((z ^ (z >> 31)) >> 11) * 2.0**-53


def seed_features(X, random, *, lam=None, cap, mean, weights=None):
    """The greedy start (MB13 section 5); lam=None is a fixed number of features, `cap`.

    The first feature is the mean, used by all, or there is none yet. A row drawn with
    probability proportional to its squared residual gives its residual as a feature, which
    every row takes whose residual strictly shrinks.
    """
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    A = (w @ X / w.sum())[None] if mean else np.zeros((0, X.shape[1]))
    Z = np.ones((len(X), len(A)), dtype=int)
    energy = w @ np.square(X).sum(axis=1)
    while len(A) < cap:
        R = X - Z @ A
        square = np.square(R).sum(axis=1)
        if not w @ square > 1e-26 * energy:
            break
        f = R[np.searchsorted(np.cumsum(w * square), next(random) * (w @ square), side="right")]
        joined = np.square(R - f).sum(axis=1) < square
        gain = w @ np.where(joined, square - np.square(R - f).sum(axis=1), 0)
        if lam is not None and not gain > lam:
            break
        A, Z = np.vstack([A, f]), np.column_stack([Z, joined.astype(int)])
    if lam is None:
        unused = cap - len(A)
        A = np.vstack([A, np.zeros((unused, X.shape[1]))])
        Z = np.column_stack([Z, np.zeros((len(X), unused), dtype=int)])
    return Z, A


def farthest_first_features(X, n_components):
    """Penalty for a guessed number of features: the least that one of them saves.

    Each is the longest residual that the earlier ones leave, used by all rows whose own
    residual shrinks; those with nothing to explain do not count.
    """
    R = np.array(X, dtype=float)
    energy = np.square(R).sum()
    saved = []
    for _ in range(n_components):
        square = np.square(R).sum(axis=1)
        if not square.sum() > 1e-26 * energy:
            break
        f = R[square.argmax()].copy()
        joined = np.square(R - f).sum(axis=1) < square
        R[joined] -= f
        saved.append(square.sum() - np.square(R).sum())
    return min(saved, default=1.0)


def _bp_sweep(X, w, lam, Z, A, cap):
    """One pass of BP-means over the rows; returns Z and A with the features it opened."""
    created = 0
    for n in range(len(X)):
        k = 0
        while k < len(A):
            cost = np.empty(2)
            for value in (0, 1):
                Z_nk = Z[n].copy()
                Z_nk[k] = value
                used = value or Z[:, k].sum() > Z[n, k]
                cost[value] = w[n] * np.square(X[n] - Z_nk @ A).sum() + lam * used
            if cost[1 - Z[n, k]] < cost[Z[n, k]]:
                Z[n, k] = 1 - Z[n, k]
            if Z[:, k].any():
                k += 1
            else:
                Z, A = np.delete(Z, k, axis=1), np.delete(A, k, axis=0)
        residual = X[n] - Z[n] @ A
        if w[n] * (residual @ residual) > lam and len(A) < cap:
            A = np.vstack([A, residual])
            Z = np.column_stack([Z, np.arange(len(X)) == n])
            created += 1
    return Z, A, created


def _k_features_sweep(X, w, Z, A, exact):
    """One pass of K-features; a feature that nobody uses restarts as the largest residual."""
    rows = np.array(list(product((0, 1), repeat=len(A)))) if exact else None
    for n in range(len(X)):
        if exact:
            costs = np.square(X[n] - rows @ A).sum(axis=1)
            if costs.min() < costs[(rows == Z[n]).all(axis=1)]:
                Z[n] = rows[costs.argmin()]
            continue
        for k in range(len(A)):
            cost = np.empty(2)
            for value in (0, 1):
                Z_nk = Z[n].copy()
                Z_nk[k] = value
                cost[value] = np.square(X[n] - Z_nk @ A).sum()
            if cost[1 - Z[n, k]] < cost[Z[n, k]]:
                Z[n, k] = 1 - Z[n, k]
    for k in np.flatnonzero(~Z.any(axis=0)):
        square = w * np.square(X - Z @ A).sum(axis=1)
        if not square.max() > 1e-26 * (w @ np.square(X).sum(axis=1)):
            break
        n = square.argmax()
        A[k] = X[n] - Z[n] @ A
        Z[n, k] = 1
    return Z, A


def _collapsed_objective(X, Z, w, lam):
    """tr X'(I - Z (Z'Z)^-1 Z') X + lam K (MB13 eq. 10)."""
    return feature_error(X, Z, least_squares(X, Z, w), w) + lam * Z.shape[1]


def _collapsed_bp_sweep(X, w, lam, Z, cap):
    """One pass of collapsed BP-means, everything evaluated directly."""
    created = 0
    for n in range(len(X)):
        others = np.arange(len(X)) != n
        kept = independent_columns(Z[others], w[others])

        def cost(z, Z=Z, others=others, n=n, kept=kept):
            rows = Z[:, kept].copy()
            rows[n] = z
            rest = feature_error(
                X[others],
                rows[others],
                least_squares(X[others], rows[others], w[others]),
                w[others],
            )
            return feature_error(X, rows, least_squares(X, rows, w), w) - rest

        old = cost(Z[n, kept]) if len(kept) == Z.shape[1] else lam
        margin = 1e-9 * (old + 1e-9 * w[n] * (X[n] @ X[n]))
        z = Z[n, kept].copy()
        best = cost(z)
        flipped = True
        while flipped:
            flipped = False
            for k in range(len(kept)):
                z_k = z.copy()
                z_k[k] = 1 - z[k]
                if cost(z_k) < best - margin:
                    z, best, flipped = z_k, cost(z_k), True
        alone = lam < best - margin and len(kept) < cap
        if (lam if alone else best) < old - margin:
            Z = Z[:, kept].copy()
            Z[n] = z
            if alone:
                Z = np.column_stack([Z, ~others])
                created += 1
    return Z, created


def _settle(X, w, lam, Z):
    """Least squares for Z, without the columns that do nothing unless K is fixed (lam=None)."""
    if lam is None:
        return Z, least_squares(X, Z, w)
    Z = Z[:, independent_columns(Z, w)]
    A = least_squares(X, Z, w)
    useful = (w @ Z) * np.square(A).sum(axis=1) > 1e-26 * (w @ np.square(X).sum(axis=1))
    return Z[:, useful], A[useful]


def _iterate(X, w, lam, Z, A, sweep, max_iter, tol):
    """Repeat `sweep` and least squares until Z stays. A=None: least squares for Z."""
    settled = A is None
    if settled:
        Z, A = _settle(X, w, lam, Z)
    path, n_iter, counted = [], 0, 0
    fixed = enough = tied = False
    while not (fixed or enough) and counted < max_iter:
        before = Z
        tied = tied or np.linalg.matrix_rank(Z) < Z.shape[1]
        Z, A, created = sweep(Z.copy(), A.copy())
        Z, A = _settle(X, w, lam, Z)
        fixed = settled and Z.shape == before.shape and np.array_equal(Z, before)
        settled = True
        path.append(feature_error(X, Z, A, w) + (0 if lam is None else lam * len(A)))
        enough = tol > 0 and n_iter > 0 and path[-2] - path[-1] <= tol * path[0]
        n_iter += 1
        counted += not created
    error = feature_error(X, Z, A, w)
    return Features(Z, A, path[-1], error, np.array(path), n_iter, fixed or enough, tied)


def bp_means(
    X, lam, Z, A=None, *, collapsed=False, max_features=None, weights=None, max_iter=300, tol=0.0
):
    """BP-means (MB13 eq. 6), or its collapsed form (eq. 10), from Z and A."""
    X = np.asarray(X, dtype=float)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    cap = np.inf if max_features is None else max_features

    def sweep(Z, A):
        if collapsed:
            Z, created = _collapsed_bp_sweep(X, w, lam, Z, cap)
            return Z, A, created
        return _bp_sweep(X, w, lam, Z, A, cap)

    A = None if collapsed else A
    return _iterate(X, w, lam, np.array(Z, dtype=int), A, sweep, max_iter, tol)


def k_features(X, Z, A=None, *, exact=False, weights=None, max_iter=300, tol=0.0):
    """K-features (MB13 eq. 14) from Z and A."""
    X = np.asarray(X, dtype=float)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)

    def sweep(Z, A):
        return *_k_features_sweep(X, w, Z, A, exact), 0

    return _iterate(X, w, None, np.array(Z, dtype=int), A, sweep, max_iter, tol)


def encode(X, A, *, exact=False):
    """Rows of Z for given features: coordinate passes from zero, or the best of all rows."""
    X = np.asarray(X, dtype=float)
    Z = np.zeros((len(X), len(A)), dtype=int)
    while True:
        before = Z.copy()
        w = np.zeros(len(X))  # no feature restarts: no residual has any weight
        Z, _ = _k_features_sweep(X, w, Z, A.copy(), exact)
        if exact or np.array_equal(Z, before):
            return Z


# Moving clusters (Campbell, Kulis & How) and shared ones (KJ12 Algorithm 2).


@dataclass
class Step:
    """One time step of D-Means: clusters are the old ones in their order, then the new ones."""

    labels: np.ndarray
    centers: np.ndarray
    counts: np.ndarray
    objective: float
    path: np.ndarray
    n_iter: int


def dynamic_step(Y, centers, weights, ages, lam, q, tau, *, order=None, max_iter=300):
    """D-Means on one batch: revive old clusters, open new ones, move the means, repeat."""
    Y = np.asarray(Y, dtype=float)
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
                    cost[k] = squared_distances(Y[i : i + 1], theta[k][None])[0, 0]
                else:
                    distance = squared_distances(Y[i : i + 1], phi[k][None])[0, 0]
                    cost[k] = q * ages[k] + gamma[k] / (1 + gamma[k]) * distance
            if len(theta) and cost.min() <= lam:
                k = int(cost.argmin())
                if not count[k]:
                    theta[k] = (gamma[k] * phi[k] + Y[i]) / (gamma[k] + 1)
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
            mine = Y[labels == k]
            if k < old:
                theta[k] = (gamma[k] * phi[k] + mine.sum(axis=0)) / (gamma[k] + count[k])
                objective += q * ages[k] + gamma[k] * np.square(theta[k] - phi[k]).sum()
            else:
                theta[k] = mine.sum(axis=0) / count[k]
                objective += lam
            objective += np.square(mine - theta[k]).sum()
        n_iter += 1
        path.append(objective)
        if np.array_equal(labels, before) or (n_iter > 1 and not path[-1] < path[-2]):
            break
    kept = np.array([k for k in range(len(theta)) if k not in gone], dtype=int)
    labels = np.searchsorted(kept, labels)
    theta = np.array([theta[k] for k in kept]).reshape(-1, Y.shape[1])
    count = np.array([count[k] for k in kept], dtype=int)
    return Step(labels, theta, count, path[-1], np.array(path), n_iter)


@dataclass
class Hierarchy:
    """What a fit of the hard HDP returns."""

    labels: np.ndarray
    centers: np.ndarray
    n_local: np.ndarray
    objective: float
    path: np.ndarray
    n_iter: int


def hdp(X, groups, lam_local, lam_global, *, max_iter=300):
    """Algorithm 2 of KJ12. Local clusters are pairs (data set, global cluster)."""
    X = np.asarray(X, dtype=float)
    sets = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    labels = np.zeros(len(X), dtype=int)
    centers = X.mean(axis=0)[None]
    path, n_iter = [], 0
    while n_iter < max_iter:
        before = labels.copy()
        opened = len(centers)
        for rows in sets:  # step 4
            local = set(labels[rows])
            for i in rows:
                cost = squared_distances(X[i : i + 1], centers)[0]
                cost += [0 if p in local else lam_local for p in range(len(centers))]
                if cost.min() > lam_local + lam_global:
                    labels[i] = len(centers)
                    centers = np.vstack([centers, X[i]])
                else:
                    labels[i] = cost.argmin()
                local.add(labels[i])
        for rows in sets:  # step 5
            for c in np.unique(labels[rows]):
                mine = rows[labels[rows] == c]
                mean = X[mine].mean(axis=0)
                cost = len(mine) * squared_distances(mean[None], centers)[0]
                if cost.min() > lam_global:
                    labels[mine] = len(centers)
                    centers = np.vstack([centers, mean])
                else:
                    labels[mine] = cost.argmin()
        created = len(centers) > opened
        fixed = np.array_equal(labels, before) and not created
        labels, _ = without_gaps(labels)  # step 6
        centers = np.array([X[labels == p].mean(axis=0) for p in range(labels.max() + 1)])
        n_local = np.array([len(set(labels[rows])) for rows in sets])
        sse = np.square(X - centers[labels]).sum()
        path.append(sse + lam_local * n_local.sum() + lam_global * len(centers))
        n_iter += 1
        if fixed:
            break
    return Hierarchy(labels, centers, n_local, path[-1], np.array(path), n_iter)


def hdp_lambdas(X, groups, n_local, n_global):
    """Penalties for guessed numbers of clusters, in each data set and in all of them."""
    X = np.asarray(X, dtype=float)
    sets = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    local = [
        farthest_first(X[rows], min(n_local, len(rows)))
        for rows in sets
        if np.ptp(X[rows], axis=0).any()
    ]
    distance = squared_distances(X, X.mean(axis=0)[None])[:, 0]
    found = []
    for _ in range(n_global):
        total = np.array([distance[rows].sum() for rows in sets])
        j = int(total.argmax())
        found.append(float(total[j]))
        far = sets[j][distance[sets[j]].argmax()]
        distance = np.minimum(distance, squared_distances(X, X[far : far + 1])[:, 0])
    return np.mean(local) if local else 1.0, found[-1]
