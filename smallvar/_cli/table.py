"""Tables from files and standard input: text, .npy, .parquet and .xlsx.

Which columns are used, whether they are numbers without gaps, and what the user is told of them.
Whatever is the user's to put right is raised as `UserError`, whose words name the file, the line or
row and the column.
"""

import csv
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import warnings
import zlib
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import compress, permutations
from time import perf_counter
from typing import Any

import numpy as np

from smallvar._cli.cells import DATE_CELL, shortened
from smallvar._cli.output import complain, say, suffix_of
from smallvar._cli.text import TextFile
from smallvar._cli.words import (
    UserError,
    counted,
    names_of_option,
    option_of,
    option_of_names,
)
from smallvar._core.identifiers import identifies

TEXT = (".csv", ".tsv", ".txt", ".dat")
WORKBOOK = ".xlsx"
READABLE = (*TEXT, WORKBOOK, ".npy", ".parquet")
KEPT_FILES = ExitStack()  # copies of standard input, which are read again; `main` closes it
# functions of pandas that read other kinds of files
READERS = dict.fromkeys((".json", ".html", ".feather", ".orc"), "") | {
    **{".xls": "excel", ".ods": "excel", ".sav": "spss", ".dta": "stata", ".sas7bdat": "sas"},
    **{".xpt": "sas", ".arrow": "feather", ".pkl": "pickle", ".h5": "hdf"},
}
INDEX_NAME = re.compile(r"__index_level_\d+__")  # as pandas names an index without a name
# numbers that stand for missing values where they lie far from all others
SENTINELS = frozenset([-99.0, *(sign * (10.0**k - 1) for k in range(3, 7) for sign in (-1, 1))])
FAR = 5  # a sentinel above the others is so many times as large
FEWEST_OTHERS = 5  # values: fewer do not tell
# rows and columns among which columns that tell the same are looked for, and the share of the rows
# in which one column tells the other, which must not have the same value in most of them
TOLD_ROWS, COMPARED_COLUMNS, TOLD_SHARE, USUAL_SHARE = 10_000, 30, 0.95, 0.75
FEWEST_LEVELS = 5  # of columns that tell the same: fewer hardly decide
MERGED_SHARE = 0.5  # of the cells of a column, at least: gaps that merged cells leave


@dataclass(frozen=True)
class Table:
    """Rows and columns, the titles of the columns, and what to call the whole.

    ``X`` is an array (n, d) of numbers without gaps; or, if the table is mixed, a dict of columns
    by title or a DataFrame, and ``why`` says why (None: --kinds asks for it). Where rows with
    missing values were dropped, ``kept`` marks the others among those of the input. ``notes`` are
    warnings about how the table was read, and ``origin`` is the file, to be read again for --out.
    """

    X: Any
    titles: list[str]
    name: str
    kept: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    why: str | None = None
    origin: Any = None

    @property
    def is_mixed(self):
        """Whether the columns may have words and gaps."""
        return not isinstance(self.X, np.ndarray)

    @property
    def n_rows(self):
        """The number of rows."""
        return len(next(iter(self.X.values()))) if isinstance(self.X, dict) else len(self.X)


@dataclass(frozen=True)
class Source:
    """A file to read: where it is, what to call it, which kind it is, whether it is compressed."""

    path: str
    name: str
    kind: str
    packed: bool = False
    notes: tuple[str, ...] = ()  # to stand behind the name

    def frame(self):
        """The DataFrame of a .parquet file."""
        try:
            import pandas as pd
            from pyarrow import parquet
        except ImportError as error:
            raise UserError(
                f"reading {self.name} needs pandas and pyarrow: pip install 'smallvar[parquet]'"
            ) from error
        try:
            names = parquet.read_schema(self.path).names
            twice = [name for name, count in Counter(names).items() if count > 1]
            frame = None if twice else pd.read_parquet(self.path)
        except MemoryError:
            raise
        except Exception as error:  # of any type where the file is damaged
            raise UserError(f"{self.name}: {error}") from error
        if twice:  # which pandas cannot read
            count = names.count(twice[0])
            raise UserError(f"{self.name} has {count} columns {twice[0]!r}; rename all but one")
        # columns that pandas had as the index
        return frame if set(frame.index.names) == {None} else frame.reset_index()


