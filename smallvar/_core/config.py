"""The number of threads, limits for BLAS, and what describes the build (``show_config``)."""

import functools
import os
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import joblib
from threadpoolctl import ThreadpoolController

from smallvar._core.validation import check_number
from smallvar._sweeps.parallel import MOST_THREADS, is_forked, max_threads, openmp_version
from smallvar._version import __version__

# OpenBLAS uses threads for products of two matrices of more than 2^18 multiply-adds, and of a
# matrix and a vector of more than 9,216. Half of that is surely computed on one thread; the bound
# for vectors is a 16th of the bound for matrices.
SERIAL_PRODUCT, MATRIX_TO_VECTOR = 1 << 17, 16


def _after_fork():
    """Replace the context of BLAS in a forked child."""
    global _one_thread
    _one_thread = _OneThread()


if hasattr(os, "register_at_fork"):
    # its lock may be held by a thread that a forked child does not have
    os.register_at_fork(after_in_child=_after_fork)


def openmp_enabled():
    """Whether this build has OpenMP; without it every fit uses one thread."""
    return openmp_version() > 0


def _cores():
    """The number of processors of the machine."""
    return os.cpu_count() or 1


@functools.cache
def _cpus_allowed():
    """The number of processors that this process may use, limits of containers included."""
    # cached: reading files of the system takes longer than a small fit
    return joblib.cpu_count()


@functools.cache
def _controller():
    """The controller of the loaded BLAS libraries."""
    # cached: finding the libraries takes milliseconds, longer than a small fit
    return ThreadpoolController()


class _OneThread:
    """Context in which BLAS uses one thread; the first fit sets the limit, the last lifts it."""

    def __init__(self):
        self.lock, self.inside, self.limit = threading.Lock(), 0, None

    def __enter__(self):
        with self.lock:
            if self.inside == 0:
                self.limit = _controller().limit(limits=1, user_api="blas")
            self.inside += 1

    def __exit__(self, *error):
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self.limit.restore_original_limits()


_one_thread = _OneThread()


def one_blas_thread(n=None, d=None):
    """Context in which BLAS uses one thread, for matrices too small for more.

    n x d is the shape of the largest matrix, with products of shape d x d; None if not known. If
    BLAS uses one thread for these by itself, the search for the libraries (0.1 s, once) is saved.
    """
    small = n is not None and max(n, d) * d * max(d, MATRIX_TO_VECTOR) <= SERIAL_PRODUCT
    return nullcontext() if small else _one_thread


def at_most_blas_threads(n_threads):
    """Context in which BLAS uses at most ``n_threads`` threads, and no more than before."""
    blas = _controller().select(user_api="blas")
    allowed = [library.num_threads for library in blas.lib_controllers]
    return blas.limit(limits=min([n_threads, *allowed]))


def resolve_threads(n_threads):
    """The number of threads for ``n_threads``, checked; None means all that this process may use.

    It is 1 without OpenMP and in a forked child, where OpenMP may wait forever for threads that
    only the parent has. It exceeds the number of processors only if OMP_NUM_THREADS or
    threadpoolctl allow that.
    """
    all_threads = "; None takes all threads"
    check_number(n_threads, "n_threads", low=1, integer=True, none=all_threads)
    if not openmp_enabled() or is_forked():
        return 1
    limit = max_threads()
    if n_threads is not None:
        available = n_threads if n_threads <= limit else min(n_threads, max(_cores(), limit))
    elif "OMP_NUM_THREADS" in os.environ:
        available = limit
    else:
        # OpenMP knows the affinity mask, joblib also the limits of containers
        available = min(limit, _cpus_allowed())
    return max(1, min(int(available), MOST_THREADS))


def _blas_names():
    """Names and versions of the BLAS libraries loaded by numpy and scipy."""
    import numpy as np
    import scipy

    names = []
    for module in (np, scipy):
        try:
            blas = module.__config__.CONFIG["Build Dependencies"]["blas"]
        except (AttributeError, KeyError):  # not recorded in older or vendor builds
            continue
        names.append(f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip())
    return names or ["unknown"]


def get_include() -> str:
    """Return the folder of ``smallvar.h``, the header for C and C++.

    Cython code needs no header: ``from smallvar.cython_api cimport dp_means_d``.

    Returns
    -------
    folder : str
        A folder for the compiler's ``-I``.

    Examples
    --------
    >>> import os
    >>> from smallvar import get_include
    >>> os.listdir(get_include())
    ['smallvar.h']
    """
    return str(Path(__file__).resolve().parents[1] / "include")


def show_config() -> None:
    """Print version, compiler, instruction set, threads, OpenMP and BLAS of this installation.

    Examples
    --------
    >>> import smallvar
    >>> smallvar.show_config()  # doctest: +ELLIPSIS
    smallvar: ...
    """
    from smallvar._sweeps.nearest import compiler, instruction_set, instruction_sets

    date = openmp_version()
    openmp = f"on (standard {date})" if date else "off (one thread)"
    numpy_blas = ", ".join(dict.fromkeys(_blas_names()))
    print(f"smallvar: {__version__}")
    print(f"python: {sys.version.split()[0]}")
    print(f"compiler: {compiler()}")
    print(f"threads: {resolve_threads(None)}")
    print(f"SIMD: {instruction_set()} (built: {', '.join(instruction_sets())})")
    print(f"OpenMP: {openmp}")
    print(f"BLAS: {numpy_blas} (of numpy and scipy; the sweeps of smallvar call none)")
