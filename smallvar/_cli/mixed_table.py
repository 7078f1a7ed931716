"""Tables as they are: columns of words beside columns of numbers, and gaps."""

from array import array
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np

from smallvar._cli.cells import MISSING, has_words, is_missing, is_number, shortened
from smallvar._cli.errors import UserError
from smallvar._cli.progress import Progress
from smallvar._cli.table import (
    TEXT,
    THOUSANDS,
    Wanted,
    counted,
    not_numeric,
    open_npy,
    pick_columns,
)
from smallvar._cli.text import is_header, text_records
from smallvar._cli.words import option_of_names

ROWS = 4096  # parsed at a time
NO_WORDS = MISSING - {"none", "-"}  # which may be levels
HALF = 0.5  # of the cells: where more are numbers, the others are slips


@dataclass(frozen=True)
class MixedTable:
    """A table with columns of any kind.

    Attributes
    ----------
    X : dict of ndarray, or DataFrame
        The columns by their titles.
    titles : list of str
        Of the columns.
    n_rows : int
        Number of rows.
    name : str
        What to call the whole.
    why : str or None
        What shows that it is no table of numbers without gaps; None if that was not asked.
    """

    X: Any
    titles: list[str]
    n_rows: int
    name: str = ""
    why: str | None = None


def read_mixed(source, wanted, error=None, kinds=None):
    """Read a table as it is.

    Parameters
    ----------
    source : Source
        Where it is.
    wanted : Wanted
        The columns to use, and how to read numbers.
    error : NotNumbersError, optional
        Why it is no table of numbers.
    kinds : dict, optional
        The kinds of columns that are given: those of categories may mix numbers and words.

    Returns
    -------
    table : MixedTable
        Without a name.
    """
    why = None if error is None else in_short(source, error)
    if source.kind in TEXT:
        with Progress("reading") as progress:
            X, titles, n_rows = parse(source, replace(wanted, drop_missing=True), progress, kinds)
    elif source.kind == ".parquet":
        import pandas as pd

        frame = pd.read_parquet(source.path)
        names = [str(name) for name in frame.columns]
        picked, titles, _ = pick_columns(source.name, wanted, names, len(names))
        X, n_rows = frame.iloc[:, picked], len(frame)
    else:
        whole = open_npy(source)
        picked, titles, _ = pick_columns(source.name, wanted, None, whole.shape[1])
        X = {title: whole[:, j] for title, j in zip(titles, picked, strict=True)}
        n_rows = len(whole)
    if not n_rows:
        raise UserError(f"{source.name} has no rows")
    return MixedTable(X, titles, n_rows, why=why)


def in_short(source, error):
    """What shows that a table is none of numbers, without its name and without advice."""
    words, _, _ = str(error).partition("; choose")
    return words.removeprefix(source.name).lstrip(",: ")


class TextColumn:
    """The cells of a column of text, as numbers or as codes of words.

    Parameters
    ----------
    words : bool
        Whether to take all cells as words.
    number : callable
        Reads a number.
    """

    def __init__(self, words, number):
        self.number = number
        self.numbers = None if words else array("d")
        self.codes, self.place = array("i"), {}

    def add(self, cells):
        """Take the cells of some rows; False if there are words among them and it has numbers."""
        if self.numbers is not None:
            before = len(self.numbers)
            try:
                self.numbers.extend(map(self.number, cells))
                return True
            except ValueError:
                del self.numbers[before:]
            if not has_words(cells, self.number):
                self.numbers.extend(
                    np.nan if is_missing(cell) else self.number(cell) for cell in cells
                )
                return True
            return False
        place = self.place
        for cell in cells:
            word = cell.strip()
            self.codes.append(
                -1 if word.lower() in NO_WORDS else place.setdefault(word, len(place))
            )
        return True

    def slip(self):
        """The first word in a column that is mostly numbers; None if there is none."""
        levels = list(self.place)
        is_word = np.array([not is_number(level, self.number) for level in levels], dtype=bool)
        codes = np.frombuffer(self.codes, dtype=np.int32)
        codes = codes[codes >= 0]
        if not is_word.any() or is_word[codes].mean() > HALF:
            return None
        return levels[int(np.argmax(is_word))]

    def cells(self):
        """An array: numbers, or strings with None where one is missing."""
        if self.numbers is not None:
            return np.frombuffer(self.numbers)
        levels = np.array([*self.place, None], dtype=object)  # the last one is that of -1
        return levels[np.frombuffer(self.codes, dtype=np.int32)]


