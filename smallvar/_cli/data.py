"""The data of a command: a file, or what stands in for it."""

from time import perf_counter

from smallvar._cli.output import say
from smallvar._cli.table import Table, pick_columns, read_table


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
