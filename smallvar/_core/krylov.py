"""The largest eigenvalues of a dense matrix, with a proof that none is missing."""

import numpy as np

from smallvar._core.lapack import all_pairs, eigenvalues, is_positive_definite, stoppable

LEAST_KRYLOV_ROWS = 600  # for fewer rows a dense solver is as fast
KRYLOV_COLUMNS = 24  # columns of a product: fewer take as long, since the matrix has to be read
BASIS_SHARE = 4  # a basis of more than n / BASIS_SHARE columns takes as long as a dense solver
# allowed length of G y - value y, relative to the largest eigenvalue, for an eigenvector y; and if
# only the value is wanted
VECTOR_RESIDUAL = 1e-13
VALUE_RESIDUAL = 1e-9
# if less than this share of a product is orthogonal to the basis, its direction is rounding, and
# needs a second projection
CANCELLED = 1e-10
SQUARES_ROUNDING = 1e-12  # rounding of differences of sums of squares, relative to that of G


class KrylovSpace:
    """An orthonormal basis Q of a block Krylov space of a symmetric G, grown block by block.

    In a basis of all vectors that begins with Q, G is [H, C'; C, D]. The eigenvalues of H = Q' G Q
    are lower bounds on the largest of G, one by one (Cauchy). C is zero but for the last block. If
    no eigenvalue of D exceeds s < t, G has as many above t as H + C' (t - D)^-1 C (Haynsworth): at
    most as many as H + C' C / (t - s). Where these are as many as those of H, none is missing.

    ``first``, a vector of length 1, is the first column of Q. Without the first row of H and the
    first column of C the same holds for P G P, P the projection onto the complement of ``first``.
    """

    def __init__(self, G, first=None):
        n = len(G)
        self.G, self.shape = G, G.shape
        block = np.random.default_rng(0).standard_normal((n, min(KRYLOV_COLUMNS, n)))
        if first is not None:
            block[:, 0] = first
        self.next = np.linalg.qr(block)[0]
        self.limit = n // BASIS_SHARE // KRYLOV_COLUMNS * KRYLOV_COLUMNS  # columns that Q may have
        self.Q, self.H, self.C, self.CC = np.empty((n, 0)), np.empty((0, 0)), None, None
        self.trace, self.square = float(np.trace(G)), float(np.linalg.norm(G)) ** 2
        self.size = 0.0  # norm of the largest product so far
        # bound on the eigenvalues of D; it holds for later D, too, as these are blocks of this one
        self.rest = np.inf

    def largest(self, threshold, least=0, *, without_first=False):
        """Eigenpairs above the threshold, at least the ``least`` largest; values ascend.

        If the least of these is not above the threshold, only its value is accurate, not its
        vector. None if a dense solver is needed: the threshold is not positive, or is an eigenvalue
        up to rounding, or too many eigenvalues are above it, or one has too many copies.
        """
        kept, size_before, m_before, excess_before = slice(int(without_first), None), 0, 0, np.inf
        b = self.next.shape[1]
        enough = b + max(b, least)
        while threshold > 0:
            size = len(self.H)
            if size >= enough:
                values, V, t, excess = self._ritz(threshold, least, kept)
                m = V.shape[1]
                if excess <= 0 and self._is_complete(values, t, kept):
                    return values[len(values) - m :], self.Q[:, kept] @ V
                needed = 0.0
                if m == m_before and excess > 0:
                    fall = (excess_before - excess) / (size - size_before)
                    needed = excess / fall if fall > 0 else np.inf
                if size >= self.limit / 4 and size + needed > 2 * self.limit:
                    break
                # as a rule residuals fall faster and faster
                enough = min(size + needed / 2, 2 * size, self.limit)
                size_before, m_before, excess_before = size, m, excess
            if size >= self.limit:
                break
            self._extend()
        return None

    def _ritz(self, threshold, least, kept):
        """Eigenvalues of H, vectors of the wanted ones, and what is to be proven of them.

        That is: the number above which G has no more eigenvalues than H; and the logarithm of the
        largest residual, relative to the one allowed.
        """
        values, V = all_pairs(self.H[kept, kept])
        m = max(np.count_nonzero(values > threshold), least)
        V = V[:, len(values) - m :]
        allowed, t = np.full(m, VECTOR_RESIDUAL * np.abs(values).max()), threshold
        if m and not values[-m] > threshold:
            allowed[0] *= VALUE_RESIDUAL / VECTOR_RESIDUAL
            t = values[-m] + allowed[0]
        last = V[-len(self.CC) :]  # G y - value y = C last for y = Q v
        residual = np.sqrt(np.maximum((last * (self.CC @ last)).sum(axis=0), 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            return values, V, t, np.log((residual / allowed).max(initial=0.0))

    def _is_complete(self, values, t, kept):
        """Whether G has no more eigenvalues above t than H, whose eigenvalues are ``values``.

        Shown as in the class, with a bound s < t on the eigenvalues of D: from traces if that is
        good enough, else a guess, which a Cholesky factor of s - D confirms.
        """
        n, p = self.Q.shape
        mean = (self.trace - np.trace(self.H)) / (n - p)
        square = (
            self.square * (1 + SQUARES_ROUNDING) - np.square(self.H).sum() - 2 * np.trace(self.CC)
        )
        variance = max(square / (n - p) - mean**2, 0.0)
        # Wolkowicz & Styan (1980), Bounds for eigenvalues using traces
        self.rest = min(self.rest, mean + np.sqrt((n - p - 1) * variance))
        s, high, b = self.rest, self.H.copy(), len(self.CC)
        if not s < t:  # a guess: the last block of H is most like D
            s = (t + np.linalg.eigvalsh(high[-b:, -b:])[-1]) / 2
            if not s < t:
                return False
        high[-b:, -b:] += self.CC / (t - s)
        above = eigenvalues(high[kept, kept]) > t
        if np.count_nonzero(above) > np.count_nonzero(values > t):
            return False
        if not self.rest < t:
            if stoppable(self._exceeds_rest, s):
                self.rest = s
            else:
                self.limit = 0  # D has an eigenvalue above s: give up, for a dense solver
        return self.rest < t

    def _exceeds_rest(self, s):
        """Whether s exceeds all eigenvalues of D."""
        # in the basis of G, D is G - Q H Q' - C Q' - Q C', which is zero on the space of Q
        half = self.Q @ (self.H / 2)
        half[:, -len(self.CC) :] += self.C
        M = self.Q @ half.T
        M += M.T
        M -= self.G
        M[np.diag_indices(len(M))] += s
        return is_positive_definite(M)

    def _extend(self):
        """Append the next block to the basis, and compute the block after it."""
        C = self.G @ self.next
        self.size = max(self.size, np.linalg.norm(C))
        self.Q = Q = np.hstack([self.Q, self.next])
        p, b = Q.shape[1], C.shape[1]
        recent = Q[:, -2 * b :]  # C is orthogonal to earlier blocks, up to rounding
        inner = recent.T @ C
        C -= recent @ inner
        inner[-b:] = (inner[-b:] + inner[-b:].T) / 2
        H = np.zeros((p, p))
        H[: p - b, : p - b] = self.H
        H[-len(inner) :, p - b :] = inner
        H[p - b :, -len(inner) :] = inner.T
        self.H, self.C, self.CC = H, C, C.T @ C
        self.next, R = np.linalg.qr(C)
        for _ in range(1 if np.abs(R.diagonal()).min() > CANCELLED * self.size else 2):
            self.next = np.linalg.qr(self.next - Q @ (Q.T @ self.next))[0]
