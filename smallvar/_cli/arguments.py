"""The options of the command, and checks of them that need no data."""

import argparse
import os
import select
import shutil
import stat
import sys
import tempfile
from functools import partial

from smallvar._cli.output import complain, is_installed, suffix_of
from smallvar._cli.words import UserError, names_of_option, option_of
from smallvar._version import __version__

HELP_WIDTH = 78  # letters of a line of --help
PICTURE_FORMATS = (".png", ".pdf", ".svg")
OUT_FORMATS = (".csv", ".tsv", ".npy", ".parquet")
TELLING = 3  # columns that --profiles names for a cluster
LONGEST_RANGE = 1_000_000  # of --skip-rows in one range
PIPE_PATIENCE = 2.0  # seconds to wait for data on standard input if TABLE is left out
# options that say how a file is to be read
READING = ("kinds", "decimal", "encoding", "na", "skip_rows", "keep", "drop_missing")
# options that have no meaning together with another
CONFLICTS = {
    "lam": ("n_clusters", "seed"),
    "shapes": ("lam", "kinds"),
    "kinds": ("scale", "drop_missing"),
}
DESCRIPTION = """\
Find groups of rows that are alike, how many there are, and how sure that is.

examples:
  smallvar table.csv                        how many clusters, and what they are
  smallvar table.csv --out clusters.csv     the cluster of each row, as a file
  smallvar table.csv --scale --plot c.png   columns count alike; with a picture
  smallvar table.csv --shapes               clusters of any shape

DP-means is k-means that finds the number of clusters K by itself. It
minimizes SSE + lam K, the sum of squared distances to the cluster centers
plus a penalty lam for every cluster. Unless --n-clusters or --lam is given,
the data choose K, by a criterion of likelihood and description length."""


