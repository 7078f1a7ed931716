"""HDPMeans on dask: partitions of whole data sets, the bits of one machine, whatever is lost."""

import os
import signal
import warnings
from collections import Counter

import numpy as np
import pytest
from helpers import assert_refuses, seeds, some
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from test_hdp import problem

import smallvar

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pytest.importorskip("distributed")

import pandas as pd  # noqa: E402
from dask_helpers import (  # noqa: E402
    assert_lazy,
    assert_same_bits,
    chunked,
    cluster_of,
    threads_as_workers,
)

from smallvar.dask import HDPMeans, _hdp_sweep  # noqa: E402

pytestmark = pytest.mark.timeout(600)
FITTED = (
    "cluster_centers_",
    "objective_path_",
    "n_iter_",
    "n_clusters_",
    "inertia_",
    "objective_",
    "lam_local_",
    "lam_global_",
)


@pytest.fixture(scope="module", autouse=True)
def client():
    with threads_as_workers() as client:
        yield client


def in_partitions(rng, groups, most=20):
    """Rows partition by partition, those of a data set together in one, and their lengths.

    Partitions follow each other in the order of names, or data sets are mixed; some are empty.
    """
    names, number = np.unique(groups, return_inverse=True)
    count = int(rng.integers(1, most + 1))
    part = rng.integers(count, size=len(names))
    part = np.sort(part) if rng.random() < 0.5 else part
    rows = np.argsort(part[number], kind="stable")
    return rows, tuple(np.bincount(part[number], minlength=count).tolist())


def shuffled_problem(seed, n_max=120):
    """X, groups, weights or None, lengths of partitions, penalties."""
    rng = np.random.default_rng([seed, 11])
    X, groups, lam_local, lam_global = problem(seed, n_max)
    if seed % 3 == 0:  # local clusters that open global ones
        lam_local, lam_global = 3 * lam_local, lam_global / 10
    rows, sizes = in_partitions(rng, groups)
    weight = None
    if rng.random() < 0.5:
        weight = rng.choice([[1.0, 1.0, 0.3, 2.5], [0.0, 1.0, 0.3, 2.5]][seed % 2], size=len(X))
        weight[0] = 1.0
    lams = {"lam_local": lam_local, "lam_global": lam_global}
    return X[rows], groups[rows], weight, sizes, lams


def arrays(X, groups, weight, sizes):
    """Dask arrays of the data, and a dict of those of groups and weights."""
    beside = {"groups": chunked(groups, sizes)}
    if weight is not None:
        beside["sample_weight"] = chunked(weight, sizes)
    return chunked(X, sizes), beside


