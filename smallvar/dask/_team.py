"""Rounds of tasks on the partitions of a dask collection: who works, what may fail."""

import asyncio
import contextlib
import uuid
import warnings
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from dask import delayed
from distributed import Client, KilledWorker, default_client, futures_of, get_worker
from distributed.comm import CommClosedError
from numpy.typing import NDArray

from smallvar._core.validation import realigned

FOLD = 16  # results that are added up by one task, where there are more tasks
DIRECT = 8  # tasks up to which each is sent what all need; else workers hand it on
SHARE = 0.5  # of the memory of the workers: data up to there are held in it
# The status pages of a cluster in this process: any free port, not on all interfaces.
LOOPBACK = dict.fromkeys(("dashboard_address", "worker_dashboard_address"), "127.0.0.1:0")
KEPT = 2  # fits that a worker keeps the state of


@dataclass
class Block:
    """A partition as the sweeps take it: checked rows and their weights."""

    X: NDArray[np.floating]
    weight: NDArray[np.float64] | None


@contextlib.contextmanager
def current_client():
    """The default client of this process, or one of threads of this process."""
    try:
        client = default_client()
    except ValueError:  # there is none
        with Client(processes=False, n_workers=1, set_as_default=False, **LOOPBACK) as own:
            yield own
        return
    yield client


# ---- on the workers ------------------------------------------------------------------------------

_KEPT: dict[str, dict[int, object]] = {}  # states of partitions, by fit and number: may be lost


def take_state(fit, p):
    """The state that this worker has of a partition, or None; this task's own until put back."""
    return _KEPT.get(fit, {}).pop(p, None)


def put_state(fit, p, state):
    """Keep the state of a partition for the tasks to come."""
    if fit not in _KEPT:
        for old in list(_KEPT)[: len(_KEPT) - KEPT + 1]:
            _KEPT.pop(old, None)
        _KEPT[fit] = {}
    _KEPT[fit][p] = state


def forget(fit):
    """Give back the memory of a fit."""
    _KEPT.pop(fit, None)


def threads_here():
    """Threads that a task may use."""
    try:
        return get_worker().state.nthreads
    except ValueError:  # not on a worker
        return 1


def here(function, *args):
    """Call a function with what came in messages."""
    return function(*realigned(args))


def _run(function, numbers, blocks, shared, each):
    """One task: a function on some partitions."""
    return here(function, list(zip(numbers, blocks, strict=True)), shared, each)


