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

from smallvar._picture import (
    feature_picture,
    import_matplotlib,
    path_picture,
    picture,
    track_picture,
)
from smallvar._table import (
    Table,
    UserError,
    clock_title,
    columns_in_short,
    counted,
    explained,
    moment,
    one_of,
    pick_columns,
    read_table,
    square_of,
    suffix_of,
)
from smallvar._version import __version__

TARGETS = ("out", "components", "tracks", "plot")  # options that name a file to write
PICTURE_FORMATS = (".png", ".pdf", ".svg")
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


def track(argv):
    """Follow clusters over time in a table with D-Means.

    Parameters
    ----------
    argv : list of str
        The arguments that follow the name of the command.
    """
    margin = " " * len("usage: smallvar track ")
    parser = new_parser(
        prog="smallvar track",
        usage="smallvar track [DATA --time COLUMN] [--lam L | --n-clusters K]\n"
        f"{margin}[--t-q T --k-tau K | --q Q --tau TAU] [options]",
        description="""
            Follow clusters that move, disappear and come back, with D-Means. Rows of the same
            time are one step; each step is clustered with a penalty lam for every new
            cluster, as in DP-means, and the clusters of earlier steps that it takes up again
            keep their numbers.""",
        examples="""
            smallvar track radar.csv --time seconds --lam 4 --plot tracks.png
            smallvar track log.parquet --time when --columns x,y --out clusters.csv""",
    )
    parser.add_argument(
        "--time",
        metavar="COLUMN",
        help="the column that holds the time of each row, by name, or where there is no header "
        "by position, from 1: numbers or dates like 2024-01-31T12:00:00, in any order. Only "
        "their order counts, not how far apart they are. The column is left out of the data "
        "unless --columns names it",
    )
    penalty = parser.add_mutually_exclusive_group()
    penalty.add_argument(
        "--lam",
        type=number(float, 0),
        metavar="L",
        help="the penalty per new cluster, in squared data units: a point farther than sqrt(L) "
        "from every center opens a cluster",
    )
    penalty.add_argument(
        "--n-clusters",
        type=number(int, 1),
        metavar="K",
        help="a guess at the number of clusters in the first step, not a bound: lam is then the "
        "squared distance of the K-th of K points of that step picked farthest-first (default: "
        "a guess of 8)",
    )
    parser.add_argument(
        "--t-q",
        type=number(float, 1, strict=True),
        metavar="T",
        help="forget a cluster that was not seen for T steps, inf: never (default: 6.8); goes "
        "with --k-tau",
    )
    parser.add_argument(
        "--k-tau",
        type=number(float, 1),
        metavar="K",
        help="how far a cluster may move: one that lived long is taken up again after one step "
        "up to a squared distance of K lam (default: 1.01)",
    )
    parser.add_argument(
        "--q",
        type=number(float, 0),
        metavar="Q",
        help="with --tau, in place of --t-q and --k-tau: the penalty for each step that a cluster "
        "taken up again was not seen, in squared data units",
    )
    parser.add_argument(
        "--tau",
        type=number(float, 0),
        metavar="TAU",
        help="with --q: how fast the weight of an old center fades",
    )
    parser.add_argument(
        "--starts",
        type=number(int, 1),
        default=3,
        metavar="N",
        help="orders in which the points of each step are visited, the first as given, the "
        "others random; the best result goes on (default: 3)",
    )
    parser.add_argument(
        "--tracks",
        metavar="FILE",
        help="write the centers, a row for each cluster and each step in which it was seen, under "
        "the titles time, cluster and those of the columns, as .csv",
    )
    args = parse(
        parser,
        argv,
        out="write the clusters, numbered from 0 as they appear, one per row of DATA, as .csv",
        seed="draw the random orders from S (default: 0, so that the same command gives the "
        "same result)",
        stand_in="a stream of moving groups is made up",
        lines="step",
    )
    refuse_halves(args)
    check_targets(args)

    from smallvar import DynamicMeans

    table, reading = load(args, parser.prog, moving_groups, " --time COLUMN")
    penalty, guess = first_penalty(args, table)
    given = {
        "lam": penalty,
        "t_q": args.t_q,
        "k_tau": args.k_tau,
        "q": args.q,
        "tau": args.tau,
    }
    model = DynamicMeans(
        **{option: value for option, value in given.items() if value is not None},
        n_init=args.starts,
        random_state=0 if args.seed is None else args.seed,
        n_threads=args.threads,
        verbose=int(args.verbose),
    )
    _, fitting = timed(model.fit, table.X, times=table.times)

    if args.out is not None:
        with replacing(args.out) as file:
            write_labels(file, model.labels_, "cluster")
    if args.tracks is not None:
        with replacing(args.tracks) as file:
            write_tracks(file, table.titles, model)
    if args.plot is not None:
        save(args.plot, track_picture(table, model))

    n, d = table.X.shape
    first, last = model.times_[[0, -1]]
    guess = f"farthest-first in the first step, for a guess of {counted(guess, 'cluster')}"
    born, died, revived = (
        sum(map(len, steps)) for steps in (model.births_, model.deaths_, model.revivals_)
    )
    report(
        {
            "data": f"{table.name}, {columns_in_short(table.titles)}",
            "n": n,
            "d": d,
            "steps": f"{model.n_steps_:,} ({clock_title(table)} from {moment(first)} to "
            f"{moment(last)})",
            "lam": f"{model.lam_:.8g} ({guess if args.lam is None else 'given'})",
            **memory_in_words(args, model),
            "starts": f"{args.starts:,} for each step",
            "clusters": f"{len(model.tracks_):,} ever seen, {model.n_clusters_:,} alive at the end",
            "events": f"{counted(born, 'birth')}, {counted(died, 'death')}, "
            f"{counted(revived, 'revival')}",
            "objective": f"{model.step_objectives_.sum():.10g} (summed over the steps)",
            "seconds": f"{reading:.3f} reading, {fitting:.3f} fitting",
            "labels": args.out,
            "tracks": args.tracks,
            "picture": args.plot,
        }
    )


