"""Base of all displays: axes, titles, colors, and which rows are drawn."""

from functools import cache
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smallvar._core.validation import check_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS_DRAWN, VALUES_DRAWN = 50_000, 20_000_000
COLORS = 400  # beyond, they come again
BLUE, RED = "#4477aa", "#ee6677"
FEW_COLORS = "#4477aa #ee6677 #228833 #ccbb44 #66ccee #aa3377 #ff8c1a #44bb99 #7755cc #8c564b"


class Display:
    """Base of the displays: ``plot`` draws on new axes, or on those given."""

    ax_: "Axes"
    figure_: "Figure"

    def _begin(self, ax, size):
        """The axes to draw on."""
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


def divide(ax, rows, columns, **options):
    """A grid in the place of these axes, which keep their title only."""
    from matplotlib.gridspec import GridSpec

    ax.set_axis_off()
    spec = ax.get_subplotspec()
    if spec is not None:
        return spec.subgridspec(rows, columns, **options)
    box = ax.get_position()
    place = {"left": box.x0, "right": box.x1, "bottom": box.y0, "top": box.y1}
    return GridSpec(rows, columns, ax.get_figure(), **place, **options)


def write_title(ax, text):
    """A title no wider than its axes, names in it taken as they are."""
    width = ax.get_window_extent().width * 72 / ax.get_figure().dpi
    longest = max(map(len, text.split("\n")))
    ax.set_title(text, size=float(np.clip(width / (0.55 * longest), 6, 11)), parse_math=False)


def write_label(ax, axis, text):
    """The label of an axis no longer than the axis, else on two lines; names taken as they are."""
    space = 0.95 * room(ax)[axis == "y"]
    if space < 0.55 * 8 * len(text):
        text = "\n".join(wrap(text, max(len(text) // 2 + 4, 1), max_lines=2, placeholder="..."))
    size = float(np.clip(space / (0.55 * max(map(len, text.split("\n")), default=1)), 6, 10))
    (ax.set_ylabel if axis == "y" else ax.set_xlabel)(text, size=size, parse_math=False)


def write_legend(ax):
    """A legend where there is room for it: in the axes, or above axes that are low."""
    width, height = room(ax)
    _, texts = ax.get_legend_handles_labels()
    if not texts:
        return
    if height >= 130:
        ax.legend(frameon=False, fontsize=8)
        return
    ax.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=len(texts),
        frameon=False,
        fontsize=float(np.clip(width / (0.55 * sum(len(text) + 6 for text in texts)), 5, 8)),
        borderaxespad=0.1,
        handletextpad=0.4,
        columnspacing=1.0,
    )


def room(ax):
    """Width and height of axes, in points."""
    box = ax.get_window_extent()
    dpi = ax.get_figure().dpi
    return box.width * 72 / dpi, box.height * 72 / dpi


def check_labels(labels: ArrayLike, n: int, name: str = "labels") -> NDArray[np.int64]:
    """Labels of n rows, integers."""
    array = np.asarray(labels)
    if array.shape != (n,):
        raise ValueError(f"{name} must be of shape ({n},), one for each row, got {array.shape}")
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers, got {array.dtype}")
    return array.astype(np.int64)


def own_labels(estimator: Any, n: int, other: str) -> NDArray[np.int64]:
    """The labels of the rows that an estimator was fitted to, if there are n of them."""
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


def names_of(X: Any, names: ArrayLike | None, d: int) -> list[str]:
    """What to call the columns: as given, as a data frame does, or by number."""
    if names is None:
        columns = getattr(X, "columns", None)
        return [f"column {i}" for i in range(d)] if columns is None else [str(c) for c in columns]
    found = [str(name) for name in np.asarray(names).ravel()]
    if len(found) != d:
        raise ValueError(f"feature_names must be {d} names, one a column, got {len(found)}")
    return found


def drawn_rows(n: int, d: int, most: int | None) -> slice | NDArray[np.intp]:
    """Rows to draw: all, or at random no more than can be seen."""
    if most is None:
        most = min(POINTS_DRAWN, max(1000, VALUES_DRAWN // max(d, 1)))
    most = check_number(most, "max_points", low=1, integer=True)
    if n <= most:
        return slice(n)
    return np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def counted(number: int, thing: str) -> str:
    """A number and its noun."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def thinned(ax, names, along):
    """Positions and names of ticks on an axis of so many names, as many as have room."""
    size = 8  # of the letters, in points
    width, height = room(ax)
    if along == "x":
        need = (max(map(len, names)) + 1.5) * size * 0.75  # the layout may take some of the room
        step = max(1, int(np.ceil(len(names) * need / width)))
    else:
        step = max(1, int(np.ceil(len(names) * size * 1.3 / height)))
    return np.arange(0, len(names), step), names[::step]


def cluster_colors(k: int) -> NDArray[np.float64]:
    """Choose one color per cluster: as different as so many colors can be."""
    from matplotlib.colors import to_rgb

    if k <= 10:
        return np.array([to_rgb(color) for color in FEW_COLORS.split()[:k]]).reshape(-1, 3)
    return _palette()[np.arange(k) % COLORS]


@cache
def _palette():
    """The first ten, then always the color that is farthest from all before, in CIELAB."""
    from matplotlib.colors import to_rgb

    grid = np.linspace(0.0, 1.0, 19)
    rgb = np.array(np.meshgrid(grid, grid, grid)).reshape(3, -1).T
    lab = as_lab(rgb)
    usable = (lab[:, 0] > 22) & (lab[:, 0] < 84)  # seen on white, and not taken for black
    rgb, lab = rgb[usable], lab[usable]
    chosen = np.array([to_rgb(color) for color in FEW_COLORS.split()])
    apart = np.min([((lab - one) ** 2).sum(axis=1) for one in as_lab(chosen)], axis=0)
    rows = []
    while len(chosen) + len(rows) < COLORS:
        rows.append(int(np.argmax(apart)))
        apart = np.minimum(apart, ((lab - lab[rows[-1]]) ** 2).sum(axis=1))
    return np.vstack([chosen, rgb[rows]])


def as_lab(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn sRGB into CIELAB, where distances are about what eyes see."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = linear @ np.array(
        [[0.4124, 0.2126, 0.0193], [0.3576, 0.7152, 0.1192], [0.1805, 0.0722, 0.9505]]
    )
    f = np.cbrt(xyz / [0.9505, 1.0, 1.089])
    f = np.where(f > 6 / 29, f, (f**3) * (29 / 6) ** 2 / 3 + 4 / 29)
    x, y, z = f.T
    return np.column_stack([116 * y - 16, 500 * (x - y), 200 * (y - z)])
