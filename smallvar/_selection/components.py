"""Principal components of rows, covariances of residuals in them, and the long directions of these.

Rows less their mean are coordinates times an orthonormal basis, their principal components, those
of the largest variance first. Of n rows there are at most n, however many columns there are.

*Long directions.* Of a covariance S with eigenvalues e_1 >= e_2 >= ... in d dimensions, q
directions are kept, all other eigenvalues being replaced by their mean t_q; q is the least that
minimizes

    C(q) = u (sum_{j <= q} log e_j + (d - q) log t_q) + price log(u) (d q - q (q - 1) / 2).

They are sought among the LEADING first components of all rows only, and all other directions count
as not long. That leaves little out, as the covariance S within clusters is at most that of all
rows: if S v = e v, |v| = 1, and b is the part of v in components whose variances are at most g,

    e |b|^2 = b' S v <= (b' S b)^(1/2) (v' S v)^(1/2) <= (g |b|^2 e)^(1/2), so |b|^2 <= g / e.

A column that was recorded in steps has at least the variance within a step, its *floor*, which is
added to the covariance.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smallvar._core.linear_algebra import all_pairs, eigenvalues, eigh, stoppable_if_large
from smallvar._sweeps.stopping import CANCELLATION

PARAMETER_PRICE = 2.0  # of a parameter, in log(distinct rows)
ZERO_VARIANCE = 1e-9  # of the largest eigenvalue, or of a determinant: less is rounding
LEADING = 128  # components among which long directions are sought
FEW_VECTORS = 16  # fewer vectors than this part of the columns are computed alone
PRODUCT_ROWS = 1024  # rows at a time, so that their products stay in the cache
# with more columns than rows: components of a smaller share of the largest variance are rounding
ZERO_SQUARE = 1e-15


@dataclass
class LongDirections:
    """Directions in columns, the variance along each, falling, and that in all others."""

    vectors: NDArray[np.float64]
    variances: NDArray[np.float64]
    rest: float


def find_long(S, trace, d, u, most):
    """The long directions of a covariance in d dimensions, at most ``most``; None: there are none.

    S is the covariance in the dimensions in which directions may be long; ``trace`` is that in all
    d, and ``u`` the number of distinct rows. C(q) counts as infinite where a variance is mostly
    rounding.
    """
    e = eigenvalues(S)[::-1].clip(0.0)
    first = e[:most]
    q, largest = np.arange(len(first) + 1), first[:1].sum()
    if not largest > 0.0:
        return None
    rest = np.maximum(trace - np.append(0.0, np.cumsum(first)), 0.0) / (d - q)
    with np.errstate(divide="ignore", invalid="ignore"):
        costs = u * (np.append(0.0, np.cumsum(np.log(first))) + (d - q) * np.log(rest))
    costs += PARAMETER_PRICE * math.log(u) * (d * q - q * (q - 1) / 2)
    costs[~(rest > ZERO_VARIANCE * largest)] = np.inf
    q = int(costs.argmin())
    if q == 0:
        return None
    U = eigh(S, largest=q)[1] if FEW_VECTORS * q < len(S) else all_pairs(S)[1][:, -q:]
    return LongDirections(np.ascontiguousarray(U[:, ::-1]), e[:q], float(rest[q]))


class Components:
    """Rows by their principal components.

    ``basis`` are the components, in columns, and ``rows`` the coordinates along them. ``rank`` is
    the number of directions in which rows vary; if it is None, as many as have a variance. Of the
    ``leading`` coordinates, the first ones, ``variances`` are those of all rows, and ``floor`` is
    the covariance within steps; ``total_floor`` is its trace in all directions.
    """

    def __init__(self, frame, floor, rank=None):
        self.origin, self.weight = frame.mean, frame.weight
        n, d = frame.X.shape
        D = np.asarray(frame.X, dtype=np.float64) - self.origin
        W = D if self.weight is None else D * np.sqrt(self.weight)[:, None]
        self.n = float(n if self.weight is None else self.weight.sum())
        if d > max(n, LEADING):
            # with W W' = V diag(s^2) V' the components are W' V diag(1 / s)
            e, V = all_pairs(_product(W, W.T))
            kept = e > ZERO_SQUARE * e[-1]
            e, U = e[kept], _product(W.T, V[:, kept] / np.sqrt(e[kept]))
        else:
            e, U = all_pairs(_product(W.T, W))
        if rank is None:
            rank = max(1, int((e > ZERO_VARIANCE * e[-1]).sum()))
        self.rank, self.basis = rank, np.ascontiguousarray(U[:, ::-1][:, :rank])
        self.rows = _product(D, self.basis)
        first = self.basis[:, :LEADING]
        self.leading = self.rows[:, :LEADING]
        self.variances = e[::-1][: first.shape[1]] / self.n
        self.floor = (first.T * floor) @ first
        self.total_floor = float(floor.sum())
        if rank < d:
            self.total_floor = float(np.square(self.basis).sum(axis=1) @ floor)

    def centers(self, sweep, own=None):
        """The means of clusters of a sweep along the leading components.

        ``own``: the mask of the rows that they are the means of, None: all.
        """
        n, d = len(self.rows), len(self.basis)
        # with more columns than rows, sums of the coordinates take less time
        if n > d:
            return (sweep.centers - self.origin) @ self.basis[:, :LEADING]
        shares = np.zeros((sweep.k, n))
        shares[sweep.labels, np.arange(n)] = 1.0 if self.weight is None else self.weight
        if own is not None:
            shares *= own
        return (shares @ self.leading) / shares.sum(axis=1)[:, None]

    def covariance(self, sweep, centers, own=None):
        """The pooled covariance within clusters, with the floor, along the leading components.

        ``own``: the mask of the rows that the centers are the means of, which alone count.
        """
        M = centers * np.sqrt(sweep.weights / self.n)[:, None]
        S = np.diag(self.variances) - M.T @ M
        # by residuals where the difference of squares is mostly rounding
        if own is not None or np.trace(S) < CANCELLATION * self.variances.sum():
            R, weight = self.leading - centers[sweep.labels], self.weight
            if own is not None:
                weight = own if weight is None else own * weight
            W = R if weight is None else R * weight[:, None]
            S = W.T @ R / (self.n if weight is None else weight.sum())
        return S + self.floor

    def squares_by(self, long, labels, centers, squares):
        """Squared lengths of residuals r by the covariance with these long directions, r' S^-1 r.

        That is r' r / rest - sum_j p_j^2 (1 / rest - 1 / e_j) with the products p_j of r and the
        directions; ``squares`` are r' r.
        """
        U, factors = long.vectors, 1.0 / long.rest - 1.0 / long.variances
        out, images = (squares + self.total_floor) / long.rest, centers @ U
        out -= ((self.floor @ U) * U).sum(axis=0) @ factors
        for start in range(0, len(out), PRODUCT_ROWS):
            rows = slice(start, start + PRODUCT_ROWS)
            P = self.leading[rows] @ U - images[labels[rows]]
            out[rows] -= np.square(P, out=P) @ factors
        return np.maximum(out, 0.0, out=out)


def _product(A, B):
    """The matrix product, which can be interrupted."""
    return stoppable_if_large(np.matmul, A, B)


class RoundMetric:
    """The metric in which clusters are spherical: coordinates over the standard deviations.

    That is the coordinates times I / s + U diag(1 / s_j - 1 / s) U', where U are the long
    directions, s_j the standard deviation along each and s that in all others.
    """

    def __init__(self, components, long):
        self.components, self.long, self.origin = components, long, components.origin

    def _stretched(self, Y):
        """Coordinates divided by the standard deviation in each direction."""
        U, s = self.long.vectors, np.sqrt(self.long.rest)
        factors = 1.0 / np.sqrt(self.long.variances) - 1.0 / s
        out, leading = Y / s, len(U)
        out[:, :leading] += ((Y[:, :leading] @ U) * factors) @ U.T
        return out

    def __call__(self, X):
        """Rows or centers in this metric."""
        return self._stretched((X - self.origin) @ self.components.basis)

    def rows(self):
        """The rows in this metric."""
        return self._stretched(self.components.rows)

    @property
    def matrix(self):
        """The matrix by which rows, less the origin, are multiplied."""
        return self._stretched(self.components.basis)
