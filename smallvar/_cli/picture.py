"""The figures of ``--plot``: what `smallvar._plot` draws, with titles that say what it is of.

Figures are made without pyplot: no display and no global state is touched. matplotlib is
imported when the first of them is made.
"""

import numpy as np

from smallvar._cli.table import UserError, clock_title, counted, explained, square_of
from smallvar._plot.clusters import cluster_colors, draw_clusters, project
from smallvar._plot.features import (
    draw_as_pictures,
    draw_assignments,
    draw_over_columns,
    panels_of,
)
from smallvar._plot.paths import draw_feature_path, draw_merge_path
from smallvar._plot.tracks import (
    TRACKS_NUMBERED,
    as_numbers,
    draw_tracks,
    show_dates,
    time_scale,
)

POINTS_DRAWN, VALUES_DRAWN = 50_000, 20_000_000
FEATURES_DRAWN = 40


def import_matplotlib():
    """Import what is drawn with, or say how to get it."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("--plot needs matplotlib (pip install matplotlib)") from error
    return Figure


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
    Figure = import_matplotlib()
    (n, d), k = table.X.shape, model.n_clusters_
    rng = np.random.default_rng(0)
    size = min(n, POINTS_DRAWN, max(1000, VALUES_DRAWN // d))
    drawn = slice(n) if size == n else np.sort(rng.choice(n, size, replace=False))
    labels = model.labels_[drawn]
    points, centers = table.X[drawn].astype(np.float64), model.cluster_centers_
    if scaler is not None and d > 2:
        points = scaler.transform(points)
    elif scaler is not None:
        centers = scaler.inverse_transform(centers)
    points, centers, axis_titles = project(points, centers, table.titles)

    figure = Figure(figsize=(8, 6.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    numbered = draw_clusters(axes, points, labels, centers, rng)
    width, height = np.ptp(points, axis=0)
    flat = min(width, height) < 1e-9 * max(width, height)  # what is left there is rounding
    own_units = scaler is not None and d == 2  # then distances are not those of the picture
    if d > 1 and not own_units and (flat or 1 / 3 < (height or 1) / (width or 1) < 3):
        axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel(axis_titles[0], parse_math=False)
    axes.set_ylabel(axis_titles[1], parse_math=False)
    some = f", {size:,} of them drawn" if size < n else ""
    marks = "numbered by label" if numbered else "as ringed dots"
    origin = ", chosen from the data" if isinstance(model.lam, str) and model.lam == "auto" else ""
    axes.set_title(
        f"{table.name}: n = {n:,}{some}{', columns scaled' if scaler else ''}\n"
        f"K = {k:,}{origin}, lam = {model.lam_:.6g}; centers {marks}",
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
    Figure = import_matplotlib()
    (n, d), k = table.X.shape, model.n_components_
    users = model.assignments_.sum(axis=0)
    drawn = np.arange(k)
    if k > FEATURES_DRAWN:
        drawn = np.sort(np.argsort(-users, kind="stable")[:FEATURES_DRAWN])
    figure = Figure(figsize=(11, 6.5), dpi=150, layout="constrained")
    penalty = f", lam = {model.lam_:.6g}" if hasattr(model, "lam_") else ""
    some = f", the {FEATURES_DRAWN} with the most rows drawn" if len(drawn) < k else ""
    share = explained(model.reconstruction_err_**2, square_of(table.X))
    figure.suptitle(
        f"{table.name}: n = {n:,}, d = {d:,}\n"
        f"K = {k:,}{some}{penalty}; {share} of the sum of squares explained",
        size=11,
        parse_math=False,
    )
    if k == 0:
        figure.text(0.5, 0.45, "no features", ha="center", color="gray")
        return figure
    left, right = figure.subfigures(1, 2, width_ratios=[1, min(0.6, 0.25 + 0.02 * k)])
    panels = panels_of(left, len(drawn), shape[0] / shape[1] if shape else 0.5)
    size = 9 if len(drawn) <= 12 else 7
    for axes, i in zip(panels, drawn, strict=True):
        axes.set_title(f"{i}: {counted(users[i], 'row')}", size=size, pad=3)
    if shape is None:
        draw_over_columns(left, panels, model.components_[drawn], table.titles, size)
    else:
        draw_as_pictures(left, panels, model.components_[drawn].reshape(-1, *shape))
    draw_assignments(right.add_subplot(), model.assignments_[:, drawn], drawn)
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
    Figure = import_matplotlib()
    n, d = table.X.shape
    figure = Figure(figsize=(8, 5.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    draw_feature_path(axes, path.n_components, path.error, ~np.isnan(path.lam_low), best)
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
    Figure = import_matplotlib()
    n, d = table.X.shape
    figure = Figure(figsize=(8, 9), dpi=150, layout="constrained")
    panels = figure.subplots(3, 1, sharex=True, height_ratios=[3, 2, 2])
    draw_merge_path(
        panels,
        choice.counts,
        choice.behind,
        choice.errors,
        choice.low,
        choice.high,
        choice.best,
        choice.tie,
    )
    panels[0].set_title(
        f"{table.name}: n = {n:,}, d = {d:,}{', columns scaled' if scaler else ''}\n"
        f"K = {choice.best:,}; {choice.lead_in_words()}",
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
    Figure = import_matplotlib()
    tracks = original_tracks(model, scaler)
    (n, d), k = table.X.shape, len(tracks)
    drawn = slice(n)
    if n > POINTS_DRAWN:
        drawn = np.sort(np.random.default_rng(0).choice(n, POINTS_DRAWN, replace=False))
    labels = model.labels_[drawn]
    points = table.X[drawn, :2].astype(np.float64)
    clock, when = as_numbers(model.times_), as_numbers(table.times[drawn])
    steps = [track[:, 0].astype(int) for track in tracks.values()]
    ways = [track[:, 1:3] for track in tracks.values()]
    axis_titles = [f"column {title}" if title.isdigit() else title for title in table.titles[:2]]
    if d == 1:
        points = np.column_stack([when, points])
        ways = [np.column_stack([clock[at], way]) for at, way in zip(steps, ways, strict=True)]
        axis_titles = [clock_title(table), *axis_titles]

    figure = Figure(figsize=(8.5, 6.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    numbered = k <= TRACKS_NUMBERED
    by_time = d > 1 and not numbered
    colors = np.full((k, 3), 0.6) if by_time else cluster_colors(k)
    axes.scatter(
        *points.T,
        s=float(np.clip(20_000 / len(points), 1, 12)),
        color=colors[np.searchsorted(list(tracks), labels)],
        alpha=0.25,
        linewidths=0,
        rasterized=True,
        zorder=1,
    )
    if not by_time:
        draw_tracks(axes, ways, steps, lambda which, at: colors[which])
    else:
        scale = time_scale(clock)
        draw_tracks(axes, ways, steps, lambda which, at: scale.to_rgba(clock[at]))
        bar = figure.colorbar(scale, ax=axes, aspect=40, pad=0.02)
        bar.outline.set_visible(False)
        bar.set_label(clock_title(table), parse_math=False)
        show_dates(bar.ax.yaxis, table.times)
    if d == 1:
        show_dates(axes.xaxis, table.times)
    width, height = np.ptp(points, axis=0)
    if d > 1 and scaler is None and 1 / 3 < (height or 1) / (width or 1) < 3:
        axes.set_aspect("equal", adjustable="datalim")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(axis_titles[0], parse_math=False)
    axes.set_ylabel(axis_titles[1], parse_math=False)
    some = f", {POINTS_DRAWN:,} of them drawn" if n > POINTS_DRAWN else ""
    columns = f", the first 2 of {d:,} columns" if d > 2 else ""
    axes.set_title(
        f"{table.name}: n = {n:,}{some}{columns}{', columns scaled' if scaler else ''}, "
        f"{counted(len(clock), 'time step')}\n"
        f"{counted(k, 'cluster')}, lam = {model.lam_:.6g}; each from a ring to "
        f"{'its number' if numbered else 'a dot'}, dotted while unseen",
        size=11,
        parse_math=False,
    )
    return figure
