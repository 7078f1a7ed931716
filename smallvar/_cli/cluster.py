"""The command itself: read a table, fit an estimator to its rows, write what is asked for, report.

The estimator is `DPMeans`, `ShapeMeans` with ``--shapes``, or `MixedDPMeans` for a table with words
or gaps.
"""

from contextlib import nullcontext
from time import perf_counter

import numpy as np

from smallvar import DPMeans, MixedDPMeans, ShapeMeans, progress_callback
from smallvar._cli.output import complain, save, write_clusters
from smallvar._cli.picture import picture
from smallvar._cli.progress import ProgressLine
from smallvar._cli.report import tell
from smallvar._cli.table import load
from smallvar._cli.words import UserError, names_of_option
from smallvar._core.identifiers import identifies
from smallvar._selection.scale import wide_in_words, wide_of_many


def cluster(args):
    """Find groups of rows that are alike, and how many there are."""
    table, reading = load(args)
    args.scale = args.scale or args.data is None  # the wines are in different units
    X, scaler = (table.X, None) if table.is_mixed else scaled(args, table)
    model = new_model(args, table)
    fitting = fit(model, X, args.verbose)
    if args.columns is not None and table.is_mixed:
        for title in model.left_out_.keys() - (args.kinds or {}).keys():
            complain(f"warning: column {title} is left out: {model.left_out_[title]}")
    if args.out is not None:
        write_clusters(args, table, model)
    if args.plot is not None:
        save(args.plot, picture(args, table, model, X, scaler))
    tell(args, table, model, X, scaler, f"{reading:.3f} reading, {fitting:.3f} fitting")


def new_model(args, table):
    """Make the estimator that the options and the table ask for."""
    estimator = MixedDPMeans if table.is_mixed else ShapeMeans if args.shapes else DPMeans
    parameters = {"n_clusters": args.n_clusters, "random_state": args.seed or 0}
    if table.is_mixed and (kinds := kinds_given(args, table)):
        parameters["columns"] = kinds
    if args.lam is not None:
        parameters["lam"] = args.lam
    return estimator(**parameters, verbose=int(args.verbose))


def kinds_given(args, table):
    """The kinds of columns that options imply.

    Columns to keep are numbers of a normal law, where --kinds does not say otherwise; and those
    that --columns names, although they number the rows.
    """
    kept = [] if args.keep is None else names_of_option("--keep", args.keep)
    if args.columns is not None:
        kept += [title for title in table.titles if numbers_rows(table.X[title], title)]
    return dict.fromkeys(kept, "normal") | (args.kinds or {})


def numbers_rows(cells, title):
    """Whether the cells of a column are numbers that only identify the rows."""
    try:
        return bool(identifies(np.asarray(cells, dtype=np.float64), title))
    except (TypeError, ValueError):
        return False


def fit(model, X, verbose):
    """Fit a model, with a line of progress; return the seconds. Errors become UserErrors."""
    begin = perf_counter()
    try:
        with (
            ProgressLine("fitting") as progress,
            nullcontext()
            if verbose
            else progress_callback(lambda event: progress.show(event.message)),
        ):
            model.fit(X)
    except (ValueError, OverflowError) as error:
        raise UserError(str(error)) from error
    except MemoryError as error:
        raise UserError("not enough memory to fit") from error
    return perf_counter() - begin


# Scales


def scaled(args, table):
    """Standardize the columns where the user asks for it, and warn where that seems wise.

    Returns what to cluster, and the StandardScaler, None if that are the data as they are.
    """
    X, titles = table.X, table.titles
    if not args.scale:
        wide = wide_of_many(X)
        if len(wide.columns):
            words = wide_in_words(wide, ", ".join(titles[j] for j in wide.columns))
            complain(f"warning: {words}; --scale evens them out")
        return X, None
    from sklearn.preprocessing import StandardScaler

    # partial_fit combines the moments of blocks, so float64 copies stay small
    scaler, step = StandardScaler(), max(1, 2**20 // X.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(X), step):
            scaler.partial_fit(np.asarray(X[start : start + step], dtype=np.float64))
    # a variance that left float64 would scale its column to zeros
    if not np.isfinite(scaler.var_).all():
        title = titles[np.argmin(np.isfinite(scaler.var_))]
        raise UserError(f"--scale: the values of column {title} are too large to be squared")
    return scaler.transform(X), scaler
