"""Columns in which the means of clusters do not differ, so that one mean for all rows is enough.

Every cluster pays for a mean in each column. Where only a few of many columns tell clusters apart,
that is more than the clusters gain, and a single one is chosen. So the columns are divided in those
that differ, T, and the others, N, and rows are described by clusters in T and independently by a
single cluster in N (Raftery & Dean 2006, Variable selection for model-based clustering):

    V = V_T(K) + V_N(1) + 2 log(d + 1) + 2 log(d over |T|),

the last two being what it takes to say which columns they are: first how many, then which.
"""

import numpy as np
from scipy.special import betaln

from smallvar._core.frame import RowsFrame
from smallvar._selection.criterion import PER_CLUSTER, PER_COLUMN, DensityCriterion


def price_of_others(others, weight, n_threads, transform, n_selected):
    """What the rows in columns with one mean add to V, over the number of distinct rows.

    ``transform`` is that of these columns (None: none). A value for each row, as there may be fewer
    distinct rows in some columns than in all.
    """
    if transform is not None:
        others, slope = transform(others)
    criterion = DensityCriterion(RowsFrame(others, weight, n_threads))
    if transform is not None:
        criterion.charge(slope, len(transform.columns))
    one = criterion.relabeled(np.zeros(len(others), dtype=np.int32), 1)
    price = selection_price(n_selected, others.shape[1])
    return (criterion(one)[0] + price) / criterion.distinct


def selection_price(n_selected, n_others):
    """Minus twice the logarithm of the share of one selection among all, first of all sizes.

    Of t columns and d in all: 1 / ((d + 1) (d over t)) is a value of the beta function.
    """
    return -2.0 * float(betaln(n_selected + 1, n_others + 1))


def differing_columns(criterion, clusterings):
    """Return the columns in which the means of the clusters differ, of the best clustering.

    ``clusterings`` are pairs of labels of the rows of the criterion, and a number K. Columns are
    independent here: separate means raise twice the log likelihood of a column by
    u log(s^2 / s_w^2), with the variances s^2 of all rows and s_w^2 within clusters; they differ if
    that is more than the price of the means. The best clustering gains most by such columns.
    Returns None if none gains, or if all columns differ.
    """
    scale, u = criterion.frame.scale, criterion.distinct  # keeps squares within float64
    X, floor = np.asarray(criterion.X, dtype=np.float64) * scale, criterion.floor * scale**2
    w = np.ones(len(X)) if criterion.weight is None else criterion.weight
    total = w.sum()
    mean = (w @ X) / total
    around = np.maximum(w @ np.square(X - mean) / total + floor, np.finfo(float).tiny)
    least, best = 0.0, None
    for labels, k in clusterings:
        if not 1 < k < u:
            continue
        sweep = criterion.relabeled(labels, k)
        weights = sweep.weights
        between = weights @ np.square(scale * sweep.centers - mean) / total
        within = np.maximum(around - floor - between, 0.0) * (u / (u - k)) + floor
        gain = u * np.log(around / np.maximum(within, np.finfo(float).tiny))
        gain -= PER_COLUMN * (k - 1) * np.log(u)
        cost = (k - 1) * PER_CLUSTER * np.log(u) - gain[gain > 0.0].sum()
        cost -= 2.0 * u * float(weights @ np.log(weights / total)) / total
        if cost < least:
            least, best = cost, gain > 0.0
    if best is None or best.all():
        return None
    return np.flatnonzero(best)
