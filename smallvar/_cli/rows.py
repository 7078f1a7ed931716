"""The rows of text files: an array of numbers, and words by column.

Rows are read a block of lines at a time. A block of plain numbers is parsed by ``numpy.loadtxt``;
others are taken apart by ``csv``, and cells that are no plain numbers are kept as words with their
rows. What these words are (numbers with signs, missing values, totals, slips, levels of a category)
is decided at the end, once for each distinct word of a column.
"""

import re
from array import array
from collections import deque
from itertools import chain, islice

import numpy as np

from smallvar._cli.cells import (
    ADDRESS,
    CODE,
    MISSING,
    MOSTLY,
    SIGNS_AMONG_WORDS,
    USUAL_MISSING,
    WITH_UNIT,
    is_missing,
    number_of,
    shortened,
    taken_apart,
)
from smallvar._cli.progress import ProgressLine
from smallvar._cli.words import UserError, counted, in_ranges, option_of_names

BLOCK_CELLS = 1 << 12  # of a block, which then stays in the cache
ROWS_BELOW = 20  # among which totals and notes may be
TOTALS_SHARE = 0.1  # of the rows at most: more are no totals of the others
MOST_LISTED, LISTED_LINES = 12, 50  # words and lines that an error lists, at most
NOTE_BELOW = re.compile(
    r"\W*(source|note|notes|quelle|nota|footnote|copyright)\b|[*#\u00a9\u2020(]", re.IGNORECASE
)
NAMES_OF_TOTALS = frozenset(
    [
        *("total", "totals", "grand total", "subtotal", "sum", "overall", "all", "average", "avg"),
        *("mean", "median", "min", "max", "minimum", "maximum", "std", "count"),
        *("std.", "std dev", "std. dev", "std. dev.", "stdev", "sd", "s.d.", "s.d"),
        *("standard deviation", "variance", "summe", "gesamt", "insgesamt", "mittelwert"),
        *("durchschnitt", "moyenne", "somme", "suma", "promedio", "media", "totale"),
    ]
)
# words that go on, as "Total north" and "Mean (n=40)" do
TOTAL = re.compile(r"((grand|sub)[ -]?)?totals?\b|sum\b *(\(|:|of\b|$)", re.IGNORECASE)
MEAN = re.compile(r"(mean|average|avg\.?) *(\(|:|of\b)", re.IGNORECASE)
LONGEST_TOTAL = 30  # characters of the name of a total
# a zero between a sign between cells and a digit; zeros are found first, as these are few
PERHAPS_CODES = re.compile(r"0(?<=[\s,;|]0)\d")


