"""Reading of tables with columns of words and numbers, and with missing values."""

from array import array
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from smallvar._cli.cells import MISSING_AMONG_WORDS, is_number, shortened
from smallvar._cli.columns import advice_for_infinite, not_numeric, pick_columns
from smallvar._cli.errors import UserError
from smallvar._cli.layout import ADDRESS, in_ranges
from smallvar._cli.missing import refuse_codes
from smallvar._cli.progress import ProgressLine
from smallvar._cli.table import (
    MOST_UNEVEN,
    TEXT,
    THOUSANDS,
    Numbers,
    TextTable,
    Wanted,
    advice_of,
    open_npy,
    read_frame,
)
from smallvar._cli.words import option_of_names

PARSED_ROWS = 4096  # parsed at a time
WORDS_SHARE = 0.5  # of the cells: in a column with fewer words these are mistakes among numbers


@dataclass(frozen=True)
class MixedTable:
    """A table with columns of any kind: X holds them by their titles.

    ``why`` says why it is not a table of numbers without gaps; None if it was not tried as one.
    ``notes`` are warnings about how it was read, and ``origin`` the file, as for `Table`.
    """

    X: Any
    titles: list[str]
    n_rows: int
    name: str = ""
    why: str | None = None
    notes: tuple[str, ...] = ()
    origin: Any = None
    kept: None = None  # no row is dropped
    is_mixed = True
    truth = None


def read_mixed(source, wanted, error=None, kinds=None):
    """Read a table whose columns may have words and missing values.

    ``error`` is the NotNumbersError of reading it as a table of numbers. ``kinds`` are those that
    the user has given, by title: columns of categories may mix numbers and words.
    """
    why, notes = None if error is None else in_short(source, error), ()
    if source.kind in TEXT:
        with ProgressLine("reading") as progress:
            # with drop_missing gaps are not refused; no row is dropped here
            parsed = parse(source, replace(wanted, drop_missing=True), progress, kinds)
        X, titles, n_rows, notes = parsed
        notes += rows_without_value(source, wanted, X, n_rows)
        if wanted.na is None:
            numbers = [(title, X[title]) for title in titles if X[title].dtype.kind == "f"]
            refuse_codes(source.name, numbers)
    elif source.kind == ".parquet":
        frame = read_frame(source)
        names = [str(name) for name in frame.columns]
        columns = pick_columns(source.name, wanted, names, len(names))
        X, titles, n_rows = frame.iloc[:, columns.positions], columns.titles, len(frame)
    else:
        whole = open_npy(source)
        columns = pick_columns(source.name, wanted, None, whole.shape[1])
        titles, n_rows = columns.titles, len(whole)
        X = {title: whole[:, j] for title, j in zip(titles, columns.positions, strict=True)}
    if not n_rows:
        raise UserError(f"{source.name} has no rows")
    return MixedTable(X, titles, n_rows, why=why, notes=notes)


def rows_without_value(source, wanted, X, n_rows):
    """Notes about the rows that have no value; infinite values are refused."""
    empty = np.ones(n_rows, dtype=bool)
    for title, column in X.items():
        if column.dtype.kind != "f":
            empty &= np.equal(column, None)
            continue
        infinite = np.flatnonzero(np.isinf(column))
        if len(infinite):
            (line,) = lines_of(source, wanted, infinite[:1])
            raise UserError(
                f"{source.name}, line {line}, column {title}: infinite value"
                f"{advice_for_infinite(column[infinite[0]])}"
            )
        empty &= np.isnan(column)
    lines = lines_of(source, wanted, np.flatnonzero(empty)[:MOST_UNEVEN])
    if not lines or wanted.skip_rows == []:
        return ()
    which = f"line {lines[0]} has" if len(lines) == 1 else f"lines {in_ranges(lines)} have"
    return (
        f"{source.name}, {which} no value; --skip-rows {in_ranges(lines)} leaves "
        f"{'it' if len(lines) == 1 else 'such lines'} out",
    )


def lines_of(source, wanted, rows):
    """The numbers of the lines of some rows, by their positions."""
    if not len(rows):
        return []
    wished, records = set(rows.tolist()), TextTable(source, wanted).records
    first = islice(records, int(rows[-1]) + 1)
    return [line for i, (line, _) in enumerate(first) if i in wished]


def in_short(source, error):
    """The message of a NotNumbersError, without the name of the file and without advice."""
    words, _, _ = str(error).partition("; choose")
    return words.removeprefix(source.name).lstrip(",: ")


