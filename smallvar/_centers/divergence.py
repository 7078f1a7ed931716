"""The sweeps of DP-means with a Bregman divergence in place of the squared distance.

Jiang, Kulis & Jordan (2012). In order: ``Reference``, what the sweeps precompute for each row;
``DivergenceSweep``; ``_Collapsed`` (MB13, eq. 8-9); the farthest-first rule. The sweep compares
divergences by scores affine in x, D(x, mu) = D(x, m0) + b - g . (x - m0), and bounds on their
rounding (compiled, ``smallvar._sweeps.affine``). Exact sums decide near ties.
"""

import numpy as np

from smallvar._core.frame import check_means
from smallvar._selection.penalty import farthest_by
from smallvar._sweeps.affine import UNSURE, AffineSweep
from smallvar._sweeps.divergences import within_members
from smallvar._sweeps.dpmeans import MEAN_ROUNDING
from smallvar._sweeps.rows import UNSOUND
from smallvar._sweeps.sums import Layout, Sums, exact_total

TABLE_NUMBERS = 1 << 18  # numbers in a temporary table at most
TABLE_ROWS = 4096  # rows of a block at most
# rows * numbers in centers up to which exact divergences are faster than a sweep
FEW_SUMMANDS = 1 << 14
EPS = float(np.finfo(float).eps)
# relative rounding of a divergence: its logarithms are at most 745, with factors below ten times it
LOGARITHMS = 8000 * EPS


