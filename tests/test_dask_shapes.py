"""ShapeMeans on dask collections: pieces of the sample, boundaries of all rows."""

import warnings

import numpy as np
import pytest
from helpers import seeds
from scipy.sparse import csr_array
from sklearn.datasets import make_blobs, make_moons

import smallvar
from smallvar._selection.boundaries import find_boundaries

pytest.importorskip("distributed")
pytest.importorskip("dask.dataframe")

import dask
import dask.array as da
from dask_helpers import assert_lazy, chunked, framed, threads_as_workers, uneven

import smallvar.dask
from smallvar.dask import _shapes

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler"),
    pytest.mark.filterwarnings("ignore:the number of clusters"),
]
FITTED = ("n_clusters_", "piece_centers_", "piece_clusters_", "merge_evidence_", "confidence_")


@pytest.fixture(scope="module", autouse=True)
def client():
    """Two workers that are threads of this process; the default client of the module."""
    with threads_as_workers() as client:
        yield client


@pytest.fixture
def sampled(monkeypatch):
    """Samples of 800 rows; a list of those that were drawn, with their weights."""
    samples, sample = [], _shapes.sample_rows

    def recorded(*arguments):
        samples.append(sample(*arguments))
        return samples[-1]

    monkeypatch.setattr(_shapes, "CHOICE_ROWS", 800)
    monkeypatch.setattr(_shapes, "sample_rows", recorded)
    return samples


def problem(seed, n=3000):
    """Two moons, also turned into more columns, with one that is noise, or three blobs; weights."""
    rng = np.random.default_rng(seed)
    X = make_moons(n, noise=0.08, random_state=seed)[0]
    if seed % 3 == 1:
        X = np.column_stack([X, 0.1 * rng.normal(size=(n, 2))]) + 1e4
    if seed % 3 == 2:
        X = make_blobs(n, 2, centers=3, random_state=seed)[0]
    return X, rng.integers(0, 3, n).astype(float) if seed % 2 else None


def assert_equals_one_machine(model, X, weight, sample, **options):
    """Pieces, clusters and boundaries are those of one machine, of this sample."""
    local = smallvar.ShapeMeans(**options).fit(sample[0], sample_weight=sample[1])
    for name in FITTED:
        np.testing.assert_array_equal(getattr(model, name), getattr(local, name), err_msg=name)
    assert_lazy(model.labels_, local.predict(X))
    pieces = model.pieces_.compute()
    noise = model.labels_.compute() < 0
    assert np.array_equal(pieces < 0, noise)
    assert np.array_equal(model.piece_clusters_[pieces[~noise]], local.predict(X)[~noise])
    rows = X if local.metric_ is None else local.path_.measured(X)
    if len(local.path_.noise_columns):
        rows = rows.copy()
        rows[:, local.path_.noise_columns] = 0.0
    expected = find_boundaries(rows, weight, pieces, len(local.piece_clusters_), cells=True)
    order = np.lexsort(expected.pairs.T[::-1])
    table = model.boundaries_
    assert np.array_equal(table.clusters, expected.pairs[order])
    np.testing.assert_allclose(table.n_rows, expected.weight[order])
    known = expected.known[order]
    np.testing.assert_allclose(table.evidence[known], expected.evidence[order][known], atol=1e-6)
    np.testing.assert_allclose(table.valley[known], expected.valley[order][known], atol=1e-6)
    assert np.isnan(table.evidence[~known]).all()
    return local


@pytest.mark.parametrize("persist", [True, False])
@seeds(6)
def test_equals_one_machine_with_the_sample(seed, persist, sampled):
    X, weight = problem(seed)
    sizes = uneven(np.random.default_rng(seed), len(X), most=6)
    model = smallvar.dask.ShapeMeans(random_state=seed, persist=persist)
    model.fit(chunked(X, sizes), sample_weight=chunked(weight, sizes))
    assert len(sampled[-1][0]) == 800
    assert_equals_one_machine(model, X, weight, sampled[-1], random_state=seed)


@pytest.mark.parametrize("options", [{"n_clusters": 4}, {"noise": True}])
def test_options(options, sampled):
    X = np.vstack([problem(0)[0], np.random.default_rng(0).uniform(-3, 4, (300, 2))])
    model = smallvar.dask.ShapeMeans(random_state=0, **options).fit(chunked(X, [1000, 0, 2300]))
    local = assert_equals_one_machine(model, X, None, sampled[0], random_state=0, **options)
    assert model.n_clusters_ == options.get("n_clusters", model.n_clusters_)
    assert (local.predict(X).min() < 0) == ("noise" in options)


@seeds(2)
def test_all_rows_in_the_sample(seed):
    X, weight = problem(seed, 900)
    frame = framed(X, weight, [400, 0, 500])
    model = smallvar.dask.ShapeMeans(random_state=0).fit(frame[0], sample_weight=frame[1])
    local = smallvar.ShapeMeans(random_state=0).fit(X, sample_weight=weight)
    for name in FITTED:
        np.testing.assert_array_equal(getattr(model, name), getattr(local, name), err_msg=name)
    for name in ("labels_", "pieces_"):
        assert_lazy(getattr(model, name), getattr(local, name))
    np.testing.assert_array_equal(model.boundaries_.evidence, local.boundaries_.evidence)
    assert list(model.feature_names_in_) == list(frame[0].columns)


def test_sparse_blocks(sampled):
    X = make_blobs(2000, 5, centers=3, random_state=0)[0]
    blocks = da.from_array(X, chunks=(700, 5)).map_blocks(csr_array)
    model = smallvar.dask.ShapeMeans(random_state=0).fit(blocks)
    assert_equals_one_machine(model, csr_array(X), None, sampled[0], random_state=0)
    with pytest.raises(ValueError, match="noise must be False for sparse X"):
        model.set_params(noise=True).fit(blocks)
    assert model.n_clusters_ == 3  # as it was before


def test_methods_are_lazy(sampled):
    X, _ = problem(0)
    model = smallvar.dask.ShapeMeans(random_state=0)
    labels = model.fit_predict(chunked(X, [1500, 1500]))
    local = model.to_local()
    assert isinstance(local, smallvar.ShapeMeans)
    assert np.array_equal(labels.compute(), local.labels_)
    assert_lazy(model.predict(chunked(X, [10, 2990])), local.predict(X))
    distances = model.transform(chunked(X, [2000, 0, 1000]))
    assert distances.shape == (3000, model.n_clusters_) and dask.is_dask_collection(distances)
    np.testing.assert_array_equal(distances.compute(), local.transform(X))
    np.testing.assert_array_equal(model.predict(X[:5]), local.predict(X[:5]))
    assert not hasattr(model, "score")


def test_wide_rows_have_the_boundaries_of_the_sample(sampled, monkeypatch):
    X, _ = problem(0)
    monkeypatch.setattr(_shapes, "MOST_MOMENTS", 10)
    model = smallvar.dask.ShapeMeans(random_state=0).fit(chunked(X, [3000]))
    local = smallvar.ShapeMeans(random_state=0).fit(sampled[0][0])
    np.testing.assert_array_equal(model.boundaries_.evidence, local.boundaries_.evidence)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"persist": "never"}, "persist"),
        ({"noise": 1}, "noise"),
        ({"n_clusters": 0}, "n_clusters"),
    ],
)
def test_refuses(options, message):
    with warnings.catch_warnings(), pytest.raises((ValueError, TypeError), match=message):
        smallvar.dask.ShapeMeans(**options).fit(chunked(np.zeros((9, 2)), [9]))
