"""Tables of numbers from files: .csv, .tsv, .npy and .parquet.

Whatever is the user's to put right in them is raised as `UserError`, whose words name the
file, the line or row and the column.
"""

import csv
import os
from array import array
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from operator import itemgetter
from typing import NamedTuple

import numpy as np

MISSING = frozenset(["", "?", "-", "na", "n/a", "#n/a", "nan", "null", "none"])
EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
TIMES = "numbers or dates like 2024-01-31T12:00:00"


class UserError(Exception):
    """Something only the user can put right: told in one line, without a traceback."""


class Table(NamedTuple):
    """Numbers in rows and columns, the titles of the columns, and what to call the whole.

    Where a column of times was asked for, there are also the time of each row, as numbers or
    dates, and the title of that column.
    """

    X: np.ndarray
    titles: list[str]
    name: str
    times: np.ndarray | None = None
    clock: str | None = None


def read_table(path, columns, time=None):
    """Read a table from a file.

    Parameters
    ----------
    path : str
        The file; its suffix tells how to read it.
    columns : str or None
        The columns to use, for `pick_columns`.
    time : str, optional
        The column that holds the time of each row, likewise.

    Returns
    -------
    table : Table
        At least one row and one column, all values finite.
    """
    readers = {".csv": read_text, ".tsv": read_text, ".npy": read_npy, ".parquet": read_parquet}
    suffix = suffix_of(path)
    try:
        size = os.stat(path).st_size
        if os.path.isdir(path):
            raise UserError(f"{path} is a directory")
        if suffix not in readers:
            raise UserError(f"{path}: the name must end in {one_of(readers)}")
        if size == 0:
            raise UserError(f"{path} is empty")
        X, titles, *times = readers[suffix](path, columns, time)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise UserError(f"cannot read {path}: not enough memory") from error
    # A name is bytes on some systems; what is not text in it becomes an escape.
    name = os.path.basename(path).encode(errors="backslashreplace").decode()
    return Table(X, titles, name, *times)


def read_text(path, columns, time):
    """Read a .csv or .tsv file."""
    records = text_records(path)
    first_line, first = next(records, (0, []))
    if not first:
        raise UserError(f"{path} is empty")
    d = len(first)
    header = is_header(first)
    names = [name.strip() for name in first] if header else None
    if header and columns is None and "" in names:
        raise UserError(
            f"{path}: column {names.index('') + 1} has no name in the header; if it only numbers "
            "the rows, leave it out with --columns"
        )
    if not header:
        records = chain([(first_line, first)], records)
    picked, titles, clock = pick_columns(path, columns, names, d, time)
    # A slice for a single column: itemgetter(0) would return a cell, not a row of one cell.
    pick = itemgetter(*picked) if len(picked) > 1 else itemgetter(slice(picked[0], picked[0] + 1))
    values = array("d")  # grows in place: the numbers are never held twice
    times = None
    for line, cells in records:
        if len(cells) != d:
            raise UserError(
                f"{path}, line {line}: {counted(len(cells), 'cell')}, but {d} in line {first_line}"
            )
        try:
            values.extend(map(float, pick(cells)))
        except ValueError:
            in_first_row = len(values) < len(picked)
            complaint = explain_cells(titles, pick(cells), in_first_row)
            raise UserError(f"{path}, line {line}{complaint}") from None
        if clock is not None:
            times = new_times(cells[clock]) if times is None else times
            try:
                times.append(float(cells[clock]) if times.typecode == "d" else ticks(cells[clock]))
            except ValueError:
                complaint = explain_time(cells[clock], times)
                title = str(clock + 1) if names is None else names[clock]
                raise UserError(f"{path}, line {line}, column {title}: {complaint}") from None
    if not values:
        raise UserError(f"{path} has a header but no rows")
    X = np.frombuffer(values).reshape(-1, len(picked))

    def place(row):
        line, _ = next(islice(text_records(path), row - 1 + header, None))
        return f"line {line}"

    check_values(path, X, titles, place)
    if clock is None:
        return X, titles
    dates = times.typecode == "q"
    times = np.frombuffer(times, dtype="datetime64[us]" if dates else np.float64)
    title = str(clock + 1) if names is None else names[clock]
    check_values(path, times[:, np.newaxis], [title], place)
    return X, titles, in_coarse_units(times), title


def text_records(path):
    """Yield the line number and the cells of every row that is not blank."""
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        sample = list(islice(file, 20))
        if any("\0" in line for line in sample):
            raise UserError(f"{path} is not a text file in UTF-8")
        file.seek(0)
        width = gap = None
        try:
            delimiter = "\t" if suffix_of(path) == ".tsv" else sniff_delimiter(sample)
            reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True)
            for cells in reader:
                if not cells or (len(cells) == 1 and width != 1 and not cells[0]):
                    if width == 1:  # in a table of one column this may be a missing value
                        gap = gap or reader.line_num
                    continue
                if gap:
                    raise UserError(f"{path}, line {gap}: missing value")
                width = width or len(cells)
                yield reader.line_num, cells
        except csv.Error as error:
            raise UserError(f"{path}: {error}") from error


