"""Shared clusters: the hard HDP (KJ12 Algorithm 2)."""

from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from twins.bregman import divergences, opened, own_divergence
from twins.exact import (
    exact_sums,
    layout,
    means_within,
    rounding_of,
    squared_distances,
    sum_of_squares,
    weighted_means,
    without_gaps,
)

SQUARED = "squared_euclidean"


@dataclass
class Hierarchy:
    """What a fit of the hard HDP returns."""

    labels: np.ndarray
    centers: np.ndarray
    n_local: np.ndarray
    objective: float
    path: np.ndarray
    n_iter: int
    low: float  # the largest saving of a global cluster that was not opened in the last sweep


def distances(X, centers, name):
    """All divergences of this name."""
    return squared_distances(X, centers) if name == SQUARED else divergences(X, centers, name)


def ties(least, costs, rounding):
    """Whether costs equal the least one, but for means that are off by the root of ``rounding``."""
    return np.sqrt(costs) <= (1 + 2.0**-48) * (np.sqrt(least) + 2 * np.sqrt(rounding))


def fraction_means(X, weights, labels, _):
    """Means of Fractions."""
    of = [labels == c for c in range(labels.max() + 1)]
    return np.array([weights[rows] @ X[rows] / weights[rows].sum() for rows in of])


def drop(X, sets, weights, labels, centers, lam_local, name=SQUARED):
    """Each data set gives up its cheapest local cluster while that costs less than lam_local."""
    for rows in sets:
        while True:
            used = np.unique(labels[rows])
            if len(used) == 1:
                break
            D = distances(X[rows], centers[used], name)
            own = np.searchsorted(used, labels[rows])
            at = np.arange(len(rows))
            mine = D[at, own]
            D[at, own] = np.inf
            other = D.argmin(axis=1)
            loss = np.bincount(own, weights[rows] * (D.min(axis=1) - mine), len(used))
            cheapest = loss.argmin()
            if not loss[cheapest] < lam_local:
                break
            gone = own == cheapest
            labels[rows[gone]] = used[other[gone]]


