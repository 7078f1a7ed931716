"""Rows of text files: decoded, and taken apart at the sign that separates their cells."""

import codecs
import csv
import gzip
import io
import os
import re
from dataclasses import dataclass
from itertools import chain, islice, pairwise

import numpy as np

from smallvar._cli.cells import forms_of_date, is_missing, is_number, number_with_point, shortened
from smallvar._cli.errors import NotNumbersError, UserError
from smallvar._cli.layout import in_ranges, separator_of, table_within, titles_above

CELL = re.compile(r'"([^"]*)"(?!\S)|(\S+)')  # between spaces
MARKS_OF_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # that a file may begin with
MARK_OF_GZIP = b"\x1f\x8b"
SAMPLE_LINES = 20  # that tell the sign between cells
YEARS = range(1500, 2101)  # numbers that may be titles of columns
# of rows, the first included, whose numbers rise like those of a header: if rows are in any order,
# the first one is among them with less than this probability
RISING_SHARE = 0.1
ROUNDING = 1e-9  # of numbers of a few digits, by which steps may differ that are equal


@dataclass(frozen=True)
class Head:
    """What the first lines of a file say: the sign between cells, lines to leave out, notes."""

    delimiter: str
    skip: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()


def read_head(sample, source, wanted):
    """Find the Head of a text file from its first lines."""
    path, left_out, notes = source.name, frozenset(wanted.skip_rows or ()), []
    numbered = [(i, line) for i, line in enumerate(sample, 1) if i not in left_out]
    by_itself = wanted.skip_rows != []  # what is above the header is found out
    named = separator_of(numbered[0][1]) if numbered and by_itself else None
    if named is not None:
        notes.append(f", line {numbered[0][0]} names the sign between cells, {named!r}")
        left_out |= {numbered.pop(0)[0]}
    lines = [line for _, line in numbered]
    by_tabs = source.kind == ".tsv" and any("\t" in line for line in lines)
    if by_tabs or named is not None:
        delimiter = named or "\t"
    else:
        delimiter = sniff_delimiter(lines, wanted, path)
    if by_itself and wanted.header is not False:
        records = list(split_lines(lines, delimiter, path))
        # numbers of lines: of records that end in the line there
        titles = [numbered[i - 1][0] for i in titles_above(records, wanted.number)]
        if titles:
            start = titles[0]
            where = f"line {start}" if titles == [start] else f"lines {in_ranges(titles)}"
            verb = "is" if titles == [start] else "are"
            notes.append(f", {where} above the header {verb} left out")
            left_out |= frozenset(titles)
    return Head(delimiter, left_out, tuple(notes))


def text_records(source, wanted, progress=None, raw_lines=None, heads=None):
    """Yield the line number and the cells of every row that is not blank.

    The Head of the file is appended to ``heads``. ``raw_lines`` is filled with the lines of text
    that the row was read from.
    """
    path, size = source.name, os.stat(source.path).st_size
    with open(source.path, "rb", buffering=0) as raw, as_text(source, wanted, raw) as file:
        width, gaps = None, []
        try:
            sample = list(islice(file, SAMPLE_LINES))
            if any("\0" in line for line in sample):
                what = f"{path} is not a text file in {wanted.encoding or 'UTF-8'}"
                raise UserError(what + advice_for_utf_16(sample[0]))
            head = read_head(sample, source, wanted)
            if heads is not None:
                heads.append(head)
            skip, found = head.skip, wanted.found
            if found is not None:
                skip |= found.skip
            lines = chain(sample, file)
            if raw_lines is not None:
                lines = collected(lines, raw_lines)
            records = split_lines(lines, head.delimiter, path, frozenset(wanted.skip_rows or ()))
            line = 0
            for line, cells in records:
                if line in skip:
                    continue
                if not cells or (len(cells) == 1 and width != 1 and not cells[0]):
                    if width == 1:  # in a table of one column this may be a missing value
                        gaps.append(line)
                    continue
                if gaps and not wanted.drop_missing:
                    raise NotNumbersError(f"{path}, line {gaps[0]}: missing value")
                for gap in gaps:
                    yield gap, [""]
                gaps.clear()
                width = width or len(cells)
                if progress is not None and not line % 1024:
                    progress.done = raw.tell() / size
                yield line, cells
            beyond = [number for number in wanted.skip_rows or () if number > line]
            if beyond and line not in skip:
                raise UserError(f"--skip-rows {in_ranges(beyond)}: {path} has {line:,} lines")
        except UnicodeError as error:
            raise UserError(explain_encoding(source, wanted, error)) from error
        except gzip.BadGzipFile as error:
            with open(source.path, "rb") as file:
                begins_well = file.read(2) == MARK_OF_GZIP
            if not (begins_well and str(error).startswith("Not a gzipped file")):
                raise
            raise UserError(f"{path} has other bytes after its compressed data") from error


