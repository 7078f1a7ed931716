"""Cells of a text table: numbers, missing values and times."""

from array import array

import numpy as np

from smallvar._core.row_names import DATES, dates_of_text, numbers_of_text, read_date

USUAL_MISSING = frozenset(["", "?", "-", "na", "n/a", "#n/a", "nan", "null", "none", "<na>"])
# of spreadsheets, databases and statistics offices
MISSING = USUAL_MISSING | frozenset(
    [
        *("n.a.", "n.a", "--", "---", ".", "..", "missing", "\\n"),
        *("#value!", "#div/0!", "#ref!", "#num!", "#null!", "#name?"),
    ]
)
# in a column of words, where "none" or "-" may be a level
MISSING_AMONG_WORDS = MISSING - {"none", "-", "--", "---", "."}
FORMS = tuple(form for forms in DATES for form in forms)
TIMES = "numbers or dates like 2024-01-31T12:00:00"
TOO_LONG = "whole times of so many digits cannot be kept beside missing ones"


def number_with_point(cell):
    """Read a number as other programs do: not 1_000 or digits beyond ASCII, as Python's float."""
    if "_" in cell or not cell.strip().isascii():
        raise ValueError(f"no number in {cell}")
    return float(cell)


def is_number(cell, number=number_with_point):
    """Tell whether a cell reads as a number."""
    try:
        number(cell)
    except ValueError:
        return False
    return True


def is_missing(cell):
    """Tell whether a cell stands for a missing value."""
    return cell.strip().lower() in MISSING


def number_with_comma(cell):
    """Read a number with a decimal comma; a point, which could only group thousands, is refused."""
    if "." in cell:
        raise ValueError(f"a decimal point in {cell}")
    return number_with_point(cell.replace(",", "."))


def has_words(cells, number):
    """Tell whether any cell is neither a number nor missing."""
    return any(not is_number(cell, number) and not is_missing(cell) for cell in cells)


def forms_of_date(cell, forms=FORMS):
    """The forms of dates that a cell may have."""
    return [form for form in forms if has_form(cell, form)]


def has_form(cell, form):
    """Tell whether a cell is a date of this form."""
    try:
        read_date(cell, form)
    except (ValueError, OverflowError):
        return False
    return True


class Times:
    """The times of the rows: numbers, or dates if the first time is a date.

    ``gaps`` says whether times may be missing; ``number`` converts a cell to a number.
    """

    def __init__(self, gaps, number):
        self.gaps, self.number = gaps, number
        # each word is kept once, with its number; "" is a missing time
        self.words, self.rows = {}, array("i")
        self.forms = None  # the forms of dates that fit all words; none of numbers; not known yet

    def add(self, cell):
        """Append the time of the next row."""
        word = "" if self.gaps and is_missing(cell) else cell.strip()
        if word not in self.words and (word or not self.gaps):
            self.check(word)
        self.rows.append(self.words.setdefault(word, len(self.words)))

    def check(self, word):
        """Raise ValueError unless a word is a time like those before it."""
        # 20240131 is a number
        if self.forms is None and is_number(word, self.number):
            self.forms = []
        if self.forms == []:
            self.number(word)
            return
        forms = forms_of_date(word, FORMS if self.forms is None else self.forms)
        if not forms:
            raise ValueError(f"no time in {word}")
        self.forms = forms

    def explain(self, cell):
        """The error message for a cell that is not a time like those before it."""
        if is_missing(cell):
            return "missing value"
        kind = "dates like those before" if self.forms else "numbers like those before"
        return f"times must be {TIMES if self.forms is None else kind}, got {shortened(cell)}"

    def array(self):
        """The times as an array; dates as datetime64. ValueError if that would change them."""
        words = [word for word in self.words if word]
        gap = self.words.get("")
        if not words:
            return np.full(len(self.rows), np.nan)
        if self.forms:
            readings = dates_of_text(words)
            if len(readings) > 1:
                raise ValueError("days and months cannot be told apart; write 2024-01-31")
            values = readings[0] if readings else None
        else:
            values = numbers_of_text([word.replace(",", ".") for word in words])
        if values is None:
            raise ValueError("times have more digits than can be kept")
        if gap is not None:
            values = with_gap(values, gap)
        return values[np.frombuffer(self.rows, dtype=self.rows.typecode)]


def with_gap(values, gap):
    """Numbers or dates, none twice, with a missing one inserted at a position."""
    if values.dtype.kind == "M":
        return np.insert(values, gap, np.datetime64("NaT"))
    numbers = values.astype(np.float64)
    if len(np.unique(numbers)) < len(np.unique(values)):
        raise ValueError(TOO_LONG)
    return np.insert(numbers, gap, np.nan)


def shortened(cell):
    """A cell in quotes, cut to 30 characters."""
    cell = cell.strip()
    return repr(cell if len(cell) <= 30 else f"{cell[:27]}...")
