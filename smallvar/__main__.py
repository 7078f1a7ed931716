"""The command line: ``smallvar`` and ``python -m smallvar``.

Each command is one function of its own arguments, entered in ``COMMANDS``; a command line
that begins with none of their names goes to ``DEFAULT_COMMAND``. Whatever is the user's to
put right is raised as `UserError` and ends in one line and exit code 2.
"""

import argparse
import csv
import io
import os
import shutil
import sys
import tempfile
import textwrap
import warnings
from contextlib import contextmanager, suppress
from itertools import combinations
from time import perf_counter

import numpy as np

from smallvar._table import (
    Table,
    UserError,
    columns_in_short,
    counted,
    one_of,
    pick_columns,
    read_table,
    suffix_of,
)
from smallvar._version import __version__

TARGETS = ("out", "components", "plot")  # options that name a file to write
PICTURE_FORMATS = (".png", ".pdf", ".svg")
POINTS_DRAWN, VALUES_DRAWN = 50_000, 20_000_000
FEATURES_DRAWN, ROWS_DRAWN = 40, 400
BARS = 24  # columns up to which a feature is drawn as bars
DIGITS_SHAPE = (8, 8)
PATH = 10  # features that --path goes to
EXACT_FIT = 1e-20  # share of the data's square that counts as no error: rounding


# ---------------------------------------------------------------------------------------
# Commands


def cluster(argv):
    """Cluster the rows of a table with DP-means.

    Parameters
    ----------
    argv : list of str
        The arguments that follow the name of the command.
    """
    parser = new_parser(
        prog="smallvar",
        usage="smallvar [cluster] [DATA] [--lam L | --n-clusters K] [options]",
        description="""
            Cluster the rows of a table with DP-means: k-means that finds the number of
            clusters K by itself. It minimizes SSE + lam K, the sum of squared distances to
            the cluster centers plus a penalty lam for every cluster.""",
        examples="""
            smallvar measurements.csv --n-clusters 10 --out labels.csv
            smallvar points.npy --lam 2.5 --algorithm delayed --plot clusters.png""",
    )
    penalty = parser.add_mutually_exclusive_group()
    penalty.add_argument(
        "--lam",
        type=number(float, 0),
        metavar="L",
        help="the penalty per cluster, in squared data units: a point farther than sqrt(L) from "
        "every center opens a cluster, so a smaller L gives more clusters",
    )
    penalty.add_argument(
        "--n-clusters",
        type=number(int, 1),
        metavar="K",
        help="a guess at the number of clusters, not a bound: lam is then the squared distance "
        "of the K-th of K points picked farthest-first (default: a guess of 8)",
    )
    parser.add_argument(
        "--algorithm",
        choices=["serial", "delayed", "collapsed"],
        help="serial (default): each point beyond lam opens a cluster at once; delayed: at most "
        "one new cluster per sweep, hence fewer and clearer ones where lam is small; "
        "collapsed: the centers move with every point, which may lower the objective further",
    )
    parser.add_argument(
        "--max-clusters", type=number(int, 1), metavar="M", help="never make more than M clusters"
    )
    args = parse(
        parser,
        argv,
        out="write the labels, 0 to K - 1, one per row, as .csv",
        seed="visit the points in a random order drawn from S (default: in the order given)",
    )
    check_targets(args)

    from smallvar import DPMeans

    table, reading = load(args, parser.prog)
    n, d = table.X.shape
    given = {
        "lam": args.lam,
        "n_clusters": args.n_clusters,
        "max_clusters": args.max_clusters,
        "algorithm": args.algorithm,
        "random_state": args.seed,
        "n_threads": args.threads,
    }
    model = DPMeans(
        **{option: value for option, value in given.items() if value is not None},
        shuffle=args.seed is not None,
        verbose=int(args.verbose),
    )
    if args.n_clusters is None:  # a guess nobody made is no reason to refuse a few rows
        model.set_params(n_clusters=min(model.n_clusters, n))
    _, fitting = timed(model.fit, table.X)

    if args.out is not None:
        with replacing(args.out) as file:
            write_labels(file, model.labels_)
    if args.plot is not None:
        save(args.plot, picture(table, model))

    guess = f"farthest-first, for a guess of {counted(model.n_clusters, 'cluster')}"
    report(
        {
            "data": f"{table.name}, {columns_in_short(table.titles)}",
            "n": n,
            "d": d,
            "lam": f"{model.lam_:.8g} ({guess if args.lam is None else 'given'})",
            "K": model.n_clusters_,
            "sweeps": model.n_iter_,
            "objective": f"{model.objective_:.10g} (SSE + lam K)",
            "SSE": f"{model.inertia_:.10g}",
            "sizes": in_short(np.sort(np.bincount(model.labels_))[::-1], "points"),
            "seconds": f"{reading:.3f} reading, {fitting:.3f} fitting",
            "labels": args.out,
            "picture": args.plot,
        }
    )


