"""BregmanDPMeans and MahalanobisMeans: equal to their twins, likelihoods, planted clusters."""

import functools

import numpy as np
import pytest
import twins.bregman
import twins.exact
import twins.mahalanobis
import twins.penalty
from helpers import assert_refuses, fit, fit_of_any_order, never_rises, seeds
from problems import blobs
from scipy import stats
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks
from smallvar._sweeps.divergences import DivergencePairs
from smallvar._sweeps.sums import Sums
from threadpoolctl import threadpool_limits

from smallvar import BregmanDPMeans, DPMeans, DynamicMeans, HDPMeans, MahalanobisMeans
from smallvar._centers import divergence as divergence_module
from smallvar._centers import gaussian_path
from smallvar._centers import gaussians as gaussians_module
from smallvar._centers.divergence import SumsFrame
from smallvar._centers.divergence_path import poisson_deviance
from smallvar._centers.divergence_rules import DIVERGENCES

NAMES = ("kl", "itakura_saito", "logistic")
each_divergence = pytest.mark.parametrize("name", NAMES)
ALGORITHMS = ("serial", "delayed", "collapsed")
each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)
may_end_with_one_cluster = pytest.mark.filterwarnings("ignore:one cluster is left")


def draw(rng, name, n, d, k):
    """n rows of the divergence's own kind about k centers."""
    z = rng.integers(k, size=n)
    if name == "kl":
        X = rng.poisson(rng.gamma(1.0, rng.choice([2.0, 50.0]), size=(k, d))[z]).astype(float)
        return X if rng.random() < 0.5 else X + rng.random((n, d))
    if name == "itakura_saito":
        shape = rng.choice([1.0, 5.0])
        return rng.gamma(shape, rng.gamma(1.0, 3.0, size=(k, d))[z] / shape) + 1e-8
    if name == "logistic":
        centers = rng.uniform(0.1, 0.9, size=(k, d))[z]
        X = rng.beta(8 * centers, 8 * (1 - centers))
        return np.where(rng.random((n, d)) < 0.1, np.round(X), X)
    return rng.normal(size=(k, d))[z] + 0.3 * rng.normal(size=(n, d))


def problem(name, seed, n_max=120):
    """Data and the arguments of a fit in general position."""
    rng = np.random.default_rng([seed, len(name)])
    n, d = int(rng.integers(1, n_max)), int(rng.integers(1, 7))
    X = draw(rng, name, n, d, int(rng.integers(1, 6)))
    if name == "kl" and seed % 2:  # ties are for other tests
        X = X + rng.random((n, d)) * (X > 0)
    k = min(n, int(rng.integers(1, 9)))
    lam = twins.penalty.bregman_farthest_first(X, k, name) * rng.uniform(0.7, 1.3)
    options, weights, kind = {}, None, seed % 8
    if kind == 1:
        weights = rng.gamma(1.0, size=n) + 1e-3
    elif kind == 2:
        weights = rng.gamma(1.0, size=n) * (rng.random(n) < 0.7)
        weights[rng.integers(n)] = 1.0
    elif kind == 3:
        options["init"] = draw(rng, name, 4, d, 3)
    elif kind == 4:
        options["max_clusters"] = int(rng.integers(1, 6))
    elif kind == 5:
        options["max_iter"] = 1 + seed % 3
    return X, lam, weights, options


def check_state(model, X, name, weights=None):
    """Assert what holds after every fit of BregmanDPMeans."""
    weights = np.ones(len(X)) if weights is None else weights
    assert model.labels_.dtype == np.int32 and model.cluster_centers_.dtype == np.float64
    assert np.array_equal(np.unique(model.labels_[weights > 0]), np.arange(model.n_clusters_))
    on = weights > 0
    inertia = twins.bregman.own_divergence(
        X[on], weights[on], model.labels_[on], model.cluster_centers_, name
    )
    rounding = 1e-13 * weights.max() * max(1.0, np.abs(X).sum())
    np.testing.assert_allclose(model.inertia_, inertia, rtol=1e-9, atol=rounding)
    assert model.objective_ == model.inertia_ + model.lam_ * model.n_clusters_
    assert model.objective_path_[-1] == model.objective_
    assert never_rises(model.objective_path_)


SEEDS = {"serial": 104, "delayed": 32, "collapsed": 104}


@each_algorithm
@seeds(lambda algorithm, **_: SEEDS[algorithm])
@each_divergence
def test_equals_twin(name, algorithm, seed):
    """In general position: the same labels, sweep by sweep."""
    X, lam, weights, options = problem(name, seed, 24 if algorithm == "collapsed" else 60)
    model = BregmanDPMeans(
        lam=lam, divergence=name, algorithm=algorithm, random_state=seed, n_threads=1, **options
    )
    warned = fit(model, X, weights)
    twin = twins.bregman.bregman(X, lam, name, algorithm, weights=weights, **options)
    assert np.array_equal(model.labels_, twin.labels)
    assert model.n_iter_ == twin.n_iter
    assert warned == (not twin.converged)
    assert model.cluster_centers_.tobytes() == twin.centers.tobytes()
    path = twin.objective_path
    np.testing.assert_allclose(model.objective_path_, path, rtol=0, atol=1e-9 * path[0])
    check_state(model, X, name, weights)
    if algorithm != "collapsed":
        assert np.array_equal(model.predict(X), model.labels_)


@each_divergence
@pytest.mark.parametrize("seed", range(24))
def test_mergers_equal_twin(name, seed):
    rng = np.random.default_rng([seed, len(name)])
    n, d, kind = int(rng.integers(2, 120)), int(rng.integers(1, 9)), seed % 4
    X = draw(rng, name, n, d, int(rng.integers(1, 6)))
    if kind == 1:  # a grid: many costs are equal, or 0
        step = 4.0 if name == "logistic" else 1.0
        X = np.maximum(np.round(X * step) / step, 1.0 if name == "itakura_saito" else 0.0)
    elif kind == 2:  # differences near the rounding of the values
        X = np.where(rng.random(X.shape) < 0.5, X[0], X[0] * (1 - 2.0 ** -rng.integers(20, 53)))
    elif kind == 3:  # values of all sizes
        X = X * 10.0 ** -rng.integers(0, 320, size=X.shape)
        X = np.maximum(X, 1e-300 if name == "itakura_saito" else 0.0)
    weight = None if rng.random() < 0.5 else rng.gamma(0.3, size=n) + 1e-3
    frame, outcomes = SumsFrame(X, weight, 1), []
    count = int(rng.integers(1, n))
    for compiled in (True, False):
        sums, mean = Sums(frame.layout, n), X.copy()
        sums.add(X, np.arange(n, dtype=np.int32), weight)
        w = np.ones(n) if weight is None else weight.copy()
        rule = DIVERGENCES[name]
        if compiled:
            pairs, costs = DivergencePairs(rule.kind, mean, w, sums, 1 + seed % 2).merge(count)
        else:
            pairs, costs = twins.bregman.merge_cheapest(rule.between, mean, w, sums, count)
        kept = np.setdiff1d(np.arange(n), pairs[:, 1])
        outcomes.append((pairs, costs, mean[kept], w[kept]))
    for ours, twin in zip(*outcomes, strict=True):
        np.testing.assert_array_equal(ours, twin)


def test_mergers_of_clusters_that_cannot_be_compared():
    mean = np.array([[1.0], [np.nan], [2.0]])
    layout = SumsFrame(np.ones((3, 1)), None, 1).layout
    with pytest.raises(ValueError, match="finite"):
        DivergencePairs(DIVERGENCES["kl"].kind, mean, np.ones(3), Sums(layout, 3), 1).merge(1)


