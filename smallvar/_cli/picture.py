"""Pictures of the results that the command line draws: ``--plot``.

Figures are made without pyplot: no display and no global state is touched. matplotlib is
imported when the first of them is made.
"""

import numpy as np

from smallvar._cli.table import UserError, clock_title, counted, explained, square_of

POINTS_DRAWN, VALUES_DRAWN = 50_000, 20_000_000
FEATURES_DRAWN, ROWS_DRAWN = 40, 400
BARS = 24  # columns up to which a feature is drawn as bars
TRACKS_NUMBERED = 50  # tracks up to which each has its color and its number


def import_matplotlib():
    """Import what is drawn with, or say how to get it."""
    try:
        from matplotlib.colors import hsv_to_rgb, to_rgb
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError('--plot needs matplotlib: pip install "smallvar[plot]"') from error
    return Figure, to_rgb, hsv_to_rgb


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
    Figure = import_matplotlib()[0]
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
    colors = cluster_colors(k)

    figure = Figure(figsize=(8, 6.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    order = rng.permutation(len(points))  # so that no cluster is drawn over all others
    axes.scatter(
        *points[order].T,
        s=float(np.clip(40_000 / len(points), 2, 30)),
        color=colors[labels[order]],
        alpha=0.7,
        linewidths=0,
        rasterized=True,
    )
    numbered = k <= 40
    axes.scatter(
        *centers.T,
        s=130 if numbered else 22,
        marker="o",
        color="white" if numbered else colors,
        edgecolors="black",
        linewidths=0.9,
        zorder=3,
    )
    if numbered:
        for label, (x, y) in enumerate(centers):
            axes.text(x, y, label, size=7, ha="center", va="center_baseline", zorder=4)
    width, height = np.ptp(points, axis=0)
    flat = min(width, height) < 1e-9 * max(width, height)  # what is left there is rounding
    own_units = scaler is not None and d == 2  # then distances are not those of the picture
    if d > 1 and not own_units and (flat or 1 / 3 < (height or 1) / (width or 1) < 3):
        axes.set_aspect("equal", adjustable="datalim")
    axes.spines[["top", "right"]].set_visible(False)
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


def project(points, centers, titles):
    """Find coordinates in two dimensions.

    Parameters
    ----------
    points, centers : ndarray of shape (n, d) and (k, d)
        The data and the centers.
    titles : list of str
        What to call the columns.

    Returns
    -------
    points, centers : ndarray of shape (n, 2) and (k, 2)
        Their coordinates in the picture.
    axis_titles : list of str
        What the two axes show.
    """
    axis_titles = [f"column {title}" if title.isdigit() else title for title in titles]
    if len(titles) == 1:
        x = points[:, 0]
        bins = np.linspace(x.min(), x.max(), 81)[1:-1].searchsorted(x)
        order = np.argsort(bins, kind="stable")
        stacked = np.empty(len(x))  # the place of each point within its bin, from 1
        stacked[order] = np.arange(1, len(x) + 1) - bins[order].searchsorted(bins[order])
        return (
            np.column_stack([x, stacked]),
            np.column_stack([centers[:, 0], np.full(len(centers), -0.04 * stacked.max())]),
            [*axis_titles, "points per bin"],
        )
    if len(titles) == 2:
        return points, centers, axis_titles

    from sklearn.decomposition import PCA

    if len(points) == 1:  # no directions to be had from one point
        return points[:, :2], centers[:, :2], axis_titles[:2]
    origin = points.mean(axis=0)  # far from zero, squares would cancel
    points = points - origin
    pca = PCA(n_components=2, random_state=0)
    with np.errstate(invalid="ignore"):  # 0 / 0 where all points are one
        points = pca.fit_transform(points)
    axis_titles = [
        f"principal component {i + 1} ({share:.0%} of the variance)"
        for i, share in enumerate(np.nan_to_num(pca.explained_variance_ratio_))
    ]
    return points, pca.transform(centers - origin), axis_titles


def cluster_colors(k):
    """Choose one color per cluster, neighbors in number far apart in hue."""
    _, to_rgb, hsv_to_rgb = import_matplotlib()
    if k <= 10:
        palette = "#4477aa #ee6677 #228833 #ccbb44 #66ccee #aa3377 #ff8c1a #44bb99 #7755cc #8c564b"
        return np.array([to_rgb(color) for color in palette.split()[:k]])
    i = np.arange(k)
    hue = i * 0.6180339887498949 % 1  # multiples of the golden ratio never crowd
    saturation = np.take([0.85, 0.55, 0.95], i % 3)
    value = np.take([0.8, 0.7, 0.55], i % 3)
    return hsv_to_rgb(np.column_stack([hue, saturation, value]))


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
    Figure = import_matplotlib()[0]
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


def panels_of(figure, count, ratio):
    """Divide a figure into panels.

    Parameters
    ----------
    figure : SubFigure
        The left part of a `feature_picture`.
    count : int
        How many panels to make.
    ratio : float
        Their height for a width of 1, roughly.

    Returns
    -------
    panels : list of Axes
        Row by row, in as many columns as make them largest.
    """

    def width_of_panel(columns):
        return min(1.25 / columns, 1 / (-(-count // columns) * (ratio + 0.15)))

    columns = max(range(1, count + 1), key=width_of_panel)
    grid = figure.subplots(-(-count // columns), columns, squeeze=False).ravel()
    for axes in grid[count:]:
        axes.remove()
    return list(grid[:count])


def draw_over_columns(figure, panels, components, titles, size):
    """Draw each feature as bars, or where there are many columns as a line."""
    d, position = len(titles), np.arange(1, len(titles) + 1)
    low, high = min(components.min(), 0.0), max(components.max(), 0.0)
    margin = 0.06 * (high - low) or 1.0
    columns = panels[0].get_subplotspec().get_gridspec().ncols
    step = max(1, d * columns // 55)  # between two titles that do not touch
    shown = [title if len(title) <= 18 else f"{title[:15]}..." for title in titles[::step]]
    upright = max(map(len, shown)) * columns * len(shown) > 90
    for i, (axes, component) in enumerate(zip(panels, components, strict=True)):
        axes.axhline(0, color="black", linewidth=0.6)
        axes.set_xlim(0.4, d + 0.6)
        axes.set_ylim(low - margin, high + margin)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=size - 1, labelleft=i % columns == 0, labelbottom=False)
        last = i + columns >= len(panels)
        if d > BARS:
            axes.plot(position, component, color="#4477aa", linewidth=0.8)
            axes.tick_params(labelbottom=last)
            continue
        axes.bar(position, component, color="#4477aa", width=0.8)
        axes.set_xticks(position[::step])
        for x, title in zip(position[::step], shown, strict=True) if last else ():
            text = axes.annotate(
                title,
                (x, 0),
                xycoords=axes.get_xaxis_transform(),
                xytext=(0, -5),
                textcoords="offset points",
                ha="center",
                va="top",
                size=size - 1,
                rotation=90 if upright else 0,
                parse_math=False,
            )
            # Beside the last row, the titles hang where there is no panel anyway.
            text.set_in_layout(i // columns == (len(panels) - 1) // columns)
    if d > BARS:
        figure.supxlabel("column", size=size)


def draw_as_pictures(figure, panels, pictures):
    """Draw each feature as a picture: gray where hardly any value is below 0, else red and blue."""
    high, low = np.abs(pictures).max() or 1.0, min(pictures.min(), 0.0)
    colors = "gray_r"
    if low < -0.05 * high:
        colors, low = "RdBu_r", -high
    for axes, pixels in zip(panels, pictures, strict=True):
        image = axes.imshow(pixels, cmap=colors, vmin=low, vmax=high)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_color("lightgray")
    bar = figure.colorbar(image, ax=panels, location="bottom", shrink=0.6, aspect=40)
    bar.ax.tick_params(labelsize=8)


def draw_assignments(axes, assignments, numbers):
    """Draw the matrix of assignments, the rows that have the first feature at the top."""
    n, k = assignments.shape
    keys = np.packbits(np.ascontiguousarray(assignments, dtype=bool), axis=1)  # sort like the rows
    order = np.argsort(keys.view(f"S{keys.shape[1]}").ravel(), kind="stable")[::-1]
    bounds = np.linspace(0, n, min(n, ROWS_DRAWN) + 1).astype(int)  # of many rows, draw averages
    shares = np.add.reduceat(assignments[order], bounds[:-1]) / np.diff(bounds)[:, np.newaxis]
    axes.imshow(
        shares,
        cmap="Blues",
        vmin=0,
        vmax=1.25,
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5, k - 0.5, n, 0),
    )
    for i in range(1, k):
        axes.axvline(i - 0.5, color="white", linewidth=1)
    step = -(-k * len(str(numbers[-1])) // 45)  # between two numbers that do not touch
    axes.set_xticks(np.arange(0, k, step), numbers[::step], size=8)
    axes.tick_params(axis="y", labelsize=8)
    axes.set_xlabel("feature", size=9)
    axes.set_ylabel("rows, sorted by their features", size=9)
    axes.set_title("which row has which feature", size=9)


def path_picture(table, path, best):
    """Draw the squared error over the number of features.

    Parameters
    ----------
    table : Table
        The data.
    path : Bunch
        From `without_rounding`.
    best : int or None
        The K to mark.

    Returns
    -------
    figure : matplotlib.figure.Figure
        On a log scale unless there is a K without error.
    """
    Figure = import_matplotlib()[0]
    (n, d), counts = table.X.shape, path.n_components
    figure = Figure(figsize=(8, 5.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(counts, path.error, color="#4477aa", linewidth=1.2, zorder=1)
    chosen = ~np.isnan(path.lam_low)
    axes.scatter(
        counts[chosen], path.error[chosen], s=36, color="#4477aa", label="best for some lam"
    )
    if not chosen.all():
        axes.scatter(
            counts[~chosen],
            path.error[~chosen],
            s=36,
            facecolors="white",
            edgecolors="#4477aa",
            label="best for no lam",
        )
    if best is not None:
        axes.scatter(
            best,
            path.error[best],
            s=150,
            facecolors="none",
            edgecolors="#ee6677",
            linewidths=2,
            label=f"K = {best}: best for the widest range of lam",
        )
    logarithmic(axes, path.error)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", which="both", color="#eeeeee", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("K, number of features")
    axes.set_ylabel("squared error")
    axes.legend(frameon=False)
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
    Figure = import_matplotlib()[0]
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

    (n, d), K, blue, red = table.X.shape, choice.counts, "#4477aa", "#ee6677"
    figure = Figure(figsize=(8, 9), dpi=150, layout="constrained")
    above, middle, below = figure.subplots(3, 1, sharex=True, height_ratios=[3, 2, 2])
    size = float(np.clip(1500 / len(K), 4, 36))
    known = np.isfinite(choice.behind)
    above.plot(K[known], choice.behind[known], color=blue, linewidth=1.2, zorder=1)
    above.scatter(K[known], choice.behind[known], s=size, color=blue, zorder=2)
    scale, top = choice.tie or 1.0, choice.behind[known].max()
    above.set_yscale("symlog", linthresh=scale, linscale=0.5)
    if choice.tie:
        above.axhspan(0, scale, color="#eeeeee", label=f"a tie: up to {scale:.1f}", zorder=0)
    above.set_ylim(-0.35 * scale, max(2 * scale, 2 * top))
    steps = (1, 2, 5) if top < 100 * scale else (1,)
    ticks = [step * 10.0**i for i in range(16) for step in steps]
    above.set_yticks([0.0, *(tick for tick in ticks if scale < tick < 2 * top)])
    above.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
    above.yaxis.set_minor_locator(NullLocator())
    above.set_ylabel("criterion above the lowest")

    middle.plot(K, choice.errors, color=blue, linewidth=1.2, zorder=1)
    middle.scatter(K, choice.errors, s=size, color=blue, zorder=2)
    logarithmic(middle, choice.errors)
    middle.set_ylabel("SSE")

    shown = choice.low < choice.high
    ends = np.concatenate([choice.low[shown], choice.high[shown]])
    ends = ends[(ends > 0) & np.isfinite(ends)]
    least, most = (ends.min() / 2, 2 * ends.max()) if len(ends) else (0.5, 2.0)
    low, high = np.maximum(choice.low, least), np.minimum(choice.high, most)
    width = float(np.clip(300 / len(K), 1, 9))
    for color, some in ((blue, shown & (choice.best != K)), (red, shown & (choice.best == K))):
        below.vlines(K[some], low[some], high[some], color=color, linewidth=width)
    below.set_ylim(least, most)
    logarithmic(below, np.array([least, most]))
    below.set_ylabel("lam for which K is best")
    below.set_xlabel("K, number of clusters")

    at = K.searchsorted(choice.best)
    for axes, values in ((above, choice.behind), (middle, choice.errors)):
        chosen = f"K = {choice.best:,}, chosen"
        ring = {"facecolors": "none", "edgecolors": red, "linewidths": 2}
        axes.scatter(choice.best, values[at], s=150, label=chosen, zorder=3, **ring)
    above.legend(frameon=False)
    for axes in (above, middle, below):
        axes.axvline(choice.best, color=red, linewidth=0.8, alpha=0.5, zorder=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_xlim(K[0] - 0.6, K[-1] + 0.6)
        axes.grid(axis="y", color="#eeeeee", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    above.set_title(
        f"{table.name}: n = {n:,}, d = {d:,}{', columns scaled' if scaler else ''}\n"
        f"K = {choice.best:,}; {choice.lead_in_words()}",
        size=10,
        parse_math=False,
    )
    return figure


def logarithmic(axes, values):
    """Give a y-axis a log scale with plain numbers, unless there is a 0 among the values."""
    from matplotlib.ticker import LogFormatter

    if values.all():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(LogFormatter())
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))


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
    Figure = import_matplotlib()[0]
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


def draw_tracks(axes, ways, steps, paint):
    """Draw tracks, their beginnings and their ends.

    Parameters
    ----------
    axes : Axes
        What to draw on.
    ways, steps : list of ndarray of shape (n_seen, 2) and (n_seen,)
        For each track, where it was and in which steps.
    paint : callable
        Takes positions in the lists and steps, and returns colors.
    """
    from matplotlib.collections import LineCollection

    k = len(ways)
    few, which = k <= TRACKS_NUMBERED, np.arange(k)
    lines = np.concatenate([np.stack([way[:-1], way[1:]], axis=1) for way in ways])
    owner = np.repeat(which, [len(way) - 1 for way in ways])
    color = paint(owner, np.concatenate([at[1:] for at in steps]))
    unseen = np.concatenate([np.diff(at) > 1 for at in steps])
    width = 1.8 if few else float(np.clip(120 / k, 0.6, 1.2))
    for chosen, style in ((unseen, (0, (1, 1.2))), (~unseen, "solid")):
        axes.add_collection(
            LineCollection(
                lines[chosen],
                colors=color[chosen],
                linewidths=width,
                linestyles=[style],
                capstyle="butt" if style != "solid" else "round",
                zorder=2,
            )
        )
    begins, ends = (np.array([way[i] for way in ways]) for i in (0, -1))
    first, last = (paint(which, np.array([at[i] for at in steps])) for i in (0, -1))
    size = 30 if few else float(np.clip(4000 / k, 6, 20))
    ring = {"facecolors": "white", "linewidths": 1.4 if few else 0.7, "zorder": 3}
    axes.scatter(*begins.T, s=size, edgecolors=first, **ring)
    if not few:
        axes.scatter(*ends.T, s=0.8 * size, color=last, linewidths=0, zorder=4)
        return
    axes.scatter(*ends.T, s=130 if k <= 20 else 95, edgecolors=last, **ring | {"zorder": 4})
    for label, (x, y) in enumerate(ends):
        axes.text(
            x, y, label, size=7 if k <= 20 else 6, ha="center", va="center_baseline", zorder=5
        )


def time_scale(clock):
    """Choose a color for each time, none of them too pale for a white ground."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    colors = ListedColormap(colormaps["plasma"](np.linspace(0, 0.87, 256)))
    return ScalarMappable(Normalize(clock[0], clock[-1]), colors)


def as_numbers(times):
    """Turn times into what matplotlib draws: dates are days from 1970."""
    if times.dtype.kind != "M":
        return times.astype(np.float64)
    from matplotlib.dates import date2num

    return date2num(times)


def show_dates(axis, times):
    """Let an axis show dates if the times are dates."""
    if times.dtype.kind == "M":
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator()
        axis.set_major_locator(locator)
        axis.set_major_formatter(ConciseDateFormatter(locator))