@contextlib.contextmanager
def named(number):
    """Say of which partition it is that something is wrong with."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise type(error)(f"partition {number}: {error}") from None


def _checked(prepare, number, X, weight):
    """One partition, made ready."""
    with named(number):
        return prepare(X, weight)


# ---- on the driver -------------------------------------------------------------------------------


def guarded(client, function, *args, **options):
    """A call that the cluster may fail, with what that means in words."""
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
            raise  # what a task raised, which may be an OSError of who reads a partition
        raise RuntimeError(
            f"the scheduler, or the connection to it, was lost during the fit ({error!r})"
        ) from error


class Team:
    """The partitions of some data, and rounds of tasks on them.

    ``prepare(X, weight)`` makes a Block of a partition. Data that fit the memory of the workers are
    held there, one task a worker and round; otherwise every round reads them, one task a partition.
    """

    def __init__(self, client, X, weights, prepare, persist):
        self.client, self.fit = client, uuid.uuid4().hex
        pairs = zip(X, weights, strict=True)
        parts = [delayed(_checked)(prepare, p, *pair) for p, pair in enumerate(pairs)]
        self.numbers = list(range(len(parts)))
        self.held = persist
        self.blocks = client.compute(parts, optimize_graph=False) if persist else parts
        self.where = None

    def keep(self, numbers):
        """Leave out all partitions but these from the rounds to come."""
        self.numbers = sorted(numbers)

    def groups(self, numbers):
        """Partitions that go into one task, and the worker that has them."""
        if not self.held:
            return [(None, [p]) for p in numbers]
        if self.where is None:
            has = self.client.who_has(self.blocks)
            self.where = [min(has.get(future.key) or [None], key=str) for future in self.blocks]
        groups = defaultdict(list)
        for p in numbers:
            groups[self.where[p]].append(p)
        return list(groups.items())

    def call(self, function, shared, each=None, numbers=None, fold=None):
        """Results of ``function([(p, block), ...], shared, [each[p], ...])``, one for each task.

        ``numbers`` are the partitions, None: all. ``fold([result, ...])`` makes one of several.
        """
        numbers = self.numbers if numbers is None else numbers
        return guarded(self.client, self._call, function, shared, each, numbers, fold)

    def _call(self, function, shared, each, numbers, fold):
        groups = self.groups(numbers)
        shared_by_all = shared
        if self.held and len(groups) > DIRECT:
            shared_by_all = self.client.scatter(shared, broadcast=True, hash=False)
        elif not self.held:  # sent once, not with each task; dask need not look what is in it
            shared_by_all = delayed(shared, traverse=False)
        futures = []
        for worker, some in groups:
            own = [each[p] if each is not None else None for p in some]
            if self.held:
                blocks = [self.blocks[p] for p in some]
                where = {} if worker is None else {"workers": worker, "allow_other_workers": True}
                futures.append(
                    self.client.submit(
                        _run, function, some, blocks, shared_by_all, own, pure=False, **where
                    )
                )
            else:
                blocks = [self.blocks[some[0]]]
                futures.append(delayed(_run)(function, some, blocks, shared_by_all, own))
        if not self.held:
            while fold is not None and len(futures) > FOLD:
                futures = [
                    delayed(here)(fold, futures[i : i + FOLD]) for i in range(0, len(futures), FOLD)
                ]
            futures = self.client.compute(futures, optimize_graph=False)
        while self.held and fold is not None and len(futures) > FOLD:
            futures = [
                self.client.submit(here, fold, futures[i : i + FOLD], pure=False)
                for i in range(0, len(futures), FOLD)
            ]
        results = realigned(self.client.gather(futures))
        return [fold(results)] if fold is not None else results

    def lost(self):
        """Some worker did not have what it had before: ask again where the partitions are."""
        self.where = None

    def close(self):
        """Give back what the workers hold of this fit."""
        self.blocks = None
        if self.client.status == "running":
            with contextlib.suppress(Exception):  # of a cluster that is gone there is nothing back
                self.client.run(forget, self.fit)


def _memory_here(dask_worker):
    return dask_worker.memory_manager.memory_limit or np.inf


def fits(client, nbytes):
    """Whether data of so many bytes may be held by the workers."""
    return nbytes <= SHARE * sum(client.run(_memory_here).values())


@contextlib.contextmanager
def team_of(client, parts, beside, prepare, persist, look):
    """A team on ``parts``, and what ``look(team)`` finds: facts, and the sizes of the partitions.

    ``beside`` is what comes with the rows of each partition, ``persist`` whether the workers hold
    the data, or "auto": if they fit.
    """
    found = None
    if persist == "auto":
        if parts.sizes is None:  # how large it is has to be found out
            found = look(Team(client, parts.rows, beside, prepare, False))
        sizes = parts.sizes if found is None else found[1].values()
        persist = _may_be_held(client, parts.collection, parts.row_bytes * sum(sizes))
    team = Team(client, parts.rows, beside, prepare, persist)
    try:
        yield team, *(look(team) if found is None else found)
    finally:
        team.close()


def _may_be_held(client, X, nbytes):
    if futures_of(X) or fits(client, nbytes):
        return True
    warnings.warn(
        f"X takes {nbytes / 2**30:.3g} GiB, more than half of the memory of the workers: every "
        "sweep reads it anew. More workers, or float32, would keep it in memory; persist=True "
        "holds it anyway",
        UserWarning,
        stacklevel=6,
    )
    return False
