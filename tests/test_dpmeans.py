"""DPMeans: equal to the twins, to worked examples, to KMeans; its options and methods."""

import warnings

import numpy as np
import pytest
import twins.dpmeans
import twins.exact
import twins.penalty
from helpers import fit, seeds
from problems import (
    EXAMPLE_CASES,
    EXAMPLE_IDS,
    FAMILIES,
    blobs,
    check_state,
    random_problem,
    tied_problem,
)
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from smallvar import BregmanDPMeans, DPMeans, MiniBatchDPMeans, farthest_first_lambda

# Penalties beyond reach are tried on purpose here.
pytestmark = pytest.mark.filterwarnings("ignore:one cluster is left")
ALGORITHMS = ("serial", "delayed", "collapsed")
each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)

# Rows of the largest problem: what the twin manages in a second or so.
N_MAX = {"serial": 20_000, "delayed": 4000, "collapsed": 2500}
N_MAX_OF = {
    ("delayed", "singletons"): 400,
    ("delayed", "many"): 1000,
    ("delayed", "weights"): 1500,
}
SEEDS = {"serial": 14, "delayed": 8, "collapsed": 8}


def run_both(problem, algorithm, seed=0):
    """Fit the estimator and its twin; returns model, twin and whether the model warned."""
    p = problem
    model = DPMeans(
        lam=p.lam,
        max_clusters=p.max_clusters,
        algorithm=algorithm,
        init="mean" if p.init is None else p.init,
        max_iter=p.max_iter,
        random_state=seed,
        n_threads=1 + seed % 3,
    )
    warned = fit(model, p.X, p.weights)
    options = {
        "weights": p.weights,
        "init": p.init,
        "max_clusters": p.max_clusters,
        "max_iter": p.max_iter,
    }
    return model, getattr(twins.dpmeans, algorithm)(p.X, p.lam, **options), warned


def renumbered(twin, labels):
    """Centers and labels of the twin, its clusters numbered as `labels` number them."""
    number = np.zeros(twin.n_clusters, dtype=int)
    number[twin.labels] = labels
    centers = np.empty_like(twin.centers)
    centers[number] = twin.centers
    return centers, number[twin.labels]


@pytest.mark.parametrize("family", FAMILIES)
@each_algorithm
@seeds(lambda algorithm, **_: SEEDS[algorithm])
def test_equals_twin(algorithm, family, seed):
    """In general position: the same labels, sweep by sweep, from the same decisions."""
    n_max = N_MAX_OF.get((algorithm, family), N_MAX[algorithm])
    problem = random_problem(family, seed, n_max)
    model, twin, warned = run_both(problem, algorithm, seed)
    X = np.asarray(problem.X, dtype=float)
    assert model.n_clusters_ == twin.n_clusters
    if algorithm == "delayed" and problem.weights is None:
        # The two rows of a pair are equally far from their mean: which one leaves is a
        # matter of rounding, and with it the numbers of the two clusters.
        twin.centers, twin.labels = renumbered(twin, model.labels_)
    assert np.array_equal(model.labels_, twin.labels)
    assert model.n_iter_ == twin.n_iter
    assert warned == (not twin.converged)
    assert np.array_equal(model.cluster_centers_, twin.centers)
    assert model.objective_ == twin.objective
    path = twin.objective_path
    np.testing.assert_allclose(model.objective_path_, path, rtol=0, atol=1e-9 * path[0])
    check_state(model, X, problem.weights)
    if algorithm != "collapsed" or twin.converged:
        assert np.array_equal(model.predict(problem.X), model.labels_)


@each_algorithm
@seeds(30)
def test_tied_data(algorithm, seed):
    """Duplicated rows and integer grids: the same objective."""
    problem = tied_problem(seed)
    model, twin, warned = run_both(problem, algorithm, seed)
    assert not warned
    np.testing.assert_allclose(model.objective_, twin.objective, rtol=1e-9)
    check_state(model, problem.X, problem.weights)
    if algorithm != "collapsed":
        assert np.array_equal(model.predict(problem.X), model.labels_)


