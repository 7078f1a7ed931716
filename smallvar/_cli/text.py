"""Text tables as people have them: rows of numbers and words, and what is around the rows.

`TextFile` looks at the first lines: sign between cells, titles above the header, header, units. Its
``read`` goes through all rows, a block of lines at a time. A block of plain numbers is parsed by
``numpy.loadtxt``; others are taken apart by ``csv``, and cells that are no plain numbers are kept
as words with their rows. What these words are (numbers with signs, missing values, totals, slips,
levels of a category) is decided at the end, once for each distinct word of a column.
"""

import codecs
import csv
import gzip
import io
import os
import re
from array import array
from collections import Counter, deque
from contextlib import contextmanager
from itertools import chain, islice, takewhile

import numpy as np

from smallvar._cli.cells import (
    ADDRESS,
    CODE,
    LEVELS,
    MISSING,
    NAMES_OF_TOTALS,
    TOTAL,
    UNIT_SIGN,
    USUAL_MISSING,
    WITH_UNIT,
    Marks,
    find_header,
    is_missing,
    names_total,
    number_of,
    shortened,
    signs_of,
    taken_apart,
)
from smallvar._cli.errors import UserError
from smallvar._cli.progress import ProgressLine
from smallvar._cli.words import counted, option_of_names, unlike_names

HEAD_LINES, HEAD_CHARACTERS = 100, 1 << 20  # that tell what the columns are, at most
BLOCK_CELLS, MOST_BLOCK_LINES = 1 << 12, 4096  # of a block, which then stays in the cache
MOSTLY = 0.5  # a column is of numbers if more of the cells that are there are
ROWS_BELOW = 20  # among which totals and notes may be
TOTALS_SHARE = 0.1  # of the rows at most: more are no totals of the others
MOST_LISTED, MOST_LINES = 12, 50  # words and lines that an error lists, at most
MARK_OF_GZIP, MARKS_OF_UTF_16 = b"\x1f\x8b", (b"\xff\xfe", b"\xfe\xff")
QUOTED_OR_BARE = re.compile(r'"([^"]*)"(?!\S)|(\S+)')  # a cell between spaces
SEP_LINE = re.compile(r'\ufeff?"?sep=(?P<sign>[,;|\t]|\\t)"?\s*', re.IGNORECASE)
NOTE_BELOW = re.compile(
    r"\W*(source|note|notes|quelle|nota|footnote|copyright)\b|[*#\u00a9\u2020(]", re.IGNORECASE
)
SEPARATORS = np.isin(np.arange(256), list(b" \t\r\n,;|"))
DIGITS = np.isin(np.arange(256), list(b"0123456789"))