# ---------------------------------------------------------------------------------------
# The columns that are used


def pick_columns(name, args, titles):
    """The positions of the columns that ``--columns`` and ``--exclude`` ask for."""
    picked = list(range(len(titles)))
    if args.columns is not None:
        picked = positions_of(name, titles, "--columns", args.columns)
    if args.exclude is not None:
        excluded = set(positions_of(name, titles, "--exclude", args.exclude))
        picked = [j for j in picked if j not in excluded]
        if not picked:
            raise UserError(f"--exclude {args.exclude}: leaves no column of {name}")
    return picked


def positions_of(name, titles, option, spec):
    """Find the positions of the columns that an option lists."""
    option, positions = f"{option} {spec}", []

    def position_of(title):
        if title not in titles:
            there = columns_in_short(titles)
            raise UserError(f"{option}: {name} has no column {title!r}, but {there}")
        return titles.index(title)

    items = names_of_option(option, spec)
    if not items and "" in titles:  # a column without a name
        items = [""]
    for item in map(str.strip, items):
        first, colon, last = map(str.strip, item.partition(":"))
        if colon and item not in titles:
            start = position_of(first) if first else 0
            positions += range(start, position_of(last) + 1 if last else len(titles))
        elif not item:
            positions += [j for j, title in enumerate(titles) if not title]
        else:
            positions.append(position_of(item))
    if not positions or len(set(positions)) < len(positions):
        raise UserError(f"{option}: names {'a column twice' if positions else 'no column'}")
    return positions


def columns_in_short(titles):
    """Say how many columns there are and what they are called."""
    shown = titles if len(titles) <= 6 else [*titles[:4], "...", titles[-1]]
    return f"{counted(len(titles), 'column')}: {', '.join(shown)}"


# ---------------------------------------------------------------------------------------
# Files


def load(args):
    """Read the table that the user names, or take the wines; returns it and the seconds.

    The notes on how it was read are printed.
    """
    begin = perf_counter()
    table = wines(args) if args.data is None else read_table(args.data, args)
    seconds = perf_counter() - begin
    if args.data is None:
        say(
            f"No TABLE given, so these are {len(table.X)} wines of 3 cultivars that scikit-learn "
            "ships, their columns scaled (as by --scale).\n"
            "Your own: smallvar FILE (.csv, .tsv, .txt, .npy or .parquet, - for standard input); "
            "all options: smallvar --help\n"
        )
    for note in table.notes:
        complain("warning:", note)
    return table, seconds


def wines(args):
    """The wines of scikit-learn."""
    from sklearn.datasets import load_wine

    data = load_wine()
    titles = list(data.feature_names)
    picked = pick_columns("the set of wines", args, titles)
    titles = [titles[j] for j in picked]
    table = Table(data.data[:, picked], titles, "wines")
    without_identifiers(table, args)  # which refuses unknown names
    return table


def read_table(path, args):
    """Read a table from a file or (``-``) from standard input."""
    shown = "standard input" if path == "-" else path
    try:
        source = standard_input() if path == "-" else named_file(path)
        if source.kind == WORKBOOK:
            source = sheet_as_text(source)
        read = {".npy": read_npy, ".parquet": read_parquet}.get(source.kind, read_text)
        table = read(source, args)
    except (OSError, EOFError, zlib.error) as error:
        words = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {shown}: {words}") from error
    except MemoryError as error:
        raise UserError(f"cannot read {shown}: not enough memory") from error
    return without_identifiers(table, args)


