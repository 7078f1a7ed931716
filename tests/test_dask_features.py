"""BPMeans on dask collections: the results of one machine, whatever is lost."""

import os
import signal
from collections import Counter
from functools import partial

import numpy as np
import pytest
from helpers import assert_refuses, fit, seeds, some
from problems import feature_problem, planted_features, tied_feature_problem

import smallvar

pytest.importorskip("distributed")
pytest.importorskip("dask.dataframe")

import dask.array as da
from dask_helpers import (
    assert_lazy,
    assert_same_bits,
    chunked,
    cluster_of,
    framed,
    threads_as_workers,
    uneven,
)

from smallvar.dask import BPMeans, _feature_part
from smallvar.dask._feature_starts import FeatureStart, Generator

pytestmark = [
    pytest.mark.timeout(600),
    # of dask 2025.1, where there is a client for something else
    pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler"),
]
FITTED = (
    "components_",
    "objective_path_",
    "objective_",
    "reconstruction_err_",
    "n_components_",
    "n_iter_",
    "lam_",
)


@pytest.fixture(scope="module", autouse=True)
def client():
    """Workers that are threads of this process; the default client of the module."""
    with threads_as_workers() as client:
        yield client


def collection(kind, X, weight, sizes):
    """Rows and weights as dask collections of partitions of these lengths."""
    if kind == "frame":
        return framed(X, weight, sizes)
    rows = chunked(X, sizes)
    if kind == "unknown":  # lengths that only the partitions know
        rows = da.map_blocks(np.array, rows, chunks=((np.nan,) * len(sizes), (X.shape[1],)))
    return rows, chunked(weight, sizes)


def assert_same(model, local):
    """The same bits as those of one machine."""
    assert_same_bits(model, local, FITTED)
    assert_lazy(model.assignments_, local.assignments_, scheduler="sync")


def check_pair(X, lam, sizes, kind="array", weight=None, **options):
    """Fit the rows on one machine and in partitions; returns both models."""
    local = smallvar.BPMeans(lam, algorithm="sweep", **options)
    warned = fit(local, X, weight)
    Y, w = collection(kind, X, weight, sizes)
    model = BPMeans(lam, **options)
    assert fit(model, Y, w) == warned
    assert_same(model, local)
    return model, local


KINDS = ("array", "unknown", "frame")


def weights_of(rng, p, seed):
    """Weights of the problem, with some of them zero every other time."""
    if p.weights is None:
        return None
    weight = np.array(p.weights, dtype=float)
    if seed % 2:
        weight[rng.random(len(weight)) < 0.3] = 0.0
        weight[rng.integers(len(weight))] = 1.0
    return weight


@pytest.fixture
def seen(monkeypatch):
    """Counts what sweeps of partitions had to know of others, and how many were done again."""
    seen, ask = Counter(), FeatureStart._ask

    def counted(self, function, asked, fold, each=None, numbers=None):
        if function is _feature_part.step and asked.kind == "sweep":
            for p in numbers:
                seen["again"] += (self, asked.number, p) in seen
                seen[self, asked.number, p] = 1
                seen["opened"] += len(each[p].opened) > 0
                seen["vacant"] += bool(each[p].vacant.any())
                seen["alone"] += not (each[p].shared | each[p].vacant).all()
        return ask(self, function, asked, fold, each, numbers)

    monkeypatch.setattr(FeatureStart, "_ask", counted)
    return seen


# ---- the same bits -------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("problem", [feature_problem, tied_feature_problem])
@seeds(30)
def test_equals_one_machine_from_random_starts(problem, seed):
    """Seeds by the mean and by the data, swaps."""
    rng = np.random.default_rng([seed, 1])
    p = problem(seed)
    check_pair(
        p.X,
        p.lam,
        uneven(rng, len(p.X), 20),
        KINDS[seed % 3],
        weights_of(rng, p, seed),
        max_features=p.max_features,
        n_init=1 + seed % 2,
        n_swaps=seed % 3,
        init=("alternate", "mean", "data")[seed % 3],
        random_state=seed,
    )


