"""The price of noise, and the descent on the objective of DP-means with noise.

``price_of`` estimates the price from squared distances within clusters, by a gamma law. ``Search``
descends on

    sum_{z_i >= 0} w_i ||x_i - mu_{z_i}||^2 + lam K + price * sum_{z_i = -1} w_i

by Lloyd sweeps (compiled, ``smallvar._sweeps.noise``). At a fixed point of these it removes
clusters that save less than ``lam``, merges pairs, or opens a cluster where one saves more.
"""

import numpy as np
from scipy.optimize import brentq
from scipy.spatial.distance import cdist
from scipy.special import gammainccinv, gammaincinv
from sklearn.utils.random import sample_without_replacement

from smallvar._core.fit_loop import NO_CAP, OBJECTIVE_TIE, Progress
from smallvar._core.frame import RowsFrame, nearest_sweep
from smallvar._core.validation import some_rows
from smallvar._selection.descent import draw
from smallvar._sweeps.exact import nearest_seed
from smallvar._sweeps.noise import NoiseSweep
from smallvar._sweeps.stopping import CANCELLATION
from smallvar._sweeps.sums import exact_total

LEVEL = 0.05  # expected number of rows beyond the price if squared distances follow the law
MIDDLE, UPPER = 0.5, 0.8  # quantiles of squared distances to which the gamma law is fitted
WIDE_SHARE = 0.9  # share of the rows whose clusters are no wider than the one that sets the scale
SHAPES = 0.05, 1e6  # least and largest shape of the gamma law
# rows at which a cluster may open; rows on which these are rated
NOISE_SEEDS, RATING_ROWS = 200, 2000
SEEDS_TRIED = 3  # of the seeds with the best ratings
SAVING_MARGIN = 1e-9  # of the saving of a cluster: bounds on it are rounded by less
MOVES = 20  # of a new center to the mean of the rows that it saves cost


def quantile(values, weight, share):
    """The weighted quantile: the least value with at least this share of the weight up to it."""
    order = np.argsort(values, kind="stable")
    total = np.arange(1.0, len(values) + 1.0) if weight is None else np.cumsum(weight[order])
    at = np.searchsorted(total, share * total[-1] * (1.0 - OBJECTIVE_TIE))
    return float(values[order[min(at, len(order) - 1)]])


def shape_of(ratio):
    """The shape of the gamma law whose UPPER quantile is ``ratio`` times its median."""

    # the ratio of the quantiles falls with the shape: solve for it on a log scale
    def excess(log_shape):
        a = np.exp(log_shape)
        return np.log(gammaincinv(a, UPPER) / gammaincinv(a, MIDDLE)) - np.log(ratio)

    low, high = np.log(SHAPES)
    if not excess(low) > 0.0:
        return SHAPES[0]
    if not excess(high) < 0.0:
        return SHAPES[1]
    return float(np.exp(brentq(excess, low, high)))


def medians_of(distance, labels, k, weight):
    """The weighted median of the values in each of k clusters, 0 in an empty one."""
    medians = np.zeros(k)
    for c in range(k):
        members = labels == c
        if members.any():
            w = None if weight is None else weight[members]
            medians[c] = quantile(distance[members], w, MIDDLE)
    return medians


def price_of(distance, labels, k, weight, n_rows, noise=None):
    """The squared distance from its center that LEVEL of n rows are expected to exceed.

    Squared distances within a cluster are taken to follow a gamma law, as they nearly do in
    Gaussian clusters of any covariance. The shape is common to all clusters; each has a scale of
    its own, its median. Where most rows are at their centers, all other rows have one scale.

    ``distance`` and ``labels`` are the squared distances and the clusters (< k) of a sample of
    rows, ``weight`` their weights or None, and ``n_rows`` is n. None if all distances are 0.
    """
    medians = medians_of(distance, labels, k, weight)
    # scale of the price: the median in one of the widest clusters
    scale = quantile(medians[labels], weight, WIDE_SHARE)
    used = medians[labels] > 0.0
    if not scale > 0.0:
        used = distance > 0.0
        if not used.any():
            return None
        scale = quantile(distance[used], None if weight is None else weight[used], MIDDLE)
        medians[:] = scale
    with np.errstate(over="ignore"):
        relative = distance[used] / medians[labels[used]]
    ratio = quantile(relative, None if weight is None else weight[used], UPPER)
    shape = shape_of(max(ratio, 1.0))
    unit = 1.0 / gammaincinv(shape, MIDDLE)  # of the scale of the law, for a median of 1
    price = scale * unit * gammainccinv(shape, LEVEL / max(n_rows, 1))
    if noise is None:
        return float(price)
    sizes = np.bincount(labels, weight, k)
    low = scale * unit * gammaincinv(shape, UPPER)
    return noise.bound(sizes, medians * unit, shape, low, float(price))


