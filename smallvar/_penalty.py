"""Penalties from the data: the farthest-first rule."""

import numpy as np
from sklearn.utils import column_or_1d

from smallvar._base import check_data, check_number, check_reach, mean_noise
from smallvar._config import resolve_threads
from smallvar._sweeps.dpmeans import nearest_seed
from smallvar._sweeps.sums import Layout


def check_guess(guess, n_samples, name="n_clusters"):
    """Raise unless so many clusters (or what ``name`` counts) can be had from this many samples."""
    check_number(guess, name, low=1, integer=True)
    if guess > n_samples:
        raise ValueError(f"{name} must be <= n_samples={n_samples}, got {name}={guess}")


def rough_mean(X, mask, n_threads):
    """The mean, and the squared distance by which it may be off by rounding."""
    layout = Layout(X, mask, n_threads)
    return layout.mean(X, mask, n_threads), mean_noise(layout.low, layout.high)


def farthest_first(X, n_clusters, weight, n_threads):
    """The rule on checked data; ``weight`` only tells which rows to leave out (weight zero)."""
    mask = None
    if weight is not None and not weight.all():
        mask = (weight > 0).astype(np.float64)
    seed, noise = rough_mean(X, mask, n_threads)
    distance = np.full(X.shape[0], np.inf)
    least_positive = penalty = np.inf
    for _ in range(n_clusters):
        farthest, penalty = nearest_seed(X, mask, seed, distance, n_threads)
        if not penalty > noise:
            break
        least_positive = penalty
        seed = np.array(X[farthest], dtype=np.float64)
    return least_positive if np.isfinite(least_positive) else 1.0


def farthest_by(distance, to_row, n_clusters, noise):
    """The rule where ``distance`` is that to the mean, and ``to_row(i)`` gives that to row i.

    Infinity if none exceeds ``noise``.
    """
    penalty = np.inf
    for _ in range(n_clusters):
        far = int(distance.argmax())
        if not distance[far] > noise:
            break
        penalty = float(distance[far])
        distance = np.minimum(distance, to_row(far))
    return penalty


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
    X = check_data(X)
    check_reach(X)
    check_guess(n_clusters, X.shape[0])
    check_number(n_threads, "n_threads", low=1, integer=True, none=True)
    return farthest_first(X, n_clusters, None, resolve_threads(n_threads))


def check_groups(groups, n_samples):
    """The distinct groups, sorted, and the number of each row's."""
    if groups is None:
        return np.zeros(1, dtype=np.int64), np.zeros(n_samples, dtype=np.int32)
    if type(groups) is not np.ndarray or groups.ndim != 1 or groups.dtype.kind not in "iu":
        groups = column_or_1d(groups)
    if len(groups) != n_samples:
        raise ValueError(f"groups must have shape ({n_samples},), got {groups.shape}")
    if groups.dtype.kind in "fmMO" and (groups != groups).any():
        raise ValueError("groups must not be missing, got NaN or NaT")
    try:
        names, number = np.unique(groups, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"groups must be all numbers or all strings: {error}") from None
    return names, number.astype(np.int32)


def local_lambda(X, group, n_groups, n_local, n_threads):
    """Mean of the groups' own farthest-first values."""
    order = np.argsort(group, kind="stable")
    found = []
    for rows in np.split(order, np.searchsorted(group[order], np.arange(1, n_groups))):
        part = np.ascontiguousarray(X[rows])
        if (part != part[0]).any():
            found.append(farthest_first(part, min(n_local, len(part)), None, n_threads))
    return float(np.mean(found)) if found else 1.0


def farthest_group(distance, to_row, group, n_groups, n_global, noise):
    """Farthest-first over groups: the sum of distances of the group that has the most.

    Its farthest row is the next seed. ``distance``, ``to_row`` and ``noise`` as for one row in
    ``farthest_by``; 1 if no sum exceeds the noise.
    """
    penalty = np.inf
    for _ in range(min(n_global, len(group))):
        total = np.bincount(group, distance, minlength=n_groups)
        worst = int(total.argmax())
        if not total[worst] > noise * len(group):
            break
        penalty = float(total[worst])
        rows = np.flatnonzero(group == worst)
        distance = np.minimum(distance, to_row(rows[distance[rows].argmax()]))
    return penalty if np.isfinite(penalty) else 1.0


def global_lambda(X, group, n_groups, n_global, n_threads):
    """The rule for the penalty of a global cluster, from squared distances."""
    nearest = np.full(X.shape[0], np.inf)
    mean, noise = rough_mean(X, None, n_threads)

    def to_seed(seed):
        nearest_seed(X, None, seed, nearest, n_threads)  # lowers nearest
        return nearest

    def to_row(i):
        return to_seed(np.array(X[i], dtype=np.float64))

    return farthest_group(to_seed(mean), to_row, group, n_groups, n_global, noise)


def hdp_lambdas(X, groups, n_local, n_global, *, n_threads=None):
    """Find penalties for which about these numbers of local and global clusters are expected.

    The local one is the mean, over data sets, of the value of :func:`farthest_first_lambda` for
    ``n_local`` clusters. For the global one, start with T = {mean of all data}; ``n_global``
    times, take the data set whose squared distances to T have the largest sum, remember that sum,
    and add the row of it that is farthest from T. The last sum is the penalty.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        The rows of all data sets.
    groups : array-like of shape (n_samples,)
        The data set of each row.
    n_local : int
        Guess of the number of clusters in a data set, cut to its size.
    n_global : int
        Guess of the number of clusters in all, cut to the number of rows.
    n_threads : int, default=None
        Threads; None means all that this process may use.

    Returns
    -------
    lam_local, lam_global : float
        Penalties in squared data units. Data sets whose rows are all the same are left out of the
        first; sums that are zero do not count; 1.0 if there is nothing else.

    Raises
    ------
    ValueError
        If ``X`` is not a finite, numeric, two-dimensional array, ``groups`` has another length,
        or a guess is below 1.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means, section 6.3 (in one sentence, read as above).

    Examples
    --------
    >>> from smallvar import hdp_lambdas
    >>> X = [[0.0], [1.0], [10.0], [0.5], [20.0], [21.0]]
    >>> lam_local, lam_global = hdp_lambdas(X, [0, 0, 0, 1, 1, 1], n_local=2, n_global=3)
    >>> round(lam_local, 2), round(lam_global, 2)
    (32.4, 2.56)
    """
    X = check_data(X)
    check_reach(X)
    check_number(n_local, "n_local", low=1, integer=True)
    check_number(n_global, "n_global", low=1, integer=True)
    check_number(n_threads, "n_threads", low=1, integer=True, none=True)
    names, group = check_groups(groups, X.shape[0])
    threads = resolve_threads(n_threads)
    return (
        local_lambda(X, group, len(names), n_local, threads),
        global_lambda(X, group, len(names), n_global, threads),
    )