class WordColumn:
    """The cells of a column that are no plain numbers: words, and the rows in which they are."""

    def __init__(self, file, j):
        self.file, self.title, self.keeps_words = file, file.titles[j], j in file.words
        self.rows, self.codes, self.places = array("q"), array("i"), {}
        self.has_codes = False  # cells like 007

    def add(self, cells, first_row, numbers):
        """Put the numbers of some cells into an array (OUT), NaN elsewhere, and keep the words."""
        decimal, marks = self.file.decimal, self.file.marks
        text = "".join(cells)
        plain = text.isascii() and "_" not in text and (decimal == "." or "." not in text)
        if plain and not self.keeps_words:
            values = cells if decimal == "." else [cell.replace(",", ".") for cell in cells]
            try:
                gaps = marks.quick
                numbers[:] = [np.nan if cell in gaps else float(cell) for cell in values]
            except ValueError:
                pass  # there are words, too
            else:
                # codes are digits only, so their values are whole: the slow look is for these alone
                if "0" in text and np.all((numbers == np.floor(numbers)) | (numbers != numbers)):
                    self.has_codes |= any(map(CODE.fullmatch, cells))
                if marks.numbers:
                    numbers[np.isin(numbers, marks.numbers)] = np.nan
                return
        # each distinct cell is looked at once
        known = dict.fromkeys(cells)  # numbers, NaN for missing values, None for words
        for cell in known:
            word = cell.strip()
            gaps = ("",) if self.keeps_words else USUAL_MISSING
            if word.lower() in gaps or cell in marks:
                known[cell] = np.nan
            elif not self.keeps_words:
                known[cell] = number_of(word, decimal)
            self.has_codes |= bool(CODE.fullmatch(word))
        places = {
            cell: self.places.setdefault(cell.strip(), len(self.places))
            for cell, number in known.items()
            if number is None
        }
        at = [i for i, cell in enumerate(cells) if cell in places]
        self.rows.extend([first_row + i for i in at])
        self.codes.extend([places[cells[i]] for i in at])
        known |= dict.fromkeys(places, np.nan)
        numbers[:] = [known[cell] for cell in cells]

    def judge(self, n_plain):
        """Find out what the words are, and how many cells: missing, numbers, or others.

        ``n_plain`` cells are plain numbers, not counting those that are kept as words.
        """
        self.missing, self.plain, self.written, self.others, self.counts = [], {}, {}, [], {}
        self.is_numbers = n_plain > 0 and not self.has_codes
        if not self.places:
            return
        counts = np.bincount(self.codes, minlength=len(self.places)).tolist()
        self.counts = {word: n for word, n in zip(self.places, counts, strict=True) if n}
        for word in self.counts:
            if word.lower() in MISSING:
                self.missing.append(word)
            elif (number := number_of(word, self.file.decimal)) is not None:
                self.plain[word] = number
            elif (number := taken_apart(word)) is not None:
                self.written[word] = number
            else:
                self.others.append(word)
        n_written, n_others = self.count(self.written), self.count(self.others)
        n_numbers = n_plain + self.count(self.plain) + n_written
        addresses = n_numbers == n_written > 0 and all(map(ADDRESS.fullmatch, self.written))
        mostly = n_numbers > MOSTLY * (n_numbers + n_others)
        self.is_numbers = mostly and not self.has_codes and not addresses

    def count(self, words):
        """The number of cells that are one of some words."""
        return sum(self.counts[word] for word in words)

    def has_words(self, any_word):
        """Whether the cells are read as words: those of columns with ``any_word``, or with most."""
        if any_word:
            return bool(self.others)
        return not self.is_numbers and bool(self.others or self.written or self.has_codes)

    def rows_of(self, words):
        """The rows with one of some words, ascending."""
        codes = [self.places[word] for word in words if word in self.places]
        return np.asarray(self.rows)[np.isin(np.asarray(self.codes), codes)]

    def totals(self, n_rows):
        """The words that name totals, if few of the rows have them; else none."""
        totals = [word for word in self.others if names_total(word)]
        return totals if self.count(totals) <= max(1, TOTALS_SHARE * n_rows) else []

    def truncate(self, n_rows):
        """Remove the rows from a number on."""
        while self.rows and self.rows[-1] >= n_rows:
            self.rows.pop()
            self.codes.pop()

    def put_numbers(self, numbers, signs):
        """Put the numbers that words are into the column (INOUT)."""
        values = {word: number.value(*signs) for word, number in self.written.items()}
        values |= self.plain
        of_codes = np.array([values.get(word, np.nan) for word in self.places])
        numbers[np.asarray(self.rows)] = of_codes[np.asarray(self.codes)]

    def levels(self, n_rows):
        """The words of all rows, None where they are missing."""
        levels = [
            None if word.lower() in MISSING - SIGNS_AMONG_WORDS else word for word in self.places
        ]
        codes = np.full(n_rows, -1)
        codes[np.asarray(self.rows, dtype=int)] = np.asarray(self.codes, dtype=int)
        return np.array([*levels, None], dtype=object)[codes]


