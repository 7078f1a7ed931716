"""Plain numpy twins of the compiled sweeps, written to be read next to the papers.

KJ12 is Kulis & Jordan, *Revisiting k-means: new algorithms via Bayesian nonparametrics*
(2012); MB13 is Broderick, Kulis & Jordan, *MAD-Bayes* (2013). In all of them ``lam`` is
the penalty of a cluster in squared data units and ``weights`` are masses.

Every decision compares the float64 sum of squared differences, added in the order of
the columns; ties go to the lowest index; rows without weight take no part and get the
label of their nearest center in the end.

Features (X is about Z A, Z binary) stand at the end of the file.
"""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import gammaln
from sklearn.utils import check_random_state
from sklearn.utils.random import sample_without_replacement

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


@dataclass
class Bins:
    """How numbers are cut for sums that depend on no order: see `cut`."""

    origin: np.ndarray
    unit: np.ndarray
    width: int
    bins: int


def power_above(values):
    """The least power of two not below each value, 0 for 0."""
    powers = [2.0 ** math.ceil(math.log2(v)) if v > 0 else 0.0 for v in np.ravel(values)]
    return np.array(powers).reshape(np.shape(values))


def layout(X, weights, origin=None, rare=1 / 128):
    """Bins for the sums of these rows; it depends on the rows as a set.

    The origin is 0 where the data are not farther from it than they are wide, else a round number
    near their middle. Units bound w |x - origin|, and the weights. A bin of b bits adds up 2^(53-b)
    rows without rounding. There are as many bins as it takes to keep 50 bits of all weights, and of
    all but a share `rare` of the w (x - origin) that are not 0.
    """
    used = weights > 0
    X, weights = X[used], weights[used]
    low, high = X.min(axis=0), X.max(axis=0)
    half = high / 2 - low / 2
    middle = low + half
    step = np.array([2.0 ** math.floor(math.log2(h)) if h > 0 else 1.0 for h in half])
    round_middle = np.where(half > 0, np.rint(middle / step) * step, low)
    if origin is None:
        origin = np.where(np.abs(middle) <= 2 * half, 0.0, round_middle)
    reach = power_above(np.maximum(np.abs(high - origin), np.abs(low - origin)))
    heaviest = float(power_above(weights.max()))
    bits = 50 + math.ceil(math.log2(heaviest) - math.log2(weights.min()))
    width = max(1, min(40, 52 - (len(X) - 1).bit_length()))
    bins = max(2, math.ceil(bits / width))
    size = np.abs(X - origin)
    while bins < 64:
        small = (size > 0) & (size < np.ldexp(reach, bits - bins * width))
        if small.sum(axis=0).max() <= rare * len(X):
            break
        bins += 1
    return Bins(origin, np.append(reach, 1.0) * heaviest, width, bins)


def cut(values, unit, b):
    """The pieces of values (n, d), |value| <= unit (d,): multiples of unit 2^(-width m), m = 1, 2..

    Each is the multiple nearest to what the ones before have left, the even one at a tie.
    """
    pieces, left = [], values
    for m in range(1, b.bins + 1):
        grain = np.ldexp(np.where(unit > 0, unit, 1.0), -m * b.width)
        pieces.append(np.rint(left / grain) * grain)
        left = left - pieces[-1]
    return pieces


def exact_sums(X, weights, labels, k, b):
    """Sums of w (x - origin) and of w of clusters 0..k-1: those of the pieces, the last first.

    All sums of pieces are exact, so that it is all one how bincount adds them.
    """
    table = np.column_stack([weights[:, None] * (X - b.origin), weights])
    total = np.zeros((k, table.shape[1]))
    for piece in reversed(cut(table, b.unit, b)):
        total += np.array([np.bincount(labels, column, k) for column in piece.T]).T
    return total[:, :-1], total[:, -1]


def weighted_means(X, weights, labels, b=None):
    """Mean of each cluster 0..K-1 (none empty), from the exact sums of the pieces."""
    b = layout(X, weights) if b is None else b
    total, mass = exact_sums(X, weights, labels, labels.max() + 1, b)
    return b.origin + total / mass[:, None]


def sum_of_squares(X, weights, labels, centers):
    """Weighted SSE of given labels and centers: the sum of the float64 terms, rounded once."""
    own = np.zeros(len(X))
    for j in range(X.shape[1]):
        own += np.square(X[:, j] - centers[labels, j])
    return math.fsum(weights * own)


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


def noise_of(X):
    """Squared distance by which a mean of rows may be off by rounding: it counts as 0."""
    return np.square(np.abs(X).max(axis=0)[np.ptp(X, axis=0) > 0] * 2.0**-49).sum()


def _serial_sweep(X, w, lam, centers, cap):
    """One pass of Algorithm 1 over the rows in order; returns labels and centers.

    Centers do not move within a sweep, so a run of rows may take its distances to the
    centers known so far at once; only the centers that the run itself opens must be
    compared with its later rows, one by one.
    """
    labels, noise = np.empty(len(X), dtype=int), noise_of(X)
    for start in range(0, len(X), RUN):
        run = slice(start, start + RUN)
        x, label, dist = X[run], labels[run], np.empty(len(X[run]))
        label[:], dist[:] = nearest(x, centers)
        i = 0
        while len(centers) < cap:
            far = (w[run][i:] * dist[i:] > lam) & (dist[i:] > noise)
            if not far.any():
                break
            i += far.argmax()
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
    centers, noise = [list(map(float, c)) for c in centers], noise_of(X)
    labels = []
    for x, w_i in zip(X.tolist(), w.tolist(), strict=True):
        d = []
        for c in centers:
            total = 0.0
            for x_j, c_j in zip(x, c, strict=True):
                total += (x_j - c_j) * (x_j - c_j)
            d.append(total)
        if w_i * min(d) > lam and min(d) > noise and len(centers) < cap:
            labels.append(len(centers))
            centers.append(x)
        else:
            labels.append(d.index(min(d)))
    return np.array(labels), np.array(centers)


