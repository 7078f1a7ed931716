"""``smallvar cluster`` of a table as it is: words, flags, counts and gaps beside numbers."""

import numpy as np

from smallvar._cli.choice import Choice, fitted
from smallvar._cli.data import NOT_FOR_TABLES
from smallvar._cli.errors import UserError
from smallvar._cli.mixed_table import read_mixed
from smallvar._cli.output import (
    out_in_words,
    report,
    save,
    say,
    sizes_in_words,
    write_labels,
    write_out,
)
from smallvar._cli.picture import profile_picture
from smallvar._cli.table import columns_in_short, counted
from smallvar._cli.words import names_of_option, visible

COLUMNS, CLUSTERS, TELLING = 40, 20, 3  # lines that are printed at most; columns in each
WIDEST = 30  # letters of a name


def kinds_of(text):
    """Convert the argument of ``--kinds``: names and kinds, None for what is left out."""
    kinds = {}
    for item in names_of_option("argument --kinds", text):
        name, equals, kind = (part.strip() for part in item.rpartition("="))
        if not equals or not name or not kind:
            raise UserError(f"argument --kinds: must be NAME=KIND,..., got {text!r}")
        kinds[name] = None if kind == "none" else kind
    return kinds


def reader_for(args):
    """What reads a table that is not one of numbers; None where it is to be refused."""
    if any(getattr(args, name, None) for name in NOT_FOR_TABLES):
        return None

    def read(source, wanted, error):
        return read_mixed(source, wanted, error, args.kinds)

    return read


def refuse_misplaced(args):
    """Refuse options that have no meaning together with ``--kinds``."""
    for name in NOT_FOR_TABLES:
        if getattr(args, name, None):
            raise UserError(f"--{name.replace('_', '-')} has no meaning with --kinds")
    if args.data is None:
        raise UserError("--kinds has no meaning without DATA")


def show_table(args, table, reading):
    """Fit a table as it is, write what is asked for, and report.

    Parameters
    ----------
    args : argparse.Namespace
        What the user asked for.
    table : MixedTable
        The data.
    reading : float
        The seconds it took to read the data.
    """
    model = new_model(args)
    _, fitting = fitted(args, model.fit, table.X)
    if args.out is not None:
        write_out(args, ["label"], model.labels_, None, write_labels)
    if args.plot is not None:
        save(args.plot, profile_picture(table, model))
    say(kinds_in_words(model))
    choice = None
    if isinstance(model.lam, str):
        choice = Choice(model.path_, model.max_clusters, "error", "divergence")
    if args.path is not None:
        say(choice.as_table())
    gaps = gaps_in_words(model)
    report(
        {
            "data": f"{table.name}, {columns_in_short(table.titles)}",
            "n": table.n_rows,
            "d": f"{len(model.columns_)} of {len(table.titles)}",
            "gaps": gaps,
            "kinds": kinds_needed(table),
            **of_model(args, model, choice),
            "seconds": f"{reading:.3f} reading, {fitting:.3f} fitting",
            "labels": out_in_words(args),
            "picture": args.plot,
        }
    )
    say(f"\n{profiles_in_words(model)}")


def new_model(args):
    """Make the estimator that the options ask for."""
    from smallvar import MixedDPMeans

    given = {
        "lam": args.lam,
        "n_clusters": args.n_clusters,
        "max_clusters": args.max_clusters,
        "algorithm": args.algorithm,
        "n_threads": args.threads,
        "columns": args.kinds,
    }
    given = {name: value for name, value in given.items() if value is not None}
    model = MixedDPMeans(**given, random_state=args.seed or 0, verbose=int(args.verbose))
    by_order = model.lam != "auto" and model.algorithm != "merge"
    return model.set_params(shuffle=by_order and args.seed is not None)


def of_model(args, model, choice):
    """Say what was found, and by which penalty."""
    number, origin = model.n_clusters_, "given; in nats, not squared units"
    if choice is not None:
        origin = choice.lam_in_words()
        given = model.n_clusters is not None
        number = f"{number} (given)" if given else choice.in_words(number)
    sizes = np.bincount(model.labels_, minlength=model.n_clusters_)
    return {
        "lam": f"{model.lam_:.8g} ({origin})",
        "K": number,
        "sweeps": model.n_iter_,
        "objective": f"{model.objective_:.10g} (divergence + lam K)",
        "sizes": sizes_in_words(sizes, "rows"),
    }


def kinds_needed(table):
    """Say why the columns count by their kinds."""
    if table.why is None:
        return "given by --kinds, others found"
    return f"found, as not all are numbers without gaps ({table.why})"


def gaps_in_words(model):
    """Say how many cells are missing, in the columns that are used."""
    profile = model.profiles_
    share = np.average(np.asarray(profile["missing"]), weights=np.asarray(profile["size"]))
    return f"{share:.1%} of the cells are missing" if share > 0.0 else None


def kinds_in_words(model):
    """A line for each column: its kind, or that it is left out, and why."""
    lines = [(c.name, c.kind, c.reason) for c in model.columns_]
    lines += [(name, "left out", reason) for name, reason in model.left_out_.items()]
    shown = [(short(name), kind, reason) for name, kind, reason in lines[:COLUMNS]]
    widest = max(len(name) for name, _, _ in shown)
    text = [f"  {name:<{widest}}  {kind:<11}  {reason}" for name, kind, reason in shown]
    if len(lines) > COLUMNS:
        text.append(f"  and {counted(len(lines) - COLUMNS, 'more column')}")
    return "\n".join(["columns:", *text, ""])


def profiles_in_words(model):
    """A line for each cluster: what sets it apart most."""
    table = {
        name: np.asarray(model.profiles_[name]).tolist()
        for name in ("cluster", "size", "column", "summary", "apart")
    }
    told, sizes = {}, {}
    for cluster, size, column, summary, apart in zip(*table.values(), strict=True):
        sizes[cluster] = size
        words = told.setdefault(cluster, [])
        if len(words) < TELLING and apart > 0.0:
            words.append(f"{short(column)} {summary}")
    lines = ["what sets the clusters apart (mean ± spread, or shares):"]
    for cluster in list(told)[:CLUSTERS]:
        lines.append(
            f"  {cluster:>3}  {counted(sizes[cluster], 'row'):>12}  {'; '.join(told[cluster])}"
        )
    if len(told) > CLUSTERS:
        lines.append(f"  and {counted(len(told) - CLUSTERS, 'more cluster')}")
    return "\n".join(lines)


def short(name):
    """Cut a name that is long; its control characters are escaped."""
    name = visible(name)
    return name if len(name) <= WIDEST else f"{name[: WIDEST - 3]}..."