def hdp(
    X, groups, lam_local, lam_global, *, weights=None, max_iter=300, begin=None,
    divergence=SQUARED, fractions=False,
):  # fmt: skip
    """Algorithm 2 of KJ12. Local clusters are pairs (data set, global cluster).

    A divergence takes the place of the squared distance; a cluster that opens on the border of its
    domain is moved off it. Costs tie within the rounding of means; with ``fractions`` all numbers
    are the decimals that they are written as, and nothing is rounded. ``begin``: labels and centers
    of a fixed point; wherever one is reached, data sets drop the local clusters that are not worth
    lam_local.
    """
    X = np.asarray(X, dtype=float)
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    if fractions:
        lam_local, lam_global = Fraction(str(lam_local)), Fraction(str(lam_global))
        X, weights = (np.vectorize(lambda x: Fraction(str(x)), "O")(a) for a in (X, weights))
    sets = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    name, euclidean = divergence, divergence == SQUARED
    means = weighted_means if euclidean else means_within
    if fractions:
        means, b = fraction_means, None
    else:
        b = layout(X, weights) if euclidean else layout(X, weights, np.zeros(X.shape[1]), 0)
        rounding = rounding_of(X[weights > 0])

    def choose(cost, weight, penalty):
        """The cheapest cluster, and whether a new one is cheaper, by more than rounding."""
        if fractions or not euclidean:
            return cost.argmin(), cost.min() > penalty
        tied, opens = ties(cost.min(), cost, weight * rounding), cost.min() > penalty
        return tied.argmax(), opens and not ties(penalty, cost.min(), weight * rounding)

    mean_of_all = means(X, weights, np.zeros(len(X), dtype=int), b)[0]

    def center_at(x, weight, cost, penalty):
        return x if euclidean else opened(x, weight, cost / weight, penalty, mean_of_all, name)[0]

    if begin is None:
        labels = np.zeros(len(X), dtype=int)
        centers = means(X, weights, labels, b)
    else:
        labels, centers = np.array(begin[0], dtype=int), begin[1]
    path, n_iter, was_fixed = [], 0, begin is not None
    while n_iter < max_iter:
        n_before, low = len(centers), 0.0
        dropping = labels.copy()
        if was_fixed:
            drop(X, sets, weights, labels, centers, lam_local, name)
        dropped, before = not np.array_equal(labels, dropping), labels.copy()
        for rows in sets:  # step 4
            local = set(labels[rows])
            for i in rows:
                cost = weights[i] * distances(X[i : i + 1], centers, name)[0]
                cost += [0 if p in local else lam_local for p in range(len(centers))]
                low = max(low, cost.min() - lam_local)
                best, opens = choose(cost, weights[i], lam_local + lam_global)
                if opens:
                    labels[i] = len(centers)
                    new = center_at(X[i], weights[i], cost.min(), lam_local + lam_global)
                    centers = np.vstack([centers, new])
                else:
                    labels[i] = best
                local.add(labels[i])
        for rows in sets:  # step 5
            for c in np.unique(labels[rows]):
                mine = rows[labels[rows] == c]
                one = np.zeros(len(mine), dtype=int)
                mean = means(X[mine], weights[mine], one, b)[0]
                if fractions:
                    weight_sum = weights[mine].sum()
                else:
                    weight_sum = exact_sums(X[mine], weights[mine], one, 1, b)[1][0]
                cost = weight_sum * distances(mean[None], centers, name)[0]
                low = max(low, cost.min())
                best, opens = choose(cost, weight_sum, lam_global)
                if opens:
                    labels[mine] = len(centers)
                    new = center_at(mean, weight_sum, cost.min(), lam_global)
                    centers = np.vstack([centers, new])
                else:
                    labels[mine] = best
        created = len(centers) > n_before
        fixed = np.array_equal(labels, before) and not created and not dropped
        ended = fixed and (was_fixed or begin is None)
        was_fixed = fixed and begin is not None
        labels, _ = without_gaps(labels)  # step 6
        centers = means(X, weights, labels, b)
        n_local = np.array([len(set(labels[rows])) for rows in sets])
        error = sum_of_squares if euclidean else partial(own_divergence, name=name)
        if fractions:
            sse = weights @ np.square(X - centers[labels]).sum(axis=1)
        else:
            sse = error(X, weights, labels, centers)
        penalty = 0.0 if begin is not None else lam_global * len(centers)
        path.append(sse + lam_local * n_local.sum() + penalty)
        n_iter += 1
        if ended:
            break
    return Hierarchy(labels, centers, n_local, path[-1], np.array(path), n_iter, low)


def bound(X, groups, lam_local, lam_global, weights, shares):
    """A bound on the objective: a share of the error is paid by local clusters, the rest by all."""

    def of_dpmeans(X, w, lam, share):
        squares, mean = squared_distances(X, X), np.average(X, axis=0, weights=w)
        G = (np.sqrt(w)[:, None] * (X - mean)) @ (np.sqrt(w)[:, None] * (X - mean)).T
        by_values = lam + np.minimum(share * np.linalg.eigvalsh(G), lam).sum()
        by_pairs = 0.0
        for i in range(len(X)):
            order = np.argsort(squares[i])
            cost = share * np.cumsum(w[order] * squares[i, order]) / 2 + lam
            by_pairs += w[i] * (cost / np.cumsum(w[order])).min()
        return max(by_values, by_pairs)

    def total(a):
        parts = [groups == g for g in np.unique(groups)]
        local = [of_dpmeans(X[rows], weights[rows], lam_local, a) for rows in parts]
        return sum(local) + of_dpmeans(X, weights, lam_global, 1 - a)

    return max(map(total, shares))


def local_price(X, weights, inertia, price):
    """What a local cluster must save: so many variances within clusters, times log(rows)."""
    used = X[weights > 0]
    rows, varying = len(np.unique(used, axis=0)), int((np.ptp(used, axis=0) > 0).sum())
    return price * inertia / (rows * varying) * np.log(rows) if inertia > 0 else 1.0


def worth(X, groups, weights, labels, centers):
    """The least, over clusters, of the most that a local cluster would lose without it."""
    most = np.zeros(len(centers))
    for g in np.unique(groups):
        for c in np.unique(labels[groups == g]):
            mine = (groups == g) & (labels == c)
            mean = np.average(X[mine], axis=0, weights=weights[mine])
            others = np.delete(centers, c, axis=0)
            least = np.square(mean - others).sum(axis=1).min(initial=np.inf)
            most[c] = max(most[c], weights[mine].sum() * least)
    return most.min()