class TextFile:
    """A text file, and what its first lines say.

    ``source`` says where it is, and ``args`` are the parsed arguments of the command.
    ``delimiter`` is the sign between cells, " " for runs of spaces, and ``decimal`` that of
    decimals, which is not ``sure`` if no cell of the first rows shows it. ``titles`` are those of
    all ``width`` columns, and ``has_header`` says whether they are in the file. ``first_line`` is
    the number of the line of the header, or of the first row, and ``start`` of the last line
    before the rows. ``left_out`` are lines below that are no rows. ``words`` are the positions of
    columns that begin with words, ``blank`` those of columns without a title and values.
    """

    kind = "text"

    def __init__(self, source, args):
        self.source, self.name, self.args, self.notes = source, source.name, args, []
        for note in source.notes:
            self.note(note)
        self.marks, self.left_out = Marks(args.na), frozenset(args.skip_rows or ())
        self.by_itself = args.skip_rows != []  # what is around the rows is left out
        with self.opened() as (lines, _):
            records = self.head(lines)
        if not records:
            raise UserError(f"{self.name} is empty")
        self.width = Counter(len(cells) for _, cells, _ in records).most_common(1)[0][0]
        if self.by_itself:
            self.leave_out_titles(records)
        self.look_at(records)

    def note(self, words):
        """Note something about how the file is read, to be told the user."""
        self.notes.append(f"{self.name}{words}")

    # Lines and their cells

    @contextmanager
    def opened(self):
        """Context of the lines of the file, and of a function that tells the share that is read."""
        source, wanted = self.source, self.args.encoding
        size = os.stat(source.path).st_size
        try:
            encoding = codecs.lookup(wanted or "utf-8").name
            encoding = "utf-8-sig" if encoding == "utf-8" else encoding  # which skips a mark
            with open(source.path, "rb", buffering=0) as raw:
                file = gzip.GzipFile(fileobj=raw) if source.packed else io.BufferedReader(raw)
                with io.TextIOWrapper(file, encoding=encoding, newline="") as lines:
                    yield lines, lambda: raw.tell() / size
        except UnicodeError as error:
            if wanted is not None:
                words = f"{self.name} is not a text file in {wanted}: {error}"
                raise UserError(words) from error
            raise UserError(self.explain_encoding()) from error
        except LookupError as error:
            raise UserError(f"--encoding {wanted}: {error}") from error
        except gzip.BadGzipFile as error:
            with open(source.path, "rb") as raw:
                begins_well = raw.read(2) == MARK_OF_GZIP
            if not (begins_well and str(error).startswith("Not a gzipped file")):
                raise
            raise UserError(f"{self.name} has other bytes after its compressed data") from error

    def explain_encoding(self):
        """Say where the file is not UTF-8, and which option helps."""
        what = f"{self.name} is not a text file in UTF-8"
        with open(self.source.path, "rb") as raw:
            lines = gzip.GzipFile(fileobj=raw) if self.source.packed else raw
            for number, line in enumerate(lines, 1):
                if number == 1 and line.startswith(MARK_OF_GZIP):
                    return f"{self.name} is compressed: its name must end in {self.source.kind}.gz"
                if number == 1 and line.startswith(MARKS_OF_UTF_16):
                    return f"{what}, but perhaps in UTF-16: try --encoding utf-16"
                try:
                    line.decode()
                except UnicodeDecodeError as error:
                    at = error.start
                    around = line[max(0, at - 10) : at + 10].decode("cp1252", "replace").strip()
                    return (
                        f"{what}: byte 0x{line[at]:02x} in line {number}; --encoding cp1252 "
                        f"(western European) reads {around!r} there, or name another encoding"
                    )
        return what

    @property
    def encoding(self):
        """The encoding to write the file in."""
        with open(self.source.path, "rb") as raw:
            file = gzip.GzipFile(fileobj=raw) if self.source.packed else raw
            marked = file.read(3) == codecs.BOM_UTF8
        return "utf-8-sig" if marked else self.args.encoding or "utf-8"

    def split(self, lines, before, delimiter=None):
        """Yield the number of the last line, the cells and the lines of every row.

        ``before`` is the number of the line before the first. A quote does not open a cell of many
        lines in a line that is left out, and one that is not closed is refused, but for those of a
        sample that is split on trial at a ``delimiter``.
        """
        on_trial, delimiter = delimiter is not None, delimiter or self.delimiter
        if delimiter == " ":
            for number, line in enumerate(lines, before + 1):
                quoted = QUOTED_OR_BARE.findall(line) if '"' in line else None
                yield number, [a or b for a, b in quoted] if quoted else line.split(), [line]
            return
        held = []  # the lines of the row

        def holding():
            for number, line in enumerate(lines, before + 1):
                held.append(line)
                left_out = len(held) == 1 and number in self.left_out and line.count('"') % 2
                yield line.replace('"', "") if left_out else line

        reader = csv.reader(holding(), delimiter=delimiter, skipinitialspace=True)
        try:
            for cells in reader:
                if len(held) > 1 and not on_trial:
                    self.refuse_open_quote(held, before + reader.line_num)
                yield before + reader.line_num, cells, held
                held.clear()
        except csv.Error as error:
            words, line = str(error), before + reader.line_num
            if words.startswith("field larger"):
                if not on_trial:
                    self.refuse_open_quote(held, line)
                words = f"a cell has more than {csv.field_size_limit():,} characters"
            raise UserError(f"{self.name}, line {line}: {words}") from error

    def refuse_open_quote(self, held, last):
        """Raise a UserError if a row of several lines has a quote that is not closed.

        The file ends within it, or it ends where another begins. ``last`` is the number of the
        last of the lines ``held``.
        """
        try:
            list(csv.reader(held, delimiter=self.delimiter, skipinitialspace=True, strict=True))
        except csv.Error:
            first = last - len(held) + 1
            odd = [line for line, text in enumerate(held, first) if text.count('"') % 2]
            raise UserError(
                f"{self.name}, line {first}: a quote begins that is not closed, so that one cell "
                f"would hold all up to line {last}; --skip-rows {in_ranges(odd or [first])} leaves "
                f"{'it' if len(odd) == 1 else 'such lines'} out"
            ) from None

    def lines(self):
        """Yield the text and the cells of every row, and whether it is one of the table.

        The header comes first. It is none, as are lines that are left out.
        """
        for _, text, cells, is_row in self.records():
            yield text, cells, is_row

    def records(self):
        """Yield the number of the last line of every row, and the rest as for `lines`."""
        before = self.first_line - self.header_lines
        gaps = []  # blank lines of a table of one column: missing values, if a row follows
        with self.opened() as (lines, _):
            for line, cells, held in self.split(islice(lines, before, None), before):
                if self.is_blank(cells):
                    gaps += [line] * (self.width == 1)
                    continue
                yield from ((gap, '""', [""], True) for gap in gaps)
                gaps.clear()
                is_row = line > self.start and line not in self.left_out
                yield line, "".join(held).rstrip("\r\n"), cells, is_row

    def is_blank(self, cells):
        """Whether a row is a blank line."""
        return not cells or (len(cells) == 1 and self.width != 1 and not cells[0].strip())

    def lines_of(self, rows):
        """The numbers of the lines of some rows, by their positions from 0."""
        wished = {int(row) for row in rows}
        lines = (line for line, _, _, is_row in self.records() if is_row)
        first = islice(lines, max(wished, default=-1) + 1)
        return [line for row, line in enumerate(first) if row in wished]

    # The first lines

    def head(self, lines):
        """The first rows: number of the last line, cells, number of lines. Finds the delimiter."""
        sample, size = [], 0
        for line in islice(lines, HEAD_LINES):
            sample.append(line)
            size += len(line)
            if size > HEAD_CHARACTERS:
                break
        if any("\0" in line for line in sample):
            encoding = self.args.encoding or "UTF-8"
            utf_16 = {"utf-16-be": sample[0][::2], "utf-16-le": sample[0][1::2]}
            advice = (name for name, half in utf_16.items() if not half.strip("\0"))
            advice = next((f"; try --encoding {name}" for name in advice), "")
            raise UserError(f"{self.name} is not a text file in {encoding}{advice}")
        sample = ["\n" if i in self.left_out else line for i, line in enumerate(sample, 1)]
        first = next((i for i, line in enumerate(sample) if line.strip()), 0)
        named = SEP_LINE.fullmatch(sample[first]) if sample and self.by_itself else None
        if named:
            self.delimiter = named["sign"].replace("\\t", "\t")
            self.note(f", line {first + 1} names the sign between cells, {self.delimiter!r}")
            sample[first] = "\n"
        elif self.source.kind == ".xlsx":
            self.delimiter = ","
        elif self.source.kind == ".tsv" and any("\t" in line for line in sample):
            self.delimiter = "\t"
        else:
            self.delimiter = self.delimiter_of([line for line in sample if line.strip()])
        rows = self.split(sample, 0, self.delimiter)
        return [
            (line, cells, len(held)) for line, cells, held in rows if any(map(str.strip, cells))
        ]

    def delimiter_of(self, lines):
        """The sign between cells: tab, semicolon, |, comma, or " " for runs of spaces.

        In this order, the first is taken that splits all of the lines into the same number of
        cells, two or more: text in a cell often has spaces, sometimes commas, seldom the others.
        Otherwise it is the one by which most lines agree, but spaces only if no other splits more
        than half of the lines.
        """
        agreeing = dict.fromkeys("\t;|, ", 0)
        for sign in agreeing:
            try:
                widths = Counter(len(row) for _, row, _ in self.split(lines, 0, sign) if row)
            except UserError:  # a line is too long for a cell
                continue
            del widths[1]
            agreeing[sign] = max(widths.values(), default=0)
        usual = ","
        if self.args.decimal == ",":
            commas, usual = agreeing.pop(","), ";"
            numbers = all(number_of(line, ",") is not None for line in lines)
            if not numbers and commas == len(lines) > max(agreeing.values()):
                raise UserError(
                    f"--decimal ,: {self.name} is separated by commas; it must be by semicolons, "
                    "tabs or spaces"
                )
        for sign, count in agreeing.items():
            if count == len(lines) > 0:
                return sign
        spaces = agreeing.pop(" ")
        best = max(agreeing, key=agreeing.__getitem__)
        if 2 * agreeing[best] <= len(lines) < 2 * spaces:
            return " "
        return best if agreeing[best] else usual

    def leave_out_titles(self, records):
        """Remove from the records (INOUT) the titles and comments above the header.

        A title has text in one cell. Above a row of numbers, only a line of fewer cells is a title.
        A comment, which begins with #, is the header if it has the cells of one.
        """

        def is_comment(cells):
            return cells[0].lstrip().startswith("#")

        def is_title(record):
            n_filled = sum(bool(cell.strip()) for cell in record[1])
            return is_comment(record[1]) or n_filled <= 1 < self.width

        above = list(takewhile(is_title, records))
        if not above or len(above) == len(records):
            return
        first = records[len(above)][1]
        if any(taken_apart(cell.strip()) for cell in first):
            last = above[-1][1]
            titles = list(takewhile(lambda r: is_comment(r[1]) or len(r[1]) < self.width, above))
            if titles == above and is_comment(last) and len(last) == len(first) > 1:
                titles.pop()
                last[0] = last[0].lstrip("# ") or last[0]
            above = titles
        lines = [line for line, _, _ in above]
        del records[: len(above)]
        if lines:
            which = f"line {lines[0]}" if len(lines) == 1 else f"lines {in_ranges(lines)}"
            self.note(f", {which} above the header {'is' if len(lines) == 1 else 'are'} left out")

    def look_at(self, records):
        """Find the decimal sign, the header, units, and which columns begin with words."""
        self.first_line, first, self.header_lines = records[0]
        near = [
            (line, ["" if cell in self.marks else cell for cell in cells])
            for line, cells, _ in records[1:]
        ]
        rows = [cells for _, cells in near if len(cells) == self.width]
        self.find_decimal([first, *rows])
        first = self.completed(first, rows)
        if len(first) != self.width:
            raise self.uneven_error({line: len(cells) for line, cells, _ in records})
        self.has_header, doubt = find_header(first, rows, self.decimal)
        self.titles = [str(j + 1) for j in range(self.width)]
        self.start = self.first_line - self.header_lines
        if self.has_header:
            self.start = self.first_line
            self.titles, repeated = unlike_names([cell.strip() for cell in first])
            if self.by_itself and near and self.is_units_row(near[0][1], rows[1:]):
                self.left_out |= {near[0][0]}
                units = ", ".join(repr(cell.strip()) for cell in rows.pop(0) if cell.strip())
                self.note(f", line {near[0][0]} is left out: units ({units})")
            for note in repeated:
                self.note(note)
        else:
            rows.insert(0, first)
        if doubt:
            taken, other = "a row", "they are, put names in their place"
            if self.has_header:
                taken, other = "the header", "it is a row, add a line of names above it"
            self.note(f", line {self.first_line} is taken as {taken}, {doubt}; if {other}")
        self.words, self.blank = set(), set()
        for j, cells in enumerate(zip(*rows, strict=True)):
            there = [cell for cell in cells if not is_missing(cell)]
            if there and not self.are_numbers(there):
                self.words.add(j)
            if not there and not self.titles[j]:
                self.blank.add(j)

    def find_decimal(self, rows):
        """Find the decimal sign, by the cells of the first rows if it is not given."""
        signed = {cell.strip() for row in rows for cell in row if "," in cell or "." in cell}
        numbers = [number for cell in signed if (number := taken_apart(cell)) is not None]
        shown = Counter(number.point for number in numbers if number.point)
        signs = signs_of(numbers, (), self.delimiter == ",")
        usual = max(sorted(shown), key=shown.__getitem__, default=".")
        self.decimal = self.args.decimal or (signs[0] if signs else usual)
        self.sure = self.args.decimal is not None or self.decimal in shown

    def is_number(self, cell):
        """Whether a cell is a number, also with signs such as those of currencies."""
        return number_of(cell, self.decimal) is not None or taken_apart(cell.strip()) is not None

    def are_numbers(self, cells):
        """Whether most of the cells that are there are numbers."""
        there = [cell for cell in cells if not is_missing(cell)]
        return sum(map(self.is_number, there)) > MOSTLY * len(there)

    def completed(self, first, rows):
        """The header with the title that it lacks, empty, where rows have one cell more.

        R writes names of rows without a title; other programs write a sign behind the last cell.
        """
        if len(first) != self.width - 1 or not rows or any(map(self.is_number, first)):
            return first
        if not any(map(self.is_number, rows[0])):
            return first  # a row of words below a title may be the header
        return [*first, ""] if all(is_missing(row[-1]) for row in rows) else ["", *first]

    def is_units_row(self, row, rows):
        """Whether the first row below the header holds the units of columns of numbers.

        No cell of it is a number, and two or more are words in columns of numbers. If there is one,
        it must be a unit that is known.
        """
        if len(row) != self.width or len(rows) < 2 or any(map(self.is_number, row)):
            return False
        columns = zip(row, *rows, strict=True)
        units = [
            c.strip() for c, *below in columns if not is_missing(c) and self.are_numbers(below)
        ]
        return len(units) > 1 or any(map(UNIT_SIGN.fullmatch, units))

    def uneven_error(self, widths):
        """The error for lines, with their numbers of cells, of which some do not fit the others."""
        usual, first = self.width, widths.get(self.first_line, self.width)
        odd = [line for line, width in widths.items() if width != usual]
        at = next(line for line, width in widths.items() if width != first)
        them = "it" if len(odd) == 1 else "such rows"
        advice = f"; --skip-rows {in_ranges(odd)} leaves {them} out"
        if first != usual == 2 * first > 2 and self.delimiter == ",":
            advice = "; with decimal commas, cells must be in quotes, or ; or tabs between them"
        return UserError(
            f"{self.name}, line {at}: {counted(widths[at], 'cell')}, but {first} in line "
            f"{self.first_line}{advice if len(odd) <= MOST_LINES else ''}"
        )

    # All rows

    def read(self, used, unchecked=()):
        """Read all rows: an array of numbers (n, width), and columns of words by position.

        Words are an array of strings, None where a cell is missing. The columns at the positions
        ``used`` are checked, but for ``unchecked``, which may mix numbers and words.
        """
        while True:
            rows = Rows(self)
            rows.leave_out_below()
            numbers = [n for c in rows.columns if c.is_numbers for n in c.written.values()]
            signs = signs_of(numbers, {self.decimal} if self.sure else (), self.delimiter == ",")
            words = {j for j, c in enumerate(rows.columns) if c.has_words(j in unchecked)}
            # all rows are read again, if later ones have words in columns that began with numbers,
            # or another decimal sign
            if signs is not None and signs[0] != self.decimal:
                self.decimal, self.sure = signs[0], True
            elif words <= self.words:
                break
            self.words |= words
        rows.check(used, unchecked, signs)
        self.left_out |= set(rows.below)
        return rows.result(words, signs)