def _delayed_sweep(X, w, lam, centers, cap):
    """All rows join their nearest center; then the farthest one may leave it."""
    labels, dist = nearest(X, centers)
    claim = np.where(dist > noise_of(X), w * dist, 0.0)
    far = np.argmax(claim)
    if claim[far] > lam and len(centers) < cap:
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
    noise = noise_of(X)
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
        tied = tied or (Z.shape[1] > 0 and np.linalg.matrix_rank(Z) < Z.shape[1])
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
    b, one = layout(X, np.ones(len(X))), np.ones(len(X))
    centers = weighted_means(X, one, labels, b)
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
                mean = weighted_means(X[mine], one[mine], np.zeros(len(mine), dtype=int), b)[0]
                cost = len(mine) * squared_distances(mean[None], centers)[0]
                if cost.min() > lam_global:
                    labels[mine] = len(centers)
                    centers = np.vstack([centers, mean])
                else:
                    labels[mine] = cost.argmin()
        created = len(centers) > opened
        fixed = np.array_equal(labels, before) and not created
        labels, _ = without_gaps(labels)  # step 6
        centers = weighted_means(X, one, labels, b)
        n_local = np.array([len(set(labels[rows])) for rows in sets])
        sse = sum_of_squares(X, one, labels, centers)
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


# The spectral relaxation (KJ12 section 5.1): orthonormal Y instead of indicators.


@dataclass
class Spectral:
    """What the relaxation returns; `plain` and `centered` bound every clustering's objective."""

    labels: np.ndarray
    objective: float
    plain: float
    centered: float
    eigenvalues: np.ndarray
    Y: np.ndarray
    n_iter: int


def kernel_objective(K, labels, lam, weights=None):
    """DP-means objective in feature space: squared distances to the means, and lam for each."""
    w = np.ones(len(K)) if weights is None else np.asarray(weights, dtype=float)
    total = 0.0
    for c in np.unique(labels):
        rows = np.flatnonzero(labels == c)
        share = w[rows] / w[rows].sum()
        inner = K[np.ix_(rows, rows)]
        distances = K[rows, rows] - 2 * inner @ share + share @ inner @ share
        total += w[rows] @ distances + lam
    return float(total)


def rows_to_labels(Y, first, weights):
    """Yu & Shi's rounding of Y from one first row: labels, number of iterations, fits.

    What is within 1e-9 of the best is tied, and the lowest index taken.
    """
    m = Y.shape[1]
    Y = np.array(Y)
    Y[np.linalg.norm(Y, axis=1) <= 1e-10 * np.linalg.norm(Y, axis=1).max()] = 1
    Y = Y / np.linalg.norm(Y, axis=1)[:, None]
    chosen = [first]
    while len(chosen) < m:
        overlap = np.abs(Y @ Y[chosen].T).sum(axis=1)
        chosen.append(int((overlap <= overlap.min() + 1e-9).argmax()))
    R = Y[chosen].T
    fits, found = [], []  # tr X' Y R: ||X - Y R||^2 is 2 n minus twice that
    while True:
        turned = Y @ R
        X = np.eye(m)[(turned >= turned.max(axis=1)[:, None] - 1e-9).argmax(axis=1)]
        U, S, Vt = np.linalg.svd(X.T @ (weights[:, None] * Y))
        known = S / S[0] > 1e-10  # an empty column of X leaves its column of R open: zero
        R = (U[:, known] @ Vt[known]).T
        fits.append(S.sum())
        found.append(X.argmax(axis=1))
        if len(fits) > 1 and not fits[-1] > fits[-2] + 1e-12 * weights.sum():
            break
    return found[-2], len(found), np.array(fits)


def spectral(K, lam, *, weights=None, n_init=10, random_state=0):
    """All eigenvectors above lam, rounded from `n_init` rows; the best labels, and the bounds."""
    w = np.ones(len(K)) if weights is None else np.asarray(weights, dtype=float)
    root = np.sqrt(w)
    G = root[:, None] * K * root
    values, vectors = np.linalg.eigh(G)
    Y, above = vectors[:, values > lam][:, ::-1], values[values > lam][::-1]
    center = np.eye(len(K)) - np.outer(np.ones(len(K)), w / w.sum())
    Kc = center @ K @ center.T
    Gc = root[:, None] * Kc * root
    centered = np.linalg.eigvalsh(Gc)
    best = (np.zeros(len(K), dtype=int), lam + np.trace(Gc), 0)
    if Y.shape[1]:
        rng = np.random.RandomState(random_state)
        mass = np.cumsum(w)
        best = None
        for start in range(n_init):
            first = np.flatnonzero(mass > rng.random_sample() * mass[-1])[0] if start else 0
            labels, n_iter, _ = rows_to_labels(Y, first, w)
            value = kernel_objective(K, labels, lam, w)
            if best is None or value < best[1] - 1e-12 * np.trace(np.abs(G)):
                best = labels, value, n_iter
    return Spectral(
        best[0],
        best[1],
        np.trace(G) - (above - lam).sum(),
        np.trace(Gc) + lam - np.maximum(centered - lam, 0).sum(),
        above,
        Y,
        best[2],
    )


# Other divergences (spec section 10): D(x, mu) for squared distance, and covariances of clusters.


def divergences(X, centers, name):
    """All D(x_i, c), the columns added one after the other; 0 log 0 = 0."""
    total = np.zeros((len(X), len(centers)))
    for j in range(X.shape[1]):
        x, mu = X[:, j, None], centers[None, :, j]
        with np.errstate(all="ignore"):
            if name == "squared_euclidean":
                total += np.square(x - mu)
            elif name == "kl":
                total += np.where(x > 0, x * np.log(x / mu) - x + mu, mu)
            elif name == "itakura_saito":
                total += x / mu - np.log(x / mu) - 1
            else:
                total += np.where(x > 0, x * np.log(x / mu), 0)
                total += np.where(x < 1, (1 - x) * np.log((1 - x) / (1 - mu)), 0)
    return total


