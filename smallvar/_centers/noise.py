"""The price of noise, and the descent on the objective of DP-means with noise."""

import numpy as np
from scipy.optimize import brentq
from scipy.spatial.distance import cdist
from scipy.special import gammainccinv, gammaincinv
from sklearn.utils.random import sample_without_replacement

from smallvar._core.fit_loop import CANCELLATION, NO_CAP, TIE, Progress
from smallvar._core.frame import RowsFrame, nearest_sweep
from smallvar._core.validation import some_rows
from smallvar._selection.descent import draw
from smallvar._sweeps.noise import NoiseSweep
from smallvar._sweeps.seeds import nearest_seed
from smallvar._sweeps.sums import exact_total

LEVEL = 0.05  # expected number of rows beyond the price where squared distances are gamma
MIDDLE, UPPER = 0.5, 0.8  # quantiles of squared distances through which the gamma law goes
WIDE = 0.9  # share of the rows whose clusters are no wider than the one that sets the scale
SHAPES = 0.05, 1e6  # least and largest shape of that law
SEEDS, JUDGES, TRIED = 200, 2000, 3  # places for a cluster, rows that rate them, the best of them
SAVING_MARGIN = 1e-9  # of what a cluster saves: rounding of the bounds on it is less
MOVES = 20  # of a place that is tried; further ones are left to the sweeps


def quantile(values, weight, share):
    """The least value that at least this share of the weight does not exceed."""
    order = np.argsort(values, kind="stable")
    total = np.arange(1.0, len(values) + 1.0) if weight is None else np.cumsum(weight[order])
    at = np.searchsorted(total, share * total[-1] * (1.0 - TIE))
    return float(values[order[min(at, len(order) - 1)]])


def tail(ratio, share):
    """The quantile beyond which a gamma law has this share, in medians.

    ``ratio`` is its quantile UPPER divided by its median.
    """

    def excess(shape):
        a = np.exp(shape)
        return np.log(gammaincinv(a, UPPER) / gammaincinv(a, MIDDLE)) - np.log(ratio)

    low, high = np.log(SHAPES)
    if not excess(low) > 0.0:
        shape = SHAPES[0]
    elif not excess(high) < 0.0:
        shape = SHAPES[1]
    else:
        shape = float(np.exp(brentq(excess, low, high)))
    return float(gammainccinv(shape, share) / gammaincinv(shape, MIDDLE))


def price_of(distance, labels, k, weight, rows):
    """The squared distance from its center that LEVEL rows of ``rows`` would exceed; None: all 0.

    Squared distances are taken to be gamma within clusters, as those of Gaussian clusters of any
    covariance nearly are, of a scale of its own in each; where most rows are at their centers,
    those of all other rows, of one scale.
    """
    middle = np.zeros(k)
    for c in range(k):
        own = labels == c
        if own.any():
            mass = None if weight is None else weight[own]
            middle[c] = quantile(distance[own], mass, MIDDLE)
    scale = quantile(middle[labels], weight, WIDE)
    used = middle[labels] > 0.0
    if not scale > 0.0:
        used = distance > 0.0
        if not used.any():
            return None
        scale = quantile(distance[used], None if weight is None else weight[used], MIDDLE)
        middle[:] = scale
    with np.errstate(over="ignore"):
        relative = distance[used] / middle[labels[used]]
    ratio = quantile(relative, None if weight is None else weight[used], UPPER)
    return scale * tail(max(ratio, 1.0), LEVEL / max(rows, 1))


def labels_and_distances(X, centers, n_threads):
    """The nearest center of each row, and its squared distance."""
    sweep = nearest_sweep(X, None, centers, n_threads)
    return sweep.labels, sweep.assigned_distances()


