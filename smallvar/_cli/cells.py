"""Cells of text tables: numbers as people write them, missing values, totals; and the header."""

import re
from dataclasses import dataclass

import numpy as np

USUAL_MISSING = frozenset(["", "?", "-", "na", "n/a", "#n/a", "nan", "null", "none", "<na>"])
# of spreadsheets, databases and statistics offices
MISSING = USUAL_MISSING | frozenset(
    [
        *("n.a.", "n.a", "--", "---", ".", "..", "missing", "\\n"),
        *("#value!", "#div/0!", "#ref!", "#num!", "#null!", "#name?"),
    ]
)
MOSTLY = 0.5  # a column is of numbers if more of the cells that are there are
SIGNS_AMONG_WORDS = frozenset(["none", "-", "--", "---", "."])  # not missing in a column of words
# minus and dash, the apostrophe, and spaces between thousands
PLAIN_SIGNS = str.maketrans("\u2212\u2013\u2019\u00a0\u2009\u202f", "--'   ")
CURRENCY = r"[$\xa2-\xa5\u058f\u060b\u0e3f\u20a0-\u20cf\uff04]"
NUMBER = re.compile(
    rf"(?P<bracket>\()?\s*(?P<sign>[-+])?\s*(?P<before>{CURRENCY})?\s*(?P<minus>-)?\s*"
    r"(?P<body>[1-9]\d{0,2}(?P<group>[.,' ])\d{3}(?:(?P=group)\d{3})*"
    r"(?:(?!(?P=group))(?P<point>[.,])\d*)?|\d*(?P<fraction>[.,])\d*|\d+)(?P<exponent>e[-+]?\d+)?"
    rf"\s*(?:(?P<after>{CURRENCY})|(?P<percent>%))?\s*(?P<close>\))?",
    re.ASCII | re.IGNORECASE,
)
CODE = re.compile(r"\s*0\d+\s*", re.ASCII)  # which a number would lose the zeros of
ADDRESS = re.compile(r"(25[0-5]|2[0-4]\d|1?\d?\d)(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}")
DATE_CELL = re.compile(r"\s*\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T]\d.*)?")
UNITS = (
    r"[(\[].*[)\]]|[%$\u20ac\u00a3\u00a5]|\u00b0 ?[cf]?|[munpk]?(?:g|m|l|s|w|v|a|j|pa|hz|mol)"
    r"|[cmkd]m[23\u00b2\u00b3]?|m[23\u00b2\u00b3]|[a-z\u00b5]{1,4}/[a-z0-9\u00b5]{1,5}"
    r"|min|h|hours?|days?|years?|mmhg|usd|eur|gbp|km/h|ppm|kwh|db|lbs?|oz|ft|inch|mph"
)
UNIT_SIGN = re.compile(UNITS, re.IGNORECASE)
# 1.6 kg and 16kg, but not 12A, which may be a name
WITH_UNIT = re.compile(rf"[-+]?\d[\d.,]*(?: |(?=[^\d.,]{{2}}))(?:{UNITS})", re.IGNORECASE)
FIRST_YEAR, LAST_YEAR = 1500, 2100  # numbers that may be titles of columns
# of rows, the first included, whose numbers rise like those of a header: if rows are in any order,
# the first one is among them with less than this probability
RISING_SHARE = 0.1
ROUNDING = 1e-9  # by which equal steps of numbers of a few digits may differ


@dataclass(frozen=True)
class Written:
    """A number as people write it: its digits, and the signs in them and around them.

    ``group`` is the sign between thousands, ``point`` that of decimals, and ``either`` the one sign
    of a number like 1,234, which may be both.
    """

    body: str
    negative: bool
    group: str
    point: str
    either: str
    currency: str
    percent: bool
    brackets: bool

    def value(self, decimal, thousands):
        """The number, if these are the signs of its file; else None."""
        group, point = self.group, self.point
        if self.either:
            group, point = ("", self.either) if self.either == decimal else (self.either, "")
        if (group and group != thousands) or (point and point != decimal):
            return None
        digits = self.body.replace(group, "") if group else self.body
        number = float(digits.replace(point, ".") if point else digits)
        return -number if self.negative else number


def taken_apart(word):
    """The Written number that a word is; None if it is none."""
    match = NUMBER.fullmatch(word.translate(PLAIN_SIGNS)) if len(word) < 60 else None
    if match is None or not any(map(str.isdigit, match["body"])):
        return None
    brackets = bool(match["bracket"])
    if brackets != bool(match["close"]) or (brackets and match["sign"]):
        return None
    if match["before"] and match["after"]:
        return None
    group, point = match["group"] or "", match["point"] or match["fraction"] or ""
    # one group of three digits without decimals
    either = group in (".", ",") and not point and match["body"].count(group) == 1
    return Written(
        match["body"] + (match["exponent"] or ""),
        brackets or "-" in (match["sign"], match["minus"]),
        "" if either else group,
        point,
        group if either else "",
        match["before"] or match["after"] or "",
        bool(match["percent"]),
        brackets,
    )


def signs_of(numbers, decimals, by_commas):
    """The decimal sign and the one between thousands of Written numbers; None if they do not tell.

    ``decimals`` are the decimal signs that are known. ``by_commas`` says that commas separate the
    cells: then they are no decimal signs.
    """
    decimals = {*decimals, *(number.point for number in numbers)} - {""}
    groups = {number.group for number in numbers} - {""}
    either = {number.either for number in numbers} - {""}
    if not decimals:
        # 1.234.567 and 1,234,567 leave one sign for decimals
        decimals = {"," for _ in groups & {"."}} | {"." for _ in groups & {","}}
    if not decimals and groups and len(either) == 1:
        decimals = either - groups  # thousands are grouped by another sign
    if not decimals and (by_commas or either <= {"."}):
        decimals = {"."}
    if len(decimals) != 1:
        return None
    (decimal,) = decimals
    groups |= either - {decimal}
    return None if decimal in groups or len(groups) > 1 else (decimal, next(iter(groups), ""))


