"""Bregman divergences and the sweeps of DP-means by them."""

import numpy as np

from smallvar._selection.penalty import among, farthest_by
from smallvar._sweeps.affine import UNSURE, AffineSweep
from smallvar._sweeps.collapsed import MEAN_ROUNDING
from smallvar._sweeps.divergences import (
    ITAKURA_SAITO,
    KULLBACK_LEIBLER,
    LOGISTIC,
    divergences,
    summands,
    within_members,
)
from smallvar._sweeps.sums import Layout, Sums, exact_total

BLOCK = 1 << 18  # numbers in a temporary table
ROWS = 4096  # rows of a block at most
FEW = 1 << 14  # numbers of which exact divergences take less time than a sweep is made in
EPS = float(np.finfo(float).eps)
# of a divergence, which is at least a tenth of what logarithms, of at most 745, are multiplied by
# where there are two of them: their rounding
LOGARITHMS = 8000 * EPS
SMALLEST_QUOTIENT = 1e-300  # absolute: of smaller ones float64 loses digits, two logarithms do not
# absolute: the reference of "logistic" is no nearer to 0 and 1, since logarithms of it are taken
BORDER = 1e-6
# of the way from the border to the reference: where scores have a component that is on the border
OFF_BORDER = 2.0**-20


def blocks(n, width):
    """Slices of rows whose tables, ``width`` numbers a row, stay in the cache."""
    step = max(1, min(ROWS, BLOCK // max(1, width)))
    return (slice(start, min(n, start + step)) for start in range(0, n, step))


def _log_quotient(a, b, delta):
    """log(a / b) of positive numbers, delta = a - b, to full precision, even beyond float64."""
    quotient = a / b
    within = (quotient > SMALLEST_QUOTIENT) & (quotient < np.inf)
    value = np.where(within, np.log(quotient), np.log(a) - np.log(b))
    return np.where(np.abs(delta) <= 0.5 * b, np.log1p(delta / b), value)


class _Divergence:
    """D(x, mu) = F(x) - F(mu) - F'(mu).(x - mu), a sum over columns, on a domain low..high.

    ``kind`` is its number in divergences.pyx, ``tangent`` is F'(mu) - F'(m0) and D(m0, mu), for
    points inside the domain. Where a component of mu is on the border, the divergence of an x that
    is not there is infinite: a wall, which ``walls`` finds. ``size`` is what a squared length is
    for squared distances: means are good to MEAN_ROUNDING of its root. ``has_shape``: the family
    has a shape, one more parameter.
    """

    low, high, low_is_in, has_shape = 0.0, np.inf, True, False

    def inside(self, mean):
        """A point of the domain's inside near the mean."""
        return mean

    def walls(self, centers):
        """1 for components at 0 and 2 for those at 1, as uint8; None where there are none."""
        walls = (centers == 0) + 2 * (centers == self.high).view(np.uint8)
        return walls if self.low_is_in and walls.any() else None

    def scores(self, centers, walls, m0):
        """Slopes g, and summands of offsets b, of D(x, mu) = D(x, m0) + b - g . (x - m0).

        At a wall, that is right for the x that are there; for others it is any number above.
        """
        inner = centers
        if walls is not None:
            zero, one = m0 * OFF_BORDER, 1.0 - (1.0 - m0) * OFF_BORDER
            inner = np.where(walls == 1, zero, np.where(walls == 2, one, centers))
        with np.errstate(all="ignore"):  # beyond float64 where centers are far below the data
            slope, offset = self.tangent(inner, m0)
            if walls is not None:
                border = slope * (centers - m0) - summands(self.kind, centers, m0)
                offset = np.where(walls > 0, border, offset)
        return slope, offset

    def size(self, X, m0):
        return np.full(X.shape[0], float(X.shape[1]))

    def between(self, X, centers):
        """D of rows and centers that broadcast together, added in order of the columns."""
        return divergences(self.kind, X, centers)

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
    kind = KULLBACK_LEIBLER

    def tangent(self, mu, m0):
        # a column that is 0 in all data: any slope will do
        delta = mu - m0
        slope = np.where(m0 > 0, _log_quotient(mu, m0, delta), 0.0)
        return slope, delta - m0 * slope

    def size(self, X, m0):
        return X.sum(axis=1) + m0.sum()


class _ItakuraSaito(_Divergence):
    kind, low_is_in, has_shape = ITAKURA_SAITO, False, True

    def tangent(self, mu, m0):
        delta = mu - m0
        return delta / m0 / mu, _log_quotient(mu, m0, delta) - delta / mu


class _Logistic(_Divergence):
    kind, high = LOGISTIC, 1.0

    def inside(self, mean):
        return np.clip(mean, BORDER, 1.0 - BORDER)

    def tangent(self, mu, m0):
        one = _log_quotient(mu, m0, mu - m0)
        other = _log_quotient(1.0 - mu, 1.0 - m0, m0 - mu)
        return one - other, -m0 * one - (1.0 - m0) * other


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
        squares = np.zeros(d)
        for rows in blocks(n, d):
            x = X[rows].astype(np.float64, copy=False)
            self.apart[rows] = rule.between(x, self.m0)
            self.size[rows] = rule.size(x, self.m0)
            x = x - self.m0
            squares += np.einsum("ij,ij->j", x, x)
        # lengths of x - m0, each column in units of its own spread
        self.unit = np.sqrt(squares / n)
        self.unit[self.unit == 0] = 1.0
        for rows in blocks(n, d):
            x = (X[rows] - self.m0) / self.unit
            self.length[rows] = np.sqrt(np.einsum("ij,ij->i", x, x))


class DivergenceSweep:
    """The sweeps of DP-means for a divergence: a ``Sweep`` of ``starts.py``.

    Nearest centers are those of the least affine scores, about the Reference; where these differ by
    no more than rounding, ``between`` decides, so that labels depend neither on chunks nor threads.

    ``rows`` are the rows visited, in that order (None: all as given), ``weight`` their weights > 0
    or None, and ``about`` a Reference of all X.
    """

    needs_float64 = False  # there are no scores in float32

    def __init__(self, rule, X, weight, rows, about, n_threads=1):
        self.rule, self.X, self.weight, self.rows = rule, X, weight, rows
        self.labels = np.zeros(len(X) if rows is None else len(rows), dtype=np.int32)
        self.about = about
        self.apart = about.apart if rows is None else about.apart[rows]
        self.length = about.length if rows is None else about.length[rows]
        self.size = about.size if rows is None else about.size[rows]
        self.total = exact_total(self.apart if weight is None else weight * self.apart)
        self.sums = self.summed = self.bounded_by = None
        self.affine = AffineSweep(
            *(X, weight, rows, self.labels),
            *(about.m0, self.apart, self.length, self.size, n_threads),
        )
        self.lightest = 1.0 if weight is None else float(weight.min())
        self.n_moved, self.lam, self.limit = 0, np.inf, np.inf

    @property
    def k(self):
        """Number of clusters."""
        return len(self.centers)

    def start(self, centers):
        """Begin a run at these centers; all labels are 0."""
        self.labels[:] = 0
        self.set_centers(np.array(centers, dtype=np.float64))

    def set_centers(self, centers):
        """Other centers: bounds no longer hold."""
        self.bounded_by = None
        self._replace(centers)

    def _replace(self, centers):
        """Centers, and their scores."""
        self.centers = centers = np.ascontiguousarray(centers)
        self.walls = self.rule.walls(centers)
        self.scores, self.packed = self.scores_of(centers, self.walls), False

    def scores_of(self, centers, walls):
        """Slope, offset, steep = ||slope|| and lean of the scores of centers."""
        slope, offset = self.rule.scores(centers, walls, self.about.m0)
        with np.errstate(over="ignore", invalid="ignore"):
            steep = np.sqrt(np.square(slope * self.about.unit).sum(axis=1))
            # an offset is the difference of numbers of at most D(m0, mu) + m0 |slope|
            size = self.about.m0 if walls is None else np.where(walls == 2, 1.0, self.about.m0)
            lean = (np.abs(slope) * size).sum(axis=1)
        return slope, offset.sum(axis=1), steep, lean

    def open_at(self, x):
        """A new center."""
        center = x[None].copy()
        self.centers = np.vstack([self.centers, center])
        added = self.scores_of(center, self.rule.walls(center))
        self.scores = tuple(np.concatenate(pair) for pair in zip(self.scores, added, strict=True))
        self.walls = self.rule.walls(self.centers)
        self.bounded_by, self.packed = None, False

    def rows_of(self, block):
        """The rows of a block of the visit, as float64."""
        rows = block if self.rows is None else self.rows[block]
        return self.X[rows].astype(np.float64, copy=False)

    def weights_of(self, block):
        """Their weights."""
        return np.float64(1.0) if self.weight is None else self.weight[block]

    # ---- nearest centers -------------------------------------------------------------------------

    def _roundoff(self):
        return (self.X.shape[1] + 16) * EPS

    def tolerance(self, rows):
        """How far divergences of these rows of the visit, by scores or exact, may be off.

        But for LOGARITHMS, a share of exact ones.
        """
        _, offset, steep, lean = self.scores
        with np.errstate(over="ignore", invalid="ignore"):
            reach = self.apart[rows] + offset.max() + steep.max() * self.length[rows]
            bound = self._roundoff() * (reach + lean.max() + np.sqrt(self.size[rows] * reach))
        return np.where(np.isnan(bound), np.inf, bound)

    def table(self, x, rows, first=0):
        """D of these rows of the visit, x, to the centers from ``first`` on, good to ``tolerance``.

        Where terms leave float64, D is NaN or the tolerance infinite.
        """
        slope, offset = self.scores[0][first:], self.scores[1][first:]
        with np.errstate(over="ignore", invalid="ignore"):
            table = offset - (x - self.about.m0) @ slope.T
            table += self.apart[rows, None]
        walls = None if self.walls is None else self.walls[first:]
        if walls is not None and walls.any():
            zero, one = ((walls == side).astype(float) for side in (1, 2))
            table[x @ zero.T + (1.0 - x) @ one.T > 0] = np.inf
        return table

    def nearest(self, x, rows):
        """Label and divergence of these rows of the visit, x: where two are near, exact."""
        table, tolerance = self.table(x, rows), self.tolerance(rows)
        least = np.fmin.reduce(table, axis=1)
        most = (1.0 + 4.0 * LOGARITHMS) * least + 4.0 * tolerance
        candidate = ~(table > most[:, None])  # NaN is one
        # of infinities that walls make all are exact
        candidate[np.isinf(least) & np.isfinite(tolerance), 1:] = False
        label = candidate.argmax(axis=1)
        close = np.flatnonzero((candidate.sum(axis=1) > 1) | np.isnan(least))
        row, center = np.nonzero(candidate[close])
        value = self.exact_pairs(x, close[row], center)
        order = np.lexsort((center, value, row))
        first = order[np.searchsorted(row, np.arange(len(close)))]
        label[close], least[close] = center[first], value[first]
        return label, least

    def exact_pairs(self, x, row, center):
        """D of pairs of a row and a center."""
        out = np.empty(len(row))
        for part in blocks(len(row), x.shape[1]):
            out[part] = self.rule.between(x[row[part]], self.centers[center[part]])
        return out

    def assign(self):
        """All rows join their nearest center."""
        before, everything = self.labels.copy(), slice(0, len(self.labels))
        self.beyond = self._join_nearest(everything, self.limit, True)
        self.n_moved = int(np.count_nonzero(self.labels != before))
        self.bounded_by = self.scores, self.walls

    def _join_nearest(self, block, limit, bounded):
        """Rows of a block join their nearest center; returns those whose w D may exceed ``limit``.

        If ``bounded``, by bounds where there are any: then upper bounds of the divergences are
        near these only for the rows returned.
        """
        if not self.packed:
            slope, offset, steep, lean = self.scores
            self.affine.set_scores(
                *(slope, offset, self.walls, steep.max(), lean.max(), self._roundoff()), LOGARITHMS
            )
            self.packed = True
        self.affine.set_moves(self._moves() if bounded else None)
        self.affine.assign(block.start, block.stop, limit)
        flagged = block.start + np.flatnonzero(self.affine.flags[block])
        unsure = flagged[self.affine.flags[flagged] == UNSURE]
        for part in blocks(len(unsure), self.k):
            rows = unsure[part]
            label, least = self.nearest(self.rows_of(rows), rows)
            tolerance = self.tolerance(rows)
            self.labels[rows] = label
            # where the tolerance is infinite, they are exact
            self.affine.upper_bounds[rows] = least + np.where(tolerance < np.inf, tolerance, 0.0)
        return flagged

    def _moves(self):
        """How scores differ from those of the last sweep, for AffineSweep; None: it made no bounds.

        Bounds hold for scores. Where walls changed, divergences may be infinite that were not.
        """
        if self.bounded_by is None or not np.array_equal(self.bounded_by[1], self.walls):
            return None
        (slope, offset, *_), (old_slope, old_offset, *_) = self.scores, self.bounded_by[0]
        outward = 1.0 + self._roundoff()
        with np.errstate(over="ignore", invalid="ignore"):  # scores may be infinite: no bounds then
            rise = offset - old_offset
            length = outward * np.sqrt(np.square((slope - old_slope) * self.about.unit).sum(axis=1))
            moves = np.vstack([rise, length, _max_of_others(-rise), _max_of_others(length)])
            moves[::2] += self._roundoff() * np.abs(moves[::2])  # rounded up
        return moves if np.isfinite(moves).all() else None

    def moved(self):
        """Rows that got another label in this sweep."""
        return self.n_moved

    # ---- opening clusters ------------------------------------------------------------------------

    def create(self, lam, cap):
        """One sweep of Algorithm 1: nearest centers, opening clusters in the order of visit."""
        before, k, n = self.labels.copy(), self.k, len(self.labels)
        bounded = self.bounded_by is not None
        start, size = 0, n if bounded else ROWS
        while start < n:
            block, may_open = slice(start, min(n, start + size)), self.k < cap and lam < np.inf
            rows = self._join_nearest(block, lam if may_open else np.inf, bounded)
            start, size = block.stop, 2 * size
            if may_open:
                rows = rows[self.weights_of(rows) * self._decided(rows, lam) > lam]
                if len(rows):
                    start, size, bounded = min(n, rows[0] + ROWS), ROWS, False
                    self._open(slice(rows[0], start), lam, cap)
        self.n_moved = int(np.count_nonzero(self.labels != before))
        self.bounded_by = (self.scores, self.walls) if self.k == k else None

    def _decided(self, rows, lam):
        """D of rows that were just compared with all centers, exact if w D is near lam."""
        tolerance = self.tolerance(rows)
        least = self.affine.upper_bounds[rows] - np.where(tolerance < np.inf, tolerance, 0.0)
        return self._decide(rows, lam, least, tolerance)

    def _decide(self, rows, lam, least, tolerance):
        w = self.weights_of(rows)
        with np.errstate(invalid="ignore"):  # of infinities
            near = ~(np.abs(w * least - lam) > 2.0 * w * tolerance + 4.0 * LOGARITHMS * lam)
        least[near] = self._exact(rows[near])
        return least

    def _open(self, block, lam, cap):
        """Clusters for the far rows of a block, one after the other."""
        self._join_nearest(block, np.inf, False)
        rows, x, after = np.arange(block.start, block.stop), self.rows_of(block), 0
        label, w = self.labels[block], np.broadcast_to(self.weights_of(block), len(x))
        least, tolerance = self._decided(rows, lam), self.tolerance(rows)
        while self.k < cap:
            far = w[after:] * least[after:] > lam
            first = after + int(far.argmax())
            if not far.any():
                return
            label[first], least[first], after = self.k, 0.0, first + 1
            self.open_at(x[first])
            if after == len(x):
                return
            rest, new = rows[after:], self.table(x[after:], rows[after:], self.k - 1)[:, 0]
            tolerance[after:] = np.maximum(tolerance[after:], self.tolerance(rest))
            slack = 4.0 * (tolerance[after:] + LOGARITHMS * np.fmin(new, least[after:]))
            with np.errstate(invalid="ignore"):
                closer = new < least[after:] - slack
                close = np.flatnonzero(~(np.abs(new - least[after:]) > slack))
            new[close] = self.rule.between(x[after + close], self.centers[-1])
            least[after + close] = self._exact(rest[close])
            closer[close] = new[close] < least[after + close]
            joined = np.flatnonzero(closer)
            least[after + joined], label[after + joined] = new[joined], self.k - 1
            changed = after + np.union1d(joined, close)
            least[changed] = self._decide(rows[changed], lam, least[changed], tolerance[changed])

    def seek_farthest(self, lam, seek):
        """Take lam for ``open_farthest``; whether ``assign`` lists the rows that may exceed it."""
        self.lam, self.limit = lam, lam if seek else np.inf

    def open_farthest(self):
        """Delayed creation: the row with the largest w D opens a cluster, if that exceeds lam."""
        rows = self.beyond
        w = np.broadcast_to(self.weights_of(rows), rows.shape)
        upper = w * self.affine.upper_bounds[rows]
        error = w * self.tolerance(rows) + LOGARITHMS * upper
        if not len(rows):
            return
        if np.isfinite(upper).all():
            near = upper + error >= (upper - 3.0 * error).max()
        else:
            near = np.isinf(upper)
        rows, value = rows[near], w[near] * self._exact(rows[near])
        best = int(value.argmax())
        if value[best] > self.lam:
            self.open_at(self.rows_of(rows[best]))
            self.labels[rows[best]] = self.k - 1

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
            rows = np.flatnonzero(self.summed != label)
            for part in blocks(len(rows), self.X.shape[1]):
                at = rows[part]
                w = None if mass.weight is None else mass.weight[at]
                self.sums.move(self.X[at], self.summed[at], label[at], w)
        self.summed = label.copy()
        self._read()

    def _read(self):
        self.mass = self.sums.totals[1][: self.k]
        self.count = self.sums.counts[: self.k].astype(np.intp)

    def move_centers(self):
        """Means of the members, empty clusters dropped; returns the weighted sum of divergences."""
        self.add_up()
        kept = self.count > 0
        # the mean of equal values is exact, and rounding puts none on the border
        means, share = self.sums.means[: self.k], self.lightest / np.where(kept, self.mass, 1.0)
        self._keep(within_members(means, self.X, self.summed, share, self.rule.high), kept)
        # sum_i w_i D(x_i, m0) = sum_i w_i D(x_i, mean) + sum_c s_c D(mean_c, m0)
        return self.total - exact_total(self.mass * self.rule.between(self.centers, self.about.m0))

    def _keep(self, centers, kept):
        if not kept.all():
            self._renumber(np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32))
            self.sums.keep(np.flatnonzero(kept))
            self.mass, self.count, centers = self.mass[kept], self.count[kept], centers[kept]
            self.bounded_by = None
        self._replace(centers)

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

    def _exact(self, rows):
        """D of these rows of the visit from their centers."""
        out = np.empty(len(rows))
        for part in blocks(len(rows), self.X.shape[1]):
            own = self.centers[self.labels[rows[part]]]
            out[part] = self.rule.between(self.rows_of(rows[part]), own)
        return out

    def assigned_distances(self):
        """Divergence of each row from its own center."""
        return self._exact(np.arange(len(self.labels)))

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
        self.n_moved, self.bounded_by = state.n_moved, None
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


def sweep_at(rule, X, weight, rows, centers, n_threads=1):
    """A sweep over these rows whose labels are the nearest of the centers."""
    about = Reference(rule, X, centers.mean(axis=0))
    sweep = DivergenceSweep(rule, X, weight, rows, about, n_threads)
    sweep.set_centers(centers)
    sweep.assign()
    return sweep


def nearest_centers(rule, X, centers, n_threads=1):
    """Labels of the nearest centers."""
    if X.shape[0] * centers.size <= FEW:
        x = X[:, None].astype(np.float64, copy=False)
        return rule.between(x, centers).argmin(axis=1).astype(np.int32)
    return sweep_at(rule, X, None, None, centers, n_threads).labels


def _max_of_others(values):
    """The largest of all other values, for each; 0 where there is none."""
    if len(values) == 1:
        return np.zeros(1)
    first = values.argmax()
    out = np.full(len(values), values[first])
    out[first] = np.delete(values, first).max()
    return out
