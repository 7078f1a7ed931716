"""The command line: ``smallvar`` and ``python -m smallvar``.

Each command is one function of its own arguments, entered in ``COMMANDS``; a command line
that begins with none of their names goes to ``DEFAULT_COMMAND``. Whatever is the user's to
put right is raised as `UserError` and ends in one line and exit code 2.
"""

import argparse
import csv
import os
import shutil
import sys
import tempfile
import textwrap
import warnings
from array import array
from contextlib import contextmanager, suppress
from itertools import chain, islice
from operator import itemgetter
from time import perf_counter
from typing import NamedTuple

import numpy as np

from smallvar._version import __version__

MISSING = frozenset(["", "?", "-", "na", "n/a", "#n/a", "nan", "null", "none"])
PICTURE_FORMATS = (".png", ".pdf", ".svg")
POINTS_DRAWN, VALUES_DRAWN = 50_000, 20_000_000


class UserError(Exception):
    """Something only the user can put right: told in one line, without a traceback."""


class Table(NamedTuple):
    """The numbers to cluster, the titles of their columns, and what to call the whole."""

    X: np.ndarray
    titles: list[str]
    name: str


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
    args = parse(parser, argv)

    from smallvar import DPMeans

    table, reading = load(args)
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
    fitting = fit(model, table.X)

    if args.out is not None:
        with replacing(args.out) as file:
            write_labels(file, model.labels_)
    if args.plot is not None:
        with replacing(args.plot) as file:
            picture(table, model).savefig(file, format=suffix_of(args.plot)[1:])

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
            "sizes": sizes_in_short(np.bincount(model.labels_)),
            "seconds": f"{reading:.3f} reading, {fitting:.3f} fitting",
            "labels": args.out,
            "picture": args.plot,
        }
    )


COMMANDS = {"cluster": cluster}
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
        raise UserError(f"{message} (see smallvar --help)")


class ShowConfig(argparse.Action):
    """Print how smallvar was built and leave."""

    def __call__(self, parser, namespace, values, option_string=None):
        """Print and leave."""
        from smallvar import show_config

        show_config()
        parser.exit()


def new_parser(usage, description, examples):
    """Start the parser of a command, which then adds the arguments of its own.

    Parameters
    ----------
    usage, description, examples : str
        What ``--help`` shows around the options.

    Returns
    -------
    parser : Parser
        For `parse`.
    """
    examples = textwrap.indent(textwrap.dedent(examples).strip(), "  ")
    return Parser(
        prog="smallvar",
        usage=usage,
        description=textwrap.fill(" ".join(description.split()), 80),
        epilog=f"examples:\n{examples}\n\n"
        f"commands: {', '.join(COMMANDS)} (default: {DEFAULT_COMMAND})",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def parse(parser, argv):
    """Add the arguments that all commands share, parse, and try what must not fail later.

    Parameters
    ----------
    parser : Parser
        With the arguments of one command.
    argv : list of str
        The arguments given.

    Returns
    -------
    args : argparse.Namespace
        The files it names can be written, and if there is to be a picture, it can be drawn.
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
    parser.add_argument(
        "--out", metavar="FILE", help="write the labels, 0 to K - 1, one per row, as .csv"
    )
    parser.add_argument(
        "--plot", metavar="FILE", help="draw the result as a .png, .pdf or .svg picture"
    )
    parser.add_argument(
        "--threads", type=number(int, 1), metavar="N", help="threads to use (default: all cores)"
    )
    parser.add_argument(
        "--seed",
        type=number(int, 0),
        metavar="S",
        help="visit the points in a random order drawn from S (default: in the order given)",
    )
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
    args = parser.parse_args(argv)
    check_target("--out", args.out, args.data)
    check_target("--plot", args.plot, args.data)
    if args.plot is not None:
        if not args.plot.lower().endswith(PICTURE_FORMATS):
            raise UserError(f"--plot {args.plot}: the name must end in {one_of(PICTURE_FORMATS)}")
        if args.out is not None and os.path.realpath(args.plot) == os.path.realpath(args.out):
            raise UserError(f"--out and --plot both name {args.out}")
        import_matplotlib()
    return args


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
        return value

    return convert


# ---------------------------------------------------------------------------------------
# Reading


def load(args):
    """Read the data, or the set used when none are given.

    Parameters
    ----------
    args : argparse.Namespace
        What the user asked for.

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
        "Your own: smallvar FILE (.csv, .tsv, .npy or .parquet); all options: smallvar --help\n"
    )
    return Table(digits.data[:, picked], titles, "handwritten digits"), perf_counter() - begin


