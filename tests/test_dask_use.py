"""What the functions of smallvar.dask take, return and refuse; batches, shapes and new rows."""

import pickle
import re
import warnings
from functools import partial

import numpy as np
import pytest
from helpers import assert_refuses, bits, seeds
from problems import blobs
from scipy.sparse import csc_array, csr_array, csr_matrix
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_moons
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import smallvar

pytest.importorskip("distributed")
pytest.importorskip("dask.dataframe")

import dask.array as da
import dask.dataframe as dd
import pandas as pd
from dask_helpers import (
    assert_lazy,
    assert_same,
    check,
    chunked,
    collection,
    framed,
    threads_as_workers,
    uneven,
)

import smallvar.dask
from smallvar.dask import _fit

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler"),
    pytest.mark.filterwarnings("ignore:the number of clusters"),
]
MODELS = {
    "DPMeans": smallvar.DPMeans(lam=40.0),
    "SphericalDPMeans": smallvar.SphericalDPMeans(min_cosine=0.8),
    "MiniBatchDPMeans": smallvar.MiniBatchDPMeans(lam=40.0),
    "HDPMeans": smallvar.HDPMeans(lam_local=30.0, lam_global=90.0),
    "ShapeMeans": smallvar.ShapeMeans(random_state=0),
}
each_model = pytest.mark.parametrize("name", MODELS)
ROWS = da.ones((6, 2), chunks=(3, 2))
HALVES = [1, 1, 1, 2, 2, 2]  # data sets of ROWS


@pytest.fixture(scope="module", autouse=True)
def client():
    """Two workers that are threads of this process; the default client of the module."""
    with threads_as_workers() as client:
        yield client


def fitted_by(name, X=ROWS, groups=HALVES, **options):
    """A function that fits a model of this kind to X."""
    beside = {"groups": groups} if name == "HDPMeans" else {}
    return partial(smallvar.dask.fit, X=X, **beside, **options)


# ---- results ------------------------------------------------------------------------------------


@each_model
def test_methods_of_rows(name):
    """Probabilities and the rest are those of one machine; what needs all rows names a function."""
    X = blobs(np.random.default_rng(0), 600, 3, 4) * 20.0
    sets = np.repeat([1, 2, 3], 200)
    frame, table = framed(X, None, [200, 0, 400])[0], pd.DataFrame(X)
    table.columns = frame.columns
    if name == "HDPMeans":
        cities = table.assign(city=sets)
        frame = dd.from_map(pd.DataFrame, [cities[:200], cities[:0], cities[200:]])
    fit = fitted_by(name, frame, "city")
    local, model = clone(MODELS[name]), clone(MODELS[name])
    assert fit(model) is model
    if name == "MiniBatchDPMeans":
        local.partial_fit(table[:200]).partial_fit(table[200:])
    else:
        local.fit(table, **({"groups": sets} if name == "HDPMeans" else {}))
        assert_same(model, local)
    frame = frame[table.columns.tolist()]
    assert model.feature_names_in_.tolist() == table.columns.tolist()
    for method, options in (
        *(("predict_proba", {"unknown": flag}) for flag in (False, True)),
        *((method, {}) for method in ("score_samples", "outlier_scores", "predict", "transform")),
    ):
        ask = getattr(smallvar.dask, method)
        if not hasattr(local, method):
            with pytest.raises(TypeError, match=f"must have the method {method}, got {name}"):
                ask(model, frame)
            continue
        expected, lazy = getattr(local, method)(table, **options), ask(model, frame, **options)
        assert isinstance(lazy, da.Array)
        assert (lazy.dtype, lazy.shape[1:]) == (expected.dtype, expected.shape[1:])
        assert np.array_equal(lazy.compute(), expected)
        assert np.array_equal(getattr(model, method)(table, **options), expected)
        with pytest.raises(ValueError, match="feature names"):
            ask(model, frame[table.columns[::-1].tolist()], **options)
    for attribute in ("probabilities_", "outlier_scores_", "profiles_", "representatives_"):
        if (name, attribute) != ("MiniBatchDPMeans", "profiles_"):  # of its running means
            with pytest.raises(
                AttributeError, match=f"has no {attribute}.*: call|last data were a"
            ):
                getattr(model, attribute)
    fit(model, labels=False)
    loaded = pickle.loads(pickle.dumps(model))
    assert not hasattr(loaded, "labels_")
    assert np.array_equal(loaded.predict_proba(table), local.predict_proba(table))
    with pytest.raises(NotFittedError):
        smallvar.dask.predict(clone(model), frame)
    wrong = framed(np.vstack([X[1:], [[np.nan] * 3]]), None, [200, 0, 400])[0]
    with pytest.raises(ValueError, match=r"partition 2: .*NaN"):
        smallvar.dask.predict(model, wrong).compute()
    if name == "ShapeMeans":
        with pytest.raises(TypeError, match="model must have an objective of new rows"):
            smallvar.dask.score(model, frame)
        return
    assert smallvar.dask.score(model, frame) == pytest.approx(local.score(table), rel=1e-12)
    if name != "HDPMeans":
        with pytest.raises(ValueError, match="groups must be None"):
            smallvar.dask.predict(model, frame, groups=sets)


