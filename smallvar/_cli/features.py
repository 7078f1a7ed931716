"""``smallvar features``: BP-means and K-features on the rows of a table.

``features`` parses the arguments; ``show_features`` fits and reports, ``show_path`` does so for
``--path``. Broderick, Kulis & Jordan (2013), MAD-Bayes, sections 3 and 4.
"""

import argparse

import numpy as np

from smallvar._cli.answer import Answer
from smallvar._cli.arguments import (
    check_targets,
    given,
    length_or_data,
    new_parser,
    number,
    parse,
    path_and_data,
    refuse_given,
)
from smallvar._cli.columns import columns_in_short
from smallvar._cli.data import digits, load, of_data
from smallvar._cli.errors import UserError
from smallvar._cli.output import in_short, replacing, save, timed, write_rows
from smallvar._cli.picture import feature_picture, path_picture
from smallvar._cli.profiles import SHOWN_CLUSTERS, TELLING, named, short
from smallvar._cli.table import explained, square_of
from smallvar._cli.table_out import write_out
from smallvar._cli.words import counted

DIGITS_SHAPE = (8, 8)
PATH_LENGTH = 10  # largest number of features of --path by default
MOST_EXACT = 12  # features up to which the best of all rows is found; the library has the same
NO_ERROR = 1e-20  # share of ||X||^2 below which an error of a path is only rounding


def features(argv):
    """Find features that rows of a table share, any number of them each."""
    parser = features_parser()
    args = parse(
        parser,
        argv,
        out="write the table with which row has which feature: a column of 0s and 1s per feature",
        seed="draw the random starts from S (default: 0, so that the same command gives the "
        "same result)",
    )
    path_and_data(args, PATH_LENGTH)
    refuse_misplaced(args)
    check_targets(args, "features")

    table, reading = load(args, parser.prog, digits)
    has_columns = args.columns is not None or args.exclude is not None
    if args.data is None and not has_columns and args.shape is None:
        args.shape = DIGITS_SHAPE
    if args.shape is not None and args.shape[0] * args.shape[1] != table.X.shape[1]:
        height, width = args.shape
        raise UserError(
            f"--shape {height}x{width} is for {counted(height * width, 'column')}, but "
            f"{table.name} has {columns_in_short(table.titles)}"
        )
    options = {
        "n_init": "auto" if args.starts is None else args.starts,
        "n_swaps": "auto" if args.swaps is None else args.swaps,
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


def features_parser():
    """The parser of the command, without the arguments that all commands share."""
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
        "error by more than L, so a smaller L gives more features (default: chosen from the data, "
        "with K, by how short a description of them the features make)",
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
        const=PATH_LENGTH,
        metavar="K",
        help="print the squared error with 0, 1, ..., K features (K is 10 if left out) and the "
        "lam for which each number is best; the best for the widest range is marked, and the "
        "number with the shortest description is named",
    )
    _add_search_arguments(parser)
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
    return parser


def _add_search_arguments(parser):
    """Add the arguments that say how features are searched for."""
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
        help="with --n-components, --path or --algorithm collapsed, how a row chooses its "
        "features. coordinate: one after the other; exact: the best of all 2^K sets, for K up to "
        f"{MOST_EXACT} (collapsed: --max-features at most {MOST_EXACT}). Default: coordinate; with "
        f"collapsed exact while K is at most {MOST_EXACT}, and coordinate beyond",
    )
    parser.add_argument(
        "--starts",
        type=number(int, 1),
        metavar="N",
        help="random starts, of which the best is kept (default: at most 10, and no more once "
        "three have found the lowest objective)",
    )
    parser.add_argument(
        "--swaps",
        type=number(int, 0),
        metavar="N",
        help="after each start, try N times to put a random feature elsewhere (with a penalty also "
        "to drop or to add one); worth more than as many starts (default: 20, with --path 50 "
        "unless rows are exact; fewer on large data)",
    )
    parser.add_argument(
        "--max-features",
        type=number(int, 1),
        metavar="M",
        help="with a penalty, never make more than M features",
    )


