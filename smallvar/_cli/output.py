"""What the commands write: files, the report, complaints."""

import os
import shutil
import sys
from contextlib import contextmanager, suppress
from time import perf_counter

from smallvar._cli.table import UserError, suffix_of


def timed(work, *args, **options):
    """Fit, and return the result and the seconds; what is refused, the user has to hear."""
    begin = perf_counter()
    try:
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


def write_labels(file, labels, title="label"):
    """Write labels as a csv file of one column."""
    file.write(f"{title}\n".encode())
    for start in range(0, len(labels), 100_000):
        lines = "\n".join(map(str, labels[start : start + 100_000].tolist()))
        file.write(f"{lines}\n".encode())


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


def say(text):
    """Print text, with escapes for what the terminal's encoding lacks."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def complain(*words):
    """Print one line on standard error."""
    print("smallvar:", *" ".join(map(str, words)).split(), file=sys.stderr)
