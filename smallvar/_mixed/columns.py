"""The kinds of the columns of a table, and its rows, packed for the sweeps."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from smallvar._core.validation import level_of_caller
from smallvar._mixed.kinds import (
    ColumnKind,
    counted,
    counts_kind,
    few_values,
    grid_step,
    kind_of_levels,
    kind_of_numbers,
    plain,
)
from smallvar._mixed.order import are_in_order
from smallvar._mixed.reading import MOST_LEVELS, TableReader
from smallvar._selection.columns import COLUMN_ROWS

NUMBER_KINDS = ("normal", "ordered", "poisson", "exponential")
CODE_KINDS = ("bernoulli", "categorical")
COLUMN_KINDS = (*NUMBER_KINDS, *CODE_KINDS)
SHOWN = 5  # levels in a message


@dataclass(frozen=True)
class Column:
    """A column that takes part in a fit.

    Attributes
    ----------
    name : str
        As in the table, or "x0", "x1", ... for arrays.
    kind : {"normal", "ordered", "poisson", "exponential", "bernoulli", "categorical"}
        The family of its values.
    levels : tuple
        Of bernoulli and categorical columns: code c is ``levels[c]``; of ordered ones the sorted
        values, or the declared levels, of which the numbers are the positions; else empty.
    step : float
        The grid that values lie on; 0 for none.
    reason : str
        Why it has this kind, for the user.
    position : int
        Index of the column in the table.
    filled : tuple of float or None
        A value that counts as missing, and a tolerance: values no farther from it are missing, too.
        It fills gaps, or many rows have it: these are then told apart by a flag.
    flag_of : str or None
        Of a flag, a column that says whether another one has a value other than ``filled``: the
        name of the other column.
    positions : bool
        Whether the table declares the levels in order: numbers are then their positions.
    """

    name: str
    kind: str
    levels: tuple[Any, ...]
    step: float
    reason: str
    position: int = 0
    filled: tuple[float, float] | None = None
    flag_of: str | None = None
    positions: bool = False

    @property
    def source(self):
        """The name of the column of the table that it is made of."""
        return self.name if self.flag_of is None else self.flag_of


@dataclass(frozen=True)
class Packed:
    """Rows of a table, packed.

    ``columns`` are those that take part, in the order of the table; ``left_out`` has the names of
    the others, and why. ``numbers`` (n, p), float64 or float32, are the cells of normal, ordered,
    poisson and exponential columns, NaN where missing; ``codes`` (n, q), int16, those of bernoulli
    and categorical ones, -1 where missing. ``number_of`` and ``code_of`` are their indices in
    ``columns``. ``named``: the table has names of its columns, of which there are ``n_columns``.
    """

    columns: tuple[Column, ...]
    left_out: dict[str, str]
    numbers: np.ndarray
    codes: np.ndarray
    number_of: np.ndarray
    code_of: np.ndarray
    named: bool = True
    n_columns: int = 0

    @property
    def empty_rows(self):
        """Indices of the rows without a value in any column: all clusters are equally near."""
        empty = np.ones(len(self.numbers), dtype=bool)
        for j in range(self.numbers.shape[1]):
            empty &= np.isnan(self.numbers[:, j])
        for j in range(self.codes.shape[1]):
            empty &= self.codes[:, j] < 0
        return np.flatnonzero(empty)


def pack(X, columns="auto"):
    """The rows of a table, Packed; the kinds of its columns are found, or as ``columns`` says.

    ``columns`` is "auto" or a dict: the kind by name or, in an array, position; None leaves a
    column out. A constant column, or one without a value, is left out whatever it says.
    """
    reader = TableReader(X)
    asked = _asked(reader, columns)
    # columns are read one at a time; of those of levels, the codes are kept for ``_packed``
    column_kinds, kept = [], {}
    for j, name in enumerate(reader.names):
        kind = asked.get(name, "auto")
        if kind is None:
            column_kinds.append(ColumnKind(None, "left out by columns"))
            continue
        cells = reader.cells(j)
        column_kinds.append(_find_kind(cells, name, kind))
        if cells.what == "levels" and column_kinds[j].kind is not None:
            cells.codes = cells.codes.astype(np.int16)
            kept[j] = cells
    for column_kind in column_kinds:
        if column_kind.advice:
            warnings.warn(column_kind.advice, stacklevel=level_of_caller())
    # small whole numbers may be codes of a category: all other columns must be known for that
    _decide_codes(reader, column_kinds, kept)
    used = [
        column for j, f in enumerate(column_kinds) for column in _columns_of(reader.names, j, f)
    ]
    left_out = {reader.names[j]: f.reason for j, f in enumerate(column_kinds) if f.kind is None}
    if not used:
        raise ValueError(_nothing_left(left_out))
    return _packed(reader, used, left_out, kept)


def weighted_columns(packed, weight):
    """The Packed without the columns that do not tell rows of positive weight apart."""
    if weight is None or weight.all():
        return packed
    left_out, kept = dict(packed.left_out), np.ones(len(packed.columns), dtype=bool)
    for cells, of, missing in (
        (packed.numbers, packed.number_of, np.isnan),
        (packed.codes, packed.code_of, lambda codes: codes < 0),
    ):
        for place, i in enumerate(of):
            column, values = packed.columns[i], cells[weight > 0, place]
            values = values[~missing(values)]
            if len(values) and values.min() < values.max():
                continue
            kept[i], of_rows = False, "in the rows of positive weight"
            left_out[column.name] = f"no value {of_rows}"
            if len(values):
                coded = column.kind in CODE_KINDS or column.positions
                value = column.levels[int(values[0])] if coded else plain(values[0])
                left_out[column.name] = f"one value {of_rows}, {value!r}"
    if kept.all():
        return packed
    if not kept.any():
        raise ValueError(_nothing_left(left_out))
    index, numbers, codes = np.cumsum(kept) - 1, kept[packed.number_of], kept[packed.code_of]
    return replace(
        packed,
        columns=tuple(c for c, keep in zip(packed.columns, kept, strict=True) if keep),
        left_out=left_out,
        numbers=np.ascontiguousarray(packed.numbers[:, numbers]),
        codes=np.ascontiguousarray(packed.codes[:, codes]),
        number_of=index[packed.number_of[numbers]],
        code_of=index[packed.code_of[codes]],
    )


def _nothing_left(left_out):
    """The error message for a table of which all columns are left out."""
    reasons = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:SHOWN])
    return f"X must have a column that tells rows apart, got none ({reasons})"


def _columns_of(names, j, column_kind):
    """Yield the Columns that column j of the table becomes: none, one, or one and a flag.

    Where many rows have one value, ``column_kind.often``, it is missing in the Column of the
    others, and the flag says which rows have another.
    """
    if column_kind.kind is None:
        return
    name, often = names[j], column_kind.often
    filled = column_kind.filled if often is None else (float(often), 0.0)
    yield Column(
        name, column_kind.kind, column_kind.levels, column_kind.step, column_kind.reason, j, filled,
        positions=column_kind.positions,
    )  # fmt: skip
    if often is None:
        return
    flag = f"{name} not {often:g}"
    while flag in names:
        flag += "_"
    words = f"whether {name} is not {often:g}"
    yield Column(flag, "bernoulli", (False, True), 0.0, words, j, filled, name)


def repack(X, columns):
    """Pack the rows of another table with the columns of a fit, by name; in an array, by position.

    Levels that the fit has not seen count as missing, with a warning.
    """
    reader = TableReader(X)
    places = {name: j for j, name in enumerate(reader.names)}
    if not reader.named:
        places = {c.source: c.position for c in columns if c.position < len(reader.names)}
    lacking = [column.source for column in columns if column.source not in places]
    if lacking:
        raise ValueError(
            "X must have the columns of the fit, got none called "
            f"{', '.join(map(repr, lacking[:SHOWN]))}"
        )
    return _packed(reader, columns, {}, {}, places)


def _asked(reader, columns):
    """The kinds that the user has given, by name of the column (None: leave it out)."""
    if isinstance(columns, str) and columns == "auto":
        return {}
    if not isinstance(columns, Mapping):
        raise TypeError(f"columns must be 'auto' or a dict of names and kinds, got {columns!r}")
    asked = {}
    for key, kind in columns.items():
        position = isinstance(key, (int, np.integer)) and not reader.named
        in_range = position and 0 <= key < len(reader.names)
        name = reader.names[key] if in_range else str(key)
        if name not in reader.names:
            raise ValueError(
                f"columns must be of X, got {key!r}; X has {', '.join(reader.names[:SHOWN])}"
                f"{', ...' if len(reader.names) > SHOWN else ''}"
            )
        if kind is not None and (not isinstance(kind, str) or kind not in (*COLUMN_KINDS, "auto")):
            options = ", ".join(map(repr, (*COLUMN_KINDS, "auto")))
            raise ValueError(f"columns[{key!r}] must be None or one of {options}, got {kind!r}")
        asked[name] = kind
    return asked


def _find_kind(cells, name, kind):
    """The ColumnKind of a column, as asked for; left out without two values; may raise."""
    if cells.what == "dates":
        if kind != "auto":
            raise ValueError(f"columns[{name!r}] must be None or 'auto' for dates, got {kind!r}")
        return ColumnKind(None, "dates")
    column_kind = (kind_of_levels if cells.what == "levels" else kind_of_numbers)(cells, name)
    if (
        kind != "auto"
        and column_kind.reason != "no value"
        and not column_kind.reason.startswith("one value")
    ):
        column_kind = (_levels_as if cells.what == "levels" else _numbers_as)(cells, name, kind)
    if column_kind.kind in CODE_KINDS and len(column_kind.levels) > MOST_LEVELS:
        raise ValueError(
            f"column {name!r} of X must have at most {MOST_LEVELS:,} levels, got "
            f"{len(column_kind.levels):,}: leave it out by columns={{{name!r}: None}}"
        )
    return column_kind


def _levels_as(cells, name, kind):
    """The ColumnKind of a column of words, for the kind that was asked for."""
    used = np.unique(cells.codes[cells.codes >= 0])
    levels = tuple(cells.levels[i] for i in used)
    if kind == "ordered" and cells.ordered:
        return ColumnKind(kind, "as asked for", levels, 1.0, positions=True)
    if kind == "bernoulli" and len(levels) > 2:
        raise ValueError(_needs(name, kind, "2 values", counted(len(levels), "level")))
    if kind not in CODE_KINDS:
        more = " whose levels are declared in order" if kind == "ordered" else ""
        raise ValueError(
            _needs(
                name,
                kind,
                f"numbers{' or a category' * bool(more)}{more}",
                f"words like {levels[0]!r}",
            )
        )
    return ColumnKind(kind, "as asked for", levels)


def _numbers_as(cells, name, kind):
    """The ColumnKind of a column of numbers, for the kind that was asked for."""
    numbers = cells.numbers[~np.isnan(cells.numbers)]
    check_domain(numbers, name, kind)
    if kind in CODE_KINDS and cells.flags:
        return ColumnKind(kind, "as asked for", (False, True))
    few = few_values(numbers, MOST_LEVELS if kind == "categorical" else 1000)
    if kind == "bernoulli" and (few is None or len(few[0]) > 2):
        raise ValueError(_needs(name, kind, "2 values", "more"))
    if kind in CODE_KINDS or (kind == "ordered" and few is not None):
        value = np.unique(numbers) if few is None else few[0]
        levels = tuple(plain(v) for v in value)
    else:
        levels = ()
    step = 1.0 if kind == "poisson" else 0.0
    if kind in ("normal", "ordered"):
        step = grid_step(numbers, few)
    return ColumnKind(kind, "as asked for", levels, step)


def check_domain(numbers, name, kind):
    """Raise if a number of a column is outside the domain of the kind."""
    with np.errstate(invalid="ignore"):
        if kind == "poisson":
            wrong, needs = (numbers < 0) | (numbers != np.floor(numbers)), "whole numbers >= 0"
            wrong &= ~np.isnan(numbers)
        elif kind == "exponential":
            wrong, needs = numbers <= 0, "numbers > 0"
        else:
            return
    if wrong.any():
        raise ValueError(_needs(name, kind, needs, repr(plain(numbers[np.argmax(wrong)]))))


def _needs(name, kind, needs, got):
    """The error message for a column that does not suit the kind asked for."""
    return f"column {name!r} of X must be {needs} for the kind {kind!r}, got {got}"


def _decide_codes(reader, column_kinds, kept):
    """Change ``column_kinds`` (INOUT) of small whole numbers by the evidence of the other columns.

    They stay ordered if rows with neighboring numbers are alike in the other columns, or if these
    do not tell. Else they are codes of a category.
    """
    unclear = [j for j, f in enumerate(column_kinds) if f.like_codes]
    if not unclear:
        return
    rows = slice(None, None, -(-reader.n_rows // COLUMN_ROWS))
    samples, index = [], {}
    for j, f in enumerate(column_kinds):
        if f.kind is None:
            continue
        index[j] = len(samples)
        if j in kept:
            cells = kept[j]
            samples.append((len(cells.levels), cells.codes[rows]))
            continue
        numbers = np.asarray(reader.cells(j).numbers[rows], dtype=np.float64)
        if f.like_codes:
            samples.append((len(f.levels), _codes_of(numbers, f.levels)[0]))
        else:
            samples.append((None, numbers))
    answers = are_in_order(samples, [index[j] for j in unclear])
    for j, (in_order, told) in zip(unclear, answers, strict=True):
        f, words = column_kinds[j], f"{counted(len(column_kinds[j].levels), 'whole number')}"
        if in_order:
            f.reason = f"{len(f.levels)} values, ordered"
            f.reason += " as other columns tell" if told else "; other columns do not tell"
            if f.like_counts:
                column_kinds[j] = counts_kind(f.levels)
        else:
            column_kinds[j] = ColumnKind(
                "categorical", f"{words}, codes without an order as other columns tell", f.levels
            )


def _packed(reader, columns, left_out, kept, places=None):
    """The Packed of these columns, read one by one.

    ``kept`` has the cells, by position in the table, of columns that have been read already; each
    is let go once it is used. ``places`` maps names to positions (None: those of the columns).
    """
    at = [c.position if places is None else places[c.source] for c in columns]
    number_of = [i for i, c in enumerate(columns) if c.kind in NUMBER_KINDS]
    code_of = [i for i, c in enumerate(columns) if c.kind in CODE_KINDS]
    codes = np.empty((reader.n_rows, len(code_of)), dtype=np.int16)
    unseen = {}
    for place, i in enumerate(code_of):
        cells = kept.pop(at[i], None) or reader.cells(at[i])
        codes[:, place], unseen[columns[i].name] = _as_codes(cells, columns[i])
    numbers = None
    for place, i in enumerate(number_of):
        cells = kept.pop(at[i], None) or reader.cells(at[i])
        values = _as_numbers(cells, columns[i])
        if numbers is None:
            numbers = np.zeros((reader.n_rows, len(number_of)), dtype=values.dtype)
        elif numbers.dtype != values.dtype == np.float64:
            numbers = numbers.astype(np.float64)
        numbers[:, place] = values
    if numbers is None:
        numbers = np.zeros((reader.n_rows, 0))
    of = (np.array(index, dtype=np.intp) for index in (number_of, code_of))
    about = reader.named, len(reader.names)
    packed = Packed(tuple(columns), left_out, numbers, codes, *of, *about)
    _warn(packed, {name: levels for name, levels in unseen.items() if levels})
    return packed


def _as_codes(cells, column):
    """Codes of the cells, and up to SHOWN levels that the column does not have."""
    if column.flag_of is not None:
        numbers = _numbers_of(cells, column)
        return np.where(np.isnan(numbers), -1, numbers != column.filled[0]), []
    if cells.what == "levels":
        place = {level: c for c, level in enumerate(column.levels)}
        table = np.array([place.get(level, -1) for level in cells.levels] + [-1], dtype=np.int16)
        lacking = np.flatnonzero(table[:-1] < 0)
        if len(lacking):
            lacking = lacking[np.isin(lacking, np.unique(cells.codes))]
        return table[cells.codes], [cells.levels[i] for i in lacking[:SHOWN]]
    if cells.what == "numbers" and all(isinstance(v, Real) for v in column.levels):
        return _codes_of(cells.numbers, column.levels)
    if cells.what == "dates" or not np.isnan(cells.numbers).all():
        raise ValueError(_as_fitted(column, _what_levels_are(column.levels), cells.what))
    return np.full(len(cells.numbers), -1, dtype=np.int16), []


def _what_levels_are(levels):
    """What a message calls the levels of a column."""
    return "words" if isinstance(levels[0], str) else f"a category with levels like {levels[0]}"


def _codes_of(numbers, levels):
    """Index of each number in the levels (-1: not among them), and some not among them."""
    value = np.asarray(levels, dtype=np.float64)
    ascending = np.argsort(value)
    index = np.searchsorted(value, numbers, sorter=ascending)
    index[index == len(value)] = 0
    index = ascending[index]
    is_level = value[index] == numbers
    unseen = np.unique(numbers[~is_level & ~np.isnan(numbers)])
    return np.where(is_level, index, -1).astype(np.int16), [plain(v) for v in unseen[:SHOWN]]


def _as_numbers(cells, column):
    """Numbers of the cells: values, or the positions of ordered levels; NaN where missing."""
    if column.positions:
        codes, _ = _as_codes(cells, column)
        return np.where(codes < 0, np.nan, codes.astype(np.float64))
    numbers = _numbers_of(cells, column)
    if column.filled is not None:
        value, tolerance = column.filled
        with np.errstate(invalid="ignore"):
            numbers = np.where(np.abs(numbers - value) <= tolerance, np.nan, numbers)
    check_domain(numbers, column.name, column.kind)
    return numbers


def _numbers_of(cells, column):
    """The numbers of the cells, which may be levels of a category; raises if they are others."""
    if cells.what == "levels" and all(isinstance(v, Real) for v in cells.levels):
        return np.append(np.asarray(cells.levels, dtype=np.float64), np.nan)[cells.codes]
    if cells.what != "numbers":
        got = "dates" if cells.what == "dates" else _what_levels_are(cells.levels)
        raise ValueError(_as_fitted(column, "numbers", got))
    return cells.numbers


def _as_fitted(column, was, got):
    """The error message for a column whose cells are not as in the fit."""
    return f"column {column.name!r} of X must be {was}, as in the fit, got {got}"


def _warn(packed, unseen):
    """Warn of levels that count as missing, and of rows without a value."""
    for name, levels in unseen.items():
        shown = ", ".join(map(repr, levels)) + (", ..." if len(levels) == SHOWN else "")
        warnings.warn(
            f"column {name!r} of X has levels that the fit has not seen, which count as missing: "
            f"{shown}",
            stacklevel=level_of_caller(),
        )
    empty = packed.empty_rows
    if len(empty):
        warnings.warn(
            f"X has {counted(len(empty), 'row')} without a value, the first at position "
            f"{empty[0]}: no cluster is better for them than another",
            stacklevel=level_of_caller(),
        )
