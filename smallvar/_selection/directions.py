"""The long directions of a covariance: how many are worth their price, and its leading eigenpairs.

Of a covariance S with eigenvalues e_1 >= e_2 >= ... in d dimensions, q directions are kept, all
other eigenvalues being replaced by their mean t_q; q is the least that minimizes

    C(q) = u (sum_{j <= q} log e_j + (d - q) log t_q) + price log(u) (d q - q (q - 1) / 2).

*A certificate.* Where q eigenpairs are known, and of the other N = d - q eigenvalues the sum R and
that none exceeds L, then p more directions lower the first part of C by at most

    u G_p(L),  G_p(L) = -p log(L / c) - (N - p) log((R - p L) / ((N - p) c)),  c = R / N,

as each step gains the more, the larger the eigenvalue and the smaller the mean of what is left.
They also lower it by at most u (N log(c) - sum_{j > q} log e_j), which follows from the determinant
of S. So L need not be known, but only that no eigenvalue exceeds the largest L for which no p is
worth its price: L I - S, the q eigenpairs taken out, has a Cholesky factor. For q = 0 that is all
there is to compute.

*A subspace.* Of S = D - N' N, with D known beforehand, many eigenpairs are found in a subspace that
holds the axes of the largest elements of D (covariance.py). As S <= D, no eigenvalue of S exceeds
the one of D of the same number, so L is known there for any q, and the bounds above say whether
more directions can be worth their price. Residuals say how much the values of C are off.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smallvar._core.lapack import all_pairs, need_finite
from smallvar._selection.covariance import KRYLOV, Covariance, LowRankCovariance

PARAMETER_PRICE = 2.0  # of a parameter, in log(distinct rows)
ZERO_VARIANCE = 1e-9  # of the largest eigenvalue, or of a determinant: less is rounding
CERTIFIED = 48  # columns from which a Cholesky factor takes less time than all eigenvalues
ITERATED = 256  # columns from which an iteration for the leading eigenvectors takes less time
FEW_VECTORS = 16  # the iteration is for fewer vectors than this part of the columns
# of a covariance of low rank, more vectors are sought in a subspace: at first of so many axes, of
# half as many more as long as they do not do, up to this share of the columns
FIRST_AXES, MORE_AXES, LARGEST_SUBSPACE = 64, 1.5, 0.75
SUBSPACE_ERROR = 1e-3  # of the cost by vectors of a subspace, in the price of a parameter
SPARE = 8  # vectors of the iteration beyond those that are wanted
ITERATIONS = 12  # at most; then all eigenpairs are computed at once
# residual of an eigenpair, of its eigenvalue; errors of eigenvalues and likelihoods are its square
PAIR_RESIDUAL = 1e-8
SMALLEST_LENGTH = 1e-300
# of the largest eigenvalue: residuals of eigenpairs from LAPACK may be as large
PAIR_ROUNDING = 1e-13
BISECTIONS = 40


@dataclass
class LongDirections:
    """Directions in columns, the variance along each, falling, and that in all others.

    Their first rows are in the space of ``basis``, orthonormal columns, unless it is None.
    """

    vectors: NDArray[np.float64]
    variances: NDArray[np.float64]
    rest: float
    basis: NDArray[np.float64] | None = None

    def products(self, X):
        """Products of rows with the directions, in the precision of the rows."""
        U = self.vectors.astype(X.dtype, copy=False)
        if self.basis is None:
            return X @ U
        basis, split = self.basis.astype(X.dtype, copy=False), len(self.basis)
        return X[:, split:] @ U[split:] + (X[:, :split] @ basis) @ (basis.T @ U[:split])


class DirectionSearch:
    """Finds the long directions of covariances in d dimensions, each rather like the one before.

    ``u`` is the number of distinct rows; ``beyond`` is the variance in directions that covariances
    have no columns for: none of them is longer than those that there are columns for.
    """

    def __init__(self, d, u, beyond=0.0):
        self.d, self.u, self.beyond = d, u, beyond
        self.none = True  # whether none was worth its price before
        self.rng = None  # made when it is needed
        self.vectors = None  # leading eigenvectors of the covariance before, and a few more
        self.n_axes = FIRST_AXES

    def __call__(self, S, most):
        """The long directions of S, at most ``most``; None if there are none.

        S, a matrix or a Covariance, may have fewer columns than d; the others then are as
        ``beyond`` says.
        """
        S = Covariance(S) if isinstance(S, np.ndarray) else S
        D, trace = len(S), self.beyond + S.trace
        if self.vectors is None and D >= ITERATED:
            self.vectors = self._more(np.empty((D, 0)), SPARE)
        least = CERTIFIED if self.none else ITERATED
        if least <= D:
            logdet = -np.inf if self.d > D else S.log_determinant()
            if self.none and self._certified(S, np.empty(0), np.empty((D, 0)), trace, logdet, most):
                return None
            if D >= ITERATED and FEW_VECTORS * self.vectors.shape[1] < D:
                iterated = self._iterated(S, trace, logdet, most)
                if iterated is not None:
                    return self._kept(*iterated, trace, most)
            if isinstance(S, LowRankCovariance):
                found = self._in_subspace(S, trace, logdet, most)
                if found is not None:
                    e, U, basis = found
                    return self._kept(e, U, trace, most, basis)
        e, U = all_pairs(S.in_full())
        return self._kept(e[::-1].clip(0.0), U[:, ::-1], trace, most)

    def _kept(self, e, U, trace, most, basis=None):
        """The directions that are worth their price, of all eigenpairs or enough leading ones."""
        costs, rest = self._costs(e[:most], trace)
        q = int(costs.argmin())
        self.none = q == 0
        if len(U) >= ITERATED:
            U = U[:, : q + SPARE]
            self.vectors = self._more(U, q + SPARE - U.shape[1])
        if q == 0:
            return None
        return LongDirections(np.ascontiguousarray(U[:, :q]), e[:q], float(rest[q]), basis)

    def _costs(self, e, trace):
        """Cost of a covariance with 0, 1, ... directions of their own, (q + 1,); lower is better.

        Also the mean variance of the other directions, (q + 1,). ``e`` (q,) are the largest
        variances, falling, and ``trace`` is the sum of all d. The cost is u times the logarithm of
        the determinant, and the price of d q - q (q - 1) / 2 numbers, those of the directions.
        """
        q = np.arange(len(e) + 1)
        rest = np.maximum(trace - np.append(0.0, np.cumsum(e)), 0.0) / (self.d - q)
        usable = rest > ZERO_VARIANCE * e[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            kept = np.append(0.0, np.cumsum(np.log(e)))
            costs = self.u * (kept + (self.d - q) * np.log(rest))
        costs += PARAMETER_PRICE * math.log(self.u) * (self.d * q - q * (q - 1) / 2)
        costs = np.where(usable, costs, np.inf)
        costs[0] = costs[0] if e[0] > 0.0 else -np.inf
        return costs, rest

    def _iterated(self, S, trace, logdet, most):
        """The leading eigenpairs by LOBPCG from those before, if that can be certified."""
        X = B = self.vectors
        failed = 0
        for _ in range(ITERATIONS):
            B = np.linalg.qr(B)[0]
            SB, m = S @ B, X.shape[1]
            e, rotation = np.linalg.eigh(need_finite(B.T @ SB))
            e, rotation = e[: -m - 1 : -1].clip(0.0), rotation[:, : -m - 1 : -1]
            P, X, SX = X, B @ rotation, SB @ rotation
            q = int(self._costs(e[:most], trace)[0].argmin())
            R = SX - X * e
            length = np.linalg.norm(R, axis=0)
            wrong = length > np.maximum(PAIR_RESIDUAL * e, PAIR_ROUNDING * e[0])
            if not wrong[:q].any() and q < min(m - 1, most):
                first_columns = np.ascontiguousarray(X[:, :q])
                if self._certified(S, e[:q], first_columns, trace, logdet, most):
                    return e, X
                failed += 1  # a direction may have been missed
            if failed == 2 or not (wrong.any() or FEW_VECTORS * m < len(S)):
                return None
            if not wrong[:q].any() and q >= m - 1:
                X = B = self._more(X, SPARE)
                continue
            P = (P - X @ (X.T @ P))[:, wrong]
            lengths = np.append(length[wrong], np.linalg.norm(P, axis=0))
            B = np.hstack([X, np.hstack([R[:, wrong], P]) / lengths.clip(SMALLEST_LENGTH)])
        return None

    def _in_subspace(self, S, trace, logdet, most):
        """Leading eigenpairs in a subspace of S = D - N' N, where that changes the cost by little.

        And the basis of its part in other axes. Of those of more and more axes the first that do;
        None if there are none.
        """
        rank, price = len(S.N), PARAMETER_PRICE * math.log(self.u)
        largest = int(LARGEST_SUBSPACE * len(S)) - KRYLOV * rank
        m = max(self.n_axes, self.vectors.shape[1] + SPARE) + rank
        while m <= largest:
            self.n_axes, n = m - rank, min(m - rank, most)
            e, basis, rotation = S.in_subspace(m)
            if n > 0 and e[n - 1] > 0.0:
                costs, rest = self._costs(e[:n], trace)
                q = int(costs.argmin())
                X = rotation[:, : q + SPARE]
                X = np.vstack([basis @ X[m:], X[:m]])
                R = np.square(S @ X[:, :q] - X[:, :q] * e[:q]).sum(axis=0)
                # an eigenvalue e is too small by at most R / (e - D), D that of the next axis
                gap = e[:q] - S.D[-m - 1]
                exact = (gap > 0.0).all() and self.u * (R / gap).sum() <= (
                    SUBSPACE_ERROR * price * rest[q]
                )
                # S <= D, so none of the other eigenvalues is above the n-th but one of D
                if exact and self._no_more(e[:n], S.D[-n - 1], trace, logdet, most, costs):
                    return e[:n], X, basis
            m = max(min(int(MORE_AXES * m), largest), m + 1)
        return None

    def _no_more(self, e, level, trace, logdet, most, costs):
        """Whether no more directions than these, with variances e, can lower the least cost.

        No other variance is above the ``level``.
        """
        n, N = len(e), self.d - len(e)
        rest = trace - e.sum()
        c = rest / N
        p = np.arange(1, most - n + 1)
        if not c > ZERO_VARIANCE * e[0]:
            return False
        level = max(level, c)
        # beyond p * level = rest the determinant alone bounds the gain
        left = np.maximum((rest - p * level) / ((N - p) * c), SMALLEST_LENGTH)
        gain = -p * np.log(level / c) - (N - p) * np.log(left)
        gain = np.minimum(gain, N * math.log(c) - logdet + np.log(e).sum())
        price = PARAMETER_PRICE * math.log(self.u) * p * (N - (p - 1) / 2)
        return bool((costs[n] - self.u * gain + price >= costs.min()).all())

    def _more(self, X, size):
        """The columns of X, followed by ``size`` random ones."""
        if self.rng is None:
            self.rng = np.random.default_rng(0)
        return np.hstack([X, self.rng.standard_normal((len(X), size))])

    def _certified(self, S, e, U, trace, logdet, most):
        """Whether no more directions than these, with variances e, are worth their price."""
        N, q, c = self.d - len(e), len(e), (trace - e.sum()) / (self.d - len(e))
        if not c > ZERO_VARIANCE * (e[0] if q else trace):
            return False
        p = np.arange(1, most - q + 1)
        price = PARAMETER_PRICE * math.log(self.u) / self.u * p * (N - (p - 1) / 2)
        gain = N * math.log(c) - logdet + np.log(e).sum()
        # G is convex in p and the price concave, both 0 for p = 0: only the largest p matters
        p = int(np.searchsorted(price, gain, side="right"))
        level = c * (1.0 + _level(p, N, price[p - 1])) if p else np.inf
        if q:
            level = min(level, e[-1])
        return level == np.inf or S.is_below(level, e, U)


def _level(p, N, most):
    """The largest y for which G_p(c (1 + y)) <= most, by bisection."""
    # with L = c (1 + y), L / c = 1 + y and (R - p L) / ((N - p) c) = 1 - p y / (N - p)
    low, high = 0.0, (N - p) / p
    for _ in range(BISECTIONS):
        y = 0.5 * (low + high)
        if -p * math.log1p(y) - (N - p) * math.log1p(-p * y / (N - p)) <= most:
            low = y
        else:
            high = y
    return low
