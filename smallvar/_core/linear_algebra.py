"""Eigenpairs and other linear algebra of dense and sparse matrices.

In this order: calls of LAPACK that Ctrl-C can interrupt; ``KrylovSpace``, the largest eigenpairs of
a large dense matrix, with a proof that none is missing; ``eigen_above``, all eigenpairs above a
threshold, of any matrix; and ``yu_shi``, which rounds eigenvectors to labels.
"""

import _thread
import ctypes
import inspect
import threading
import weakref
from collections import namedtuple

import numpy as np
from scipy.linalg import LinAlgError, cython_lapack
from scipy.linalg.lapack import dtrtrs
from scipy.sparse import csr_array, issparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigsh
from sklearn.utils import check_random_state

from smallvar._core.groups import first_appearance
from smallvar._sweeps.rows import UNSOUND

# rows of a matrix up to which decompositions are quick enough not to be interrupted
QUICK_MATRIX_ROWS = 500
QUICK_FACTOR = 2000  # the same for a Cholesky factor
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
DENSE_SOLVED_ROWS = 400  # rows up to which a dense solver is as fast as Lanczos
JOINT_COMPONENT_ROWS = 16  # rows up to which components are solved together
ZERO_ROW = 1e-10  # of the longest row of Y, or the largest singular value: less counts as zero
TIED = 1e-9  # absolute: products of rows of length 1 that differ by less tie; the first is taken
EQUAL_ENTRIES = 1e-6  # relative: entries of a vector that differ by less are equal
LEAST_GAIN = 1e-12  # of the sum of weights: an iteration that gains no more ends the rounding
SOLVED = 40  # bytes for each entry of a matrix that is made dense to be solved
ROUNDS = 1000  # largest number of iterations of a start; it rarely takes 50
SEEDED = "rng" in inspect.signature(eigsh).parameters  # eigsh of newer scipy takes a generator


def _routine(name):
    """A routine of scipy's LAPACK as a ctypes function, which releases the GIL when called."""
    api, capsule = ctypes.pythonapi, ctypes.py_object(cython_lapack.__pyx_capi__[name])
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    signature = ctypes.c_char_p(api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None)(api.PyCapsule_GetPointer(capsule, signature))


_dsyevr = _routine("dsyevr")  # scipy.linalg.eigh keeps the GIL


def stoppable(function, *args, **options):
    """The result of a function that releases the GIL; waiting for it can be interrupted.

    After Ctrl-C the function runs on to its end in its thread, so it must not change anything that
    other code uses.
    """
    if threading.current_thread() is not threading.main_thread():
        return function(*args, **options)  # only the main thread receives Ctrl-C
    outcome, over = [], threading.Lock()

    def run(_):
        try:
            outcome.append((function(*args, **options), None))
        except BaseException as error:
            outcome.append((None, error))
        over.release()

    over.acquire()
    held = set()  # by the thread: gone if that ended before it called run, without memory for it
    is_held = weakref.ref(held)
    try:  # threading.Thread would wait for ever for such a thread to start
        _thread.start_new_thread(run, (held,))
    except RuntimeError:  # no memory for a thread
        return function(*args, **options)
    del held
    # without a limit this cannot be interrupted on all systems
    while is_held() is not None and not over.acquire(timeout=0.1):
        pass
    if not outcome:
        return function(*args, **options)
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


def stoppable_if_large(function, A, *args, quick=QUICK_MATRIX_ROWS, **options):
    """The result of a function of a matrix; ``stoppable`` if it has more than ``quick`` rows."""
    if max(A.shape) > quick:
        return stoppable(function, A, *args, **options)
    return function(A, *args, **options)


def need_finite(A):
    """The matrix, if it is finite: LAPACK may fail to converge, or to end, where it is not."""
    if not np.isfinite(A).all():
        raise ValueError(UNSOUND)
    return A


def all_pairs(A):
    """All eigenpairs of a symmetric matrix, ascending, as numpy.linalg.eigh returns them."""
    return stoppable_if_large(np.linalg.eigh, need_finite(A))


def eigenvalues(A):
    """All eigenvalues of a symmetric matrix, ascending."""
    return stoppable_if_large(np.linalg.eigvalsh, need_finite(A))


def cholesky(A):
    """The lower Cholesky factor of a symmetric matrix, None if it has none."""
    try:
        return stoppable_if_large(np.linalg.cholesky, A, quick=QUICK_FACTOR)
    except LinAlgError:
        return None


def solve_lower(L, B):
    """The solution X of L X = B, L lower triangular."""
    # as solve_triangular, whose checks take longer than small systems; LAPACK reads columns
    by_rows = int(not L.flags.f_contiguous)
    triangle = L.T if by_rows else L
    options = {"lower": 1 - by_rows, "trans": by_rows}
    X, singular = stoppable_if_large(dtrtrs, triangle, B, quick=QUICK_FACTOR, **options)
    if singular:
        raise LinAlgError(f"row {singular - 1} of the factor has a diagonal of 0")
    return X


def svd(A, **options):
    """The singular value decomposition of A; arguments and results of numpy.linalg.svd."""
    return stoppable_if_large(np.linalg.svd, need_finite(A), **options)


