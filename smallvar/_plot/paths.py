"""Errors, criteria and ranges of lam over the number of clusters or features."""

import numpy as np

BLUE, RED = "#4477aa", "#ee6677"


def draw_feature_path(axes, counts, error, chosen, best=None):
    """Draw the squared error over the number of features, on a log scale unless one is 0.

    Parameters
    ----------
    axes : Axes
        What to draw on.
    counts, error : ndarray of shape (m,)
        Numbers of features from 0 on, and the squared error of each.
    chosen : ndarray of bool of shape (m,)
        Which are the best for some lam.
    best : int, optional
        The number to mark.
    """
    axes.plot(counts, error, color="#4477aa", linewidth=1.2, zorder=1)
    axes.scatter(counts[chosen], error[chosen], s=36, color="#4477aa", label="best for some lam")
    if not chosen.all():
        axes.scatter(
            counts[~chosen],
            error[~chosen],
            s=36,
            facecolors="white",
            edgecolors="#4477aa",
            label="best for no lam",
        )
    if best is not None:
        axes.scatter(
            best,
            error[best],
            s=150,
            facecolors="none",
            edgecolors="#ee6677",
            linewidths=2,
            label=f"K = {best}: best for the widest range of lam",
        )
    logarithmic(axes, error)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", which="both", color="#eeeeee", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("K, number of features")
    axes.set_ylabel("squared error")
    axes.legend(frameon=False)


def draw_merge_path(panels, K, behind, errors, low, high, best, tie):
    """Draw criterion, SSE and ranges of lam over the number of clusters.

    Parameters
    ----------
    panels : sequence of three Axes
        What to draw on, from above.
    K, behind, errors, low, high : ndarray of shape (m,)
        Numbers of clusters in rising order; for each the criterion above the lowest one (not
        finite where it is not known), the SSE, and the range of lam for which it is best.
    best : int
        The number to mark.
    tie : float
        Differences of the criterion that are none; its scale is linear up to there and
        logarithmic beyond.
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

    (above, middle, below), blue, red = panels, BLUE, RED
    size = float(np.clip(1500 / len(K), 4, 36))
    known = np.isfinite(behind)
    above.plot(K[known], behind[known], color=blue, linewidth=1.2, zorder=1)
    above.scatter(K[known], behind[known], s=size, color=blue, zorder=2)
    scale, top = tie or 1.0, behind[known].max()
    above.set_yscale("symlog", linthresh=scale, linscale=0.5)
    if tie:
        above.axhspan(0, scale, color="#eeeeee", label=f"a tie: up to {scale:.1f}", zorder=0)
    above.set_ylim(-0.35 * scale, max(2 * scale, 2 * top))
    steps = (1, 2, 5) if top < 100 * scale else (1,)
    ticks = [step * 10.0**i for i in range(16) for step in steps]
    above.set_yticks([0.0, *(tick for tick in ticks if scale < tick < 2 * top)])
    above.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
    above.yaxis.set_minor_locator(NullLocator())
    above.set_ylabel("criterion above the lowest")

    middle.plot(K, errors, color=blue, linewidth=1.2, zorder=1)
    middle.scatter(K, errors, s=size, color=blue, zorder=2)
    logarithmic(middle, errors)
    middle.set_ylabel("SSE")

    shown = low < high
    ends = np.concatenate([low[shown], high[shown]])
    ends = ends[(ends > 0) & np.isfinite(ends)]
    least, most = (ends.min() / 2, 2 * ends.max()) if len(ends) else (0.5, 2.0)
    begin, end = np.maximum(low, least), np.minimum(high, most)
    width = float(np.clip(300 / len(K), 1, 9))
    for color, some in ((blue, shown & (best != K)), (red, shown & (best == K))):
        below.vlines(K[some], begin[some], end[some], color=color, linewidth=width)
    below.set_ylim(least, most)
    logarithmic(below, np.array([least, most]))
    below.set_ylabel("lam for which K is best")
    below.set_xlabel("K, number of clusters")

    at = K.searchsorted(best)
    for axes, values in ((above, behind), (middle, errors)):
        chosen = f"K = {best:,}, chosen"
        ring = {"facecolors": "none", "edgecolors": red, "linewidths": 2}
        axes.scatter(best, values[at], s=150, label=chosen, zorder=3, **ring)
    above.legend(frameon=False)
    for axes in (above, middle, below):
        axes.axvline(best, color=red, linewidth=0.8, alpha=0.5, zorder=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_xlim(K[0] - 0.6, K[-1] + 0.6)
        axes.grid(axis="y", color="#eeeeee", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)


def logarithmic(axes, values):
    """Give a y-axis a log scale with plain numbers, unless there is a 0 among the values."""
    from matplotlib.ticker import LogFormatter

    if values.all():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(LogFormatter())
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
