"""``smallvar cluster`` of a table as it is: words, flags, counts and gaps beside numbers."""

import warnings

import numpy as np

from smallvar._cli.answer import Answer, number_facts, steps_by_files, steps_by_number
from smallvar._cli.arguments import given, refuse_given
from smallvar._cli.choice import Choice, by_penalty_in_words, fitted
from smallvar._cli.columns import columns_in_short
from smallvar._cli.complete import without_gaps
from smallvar._cli.data import NOT_FOR_TABLES
from smallvar._cli.errors import UserError
from smallvar._cli.mixed_table import read_mixed
from smallvar._cli.output import save, sizes_in_words
from smallvar._cli.picture import profile_picture
from smallvar._cli.profiles import TELLING, profiles_in_words, short
from smallvar._cli.table_out import write_clusters
from smallvar._cli.words import counted, names_of_option
from smallvar._core.identifiers import identifies

SHOWN_COLUMNS = 40  # that have a line of their own


def kinds_of(text):
    """Convert the argument of ``--kinds``: names and kinds, None for what is left out."""
    kinds = {}
    for assignment in names_of_option("argument --kinds", text):
        name, equals, kind = (part.strip() for part in assignment.rpartition("="))
        if not equals or not name or not kind:
            raise UserError(f"argument --kinds: must be NAME=KIND,..., got {text!r}")
        if name in kinds:
            raise UserError(f"argument --kinds: names {name!r} twice")
        kinds[name] = None if kind == "none" else kind
    return kinds


def reader_for(args):
    """Function that reads a table with columns that are not numbers.

    None if an option has no meaning for such a table, which is then refused.
    """
    if any(getattr(args, name, None) for name in NOT_FOR_TABLES):
        return None

    def read(source, wanted, error):
        return read_mixed(source, wanted, error, args.kinds)

    return read


def refuse_misplaced(args):
    """Refuse options that have no meaning together with ``--kinds``."""
    refuse_given(args, NOT_FOR_TABLES, "{} has no meaning with --kinds")
    if args.data is None:
        raise UserError("--kinds has no meaning without DATA")


def show_table(args, table, reading):
    """Fit a MixedTable, read in ``reading`` seconds, write what is asked for, and report."""
    model = new_model(args, table)
    with warnings.catch_warnings():
        if any("no value" in note for note in table.notes):  # which names their lines
            warnings.filterwarnings("ignore", "X has .* without a value")
        _, fitting = fitted(args, model.fit, table.X)
    if args.out is not None:
        write_clusters(args, table, model)
    if args.plot is not None:
        save(args.plot, profile_picture(table, model))
    choice = None
    if isinstance(model.lam, str):
        choice = Choice(model.path_, model.max_clusters, "error", "divergence")
    sentence, facts, details = of_model(model, choice)
    steps = steps_by_files(args)
    if choice is not None and model.n_clusters is None and not choice.is_only:
        steps = [*steps_by_number(choice), *steps]
        without = without_gaps(args, table, model)
        if without is not None:
            steps.insert(0, without.in_words())
            if choice.is_clear:
                sentence = without.doubt(model.n_clusters_)
    answer = Answer(
        sentence,
        facts,
        about={
            "data": f"{table.name}, {columns_in_short(table.titles)}",
            "n": table.n_rows,
            "d": f"{len({c.source for c in model.columns_})} of {len(table.titles)}",
            "gaps": gaps_in_words(model),
            "kinds": kinds_needed(table),
        },
        details={**details, "seconds": f"{reading:.3f} reading, {fitting:.3f} fitting"},
        tables=(
            choice.as_table() if args.path is not None else None,
            profiles_of_table(args, model),
        ),
        steps=tuple(steps),
    )
    answer.tell(args, kinds_in_words(model))


def profiles_of_table(args, model):
    """Text of what sets the clusters apart; None for one, unless it is asked for."""
    if model.n_clusters_ == 1 and not args.profiles:
        return None
    return profiles_in_words(model.profiles_, args.profiles or TELLING)


def numbers_rows(cells, title):
    """Whether the cells of a column are numbers that only identify the rows."""
    try:
        return bool(identifies(np.asarray(cells, dtype=np.float64), title))
    except (TypeError, ValueError):
        return False


def new_model(args, table):
    """Make the estimator that the options ask for."""
    from smallvar import MixedDPMeans

    # columns to keep are numbers of a normal law, where --kinds does not say otherwise; and those
    # that --columns names, although they number the rows
    kept = [] if args.keep is None else names_of_option("--keep", args.keep)
    if args.columns is not None:
        kept += [title for title in table.titles if numbers_rows(table.X[title], title)]
    kinds = dict.fromkeys(kept, "normal") | (args.kinds or {})
    parameters = given(
        lam=args.lam,
        n_clusters=args.n_clusters,
        max_clusters=args.max_clusters,
        min_cluster_size=args.min_cluster_size,
        algorithm=args.algorithm,
        n_threads=args.threads,
        columns=kinds or None,
    )
    model = MixedDPMeans(**parameters, random_state=args.seed or 0, verbose=int(args.verbose))
    # rows are shuffled on request, where their order matters; the merge path has no order
    by_order = model.lam != "auto" and model.algorithm != "merge"
    return model.set_params(shuffle=by_order and args.seed is not None)


def of_model(model, choice):
    """The sentence, the facts and the details; ``choice`` is None if lam was given."""
    k, origin, confidence = model.n_clusters_, "given; in nats, not squared units", None
    if choice is None:
        sentence = by_penalty_in_words(k, model.lam_, origin)
    else:
        sentence, origin = choice.of_fit(model)
        if model.n_clusters is None:
            confidence = choice.known_confidence
    sizes = np.bincount(model.labels_, minlength=k)
    facts = {**number_facts(k, confidence), "sizes": sizes_in_words(sizes, "rows")}
    details = {
        "lam": f"{model.lam_:.8g} ({origin})",
        "sweeps": model.n_iter_,
        "objective": f"{model.objective_:.10g} (divergence + lam K)",
    }
    return sentence, facts, details


def kinds_needed(table):
    """Text of why the kinds of columns matter: given, or needed for this table."""
    if table.why is None:
        return "given by --kinds, others found"
    return f"found, as not all are numbers without gaps ({table.why})"


def gaps_in_words(model):
    """Text of the share of missing cells in the columns that are used; None if there are none."""
    profile = model.profiles_
    # of a column with a flag, a cell without the other values is not missing: that of the flag is
    flagged = {column.flag_of for column in model.columns_}
    used = ~np.isin(np.asarray(profile["column"], dtype=object), list(flagged - {None}))
    # shares of each cluster and column, by the rows of the cluster: the share of all cells
    missing, size = np.asarray(profile["missing"])[used], np.asarray(profile["size"])[used]
    share = np.average(missing, weights=size)
    return f"{share:.1%} of the cells are missing" if share > 0.0 else None


def kinds_in_words(model):
    """Text with a line for each column: its kind, or that it is left out, and why."""
    lines = [(c.name, c.kind, c.reason) for c in model.columns_]
    lines += [(name, "left out", reason) for name, reason in model.left_out_.items()]
    shown = [(short(name), kind, reason) for name, kind, reason in lines[:SHOWN_COLUMNS]]
    widest = max(len(name) for name, _, _ in shown)
    text = [f"  {name:<{widest}}  {kind:<11}  {reason}" for name, kind, reason in shown]
    if len(lines) > SHOWN_COLUMNS:
        text.append(f"  and {counted(len(lines) - SHOWN_COLUMNS, 'more column')}")
    return "\n".join(["columns:", *text])