@each_algorithm
@seeds(lambda algorithm, **_: SEEDS[algorithm])
def test_squared_euclidean_is_dpmeans(algorithm, seed):
    """The same compiled sweeps: the same bits."""
    X, lam, weights, options = problem("squared_euclidean", seed, 400)
    options |= {"algorithm": algorithm, "random_state": seed, "n_init": 1 + seed % 3}
    if seed % 17 == 0:
        lam = "farthest-first"
        options["guess"] = min(3, len(X))
    model_a, model_b = DPMeans(lam=lam, **options), BregmanDPMeans(lam=lam, **options)
    assert fit(model_a, X, weights) == fit(model_b, X, weights)
    for name in ("labels_", "cluster_centers_", "objective_path_", "lam_", "inertia_", "n_iter_"):
        assert np.array_equal(getattr(model_a, name), getattr(model_b, name)), name
    assert np.array_equal(model_a.predict(X), model_b.predict(X))
    assert model_a.score(X, sample_weight=weights) == model_b.score(X, sample_weight=weights)
    np.testing.assert_allclose(
        model_b.transform(X), model_a.transform(X) ** 2, rtol=1e-12, atol=1e-30
    )


@each_divergence
def test_rows_compared_together_do_not_matter(name, monkeypatch):
    """After a cluster has opened: one row at first, or all of them."""
    X = draw(np.random.default_rng(3), name, 5000, 5, 12)
    model, found = BregmanDPMeans(lam="farthest-first", divergence=name, guess=12, max_iter=3), []
    for size in (1, 64, 10_000):
        monkeypatch.setattr(divergence_module, "AFTER_OPENING", size)
        fit(model, X)
        found.append((model.labels_.tobytes(), model.objective_path_.tobytes()))
    assert model.n_clusters_ > 3 and len({*found}) == 1


@each_algorithm
@each_divergence
def test_extreme_data(name, algorithm):
    """Values on the border of the domain, and many orders of magnitude apart."""
    rng = np.random.default_rng(0)
    top = 0.0 if name == "logistic" else 100.0
    wild = 10.0 ** rng.uniform(-100, top, size=(60, 3))
    plain = draw(rng, name, 60, 2, 3)
    edge = np.ones((4, 2)) if name == "itakura_saito" else rng.integers(0, 2, size=(30, 2)) * 1.0
    constant = np.column_stack([np.full(60, 1.0 if name == "logistic" else 1e9), plain])
    for X in (wild, edge, constant):
        lam = twins.penalty.bregman_farthest_first(X, 3, name)
        model = BregmanDPMeans(lam=lam, divergence=name, algorithm=algorithm).fit(X)
        assert np.isfinite(model.objective_path_).all()
        assert never_rises(model.objective_path_)
    alone = BregmanDPMeans(lam=lam, divergence=name, algorithm=algorithm).fit(plain)
    assert np.array_equal(model.labels_, alone.labels_)
    if name != "itakura_saito":
        model = BregmanDPMeans(lam=1.0, divergence=name, algorithm=algorithm).fit(np.zeros((9, 2)))
        assert model.n_clusters_ == 1 and model.objective_ == 1.0


@each_algorithm
@each_divergence
def test_repeated_rows(name, algorithm):
    """Ties and divergences of zero everywhere: the twin's objective, and nothing cycles."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        pool = {
            "kl": rng.integers(0, 4, size=(6, 2)).astype(float),
            "itakura_saito": 2.0 ** rng.integers(-2, 3, size=(6, 2)),
            "logistic": rng.integers(0, 5, size=(6, 2)) / 4,
        }[name]
        X = pool[rng.integers(6, size=40)]
        lam = float(rng.choice([0.05, 0.3, 1.7]))
        model = BregmanDPMeans(lam=lam, divergence=name, algorithm=algorithm).fit(X)
        twin = twins.bregman.bregman(X, lam, name, algorithm)
        np.testing.assert_allclose(model.objective_, twin.objective, rtol=1e-9, err_msg=str(seed))
        check_state(model, X, name)


@each_algorithm
@each_divergence
def test_free_clusters_for_few_distinct_rows(name, algorithm):
    """lam = 0 and a cap beyond the number of distinct rows: a row is at D = 0 from itself."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        distinct = draw(rng, name, 4, 3, 4)
        distinct = distinct + (0.01 if name != "logistic" else 0) * rng.random((4, 3))
        X = np.vstack([distinct, distinct[rng.integers(4, size=50)]])
        weights = rng.choice([0.1, 0.7, 1.3], size=54)
        for w in (None, weights):
            model = BregmanDPMeans(lam=0, divergence=name, max_clusters=9, algorithm=algorithm)
            model.fit(X, sample_weight=w)
            assert model.n_clusters_ == 4
            np.testing.assert_allclose(model.objective_, 0, atol=1e-20)


@each_divergence
def test_divergence_of_a_row_from_itself(name):
    """Exactly zero, and tiny where the center is off by its last bit."""
    X = draw(np.random.default_rng(0), name, 300, 4, 5)
    rule = DIVERGENCES[name]
    assert np.all(rule.between(X, X) == 0)
    nudged = np.nextafter(X, 0.5)
    top = 0.999 if name == "logistic" else np.inf
    inner = (X.min(axis=1) > 1e-3) & (X.max(axis=1) < top)
    assert inner.sum() > 50
    assert rule.between(X[inner], nudged[inner]).max() < 1e-28
    assert np.array_equal(rule.between(X[:, None], X) > 0, (X[:, None] != X).any(axis=2))


@pytest.mark.long
@each_divergence
def test_collapsed_ends_where_no_row_gains(name):
    """No row lowers the objective by a move, be it to a cluster of its own."""
    rng = np.random.default_rng(5)
    X = draw(rng, name, 40, 3, 4)
    lam = twins.penalty.bregman_farthest_first(X, 5, name)
    w = rng.gamma(2.0, size=40)

    def objective(labels):
        labels, _ = twins.exact.without_gaps(labels)
        centers = twins.exact.weighted_means(X, w, labels)
        return twins.bregman.own_divergence(X, w, labels, centers, name) + lam * len(centers)

    model = BregmanDPMeans(lam=lam, divergence=name, algorithm="collapsed")
    model.fit(X, sample_weight=w)
    gains = []
    for i in range(40):
        for c in range(model.n_clusters_ + 1):
            moved = model.labels_.copy()
            moved[i] = c
            gains.append(model.objective_ - objective(moved))
    assert model.n_clusters_ > 1
    assert max(gains) <= 1e-10 * model.objective_


@may_end_with_one_cluster
@pytest.mark.parametrize("weighted", [False, True])
@each_divergence
def test_a_fit_does_not_know_the_order_of_the_rows(name, weighted):
    """From given centers, where none opens: same labels, and the same bits in all sums."""
    rng = np.random.default_rng(7)
    X = draw(rng, name, 3000, 3, 8)
    X = X + 0.01 * rng.random(X.shape) * (X > 0) * (X < 1 if name == "logistic" else 1)
    X = X.clip(max=1.0) if name == "logistic" else X
    weights = rng.gamma(1.0, size=len(X)) * (rng.random(len(X)) < 0.9) if weighted else None
    init = np.clip(X[:8], 0.01, 0.99 if name == "logistic" else None)
    model = BregmanDPMeans(lam=1e30, divergence=name, init=init, n_threads=1)
    assert fit_of_any_order(model, X, weights, rng).n_iter_ > 4


