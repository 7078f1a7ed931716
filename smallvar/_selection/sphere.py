"""The criterion for the number of clusters of directions: rows of length 1.

Densities are of tangent vectors: the plane at a center mu is where the sphere is flat near it, so
that the bend of the sphere is no reason to cut a wide cluster. A row x at cosine c from mu has

    t = (x - c mu) / sqrt((1 + c) / 2),    ||t|| = ||x - mu||,

in d - 1 directions, and an area of the plane is ((1 + c) / 2)^(-(d - 3) / 2) times that of the
sphere. A von Mises-Fisher density is a spherical Gaussian there.
"""

from itertools import pairwise

import numpy as np
from scipy.linalg.blas import strsm
from scipy.linalg.lapack import dpotrf, dtrtri
from scipy.special import gammaln

from smallvar._core.frame import RowsFrame
from smallvar._selection.boundaries import sort_rows
from smallvar._selection.columns import recorded
from smallvar._selection.components import PARAMETER_PRICE, ZERO_VARIANCE
from smallvar._selection.criterion import PER_CLUSTER, Relabeled
from smallvar._selection.descent import descent_by_squares
from smallvar._sweeps.residual_density import fit_residual_density, tangent_vectors
from smallvar._sweeps.rows import UNSOUND

# directions in which clusters have covariances of their own: of more columns, the longest ones
OWN_DIRECTIONS = 128
# rows for each direction, and two, that the pooled variance counts for in the covariance of a
# cluster. Of 2, 3, 4, 6, 8 and 16, from 6 on generated clusters of few rows were found
PRIOR_ROWS = 6
# price of a coordinate of a center, times log(distinct rows): that of an integrated likelihood
PER_COORDINATE = 1.0
# where the criterion rises, from its minimum to a quarter more clusters, by less than this share of
# their price, clusters are worth that only because they describe what the density of one misses
# (at the minimum the slope is small in any case, where pieces become clusters little by little)
RISE, BEYOND = 0.5, 1.25
# rows for each direction up to which a matrix of products of rows takes less time than one of
# products of directions
FEW_ROWS = 0.6
OPPOSITE = 1e-12  # least value of (1 + c) / 2, which is 0 for rows opposite of their center


