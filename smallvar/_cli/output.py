"""Output of the commands: timed fits, files that are replaced whole, reports and warnings."""

import csv
import io
import os
import re
import shutil
import sys
import textwrap
import warnings
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from time import perf_counter

import numpy as np

from smallvar import ScaleWarning, __version__, progress_callback
from smallvar._cli.errors import UserError
from smallvar._cli.progress import ProgressLine
from smallvar._cli.table import suffix_of
from smallvar._cli.words import in_one_line, option_of, visible


def timed(work, *args, follow=None, **options):
    """Call a function that fits; return its result and the seconds. Errors become UserErrors.

    ``follow`` is called after every step of the fit with the ProgressLine and the event.
    """
    begin = perf_counter()
    try:
        with (
            ProgressLine("fitting") as progress,
            progress_callback(partial(follow, progress)) if follow else nullcontext(),
        ):
            result = work(*args, **options)
    except (ValueError, OverflowError) as error:
        raise UserError(str(error)) from error
    except MemoryError as error:
        raise UserError("not enough memory to fit") from error
    return result, perf_counter() - begin


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
def labels_by_batches(args, n):
    """Context of a function that writes the next of n labels (int32) to the file of ``--out``."""
    if args.out is None:
        yield lambda labels: None
        return
    suffix = suffix_of(args.out)
    with standard_output(args) if args.out == "-" else replacing(args.out) as file:
        if suffix == ".npy":
            shape = {"descr": "<i4", "fortran_order": False, "shape": (n,)}
            # the header first: the number of labels is known, the labels follow
            np.lib.format.write_array_header_1_0(file, shape)
            yield lambda labels: file.write(labels.astype("<i4").tobytes())
        elif suffix == ".parquet":
            import pyarrow
            from pyarrow import parquet

            schema = pyarrow.schema([("cluster", pyarrow.int32())])
            with parquet.ParquetWriter(file, schema) as writer:
                yield lambda labels: writer.write(pyarrow.table([labels], schema=schema))
        else:
            file.write(b"cluster\n")
            yield lambda labels: write_lines(file, labels)


@contextmanager
def standard_output(args):
    """Context of standard output for bytes."""
    if args.stdout is None:
        raise UserError("--out -: standard output is closed")
    yield args.stdout.buffer
    args.stdout.buffer.flush()


def write_lines(file, labels):
    """Write one label per line."""
    for start in range(0, len(labels), 100_000):
        cells = map(str, labels[start : start + 100_000].tolist())
        file.write(("\n".join(cells) + "\n").encode())


def write_rows(file, titles, rows):
    """Write rows as a csv file; numbers read back exactly."""
    text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(titles)
    writer.writerows(rows)
    text.detach()  # flushes, and leaves the file open


def save(path, figure):
    """Write a figure in the format given by the ending of the path; a .png says who drew it."""
    kind = suffix_of(path)[1:]
    metadata = {"Software": f"smallvar {__version__}"} if kind == "png" else None
    with replacing(path) as file:
        figure.savefig(file, format=kind, metadata=metadata)


def in_short(counts, noun):
    """Text: the first twelve counts as given, and the number and range of the others.

    ``noun`` names what is counted. Counts need not be sorted.
    """
    if len(counts) <= 13:
        return ", ".join(map(str, counts))
    first, rest = ", ".join(map(str, counts[:12])), counts[12:]
    return f"{first} and {len(rest):,} more of {max(rest)} to {min(rest)} {noun}"


def sizes_in_words(sizes, noun):
    """Text: the sizes of the clusters 0, 1, ..., in the order of their labels."""
    labels = f" (labels 0 to {len(sizes) - 1})" if len(sizes) > 1 else ""
    return f"{in_short(sizes, noun)}{labels}"


def out_in_words(args):
    """Text: the file of ``--out``, or standard output."""
    return "standard output" if args.out == "-" else args.out


def say(text):
    """Print text; what the terminal cannot show, and what it would obey, is escaped.

    Long lines go on below on a terminal; in a file, and for other programs, they stay whole.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = visible(text, "\n").encode(encoding, "backslashreplace").decode(encoding)
    if sys.stdout is not None and sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        text = "\n".join(in_width(line, width) for line in text.split("\n"))
    print(text)


def in_width(line, width):
    """A line in lines of this width; later ones begin where its last field does.

    Fields are separated by two spaces and more. Lines of tables, whose last field begins in the
    second half, stay whole.
    """
    starts = [0, *(gap.end() for gap in re.finditer(" {2,}", line))]
    if len(line) <= width or 2 * starts[-1] > width:
        return line
    options = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(line, width, subsequent_indent=" " * starts[-1], **options)


def complain(*words):
    """Print one line on standard error; a line of progress is cleared first."""
    line = visible(in_one_line(" ".join(map(str, ("smallvar:", *words)))))
    # where standard error cannot be written either, the exit code has to say it
    with (
        suppress(OSError),
        nullcontext() if ProgressLine.current is None else ProgressLine.current.cleared(),
    ):
        print(line, file=sys.stderr)


@contextmanager
def warnings_told(titles=()):
    """Context that tells each warning in a line; ``titles`` are those of the columns of a fit."""
    with warnings.catch_warnings():
        # tables are checked as they are read, see data.py
        warnings.simplefilter("ignore", ScaleWarning)
        warnings.showwarning = lambda warning, *_: complain("warning:", in_options(warning, titles))
        yield


def in_options(warning, titles):
    """Text of a warning, with options in place of parameters, and titles of columns."""

    def option(what, value):
        if what == "columns":
            return ", ".join(titles[j] for j in value[:5]) + (", ..." if len(value) > 5 else "")
        names = {"path_.labels": "n_clusters", "smallvar.ShapeMeans": "shapes"}
        name = option_of(names.get(what, what))
        return name if value is None else f"{name} {value}"

    # only some warnings of smallvar name parameters
    fields = {name: option(*field) for name, field in getattr(warning, "fields", {}).items()}
    return warning.template.format(**fields) if fields else str(warning)