def features(argv):
    """Find features that the rows of a table share, with BP-means or K-features.

    Parameters
    ----------
    argv : list of str
        The arguments that follow the name of the command.
    """
    parser = new_parser(
        prog="smallvar features",
        usage="smallvar features [DATA] [--lam L | --n-components K | --path [K]]\n"
        f"{' ' * len('usage: smallvar features ')}[options]",
        description="""
            Find features that the rows of a table share: each row is about the sum of those it
            has, any number of them. BP-means finds the number of features K by itself; it
            minimizes ||X - Z A||^2 + lam K, the squared error of the rows X as sums of the
            features A by the 0s and 1s of Z, plus a penalty lam for every feature.""",
        examples="""
            smallvar features measurements.csv --path --plot errors.png
            smallvar features measurements.csv --lam 250 --out assignments.csv
            smallvar features faces.npy --n-components 6 --shape 19x19 --plot faces.png""",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--lam",
        type=number(float, 0),
        metavar="L",
        help="the penalty per feature, in squared data units: a feature has to lower the squared "
        "error by more than L, so a smaller L gives more features (default: derived from the "
        "data by a guess of 8 features)",
    )
    kind.add_argument(
        "--n-components",
        type=number(int, 1),
        metavar="K",
        help="exactly K features, without a penalty (K-features)",
    )
    kind.add_argument(
        "--path",
        type=length_or_data,
        nargs="?",
        const=PATH,
        metavar="K",
        help="print the squared error with 0, 1, ..., K features (K is 10 if left out) and the "
        "lam for which each number is best; the best for the widest range is marked",
    )
    parser.add_argument(
        "--algorithm",
        choices=["sweep", "collapsed", "stepwise"],
        help="how to minimize with a penalty. sweep (default): row after row chooses its "
        "features, and opens one if it is off by more than lam; collapsed: the features move "
        "with every row, slower but less often stuck; stepwise: K-features for 0, 1, 2, ... "
        "features until the objective rises",
    )
    parser.add_argument(
        "--assign",
        choices=["coordinate", "exact"],
        help="with --n-components or --path, how a row chooses its features. coordinate "
        "(default): one after the other; exact: the best of all 2^K sets, for K up to 12",
    )
    parser.add_argument(
        "--starts",
        type=number(int, 1),
        default=100,
        metavar="N",
        help="random starts, of which the best is kept (default: 100, for they are cheap: 50 to "
        "1000 microseconds each on small data; lower it for large data)",
    )
    parser.add_argument(
        "--swaps",
        type=number(int, 0),
        default=0,
        metavar="N",
        help="after each start, try N times to put a random feature elsewhere (with a penalty also "
        "to drop or to add one); often worth more than as many starts (default: 0)",
    )
    parser.add_argument(
        "--max-features",
        type=number(int, 1),
        metavar="M",
        help="with a penalty, never make more than M features",
    )
    parser.add_argument(
        "--components",
        metavar="FILE",
        help="write the features, one per row under the titles of the columns, as .csv",
    )
    parser.add_argument(
        "--shape",
        type=height_and_width,
        metavar="HxW",
        help="the rows are pictures of H x W pixels, line by line: --plot draws the features as "
        "pictures, too",
    )
    args = parse(
        parser,
        argv,
        out="write which row has which feature: a column of 0s and 1s per feature, as .csv",
        seed="draw the random starts from S (default: 0, so that the same command gives the "
        "same result)",
    )
    if isinstance(args.path, str):
        if args.data is not None:
            raise UserError(f"argument --path: must be an integer >= 1, got {args.path!r}")
        args.data, args.path = args.path, PATH
    refuse_misplaced(args)
    check_targets(args)

    table, reading = load(args, parser.prog)
    if args.data is None and args.columns is None and args.shape is None:
        args.shape = DIGITS_SHAPE
    if args.shape is not None and args.shape[0] * args.shape[1] != table.X.shape[1]:
        height, width = args.shape
        raise UserError(
            f"--shape {height}x{width} is for {counted(height * width, 'column')}, but "
            f"{table.name} has {columns_in_short(table.titles)}"
        )
    options = {
        "n_init": args.starts,
        "n_swaps": args.swaps,
        "random_state": 0 if args.seed is None else args.seed,
        "n_threads": args.threads,
        "verbose": int(args.verbose),
    }
    if args.assign is not None:
        options["assign"] = args.assign
    if args.path is not None:
        show_path(args, options, table, reading)
    else:
        show_features(args, options, table, reading)