@pytest.mark.long
@pytest.mark.parametrize("problem", [feature_problem, tied_feature_problem])
def test_equals_one_machine_from_given_rows(problem, seen):
    """Features that few rows have, so that sweeps of partitions depend on each other."""
    problems = some(range(60))
    for seed in problems:
        rng = np.random.default_rng([seed, 2])
        p = problem(seed, n_max=90)
        n, weight = len(p.X), weights_of(rng, p, seed)
        most = n if weight is None else int((weight > 0).sum())
        width = int(rng.integers(0, min(9, most + 1)))
        sparse = (rng.random((n, width)) < rng.choice([0.02, 0.1, 0.5])).astype(int)
        check_pair(
            p.X,
            p.lam * rng.choice([0.02, 0.3, 1.0]),
            uneven(rng, n, 20),
            KINDS[seed % 3],
            weight,
            init=sparse,
            max_features=None if seed % 3 else max(width, 1) + seed % 5,
            max_iter=300 if seed % 4 else 1 + seed % 3,
            n_swaps=seed % 2,
            tol=0.0 if seed % 5 else 0.01,
            random_state=seed,
        )
    for name in ("again", "opened", "vacant", "alone"):
        assert seen[name] > len(problems) / 3, name


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@seeds(3)
def test_equals_one_machine_on_more_rows(dtype, seed):
    """Runs of rows that draws add up lie across partitions."""
    rng = np.random.default_rng([seed, 3])
    X = planted_features("shared", seed, n=3000, d=7, k=4, noise=0.3)[0].astype(dtype)
    weight = rng.gamma(1.0, size=len(X)) if seed % 2 else None
    lam, sizes = float(rng.choice([60.0, 300.0])), uneven(rng, len(X), 20)
    _, local = check_pair(
        X, lam, sizes, KINDS[seed % 3], weight, n_init=1, n_swaps=1, random_state=seed
    )
    assert local.n_components_ > 1


@pytest.mark.long
def test_default_parameters():
    """As many starts, and as many swaps, as one machine makes."""
    X = np.random.default_rng(7).normal(size=(12, 2))
    check_pair(X, 20.0, [3, 0, 9], n_swaps=0, random_state=0)
    X = planted_features("signed", 1, n=40, d=3, k=2, noise=0.1)[0]
    check_pair(X, 5.0, [9, 0, 31], n_init=1, random_state=0)


def test_extremes_of_lam():
    """No feature, and one for almost every row."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(23, 4))
    options = {"n_init": 1, "n_swaps": 1, "random_state": 0}
    model, _ = check_pair(X, 1e9, [7, 7, 9], **options)
    assert model.n_components_ == 0
    assert model.assignments_.shape == (23, 0)
    assert model.inverse_transform(model.assignments_).compute().tolist() == [[0.0] * 4] * 23
    model, _ = check_pair(X, 1e-9, [7, 7, 9], init=np.zeros((23, 0)), n_swaps=0)
    assert model.n_components_ > 4
    check_pair(np.zeros((6, 2)), 1.0, [2, 4], **options)


def test_rows_that_are_nothing_beside_another():
    """What counts as zero is of the square of all rows, not of a partition's."""
    X = np.outer(np.r_[39e14, :39.0], np.ones(5))
    check_pair(X, 0.25, (11, 20, 9), "array", None, n_init=2, n_swaps=2, random_state=2)


def test_generator():
    """splitmix64 from state 1234567: its published numbers."""
    generator = Generator(1234567)
    wanted = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [int(generator.uniform() * 2**53) for _ in wanted] == [z >> 11 for z in wanted]


# ---- what is lost --------------------------------------------------------------------------------


