"""The way from many clusters down to one, the criterion on it, and the best range of lam."""

from dataclasses import dataclass, field

import numpy as np
from scipy.special import gammaln
from sklearn.utils import check_random_state
from sklearn.utils.random import sample_without_replacement

import twins.columns
from twins.exact import (
    nearest,
    prepare,
    rounding_of,
    squared_distances,
    sum_of_squares,
    weighted_means,
    without_gaps,
)


@dataclass
class Sizes:
    """The numbers of rows, of clusters left out on the way, that a path is searched with."""

    coarse: int = 5000  # rows drawn to begin with, or
    numbers: int = 1 << 18  # so many numbers, but at least half of these rows
    fine: int = 20_000  # rows that tell the number of clusters exactly, or
    rows: int = 20  # so many for each cluster
    steps: int = 50  # of so many clusters one is left out
    few: int = 32  # clusters among which none is left out
    small: int = 2000  # rows of which each is a cluster to begin with


@dataclass(eq=False)
class Stop:
    """The clustering at one number of clusters."""

    centers: np.ndarray
    V: float = np.inf
    error: float = np.nan
    metric: np.ndarray | None = None
    modeled: np.ndarray | None = None  # centers of the rows of which V is, transformed or not
    own_error: float = np.nan  # in the metric of the way down

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
    rounds: int = 1  # coarse passes, each from more clusters than the one before
    descents: int = 1  # fine ways down, each around the best of the one before
    found: list = ()  # the stops as they were on the way down
    sample: object = None  # the rows that the path was found on
    replaced: int = 0  # stops that are those of the path before rows were turned
    tied: set = field(default_factory=set)  # numbers for which both have one error
    grown: int = 0  # stops that had to begin at those of fewer clusters
    opened: int = 0  # clusters that were opened on the way to a fixed point
    surveyed: int = 0  # ways down in the metric of the clusters that a coarse pass in it improved
    searches: int = 1  # of which the second one was at more rows
    transformed: bool = False  # whether the best path is one of transformed rows
    confidence: float = 1.0
    confidences: np.ndarray = None
    plausible: bool = True
    few_valued: np.ndarray = ()
    skewed: np.ndarray = ()

    def penalties(self):
        """The penalties for which each number of clusters is best, by errors as they are now."""
        counts, errors = [stop.k for stop in self.stops], [stop.error for stop in self.stops]
        low, high = best_penalties(counts, errors)
        self.low, self.high = low / self.sample.share, high / self.sample.share

    def adopt(self, centers, varying):
        """The best stop is that of a fit; its error is that of the rows of this path."""
        stop = self.stops[[stop.k for stop in self.stops].index(self.best)]
        if centers.shape == stop.centers.shape:
            stop.centers, sample = centers, self.sample
            labels = nearest(sample.X, centers[:, varying])[0]
            stop.error = sum_of_squares(sample.X, sample.w, labels, centers[:, varying])
            self.penalties()


def open_farthest(X, w, centers, size):
    """More centers, each at the row with the largest weighted distance from all before."""
    while len(centers) < size:
        apart = nearest(X, centers)[1]
        claim = w * np.where(apart <= rounding_of(X), 0, apart)
        if not claim.any():
            break
        centers = np.vstack([centers, X[claim.argmax()]])
    return centers


def fixed_point(X, w, centers, path):
    """k-means from these centers to the end; where a cluster is lost, another one opens."""
    size, labels = len(centers), None
    for _ in range(300):
        before, labels = labels, nearest(X, centers)[0]
        if before is not None and np.array_equal(before, labels):
            break
        centers = weighted_means(X, w, without_gaps(labels)[0])
        if len(centers) < size:
            path.opened += 1
            centers, labels = open_farthest(X, w, centers, size), None
    labels = nearest(X, centers)[0]
    return Stop(centers, error=sum_of_squares(X, w, labels, centers))


