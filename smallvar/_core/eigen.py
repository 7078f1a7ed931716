"""Eigenpairs above a threshold, and how they are rounded to labels."""

import inspect
from collections import namedtuple

import numpy as np
from scipy.linalg import LinAlgError
from scipy.sparse import csr_array, issparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigsh
from sklearn.utils import check_random_state

from smallvar._core.groups import first_appearance
from smallvar._core.krylov import LEAST_KRYLOV_ROWS, KrylovSpace
from smallvar._core.lapack import eigh, stoppable

DENSE_SOLVED_ROWS = 400  # rows up to which a dense solver is as fast as Lanczos
JOINT_COMPONENT_ROWS = 16  # rows up to which components are solved together
ZERO_ROW = 1e-10  # of the longest row of Y, or the largest singular value: less counts as zero
TIED = 1e-9  # absolute: products of rows of length 1 that differ by less tie; the first is taken
EQUAL_ENTRIES = 1e-6  # relative: entries of a vector that differ by less are equal
LEAST_GAIN = 1e-12  # of the sum of weights: an iteration that gains no more ends the rounding
SOLVED = 40  # bytes for each entry of a matrix that is made dense to be solved
ROUNDS = 1000  # largest number of iterations of a start; it rarely takes 50
SEEDED = "rng" in inspect.signature(eigsh).parameters  # eigsh of newer scipy takes a generator


class RoundedLabels(namedtuple("RoundedLabels", "objective labels extra")):
    """Labels that eigenvectors were rounded to, their objective, and any data of the caller."""

    @property
    def k(self):
        """Number of clusters."""
        return int(self.labels.max()) + 1


def eigen_above(K, threshold, random_state, *, least=0, max_memory=np.inf):
    """All eigenpairs of a symmetric K whose eigenvalue exceeds ``threshold``, copies included.

    ``K`` is a dense array or a ``KrylovSpace`` of one, a sparse one, or has ``shape`` and
    ``product(B)`` or ``K @ B``. At least the ``least`` largest are returned, even when below.
    Values fall, vectors (n, m) are orthonormal and have their largest entry positive. What is not
    dense is made so only within ``max_memory`` bytes.
    """
    n, rng = K.shape[0], check_random_state(random_state)
    least = min(least, n)
    if isinstance(K, np.ndarray) and n > LEAST_KRYLOV_ROWS:
        K = KrylovSpace(K)
    if isinstance(K, KrylovSpace):
        values, vectors = K.largest(threshold, least) or _dense(K.G, threshold, least)
    elif isinstance(K, np.ndarray):
        values, vectors = _dense(K, threshold, least)
    elif issparse(K):
        values, vectors = _by_component(csr_array(K), threshold, rng, least, max_memory)
    else:
        product = K.product if hasattr(K, "product") else lambda B: K @ B
        values, vectors = _implicit(product, n, threshold, rng, least, max_memory)
    order = np.argsort(-values, kind="stable")
    order = order[: max(np.count_nonzero(values > threshold), least)]
    values, vectors = values[order], vectors[:, order]
    # entries of equal size differ by rounding: the first of them decides the sign
    size = np.abs(vectors)
    first = (size >= (1 - EQUAL_ENTRIES) * size.max(axis=0, initial=0)).argmax(axis=0)
    return values, vectors * np.where(vectors[first, np.arange(len(order))] < 0, -1.0, 1.0)


def _dense(K, threshold, least):
    """Eigenpairs above the threshold, at least the ``least`` largest, in any order."""
    n = K.shape[0]
    if threshold < np.inf:
        try:
            values, vectors = eigh(K, above=threshold)
        except LinAlgError:  # inverse iteration may fail; divide and conquer does not
            return stoppable(np.linalg.eigh, K)
        if len(values) >= least:
            return values, vectors
    if not least:
        return np.empty(0), np.empty((n, 0))
    return eigh(K, largest=least)


