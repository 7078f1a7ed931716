"""The report of a fit: first the answer, then what sets clusters apart, what to do next, the rest.

What other programs may read is in lines ``name  value``; everything else begins with a number or
is a sentence. With ``--verbose`` the details of the fit follow.
"""

import numpy as np

from smallvar._cli.arguments import TELLING
from smallvar._cli.output import say
from smallvar._cli.table import columns_in_short
from smallvar._cli.words import counted, option_of_names, visible
from smallvar._core.profiles import in_words
from smallvar._selection.confidence import CALLED_CLEAR, SIMILAR

NAMED_NUMBERS = 5  # of clusters that are named one by one
SHOWN_CLUSTERS, SHOWN_COLUMNS = 20, 40  # that have a line of their own
SHOWN_SIZES = 12  # clusters whose sizes are listed
WIDEST = 30  # letters of a name
LEAST_SHARE = 0.005  # of the cost saved: columns of less are not named
# rows, clusters and columns, at most, of which boundaries are looked at
BOUNDARY_ROWS, BOUNDARY_CLUSTERS, BOUNDARY_COLUMNS = 20_000, 40, 64


def tell(args, table, model, X, scaler, seconds):
    """Print the report of a model that was fitted to X, the rows of a table.

    ``scaler`` is the StandardScaler of the columns, or None; ``seconds`` are a text.
    """
    k, confidence = model.n_clusters_, confidence_of(model)
    boundaries = boundaries_of(args, table, model, X)
    sizes = np.bincount(model.labels_, minlength=k)
    out = "standard output" if args.out == "-" else args.out
    answer = {
        "K": k,
        "confidence": None if confidence is None else f"{confidence:.2f}",
        "sizes": sizes_in_words(sizes),
        "boundaries": boundaries,
    }
    written = {"labels": out, "picture": args.plot}
    details = {**details_of(model), "seconds": seconds} if args.verbose else {}
    blocks = [
        [(name, value) for name, value in block if value is not None]
        for block in (
            answer.items(),
            [("next", step) for step in steps_of(args, table, model, boundaries)],
            {**about(args, table, model, scaler), **written}.items(),
            details.items(),
        )
    ]
    width = max(len(name) for block in blocks for name, _ in block) + 2
    first, *rest = [
        "\n".join(f"{name:<{width}}{visible(str(value))}" for name, value in block)
        for block in blocks
    ]
    profiles = profiles_in_words(args, profiles_of(model, named(table.titles), scaler))
    last = kinds_in_words(model) if table.is_mixed else None
    say("\n\n".join(filter(None, [sentence_of(model), first, profiles, *rest, last])))


# The number of clusters


def is_chosen(model):
    """Whether the data chose the number of clusters."""
    return model.n_clusters is None and getattr(model, "lam", "auto") == "auto"


def path_of(model):
    """The path on which the number was chosen; None of clusters of any shape, which have others."""
    return None if hasattr(model, "confidence_") else model.path_


def is_only_number(model):
    """Whether no other number of clusters could be chosen, as rows are few or equal."""
    path = path_of(model)
    return path is not None and np.isfinite(path.criterion).sum() == 1


def confidence_of(model):
    """The confidence in a number that the data chose; None where it is not known."""
    if not is_chosen(model) or is_only_number(model):
        return None
    path = path_of(model)
    confidence = model.confidence_ if path is None else path.confidence
    return None if np.isnan(confidence) else confidence


def similar_numbers(model):
    """The other numbers that are about as likely as the one chosen, the likeliest first."""
    path = path_of(model)
    if path is None:
        return []
    order = np.argsort(-path.confidences, kind="stable")
    least = max(SIMILAR * path.confidence, np.nextafter(0.0, 1.0))
    similar = path.counts[order][path.confidences[order] >= least].tolist()
    return [k for k in similar if k != path.best]


