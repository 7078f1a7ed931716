"""Columns whose values were recorded in steps, were filled in, or are one-sided; distinct rows."""

from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from smallvar._core.linear_algebra import eigh
from smallvar._core.validation import some_rows

# A column of "numbers" is one with continuous values: few rows have equal ones.
COLUMN_ROWS = 5000  # columns are judged by at most so many rows, evenly spaced
SAME_VALUE = 1e-5  # of the spread of a column: values that are nearer to each other are one value
# of the largest value of the inner nine tenths: values that differ by less differ by rounding
LAST_BITS = 2.0**-48
# a column is of numbers if, of QUICK_ROWS rows, at most EQUAL_AT_MOST have the value of another row
QUICK_ROWS, EQUAL_AT_MOST = 512, 8
DISTINCT = 0.5  # of the rows: a column with more distinct values is one of numbers
RARE = 0.05  # of the rows: the rows with the rarest values, which may be off the grid of the others
ON_GRID = 0.05  # of a step: how far from the grid a value may be
FREQUENT = 0.2  # of the rows: a value of numbers that so many share is apart, see ``recorded``
# of the rows: a value near the mean or median was filled in only if a share in this range has it,
FILLED = (0.03, 0.2)
# and, in a column of numbers, over FILLED_RATIO times as many rows as any other value
FILLED_RATIO = 3.0
RUN = 3  # more equal rows than this are needed for a value that many rows share
CENTRAL = 0.1  # of the standard deviation: largest distance of such a value from mean or median
# of the standard deviation: a value that is no farther from the mean equals it
MEAN_TOLERANCE = 1e-4
# rows for the spread of columns; next rows that each is compared to
SPREAD_ROWS, NEIGHBORS = 1000, 3
BLOCK_ROWS, CACHED = 4096, 256  # rows at a time; so few that they stay in the cache
COMPARED_NUMBERS = 1 << 17  # numbers of rows that are compared at once
FEW_VALUES = 10  # a column with fewer distinct values is few-valued
SKEWED_COLUMN = 1.0  # absolute skewness beyond which a column is one-sided
# Powers are searched for which 20 times the largest value becomes no more than exp(MOST_EXPONENT),
# or one over it: squares of transforms of new rows are then still within float64.
MOST_EXPONENT = 336.9
NARROW = 1e-3  # width of the interval from which a parabola leads to the power
NEAR_ZERO = 1e-100
GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0  # the part of an interval that a golden section leaves
# Columns are nearly collinear if the largest eigenvalue of their correlations is CONDITION times
# the smallest one. Of at most MOST_COLLINEAR columns; errors are at most this share of the variance
CONDITION, MOST_COLLINEAR, MOST_ERROR, LEAST_EIGENVALUE = 300.0, 400, 0.01, 1e-12


@dataclass
class Values:
    """The distinct values of a column, ascending, and the weight of the rows that have each."""

    value: NDArray[np.float64]
    weights: NDArray[np.float64]
    n_rows: int

    def without(self, drop):
        """The Values without those at the indices ``drop``; n_rows shrinks by their weight."""
        rest = self.n_rows * (1.0 - self.weights[drop].sum() / self.weights.sum())
        kept = np.ones(len(self.value), dtype=bool)
        kept[drop] = False
        return Values(self.value[kept], self.weights[kept], round(rest))

    @property
    def continuous(self):
        """Whether the column is one of numbers: distinct values are more than DISTINCT of rows."""
        return len(self.value) > DISTINCT * self.n_rows

    @property
    def step(self):
        """The step in which the column was recorded, 0 for numbers."""
        if len(self.value) < 2:
            return 0.0
        top = self.weights.argmax()
        if self.weights[top] >= FREQUENT * self.weights.sum():
            rest = self.without(top)
            if rest.continuous and rest.n_rows >= RARE * self.n_rows:
                return float(np.median(np.abs(rest.value - self.value[top])))
        return 0.0 if self.continuous else self._grid[1]

    @cached_property
    def _grid(self):
        """Origin and step of a grid, by the values without the rarest.

        That is the most frequent value, and the distance of a value from the nearest other one, at
        the median of the rows.
        """
        order = np.argsort(self.weights, kind="stable")
        rare = order[np.cumsum(self.weights[order]) <= RARE * self.weights.sum()]
        kept = self.without(rare) if len(rare) < len(self.value) - 1 else self
        gaps = kept.value[1:] - kept.value[:-1]
        nearest = np.minimum(np.append(np.inf, gaps), np.append(gaps, np.inf))
        order = np.argsort(nearest, kind="stable")
        total = np.cumsum(kept.weights[order])
        step = nearest[order[np.searchsorted(total, 0.5 * total[-1])]]
        return kept.value[kept.weights.argmax()], step

    def near_grid(self, value):
        """Whether a value, or each of several, is on the grid of these Values."""
        origin, step = self._grid
        steps = (value - origin) / step
        return np.abs(steps - np.round(steps)) < ON_GRID

    @property
    def on_grid(self):
        """Whether almost all rows are on a grid."""
        if len(self.value) < 2:
            return False
        on_grid = self.weights[self.near_grid(self.value)].sum()
        return on_grid >= (1.0 - RARE) * self.weights.sum()


