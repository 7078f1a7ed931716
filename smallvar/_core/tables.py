"""Tables of pandas, polars and pyarrow as data: what scikit-learn's checks do not cover.

``opened`` turns columns of lists and batches into what scikit-learn accepts; ``types_of`` finds the
type of the numbers; ``naming_columns`` makes errors name the column, of arrays by its number. None
of the three libraries is imported: an object can be of a library only if that is imported already.
"""

import sys
from contextlib import contextmanager

import numpy as np
from scipy.sparse import issparse

# what errors say of tables of other kinds
DICTS_ALLOWED = "smallvar.MixedDPMeans takes it as it is"
WORDS_ALLOWED = (
    ": smallvar.MixedDPMeans takes columns of words; of texts make numbers first, by "
    "sklearn's TfidfVectorizer and TruncatedSVD"
)
GAPS_ALLOWED = ": smallvar.MixedDPMeans takes tables with missing values"
# of rows in the order of time, which a gap interrupts
GAPS_IN_TIME = (
    ": fill it from the rows before and after, as interpolate of pandas does, or leave the row out"
)


def opened(X):
    """The data X in a form that scikit-learn converts to one array.

    A single column of lists of one length (embeddings, say) becomes a two-dimensional array,
    without a copy of its numbers. A pyarrow batch becomes a table, since not all versions of
    scikit-learn see the names of its columns. Arrays of the array API become numpy's, with
    ``array_api_dispatch`` too. All else is returned unchanged.
    """
    if isinstance(X, np.ndarray):
        if X.dtype.names:
            raise TypeError(
                "X must be an array of numbers, got a structured array: use "
                f"numpy.lib.recfunctions.structured_to_unstructured(X), or {DICTS_ALLOWED}"
            )
        return X
    if isinstance(X, dict) and not issparse(X):  # a sparse array may be a dict
        raise TypeError(
            "X must be an array or a table, got a dict: use pandas.DataFrame(X), or "
            f"{DICTS_ALLOWED}"
        )
    # of the array API, or a tensor
    array = hasattr(X, "__dlpack__") and hasattr(X, "ndim")
    if not issparse(X) and (array or hasattr(X, "__array_namespace__")):
        return as_numpy(X)
    # None if the library is not imported: X cannot be of it then
    arrow, polars = sys.modules.get("pyarrow"), sys.modules.get("polars")
    if polars is not None:
        if isinstance(X, polars.LazyFrame):
            raise TypeError("X must be data, got a polars LazyFrame: call its collect() first")
        column = X.to_series() if isinstance(X, polars.DataFrame) and X.width == 1 else X
        lists = polars.Array, polars.List
        if isinstance(column, polars.Series) and isinstance(column.dtype, lists):
            return _rows_of_polars(column)
    if arrow is not None:
        if isinstance(X, arrow.RecordBatch):
            X = arrow.Table.from_batches([X])
        column = X.column(0) if isinstance(X, arrow.Table) and X.num_columns == 1 else X
        if isinstance(column, (arrow.Array, arrow.ChunkedArray)):
            types, kind = arrow.types, column.type
            if types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind):
                return _rows_of_arrow(column)
    return X


def as_numpy(X):
    """An array of another library as one of numpy."""
    try:
        return np.asarray(X)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        name = f"{type(X).__module__}.{type(X).__name__}"
        raise TypeError(f"X must convert to a numpy array, got a {name}: {error}") from error


def _rows_of_polars(column):
    """The lists of a polars column as the rows of an array."""
    if column.null_count():
        raise ValueError(_missing("list", column.name, column.is_null().arg_true()[0]))
    if hasattr(column.dtype, "inner") and not hasattr(column.dtype, "shape"):  # List, not Array
        column = column.list.to_array(_one_length(column.list.len().to_numpy(), column.name))
    return column.to_numpy()


def _rows_of_arrow(column):
    """The lists of a pyarrow column as the rows of an array."""
    if column.null_count:
        raise ValueError(_missing("list", None, np.argmax(column.is_null().to_numpy(False))))
    # lists of one length lie one after the other: their values are the rows
    if hasattr(column, "chunks"):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if hasattr(column.type, "list_size"):
        length = column.type.list_size
    else:
        length = _one_length(np.diff(column.offsets.to_numpy()), None)
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), length)


def _one_length(lengths, name):
    """The common length of lists; ValueError if they differ. ``name`` is that of the column."""
    if len(lengths) and (lengths != lengths[0]).any():
        raise ValueError(
            f"X must have lists of one length{_in_column(name)}, got {lengths[0]} and "
            f"{lengths[np.argmax(lengths != lengths[0])]}"
        )
    return int(lengths[0]) if len(lengths) else 0


