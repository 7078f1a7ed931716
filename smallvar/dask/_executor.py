"""Dask collections as lists of partitions, and rounds of tasks on them.

``Parts`` splits a dask array or DataFrame, with values for each row such as weights, into delayed
partitions and checks what is known without computing them; ``checked_block`` checks a partition on
its worker. ``Executor`` holds the partitions of one fit and runs a function on all of them, one
task for each worker (or for each partition that is read again). Before it are the functions that
run on the workers, with the store of their states, and failures of the cluster in words.
"""

import asyncio
import contextlib
import uuid
import warnings
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask import delayed, is_dask_collection
from distributed import Client, KilledWorker, default_client, futures_of, get_worker, wait
from distributed.comm import CommClosedError
from numpy.typing import NDArray

from smallvar._core.estimator import usable_rows
from smallvar._core.groups import Groups
from smallvar._core.validation import (
    as_floats,
    as_weights,
    check_reach,
    level_of_caller,
    realigned,
    shown,
    single_column,
)

FOLD = 16  # results that one task adds up, where a round has more results than this
MAX_DIRECT = 8  # with more tasks, shared data is scattered to the workers instead of sent with each
MEMORY_SHARE = 0.5  # data up to this share of the workers' memory is held in it
# The status pages of a cluster in this process: any free port, on the loopback interface only.
LOOPBACK = dict.fromkeys(("dashboard_address", "worker_dashboard_address"), "127.0.0.1:0")
MAX_FITS = 2  # fits whose states a worker keeps


def delayed_parts(*collections):
    """The partitions of dask collections, a list for each.

    Dask may read several files as one partition of some columns, but not of others: then their
    graphs are not optimized.
    """
    for optimized in (True, False):
        parts = [collection.to_delayed(optimize_graph=optimized) for collection in collections]
        parts = [np.ravel(np.array(several, dtype=object)).tolist() for several in parts]
        if len({len(several) for several in parts}) == 1:
            break
    return parts


class Parts:
    """Delayed partitions of a dask array or DataFrame, of weights and of data sets of its rows.

    ``each`` has, for each partition, its rows, weights (or None, or a number) and data sets (or
    None). ``sizes`` are the numbers of rows, None where dask does not know. ``groups`` may be the
    name of a column of a DataFrame X, which is then not part of the data.
    """

    def __init__(self, X, sample_weight=None, groups=None):
        columns = getattr(X, "columns", None)
        if not is_dask_collection(X) or not (columns is not None or isinstance(X, da.Array)):
            raise TypeError(
                f"X must be a dask array or DataFrame, got {type(X).__name__}: use "
                "dask.array.from_array, or the methods of the model for data of one machine"
            )
        if columns is not None and X.ndim != 2:
            raise ValueError("X must have two dimensions, got a dask Series: use X.to_frame()")
        if groups is not None and np.ndim(groups) == 0 and not is_dask_collection(groups):
            if columns is None or groups not in columns:
                raise ValueError(
                    "groups must be a dask collection with the partitions of X or, for a "
                    f"DataFrame, one of its columns, got {shown(groups)}"
                )
            X, groups = X.drop(columns=[groups]), X[groups]
        if columns is not None:  # a DataFrame, which does not know the lengths of its partitions
            self.names, self.sizes = list(X.columns), None
            types = [t for t in X.dtypes if isinstance(t, np.dtype)]
        else:
            if X.ndim != 2 or X.numblocks[1] != 1:
                raise ValueError(
                    "X must have two dimensions and its columns in one chunk, got chunks "
                    f"{X.chunks}: use X.rechunk({{1: -1}})"
                )
            # lengths are NaN after operations such as a selection by a mask
            self.sizes = X.chunks[0] if np.isfinite(X.chunks[0]).all() else None
            self.names, types = None, [X.dtype]
        self.collection = X
        self.n_features = X.shape[1] if columns is None else len(self.names)
        if not self.n_features:
            raise ValueError("X must have at least one column, got 0")
        # of columns of several types, the widest counts: they become one array
        self.row_bytes = max([t.itemsize for t in types] or [8]) * self.n_features
        # of results that have the type of the data
        self.dtype = np.float32 if types and all(t == np.float32 for t in types) else np.float64
        beside = sample_weight, groups
        rows, *delayed = delayed_parts(X, *filter(is_dask_collection, beside))
        columns = [rows]
        for name, values in zip(("sample_weight", "groups"), beside, strict=True):
            if is_dask_collection(values):
                columns.append(delayed.pop(0))
                if len(columns[-1]) != len(rows):
                    counts = f"{len(columns[-1])} for {len(rows)}"
                    raise ValueError(f"{name} must have the partitions of X, got {counts}")
            elif values is None or np.ndim(values) == 0:
                columns.append([None if values is None else float(values)] * len(rows))
            else:
                columns.append(self._split(values, name))
        self.each = list(zip(*columns, strict=True))

    def _split(self, values, name):
        """List of the ``values`` of each partition, one for each row; ``name`` is for errors."""
        values = as_floats(values) if name == "sample_weight" else np.asarray(values)
        if self.sizes is None:
            raise ValueError(
                f"{name} must be a dask collection where the sizes of the partitions of X "
                "are not known"
            )
        values = single_column(values, name, sum(self.sizes))
        return np.split(values, np.cumsum(self.sizes)[:-1])

    def no_rows(self):
        """A table of no rows with the columns of the collection, for checks of their names."""
        if self.names is None:
            return np.empty((0, self.n_features))
        import pandas as pd

        return pd.DataFrame(np.empty((0, self.n_features)), columns=self.names)


