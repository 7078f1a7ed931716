"""Coordinates of rows in the directions in which they vary, and covariances of residuals in them.

Rows are the origin plus coordinates times an orthonormal basis. Of n rows in d columns that is

* the columns themselves;
* fewer directions, where columns follow from others;
* where d exceeds n, a basis of the space of the rows themselves: with the QR factors X' = Q R the
  coordinates are the columns of R, which take n^2 numbers, and Q is never made.

A column that was recorded in steps has at least the variance within a step, its *floor*. Where d
exceeds n, each set of columns of the same floor has a basis of its own, so that the floor is the
same in all of its directions; and as many directions more as may be long, in which the rows do not
vary, but the floor is.
"""

from functools import cached_property

import numpy as np

from smallvar._core.lapack import all_pairs, is_positive_definite, r_factor, svd
from smallvar._selection.covariance import Covariance, LowRankCovariance
from smallvar._selection.directions import ZERO_VARIANCE
from smallvar._sweeps.stopping import CANCELLATION

# rows at a time; of a covariance fewer, so that blocks stay in the cache
COORDINATE_ROWS, SCATTERED = 4096, 1024
# multiply-adds of one product of matrices: between products Ctrl-C works
PRODUCTS_AT_ONCE = 1 << 33
# with more columns than rows: if more than FLOORS floors differ, in more than EXACT_COORDINATES,
# near ones are replaced by their mean, so that FLOORS are left besides 0
EXACT_COORDINATES, FLOORS = 512, 4
# covariances are diagonal but for a low rank from ROTATED columns on, with LOW_RANK columns at
# least for each cluster
ROTATED, LOW_RANK = 256, 2
ZERO_LENGTH = 1e-8  # directions shorter than this share of the longest one are left out of a basis


