"""Mixtures that give a hard clustering its noise back: probabilities of rows from their costs.

A clustering with fixed centers mu_k is the limit, for s -> 0, of the mixture

    p(x) = sum_k p_k f(x; mu_k, s^2 S_k),

f a Gaussian or t density, the S_k known: -2 s^2 log p_k f is the cost of the row and a term that
vanishes with s. ``fit_mixture`` measures the shares p_k, the scatter s^2 S_k and the degrees of
freedom on rows with hard labels. Which form the scatter has (spherical, a variance for each column,
or a full matrix; one for all clusters or one each) is decided by the likelihood of rows and labels
at a price of log(rows) / 2 for each parameter. Hard labels cut clusters off where they meet, which
makes spreads too small: a few steps of EM, which leave the centers as they are, undo that.

``DenseRows`` are rows in columns; ``RowsOfCosts`` only have a cost in each cluster, such as
divergences, and a number of dimensions: for them the scatter is spherical. The costs of
``RowsOfLikelihoods`` have no unit that could be measured.
"""

from copy import copy
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.sparse import issparse
from scipy.special import betaincinv, chdtr, chdtri, fdtr, gammaln

from smallvar._core.linear_algebra import cholesky, solve_lower
from smallvar._sweeps.exact import distances_to_centers
from smallvar._sweeps.gaussians import gaussian_costs
from smallvar._sweeps.ranges import column_range

# degrees of freedom that are tried, those of the criterion for the number; infinite: the Gaussian
FREEDOMS = (np.inf, 200.0, 50.0, 20.0, 10.0, 6.0, 4.0, 3.0)
SCALE_STEPS = 20  # of the fixed-point iteration for the scale of a t density
EM_STEPS, EM_CHANGE = 100, 1e-6  # steps at most, until the mean log density rises by less
LEAST_MEMBERSHIP = 1e-10  # of a row that counts for a cluster
LEAST_VARIANCE = 1e-9  # of that of all rows: what is less is rounding
# rows, besides one for each column of a full scatter, that the pooled one counts as in each own
ROWS_OF_POOLED = 2
ROWS_FOR_FULL = 4  # for each column: with fewer rows a full scatter is not estimated
# products of rows and centers in units of scatter, beyond which their rounding may exceed 1e-9
LARGEST_PRODUCT = 4e6
# tails of a cluster at which the probability of a higher density is computed; of many clusters, an
# eighth of them
TAILS = np.unique(np.concatenate([np.logspace(-17, -0.01, 256), 1.0 - np.logspace(-9, -0.01, 128)]))
FEW_TABLED = 32
MOST_PRODUCTS = 1 << 30  # multiply-adds for a full scatter, beyond which it is not tried
NUMBERS_COPIED = 1 << 20  # numbers of rows that are copied at a time
LEAST = np.finfo(float).tiny  # positive variance


