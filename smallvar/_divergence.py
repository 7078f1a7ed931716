"""Other measures of distance: Bregman divergences, and a covariance for each cluster."""

import warnings

import numpy as np
from scipy.optimize import brentq
from scipy.spatial.distance import cdist
from scipy.special import digamma, gammaln
from sklearn.cluster import kmeans_plusplus
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from smallvar._base import (
    CenterEstimator,
    check_init,
    check_number,
    check_option,
    check_reach,
    check_weights,
    unchanged_on_error,
    warn_not_converged,
)
from smallvar._dpmeans import NO_CAP, DPMeans, _Start
from smallvar._path import Descent
from smallvar._penalty import check_guess, farthest_by

BLOCK = 1 << 18  # numbers in a temporary table
ROWS = 4096  # rows of a block at most
EPS = float(np.finfo(float).eps)


def _blocks(n, width):
    """Slices of rows whose tables, ``width`` numbers a row, stay in the cache."""
    step = max(1, min(ROWS, BLOCK // max(1, width)))
    return (slice(start, min(n, start + step)) for start in range(0, n, step))


def _log_ratio(x, mu, delta):
    """log(x / mu) for delta = x - mu; to full precision where they are near each other."""
    # a mean that is off by its last bit is then off by the square of that in the divergence
    near = np.abs(delta) <= 0.5 * mu
    return np.where(near, np.log1p(delta / mu), np.log(x) - np.log(mu))


def _relative_entropy(x, mu, delta):
    """x log(x / mu) - x + mu, with 0 log 0 = 0."""
    return np.where(x > 0, x * _log_ratio(x, mu, delta) - delta, -delta)


class _Divergence:
    """D(x, mu) = F(x) - F(mu) - F'(mu).(x - mu), a sum over columns, on a domain low..high.

    ``terms`` are the summands. About a point m0 inside the domain, D(x, mu) = D(x, m0) - x.g + b
    with (g, b) from ``tangent``; where a component of mu is on the border they hold for the x that
    share it, and ``walls`` finds the others, whose divergence is infinite. ``size`` is what a
    squared length is for squared distances: means are good to 1e-12 of its root.
    """

    low, high, low_is_in = 0.0, np.inf, True

    def inside(self, mean):
        """A point of the domain's inside near the mean."""
        return mean

    def walls(self, centers):
        """Components at 0 and at 1, as float matrices; None where there are none."""
        return None, None

    def size(self, X, m0):
        return np.full(X.shape[0], float(X.shape[1]))

    def between(self, X, centers):
        """D of rows and centers that broadcast together, added in order of the columns."""
        with np.errstate(all="ignore"):
            terms = np.maximum(self.terms(X, centers), 0.0)
        return np.add.accumulate(terms, axis=-1, out=terms)[..., -1]

    def check(self, X, name, divergence):
        """Raise where values leave the domain."""
        least, largest = float(X.min()), float(X.max())
        if least < self.low or (least == self.low and not self.low_is_in):
            sign = ">=" if self.low_is_in else ">"
            raise ValueError(
                f"{'Negative values in data: ' if least < 0 and name == 'X' else ''}{name} must be "
                f"{sign} {self.low:g} for divergence={divergence!r}, got {least!r}"
            )
        if largest > self.high:
            raise ValueError(
                f"{name} must be <= {self.high:g} for divergence={divergence!r}, got {largest!r}"
            )


class _KullbackLeibler(_Divergence):
    def terms(self, x, mu):
        return _relative_entropy(x, mu, x - mu)

    def tangent(self, mu, m0):
        # a column that is 0 in all data: D(x, mu) = mu there
        ratio = np.divide(mu, m0, out=np.ones_like(mu), where=(mu > 0) & (m0 > 0))
        return np.log(ratio), mu - m0

    def walls(self, centers):
        zero = centers == 0
        return (zero.astype(float) if zero.any() else None), None

    def size(self, X, m0):
        return X.sum(axis=1) + m0.sum()


class _ItakuraSaito(_Divergence):
    low_is_in = False

    def terms(self, x, mu):
        delta = x - mu
        return delta / mu - _log_ratio(x, mu, delta)

    def tangent(self, mu, m0):
        return (mu - m0) / m0 / mu, np.log(mu / m0)


class _Logistic(_Divergence):
    high = 1.0

    def inside(self, mean):
        return np.clip(mean, 1e-6, 1.0 - 1e-6)

    def terms(self, x, mu):
        return _relative_entropy(x, mu, x - mu) + _relative_entropy(1.0 - x, 1.0 - mu, mu - x)

    def tangent(self, mu, m0):
        one = np.log(mu / m0, out=np.zeros_like(mu), where=mu > 0)
        other = np.log((1.0 - mu) / (1.0 - m0), out=np.zeros_like(mu), where=mu < 1)
        inner = (mu > 0) & (mu < 1)
        return np.where(inner, one - other, 0.0), np.where(mu < 1, -other, np.log(m0))

    def walls(self, centers):
        zero, one = centers == 0, centers == 1
        return (
            zero.astype(float) if zero.any() else None,
            one.astype(float) if one.any() else None,
        )


DIVERGENCES = {
    "kl": _KullbackLeibler(),
    "itakura_saito": _ItakuraSaito(),
    "logistic": _Logistic(),
}


class _Reference:
    """The point m0 that sums are taken from, and what is known of each row about it."""

    def __init__(self, rule, X, mean):
        self.m0 = rule.inside(mean)
        n, d = X.shape
        self.apart, self.length, self.size = np.empty(n), np.empty(n), np.empty(n)
        unit = np.where(self.m0 > 0, self.m0, 1.0)
        for rows in _blocks(n, d):
            x = X[rows].astype(np.float64, copy=False)
            self.apart[rows] = rule.between(x, self.m0)
            self.length[rows] = np.sqrt(np.square(x / unit).sum(axis=1))
            self.size[rows] = rule.size(x, self.m0)
        self.low, self.high = X.min(axis=0).astype(float), X.max(axis=0).astype(float)
        self.unit = unit


class _DivergenceSweep:
    """The sweeps of DP-means for a divergence; ``_Start`` drives it as it does ``DPSweep``.

    All divergences of a block of rows are one matrix product. Its rounding is bounded, and what is
    closer than that is decided by ``between``, so that labels depend on no block and no BLAS.

    ``rows`` are the rows visited, in that order (None: all as given), ``weight`` their weights > 0
    or None, ``label`` their labels, which are written to, and ``about`` a _Reference of all X.
    """

    fresh_sums = True  # means are always added up anew
    crowded = False  # there are no scores in float32

    def __init__(self, rule, X, weight, rows, label, about):
        self.rule, self.X, self.weight, self.rows, self.label = rule, X, weight, rows, label
        self.about = about
        self.apart = about.apart if rows is None else about.apart[rows]
        self.length = about.length if rows is None else about.length[rows]
        self.total = float(self.apart.sum() if weight is None else weight @ self.apart)
        self.least, self.tolerance = np.empty(len(label)), np.empty(len(label))
        self.n_moved = 0

    @property
    def k(self):
        """Number of clusters."""
        return len(self.centers)

    def start(self, centers):
        """Begin a run at these centers; all labels are 0."""
        self.label[:] = 0
        self.set_centers(np.array(centers, dtype=np.float64))

    def set_centers(self, centers):
        """Centers, and all that products with them need."""
        self.centers = centers
        self.slope, self.offset, self.steep, self.bulk = self._tangents(centers)
        self.zero, self.one = self.rule.walls(centers)

    def _tangents(self, centers):
        slope, offset = self.rule.tangent(centers, self.about.m0)
        steep = np.sqrt(np.square(slope * self.about.unit).sum(axis=1))
        return slope, offset.sum(axis=1), steep, np.abs(offset).sum(axis=1)

    def open_at(self, x):
        """A new center."""
        center = x[None].copy()
        self.centers = np.vstack([self.centers, center])
        added = self._tangents(center)
        self.slope = np.vstack([self.slope, added[0]])
        self.offset, self.steep, self.bulk = (
            np.append(a, b)
            for a, b in zip((self.offset, self.steep, self.bulk), added[1:], strict=True)
        )
        self.zero, self.one = self.rule.walls(self.centers)

    def rows_of(self, block):
        """The rows of a block of the visit, as float64."""
        rows = block if self.rows is None else self.rows[block]
        return self.X[rows].astype(np.float64, copy=False)

    def weights_of(self, block):
        """Their weights."""
        return 1.0 if self.weight is None else self.weight[block]

    # ---- nearest centers -------------------------------------------------------------------------

    def table(self, x, block, first=0):
        """D of rows to the centers from ``first`` on, and how far rounding may put it off."""
        table = x @ self.slope[first:].T
        np.subtract(self.offset[first:], table, out=table)
        table += self.apart[block, None]
        for wall, side in ((self.zero, x), (self.one, None)):
            if wall is not None:
                (at,) = np.nonzero(wall[first:].any(axis=1))
                beyond = (1.0 - x if side is None else side) @ wall[first:][at].T > 0
                table[:, at] = np.where(beyond, np.inf, table[:, at])
        bound = self.apart[block] + self.length[block] * self.steep[first:].max()
        return table, (x.shape[1] + 16) * EPS * (bound + self.bulk[first:].max())

    def nearest(self, x, block):
        """Label, divergence and its tolerance for the rows of a block."""
        table, tolerance = self.table(x, block)
        least = table.min(axis=1)
        candidate = table <= (least + 2.0 * tolerance)[:, None]
        label = candidate.argmax(axis=1)
        if np.count_nonzero(candidate) > len(x):
            close = np.flatnonzero(candidate.sum(axis=1) > 1)
            row, center = np.nonzero(candidate[close])
            value = self.exact_pairs(x, close[row], center)
            order = np.lexsort((center, value, row))
            first = order[np.searchsorted(row, np.arange(len(close)))]
            label[close], least[close] = center[first], value[first]
        return label, least, tolerance

    def exact_pairs(self, x, row, center):
        """D of pairs of a row and a center."""
        out = np.empty(len(row))
        for part in _blocks(len(row), x.shape[1]):
            out[part] = self.rule.between(x[row[part]], self.centers[center[part]])
        return out

    def assign(self):
        """All rows join their nearest center."""
        self.n_moved = 0
        for block in _blocks(len(self.label), self.k):
            label, least, tolerance = self.nearest(self.rows_of(block), block)
            self._put(block, label)
            self.least[block], self.tolerance[block] = least, tolerance

    def _put(self, block, label):
        self.n_moved += int(np.count_nonzero(label != self.label[block]))
        self.label[block] = label

    def moved(self):
        """Rows that got another label in this sweep."""
        return self.n_moved

    # ---- opening clusters ------------------------------------------------------------------------

    def create(self, lam, cap):
        """One sweep of Algorithm 1: nearest centers, opening clusters in the order of visit."""
        self.n_moved = 0
        for block in _blocks(len(self.label), self.k):
            x = self.rows_of(block)
            label, least, tolerance = self.nearest(x, block)
            if self.k < cap and lam < np.inf:
                w = np.broadcast_to(self.weights_of(block), least.shape)
                self._settle(x, w, lam, label, least, tolerance, np.arange(len(x)))
                self._open(x, block.start, w, lam, cap, label, least, tolerance)
            self._put(block, label)

    def _settle(self, x, w, lam, label, least, tolerance, rows):
        """Exact divergences where it is close whether w D exceeds lam."""
        with np.errstate(invalid="ignore"):  # of infinities
            close = np.abs(w[rows] * least[rows] - lam) <= w[rows] * tolerance[rows] + EPS * lam
        rows = rows[close]
        if len(rows):
            least[rows] = self.exact_pairs(x, rows, label[rows])

    def _open(self, x, start, w, lam, cap, label, least, tolerance):
        """Clusters for the far rows of a block, one after the other."""
        after = 0
        while self.k < cap:
            far = w[after:] * least[after:] > lam
            first = int(far.argmax()) if len(far) else 0
            if not len(far) or not far[first]:
                return
            i = after + first
            label[i], least[i] = self.k, 0.0
            self.open_at(x[i])
            after = i + 1
            if after == len(x):
                return
            new, slack = self.table(x[after:], slice(start + after, start + len(x)), self.k - 1)
            new, rest = new[:, 0], least[after:]
            slack2 = 2.0 * np.maximum(slack, tolerance[after:])
            closer = new < rest - slack2
            with np.errstate(invalid="ignore"):
                close = np.flatnonzero(np.abs(new - rest) <= slack2)
            if len(close):
                rows = after + close
                new[close] = self.exact_pairs(x, rows, np.full(len(rows), self.k - 1))
                rest[close] = self.exact_pairs(x, rows, label[rows])
                closer[close] = new[close] < rest[close]
            (rows,) = np.nonzero(closer)
            rest[rows], tolerance[after:][rows] = new[rows], slack[rows]
            label[after:][rows] = self.k - 1
            self._settle(x, w, lam, label, least, tolerance, after + np.union1d(rows, close))

    def seek_farthest(self, lam, seek):
        """Take lam for ``open_farthest``."""
        self.lam = lam

    def open_farthest(self):
        """Delayed creation: the row with the largest w D leaves for a cluster of its own."""
        w = np.broadcast_to(self.weights_of(slice(None)), self.least.shape)
        reach, slack = w * self.least, w * self.tolerance
        if np.isfinite(reach).all():
            (near,) = np.nonzero(reach + slack >= (reach - slack).max())
        else:
            (near,) = np.nonzero(np.isinf(reach))
        rows = near if self.rows is None else self.rows[near]
        value = np.empty(len(near))
        for part in _blocks(len(near), self.X.shape[1]):
            value[part] = self.rule.between(
                self.X[rows[part]].astype(float), self.centers[self.label[near[part]]]
            )
        value *= w[near]
        best = int(value.argmax())
        if value[best] > self.lam:
            self.open_at(self.X[rows[best]].astype(float))
            self.label[near[best]] = self.k - 1

    # ---- means -----------------------------------------------------------------------------------

    def _add_up(self):
        """Mean, weight and number of members of each cluster."""
        k, d = self.k, self.X.shape[1]
        total, mass = np.zeros((k, d)), np.zeros(k)
        low, high = np.full((k, d), np.inf), np.full((k, d), -np.inf)
        for block in _blocks(len(self.label), d):
            label = self.label[block]
            order = np.argsort(label, kind="stable")
            label = label[order]
            first = np.flatnonzero(np.r_[True, label[1:] != label[:-1]])
            found = label[first]
            x = self.rows_of(block)[order]
            low[found] = np.minimum(low[found], np.minimum.reduceat(x, first))
            high[found] = np.maximum(high[found], np.maximum.reduceat(x, first))
            if self.weight is not None:
                w = self.weight[block][order]
                x = x * w[:, None]
                mass[found] += np.add.reduceat(w, first)
            total[found] += np.add.reduceat(x, first)
        count = np.bincount(self.label, minlength=k)
        self.mass, self.count = (mass if self.weight is not None else count.astype(float)), count
        with np.errstate(invalid="ignore"):
            # so that the mean of equal values is exact
            return np.clip(total / self.mass[:, None], low, high)

    def move_centers(self, from_scratch=False):
        """Means of the members, empty clusters dropped; returns the weighted sum of divergences."""
        centers = self._add_up()
        kept = self.count > 0
        self._keep(centers, kept)
        # sum_i w_i D(x_i, m0) = sum_i w_i D(x_i, mean) + sum_c s_c D(mean_c, m0)
        return self.total - float(self.mass @ self.rule.between(self.centers, self.about.m0))

    def _keep(self, centers, kept):
        if not kept.all():
            self.label[:] = (np.cumsum(kept) - 1)[self.label]
            self.mass, self.count, centers = self.mass[kept], self.count[kept], centers[kept]
        self.set_centers(centers)

    def drop_empty(self):
        """Forget clusters without members; the other centers stay where they are."""
        self.count = np.bincount(self.label, minlength=self.k)
        self.mass = self.count.astype(float)
        self._keep(self.centers, self.count > 0)

    def squared_error(self):
        """Weighted sum of divergences from the own centers, row by row."""
        total = 0.0
        for block in _blocks(len(self.label), self.X.shape[1]):
            own = self.rule.between(self.rows_of(block), self.centers[self.label[block]])
            total += float(np.sum(self.weights_of(block) * own))
        return total

    # ---- collapsed updates -----------------------------------------------------------------------

    def collapse(self, lam, cap):
        """One collapsed sweep: means are right at all times.

        Costs of a block of rows are computed as if none of them moved; the first that does changes
        two clusters, whose costs the rows behind it compute again.
        """
        state = _Collapsed(self, lam, cap)
        n, start, step = len(self.label), 0, 64
        while start < n:
            most = max(1, min(ROWS, BLOCK // max(1, len(state.mass) * self.X.shape[1])))
            stop = min(n, start + min(step, most))
            changes = state.run(slice(start, stop))
            step = max(16, step // 2) if changes > 4 else 2 * step
            start = stop
        self.n_moved = state.n_moved
        opened = len(state.mass) - self.k
        if opened:
            self.set_centers(state.mean)
        return state.n_moved, opened


class _Collapsed:
    """Clusters during a collapsed sweep."""

    def __init__(self, sweep, lam, cap):
        self.sweep, self.lam, self.cap = sweep, lam, cap
        self.mean, self.mass = sweep.centers.copy(), sweep.mass.copy()
        self.count = sweep.count.copy()
        self.live = int(np.count_nonzero(self.count))
        self.n_moved = 0

    def _clip(self, mean):
        # a mean less a member may leave the data by rounding
        return np.clip(mean, self.sweep.about.low, self.sweep.about.high)

    def _join(self, x, w, clusters):
        """Cost of joining: w D(x, joint mean) + s D(mean, joint mean)."""
        between = self.sweep.rule.between
        mass, mean, w = self.mass[clusters], self.mean[clusters], w[:, None]
        apart = x[:, None] - mean
        joint = mean + (w / (w + mass))[..., None] * apart
        cost = w * between(x[:, None], joint) + mass * between(mean, joint)
        cost[:, self.count[clusters] == 0] = np.inf
        return cost

    def _stay(self, x, w, own):
        """Cost of joining the own cluster again, for rows that are not alone in it."""
        between = self.sweep.rule.between
        mean, mass = self.mean[own], self.mass[own] - w
        without = self._clip(mean - (w / mass)[:, None] * (x - mean))
        return w * between(x, mean) + mass * between(without, mean)

    def _fill(self, cost, x, w, label, rows):
        """Costs of the own clusters of these rows."""
        cost[rows, label[rows]] = np.inf
        rows = rows[self.count[label[rows]] > 1]
        cost[rows, label[rows]] = self._stay(x[rows], w[rows], label[rows])

    def run(self, block):
        """Visit a block of rows; returns how many moved."""
        sweep, changes = self.sweep, 0
        x = sweep.rows_of(block)
        w = np.broadcast_to(np.asarray(sweep.weights_of(block), dtype=float), len(x))
        rows = block if sweep.rows is None else sweep.rows[block]
        spread = np.sqrt(w * sweep.about.size[rows])
        label = sweep.label[block]  # a view: changes are written through
        cost = self._join(x, w, np.arange(len(self.mass)))
        self._fill(cost, x, w, label, np.arange(len(x)))
        at = 0
        while at < len(x):
            alone = self.count[label[at:]] == 1
            apart = np.where(self.live - alone < self.cap, self.lam, np.inf)
            least = np.minimum(cost[at:].min(axis=1), apart)
            # means are good to 1e-12, costs to about the root of theirs times that
            tied = least + 1e-12 * (least + np.sqrt(least) * spread[at:])
            good = cost[at:] <= tied[:, None]
            best = np.where(good.any(axis=1), good.argmax(axis=1), len(self.mass))
            change = (best != label[at:]) & ~((best == len(self.mass)) & alone)
            first = int(change.argmax())
            if not change[first]:
                break
            i, new = at + first, int(best[first])
            old, at = int(label[i]), at + first + 1
            self._move(x[i], w[i], old, new)
            label[i] = new
            changes += 1
            if new == cost.shape[1]:
                cost = np.hstack([cost, np.empty((len(x), 1))])
            cost[at:, [old, new]] = self._join(x[at:], w[at:], [old, new])
            self._fill(cost, x, w, label, at + np.flatnonzero(np.isin(label[at:], (old, new))))
        self.n_moved += changes
        return changes

    def _move(self, x, w, old, new):
        self.count[old] -= 1
        self.live -= self.count[old] == 0
        if self.count[old]:
            self.mass[old] -= w
            self.mean[old] -= w / self.mass[old] * (x - self.mean[old])
            self.mean[old] = self._clip(self.mean[old])
        if new == len(self.mass):
            self.mean = np.vstack([self.mean, x])
            self.mass, self.count = np.append(self.mass, w), np.append(self.count, 1)
            self.live += 1
        else:
            self.mass[new] += w
            self.mean[new] += w / self.mass[new] * (x - self.mean[new])
            self.count[new] += 1


class _DivergenceStart(_Start):
    """A start of DP-means on a sweep that is given."""

    def __init__(self, sweep, centers, lam, algorithm, given, max_clusters):
        self.sweep, self.label = sweep, sweep.label
        self.lam, self.algorithm, self.given, self.order = lam, algorithm, given, sweep.rows
        self.cap = NO_CAP if max_clusters is None else max_clusters
        self.path, self.n_iter = [], 0
        sweep.start(centers)


class _DivergenceMergeSweep(_DivergenceSweep):
    """The sweep of a merge path for a divergence, with the methods of ``MergeSweep``."""

    remap = None

    @property
    def weights(self):
        """Weights of the clusters."""
        return self.mass

    @property
    def labels(self):
        """Labels of the rows."""
        return self.label

    def own_distances(self):
        """Divergence of each row from its own center."""
        out = np.empty(len(self.label))
        for block in _blocks(len(out), self.X.shape[1]):
            own = self.centers[self.label[block]]
            out[block] = self.rule.between(self.rows_of(block), own)
        return out

    def seed(self, rows):
        """Centers near these rows, a bit towards the mean: no component is on a border."""
        seeds = np.asarray(self.X[rows], dtype=np.float64)
        self.set_centers(np.vstack([self.centers, seeds + 0.05 * (self.about.m0 - seeds)]))
        self.assign()

    def start(self, centers):
        """Begin at these centers."""
        super().start(centers + 0.05 * (self.about.m0 - centers) if len(centers) == 1 else centers)

    def _keep(self, centers, kept):
        self.remap = np.where(kept, np.cumsum(kept) - 1, -1)
        super()._keep(centers, kept)

    def merge(self, count):
        """Merge the cheapest pair, ``count`` times over; pairs as numbered before, and costs.

        A merger costs w_a D(mu_a, m) + w_b D(mu_b, m), m the joint mean: the information lost.
        """
        k = self.k
        mean, mass, target = self.centers.copy(), self.mass.astype(float), np.arange(k)
        table = np.full((k, k), np.inf)
        for a in range(k - 1):
            table[a, a + 1 :] = self._lost(mean, mass, a, slice(a + 1, k))
        pairs, costs = np.empty((count, 2), dtype=np.intp), np.empty(count)
        for m in range(count):
            a, b = np.unravel_index(table.argmin(), table.shape)
            pairs[m], costs[m] = (a, b), table[a, b]
            mean[a] += mass[b] / (mass[a] + mass[b]) * (mean[b] - mean[a])
            mass[a] += mass[b]
            target[target == b] = a
            table[b], table[:, b] = np.inf, np.inf
            alive = np.flatnonzero(target == np.arange(k))
            lost = self._lost(mean, mass, a, alive)
            table[a, alive[alive > a]] = lost[alive > a]
            table[alive[alive < a], a] = lost[alive < a]
        alive = np.flatnonzero(target == np.arange(k))
        number = np.cumsum(target == np.arange(k)) - 1
        self.label[:] = number[target][self.label]
        self.set_centers(mean[alive])
        self.move_centers()
        return pairs, costs

    def _lost(self, mean, mass, a, others):
        w = mass[others, None]
        joint = mean[a] + w / (mass[a] + w) * (mean[others] - mean[a])
        between = self.rule.between
        return mass[a] * between(mean[a], joint) + mass[others] * between(mean[others], joint)


class _FamilyCriterion:
    """The criterion of a merge path for a divergence: the exact likelihood of its family.

    V = 2 sum_i w_i D(x_i, mu_{z_i}) - 2 n sum_k p_k log p_k + 2 log(n) (K (d + 1) - 1),

    n the sum of weights, terms that do not depend on the clusters left out; for "itakura_saito" the
    shape of the gamma law is one more parameter, fitted. Equal rows are evidence each: bits and
    counts repeat.
    """

    def __init__(self, rule, X, weight, unit):
        self.gamma, self.d = isinstance(rule, _ItakuraSaito), X.shape[1]
        self.n = float(len(X) if weight is None else weight.sum())
        self.unit, self.distinct = unit, len(X)
        self.tie = 2.0 * np.log(self.n * unit)

    def __call__(self, sweep):
        n, d, u, K = self.n, self.d, self.n * self.unit, sweep.k
        p = sweep.weights / n
        error = sweep.squared_error()
        loss = error / n
        if self.gamma:
            # -log f = a D + a - a log a + log Gamma(a) + log x; the mean of D is log a - psi(a)
            mean = min(max(loss / d, 1e-12), 1e5)
            low, high = 1e-6, 1.0 / mean + 1.0
            a = brentq(lambda a: np.log(a) - digamma(a) - mean, low, high)
            loss = a * loss + d * (a - a * np.log(a) + gammaln(a))
        V = u * 2.0 * (loss - float(p @ np.log(p)))
        return V + 2.0 * np.log(u) * (K * (d + 1) - 1 + self.gamma), None, error


class _Family:
    """What a merge path needs to know of a divergence."""

    def __init__(self, rule):
        self.rule = rule

    def __call__(self, X, weight, n_threads, unit):
        about = _Reference(self.rule, X, _mean(X, None, weight))
        labels = np.zeros(X.shape[0], dtype=np.int32)
        sweep = _DivergenceMergeSweep(self.rule, X, weight, None, labels, about)
        return _FamilyCriterion(self.rule, X, weight, unit), Descent(X, weight, sweep)

    def labels(self, X, centers):
        """Labels of the nearest centers."""
        return _sweep_at(self.rule, X, None, None, centers).label


def _farthest_first(rule, X, rows, mean, n_clusters):
    """The farthest-first rule with a divergence, on the rows given."""
    n = X.shape[0] if rows is None else len(rows)

    def apart(seed):
        out = np.empty(n)
        for block in _blocks(n, X.shape[1]):
            x = X[block if rows is None else rows[block]]
            out[block] = rule.between(x.astype(np.float64, copy=False), seed)
        return out

    def to_row(far):
        return apart(X[far if rows is None else rows[far]].astype(np.float64))

    least = farthest_by(apart(mean), to_row, n_clusters, 0.0)
    return least if np.isfinite(least) else 1.0


def _sweep_at(rule, X, weight, rows, centers):
    """A sweep over these rows whose labels are the nearest of the centers."""
    about = _Reference(rule, X, centers.mean(axis=0))
    n = X.shape[0] if rows is None else len(rows)
    sweep = _DivergenceSweep(rule, X, weight, rows, np.zeros(n, dtype=np.int32), about)
    sweep.set_centers(centers)
    sweep.assign()
    return sweep


class BregmanDPMeans(DPMeans):
    """DP-means with a Bregman divergence in place of the squared Euclidean distance.

    Minimizes, over labels, centers and their number K,

        sum_i w_i D(x_i, mu_{z_i}) + lam * K,

    with one of the divergences ::

        "squared_euclidean"   sum_j (x_j - mu_j)^2                                     all x
        "kl"                  sum_j x_j log(x_j / mu_j) - x_j + mu_j                   x >= 0
        "itakura_saito"       sum_j x_j / mu_j - log(x_j / mu_j) - 1                   x > 0
        "logistic"            sum_j x_j log(x_j / mu_j)
                                    + (1 - x_j) log((1 - x_j) / (1 - mu_j))       0 <= x <= 1

    which are, but for terms that do not depend on the clusters, minus the log-likelihoods of a
    Gaussian (of variance 1/2), Poisson, exponential and Bernoulli variable with mean mu_j. The
    best center is the arithmetic mean for all of them.

    Parameters
    ----------
    lam : float, "auto" or "farthest-first", default="auto"
        Penalty for each cluster, in units of D, > 0 (0 is allowed together with ``max_clusters``).
        "auto" chooses the number of clusters by the likelihood of the divergence's family along a
        merge path (see Notes). "farthest-first" derives a penalty from the data and the guess
        ``n_clusters``, with D as the distance.
    divergence : {"squared_euclidean", "kl", "itakura_saito", "logistic"}, \
default="squared_euclidean"
        D. With "squared_euclidean" this is :class:`DPMeans`, on the same compiled sweeps.
    n_clusters : int, default=8
        Guess of the number of clusters for ``lam="farthest-first"``, not a bound. Not used with a
        number as ``lam``.
    max_clusters : int, default=None
        Never have more clusters than this. At the cap a far point joins its nearest cluster.
    algorithm : {"serial", "delayed", "collapsed", "merge"}, default="serial"
        As for :class:`DPMeans`. In "serial" and "delayed" a point x opens a cluster where
        w * D(x, mu) > ``lam`` for every center. In "collapsed" it goes where the objective is
        lowest: joining a cluster of weight s and mean m costs w D(x, m') + s D(m, m'), with m' the
        joint mean. In "merge" two clusters become one at the cost s D(m, m') + s' D(m'', m').
    init : "mean" or array-like of shape (n_centers, n_features), default="mean"
        Starting centers, in the domain of D; "mean" is the (weighted) mean of the data.
    shuffle : bool, default=False
        Visit the points in random order instead of the given one.
    n_init : int, default=1
        Number of starts, the first in the given order (unless ``shuffle``), the others in random
        order. The one with the lowest objective is kept; with "auto" that with the lowest
        criterion.
    max_iter : int, default=300
        Largest number of sweeps; those that open clusters do not count.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times its value after the first
        sweep. 0 runs to a fixed point.
    random_state : int, RandomState instance or None, default=None
        Generator of the random orders, and of the first clusters of a merge path.
    n_threads : int, default=None
        Threads (of BLAS, but for "squared_euclidean"); None means all that this process may use.
        The labels do not depend on it.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        Means of the clusters, in order of creation.
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of each row.
    n_clusters_ : int
        Number of clusters found.
    inertia_ : float
        Weighted sum of divergences from the own centers.
    objective_ : float
        ``inertia_ + lam_ * n_clusters_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep; it never rises.
    lam_ : float
        The penalty used.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    path_ : LambdaPath
        The merge path, with "auto" or "merge" only: see :func:`lambda_path`.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From all methods, for data outside the domain of D, and as for :class:`DPMeans`.

    See Also
    --------
    DPMeans : Squared Euclidean distances.
    MahalanobisMeans : Clusters with covariances of their own.

    Notes
    -----
    "auto" takes the K on the merge path that minimizes minus twice the log-likelihood of rows and
    labels, with the families above (for "itakura_saito" the gamma law, its shape fitted too), plus
    2 log(n) for each of the K (d + 1) - 1 parameters, n the sum of weights. It takes the unit of
    the data at its word: counts are counts. For "squared_euclidean" see
    :func:`lambda_path`.

    0 log 0 is 0. A center with a component on the border of the domain (all members are 0 there,
    or 1) is infinitely far from every x that differs there: with "kl" and "logistic" a point that
    opens a cluster attracts nothing with a positive count where its own is 0. An infinite
    divergence counts as far; at the cap, or in ``predict``, such a point joins the nearest center
    that is at a finite divergence, and the first if there is none.

    References
    ----------
    Jiang, Kulis & Jordan (2012), Small-variance asymptotics for exponential family Dirichlet
    process mixture models. Banerjee, Merugu, Dhillon & Ghosh (2005), Clustering with Bregman
    divergences. "collapsed" after Broderick, Kulis & Jordan (2013), MAD-Bayes, eq. 8-9.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import BregmanDPMeans
    >>> X = np.array([[2, 1], [3, 1], [200, 210], [231, 190], [1, 30], [2, 34]])
    >>> model = BregmanDPMeans(lam=10.0, divergence="kl").fit(X)
    >>> model.labels_
    array([0, 0, 1, 1, 2, 2], dtype=int32)
    >>> model.cluster_centers_.tolist()
    [[2.5, 1.0], [215.5, 200.0], [1.5, 32.0]]
    >>> model.predict([[5, 3], [5, 25]])
    array([0, 2], dtype=int32)
    """

    def __init__(
        self,
        lam="auto",
        *,
        divergence="squared_euclidean",
        n_clusters=8,
        max_clusters=None,
        algorithm="serial",
        init="mean",
        shuffle=False,
        n_init=1,
        max_iter=300,
        tol=0.0,
        random_state=None,
        n_threads=None,
        verbose=0,
    ):
        super().__init__(
            lam,
            n_clusters=n_clusters,
            max_clusters=max_clusters,
            algorithm=algorithm,
            init=init,
            shuffle=shuffle,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
            n_threads=n_threads,
            verbose=verbose,
        )
        self.divergence = divergence

    def _rule(self):
        """The divergence, or None where the compiled sweeps take it."""
        options = ("squared_euclidean", *DIVERGENCES)
        check_option(self.divergence, "divergence", options)
        return DIVERGENCES.get(self.divergence)

    def _validate(self, X, *, reset, least=1):
        rule = self._rule()
        X = super()._validate(X, reset=reset, least=least)
        if rule is not None:
            rule.check(X, "X", self.divergence)
            check_reach(X)
        return X

    def fit(self, X, y=None, sample_weight=None):
        """Cluster the data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data in the domain of the divergence. float32 and float64 in any memory layout are used
            as they are, other types converted once.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each.

        Returns
        -------
        self : BregmanDPMeans
            The fitted estimator.
        """
        rule = self._rule()
        if rule is None:
            return super().fit(X, sample_weight=sample_weight)
        with unchanged_on_error(self):
            rng, n_threads = self._check_parameters()
            X = self._validate(X, reset=True)
            weight = check_weights(sample_weight, X.shape[0])
            given = check_init(self.init, X.shape[1], self.max_clusters)
            if given is not None:
                rule.check(given, "init", self.divergence)
            with threadpool_limits(n_threads, user_api="blas"), np.errstate(over="ignore"):
                best = self._fit_rule(rule, X, weight, given, rng, n_threads)
        if not (best.converged or best.enough):
            warn_not_converged(self, best.n_iter)
        return self

    def _fit_rule(self, rule, X, weight, given, rng, n_threads):
        """All starts; the best one becomes the result."""
        n = X.shape[0]
        visited = None if weight is None or weight.all() else np.flatnonzero(weight)
        mean = _mean(X, visited, None)
        lam = None if self.lam == "auto" else self.lam
        if isinstance(lam, str):
            check_guess(self.n_clusters, n)
            lam = _farthest_first(rule, X, visited, mean, self.n_clusters)
        if weight is not None:
            mean = _mean(X, visited, weight)
        about = _Reference(rule, X, mean)

        def start(order, centers, lam, algorithm, given, cap):
            rows = visited
            if order is not None:
                rows = order if visited is None else order[weight[order] > 0]
            w = weight if weight is None or rows is None else weight[rows]
            label = np.zeros(n if rows is None else len(rows), dtype=np.int32)
            sweep = _DivergenceSweep(rule, X, w, rows, label, about)
            centers = mean[None] if centers is None else centers
            return _DivergenceStart(sweep, centers, float(lam), algorithm, given, cap)

        best = self._run(X, weight, lam, given, rng, n_threads, start, family=_Family(rule))
        if visited is not None:
            # rows of weight zero are not visited: they get the label of predict
            idle = np.flatnonzero(weight == 0)
            self.labels_[idle] = _sweep_at(rule, X[idle], None, None, best.sweep.centers).label
        return best

    def predict(self, X):
        """Center of the least divergence from each row; no row opens a cluster.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data in the domain of the divergence.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Index into ``cluster_centers_``; at a tie the lowest one.
        """
        rule = self._rule()
        if rule is None:
            return super().predict(X)
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        with threadpool_limits(self._threads(), user_api="blas"):
            return _sweep_at(rule, X, None, None, self.cluster_centers_).label

    def transform(self, X):
        """Divergence of each row from each center.

        For "squared_euclidean" that is the squared distance, where :class:`DPMeans` gives the
        distance.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data in the domain of the divergence.

        Returns
        -------
        divergences : ndarray of shape (n_samples, n_clusters)
            In units of ``lam``; may be infinite; float32 for float32 data.
        """
        rule = self._rule()
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        centers = self.cluster_centers_
        out = np.empty((X.shape[0], len(centers)), dtype=X.dtype)
        for rows in _blocks(X.shape[0], centers.size):
            x = X[rows].astype(np.float64, copy=False)
            out[rows] = (
                cdist(x, centers, "sqeuclidean")
                if rule is None
                else rule.between(x[:, None], centers)
            )
        return out

    def score(self, X, y=None, sample_weight=None):
        """Return minus the objective of data at the fitted centers.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data in the domain of the divergence.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
            ``-(sum of w * least divergence from a center + lam_ * n_clusters_)``.
        """
        rule = self._rule()
        if rule is None:
            return super().score(X, sample_weight=sample_weight)
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        weight = check_weights(sample_weight, X.shape[0])
        rows = None if weight is None else np.flatnonzero(weight)
        w = None if weight is None else weight[rows]
        with threadpool_limits(self._threads(), user_api="blas"):
            sweep = _sweep_at(rule, X, w, rows, self.cluster_centers_)
            return -(sweep.squared_error() + self.lam_ * len(self.cluster_centers_))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.divergence != "squared_euclidean"
        return tags


def _mean(X, rows, weight):
    """(Weighted) mean of these rows, within the range of each column."""
    n = X.shape[0] if rows is None else len(rows)
    total, mass = np.zeros(X.shape[1]), 0.0
    low, high = np.full(X.shape[1], np.inf), np.full(X.shape[1], -np.inf)
    for block in _blocks(n, X.shape[1]):
        index = block if rows is None else rows[block]
        x = X[index].astype(np.float64, copy=False)
        w = np.ones(len(x)) if weight is None else weight[index]
        total, mass = total + w @ x, mass + w.sum()
        low, high = np.minimum(low, x.min(axis=0)), np.maximum(high, x.max(axis=0))
    return np.clip(total / mass, low, high)


def _roots(covariances, raise_singular):
    """W with S^-1 = W W' for each S, and log det S; ``raise_singular(k)`` where there are none."""
    scale = np.einsum("kjj->kj", covariances)
    try:
        lower = np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError:
        raise_singular(int(np.argmin(np.linalg.eigvalsh(covariances)[:, 0])))
    pivots = np.einsum("kjj->kj", lower)
    left = np.square(pivots) / scale  # of a variance, once the columns before it are known
    if not (left > 1e-14).all():
        raise_singular(int(np.argmin(left.min(axis=1))))
    return np.linalg.inv(lower).transpose(0, 2, 1), 2.0 * np.log(pivots).sum(axis=1)


class _Gaussians:
    """Centers and covariances, and the objective they give."""

    def __init__(self, X, w, lam, scale, reg, known):
        self.X, self.w = X, w
        self.lam, self.scale, self.reg, self.known = lam, scale, reg, known
        self.identity = np.eye(X.shape[1])

    def rows(self, index):
        return self.X[index].astype(np.float64, copy=False)

    def _moments(self, label, k):
        """Mean of each cluster, and the sum of w (x - mean)(x - mean)'."""
        d = self.X.shape[1]
        centers, scatter = np.zeros((k, d)), np.zeros((k, d, d))
        order = np.argsort(label, kind="stable")
        start = np.searchsorted(label[order], np.arange(k + 1))
        size = np.diff(start)
        centers[size == 1] = self.rows(order[start[:-1][size == 1]])
        for c in np.flatnonzero(size > 1):
            members = order[start[c] : start[c + 1]]
            w = self.w[members]
            centers[c] = sum(w[b] @ self.rows(members[b]) for b in _blocks(len(w), d)) / w.sum()
            for b in _blocks(len(w), d):
                apart = self.rows(members[b]) - centers[c]
                scatter[c] += (w[b, None] * apart).T @ apart
        return centers, scatter

    def refit(self, label, k):
        """Means and covariances of the members; returns the objective."""
        self.centers, scatter = self._moments(label, k)
        if self.known is None:
            self.set_covariances((scatter + self.reg * self.identity) / self.scale, label)
        elif self.known.ndim == 2:
            self.set_covariances(np.broadcast_to(self.known, scatter.shape).copy(), label)
        else:
            self.set_covariances(self.known, label)
        return float(np.sum((scatter @ self.roots) * self.roots)) + self.prior()

    def set_covariances(self, covariances, label=None):
        """Covariances, and their roots."""

        def singular(k):
            members = "" if label is None else f" of {np.count_nonzero(label == k)} rows"
            raise ValueError(
                f"reg_covar must be larger: with reg_covar={self.reg:.6g} the covariance of "
                f"cluster {k}{members} in {self.X.shape[1]} dimensions is singular"
            )

        self.covariances = covariances
        self.roots, self.logdet = _roots(covariances, singular)

    def prior(self):
        """What the clusters cost without their points: reg tr S^-1 + scale log det S + lam each."""
        trace = self.reg * float(np.square(self.roots).sum())
        return trace + self.scale * float(self.logdet.sum()) + self.lam * len(self.logdet)

    def distances(self, x):
        """Squared Mahalanobis distances, (n, k)."""
        out = np.empty((len(x), len(self.centers)))
        for k, (center, root) in enumerate(zip(self.centers, self.roots, strict=True)):
            white = (x - center) @ root
            out[:, k] = np.einsum("ij,ij->i", white, white)
        return out

    def assign(self):
        """Nearest center of each row, and the squared distance."""
        n = self.X.shape[0]
        label, least = np.empty(n, dtype=np.int32), np.empty(n)
        for b in _blocks(n, max(self.centers.shape)):
            table = self.distances(self.rows(b))
            label[b] = table.argmin(axis=1)
            least[b] = np.take_along_axis(table, label[b, None], axis=1)[:, 0]
        return label, least

    def keep(self, kept):
        """Forget the other clusters."""
        self.centers, self.covariances = self.centers[kept], self.covariances[kept]
        self.roots, self.logdet = self.roots[kept], self.logdet[kept]


class _GaussianStart:
    """One start of MahalanobisMeans."""

    def __init__(self, gaussians, k, cost, order):
        self.state, self.k, self.cost, self.order = gaussians, k, cost, order
        self.path, self.n_iter = [], 0

    def run(self, label, first, max_iter, tol, verbose):
        """Sweep from these labels to a fixed point; ``first``: they are the first sweep."""
        state, counted, idle = self.state, 0, 0
        self.label = label
        objective = state.refit(label, self.k)
        self.converged = self.enough = False
        if first:
            self._close_sweep(objective, len(label), 0, verbose)
            counted = 1
        while not (self.converged or self.enough) and counted < max_iter and idle < 10:
            before, least = self.label, None
            self.label, least = state.assign()
            if self.cost is None:
                opened = 0
                self._restart(least)
            else:
                opened = self._open(least)
            moved = int(np.count_nonzero(before != self.label))
            self.converged = moved == 0 and opened == 0
            if self.cost is not None:
                kept, label = np.unique(self.label, return_inverse=True)
                self.label, self.k = label.astype(np.int32), len(kept)
            if not self.converged:
                objective = state.refit(self.label, self.k)
            counted += not opened
            self._close_sweep(objective, moved, opened, verbose)
            fell = len(self.path) < 2 or self.path[-1] < self.path[-2]
            idle = idle + 1 if opened and not fell else 0
            if tol > 0 and len(self.path) > 1 and not self.converged:
                self.enough = self.path[-2] - self.path[-1] <= tol * abs(self.path[0])
        if not self.converged:
            self.label, least = state.assign()
            if self.cost is not None:
                kept, label = np.unique(self.label, return_inverse=True)
                self.label, self.k = label.astype(np.int32), len(kept)
                state.keep(kept)
            self.path.append(float(state.w @ least) + state.prior())
        self.objective = self.path[-1]
        return self

    def _close_sweep(self, objective, moved, opened, verbose):
        self.n_iter += 1
        self.path.append(objective)
        if verbose:
            print(
                f"sweep {self.n_iter}: {self.k} clusters, objective {objective:.8g}, "
                f"{moved} points moved, {opened} clusters opened"
            )

    def _restart(self, least):
        """Emptied clusters begin anew at the worst-fitted rows that are not alone."""
        count = np.bincount(self.label, minlength=self.k)
        for k in np.flatnonzero(count == 0):
            worst = np.where(count[self.label] > 1, self.state.w * least, -1.0).argmax()
            count[self.label[worst]] -= 1
            self.label[worst], least[worst], count[k] = k, 0.0, 1

    def _open(self, least):
        """Rows in order of visit whose distance exceeds the cost open clusters."""
        state, order, opened, after = self.state, self.order, 0, 0
        if state.known is None:
            root = np.sqrt(state.scale / state.reg) * state.identity
        else:
            root = state.roots[0]
        while True:
            rest = order[after:]
            far = state.w[rest] * least[rest] > self.cost
            first = int(far.argmax()) if len(far) else 0
            if not len(far) or not far[first]:
                return opened
            i, after = rest[first], after + first + 1
            self.label[i], least[i] = self.k, 0.0
            center = state.rows(i)
            for b in _blocks(len(order) - after, state.X.shape[1]):
                rows = order[after:][b]
                new = np.square((state.rows(rows) - center) @ root).sum(axis=1)
                rows, new = rows[new < least[rows]], new[new < least[rows]]
                self.label[rows], least[rows] = self.k, new
            self.k += 1
            opened += 1


class MahalanobisMeans(CenterEstimator):
    """K-means whose clusters have covariances of their own, learned or known.

    Minimizes, over labels, centers mu_k and covariances S_k,

        sum_k [tr((T_k + reg I) S_k^-1) + scale log det S_k] + lam * K

    where T_k = sum of w_i (x_i - mu_k)(x_i - mu_k)' over the members of k: each point pays its
    squared Mahalanobis distance (x - mu_k)' S_k^-1 (x - mu_k), each cluster for the volume of its
    covariance. The minimum over S_k is (T_k + reg I) / scale. The number of clusters K is fixed
    unless ``lam`` is given.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters. With ``lam``, a guess that only enters ``reg_covar="auto"``.
    lam : float, default=None
        None keeps K fixed. A number is the penalty of a cluster: K is then free, and opening a
        cluster at a point costs lam_eff = lam + scale d (1 + log(reg / scale)), which must be > 0;
        ``lam`` itself may be negative. See Notes before you use it.
    scale : float, default=1.0
        Weight of the volumes, > 0. All distances are proportional to it; with K fixed and
        covariances learned it changes no label.
    reg_covar : float or "auto", default="auto"
        The number reg >= 0, in squared data units times weight: it is added to a *sum* of
        squares. "auto" is a tenth of the total sum of squares about the mean, per feature and per
        ``n_clusters``: the covariance of a cluster of average size is raised by a tenth of the
        overall variance. Much less invites clusters of a few points, see Notes.
    covariances : array-like of shape (n_features, n_features) or \
(n_clusters, n_features, n_features), default=None
        Known covariances, one for all clusters or one for each, which stay as they are. With
        ``lam`` one for all.
    init : "k-means++" or array-like of shape (n_centers, n_features), default="k-means++"
        Seeds, which the points join by Euclidean distance at first (by Mahalanobis distance with
        known covariances); n_centers is ``n_clusters`` with K fixed. With ``lam`` and no array the
        start is one cluster of all points.
    n_init : int, default=10
        Number of starts, each with its own seeds (with ``lam``: the first in the given order of
        the rows, the others in random orders). The one with the lowest objective is kept. An array
        of seeds with K fixed has one start.
    max_iter : int, default=300
        Largest number of sweeps; those that open clusters do not count.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times the absolute value of that
        after the first sweep. 0 runs to a fixed point.
    random_state : int, RandomState instance or None, default=None
        Generator of the seeds and orders.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        Means of the clusters.
    covariances_ : ndarray of shape (n_clusters, n_features, n_features), float64
        S_k. They grow with the number of members: ``scale * covariances_[k]`` over the members'
        weight is the covariance matrix in the usual sense, reg included.
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of each row.
    n_clusters_ : int
        Number of clusters.
    objective_ : float
        The objective; log det S_k may make it negative.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep; it never rises.
    reg_covar_ : float
        reg.
    lam_eff_ : float or None
        What opening a cluster costs; None with K fixed.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit``, for parameters out of their bounds, for covariances that are not symmetric and
        positive definite, where ``reg_covar`` is too small to keep a covariance from being
        singular, and where lam_eff is not > 0. The estimator is then as it was before.

    Warns
    -----
    UserWarning
        If lam_eff >= scale: no point is ever so far from its own center.

    See Also
    --------
    DPMeans : Spheres, and a number of clusters that follows from ``lam``.
    BregmanDPMeans : Counts, positive values, fractions.

    Notes
    -----
    Each half of a sweep, labels given the rest and the rest given labels, lowers the objective or
    leaves it. For the labels the distance alone decides: log det S_k belongs to the cluster, not to
    its points. As S_k grows with the number of members, a large cluster has a wider reach than a
    small one, unlike in a mixture of Gaussians.

    With K fixed, a cluster of few points has a log det S_k near d log(reg / scale), which is low if
    reg is small: for a small reg the lowest objective is that of K - 1 tiny clusters and a large
    one, and several starts will find it. A cluster that lost its last point restarts at the point
    that is worst fitted. Features are best on comparable scales, as reg is the same for all.

    With K free, the squared distance of a point from its own center is below scale, whatever the
    data (about d scale / n_samples on average in one cluster of all), so lam_eff must be too. Where
    a few points open clusters, the others' distances grow towards the same bound, and they follow:
    K tends to 1 or to nearly n_samples, and what is between is found by tuning only. With a known
    covariance there is no such bound, and this is :class:`DPMeans` in coordinates in which it is
    the unit matrix; a cluster then costs lam_eff = lam + reg tr S^-1 + scale log det S.

    References
    ----------
    Broderick, Kulis & Jordan (2013), MAD-Bayes, appendix E, with the prior's scale matrix kept.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import MahalanobisMeans
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2)) * [3, 0.5]  # two long, flat clusters
    >>> X[100:, 1] += 5
    >>> model = MahalanobisMeans(2, random_state=0).fit(X)
    >>> np.bincount(model.labels_[:100]), np.bincount(model.labels_[100:])
    (array([  0, 100]), array([100]))
    """

    def __init__(
        self,
        n_clusters=8,
        *,
        lam=None,
        scale=1.0,
        reg_covar="auto",
        covariances=None,
        init="k-means++",
        n_init=10,
        max_iter=300,
        tol=0.0,
        random_state=None,
        verbose=0,
    ):
        self.n_clusters = n_clusters
        self.lam = lam
        self.scale = scale
        self.reg_covar = reg_covar
        self.covariances = covariances
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self):
        check_number(self.n_clusters, "n_clusters", low=1, integer=True)
        check_number(self.lam, "lam", low=-np.inf, low_open=True, none=True)
        check_number(self.scale, "scale", low=0, low_open=True)
        if isinstance(self.reg_covar, str):
            check_option(self.reg_covar, "reg_covar", ("auto",))
        else:
            check_number(self.reg_covar, "reg_covar", low=0)
        for name in ("scale", "reg_covar"):
            if getattr(self, name) == np.inf:
                raise ValueError(f"{name} must be finite, got inf")
        check_number(self.n_init, "n_init", low=1, integer=True)
        check_number(self.max_iter, "max_iter", low=1, integer=True)
        check_number(self.tol, "tol", low=0)
        return check_random_state(self.random_state)

    def _check_seeds(self, d):
        """Given seeds, or None."""
        if isinstance(self.init, str):
            check_option(self.init, "init", ("k-means++",))
            return None
        seeds = check_init(self.init, d, None)
        if self.lam is None and len(seeds) != self.n_clusters:
            raise ValueError(f"init must have n_clusters={self.n_clusters} rows, got {len(seeds)}")
        return seeds

    def _check_covariances(self, d):
        """Known covariances, or None."""
        if self.covariances is None:
            return None
        try:
            known = np.array(self.covariances, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"covariances must be numbers: {error}") from None
        wanted = [(d, d)] if self.lam is not None else [(d, d), (self.n_clusters, d, d)]
        if known.shape not in wanted:
            raise ValueError(
                f"covariances must have shape {' or '.join(map(str, wanted))}"
                f"{' with lam given' if self.lam is not None else ''}, got {known.shape}"
            )
        if not np.isfinite(known).all():
            raise ValueError("covariances must be finite, got NaN or infinity")
        stack = known.reshape(-1, d, d)
        uneven = np.abs(stack - stack.transpose(0, 2, 1)).max()
        if uneven > 1e-10 * np.abs(stack).max():
            raise ValueError(f"covariances must be symmetric, got entries {uneven:.3g} apart")

        def indefinite(k):
            least = np.linalg.eigvalsh(stack[k])[0]
            raise ValueError(
                f"covariances must be positive definite, got an eigenvalue of {least:.3g}"
                f"{f' in number {k}' if known.ndim == 3 else ''}"
            )

        _roots(stack, indefinite)
        return known

    def _resolve_reg(self, X, w):
        if not isinstance(self.reg_covar, str):
            return float(self.reg_covar)
        rows = np.flatnonzero(w)
        mean = _mean(X, rows, w)
        squares = sum(
            float(w[rows[b]] @ np.square(X[rows[b]] - mean).sum(axis=1))
            for b in _blocks(len(rows), X.shape[1])
        )
        return 0.1 * squares / X.shape[1] / self.n_clusters or 1.0

    def _opening_cost(self, d, reg, known):
        """What a cluster costs that begins at a point; None with K fixed."""
        if self.lam is None:
            return None
        if known is not None:
            roots, logdet = _roots(known[None], None)
            cost = self.lam + reg * np.square(roots).sum() + self.scale * logdet[0]
        elif reg == 0:
            raise ValueError("reg_covar must be > 0 with lam given, got 0")
        else:
            cost = self.lam + self.scale * d * (1.0 + np.log(reg / self.scale))
        cost = float(cost)
        rest = cost - self.lam if np.isfinite(self.lam) else 0.0
        if not cost > 0:
            raise ValueError(
                f"lam must be > {-rest:.8g}, so that lam_eff, what opening a cluster costs, is > 0 "
                f"(n_features={d}, reg_covar={reg:.6g}, scale={self.scale:.6g}); got "
                f"lam={self.lam!r} and lam_eff={cost:.6g}"
            )
        if known is None and cost >= self.scale:
            warnings.warn(
                f"MahalanobisMeans: lam={self.lam:.8g} makes opening a cluster cost "
                f"lam_eff={cost:.6g}, but no point is ever as far as scale={self.scale:.6g} from "
                "its own center: no cluster will be opened. To have an effect lam must be below "
                f"{self.scale - rest:.8g}; K then tends to nearly n_samples.",
                UserWarning,
                stacklevel=3,
            )
        return cost

    def fit(self, X, y=None, sample_weight=None):
        """Cluster the data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each. A weight is a mass in centers and
            covariances; rows of weight zero take no part and are labeled as by ``predict``.

        Returns
        -------
        self : MahalanobisMeans
            The fitted estimator.
        """
        with unchanged_on_error(self):
            rng = self._check_parameters()
            X = self._validate(X, reset=True)
            check_reach(X)
            n, d = X.shape
            w = check_weights(sample_weight, n)
            w = np.ones(n) if w is None else w
            active = np.flatnonzero(w)
            if self.lam is None:
                check_guess(self.n_clusters, len(active))
            seeds, known = self._check_seeds(d), self._check_covariances(d)
            reg = self._resolve_reg(X, w)
            cost = self._opening_cost(d, reg, known)
            # rows without weight are few or none: leave them out by a copy
            data, mass = (X, w) if len(active) == n else (X[active], w[active])
            best = None
            for start in range(1 if seeds is not None and cost is None else self.n_init):
                one = self._start(data, mass, seeds, known, reg, cost, start, rng)
                if self.verbose and self.n_init > 1:
                    print(f"start {start + 1}: {one.k} clusters, objective {one.objective:.8g}")
                if best is None or one.objective < best.objective:
                    best = one
            self.cluster_centers_ = best.state.centers
            self.covariances_ = best.state.covariances
            self.labels_ = best.label
            if len(active) < n:
                self.labels_ = np.empty(n, dtype=np.int32)
                self.labels_[active] = best.label
                idle = np.flatnonzero(w == 0)
                self.labels_[idle] = self._fitted(X[idle], reg).assign()[0]
            self.n_clusters_ = best.k
            self.objective_ = best.objective
            self.objective_path_ = np.array(best.path)
            self.reg_covar_ = reg
            self.lam_eff_ = cost
            self.n_iter_ = best.n_iter
        if not (best.converged or best.enough):
            warn_not_converged(self, best.n_iter)
        return self

    def _start(self, X, w, seeds, known, reg, cost, start, rng):
        lam = 0.0 if self.lam is None else float(self.lam)
        state = _Gaussians(X, w, lam, float(self.scale), reg, known)
        order = np.arange(len(w)) if start == 0 or cost is None else rng.permutation(len(w))
        if seeds is None and cost is not None:
            one, label = _GaussianStart(state, 1, cost, order), np.zeros(len(w), dtype=np.int32)
            return one.run(label, False, self.max_iter, self.tol, self.verbose)
        if seeds is None:
            seeds = kmeans_plusplus(X, self.n_clusters, sample_weight=w, random_state=rng)[0]
        state.centers = seeds.astype(np.float64)
        first = state.identity if known is None else known
        state.set_covariances(np.broadcast_to(first, (len(seeds), *state.identity.shape)))
        label, least = state.assign()
        one = _GaussianStart(state, len(seeds), cost, order)
        one.label = label
        if cost is None:
            one._restart(least)
        else:
            kept, label = np.unique(label, return_inverse=True)
            one.label, one.k = label.astype(np.int32), len(kept)
        return one.run(one.label, True, self.max_iter, self.tol, self.verbose)

    def _fitted(self, X, reg, w=None):
        """The clusters found, and other data."""
        lam = 0.0 if self.lam is None else float(self.lam)
        w = np.ones(X.shape[0]) if w is None else w
        state = _Gaussians(X, w, lam, float(self.scale), reg, None)
        state.centers = self.cluster_centers_
        state.set_covariances(self.covariances_)
        return state

    def predict(self, X):
        """Cluster of the least Mahalanobis distance from each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Index into ``cluster_centers_``; at a tie the lowest one.
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        check_reach(X)
        return self._fitted(X, self.reg_covar_).assign()[0]

    def transform(self, X):
        """Return the Mahalanobis distances (not squared) of each row to each center.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data.

        Returns
        -------
        distances : ndarray of shape (n_samples, n_clusters)
            The root of (x - mu_k)' S_k^-1 (x - mu_k), a pure number; float32 for float32 data.
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        check_reach(X)
        state = self._fitted(X, self.reg_covar_)
        out = np.empty((X.shape[0], self.n_clusters_), dtype=X.dtype)
        for rows in _blocks(X.shape[0], max(self.cluster_centers_.shape)):
            out[rows] = np.sqrt(state.distances(state.rows(rows)))
        return out

    def score(self, X, y=None, sample_weight=None):
        """Return minus the objective of data at the fitted centers and covariances.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
            Minus the sum of w * squared distance to the nearest center, and of what the clusters
            cost without points.
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        check_reach(X)
        state = self._fitted(X, self.reg_covar_, check_weights(sample_weight, X.shape[0]))
        return -(float(state.w @ state.assign()[1]) + state.prior())
