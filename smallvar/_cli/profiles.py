"""What sets clusters apart, in words, in the units of the data."""

import numpy as np

from smallvar._cli.words import counted, visible
from smallvar._core.profiles import in_words

TELLING = 3  # columns in the line of a cluster
SHOWN_CLUSTERS = 20  # clusters that have a line of their own
WIDEST = 30  # letters of a name
LEAST_SHARE = 0.005  # of the cost saved: columns of less are not named


def profiles_of(model, titles, scaler=None):
    """The profiles of a model of rows of numbers, in the units before scaling, as a dict."""
    table = {name: np.asarray(cells) for name, cells in model.profiles_.items()}
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


def profiles_table(args, model, titles, scaler=None):
    """Text of what sets the clusters of a model apart; None for one, unless it is asked for."""
    if model.n_clusters_ == 1 and not args.profiles:
        return None
    return profiles_in_words(profiles_of(model, named(titles), scaler), args.profiles or TELLING)


def profiles_in_words(table, most=TELLING):
    """Text with a line for each cluster: the columns that set it apart most, at most so many."""
    names = ("cluster", "size", "column", "summary", "apart", "saved")
    cells = zip(*(np.asarray(table[name]).tolist() for name in names), strict=True)
    of_numbers = "kind" not in getattr(table, "columns", table)
    told, sizes = {}, {}  # by cluster: the summaries of its columns, and its number of rows
    for cluster, size, column, summary, apart, saved in cells:
        sizes[cluster] = size
        words = told.setdefault(cluster, [])
        # the profile has the columns of a cluster in descending order of ``apart``
        if len(words) < most and apart > 0.0 and (saved >= LEAST_SHARE or not of_numbers):
            share = f" ({saved:.0%})" if of_numbers else ""
            words.append(f"{short(column)} {summary}{share}")
    if len(told) == 1:
        return "nothing sets the cluster apart, as there is no other"
    what = "mean ± spread, share of the cost saved" if of_numbers else "mean ± spread, or shares"
    lines = [f"what sets the clusters apart ({what}):"]
    for cluster in list(told)[:SHOWN_CLUSTERS]:
        lines.append(
            f"  {cluster:>3}  {counted(sizes[cluster], 'row'):>12}  {'; '.join(told[cluster])}"
        )
    if len(told) > SHOWN_CLUSTERS:
        lines.append(f"  and {counted(len(told) - SHOWN_CLUSTERS, 'more cluster')}")
    return "\n".join(lines)


def named(titles):
    """Titles of columns as they stand beside numbers: those that are only positions say so."""
    return [f"column {title}" if title.isdigit() else title for title in titles]


def short(name):
    """The name with its control characters escaped, cut to WIDEST letters."""
    name = visible(name)
    return name if len(name) <= WIDEST else f"{name[: WIDEST - 3]}..."