class Column:
    """The cells of a column that are no plain numbers: words, and the rows in which they are."""

    def __init__(self, file, j):
        self.file, self.title, self.keeps_words = file, file.titles[j], j in file.words
        self.rows, self.codes, self.places = array("q"), array("i"), {}
        self.has_codes, self.n_plain = False, 0  # codes are cells like 007

    def add(self, cells, first_row, numbers):
        """Put the numbers of some cells into an array (OUT), NaN elsewhere, and keep the words."""
        decimal, marks = self.file.decimal, self.file.marks
        text = "".join(cells)
        plain = text.isascii() and "_" not in text and (decimal == "." or "." not in text)
        if plain and not self.keeps_words:
            values = cells if decimal == "." else [cell.replace(",", ".") for cell in cells]
            try:
                try:
                    numbers[:] = list(map(float, values))
                except ValueError:
                    gaps = marks.quick
                    numbers[:] = [np.nan if cell in gaps else float(cell) for cell in values]
            except ValueError:
                pass  # there are words, too
            else:
                if "0" in text and np.all((numbers == np.floor(numbers)) | (numbers != numbers)):
                    self.has_codes |= any(map(CODE.fullmatch, cells))
                if marks.numbers:
                    numbers[np.isin(numbers, marks.numbers)] = np.nan
                return
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

    def judge(self):
        """Find out what the words are, and how many cells: missing, numbers, or others."""
        counts = np.bincount(self.codes, minlength=len(self.places)).tolist()
        self.counts = {word: n for word, n in zip(self.places, counts, strict=True) if n}
        self.missing, self.plain, self.written, self.others = [], {}, {}, []
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
        n_numbers = self.n_plain + self.count(self.plain) + n_written
        addresses = n_numbers == n_written > 0 and all(map(ADDRESS.fullmatch, self.written))
        self.is_numbers = n_numbers > MOSTLY * (n_numbers + n_others)
        self.is_numbers &= not self.has_codes and not addresses

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

    def truncate(self, n_rows, removed):
        """Remove the rows from a number on, whose numbers are ``removed``."""
        self.n_plain -= int((removed == removed).sum())
        while self.rows and self.rows[-1] >= n_rows:
            self.rows.pop()
            self.codes.pop()
        self.judge()

    def put_numbers(self, numbers, signs):
        """Put the numbers that words are into the column (INOUT)."""
        values = {word: number.value(*signs) for word, number in self.written.items()}
        values |= self.plain
        of_codes = np.array([values.get(word, np.nan) for word in self.places])
        if len(self.rows):
            numbers[np.asarray(self.rows)] = of_codes[np.asarray(self.codes)]

    def levels(self, n_rows):
        """The words of all rows, None where they are missing."""
        levels = [None if word.lower() in MISSING - LEVELS else word for word in self.places]
        codes = np.full(n_rows, -1)
        codes[np.asarray(self.rows, dtype=int)] = np.asarray(self.codes, dtype=int)
        return np.array([*levels, None], dtype=object)[codes]


