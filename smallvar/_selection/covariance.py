"""Covariances of residuals, as the search for long directions and the criterion ask of them.

Residuals of rows from the means of their clusters have the covariance G - N' N, where G is that of
all rows from a common origin, and N has a row sqrt(w_k / n) (mu_k - origin) for each cluster. In
the eigenvectors of G, which are the same for all clusterings, this is D - N' N with a diagonal D.
What is asked of it then needs matrices of K rows and columns only:

* det(D - N' N) = det(D) det(I - N D^-1 N');
* (D - N' N)^-1 = D^-1 + D^-1 N' (I - N D^-1 N')^-1 N D^-1 (Woodbury);
* E + P' P, E diagonal without zeros, is positive definite if and only if E has as many negative
  elements as I + P E^-1 P' has negative eigenvalues (Haynsworth).
"""

import numpy as np

from smallvar._core.lapack import all_pairs, cholesky, is_positive_definite, solve_lower

KRYLOV = 2  # blocks N', D N', ... of the subspace in which leading eigenpairs are sought


class Covariance:
    """A covariance in full; ``centers`` are those of the clusters in its coordinates, if known."""

    def __init__(self, S, centers=None):
        self.S, self.centers, self.trace = S, centers, float(np.trace(S))
        self._factor = False

    def __len__(self):
        """Number of columns of the data."""
        return len(self.S)

    def __matmul__(self, B):
        return self.S @ B

    @property
    def factor(self):
        """The Cholesky factor, None if there is none."""
        if self._factor is False:
            self._factor = cholesky(self.S)
        return self._factor

    def log_determinant(self):
        """The logarithm of the determinant; -inf if the matrix is not positive definite."""
        if self.factor is None:
            return -np.inf
        return 2.0 * float(np.log(self.factor.diagonal()).sum())

    def squares(self, R):
        """Squared lengths r S^-1 r' of rows; the matrix must be positive definite."""
        return np.square(solve_lower(self.factor, R.T)).sum(axis=0)

    def is_below(self, level, e, U):
        """Whether all eigenvalues are below the level, after U diag(e) U' was taken out."""
        A = (U * e) @ U.T - self.S if len(e) else -self.S
        A.flat[:: len(A) + 1] += level
        return is_positive_definite(A)

    def in_full(self):
        """The matrix."""
        return self.S


class LowRankCovariance(Covariance):
    """The covariance diag(D) - N' N."""

    def __init__(self, D, N, centers):
        self.D, self.N, self.centers = D, N, centers
        self.trace = float(D.sum() - np.square(N).sum())
        self._factor = False

    def __len__(self):
        return len(self.D)

    def __matmul__(self, B):
        return self.D[:, None] * B - self.N.T @ (self.N @ B)

    @property
    def factor(self):
        """The Cholesky factor of I - N D^-1 N', None if there is none."""
        if self._factor is False:
            self._factor = None
            # eigenvalues ascend: if the first is positive, D has an inverse
            if self.D[0] > 0.0:
                small = -((self.N / self.D) @ self.N.T)
                small.flat[:: len(small) + 1] += 1.0
                self._factor = cholesky(small)
        return self._factor

    def log_determinant(self):
        """The logarithm of the determinant; -inf if the matrix is not positive definite."""
        return super().log_determinant() + (
            0.0 if self.factor is None else float(np.log(self.D).sum())
        )

    def squares(self, R):
        """Squared lengths r S^-1 r' of rows; the matrix must be positive definite."""
        # Woodbury: r D^-1 r' + (N D^-1 r')' (I - N D^-1 N')^-1 (N D^-1 r')
        scaled = R / self.D
        return (R * scaled).sum(axis=1) + super().squares(scaled @ self.N.T)

    def is_below(self, level, e, U):
        """Whether all eigenvalues are below the level, after U diag(e) U' was taken out."""
        # level I - S + U diag(e) U' = E + P' P with E = level - D, see the head of the module
        E = level - self.D
        if not E.all():
            return False
        P = np.vstack([self.N, (U * np.sqrt(e)).T]) if len(e) else self.N
        small = (P / E) @ P.T
        small.flat[:: len(small) + 1] += 1.0
        return int((all_pairs(small)[0] < 0.0).sum()) == int((E < 0.0).sum())

    def in_subspace(self, m):
        """Approximate eigenpairs, falling: the Rayleigh-Ritz values and vectors of a subspace.

        It has the m axes of the largest D, and in all other axes, with the parts T of D and M of N,
        the Krylov space M', T M', since an eigenvector of an eigenvalue e above T is there
        (e I - T)^-1 M' y, for some y. Returned are the values, an orthonormal basis of the Krylov
        space, in columns, and the vectors by their coordinates along the m axes and this basis.
        """
        split = len(self.D) - m
        T, M = self.D[:split, None], self.N[:, :split]
        blocks = [M.T]
        for _ in range(KRYLOV - 1):
            blocks.append(T * blocks[-1])
        basis = np.linalg.qr(np.hstack(blocks))[0]
        N = np.hstack([self.N[:, split:], M @ basis])
        A = -(N.T @ N)
        A[m:, m:] += basis.T @ (T * basis)
        A.flat[: m * (len(A) + 1) : len(A) + 1] += self.D[split:]
        e, rotation = all_pairs(A)
        return e[::-1], basis, rotation[:, ::-1]

    def in_full(self):
        """The matrix."""
        S = -(self.N.T @ self.N)
        S.flat[:: len(S) + 1] += self.D
        return S
