"""HDPMeans on dask: partitions of whole data sets, the bits of one machine, whatever is lost."""

import os
import signal
import warnings
from collections import Counter
from functools import partial

import numpy as np
import pytest
from helpers import assert_refuses, seeds, some
from sklearn.exceptions import ConvergenceWarning
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

from smallvar.dask import _hdp_sweep  # noqa: E402

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


def fit(X, persist="auto", groups=None, sample_weight=None, **options):
    """Fit in partitions, or on one machine, whether it converges or not."""
    model, beside = smallvar.HDPMeans(**options), {"groups": groups, "sample_weight": sample_weight}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if isinstance(X, np.ndarray):
            return model.fit(X, **beside)
        return smallvar.dask.fit(model, X, persist=persist, **beside)


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
    local = fit(X, groups=groups, sample_weight=weight, **lams, **ends)
    Y, beside = arrays(X, groups, weight, sizes)
    if seed % 5 == 0:  # lengths that are not known
        Y, beside = Y[Y[:, 0] > -np.inf], {k: v[v == v] for k, v in beside.items()}
    persist = [True, "auto", "auto", False][seed % 4]
    assert_same(fit(Y, persist, **beside, **lams, **ends), local)


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
        local = fit(X, groups=groups, sample_weight=weight, **lams)
        Y, beside = arrays(X, groups, weight, sizes)
        assert_same(fit(Y, True, **beside, **lams), local)
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
    lams = {"lam_local": 20.0, "lam_global": 30.0}
    Y, beside = arrays(X, groups, None, sizes)
    model = fit(Y, True, **beside, **lams)
    assert_same(model, fit(X, groups=groups, **lams))
    first, second = ([n for locals_, n in rounds if locals_ is step] for step in (False, True))
    assert 12 < sum(first) < 12 * 12 and 24 <= sum(second) < 12 * 12
    assert model.n_clusters_ > 20


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # what dask has to say of workers that are gone
@pytest.mark.parametrize("persist", [True, False])
def test_a_worker_is_killed(persist, monkeypatch):
    """A worker dies in the middle of the fit: the result is the same."""
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(24), 50)
    X = 5.0 * rng.integers(0, 5, (1200, 2)) + rng.normal(size=(1200, 2))
    lams = {"lam_local": 15.0, "lam_global": 60.0}
    local = fit(X, groups=groups, **lams)
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
        model = fit(Y, persist, **beside, **lams)
        assert killed
        assert_same(model, local)


def test_worked_example():
    """A single data set in each partition; the second opens a cluster by its local one."""
    X = np.array([[0.0], [1.0], [10.0], [0.5], [20.0], [21.0]])
    Y = da.from_array(X, chunks=((3, 0, 3), 1))
    model = fit(Y, groups=["a", "a", "a", "b", "b", "b"], lam_local=2.0, lam_global=5.0)
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
    lams = {"lam_local": 1.0, "lam_global": 5.0}
    model = fit(rows, groups=groups, sample_weight=frame["heavy"], **lams)
    assert_same(model, local)
    assert model.feature_names_in_.tolist() == ["x", "y", "z"]
    with pytest.raises(ValueError, match="groups must lie whole in one partition each, got"):
        fit(dd.from_pandas(table, npartitions=7)[["x", "place"]], groups="place", **lams)


@seeds(12)
def test_new_rows(seed):
    """Predictions and scores for data sets in several partitions."""
    X, groups, weight, sizes, lams = shuffled_problem(seed + 40)
    local = fit(X, groups=groups, sample_weight=weight, **lams)
    Y, beside = arrays(X, groups, weight, sizes)
    model = fit(Y, **beside, **lams)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(X))
    new, names = X[rows] + X.std() / 9, groups[rows]
    heavy = rng.choice([0.0, 1.0, 2.0], size=len(X))
    heavy[0] = 1.0
    cuts = np.sort(rng.integers(0, len(X) + 1, 3))
    Z, others = arrays(new, names, heavy, tuple(np.diff([0, *cuts, len(X)]).tolist()))
    for given, lazy in (({}, {}), ({"groups": names}, {"groups": others["groups"]})):
        for more in ({}, {"sample_weight": heavy}):
            expected = local.predict(new, **given, **more)
            assert_lazy(smallvar.dask.predict(model, Z, **lazy, **more), expected)
            assert np.array_equal(model.predict(new, **given, **more), expected)
            score = smallvar.dask.score(model, Z, **lazy, **more)
            assert score == pytest.approx(local.score(new, **given, **more), rel=1e-12)
    if X.shape[1] > 1:
        with pytest.raises(ValueError, match="expecting"):
            smallvar.dask.predict(model, Z[:, :1])


def test_prints_the_lines_of_one_machine(capsys):
    X, groups, weight, sizes, lams = shuffled_problem(4)
    fit(X, groups=groups, sample_weight=weight, verbose=1, **lams)
    expected = capsys.readouterr().out
    Y, beside = arrays(X, groups, weight, sizes)
    fit(Y, **beside, verbose=1, **lams)
    assert capsys.readouterr().out == expected and expected.startswith("sweep 1: ")
    with pytest.warns(ConvergenceWarning, match="did not converge in max_iter=1 sweeps"):
        smallvar.dask.fit(smallvar.HDPMeans(**lams, max_iter=1), Y, **beside)


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
    model = fit(X, groups=[1, 1, 2, 2], lam_local=1.0, lam_global=2.0)
    options, *words = BAD[case]
    options = {"groups": [1, 1, 2, 2], **options}
    assert_refuses(model, partial(smallvar.dask.fit, X=X, **options), ValueError, *words)


def test_refuses_what_is_no_data():
    X = np.arange(8.0).reshape(4, 2)
    lazy = da.from_array(X, chunks=(2, 2))
    for bad, words in (
        (da.from_array(1e150 * X, chunks=(2, 2)), "largest absolute value"),
        (lazy[:0], "at least one row|shape"),
        (lazy[lazy[:, 0] >= 0], "dask collection"),
    ):
        again = partial(smallvar.dask.fit, X=bad, groups=[1, 1, 2, 2])
        model = smallvar.HDPMeans(lam_local=1.0, lam_global=2.0)
        assert_refuses(model, again, ValueError, words)


def test_refuses_penalties():
    again = partial(smallvar.dask.fit, X=da.ones((4, 2), chunks=(2, 2)), groups=[1, 1, 2, 2])
    for name, values in {
        "lam_local": ("auto", 0.0, np.inf, None),
        "lam_global": ("farthest-first", -1.0, np.nan, True),
    }.items():
        for value in values:
            model = smallvar.HDPMeans(lam_local=1.0, lam_global=2.0).set_params(**{name: value})
            assert_refuses(model, again, (ValueError, TypeError), f"{name} must")
    words = "lam_local must be a number > 0 .* smallvar.HDPMeans to a sample of whole data sets"
    assert_refuses(smallvar.HDPMeans(lam_global=1.0), again, ValueError, words)


def test_too_many_clusters():
    X = da.from_array(np.random.default_rng(0).normal(size=(200, 2)), chunks=(100, 2))
    model = smallvar.HDPMeans(lam_local=1e-6, lam_global=1e-6)
    again = partial(smallvar.dask.fit, X=X, groups=np.repeat([1, 2], 100))
    words = "open more than 50 global clusters in one partition", "lam_local=1e-06"
    assert_refuses(model, partial(again, max_opened=50), RuntimeError, *words)
    assert again(model).n_clusters_ == 200
