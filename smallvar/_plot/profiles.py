"""What sets clusters apart, a cell for each cluster and column."""

import re
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from smallvar._core.validation import check_number
from smallvar._plot.base import (
    BLUE,
    RED,
    Display,
    certainty_of,
    count_text,
    size_in_points,
    write_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# drawn at most; the words of more columns cannot be read where a page is narrow
DRAWN_COLUMNS, DRAWN_CLUSTERS = 6, 30
GREEN = "#228833"
FULL = 3.0  # standard deviations from all rows: the color is deepest
DEEPEST = 0.75  # largest share of the color in a cell, so that letters can be read
LETTERS = (4.0, 9.0)  # smallest and largest size of letters, in points
LINES, LONGEST_LINE = 4, 30  # largest number of lines in a cell, and of letters in a line
NAMES = 40.0  # height of the names of columns, in points


@dataclass(kw_only=True, eq=False, repr=False)
class ProfileDisplay(Display):  # numpydoc ignore=PR02
    """What sets clusters apart: a row for each cluster, a cell for each column.

    A cell says in words what the cluster's rows are like, and is the deeper in color the farther
    they are from all rows: red above their mean, blue below, green where the shares of levels
    differ. Columns are sorted, the one that tells clusters apart most comes first. Create it by
    :meth:`from_estimator`.

    Parameters
    ----------
    words : ndarray of shape (n_clusters, n_columns)
        What the cells say.
    distances : ndarray of shape (n_clusters, n_columns)
        How far they are from all rows, in standard deviations within clusters or, in columns of
        levels, what tells as much; negative below the mean.
    directed : ndarray of shape (n_columns,), bool
        Whether there is an above and a below.
    names : list of str
        Names of the columns.
    clusters : ndarray of shape (n_clusters,)
        Labels.
    sizes : ndarray of shape (n_clusters,)
        Rows of each; of columns of numbers with sample weights, their weight.
    n_columns : int
        Columns, those that are not drawn included.
    n_clusters : int
        Clusters, those that are not drawn included.
    certainty : str, default=""
        Whether that number is clear, for the title.

    Attributes
    ----------
    ax_ : Axes
        What was drawn on.
    figure_ : Figure
        Its figure.

    See Also
    --------
    DPMeans, MixedDPMeans : Estimators with ``profiles_``, as most of those with centers.

    Examples
    --------
    >>> from smallvar import MixedDPMeans, ProfileDisplay
    >>> X = {"size": [1.0, 1.2, 0.9, 5.1, 5.0, 4.8] * 5, "color": (["red"] * 3 + ["blue"] * 3) * 5}
    >>> display = ProfileDisplay.from_estimator(MixedDPMeans(random_state=0).fit(X))
    >>> sorted(display.names)
    ['color', 'size']
    """

    words: NDArray[np.object_]
    distances: NDArray[np.float64]
    directed: NDArray[np.bool_]
    names: list[str]
    clusters: NDArray[np.int64]
    sizes: NDArray[np.int64]
    n_columns: int
    n_clusters: int
    certainty: str = ""

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, max_columns: int | None = None, ax: "Axes | None" = None
    ) -> Self:
        """Draw the profiles of a fitted estimator.

        Parameters
        ----------
        estimator : DPMeans, MixedDPMeans or another
            An estimator with ``profiles_``.
        max_columns : int, default=None
            Columns to draw at most; None: 6.
        ax : Axes, default=None
            What to draw on; None makes a new figure.

        Returns
        -------
        display : ProfileDisplay
            What was drawn.
        """
        if not hasattr(type(estimator), "profiles_") and not hasattr(estimator, "profiles_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(
                f"this {type(estimator).__name__} has no profiles_: it must be fitted, and of "
                "those that describe columns"
            )
        most = DRAWN_COLUMNS if max_columns is None else max_columns
        most = check_number(most, "max_columns", low=1, integer=True)
        fields = _fields(estimator.profiles_)
        rises = _signs(*(fields[name] for name in ("mean", "share", "overall")))
        names, column = np.unique(fields["column"].astype(str), return_inverse=True)
        k = int(fields["cluster"].max()) + 1
        numbered = not isinstance(fields["column"].tolist()[0], str)  # of an array
        place = fields["cluster"].astype(np.intp), column
        apart, words = np.zeros((k, len(names))), np.full((k, len(names)), "", dtype=object)
        apart[place], words[place] = fields["apart"], fields["summary"]
        distances = np.sqrt(2.0 * np.maximum(apart, 0.0))
        distances[place] *= rises
        sizes = np.zeros(k, dtype=fields["size"].dtype)
        sizes[fields["cluster"]] = fields["size"]
        kind = np.full(len(names), "", dtype=object)
        kind[column] = fields["kind"]
        order = np.argsort(-(sizes @ np.nan_to_num(apart)), kind="stable")[:most]
        shown = np.sort(np.argsort(-sizes, kind="stable")[:DRAWN_CLUSTERS])
        return cls(
            words=words[shown][:, order],
            distances=distances[shown][:, order],
            directed=kind[order] != "categorical",
            names=[f"column {names[j]}" if numbered else str(names[j]) for j in order],
            clusters=shown,
            sizes=sizes[shown],
            n_columns=len(names),
            n_clusters=k,
            certainty=certainty_of(estimator),
        ).plot(ax)

    def plot(self, ax: "Axes | None" = None) -> Self:
        """Draw again, elsewhere.

        Parameters
        ----------
        ax : Axes, default=None
            What to draw on; None makes a new figure.

        Returns
        -------
        self : ProfileDisplay
            With new ``ax_`` and ``figure_``.
        """
        k, d = self.distances.shape
        own = ax is None
        ax = self._make_axes(ax, (float(np.clip(1.0 * d + 1.2, 4, 16)), 0.55 * k + 1.5))
        ax.imshow(self._colors(), aspect="auto", interpolation="nearest")
        ax.set_xticks(np.arange(d + 1) - 0.5, minor=True)
        ax.set_yticks(np.arange(k + 1) - 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=2)
        ax.tick_params(which="both", length=0)
        for side in ax.spines.values():
            side.set_visible(False)
        ax.xaxis.tick_top()
        sizes = [count_text(round(n), "row") for n in self.sizes.tolist()]
        texts = [f"{c}: {size}" for c, size in zip(self.clusters, sizes, strict=True)]
        ax.set_yticks(range(k), texts, size=8)
        if own:
            self.figure_.draw_without_rendering()  # the layout, and so the size of the cells
        width, height = size_in_points(ax)
        self._write_cells(ax, width / d, height / k)
        write_title(ax, self._title())
        return self

    def _write_cells(self, ax, width, height):
        """The words, and the names of the columns, in letters that fit the cells."""
        names = [_fitted(name, width, NAMES) for name in self.names]
        size = min(size for _, size in names)
        ax.set_xticks(range(len(names)), [text for text, _ in names], size=size)
        for label in ax.get_xticklabels():
            label.set_parse_math(False)
        for (i, j), words in np.ndenumerate(self.words):
            whole = re.sub(
                r"(?<=±) | (?=\d+%)|(?<=%) (?=of \d)|(?<=% of) ", "\u00a0", str(words)
            )  # no line ends there
            text, size = _fitted(whole, width, height)
            ax.text(j, i, text, ha="center", va="center", size=size, parse_math=False)

    def _title(self):
        parts = []
        if len(self.names) < self.n_columns:
            parts.append(f"{len(self.names)} of {count_text(self.n_columns, 'column')}")
        if len(self.clusters) < self.n_clusters:
            parts.append(f"{len(self.clusters)} of {count_text(self.n_clusters, 'cluster')}")
        first = f"{count_text(self.n_clusters, 'cluster')}" if not parts else ", ".join(parts)
        if self.certainty:
            first += f", {self.certainty}"
        others = "" if self.directed.all() else ", green other shares"
        return f"{first}: red above all rows, blue below{others}"

    def _colors(self):
        """The color of each cell."""
        from matplotlib.colors import to_rgb

        red, blue, green = (np.array(to_rgb(color)) for color in (RED, BLUE, GREEN))
        depth = DEEPEST * np.minimum(np.abs(self.distances) / FULL, 1.0)[..., np.newaxis]
        up = np.where(self.distances[..., np.newaxis] < 0.0, blue, red)
        color = np.where(self.directed[:, np.newaxis], up, green)
        return 1.0 - depth * (1.0 - color)


