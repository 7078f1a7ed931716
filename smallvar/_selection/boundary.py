"""Evidence of a boundary: whether the rows of two clusters look like two bells, or like one body.

A boundary between two clusters may lie in a gap between groups of rows, or cut one group in two.
Along the direction that tells the clusters apart, the rows then have two bells with a valley
between, or one body. Both densities (`smallvar/_sweeps/boundary.pyx`) are fitted to a histogram by
maximum likelihood; the evidence is the difference of the log-likelihoods.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from smallvar._sweeps.boundary import distribution, fit, valley

N_BINS = 32
TAIL = 0.01  # of the weight, on each side: beyond the range of the bins, and counted in the outer
LEAST_RIDGE = 1e-3  # of the mean variance, added to the variance of all columns
SAME_PROJECTION = 1e-9  # of the range of projections: nearer ones differ by rounding
# five parameters fit any shares of up to six values: fewer than SHARES values tell nothing
SHARES = 7
LEAST_VALLEY = 0.98  # of the lower mode: a valley between two bells is below this
# Bounds of parameters, in bins: a bell as wide as one or two bins would fit single values (with
# whole numbers in three columns, one value was a bell, by 500 nats); with less blur than about
# half a bin, the likelihood of a body has a local maximum wherever an edge is between two bins.
LEAST_SPREAD, LEAST_LENGTH, LEAST_BLUR = 1.5, 1.0, 0.6
MOST_LENGTH, MOST_LOGIT = 2.0 * N_BINS, 8.0
LEAST_PROBABILITY = 1e-12  # of a bin
# starts: histograms in two parts, cut at these shares of their range; blur of the body, in bins
CUTS, BLUR = (1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 7 / 8, 15 / 16), 1.2


@dataclass(frozen=True)
class Boundary:
    """The rows of two clusters along the direction that tells them apart, and what fits them.

    ``evidence`` is in nats. ``dispersion`` is Pearson's chi-square of the density that fits better
    over its degrees of freedom, at least 1: where neither fits, evidence divided by it allows for
    that (quasi-likelihood). ``edges`` are those of the bins, in standard deviations from the mean
    of all rows; ``counts`` the weight in each bin (the outer ones with all beyond), ``bells`` and
    ``body`` the weights that the fitted densities have there. ``valley`` is the lowest density
    between the modes of the bells, as a share of that at the lower one; 1 with one mode.

    Where nothing can be said, the evidence is 0 and the arrays are empty.
    """

    evidence: float
    dispersion: float
    edges: NDArray[np.float64]
    counts: NDArray[np.float64]
    bells: NDArray[np.float64]
    body: NDArray[np.float64]
    valley: float


EMPTY = np.empty(0)
NOTHING = Boundary(0.0, 1.0, EMPTY, EMPTY, EMPTY, EMPTY, 1.0)


def boundary_evidence(X, weight, labels, a, b):
    """Return the evidence, in nats, that the boundary between clusters a and b lies in a gap.

    It is positive for two groups of rows, negative for one that the boundary cuts. ``X`` are rows,
    in the metric that the labels were found in; ``weight`` is None or that of each row.
    """
    return boundary_between(X, weight, labels, a, b).evidence


def boundary_between(X, weight, labels, a, b):
    """Return the Boundary between clusters a and b; see ``boundary_evidence``."""
    a, b = min(a, b), max(a, b)
    used = (labels == a) | (labels == b)
    if weight is not None:
        used &= weight > 0.0
    rows = np.flatnonzero(used)
    second = labels[rows] == b
    if second.all() or not second.any():
        return NOTHING
    weight = np.ones(len(rows)) if weight is None else np.asarray(weight[rows], dtype=np.float64)
    t = _projections(np.array(X[rows], dtype=np.float64), weight, second)
    edges, counts = _histogram(t, weight)
    if edges is None:
        return NOTHING
    (bells, likelihood), (body, other) = _fit(True, counts), _fit(False, counts)
    depth, evidence = valley(bells), float(likelihood - other)
    fitted = [_fitted_counts(True, bells, counts), _fitted_counts(False, body, counts)]
    better = fitted[0] if evidence > 0.0 else fitted[1]
    dispersion = np.sum(np.square(counts - better) / better) / (N_BINS - 1 - len(bells))
    if depth > LEAST_VALLEY:  # a heavy tail, or a skewed cluster
        evidence = min(evidence, 0.0)
    return Boundary(evidence, max(1.0, float(dispersion)), edges, counts, *fitted, depth)


def _projections(X, weight, second):
    """Places of rows between the means of the clusters: -1/2 at m_a, 1/2 at m_b.

    A row x lies at w (x - (m_a + m_b) / 2)' / w (m_b - m_a)', w = (S / n + r I)^-1 (m_b - m_a). S
    is the scatter matrix of rows about the means of their clusters, the ridge is r =
    max(LEAST_RIDGE, d / n) trace(S / n) / d. Means and S are those of all rows but x: w leans to
    the rows that it comes from, so that one normal cloud cut in two looked like two bells, by 42
    nats for 300 rows of 256 columns. X is overwritten. All are 0 where the means agree.
    """
    n, d = weight.sum(), X.shape[1]
    X -= X[0].copy()
    X /= np.abs(X).max() or 1.0
    size_a, size_b = weight[~second].sum(), weight[second].sum()
    mean_a, mean_b = weight[~second] @ X[~second] / size_a, weight[second] @ X[second] / size_b
    X -= np.where(second[:, None], mean_b, mean_a)  # residuals
    difference = mean_b - mean_a
    variance = float(weight @ np.square(X).sum(axis=1) / n)
    if variance == 0.0 or not difference.any():
        return np.where(second & difference.any(), 1.0, 0.0)
    ridge = max(LEAST_RIDGE, d / n) * variance / d
    products = _products(X, np.sqrt(weight / n)[:, None] * X, ridge, difference)
    return _without_itself(*products, weight, np.where(second, size_b, size_a), n, second)


def _products(X, R, ridge, difference):
    """Products x A^-1 x', x A^-1 y' and y A^-1 y' of rows x and y, the difference.

    A = R'R + ridge I, where rows of R are those of X times numbers.
    """
    if X.shape[1] <= len(X):
        A = R.T @ R
        A.flat[:: len(A) + 1] += ridge
        L = cholesky(A, lower=True)
        x = solve_triangular(L, X.T, lower=True)
        y = solve_triangular(L, difference, lower=True)
        return np.square(x).sum(axis=0), y @ x, y @ y
    # Woodbury: ridge A^-1 = I - R' (R R' + ridge I)^-1 R
    G = R @ R.T
    G.flat[:: len(G) + 1] += ridge
    L = cholesky(G, lower=True)
    x = solve_triangular(L, R @ X.T, lower=True)
    y = solve_triangular(L, R @ difference, lower=True)
    out = np.square(X).sum(axis=1) - np.square(x).sum(axis=0), X @ difference - y @ x
    return *(product / ridge for product in out), (difference @ difference - y @ y) / ridge


def _without_itself(q, u, D, weight, size, n, second):
    """Places of rows by the means and scatter matrix without them.

    q = x A^-1 x' of the residual x of each row, u = x A^-1 (m_b - m_a)', D = (m_b - m_a) A^-1
    (m_b - m_a)'. Without weight v of a row, the mean of its cluster of size n_c is m_c - e x, e =
    v / (n_c - v), and A is A - k x' x, k = e n_c / n; the inverse follows from that of A (Sherman &
    Morrison). v is at most 1, as weight 2 is two rows, and 0 for a row that is alone.
    """
    v = np.minimum(weight, 1.0)
    v = np.where(v < size, v, 0.0)
    e = v / (size - v)
    k = e * size / n
    left = 1.0 - k * q
    D = D + k * np.square(u) / left
    q, u, side = q / left, u / left, np.where(second, 1.0, -1.0)
    distance = D - 2.0 * side * e * u + e * e * q
    place = u + side * (0.5 * D - e * (1.0 + 0.5 * e) * q)
    return place / np.maximum(distance, SAME_PROJECTION * D)


def _histogram(t, weight):
    """Edges of equal bins, and the weight in each; None for fewer than SHARES distinct values.

    A value stands for the interval up to the middles between it and its neighbors, in which its
    rows are taken to be spread evenly. So values recorded in steps do not leave bins empty, and
    values that no rows have in between are no gap.
    """
    order = np.argsort(t, kind="stable")
    v, reached = t[order], np.cumsum(weight[order])
    last = np.append(np.diff(v) > SAME_PROJECTION * (v[-1] - v[0]), True)
    if last.sum() < SHARES:
        return None, None
    value, reached = 0.5 * (v[np.append(True, last[:-1])] + v[last]), reached[last]
    ends = np.empty(len(value) + 1)
    ends[1:-1] = 0.5 * (value[:-1] + value[1:])
    ends[0], ends[-1] = 2.0 * value[0] - ends[1], 2.0 * value[-1] - ends[-2]
    reached, n = np.append(0.0, reached), reached[-1]
    low, high = np.interp((TAIL * n, (1.0 - TAIL) * n), reached, ends)
    edges = np.linspace(low, high, N_BINS + 1)
    below = np.interp(edges[1:-1], ends, reached)
    return edges, np.diff(below, prepend=0.0, append=n)


def _fit(two_bells, counts):
    """Parameters of the likeliest density, and its log-likelihood, from all starts."""
    place, odds = (0.0, N_BINS), (-MOST_LOGIT, MOST_LOGIT)
    if two_bells:
        starts, spread = _two_bells(counts), np.log((LEAST_SPREAD, MOST_LENGTH))
        bounds = place, place, spread, spread, odds
    else:
        starts, length = _bodies(counts), np.log((LEAST_LENGTH, MOST_LENGTH))
        bounds = place, length, length, np.log((LEAST_BLUR, MOST_LENGTH)), odds
    low, high = np.array(bounds).T.copy()
    found, likelihood = fit(two_bells, counts, starts, low, high)
    best = likelihood.argmax()
    return found[best], likelihood[best]


def _two_bells(counts):
    """Starts of the bells: means, spreads and shares of both parts of the histogram."""
    x, out = np.arange(N_BINS) + 0.5, []
    for cut in CUTS:
        part = np.array([x < cut * N_BINS, x > cut * N_BINS]) * (counts + LEAST_PROBABILITY)
        size = part.sum(axis=1)
        mean = part @ x / size
        spread = np.sqrt(part @ np.square(x) / size - np.square(mean))
        odds = (size[0] + 1.0) / (size[1] + 1.0)
        out.append([*mean, *np.log(np.maximum(spread, LEAST_SPREAD)), np.log(odds)])
    return np.array(out)


def _bodies(counts):
    """Starts of the body: both parts of the histogram as uniform pieces."""
    below, out = np.cumsum(counts), []
    for cut in CUTS:
        e = cut * N_BINS
        first = below[round(e) - 1]
        odds = (first + 1.0) / (below[-1] - first + 1.0)
        out.append([e, np.log(e), np.log(N_BINS - e), np.log(BLUR), np.log(odds)])
    return np.array(out)


def _fitted_counts(two_bells, parameters, counts):
    """The weight that a density has in each bin."""
    below = distribution(two_bells, parameters, np.arange(1.0, N_BINS))
    share = np.maximum(np.diff(below, prepend=0.0, append=1.0), LEAST_PROBABILITY)
    return counts.sum() * share