@may_end_with_one_cluster
@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "merge"])
@each_divergence
def test_means_kept_up_are_means_from_scratch(name, algorithm):
    """After many sweeps, moves and mergers the centers are those that the labels alone give."""
    rng = np.random.default_rng(3)
    X, weights = draw(rng, name, 400, 3, 9), rng.gamma(1.0, size=400)
    X = X * 10.0 ** rng.integers(-9, 3, size=(400, 3)) if name == "itakura_saito" else X
    lam = {"kl": 3.0, "itakura_saito": 8.0, "logistic": 1.5}[name]
    model = BregmanDPMeans(lam=lam, divergence=name, algorithm=algorithm, random_state=0)
    for w in (None, weights):
        model.fit(X, sample_weight=w)
        assert model.n_clusters_ > 1
        ones = np.ones(len(X)) if w is None else w
        means = twins.bregman.bregman_means(X, ones, model.labels_)
        assert model.cluster_centers_.tobytes() == means.tobytes()


def test_small_values_count():
    """The mean of values that are 1e-25 of the largest is as good as any."""
    rng = np.random.default_rng(0)
    X = np.r_[1e25 * (1 + rng.random(3000)), 1 + rng.random(5)][:, None]
    model = BregmanDPMeans(lam=20.0, divergence="itakura_saito").fit(X)
    assert model.n_clusters_ == 2
    np.testing.assert_allclose(
        model.cluster_centers_[model.labels_[-1]], X[-5:].mean(axis=0), rtol=1e-15
    )


def test_minus_log_likelihoods():
    """D(x, a) - D(x, b) is the log-likelihood ratio of Poisson, exponential and Bernoulli."""
    rng = np.random.default_rng(0)
    a, b = rng.gamma(2.0, 3.0, size=(2, 4))
    counts, times = rng.poisson(4.0, size=(50, 4)), rng.exponential(5.0, size=(50, 4))
    p, q = rng.uniform(0.1, 0.9, size=(2, 4))
    coins = rng.integers(0, 2, size=(50, 4))
    for name, X, one, other, log_likelihood in (
        ("kl", counts, a, b, stats.poisson.logpmf),
        ("itakura_saito", times, a, b, lambda x, m: stats.expon.logpdf(x, scale=m)),
        ("logistic", coins, p, q, stats.bernoulli.logpmf),
    ):
        model = BregmanDPMeans(lam=1e9, divergence=name, init=[one, other])
        model.fit(np.array([one, other]))
        np.testing.assert_allclose(model.cluster_centers_, [one, other])
        D = model.transform(X.astype(float))
        ratio = (log_likelihood(X, other) - log_likelihood(X, one)).sum(axis=1)
        np.testing.assert_allclose(D[:, 0] - D[:, 1], ratio, rtol=1e-9, atol=1e-9)


@may_end_with_one_cluster
def test_planted_counts():
    """Poisson rates of different sizes: the wide spread of large counts does not split them."""
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        rates = np.array([[2, 6, 2], [6, 2, 2], [300, 300, 100], [150, 400, 400.0]])
        z = rng.integers(4, size=600)
        X = rng.poisson(rates[z]).astype(float)
        best = [
            max(
                adjusted_rand_score(
                    z, BregmanDPMeans(lam=lam, divergence=name).fit(X + 0.5).labels_
                )
                for lam in np.geomspace(low, high, 12)
            )
            for name, low, high in (("kl", 2, 200), ("squared_euclidean", 2, 2e5))
        ]
        found.append(best)
    kl, squared = np.mean(found, axis=0)
    assert kl > 0.85
    assert squared < kl - 0.1


def test_infinite_divergence_is_far():
    """A component of 0 in a center: a row with a positive one is infinitely far."""
    X = np.array([[0.0, 5.0], [1.0, 5.0], [0.0, 6.0], [0.0, 5.0]])
    model = BregmanDPMeans(lam=3.0, divergence="kl", init=[[0.0, 5.0]]).fit(X)
    assert model.labels_.tolist() == [0, 1, 0, 0]
    assert model.transform([[1e-9, 5.0]])[0, 0] == np.inf
    assert model.predict([[1e-9, 5.0]]).tolist() == [1]
    # both centers are infinitely far from this one: the first
    model = BregmanDPMeans(lam=3.0, divergence="kl", init=[[0.0, 5.0], [2.0, 0.0]]).fit(X[[0, 2]])
    assert model.predict([[3.0, 3.0]]).tolist() == [0]
    assert model.score([[3.0, 3.0]]) == -np.inf
    capped = BregmanDPMeans(lam=3.0, divergence="kl", init=[[0.0, 5.0]], max_clusters=1).fit(X)
    assert capped.n_clusters_ == 1 and np.isfinite(capped.objective_path_).all()
    for order in ([0, 1, 2], [2, 1, 0]):  # of infinitely far rows the first leaves
        rows = np.array([[0.0, 5.0], [1.0, 5.0], [2.0, 6.0]])[order]
        options = {"init": [[0.0, 5.0]], "max_clusters": 2}
        late = BregmanDPMeans(lam=3.0, divergence="kl", algorithm="delayed", **options)
        late.fit(rows, sample_weight=[1.0, 2.0, 1.0])
        twin = twins.bregman.bregman(rows, 3.0, "kl", "delayed", weights=[1.0, 2.0, 1.0], **options)
        assert late.n_clusters_ == 2 and np.array_equal(late.labels_, twin.labels)
    ones = BregmanDPMeans(lam=0.1, divergence="logistic", init=[[1.0, 0.5]])
    ones.fit([[1.0, 0.4], [0.999, 0.5], [1.0, 0.6]])
    assert ones.labels_.tolist() == [0, 1, 0]


@each_divergence
def test_farthest_first(name):
    X = draw(np.random.default_rng(1), name, 200, 3, 6)
    for k in (1, 4, 9):
        model = BregmanDPMeans(lam="farthest-first", divergence=name, guess=k, max_iter=500).fit(X)
        expected = twins.penalty.bregman_farthest_first(X, k, name)
        np.testing.assert_allclose(model.lam_, expected, rtol=1e-12)
    same = np.tile(X[:1], (9, 1))
    assert BregmanDPMeans(lam="farthest-first", divergence=name, guess=3).fit(same).lam_ == 1.0
    w = np.r_[np.ones(100), np.zeros(100)]
    half = BregmanDPMeans(lam="farthest-first", divergence=name, guess=4).fit(X, sample_weight=w)
    assert (
        half.lam_
        == BregmanDPMeans(lam="farthest-first", divergence=name, guess=4).fit(X[:100]).lam_
    )