def _fields(table):
    """Columns of a table of profiles, by name; those of kinds and levels are empty if not there."""
    names = getattr(table, "column_names", getattr(table, "columns", table))  # of pyarrow first
    found = {name: np.asarray(table[name]) for name in names}
    n = len(found["cluster"])
    return {"kind": np.full(n, "normal", dtype=object), "share": np.full(n, np.nan)} | found


def _signs(mean, share, overall):
    """-1 where a cluster is below all rows, else 1."""
    mean, share, overall = (np.asarray(a, dtype=np.float64) for a in (mean, share, overall))
    value = np.where(np.isnan(mean), share, mean)
    return np.where(value < overall, -1.0, 1.0)


def _fitted(text, width, height):
    """A text broken into lines that fit a cell, and the size of its letters, in points.

    ``width`` and ``height`` are those of the cell. The number of lines that allows the largest
    letters is taken.
    """
    best = text, 0.0
    for lines in range(1, LINES + 1):
        parts = _lines(text, -(-len(text) // lines) + 2)
        # in units of its size a letter is about 0.6 wide, a line 1.25 high; the margin is a tenth
        size = min(0.9 * width / (0.6 * max(map(len, parts))), 0.9 * height / (1.25 * len(parts)))
        if size > best[1]:
            best = "\n".join(parts), size
    return best[0], float(np.clip(best[1], *LETTERS))


def _lines(text, longest):
    """Lines of a text, of about ``longest`` letters, broken where words or parts of names end.

    No line is longer than LONGEST_LINE, which may break a word.
    """
    lines = [""]
    for piece in re.split(r"(?<=[ _])|(?<=[.\-])(?=[A-Za-z])", text):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > longest:
            lines.append("")
        lines[-1] += piece
    return [part for line in lines for part in wrap(line.strip(" "), LONGEST_LINE) or [""]]
