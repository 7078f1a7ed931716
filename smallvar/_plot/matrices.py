"""The display of a kernel or adjacency matrix, its rows and columns sorted by cluster."""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smallvar._core.validation import check_data, check_number
from smallvar._plot.base import (
    Display,
    check_labels,
    count_text,
    drawn_rows,
    fitted_labels,
    size_in_points,
    write_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_KERNEL_ROWS = 2000  # the kernel of more rows is computed for a sample of so many
MAX_PIXELS = 700
MAX_LINED = 60  # the largest number of clusters with lines between them


@dataclass(kw_only=True, eq=False, repr=False)
class GramDisplay(Display):  # numpydoc ignore=PR02
    """A kernel or adjacency matrix, its rows and columns sorted by cluster.

    The largest cluster comes first. Create it by :meth:`from_estimator` or
    :meth:`from_predictions`.

    Parameters
    ----------
    pixels : ndarray of shape (n_pixels, n_pixels)
        The sorted matrix, or means of its blocks.
    sizes : ndarray of shape (n_clusters,)
        Rows of each cluster in the picture, in the order in which they are drawn.
    labels : ndarray of shape (n_clusters,)
        Their labels; -1 are rows without a cluster.
    n_samples : int
        Number of rows, those that are not drawn included.
    name : str, default="entry of the matrix"
        Name of the values that colors show.

    Attributes
    ----------
    ax_ : Axes
        Axes that were drawn on.
    figure_ : Figure
        Figure of the axes.

    See Also
    --------
    ClusterDisplay : Rows of data in two dimensions.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import GramDisplay
    >>> A = np.kron(np.eye(2), np.ones((3, 3)))[[0, 3, 1, 4, 2, 5]][:, [0, 3, 1, 4, 2, 5]]
    >>> display = GramDisplay.from_predictions(A, [0, 1, 0, 1, 0, 1])
    >>> display.pixels[0]
    array([1., 1., 1., 0., 0., 0.])
    """

    pixels: NDArray[np.float64]
    sizes: NDArray[np.int64]
    labels: NDArray[np.int64]
    n_samples: int
    name: str = "entry of the matrix"

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, *, max_points: int | None = None, ax: "Axes | None" = None
    ) -> Self:
        """Draw the kernel, or the graph, of a fitted estimator.

        Parameters
        ----------
        estimator : KernelDPMeans, SpectralDPMeans, PenalizedCut and others
            An estimator with a kernel or of graphs, fitted to ``X``: with ``labels_``, and, unless
            its ``kernel`` is "precomputed", with ``kernel_matrix(rows)``, the kernel of rows with
            each other.
        X : array-like, sparse array or networkx graph
            The data it was fitted to.
        max_points : int, default=None
            Rows of the kernel to compute at most; None: 2,000. Not for a precomputed kernel or a
            graph, of which all is drawn.
        ax : Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        display : GramDisplay
            The display, after drawing.
        """
        matrix = _as_matrix(X)
        labels = fitted_labels(estimator, matrix.shape[0], "use from_predictions for other rows")
        kernel = getattr(estimator, "kernel", "precomputed")
        if not hasattr(estimator, "kernel") and matrix.shape[0] != matrix.shape[1]:
            raise TypeError(
                f"estimator must have a kernel or be of graphs, got {type(estimator).__name__}: "
                "use ClusterDisplay, or from_predictions with a matrix"
            )
        if isinstance(kernel, str) and kernel == "precomputed":
            if max_points is not None:
                raise ValueError(
                    f"max_points must be None for a matrix that is given, got {max_points!r}"
                )
            name = "entry of the kernel" if hasattr(estimator, "kernel") else "link"
            return cls.from_predictions(matrix, labels, name=name, ax=ax)
        max_rows = MAX_KERNEL_ROWS if max_points is None else max_points
        rows = drawn_rows(matrix.shape[0], 1, max_rows)
        K = estimator.kernel_matrix(check_data(X)[rows])
        name = f"{kernel} kernel" if isinstance(kernel, str) else "kernel"
        return cls._from_matrix(K, labels[rows], matrix.shape[0], name).plot(ax)

    @classmethod
    def from_predictions(
        cls,
        matrix: Any,
        labels: ArrayLike,
        *,
        name: str = "entry of the matrix",
        ax: "Axes | None" = None,
    ) -> Self:
        """Draw a matrix and the labels of its rows.

        Parameters
        ----------
        matrix : array-like or sparse array of shape (n_samples, n_samples), or networkx graph
            Similarities or links. Of more than 700 rows, means of blocks are drawn.
        labels : array-like of shape (n_samples,)
            The cluster of each row; those with negative labels come last.
        name : str, default="entry of the matrix"
            Name of the values that colors show.
        ax : Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        display : GramDisplay
            The display, after drawing.
        """
        matrix = _as_matrix(matrix, "matrix")
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.shape[0]:
            raise ValueError(f"matrix must be square, got shape {matrix.shape}")
        row_labels = check_labels(labels, matrix.shape[0])
        return cls._from_matrix(matrix, row_labels, matrix.shape[0], name).plot(ax)

    @classmethod
    def _from_matrix(cls, matrix, labels, n_samples, name):
        """Display of a matrix, sorted by cluster; the means of its blocks are the pixels."""
        labels = np.maximum(labels, -1)
        names, index, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        order = np.lexsort([names, -sizes, names < 0])
        rank = np.empty(len(names), dtype=np.intp)
        rank[order] = np.arange(len(names))
        rows = np.argsort(rank[index], kind="stable")
        pixels = block_means(matrix, rows)
        if not np.isfinite(pixels).all():
            raise ValueError("matrix must be finite, got NaN or infinity")
        return cls(
            pixels=pixels,
            sizes=sizes[order],
            labels=names[order],
            n_samples=n_samples,
            name=name,
        )

    def plot(self, ax: "Axes | None" = None) -> Self:
        """Draw the sorted matrix.

        Parameters
        ----------
        ax : Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        self : GramDisplay
            With ``ax_`` and ``figure_``.
        """
        ax = self._make_axes(ax, (6, 5))
        n, side = int(self.sizes.sum()), len(self.pixels)
        check_number(n, "sizes", low=1, integer=True)
        low, high = float(self.pixels.min()), float(self.pixels.max())
        values = np.abs(self.pixels[self.pixels != 0])
        if side < n and len(values):
            # with the largest mean as the limit, a few large ones would make all others pale
            high = float(np.quantile(values, 0.99))
        colors, least = "Blues", 0.0
        if low < -0.05 * max(high, -low):
            high = max(high, -low)
            colors, least = "RdBu", -high
        image = ax.imshow(
            self.pixels,
            cmap=colors,
            vmin=least,
            vmax=high or 1.0,
            extent=(0, n, n, 0),
            interpolation="nearest",
        )
        ends = np.cumsum(self.sizes)
        if len(ends) <= MAX_LINED:
            for end in ends[:-1]:
                ax.axhline(end, color=(0, 0, 0, 0.5), linewidth=0.5)
                ax.axvline(end, color=(0, 0, 0, 0.5), linewidth=0.5)
        width, height = size_in_points(ax)
        points_per_row = min(width, height) / n
        middle, last_shown, shown = ends - self.sizes / 2, -np.inf, []
        names = [str(label) if label >= 0 else "none" for label in self.labels]
        for i, position in enumerate(middle):
            need = 5 * (len(names[i]) + 1)
            if (position - last_shown) * points_per_row >= need:
                shown.append(i)
                last_shown = position
        for set_ticks in (ax.set_xticks, ax.set_yticks):
            set_ticks(middle[shown], [names[i] for i in shown], size=7)
        ax.tick_params(length=0)
        ax.set_xlabel("rows, sorted by cluster")
        ax.set_ylabel("cluster")
        bar = self.figure_.colorbar(
            image,
            ax=ax,
            pad=0.02,
            aspect=30,
            extend="max" if high < self.pixels.max() else "neither",
        )
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=8)
        block_side = -(-n // side)
        mean = "" if side == n else f"mean of {block_side} by {block_side} entries: "
        bar.set_label(mean + self.name, size=8, parse_math=False)
        drawn_text = f", {n:,} of them drawn" if n < self.n_samples else ""
        k = int((self.labels >= 0).sum())
        write_title(
            ax, f"{count_text(self.n_samples, 'row')}{drawn_text}\n{count_text(k, 'cluster')}"
        )
        return self


def _as_matrix(X, name="X"):
    """X as an array, or as a sparse array if it is one or a networkx graph."""
    import sys

    from scipy.sparse import csr_array, issparse

    networkx = sys.modules.get("networkx")  # it is imported already if X is one of its graphs
    if networkx is not None and isinstance(X, networkx.Graph):
        return networkx.to_scipy_sparse_array(X, dtype=np.float64, format="csr")
    if issparse(X):
        return csr_array(X)
    array = np.asarray(X)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must be a matrix of numbers, got shape {array.shape} and type {array.dtype}"
        )
    return array


def block_means(matrix, rows):
    """The matrix with rows and columns in the order ``rows``, as means of blocks.

    There are at most MAX_PIXELS blocks along each side.
    """
    from scipy.sparse import issparse

    n = len(rows)
    bounds = np.linspace(0, n, min(n, MAX_PIXELS) + 1).astype(np.intp)
    widths = np.diff(bounds)
    if issparse(matrix):
        block = np.empty(n, dtype=np.intp)
        block[rows] = np.repeat(np.arange(len(widths)), widths)
        entries = matrix.tocoo()
        flat = block[entries.row] * len(widths) + block[entries.col]
        sums = np.bincount(flat, entries.data.astype(np.float64), len(widths) ** 2)
        sums = sums.reshape(len(widths), -1)
    elif len(widths) == n:
        return matrix[np.ix_(rows, rows)].astype(np.float64)
    else:
        sums = np.empty((len(widths), len(widths)))
        for i, (start, stop) in enumerate(pairwise(bounds)):
            strip = matrix[rows[start:stop]].sum(axis=0, dtype=np.float64)[rows]
            sums[i] = np.add.reduceat(strip, bounds[:-1])
    return sums / widths[:, np.newaxis] / widths
