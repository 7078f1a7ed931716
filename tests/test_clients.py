"""What other libraries make of the estimators: k-means of scikit-learn, who takes a clusterer."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from helpers import seeds
from numpy.testing import assert_allclose
from problems import blobs
from sklearn.base import clone
from sklearn.cluster import KMeans

from smallvar import (
    BregmanDPMeans,
    DPMeans,
    HDPMeans,
    MahalanobisMeans,
    MiniBatchDPMeans,
    SphericalDPMeans,
)


def problem(seed, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return blobs(rng, 200, 1 + seed % 5, 1 + seed % 7).astype(dtype)


MODELS = {
    "DPMeans": lambda: DPMeans(lam=0.1),
    "merge": lambda: DPMeans(random_state=0),
    "MiniBatchDPMeans": lambda: MiniBatchDPMeans(lam=0.1, batch_size=50, random_state=0),
    "HDPMeans": lambda: HDPMeans(lam_local=0.1, lam_global=0.2),
    "BregmanDPMeans": lambda: BregmanDPMeans(lam=0.1),
}
EACH = pytest.mark.parametrize("name", MODELS)
TYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def check_kmeans(kmeans, model, X):
    """The same centers, and the same answers about X up to ties."""
    assert type(kmeans) is KMeans
    assert kmeans.cluster_centers_.dtype == X.dtype
    assert np.array_equal(kmeans.cluster_centers_, model.cluster_centers_.astype(X.dtype))
    assert not np.shares_memory(kmeans.cluster_centers_, model.cluster_centers_)
    assert kmeans.n_clusters == len(model.cluster_centers_) == model.n_clusters_
    assert np.array_equal(kmeans.labels_, model.labels_)
    assert kmeans.labels_.dtype == np.int32
    for name in ("inertia_", "n_iter_", "n_features_in_"):
        assert getattr(kmeans, name) == getattr(model, name)
    eps = 10 * np.finfo(X.dtype).eps
    gaps = KMeans.transform(kmeans, X.copy()).astype(float) ** 2
    own, other = model.predict(X), kmeans.predict(X)
    rows = np.arange(len(X))
    assert_allclose(gaps[rows, own], gaps[rows, other], rtol=0, atol=eps * np.square(X).max())
    distances = np.sqrt(np.square(X[:, None] - model.cluster_centers_).sum(axis=2))
    assert_allclose(kmeans.transform(X), distances, rtol=0, atol=100 * eps**0.5)
    error = np.square(distances.min(axis=1)).sum()
    assert_allclose(kmeans.score(X), -error, rtol=1e4 * eps, atol=1e4 * eps)
    assert list(kmeans.get_feature_names_out()) == [f"kmeans{k}" for k in range(kmeans.n_clusters)]


@pytest.mark.filterwarnings("ignore:one cluster is left")
@EACH
@TYPES
@seeds(15)
def test_kmeans_of_the_same_centers(name, dtype, seed):
    X = problem(seed, dtype)
    model = MODELS[name]().fit(X)
    check_kmeans(model.to_sklearn_kmeans(), model, X)
    for other in (np.float32, np.float64, "float32"):
        check_kmeans(model.to_sklearn_kmeans(other), model, X.astype(other))


@TYPES
def test_kmeans_of_directions(dtype):
    """Centers of length 1: the nearest one has the largest cosine, whatever the row's length."""
    X = np.random.default_rng(0).normal(size=(200, 4)).astype(dtype)
    model = SphericalDPMeans(min_cosine=0.5).fit(X)
    kmeans = model.to_sklearn_kmeans()
    assert np.array_equal(kmeans.predict(X), model.predict(X))
    assert_allclose(kmeans.inertia_, 2 * model.inertia_, rtol=1e-12)
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert_allclose(kmeans.score(units), -2 * model.inertia_, rtol=1e-4)


@pytest.mark.parametrize("name", ["DPMeans", "MiniBatchDPMeans"])
@TYPES
def test_kmeans_of_one_center_and_of_equal_ones(name, dtype):
    X = problem(3, dtype)
    model = MODELS[name]().fit(X)
    model.cluster_centers_ = model.cluster_centers_[:1]
    model.n_clusters_ = 1
    check_kmeans(model.to_sklearn_kmeans(), model, X)
    model.cluster_centers_ = np.repeat(model.cluster_centers_, 5, axis=0)
    model.n_clusters_ = 5
    kmeans = model.to_sklearn_kmeans()
    assert kmeans.cluster_centers_.shape == (5, X.shape[1])
    assert not kmeans.predict(X).any()


