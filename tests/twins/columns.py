"""How the values of columns were recorded, rows that are equal, values filled in, transforms."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from scipy.stats import yeojohnson


@dataclass
class Table:
    """The different values of a column, their weights, and the number of rows."""

    value: np.ndarray
    weights: np.ndarray
    rows: int

    @property
    def numbers(self):
        """More than half of the rows have a value of their own."""
        return len(self.value) > self.rows / 2

    def but(self, left_out):
        """The table without some values, given as a mask."""
        share = self.weights[left_out].sum() / self.weights.sum()
        return Table(self.value[~left_out], self.weights[~left_out], round(self.rows * (1 - share)))


def some(X, w):
    """Every row of at most 5,000, every second of 10,000, and so on."""
    step = int(np.ceil(len(X) / 5000))
    return X[::step], w[::step]


def table_of(x, w, same=1e-5):
    """Values nearer than ``same`` of the range of the inner nine tenths are one: their middle.

    Runs of such values that are longer as a whole are cut from below.
    """
    n, order = len(x), np.argsort(x, kind="stable")
    x, w, cut = x[order], w[order], n // 20
    spread = x[n - 1 - cut] - x[cut]
    if spread == 0:
        spread = np.ptp(x)
    near, runs = max(same * spread, 2.0**-48 * np.abs(x[[cut, n - 1 - cut]]).max()), [[0]]
    for i in range(1, n):
        if x[i] - x[i - 1] > near or x[i] > x[runs[-1][0]] + near:
            runs.append([])
        runs[-1].append(i)
    # only runs that are too long are cut
    value = np.array([x[run[(len(run) - 1) // 2]] for run in runs])
    weights = np.array([w[run].sum() for run in runs])
    return Table(value[weights > 0], weights[weights > 0], n)


def weighted_median(x, w):
    """The least value that at least half of the weight does not exceed."""
    order = np.argsort(x, kind="stable")
    total = np.cumsum(w[order])
    return x[order][total >= total[-1] / 2][0]


def grid_of(table):
    """Origin and step of a grid, by the values without the rarest (5% of the rows)."""
    order = np.argsort(table.weights, kind="stable")
    rare = np.zeros(len(order), dtype=bool)
    rare[order] = np.cumsum(table.weights[order]) <= 0.05 * table.weights.sum()
    kept = table.but(rare) if (~rare).sum() > 1 else table
    apart = np.abs(kept.value[:, None] - kept.value)
    np.fill_diagonal(apart, np.inf)
    return kept.value[kept.weights.argmax()], weighted_median(apart.min(axis=1), kept.weights)


def near_grid(value, origin, step):
    """Whether values are within a twentieth of a step of a point of the grid."""
    place = (value - origin) / step
    return np.abs(place - np.rint(place)) < 0.05


def on_a_grid(table):
    """Whether 95% of the rows are near points of a grid."""
    if len(table.value) == 1:
        return False
    near = near_grid(table.value, *grid_of(table))
    return table.weights[near].sum() >= 0.95 * table.weights.sum()


def step_of(table):
    """0 for numbers, else the distance of neighboring values.

    Of numbers of which a fifth are the same one, the median distance of the others from that.
    """
    if len(table.value) == 1:
        return 0.0
    top = np.arange(len(table.value)) == table.weights.argmax()
    others = table.but(top)
    if (
        table.weights[top][0] >= 0.2 * table.weights.sum()
        and others.numbers
        and others.rows >= 0.05 * table.rows
    ):
        return float(np.median(np.abs(others.value - table.value[top])))
    return 0.0 if table.numbers else grid_of(table)[1]


def one_hot(X):
    """Lists of at least two neighboring columns of two values of which at most one is high."""
    low, high = X.min(axis=0), X.max(axis=0)
    apart = np.minimum(X - low, high - X).max(axis=0)
    two_valued, is_high = (high > low) & (apart <= 1e-5 * (high - low)), low / 2 + high / 2 < X
    groups, open_group = [], []
    for j in range(X.shape[1]):
        highs = is_high[:, open_group].sum(axis=1)
        fits = two_valued[j] and (highs + is_high[:, j] <= 1).all() and not (highs == 1).all()
        if open_group and not fits:
            groups.append(open_group)
            open_group = []
        if two_valued[j]:
            open_group = [*open_group, j]
    groups.append(open_group)
    return [group for group in groups if len(group) > 1]


@dataclass
class Recorded:
    """Of each column: the variance within a step, and whether its values are on a grid or few.

    ``floor`` is the variance within a step or of what other columns do not determine, whichever is
    larger; ``different`` the number of rows that differ.
    """

    variance: np.ndarray
    floor: np.ndarray
    in_steps: np.ndarray
    repeated: np.ndarray
    few_valued: np.ndarray
    different: int


def recorded(X, w):
    """How the columns were recorded."""
    rows, different = X, count_different(X)
    X, w = some(X, w)
    tables, exact = ([table_of(x, w, same) for x in X.T] for same in (1e-5, 0))
    jitter = any(e.numbers and not t.numbers for t, e in zip(tables, exact, strict=True))
    if jitter and count_different(rows, common=True) <= len(rows) / 2:  # tight groups
        tables, different = exact, count_different(rows, 0)
    step = np.array([step_of(table) for table in tables])
    variance = step**2 / 12
    for group in one_hot(X):
        low, high = X[:, group].min(axis=0), X[:, group].max(axis=0)
        rest = (X[:, group] <= low / 2 + high / 2).all(axis=1)
        m = len(group) + rest.any()
        variance[group] = step[group] ** 2 / (m ** ((m + 1) / (m - 1)) - m)
    count = np.array([len(table.value) for table in tables])
    repeated = count <= np.sqrt(len(X))
    grid = np.array([not table.numbers and on_a_grid(table) for table in tables])
    few_valued = (count < 10) & (count <= len(X) / 2)
    floor = np.maximum(variance, error_of(X, w))
    columns = repeated | grid | (count == 1), repeated | (count == 1), few_valued
    return Recorded(variance, floor, *columns, different)


def error_of(X, w):
    """1 - R^2 of each column by the others, at most .01, times its variance, if near-collinear."""
    n, d = X.shape
    if not 2 < d < min(400, n):
        return np.zeros(d)
    inner = np.empty_like(X)
    for j, x in enumerate(X.T):
        order = np.argsort(x, kind="stable")
        below = np.cumsum(w[order]) / w.sum()
        low, high = (x[order][below >= share][0] for share in (0.05, 0.95))
        inner[:, j] = np.clip(x, low, high)
    used = np.ptp(inner, axis=0) > 0
    out = np.zeros(d)
    if used.sum() > 2:
        S = np.cov(inner[:, used].T, aweights=w, ddof=0)
        spread = np.sqrt(np.diag(S))
        e, U = np.linalg.eigh(S / np.outer(spread, spread))
        if e[-1] > 300 * e[0]:
            rest = 1 / np.diag(U @ np.diag(1 / np.maximum(e, 1e-12)) @ U.T)
            out[used] = np.minimum(rest, 0.01) * spread**2
    return out


def count_different(X, same=1e-5, common=False):
    """Rows, those counted once that are within ``same`` of the spread from others in all columns.

    Or of one between. The spread is the range of the inner nine tenths; of all, where that is 0; if
    ``common``, that of the widest column.
    """
    part = X[:: int(np.ceil(len(X) / 1000))]
    inner = np.sort(part, axis=0)[[len(part) // 20, len(part) - 1 - len(part) // 20]]
    spread = np.ptp(inner, axis=0)
    spread = np.where(spread > 0, spread, np.ptp(part, axis=0))
    spread = np.where(spread > 0, spread, np.ptp(X, axis=0))
    spread = np.where(spread > 0, spread, 1)
    spread = np.full(len(spread), spread.max()) if common else spread
    near = np.maximum(same * spread, 2.0**-48 * np.abs(inner).max(axis=0))
    Z = (X - X[0]) / np.maximum(near, np.finfo(float).tiny)
    near = cKDTree(Z).query_pairs(1.0, p=np.inf, output_type="ndarray")
    graph = coo_array((np.ones(len(near)), near.T), shape=(len(X), len(X)))
    return connected_components(graph, directed=False)[0]


def filled(X, w):
    """Which rows have a value that seems to stand for a missing one."""
    some_rows, v = some(X[w > 0], w[w > 0])
    out = np.zeros(len(X), dtype=bool)
    for j, x in enumerate(some_rows.T):
        table, deviation = table_of(x, v), x.std()
        if len(table.value) < 3:
            continue
        share, mean = table.weights / table.weights.sum(), v @ x / v.sum()
        median = table.value[np.cumsum(share) >= 0.5][0]
        off = np.minimum(np.abs(table.value - mean), np.abs(table.value - median))
        central = (off <= 0.1 * deviation) & (share >= 0.03) & (share <= 0.2)
        if not central.any():
            continue
        i = np.where(central, share, 0).argmax()
        value, this = table.value[i], np.arange(len(share)) == i
        others = table.but(this)
        if others.numbers:
            found = share[i] > 3 * share[~this].max()
        else:
            found = on_a_grid(others) and not near_grid(value, *grid_of(others))
            found = found and abs(value - w @ X[:, j] / w.sum()) <= 1e-4 * deviation
        if found:
            out |= np.abs(X[:, j] - value) <= 1e-5 * deviation
    return out


class Transform:
    """Yeo-Johnson transforms of the columns of skewness 1 and more, in their own spread."""

    def __init__(self, X, w):
        X, w = some(X, w)
        self.parts = {}
        for j, x in enumerate(X.T):
            if np.ptp(x) == 0 or len(table_of(x, w).value) < 10:
                continue
            centered = (x - x.mean()) / x.std()
            if abs((centered**3).mean()) < 1:
                continue
            found = [self._fit(x, origin, x.std()) for origin in (np.median(x), x.min())]
            self.parts[j] = max(found)[1:]

    def _fit(self, x, origin, unit):
        z = (x - origin) / unit
        y, power = yeojohnson(z)
        likelihood = log_derivative(z, power).sum() - len(x) * np.log(y.std())
        return likelihood, origin, unit, power, y.std()

    def __call__(self, X):
        """Transformed rows, and the logarithm of what volumes are multiplied by at each."""
        Y, log_volume = X.copy(), np.zeros(len(X))
        for j, (origin, unit, power, spread) in self.parts.items():
            z = (X[:, j] - origin) / unit
            Y[:, j] = yeojohnson(z, power) * unit / spread
            log_volume += log_derivative(z, power) - np.log(spread)
        return Y, log_volume


def log_derivative(z, power):
    """Of ((1 + z)^power - 1) / power, and of its mirror image for z < 0."""
    return np.where(z < 0, 1 - power, power - 1) * np.log1p(np.abs(z))
