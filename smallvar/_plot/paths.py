"""The display of paths: criterion, error and ranges of lam over the number of clusters."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from smallvar._plot.base import (
    BLUE,
    RED,
    Display,
    certainty_of,
    divide_axes,
    size_in_points,
    write_label,
    write_legend,
    write_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = ("criterion", "error", "ranges", "steps")
PANEL_HEIGHTS = {"criterion": 3, "error": 2, "ranges": 2, "steps": 3}


@dataclass(kw_only=True, eq=False, repr=False)
class PathDisplay(Display):  # numpydoc ignore=PR02
    """Criterion, error and ranges of the penalty over the number of clusters or features.

    Create it by :meth:`from_path` or :meth:`from_estimator`.

    Parameters
    ----------
    counts : ndarray of shape (n_path,)
        The numbers K, ascending.
    error : ndarray of shape (n_path,)
        The error for each number.
    lam_low, lam_high : ndarray of shape (n_path,)
        The range of penalties for which each number is best.
    criterion : ndarray of shape (n_path,), default=None
        The criterion for each number, lower is better; not finite where it is not known.
    best : int, default=None
        The number to mark.
    tie : float, default=0.0
        Smaller differences of the criterion are ties; its scale is linear up to there and
        logarithmic beyond.
    count_name, error_name : str
        Names of the numbers and of the errors.
    certainty : str, default=""
        Whether the best number is clear, for the title.

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
    cluster_path : The path of clusters; its ``linkage`` is drawn by SciPy's ``dendrogram``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from smallvar import PathDisplay, cluster_path
    >>> display = PathDisplay.from_path(cluster_path(load_iris().data, random_state=0))
    >>> [ax.get_ylabel() for ax in display.axes_]
    ['criterion above the lowest', 'SSE, in squared data units', 'lam for which K is best']
    """

    axes_: "list[Axes]" = field(init=False)

    counts: NDArray[np.intp]
    error: NDArray[np.float64]
    lam_low: NDArray[np.float64]
    lam_high: NDArray[np.float64]
    criterion: NDArray[np.float64] | None = None
    best: int | None = None
    tie: float = 0.0
    count_name: str = "number of clusters"
    error_name: str = "SSE, in squared data units"
    certainty: str = ""

    @classmethod
    def from_path(
        cls,
        path: Any,
        *,
        panels: Sequence[str] | None = None,
        ax: "Axes | Sequence[Axes] | None" = None,
    ) -> Self:
        """Draw a path.

        Parameters
        ----------
        path : ClusterPath, FeaturePath or CutPath
            From ``cluster_path``, ``feature_path`` or ``cut_path``.
        panels : sequence of str, default=None
            See :meth:`plot`.
        ax : Axes or sequence of Axes, default=None
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
        display = cls(
            **{name: getattr(path, name) for name in names},
            tie=getattr(path, "tie", 0.0),
            count_name=path.count_name,
            error_name=path.error_name,
            certainty=certainty_of(path),
        )
        return display.plot(ax, panels=panels)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        panels: Sequence[str] | None = None,
        ax: "Axes | Sequence[Axes] | None" = None,
    ) -> Self:
        """Draw the path on which an estimator found its number of clusters.

        Parameters
        ----------
        estimator : estimator with ``path_``
            Fitted, for instance with ``lam="auto"``.
        panels : sequence of str, default=None
            See :meth:`plot`.
        ax : Axes or sequence of Axes, default=None
            See :meth:`plot`.

        Returns
        -------
        display : PathDisplay
            The display, after drawing.
        """
        return cls.from_path(_path_of(estimator), panels=panels, ax=ax)

    def plot(
        self,
        ax: "Axes | Sequence[Axes] | None" = None,
        *,
        panels: Sequence[str] | None = None,
    ) -> Self:
        """Draw the panels of a path.

        Parameters
        ----------
        ax : Axes or sequence of Axes, default=None
            Axes that the panels divide among themselves (best in a figure with
            ``layout="constrained"``), or axes for each panel. None makes a new figure.
        panels : sequence of str, default=None
            Panels to draw, from above: "criterion", "error" and "ranges" are over K, "steps" is the
            best K over lam. None: the first three, or, if there is no criterion, "error" and
            "steps".

        Returns
        -------
        self : PathDisplay
            With ``ax_``, ``axes_`` and ``figure_``.
        """
        has_criterion = self.criterion is not None and bool(np.isfinite(self.criterion).any())
        if panels is None:
            panels = ("criterion", "error", "ranges") if has_criterion else ("error", "steps")
        if isinstance(panels, str) or not panels or not set(panels) <= set(PANELS):
            raise ValueError(f"panels must be some of {PANELS}, got {panels!r}")
        if "criterion" in panels and not has_criterion:
            raise ValueError("panels must not have 'criterion': this path has none")
        if ax is None or not isinstance(ax, (list, tuple, np.ndarray)):
            heights = [PANEL_HEIGHTS[panel] for panel in panels]
            host = self._make_axes(ax, (6.0, 0.7 + 1.15 * max(sum(heights), 3)))
            if len(panels) == 1:
                self.axes_ = [host]
            else:
                grid = divide_axes(host, len(panels), 1, height_ratios=heights)
                self.axes_ = [self.figure_.add_subplot(grid[i]) for i in range(len(panels))]
        else:
            axes = list(np.ravel(np.asarray(ax, dtype=object)))
            if len(axes) != len(panels):
                raise ValueError(
                    f"ax must be Axes for each of {len(panels)} panels, got {len(axes)}"
                )
            for panel_ax in axes:
                self._make_axes(panel_ax, None)
            self.axes_ = axes
            self._make_axes(axes[0], None)
        index = None
        if self.best is not None:
            index = int(np.searchsorted(self.counts, self.best))
        for panel, panel_ax in zip(panels, self.axes_, strict=True):
            panel_ax.spines[["top", "right"]].set_visible(False)
            panel_ax.set_axisbelow(True)
            getattr(self, f"_draw_{panel}")(panel_ax, index, panel_ax is self.axes_[0])
        if self.certainty:
            write_title(self.axes_[0], f"K = {self.best}, {self.certainty}")
        over_counts = [
            panel_ax for panel, panel_ax in zip(panels, self.axes_, strict=True) if panel != "steps"
        ]
        for panel_ax in over_counts:
            is_lowest = panel_ax is over_counts[-1]
            panel_ax.tick_params(labelbottom=is_lowest)
            if is_lowest:
                write_label(panel_ax, "x", f"K, {self.count_name}")
        return self

    def _format_counts(self, ax):
        """Set ticks, limits and grid of an axis of numbers K, and mark the best one."""
        from matplotlib.ticker import MaxNLocator

        if self.best is not None:
            ax.axvline(self.best, color=RED, linewidth=0.8, alpha=0.5, zorder=0)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        ax.set_xlim(self.counts[0] - 0.6, self.counts[-1] + 0.6)
        ax.grid(axis="y", color="#eeeeee", linewidth=0.7)

    @property
    def _dot_size(self):
        return float(np.clip(1500 / len(self.counts), 4, 36))

    def _mark_best(self, ax, index, values, label):
        ring = {"facecolors": "none", "edgecolors": RED, "linewidths": 2}
        ax.scatter(self.best, values[index], s=150, label=label, zorder=3, **ring)

    def _draw_criterion(self, ax, index, first):
        """Draw the criterion above its lowest value."""
        from matplotlib.ticker import FuncFormatter, NullLocator

        finite = np.isfinite(self.criterion)
        above_lowest = self.criterion - self.criterion[finite].min()
        K = self.counts[finite]
        ax.plot(K, above_lowest[finite], color=BLUE, linewidth=1.2, zorder=1)
        ax.scatter(K, above_lowest[finite], s=self._dot_size, color=BLUE, zorder=2)
        scale, top = self.tie or 1.0, above_lowest[finite].max()
        # ties lie in the linear part of the scale
        ax.set_yscale("symlog", linthresh=scale, linscale=0.5)
        if self.tie:
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
            self._mark_best(ax, index, above_lowest, f"K = {self.best:,}, chosen")
        write_legend(ax)
        self._format_counts(ax)

    def _draw_error(self, ax, index, first):
        """Draw the error of each number, filled if it is best for some lam."""
        best = self.lam_low < self.lam_high
        ax.plot(self.counts, self.error, color=BLUE, linewidth=1.2, zorder=1)
        dots = {"s": self._dot_size, "edgecolors": BLUE, "linewidths": 1.0, "zorder": 2}
        ax.scatter(
            self.counts[best], self.error[best], color=BLUE, label="best for some lam", **dots
        )
        if not best.all():
            ax.scatter(
                *(self.counts[~best], self.error[~best]),
                facecolors="white",
                label="best for no lam",
                **dots,
            )
        chosen = self.criterion is not None and np.isfinite(self.criterion).any()
        reason = "chosen" if chosen else "widest range of lam"
        if index is not None:
            self._mark_best(
                ax, index, self.error, f"K = {self.best:,}{',' if chosen else ':'} {reason}"
            )
        use_log_scale(ax, self.error)
        write_label(ax, "y", self.error_name)
        if first:
            write_legend(ax)
        self._format_counts(ax)

    def _limits(self):
        """Finite limits of the scale for the ranges, and whether it is logarithmic."""
        shown = self.lam_low < self.lam_high
        ends = np.concatenate([self.lam_low[shown], self.lam_high[shown]])
        ends = ends[np.isfinite(ends)]
        if (ends < 0).any():  # penalties of graphs are negative
            margin = 0.03 * np.ptp(ends) or 0.5
            return ends.min() - margin, ends.max() + margin, False
        ends = ends[ends > 0]
        smallest, largest = (ends.min() / 2, 2 * ends.max()) if len(ends) else (0.5, 2.0)
        return smallest, largest, True

    def _draw_ranges(self, ax, index, first):
        """Draw the range of lam of each number as a vertical line."""
        K, shown = self.counts, self.lam_low < self.lam_high
        smallest, largest, log = self._limits()
        begin, end = np.maximum(self.lam_low, smallest), np.minimum(self.lam_high, largest)
        width = float(np.clip(300 / len(K), 1, 9))
        is_best = np.zeros(len(K), dtype=bool) if index is None else np.arange(len(K)) == index
        for color, selected in ((BLUE, shown & ~is_best), (RED, shown & is_best)):
            ax.vlines(K[selected], begin[selected], end[selected], color=color, linewidth=width)
        ax.set_ylim(smallest, largest)
        if log:
            use_log_scale(ax, np.array([smallest, largest]))
        write_label(ax, "y", "lam for which K is best")
        self._format_counts(ax)

    def _draw_steps(self, ax, index, first):
        """Draw the best number over lam as steps."""
        from matplotlib.ticker import MaxNLocator

        shown = np.flatnonzero(self.lam_low < self.lam_high)
        smallest, largest, log = self._limits()
        begin = np.maximum(self.lam_low[shown], smallest)
        end = np.minimum(self.lam_high[shown], largest)
        K = self.counts[shown]
        ax.hlines(K, begin, end, color=BLUE, linewidth=2.5 if len(K) <= 50 else 1.5)
        ax.vlines(begin[:-1], K[:-1], K[1:], color=BLUE, linewidth=0.7)
        if index is not None and index in shown:
            low, high = (
                max(self.lam_low[index], smallest),
                min(self.lam_high[index], largest),
            )
            ax.hlines(
                self.best,
                *(low, high),
                color=RED,
                linewidth=4,
                zorder=3,
                label=f"K = {self.best:,}: lam from {low:.3g} to {high:.3g}",
            )
            ax.axvspan(low, high, color="#f4f4f4", zorder=0)
            write_legend(ax)
        if log:
            ax.set_xscale("log")
        ax.set_xlim(smallest, largest)
        if len(K) and K[-1] > 40 and K[0] > 0:
            use_log_scale(ax, K)
        else:
            ax.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        ax.grid(axis="y", color="#eeeeee", linewidth=0.7)
        write_label(ax, "x", "lam, in units of the error")
        write_label(ax, "y", f"best {self.count_name}")


def _path_of(estimator):
    """The ``path_`` of an estimator; raises a ValueError if it has none."""
    path = getattr(estimator, "path_", None)
    if path is None:
        raise ValueError(
            f"this {type(estimator).__name__} has no path_: it must be fitted, with lam='auto' or "
            "algorithm='merge'"
        )
    return path


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