@each_algorithm
def test_small_grids(algorithm):
    """Exact ties everywhere: a mean that is off by its last bit breaks them the wrong way."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        X = rng.integers(-4, 5, size=(rng.integers(2, 60), rng.integers(1, 4))) / 2
        lam = rng.choice([0.25, 0.3, 1, 2, 3.7])
        model = DPMeans(lam=lam, algorithm=algorithm).fit(X)
        twin = getattr(twins.dpmeans, algorithm)(X, lam)
        np.testing.assert_allclose(model.objective_, twin.objective, rtol=1e-9, err_msg=str(seed))


@pytest.mark.timeout(30)
@each_algorithm
def test_free_clusters_for_few_distinct_rows(algorithm):
    """lam = 0 and a cap beyond the number of distinct rows: nothing may cycle."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        distinct = rng.random((4, 2))
        X = np.vstack([distinct, distinct[rng.integers(4, size=60)]])
        weights = rng.choice([0.1, 0.7, 1.3], size=64)
        for w in (None, weights):
            model = DPMeans(lam=0, max_clusters=9, algorithm=algorithm).fit(X, sample_weight=w)
            assert model.n_clusters_ == 4
            np.testing.assert_allclose(model.objective_, 0, atol=1e-25)


@pytest.mark.timeout(30)
@each_algorithm
def test_free_clusters_for_all(algorithm):
    """lam = 0 and a cap beyond the number of rows: every row its own cluster."""
    X = np.random.default_rng(0).normal(size=(50, 3))
    X += np.array([0, 10, 1e6])
    weights = np.random.default_rng(1).gamma(1.0, size=50)
    for w in (None, weights):
        model = DPMeans(lam=0, max_clusters=60, algorithm=algorithm).fit(X, sample_weight=w)
        assert model.n_clusters_ == 50


@pytest.mark.parametrize(("algorithm", "example"), EXAMPLE_CASES, ids=EXAMPLE_IDS)
def test_worked_example(algorithm, example):
    options = dict(example.options)
    weights, order = options.pop("weights", None), options.pop("order", None)
    X = example.X if order is None else example.X[order]
    model = DPMeans(lam=example.lam, algorithm=algorithm, **options)
    warned = fit(model, X, weights)
    labels = example.labels if order is None else np.array(example.labels)[order].tolist()
    assert model.labels_.tolist() == labels
    np.testing.assert_allclose(model.cluster_centers_[:, 0], example.centers, atol=1e-14)
    np.testing.assert_allclose(model.objective_path_, example.path)
    assert model.n_iter_ == example.n_iter
    assert warned == ("max_iter" in example.options)
    check_state(model, X, weights)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("n", "d", "k"), [(500, 2, 5), (3000, 3, 40), (3000, 20, 30), (800, 64, 9)]
)
def test_is_kmeans_when_nothing_can_be_created(n, d, k, dtype):
    """The same fixed point from the same starting centers as scikit-learn's Lloyd."""
    X = blobs(np.random.default_rng(n + d), n, d, k, spread=0.4 + d / 20).astype(dtype)
    init = X[np.random.default_rng(0).choice(n, k, replace=False)].astype(float)
    kmeans = KMeans(k, init=init, n_init=1, tol=0, algorithm="lloyd").fit(X.astype(float))
    for options in ({"lam": 1e30}, {"lam": 0.0, "max_clusters": k}):
        for algorithm in ("serial", "delayed"):
            model = DPMeans(init=init, algorithm=algorithm, **options).fit(X)
            assert model.n_clusters_ == k
            assert np.array_equal(model.labels_, kmeans.labels_)
            np.testing.assert_allclose(model.cluster_centers_, kmeans.cluster_centers_, rtol=1e-10)
            np.testing.assert_allclose(model.inertia_, kmeans.inertia_, rtol=1e-10)


