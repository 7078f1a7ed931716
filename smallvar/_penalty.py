"""Penalties from the data: the farthest-first rule."""

import numpy as np
from sklearn.utils import check_array

from smallvar._base import DTYPES, aligned, check_number
from smallvar._config import resolve_threads
from smallvar._sweeps.dpmeans import column_statistics, nearest_seed


def check_guess(guess, n_samples, name="n_clusters"):
    """Raise unless so many clusters (or what ``name`` counts) can be had from this many samples."""
    check_number(guess, name, low=1, integer=True)
    if guess > n_samples:
        raise ValueError(f"{name} must be <= n_samples={n_samples}, got {name}={guess}")


def farthest_first(X, n_clusters, weight, n_threads):
    """The rule on checked data; ``weight`` only tells which rows to leave out (weight zero)."""
    mask = None
    if weight is not None and not weight.all():
        mask = (weight > 0).astype(np.float64)
    seed = column_statistics(X, mask, n_threads)[0]
    distance = np.full(X.shape[0], np.inf)
    least_positive = penalty = np.inf
    for _ in range(n_clusters):
        farthest, penalty = nearest_seed(X, mask, seed, distance, n_threads)
        if not penalty > 0.0:
            break
        least_positive = penalty
        seed = np.array(X[farthest], dtype=np.float64)
    return least_positive if np.isfinite(least_positive) else 1.0


def farthest_first_lambda(X, n_clusters, *, n_threads=None):
    """Penalty for which about ``n_clusters`` clusters are expected.

    Start with T = {mean of the data}; ``n_clusters`` times, find the row with the largest squared
    distance to T, remember that distance, and add the row to T. The last distance is the penalty:
    a cluster may then be about as far from its center as the next, needless, seed would have been
    from the others.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Data; float32 and float64 are used as they are.
    n_clusters : int
        Guess of the number of clusters, from 1 to n_samples.
    n_threads : int, default=None
        Threads; None means all that this process may use.

    Returns
    -------
    lam : float
        Penalty in squared data units. If the data have fewer distinct rows than ``n_clusters``,
        the smallest positive distance met; if there is none, 1.0.

    Raises
    ------
    ValueError
        If ``X`` is not a finite, numeric, two-dimensional array or ``n_clusters`` is out of range.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means, section 6.1.

    Examples
    --------
    >>> from smallvar import farthest_first_lambda
    >>> farthest_first_lambda([[0.0], [1.0], [10.0], [11.0]], n_clusters=2)
    30.25
    """
    X = aligned(check_array(X, dtype=DTYPES))
    check_guess(n_clusters, X.shape[0])
    check_number(n_threads, "n_threads", low=1, integer=True, none=True)
    return farthest_first(X, n_clusters, None, resolve_threads(n_threads))
