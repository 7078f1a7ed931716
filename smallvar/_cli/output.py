"""What the command prints and writes: lines, and files that are replaced whole.

For ``--out`` text is read again line by line and kept as it is; nothing of it is held.
"""

import csv
import importlib.util
import io
import os
import shutil
import sys
import tempfile
import warnings
from contextlib import contextmanager, suppress

import numpy as np

from smallvar._cli.progress import ProgressLine
from smallvar._cli.words import UserError, in_one_line, unlike_names, visible
from smallvar._version import __version__

PROBABILITY_DIGITS = 4  # of a probability
ROWS_WRITTEN = 65_536  # at a time
# of which probabilities are computed: about 10 seconds at most
MOST_CLUSTERS, MOST_PAIRS = 1000, 1 << 27


def say(text):
    """Print text; what the terminal cannot show, and what it would obey, is escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(visible(text, "\n").encode(encoding, "backslashreplace").decode(encoding))


def complain(*words):
    """Print one line on standard error; a line of progress is cleared first."""
    line = visible(in_one_line(" ".join(map(str, ("smallvar:", *words)))))
    with suppress(OSError):  # where standard error cannot be written, the exit code has to say it
        if ProgressLine.current is not None:
            ProgressLine.current.clear()
        print(line, file=sys.stderr)


@contextmanager
def warnings_told():
    """Context that tells each warning in a line.

    Two warnings of the estimators are part of the report instead: that the number is not clear, and
    that few columns make up nearly all of the distances.
    """
    from smallvar import ScaleWarning, UnclearNumberWarning

    def tell(warning, *_):
        # of what the warning of a single cluster advises, the command can let the data choose
        text, advice, _ = str(warning).partition(": use algorithm=")
        complain("warning:", f"{text}: without --lam the data choose" if advice else text)

    with warnings.catch_warnings():
        for category in (ScaleWarning, UnclearNumberWarning):
            warnings.simplefilter("ignore", category)
        warnings.showwarning = tell
        yield


# Files


def suffix_of(path):
    """The suffix of a path in lower case, with its dot."""
    return os.path.splitext(path)[1].lower()


def is_installed(*packages):
    """Whether all of these packages are installed."""
    return all(importlib.util.find_spec(package) is not None for package in packages)


@contextmanager
def replacing(path):
    """Context of a binary file that replaces ``path`` when it is complete; never after an error."""
    path = os.path.realpath(path)  # a symbolic link is kept, its target replaced
    draft = os.path.join(os.path.dirname(path), f".smallvar-{os.urandom(8).hex()}.tmp")
    try:
        with open(draft, "xb") as file:
            yield file
        if os.path.exists(path):
            shutil.copymode(path, draft)
        # atomic within a folder: readers see the old file or the whole new one
        os.replace(draft, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)


@contextmanager
def standard_output(args):
    """Context of standard output for bytes."""
    if args.stdout is None:
        raise UserError("--out -: standard output is closed")
    yield args.stdout.buffer
    args.stdout.buffer.flush()


def save(path, figure):
    """Write a figure in the format given by the ending of the path."""
    kind = suffix_of(path)[1:]
    metadata = {"Software": f"smallvar {__version__}"} if kind == "png" else None
    with replacing(path) as file:
        figure.savefig(file, format=kind, metadata=metadata)


# The file of --out


def write_clusters(args, table, model):
    """Write the cluster of each row and how probable it is to the file of ``--out``.

    A .npy file has the labels only, -1 for rows left out. Other files have the columns of the
    input, if it is text or .parquet, and behind them those of the results.
    """
    suffix, origin = suffix_of(args.out), table.origin
    kind = None if origin is None else origin.kind
    results = {"cluster": of_all_rows(table, model.labels_, -1)}
    k, n = model.n_clusters_, len(model.labels_)
    if suffix != ".npy" and k <= MOST_CLUSTERS and k * n <= MOST_PAIRS:
        results["probability"] = of_all_rows(
            table, model.probabilities_.round(PROBABILITY_DIGITS), np.nan
        )
    elif suffix != ".npy":  # it would take longer than the fit
        complain(f"--out has no column probability: there are too many clusters, {k:,}")
    with standard_output(args) if args.out == "-" else replacing(args.out) as file:
        if suffix == ".npy":
            np.save(file, results["cluster"])
        elif suffix == ".parquet" or kind == ".parquet":
            write_frame(file, origin, results, suffix)
        elif kind == "text":
            delimiter = origin.delimiter if origin.delimiter in ",;" else ","
            write_text(file, origin, results, "\t" if suffix == ".tsv" else delimiter)
        else:
            with text_writer(file, "\t" if suffix == ".tsv" else ",") as (_, writer):
                writer.writerow(results)
                writer.writerows(cells_of(results, "."))


def of_all_rows(table, values, empty):
    """The values of all rows of the input, ``empty`` for those that were left out."""
    if table.kept is None:
        return values
    of_all = np.full(len(table.kept), empty, dtype=values.dtype)
    of_all[table.kept] = values
    return of_all


def cells_of(results, decimal):
    """Yield the cells of each row as text, empty for rows that were left out."""
    n = len(results["cluster"])
    for start in range(0, n, ROWS_WRITTEN):
        rows = slice(start, start + ROWS_WRITTEN)
        columns = [["" if i < 0 else str(i) for i in results["cluster"][rows].tolist()]]
        if "probability" in results:
            p = results["probability"][rows].tolist()
            texts = ("" if value != value else f"{value:.{PROBABILITY_DIGITS}f}" for value in p)
            columns.append([text.replace(".", decimal) for text in texts])
        yield from zip(*columns, strict=True)


@contextmanager
def text_writer(file, delimiter, encoding="utf-8"):
    """Context of a text file on a binary one, which stays open, and its csv writer."""
    out = io.TextIOWrapper(file, encoding=encoding, errors="backslashreplace", newline="")
    yield out, csv.writer(out, delimiter=delimiter, lineterminator="\n")
    out.detach()  # flushes


def write_text(file, origin, results, delimiter, every_row=True):
    """Write the rows of a text file with the results behind their cells.

    Where the sign between cells stays, the text of a row stays as it is. ``every_row`` says that
    units, totals and notes are written, too.
    """
    width, as_it_is = len(origin.titles), delimiter == origin.delimiter
    added = unlike_names([*origin.titles, *results])[0][width:]
    more_of = cells_of(results, "." if delimiter == "," else origin.decimal) if results else None
    changed = UserError(f"{origin.name} has changed since it was read")
    with text_writer(file, delimiter, origin.encoding) as (out, writer):
        is_header = origin.has_header
        if not is_header:
            writer.writerow([*origin.titles, *added])
        for _, text, cells, is_row in origin.lines():
            more = added if is_header else [""] * len(added)
            if is_row and results:
                more = next(more_of, None)
                if more is None:
                    raise changed
            if not (is_row or is_header or every_row):
                continue
            if is_header and len(cells) < width:  # the title of the first column is not there
                text, cells = None, origin.titles
            is_header = False
            # a quote that is never closed would take in what is added
            if text is not None and as_it_is and len(cells) <= width and text.count('"') % 2 == 0:
                out.write(delimiter.join([text, *[""] * (width - len(cells)), *more]) + "\n")
                continue
            cells = [*cells[: width - 1], " ".join(cells[width - 1 :])]
            writer.writerow([*cells, *[""] * (width - len(cells)), *more])
    if results and next(more_of, None) is not None:
        raise changed


def write_frame(file, origin, results, suffix):
    """Write the columns of a table, in the types that pandas reads, and the results."""
    import pandas as pd

    n, labels = len(results["cluster"]), results["cluster"]
    if origin is None or origin.kind == ".npy":
        frame = pd.DataFrame(index=range(n))
    elif origin.kind == ".parquet":
        frame = origin.frame()
    else:
        with tempfile.TemporaryFile() as text:
            write_text(text, origin, {}, ",", every_row=False)
            text.seek(0)
            signs = {"decimal": origin.decimal, "thousands": origin.thousands or None}
            frame = pd.read_csv(text, encoding=origin.encoding, low_memory=False, **signs)
    if len(frame) != n:
        raise UserError(f"{origin.name} has changed since it was read")
    if (labels < 0).any():  # masked integers: rows left out are null, and the others stay integers
        results = results | {"cluster": pd.arrays.IntegerArray(labels.copy(), labels < 0)}
    names = [str(name) for name in frame.columns]
    added = unlike_names([*names, *results])[0][len(names) :]
    columns = dict(zip(added, results.values(), strict=True))
    frame = pd.concat([frame, pd.DataFrame(columns, index=frame.index)], axis=1)
    if suffix == ".parquet":
        file.write(frame.to_parquet())
    else:
        frame.to_csv(file, sep="\t" if suffix == ".tsv" else ",", index=False)