@each_algorithm
def test_infinite_lam_gives_one_cluster(algorithm):
    X = np.random.default_rng(0).normal(size=(50, 3))
    model = DPMeans(lam=np.inf, algorithm=algorithm).fit(X)
    assert model.n_clusters_ == 1 and not model.labels_.any()
    np.testing.assert_allclose(model.cluster_centers_[0], X.mean(axis=0), atol=1e-15)
    np.testing.assert_allclose(model.inertia_, X.var(axis=0).sum() * 50)
    assert model.objective_ == np.inf


@each_algorithm
def test_penalty_for_a_guess(algorithm):
    """Farthest-first, at guess=8 by default, of rows that have weight, times the mean weight."""
    rng = np.random.default_rng(5)
    X = blobs(rng, 300, 3, 8)
    model = DPMeans(lam="farthest-first", algorithm=algorithm).fit(X)
    np.testing.assert_allclose(model.lam_, twins.penalty.farthest_first(X, 8), rtol=1e-12)
    explicit = DPMeans(lam=model.lam_, algorithm=algorithm).fit(X)
    assert np.array_equal(model.labels_, explicit.labels_)
    weights = np.where(np.arange(300) < 100, 0.0, rng.gamma(2.0, size=300))
    model = DPMeans(lam="farthest-first", guess=5, algorithm=algorithm)
    model.fit(X, sample_weight=weights)
    lam = model.lam_ / weights[100:].mean()
    np.testing.assert_allclose(lam, twins.penalty.farthest_first(X[100:], 5), rtol=1e-12)
    np.testing.assert_allclose(lam, farthest_first_lambda(X[100:], 5), rtol=1e-12)


@each_algorithm
def test_several_starts(algorithm):
    """The first start takes the given order, the others permutations; the best one stays."""
    X = np.random.default_rng(3).random((300, 2))
    for lam in (0.02, 0.05):
        rng = check_random_state(7)
        orders = [None] + [rng.permutation(300) for _ in range(4)]
        if algorithm == "delayed":
            runs = [twins.dpmeans.delayed(X, lam)]
        else:
            runs = [getattr(twins.dpmeans, algorithm)(X, lam, order=order) for order in orders]
            assert len({round(run.objective, 9) for run in runs}) > 1
        best = min(runs, key=lambda run: run.objective)
        model = DPMeans(lam=lam, algorithm=algorithm, n_init=5, random_state=7).fit(X)
        assert np.array_equal(model.labels_, best.labels)
        assert model.n_iter_ == best.n_iter
        np.testing.assert_allclose(model.objective_path_, best.objective_path, rtol=1e-9)


@each_algorithm
def test_creating_sweeps_are_free(algorithm):
    """max_iter=1 is enough where only the last sweep creates nothing; all are reported.

    Delayed creation leaves one point of the fourth blob, the last one of them at the mean,
    a cluster of its own: it is the farthest before the means have converged.
    """
    X = np.repeat(np.eye(4) * 100, 5, axis=0) + np.random.default_rng(0).random((20, 4))
    model = DPMeans(lam=50, algorithm=algorithm, max_iter=1)
    assert not fit(model, X)
    assert model.n_clusters_ == (5 if algorithm == "delayed" else 4)
    assert model.n_iter_ == (5 if algorithm == "delayed" else 2)
    assert len(model.objective_path_) == model.n_iter_


def test_convergence_warning_names_the_remedy():
    X = np.random.default_rng(0).random((2000, 2))
    model = DPMeans(lam=0.01, max_iter=1)
    told = r"max_iter=1 sweeps \(\d+ with those that opened .*\); increase max_iter or tol\.$"
    with pytest.warns(ConvergenceWarning, match=told):
        model.fit(X)
    assert len(model.objective_path_) == model.n_iter_ + 1
    assert np.array_equal(model.predict(X), model.labels_)


