"""Helpers of tests on Dask: clusters on the loopback, partitions, and comparisons bit by bit."""

from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from logging import CRITICAL

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import psutil
from distributed import Client, LocalCluster

from smallvar.dask._executor import LOOPBACK


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


def uneven(rng, n, most=50):
    """Lengths of up to ``most`` partitions of n rows, some of them 0."""
    cuts = np.sort(rng.integers(0, n + 1, size=int(rng.integers(0, most))))
    if rng.random() < 0.3:
        cuts = np.sort(np.concatenate([cuts, cuts[: len(cuts) // 3]]))[: most - 1]
    return np.diff(np.concatenate([[0], cuts, [n]])).astype(int).tolist()


def split(X, sizes):
    """Rows of the partitions."""
    ends = np.cumsum([0, *sizes])
    return [X[a:b] for a, b in pairwise(ends)]


def framed(X, weight, sizes):
    """Rows as a DataFrame and weights, or None, as a Series of partitions of these lengths."""
    names = [f"column {j}" for j in range(X.shape[1])]
    meta = pd.DataFrame(X[:0], columns=names)
    frame = dd.from_map(partial(pd.DataFrame, columns=names), split(X, sizes), meta=meta)
    if weight is not None:
        meta = pd.Series(weight[:0], name="w")
        weight = dd.from_map(partial(pd.Series, name="w"), split(weight, sizes), meta=meta)
    return frame, weight


def chunked(X, sizes):
    """An array of partitions of these lengths; None stays None."""
    return None if X is None else da.from_array(X, chunks=(tuple(sizes), *X.shape[1:]))


def assert_same_bits(model, local, names):
    """Attributes of these names have the same bits in both."""
    for name in names:
        ours, theirs = np.asarray(getattr(model, name)), np.asarray(getattr(local, name))
        assert ours.dtype == theirs.dtype, name
        assert ours.shape == theirs.shape, name
        assert ours.tobytes() == theirs.tobytes(), name


def assert_lazy(labels, expected, **options):
    """A dask array of int32 that computes to what is known."""
    assert isinstance(labels, da.Array)
    labels = labels.compute(**options)
    assert labels.dtype == np.int32
    assert np.array_equal(labels, expected)
