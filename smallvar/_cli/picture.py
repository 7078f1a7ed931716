"""The figures of ``--plot``: displays of `smallvar`, with titles that say what they are of.

Figures are made without pyplot: no display and no global state is touched. matplotlib is
imported when the first of them is made.
"""

import numpy as np

from smallvar import ClusterDisplay, FeatureDisplay, PathDisplay, ProfileDisplay, TrackDisplay
from smallvar._cli.table import UserError, clock_title, counted, explained, square_of


def import_matplotlib():
    """Import what is drawn with, or say how to get it."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("--plot needs matplotlib (pip install matplotlib)") from error
    return Figure


def new_figure(width, height):
    """Make an empty figure."""
    return import_matplotlib()(figsize=(width, height), dpi=150, layout="constrained")


def column_titles(table):
    """What to call columns in a picture."""
    return [f"column {title}" if title.isdigit() else title for title in table.titles]


def picture(table, model, scaler=None):
    """Draw the clusters in two dimensions.

    Parameters
    ----------
    table : Table
        The data. More than two columns are projected on their first two principal
        components; a single one is stacked up like a histogram.
    model : DPMeans
        Fitted to these data.
    scaler : StandardScaler, optional
        What was done to the data first. One or two columns are drawn in their own units; of more,
        the components are those of the scaled columns, which have no units.

    Returns
    -------
    figure : matplotlib.figure.Figure
        Made without pyplot: no display and no global state is touched.
    """
    (n, d), k = table.X.shape, model.n_clusters_
    X, centers = table.X, model.cluster_centers_
    if scaler is not None and d > 2:
        X = scaler.transform(X)
    elif scaler is not None:
        centers = scaler.inverse_transform(centers)
    figure = new_figure(8, 6.5)
    axes = figure.add_subplot()
    display = ClusterDisplay.from_predictions(
        X, model.labels_, centers=centers, feature_names=column_titles(table), ax=axes
    )
    if scaler is not None and d == 2:  # distances are not those of the picture
        axes.set_aspect("auto")
    size = len(display.points)
    some = f", {size:,} of them drawn" if size < n else ""
    marks = "numbered by label" if axes.texts else "as ringed dots"
    origin = ", chosen from the data" if isinstance(model.lam, str) and model.lam == "auto" else ""
    axes.set_title(
        f"{table.name}: n = {n:,}{some}{', columns scaled' if scaler else ''}\n"
        f"K = {k:,}{origin}, lam = {model.lam_:.6g}; centers {marks}",
        size=11,
        parse_math=False,
    )
    return figure


def profile_picture(table, model):
    """Draw what sets the clusters of a table apart.

    Parameters
    ----------
    table : MixedTable
        The data.
    model : MixedDPMeans
        Fitted to them.

    Returns
    -------
    figure : matplotlib.figure.Figure
        Made without pyplot: no display and no global state is touched.
    """
    k, d = model.n_clusters_, len(model.columns_)
    figure = new_figure(float(np.clip(1.3 * d + 1.5, 5, 17)), 0.55 * min(k, 30) + 2)
    axes = figure.add_subplot()
    ProfileDisplay.from_estimator(model, ax=axes)
    origin = ", chosen from the data" if isinstance(model.lam, str) else ""
    axes.set_title(
        f"{table.name}: n = {table.n_rows:,}, K = {k:,}{origin}\n{axes.get_title()}",
        size=11,
        parse_math=False,
    )
    return figure


def feature_picture(table, model, shape):
    """Draw the features, and which rows have them.

    Parameters
    ----------
    table : Table
        The data.
    model : BPMeans or KFeatures
        Fitted to these data.
    shape : tuple of int or None
        Height and width of the pictures that the rows are, if they are.

    Returns
    -------
    figure : matplotlib.figure.Figure
        On the left one panel for each feature, a picture or values over the columns, all to the
        same scale; on the right the matrix of assignments, its rows sorted.
    """
    (n, d), k = table.X.shape, model.n_components_
    figure = new_figure(11, 6.5)
    display = FeatureDisplay.from_estimator(
        model, shape=shape, feature_names=table.titles, ax=figure.add_subplot()
    )
    for axes in display.axes_[-1:]:
        axes.set_title("which row has which feature", size=9)
    size = len(display.drawn_)
    penalty = f", lam = {model.lam_:.6g}" if hasattr(model, "lam_") else ""
    some = f", the {size} with the most rows drawn" if size < k else ""
    share = explained(model.reconstruction_err_**2, square_of(table.X))
    figure.suptitle(
        f"{table.name}: n = {n:,}, d = {d:,}\n"
        f"K = {k:,}{some}{penalty}; {share} of the sum of squares explained",
        size=11,
        parse_math=False,
    )
    return figure


def path_picture(table, path, best):
    """Draw the squared error over the number of features.

    Parameters
    ----------
    table : Table
        The data.
    path : FeaturePath
        From `without_rounding`.
    best : int or None
        The K to mark.

    Returns
    -------
    figure : matplotlib.figure.Figure
        On a log scale unless there is a K without error.
    """
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
    axes.set_title(f"{table.name}: n = {n:,}, d = {d:,}", size=11, parse_math=False)
    return figure


def merge_path_picture(table, choice, scaler=None):
    """Draw criterion, SSE and ranges of lam over the number of clusters.

    Parameters
    ----------
    table : Table
        The data.
    choice : Choice
        The path, and the number chosen on it.
    scaler : StandardScaler, optional
        What was done to the data first.

    Returns
    -------
    figure : matplotlib.figure.Figure
        Three panels above each other. The criterion is above the lowest one, on a scale that is
        linear where differences are a tie and logarithmic beyond.
    """
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
        f"{table.name}: n = {n:,}, d = {d:,}{', columns scaled' if scaler else ''}\n"
        f"K = {choice.best:,}{certainty and f', {certainty}'}",
        size=10,
        parse_math=False,
    )
    return figure


def original_tracks(model, scaler):
    """Give the tracks of D-Means in the units that the data had before they were scaled."""
    if scaler is None:
        return model.tracks_
    return {
        label: np.column_stack([track[:, 0], scaler.inverse_transform(track[:, 1:])])
        for label, track in model.tracks_.items()
    }


def track_picture(table, model, scaler=None):
    """Draw the ways of the clusters over time.

    Parameters
    ----------
    table : Table
        The data. Of more than two columns the first two are drawn; a single one is drawn over
        time.
    model : DynamicMeans
        Fitted to these data.
    scaler : StandardScaler, optional
        What was done to the data first; they are drawn in their own units.

    Returns
    -------
    figure : matplotlib.figure.Figure
        Each track goes from a ring to its number, or where there are many to a dot. Many tracks
        in a plane are colored by time.
    """
    n, d = table.X.shape
    figure = new_figure(8.5, 6.5)
    axes = figure.add_subplot()
    display = TrackDisplay.from_estimator(
        model,
        table.X,
        times=table.times,
        feature_names=column_titles(table),
        time_name=clock_title(table),
        ax=axes if scaler is None else new_figure(8.5, 6.5).add_subplot(),
    )
    if scaler is not None:  # its tracks are in scaled units: draw them again, in those of the rows
        display.tracks = original_tracks(model, scaler)
        display.plot(axes)
        axes.set_aspect("auto")  # distances are not those of the picture
    size = len(display.points)
    some = f", {size:,} of them drawn" if size < n else ""
    columns = f", the first 2 of {d:,} columns" if d > 2 else ""
    axes.set_title(
        f"{table.name}: n = {n:,}{some}{columns}{', columns scaled' if scaler else ''}, "
        f"{counted(len(model.times_), 'time step')}\n"
        f"{counted(len(display.tracks), 'cluster')}, lam = {model.lam_:.6g}; each from a ring to "
        f"{'its number' if axes.texts else 'a dot'}, dotted while unseen",
        size=11,
        parse_math=False,
    )
    return figure