def read_table(path, columns):
    """Read a table from a file and make sure that it can be clustered."""
    readers = {".csv": read_text, ".tsv": read_text, ".npy": read_npy, ".parquet": read_parquet}
    suffix = suffix_of(path)
    try:
        size = os.stat(path).st_size
        if os.path.isdir(path):
            raise UserError(f"{path} is a directory")
        if suffix not in readers:
            raise UserError(f"{path}: the name must end in {one_of(readers)}")
        if size == 0:
            raise UserError(f"{path} is empty")
        X, titles = readers[suffix](path, columns)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise UserError(f"cannot read {path}: not enough memory") from error
    # A name is bytes on some systems; what is not text in it becomes an escape.
    name = os.path.basename(path).encode(errors="backslashreplace").decode()
    return Table(X, titles, name)


def read_text(path, columns):
    """Read a .csv or .tsv file."""
    records = text_records(path)
    first_line, first = next(records, (0, []))
    if not first:
        raise UserError(f"{path} is empty")
    d = len(first)
    header = is_header(first)
    names = [name.strip() for name in first] if header else None
    if header and columns is None and "" in names:
        raise UserError(
            f"{path}: column {names.index('') + 1} has no name in the header; if it only numbers "
            "the rows, leave it out with --columns"
        )
    if not header:
        records = chain([(first_line, first)], records)
    picked, titles = pick_columns(path, columns, names, d)
    # A slice for a single column: itemgetter(0) would return a cell, not a row of one cell.
    pick = itemgetter(*picked) if len(picked) > 1 else itemgetter(slice(picked[0], picked[0] + 1))
    values = array("d")  # grows in place: the numbers are never held twice
    for line, cells in records:
        if len(cells) != d:
            raise UserError(
                f"{path}, line {line}: {counted(len(cells), 'cell')}, but {d} in line {first_line}"
            )
        try:
            values.extend(map(float, pick(cells)))
        except ValueError:
            in_first_row = len(values) < len(picked)
            complaint = explain_cells(titles, pick(cells), in_first_row)
            raise UserError(f"{path}, line {line}{complaint}") from None
    if not values:
        raise UserError(f"{path} has a header but no rows")
    X = np.frombuffer(values).reshape(-1, len(picked))

    def place(row):
        line, _ = next(islice(text_records(path), row - 1 + header, None))
        return f"line {line}"

    check_values(path, X, titles, place)
    return X, titles


def text_records(path):
    """Yield the line number and the cells of every row that is not blank."""
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        sample = list(islice(file, 20))
        if any("\0" in line for line in sample):
            raise UserError(f"{path} is not a text file in UTF-8")
        file.seek(0)
        width = gap = None
        try:
            delimiter = "\t" if suffix_of(path) == ".tsv" else sniff_delimiter(sample)
            reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True)
            for cells in reader:
                if not cells or (len(cells) == 1 and width != 1 and not cells[0]):
                    if width == 1:  # in a table of one column this may be a missing value
                        gap = gap or reader.line_num
                    continue
                if gap:
                    raise UserError(f"{path}, line {gap}: missing value")
                width = width or len(cells)
                yield reader.line_num, cells
        except csv.Error as error:
            raise UserError(f"{path}: {error}") from error