def test_convergence_warning_names_a_shared_cluster():
    """Two centers in one of two groups: named at max_iter; the advised start has one in each."""
    X = np.concatenate([np.linspace(0, 1, 50), np.linspace(10, 11, 50)]).reshape(-1, 1)
    model = DPMeans(lam=30, max_iter=2)
    told = r"shared by centers 0 and 2, whose .* of 0\.26 is small beside lam=30; .*begin at init="
    with pytest.warns(ConvergenceWarning, match=told):
        model.fit(X)
    assert model.n_clusters_ == 3
    merged = DPMeans(lam=30, max_iter=2, init=DPMeans().fit(X).cluster_centers_)
    assert not fit(merged, X)
    assert merged.cluster_centers_.ravel().tolist() == pytest.approx([0.5, 10.5])
    with pytest.warns(ConvergenceWarning, match=r"increase max_iter or tol\.$"):
        model.set_params(lam=45).fit(X, sample_weight=np.full(100, 1.5))


@each_algorithm
@pytest.mark.parametrize("tol", [1e-2, 1e-4])
def test_tolerance(algorithm, tol):
    """Stops when a sweep gains at most tol times the first value; that is no failure."""
    X = np.random.default_rng(1).random((1500, 2))
    model = DPMeans(lam=0.03, algorithm=algorithm, tol=tol)
    assert not fit(model, X)
    twin = getattr(twins.dpmeans, algorithm)(X, 0.03, tol=tol)
    exact = DPMeans(lam=0.03, algorithm=algorithm).fit(X)
    assert model.n_iter_ == twin.n_iter < exact.n_iter_
    assert np.array_equal(model.labels_, twin.labels)
    np.testing.assert_allclose(model.objective_path_, twin.objective_path, rtol=1e-9)
    check_state(model, X)


@each_algorithm
def test_cap(algorithm):
    X = np.random.default_rng(2).random((400, 2))
    free = DPMeans(lam=0.01, algorithm=algorithm).fit(X)
    assert free.n_clusters_ > 12
    for cap in (1, 2, 12):
        model = DPMeans(lam=0.01, algorithm=algorithm, max_clusters=cap).fit(X)
        assert model.n_clusters_ == cap
        check_state(model, X)
    same = DPMeans(lam=0.01, algorithm=algorithm, max_clusters=400).fit(X)
    assert np.array_equal(same.labels_, free.labels_)


@each_algorithm
def test_every_point_its_own_cluster(algorithm):
    X = np.random.default_rng(4).normal(size=(150, 3))
    model = DPMeans(lam=1e-9, algorithm=algorithm).fit(X)
    assert model.n_clusters_ == 150
    assert sorted(model.labels_) == list(range(150))
    np.testing.assert_allclose(model.cluster_centers_[model.labels_], X, rtol=1e-14)
    np.testing.assert_allclose(model.objective_, 150e-9)


@seeds(6)
def test_collapsed_is_the_stronger_optimum(seed):
    """Its fixed points are fixed points of Algorithm 1, which it often improves."""
    X = np.random.default_rng(seed).random((300, 2))
    strong = DPMeans(lam=0.05, algorithm="collapsed").fit(X)
    again = DPMeans(lam=0.05, init=strong.cluster_centers_).fit(X)
    assert np.array_equal(again.labels_, strong.labels_)
    assert again.n_iter_ == 2
    weak = DPMeans(lam=0.05).fit(X)
    better = DPMeans(lam=0.05, init=weak.cluster_centers_, algorithm="collapsed").fit(X)
    assert better.objective_ <= weak.objective_ * (1 + 1e-12)


def test_collapsed_from_centers_that_split_off_a_few():
    """40 points at 0 and 1, two far ones: the means are those of the members."""
    X = np.r_[np.zeros(20), np.ones(20), 10, 11][:, None]
    model = DPMeans(lam=11.0, algorithm="collapsed", init=[[0.5], [10.5]]).fit(X)
    assert model.labels_.tolist() == [0] * 40 + [1, 1]
    np.testing.assert_allclose(model.cluster_centers_, [[0.5], [10.5]])
    np.testing.assert_allclose(model.objective_path_, [32.5, 32.5])


def test_collapsed_improves_some_fixed_points():
    X = np.random.default_rng(0).random((500, 2))
    weak = DPMeans(lam=0.05).fit(X)
    better = DPMeans(lam=0.05, init=weak.cluster_centers_, algorithm="collapsed").fit(X)
    assert better.objective_ < weak.objective_ - 0.01


