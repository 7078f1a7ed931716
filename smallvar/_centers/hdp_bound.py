"""A lower bound on the objective of the hard HDP, whatever the labels of the rows."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.utils import gen_batches

from smallvar._core.config import one_blas_thread
from smallvar._core.groups import Groups
from smallvar._core.linear_algebra import eigh, svd
from smallvar._core.validation import (
    check_data,
    check_number,
    check_option,
    check_reach,
    check_symmetric,
    check_weights,
)

ERROR_SHARES = np.linspace(0.0, 1.0, 11)  # that local clusters pay for
MOST_PAIRED_ROWS = 5000  # of which all pairs are looked at
PRODUCTS_OF_PAIRS = 1 << 20  # of entries of pairs of rows
EIGENVALUE_ROUNDING = 1e-9  # of the largest: eigenvalues within that are 0


def _embedded(K):
    """Rows with this Gram matrix."""
    check_symmetric(K, "X must be a symmetric Gram matrix for kernel='precomputed'")
    values, vectors = eigh(K)
    least = EIGENVALUE_ROUNDING * np.abs(values).max()
    if values[0] < -least:
        raise ValueError(
            "X must be positive semi-definite for kernel='precomputed', got an eigenvalue of "
            f"{values[0]:.3g}"
        )
    # the error of any labels is no larger without the least of them
    return vectors[:, values > least] * np.sqrt(values[values > least])


def _dp_bounds(X, weight, lam, shares):
    """Lower bounds on share * (squared error of K clusters) + lam * K: see hdp_bound."""
    centered = np.sqrt(weight)[:, None] * (X - weight / weight.sum() @ X)
    eigenvalues = np.square(svd(centered, compute_uv=False))
    by_values = np.minimum(np.outer(shares, eigenvalues), lam).sum(axis=1) + lam
    n, by_pairs = len(X), np.zeros(len(shares))
    if n > MOST_PAIRED_ROWS:
        return by_values
    for rows in gen_batches(n, max(1, PRODUCTS_OF_PAIRS // X.size)):
        squares = cdist(X[rows], X, "sqeuclidean")
        order = squares.argsort(axis=1, kind="stable")
        half = 0.5 * weight[order] * np.take_along_axis(squares, order, axis=1)
        half, total = half.cumsum(axis=1), weight[order].cumsum(axis=1)
        by_pairs += [weight[rows] @ ((a * half + lam) / total).min(axis=1) for a in shares]
    return np.maximum(by_values, by_pairs)


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

    It says how far from the best a fit of :class:`HDPMeans` by squared distances, or of
    :class:`KernelHDPMeans`, can be at most.

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
        The kernel in whose feature space squared distances are taken.

    Returns
    -------
    bound : float
        At most the least objective, up to rounding of about 1e-12 of the sum of squares.

    Notes
    -----
    Local clusters have no larger an error than the global ones that they are parts of. So for any
    share a the objective is at least the sum over data sets of a * (error of local clusters) +
    ``lam_local`` * (their number), plus (1 - a) * (error of global clusters) + ``lam_global`` * K:
    objectives of DP-means, each with two bounds.

    One is lam + sum_j min(mu_j, lam), with the eigenvalues mu_j of the weighted Gram matrix about
    the mean (:class:`SpectralDPMeans`). For the other, the error of a cluster c of weight s_c is
    sum_{i, l in c} w_i w_l ||x_i - x_l||^2 / (2 s_c), so that the objective is a sum over rows of
    w_i (sum_{l in c} w_l ||x_i - x_l||^2 / 2 + lam) / s_c, each at least its minimum over all sets
    c of rows, which those nearest to x_i attain. The larger one is taken for each data set and for
    all rows, and the best of eleven values of a.

    The second bound takes quadratic time, and is left out for more than 5000 rows in a data set, or
    in all. The eigenvalues of a kernel matrix take cubic time.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means, sections 5.1 and 7.

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
    check_reach(X)
    if kernel == "precomputed" and X.shape[0] != X.shape[1]:
        raise ValueError(f"X must be a square Gram matrix for kernel='precomputed', got {X.shape}")
    sets, weight = Groups(groups, len(X)), check_weights(sample_weight, len(X))
    weight = np.ones(len(X)) if weight is None else weight
    with one_blas_thread():
        X = X.astype(np.float64) if kernel == "linear" else _embedded(X.astype(np.float64))
        active = weight > 0.0
        bounds = _dp_bounds(X[active], weight[active], float(lam_global), 1.0 - ERROR_SHARES)
        for members in sets.members():
            rows = members[active[members]]
            if len(rows):
                bounds += _dp_bounds(X[rows], weight[rows], float(lam_local), ERROR_SHARES)
    return float(bounds.max())
