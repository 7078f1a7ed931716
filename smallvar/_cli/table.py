"""Tables of numbers from files and standard input: text, .npy and .parquet.

Whatever is the user's to put right in them is raised as `UserError`, whose words name the
file, the line or row and the column.
"""

import os
import re
import shutil
import sys
import tempfile
import zlib
from array import array
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from itertools import chain, islice
from operator import itemgetter

import numpy as np

from smallvar._cli.cells import (
    TIMES,
    TOO_LONG,
    Times,
    has_words,
    is_missing,
    is_number,
    number_with_comma,
    number_with_point,
    shortened,
)
from smallvar._cli.columns import (
    advice_for_infinite,
    empty_columns,
    in_types,
    not_numeric,
    pick_columns,
    refuse_twins,
)
from smallvar._cli.errors import NotNumbersError, UnevenError, UserError, WordsError
from smallvar._cli.formats import WORKBOOK, advice_for_kind, sheet_as_text
from smallvar._cli.layout import (
    Found,
    advice_for_words,
    in_ranges,
    is_total,
    is_units_row,
    look,
)
from smallvar._cli.missing import (
    cleaned,
    header_like,
    marked,
    may_have_codes,
    refuse_codes,
)
from smallvar._cli.output import suffix_of
from smallvar._cli.progress import ProgressLine
from smallvar._cli.text import completed, find_header, text_records
from smallvar._cli.words import counted, option_of, option_of_names, unlike_names
from smallvar._core.row_names import in_coarse_units

BY_BATCHES = (".npy", ".parquet")
TEXT = (".csv", ".tsv", ".txt", ".dat")
THOUSANDS = re.compile(r"\s*[-+]?\d{1,3}([.,]\d{3})+\s*")  # rather than a decimal sign
FIRST_ROWS = 100  # that tell whether there is a header
KEPT_FILES = ExitStack()  # copies of standard input, which are read again; `main` closes it
MOST_UNEVEN = 50  # rows that an error names
LOOK_FOR_WORDS = 1000  # rows in which a column may begin


@dataclass(frozen=True)
class Wanted:
    """What is wanted of a table, as the options say it, and how its text is to be read."""

    columns: str | None = None
    exclude: str | None = None
    time: str | None = None
    drop_missing: bool = False
    decimal: str = "."
    encoding: str | None = None
    header: bool | None = None  # whether the first row of text is one; None: it is found out
    na: Sequence[str] | None = None  # cells that are missing values; with * at the end, beginnings
    skip_rows: Sequence[int] | None = None  # lines; []: what is left out otherwise is kept
    thousands: str | None = None
    id: str | None = None
    found: Found | None = None

    @classmethod
    def of(cls, args):
        """Give what the parsed arguments ask for; not all commands have all options."""
        return cls(**{field.name: getattr(args, field.name, None) for field in fields(cls)})

    @property
    def number(self):
        """Give the function that reads a number."""
        return number_with_point if self.decimal == "." else number_with_comma


@dataclass(frozen=True)
class Source:
    """A file to read: where it is, what to call it, which kind it is, whether it is compressed."""

    path: str
    name: str
    kind: str
    packed: bool = False
    lasting: bool = True  # False: it will be gone once it is read
    notes: tuple[str, ...] = ()  # to stand behind the name


@dataclass(frozen=True)
class Table:
    """Numbers in rows and columns, the titles of the columns, and what to call the whole.

    Where a column of times was asked for, there are also the time of each row, as numbers or
    dates, and the title of that column. Where rows with missing values were dropped, ``kept``
    marks the others among the rows of the input. ``truth`` are the known groups of the rows, of
    data that stand in for the user's. ``notes`` are warnings about how the table was read, and
    ``origin`` is the file and how it was read.
    """

    X: np.ndarray
    titles: list[str]
    name: str
    times: np.ndarray | None = None
    clock: str | None = None
    kept: np.ndarray | None = None
    truth: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    origin: tuple[Source, Wanted] | None = None

    is_mixed = False

    @property
    def n_rows(self):
        """The number of rows of X."""
        return len(self.X)

    @property
    def dropped(self):
        """Count the rows that were dropped."""
        return 0 if self.kept is None else int((~self.kept).sum())