def test_delayed_finds_the_blobs_where_serial_splits_them():
    """50 blobs at a small penalty: many redundant clusters against hardly any."""
    rng = np.random.default_rng(0)
    centers = 3 * rng.normal(size=(50, 16))
    X = centers[rng.integers(50, size=10_000)] + rng.normal(size=(10_000, 16))
    serial = DPMeans(lam=50).fit(X)
    delayed = DPMeans(lam=50, algorithm="delayed").fit(X)
    assert serial.n_clusters_ > 100
    assert 50 <= delayed.n_clusters_ < 60
    assert serial.objective_ < delayed.objective_


@each_algorithm
def test_far_data_gives_the_same_answer(algorithm):
    """An offset of 2^20 that loses no bit of the data changes nothing."""
    X = np.round(np.random.default_rng(8).random((700, 4)) * 2**25) / 2**25
    near = DPMeans(lam=0.2, algorithm=algorithm).fit(X)
    far = DPMeans(lam=0.2, algorithm=algorithm).fit(X + 2**20)
    assert near.n_clusters_ > 5
    assert np.array_equal(near.labels_, far.labels_)
    np.testing.assert_allclose(far.cluster_centers_ - 2**20, near.cluster_centers_, atol=1e-9)
    np.testing.assert_allclose(far.objective_path_, near.objective_path_, rtol=1e-9)


@each_algorithm
@pytest.mark.parametrize("outlier", [1e4, 1e6, 1e8])
def test_an_outlier_spoils_nothing(algorithm, outlier):
    """One mistyped row opens a cluster of its own; the others are clustered as before."""
    X = np.random.default_rng(0).random((300, 2))
    plain = DPMeans(lam=0.05, algorithm=algorithm).fit(X)
    model = DPMeans(lam=0.05, algorithm=algorithm).fit(np.vstack([X, [outlier, outlier]]))
    assert np.sum(model.labels_ == model.labels_[-1]) == 1
    assert model.objective_ < 1.3 * plain.objective_ + 0.05
    check_state(model, np.vstack([X, [outlier, outlier]]))


@each_algorithm
def test_a_huge_constant_column(algorithm):
    """A column that says nothing, such as one date for all rows, hides no small distances."""
    X = 1e-4 * np.random.default_rng(0).random((300, 2))
    dated = np.column_stack([np.full(300, 1.7e9), X])
    plain = DPMeans(lam=1e-9, algorithm=algorithm).fit(X)
    model = DPMeans(lam=1e-9, algorithm=algorithm).fit(dated)
    assert plain.n_clusters_ > 5
    assert np.array_equal(model.labels_, plain.labels_)


@each_algorithm
def test_predict_on_new_points(algorithm):
    rng = np.random.default_rng(9)
    X, new = rng.random((500, 6)), 3 * rng.random((777, 6)) - 1
    model = DPMeans(lam=0.4, algorithm=algorithm).fit(X)
    squared = twins.exact.squared_distances(new, model.cluster_centers_)
    labels = model.predict(new)
    assert labels.dtype == np.int32
    assert np.array_equal(labels, squared.argmin(axis=1))
    np.testing.assert_allclose(model.transform(new), np.sqrt(squared), rtol=1e-12)
    expected = -(squared.min(axis=1).sum() + model.lam_ * model.n_clusters_)
    np.testing.assert_allclose(model.score(new), expected, rtol=1e-9)
    np.testing.assert_allclose(model.score(X), -model.objective_, rtol=1e-9)


def test_predict_breaks_ties_downward():
    """Exactly halfway between two centers: the lower index."""
    model = DPMeans(lam=1e30, init=[[4.0, 0.0], [0.0, 0.0]]).fit([[4.0, 0.0], [0.0, 0.0]])
    assert model.predict([[2.0, 5.0], [np.nextafter(2.0, 0), 0.0]]).tolist() == [0, 1]


