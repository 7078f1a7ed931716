"""The display of boundaries: a matrix of clusters, or the rows beside one boundary."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from smallvar._core.validation import Data, check_option
from smallvar._plot.base import BLUE, RED, Display, count_text, size_in_points, write_title
from smallvar._selection.boundary_table import BoundaryTable, boundary_evidence

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = ("matrix", "pair")
GRAY = "#888888"
SURE = 30.0  # nats from which the color is deepest
PALEST, STRONGEST = 0.12, 0.75  # shares of the color in a cell, so that letters can be read
MOST_NAMED = 40  # clusters with a name at the matrix and numbers in it
LARGEST_LETTERS = 9.0  # in points
CELL_WORDS = {"gap": "", "none": "none", "unclear": "?"}
IN_WORDS = {
    "gap": "a gap between them",
    "none": "no gap between them",
    "unclear": "unclear whether there is a gap",
}


@dataclass(kw_only=True, eq=False, repr=False)
class BoundaryDisplay(Display):  # numpydoc ignore=PR02
    """Whether the boundaries between clusters are gaps, in a matrix, or for one boundary in detail.

    The matrix has a cell for each two clusters that touch, with the evidence of their boundary in
    nats: blue for a gap, red where there is none, gray where it is unclear. Cells without a gap
    also say "none", and unclear ones have a question mark. The picture of a pair shows the
    rows of both clusters along the line from the mean of one to that of the other, and the two
    densities that are compared. Create it by :meth:`from_labels` or :meth:`from_boundaries`.

    Parameters
    ----------
    table : BoundaryTable
        What is drawn; :func:`boundary_evidence` returns it.
    kind : {"matrix", "pair"}, default="matrix"
        The picture: of all boundaries, or of one.
    pair : tuple of two labels, default=None
        The clusters of the one boundary; None otherwise.

    Attributes
    ----------
    ax_ : Axes
        Axes that were drawn on.
    figure_ : Figure
        Figure of the axes.

    See Also
    --------
    boundary_evidence : The numbers, and what they mean.
    ClusterDisplay : Rows of data in two dimensions.

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import make_moons
    >>> from smallvar import BoundaryDisplay
    >>> X, _ = make_moons(2000, noise=0.1, random_state=0)
    >>> labels = KMeans(6, n_init=5, random_state=0).fit_predict(X)
    >>> display = BoundaryDisplay.from_labels(X, labels)
    >>> len(display.table)
    9
    >>> display = BoundaryDisplay.from_boundaries(display.table, kind="pair", pair=(2, 4))
    >>> print(display.ax_.get_title())
    clusters 2 and 4: a gap between them
    two bells likelier, more than a million to 1 (157 nats)
    """

    table: BoundaryTable
    kind: str = "matrix"
    pair: tuple[Any, Any] | None = None

    @classmethod
    def from_labels(
        cls,
        X: Data,
        labels: ArrayLike,
        *,
        kind: str = "matrix",
        pair: tuple[Any, Any] | None = None,
        sample_weight: ArrayLike | None = None,
        ax: "Axes | None" = None,
    ) -> Self:
        """Draw the boundaries between the clusters of any program.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows, as they were clustered.
        labels : array-like of shape (n_samples,)
            The cluster of each row; rows with negative numbers are left out.
        kind : {"matrix", "pair"}, default="matrix"
            The picture: of all boundaries, or of one.
        pair : tuple of two labels, default=None
            The clusters of the one boundary; None otherwise.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0 of the rows; None means 1 each.
        ax : Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        display : BoundaryDisplay
            The display, after drawing.
        """
        table = boundary_evidence(X, labels, sample_weight=sample_weight)
        return cls.from_boundaries(table, kind=kind, pair=pair, ax=ax)

    @classmethod
    def from_boundaries(
        cls,
        table: BoundaryTable,
        *,
        kind: str = "matrix",
        pair: tuple[Any, Any] | None = None,
        ax: "Axes | None" = None,
    ) -> Self:
        """Draw boundaries that are known.

        Parameters
        ----------
        table : BoundaryTable
            What :func:`boundary_evidence` returns.
        kind : {"matrix", "pair"}, default="matrix"
            The picture: of all boundaries, or of one.
        pair : tuple of two labels, default=None
            The clusters of the one boundary; None otherwise.
        ax : Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        display : BoundaryDisplay
            The display, after drawing.
        """
        if not isinstance(table, BoundaryTable):
            raise TypeError(
                f"table must be what boundary_evidence returns, got {type(table).__name__}"
            )
        check_option(kind, "kind", KINDS)
        if kind == "matrix" and pair is not None:
            raise ValueError(f'pair must be None for kind="matrix", got {pair!r}')
        if kind == "pair":
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise ValueError(f'pair must be two labels for kind="pair", got {pair!r}')
            table.index_of(*pair)
        return cls(table=table, kind=kind, pair=None if pair is None else tuple(pair)).plot(ax)

    def plot(self, ax: "Axes | None" = None) -> Self:
        """Draw again, elsewhere.

        Parameters
        ----------
        ax : Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        self : BoundaryDisplay
            With ``ax_`` and ``figure_``.
        """
        if self.kind == "pair":
            self._draw_pair(self._make_axes(ax, (6, 4)))
        else:
            side = float(np.clip(1.2 + 0.55 * len(self.table.labels), 4, 10))
            self._draw_matrix(self._make_axes(ax, (side + 0.6, side)), ax is None)
        return self

    def _draw_matrix(self, ax, own):
        """A cell for each two clusters."""
        table = self.table
        k = max(len(table.labels), 1)
        place = np.searchsorted(table.labels, table.clusters)
        colors = np.full((k, k, 3), 1.0)
        colors[np.arange(k), np.arange(k)] = 0.92
        for (a, b), color in zip(place, self._colors(), strict=True):
            colors[a, b] = colors[b, a] = color
        ax.imshow(colors, interpolation="nearest")
        ax.set_xticks(np.arange(k + 1) - 0.5, minor=True)
        ax.set_yticks(np.arange(k + 1) - 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=2 if k <= MOST_NAMED else 0)
        ax.tick_params(which="both", length=0)
        for side in ax.spines.values():
            side.set_visible(False)
        names = [str(label) for label in table.labels]
        shown = np.arange(0, len(names), -(-k // MOST_NAMED))
        for set_ticks in (ax.set_xticks, ax.set_yticks):
            set_ticks(shown, [names[i] for i in shown], size=8, parse_math=False)
        width = size_in_points(ax)[0] / k * (-(-k // MOST_NAMED))
        if max(map(len, names), default=0) * 5 > width:
            ax.tick_params(axis="x", rotation=90)
        ax.set_xlabel("cluster")
        ax.set_ylabel("cluster")
        if own:
            self.figure_.draw_without_rendering()  # the layout, and so the size of the cells
        self._write_cells(ax, place, min(size_in_points(ax)) / k)
        found = [f"{np.sum(table.verdict == name):d} {name}" for name in IN_WORDS]
        found[0] += "s" if found[0] != "1 gap" else ""
        many = f"{len(table)} boundar{'y' if len(table) == 1 else 'ies'}"
        write_title(
            ax,
            f"{count_text(len(names), 'cluster')}, {many} between them: {', '.join(found)}\n"
            "evidence in nats: blue gap, red none, gray unclear",
        )

    def _write_cells(self, ax, place, width):
        """The evidence, and in words what is no gap."""
        texts = []
        for evidence, verdict in zip(self.table.evidence, self.table.verdict, strict=True):
            number = "" if np.isnan(evidence) else shown_nats(evidence)
            texts.append("\n".join(part for part in (number, CELL_WORDS[verdict]) if part))
        longest = max((len(line) for text in texts for line in text.split("\n")), default=1)
        # a letter is about 0.6 of its size wide, a line 1.25 high
        size = min(0.9 * width / (0.6 * longest), 0.9 * width / 2.5, LARGEST_LETTERS)
        if size < 3.0:
            return
        for (a, b), text in zip(place, texts, strict=True):
            for x, y in ((a, b), (b, a)):
                ax.text(x, y, text, ha="center", va="center", size=size)

    def _colors(self):
        """The color of each boundary."""
        from matplotlib.colors import to_rgb

        names = {"gap": BLUE, "none": RED, "unclear": GRAY}
        sure = np.minimum(np.abs(np.nan_to_num(self.table.evidence)) / SURE, 1.0)
        depth = PALEST + (STRONGEST - PALEST) * np.sqrt(sure)
        depth[self.table.verdict == "unclear"] = 0.35
        full = [to_rgb(names[verdict]) for verdict in self.table.verdict]
        return 1.0 - depth[:, np.newaxis] * (1.0 - np.reshape(full, (-1, 3)))

    def _draw_pair(self, ax):
        """The rows of two clusters along the line between their means, and both densities."""
        table = self.table
        i = table.index_of(*self.pair)
        a, b = table.clusters[i]
        verdict = str(table.verdict[i])
        if np.isnan(table.evidence[i]):
            ax.set_axis_off()
            write_title(ax, f"clusters {a} and {b}: nothing can be said\ntoo few different rows")
            return
        edges, counts = table.edges[i], table.counts[i]
        middles = 0.5 * (edges[:-1] + edges[1:])
        ax.bar(middles, counts, np.diff(edges), color="#d0d0d0", ec="white", lw=0.5, label="rows")
        curves = ((table.bells[i], BLUE, "-", "two bells"), (table.body[i], RED, "--", "one body"))
        for curve, color, style, name in curves:
            ax.plot(middles[1:-1], curve[1:-1], color=color, lw=2, ls=style, label=name)
            # the outer bins have all rows beyond, so that a line to them would jump
            ax.hlines(curve[[0, -1]], edges[[0, -2]], edges[[1, -1]], color=color, lw=2, ls=style)
        top = 1.35 * max(counts.max(), table.bells[i].max(), table.body[i].max())
        for x, label in ((-0.5, a), (0.5, b)):
            ax.axvline(x, ymax=0.78, color="#555555", lw=0.8, ls=":")
            ax.text(x, 0.8 * top, f"mean of {label}", ha="center", size=8, parse_math=False)
        ax.set_ylim(0.0, top)
        ax.set_yticks([tick for tick in ax.get_yticks() if tick <= 0.78 * top])
        ax.set_xlabel("place between the means (outer bars: with all rows beyond)")
        ax.set_ylabel("rows")
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
        ax.legend(frameon=False, fontsize=8, loc="upper center", ncols=3)
        evidence = table.evidence[i]
        write_title(
            ax,
            f"clusters {a} and {b}: {IN_WORDS[verdict]}\n"
            f"{odds(evidence)} ({shown_nats(evidence)} nats)",
        )


def shown_nats(evidence: float) -> str:
    """Text of an evidence."""
    return f"{round(evidence, 1) + 0.0:,.1f}" if abs(evidence) < 100 else f"{evidence:,.0f}"


def odds(evidence: float) -> str:
    """The odds that an evidence means, in words."""
    kind = "two bells" if evidence > 0 else "one body"
    if abs(evidence) < 0.05:
        return "two bells are as likely as one body"
    if abs(evidence) < np.log(1e6):
        ratio = np.exp(abs(evidence))
        return f"{kind} likelier, {ratio:,.{0 if ratio >= 10 else 1}f} to 1"
    return f"{kind} likelier, more than a million to 1"
