"""The kinds of the columns of a table, and its rows, packed for the sweeps."""

from dataclasses import dataclass

import numpy as np

NUMBERS = ("normal", "ordered", "poisson", "exponential")
CODES = ("bernoulli", "categorical")


@dataclass(frozen=True)
class Column:
    """What is known of a column that takes part.

    Attributes
    ----------
    name : str
        As in the table, or "x0", "x1", ... for arrays.
    kind : {"normal", "ordered", "poisson", "exponential", "bernoulli", "categorical"}
        The family of its values.
    levels : tuple
        Of bernoulli and categorical columns: code c is ``levels[c]``; of ordered ones the sorted
        values; else empty.
    step : float
        The grid that values lie on; 0 for none.
    reason : str
        In words.
    """

    name: str
    kind: str
    levels: tuple
    step: float
    reason: str


@dataclass(frozen=True)
class Packed:
    """Rows of a table, packed.

    Attributes
    ----------
    columns : tuple of Column
        Those that take part, in the order of the table.
    left_out : dict
        Names of the others, and why.
    numbers : ndarray of shape (n, p)
        Normal, ordered, poisson and exponential columns; NaN: missing.
    codes : ndarray of shape (n, q)
        Bernoulli and categorical columns; -1: missing.
    number_of, code_of : ndarray
        For each column of ``numbers`` and of ``codes``, its index in ``columns``.
    """

    columns: tuple
    left_out: dict
    numbers: np.ndarray
    codes: np.ndarray
    number_of: np.ndarray
    code_of: np.ndarray


def _packed(X, columns, left_out):
    numbers, codes, number_of, code_of = [], [], [], []
    for at, column in enumerate(columns):
        x = X[column.name]
        if column.kind in CODES:
            code = {level: c for c, level in enumerate(column.levels)}
            codes.append([code.get(v, -1) if v == v and v is not None else -1 for v in x])
            code_of.append(at)
        else:
            numbers.append([np.nan if v is None or v != v else float(v) for v in x])
            number_of.append(at)
    n = len(next(iter(X.values())))
    return Packed(
        tuple(columns),
        left_out,
        np.ascontiguousarray(np.array(numbers, dtype=np.float64).reshape(-1, n).T),
        np.ascontiguousarray(np.array(codes, dtype=np.int16).reshape(-1, n).T),
        np.array(number_of, dtype=np.intp),
        np.array(code_of, dtype=np.intp),
    )


def _columns_of(X):
    if hasattr(X, "items") and hasattr(X, "columns"):  # a table of pandas
        return {
            str(name): [None if v is None or v != v else v for v in x.astype(object).fillna(np.nan)]
            for name, x in X.items()
        }
    X = np.asarray(X, dtype=np.float64)
    return {f"x{j}": X[:, j].tolist() for j in range(X.shape[1])}


def pack(X, columns="auto"):
    """The rows of a table, with the kinds of its columns found, or as ``columns`` says."""
    table, found, left_out = _columns_of(X), [], {}
    asked = {} if isinstance(columns, str) else columns
    for name, x in table.items():
        seen = {v for v in x if v is not None and v == v}
        kind = asked.get(name, "auto")
        if kind is None or len(seen) < 2:
            left_out[name] = "constant" if kind is not None else "left out"
            continue
        words = any(isinstance(v, str) for v in seen)
        if kind == "auto":
            kind = "bernoulli" if len(seen) == 2 else "categorical" if words else "normal"
        levels = tuple(sorted(seen)) if kind in (*CODES, "ordered") else ()
        step = 0.0
        if kind in ("normal", "ordered", "poisson") and all(float(v).is_integer() for v in seen):
            step = float(np.diff(sorted(seen)).min())
        found.append(Column(name, kind, levels, step, "stub"))
    return _packed(table, found, left_out)


def repack(X, columns):
    """The rows of another table with the columns of a fit, by name."""
    return _packed(_columns_of(X), columns, {})