def test_a_sample_tells_how_strange_rows_are(monkeypatch):
    """Of more rows, probabilities are measured on a sample; the model is fitted to all."""
    monkeypatch.setattr(_fit, "MODEL_ROWS", 500)
    monkeypatch.setattr(_fit, "MODEL_NUMBERS", 1)
    X = blobs(np.random.default_rng(0), 4000, 2, 3) * 20.0
    model, local = check(smallvar.DPMeans(lam=30.0, random_state=0), X, [3000, 1000])
    found, expected = model.outlier_scores(X), local.outlier_scores(X)
    assert 0.0 < np.abs(found - expected).mean() < 0.1


@seeds(12)
def test_new_rows_of_data_sets(seed):
    """Predictions and scores for data sets in several partitions, with weights."""
    from test_dask import data_sets

    model, X, sizes, beside = data_sets(seed + 40)
    model, local = check(model, X, sizes, **beside)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(X))
    new, names = X[rows] + X.std() / 9, beside["groups"][rows]
    heavy = rng.choice([0.0, 1.0, 2.0], size=len(X))
    heavy[0] = 1.0
    cuts = uneven(rng, len(X), 4)
    Z = chunked(new, cuts)
    for given, lazy in (({}, {}), ({"groups": names}, {"groups": chunked(names, cuts)})):
        for more in ({}, {"sample_weight": heavy}):
            expected = local.predict(new, **given, **more)
            assert_lazy(smallvar.dask.predict(model, Z, **lazy, **more), expected)
            score = smallvar.dask.score(model, Z, **lazy, **more)
            assert score == pytest.approx(local.score(new, **given, **more), rel=1e-12)