def _by_component(K, threshold, rng, least, max_memory):
    """Eigenpairs of a sparse K above the threshold, one connected component at a time."""
    component = connected_components(K, directed=False)[1]
    order = np.argsort(component, kind="stable")
    K = K[order][:, order]
    size = np.bincount(component)
    start = np.append(0, np.cumsum(size))
    # for each size of components: eigenvalues, eigenvectors, the component of each, and the first
    # rows of the components
    pairs = []
    for s in np.unique(size[size <= JOINT_COMPONENT_ROWS]):
        first = start[:-1][size == s]
        rows = first[:, None] + np.arange(s)
        blocks = np.zeros((len(first), s, s))
        part = K[rows.ravel()].tocoo()
        blocks[part.row // s, part.row % s, part.col - first[part.row // s]] = part.data
        values, vectors = np.linalg.eigh(blocks)
        keep = (values > threshold) | (np.arange(s) >= s - least)
        pairs.append((values[keep], vectors.transpose(0, 2, 1)[keep], np.nonzero(keep)[0], first))
    for c in np.flatnonzero(size > JOINT_COMPONENT_ROWS):
        a, b = start[c], start[c + 1]
        part = slice(K.indptr[a], K.indptr[b])
        block = csr_array(
            (K.data[part], K.indices[part] - a, K.indptr[a : b + 1] - K.indptr[a]), (b - a, b - a)
        )
        if b - a <= DENSE_SOLVED_ROWS:
            values, vectors = _dense(block.toarray(), threshold, min(least, b - a))
        else:
            norm = np.abs(block).sum(axis=1).max()
            values, vectors = lanczos(
                block.dot, b - a, norm, threshold, rng, least, max_memory=max_memory
            )
        pairs.append((values, vectors.T, np.zeros(len(values), dtype=int), np.array([a])))
    values = np.concatenate([values for values, *_ in pairs])
    out = np.zeros((K.shape[0], len(values)))
    done = 0
    for _, vectors, block, first in pairs:
        m, s = vectors.shape
        rows = order[first[block][:, None] + np.arange(s)]
        out[rows, np.arange(done, done + m)[:, None]] = vectors
        done += m
    return values, out


def _implicit(product, n, threshold, rng, least, max_memory):
    """Eigenpairs above the threshold of a K that is given by its products with vectors."""
    if n <= DENSE_SOLVED_ROWS:
        K = product(np.eye(n))
        return _dense((K + K.T) / 2, threshold, least)
    B = rng.standard_normal((n, 4))
    for _ in range(10):
        B = product(np.linalg.qr(B)[0])
    norm = 2 * np.linalg.norm(B, 2)
    return lanczos(product, n, norm, threshold, rng, least, max_memory=max_memory)


def lanczos(product, n, norm, threshold, rng, least=0, basis=None, max_memory=np.inf):
    """Eigenpairs above the threshold by Lanczos runs, each orthogonal to the eigenvectors so far.

    At least the ``least`` largest are returned. A run finds one vector of each eigenspace only, so
    multiple eigenvalues take several runs. The last run starts from a random vector, too, and finds
    no eigenvalue above the threshold. ``product(v)`` is K v. ``basis`` are orthonormal eigenvectors
    found before. No eigenvalue exceeds ``norm`` in absolute value.
    """
    Q = np.empty((n, 0)) if basis is None else basis
    if norm == 0 and threshold >= 0:  # K = 0
        return np.zeros(least), np.eye(n, least)
    # eigenpairs of the next run, and the least number of its Lanczos vectors; where so many are
    # wanted that Lanczos does not pay, a dense solver follows below
    k, n_vectors = least + 6, 20
    while 8 * (Q.shape[1] + k) < n and threshold > -norm:
        # eigenvalues of K + 2 norm lie above norm: those of Q are out of the way at 0, and
        # ARPACK's test, relative to the eigenvalue, does not ask for the impossible near 0
        def rest(v, Q=Q):
            v = v.reshape(n)
            v = v - Q @ (Q.T @ v)
            v = product(v) + 2 * norm * v
            return v - Q @ (Q.T @ v)

        try:
            values, vectors = eigsh(
                LinearOperator((n, n), matvec=rest, dtype=np.float64),
                k,
                which="LA",
                v0=rest(rng.standard_normal(n)),
                ncv=min(n, max(n_vectors, 2 * k + 1)),
                **({"rng": int(rng.randint(2**31 - 1))} if SEEDED else {}),
            )
            complete = True
        except ArpackNoConvergence as partial:
            values, vectors, complete = partial.eigenvalues, partial.eigenvectors, False
            n_vectors *= 4
        except ArpackError:
            break
        values = values - 2 * norm
        wanted = min(least - Q.shape[1], len(values))
        if complete and wanted > 0:  # at least so many are as large as the last of these
            threshold = min(threshold, np.nextafter(np.sort(values)[-wanted], -np.inf))
        take = values > threshold
        if complete and not take.any():  # none is left: eigenpairs of K in the space of Q
            Q = np.linalg.qr(Q)[0]
            H = Q.T @ product(Q)
            values, rotation = eigh((H + H.T) / 2)
            return values, Q @ rotation
        if n_vectors > n:
            break
        Q = np.linalg.qr(np.column_stack([Q, vectors[:, take]]))[0]
        if complete:  # more may follow if all were above the threshold; else few are left
            k = 2 * k if take.all() else max(2, least - Q.shape[1])
    if SOLVED * n * n > max_memory:
        which = f"above {threshold:.3g}" if threshold < np.inf else f"up to the {least}th"
        raise ValueError(
            f"max_memory must be at least {SOLVED * n * n:.3g} for all eigenvalues {which} of "
            f"{n} rows, too many for a sparse solver, got {max_memory:.3g}: take a larger lam or "
            "fewer clusters, or allow more"
        )
    K = product(np.eye(n))
    return _dense((K + K.T) / 2, threshold, least)


def unit_rows(Y):
    """The rows of Y at length 1; a row of zeros gets equal entries, at equal angles to all axes."""
    length = np.linalg.norm(Y, axis=1)
    zero = length <= ZERO_ROW * length.max(initial=0)
    rows = np.where(zero[:, None], 1.0, Y)
    return rows / np.where(zero, np.sqrt(max(1, Y.shape[1])), length)[:, None]


def yu_shi(Y, random_state, n_init):
    """Label vectors of ``n_init`` starts of Yu and Shi's rounding of the columns of Y.

    The first start begins with row 0, the others with random rows. Labels (int32) are numbered by
    first appearance.
    """
    for labels, _ in yu_shi_rounds(unit_rows(Y), check_random_state(random_state), n_init, None):
        yield labels


def yu_shi_rounds(Y, rng, n_init, weight):
    """Labels and the number of iterations of each start; the rows of Y have length 1.

    The rounding finds an orthogonal matrix R and an indicator matrix X of labels with the least
    ||X - Y R||^2, rows weighted (None: by 1), by turns: labels for R, then R for the labels.
    """
    n, m = Y.shape
    weight = np.ones(n) if weight is None else weight
    cumulative_weight = np.cumsum(weight)
    for start in range(n_init):
        row = 0
        if start:
            drawn = rng.random_sample() * cumulative_weight[-1]
            row = min(np.searchsorted(cumulative_weight, drawn, side="right"), n - 1)
        R, overlap = np.empty((m, m)), np.zeros(n)
        for c in range(m):  # the columns of R: rows of Y, each most orthogonal to those before
            R[:, c] = Y[row]
            overlap += np.abs(Y @ R[:, c])
            row = np.argmax(overlap <= overlap.min() + TIED)
        best, labels, n_iter = -np.inf, np.zeros(n, dtype=np.int32), 0
        while m and n_iter < ROUNDS:
            rotated = Y @ R
            new = np.argmax(rotated >= rotated.max(axis=1, keepdims=True) - TIED, axis=1)
            # ||X - Y R||^2 = 2 (sum of weights) - 2 tr(X' W Y R): the best R makes it sum(S)
            X = csr_array((weight, new, np.arange(n + 1)), (n, m))
            U, S, Vt = np.linalg.svd(X.T @ Y)
            U[:, ZERO_ROW * S[0] >= S] = 0.0  # a label without rows leaves its column of R free
            n_iter += 1
            if not S.sum() > best + LEAST_GAIN * cumulative_weight[-1]:
                break
            best, labels, R = S.sum(), new, Vt.T @ U.T
        yield first_appearance(labels), n_iter