def standard_input():
    """The Source of a copy of standard input, which is kept until the end of the command."""
    if sys.stdin is None:
        raise UserError("standard input is closed")
    folder = KEPT_FILES.enter_context(tempfile.TemporaryDirectory(prefix="smallvar-"))
    path = os.path.join(folder, "table")
    with open(path, "w+b") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.seek(0)
        magic = file.read(6)
    if not magic:
        raise UserError("standard input is empty")
    starts = {b"\x93NUMPY": ".npy", b"PAR1": ".parquet", b"PK\3\4": WORKBOOK}
    kind = next((kind for start, kind in starts.items() if magic.startswith(start)), ".txt")
    return Source(path, "standard input", kind, magic[:2] == b"\x1f\x8b")


def named_file(path):
    """The Source of a file."""
    size = os.stat(path).st_size
    if os.path.isdir(path):
        raise UserError(f"{path} is a directory")
    packed = suffix_of(path) == ".gz"
    kind = suffix_of(os.path.splitext(path)[0] if packed else path)
    if kind not in (TEXT if packed else READABLE):
        advice = "" if packed else advice_for_kind(path, kind)
        raise UserError(
            f"{path}: the name must end in {one_of(READABLE)}, or in .gz after {one_of(TEXT)}"
            f"{advice}"
        )
    if size == 0:
        raise UserError(f"{path} is empty")
    return Source(path, path, kind, packed)


def advice_for_kind(path, kind):
    """Text: how a file of another kind becomes a table that is read; empty if that is not known."""
    if kind in (".rds", ".rda", ".rdata"):
        return "; in R, write.csv(table, 'table.csv', row.names = FALSE) makes a .csv file"
    if kind not in READERS:
        return ""
    reader = READERS[kind] or kind[1:]
    # double quotes inside those of the shell
    here, there = map(json.dumps, (path, f"{os.path.splitext(path)[0]}.csv"))
    first = "[0]" if reader == "html" else ""
    code = f"import pandas; pandas.read_{reader}({here}){first}.to_csv({there}, index=False)"
    return f"; save it as .csv, or python -c {shlex.quote(code)}"


def sheet_as_text(source):
    """Write the first worksheet of an .xlsx file to a .csv file; returns the Source of this."""
    try:
        import openpyxl
    except ImportError as error:
        raise UserError(
            f"reading {source.name} needs openpyxl: pip install openpyxl, or save the worksheet as "
            ".csv"
        ) from error
    folder = KEPT_FILES.enter_context(tempfile.TemporaryDirectory(prefix="smallvar-"))
    try:
        with warnings.catch_warnings(), open(source.path, "rb") as file:
            warnings.simplefilter("ignore")  # of styles and extensions that are not read
            # formulas count as the values that they had when the file was saved
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            names, rows = [sheet.title for sheet in book.worksheets], []
            if names:
                sheet = book.worksheets[0]
                sheet.reset_dimensions()  # which a file may state wrongly
                for cells in sheet.iter_rows(values_only=True):
                    there = [j for j, cell in enumerate(cells) if cell is not None]
                    rows.append(list(cells[: there[-1] + 1]) if there else [])
    except Exception as error:  # openpyxl raises errors of any type for damaged files
        raise UserError(f"{source.name} is no .xlsx file that can be read: {error!r}") from error
    if not names:
        raise UserError(f"{source.name} has no worksheet")
    while rows and not rows[-1]:  # a cell that has only a format
        rows.pop()
    width, others = max(map(len, rows), default=0), ", ".join(map(repr, names[1:]))
    if others and not any(len(row) - row.count(None) > 1 for row in rows):
        raise UserError(
            f"{source.name}: the first worksheet, {names[0]!r}, holds no table; others: {others}; "
            "save one as .csv"
        )
    path = os.path.join(folder, "table.csv")
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(row + [None] * (width - len(row)) if row else [] for row in rows)
    note = f", worksheet {names[0]!r} is read; others: {others}"
    return Source(path, source.name, WORKBOOK, notes=(note,) if others else ())


