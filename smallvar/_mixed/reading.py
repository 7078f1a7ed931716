"""Columns of tables of pandas, polars, pyarrow and numpy, as numbers or as codes of their levels.

A table is read a column at a time, and none of these libraries is imported: a user who has such a
table has imported it.
"""

import datetime
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from scipy.sparse import issparse

from smallvar._core.row_names import is_missing

MOST_LEVELS = 32_767  # of a column: codes are integers of 16 bits
# dates, and times of day
DATE = re.compile(
    r"\s*(\d{1,4}([-/.])\d{1,2}\2\d{1,4}([ T]\d.*)?"
    r"|\d{1,2}:\d\d(:\d\d([.,]\d+)?)?( ?[AaPp][Mm])?)\s*"
)
CHECKED_CELLS = 200  # levels that tell whether a column of text is one of dates


@dataclass
class Cells:
    """The cells of one column: ``what`` is "numbers", "levels" or "dates".

    ``numbers`` are float64 or float32, NaN where a cell is missing; ``codes`` (int32) the level of
    each cell, -1 where it is missing. All ``levels`` are in use, except where the table declares
    them (``declared``, ``ordered``). ``flags``: the cells are True and False; ``whole``: the table
    says that the numbers are integers.
    """

    what: str
    numbers: np.ndarray | None = None
    codes: np.ndarray | None = None
    levels: list[Any] | None = None
    declared: bool = False
    ordered: bool = False
    flags: bool = False
    whole: bool = False


class TableReader:
    """A table whose columns are read one by one: x0, x1 and so on if it is not ``named``."""

    def __init__(self, X):
        X = _table(X)
        self.named = not isinstance(X, np.ndarray)
        if not self.named:
            names = [f"x{j}" for j in range(X.shape[1])]
            self.n_rows, self._column = X.shape[0], lambda j: X[:, j]
        elif isinstance(X, dict):
            names, arrays = list(X), list(map(np.asarray, X.values()))
            if any(a.ndim != 1 or len(a) != len(arrays[0]) for a in arrays):
                raise ValueError("X must have columns of one length")
            self.n_rows, self._column = len(arrays[0]) if arrays else 0, lambda j: arrays[j]
        elif hasattr(X, "iloc"):
            names, self.n_rows, self._column = list(X.columns), len(X), lambda j: X.iloc[:, j]
        elif hasattr(X, "column_names"):
            names, self.n_rows, self._column = X.column_names, X.num_rows, X.column
        else:
            names, self.n_rows, self._column = X.columns, X.height, X.to_series
        self.names = [str(name) for name in names]
        twice = {name for name in self.names if self.names.count(name) > 1}
        if twice:
            raise ValueError(f"X must have columns of different names, got {min(twice)!r} twice")
        if not self.names or self.n_rows < 1:
            raise ValueError(
                f"X must have a row and a column, got {self.n_rows} row(s) and "
                f"{len(self.names)} column(s)"
            )

    def cells(self, j):
        """Return the Cells of column j."""
        column, name = self._column(j), self.names[j]
        try:
            if isinstance(column, np.ndarray):
                cells = _of_array(column)
            elif hasattr(column, "array"):
                cells = _of_pandas(column)
            elif hasattr(column, "chunks"):
                cells = _of_arrow(column)
            else:
                cells = _of_polars(column)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"column {name!r} of X cannot be used: {error}") from error
        if cells.numbers is not None:
            refuse_infinite(cells.numbers, name)
        return cells


def refuse_infinite(numbers, name):
    """Raise unless the numbers of a column are finite or missing."""
    with np.errstate(over="ignore", invalid="ignore"):
        plain = np.isfinite(np.add.reduce(numbers))  # a sum that is finite has no other terms
    if not plain and np.isinf(numbers).any():
        place = int(np.argmax(np.isinf(numbers)))
        raise ValueError(f"X must be finite, got infinity in column {name!r} at position {place}")