def first_penalty(args, table):
    """Derive the penalty from the first step where ``--n-clusters`` asks for it.

    Parameters
    ----------
    args : argparse.Namespace
        What the user asked for.
    table : Table
        The data.

    Returns
    -------
    lam : float or None
        The penalty; None for that of the estimator.
    guess : int
        The guess of the number of clusters behind it; 0 where the penalty was given.
    """
    from smallvar import farthest_first_lambda
    from smallvar._dynamic import GUESS

    if args.lam is not None:
        return args.lam, 0
    first = np.flatnonzero(table.times == table.times.min())
    if args.n_clusters is None:
        return None, min(GUESS, len(first))
    if args.n_clusters > len(first):
        raise UserError(
            f"--n-clusters {args.n_clusters}: the first step ({clock_title(table)} = "
            f"{moment(table.times[first[0]])}) has only {counted(len(first), 'row')}"
        )
    lam, _ = timed(farthest_first_lambda, table.X[first], args.n_clusters, n_threads=args.threads)
    return lam, args.n_clusters


def refuse_halves(args):
    """Refuse options of `track` that need others which are not there."""
    pairs = [("t_q", "k_tau"), ("q", "tau")]
    given = [[name for name in pair if getattr(args, name) is not None] for pair in pairs]
    if all(given):
        names = " and ".join(f"--{name[0].replace('_', '-')}" for name in given)
        raise UserError(f"{names} exclude each other: give --t-q and --k-tau, or --q and --tau")
    for pair, names in zip(pairs, given, strict=True):
        if len(names) == 1:
            other = pair[1 - pair.index(names[0])]
            raise UserError(f"--{names[0]} has no meaning without --{other}".replace("_", "-"))
    if args.data is not None and args.time is None:
        raise UserError("--time COLUMN is missing: the column of DATA that holds the times")


COMMANDS = {"cluster": cluster, "features": features, "track": track}
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


