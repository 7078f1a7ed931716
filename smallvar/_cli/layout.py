"""What a text table has around its rows and in its cells that is not of the data.

``find_head`` looks above the header, ``is_units_row`` below it, and ``look`` through all rows: for
signs in numbers, words that mark missing values, totals and notes below the last row.
"""

import re
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import islice, takewhile

from smallvar._cli.cells import MISSING_AMONG_WORDS, USUAL_MISSING, is_missing, is_number, shortened
from smallvar._cli.signs import Evidence, Signs, signs_of, taken_apart
from smallvar._cli.words import option_of_names

SEP_LINE = re.compile(r'\ufeff?"?sep=(?P<sign>[,;|\t]|\\t)"?\s*', re.IGNORECASE)
NAMES_OF_TOTALS = frozenset(
    [
        *("total", "totals", "grand total", "subtotal", "sum", "overall", "all", "average", "avg"),
        *("mean", "median", "min", "max", "minimum", "maximum", "std", "count"),
        *("std.", "std dev", "std. dev", "std. dev.", "stdev", "sd", "s.d.", "s.d"),
        *("standard deviation", "variance"),
        *("summe", "gesamt", "insgesamt", "mittelwert", "durchschnitt", "moyenne", "somme"),
        *("suma", "promedio", "media", "totale"),
    ]
)
# words that go on, as "Total north" and "Mean (n=40)" do
TOTAL = re.compile(r"((grand|sub)[ -]?)?totals?\b|sum\b *(\(|:|of\b|$)", re.IGNORECASE)
MEAN = re.compile(r"(mean|average|avg\.?) *(\(|:|of\b)", re.IGNORECASE)
LONGEST_NAME = 30  # of a total, in characters
TOTALS_SHARE = 0.1  # of the rows at most: more are no totals of the others
NOTE_BELOW = re.compile(
    r"\W*(source|note|notes|quelle|nota|footnote|copyright)\b|[*#\u00a9\u2020(]", re.I
)
UNIT_SIGN = re.compile(
    r"[(\[].*[)\]]|[%$\u20ac\u00a3\u00a5]|\u00b0 ?[cf]?|[munpk]?(g|m|l|s|w|v|a|j|pa|hz|mol)"
    r"|[cmkd]m[23\u00b2\u00b3]?|m[23\u00b2\u00b3]|[a-z\u00b5]{1,4}/[a-z0-9\u00b5]{1,5}|kg|mg|ms|min|h|hours?|days?|years?"
    r"|ml|mmhg|usd|eur|gbp|km/h|ppm|kwh|db",
    re.IGNORECASE,
)
# of a computer, 192.168.100.101
ADDRESS = re.compile(r"\s*(25[0-5]|2[0-4]\d|1?\d?\d)(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}\s*")
ROWS_BELOW = 20  # among which totals and notes may be
NUMBERS_SHARE = 0.5  # of the cells: with more numbers, words in a column are none of the data
LISTED = 12  # words that an error lists, at most
MOST_NOTED = 1000  # words or lines that are kept in mind
ROWS_TOGETHER = 4096  # rows at a time


