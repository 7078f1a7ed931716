"""The arguments that all commands share, converters of arguments, and checks of output files.

``new_parser`` starts the parser of a command and ``parse`` adds the shared arguments; files named
by options are checked (``check_targets``) before any work is done.
"""

import argparse
import difflib
import os
import select
import shutil
import stat
import sys
import tempfile
import textwrap
from collections.abc import Callable
from itertools import combinations

from smallvar import __version__
from smallvar._cli.cells import is_number
from smallvar._cli.errors import UserError
from smallvar._cli.formats import WORKBOOK
from smallvar._cli.output import complain
from smallvar._cli.picture import import_matplotlib
from smallvar._cli.table import BY_BATCHES, TEXT, one_of, suffix_of, text_option
from smallvar._cli.words import names_of_option, option_of

# the functions of the commands by name, set by `main`; the first one is the default
COMMANDS: dict[str, Callable[[list[str]], None]] = {}
HELP_WIDTH = 78  # letters of a line of --help
TARGETS = ("out", "components", "tracks", "plot")  # options that name a file to write
PICTURE_FORMATS = (".png", ".pdf", ".svg")
# endings of names
DATA_FORMATS = (*TEXT, *(f"{suffix}.gz" for suffix in TEXT), WORKBOOK, *BY_BATCHES)
PNG, OURS = b"\x89PNG\r\n\x1a\n", b"tEXtSoftware\0smallvar "  # how pictures of `save` begin
OUT_FORMATS = (".csv", ".tsv", ".npy", ".parquet")
LONGEST_RANGE = 1_000_000  # of --skip-rows in one range
# what other programs call an option
OTHER_NAMES = {
    **dict.fromkeys(["k", "K", "n", "clusters", "n_components"], ("n_clusters", "n_components")),
    **dict.fromkeys(["eps", "epsilon", "penalty", "lambda", "alpha"], ("lam",)),
    **dict.fromkeys(["index", "index_col", "ids"], ("id",)),
    **dict.fromkeys(["na_values", "missing"], ("na",)),
    **dict.fromkeys(["skiprows", "skip", "comment"], ("skip_rows",)),
    **dict.fromkeys(["output", "o", "save", "labels"], ("out",)),
    **dict.fromkeys(["standardize", "normalize"], ("scale",)),
    **dict.fromkeys(["drop", "ignore", "omit"], ("exclude",)),
    **dict.fromkeys(["random_state", "random_seed"], ("seed",)),
    **dict.fromkeys(["n_jobs", "jobs"], ("threads",)),
    **dict.fromkeys(["min_samples", "min_size"], ("min_cluster_size",)),
}
PIPE_PATIENCE = 2.0  # seconds to wait for data on standard input if DATA is left out


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UserError, so that errors are one line."""

    def parse_args(self, args=None, namespace=None):
        """Parse; a UserError for arguments that are not known names the nearest option."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            options = [*self._option_string_actions]
            words = [word.partition("=")[0] for word in unknown if word[:1] == "-"]
            near = [self.meant(word.lstrip("-")) or nearest(word, options) for word in words]
            names = [option for option in near if option]
            hint = f"; did you mean {names[0]}?" if names else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}", hint)
        return parsed

    def meant(self, name):
        """The option that another name stands for elsewhere, such as --k; None if there is none."""
        others = (option_of(other) for other in OTHER_NAMES.get(name.replace("-", "_"), ()))
        return next((option for option in others if option in self._option_string_actions), None)

    def _print_message(self, message, file=None):
        """Print a text such as that of --help; argparse would be silent where that fails."""
        print(message, end="", file=file)

    def error(self, message, hint=""):
        """Raise a UserError for a wrong command line."""
        raise UserError(f"{message} (see {self.prog} --help){hint}")


def nearest(word, words):
    """The name among those known that is spelled most like a word; None if none is much alike."""
    return next(iter(difflib.get_close_matches(word, words, n=1)), None)


class ShowConfig(argparse.Action):
    """Action that prints how smallvar was built, and exits."""

    def __call__(self, parser, namespace, values, option_string=None):
        """Print the build, and exit."""
        from smallvar import show_config

        show_config()
        parser.exit()