def collected(lines, collection):
    """Yield lines, and append each to a list."""
    for line in lines:
        collection.append(line)
        yield line


def as_bytes(source, raw):
    """Decompress a file where need be."""
    return gzip.GzipFile(fileobj=raw) if source.packed else io.BufferedReader(raw)


def as_text(source, wanted, raw):
    """Decode a file, and where need be decompress it."""
    encoding = codecs.lookup(wanted.encoding or "utf-8").name
    if encoding == "utf-8":
        encoding = "utf-8-sig"  # which skips a mark of the byte order
    return io.TextIOWrapper(as_bytes(source, raw), encoding=encoding, newline="")


def advice_for_utf_16(line):
    """Text: the option that reads a first line of which every second byte is 0; else empty."""
    for first, name in enumerate(("utf-16-be", "utf-16-le")):
        if len(line) > 1 and not line[first::2].strip("\0"):
            return f"; try --encoding {name}"
    return ""


def explain_encoding(source, wanted, error):
    """Say where a file is not in its encoding, and which option helps."""
    if wanted.encoding is not None:
        return f"{source.name} is not a text file in {wanted.encoding}: {error}"
    what = f"{source.name} is not a text file in UTF-8"
    with open(source.path, "rb", buffering=0) as raw, as_bytes(source, raw) as file:
        for number, line in enumerate(file, 1):
            # the first bad byte is searched for only now: readers do not say where it is
            if number == 1 and line.startswith(MARK_OF_GZIP):
                return f"{source.name} is compressed: its name must end in {source.kind}.gz"
            if number == 1 and line.startswith(MARKS_OF_UTF_16):
                return f"{what}, but perhaps in UTF-16: try --encoding utf-16"
            try:
                line.decode()
            except UnicodeDecodeError as slip:
                byte, at = line[slip.start], slip.start
                around = line[max(0, at - 10) : at + 10].decode("cp1252", "replace").strip()
                return (
                    f"{what}: byte 0x{byte:02x} in line {number}; --encoding cp1252 (western "
                    f"European) reads {around!r} there, or name another encoding"
                )
    return f"{what}: {error}"


def split_lines(lines, delimiter, path, skip=None):
    """Yield the number and the cells of every line; a run of spaces counts as one.

    ``skip`` are the lines that the user leaves out, whose quotes do not open a cell of many lines;
    with them, None of a sample, a quote that is not closed is refused.
    """
    if delimiter != " ":
        yield from split_at_signs(lines, delimiter, path, skip)
        return
    for number, line in enumerate(lines, 1):
        if '"' in line:
            yield number, [quoted or word for quoted, word in CELL.findall(line)]
        else:
            yield number, line.split()


def split_at_signs(lines, delimiter, path, skip):
    """Yield the number of the last line, and the cells, of every row for `split_lines`."""
    held, width = [], 0  # the lines of the row, and the number of cells of the row before

    def holding():
        for number, line in enumerate(lines, 1):
            if skip and not held and number in skip and line.count('"') % 2:
                line = line.replace('"', "")
            held.append(line)
            yield line

    reader = csv.reader(holding(), delimiter=delimiter, skipinitialspace=True)
    try:
        for cells in reader:
            if len(held) > 1 and skip is not None:
                refuse_open_quote(held, reader.line_num, width, delimiter, path)
            held.clear()
            width = len(cells) or width
            yield reader.line_num, cells
    except csv.Error as error:
        words = str(error)
        if words.startswith("field larger"):
            refuse_open_quote(held, reader.line_num, width, delimiter, path)
            words = f"a cell has more than {csv.field_size_limit():,} characters"
        raise UserError(f"{path}, line {reader.line_num}: {words}") from error