class Form(NamedTuple):
    """The form of the scatter: "spherical", "columns" or "full", one each if ``own``."""

    shape: str
    own: bool

    def count(self, k, d):
        """The number of parameters of k clusters in d columns."""
        each = {"spherical": 1, "columns": d, "full": d * (d + 1) // 2}[self.shape]
        return each * (k if self.own else 1)


SPHERICAL = (Form("spherical", False), Form("spherical", True))
# no variances of each cluster and column: of flags and counts, they make probabilities too sure
SCATTER_FORMS = (
    *(Form(shape, False) for shape in ("spherical", "columns", "full")),
    *(Form(shape, True) for shape in ("spherical", "full")),
)


def squared_distances(X, centers, n_threads=1):
    """Squared distances of rows from centers, (n, K)."""
    if issparse(X):
        # ||x - c||^2 = ||x||^2 - 2 x.c + ||c||^2
        X = X.astype(np.float64, copy=False)
        out = -2.0 * (X @ centers.T)
        out += np.asarray(X.multiply(X).sum(axis=1)).reshape(-1, 1)
        out += np.einsum("kj,kj->k", centers, centers)
        return np.maximum(out, 0.0, out=out)
    out = np.empty((X.shape[0], len(centers)))
    distances_to_centers(X, centers, out, n_threads, True)
    return out


def log_density(squares, log_volume, freedom, d, out=None):
    """Log of the Gaussian or t density of squared distances in units of the scatter.

    ``log_volume`` is the logarithm of the determinant of the scatter.
    """
    if np.isinf(freedom):
        out = np.multiply(squares, -0.5, out=out)
        out -= 0.5 * (d * np.log(2.0 * np.pi) + log_volume)
        return out
    constant = gammaln((freedom + d) / 2.0) - gammaln(freedom / 2.0)
    constant = constant - 0.5 * (d * np.log(freedom * np.pi) + log_volume)
    out = np.divide(squares, freedom, out=out)
    np.log1p(out, out=out)
    out *= -0.5 * (freedom + d)
    out += constant
    return out


def log_sums(logs):
    """Log of the sum of exponentials of each row of a table, as a column; -inf where all are."""
    largest = logs.max(axis=1, keepdims=True)
    largest[~np.isfinite(largest)] = 0.0
    with np.errstate(divide="ignore"):
        return largest + np.log(np.exp(logs - largest).sum(axis=1, keepdims=True))


class Scatter:
    """The scatter of clusters in d dimensions.

    ``values`` are of shape (m,), (m, d) or (m, d, d) by the form, m the number of clusters where
    each has its own, else 1. ``log_volume`` has the logarithms of determinants, plus ``volumes``.
    ``is_sound`` says whether all matrices are positive definite; variances are, as those that have
    underflowed to 0 become the least positive number.
    """

    def __init__(self, form, values, d, volumes=0.0):
        self.form, self.values, self.d, self.volumes = form, values, d, volumes
        self.roots = None  # matrices W_k by which x'S_k^-1 x = ||W_k x||^2
        if form.shape != "full":
            self.values, self.is_sound = np.maximum(values, LEAST), True
            logs = np.log(self.values)
            self.log_volume = d * logs if form.shape == "spherical" else logs.sum(axis=1)
            self.log_volume = self.log_volume + volumes
            return
        factors = [cholesky(S) for S in values]
        self.is_sound = all(
            L is not None and (L.diagonal() ** 2 > LEAST_VARIANCE * S.diagonal()).all()
            for L, S in zip(factors, values, strict=True)
        )
        if self.is_sound:
            self.roots = np.array([solve_lower(L, np.eye(d)) for L in factors])
            self.log_volume = np.array([2.0 * np.log(L.diagonal()).sum() for L in factors])

    def times(self, factor):
        """The scatter times a number."""
        return Scatter(self.form, self.values * factor, self.d, self.volumes)

    def euclidean(self, X, centers):
        """Rows, centers and factors f_k by which squares are f_k ||x - c_k||^2; None: none do."""
        shape, own = self.form
        if shape == "spherical":
            return X, centers, np.broadcast_to(1.0 / self.values, len(centers))
        if own:
            return None
        root = self.roots[0].T if shape == "full" else self.values[0] ** -0.5
        times = np.matmul if shape == "full" else np.multiply
        X = X.toarray() if issparse(X) else X
        near = centers[0]  # products of rows far from 0 would round what rows differ by
        return times(X - near, root), times(centers - near, root), np.ones(len(centers))

    def linear(self, centers):
        """What makes squares linear functions of rows; None where their rounding would matter.

        With m the mean of the centers and P the inverse of the scatter, squares q_k and those from
        m, q_0, have 1/2 (q_0 - q_k) = x'A_k + b_k, A_k = P (mu_k - m), b_k = -1/2 A_k'(mu_k + m).
        Returns A (d, K) and b; None, too, where each cluster has its own scatter.
        """
        if self.form.own:
            return None
        A = centers - centers.mean(axis=0)
        A = A @ self.roots[0].T @ self.roots[0] if self.form.shape == "full" else A / self.values
        if not (np.abs(A) @ np.abs(centers).max(axis=0)).max() * self.d < LARGEST_PRODUCT:
            return None
        return A.T, -0.5 * (A * (centers + centers.mean(axis=0))).sum(axis=1)

    def squares(self, X, centers, n_threads=1):
        """Squared distances of rows from centers in units of the scatter, (n, K)."""
        near = self.euclidean(X, centers)
        if near is not None:
            out = squared_distances(*near[:2], n_threads)
            out *= near[2]
            return out
        X = X.toarray() if issparse(X) else X
        return gaussian_costs(X, centers, self.roots, np.zeros(len(centers)))


class Mixture:
    """Shares, scatter and degrees of freedom of clusters."""

    def __init__(self, shares, scatter, freedom):
        self.shares, self.scatter, self.freedom = shares, scatter, freedom

    @property
    def prices(self):
        """What clusters cost apart from distances: log of the volume, -2 log of the share."""
        with np.errstate(divide="ignore"):
            return self.scatter.log_volume - 2.0 * np.log(self.shares)

    def logs(self, squares, out=None):
        """Log of share times density, (n, K), of squared distances in units of the scatter."""
        return log_density(squares, self.prices, self.freedom, self.scatter.d, out)

    def typicality(self):
        """Log densities, rising, and the probability that a row has a higher one than each.

        That is sum_k p_k P(q < q_k), with q the squared distance of a row from its center and q_k
        that at which the density of cluster k is the given one. (Where clusters overlap, densities
        are higher than that of each.) Between these values, which are a few hundred quantiles of
        each cluster, probabilities are nearly linear.
        """
        d, freedom = self.scatter.d, self.freedom
        kept = self.shares > 0.0
        tops = log_density(np.zeros(kept.shape), self.prices, freedom, d)[kept]
        tails = TAILS if len(tops) < FEW_TABLED else TAILS[::8]
        if np.isinf(freedom):
            falls = log_density(chdtri(d, tails), 0.0, freedom, d)
        else:
            x = betaincinv(freedom / 2.0, d / 2.0, tails)
            falls = log_density(freedom * (1.0 - x) / x, 0.0, freedom, d)
        falls = np.append(falls - log_density(np.zeros(1), 0.0, freedom, d), 0.0)
        levels = np.unique(np.add.outer(tops, falls))
        higher = np.zeros(len(levels))
        for top, share in zip(tops, self.shares[kept], strict=True):
            fall = np.maximum(top - levels, 0.0)
            if np.isinf(freedom):
                higher += share * chdtr(d, 2.0 * fall)
            else:
                with np.errstate(over="ignore"):
                    squares = freedom * np.expm1(2.0 * fall / (freedom + d))
                higher += share * fdtr(d, freedom, squares / d)
        higher[0] = 1.0  # where next to nothing is left
        return levels, np.minimum(higher, 1.0)


def masses(weight, n):
    """Weights of n rows, each of which counts as so many equal rows.

    Weights that add up to less than the number of rows that have any are scaled to that number.
    """
    if weight is None:
        return np.ones(n)
    return weight * max(1.0, np.count_nonzero(weight) / weight.sum())


def blocks_of(first, last, d):
    """Slices of rows of d columns, from ``first`` to ``last``, of so many numbers or one row."""
    size = max(1, NUMBERS_COPIED // d)
    return [slice(i, min(i + size, last)) for i in range(first, last, size)]


class _Rows:
    """Rows of a fit with weights; ``n`` is what these add up to, at least the number of rows."""

    forms: tuple[Form, ...] = SCATTER_FORMS
    volumes = 0.0

    def __init__(self, n, d, k, weight):
        self.weight = masses(weight, n)
        self.n, self.d, self.k = float(self.weight.sum()), d, k

    def mixture(self, form, row, cluster, weight, far=1.0):
        """The mixture by pairs of row and cluster, sorted by cluster, and its log likelihood.

        ``far`` are factors of the weights, by which far rows count less for the scatter. None where
        the scatter is not positive definite.
        """
        sizes = np.bincount(cluster, weight, self.k)
        scatter = self.scatter(form, row, cluster, weight * far, sizes)
        if not scatter.is_sound:
            return None, -np.inf
        squares = self.squares(scatter)[row, cluster]
        freedom, scale, value = likeliest(squares, weight, self.d)
        value -= 0.5 * (sizes @ np.broadcast_to(scatter.log_volume, self.k))
        return Mixture(sizes / self.n, scatter.times(scale), freedom), value

    def scatter(self, form, row, cluster, weight, sizes):
        """The scatter by pairs of row and cluster, sorted by cluster, of these weights."""
        k, own = self.k, form.own
        first = np.searchsorted(cluster, np.arange(k + 1)) if own else np.array([0, len(row)])
        sums = self.sums(form.shape, row, cluster, weight, first)
        # squares about means of the same rows are too small
        sums *= self.n / (self.n - k) if self.n > k else 1.0
        pooled = sums.sum(axis=0) / self.n
        values = pooled[None]
        if own:
            prior = ROWS_OF_POOLED + (self.d if form.shape == "full" else 0)
            values = sums + prior * pooled
            values /= (sizes + prior).reshape(-1, *(1,) * pooled.ndim)
        return Scatter(form, values + self.floor(form.shape), self.d, self.volumes)


class DenseRows(_Rows):
    """Rows and centers in ``columns`` that all vary (None: all); rows are copied in blocks only."""

    def __init__(self, X, weight, centers, columns=None):
        super().__init__(X.shape[0], centers.shape[1], len(centers), weight)
        self.X, self.columns, self.centers = X, columns, centers
        self.blocks = blocks_of(0, X.shape[0], self.d)
        parts = [(self.weight[block], block) for block in self.blocks]
        self.mean = sum(w @ self.part(block) for w, block in parts) / self.n
        squares = (w @ np.square(self.part(block) - self.mean) for w, block in parts)
        self.variance = sum(squares) / self.n
        low, high = column_range(X, None, 1)
        if columns is not None:
            low, high = low[columns], high[columns]
        two_values = np.ones(self.d, dtype=bool)
        for part in map(self.part, self.blocks):
            two_values &= ((part == low) | (part == high)).all(axis=0)
        self.are_flags = np.mean(two_values) > 0.5

    def part(self, rows):
        """Some rows as float64."""
        part = self.X[rows] if self.columns is None else self.X[rows][:, self.columns]
        return np.ascontiguousarray(part, dtype=np.float64)

    def floor(self, shape):
        """What is added to every variance."""
        least = np.maximum(LEAST_VARIANCE * self.variance, LEAST)
        if shape == "full":
            return np.diag(least)
        return least.mean() if shape == "spherical" else least

    def of_all(self, shape):
        """The scatter of all rows about their mean."""
        whole = copy(self)
        whole.centers, whole.k, row = self.mean[None], 1, np.arange(len(self.weight))
        return whole.scatter(Form(shape, False), row, np.zeros_like(row), self.weight, None)

    def can_have(self, form):
        """Whether there are columns and rows enough for a form of scatter.

        The variance p (1 - p) of a flag is no noise, and small where one value is rare: rows with
        that value would count most. Where most columns are flags, the scatter is spherical.
        """
        if form.shape == "full" and self.n < ROWS_FOR_FULL * self.d:
            return False
        if form.shape != "spherical" and self.are_flags:
            return False
        products = self.n * self.d**2 * (self.k if form.own else 1)
        return form.shape == "spherical" or (self.d > 1 and products <= MOST_PRODUCTS)

    def sums(self, shape, row, cluster, weight, first):
        """Weighted sums of squares, or products, of rows less centers, of each part."""

        def off_centers(pairs):
            return self.part(row[pairs]) - self.centers[cluster[pairs]]

        if shape == "spherical":
            blocks = map(off_centers, blocks_of(0, len(row), self.d))
            squares = np.concatenate([np.square(R, out=R).mean(axis=1) for R in blocks])
            return np.array([weight[i:j] @ squares[i:j] for i, j in pairwise(first)])
        out = np.zeros((len(first) - 1, *(self.d,) * (2 if shape == "full" else 1)))
        for total, (i, j) in zip(out, pairwise(first), strict=True):
            for pairs in blocks_of(i, j, self.d):
                R, w = off_centers(pairs), weight[pairs]
                total += (R * w[:, None]).T @ R if shape == "full" else w @ np.square(R, out=R)
        return out

    def squares(self, scatter):
        """Squared distances of all rows from all centers in units of the scatter."""
        return np.vstack([scatter.squares(self.part(rows), self.centers) for rows in self.blocks])


class RowsOfCosts(_Rows):
    """Rows of which only the costs in each cluster are known, like squared distances.

    ``volumes`` are the logarithms of the volumes of the clusters in units of these costs.
    """

    forms: tuple[Form, ...] = SPHERICAL

    def __init__(self, costs, weight, d, least, volumes=0.0):
        super().__init__(costs.shape[0], d, costs.shape[1], weight)
        self.costs, self.least, self.volumes = costs, least, volumes

    def floor(self, shape):
        """What is added to every variance."""
        return self.least

    def can_have(self, form):
        """Whether there are rows enough for a form of scatter."""
        return form.shape == "spherical"

    def sums(self, shape, row, cluster, weight, first):
        """Weighted sums of costs for each dimension, of each part."""
        costs = weight * self.costs[row, cluster] / self.d
        return np.array([costs[i:j].sum() for i, j in pairwise(first)])

    def squares(self, scatter):
        """Costs of all rows in all clusters in units of the scatter."""
        return self.costs / scatter.values


class RowsOfLikelihoods(RowsOfCosts):
    """Rows whose costs are -2 log likelihood, so that their unit is 1: only shares are measured."""

    forms = SPHERICAL[:1]

    def mixture(self, form, row, cluster, weight, far=1.0):
        """The mixture by pairs of row and cluster; of one form, which needs no likelihood."""
        shares = np.bincount(cluster, weight, self.k) / self.n
        return Mixture(shares, Scatter(form, np.ones(1), self.d), np.inf), 0.0


def likeliest(squares, weight, d):
    """Degrees of freedom and scale of the likeliest density of squared distances.

    Also its log likelihood. The scale s2 of a t density is the fixed point of

        s2 = (nu + d) / d  mean(r2 / (nu + r2 / s2)).
    """
    n, best = weight.sum(), (np.inf, 1.0, -np.inf)
    scale = weight @ squares / (n * d)
    if not 0.0 < scale < np.inf:
        return best
    for freedom in FREEDOMS:
        for _ in range(SCALE_STEPS if np.isfinite(freedom) else 0):
            mean = weight @ (squares / (freedom + squares / scale)) / n
            scale = max((freedom + d) / d * mean, LEAST)
        value = weight @ log_density(squares / scale, d * np.log(scale), freedom, d)
        if value > best[2]:
            best = freedom, scale, value
    return best


def fit_mixture(rows, labels, forms=None):
    """The mixture that describes rows with these labels best."""
    order = np.argsort(labels, kind="stable")
    hard = order, labels[order], rows.weight[order]
    best, chosen = np.inf, None
    for form in forms or rows.forms:
        if (form.own and rows.k == 1 and not forms) or not rows.can_have(form):
            continue
        mixture, value = rows.mixture(form, *hard)
        if mixture is None:
            continue
        parameters = form.count(rows.k, rows.d) + np.isfinite(mixture.freedom)
        cost = -2.0 * value + np.log(rows.n) * parameters
        if chosen is None or cost < best:
            best, chosen = cost, mixture
    return None if chosen is None else _by_em(chosen, rows)


def fit_scale(rows, labels, scatter):
    """The mixture of DenseRows with a scatter that is known but for a common factor."""
    if not scatter.is_sound:
        return fit_mixture(rows, labels)
    costs = RowsOfCosts(rows.squares(scatter), rows.weight, rows.d, 0.0, scatter.log_volume)
    costs.least = LEAST_VARIANCE * float(rows.weight @ costs.costs.min(axis=1)) / rows.n / rows.d
    costs.least = costs.least or LEAST
    found = fit_mixture(costs, labels, SPHERICAL[:1])
    scaled = scatter.times(found.scatter.values[0])
    return Mixture(found.shares, scaled if scaled.is_sound else scatter, found.freedom)


def _by_em(mixture, rows):
    """The mixture after steps of EM, which leave the centers as they are."""
    d, before = rows.d, -np.inf
    for _ in range(EM_STEPS):
        squares, freedom = rows.squares(mixture.scatter), mixture.freedom
        logs = mixture.logs(squares)
        sums = log_sums(logs)
        value = float(rows.weight @ sums[:, 0]) / rows.n
        if not value > before + EM_CHANGE:
            break
        before, far = value, 1.0
        memberships = np.exp(logs - sums)
        cluster, row = np.nonzero(memberships.T > LEAST_MEMBERSHIP)
        if np.isfinite(freedom):  # far rows of a t density count less
            far = (freedom + d) / (freedom + squares[row, cluster])
        weight = memberships[row, cluster] * rows.weight[row]
        found, _ = rows.mixture(mixture.scatter.form, row, cluster, weight, far)
        if found is None:
            break
        mixture = found
    return mixture
