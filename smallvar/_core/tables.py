"""Tables of pandas, polars and pyarrow as arrays; errors name the column."""

import sys
from contextlib import contextmanager

import numpy as np


def opened(X):
    """What scikit-learn makes one array of, whatever X is.

    A column of lists of one length, as embeddings are often kept, becomes an array without a copy
    of its numbers; a batch of pyarrow becomes a table, since not all versions of scikit-learn see
    the names of its columns.
    """
    arrow, polars = sys.modules.get("pyarrow"), sys.modules.get("polars")
    if polars is not None:  # if X is of it, it was imported
        if isinstance(X, polars.LazyFrame):
            raise TypeError("X must be data, got a polars LazyFrame: call its collect() first")
        one = X.to_series() if isinstance(X, polars.DataFrame) and X.width == 1 else X
        if isinstance(one, polars.Series) and isinstance(one.dtype, (polars.Array, polars.List)):
            return _of_polars_lists(one)
    if arrow is not None:
        if isinstance(X, arrow.RecordBatch):
            X = arrow.Table.from_batches([X])
        one = X.column(0) if isinstance(X, arrow.Table) and X.num_columns == 1 else X
        if isinstance(one, (arrow.Array, arrow.ChunkedArray)) and _has_lists(one.type):
            return _of_arrow_lists(one)
    return X


def _of_polars_lists(column):
    """The rows of a column of lists."""
    if column.null_count():
        raise ValueError(_missing("list", column.name, column.is_null().arg_true()[0]))
    if hasattr(column.dtype, "inner") and not hasattr(column.dtype, "shape"):  # not an Array
        column = column.list.to_array(_one_length(column.list.len().to_numpy(), column.name))
    return column.to_numpy()


def _has_lists(kind):
    types = sys.modules["pyarrow"].types
    return types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind)


def _of_arrow_lists(column):
    """The rows of a column of lists."""
    if column.null_count:
        raise ValueError(_missing("list", None, np.argmax(column.is_null().to_numpy(False))))
    if hasattr(column, "chunks"):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if hasattr(column.type, "list_size"):
        length = column.type.list_size
    else:
        length = _one_length(np.diff(column.offsets.to_numpy()), None)
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), length)


def _one_length(lengths, name):
    """The length that all lists have."""
    if len(lengths) and (lengths != lengths[0]).any():
        raise ValueError(
            f"X must have lists of one length{_of(name)}, got {lengths[0]} and "
            f"{lengths[np.argmax(lengths != lengths[0])]}"
        )
    return int(lengths[0]) if len(lengths) else 0


def types_of(X, among):
    """The types that the numbers of X may have, the first one being the default.

    scikit-learn looks for a common type in pandas' tables alone.
    """
    if hasattr(X, "iloc"):
        return among
    kinds = {str(kind) for _, kind in columns(X)}
    return (np.float32,) if kinds in ({"Float32"}, {"float"}) else among


def columns(X):
    """Name and type of each column, where X is a table."""
    arrow, polars, pandas = map(sys.modules.get, ("pyarrow", "polars", "pandas"))
    if arrow is not None and isinstance(X, arrow.Table):
        return list(zip(X.column_names, X.schema.types, strict=True))
    if (polars is not None and isinstance(X, polars.DataFrame)) or (
        pandas is not None and isinstance(X, pandas.DataFrame)
    ):
        return list(zip(X.columns, X.dtypes, strict=True))
    return []


@contextmanager
def naming_columns(X):
    """Refuse dates, which would become numbers, and name the column in whatever is refused."""
    found = columns(X)
    for name, kind in found:
        if _is_time(kind):
            raise ValueError(f"X must be numbers, got column {name!r} of type {kind}")
    if _is_time(getattr(X, "dtype", None)):
        raise ValueError(f"X must be numbers, got type {X.dtype}")
    try:
        yield
    except (TypeError, ValueError) as error:
        for place, (name, kind) in enumerate(found):
            if hasattr(X, "iloc"):
                values = X.iloc[:, place]
            else:
                values = X.column(place) if hasattr(X, "column") else X.to_series(place)
            wrong = _wrong(name, kind, values)
            if wrong:
                raise ValueError(wrong) from error
        raise


def _is_time(kind):
    """Whether a column's type is one of dates, times or spans of time."""
    if hasattr(kind, "is_temporal"):
        return kind.is_temporal()
    arrow = sys.modules.get("pyarrow")
    if arrow is not None and isinstance(kind, arrow.DataType):
        return arrow.types.is_temporal(kind)
    return getattr(kind, "kind", "") in ("m", "M")


def _wrong(name, kind, values):
    """What is wrong with a column; None if nothing is."""
    missing = np.asarray(values.isna() if hasattr(values, "isna") else values.is_null())
    if missing.any():
        return _missing("value", name, np.argmax(missing))
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        rows = len(values) > 0 and isinstance(np.asarray(values)[0], (list, np.ndarray))
        hint = ": numpy.stack makes an array of rows of such a column" if rows else ""
        return f"X must be numbers, got column {name!r} of type {kind}{hint}"
    if np.isnan(numbers).any():
        return _missing("value", name, np.argmax(np.isnan(numbers)))
    if np.isinf(numbers).any():
        place = np.argmax(np.isinf(numbers))
        return f"X must be finite, got infinity in column {name!r} at position {place}"
    return None


def _missing(what, name, place):
    return f"X must be complete, got a missing {what} (null or NaN){_of(name)} at position {place}"


def _of(name):
    return "" if name is None else f" in column {name!r}"