def distinct_values(column, weight, same=SAME_VALUE):
    """Return the Values of a column; values that differ by rounding or jitter are one.

    That is by less than ``same`` times the spread. A run of values, each so near to the next one,
    that is longer than that as a whole is cut into pieces that are not.
    """
    if (weight == weight[0]).all():  # then the order of equal values does not matter
        v, w = np.sort(column), weight
    else:
        order = np.argsort(column, kind="stable")
        v, w = column[order], weight[order]
    spread, size = _inner_spread(v)
    near = max(same * spread, LAST_BITS * size)
    bounds = np.flatnonzero(np.concatenate(([True], v[1:] - v[:-1] > near, [True])))
    cuts = []
    for i in np.flatnonzero(v[bounds[1:] - 1] - v[bounds[:-1]] > near):
        start, stop = bounds[i : i + 2]
        while (start := start + np.searchsorted(v[start:stop], v[start] + near, "right")) < stop:
            cuts.append(start)
    if cuts:
        bounds = np.union1d(bounds, cuts)
    weights = np.add.reduceat(w, bounds[:-1])
    # the middle of each run of values
    middle = v[(bounds[:-1] + bounds[1:] - 1) // 2]
    return Values(middle[weights > 0.0], weights[weights > 0.0], len(v))


def _inner_spread(ascending):
    """The range of the middle nine tenths of sorted rows, and their largest size; by column.

    Where that range is zero, that of all rows.
    """
    n = len(ascending)
    low, high = ascending[n // 20], ascending[n - 1 - n // 20]
    spread = np.where(high > low, high - low, ascending[-1] - ascending[0])
    return spread, np.maximum(np.abs(low), np.abs(high))


def spaced(rows):
    """Return at most COLUMN_ROWS entries of an array, evenly spaced."""
    return rows[:: -(-len(rows) // COLUMN_ROWS)]


def evenly_spaced_rows(X, weight):
    """At most COLUMN_ROWS rows, evenly spaced, and their weights, a sample for the columns."""
    X = np.asarray(spaced(X), dtype=np.float64)
    return X, np.ones(len(X)) if weight is None else spaced(weight)


def _with_equal_ones(X, weight, same=SAME_VALUE):
    """The Values of columns, by their indices, in which some rows have equal ones.

    The others are of numbers: if no more than RUN rows have one value, and values of at most
    EQUAL_AT_MOST rows of QUICK_ROWS are equal, or of few rows less than half, they can neither be
    recorded in steps nor filled in.
    """
    n, d = X.shape
    some, columns = X[:: n // QUICK_ROWS] if n > 2 * QUICK_ROWS else X, range(d)
    # a single one of few rows may have much of the weight
    if len(some) < n or (n * FREQUENT > RUN and (weight == weight[0]).all()):
        v = np.sort(some, axis=0)
        spread, size = _inner_spread(v)
        equal = np.diff(v, axis=0) <= np.maximum(same * spread, LAST_BITS * size)
        runs = (equal[:-2] & equal[1:-1] & equal[2:]).any(axis=0)
        most = EQUAL_AT_MOST if len(some) < n else (1.0 - DISTINCT) * n - 1
        columns = np.flatnonzero(runs | (equal.sum(axis=0) > most)).tolist()
    return {j: distinct_values(X[:, j], weight, same) for j in columns}


def count_distinct(X):
    """Return the number of distinct rows, by a hash of 64 bits for each."""
    odd = np.random.default_rng(0).integers(2**63, size=X.shape[1], dtype=np.uint64) * 2 + 1
    hashes = []
    for start in range(0, X.shape[0], BLOCK_ROWS):
        rows = some_rows(X, slice(start, start + BLOCK_ROWS))
        rows = rows.toarray() if issparse(rows) else rows
        # 0.0 in place of -0.0
        bits = np.add(rows, 0.0, dtype=np.float64, order="C").view(np.uint64)
        bits = (bits ^ (bits >> np.uint64(29))) * odd
        hashes.append((bits ^ (bits >> np.uint64(32))).sum(axis=1))
    # with counts np.unique sorts, without them it takes 20 times as long for integers that differ
    return len(np.unique(np.concatenate(hashes), return_counts=True)[0])


def count_different(X, same=SAME_VALUE, common=False):
    """Return the number of rows that differ by more than rounding or jitter in some column.

    That is by ``same`` of the spread of the column or, if ``common``, of the widest one. Equal rows
    have nearly equal projections to a line. So rows are sorted by the projection, and each is
    compared with the NEIGHBORS next ones.
    """
    n, d = X.shape
    sampled = np.asarray(X[:: -(-n // SPREAD_ROWS)], dtype=np.float64)
    spread, size = _inner_spread(np.sort(sampled, axis=0))
    for j in np.flatnonzero(spread == 0.0):
        spread[j] = float(X[:, j].max()) - float(X[:, j].min()) or 1.0
    same = np.maximum(same * (spread.max() if common else spread), LAST_BITS * size)
    same = np.maximum(same, np.finfo(float).tiny)  # not zero by underflow
    # numbers from 1/2 to 1 without an order
    direction = (0.75 + 0.25 * np.sin(np.square(np.arange(1.0, d + 1.0)))) / same
    blocks = (X[start : start + CACHED] for start in range(0, n, CACHED))
    line = [(np.asarray(rows, dtype=np.float64) - sampled[0]) @ direction for rows in blocks]
    line = np.concatenate(line)
    order, repeated = np.argsort(line, kind="stable"), np.zeros(n, dtype=bool)
    size = max(1, COMPARED_NUMBERS // d)
    for step in range(1, NEIGHBORS + 1):
        near = np.flatnonzero(line[order[step:]] - line[order[:-step]] <= np.sqrt(d))
        for start in range(0, len(near), size):
            i = near[start : start + size]
            difference = np.abs(X[order[i + step]] - X[order[i]])
            repeated[i + step] |= (difference <= same).all(axis=1)
    return n - int(repeated.sum())


@dataclass
class Recorded:
    """How the values of each column were recorded.

    ``variance`` is that within a step, 0 for columns of numbers. ``error`` is that which no other
    columns determine, where they determine nearly all, else 0. ``in_steps``: almost all values are
    on a grid, or are few for the number of rows, or one. ``repeated``: they are few for the number
    of rows, at most its root, or one. ``few``: there are fewer than FEW_VALUES. ``n_different`` is
    the number of rows that differ, see ``count_different``.
    """

    variance: NDArray[np.float64]
    error: NDArray[np.float64]
    in_steps: NDArray[np.bool_]
    repeated: NDArray[np.bool_]
    few: NDArray[np.bool_]
    n_different: int


def recorded(X, weight):
    """Return how the columns were recorded.

    Values recorded in steps of h tell nothing finer: a density of them must not be narrower than
    one whose variance is h**2 / 12, that within a step. Cutting a column of m equally frequent
    values into clusters then makes rows likelier by log(m), as much as the labels cost. The step
    is the distance of a value from the nearest other one, at the median of the rows, so that a few
    values off the grid do not matter. In a column of numbers of which many rows have the same one
    (most often zero), the step is the median distance of the others from it. 0: no steps.

    Of columns of two values of which at most one is high in each row (a category in one-hot
    coding), m levels in all, the variance is that by which a cut into m equally frequent levels
    makes rows likelier by log(m).

    Groups that are tight beside the distances between them look like a few values with jitter. But
    then most rows are near to another one in all columns, in units of the widest one: values then
    differ where they are not equal but for rounding.
    """
    n_different, whole = count_different(X), X
    X, weight = evenly_spaced_rows(X, weight)
    n, d = X.shape
    values = _with_equal_ones(X, weight)
    if _of_tight_groups(whole, X, weight, values):
        n_different = count_different(whole, 0.0)
        values = _with_equal_ones(X, weight, 0.0)
    step, count, in_steps = np.zeros(d), np.full(d, n), np.zeros(d, dtype=bool)
    for j, found in values.items():
        step[j], count[j] = found.step, len(found.value)
        in_steps[j] = not found.continuous and found.on_grid
    repeated = count <= np.sqrt(n)
    variance = step**2 / 12.0
    if (count == 2).sum() > 1:
        for group, m in _one_hot(X):
            variance[group] = step[group] ** 2 / (m * (m ** (2.0 / (m - 1)) - 1.0))
    few = (count < FEW_VALUES) & (count <= DISTINCT * n)
    return Recorded(variance, _error(X, weight), repeated | in_steps, repeated, few, n_different)


def columns_of_tight_groups(X):
    """Columns that look like few values with jitter but are of tight groups, see ``recorded``.

    Rows with missing values (NaN) are left out.
    """
    X = X[~np.isnan(X).any(axis=1)]
    if not X.size:
        return []
    rows, weight = evenly_spaced_rows(X, None)
    return _of_tight_groups(X, rows, weight, _with_equal_ones(rows, weight))


def _of_tight_groups(X, rows, weight, values):
    """Those with few of these Values that are numbers but for SAME_VALUE, if rows are in groups.

    Most rows are then near to another one in all columns, by the spread of the widest.
    """
    few = (j for j, v in values.items() if not v.continuous)
    found = [j for j in few if distinct_values(rows[:, j], weight, 0.0).continuous]
    return found if found and count_different(X, common=True) <= DISTINCT * len(X) else []


def _error(X, weight):
    """The variance of what a column has that others do not determine, of columns nearly collinear.

    Measures of one thing (its lengths, area, roundness) follow from each other but for an error of
    each, 1 - R^2 of its variance. Clusters that cut such columns finer than that would slice thin
    curved sheets of rows. Values far away would make any columns collinear: they count as the ends
    of the inner nine tenths. 0 unless the correlations have a CONDITION above the bound.
    """
    n, d = X.shape
    error = np.zeros(d)
    if not 2 < d < min(MOST_COLLINEAR, n):
        return error
    if (weight == weight[0]).all():  # the same ends, in a quarter of the time
        low, high = np.quantile(X, (0.05, 0.95), axis=0, method="inverted_cdf")
    else:
        order = np.argsort(X, axis=0, kind="stable")
        below = np.cumsum(weight[order], axis=0) / weight.sum()
        low, high = (
            X[order[(below < share).sum(axis=0).clip(max=n - 1), np.arange(d)], np.arange(d)]
            for share in (0.05, 0.95)
        )
    X = np.clip(X, low, high) - low
    X /= np.where(high > low, high - low, 1.0)
    used = np.flatnonzero(high > low)
    C = np.cov(X[:, used].T, aweights=weight, ddof=0) if len(used) > 2 else np.eye(1)
    spread = np.sqrt(C.diagonal())
    e, U = eigh(C / spread / spread[:, None])
    if e[-1] > CONDITION * e[0]:
        # 1 - R^2 of a column is one over the diagonal of the inverse of the correlations
        alone = 1.0 / (np.square(U) @ (1.0 / np.maximum(e, LEAST_EIGENVALUE)))
        error[used] = np.minimum(MOST_ERROR, alone) * (spread * (high - low)[used]) ** 2
    return error


def _one_hot(X):
    """Yield groups of adjacent columns that code a category, and the number of its levels.

    These have two values each, and at most one of them is high in each row. If none is high in
    some row, that is one more level.
    """
    low, high = X.min(axis=0), X.max(axis=0)
    near = SAME_VALUE * (high - low)
    binary = (high > low) & ((X - low <= near) | (high - X <= near)).all(axis=0)
    is_high = X - low > high - X
    groups, covered = [], None
    for j in np.flatnonzero(binary).tolist():
        if not groups or groups[-1][-1] < j - 1 or (covered & is_high[:, j]).any():
            groups.append([])
            covered = np.zeros(len(X), dtype=bool)
        groups[-1].append(j)
        covered |= is_high[:, j]
    for group in groups:
        if len(group) > 1:
            yield group, len(group) + (not is_high[:, group].any(axis=1).all())


def filled_values(X, weight):
    """Return the values that seem to fill gaps: by column, a mean or median and a tolerance.

    In a column of numbers it is a value near the mean or median that many rows share, far more than
    any other value. In a column recorded in steps it is the mean, off the grid of the other values.
    """
    rows, weight_of_rows = evenly_spaced_rows(X, weight)
    filled = {}
    for j, values in _with_equal_ones(rows, weight_of_rows).items():
        share = values.weights / values.weights.sum()
        frequent = (share >= FILLED[0]) & (share <= FILLED[1])
        if not frequent.any():
            continue
        unit = values.value[-1] - values.value[0]
        deviation = unit * ((rows[:, j] - values.value[0]) / unit).std()
        center = np.average(rows[:, j], weights=weight_of_rows)
        median = values.value[np.searchsorted(np.cumsum(share), 0.5)]
        distance = np.minimum(abs(values.value - center), abs(values.value - median))
        central = frequent & (distance <= CENTRAL * deviation)
        if not central.any():
            continue
        i = np.where(central, share, 0.0).argmax()
        value, rest = values.value[i], values.without(i)
        if rest.continuous:
            found = share[i] > FILLED_RATIO * np.delete(share, i).max()
        else:
            mean = np.average(np.asarray(X[:, j], dtype=np.float64), weights=weight)
            found = abs(value - mean) <= MEAN_TOLERANCE * deviation
            found = found and rest.on_grid and not rest.near_grid(value)
        if found:
            filled[j] = value, SAME_VALUE * deviation
    return filled


def rows_filled(X, found):
    """Return the mask of rows with a value in ``found``, as from ``filled_values``."""
    out = np.zeros(X.shape[0], dtype=bool)
    for j, (value, tolerance) in found.items():
        out |= np.abs(np.asarray(X[:, j], dtype=np.float64) - value) <= tolerance
    return out


class PowerTransform:
    """Yeo-Johnson transforms of the one-sided columns of X, which keep their standard deviation.

    ``columns`` are the indices of these columns, ``parts`` origin, unit, power and spread of each.
    The origin is the median or the least value of the column, whichever is likelier. They are
    fitted when they are first asked for.
    """

    def __init__(self, X, weight):
        X, weight = evenly_spaced_rows(X, weight)
        low, size = X.min(axis=0), np.ptp(X, axis=0)
        scaled = (X - low) / np.where(size > 0.0, size, 1.0)  # cubes stay within float64
        deviation = scaled.std(axis=0)
        unit, scaled = size * deviation, scaled - scaled.mean(axis=0)
        third = np.einsum("ij,ij,ij->j", scaled, scaled, scaled) / len(X)
        # the unit is zero where rows are equal, or differ by subnormal numbers only
        skewed = (unit > 0.0) & (np.abs(third) >= SKEWED_COLUMN * deviation**3)
        self.columns = [
            j
            for j in np.flatnonzero(skewed).tolist()
            if len(distinct_values(X[:, j], weight).value) >= FEW_VALUES
        ]
        self._one_sided = X[:, self.columns], low[self.columns], unit[self.columns]

    @cached_property
    def parts(self):
        """Origin, unit, power and spread of each column."""
        fitted, (x, low, unit) = [], self._one_sided
        for origin in (np.median(x, axis=0), low):
            likelihood, power, spread = fit_powers((x - origin) / unit)
            fitted.append([likelihood, origin, unit, power, spread])
        median, least = np.array(fitted)
        return np.where(median[0] > least[0], median, least)[1:].T.tolist()

    def __getstate__(self):
        """What a copy has: the transforms, and not the rows that they are fitted to."""
        return {"columns": self.columns, "parts": self.parts}

    def of(self, kept):
        """The transforms of rows in these columns only."""
        new, parts = copy(self), dict(zip(self.columns, self.parts, strict=True))
        new.columns = [i for i, j in enumerate(kept) if j in parts]
        new.parts = [parts[j] for j in kept if j in parts]
        return new

    def __call__(self, X):
        """Return the transformed rows, and for each row the logarithm of the Jacobian."""
        out = np.array(X, dtype=np.float64)
        log_slope = np.zeros(len(out))
        for j, (origin, unit, power, spread) in zip(self.columns, self.parts, strict=True):
            s = _signed_log((out[:, j] - origin) / unit)
            out[:, j] = unit / spread * _transformed(s, power)
            log_slope += (power - 1.0) * s - np.log(spread)
        return out, log_slope


def fit_powers(z):
    """The likeliest power of each column, by the Gaussian likelihood of its transform.

    Returns, for each column, the log-likelihood, the power, and the standard deviation of the
    transformed z. The likelihood is log-concave in the power (Marchand et al. 2022, SecureFedYJ: a
    safe feature Gaussianization protocol for federated learning), so that golden sections lead to
    its maximum.
    """
    s = _signed_log(z)
    total = s.sum(axis=0)

    def cost(power):
        y = _transformed(s, power)
        y -= y.mean(axis=0)
        variance = np.einsum("ij,ij->j", y, y) / len(y)
        return 0.5 * len(y) * np.log(variance) - (power - 1.0) * total

    b = MOST_EXPONENT / np.log1p(20.0 * np.abs(z).max(axis=0))
    a = np.where((z < 0.0).any(axis=0), 2.0, 0.0) - b
    c, d = b - GOLDEN * (b - a), a + GOLDEN * (b - a)
    at_c, at_d = cost(c), cost(d)
    while (b - a).max(initial=0.0) > NARROW:
        left = at_c < at_d
        a, b = np.where(left, (a, d), (c, b))
        new = np.where(left, b - GOLDEN * (b - a), a + GOLDEN * (b - a))
        at_new = cost(new)
        c, d = np.where(left, (new, c), (d, new))
        at_c, at_d = np.where(left, (at_new, at_c), (at_d, at_new))
    power = 0.5 * (a + b)
    low, middle, high = (cost(power + move) for move in (-NARROW, 0.0, NARROW))
    bend = np.maximum(high - 2.0 * middle + low, np.finfo(float).eps)  # 0 by rounding at the ends
    power -= NARROW * np.clip(0.5 * (high - low) / bend, -1.0, 1.0)
    return -cost(power), power, _transformed(s, power).std(axis=0)


def _signed_log(z):
    """log(1 + z), and -log(1 - z) for z < 0; not quite zero, as transforms divide by multiples."""
    s = np.copysign(np.log1p(np.abs(z)), z)
    s[np.abs(s) < NEAR_ZERO] = NEAR_ZERO
    return s


def _transformed(s, power):
    """The transform, with s that of ``_signed_log``: the derivative is exp((power - 1) s).

    It is s (exp(x) - 1) / x with x = power s for s > 0, and x = (power - 2) s for s < 0.
    """
    x = np.abs(s) + (power - 1.0) * s
    return s * (np.expm1(x) / x)
