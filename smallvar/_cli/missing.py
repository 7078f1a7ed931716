"""Rows of a text table with plain numbers, and empty cells where values are missing."""

import numpy as np

from smallvar._cli.cells import is_number
from smallvar._cli.errors import UserError
from smallvar._cli.signs import taken_apart
from smallvar._cli.words import option_of_names

# numbers that stand for missing values where they lie far from all others
CODES = frozenset(
    [*(-99.0, -999.0, -9999.0, -99999.0, -999999.0), *(999.0, 9999.0, 99999.0, 999999.0)]
)
FAR = 5  # a code above the others is so many times as large
FEWEST_OTHERS = 5  # values: fewer do not tell


class Marks:
    """The cells that ``--na`` says are missing values: words, their beginnings, and numbers."""

    def __init__(self, words):
        self.words = {word.strip() for word in words}
        self.beginnings = tuple(
            word[:-1] for word in self.words if len(word) > 1 and word[-1] == "*"
        )
        self.numbers = {float(word) for word in self.words if is_number(word)}

    def __contains__(self, cell):
        """Whether a cell is a missing value."""
        word = cell.strip()
        if word in self.words or (self.beginnings and word.startswith(self.beginnings)):
            return True
        return bool(self.numbers) and is_number(word) and float(word) in self.numbers


def marked(cells, words):
    """The cells of a row, those that ``--na`` names empty."""
    if not words:
        return cells
    marks = Marks(words)
    return ["" if cell in marks else cell for cell in cells]


def cleaned(records, wanted):
    """Records with the cells of ``--na`` empty, and plain numbers in columns with signs."""
    signs = {} if wanted.found is None else wanted.found.signs
    if not wanted.na and not signs:
        return records
    return _cleaned(records, Marks(wanted.na or ()), signs)


def _cleaned(records, marks, signs):
    """Yield records for `cleaned`."""
    for line, cells in records:
        cells = ["" if cell in marks else cell for cell in cells]
        for j, sign in signs.items():
            if j < len(cells):
                cells[j] = sign.plain(cells[j])
        yield line, cells


def header_like(first, rows, number):
    """The first row of a table, with numbers for cells that have signs like those below them."""
    rows = [row for row in rows if len(row) == len(first)]

    def has_signs(cell):
        written = None if is_number(cell, number) else taken_apart(cell)
        return written is not None and not written.percent and not written.in_brackets

    some = "0.5" if is_number("0.5", number) else "0,5"
    return [
        some if has_signs(cell) and any(has_signs(row[j]) for row in rows) else cell
        for j, cell in enumerate(first)
    ]


def may_have_codes(X):
    """Whether an array has values as large as codes; its extremes take no time."""
    return X.min() <= -99 or X.max() >= 999


def refuse_codes(path, columns):
    """Raise a UserError if a column of numbers has a code such as -999 for missing values.

    ``columns`` are titles and arrays. A code below is the one value below 0; a code above is FAR
    times as large as all others, and is there twice.
    """
    for title, column in columns:
        if column.size <= FEWEST_OTHERS:
            continue
        least, most = np.fmin.reduce(column), np.fmax.reduce(column)  # without missing values
        if least not in CODES and most not in CODES:
            continue
        values = column[~np.isnan(column)]
        if least in CODES and least < 0:
            code, others = least, values[values != least]
            told = others.size >= FEWEST_OTHERS and np.min(others) >= 0
        elif most in CODES and least >= 0:
            code, others = most, values[values != most]
            told = others.size >= FEWEST_OTHERS and np.max(others) * FAR < code
            told = told and (values == code).sum() > 1
        else:
            continue
        if told and others.size > values.size / 2:
            low, high = np.min(others), np.max(others)
            option = option_of_names("--na", [f"{code:.0f}"])
            rows = int((values == code).sum())
            raise UserError(
                f"{path}, column {title}: {code:.0f} in {rows:,} row{'s' * (rows > 1)}, all others "
                f"from {low:g} to {high:g}; {option} takes it as missing, --na '' as a number"
            )
