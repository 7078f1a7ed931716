"""TopicMeans: labels of the twin, the optimum of tiny problems, the number of topics."""

import itertools
import pickle

import numpy as np
import pytest
from helpers import assert_refuses
from scipy.sparse import csc_array, csr_array
from sklearn.metrics import normalized_mutual_info_score
from twins.topics import objective, topic_means

from smallvar import TopicMeans
from smallvar._centers.topic_path import Corpus


def corpus(seed, n=300, words=300, k=5, length=100, alpha=0.1):
    """Counts drawn as by LDA, the topic of each entry (of most occurrences), and of documents."""
    rng = np.random.default_rng(seed)
    phi, X, labels = rng.dirichlet(np.full(words, 0.05), k), np.zeros((n, words)), []
    for d in range(n):
        sizes = rng.multinomial(length, rng.dirichlet(np.full(k, alpha)))
        counts = np.array([rng.multinomial(size, p) for size, p in zip(sizes, phi, strict=True)])
        X[d] = counts.sum(axis=0)
        labels.append(counts.argmax(axis=0)[X[d] > 0])
    return X, np.concatenate(labels)


def problem(seed, n=8, words=7):
    """Random counts (every second: real numbers), weights and penalties."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(rng.choice([0.3, 3.0], size=(n, words))) * (rng.random(n) > 0.1)[:, None] * 1.0
    X[0, 0] += 1.0
    if seed % 2:
        X *= rng.uniform(0.5, 1.5, X.shape)
    weight = rng.uniform(0.5, 2.0, n) if seed % 3 else np.ones(n)
    rng.random()  # passed over, so that the penalties stay those whose optima have been counted
    return X, weight, *map(float, rng.uniform([0.1, 0.1], [3.0, 5.0]))


def prior_of(X, weight):
    """Half a count for each word that there is, by the shares of all documents together."""
    counts = weight @ X
    return 0.5 * (counts > 0).sum() * counts / counts.sum()


def table_of_labels(model, X):
    """Topics of the entries of X (documents x words), -1 where X is 0."""
    z = np.where(X > 0, 0, -1)
    z[X > 0] = model.token_labels_
    return z


@pytest.mark.parametrize("seed", range(200))
def test_labels_of_the_twin(seed):
    X, weight, lam_local, lam_global = problem(seed)
    z, path = topic_means(X, weight, prior_of(X, weight), lam_local, lam_global)
    model = TopicMeans(lam_local=lam_local, lam_global=lam_global)
    model.fit(csr_array(X) if seed % 5 else X, sample_weight=weight)
    np.testing.assert_allclose(model.objective_path_, path, rtol=1e-9)
    assert (np.diff(model.objective_path_) <= 1e-9 * path[0]).all()
    if seed % 2:  # without ties
        pairs = set(zip(model.token_labels_.tolist(), z[X > 0].tolist(), strict=True))
        assert len(pairs) == model.n_clusters_ == len(np.unique(z[X > 0]))
    used = [len(np.unique(row[row >= 0])) for row in z]
    np.testing.assert_array_equal(model.n_local_clusters_, used)
    assert (model.labels_ < 0).tolist() == (~X.any(axis=1)).tolist()
    np.testing.assert_allclose(model.topics_.sum(axis=1), 1.0)


def test_the_optimum_is_never_passed():
    """60 problems of up to six entries: the least objective over all partitions of them."""
    reached = 0
    for seed in range(60):
        X, weight, lam_local, lam_global = problem(seed, n=3, words=3)
        X[np.cumsum(X > 0).reshape(X.shape) > 6] = 0.0
        prior, z, least = prior_of(X, weight), np.full(X.shape, -1), np.inf
        for labels in itertools.product(*(range(i + 1) for i in range((X > 0).sum()))):
            z[X > 0] = labels
            least = min(least, objective(X, z, weight, prior, lam_local, lam_global))
        model = TopicMeans(lam_local=lam_local, lam_global=lam_global, n_init=5)
        found = model.set_params(random_state=0).fit(X, sample_weight=weight).objective_
        assert found >= least * (1 - 1e-9)
        reached += found <= least * (1 + 1e-9)
    assert reached >= 30


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("seed", range(3))
def test_number_of_topics(k, seed):
    X, truth = corpus(seed, k=k)
    model = TopicMeans(random_state=seed).fit(X)
    assert model.n_clusters_ == k
    # labels of the fit, or of each document by itself; the objective has all that is said
    assert normalized_mutual_info_score(truth, model.token_labels_) > 0.6 or k == 1
    assert (np.diff(model.objective_path_) <= 1e-9 * model.objective_).all()
    assert np.mean(model.predict(X) == model.labels_) > 0.95
    ones = np.ones(len(X))
    given = ones, prior_of(X, ones), model.lam_local_, model.lam_global_
    expected = objective(X, table_of_labels(model, X), *given)
    assert model.objective_ == pytest.approx(expected, rel=1e-9)
    assert [len(used) for used in model.local_clusters_] == model.n_local_clusters_.tolist()
    assert TopicMeans(n_clusters=4, random_state=0).fit(X).n_clusters_ == 4


def test_same_bits_for_threads_types_and_formats():
    X, _ = corpus(0, n=1500, k=6)
    for lams in ({}, {"lam_local": 20.0, "lam_global": 60.0}):
        first = TopicMeans(**lams, n_threads=1, random_state=0).fit(X)
        assert first.n_clusters_ > 3
        for Y in (X, csr_array(X.astype(np.float32)), csc_array(X.astype(int))):
            model = TopicMeans(**lams, n_threads=3, random_state=0).fit(Y)
            model = pickle.loads(pickle.dumps(model))
            np.testing.assert_array_equal(model.token_labels_, first.token_labels_)
            assert model.objective_path_.tobytes() == first.objective_path_.tobytes()
            assert model.transform(Y).tobytes() == first.transform(X).tobytes()


def test_weights_and_what_is_empty():
    """Weight 2 is two documents; weight 0, empty documents and unknown words take no part."""
    X, _ = corpus(1, n=60, words=30, k=3)
    X[5] = 0.0
    weight = np.where(np.arange(60) % 4, 1.0, 2.0)
    weight[7], X[7] = 0.0, 1.0
    given = {"lam_local": 10.0, "lam_global": 40.0}
    once = TopicMeans(**given).fit(X, sample_weight=weight)
    kept = weight > 0
    same = TopicMeans(**given).fit(X[kept], sample_weight=weight[kept])
    np.testing.assert_array_equal(once.labels_[kept], same.labels_)
    assert once.objective_ == same.objective_ and once.labels_[7] == once.predict(X[7:8])[0]
    assert once.labels_[5] == -1 and (once.transform(X)[5] == 1 / once.n_clusters_).all()
    assert once.score(X, sample_weight=weight) == pytest.approx(
        sum(w * once.score(X[[d]]) for d, w in enumerate(weight))
    )
    # repeated documents have the objective of weights, and auto does not know the unit of weights
    both = X, table_of_labels(once, X)
    rows, twice = (np.repeat(table, weight.astype(int), axis=0) for table in both)
    given = np.ones(len(rows)), prior_of(X, weight), 10.0, 40.0
    assert objective(rows, twice, *given) == pytest.approx(once.objective_)
    light, heavy = (TopicMeans(random_state=0).fit(X, sample_weight=c * weight) for c in (1.0, 4.0))
    np.testing.assert_array_equal(light.token_labels_, heavy.token_labels_)
    assert heavy.objective_ == pytest.approx(4 * light.objective_)


def test_bursts_are_no_topics():
    """Counts that vary three times as much as multinomial ones, without topics."""
    X = np.random.default_rng(0).negative_binomial(0.6, 1 / 3, size=(400, 60))
    assert TopicMeans(random_state=0).fit(X).n_clusters_ == 1
    rows = csr_array(X.astype(float))
    ratio = Corpus(rows, None, 1).dispersion(np.zeros(rows.nnz, dtype=np.int32), 1)
    assert ratio == pytest.approx(3.0, rel=0.05)


def test_a_saving_within_rounding_opens_no_topic():
    """The pseudo-counts are many times the counts, so that f is mostly rounding."""
    X = np.outer([0.0, 1e-8, 2e-8], np.ones(17))
    assert TopicMeans(lam_global=3e-16, random_state=2).fit(X).n_clusters_ == 1


def test_words_and_classes():
    pd = pytest.importorskip("pandas")
    words = ["goal", "match", "tax", "law", "say"]
    table = pd.DataFrame([[9, 8, 0, 0, 5], [0, 0, 8, 9, 5]] * 5, columns=words)
    model = TopicMeans(n_clusters=2, lam_local=6.0, random_state=0).fit(table)
    assert sorted(map(sorted, model.top_words(2))) == [["goal", "match"], ["law", "tax"]]
    assert model.top_words(1, list("abcde"))[0][0] in "abcd"
    assert model.get_feature_names_out().tolist() == ["topicmeans0", "topicmeans1"]
    with pytest.raises(ValueError, match=r"names must have shape \(5,\)"):
        model.top_words(names=["a"])
    assert sorted(np.bincount(model.labels_).tolist()) == [5, 5]


@pytest.mark.parametrize(
    ("parameters", "X", "message"),
    [
        ({}, [[1, -2], [3, 4]], "X must hold counts >= 0, got -2"),
        ({}, [[0, 0], [0, 0]], "X must have a count > 0 in a document of positive weight"),
        ({"lam_local": 0}, [[1, 2]], "lam_local must be > 0, got 0"),
        ({"n_clusters": 5}, [[1, 2], [2, 1]], "n_clusters=5 topics are not found"),
        ({"n_clusters": 2, "lam_global": 3.0}, [[1, 2]], "n_clusters must be None where lam_gl"),
    ],
)
def test_refused(parameters, X, message):
    model = TopicMeans(lam_local=1.0, lam_global=1.0).fit([[1, 2]])
    model.set_params(**{"lam_global": "auto", **parameters})
    assert_refuses(model, lambda m: m.fit(X), ValueError, message)


def test_unit_of_weights():
    """The lightest document is no unit; penalties that are given are kept."""
    rng = np.random.default_rng(0)
    topics, shares = rng.dirichlet(np.full(60, 0.1), 4), rng.dirichlet(np.full(4, 0.2), 100)
    X = np.array([rng.multinomial(40, share @ topics) for share in shares])
    numbers = {
        TopicMeans(random_state=0).fit(X, sample_weight=np.append(np.ones(99), w)).n_clusters_
        for w in (1.0, 1e-3, 1e-6)
    }
    assert max(numbers) <= 10
    for weight in (1.0, 0.1):
        model = TopicMeans(lam_global=20.0, random_state=0).fit(
            X, sample_weight=np.full(100, weight)
        )
        assert model.lam_global_ == 20.0
    one, two = (TopicMeans(random_state=0).fit(X, sample_weight=np.full(100, w)) for w in (1, 4))
    assert np.array_equal(one.labels_, two.labels_)
    assert two.objective_ == pytest.approx(4.0 * one.objective_)


def test_transform_of_unknown_words():
    X = np.array([[3.0, 2, 0, 0], [0, 0, 0, 0], [1, 4, 2, 0]])
    model = TopicMeans(n_clusters=1, random_state=0).fit(X)
    for rows in (np.zeros((2, 4)), [[0.0, 0, 0, 5]]):
        np.testing.assert_array_equal(model.transform(rows), np.ones((len(rows), 1)))
        assert (model.predict(rows) == -1).all()


def test_counts_far_below_the_smoothing():
    """A topic of such words alone has the shares of all words: it saves nothing, so none opens."""
    X = np.array([[2, 2], [2, 3], [3, 2], [1, 2], [2, 2], [2, 3], [1, 3]]) * 1e-139
    assert TopicMeans(lam_local=3e-139, lam_global=5e-324).fit(X).n_clusters_ == 1
