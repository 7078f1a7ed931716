"""The matrix G = W^1/2 K W^1/2 of the spectral relaxation (KJ12, section 5.1), in three forms.

``GramProblem`` has K, ``BlockProblem`` computes products with a K that does not fit in memory, and
``LinearProblem`` has X for K = X X'. W are the weights of the rows.
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


class Problem:
    """Base of the three forms, for rows of these weights.

    All have ``trace``, ``centered_trace`` (traces of G and of the centered G) and ``scale``, which
    rounding errors of the objective are relative to; ``eigen``, eigenpairs of G above ``lam``, at
    least ``least`` of the largest; ``centered_values``, eigenvalues of the centered G above
    ``lam``, from the eigenpairs of G; and ``error``, the squared error of labels.

    The centered G is P G P with P = I - u u', where u is W^1/2 1 scaled to length 1: subtracting
    the weighted mean of the rows is W^1/2 (I - 1 w'/s) W^-1/2 = P.
    """

    def __init__(self, weight, max_memory):
        self.n, self.weight, self.max_memory = len(weight), weight, max_memory
        self.root = np.sqrt(weight)
        self.u = self.root / np.linalg.norm(self.root)

    def project(self, B):
        """The product P B."""
        return B - np.multiply.outer(self.u, self.u @ B)

    def farthest_first(self, guess):
        """Penalty of the farthest-first rule for ``guess`` clusters, by the kernel; no weights."""
        diagonal, distances = self.diagonal, self.distances_to_mean()

        def to_row(j):
            return diagonal - 2 * self.row(j) + diagonal[j]

        return farthest_by(distances, to_row, guess, EQUAL_VALUES * np.abs(diagonal).max()) or 1.0

    def distances_to_mean(self):
        """Squared distances of rows from the mean: K_jj - 2 (mean of row j) + (mean of all)."""
        mean = self.row_means()
        return self.diagonal - 2 * mean + mean.mean()

    def eigen_of(self, G, lam, rng, least=0):
        """Eigenpairs of another matrix G."""
        return eigen_above(G, lam, rng, least=least, max_memory=self.max_memory)


class GramProblem(Problem):
    """G = W^1/2 K W^1/2 for a dense or sparse K in memory.

    The centered G is computed as G - u h' - h u' with h = G u - (u' G u / 2) u.
    """

    def __init__(self, K, weight, max_memory):
        super().__init__(weight, max_memory)
        self.K, self.diagonal = K, K.diagonal()
        G = K if (weight == 1.0).all() else (K * self.root).T * self.root
        self.G = self.solver_matrix = csr_array(G) if issparse(K) else G
        if not issparse(K) and self.n > LEAST_KRYLOV_ROWS:
            self.solver_matrix = KrylovSpace(G, self.u)
        Gu = self.G @ self.u
        self.h = Gu - self.u * (self.u @ Gu / 2)
        diagonal = self.G.diagonal()
        self.trace = diagonal.sum()
        self.centered_trace = (diagonal - 2 * self.u * self.h).sum()
        self.scale = abs(diagonal).sum()

    def row_means(self):
        return np.asarray(self.K.sum(axis=0)).ravel() / self.n

    def row(self, j):
        return self.K[[j]].toarray().ravel() if issparse(self.K) else self.K[j]

    def eigen(self, lam, rng, least=0):
        return self.eigen_of(self.solver_matrix, lam, rng, least)

    def centered_values(self, lam, rng, values, Y):
        G, u = self.G, self.u
        # None: a dense solver is needed, for instance as too many eigenvalues exceed lam
        if isinstance(self.solver_matrix, KrylovSpace):
            krylov_values = self.solver_matrix.largest(lam, without_first=True)
            if krylov_values is not None:
                return krylov_values[0]
        if not issparse(G):
            uh = np.outer(u, self.h)
            values = eigenvalues(G - uh - uh.T)
            return values[values > lam]

        def product(B):
            return self.project(G @ self.project(B))

        if self.n <= DENSE_SOLVED_ROWS:
            return eigen_above(product(np.eye(self.n)), lam, rng)[0]
        # The part of an eigenspace of G that is orthogonal to u is in an eigenspace of P G P. So m
        # eigenvectors of G with the same eigenvalue give m - 1 known eigenvectors of P G P.
        norm, bases = abs(G).sum(axis=1).max(), [np.empty((self.n, 0))]
        ends = np.flatnonzero(np.diff(values) < -EQUAL_VALUES * norm) + 1
        for vectors in np.split(Y, ends, axis=1):
            component = vectors.T @ u
            if len(component) > 1 and np.linalg.norm(component) > EQUAL_VALUES:
                rotation = np.linalg.qr(component[:, None], mode="complete")[0]
                bases.append(vectors @ rotation[:, 1:])
        options = {"basis": np.hstack(bases), "max_memory": self.max_memory}
        return lanczos(product, self.n, norm, lam, rng, **options)[0]

    def error(self, labels):
        """tr K - tr V' K V for the normalized indicator V of the labels."""
        v = np.sqrt(self.weight / np.bincount(labels, self.weight)[labels])
        if issparse(self.G):
            G = self.G.tocoo()
            within = labels[G.row] == labels[G.col]
            return self.trace - (G.data * v[G.row] * v[G.col])[within].sum()
        Vt = csr_array((v, labels, np.arange(self.n + 1))).T
        # member_sums[i] = sum over j in the cluster of i of (centered G)_ij v_j
        member_sums = (Vt @ self.G)[labels, np.arange(self.n)]
        member_sums -= (Vt @ self.u)[labels] * self.h + (Vt @ self.h)[labels] * self.u
        return self.centered_trace - member_sums @ v

    def squared_norms(self, M):
        """Squared norms, in feature space, of the means that the columns of M form: diag(M' K M).

        M is from ``weighted_means``.
        """
        return np.asarray(((M.T @ self.K) * M.T).sum(axis=1)).ravel()


class BlockProblem(Problem):
    """G = W^1/2 K W^1/2 for a ``Gram`` that is too large for a dense solver, by products with K."""

    def __init__(self, gram, weight, max_memory):
        super().__init__(weight, max_memory)
        self.gram, self.diagonal = gram, gram.diagonal
        self.trace = weight @ gram.diagonal
        self.centered_trace = self.trace - self.u @ self._product(self.u)
        self.scale = weight @ np.abs(gram.diagonal)

    def _product(self, B):
        return ((self.gram @ (B.T * self.root).T).T * self.root).T

    def row_means(self):
        return self.gram @ np.ones(self.n) / self.n

    def row(self, j):
        return self.gram.rows(np.array([j]))[0]

    def eigen(self, lam, rng, least=0):
        return self.eigen_of(symmetric(self.n, self._product), lam, rng, least)

    def centered_values(self, lam, rng, values, Y):
        def product(B):
            return self.project(self._product(self.project(B)))

        return self.eigen_of(symmetric(self.n, product), lam, rng)[0]

    def error(self, labels):
        V = np.zeros((self.n, int(labels.max()) + 1))
        V[np.arange(self.n), labels] = np.sqrt(
            self.weight / np.bincount(labels, self.weight)[labels]
        )
        V -= np.outer(self.u, self.u @ V)
        return self.centered_trace - (V * self._product(V)).sum()

    def squared_norms(self, M):
        M = M.toarray()
        return (M * (self.gram @ M)).sum(axis=0)


class LinearProblem(Problem):
    """G = W^1/2 X X' W^1/2 for dense or sparse X; K = X X' is never formed.

    Squared singular values of W^1/2 X are eigenvalues of G.
    """

    def __init__(self, X, weight, max_memory):
        super().__init__(weight, max_memory)
        self.X = csr_array(X) if issparse(X) else X.astype(np.float64, copy=False)
        mean = weight @ self.X / weight.sum()
        if issparse(X):
            self.diagonal = np.asarray(self.X.multiply(self.X).sum(axis=1)).ravel()
            self.trace = weight @ self.diagonal
            self.centered_trace = self.trace - weight.sum() * (mean @ mean)
        else:
            self.centered = self.X - mean
            self.trace = weight @ np.square(self.X).sum(axis=1)
            self.centered_trace = weight @ np.square(self.centered).sum(axis=1)
        self.scale = self.centered_trace

    def farthest_first(self, guess):
        """Penalty of the farthest-first rule for so many clusters, by Euclidean distances."""
        if not issparse(self.X):
            return farthest_first(self.X, guess, None, resolve_threads(None))
        return super().farthest_first(guess)

    def distances_to_mean(self):
        mean = self.X.mean(axis=0)
        return self.diagonal - 2 * (self.X @ mean) + mean @ mean

    def row(self, j):
        return (self.X @ self.X[[j]].T).toarray().ravel()

    def eigen(self, lam, rng, least=0):
        if not issparse(self.X):
            U, s, _ = svd(self.root[:, None] * self.X, full_matrices=False)
            keep = (s * s > lam) | (np.arange(len(s)) < least)
            return s[keep] ** 2, U[:, keep]
        factor = csr_array(self.X * self.root[:, None])
        values, vectors = self.eigen_of(smaller_square(factor), lam, rng, least)
        if factor.shape[1] < factor.shape[0]:  # eigenvectors of F' F; those of F F' are F v
            vectors = np.linalg.qr(factor @ vectors)[0]
        return values, vectors

    def centered_values(self, lam, rng, values, Y):
        if not issparse(self.X):
            values = svd(self.root[:, None] * self.centered, compute_uv=False) ** 2
            return values[values > lam]
        factor = csr_array(self.X * self.root[:, None])
        return self.eigen_of(smaller_square(factor, self.project), lam, rng)[0]

    def error(self, labels):
        M = weighted_means(labels, self.weight)
        if issparse(self.X):
            squares = csr_array(M.T @ self.X)
            squares = np.asarray(squares.multiply(squares).sum(axis=1)).ravel()
            return self.trace - np.bincount(labels, self.weight) @ squares
        residual = self.centered - (M.T @ self.centered)[labels]
        return self.weight @ np.square(residual).sum(axis=1)


def smaller_square(factor, project=lambda B: B):
    """F F' or F' F of a factor F, whichever is smaller; of P F if ``project`` returns P B."""
    n, d = factor.shape
    if d < n:
        return symmetric(d, lambda B: factor.T @ project(factor @ B))
    return symmetric(n, lambda B: project(factor @ (factor.T @ project(B))))
