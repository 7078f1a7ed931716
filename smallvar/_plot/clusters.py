"""Points and centers in two dimensions."""

import numpy as np

CENTERS_NUMBERED = 40  # centers up to which each has its number


def draw_clusters(axes, points, labels, centers, rng):
    """Draw points in the colors of their clusters, and the centers.

    Parameters
    ----------
    axes : Axes
        What to draw on.
    points, centers : ndarray of shape (n, 2) and (k, 2)
        Where they are.
    labels : ndarray of shape (n,)
        The cluster of each point.
    rng : numpy.random.Generator
        Draws the order of the points, so that no cluster is drawn over all others.

    Returns
    -------
    numbered : bool
        Whether the centers show their numbers; of many, they are dots.
    """
    k = len(centers)
    colors, order = cluster_colors(k), rng.permutation(len(points))
    axes.scatter(
        *points[order].T,
        s=float(np.clip(40_000 / len(points), 2, 30)),
        color=colors[labels[order]],
        alpha=0.7,
        linewidths=0,
        rasterized=True,
    )
    numbered = k <= CENTERS_NUMBERED
    axes.scatter(
        *centers.T,
        s=130 if numbered else 22,
        marker="o",
        color="white" if numbered else colors,
        edgecolors="black",
        linewidths=0.9,
        zorder=3,
    )
    if numbered:
        for label, (x, y) in enumerate(centers):
            axes.text(x, y, label, size=7, ha="center", va="center_baseline", zorder=4)
    axes.spines[["top", "right"]].set_visible(False)
    return numbered


def project(points, centers, titles):
    """Find coordinates in two dimensions.

    Parameters
    ----------
    points, centers : ndarray of shape (n, d) and (k, d)
        The data and the centers.
    titles : list of str
        What to call the columns.

    Returns
    -------
    points, centers : ndarray of shape (n, 2) and (k, 2)
        Their coordinates in the picture.
    axis_titles : list of str
        What the two axes show.
    """
    axis_titles = [f"column {title}" if title.isdigit() else title for title in titles]
    if len(titles) == 1:
        x = points[:, 0]
        bins = np.linspace(x.min(), x.max(), 81)[1:-1].searchsorted(x)
        order = np.argsort(bins, kind="stable")
        stacked = np.empty(len(x))  # the place of each point within its bin, from 1
        stacked[order] = np.arange(1, len(x) + 1) - bins[order].searchsorted(bins[order])
        return (
            np.column_stack([x, stacked]),
            np.column_stack([centers[:, 0], np.full(len(centers), -0.04 * stacked.max())]),
            [*axis_titles, "points per bin"],
        )
    if len(titles) == 2:
        return points, centers, axis_titles

    from sklearn.decomposition import PCA

    if len(points) == 1:  # no directions to be had from one point
        return points[:, :2], centers[:, :2], axis_titles[:2]
    origin = points.mean(axis=0)  # far from zero, squares would cancel
    points = points - origin
    pca = PCA(n_components=2, random_state=0)
    with np.errstate(invalid="ignore"):  # 0 / 0 where all points are one
        points = pca.fit_transform(points)
    axis_titles = [
        f"principal component {i + 1} ({share:.0%} of the variance)"
        for i, share in enumerate(np.nan_to_num(pca.explained_variance_ratio_))
    ]
    return points, pca.transform(centers - origin), axis_titles


def cluster_colors(k):
    """Choose one color per cluster, neighbors in number far apart in hue."""
    from matplotlib.colors import hsv_to_rgb, to_rgb

    if k <= 10:
        palette = "#4477aa #ee6677 #228833 #ccbb44 #66ccee #aa3377 #ff8c1a #44bb99 #7755cc #8c564b"
        return np.array([to_rgb(color) for color in palette.split()[:k]])
    i = np.arange(k)
    hue = i * 0.6180339887498949 % 1  # multiples of the golden ratio never crowd
    saturation = np.take([0.85, 0.55, 0.95], i % 3)
    value = np.take([0.8, 0.7, 0.55], i % 3)
    return hsv_to_rgb(np.column_stack([hue, saturation, value]))