def refuse_misplaced(args):
    """Refuse options of `features` that mean nothing beside the others given."""
    if args.path is not None:
        kind, others = "--path", ["algorithm", "max_features", "out", "components", "shape"]
    elif args.n_components is not None:
        kind, others = "--n-components", ["algorithm", "max_features"]
    else:
        kind, others = "a penalty", ["assign"]
    for option in others:
        if getattr(args, option) is not None:
            raise UserError(f"--{option.replace('_', '-')} has no meaning with {kind}")
    if args.shape is not None and args.plot is None:
        raise UserError("--shape has no meaning without --plot")


def show_features(args, options, table, reading):
    """Fit BP-means or K-features, write what is asked for, and report.

    Parameters
    ----------
    args : argparse.Namespace
        What the user asked for.
    options : dict
        Parameters that both estimators take.
    table : Table
        The data.
    reading : float
        The seconds it took to read them.
    """
    from smallvar import BPMeans, KFeatures

    n, d = table.X.shape
    if args.n_components is not None:
        model = KFeatures(args.n_components, **options)
        origin = lam = None
    else:
        given = {
            "lam": args.lam,
            "max_features": args.max_features,
            "algorithm": args.algorithm,
        }
        given = {option: value for option, value in given.items() if value is not None}
        model = BPMeans(**given, **options)
        model.set_params(n_components=min(model.n_components, n))
        guess = f"farthest-first, for a guess of {counted(model.n_components, 'feature')}"
        origin = guess if args.lam is None else "given"
    _, fitting = timed(model.fit, table.X)
    if origin is not None:
        lam = f"{model.lam_:.8g} ({origin})"

    if args.out is not None:
        with replacing(args.out) as file:
            write_assignments(file, model.assignments_)
    if args.components is not None:
        with replacing(args.components) as file:
            write_components(file, table.titles, model.components_)
    if args.plot is not None:
        save(args.plot, feature_picture(table, model, args.shape))

    error, energy = model.reconstruction_err_**2, square_of(table.X)
    users = model.assignments_.sum(axis=0)
    owned = np.bincount(model.assignments_.sum(axis=1))
    having = [f"{rows:,} with {k}" for k, rows in enumerate(owned) if rows]
    report(
        {
            "data": f"{table.name}, {columns_in_short(table.titles)}",
            "n": n,
            "d": d,
            "lam": lam,
            "K": f"{model.n_components_}{' (given)' if lam is None else ''}",
            "starts": starts_in_words(args),
            "sweeps": model.n_iter_,
            "objective": None if lam is None else f"{model.objective_:.10g} (error + lam K)",
            "error": f"{error:.10g} ({explained(error, energy)} of ||X||^2 explained)",
            "users": in_short(users, "rows") if len(users) else None,
            "rows": f"{', '.join(having)} {'feature' if len(owned) == 2 else 'features'}",
            "seconds": f"{reading:.3f} reading, {fitting:.3f} fitting",
            "assignments": args.out,
            "components": args.components,
            "picture": args.plot,
        }
    )


def show_path(args, options, table, reading):
    """Print, and draw where asked for, the squared error over the number of features.

    Parameters
    ----------
    args, options, table, reading
        As for `show_features`.
    """
    from smallvar import feature_path
    from smallvar._bpmeans import EXACT_LIMIT

    n, d = table.X.shape
    if args.assign == "exact" and min(args.path, n) > EXACT_LIMIT:
        raise UserError(f"--path {args.path}: at most {EXACT_LIMIT} with --assign exact")
    path, fitting = timed(feature_path, table.X, args.path, **options)
    path = without_rounding(path)
    best = widest(path)
    if args.plot is not None:
        save(args.plot, path_picture(table, path, best))
    say(path_in_words(path, best))
    if best is None:
        verdict = "none"
    else:
        low, high = path.lam_low[best], path.lam_high[best]
        if low == 0:
            verdict = f"K = {best}, without error, for lam up to {high:.8g}"
        else:
            verdict = f"K = {best}, for lam from {low:.8g} to {high:.8g}: times {high / low:.4g}"
    report(
        {
            "data": f"{table.name}, {columns_in_short(table.titles)}",
            "n": n,
            "d": d,
            "starts": starts_in_words(args),
            "widest": verdict,
            "seconds": f"{reading:.3f} reading, {fitting:.3f} fitting",
            "picture": args.plot,
        }
    )