@dataclass(frozen=True)
class Found:
    """What `look` finds: lines to leave out, the signs in the numbers of columns, and words.

    ``slips`` are the words in columns of numbers, with the first line of each, by position of the
    column; ``uneven`` the lines whose number of cells is not that of most, ``width``. ``refused``
    are the reasons, to stand behind the name of the column, why columns cannot be read; ``empty``
    the positions of columns without any value, and ``again`` the lines that repeat the header.
    """

    skip: frozenset[int] = frozenset()
    signs: dict[int, Signs] = field(default_factory=dict)
    slips: dict[int, dict[str, int]] = field(default_factory=dict)
    uneven: tuple[int, ...] = ()
    width: int = 0
    refused: dict[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    empty: frozenset[int] = frozenset()
    again: tuple[int, ...] = ()


# ---------------------------------------------------------------------------------------
# Above the header, and the row below it


def separator_of(line):
    """The sign that a first line like ``sep=;`` names; else None."""
    match = SEP_LINE.fullmatch(line)
    if match is None:
        return None
    return "\t" if match["sign"] == "\\t" else match["sign"]


def is_title(cells):
    """Whether a row above a table is a title or a comment: one cell has text, or it begins by #."""
    return sum(bool(cell.strip()) for cell in cells) <= 1 or cells[0].startswith("#")


def table_within(records):
    """The records without titles above them and notes below."""
    records = list(records)
    while records and is_title(records[0][1]):
        records.pop(0)
    while records and is_title(records[-1][1]):
        records.pop()
    return records


def titles_above(records, number):
    """Numbers of the lines above the header; [] if it is not certain that there are any."""
    records = [(line, cells) for line, cells in records if any(map(str.strip, cells))]
    above = list(takewhile(lambda record: is_title(record[1]), records))
    if not above or len(above) == len(records):
        return []
    first, *below = [cells for _, cells in records[len(above) :]]
    last = above[-1][1]
    if any(is_number(cell, number) for cell in first):
        # a header behind a #, as numpy writes it
        if last[0].startswith("#") and len(last) == len(first) > 1:
            above.pop()
        elif not all(cells[0].startswith("#") for _, cells in above):
            return []
    elif below and all(len(cells) != len(first) for cells in below):
        return []
    return [line for line, _ in above]


def is_units_row(row, rows, number):
    """Whether the first row below the header holds the units of columns of numbers.

    No cell of it is a number, and two or more are words in columns of numbers. If there is one, it
    must be a unit that is known.
    """
    rows = [other for other in rows if len(other) == len(row)]
    if len(rows) < 2 or any(is_like_number(cell, number) for cell in row):
        return False
    units = []
    for cell, *others in zip(row, *rows, strict=True):
        there = [other for other in others if not is_missing(other)]
        numbers = sum(is_like_number(other, number) for other in there)
        if numbers > NUMBERS_SHARE * len(there) and not is_missing(cell):
            units.append(cell.strip())
    return len(units) > 1 or any(map(UNIT_SIGN.fullmatch, units))


def is_like_number(cell, number):
    """Whether a cell is a number, also with signs such as those of currencies."""
    return is_number(cell, number) or taken_apart(cell) is not None


# ---------------------------------------------------------------------------------------
# All rows


def names_total(cell):
    """Whether a cell names its row as a total or mean of others."""
    word = cell.strip()
    if word.rstrip(":").lower() in NAMES_OF_TOTALS:
        return True
    return len(word) <= LONGEST_NAME and bool(TOTAL.match(word) or MEAN.match(word))


def is_total(cells):
    """Whether a row is named as a total or mean of the others."""
    return any(map(names_total, cells))


class ColumnLook:
    """What the cells of a column are: counts of each kind, and words with their first lines."""

    def __init__(self, number, title=None):
        self.number, self.title, self.again = number, title, []  # lines that have the title
        self.plain = self.signed = self.missing = self.others = 0
        self.words, self.marks, self.unlike = {}, {}, {}  # unlike: numbers with signs
        self.totals, self.total_lines = Counter(), {}
        self.evidence, self.currencies, self.percents = Evidence(), set(), 0
        self.brackets, self.bare, self.addresses, self.unclear = 0, 0, 0, None

    def add(self, cells, lines):
        """Look at some cells, with the numbers of their lines."""
        text = "".join(cells)
        if text.isascii() and "_" not in text:
            try:
                values = list(map(float, cells))
            except ValueError:
                pass
            else:
                self.plain += len(cells)
                self.bare += any(values)
                if "." in text and not self.evidence.is_sure:
                    self.learn_decimals(cells)
                return
        for cell, count in Counter(cells).items():
            if is_number(cell):
                self.plain += count
                self.bare += float(cell) != 0
                if not self.evidence.is_sure:
                    self.learn_decimals([cell])
            else:
                self.add_cell(cell, count, cells, lines)

    def learn_decimals(self, cells):
        """Find out whether plain numbers tell the decimal sign."""
        for cell in cells:
            written = taken_apart(cell) if "." in cell else None
            if written is not None:
                self.evidence.add(written.evidence())
                if self.evidence.is_sure:
                    return

    def add_cell(self, cell, count, cells, lines):
        """Count the cells that have this text."""
        if is_missing(cell):
            self.missing += count
            word = cell.strip()
            if word.lower() not in USUAL_MISSING:
                self.marks[word] = self.marks.get(word, 0) + count
            return
        written = taken_apart(cell)
        if written is not None:
            evidence = written.evidence()
            if evidence.unclear and self.unclear is None and "," in evidence.unclear:
                self.unclear = cell.strip()
            self.evidence.add(evidence)
            self.currencies |= {written.currency} - {""}
            self.percents += written.percent * count
            self.brackets += written.in_brackets * count
        if is_number(cell, self.number):
            self.plain += count
            self.bare += bool(self.number(cell))
        elif written is not None:
            self.signed += count
            self.addresses += count * bool(ADDRESS.fullmatch(cell))
            if len(self.unlike) < MOST_NOTED:
                self.unlike.setdefault(cell.strip(), lines[cells.index(cell)])
        else:
            self.others += count
            word = cell.strip()
            if word == self.title and len(self.again) < MOST_NOTED:
                self.again += [i for other, i in zip(cells, lines, strict=True) if other == cell]
            if names_total(cell):
                self.totals[word] += count
                if len(self.total_lines) < MOST_NOTED:
                    at = (line for other, line in zip(cells, lines, strict=True) if other == cell)
                    self.total_lines |= dict.fromkeys(at, word)
            if word not in self.words and len(self.words) < MOST_NOTED:
                self.words[word] = lines[cells.index(cell)]

    @property
    def has_few_totals(self):
        """Whether the rows that are named as totals are few beside the others."""
        n_rows = self.plain + self.signed + self.missing + self.others
        return self.totals.total() <= max(1, TOTALS_SHARE * n_rows)

    @property
    def is_empty(self):
        """Whether all cells are missing."""
        return self.missing > 0 and not self.plain + self.signed + self.others

    @property
    def is_numbers(self):
        """Whether most of the cells that are there are numbers, and not all of these addresses."""
        numbers = self.plain + self.signed
        if 0 < numbers == self.addresses:
            return False
        return numbers > NUMBERS_SHARE * (numbers + self.others)


class RowsLook:
    """How many cells rows have: the numbers of their lines, and the last rows.

    ``first`` is the number of the line of the header, or of the first row.
    """

    def __init__(self, table):
        self.first, self.width = table.first_line, table.width
        self.widths, self.even, self.odd = Counter({table.width: int(table.header)}), [], {}
        self.last = deque(maxlen=ROWS_BELOW)

    def add(self, line, cells):
        """Note a row; returns whether it has as many cells as the first."""
        self.last.append((line, cells))
        self.widths[len(cells)] += 1
        if len(cells) == self.width:
            if len(self.even) < MOST_NOTED:
                self.even.append(line)
            return True
        if len(self.odd) < MOST_NOTED:
            self.odd[line] = len(cells)
        return False

    def uneven(self, skip):
        """The lines whose number of cells is not that of most rows; and that number."""
        odd = {line: width for line, width in self.odd.items() if line not in skip}
        usual = self.widths.most_common(1)[0][0] if odd else self.width
        if usual == self.width:
            return tuple(odd), usual
        others = (line for line, width in odd.items() if width != usual)
        return (self.first, *self.even, *others), usual


def look(table, wanted, by_commas):
    """Look through all rows of a TextTable; returns what is Found.

    ``by_commas`` says that the cells are separated by commas.
    """
    titles = [None] * table.width if table.names is None else table.names
    columns, rows = [ColumnLook(wanted.number, title) for title in titles], RowsLook(table)
    while chunk := list(islice(table.records, ROWS_TOGETHER)):
        even = [(line, cells) for line, cells in chunk if rows.add(line, cells)]
        lines = [line for line, _ in even]
        by_column = list(zip(*(cells for _, cells in even), strict=True))
        for column, cells in zip(columns if even else (), by_column, strict=True):
            column.add(cells, lines)
    skip, notes = {}, []
    if wanted.skip_rows != []:
        skip, notes = below_the_rows(list(rows.last), columns, table.width)
        if wanted.skip_rows is None:
            notes += totals_within(columns, skip)
    evidence = Evidence()
    for column in columns:
        if column.is_numbers:
            evidence.add(column.evidence)
    signs = signs_of(evidence, wanted.decimal, wanted.thousands, by_commas)
    used = {*table.picked, table.clock}
    by_column, told = signs_by_column(table, columns, signs, wanted, used)
    refused, slips = {}, {}
    for j, column in enumerate(columns):
        if not column.is_numbers:
            continue
        if signs is None and column.unclear is not None:
            refused[j] = advice_for_signs(column.unclear, evidence, by_commas)
        if len(column.currencies) > 1:
            refused[j] = f"has several currencies, {' and '.join(sorted(column.currencies))}"
        elif column.percents and column.bare:
            refused[j] = "has numbers with and without %"
        slips[j] = {word: at for word, at in column.words.items() if at not in skip}
        if signs is None and column.signed < column.plain:  # most have the other decimal sign
            slips[j] |= column.unlike
    return Found(
        frozenset(skip),
        {j: sign for j, sign in by_column.items() if j not in refused},
        {j: words for j, words in slips.items() if words},
        *rows.uneven(skip),
        refused,
        (*notes, *told, *notes_of_marks(table, columns, used)),
        frozenset(j for j, column in enumerate(columns) if column.is_empty),
        tuple(sorted(set.intersection(*(set(column.again) for column in columns)))),
    )


def notes_of_marks(table, columns, used):
    """Notes about less usual words for missing values in the columns at the positions ``used``."""
    return [
        f", {name_of(table, j)}: {shortened(word)} ({count:,} cell{'s' * (count > 1)}) is taken as "
        "a missing value"
        for j, column in enumerate(columns)
        for word, count in list(column.marks.items())[:3]
        if j in used and (column.is_numbers or word.lower() in MISSING_AMONG_WORDS)
    ]


def name_of(table, j):
    """What to call a column in a note."""
    return f"column {table.names[j] if table.names is not None else j + 1}"


def below_the_rows(last, columns, width):
    """The lines of totals and notes that end a table, and notes about them."""
    skip, notes = {}, []
    for place in range(len(last) - 1, -1, -1):
        line, cells = last[place]
        texts = [cell.strip() for cell in cells if cell.strip()]
        even = len(cells) == width
        gap = place > 0 and line > last[place - 1][0] + 1 + sum("\n" in cell for cell in cells)
        if not texts and even and width > 1:
            skip[line] = "empty"
        elif len(texts) == 1 and width > 1 and is_note(texts[0], cells, columns, even, gap):
            skip[line] = texts[0]
            text = shortened(texts[0])
            notes.append(f", line {line} is left out: a note below the table ({text})")
        elif even and (word := total_of(cells, columns)) is not None:
            skip[line] = word
            notes.append(
                f", line {line} is left out: a total or mean of the others ({shortened(word)}); "
                "--skip-rows none keeps it"
            )
        else:
            break
    return skip, notes[::-1]


def is_note(text, cells, columns, even, gap):
    """Whether the only text of a row is a note below the table rather than a row with gaps."""
    if is_number(text) or is_missing(text) or "\n" in text or "\r" in text:
        return False
    if not even or gap or NOTE_BELOW.match(text):
        return True
    return any(
        cell.strip() and column.is_numbers and column.plain + column.signed
        for cell, column in zip(cells, columns, strict=True)
    )


def total_of(cells, columns):
    """The word that names a row as a total, if few other rows have such in its column; or None."""
    for cell, column in zip(cells, columns, strict=True):
        word = cell.strip()
        if not names_total(word):
            continue
        once = column.totals[word] == 1 and word.rstrip(":").lower() in NAMES_OF_TOTALS
        if once or column.has_few_totals:
            return word
    return None


def totals_within(columns, skip):
    """A note about rows among the others that are named as totals, in a list; they are kept."""
    lines = {}
    for column in columns:
        if column.has_few_totals and not column.is_numbers:
            lines |= {
                line: word
                for line, word in column.total_lines.items()
                if line not in skip and TOTAL.match(word)
            }
    if not lines:
        return []
    first, at = min(lines), in_ranges(list(lines)[:LISTED])
    which = f"line {at} is" if len(lines) == 1 else f"lines {at} are"
    return [
        f", {which} named as a total ({shortened(lines[first])}) but kept; --skip-rows {at} leaves "
        f"{'it' if len(lines) == 1 else 'such lines'} out"
    ]


def signs_by_column(table, columns, signs, wanted, used):
    """The Signs of the columns whose numbers have some, and notes about those that are used."""
    by_column, told = {}, {}
    if signs is None:
        return by_column, ()
    for j, column in enumerate(columns):
        if not column.is_numbers:
            continue
        regrouped = signs.decimal != wanted.decimal or signs.thousands == "."
        evidence = column.evidence
        shifted = regrouped and bool(evidence.unclear | evidence.decimals | evidence.thousands)
        if not column.signed and not shifted:
            continue
        by_column[j] = signs
        ways = []
        if evidence.thousands or evidence.unclear & {signs.thousands}:
            ways.append(f"{signs.thousands!r} is between thousands")
        if signs.decimal != wanted.decimal and (evidence.decimals or evidence.unclear):
            ways.append(f"{signs.decimal!r} is the decimal sign")
        if column.currencies:
            ways.append(f"{' '.join(sorted(column.currencies))} is left out")
        if column.percents:
            ways.append("% is left out (45% is 45)")
        if column.brackets:
            ways.append("(5) is -5")
        if ways and j in used:
            told.setdefault(", ".join(ways), []).append(name_of(table, j))
    return by_column, [
        f", {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}: {ways}"
        for ways, names in told.items()
    ]


# ---------------------------------------------------------------------------------------
# Errors


def in_ranges(lines):
    """The argument of ``--skip-rows`` for lines: 3,7-9."""
    ranges = []
    for line in sorted(set(lines)):
        if ranges and line == ranges[-1][1] + 1:
            ranges[-1][1] = line
        else:
            ranges.append([line, line])
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in ranges)


def advice_for_words(words):
    """Text: the options that read a table in spite of words, by their first lines, in numbers."""
    listed = list(words)
    first = {word[0] for word in listed}
    if len(listed) > LISTED and len(first) == 1 and not first & set("0123456789"):
        listed = [f"{first.pop()}*"]
    if len(listed) > LISTED:
        return ""
    lines = "" if len(words) > LISTED else in_ranges(words.values())
    them = "such cells" if len(words) > 1 or "*" in listed[0] else "it"
    advice = f"{option_of_names('--na', listed)} takes {them} as missing"
    return f"; {advice}" + (f", --skip-rows {lines} leaves the row out" if len(words) == 1 else "")


def advice_for_signs(cell, evidence, by_commas):
    """Text: why a cell like 1,234 cannot be read, and the options that read it."""
    if len(evidence.decimals) > 1:
        return f"has {shortened(cell)}, but the file has both . and , as decimal signs"
    ways = "--thousands ," if by_commas else "--thousands , or --decimal ,"
    readings = f"{cell.replace(',', '')} or {cell.replace(',', '.')}"
    return f"has {shortened(cell)}, which may be {readings}: give {ways}"