def converge(path, plain, lam, sample):
    """All stops at fixed points; their penalties, and for no given lam the one for the best.

    A stop of the path before rows were turned is taken where it has a smaller error; as the best
    only where the turned one is hardly better than one with fewer clusters.
    """
    X, w, path.sample = sample.X, sample.w, sample
    path.found = [Stop(stop.centers, stop.V, stop.error) for stop in path.stops]
    others, best = {}, None
    if plain is not path:
        unit = sample.share / plain.sample.share
        others = {s.k: Stop(s.centers, error=s.error * unit) for s in plain.stops}
    for i, stop in enumerate(path.stops):
        other = others.get(stop.k)
        if other is not None and abs(other.error - stop.error) <= 1e-12 * stop.error:
            path.tied.add(stop.k)
        if stop.k == path.best and others:
            best = fixed_point(X, w, stop.centers, path)
            if best.error < 0.99 * min([s.error for s in path.stops[:i]], default=np.inf):
                continue
            best = None
        elif other is None or other.error >= stop.error:
            continue
        if other is not None:
            path.stops[i] = Stop(other.centers, stop.V, other.error)
            path.replaced += 1
    least = None
    for i, stop in enumerate(path.stops):
        fixed = best if stop.k == path.best else None
        if fixed is None:
            fixed = fixed_point(X, w, stop.centers, path)
            if least is not None and not fixed.error < least.error:
                path.grown += 1
                start = open_farthest(X, w, least.centers, stop.k)
                fixed = fixed_point(X, w, start, path)
        fixed.V = stop.V
        path.stops[i] = fixed
        if least is None or fixed.error < least.error:
            least = fixed
    path.penalties()
    if lam is None:
        path.lam = penalty(path)