def parse(source, wanted, progress, kinds):
    """The columns of a text file as arrays, their titles, and the number of rows.

    Where a column has words after numbers, it is read again as one of words.
    """
    as_words = {
        name for name, kind in (kinds or {}).items() if kind in ("categorical", "bernoulli")
    }
    words = set()
    while True:
        columns, titles, n_rows, more = attempt(source, wanted, progress, words)
        if not more:
            break
        words |= more
    for place, (column, title) in enumerate(zip(columns, titles, strict=True)):
        if column.numbers is not None or title in as_words:
            continue
        slip = column.slip()
        if slip is not None:
            raise UserError(slip_in_words(source, wanted, place, title, slip))
        if column.place and all(is_like_number(word, wanted) for word in column.place):
            word = next(iter(column.place))
            hint = decimal_hint(word, wanted)
            words = f"{title} ({shortened(word)})"
            raise UserError(f"{source.name}{not_numeric([words], [title], hint)}")
    return {t: c.cells() for t, c in zip(titles, columns, strict=True)}, titles, n_rows


def attempt(source, wanted, progress, words):
    """The TextColumns, unless some turn out to hold words: the positions of these."""
    records = text_records(source, wanted, progress)
    _, first = next(records)
    header = is_header(first, wanted.number)
    names = [name.strip() for name in first] if header else None
    picked, titles, _ = pick_columns(source.name, wanted, names, len(first))
    if header and wanted.columns is None and "" in titles:
        raise UserError(
            f"{source.name}: column {names.index('') + 1} has no name in the header; if it only "
            "numbers the rows, leave it out with --exclude ''"
        )
    if not header:
        records = chain([(1, first)], records)
    columns = [TextColumn(j in words, wanted.number) for j in range(len(picked))]
    n_rows = 0
    while rows := list(islice(records, ROWS)):
        for line, cells in rows:
            if len(cells) != len(first):
                raise UserError(
                    f"{source.name}, line {line}: {counted(len(cells), 'cell')}, but "
                    f"{len(first)} in the first row"
                )
        by_column = list(zip(*(cells for _, cells in rows), strict=True))
        read = [column.add(by_column[picked[j]]) for j, column in enumerate(columns)]
        if not all(read):
            return None, titles, 0, {j for j, done in enumerate(read) if not done}
        n_rows += len(rows)
    return columns, titles, n_rows, set()


def slip_in_words(source, wanted, place, title, word):
    """Refuse a column of numbers in which a cell is none."""
    records = text_records(source, wanted)
    _, first = next(records)
    names = [name.strip() for name in first] if is_header(first, wanted.number) else None
    picked, _, _ = pick_columns(source.name, wanted, names, len(first))
    at = picked[place]
    line = next((n for n, cells in chain([(1, first)], records)
                 if cells[at].strip() == word and not (n == 1 and names)), None)  # fmt: skip
    hint = decimal_hint(word, wanted)
    return (
        f"{source.name}, line {line}, column {title}: {shortened(word)} is not a number{hint}; "
        f"{option_of_names('--kinds', [f'{title}=categorical'])} takes all cells as names"
    )


def is_like_number(word, wanted):
    """Tell whether a word is a number but for its decimal sign, or signs between thousands."""
    return in_other_sign(word, wanted) or bool(THOUSANDS.fullmatch(word))


def decimal_hint(word, wanted):
    """Advise the other decimal sign where the word is a number with it."""
    sign = "," if wanted.decimal == "." else "."
    return f" (or give --decimal {sign})" if in_other_sign(word, wanted) else ""


def in_other_sign(word, wanted):
    """Tell whether a word is a number with the decimal sign that was not asked for."""
    other = Wanted(decimal="," if wanted.decimal == "." else ".")
    return is_number(word, other.number) and not THOUSANDS.fullmatch(word)