def new_parser(prog, usage, description, examples):
    """Create the parser of a command; ``--help`` begins with the examples and the commands."""
    width = max(map(len, COMMANDS)) + 2
    commands = [f"  {name:<{width}}{work.__doc__ or ''}" for name, work in COMMANDS.items()]
    commands.append(f"  {next(iter(COMMANDS))} may be left out; each has its own --help")
    examples = textwrap.indent(textwrap.dedent(examples).strip(), "  ")
    description = textwrap.fill(" ".join(description.split()), HELP_WIDTH)
    return Parser(
        prog=prog,
        usage=usage,
        description="\n".join(["examples:", examples, "\ncommands:", *commands, "", description]),
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
            prog, width=min(HELP_WIDTH, shutil.get_terminal_size().columns - 2)
        ),
        allow_abbrev=False,
    )


def parse(
    parser,
    argv,
    out,
    seed,
    stand_in="a data set that scikit-learn ships is used",
    lines="sweep",
    scale=None,
):
    """Add the arguments that all commands share to a parser, and parse.

    ``out``, ``seed`` and ``scale`` are the help texts of these options; without the last, the
    command has no ``--scale``. ``stand_in`` and ``lines`` are parts of help texts: what is used
    without DATA, and the step for which ``--verbose`` prints a line.
    """
    _add_input_arguments(parser, stand_in)
    _add_text_arguments(parser)
    if scale is not None:
        parser.add_argument("--scale", action="store_true", help=scale)
    _add_output_arguments(parser, out, seed, lines)
    args = parser.parse_args(argv)
    plot_and_data(args)
    if args.encoding is not None:
        check_encoding(args)
    if args.data is None and not isinstance(getattr(args, "path", None), str) and is_piped():
        args.data = "-"
    if args.data is None:
        refuse_text_options(args, "has no meaning without DATA")
    if args.out == "-":  # the report goes to standard error; `main` restores sys.stdout
        args.stdout, sys.stdout = sys.stdout, sys.stderr
    return args


def refuse_text_options(args, why):
    """Raise a UserError if an option says how text is to be read; ``why`` is why it must not."""
    option = text_option(args)
    if option is not None:
        raise UserError(f"{option} {why}")


def refuse_given(args, names, text):
    """Raise a UserError for the first of the options that is given; its name stands for the {}."""
    for name in names:
        if getattr(args, name) not in (None, False):
            raise UserError(text.format(option_of(name)))


def given(**parameters):
    """Those of the parameters of an estimator that are not None, which is "not given"."""
    return {name: value for name, value in parameters.items() if value is not None}


def _add_input_arguments(parser, stand_in):
    """Add the arguments that say what to read."""
    parser.add_argument(
        "data",
        nargs="?",
        metavar="DATA",
        help="a table with one row per point: text (.csv, .tsv, .txt or .dat, also with .gz "
        "after it; cells separated by commas, semicolons, tabs or spaces), .npy (read through a "
        "memory map), .parquet (needs pandas and pyarrow) or .xlsx (its first worksheet; needs "
        "openpyxl). In text files a first row without "
        "any number is the header, also one of words and years; where that is doubtful, a warning "
        "says what it is taken for. -: standard input, which is also read where DATA is left out "
        f"and something is piped or redirected into it. Otherwise, without DATA, {stand_in}",
    )
    parser.add_argument(
        "--columns",
        metavar="A,B,...",
        help="the columns to use: names where there is a header, otherwise positions counted "
        "from 1. FIRST:LAST stands for a range, both ends included; a name that holds a comma "
        "goes in double quotes. Of columns of one name the second is called name.1, as in pandas",
    )
    parser.add_argument(
        "--exclude",
        metavar="A,B,...",
        help="the columns not to use, out of all or of those that --columns names; '' are those "
        "that have no name in the header, as row numbers often have none",
    )
    parser.add_argument(
        "--id",
        metavar="A,B,...",
        help="columns that name the rows: not clustered, and --out has them and the clusters only",
    )
    parser.add_argument(
        "--drop-missing",
        action="store_true",
        help="leave out rows with a missing value in a column that is used (an empty cell, NA, "
        "nan, ?, - or null; --na names more) rather than refuse the table, or cluster them by "
        "their other cells. --out keeps them, without a cluster (-1 in .npy)",
    )


