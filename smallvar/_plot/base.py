"""Base of all displays: their axes, titles, labels and legends, rows drawn, and colors."""

from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smallvar._selection.confidence import certainty

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_POINTS, MAX_VALUES = 50_000, 20_000_000  # rows drawn, and their values
BLUE, RED = "#4477aa", "#ee6677"
BASE_COLORS = "#4477aa #ee6677 #228833 #ccbb44 #66ccee #aa3377 #ff8c1a #44bb99 #7755cc #8c564b"


class Display:
    """Base of the displays, whose ``plot`` draws on given or on new axes."""

    ax_: "Axes"
    figure_: "Figure"

    def _make_axes(self, ax, size):
        """Axes to draw on, set as ``ax_``: the given ones, or new ones in a figure of this size."""
        try:
            from matplotlib.axes import Axes
        except ImportError as error:
            raise ImportError(
                f"{type(self).__name__} needs matplotlib (pip install matplotlib)"
            ) from error
        if ax is None:
            from matplotlib import pyplot

            ax = pyplot.figure(figsize=size, layout="constrained").add_subplot()
        elif not isinstance(ax, Axes):
            raise TypeError(f"ax must be Axes of matplotlib or None, got {type(ax).__name__}")
        self.ax_, self.figure_ = ax, ax.get_figure()
        return ax


def certainty_of(estimator: Any) -> str:
    """Whether the number of clusters of an estimator is clear, as text; empty if nobody knows."""
    path = getattr(estimator, "path_", estimator)
    no_other = len(getattr(path, "counts", ())) == 1
    confidence = getattr(estimator, "confidence_", getattr(path, "confidence", None))
    return "" if no_other else certainty(confidence)


def divide_axes(ax, rows, columns, **options):
    """A grid specification that divides these axes; they are hidden but for their title."""
    from matplotlib.gridspec import GridSpec

    ax.set_axis_off()
    spec = ax.get_subplotspec()
    if spec is not None:
        return spec.subgridspec(rows, columns, **options)
    box = ax.get_position()
    sides = {"left": box.x0, "right": box.x1, "bottom": box.y0, "top": box.y1}
    return GridSpec(rows, columns, ax.get_figure(), **sides, **options)


def write_title(ax, text):
    """Set a title in a size that fits the width of the axes; "$" in it is not mathematics."""
    width, longest = size_in_points(ax)[0], max(map(len, text.split("\n")))
    ax.set_title(text, size=float(np.clip(width / (0.55 * longest), 6, 11)), parse_math=False)


def write_label(ax, axis, text):
    """Set the label of an axis in a size that fits its length, on two lines if it is long."""
    space = 0.95 * size_in_points(ax)[axis == "y"]
    if space < 0.55 * 8 * len(text):
        text = "\n".join(wrap(text, max(len(text) // 2 + 4, 1), max_lines=2, placeholder="..."))
    size = float(np.clip(space / (0.55 * max(map(len, text.split("\n")), default=1)), 6, 10))
    (ax.set_ylabel if axis == "y" else ax.set_xlabel)(text, size=size, parse_math=False)


def size_in_points(ax):
    """Width and height of axes, in points (1/72 inch)."""
    box = ax.get_window_extent()
    dpi = ax.get_figure().dpi
    return box.width * 72 / dpi, box.height * 72 / dpi


def check_labels(labels: ArrayLike, n: int, name: str = "labels") -> NDArray[np.int64]:
    """Labels of n rows as int64; ``name`` is for error messages."""
    array = np.asarray(labels)
    if array.shape != (n,):
        raise ValueError(f"{name} must be of shape ({n},), one for each row, got {array.shape}")
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers, got {array.dtype}")
    return array.astype(np.int64)


def fitted_labels(estimator: Any, n: int, other: str) -> NDArray[np.int64]:
    """Labels of the n rows that an estimator was fitted to.

    Raises with the advice ``other`` if it was fitted to another number of rows.
    """
    if not hasattr(estimator, "labels_"):
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(
            f"this {type(estimator).__name__} has no labels_: it must be fitted, and of those that "
            "find clusters"
        )
    if len(estimator.labels_) != n:
        raise ValueError(
            f"X must be the {len(estimator.labels_)} rows that the estimator was fitted to, got "
            f"{n}; {other}"
        )
    return check_labels(estimator.labels_, n, "labels_")


def column_names(X: Any, names: ArrayLike | None, d: int) -> list[str]:
    """Names of the d columns of X: those given, those of a data frame, or numbers."""
    if names is None:
        columns = getattr(X, "columns", None)
        return [f"column {i}" for i in range(d)] if columns is None else [str(c) for c in columns]
    texts = [str(name) for name in np.asarray(names).ravel()]
    if len(texts) != d:
        raise ValueError(f"feature_names must be {d} names, one a column, got {len(texts)}")
    return texts


def drawn_rows(n: int, d: int) -> slice | NDArray[np.intp]:
    """Rows to draw: all, or of very many a random sample; the more columns, the smaller it is."""
    most = min(MAX_POINTS, max(1000, MAX_VALUES // max(d, 1)))
    if n <= most:
        return slice(n)
    return np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def count_text(number: int, thing: str) -> str:
    """Text with a number and its noun, in the plural if need be."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def thin_ticks(ax, names, along):
    """Positions and names of ticks along "x" or "y": as many of ``names`` as fit the axis."""
    size = 8  # of the letters, in points
    width, height = size_in_points(ax)
    if along == "x":
        need = (max(map(len, names)) + 1.5) * size * 0.75  # the layout may make axes narrower
        step = max(1, int(np.ceil(len(names) * need / width)))
    else:
        step = max(1, int(np.ceil(len(names) * size * 1.3 / height)))
    return np.arange(0, len(names), step), names[::step]


def cluster_colors(k: int) -> NDArray[np.float64]:
    """Colors of k clusters as RGB, an array of shape (k, 3); more than 46 use them again."""
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb

    base = np.array([to_rgb(color) for color in BASE_COLORS.split()])
    # without the grays at the end, which stand for rows in no cluster
    more = [colormaps["tab20b"](np.arange(20)), colormaps["tab20c"](np.arange(16))]
    colors = np.vstack([base, *(colors[:, :3] for colors in more)])
    return colors[np.arange(k) % len(colors)]
