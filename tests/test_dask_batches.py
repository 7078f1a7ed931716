"""MiniBatchDPMeans on dask: partitions as batches, the bits of one machine."""

import numpy as np
import pandas as pd
import pytest
from helpers import assert_refuses, seeds

import smallvar

da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")
dd = pytest.importorskip("dask.dataframe")

from dask_helpers import threads_as_workers  # noqa: E402

from smallvar.dask import MiniBatchDPMeans  # noqa: E402

ATTRIBUTES = ("cluster_centers_", "cluster_weights_", "lam_", "n_steps_", "inertia_", "objective_")


@pytest.fixture(scope="module", autouse=True)
def client():
    with threads_as_workers() as client:
        yield client


def problem(seed):
    """Rows, weights or None, and the sizes of up to eight partitions, some empty."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(20, 400)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d)) + 6.0 * rng.integers(0, 4, (n, 1))
    X = X.astype(np.float32) if seed % 2 else X.round(1)
    weight = rng.integers(0, 3, n).astype(float) if seed % 3 == 0 else None
    cuts = np.sort(rng.integers(0, n + 1, rng.integers(0, 8)))
    sizes = tuple(int(size) for size in np.diff([0, *cuts, n]))
    return X, weight, sizes, float(rng.uniform(2, 60)) if seed % 4 else "auto"


def one_machine(model, X, weight, sizes):
    """Local estimator after ``partial_fit`` with one partition after another."""
    start = 0
    for size in sizes:
        rows, start = slice(start, start + size), start + size
        heavy = None if weight is None else weight[rows]
        if size and (heavy is None or heavy.any()):
            model.partial_fit(X[rows], sample_weight=heavy)
    return model


@seeds(40)
def test_equals_one_machine(seed):
    X, weight, sizes, lam = problem(seed)
    Y = da.from_array(X, chunks=(sizes, X.shape[1]))
    settings = {"lam": lam, "half_life": [None, 30.0][seed % 2], "random_state": 0}
    fitted = one_machine(smallvar.MiniBatchDPMeans(**settings), X, weight, sizes)
    model = MiniBatchDPMeans(**settings).fit(Y, sample_weight=weight)
    for step in range(2):
        for name in ATTRIBUTES:
            assert np.array_equal(getattr(fitted, name), getattr(model, name)), name
        assert np.array_equal(fitted.predict(X), model.labels_.compute())
        assert np.array_equal(fitted.predict(X), model.to_local().labels_)
        if step == 0:  # and on from there
            one_machine(fitted, X, weight, sizes)
            model.partial_fit(Y, sample_weight=weight)


def test_fit_is_from_scratch():
    X, _, sizes, _ = problem(1)
    Y = da.from_array(X, chunks=(sizes, X.shape[1]))
    first = MiniBatchDPMeans(lam=9.0).fit(Y)
    again = MiniBatchDPMeans(lam=9.0).fit(Y[:10]).fit(Y)
    assert np.array_equal(first.cluster_centers_, again.cluster_centers_)
    assert first.n_steps_ == again.n_steps_


def test_data_frame():
    X, _, _, _ = problem(5)
    pandas = pytest.importorskip("pandas")
    dd = dd = pytest.importorskip("dask.dataframe")
    frame = pandas.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
    parts = dd.from_pandas(frame, npartitions=3)
    model = MiniBatchDPMeans(lam=9.0).fit(parts)
    assert list(model.feature_names_in_) == list(frame.columns)
    assert np.array_equal(model.labels_.compute(), model.to_local().predict(frame))


def test_bad_input():
    X, _, sizes, _ = problem(4)
    Y = da.from_array(X, chunks=(sizes, X.shape[1]))
    model, words = MiniBatchDPMeans(lam=9.0).fit(Y), "at least one column"
    assert_refuses(model, lambda m: m.partial_fit(Y[:, :0]), ValueError, words)
    assert_refuses(MiniBatchDPMeans(lam=-1.0), lambda m: m.fit(Y), ValueError, "lam must be")


def test_probabilities_of_collections():
    """By partitions, and only where the names of columns are those of the fit."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        rng.normal(size=(90, 2)) + np.repeat([[0, 0], [9, 20]], 45, 0), columns=["a", "b"]
    )
    Y = dd.from_pandas(X, npartitions=3)
    model = MiniBatchDPMeans(lam=60.0).fit(Y)
    local = model.to_local()
    for name, options in (
        *(("predict_proba", {"unknown": flag}) for flag in (False, True)),
        *(("score_samples", {}), ("outlier_scores", {})),
    ):
        ask = getattr(model, name)
        lazy, expected = ask(Y, **options), getattr(local, name)(X, **options)
        assert (lazy.dtype, lazy.shape[1:]) == (expected.dtype, expected.shape[1:])
        assert np.array_equal(lazy.compute(), expected)
        assert np.array_equal(ask(X, **options), expected)
        assert np.array_equal(ask(Y[Y.a > 100], **options).compute(), expected[:0])
        with pytest.raises(ValueError, match="feature names"):
            ask(Y[["b", "a"]], **options).compute()
    with pytest.raises(TypeError, match="unknown"):
        model.predict_proba(Y, unknown=1)
