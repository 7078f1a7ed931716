"""What columns are like: the step in which their values were recorded."""

import os

import numpy as np
from scipy.stats import skew, yeojohnson, yeojohnson_normmax

ROWS = 5000  # rows that a column is looked at in
SAME = 1e-5  # of the spread of a column: values nearer to each other than this are one
MANY = 0.5  # of the rows: a column with more distinct values than this has no step
ATOM = .2
RARE = 0.05  # of the rows may have values that are not on the grid of the others


def recorded_steps(X, weight):
    """Return the step in which each column was recorded, 0 where it has none.

    A column that has few distinct values for its number of rows cannot be described more finely
    than these lie apart. Its step is the distance of a value to the nearest other one, at the median of the rows; the
    rarest values, up to RARE of the rows, do not count as others.
    """
    n, d = X.shape
    rows = slice(None, None, -(-n // ROWS))
    X = np.asarray(X[rows], dtype=np.float64)
    weight = np.ones(len(X)) if weight is None else weight[rows]
    step, recorded = np.zeros(d), np.zeros(d, dtype=bool)
    for j in range(d):
        step[j], recorded[j] = _step(X[:, j], weight)
    floor = step**2 / 12.0
    for group in _one_hot(X):
        m = len(group) + 1 - int(_on(X[:, group]).any(axis=1).all())
        floor[group] = step[group] ** 2 / (m * (m ** (2.0 / (m - 1)) - 1.0))
    return floor, recorded


def _on(X):
    return X > 0.5 * (X.min(axis=0) + X.max(axis=0))


def _one_hot(X):
    """Groups of neighboring columns of two values, at most one of them high in a row."""
    low, high = X.min(axis=0), X.max(axis=0)
    two = (high > low) & ((np.abs(X - low) < SAME * (high - low)) | (np.abs(X - high) < SAME * (high - low))).all(axis=0)
    groups, group, taken = [], [], None
    for j in range(X.shape[1]):
        on = _on(X[:, j]) if two[j] else None
        if group and (not two[j] or (taken & on).any()):
            groups.append(group)
            group = []
        if two[j]:
            taken = taken | on if group else on
            group = [*group, j]
            if taken.all():
                groups.append(group)
                group = []
    if group:
        groups.append(group)
    return [g for g in groups if len(g) > 1]


def _step(column, weight):
    n = len(column)
    order = np.argsort(column, kind="stable")
    v, w = column[order], weight[order]
    low, high = v[n // 20], v[-1 - n // 20]
    spread = high - low or v[-1] - v[0]
    first = np.append(0, np.flatnonzero(np.diff(v) > SAME * spread) + 1)
    if len(first) < 2:
        return 0.0, False
    mass = np.add.reduceat(w, first)
    values = np.add.reduceat(w * v, first) / np.where(mass > 0, mass, 1)
    top = mass.argmax()
    rest = n - (first[top + 1] if top + 1 < len(first) else n) + first[top]
    if mass[top] >= ATOM * mass.sum() and len(first) > MANY * rest and rest >= RARE * n:
        return np.median(np.abs(np.delete(values, top) - values[top])), False
    if len(first) > MANY * n:
        return 0.0, False
    by = np.argsort(mass, kind="stable")
    rare = by[np.cumsum(mass[by]) <= RARE * mass.sum()]
    kept = np.setdiff1d(np.arange(len(values)), rare)
    if len(kept) < 2:
        kept = np.arange(len(values))
    values, mass = values[kept], mass[kept]
    gaps = np.diff(values)
    nearest = np.minimum(np.append(gaps[0], gaps), np.append(gaps, gaps[-1]))
    by = np.argsort(nearest, kind="stable")
    total = np.cumsum(mass[by])
    h = nearest[by[np.searchsorted(total, float(os.environ.get('GQ','.5')) * total[-1])]]
    off = (values - values[0]) / h
    on = np.abs(off - np.round(off)) < 0.05
    lattice = mass[on].sum() >= 0.95 * mass.sum()
    return h, bool(lattice or len(values) <= np.sqrt(n))


SKEWED = 1.0  # skewness beyond which a column is one-sided
FEW_VALUES = 10  # distinct values of a column that is not transformed


class PowerTransform:
    """Yeo-Johnson transforms of the one-sided columns of these rows.

    ``columns`` are their numbers.
    """

    def __init__(self, X, weight):
        n, d = X.shape
        X = np.asarray(X[:: -(-n // ROWS)], dtype=np.float64)
        self.columns, self.scale, self.shift, self.power, self.size = [], [], [], [], []
        for j in range(d):
            x = X[:, j]
            s = x.std()
            if not s > 0 or abs(skew(x)) < SKEWED or len(np.unique(x)) < FEW_VALUES:
                continue
            best = None
            for at in (np.median(x), x.min()):
                z = (x - at) / s
                try:
                    power = yeojohnson_normmax(z)
                except Exception:
                    continue
                t = yeojohnson(z, power)
                size = t.std()
                if os.environ.get('RAW'): power=np.clip(power,-2,4); t=yeojohnson(z,power); size=t.std()
                score = _log_slope(z, power).sum() - len(x) * np.log(size)
                if best is None or score > best[0]:
                    best = score, at, power, 1.0 if os.environ.get('RAW') else size
            if best is None:
                continue
            self.columns.append(j)
            self.scale.append(s)
            self.shift.append(best[1])
            self.power.append(best[2])
            self.size.append(best[3])

    def __call__(self, X):
        """Return the rows with these columns transformed, and the logarithm of the Jacobian."""
        out = np.array(X, dtype=np.float64)
        log_slope = np.zeros(len(out))
        for j, s, at, power, size in zip(
            self.columns, self.scale, self.shift, self.power, self.size, strict=True
        ):
            z = (out[:, j] - at) / s
            out[:, j] = s * yeojohnson(z, power) / size
            log_slope += _log_slope(z, power) - np.log(size)
        return out, log_slope


def _log_slope(z, power):
    return (power - 1.0) * np.sign(z) * np.log1p(np.abs(z))