# ---- one partition -------------------------------------------------------------------------------


@dataclass
class Block:
    """Checked rows of a partition that take part in a fit, and their weights (None: all 1).

    ``n_total`` counts all rows. Of a fit of data sets, rows of weight zero take no part; ``sets``
    are the data sets of the others, and ``names`` all data sets of the partition.
    """

    X: NDArray[np.floating]
    weight: NDArray[np.float64] | None
    n_total: int
    sets: Groups | None = None
    names: NDArray[Any] | None = None


@contextlib.contextmanager
def name_partition(number):
    """Context that puts the number of the partition in front of error messages."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise type(error)(f"partition {number}: {error}") from None


def checked_sets(groups, n):
    """Groups of the n rows of a partition, which may have none."""
    return Groups(groups if n else np.empty(0, dtype=np.int32), n)


def checked_block(model, n_features, number, X, weight, groups):
    """Block of partition ``number``: rows checked as ``model`` checks them."""
    with name_partition(number):
        if X.shape[1:] != (n_features,):
            raise ValueError(f"X must have {n_features} columns, got shape {X.shape}")
        n, used = X.shape[0], None
        weight = None if weight is None else as_weights(weight, n)
        X, used = usable_rows(model, X) if n else (np.empty((0, n_features)), None)
        if used is not None and weight is not None:
            weight = weight[used]
        if groups is None:
            return Block(X, weight, n)
        check_reach(X)
        sets = checked_sets(groups, n)
        names = sets.names
        if weight is not None and not weight.all():
            rows = np.flatnonzero(weight)
            X, weight, sets = X[rows], weight[rows], sets.of(rows)
        return Block(X, weight, n, sets, names)


# ---- data sets -----------------------------------------------------------------------------------


def concatenated_names(names):
    """Groups of all data sets, from the arrays of their names in each partition."""
    names = [part for part in names if len(part)]
    kinds = {"U" if part.dtype.kind in "OSUT" else part.dtype.kind for part in names}
    if "U" in kinds and len(kinds) > 1:
        raise ValueError("groups must be all numbers or all strings, got both")
    names = np.concatenate(names)
    return Groups(names, len(names))


def check_not_split(names):
    """Raise a ValueError if a data set lies in more than one partition; ``names`` are a dict."""
    sets = concatenated_names(names.values())
    count = np.bincount(sets.number)
    if count.max() == 1:
        return
    twice = int(np.argmax(count > 1))
    part = np.repeat(list(names), [len(some) for some in names.values()])
    first, second, *_ = part[sets.number == twice].tolist()
    raise ValueError(
        f"groups must lie whole in one partition each, got {shown(sets.names[twice])} in "
        f"partitions {first} and {second}: repartition by the column of the groups, with set_index "
        "or shuffle of a dask DataFrame, or rechunk arrays where data sets end"
    )


# ---- on the workers ------------------------------------------------------------------------------

# States of partitions, by fit and partition number. A cache: results must not depend on it, as a
# worker may die, and dask may run a task twice or on another worker.
_STATES: dict[str, dict[int, object]] = {}


def take_state(fit, p):
    """State of partition ``p`` on this worker, or None; removed, so that no other task changes it.

    The task gives it back with ``put_state``.
    """
    return _STATES.get(fit, {}).pop(p, None)


def put_state(fit, p, state):
    """Keep the state of a partition for later tasks on this worker."""
    if fit not in _STATES:
        # a fit whose driver died is never forgotten by its driver: the oldest ones go
        for oldest in list(_STATES)[: len(_STATES) - MAX_FITS + 1]:
            _STATES.pop(oldest, None)
        _STATES[fit] = {}
    _STATES[fit][p] = state


def forget(fit):
    """Remove all states of a fit from this worker."""
    _STATES.pop(fit, None)


def threads_here():
    """Number of threads that a task on this worker may use."""
    try:
        return get_worker().state.nthreads
    except ValueError:  # not on a worker
        return 1


def call_realigned(function, *args):
    """Call a function with arguments that came in messages, whose arrays may not be aligned."""
    return function(*realigned(args))


def _run(function, numbers, blocks, shared, each):
    """Run one task: a function on the partitions of these numbers."""
    return call_realigned(function, list(zip(numbers, blocks, strict=True)), shared, each)


# ---- on the driver -------------------------------------------------------------------------------


@contextlib.contextmanager
def current_client():
    """Context with the default client of this process, or with a temporary one of threads."""
    try:
        client = default_client()
    except ValueError:  # no default client
        with Client(processes=False, n_workers=1, set_as_default=False, **LOOPBACK) as temporary:
            yield temporary
        return
    yield client


def explain_failure(client, function, *args, **options):
    """Result of a call to the cluster; a failure of the cluster becomes a RuntimeError.

    Errors that a task raised itself are passed on.
    """
    try:
        return function(*args, **options)
    except KilledWorker as error:
        raise RuntimeError(
            "workers died again and again at the same task, most likely for want of memory: "
            f"use smaller partitions, or give workers more memory ({error})"
        ) from error
    except (Exception, asyncio.CancelledError) as error:
        gone = (asyncio.CancelledError, CommClosedError)
        if client.status == "running" and not isinstance(error, gone):
            raise  # an error of the task itself, such as an OSError of reading a partition
        raise RuntimeError(
            f"the scheduler, or the connection to it, was lost during the fit ({error!r})"
        ) from error


def wait_for(client, futures):
    """Wait until the futures of a client are computed, which need not be that of the process."""
    with client.as_current():
        wait(futures)


class Executor:
    """Runs functions on the partitions of a collection, in rounds of tasks.

    ``prepare(p, *part)`` makes a Block of partition p. With ``persist`` the workers hold the
    blocks, and a round has one task for each worker. Otherwise every round reads the data again,
    with one task for each partition.
    """

    def __init__(self, client, parts, prepare, persist):
        self.client, self.fit = client, uuid.uuid4().hex
        blocks = [delayed(prepare)(p, *part) for p, part in enumerate(parts)]
        self.numbers = list(range(len(blocks)))
        self.held = persist
        self.blocks = client.compute(blocks, optimize_graph=False) if persist else blocks
        self.workers = None  # worker of each partition, asked for when needed

    def restrict(self, numbers):
        """Restrict later rounds to the partitions of these numbers."""
        self.numbers = sorted(numbers)

    def groups(self, numbers):
        """Tasks of a round: pairs of a worker (None: any) and the partitions it holds."""
        if not self.held:
            return [(None, [p]) for p in numbers]
        if self.workers is None:
            wait_for(self.client, self.blocks)  # what is not computed yet is on no worker
            holders = self.client.who_has(self.blocks)
            self.workers = [
                min(holders.get(future.key) or [None], key=str) for future in self.blocks
            ]
        groups = defaultdict(list)
        for p in numbers:
            groups[self.workers[p]].append(p)
        return list(groups.items())

    def call(self, function, shared, each=None, numbers=None, fold=None):
        """Results of ``function([(p, block), ...], shared, [each[p], ...])``, one for each task.

        ``numbers`` are the partitions (None: all). ``fold([result, ...])`` adds up results; with it
        the list that is returned has one element.
        """
        numbers = self.numbers if numbers is None else numbers
        return explain_failure(self.client, self._call, function, shared, each, numbers, fold)

    def _call(self, function, shared, each, numbers, fold):
        """Results of ``call``, without its words for failures of the cluster."""
        groups = self.groups(numbers)
        if not self.held:  # part of the graph once, and not searched for dask collections
            shared = delayed(shared, traverse=False)
        elif len(groups) > MAX_DIRECT:
            shared = self.client.scatter(shared, broadcast=True, hash=False)
        submit, futures = self.client.submit, []
        for worker, members in groups:
            arguments = [each[p] if each is not None else None for p in members]
            task = function, members, [self.blocks[p] for p in members], shared, arguments
            if self.held:
                place = {"workers": worker, "allow_other_workers": worker is not None}
                futures.append(submit(_run, *task, pure=False, **place))
            else:
                futures.append(delayed(_run)(*task))
        if not self.held:
            futures = self.client.compute(futures, optimize_graph=False)
        # a tree of folds, so that the driver receives one result and not one for each task
        while fold is not None and len(futures) > FOLD:
            futures = [
                submit(call_realigned, fold, futures[i : i + FOLD], pure=False)
                for i in range(0, len(futures), FOLD)
            ]
        results = realigned(self.client.gather(futures))
        return [fold(results)] if fold is not None else results

    def relocate(self):
        """Ask again, before the next round, which workers hold the partitions."""
        self.workers = None

    def close(self):
        """Free the blocks and states of this fit on all workers."""
        self.blocks = None
        if self.client.status == "running":
            with contextlib.suppress(Exception):  # the cluster may be gone, with its memory
                self.client.run(forget, self.fit)


def _memory_limit(dask_worker):
    return dask_worker.memory_manager.memory_limit or np.inf


def should_hold(client, X, nbytes):
    """Whether to hold ``nbytes`` of data; data that futures hold already takes no more memory."""
    memory = client.run(_memory_limit).values()
    if futures_of(X) or nbytes <= MEMORY_SHARE * sum(memory):
        return True
    warnings.warn(
        f"X takes {nbytes / 2**30:.3g} GiB, more than half of the memory of the workers: every "
        "sweep reads it anew. More workers, or float32, would keep it in memory; persist=True "
        "holds it anyway",
        UserWarning,
        stacklevel=level_of_caller(),
    )
    return False