def _table(X):
    """A table, or an array of two dimensions."""
    arrow, polars = sys.modules.get("pyarrow"), sys.modules.get("polars")
    if polars is not None and isinstance(X, polars.LazyFrame):
        raise TypeError("X must be data, got a polars LazyFrame: call its collect() first")
    if arrow is not None and isinstance(X, arrow.RecordBatch):
        return arrow.Table.from_batches([X])
    if (
        (hasattr(X, "iloc") and hasattr(X, "columns"))
        or (arrow is not None and isinstance(X, arrow.Table))
        or (polars is not None and isinstance(X, polars.DataFrame))
    ):
        return X
    if isinstance(X, Mapping):
        return dict(X)
    if getattr(getattr(X, "dtype", None), "names", None):  # a structured array
        return {name: X[name] for name in X.dtype.names}
    if issparse(X):
        raise TypeError("X must be a table, got a sparse matrix, in which no cell can be missing")
    array = np.asarray(X)
    if array.dtype.kind in "US" and not isinstance(X, np.ndarray):
        array = np.asarray(X, dtype=object)  # numbers in lists beside strings stay numbers
    if array.ndim != 2:
        raise ValueError(
            f"X must be a table or an array of two dimensions, got {array.ndim} dimension(s)"
        )
    return array


def _of_array(column):
    kind = column.dtype.kind
    if kind == "b":
        return Cells("numbers", _as_floats(column), flags=True)
    if kind in "iu":
        return Cells("numbers", _as_floats(column), whole=True)
    if kind == "f":
        single = column.dtype == np.float32
        return Cells("numbers", column if single else _as_floats(column))
    if kind in "mM":
        return Cells("dates")
    if kind in "US":
        return _of_words(*factorized(column.tolist()))
    if kind == "O":
        return _of_objects(column.tolist())
    raise ValueError(f"it is of type {column.dtype}")


def _as_floats(column):
    return np.asarray(column, dtype=np.float64)


def _of_pandas(column):
    kind = column.dtype
    if hasattr(column, "cat"):
        return Cells(
            "levels",
            codes=column.cat.codes.to_numpy().astype(np.int32),
            levels=column.cat.categories.tolist(),
            declared=True,
            ordered=bool(column.cat.ordered),
        )
    if hasattr(kind, "pyarrow_dtype"):
        return _of_arrow(sys.modules["pyarrow"].chunked_array(column.array.__arrow_array__()))
    if hasattr(kind, "subtype"):  # sparse columns and intervals
        if not hasattr(column, "sparse"):
            raise ValueError(f"it is of type {kind}")
        return _of_array(column.sparse.to_dense().to_numpy())
    if isinstance(kind, np.dtype) and kind.kind != "O":
        return _of_array(column.to_numpy())
    if hasattr(kind, "tz") or str(kind).startswith("period"):
        return Cells("dates")
    if str(kind).startswith(("string", "str")):
        codes, levels = sys.modules["pandas"].factorize(column)
        return _of_words(codes, levels.tolist())
    if getattr(kind, "kind", "O") in "biuf":  # those that may have nulls
        single = kind.kind == "f" and kind.itemsize == 4
        numbers = column.to_numpy(np.float32 if single else np.float64, na_value=np.nan)
        return Cells("numbers", numbers, flags=kind.kind == "b", whole=kind.kind in "iu")
    return _of_objects(column.tolist())


def _of_polars(column):
    polars = sys.modules["polars"]
    kind = column.dtype
    if kind.is_temporal():
        return Cells("dates")
    if kind == polars.Null:
        return Cells("numbers", np.full(len(column), np.nan))
    if kind == polars.Enum:  # its levels are in order, as polars tells other libraries
        codes = column.to_physical().cast(polars.Int32).fill_null(-1).to_numpy()
        return Cells(
            "levels", codes=codes, levels=list(kind.categories), declared=True, ordered=True
        )
    if kind in (polars.String, polars.Categorical):
        physical = column.cast(polars.Categorical) if kind == polars.String else column
        places = physical.to_physical().cast(polars.Int64).fill_null(-1).to_numpy()
        used, first, codes = np.unique(places, return_index=True, return_inverse=True)
        levels = column.gather(first[used >= 0]).cast(polars.String).to_list()
        return _of_words(codes - int(used[0] < 0), levels, declared=kind != polars.String)
    if kind == polars.Object:
        return _of_objects(column.to_list())
    if kind == polars.Boolean or kind.is_numeric():
        single = kind == polars.Float32
        numbers = column.cast(polars.Float32 if single else polars.Float64).to_numpy()
        return Cells("numbers", numbers, flags=kind == polars.Boolean, whole=kind.is_integer())
    raise ValueError(f"it is of type {kind}")


