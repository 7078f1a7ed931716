"""The file of ``--out``: the table as it was read, with columns of results added.

Text is read again line by line and kept as it is; nothing of it is held.
"""

import codecs
import csv
import io
import os
import tempfile

import numpy as np

from smallvar._cli.columns import pick_ids
from smallvar._cli.errors import UserError
from smallvar._cli.output import complain, replacing, standard_output
from smallvar._cli.table import TEXT, TextTable, open_npy, read_frame, suffix_of
from smallvar._cli.text import as_bytes, as_text, collected, split_lines
from smallvar._cli.words import unlike_names

DIGITS = 4  # of a probability
ROWS_WRITTEN = 65_536  # at a time
# of which probabilities are computed: about 10 seconds at most
MOST_CLUSTERS, MOST_PAIRS = 1000, 1 << 27


class Results:
    """Columns of results for the rows of the input: whole numbers, and perhaps a probability.

    ``values`` (n,) or (n, k), integers >= 0, and ``probabilities`` (n,) are those of the rows that
    were clustered, which ``kept`` marks among the rows of the input (None: all).
    """

    def __init__(self, titles, values, kept, probabilities=None):
        self.titles, self.kept, self.decimal = list(titles), kept, "."
        self.values = self.spread(values, -1)
        self.probabilities = None
        if probabilities is not None:
            self.titles.append("probability")
            self.probabilities = self.spread(probabilities, np.nan)

    def spread(self, values, empty):
        """Values of all rows of the input, ``empty`` for those that were left out."""
        if self.kept is None:
            return values
        of_all = np.full((len(self.kept), *values.shape[1:]), empty, dtype=values.dtype)
        of_all[self.kept] = values
        return of_all

    @property
    def n_whole(self):
        """The number of columns of whole numbers."""
        return len(self.titles) - (self.probabilities is not None)

    def columns(self):
        """The columns; whole numbers are masked where rows were left out."""
        columns = list(self.values.reshape(len(self.values), self.n_whole).T)
        if self.kept is not None:
            import pandas as pd

            # masked integers: rows left out are null, and the others stay integers
            columns = [pd.arrays.IntegerArray(column.copy(), ~self.kept) for column in columns]
        if self.probabilities is not None:
            columns.append(self.probabilities.round(DIGITS))
        return columns

    def cells(self):
        """Yield the cells of each row of the input, empty for rows that were left out."""
        for start in range(0, len(self.values), ROWS_WRITTEN):
            rows = slice(start, start + ROWS_WRITTEN)
            values = self.values[rows]
            if values.ndim == 1:
                cells = [["" if i < 0 else str(i)] for i in values.tolist()]
            else:
                cells = [["" if i < 0 else str(i) for i in row] for row in values.tolist()]
            if self.probabilities is not None:
                for row, p in zip(cells, self.probabilities[rows].tolist(), strict=True):
                    row.append(self.probability(p))
            yield from cells

    def probability(self, p):
        """The text of a probability."""
        return "" if p != p else f"{p:.{DIGITS}f}".replace(".", self.decimal)


def write_clusters(args, table, model):
    """Write the cluster of each row and how sure it is, as `write_out` does.

    Where there are very many clusters, the probability would take longer than the fit.
    """
    probabilities, k = None, model.n_clusters_
    if suffix_of(args.out) != ".npy":
        if k <= MOST_CLUSTERS and k * len(model.labels_) <= MOST_PAIRS:
            probabilities = model.probabilities_
        else:
            complain(f"--out has no column probability: there are too many clusters, {k:,}")
    write_out(args, table, ["cluster"], model.labels_, probabilities)


def write_out(args, table, titles, values, probabilities=None):
    """Write the results of each row to the file of ``--out``, or to standard output.

    A .npy file has the ``values`` only, -1 for rows left out. Other files have the columns of the
    input, or those of ``--id``, if it is text or .parquet, and those of the results.
    """
    results = Results(titles, values, table.kept, probabilities)
    suffix = suffix_of(args.out)
    source, wanted = table.origin or (None, None)
    kind = None if source is None else source.kind
    with standard_output(args) if args.out == "-" else replacing(args.out) as file:
        if suffix == ".npy":
            np.save(file, results.values)
        elif kind in TEXT:
            rows = Rows(source, wanted)
            if suffix == ".parquet":
                write_text_as_parquet(file, rows, results)
            else:
                write_text(file, rows, results, *text_format(source, wanted, rows.table, suffix))
        elif kind == ".parquet":
            write_frame(file, source, wanted, results, suffix)
        else:
            write_results(file, source, wanted, results, suffix)


# ---------------------------------------------------------------------------------------
# Text


class Rows:
    """The rows of a text file from its header on, read for a second time.

    Each is its cells, its text without the end of the line, and whether there is a result for it;
    there is none for units, totals and lines that were left out.
    """

    def __init__(self, source, wanted):
        self.source, self.wanted = source, wanted
        self.table = TextTable(source, wanted)
        found = frozenset() if wanted.found is None else wanted.found.skip
        self.skip = self.table.skip | found | {self.table.units}
        names = self.table.names
        self.names = names or [str(j + 1) for j in range(self.table.width)]
        self.ids = pick_ids(source.name, wanted, names, self.table.width)

    def __iter__(self):
        """Yield the rows; the header, if there is one, comes first."""
        source, table, raw, gaps = self.source, self.table, [], 0
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
                    yield [""], '""', True
                gaps = 0
                yield cells, text, line not in self.skip


