"""Coresets: few weighted rows on which the objective of DP-means is about that of all rows.

Bachem, Lucic & Krause (2015, 2017). In order: rough seeds on a sample (``rough``); bounds on the
share of each row in the objective (``sensitivities``); strata for the systematic draw; and the
public function ``coreset``.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils import check_random_state, gen_batches

from smallvar._core.config import resolve_threads
from smallvar._core.frame import RowsFrame
from smallvar._core.validation import (
    Data,
    check_data,
    check_number,
    check_ratio,
    check_weights,
    some_rows,
    unit_of,
)
from smallvar._selection.descent import draw
from smallvar._sweeps.draws import CERTAIN_SHARE, systematic_draw
from smallvar._sweeps.rows import LARGEST_WEIGHT_RATIO

ROWS_A_SEED = 32  # rows of the coreset for each seed: an error of about 3 % in a cluster's cost
# size of the sample on which seeds are found: rows for each seed; one row in 16, within limits
SAMPLE_A_SEED, SAMPLE_ONE_IN, LEAST_SAMPLE, LARGEST_SAMPLE = 64, 16, 1 << 12, 1 << 15
ROWS_AT_A_TIME = 1 << 15  # in temporary arrays
BINS, ABOVE = 32, 12  # strata for each seed, four for each doubling of distance; above the mean


def sample_of(X, weight, used, most, rng):
    """The sample for the seeds, its weights, and the weight of all rows divided by its own.

    These are all rows, or rows drawn by weight with replacement, a row drawn m times with weight m.
    ``used`` is the number of rows of positive weight, ``most`` the largest number of seeds.
    """
    n, total = used, None if weight is None else np.cumsum(weight)
    total_weight = float(n if total is None else total[-1])
    part = min(LARGEST_SAMPLE, n // SAMPLE_ONE_IN)
    size = max(LEAST_SAMPLE, part, SAMPLE_A_SEED * most)
    if size >= n:
        return X, weight, 1.0
    points = rng.uniform(size=size) * total_weight
    rows = points if total is None else np.searchsorted(total, points, side="right")
    rows, counts = np.unique(np.minimum(rows, X.shape[0] - 1).astype(np.intp), return_counts=True)
    return some_rows(X, rows), counts.astype(np.float64), total_weight / size


def rough_seeds(X, weight, lam, most, rng, n_threads):
    """Seeds, at most ``most``, with a low objective of DP-means: (n_seeds, n_features).

    The first seed is the mean. Then, in rounds, as many rows as there are seeds are drawn by weight
    times squared distance (Bahmani et al. 2012), until a round does not lower error + lam * seeds.
    """
    frame = RowsFrame(X, weight, n_threads)
    sweep = frame.sweep(8, bounded=True)
    sweep.start(frame.mean.reshape(1, -1))
    best, lowest = 0, np.inf
    while True:
        sweep.assign()
        distance = sweep.assigned_distances()
        if sweep.k == 1:  # only the mean is rounded: other seeds are rows
            distance[distance <= frame.rounding] = 0.0
        # cumulative sums, to draw by weight times squared distance
        total = np.cumsum(distance if weight is None else weight * distance)
        objective = total[-1] + lam * sweep.k
        if best and not objective < lowest:
            return sweep.centers[:best]
        best, lowest = sweep.k, objective
        if sweep.k >= most or not total[-1] > 0.0:
            return sweep.centers
        seeds = some_rows(X, draw(total, min(sweep.k, most - sweep.k), rng))
        seeds = seeds.toarray() if issparse(X) else seeds
        sweep.append(np.ascontiguousarray(seeds, dtype=np.float64))


def rough(X, weight, lam, most, rng, n_threads):
    """Number of seeds, found on a sample; labels of the nearest seeds, and squared distances."""
    used = X.shape[0] if weight is None else np.count_nonzero(weight)
    sample, sample_weight, share = sample_of(X, weight, used, most, rng)
    seeds = rough_seeds(sample, sample_weight, lam / share, most, rng, n_threads)
    frame = RowsFrame(X, weight, n_threads, seeds)
    sweep = frame.sweep(len(seeds))
    sweep.set_centers(seeds)
    sweep.assign()
    distance = sweep.assigned_distances()
    if len(seeds) == 1:
        distance[distance <= frame.rounding] = 0.0
    return len(seeds), sweep.labels, distance


def sensitivities(k, labels, distance, weight, lam):
    """For each row a bound on its share in the objective, at any centers.

    The bound is for a unit of weight, times the weight W of all rows:

        a d / f + 2 a e_b / f + 4 W / W_b,  a = 16 (ln k + 2),

    with d the squared distance from the nearest seed b, W_b and e_b the weight and the mean squared
    distance of the rows of b, and f = (error + lam k) / W the objective at the seeds (Bachem, Lucic
    & Krause 2017, Algorithm 2, where f is the error alone).
    """
    weights, error = weights_and_errors(k, labels, distance, weight)
    used = np.flatnonzero(weights)
    total = float(np.cumsum(weights)[-1])
    of_seed = np.zeros(k)
    of_seed[used] = 4.0 * total / weights[used]
    f = (float(np.cumsum(error)[-1]) + lam * k) / total
    if not f > 0.0:  # every row is at a seed
        return of_seed[labels]
    a = 16.0 * (math.log(k) + 2.0)
    of_seed[used] += 2.0 * a * (error[used] / weights[used] / f)
    share = distance / f
    for b in gen_batches(len(labels), ROWS_AT_A_TIME):
        share[b] = a * share[b] + of_seed[labels[b]]
    return share


def weights_and_errors(k, labels, distance, weight):
    """Weight of the rows of each seed, and the sum of their weighted squared distances."""
    weights = np.bincount(labels, weight, minlength=k)
    error = np.bincount(labels, distance if weight is None else weight * distance, minlength=k)
    return weights, error


def strata(k, labels, distance, weight):
    """Number of the stratum of each row (int32): BINS * seed + a class of its squared distance.

    The class is the binary exponent, with two bits of the fraction, of the squared distance divided
    by its mean about the seed. The first and the last class have all that are smaller or larger.
    """
    weights, error = weights_and_errors(k, labels, distance, weight)
    mean = np.divide(error, weights, out=np.zeros(k), where=weights > 0)
    out = np.empty(len(labels), dtype=np.int32)
    for b in gen_batches(len(labels), ROWS_AT_A_TIME):
        unit = mean[labels[b]]
        quotient = np.divide(distance[b], unit, out=np.zeros(len(unit)), where=unit > 0)
        fraction, exponent = np.frexp(quotient)
        bin_ = BINS - ABOVE + 4 * (exponent - 1) + (8.0 * fraction).astype(np.intp) - 4
        bin_[quotient == 0.0] = 0
        out[b] = BINS * labels[b] + np.clip(bin_, 0, BINS - 1)
    return out


def inclusion(size, n_rows):
    """The factor c for which min(1, c * size) sum to ``n_rows`` < len(size)."""
    parted = np.partition(size, len(size) - n_rows)
    ordered = np.sort(parted[len(size) - n_rows :])[::-1]
    # if the j largest have probability 1, c = (n_rows - j) / (sum of the others)
    rest = float(parted[: len(size) - n_rows].sum())
    rest_sums = rest + np.cumsum(ordered[::-1])[::-1]
    j = int(np.argmax((n_rows - np.arange(n_rows)) * ordered <= rest_sums))
    return (n_rows - j) / float(rest_sums[j])


def coreset(
    X: Data,
    n_rows: int,
    lam: float,
    *,
    sample_weight: ArrayLike | None = None,
    random_state: int | np.random.RandomState | None = None,
    n_threads: int | None = None,
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Draw a few weighted rows on which the objective of DP-means is about that of all rows.

    For any centers mu_1 ... mu_K, few compared with ``n_rows``,

        sum_i w_i min_k ||x_i - mu_k||^2 + lam * K

    is about the same over the rows drawn, with their new weights, as over all rows; its expectation
    is the same. The larger the possible share of a row in the objective (it is far from others, or
    has few rows around it), the likelier it is drawn, and the smaller its new weight. So
    ``DPMeans(lam=lam, algorithm="merge").fit(X[index], sample_weight=weight)`` finds centers that
    are good for all rows.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Data; float32 and float64 are used as they are, sparse rows as CSR.
    n_rows : int
        How many rows to draw, >= 1. The squared error at the centers found exceeds the best one by
        about K / n_rows of itself: take more than 30 rows for each cluster that is expected.
    lam : float
        Penalty for each cluster in squared data units, >= 0: the amount by which a cluster must
        lower the squared error, not the squared distance at which one opens (see Notes). With 0,
        if it is not known yet, the rows suit any number of clusters up to n_rows / 32.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights >= 0 of the rows, not all zero; None means 1 each. Rows of weight zero are never
        drawn.
    random_state : int, RandomState instance or None, default=None
        Generator of the draws.
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.

    Returns
    -------
    index : ndarray of shape (n_rows,), intp
        The rows drawn, ascending, each once; all rows of positive weight, if there are no more
        than ``n_rows``.
    weight : ndarray of shape (n_rows,), float64
        The new weights: the weight given, divided by the probability with which the row is drawn.
        Their sum is that of all weights in expectation, not exactly. Rows with probability 1, and
        all rows if there are no more than ``n_rows``, keep their weight.

    Raises
    ------
    ValueError, TypeError
        If ``X`` is not a finite, numeric, two-dimensional array, or a parameter is out of its
        bounds; the ratio of the largest to the least positive weight may be 1e12 at most.

    See Also
    --------
    DPMeans : The estimator to fit to these rows, with ``algorithm="merge"``.
    MiniBatchDPMeans : Clusters many rows in batches.

    Notes
    -----
    First, rough seeds are found: the mean, then rows drawn by their squared distance from the seeds
    so far, in rounds that double the number of seeds as long as that lowers the objective, up to
    n_rows / 32 seeds. Let a row be at squared distance d from the nearest seed b, whose rows have
    weight W_b of all W and a mean squared distance e_b. Its share in the objective, for a unit of
    its weight and at any centers, is at most about

        (a d / f + 2 a e_b / f + 4 W / W_b) / W,  a = 16 (ln k + 2),

    where f is the objective at the k seeds, divided by W. The probability of a row is its weight
    times this bound times a constant, at most 1, such that ``n_rows`` are expected. The draw is
    systematic: equal steps, from a random start, through the cumulative sum of the probabilities
    over the rows of each seed, near ones first (in 32 classes). So exactly ``n_rows`` are drawn,
    each row with its probability, and each seed gets its share of them.

    With many rows the seeds are found on a random sample, at least 64 rows for each possible seed.
    The bound holds for any seeds.

    A row of weight w opens a cluster at w times its squared distance > ``lam``. If ``lam`` is meant
    as a squared distance, ``algorithm="serial"`` and "delayed" therefore open far too many clusters
    on a coreset, where the weight of a row may be that of hundreds. The amount that a cluster must
    save does not depend on that.

    ``DPMeans(lam="auto")`` uses a sample of many rows by itself. On a coreset it may find another
    number of clusters, because a coreset has relatively many rows far from others. Take ``lam_``
    from a fit to all rows, if possible.

    References
    ----------
    Bachem, Lucic & Krause (2015), Coresets for nonparametric estimation - the case of DP-means; the
    bound as in their Practical coreset constructions for machine learning (2017), Algorithm 2, with
    the penalties in f; rounds after Bahmani et al. (2012), Scalable k-means++. The systematic draw
    is after Madow (1949); the other papers draw rows independently, with replacement.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from smallvar import DPMeans, coreset
    >>> X, _ = make_blobs(50_000, centers=10, random_state=0, cluster_std=0.5)
    >>> index, weight = coreset(X, 500, lam=10_000.0, random_state=0)
    >>> few = DPMeans(lam=10_000.0, algorithm="merge", random_state=0)
    >>> few = few.fit(X[index], sample_weight=weight)
    >>> full = DPMeans(lam=10_000.0, algorithm="merge", random_state=0).fit(X)
    >>> few.n_clusters_, full.n_clusters_
    (10, 10)
    >>> round(-few.score(X) / full.objective_, 3)
    1.003
    """
    X = check_data(X, sparse=True)
    check_number(n_rows, "n_rows", low=1, integer=True)
    lam = check_number(lam, "lam", low=0)
    weight = check_weights(sample_weight, X.shape[0])
    check_ratio(weight, LARGEST_WEIGHT_RATIO)
    rng, threads = check_random_state(random_state), resolve_threads(n_threads)
    # weights near 1, whatever their unit
    unit = unit_of(weight)
    weight = None if weight is None else weight / unit
    used = X.shape[0] if weight is None else np.count_nonzero(weight)
    if n_rows >= used:
        rows = np.arange(X.shape[0]) if weight is None else np.flatnonzero(weight)
        return rows, np.ones(len(rows)) if weight is None else unit * weight[rows]
    k, labels, distance = rough(X, weight, lam / unit, max(1, n_rows // ROWS_A_SEED), rng, threads)
    # along the strata a systematic draw takes from each seed, near and far, its share of rows
    stratum = strata(k, labels, distance, weight)
    share = sensitivities(k, labels, distance, weight, lam / unit)
    del labels, distance
    # from here on ``share`` is the probability of a row, divided by its weight
    share *= inclusion(share if weight is None else (weight * share)[weight > 0.0], n_rows)
    probability = share if weight is None else weight * share
    index = np.flatnonzero(systematic_draw(probability, stratum, BINS * k, n_rows, rng.uniform()))
    certain = probability[index] >= CERTAIN_SHARE
    # w / (probability of the row) = 1 / share
    new = np.where(certain, 1.0 if weight is None else weight[index], 1.0 / share[index])
    return index, unit * new
