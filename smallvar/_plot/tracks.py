"""The ways of clusters over time."""

import numpy as np

TRACKS_NUMBERED = 50  # tracks up to which each has its color and its number


def draw_tracks(axes, ways, steps, paint):
    """Draw tracks, their beginnings and their ends.

    Parameters
    ----------
    axes : Axes
        What to draw on.
    ways, steps : list of ndarray of shape (n_seen, 2) and (n_seen,)
        For each track, where it was and in which steps.
    paint : callable
        Takes positions in the lists and steps, and returns colors.
    """
    from matplotlib.collections import LineCollection

    k = len(ways)
    few, which = k <= TRACKS_NUMBERED, np.arange(k)
    lines = np.concatenate([np.stack([way[:-1], way[1:]], axis=1) for way in ways])
    owner = np.repeat(which, [len(way) - 1 for way in ways])
    color = paint(owner, np.concatenate([at[1:] for at in steps]))
    unseen = np.concatenate([np.diff(at) > 1 for at in steps])
    width = 1.8 if few else float(np.clip(120 / k, 0.6, 1.2))
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
    begins, ends = (np.array([way[i] for way in ways]) for i in (0, -1))
    first, last = (paint(which, np.array([at[i] for at in steps])) for i in (0, -1))
    size = 30 if few else float(np.clip(4000 / k, 6, 20))
    ring = {"facecolors": "white", "linewidths": 1.4 if few else 0.7, "zorder": 3}
    axes.scatter(*begins.T, s=size, edgecolors=first, **ring)
    if not few:
        axes.scatter(*ends.T, s=0.8 * size, color=last, linewidths=0, zorder=4)
        return
    axes.scatter(*ends.T, s=130 if k <= 20 else 95, edgecolors=last, **ring | {"zorder": 4})
    for label, (x, y) in enumerate(ends):
        axes.text(
            x, y, label, size=7 if k <= 20 else 6, ha="center", va="center_baseline", zorder=5
        )


def time_scale(clock):
    """Choose a color for each time, none of them too pale for a white ground."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    colors = ListedColormap(colormaps["plasma"](np.linspace(0, 0.87, 256)))
    return ScalarMappable(Normalize(clock[0], clock[-1]), colors)


def as_numbers(times):
    """Turn times into what matplotlib draws: dates are days from 1970."""
    if times.dtype.kind != "M":
        return times.astype(np.float64)
    from matplotlib.dates import date2num

    return date2num(times)


def show_dates(axis, times):
    """Let an axis show dates if the times are dates."""
    if times.dtype.kind == "M":
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator()
        axis.set_major_locator(locator)
        axis.set_major_formatter(ConciseDateFormatter(locator))
