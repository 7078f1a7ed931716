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


def problem(name, seed, n_max=70):
    """Rows of the divergence's own kind in general position, data sets, penalties, weights."""
    rng = np.random.default_rng([seed, 11, len(name)])
    n, d, sets = int(rng.integers(1, n_max)), int(rng.integers(1, 5)), int(rng.integers(1, 9))
    X = draw(rng, name, n, d, 5)
    if name == "kl":
        X = X + rng.random((n, d)) * (X > 0)
    weights = rng.gamma(1.0, size=n) + 1e-3 if seed % 4 == 1 else None
    mean = np.average(X, axis=0, weights=weights)
    if name != SQUARED:
        mean = np.clip(mean, 0.0, 1.0 if name == "logistic" else np.inf)
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


@pytest.mark.parametrize("name", NAMES)
@seeds(70)
def test_equals_twin(name, seed):
    X, groups, penalties, weights = problem(name, seed)
    if seed % 8 == 7:
        X = np.asfortranarray(X.astype(np.float32))
        if name == "logistic":
            X = np.clip(X, 0, 1)
    model = given(penalties, divergence=name, n_threads=1 + seed % 2)
    model.fit(X, groups=groups, sample_weight=weights)
    twin = twins.hdp.hdp(X, groups, *penalties, weights=weights, divergence=name)
    assert np.array_equal(model.labels_, twin.labels)
    assert model.n_iter_ == twin.n_iter
    assert model.cluster_centers_.tobytes() == twin.centers.tobytes()
    assert np.array_equal(model.n_local_clusters_, twin.n_local)
    np.testing.assert_allclose(model.objective_path_, twin.path, rtol=1e-9)
    assert never_rises(model.objective_path_)
    for j, group in enumerate(model.groups_):
        used, rows = model.local_clusters_[j], groups == group
        assert np.array_equal(used[model.local_labels_[rows]], model.labels_[rows])
    direct = objective(X.astype(float), groups, model.labels_, penalties, name, weights)
    np.testing.assert_allclose(model.objective_, direct, rtol=1e-9)
    # labels of predict are no worse for the same centers and local clusters
    score = model.score(X, groups=groups, sample_weight=weights)
    assert score >= -model.objective_ * (1 + 1e-9)


@pytest.mark.parametrize("name", NAMES)
@seeds(30)
def test_ties(name, seed):
    """Rows of few values: what is tied may go either way, but the objective is that of labels."""
    rng = np.random.default_rng(seed)
    n, groups = 40, rng.integers(5, size=40)
    X = rng.integers(0, 4, size=(n, 2)) / (3.0 if name == "logistic" else 1.0)
    X += name == "itakura_saito"
    penalties = float(rng.choice([0.2, 0.5])), float(rng.choice([0.5, 2.0]))
    weights = rng.integers(1, 3, n).astype(float) if seed % 2 else None
    model = given(penalties, divergence=name).fit(X, groups=groups, sample_weight=weights)
    direct = objective(X, groups, model.labels_, penalties, name, weights)
    np.testing.assert_allclose(model.objective_, direct, rtol=1e-9)
    assert never_rises(model.objective_path_)
    twin = twins.hdp.hdp(X, groups, *penalties, weights=weights, divergence=name)
    if np.array_equal(model.labels_, twin.labels):
        np.testing.assert_allclose(model.objective_path_, twin.path, rtol=1e-9)


def optimum(X, groups, penalties, name):
    """The least objective of all labels."""
    return min(
        objective(X, groups, np.array(labels), penalties, name) for labels in all_partitions(len(X))
    )


@pytest.mark.parametrize("name", [SQUARED, *NAMES])
@seeds(15)
def test_never_below_the_optimum(name, seed):
    X, groups, penalties, _ = problem(name, 4 * seed, 7)
    best = optimum(X, groups, penalties, name)
    model = given(penalties, divergence=name, n_init=5, random_state=0).fit(X, groups=groups)
    assert model.objective_ >= best * (1 - 1e-9)


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


@pytest.mark.parametrize("name", NAMES)
def test_auto_equals_twin(name):
    """From the clusters of the pooled rows on; and the number of clusters is near the true one."""
    found, compared = [], 0
    for seed in range(5):
        X, groups, truth = planted(name, seed)
        model = HDPMeans(divergence=name, random_state=seed).fit(X, groups=groups)
        found.append(normalized_mutual_info_score(truth, model.labels_))
        pooled = BregmanDPMeans(divergence=name, random_state=seed).fit(X)
        assert model.path_.best == pooled.path_.best
        begin = pooled.labels_, pooled.cluster_centers_
        twin = twins.hdp.hdp(X, groups, model.lam_local_, np.inf, begin=begin, divergence=name)
        low, high = model.lam_global_range_
        assert model.lam_global_ >= low and high > 0.0
        if len(twin.centers) == model.n_clusters_:  # else another number was better
            compared += 1
            assert np.array_equal(model.labels_, twin.labels)
            path = twin.path + model.lam_global_ * len(twin.centers)
            np.testing.assert_allclose(model.objective_path_, path, rtol=1e-9)
            np.testing.assert_allclose(low, twin.low, rtol=1e-9)
    assert compared and np.mean(found) > 0.8


