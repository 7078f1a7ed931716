"""The data of a command: a file, standard input, or the wines that stand in for them."""

from dataclasses import replace
from time import perf_counter

from smallvar._cli.columns import pick_columns
from smallvar._cli.errors import UserError, WordsError
from smallvar._cli.mixed_table import read_mixed
from smallvar._cli.output import complain, say
from smallvar._cli.table import Table, Wanted, read_table, without_option
from smallvar._cli.words import names_of_option, option_of, option_of_names
from smallvar._core.identifiers import identifies

# of numbers only
NOT_FOR_TABLES = ("scale", "drop_missing", "shapes")


def load(args, prog):
    """Read the table that the user names, or take the wines; return it and the seconds."""
    begin = perf_counter()
    wanted = Wanted.of(args)
    if args.data is not None:
        numbers_only = any(getattr(args, name) for name in NOT_FOR_TABLES)

        def mixed(source, wanted, error):
            return read_mixed(source, wanted, error, args.kinds)

        otherwise = None if numbers_only else mixed
        try:
            table = read_table(args.data, wanted, otherwise, args.kinds is not None)
        except WordsError as error:
            raise UserError(f"{error}; {way_of_words(args)}") from error
        for note in table.notes:
            complain("warning:", note)
        if not table.is_mixed:
            table = without_identifiers(args, table)
        return table, perf_counter() - begin

    table, words = wines(wanted)
    seconds = perf_counter() - begin
    say(
        f"No TABLE given, so these are {words}.\n"
        f"Your own: {prog} FILE (.csv, .tsv, .txt, .npy or .parquet, - for standard "
        f"input); all options: {prog} --help\n"
    )
    return table, seconds


def way_of_words(args):
    """Say how a table of words can be clustered."""
    for name in NOT_FOR_TABLES:
        if getattr(args, name):
            return without_option(option_of(name))
    return "smallvar takes words and gaps, too"


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