def load(args, prog, stand_in=None, needed=""):
    """Read the data, or take those used when none are given.

    Parameters
    ----------
    args : argparse.Namespace
        What the user asked for.
    prog : str
        What to type for the command.
    stand_in : callable, optional
        Takes ``args`` and returns a Table and what it is; by default `digits`.
    needed : str
        What to type after the name of a file.

    Returns
    -------
    table : Table
        At least one row and one column, all values finite.
    seconds : float
        How long it took.
    """
    begin = perf_counter()
    if args.data is not None:
        table = read_table(args.data, args.columns, getattr(args, "time", None))
        return table, perf_counter() - begin

    table, words = (stand_in or digits)(args)
    seconds = perf_counter() - begin
    say(
        f"No DATA given, so these are {words}.\n"
        f"Your own: {prog} FILE{needed} (.csv, .tsv, .npy or .parquet); "
        f"all options: {prog} --help\n"
    )
    return table, seconds


def digits(args):
    """Take the digits of scikit-learn, and say what they are."""
    from sklearn.datasets import load_digits

    data = load_digits()
    picked, titles, _ = pick_columns("the set of digits", args.columns, data.feature_names, 64)
    table = Table(data.data[:, picked], titles, "handwritten digits")
    return table, "the handwritten digits that scikit-learn ships"


def moving_groups(args):
    """Make up a stream of groups that move, and say what it is.

    Parameters
    ----------
    args : argparse.Namespace
        What the user asked for, of which ``columns`` and ``time`` are used.

    Returns
    -------
    table : Table
        Columns x and y and times from 0 to 59, the same every time. Seven groups are there from
        the start; one of them leaves for good, another for a while, and two more appear.
    words : str
        What this is.
    """
    rng = np.random.default_rng(0)
    steps = np.arange(60)
    spans = [(0, 60)] * 5 + [(0, 34), (0, 60), (15, 60), (30, 60)]
    rows = []
    for group, (first, last) in enumerate(spans):
        angle = 2 * np.pi * group / len(spans) + 0.012 * steps
        radius = 10 + 4 * np.sin(0.07 * steps + 2.4 * group)
        path = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
        seen = (steps >= first) & (steps < last)
        if group == 2:
            seen &= (steps < 20) | (steps >= 22)
        for step in steps[seen]:
            direction, distance = rng.uniform(0, 2 * np.pi, 15), np.sqrt(rng.random(15))
            points = np.column_stack([np.cos(direction), np.sin(direction)])
            points = path[step] + distance[:, np.newaxis] * points
            rows.append(np.column_stack([np.full(15, step), points]))
    data = np.concatenate(rows)
    data = data[np.argsort(data[:, 0], kind="stable")]
    names, time = ["time", "x", "y"], args.time or "time"
    picked, titles, clock = pick_columns("the stream", args.columns, names, 3, time)
    table = Table(data[:, picked], titles, "moving groups", data[:, clock], names[clock])
    return table, "groups that move, generated by this program"


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


def write_labels(file, labels, title="label"):
    """Write labels as a csv file of one column."""
    file.write(f"{title}\n".encode())
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


def write_tracks(file, titles, model):
    """Write the centers that clusters had, by time and number, so that they read back exactly."""
    text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["time", "cluster", *titles])
    rows = np.concatenate(list(model.tracks_.values()))
    ids = np.repeat(list(model.tracks_), [len(seen) for seen in model.tracks_.values()])
    order = np.lexsort([ids, rows[:, 0]])
    for cluster, (step, *center) in zip(ids[order].tolist(), rows[order].tolist(), strict=True):
        writer.writerow([moment(model.times_[int(step)]), cluster, *center])
    text.detach()


def save(path, figure):
    """Write a picture in the format that its name ends in."""
    with replacing(path) as file:
        figure.savefig(file, format=suffix_of(path)[1:])


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


def memory_in_words(args, model):
    """Say how long and how well clusters are remembered: t_q and k_tau, or q and tau."""
    if args.q is not None:
        return {"q": f"{model.q_:.8g} (given)", "tau": f"{model.tau_:.8g} (given)"}
    from smallvar._dynamic import DEFAULT_K_TAU, DEFAULT_T_Q

    t_q, k_tau, origin = DEFAULT_T_Q, DEFAULT_K_TAU, "default"
    if args.t_q is not None:
        t_q, k_tau, origin = args.t_q, args.k_tau, "given"
    return {
        "t_q": f"{t_q:.8g} ({origin}; q = {model.q_:.8g})",
        "k_tau": f"{k_tau:.8g} ({origin}; tau = {model.tau_:.8g})",
    }


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