def read_text(source, args):
    """Read a text file."""
    file = TextFile(source, args)
    picked = pick_columns(source.name, args, file.titles)
    if args.columns is None and set(picked) - file.unnamed.keys():
        for j in sorted(file.unnamed.keys() & set(picked)):
            file.note(f", column {j + 1} is left out: no name, and {file.unnamed[j]}")
            picked.remove(j)
    titles = [file.titles[j] for j in picked]
    if titles.count("") > (args.columns is not None):
        raise UserError(
            f"{source.name}: column {file.titles.index('') + 1} has no name in the header; if it "
            "only numbers the rows, leave it out with --exclude ''"
        )
    kinds = args.kinds or {}
    unchecked = {
        j for j in picked if kinds.get(file.titles[j], "") in ("categorical", "bernoulli", None)
    }
    numbers, words = file.read(picked, unchecked)
    columns = {t: words.get(j, numbers[:, j]) for t, j in zip(titles, picked, strict=True)}
    if args.na is None:
        refuse_sentinels(source.name, columns)
    X = numbers if picked == list(range(file.width)) else numbers[:, picked]

    def place(row):
        return f"line {file.lines_of([row - 1])[0]}"

    return numbers_or_mixed(source, args, X, columns, file, file.notes, place)


def read_npy(source, args):
    """Take the columns of a .npy file, which is mapped into memory."""
    name = source.name
    refuse_text_options(source, args)
    try:
        X = np.lib.format.open_memmap(source.path, mode="r")
    except OSError:
        raise
    except Exception as error:  # of any type where the header is damaged
        raise UserError(f"{name}: {error}") from error
    if X.dtype.kind not in "biuf":
        raise UserError(f"{name} holds values of type {X.dtype}, not real numbers")
    if X.ndim != 2:
        raise UserError(f"{name} holds an array of shape {X.shape}, not rows and columns")
    titles = [str(j + 1) for j in range(X.shape[1])]
    picked = pick_columns(name, args, titles)
    X = X if picked == list(range(X.shape[1])) else X[:, picked]
    columns = {titles[j]: column for j, column in zip(picked, X.T, strict=True)}
    return numbers_or_mixed(source, args, X, columns, source)


def read_parquet(source, args):
    """Take the columns of a .parquet file."""
    refuse_text_options(source, args)
    frame = source.frame()
    titles = [str(name) for name in frame.columns]
    picked, notes = pick_columns(source.name, args, titles), []
    if args.columns is None:
        index = [j for j in picked if INDEX_NAME.fullmatch(titles[j])]
        notes = [f"{source.name}, column {titles[j]} is left out: an index" for j in index]
        picked = [j for j in picked if j not in index] or picked
    X = frame = frame.iloc[:, picked]
    if all(map(is_numeric, frame.dtypes)):
        narrow = all(kind == np.float32 for kind in frame.dtypes)
        X = frame.to_numpy(dtype=np.float32 if narrow else np.float64, na_value=np.nan)
    return numbers_or_mixed(source, args, X, frame, source, notes)


def refuse_text_options(source, args):
    """Raise a UserError if an option says how text is to be read."""
    given = {"decimal": args.decimal, "encoding": args.encoding, "na": args.na}
    for name, value in {**given, "skip-rows": args.skip_rows}.items():
        if value is not None:
            raise UserError(f"--{name}: {source.name} is not a text file")


# ---------------------------------------------------------------------------------------
# Numbers without gaps, or columns of any kind


