"""The number of threads, and facts about this build."""

import functools
import os
import sys
import threading
from contextlib import nullcontext

import joblib
from threadpoolctl import ThreadpoolController

from smallvar._sweeps.parallel import MOST_THREADS, is_forked, max_threads, openmp_version
from smallvar._version import __version__

# OpenBLAS shares out products of two matrices of more than 2^18 multiply-adds, and of a matrix
# and a vector of more than 9,216: half as many are left to it, and of these a 16th
SERIAL_PRODUCT, MATRIX_TO_VECTOR = 1 << 17, 16


def _after_fork():
    global _one_thread
    _one_thread = _OneThread()


if hasattr(os, "register_at_fork"):
    # its lock may be held by a thread that a forked child does not have
    os.register_at_fork(after_in_child=_after_fork)


def openmp_enabled():
    """Whether this build has OpenMP; without it every fit has one thread."""
    return openmp_version() > 0


def _cores():
    return os.cpu_count() or 1


@functools.cache
def _cpus_allowed():
    # reads files of the system, which takes longer than a small fit
    return joblib.cpu_count()


@functools.cache
def _controller():
    # finding the libraries takes milliseconds, longer than a small fit
    return ThreadpoolController()


class _OneThread:
    """Fits that want BLAS to use one thread; the first sets the limit, the last lifts it."""

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
    """Context in which BLAS uses one thread: for matrices so small that more would only wait.

    n x d is the shape of the largest matrix, of which there are products d x d; None: not known.
    Where BLAS takes one thread by itself, libraries are not looked for, which takes .1 s once.
    """
    small = n is not None and max(n, d) * d * max(d, MATRIX_TO_VECTOR) <= SERIAL_PRODUCT
    return nullcontext() if small else _one_thread


def at_most_blas_threads(n_threads):
    """Context in which BLAS uses at most so many threads, and never more than without it."""
    blas = _controller().select(user_api="blas")
    allowed = [library.num_threads for library in blas.lib_controllers]
    return blas.limit(limits=min([n_threads, *allowed]))


def resolve_threads(n_threads):
    """Number of threads for ``n_threads``: None means all that this process may use.

    One without OpenMP, and in a forked child: there OpenMP may wait forever for threads that only
    the parent has. More than the machine has processors only where OMP_NUM_THREADS or threadpoolctl
    allow more.
    """
    if not openmp_enabled() or is_forked():
        return 1
    limit = max_threads()
    if n_threads is not None:
        available = n_threads if n_threads <= limit else min(n_threads, max(_cores(), limit))
    elif "OMP_NUM_THREADS" in os.environ:
        available = limit
    else:
        # OpenMP knows the affinity mask, joblib the limits of containers as well
        available = min(limit, _cpus_allowed())
    return max(1, min(int(available), MOST_THREADS))


def _blas_names():
    """Names and versions of the BLAS libraries loaded by numpy and scipy."""
    import numpy as np
    import scipy

    found = []
    for module in (np, scipy):
        try:
            blas = module.__config__.CONFIG["Build Dependencies"]["blas"]
        except (AttributeError, KeyError):  # older or vendor builds do not say
            continue
        found.append(f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip())
    return found or ["unknown"]


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