def fit(model, X, **beside):
    """Fit, whether it converges or not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, **beside)


def assert_same(model, local):
    """Assert that a fit is, bit for bit, that of one machine."""
    assert_same_bits(model, local, FITTED)
    assert model.groups_.dtype == local.groups_.dtype
    assert np.array_equal(model.groups_, local.groups_)
    assert np.array_equal(model.n_local_clusters_, local.n_local_clusters_)
    pairs = zip(model.local_clusters_, local.local_clusters_, strict=True)
    assert all(np.array_equal(one, two) and one.dtype == two.dtype for one, two in pairs)
    assert_lazy(model.labels_, local.labels_)
    assert_lazy(model.local_labels_, local.local_labels_)


@seeds(104)
def test_equals_one_machine(seed):
    X, groups, weight, sizes, lams = shuffled_problem(seed)
    ends = {"max_iter": 2} if seed % 7 == 0 else {"tol": 0.01} if seed % 7 == 1 else {}
    local = smallvar.HDPMeans(**lams, **ends)
    fit(local, X, groups=groups, sample_weight=weight)
    Y, beside = arrays(X, groups, weight, sizes)
    if seed % 5 == 0:  # lengths that are not known
        Y, beside = Y[Y[:, 0] > -np.inf], {k: v[v == v] for k, v in beside.items()}
    model = HDPMeans(**lams, **ends, persist=[True, "auto", "auto", False][seed % 4])
    assert_same(fit(model, Y, **beside), local)


@pytest.mark.long
def test_states_may_be_lost_or_old(monkeypatch):
    """Partitions wander between two workers that forget: a state is that of any sweep before."""
    kept, seen, rng = ({}, {}), Counter(), np.random.default_rng(0)

    def take(fit, p):
        state = kept[rng.integers(2)].pop(p, None)
        lost = state is None or rng.random() < 0.2
        seen["lost" if lost else "old" if state.iteration < last[fit] else "new"] += 1
        return None if lost else state

    def put(fit, p, state):
        kept[rng.integers(2)][p] = state
        last[fit] = state.iteration

    monkeypatch.setattr(_hdp_sweep, "take_state", take)
    monkeypatch.setattr(_hdp_sweep, "put_state", put)
    problems = some(range(200, 520, 8))
    for seed in problems:
        last = {}
        for states in kept:
            states.clear()
        X, groups, weight, sizes, lams = shuffled_problem(seed)
        local = smallvar.HDPMeans(**lams).fit(X, groups=groups, sample_weight=weight)
        Y, beside = arrays(X, groups, weight, sizes)
        assert_same(HDPMeans(**lams, persist=True).fit(Y, **beside), local)
    assert 2 * min(seen["lost"], seen["old"], seen["new"]) > len(problems)


@pytest.mark.parametrize("mixed", [False, True])
def test_partitions_wait_for_each_other(mixed, monkeypatch):
    """Clusters open in all partitions, in both steps: some are visited again."""
    rng = np.random.default_rng(3)
    groups = np.repeat(np.arange(48), 40)
    X = 6.0 * rng.integers(0, 6, (48 * 40, 2)) + rng.normal(size=(48 * 40, 2))
    part = np.arange(48) // 4 if not mixed else np.arange(48) % 12
    rows = np.argsort(part[groups], kind="stable")
    X, groups, sizes = X[rows], groups[rows], (160,) * 12
    rounds, run_step = [], _hdp_sweep.CollectionHDPSweep.run_step

    def run_and_count(self, step, numbers=None):
        if step.iteration == 0 and step.means is None:
            rounds.append((step.locals is not None, len(numbers or self.order)))
        return run_step(self, step, numbers)

    monkeypatch.setattr(_hdp_sweep.CollectionHDPSweep, "run_step", run_and_count)
    local = smallvar.HDPMeans(lam_local=20.0, lam_global=30.0).fit(X, groups=groups)
    model = HDPMeans(lam_local=20.0, lam_global=30.0, persist=True)
    Y, beside = arrays(X, groups, None, sizes)
    assert_same(model.fit(Y, **beside), local)
    first, second = ([n for locals_, n in rounds if locals_ is step] for step in (False, True))
    assert 12 < sum(first) < 12 * 12 and 24 <= sum(second) < 12 * 12
    opened = model.n_clusters_
    assert opened > 20


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # what dask has to say of workers that are gone
@pytest.mark.parametrize("persist", [True, False])
def test_a_worker_is_killed(persist, monkeypatch):
    """A worker dies in the middle of the fit: the result is the same."""
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(24), 50)
    X = 5.0 * rng.integers(0, 5, (1200, 2)) + rng.normal(size=(1200, 2))
    local = smallvar.HDPMeans(lam_local=15.0, lam_global=60.0).fit(X, groups=groups)
    assert local.n_iter_ > 4
    sizes, swept, killed = (150, 350, 50, 0, 250, 400), _hdp_sweep.CollectionHDPSweep.sweep, []
    with cluster_of(2) as (cluster, _):

        def sweep(self):
            if self.next_step.iteration == 2:
                killed.append(next(iter(cluster.workers.values())).pid)
                os.kill(killed[0], signal.SIGKILL)
            return swept(self)

        monkeypatch.setattr(_hdp_sweep.CollectionHDPSweep, "sweep", sweep)
        Y, beside = arrays(X, groups, None, sizes)
        model = HDPMeans(lam_local=15.0, lam_global=60.0, persist=persist).fit(Y, **beside)
        assert killed
        assert_same(model, local)


def test_worked_example():
    """A single data set in each partition; the second opens a cluster by its local one."""
    X = np.array([[0.0], [1.0], [10.0], [0.5], [20.0], [21.0]])
    Y = da.from_array(X, chunks=((3, 0, 3), 1))
    model = HDPMeans(lam_local=2.0, lam_global=5.0).fit(Y, groups=["a", "a", "a", "b", "b", "b"])
    assert model.labels_.compute().tolist() == [1, 1, 0, 1, 2, 2]
    assert model.local_labels_.compute().tolist() == [1, 1, 0, 0, 1, 1]
    assert model.cluster_centers_.tolist() == [[10.0], [0.5], [20.5]]
    assert [used.tolist() for used in model.local_clusters_] == [[0, 1], [1, 2]]
    assert model.objective_ == 1.0 + 4 * 2.0 + 3 * 5.0


@pytest.mark.long
@pytest.mark.parametrize("kind", ["str", "int64", "category"])
@pytest.mark.parametrize("how", ["name", "series"])
def test_data_frames(kind, how):
    """A column names the data sets; any partitions, shuffled so that data sets are whole."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.normal(size=(300, 3)).astype(np.float32), columns=["x", "y", "z"])
    table["place"] = pd.Series(rng.integers(20, size=300)).astype(str).astype(kind)
    table["heavy"] = rng.integers(1, 4, size=300) / 2.0
    frame = dd.from_pandas(table, npartitions=7).shuffle(on="place")
    whole = frame.compute()
    local = smallvar.HDPMeans(lam_local=1.0, lam_global=5.0)
    local.fit(whole[["x", "y", "z"]], groups=whole["place"], sample_weight=whole["heavy"])
    assert local.n_clusters_ > 1
    if how == "name":
        rows, groups = frame[["x", "y", "z", "place"]], "place"
    else:
        rows, groups = frame[["x", "y", "z"]], frame["place"]
    model = HDPMeans(lam_local=1.0, lam_global=5.0).fit(
        rows, groups=groups, sample_weight=frame["heavy"]
    )
    assert_same(model, local)
    assert model.feature_names_in_.tolist() == ["x", "y", "z"]
    with pytest.raises(ValueError, match="groups must lie whole in one partition each, got"):
        HDPMeans(lam_local=1.0, lam_global=5.0).fit(
            dd.from_pandas(table, npartitions=7)[["x", "place"]], groups="place"
        )