def numbers_or_mixed(source, args, X, columns, origin, notes=(), place="row {}".format):
    """The Table, if its columns are numbers without gaps; otherwise a mixed one.

    ``columns`` are those of X by title, a dict or DataFrame. ``place`` turns the number of a row,
    from 1, into words.
    """
    name, titles, (n, d) = source.name, [*map(str, columns)], X.shape
    # a name is bytes on some systems; what is not text in it becomes an escape
    shown = os.path.basename(name).encode(errors="backslashreplace").decode()
    table = Table(X, titles, shown, notes=tuple(notes), origin=origin)
    needs = (name for name in ("scale", "shapes", "drop_missing") if getattr(args, name))
    option = next(map(option_of, needs), None)  # for which all columns must be numbers
    if n == 0 or d == 0:
        raise UserError(f"{name} has no values: {counted(n, 'row')}, {counted(d, 'column')}")
    otherwise = f"; without {option}, words and gaps are taken, too, each column by its kind"
    words = [title for title in columns if not is_numeric(columns[title].dtype)]
    why = not_numeric(words, columns) if words else None
    if words and option is not None:
        raise UserError(f"{name}: {why}; {leave_out(words)}{otherwise}")
    if words or args.kinds is not None:
        for title, column in columns.items() if isinstance(columns, dict) else ():
            if column.dtype.kind == "f":
                find_gaps(source, column[:, np.newaxis], [title], place)
    else:
        kept, why = find_gaps(source, X, titles, place)
        if why is None:
            return table
        if args.drop_missing and kept.any():
            return replace(table, X=X[kept], kept=kept)
        if option is not None:
            empty = [titles[j] for j in np.flatnonzero(np.isnan(X).all(axis=0))]
            if empty:
                noun = "column {} is" if len(empty) == 1 else "columns {} are"
                raise UserError(
                    f"{name}: {noun.format(', '.join(empty))} empty; {leave_out(empty)}"
                )
            if args.drop_missing:
                raise UserError(f"{name}: --drop-missing leaves no row, each has a missing value")
            raise UserError(f"{name}, {why}; --drop-missing leaves such rows out{otherwise}")
    more = *merged_cells(name, columns), *telling_the_same(name, columns)
    return replace(table, X=columns, why=why, notes=(*table.notes, *more))


def is_numeric(dtype):
    """Whether a type of numpy, pandas or pyarrow is of numbers."""
    return dtype.kind in "biuf"


def not_numeric(titles, columns):
    """Text: which columns are not numeric, and a cell of each."""
    more = f" and {len(titles) - 5} more" if len(titles) > 5 else ""
    words = []
    for title in titles[:5]:
        cells = np.asarray(columns[title], dtype=object)[~missing_cells(columns[title])]
        words.append(f"{title} ({shortened(str(cells[0]) if len(cells) else '')})")
    return f"column{'' if len(titles) == 1 else 's'} {', '.join(words)}{more} not numeric"


def leave_out(names):
    """Text: the option that leaves columns out."""
    return f"{option_of_names('--exclude', names)} leaves {'it' if len(names) == 1 else 'them'} out"


