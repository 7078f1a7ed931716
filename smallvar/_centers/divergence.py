"""The sweeps of DP-means with a Bregman divergence in place of the squared distance.

Jiang, Kulis & Jordan (2012). The sweep compares divergences by scores affine in x,
D(x, mu) = D(x, m0) + b - g . (x - m0), and bounds on their rounding; exact divergences decide near
ties (compiled, ``smallvar._sweeps.affine``). ``Reference`` has what is computed once for each row.
"""

import numpy as np

from smallvar._core.frame import FewRows, check_means
from smallvar._selection.penalty import farthest_by
from smallvar._sweeps.affine import AffineSweep
from smallvar._sweeps.divergences import within_members
from smallvar._sweeps.sums import Layout, Sums, exact_total

TABLE_NUMBERS = 1 << 18  # numbers in a temporary table at most
TABLE_ROWS = 4096  # rows of a block at most
# rows from the one on at which a cluster has opened that are compared with it together, at first;
# twice as many each time while none opens
AFTER_OPENING = 64
# rows * numbers in centers up to which exact divergences are faster than a sweep
FEW_SUMMANDS = 1 << 14
EPS = float(np.finfo(float).eps)


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
        self.divergences, self.sizes = rule.between(X, self.m0), rule.size(X, self.m0)
        # the unit of a column is its root mean square deviation
        squares = sum(np.square(X[rows] - self.m0).sum(axis=0) for rows in blocks(*X.shape))
        self.unit = np.sqrt(squares / len(X))
        self.unit[self.unit == 0] = 1.0
        self.lengths = np.empty(len(X))
        for rows in blocks(*X.shape):
            relative = (X[rows] - self.m0) / self.unit
            self.lengths[rows] = np.sqrt(np.square(relative).sum(axis=1))