def labels_and_distances(X, centers, n_threads):
    """Labels of the nearest centers, and the squared distances."""
    sweep = nearest_sweep(X, None, centers, n_threads)
    return sweep.labels, sweep.assigned_distances()


class Search:
    """A descent on the objective of DP-means with noise, with at most ``cap`` clusters."""

    def __init__(self, X, weight, n_threads, rng, cap, centers):
        self.X, self.weight, self.n_threads, self.rng = X, weight, n_threads, rng
        self.cap = NO_CAP if cap is None else cap
        self.frame = RowsFrame(X, weight, n_threads, centers)
        self.sweep = NoiseSweep(X, weight, self.frame, n_threads, len(centers))
        # rows of positive weight; None: all
        self.rows = None if weight is None or weight.all() else np.flatnonzero(weight)

    def run(self, lam, price, centers, loop, fixed):
        """Sweep to the end, then make labels, centers and objective agree.

        ``fixed``: clusters neither open nor merge; they go only when they have no rows.
        """
        self.lam, self.price = lam, price
        sweep = self.sweep
        progress = self.progress = Progress(loop, self.X.shape[0])
        counts = self.counts = []
        sweep.start(centers)
        while progress.should_continue:
            before = sweep.k
            moved = self.assign()
            new_centers = None
            # at a fixed point of the sweeps: change the number of clusters, fewer first
            if moved == 0 and not fixed:
                if sweep.k > 1:
                    new_centers = self.with_removed()
                    new_centers = self.with_merged() if new_centers is None else new_centers
                if new_centers is None and sweep.k < self.cap:
                    new_centers = self.with_more()
                if new_centers is not None:
                    sweep.start(new_centers)
                    self.assign()
            error = sweep.move_centers()
            counts.append(sweep.k)
            progress.record(
                self.measured(error),
                f"{sweep.k} clusters, {self.noise_weight():.6g} noise, {{}}, {moved} points moved, "
                f"{sweep.k - before:+d} clusters",
                changed=moved > 0 or new_centers is not None,
                opened=new_centers is not None,
                n_clusters=sweep.k,
            )
        # ended by max_iter or tol: labels must be those of the final centers
        if not progress.converged:
            self.assign()
            used = sweep.weights > 0.0
            if not used.all():  # rows of weight zero may have been in such a cluster
                sweep.start(sweep.centers[used])
                self.assign()
            counts.append(sweep.k)
            progress.path.append(np.nan)
        self.labels, self.centers = sweep.labels, sweep.centers
        self.inertia = self.total(sweep.assigned_distances(), self.labels >= 0)
        progress.correct(self.inertia + lam * sweep.k + price * self.noise_weight())
        return self

    def lower_lam(self):
        """Lower the penalty to the least that a cluster or a merger saves, if that is less.

        The result is then a fixed point at that penalty, too: no cluster is removed or merged.
        """
        sweep, lam = self.sweep, self.lam
        if sweep.k == 1:
            return
        labels, distances = sweep.labels, sweep.assigned_distances()
        bound = self.least_savings(labels, distances)
        # exact savings only where the lower bound is below the least so far
        for k in np.argsort(bound, kind="stable"):
            if not bound[k] < lam:
                break
            lam = min(lam, self.saving(k, labels, distances, self.centers)[0])
        for _, cost in self.unions():
            lam = min(lam, cost.min())
        if 0.0 < lam < self.lam:
            path = self.progress.path
            path[:] = [v - (self.lam - lam) * k for v, k in zip(path, self.counts, strict=True)]
            self.lam = float(lam)
            self.progress.correct(self.inertia + lam * sweep.k + self.price * self.noise_weight())

    def assign(self):
        """Label all rows by the present centers; returns the number of rows that moved."""
        sweep = self.sweep
        sweep.assign(self.price)
        moved = sweep.moved()
        if not sweep.weights.any():
            # all rows are noise: the only cluster moves to the row nearest to a center (K >= 1)
            distances = sweep.assigned_distances()
            rows = slice(None) if self.rows is None else self.rows
            nearest = distances[rows].argmin()
            if self.rows is not None:
                nearest = self.rows[nearest]
            sweep.start(np.array(self.X[nearest : nearest + 1], dtype=np.float64))
            sweep.assign(self.price)
            moved = max(1, sweep.moved())
        if sweep.needs_float64:
            sweep.use_float64()
        return moved

    def noise_weight(self):
        """The weight of all rows that are noise."""
        noise = self.sweep.labels < 0
        if self.weight is None:
            return float(np.count_nonzero(noise))
        return exact_total(self.weight[noise])

    def total(self, values, rows):
        """The weighted sum of ``values`` over ``rows`` (a mask or indices), rounded once."""
        values = values[rows] if self.weight is None else self.weight[rows] * values[rows]
        return exact_total(values)

    def measured(self, error):
        """The objective after a sweep, from the sums where that is accurate enough."""
        sweep = self.sweep
        if not error > CANCELLATION * sweep.total:
            error = self.total(sweep.assigned_distances(), sweep.labels >= 0)
        return error + self.lam * sweep.k + self.price * self.noise_weight()

    def tolerance(self):
        """The least amount by which a change must lower the objective."""
        return OBJECTIVE_TIE * abs(self.progress.objective)

    def with_removed(self):
        """Centers without the clusters that save less than ``lam``; None: all save more.

        Clusters are removed in ascending order of their savings. Removing one can only raise the
        savings of the others, so each is computed anew before it is removed.
        """
        centers, least = self.sweep.centers, self.lam - self.tolerance()
        labels, distances = self.sweep.labels.copy(), self.sweep.assigned_distances()
        bound = self.least_savings(labels, distances)
        # clusters whose lower bound exceeds lam surely stay
        doubtful = np.flatnonzero(bound < self.lam * (1.0 + SAVING_MARGIN))
        savings = {k: self.saving(k, labels, distances, centers)[0] for k in doubtful}
        left = np.arange(len(centers))
        for k in sorted(savings, key=lambda k: (savings[k], k)):
            if not savings[k] < least or len(left) == 1:
                break
            saving, rows, nearest, distance = self.saving(k, labels, distances, centers, left)
            if saving < least:
                left = left[left != k]
                labels[rows] = np.where(distance > self.price, -1, left[nearest])
                distances[rows] = distance
        return None if len(left) == len(centers) else centers[left]

    def least_savings(self, labels, distances):
        """Lower bounds of the savings of all clusters, from distances between centers.

        A row at distance r from its center, whose nearest other center is at distance h, is at
        least max(h - r, r) away from every other center.
        """
        centers = self.sweep.centers
        apart = np.empty(len(centers))
        for start in range(0, len(centers), 256):
            table = cdist(centers[start : start + 256], centers)
            i = np.arange(len(table))
            table[i, start + i] = np.inf
            apart[start : start + 256] = table.min(axis=1)
        rows = labels >= 0
        labels, distances = labels[rows], distances[rows]
        # by the triangle inequality: what the row costs elsewhere, unless it is noise, is no less
        radius = np.sqrt(distances)
        other_distances = np.square(np.maximum(apart[labels] - radius, radius))
        saved = np.minimum(self.price, other_distances) - distances
        if self.weight is not None:
            saved *= self.weight[rows]
        return np.bincount(labels, saved, len(centers)) * (1.0 - SAVING_MARGIN)

    def saving(self, k, labels, distances, centers, left=None):
        """The saving of cluster k, its rows, their nearest other centers, and squared distances.

        The saving is sum_i w_i (min(price, ||x_i - mu||^2) - ||x_i - mu_k||^2) over the rows of k,
        mu the nearest of the other centers. ``left`` are the clusters not removed, None: all.
        """
        remaining = np.delete(np.arange(len(centers)), k) if left is None else left[left != k]
        rows = np.flatnonzero(labels == k)
        if len(rows) == 0:
            return 0.0, rows, rows, distances[rows]
        sweep = nearest_sweep(some_rows(self.X, rows), None, centers[remaining], self.n_threads)
        other_distances = sweep.assigned_distances()
        saved = np.minimum(self.price, other_distances) - distances[rows]
        if self.weight is not None:
            saved *= self.weight[rows]
        return exact_total(saved), rows, sweep.labels, other_distances

    def unions(self):
        """Yield the costs of all unions in blocks of rows: the index of the first row, the block.

        The union of clusters a < b raises the error by s_a s_b / (s_a + s_b) ||mu_a - mu_b||^2.
        Other entries are infinite.
        """
        centers, weights = self.sweep.centers, self.sweep.weights
        for start in range(0, len(centers), 256):
            block = slice(start, start + 256)
            cost = cdist(centers[block], centers, "sqeuclidean")
            cost *= weights[block, None] * (weights / (weights[block, None] + weights))
            cost[np.tril_indices(len(cost), start, len(centers))] = np.inf
            yield start, cost

    def with_merged(self):
        """Centers after mergers, each cluster in one, that cost less than ``lam``; or None."""
        centers, weights, pairs = self.sweep.centers, self.sweep.weights, []
        for start, cost in self.unions():
            a, b = np.nonzero(cost < self.lam - self.tolerance())
            pairs += [(cost[i, j], i + start, j) for i, j in zip(a, b, strict=True)]
        removed, merged = [], set()
        for _, a, b in sorted(pairs):
            if a not in merged and b not in merged:
                merged |= {a, b}
                centers[a] += weights[b] / (weights[a] + weights[b]) * (centers[b] - centers[a])
                removed.append(b)
        return np.delete(centers, removed, axis=0) if removed else None

    def with_more(self):
        """Centers with further ones, each of which saves more than ``lam``; None: none is found.

        A few rows are drawn as seeds. Repeatedly, those that save a sample of the rows most are
        tried as centers, and the best is kept.
        """
        centers, most = self.sweep.centers, self.cap - self.sweep.k
        cost, added = np.minimum(self.sweep.assigned_distances(), self.price), []
        seeds, rated_on, table = self.seeds(cost)
        # open clusters until the best seed saves no more than lam
        while len(added) < min(most, len(seeds)):
            saved = np.maximum(cost[rated_on] - table, 0.0)
            if self.weight is not None:
                saved *= self.weight[rated_on]
            largest, best = self.lam + self.tolerance(), None
            for seed in np.argsort(-saved.sum(axis=1), kind="stable")[:SEEDS_TRIED]:
                value, center, cost_with_it = self.refined(cost, seeds[seed])
                if value > largest:
                    largest, best = value, (center, cost_with_it)
            if best is None:
                break
            added.append(best[0])
            cost = best[1]
        return np.vstack([centers, *added]) if added else None

    def seeds(self, cost):
        """Rows at which a center may open, the indices of rows that rate these, and distances.

        Seeds are drawn by cost times weight, if there are more than NOISE_SEEDS. The table has the
        squared distances of the rating rows (columns) from the seeds.
        """
        weighted = cost if self.weight is None else self.weight * cost
        total = np.cumsum(weighted)
        seeds = np.flatnonzero(weighted)
        rated_on = np.arange(len(cost)) if self.rows is None else self.rows
        if len(seeds) > NOISE_SEEDS:
            seeds = draw(total, NOISE_SEEDS, self.rng)
        if len(rated_on) > RATING_ROWS:
            drawn = sample_without_replacement(len(rated_on), RATING_ROWS, random_state=self.rng)
            rated_on = rated_on[np.sort(drawn)]
        points, rated = (self.X[rows].astype(np.float64) for rows in (seeds, rated_on))
        return points, rated_on, cdist(points, rated, "sqeuclidean")

    def refined(self, cost, center):
        """The saving of a new center, the center, and the costs of all rows with it.

        The saving is sum_i w_i max(0, cost_i - ||x_i - center||^2). The center moves to the mean of
        the rows that it saves cost as long as the saving grows, MOVES times at most: among rows
        that are spread evenly it would move a little in each of hundreds of passes.
        """
        best = -1.0, center, cost
        for _ in range(MOVES):
            new_cost = cost.copy()
            nearest_seed(self.X, None, np.ascontiguousarray(center), new_cost, self.n_threads)
            saves = new_cost < cost
            if self.weight is not None:
                saves &= self.weight > 0.0
            rows = np.flatnonzero(saves)
            saved = self.total(cost - new_cost, rows)
            if not saved > best[0] + OBJECTIVE_TIE * abs(best[0]) or len(rows) == 0:
                return best
            best = saved, center, new_cost
            w = None if self.weight is None else self.weight[rows]
            center = self.frame.layout.mean(some_rows(self.X, rows), w, self.n_threads)
        return best