class Search:
    """A descent on the objective for given ``lam`` and ``price``: clusters come and go.

    ``fixed``: no cluster comes or goes but those left without rows.
    """

    def __init__(self, X, weight, n_threads, rng, cap, centers):
        self.X, self.weight, self.n_threads, self.rng = X, weight, n_threads, rng
        self.cap = NO_CAP if cap is None else cap
        self.frame = RowsFrame(X, weight, n_threads, centers)
        self.sweep = NoiseSweep(X, weight, self.frame, n_threads, len(centers))
        self.rows = None if weight is None or weight.all() else np.flatnonzero(weight)

    def run(self, lam, price, centers, loop, fixed):
        """Sweep to the end, then make labels, centers and objective agree."""
        self.lam, self.price = lam, price
        sweep = self.sweep
        progress = self.progress = Progress(loop, self.X.shape[0])
        counts = self.counts = []
        sweep.start(centers)
        while progress.should_continue:
            before = sweep.k
            moved = self.assign()
            other = None
            if moved == 0 and not fixed:
                other = self.fewer()
                if other is None and sweep.k < self.cap:
                    other = self.more()
                if other is not None:
                    sweep.start(other)
                    self.assign()
            error = sweep.move_centers()
            counts.append(sweep.k)
            progress.record(
                self.measured(error),
                f"{sweep.k} clusters, {self.lost():.6g} noise, {{}}, {moved} points moved, "
                f"{sweep.k - before:+d} clusters",
                changed=moved > 0 or other is not None,
                opened=other is not None,
                n_clusters=sweep.k,
            )
        if not progress.converged:
            self.assign()
            used = sweep.weights > 0.0
            if not used.all():  # rows of weight zero may have been in such a cluster
                sweep.start(sweep.centers[used])
                self.assign()
            counts.append(sweep.k)
            progress.path.append(np.nan)
        self.labels, self.centers = sweep.labels, sweep.centers
        own = sweep.assigned_distances()
        self.inertia = self.total(own, self.labels >= 0)
        progress.correct(self.inertia + lam * sweep.k + price * self.lost())
        return self

    def lower_lam(self):
        """The penalty is at most what a cluster saves, so that none has to go."""
        sweep, lam = self.sweep, self.lam
        if sweep.k == 1:
            return
        labels, own = sweep.labels, sweep.assigned_distances()
        bound = self.least_savings(labels, own)
        for k in np.argsort(bound, kind="stable"):
            if not bound[k] < lam:
                break
            lam = min(lam, self.saving(k, labels, own, self.centers)[0])
        for _, cost in self.unions():
            lam = min(lam, cost.min())
        if 0.0 < lam < self.lam:
            path = self.progress.path
            path[:] = [v - (self.lam - lam) * k for v, k in zip(path, self.counts, strict=True)]
            self.lam = float(lam)
            self.progress.correct(self.inertia + lam * sweep.k + self.price * self.lost())

    def assign(self):
        """Labels for the present centers; returns how many rows moved."""
        sweep = self.sweep
        sweep.assign(self.price)
        moved = sweep.moved()
        if not sweep.weights.any():
            # no row is near enough: one cluster goes to where it has one
            own = sweep.assigned_distances()
            near = own.argmin() if self.rows is None else self.rows[own[self.rows].argmin()]
            sweep.start(np.array(self.X[near : near + 1], dtype=np.float64))
            sweep.assign(self.price)
            moved = max(1, sweep.moved())
        if sweep.needs_float64:
            sweep.use_float64()
        return moved

    def lost(self):
        """The weight of the noise."""
        noise = self.sweep.labels < 0
        if self.weight is None:
            return float(np.count_nonzero(noise))
        return exact_total(self.weight[noise])

    def total(self, values, rows):
        """The weighted sum of values over these rows, rounded once."""
        values = values[rows] if self.weight is None else self.weight[rows] * values[rows]
        return exact_total(values)

    def measured(self, error):
        """The objective after a sweep, from the sums where that is accurate enough."""
        sweep = self.sweep
        if not error > CANCELLATION * sweep.total:
            error = self.total(sweep.assigned_distances(), sweep.labels >= 0)
        return error + self.lam * sweep.k + self.price * self.lost()

    def band(self):
        """By how much a change must lower the objective."""
        return TIE * abs(self.progress.objective)

    def fewer(self):
        """Centers without clusters that do not pay, or with pairs of them merged; None: all pay."""
        if self.sweep.k == 1:
            return None
        other = self.closed()
        return self.merged() if other is None else other

    def closed(self):
        """Centers that are left when clusters go whose rows do better without them.

        In ascending order of what they save; what is left of a cluster's saving when others have
        gone is only more.
        """
        centers, least = self.sweep.centers, self.lam - self.band()
        labels, own = self.sweep.labels.copy(), self.sweep.assigned_distances()
        bound = self.least_savings(labels, own)
        doubtful = np.flatnonzero(bound < self.lam * (1.0 + SAVING_MARGIN))
        savings = {k: self.saving(k, labels, own, centers)[0] for k in doubtful}
        left = np.arange(len(centers))
        for k in sorted(savings, key=lambda k: (savings[k], k)):
            if not savings[k] < least or len(left) == 1:
                break
            saving, rows, label, distance = self.saving(k, labels, own, centers, left)
            if saving < least:
                left = left[left != k]
                labels[rows] = np.where(distance > self.price, -1, left[label])
                own[rows] = distance
        return None if len(left) == len(centers) else centers[left]

    def least_savings(self, labels, own):
        """Of what each cluster saves, a lower bound by the distance of its center from the next."""
        centers = self.sweep.centers
        apart = np.empty(len(centers))
        for start in range(0, len(centers), 256):
            table = cdist(centers[start : start + 256], centers)
            at = np.arange(len(table))
            table[at, start + at] = np.inf
            apart[start : start + 256] = table.min(axis=1)
        rows = labels >= 0
        labels, own = labels[rows], own[rows]
        radius = np.sqrt(own)
        other = np.square(np.maximum(apart[labels] - radius, radius))
        saved = np.minimum(self.price, other) - own
        if self.weight is not None:
            saved *= self.weight[rows]
        return np.bincount(labels, saved, len(centers)) * (1.0 - SAVING_MARGIN)

    def saving(self, k, labels, own, centers, left=None):
        """What cluster k saves its rows; these, their nearest other centers, and how far those are.

        ``left`` are the clusters there are, None: all.
        """
        others = np.delete(np.arange(len(centers)), k) if left is None else left[left != k]
        rows = np.flatnonzero(labels == k)
        if len(rows) == 0:
            return 0.0, rows, rows, own[rows]
        sweep = nearest_sweep(some_rows(self.X, rows), None, centers[others], self.n_threads)
        distance = sweep.assigned_distances()
        saved = np.minimum(self.price, distance) - own[rows]
        if self.weight is not None:
            saved *= self.weight[rows]
        return exact_total(saved), rows, sweep.labels, distance

    def unions(self):
        """Blocks of the table of what a union costs, of clusters a < b: first a, and its rows."""
        centers, mass = self.sweep.centers, self.sweep.weights
        for start in range(0, len(centers), 256):
            block = slice(start, start + 256)
            cost = cdist(centers[block], centers, "sqeuclidean")
            cost *= mass[block, None] * (mass / (mass[block, None] + mass))
            cost[np.tril_indices(len(cost), start, len(centers))] = np.inf
            yield start, cost

    def merged(self):
        """Centers with pairs merged whose union costs less than ``lam`` more; None: none does."""
        centers, mass, pairs = self.sweep.centers, self.sweep.weights, []
        for start, cost in self.unions():
            a, b = np.nonzero(cost < self.lam - self.band())
            pairs += [(cost[i, j], i + start, j) for i, j in zip(a, b, strict=True)]
        gone, taken = [], set()
        for _, a, b in sorted(pairs):
            if a not in taken and b not in taken:
                taken |= {a, b}
                centers[a] += mass[b] / (mass[a] + mass[b]) * (centers[b] - centers[a])
                gone.append(b)
        return np.delete(centers, gone, axis=0) if gone else None

    def more(self):
        """Centers with further ones, each of which saves rows more than ``lam``; None: not found.

        Of a few places that are drawn, those that save some rows most are tried, again and again.
        """
        centers, most = self.sweep.centers, self.cap - self.sweep.k
        cost, added = np.minimum(self.sweep.assigned_distances(), self.price), []
        places, judges, table = self.places(cost)
        while len(added) < min(most, len(places)):
            saved = np.maximum(cost[judges] - table, 0.0)
            if self.weight is not None:
                saved *= self.weight[judges]
            best, found = self.lam + self.band(), None
            for seed in np.argsort(-saved.sum(axis=1), kind="stable")[:TRIED]:
                value, center, after = self.refined(cost, places[seed])
                if value > best:
                    best, found = value, (center, after)
            if found is None:
                break
            added.append(found[0])
            cost = found[1]
        return np.vstack([centers, *added]) if added else None

    def places(self, cost):
        """Rows at which a center may open, rows that rate them, and the distances between them."""
        weighted = cost if self.weight is None else self.weight * cost
        total = np.cumsum(weighted)
        seeds = np.flatnonzero(weighted)
        judges = np.arange(len(cost)) if self.rows is None else self.rows
        if len(seeds) > SEEDS:
            seeds = draw(total, SEEDS, self.rng)
        if len(judges) > JUDGES:
            drawn = sample_without_replacement(len(judges), JUDGES, random_state=self.rng)
            judges = judges[np.sort(drawn)]
        places, others = (self.X[rows].astype(np.float64) for rows in (seeds, judges))
        return places, judges, cdist(places, others, "sqeuclidean")

    def refined(self, cost, center):
        """What a new center saves, sum w max(0, cost - ||x - center||^2), it, and the costs then.

        It moves to the mean of the rows that save by it as long as that saves more, MOVES times at
        most: through rows that are spread evenly it would creep for hundreds of passes over all.
        """
        best = -1.0, center, cost
        for _ in range(MOVES):
            after = cost.copy()
            nearest_seed(self.X, None, np.ascontiguousarray(center), after, self.n_threads)
            saves = after < cost if self.weight is None else (after < cost) & (self.weight > 0.0)
            rows = np.flatnonzero(saves)
            saved = self.total(cost - after, rows)
            if not saved > best[0] + TIE * abs(best[0]) or len(rows) == 0:
                return best
            best = saved, center, after
            mass = None if self.weight is None else self.weight[rows]
            center = self.frame.layout.mean(some_rows(self.X, rows), mass, self.n_threads)
        return best