@seeds(12)
def test_what_is_asked_of_a_fit(seed):
    """Predictions for data sets in several partitions, scores, and the local estimator."""
    X, groups, weight, sizes, lams = shuffled_problem(seed + 40)
    local = smallvar.HDPMeans(**lams).fit(X, groups=groups, sample_weight=weight)
    Y, beside = arrays(X, groups, weight, sizes)
    model = HDPMeans(**lams).fit(Y, **beside)
    alone = model.to_local()
    assert type(alone) is smallvar.HDPMeans and isinstance(alone.labels_, np.ndarray)
    assert np.array_equal(alone.labels_, local.labels_)
    assert np.array_equal(alone.local_labels_, local.local_labels_)
    assert not hasattr(model.to_local(labels=False), "labels_")
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(X))
    new, names = X[rows] + X.std() / 9, groups[rows]
    heavy = rng.choice([0.0, 1.0, 2.0], size=len(X))
    heavy[0] = 1.0
    cuts = np.sort(rng.integers(0, len(X) + 1, 3))
    Z, others = arrays(new, names, heavy, tuple(np.diff([0, *cuts, len(X)]).tolist()))
    for given, lazy in (({}, {}), ({"groups": names}, {"groups": others["groups"]})):
        for more, also in (({}, {}), ({"sample_weight": heavy}, {"sample_weight": heavy})):
            labels = model.predict(Z, **lazy, **also)
            assert isinstance(labels, da.Array) and labels.dtype == np.int32
            expected = local.predict(new, **given, **more)
            assert np.array_equal(labels.compute(), expected)
            assert np.array_equal(alone.predict(new, **given, **more), expected)
            assert np.array_equal(model.predict(new, **given, **more), expected)
            score = local.score(new, **given, **more)
            assert model.score(Z, **lazy, **also) == pytest.approx(score, rel=1e-12)
            assert model.score(new, **given, **more) == score


def test_prints_the_lines_of_one_machine(capsys):
    X, groups, weight, sizes, lams = shuffled_problem(4)
    smallvar.HDPMeans(**lams, verbose=1).fit(X, groups=groups, sample_weight=weight)
    expected = capsys.readouterr().out
    Y, beside = arrays(X, groups, weight, sizes)
    HDPMeans(**lams, verbose=1).fit(Y, **beside)
    assert capsys.readouterr().out == expected and expected.startswith("sweep 1: ")


def test_clone_and_fit_predict():
    X, groups, weight, sizes, lams = shuffled_problem(6)
    Y, beside = arrays(X, groups, weight, sizes)
    model = HDPMeans(**lams, max_iter=50, persist=True)
    labels = clone(model).fit_predict(Y, **beside)
    assert (labels == model.fit(Y, **beside).labels_).all().compute()
    assert "labels_" not in vars(clone(model))
    with pytest.raises(NotFittedError):
        clone(model).predict(Y)