@pytest.mark.long
def test_lost_states(monkeypatch):
    """Every third state is gone when it is wanted, in all steps: the same result."""
    take, calls = _feature_part.take_state, Counter()

    def forgetful(fit, p):
        state = take(fit, p)
        calls["all"] += 1
        lost = calls["all"] % 3 == 0
        calls["lost"] += lost
        return None if lost else state

    monkeypatch.setattr(_feature_part, "take_state", forgetful)
    problems = some(range(8))
    for seed in problems:
        rng = np.random.default_rng([seed, 6])
        p = feature_problem(seed)
        check_pair(
            p.X,
            0.3 * p.lam,
            uneven(rng, len(p.X), 6),
            weight=weights_of(rng, p, seed),
            n_init=2,
            n_swaps=3,
            random_state=seed,
        )
    assert calls["lost"] > 25 * len(problems)


@pytest.mark.slow
def test_killed_worker(monkeypatch):
    """A process dies between two sweeps, and another one within a swap: the same result."""
    X = planted_features("shared", 3, n=4000, d=6, k=4, noise=0.3)[0]
    options = {"n_init": 1, "n_swaps": 3, "random_state": 3}
    local = smallvar.BPMeans(200.0, **options).fit(X)
    assert local.n_iter_ > 5
    sweep, killed = FeatureStart.sweep, []
    with cluster_of(2) as (_, client):

        def deadly(self):
            if self.n_iter in (2, 5) and len(killed) == (self.n_iter == 5):
                pids = client.run(os.getpid)
                killed.append(min(pids.values()))
                os.kill(killed[-1], signal.SIGKILL)
            return sweep(self)

        monkeypatch.setattr(FeatureStart, "sweep", deadly)
        model = BPMeans(200.0, **options).fit(da.from_array(X, chunks=((900, 1100, 13, 1987), 6)))
        assert len(killed) == 2
        assert_same(model, local)
        Z = model.assignments_.compute()  # by the workers, whatever these have been through
        assert np.array_equal(Z, local.assignments_)


# ---- what a fitted model does --------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_methods(kind):
    """transform, inverse_transform, score and the local model, as one machine has them; lazy."""
    rng = np.random.default_rng(8)
    X = planted_features("signed", 2, n=200, d=4, k=3, noise=0.2)[0]
    weight = rng.integers(0, 3, size=200).astype(float)
    sizes = [0, 30, 101, 0, 69]
    model, local = check_pair(X, 20.0, sizes, kind, weight, n_init=1, n_swaps=2, random_state=0)
    Y, w = collection(kind, X, weight, sizes)
    Z = model.transform(Y)
    assert isinstance(Z, da.Array)
    assert Z.dtype == np.int32
    assert np.array_equal(Z.compute(), local.transform(X))
    back = model.inverse_transform(Z)
    assert isinstance(back, da.Array)
    assert np.array_equal(back.compute(), local.inverse_transform(local.transform(X)))
    assert model.score(Y) == pytest.approx(local.score(X), rel=1e-12)
    assert model.score(Y, sample_weight=w) == pytest.approx(local.score(X, None, weight), rel=1e-12)
    rows = Y.compute().iloc[:5] if kind == "frame" else X[:5]
    assert np.array_equal(model.transform(rows), local.transform(X[:5]))
    assert model.score(rows) == local.score(X[:5])
    one = model.to_local()
    assert type(one) is smallvar.BPMeans
    assert one.components_.tobytes() == local.components_.tobytes()
    assert np.array_equal(one.assignments_, local.assignments_)
    assert np.array_equal(one.transform(rows), local.transform(X[:5]))
    assert not hasattr(model.to_local(assignments=False), "assignments_")
    if kind == "frame":
        assert model.feature_names_in_.tolist() == list(Y.columns)
        assert one.feature_names_in_.tolist() == list(Y.columns)