class DirectionCriterion:
    """V of a clustering of rows of length 1: the lower, the better the data support it.

    V = (u / n) (-2 sum_i w_i log f(x_i; mu_{z_i}) - 2 n sum_k p_k log p_k) + price of parameters,

    as that of DensityCriterion, but f is a density of tangent vectors, the better of two, each
    t or Gaussian: spherical, with a variance that all clusters share, or with a covariance S_k of
    each cluster. Its prior is an inverse Wishart distribution whose mean is the pooled spherical
    covariance, and the price of S_k follows from the likelihood integrated over it: it is little
    where a cluster has few rows, for which S_k is near the mean.
    """

    def __init__(self, frame):
        X, weight = self.X, self.weight = frame.X, frame.weight
        self.frame, (n, d) = frame, X.shape
        self.n = float(n if weight is None else weight.sum())
        columns = recorded(X, weight)
        self.distinct, self.cap = columns.n_different, columns.n_different // 3
        if columns.in_steps.all():  # then equal rows are to be expected
            self.cap, self.distinct = self.distinct, n
        self.floor, self.few_valued = columns.variance, columns.few
        self.rank = max(1, min(d, self.distinct) - 1)  # of the tangent plane
        self.tie = PARAMETER_PRICE * np.log(self.distinct)
        self.price_of_cluster = np.log(self.distinct) * (PER_COORDINATE * self.rank + PER_CLUSTER)
        self.relabeled = Relabeled(frame)
        # constant columns are left out, so rows may have another length than 1, all the same
        self.length = np.sqrt(np.square(X[0], dtype=np.float64).sum()) or 1.0
        self.columns = self._long_columns()
        self.rows = np.ascontiguousarray(X if self.columns is None else X[:, self.columns])
        # of tangent vectors, the directions with covariances of clusters, and all others
        self.own = min(self.rank, self.rows.shape[1])
        self.others = self.rank - self.own
        self.clusters = {}  # of the clustering before, by the numbers of their rows

    def _long_columns(self):
        """The columns of the largest second moments, at most OWN_DIRECTIONS; None for all."""
        if self.X.shape[1] <= OWN_DIRECTIONS:
            return None
        squares = np.square(self.X, dtype=np.float64)
        moments = squares.sum(axis=0) if self.weight is None else self.weight @ squares
        return np.sort(np.argsort(-moments, kind="stable")[:OWN_DIRECTIONS])

    def __call__(self, sweep):
        """V, None (for no other metric), and the squared error."""
        n, u, K, d = self.n, self.distinct, sweep.k, self.rank
        squares = sweep.residuals()
        error = float(squares.sum() if self.weight is None else self.weight @ squares)
        p = sweep.weights / n
        mu, apart, half = self._angles(sweep, squares)
        lengths, bends = 2.0 * apart, np.log(half)
        # the mean of d log((1 + c) / 2), d directions of the plane but one: -2 log of areas' ratio
        bend = float(bends.mean() if self.weight is None else self.weight @ bends / n) * (d - 2)
        V = -2.0 * u * float(p @ np.log(p)) + (K - 1) * self.price_of_cluster
        V += np.log(u) * PARAMETER_PRICE * d + u * bend
        floor = float(self.floor.mean()) / self.length**2
        # squares about the mean of n_k rows are too small by 1 / n_k of their variance: add that
        back = n / (u - K) / sweep.weights if u > K else np.zeros(K)
        round_value = self._value(lengths + floor * d, sweep.labels, back, 0.0)
        total = float(lengths.sum() if self.weight is None else self.weight @ lengths)
        variance = total / n / d * u / max(u - K, 1) + floor
        if not variance > ZERO_VARIANCE:
            return V + round_value, None, error
        clusters, along = self._clusters(sweep, mu, apart, half), lengths
        if self.others:
            along = np.empty_like(lengths)
            for rows, cluster in clusters:
                along[rows] = cluster.lengths
        S = _OwnCovariances(self, sweep, clusters, floor, self._variance(along, K) + floor)
        own, logdet = S.squares, S.log_determinant
        if self.others:
            rest = np.maximum(lengths - along, 0.0)
            e = self._variance(rest, K, self.others) + floor
            own = own + rest / e + self.others * floor / e
            logdet += self.others * np.log(e)
        # one parameter more: the weight of the prior
        value = self._value(own, sweep.labels, back, logdet) + S.price
        return V + min(round_value, value + np.log(u) * PARAMETER_PRICE), None, error

    def _variance(self, squares, k, d=None):
        """The pooled variance in each of d directions (None: of those with own covariances)."""
        total = float(squares.sum() if self.weight is None else self.weight @ squares)
        factor = self.distinct / max(self.distinct - k, 1)
        return total / self.n / (self.own if d is None else d) * factor

    def _value(self, squares, labels, back, logdet):
        """-2 log of the likelihood of these squared lengths, with the price of its shape."""
        d, u = self.rank, self.distinct
        deviance, is_t = fit_residual_density(squares, self.weight, labels, back, self.n, d)
        return u * (deviance + logdet) + np.log(u) * PARAMETER_PRICE * (1 + is_t)

    def _clusters(self, sweep, mu, apart, half):
        """The numbers of the rows of each cluster, and the _Cluster of their tangent vectors.

        That is the one of the clustering before, if it has a cluster of the same rows.
        """
        order, first = sort_rows(sweep.labels.astype(np.intp), None, sweep.k)
        all_rows, clusters = [order[i:j] for i, j in pairwise(first)], {}
        for center, rows in zip(mu, all_rows, strict=True):
            key = rows.tobytes()
            if key in self.clusters:
                clusters[key] = self.clusters[key]
                continue
            vectors = tangent_vectors(self.rows, rows, center, apart, half, self.length)
            weight = None if self.weight is None else self.weight[rows]
            clusters[key] = _Cluster(vectors, weight, self.others > 0)
        self.clusters = clusters
        return list(zip(all_rows, clusters.values(), strict=True))

    def _angles(self, sweep, squares):
        """The directions of centers in the columns of ``rows``; 1 - c and (1 + c) / 2 of each row.

        ``squares`` are squared distances from the means.
        """
        means, labels = sweep.centers / self.length, sweep.labels
        size = np.sqrt(np.square(means).sum(axis=1))
        size[size == 0.0] = 1.0
        # ||x - m||^2 = 2 ||m|| (1 - c) + (1 - ||m||)^2 for a mean m and a row of length 1
        m = size[labels]
        apart = (squares / self.length**2 - np.square(1.0 - m)) / (2.0 * m)
        apart = np.clip(apart, 0.0, 2.0)
        half = np.maximum(1.0 - 0.5 * apart, OPPOSITE)
        mu = means / size[:, None]
        return mu if self.columns is None else mu.take(self.columns, axis=1), apart, half


