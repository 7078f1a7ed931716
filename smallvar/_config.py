"""Threads and build facts."""

import functools
import os
import sys
import threading

import joblib
from threadpoolctl import ThreadpoolController

from smallvar._sweeps.pool import max_threads, openmp_version
from smallvar._version import __version__

_forked = False


def _after_fork():
    global _forked, _one_thread
    _forked, _one_thread = True, _OneThread()


if hasattr(os, "register_at_fork"):
    # GNU OpenMP hangs in a child whose parent used its threads: one thread is always safe.
    os.register_at_fork(after_in_child=_after_fork)


def openmp_enabled():
    """Whether this build runs its sweeps on several threads."""
    return openmp_version() > 0


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


def one_blas_thread():
    """Context in which BLAS uses one thread: for matrices so small that more would only wait."""
    return _one_thread


def resolve_threads(n_threads):
    """Number of threads for ``n_threads``: None means all that this process may use."""
    if n_threads is None:
        available = max_threads()
        if "OMP_NUM_THREADS" not in os.environ:
            # OpenMP knows the affinity mask, joblib the limits of containers as well
            available = min(available, _cpus_allowed())
    else:
        available = n_threads
    return 1 if _forked or not openmp_enabled() else max(1, int(available))


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


def show_config():
    """Print version, compiler, OpenMP and BLAS of this installation.

    Examples
    --------
    >>> import smallvar
    >>> smallvar.show_config()  # doctest: +ELLIPSIS
    smallvar: ...
    """
    from smallvar._sweeps.nearest import compiler

    date = openmp_version()
    openmp = f"on (standard {date}), {resolve_threads(None)} threads" if date else "off, 1 thread"
    numpy_blas = ", ".join(dict.fromkeys(_blas_names()))
    print(f"smallvar: {__version__}")
    print(f"python: {sys.version.split()[0]}")
    print(f"compiler: {compiler()}")
    print(f"OpenMP: {openmp}")
    print(f"BLAS: {numpy_blas} (of numpy and scipy; the sweeps of smallvar call none)")