class DivergenceSweep:
    """The sweeps of DP-means for a divergence: a ``Sweep`` of ``starts.py``.

    ``rows`` are the rows visited, in that order (None: all as given), ``weight`` their weights > 0
    or None, ``reference`` the Reference of all X. A row of the visit is its place in ``rows``.
    """

    needs_float64 = False  # there are no scores in float32

    def __init__(self, rule, X, weight, rows, reference, n_threads=1):
        self.rule, self.X, self.weight, self.rows = rule, X, weight, rows
        self.reference, self.n_threads = reference, n_threads
        visited = slice(None) if rows is None else rows
        from_m0 = reference.divergences[visited]
        self.total = exact_total(from_m0 if weight is None else weight * from_m0)
        self.labels = np.zeros(len(from_m0), dtype=np.int32)
        self.affine = AffineSweep(
            rule.kind, X, weight, rows, self.labels, reference.m0, from_m0,
            reference.lengths[visited], reference.sizes[visited], n_threads,
        )  # fmt: skip
        self.lightest = 1.0 if weight is None else float(weight.min())
        # ``summed`` are the labels that the sums are of, ``bounded_by`` the scores of the bounds
        self.sums = self.summed = self.bounded_by = None
        self.n_moved, self.lam = 0, np.inf

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
        self._set_scores(centers, *self.rule.scores(centers, self.reference.m0))

    def open_at(self, center):
        """Append a center."""
        new = self.rule.scores(center[None], self.reference.m0)
        slope, offset = map(np.concatenate, zip(self.scores, new, strict=True))
        self._set_scores(np.vstack([self.centers, center]), slope, offset)
        self.bounded_by = None

    def _set_scores(self, centers, slope, offset):
        """Set centers and their scores, with bounds on the terms of which these are sums."""
        self.centers, self.scores = np.ascontiguousarray(centers), (slope, offset)
        self.walls, m0 = self.rule.walls(centers), self.reference.m0
        with np.errstate(over="ignore", invalid="ignore"):
            largest_slope = self._lengths(slope).max()
            # an offset is the difference of numbers of at most D(m0, mu) + m0 |slope|
            size = m0 if self.walls is None else np.where(self.walls == 2, 1.0, m0)
            largest_term = (np.abs(slope) * size).sum(axis=1).max()
        on_border = self.walls is not None
        self.affine.set_centers(self.centers, slope, offset, on_border, largest_slope, largest_term)

    def _lengths(self, slopes):
        """The norms that bound slope . (x - m0) by the lengths of the reference."""
        return np.sqrt(np.square(slopes * self.reference.unit).sum(axis=1))

    def _row(self, row):
        """The values of a row of the visit, as float64."""
        return self.X[row if self.rows is None else self.rows[row]].astype(np.float64)

    def _opening_center(self, row, lam):
        """The center of a cluster that opens at a row of the visit.

        A component on the border is infinitely far from every x that is not there. It is moved
        toward the mean of all rows, if w D(x, mu) is more than lam above w D(x, center) then, too,
        so that the objective falls in any case.
        """
        x = self._row(row)
        center = self.rule.off_border(x, self.reference.m0)
        weight, between = 1.0 if self.weight is None else self.weight[row], self.rule.between
        saved = weight * (between(x, self.centers[self.labels[row]]) - between(x, center))
        return center if saved > lam else x

    def assign(self):
        """Each row joins its nearest center."""
        before = self.labels.copy()
        self.affine.set_moves(self._moves())
        self.affine.assign(0, len(self.labels))
        self.n_moved = int(np.count_nonzero(self.labels != before))
        self.bounded_by = self.scores, self.walls

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
        (slope, offset), (old_slope, old_offset) = self.scores, self.bounded_by[0]
        roundoff = (self.X.shape[1] + 16) * EPS  # of a sum over the columns, relative
        with np.errstate(over="ignore", invalid="ignore"):  # scores may be infinite: no bounds then
            rise = offset - old_offset
            length = (1.0 + roundoff) * self._lengths(slope - old_slope)
            moves = np.vstack([rise, length, _max_of_others(-rise), _max_of_others(length)])
            moves[::2] += roundoff * np.abs(moves[::2])  # rounded up
        return moves if np.isfinite(moves).all() else None

    def moved(self):
        """Number of rows that got another label in this sweep."""
        return self.n_moved

    def create(self, lam, cap):
        """One sweep of KJ12, Algorithm 1: rows in the order of visit, each may open a cluster."""
        before, k, n, start = self.labels.copy(), self.k, len(self.labels), 0
        moves = self._moves()
        self.affine.set_moves(moves)
        size = AFTER_OPENING if moves is None else n
        while start < n:
            stop = min(n, start + size)
            self.affine.assign(start, stop)
            row = self.affine.first_beyond(start, stop, lam) if self.k < cap else -1
            if row < 0:
                start, size = stop, 2 * size
            else:  # the rows after it are compared with the new center, too
                center, self.labels[row] = self._opening_center(row, lam), self.k
                self.open_at(center)
                start, size = row + 1, AFTER_OPENING
        self.n_moved = int(np.count_nonzero(self.labels != before))
        self.bounded_by = (self.scores, self.walls) if self.k == k else None

    def seek_farthest(self, lam, seek):
        """Set the penalty for ``open_farthest``; infinite unless ``seek``."""
        self.lam = lam if seek else np.inf

    def open_farthest(self):
        """Delayed creation: the row with the largest w D opens a cluster, if that exceeds lam."""
        row, k = self.affine.farthest(self.lam), self.k
        if row < 0:
            return
        center = self._opening_center(row, self.lam)
        self.open_at(center)
        if self.lam > 0.0 and (center != self._row(row)).any():
            # rows that are nearer to it join at once: its mean may be on the border after the
            # sweep. For lam = 0, where as many clusters as possible are to open, none joins
            from_center = self.affine.divergences(np.full(len(self.labels), k, dtype=np.int32))
            self.labels[from_center < self.assigned_distances()] = k
        self.labels[row] = k

    def _labels_of_all(self):
        """A copy of the labels in the order of all rows, -1 for those that are not visited."""
        if self.rows is None:
            return self.labels.copy()
        labels = np.full(self.X.shape[0], -1, dtype=np.int32)
        labels[self.rows] = self.labels
        return labels

    def add_up(self):
        """Bring the sums up to date with the labels, by the rows whose label has changed."""
        label, frame = self._labels_of_all(), self.reference.frame
        if self.sums is None:
            self.sums = Sums(frame.layout, self.k)
            self.sums.add(self.X, label, frame.weight)
        else:
            self.sums.reserve(self.k)
            changed = np.flatnonzero(self.summed != label)
            for part in blocks(len(changed), self.X.shape[1]):
                rows = changed[part]
                w = None if frame.weight is None else frame.weight[rows]
                self.sums.move(self.X[rows], self.summed[rows], label[rows], w)
        self.summed = label
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

    def assigned_distances(self):
        """Exact divergence of each row from its assigned center."""
        return self.affine.divergences(self.labels)

    def squared_error(self):
        """Weighted sum of divergences from the assigned centers, row by row, rounded once."""
        distances = self.assigned_distances()
        return exact_total(distances if self.weight is None else self.weight * distances)

    def collapse(self, lam, cap):
        """Do one collapsed sweep; returns the numbers of rows moved and of clusters opened."""
        k = self.k
        self.n_moved, means = self.affine.collapse(self.sums, self.centers, lam, cap)
        self.summed = self._labels_of_all()
        self.set_centers(means)
        return self.n_moved, self.k - k


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


def farthest_first(rule, X, mean, n_clusters):
    """D of the farthest-first rule (KJ12, 6.1), for a divergence."""
    return farthest_by(
        rule.between(X, mean), lambda i: rule.between(X, X[i].astype(np.float64)), n_clusters, 0.0
    )


def nearest_by(rule, X, weight, centers, n_threads=1):
    """A result like that of ``frame.nearest``, for a divergence.

    Rows of weight zero are left out: their divergences may be infinite.
    """
    rows = None if weight is None else np.flatnonzero(weight)
    weight = None if weight is None else weight[rows]
    if X.shape[0] * centers.size <= FEW_SUMMANDS:
        X = X if rows is None else X[rows]
        table = rule.between(X[:, None], centers)
        labels = table.argmin(axis=1).astype(np.int32)
        return FewRows(X, weight, centers, labels, table[np.arange(len(X)), labels], None)
    reference = Reference(rule, X, centers.mean(axis=0))
    sweep = DivergenceSweep(rule, X, weight, rows, reference, n_threads)
    sweep.set_centers(centers)
    sweep.assign()
    return sweep


def _max_of_others(values):
    """For each value, the largest of all others; 0 if there is only one."""
    if len(values) == 1:
        return np.zeros(1)
    second, first = np.partition(values, -2)[-2:]
    return np.where(np.arange(len(values)) == values.argmax(), second, first)