def penalty(path):
    """A penalty for the best stop of a path."""
    i = [stop.k for stop in path.stops].index(path.best)
    low, high = path.low[i], path.high[i] if path.high[i] > 0 else np.inf
    if path.stops[0].error == 0:
        return 1.0
    if np.isinf(high):
        return 2 * (low if low > 0 else path.stops[0].error / path.sample.share)
    return np.sqrt(low * high) if low > 0 else high / 2


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
    columns, different = twins.columns.recorded(X, w), twins.columns.count_different(X)
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
    return Described(u, cap, columns.variance, basis, columns.few_valued)


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
        box = 2 * u * np.log(sides[varying]).sum() + unit * 2 * 2 * d
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
        self.rounding = rounding_of(Y)

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
            claim = self.w * np.where(distance <= self.rounding, 0, distance)
            sums += [claim.sum()] * (met + 1 - len(sums))
            if not claim.any():
                break
            more = min(size - met, max(1, met // 2))
            centers = np.vstack([centers, self.Y[self.draw(claim, more, rng)]])
        return centers, sums

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

    def down(self, step, sweeps):
        """Yield at each stop; from k clusters, step(k) are merged at once."""
        while True:
            yield
            if len(self.centers) == 1:
                return
            self.merge(step(len(self.centers)))
            self.run_lloyd(sweeps)


class _Sample:
    """Some rows X of those of a search, and the way down on them, in a metric or plainly.

    V is that of the rows Y: X, or X transformed.
    """

    def __init__(self, X, w, share, transform):
        self.X, self.w, self.share, self.Y, self.charge = X, w, share, X, 0.0
        if transform is not None:
            self.Y, log_volume = transform(X)
        self.about = described(self.Y, w)
        u = self.about.u
        if transform is not None:
            parameters, margin = 2 * len(transform.parts), 0.3 * u * len(transform.parts)
            self.charge = 2 * np.log(u) * parameters + margin - 2 * u * (w @ log_volume) / w.sum()
        self.tie = 2 * np.log(u)
        self.descent = _Descent(self.Y, w)

    def turn(self, metric, centers):
        """Rows and centers by this metric."""
        self.descent = _Descent((self.Y - self.Y.mean(axis=0)) @ metric, self.w)
        return (centers - self.Y.mean(axis=0)) @ metric

    def stop(self):
        labels, w = self.descent.labels, self.w
        stop = Stop(weighted_means(self.X, w, labels), modeled=weighted_means(self.Y, w, labels))
        stop.error = sum_of_squares(self.X, w, labels, stop.centers)
        stop.own_error = sum_of_squares(self.descent.Y, w, labels, self.descent.centers)
        if stop.k <= max(1, self.about.cap):
            stop.V, stop.metric = path_criterion(self.Y, w, labels, self.about)
            stop.V += self.charge
        return stop


def confidence_of_several(own_range, plain_range, gap):
    """How likely a number above 1 is right, by what ranges of penalties and the next best say."""
    x = 0.8 * np.log(np.clip(own_range, 0.5, 30)) + 1.2 * np.log(np.clip(plain_range, 0.5, 30))
    return logistic(x + 1.6 * np.log(1 + max(gap, 0)) - 4.1)


def confidence_of_one(gap, u, transformed):
    """How likely a single cluster is right, by the gap of likelihood to the next best."""
    return logistic(0.085 * np.clip(gap * np.sqrt(u), -10, 25) + 2.5 * transformed - 0.25)


def logistic(x):
    """Between 0.1 and 0.98."""
    return 0.1 + 0.88 / (1 + np.exp(-x))


def weigh(path, scores, own_ranges, ranges, most):
    """The confidence in the best number and in the others, which share what it leaves.

    Those of more than ``most`` clusters have none. A single cluster that likelihood alone speaks
    against is not plausible.
    """
    stops, about, tie = path.stops, path.sample.about, path.tie
    scores = [
        np.inf if stop.k > (most or np.inf) else s for stop, s in zip(stops, scores, strict=True)
    ]
    path.confidences = np.ones(len(stops))
    if len(stops) == 1:
        return
    i = [stop.k for stop in stops].index(path.best)
    if path.best > 1:
        gap = (min(scores[:i] + scores[i + 1 :]) - scores[i]) / tie
        path.confidence = confidence_of_several(own_ranges[i], ranges[i], gap)
    else:
        second = min(stops[1:], key=lambda stop: stop.V)
        gap = (second.V - about.price * (second.k - 1) - stops[0].V) / about.u
        path.plausible = gap > 0
        transformed = path.sample.Y is not path.sample.X
        path.confidence = confidence_of_one(gap, about.u, transformed)
    far = np.array(scores) - scores[i]
    weight = np.exp(-np.clip(far / tie / 4, 0, 700))
    weight[i] = 0
    if weight.any():
        path.confidences = weight / weight.sum() * (1 - path.confidence)
        path.confidences = np.minimum(path.confidences, path.confidence)
        path.confidences[i] = path.confidence


def widths(counts, errors):
    """The largest over the smallest penalty for which each number is best, 0 where it never is."""
    low, high = best_penalties(counts, errors)
    return [b / a if 0 < a < b else 0.0 for a, b in zip(low, high, strict=True)]


class _Search:
    """The search for a path on rows X (constant columns left out), of ``total`` weight and more."""

    def __init__(self, X, w, total, rng, lam, most, sizes, columns):
        self.X, self.w, self.total, self.rng, self.columns = X, w, total, rng, columns
        self.lam, self.most, self.sizes, self.transform = lam, most, sizes, None

    def sample(self, size):
        rows = np.arange(len(self.X))
        if size < len(self.X):
            rows = np.sort(sample_without_replacement(len(rows), size, random_state=self.rng))
        share = self.w[rows].sum() / self.total
        return _Sample(self.X[rows], self.w[rows], share, self.transform)

    def value(self, stop, sample):
        return stop.V if self.lam is None else stop.error / sample.share + self.lam * stop.k

    def allowed(self, stops):
        return [stop for stop in stops if self.most is None or stop.k <= self.most]

    def coarse_pass(self, sample, n_start, every=2):
        """From many clusters in steps of a tenth: where the way in single steps begins.

        How many times as many clusters are wanted: 4 where seeds beyond ``n_start`` save much
        more than those before, 2 where the best is in the upper half; and the best.
        """
        descent, grain = sample.descent, False
        if len(sample.X) <= self.sizes.small and self.lam is None:
            descent.start(descent.Y)
            descent.merge(max(0, len(descent.centers) - n_start))
            descent.begin()
        else:
            seeds, sums = descent.seed(min(len(sample.X), 4 * n_start), self.rng)
            grain = len(sums) > n_start + 1 and sums[n_start] > 0
            if grain:
                before, here, after = sums[n_start // 4], sums[n_start], sums[-1]
                grain = before / here * (after / here) * 1.5 < 1
            descent.start(seeds[:n_start])
        descent.run_lloyd(5)
        stops, centers = [], []
        for _ in descent.down(lambda k: max(1, k // 10), 2):
            stops.append(sample.stop())
            centers.append(descent.centers)
        evaluated = [stop for i, stop in enumerate(stops) if i % every == 0 or stop.k == 1]
        best = min(self.allowed(evaluated[::-1]), key=lambda stop: self.value(stop, sample)).k
        beyond = [c for c in centers if len(c) >= best + best // 4 + 10]
        start = (beyond or centers[:1])[-1]
        return start, 4 if grain else 2 if best > 0.5 * stops[0].k else 1, best

    def fine_way(self, sample, start, low, single):
        """All numbers of clusters but for steps; those that save nothing are left out.

        Steps leave a 50th of the clusters out above ``low`` (none if ``single``), a tenth below.
        """
        sizes, share = self.sizes, sample.share

        def step(k):
            if k <= sizes.few or (single and k > low):
                return 1
            return max(1, min(k - sizes.few, k // (sizes.steps if k > low else 10)))

        sample.descent.start(start)
        sample.descent.run_lloyd(5)
        every = [sample.stop() for _ in sample.descent.down(step, 5)][::-1]
        stops = [s for i, s in enumerate(every) if all(s.error < t.error for t in every[:i])]
        counts, errors = [s.k for s in stops], [s.error for s in stops]
        ranges = widths(counts, errors)
        scores = [stop.V for stop in stops]
        for i, wide in enumerate(ranges):  # a wide range of penalties is worth something
            if stops[i].k > 1:
                scores[i] -= sample.tie * np.log(min(max(wide, 1), 4))
        allowed = self.allowed(stops)
        best = min(allowed, key=lambda stop: self.value(stop, sample))
        if self.lam is None and best.k > 1:
            several = [i for i, stop in enumerate(stops) if stop.k > 1 and stop in allowed]
            best = stops[min(several, key=lambda i: scores[i])]
        low, high = best_penalties(counts, errors)
        low, high = low / share, high / share
        tree = np.array(sample.descent.tree).reshape(-1, 4)
        tree[:, 2] /= np.sqrt(share)
        value = min(stop.V for stop in allowed)
        path = Path(stops, best.k, 0.0, value, tree, low, high, sample.tie, len(sample.X))
        path.sample = sample
        path.lam = penalty(path)
        path.emptied = sample.descent.emptied
        if self.lam is None:
            own = widths(counts, [s.own_error for s in stops])
            weigh(path, scores, own, ranges, self.most)
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
            start = (above or path.stops[-1:])[0].modeled
            low, single = path.best - 2 * step, True

    def find_from(self, size, init, least):
        """More rows and clusters until there are enough of them above the best.

        None where a coarse pass finds fewer than ``least`` clusters.
        """
        n, sizes = len(self.X), self.sizes
        n_start, rounds = 0, 0
        while True:
            rounds += 1
            sample = self.sample(size)
            limit = size if self.lam is not None else min(size, max(2, size // 2))
            n_start = min(size, limit, max(20, int(4 * np.sqrt(size)), n_start))
            start, wider = init, 1
            if init is None:
                start, wider, best = self.coarse_pass(sample, n_start, 1 if least else 2)
                if best < least:
                    return None
            last = size == n and n_start == limit
            if wider > 1 and not last:
                size, n_start = min(n, 4 * size), wider * n_start
                continue
            more = min(n, max(size, sizes.fine, sizes.rows * len(start)))
            if more > size:
                sample = self.sample(more)
            low, single = (len(start) // 3, False) if init is None else (0, True)
            path, metric = self.fine_ways(sample, start, low, single)
            path.rounds = rounds
            few = path.best > 0.85 * len(start) and len(start) != self.most
            if not (few and init is None and not last):
                return path, metric
            size, n_start = min(n, 4 * size), 2 * n_start

    def find(self, init):
        """From a few rows; from more where there seem to be only one or two clusters in these."""
        n, sizes = len(self.X), self.sizes
        size = min(n, max(sizes.coarse // 2, min(sizes.coarse, sizes.numbers // self.columns)))
        found, more = self.find_from(size, init, 0), min(n, sizes.fine)
        allowed = self.most is None or self.most > 2
        if found[0].best > 2 or not allowed or size >= more or not init is self.lam is None:
            return found
        other = self.find_from(more, init, 3)
        if other is not None and per_row(other[0]) < per_row(found[0]):
            other[0].searches = 2
            return other
        return found

    def run(self, init):
        """The best path, in a metric or plainly, and the one found plainly.

        Where the best clusters are long in shared directions, there are up to three more ways down
        in the metric that makes them round, each from the clusters at the top of the one before;
        taken as long as V is lower by more than the price of a parameter. Of few rows recorded in
        steps, a way down in the metric begins once more with a coarse pass.
        """
        path, metric = self.find(init)
        plain, sample = path, path.sample
        for turned in range(1, 4):
            if metric is None or init is not None or self.lam is not None:
                break
            start = sample.turn(metric, path.stops[-1].modeled)
            other, metric = self.fine_way(sample, start, 0, False)
            if len(sample.X) <= self.sizes.small and sample.about.floor.any():
                start = self.coarse_pass(sample, max(20, int(4 * np.sqrt(len(sample.X)))))[0]
                again, again_metric = self.fine_way(sample, start, 0, False)
                if again.value < other.value - 1e-3 * sample.tie:
                    other, metric, other.surveyed = again, again_metric, other.surveyed + 1
            if not other.value < path.value - sample.tie:
                break
            for name in ("rounds", "descents", "searches"):
                setattr(other, name, getattr(path, name))
            other.turned, path = turned, other
        return path, plain


def per_row(path):
    """V for each row that counts."""
    return path.value / path.sample.about.u


def merge_path(
    X, random_state, *, lam=None, weights=None, init=None, max_clusters=None, sizes=None
):
    """k-means on the way from many clusters down to one, best by V or for a given lam.

    Rows with a value filled in are left out; where columns are one-sided, there is a second search
    on rows transformed.
    """
    X = np.asarray(X, dtype=float)
    first, varying = X[0], np.ptp(X, axis=0) > 0
    columns = X.shape[1]
    X, w, rows = prepare(X, weights, None)
    rng, total = check_random_state(random_state), w[rows].sum()
    if lam is None:
        complete = rows[~twins.columns.filled(X, w)[rows]]
        rows = complete if 2 * len(complete) > len(rows) else rows
    X, w = X[rows][:, varying], w[rows]
    if not varying.any():
        one = Stop(first[None], V=0.0, error=0.0)
        path = Path([one], 1, 1.0, 0.0, np.empty((0, 4)), np.zeros(1), np.full(1, np.inf))
        path.confidences = np.ones(1)
        return path
    given = None if init is None else np.asarray(init, dtype=float)[:, varying]
    search = _Search(X, w, total, rng, lam, max_clusters, sizes or Sizes(), columns)
    path, plain = search.run(given)
    skewed, few_valued = [], np.flatnonzero(path.sample.about.few_valued)
    if lam is init is None:
        search.transform = twins.columns.Transform(path.sample.X, path.sample.w)
        skewed = list(search.transform.parts)
        if skewed and not (path.best > 1 and path.confidence > 0.95):
            other, _ = search.run(None)
            ranks = [p.sample.about.basis.shape[1] for p in (path, other)]
            if ranks[0] == ranks[1] and per_row(other) < per_row(path) and other.plausible:
                path, path.transformed = other, True
                few_valued = np.flatnonzero(path.sample.about.few_valued)
    numbers = np.flatnonzero(varying)
    path.skewed, path.few_valued = numbers[skewed], numbers[few_valued]
    converge(path, plain, lam, path.sample)
    for stop in [*path.stops, *path.found]:
        whole = np.tile(first, (stop.k, 1))
        whole[:, varying] = stop.centers
        stop.centers = whole
    return path
