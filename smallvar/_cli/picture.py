"""The figures of ``--plot``: displays of `smallvar` with titles.

Figures are made without pyplot, so that no display is opened and no global state changes.
matplotlib is imported when the first figure is made.
"""

from types import SimpleNamespace

import numpy as np

from smallvar import ClusterDisplay, FeatureDisplay, PathDisplay, ProfileDisplay, TrackDisplay
from smallvar._cli.errors import UserError
from smallvar._cli.profiles import profiles_of
from smallvar._cli.table import clock_title, explained, square_of
from smallvar._cli.words import counted, visible


def import_matplotlib():
    """Return matplotlib's Figure; UserError if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("--plot needs matplotlib (pip install matplotlib)") from error
    return Figure


def new_figure(width, height):
    """Return an empty figure; width and height are in inches."""
    return import_matplotlib()(figsize=(width, height), dpi=150, layout="constrained")


def column_titles(table):
    """The names of the columns in a picture."""
    return [f"column {title}" if title.isdigit() else visible(title) for title in table.titles]


def origin_of_number(model):
    """Say where the number of clusters comes from, unless it follows from a penalty."""
    if getattr(model, "lam", "auto") != "auto":  # ShapeMeans has none
        return ""
    return ", chosen from the data" if model.n_clusters is None else ", given"


def picture(table, model, scaler=None):
    """Draw the clusters in a plane, one or two scaled columns in their own units."""
    (n, d), k = table.X.shape, model.n_clusters_
    X, centers = table.X, model.cluster_centers_
    # axes of many columns are those of the scaled ones; otherwise draw in the units of the data
    if scaler is not None and d > 2:
        X = scaler.transform(X)
    elif scaler is not None:
        centers = scaler.inverse_transform(centers)
    figure = new_figure(8, 6.5)
    axes = figure.add_subplot()
    display = ClusterDisplay.from_predictions(
        X, model.labels_, centers=centers, feature_names=column_titles(table), ax=axes
    )
    if scaler is not None and d == 2:  # distances in the picture are not those of the fit
        axes.set_aspect("auto")
    n_drawn = len(display.points)
    drawn = f", {n_drawn:,} of them drawn" if n_drawn < n else ""
    marks = "numbered by label" if axes.texts else "as ringed dots"
    axes.set_title(
        f"{visible(table.name)}: n = {n:,}{drawn}{', columns scaled' if scaler else ''}\n"
        f"K = {k:,}{origin_of_number(model)}, lam = {model.lam_:.6g}; centers {marks}",
        size=11,
        parse_math=False,
    )
    return figure


def shape_picture(table, model, scaler=None):
    """Draw clusters of any shape, in the units of the data unless many columns were scaled."""
    (n, d), k, pieces = table.X.shape, model.n_clusters_, len(model.piece_clusters_)
    axes = (figure := new_figure(8, 6.5)).add_subplot()
    display = ClusterDisplay.from_predictions(
        table.X if scaler is None or d <= 2 else scaler.transform(table.X),
        model.labels_,
        feature_names=column_titles(table),
        ax=axes,
    )
    if scaler is not None and d == 2:  # distances in the picture are not those of the fit
        axes.set_aspect("auto")
    n_drawn = len(display.points)
    drawn = f", {n_drawn:,} of them drawn" if n_drawn < n else ""
    origin = "given" if model.n_clusters is not None else "chosen from the data"
    axes.set_title(
        f"{visible(table.name)}: n = {n:,}{drawn}{', columns scaled' if scaler else ''}\n"
        f"K = {k:,}, {origin}, of {counted(pieces, 'piece')}",
        size=11,
        parse_math=False,
    )
    return figure


def profile_picture(table, model, scaler=None):
    """Draw what sets the clusters of a table apart, in the units of the data."""
    k, n, described = model.n_clusters_, len(model.labels_), model
    if hasattr(model, "columns_"):  # of a MixedTable
        d = len(model.columns_)
    else:
        d = len(table.titles)
        described = SimpleNamespace(profiles_=profiles_of(model, column_titles(table), scaler))
    figure = new_figure(float(np.clip(1.3 * d + 1.5, 5, 17)), 0.55 * min(k, 30) + 2)
    axes = figure.add_subplot()
    ProfileDisplay.from_estimator(described, ax=axes)
    number = f"K = {k:,}{origin_of_number(model)}"
    axes.set_title(
        f"{visible(table.name)}: n = {n:,}, {number}\n{axes.get_title()}",
        size=11,
        parse_math=False,
    )
    return figure


def feature_picture(table, model, shape):
    """Draw the features, as pictures of height and width ``shape`` if given, and their rows."""
    (n, d), k = table.X.shape, model.n_components_
    figure = new_figure(11, 6.5)
    names = [visible(title) for title in table.titles]
    display = FeatureDisplay.from_estimator(
        model, shape=shape, feature_names=names, ax=figure.add_subplot()
    )
    for axes in display.axes_[-1:]:
        axes.set_title("which row has which feature", size=9)
    n_drawn = len(display.drawn_)
    penalty = f", lam = {model.lam_:.6g}" if hasattr(model, "lam_") else ""
    drawn = f", the {n_drawn} with the most rows drawn" if n_drawn < k else ""
    share = explained(model.reconstruction_err_**2, square_of(table.X))
    figure.suptitle(
        f"{visible(table.name)}: n = {n:,}, d = {d:,}\n"
        f"K = {k:,}{drawn}{penalty}; {share} of the sum of squares explained",
        size=11,
        parse_math=False,
    )
    return figure


def path_picture(table, path, best):
    """Draw the squared error over the number of features, of which ``best`` is marked."""
    n, d = table.X.shape
    figure = new_figure(8, 5.5)
    axes = figure.add_subplot()
    display = PathDisplay(
        counts=path.counts,
        error=path.error,
        lam_low=path.lam_low,
        lam_high=path.lam_high,
        best=best,
        count_name=path.count_name,
        error_name=path.error_name,
    )
    display.plot(axes, panels=["error"])
    axes.set_title(f"{visible(table.name)}: n = {n:,}, d = {d:,}", size=11, parse_math=False)
    return figure


def merge_path_picture(table, choice, scaler=None):
    """Draw criterion, SSE and ranges of lam over the number of clusters, one above the other."""
    (n, d), certainty = table.X.shape, choice.certainty()
    figure = new_figure(8, 9)
    panels = figure.subplots(3, 1, sharex=True, height_ratios=[3, 2, 2])
    display = PathDisplay(
        counts=choice.counts,
        error=choice.errors,
        lam_low=choice.low,
        lam_high=choice.high,
        criterion=choice.behind,
        best=choice.best,
        tie=choice.tie,
    )
    display.plot(panels)
    panels[0].set_title(
        f"{visible(table.name)}: n = {n:,}, d = {d:,}{', columns scaled' if scaler else ''}\n"
        f"K = {choice.best:,}{certainty and f', {certainty}'}",
        size=10,
        parse_math=False,
    )
    return figure


def original_tracks(model, scaler):
    """The tracks of a model in the units of the data before scaling."""
    if scaler is None:
        return model.tracks_
    return {
        label: np.column_stack([track[:, 0], scaler.inverse_transform(track[:, 1:])])
        for label, track in model.tracks_.items()
    }


def track_picture(table, model, scaler=None):
    """Draw the tracks of the clusters over time, in the units of the data before scaling."""
    n, d = table.X.shape
    figure = new_figure(8.5, 6.5)
    axes = figure.add_subplot()
    display = TrackDisplay.from_estimator(
        model,
        table.X,
        times=table.times,
        feature_names=column_titles(table),
        time_name=visible(clock_title(table)),
        ax=axes if scaler is None else new_figure(8.5, 6.5).add_subplot(),
    )
    if scaler is not None:  # the tracks are in scaled units: draw them again in those of the rows
        display.tracks = original_tracks(model, scaler)
        display.plot(axes)
        axes.set_aspect("auto")  # distances in the picture are not those of the fit
    n_drawn = len(display.points)
    drawn = f", {n_drawn:,} of them drawn" if n_drawn < n else ""
    columns = f", the first 2 of {d:,} columns" if d > 2 else ""
    axes.set_title(
        f"{visible(table.name)}: n = {n:,}{drawn}{columns}{', columns scaled' if scaler else ''}, "
        f"{counted(len(model.times_), 'time step')}\n"
        f"{counted(len(display.tracks), 'cluster')}, lam = {model.lam_:.6g}; each from a ring to "
        f"{'its number' if axes.texts else 'a dot'}, dotted while unseen",
        size=11,
        parse_math=False,
    )
    return figure