@EACH
def test_kmeans_lasts(name):
    """Names, pickles, clones that are fitted on; nothing of it changes the model."""
    X = pd.DataFrame(problem(4), columns=list("abcde"))
    model = MODELS[name]().fit(X)
    before = model.cluster_centers_.copy()
    kmeans = model.to_sklearn_kmeans()
    assert list(kmeans.feature_names_in_) == list("abcde")
    with pytest.raises(ValueError, match="feature names should match"):
        kmeans.predict(X.rename(columns={"a": "z"}))
    again = pickle.loads(pickle.dumps(kmeans))
    assert np.array_equal(again.predict(X), model.predict(X))
    frame = again.set_output(transform="pandas").transform(X)
    assert frame.columns[0] == "kmeans0"
    refit = clone(kmeans).fit(X)  # k-means from these centers
    assert refit.inertia_ <= -kmeans.score(X) * (1 + 1e-12)
    assert refit.n_clusters == model.n_clusters_
    kmeans.cluster_centers_[:], kmeans.labels_[:] = 0, 0
    assert np.array_equal(model.cluster_centers_, before)
    assert model.labels_.any()
    assert refit.get_params()["max_iter"] == 300


def test_kmeans_of_a_stream():
    rng = np.random.default_rng(0)
    model = MiniBatchDPMeans(lam=0.1)
    for dtype in (np.float32, np.float64):
        model.partial_fit(blobs(rng, 50, 3, 4).astype(dtype))
    kmeans = model.to_sklearn_kmeans()  # of the type of the first batch
    assert kmeans.cluster_centers_.dtype == np.float32
    assert len(kmeans.labels_) == 50


def test_many_centers():
    X = np.random.default_rng(0).random((9000, 2)).astype(np.float32)
    model = DPMeans(lam=1e-12, init=X).fit(X)
    check_kmeans(model.to_sklearn_kmeans(), model, X[:50])


def test_no_kmeans():
    X = problem(4)
    with pytest.raises(ValueError, match="not fitted"):
        DPMeans(lam=1.0).to_sklearn_kmeans()
    model = BregmanDPMeans(lam=0.1, divergence="kl").fit(np.abs(X))
    with pytest.raises(ValueError, match="divergence must be 'squared_euclidean' .* got 'kl'"):
        model.to_sklearn_kmeans()
    assert not hasattr(MahalanobisMeans(2), "to_sklearn_kmeans")
    model = DPMeans(lam=0.1).fit(X)
    for bad in (np.int32, np.float16, "nonsense", 3.0):
        with pytest.raises(ValueError, match=r"dtype must be numpy.float64, numpy.float32 or None"):
            model.to_sklearn_kmeans(bad)
    model.cluster_centers_ = model.cluster_centers_ * 1e60
    with pytest.raises(ValueError, match="dtype must hold cluster_centers_, got float32 for"):
        model.to_sklearn_kmeans(np.float32)
    model.cluster_centers_ = model.cluster_centers_[:, :2]
    with pytest.raises(ValueError, match="cluster_centers_ must have shape"):
        model.to_sklearn_kmeans()


@EACH
@TYPES
def test_export_to_onnx(name, dtype):
    skl2onnx = pytest.importorskip("skl2onnx")
    runtime = pytest.importorskip("onnxruntime")
    X = problem(4, dtype)
    model = MODELS[name]().fit(X)
    graph = skl2onnx.to_onnx(model.to_sklearn_kmeans(), X[:1])
    session = runtime.InferenceSession(
        graph.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    labels, scores = session.run(None, {"X": X})
    assert np.array_equal(labels, model.predict(X))
    assert_allclose(
        scores, np.sqrt(np.square(X[:, None] - model.cluster_centers_).sum(2)), atol=1e-3
    )


def test_bertopic():
    """Topics of words: every topic that BERTopic makes is a cluster."""
    with warnings.catch_warnings():  # of its own imports
        warnings.simplefilter("ignore")
        bertopic = pytest.importorskip("bertopic")
        reduction = pytest.importorskip("bertopic.dimensionality").BaseDimensionalityReduction
    rng = np.random.default_rng(0)
    words = [[f"{subject}{i}" for i in range(8)] for subject in ("sea", "iron", "music")]
    group = np.repeat([0, 1, 2], [50, 40, 30])
    docs = [" ".join(rng.choice(words[k], 12)) for k in group]
    X = (np.eye(3)[group] + 0.05 * rng.normal(size=(120, 3))).astype(np.float32)
    for model in (DPMeans(random_state=0), MiniBatchDPMeans(lam=0.5, random_state=0)):
        topics = bertopic.BERTopic(hdbscan_model=model, umap_model=reduction())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, _ = topics.fit_transform(docs, embeddings=X)
            again, _ = topics.transform(docs, embeddings=X)
        assert model.n_clusters_ == len(set(found)) == 3
        assert len(set(zip(found, group, strict=True))) == 3
        assert list(again) == list(found)
        for topic in range(3):  # numbered by size
            assert {word for word, _ in topics.get_topic(topic)} <= {*words[topic], ""}