def _add_text_arguments(parser):
    """Add the arguments that say how text is to be read."""
    header = parser.add_mutually_exclusive_group()
    header.add_argument(
        "--header",
        action="store_true",
        default=None,
        help="the first row of text holds the names of the columns, whatever it looks like",
    )
    header.add_argument(
        "--no-header",
        dest="header",
        action="store_false",
        default=None,
        help="the first row of text is one of the data",
    )
    parser.add_argument(
        "--decimal",
        choices=[".", ","],
        default=".",
        metavar="SIGN",
        help="the decimal sign in text, . (default) or a comma; with a comma, cells must be "
        "separated by semicolons, tabs or spaces",
    )
    parser.add_argument(
        "--thousands",
        choices=[",", ".", "'", " "],
        metavar="SIGN",
        help="the sign between thousands in text, a comma, point, apostrophe or space; needed only "
        "where 1,234 may be read in two ways, which is an error without it",
    )
    parser.add_argument(
        "--na",
        type=words_of,
        action="extend",
        metavar="WORD,...",
        help="cells of text that are missing values, beside empty ones, NA, n.a., nan, ?, - and "
        "null: --na '<35' or --na=-999; '<*' are all that begin with <. '' says that a number like "
        "-999, which is an error where nothing else is below 0, is one",
    )
    parser.add_argument(
        "--skip-rows",
        type=lines_of,
        action="extend",
        metavar="N,M-...",
        help="lines of text to leave out, by the numbers in the error messages: 1,150-152. Titles "
        "above the header, units below it, and notes, totals and means below the rows are left out "
        "by themselves, and a warning says so; none keeps them",
    )
    parser.add_argument(
        "--encoding",
        metavar="NAME",
        help="the encoding of text, such as cp1252 (western European Windows) or utf-16; default: "
        "UTF-8, and what is not is refused",
    )


def _add_output_arguments(parser, out, seed, lines):
    """Add the arguments for results, threads and random numbers, and about the program."""
    parser.add_argument(
        "--out",
        metavar="FILE",
        help=f"{out}, as .csv, .tsv, .parquet or, without the table, .npy; -: as .csv on standard "
        "output, and the report goes to standard error",
    )
    parser.add_argument(
        "--plot",
        metavar="FILE",
        nargs="?",
        const=True,
        help="draw the result as a .png, .pdf or .svg picture. Without FILE the picture goes "
        "beside DATA, table-clusters.png beside table.csv, or into the current folder if there is "
        "no file of DATA; it then replaces only what smallvar has drawn",
    )
    parser.add_argument(
        "--threads", type=number(int, 1), metavar="N", help="threads to use (default: all cores)"
    )
    parser.add_argument("--seed", type=number(int, 0), metavar="S", help=seed)
    parser.add_argument("--verbose", action="store_true", help=f"print a line for every {lines}")
    parser.add_argument(
        "--version",
        action="version",
        version=f"smallvar {__version__}",
        help="print the version and exit",
    )
    parser.add_argument(
        "--show-config", action=ShowConfig, nargs=0, help="print how smallvar was built and exit"
    )


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
            "read; give - as DATA to wait for it"
        )
        return False
    return bool(sys.stdin.buffer.peek(1))  # peek consumes nothing; b"" at the end


def number(kind, least, strict=False):
    """Return the converter of an argument to an int or float >= ``least`` (> if ``strict``)."""

    def convert(text):
        try:
            value = kind(text) if is_number(text) else float("nan")
        except ValueError:
            value = float("nan")
        if not value >= least or (strict and value == least):
            noun = "an integer" if kind is int else "a number"
            bound = f"{'>' if strict else '>='} {least}"
            raise argparse.ArgumentTypeError(f"must be {noun} {bound}, got {text!r}")
        if kind is int and value > sys.maxsize:
            raise argparse.ArgumentTypeError(f"must be <= {sys.maxsize}, got {text!r}")
        return value

    return convert


def words_of(text):
    """Convert the argument of ``--na``."""
    return names_of_option("argument --na", text)


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


def length_or_data(text):
    """Convert the argument of ``--path``: K as an int, or the DATA that follow if K is left out."""
    return number(int, 1)(text) if is_number(text) else text


def penalty_of(args):
    """The penalty of ``--lam``, or the rule that derives it."""
    if args.lam is not None:
        return args.lam
    return "auto" if args.guess is None else "farthest-first"