class TextColumn:
    """The cells of a column of text as numbers, or as codes of words if all of them are words."""

    def __init__(self, words, wanted):
        self.number, self.numbers = wanted.number, None if words else Numbers(wanted)
        self.codes, self.place = array("i"), {}

    def add(self, cells):
        """Append the cells of some rows; False, if the column is one of numbers and some are words.

        Nothing is appended then: the column must be read again from the beginning, as words.
        """
        if self.numbers is not None:
            return self.numbers.add(cells)
        place = self.place
        for cell in cells:
            word = cell.strip()
            self.codes.append(
                -1 if word.lower() in MISSING_AMONG_WORDS else place.setdefault(word, len(place))
            )
        return True

    def slip(self):
        """The first word in a column of words whose cells are mostly numbers; else None."""
        levels = list(self.place)
        is_word = np.array([not is_number(level, self.number) for level in levels], dtype=bool)
        codes = np.frombuffer(self.codes, dtype=np.int32)
        codes = codes[codes >= 0]
        if not is_word.any() or is_word[codes].mean() > WORDS_SHARE:
            return None
        return levels[int(np.argmax(is_word))]

    def cells(self):
        """The column as an array: numbers (NaN: missing), or strings (None: missing)."""
        if self.numbers is not None:
            return np.frombuffer(self.numbers.values)
        levels = np.array([*self.place, None], dtype=object)  # the last one is that of -1
        return levels[np.frombuffer(self.codes, dtype=np.int32)]


def parse(source, wanted, progress, kinds):
    """The columns of a text file as arrays by title, their titles, number of rows, and warnings.

    All columns are first read as numbers. If some have words, the file is read again, these columns
    as words, until none are left that have.
    """
    # any cell may be a level of these: words among numbers are no mistakes
    categories = {
        name for name, kind in (kinds or {}).items() if kind in ("categorical", "bernoulli")
    }
    with_words = set()
    while True:
        columns, table, n_rows, more = attempt(source, wanted, progress, with_words)
        if not more:
            break
        with_words |= more
    titles = table.titles
    for place, (column, title) in enumerate(zip(columns, titles, strict=True)):
        if column.numbers is not None or title in categories:
            continue
        slip = column.slip()
        if slip is not None:
            raise UserError(slip_in_words(source, wanted, place, title, slip))
        if column.place and all(is_like_number(word, wanted) for word in column.place):
            word = next(iter(column.place))
            hint = decimal_hint(word, wanted)
            words = f"{title} ({shortened(word)})"
            raise UserError(f"{source.name}{not_numeric([words], [title], hint)}")
    return {t: c.cells() for t, c in zip(titles, columns, strict=True)}, titles, n_rows, table.notes


def attempt(source, wanted, progress, words):
    """Read a text file, the columns at the positions ``words`` as words, the others as numbers.

    Returns the TextColumns, the TextTable, the number of rows and an empty set. If other columns
    have words, reading ends, and the last is the set of the positions of these.
    """
    table = TextTable(source, wanted, progress)
    columns = [TextColumn(j in words, wanted) for j in range(len(table.picked))]
    n_rows = 0
    while rows := list(islice(table.records, PARSED_ROWS)):
        for line, cells in rows:
            if len(cells) != table.width:
                raise table.uneven(line, cells)
        by_column = list(zip(*(cells for _, cells in rows), strict=True))
        read = [column.add(by_column[table.picked[j]]) for j, column in enumerate(columns)]
        if not all(read):
            return None, table, 0, {j for j, done in enumerate(read) if not done}
        n_rows += len(rows)
    return columns, table, n_rows, set()


def slip_in_words(source, wanted, place, title, word):
    """The error message for a column of numbers in which a cell is a word; with the line of it."""
    table = TextTable(source, wanted)
    at = table.picked[place]
    line = next((line for line, cells in table.records if cells[at].strip() == word), None)
    hint = "" if table.is_slip(title, word) else decimal_hint(word, wanted)
    advice = advice_of(table)
    if word[:1].isalpha() and not (table.found and table.found.again):  # perhaps a code, unlike <35
        names = option_of_names("--kinds", [f"{title}=categorical"])
        advice = f"; {names} takes all cells as names{advice}"
    if not advice:  # of many different words none can be listed
        advice = f"; {option_of_names('--exclude', [title])} leaves the column out"
    return (
        f"{source.name}, line {line}, column {title}: {shortened(word)} is not a number{hint}"
        f"{advice}{'' if line is None else table.advice_of_header(line)}"
    )


def is_like_number(word, wanted):
    """Whether a word is a number with another decimal sign, or with signs between thousands."""
    if in_other_sign(word, wanted):
        return True
    return bool(THOUSANDS.fullmatch(word)) and not ADDRESS.fullmatch(word)


def decimal_hint(word, wanted):
    """Text that advises the other decimal sign, if the word is a number with it; else empty."""
    sign = "," if wanted.decimal == "." else "."
    return f" (or give --decimal {sign})" if in_other_sign(word, wanted) else ""


def in_other_sign(word, wanted):
    """Whether a word is a number with the decimal sign that was not asked for.

    A word like 1,234 is rather one with a sign between thousands, and does not count.
    """
    other = Wanted(decimal="," if wanted.decimal == "." else ".")
    return is_number(word, other.number) and not THOUSANDS.fullmatch(word)
