"""Fits in partitions: those of one machine, bit for bit, whatever is lost."""

import os
import signal
import threading
import time
from collections import Counter
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
from helpers import assert_refuses, seeds
from problems import FAMILIES, Problem, blobs, random_problem, tied_problem
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from test_hdp import problem as hdp_problem

from smallvar import DPMeans, HDPMeans, SphericalDPMeans

pytest.importorskip("distributed")
pytest.importorskip("dask.dataframe")

import dask.array as da
from dask_helpers import (
    AtOnce,
    assert_same,
    check,
    chunked,
    cluster_of,
    collection,
    threads_as_workers,
    uneven,
)

import smallvar.dask
from smallvar.dask import _executor, _fit, _part, _sweep

pytestmark = [
    pytest.mark.timeout(600),
    # of dask 2025.1, where there is a client for something else
    pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler"),
    pytest.mark.filterwarnings("ignore:one cluster is left"),
]
each_algorithm = pytest.mark.parametrize("algorithm", ["serial", "delayed"])
persisted_or_not = pytest.mark.parametrize("persist", [True, False])
KINDS = ("array", "masked", "frame", "sparse")


@pytest.fixture
def at_once(monkeypatch):
    """Returns a function that makes the fits to come run on a client AtOnce."""

    def begin(rng, copies):
        client = AtOnce(rng, copies)
        monkeypatch.setattr(_fit, "current_client", lambda: nullcontext(client))
        monkeypatch.setattr(_executor, "wait_for", lambda client, futures: None)
        return rng

    return begin


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
    with threads_as_workers():
        X = X.map_blocks(slowly, meta=np.empty((0, 2)))
        smallvar.dask.fit(DPMeans(lam=9.0), X, persist=True)
    assert len(rounds) > 1
    for found in rounds:
        workers = [worker for worker, _ in found]
        assert None not in workers and len(set(workers)) == len(workers) <= 2


# ---- the same bits ------------------------------------------------------------------------------


def weighted(rng, family):
    """A problem whose weights are 1, 0 in whole partitions, of all sizes, or 0 but for one row."""
    weight = np.ones(150)
    if family == "weights 0":
        weight = rng.gamma(1.0, size=150)
        weight[:20] = weight[70:80] = 0.0
    elif family == "weights of all sizes":
        weight = 10.0 ** rng.uniform(-9, 9, size=150)
    elif family == "weight of one row":
        weight[np.arange(150) != 75] = 0.0
    return Problem(blobs(rng, 150, 2, 6), 0.05, weight, max_clusters=20)


def problem_of(family, seed, n):
    """A Problem of a family, with ties, of weights, or with clusters in partitions of their own."""
    rng = np.random.default_rng([seed, 3])
    if family.startswith("weight"):
        return weighted(rng, family)
    if family == "sorted":
        z = np.sort(rng.integers(6, size=100))[:: 1 if seed % 2 else -1]
        return Problem(5.0 * rng.normal(size=(6, 2))[z] + 0.5 * rng.normal(size=(100, 2)), 4.0)
    if family != "ties":
        return random_problem(family, seed, n)
    p = tied_problem(seed, n=120)
    if seed % 3 == 1:
        p.X = p.X[np.lexsort(p.X.T)]
    return p


WEIGHTS = "weights 1", "weights 0", "weights of all sizes", "weight of one row"


@pytest.mark.parametrize("family", [*FAMILIES, "ties", "sorted", *WEIGHTS])
@each_algorithm
@seeds(10)
def test_equals_one_machine(algorithm, family, at_once, seed):
    """Fits in 1 to 50 uneven partitions of any kind, held by workers or read by every sweep."""
    rng = at_once(np.random.default_rng([seed, 1]), copies=seed % 2 == 0)
    p, held = problem_of(family, seed, 400 if algorithm == "serial" else 100), seed % 3 > 0
    init = "mean" if p.init is None else p.init
    settings = {"max_clusters": p.max_clusters, "max_iter": p.max_iter, "init": init}
    model = DPMeans(lam=p.lam, algorithm=algorithm, **settings)
    sizes = uneven(rng, len(p.X), 50 if held else 6)
    check(model, p.X, sizes, KINDS[seed % 4], p.weights, persist=held)


