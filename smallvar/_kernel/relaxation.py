"""The matrix G = W^1/2 K W^1/2 of the spectral relaxation (KJ12, section 5.1), in three forms.

``GramProblem`` has K, ``BlockProblem`` computes products with a K that does not fit in memory, and
``LinearProblem`` has X for K = X X'. W are the weights of the rows. All have

- ``n``, ``trace``, ``centered_trace`` (traces of G and of the centered G) and ``scale``, which
  rounding errors of the objective are relative to;
- ``farthest_first(guess)``, the penalty of the farthest-first rule in feature space;
- ``eigen(lam, rng, least)``, eigenvalues of G above ``lam``, at least ``least`` of the largest, and
  their eigenvectors;
- ``centered_values(lam, rng, values, Y)``, eigenvalues of the centered G above ``lam``, from the
  eigenpairs of G;
- ``error(labels)``, the squared error of a clustering;
- ``means(M)``, squared norms of the cluster means m_c = sum_i M_ic phi(x_i) in feature space, with
  M from ``weighted_means`` (not ``LinearProblem``).
"""

import numpy as np
from scipy.sparse import csr_array, issparse
from scipy.sparse.linalg import LinearOperator

from smallvar._core.config import resolve_threads
from smallvar._core.linear_algebra import (
    DENSE_SOLVED_ROWS,
    LEAST_KRYLOV_ROWS,
    KrylovSpace,
    eigen_above,
    eigenvalues,
    lanczos,
    svd,
)
from smallvar._selection.penalty import farthest_by, farthest_first

DENSE_SOLVER = 48  # bytes that a dense solver takes for each entry of the matrix
EQUAL_VALUES = 1e-12  # of the largest: eigenvalues, distances, objectives that differ less tie


def symmetric(n, product):
    """A symmetric matrix (n, n) that is known by its products with vectors and matrices."""
    return LinearOperator((n, n), matvec=product, matmat=product, dtype=np.float64)


def weighted_means(labels, weight):
    """Sparse matrix M of shape (n, n_clusters) with M' X the weighted cluster means of rows X."""
    cluster_weight = np.bincount(labels, weight)
    return csr_array((weight / cluster_weight[labels], labels, np.arange(len(labels) + 1)))


