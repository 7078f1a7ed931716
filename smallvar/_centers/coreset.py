"""Coresets: few weighted rows that stand for all of them."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils import check_random_state, gen_batches

from smallvar._centers.dpmeans import WEIGHTS
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
from smallvar._sweeps.dpmeans import DPSweep
from smallvar._sweeps.draws import SURE, systematic_draw

ROWS_A_SEED = 32  # rows drawn for each: with fewer a mean of theirs would be off by more than 3 %
# rows that seeds are found on: at least so many for each seed, and one of so many rows, but between
# these limits
SAMPLE_A_SEED, SAMPLE_ONE_IN, LEAST_SAMPLE, LARGEST_SAMPLE = 64, 16, 1 << 12, 1 << 15
ROWS_AT_A_TIME = 1 << 15  # of temporary arrays
BINS, ABOVE = 32, 12  # strata of each seed, four a doubling of the distance; those above the mean


def sample_of(X, weight, used, most, rng):
    """Rows for the seeds and their weights, and the weight of all rows by that of these.

    All rows, or rows drawn by weight, each time with weight 1.
    """
    n, total = used, None if weight is None else np.cumsum(weight)
    mass = float(n if total is None else total[-1])
    part = min(LARGEST_SAMPLE, n // SAMPLE_ONE_IN)
    size = max(LEAST_SAMPLE, part, SAMPLE_A_SEED * most)
    if size >= n:
        return X, weight, 1.0
    points = rng.uniform(size=size) * mass
    rows = points if total is None else np.searchsorted(total, points, side="right")
    rows, counts = np.unique(np.minimum(rows, X.shape[0] - 1).astype(np.intp), return_counts=True)
    return some_rows(X, rows), counts.astype(np.float64), mass / size


def rough_seeds(X, weight, lam, most, rng, n_threads):
    """Seeds, at most so many, of which the objective is low.

    The first seed is the mean. Then, in rounds, as many rows as there are seeds are drawn by weight
    times squared distance (Bahmani et al. 2012), until a round does not lower error + lam * seeds.
    """
    frame, labels = RowsFrame(X, weight, n_threads), np.zeros(X.shape[0], dtype=np.int32)
    sweep = DPSweep(X, weight, None, labels, frame, n_threads, 8, True)
    sweep.start(frame.mean.reshape(1, -1))
    best, lowest = 0, np.inf
    while True:
        sweep.assign()
        distance = sweep.assigned_distances()
        if sweep.k == 1:  # the mean is rounded, other seeds are rows
            distance[distance <= frame.rounding] = 0.0
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
    """Number of seeds, at most so many; the nearest one of each row, and its squared distance.

    The seeds are found on a sample of the rows, where there are many.
    """
    used = X.shape[0] if weight is None else np.count_nonzero(weight)
    some, of_some, share = sample_of(X, weight, used, most, rng)
    seeds = rough_seeds(some, of_some, lam / share, most, rng, n_threads)
    frame, labels = RowsFrame(X, weight, n_threads, seeds), np.zeros(X.shape[0], dtype=np.int32)
    sweep = DPSweep(X, weight, None, labels, frame, n_threads, len(seeds), False)
    sweep.set_centers(seeds)
    sweep.assign()
    distance = sweep.assigned_distances()
    if len(seeds) == 1:
        distance[distance <= frame.rounding] = 0.0
    return len(seeds), labels, distance


def sensitivities(k, labels, distance, weight, lam):
    """For each row a bound on the share that it may have in the objective at any centers.

    That is, by unit of its weight and times the weight W of all rows. With W_b and e_b the weight
    and the mean squared distance of the rows of seed b, a = 16 (ln k + 2), and the objective
    f = (error + lam k) / W at the seeds: a d / f + 2 a e_b / f + 4 W / W_b (Bachem, Lucic & Krause
    2017, Algorithm 2, where f is the error alone).
    """
    mass, error = masses(k, labels, distance, weight)
    used = np.flatnonzero(mass)
    total = float(np.cumsum(mass)[-1])
    of_seed = np.zeros(k)
    of_seed[used] = 4.0 * total / mass[used]
    f = (float(np.cumsum(error)[-1]) + lam * k) / total
    if not f > 0.0:  # every row is at a seed
        return of_seed[labels]
    a = 16.0 * (math.log(k) + 2.0)
    of_seed[used] += 2.0 * a * (error[used] / mass[used] / f)
    share = distance / f
    for b in gen_batches(len(labels), ROWS_AT_A_TIME):
        share[b] = a * share[b] + of_seed[labels[b]]
    return share


def masses(k, labels, distance, weight):
    """Weight of the rows of each seed, and the sum of their weighted squared distances."""
    mass = np.bincount(labels, weight, minlength=k)
    error = np.bincount(labels, distance if weight is None else weight * distance, minlength=k)
    return mass, error


def strata(k, labels, distance, weight):
    """Number of the stratum of each row: its seed, and within a factor its squared distance.

    Squared distances, by their mean about the seed, are told apart by their exponent and two bits
    of their fraction; the first and the last stratum have all that are smaller or larger.
    """
    mass, error = masses(k, labels, distance, weight)
    mean = np.divide(error, mass, out=np.zeros(k), where=mass > 0)
    out = np.empty(len(labels), dtype=np.int32)
    for b in gen_batches(len(labels), ROWS_AT_A_TIME):
        near = mean[labels[b]]
        quotient = np.divide(distance[b], near, out=np.zeros(len(near)), where=near > 0)
        fraction, exponent = np.frexp(quotient)
        place = BINS - ABOVE + 4 * (exponent - 1) + (8.0 * fraction).astype(np.intp) - 4
        place[quotient == 0.0] = 0
        out[b] = BINS * labels[b] + np.clip(place, 0, BINS - 1)
    return out


def inclusion(size, n_rows):
    """The c for which min(1, c * size) add up to ``n_rows``, which is less than there are sizes."""
    parted = np.partition(size, len(size) - n_rows)
    ordered = np.sort(parted[len(size) - n_rows :])[::-1]
    # if the largest j are taken for sure, c = (n_rows - j) / the sum of the others
    rest = float(parted[: len(size) - n_rows].sum())
    others = rest + np.cumsum(ordered[::-1])[::-1]
    j = int(np.argmax((n_rows - np.arange(n_rows)) * ordered <= others))
    return (n_rows - j) / float(others[j])


def coreset(
    X: Data,
    n_rows: int,
    lam: float,
    *,
    sample_weight: ArrayLike | None = None,
    random_state: int | np.random.RandomState | None = None,
    n_threads: int | None = None,
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Draw few rows, with weights, that have about the objective of DP-means that all rows have.

    For any centers mu_1 ... mu_K, few compared with ``n_rows``,

        sum_i w_i min_k ||x_i - mu_k||^2 + lam * K

    is about the same over the rows drawn with their new weights as over all rows: its expectation
    is the same. A row is the likelier to be drawn, and the lighter, the more of the objective it
    may be responsible for: it is far from others, or has few rows around it. So
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
        Penalty for each cluster in squared data units, >= 0: what a cluster must save, not the
        distance at which one opens (see Notes). 0 where it is not known yet: then the rows are
        drawn to suit any number of clusters up to n_rows / 32.
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
        Their weights: the weight given, divided by the probability with which the row is drawn. The
        sum is that of all weights in expectation, not exactly. Rows drawn for sure, and those of
        data that have no more than ``n_rows``, keep their weight.

    Raises
    ------
    ValueError, TypeError
        If ``X`` is not a finite, numeric, two-dimensional array, or a parameter is out of its
        bounds; the ratio of the largest to the least positive weight may be 1e12 at most.

    See Also
    --------
    DPMeans : What to fit to these rows, with ``algorithm="merge"``.
    MiniBatchDPMeans : Another way to deal with many rows.

    Notes
    -----
    Rough clusters come first: the mean, then rows drawn by their squared distance from the seeds so
    far, in rounds that double the seeds, for as long as that lowers the objective, at most
    n_rows / 32 seeds. A row at squared distance d from the nearest seed b, whose rows have weight
    W_b of all W and a mean squared distance e_b, can have no more than about

        a d / f + 2 a e_b / f + 4 W / W_b,  a = 16 (ln k + 2),

    W-ths of the objective, by unit of its weight, whatever the centers; f is the objective at the k
    seeds over W. The probability of a row is its weight times this bound times a constant, at most
    1, such that ``n_rows`` are expected. The draw is a systematic one, along the rows of each seed,
    near ones first (in 32 classes): equal steps through the sum of the probabilities, from a random
    start. So exactly ``n_rows`` are drawn, each row with its probability, and no seed gets too many
    or too few.

    Of many rows the seeds are found on a random sample, at least 64 rows for each seed that there
    may be. The bound holds for any seeds.

    A row of weight w opens a cluster at w times its squared distance > ``lam``. With a ``lam`` that
    is meant as a distance, ``algorithm="serial"`` and "delayed" therefore open far too many on a
    coreset, whose rows weigh as much as hundreds. What a cluster must save does not depend on that.

    ``DPMeans(lam="auto")`` goes by a part of the rows anyway. On a coreset it may find another
    number of clusters, as rows far from others are many there: find ``lam_`` on all rows, if
    possible.

    References
    ----------
    Bachem, Lucic & Krause (2015), Coresets for nonparametric estimation - the case of DP-means; the
    bound as in their Practical coreset constructions for machine learning (2017), Algorithm 2, with
    the penalties in f; rounds after Bahmani et al. (2012), Scalable k-means++, and the systematic
    draw after Madow (1949). The papers draw rows independently, with replacement.

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
    check_number(n_threads, "n_threads", low=1, integer=True, none=True)
    weight = check_weights(sample_weight, X.shape[0])
    check_ratio(weight, WEIGHTS)
    rng, threads = check_random_state(random_state), resolve_threads(n_threads)
    unit = unit_of(weight)
    weight = None if weight is None else weight / unit
    used = X.shape[0] if weight is None else np.count_nonzero(weight)
    if n_rows >= used:
        rows = np.arange(X.shape[0]) if weight is None else np.flatnonzero(weight)
        return rows, np.ones(len(rows)) if weight is None else unit * weight[rows]
    k, labels, distance = rough(X, weight, lam / unit, max(1, n_rows // ROWS_A_SEED), rng, threads)
    stratum = strata(k, labels, distance, weight)
    share = sensitivities(k, labels, distance, weight, lam / unit)
    del labels, distance
    share *= inclusion(share if weight is None else (weight * share)[weight > 0.0], n_rows)
    chance = share if weight is None else weight * share
    index = np.flatnonzero(systematic_draw(chance, stratum, BINS * k, n_rows, rng.uniform()))
    sure = chance[index] >= SURE
    new = np.where(sure, 1.0 if weight is None else weight[index], 1.0 / share[index])
    return index, unit * new
