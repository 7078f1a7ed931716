"""The display of clusters over time: where they moved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smallvar._core.row_names import read_times
from smallvar._core.validation import check_data
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
    """Picture of clusters over time: where they began, moved and were forgotten.

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
        feature_names: ArrayLike | None = None,
        time_name: str = "time",
        ax: "Axes | None" = None,
    ) -> Self:
        """Draw the clusters of a fitted estimator over time.

        Parameters
        ----------
        estimator : DynamicMeans
            Fitted by ``fit``, or by ``partial_fit`` with ``record=True``.
        X : array-like of shape (n_samples, n_features), default=None
            Rows to draw below the tracks, those that it was fitted to.
        times : array-like of shape (n_samples,), default=None
            Times of these rows, as they were given to ``fit``; needed for rows of one column.
        feature_names : array-like of shape (n_features,), default=None
            Names of the columns.
        time_name : str, default="time"
            Name of the time.
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
        if not hasattr(estimator, "cluster_centers_"):
            raise ValueError(f"{type(estimator).__name__} has no centers that could be drawn")
        tracks = estimator.tracks_
        d = next((track.shape[1] - 1 for track in tracks.values()), 0)
        points: dict[str, Any] = {}
        if X is None and times is not None:
            raise ValueError("times must be None without X: they are of its rows")
        if X is not None:
            data = check_data(X)
            if d and data.shape[1] != d:
                raise ValueError(f"X must have {d} columns, got {data.shape[1]}")
            labels = fitted_labels(estimator, data.shape[0], "partial_fit keeps those of a step")
            if times is None and d == 1:
                raise ValueError("times must be given with X: one column is drawn over time")
            rows = drawn_rows(*data.shape)
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
        return display.plot(ax)

    def plot(self, ax: "Axes | None" = None) -> Self:
        """Draw the positions of the clusters, each from a ring to its number, or to a dot if many.

        A line is dotted while its cluster was not seen, and the end of it is gray if it was
        forgotten.

        Parameters
        ----------
        ax : Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        self : TrackDisplay
            With ``ax_`` and ``figure_``.
        """
        if not self.tracks:
            raise ValueError("tracks must have at least one cluster, got none")
        ax = self._make_axes(ax, (6, 4.7))
        ax.spines[["top", "right"]].set_visible(False)
        dead = {int(label) for step in self.deaths or [] for label in step}
        self._draw_movement(ax, np.array([int(label) in dead for label in self.tracks]))
        forgotten = f"{len(dead):,} forgotten" if dead else "none forgotten"
        clusters = count_text(len(self.tracks), "cluster")
        n, drawn = self.n_samples, 0 if self.points is None else len(self.points)
        drawn_text = f"; {drawn:,} of {n:,} rows drawn" if n and drawn < n else ""
        end_mark = "its number" if len(self.tracks) <= MAX_NUMBERED_TRACKS else "a dot"
        write_title(
            ax,
            f"{count_text(len(self.times), 'time step')}, {clusters}, {forgotten}\n"
            f"each from a ring to {end_mark}{drawn_text}",
        )
        return self

    def _draw_movement(self, ax, dead):
        """Draw the positions of the clusters, over time if they have one column."""
        tracks, k = self.tracks, len(self.tracks)
        d = next(iter(tracks.values())).shape[1] - 1
        steps = [track[:, 0].astype(int) for track in tracks.values()]
        positions = [track[:, 1:3] for track in tracks.values()]
        names = self.feature_names or [f"column {i}" for i in range(d)]
        titles = list(names[:2])
        colors = cluster_colors(k)
        points = self.points
        if d == 1:
            times = as_plain_times(self.times)
            ax.xaxis.update_units(times)  # as matplotlib draws numbers, dates or names
            clock = ax.convert_xunits(times)
            positions = [
                np.column_stack([clock[at], centers])
                for at, centers in zip(steps, positions, strict=True)
            ]
            titles = [self.time_name, *titles]
            if points is not None:
                if self.point_times is None:
                    raise ValueError("point_times must be given: one column is drawn over time")
                point_clock = ax.convert_xunits(as_plain_times(self.point_times))
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
        draw_tracks(ax, positions, steps, colors, dead, list(tracks))
        if d == 1:
            format_time_axis(ax, times)
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


def draw_tracks(axes, tracks, steps, colors, dead, labels):
    """Draw tracks, their beginnings, and their ends, which are gray where they are ``dead``.

    ``tracks`` are the positions of each, (n_seen, 2), and ``steps`` those in which it was there.
    """
    from matplotlib.collections import LineCollection

    k = len(tracks)
    numbered = k <= MAX_NUMBERED_TRACKS
    lines = np.concatenate([np.stack([track[:-1], track[1:]], axis=1) for track in tracks])
    color = np.repeat(colors, [len(track) - 1 for track in tracks], axis=0)
    unseen = np.concatenate([np.diff(at) > 1 for at in steps])
    width = 1.8 if numbered else float(np.clip(120 / k, 0.6, 1.2))
    for chosen, style in ((unseen, (0, (1, 1.2))), (~unseen, "solid")):
        axes.add_collection(
            LineCollection(
                lines[chosen],
                colors=color[chosen],
                linewidths=width,
                linestyles=[style],
                zorder=2,
            )
        )
    first_positions, last_positions = (np.array([track[i] for track in tracks]) for i in (0, -1))
    size = 30 if numbered else float(np.clip(4000 / k, 6, 20))
    ring = {"facecolors": "white", "linewidths": 1.4 if numbered else 0.7, "zorder": 3}
    axes.scatter(*first_positions.T, s=size, edgecolors=colors, **ring)
    if not numbered:
        ends = np.where(dead[:, np.newaxis], 0.35, colors)
        axes.scatter(*last_positions.T, s=0.8 * size, color=ends, linewidths=0, zorder=4)
        return
    ring |= {"zorder": 4, "facecolors": np.where(dead, "lightgray", "white")}
    axes.scatter(*last_positions.T, s=130 if k <= 20 else 95, edgecolors=colors, **ring)
    for label, (x, y) in zip(labels, last_positions, strict=True):
        axes.text(
            x, y, label, size=7 if k <= 20 else 6, ha="center", va="center_baseline", zorder=5
        )


def as_plain_times(times):
    """Times as an array, with Python's dates as numpy's dates and durations as seconds."""
    times = np.asarray(times)
    if times.dtype.kind == "O" and len(times) and isinstance(times[0], date):
        times = times.astype("datetime64[us]")
    return times / np.timedelta64(1, "s") if times.dtype.kind == "m" else times


def format_time_axis(ax, times):
    """Set the ticks of the x axis: dates if the times are dates, names if they are names."""
    if times.dtype.kind == "M":
        from matplotlib.dates import ConciseDateFormatter

        ax.xaxis.set_major_formatter(ConciseDateFormatter(ax.xaxis.get_major_locator()))
    elif times.dtype.kind not in "biuf":
        ax.xaxis.set_ticks(*thin_ticks(ax, [str(time) for time in times], "x"))
