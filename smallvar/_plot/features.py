"""The display of binary feature models: the features, and which rows have them."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smallvar._core.validation import check_number
from smallvar._plot.base import (
    BLUE,
    Display,
    column_names,
    count_text,
    divide_axes,
    size_in_points,
    thin_ticks,
    write_label,
    write_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_ROWS = 400  # rows of the picture of assignments; more rows are averaged
MAX_FEATURES = 40
BARS = 24  # the largest number of columns for features drawn as bars


@dataclass(kw_only=True, eq=False, repr=False)
class FeatureDisplay(Display):  # numpydoc ignore=PR02
    """Features, as bars, lines or pictures, and which rows have them.

    On the left a panel for each feature, all to the same scale; on the right the matrix of
    assignments, its rows sorted. Of more than 40 features, those of the most rows are drawn.
    Create it by :meth:`from_estimator`.

    Parameters
    ----------
    components : ndarray of shape (n_components, n_features)
        The features.
    assignments : ndarray of shape (n_samples, n_components)
        1 where a row has a feature, else 0.
    feature_names : list of str, default=None
        Names of the columns.
    shape : tuple of int, default=None
        Height and width of the pictures that the rows are, if they are.

    Attributes
    ----------
    ax_ : Axes
        Axes that the panels divide among themselves.
    axes_ : list of Axes
        The panels of the features drawn, then that of the assignments.
    drawn_ : ndarray of int
        The features drawn.
    figure_ : Figure
        Figure of the axes.

    See Also
    --------
    BPMeans : Features, their number included.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import FeatureDisplay, KFeatures
    >>> X = np.array([[4.0, 0.0], [0.0, 3.0], [4.0, 3.0], [4.0, 0.5], [0.0, 0.0]])
    >>> display = FeatureDisplay.from_estimator(KFeatures(2, random_state=0).fit(X))
    >>> [ax.get_title() for ax in display.axes_]
    ['0: 2 rows', '1: 3 rows', '5 rows, 2 features']
    """

    axes_: "list[Axes]" = field(init=False)
    drawn_: NDArray[np.intp] = field(init=False)

    components: NDArray[np.float64]
    assignments: NDArray[np.int32]
    feature_names: list[str] | None = None
    shape: tuple[int, int] | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        shape: tuple[int, int] | None = None,
        feature_names: ArrayLike | None = None,
        ax: "Axes | None" = None,
    ) -> Self:
        """Draw the features of a fitted estimator.

        Parameters
        ----------
        estimator : BPMeans or KFeatures
            The fitted estimator.
        shape : tuple of int, default=None
            Height and width of the pictures that the rows are, if they are.
        feature_names : array-like of shape (n_features,), default=None
            Names of the columns; None: those of the data frame of the fit, or numbers.
        ax : Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        display : FeatureDisplay
            The display, after drawing.
        """
        if not hasattr(estimator, "assignments_"):
            raise ValueError(
                f"this {type(estimator).__name__} has no features: it must be a fitted BPMeans or "
                "KFeatures"
            )
        components = estimator.components_
        if feature_names is None:
            feature_names = getattr(estimator, "feature_names_in_", None)
        names = column_names(None, feature_names, components.shape[1])
        display = cls(
            components=components,
            assignments=estimator.assignments_,
            feature_names=names,
            shape=shape,
        )
        return display.plot(ax)

    def plot(self, ax: "Axes | None" = None) -> Self:
        """Draw the features and the matrix of assignments.

        Parameters
        ----------
        ax : Axes, default=None
            Axes that the panels divide among themselves, best in a figure with
            ``layout="constrained"``. None makes a new figure.

        Returns
        -------
        self : FeatureDisplay
            With ``ax_``, ``axes_``, ``drawn_`` and ``figure_``.
        """
        k, d = self.components.shape
        if self.assignments.shape[1:] != (k,):
            raise ValueError(
                f"assignments must have {k} columns, one for each feature, got shape "
                f"{self.assignments.shape}"
            )
        shape = self.shape
        if shape is not None:
            if np.shape(shape) != (2,):
                raise ValueError(f"shape must be height and width, got {shape!r}")
            for side in shape:
                check_number(side, "shape", low=1, integer=True)
            if shape[0] * shape[1] != d:
                raise ValueError(
                    f"shape must be of {d} numbers, as many as there are columns, got {shape}"
                )
        names = self.feature_names
        if names is None:
            names = [f"column {i}" for i in range(d)]
        ax = self._make_axes(ax, (7, 4.4))
        n_rows = self.assignments.sum(axis=0)
        self.drawn_ = np.arange(k)
        if k > MAX_FEATURES:
            self.drawn_ = np.sort(np.argsort(-n_rows, kind="stable")[:MAX_FEATURES])
        drawn, n = self.drawn_, len(self.assignments)
        title = f"{count_text(n, 'row')}, {count_text(k, 'feature')}"
        if len(drawn) < k:
            title += f",\nthe {MAX_FEATURES} with the most rows drawn"
        if k == 0:
            write_title(ax, title)
            ax.set_axis_off()
            ax.text(0.5, 0.5, "no features", ha="center", color="gray")
            self.axes_ = []
            return self
        left, right = divide_axes(ax, 1, 2, width_ratios=[1, min(0.6, 0.25 + 0.02 * k)])
        panels = add_panels(left, self.figure_, len(drawn), shape[0] / shape[1] if shape else 0.5)
        size = 9 if len(drawn) <= 12 else 7
        for panel, i in zip(panels, drawn, strict=True):
            text = f"{i}: {count_text(int(n_rows[i]), 'row')}"
            fitting_size = size_in_points(panel)[0] / (0.55 * len(text))
            panel.set_title(text, size=float(np.clip(fitting_size, 5, size)), pad=3)
        if shape is None:
            draw_over_columns(panels, self.components[drawn], names, size)
        else:
            draw_as_pictures(self.figure_, panels, self.components[drawn].reshape(-1, *shape))
        matrix_axes = self.figure_.add_subplot(right)
        draw_assignments(matrix_axes, self.assignments[:, drawn], drawn)
        write_title(matrix_axes, title)
        self.axes_ = [*panels, matrix_axes]
        return self


def add_panels(spec, figure, count, ratio):
    """Add ``count`` panels to a figure, in as many columns as make them largest.

    They divide the grid specification ``spec``. ``ratio`` is about their height over their width.
    """

    def width_of_panel(columns):
        return min(1.25 / columns, 1 / (-(-count // columns) * (ratio + 0.15)))

    columns = max(range(1, count + 1), key=width_of_panel)
    grid = spec.subgridspec(-(-count // columns), columns)
    return [figure.add_subplot(grid[divmod(i, columns)]) for i in range(count)]


def draw_over_columns(panels, components, titles, size):
    """Draw each feature as bars, or, if there are many columns, as a line."""
    d, position = len(titles), np.arange(1, len(titles) + 1)
    low, high = min(components.min(), 0.0), max(components.max(), 0.0)
    margin = 0.06 * (high - low) or 1.0
    columns = panels[0].get_subplotspec().get_gridspec().ncols
    step = max(1, d * columns // 55)  # so that titles do not touch each other
    shown_titles = [title if len(title) <= 18 else f"{title[:15]}..." for title in titles[::step]]
    upright = max(map(len, shown_titles)) * columns * len(shown_titles) > 90
    for i, (axes, component) in enumerate(zip(panels, components, strict=True)):
        axes.axhline(0, color="black", linewidth=0.6)
        axes.set_xlim(0.4, d + 0.6)
        axes.set_ylim(low - margin, high + margin)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=size - 1, labelleft=i % columns == 0, labelbottom=False)
        if i % columns == 0 and len(panels) <= 12:
            write_label(axes, "y", "in data units")
        in_last_row = i + columns >= len(panels)
        if d > BARS:
            axes.plot(position, component, color=BLUE, linewidth=0.8)
            axes.tick_params(labelbottom=in_last_row)
            continue
        axes.bar(position, component, color=BLUE, width=0.8)
        axes.set_xticks(position[::step])
        if in_last_row:
            axes.tick_params(axis="x", labelbottom=True, labelrotation=90 if upright else 0)
            axes.set_xticklabels(shown_titles, parse_math=False)
            # titles above the last row hang where there is no panel: they need no extra space
            for text in axes.get_xticklabels():
                text.set_in_layout(i // columns == (len(panels) - 1) // columns)
    if d > BARS:
        for axes in panels[-columns:]:
            axes.set_xlabel("column", size=size)


def draw_as_pictures(figure, panels, pictures):
    """Draw each feature as a picture: in gray if hardly any value is below 0, else red and blue."""
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
    bar.set_label("in data units", size=8)


def draw_assignments(axes, assignments, numbers):
    """Draw the matrix of assignments, its rows sorted: those with the first feature at the top."""
    n, k = assignments.shape
    # bytes of packed bits sort in the order of the rows
    keys = np.packbits(np.ascontiguousarray(assignments, dtype=bool), axis=1)
    order = np.argsort(keys.view(f"S{keys.shape[1]}").ravel(), kind="stable")[::-1]
    bounds = np.linspace(0, n, min(n, MAX_ROWS) + 1).astype(int)  # of many rows, draw averages
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
    axes.set_xticks(*thin_ticks(axes, [str(i) for i in numbers], "x"), size=8)
    axes.tick_params(axis="y", labelsize=8)
    axes.set_xlabel("feature", size=9)
    write_label(axes, "y", "rows, sorted by their features")
