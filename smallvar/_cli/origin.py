"""The file that a table was read from, for ``--out``."""

import codecs

from smallvar._cli.table import TEXT, TextTable, read_frame
from smallvar._cli.text import as_bytes, as_text, collected, split_lines


class Origin:
    """A file that is read for a second time; its attributes describe its text."""

    def __init__(self, source, wanted):
        self.source, self.wanted, self.name = source, wanted, source.name
        self.kind = "text" if source.kind in TEXT else source.kind
        if self.kind != "text":
            return
        self.table = TextTable(source, wanted)
        found = frozenset() if wanted.found is None else wanted.found.skip
        self.skip = self.table.skip | found | {self.table.units}
        self.titles = self.table.names or [str(j + 1) for j in range(self.table.width)]
        self.delimiter, self.decimal = self.table.delimiter, self.table.decimal
        self.has_header = self.table.header
        with open(source.path, "rb", buffering=0) as raw, as_bytes(source, raw) as file:
            marked = file.read(3) == codecs.BOM_UTF8
        self.encoding = "utf-8-sig" if marked else wanted.encoding or "utf-8"

    def lines(self):
        """Yield the text, the cells of each row, and whether it has a result; the header first."""
        source, table, raw, gaps = self.source, self.table, [], 0
        is_header = table.header
        with (
            open(source.path, "rb", buffering=0) as file,
            as_text(source, self.wanted, file) as lines,
        ):
            skip = frozenset(self.wanted.skip_rows or ())
            lines = collected(lines, raw)
            for line, cells in split_lines(lines, table.delimiter, source.name, skip):
                text = "".join(raw).rstrip("\r\n")
                raw.clear()
                if line < table.first_line:
                    continue
                if not cells or (len(cells) == 1 and table.width != 1 and not cells[0]):
                    gaps += table.width == 1  # missing values, if a row follows
                    continue
                for _ in range(gaps):
                    yield '""', [""], True
                gaps = 0
                yield text, cells, line not in self.skip and not is_header
                is_header = False

    def frame(self):
        """The DataFrame of a .parquet file."""
        return read_frame(self.source)