def bregman_means(X, weights, labels):
    """Means from sums about 0 that keep 50 bits of every value, within those of the cluster."""
    return means_within(X, weights, labels, layout(X, weights, np.zeros(X.shape[1]), 0))


def means_within(X, weights, labels, b=None):
    """Means that lie within the values of the cluster: that of equal ones is exact."""
    means = weighted_means(X, weights, labels, b)
    low = [X[labels == c].min(axis=0) for c in range(len(means))]
    high = [X[labels == c].max(axis=0) for c in range(len(means))]
    return np.clip(means, low, high) + 0.0  # never -0


def own_divergence(X, weights, labels, centers, name):
    """Weighted sum of the rows' divergences from their own centers."""
    own = [
        divergences(x[None], c[None], name)[0, 0] for x, c in zip(X, centers[labels], strict=True)
    ]
    return math.fsum(weights * np.array(own))


def bregman_farthest_first(X, n_clusters, name):
    """KJ12 section 6.1 with D for the squared distance."""
    seeds, found = [X.mean(axis=0)], []
    for _ in range(n_clusters):
        least = divergences(X, np.array(seeds), name).min(axis=1)
        seeds.append(X[least.argmax()])
        found.append(float(least.max()))
    if found[-1] > 0:
        return found[-1]
    return min((value for value in found if value > 0), default=1.0)


def _bregman_serial(X, w, lam, centers, cap, name):
    table = divergences(X, centers, name)
    labels = np.empty(len(X), dtype=int)
    for i in range(len(X)):
        if w[i] * table[i].min() > lam and len(centers) < cap:
            labels[i] = len(centers)
            centers = np.vstack([centers, X[i]])
            table = np.hstack([table, divergences(X, X[i : i + 1], name)])
        else:
            labels[i] = table[i].argmin()
    return labels, centers


def _bregman_delayed(X, w, lam, centers, cap, name):
    table = divergences(X, centers, name)
    labels, cost = table.argmin(axis=1), w * table.min(axis=1)
    far = cost.argmax()
    if cost[far] > lam and len(centers) < cap:
        labels[far] = len(centers)
        centers = np.vstack([centers, X[far]])
    return labels, centers


def _bregman_collapsed(X, w, lam, labels, cap, name, reach):
    """One visit of each row: it goes where the objective of the labels is lowest."""
    labels = labels.copy()
    k = labels.max() + 1
    for i in range(len(X)):
        others = np.arange(len(X)) != i
        alone = not (labels[others] == labels[i]).any()
        cost = np.full(k, np.inf)
        for c in np.unique(labels[others]):
            members = others & (labels == c)
            s, m = w[members].sum(), np.average(X[members], axis=0, weights=w[members])
            joint = (s * m + w[i] * X[i]) / (s + w[i])
            cost[c] = w[i] * divergences(X[i : i + 1], joint[None], name)[0, 0]
            cost[c] += s * divergences(m[None], joint[None], name)[0, 0]
        free = len(np.unique(labels[others])) < cap
        least = min(cost.min(), lam if free else np.inf)
        tie = 1e-12 * (least + np.sqrt(least * w[i] * reach[i]))
        good = np.flatnonzero(cost <= least + tie)
        if good.size:
            labels[i] = good[0]
        elif not alone:
            labels[i] = k
            k += 1
    return labels, k


def bregman(
    X,
    lam,
    name,
    algorithm="serial",
    *,
    weights=None,
    init=None,
    max_clusters=None,
    max_iter=300,
    order=None,
):
    """DP-means with a divergence, one row after the other."""
    X_all, weights, rows = _prepare(X, weights, order)
    X, w = X_all[rows], weights[rows]
    cap = np.inf if max_clusters is None else max_clusters
    given = init is not None
    labels = np.zeros(len(X), dtype=int)
    centers = np.array(init, dtype=float) if given else bregman_means(X, w, labels)
    if algorithm == "collapsed" and given:
        labels, kept = without_gaps(divergences(X, centers, name).argmin(axis=1))
        centers = centers[kept]
    mean = bregman_means(X, w, np.zeros(len(X), dtype=int))[0]
    reach = X.sum(axis=1) + mean.sum() if name == "kl" else np.full(len(X), X.shape[1])
    path, n_iter, counted, fixed = [], 0, 0, False
    while not fixed and counted < max_iter:
        previous = labels
        if algorithm == "collapsed":
            n_before = labels.max() + 1
            labels, n_now = _bregman_collapsed(X, w, lam, labels, cap, name, reach)
        else:
            n_before = len(centers)
            sweep = _bregman_serial if algorithm == "serial" else _bregman_delayed
            labels, centers = sweep(X, w, lam, centers, cap, name)
            n_now = len(centers)
        created = n_now > n_before
        fixed = not created and np.array_equal(labels, previous) and not (given and n_iter == 0)
        labels, _ = without_gaps(labels)
        centers = bregman_means(X, w, labels)
        path.append(own_divergence(X, w, labels, centers, name) + lam * len(centers))
        n_iter += 1
        counted += not created
    if not fixed and algorithm != "collapsed":
        labels, kept = without_gaps(divergences(X, centers, name).argmin(axis=1))
        centers = centers[kept]
        path.append(own_divergence(X, w, labels, centers, name) + lam * len(centers))
    all_labels = divergences(X_all, centers, name).argmin(axis=1)
    all_labels[rows] = labels
    return Result(all_labels, centers, path[-1], np.array(path), n_iter, fixed)