class Coordinates:
    """Rows by their columns, or in fewer directions where columns follow from others.

    ``rank`` is the number of directions in which rows vary or, where that cannot be known, of
    columns; ``floor`` the covariance within steps, None where it is 0; ``beyond`` the variance in
    directions that there are no coordinates for.
    """

    beyond = 0.0

    def __init__(self, frame, floor):
        X, weight = self.rows, self.weight = frame.X, frame.weight
        self.start = frame.origin
        self.origin = self.start  # in the coordinates of centers
        self.n = float(X.shape[0] if weight is None else weight.sum())
        self.basis, self.rank, self._axes, self._along_axes = None, X.shape[1], None, None
        self.total = self._scatter(self.origin)
        self.floor = np.diag(floor) if floor.any() else None

    def find_rank(self, mean):
        """Leave out the directions in which rows do not vary; ``mean`` is that of the rows."""
        offset = mean - self.origin
        S = self.total / self.n - np.outer(offset, offset)
        A = S.copy()
        A.flat[:: len(S) + 1] -= ZERO_VARIANCE * np.trace(S)
        if is_positive_definite(A):
            return
        e, U = all_pairs(S)
        rank = max(1, int((e > ZERO_VARIANCE * e[-1]).sum()))
        if rank < len(e):
            self.take(np.ascontiguousarray(U[:, len(e) - rank :]))

    def take(self, basis):
        """Use the coordinates along this orthonormal basis from here on."""
        self.basis, self.rank = basis, basis.shape[1]
        self.total = basis.T @ self.total @ basis
        self.floor = None if self.floor is None else basis.T @ self.floor @ basis

    def _scatter(self, center, label=None, own=None):
        """Sum of w r r', r the residuals of rows from this center, or from one for each label.

        Only rows in the mask ``own`` count, unless it is None.
        """
        n, d = self.rows.shape
        out, size = np.zeros((d, d)), max(1, min(SCATTERED, PRODUCTS_AT_ONCE // d**2))
        for start in range(0, n, size):
            rows = slice(start, start + size)
            R = np.asarray(self.rows[rows], dtype=np.float64)
            R = R - (center if label is None else center[label[rows]])
            if self.weight is not None:
                R *= np.sqrt(self.weight[rows, None])
            if own is not None:
                R = R[own[rows]]
            out += R.T @ R  # numpy computes one half of it
        return out

    def centers(self, sweep):
        """The centers of a sweep, in the space of ``origin``."""
        return sweep.centers

    @property
    def axes(self):
        """Eigenvalues and eigenvectors of the covariance from the origin; None for few columns."""
        if self._axes is None and len(self.total) >= ROTATED:
            G = self.total / self.n
            self._axes = all_pairs(G if self.floor is None else G + self.floor)
        return self._axes

    def _projected(self, Y):
        return Y if self.basis is None else Y @ self.basis

    def rotated(self, Y):
        """Rows or centers less the origin, along the axes of the covariance."""
        Y = self._projected(Y)
        return Y if self.axes is None else Y @ self.axes[1]

    def unrotated(self, U):
        """Directions in the coordinates, from those along the axes of the covariance."""
        return U if self.axes is None else self.axes[1] @ U

    @property
    def unit(self):
        """The root of the mean squared difference of rows from the origin in a direction."""
        return np.sqrt(np.trace(self.total) / self.n / self.rank)

    def _rows_along_axes(self, dtype):
        """The rows less the origin in units along the axes; in float64 once that was asked for."""
        if self._along_axes is None or self._along_axes.dtype < dtype:
            n, Q = self.rows.shape[0], self.axes[1].astype(dtype)
            self._along_axes = np.empty((n, len(Q)), dtype)
            for rows in _blocks(n, Q.size):
                Y = (np.asarray(self.rows[rows], dtype=np.float64) - self.origin) / self.unit
                self._along_axes[rows] = self._projected(Y).astype(dtype) @ Q
        return self._along_axes

    def covariance(self, sweep, own=None):
        """The pooled covariance within clusters, with the floor, along the axes.

        ``own``: the mask of the rows that the centers are the means of, which alone count.
        """
        centers = self.centers(sweep)
        C, share = self._projected(centers - self.origin), np.sqrt(sweep.weights / self.n)
        M = C * share[:, None]
        size = float(np.trace(self.total)) / self.n
        # by residuals where the difference of squares is mostly rounding
        cancelled = own is not None or size - np.square(M).sum() < CANCELLATION * size
        if cancelled or self.axes is None:
            if cancelled:
                within = self._scatter(centers, sweep.labels, own)
                if self.basis is not None:
                    within = self.basis.T @ within @ self.basis
                within /= self.n if own is None else self._weight_of(own)
            else:
                within = self.total / self.n - M.T @ M
            within = within if self.floor is None else within + self.floor
            if self.axes is None:
                return Covariance(within, C)
            Q = self.axes[1]
            return Covariance(Q.T @ within @ Q, C @ Q)
        D, Q = self.axes
        C = C @ Q
        S = LowRankCovariance(D, C * share[:, None], C)
        return S if LOW_RANK * len(C) <= len(D) else Covariance(S.in_full(), C)

    def _weight_of(self, own):
        """The sum of the weights of some rows."""
        return float(own.sum() if self.weight is None else self.weight @ own)

    def lifted(self, U):
        """Directions in the space of ``rows``, from those along the axes; in columns."""
        U = self.unrotated(U)
        return U if self.basis is None else self.basis @ U

    def squares_along(self, sweep, long, centers=None, single=False):
        """Squared lengths of residuals along directions, and the same relative to the variances.

        With ``centers``, those along the axes, products are of rows along the axes, which are kept;
        if ``single``, in float32.
        """
        dtype = np.float32 if single else np.float64
        if centers is None:
            U, unit, X = self.lifted(long.vectors), 1.0, self.rows
            images, products = self.centers(sweep) @ U, lambda Y: Y @ U
        else:
            products, unit, X = long.products, self.unit, self._rows_along_axes(dtype)
            images = (products(centers) / unit).astype(dtype)
        both = np.column_stack([np.ones_like(long.variances), unit**2 / long.variances])
        squares = np.empty((len(sweep.labels), 2))
        for rows in _blocks(len(squares), long.vectors.size):
            P = products(np.asarray(X[rows], dtype=dtype)) - images[sweep.labels[rows]]
            squares[rows] = np.square(P, out=P) @ both.astype(dtype)
        squares[:, 0] *= unit**2
        if self.floor is not None:
            U = self.unrotated(long.vectors)
            along = ((self.floor @ U) * U).sum(axis=0)
            squares += np.column_stack([along.sum(), (along / long.variances).sum()])
        return squares.T

    def of(self, X):
        """Coordinates of rows or centers."""
        Y = X - self.origin
        return Y if self.basis is None else Y @ self.basis

    def own(self):
        """Coordinates of the rows."""
        return self.of(np.asarray(self.rows, dtype=np.float64))

    def matrix(self):
        """The basis, in columns."""
        return np.eye(self.rank) if self.basis is None else self.basis


class SpanCoordinates(Coordinates):
    """Coordinates of fewer rows than columns; ``most`` long directions may be asked for."""

    def __init__(self, frame, floor, most):
        X, weight = self.data, self.weight = frame.X, frame.weight
        self.start, self.basis, self._axes, self._along_axes = frame.origin, None, None, None
        self.rank = X.shape[1]
        self.n = float(X.shape[0] if weight is None else weight.sum())
        self.groups, parts, floors = [], [], []
        for columns, value in _by_floor(floor, len(X)):
            Y = self._coordinates(columns)
            n_directions = min(len(columns) - Y.shape[1], most) if value > 0.0 else 0
            first = sum(part.shape[1] for part in parts)
            self.groups.append((columns, slice(first, first + Y.shape[1])))
            parts += [Y, np.zeros((len(Y), n_directions))]
            floors += [value] * (Y.shape[1] + n_directions)
            self.beyond += (len(columns) - Y.shape[1] - n_directions) * value
        self.rows = np.hstack(parts)
        self.origin = np.zeros(self.rows.shape[1])
        self.total = self._scatter(self.origin)
        self.floor = np.diag(floors) if floor.any() else None
        self._inverses = None

    def _differences(self, X, columns):
        """Rows less the origin, in these columns."""
        return np.asarray(X[:, columns], dtype=np.float64) - self.start[columns]

    def _coordinates(self, columns):
        """Coordinates of the rows in the space that they span in these columns."""
        n = len(self.data)
        if len(columns) <= n:
            return self._differences(self.data, columns)
        R = np.zeros((0, n))
        # X' = Q R, by blocks of rows of X': R of the block below the R so far is R of both
        for j in _split(columns, max(2 * n, COORDINATE_ROWS)):
            R = r_factor(np.vstack([R, self._differences(self.data, j).T]))
        return np.ascontiguousarray(R.T)

    def centers(self, sweep):
        """Means of the rows of each cluster."""
        order = np.argsort(sweep.labels, kind="stable")
        rows = self.rows if self.weight is None else self.rows * self.weight[:, None]
        first = np.searchsorted(sweep.labels[order], np.arange(sweep.k))
        return np.add.reduceat(rows[order], first, axis=0) / sweep.weights[:, None]

    def _parts(self, columns, size):
        """Split columns so that a product of the rows with ``size`` vectors takes little time."""
        return _split(
            columns, max(1, min(COORDINATE_ROWS, PRODUCTS_AT_ONCE // (len(self.data) * size)))
        )

    def _inverse(self):
        """For each set of columns a matrix that makes coordinates of inner products with rows."""
        if self._inverses is None:
            self._inverses = []
            for _, here in self.groups:
                U, s, Vt = svd(self.rows[:, here], full_matrices=False)
                keep = s > ZERO_LENGTH * s[0]
                self._inverses.append((U[:, keep] / s[keep]) @ Vt[keep])
        return self._inverses

    def of(self, X):
        """Coordinates of the projections of rows or centers to the space of the rows."""
        out = np.zeros((len(X), self.rows.shape[1]))
        for (columns, here), inverse in zip(self.groups, self._inverse(), strict=True):
            products = np.zeros((len(X), len(self.data)))
            for j in self._parts(columns, len(X)):
                products += self._differences(X, j) @ self._differences(self.data, j).T
            out[:, here] = products @ inverse
        return out

    def own(self):
        """Coordinates of the rows."""
        return self.rows

    def matrix(self):
        """The basis, in columns."""
        out = np.zeros((self.rank, self.rows.shape[1]))
        for (columns, here), inverse in zip(self.groups, self._inverse(), strict=True):
            for j in self._parts(columns, inverse.shape[1]):
                out[j, here] = self._differences(self.data, j).T @ inverse
        return out


def _blocks(n, size):
    """Slices of n rows; a product of one with a matrix of this ``size`` takes little time."""
    step = max(1, min(COORDINATE_ROWS, PRODUCTS_AT_ONCE // size))
    return [slice(start, start + step) for start in range(0, n, step)]


def _split(columns, size):
    """Lists of at most ``size`` columns."""
    return [columns[i : i + size] for i in range(0, len(columns), size)]


def _by_floor(floor, n):
    """Yield columns of the same floor, and this floor; of near floors, and their mean, if many."""
    different, group, count = np.unique(floor, return_inverse=True, return_counts=True)
    if len(different) > FLOORS and np.minimum(count, n).sum() > EXACT_COORDINATES:
        size = np.log(np.where(different > 0.0, different, different[-1]))
        share = (size - size.min()) / (size[-1] - size.min())
        near = np.where(different > 0.0, 1 + (FLOORS * share).astype(int).clip(0, FLOORS - 1), 0)
        group = near[group]
    for i in np.unique(group):
        columns = np.flatnonzero(group == i)
        yield columns, float(floor[columns].mean())


class RoundMetric:
    """The metric in which clusters are spherical: coordinates over the standard deviations.

    That is the coordinates times I / s + U diag(1 / s_j - 1 / s) U', where U are the long
    directions, s_j the standard deviation along each and s that in all others.
    """

    def __init__(self, coordinates, directions):
        self.coordinates, self.directions = coordinates, directions
        self.origin = coordinates.start

    @cached_property
    def vectors(self):
        """The long directions in the coordinates."""
        return self.coordinates.unrotated(self.directions.vectors)

    def _stretched(self, Y):
        """Coordinates divided by the standard deviation in each direction."""
        U, s = self.vectors, np.sqrt(self.directions.rest)
        factors = 1.0 / np.sqrt(self.directions.variances) - 1.0 / s
        return Y / s + ((Y @ U) * factors) @ U.T

    def __call__(self, X):
        """Rows or centers in this metric."""
        return self._stretched(self.coordinates.of(X))

    def rows(self):
        """The rows in this metric."""
        return self._stretched(self.coordinates.own())

    @property
    def matrix(self):
        """The matrix by which rows, less the origin, are multiplied."""
        return self._stretched(self.coordinates.matrix())
