"""DPMeans and SphericalDPMeans on dask collections: those of one machine, whatever is lost."""

import inspect
import os
import pickle
import signal
import threading
import time
import warnings
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import assert_refuses, fit, moved, seeds
from problems import FAMILIES, blobs, random_problem, tied_problem
from scipy.sparse import csc_array, csr_array, csr_matrix
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

import smallvar

pytest.importorskip("distributed")
pytest.importorskip("dask.dataframe")

import dask
import dask.array as da
import pandas as pd
from dask_helpers import (
    assert_lazy,
    assert_same_bits,
    chunked,
    cluster_of,
    framed,
    threads_as_workers,
    uneven,
)

import smallvar.dask
from smallvar.dask import _executor, _fit, _part
from smallvar.dask._parts import Block

pytestmark = [
    pytest.mark.timeout(600),
    # of dask 2025.1, where there is a client for something else
    pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler"),
    pytest.mark.filterwarnings("ignore:one cluster is left"),
]
FITTED = (
    "cluster_centers_",
    "objective_path_",
    "inertia_",
    "objective_",
    "n_iter_",
    "n_clusters_",
    "lam_",
)
each_algorithm = pytest.mark.parametrize("algorithm", ["serial", "delayed"])
each_estimator = pytest.mark.parametrize("name", ["DPMeans", "SphericalDPMeans"])
persisted_or_not = pytest.mark.parametrize("persist", [True, False])


@pytest.fixture(scope="module", autouse=True)
def client():
    """Two workers that are threads of this process; the default client of the module."""
    with threads_as_workers() as client:
        yield client


# ---- data in partitions -----------------------------------------------------------------------


def collection(kind, X, weight, sizes):
    """Rows and weights as dask collections of partitions of these lengths."""
    if kind == "array":
        return chunked(X, sizes), chunked(weight, sizes)
    if kind == "masked":  # lengths are not known; each partition has rows that are left out
        more = [size + 1 for size in sizes]
        keep = np.concatenate([[True] * size + [False] for size in sizes])
        padded = np.full((len(keep), X.shape[1]), np.nan, dtype=X.dtype)
        padded[keep] = X
        chosen = chunked(keep, more)
        if weight is not None:
            heavy = np.full(len(keep), np.nan)
            heavy[keep] = weight
            weight = chunked(heavy, more)[chosen]
        return chunked(padded, more)[chosen], weight
    if kind == "sparse":
        rows = chunked(X, sizes).map_blocks(csr_array, dtype=X.dtype, meta=np.empty((0, 0)))
        return rows, chunked(weight, sizes)
    assert kind == "frame"
    return framed(X, weight, sizes)


def assert_same(model, local):
    """Assert that a fit is, bit for bit, that of one machine."""
    assert_same_bits(model, local, FITTED)
    assert_lazy(model.labels_, local.labels_, scheduler="sync")


def test_tasks_are_given_aligned_arrays():
    """Arrays of blocks and messages are aligned for compiled code."""

    def read_only(parts, shared, each):
        return [array.flags.aligned for array in (parts[0][1].X, shared, each[0])]

    block, message = moved((Block(np.ones((3, 2)), None, 3), np.ones(2)))
    assert not block.X.flags.aligned
    assert not message.flags.aligned
    assert all(_executor._run(read_only, [0], [block], message, [message]))


def test_tasks_run_where_the_partitions_are(monkeypatch):
    """Also those of a fit that begins while the partitions are still being computed."""
    rounds, groups = [], _executor.Executor.groups

    def recorded(self, numbers):
        rounds.append(groups(self, numbers))
        return rounds[-1]

    def slowly(rows):
        time.sleep(0.05)
        return rows

    monkeypatch.setattr(_executor.Executor, "groups", recorded)
    X = chunked(blobs(np.random.default_rng(0), 800, 2, 3), [100] * 8)
    X = X.map_blocks(slowly, meta=np.empty((0, 2)))
    smallvar.dask.fit(smallvar.DPMeans(lam=9.0), X, persist=True)
    assert len(rounds) > 1
    for found in rounds:
        workers = [worker for worker, _ in found]
        assert None not in workers and len(set(workers)) == len(workers) <= 2


# ---- the same bits ----------------------------------------------------------------------------


class Task:
    """A task of AtOnce; it runs once, when its result is needed."""

    def __init__(self, run):
        self.key, self.run, self.done = f"task-{id(self)}", run, False

    @property
    def value(self):
        """Result of the task."""
        if not self.done:
            self.result, self.done = self.run(), True
        return self.result


def result_of(item):
    """Value of an argument of a task, which may be another task."""
    if isinstance(item, list):
        return [result_of(one) for one in item]
    return item.value if isinstance(item, Task) else item