@each_algorithm
@each_divergence
def test_one_row_and_one_cluster(name, algorithm):
    model = BregmanDPMeans(lam=3.0, divergence=name, algorithm=algorithm)
    model.fit([[0.25, 0.5]])
    assert model.n_clusters_ == 1 and model.objective_ == 3.0
    X = draw(np.random.default_rng(0), name, 50, 2, 3)
    assert model.set_params(lam=np.inf).fit(X).n_clusters_ == 1


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "merge"])
@each_divergence
@pytest.mark.parametrize("weight", [None, 2.0])
def test_layouts_and_types(weight, name, algorithm):
    """float32, Fortran order, gaps, read-only: the same labels as of the same values."""
    X = draw(np.random.default_rng(7), name, 300, 4, 5).astype(np.float32)
    options = {"lam": "farthest-first", "guess": 5, "algorithm": algorithm, "random_state": 0}
    model = BregmanDPMeans(divergence=name, **options)
    expected = clone(model).fit(X.astype(float), sample_weight=weight)
    frozen = np.asfortranarray(X)
    frozen.setflags(write=False)
    for data in (X, frozen, X[::-1][::-1], np.repeat(X, 2, axis=1)[:, ::2].astype(float)):
        found = clone(model).fit(data, sample_weight=weight)
        assert np.array_equal(found.labels_, expected.labels_)
        np.testing.assert_allclose(found.cluster_centers_, expected.cluster_centers_, rtol=1e-9)
    assert expected.transform(X).dtype == np.float32
    np.testing.assert_allclose(
        expected.transform(X),
        twins.bregman.divergences(X.astype(float), expected.cluster_centers_, name),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("kl", -0.5, "X must be >= 0 for divergence='kl', got -0.5"),
        ("itakura_saito", 0.0, "X must be > 0 for divergence='itakura_saito', got 0.0"),
        ("logistic", -0.25, "X must be >= 0 for divergence='logistic', got -0.25"),
        ("logistic", 1.5, "X must be <= 1 for divergence='logistic', got 1.5"),
    ],
)
def test_outside_the_domain(name, value, message):
    X = np.random.default_rng(0).uniform(0.2, 0.8, size=(20, 2))
    bad = X.copy()
    bad[3, 1] = value
    model = BregmanDPMeans(lam=0.1, divergence=name).fit(X)
    for method in ("fit", "predict", "transform", "score"):
        assert_refuses(model, lambda m, f=method: getattr(m, f)(bad), ValueError, message)
    with pytest.raises(ValueError, match=message.replace("X", "init")):
        BregmanDPMeans(lam=0.1, divergence=name, init=bad[3:4]).fit(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"divergence": "kullback"}, "divergence must be one of 'squared_euclidean', 'kl', "),
        ({"divergence": None}, "divergence must be one of"),
        ({"init": [[0.5]]}, r"init must have shape \(n_centers, 2\)"),
        ({"max_clusters": 1, "init": [[0.5, 0.5], [0.1, 0.1]]}, "at most max_clusters=1 rows"),
    ],
)
def test_bad_parameters(options, message):
    X = np.random.default_rng(0).uniform(0.2, 0.8, size=(20, 2))
    with pytest.raises(ValueError, match=message):
        BregmanDPMeans(**({"divergence": "kl"} | options)).fit(X)


# checks of scikit-learn that set n_clusters, where there is such a parameter
ASK_FOR_ONE_CLUSTER = (
    "check_dont_overwrite_parameters",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit2d_predict1d",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
)


