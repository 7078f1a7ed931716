"""A lower bound on the objective of the hard HDP, whatever the labels of the rows."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from sklearn.utils import gen_batches

from smallvar._core.config import one_blas_thread
from smallvar._core.groups import Groups
from smallvar._core.validation import (
    check_data,
    check_number,
    check_option,
    check_reach,
    check_symmetric,
    check_weights,
)

SHARES = np.linspace(0.0, 1.0, 11)  # of the error that local clusters pay for
MOST_ROWS = 5000  # rows of which all pairs are looked at
TABLE_PAIRS = 1 << 20  # pairs in a block of them, at most


@dataclass
class _Points:
    """Rows, or the Gram matrix of points in feature space, with their weights."""

    X: NDArray[np.float64]
    weight: NDArray[np.float64]
    is_gram: bool

    def some(self, rows):
        """Some of the points."""
        X = self.X[np.ix_(rows, rows)] if self.is_gram else self.X[rows]
        return _Points(X, self.weight[rows], self.is_gram)

    def eigenvalues(self):
        """The eigenvalues of the weighted Gram matrix about the mean that may not be 0."""
        share, root = self.weight / self.weight.sum(), np.sqrt(self.weight)
        if not self.is_gram:
            return np.square(
                np.linalg.svd(root[:, None] * (self.X - share @ self.X), compute_uv=False)
            )
        row = self.X @ share
        G = self.X - row - row[:, None] + share @ row
        return np.linalg.eigvalsh(root[:, None] * G * root)

    def squared_distances(self, rows):
        """Squared distances of some points from all."""
        if not self.is_gram:
            return cdist(self.X[rows], self.X, "sqeuclidean")
        diagonal = np.diagonal(self.X)
        return diagonal[rows, None] + diagonal - 2.0 * self.X[rows]

    def bounds(self, lam, shares):
        """Lower bounds on share * (squared error of K clusters) + lam * K, for each of the shares.

        The larger of two: by eigenvalues mu_j, lam + sum_j min(share * mu_j, lam), as in
        SpectralDPMeans; and by pairs, with sum_i w_i min over S of
        (share / 2 sum_{l in S} w_l ||x_i - x_l||^2 + lam) / sum_{l in S} w_l, in which S is any set
        of rows: the least is had by those nearest to x_i. For the cluster of x_i in place of S it
        is what x_i has a part in of the cost of its cluster, and these parts add up to the cost.
        """
        values = np.minimum(np.outer(shares, self.eigenvalues()), lam).sum(axis=1) + lam
        n, pairs = len(self.X), np.zeros(len(shares))
        if n > MOST_ROWS:
            return values
        for rows in gen_batches(n, max(1, TABLE_PAIRS // n)):
            squares = self.squared_distances(rows)
            order = squares.argsort(axis=1, kind="stable")
            weight = self.weight[order]
            half = np.cumsum(0.5 * weight * np.take_along_axis(squares, order, axis=1), axis=1)
            total = weight.cumsum(axis=1)
            for s, share in enumerate(shares):
                pairs[s] += self.weight[rows] @ ((share * half + lam) / total).min(axis=1)
        return np.maximum(values, pairs)


def hdp_bound(
    X: ArrayLike,
    groups: ArrayLike | None,
    lam_local: float,
    lam_global: float,
    *,
    sample_weight: ArrayLike | None = None,
    kernel: Literal["linear", "precomputed"] = "linear",
) -> float:
    """Return a lower bound on the objective of the hard HDP, whatever the labels.

    No clustering of the rows has a lower objective than that,

        sum_i w_i ||x_i - mu_{z_i}||^2 + lam_local * (number of local clusters) + lam_global * K,

    so it says how far from the best a fit of :class:`HDPMeans`, or :class:`KernelHDPMeans`, can be
    at most: see Notes.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features) or (n_samples, n_samples)
        The rows of all data sets; a matrix of a kernel between them for ``kernel="precomputed"``.
    groups : array-like of shape (n_samples,) or None
        The data set of each row. None: all are from one.
    lam_local : float
        Penalty for each local cluster, > 0.
    lam_global : float
        Penalty for each global cluster, > 0.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights >= 0, not all zero; None means 1 each.
    kernel : {"linear", "precomputed"}, default="linear"
        "linear" for the squared distances of rows, "precomputed" for those in the feature space of
        a kernel.

    Returns
    -------
    bound : float
        At most the least objective, up to rounding of about 1e-12 of the sum of squares.

    Raises
    ------
    ValueError, TypeError
        For data that are not finite, numeric and two-dimensional, and for parameters out of their
        bounds.

    See Also
    --------
    SpectralDPMeans : Has such a bound for DP-means.

    Notes
    -----
    The rows of a global cluster, split into its local clusters, have no larger an error. So for any
    share a from 0 to 1 the objective is at least the sum, over data sets, of a * (error within the
    local clusters) + ``lam_local`` * (their number), plus (1 - a) * (error within the global
    clusters) + ``lam_global`` * K. Each term is an objective of DP-means, which has two bounds.

    With mu_j the eigenvalues of the weighted Gram matrix about the mean, lam + sum_j min(mu_j, lam)
    is one (:class:`SpectralDPMeans`). The other one is for any number of columns. As the error of a
    cluster c of weight s_c is sum_{i, l in c} w_i w_l ||x_i - x_l||^2 / (2 s_c), the objective is a
    sum over the rows of ::

        w_i (sum_{l in c} w_l ||x_i - x_l||^2 / 2 + lam) / s_c,

    each at least its minimum over all sets c of rows, which those nearest to x_i attain. The larger
    bound is taken for each data set and for all rows, and the best of eleven values of a.

    The second bound takes time quadratic in the number of rows, and is left out for data sets, or
    all rows, of more than 5000. The eigenvalues of a kernel matrix take cubic time.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means, sections 5.1 and 7, which asks for relaxations of the
    hard HDP.

    Examples
    --------
    >>> from smallvar import HDPMeans, hdp_bound
    >>> X = [[0.0], [1.0], [10.0], [0.5], [20.0], [21.0]]
    >>> groups = ["a", "a", "a", "b", "b", "b"]
    >>> model = HDPMeans(lam_local=2.0, lam_global=5.0).fit(X, groups=groups)
    >>> bound = hdp_bound(X, groups, 2.0, 5.0)
    >>> print(f"{bound:.2f} <= {model.objective_:.2f}")
    24.00 <= 24.00
    """
    X = check_data(X)
    for name, lam in (("lam_local", lam_local), ("lam_global", lam_global)):
        if not np.isfinite(check_number(lam, name, low=0, low_open=True)):
            raise ValueError(f"{name} must be finite, got {lam!r}")
    check_option(kernel, "kernel", ("linear", "precomputed"))
    n, is_gram = len(X), kernel == "precomputed"
    if not is_gram:
        check_reach(X)
    elif X.shape != (n, n):
        raise ValueError(f"X must be a square Gram matrix for kernel='precomputed', got {X.shape}")
    else:
        check_symmetric(X, "X must be a symmetric Gram matrix for kernel='precomputed'")
    sets, weight = Groups(groups, n), check_weights(sample_weight, n)
    weight = np.ones(n) if weight is None else weight
    points, active = _Points(X.astype(np.float64), weight, is_gram), np.flatnonzero(weight)
    with one_blas_thread():
        bounds = points.some(active).bounds(float(lam_global), 1.0 - SHARES)
        for members in sets.members():
            rows = members[weight[members] > 0.0]
            if len(rows):
                bounds = bounds + points.some(rows).bounds(float(lam_local), SHARES)
    return float(bounds.max())