class AtOnce:
    """A client whose tasks run when they are asked for: hundreds of fits in the time of a few.

    With ``copies`` whatever is sent is pickled, as between processes; without, it is the object
    itself, as between threads. The tasks of a round that are done first may be any.
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
        return [Task(partial(self._sent, value)) for value in values]

    def submit(self, function, *args, pure, workers=None, allow_other_workers=False):
        return Task(lambda: self._sent(function(*map(result_of, args))))

    def scatter(self, shared, broadcast, hash):
        return Task(partial(self._sent, shared))

    def gather(self, futures):
        for i in self.rng.permutation(len(futures)):
            result_of(futures[i])
        return result_of(futures)

    def who_has(self, futures):
        at = self.rng.integers(self.workers, size=len(futures))
        return {f.key: [f"worker {i}"] for f, i in zip(futures, at.tolist(), strict=True)}

    def run(self, function, *args):
        if "dask_worker" not in inspect.signature(function).parameters:
            return function(*args)
        worker = SimpleNamespace(memory_manager=SimpleNamespace(memory_limit=None))
        return {"worker": function(*args, dask_worker=worker)}


@pytest.fixture
def at_once(monkeypatch):
    """Returns a function that makes the fits to come run on a client AtOnce."""

    def begin(rng, copies):
        client = AtOnce(rng, copies)
        monkeypatch.setattr(_fit, "current_client", lambda: nullcontext(client))
        monkeypatch.setattr(_executor, "wait_for", lambda client, futures: None)
        return client

    return begin


KINDS = ("array", "masked", "frame", "sparse")


def check_pair(name, X, lam, sizes, kind="array", weight=None, *, persist="auto", **options):
    """Fit the rows on one machine and in partitions; returns both models."""
    X = np.ascontiguousarray(X)
    local = getattr(smallvar, name)(lam=lam, **options)
    warned = fit(local, csr_array(X) if kind == "sparse" else X, weight)
    Y, w = collection(kind, X, weight, sizes)
    model = clone(local)
    there = SimpleNamespace(fit=partial(smallvar.dask.fit, model, persist=persist))
    assert fit(there, Y, w) == warned
    assert_same(model, local)
    return model, local


def check_problem(p, algorithm, rng, seed, n_parts=50):
    """Fit a problem on one machine and in partitions of one kind or another."""
    held = seed % 3 > 0
    return check_pair(
        "DPMeans",
        p.X,
        p.lam,
        uneven(rng, len(p.X), n_parts if held else 6),
        KINDS[seed % 4],
        p.weights,
        algorithm=algorithm,
        init="mean" if p.init is None else p.init,
        max_clusters=p.max_clusters,
        max_iter=p.max_iter,
        persist=held,
    )


N_MAX = {"serial": 400, "delayed": 100}


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "shuffle"])
@each_algorithm
@seeds(8)
def test_equals_one_machine(algorithm, family, at_once, seed):
    """Fits in 1 to 50 uneven partitions of any kind, held by workers or read by every sweep."""
    rng = np.random.default_rng([seed, 1])
    at_once(rng, copies=seed % 2 == 0)
    check_problem(random_problem(family, seed, N_MAX[algorithm]), algorithm, rng, seed)


@each_algorithm
@seeds(20)
def test_equals_one_machine_at_ties(algorithm, at_once, seed):
    """Fits of grids and repeated rows; also sorted, so that a partition has clusters of its own."""
    rng = np.random.default_rng([seed, 2])
    at_once(rng, copies=seed % 2 == 0)
    p = tied_problem(seed, n=120)
    if seed % 3 == 1:
        p.X = p.X[np.lexsort(p.X.T)]
    check_problem(p, algorithm, rng, seed)


@each_algorithm
@seeds(12)
def test_equals_one_machine_sorted(algorithm, at_once, seed):
    """Each partition is one cluster, in the order in which they are or in the reverse."""
    rng = np.random.default_rng([seed, 3])
    at_once(rng, copies=seed % 2 == 0)
    k = int(rng.integers(2, 9))
    z = np.sort(rng.integers(k, size=100))[:: 1 if seed % 2 else -1]
    X = 5.0 * rng.normal(size=(k, 2))[z] + 0.5 * rng.normal(size=(100, 2))
    sizes = np.bincount(np.abs(np.diff(z, prepend=z[0])).cumsum(), minlength=k).tolist()
    check_pair("DPMeans", X, 4.0, sizes, KINDS[seed % 4], algorithm=algorithm, persist=seed % 3 > 0)


@pytest.mark.parametrize("weights", ["ones", "zero partitions", "extreme", "one row"])
@each_algorithm
@seeds(4)
def test_weights(algorithm, weights, at_once, seed):
    """Weights that are all 1, zero in whole partitions, of all sizes, or zero but for one row."""
    rng = np.random.default_rng([seed, 4])
    at_once(rng, copies=True)
    X = blobs(rng, 150, 2, 6)
    sizes = [20, 0, 50, 10, 1, 69]
    weight = np.ones(150)
    if weights == "zero partitions":
        weight = rng.gamma(1.0, size=150)
        weight[:20] = weight[70:80] = 0.0
    elif weights == "extreme":
        weight = 10.0 ** rng.uniform(-9, 9, size=150)
    elif weights == "one row":
        weight[np.arange(150) != 75] = 0.0
    options = {"algorithm": algorithm, "persist": seed > 0, "max_clusters": 20}
    model, _ = check_pair("DPMeans", X, 0.05, sizes, KINDS[seed], weight, **options)
    assert model.n_clusters_ > 1 or weights == "one row"


@seeds(8)
def test_options(at_once, seed):
    """tol, few sweeps, far centers that become empty, a cap, a cluster for each row."""
    rng = np.random.default_rng([seed, 5])
    at_once(rng, copies=seed % 2 == 0)
    X = blobs(rng, 200, 2, 8)
    far = np.vstack([X[:3], rng.normal(size=(4, 2)) * 100])
    algorithm = ("serial", "delayed")[seed % 2]
    for options in (
        {"lam": 0.02, "tol": 0.05},
        {"lam": 0.02, "max_iter": 1},
        {"lam": 0.05, "max_iter": 2, "init": far},
        {"lam": 0.05, "init": far, "max_clusters": 9},
        {"lam": 0.0, "max_clusters": 7},
        {"lam": 1e9},
    ):
        lam, sizes = options.pop("lam"), uneven(rng, 200, 12)
        check_pair("DPMeans", X, lam, sizes, algorithm=algorithm, persist=seed % 4 > 1, **options)
    X = rng.normal(size=(30, 2))
    model, _ = check_pair("DPMeans", X, 1e-9, uneven(rng, 30, 8), algorithm=algorithm)
    assert model.n_clusters_ == 30


def sphere_rows(rng, seed, n):
    """Rows of any length about some directions; opposite ones, so that sums vanish, in some."""
    d = int(rng.integers(2, 6))
    X = rng.normal(size=(6, d))[rng.integers(6, size=n)] + 0.1 * rng.normal(size=(n, d))
    if seed % 4 == 0:
        X[1::2] = -X[::2][: n // 2]
    if seed % 2:
        X *= rng.uniform(0.1, 10, size=(n, 1))
    else:
        X /= np.sqrt(np.square(X).sum(axis=1))[:, None]
    return X.astype(np.float32) if seed % 3 == 1 else X


@each_algorithm
@seeds(12)
def test_rows_without_direction(algorithm, at_once, seed):
    """They may fill partitions, and take no part: the fit is that of one machine without them."""
    rng = np.random.default_rng([seed, 7])
    at_once(rng, copies=seed % 2 == 0)
    n = 60
    X = sphere_rows(rng, seed, n)
    sizes = [10, 0, 20, 5, 25]
    zero = rng.random(n) < 0.2
    zero[10:30] = True
    X[zero] = 0.0
    weight = rng.gamma(1.0, size=n) if seed % 3 == 0 else None
    kind = KINDS[seed % 4]
    data, weights = collection(kind, X, weight, sizes)
    options = {"min_cosine": 0.8, "algorithm": algorithm} if seed % 4 else {"random_state": 0}
    model = smallvar.SphericalDPMeans(**options)
    with pytest.warns(UserWarning, match=f"X has {zero.sum()} rows of length zero: without"):
        smallvar.dask.fit(model, data, sample_weight=weights, persist=seed % 3 > 0)
    few, few_weights = X[~zero], None if weight is None else weight[~zero]
    few = csr_array(few) if kind == "sparse" else few
    local = smallvar.SphericalDPMeans(**options).fit(few, sample_weight=few_weights)
    expected = np.full(n, -1, dtype=np.int32)
    expected[~zero] = local.labels_
    assert np.array_equal(model.labels_.compute(), expected)
    for name in ("cluster_centers_", "resultant_lengths_", "objective_", "inertia_", "n_iter_"):
        rtol = 0.0 if "min_cosine" in options else 1e-12  # equal bits for a given penalty only
        np.testing.assert_allclose(getattr(model, name), getattr(local, name), rtol=rtol)
    assert (smallvar.dask.transform(model, data).compute()[zero] == 1.0).all()
    score = local.score(few, sample_weight=few_weights)
    found = smallvar.dask.score(model, data, sample_weight=weights)
    assert found == pytest.approx(score, rel=1e-12)


@pytest.mark.parametrize("block", [csr_array, csr_matrix, csc_array])
@pytest.mark.parametrize("name", ["DPMeans", "SphericalDPMeans", "MiniBatchDPMeans"])
@pytest.mark.parametrize("options", [{}, {"n_clusters": 4}, {"max_clusters": 2}, {"lam": 3.0}])
@pytest.mark.parametrize("sampled", [False, True])
def test_sparse_blocks(block, name, options, sampled, monkeypatch):
    """They give what dense blocks give, also where the data choose, from all rows or a sample."""
    if sampled:
        monkeypatch.setattr(_fit, "CHOICE_ROWS", 60)
    rng = np.random.default_rng(0)
    X = 9.0 * np.eye(6)[rng.integers(3, size=90)]
    X += (rng.random(X.shape) < 0.3) * rng.random(X.shape)
    dense = chunked(X, [25, 0, 40, 25])
    weight = rng.integers(1, 4, size=90).astype(float) if block is csr_matrix else None
    model = getattr(smallvar, name)(random_state=0, **options)
    expected = smallvar.dask.fit(clone(model), dense, sample_weight=weight)
    rows = dense.map_blocks(block, dtype=X.dtype, meta=np.empty((0, 0)))
    smallvar.dask.fit(model, rows, sample_weight=weight)
    assert np.array_equal(model.labels_.compute(), expected.labels_.compute())
    assert model.n_clusters_ == expected.n_clusters_
    for fitted in ("lam_", "objective_", "cluster_centers_"):
        np.testing.assert_allclose(getattr(model, fitted), getattr(expected, fitted), atol=1e-9)
    assert_lazy(smallvar.dask.predict(model, rows), model.labels_.compute())


@pytest.mark.parametrize("sizes", [[3, 3], [6, 0], [0, 0, 6]])
def test_only_rows_without_direction(sizes):
    with pytest.raises(ValueError, match="X must have a row that has a direction, got 6 of length"):
        smallvar.dask.fit(smallvar.SphericalDPMeans(), da.zeros((6, 2), chunks=(tuple(sizes), 2)))


@pytest.mark.parametrize("name", ["DPMeans", "MiniBatchDPMeans", "SphericalDPMeans"])
@pytest.mark.parametrize("method", ["fit", "score"])
def test_weights_of_a_partition_without_rows_are_checked(name, method):
    """They must be as few."""
    X = da.ones((6, 2), chunks=((3, 0, 3), 2))
    weight = da.ones(6, chunks=((3, 0, 3),))
    model = smallvar.dask.fit(getattr(smallvar, name)(lam=1.0), X, sample_weight=weight)
    wrong = da.concatenate([weight[:3], da.ones(2, chunks=2), weight[3:]])
    assert wrong.numblocks == (3,) and wrong.chunks == ((3, 2, 3),)
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(0,\), got \(2,\)"):
        getattr(smallvar.dask, method)(model, X, sample_weight=wrong)


@each_algorithm
@seeds(50)
def test_spherical_equals_one_machine(algorithm, at_once, seed):
    """Fits of directions, for penalties from tiny ones to one that unites opposite rows."""
    rng = np.random.default_rng([seed, 6])
    at_once(rng, copies=seed % 2 == 0)
    n = int(rng.integers(2, 200 if algorithm == "serial" else 80)) // 2 * 2
    X = sphere_rows(rng, seed, n)
    weight = None
    if seed % 5 == 0:
        weight = rng.gamma(1.0, size=n) * (rng.random(n) < 0.8)
        weight[n // 2] = 1.0
    elif seed % 5 == 1:
        weight = 2.0 ** rng.integers(-1, 2, size=n)
    options = {"algorithm": algorithm, "persist": seed % 3 > 0}
    if seed % 7 == 0:
        options |= {"init": np.vstack([X[:1], -X[:1], rng.normal(size=(2, X.shape[1]))])}
    if seed % 6 == 0:
        options |= {"max_clusters": 5}
    if seed % 6 == 1:
        options |= {"max_iter": 1 + seed % 2}
    lam = float(rng.choice([0.01, 0.1, 0.4, 1.2, 1.9, 2.5]))
    sizes = uneven(rng, n, 50 if options["persist"] else 6)
    model, local = check_pair("SphericalDPMeans", X, lam, sizes, KINDS[seed % 4], weight, **options)
    assert model.min_cosine_ == local.min_cosine_
    assert model.resultant_lengths_.tobytes() == local.resultant_lengths_.tobytes()


@pytest.mark.long
@each_algorithm
def test_sums_that_vanish(algorithm, at_once):
    """x and -x in one cluster, in partitions of their own: it is dropped, its rows go elsewhere."""
    at_once(np.random.default_rng(7), copies=True)
    X = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [0.6, 0.8]])
    for weight in (None, np.ones(5), np.array([1.0, 1.0, 2.0, 2.0, 0.0])):
        for rows in (X, X[:2], X[2:], np.vstack([X, X[::-1]])):
            n = len(rows)
            w = None if weight is None else np.resize(weight, n)
            for lam in (0.5, 1.0, 2.0, 3.0):
                for init in ("first", np.array([[1.0, 0.0], [0.0, 1.0]])):
                    options = {"init": init, "algorithm": algorithm}
                    check_pair("SphericalDPMeans", rows, lam, [1] * n, "array", w, **options)


@each_estimator
@each_algorithm
@seeds(6)
def test_equals_one_machine_on_threads(name, algorithm, seed):
    """Fits on the workers of the module, which share their memory."""
    rng = np.random.default_rng([seed, 8])
    X = rng.normal(size=(5, 3))[rng.integers(5, size=150)] + 0.2 * rng.normal(size=(150, 3))
    weight = rng.gamma(1.0, size=150) if seed % 2 else None
    sizes = uneven(rng, 150, 10 if seed % 3 else 4)
    lam = 0.5 if name == "DPMeans" else 0.1
    options = {"algorithm": algorithm, "persist": seed % 3 > 0}
    check_pair(name, X, lam, sizes, KINDS[seed % 4], weight, **options)


# ---- what is lost -----------------------------------------------------------------------------


@each_estimator
@each_algorithm
@seeds(14)
def test_states_that_are_forgotten(name, algorithm, at_once, monkeypatch, seed):
    """Fits are the same whatever states workers forget, and whenever."""
    rng = np.random.default_rng([seed, 9])
    at_once(rng, copies=seed % 2 == 0)
    share, forgotten = (0.1, 0.3, 0.9, 1.0)[seed % 4], []

    def take_or_forget(fit, p):
        state = _executor.take_state(fit, p)
        if state is not None and rng.random() < share:
            forgotten.append(p)
            return None
        return state

    monkeypatch.setattr(_part, "take_state", take_or_forget)
    n = 60 if algorithm == "delayed" else 150
    X = sphere_rows(rng, seed, n)
    weight = rng.gamma(1.0, size=n) if seed % 3 == 0 else None
    lam = float(rng.choice([0.02, 0.1, 0.3]))
    options = {"algorithm": algorithm, "persist": True}
    if seed % 5 == 0:
        options |= {"max_iter": 2}
    if seed % 5 == 1:
        options |= {"init": np.vstack([X[:2], 50.0 + np.arange(X.shape[1])])}
    check_pair(name, X, lam, uneven(rng, n, 8), KINDS[seed % 4], weight, **options)
    assert forgotten or share < 0.5


@pytest.mark.parametrize(("algorithm", "lam"), [("serial", 9.0), ("delayed", 20.0)])
def test_an_answer_given_twice(monkeypatch, algorithm, lam):
    """The second answer is the first one, though the worker has swept its rows already."""
    run = _executor._run

    def twice(*task):
        first, second = run(*task), run(*task)
        if hasattr(first, "moved"):
            assert (second.moved, second.fresh) == (first.moved, first.fresh)
            assert all(np.array_equal(second.opened[p], first.opened[p]) for p in first.opened)
        return second

    monkeypatch.setattr(_executor, "_run", twice)
    rng = np.random.default_rng(0)
    X = 3.0 * rng.standard_normal((40, 3))[rng.integers(40, size=3000)]
    X += rng.standard_normal(X.shape)
    model, local = check_pair("DPMeans", X, lam, [500] * 6, algorithm=algorithm, persist=True)
    assert model.n_clusters_ > 5 and local.n_iter_ > 5


def some_rows(seed=0, n=1000):
    """Rows whose fit with lam = 1 takes a while: some twenty sweeps that change something."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)) + rng.integers(0, 3, (n, 1)) * 3.0