def refuse_open_quote(held, last, width, delimiter, path):
    """Raise a UserError if a row of several lines has a quote that is not closed where it should.

    The file ends within it, or it ends where another begins, and a line in between has as many
    cells, ``width``, as the row before. ``last`` is the number of the last of the lines ``held``.
    """

    def rows(lines, strict):
        return csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=strict)

    try:
        for _ in rows(held, strict=True):
            pass
        return
    except csv.Error as error:
        at_end = str(error).startswith("unexpected end")
    if not at_end and all(len(cells) != width for cells in rows(held[1:], strict=False)):
        return
    first = last - len(held) + 1
    odd = [line for line, text in enumerate(held, first) if text.count('"') % 2]
    them = "it" if len(odd) == 1 else "such lines"
    raise UserError(
        f"{path}, line {first}: a quote begins that is not closed, so that one cell would hold all "
        f"up to line {last}; --skip-rows {in_ranges(odd or [first])} leaves {them} out"
    )


def sniff_delimiter(lines, wanted, path):
    """Find the character between cells: tab, semicolon, |, comma, or " " for runs of spaces.

    ``lines`` are the first lines of the file. In this order, the first that splits all of them into
    the same number of cells, two or more, is taken: text in a cell often has spaces, sometimes
    commas, seldom the others. Where none does, titles above and
    notes below are left out of account. Otherwise it is the most frequent of tab, semicolon, | and
    comma in the first line; or spaces, if that has none of them but two or more words, as many as
    most lines or, as R writes names of rows, one less than all; or else the comma. With a decimal
    comma, it is no candidate; the last resort is then the semicolon.
    """
    lines = [line for line in lines if line.strip()]

    def widths(delimiter):
        return [len(cells) for _, cells in split_lines(lines, delimiter, path) if cells]

    def agree(delimiter):
        widths_seen = set(widths(delimiter))
        return len(widths_seen) == 1 and widths_seen != {1}

    def agree_within(delimiter):
        records = table_within(r for r in split_lines(lines, delimiter, path) if r[1])
        return len(records) > 1 and len({len(cells) for _, cells in records}) == 1

    with_comma = wanted.decimal == ","
    for delimiter in "\t;| " if with_comma else "\t;|, ":
        if agree(delimiter):
            return delimiter
    for delimiter in "\t;|" if with_comma else "\t;|,":
        if agree_within(delimiter):
            return delimiter
    if not lines:
        return ","
    if with_comma and agree(",") and not all(is_number(line, wanted.number) for line in lines):
        raise UserError(
            f"--decimal ,: {path} is separated by commas; it must be by semicolons, tabs or spaces"
        )
    likely = max(";\t|" if with_comma else ",;\t|", key=lines[0].count)
    if likely not in lines[0]:
        # lines of words may differ in length, as those with gaps do, but most agree
        spaced = widths(" ")
        by_r = '"' in lines[0] and len(spaced) > 2 and {*spaced[1:]} == {spaced[0] + 1}
        if by_r or (spaced[0] > 1 and 2 * spaced.count(spaced[0]) > len(spaced)):
            return " "
    return likely


def completed(first, rows, number):
    """The header with the title that it lacks, empty, where most rows have one cell more.

    R writes names of rows without a title; other programs write a sign behind the last cell.
    """
    longer = [row for row in rows if len(row) == len(first) + 1]
    numbers = [any(is_number(cell, number) for cell in row) for row in (first, *rows[:1])]
    if 2 * len(longer) <= len(rows) or numbers != [
        False,
        True,
    ]:  # a row of words below a title may be the header
        return first
    return [*first, ""] if all(is_missing(row[-1]) for row in longer) else ["", *first]