COMMANDS = {"cluster": cluster, "features": features}
DEFAULT_COMMAND = "cluster"


def main(argv=None):
    """Run the command line.

    Parameters
    ----------
    argv : list of str, optional
        The arguments, by default those of the process.

    Returns
    -------
    code : int
        The exit code: 0, or 2 for a mistake of the user's, 130 after Ctrl-C, 141 when the
        reader of the output has gone away.
    """
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] not in COMMANDS:
        argv = [DEFAULT_COMMAND, *argv]
    try:
        # --help and its like end as SystemExit, errors as UserError.
        with suppress(SystemExit), warnings.catch_warnings():
            warnings.showwarning = lambda warning, *_: complain("warning:", warning)
            COMMANDS[argv[0]](argv[1:])
        sys.stdout.flush()
    except UserError as error:
        complain(error)
        return 2
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except BrokenPipeError:
        # What is still buffered goes nowhere, rather than failing once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


# ---------------------------------------------------------------------------------------
# Arguments


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


def parse(parser, argv, out, seed):
    """Add the arguments that all commands share, and parse.

    Parameters
    ----------
    parser : Parser
        With the arguments of one command.
    argv : list of str
        The arguments given.
    out, seed : str
        What ``--out`` and ``--seed`` mean for this command.

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
        "row without any number is the header. Without DATA, a data set that scikit-learn "
        "ships is used",
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
    parser.add_argument("--verbose", action="store_true", help="print a line for every sweep")
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


def number(kind, least):
    """Make the converter of an argument to an int or a float with a lower bound."""

    def convert(text):
        try:
            value = kind(text)
        except ValueError:
            value = float("nan")
        if not value >= least:
            noun = "an integer" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"must be {noun} >= {least}, got {text!r}")
        if kind is int and value > sys.maxsize:
            raise argparse.ArgumentTypeError(f"must be <= {sys.maxsize}, got {text!r}")
        return value

    return convert


def length_or_data(text):
    """Convert the argument of ``--path``: K, or where there is none the DATA that follow."""
    try:
        float(text)
    except ValueError:
        return text
    return number(int, 1)(text)


def height_and_width(text):
    """Convert the argument of ``--shape``."""
    height, _, width = text.lower().partition("x")
    if not all(side.isascii() and side.isdigit() and int(side) for side in (height, width)):
        raise argparse.ArgumentTypeError(f"must be of the form 14x14, got {text!r}")
    return int(height), int(width)


# ---------------------------------------------------------------------------------------
# Reading


def load(args, prog):
    """Read the data, or the set used when none are given.

    Parameters
    ----------
    args : argparse.Namespace
        What the user asked for.
    prog : str
        What to type for the command.

    Returns
    -------
    table : Table
        At least one row and one column, all values finite.
    seconds : float
        How long it took.
    """
    begin = perf_counter()
    if args.data is not None:
        return read_table(args.data, args.columns), perf_counter() - begin

    from sklearn.datasets import load_digits

    begin = perf_counter()
    digits = load_digits()
    picked, titles = pick_columns("the set of digits", args.columns, digits.feature_names, 64)
    say(
        "No DATA given, so these are the handwritten digits that scikit-learn ships.\n"
        f"Your own: {prog} FILE (.csv, .tsv, .npy or .parquet); all options: {prog} --help\n"
    )
    return Table(digits.data[:, picked], titles, "handwritten digits"), perf_counter() - begin


# ---------------------------------------------------------------------------------------
# Fitting and writing


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


def write_labels(file, labels):
    """Write labels as a csv file of one column."""
    file.write(b"label\n")
    for start in range(0, len(labels), 100_000):
        lines = "\n".join(map(str, labels[start : start + 100_000].tolist()))
        file.write(f"{lines}\n".encode())


def write_assignments(file, assignments):
    """Write Z as a csv file of one column per feature."""
    k = assignments.shape[1]
    file.write((",".join(f"feature_{i}" for i in range(k)) + "\n").encode())
    for start in range(0, len(assignments), 100_000):
        rows = assignments[start : start + 100_000]
        lines = np.full((len(rows), max(2 * k, 1)), ord(","), dtype=np.uint8)
        lines[:, :-1:2] = rows + ord("0")
        lines[:, -1] = ord("\n")
        file.write(lines.tobytes())


def write_components(file, titles, components):
    """Write features as a csv file of one row each, so that they read back exactly."""
    text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(titles)
    writer.writerows(components.tolist())
    text.detach()  # flushes, and leaves the file open


def save(path, figure):
    """Write a picture in the format that its name ends in."""
    with replacing(path) as file:
        figure.savefig(file, format=suffix_of(path)[1:])


def square_of(X):
    """Sum the squares of a table, whatever its type, a block at a time."""
    step = max(1, 2**20 // X.shape[1])
    blocks = (np.asarray(X[i : i + step], dtype=np.float64) for i in range(0, len(X), step))
    return float(sum(np.square(block).sum() for block in blocks))


def without_rounding(path):
    """Make errors that are only rounding 0, of which the first K is best for the least lam."""
    exact = path.error <= EXACT_FIT * path.error[0]
    low, high = path.lam_low.copy(), path.lam_high.copy()
    if exact.any():
        first = np.argmax(exact)
        low[first] = 0.0
        low[first + 1 :] = high[first + 1 :] = np.nan
    return type(path)(
        n_components=path.n_components,
        error=np.where(exact, 0.0, path.error),
        lam_low=low,
        lam_high=high,
    )


def widest(path):
    """Find the number of features that is best for the widest range of penalties.

    Parameters
    ----------
    path : Bunch
        From `without_rounding`.

    Returns
    -------
    best : int or None
        The K with the largest ``log(lam_high / lam_low)``. It is not 0, whose range has no upper
        end, nor the last, whose lower end only tells where the path ends. A K without error,
        best for every small lam, comes first.
    """
    counts = np.isfinite(path.lam_high) & ((path.lam_low > 0) | (path.error == 0))
    if not counts.any():
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        width = np.log(path.lam_high / path.lam_low)
    return int(np.argmax(np.where(counts, width, -1.0)))


# ---------------------------------------------------------------------------------------
# Drawing


def import_matplotlib():
    """Import what is drawn with, or say how to get it."""
    try:
        from matplotlib.colors import hsv_to_rgb, to_rgb
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError('--plot needs matplotlib: pip install "smallvar[plot]"') from error
    return Figure, to_rgb, hsv_to_rgb


def picture(table, model):
    """Draw the clusters in two dimensions.

    Parameters
    ----------
    table : Table
        The data. More than two columns are projected on their first two principal
        components; a single one is stacked up like a histogram.
    model : DPMeans
        Fitted to these data.

    Returns
    -------
    figure : matplotlib.figure.Figure
        Made without pyplot: no display and no global state is touched.
    """
    Figure = import_matplotlib()[0]
    (n, d), k = table.X.shape, model.n_clusters_
    rng = np.random.default_rng(0)
    size = min(n, POINTS_DRAWN, max(1000, VALUES_DRAWN // d))
    drawn = slice(n) if size == n else np.sort(rng.choice(n, size, replace=False))
    labels = model.labels_[drawn]
    points = table.X[drawn].astype(np.float64)
    points, centers, axis_titles = project(points, model.cluster_centers_, table.titles)
    colors = cluster_colors(k)

    figure = Figure(figsize=(8, 6.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    order = rng.permutation(len(points))  # so that no cluster is drawn over all others
    axes.scatter(
        *points[order].T,
        s=float(np.clip(40_000 / len(points), 2, 30)),
        color=colors[labels[order]],
        alpha=0.7,
        linewidths=0,
        rasterized=True,
    )
    numbered = k <= 40
    axes.scatter(
        *centers.T,
        s=130 if numbered else 22,
        marker="o",
        color="white" if numbered else colors,
        edgecolors="black",
        linewidths=0.9,
        zorder=3,
    )
    if numbered:
        for label, (x, y) in enumerate(centers):
            axes.text(x, y, label, size=7, ha="center", va="center_baseline", zorder=4)
    width, height = np.ptp(points, axis=0)
    flat = min(width, height) < 1e-9 * max(width, height)  # what is left there is rounding
    if d > 1 and (flat or 1 / 3 < (height or 1) / (width or 1) < 3):
        axes.set_aspect("equal", adjustable="datalim")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(axis_titles[0], parse_math=False)
    axes.set_ylabel(axis_titles[1], parse_math=False)
    some = f", {size:,} of them drawn" if size < n else ""
    marks = "numbered by label" if numbered else "as ringed dots"
    axes.set_title(
        f"{table.name}: n = {n:,}{some}\nK = {k:,}, lam = {model.lam_:.6g}; centers {marks}",
        size=11,
        parse_math=False,
    )
    return figure


def project(points, centers, titles):
    """Find coordinates in two dimensions.

    Parameters
    ----------
    points, centers : ndarray of shape (n, d) and (k, d)
        The data and the centers.
    titles : list of str
        What to call the columns.

    Returns
    -------
    points, centers : ndarray of shape (n, 2) and (k, 2)
        Their coordinates in the picture.
    axis_titles : list of str
        What the two axes show.
    """
    axis_titles = [f"column {title}" if title.isdigit() else title for title in titles]
    if len(titles) == 1:
        x = points[:, 0]
        bins = np.linspace(x.min(), x.max(), 81)[1:-1].searchsorted(x)
        order = np.argsort(bins, kind="stable")
        stacked = np.empty(len(x))  # the place of each point within its bin, from 1
        stacked[order] = np.arange(1, len(x) + 1) - bins[order].searchsorted(bins[order])
        return (
            np.column_stack([x, stacked]),
            np.column_stack([centers[:, 0], np.full(len(centers), -0.04 * stacked.max())]),
            [*axis_titles, "points per bin"],
        )
    if len(titles) == 2:
        return points, centers, axis_titles

    from sklearn.decomposition import PCA

    if len(points) == 1:  # no directions to be had from one point
        return points[:, :2], centers[:, :2], axis_titles[:2]
    origin = points.mean(axis=0)  # far from zero, squares would cancel
    points = points - origin
    pca = PCA(n_components=2, random_state=0)
    with np.errstate(invalid="ignore"):  # 0 / 0 where all points are one
        points = pca.fit_transform(points)
    axis_titles = [
        f"principal component {i + 1} ({share:.0%} of the variance)"
        for i, share in enumerate(np.nan_to_num(pca.explained_variance_ratio_))
    ]
    return points, pca.transform(centers - origin), axis_titles


def cluster_colors(k):
    """Choose one color per cluster, neighbors in number far apart in hue."""
    _, to_rgb, hsv_to_rgb = import_matplotlib()
    if k <= 10:
        palette = "#4477aa #ee6677 #228833 #ccbb44 #66ccee #aa3377 #ff8c1a #44bb99 #7755cc #8c564b"
        return np.array([to_rgb(color) for color in palette.split()[:k]])
    i = np.arange(k)
    hue = i * 0.6180339887498949 % 1  # multiples of the golden ratio never crowd
    saturation = np.take([0.85, 0.55, 0.95], i % 3)
    value = np.take([0.8, 0.7, 0.55], i % 3)
    return hsv_to_rgb(np.column_stack([hue, saturation, value]))


def feature_picture(table, model, shape):
    """Draw the features, and which rows have them.

    Parameters
    ----------
    table : Table
        The data.
    model : BPMeans or KFeatures
        Fitted to these data.
    shape : tuple of int or None
        Height and width of the pictures that the rows are, if they are.

    Returns
    -------
    figure : matplotlib.figure.Figure
        On the left one panel for each feature, a picture or values over the columns, all to the
        same scale; on the right the matrix of assignments, its rows sorted.
    """
    Figure = import_matplotlib()[0]
    (n, d), k = table.X.shape, model.n_components_
    users = model.assignments_.sum(axis=0)
    drawn = np.arange(k)
    if k > FEATURES_DRAWN:
        drawn = np.sort(np.argsort(-users, kind="stable")[:FEATURES_DRAWN])
    figure = Figure(figsize=(11, 6.5), dpi=150, layout="constrained")
    penalty = f", lam = {model.lam_:.6g}" if hasattr(model, "lam_") else ""
    some = f", the {FEATURES_DRAWN} with the most rows drawn" if len(drawn) < k else ""
    share = explained(model.reconstruction_err_**2, square_of(table.X))
    figure.suptitle(
        f"{table.name}: n = {n:,}, d = {d:,}\n"
        f"K = {k:,}{some}{penalty}; {share} of the sum of squares explained",
        size=11,
        parse_math=False,
    )
    if k == 0:
        figure.text(0.5, 0.45, "no features", ha="center", color="gray")
        return figure
    left, right = figure.subfigures(1, 2, width_ratios=[1, min(0.6, 0.25 + 0.02 * k)])
    panels = panels_of(left, len(drawn), shape[0] / shape[1] if shape else 0.5)
    size = 9 if len(drawn) <= 12 else 7
    for axes, i in zip(panels, drawn, strict=True):
        axes.set_title(f"{i}: {counted(users[i], 'row')}", size=size, pad=3)
    if shape is None:
        draw_over_columns(left, panels, model.components_[drawn], table.titles, size)
    else:
        draw_as_pictures(left, panels, model.components_[drawn].reshape(-1, *shape))
    draw_assignments(right.add_subplot(), model.assignments_[:, drawn], drawn)
    return figure


def panels_of(figure, count, ratio):
    """Divide a figure into panels.

    Parameters
    ----------
    figure : SubFigure
        The left part of a `feature_picture`.
    count : int
        How many panels to make.
    ratio : float
        Their height for a width of 1, roughly.

    Returns
    -------
    panels : list of Axes
        Row by row, in as many columns as make them largest.
    """

    def width_of_panel(columns):
        return min(1.25 / columns, 1 / (-(-count // columns) * (ratio + 0.15)))

    columns = max(range(1, count + 1), key=width_of_panel)
    grid = figure.subplots(-(-count // columns), columns, squeeze=False).ravel()
    for axes in grid[count:]:
        axes.remove()
    return list(grid[:count])


def draw_over_columns(figure, panels, components, titles, size):
    """Draw each feature as bars, or where there are many columns as a line."""
    d, position = len(titles), np.arange(1, len(titles) + 1)
    low, high = min(components.min(), 0.0), max(components.max(), 0.0)
    margin = 0.06 * (high - low) or 1.0
    columns = panels[0].get_subplotspec().get_gridspec().ncols
    step = max(1, d * columns // 55)  # between two titles that do not touch
    shown = [title if len(title) <= 18 else f"{title[:15]}..." for title in titles[::step]]
    upright = max(map(len, shown)) * columns * len(shown) > 90
    for i, (axes, component) in enumerate(zip(panels, components, strict=True)):
        axes.axhline(0, color="black", linewidth=0.6)
        axes.set_xlim(0.4, d + 0.6)
        axes.set_ylim(low - margin, high + margin)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=size - 1, labelleft=i % columns == 0, labelbottom=False)
        last = i + columns >= len(panels)
        if d > BARS:
            axes.plot(position, component, color="#4477aa", linewidth=0.8)
            axes.tick_params(labelbottom=last)
            continue
        axes.bar(position, component, color="#4477aa", width=0.8)
        axes.set_xticks(position[::step])
        for x, title in zip(position[::step], shown, strict=True) if last else ():
            text = axes.annotate(
                title,
                (x, 0),
                xycoords=axes.get_xaxis_transform(),
                xytext=(0, -5),
                textcoords="offset points",
                ha="center",
                va="top",
                size=size - 1,
                rotation=90 if upright else 0,
                parse_math=False,
            )
            # Beside the last row, the titles hang where there is no panel anyway.
            text.set_in_layout(i // columns == (len(panels) - 1) // columns)
    if d > BARS:
        figure.supxlabel("column", size=size)


def draw_as_pictures(figure, panels, pictures):
    """Draw each feature as a picture: gray where hardly any value is below 0, else red and blue."""
    high, low = np.abs(pictures).max() or 1.0, min(pictures.min(), 0.0)
    colors = "gray_r"
    if low < -0.05 * high:
        colors, low = "RdBu_r", -high
    for axes, pixels in zip(panels, pictures, strict=True):
        image = axes.imshow(pixels, cmap=colors, vmin=low, vmax=high)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_color("lightgray")
    bar = figure.colorbar(image, ax=panels, location="bottom", shrink=0.6, aspect=40)
    bar.ax.tick_params(labelsize=8)


def draw_assignments(axes, assignments, numbers):
    """Draw the matrix of assignments, the rows that have the first feature at the top."""
    n, k = assignments.shape
    keys = np.packbits(np.ascontiguousarray(assignments, dtype=bool), axis=1)  # sort like the rows
    order = np.argsort(keys.view(f"S{keys.shape[1]}").ravel(), kind="stable")[::-1]
    bounds = np.linspace(0, n, min(n, ROWS_DRAWN) + 1).astype(int)  # of many rows, draw averages
    shares = np.add.reduceat(assignments[order], bounds[:-1]) / np.diff(bounds)[:, np.newaxis]
    axes.imshow(
        shares,
        cmap="Blues",
        vmin=0,
        vmax=1.25,
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5, k - 0.5, n, 0),
    )
    for i in range(1, k):
        axes.axvline(i - 0.5, color="white", linewidth=1)
    step = -(-k * len(str(numbers[-1])) // 45)  # between two numbers that do not touch
    axes.set_xticks(np.arange(0, k, step), numbers[::step], size=8)
    axes.tick_params(axis="y", labelsize=8)
    axes.set_xlabel("feature", size=9)
    axes.set_ylabel("rows, sorted by their features", size=9)
    axes.set_title("which row has which feature", size=9)


def path_picture(table, path, best):
    """Draw the squared error over the number of features.

    Parameters
    ----------
    table : Table
        The data.
    path : Bunch
        From `without_rounding`.
    best : int or None
        The K to mark.

    Returns
    -------
    figure : matplotlib.figure.Figure
        On a log scale unless there is a K without error.
    """
    Figure = import_matplotlib()[0]
    from matplotlib.ticker import LogFormatter

    (n, d), counts = table.X.shape, path.n_components
    figure = Figure(figsize=(8, 5.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(counts, path.error, color="#4477aa", linewidth=1.2, zorder=1)
    chosen = ~np.isnan(path.lam_low)
    axes.scatter(
        counts[chosen], path.error[chosen], s=36, color="#4477aa", label="best for some lam"
    )
    if not chosen.all():
        axes.scatter(
            counts[~chosen],
            path.error[~chosen],
            s=36,
            facecolors="white",
            edgecolors="#4477aa",
            label="best for no lam",
        )
    if best is not None:
        axes.scatter(
            best,
            path.error[best],
            s=150,
            facecolors="none",
            edgecolors="#ee6677",
            linewidths=2,
            label=f"K = {best}: best for the widest range of lam",
        )
    if path.error.all():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(LogFormatter())
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", which="both", color="#eeeeee", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("K, number of features")
    axes.set_ylabel("squared error")
    axes.legend(frameon=False)
    axes.set_title(f"{table.name}: n = {n:,}, d = {d:,}", size=11, parse_math=False)
    return figure


# ---------------------------------------------------------------------------------------
# Words


def in_short(counts, noun):
    """List at most twelve counts, and of the others the noun and the range."""
    if len(counts) <= 13:
        return ", ".join(map(str, counts))
    first, rest = ", ".join(map(str, counts[:12])), counts[12:]
    return f"{first} and {len(rest):,} more of {max(rest)} to {min(rest)} {noun}"


def starts_in_words(args):
    """Say how many starts there were."""
    each = " for each K" if args.path is not None or args.algorithm == "stepwise" else ""
    swaps = f", each with {counted(args.swaps, 'swap')}" if args.swaps else ""
    return f"{args.starts:,}{each}{swaps}"


def explained(error, energy):
    """Say which share of the square of the data is explained."""
    return f"{max(0.0, 1 - error / energy) if energy else 1:.1%}"


def path_in_words(path, best):
    """Print a path as a table.

    Parameters
    ----------
    path : Bunch
        From `without_rounding`.
    best : int or None
        The K to mark.

    Returns
    -------
    text : str
        A row for each K, and what the mark means.
    """
    lines = [
        f"{'K':>4}  {'squared error':>14}  {'explained':>9}  {'best for lam from':>17}  {'to':>14}"
    ]
    for k, error, low, high in zip(*path.values(), strict=True):
        lam = f"{'-':>17}  {'-':>14}" if np.isnan(low) else f"{low:>17.8g}  {high:>14.8g}"
        mark = "  *" if k == best else ""
        share = explained(error, path.error[0])
        lines.append(f"{k:>4}  {error:>14.8g}  {share:>9}  {lam}{mark}")
    if best is not None:
        lines.append("   * best for the widest range of lam")
    return "\n".join([*lines, ""])


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


if __name__ == "__main__":
    sys.exit(main())