def refuse_misplaced(args):
    """Raise a UserError for options that have no meaning with the other options."""
    if args.path is not None:
        kind, others = "--path", ["algorithm", "max_features", "out", "components", "shape"]
    elif args.n_components is not None:
        kind, others = "--n-components", ["algorithm", "max_features"]
    elif args.algorithm == "collapsed":
        kind, others = "--algorithm collapsed", []
    else:
        kind, others = "a penalty, unless it is --algorithm collapsed", ["assign"]
    refuse_given(args, others, f"{{}} has no meaning with {kind}")
    most = MOST_EXACT if args.algorithm != "collapsed" else args.max_features or np.inf
    if args.assign == "exact" and most > MOST_EXACT:
        raise UserError(
            f"--assign exact needs --max-features of at most {MOST_EXACT} with {kind}; without "
            f"--assign rows are exact while there are at most {MOST_EXACT} features"
        )
    if args.shape is not None and args.plot is None:
        raise UserError("--shape has no meaning without --plot")


def show_features(args, options, table, reading):
    """Fit BP-means or K-features, write the files, and report.

    ``options`` are parameters of both estimators; ``reading`` is in seconds.
    """
    from smallvar import BPMeans, KFeatures

    if args.n_components is not None:
        model = KFeatures(args.n_components, **options)
        # K is given, so that no penalty enters the objective
        origin = lam = None
    else:
        parameters = given(lam=args.lam, max_features=args.max_features, algorithm=args.algorithm)
        model = BPMeans(**parameters, **options)
        origin = "chosen from the data" if args.lam is None else "given"
    _, fitting = timed(model.fit, table.X)
    if origin is not None:
        lam = f"{model.lam_:.8g} ({origin})"

    if args.out is not None:
        names = [f"feature_{i}" for i in range(model.n_components_)]
        write_out(args, table, names, model.assignments_)
    if args.components is not None:
        with replacing(args.components) as file:
            write_rows(file, table.titles, model.components_.tolist())
    if args.plot is not None:
        save(args.plot, feature_picture(table, model, args.shape))

    sentence, facts, details = of_model(model, table.X, lam)
    steps = []
    if args.out is None and args.data is not None:
        steps = ["--out FILE writes which row has which feature; --components FILE the features"]
    if args.plot is None and args.data is not None:
        steps.append("--plot draws the features")
    answer = Answer(
        sentence,
        facts,
        about={**of_data(args, table), "components": args.components},
        details={
            "lam": lam,
            "starts": starts_in_words(args),
            **details,
            "seconds": f"{reading:.3f} reading, {fitting:.3f} fitting",
        },
        # pixels say nothing one by one
        tables=(None if args.shape else features_in_words(model, named(table.titles)),),
        steps=tuple(steps),
        out="assignments",
    )
    answer.tell(args)


def of_model(model, X, lam):
    """The sentence, the facts and the details of a fitted model of the rows X."""
    error, energy = model.reconstruction_err_**2, square_of(X)
    k, share = model.n_components_, explained(error, energy)
    rows_of_feature = model.assignments_.sum(axis=0)
    rows_by_number = np.bincount(model.assignments_.sum(axis=1))  # rows with 0, 1, ... features
    rows = [f"{rows:,} with {i}" for i, rows in enumerate(rows_by_number) if rows]
    origin = "as asked for"
    if lam is not None:
        origin = (
            "chosen from the data"
            if model.lam == "auto"
            else f"by the penalty lam = {model.lam_:.8g}"
        )
    facts = {
        "K": k,
        "explained": f"{share} of ||X||^2",
        "users": in_short(rows_of_feature, "rows") if k else None,
        "rows": f"{', '.join(rows)} {'feature' if len(rows_by_number) == 2 else 'features'}",
    }
    details = {
        "sweeps": model.n_iter_,
        "objective": None if lam is None else f"{model.objective_:.10g} (error + lam K)",
        "error": f"{error:.10g}",
    }
    of_squares = f"explaining {share} of the sum of squares"
    return f"{counted(k, 'feature')}, {origin}, {of_squares}.", facts, details


def features_in_words(model, titles):
    """Text with a line for each feature: its rows, and the columns in which it is largest."""
    lines = []
    users = model.assignments_.sum(axis=0).tolist()
    for i, feature in enumerate(model.components_[:SHOWN_CLUSTERS]):
        largest = np.argsort(-np.abs(feature), kind="stable")[:TELLING]
        told = [f"{short(titles[j])} {feature[j]:.3g}" for j in largest if feature[j] != 0.0]
        lines.append(f"  {i:>3}  {counted(users[i], 'row'):>12}  {'; '.join(told)}")
    if len(users) > SHOWN_CLUSTERS:
        lines.append(f"  and {counted(len(users) - SHOWN_CLUSTERS, 'more feature')}")
    what = "what a row with the feature has more, in the columns where that is most:"
    return "\n".join([what, *lines]) if lines else None