def test_warns_at_max_iter():
    X, groups, weight, sizes, lams = shuffled_problem(6)
    Y, beside = arrays(X, groups, weight, sizes)
    with pytest.warns(ConvergenceWarning, match="did not converge in max_iter=1 sweeps"):
        HDPMeans(**lams, max_iter=1).fit(Y, **beside)


BAD = {
    "two partitions": ({"groups": ["a", "b", "a", "c"]}, "whole in one", "'a' in partitions 0 and"),
    "no groups": ({"groups": None}, "groups must say which data set"),
    "no column": ({"groups": "city"}, "groups must be a dask collection", "'city'"),
    "length": ({"groups": [1, 2]}, r"groups must have shape \(4,\), got \(2,\)"),
    "chunks": (
        {"groups": da.zeros(4, chunks=4)},
        "groups must have the partitions of X",
        "1 for 2",
    ),
    "uneven": (
        {"groups": da.zeros(4, chunks=((1, 3),))},
        "partition [01]",
        "groups must have shape",
    ),
    "missing": ({"groups": [1.0, np.nan, 2, 3]}, "partition 0", "groups must not be missing"),
    "kinds": (
        {"groups": da.from_array(np.array([1, 1, "a", "b"], dtype=object), chunks=2)},
        "groups must be all numbers or all strings",
    ),
    "idle, two partitions": (
        {"groups": [1, 2, 1, 3], "sample_weight": [1, 1, 0, 1.0]},
        "whole in one",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_refuses(case):
    X = da.from_array(np.arange(8.0).reshape(4, 2), chunks=(2, 2))
    model = HDPMeans(lam_local=1.0, lam_global=2.0).fit(X, groups=[1, 1, 2, 2])
    options, *words = BAD[case]
    options = {"groups": [1, 1, 2, 2], **options}
    assert_refuses(model, lambda m: m.fit(X, **options), ValueError, *words)


def test_refuses_what_is_no_data():
    model, groups = HDPMeans(lam_local=1.0, lam_global=2.0), [1, 1, 2, 2]
    X = np.arange(8.0).reshape(4, 2)
    cases = [
        (da.from_array(1e150 * X, chunks=(2, 2)), "largest absolute value"),
        (da.zeros((4, 2), chunks=(2, 2))[:, 0][:, None][:0], "at least one row|shape"),
    ]
    for bad, words in cases:
        assert_refuses(model, lambda m, bad=bad: m.fit(bad, groups=groups), ValueError, words)
    lazy = da.from_array(X, chunks=(2, 2))
    unknown = lazy[lazy[:, 0] >= 0]
    assert_refuses(model, lambda m: m.fit(unknown, groups=groups), ValueError, "dask collection")
    model.fit(lazy, groups=groups)
    assert_refuses(model, lambda m: m.predict(lazy[:, :1]), ValueError, "X must have 2 columns")


PARAMETERS = {
    "lam_local": ("auto", 0.0, np.inf, None),
    "lam_global": ("farthest-first", -1.0, np.nan, True),
    "max_iter": (0, 1.5),
    "tol": (-0.1,),
    "persist": ("never", 1),
    "max_opened": (0, 2.5),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_refuses_parameters(name):
    X = da.from_array(np.arange(8.0).reshape(4, 2), chunks=(2, 2))
    for value in PARAMETERS[name]:
        model = HDPMeans(lam_local=1.0, lam_global=2.0).set_params(**{name: value})
        refused = lambda m: m.fit(X, groups=[1, 1, 2, 2])  # noqa: E731
        assert_refuses(model, refused, (ValueError, TypeError), f"{name} must")
    words = "lam_local must be a number > 0 .* smallvar.HDPMeans to a sample of whole data sets"
    model = HDPMeans(lam_local="auto", lam_global=1.0)
    assert_refuses(model, lambda m: m.fit(X, groups=[1, 1, 2, 2]), ValueError, words)


def test_too_many_clusters():
    rng = np.random.default_rng(0)
    X = da.from_array(rng.normal(size=(200, 2)), chunks=(100, 2))
    groups = np.repeat([1, 2], 100)
    model = HDPMeans(lam_local=1e-6, lam_global=1e-6, max_opened=50)
    words = "open more than 50 global clusters in one partition"
    assert_refuses(model, lambda m: m.fit(X, groups=groups), RuntimeError, words, "lam_local=1e-06")
    assert HDPMeans(lam_local=1e-6, lam_global=1e-6).fit(X, groups=groups).n_clusters_ == 200