def sentence_of(model):
    """The sentence on how many clusters there are, why, and how sure that is."""
    many = counted(model.n_clusters_, "cluster")
    if not is_chosen(model):
        by_penalty = f"by the penalty lam = {model.lam_:.8g}" if model.n_clusters is None else ""
        return f"{many}, {by_penalty or 'as asked for'}."
    if is_only_number(model):
        return f"{many}: too few distinct rows to support another."
    path = path_of(model)
    if path is not None and model.n_clusters_ != path.best:
        many += f" after the last sweeps, of {path.best} that the data support"
    confidence = confidence_of(model)
    if confidence is None:
        return f"{many}, chosen from the data."
    if confidence >= CALLED_CLEAR:
        return f"{many}, and this number is clear (confidence {confidence:.2f})."
    numbers = sorted(similar_numbers(model))
    shown = ", ".join(map(str, numbers))
    if len(numbers) > NAMED_NUMBERS:
        shown = f"{len(numbers)} numbers from {numbers[0]} to {numbers[-1]}"
    more = f": {shown} fit{'s' if len(numbers) == 1 else ''} about as well" if numbers else ""
    return f"{many}, but this number is not clear (confidence {confidence:.2f}){more}."


def sizes_in_words(sizes):
    """Text: the sizes of the clusters 0, 1, ..., in the order of their labels."""
    first, rest = ", ".join(map(str, sizes[:SHOWN_SIZES])), sizes[SHOWN_SIZES:]
    more = f" and {len(rest):,} more of {max(rest)} to {min(rest)} rows" if len(rest) else ""
    return first + more + (f" (labels 0 to {len(sizes) - 1})" if len(sizes) > 1 else "")


def boundaries_of(args, table, model, X):
    """Text of which boundaries are gaps: those between pieces, or between compact clusters.

    Of clusters it is None where all are gaps, or there are too many to look. Of many rows a sample
    is looked at.
    """
    if args.shapes:
        verdict = model.boundaries_.verdict
        counts = [(word, int((verdict == word).sum())) for word in ("gap", "unclear", "none")]
        found = ", ".join(f"{count} {word}" for word, count in counts if count)
        return f"{len(verdict):,} between {counted(len(model.piece_clusters_), 'piece')}" + (
            f": {found}" if found else ""
        )
    if table.is_mixed or model.n_clusters_ > BOUNDARY_CLUSTERS or X.shape[1] > BOUNDARY_COLUMNS:
        return None
    from smallvar import boundary_evidence

    rows = np.arange(len(X))
    if len(rows) > BOUNDARY_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(len(X), BOUNDARY_ROWS, replace=False))
    verdict = boundary_evidence(X[rows], model.labels_[rows]).verdict
    none = int((verdict == "none").sum())
    if not none:
        return None
    verb = "is no gap" if none == 1 else "are no gaps"
    return f"{none} of {len(verdict)} between clusters {verb}"


# What to do next


def steps_of(args, table, model, boundaries):
    """What to do next, as texts."""
    steps, confidence = [], confidence_of(model)
    if boundaries is not None and not args.shapes:
        steps.append("--shapes: joins clusters without a gap between them")
    if confidence is not None and confidence < CALLED_CLEAR and not args.shapes:
        # a single cluster is nothing to look at
        others = [k for k in similar_numbers(model) if k > 1]
        steps += [f"--n-clusters {k}: fits about as well" for k in others[:1]]
        steps += [] if table.is_mixed else steps_by_columns(model.path_, table.titles)
    written = "--out FILE writes the cluster of each row" if args.out is None else ""
    drawn = "--plot FILE draws the clusters" if args.plot is None else ""
    return [*steps, *filter(None, ["; ".join(filter(None, [written, drawn]))])]


def steps_by_columns(path, titles):
    """What columns may have to do with a number that is not clear, as texts."""
    steps = []
    few, skewed = ([titles[j] for j in columns] for columns in (path.few_valued, path.skewed))
    if few and len(few) < len(titles):
        option = option_of_names("--exclude", few)
        steps.append(f"{option}: columns with few values may be what splits the rows")
    if skewed:
        steps.append(
            f"transform columns: {', '.join(named(skewed))}: skewed, or with values far away; "
            "their logarithms may be better to cluster"
        )
    return steps


# Facts about the data and the fit