class Rows:
    """One pass over all rows of a TextFile: an array of numbers, and Columns with the words."""

    def __init__(self, file):
        self.file = file
        self.columns = [Column(file, j) for j in range(file.width)]
        self.numbers, self.n_rows = array("d"), 0
        self.uneven, self.below, self.last = {}, {}, deque(maxlen=ROWS_BELOW)  # of the rows
        n_lines, gaps, line = max(16, BLOCK_CELLS // file.width), [], file.start
        with ProgressLine("reading") as progress, file.opened() as (lines, share):
            lines = islice(lines, file.start, None)
            while block := list(islice(lines, min(MOST_BLOCK_LINES, n_lines))):
                end = line + len(block)
                numbers = None if gaps or file.words else self.plain_numbers(block, line)
                if numbers is not None:
                    line = end
                    self.last.extend([(line, ["0"] * file.width)])
                    self.append(numbers)
                    continue
                rows = []
                records = file.split(chain(block, lines), line)
                for line, cells, _ in records:
                    if line in file.left_out:
                        pass
                    elif len(cells) < 2 and file.is_blank(cells):
                        gaps += [line] * (file.width == 1)  # missing values, if a row follows
                    else:
                        rows += [(gap, [""]) for gap in gaps]
                        rows.append((line, cells))
                        gaps.clear()
                    if line >= end:
                        break
                self.add(rows)
                progress.done = share()
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
        signs = np.frombuffer(f"\n{text} ".encode(), dtype=np.uint8)
        zeros = np.flatnonzero(signs[1:-1] == ord("0"))
        if np.any(SEPARATORS[signs[zeros]] & DIGITS[signs[zeros + 2]]):  # perhaps codes like 007
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
        for column, n in zip(self.columns, (numbers == numbers).sum(axis=0), strict=True):
            column.n_plain += int(n)

    def add(self, records):
        """Add rows by their lines and cells."""
        self.last.extend(records)
        for line, cells in records:
            if len(cells) != self.file.width and len(self.uneven) <= MOST_LINES:
                self.uneven[line] = len(cells)
        rows = [cells for _, cells in records if len(cells) == self.file.width]
        if rows:
            numbers = np.empty((len(rows), self.file.width))
            columns = zip(self.columns, zip(*rows, strict=True), numbers.T, strict=True)
            for column, cells, values in columns:
                column.add(cells, self.n_rows, values)
            self.append(numbers)

    def array(self):
        """The numbers as an array (n_rows, width)."""
        shape = (self.n_rows, self.file.width)
        return np.frombuffer(self.numbers).reshape(shape) if self.n_rows else np.empty(shape)

    def result(self, words, signs):
        """The numbers as an array, and the columns of words by position."""
        numbers = self.array()
        for j, column in enumerate(self.columns):
            if j not in words:
                column.put_numbers(numbers[:, j], signs or ("", ""))
        return numbers, {j: self.columns[j].levels(self.n_rows) for j in sorted(words)}

    # Totals and notes below the rows

    def leave_out_below(self):
        """Judge the words of all columns, and remove totals and notes below the rows."""
        for column in self.columns:
            column.judge()
        width, last = self.file.width, list(self.last) if self.file.by_itself else []
        for place in range(len(last) - 1, -1, -1):
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
            tail = np.array(self.numbers[self.n_rows * width :]).reshape(removed, width)
            del self.numbers[self.n_rows * width :]
            for column, numbers in zip(self.columns, tail.T, strict=True):
                column.truncate(self.n_rows, numbers)
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
                once = column.counts[word] == 1 and word.rstrip(":").lower() in NAMES_OF_TOTALS
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
            at, one = in_ranges(self.file.lines_of(sorted(rows)[:MOST_LISTED])), len(rows) == 1
            self.file.note(
                f", {'line' if one else 'lines'} {at} {'is' if one else 'are'} named as a total "
                f"({shortened(rows[min(rows)])}) but kept; --skip-rows {at} leaves "
                f"{'it' if one else 'such lines'} out"
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
        checked = [self.columns[j] for j in used if j not in unchecked]
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
            usual = USUAL_MISSING if column.is_numbers else USUAL_MISSING | LEVELS
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
            which, them = (
                ("line {} repeats", "it") if len(again) == 1 else ("some lines repeat", "them")
            )
            advice = f"; {which.format(lines)} the header: --skip-rows {lines} leaves {them} out"
        else:
            advice = advice_for_words(list(words), line)
            if word[0].isalpha():  # perhaps a name, unlike <35
                kinds = option_of_names("--kinds", [f"{title}=categorical"])
                advice = f"; {kinds} takes all cells as names{advice}"
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


def advice_for_words(words, line):
    """Text: the options that read a table in spite of words in columns of numbers."""
    first = {word[0] for word in words}
    if len(words) > MOST_LISTED and len(first) == 1 and not first & set("0123456789"):
        words = [f"{first.pop()}*"]
    if len(words) > MOST_LISTED:
        return ""
    one = len(words) == 1 and words[0][-1] != "*"
    advice = f"; {option_of_names('--na', words)} takes {'it' if one else 'such cells'} as missing"
    return advice + (f", --skip-rows {line} leaves the row out" if one else "")


def in_ranges(lines):
    """The argument of ``--skip-rows`` for lines: 3,7-9."""
    ranges = []
    for line in sorted(set(lines)):
        if ranges and line == ranges[-1][1] + 1:
            ranges[-1][1] = line
        else:
            ranges.append([line, line])
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in ranges)