def find_header(first, rows, number=number_with_point):
    """Tell whether the first row of a table holds the titles of the columns.

    A row without any number does, and pandas' 0, 1, 2, ...; so does one of words and whole
    numbers where a word stands above a column of numbers, or where the numbers are years and no
    other row has such; and one of numbers that rise, which those of few other rows do. A row that
    repeats in a column what stands below, or has a date above dates, has no titles unless all of
    them are words. An empty cell above names of rows is a title. Also returns why that is not
    certain, or None.
    """
    # pandas leaves the title of its index empty
    numbered = first if first[0].strip() else first[1:]
    if len(numbered) > 2 and numbered == [str(i) for i in range(len(numbered))]:
        return True, None
    rows = [row for row in rows if len(row) == len(first)]
    below = [[row[j] for row in rows if not is_missing(row[j])] for j in range(len(first))]
    there = [j for j, cell in enumerate(first) if not is_missing(cell)]
    # inf is a number of a row, but no number among titles
    numbers = [j for j in there if is_number(first[j], number) and has_digit(first[j])]
    words = [j for j in there if j not in numbers]
    if any(below[j] and all(map(forms_of_date, [first[j], *below[j]])) for j in words):
        return False, None
    repeated = next((first[j] for j in words if first[j] in below[j]), None)
    if not numbers:
        doubt = None if repeated is None else f"though {shortened(repeated)} is in a row below, too"
        return bool(words), doubt
    if repeated is not None:
        return False, None

    untitled = not first[0].strip() and len(below[0]) == len(rows) and are_names(below[0])
    if untitled and len(numbers) == len(first) - 1:
        return True, None
    titles = [first[j] for j in numbers]
    others = [[row[j] for j in numbers] for row in rows]
    few = max(1, len(others)) / 2  # rows that look like the first one
    years = are_years(titles) and sum(map(are_years, others)) < few
    over_numbers = any(
        below[j] and all(is_number(cell, number) for cell in below[j]) for j in words
    )
    named = bool(words) or not first[0].strip()  # of row numbers, which often have no title
    if years and named and (over_numbers or len(titles) > 1):
        return True, None
    if years and (words or len(titles) > 2):
        return True, "though it holds numbers"
    if over_numbers and all(map(is_whole, titles)):
        return True, "though it holds numbers"
    counted = count_up(titles) and sum(map(count_up, others)) < few
    if (counted and int(titles[0]) < 2) or (years and len(titles) > 1):
        return False, "though its numbers may be titles"
    if is_scale(titles, others, number, over_numbers):
        return True, "though it holds numbers"
    return False, None


def has_digit(cell):
    """Whether a cell has a digit."""
    return any(map(str.isdigit, cell))


def are_names(cells):
    """Whether cells are words, each of them once."""
    return len(cells) > 1 and len({*cells}) == len(cells) and not any(map(is_number, cells))


def is_scale(titles, others, number, over_numbers):
    """Whether numbers are titles like wavelengths: they rise, and those of few other rows do.

    Three or more may also rise in equal steps. Most must be out of the range of the column below,
    if no word stands over numbers, and no column may go on below its title, as in sorted rows.
    """

    def steps(cells):
        if not all(is_number(cell, number) for cell in cells):
            return [-1.0]
        return [number(after) - number(before) for before, after in pairwise(cells)]

    def rise(cells):
        return min(steps(cells)) > 0

    def rise_evenly(cells):
        return rise(cells) and np.ptp(steps(cells)) <= ROUNDING * abs(number(cells[-1]))

    if len(titles) < (2 if over_numbers else 3) or not rise(titles) or not others:
        return False
    beyond = 0
    for title, *column in zip(titles, *others, strict=True):
        if min(steps([title, *column])) >= 0:
            return False
        values = [number(cell) for cell in column if is_number(cell, number)]
        beyond += not values or not min(values) <= number(title) <= max(values)
    if not over_numbers and 2 * beyond <= len(titles):
        return False
    even = len(titles) > 2 and rise_evenly(titles)
    most = RISING_SHARE * (1 + len(others))
    return any(1 + sum(map(form, others)) < most for form in (rise, rise_evenly)[: 1 + even])


def is_whole(cell):
    """Whether a cell is a whole number without a sign, of at most nine digits."""
    cell = cell.strip()
    return cell.isascii() and cell.isdigit() and len(cell) < 10


def are_years(cells):
    """Whether cells are years that ascend or descend."""
    if not all(map(is_whole, cells)):
        return False
    years = [int(cell) for cell in cells]
    steps = [after - before for before, after in pairwise(years)]
    return all(year in YEARS for year in years) and (
        all(step > 0 for step in steps) or all(step < 0 for step in steps)
    )


def count_up(cells):
    """Whether cells are three or more whole numbers, each the last plus one."""
    if len(cells) < 3 or not all(map(is_whole, cells)):
        return False
    return all(int(after) == int(before) + 1 for before, after in pairwise(cells))