class GramProblem:
    """G = W^1/2 K W^1/2 for a dense or sparse K in memory.

    The centered G is P G P with P = I - u u', where u is W^1/2 1 scaled to length 1: subtracting
    the weighted mean of the rows is W^1/2 (I - 1 w'/s) W^-1/2 = P. It is computed as
    G - u h' - h u' with h = G u - (u' G u / 2) u.
    """

    def __init__(self, K, weight, max_memory):
        self.n, self.weight, self.K, self.max_memory = K.shape[0], weight, K, max_memory
        root = np.sqrt(weight)
        self.u = root / np.linalg.norm(root)
        self.weighted = K if (weight == 1.0).all() else (K * root).T * root
        if issparse(K):
            self.weighted = csr_array(self.weighted)
        self.solver_matrix = self.weighted  # passed to the eigensolver
        if not issparse(K) and self.n > LEAST_KRYLOV_ROWS:
            self.solver_matrix = KrylovSpace(self.weighted, self.u)
        Gu = self.weighted @ self.u
        self.h = Gu - self.u * (self.u @ Gu / 2)
        diagonal = self.weighted.diagonal()
        self.trace = diagonal.sum()
        self.centered_trace = (diagonal - 2 * self.u * self.h).sum()
        self.scale = abs(diagonal).sum()

    def farthest_first(self, guess):
        """Penalty of the farthest-first rule for ``guess`` clusters, by the kernel; no weights."""
        K, diagonal, n = self.K, self.K.diagonal(), self.n
        # ||phi(x_j) - mean||^2 = K_jj - 2 (mean of row j) + (mean of all entries)
        mean = np.asarray(K.sum(axis=0)).ravel() / n
        return _farthest_first(
            diagonal,
            diagonal - 2 * mean + mean.mean(),
            lambda j: K[[j]].toarray().ravel() if issparse(K) else K[j],
            guess,
        )

    def eigen(self, lam, rng, least=0):
        return eigen_above(self.solver_matrix, lam, rng, least=least, max_memory=self.max_memory)

    def centered_values(self, lam, rng, values, Y):
        K, u = self.weighted, self.u
        # None: a dense solver is needed, for instance as too many eigenvalues exceed lam
        if isinstance(self.solver_matrix, KrylovSpace):
            krylov_values = self.solver_matrix.largest(lam, without_first=True)
            if krylov_values is not None:
                return krylov_values[0]
        if not issparse(K):
            uh = np.outer(u, self.h)
            values = eigenvalues(K - uh - uh.T)
            return values[values > lam]

        def product(B):
            B = K @ (B - np.multiply.outer(u, u @ B))
            return B - np.multiply.outer(u, u @ B)

        if self.n <= DENSE_SOLVED_ROWS:
            return eigen_above(product(np.eye(self.n)), lam, rng)[0]
        # The part of an eigenspace of G that is orthogonal to u is in an eigenspace of P G P. So m
        # eigenvectors of G with the same eigenvalue give m - 1 known eigenvectors of P G P.
        norm, vectors = abs(K).sum(axis=1).max(), [np.empty((self.n, 0))]
        for members in np.split(
            np.arange(len(values)), np.flatnonzero(np.diff(values) < -EQUAL_VALUES * norm) + 1
        ):
            component = Y[:, members].T @ u
            if len(members) > 1 and np.linalg.norm(component) > EQUAL_VALUES:
                vectors.append(
                    Y[:, members] @ np.linalg.qr(component[:, None], mode="complete")[0][:, 1:]
                )
        vectors = np.hstack(vectors)
        return lanczos(product, self.n, norm, lam, rng, basis=vectors, max_memory=self.max_memory)[
            0
        ]

    def error(self, labels):
        """tr K - tr V' K V for the normalized indicator V of the labels."""
        v = np.sqrt(self.weight / np.bincount(labels, self.weight)[labels])
        if issparse(self.K):
            K = self.weighted.tocoo()
            within = labels[K.row] == labels[K.col]
            return self.trace - (K.data * v[K.row] * v[K.col])[within].sum()
        Vt = csr_array((v, labels, np.arange(self.n + 1))).T
        # member_sums[i] = sum over j in the cluster of i of (centered G)_ij v_j
        member_sums = (Vt @ self.weighted)[labels, np.arange(self.n)]
        member_sums -= (Vt @ self.u)[labels] * self.h + (Vt @ self.h)[labels] * self.u
        return self.centered_trace - member_sums @ v

    def means(self, M):
        """Squared norms, in feature space, of the means that the columns of M form: diag(M' K M).

        M is from ``weighted_means``.
        """
        return np.asarray(((M.T @ self.K) * M.T).sum(axis=1)).ravel()


class BlockProblem:
    """G = W^1/2 K W^1/2 for a ``Gram`` that is too large for a dense solver, by products with K."""

    def __init__(self, gram, weight, max_memory):
        self.n, self.weight, self.gram, self.max_memory = len(weight), weight, gram, max_memory
        self.root = np.sqrt(weight)
        self.u = self.root / np.linalg.norm(self.root)
        self.trace = weight @ gram.diagonal
        self.centered_trace = self.trace - self.u @ self._product(self.u)
        self.scale = weight @ np.abs(gram.diagonal)

    def _product(self, B):
        return ((self.gram @ (B.T * self.root).T).T * self.root).T

    def _centered(self, B):
        B = self._product(B - np.multiply.outer(self.u, self.u @ B))
        return B - np.multiply.outer(self.u, self.u @ B)

    def farthest_first(self, guess):
        """Penalty of the farthest-first rule for so many clusters, by distances of the kernel."""
        gram, n = self.gram, self.n  # squared distances from the mean as for a matrix
        mean = gram @ np.ones(n) / n
        return _farthest_first(
            gram.diagonal,
            gram.diagonal - 2 * mean + mean.mean(),
            lambda j: gram.rows(np.array([j]))[0],
            guess,
        )

    def eigen(self, lam, rng, least=0):
        G = symmetric(self.n, self._product)
        return eigen_above(G, lam, rng, least=least, max_memory=self.max_memory)

    def centered_values(self, lam, rng, values, Y):
        G = symmetric(self.n, self._centered)
        return eigen_above(G, lam, rng, max_memory=self.max_memory)[0]

    def error(self, labels):
        v = np.sqrt(self.weight / np.bincount(labels, self.weight)[labels])
        V = np.zeros((self.n, int(labels.max()) + 1))
        V[np.arange(self.n), labels] = v
        V -= np.outer(self.u, self.u @ V)
        return self.centered_trace - (V * self._product(V)).sum()

    def means(self, M):
        M = M.toarray()
        return (M * (self.gram @ M)).sum(axis=0)


