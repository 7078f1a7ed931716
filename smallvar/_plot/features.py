"""Features, and which rows have them."""

import numpy as np

ROWS_DRAWN = 400
BARS = 24  # columns up to which a feature is drawn as bars


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