def types_of(X, among):
    """The types that the checks may give the numbers of X, the first one being the default.

    These are ``among``, or float32 alone for a polars or pyarrow table of float32 columns: only for
    pandas does scikit-learn find the common type by itself.
    """
    if hasattr(X, "iloc"):
        return among
    kinds = {str(kind) for _, kind in columns(X)}
    return (np.float32,) if kinds in ({"Float32"}, {"float"}) else among


def columns(X):
    """Name and type of each column of a table; [] if X is not one."""
    arrow, polars, pandas = map(sys.modules.get, ("pyarrow", "polars", "pandas"))
    if arrow is not None and isinstance(X, arrow.Table):
        return list(zip(X.column_names, X.schema.types, strict=True))
    if (polars is not None and isinstance(X, polars.DataFrame)) or (
        pandas is not None and isinstance(X, pandas.DataFrame)
    ):
        return list(zip(X.columns, X.dtypes, strict=True))
    return []


@contextmanager
def naming_columns(X, gaps_advice=GAPS_ALLOWED):
    """Context for checks of X: errors name the column; dates, else converted, are refused.

    ``gaps_advice`` ends the error for a missing value.
    """
    named = columns(X)
    for name, kind in named:
        if _is_time(kind):
            raise ValueError(f"X must be numbers, got column {name!r} of type {kind}")
    if _is_time(getattr(X, "dtype", None)):
        raise ValueError(f"X must be numbers, got type {X.dtype}")
    try:
        yield
    except Exception as error:
        if type(error).__name__ == "DuplicateError":  # of newer versions of scikit-learn
            names = [name for name, _ in named]
            twice = next(name for j, name in enumerate(names) if name in names[:j])
            words = f"X must have columns of different names, got {twice!r} twice"
            raise ValueError(words) from error
        # a TypeError for an array says what a cell must be
        if not isinstance(error, (TypeError, ValueError) if named else ValueError):
            raise
        # the first column that explains the error; if none does, the error is raised unchanged
        for name, kind, values in _columns_of_table(X, named) if named else _columns_of_array(X):
            message = _problem(name, kind, values, "" if issparse(X) else gaps_advice)
            if message:
                raise ValueError(message) from error
        raise


def _columns_of_table(X, named):
    """Name, type and values of each column of a table."""
    for j, (name, kind) in enumerate(named):
        if hasattr(X, "iloc"):
            yield name, kind, X.iloc[:, j]
        else:
            yield name, kind, X.column(j) if hasattr(X, "column") else X.to_series(j)


def _columns_of_array(X):
    """Number, type and values of each column of an array that may have bad values."""
    try:
        X = X.tocsc() if issparse(X) else np.asarray(X)
    except ValueError:  # rows of several lengths
        return
    if X.ndim == 1 and X.dtype.kind in "OSU":  # texts, given as they are
        X = X[:, np.newaxis]
    if X.ndim != 2 or X.dtype.kind not in "fOSU":
        return
    bad = X.dtype.kind != "f" or ~np.isfinite(X.sum(axis=0))
    for j in np.flatnonzero(np.broadcast_to(bad, (1, X.shape[1]))).tolist():
        column = X[:, [j]]
        yield j, X.dtype, (column.toarray() if issparse(X) else column)[:, 0]


def _is_time(kind):
    """Whether a column's type is one of dates, times or spans of time."""
    if hasattr(kind, "is_temporal"):
        return kind.is_temporal()
    arrow = sys.modules.get("pyarrow")
    if arrow is not None and isinstance(kind, arrow.DataType):
        return arrow.types.is_temporal(kind)
    return getattr(kind, "kind", "") in ("m", "M")


def _problem(name, kind, values, gaps_advice):
    """The error message for a column; None if its values are finite numbers."""
    if not isinstance(values, np.ndarray):
        missing = np.asarray(values.isna() if hasattr(values, "isna") else values.is_null())
        if missing.any():
            return _missing("value", name, np.argmax(missing)) + gaps_advice
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        rows = len(values) > 0 and isinstance(np.asarray(values)[0], (list, np.ndarray))
        hint = ": numpy.stack makes an array of rows of such a column" if rows else WORDS_ALLOWED
        return f"X must be numbers, got column {name!r} of type {kind}{hint}"
    if np.isnan(numbers).any():
        return _missing("value", name, np.argmax(np.isnan(numbers))) + gaps_advice
    if np.isinf(numbers).any():
        row = np.argmax(np.isinf(numbers))
        return f"X must be finite, got infinity in column {name!r} at position {row}"
    return None


def _missing(noun, name, row):
    """The error message for a missing value (or list, as ``noun`` says)."""
    column = _in_column(name)
    return f"X must be complete, got a missing {noun} (null or NaN){column} at position {row}"


def _in_column(name):
    """The part of a message that names the column, if there is a name."""
    return "" if name is None else f" in column {name!r}"