def read_table(path, wanted, otherwise=None, always=False):
    """Read a table, whose values are finite, from a file or (``-``) from standard input.

    A table of words or with gaps is read by ``otherwise``, from the Source, what is wanted and
    the NotNumbersError; without that it is refused. With ``always``, any table is read so.
    """
    readers = dict.fromkeys((*TEXT, WORKBOOK), read_text)
    readers |= {".npy": read_npy, ".parquet": read_parquet}
    try:
        with standard_input() if path == "-" else named_file(path, readers) as source:
            option = text_option(wanted)
            if option is not None and source.kind not in TEXT:
                raise UserError(f"{option}: {source.name} is not a text file")
            table, wanted = read_source(source, wanted, readers[source.kind], otherwise, always)
    except (OSError, EOFError, zlib.error) as error:
        words = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {in_words(path)}: {words}") from error
    except MemoryError as error:
        raise UserError(f"cannot read {in_words(path)}: not enough memory") from error
    # A name is bytes on some systems; what is not text in it becomes an escape.
    name = os.path.basename(in_words(path)).encode(errors="backslashreplace").decode()
    from smallvar._cli.origin import Origin

    return replace(table, name=name, origin=Origin(source, wanted))


def read_source(source, wanted, read, otherwise, always):
    """Read numbers, or what is none, as for `read_table`; also return how it was read.

    A table of text that is not of plain numbers is looked through, and read with what is found.
    """
    is_text = source.kind in TEXT
    if is_text and (always or wanted.thousands is not None):
        wanted = looked_through(source, wanted)
    if always:
        return otherwise(source, wanted, None), wanted
    try:
        return read(source, wanted), wanted
    except NotNumbersError as error:
        refusal = error
    if is_text and wanted.found is None:
        wanted = looked_through(source, wanted)
        try:
            return read(source, wanted), wanted
        except NotNumbersError as error:
            refusal = error
    if otherwise is None or isinstance(refusal, UnevenError):
        if str(refusal).endswith("missing value"):
            raise NotNumbersError(f"{refusal}; --drop-missing leaves such rows out") from refusal
        raise refusal
    return otherwise(source, wanted, refusal), wanted


def looked_through(source, wanted):
    """What is wanted, together with what is found in a text file."""
    with ProgressLine("looking"):
        table = TextTable(source, wanted)
        return replace(wanted, found=look(table, wanted, table.delimiter == ","))


def in_words(path):
    """Say where data come from."""
    return "standard input" if path == "-" else path


@contextmanager
def named_file(path, kinds):
    """Find out how to read a file."""
    size = os.stat(path).st_size
    if os.path.isdir(path):
        raise UserError(f"{path} is a directory")
    packed = suffix_of(path) == ".gz"
    kind = suffix_of(os.path.splitext(path)[0] if packed else path)
    if kind not in (TEXT if packed else kinds):
        advice = "" if packed else advice_for_kind(path, kind)
        raise UserError(
            f"{path}: the name must end in {one_of(kinds)}, or in .gz after {one_of(TEXT)}{advice}"
        )
    if size == 0:
        raise UserError(f"{path} is empty")
    if kind == WORKBOOK:
        folder = KEPT_FILES.enter_context(tempfile.TemporaryDirectory(prefix="smallvar-"))
        text, notes = sheet_as_text(path, folder)
        yield Source(text, path, ".csv", notes=notes)
    else:
        yield Source(path, path, kind, packed)