class Rows:
    """One pass over all rows of a TextFile: an array of numbers, and a WordColumn for each."""

    def __init__(self, file):
        self.file = file
        self.columns = [WordColumn(file, j) for j in range(file.width)]
        self.numbers, self.n_rows = array("d"), 0
        self.uneven, self.below, self.last = {}, {}, deque(maxlen=ROWS_BELOW)  # of the rows
        n_lines, gaps, line = max(16, BLOCK_CELLS // file.width), [], file.start
        with ProgressLine("reading") as progress, file.opened() as (lines, share):
            lines = islice(lines, file.start, None)
            while block := list(islice(lines, n_lines)):
                end = line + len(block)
                numbers = None if gaps or file.words else self.plain_numbers(block, line)
                if numbers is not None:
                    line = end
                    # of a block of numbers its last row stands for all: none is a total or note
                    self.last.extend([(line, ["0"] * file.width)])
                    self.append(numbers)
                    continue
                # a quoted cell may go on behind the block, so the lines after it are offered, too
                rows, records = [], file.rows_of(chain(block, lines), line, gaps)
                for line, cells, _ in records:
                    if line not in file.left_out:
                        rows.append((line, cells))
                    if line >= end:
                        break
                line = max(line, end)
                self.add(rows)
                progress.show(f"{share():.0%} done")
        beyond = [number for number in file.args.skip_rows or () if number > line]
        if beyond:
            raise UserError(f"--skip-rows {in_ranges(beyond)}: {file.name} has {line:,} lines")

    def plain_numbers(self, lines, before):
        """The numbers of a block of lines that are rows of plain numbers; else None."""
        file, text = self.file, "".join(lines)
        if not text.isascii() or '"' in text or text.isspace() or file.marks.beginnings:
            return None
        if not file.left_out.isdisjoint(range(before + 1, before + len(lines) + 1)):
            return None
        if file.decimal == ",":
            if "." in text or file.delimiter == ",":
                return None
            text, lines = text.replace(",", "."), [line.replace(",", ".") for line in lines]
        if PERHAPS_CODES.search(f"\n{text}"):  # loadtxt reads 007 as 7
            return None
        try:
            delimiter = None if file.delimiter == " " else file.delimiter
            numbers = np.loadtxt(lines, delimiter=delimiter, comments=None, ndmin=2)
        except ValueError:
            return None
        if numbers.shape != (len(lines), file.width):
            return None
        if file.marks.numbers:
            numbers[np.isin(numbers, file.marks.numbers)] = np.nan
        return numbers

    def append(self, numbers):
        """Append rows of numbers (r, width)."""
        self.numbers.frombytes(memoryview(numbers).cast("B"))
        self.n_rows += len(numbers)

    def add(self, records):
        """Add rows by their lines and cells."""
        self.last.extend(records)
        for line, cells in records:
            if len(cells) != self.file.width and len(self.uneven) <= LISTED_LINES:
                self.uneven[line] = len(cells)
        rows = [cells for _, cells in records if len(cells) == self.file.width]
        if rows:
            numbers = np.empty((len(rows), self.file.width))
            columns = zip(self.columns, zip(*rows, strict=True), numbers.T, strict=True)
            for column, cells, values in columns:
                column.add(cells, self.n_rows, values)
            self.append(numbers)

    def judge(self):
        """Find out what the words of all columns are."""
        n_plain = (self.array() == self.array()).sum(axis=0).tolist()
        for column, n in zip(self.columns, n_plain, strict=True):
            column.judge(n)

    def array(self):
        """The numbers as an array (n_rows, width)."""
        shape = (self.n_rows, self.file.width)
        return np.frombuffer(self.numbers).reshape(shape) if self.n_rows else np.empty(shape)

    def result(self, words, signs):
        """The numbers as an array, and the columns of words by position."""
        numbers = self.array()
        for j, column in enumerate(self.columns):
            if j not in words and column.rows:
                column.put_numbers(numbers[:, j], signs or ("", ""))
        return numbers, {j: self.columns[j].levels(self.n_rows) for j in sorted(words)}

    # Totals and notes below the rows

    def leave_out_below(self):
        """Remove totals and notes below the rows."""
        self.judge()
        width, last = self.file.width, list(self.last) if self.file.by_itself else []
        for place in range(len(last) - 1, -1, -1):  # up to the first row that is neither
            line, cells = last[place]
            texts, even = [cell.strip() for cell in cells if cell.strip()], len(cells) == width
            before = last[place - 1][0] if place else line
            after_gap = line > before + 1 + sum("\n" in cell for cell in cells)
            if not texts and even and width > 1:
                self.below[line] = ""
            elif len(texts) == 1 < width and self.is_note(texts[0], cells, after_gap):
                self.below[line] = f"a note below the table ({shortened(texts[0])})"
            elif even and (word := self.total_of(cells)) is not None:
                self.below[line] = (
                    f"a total or mean of the others ({shortened(word)}); --skip-rows none keeps it"
                )
            else:
                break
        removed = sum(len(cells) == width for line, cells in last if line in self.below)
        if removed:
            self.n_rows -= removed
            del self.numbers[self.n_rows * width :]
            for column in self.columns:
                column.truncate(self.n_rows)
            self.judge()
        for line in self.below:
            self.uneven.pop(line, None)

    def is_note(self, text, cells, after_gap):
        """Whether the only text of a row is a note below the table rather than a row with gaps."""
        if number_of(text) is not None or is_missing(text) or "\n" in text or "\r" in text:
            return False
        if len(cells) != self.file.width or after_gap or NOTE_BELOW.match(text):
            return True
        columns = zip(cells, self.columns, strict=True)
        return any(cell.strip() and column.is_numbers for cell, column in columns)

    def total_of(self, cells):
        """The word that names a row as a total, if few others have such in its column; or None."""
        for cell, column in zip(cells, self.columns, strict=True):
            word = cell.strip()
            if names_total(word):
                once = column.counts.get(word) == 1 and word.rstrip(":").lower() in NAMES_OF_TOTALS
                if once or column.totals(self.n_rows):
                    return word
        return None

    def note_totals(self):
        """Note rows among the others that are named as totals; they are kept."""
        rows = {}
        for column in self.columns:
            if not column.is_numbers:
                for word in filter(TOTAL.match, column.totals(self.n_rows)):
                    rows |= dict.fromkeys(column.rows_of([word]).tolist(), word)
        if rows and self.file.args.skip_rows is None:
            at = in_ranges(self.file.lines_of(sorted(rows)[:MOST_LISTED]))
            self.file.note(
                f": rows that are named as a total ({shortened(rows[min(rows)])}) are kept; "
                f"--skip-rows {at} leaves them out"
            )

    # Errors and notes

    def check(self, used, unchecked, signs):
        """Raise the first error in the columns at some positions, and note how they are read."""
        file, signs = self.file, signs or ("", "")
        if self.uneven:
            raise file.uneven_error({file.first_line: file.width, **self.uneven})
        if self.n_rows == 0:
            raise UserError(f"{file.name} has a header but no rows")
        columns = [self.columns[j] for j in used]
        checked = [self.columns[j] for j in used if j not in unchecked and self.columns[j].places]
        numbers = [column for column in checked if column.is_numbers]
        for column in numbers:
            self.refuse_signs(column, signs)
        self.refuse_slips(numbers, signs)
        for column in checked:
            self.refuse_units(column)
        for line, what in sorted(self.below.items()):
            if what:
                file.note(f", line {line} is left out: {what}")
        self.note_totals()
        self.note_signs([column for column in columns if column.is_numbers], signs)
        for column in columns:
            usual = USUAL_MISSING if column.is_numbers else USUAL_MISSING | SIGNS_AMONG_WORDS
            for word in [word for word in column.missing if word.lower() not in usual][:3]:
                file.note(
                    f", column {column.title}: {shortened(word)} "
                    f"({counted(column.counts[word], 'cell')}) is taken as a missing value"
                )

    def refuse(self, column, reason, advice=None):
        """Raise a UserError about a column; by default it says how the column is left out."""
        without = f"; {option_of_names('--exclude', [column.title])} leaves it out"
        raise UserError(f"{self.file.name}: column {column.title} {reason}{advice or without}")

    def refuse_signs(self, column, signs):
        """Raise a UserError if numbers with signs in a column cannot be read."""
        numbers = column.written
        either = next((word for word, number in numbers.items() if number.either == ","), None)
        if signs[0] == "" and either is not None:
            readings = f"{either.replace(',', '')} or {either.replace(',', '.')}"
            reason = f"has {shortened(either)}, which may be {readings}"
            if column.others:
                reason += f", and {shortened(column.others[0])}, which is no number"
            self.refuse(column, reason, ": give --decimal . or --decimal ,")
        currencies = {number.currency for number in numbers.values()} - {""}
        if len(currencies) > 1:
            self.refuse(column, f"has several currencies, {' and '.join(sorted(currencies))}")
        percent = [number.percent for number in numbers.values()]
        if any(percent):
            plain = self.array()[:, self.columns.index(column)]
            others = np.any(plain[plain == plain]) or any(column.plain.values())
            if others or not all(percent):
                self.refuse(column, "has numbers with and without %")

    def refuse_slips(self, columns, signs):
        """Raise a UserError for the first word in columns of numbers."""
        first, words = [], {}
        for column in columns:
            unlike = (word for word, n in column.written.items() if n.value(*signs) is None)
            slips = [*column.others, *unlike]
            if slips:
                row = column.rows_of(slips)[0]
                code = column.codes[column.rows.index(row)]
                first.append((row, column.title, list(column.places)[code]))
                words |= dict.fromkeys(slips)
        if not first:
            return
        row, title, word = min(first, key=lambda slip: slip[0])
        (line,) = self.file.lines_of([row])
        again = set.intersection(*({*c.rows_of([c.title]).tolist()} for c in self.columns))
        if again:
            lines = in_ranges(self.file.lines_of(again))
            advice = f"; some lines repeat the header: --skip-rows {lines} leaves them out"
        else:
            advice = advice_for_words([*words], line, self.file.args.na or [])
            if word[0].isalpha():  # perhaps a name, unlike <35
                kinds = option_of_names("--kinds", [f"{title}=categorical"])
                advice += f"; {kinds} takes all cells as names"
        advice = advice or f"; {option_of_names('--exclude', [title])} leaves the column out"
        where = f"{self.file.name}, line {line}, column {title}"
        raise UserError(f"{where}: {shortened(word)} is not a number{advice}")

    def refuse_units(self, column):
        """Raise a UserError if most cells of a column of words are numbers with a unit."""
        united = [word for word in column.others if WITH_UNIT.fullmatch(word)]
        if len(united) > 1 and column.count(united) > MOSTLY * column.count(column.others):
            kinds = option_of_names("--kinds", [f"{column.title}=categorical"])
            reason = f"has numbers with units, like {shortened(united[0])}: write the numbers alone"
            self.refuse(column, reason, f"; {kinds} takes all cells as names")

    def note_signs(self, columns, signs):
        """Note how numbers with signs are read."""
        told, numbers = {}, self.array()
        for column in columns:
            written, ways = list(column.written.values()), []
            if signs[1] and any(signs[1] in (n.group, n.either) for n in written):
                ways.append(f"{signs[1]!r} is between thousands")
            if (self.file.args.decimal or ".") == "." and signs[0] == ",":
                plain = numbers[:, self.columns.index(column)]
                points = any("," in (n.point, n.either) for n in written)
                if points or np.any(np.floor(plain) < plain):
                    ways.append("',' is the decimal sign")
            currencies = sorted({n.currency for n in written} - {""})
            ways += [f"{' '.join(currencies)} is left out"] * bool(currencies)
            ways += ["% is left out (45% is 45)"] * any(n.percent for n in written)
            ways += ["(5) is -5"] * any(n.brackets for n in written)
            if ways:
                told.setdefault(", ".join(ways), []).append(f"column {column.title}")
        for ways, names in told.items():
            self.file.note(f", {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}: {ways}")


def names_total(word):
    """Whether a word names its row as a total or mean of others."""
    if word.rstrip(":").lower() in NAMES_OF_TOTALS:
        return True
    return len(word) <= LONGEST_TOTAL and bool(TOTAL.match(word) or MEAN.match(word))


def advice_for_words(words, line, given):
    """Text: the options that read a table in spite of words; ``given`` are those of ``--na``."""
    first = {word[0] for word in words}
    if len(words) > MOST_LISTED and len(first) == 1 and not first & set("0123456789"):
        words = [f"{first.pop()}*"]
    if len(words) > MOST_LISTED:
        return ""
    one = len(words) == 1 and words[0][-1] != "*"
    option, what = option_of_names("--na", [*given, *words]), "it" if one else "such cells"
    advice = f"; {option} takes {what} as missing"
    return advice + (f", --skip-rows {line} leaves the row out" if one else "")