@parametrize_with_checks(
    [
        *(BregmanDPMeans(lam=lam, divergence="kl") for lam in ("auto", "farthest-first")),
        DynamicMeans(divergence="kl"),
        HDPMeans(divergence="kl"),
    ],
    expected_failed_checks=lambda estimator: {
        "check_clustering": "its data have negative values, whatever the tag says",
        "check_clustering(readonly_memmap=True)": "the same",
        **(
            {}
            if "auto" in vars(estimator).values()  # which finds one cluster in the data of this
            else {
                "check_sample_weight_equivalence_on_dense_data": "a weight is a factor",
                **dict.fromkeys(ASK_FOR_ONE_CLUSTER, "n_clusters with a guess"),
            }
        ),
    },
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


# Covariances ----------------------------------------------------------------------------------


def falls(path):
    """Whether no value exceeds the one before by more than rounding; values may be negative."""
    return bool(np.all(np.diff(path) <= 1e-9 * np.abs(path).max()))


published = functools.partial(MahalanobisMeans, volume="clusters")


def gaussians(rng, n, d, k, long=3.0, apart=6.0):
    """Clusters stretched in directions of their own."""
    z = rng.integers(k, size=n)
    shapes = [
        np.linalg.qr(rng.normal(size=(d, d)))[0] * np.r_[long, np.ones(d - 1)] for _ in range(k)
    ]
    centers = apart * rng.normal(size=(k, d))
    return np.einsum("nij,nj->ni", np.array(shapes)[z], rng.normal(size=(n, d))) + centers[z], z


@pytest.mark.long
@pytest.mark.parametrize("lam", [None, 2.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_mahalanobis_does_not_know_the_order_of_the_rows(lam, weighted):
    """From given seeds: the same bits, covariances included, on one thread of BLAS."""
    rng = np.random.default_rng(5)
    X = blobs(rng, 3000, 3, 6, spread=0.6) + np.array([0.0, 1e3, 0.0])
    X[:200] = X[200:400]
    X[100:600, 0] = np.rint(X[100:600, 0])
    weights = rng.gamma(1.0, size=len(X)) * (rng.random(len(X)) < 0.9) if weighted else None
    options = {"lam": lam, "reg_covar": 3.0, "scale": 40.0}
    if lam is not None:
        options["covariances"] = np.eye(3)
        options["lam"] = 1e20
    with threadpool_limits(1):
        model = fit_of_any_order(published(6, init=X[:6], **options), X, weights, rng)
    assert model.n_iter_ > 4


def assert_fits_as(twin, model, k, X, weights):
    """A fit of k clusters is that of the twin, sweep by sweep."""
    assert not fit(model, X, weights)
    assert np.array_equal(model.labels_, twin.labels)
    assert model.n_iter_ == twin.n_iter
    assert model.cluster_centers_.tobytes() == twin.centers.tobytes()
    np.testing.assert_allclose(model.covariances_, twin.S, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(model.objective_path_[:-1], twin.path[::2], rtol=1e-9, atol=1e-9)
    assert falls(twin.path) and falls(model.objective_path_)
    assert model.n_clusters_ == k and len(np.unique(model.labels_)) == k


@seeds(110)
def test_mahalanobis_equals_twin(seed):
    """K fixed, from given seeds; half-sweeps of the twin never raise the objective."""
    rng = np.random.default_rng(seed)
    k, d = int(rng.integers(1, 6)), int(rng.integers(1, 5))
    n = int(rng.integers(k, 90))
    X, _ = gaussians(rng, n, d, k, apart=3.0)
    options = {
        "reg": float(rng.choice([0.01, 1.0, 30.0])),
        "scale": float(rng.choice([0.2, 1.0, 7.0])),
    }
    if seed % 4 == 1:
        options["weights"] = rng.gamma(2.0, size=n) + 0.01
    if seed % 4 == 2:
        A = rng.normal(size=(k, d, d))
        options["known"] = A @ A.transpose(0, 2, 1) + 0.1 * np.eye(d)
        if seed % 8 == 2:
            options["known"] = options["known"][0]
    seeds = X[rng.choice(n, size=k, replace=False)] + 0.01
    if seed % 4 == 3:  # clusters that nobody joins begin elsewhere
        seeds[: k // 2] += 1e3
    twin = twins.mahalanobis.mahalanobis(X, seeds, **options)
    model = published(
        k,
        scale=options["scale"],
        reg_covar=options["reg"],
        covariances=options.get("known"),
        init=seeds,
    )
    assert_fits_as(twin, model, k, X, options.get("weights"))
    np.testing.assert_allclose(model.objective_, twin.path[-1], rtol=1e-9, atol=1e-9)


@seeds(110)
def test_free_number_of_clusters_equals_twin(seed):
    """lam_eff in its range; or a known covariance, where K is anything."""
    rng = np.random.default_rng([seed, 1])
    d, n = int(rng.integers(1, 4)), int(rng.integers(2, 70))
    X, _ = gaussians(rng, n, d, 3)
    scale, reg = float(rng.choice([0.5, 1.0])), float(rng.choice([1.0, 30.0, 300.0]))
    weights = rng.gamma(2.0, size=n) + 0.01 if seed % 3 == 1 else None
    known = None
    if seed % 2:
        A = rng.normal(size=(d, d))
        known = A @ A.T + 0.1 * np.eye(d)
        rest = reg * np.trace(np.linalg.inv(known)) + scale * np.linalg.slogdet(known)[1]
        cost = float(rng.uniform(2, 60))
    else:
        rest = scale * d * (1 + np.log(reg / scale))
        cost = scale * float(rng.uniform(0.01, 1)) ** 2
    twin = twins.mahalanobis.mahalanobis(
        X, None, lam=cost - rest, scale=scale, reg=reg, known=known, weights=weights
    )
    model = published(lam=cost - rest, scale=scale, reg_covar=reg, covariances=known, n_init=1)
    fit(model, X, weights)
    np.testing.assert_allclose(model.lam_eff_, cost, rtol=1e-9)
    assert np.array_equal(model.labels_, twin.labels)
    assert model.cluster_centers_.tobytes() == twin.centers.tobytes()
    np.testing.assert_allclose(model.objective_, twin.path[-1], rtol=1e-9, atol=1e-9)
    assert falls(twin.path) and falls(model.objective_path_)


@seeds(10)
def test_known_covariance_is_dpmeans_in_other_coordinates(seed):
    rng = np.random.default_rng(seed)
    X, _ = gaussians(rng, 300, 3, 5)
    A = rng.normal(size=(3, 3))
    known = A @ A.T + 0.2 * np.eye(3)
    white = np.linalg.solve(np.linalg.cholesky(known), X.T).T
    lam = 40.0
    plain = DPMeans(lam=lam).fit(white)
    rest = np.trace(np.linalg.inv(known)) + np.linalg.slogdet(known)[1]
    model = published(lam=lam - rest, reg_covar=1.0, covariances=known, n_init=1).fit(X)
    assert plain.n_clusters_ > 2
    assert np.array_equal(model.labels_, plain.labels_)
    np.testing.assert_allclose(model.objective_, plain.objective_, rtol=1e-9)
    np.testing.assert_allclose(model.transform(X), plain.transform(white), rtol=1e-9)
    new = gaussians(rng, 100, 3, 5)[0]
    newly = plain.predict(np.linalg.solve(np.linalg.cholesky(known), new.T).T)
    assert np.array_equal(model.predict(new), newly)


def fan(seed, n=150):
    """Three long clusters side by side, at angles."""
    rng = np.random.default_rng(seed)
    X = []
    for angle, center in ((0, (0, 0)), (0.5, (2, 6)), (-0.5, (2, -6))):
        rotation = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
        X.append(rng.normal(size=(n, 2)) * [3, 0.5] @ np.array(rotation) + center)
    return np.vstack(X), np.repeat(np.arange(3), n)


@pytest.mark.long
def test_planted_long_clusters():
    """Found where k-means cuts through them."""
    own, kmeans = [], []
    for seed in range(6):
        X, z = fan(seed)
        own.append(adjusted_rand_score(z, published(3, random_state=0).fit(X).labels_))
        plain = KMeans(3, n_init=10, random_state=0).fit(X)
        kmeans.append(adjusted_rand_score(z, plain.labels_))
    assert min(own) > 0.9
    assert max(kmeans) < 0.87 and np.mean(kmeans) < np.mean(own) - 0.12


def test_state_of_a_fit():
    """Attributes, predict, transform and score say the same of one state."""
    X, _ = gaussians(np.random.default_rng(0), 300, 3, 4)
    w = np.random.default_rng(1).gamma(2.0, size=300)
    model = published(4, scale=2.0, random_state=0).fit(X, sample_weight=w)
    assert model.labels_.dtype == np.int32
    assert np.array_equal(model.predict(X), model.labels_)
    squares = model.transform(X) ** 2
    for k in range(4):
        Y = X[model.labels_ == k] - model.cluster_centers_[k]
        weight = w[model.labels_ == k, None]
        np.testing.assert_allclose((weight * Y).sum(axis=0), 0, atol=1e-9)
        S = ((weight * Y).T @ Y + model.reg_covar_ * np.eye(3)) / 2.0
        np.testing.assert_allclose(model.covariances_[k], S, rtol=1e-10, atol=1e-10)
        full = np.linalg.inv(S)
        apart = X - model.cluster_centers_[k]
        np.testing.assert_allclose(squares[:, k], np.einsum("ni,ij,nj->n", apart, full, apart))
    np.testing.assert_allclose(
        model.objective_,
        twins.mahalanobis.mahalanobis_objective(
            X, w, model.labels_, model.cluster_centers_, model.covariances_, 0, 2, model.reg_covar_
        ),
        rtol=1e-10,
    )
    np.testing.assert_allclose(model.score(X, sample_weight=w), -model.objective_, rtol=1e-10)
    total = w @ np.square(X - np.average(X, axis=0, weights=w)).mean(axis=1)
    np.testing.assert_allclose(model.reg_covar_, 0.1 * total / 4, rtol=1e-10)
    # no point is farther than scale from its own center
    assert (w * squares.min(axis=1)).max() < 2.0


def test_scale_changes_no_label():
    X, _ = gaussians(np.random.default_rng(3), 200, 2, 3)
    model_a, model_b = (published(3, scale=s, random_state=1).fit(X) for s in (1.0, 50.0))
    assert np.array_equal(model_a.labels_, model_b.labels_)


def test_rotations_and_shifts_change_no_label():
    rng = np.random.default_rng(3)
    X, _ = gaussians(rng, 200, 3, 3)
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    model_a = published(3, init=X[:3]).fit(X)
    model_b = published(3, init=X[:3] @ rotation + 1e4).fit(X @ rotation + 1e4)
    assert np.array_equal(model_a.labels_, model_b.labels_)
    np.testing.assert_allclose(model_a.objective_, model_b.objective_, rtol=1e-9)


def test_max_iter_and_tol():
    X, _ = gaussians(np.random.default_rng(0), 400, 2, 5, apart=3.0)
    start = X[:5]
    model = published(5, init=start, max_iter=2)
    with pytest.warns(ConvergenceWarning, match="did not converge in max_iter=2 sweeps"):
        model.fit(X)
    assert model.n_iter_ == 2 and falls(model.objective_path_)
    assert np.array_equal(model.predict(X), model.labels_)
    np.testing.assert_allclose(model.score(X), -model.objective_, rtol=1e-12)
    exact = published(5, init=start).fit(X)
    rough = published(5, init=start, tol=0.01).fit(X)
    assert rough.n_iter_ < exact.n_iter_
    assert np.array_equal(rough.predict(X), rough.labels_)


def test_free_number_of_clusters_from_given_seeds():
    """Seeds that nobody joins are dropped, also when max_iter ends the fit."""
    X, _ = gaussians(np.random.default_rng(1), 400, 2, 4, apart=3.0)
    init = np.vstack([X[:4], [[1e4, 1e4]]])
    options = {"lam": 30.0, "covariances": np.eye(2), "reg_covar": 1.0, "init": init, "n_init": 1}
    with pytest.warns(ConvergenceWarning, match="max_iter=1 sweeps"):
        early = published(max_iter=1, **options).fit(X)
    late = published(**options).fit(X)
    for model in (early, late):
        assert np.array_equal(np.unique(model.labels_), np.arange(model.n_clusters_))
        assert np.abs(model.cluster_centers_).max() < 100
        assert np.array_equal(model.predict(X), model.labels_)
        expected = np.square(X - model.cluster_centers_[model.labels_]).sum()
        expected += (30.0 + 2.0) * model.n_clusters_
        np.testing.assert_allclose(model.objective_, expected, rtol=1e-10)
        assert falls(model.objective_path_)
    assert late.objective_ < early.objective_


@pytest.mark.parametrize("weight", [1e-300, 1e-290])
def test_variances_below_float64(weight):
    """Precisions overflowed: an infinite objective, and a warning."""
    X = 1e-8 * np.random.default_rng(0).normal(size=(12, 2))
    with pytest.raises(ValueError, match="variances of at least 1e-300, got .*e-3"):
        published(3, random_state=0).fit(X, sample_weight=np.full(12, weight))
    assert np.isfinite(published(3, random_state=0).fit(X).objective_)


NORMAL, TWICE = np.random.default_rng(0).normal(size=(50, 20)), [[0.0, 0.0], [1.0, 5.0]]
DEGENERATE = [  # and a number of clusters
    (np.column_stack([NORMAL[:, 0], np.full(50, 7.0)]), 2),
    (NORMAL[:6], 3),
    (np.tile(TWICE, (10, 1)), 3),
    (np.tile(TWICE, (10, 1)), 2),
    (np.ones((5, 2)), 2),
    (np.ones((1, 2)), 1),
]


def test_degenerate_data():
    for X, k in DEGENERATE:
        model = published(k, random_state=0)
        fit(model, X)
        assert model.n_clusters_ == k and np.isfinite(model.objective_)
        assert len(np.unique(model.labels_)) == k
        assert falls(model.objective_path_)
        if len(np.unique(X, axis=0)) > k:
            with pytest.raises(
                ValueError, match="reg_covar must be larger: with reg_covar=0 the cov"
            ):
                published(k, reg_covar=0, random_state=0).fit(X)
    pairs = np.array([[0.0, 0.0], [1.0, 1.0], [5.0, 0.0], [6.0, 1.0]])
    with pytest.raises(ValueError, match="covariance of cluster . of 2 rows in 2 dimensions is s"):
        published(2, reg_covar=0, init=pairs[[0, 2]]).fit(pairs)
    X, z = gaussians(np.random.default_rng(0), 200, 2, 2)
    init = [X[z == 0].mean(axis=0), X[z == 1].mean(axis=0)]
    model = published(2, reg_covar=0, init=init).fit(X)
    assert adjusted_rand_score(z, model.labels_) > 0.9


def test_limits_of_lam():
    """lam_eff > 0 or an error; lam_eff >= scale and a warning, and one cluster."""
    X, _ = gaussians(np.random.default_rng(0), 100, 2, 3)
    rest = 2 * (1 + np.log(100.0))
    options = {"reg_covar": 100.0, "n_init": 1}
    model = published(lam=0.02 - rest, **options).fit(X)
    assert model.n_clusters_ > 1 and 0.019 < model.lam_eff_ < 0.021
    for lam in (-rest, -rest - 1):
        with pytest.raises(ValueError, match=r"lam must be > -11.21034.* is > 0 \(n_features=2"):
            published(lam=lam, **options).fit(X)
    for lam in (1.0 - rest + 1e-12, 5.0, np.inf):
        model = published(lam=lam, **options)
        with pytest.warns(
            UserWarning, match="no cluster will be opened. To have an effect lam must"
        ):
            model.fit(X)
        assert model.n_clusters_ == 1
    with pytest.raises(ValueError, match="reg_covar must be > 0 with lam given, got 0"):
        published(lam=1.0, reg_covar=0).fit(X)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"scale": 0}, ValueError, "scale must be > 0, got 0"),
        ({"scale": np.inf}, ValueError, "scale must be finite, got inf"),
        ({"scale": "auto"}, TypeError, "scale must be a number, got 'auto'"),
        ({"reg_covar": -1.0}, ValueError, "reg_covar must be >= 0, got -1.0"),
        ({"reg_covar": "some"}, ValueError, "reg_covar must be one of 'auto', got 'some'"),
        (
            {"n_clusters": "some"},
            TypeError,
            "n_clusters must be an integer, 'auto' or None, got 'some'",
        ),
        ({"n_clusters": 31}, ValueError, "n_clusters must be <= n_samples=30, got n_clusters=31"),
        ({"lam": "auto"}, TypeError, "lam must be a number or None, got 'auto'"),
        ({"lam": np.nan}, ValueError, "lam must be > -inf, got nan"),
        (
            {"init": "random"},
            ValueError,
            "init must be one of 'auto', 'merge', 'k-means[+][+]', got 'random'",
        ),
        ({"init": np.zeros((3, 2))}, ValueError, "init must have n_clusters=2 rows, got 3"),
        (
            {"covariances": np.eye(3)},
            ValueError,
            r"covariances must have shape \(2, 2\) or \(2, 2, 2\), got \(3, 3\)",
        ),
        (
            {"covariances": np.array([np.eye(2)] * 2), "lam": 1.0},
            ValueError,
            r"covariances must have shape \(2, 2\) with lam given, got \(2, 2, 2\)",
        ),
        (
            {"covariances": [[1.0, 0.5], [0.4, 1.0]]},
            ValueError,
            "covariances must be symmetric, got entries 0.1 apart",
        ),
        (
            {"covariances": [[1.0, 2.0], [2.0, 1.0]]},
            ValueError,
            "covariances must be positive definite, got an eigenvalue of -1",
        ),
        (
            {"covariances": [np.eye(2), np.ones((2, 2))]},
            ValueError,
            "covariances must be positive definite, got an eigenvalue of .* in number 1",
        ),
        ({"covariances": "full"}, ValueError, "covariances must be numbers"),
        ({"covariances": [[1.0, np.nan], [np.nan, 1.0]]}, ValueError, "covariances must be finite"),
    ],
)
def test_bad_parameters_of_mahalanobis(options, error, message):
    X, _ = gaussians(np.random.default_rng(0), 30, 2, 2)
    model = published(2).fit(X).set_params(**options)
    assert_refuses(model, lambda m: m.fit(X), error, message)


@seeds(110)
def test_points_that_pay_for_volumes_equal_their_twin(seed):
    """K fixed, from given seeds; half-sweeps of the twin never raise the objective."""
    rng = np.random.default_rng([seed, 2])
    k, d = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    n = int(rng.integers(k, 90))
    X, _ = gaussians(rng, n, d, k, apart=2.0)
    options = {"reg": float(rng.choice([0.1, 1.0])), "scale": float(rng.choice([0.2, 1.0, 7.0]))}
    if seed % 4 == 1:
        options["weights"] = rng.gamma(2.0, size=n) + 0.01
    if seed % 4 == 2:
        A = rng.normal(size=(k, d, d))
        known = A @ A.transpose(0, 2, 1) + 0.1 * np.eye(d)
        options = {"known": known[0] if seed % 8 == 2 else known}
    seeds = X[rng.choice(n, size=k, replace=False)] + 0.01
    if seed % 4 == 3:  # clusters that nobody joins begin elsewhere
        seeds[: k // 2] += 1e3
    twin = twins.mahalanobis.classification(X, seeds, **options)
    model = MahalanobisMeans(
        k,
        scale=options.get("scale", 1.0),
        reg_covar=options.get("reg", "auto"),
        covariances=options.get("known"),
        init=seeds,
    )
    assert_fits_as(twin, model, k, X, options.get("weights"))


@pytest.mark.parametrize("known", [None, np.array([[2.0, 0.5], [0.5, 1.0]])])
def test_mergers_cost_least(known):
    """Of all pairs; and the objectives of a path are those of its labels."""
    rng = np.random.default_rng(3)
    X, _ = gaussians(rng, 120, 2, 4)
    w = rng.gamma(2.0, size=120)
    reg = 0.0 if known is not None else 0.7

    def objective(label):
        return twins.mahalanobis.classification_objective(X, w, label, reg, 2.0, known) + 5.0 * (
            label.max() + 1
        )

    data = gaussians_module.Data(X, w, True)
    state = gaussians_module.PointGaussians(X, w, 5.0, 2.0, reg, known, data)
    begin, least = gaussian_path.plain_clusters(data, X[:9], np.eye(2)), np.inf
    for k, label, value in gaussian_path.merge_path(state, *begin):
        np.testing.assert_allclose(value, objective(label), rtol=1e-9)
        assert len(np.unique(label)) == k == label.max() + 1
        assert value <= least + 1e-9 * abs(value)
        if k > 1:
            merged = {}
            for a in range(k):
                for b in range(a + 1, k):
                    other = np.where(label == b, a, label)
                    merged[a, b] = objective(np.unique(other, return_inverse=True)[1])
            least = min(merged.values())
            assert merged[state.cheapest_pair()] == pytest.approx(least)
    assert k == 1


@pytest.mark.long
def test_clusters_of_any_shape_are_found():
    """Their number too, in any unit; one Gaussian of any shape is one cluster."""
    for seed in range(4):
        X, z = fan(seed)
        for data in (X, 1e-3 * X + 7.0, np.float32(X)):
            for K in ("auto", 3):
                model = MahalanobisMeans(K, n_init=2, random_state=0).fit(data)
                assert model.n_clusters_ == 3
                assert adjusted_rand_score(z, model.labels_) > 0.95
        rng = np.random.default_rng(seed)
        one = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 3))
        assert MahalanobisMeans(n_init=2, random_state=0).fit(one).n_clusters_ == 1