@contextmanager
def standard_input():
    """Context of a copy of standard input in a file, since tables are read more than once.

    The file is there until the end of the command.
    """
    if sys.stdin is None:
        raise UserError("standard input is closed")
    folder = KEPT_FILES.enter_context(tempfile.TemporaryDirectory(prefix="smallvar-"))
    path = os.path.join(folder, "table")
    with ProgressLine("reading"), open(path, "wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    with open(path, "rb") as file:
        magic = file.read(6)
    if not magic:
        raise UserError("standard input is empty")
    if magic == b"\x93NUMPY":
        kind = ".npy"
    else:
        kind = ".parquet" if magic[:4] == b"PAR1" else ".txt"
    packed = magic[:2] == b"\x1f\x8b"
    yield Source(path, "standard input", kind, packed, lasting=False)


def read_text(source, wanted):
    """Read a text file."""
    with ProgressLine("reading") as progress:
        table = parse_text(source, wanted, progress)
    if wanted.na is None and may_have_codes(table.X):
        refuse_codes(source.name, zip(table.titles, table.X.T, strict=True))
    return table


class TextTable:
    """The rows of a text file, and what its first row says of the columns.

    ``records`` yields the number of the line and the cells of each row below the header, and
    ``width`` is the number of cells of the first row. ``picked``, ``titles`` and ``clock`` are
    from `pick_columns`; ``clock_title`` is what to call the column of the times.
    """

    def __init__(self, source, wanted, progress=None, raw_lines=None):
        self.path, heads = source.name, []
        records = text_records(source, wanted, progress, raw_lines, heads)
        self.first_line, first = next(records, (0, []))
        if not first:
            raise UserError(f"{source.name} is empty")
        self.header = self.told_header = wanted.header
        self.wanted_decimal, doubt = wanted.decimal, None
        near = [(line, marked(cells, wanted.na)) for line, cells in islice(records, FIRST_ROWS)]
        rows = [row for _, row in near]
        first = completed(first, rows, wanted.number)
        self.width = len(first)
        if wanted.header is None:
            self.header, doubt = find_header(
                header_like(first, rows, wanted.number), rows, wanted.number
            )
        notes = [f"{source.name}{note}" for note in (*source.notes, *heads[0].notes)]
        if all(len(cell) > 1 and cell[0] == cell[-1] == "'" for cell in first):
            notes.append(f"{source.name}: single quotes are part of the cells; only double are not")
        self.delimiter, self.skip, self.units = heads[0].delimiter, heads[0].skip, None
        self.found = wanted.found
        if self.header and wanted.skip_rows != [] and near:
            (line, row), *others = near
            if is_units_row(row, [row for _, row in others], wanted.number):
                near, self.units = others, line
                units = ", ".join(repr(cell.strip()) for cell in row if cell.strip())
                notes.append(f"{source.name}, line {line} is left out: units ({units})")
        rows = chain(near if self.header else [(self.first_line, first), *near], records)
        self.records = cleaned(rows, wanted)
        self.names, repeated = None, ()
        if self.header:
            self.names, repeated = unlike_names([name.strip() for name in first])
        names = self.names
        self.picked, self.titles, self.clock = pick_columns(source.name, wanted, names, self.width)
        if names is not None and wanted.columns is None:
            notes += self.without_blank_columns([row for _, row in near])
        if names is not None and self.titles.count("") > (wanted.columns is not None):
            raise UserError(
                f"{source.name}: column {names.index('') + 1} has no name in the header; if it "
                "only numbers the rows, leave it out with --exclude ''"
            )
        for j in self.picked if self.found is not None else ():
            if j in self.found.refused:
                raise self.refusal(j)
        if self.clock is not None:
            self.clock_title = str(self.clock + 1) if names is None else names[self.clock]
        if doubt:
            notes.append(f"{source.name}{note_of_header(self.header, self.first_line, doubt)}")
        found = () if wanted.found is None else self.found.notes
        self.notes = tuple(notes) + tuple(f"{source.name}{note}" for note in [*repeated, *found])

    def without_blank_columns(self, rows):
        """Leave out columns without a name that are empty in the first ``rows``; returns notes."""
        rows = [row for row in rows if len(row) == self.width]
        blank = [
            j
            for j, title in zip(self.picked, self.titles, strict=True)
            if not title and rows and all(is_missing(row[j]) for row in rows)
        ]
        if len(blank) == len(self.picked):
            return []
        self.picked = [j for j in self.picked if j not in blank]
        self.titles = [self.names[j] for j in self.picked]
        return [f"{self.path}, column {j + 1} is left out: no name, and no values" for j in blank]

    @property
    def decimal(self):
        """The decimal sign of the file."""
        signs = self.found.signs.values() if self.found else ()
        return next((sign.decimal for sign in signs), None) or self.wanted_decimal

    def refusal(self, j):
        """The error for a column whose numbers cannot be read."""
        title = self.names[j] if self.names is not None else str(j + 1)
        reason = self.found.refused[j]
        if "give --" not in reason:
            reason += f"; {option_of_names('--exclude', [title])} leaves it out"
        return UserError(f"{self.path}: column {title} {reason}")

    def is_slip(self, title, cell):
        """Whether a cell was found to be unlike the other numbers of a column that is used."""
        slips = self.found.slips if self.found else {}
        return cell.strip() in slips.get(self.picked[self.titles.index(title)], {})

    def advice_of_header(self, line):
        """Text: the option that takes a line as the header, if it was found to be a row."""
        if self.header or self.told_header is not None or line != self.first_line:
            return ""
        return f"; if line {line} is the header: --header"

    def uneven(self, line, cells):
        """The error for a row whose number of cells is not that of the first row."""
        lines = self.found.uneven if self.found else ()
        advice = ""
        if 0 < len(lines) <= MOST_UNEVEN:
            them = "it" if len(lines) == 1 else "such rows"
            advice = f"; --skip-rows {in_ranges(lines)} leaves {them} out"
        usual = self.found.width if self.found and self.header else self.width
        if usual == 2 * self.width > 2 and self.delimiter == ",":
            advice = "; with decimal commas, cells must be in quotes, or ; or tabs between them"
        elif usual == self.width + 1 and usual > 2:
            advice += f", or line {self.first_line} lacks the name of the first column"
        return UnevenError(
            f"{self.path}, line {line}: {counted(len(cells), 'cell')}, but {self.width} in line "
            f"{self.first_line}{advice}"
        )


class Numbers:
    """Numbers, NaN where they are missing, in an array that grows in place."""

    def __init__(self, wanted):
        self.values, self.number, self.gaps = array("d"), wanted.number, wanted.drop_missing
        self.with_point = wanted.decimal == "."

    def add(self, cells):
        """Append cells; False, and nothing is appended, if some are words or gaps not wanted."""
        values, text = self.values, "".join(cells)
        # float is much faster than a function of Python, and reads these as that would
        plain = self.with_point and text.isascii() and "_" not in text
        before = len(values)
        try:
            values.extend(map(float if plain else self.number, cells))
        except ValueError:
            del values[before:]
            if not self.gaps or has_words(cells, self.number):
                return False
            values.extend(np.nan if is_missing(cell) else self.number(cell) for cell in cells)
        return True


def note_of_header(header, line, doubt):
    """The warning, to stand behind the name of the file, about what the first row is taken for."""
    ways = ("--header", "a row", "the header")
    option, taken, other = ("--no-header", "the header", "a row") if header else ways
    return f", line {line} is taken as {taken}, {doubt}; {option} takes it as {other}"


def text_option(wanted):
    """The first option given that says how to read text; ``wanted`` or the parsed arguments."""
    if wanted.decimal != ".":
        return f"--decimal {wanted.decimal}"
    if wanted.encoding is not None:
        return f"--encoding {wanted.encoding}"
    for name in ("na", "skip_rows", "thousands"):
        if getattr(wanted, name, None) is not None:
            return option_of(name)
    return {None: None, True: "--header", False: "--no-header"}[wanted.header]


def parse_text(source, wanted, progress):
    """Turn a text file into a table, noting how far that is."""
    path, table = source.name, TextTable(source, wanted, progress)
    picked, titles, clock = table.picked, table.titles, table.clock
    # A slice for a single column: itemgetter(0) would return a cell, not a row of one cell.
    pick = itemgetter(*picked) if len(picked) > 1 else itemgetter(slice(picked[0], picked[0] + 1))
    numbers = Numbers(wanted)
    times = None if clock is None else Times(wanted.drop_missing, wanted.number)
    for line, cells in table.records:
        if len(cells) != table.width:
            raise table.uneven(line, cells)
        row = pick(cells)
        if not numbers.add(row):
            same = (pick(cells) for _, cells in table.records if len(cells) == table.width)
            error = explain_cells(table, row, None if numbers.values else same, wanted)
            raise type(error)(f"{path}, line {line}{error}{table.advice_of_header(line)}")
        if times is not None:
            try:
                times.add(cells[clock])
            except ValueError:
                where = f"{path}, line {line}, column {table.clock_title}"
                raise NotNumbersError(f"{where}: {times.explain(cells[clock])}") from None
    if not numbers.values:
        raise UserError(f"{path} has a header but no rows")
    if wanted.found is None and is_total(cells) and wanted.skip_rows != []:
        raise NotNumbersError(f"{path}, line {line}: a total or mean of the others")
    X = np.frombuffer(numbers.values).reshape(-1, len(picked))

    def place(row):
        line, _ = next(islice(TextTable(source, wanted).records, row - 1, None))
        return f"line {line}"

    try:
        moments = () if times is None else (times.array(), table.clock_title)
    except ValueError as error:
        raise UserError(f"{path}, column {table.clock_title}: {error}") from None
    return replace(checked(source, wanted, X, titles, *moments, place=place), notes=table.notes)


def explain_cells(table, cells, later, wanted):
    """Say what is wrong with a row of which not every cell is a number.

    ``later`` are the rows that follow the first one, if this is it: there, columns with a gap in
    the first row begin. The words of the error stand behind the file and the number of the line.
    """
    titles = table.titles
    bad = [
        (title, cell)
        for title, cell in zip(titles, cells, strict=True)
        if not is_number(cell, wanted.number) and not (wanted.drop_missing and is_missing(cell))
    ]
    words = [f"{title} ({shortened(cell)})" for title, cell in bad if not is_missing(cell)]
    swapped = Wanted(decimal="," if wanted.decimal == "." else ".")
    hint = ""
    other = [
        is_number(cell, swapped.number) and not THOUSANDS.fullmatch(cell)
        for title, cell in bad
        if not table.is_slip(title, cell)
    ]
    if any(other):
        hint = f" (or give --decimal {swapped.decimal})"
    if later is not None and words:  # columns of words, rather than a slip in one row
        return WordsError(not_numeric(words, columns_of_words(titles, cells, later, wanted), hint))
    title, cell = bad[0]
    if is_missing(cell):
        if table.found is not None and table.picked[titles.index(title)] in table.found.empty:
            return NotNumbersError(f", {empty_columns([title])}")
        return NotNumbersError(f", column {title}: missing value")
    advice = advice_of(table)
    return NotNumbersError(f", column {title}: {shortened(cell)} is not a number{hint}{advice}")


def advice_of(table):
    """Text: the options that read a TextTable in spite of the words in its columns of numbers."""
    words = {}
    if table.found is not None and (again := table.found.again):
        which = f"line {in_ranges(again)} repeats" if len(again) == 1 else "some lines repeat"
        them = "it" if len(again) == 1 else "them"
        return f"; {which} the header: --skip-rows {in_ranges(again)} leaves {them} out"
    for j in table.picked if table.found is not None else ():
        words |= table.found.slips.get(j, {})
    return advice_for_words(words) if words else ""


def columns_of_words(titles, cells, later, wanted):
    """Find the columns whose first cell that is not missing is no number."""
    begin = list(cells)
    for row in islice(later, LOOK_FOR_WORDS):
        if not any(map(is_missing, begin)):
            break
        begin = [new if is_missing(old) else old for old, new in zip(begin, row, strict=True)]
    return [
        title for title, cell in zip(titles, begin, strict=True) if has_words([cell], wanted.number)
    ]


def open_npy(source):
    """Map a .npy file into memory."""
    path = source.name
    try:
        if source.lasting:
            X = np.lib.format.open_memmap(source.path, mode="r")
        else:
            with open(source.path, "rb") as file:
                X = np.lib.format.read_array(file)
    except (ValueError, EOFError) as error:
        raise UserError(f"{path}: {error}") from error
    if X.dtype.kind not in "biuf":
        raise UserError(f"{path} holds values of type {X.dtype}, not real numbers")
    if X.ndim != 2:
        raise UserError(f"{path} holds an array of shape {X.shape}, not rows and columns")
    return X


def read_npy(source, wanted):
    """Take the columns of a .npy file."""
    path, X = source.name, open_npy(source)
    picked, titles, clock = pick_columns(path, wanted, None, X.shape[1])
    whole = X
    if picked != list(range(X.shape[1])):
        X = X[:, picked]
    if clock is None:
        return checked(source, wanted, X, titles)
    times = np.array(whole[:, clock], dtype=X.dtype if X.dtype.kind in "iu" else np.float64)
    return checked(source, wanted, X, titles, times, str(clock + 1))


def read_frame(source):
    """Read a .parquet file with pandas."""
    path = source.name
    try:
        import pandas as pd
        from pyarrow import parquet

        refuse_twins(path, parquet.read_schema(source.path).names)
        frame = pd.read_parquet(source.path)
        # columns that pandas had as the index
        return frame if set(frame.index.names) == {None} else frame.reset_index()
    except ImportError as error:
        raise UserError(
            f"reading {path} needs pandas and pyarrow: pip install 'smallvar[parquet]'"
        ) from error
    except ValueError as error:  # what pyarrow raises for a damaged file is one
        raise UserError(f"{path}: {error}") from error


def read_parquet(source, wanted):
    """Take the columns of a .parquet file."""
    path, frame = source.name, read_frame(source)
    import pandas as pd

    names = [str(name) for name in frame.columns]
    picked, titles, clock = pick_columns(path, wanted, names, len(names))
    moments = None if clock is None else frame.iloc[:, clock]
    frame = frame.iloc[:, picked]
    refused = in_types(titles, frame.dtypes, pd.api.types.is_numeric_dtype)
    if refused:
        raise WordsError(f"{path}{not_numeric(*refused)}")
    narrow = all(dtype == np.float32 for dtype in frame.dtypes)
    X = frame.to_numpy(dtype=np.float32 if narrow else np.float64, na_value=np.nan)
    if clock is None:
        return checked(source, wanted, X, titles)
    kind = moments.dtype
    try:
        if isinstance(kind, pd.CategoricalDtype):
            if kind.ordered and not kind.categories.is_monotonic_increasing:
                raise ValueError("an order that is not that of numbers or dates")
            moments = moments.astype(kind.categories.dtype)
        if pd.api.types.is_numeric_dtype(moments.dtype):
            whole = moments.dtype.kind in "iu" and not moments.hasnans
            times = moments.to_numpy() if whole else moments.to_numpy(np.float64, na_value=np.nan)
            if len(np.unique(times[times == times])) < moments.nunique():
                raise UserError(f"{path}, column {names[clock]}: {TOO_LONG}")
        elif moments.dropna().map(lambda cell: isinstance(cell, str)).all():
            reader = Times(True, number_with_point)  # as in a table of text
            for cell in moments:
                reader.add(cell if isinstance(cell, str) else "")
            times = reader.array()
        else:
            moments = pd.to_datetime(moments, format="ISO8601", utc=True)
            times = moments.dt.tz_localize(None).to_numpy()
    except (ValueError, TypeError):
        raise UserError(f"{path}, column {names[clock]} ({kind}): times must be {TIMES}") from None
    return checked(source, wanted, X, titles, times, names[clock])


def checked(source, wanted, X, titles, times=None, clock=None, place="row {}".format):
    """Make a Table, yet without a name, of values that are all there and finite.

    ``clock`` is what to call the column of the times; ``place`` turns the number of a row, from
    1, into words for error messages.
    """
    n, d = X.shape
    if X.size == 0:
        raise UserError(f"{source.name} has no values: {counted(n, 'row')}, {counted(d, 'column')}")
    kept = find_gaps(source, wanted, X, titles, place)
    if times is not None:
        kept &= find_gaps(source, wanted, times[:, np.newaxis], [clock], place)
    if kept.all():
        kept = None
    elif not kept.any():
        empty = [title for title, column in zip(titles, X.T, strict=True) if np.isnan(column).all()]
        if empty:
            raise UserError(f"{source.name}: {empty_columns(empty)}")
        raise UserError(f"{source.name}: --drop-missing leaves no row, each has a missing value")
    else:
        X, times = X[kept], None if times is None else times[kept]
    times = None if times is None else in_coarse_units(times)
    return Table(X, titles, "", times, clock, kept)


def find_gaps(source, wanted, X, titles, place):
    """Mark the rows without missing values; refuse infinite ones, and gaps not to be dropped."""
    kept = np.ones(len(X), dtype=bool)
    step = max(1, 2**20 // X.shape[1])
    for start in range(0, len(X), step):
        block = X[start : start + step]
        finite = np.isfinite(block)
        if finite.all():
            continue
        missing = np.isnan(block)
        wrong = ~finite & ~missing if wanted.drop_missing else ~finite
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            what = "missing" if missing[row, column] else "infinite"
            refusal = NotNumbersError if missing[row, column] else UserError
            where = place(start + row + 1)
            words = f"{source.name}, {where}, column {titles[column]}: {what} value"
            if source.kind in TEXT and not missing[row, column]:
                words += advice_for_infinite(block[row, column])
            raise refusal(words)
        kept[start : start + step] = ~missing.any(axis=1)
    return kept


# ---------------------------------------------------------------------------------------
# Words


def one_of(options):
    """List options with an "or" before the last."""
    *others, last = options
    return f"{', '.join(others)} or {last}"


def without_option(option):
    """Say that a table of words or with gaps is taken without an option."""
    return f"without {option}, words and gaps are taken, too, each column by its kind (--kinds)"
