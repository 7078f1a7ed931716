"""Columns whose values were recorded in steps, were filled in, or are one-sided; distinct rows."""

from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from smallvar._core.lapack import eigh
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
SORTED_NUMBERS = 1 << 20  # numbers sorted at once
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
    grid: tuple[float, float] | None = None  # kept by _grid

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


def distinct_values(column, weight, same=SAME_VALUE):
    """Return the Values of a column; values that differ by rounding or jitter are one.

    That is by less than ``same`` times the spread. A run of values, each so near to the next one,
    that is longer than that as a whole is cut into pieces that are not.
    """
    n = len(column)
    if (weight == weight[0]).all():  # then the order of equal values does not matter
        v, w = np.sort(column), weight
    else:
        order = np.argsort(column, kind="stable")
        v, w = column[order], weight[order]
    near = max(same * spread_of(v), LAST_BITS * max(abs(v[n // 20]), abs(v[n - 1 - n // 20])))
    bounds = np.flatnonzero(np.concatenate(([True], v[1:] - v[:-1] > near, [True])))
    long = np.flatnonzero(v[bounds[1:] - 1] - v[bounds[:-1]] > near)
    if len(long):
        cuts = [_cut(v, bounds[i], bounds[i + 1], near) for i in long]
        bounds = np.union1d(bounds, np.concatenate(cuts).astype(np.intp))
    weights = np.add.reduceat(w, bounds[:-1])
    # the middle of each run of values
    middle = v[(bounds[:-1] + bounds[1:] - 1) // 2]
    return Values(middle[weights > 0.0], weights[weights > 0.0], n)


def spread_of(ascending):
    """The range of the middle nine tenths of sorted rows, of all if that is zero; by column."""
    n = len(ascending)
    spread = ascending[n - 1 - n // 20] - ascending[n // 20]
    return np.where(spread > 0.0, spread, ascending[-1] - ascending[0])


def _cut(v, start, stop, near):
    """Where a run of ascending values is cut so that no piece is longer than ``near``."""
    cuts = []
    while (start := start + np.searchsorted(v[start:stop], v[start] + near, "right")) < stop:
        cuts.append(start)
    return cuts


def spaced(rows):
    """Return at most COLUMN_ROWS entries of an array, evenly spaced."""
    return rows[:: -(-len(rows) // COLUMN_ROWS)]


def evenly_spaced_rows(X, weight):
    """At most COLUMN_ROWS rows, evenly spaced, and their weights, a sample for the columns."""
    X = np.asarray(X[:: -(-X.shape[0] // COLUMN_ROWS)], dtype=np.float64)
    return X, np.ones(len(X)) if weight is None else spaced(weight)


def not_numbers(X, weight, same=SAME_VALUE):
    """Return the indices of all columns but those of numbers: some rows have equal values.

    With few rows of equal weight, these are columns in which more than three rows have one value,
    or many pairs of rows have equal ones: with fewer, values can neither be recorded in steps nor
    filled in.
    """
    n, d = X.shape
    if n > 2 * QUICK_ROWS:
        X = X[:: n // QUICK_ROWS]
        n, least = len(X), len(X) - EQUAL_AT_MOST
    elif n * FREQUENT > RUN and (weight == weight[0]).all():
        least = DISTINCT * n + 1
    else:
        return np.arange(d)
    # ``least``: distinct values from which on a column is one of numbers
    few, size, equal_in = n == len(weight), max(1, SORTED_NUMBERS // n), np.ones(d, dtype=bool)
    for start in range(0, d, size):
        v = np.sort(X[:, start : start + size], axis=0)
        differ = np.diff(v, axis=0) > same * spread_of(v)
        equal = 1 + differ.sum(axis=0) < least
        if few:  # a run of more than RUN equal values
            equal |= ~(differ[:-2] | differ[1:-1] | differ[2:]).all(axis=0)
        equal_in[start : start + size] = equal
    return np.flatnonzero(equal_in)


def count_distinct(X):
    """Return the number of distinct rows, by a hash of 64 bits for each."""
    odd = np.random.default_rng(0).integers(2**63, size=X.shape[1], dtype=np.uint64) * 2 + 1
    hashes = np.empty(X.shape[0], dtype=np.uint64)
    for start in range(0, X.shape[0], BLOCK_ROWS):
        rows = some_rows(X, slice(start, start + BLOCK_ROWS))
        rows = rows.toarray() if issparse(rows) else rows
        rows = np.ascontiguousarray(rows, dtype=np.float64) + 0.0  # no -0.0
        bits = rows.view(np.uint64)
        bits = (bits ^ (bits >> np.uint64(29))) * odd
        hashes[start : start + BLOCK_ROWS] = (bits ^ (bits >> np.uint64(32))).sum(axis=1)
    # with counts np.unique sorts, without them it takes 20 times as long for integers that differ
    return len(np.unique(hashes, return_counts=True)[0])


def count_different(X, same=SAME_VALUE, common=False):
    """Return the number of rows that differ by more than rounding or jitter in some column.

    That is by ``same`` of the spread of the column or, if ``common``, of the widest one. Equal rows
    have nearly equal projections to a line. So rows are sorted by the projection, and each is
    compared with the NEIGHBORS next ones.
    """
    n, d = X.shape
    sampled = np.asarray(X[:: -(-n // SPREAD_ROWS)], dtype=np.float64)
    ascending = np.sort(sampled, axis=0)
    low, high = _quantile(ascending, 0.05), _quantile(ascending, 0.95)
    spread = np.where(high > low, high - low, ascending[-1] - ascending[0])
    for j in np.flatnonzero(spread == 0.0):
        spread[j] = float(X[:, j].max()) - float(X[:, j].min()) or 1.0
    spread = np.full(d, spread.max()) if common else spread
    same = np.maximum(same * spread, LAST_BITS * np.maximum(np.abs(low), np.abs(high)))
    same = np.maximum(same, np.finfo(float).tiny)  # not zero by underflow
    direction = _uniform(d) / same
    shift, line = sampled[0], np.empty(n)
    for start in range(0, n, CACHED):
        rows = slice(start, start + CACHED)
        line[rows] = (np.asarray(X[rows], dtype=np.float64) - shift) @ direction
    order = np.argsort(line, kind="stable")
    repeated, some_rows = (
        np.zeros(n, dtype=bool),
        max(1, min(BLOCK_ROWS, SORTED_NUMBERS // (8 * d))),
    )
    for step in range(1, NEIGHBORS + 1):
        near = np.flatnonzero(line[order[step:]] - line[order[:-step]] <= np.sqrt(d))
        for start in range(0, len(near), some_rows):
            i = near[start : start + some_rows]
            first, second = X[order[i]], X[order[i + step]]
            repeated[i + step] |= (np.abs(second - first) <= same).all(axis=1)
    return n - int(repeated.sum())


@lru_cache(maxsize=16)
def _uniform(d):
    """Random numbers, the same at each call, for a generator takes longer than small fits do."""
    return np.random.default_rng(0).uniform(0.5, 1.0, size=d)


def _quantile(ascending, share):
    """The quantiles of sorted columns, interpolated as numpy does, but faster."""
    place = share * (len(ascending) - 1)
    i = int(place)
    between, low, high = place - i, ascending[i], ascending[min(i + 1, len(ascending) - 1)]
    return high - (high - low) * (1.0 - between) if between >= 0.5 else low + (high - low) * between


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
    values = _with_equal_ones(X, weight, SAME_VALUE)
    if _jittered(X, weight, values) and _in_groups(whole):
        n_different = count_different(whole, 0.0)
        values = _with_equal_ones(X, weight, 0.0)
    step, count, in_steps = np.zeros(d), np.full(d, n), np.zeros(d, dtype=bool)
    for j, found in values.items():
        step[j], count[j] = step_of(found), len(found.value)
        in_steps[j] = not found.continuous and _on_grid_all(found)
    repeated = count <= np.sqrt(n)
    variance = step**2 / 12.0
    if (count == 2).sum() > 1:
        for group, m in _one_hot(X):
            variance[group] = step[group] ** 2 / (m * (m ** (2.0 / (m - 1)) - 1.0))
    few = (count < FEW_VALUES) & (count <= DISTINCT * n)
    error = _error(X, weight)
    return Recorded(variance, error, repeated | in_steps, repeated, few, n_different)


def columns_of_tight_groups(X):
    """Columns that look like few values with jitter but are of tight groups, see ``recorded``.

    Rows with missing values (NaN) are left out.
    """
    X = X[~np.isnan(X).any(axis=1)]
    if not X.size:
        return []
    rows, weight = evenly_spaced_rows(X, None)
    found = _jittered(rows, weight, _with_equal_ones(rows, weight, SAME_VALUE))
    return found if found and _in_groups(X) else []


def _with_equal_ones(X, weight, same):
    """The Values of columns, by their indices, in which some rows have equal ones."""
    return {
        j: distinct_values(X[:, j], weight, same) for j in not_numbers(X, weight, same).tolist()
    }


def _jittered(X, weight, values):
    """The columns with few of these Values that are numbers but for SAME_VALUE."""
    few = (j for j, v in values.items() if not v.continuous)
    return [j for j in few if distinct_values(X[:, j], weight, 0.0).continuous]


def _in_groups(X):
    """Whether most rows are near to another one in all columns, by the spread of the widest."""
    return count_different(X, common=True) <= DISTINCT * len(X)


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
    if (weight == weight[0]).all():  # the same ends, in a third of the time
        ends = np.searchsorted(np.arange(1.0, n + 1.0) / n, (0.05, 0.95))
        low, high = np.ascontiguousarray(np.partition(X.T, ends, axis=1)[:, ends].T)
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


def step_of(values):
    """The step in which a column was recorded, 0 for numbers."""
    if len(values.value) < 2:
        return 0.0
    top = values.weights.argmax()
    rest = values.without(top)
    often = values.weights[top] >= FREQUENT * values.weights.sum()
    if often and rest.continuous and rest.n_rows >= RARE * values.n_rows:
        return float(np.median(np.abs(rest.value - values.value[top])))
    return 0.0 if values.continuous else _grid(values)[1]


def _grid(values):
    """Origin (the most frequent value) and step (median gap without the rarest), computed once."""
    if values.grid is None:
        by_weight, kept = np.argsort(values.weights, kind="stable"), values
        rare = by_weight[np.cumsum(values.weights[by_weight]) <= RARE * values.weights.sum()]
        if len(rare) < len(values.value) - 1:
            kept = values.without(rare)
        values.grid = kept.value[kept.weights.argmax()], _median_gap(kept)
    return values.grid


def _on_grid_all(values):
    """Whether almost all rows are on a grid."""
    if len(values.value) < 2:
        return False
    on_grid = _on_grid(values.value, *_grid(values))
    return values.weights[on_grid].sum() >= (1.0 - RARE) * values.weights.sum()


def _median_gap(values):
    """The distance of a value from the nearest other one, at the median of the rows."""
    gaps = values.value[1:] - values.value[:-1]
    nearest = np.minimum(np.concatenate((gaps[:1], gaps)), np.concatenate((gaps, gaps[-1:])))
    order = np.argsort(nearest, kind="stable")
    total = np.cumsum(values.weights[order])
    return nearest[order[np.searchsorted(total, 0.5 * total[-1])]]


def _on_grid(value, origin, step):
    """Mask of the values on a grid; ``origin`` is one of its points."""
    steps = (value - origin) / step
    return np.abs(steps - np.round(steps)) < ON_GRID


def _one_hot(X):
    """Yield groups of adjacent columns that code a category, and the number of its levels.

    These have two values each, and at most one of them is high in each row. If none is high in
    some row, that is one more level.
    """
    low, high = X.min(axis=0), X.max(axis=0)
    near = SAME_VALUE * (high - low)
    binary = (high > low) & ((X - low <= near) | (high - X <= near)).all(axis=0)
    is_high = X - low > high - X
    group, covered = [], np.zeros(len(X), dtype=bool)
    for j in range(X.shape[1] + 1):
        ends = j == X.shape[1] or not binary[j] or (covered & is_high[:, j]).any()
        if ends or covered.all():
            if len(group) > 1:
                yield group, len(group) + (not covered.all())
            group, covered = [], np.zeros(len(X), dtype=bool)
        if j < X.shape[1] and binary[j]:
            group.append(j)
            covered |= is_high[:, j]


def filled_values(X, weight):
    """Return the values that seem to fill gaps: by column, a mean or median and a tolerance.

    In a column of numbers it is a value near the mean or median that many rows share, far more than
    any other value. In a column recorded in steps it is the mean, off the grid of the other values.
    """
    rows, weight_of_rows = evenly_spaced_rows(X, weight)
    filled = {}
    for j in not_numbers(rows, weight_of_rows):
        values = distinct_values(rows[:, j], weight_of_rows)
        if len(values.value) < 3:  # one filled in, and two others
            continue
        share = values.weights / values.weights.sum()
        frequent = (share >= FILLED[0]) & (share <= FILLED[1])
        if not frequent.any():
            continue
        total, unit = np.cumsum(share), values.value[-1] - values.value[0]
        deviation = unit * ((rows[:, j] - values.value[0]) / unit).std()
        center = np.average(rows[:, j], weights=weight_of_rows)
        median = values.value[np.searchsorted(total, 0.5)]
        distance = np.minimum(abs(values.value - center), abs(values.value - median))
        central = frequent & (distance <= CENTRAL * deviation)
        if not central.any():
            continue
        i = np.where(central, share, 0.0).argmax()
        rest = values.without(i)
        if rest.continuous:
            if share[i] > FILLED_RATIO * np.delete(share, i).max():
                filled[j] = values.value[i], SAME_VALUE * deviation
        elif _on_grid_all(rest) and not _on_grid(values.value[i], *_grid(rest)):
            mean = np.average(np.asarray(X[:, j], dtype=np.float64), weights=weight)
            if abs(values.value[i] - mean) <= MEAN_TOLERANCE * deviation:
                filled[j] = values.value[i], SAME_VALUE * deviation
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
        self.columns, self._one_sided, step = [], [], max(1, SORTED_NUMBERS // len(X))
        for start in range(0, X.shape[1], step):
            part = X[:, start : start + step]
            low, size = part.min(axis=0), np.ptp(part, axis=0)
            scaled = (part - low) / np.where(size > 0.0, size, 1.0)  # cubes stay within float64
            deviation = scaled.std(axis=0)
            unit, centered = size * deviation, scaled - scaled.mean(axis=0)
            third = np.einsum("ij,ij,ij->j", centered, centered, centered) / len(X)
            # the unit is zero where rows are equal, or differ by subnormal numbers only
            skewed = (unit > 0.0) & (np.abs(third) >= SKEWED_COLUMN * deviation**3)
            one_sided = [
                j
                for j in np.flatnonzero(skewed).tolist()
                if len(distinct_values(part[:, j], weight).value) >= FEW_VALUES
            ]
            if one_sided:
                self.columns += [start + j for j in one_sided]
                self._one_sided.append((part[:, one_sided], low[one_sided], unit[one_sided]))

    @cached_property
    def parts(self):
        """Origin, unit, power and spread of each column."""
        parts, self._one_sided = self._fitted(), []  # rows that are no longer needed
        return parts

    def _fitted(self):
        parts = []
        for x, low, unit in self._one_sided:
            fitted = []
            for origin in (np.median(x, axis=0), low):
                likelihood, power, spread = fit_powers((x - origin) / unit)
                fitted.append([likelihood, origin, unit, power, spread])
            median, least = np.array(fitted)
            parts += np.where(median[0] > least[0], median, least)[1:].T.tolist()
        return parts

    def __getstate__(self):
        """What a copy has: the transforms, and not the rows that they are fitted to.

        To make a copy does not change the original, where ``parts`` may not be there yet.
        """
        parts = vars(self)["parts"] if "parts" in vars(self) else self._fitted()
        return {"columns": self.columns, "parts": parts}

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
    while (b - a).max() > NARROW:
        left = at_c < at_d
        a, b = np.where(left, a, c), np.where(left, d, b)
        new = np.where(left, b - GOLDEN * (b - a), a + GOLDEN * (b - a))
        at_new = cost(new)
        c, d = np.where(left, new, d), np.where(left, c, new)
        at_c, at_d = np.where(left, at_new, at_d), np.where(left, at_c, at_new)
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