@pytest.mark.long
def test_price_of_a_cluster_where_their_number_is_found():
    """A large one, one cluster; none, not more: halves of a Gaussian cost more, even for nothing.

    Labels then cost 2 log 2 a point, the variance saves only -log(1 - 2 / pi). From given seeds
    never more clusters than those.
    """
    X, _ = fan(0)
    price = MahalanobisMeans(n_init=1, random_state=0).fit(X).lam_
    assert price == pytest.approx(6 * np.log(450))
    found = [
        MahalanobisMeans(lam=lam, n_init=1, random_state=0).fit(X).n_clusters_
        for lam in (0.0, price, 1e6)
    ]
    assert found == [3, 3, 1]
    assert MahalanobisMeans(init=X[:2]).fit(X).n_clusters_ <= 2
    fitted = MahalanobisMeans(covariances=np.diag([9.0, 0.25]), n_init=1, random_state=0).fit(X)
    assert fitted.lam_ == pytest.approx(3 * np.log(450)) and fitted.reg_covar_ == 0.0
    assert np.array_equal(fitted.covariances_[0], np.diag([9.0, 0.25]))
    assert MahalanobisMeans(3, random_state=0).fit(X).lam_ is None


def test_many_rows_are_merged_by_a_sample(monkeypatch):
    """And all of them are fitted, those that no start has seen included."""
    X, z = fan(1, n=400)
    monkeypatch.setattr("smallvar._centers.gaussian_starts.PATH_ROWS", 300)
    for K, start_rows in (("auto", 400), (3, 400), ("auto", 350), (3, 350)):
        monkeypatch.setattr("smallvar._centers.gaussian_starts.START_ROWS", start_rows)
        model = MahalanobisMeans(K, n_init=2, random_state=0).fit(X)
        assert model.n_clusters_ == 3 and adjusted_rand_score(z, model.labels_) > 0.95
        assert falls(model.objective_path_)
        assert np.array_equal(model.predict(X), model.labels_)


