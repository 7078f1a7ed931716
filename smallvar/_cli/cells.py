"""Cells of a text table: numbers, missing values and times."""

from array import array
from datetime import UTC, datetime, timedelta

import numpy as np

MISSING = frozenset(["", "?", "-", "na", "n/a", "#n/a", "nan", "null", "none"])
EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
NAT = np.iinfo(np.int64).min  # a missing time, in microseconds
TIMES = "numbers or dates like 2024-01-31T12:00:00"


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


def is_date(cell):
    """Tell whether a cell is an ISO date."""
    try:
        ticks(cell)
    except ValueError:
        return False
    return True


class Times:
    """The times of the rows: numbers, or dates in microseconds if the first time is a date.

    Parameters
    ----------
    gaps : bool
        Whether times may be missing.
    number : callable
        Converts a cell to a number.
    """

    def __init__(self, gaps, number):
        self.gaps, self.number = gaps, number
        self.values, self.n_missing = None, 0  # the number missing before the first time

    @property
    def dates(self):
        """Whether the times are dates."""
        return self.values is not None and self.values.typecode == "q"

    def add(self, cell):
        """Append the time of the next row."""
        missing = self.gaps and is_missing(cell)
        # the kind of the times is not known before the first that is there
        if self.values is None and missing:
            self.n_missing += 1
            return
        if self.values is None:
            # 20240131 is a number
            dates = is_date(cell) and not is_number(cell, self.number)
            self.values = array("q" if dates else "d")
            self.values.extend([NAT if self.dates else np.nan] * self.n_missing)
        if missing:
            self.values.append(NAT if self.dates else np.nan)
        else:
            self.values.append(ticks(cell) if self.dates else self.number(cell))

    def explain(self, cell):
        """The error message for a cell that is not a time like those before it."""
        if is_missing(cell):
            return "missing value"
        kind = "dates like those before" if self.dates else "numbers like those before"
        return f"times must be {kind if self.values else TIMES}, got {shortened(cell)}"

    def array(self):
        """The times as an array; dates as datetime64."""
        if self.values is None:
            return np.full(self.n_missing, np.nan)
        return np.frombuffer(self.values, dtype="datetime64[us]" if self.dates else np.float64)


def ticks(cell):
    """Read an ISO date as microseconds since 1970; it is in UTC if it has no time zone."""
    date = datetime.fromisoformat(cell.strip())
    return ((date if date.tzinfo else date.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND


def in_coarse_units(times):
    """Dates in the coarsest unit that loses nothing; other times unchanged."""
    if times.dtype.kind != "M":
        return times
    for unit in ("D", "s", "ms", "us"):
        coarse = times.astype(f"datetime64[{unit}]")
        if np.array_equal(coarse, times):
            return coarse
    return times


def shortened(cell):
    """A cell in quotes, cut to 30 characters."""
    cell = cell.strip()
    return repr(cell if len(cell) <= 30 else f"{cell[:27]}...")
