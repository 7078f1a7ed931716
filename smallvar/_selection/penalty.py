"""Penalties from the data: the farthest-first rule, and the penalty of a stream of batches."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import pdist

from smallvar._core.config import resolve_threads
from smallvar._core.frame import mean_rounding, nearest, nearest_row
from smallvar._core.groups import Groups
from smallvar._core.validation import (
    Data,
    check_data,
    check_flag,
    check_number,
    check_reach,
    exact_number,
    mean_weight,
    shown,
    some_rows,
)
from smallvar._selection.cluster_path import ClusterPath
from smallvar._sweeps.exact import nearest_seed
from smallvar._sweeps.sums import Layout

LAM_RULES = ("auto", "farthest-first")  # what lam may be besides a number
GUESS = 8  # default of guess, n_components
COMPANY = 10  # a seed is alone if it attracts less than 1 / COMPANY of an average cluster's rows
# seeds that are alone do not count beyond this squared distance, in penalties
FAR_IN_PENALTIES = 9.0
MOST_ALONE = 100  # if more seeds are alone, they are no outliers, and all seeds count
FIRST_BATCHES = 16  # all looked at for a penalty that rests on a single cluster; later ones, fewer


def check_guess(guess, n_samples, name="guess"):
    """Raise unless so many clusters (or what ``name`` counts) can be had from this many samples."""
    check_number(guess, name, low=1, integer=True)
    if guess > n_samples:
        raise ValueError(f"{name} must be <= n_samples={n_samples}, got {name}={guess}")


def cut_guess(guess, n_samples, name="guess"):
    """The checked guess, at most ``n_samples``: the default, GUESS, is cut to that."""
    if guess == GUESS:
        return min(GUESS, n_samples)
    check_guess(guess, n_samples, name)
    return guess


def farthest_by(distance, to_row, n_clusters, rounding, count_alone=False, group=None):
    """The farthest-first rule (KJ12, 6.1): add the farthest row to T = {the mean}, again and again.

    ``distance`` are those of all rows from the mean, ``to_row(i)`` those from row i. The result is
    the distance from T of the row that is added as number ``n_clusters``, or the last one above
    ``rounding`` if there are fewer; None if there is none.

    A seed is alone if it comes nearer to less than a tenth of the rows of an average cluster. Let D
    be the result if seeds that are alone do not count. Then those at distances above 9 D do not. If
    there is no D, or more than 100 seeds are alone before it, all count (``count_alone``: always).

    With the number of each row's group (KJ12, 6.3), distances are summed over each group: the
    farthest row is that of the group with the largest sum, and this sum is its distance.
    """
    company = 1 if count_alone else -(-len(distance) // (COMPANY * int(n_clusters)))
    distance, distances, alone = np.array(distance), [], []
    while sum(alone) <= MOST_ALONE or len(distances) < n_clusters:
        total = distance if group is None else np.bincount(group, distance)
        worst = row = total.argmax()
        if not total[worst] > rounding:
            break
        distances.append(float(total[worst]))
        if company == 1 and len(distances) == n_clusters:
            break
        if group is not None:
            row = np.where(group == worst, distance, -1.0).argmax()
        from_row = to_row(row)
        alone.append(np.count_nonzero(from_row < distance) < company)
        np.minimum(distance, from_row, out=distance)
        if alone.count(False) == n_clusters:
            far = FAR_IN_PENALTIES * distances[-1]
            distances = [
                d for d, lone in zip(distances, alone, strict=True) if not lone or d <= far
            ]
            break
    return distances[:n_clusters][-1] if distances else None


def squared_distances(X, n_threads, about=None):
    """Squared distances of rows from the mean, as for ``farthest_by``, and what rounding adds.

    ``about`` is a point instead of the mean, and its rounding as a squared distance.
    """
    if about is None:
        layout = Layout(X, None, n_threads)
        about = layout.mean(X, None, n_threads), mean_rounding(layout.low, layout.high)
    distance = np.full(X.shape[0], np.inf)
    nearest_seed(X, None, about[0], distance, n_threads)

    def to_row(row):
        nearest_row(X, None, row, distance, n_threads)  # lowers the distances
        return distance

    return distance, to_row, about[1]


def farthest_row(X, n_clusters, weight, n_threads, count_alone=False, about=None):
    """The farthest-first rule on checked data, None if all rows are equal.

    Rows of weight zero are left out; other weights do not matter. ``about`` is a point to begin at
    instead of the mean, and its rounding as a squared distance.
    """
    if weight is not None and not weight.all():
        X = some_rows(X, np.flatnonzero(weight))
    distance, to_row, rounding = squared_distances(X, n_threads, about)
    return farthest_by(distance, to_row, n_clusters, rounding, count_alone)


def farthest_first(X, n_clusters, weight, n_threads):
    """The farthest-first rule on checked data, 1 if all rows are equal."""
    return farthest_row(X, n_clusters, weight, n_threads) or 1.0


def check_exact_number(estimator, given=("lam",)):
    """Raise unless ``n_clusters`` and any ``guess`` are in bounds, and fit the penalty.

    ``given`` names the parameters that make a penalty, of which each is None where it does not.
    """
    number, most = exact_number(estimator.n_clusters), getattr(estimator, "max_clusters", None)
    with_guess = hasattr(estimator, "guess")
    if with_guess:
        check_number(estimator.guess, "guess", low=1, integer=True)
    if number is None:
        return
    for name in given:
        value = getattr(estimator, name)
        if isinstance(value, str) and value == "farthest-first":
            raise ValueError(
                f"n_clusters must be None with {name}='farthest-first', got {number}: use "
                f"{'guess, which is' if with_guess else 'hdp_lambdas, whose guesses are'} no exact "
                "number"
            )
        if value is not None and not isinstance(value, str):
            raise ValueError(
                f"n_clusters must be None where {name} is a number, from which the number of "
                f"clusters follows, got n_clusters={number} and {name}={shown(value)}"
            )
    if most is not None and number > most:
        raise ValueError(f"n_clusters must be <= max_clusters={most}, got n_clusters={number}")


def resolve_lam(lam, X, guess, weight, n_threads):
    """The penalty as a number: a given one, or that of the farthest-first rule.

    The rule finds a squared distance. A row opens a cluster at its weight times its distance, so
    the penalty is that distance times the mean weight.
    """
    if isinstance(lam, str):
        guess = cut_guess(guess, X.shape[0])
        check_reach(X)
        return mean_weight(weight) * farthest_first(X, guess, weight, n_threads)
    return float(lam)


def opening_distance(X, weight, centers, n_threads):
    """The weighted squared distance at which a cluster opens, and the largest within the clusters.

    The first exceeds every distance within the clusters of these centers, and is at least a quarter
    of the least distance between two centers. Where there are no distances at all it is the mean
    weight, a placeholder.
    """
    sweep = nearest(X, weight, centers, n_threads)
    distance = sweep.assigned_distances()
    within = float((distance if weight is None else weight * distance).max())
    if len(centers) == 1:
        return (4.0 * within if within > 0.0 else mean_weight(weight)), within
    # a row opens a cluster by its weighted distance
    between = pdist(centers, "sqeuclidean") * mean_weight(weight)
    between = float(between[between > 0.0].min(initial=np.inf))
    return max(2.0 * within, np.sqrt(within) * np.sqrt(between), 0.25 * between), within


@dataclass(frozen=True, eq=False)
class BatchPenalty:
    """A penalty that was chosen from a batch, the path of the batch, and what the penalty rests on.

    ``path`` is None where another rule chose it. ``within`` is the largest distance within the
    single cluster of the path, 0 if all rows are equal, and None if there are several clusters. A
    penalty that rests on a single one says how far apart rows of a cluster are, not clusters, and
    is chosen again from later batches: each of the FIRST_BATCHES, then those whose number is a
    power of two, and any with rows that open a cluster. ``later`` is the number of later batches.
    """

    path: ClusterPath | None
    lam: float
    within: float | None
    later: int = 0

    @property
    def is_due(self):
        """Whether to choose again from the batch that comes as number ``later``."""
        n = self.later
        early = self.within == 0.0 or n <= FIRST_BATCHES or n & (n - 1) == 0
        return self.within is not None and early

    def counted(self):
        """This penalty, with one more batch."""
        return replace(self, later=self.later + 1)

    def after(self, other):
        """This penalty or that of a later batch: of several clusters, otherwise the larger one."""
        other = replace(other, later=self.later)
        if other.within is None or self.within == 0.0 or other.lam > self.lam:
            return other
        return self


def farthest_first_lambda(
    X: Data, n_clusters: int, *, count_alone: bool = False, n_threads: int | None = None
) -> float:
    """Penalty for which about ``n_clusters`` clusters are expected.

    Start with T = {mean of the data}; ``n_clusters`` times, find the row with the largest squared
    distance to T, remember that distance, and add the row to T. The last distance is the penalty:
    a cluster may then be about as far from its center as the next, needless, seed would have been
    from the others. Outliers do not count (see Notes).

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Data; float32 and float64 are used as they are, sparse rows as CSR.
    n_clusters : int
        Guess of the number of clusters, from 1 to n_samples.
    count_alone : bool, default=False
        Let rows count that are far and alone: the rule of the paper to the letter.
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

    Notes
    -----
    In the paper every row that is added counts, and a few outliers take the places of clusters:
    the penalty is then far too large. Here a row is *alone* if, once it is added, fewer rows are
    nearer to it than to the rest of T than a tenth of n_samples / n_clusters (itself included).
    Let D be the penalty if rows that are alone do not count. Those at a distance above 9 D, three
    times the length, do not; others do. If nothing is so far and alone, this is the rule of the
    paper; likewise with fewer than ten rows for each cluster guessed, or if more than 100 rows are
    found alone.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means, section 6.1.

    Examples
    --------
    >>> from smallvar import farthest_first_lambda
    >>> farthest_first_lambda([[0.0], [1.0], [10.0], [11.0]], n_clusters=2)
    30.25

    Forty rows in two groups, and one far away:

    >>> X = [[0.0]] * 20 + [[10.0]] * 20 + [[1000.0]]
    >>> farthest_first_lambda(X, n_clusters=2)
    100.0
    >>> round(farthest_first_lambda(X, n_clusters=2, count_alone=True), 1)
    856.6
    """
    X = check_data(X, sparse=True)
    check_reach(X)
    check_guess(n_clusters, X.shape[0], "n_clusters")
    check_flag(count_alone, "count_alone")
    threads = resolve_threads(n_threads)
    return farthest_row(X, n_clusters, None, threads, count_alone) or 1.0


def local_lambda(groups, rule):
    """lam_local: mean of ``rule(rows)`` over data sets, without those where it is None."""
    found = [value for value in map(rule, groups.members()) if value is not None]
    return float(np.mean(found)) if found else 1.0


def global_lambda(groups, distance, to_row, n_global, rounding, count_alone=False):
    """lam_global: the rule over data sets; ``distance`` and ``to_row`` as for ``farthest_by``."""
    n, group = len(distance), groups.number
    rule = farthest_by(distance, to_row, min(n_global, n), rounding * n, count_alone, group)
    return rule or 1.0


def local_of_rows(X, groups, n_local, n_threads, count_alone=False):
    """The penalty of a local cluster, from squared distances."""

    def rule(rows):
        few = np.ascontiguousarray(X[rows])
        return farthest_row(few, min(n_local, len(rows)), None, n_threads, count_alone)

    return local_lambda(groups, rule)


def global_of_rows(X, groups, n_global, n_threads, count_alone=False):
    """The penalty of a global cluster, from squared distances."""
    distance, to_row, rounding = squared_distances(X, n_threads)
    return global_lambda(groups, distance, to_row, n_global, rounding, count_alone)


def hdp_lambdas(
    X: ArrayLike,
    groups: ArrayLike,
    n_local: int,
    n_global: int,
    *,
    count_alone: bool = False,
    n_threads: int | None = None,
) -> tuple[float, float]:
    """Derive penalties for which about these numbers of local and global clusters are expected.

    The local one is the mean, over data sets, of the value of :func:`farthest_first_lambda` for
    ``n_local`` clusters. For the global one, start with T = {mean of all data}; ``n_global``
    times, take the data set whose squared distances to T have the largest sum, remember that sum,
    and add the row of it that is farthest from T. The last sum is the penalty. In both, rows that
    are far and alone do not count.

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
    count_alone : bool, default=False
        Let rows count that are far and alone, as for :func:`farthest_first_lambda`: the rules of
        the paper to the letter.
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
    check_flag(count_alone, "count_alone")
    sets = Groups(groups, X.shape[0])
    threads = resolve_threads(n_threads)
    return (
        local_of_rows(X, sets, n_local, threads, count_alone),
        global_of_rows(X, sets, n_global, threads, count_alone),
    )
