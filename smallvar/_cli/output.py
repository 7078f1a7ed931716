"""What the commands write: files, the report, complaints."""

import csv
import io
import os
import shutil
import sys
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from time import perf_counter

import numpy as np

from smallvar import progress_callback
from smallvar._cli.progress import Progress
from smallvar._cli.table import UserError, suffix_of


def timed(work, *args, follow=None, **options):
    """Fit, and return the result and the seconds; what is refused, the user has to hear.

    Parameters
    ----------
    work : callable
        Takes the other arguments.
    *args, **options
        For ``work``.
    follow : callable, optional
        Called after every step of a fit, with the Progress shown and the event.

    Returns
    -------
    result : object
        What ``work`` returns.
    seconds : float
        How long it took.
    """
    begin = perf_counter()
    try:
        with (
            Progress("fitting") as progress,
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
    """Open a file that takes the place of ``path`` once it is written in full.

    Parameters
    ----------
    path : str
        What to replace or make.

    Yields
    ------
    file : binary file
        Removed again if anything goes wrong.
    """
    path = os.path.realpath(path)  # a symbolic link stays one
    draft = os.path.join(os.path.dirname(path), f".smallvar-{os.urandom(8).hex()}.tmp")
    try:
        with open(draft, "xb") as file:
            yield file
        if os.path.exists(path):
            shutil.copymode(path, draft)
        os.replace(draft, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)


def write_out(args, titles, values, kept, write_text):
    """Write what each row got to the file, or to standard output, that ``--out`` asks for.

    Parameters
    ----------
    args : argparse.Namespace
        What the user asked for.
    titles : list of str
        What to call the columns.
    values : ndarray of int, of shape (n,) or (n, k)
        A row for each that was clustered; none is below 0.
    kept : ndarray of bool or None
        Marks those among the rows of the input; the others get -1, or nothing where there is
        a way to write it.
    write_text : callable
        Takes a binary file, the titles and the values with a -1 in all cells of a row left out.
    """
    if kept is not None:
        found, values = values, np.full((len(kept), *values.shape[1:]), -1)
        values[kept] = found
    suffix = suffix_of(args.out)
    with standard_output(args) if args.out == "-" else replacing(args.out) as file:
        if suffix == ".npy":
            np.save(file, values)
        elif suffix == ".parquet":
            import pandas as pd

            columns = values.reshape(len(values), len(titles)).T
            if kept is not None:
                columns = [pd.arrays.IntegerArray(column.copy(), ~kept) for column in columns]
            frame = pd.DataFrame(dict(zip(titles, columns, strict=True)))
            file.write(frame.to_parquet(index=False))
        else:
            write_text(file, titles, values)


@contextmanager
def labels_by_batches(args, n):
    """Open what ``--out`` asks for, if anything, for n labels that come by batches.

    Parameters
    ----------
    args : argparse.Namespace
        What the user asked for.
    n : int
        How many labels there will be.

    Yields
    ------
    write : callable
        Takes the next labels, int32.
    """
    if args.out is None:
        yield lambda labels: None
        return
    suffix = suffix_of(args.out)
    with standard_output(args) if args.out == "-" else replacing(args.out) as file:
        if suffix == ".npy":
            shape = {"descr": "<i4", "fortran_order": False, "shape": (n,)}
            np.lib.format.write_array_header_1_0(file, shape)
            yield lambda labels: file.write(labels.astype("<i4").tobytes())
        elif suffix == ".parquet":
            import pyarrow
            from pyarrow import parquet

            schema = pyarrow.schema([("label", pyarrow.int32())])
            with parquet.ParquetWriter(file, schema) as writer:
                yield lambda labels: writer.write(pyarrow.table([labels], schema=schema))
        else:
            file.write(b"label\n")
            yield lambda labels: write_lines(file, labels)


@contextmanager
def standard_output(args):
    """Open standard output for bytes."""
    yield args.stdout.buffer
    args.stdout.buffer.flush()


def write_labels(file, titles, labels):
    """Write labels as a csv file of one column."""
    file.write(f"{titles[0]}\n".encode())
    write_lines(file, labels)


def write_lines(file, labels):
    """Write a label on each line."""
    for start in range(0, len(labels), 100_000):
        # Most programs skip empty lines, but not this one: rows have to stay what they are.
        cells = ['""' if i < 0 else str(i) for i in labels[start : start + 100_000].tolist()]
        file.write(("\n".join(cells) + "\n").encode())


def write_rows(file, titles, rows):
    """Write rows as a csv file, numbers so that they read back exactly."""
    text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(titles)
    writer.writerows(rows)
    text.detach()  # flushes, and leaves the file open


def save(path, figure):
    """Write a picture in the format that its name ends in."""
    with replacing(path) as file:
        figure.savefig(file, format=suffix_of(path)[1:])


def in_short(counts, noun):
    """List at most twelve counts, and of the others the noun and the range."""
    if len(counts) <= 13:
        return ", ".join(map(str, counts))
    first, rest = ", ".join(map(str, counts[:12])), counts[12:]
    return f"{first} and {len(rest):,} more of {max(rest)} to {min(rest)} {noun}"


def report(facts):
    """Print facts, one per line, those without a value left out."""
    width = max(map(len, facts)) + 2
    say("\n".join(f"{fact:<{width}}{value}" for fact, value in facts.items() if value is not None))


def out_in_words(args):
    """Say where ``--out`` went."""
    return "standard output" if args.out == "-" else args.out


def say(text):
    """Print text, with escapes for what the terminal's encoding lacks."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def complain(*words):
    """Print one line on standard error."""
    with nullcontext() if Progress.current is None else Progress.current.cleared():
        print("smallvar:", *" ".join(map(str, words)).split(), file=sys.stderr)