def sniff_delimiter(lines):
    """Tell tab, semicolon and comma apart; the comma, most likely inside text, comes last."""
    lines = [line for line in lines if line.strip()]
    for delimiter in "\t;,":
        widths = {len(cells) for cells in csv.reader(lines, delimiter=delimiter)}
        if len(widths) == 1 and widths != {1}:
            return delimiter
    return max(",;\t", key=lines[0].count) if lines else ","


def is_header(cells):
    """Tell whether the first row holds names: words only, or pandas' 0, 1, 2, ..."""
    numbered = cells if cells[0].strip() else cells[1:]
    if len(numbered) > 2 and numbered == [str(i) for i in range(len(numbered))]:
        return True
    words = [cell for cell in cells if not is_missing(cell)]
    return bool(words) and not any(map(is_number, words))


def is_number(cell):
    """Tell whether a cell reads as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def is_missing(cell):
    """Tell whether a cell stands for a missing value."""
    return cell.strip().lower() in MISSING


def new_times(cell):
    """Make an empty array for times like the first one: numbers, or dates in microseconds."""
    try:
        ticks(cell)
    except ValueError:
        return array("d")
    return array("d" if is_number(cell) else "q")


def ticks(cell):
    """Read a date in the ISO format as microseconds from 1970, in UTC where it names no zone."""
    date = datetime.fromisoformat(cell.strip())
    return ((date if date.tzinfo else date.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND


def explain_time(cell, times):
    """Say what is wrong with a time that does not read like those before it."""
    if is_missing(cell):
        return "missing value"
    likewise = "dates like those before" if times.typecode == "q" else "numbers like those before"
    return f"times must be {likewise if times else TIMES}, got {shortened(cell)}"


def in_coarse_units(times):
    """Give dates in days or seconds where nothing is lost; whatever else is not touched."""
    if times.dtype.kind != "M":
        return times
    for unit in ("D", "s", "ms", "us"):
        coarse = times.astype(f"datetime64[{unit}]")
        if np.array_equal(coarse, times):
            return coarse
    return times


def explain_cells(titles, cells, in_first_row):
    """Say what is wrong with a row of which not every cell is a number."""
    bad = [(title, cell) for title, cell in zip(titles, cells, strict=True) if not is_number(cell)]
    words = [f"{title} ({shortened(cell)})" for title, cell in bad if not is_missing(cell)]
    if in_first_row and words:  # columns of words, rather than a slip in one row
        return not_numeric(words)
    title, cell = bad[0]
    problem = "missing value" if is_missing(cell) else f"{shortened(cell)} is not a number"
    return f", column {title}: {problem}"


def not_numeric(words):
    """Refuse columns that do not hold numbers."""
    more = f" and {len(words) - 5} more" if len(words) > 5 else ""
    noun = "column" if len(words) == 1 else "columns"
    return f": {noun} {', '.join(words[:5])}{more} not numeric; choose others with --columns"


def read_npy(path, columns, time):
    """Map a .npy file into memory."""
    try:
        X = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, EOFError) as error:
        raise UserError(f"{path}: {error}") from error
    if X.dtype.kind not in "biuf":
        raise UserError(f"{path} holds values of type {X.dtype}, not real numbers")
    if X.ndim != 2:
        raise UserError(f"{path} holds an array of shape {X.shape}, not rows and columns")
    picked, titles, clock = pick_columns(path, columns, None, X.shape[1], time)
    if clock is not None:
        times = np.array(X[:, clock], dtype=X.dtype if X.dtype.kind in "iu" else np.float64)
    if columns is not None or clock is not None:
        X = X[:, picked]
    check_values(path, X, titles)
    if clock is None:
        return X, titles
    title = str(clock + 1)
    check_values(path, times[:, np.newaxis], [title])
    return X, titles, times, title


def read_parquet(path, columns, time):
    """Read a .parquet file with pandas."""
    try:
        import pandas as pd

        frame = pd.read_parquet(path)
    except ImportError as error:
        raise UserError(
            f"reading {path} needs pandas and pyarrow: pip install pandas pyarrow"
        ) from error
    except ValueError as error:  # what pyarrow raises for a damaged file is one
        raise UserError(f"{path}: {error}") from error
    names = [str(name) for name in frame.columns]
    picked, titles, clock = pick_columns(path, columns, names, len(names), time)
    moments = None if clock is None else frame.iloc[:, clock]
    frame = frame.iloc[:, picked]
    columns_of_words = [
        f"{title} ({dtype})"
        for title, dtype in zip(titles, frame.dtypes, strict=True)
        if not pd.api.types.is_numeric_dtype(dtype)
    ]
    if columns_of_words:
        raise UserError(f"{path}{not_numeric(columns_of_words)}")
    narrow = all(dtype == np.float32 for dtype in frame.dtypes)
    X = frame.to_numpy(dtype=np.float32 if narrow else np.float64, na_value=np.nan)
    check_values(path, X, titles)
    if clock is None:
        return X, titles
    try:
        if pd.api.types.is_numeric_dtype(moments.dtype):
            whole = moments.dtype.kind in "iu" and not moments.hasnans
            times = moments.to_numpy() if whole else moments.to_numpy(np.float64, na_value=np.nan)
        else:
            moments = pd.to_datetime(moments, format="ISO8601", utc=True)
            times = moments.dt.tz_localize(None).to_numpy()
    except (ValueError, TypeError):
        kind = moments.dtype
        raise UserError(f"{path}, column {names[clock]} ({kind}): times must be {TIMES}") from None
    check_values(path, times[:, np.newaxis], [names[clock]])
    return X, titles, in_coarse_units(times), names[clock]


def pick_columns(source, spec, names, d, time=None):
    """Find the columns that ``--columns`` and ``--time`` ask for.

    Parameters
    ----------
    source : str
        What the columns are taken from, for error messages.
    spec : str or None
        The value of ``--columns``.
    names : list of str or None
        The names of all columns; without names they go by position, from 1.
    d : int
        How many columns there are.
    time : str, optional
        The value of ``--time``.

    Returns
    -------
    picked : list of int
        The positions of the columns, from 0: all but that of the times where ``spec`` is None.
    titles : list of str
        What to call them.
    clock : int or None
        The position of the column of the times.
    """
    titles = [str(i + 1) for i in range(d)] if names is None else names

    def find(title, option=f"--columns {spec}"):
        if titles.count(title) != 1:
            count = titles.count(title) or "no"
            noun = "column" if count == "no" else "columns"
            raise UserError(
                f"{option}: {source} has {count} {noun} {title!r}, but {columns_in_short(titles)}"
            )
        return titles.index(title)

    clock = None if time is None else find(time.strip(), f"--time {time}")
    if spec is None:
        picked = [i for i in range(d) if i != clock]
        if d == 1 and not picked:
            raise UserError(f"--time {time}: {source} has no other column")
        return picked, [titles[i] for i in picked], clock

    picked = []
    for item in next(csv.reader([spec], skipinitialspace=True)):
        first, colon, last = map(str.strip, item.partition(":"))
        if colon and item.strip() not in titles:
            picked += range(find(first) if first else 0, (find(last) if last else d - 1) + 1)
        else:
            picked.append(find(item.strip()))
    if not picked or len(set(picked)) < len(picked):
        raise UserError(f"--columns {spec}: names {'a column twice' if picked else 'no column'}")
    return picked, [titles[i] for i in picked], clock


def check_values(path, X, titles, place="row {}".format):
    """Refuse a table without values, or with one that is missing or infinite.

    Parameters
    ----------
    path : str
        The file, for error messages.
    X : ndarray of shape (n, d)
        The numbers.
    titles : list of str
        What to call the columns.
    place : callable
        Turns the number of a row, counted from 1, into words.
    """
    n, d = X.shape
    if X.size == 0:
        raise UserError(f"{path} has no values: {counted(n, 'row')}, {counted(d, 'column')}")
    step = max(1, 2**20 // d)
    for start in range(0, n, step):
        finite = np.isfinite(X[start : start + step])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            what = "missing" if np.isnan(X[start + row, column]) else "infinite"
            where = place(start + row + 1)
            raise UserError(f"{path}, {where}, column {titles[column]}: {what} value")


def square_of(X):
    """Sum the squares of a table, whatever its type, a block at a time."""
    step = max(1, 2**20 // X.shape[1])
    blocks = (np.asarray(X[i : i + step], dtype=np.float64) for i in range(0, len(X), step))
    return float(sum(np.square(block).sum() for block in blocks))


# ---------------------------------------------------------------------------------------
# Words


def suffix_of(path):
    """Take the suffix of a path in lower case, with its dot."""
    return os.path.splitext(path)[1].lower()


def counted(count, noun):
    """Put a number before a noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def one_of(options):
    """List options with an "or" before the last."""
    *others, last = options
    return f"{', '.join(others)} or {last}"


def shortened(cell):
    """Quote a cell, cut where it is long."""
    cell = cell.strip()
    return repr(cell if len(cell) <= 30 else f"{cell[:27]}...")


def columns_in_short(titles):
    """Say how many columns there are and what they are called."""
    shown = titles if len(titles) <= 6 else [*titles[:4], "...", titles[-1]]
    return f"{counted(len(titles), 'column')}: {', '.join(shown)}"


def explained(error, energy):
    """Say which share of the square of the data is explained."""
    return f"{max(0.0, 1 - error / energy) if energy else 1:.1%}"


def clock_title(table):
    """Say what the column of the times is called."""
    return f"column {table.clock}" if table.clock.isdigit() else table.clock


def moment(time):
    """Write a time, a number or a date, so that it reads back exactly."""
    if time.dtype.kind == "f" and time.is_integer() and abs(time) < 2**63:
        return str(int(time))
    return str(time)
