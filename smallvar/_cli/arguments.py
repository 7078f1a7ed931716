"""The arguments that the commands share, and the checks before any work is done."""

import argparse
import os
import sys
import tempfile
import textwrap
from itertools import combinations

from smallvar._cli.picture import import_matplotlib
from smallvar._cli.table import UserError, one_of
from smallvar._version import __version__

TARGETS = ("out", "components", "tracks", "plot")  # options that name a file to write
PICTURE_FORMATS = (".png", ".pdf", ".svg")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others."""

    def error(self, message):
        """Refuse the command line."""
        raise UserError(f"{message} (see {self.prog} --help)")


class ShowConfig(argparse.Action):
    """Print how smallvar was built and leave."""

    def __call__(self, parser, namespace, values, option_string=None):
        """Print and leave."""
        from smallvar import show_config

        show_config()
        parser.exit()


def new_parser(prog, usage, description, examples):
    """Start the parser of a command, which then adds the arguments of its own.

    Parameters
    ----------
    prog : str
        What to type for this command.
    usage, description, examples : str
        What ``--help`` shows around the options.

    Returns
    -------
    parser : Parser
        For `parse`.
    """
    from smallvar._cli.main import COMMANDS, DEFAULT_COMMAND

    examples = textwrap.indent(textwrap.dedent(examples).strip(), "  ")
    return Parser(
        prog=prog,
        usage=usage,
        description=textwrap.fill(" ".join(description.split()), 80),
        epilog=f"examples:\n{examples}\n\n"
        f"commands: {', '.join(COMMANDS)} (default: {DEFAULT_COMMAND}); each has its own --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def parse(
    parser,
    argv,
    out,
    seed,
    stand_in="a data set that scikit-learn ships is used",
    lines="sweep",
):
    """Add the arguments that all commands share, and parse.

    Parameters
    ----------
    parser : Parser
        With the arguments of one command.
    argv : list of str
        The arguments given.
    out, seed : str
        What ``--out`` and ``--seed`` mean for this command.
    stand_in, lines : str
        What happens without DATA, and what ``--verbose`` prints a line for.

    Returns
    -------
    args : argparse.Namespace
        What the user asked for.
    """
    parser.add_argument(
        "data",
        nargs="?",
        metavar="DATA",
        help="a table with one row per point: .csv (comma, semicolon or tab), .tsv, .npy (read "
        "through a memory map) or .parquet (needs pandas and pyarrow). In text files a first "
        f"row without any number is the header. Without DATA, {stand_in}",
    )
    parser.add_argument(
        "--columns",
        metavar="A,B,...",
        help="the columns to use: names where there is a header, otherwise positions counted "
        "from 1. FIRST:LAST stands for a range, both ends included; a name that holds a comma "
        "goes in double quotes",
    )
    parser.add_argument("--out", metavar="FILE", help=out)
    parser.add_argument(
        "--plot", metavar="FILE", help="draw the result as a .png, .pdf or .svg picture"
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
    return parser.parse_args(argv)


def number(kind, least, strict=False):
    """Make the converter of an argument to an int or a float with a lower bound."""

    def convert(text):
        try:
            value = kind(text)
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


def check_targets(args):
    """Make sure that the files asked for can be written later, and the picture drawn.

    Parameters
    ----------
    args : argparse.Namespace
        What the user asked for.
    """
    targets = {f"--{name}": getattr(args, name, None) for name in TARGETS}
    targets = {option: path for option, path in targets.items() if path is not None}
    for option, path in targets.items():
        check_target(option, path, args.data)
    if args.plot is not None and not args.plot.lower().endswith(PICTURE_FORMATS):
        raise UserError(f"--plot {args.plot}: the name must end in {one_of(PICTURE_FORMATS)}")
    for (option, path), (other, same) in combinations(targets.items(), 2):
        if os.path.realpath(path) == os.path.realpath(same):
            raise UserError(f"{option} and {other} both name {path}")
    if args.plot is not None:
        import_matplotlib()


def check_target(option, path, data):
    """Make sure that a file can be written later, without touching what is there.

    Parameters
    ----------
    option : str
        The option that names the file, for error messages.
    path : str
        The file.
    data : str or None
        The data, which are not to be overwritten.
    """
    folder = os.path.dirname(os.path.realpath(path))
    exists = os.path.lexists(path)
    if not os.path.isdir(folder):
        raise UserError(f"{option} {path}: there is no folder {os.path.dirname(path)}")
    if exists and not os.path.isfile(path):
        raise UserError(f"{option} {path}: this is not a file that can be replaced")
    if exists and data is not None and os.path.exists(data) and os.path.samefile(path, data):
        raise UserError(f"{option} {path}: this would overwrite the data")
    try:
        open(path, "ab").close()
        if not exists:
            os.unlink(path)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"{option} {path}: {error.strerror or error}") from error