def test_local_penalty_of_counts_does_not_depend_on_their_size():
    """Poisson counts have the dispersion 1, however small: 3/2 log(n); percents have their own."""
    for size in (0.4, 30.0):
        rng = np.random.default_rng(5)
        X, groups = rng.poisson(size, size=(400, 4)).astype(float), np.arange(400) % 20
        model = HDPMeans(divergence="kl", random_state=0).fit(X, groups=groups)
        assert model.lam_local_ == pytest.approx(1.5 * np.log(400))
    X, groups, _ = planted("kl", 1)
    X = (X + 0.5) / (X + 0.5).sum(axis=1, keepdims=True)
    models = [
        HDPMeans(divergence="kl", random_state=0).fit(unit * X, groups=groups) for unit in (1, 128)
    ]
    assert np.array_equal(*(m.labels_ for m in models)) and models[0].n_clusters_ > 2
    np.testing.assert_allclose(models[1].lam_local_, 128 * models[0].lam_local_)


@pytest.mark.parametrize("name", NAMES)
def test_penalties_of_the_farthest_first_rule(name):
    X, groups, _ = planted(name, 2, sets=4)
    rules = {"lam_local": "farthest-first", "lam_global": "farthest-first"}
    model = HDPMeans(divergence=name, n_local=2, n_global=4, **rules).fit(X, groups=groups)
    local = [twins.penalty.bregman_farthest_first(X[groups == g], 2, name) for g in range(4)]
    np.testing.assert_allclose(model.lam_local_, np.mean(local))
    T = [X.mean(axis=0)]
    for _ in range(4):
        least = twins.bregman.divergences(X, np.array(T), name).min(axis=1)
        sums = np.bincount(groups, least)
        worst = np.flatnonzero(groups == sums.argmax())
        T.append(X[worst[least[worst].argmax()]])
    np.testing.assert_allclose(model.lam_global_, sums.max())


def test_rows_on_the_border():
    """A count of 0 in a column where the centers have none, and a new value where they do."""
    X = np.array([[9.0, 0], [8, 0], [0, 7], [0, 9], [9, 0], [0, 8]])
    groups = np.array([0, 0, 0, 1, 1, 1])
    model = HDPMeans(lam_local=1.0, lam_global=2.0, divergence="kl").fit(X, groups=groups)
    assert model.n_clusters_ == 2 and (model.cluster_centers_ == 0.0).any(axis=1).all()
    assert np.array_equal(model.labels_ == model.labels_[0], X[:, 1] == 0)
    # infinitely far from both: the first cluster; a row of weight zero: one of its data set
    assert model.predict([[3.0, 3.0]]).tolist() == [0]
    assert model.score([[3.0, 3.0]]) == -np.inf
    again = HDPMeans(lam_local=1.0, lam_global=2.0, divergence="kl")
    rows, w = np.vstack((X, [[3.0, 3.0], [3.0, 3.0]])), np.append(np.ones(6), [0.0, 0.0])
    again.fit(rows, groups=np.append(groups, [1, 7]), sample_weight=w)
    assert np.array_equal(again.labels_[:6], model.labels_)
    assert again.local_labels_.tolist()[6:] == [0, -1]


def test_blocks_do_not_matter(monkeypatch):
    """Blocks of a few rows and local clusters, or all at once."""
    for name in NAMES:
        X, groups, _ = planted(name, 3, sets=60)
        model = given((2.0, 6.0), divergence=name).fit(X, groups=groups)
        monkeypatch.setattr("smallvar._centers.divergence.TABLE_ROWS", 16)
        small = given((2.0, 6.0), divergence=name).fit(X, groups=groups)
        monkeypatch.undo()
        assert model.n_clusters_ > 3
        assert model.labels_.tobytes() == small.labels_.tobytes()
        assert np.array_equal(model.objective_path_, small.objective_path_)


@pytest.mark.parametrize("name", NAMES)
def test_what_else_a_fit_has(name):
    X, groups, _ = planted(name, 4)
    model = HDPMeans(divergence=name, n_clusters=4, random_state=0).fit(X, groups=groups)
    assert model.n_clusters_ == 4
    assert model.predict_proba(X).shape == (len(X), 4)
    assert np.isfinite(model.score_samples(X)).all() and len(model.outlier_scores_) == len(X)
    assert len(model.representatives_.centers) == 4 and model.profiles_ is not None
    assert not model.lam_global_range_[0] < 0
    other = pickle.loads(pickle.dumps(model))
    assert np.array_equal(other.predict(X, groups), model.predict(X, groups))
    with pytest.raises(ValueError, match="divergence must be 'squared_euclidean' for a KMeans"):
        model.to_sklearn_kmeans()
    assert_refuses(model, lambda m: m.fit(-X - 1), ValueError, "X must be >", name)
    assert_refuses(model, lambda m: m.predict(-X - 1), ValueError, "X must be >", name)
    other = HDPMeans(divergence="l1")
    assert_refuses(other, lambda m: m.fit(X), ValueError, "divergence must be", "'l1'")


def test_a_cluster_of_machines_refuses_it():
    dask = pytest.importorskip("smallvar.dask")
    model = dask.HDPMeans(lam_local=1.0, lam_global=1.0, divergence="kl")
    with pytest.raises(ValueError, match="divergence must be 'squared_euclidean' for a dask coll"):
        model.fit(None)