def path_and_data(args, length):
    """Set ``args.path`` and ``args.data`` if DATA follow ``--path`` in place of K.

    ``length`` is the value of ``path`` if K is left out.
    """
    if isinstance(args.path, str):
        if args.data is not None:
            raise UserError(f"argument --path: must be an integer >= 1, got {args.path!r}")
        args.data, args.path = args.path, length


def plot_and_data(args):
    """Set ``args.plot`` and ``args.data`` if DATA follow ``--plot`` in place of FILE."""
    plot = args.plot
    has_data = args.data is not None or isinstance(getattr(args, "path", None), str)
    if not has_data and isinstance(plot, str) and plot.lower().endswith(DATA_FORMATS):
        args.data, args.plot = plot, True


def picture_beside(data, noun):
    """Name the .png file of ``--plot`` without FILE, after the file of the data if there is one.

    ``noun`` says what the picture shows, and is the last part of the name.
    """
    stem = "smallvar" if data in (None, "-") else os.path.splitext(data)[0]
    if data is not None and suffix_of(data) == ".gz":
        stem = os.path.splitext(stem)[0]
    path = f"{stem}-{noun}.png"
    if os.path.lexists(path) and not is_our_picture(path):
        raise UserError(
            f"--plot: {path} is there, and no picture of smallvar; name another file: --plot FILE"
        )
    return path


def is_our_picture(path):
    """Tell whether a file is a .png picture that smallvar has drawn."""
    try:
        with open(path, "rb") as file:
            start = file.read(1024)
    except OSError:
        return False
    return start.startswith(PNG) and OURS in start


def check_encoding(args):
    """Raise a UserError if the encoding of ``--encoding`` is not known."""
    try:
        "".encode(args.encoding)
    except (LookupError, ValueError) as error:
        raise UserError(f"--encoding {args.encoding}: this encoding is not known") from error


def check_targets(args, noun):
    """Raise a UserError if an output file could not be written, or a picture not drawn.

    Where the user gave no name, ``args.plot`` becomes one that ends in ``noun``.
    """
    if args.plot is True:
        args.plot = picture_beside(args.data, "path" if getattr(args, "path", None) else noun)
    targets = {f"--{name}": getattr(args, name, None) for name in TARGETS}
    targets = {option: path for option, path in targets.items() if path is not None}
    if args.out == "-":
        del targets["--out"]
    elif args.out is not None:
        check_format(args.out)
    for option, path in targets.items():
        check_target(option, path, args.data)
    if args.plot is not None and not args.plot.lower().endswith(PICTURE_FORMATS):
        raise UserError(f"--plot {args.plot}: the name must end in {one_of(PICTURE_FORMATS)}")
    for (option, path), (other_option, other_path) in combinations(targets.items(), 2):
        if os.path.realpath(path) == os.path.realpath(other_path):
            raise UserError(f"{option} and {other_option} both name {path}")
    if args.plot is not None:
        import_matplotlib()


def check_format(path):
    """Raise a UserError if labels cannot be written in the format of the file name."""
    if suffix_of(path) not in OUT_FORMATS:
        raise UserError(f"--out {path}: the name must end in {one_of(OUT_FORMATS)}, or be -")
    if suffix_of(path) == ".parquet":
        try:
            import pandas  # noqa: F401
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise UserError(
                f"--out {path} needs pandas and pyarrow: pip install 'smallvar[parquet]'"
            ) from error


def check_target(option, path, data):
    """Raise a UserError if a file could not be written; an existing file is not changed."""
    folder = os.path.dirname(os.path.realpath(path))
    exists = os.path.lexists(path)
    if not os.path.isdir(folder):
        raise UserError(f"{option} {path}: there is no folder {os.path.dirname(path)}")
    if exists and not os.path.isfile(path):
        raise UserError(f"{option} {path}: this is not a file that can be replaced")
    if exists and is_data(path, data):
        raise UserError(f"{option} {path}: this would overwrite the data")
    try:
        open(path, "ab").close()
        if not exists:
            os.unlink(path)
        # the file is written beside the old one, and then replaces it
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"{option} {path}: {error.strerror or error}") from error


def is_data(path, data):
    """Tell whether an existing file is the one that the data are read from."""
    if data == "-":
        try:
            return os.path.samestat(os.stat(path), os.fstat(sys.stdin.fileno()))
        except (AttributeError, OSError, ValueError):
            return False
    return data is not None and os.path.exists(data) and os.path.samefile(path, data)