def write_text(file, rows, results, delimiter, encoding, every_row=True):
    """Write the Rows of a text file with the results behind their cells.

    Where the sign between cells stays, the text of a row stays as it is. ``every_row`` says that
    units, totals and notes are written, too.
    """
    table, ids = rows.table, rows.ids
    as_it_is = delimiter == table.delimiter and not ids
    shown = ids or range(table.width)
    titles = [rows.names[j] for j in shown]
    added = unlike_names([*titles, *results.titles])[0][len(titles) :]
    results.decimal = "." if delimiter == "," else table.decimal
    out = io.TextIOWrapper(file, encoding=encoding, errors="backslashreplace", newline="")
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    cells_of, nothing = results.cells(), [""] * len(results.titles)
    is_header, changed = (
        table.header,
        UserError(f"{rows.source.name} has changed since it was read"),
    )
    if not is_header:
        writer.writerow([*titles, *added])
    for cells, text, has_result in rows:
        more = added if is_header else next(cells_of, None) if has_result else nothing
        if more is None:
            raise changed
        if not has_result and not is_header and not every_row:
            continue
        is_header = False
        if more is added and len(cells) < table.width:  # a title is not there
            writer.writerow([*titles, *added])
            continue
        # a quote that is never closed would take in what is added
        if as_it_is and len(cells) <= table.width and text.count('"') % 2 == 0:
            out.write(delimiter.join([text, *[""] * (table.width - len(cells)), *more]) + "\n")
            continue
        cells = [*cells[: table.width - 1], " ".join(cells[table.width - 1 :])]
        cells += [""] * (table.width - len(cells))
        writer.writerow([*(cells[j] for j in shown), *more])
    out.detach()  # flushes, and leaves the file open
    if next(cells_of, None) is not None:
        raise changed


def text_format(source, wanted, table, suffix):
    """The sign between cells of the file to write, and its encoding: those of the input."""
    delimiter = "\t" if suffix == ".tsv" else table.delimiter if table.delimiter in ",;" else ","
    with open(source.path, "rb", buffering=0) as raw, as_bytes(source, raw) as file:
        marked = file.read(3) == codecs.BOM_UTF8
    return delimiter, "utf-8-sig" if marked else wanted.encoding or "utf-8"


def write_text_as_parquet(file, rows, results):
    """Write the Rows of a text file as .parquet, columns in the types that pandas reads."""
    import pandas as pd

    with tempfile.TemporaryDirectory(prefix="smallvar-") as folder:
        path = os.path.join(folder, "table.csv")
        with open(path, "wb") as text:
            write_text(text, rows, results, ",", "utf-8", every_row=False)
        frame = pd.read_csv(path, low_memory=False)
    first = len(frame.columns) - len(results.titles)
    whole = frame.columns[first : first + results.n_whole]
    kind = "Int64" if frame[whole].isna().any(axis=None) else "int64"
    file.write(frame.astype(dict.fromkeys(whole, kind)).to_parquet(index=False))


# ---------------------------------------------------------------------------------------
# Other tables


def write_frame(file, source, wanted, results, suffix):
    """Write the columns of a .parquet file and the results, with pandas."""
    frame = read_frame(source)
    names = [str(name) for name in frame.columns]
    if wanted.id is not None:
        ids = pick_ids(source.name, wanted, names, len(names))
        frame, names = frame.iloc[:, ids], [names[j] for j in ids]
    added = unlike_names([*names, *results.titles])[0][len(names) :]
    frame = frame.assign(**dict(zip(added, results.columns(), strict=True)))
    if suffix == ".parquet":
        file.write(frame.to_parquet())
    else:
        frame.to_csv(file, sep="\t" if suffix == ".tsv" else ",", index=False)


def write_results(file, source, wanted, results, suffix):
    """Write the results alone, with the columns of ``--id`` of a .npy file."""
    ids = np.empty((len(results.values), 0))
    positions = []
    if source is not None and wanted.id is not None:
        whole = open_npy(source)
        positions = pick_ids(source.name, wanted, None, whole.shape[1])
        ids = whole[:, positions]
    titles = [*(str(j + 1) for j in positions), *results.titles]
    if suffix == ".parquet":
        import pandas as pd

        columns = dict(zip(titles, [*ids.T, *results.columns()], strict=True))
        file.write(pd.DataFrame(columns, index=range(len(ids))).to_parquet(index=False))
        return
    out = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(out, delimiter="\t" if suffix == ".tsv" else ",", lineterminator="\n")
    writer.writerow(titles)
    cells = results.cells()
    for start in range(0, len(ids), ROWS_WRITTEN):
        block = ids[start : start + ROWS_WRITTEN].tolist()
        writer.writerows([*row, *more] for row, more in zip(block, cells, strict=False))
    out.detach()
