"""Arguments with a name or a time for each row: ``groups`` and ``times``."""

import re
import sys
import warnings
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from numbers import Integral

import numpy as np

from smallvar._core.validation import level_of_caller, shown, single_column

# Forms of dates. Where both of two in brackets fit, day and month cannot be told
# apart.
DATES = (
    ("ISO",),
    ("%d.%m.%Y",),
    ("%d/%m/%Y", "%m/%d/%Y"),
    ("%d-%m-%Y", "%m-%d-%Y"),
    ("%Y/%m/%d",),
)
CLOCKS = ("", " %H:%M", " %H:%M:%S")
EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
# the digits of a second beyond microseconds, and a fraction of a second in a time zone
FINE_DIGITS = re.compile(r"(?<=[.,]\d{6})\d+")
ZONE_FRACTION = re.compile(r"[+-]\d\d:?\d\d:?\d\d[.,]")


def names_of_rows(value, name, n):
    """Array of shape (n,) of numbers, dates or strings that sort, none of them missing."""
    try:
        array = exact_array(value) if isinstance(value, (list, tuple)) else np.asarray(value)
    except ValueError:  # rows of several lengths, or bytes that are no text
        array = None
    if isinstance(value, (list, tuple)):
        kinds = {type(cell) for cell in value}
        texts = [{kind for kind in kinds if issubclass(kind, base)} for base in (str, bytes)]
        is_text = array is None or array.dtype.kind in "US"
        if is_text and any(text and text != kinds for text in texts):
            # numpy would make text of what stands beside text
            raise several_kinds(name, kinds)
    if array is None:
        raise ValueError(f"{name} must have shape ({n},), got rows of several lengths")
    array = single_column(array, name, n)
    missing = np.zeros(n, dtype=bool)
    if array.dtype.kind == "O":
        kinds = {type(cell) for cell in array.tolist()}
        if any(issubclass(kind, (tuple, list, dict, set, np.ndarray)) for kind in kinds):
            raise ValueError(
                f"{name} must be numbers, dates or strings, got {kinds_in_words(kinds)}"
            )
        missing = np.array([is_missing(cell) for cell in array.tolist()], dtype=bool)
    elif array.dtype.kind in "fcmM":
        missing = array != array
    elif array.dtype.kind == "V":
        raise ValueError(f"{name} must be numbers, dates or strings, got {array.dtype}")
    if missing.any():
        row = int(np.argmax(missing))
        raise ValueError(f"{name} must not be missing, got {shown(array[row])} at position {row}")
    return array


def exact_array(values):
    """Array of a list: of objects where it has integers that float64 would make equal."""
    array = np.asarray(values)
    if array.dtype.kind == "f" and array.ndim == 1:
        whole = any(issubclass(kind, Integral) for kind in set(map(type, values)))
        if whole and len(set(array.tolist())) < len(set(values)):
            return np.array(values, dtype=object)
    return array


def is_missing(cell):
    """Whether a cell is None, NaN or one of the marks of pandas."""
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or cell != cell


def kinds_in_words(kinds):
    """Names of types."""
    return ", ".join(sorted({kind.__name__ for kind in kinds}))


def several_kinds(name, kinds):
    """The error for values that do not sort."""
    return ValueError(
        f"{name} must be all numbers or all strings, or all dates, got {kinds_in_words(kinds)}"
    )


def read_times(times, n):
    """Times of n rows as an array that sorts, and their ordered categories or None.

    With categories the array has their numbers. Text becomes numbers or dates if all of it is;
    otherwise there is a warning where its order in the alphabet is not that of the rows.
    """
    codes, levels = ordered_categories(times)
    if levels is not None:
        codes = single_column(codes, "times", n)
        if n and codes.min() < 0:
            raise ValueError(f"times must not be missing, got None at position {codes.argmin()}")
        return codes, levels
    times = names_of_rows(times, "times", n)
    kinds = {type(time) for time in times.tolist()} if times.dtype.kind == "O" else ()
    if times.dtype.kind in "UT" or (kinds and all(issubclass(kind, str) for kind in kinds)):
        times = times_of_text(times)
    finite = np.isfinite(times) if times.dtype.kind == "f" else np.ones(n, dtype=bool)
    if times.dtype.kind == "O":
        finite = np.array([time not in (np.inf, -np.inf) for time in times.tolist()], dtype=bool)
    if not finite.all():
        row = int(np.argmin(finite))
        raise ValueError(f"times must be finite, got {shown(times[row])} at position {row}")
    return times, None


