"""The display of a path: criterion, error and ranges of lam over the number of clusters."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from smallvar._plot.base import (
    BLUE,
    RED,
    Display,
    certainty_of,
    divide_axes,
    size_in_points,
    write_label,
    write_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANEL_HEIGHTS = {"criterion": 3, "error": 2, "ranges": 2}


@dataclass(kw_only=True, eq=False, repr=False)
class PathDisplay(Display):  # numpydoc ignore=PR02
    """Criterion, error and ranges of the penalty over the number of clusters or features.

    Create it by :meth:`from_path`.

    Parameters
    ----------
    path : ClusterPath, MixedPath, FeaturePath or CutPath
        What is drawn. The scale of the criterion is linear up to its ``tie``, the difference that
        does not count, and logarithmic beyond.

    Attributes
    ----------
    ax_ : Axes
        Axes that were drawn on, or that several panels divide among themselves.
    axes_ : list of Axes
        The panels.
    figure_ : Figure
        Figure of the axes.

    See Also
    --------
    cluster_path : Its ``linkage`` is drawn by :func:`scipy.cluster.hierarchy.dendrogram`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from smallvar import PathDisplay, cluster_path
    >>> display = PathDisplay.from_path(cluster_path(load_iris().data, random_state=0))
    >>> [ax.get_ylabel() for ax in display.axes_]
    ['criterion above the lowest', 'SSE, in squared data units', 'lam for which K is best']
    """

    axes_: "list[Axes]" = field(init=False)

    path: Any

    @classmethod
    def from_path(
        cls, path: Any, *, panels: Sequence[str] | None = None, ax: "Axes | None" = None
    ) -> Self:
        """Draw a path.

        Parameters
        ----------
        path : ClusterPath, MixedPath, FeaturePath or CutPath
            From ``cluster_path``, ``feature_path`` or ``cut_path``, or ``path_`` of an estimator.
        panels : sequence of str, default=None
            See :meth:`plot`.
        ax : Axes, default=None
            See :meth:`plot`.

        Returns
        -------
        display : PathDisplay
            The display, after drawing.
        """
        names = ("counts", "error", "lam_low", "lam_high", "criterion", "best")
        if not all(hasattr(path, name) for name in names):
            raise TypeError(
                "path must be what cluster_path, feature_path or cut_path returned, got "
                f"{type(path).__name__}"
            )
        return cls(path=path).plot(ax, panels=panels)

    def plot(self, ax: "Axes | None" = None, *, panels: Sequence[str] | None = None) -> Self:
        """Draw the panels of a path.

        Parameters
        ----------
        ax : Axes, default=None
            Axes that the panels divide among themselves, best in a figure with
            ``layout="constrained"``. None makes a new figure.
        panels : sequence of str, default=None
            Panels to draw, from above: "criterion", "error" and "ranges" (of lam for which each
            number is best). None: these three, the criterion only if there is one.

        Returns
        -------
        self : PathDisplay
            With ``ax_``, ``axes_`` and ``figure_``.
        """
        path, certainty = self.path, certainty_of(self.path)
        has_criterion = path.criterion is not None and bool(np.isfinite(path.criterion).any())
        if panels is None:
            panels = tuple(PANEL_HEIGHTS)[0 if has_criterion else 1 :]
        if isinstance(panels, str) or not panels or not set(panels) <= set(PANEL_HEIGHTS):
            raise ValueError(f"panels must be some of {tuple(PANEL_HEIGHTS)}, got {panels!r}")
        if "criterion" in panels and not has_criterion:
            raise ValueError("panels must not have 'criterion': this path has none")
        heights = [PANEL_HEIGHTS[panel] for panel in panels]
        host = self._make_axes(ax, (6.0, 0.7 + 1.15 * max(sum(heights), 3)))
        self.axes_ = [host]
        from matplotlib.ticker import MaxNLocator

        if len(panels) > 1:
            grid = divide_axes(host, len(panels), 1, height_ratios=heights)
            self.axes_ = [self.figure_.add_subplot(grid[i]) for i in range(len(panels))]
        index = None
        if path.best is not None:
            index = int(np.searchsorted(path.counts, path.best))
        for panel, panel_ax in zip(panels, self.axes_, strict=True):
            panel_ax.spines[["top", "right"]].set_visible(False)
            panel_ax.set_axisbelow(True)
            getattr(self, f"_draw_{panel}")(panel_ax, index)
            if path.best is not None:
                panel_ax.axvline(path.best, color=RED, linewidth=0.8, alpha=0.5, zorder=0)
            panel_ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
            panel_ax.set_xlim(path.counts[0] - 0.6, path.counts[-1] + 0.6)
            panel_ax.grid(axis="y", color="#eeeeee", linewidth=0.7)
            panel_ax.tick_params(labelbottom=panel_ax is self.axes_[-1])
        if self.axes_[0].get_legend_handles_labels()[1]:
            self.axes_[0].legend(frameon=False, fontsize=8)
        write_label(self.axes_[-1], "x", f"K, {path.count_name}")
        if certainty:
            write_title(self.axes_[0], f"K = {path.best}, {certainty}")
        return self

    @property
    def _dot_size(self):
        return float(np.clip(1500 / len(self.path.counts), 4, 36))

    def _mark_best(self, ax, index, values, label):
        ring = {"facecolors": "none", "edgecolors": RED, "linewidths": 2}
        ax.scatter(self.path.best, values[index], s=150, label=label, zorder=3, **ring)

    def _draw_criterion(self, ax, index):
        """Draw the criterion above its lowest value."""
        from matplotlib.ticker import FuncFormatter, NullLocator

        path = self.path
        finite = np.isfinite(path.criterion)
        above_lowest = path.criterion - path.criterion[finite].min()
        K = path.counts[finite]
        ax.plot(K, above_lowest[finite], color=BLUE, linewidth=1.2, zorder=1)
        ax.scatter(K, above_lowest[finite], s=self._dot_size, color=BLUE, zorder=2)
        tie, top = getattr(path, "tie", 0.0), above_lowest[finite].max()
        scale = tie or 1.0
        # ties lie in the linear part of the scale
        ax.set_yscale("symlog", linthresh=scale, linscale=0.5)
        if tie:
            ax.axhspan(0, scale, color="#eeeeee", label="about as good", zorder=0)
        ax.set_ylim(-0.35 * scale, max(2 * scale, 2 * top))
        few_ticks = top >= 100 * scale or size_in_points(ax)[1] < 90
        steps = (1,) if few_ticks else (1, 2, 5)
        ticks = [step * 10.0**i for i in range(16) for step in steps]
        ax.set_yticks([0.0, *(tick for tick in ticks if scale < tick < 2 * top)])
        ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
        ax.yaxis.set_minor_locator(NullLocator())
        write_label(ax, "y", "criterion above the lowest")
        if index is not None and finite[index]:
            self._mark_best(ax, index, above_lowest, f"K = {path.best:,}, chosen")

    def _draw_error(self, ax, index):
        """Draw the error of each number, filled if it is best for some lam."""
        path = self.path
        best = path.lam_low < path.lam_high
        ax.plot(path.counts, path.error, color=BLUE, linewidth=1.2, zorder=1)
        dots = {"s": self._dot_size, "edgecolors": BLUE, "linewidths": 1.0, "zorder": 2}
        some = path.counts[best], path.error[best]
        ax.scatter(*some, color=BLUE, label="best for some lam", **dots)
        if not best.all():
            none = path.counts[~best], path.error[~best]
            ax.scatter(*none, facecolors="white", label="best for no lam", **dots)
        chosen = path.criterion is not None and np.isfinite(path.criterion).any()
        reason = "chosen" if chosen else "widest range of lam"
        if index is not None:
            words = f"K = {path.best:,}{',' if chosen else ':'} {reason}"
            self._mark_best(ax, index, path.error, words)
        use_log_scale(ax, path.error)
        write_label(ax, "y", path.error_name)

    def _limits(self):
        """Finite limits of the scale for the ranges, and whether it is logarithmic."""
        path = self.path
        shown = path.lam_low < path.lam_high
        ends = np.concatenate([path.lam_low[shown], path.lam_high[shown]])
        ends = ends[np.isfinite(ends)]
        if (ends < 0).any():  # penalties of graphs are negative
            margin = 0.03 * np.ptp(ends) or 0.5
            return ends.min() - margin, ends.max() + margin, False
        ends = ends[ends > 0]
        smallest, largest = (ends.min() / 2, 2 * ends.max()) if len(ends) else (0.5, 2.0)
        return smallest, largest, True

    def _draw_ranges(self, ax, index):
        """Draw the range of lam of each number as a vertical line."""
        path = self.path
        K, shown = path.counts, path.lam_low < path.lam_high
        smallest, largest, log = self._limits()
        begin, end = np.maximum(path.lam_low, smallest), np.minimum(path.lam_high, largest)
        width = float(np.clip(300 / len(K), 1, 9))
        is_best = np.zeros(len(K), dtype=bool) if index is None else np.arange(len(K)) == index
        for color, selected in ((BLUE, shown & ~is_best), (RED, shown & is_best)):
            ax.vlines(K[selected], begin[selected], end[selected], color=color, linewidth=width)
        ax.set_ylim(smallest, largest)
        if log:
            use_log_scale(ax, np.array([smallest, largest]))
        write_label(ax, "y", "lam for which K is best")


def use_log_scale(axes, values):
    """Give the y axis a log scale with plain numbers, unless some values are not positive.

    As many ticks are set as fit the axis.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    values = np.asarray(values, dtype=np.float64)
    if not len(values) or not (values > 0).all():
        return
    axes.set_yscale("log")
    most = max(2, int(size_in_points(axes)[1] / 16))
    decades = np.log10(values.max()) - np.log10(values.min())
    if decades < 0.5:
        axes.yaxis.set_major_locator(MaxNLocator(min(most, 5)))
    elif decades <= 1.3 or 3 * decades <= most:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=99))
    else:
        axes.yaxis.set_major_locator(LogLocator(numticks=most))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.6g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