# each option with its argument, if it takes one, and what it does
OPTIONS = """\
--n-clusters K
the exact number of clusters, at most that of the distinct rows

--lam L
the penalty for each cluster, in squared data units: a point farther than sqrt(L) from every center
opens a cluster, so a smaller L gives more clusters

--scale
standardize the columns, each to mean 0 and standard deviation 1, so that all count alike; lam is
then in these units

--shapes
clusters of any shape, also long, bent or hollow ones, in place of compact ones: each is a union of
pieces with no gap between them. There is no penalty; the data choose K, unless --n-clusters gives
it. For tables of numbers

--kinds A=KIND,...
what columns are, where that is not what is found: normal, ordered, poisson (counts), exponential
(positive amounts), bernoulli (two values), categorical, or none to leave one out. A table with a
column of words or with gaps is clustered by the kinds of its columns, which are printed; a table of
numbers only where --kinds is given

--seed S
draw from S the rows that the search for K begins from (default: 0, so that the same command gives
the same result)

data TABLE
a table with one row per point: text (.csv, .tsv, .txt or .dat, also with .gz after it; cells
separated by commas, semicolons, tabs or spaces), .npy (read through a memory map), .parquet (needs
pandas and pyarrow) or .xlsx (its first worksheet; needs openpyxl). -: standard input, which is also
read where TABLE is left out and something is piped into it. Otherwise, without TABLE, wines that
scikit-learn ships are clustered

--columns A,B,...
the columns to use: names where there is a header, otherwise positions counted from 1. FIRST:LAST
stands for a range, both ends included; a name that holds a comma goes in double quotes. Of columns
of one name the second is called name.1, as in pandas

--exclude A,B,...
the columns not to use, out of all or of those that --columns names; '' are those that have no name
in the header, as row numbers often have none

--keep A,B,...
columns that are used although they seem to number the rows only (whole numbers that ascend from row
to row, ids), as do those that --columns names; other such columns are left out, and named

--na WORD,...
cells of text that are missing values, beside empty ones, NA, n.a., nan, ?, - and null: --na '<35'
or --na=-999; '<*' are all that begin with <, and a word that holds a comma goes in double quotes.
'' says that a number like -999, which is an error where nothing else is below 0, is one

--drop-missing
leave out rows with a missing value in a column that is used, rather than cluster them by their
other cells. --out keeps them, without a cluster (-1 in .npy)

--skip-rows N,M-...
lines of text to leave out, by the numbers in the error messages: 1,150-152. Titles above the
header, units below it, and notes, totals and means below the rows are left out by themselves, and a
warning says so; none keeps them

--decimal SIGN
the decimal sign in text, . (default) or a comma; with a comma, cells must be separated by
semicolons, tabs or spaces

--encoding NAME
the encoding of text, such as cp1252 (western European Windows) or utf-16; default: UTF-8, and what
is not is refused

--out FILE
write the table with the cluster of each row, 0 to K - 1, and how probable it is, as .csv, .tsv,
.parquet or, without the table, .npy; -: as .csv on standard output, and the report goes to standard
error

--plot FILE
draw the clusters as a .png, .pdf or .svg picture

--profiles COLUMNS
say what sets each cluster apart in so many columns, at most (default: 3): its mean and spread in
those that save most of the squared distances, and what share they save; --plot then draws this in
place of the rows

--verbose
print a line for every sweep, and for every stage of the search for K"""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UserError, so that errors are one line."""

    def _print_message(self, message, file=None):
        """Print a text such as that of --help; argparse would be silent where that fails."""
        print(message, end="", file=file)

    def error(self, message):
        """Raise a UserError for a wrong command line."""
        raise UserError(f"{message} (see {self.prog} --help)")


def parse(argv):
    """Parse the command line, and check what can be checked before the table is read."""
    parser = Parser(
        prog="smallvar",
        usage="smallvar [TABLE] [options]",
        description=DESCRIPTION,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
            prog, width=min(HELP_WIDTH, shutil.get_terminal_size().columns - 2)
        ),
        allow_abbrev=False,
    )
    readings = {
        "--n-clusters": {"type": number(int, 1)},
        "--lam": {"type": number(float, 0)},
        "--kinds": {"type": kinds_of},
        "--seed": {"type": number(int, 0)},
        "data": {"nargs": "?"},
        "--na": {"type": partial(names_of_option, "argument --na"), "action": "extend"},
        "--skip-rows": {"type": lines_of, "action": "extend"},
        "--decimal": {"choices": [".", ","]},
        "--profiles": {"type": number(int, 1), "nargs": "?", "const": TELLING},
    }
    for block in OPTIONS.split("\n\n"):
        first, text = block.split("\n", 1)
        name, argument, metavar = first.partition(" ")
        reading = {"metavar": metavar} if argument else {"action": "store_true"}
        parser.add_argument(name, help=text, **reading, **readings.get(name, {}))
    parser.add_argument("--version", action="version", version=f"smallvar {__version__}")
    args = parser.parse_args(argv)
    for name, others in CONFLICTS.items():
        if is_given(args, name):
            refuse_given(args, others, f"{{}} has no meaning with {option_of(name)}")
    if args.data is None and is_piped():
        args.data = "-"
    if args.data is None:
        refuse_given(args, READING, "{} has no meaning without TABLE")
    check_files(args)
    return args


# Converters of arguments


def number(kind, least):
    """Return the converter of an argument to an int or float >= ``least``."""

    def convert(text):
        try:  # Python also reads 1_1 and digits that are not ASCII
            value = kind(text) if text.isascii() and "_" not in text else float("nan")
        except ValueError:
            value = float("nan")
        if not value >= least:
            noun = "an integer" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"must be {noun} >= {least}, got {text!r}")
        return value

    return convert


def kinds_of(text):
    """Convert the argument of ``--kinds``: names and kinds, None for what is left out."""
    kinds = {}
    for assignment in names_of_option("argument --kinds", text):
        name, equals, kind = (part.strip() for part in assignment.rpartition("="))
        if not equals or not name or not kind:
            raise UserError(f"argument --kinds: must be NAME=KIND,..., got {text!r}")
        if name in kinds:
            raise UserError(f"argument --kinds: names {name!r} twice")
        kinds[name] = None if kind == "none" else kind
    return kinds


def lines_of(text):
    """Convert the argument of ``--skip-rows`` to numbers of lines; [] for none."""
    lines = []
    for part in text.split(",") if text.strip() not in ("", "none") else ():
        first, dash, last = map(str.strip, part.partition("-"))
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last)):
            raise argparse.ArgumentTypeError(f"must be lines like 3 or 1,7-9, got {text!r}")
        if int(last) - int(first) > LONGEST_RANGE:
            raise argparse.ArgumentTypeError(
                f"{part.strip()} are more than {LONGEST_RANGE:,} lines"
            )
        lines += range(int(first), int(last) + 1)
    return lines


# Checks


def is_given(args, name):
    """Whether an option is given."""
    return getattr(args, name) not in (None, False)


def refuse_given(args, names, text):
    """Raise a UserError for the first of the options that is given; its name stands for the {}."""
    for name in names:
        if is_given(args, name):
            raise UserError(text.format(option_of(name)))


def is_piped():
    """Tell whether data are redirected or piped into standard input.

    A terminal, the null device or a socket does not count, nor a pipe in which nothing arrives for
    PIPE_PATIENCE: the program that started this one may have left it open by accident.
    """
    try:
        descriptor = sys.stdin.fileno()
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            return status.st_size > 0
        if not stat.S_ISFIFO(status.st_mode):
            return False
        arrived, _, _ = select.select([descriptor], [], [], PIPE_PATIENCE)
    except (AttributeError, OSError, ValueError):  # no standard input, or no select on pipes
        return False
    if not arrived:
        complain(
            f"warning: nothing came through standard input for {PIPE_PATIENCE:g} s, so it is not "
            "read; give - as TABLE to wait for it"
        )
        return False
    return bool(sys.stdin.buffer.peek(1))  # peek consumes nothing; b"" at the end


def check_files(args):
    """Raise a UserError if an output file could not be written, or a picture not drawn."""
    if args.out not in (None, "-"):
        check_target("--out", args.out, args.data, OUT_FORMATS, ", or be -")
        if suffix_of(args.out) == ".parquet" and not is_installed("pandas", "pyarrow"):
            raise UserError(
                f"--out {args.out} needs pandas and pyarrow: pip install 'smallvar[parquet]'"
            )
    if args.plot is not None:
        check_target("--plot", args.plot, args.data, PICTURE_FORMATS)
        if not is_installed("matplotlib"):
            raise UserError("--plot needs matplotlib: pip install matplotlib")


def check_target(option, path, data, formats, more=""):
    """Raise a UserError if a file could not be written; an existing file is not changed."""
    folder, exists = os.path.dirname(os.path.realpath(path)), os.path.lexists(path)
    reason = None
    if suffix_of(path) not in formats:
        reason = f"the name must end in {', '.join(formats[:-1])} or {formats[-1]}{more}"
    elif not os.path.isdir(folder):
        reason = f"there is no folder {os.path.dirname(path)}"
    elif exists and not os.path.isfile(path):
        reason = "this is not a file that can be replaced"
    elif exists and is_data(path, data):
        reason = "this would overwrite the data"
    try:
        if reason is None:
            open(path, "ab").close()
            if not exists:
                os.unlink(path)
            # the file is written beside the old one, and then replaces it
            tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        reason = error.strerror or error
    if reason is not None:
        raise UserError(f"{option} {path}: {reason}")


def is_data(path, data):
    """Tell whether an existing file is the one that the data are read from."""
    try:
        status = os.fstat(sys.stdin.fileno()) if data == "-" else os.stat(data or "")
    except (AttributeError, OSError, ValueError):  # no data, or no standard input
        return False
    return os.path.samestat(os.stat(path), status)