def test_a_sample_does_not_find_more_clusters(monkeypatch):
    """Though BIC alone would, as its price is small for all rows."""
    X, z = gaussians(np.random.default_rng(1), 20_000, 3, 4)
    monkeypatch.setattr("smallvar._centers.gaussian_starts.PATH_ROWS", 500)
    monkeypatch.setattr("smallvar._centers.gaussian_starts.START_ROWS", 1000)
    model = MahalanobisMeans(random_state=0).fit(X)
    assert model.n_clusters_ == 4 and adjusted_rand_score(z, model.labels_) > 0.9
    # the objective is that of all rows, with their lam
    w, price = np.ones(len(X)), 10 * np.log(20_000)
    assert model.lam_ == pytest.approx(price)
    own = twins.mahalanobis.classification_objective(
        X, w, model.labels_, model.reg_covar_, 1.0, None
    )
    assert model.objective_ == pytest.approx(own + 4 * price, rel=1e-10)
    monkeypatch.setattr("smallvar._centers.gaussian_starts.SAMPLE_PRICE", 0.0)
    assert MahalanobisMeans(n_init=1, random_state=0).fit(X).n_clusters_ > 20


@pytest.mark.long
def test_state_of_a_fit_of_points():
    """Attributes, predict, transform and score say the same of one state."""
    X, _ = gaussians(np.random.default_rng(0), 300, 3, 4)
    w = np.random.default_rng(1).gamma(2.0, size=300)
    w[::7] = 0.0
    for K in ("auto", 4):
        model = MahalanobisMeans(K, scale=2.0, random_state=0).fit(X, sample_weight=w)
        used, label = w > 0, model.labels_
        k = model.n_clusters_
        assert label.dtype == np.int32 and np.array_equal(np.unique(label[used]), np.arange(k))
        assert np.array_equal(model.predict(X), label)
        np.testing.assert_allclose(
            model.weights_, np.bincount(label, w, minlength=k) / w.sum(), rtol=1e-12
        )
        np.testing.assert_allclose(model.score(X, sample_weight=w), -model.objective_, rtol=1e-10)
        # where the number is found, scale counts rows of the mean weight, else of weight 1
        unit = w[used].mean() if K == "auto" else 1.0
        reg = model.reg_covar_ / unit
        np.testing.assert_allclose(
            model.objective_ - (model.lam_ or 0.0) * k,
            unit * twins.mahalanobis.classification_objective(X, w / unit, label, reg, 2.0, None),
            rtol=1e-10,
        )
        variance = w @ np.square(X - np.average(X, axis=0, weights=w)).mean(axis=1) / w.sum()
        np.testing.assert_allclose(reg, 0.1 * 2.0 * variance, rtol=1e-10)