@dataclass
class Covariances:
    """What a fit with covariances returns; `path` holds the objective after every half-sweep."""

    labels: np.ndarray
    centers: np.ndarray
    S: np.ndarray
    path: list
    n_iter: int


def mahalanobis_objective(X, w, labels, centers, S, lam, scale, reg):
    """sum_k tr((scatter_k + reg I) S_k^-1) + scale log |S_k| + lam K."""
    total = lam * len(centers)
    for k in range(len(centers)):
        Y = X[labels == k] - centers[k]
        scatter = (w[labels == k, None] * Y).T @ Y
        total += np.trace((scatter + reg * np.eye(X.shape[1])) @ np.linalg.inv(S[k]))
        total += scale * np.linalg.slogdet(S[k])[1]
    return float(total)


def mahalanobis(X, seeds, *, lam=None, scale=1.0, reg=1.0, known=None, weights=None, order=None):
    """MB13 appendix E with the prior's scale matrix reg I kept: K fixed, or free from one cluster.

    Points join the center of the least Mahalanobis distance. K fixed: a cluster without points
    begins anew at the row with the largest one of those not alone. K free: a row farther than what
    a cluster costs opens one.
    """
    X = np.asarray(X, dtype=float)
    n, d = X.shape
    w = np.ones(n) if weights is None else weights
    order = np.arange(n) if order is None else order
    eye = np.eye(d)

    def table(centers, S):
        out = np.empty((n, len(centers)))
        for k in range(len(centers)):
            Y = X - centers[k]
            out[:, k] = (Y * np.linalg.solve(S[k], Y.T).T).sum(axis=1)
        return out

    def given(k):
        return None if known is None else np.broadcast_to(known, (k, d, d))

    def refit(labels, k):
        centers = means_within(X, w, labels)
        if known is not None:
            return centers, given(k)
        S = []
        for c in range(k):
            Y = X[labels == c] - centers[c]
            S.append(((w[labels == c, None] * Y).T @ Y + reg * eye) / scale)
        return centers, np.array(S)

    def restart(labels, distances, k):
        own = w * distances[np.arange(n), labels]
        for c in range(k):
            if not (labels == c).any():
                count = np.bincount(labels, minlength=k)
                worst = np.where(count[labels] > 1, own, -1).argmax()
                labels[worst], own[worst] = c, 0.0
        return labels

    path, n_iter = [], 0
    if lam is None:
        lam, free, k = 0.0, False, len(seeds)
        S = np.array([eye] * k) if known is None else given(k)
        distances = table(seeds, S)
        labels = restart(distances.argmin(axis=1), distances, k)
        n_iter = 1
    else:
        free, k, labels = True, 1, np.zeros(n, dtype=int)
        start = reg / scale * eye if known is None else known
        cost = lam + reg * np.trace(np.linalg.inv(start)) + scale * np.linalg.slogdet(start)[1]
    centers, S = refit(labels, k)
    path.append(mahalanobis_objective(X, w, labels, centers, S, lam, scale, reg))
    while True:
        before = labels
        distances = table(centers, S)
        labels = np.empty(n, dtype=int)
        opened = False
        for i in order:
            labels[i] = distances[i].argmin()
            if free and w[i] * distances[i].min() > cost:
                labels[i] = distances.shape[1]
                S = np.concatenate([S, start[None]])
                centers = np.vstack([centers, X[i]])
                distances = np.hstack([distances, table(X[i : i + 1], start[None])])
                opened = True
        n_iter += 1
        if free:
            labels, kept = without_gaps(labels)
            centers, S, k = centers[kept], S[kept], len(kept)
        else:
            emptied = np.setdiff1d(np.arange(k), labels)
            labels = restart(labels, distances, k)
            centers = np.array(centers)
            for c in emptied:
                centers[c] = X[labels == c][0]
        if not opened and np.array_equal(labels, before):
            return Covariances(labels, centers, S, path, n_iter)
        path.append(mahalanobis_objective(X, w, labels, centers, S, lam, scale, reg))
        centers, S = refit(labels, k)
        path.append(mahalanobis_objective(X, w, labels, centers, S, lam, scale, reg))


# ----------------------------------------------------------------------------------------
# Graphs (KJ12 section 5.2): normalized and ratio cut with a penalty. A is a dense adjacency
# matrix; out is what leaves a node, size its degree (normalized cut) or 1 (ratio cut).


@dataclass
class Cut:
    """What a fit of a graph returns; labels are numbered by first appearance."""

    labels: np.ndarray
    path: list


def cut_sizes(A, cut):
    """What a node counts in its cluster's size."""
    return A.sum(axis=1) if cut == "normalized" else np.ones(len(A))


def cut_value(A, labels, cut):
    """Sum over clusters of the links that leave it, over its size."""
    total = 0.0
    for c in np.unique(labels):
        inside = labels == c
        leaving = A[inside][:, ~inside].sum()
        total += leaving / cut_sizes(A, cut)[inside].sum() if leaving else 0.0
    return total


def cut_kernel(A, shift, cut):
    """Kernel and weights for which weighted kernel k-means is the cut (Theorem 5.3)."""
    d = A.sum(axis=1)
    if cut == "normalized":
        return shift * np.diag(1 / d) + A / np.outer(d, d), d
    return shift * np.eye(len(A)) - (np.diag(d) - A), np.ones(len(A))


def cut_shift(A, cut):
    """The least shift for which that kernel is positive semi-definite."""
    d = A.sum(axis=1)
    if cut == "normalized":
        return max(0.0, -np.linalg.eigvalsh(A / np.sqrt(np.outer(d, d)))[0])
    return np.linalg.eigvalsh(np.diag(d) - A)[-1]


def cut_kernel_error(K, weights, labels):
    """Sum of weighted squared distances to the clusters' means in the kernel's space."""
    total = 0.0
    for c in np.unique(labels):
        w = weights * (labels == c)
        total += w @ np.diag(K) - w @ K @ w / w.sum()
    return total


