"""Rows of a text table with plain numbers, and empty cells where values are missing."""

from smallvar._cli.cells import is_number
from smallvar._cli.signs import taken_apart


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