@pytest.mark.parametrize("name", ["DPMeans", "HDPMeans"])
def test_prints_the_lines_of_one_machine(name, capsys):
    X, groups = blobs(np.random.default_rng(0), 300, 3, 4) * 20.0, np.arange(300) // 100
    model = clone(MODELS[name]).set_params(verbose=1)
    check(model, X, [100, 200], groups=groups if name == "HDPMeans" else None)
    # a partition that sweeps again counts the rows that move anew
    lines = re.sub(r"\d+ points moved", "", capsys.readouterr().out).splitlines()
    assert lines[0].startswith("sweep 1: ") and lines == 2 * lines[: len(lines) // 2]
    with pytest.warns(ConvergenceWarning, match="did not converge in max_iter=1 sweeps"):
        fitted_by(name, chunked(X, [100, 200]), groups)(model.set_params(max_iter=1))


# ---- sparse rows, batches, shapes ---------------------------------------------------------------


@pytest.mark.parametrize("block", [csr_array, csr_matrix, csc_array])
@pytest.mark.parametrize("name", ["DPMeans", "SphericalDPMeans", "MiniBatchDPMeans"])
@pytest.mark.parametrize("sampled", [False, True])
def test_sparse_blocks(block, name, sampled, monkeypatch):
    """They give what dense blocks give, also where the data choose, from all rows or a sample."""
    if sampled:
        monkeypatch.setattr(_fit, "CHOICE_ROWS", 60)
    rng = np.random.default_rng(0)
    X = 9.0 * np.eye(6)[rng.integers(3, size=90)]
    X += (rng.random(X.shape) < 0.3) * rng.random(X.shape)
    dense = chunked(X, [25, 0, 40, 25])
    rows = dense.map_blocks(block, dtype=X.dtype, meta=np.empty((0, 0)))
    weight = rng.integers(1, 4, size=90).astype(float) if block is csr_matrix else None
    for options in ({}, {"n_clusters": 4}, {"max_clusters": 2}, {"lam": 3.0}):
        model = getattr(smallvar, name)(random_state=0, **options)
        expected = smallvar.dask.fit(clone(model), dense, sample_weight=weight)
        smallvar.dask.fit(model, rows, sample_weight=weight)
        assert_lazy(model.labels_, expected.labels_.compute())
        for fitted in ("lam_", "objective_", "cluster_centers_"):
            np.testing.assert_allclose(getattr(model, fitted), getattr(expected, fitted), atol=1e-9)
        assert_lazy(smallvar.dask.predict(model, rows), model.labels_.compute())


def one_machine(model, X, weight, sizes):
    """Local estimator after ``partial_fit`` with one partition after another."""
    ends = np.cumsum(sizes)
    for start, end in zip(ends - sizes, ends, strict=True):
        heavy = None if weight is None else weight[start:end]
        if end > start and (heavy is None or heavy.any()):
            model.partial_fit(X[start:end], sample_weight=heavy)
    return model


@seeds(40)
def test_batches_equal_one_machine(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(20, 400)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d)) + 6.0 * rng.integers(0, 4, (n, 1))
    X = X.astype(np.float32) if seed % 2 else X.round(1)
    weight = rng.integers(0, 3, n).astype(float) if seed % 3 == 0 else None
    sizes, lam = uneven(rng, n, 8), float(rng.uniform(2, 60)) if seed % 4 else "auto"
    settings = {"lam": lam, "half_life": [None, 30.0][seed % 2], "random_state": 0}
    fitted = one_machine(smallvar.MiniBatchDPMeans(**settings), X, weight, sizes)
    model, Y = smallvar.MiniBatchDPMeans(**settings), chunked(X, sizes)
    if seed % 5 == 0:
        model.fit(X[::2] + 1.0)  # which is forgotten
    smallvar.dask.fit(model, Y, sample_weight=weight)
    for step in range(2):
        for name in ("cluster_centers_", "cluster_weights_", "lam_", "n_steps_", "objective_"):
            assert bits(getattr(fitted, name)) == bits(getattr(model, name)), name
        assert_lazy(model.labels_, fitted.predict(X))
        if step == 0:  # and on from there
            one_machine(fitted, X, weight, sizes)
            smallvar.dask.partial_fit(model, Y, sample_weight=weight)
    smallvar.dask.partial_fit(model, Y, labels=False)
    assert not hasattr(model, "labels_")
    again = partial(smallvar.dask.partial_fit, X=Y[:, :0])
    assert_refuses(model, again, ValueError, "at least one column")


@pytest.fixture
def sampled(monkeypatch):
    """Samples of 800 rows; a list of those that were drawn, with their weights."""
    samples, sample = [], _fit.CollectionRows.sample

    def recorded(*arguments):
        samples.append(sample(*arguments))
        return samples[-1]

    monkeypatch.setattr(_fit, "CHOICE_ROWS", 800)
    monkeypatch.setattr(_fit.CollectionRows, "sample", recorded)
    return samples


@pytest.mark.parametrize("options", [{}, {"n_clusters": 4}, {"noise": True}])
@seeds(6)
def test_shapes_equal_one_machine_with_the_sample(seed, options, sampled):
    """Moons, also turned into more columns, or blobs, of sparse rows, too."""
    rng = np.random.default_rng(seed)
    X = make_moons(3000, noise=0.08, random_state=seed)[0]
    X[:200] = rng.uniform(-3, 4, (200, 2))
    if seed % 3 == 1:
        X = np.column_stack([X, 0.1 * rng.normal(size=(3000, 2))]) + 1e4
    if seed % 3 == 2:
        X = make_blobs(3000, 2, centers=3, random_state=seed)[0]
    weight, n = rng.integers(0, 3, 3000).astype(float) if seed % 2 else None, [3000, 700][seed > 3]
    X, weight, sizes = X[:n], None if weight is None else weight[:n], uneven(rng, n, 6)
    kind = "sparse" if seed == 2 and "noise" not in options else ["array", "frame"][seed % 2]
    model, (Y, w) = (
        smallvar.ShapeMeans(random_state=seed, **options),
        collection(kind, X, weight, sizes),
    )
    smallvar.dask.fit(model, Y, sample_weight=w, persist=seed % 3 > 0)
    rows, heavy, _ = sampled[-1]
    assert rows.shape[0] == min(n, 800)
    local = clone(model).fit(rows, sample_weight=heavy)
    for name in ("n_clusters_", "piece_centers_", "piece_clusters_", "merge_evidence_"):
        assert bits(getattr(model, name)) == bits(getattr(local, name)), name
    assert bits(model.boundaries_.evidence) == bits(local.boundaries_.evidence)
    X = csr_array(X) if kind == "sparse" else X
    assert_lazy(model.labels_, local.predict(X))
    assert np.array_equal(smallvar.dask.transform(model, Y).compute(), local.transform(X))


