"""Cells that are missing, filled by what their clusters say."""

import sys
from collections.abc import Mapping

import numpy as np

from smallvar._mixed.columns import CODE_KINDS
from smallvar._mixed.reading import TableReader


def imputed(X, columns, labels, parameters):
    """A copy of a table in which missing cells have the parameter of the cluster of their row."""
    reader = TableReader(X)
    places = {name: j for j, name in enumerate(reader.names)}
    if not reader.named:
        places = {column.source: column.position for column in columns}
    # a column with a frequent value is two: its other values, and a flag for that value
    flags = {column.flag_of: column for column in columns if column.flag_of is not None}
    changes = {}
    for column in columns:
        if column.flag_of is not None:
            continue
        cells = reader.cells(places[column.source])
        missing = cells.codes < 0 if cells.what == "levels" else np.isnan(cells.numbers)
        rows = np.flatnonzero(missing)
        if not len(rows):
            continue
        of_cluster = _typical(column, parameters[column.name], cells.whole)
        flag = flags.get(column.name)
        if flag is not None:
            # clusters in which the frequent value is the more likely one get that
            differs = parameters[flag.name].argmax(axis=1) == 1
            value = int(column.filled[0]) if cells.whole else column.filled[0]
            of_cluster = [
                v if differs_here else value
                for v, differs_here in zip(of_cluster, differs, strict=True)
            ]
        if cells.what != "levels":  # levels of the fit may be flags where these are numbers
            if cells.flags:
                of_cluster = [bool(v) for v in of_cluster]
            elif isinstance(of_cluster[0], bool):
                of_cluster = [int(v) for v in of_cluster]
        changes[places[column.source]] = rows, [of_cluster[z] for z in labels[rows]]
    return _changed(X, reader.names, changes)


def _typical(column, parameter, whole):
    """The value that is typical of each cluster: the mean, or the level of the largest share."""
    if column.kind in CODE_KINDS:
        return [column.levels[v] for v in parameter.argmax(axis=1)]
    if column.kind == "ordered" and column.levels:
        levels = column.levels
        if column.positions:
            places = np.clip(np.rint(parameter).astype(int), 0, len(levels) - 1)
        else:
            values = np.array(levels, dtype=float)
            places = np.abs(parameter[:, None] - values).argmin(axis=1)
        return [levels[v] for v in places]
    if whole or column.kind == "poisson":
        parameter = np.rint(parameter)
    return [int(v) if whole else float(v) for v in parameter]


def _changed(X, names, changes):
    """A copy of the table with other values in some cells: by position, rows and values."""
    # neither is imported here: a table of one of them means that it is loaded
    arrow, polars = sys.modules.get("pyarrow"), sys.modules.get("polars")
    if isinstance(X, Mapping):
        out = dict(X)
        for j, (rows, values) in changes.items():
            out[list(X)[j]] = column = np.array(X[list(X)[j]])
            column[rows] = values
        return out
    if getattr(getattr(X, "dtype", None), "names", None):
        out = X.copy()
        for j, (rows, values) in changes.items():
            out[names[j]][rows] = values
        return out
    if hasattr(X, "iloc"):
        out = X.copy()
        for j, (rows, values) in changes.items():
            column = out.iloc[:, j].copy()
            if hasattr(column.dtype, "pyarrow_dtype"):  # pandas would lose the order of levels
                cells = _in_arrow(arrow, column.array.__arrow_array__(), rows, values)
                column = type(column)(type(column.array)(cells), index=column.index)
            else:
                column.iloc[rows] = values
            out.isetitem(j, column)
        return out
    if polars is not None and isinstance(X, polars.DataFrame):
        return X.with_columns(
            _in_polars(polars, X.to_series(j), *change) for j, change in changes.items()
        )
    if arrow is not None and isinstance(X, (arrow.Table, arrow.RecordBatch)):
        for j, (rows, values) in changes.items():
            X = X.set_column(j, names[j], _in_arrow(arrow, X.column(j), rows, values))
        return X
    out = np.array(X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object))
    for j, (rows, values) in changes.items():
        out[rows, j] = values
    if isinstance(X, np.ndarray):
        return out
    try:
        return out.astype(np.float64)
    except (TypeError, ValueError):
        return out


def _in_polars(polars, column, rows, values):
    kind = column.dtype
    if kind in (polars.Categorical, polars.Enum):
        return column.cast(polars.String).scatter(rows, values).cast(kind)
    return column.clone().scatter(rows, polars.Series(values).cast(kind))


def _in_arrow(arrow, column, rows, values):
    if isinstance(column, arrow.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()
    kind, cells = column.type, column.to_pylist()
    for row, value in zip(rows, values, strict=True):
        cells[row] = value
    if arrow.types.is_dictionary(kind):
        # levels keep their order, as it may have a meaning
        levels = list(dict.fromkeys([*column.dictionary.to_pylist(), *values]))
        place = {level: code for code, level in enumerate(levels)} | {None: None}
        return arrow.DictionaryArray.from_arrays(
            arrow.array([place[cell] for cell in cells], type=kind.index_type),
            arrow.array(levels, type=kind.value_type),
            ordered=kind.ordered,
        )
    return arrow.array(cells, type=kind)
