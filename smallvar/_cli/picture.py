"""The figures of ``--plot``: displays of `smallvar` with titles.

Figures are made without pyplot, so that no display is opened and no global state changes.
"""

from dataclasses import dataclass
from typing import Any

from smallvar import ClusterDisplay, ProfileDisplay
from smallvar._cli.report import confidence_of, is_chosen, named, profiles_of
from smallvar._cli.words import counted, visible
from smallvar._selection.confidence import certainty

# of figures 6 inches wide: still legible where a telephone shows them 390 pixels wide
DPI, TITLE_SIZE = 200, 11


@dataclass(frozen=True)
class Described:
    """What `ProfileDisplay` draws: profiles, with titles of columns, in the units of the data."""

    profiles_: dict[str, Any]


def new_figure(width, height):
    """Return an empty figure; width and height are in inches, so small that text is large in it."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def column_titles(table):
    """The names of the columns in a picture."""
    return [visible(title) for title in named(table.titles)]


def number_in_title(model):
    """Say how many clusters there are, and how clear that is, or where the number comes from."""
    k = f"K = {model.n_clusters_:,}"
    if not is_chosen(model):
        by_penalty = model.n_clusters is None
        return f"{k}, by lam = {model.lam_:.4g}" if by_penalty else f"{k}, as asked for"
    clear = certainty(confidence_of(model))
    return f"{k}, {clear}" if clear else k


def picture(table, model, scaler=None):
    """Draw the clusters in a plane, one or two scaled columns in their own units."""
    (n, d), centers = table.X.shape, getattr(model, "cluster_centers_", None)
    X = table.X
    # axes of many columns are those of the scaled ones; otherwise draw in the units of the data
    if scaler is not None and d > 2:
        X = scaler.transform(X)
    elif scaler is not None and centers is not None:
        centers = scaler.inverse_transform(centers)
    axes = (figure := new_figure(6, 4.9)).add_subplot()
    display = ClusterDisplay.from_predictions(
        X, model.labels_, centers=centers, feature_names=column_titles(table), ax=axes
    )
    if scaler is not None and d == 2:  # distances in the picture are not those of the fit
        axes.set_aspect("auto")
    drawn = f" ({len(display.points):,} drawn)" if len(display.points) < n else ""
    scaled = ", columns scaled" if scaler else ""
    write_title(
        axes,
        f"{number_in_title(model)}; {counted(n, 'row')}{drawn}\n{visible(table.name)}{scaled}",
    )
    return figure


def profile_picture(table, model, scaler=None):
    """Draw what sets the clusters of a table apart, in the units of the data."""
    k, n = model.n_clusters_, len(model.labels_)
    axes = (figure := new_figure(6, 0.42 * min(k, 30) + 2)).add_subplot()
    described = Described(profiles_of(model, column_titles(table), scaler))
    display = ProfileDisplay.from_estimator(described, ax=axes)
    drawn, d = len(display.names), display.n_columns
    some = f"{drawn} of {d} columns, " if drawn < d else ""
    meaning = axes.get_title().rpartition(": ")[2]
    write_title(
        axes,
        f"{number_in_title(model)}; {counted(n, 'row')} of {visible(table.name)}\n{some}{meaning}",
    )
    return figure


def write_title(axes, text):
    """Set a title, in which "$" is not mathematics."""
    axes.set_title(text, size=TITLE_SIZE, parse_math=False)
