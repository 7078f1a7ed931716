"""The display of data sets that share clusters: which data set uses which cluster."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smallvar._core.row_names import names_of_rows, several_kinds
from smallvar._plot.base import (
    Display,
    check_labels,
    count_text,
    fitted_labels,
    size_in_points,
    thin_ticks,
    write_label,
    write_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(kw_only=True, eq=False, repr=False)
class GroupDisplay(Display):  # numpydoc ignore=PR02
    """Picture of which data set uses which cluster, and with which share of its rows.

    Clusters that most data sets share come first. Create it by :meth:`from_estimator` or
    :meth:`from_predictions`.

    Parameters
    ----------
    counts : ndarray of shape (n_groups, n_clusters)
        Rows of each data set in each cluster.
    groups : ndarray of shape (n_groups,)
        Names of the data sets.
    labels : ndarray of shape (n_clusters,), default=None
        The labels of the clusters; None: 0, 1 and so on.

    Attributes
    ----------
    ax_ : Axes
        Axes that were drawn on.
    figure_ : Figure
        Figure of the axes.

    See Also
    --------
    HDPMeans : Clusters that data sets share.

    Examples
    --------
    >>> from smallvar import GroupDisplay
    >>> display = GroupDisplay.from_predictions([0, 1, 1, 1, 2], ["a", "a", "b", "b", "b"])
    >>> display.counts
    array([[1, 1, 0],
           [0, 2, 1]])
    """

    counts: NDArray[np.int64]
    groups: NDArray[Any]
    labels: NDArray[np.int64] | None = None

    @classmethod
    def from_estimator(cls, estimator: Any, groups: ArrayLike, *, ax: "Axes | None" = None) -> Self:
        """Draw the data sets of a fitted estimator.

        Parameters
        ----------
        estimator : HDPMeans, KernelHDPMeans, or any with ``labels_``
            The fitted estimator.
        groups : array-like of shape (n_samples,)
            The data set of each row, as it was given to ``fit``.
        ax : Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        display : GroupDisplay
            The display, after drawing.
        """
        n = len(np.asarray(groups).ravel())
        labels = fitted_labels(estimator, n, "groups must have one entry for each of them")
        return cls.from_predictions(labels, groups, ax=ax)

    @classmethod
    def from_predictions(
        cls, labels: ArrayLike, groups: ArrayLike, *, ax: "Axes | None" = None
    ) -> Self:
        """Draw labels of rows that are from several data sets.

        Parameters
        ----------
        labels : array-like of shape (n_samples,)
            The cluster of each row; negative ones are left out.
        groups : array-like of shape (n_samples,)
            The data set of each row: numbers or strings.
        ax : Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        display : GroupDisplay
            The display, after drawing.
        """
        n = np.asarray(groups, dtype=object).shape[:1]
        if n in ((), (0,)):
            raise ValueError("groups must be one-dimensional and not empty")
        sets = names_of_rows(groups, "groups", n[0])
        all_labels = check_labels(labels, len(sets))
        try:
            names, group = np.unique(sets, return_inverse=True)
        except TypeError:
            raise several_kinds("groups", {type(name) for name in sets.tolist()}) from None
        kept = all_labels >= 0
        clusters, column = np.unique(all_labels[kept], return_inverse=True)
        counts = np.zeros((len(names), len(clusters)), dtype=np.int64)
        np.add.at(counts, (group[kept], column), 1)
        return cls(counts=counts, groups=names, labels=clusters).plot(ax)

    def plot(self, ax: "Axes | None" = None) -> Self:
        """Draw the matrix of data sets and clusters.

        Parameters
        ----------
        ax : Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        self : GroupDisplay
            With ``ax_`` and ``figure_``.
        """
        m, k = self.counts.shape
        if not k:
            raise ValueError("counts must have a column for at least one cluster, got none")
        ax = self._make_axes(ax, (6, 4))
        labels = np.arange(k) if self.labels is None else self.labels
        used = self.counts > 0
        # clusters used by most data sets first, then the largest
        order = np.lexsort([np.arange(k), -self.counts.sum(axis=0), -used.sum(axis=0)])
        total = np.maximum(self.counts.sum(axis=1, keepdims=True), 1)
        shares = (self.counts / total)[:, order]
        from matplotlib.colors import Colormap, LinearSegmentedColormap, PowerNorm

        top = float(shares.max()) or 1.0
        colors: Colormap = LinearSegmentedColormap.from_list(
            "shares", ["#c6dbef", "#4292c6", "#08306b"]
        )
        colors = colors.with_extremes(bad="white")
        image = ax.imshow(
            np.ma.masked_equal(shares, 0.0),
            cmap=colors,
            norm=PowerNorm(0.5, 0.0, top),  # so that small shares are visible
            aspect="auto",
            interpolation="nearest",
        )
        ax.set_facecolor("white")
        cluster_names = [str(labels[i]) for i in order]
        ax.set_xticks(*thin_ticks(ax, cluster_names, "x"), size=8)
        names = [name if len(name) <= 20 else f"{name[:17]}..." for name in map(str, self.groups)]
        positions, tick_names = thin_ticks(ax, names, "y")
        ax.set_yticks(positions, tick_names, size=8)
        for text in ax.get_yticklabels():
            text.set_parse_math(False)
        width, height = size_in_points(ax)
        if width / k > 26 and height / m > 12:
            for i, j in zip(*np.nonzero(shares), strict=True):
                ax.text(
                    *(j, i, f"{self.counts[i, order[j]]:,}"),
                    size=7,
                    ha="center",
                    va="center",
                    color="white" if shares[i, j] > 0.25 * top else "black",
                )
        write_label(ax, "x", "cluster, by how many data sets use it")
        ax.set_ylabel("data set")
        ticks = [tick for tick in (0.01, 0.03, 0.1, 0.3) if top / 300 < tick < top / 1.5]
        ticks.append(top)
        bar = self.figure_.colorbar(image, ax=ax, pad=0.02, aspect=30, ticks=ticks)
        bar.ax.set_yticklabels([f"{tick:.3g}%" for tick in 100 * np.array(ticks)], size=8)
        bar.outline.set_visible(False)
        bar.set_label("share of its rows (white: none)", size=8)
        shared = int((used.sum(axis=0) > 1).sum())
        write_title(
            ax,
            f"{count_text(m, 'data set')}, {count_text(k, 'cluster')}\n"
            f"{shared:,} shared by two or more, {used.sum() / m:.3g} in each on average",
        )
        return self