# ---- refusals -----------------------------------------------------------------------------------


def rows_with(value, dtype=float):
    """Two partitions; the second one has this value."""
    X = np.ones((6, 2), dtype=dtype)
    X[4, 1] = value
    return da.from_array(X, chunks=(3, 2))


NO_WEIGHT = "sample_weight must have a positive entry, got all zeros|of positive weight, got none"
BAD_DATA = {  # arguments of fit, words of the error
    "columns": ({"X": da.ones((6, 2), chunks=(3, 1))}, "one chunk", "rechunk"),
    "one dimension": ({"X": da.ones(6, chunks=3)}, "two dimensions"),
    "NaN": ({"X": rows_with(np.nan)}, "partition 1", "NaN"),
    "strings": ({"X": rows_with("x", object)}, "partition 1"),
    "complex": ({"X": ROWS.astype(complex)}, "partition [01]", "[Cc]omplex"),
    "negative": ({"sample_weight": [1, 1, 1, 1, -1, 1]}, "partition 1", "sample_weight", ">= 0"),
    "zeros": ({"sample_weight": np.zeros(6)}, NO_WEIGHT),
    "other partitions": ({"sample_weight": da.ones(6, chunks=2)}, "partitions of X", "3 for 2"),
    "other lengths": (
        {"sample_weight": da.ones(6, chunks=((2, 4),))},
        *("partition [01]", "sample_weight", r"\(3,\)"),
    ),
    "unknown": (
        {"X": ROWS[ROWS[:, 0] > 0], "sample_weight": np.ones(6)},
        "must be a dask collection",
    ),
    "short": ({"sample_weight": np.ones(5)}, r"shape \(6,\)"),
    "without rows": (
        {"X": ROWS.rechunk(((3, 0, 3), 2)), "sample_weight": da.ones(8, chunks=((3, 2, 3),))},
        r"sample_weight must have shape \(0,\), got \(2,\)",
    ),
}
BAD_SETS = {
    "two partitions": ({"groups": list("aabbac")}, "whole in one", "'a' in partitions 0 and 1"),
    "none": ({"groups": None}, "groups must say which data set"),
    "no column": ({"groups": "city"}, "groups must be a dask collection", "'city'"),
    "length": ({"groups": [1, 2]}, r"groups must have shape \(6,\), got \(2,\)"),
    "chunks": ({"groups": da.zeros(6, chunks=6)}, "groups must have the partitions", "1 for 2"),
    "uneven": ({"groups": da.zeros(6, chunks=((1, 5),))}, "partition [01]", "groups must have sh"),
    "missing": ({"groups": [1.0, np.nan, 2, 3, 3, 3]}, "partition 0", "groups must not be missing"),
    "kinds": (
        {"groups": da.from_array(np.array([1, 1, 1, *"abc"], dtype=object), chunks=3)},
        "groups must be all numbers or all strings",
    ),
    "idle, two partitions": (
        {"groups": [1, 2, 2, 1, 3, 3], "sample_weight": [1, 1, 1, 0, 1, 1.0]},
        "whole in one",
    ),
    "large": ({"X": 1e150 * ROWS}, "largest absolute value"),
}
BAD_OPTIONS = {
    "no rows": ({"X": ROWS[ROWS[:, 0] > 5]}, "at least one row"),
    "persist": ({"persist": "yes"}, "persist", "auto"),
    "groups": ({"groups": HALVES}, "groups must be None"),
    "max_opened": ({"max_opened": 0}, "max_opened", ">= 1"),
}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *((name, case) for name in MODELS for case in BAD_DATA.values()),
        *(("HDPMeans", case) for case in BAD_SETS.values()),
        *(("DPMeans", case) for case in BAD_OPTIONS.values()),
    ],
)
def test_refuses(name, arguments):
    """Errors name the partition; the estimator is as it was."""
    (options, *words), fit = arguments, fitted_by(name)
    model = fit(clone(MODELS[name]))
    assert_refuses(model, partial(fit, **options), ValueError, *words)


