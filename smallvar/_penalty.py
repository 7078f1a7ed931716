"""Penalties from the data: the farthest-first rule."""

import numpy as np
from numpy.typing import ArrayLike

from smallvar._centers import mean_noise
from smallvar._config import resolve_threads
from smallvar._groups import Groups
from smallvar._sweeps.dpmeans import nearest_seed
from smallvar._sweeps.sums import Layout
from smallvar._validation import check_data, check_number, check_reach

GUESS = 8  # default of n_clusters, n_components


def check_guess(guess, n_samples, name="n_clusters"):
    """Raise unless so many clusters (or what ``name`` counts) can be had from this many samples."""
    check_number(guess, name, low=1, integer=True)
    if guess > n_samples:
        raise ValueError(f"{name} must be <= n_samples={n_samples}, got {name}={guess}")


def cut_guess(guess, n_samples, name="n_clusters"):
    """The guess to use: the default, which is not the user's, is cut to the number of samples."""
    if guess == GUESS:
        return min(GUESS, n_samples)
    check_guess(guess, n_samples, name)
    return guess


def farthest_by(add_seed, n_clusters, noise):
    """The farthest-first rule (KJ12, 6.1): from T = {the mean}, so many times add the farthest.

    ``add_seed(row)`` adds a row to T (None: T is the mean alone) and returns the row that is then
    farthest from T, and its distance. Returns the last distance above ``noise``, None if there is
    none.
    """
    row = penalty = None
    for _ in range(n_clusters):
        row, distance = add_seed(row)
        if not distance > noise:
            break
        penalty = distance
    return penalty


def among(distance, to_row, group=None):
    """An ``add_seed`` for ``farthest_by``: ``distance`` from the mean, ``to_row(i)`` from row i.

    With the number of each row's group (KJ12, 6.3), distances are summed over each group: the
    farthest row is that of the group with the largest sum, and this sum is its distance.
    """

    def add_seed(row):
        nonlocal distance
        if row is not None:
            distance = np.minimum(distance, to_row(row))
        if group is None:
            farthest = int(distance.argmax())
            return farthest, float(distance[farthest])
        total = np.bincount(group, distance)
        worst = int(total.argmax())
        rows = np.flatnonzero(group == worst)
        return rows[distance[rows].argmax()], float(total[worst])

    return add_seed


def rough_mean(X, mask, n_threads):
    """The mean, and the squared distance by which it may be off by rounding."""
    layout = Layout(X, mask, n_threads)
    return layout.mean(X, mask, n_threads), mean_noise(layout.low, layout.high)


def farthest_row(X, n_clusters, weight, n_threads):
    """The rule on checked data, None if rows are equal; ``weight`` tells which to leave out."""
    mask = None
    if weight is not None and not weight.all():
        mask = (weight > 0).astype(np.float64)
    mean, noise = rough_mean(X, mask, n_threads)
    distance = np.full(X.shape[0], np.inf)

    def add_seed(row):
        seed = mean if row is None else np.array(X[row], dtype=np.float64)
        return nearest_seed(X, mask, seed, distance, n_threads)

    return farthest_by(add_seed, n_clusters, noise)


def farthest_first(X, n_clusters, weight, n_threads):
    """The rule on checked data, 1 if rows are equal."""
    return farthest_row(X, n_clusters, weight, n_threads) or 1.0


def farthest_first_lambda(X: ArrayLike, n_clusters: int, *, n_threads: int | None = None) -> float:
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


def local_lambda(groups, rule):
    """lam_local: mean of the rule over data sets, without those where it finds nothing."""
    found = [value for value in map(rule, groups.members()) if value is not None]
    return float(np.mean(found)) if found else 1.0


def global_lambda(groups, distance, to_row, n_global, noise):
    """lam_global: the rule over data sets; ``distance`` and ``to_row`` as for ``among``."""
    n = len(groups.number)
    add_seed = among(distance, to_row, groups.number)
    return farthest_by(add_seed, min(n_global, n), noise * n) or 1.0


def local_of_rows(X, groups, n_local, n_threads):
    """The penalty of a local cluster, from squared distances."""

    def rule(rows):
        return farthest_row(np.ascontiguousarray(X[rows]), min(n_local, len(rows)), None, n_threads)

    return local_lambda(groups, rule)


def global_of_rows(X, groups, n_global, n_threads):
    """The penalty of a global cluster, from squared distances."""
    nearest = np.full(X.shape[0], np.inf)
    mean, noise = rough_mean(X, None, n_threads)

    def to_seed(seed):
        nearest_seed(X, None, seed, nearest, n_threads)  # lowers nearest
        return nearest

    def to_row(i):
        return to_seed(np.array(X[i], dtype=np.float64))

    return global_lambda(groups, to_seed(mean), to_row, n_global, noise)


def hdp_lambdas(
    X: ArrayLike, groups: ArrayLike, n_local: int, n_global: int, *, n_threads: int | None = None
) -> tuple[float, float]:
    """Derive penalties for which about these numbers of local and global clusters are expected.

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
    sets = Groups(groups, X.shape[0])
    threads = resolve_threads(n_threads)
    return (
        local_of_rows(X, sets, n_local, threads),
        global_of_rows(X, sets, n_global, threads),
    )
