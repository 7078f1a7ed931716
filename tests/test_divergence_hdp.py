"""HDPMeans with a divergence: equal to its twin, never below the optimum, defaults, bad input."""

import pickle

import numpy as np
import pytest
import twins.bregman
import twins.hdp
import twins.penalty
from helpers import all_partitions, assert_refuses, never_rises, seeds
from sklearn.metrics import normalized_mutual_info_score
from test_divergence import NAMES, draw

from smallvar import BregmanDPMeans, HDPMeans

SQUARED = "squared_euclidean"
each_divergence = pytest.mark.parametrize("name", NAMES)


def problem(name, seed, n_max=70):
    """Rows of the divergence's own kind, data sets, penalties, weights; ties if seed % 5 == 4."""
    rng = np.random.default_rng([seed, 11, len(name)])
    n, d, sets = int(rng.integers(1, n_max)), int(rng.integers(1, 5)), int(rng.integers(1, 9))
    X = draw(rng, name, n, d, 5)
    if name == "kl":
        X = X + rng.random((n, d)) * (X > 0)
    if seed % 5 == 4:
        X = rng.integers(0, 4, size=(n, d)) / (3.0 if name == "logistic" else 1.0)
        X += name == "itakura_saito"
    weights = rng.integers(1, 5, size=n) / 2.0 if seed % 4 == 1 else None
    mean = np.average(X, axis=0, weights=weights)
    if name != SQUARED:
        mean = np.clip(mean, X.min(axis=0), X.max(axis=0))
    spread = np.average(twins.hdp.distances(X, mean[None], name)[:, 0]) + 1e-6
    penalties = spread * rng.choice([0.1, 0.3, 1.0]), spread * rng.choice([0.3, 1.0, 3.0])
    return X, rng.integers(sets, size=n), penalties, weights


def objective(X, groups, labels, penalties, name, weights=None):
    """From labels and groups alone."""
    weights = np.ones(len(X)) if weights is None else weights
    _, labels = np.unique(labels, return_inverse=True)
    centers = twins.bregman.bregman_means(X, weights, labels)
    error = twins.bregman.own_divergence(X, weights, labels, centers, name)
    n_local = len({*zip(groups.tolist(), labels.tolist(), strict=True)})
    return error + penalties[0] * n_local + penalties[1] * len(centers)


def given(penalties, **options):
    return HDPMeans(lam_local=penalties[0], lam_global=penalties[1], **options)


@each_divergence
@seeds(70)
def test_equals_twin(name, seed):
    X, groups, penalties, weights = problem(name, seed)
    if seed % 8 == 7:
        X = np.asfortranarray(X.astype(np.float32))
    model = given(penalties, divergence=name, n_threads=1 + seed % 2)
    model.fit(X, groups=groups, sample_weight=weights)
    assert never_rises(model.objective_path_)
    direct = objective(X.astype(float), groups, model.labels_, penalties, name, weights)
    np.testing.assert_allclose(model.objective_, direct, rtol=1e-9)
    # labels of predict are no worse for the same centers and local clusters
    score = model.score(X, groups=groups, sample_weight=weights)
    assert score >= -model.objective_ * (1 + 1e-9)
    twin = twins.hdp.hdp(X, groups, *penalties, weights=weights, divergence=name)
    if seed % 5 == 4 and not np.array_equal(model.labels_, twin.labels):
        return  # ties may go either way
    assert np.array_equal(model.labels_, twin.labels)
    assert model.n_iter_ == twin.n_iter
    assert model.cluster_centers_.tobytes() == twin.centers.tobytes()
    assert np.array_equal(model.n_local_clusters_, twin.n_local)
    np.testing.assert_allclose(model.objective_path_, twin.path, rtol=1e-9)
    for j, group in enumerate(model.groups_):
        used, rows = model.local_clusters_[j], groups == group
        assert np.array_equal(used[model.local_labels_[rows]], model.labels_[rows])


def optimum(X, groups, penalties, name):
    """The least objective of all labels."""
    labels = map(np.array, all_partitions(len(X)))
    return min(objective(X, groups, z, penalties, name) for z in labels)


@each_divergence
@seeds(20)
def test_never_below_the_optimum(name, seed):
    X, groups, penalties, _ = problem(name, 4 * seed, 7)
    model = given(penalties, divergence=name, n_init=5, random_state=0).fit(X, groups=groups)
    assert model.objective_ >= optimum(X, groups, penalties, name) * (1 - 1e-9)


