"""The divergences by which rows of a table are clustered, and the sweeps of DP-means over them.

The objective, of the rows i, their observed cells j, and their clusters z, is

    sum_i w_i sum_j D_j(x_ij, mu_zj) + prior + lam K

    D_j   normal, ordered   (x - mu)^2 / (2 s_j^2)
          poisson           (x log(x / mu) - x + mu) / s_j^2
          exponential       (x / mu - log(x / mu) - 1) / s_j^2
          bernoulli, categorical    -log mu_x, the share of the level of x

    prior = a sum over clusters, columns of codes and their levels v of p_v log(p_v / mu_v),

all in nats. The s_j are fixed during a fit: were they to follow the clusters, s_j would fall to 0
with as many clusters as rows. (Along a merge path they are those of the clusters before each
merger; a fit that goes on from it keeps those of the number chosen.) So are p_v, the overall
shares, and the pseudo-count a of PSEUDO_COUNT rows, by which no share is 0: for n members with a
cell, n_v of them at level v, mu_v = (n_v + a p_v) / (n + a) is best. A cluster without a cell in a
column has the overall mean or shares.

Missing cells take no part. Columns are added in the order of the table, numbers before codes. Ties
go to the cluster of the lowest index. In Algorithm 1 rows are visited in the order given, or in
that of the start; a row opens a cluster where w D(x, mu) less what it costs in a cluster of its own
(0 but for codes, whose shares have the pseudo-count) exceeds lam for every cluster; in delayed
creation the row for which that is most, if it exceeds lam.

A poisson mean of 0 is infinitely far from every larger count. A cluster that opens at a row with a
0 has a tenth of the overall mean there until the sweep ends, if the gain less what the row then
costs exceeds lam, too. In delayed creation the rows nearer to that center than to their own join at
once.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import xlogy

from smallvar._centers.divergence_path import gamma_shape
from smallvar._mixed.columns import NUMBER_KINDS
from smallvar._selection.columns import columns_of_tight_groups
from smallvar._sweeps.mixed import EXPONENTIAL, NORMAL, POISSON, MixedAssignment
from smallvar._sweeps.mixed_rows import MixedClusters
from smallvar._sweeps.rows import LARGEST_REACH, SMALLEST_REACH

KIND_NUMBERS = dict(zip(NUMBER_KINDS, (NORMAL, NORMAL, POISSON, EXPONENTIAL), strict=True))
PSEUDO_COUNT = 1.0
SEED_COUNT = 0.5  # rows of the overall mean that are added to a seed, in poisson columns
ROWS_COMPARED = 1024  # rows that Algorithm 1 compares at a time where clusters open
OPENED = 64  # clusters that it opens before all rows are compared with them
# of the variance of a column: the least within clusters, so that divergences stay finite
LEAST_VARIANCE_SHARE = 1e-10
FEW_MOVED = 3  # sums change by the rows that have moved if these are at most n / FEW_MOVED
LEAST_WEIGHT = 1e-300  # absolute: what sums of no weight are divided by


@dataclass(frozen=True)
class Measure:
    """The parameters of divergences that clusters share.

    Of the p columns of numbers: ``kind``, ``place`` (the overall mean), ``floor`` (the least
    variance of normal ones), ``step`` (the grid of the values) and ``variance`` (s_j^2). Of the q
    columns of codes: levels ``begin[j]`` .. ``begin[j + 1] - 1`` are those of column j; ``shares``
    are the overall shares, by level. Cells of a level of share 0 count as missing.
    """

    kind: np.ndarray
    place: np.ndarray
    floor: np.ndarray
    step: np.ndarray
    variance: np.ndarray
    begin: np.ndarray
    shares: np.ndarray

    @property
    def factor(self):
        """Factors of the divergences of numbers: 1 / (2 s_j^2) if normal, else 1 / s_j^2."""
        return np.where(self.kind == NORMAL, 0.5, 1.0) / self.variance

    def scaled(self, variance):
        """A measure that differs only in the variances s_j^2."""
        return replace(self, variance=variance)

    def rows(self, numbers, codes, weight=None, order=None, n_threads=1):
        """A MixedAssignment of packed rows, which compares them with centers."""
        facts = self.kind, self.begin, self.place, self.shares, PSEUDO_COUNT, n_threads
        rows = MixedAssignment(numbers, codes, weight, order, *facts)
        rows.factor[:] = self.factor
        return rows

    def overall(self):
        """The center of all rows: overall means and shares."""
        return np.concatenate([self.place, self.shares])[None]

    def by_column(self, values):
        """Sums over the levels of each column of codes, along the last axis."""
        total = np.concatenate([np.zeros((*values.shape[:-1], 1)), values.cumsum(axis=-1)], axis=-1)
        return np.diff(total[..., self.begin], axis=-1)

    def prior(self, centers):
        """The prior of these clusters."""
        shares = centers[:, len(self.kind) :]
        return code_errors(self, np.zeros_like(shares), shares).sum()

    def of_columns(self, columns, centers):
        """Means and shares of the clusters, and spreads, by name of the column."""
        parameters, spreads, p = {}, {}, len(self.kind)
        j = level = 0
        for column in columns:
            if column.kind in NUMBER_KINDS:
                parameters[column.name] = centers[:, j].copy()
                spreads[column.name] = float(np.sqrt(self.variance[j]))
                j += 1
            else:
                size = len(column.levels)
                parameters[column.name] = centers[:, p + level : p + level + size].copy()
                level += size
        return parameters, spreads


def measure_of(packed, weight, n_threads):
    """The measure of a table as a whole: variances are those of the columns."""
    p, q = packed.numbers.shape[1], packed.codes.shape[1]
    columns = [packed.columns[j] for j in packed.number_of]
    kind = np.array([KIND_NUMBERS[c.kind] for c in columns], dtype=np.int32)
    size = [len(packed.columns[j].levels) for j in packed.code_of]
    begin = np.append(0, np.cumsum(size)).astype(np.intp)
    step = np.array([c.step for c in columns])
    step[columns_of_tight_groups(packed.numbers)] = 0.0
    # sums of all rows do not depend on the measure; shares of 1, so that no level counts as missing
    first = Measure(kind, np.zeros(p), np.zeros(p), step, np.ones(p), begin, np.ones(begin[-1]))
    sums = sums_of(first.rows(packed.numbers, packed.codes, weight, None, n_threads), first, 1)
    with np.errstate(invalid="ignore"):
        place = (sums.total / sums.weights)[0]
    share = [
        level / max(LEAST_WEIGHT, level.sum()) for level in np.split(sums.level[0], begin[1:-1])
    ]
    shares = np.concatenate(share) if q else np.zeros(0)
    # variances: the errors of all rows from the overall means
    overall = replace(first, place=place, shares=shares)
    rows = overall.rows(packed.numbers, packed.codes, weight, None, n_threads)
    rows.set_centers(overall.overall())
    variance = rows.column_errors() / np.maximum(sums.weights[0], LEAST_WEIGHT)
    floor = np.maximum(step**2 / 12.0, LEAST_VARIANCE_SHARE * variance)
    variance = np.where(kind == NORMAL, variance + floor, 1.0)
    return replace(overall, floor=floor, variance=variance)


def check_values(packed, name="X"):
    """Raise where squares of numbers would leave float64."""
    numbers = packed.numbers
    if not numbers.size:
        return
    reach = np.fmax(np.fmax.reduce(numbers, axis=0), -np.fmin.reduce(numbers, axis=0))
    reach = reach.astype(np.float64)  # bounds are beyond float32
    wrong = (reach > 0.0) & ~((reach > SMALLEST_REACH) & (reach < LARGEST_REACH))
    if wrong.any():
        j = int(np.argmax(wrong))
        column = packed.columns[packed.number_of[j]].name
        raise ValueError(
            f"column {column!r} of {name} must have its largest absolute value above 1e-140 and "
            f"below 1e140, got {float(reach[j]):.3g}: squares would leave the range of float64"
        )


def variances(measure, errors, weights):
    """s_j^2 for these sums of divergences and weights of the members with a number.

    That of a normal column is the mean squared distance, and that within a recorded step; of a
    poisson column twice the mean divergence, at least 1: counts may vary more than the law says;
    of an exponential one 1 / the shape of the gamma law.
    """
    out = measure.variance.copy()
    for j, kind in enumerate(measure.kind):
        mean = errors[j] / weights[j] if weights[j] > 0.0 else 0.0
        if kind == NORMAL:
            out[j] = mean + measure.floor[j]
        elif kind == POISSON:
            out[j] = max(1.0, 2.0 * mean)
        else:
            out[j] = 1.0 / gamma_shape(mean)
    return out


@dataclass(frozen=True)
class MixedSums:
    """Sums over the members of clusters.

    ``weights``, ``total`` and ``count`` (k, p): the weight of members with a number, its weighted
    sum, and how many there are. ``level`` (k, levels): the weight of the members at each level.
    ``weight`` and ``size`` (k,): the weight of all members, and their number.
    """

    weights: np.ndarray
    total: np.ndarray
    count: np.ndarray
    level: np.ndarray
    weight: np.ndarray
    size: np.ndarray

    def kept(self, rows):
        """The sums of the clusters with these numbers."""
        return MixedSums(*(array[rows] for array in vars(self).values()))

    def centers(self, measure):
        """The centers that minimize the error: means, and shares with the pseudo-count."""
        with np.errstate(invalid="ignore"):
            mean = np.where(self.count > 0.0, self.total / self.weights, measure.place)
        sizes = np.diff(measure.begin)
        members = np.repeat(measure.by_column(self.level), sizes, axis=1)
        prior = PSEUDO_COUNT * measure.shares
        return np.hstack([mean, (self.level + prior) / (members + PSEUDO_COUNT)])


def sums_of(rows, measure, k):
    """The sums of the clusters of the labels of some rows."""
    return sums_in(rows.sums(k), measure)


def sums_in(raw, measure):
    """The sums of clusters, of which a MixedAssignment has returned high and low parts."""
    p, levels = len(measure.kind), int(measure.begin[-1])
    at = np.cumsum([0, p, p, p, p, p, levels, levels, 1, 1, 1])
    part = np.split(raw, at[1:-1], axis=1)
    return MixedSums(
        part[2] + part[3], part[0] + part[1], part[4], part[5] + part[6],
        (part[7] + part[8])[:, 0], part[9][:, 0],
    )  # fmt: skip


def code_errors(measure, level, shares):
    """Divergences of the codes of the members of each cluster, by column, and the prior; (k, q)."""
    prior = PSEUDO_COUNT * measure.shares
    terms = xlogy(prior, measure.shares) - xlogy(level + prior, shares)
    return measure.by_column(terms)


class MixedSweep:
    """The sweeps of DP-means over the rows of a table: a ``Sweep`` of ``starts.py``."""

    needs_float64 = False

    def __init__(self, measure, numbers, codes, weight=None, order=None, n_threads=1):
        self.measure, self.weight = measure, weight
        self.rows = measure.rows(numbers, codes, weight, order, n_threads)
        self.limit, self.n_moved, self._overall_errors = np.inf, 0, None
        self._summed = None  # labels, their sums, and the high and low parts of these

    def present_sums(self, k):
        """The sums of the first k clusters; of the rows only those are added that have moved."""
        labels = self.labels
        if self._summed is not None:
            before, sums, raw = self._summed
            n_moved = np.count_nonzero(before != labels)
            if n_moved == 0 and len(raw) == k:
                return sums
        # of weights, unlike counts, what is taken out again may leave a rest of rounding
        if (
            self._summed is None
            or self.weight is not None
            or len(raw) > k
            or FEW_MOVED * n_moved > len(labels)
        ):
            raw = self.rows.sums(k)
        else:
            # clusters that were opened since begin at zero
            raw = np.concatenate([raw, np.zeros((k - len(raw), raw.shape[1]))])
            self.rows.move_sums(raw, before)
        sums = sums_in(raw, self.measure)
        self._summed = labels.copy(), sums, raw
        return sums

    @property
    def labels(self):
        """Cluster of each row, in the order of visit."""
        return self.rows.labels

    @property
    def k(self):
        """Number of clusters."""
        return self.rows.k

    @property
    def centers(self):
        """Means and shares, (k, p + levels)."""
        return self.rows.centers

    @property
    def total(self):
        """The error of all rows in one cluster."""
        return float(self._overall[0] @ self.rows.factor + self._overall[1])

    @property
    def _overall(self):
        """Errors from the overall center: of each column of numbers, and of all codes together."""
        if self._overall_errors is None:
            sums, of_numbers = self.one_cluster()
            of_codes = code_errors(self.measure, sums.level, self.measure.shares[None]).sum()
            self._overall_errors = of_numbers, of_codes
        return self._overall_errors

    def one_cluster(self):
        """Sums and errors by column of numbers of all rows in one cluster, the overall center."""
        rows, labels, centers = self.rows, self.labels.copy(), self.centers
        rows.labels[:] = 0
        rows.set_centers(self.measure.overall())
        found = sums_of(rows, self.measure, 1), rows.column_errors()
        rows.labels[:] = labels
        if centers is not None:
            rows.set_centers(centers)
        return found

    def start(self, centers):
        """Begin at these centers; all labels are 0."""
        self.labels[:] = 0
        self.rows.set_centers(centers)

    def set_centers(self, centers):
        """Replace the centers."""
        self.rows.set_centers(centers)

    def rescale(self, variance):
        """Replace the variances s_j^2."""
        self.measure = self.measure.scaled(variance)
        self.rows.factor[:] = self.measure.factor
        self.rows.set_centers(self.centers)

    def create(self, lam, cap):
        """One sweep of Algorithm 1: nearest centers, opening clusters in the order of visit."""
        rows, before, n = self.rows, self.labels.copy(), len(self.labels)
        start, size = 0, ROWS_COMPARED
        while start < n:
            stop, limit = min(n, start + size), lam if self.k < cap else np.inf
            rows.assign_points(start, stop, limit)
            if rows.farthest < 0:
                start, size = stop, 2 * size
                continue
            start, centers = rows.open_in_order(start, stop, lam, cap, OPENED)
            size = ROWS_COMPARED
            rows.set_centers(np.vstack([rows.centers, centers]))
        self.n_moved = int(np.count_nonzero(self.labels != before))

    def seek_farthest(self, lam, seek):
        """Set whether ``assign`` looks for the row to open a cluster at, which must exceed lam."""
        self.limit = lam if seek else np.inf

    def assign(self):
        """Assign each row to its nearest center."""
        self.rows.assign_points(0, len(self.labels), self.limit)
        self.n_moved = self.rows.n_moved

    def open_farthest(self):
        """Open a cluster at the row that gains most by it, if it gains more than lam."""
        row = self.rows.farthest
        if row < 0:
            return
        new, before, distance = self.k, self.labels.copy(), self.assigned_distances()
        center, off_border = self.rows.opened_at(row, self.limit)
        self.rows.set_centers(np.vstack([self.centers, center]))
        # rows that are nearer to it join at once: its mean may be 0 after the sweep. For lam = 0,
        # where as many clusters as possible are to open, none joins
        if off_border and self.limit > 0.0:
            self.labels[:] = new
            nearer = self.assigned_distances() < distance
            self.labels[:] = np.where(nearer, new, before)
        self.labels[row] = new

    def moved(self):
        """Number of rows with another label than before the sweep."""
        return self.n_moved

    def collapse(self, lam, cap):
        """One collapsed sweep; ``move_centers`` ends it."""
        sums = self.present_sums(self.k)
        facts = sums.weights, sums.total, sums.count, sums.level, sums.size
        return MixedClusters(self.rows, *facts).collapse(lam, min(cap, len(self.labels) + 1))

    def move_centers(self):
        """Move centers to the best ones, drop empty clusters; returns the error with the prior."""
        self.sums = self._kept_sums()
        centers = self.sums.centers(self.measure)
        self.rows.set_centers(centers)
        # sum_i w_i D(x_i, m) = sum_i w_i D(x_i, mean) + sum_c s_c D(mean_c, m), m the overall mean
        p = len(self.measure.kind)
        errors = self._overall[0] - np.array([
            self.sums.weights[:, j] @ divergences(kind, centers[:, j], self.measure.place[j])
            for j, kind in enumerate(self.measure.kind)
        ]).reshape(p)  # fmt: skip
        of_codes = code_errors(self.measure, self.sums.level, centers[:, p:]).sum()
        return float(errors @ self.rows.factor + of_codes)

    def _kept_sums(self):
        """Sums of the clusters that have members; labels are renumbered, ``remap`` says how."""
        k = max(self.k, int(self.labels.max()) + 1)
        sums = self.present_sums(k)
        kept = sums.size > 0.0
        self.remap = np.where(kept, np.cumsum(kept) - 1, -1)
        if not kept.all():
            self.labels[:] = self.remap[self.labels]
            sums = sums.kept(kept)
            self._summed = self.labels.copy(), sums, self._summed[2][kept]
        return sums

    def drop_empty(self):
        """Drop clusters without members, and leave the others; returns whether there were any."""
        before = self.centers
        self.sums = self._kept_sums()
        dropped = len(self.sums.size) < len(before)
        if dropped:
            self.rows.set_centers(before[self.remap[: len(before)] >= 0])
        return dropped

    def errors(self):
        """Errors by column: of numbers, not divided by s_j^2, and of codes, with the prior."""
        return self.rows.column_errors(), self.errors_of_codes()

    def errors_of_codes(self):
        """Errors by column of codes, with the prior."""
        sums = self.present_sums(self.k)
        shares = self.centers[:, len(self.measure.kind) :]
        return code_errors(self.measure, sums.level, shares).sum(axis=0)

    def squared_error(self):
        """The error from the assigned centers, and the prior."""
        numbers, codes = self.errors()
        return float(numbers @ self.rows.factor + codes.sum())

    def assigned_distances(self):
        """Divergence of each row from its assigned center."""
        return self.rows.divergences(True)

    def merge(self, count):
        """Merge the cheapest pair ``count`` times; pairs (a, b), as numbered before, and costs."""
        sums = self.sums
        facts = sums.weights, sums.total, sums.count, sums.level, sums.size
        pairs, costs = MixedClusters(self.rows, *facts).merge(count)
        target = np.arange(self.k)
        for a, b in pairs:
            target[target == b] = a
        self.labels[:] = target[self.labels]
        self.move_centers()
        return pairs, costs


def divergences(kind, x, mu):
    """Divergences of numbers of one kind from mu, without the factor (see Measure.factor)."""
    if kind == NORMAL:
        return np.square(x - mu)
    if kind == POISSON:
        return np.maximum(xlogy(x, x / mu) - (x - mu), 0.0)
    return np.maximum((x - mu) / mu - np.log(x / mu), 0.0)