def ordered_categories(values):
    """Numbers and array of the categories of values that have an order; else None and None.

    These are an ordered Categorical of pandas, an Enum of polars, and an ordered dictionary of
    pyarrow. The numbers of a table of one column have shape (n, 1).
    """
    if hasattr(values, "iloc") and values.ndim == 2 and values.shape[1] == 1:
        codes, levels = ordered_categories(values.iloc[:, 0])
        return None if codes is None else codes[:, None], levels
    pandas, polars, arrow = map(sys.modules.get, ("pandas", "polars", "pyarrow"))
    kind = getattr(values, "dtype", getattr(values, "type", None))
    if pandas is not None and isinstance(kind, pandas.CategoricalDtype) and kind.ordered:
        codes = pandas.Categorical(values).codes
        return codes.astype(np.int64), np.asarray(kind.categories)
    if polars is not None and isinstance(values, polars.Series) and kind == polars.Enum:
        codes = values.to_physical().cast(polars.Int64).fill_null(-1)
        return codes.to_numpy(), np.asarray(kind.categories.to_list())
    if arrow is not None and isinstance(kind, arrow.DictionaryType) and kind.ordered:
        if isinstance(values, arrow.ChunkedArray):
            values = values.unify_dictionaries().combine_chunks()
        codes = values.indices.cast(arrow.int64()).fill_null(-1)
        return codes.to_numpy(zero_copy_only=False), np.asarray(values.dictionary.to_pylist())
    return None, None


def times_of_text(times):
    """The numbers or dates that text stands for; other text unchanged."""
    words, first, row = np.unique(times, return_index=True, return_inverse=True)
    cells = [str(word).strip() for word in words]
    read = numbers_of_text(cells)
    readings = dates_of_text(cells) if read is None else [read]
    if len(readings) == 1:
        return readings[0][row]
    if readings or (np.diff(first) < 0).any():
        some = f"{', '.join(map(repr, cells[:3]))}{', ...' if len(cells) > 3 else ''}"
        why = ", as days and months of dates cannot be told apart" if readings else ""
        warnings.warn(
            f"times are text, which is taken in the order of the alphabet{why}: {some}; give "
            "numbers, dates like 2024-01-31, or an ordered Categorical of pandas",
            UserWarning,
            stacklevel=level_of_caller(),
        )
    return times


def numbers_of_text(cells):
    """Numbers that all cells stand for; None, too, where float64 would make one of several."""
    if any(not cell.isascii() or "_" in cell for cell in cells):  # which Python would read
        return None
    for kind in (np.int64, np.uint64):
        try:
            return np.array([kind(cell) for cell in cells], dtype=kind)
        except (ValueError, OverflowError):
            continue
    try:
        numbers = np.array([float(cell) for cell in cells])
        finite = np.isfinite(numbers)
        exact = {Decimal(cell) for cell, there in zip(cells, finite, strict=True) if there}
    except (ValueError, ArithmeticError):
        return None
    return numbers if len(np.unique(numbers[finite])) == len(exact) else None


def dates_of_text(cells):
    """The arrays of dates that all cells may stand for: none, one or two."""
    for forms in DATES:
        readings = []
        for form in forms:
            try:
                reading = dates([read_date(cell, form) for cell in cells])
            except (ValueError, OverflowError):
                continue
            if not any(np.array_equal(reading, other) for other in readings):
                readings.append(reading)
        if readings:
            return readings
    return []


def read_date(cell, form):
    """A date as nanoseconds since 1970, in UTC if it has a zone; ValueError if there is none."""
    cell = cell.strip()
    if not cell.isascii() or ZONE_FRACTION.search(cell):
        raise ValueError(f"no date in {cell}")
    nanoseconds = "000"
    if form == "ISO":
        fine = FINE_DIGITS.search(cell)
        if fine:  # which Python would cut off
            nanoseconds = fine[0].rstrip("0").ljust(3, "0")
            if len(nanoseconds) > 3:
                raise ValueError(f"more digits than nanoseconds in {cell}")
            cell = cell[: fine.start()] + cell[fine.end() :]
        date = datetime.fromisoformat(cell)
    else:
        date = _date_with_clock(cell, form)
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return (date - EPOCH) // MICROSECOND * 1000 + int(nanoseconds)


def _date_with_clock(cell, form):
    """The date of a cell of this form, which a time of the day may follow."""
    for clock in CLOCKS:
        try:
            return datetime.strptime(cell, form + clock)
        except ValueError:
            continue
    raise ValueError(f"no date in {cell}")


def dates(nanoseconds):
    """Dates from nanoseconds since 1970; OverflowError if datetime64 cannot hold them."""
    if any(ticks % 1000 for ticks in nanoseconds):
        return np.array(nanoseconds, dtype=np.int64).view("datetime64[ns]")
    microseconds = np.array([ticks // 1000 for ticks in nanoseconds], dtype=np.int64)
    return in_coarse_units(microseconds.view("datetime64[us]"))


def in_coarse_units(times):
    """Dates in the coarsest unit that loses nothing; other times unchanged."""
    if times.dtype.kind != "M":
        return times
    for unit in ("D", "s", "ms", "us"):
        coarse = times.astype(f"datetime64[{unit}]")
        if np.array_equal(coarse, times):
            return coarse
    return times
