"""The display of clusters over time: where they moved, or when they were seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smallvar._core.row_names import read_times
from smallvar._core.validation import check_data, check_option
from smallvar._plot.base import (
    Display,
    cluster_colors,
    column_names,
    count_text,
    drawn_rows,
    fitted_labels,
    thin_ticks,
    write_label,
    write_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_NUMBERED_TRACKS = 50  # the largest number of tracks with a color and a number each


@dataclass(kw_only=True, eq=False, repr=False)
class TrackDisplay(Display):  # numpydoc ignore=PR02
    """Picture of clusters over time: where they moved, when they began and were forgotten.

    Two columns are drawn as a plane, one over time; of more, the first two. Create it by
    :meth:`from_estimator`.

    Parameters
    ----------
    tracks : dict of int to ndarray of shape (n_seen, 1 + n_features)
        For each cluster, the steps in which it was seen and its centers.
    times : ndarray of shape (n_steps,)
        The times of the steps: numbers, dates, durations (drawn in seconds) or names.
    deaths : list of ndarray, default=None
        The clusters forgotten at the end of each step.
    points : ndarray of shape (n_drawn, n_features), default=None
        Rows to draw below the tracks.
    point_labels, point_times : ndarray of shape (n_drawn,), default=None
        Clusters and times of these rows.
    feature_names : list of str, default=None
        Names of the columns.
    time_name : str, default="time"
        Name of the time.
    n_samples : int, default=None
        Number of rows, those that are not drawn included.

    Attributes
    ----------
    ax_ : Axes
        Axes that were drawn on.
    figure_ : Figure
        Figure of the axes.

    See Also
    --------
    DynamicMeans : Clusters that move.

    Examples
    --------
    >>> from smallvar import DynamicMeans, TrackDisplay
    >>> model = DynamicMeans(lam=1.0).fit([[0.0], [0.1], [5.0], [0.2]], times=[0, 1, 1, 2])
    >>> display = TrackDisplay.from_estimator(model)
    >>> display.ax_.get_title()
    '3 time steps, 2 clusters, none forgotten\\neach from a ring to its number'
    """

    tracks: Mapping[int, NDArray[np.float64]]
    times: NDArray[Any]
    deaths: Sequence[NDArray[np.int64]] | None = None
    points: NDArray[np.float64] | None = None
    point_labels: NDArray[np.int64] | None = None
    point_times: NDArray[Any] | None = None
    feature_names: list[str] | None = None
    time_name: str = "time"
    n_samples: int | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike | None = None,
        *,
        times: ArrayLike | None = None,
        kind: str = "movement",
        feature_names: ArrayLike | None = None,
        time_name: str = "time",
        max_points: int | None = None,
        ax: "Axes | None" = None,
    ) -> Self:
        """Draw the clusters of a fitted estimator over time.

        Parameters
        ----------
        estimator : DynamicMeans
            Fitted by ``fit``, or by ``partial_fit`` with ``record=True``. Its forms with kernels
            have no centers: only ``kind="lives"`` can be drawn.
        X : array-like of shape (n_samples, n_features), default=None
            Rows to draw below the tracks, those that it was fitted to.
        times : array-like of shape (n_samples,), default=None
            Times of these rows, as they were given to ``fit``; needed for rows of one column.
        kind : {"movement", "lives"}, default="movement"
            See :meth:`plot`.
        feature_names : array-like of shape (n_features,), default=None
            Names of the columns.
        time_name : str, default="time"
            Name of the time.
        max_points : int, default=None
            Draw at most so many rows; None: 50,000.
        ax : Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        display : TrackDisplay
            The display, after drawing.
        """
        if not hasattr(estimator, "tracks_"):
            raise ValueError(
                f"this {type(estimator).__name__} has no tracks_: it must be fitted, by fit or "
                "with record=True"
            )
        tracks = estimator.tracks_
        if not hasattr(estimator, "cluster_centers_"):
            tracks = {label: track[:, :1] for label, track in tracks.items()}
        d = next((track.shape[1] - 1 for track in tracks.values()), 0)
        points: dict[str, Any] = {}
        if X is None and (times is not None or max_points is not None):
            raise ValueError("times and max_points must be None without X: they are of its rows")
        if X is not None and kind == "lives":
            raise ValueError("X must be None with kind='lives': rows are not drawn")
        if X is not None:
            data = check_data(X)
            if d and data.shape[1] != d:
                raise ValueError(f"X must have {d} columns, got {data.shape[1]}")
            labels = fitted_labels(estimator, data.shape[0], "partial_fit keeps those of a step")
            if times is None and d == 1:
                raise ValueError("times must be given with X: one column is drawn over time")
            rows = drawn_rows(data.shape[0], data.shape[1], max_points)
            points = {"points": data[rows].astype(np.float64), "point_labels": labels[rows]}
            points["n_samples"] = data.shape[0]
            if times is not None:
                point_times, levels = read_times(times, len(labels))
                point_times = point_times if levels is None else levels[point_times]
                points["point_times"] = point_times[rows]
        names = getattr(estimator, "feature_names_in_", None)
        given_names = feature_names if feature_names is not None else names
        display = cls(
            tracks=tracks,
            times=np.asarray(estimator.times_),
            deaths=estimator.deaths_,
            feature_names=column_names(X, given_names, d),
            time_name=time_name,
            **points,
        )
        return display.plot(ax, kind=kind)

    def plot(self, ax: "Axes | None" = None, *, kind: str = "movement") -> Self:
        """Draw the clusters over time.

        Parameters
        ----------
        ax : Axes, default=None
            Axes to draw on; None makes a new figure.
        kind : {"movement", "lives"}, default="movement"
            "movement": the positions of each cluster, from a ring to its number, or to a dot if
            there are many; gray if it was forgotten, dotted while it was not seen. "lives": a line
            for each cluster over time, from a ring to a cross where it was forgotten.

        Returns
        -------
        self : TrackDisplay
            With ``ax_`` and ``figure_``.
        """
        check_option(kind, "kind", ("movement", "lives"))
        tracks = self.tracks
        if not tracks:
            raise ValueError("tracks must have at least one cluster, got none")
        d = next(iter(tracks.values())).shape[1] - 1
        if kind == "movement" and not d:
            raise ValueError("kind must be 'lives': there are no centers, got kind='movement'")
        ax = self._make_axes(ax, (6, 4.7))
        ax.spines[["top", "right"]].set_visible(False)
        times = as_plain_times(self.times)
        clock = as_numbers(times, times)
        death_steps = {int(k): i for i, step in enumerate(self.deaths or []) for k in step}
        steps = [track[:, 0].astype(int) for track in tracks.values()]
        forgotten = f"{len(death_steps):,} forgotten" if death_steps else "none forgotten"
        counts = f"{count_text(len(clock), 'time step')}, {count_text(len(tracks), 'cluster')}"
        summary = f"{counts}, {forgotten}"
        if kind == "lives":
            self._draw_lives(ax, clock, steps, death_steps, times)
            marks = "a cross: forgotten; dotted: not seen" if death_steps else "dotted: not seen"
            write_title(ax, f"{summary}\n{marks}")
        else:
            self._draw_movement(ax, clock, steps, death_steps, d, times)
            drawn = 0 if self.points is None else len(self.points)
            drawn_text = ""
            if drawn and self.n_samples and drawn < self.n_samples:
                drawn_text = f"; {drawn:,} of {self.n_samples:,} rows drawn"
            end_mark = "its number" if len(tracks) <= MAX_NUMBERED_TRACKS else "a dot"
            write_title(ax, f"{summary}\neach from a ring to {end_mark}{drawn_text}")
        return self

    def _draw_movement(self, ax, clock, steps, death_steps, d, times):
        """Draw the positions of the clusters, over time if they have one column."""
        tracks, k = self.tracks, len(self.tracks)
        positions = [track[:, 1:3] for track in tracks.values()]
        names = self.feature_names or [f"column {i}" for i in range(d)]
        titles = list(names[:2])
        numbered = k <= MAX_NUMBERED_TRACKS
        by_time = d > 1 and not numbered  # colors show time: there are too many clusters
        colors = np.full((k, 3), 0.6) if by_time else cluster_colors(k)
        points = self.points
        if d == 1:
            positions = [
                np.column_stack([clock[at], centers])
                for at, centers in zip(steps, positions, strict=True)
            ]
            titles = [self.time_name, *titles]
            if points is not None:
                if self.point_times is None:
                    raise ValueError("point_times must be given: one column is drawn over time")
                point_clock = as_numbers(as_plain_times(self.point_times), times)
                points = np.column_stack([point_clock, points])
        if points is not None:
            points = points[:, :2]
            ax.scatter(
                *points.T,
                s=float(np.clip(20_000 / max(len(points), 1), 1, 12)),
                color=self._colors_of_points(colors),
                alpha=0.25,
                linewidths=0,
                rasterized=True,
                zorder=1,
            )
        dead = np.array([int(label) in death_steps for label in tracks])
        if not by_time:
            draw_tracks(ax, positions, steps, lambda which, at: colors[which], dead, list(tracks))
        else:
            scale = time_scale(clock)
            labels = list(tracks)
            draw_tracks(ax, positions, steps, lambda _, at: scale.to_rgba(clock[at]), dead, labels)
            bar = self.figure_.colorbar(scale, ax=ax, aspect=40, pad=0.02)
            bar.outline.set_visible(False)
            bar.set_label(self.time_name, parse_math=False)
            format_time_axis(bar.ax, bar.ax.yaxis, times)
        if d == 1:
            format_time_axis(ax, ax.xaxis, times)
        else:
            everything = np.concatenate(positions if points is None else [*positions, points])
            width, height = np.ptp(everything, axis=0)
            if 1 / 3 < (height or 1) / (width or 1) < 3:
                ax.set_aspect("equal", adjustable="datalim")
        write_label(ax, "x", titles[0])
        write_label(ax, "y", titles[1])

    def _colors_of_points(self, colors):
        """Colors of the points: those of their tracks, light gray if they have none."""
        index_of = {int(label): i for i, label in enumerate(self.tracks)}
        if self.point_labels is None:
            return np.full(3, 0.75)
        index = [index_of.get(int(label), -1) for label in self.point_labels]
        return np.vstack([colors, [[0.75, 0.75, 0.75]]])[index]

    def _draw_lives(self, ax, clock, steps, death_steps, times):
        """Draw a line for each cluster over the steps in which it lived."""
        from matplotlib.collections import LineCollection
        from matplotlib.ticker import MaxNLocator

        labels = list(self.tracks)
        k = len(labels)
        colors = cluster_colors(k) if k <= MAX_NUMBERED_TRACKS else np.full((k, 3), 0.4)
        width = float(np.clip(150 / k, 0.7, 5))
        # lines as (row, first step, last step); a cluster is dotted between steps it was seen in,
        # and from the last one to its death
        solid, dotted, crosses = [], [], []
        for i, (label, at) in enumerate(zip(labels, steps, strict=True)):
            gaps = np.flatnonzero(np.diff(at) > 1)
            for part in np.split(at, gaps + 1):
                solid.append((i, part[0], part[-1]))
            dotted += [(i, at[gap], at[gap + 1]) for gap in gaps]
            if label in death_steps:
                crosses.append((i, death_steps[label]))
                if death_steps[label] > at[-1]:
                    dotted.append((i, at[-1], death_steps[label]))
        for parts, style in ((solid, "solid"), (dotted, (0, (1, 1.2)))):
            ax.add_collection(
                LineCollection(
                    [[(clock[a], i), (clock[b], i)] for i, a, b in parts],
                    colors=[colors[i] for i, _, _ in parts],
                    linewidths=width if style == "solid" else 0.5 * width,
                    linestyles=[style],
                    capstyle="butt",
                )
            )
        size = float(np.clip(2500 / k, 4, 30))
        ax.scatter(
            clock[[at[0] for at in steps]],
            np.arange(k),
            s=size,
            facecolors="white",
            edgecolors=colors,
            linewidths=1.4 if k <= MAX_NUMBERED_TRACKS else 0.6,
            zorder=3,
        )
        if crosses:
            rows, when = np.array(crosses).T
            ax.scatter(clock[when], rows, s=size, marker="x", color="black", linewidths=1, zorder=4)
        if k <= MAX_NUMBERED_TRACKS:
            step = max(1, k // 25)
            ax.set_yticks(np.arange(0, k, step), [str(label) for label in labels[::step]], size=7)
        else:
            ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_ylim(k - 0.4, -0.6)
        margin = 0.03 * (clock[-1] - clock[0]) or 0.5
        ax.set_xlim(clock[0] - margin, clock[-1] + margin)
        write_label(ax, "y", "cluster, in the order of births")
        write_label(ax, "x", self.time_name)
        format_time_axis(ax, ax.xaxis, times)


def draw_tracks(axes, tracks, steps, paint, dead, labels):
    """Draw tracks, their beginnings and their ends.

    Parameters
    ----------
    axes : Axes
        Axes to draw on.
    tracks, steps : list of ndarray of shape (n_seen, 2) and (n_seen,)
        Positions of each track, and the steps in which it was there.
    paint : callable
        ``paint(index, step)`` returns the colors of tracks, given by their index, at steps.
    dead : ndarray of bool of shape (n_tracks,)
        Whether each track was forgotten: its end is gray then.
    labels : list of int
        Numbers of the clusters.
    """
    from matplotlib.collections import LineCollection

    k = len(tracks)
    numbered, index = k <= MAX_NUMBERED_TRACKS, np.arange(k)
    lines = np.concatenate([np.stack([track[:-1], track[1:]], axis=1) for track in tracks])
    owner = np.repeat(index, [len(track) - 1 for track in tracks])
    color = paint(owner, np.concatenate([at[1:] for at in steps]))
    unseen = np.concatenate([np.diff(at) > 1 for at in steps])
    width = 1.8 if numbered else float(np.clip(120 / k, 0.6, 1.2))
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
    first_positions, last_positions = (np.array([track[i] for track in tracks]) for i in (0, -1))
    first, last = (paint(index, np.array([at[i] for at in steps])) for i in (0, -1))
    size = 30 if numbered else float(np.clip(4000 / k, 6, 20))
    ring = {"facecolors": "white", "linewidths": 1.4 if numbered else 0.7, "zorder": 3}
    axes.scatter(*first_positions.T, s=size, edgecolors=first, **ring)
    if not numbered:
        last = np.array(last)
        last[dead, :3] = 0.35
        axes.scatter(*last_positions.T, s=0.8 * size, color=last, linewidths=0, zorder=4)
        return
    ring |= {"zorder": 4, "facecolors": np.where(dead, "lightgray", "white")}
    axes.scatter(*last_positions.T, s=130 if k <= 20 else 95, edgecolors=last, **ring)
    for label, (x, y) in zip(labels, last_positions, strict=True):
        axes.text(
            x, y, label, size=7 if k <= 20 else 6, ha="center", va="center_baseline", zorder=5
        )


def time_scale(clock):
    """Scale from times to colors, none of them too pale on white."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    colors = ListedColormap(colormaps["plasma"](np.linspace(0, 0.87, 256)))
    return ScalarMappable(Normalize(clock[0], clock[-1]), colors)


def as_plain_times(times):
    """Times as an array, with Python's dates as numpy's dates and durations as seconds."""
    times = np.asarray(times)
    if times.dtype.kind == "O" and len(times) and isinstance(times[0], date):
        times = times.astype("datetime64[us]")
    return times / np.timedelta64(1, "s") if times.dtype.kind == "m" else times


def as_numbers(times, step_times):
    """Times as numbers for matplotlib: dates as days since 1970, names by their step.

    ``step_times`` are the times of all steps, in their order.
    """
    if times.dtype.kind == "M":
        from matplotlib.dates import date2num

        return date2num(times)
    if times.dtype.kind in "biuf":
        return times.astype(np.float64)
    step = {time: float(number) for number, time in enumerate(step_times.tolist())}
    return np.array([step.get(time, np.nan) for time in times.tolist()])


def format_time_axis(ax, axis, times):
    """Set the ticks of an axis: dates if the times are dates, names if they are names."""
    if times.dtype.kind == "M":
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator()
        axis.set_major_locator(locator)
        axis.set_major_formatter(ConciseDateFormatter(locator))
    elif times.dtype.kind not in "biuf":
        names = [str(time) for time in times]
        axis.set_ticks(*thin_ticks(ax, names, axis.axis_name))