def find_gaps(source, X, titles, place):
    """Mark the rows of an array without missing values; infinite values are refused.

    Also returns where the first missing value is, in words; None if there is none.
    """
    kept, first = np.ones(len(X), dtype=bool), None
    step = max(1, 2**20 // X.shape[1])
    for start in range(0, len(X), step):
        block = X[start : start + step]
        finite = np.isfinite(block)
        if finite.all():
            continue
        missing = np.isnan(block)
        infinite = np.argwhere(~finite & ~missing)
        if len(infinite):
            row, j = infinite[0]
            where = f"{source.name}, {place(start + row + 1)}, column {titles[j]}: infinite value"
            advice = f"; {option_of_names('--na', [f'{block[row, j]:g}'])} takes it as missing"
            raise UserError(where + (advice if source.kind in (*TEXT, WORKBOOK) else ""))
        kept[start : start + step] = ~missing.any(axis=1)
        if first is None:
            row, j = np.argwhere(missing)[0]
            first = f"{place(start + row + 1)}, column {titles[j]}: missing value"
    return kept, first


def refuse_sentinels(name, columns):
    """Raise a UserError if a column of numbers has a value such as -999 for missing ones.

    One below is the one value below 0; one above is FAR times as large as all others, and is there
    twice.
    """
    for title, column in columns.items():
        if column.dtype.kind != "f":
            continue
        # of most columns the extremes tell that there is none
        for sentinel in SENTINELS & {np.fmin.reduce(column), np.fmax.reduce(column)}:
            others = column[~np.isnan(column) & (column != sentinel)]
            n_rows = int((column == sentinel).sum())
            if len(others) < max(FEWEST_OTHERS, n_rows + 1):
                continue
            low, high = others.min(), others.max()
            if low >= 0 and (sentinel < 0 or (high * FAR < sentinel and n_rows > 1)):
                option = option_of_names("--na", [f"{sentinel:.0f}"])
                raise UserError(
                    f"{name}, column {title}: {sentinel:.0f} in {counted(n_rows, 'row')}, all "
                    f"others from {low:g} to {high:g}; {option} takes it as missing, --na '' as a "
                    "number"
                )


def without_identifiers(table, args):
    """The table of numbers without columns that only number its rows, but for those asked for."""
    kept = [] if args.keep is None else names_of_option("--keep", args.keep)
    for title in kept:
        if title not in table.titles:
            raise UserError(f"--keep {args.keep}: no column {title!r} of the table is used")
    if table.is_mixed or args.columns is not None:
        return table
    by_title = dict(zip(table.titles, table.X.T, strict=True))
    reasons = {title: identifies(by_title[title], title) for title in by_title if title not in kept}
    numbers = [title for title, reason in reasons.items() if reason]
    left = [j for j, title in enumerate(table.titles) if title not in numbers]
    if not numbers or not left:
        return table
    notes = [
        f"column {title} is left out: {reasons[title]}; "
        f"{option_of_names('--keep', [title])} keeps it"
        for title in numbers
    ]
    titles = [table.titles[j] for j in left]
    return replace(table, X=table.X[:, left], titles=titles, notes=(*table.notes, *notes))


def merged_cells(name, columns):
    """Notes about columns whose gaps may be from cells that are merged downwards.

    Such a column begins with a value, and below each value there are gaps.
    """
    for title, column in columns.items():
        missing = missing_cells(column)
        there = np.flatnonzero(~missing)
        many = missing.mean() >= MERGED_SHARE and len(there) > 1 and there[0] == 0
        if many and np.diff(there).min() > 1:
            yield (
                f"{name}, column {title}: {missing.mean():.0%} of the cells are missing, with some "
                "below each value; if cells were merged downwards, write the value into each row"
            )


def telling_the_same(name, columns):
    """Notes about columns of words that other columns tell, as a postal code tells a city."""
    from scipy.sparse.csgraph import connected_components

    codes, words = {}, set()
    for title, column in list(columns.items())[:COMPARED_COLUMNS]:
        cells = np.asarray(column)[:TOLD_ROWS]
        is_words = cells.dtype.kind == "O" and all(isinstance(cell, str) for cell in cells)
        whole = cells.dtype.kind in "iuf" and not np.any(cells % 1)
        if not (is_words or whole) or DATE_CELL.fullmatch(str(cells[0])):
            continue
        levels, of_rows = np.unique(cells, return_inverse=True)
        if FEWEST_LEVELS <= len(levels) <= len(cells) / 2:
            codes[title] = of_rows
            words |= {title} if is_words else set()
    same = np.eye(len(codes))
    for (i, title), (j, other) in permutations(enumerate(codes), 2):
        same[i, j] = other in words and tells(codes[title], codes[other])
    numbers = connected_components(same, directed=False)[1] if codes else np.empty(0)
    for number in np.unique(numbers):
        group = list(compress(codes, numbers == number))
        if len(group) > 1:
            yield (
                f"{name}: columns {', '.join(group)} tell nearly the same, which then counts more "
                f"than once; {leave_out(group[1:])}"
            )


def tells(codes, told):
    """Whether one column of codes tells another, counting rows with the same code elsewhere."""
    from sklearn.metrics.cluster import contingency_matrix

    most = contingency_matrix(codes, told, sparse=True).max(axis=1).toarray()
    usual = np.bincount(told).max()
    return most[most > 1].sum() >= TOLD_SHARE * len(codes) and usual < USUAL_SHARE * len(codes)


def missing_cells(column):
    """Mark the missing cells of a column of numbers or of words."""
    if hasattr(column, "isna"):
        return column.isna().to_numpy()
    return column != column if column.dtype.kind == "f" else np.equal(column, None)


def one_of(options):
    """List options with an "or" before the last."""
    *others, last = options
    return f"{', '.join(others)} or {last}"
