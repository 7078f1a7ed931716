"""Helpers of tests on Dask: clusters on the loopback, partitions, and comparisons bit by bit."""

import inspect
import warnings
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from logging import CRITICAL
from types import SimpleNamespace

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import psutil
from distributed import Client, LocalCluster
from helpers import bits, fit, moved
from scipy.sparse import csr_array
from sklearn.base import clone

import smallvar.dask
from smallvar.dask._executor import LOOPBACK

# ---- clusters -----------------------------------------------------------------------------------


def listening():
    """Addresses that this process and its children listen at."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    connections = [c for p in processes for c in p.net_connections() if c.status == "LISTEN"]
    return {c.laddr for c in connections}


@contextmanager
def threads_as_workers(n_workers=2, **options):
    """A client of workers that are threads of this process; nothing is left of them."""
    before = listening()
    in_threads = {"processes": False, "threads_per_worker": 1}
    with Client(n_workers=n_workers, **in_threads, **LOOPBACK, **options) as client:
        assert {address.ip for address in listening() - before} <= {"127.0.0.1"}
        yield client
    assert listening() <= before


@contextmanager
def cluster_of(n_workers):
    """A cluster of processes of one thread, and its client; nothing is left of it."""
    before = listening()
    with (
        LocalCluster(
            n_workers=n_workers, threads_per_worker=1, silence_logs=CRITICAL, **LOOPBACK
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(n_workers, timeout=120)  # none is killed before it has begun
        assert {address.ip for address in listening() - before} == {"127.0.0.1"}
        yield cluster, client
    assert listening() <= before


class AtOnce:
    """A client whose tasks run when they are submitted: hundreds of fits in the time of a few.

    With ``copies`` whatever is sent is pickled, as between processes; without, it is the object
    itself, as between threads. A partition may seem to be at any worker.
    """

    status = "running"

    def __init__(self, rng, copies, workers=3):
        self.rng, self.copies, self.workers = rng, copies, workers

    def _sent(self, value):
        return moved(value) if self.copies else value

    def compute(self, parts, optimize_graph=True):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Running on a single-machine scheduler")
            values = dask.compute(*parts, scheduler="sync", traverse=False)
        return [SimpleNamespace(key=i, value=self._sent(v)) for i, v in enumerate(values)]

    def submit(self, function, *args, pure, workers=None, allow_other_workers=False):
        return self._sent(function(*self.gather(args)))

    def scatter(self, shared, broadcast, hash):
        return self._sent(shared)

    def gather(self, futures):
        if isinstance(futures, (list, tuple)):
            return [self.gather(future) for future in futures]
        return futures.value if isinstance(futures, SimpleNamespace) else futures

    def who_has(self, futures):
        return {future.key: [f"worker {self.rng.integers(self.workers)}"] for future in futures}

    def run(self, function, *args):
        if "dask_worker" not in inspect.signature(function).parameters:
            return function(*args)
        worker = SimpleNamespace(memory_manager=SimpleNamespace(memory_limit=None))
        return {"worker": function(*args, dask_worker=worker)}


# ---- data in partitions -------------------------------------------------------------------------


def uneven(rng, n, most=50):
    """Lengths of up to ``most`` partitions of n rows, some of them 0."""
    cuts = np.sort(rng.integers(0, n + 1, size=int(rng.integers(0, most))))
    if rng.random() < 0.3:
        cuts = np.sort(np.concatenate([cuts, cuts[: len(cuts) // 3]]))[: most - 1]
    return np.diff(np.concatenate([[0], cuts, [n]])).astype(int).tolist()


def framed(X, weight, sizes):
    """Rows as a DataFrame and weights, or None, as a Series of partitions of these lengths."""

    def split(values, kind):
        parts = [values[a:b] for a, b in pairwise(np.cumsum([0, *sizes]))]
        return dd.from_map(kind, parts, meta=kind(values[:0]))

    names = [f"column {j}" for j in range(X.shape[1])]
    frame = split(X, partial(pd.DataFrame, columns=names))
    return frame, None if weight is None else split(weight, partial(pd.Series, name="w"))


def chunked(X, sizes):
    """An array of partitions of these lengths; None stays None."""
    return None if X is None else da.from_array(X, chunks=(tuple(sizes), *X.shape[1:]))


def collection(kind, X, weight, sizes):
    """Rows and weights as dask collections of partitions of these lengths."""
    if kind == "frame":
        return framed(X, weight, sizes)
    if kind == "masked":  # lengths are not known; each partition has rows that are left out
        more = [size + 1 for size in sizes]
        keep = np.concatenate([[True] * size + [False] for size in sizes])
        chosen = chunked(keep, more)

        def padded(values):
            out = np.full((len(keep), *values.shape[1:]), np.nan, dtype=values.dtype)
            out[keep] = values
            return chunked(out, more)[chosen]

        return padded(X), None if weight is None else padded(np.asarray(weight, float))
    rows = chunked(X, sizes)
    if kind == "sparse":
        rows = rows.map_blocks(csr_array, dtype=X.dtype, meta=np.empty((0, 0)))
    return rows, chunked(weight, sizes)


# ---- comparisons --------------------------------------------------------------------------------

OF_ROWS = {"labels_", "local_labels_", "pieces_"}  # and what does not compare by its bits:
WITHOUT_BITS = {"feature_names_in_", "path_", "boundaries_"}


def assert_lazy(labels, expected, **options):
    """A dask array of int32 that computes to what is known."""
    assert isinstance(labels, da.Array)
    labels = labels.compute(**options)
    assert labels.dtype == np.int32
    assert np.array_equal(labels, expected)


def assert_same(model, local):
    """All that is learned is, bit for bit, that of one machine."""
    learned = {name for name in vars(local) if name.endswith("_")} - OF_ROWS - WITHOUT_BITS
    assert "n_clusters_" in learned
    for name in learned:
        assert bits(getattr(model, name)) == bits(getattr(local, name)), name
    for name in {"labels_", "local_labels_"} & vars(local).keys():
        assert_lazy(getattr(model, name), getattr(local, name), scheduler="sync")


def check(model, X, sizes, kind="array", weight=None, groups=None, **options):
    """Fit the rows on one machine and in partitions; returns both models."""
    local, beside = clone(model), {} if groups is None else {"groups": groups}
    rows = csr_array(X) if kind == "sparse" else np.ascontiguousarray(X)
    warned = fit(SimpleNamespace(fit=partial(local.fit, **beside)), rows, weight)
    Y, w = collection(kind, np.ascontiguousarray(X), weight, sizes)
    if groups is not None:
        groups = chunked(groups, sizes)
        options["groups"] = groups[groups == groups] if kind == "masked" else groups
    there = SimpleNamespace(fit=partial(smallvar.dask.fit, model, **options))
    assert fit(there, Y, w) == warned
    assert_same(model, local)
    return model, local
