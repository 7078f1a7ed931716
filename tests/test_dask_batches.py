"""MiniBatchDPMeans and ShapeMeans on dask: partitions as batches, and pieces of a sample."""

import numpy as np
import pytest
from helpers import assert_refuses, seeds
from scipy.sparse import csr_array
from sklearn.datasets import make_blobs, make_moons

import smallvar

pytest.importorskip("distributed")
pytest.importorskip("dask.dataframe")

import dask.array as da
from dask_helpers import assert_lazy, chunked, framed, threads_as_workers, uneven

import smallvar.dask
from smallvar import MiniBatchDPMeans, ShapeMeans
from smallvar.dask import _fit

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler"),
    pytest.mark.filterwarnings("ignore:the number of clusters"),
]


@pytest.fixture(scope="module", autouse=True)
def client():
    """Two workers that are threads of this process; the default client of the module."""
    with threads_as_workers() as client:
        yield client


# ---- batches ------------------------------------------------------------------------------------


def batches(seed):
    """Rows, weights or None, and the sizes of up to eight partitions, some empty."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(20, 400)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d)) + 6.0 * rng.integers(0, 4, (n, 1))
    X = X.astype(np.float32) if seed % 2 else X.round(1)
    weight = rng.integers(0, 3, n).astype(float) if seed % 3 == 0 else None
    return X, weight, uneven(rng, n, 8), float(rng.uniform(2, 60)) if seed % 4 else "auto"


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
def test_batches_equal_one_machine(seed):
    X, weight, sizes, lam = batches(seed)
    Y = chunked(X, sizes)
    settings = {"lam": lam, "half_life": [None, 30.0][seed % 2], "random_state": 0}
    fitted = one_machine(MiniBatchDPMeans(**settings), X, weight, sizes)
    model = MiniBatchDPMeans(**settings)
    if seed % 5 == 0:
        model.fit(X[::2] + 1.0)  # which is forgotten
    smallvar.dask.fit(model, Y, sample_weight=weight)
    for step in range(2):
        for name in (
            *("cluster_centers_", "cluster_weights_", "lam_", "n_steps_", "inertia_"),
            "objective_",
        ):
            assert np.array_equal(getattr(fitted, name), getattr(model, name)), name
        assert_lazy(model.labels_, fitted.predict(X))
        if step == 0:  # and on from there
            one_machine(fitted, X, weight, sizes)
            smallvar.dask.partial_fit(model, Y, sample_weight=weight)
    smallvar.dask.partial_fit(model, Y, labels=False)
    assert not hasattr(model, "labels_")
    assert_refuses(
        model, lambda m: smallvar.dask.partial_fit(m, Y[:, :0]), ValueError, "at least one column"
    )


# ---- shapes -------------------------------------------------------------------------------------

FITTED = ("n_clusters_", "piece_centers_", "piece_clusters_", "merge_evidence_", "confidence_")


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


def shapes(seed, n=3000):
    """Two moons, also turned into more columns, with one that is noise, or three blobs; weights."""
    rng = np.random.default_rng(seed)
    X = make_moons(n, noise=0.08, random_state=seed)[0]
    if seed % 3 == 1:
        X = np.column_stack([X, 0.1 * rng.normal(size=(n, 2))]) + 1e4
    if seed % 3 == 2:
        X = make_blobs(n, 2, centers=3, random_state=seed)[0]
    return X, rng.integers(0, 3, n).astype(float) if seed % 2 else None


def assert_equals_one_machine(model, X, sample, **options):
    """Pieces and clusters are those of one machine, of this sample."""
    local = ShapeMeans(**options).fit(sample[0], sample_weight=sample[1])
    for name in FITTED:
        np.testing.assert_array_equal(getattr(model, name), getattr(local, name), err_msg=name)
    np.testing.assert_array_equal(model.boundaries_.evidence, local.boundaries_.evidence)
    assert_lazy(model.labels_, local.predict(X))
    return local


@pytest.mark.parametrize("persist", [True, False])
@seeds(6)
def test_shapes_equal_one_machine_with_the_sample(seed, persist, sampled):
    X, weight = shapes(seed)
    sizes = uneven(np.random.default_rng(seed), len(X), most=6)
    model, Y = ShapeMeans(random_state=seed), chunked(X, sizes)
    smallvar.dask.fit(model, Y, sample_weight=chunked(weight, sizes), persist=persist)
    assert len(sampled[-1][0]) == 800
    local = assert_equals_one_machine(model, X, sampled[-1], random_state=seed)
    distances = smallvar.dask.transform(model, Y)
    assert distances.shape == (len(X), model.n_clusters_)
    np.testing.assert_array_equal(distances.compute(), local.transform(X))


@pytest.mark.parametrize("options", [{"n_clusters": 4}, {"noise": True}])
def test_options(options, sampled):
    X = np.vstack([shapes(0)[0], np.random.default_rng(0).uniform(-3, 4, (300, 2))])
    model = ShapeMeans(random_state=0, **options)
    smallvar.dask.fit(model, chunked(X, [1000, 0, 2300]))
    local = assert_equals_one_machine(model, X, sampled[0], random_state=0, **options)
    assert model.n_clusters_ == options.get("n_clusters", model.n_clusters_)
    assert (local.predict(X).min() < 0) == ("noise" in options)


def test_all_rows_in_the_sample():
    X, weight = shapes(1, 900)
    frame, heavy = framed(X, weight, [400, 0, 500])
    model = smallvar.dask.fit(ShapeMeans(random_state=0), frame, sample_weight=heavy)
    assert_equals_one_machine(model, X, (X, weight), random_state=0)
    assert list(model.feature_names_in_) == list(frame.columns)


def test_sparse_blocks(sampled):
    X = make_blobs(2000, 5, centers=3, random_state=0)[0]
    blocks = da.from_array(X, chunks=(700, 5)).map_blocks(csr_array)
    model = smallvar.dask.fit(ShapeMeans(random_state=0), blocks)
    assert_equals_one_machine(model, csr_array(X), sampled[0], random_state=0)
    with pytest.raises(ValueError, match="noise must be False for sparse X"):
        smallvar.dask.fit(model.set_params(noise=True), blocks)
    assert model.n_clusters_ == 3  # as it was before
