"""Bregman divergences and the sweeps of DP-means by them."""

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, gammaln

from smallvar._selection.descent import Descent
from smallvar._selection.penalty import among, farthest_by
from smallvar._sweeps.collapsed import MEAN_ROUNDING
from smallvar._sweeps.sums import SMALLEST_POSITIVE, Layout, Sums, cluster_range, exact_total

BLOCK = 1 << 18  # numbers in a temporary table
ROWS = 4096  # rows of a block at most
EPS = float(np.finfo(float).eps)
SMALLEST_QUOTIENT = 1e-300  # absolute: of smaller ones float64 loses digits, two logarithms do not
# absolute: the reference of "logistic" is no nearer to 0 and 1, since logarithms of it are taken
BORDER = 1e-6
# the gamma law: mean divergences that a shape is fitted to, and the least shape; absolute
SMALLEST_MEAN, LARGEST_MEAN, SMALLEST_SHAPE = 1e-12, 1e5, 1e-6


def blocks(n, width):
    """Slices of rows whose tables, ``width`` numbers a row, stay in the cache."""
    step = max(1, min(ROWS, BLOCK // max(1, width)))
    return (slice(start, min(n, start + step)) for start in range(0, n, step))


def _log_ratio(x, mu, delta):
    """log(x / mu) for delta = x - mu; to full precision where they are near each other."""
    # a mean that is off by its last bit is then off by the square of that in the divergence
    near = np.abs(delta) <= 0.5 * mu
    return np.where(near, np.log1p(delta / mu), np.log(x) - np.log(mu))


def _log_quotient(a, b):
    """log(a / b) of positive numbers, even where their quotient is beyond float64."""
    with np.errstate(over="ignore", divide="ignore"):
        quotient = a / b
        within = (quotient > SMALLEST_QUOTIENT) & (quotient < np.inf)
        return np.where(within, np.log(quotient), np.log(a) - np.log(b))


def _relative_entropy(x, mu, delta):
    """x log(x / mu) - x + mu, with 0 log 0 = 0."""
    return np.where(x > 0, x * _log_ratio(x, mu, delta) - delta, -delta)


class _Divergence:
    """D(x, mu) = F(x) - F(mu) - F'(mu).(x - mu), a sum over columns, on a domain low..high.

    ``terms`` are the summands. About a point m0 inside the domain, D(x, mu) = D(x, m0) - x.g + b
    with (g, b) from ``tangent``. Where a component of mu is on the border of the domain that holds
    for the x that are there too; ``walls`` finds the others, whose divergence is infinite. ``size``
    is what a squared length is for squared distances: means are good to MEAN_ROUNDING of its root.
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
        both = (mu > 0) & (m0 > 0)
        return _log_quotient(np.where(both, mu, 1.0), np.where(both, m0, 1.0)), mu - m0

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
        return (mu - m0) / m0 / mu, _log_quotient(mu, m0)


class _Logistic(_Divergence):
    high = 1.0

    def inside(self, mean):
        return np.clip(mean, BORDER, 1.0 - BORDER)

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


class Reference:
    """The point m0 that divergences are taken from, and what is known of each row about it.

    ``mass`` are the Masses of X, for the sweeps that move centers.
    """

    def __init__(self, rule, X, mean, mass=None):
        self.m0, self.mass = rule.inside(mean), mass
        n, d = X.shape
        self.apart, self.length, self.size = np.empty(n), np.empty(n), np.empty(n)
        unit = np.where(self.m0 > 0, self.m0, 1.0)
        for rows in blocks(n, d):
            x = X[rows].astype(np.float64, copy=False)
            self.apart[rows] = rule.between(x, self.m0)
            with np.errstate(over="ignore"):  # infinite: what depends on it is computed exactly
                self.length[rows] = np.sqrt(np.square(x / unit).sum(axis=1))
            self.size[rows] = rule.size(x, self.m0)
        self.unit = unit


class DivergenceSweep:
    """The sweeps of DP-means for a divergence: a ``Sweep`` of ``starts.py``.

    All divergences of a block of rows are one matrix product, with a bound on its rounding; where
    they differ by less, ``between`` decides, so that labels depend on no block and no BLAS.

    ``rows`` are the rows visited, in that order (None: all as given), ``weight`` their weights > 0
    or None, and ``about`` a Reference of all X.
    """

    needs_float64 = False  # there are no scores in float32

    def __init__(self, rule, X, weight, rows, about):
        self.rule, self.X, self.weight, self.rows = rule, X, weight, rows
        self.labels = np.zeros(len(X) if rows is None else len(rows), dtype=np.int32)
        self.about = about
        self.apart = about.apart if rows is None else about.apart[rows]
        self.length = about.length if rows is None else about.length[rows]
        self.total = exact_total(self.apart if weight is None else weight * self.apart)
        self.sums = self.summed = None
        self.least, self.tolerance = np.empty(len(self.labels)), np.empty(len(self.labels))
        self.n_moved = 0

    @property
    def k(self):
        """Number of clusters."""
        return len(self.centers)

    def start(self, centers):
        """Begin a run at these centers; all labels are 0."""
        self.labels[:] = 0
        self.set_centers(np.array(centers, dtype=np.float64))

    def set_centers(self, centers):
        """Centers, and all that products with them need."""
        self.centers = centers
        self.slope, self.offset, self.steep, self.bulk = self._tangents(centers)
        self.zero, self.one = self.rule.walls(centers)

    def _tangents(self, centers):
        # beyond float64 where centers are far below the data: see ``table``
        with np.errstate(over="ignore", invalid="ignore"):
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
        """D of rows to the centers from ``first`` on, and a bound on its rounding.

        Where terms leave float64, D is NaN or the bound infinite.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            table = x @ self.slope[first:].T
            np.subtract(self.offset[first:], table, out=table)
            table += self.apart[block, None]
        for wall, side in ((self.zero, x), (self.one, None)):
            if wall is not None:
                (at,) = np.nonzero(wall[first:].any(axis=1))
                beyond = (1.0 - x if side is None else side) @ wall[first:][at].T > 0
                table[:, at] = np.where(beyond, np.inf, table[:, at])
        with np.errstate(over="ignore", invalid="ignore"):
            bound = self.apart[block] + self.length[block] * self.steep[first:].max()
            bound = (x.shape[1] + 16) * EPS * (bound + self.bulk[first:].max())
        return table, np.where(np.isnan(bound), np.inf, bound)

    def nearest(self, x, block):
        """Label, divergence and its tolerance for the rows of a block."""
        table, tolerance = self.table(x, block)
        least = np.fmin.reduce(table, axis=1)
        candidate = ~(table > (least + 2.0 * tolerance)[:, None])  # NaN is one
        label = candidate.argmax(axis=1)
        if np.count_nonzero(candidate) > len(x) or np.isnan(least).any():
            close = np.flatnonzero((candidate.sum(axis=1) > 1) | np.isnan(least))
            row, center = np.nonzero(candidate[close])
            value = self.exact_pairs(x, close[row], center)
            order = np.lexsort((center, value, row))
            first = order[np.searchsorted(row, np.arange(len(close)))]
            label[close], least[close] = center[first], value[first]
        return label, least, tolerance

    def exact_pairs(self, x, row, center):
        """D of pairs of a row and a center."""
        out = np.empty(len(row))
        for part in blocks(len(row), x.shape[1]):
            out[part] = self.rule.between(x[row[part]], self.centers[center[part]])
        return out

    def assign(self):
        """All rows join their nearest center."""
        self.n_moved = 0
        for block in blocks(len(self.labels), self.k):
            label, least, tolerance = self.nearest(self.rows_of(block), block)
            self._put(block, label)
            self.least[block], self.tolerance[block] = least, tolerance

    def _put(self, block, label):
        self.n_moved += int(np.count_nonzero(label != self.labels[block]))
        self.labels[block] = label

    def moved(self):
        """Rows that got another label in this sweep."""
        return self.n_moved

    # ---- opening clusters ------------------------------------------------------------------------

    def create(self, lam, cap):
        """One sweep of Algorithm 1: nearest centers, opening clusters in the order of visit."""
        self.n_moved = 0
        for block in blocks(len(self.labels), self.k):
            x = self.rows_of(block)
            label, least, tolerance = self.nearest(x, block)
            if self.k < cap and lam < np.inf:
                w = np.broadcast_to(self.weights_of(block), least.shape)
                self._decide(x, w, lam, label, least, tolerance, np.arange(len(x)))
                self._open(x, block.start, w, lam, cap, label, least, tolerance)
            self._put(block, label)

    def _decide(self, x, w, lam, label, least, tolerance, rows):
        """Exact divergences where the table cannot tell whether w D exceeds lam."""
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
            with np.errstate(invalid="ignore"):
                closer = new < rest - slack2
                close = np.flatnonzero(~(np.abs(new - rest) > slack2))
            if len(close):
                rows = after + close
                new[close] = self.exact_pairs(x, rows, np.full(len(rows), self.k - 1))
                rest[close] = self.exact_pairs(x, rows, label[rows])
                closer[close] = new[close] < rest[close]
            (rows,) = np.nonzero(closer)
            rest[rows], tolerance[after:][rows] = new[rows], slack[rows]
            label[after:][rows] = self.k - 1
            self._decide(x, w, lam, label, least, tolerance, after + np.union1d(rows, close))

    def seek_farthest(self, lam, seek):
        """Take lam for ``open_farthest``."""
        self.lam = lam

    def open_farthest(self):
        """Delayed creation: the row with the largest w D opens a cluster, if that exceeds lam."""
        w = np.broadcast_to(self.weights_of(slice(None)), self.least.shape)
        reach, slack = w * self.least, w * self.tolerance
        if np.isfinite(reach).all():
            (near,) = np.nonzero(reach + slack >= (reach - slack).max())
        else:
            (near,) = np.nonzero(np.isinf(reach))
        rows = near if self.rows is None else self.rows[near]
        value = np.empty(len(near))
        for part in blocks(len(near), self.X.shape[1]):
            value[part] = self.rule.between(
                self.X[rows[part]].astype(float), self.centers[self.labels[near[part]]]
            )
        value *= w[near]
        best = int(value.argmax())
        if value[best] > self.lam:
            self.open_at(self.X[rows[best]].astype(float))
            self.labels[near[best]] = self.k - 1

    # ---- means -----------------------------------------------------------------------------------

    def add_up(self):
        """Bring the sums up to date with the labels, by the rows whose label has changed."""
        label, mass = self.labels, self.about.mass
        if self.rows is not None:
            label = np.full(self.X.shape[0], -1, dtype=np.int32)
            label[self.rows] = self.labels
        if self.sums is None:
            self.sums = Sums(mass.layout, self.k)
            self.sums.add(self.X, label, mass.weight)
        else:
            self.sums.reserve(self.k)
            self.sums.move(self.X, self.summed, label, mass.weight)
        self.summed = label.copy()
        self._read()

    def _read(self):
        self.mass = self.sums.totals[1][: self.k]
        self.count = self.sums.counts[: self.k].astype(np.intp)

    def move_centers(self):
        """Means of the members, empty clusters dropped; returns the weighted sum of divergences."""
        self.add_up()
        kept = self.count > 0
        # so that the mean of equal values is exact
        low, high = cluster_range(self.X, self.summed, self.k)
        centers = np.clip(self.sums.means[: self.k], low, high)
        # a mean that is not that of members all at the upper bound must not be rounded to it
        top = self.rule.high
        centers = np.where((centers == top) & (low < top), np.nextafter(top, 0.0), centers)
        self._keep(centers, kept)
        # sum_i w_i D(x_i, m0) = sum_i w_i D(x_i, mean) + sum_c s_c D(mean_c, m0)
        return self.total - exact_total(self.mass * self.rule.between(self.centers, self.about.m0))

    def _keep(self, centers, kept):
        if not kept.all():
            self._renumber(np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32))
            self.sums.keep(np.flatnonzero(kept))
            self.mass, self.count, centers = self.mass[kept], self.count[kept], centers[kept]
        self.set_centers(centers)

    def _renumber(self, number):
        """Each cluster gets this number; rows that are in none stay there."""
        self.labels[:] = number[self.labels]
        self.summed = np.append(number, np.int32(-1))[self.summed]

    def drop_empty(self):
        """Forget clusters without members; whether there were any. Other centers stay."""
        self.add_up()
        kept = self.count > 0
        self._keep(self.centers, kept)
        return not kept.all()

    def assigned_distances(self):
        """Divergence of each row from its own center."""
        out = np.empty(len(self.labels))
        for block in blocks(len(out), self.X.shape[1]):
            own = self.centers[self.labels[block]]
            out[block] = self.rule.between(self.rows_of(block), own)
        return out

    def squared_error(self):
        """Weighted sum of divergences from the own centers, row by row, rounded once."""
        own = self.assigned_distances()
        return exact_total(own if self.weight is None else self.weight * own)

    # ---- collapsed updates -----------------------------------------------------------------------

    def collapse(self, lam, cap):
        """One collapsed sweep (MB13, eq. 8-9): means are those of the present labels at all times.

        Costs of a block of rows are computed as if none of them moved. The first that moves changes
        two clusters, whose costs are computed anew for the rows after it.
        """
        state = _Collapsed(self, lam, cap)
        n, start, step = len(self.labels), 0, 64
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
        self.n_used = int(np.count_nonzero(self.count))
        self.n_moved = 0

    def _clip(self, mean):
        # a mean, or one less a member, may leave the data by rounding
        layout = self.sweep.about.mass.layout
        return np.clip(mean, layout.low, layout.high)

    def _join(self, x, w, clusters):
        """Cost of joining: w D(x, joint mean) + s D(mean, joint mean), as in eq. 8-9 of MB13."""
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
        visited = np.arange(len(sweep.X))[block] if sweep.rows is None else sweep.rows[block]
        spread = np.sqrt(w * sweep.about.size[visited])
        label = sweep.labels[block]  # a view: changes are written through
        cost = self._join(x, w, np.arange(len(self.mass)))
        self._fill(cost, x, w, label, np.arange(len(x)))
        at = 0
        while at < len(x):
            alone = self.count[label[at:]] == 1
            apart = np.where(self.n_used - alone < self.cap, self.lam, np.inf)
            least = np.minimum(cost[at:].min(axis=1), apart)
            # a cost c is good to about MEAN_ROUNDING sqrt(c) spread
            tied = least + MEAN_ROUNDING * (least + np.sqrt(least) * spread[at:])
            good = cost[at:] <= tied[:, None]
            best = np.where(good.any(axis=1), good.argmax(axis=1), len(self.mass))
            change = (best != label[at:]) & ~((best == len(self.mass)) & alone)
            first = int(change.argmax())
            if not change[first]:
                break
            i, new = at + first, int(best[first])
            old, at = int(label[i]), at + first + 1
            self._move(visited[i], x[i], w[i], old, new)
            label[i] = new
            changes += 1
            if new == cost.shape[1]:
                cost = np.hstack([cost, np.empty((len(x), 1))])
            cost[at:, [old, new]] = self._join(x[at:], w[at:], [old, new])
            self._fill(cost, x, w, label, at + np.flatnonzero(np.isin(label[at:], (old, new))))
        self.n_moved += changes
        return changes

    def _move(self, row, x, w, old, new):
        """A row goes to another cluster, maybe a new one."""
        sweep, sums = self.sweep, self.sweep.sums
        if new == len(self.mass):
            sums.reserve(new + 1)
            self.mean = np.vstack([self.mean, np.zeros(self.mean.shape[1])])
            self.mass, self.count = np.append(self.mass, 0.0), np.append(self.count, 0)
            self.n_used += 1
        sums.move_row(np.ascontiguousarray(x), w, old, new)
        sweep.summed[row] = new
        self.count[old] -= 1
        self.count[new] += 1
        self.n_used -= self.count[old] == 0
        for c in (old, new):
            if self.count[c]:
                mean, self.mass[c] = sums.center(c)
                self.mean[c] = self._clip(mean)


class _DivergenceMergeSweep(DivergenceSweep):
    """The sweep of a merge path for a divergence, with the methods of ``MergeSweep``."""

    remap = None

    @property
    def weights(self):
        """Weights of the clusters."""
        return self.mass

    def seed(self, rows):
        """Centers near these rows, moved a little toward the mean: no component is on a border."""
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
        mean, mass, target = self.centers.copy(), self.mass.copy(), np.arange(k)
        table = np.full((k, k), np.inf)
        for a in range(k - 1):
            table[a, a + 1 :] = self._lost(mean, mass, a, slice(a + 1, k))
        pairs, costs = np.empty((count, 2), dtype=np.intp), np.empty(count)
        for m in range(count):
            a, b = np.unravel_index(table.argmin(), table.shape)
            pairs[m], costs[m] = (a, b), table[a, b]
            self.sums.unite(a, b)
            mean[a], mass[a] = self.sums.center(a)
            target[target == b] = a
            table[b], table[:, b] = np.inf, np.inf
            kept = np.flatnonzero(target == np.arange(k))
            lost = self._lost(mean, mass, a, kept)
            table[a, kept[kept > a]] = lost[kept > a]
            table[kept[kept < a], a] = lost[kept < a]
        kept = np.flatnonzero(target == np.arange(k))
        number = np.cumsum(target == np.arange(k)) - 1
        self._renumber(number[target].astype(np.int32))
        self.sums.keep(kept)
        self.set_centers(mean[kept])
        self.move_centers()
        return pairs, costs

    def _lost(self, mean, mass, a, others):
        w = mass[others, None]
        joint = mean[a] + w / (mass[a] + w) * (mean[others] - mean[a])
        # 0 only if both are, or the divergence would be infinite
        joint[(joint == 0.0) & (mean[a] != mean[others])] = SMALLEST_POSITIVE
        between = self.rule.between
        return mass[a] * between(mean[a], joint) + mass[others] * between(mean[others], joint)


class _FamilyCriterion:
    """The criterion of a merge path for a divergence: the exact likelihood of its family.

    V = (u / n) 2 sum_i w_i D(x_i, mu_{z_i}) - 2 u sum_k p_k log p_k + 2 log(u) (K (d + 1) - 1),

    n the sum of weights, u the number of rows, terms that do not depend on the clusters left out;
    for "itakura_saito" the shape of the gamma law is one more parameter, fitted. Equal rows count
    each on their own, since bits and counts repeat; all weights times a constant are the same.
    """

    def __init__(self, rule, X, weight):
        self.gamma, self.d = isinstance(rule, _ItakuraSaito), X.shape[1]
        self.n = float(len(X) if weight is None else weight.sum())
        self.distinct, self.cap = len(X), len(X) // 3
        self.tie = 2.0 * np.log(self.distinct)

    def __call__(self, sweep):
        n, d, u, K = self.n, self.d, self.distinct, sweep.k
        p = sweep.weights / n
        error = sweep.squared_error()
        loss = error / n
        if self.gamma:
            # -log f = a D + a - a log a + log Gamma(a) + log x; the mean of D is log a - psi(a)
            mean = min(max(loss / d, SMALLEST_MEAN), LARGEST_MEAN)
            low, high = SMALLEST_SHAPE, 1.0 / mean + 1.0
            a = brentq(lambda a: np.log(a) - digamma(a) - mean, low, high)
            loss = a * loss + d * (a - a * np.log(a) + gammaln(a))
        V = u * 2.0 * (loss - float(p @ np.log(p)))
        return V + 2.0 * np.log(u) * (K * (d + 1) - 1 + self.gamma), None, error


class Family:
    """What a merge path needs to know of a divergence."""

    def __init__(self, rule):
        self.rule = rule

    def __call__(self, X, weight, n_threads, unit):
        mass = Masses(X, weight, n_threads)
        about = Reference(self.rule, X, mass.mean, mass)
        sweep = _DivergenceMergeSweep(self.rule, X, weight, None, about)
        return _FamilyCriterion(self.rule, X, weight), Descent(X, weight, sweep)

    def labels(self, X, centers):
        """Labels of the nearest centers."""
        return sweep_at(self.rule, X, None, None, centers).labels


class Masses:
    """The layout of the sums of X, to 50 bits of every value, its weights and its mean."""

    def __init__(self, X, weight, n_threads):
        self.weight = weight
        # 50 bits of every value, also of small ones: rare=0
        self.layout = Layout(X, weight, n_threads, origin=np.zeros(X.shape[1]), rare=0.0)
        # so that the mean of a constant column is exact
        mean = self.layout.mean(X, weight, n_threads)
        self.mean = np.clip(mean, self.layout.low, self.layout.high)


def farthest_first(rule, X, rows, mean, n_clusters):
    """The farthest-first rule with a divergence, on the rows given."""
    n = X.shape[0] if rows is None else len(rows)

    def apart(seed):
        out = np.empty(n)
        for block in blocks(n, X.shape[1]):
            x = X[block if rows is None else rows[block]]
            out[block] = rule.between(x.astype(np.float64, copy=False), seed)
        return out

    def to_row(i):
        return apart(X[i if rows is None else rows[i]].astype(np.float64))

    return farthest_by(among(apart(mean), to_row), n_clusters, 0.0) or 1.0


def sweep_at(rule, X, weight, rows, centers):
    """A sweep over these rows whose labels are the nearest of the centers."""
    about = Reference(rule, X, centers.mean(axis=0))
    sweep = DivergenceSweep(rule, X, weight, rows, about)
    sweep.set_centers(centers)
    sweep.assign()
    return sweep
