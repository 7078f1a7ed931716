"""Dense linear algebra (LAPACK) that can be interrupted by Ctrl-C.

``stoppable`` runs a function in a thread and waits for it. The decompositions below use it for
large matrices; dsyevr and dpotrf are called through ctypes, which releases the GIL.
"""

import _thread
import ctypes
import threading
import weakref

import numpy as np
from scipy.linalg import LinAlgError, cython_lapack
from scipy.linalg.lapack import dtrtrs

from smallvar._sweeps.rows import UNSOUND

# rows of a matrix up to which decompositions are quick enough not to be interrupted
QUICK_MATRIX_ROWS = 500
QUICK_FACTOR = 2000  # the same for a Cholesky factor


def _routine(name):
    """A routine of scipy's LAPACK as a ctypes function, which releases the GIL when called."""
    api, capsule = ctypes.pythonapi, cython_lapack.__pyx_capi__[name]
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = (
        ctypes.c_char_p,
        [ctypes.py_object],
    )
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None)(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))


_dsyevr = _routine("dsyevr")
_dpotrf = _routine("dpotrf")


def _call(routine, *arguments):
    """Call a routine of LAPACK with text, arrays, and numbers of Python or ctypes."""
    kinds = {int: ctypes.c_int, float: ctypes.c_double}
    passed = []
    for value in arguments:
        if isinstance(value, bytes):
            passed.append(ctypes.c_char_p(value))
        elif isinstance(value, np.ndarray):
            passed.append(ctypes.c_void_p(value.ctypes.data))
        else:
            made = kinds[type(value)](value) if type(value) in kinds else value
            passed.append(ctypes.byref(made))
    routine(*passed)


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
    work, iwork = np.empty(1), np.empty(1, dtype=np.int32)
    m, info = ctypes.c_int(), ctypes.c_int()
    low, first = float(0.0 if above is None else above), 1 if largest is None else n - largest + 1

    def call(lwork, liwork):
        of_matrix, found = (b"V", part, b"L", n, A, n), (m, values, vectors, n, support)
        interval = low, np.inf, first, n, 0.0
        _call(_dsyevr, *of_matrix, *interval, *found, work, lwork, iwork, liwork, info)
        if info.value:
            raise LinAlgError(f"dsyevr found no eigenvectors (info {info.value})")

    call(-1, -1)  # asks for the sizes of the work arrays
    work, iwork = np.empty(int(work[0])), np.empty(int(iwork[0]), dtype=np.int32)
    call(len(work), len(iwork))
    return values[: m.value].copy(), np.ascontiguousarray(vectors[:, : m.value])


def is_positive_definite(A):
    """Whether a symmetric float64 matrix A (INOUT, overwritten) has a Cholesky factor."""
    return stoppable_if_large(_has_factor, A, quick=QUICK_FACTOR)


def _has_factor(A):
    """Whether dpotrf succeeds on A, which it overwrites."""
    info = ctypes.c_int()
    _call(_dpotrf, b"L", len(A), A, len(A), info)
    return info.value == 0