def sniff_delimiter(lines):
    """Tell tab, semicolon and comma apart; the comma, most likely inside text, comes last."""
    lines = [line for line in lines if line.strip()]
    for delimiter in "\t;,":
        widths = {len(cells) for cells in csv.reader(lines, delimiter=delimiter)}
        if len(widths) == 1 and widths != {1}:
            return delimiter
    return max(",;\t", key=lines[0].count) if lines else ","


def is_header(cells):
    """Tell whether the first row holds names: words only, or pandas' 0, 1, 2, ..."""
    numbered = cells if cells[0].strip() else cells[1:]
    if len(numbered) > 2 and numbered == [str(i) for i in range(len(numbered))]:
        return True
    words = [cell for cell in cells if not is_missing(cell)]
    return bool(words) and not any(map(is_number, words))


def is_number(cell):
    """Tell whether a cell reads as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def is_missing(cell):
    """Tell whether a cell stands for a missing value."""
    return cell.strip().lower() in MISSING


def explain_cells(titles, cells, in_first_row):
    """Say what is wrong with a row of which not every cell is a number."""
    bad = [(title, cell) for title, cell in zip(titles, cells, strict=True) if not is_number(cell)]
    words = [f"{title} ({shortened(cell)})" for title, cell in bad if not is_missing(cell)]
    if in_first_row and words:  # columns of words, rather than a slip in one row
        return not_numeric(words)
    title, cell = bad[0]
    problem = "missing value" if is_missing(cell) else f"{shortened(cell)} is not a number"
    return f", column {title}: {problem}"


def not_numeric(words):
    """Refuse columns that do not hold numbers."""
    more = f" and {len(words) - 5} more" if len(words) > 5 else ""
    noun = "column" if len(words) == 1 else "columns"
    return f": {noun} {', '.join(words[:5])}{more} not numeric; choose others with --columns"


def read_npy(path, columns):
    """Map a .npy file into memory."""
    try:
        X = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, EOFError) as error:
        raise UserError(f"{path}: {error}") from error
    if X.dtype.kind not in "biuf":
        raise UserError(f"{path} holds values of type {X.dtype}, not real numbers")
    if X.ndim != 2:
        raise UserError(f"{path} holds an array of shape {X.shape}, not rows and columns")
    picked, titles = pick_columns(path, columns, None, X.shape[1])
    if columns is not None:
        X = X[:, picked]
    check_values(path, X, titles)
    return X, titles


def read_parquet(path, columns):
    """Read a .parquet file with pandas."""
    try:
        import pandas as pd

        frame = pd.read_parquet(path)
    except ImportError as error:
        raise UserError(
            f"reading {path} needs pandas and pyarrow: pip install pandas pyarrow"
        ) from error
    except ValueError as error:  # what pyarrow raises for a damaged file is one
        raise UserError(f"{path}: {error}") from error
    names = [str(name) for name in frame.columns]
    picked, titles = pick_columns(path, columns, names, len(names))
    frame = frame.iloc[:, picked]
    columns_of_words = [
        f"{title} ({dtype})"
        for title, dtype in zip(titles, frame.dtypes, strict=True)
        if not pd.api.types.is_numeric_dtype(dtype)
    ]
    if columns_of_words:
        raise UserError(f"{path}{not_numeric(columns_of_words)}")
    narrow = all(dtype == np.float32 for dtype in frame.dtypes)
    X = frame.to_numpy(dtype=np.float32 if narrow else np.float64, na_value=np.nan)
    check_values(path, X, titles)
    return X, titles


def pick_columns(source, spec, names, d):
    """Find the columns that ``--columns`` asks for.

    Parameters
    ----------
    source : str
        What the columns are taken from, for error messages.
    spec : str or None
        The value of ``--columns``.
    names : list of str or None
        The names of all columns; without names they go by position, from 1.
    d : int
        How many columns there are.

    Returns
    -------
    picked : list of int
        The positions of the columns, from 0.
    titles : list of str
        What to call them.
    """
    titles = [str(i + 1) for i in range(d)] if names is None else names
    if spec is None:
        return list(range(d)), titles

    def find(title):
        if titles.count(title) != 1:
            count = titles.count(title) or "no"
            noun = "column" if count == "no" else "columns"
            raise UserError(
                f"--columns {spec}: {source} has {count} {noun} {title!r}, but "
                f"{columns_in_short(titles)}"
            )
        return titles.index(title)

    picked = []
    for item in next(csv.reader([spec], skipinitialspace=True)):
        first, colon, last = map(str.strip, item.partition(":"))
        if colon and item.strip() not in titles:
            picked += range(find(first) if first else 0, (find(last) if last else d - 1) + 1)
        else:
            picked.append(find(item.strip()))
    if not picked or len(set(picked)) < len(picked):
        raise UserError(f"--columns {spec}: names {'a column twice' if picked else 'no column'}")
    return picked, [titles[i] for i in picked]


def check_values(path, X, titles, place="row {}".format):
    """Refuse a table without values, or with one that is missing or infinite.

    Parameters
    ----------
    path : str
        The file, for error messages.
    X : ndarray of shape (n, d)
        The numbers.
    titles : list of str
        What to call the columns.
    place : callable
        Turns the number of a row, counted from 1, into words.
    """
    n, d = X.shape
    if X.size == 0:
        raise UserError(f"{path} has no values: {counted(n, 'row')}, {counted(d, 'column')}")
    step = max(1, 2**20 // d)
    for start in range(0, n, step):
        finite = np.isfinite(X[start : start + step])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            what = "missing" if np.isnan(X[start + row, column]) else "infinite"
            where = place(start + row + 1)
            raise UserError(f"{path}, {where}, column {titles[column]}: {what} value")


# ---------------------------------------------------------------------------------------
# Fitting and writing


def fit(model, X):
    """Fit a model and return the seconds it took; what it refuses, the user has to hear."""
    begin = perf_counter()
    try:
        model.fit(X)
    except ValueError as error:
        raise UserError(str(error)) from error
    except MemoryError as error:
        raise UserError("not enough memory to fit") from error
    return perf_counter() - begin


def check_target(option, path, data):
    """Make sure that a file can be written later, without touching what is there.

    Parameters
    ----------
    option : str
        The option that names the file, for error messages.
    path : str or None
        The file; None is no file.
    data : str or None
        The data, which are not to be overwritten.
    """
    if path is None:
        return
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


# ---------------------------------------------------------------------------------------
# Words


def suffix_of(path):
    """Take the suffix of a path in lower case, with its dot."""
    return os.path.splitext(path)[1].lower()


def counted(count, noun):
    """Put a number before a noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def one_of(options):
    """List options with an "or" before the last."""
    *others, last = options
    return f"{', '.join(others)} or {last}"


def shortened(cell):
    """Quote a cell, cut where it is long."""
    cell = cell.strip()
    return repr(cell if len(cell) <= 30 else f"{cell[:27]}...")


def columns_in_short(titles):
    """Say how many columns there are and what they are called."""
    shown = titles if len(titles) <= 6 else [*titles[:4], "...", titles[-1]]
    return f"{counted(len(titles), 'column')}: {', '.join(shown)}"


def sizes_in_short(sizes):
    """List cluster sizes, the largest first and at most twelve."""
    sizes = np.sort(sizes)[::-1]
    if len(sizes) <= 13:
        return ", ".join(map(str, sizes))
    first, rest = ", ".join(map(str, sizes[:12])), sizes[12:]
    return f"{first} and {len(rest):,} more of {rest[0]} to {rest[-1]} points"


def report(facts):
    """Print facts, one per line, those without a value left out."""
    say("\n".join(f"{fact:<11}{value}" for fact, value in facts.items() if value is not None))


def say(text):
    """Print text, with escapes for what the terminal's encoding lacks."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def complain(*words):
    """Print one line on standard error."""
    print("smallvar:", *" ".join(map(str, words)).split(), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
