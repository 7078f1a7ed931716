"""The figures of ``--plot``: displays of `smallvar` with the name of the table below their titles.

Figures are made without pyplot, so that no display is opened and no global state changes.
"""

from dataclasses import dataclass
from typing import Any

from smallvar import ClusterDisplay, ProfileDisplay
from smallvar._cli.report import confidence_of, named, profiles_of
from smallvar._cli.words import visible

DPI = 200  # of figures 6 inches wide: still legible where a telephone shows them 390 pixels wide


@dataclass(frozen=True)
class Described:
    """What `ProfileDisplay` draws: profiles, with titles of columns, in the units of the data."""

    profiles_: dict[str, Any]
    confidence_: float | None


def picture(args, table, model, X, scaler):
    """Draw the clusters of the rows X in a plane or, if asked for, what sets them apart."""
    from matplotlib.figure import Figure

    titles = [visible(title) for title in named(table.titles)]
    of_columns = args.profiles or table.is_mixed
    height = 0.42 * min(model.n_clusters_, 30) + 2 if of_columns else 4.9
    figure = Figure(figsize=(6, height), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    name = visible(table.name)
    if of_columns:
        profiles = profiles_of(model, titles, scaler)
        ProfileDisplay.from_estimator(Described(profiles, confidence_of(model)), ax=axes)
    else:
        ClusterDisplay.from_estimator(model, X, feature_names=titles, ax=axes)
        name += ", columns scaled" if scaler is not None else ""
    size = axes.title.get_size()
    # "$" is not mathematics
    axes.set_title(f"{axes.get_title()}\n{name}", size=size, parse_math=False)
    return figure