def number_of(cell, decimal="."):
    """A plain number, as other programs read it: no 1_000, no digits beyond ASCII; else None."""
    if "_" in cell or not cell.strip().isascii() or (decimal == "," and "." in cell):
        return None
    try:
        return float(cell.replace(",", ".") if decimal == "," else cell)
    except ValueError:
        return None


def is_missing(cell):
    """Whether a cell stands for a missing value."""
    return cell.strip().lower() in MISSING


def shortened(cell):
    """A cell in quotes, cut to 30 characters."""
    cell = cell.strip()
    return repr(cell if len(cell) <= 30 else f"{cell[:27]}...")


class Marks:
    """The cells that ``--na`` says are missing values: words, their beginnings, and numbers.

    ``quick`` has all words that are missing, if there are no beginnings.
    """

    def __init__(self, words):
        self.words = {word.strip() for word in words or ()}
        self.beginnings = tuple(w[:-1] for w in self.words if len(w) > 1 and w[-1] == "*")
        self.numbers = [x for word in self.words if (x := number_of(word)) is not None]
        usual = (form for word in USUAL_MISSING for form in (word, word.upper(), word.title()))
        self.quick = self.words.union(usual) if not self.beginnings else frozenset()

    def __contains__(self, cell):
        """Whether a cell is a missing value."""
        word = cell.strip()
        if word in self.words or (self.beginnings and word.startswith(self.beginnings)):
            return True
        return bool(self.numbers) and number_of(word) in self.numbers


def find_header(first, rows, decimal="."):
    """Tell whether the first row of a table holds the titles of the columns.

    A row without any number does, and pandas' 0, 1, 2, ...; so does one of words and whole
    numbers where a word stands above a column of numbers, or where the numbers are years and few
    rows have such; and one of numbers that rise, which those of few other rows do. A row that
    repeats in a column what stands below, or has a date above dates, has no titles unless all of
    them are words. An empty cell above names of rows is a title. Also returns why that is not
    certain, or None.
    """

    def number(cell):
        """The number of a cell, also with signs such as those of currencies; else NaN."""
        plain = number_of(cell, decimal)
        written = taken_apart(cell.strip()) if plain is None else None
        if written is None or written.percent or written.brackets:
            return np.nan if plain is None else plain
        return written.value(written.point, written.group or written.either)

    def is_number(cell):
        return not np.isnan(number(cell))

    numbered = first if first[0].strip() else first[1:]  # pandas leaves out the title of its index
    if len(numbered) > 2 and numbered == [str(i) for i in range(len(numbered))]:
        return True, None
    below = [[row[j] for row in rows if not is_missing(row[j])] for j in range(len(first))]
    words, at = [], []
    for j, cell in enumerate(first):
        if not is_missing(cell):
            # inf is a number of a row, but no number among titles
            (at if is_number(cell) and any(map(str.isdigit, cell)) else words).append(j)
    if any(below[j] and all(map(DATE_CELL.fullmatch, [first[j], *below[j]])) for j in words):
        return False, None
    repeated = next((first[j] for j in words if first[j] in below[j]), None)
    if not at:
        doubt = None if repeated is None else f"though {shortened(repeated)} is in a row below, too"
        return bool(words), doubt
    if repeated is not None:
        return False, None
    names, untitled = below[0], not first[0].strip()
    names_rows = len({*names}) == len(rows) > 1 and not any(map(is_number, names))
    if untitled and names_rows and len(at) == len(first) - 1:
        return True, None

    table = np.array([[number(row[j]) for j in at] for row in (first, *rows)])
    steps, (n_rows, d) = np.diff(table, axis=1), table.shape
    rising, falling = (steps > 0).all(axis=1), (steps < 0).all(axis=1)
    years = ((table == np.floor(table)) & (table >= FIRST_YEAR) & (table <= LAST_YEAR)).all(axis=1)

    def sets_apart(marked):
        """Whether the first row is marked, and few others are."""
        return marked[0] and marked[1:].sum() < max(1, n_rows - 1) / 2

    over_numbers = any(below[j] and all(map(is_number, below[j])) for j in words)
    of_years = sets_apart(years & (rising | falling))
    if of_years and (words or untitled) and (over_numbers or d > 1):
        return True, None
    if (of_years and (words or d > 2)) or (
        over_numbers and all(first[j].strip().isdigit() for j in at)
    ):
        return True, "though it holds numbers"
    in_order = d > 2 and sets_apart((steps == 1).all(axis=1)) and table[0, 0] in (0, 1)
    if in_order or (of_years and d > 1):
        return False, "though its numbers may be titles"
    if n_rows > 1 and d > 1 + (not over_numbers) and rising[0]:  # like wavelengths
        low, high = np.fmin.reduce(table[1:]), np.fmax.reduce(table[1:])
        beyond = (~((low <= table[0]) & (table[0] <= high))).sum()
        goes_on = (np.diff(table, axis=0) >= 0).all(axis=0).any()  # in a column of sorted rows
        even = rising & (np.ptp(steps, axis=1) <= ROUNDING * np.abs(table[:, -1]))
        alike = even if even[0] and d > 2 else rising
        few = alike.sum() < RISING_SHARE * n_rows
        if few and not goes_on and (over_numbers or 2 * beyond > d):
            return True, "though it holds numbers"
    return False, None
