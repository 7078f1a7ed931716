"""Evidence of a boundary: whether the rows of two clusters look like two bells, or like one body.

A boundary between two clusters may lie in a gap between groups of rows, or cut one group in two.
Along the direction that tells the clusters apart, the rows then have two bells with a valley
between, or one body. Both densities (`smallvar/_sweeps/boundary.pyx`) are fitted to a histogram by
maximum likelihood; the evidence is the difference of the log-likelihoods.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky

from smallvar._core.linear_algebra import solve_lower
from smallvar._selection.columns import LAST_BITS
from smallvar._sweeps.boundary import distribution, fit, histogram, valley
from smallvar._sweeps.rows import UNSOUND

N_BINS, N_PARAMETERS = 32, 5
TAIL = 0.01  # of the weight, on each side: beyond the range of the bins, and counted in the outer
LEAST_RIDGE = 1e-3  # of the mean variance, added to the variance of all columns
SAME_PROJECTION = 1e-9  # of the range of projections: nearer ones differ by rounding
PARTS = 8  # places over which a row is spread whose values were recorded in steps
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


class Boundary(NamedTuple):
    """The rows of two clusters along the direction that tells them apart, and what fits them.

    ``evidence`` is in nats. ``dispersion`` is Pearson's chi-square of the density that fits better
    over its degrees of freedom, at least 1: where neither fits, evidence divided by it allows for
    that (quasi-likelihood). ``edges`` are those of the bins, where the means of the two clusters
    are at -1/2 and 1/2; ``counts`` the weight in each bin (the outer ones with all beyond).

    Where nothing can be said, the evidence is 0 and the arrays are empty.
    """

    evidence: float
    dispersion: float
    edges: NDArray[np.float64]
    counts: NDArray[np.float64]


NOTHING = Boundary(0.0, 1.0, np.empty(0), np.empty(0))


def boundary_along(t, weight, length=0.0):
    """The Boundary between rows of two clusters at these places, with 0 between the clusters.

    ``weight`` is that of each row; places are anywhere within a step of this ``length``.
    """
    edges, counts = histogram_of(*spread_over_steps(t, weight, length))
    if edges is None:
        return NOTHING
    evidence, dispersion, *_ = compare_densities(counts[np.newaxis])
    return Boundary(float(evidence[0]), float(dispersion[0]), edges, counts)


def spread_over_steps(t, weight, length):
    """Places and weights of PARTS of each row, evenly over a step of this length around its place.

    ``length`` is a number, or that of each row; without steps rows stay as they are.
    """
    if not np.any(length):
        return t, weight
    parts = (np.arange(PARTS) + 0.5) / PARTS - 0.5
    places = t[:, np.newaxis] + np.reshape(length, (-1, 1)) * parts
    return places.ravel(), np.repeat(weight, PARTS) / PARTS


def compare_densities(counts, n_threads=1):
    """Evidence, dispersion, depth of the valley, bells and body of m histograms, (m, N_BINS)."""
    bells, likelihood, of_bells = _fit(True, counts, n_threads)
    _, other, of_body = _fit(False, counts, n_threads)
    depth, evidence = valley(bells), likelihood - other
    better = np.where(evidence[:, np.newaxis] > 0.0, of_bells, of_body)
    dispersion = np.sum(np.square(counts - better) / better, axis=1) / (N_BINS - 1 - N_PARAMETERS)
    # without a valley: a heavy tail, or a skewed cluster
    evidence = np.where(depth > LEAST_VALLEY, np.minimum(evidence, 0.0), evidence)
    return evidence, np.maximum(dispersion, 1.0), depth, of_bells, of_body


def places_of(R, weight, second, sizes, difference, step):
    """Places of rows between the means of clusters, -1/2 at m_a, 1/2 at m_b; length of a step.

    ``R`` are rows x less the means of their clusters, ``second`` the mask of those of b, ``sizes``
    the weights of both, and ``difference`` is m_b - m_a. A row lies at w (x - (m_a + m_b) / 2)' /
    w (m_b - m_a)', w = (S / n + r I)^-1 (m_b - m_a). S is the scatter matrix of rows about the
    means of their clusters, the ridge is r = max(LEAST_RIDGE, d / n) trace(S / n) / d. Means and S
    are those of all rows but x: w leans to the rows that it comes from, so that one normal cloud
    cut in two looked like two bells, by 42 nats for 300 rows of 256 columns. All are 0 where the
    means agree.

    The length is that of a uniform density with the variance along w of values that are anywhere
    within the ``step`` of their columns.
    """
    n, d, m = sizes.sum(), R.shape[1], len(R)
    variance = float((weight * np.square(R).sum(axis=1)).sum() / n)
    if not np.isfinite(variance):  # rows have changed since they were checked
        raise ValueError(UNSOUND)
    if variance == 0.0 or not difference.any():
        return np.where(second & difference.any(), 1.0, 0.0), 0.0
    scaled = R * np.sqrt(weight / n)[:, np.newaxis]
    rows = np.vstack([R, np.diag(step)[step > 0.0]])
    q, u, D = _products(rows, scaled, ridge(variance, n, d), difference)
    length, places = float(np.linalg.norm(u[m:])) / D, np.empty(m)
    for side, size, own in ((-1.0, sizes[0], ~second), (1.0, sizes[1], second)):
        products = q[:m][own], u[:m][own], D
        places[own] = _places_without_itself(*products, weight[own], size, n, side)
    return places, length


def _places_without_itself(q, u, D, weight, size, n, side):
    """Places of rows of one cluster, by means and scatter without each row; see ``places_of``.

    q = x A^-1 x' of the residual x of each row, u = x A^-1 y' and D = y A^-1 y' with y = m_b - m_a.
    Without weight v of a row, the mean of its cluster of ``size`` is m - e x, e = v / (size - v),
    and A is A - k x' x, k = e size / n; the inverse follows from that of A (Sherman & Morrison).
    v is at most 1, as weight 2 is two rows, and 0 for a row that is alone. ``side`` is 1 for b, -1
    for a.
    """
    v = np.minimum(weight, 1.0)
    v[v >= size] = 0.0
    e = v / (size - v)
    k = e * size / n
    left = 1.0 - k * q
    D = D + k * u * u / left
    q, u = q / left, u / left
    distance = D - 2.0 * side * e * u + e * e * q
    from_middle = u + side * (0.5 * D - e * (1.0 + 0.5 * e) * q)
    return from_middle / np.maximum(distance, SAME_PROJECTION * D)


def ridge(variance, n, d):
    """What is added to the variance of all d columns, of n rows; ``variance`` is their sum."""
    return np.maximum(LEAST_RIDGE, d / n) * variance / d


def _products(X, R, added, difference):
    """Products x A^-1 x', x A^-1 y' and y A^-1 y' of rows x and y, the difference.

    A = R'R + added I, where rows of R are those of X times numbers.
    """
    if X.shape[1] <= len(X):
        A = R.T @ R
        A.flat[:: len(A) + 1] += added
        L = cholesky(A, lower=True)
        x = solve_lower(L, X.T)
        y = solve_lower(L, difference)
        return np.square(x).sum(axis=0), y @ x, y @ y
    # Woodbury: added A^-1 = I - R' (R R' + added I)^-1 R
    G = R @ R.T
    G.flat[:: len(G) + 1] += added
    L = cholesky(G, lower=True)
    x = solve_lower(L, R @ X.T)
    y = solve_lower(L, R @ difference)
    out = np.square(X).sum(axis=1) - np.square(x).sum(axis=0), X @ difference - y @ x
    return *(product / added for product in out), (difference @ difference - y @ y) / added


def histogram_of(t, weight):
    """Edges of equal bins, and the weight in each; None for fewer than SHARES distinct values.

    An empty stretch that is longer than the rows on either side is cut to the length of the longer
    side before: bins over all of it would be too wide to tell the shape of the groups. One of the
    bins is then as much longer.
    """
    if len(t) < SHARES:
        return None, None
    order = np.argsort(t, kind="stable")
    t, weight = t[order], weight[order]
    # where an empty stretch ends, with 0 inside, half way between the means: if it is longer than
    # both sides, it must have; outer rows, TAIL of the weight on each side, do not count
    below = np.cumsum(weight)
    first, last = np.searchsorted(below, np.array([TAIL, 1.0 - TAIL]) * below[-1]).tolist()
    cut, excess = int(np.searchsorted(t, 0.0)), 0.0
    if first < cut <= last:
        longest = max(t[cut - 1] - t[first], t[last] - t[cut])
        if longest > LAST_BITS * max(abs(t[first]), abs(t[last])):
            excess = max(float(t[cut] - t[cut - 1] - longest), 0.0)
    t[cut:] -= excess
    edges, counts = histogram(t, weight, N_BINS, TAIL, SAME_PROJECTION, SHARES)
    if excess and edges is not None:
        edges[edges > t[cut - 1] + 0.5 * (t[cut] - t[cut - 1])] += excess
    return edges, counts


def _fit(two_bells, counts, n_threads=1):
    """The likeliest density of each histogram: parameters, log-likelihood, weight in each bin."""
    place, odds = (0.0, N_BINS), (-MOST_LOGIT, MOST_LOGIT)
    if two_bells:
        starts, spread = _two_bells(counts), np.log((LEAST_SPREAD, MOST_LENGTH))
        bounds = place, place, spread, spread, odds
    else:
        starts, length = _bodies(counts), np.log((LEAST_LENGTH, MOST_LENGTH))
        bounds = place, length, length, np.log((LEAST_BLUR, MOST_LENGTH)), odds
    low, high = np.array(bounds).T.copy()
    found, likelihood = fit(two_bells, counts, starts, low, high, n_threads)
    best = np.arange(len(counts)), likelihood.argmax(axis=1)
    below = distribution(two_bells, found[best], np.arange(1.0, N_BINS))
    share = np.maximum(np.diff(below, prepend=0.0, append=1.0), LEAST_PROBABILITY)
    return found[best], likelihood[best], counts.sum(axis=1, keepdims=True) * share


def _two_bells(counts):
    """Starts of the bells: means, spreads and shares of both parts of each histogram."""
    x, out = np.arange(N_BINS) + 0.5, []
    for cut in CUTS:
        parts = np.array([x < cut * N_BINS, x > cut * N_BINS])
        part = parts[:, np.newaxis] * (counts + LEAST_PROBABILITY)  # (2, m, N_BINS)
        size = part.sum(axis=-1)
        mean = part @ x / size
        spread = np.sqrt(part @ np.square(x) / size - np.square(mean))
        odds = np.log((size[0] + 1.0) / (size[1] + 1.0))
        out.append([*mean, *np.log(np.maximum(spread, LEAST_SPREAD)), odds])
    return np.transpose(out, (2, 0, 1))


def _bodies(counts):
    """Starts of the body: both parts of each histogram as uniform pieces."""
    below, out = np.cumsum(counts, axis=1), []
    for cut in CUTS:
        e = cut * N_BINS
        first = below[:, round(e) - 1]
        odds = np.log((first + 1.0) / (below[:, -1] - first + 1.0))
        lengths = np.log([e, N_BINS - e, BLUR])
        out.append(np.column_stack([np.tile([e, *lengths], (len(counts), 1)), odds]))
    return np.stack(out, axis=1)