def test_goes_on_from_its_rows():
    """``assignments_`` of a fit that max_iter ended is a start."""
    X = planted_features("signed", 4, n=150, d=5, k=4, noise=0.3)[0]
    Y = da.from_array(X, chunks=(40, 5))
    options = {"n_init": 1, "n_swaps": 0, "random_state": 1}
    first, second = BPMeans(8.0, max_iter=1, **options), BPMeans(8.0, **options)
    assert fit(first, Y)
    second.set_params(init=first.assignments_)
    assert not fit(second, Y)
    local = smallvar.BPMeans(8.0, init=first.assignments_.compute()).fit(X)
    assert_same(second, local)
    assert second.objective_ <= first.objective_


def test_verbose(capsys):
    """A line a sweep, as one machine prints it."""
    X = planted_features("signed", 4, n=50, d=3, k=2)[0]
    check_pair(X, 4.0, [20, 30], n_init=2, n_swaps=1, random_state=0, verbose=1)
    lines = capsys.readouterr().out.splitlines()
    half = len(lines) // 2
    assert half > 2
    assert sorted(lines[:half]) == sorted(lines[half:])


# ---- what is refused -----------------------------------------------------------------------------


def test_bad_parameters():
    """By name; the estimator stays as it was."""
    X = da.from_array(np.arange(12.0).reshape(6, 2), chunks=(2, 2))
    for options, words in (
        ({"lam": "auto"}, ("lam", "'auto'", "sample")),
        ({"lam": "farthest-first"}, ("lam", "sample")),
        ({"lam": 0.0}, ("lam", "> 0")),
        ({"lam": np.inf}, ("lam", "finite")),
        ({"lam": None}, ("lam",)),
        ({"n_init": 0}, ("n_init",)),
        ({"n_swaps": -1}, ("n_swaps",)),
        ({"max_features": 0}, ("max_features",)),
        ({"init": "random"}, ("init", "alternate")),
        ({"init": np.zeros((5, 1))}, ("init", r"\(6, at most")),
        ({"init": np.full((6, 1), 2)}, ("init", "0 and 1")),
        ({"tol": -1}, ("tol",)),
    ):
        model = BPMeans(**{"lam": 1.0, **options})
        assert_refuses(model, lambda model: model.fit(X), (ValueError, TypeError), *words)
    for name in ("algorithm", "n_components", "n_threads"):
        with pytest.raises(TypeError, match=name):
            BPMeans(1.0, **{name: None})


def test_bad_data():
    """With the number of the partition, where it is one that is wrong; nothing is left behind."""
    X = np.arange(24.0).reshape(12, 2)
    broken, far = X.copy(), X * 1e150
    broken[7, 1] = np.nan
    chunks = (4, 2)
    good = da.from_array(X, chunks=chunks)
    negative, none = np.ones(12), np.zeros(12)
    negative[9] = -1.0
    for Y, w, words in (
        (X, None, ("X must be a dask",)),
        (da.from_array(X, chunks=(4, 1)), None, ("columns in one chunk",)),
        (da.from_array(broken, chunks=chunks), None, ("partition 1", "NaN")),
        (da.from_array(far, chunks=chunks), None, ("1e-140", "rescale")),
        (da.from_array(X[:0], chunks=chunks), None, ("at least one row",)),
        (good, negative, ("partition 2", "sample_weight")),
        (good, none, ("sample_weight", "positive")),
        (good, np.full(12, 1e-299), ("sample_weight", "1e-280")),
        (good, np.ones(11), ("sample_weight", "12")),
    ):
        model = BPMeans(1.0, n_init=1, n_swaps=0)
        refused = partial(BPMeans.fit, X=Y, sample_weight=w)
        assert_refuses(model, refused, (ValueError, TypeError), *words)
    weight = da.from_array(np.ones(12), chunks=6)
    with pytest.raises(ValueError, match="partitions of X"):
        BPMeans(1.0).fit(good, sample_weight=weight)