def _of_arrow(column):
    arrow, kind = sys.modules["pyarrow"], column.type
    types = arrow.types
    if types.is_temporal(kind):
        return Cells("dates")
    if types.is_null(kind):
        return Cells("numbers", np.full(len(column), np.nan))
    is_text = types.is_string(kind) or types.is_large_string(kind)
    is_text = is_text or getattr(types, "is_string_view", bool)(kind)
    if is_text or types.is_dictionary(kind):
        if types.is_dictionary(kind):
            whole = column.unify_dictionaries().combine_chunks()
        else:
            whole = column.dictionary_encode().combine_chunks()
        if isinstance(whole, arrow.ChunkedArray):  # of no chunk
            return Cells("numbers", np.full(len(column), np.nan))
        codes = whole.indices.cast(arrow.int32()).fill_null(-1).to_numpy(zero_copy_only=False)
        levels = whole.dictionary.to_pylist()
        if None in levels:  # null may be a level, too
            codes = np.where(codes == levels.index(None), -1, codes)
            levels = ["" if level is None else level for level in levels]
        if getattr(kind, "ordered", False):
            return Cells("levels", codes=codes, levels=levels, declared=True, ordered=True)
        return _of_words(codes, levels, declared=not is_text)
    if types.is_boolean(kind):
        column = column.cast(arrow.int8())
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        raise ValueError(f"it is of type {kind}")
    target = arrow.float32() if types.is_float32(kind) else arrow.float64()
    numbers = column.cast(target, safe=False).to_numpy()
    return Cells("numbers", numbers, flags=types.is_boolean(kind), whole=types.is_integer(kind))


def factorized(cells):
    """The code of each cell of a list, -1 where it is missing, and the levels as they appear."""
    place = {}
    codes = np.fromiter(
        (-1 if is_missing(cell) else place.setdefault(cell, len(place)) for cell in cells),
        dtype=np.int32,
        count=len(cells),
    )
    return codes, list(place)


def _of_objects(cells):
    """The cells of a list of Python objects, all of one type but for those that are missing."""
    types = {type(cell) for cell in cells}
    missing = {t for t in types if t is type(None) or t.__name__ in ("NAType", "NaTType")}
    types -= missing
    if not types:
        return Cells("numbers", np.full(len(cells), np.nan))
    # NaN, a float, stands for a missing flag or word, as pandas.read_csv has it
    present = types
    if float in types:
        present = {type(cell) for cell in cells if not is_missing(cell)}
    if present and present <= {bool, np.bool_}:
        numbers = [np.nan if is_missing(cell) else float(cell) for cell in cells]
        return Cells("numbers", np.array(numbers), flags=True)
    if all(issubclass(t, (Real, Decimal)) and not issubclass(t, (bool, np.bool_)) for t in types):
        numbers = [np.nan if type(cell) in missing else float(cell) for cell in cells]
        whole = all(issubclass(t, (int, np.integer)) for t in types)
        return Cells("numbers", np.array(numbers), whole=whole)
    if all(issubclass(t, (datetime.date, datetime.time, datetime.timedelta)) for t in types):
        return Cells("dates")
    if present and (present <= {str, np.str_} or present == {bytes}):
        return _of_words(*factorized(cells))
    names = sorted(t.__name__ for t in types)
    if len(names) == 1:
        raise ValueError(f"its cells are of type {names[0]}")
    raise ValueError(f"its cells are of several types: {', '.join(names)}")


def _of_words(codes, levels, declared=False):
    """Cells of text, its levels in the order of the alphabet."""
    codes = np.asarray(codes)
    sampled = levels[:: max(1, len(levels) // CHECKED_CELLS)]
    are_dates = all(isinstance(level, str) and DATE.fullmatch(level) for level in sampled)
    if not declared and levels and are_dates:
        return Cells("dates")
    used = np.unique(codes[codes >= 0]).tolist() if declared else range(len(levels))
    by_text = sorted(used, key=levels.__getitem__)
    table = np.full(len(levels) + 1, -1, dtype=np.int32)  # the last one is that of -1
    table[by_text] = np.arange(len(by_text))
    return Cells(
        "levels", codes=table[codes], levels=[levels[i] for i in by_text], declared=declared
    )