class _Cluster:
    """Tangent vectors of the rows of a cluster, and their squared lengths by matrices a I + b A.

    A is their scatter. The vectors are float32: no covariance that they are measured by has a
    variance below a fixed share of the pooled one, see PRIOR_ROWS. With the matrix Z of vectors
    times roots of weights, A = Z' Z; of few rows the products Z Z' are used, as

        Z (a I + b A)^-1 Z' = (I - a (a I + b Z Z')^-1) / b.
    """

    def __init__(self, vectors, weight, with_lengths):
        self.lengths = None
        if with_lengths:
            self.lengths = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
        self.weight = weight
        if weight is not None:
            vectors *= np.sqrt(weight, dtype=vectors.dtype)[:, None]
        self.Z, self.few = vectors, len(vectors) < FEW_ROWS * vectors.shape[1]
        self.products = vectors @ vectors.T if self.few else vectors.T @ vectors
        # of a I + b A, so many more eigenvalues are a
        self.others = vectors.shape[1] - len(self.products)

    def measure(self, a, b, trace):
        """Weighted squared lengths, and log determinant and trace of the inverse of the matrix.

        The trace may be None unless it is wanted.
        """
        M = self.products.astype(np.float64)
        M *= b
        M.flat[:: len(M) + 1] += a
        R, failed = dpotrf(M.T, overwrite_a=1)  # M = R' R
        if failed:
            raise ValueError(UNSOUND)
        logdet = 2.0 * np.log(R.diagonal()).sum() + self.others * np.log(a)
        inverse = dtrtri(R)[0] if self.few or trace else None
        trace = None if inverse is None else np.square(inverse).sum() + self.others / a
        if self.few:
            return (1.0 - a * np.einsum("ij,ij->i", inverse, inverse)) / b, logdet, trace
        P = strsm(1.0, R.astype(np.float32), self.Z.T, trans_a=1)
        return np.einsum("ij,ij->j", P, P), logdet, trace


class _OwnCovariances:
    """Squared lengths of tangent vectors by the covariances S_k of their clusters.

    ``variance`` is the pooled one, v. With c_k distinct rows in cluster k, the scatter A_k of their
    tangent vectors, and a prior that counts for m rows,

        S_k = (m v I + A_k) / (m + c_k).

    ``log_determinant`` is the mean of that of S_k over the rows. ``price`` is -2 times the log of
    the likelihood of Gaussian rows integrated over S_k, less that at S_k.
    """

    def __init__(self, criterion, sweep, clusters, floor, variance):
        u, n, d = criterion.distinct, criterion.n, criterion.own
        m = PRIOR_ROWS * d + 2
        counts, size = u * sweep.weights / n, criterion.rows.shape[1]
        # count - 1 degrees of freedom; the variance within steps is not seen by the rows
        factors = u / n * counts / np.maximum(counts - 1.0, 1.0)
        a = (m + counts * floor / variance) / (m + counts)  # S_k / v = a I + b A_k
        b = factors / variance / (m + counts)
        self.squares = np.empty(len(sweep.labels))
        # of S_k / v, and of A_k S_k^-1
        logdets, traces = np.empty(sweep.k), np.empty(sweep.k)
        for k, (rows, cluster) in enumerate(clusters):
            squares, logdets[k], inverse = cluster.measure(a[k], b[k], floor > 0.0)
            squares = squares.astype(np.float64) / variance
            traces[k] = factors[k] * squares.sum()
            if cluster.weight is not None:
                squares /= cluster.weight
            if floor:
                within = inverse * floor / variance
                squares += within
                traces[k] += counts[k] * within
            self.squares[rows] = squares
        # the direction of the center, in which S is that of the prior
        logdets -= np.log(a) * (size - d)
        self.log_determinant = sweep.weights @ logdets / n + d * np.log(variance)
        prior = m + d + 1  # degrees of freedom
        halves = 0.5 * (prior - np.arange(d))
        # the ratio of multivariate gamma functions
        gammas = gammaln(halves + 0.5 * counts[:, None]).sum() - sweep.k * gammaln(halves).sum()
        self.price = -2.0 * gammas - sweep.k * prior * d * np.log(m)
        self.price += (prior + counts) @ (logdets + d * np.log(m + counts))
        self.price -= counts @ (logdets + d * np.log(2.0)) + traces.sum()


def directions(X, weight, n_threads):
    """The criterion and the descent for rows of length 1."""
    frame = RowsFrame(X, weight, n_threads)
    return DirectionCriterion(frame), descent_by_squares(frame)


def sharpest(clusterings, price):
    """The clustering at the minimum of the criterion or, where it falls on and on, at its bend.

    If the density of a cluster describes the rows, V rises beyond its minimum by about the price
    of each cluster more. If not, pieces of clusters go on to lower it, the more the more rows there
    are. Then it is the clustering where V bends most, on its lower convex hull: each cluster before
    it lowers V by a, and each after it by b, and a / max(b, price) is largest.
    """
    hull = []
    for clustering in clusterings:
        if not np.isfinite(clustering.criterion):
            continue
        while len(hull) > 1 and _slope(*hull[-2:]) >= _slope(hull[-2], clustering):
            hull.pop()
        hull.append(clustering)
    at = int(np.argmin([clustering.criterion for clustering in hull]))
    slopes = [_slope(*pair) for pair in pairwise(hull)]
    if at == 0 or at == len(slopes):
        return hull[at]
    more = next((c for c in hull[at + 1 :] if c.k >= BEYOND * hull[at].k), hull[-1])
    if _slope(hull[at], more) >= RISE * price:
        return hull[at]
    bends = [slopes[j - 1] / min(slopes[j], -price) for j in range(1, at + 1)]
    return hull[1 + int(np.argmax(bends))]


def _slope(a, b):
    """By how much the criterion rises for each cluster from one clustering to another."""
    return (b.criterion - a.criterion) / (b.k - a.k)