def eigh(K, above=None, largest=None):
    """Eigenpairs of a symmetric matrix, ascending: all, those above a value, or the largest."""
    return stoppable_if_large(_eigh, need_finite(K), above, largest)


def _eigh(K, above, largest):
    """Eigenpairs by dsyevr; the arguments are those of ``eigh``."""
    n = len(K)
    if n == 0:
        return np.empty(0), np.empty((0, 0))
    # range: an interval of indices, all, or an interval of values
    part = b"I" if largest is not None else b"A" if above is None else b"V"
    A = np.array(K, dtype=np.float64, order="F")
    values, vectors = np.empty(n), np.empty((n, n if largest is None else largest), order="F")
    support = np.empty(2 * n, dtype=np.int32)
    count, info = np.zeros((2, 1), dtype=np.int32)
    low, first = (
        float(0.0 if above is None else above),
        1 if largest is None else int(n - largest + 1),
    )

    def call(work, work_size, integers, integers_size):
        arguments = [b"V", part, b"L", n, A, n, low, np.inf, first, n, 0.0, count, values, vectors]
        arguments += [n, support, work, work_size, integers, integers_size, info]
        arrays = [np.asarray(a, dtype=np.int32 if type(a) is int else None) for a in arguments]
        _dsyevr(*(ctypes.c_void_p(array.ctypes.data) for array in arrays))
        if info:
            raise LinAlgError(f"dsyevr found no eigenvectors (info {info[0]})")

    work, integers = np.empty(1), np.empty(1, dtype=np.int32)
    call(work, -1, integers, -1)  # asks for the sizes of the work arrays
    work, integers = np.empty(int(work[0])), np.empty(integers[0], dtype=np.int32)
    call(work, len(work), integers, len(integers))
    return values[: count[0]].copy(), np.ascontiguousarray(vectors[:, : count[0]])


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
        """Eigenvalues of H, vectors of the largest, and what is to be proven of them.

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
        return cholesky(M) is not None

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


class RoundedLabels(namedtuple("RoundedLabels", "objective labels extra")):
    """Labels that eigenvectors were rounded to, their objective, and any data of the caller."""

    @property
    def k(self):
        """Number of clusters."""
        return int(self.labels.max()) + 1


def eigen_above(K, threshold, random_state, *, least=0, max_memory=np.inf):
    """All eigenpairs of a symmetric K whose eigenvalue exceeds ``threshold``, copies included.

    ``K`` is a dense array or a ``KrylovSpace`` of one, a sparse one, or has ``shape`` and products
    ``K @ B``. At least the ``least`` largest are returned, even when below. Values fall, vectors
    (n, m) are orthonormal and have their largest entry positive. What is not dense is made so only
    within ``max_memory`` bytes.
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
        values, vectors = _implicit(K.__matmul__, n, threshold, rng, least, max_memory)
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
    pairs = []  # eigenvalues, eigenvectors, and their rows in the sorted K
    for s in np.unique(size[size <= JOINT_COMPONENT_ROWS]):
        first = start[:-1][size == s]
        rows = first[:, None] + np.arange(s)
        blocks = np.zeros((len(first), s, s))
        part = K[rows.ravel()].tocoo()
        blocks[part.row // s, part.row % s, part.col - first[part.row // s]] = part.data
        values, vectors = np.linalg.eigh(blocks)
        keep = (values > threshold) | (np.arange(s) >= s - least)
        pairs.append((values[keep], vectors.transpose(0, 2, 1)[keep], rows[np.nonzero(keep)[0]]))
    for c in np.flatnonzero(size > JOINT_COMPONENT_ROWS):
        a, b = start[c], start[c + 1]
        block = K[a:b, a:b]
        if b - a <= DENSE_SOLVED_ROWS:
            values, vectors = _dense(block.toarray(), threshold, min(least, b - a))
        else:
            norm = np.abs(block).sum(axis=1).max()
            options = {"least": least, "max_memory": max_memory}
            values, vectors = lanczos(block.dot, b - a, norm, threshold, rng, **options)
        pairs.append((values, vectors.T, np.arange(a, b)))
    values = np.concatenate([values for values, *_ in pairs])
    out, done = np.zeros((K.shape[0], len(values))), 0
    for part, vectors, rows in pairs:
        columns = done + np.arange(len(part))
        out[order[rows], columns[:, None]] = vectors
        done += len(part)
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
        missing = min(least - Q.shape[1], len(values))
        if complete and missing > 0:  # at least so many are as large as the last of these
            threshold = min(threshold, np.nextafter(np.sort(values)[-missing], -np.inf))
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


def yu_shi(Y, random_state, n_init, weight=None):
    """Labels, and the number of iterations, of each start of Yu and Shi's rounding of Y's columns.

    With the rows of Y at length 1, it finds an orthogonal matrix R and an indicator matrix X of
    labels with the least ||X - Y R||^2, rows weighted (None: by 1), by turns: labels for R, then R
    for the labels. The first start begins with row 0, the others with random rows. Labels (int32)
    are numbered by first appearance.
    """
    rng, Y = check_random_state(random_state), unit_rows(Y)
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
