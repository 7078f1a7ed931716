"""The matrix W^1/2 K W^1/2 that SpectralDPMeans relaxes, in three forms.

Each has ``n``, ``trace``, ``centered_trace`` and ``scale`` (what rounding errors of the objective
are measured by), and ``farthest_first(guess)``, ``eigen(lam, rng, least)``, ``centered_values(lam,
rng, values, Y)``, ``error(labels)``; those of a kernel also ``means(M)``.
"""

from collections import namedtuple

import numpy as np
from scipy.sparse import csr_array, issparse

from smallvar._core.config import resolve_threads
from smallvar._core.eigen import DENSE, eigen_above, lanczos
from smallvar._core.krylov import LEAST_ROWS, KrylovSpace
from smallvar._core.lapack import stoppable_if_large, svd
from smallvar._selection.penalty import among, farthest_by, farthest_first

DENSE_SOLVER = 48  # bytes that a dense solver takes for each entry of the matrix
EQUAL = 1e-12  # of the largest: eigenvalues, distances, objectives that differ by less tie

Implicit = namedtuple("Implicit", "shape product")


def weighted_means(labels, weight):
    """The matrix (n, K) that makes of K or X its (weighted) cluster means."""
    mass = np.bincount(labels, weight)
    return csr_array((weight / mass[labels], labels, np.arange(len(labels) + 1)))


class GramProblem:
    """W^1/2 K W^1/2 for a dense or sparse K; P K P with P = I - u u' centers it.

    u is W^1/2 1 at length 1: W^1/2 (I - 1 w'/s) W^-1/2 = P. Centered, a matrix G is G - u h' - h u'
    with h = G u - (u' G u / 2) u.
    """

    def __init__(self, K, weight, max_memory):
        self.n, self.weight, self.K, self.max_memory = K.shape[0], weight, K, max_memory
        root = np.sqrt(weight)
        self.u = root / np.linalg.norm(root)
        self.weighted = K if (weight == 1.0).all() else (K * root).T * root
        if issparse(K):
            self.weighted = csr_array(self.weighted)
        self.form = self.weighted  # what is solved
        if not issparse(K) and self.n > LEAST_ROWS:
            self.form = KrylovSpace(self.weighted, self.u)
        Gu = self.weighted @ self.u
        self.h = Gu - self.u * (self.u @ Gu / 2)
        diagonal = self.weighted.diagonal()
        self.trace = diagonal.sum()
        self.centered_trace = (diagonal - 2 * self.u * self.h).sum()
        self.scale = abs(diagonal).sum()

    def farthest_first(self, guess):
        K, diagonal, n = self.K, self.K.diagonal(), self.n
        mean = np.asarray(K.sum(axis=0)).ravel() / n
        return _farthest_first(
            diagonal,
            diagonal - 2 * mean + mean.mean(),
            lambda j: K[[j]].toarray().ravel() if issparse(K) else K[j],
            guess,
        )

    def eigen(self, lam, rng, least=0):
        return eigen_above(self.form, lam, rng, least=least, max_memory=self.max_memory)

    def centered_values(self, lam, rng, values, Y):
        K, u = self.weighted, self.u
        if isinstance(self.form, KrylovSpace):
            found = self.form.largest(lam, without_first=True)
            if found is not None:
                return found[0]
        if not issparse(K):
            uh = np.outer(u, self.h)
            values = stoppable_if_large(np.linalg.eigvalsh, K - uh - uh.T)
            return values[values > lam]

        def product(B):
            B = K @ (B - np.multiply.outer(u, u @ B))
            return B - np.multiply.outer(u, u @ B)

        if self.n <= DENSE:
            return eigen_above(product(np.eye(self.n)), lam, rng)[0]
        # what an eigenspace of K has in common with the complement of u is an eigenspace of P K P
        norm, known = abs(K).sum(axis=1).max(), [np.empty((self.n, 0))]
        for part in np.split(
            np.arange(len(values)), np.flatnonzero(np.diff(values) < -EQUAL * norm) + 1
        ):
            along = Y[:, part].T @ u
            if len(part) > 1 and np.linalg.norm(along) > EQUAL:
                known.append(Y[:, part] @ np.linalg.qr(along[:, None], mode="complete")[0][:, 1:])
        known = np.hstack(known)
        return lanczos(product, self.n, norm, lam, rng, known=known, max_memory=self.max_memory)[0]

    def error(self, labels):
        """tr K - tr V' K V for the normalized indicator V of the labels."""
        v = np.sqrt(self.weight / np.bincount(labels, self.weight)[labels])
        if issparse(self.K):
            K = self.weighted.tocoo()
            same = labels[K.row] == labels[K.col]
            return self.trace - (K.data * v[K.row] * v[K.col])[same].sum()
        Vt = csr_array((v, labels, np.arange(self.n + 1))).T
        own = (Vt @ self.weighted)[labels, np.arange(self.n)]
        own -= (Vt @ self.u)[labels] * self.h + (Vt @ self.h)[labels] * self.u
        return self.centered_trace - own @ v

    def means(self, M):
        """The squared norms of means, columns of M."""
        return np.asarray(((M.T @ self.K) * M.T).sum(axis=1)).ravel()


