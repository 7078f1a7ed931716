"""Text files: their encoding, the sign between cells, titles above the header, header and units.

What is found in the first lines decides how all rows are read, see rows.py.
"""

import codecs
import csv
import gzip
import io
import os
import re
from collections import Counter
from contextlib import contextmanager
from itertools import islice, takewhile

from smallvar._cli.cells import (
    MOSTLY,
    UNIT_SIGN,
    Marks,
    find_header,
    is_missing,
    number_of,
    signs_of,
    taken_apart,
)
from smallvar._cli.rows import LISTED_LINES, Rows
from smallvar._cli.words import UserError, counted, in_ranges, unlike_names

HEAD_LINES, HEAD_CHARACTERS = 100, 1 << 19  # that tell what the columns are, at most
MARK_OF_GZIP, MARKS_OF_UTF_16 = b"\x1f\x8b", (b"\xff\xfe", b"\xfe\xff")
QUOTED_OR_BARE = re.compile(r'"([^"]*)"(?!\S)|(\S+)')  # a cell between spaces
SEP_LINE = re.compile(r'\ufeff?"?sep=(?P<sign>[,;|\t]|\\t)"?\s*', re.IGNORECASE)


class TextFile:
    """A text file, and what its first lines say.

    ``source`` says where it is, and ``args`` are the parsed arguments of the command.
    ``delimiter`` is the sign between cells, " " for runs of spaces, and ``decimal`` that of
    decimals, which is not ``sure`` if no cell of the first rows shows it. ``titles`` are those of
    all ``width`` columns, and ``has_header`` says whether they are in the file. ``first_line`` is
    the number of the line of the header, or of the first row, and ``start`` of the last line
    before the rows. ``left_out`` are lines below that are no rows. ``words`` are the positions of
    columns that begin with words, and ``unnamed`` says why columns without a title are left out.
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
        self.width = usual_width(records)
        if self.by_itself:
            self.leave_out_titles(records)
            self.width = usual_width(records)
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
            with (
                open(source.path, "rb", buffering=0) as raw,
                self.unpacked(raw) as file,
                io.TextIOWrapper(file, encoding=encoding, newline="") as lines,
            ):
                yield lines, lambda: raw.tell() / size
        except UnicodeError as error:
            raise UserError(self.explain_encoding(error)) from error
        except LookupError as error:
            raise UserError(f"--encoding {wanted}: {error}") from error

    def unpacked(self, raw):
        """The bytes of the file, decompressed."""
        return gzip.GzipFile(fileobj=raw) if self.source.packed else io.BufferedReader(raw)

    def explain_encoding(self, error):
        """Say where the file is not in its encoding and, if none is given, which option helps."""
        what = f"{self.name} is not a text file in"
        if self.args.encoding is not None:
            return f"{what} {self.args.encoding}: {error}"
        block, at = error.object, error.start  # a block of the file, from its beginning at first
        if block.startswith(MARK_OF_GZIP) and at == 1:
            return f"{self.name} is compressed: its name must end in {self.source.kind}.gz"
        if block.startswith(MARKS_OF_UTF_16) and at == 0:
            return f"{what} UTF-8, but perhaps in UTF-16: try --encoding utf-16"
        with open(self.source.path, "rb", buffering=0) as raw, self.unpacked(raw) as lines:
            are_text = (line.decode(errors="ignore").encode() == line for line in lines)
            number = next(number for number, is_text in enumerate(are_text, 1) if not is_text)
        around = block[max(0, at - 10) : at + 10].decode("cp1252", "replace").splitlines()
        return (
            f"{what} UTF-8: byte 0x{block[at]:02x} in line {number}; --encoding cp1252 (western "
            f"European) reads {max(around, key=len).strip()!r} there, or name another encoding"
        )

    @property
    def encoding(self):
        """The encoding to write the file in."""
        with open(self.source.path, "rb", buffering=0) as raw, self.unpacked(raw) as file:
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
        """Yield line, text and cells of every row, and whether it is one of the table.

        The line is the number of its last one. The header comes first; it is no row of the table,
        as are lines that are left out.
        """
        before = self.first_line - self.header_lines
        with self.opened() as (lines, _):
            for line, cells, held in self.rows_of(islice(lines, before, None), before, []):
                is_row = line > self.start and line not in self.left_out
                yield line, "".join(held).rstrip("\r\n"), cells, is_row

    def rows_of(self, lines, before, gaps):
        """As `split`, without blank lines.

        In a table of one column these are missing values, if a row follows; until then ``gaps``
        (INOUT) has their numbers.
        """
        for line, cells, held in self.split(lines, before):
            if not cells or (len(cells) == 1 and self.width != 1 and not cells[0].strip()):
                gaps += [line] * (self.width == 1 and line not in self.left_out)
                continue
            yield from ((gap, [""], ['""']) for gap in gaps)
            gaps.clear()
            yield line, cells, held

    def lines_of(self, rows):
        """The numbers of the lines of some rows, by their positions from 0."""
        wished = {int(row) for row in rows}
        lines = (line for line, _, _, is_row in self.lines() if is_row)
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
            raise UserError(f"{self.name} is not a text file in {self.args.encoding or 'UTF-8'}")
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
        near = [(line, cells) for line, cells, _ in records[1:]]
        if self.args.na:
            near = [(i, ["" if cell in self.marks else cell for cell in row]) for i, row in near]
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
        self.words, self.unnamed = set(), {}
        for j, cells in enumerate(zip(*rows, strict=True)):
            there = [cell for cell in cells if not is_missing(cell)]
            if there and not self.are_numbers(there):
                self.words.add(j)
            # from 0 as in files of pandas, or from 1 as in those of R
            of_rows = [[*map(str, range(first, len(cells) + first))] for first in (0, 1)]
            if not self.titles[j] and (not there or (len(there) > 1 and there in of_rows)):
                self.unnamed[j] = "it numbers the rows" if there else "no values"

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
        return UserError(
            f"{self.name}, line {at}: {counted(widths[at], 'cell')}, but {first} in line "
            f"{self.first_line}{advice if len(odd) <= LISTED_LINES else ''}"
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
        self.thousands = signs[1] if signs else ""
        self.left_out |= set(rows.below)
        return rows.result(words, signs)


def usual_width(records):
    """The number of cells that most rows have; of several such, the largest."""
    widths = Counter(len(cells) for _, cells, _ in records)
    return max(widths, key=lambda width: (widths[width], width))
