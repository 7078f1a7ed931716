"""The figures of ``--plot``: displays of `smallvar` with titles.

Figures are made without pyplot, so that no display is opened and no global state changes.
matplotlib is imported when the first figure is made.
"""

from types import SimpleNamespace

import numpy as np

from smallvar import ClusterDisplay, FeatureDisplay, PathDisplay, ProfileDisplay, TrackDisplay
from smallvar._cli.errors import UserError
from smallvar._cli.profiles import named, profiles_of
from smallvar._cli.table import clock_title, explained, square_of
from smallvar._cli.words import counted, visible
from smallvar._selection.confidence import certainty

# of figures 6 inches wide: still legible where a telephone shows them 390 pixels wide
DPI, TITLE_SIZE = 200, 11


def import_matplotlib():
    """Return matplotlib's Figure; UserError if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("--plot needs matplotlib (pip install matplotlib)") from error
    return Figure


def new_figure(width, height):
    """Return an empty figure; width and height are in inches, so small that text is large in it."""
    return import_matplotlib()(figsize=(width, height), dpi=DPI, layout="constrained")


def column_titles(table):
    """The names of the columns in a picture."""
    return [visible(title) for title in named(table.titles)]


def number_in_title(model):
    """Say how many clusters there are, and how clear that is, or where the number comes from."""
    k = f"K = {model.n_clusters_:,}"
    if model.n_clusters not in (None, "auto"):
        return f"{k}, as asked for"
    if getattr(model, "lam", None) not in (None, "auto"):
        return f"{k}, by lam = {model.lam_:.4g}"
    if hasattr(model, "confidence_"):
        confidence = model.confidence_
    else:  # where no other number could be chosen, it is neither clear nor not
        no_other = model.max_clusters == 1 or np.isfinite(model.path_.criterion).sum() == 1
        confidence = None if no_other else model.path_.confidence
    clear = certainty(confidence)
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
    n_drawn = len(display.points)
    drawn = f" ({n_drawn:,} drawn)" if n_drawn < n else ""
    set_title(axes, table, f"{number_in_title(model)}; {counted(n, 'row')}{drawn}", scaler)
    return figure


def set_title(axes, table, words, scaler=None):
    """Set a title of two lines: what was found, and the name of the table."""
    scaled = ", columns scaled" if scaler else ""
    axes.set_title(f"{words}\n{visible(table.name)}{scaled}", size=TITLE_SIZE, parse_math=False)


def profile_picture(table, model, scaler=None):
    """Draw what sets the clusters of a table apart, in the units of the data."""
    k, n = model.n_clusters_, len(model.labels_)
    if hasattr(model, "columns_"):  # of a MixedTable
        described = model
    else:
        described = SimpleNamespace(profiles_=profiles_of(model, column_titles(table), scaler))
    figure = new_figure(6, 0.42 * min(k, 30) + 2)
    axes = figure.add_subplot()
    display = ProfileDisplay.from_estimator(described, ax=axes)
    drawn, d = len(display.names), display.n_columns
    some = f"{drawn} of {d} columns, " if drawn < d else ""
    meaning = axes.get_title().rpartition(": ")[2]
    axes.set_title(
        f"{number_in_title(model)}; {counted(n, 'row')} of {visible(table.name)}\n{some}{meaning}",
        size=TITLE_SIZE - 1,
        parse_math=False,
    )
    return figure


def feature_picture(table, model, shape):
    """Draw the features, as pictures of height and width ``shape`` if given, and their rows."""
    n, k = len(table.X), model.n_components_
    figure = new_figure(7, 4.4)
    names = [visible(title) for title in table.titles]
    display = FeatureDisplay.from_estimator(
        model, shape=shape, feature_names=names, ax=figure.add_subplot()
    )
    for axes in display.axes_[-1:]:
        axes.set_title("which row has which feature", size=9)
    n_drawn = len(display.drawn_)
    drawn = f" (the {n_drawn} with the most rows drawn)" if n_drawn < k else ""
    share = explained(model.reconstruction_err_**2, square_of(table.X))
    figure.suptitle(
        f"{counted(k, 'feature')}{drawn}, explaining {share} of the sum of squares\n"
        f"{visible(table.name)}: {counted(n, 'row')}",
        size=TITLE_SIZE,
        parse_math=False,
    )
    return figure


def path_picture(table, path, best):
    """Draw the squared error over the number of features, of which ``best`` is marked."""
    figure = new_figure(6, 4.1)
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
    widest = "no number stands out" if best is None else f"{best} over the widest range of lam"
    set_title(axes, table, f"number of features: {widest}")
    return figure


def merge_path_picture(table, choice, scaler=None):
    """Draw criterion, SSE and ranges of lam over the number of clusters, one above the other."""
    clear = choice.certainty() if choice.is_only else certainty(choice.known_confidence)
    figure = new_figure(6, 6.8)
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
    words = f"K = {choice.best:,}{clear and f', {clear}'}"
    set_title(panels[0], table, words, scaler)
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
    figure = new_figure(6.4, 4.9)
    axes = figure.add_subplot()
    display = TrackDisplay.from_estimator(
        model,
        table.X,
        times=table.times,
        feature_names=column_titles(table),
        time_name=visible(clock_title(table)),
        ax=axes if scaler is None else new_figure(6.4, 4.9).add_subplot(),
    )
    if scaler is not None:  # the tracks are in scaled units: draw them again in those of the rows
        display.tracks = original_tracks(model, scaler)
        display.plot(axes)
        axes.set_aspect("auto")  # distances in the picture are not those of the fit
    n_drawn = len(display.points)
    drawn = f" ({n_drawn:,} drawn)" if n_drawn < n else ""
    columns = f", the first 2 of {d:,} columns" if d > 2 else ""
    words = (
        f"{counted(len(display.tracks), 'cluster')} in {counted(len(model.times_), 'time step')}"
    )
    set_title(axes, table, f"{words}; {n:,} rows{drawn}{columns}", scaler)
    return figure
