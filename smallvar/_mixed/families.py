"""Whether another family describes the numbers of a column better within the clusters found.

All rows together may look like amounts with a long tail if clusters of normal shape lie far apart,
and the other way round.
"""

from dataclasses import replace

import numpy as np
from scipy.special import gammaln

from smallvar._centers.divergence_path import gamma_shape
from smallvar._mixed.measure import KIND_NUMBERS, divergences
from smallvar._mixed.single import CONSTANT, saturated
from smallvar._sweeps.mixed import EXPONENTIAL, NORMAL

FAMILIES_TRIED = ("normal", "poisson", "exponential")
WORDS = {"normal": "numbers", "poisson": "counts", "exponential": "positive amounts"}


def better_families(packed, path, weight, rows, asked):
    """The columns, with the kind that fits best within clusters, and a correction of the criterion.

    The kind changes if another one is better by more than the price of a parameter. The correction
    is to be added to a criterion with these kinds before it is compared with that of ``path``, as
    kinds differ in the terms of the likelihood that the criterion leaves out. ``rows`` are those
    that the path was found on, ``asked`` the names of the columns whose kind is given.
    """
    numbers, codes = packed.numbers, packed.codes
    if rows is not None:
        numbers, codes = numbers[rows], codes[rows]
        weight = None if weight is None else weight[rows]
    labels, columns, raised = path.labels_of(numbers, codes), list(packed.columns), 0.0
    w = np.ones(len(numbers)) if weight is None else weight * (len(weight) / weight.sum())
    for j, at in enumerate(packed.number_of):
        column = columns[at]
        if column.kind not in FAMILIES_TRIED or column.source in asked:
            continue
        x = numbers[:, j].astype(np.float64)
        there = ~np.isnan(x)
        costs = {
            kind: _cost(kind, x[there], w[there], labels[there], column.step)
            for kind in FAMILIES_TRIED
            if _fits(kind, x[there], column)
        }
        best = min(costs, key=costs.get, default=column.kind)
        if best != column.kind and costs[best] < costs[column.kind] - path.tie:
            words = f"{column.reason}; within clusters like {WORDS[best]}"
            columns[at] = replace(column, kind=best, reason=words)
            for sign, kind in ((1.0, best), (-1.0, column.kind)):
                raised += sign * _left_out(kind, x[there], w[there])
    return tuple(columns), raised


def _left_out(kind, x, w):
    """The terms of the -2 log-likelihood that the criterion leaves out for a kind."""
    if kind == "normal":
        return float(w.sum()) * CONSTANT
    return saturated(x, w) if kind == "poisson" else 2.0 * float(w @ np.log(x))


def _fits(kind, x, column):
    """Whether numbers x of a column can be of a kind."""
    if kind == "exponential":
        return x.min() > 0.0
    if kind == "poisson":
        return x.min() >= 0.0 and column.step == 1.0 and bool((x == np.floor(x)).all())
    return True


def _cost(kind, x, w, labels, step):
    """-2 log-likelihood of a column by a kind, with a mean for each cluster and one spread."""
    weights = np.bincount(labels, w)
    mean = (np.bincount(labels, w * x) / np.where(weights > 0.0, weights, 1.0))[labels]
    n, code = float(w.sum()), KIND_NUMBERS[kind]
    loss = float(
        w @ divergences(code, x, np.where(mean > 0.0, mean, 1.0) if code != NORMAL else mean)
    )
    if code == NORMAL:
        return n * (np.log(max(loss / n + step**2 / 12.0, np.finfo(float).tiny)) + CONSTANT)
    if code == EXPONENTIAL:
        a = gamma_shape(loss / n)
        return 2.0 * (a * loss + n * (a - a * np.log(a) + gammaln(a)) + float(w @ np.log(x)))
    spread = max(1.0, 2.0 * loss / n)
    return 2.0 * loss / spread + n * np.log(spread) + saturated(x, w)