def first_appearance(labels, order=None):
    """Labels numbered by first appearance, in the order of visit."""
    order = range(len(labels)) if order is None else order
    names = list(dict.fromkeys(labels[i] for i in order))
    return np.array([names.index(label) for label in labels])


class _Cutting:
    """Moves of single nodes, in a graph without self-links whose nodes may be clusters."""

    def __init__(self, A, cut, lam):
        self.lam, self.path = lam, []
        links = A - np.diag(np.diag(A))
        linked = links.sum(axis=1) > 0
        ratio = links.sum(axis=1)[linked] / cut_sizes(A, cut)[linked]
        self.tie = 1e-12 * (abs(lam) + ratio.max(initial=0))

    def objective(self, links, size, labels):
        total = 0.0
        for c in np.unique(labels):
            inside = labels == c
            leaving = links[inside][:, ~inside].sum()
            total += self.lam + (leaving / size[inside].sum() if leaving else 0.0)
        return total

    def settle(self, links, size, labels, order=None, few=0):
        """Sweeps until at most `few` move; returns the labels and whether anything did."""
        n, out = len(labels), links.sum(axis=1)
        labels = labels.copy()
        free = [c for c in reversed(range(n)) if c not in labels]
        sweeps = 0
        while True:
            moved = 0
            for i in range(n) if order is None else order:
                neighbors = np.flatnonzero(links[i])
                if len(neighbors) == 0:
                    continue
                own, labels[i] = labels[i], -1

                def cost(c, i=i):
                    inside = labels == c
                    leaving = links[inside][:, ~inside].sum()
                    ratio = leaving / size[inside].sum()
                    return (out[i] - 2 * links[i, inside].sum() - size[i] * ratio) / (
                        size[inside].sum() + size[i]
                    )

                alone = out[i] / size[i] + self.lam
                left = own in labels
                stay = cost(own) if left else alone
                costs = {c: cost(c) for c in sorted(set(labels[neighbors]) - {own})}
                best, target = min(costs.values(), default=np.inf), None
                if costs:
                    target = min(c for c in costs if costs[c] <= best + self.tie)
                if left and alone < best - self.tie:
                    best, target = alone, free[-1]
                if target is None or not best < stay - self.tie:
                    labels[i] = own
                    continue
                if target not in labels:
                    free.pop()
                if not left:
                    free.append(own)
                labels[i], moved = target, moved + 1
            self.path.append(self.objective(links, size, labels))
            sweeps += 1
            if moved <= few:
                return labels, sweeps > 1 or moved > 0


def cut_incremental(A, lam, cut, labels=None):
    """One node at a time, to where the objective is lowest; all alone at first."""
    run = _Cutting(A, cut, lam)
    labels = np.arange(len(A)) if labels is None else labels
    labels, _ = run.settle(A - np.diag(np.diag(A)), cut_sizes(A, cut), labels)
    return Cut(first_appearance(labels), run.path)