def planted(name, seed, sets=30, per=12):
    """Data sets of three clusters of six each: X, groups, truth."""
    rng = np.random.default_rng([seed, 3])
    truth = np.concatenate([rng.permutation(6)[:3].repeat(per // 3) for _ in range(sets)])
    if name == "kl":
        X = rng.poisson(rng.gamma(1.0, 5.0, size=(6, 6))[truth]).astype(float)
    elif name == "logistic":
        X = (rng.random((len(truth), 40)) < rng.uniform(0.05, 0.95, (6, 40))[truth]).astype(float)
    else:
        X = rng.exponential(np.exp(rng.normal(0, 1.8, (6, 8)))[truth]) + 1e-9
    return X, np.arange(sets).repeat(per), truth


@each_divergence
def test_auto_equals_twin(name):
    """From the clusters of the pooled rows on, unless another number of them was better."""
    found, compared = [], 0
    for seed in range(3):
        X, groups, truth = planted(name, seed)
        model = HDPMeans(divergence=name, random_state=seed).fit(X, groups=groups)
        found.append(normalized_mutual_info_score(truth, model.labels_))
        pooled = BregmanDPMeans(divergence=name, random_state=seed).fit(X)
        begin = pooled.labels_, pooled.cluster_centers_
        twin = twins.hdp.hdp(X, groups, model.lam_local_, np.inf, begin=begin, divergence=name)
        if len(twin.centers) == model.n_clusters_:
            compared += 1
            assert np.array_equal(model.labels_, twin.labels)
            path = twin.path + model.lam_global_ * len(twin.centers)
            np.testing.assert_allclose(model.objective_path_, path, rtol=1e-9)
            np.testing.assert_allclose(model.lam_global_range_[0], twin.low, rtol=1e-9)
    assert compared and np.mean(found) > 0.8


def test_local_penalty_is_that_of_the_family():
    """Poisson counts have the dispersion 1, however small: 3/2 log(n); fractions their own."""
    for size in (0.4, 30.0):
        X = np.random.default_rng(5).poisson(size, size=(400, 4))
        model = HDPMeans(divergence="kl", random_state=0).fit(X, groups=np.arange(400) % 20)
        assert model.lam_local_ == pytest.approx(1.5 * np.log(400))
    X, groups, _ = planted("kl", 1)
    X = (X + 0.5) / (X + 0.5).sum(axis=1, keepdims=True)
    model, other = (
        HDPMeans(divergence="kl", random_state=0).fit(unit * X, groups=groups) for unit in (1, 128)
    )
    assert np.array_equal(model.labels_, other.labels_) and model.n_clusters_ > 2
    np.testing.assert_allclose(other.lam_local_, 128 * model.lam_local_)


@each_divergence
def test_penalties_of_the_farthest_first_rule(name):
    X, groups, _ = planted(name, 2, sets=4)
    rules = {"lam_local": "farthest-first", "lam_global": "farthest-first"}
    model = HDPMeans(divergence=name, **rules).fit(X, groups=groups)
    local = [twins.penalty.bregman_farthest_first(X[groups == g], 5, name) for g in range(4)]
    np.testing.assert_allclose(model.lam_local_, np.mean(local))
    T = [X.mean(axis=0)]
    for _ in range(15):
        least = twins.bregman.divergences(X, np.array(T), name).min(axis=1)
        sums = np.bincount(groups, least)
        worst = np.flatnonzero(groups == sums.argmax())
        T.append(X[worst[least[worst].argmax()]])
    np.testing.assert_allclose(model.lam_global_, sums.max())


def test_rows_on_the_border():
    X = np.array([[9.0, 0], [8, 0], [0, 7], [0, 9], [9, 0], [0, 8], [3, 3], [3, 3]])
    groups, w = np.array([0, 0, 0, 1, 1, 1, 1, 7]), np.array([1.0] * 6 + [0, 0])
    model = given((1.0, 2.0), divergence="kl").fit(X, groups=groups, sample_weight=w)
    assert (model.cluster_centers_ == 0.0).sum(axis=1).tolist() == [1, 1]
    assert np.array_equal(model.labels_[:6] == model.labels_[0], X[:6, 1] == 0)
    # infinitely far from both: the first cluster of its data set, if that is known
    assert model.local_labels_.tolist()[6:] == [0, -1]
    assert model.predict([[3.0, 3.0]]).tolist() == [0]
    assert model.score([[3.0, 3.0]]) == -np.inf
    assert np.isfinite(model.score(X, groups=groups, sample_weight=w))


@each_divergence
def test_what_else_a_fit_has(name):
    X, groups, _ = planted(name, 4)
    model = HDPMeans(divergence=name, n_clusters=4, random_state=0).fit(X, groups=groups)
    assert model.predict_proba(X).shape == (len(X), 4)
    assert np.isfinite(model.score_samples(X)).all() and len(model.outlier_scores_) == len(X)
    assert len(model.representatives_.centers) == 4 and model.profiles_ is not None
    other = pickle.loads(pickle.dumps(model))
    assert np.array_equal(other.predict(X, groups), model.predict(X, groups))
    with pytest.raises(ValueError, match="divergence must be 'squared_euclidean' for a KMeans"):
        model.to_sklearn_kmeans()
    assert_refuses(model, lambda m: m.fit(-X - 1), ValueError, "X must be >", name)
    assert_refuses(model, lambda m: m.predict(-X - 1), ValueError, "X must be >", name)
    refused = HDPMeans(divergence="l1")
    assert_refuses(refused, lambda m: m.fit(X), ValueError, "divergence must be", "'l1'")