def kill_one(cluster, rng):
    """End the process of a worker, as the system does that has no memory left."""
    nannies = [nanny for nanny in cluster.workers.values() if nanny.pid is not None]
    os.kill(nannies[rng.integers(len(nannies))].pid, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # what dask has to say of workers that are gone
@pytest.mark.parametrize("n_workers", [2, 4])
@pytest.mark.parametrize("moments", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_a_worker_is_killed(n_workers, moments):
    """A worker dies at a random moment of the fit: the result is the same."""
    rng = np.random.default_rng([n_workers, moments])
    X = some_rows()
    local = smallvar.DPMeans(lam=4.0).fit(X)
    with cluster_of(n_workers) as (cluster, client):
        Y = da.from_array(X, chunks=((200, 100, 0, 300, 1, 399), (3,)))
        model = smallvar.DPMeans(lam=4.0)
        for _ in range(2):  # the first one also imports
            begin = time.perf_counter()
            assert_same(smallvar.dask.fit(model, Y, persist=True), local)
            length = time.perf_counter() - begin
        for _ in range(moments):
            killer = threading.Timer(length * rng.random(), kill_one, (cluster, rng))
            killer.start()
            smallvar.dask.fit(model, Y, persist=bool(rng.random() < 0.8))
            killer.join()
            assert_same(model, local)
            cluster.scale(n_workers)  # it does not replace all that are gone
            client.wait_for_workers(n_workers, timeout=60)


# ---- what cannot go on ------------------------------------------------------------------------


def deadly(block):
    """A partition that kills its worker."""
    if len(block) == 3:
        os._exit(1)
    return block


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@persisted_or_not
def test_a_partition_that_kills_its_workers(persist):
    """The fit raises a clear error, and the estimator is as it was."""
    X = some_rows()
    good = da.from_array(X, chunks=((500, 497, 3), (3,)))
    with cluster_of(2):
        model = smallvar.dask.fit(smallvar.DPMeans(lam=4.0), good, persist=persist)
        bad = good.map_blocks(deadly, dtype=float, meta=np.empty((0, 0)))
        again = partial(smallvar.dask.fit, X=bad, persist=persist)
        assert_refuses(model, again, RuntimeError, "workers died again and again")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", ["scheduler", "client"])
def test_the_cluster_goes_away(what, monkeypatch):
    """The scheduler or client is lost in a fit: an error that says so, estimator unchanged."""
    good = da.from_array(some_rows(), chunks=((500, 500), (3,)))
    with cluster_of(2) as (cluster, client):
        again = partial(smallvar.dask.fit, X=good, persist=True)
        model = again(smallvar.DPMeans(lam=4.0))
        call, rounds = _executor.Executor.call, []

        def lose(executor, *args, **options):
            rounds.append(executor)
            if len(rounds) == 6 and what == "client":
                client.close()
            elif len(rounds) == 6:
                cluster.close()
            return call(executor, *args, **options)

        monkeypatch.setattr(_executor.Executor, "call", lose)
        assert_refuses(model, again, RuntimeError, "was lost during the fit")


def unreadable(block):
    """A partition that cannot be read."""
    if len(block) == 3:
        raise OSError("part-2.parquet: no such file")
    return block


@persisted_or_not
def test_a_partition_that_cannot_be_read(persist):
    """The error of the reader is raised, with its text; the estimator is as it was."""
    good = da.from_array(some_rows(), chunks=((500, 497, 3), (3,)))
    model = smallvar.dask.fit(smallvar.DPMeans(lam=4.0), good)
    bad = good.map_blocks(unreadable, dtype=float, meta=np.empty((0, 0)))
    again = partial(smallvar.dask.fit, X=bad, persist=persist)
    assert_refuses(model, again, OSError, "part-2.parquet: no such file")


# ---- collections, and what else the estimators do ---------------------------------------------


@pytest.mark.parametrize("dtype", [float, np.float32, int])
def test_frames(dtype, at_once):
    """Names of columns are learned and checked; results for a frame are lazy."""
    at_once(np.random.default_rng(0), copies=True)
    X, w = some_rows(n=90).astype(dtype), np.linspace(0.5, 2, 90)
    frame, weight = collection("frame", X, w, [30, 0, 60])
    table = pd.DataFrame(X, columns=frame.columns)
    local = smallvar.DPMeans(lam=4.0).fit(table, sample_weight=w)
    model = smallvar.dask.fit(smallvar.DPMeans(lam=4.0), frame, sample_weight=weight)
    assert_lazy(model.labels_, local.labels_, scheduler="sync")
    assert model.feature_names_in_.tolist() == list(frame.columns)
    for given, expected in ((None, None), (weight, w)):
        score = local.score(table, None, expected)
        np.testing.assert_allclose(smallvar.dask.score(model, frame, sample_weight=given), score)
    with pytest.raises(ValueError, match="feature names"):
        smallvar.dask.predict(model, frame[frame.columns[::-1]])
    smallvar.dask.fit(model, da.from_array(X, chunks=30))
    assert not hasattr(model, "feature_names_in_")
    with pytest.raises(ValueError, match="expecting 3 features"):
        smallvar.dask.transform(model, da.ones((4, 2)))


MODELS = {
    "DPMeans": smallvar.DPMeans(lam=40.0),
    "SphericalDPMeans": smallvar.SphericalDPMeans(min_cosine=0.8),
    "MiniBatchDPMeans": smallvar.MiniBatchDPMeans(lam=40.0),
    "HDPMeans": smallvar.HDPMeans(lam_local=30.0, lam_global=90.0),
    "ShapeMeans": smallvar.ShapeMeans(random_state=0),
}
OF_ROWS = {
    **dict.fromkeys(("probabilities_", "outlier_scores_"), "call smallvar.dask."),
    **dict.fromkeys(("profiles_", "representatives_"), "call its method fit|batch"),
}


@pytest.mark.parametrize("name", MODELS)
def test_methods_of_rows(name):
    """Probabilities and the rest are those of one machine; what needs all rows names a function."""
    X = blobs(np.random.default_rng(0), 600, 3, 4) * 20.0
    frame, _ = collection("frame", X, None, [200, 0, 400])
    table = pd.DataFrame(X, columns=frame.columns)
    local, model, beside = clone(MODELS[name]), clone(MODELS[name]), {}
    if name == "HDPMeans":
        beside = {"groups": np.repeat([1, 2, 3], 200)}
        arrays = chunked(X, [200, 0, 400])
        assert smallvar.dask.fit(model, arrays, **beside) is model
        frame, table = arrays, X
    else:
        assert smallvar.dask.fit(model, frame) is model
    if name == "MiniBatchDPMeans":
        local.partial_fit(table[:200]).partial_fit(table[200:])
    else:
        local.fit(table, **beside)
        assert_lazy(model.labels_, local.labels_)
    for method, options in (
        *(("predict_proba", {"unknown": flag}) for flag in (False, True)),
        *((method, {}) for method in ("score_samples", "outlier_scores", "predict", "transform")),
    ):
        if not hasattr(local, method):
            with pytest.raises(TypeError, match=f"must have the method {method}, got {name}"):
                smallvar.dask.transform(model, frame)
            continue
        expected = getattr(local, method)(table, **options)
        lazy = getattr(smallvar.dask, method)(model, frame, **options)
        assert isinstance(lazy, da.Array)
        assert (lazy.dtype, lazy.shape[1:]) == (expected.dtype, expected.shape[1:])
        assert np.array_equal(lazy.compute(), expected)
        assert np.array_equal(getattr(model, method)(table, **options), expected)
    for attribute, words in OF_ROWS.items():
        if (name, attribute) != ("MiniBatchDPMeans", "profiles_"):  # of its running means
            with pytest.raises(AttributeError, match=words):
                getattr(model, attribute)
    smallvar.dask.fit(model, frame, **beside, labels=False)
    loaded = pickle.loads(pickle.dumps(model))
    assert not hasattr(loaded, "labels_")
    assert np.array_equal(loaded.predict_proba(table), local.predict_proba(table))
    with pytest.raises(NotFittedError):
        smallvar.dask.predict(clone(model), frame)
    if name == "ShapeMeans":
        with pytest.raises(TypeError, match="model must have an objective of new rows"):
            smallvar.dask.score(model, frame)
    elif name != "HDPMeans":
        assert smallvar.dask.score(model, frame) == pytest.approx(local.score(table), rel=1e-12)
        with pytest.raises(ValueError, match="groups must be None"):
            smallvar.dask.predict(model, frame, groups=np.ones(600))


def test_a_sample_tells_how_strange_rows_are(monkeypatch):
    """Of more rows, probabilities are measured on a sample; the model is fitted to all."""
    monkeypatch.setattr(_fit, "MODEL_ROWS", 500)
    monkeypatch.setattr(_fit, "MODEL_NUMBERS", 1)
    X = blobs(np.random.default_rng(0), 4000, 2, 3) * 20.0
    model = smallvar.dask.fit(smallvar.DPMeans(lam=30.0, random_state=0), chunked(X, [3000, 1000]))
    local = smallvar.DPMeans(lam=30.0).fit(X)
    assert np.array_equal(model.cluster_centers_, local.cluster_centers_)
    found, expected = model.outlier_scores(X), local.outlier_scores(X)
    assert 0.0 < np.abs(found - expected).mean() < 0.1


def rows_with(value, dtype=float):
    """Two partitions; the second one has this value."""
    X = np.ones((6, 2), dtype=dtype)
    X[4, 1] = value
    return da.from_array(X, chunks=(3, 2))


ROWS = da.ones((6, 2), chunks=(3, 2))
BAD = {
    "numpy": (TypeError, ({}, np.ones((6, 2)), None), ("X must be a dask array",)),
    "columns": (ValueError, ({}, da.ones((6, 2), chunks=(3, 1)), None), ("one chunk", "rechunk")),
    "one dimension": (ValueError, ({}, da.ones(6, chunks=3), None), ("two dimensions",)),
    "NaN": (ValueError, ({}, rows_with(np.nan), None), ("partition 1", "NaN")),
    "strings": (ValueError, ({}, rows_with("x", object), None), ("partition 1",)),
    "complex": (ValueError, ({}, ROWS.astype(complex), None), ("partition [01]", "[Cc]omplex")),
    "negative": (
        ValueError,
        ({}, ROWS, np.array([1.0, 1, 1, 1, -1, 1])),
        ("partition 1", "sample_weight", ">= 0"),
    ),
    "zeros": (
        ValueError,
        ({}, ROWS, np.zeros(6)),
        ("sample_weight must have a positive entry, got all zeros|of positive weight, got none",),
    ),
    "other partitions": (
        ValueError,
        ({}, ROWS, da.ones(6, chunks=2)),
        ("sample_weight", "partitions of X", "3 for 2"),
    ),
    "other lengths": (
        ValueError,
        ({}, ROWS, da.ones(6, chunks=((2, 4),))),
        ("partition [01]", "sample_weight", r"\(3,\)"),
    ),
    "unknown": (
        ValueError,
        ({}, ROWS[ROWS[:, 0] > 0], np.ones(6)),
        ("sample_weight must be a dask collection",),
    ),
    "short": (ValueError, ({}, ROWS, np.ones(5)), (r"shape \(6,\)",)),
    "no rows": (ValueError, ({}, ROWS[ROWS[:, 0] > 5], None), ("at least one row",)),
    "persist": (ValueError, ({"persist": "yes"}, ROWS, None), ("persist", "auto")),
    "labels": (TypeError, ({"labels": 1}, ROWS, None), ("labels",)),
    "groups": (ValueError, ({"groups": [1] * 6}, ROWS, None), ("groups must be None",)),
    "max_opened": (ValueError, ({"max_opened": 0}, ROWS, None), ("max_opened", ">= 1")),
    "too many": (
        RuntimeError,
        ({"max_opened": 2}, da.from_array(9.0 * np.eye(6), chunks=(3, 6)), None),
        ("lam=1 opens more than 2 clusters", "max_clusters"),
    ),
}


# of rows and weights alone, in the words of all
COMMON = [case for case, (_, (options, *_), _) in BAD.items() if not options and case != "no rows"]


@pytest.mark.parametrize("case", COMMON)
@pytest.mark.parametrize("name", MODELS)
def test_data_that_every_estimator_refuses(name, case):
    errors, (_, X, weight), words = BAD[case]
    beside = {"groups": [1, 1, 1, 2, 2, 2]} if name == "HDPMeans" else {}
    model = smallvar.dask.fit(clone(MODELS[name]), ROWS, **beside)
    again = partial(smallvar.dask.fit, X=X, sample_weight=weight, **beside)
    assert_refuses(model, again, errors, *words)


@pytest.mark.parametrize("case", BAD)
@persisted_or_not
def test_refuses(case, persist, at_once):
    """Errors name the partition; the estimator is as it was."""
    at_once(np.random.default_rng(0), copies=True)
    errors, (options, X, weight), words = BAD[case]
    model = smallvar.dask.fit(smallvar.DPMeans(lam=1.0), ROWS, persist=persist)
    again = partial(smallvar.dask.fit, X=X, sample_weight=weight, **{"persist": persist, **options})
    assert_refuses(model, again, errors, *words)


NOT_FOR_PARTITIONS = {
    "DPMeans": (
        *({"n_init": 2}, {"shuffle": True}, {"metric": "auto", "lam": "auto"}),
        *({"min_cluster_size": 3}, {"link_penalty": 2.0}, {"lam": "farthest-first"}),
        *({"algorithm": "collapsed"}, {"algorithm": "merge"}),
    ),
    "SphericalDPMeans": ({"n_init": 2}, {"shuffle": True}, {"lam": "farthest-first"}),
    "MiniBatchDPMeans": ({"batch_size": 9}, {"max_iter": 3}, {"tol": 0.5}),
    "HDPMeans": (
        *({"n_init": 2}, {"lam_local": "auto"}, {"lam_global": "farthest-first"}),
        *({"divergence": "kl"}, {"n_clusters": 2, "lam_global": "auto"}),
    ),
    "ShapeMeans": ({"min_cluster_size": 3},),
}


@pytest.mark.parametrize("name", NOT_FOR_PARTITIONS)
def test_parameters_that_cannot_be_honored(name):
    beside = {"groups": [1, 1, 1, 2, 2, 2]} if name == "HDPMeans" else {}
    for options in NOT_FOR_PARTITIONS[name]:
        model = clone(MODELS[name])
        if "lam" in options and name == "SphericalDPMeans":
            model.set_params(min_cosine=None)
        model.set_params(**options)
        again = partial(smallvar.dask.fit, X=ROWS, **beside)
        assert_refuses(model, again, ValueError, f"{next(iter(options))} must be")


def test_models():
    """Other estimators are refused; a subclass of a user is fitted."""
    for other in (smallvar.BregmanDPMeans(), smallvar.DPMeans, smallvar.KernelDPMeans(), "DPMeans"):
        with pytest.raises(TypeError, match="model must be one of DPMeans, SphericalDPMeans"):
            smallvar.dask.fit(other, ROWS)
    with pytest.raises(TypeError, match="model must be a MiniBatchDPMeans, got DPMeans"):
        smallvar.dask.partial_fit(smallvar.DPMeans(), ROWS)
    with pytest.raises(ValueError, match="persist and max_opened must have their defaults"):
        smallvar.dask.fit(smallvar.MiniBatchDPMeans(), ROWS, persist=True)

    class Mine(smallvar.DPMeans):
        """One with the parameters of DPMeans."""

    model = smallvar.dask.fit(Mine(lam=1.0, max_iter=5), ROWS)
    assert isinstance(model, Mine) and model.n_clusters_ == 1 and model.max_iter == 5


def sets():
    """Names and rows: generated, and of SMALLVAR_DATA where that is present."""
    for seed in range(14):
        rng = np.random.default_rng([seed, 11])
        d, k = int(rng.integers(2, 6)), int(rng.integers(2, 9))
        yield (
            f"generated {seed}",
            blobs(rng, int(rng.integers(150, 500)), d, k, 0.03 + 0.02 * (seed % 3)),
        )
    for name in ("iris", "wine", "vehicle", "pima", "breast_cancer", "balance_scale"):
        path = Path(os.environ.get("SMALLVAR_DATA", ""), "uci", f"{name}.csv")
        if path.is_file():
            numbers = pd.read_csv(path, header=None).apply(pd.to_numeric, errors="coerce")
            X = numbers.dropna(axis=1, thresh=len(numbers) - 2).dropna().to_numpy()
            yield name, X[:, X.std(axis=0) > 0]


@pytest.mark.filterwarnings("ignore::smallvar.ScaleWarning")  # tables of UCI as they are
@each_estimator
def test_auto(name, at_once):
    """The data choose the same number of clusters as on one machine, and the same clusters."""
    at_once(np.random.default_rng(0), copies=True)
    for which, X in sets():
        rng = np.random.default_rng(0)
        local = getattr(smallvar, name)(lam="auto", random_state=0).fit(X)
        Y, _ = collection("array", X, None, uneven(rng, len(X), 8))
        model = smallvar.dask.fit(clone(local), Y)
        assert model.n_clusters_ == local.n_clusters_, which
        labels = model.labels_.compute(scheduler="sync")
        assert adjusted_rand_score(labels, local.labels_) >= 0.99, which