@seeds(8)
def test_options(at_once, seed):
    """tol, centers that become empty in two sweeps, a cluster for all rows or for each."""
    rng = at_once(np.random.default_rng([seed, 5]), copies=seed % 2 == 0)
    X = blobs(rng, 200, 2, 8)
    far = np.vstack([X[:3], rng.normal(size=(4, 2)) * 100])
    of_two_sweeps = {"lam": 0.05, "max_iter": 2, "init": far}
    for options in ({"lam": 0.02, "tol": 0.05}, of_two_sweeps, {"lam": 1e9}, {"lam": 1e-9}):
        rows = X[:30] if options["lam"] == 1e-9 else X
        model = DPMeans(algorithm=("serial", "delayed")[seed % 2], **options)
        check(model, rows, uneven(rng, len(rows), 12), persist=seed % 4 > 1)
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
@seeds(50)
def test_spherical_equals_one_machine(algorithm, at_once, seed):
    """Fits of directions, for penalties from tiny ones to one that unites opposite rows."""
    rng = at_once(np.random.default_rng([seed, 6]), copies=seed % 2 == 0)
    n, held = int(rng.integers(2, 200 if algorithm == "serial" else 80)) // 2 * 2, seed % 3 > 0
    X, weight = sphere_rows(rng, seed, n), None
    if seed % 5 == 0:
        weight = rng.gamma(1.0, size=n) * (rng.random(n) < 0.8)
        weight[n // 2] = 1.0
    elif seed % 5 == 1:
        weight = 2.0 ** rng.integers(-1, 2, size=n)
    lam = float(rng.choice([0.01, 0.1, 0.4, 1.2, 1.9, 2.5]))
    model = SphericalDPMeans(lam=lam, algorithm=algorithm)
    if seed % 7 == 0:
        model.set_params(init=np.vstack([X[:1], -X[:1], rng.normal(size=(2, X.shape[1]))]))
    if seed % 6 < 2:
        model.set_params(**({"max_iter": 1 + seed % 2} if seed % 6 else {"max_clusters": 5}))
    check(model, X, uneven(rng, n, 50 if held else 6), KINDS[seed % 4], weight, persist=held)


@each_algorithm
@seeds(12)
def test_rows_without_direction(algorithm, at_once, seed):
    """They may fill partitions, and take no part: the fit is that of one machine without them."""
    rng = at_once(np.random.default_rng([seed, 7]), copies=seed % 2 == 0)
    X, sizes, zero = sphere_rows(rng, seed, 60), [10, 0, 20, 5, 25], rng.random(60) < 0.2
    zero[10:30] = True
    X[zero] = 0.0
    weight, kind = rng.gamma(1.0, size=60) if seed % 3 == 0 else None, KINDS[seed % 4]
    data, weights = collection(kind, X, weight, sizes)
    options = {"min_cosine": 0.8, "algorithm": algorithm} if seed % 4 else {"random_state": 0}
    model = SphericalDPMeans(**options)
    with pytest.warns(UserWarning, match=f"X has {zero.sum()} rows of length zero: without"):
        smallvar.dask.fit(model, data, sample_weight=weights, persist=seed % 3 > 0)
    few, few_weights = X[~zero], None if weight is None else weight[~zero]
    few = csr_array(few) if kind == "sparse" else few
    local = SphericalDPMeans(**options).fit(few, sample_weight=few_weights)
    expected = np.full(60, -1, dtype=np.int32)
    expected[~zero] = local.labels_
    assert np.array_equal(model.labels_.compute(), expected)
    for name in ("cluster_centers_", "resultant_lengths_", "objective_", "inertia_", "n_iter_"):
        rtol = 0.0 if "min_cosine" in options else 1e-12  # equal bits for a given penalty only
        np.testing.assert_allclose(getattr(model, name), getattr(local, name), rtol=rtol)
    assert (smallvar.dask.transform(model, data).compute()[zero] == 1.0).all()
    found = smallvar.dask.score(model, data, sample_weight=weights)
    assert found == pytest.approx(local.score(few, sample_weight=few_weights), rel=1e-12)


def data_sets(seed, n_max=120):
    """A model of data sets and what `check` takes: data sets in the order of names, or mixed."""
    rng = np.random.default_rng([seed, 11])
    X, groups, lam_local, lam_global = hdp_problem(seed, n_max)
    if seed % 3 == 0:  # local clusters that open global ones
        lam_local, lam_global = 3 * lam_local, lam_global / 10
    names, number = np.unique(groups, return_inverse=True)
    count = int(rng.integers(1, 21))
    part = rng.integers(count, size=len(names))
    part = np.sort(part) if rng.random() < 0.5 else part
    rows, weight = np.argsort(part[number], kind="stable"), None
    if rng.random() < 0.5:
        weight = rng.choice([[1.0, 1.0, 0.3, 2.5], [0.0, 1.0, 0.3, 2.5]][seed % 2], size=len(X))
        weight[0] = 1.0
    beside = {"weight": weight, "groups": groups[rows]}
    sizes = np.bincount(part[number], minlength=count).tolist()
    return HDPMeans(lam_local=lam_local, lam_global=lam_global), X[rows], sizes, beside


@seeds(104)
def test_data_sets_equal_one_machine(seed, at_once):
    """Data sets that are whole in one partition each, whichever."""
    at_once(np.random.default_rng([seed, 12]), copies=seed % 2 == 0)
    model, X, sizes, beside = data_sets(seed)
    if seed % 7 < 2:
        model.set_params(**({"tol": 0.01} if seed % 7 else {"max_iter": 2}))
    persist = [True, "auto", "auto", False][seed % 4]
    check(model, X, sizes, ["array", "masked"][seed % 5 == 0], **beside, persist=persist)


def test_worked_example():
    """A single data set in each partition; the second opens a cluster by its local one."""
    X = np.array([[0.0], [1.0], [10.0], [0.5], [20.0], [21.0]])
    model, groups = HDPMeans(lam_local=2.0, lam_global=5.0), ["a", "a", "a", "b", "b", "b"]
    smallvar.dask.fit(model, da.from_array(X, chunks=((3, 0, 3), 1)), groups=groups)
    assert model.labels_.compute().tolist() == [1, 1, 0, 1, 2, 2]
    assert model.local_labels_.compute().tolist() == [1, 1, 0, 0, 1, 1]
    assert model.cluster_centers_.tolist() == [[10.0], [0.5], [20.5]]
    assert [used.tolist() for used in model.local_clusters_] == [[0, 1], [1, 2]]
    assert model.objective_ == 1.0 + 4 * 2.0 + 3 * 5.0


@pytest.mark.parametrize("estimator", [DPMeans, SphericalDPMeans])
@seeds(14)
def test_auto(estimator, at_once, seed):
    """The data choose the same number of clusters as on one machine, and the same clusters."""
    at_once(np.random.default_rng(0), copies=True)
    rng = np.random.default_rng([seed, 11])
    d, k = int(rng.integers(2, 6)), int(rng.integers(2, 9))
    X = blobs(rng, int(rng.integers(150, 500)), d, k, 0.03 + 0.02 * (seed % 3))
    local = estimator(random_state=0).fit(X)
    model = smallvar.dask.fit(clone(local), chunked(X, uneven(rng, len(X), 8)))
    assert model.n_clusters_ == local.n_clusters_
    assert adjusted_rand_score(model.labels_.compute(scheduler="sync"), local.labels_) >= 0.99


# ---- what is lost -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["serial", "delayed", "spherical", "data sets"])
@seeds(28)
def test_states_that_are_lost_or_old(name, at_once, monkeypatch, seed):
    """Partitions wander between two workers that forget: a state is that of any sweep before."""
    rng = at_once(np.random.default_rng([seed, 9]), copies=False)
    kept, share, seen = ({}, {}), (0.0, 0.1, 0.3, 0.9)[seed % 4], Counter()

    def take(fit, p):
        state = kept[rng.integers(2)].pop(p, None)
        lost = state is None or rng.random() < share
        seen[lost] += 1
        return None if lost else state

    def put(fit, p, state):
        kept[rng.integers(2)][p] = state

    monkeypatch.setattr(_part, "take_state", take)
    monkeypatch.setattr(_sweep, "put_state", put)
    if name == "data sets":
        model, X, sizes, beside = data_sets(200 + seed)
        check(model, X, sizes, **beside, persist=True)
        return
    X = sphere_rows(rng, seed, 60 if name == "delayed" else 150)
    weight = rng.gamma(1.0, size=len(X)) if seed % 3 == 0 else None
    lam = float(rng.choice([0.02, 0.1, 0.3]))
    model = SphericalDPMeans(lam=lam) if name == "spherical" else DPMeans(lam=lam, algorithm=name)
    if seed % 5 == 0:
        model.set_params(max_iter=2)
    if seed % 5 == 1:
        model.set_params(init=np.vstack([X[:2], 50.0 + np.arange(X.shape[1])]))
    check(model, X, uneven(rng, len(X), 8), KINDS[seed % 4], weight, persist=True)
    # a fit of few sweeps asks for few states, of which by chance none may be there
    assert seen[True] and (seen[False] or share > 0.5 or sum(seen.values()) < 16)


@pytest.mark.parametrize(("algorithm", "lam"), [("serial", 9.0), ("delayed", 20.0)])
def test_an_answer_given_twice(monkeypatch, algorithm, lam):
    """The second answer is the first one, though the worker has swept its rows already."""
    run = _executor._run

    def twice(*task):
        first, second = run(*task), run(*task)
        if isinstance(first, _part.StepResult):
            assert (second.about, second.fresh) == (first.about, first.fresh)
            for p, (centers, *_) in first.opened.items():
                assert np.array_equal(second.opened[p][0], centers)
        return second

    monkeypatch.setattr(_executor, "_run", twice)
    rng = np.random.default_rng(0)
    X = 3.0 * rng.standard_normal((40, 3))[rng.integers(40, size=3000)]
    X += rng.standard_normal(X.shape)
    model = DPMeans(lam=lam, algorithm=algorithm)
    with threads_as_workers(1):
        check(model, X, [500] * 6, persist=True)
    assert model.n_clusters_ > 5 and model.n_iter_ > 5


def slow_rows(n=1000):
    """Rows whose fit with lam = 4 takes a while: some twenty sweeps that change something."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 3)) + rng.integers(0, 3, (n, 1)) * 3.0


def kill_one(cluster, rng):
    """End the process of a worker, as the system does that has no memory left."""
    nannies = [nanny for nanny in cluster.workers.values() if nanny.pid is not None]
    os.kill(nannies[rng.integers(len(nannies))].pid, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # what dask has to say of workers that are gone
@pytest.mark.parametrize("moments", [3, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("model", [DPMeans(lam=4.0), HDPMeans(lam_local=4.0, lam_global=8.0)])
def test_workers_are_killed(model, moments):
    """A worker dies at a random moment of the fit: the result is the same."""
    rng, X, sizes = np.random.default_rng(moments), slow_rows(), (200, 100, 0, 300, 1, 399)
    beside = {}
    if isinstance(model, HDPMeans):
        beside = {"groups": np.repeat(np.arange(6), sizes)}
    local = clone(model).fit(X, **beside)
    assert local.n_iter_ > 4
    fitted = partial(smallvar.dask.fit, X=chunked(X, sizes), **beside)
    with cluster_of(2) as (cluster, client):
        for _ in range(2):  # the first one also imports
            begin = time.perf_counter()
            assert_same(fitted(clone(model), persist=True), local)
            length = time.perf_counter() - begin
        for moment in range(moments):
            killer = threading.Timer(length * rng.random(), kill_one, (cluster, rng))
            killer.start()
            found = fitted(clone(model), persist=moment % 3 < 2)
            killer.join()
            assert_same(found, local)
            while len(client.scheduler_info()["workers"]) < 2:
                cluster.scale(2)  # it does not replace all that are gone, some later than others
                time.sleep(0.5)


def deadly(block):
    """A partition that kills its worker."""
    if len(block) == 3:
        os._exit(1)
    return block


def unreadable(block):
    """A partition that cannot be read."""
    if len(block) == 3:
        raise OSError("part-2.parquet: no such file")
    return block


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@persisted_or_not
def test_partitions_that_kill_workers_or_cannot_be_read(persist):
    """The fit raises a clear error, and the estimator is as it was."""
    good = da.from_array(slow_rows(), chunks=((500, 497, 3), (3,)))
    with cluster_of(2):
        model = smallvar.dask.fit(DPMeans(lam=4.0), good, persist=persist)
        for harm, error, words in (
            (unreadable, OSError, "part-2.parquet: no such file"),
            (deadly, RuntimeError, "workers died again and again"),
        ):
            bad = good.map_blocks(harm, dtype=float, meta=np.empty((0, 0)))
            again = partial(smallvar.dask.fit, X=bad, persist=persist)
            assert_refuses(model, again, error, words)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", ["scheduler", "client"])
def test_the_cluster_goes_away(what, monkeypatch):
    """The scheduler or client is lost in a fit: an error that says so, estimator unchanged."""
    again = partial(
        smallvar.dask.fit, X=da.from_array(slow_rows(), chunks=((500, 500), (3,))), persist=True
    )
    with cluster_of(2) as (cluster, client):
        model = again(DPMeans(lam=4.0))
        call, rounds = _executor.Executor.call, []

        def lose(executor, *args, **options):
            rounds.append(executor)
            if len(rounds) == 6:
                (client if what == "client" else cluster).close()
            return call(executor, *args, **options)

        monkeypatch.setattr(_executor.Executor, "call", lose)
        assert_refuses(model, again, RuntimeError, "was lost during the fit")
