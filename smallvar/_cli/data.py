"""The data of a command: a file, standard input, or what stands in for them; and their scale."""

from dataclasses import replace
from time import perf_counter

import numpy as np

from smallvar._cli.columns import columns_in_short, pick_columns
from smallvar._cli.errors import UserError, WordsError
from smallvar._cli.output import complain, say
from smallvar._cli.table import Table, Wanted, read_table, without_option
from smallvar._cli.words import counted, names_of_option, option_of, option_of_names
from smallvar._core.identifiers import identifies
from smallvar._selection.scale import wide_in_words, wide_of_many

# of numbers only
NOT_FOR_TABLES = ("guess", "scale", "drop_missing", "batch_size", "dask", "shapes", "long")


def load(args, prog, stand_in, needed="", otherwise=None):
    """Read the data that the user names, or take a ``stand_in``; return them and the seconds.

    ``stand_in`` is a function of the Wanted that returns a Table and its description. ``needed``
    are the options that a file needs. ``otherwise`` reads what is no table of numbers, see
    `read_table`.
    """
    begin = perf_counter()
    wanted = Wanted.of(args)
    if args.data is not None:
        always = getattr(args, "kinds", None) is not None
        try:
            table = read_table(args.data, wanted, otherwise, always)
        except WordsError as error:
            raise UserError(f"{error}; {way_of_words(args)}") from error
        for note in table.notes:
            complain("warning:", note)
        return table, perf_counter() - begin

    table, words = stand_in(wanted)
    seconds = perf_counter() - begin
    say(
        f"No DATA given, so these are {words}.\n"
        f"Your own: {prog} FILE{needed} (.csv, .tsv, .txt, .npy or .parquet, - for standard "
        f"input); all options: {prog} --help\n"
    )
    return table, seconds


def way_of_words(args):
    """Say how a table of words can be clustered."""
    for name in NOT_FOR_TABLES if hasattr(args, "kinds") else ():
        if getattr(args, name):
            return without_option(option_of(name))
    return "smallvar cluster takes words and gaps, too"


def digits(wanted):
    """Take the digits of scikit-learn, and say what they are."""
    from sklearn.datasets import load_digits

    data = load_digits()
    columns = pick_columns("the set of digits", wanted, data.feature_names, 64)
    table = Table(data.data[:, columns.positions], columns.titles, "handwritten digits")
    return table, "the handwritten digits that scikit-learn ships"


def wines(wanted):
    """Take the wines of scikit-learn with their cultivars, and say what they are."""
    from sklearn.datasets import load_wine

    data = load_wine()
    columns = pick_columns("the set of wines", wanted, data.feature_names, 13)
    table = Table(data.data[:, columns.positions], columns.titles, "wines", truth=data.target)
    return table, (
        f"{len(data.data)} wines of {len(data.target_names)} cultivars that scikit-learn ships, "
        "their columns scaled (as by --scale)"
    )


def wines_in_words(cultivars, labels):
    """Say how many wines are in the cluster of their cultivar.

    Cultivars and clusters are paired, one to one, so that these are the most.
    """
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics.cluster import contingency_matrix

    # the assignment problem: pairs of a cultivar and a cluster with the most wines in common
    counts = contingency_matrix(cultivars, labels)
    together, n = int(counts[linear_sum_assignment(-counts)].sum()), len(labels)
    return (
        f"Known: {counted(counts.shape[0], 'cultivar')}. "
        f"Found: {counted(counts.shape[1], 'cluster')}, with {together} of {n} wines "
        f"({together / n:.0%}) in the cluster of their cultivar."
    )


def scaled(args, table):
    """Standardize the columns where the user asks for it, and warn where that seems wise.

    Returns what to cluster, and the StandardScaler, None if that are the data as they are.
    """
    X = table.X
    if not args.scale:
        if args.data is not None:
            warn_of_uneven(X, table.titles)
        return X, None
    scaler, deviation = spread(X)
    # a variance that left float64 would scale its column to zeros
    if not np.isfinite(deviation).all():
        title = table.titles[np.argmin(np.isfinite(deviation))]
        raise UserError(f"--scale: the values of column {title} are too large to be squared")
    return scaler.transform(X), scaler


def spread(X):
    """Fit a StandardScaler, a block of rows at a time; and the standard deviation of each column.

    The deviation is 0 for constant columns, which the scaler leaves in their units, and infinite
    where the variance left float64.
    """
    from sklearn.preprocessing import StandardScaler

    # partial_fit combines the moments of blocks, so float64 copies stay small
    scaler, step = StandardScaler(), max(1, 2**20 // X.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(X), step):
            scaler.partial_fit(np.asarray(X[start : start + step], dtype=np.float64))
        deviation = np.where(constant(scaler), 0.0, np.sqrt(scaler.var_))
    return scaler, np.where(np.isfinite(scaler.var_), deviation, np.inf)


def constant(scaler):
    """Mark the columns that a StandardScaler takes for constant."""
    # StandardScaler divides constant columns by 1; a variance of 1 gives the same scale
    return (scaler.scale_ == 1) & (scaler.var_ != 1)


def without_identifiers(args, table):
    """The table without the columns that only number its rows, but for those that are asked for."""
    kept = [] if args.keep is None else names_of_option("--keep", args.keep)
    for title in kept:
        if title not in table.titles:
            raise UserError(f"--keep {args.keep}: no column {title!r} of {table.name} is used")
    if args.data is None or args.columns is not None:
        return table
    numbers = {
        j: reason
        for j, title in enumerate(table.titles)
        if title not in kept and (reason := identifies(table.X[:, j], title))
    }
    left = [j for j in range(len(table.titles)) if j not in numbers]
    if not numbers or not left:
        return table
    for j, reason in numbers.items():
        title = table.titles[j]
        keep = option_of_names("--keep", [title])
        complain(f"column {title} is left out: {reason}; {keep} keeps it")
    return replace(table, X=table.X[:, left], titles=[table.titles[j] for j in left])


def warn_of_uneven(X, titles):
    """Tell the user if few columns make up nearly all of the distances."""
    wide = wide_of_many(X)
    if len(wide.columns):
        names = ", ".join(titles[j] for j in wide.columns)
        words = wide_in_words(wide).format(wide=names)
        complain(f"warning: {words}; --scale evens them out")


def of_data(args, table, scaler=None, lam=True):
    """Say what the data are, and what was done to them; ``lam`` is whether there is a penalty."""
    n, d = table.X.shape
    rows = counted(table.dropped, "row")
    return {
        "data": f"{table.name}, {columns_in_short(table.titles)}",
        "n": n,
        "dropped": f"{rows} with missing values" if args.drop_missing else None,
        "d": d,
        "scaled": None if scaler is None else scale_in_words(scaler, lam),
    }


def scale_in_words(scaler, lam):
    """Say what was done to the columns."""
    count = int(constant(scaler).sum())
    but = f", but {counted(count, 'constant column')}" if count else ""
    units = "; lam is in these units" if lam else ""
    return f"each column to mean 0 and standard deviation 1{but}{units}"