def about(args, table, model, scaler):
    """What the data are, and what was done to them."""
    facts = {"data": f"{table.name}, {columns_in_short(table.titles)}", "n": table.n_rows}
    if not table.is_mixed:
        dropped = scaled = None
        if args.drop_missing:
            n_dropped = 0 if table.kept is None else int((~table.kept).sum())
            dropped = f"{counted(n_dropped, 'row')} with missing values"
        if scaler is not None:
            scaled = "each column to mean 0 and standard deviation 1"
            scaled += "" if args.shapes else "; lam is in these units"
        return facts | {"dropped": dropped, "d": len(table.titles), "scaled": scaled}
    used = len({column.source for column in model.columns_})
    why = "given by --kinds, others found"
    if table.why is not None:
        why = f"found, as not all are numbers without gaps ({table.why})"
    return facts | {
        "d": f"{used} of {len(table.titles)}",
        "gaps": gaps_in_words(model),
        "kinds": why,
    }


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


def details_of(model):
    """The penalty and what was minimized, as far as the model has them."""
    if not hasattr(model, "lam_"):  # of clusters of any shape
        return {}
    origin = "given" if model.n_clusters is None else "found with K"
    if is_chosen(model):
        origin = "a price for each cluster, not a distance"
    error = "SSE" if hasattr(model, "inertia_") else "divergence"
    return {
        "lam": f"{model.lam_:.8g} ({origin})",
        "sweeps": model.n_iter_,
        "objective": f"{model.objective_:.10g} ({error} + lam K)",
    }


# Columns


def profiles_of(model, titles, scaler=None):
    """The profiles of a model as a dict, with titles of columns, in the units before scaling."""
    table = {name: np.asarray(model.profiles_[name]) for name in model.profiles_}
    if hasattr(model, "columns_"):  # of a table with words and gaps, whose columns have names
        return table
    column = table["column"].astype(np.intp)
    table["column"] = np.array(titles, dtype=object)[column]
    if scaler is not None:
        scale = scaler.scale_[column]
        table["spread"] = table["spread"] * scale
        for name in ("mean", "overall"):
            table[name] = table[name] * scale + scaler.mean_[column]
        words = map(in_words, table["mean"], table["spread"])
        table["summary"] = np.array(list(words), dtype=object)
    return table


def profiles_in_words(args, table):
    """Text with a line for each cluster: the columns that set it apart most."""
    names = ("cluster", "size", "column", "summary", "apart", "saved")
    cells = zip(*(table[name].tolist() for name in names), strict=True)
    of_numbers, most = "kind" not in table, args.profiles or TELLING
    told, sizes = {}, {}  # by cluster: the summaries of its columns, and its number of rows
    for cluster, size, column, summary, apart, saved in cells:
        sizes[cluster] = size
        words = told.setdefault(cluster, [])
        # the profile has the columns of a cluster in descending order of ``apart``
        if len(words) < most and apart > 0.0 and (saved >= LEAST_SHARE or not of_numbers):
            share = f" ({saved:.0%})" if of_numbers else ""
            words.append(f"{short(column)} {summary}{share}")
    if len(told) == 1:
        nothing = "nothing sets the cluster apart, as there is no other"
        return nothing if args.profiles else None
    what = "mean ± spread, share of the cost saved" if of_numbers else "mean ± spread, or shares"
    lines = [f"what sets the clusters apart ({what}):"]
    for cluster in list(told)[:SHOWN_CLUSTERS]:
        lines.append(
            f"  {cluster:>3}  {counted(sizes[cluster], 'row'):>12}  {'; '.join(told[cluster])}"
        )
    if len(told) > SHOWN_CLUSTERS:
        lines.append(f"  and {counted(len(told) - SHOWN_CLUSTERS, 'more cluster')}")
    return "\n".join(lines)


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


def named(titles):
    """Titles of columns as they stand beside numbers: those that are only positions say so."""
    return [f"column {title}" if title.isdigit() else title for title in titles]


def short(name):
    """The name with its control characters escaped, cut to WIDEST letters."""
    name = visible(name)
    return name if len(name) <= WIDEST else f"{name[: WIDEST - 3]}..."