def blocks(n, width):
    """Slices of n rows whose tables, ``width`` numbers a row, stay in the cache."""
    step = max(1, min(TABLE_ROWS, TABLE_NUMBERS // max(1, width)))
    return (slice(start, min(n, start + step)) for start in range(0, n, step))


class Reference:
    """The reference point m0 near the mean, and quantities of each row relative to it.

    ``divergences`` are D(x, m0), ``lengths`` are ||x - m0|| with each column divided by its
    ``unit``, and ``sizes`` are those of the divergence. ``frame`` is the SumsFrame of X, for sweeps
    that move centers.
    """

    def __init__(self, rule, X, mean, frame=None):
        self.m0, self.frame = rule.inside(mean), frame
        n, d = X.shape
        self.divergences, self.lengths, self.sizes = np.empty(n), np.empty(n), np.empty(n)
        squares = np.zeros(d)
        for rows in blocks(n, d):
            x = X[rows].astype(np.float64, copy=False)
            self.divergences[rows] = rule.between(x, self.m0)
            self.sizes[rows] = rule.size(x, self.m0)
            x = x - self.m0
            squares += np.einsum("ij,ij->j", x, x)
        # the unit of a column is its root mean square deviation
        self.unit = np.sqrt(squares / n)
        self.unit[self.unit == 0] = 1.0
        for rows in blocks(n, d):
            x = (X[rows] - self.m0) / self.unit
            self.lengths[rows] = np.sqrt(np.einsum("ij,ij->i", x, x))


class DivergenceSweep:
    """The sweeps of DP-means for a divergence: a ``Sweep`` of ``starts.py``.

    The nearest center is the one with the least affine score; where scores differ by no more than
    rounding, ``between`` decides, so that labels depend neither on chunks nor threads. ``rows`` are
    the rows visited, in that order (None: all as given), ``weight`` their weights > 0 or None,
    ``reference`` the Reference of all X. A row of the visit is its place in ``rows``.
    """

    needs_float64 = False  # there are no scores in float32

    def __init__(self, rule, X, weight, rows, reference, n_threads=1):
        self.rule, self.X, self.weight, self.rows = rule, X, weight, rows
        self.n_threads = n_threads
        self.labels = np.zeros(len(X) if rows is None else len(rows), dtype=np.int32)
        self.reference, everything = reference, slice(None) if rows is None else rows
        self.from_m0 = reference.divergences[everything]
        self.lengths = reference.lengths[everything]
        self.sizes = reference.sizes[everything]
        self.total = exact_total(self.from_m0 if weight is None else weight * self.from_m0)
        self.sums = self.summed = self.bounded_by = None
        self.affine = AffineSweep(
            *(X, weight, rows, self.labels),
            *(reference.m0, self.from_m0, self.lengths, self.sizes, n_threads),
        )
        self.lightest = 1.0 if weight is None else float(weight.min())
        self.n_moved, self.lam, self.limit = 0, np.inf, np.inf
        # bound on the relative rounding error of a sum over the columns
        self.roundoff = (X.shape[1] + 16) * EPS

    @property
    def k(self):
        """Number of clusters."""
        return len(self.centers)

    def start(self, centers):
        """Begin a run at these centers; all labels are 0."""
        self.labels[:] = 0
        self.set_centers(np.array(centers, dtype=np.float64))

    def set_centers(self, centers):
        """Replace the centers by any others: bounds of the last sweep no longer hold."""
        self.bounded_by = None
        self._replace(centers)

    def _replace(self, centers):
        """Replace the centers and their scores."""
        self.centers = centers = np.ascontiguousarray(centers)
        self.walls = self.rule.walls(centers)
        self.scores, self.packed = self.scores_of(centers, self.walls), False

    def scores_of(self, centers, walls):
        """The scores of centers: slopes g, offsets b, norms ||g||, and bounds on the terms of b."""
        slope, offset = self.rule.scores(centers, walls, self.reference.m0)
        with np.errstate(over="ignore", invalid="ignore"):
            norm = np.sqrt(np.square(slope * self.reference.unit).sum(axis=1))
            # an offset is the difference of numbers of at most D(m0, mu) + m0 |slope|
            m0 = self.reference.m0
            size = m0 if walls is None else np.where(walls == 2, 1.0, m0)
            terms = (np.abs(slope) * size).sum(axis=1)
        return slope, offset.sum(axis=1), norm, terms

    def opened_at(self, row, lam):
        """The center of a cluster that opens at a row (1,), and whether it is off the border.

        A component on the border is infinitely far from every x that is not there. It is moved
        toward the mean of all rows, if w D(x, mu) is more than lam above w D(x, center) then, too,
        so that the objective falls in any case.
        """
        x, w = self.rows_of(row)[0], float(np.broadcast_to(self.weights_of(row), 1)[0])
        center = self.rule.off_border(x, self.reference.m0)
        if (center == x).all():
            return x, False
        worth = w * (self._exact(row)[0] - self.rule.between(x, center))
        return (center, True) if worth > lam else (x, False)

    def _from_center(self, center):
        """Exact divergences of all rows of the visit from a center."""
        out = np.empty(len(self.labels))
        for part in blocks(len(out), self.X.shape[1]):
            out[part] = self.rule.between(self.rows_of(part), center)
        return out

    def open_at(self, x):
        """Append a center at x."""
        center = x[None].copy()
        self.centers = np.vstack([self.centers, center])
        added = self.scores_of(center, self.rule.walls(center))
        self.scores = tuple(np.concatenate(pair) for pair in zip(self.scores, added, strict=True))
        self.walls = self.rule.walls(self.centers)
        self.bounded_by, self.packed = None, False

    def rows_of(self, block):
        """The rows of a block (slice or indices) of the visit, as float64."""
        rows = block if self.rows is None else self.rows[block]
        return self.X[rows].astype(np.float64, copy=False)

    def weights_of(self, block):
        """The weights of a block of the visit."""
        return np.float64(1.0) if self.weight is None else self.weight[block]

    def tolerance(self, rows):
        """Bounds on the rounding errors of divergences of these rows of the visit from any center.

        They hold for divergences by scores and by exact sums. The error of the logarithms is not
        included: it is at most LOGARITHMS times the divergence.
        """
        _, offset, norm, terms = self.scores
        with np.errstate(over="ignore", invalid="ignore"):
            # ``reach`` bounds the divergences and, with ``terms``, the numbers that scores are
            # sums of. A summand of an exact divergence is a difference of numbers whose square is
            # at most size times the divergence.
            reach = self.from_m0[rows] + offset.max() + norm.max() * self.lengths[rows]
            bound = self.roundoff * (reach + terms.max() + np.sqrt(self.sizes[rows] * reach))
        return np.where(np.isnan(bound), np.inf, bound)

    def table(self, x, rows, first=0):
        """Divergences of rows x of the visit from the centers from ``first`` on, by scores.

        They are good to ``tolerance``. Where terms leave float64, a divergence is NaN or the
        tolerance infinite.
        """
        slope, offset = self.scores[0][first:], self.scores[1][first:]
        with np.errstate(over="ignore", invalid="ignore"):
            table = offset - (x - self.reference.m0) @ slope.T
            table += self.from_m0[rows, None]
        walls = None if self.walls is None else self.walls[first:]
        if walls is not None and walls.any():
            lower, upper = ((walls == side).astype(float) for side in (1, 2))
            table[x @ lower.T + (1.0 - x) @ upper.T > 0] = np.inf
        return table

    def nearest(self, x, rows):
        """Labels and divergences of rows x of the visit; near ties are decided by exact sums."""
        table, tolerance = self.table(x, rows), self.tolerance(rows)
        least = np.fmin.reduce(table, axis=1)
        most = (1.0 + 4.0 * LOGARITHMS) * least + 4.0 * tolerance
        candidate = ~(table > most[:, None])  # NaN is a candidate
        # if all divergences of a row are infinite by walls, the first center is right
        candidate[np.isinf(least) & np.isfinite(tolerance), 1:] = False
        label = candidate.argmax(axis=1)
        close = np.flatnonzero((candidate.sum(axis=1) > 1) | np.isnan(least))
        row, center = np.nonzero(candidate[close])
        value = self._exact(np.asarray(rows)[close[row]], center)
        order = np.lexsort((center, value, row))
        first = order[np.searchsorted(row, np.arange(len(close)))]
        label[close], least[close] = center[first], value[first]
        return label, least

    def assign(self):
        """Each row joins its nearest center."""
        before, everything = self.labels.copy(), slice(0, len(self.labels))
        self.candidates = self._join_nearest(everything, self.limit, True)
        self.n_moved = int(np.count_nonzero(self.labels != before))
        self.bounded_by = self.scores, self.walls

    def _join_nearest(self, block, limit, bounded):
        """Rows of a block join their nearest center; returns those whose w D may exceed ``limit``.

        If ``bounded``, rows whose bounds of the last sweep decide are not compared with all
        centers. Upper bounds of the divergences are then tight only for the rows returned.
        """
        if not self.packed:
            slope, offset, norm, terms = self.scores
            self.affine.set_scores(
                *(slope, offset, self.walls, norm.max(), terms.max(), self.roundoff), LOGARITHMS
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
            # where the tolerance is infinite, ``nearest`` has compared exact divergences
            self.affine.upper_bounds[rows] = least + np.where(tolerance < np.inf, tolerance, 0.0)
        return flagged

    def _moves(self):
        """Changes of the scores since the last sweep, for AffineSweep, of shape (4, k).

        With changes db of the offset and dg of the slope, the score of center k at x rises by at
        most db + ||dg|| ||x - m0||. The rows are db and ||dg|| of each center, which raise the
        upper bound of its members, and the largest -db and ||dg|| of all others, which lower their
        lower bounds. None if bounds do not hold: scores leave out walls, so if these have changed,
        a divergence may be infinite now that was finite.
        """
        if self.bounded_by is None or not np.array_equal(self.bounded_by[1], self.walls):
            return None
        (slope, offset, *_), (old_slope, old_offset, *_) = self.scores, self.bounded_by[0]
        outward = 1.0 + self.roundoff
        with np.errstate(over="ignore", invalid="ignore"):  # scores may be infinite: no bounds then
            rise = offset - old_offset
            length = outward * np.sqrt(
                np.square((slope - old_slope) * self.reference.unit).sum(axis=1)
            )
            moves = np.vstack([rise, length, _max_of_others(-rise), _max_of_others(length)])
            moves[::2] += self.roundoff * np.abs(moves[::2])  # rounded up
        return moves if np.isfinite(moves).all() else None

    def moved(self):
        """Number of rows that got another label in this sweep."""
        return self.n_moved

    def create(self, lam, cap):
        """One sweep of KJ12, Algorithm 1: rows in the order of visit, each may open a cluster."""
        before, k, n = self.labels.copy(), self.k, len(self.labels)
        bounded = self.bounded_by is not None
        # blocks double until one has a row beyond lam; from that row on, centers have changed
        start, size = 0, n if bounded else TABLE_ROWS
        while start < n:
            block, may_open = slice(start, min(n, start + size)), self.k < cap and lam < np.inf
            rows = self._join_nearest(block, lam if may_open else np.inf, bounded)
            start, size = block.stop, 2 * size
            if may_open:
                rows = rows[self.weights_of(rows) * self._decided(rows, lam) > lam]
                if len(rows):
                    start, size, bounded = min(n, rows[0] + TABLE_ROWS), TABLE_ROWS, False
                    self._open(slice(rows[0], start), lam, cap)
        self.n_moved = int(np.count_nonzero(self.labels != before))
        self.bounded_by = (self.scores, self.walls) if self.k == k else None

    def _decided(self, rows, lam):
        """Divergences of rows just compared with all centers, exact where w D is near lam."""
        tolerance = self.tolerance(rows)
        least = self.affine.upper_bounds[rows] - np.where(tolerance < np.inf, tolerance, 0.0)
        return self._decide(rows, lam, least, tolerance)

    def _decide(self, rows, lam, least, tolerance):
        """Replace those divergences ``least`` (INOUT) by exact ones for which w D is near lam."""
        w = self.weights_of(rows)
        with np.errstate(invalid="ignore"):  # of infinities
            near = ~(np.abs(w * least - lam) > 2.0 * w * tolerance + 4.0 * LOGARITHMS * lam)
        least[near] = self._exact(rows[near])
        return least

    def _open(self, block, lam, cap):
        """Open clusters at the rows of a block beyond lam, in order; later rows may join them."""
        self._join_nearest(block, np.inf, False)
        # rows before ``after`` are done; ``least`` are divergences from the nearest center so far
        rows, x, after = np.arange(block.start, block.stop), self.rows_of(block), 0
        label, w = self.labels[block], np.broadcast_to(self.weights_of(block), len(x))
        least, tolerance = self._decided(rows, lam), self.tolerance(rows)
        while self.k < cap:
            far = w[after:] * least[after:] > lam
            first = after + int(far.argmax())
            if not far.any():
                return
            center, _ = self.opened_at(rows[first : first + 1], lam)
            label[first], least[first], after = self.k, 0.0, first + 1
            self.open_at(center)
            if after == len(x):
                return
            # compare the other rows with the new center: by scores, exactly where these are near
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
        """Set lam for ``open_farthest``; with ``seek``, ``assign`` lists rows that exceed it."""
        self.lam, self.limit = lam, lam if seek else np.inf

    def open_farthest(self):
        """Delayed creation: the row with the largest w D opens a cluster, if that exceeds lam."""
        rows = self.candidates
        w = np.broadcast_to(self.weights_of(rows), rows.shape)
        upper = w * self.affine.upper_bounds[rows]
        error = w * self.tolerance(rows) + LOGARITHMS * upper
        if not len(rows):
            return
        if np.isfinite(upper).all():
            near = upper + error >= (upper - 3.0 * error).max()
        else:
            near = np.isinf(upper)
        if not near.any():
            raise ValueError(UNSOUND)
        rows, value = rows[near], w[near] * self._exact(rows[near])
        best = int(value.argmax())
        if value[best] > self.lam:
            center, off_border = self.opened_at(rows[best : best + 1], self.lam)
            if off_border and self.lam > 0.0:
                # rows that are nearer to it join at once: its mean may be on the border after the
                # sweep. For lam = 0, where as many clusters as possible are to open, none joins
                nearer = self._from_center(center) < self.assigned_distances()
                self.labels[nearer] = self.k
            self.labels[rows[best]] = self.k
            self.open_at(center)

    def add_up(self):
        """Bring the sums up to date with the labels, by the rows whose label has changed."""
        label, frame = self.labels, self.reference.frame
        if self.rows is not None:
            label = np.full(self.X.shape[0], -1, dtype=np.int32)
            label[self.rows] = self.labels
        if self.sums is None:
            self.sums = Sums(frame.layout, self.k)
            self.sums.add(self.X, label, frame.weight)
        else:
            self.sums.reserve(self.k)
            rows = np.flatnonzero(self.summed != label)
            for part in blocks(len(rows), self.X.shape[1]):
                i = rows[part]
                w = None if frame.weight is None else frame.weight[i]
                self.sums.move(self.X[i], self.summed[i], label[i], w)
        self.summed = label.copy()
        self.weights = self.sums.totals[1][: self.k]
        self.counts = self.sums.counts[: self.k].astype(np.intp)

    def move_centers(self):
        """Means of the members, empty clusters dropped; returns the weighted sum of divergences."""
        self.add_up()
        kept = self.counts > 0
        # the mean of equal values is exact, and rounding puts none on the border
        means, share = self.sums.means[: self.k], self.lightest / np.where(kept, self.weights, 1.0)
        check_means(means[kept], self.sums.layout)
        self._keep(within_members(means, self.X, self.summed, share, self.rule.high), kept)
        # sum_i w_i D(x_i, m0) = sum_i w_i D(x_i, mean) + sum_c s_c D(mean_c, m0)
        return self.total - exact_total(
            self.weights * self.rule.between(self.centers, self.reference.m0)
        )

    def _keep(self, centers, kept):
        """Set the centers, without those of clusters that are not ``kept`` (bool)."""
        if not kept.all():
            self._renumber(np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32))
            self.sums.keep(np.flatnonzero(kept))
            self.weights, self.counts = self.weights[kept], self.counts[kept]
            centers = centers[kept]
            self.bounded_by = None
        self._replace(centers)

    def _renumber(self, number):
        """Replace each label c by ``number[c]``; rows without a cluster (-1) keep that."""
        self.labels[:] = number[self.labels]
        self.summed = np.append(number, np.int32(-1))[self.summed]

    def drop_empty(self):
        """Drop clusters without members; returns whether there were any. Other centers stay."""
        self.add_up()
        kept = self.counts > 0
        self._keep(self.centers, kept)
        return not kept.all()

    def _exact(self, rows, label=None):
        """Exact divergences of rows of the visit from these centers, by default their own."""
        label, out = self.labels[rows] if label is None else label, np.empty(len(rows))
        for part in blocks(len(rows), self.X.shape[1]):
            centers = self.centers[label[part]]
            out[part] = self.rule.between(self.rows_of(rows[part]), centers)
        return out

    def assigned_distances(self):
        """Exact divergence of each row from its assigned center."""
        return self._exact(np.arange(len(self.labels)))

    def squared_error(self):
        """Weighted sum of divergences from the assigned centers, row by row, rounded once."""
        distances = self.assigned_distances()
        return exact_total(distances if self.weight is None else self.weight * distances)

    def collapse(self, lam, cap):
        """Do one collapsed sweep; returns the numbers of rows moved and of clusters opened.

        Means are those of the present labels (MB13, eq. 8-9); ``cap`` bounds the clusters. Costs of
        a block are as if no row moved; those of the two clusters of a move are computed anew.
        """
        state = _Collapsed(self, lam, cap)
        n, start, step = len(self.labels), 0, 64
        while start < n:
            most = max(
                1, min(TABLE_ROWS, TABLE_NUMBERS // max(1, len(state.weights) * self.X.shape[1]))
            )
            stop = min(n, start + min(step, most))
            changes = state.run(slice(start, stop))
            # each move recomputes costs of the rest of the block: shorter blocks where many move
            step = max(16, step // 2) if changes > 4 else 2 * step
            start = stop
        self.n_moved, self.bounded_by = state.n_moved, None
        opened = len(state.weights) - self.k
        if opened:
            self.set_centers(state.means)
        return state.n_moved, opened


class _Collapsed:
    """The clusters during a collapsed sweep: means, weights and counts follow each move."""

    def __init__(self, sweep, lam, cap):
        self.sweep, self.lam, self.cap = sweep, lam, cap
        self.means, self.weights = sweep.centers.copy(), sweep.weights.copy()
        self.counts = sweep.counts.copy()
        # means are brought back to the range of the data if rounding has put them outside
        layout = sweep.reference.frame.layout
        self.range = layout.low, layout.high
        self.n_used = int(np.count_nonzero(self.counts))
        self.n_moved = 0

    def _join(self, x, w, clusters):
        """Costs of joining clusters: w D(x, m') + s D(m, m'), m' the joint mean (MB13, eq. 8-9)."""
        between = self.sweep.rule.between
        s, mean, w = self.weights[clusters], self.means[clusters], w[:, None]
        joint = mean + (w / (w + s))[..., None] * (x[:, None] - mean)
        cost = w * between(x[:, None], joint) + s * between(mean, joint)
        cost[:, self.counts[clusters] == 0] = np.inf
        return cost

    def _stay(self, x, w, label):
        """Costs of joining the clusters ``label`` that rows were in, for rows not alone there."""
        between = self.sweep.rule.between
        mean, s = self.means[label], self.weights[label] - w
        without = np.clip(mean - (w / s)[:, None] * (x - mean), *self.range)
        return w * between(x, mean) + s * between(without, mean)

    def _fill(self, cost, x, w, label, rows):
        """Set the costs of staying, for these rows, in the table ``cost`` (INOUT)."""
        cost[rows, label[rows]] = np.inf
        rows = rows[self.counts[label[rows]] > 1]
        cost[rows, label[rows]] = self._stay(x[rows], w[rows], label[rows])

    def run(self, block):
        """Visit a block of rows; returns how many moved."""
        sweep, changes = self.sweep, 0
        x = sweep.rows_of(block)
        w = np.broadcast_to(np.asarray(sweep.weights_of(block), dtype=float), len(x))
        visited = np.arange(len(sweep.X))[block] if sweep.rows is None else sweep.rows[block]
        spread = np.sqrt(w * sweep.reference.sizes[visited])
        label = sweep.labels[block]  # a view: changes are written through
        cost = self._join(x, w, np.arange(len(self.weights)))
        self._fill(cost, x, w, label, np.arange(len(x)))
        at, k = 0, len(self.weights)
        while at < len(x):
            alone = self.counts[label[at:]] == 1
            new_cost = np.where(self.n_used - alone < self.cap, self.lam, np.inf)
            least = np.minimum(cost[at:].min(axis=1), new_cost)
            # costs within about MEAN_ROUNDING sqrt(c) spread are ties: the first cluster is taken
            tied = least + MEAN_ROUNDING * (least + np.sqrt(least) * spread[at:])
            good = cost[at:] <= tied[:, None]
            best = np.where(good.any(axis=1), good.argmax(axis=1), k)
            change = (best != label[at:]) & ~((best == k) & alone)
            first = int(change.argmax())
            if not change[first]:
                break
            i, new = at + first, int(best[first])
            old, at = int(label[i]), at + first + 1
            self._move(visited[i], x[i], w[i], old, new)
            label[i] = new
            changes, k = changes + 1, len(self.weights)
            if new == cost.shape[1]:
                cost = np.hstack([cost, np.empty((len(x), 1))])
            cost[at:, [old, new]] = self._join(x[at:], w[at:], [old, new])
            self._fill(cost, x, w, label, at + np.flatnonzero(np.isin(label[at:], (old, new))))
        self.n_moved += changes
        return changes

    def _move(self, row, x, w, old, new):
        """Move a row to another cluster, which is new if ``new`` is the number of clusters."""
        sweep, sums = self.sweep, self.sweep.sums
        if new == len(self.weights):
            sums.reserve(new + 1)
            self.means = np.vstack([self.means, np.zeros(self.means.shape[1])])
            self.weights, self.counts = np.append(self.weights, 0.0), np.append(self.counts, 0)
            self.n_used += 1
        sums.move_row(np.ascontiguousarray(x), w, old, new)
        sweep.summed[row] = new
        self.counts[old] -= 1
        self.counts[new] += 1
        self.n_used -= self.counts[old] == 0
        for c in (old, new):
            if self.counts[c]:
                mean, self.weights[c] = sums.center(c)
                self.means[c] = np.clip(mean, *self.range)


class SumsFrame:
    """The layout of the sums of the rows X, with their weights and their mean."""

    rounding = 0.0  # no divergence is taken for rounding

    def __init__(self, X, weight, n_threads):
        self.X, self.weight = X, weight
        # 50 bits of every value, also of small ones: rare=0
        self.layout = Layout(X, weight, n_threads, origin=np.zeros(X.shape[1]), rare=0.0)
        # rounding must not move the mean of a constant column
        mean = self.layout.mean(X, weight, n_threads)
        self.mean = np.clip(mean, self.layout.low, self.layout.high)


def farthest_first(rule, X, rows, mean, n_clusters):
    """D of the farthest-first rule (KJ12, 6.1), for a divergence; ``rows`` None: all."""
    n = X.shape[0] if rows is None else len(rows)

    def divergences_from(seed):
        out = np.empty(n)
        for block in blocks(n, X.shape[1]):
            x = X[block if rows is None else rows[block]]
            out[block] = rule.between(x.astype(np.float64, copy=False), seed)
        return out

    def to_row(i):
        return divergences_from(X[i if rows is None else rows[i]].astype(np.float64))

    return farthest_by(divergences_from(mean), to_row, n_clusters, 0.0)


def sweep_at(rule, X, weight, rows, centers, n_threads=1):
    """A sweep over these rows whose labels are the nearest of the centers."""
    reference = Reference(rule, X, centers.mean(axis=0))
    sweep = DivergenceSweep(rule, X, weight, rows, reference, n_threads)
    sweep.set_centers(centers)
    sweep.assign()
    return sweep


def nearest_centers(rule, X, centers, n_threads=1):
    """Labels of the nearest centers."""
    if X.shape[0] * centers.size <= FEW_SUMMANDS:
        x = X[:, None].astype(np.float64, copy=False)
        return rule.between(x, centers).argmin(axis=1).astype(np.int32)
    return sweep_at(rule, X, None, None, centers, n_threads).labels


def _max_of_others(values):
    """For each value, the largest of all others; 0 if there is only one."""
    if len(values) == 1:
        return np.zeros(1)
    second, first = np.partition(values, -2)[-2:]
    return np.where(np.arange(len(values)) == values.argmax(), second, first)
