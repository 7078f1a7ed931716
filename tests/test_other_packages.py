"""Estimators as parts of other packages: the cluster model of BERTopic, the elbow of yellowbrick.

What is read there is what scikit-learn's clusterers have: ``labels_``, ``predict``,
``partial_fit``, ``set_params``. Packages that are not installed are skipped.
"""

import warnings

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.decomposition import PCA
from sklearn.preprocessing import FunctionTransformer

from smallvar import DPMeans, MiniBatchDPMeans, RobustDPMeans, SphericalDPMeans

WORDS = (("apple", "pear", "plum"), ("cat", "dog", "cow"), ("red", "blue"), ("one", "two", "three"))


@pytest.fixture
def bertopic():
    """The package, which filters warnings as it is imported, and the parts that load no model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        package = pytest.importorskip("bertopic")
        pytest.importorskip("bertopic.backend")
        pytest.importorskip("bertopic.dimensionality")
        pytest.importorskip("bertopic.vectorizers")
        yield package


def texts(outliers):
    """Texts of four topics, shuffled, and some of all words, with embeddings; the topics."""
    rng = np.random.default_rng(1)
    topics = np.concatenate([np.arange(240) % 4, np.full(outliers, -1)])
    words = [WORDS[topic] if topic >= 0 else sum(WORDS, ()) for topic in topics]
    documents = [" ".join(rng.choice(known, 5)) for known in words]
    means = np.vstack([rng.normal(size=(4, 384)), np.zeros(384)])
    spread = np.where(topics >= 0, 0.3, 1.2)[:, None]
    return documents, means[topics] + spread * rng.normal(size=(len(topics), 384)), topics


def topic_model(bertopic, cluster_model, reduction, **options):
    """A BERTopic of given embeddings, with these steps."""
    nothing = bertopic.backend.BaseEmbedder()
    return bertopic.BERTopic(
        embedding_model=nothing, umap_model=reduction, hdbscan_model=cluster_model, **options
    )


def same_partition(one, two):
    """Whether labels are the same up to their numbers, but -1 only with -1."""
    pairs = set(zip(one, two, strict=True))
    unique = len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)
    return unique and all((a == -1) == (b == -1) for a, b in pairs)


def test_bertopic_has_the_outlier_topic(bertopic):
    """Noise of RobustDPMeans is topic -1 of BERTopic, with probability 0."""
    documents, embeddings, truth = texts(outliers=8)
    model = topic_model(bertopic, RobustDPMeans(random_state=0), PCA(5, random_state=0))
    topics, probabilities = model.fit_transform(documents, embeddings)
    assert same_partition(topics, truth)
    np.testing.assert_array_equal(probabilities, model.hdbscan_model.probabilities_)
    assert (probabilities[240:] == 0.0).all() and (probabilities[:240] > 0.9).all()
    told = model.get_document_info(documents)["Probability"]
    np.testing.assert_array_equal(told, probabilities)
    assert model.topic_sizes_ == {-1: 8, 0: 60, 1: 60, 2: 60, 3: 60}
    names = [{word for word, _ in model.get_topic(topic) if word} for topic in range(4)]
    assert sorted(map(sorted, names)) == sorted(map(sorted, WORDS))


def test_bertopic_has_topics_of_new_texts(bertopic):
    """The topics of the fit again; BERTopic needs hdbscan for that, whatever the clusterer."""
    pytest.importorskip("hdbscan")
    documents, embeddings, _ = texts(outliers=8)
    model = topic_model(bertopic, RobustDPMeans(random_state=0), PCA(5, random_state=0))
    topics, _ = model.fit_transform(documents, embeddings)
    again, _ = model.transform(documents, embeddings)
    assert list(again) == topics


@pytest.mark.parametrize("estimator", [DPMeans, SphericalDPMeans])
def test_bertopic_without_outliers(bertopic, estimator):
    """Embeddings as they are: every text has a topic, and topics can be merged."""
    documents, embeddings, truth = texts(outliers=0)
    same = bertopic.dimensionality.BaseDimensionalityReduction()
    model = topic_model(bertopic, estimator(random_state=0), same)
    topics, _ = model.fit_transform(documents, embeddings)
    assert same_partition(topics, truth)
    np.testing.assert_array_equal(model.probabilities_, model.hdbscan_model.probabilities_)
    model.reduce_topics(documents, nr_topics=2)
    assert sorted(model.topic_sizes_.values()) in ([60, 180], [120, 120])


def test_bertopic_probabilities_of_new_texts(bertopic):
    """BERTopic asks for none; the columns are clusters, which it numbers anew as topics."""
    documents, embeddings, _ = texts(outliers=8)
    model = topic_model(bertopic, RobustDPMeans(random_state=0), PCA(5, random_state=0))
    topics, _ = model.fit_transform(documents, embeddings)
    chances = model.hdbscan_model.predict_proba(
        model.umap_model.transform(embeddings), unknown=True
    )
    topic_of = model.topic_mapper_.get_mappings(original_topics=True)
    clusters = [*range(chances.shape[1] - 1), -1]
    assert [topic_of[clusters[best]] for best in chances.argmax(axis=1)] == topics


def test_bertopic_in_batches(bertopic):
    """partial_fit with a projection that stays: topics have the same number in each batch."""
    documents, embeddings, truth = texts(outliers=0)
    reduction = FunctionTransformer(PCA(5, random_state=0).fit(embeddings[:80]).transform)
    counts = bertopic.vectorizers.OnlineCountVectorizer()
    cluster_model = MiniBatchDPMeans(random_state=0)
    model = topic_model(bertopic, cluster_model, reduction, vectorizer_model=counts)
    found = []
    for start in range(0, 240, 80):
        batch = slice(start, start + 80)
        model.partial_fit(documents[batch], embeddings[batch])
        found += list(model.topics_)
        assert model.probabilities_.shape == (80,)
    assert same_partition(found, truth)
    assert sorted(model.topic_sizes_.values()) == [60, 60, 60, 60]


def test_yellowbrick_draws_the_elbow():
    """It sets n_clusters again and again; the scores are those of the fits."""
    pytest.importorskip("matplotlib").use("agg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = pytest.importorskip("yellowbrick.cluster")
        X, _ = make_blobs(400, centers=5, cluster_std=0.5, random_state=0)
        # force_model: it asks for an attribute that scikit-learn 1.8 has removed
        elbow = cluster.KElbowVisualizer(
            DPMeans(random_state=0), k=(2, 9), force_model=True, timings=False
        )
        elbow.fit(X)
    fits = [DPMeans(n_clusters=k, random_state=0).fit(X).inertia_ for k in range(2, 9)]
    np.testing.assert_allclose(elbow.k_scores_, fits, rtol=1e-9)
    assert list(elbow.k_values_) == [*range(2, 9)]