def show_path(args, options, table, reading):
    """Print, and draw with ``--plot``, the squared error over the number of features."""
    from smallvar import feature_path

    if args.assign == "exact" and args.path > MOST_EXACT:
        raise UserError(f"--path {args.path}: at most {MOST_EXACT} with --assign exact")
    path, fitting = timed(feature_path, table.X, args.path, **options)
    path = without_rounding(path)
    best = widest(path)
    if args.plot is not None:
        save(args.plot, path_picture(table, path, best))
    widest_range = "none"
    if best is not None:
        low, high = path.lam_low[best], path.lam_high[best]
        if low == 0:
            widest_range = f"K = {best}, without error, for lam up to {high:.8g}"
        else:
            times = f"times {high / low:.4g}"
            widest_range = f"K = {best}, for lam from {low:.8g} to {high:.8g}: {times}"
    verb = "makes" if path.best == 1 else "make"
    answer = Answer(
        f"{counted(path.best, 'feature')} {verb} the shortest description of the rows.",
        {"K": path.best, "widest": widest_range},
        about=of_data(args, table),
        details={
            "lam": f"{path.lam:.8g}",
            "starts": starts_in_words(args),
            "seconds": f"{reading:.3f} reading, {fitting:.3f} fitting",
        },
        tables=(path_in_words(path, best),),
        steps=(f"--n-components {path.best} --out FILE writes which row has which feature",),
    )
    answer.tell(args)


def height_and_width(text):
    """Convert the argument of ``--shape`` to a pair of integers."""
    height, _, width = text.lower().partition("x")
    if not all(side.isascii() and side.isdigit() and int(side) for side in (height, width)):
        raise argparse.ArgumentTypeError(f"must be of the form 14x14, got {text!r}")
    return int(height), int(width)


def without_rounding(path):
    """The path with errors that are only rounding set to 0; the first such K is best at lam = 0."""
    exact = path.error <= NO_ERROR * path.error[0]
    low, high = path.lam_low.copy(), path.lam_high.copy()
    if exact.any():
        first = np.argmax(exact)
        low[first] = 0.0
        # more features save nothing but rounding, so they are best for no penalty
        low[first + 1 :] = high[first + 1 :] = np.nan
    error = np.where(exact, 0.0, path.error)
    return type(path)(path.counts, error, low, high, path.criterion, path.best, path.lam)


def widest(path):
    """Find the K with the largest ``log(lam_high / lam_low)``, or None, for `without_rounding`.

    K = 0, whose range has no upper end, and the last K, whose lower end is that of the path, are
    left out. A K without error, which is best for every small lam, comes first.
    """
    # ranges with both ends; an error of 0 is best down to lam = 0
    bounded = np.isfinite(path.lam_high) & ((path.lam_low > 0) | (path.error == 0))
    if not bounded.any():
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        # ratios, not differences, of penalties: independent of the units of the data
        width = np.log(path.lam_high / path.lam_low)
    return int(np.argmax(np.where(bounded, width, -1.0)))


def starts_in_words(args):
    """Text of the number of random starts, and of the swaps after each of them."""
    # --path and stepwise fit K-features for one K after the other
    each = " for each K" if args.path is not None or args.algorithm == "stepwise" else ""
    swaps = f", each with {counted(args.swaps, 'swap')}" if args.swaps else ""
    starts = "at most 10" if args.starts is None else f"{args.starts:,}"
    return f"{starts}{each}{swaps}"


def path_in_words(path, best):
    """Format a path as a table with a row for each K, of which ``best`` is marked."""
    lines = [
        f"{'K':>4}  {'squared error':>14}  {'explained':>9}  {'best for lam from':>17}  {'to':>14}"
    ]
    columns = (path.counts, path.error, path.lam_low, path.lam_high)
    for k, error, low, high in zip(*columns, strict=True):
        lam = f"{'-':>17}  {'-':>14}" if np.isnan(low) else f"{low:>17.8g}  {high:>14.8g}"
        mark = "  *" if k == best else ""
        share = explained(error, path.error[0])
        lines.append(f"{k:>4}  {error:>14.8g}  {share:>9}  {lam}{mark}")
    if best is not None:
        lines.append("   * best for the widest range of lam")
    return "\n".join(lines)