NOT_FOR_PARTITIONS = {
    "DPMeans": (
        *({"n_init": 2}, {"metric": "auto", "lam": "auto"}),
        *({"min_cluster_size": 3}, {"link_penalty": 2.0}, {"lam": "farthest-first"}),
        *({"algorithm": "collapsed"}, {"algorithm": "merge"}, {"init": "sample"}, {"lam": -1.0}),
    ),
    "SphericalDPMeans": (*({"n_init": 2}, {"lam": "farthest-first", "min_cosine": None}),),
    "MiniBatchDPMeans": ({"batch_size": 9}, {"max_iter": 3}, {"tol": 0.5}, {"lam": -1.0}),
    "HDPMeans": (
        *({"n_init": 2}, {"divergence": "kl"}, {"n_clusters": 2, "lam_global": "auto"}),
        *({"lam_local": lam} for lam in ("auto", 0.0, np.inf)),
        *({"lam_global": lam} for lam in ("farthest-first", -1.0, np.nan)),
    ),
    "ShapeMeans": ({"min_cluster_size": 3}, {"n_clusters": 0}),
}


@each_model
def test_parameters_that_cannot_be_honored(name):
    for options in NOT_FOR_PARTITIONS[name]:
        model = clone(MODELS[name]).set_params(**options)
        assert_refuses(model, fitted_by(name), ValueError, f"{next(iter(options))} must")


@pytest.mark.parametrize("name", ["DPMeans", "HDPMeans"])
def test_too_many_clusters(name):
    X = da.from_array(np.random.default_rng(0).normal(size=(200, 2)), chunks=(100, 2))
    fit = fitted_by(name, X, np.repeat([1, 2], 100))
    tiny = {"lam_local": 1e-9, "lam_global": 1e-9} if name == "HDPMeans" else {"lam": 1e-9}
    model = clone(MODELS[name]).set_params(**tiny)
    words = "lam(_local)?=1e-09", "more than 50 clusters open in one partition"
    assert_refuses(model, partial(fit, max_opened=50), RuntimeError, *words)
    assert fit(model).n_clusters_ == 200


def test_weights_and_data_sets_of_a_folder_of_tables(tmp_path):
    """Dask reads a few columns of several files as one partition, unlike all of them."""
    X, y = make_blobs([40, 70, 30, 60], centers=None, n_features=6, random_state=0)
    table = pd.DataFrame(X, columns=list("abcdef")).assign(place=[f"site {k}" for k in y])
    for k in range(4):
        table[y == k].to_parquet(tmp_path / f"part.{k}.parquet")
    frame, whole = dd.read_parquet(tmp_path), table.iloc[np.argsort(y, kind="stable")]
    model = smallvar.HDPMeans(lam_local=100.0, lam_global=200.0)
    fitted = smallvar.dask.fit(clone(model), frame, groups="place")
    model.fit(whole.drop(columns="place"), groups=whole["place"])
    assert np.array_equal(fitted.labels_.compute(), model.labels_)
    rows, model = frame[list("abcdef")], smallvar.DPMeans(lam=100.0)
    fitted = smallvar.dask.fit(clone(model), rows, sample_weight=frame["a"].abs())
    model.fit(whole[list("abcdef")], sample_weight=whole["a"].abs())
    assert np.array_equal(fitted.labels_.compute(), model.labels_)
    with pytest.raises(ValueError, match="X must have two dimensions, got a dask Series"):
        smallvar.dask.fit(model, frame["a"])


def test_models():
    """Other estimators are refused; a subclass of a user is fitted; arrays are not for Dask."""
    for other in (smallvar.BregmanDPMeans(), smallvar.DPMeans, smallvar.KernelDPMeans(), "DPMeans"):
        with pytest.raises(TypeError, match="model must be one of DPMeans, SphericalDPMeans"):
            smallvar.dask.fit(other, ROWS)
    with pytest.raises(TypeError, match="model must be a MiniBatchDPMeans, got DPMeans"):
        smallvar.dask.partial_fit(smallvar.DPMeans(), ROWS)
    with pytest.raises(ValueError, match="persist and max_opened must have their defaults"):
        smallvar.dask.fit(smallvar.MiniBatchDPMeans(), ROWS, persist=True)
    with pytest.raises(TypeError, match="labels must"):
        smallvar.dask.fit(smallvar.DPMeans(), ROWS, labels=1)
    with pytest.raises(TypeError, match="X must be a dask array"):
        smallvar.dask.fit(smallvar.DPMeans(), np.ones((6, 2)))

    class Mine(smallvar.DPMeans):
        """One with the parameters of DPMeans."""

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = smallvar.dask.fit(Mine(lam=1.0, max_iter=5), ROWS)
    assert isinstance(model, Mine) and model.n_clusters_ == 1 and model.max_iter == 5
