"""The display of clusters as points in two dimensions."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smallvar._core.validation import as_floats, check_data
from smallvar._plot.base import (
    Display,
    certainty_of,
    check_labels,
    cluster_colors,
    column_names,
    count_text,
    drawn_rows,
    fitted_labels,
    write_label,
    write_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_NUMBERED = 40  # the largest number of clusters whose centers are drawn as numbers
MAX_IN_LEGEND = 20  # the largest number of clusters for a legend with their sizes
FLAT_RATIO = 1e-9  # the shorter side of a picture is rounding if below this times the longer one
# the first two discriminant axes, in words
SEPARATING = "direction that separates the clusters best", "direction that does so second best"
MAX_COMPONENTS = 50  # the largest number of principal components for discriminant axes
ROWS_PER_COMPONENT = 10  # and the least number of rows for each of them


@dataclass(kw_only=True, eq=False, repr=False)
class ClusterDisplay(Display):  # numpydoc ignore=PR02
    """Rows in the colors of their clusters, in two dimensions.

    Two columns are drawn as they are. Of more columns the picture shows the two directions that
    separate the clusters best (linear discriminant axes): their means differ most there, relative
    to the spread within clusters. Two clusters have one such direction, and the other axis is the
    first principal component of the rest. Where there are no two clusters, or hardly more rows than
    clusters, it shows the first two principal components. A single column is stacked up like a
    histogram. Create it by :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    points : ndarray of shape (n_drawn, 2)
        Coordinates of the rows drawn.
    labels : ndarray of shape (n_drawn,)
        Clusters of the rows drawn; -1 for none.
    centers : ndarray of shape (n_clusters, 2)
        Coordinates of the marks of the clusters.
    sizes : ndarray of shape (n_clusters,)
        Number of rows of each cluster, those that are not drawn included.
    axis_titles : tuple of str
        Titles of the two axes.
    n_samples : int
        Number of rows, those that are not drawn included.
    names : ndarray of shape (n_clusters,), default=None
        The label of each cluster; None: 0, 1 and so on.
    certainty : str, default=""
        Whether the number of clusters is clear, for the title.

    Attributes
    ----------
    ax_ : Axes
        Axes that were drawn on.
    figure_ : Figure
        Figure of the axes.

    See Also
    --------
    ProfileDisplay : For clusters of tables with words or gaps, of MixedDPMeans.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from smallvar import ClusterDisplay, DPMeans
    >>> X = load_iris().data
    >>> display = ClusterDisplay.from_estimator(DPMeans(n_clusters=3, random_state=0).fit(X), X)
    >>> display.ax_.get_xlabel()
    'direction that separates the clusters best (98% of the separation)'
    >>> display.sizes
    array([61, 39, 50])
    """

    points: NDArray[np.float64]
    labels: NDArray[np.int64]
    centers: NDArray[np.float64]
    sizes: NDArray[np.int64]
    axis_titles: tuple[str, str]
    n_samples: int
    names: NDArray[np.int64] | None = None
    certainty: str = ""

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        *,
        feature_names: ArrayLike | None = None,
        ax: "Axes | None" = None,
    ) -> Self:
        """Draw the clusters of a fitted estimator.

        Parameters
        ----------
        estimator : estimator with ``labels_``
            Fitted to ``X``. Clusters of MixedDPMeans are drawn by :class:`ProfileDisplay`.
        X : array-like of shape (n_samples, n_features)
            The rows that it was fitted to.
        feature_names : array-like of shape (n_features,), default=None
            Names of the columns; None: those of a data frame, or numbers.
        ax : Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        display : ClusterDisplay
            The display, after drawing.
        """
        if (
            isinstance(getattr(estimator, "kernel", None), str)
            and estimator.kernel == "precomputed"
        ):
            raise ValueError(
                "X must be rows of data, got a precomputed kernel: draw it by imshow, or the "
                "rows that it is of by from_predictions"
            )
        if hasattr(estimator, "cluster_parameters_"):  # of columns of several kinds
            raise TypeError(
                f"estimator must measure distances between rows of numbers, got "
                f"{type(estimator).__name__}: draw its clusters by "
                "ProfileDisplay.from_estimator(estimator), or columns of numbers without gaps by "
                "ClusterDisplay.from_predictions(X, estimator.labels_)"
            )
        data = check_data(X)
        labels = fitted_labels(
            estimator, data.shape[0], "for other rows use from_predictions with their labels"
        )
        centers = getattr(estimator, "cluster_centers_", None)
        if hasattr(estimator, "cluster_ids_"):
            centers = None  # these are only the clusters alive at the end, not those of all labels
        display = cls._of_predictions(X, labels, centers, feature_names)
        display.certainty = certainty_of(estimator)
        return display.plot(ax)

    @classmethod
    def from_predictions(
        cls,
        X: ArrayLike,
        labels: ArrayLike,
        *,
        centers: ArrayLike | None = None,
        feature_names: ArrayLike | None = None,
        ax: "Axes | None" = None,
    ) -> Self:
        """Draw rows and their labels, those of any clustering.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows; of more than 50,000 a random sample is drawn, as the title says.
        labels : array-like of shape (n_samples,)
            The cluster of each; rows with negative labels are gray.
        centers : array-like of shape (n_clusters, n_features), default=None
            The centers, the label being the row. None: each number stands at the row that is
            nearest to the mean of its cluster.
        feature_names : array-like of shape (n_features,), default=None
            Names of the columns; None: those of a data frame, or numbers.
        ax : Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        display : ClusterDisplay
            The display, after drawing.
        """
        return cls._of_predictions(X, labels, centers, feature_names).plot(ax)

    @classmethod
    def _of_predictions(cls, X, labels, centers, feature_names):
        """The display of ``from_predictions``, before drawing."""
        data = check_data(X)
        n, d = data.shape
        label = check_labels(labels, n)
        names_of_columns = column_names(X, feature_names, d)
        rows = drawn_rows(n, d)
        points = data[rows].astype(np.float64)
        if centers is None:
            names = np.unique(label[label >= 0])
            index = np.where(label >= 0, np.searchsorted(names, label), -1)
            k, marks = len(names), np.zeros((0, d))
        else:
            marks = as_floats(centers)
            if marks.ndim != 2 or marks.shape[1] != d:
                raise ValueError(f"centers must be of shape (n_clusters, {d}), got {marks.shape}")
            if not np.isfinite(marks).all():
                raise ValueError("centers must be finite, got NaN or infinity")
            k, index, names = len(marks), np.maximum(label, -1), np.arange(len(marks))
            if label.max() >= k:
                raise ValueError(f"labels must be < {k}, the number of centers, got {label.max()}")
        sizes = np.bincount(index[index >= 0], minlength=k)
        points, marks, axis_titles = project(points, marks, names_of_columns, index[rows])
        if centers is None:
            marks = marks_in_clusters(points, index[rows], k, d == 1)
        return cls(
            points=points,
            labels=index[rows],
            centers=marks,
            sizes=sizes,
            axis_titles=tuple(axis_titles),
            n_samples=n,
            names=names,
        )

    def plot(self, ax: "Axes | None" = None) -> Self:
        """Draw rows in the colors of their clusters, with the sizes of up to 20 of these.

        Parameters
        ----------
        ax : Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        self : ClusterDisplay
            With ``ax_`` and ``figure_``.
        """
        ax = self._make_axes(ax, (6, 4.3))
        k, sizes = len(self.centers), self.sizes
        names = np.arange(k) if self.names is None else self.names
        rng = np.random.default_rng(0)
        draw_clusters(ax, self.points, self.labels, self.centers, rng, names, sizes)
        write_label(ax, "x", self.axis_titles[0])
        write_label(ax, "y", self.axis_titles[1])
        width, height = np.ptp(self.points, axis=0)
        flat = min(width, height) < FLAT_RATIO * max(width, height)
        stacked = self.axis_titles[1] == STACK_TITLE
        if not stacked and (flat or 1 / 3 < (height or 1) / (width or 1) < 3):
            ax.set_aspect("equal", adjustable="datalim")
        n, drawn, n_unlabeled = self.n_samples, len(self.points), self.n_samples - int(sizes.sum())
        drawn_text = f", {drawn:,} of them drawn" if drawn < n else ""
        unlabeled_text = f", {n_unlabeled:,} in none" if n_unlabeled else ""
        sizes_text = ""
        if k > 1:
            low, high = int(sizes.min()), count_text(int(sizes.max()), "row")
            between = f"{high} each" if low == sizes.max() else f"{low:,} to {high}"
            sizes_text = f", clusters of {between}"
        rows_text = f"{count_text(n, 'row')}{drawn_text}{unlabeled_text}"
        certainty = self.certainty and f", {self.certainty}"
        write_title(ax, f"{count_text(k, 'cluster')}{certainty}\n{rows_text}{sizes_text}")
        if 0 < k <= MAX_IN_LEGEND:
            from matplotlib.lines import Line2D

            dot: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 6}
            ax.legend(
                [Line2D([], [], color=color, **dot) for color in cluster_colors(k)],
                [f"{name}: {size:,}" for name, size in zip(names, sizes, strict=True)],
                title="cluster: rows",
                loc="upper left",
                bbox_to_anchor=(1.0, 1.0),
                borderaxespad=0.2,
                handletextpad=0.1,
                frameon=False,
                fontsize=9,
                title_fontsize=9,
            )
        return self


def marks_in_clusters(points, labels, k, flat):
    """Positions of the marks of clusters without centers, NaN for clusters that are not drawn.

    That of the point nearest to the mean of the cluster, or, in a stack (``flat``), the mean, below
    the stack.
    """
    marks = np.full((k, 2), np.nan)
    order = np.argsort(labels, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        if len(rows) and labels[rows[0]] >= 0:
            mean = points[rows].mean(axis=0)
            if flat:
                mark = np.array([mean[0], -0.04 * points[:, 1].max()])
            else:
                mark = points[rows[((points[rows] - mean) ** 2).sum(axis=1).argmin()]]
            marks[labels[rows[0]]] = mark
    return marks


STACK_TITLE = "rows of about this value"


def draw_clusters(axes, points, labels, centers, rng, names, sizes):
    """Draw points in the colors of their clusters, and centers as numbers or, if many, as dots.

    The area of a dot grows with the size of the cluster.
    """
    k = len(centers)
    colors = np.vstack([cluster_colors(k), [[0.75, 0.75, 0.75]]])  # the last: label -1
    order = rng.permutation(len(points))  # so that no cluster is drawn over all others
    axes.scatter(
        *points[order].T,
        s=float(np.clip(40_000 / max(len(points), 1), 2, 30)),
        color=colors[labels[order]],
        alpha=0.7,
        linewidths=0,
        rasterized=True,
    )
    numbered = k <= MAX_NUMBERED
    share = sizes / max(sizes.max(initial=1), 1)
    axes.scatter(
        *centers.T,
        s=130 if numbered else 8 + (22 if k <= 150 else 14) * share,
        marker="o",
        color="white" if numbered else colors[:-1],
        edgecolors="black",
        linewidths=0.9 if k <= 150 else 0.6,
        zorder=3,
    )
    if numbered:
        for label, (x, y) in zip(names, centers, strict=True):
            if np.isfinite(x):
                axes.text(x, y, label, size=7, ha="center", va="center_baseline", zorder=4)
    axes.spines[["top", "right"]].set_visible(False)


def project(points, centers, titles, labels):
    """Coordinates of points (n, d) and centers in two dimensions, and the titles of these.

    A single column is stacked up in bins. More than two are projected: on discriminant axes if
    there are ``labels`` of two clusters, else on principal components.
    """
    axis_titles = list(titles)
    if len(titles) == 1:
        x = points[:, 0]
        bins = np.linspace(x.min(), x.max(), 81)[1:-1].searchsorted(x)
        order = np.argsort(bins, kind="stable")
        height = np.empty(len(x))  # rank of each point within its bin, from 1
        height[order] = np.arange(1, len(x) + 1) - bins[order].searchsorted(bins[order])
        return (
            np.column_stack([x, height]),
            np.column_stack([centers[:, 0], np.full(len(centers), -0.04 * height.max())]),
            [*axis_titles, STACK_TITLE],
        )
    if len(titles) == 2:
        return points, centers, axis_titles
    if len(points) == 1:  # one point has no principal components
        return points[:, :2], centers[:, :2], axis_titles[:2]
    origin = points.mean(axis=0)  # far from zero, squares would cancel
    points, centers = points - origin, centers - origin
    axes, axis_titles = _discriminant_axes(points, labels) or _principal_axes(points)
    return points @ axes, centers @ axes, axis_titles


def _principal_axes(points):
    """Directions (d, 2) of the first two principal components of centered points, and titles."""
    from sklearn.decomposition import PCA

    with np.errstate(invalid="ignore"):  # 0 / 0 if all points are equal
        pca = PCA(n_components=2, random_state=0).fit(points)
    shares = zip(("first", "second"), np.nan_to_num(pca.explained_variance_ratio_), strict=True)
    titles = [
        f"{order} principal component ({share:.0%} of the variance)" for order, share in shares
    ]
    return pca.components_.T, titles


def _discriminant_axes(points, labels):
    """Directions (d, 2) that separate the clusters of centered points, and titles; or None.

    Fisher's criterion: the variance between clusters along the axis, divided by that within. Axes
    have variance 1 within clusters. With few rows and many columns any clusters can be separated,
    so only the first principal components are used, at most one for ten rows.
    """
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    rows = labels >= 0
    k, n = len(np.unique(labels[rows])), int(rows.sum())
    if k < 2 or n <= k + 2:
        return None
    limit = min(points.shape[1], MAX_COMPONENTS, max(2, n // ROWS_PER_COMPONENT))
    pca = PCA(n_components=limit, svd_solver="full" if limit > 20 else "auto", random_state=0)
    with np.errstate(invalid="ignore"):
        pca.fit(points[rows])
    basis = pca.components_[pca.explained_variance_ > FLAT_RATIO * pca.explained_variance_[0]].T
    if basis.shape[1] < 2:
        return None
    reduced = points[rows] @ basis
    lda = LinearDiscriminantAnalysis(n_components=min(2, k - 1)).fit(reduced, labels[rows])
    axes = lda.scalings_[:, :2]
    titles = [
        f"{text} ({share:.0%} of the separation)"
        for text, share in zip(SEPARATING, lda.explained_variance_ratio_, strict=False)
    ]
    if axes.shape[1] == 0:  # the means are equal
        return None
    if axes.shape[1] == 1:
        along = axes[:, 0] / np.linalg.norm(axes[:, 0])
        rest = reduced - np.outer(reduced @ along, along)
        component = PCA(n_components=1, svd_solver="full").fit(rest).components_[0]
        axes = np.column_stack([axes[:, 0], component])
        titles = [SEPARATING[0], "first principal component of the rest"]
    return basis @ axes, titles