def cut_multilevel(A, lam, cut, labels=None):
    """The same, then with the clusters as nodes, and so on, and back; until nothing changes."""
    run = _Cutting(A, cut, lam)
    bottom = A - np.diag(np.diag(A)), cut_sizes(A, cut)
    labels = np.arange(len(A)) if labels is None else labels
    labels, _ = run.settle(*bottom, labels, few=len(A) // 32)
    merged, settled = True, False
    while merged:
        merged = False
        levels, (links, size) = [], bottom
        while True:
            fine = first_appearance(labels)
            k = fine.max() + 1
            if k == len(links):
                break
            levels.append((links, size, fine))
            Z = np.eye(k)[fine]
            links, size = Z.T @ links @ Z, Z.T @ size
            np.fill_diagonal(links, 0)
            labels, moved = run.settle(links, size, np.arange(k), few=k // 32)
            if not moved:
                break
            merged = True
        for links, size, fine in reversed(levels):
            labels = labels[fine]
            if merged:
                labels, _ = run.settle(links, size, labels)
        if not (merged or settled):
            labels, merged = run.settle(*bottom, labels)
        settled = True
    return Cut(first_appearance(labels), run.path)


def cut_batch(A, lam, cut, labels):
    """Weighted kernel DP-means (KJ12 Algorithm 1) from given labels, with the kernel above.

    A node stays at a tie, and one that is alone opens no cluster.
    """
    shift = cut_shift(A, cut)
    K, w = cut_kernel(A, shift, cut)
    threshold = lam + shift + (cut == "normalized")
    path = []
    while True:
        before = labels
        means = [w * (labels == c) / w[labels == c].sum() for c in range(labels.max() + 1)]
        labels = labels.copy()
        for i in range(len(A)):
            cost = np.array([w[i] * (K[i, i] - 2 * m @ K[i] + m @ K @ m) for m in means])
            if cost.min() > threshold + 1e-12 and (before == before[i]).sum() > 1:
                labels[i] = len(means)
                means.append(np.eye(len(A))[i])
            elif not cost[before[i]] <= cost.min() + 1e-12:
                labels[i] = np.flatnonzero(cost <= cost.min() + 1e-12)[0]
        labels, _ = without_gaps(labels)
        path.append(cut_value(A, labels, cut) + lam * (labels.max() + 1))
        if np.array_equal(labels, before):
            return Cut(first_appearance(labels), path)


# Kernel forms (KJ12 section 5.2): a mean is a row of coefficients a of the points, so that
# ||phi(x_i) - m||^2 = K_ii - 2 (a K)_i + a K a'.


def kernel_distance(K, i, a):
    """Squared distance of point i to the mean with coefficients a."""
    return K[i, i] - 2 * a @ K[:, i] + a @ K @ a


def mean_coefficients(labels, weights):
    """One row for each cluster: the weights of its points, divided by their sum."""
    A = np.array([weights * (labels == c) for c in range(labels.max() + 1)])
    return A / A.sum(axis=1, keepdims=True)


def kernel_dp_means(
    K, lam, *, collapsed=False, weights=None, labels=None, cap=np.inf, max_iter=300, order=None
):
    """DP-means, point by point, from a Gram matrix; returns labels, path and number of sweeps."""
    n = len(K)
    weights = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    order = np.arange(n) if order is None else order
    order = order[weights[order] > 0]
    given = labels
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
    assert given is None or len(given) == n
    return labels, np.array(path), n_iter


def gram_error(K, labels, weights, A):
    """Weighted sum of squared distances to the means with these coefficients."""
    return sum(
        w * kernel_distance(K, i, A[c])
        for i, (w, c) in enumerate(zip(weights, labels, strict=True))
        if w
    )


def kernel_farthest_first(K, rows, n_clusters):
    """`farthest_first` of the points `rows`, in feature space."""
    a = np.zeros(len(K))
    a[rows] = 1 / len(rows)
    distances = np.array([kernel_distance(K, i, a) for i in rows])
    for _ in range(n_clusters):
        far = np.argmax(distances)
        found = distances[far]
        to_far = [kernel_distance(K, i, np.eye(len(K))[rows[far]]) for i in rows]
        distances = np.minimum(distances, to_far)
    return found


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


# Kernel D-Means and SD-Means (CKH sections 5 and 6): old centers known by their kernel values.


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
            some = [*chosen, j]
            c = np.linalg.lstsq(K[np.ix_(some, some)], K[some] @ a, rcond=None)[0]
            errors[j] = a @ K @ a - 2 * c @ K[some] @ a + c @ K[np.ix_(some, some)] @ c
        chosen.append(min(errors, key=errors.get))
    return chosen


# The merge path: k-means for every number of clusters, from many down to one, and a criterion.


@dataclass
class Sizes:
    """The numbers of rows, of clusters left out on the way, that a path is searched with."""

    coarse: int = 5000  # rows drawn to begin with, or
    numbers: int = 1 << 18  # so many numbers, but at least half of these rows
    fine: int = 20_000  # rows that tell the number of clusters exactly, or
    rows: int = 20  # so many for each cluster
    steps: int = 50  # of so many clusters one is left out
    few: int = 32  # clusters among which none is left out


@dataclass(eq=False)
class Stop:
    """The clustering at one number of clusters."""

    centers: np.ndarray
    V: float = np.inf
    error: float = np.nan
    metric: np.ndarray | None = None

    @property
    def k(self):
        """Number of clusters."""
        return len(self.centers)


@dataclass
class Path:
    """What the search for a number of clusters returns."""

    stops: list
    best: int
    lam: float
    value: float
    tree: np.ndarray
    low: np.ndarray
    high: np.ndarray
    tie: float = 0.0
    n_samples: int = 1
    emptied: int = 0  # clusters that lost their last row in a sweep
    turned: int = 0  # ways down in the metric of the clusters that were better than the one before
    rounds: int = 1  # looks, each from more clusters than the one before
    descents: int = 1  # fine ways down, each around the best of the one before


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


def path_criterion(X, w, labels, u):
    """V of these labels, and the matrix that makes the clusters round (None: they are).

    V = (u / n) (-2 sum_i w_i log f(x_i) - 2 n sum_k p_k log p_k) + log(u) x the price of K
    centers and of f: spherical, spherical but for some directions, in the plane with a
    covariance for each cluster, and a box where there is one cluster.
    """
    (n, d), counts = X.shape, np.bincount(labels, w)
    n, K, unit = w.sum(), len(counts), np.log(u)
    R = X - weighted_means(X, w, labels)[labels]
    base = -2 * u * (counts / n) @ np.log(counts / n) + unit * ((K - 1) * (1.6 * d + 3) + 2 * d)

    def value(r2, logdet, price):
        deviance, is_t = law_of_distances(r2, w, u, d, counts, labels)
        return base + u * (deviance + logdet) + unit * (price + 2 * is_t)

    candidates, metric = [value(np.square(R).sum(axis=1), 0, 2)], None
    S = (R * w[:, None]).T @ R / n
    e, U = np.linalg.eigh(S)
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
        candidates.append(value(np.square(R @ metric).sum(axis=1), np.log(variances).sum(), price))
    if d == 2:  # the pooled covariance counts as 3 n / u rows in each cluster
        scale = 1 / max(np.abs(R).max(), 1e-300)
        own = np.zeros((K, 2, 2))
        np.add.at(own, labels, w[:, None, None] * (R * scale)[:, :, None] * (R * scale)[:, None, :])
        some = 3 * n / u
        own = (own + some * own.sum(axis=0) / n) / (counts + some)[:, None, None]
        det = own[:, 0, 0] * own[:, 1, 1] - np.square(own[:, 0, 1])
        if det.min() > 1e-9 * det.max():
            r2 = np.einsum("ij,ijk,ik->i", R * scale, np.linalg.inv(own)[labels], R * scale)
            logdet = counts @ np.log(det) / n - 4 * np.log(scale)
            candidates.append(value(r2, logdet, 1.6 * 3 * K))
    if K == 1 and np.ptp(X, axis=0).all():
        box = 2 * u * np.log(np.ptp(X, axis=0)).sum() + unit * 2 * 2 * d
        if box < min(candidates):
            return box, None
    return min(candidates), metric


def best_penalties(counts, errors):
    """Penalties from low to high for which each number of clusters has the least error + lam K."""
    low, high = np.zeros(len(counts)), np.full(len(counts), np.inf)
    for i, (k, error) in enumerate(zip(counts, errors, strict=True)):
        for other, value in zip(counts, errors, strict=True):
            if other > k:
                low[i] = max(low[i], (error - value) / (other - k))
            elif other < k:
                high[i] = min(high[i], (value - error) / (k - other))
    return low, high


class _Descent:
    """k-means on rows Y; merging takes it down to one cluster."""

    def __init__(self, Y, w):
        self.Y, self.w, self.emptied = Y, w, 0
        # a mean of equal rows may be off by so much
        self.noise = noise_of(Y)

    def draw(self, weights, size, rng):
        total = np.cumsum(weights)
        rows = np.searchsorted(total, rng.uniform(size=size) * total[-1], side="right")
        return np.unique(np.minimum(rows, len(total) - 1))

    def seed(self, size, rng):
        """Rows drawn by weight times squared distance, half as many more in each round.

        Returns them and, for each number of them up to that before the last round, the weighted
        sum of squared distances to the nearest (where the next round began).
        """
        centers, sums = self.Y[self.draw(self.w, 1, rng)], [0.0]
        distance = np.full(len(self.Y), np.inf)
        met = 0
        while len(centers) < size:
            distance = np.minimum(distance, nearest(self.Y, centers[met:])[1])
            met = len(centers)
            claim = self.w * np.where(distance <= self.noise, 0, distance)
            sums += [claim.sum()] * (met + 1 - len(sums))
            if not claim.any():
                break
            more = min(size - met, max(1, met // 2))
            centers = np.vstack([centers, self.Y[self.draw(claim, more, rng)]])
        return centers, sums

    def start(self, centers):
        self.labels = without_gaps(nearest(self.Y, centers)[0])[0]
        self.centers = weighted_means(self.Y, self.w, self.labels)
        self.ids, self.tree, self.height = list(range(len(self.centers))), [], 0.0
        self.size = [1] * len(self.centers)

    def settle(self, sweeps):
        for _ in range(sweeps):
            labels = nearest(self.Y, self.centers)[0]
            if np.array_equal(labels, self.labels):
                break
            self.labels, kept = without_gaps(labels)
            for k in sorted(set(range(len(self.centers))) - set(kept)):
                apart = squared_distances(self.centers[k : k + 1], self.centers[kept])
                self.join(kept[apart.argmin()], k, 0.0)
                self.emptied += 1
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
        mass = np.bincount(self.labels, self.w)
        centers, alive = self.centers.copy(), np.ones(len(mass), dtype=bool)
        table = np.full((len(mass), len(mass)), np.inf)
        changed = range(len(mass))
        for _ in range(count):
            for k in changed:
                cost = mass * mass[k] / (mass + mass[k])
                cost = cost * squared_distances(centers[k : k + 1], centers)[0]
                cost[~alive] = np.inf
                table[k, k + 1 :], table[:k, k] = cost[k + 1 :], cost[:k]
            a, b = np.unravel_index(table.argmin(), table.shape)
            self.join(a, b, table[a, b])
            centers[a] = (mass[a] * centers[a] + mass[b] * centers[b]) / (mass[a] + mass[b])
            mass[a] += mass[b]
            self.labels[self.labels == b] = a
            alive[b], table[b], table[:, b] = False, np.inf, np.inf
            changed = [a]
        self.labels, kept = without_gaps(self.labels)
        self.ids = [self.ids[k] for k in kept]
        self.centers = weighted_means(self.Y, self.w, self.labels)

    def down(self, step, sweeps):
        """Yield at each stop; from k clusters, step(k) are merged at once."""
        while True:
            yield
            if len(self.centers) == 1:
                return
            self.merge(step(len(self.centers)))
            self.settle(sweeps)


class _Sample:
    """Some rows X of those of a search, and the way down on them, in a metric or plainly."""

    def __init__(self, X, w, share):
        self.X, self.w, self.share = X, w, share
        self.u = len(np.unique(X, axis=0))
        self.tie = 2 * np.log(self.u)
        self.descent = _Descent(X, w)

    def turn(self, metric, centers):
        """Rows and centers by this metric."""
        self.descent = _Descent((self.X - self.X.mean(axis=0)) @ metric, self.w)
        return (centers - self.X.mean(axis=0)) @ metric

    def stop(self):
        labels = self.descent.labels
        stop = Stop(weighted_means(self.X, self.w, labels))
        stop.error = sum_of_squares(self.X, self.w, labels, stop.centers)
        if stop.k <= max(1, self.u // 3):
            stop.V, stop.metric = path_criterion(self.X, self.w, labels, self.u)
        return stop


class _Search:
    """The search for a path on rows X (constant columns left out)."""

    def __init__(self, X, w, rng, lam, most, sizes, columns):
        self.X, self.w, self.rng, self.columns = X, w, rng, columns
        self.lam, self.most, self.sizes = lam, most, sizes

    def sample(self, size):
        rows = np.arange(len(self.X))
        if size < len(self.X):
            rows = np.sort(sample_without_replacement(len(rows), size, random_state=self.rng))
        return _Sample(self.X[rows], self.w[rows], self.w[rows].sum() / self.w.sum())

    def value(self, stop, sample):
        return stop.V if self.lam is None else stop.error / sample.share + self.lam * stop.k

    def allowed(self, stops):
        return [stop for stop in stops if self.most is None or stop.k <= self.most]

    def look(self, sample, room):
        """From many clusters in steps of a tenth: where the way in single steps begins.

        And how many times as many clusters are wanted: 4 where seeds beyond the room save much
        more than those before, 2 where the best is in the upper half.
        """
        descent = sample.descent
        seeds, sums = descent.seed(min(len(sample.X), 4 * room), self.rng)
        grain = len(sums) > room + 1 and sums[room] > 0
        if grain:
            before, here, after = sums[room // 4], sums[room], sums[-1]
            grain = before / here * (after / here) * 1.5 < 1
        descent.start(seeds[:room])
        descent.settle(5)
        stops = [sample.stop() for _ in descent.down(lambda k: max(1, k // 10), 2)]
        judged = [stop for i, stop in enumerate(stops) if i % 2 == 0 or stop.k == 1]
        best = min(self.allowed(judged[::-1]), key=lambda stop: self.value(stop, sample)).k
        beyond = [stop for stop in stops if stop.k >= best + best // 4 + 10]
        start = (beyond or stops[:1])[-1].centers
        return start, 4 if grain else 2 if best > 0.5 * stops[0].k else 1

    def fine_way(self, sample, start, low, single):
        """All numbers of clusters but for steps; those that save nothing are left out.

        Steps leave a 50th of the clusters out above ``low`` (none if ``single``), a tenth below.
        """
        sizes = self.sizes

        def step(k):
            if k <= sizes.few or (single and k > low):
                return 1
            return max(1, min(k - sizes.few, k // (sizes.steps if k > low else 10)))

        sample.descent.start(start)
        sample.descent.settle(5)
        every = [sample.stop() for _ in sample.descent.down(step, 5)][::-1]
        stops = [s for i, s in enumerate(every) if all(s.error < t.error for t in every[:i])]
        low, high = best_penalties([s.k for s in stops], [s.error for s in stops])
        allowed = self.allowed(stops)
        best = min(allowed, key=lambda stop: self.value(stop, sample))
        if self.lam is None and best.k > 1:
            # as good: less than the price of a parameter apart; of these the widest range of lam
            wide = [b / a if 0 < a < b else 0.0 for a, b in zip(low, high, strict=True)]
            near = [i for i, s in enumerate(allowed) if s.k > 1 and best.V + sample.tie >= s.V]
            widest = max(near, key=lambda i: wide[i])
            best = allowed[widest] if wide[widest] > 0 else best
        i, share = stops.index(best), sample.share
        low, high = low / share, high / share
        if stops[0].error == 0:
            lam = 1.0
        elif i == 0:
            lam = 2 * (low[0] if low[0] > 0 else stops[0].error / share)
        else:
            lam = np.sqrt(low[i] * high[i]) if low[i] > 0 else high[i] / 2
        tree = np.array(sample.descent.tree).reshape(-1, 4)
        tree[:, 2] /= np.sqrt(share)
        value = min(stop.V for stop in allowed)
        path = Path(stops, best.k, lam, value, tree, low, high, sample.tie, len(sample.X))
        path.emptied = sample.descent.emptied
        lowest = min(stop.V for stop in every)
        return path, best.metric if lowest + sample.tie >= best.V else None

    def fine_ways(self, sample, start, low, single):
        """A second way down in single steps around the best number, where steps were larger.

        Again where the best is then below those steps; at most four ways.
        """
        sizes, descents = self.sizes, 0
        while True:
            path, metric = self.fine_way(sample, start, low, single)
            descents += 1
            path.descents = descents
            below = path.best <= low and path.best > sizes.few
            step = path.best // (10 if below else sizes.steps)
            if step < 2 or (single and not below) or descents == 4:
                return path, metric
            above = [stop for stop in path.stops if stop.k >= path.best + 2 * step + 2]
            start = (above or path.stops[-1:])[0].centers
            low, single = path.best - 2 * step, True

    def run(self, init):
        """More rows and clusters until there are enough of them above the best."""
        n, sizes = len(self.X), self.sizes
        size = min(n, max(sizes.coarse // 2, min(sizes.coarse, sizes.numbers // self.columns)))
        room, rounds = 0, 0
        while True:
            rounds += 1
            sample = self.sample(size)
            limit = size if self.lam is not None else min(size, max(2, size // 2))
            room = min(size, limit, max(20, int(4 * np.sqrt(size)), room))
            start, wider = (init, 1) if init is not None else self.look(sample, room)
            last = size == n and room == limit
            if wider > 1 and not last:
                size, room = min(n, 4 * size), wider * room
                continue
            more = min(n, max(size, sizes.fine, sizes.rows * len(start)))
            if more > size:
                sample = self.sample(more)
            low, single = (len(start) // 3, False) if init is None else (0, True)
            path, metric = self.fine_ways(sample, start, low, single)
            path.rounds = rounds
            few = path.best > 0.85 * len(start) and len(start) != self.most
            if not (few and init is None and not last):
                return path, metric, sample
            size, room = min(n, 4 * size), 2 * room


def merge_path(
    X, random_state, *, lam=None, weights=None, init=None, max_clusters=None, sizes=None
):
    """k-means on the way from many clusters down to one, best by V or for a given lam.

    Where the best clusters are long in shared directions, there are up to three more ways down in
    the metric that makes them round, each from the clusters at the top of the one before; taken as
    long as V is lower by more than the price of a parameter.
    """
    X = np.asarray(X, dtype=float)
    first, varying = X[0], np.ptp(X, axis=0) > 0
    columns = X.shape[1]
    X, w, rows = _prepare(X, weights, None)
    rng = check_random_state(random_state)
    X, w = X[rows][:, varying], w[rows]
    if not varying.any():
        one = Stop(first[None], V=0.0, error=0.0)
        return Path([one], 1, 1.0, 0.0, np.empty((0, 4)), np.zeros(1), np.full(1, np.inf))
    given = None if init is None else np.asarray(init, dtype=float)[:, varying]
    search = _Search(X, w, rng, lam, max_clusters, sizes or Sizes(), columns)
    path, metric, sample = search.run(given)
    for turned in range(1, 4):
        if metric is None or init is not None or lam is not None:
            break
        start = sample.turn(metric, path.stops[-1].centers)
        other, metric = search.fine_way(sample, start, 0, False)
        if not other.value < path.value - sample.tie:
            break
        other.rounds, other.descents, other.turned = path.rounds, path.descents, turned
        path = other
    for stop in path.stops:
        whole = np.tile(first, (stop.k, 1))
        whole[:, varying] = stop.centers
        stop.centers = whole
    return path