def test_degenerate_data_and_volumes_of_points():
    """Objectives and variances are bounded."""
    for X, k in DEGENERATE:
        for K in (k, "auto"):
            for init in ("merge", "k-means++") if k == K else ("merge",):
                model = MahalanobisMeans(K, init=init, random_state=0)
                fit(model, X)
                assert np.isfinite(model.objective_) and falls(model.objective_path_)
                assert np.array_equal(np.unique(model.labels_), np.arange(model.n_clusters_))
                assert K == "auto" or model.n_clusters_ == k
                least = np.linalg.eigvalsh(model.covariances_)[:, 0]
                assert (least > 0.99 * model.reg_covar_ / (len(X) + 1.0)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"volume": "some"}, "volume must be one of 'points', 'clusters', got 'some'"),
        ({"lam": 1.0}, "lam must be None with n_clusters=2 and volume='points', got lam=1.0"),
        ({"n_clusters": "auto", "lam": -1.0}, "lam must be >= 0, got -1.0"),
        ({"n_clusters": "auto", "lam": np.inf}, "lam must be finite with volume='points', got inf"),
        ({"n_clusters": "auto", "init": "k-means++"}, "init must not be 'k-means[+][+]' with n_c"),
        ({"reg_covar": 0}, "reg_covar must be > 0 with volume='points', got 0"),
        ({"covariances": np.eye(2), "reg_covar": 1.0}, "reg_covar must be 'auto' with cov.* 1.0"),
        ({"covariances": np.eye(2), "scale": 2.0}, "scale must be 1 with covariances .* got 2.0"),
        ({"covariances": [np.eye(2)] * 2, "init": "merge"}, "init must not be 'merge' with a kn"),
        (
            {"n_clusters": "auto", "covariances": [np.eye(2)] * 2},
            r"covariances must have shape \(2, 2\) with n_clusters='auto', got \(2, 2, 2\)",
        ),
        ({"volume": "clusters", "n_clusters": "auto"}, "n_clusters must be a number with volume='"),
        ({"volume": "clusters", "init": "merge"}, "init must not be 'merge' with volume='cluster"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    X, _ = gaussians(np.random.default_rng(0), 30, 2, 2)
    model = MahalanobisMeans(2, random_state=0).fit(X).set_params(**options)
    assert_refuses(model, lambda m: m.fit(X), ValueError, message)


@pytest.mark.parametrize("divergence", ["kl", "itakura_saito", "logistic"])
def test_centers_outside_of_another_divergence(divergence):
    """Set after the fit, a divergence is used; but not for centers that it does not know."""
    X = np.array([[-3.0, -2.0], [0.25, 0.5], [0.5, 0.5]])
    model = BregmanDPMeans(lam=1e-3).fit(X)
    model.set_params(divergence=divergence)
    for method in (model.predict, model.transform, model.score):
        with pytest.raises(ValueError, match=f"cluster_centers_ must be .*{divergence}.*got -3.0"):
            method(X[1:])
    model.fit(X[1:])
    assert np.isfinite(model.transform(X[1:])).all()


@pytest.mark.parametrize("algorithm", ["serial", "delayed"])
@pytest.mark.parametrize("name", ["kl", "logistic"])
def test_rows_join_a_cluster_that_opens_at_a_row_on_the_border(name, algorithm):
    """Few rows are alone, and the objective is far below that of a cluster for each row."""
    rng = np.random.default_rng(0)
    truth = rng.integers(4, size=300)
    if name == "kl":
        X, lam = rng.poisson(rng.gamma(1, 1.5, size=(4, 40))[truth]).astype(float), 35.0
    else:
        X, lam = (rng.random((300, 40)) < rng.beta(0.3, 0.3, size=(4, 40))[truth]) * 1.0, 20.0
    model = BregmanDPMeans(lam=lam, divergence=name, algorithm=algorithm).fit(X)
    assert never_rises(model.objective_path_)
    means = np.array([X[truth == k].mean(axis=0) for k in range(4)])
    ideal = twins.bregman.own_divergence(X, np.ones(300), truth, means, name) + 4 * lam
    assert model.objective_ < 1.25 * ideal
    assert np.count_nonzero(np.bincount(model.labels_) == 1) < 75
    twin = twins.bregman.bregman(X, lam, name, algorithm)
    assert model.labels_.tolist() == twin.labels.tolist()


def test_starting_centers_of_a_path_are_moved_off_the_border():
    rng = np.random.default_rng(0)
    truth = rng.integers(4, size=500)
    X = rng.poisson(rng.gamma(1, 1.5, size=(4, 40))[truth])
    model = BregmanDPMeans(divergence="kl", init=X[:20], random_state=0).fit(X)
    assert model.n_clusters_ == 4
    assert adjusted_rand_score(truth, model.labels_) > 0.99


# ----------------------------------------------------------------------------------------
# The dispersion of fractions, amounts and counts


def shares(rng, k, d, counts, n):
    """Rows with the sum 1 that vary as much as shares of so many counts, and their clusters."""
    kinds = rng.dirichlet(np.ones(d), size=k)
    truth = rng.permutation(np.arange(n) % k)
    X = np.maximum(np.array([rng.dirichlet(counts * kinds[z] + 0.01) for z in truth]), 1e-9)
    return X / X.sum(axis=1, keepdims=True), truth


@seeds(3)
def test_auto_of_shares_knows_no_unit(seed):
    """A share stands for an unknown number of counts: a row is not one count."""
    for k, d, counts in ((1, 8, 30), (4, 12, 40)):
        X, truth = shares(np.random.default_rng([seed, k]), k, d, counts, 240)
        model = BregmanDPMeans(divergence="kl", random_state=0).fit(X)
        assert model.n_clusters_ == k
        assert adjusted_rand_score(truth, model.labels_) > 0.9
        again = BregmanDPMeans(divergence="kl", random_state=0).fit(100.0 * X)
        assert np.array_equal(again.labels_, model.labels_)
        assert again.lam_ == pytest.approx(100.0 * model.lam_)
        rounded = BregmanDPMeans(divergence="kl", random_state=0).fit(X.round(3))
        assert adjusted_rand_score(rounded.labels_, model.labels_) > 0.9


@seeds(3)
def test_auto_of_fractions_of_trials(seed):
    """20 trials in each cell, and fractions of no number of trials; bits are single trials."""
    for k in (1, 4):
        rng = np.random.default_rng([seed, k, 1])
        truth = rng.permutation(np.arange(240) % k)
        mean = rng.uniform(0.1, 0.9, size=(k, 10))[truth]
        for X in (rng.binomial(20, mean) / 20, rng.beta(15 * mean, 15 * (1 - mean))):
            model = BregmanDPMeans(divergence="logistic", random_state=0).fit(X)
            assert model.n_clusters_ == k
            assert adjusted_rand_score(truth, model.labels_) > 0.9
        bits = rng.random((240, 10)) < mean
        model = BregmanDPMeans(divergence="logistic", random_state=0).fit(bits)
        assert model.n_clusters_ <= k


@seeds(3)
def test_auto_of_counts_that_vary_more_than_poisson_ones(seed):
    for k, d, factor in ((1, 6, 4.0), (4, 8, 2.0), (5, 10, 4.0)):
        rng = np.random.default_rng([seed, k, 2])
        truth = rng.permutation(np.arange(300) % k)
        mean = (rng.gamma(1.0, 30.0, size=(k, d)) + 1.0)[truth]
        X = rng.poisson(rng.gamma(mean / (factor - 1)) * (factor - 1))
        model = BregmanDPMeans(divergence="kl", random_state=0).fit(X)
        assert model.n_clusters_ == k
        assert adjusted_rand_score(truth, model.labels_) > 0.9


@pytest.mark.parametrize("name", ["kl", "logistic"])
def test_equal_rows_of_fractions_are_weights(name):
    X, _ = shares(np.random.default_rng(3), 3, 6, 100, 120)
    twice = np.arange(120) % 3 == 0
    options = {"divergence": name, "random_state": 0}
    weighted = BregmanDPMeans(**options).fit(X, sample_weight=1.0 + twice)
    repeated = BregmanDPMeans(**options).fit(np.vstack([X, X[twice]]))
    assert weighted.n_clusters_ == repeated.n_clusters_ == 3
    assert np.array_equal(weighted.labels_, repeated.labels_[:120])
    at = [path.counts.tolist().index(3) for path in (weighted.path_, repeated.path_)]
    criteria = weighted.path_.criterion[at[0]], repeated.path_.criterion[at[1]]
    assert criteria[0] == pytest.approx(criteria[1])


def test_deviance_of_poisson_counts():
    for mean in (0.02, 0.5, 1.0, 3.0, 20.0, 60.0, 100.0):
        counts = np.arange(400)
        divergences = DIVERGENCES["kl"].between(counts[:, None].astype(float), np.array([mean]))
        expected = 2 * stats.poisson(mean).pmf(counts) @ divergences
        assert poisson_deviance(mean) == pytest.approx(expected, rel=0.005)
    assert poisson_deviance(0.0) < 1e-6 and poisson_deviance(1e9) == 1.0
