"""Rounds of tasks on the partitions of a dask collection.

``Executor`` holds the partitions of one fit and runs a function on all of them, one task for each
worker (or for each partition that is read again). First the functions that run on the workers,
with the store of their states, then those of the driver: the executor, failures of the cluster in
words, and the choice of whether the workers hold the data.
"""

import asyncio
import contextlib
import uuid
import warnings
from collections import defaultdict

import numpy as np
from dask import delayed
from distributed import Client, KilledWorker, default_client, futures_of, get_worker, wait
from distributed.comm import CommClosedError

from smallvar._core.validation import level_of_caller, realigned

FOLD = 16  # results that one task adds up, where a round has more results than this
MAX_DIRECT = 8  # with more tasks, shared data is scattered to the workers instead of sent with each
MEMORY_SHARE = 0.5  # data up to this share of the workers' memory is held in it
# The status pages of a cluster in this process: any free port, on the loopback interface only.
LOOPBACK = dict.fromkeys(("dashboard_address", "worker_dashboard_address"), "127.0.0.1:0")
MAX_FITS = 2  # fits whose states a worker keeps


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