def test_transform_keeps_small_distances_far_from_the_origin():
    """||x||^2 - 2 x.c + ||c||^2 would return noise here."""
    X = np.array([[1e8], [1e8 + 1], [1e8 + 100]])
    model = DPMeans(lam=4.0).fit(X)
    np.testing.assert_allclose(model.transform(X), [[0.5, 100], [0.5, 99], [99.5, 0]])


@pytest.mark.parametrize("d", [1, 3, 20])
def test_transform_of_the_centers(d):
    """A center is at distance 0 from itself, not at the root of a rounding error."""
    X = np.random.default_rng(0).random((200, d)) + 5
    model = DPMeans(lam="farthest-first", guess=10).fit(X)
    own = np.diag(model.transform(model.cluster_centers_))
    np.testing.assert_allclose(own, 0, atol=1e-12)


def test_fit_predict_and_fit_transform():
    X = np.random.default_rng(1).random((200, 2))
    model = DPMeans(lam=0.05).fit(X)
    assert np.array_equal(DPMeans(lam=0.05).fit_predict(X), model.labels_)
    np.testing.assert_allclose(DPMeans(lam=0.05).fit_transform(X), model.transform(X))
    weights = np.random.default_rng(2).random(200)
    weighted = DPMeans(lam=0.05).fit(X, sample_weight=weights)
    assert np.array_equal(DPMeans(lam=0.05).fit_predict(X, sample_weight=weights), weighted.labels_)


@pytest.mark.parametrize("algorithm", ["serial", "delayed", "collapsed", "merge"])
@pytest.mark.parametrize("exponent", [-450, -300, 300, 450])
def test_scale_is_no_matter(algorithm, exponent):
    """A power of two moves no digit, and neither squares nor their products leave float64."""
    X, scale = np.outer(np.arange(20.0), np.ones(3)), 2.0**exponent
    model_a = DPMeans(lam=30.0, algorithm=algorithm, random_state=0).fit(X)
    model_b = DPMeans(lam=30.0 * scale**2, algorithm=algorithm, random_state=0).fit(X * scale)
    assert model_a.n_clusters_ > 3
    assert np.array_equal(model_a.labels_, model_b.labels_)
    assert model_b.objective_ == model_a.objective_ * scale**2


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@seeds(150)
def test_rows_of_no_weight_are_labeled_as_by_predict(seed):
    """Also where the sweeps end early, and such rows were all that a cluster had."""
    rng = np.random.default_rng(seed)
    X, weight = 4.0 * rng.normal(size=(30, 2)), (rng.random(30) < 0.3).astype(float)
    weight[0] = 1.0
    init, max_iter = 6.0 * rng.normal(size=(9, 2)), int(rng.integers(1, 4))
    for model in (
        DPMeans(lam=1e3, init=init, max_iter=max_iter),
        MiniBatchDPMeans(lam=1e3, init=init, max_iter=max_iter, batch_size=7, random_state=seed),
        BregmanDPMeans(lam=50.0, divergence="itakura_saito", init=np.exp(init), max_iter=max_iter),
    ):
        rows = np.exp(X / 4.0) if isinstance(model, BregmanDPMeans) else X
        model.fit(rows, sample_weight=weight)
        assert np.array_equal(model.labels_, model.predict(rows))


def test_a_warning_of_a_single_cluster():
    """Where clusters around two rows far apart are much better, there is one, and else none."""
    rng = np.random.default_rng(0)
    X = sparse.random(60, 400, density=0.02, format="csr", random_state=rng)
    lam = 1.05 * np.square(X.toarray() - X.toarray().mean(axis=0)).sum(axis=1).max()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert DPMeans(lam=lam).fit(X).n_clusters_ == 1
    apart = np.repeat(np.eye(3, 100), 20, axis=0)
    for rows in (apart, sparse.csr_array(apart)):
        with pytest.warns(UserWarning, match="3 clusters have an objective of 2.1 instead"):
            DPMeans(lam=0.7).fit(rows)
    weight = np.repeat([1.0, 0.0], [20, 40])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert DPMeans(lam=0.7).fit(apart, sample_weight=weight).n_clusters_ == 1