class LinearProblem:
    """G = W^1/2 X X' W^1/2 for dense or sparse X; K = X X' is never formed.

    Squared singular values of W^1/2 X are eigenvalues of G.
    """

    def __init__(self, X, weight, max_memory):
        self.n, self.weight, self.max_memory = X.shape[0], weight, max_memory
        self.X = csr_array(X) if issparse(X) else X.astype(np.float64, copy=False)
        self.mean = weight @ self.X / weight.sum()
        if issparse(X):
            self.square = np.asarray(self.X.multiply(self.X).sum(axis=1)).ravel()
            self.trace = weight @ self.square
            self.centered_trace = self.trace - weight.sum() * (self.mean @ self.mean)
        else:
            self.centered = self.X - self.mean
            self.trace = weight @ np.square(self.X).sum(axis=1)
            self.centered_trace = weight @ np.square(self.centered).sum(axis=1)
        self.scale = self.centered_trace

    def farthest_first(self, guess):
        """Penalty of the farthest-first rule for so many clusters, by Euclidean distances."""
        X = self.X
        if not issparse(X):
            return farthest_first(X, guess, None, resolve_threads(None))
        mean = X.mean(axis=0)
        return _farthest_first(
            self.square,
            self.square - 2 * (X @ mean) + mean @ mean,
            lambda j: (X @ X[[j]].T).toarray().ravel(),
            guess,
        )

    def eigen(self, lam, rng, least=0):
        root = np.sqrt(self.weight)[:, None]
        if not issparse(self.X):
            U, s, _ = svd(root * self.X, full_matrices=False)
            keep = (s * s > lam) | (np.arange(len(s)) < least)
            return s[keep] ** 2, U[:, keep]
        factor = csr_array(self.X * root)
        values, vectors = eigen_above(
            self._smaller(factor, None), lam, rng, least=least, max_memory=self.max_memory
        )
        if factor.shape[1] < factor.shape[0]:  # eigenvectors of F' F; those of F F' are F v
            vectors = np.linalg.qr(factor @ vectors)[0]
        return values, vectors

    def centered_values(self, lam, rng, values, Y):
        root = np.sqrt(self.weight)
        if not issparse(self.X):
            values = svd(root[:, None] * self.centered, compute_uv=False) ** 2
            return values[values > lam]
        u = root / np.linalg.norm(root)
        factor = csr_array(self.X * root[:, None])
        return eigen_above(self._smaller(factor, u), lam, rng, max_memory=self.max_memory)[0]

    def _smaller(self, factor, u):
        """F F' or F' F of a factor F, whichever is smaller; of P F in place of F if u is given."""

        def project(B):
            return B if u is None else B - np.multiply.outer(u, u @ B)

        n, d = factor.shape
        if d < n:
            return symmetric(d, lambda B: factor.T @ project(factor @ B))
        return symmetric(n, lambda B: project(factor @ (factor.T @ project(B))))

    def error(self, labels):
        M = weighted_means(labels, self.weight)
        if issparse(self.X):
            cluster_weight = np.bincount(labels, self.weight)
            means = csr_array(M.T @ self.X)
            return (
                self.trace - cluster_weight @ np.asarray(means.multiply(means).sum(axis=1)).ravel()
            )
        residual = self.centered - (M.T @ self.centered)[labels]
        return self.weight @ np.square(residual).sum(axis=1)


def _farthest_first(diagonal, distance, row, guess):
    """Penalty of the farthest-first rule in feature space.

    ``diagonal`` is that of K, ``distance`` are squared distances from the mean, ``row(j)`` is row j
    of K.
    """
    to_rows = distance, lambda j: diagonal - 2 * row(j) + diagonal[j]
    return farthest_by(*to_rows, guess, EQUAL_VALUES * np.abs(diagonal).max()) or 1.0
