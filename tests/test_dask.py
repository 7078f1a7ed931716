"""DPMeans and SphericalDPMeans on dask collections: the results of one machine, whatever is lost."""

import pickle
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
from helpers import fit, seeds
from problems import FAMILIES, random_problem, tied_problem
from scipy.sparse import csr_array

import smallvar

pytest.importorskip("distributed")
pytest.importorskip("dask.dataframe")

import dask
import dask.array as da
import dask.dataframe as dd
import pandas as pd
import psutil
from distributed import Client

import smallvar.dask
from smallvar.dask import _estimators

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore:one cluster is left"),
]
LOOPBACK = "127.0.0.1:0"
FITTED = (
    "cluster_centers_",
    "objective_path_",
    "inertia_",
    "objective_",
    "n_iter_",
    "n_clusters_",
    "lam_",
)


def listening():
    """Addresses that this process and its children listen at."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    found = [c for p in processes for c in p.net_connections() if c.status == "LISTEN"]
    return {c.laddr for c in found}


@pytest.fixture(scope="module", autouse=True)
def client():
    """Two workers that are threads of this process; the default client of the module."""
    before = listening()
    options = {"dashboard_address": LOOPBACK, "worker_dashboard_address": LOOPBACK}
    with Client(processes=False, n_workers=2, threads_per_worker=1, **options) as client:
        assert {address.ip for address in listening() - before} <= {"127.0.0.1"}
        yield client
    assert listening() <= before


# ---- data in partitions ----------------------------------------------------------------------------------------------


def uneven(rng, n, most=50):
    """Lengths of up to ``most`` partitions of n rows, some of them 0."""
    cuts = np.sort(rng.integers(0, n + 1, size=int(rng.integers(0, most))))
    if rng.random() < 0.3:
        cuts = np.sort(np.concatenate([cuts, cuts[: len(cuts) // 3]]))[: most - 1]
    return np.diff(np.concatenate([[0], cuts, [n]])).astype(int).tolist()


def split(X, sizes):
    """Rows of the partitions."""
    ends = np.cumsum([0, *sizes])
    return [X[a:b] for a, b in zip(ends[:-1], ends[1:], strict=True)]


def collection(kind, X, weight, sizes):
    """Rows and weights as dask collections of partitions of these lengths."""
    if kind == "array":
        if weight is not None:
            weight = da.from_array(weight, chunks=(tuple(sizes),))
        return da.from_array(X, chunks=(tuple(sizes), (X.shape[1],))), weight
    if kind == "masked":  # lengths are not known; each partition has rows that are left out
        more = [size + 1 for size in sizes]
        keep = np.concatenate([[True] * size + [False] for size in sizes])
        padded = np.full((len(keep), X.shape[1]), np.nan, dtype=X.dtype)
        padded[keep] = X
        chosen = da.from_array(keep, chunks=(tuple(more),))
        if weight is not None:
            heavy = np.full(len(keep), np.nan)
            heavy[keep] = weight
            weight = da.from_array(heavy, chunks=(tuple(more),))[chosen]
        return da.from_array(padded, chunks=(tuple(more), (X.shape[1],)))[chosen], weight
    if weight is not None and kind == "sparse":
        weight = da.from_array(weight, chunks=(tuple(sizes),))
    if kind == "sparse":
        rows = da.from_array(X, chunks=(tuple(sizes), (X.shape[1],)))
        return rows.map_blocks(csr_array, dtype=X.dtype, meta=np.empty((0, 0))), weight
    assert kind == "frame"
    names = [f"column {j}" for j in range(X.shape[1])]
    meta = pd.DataFrame(X[:0], columns=names)
    frame = dd.from_map(partial(pd.DataFrame, columns=names), split(X, sizes), meta=meta)
    if weight is not None:
        meta = pd.Series(weight[:0], name="w")
        weight = dd.from_map(partial(pd.Series, name="w"), split(weight, sizes), meta=meta)
    return frame, weight


def assert_same(model, local):
    """The same bits as those of one machine."""
    for name in FITTED:
        ours, theirs = np.asarray(getattr(model, name)), np.asarray(getattr(local, name))
        assert ours.dtype == theirs.dtype, name
        assert ours.shape == theirs.shape, name
        assert ours.tobytes() == theirs.tobytes(), name
    labels = model.labels_
    assert isinstance(labels, da.Array)
    assert labels.dtype == np.int32
    assert np.array_equal(labels.compute(scheduler="sync"), local.labels_)


# ---- the same bits ---------------------------------------------------------------------------------------------------


class Task:
    """What a worker of AtOnce is to do; run once, when its result is wanted."""

    def __init__(self, run):
        self.key, self.run, self.done = f"task-{id(self)}", run, False

    @property
    def value(self):
        """Its result."""
        if not self.done:
            self.result, self.done = self.run(), True
        return self.result


def result_of(item):
    """An argument of a task."""
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
        return pickle.loads(pickle.dumps(value)) if self.copies else value

    def compute(self, parts, optimize_graph=True):
        values = dask.compute(*parts, scheduler="sync", traverse=False)
        return [Task(partial(self._sent, value)) for value in values]

    def submit(self, function, *args, pure, workers=None, allow_other_workers=False):
        return Task(lambda: self._sent(function(*map(result_of, args))))

    def scatter(self, shared, broadcast, hash):
        return Task(partial(self._sent, shared))

    def gather(self, futures):
        for i in self.rng.permutation(len(futures)):
            futures[i].value
        return result_of(futures)

    def who_has(self, futures):
        at = self.rng.integers(self.workers, size=len(futures))
        return {f.key: [f"worker {i}"] for f, i in zip(futures, at.tolist(), strict=True)}

    def scheduler_info(self, n_workers):
        return {"workers": {"worker": {"memory_limit": 0}}}

    def run(self, function, *args):
        function(*args)


@pytest.fixture
def at_once(monkeypatch):
    """Returns a function that makes the fits to come run on a client AtOnce."""

    def begin(rng, copies):
        client = AtOnce(rng, copies)
        monkeypatch.setattr(_estimators, "client_for", lambda given: nullcontext(client))
        return client

    return begin


KINDS = ("array", "masked", "frame", "sparse")


def check_pair(name, X, lam, sizes, kind="array", weight=None, *, persist="auto", **options):
    """Fit the rows on one machine and in partitions; returns both models."""
    X = np.ascontiguousarray(X)
    local = getattr(smallvar, name)(lam=lam, **options)
    warned = fit(local, csr_array(X) if kind == "sparse" else X, weight)
    Y, w = collection(kind, X, weight, sizes)
    model = getattr(smallvar.dask, name)(lam=lam, persist=persist, **options)
    assert fit(model, Y, w) == warned
    assert_same(model, local)
    return model, local


def check_problem(p, algorithm, rng, seed, n_parts=50):
    """The same for a problem, in one kind of partitions or another."""
    return check_pair(
        "DPMeans",
        p.X,
        p.lam,
        uneven(rng, len(p.X), n_parts),
        KINDS[seed % 4],
        p.weights,
        algorithm=algorithm,
        init="mean" if p.init is None else p.init,
        max_clusters=p.max_clusters,
        max_iter=p.max_iter,
        persist=seed % 3 > 0,
    )


N_MAX = {"serial": 400, "delayed": 120}


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "shuffle"])
@pytest.mark.parametrize("algorithm", ["serial", "delayed"])
@seeds(8)
def test_equals_one_machine(algorithm, family, at_once, seed):
    """In 1 to 50 uneven partitions of any kind, held by workers or read by every sweep."""
    rng = np.random.default_rng([seed, 1])
    at_once(rng, copies=seed % 2 == 0)
    check_problem(random_problem(family, seed, N_MAX[algorithm]), algorithm, rng, seed)