class BlockProblem:
    """The same for a ``Gram`` that is too large for a dense solver, by its products alone."""

    def __init__(self, gram, weight, max_memory):
        self.n, self.weight, self.gram, self.max_memory = len(weight), weight, gram, max_memory
        self.root = np.sqrt(weight)
        self.u = self.root / np.linalg.norm(self.root)
        self.trace = weight @ gram.diagonal
        self.centered_trace = self.trace - self.u @ self._product(self.u)
        self.scale = weight @ np.abs(gram.diagonal)

    def _product(self, B):
        return (self.gram.product((B.T * self.root).T).T * self.root).T

    def _centered(self, B):
        B = self._product(B - np.multiply.outer(self.u, self.u @ B))
        return B - np.multiply.outer(self.u, self.u @ B)

    def farthest_first(self, guess):
        gram, n = self.gram, self.n
        mean = gram.product(np.ones(n)) / n
        return _farthest_first(
            gram.diagonal,
            gram.diagonal - 2 * mean + mean.mean(),
            lambda j: gram.rows(np.array([j]))[0],
            guess,
        )

    def eigen(self, lam, rng, least=0):
        G = Implicit((self.n, self.n), self._product)
        return eigen_above(G, lam, rng, least=least, max_memory=self.max_memory)

    def centered_values(self, lam, rng, values, Y):
        G = Implicit((self.n, self.n), self._centered)
        return eigen_above(G, lam, rng, max_memory=self.max_memory)[0]

    def error(self, labels):
        v = np.sqrt(self.weight / np.bincount(labels, self.weight)[labels])
        V = np.zeros((self.n, int(labels.max()) + 1))
        V[np.arange(self.n), labels] = v
        V -= np.outer(self.u, self.u @ V)
        return self.centered_trace - (V * self._product(V)).sum()

    def means(self, M):
        M = M.toarray()
        return (M * self.gram.product(M)).sum(axis=0)


class LinearProblem:
    """The same for K = X X', of which only X is held, dense or sparse."""

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
        F = csr_array(self.X * root)
        values, vectors = eigen_above(
            self._smaller(F, None), lam, rng, least=least, max_memory=self.max_memory
        )
        if F.shape[1] < F.shape[0]:
            vectors = np.linalg.qr(F @ vectors)[0]
        return values, vectors

    def centered_values(self, lam, rng, values, Y):
        root = np.sqrt(self.weight)
        if not issparse(self.X):
            values = svd(root[:, None] * self.centered, compute_uv=False) ** 2
            return values[values > lam]
        u = root / np.linalg.norm(root)
        F = csr_array(self.X * root[:, None])
        return eigen_above(self._smaller(F, u), lam, rng, max_memory=self.max_memory)[0]

    def _smaller(self, F, u):
        """F F' or F' F, whichever is smaller, with F centered if u is given."""

        def project(B):
            return B if u is None else B - np.multiply.outer(u, u @ B)

        n, d = F.shape
        if d < n:
            return Implicit((d, d), lambda B: F.T @ project(F @ B))
        return Implicit((n, n), lambda B: project(F @ (F.T @ project(B))))

    def error(self, labels):
        M = weighted_means(labels, self.weight)
        if issparse(self.X):
            mass = np.bincount(labels, self.weight)
            means = csr_array(M.T @ self.X)
            return self.trace - mass @ np.asarray(means.multiply(means).sum(axis=1)).ravel()
        residual = self.centered - (M.T @ self.centered)[labels]
        return self.weight @ np.square(residual).sum(axis=1)


def _farthest_first(diagonal, distance, row, guess):
    """The farthest-first rule in feature space; ``distance`` to the mean, ``row(j)`` of K."""
    add_seed = among(distance, lambda j: diagonal - 2 * row(j) + diagonal[j])
    return farthest_by(add_seed, guess, EQUAL * np.abs(diagonal).max()) or 1.0
