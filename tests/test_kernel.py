"""KernelDPMeans and KernelHDPMeans: equal to the plain forms and to their twins, bad input."""

import gc
import pickle
import sys
import warnings
import weakref
from functools import partial

import numpy as np
import pytest
import twins.exact
import twins.kernel
import twins.penalty
from helpers import assert_refuses, never_rises, printed, seeds
from problems import blobs, random_problem, tied_problem
from scipy.spatial.distance import pdist
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics.pairwise import (
    pairwise_kernels,
    polynomial_kernel,
    rbf_kernel,
    sigmoid_kernel,
)

from smallvar import (
    DPMeans,
    HDPMeans,
    KernelDPMeans,
    KernelDynamicMeans,
    KernelHDPMeans,
    SpectralDPMeans,
    SpectralDynamicMeans,
)
from smallvar._core.groups import Groups
from smallvar._kernel import hdp_start
from smallvar._kernel.gram import Gram, Kernel
from smallvar._kernel.partition import Partition

ALGORITHMS = ("serial", "collapsed")
each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)
FAMILIES = ("plain", "tiny", "many", "wide", "singletons", "weights", "zero weights")
measures_memory = pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KB on Linux")


def small(seed, n_max=45):
    """Data, weights and groups for the slow twins."""
    rng = np.random.default_rng([seed, 5])
    n, d = int(rng.integers(1, n_max)), int(rng.integers(1, 5))
    X = blobs(rng, n, d, int(rng.integers(1, 6)))
    weights = rng.gamma(1.0, size=n) + 0.01
    if seed % 3 == 0:
        weights[rng.random(n) < 0.2] = 0.0
        weights[rng.integers(n)] = 1.0
    return X, weights if seed % 2 else None, rng.integers(int(rng.integers(1, 7)), size=n), rng


def quiet(model, X, **arguments):
    """Fit without the warnings of few sweeps and of a large penalty."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "one cluster is left because lam=")
        return model.fit(X, **arguments)


def direct_objective(K, labels, lam, weights=None):
    """Objective of labels, computed from scratch."""
    weights = np.ones(len(K)) if weights is None else weights
    labels = twins.exact.without_gaps(labels)[0]
    A = twins.kernel.mean_coefficients(labels, weights)
    return twins.kernel.gram_error(K, labels, weights, A) + lam * len(A)


def renumbered(labels):
    """Labels numbered by first appearance."""
    _, first, number = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number]


# The linear kernel is the plain form ---------------------------------------------------------


@each_algorithm
@pytest.mark.parametrize("family", [*FAMILIES, "cap", "few sweeps"])
@seeds(7)
def test_linear_kernel_is_dp_means(algorithm, family, seed):
    problem = random_problem(family, seed, n_max=300)
    X, options = problem.X.astype(float), {}
    if problem.init is not None and family != "few sweeps":
        pytest.skip("centers are no start for kernels")
    options = {
        "algorithm": algorithm,
        "max_clusters": problem.max_clusters,
        "max_iter": problem.max_iter,
        "n_init": 1 + 2 * (seed % 3 == 1),
        "random_state": seed,
        "tol": 0.01 * (seed % 5 == 2),
    }
    plain = quiet(DPMeans(lam=problem.lam, **options), X, sample_weight=problem.weights)
    model = quiet(
        KernelDPMeans(lam=problem.lam, kernel="linear", **options), X, sample_weight=problem.weights
    )
    np.testing.assert_allclose(model.objective_, plain.objective_, rtol=1e-8)
    assert never_rises(model.objective_path_)
    if options["n_init"] == 1:
        assert np.array_equal(model.labels_, plain.labels_)
        assert model.n_iter_ == plain.n_iter_
        scale = np.square(X).sum(axis=1).max() * (
            len(X) if problem.weights is None else problem.weights.sum()
        )
        np.testing.assert_allclose(
            model.objective_path_, plain.objective_path_, rtol=1e-8, atol=1e-12 * scale
        )
    else:  # starts that end at the same clusters may be told apart by rounding
        assert np.array_equal(renumbered(model.labels_), renumbered(plain.labels_))
    if algorithm == "serial":
        assert np.array_equal(model.predict(X), model.labels_)
    assert np.array_equal(model.predict(X[::-1] * 1.1), nearest(model, X, X[::-1] * 1.1))


def nearest(model, X, new):
    """Nearest mean, from the coefficients that the model keeps, for the linear kernel."""
    A = np.array(
        [model.center_weights_ * (model.center_labels_ == c) for c in range(model.n_clusters_)]
    )
    np.testing.assert_allclose(A.sum(axis=1), 1)
    return twins.exact.nearest(new, A @ X)[0]


@each_algorithm
@pytest.mark.parametrize("guess", [1, 2, 5, 20])
def test_farthest_first(algorithm, guess):
    X, _, _, rng = small(3, 200)
    X = np.vstack([X, rng.random((40, X.shape[1]))])
    weights = (rng.random(len(X)) < 0.8) * rng.random(len(X))
    for weight in (None, weights):
        options = {"guess": guess, "algorithm": algorithm}
        plain = quiet(DPMeans(lam="farthest-first", **options), X, sample_weight=weight)
        model = KernelDPMeans(kernel="linear", **options).fit(X, sample_weight=weight)
        np.testing.assert_allclose(model.lam_, plain.lam_, rtol=1e-9)
        assert np.array_equal(model.labels_, plain.labels_)
    K, live = rbf_kernel(X, gamma=2.0), np.flatnonzero(weights > 0)
    model = KernelDPMeans(gamma=2.0, guess=guess).fit(X)
    expected = twins.penalty.kernel_farthest_first(K, np.arange(len(X)), guess)
    np.testing.assert_allclose(model.lam_, expected, rtol=1e-9)
    model.fit(X, sample_weight=(weights > 0).astype(float))
    expected = twins.penalty.kernel_farthest_first(K, live, guess)
    np.testing.assert_allclose(model.lam_, expected, rtol=1e-9)


@pytest.mark.parametrize("n", [10, 150])
def test_global_penalty_by_points(n):
    """The rule "points" is that of all rows as one data set, for 15 clusters or one for each."""
    X, _, _, rng = small(4, 150)
    X = X[:n]
    groups = rng.integers(0, 6, len(X))
    K = rbf_kernel(X, gamma=2.0)
    expected = twins.penalty.kernel_farthest_first(K, np.arange(len(X)), min(15, len(X)))
    for options in ({"gamma": 2.0}, {"kernel": "precomputed"}):
        model = KernelHDPMeans(**options).fit(K if "kernel" in options else X, groups=groups)
        np.testing.assert_allclose(model.lam_global_, expected, rtol=1e-9)


@seeds(110)
def test_linear_kernel_is_hdp_means(seed):
    from test_hdp import direct_objective, problem, weights_for

    X, groups, *penalties = problem(seed)
    weights = weights_for(len(X), np.random.default_rng(seed)) if seed % 2 else None
    X = X.astype(float) - 1e6 * (seed % 8 == 6)  # far data lose their digits in the kernel
    penalties = ["farthest-first"] * 2 if seed % 5 == 0 else penalties
    penalties = dict(zip(("lam_local", "lam_global"), penalties, strict=True))
    options = {
        "n_init": 1 + 2 * (seed % 3 == 1),
        "random_state": seed,
        "tol": 0.01 * (seed % 7 == 2),
    }
    data = {"groups": groups, "sample_weight": weights}
    plain = HDPMeans(**penalties, **options).fit(X, **data)
    model = KernelHDPMeans(**penalties, kernel="linear", init="mean", **options).fit(X, **data)
    np.testing.assert_allclose(model.lam_local_, plain.lam_local_, rtol=1e-8)
    np.testing.assert_allclose(model.lam_global_, plain.lam_global_, rtol=1e-8)
    np.testing.assert_allclose(model.objective_, plain.objective_, rtol=1e-8)
    assert never_rises(model.objective_path_)
    new = 1.05 * X[::-1]
    if options["n_init"] == 1:
        assert np.array_equal(model.labels_, plain.labels_)
        assert np.array_equal(model.local_labels_, plain.local_labels_)
        assert np.array_equal(model.n_local_clusters_, plain.n_local_clusters_)
        assert [c.tolist() for c in model.local_clusters_] == [
            c.tolist() for c in plain.local_clusters_
        ]
        assert np.array_equal(model.groups_, plain.groups_)
        assert model.n_iter_ == plain.n_iter_
        assert np.array_equal(model.predict(new, **data), plain.predict(new, **data))
        assert options["tol"] or np.array_equal(model.predict(X, **data), model.labels_)
        assert np.array_equal(model.predict(new), plain.predict(new))
    else:
        assert np.array_equal(renumbered(model.labels_), renumbered(plain.labels_))
    if weights is not None and (weights == weights.round()).all():  # as many copies
        X, groups, labels = (
            np.repeat(a, weights.astype(int), 0) for a in (X, groups, model.labels_)
        )
        objective = direct_objective(X, groups, labels, model.lam_local_, model.lam_global_)
        np.testing.assert_allclose(model.objective_, objective, rtol=1e-8)


@seeds(12)
def test_hdp_leaves_out_rows_of_weight_zero(seed):
    """However large they are: the clusters are those of the other rows."""
    X, _, groups, rng = small(seed)
    weights = rng.integers(0, 3, size=len(X)).astype(float)
    weights[0] = 1.0
    used = weights > 0
    X[~used] *= 1e4
    for kernel in ("rbf", "linear"):
        model = KernelHDPMeans(kernel=kernel, init="merge")
        data = {"groups": groups, "sample_weight": weights}
        model.fit(X, **data)
        labels = model.labels_.copy()
        assert np.array_equal(model.predict(X, **data), labels)
        model.fit(X[used], **{name: value[used] for name, value in data.items()})
        assert np.array_equal(model.labels_, labels[used])


# Other kernels, and the twins ----------------------------------------------------------------


@each_algorithm
@seeds(60)
def test_rbf_equals_twin(algorithm, seed):
    X, weights, _, rng = small(seed)
    gamma, lam = float(rng.choice([0.3, 2.0, 20.0])), float(rng.choice([0.02, 0.1, 0.3, 0.6]))
    options = {"max_iter": 1 + seed % 2 if seed % 4 == 0 else 300}
    cap = 3 if seed % 5 == 0 else None
    labels = rng.integers(min(3, len(X)), size=len(X)) if seed % 5 in (0, 1) else None
    model = KernelDPMeans(
        lam=lam, gamma=gamma, algorithm=algorithm, random_state=seed,
        max_clusters=cap, init="mean" if labels is None else labels, **options,
    )  # fmt: skip
    quiet(model, X, sample_weight=weights)
    K = rbf_kernel(X, gamma=gamma)
    expected, path, n_iter = twins.kernel.kernel_dp_means(
        K, lam, collapsed=algorithm == "collapsed", weights=weights,
        cap=cap or np.inf, labels=labels, **options,
    )  # fmt: skip
    assert np.array_equal(model.labels_, expected)
    np.testing.assert_allclose(model.objective_path_, path, rtol=1e-9, atol=1e-12)
    assert model.n_iter_ == n_iter and never_rises(model.objective_path_)
    assert model.labels_.dtype == np.int32 and model.objective_ == model.objective_path_[-1]
    np.testing.assert_allclose(model.objective_, model.inertia_ + lam * model.n_clusters_)
    if algorithm == "serial":
        assert np.array_equal(model.predict(X), model.labels_)
    if (model.center_labels_ == model.labels_).all():
        direct = direct_objective(K, model.labels_, lam, weights)
        np.testing.assert_allclose(model.objective_, direct, rtol=1e-9)


@seeds(60)
def test_rbf_hdp_equals_twin(seed):
    X, _, groups, rng = small(seed)
    gamma = float(rng.choice([0.3, 2.0, 20.0]))
    local, total = float(rng.choice([0.02, 0.1, 0.3])), float(rng.choice([0.05, 0.3, 1.0]))
    model = KernelHDPMeans(lam_local=local, lam_global=total, gamma=gamma).fit(X, groups=groups)
    K = rbf_kernel(X, gamma=gamma)
    expected, path, n_iter = twins.kernel.kernel_hdp(K, groups, local, total)
    assert np.array_equal(model.labels_, expected) and model.n_iter_ == n_iter
    np.testing.assert_allclose(model.objective_path_, path, rtol=1e-9, atol=1e-12)
    assert never_rises(model.objective_path_)


KERNELS = {
    "rbf": {"gamma": 0.7},
    "laplacian": {"gamma": 0.4},
    "poly": {"gamma": 0.5},
    "chi2": {"gamma": 1.0},
    "additive_chi2": {},
    "cosine": {},
    "linear": {},
}


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "hdp"])
@pytest.mark.parametrize("name", KERNELS)
def test_all_forms_of_a_kernel_are_one(name, algorithm):
    """A kernel by name, precomputed, as a function, held or in blocks gives equal fits."""
    rng = np.random.default_rng(2)
    X, new = rng.random((150, 3)) + 0.2, rng.random((50, 3)) + 0.2
    options = KERNELS[name]
    calls = []

    def between(A, B, **given):
        calls.append((A.shape, B.shape, given))
        return pairwise_kernels(A, B, metric=name, **{**options, **given})

    K, K_new = between(X, X), between(new, X)
    groups = {"groups": np.arange(150) % 7} if algorithm == "hdp" else {}

    def fit(data, **parameters):
        if algorithm == "hdp":
            return KernelHDPMeans(lam_local=0.02, lam_global=0.05, **parameters).fit(data, **groups)
        return KernelDPMeans(algorithm=algorithm, **parameters).fit(data)

    plain = fit(X, kernel=name, **options)
    assert 1 < plain.n_clusters_ < 150 and never_rises(plain.objective_path_)
    others = [
        (fit(X, kernel=name, max_memory=3e4, **options), new),
        (fit(X, kernel=between, **options), new),
        (fit(X, kernel=between, max_memory=3e4, **options), new),
        (fit(K, kernel="precomputed"), K_new),
        (fit(np.asfortranarray(K), kernel="precomputed"), K_new),
    ]
    assert len({shapes[0] for *shapes, _ in calls}) > 1
    for other_model, rows in others:
        assert np.array_equal(other_model.labels_, plain.labels_)
        np.testing.assert_allclose(other_model.objective_path_, plain.objective_path_, rtol=1e-9)
        assert np.array_equal(other_model.predict(rows), plain.predict(new))
    assert others[3][0].X_fit_ is None
    assert others[3][0].__sklearn_tags__().input_tags.pairwise
    assert not plain.__sklearn_tags__().input_tags.pairwise


@each_algorithm
def test_squared_distances_are_a_kernel(algorithm):
    """Minus half of them is conditionally positive definite: no warning, and plain DP-means."""
    X, *_ = small(4, 300)
    D = np.square(X[:, None] - X).sum(axis=2)
    lam = float(np.median(D)) / 4
    model = KernelDPMeans(lam=lam, kernel="precomputed", algorithm=algorithm).fit(-D / 2)
    plain = DPMeans(lam=lam, algorithm=algorithm).fit(X)
    assert np.array_equal(model.labels_, plain.labels_) and plain.n_clusters_ > 1
    np.testing.assert_allclose(model.objective_, plain.objective_, rtol=1e-9)


@pytest.mark.parametrize("memory", [2e9, 1e5])
def test_float32(memory):
    X, *_ = small(8, 400)
    X = X.astype(np.float32)
    model = KernelDPMeans(gamma=1.0, max_memory=memory).fit(X)
    other_model = KernelDPMeans(gamma=1.0).fit(X.astype(float))
    assert np.array_equal(model.labels_, other_model.labels_)
    np.testing.assert_allclose(model.objective_path_, other_model.objective_path_, rtol=1e-5)
    assert never_rises(model.objective_path_)
    assert model.X_fit_.dtype == np.float32 and model.transform(X).dtype == np.float32


@each_algorithm
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@seeds(30)
def test_tied_data(algorithm, seed, kernel):
    problem = tied_problem(seed, n=120)
    X, weights = problem.X, problem.weights
    model = KernelDPMeans(kernel=kernel, algorithm=algorithm, guess=1 + seed % 6)
    model.fit(X, sample_weight=weights)
    assert never_rises(model.objective_path_)
    K = rbf_kernel(X, gamma=model.gamma_) if kernel == "rbf" else X @ X.T
    direct = direct_objective(K, model.labels_, model.lam_, weights)
    np.testing.assert_allclose(model.objective_, direct, rtol=1e-9)
    if algorithm == "serial":
        assert np.array_equal(model.predict(X), model.labels_)
    fixed = KernelDPMeans(lam=model.lam_, kernel=kernel, algorithm=algorithm, init=model.labels_)
    fixed.fit(X, sample_weight=weights)
    np.testing.assert_allclose(fixed.objective_, direct, rtol=1e-9)
    assert fixed.n_iter_ == 1


@seeds(20)
def test_tied_data_hdp(seed):
    problem = tied_problem(seed, n=120)
    groups = np.arange(120) % (1 + seed % 5)
    model = KernelHDPMeans().fit(problem.X, groups=groups)
    assert never_rises(model.objective_path_)
    again = KernelHDPMeans(kernel="linear").fit(problem.X, groups=groups)
    assert never_rises(again.objective_path_)


# Where starts of the HDP begin ---------------------------------------------------------------


def hdp_objective(K, groups, labels, lam_local, lam_global):
    """The objective of labels, each cluster by itself."""
    error = np.trace(K)
    for c in np.unique(labels):
        own = labels == c
        error -= K[np.ix_(own, own)].sum() / own.sum()
    n_local = len(np.unique(np.column_stack([groups, labels]), axis=0))
    return error + lam_local * n_local + lam_global * len(np.unique(labels))


@pytest.mark.parametrize(
    ("d", "sets", "per", "clusters", "used"),
    [(2, 12, 12, 8, 3), (2, 12, 12, 8, 6), (3, 50, 5, 15, 5), (3, 10, 10, 15, 8)],
)
def test_hdp_reaches_the_objective_of_separated_clusters(d, sets, per, clusters, used):
    from test_hdp import blobs as separated

    for seed in range(3):
        X, groups, truth = separated(seed, d, sets, per, clusters, used)
        model = KernelHDPMeans().fit(X, groups=groups)
        best = hdp_objective(
            model.kernel_matrix(X), groups, truth, model.lam_local_, model.lam_global_
        )
        assert model.objective_ <= best * (1 + 1e-9)
        published = KernelHDPMeans(init="mean").fit(X, groups=groups)
        assert published.lam_global_ == model.lam_global_
        assert published.objective_ > best


@seeds(12)
def test_merging_is_its_twin(seed):
    """Merging equals a twin that computes the objective of every union from scratch."""
    X, _, groups, rng = small(seed, 40)
    unit = 2.0**140 if seed % 2 else 1.0  # beyond float32
    K = unit * rbf_kernel(X, gamma=1.0)
    lam_local, lam_global = (unit * rng.uniform(0.01, 0.3, 2)).tolist()
    gram = Gram(Kernel("precomputed"), K, np.inf)
    clusters = Partition(gram, None, np.zeros(len(X), dtype=np.int32))
    actual = hdp_start.merge_path_start(clusters, Groups(groups, len(X)), lam_local, lam_global)
    assert (clusters.label == 0).all()
    expected = twins.kernel.merged(
        K,
        groups,
        lam_local,
        lam_global,
        hdp_start.MIN_SEEDS,
        hdp_start.SEEDS_PER_ROOT,
        hdp_start.SEED_SWEEPS,
    )
    assert np.array_equal(renumbered(actual.label), renumbered(expected))


def test_init_of_hdp():
    X, _, groups, _ = small(4, 150)

    def fit(**options):
        return KernelHDPMeans(gamma=2.0, random_state=0, **options).fit(X, groups=groups)

    def same(first, second):
        return (
            np.array_equal(first.labels_, second.labels_) and first.objective_ == second.objective_
        )

    rules = fit(n_init=2)
    numbers = {"lam_local": rules.lam_local_, "lam_global": rules.lam_global_}
    mean, merge = (fit(init=init, **numbers) for init in ("mean", "merge"))
    assert same(fit(**numbers), mean) and not same(mean, merge)
    assert same(fit(lam_local=rules.lam_local_), fit())  # one of them is a rule
    assert same(fit(init="mean"), mean) and same(fit(init="merge"), merge)
    assert fit().objective_ == min(mean.objective_, merge.objective_)
    assert rules.objective_ <= fit().objective_
    assert never_rises(merge.objective_path_)
    blocks = fit(init="merge", max_memory=1e5)
    assert np.array_equal(blocks.labels_, merge.labels_)


# The default gamma ----------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "metric"), [("rbf", "sqeuclidean"), ("laplacian", "cityblock")])
@pytest.mark.parametrize("estimator", [KernelDPMeans, KernelHDPMeans])
def test_default_gamma_makes_the_median_distance_0_3(estimator, kernel, metric):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(60, 3)), rng.integers(1, 9, size=60), axis=0)
    expected = 0.3 / np.median(pdist(np.unique(X, axis=0), metric))  # copies count once
    hdp = estimator is KernelHDPMeans
    penalties = {"lam_local": 0.1, "lam_global": 0.1} if hdp else {}
    model = estimator(**penalties, kernel=kernel).fit(X)
    np.testing.assert_allclose(model.gamma_, expected, rtol=1e-12)
    assert model.gamma is None
    given = clone(model).set_params(gamma=model.gamma_).fit(X)
    assert given.gamma_ == model.gamma_ and given.objective_ == model.objective_
    # so that the unit of the data does not matter
    scaled = clone(model).fit(1024 * X)
    assert scaled.gamma_ == model.gamma_ / 1024 ** (1 + (kernel == "rbf"))
    assert np.array_equal(scaled.labels_, model.labels_) and model.n_clusters_ > 1


def test_default_gamma_of_hand_computed_distances():
    X = [[0.0, 0.0], [3.0, 4.0], [3.0, 4.0], [0.0, 1.0]]  # squared: 25, 25, 1, 18, 18
    assert KernelDPMeans(lam=0.1).fit(X).gamma_ == 0.3 / 18
    assert KernelDPMeans(lam=0.1).fit(X, sample_weight=[2.0, 0.0, 0.0, 5.0]).gamma_ == 0.3
    assert KernelDPMeans(lam=0.1, kernel="laplacian").fit(X).gamma_ == 0.3 / 6  # 7, 7, 1, 6, 6
    assert (
        KernelHDPMeans(lam_local=0.1, lam_global=0.1).fit(X, groups=[0, 0, 1, 1]).gamma_ == 0.3 / 18
    )


def test_default_gamma_where_rows_are_equal_or_alone():
    """Without distances between rows gamma is scikit-learn's default."""
    for kernel in ("rbf", "laplacian"):
        for X in (np.full((7, 4), 1 / 3), np.ones((1, 4))):
            assert KernelDPMeans(lam=0.1, kernel=kernel).fit(X).gamma_ == 0.25
    # nor where squares leave the range of float64
    assert KernelDPMeans(lam=0.1).fit(1e-160 * np.eye(4)).gamma_ == 0.25


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", ["shuffled", "sorted", "in turn"])
def test_default_gamma_of_many_rows(dtype, order):
    """The median is that of a fixed sample of rows, whatever their order."""
    rng = np.random.default_rng(1)
    truth = rng.integers(2, size=2500) if order == "shuffled" else np.arange(2500) % 2
    truth = np.sort(truth) if order == "sorted" else truth
    X = (rng.normal(size=(2500, 4)) + 3 * truth[:, None]).astype(dtype)
    model = KernelDPMeans(lam=2.5, max_memory=4e6).fit(X)
    expected = 0.3 / np.median(pdist(X, "sqeuclidean"))
    assert abs(model.gamma_ / expected - 1) < 0.15
    assert clone(model).fit(X).gamma_ == model.gamma_


@pytest.mark.parametrize(
    "estimator",
    [KernelDPMeans, KernelHDPMeans, SpectralDPMeans, KernelDynamicMeans, SpectralDynamicMeans],
)
def test_kernel_matrix(estimator):
    """The matrix equals one made by hand; gamma is that of the fit."""
    X, new = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, 1.0]]), [[1.0, 1.0]]
    model = estimator(gamma=0.5, random_state=0)
    with pytest.raises(NotFittedError):
        model.kernel_matrix(X)
    model.fit(X)
    square = np.array([[2.0, 1.0, 2.0, 4.0]])
    np.testing.assert_allclose(model.kernel_matrix(new, X), np.exp(-0.5 * square), rtol=1e-14)
    np.testing.assert_allclose(model.kernel_matrix(X[:2])[0, 1], np.exp(-0.5), rtol=1e-14)
    assert model.kernel_matrix(X.astype(np.float32), new).shape == (4, 1)
    if hasattr(model, "gamma_"):
        assert model.set_params(gamma=9.0).kernel_matrix(X[:2])[0, 1] == np.exp(-0.5)
    with pytest.raises(ValueError, match="Y must have 2 columns, got 3"):
        model.kernel_matrix(X, np.ones((2, 3)))
    with pytest.raises(ValueError, match="X must have 2 columns, got 1"):
        model.kernel_matrix(X[:, :1])


def test_kernel_matrix_of_a_given_matrix():
    model = KernelDPMeans(kernel="precomputed").fit(np.eye(3))
    with pytest.raises(ValueError, match="kernel must not be 'precomputed' for kernel_matrix"):
        model.kernel_matrix(np.eye(3))


def test_gamma_of_the_other_kernels():
    X = np.random.default_rng(0).random((20, 4))
    for kernel, expected in (
        ("poly", 0.25),
        ("polynomial", 0.25),
        ("sigmoid", 0.25),
        ("chi2", 1.0),
        ("additive_chi2", None),
        ("linear", None),
        (lambda A, B: A @ B.T, None),
    ):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* the Gram matrix is indefinite")
            model = KernelDPMeans(lam=0.1, kernel=kernel).fit(X)
        assert model.gamma_ == expected
        new, used = X[::-1] / 2, model.kernel_matrix(X[:5] / 2, X)
        if isinstance(kernel, str):
            assert np.array_equal(used, pairwise_kernels(X[:5] / 2, X, metric=kernel))
        assert model.predict(new).shape == (20,)
    assert KernelDPMeans(lam=0.1, kernel="precomputed").fit(X @ X.T).gamma_ is None
    assert KernelDPMeans(lam=0.1, gamma=3).fit(X).gamma_ == 3
    assert KernelDPMeans(lam=0.1, kernel=rbf_kernel, gamma=3).fit(X).gamma_ == 3


def test_gamma_is_that_of_the_fit():
    """Methods use the gamma of the fit when the parameter changes; another fit starts afresh."""
    X, *_, rng = small(13, 200)
    new = rng.normal(size=(30, X.shape[1]))
    model = KernelDPMeans(lam=0.2, kernel="rbf").fit(X)
    labels, distances, score = model.predict(new), model.transform(new), model.score(new)
    expected = 1 - 2 * rbf_kernel(new, X, gamma=model.gamma_)[:, model.labels_ == 0].mean(axis=1)
    expected += model.center_norms_[0]
    np.testing.assert_allclose(distances[:, 0] ** 2, expected, atol=1e-12)
    assert model.n_clusters_ > 1 and np.array_equal(distances.argmin(axis=1), labels)
    model.set_params(gamma=1e3)
    assert np.array_equal(model.predict(new), labels)
    assert np.array_equal(model.transform(new), distances) and model.score(new) == score
    assert model.fit(X).gamma_ == 1e3
    assert model.set_params(gamma=None).fit(2 * X).gamma_ < 1e3
    assert model.set_params(kernel="linear").fit(X).gamma_ is None


# Methods and memory --------------------------------------------------------------------------


def test_transform_and_score():
    X, weights, _, _ = small(7, 200)
    K = rbf_kernel(X, gamma=3.0)
    model = KernelDPMeans(lam=0.2, gamma=3.0).fit(X, sample_weight=weights)
    A = twins.kernel.mean_coefficients(model.labels_, weights)
    expected = [[twins.kernel.kernel_distance(K, i, a) for a in A] for i in range(len(X))]
    np.testing.assert_allclose(np.square(model.transform(X)), expected, atol=1e-12)
    np.testing.assert_allclose(model.score(X, sample_weight=weights), -model.objective_)
    np.testing.assert_allclose(
        model.score(X), -(np.min(expected, axis=1).sum() + 0.2 * model.n_clusters_)
    )
    precomputed = KernelDPMeans(lam=0.2, kernel="precomputed").fit(K, sample_weight=weights)
    assert np.array_equal(precomputed.predict(K), model.labels_)
    for method in (precomputed.transform, precomputed.score):
        with pytest.raises(ValueError, match="'precomputed' for (transform|score): the kernel of"):
            method(K)


def test_updates_do_not_drift():
    """Updated sums end at the value of sums from scratch."""
    rng = np.random.default_rng(0)
    X = blobs(rng, 1500, 3, 25)
    model = KernelDPMeans(lam=0.05, gamma=3.0, n_init=2, random_state=0).fit(X)
    assert model.n_iter_ > 5
    A = np.zeros((model.n_clusters_, 1500))
    A[model.labels_, np.arange(1500)] = 1
    A /= A.sum(axis=1, keepdims=True)
    K = rbf_kernel(X, gamma=3.0)
    distance = np.diag(K)[:, None] - 2 * K @ A.T + np.einsum("ki,ij,kj->k", A, K, A, optimize=True)
    assert np.array_equal(distance.argmin(axis=1), model.labels_)
    np.testing.assert_allclose(
        model.objective_, distance.min(axis=1).sum() + 0.05 * model.n_clusters_, rtol=1e-12
    )


def test_the_data_may_change_after_fit():
    X, *_ = small(12, 100)
    model = KernelDPMeans(lam=0.1, gamma=3.0).fit(X)
    new, before = X.copy(), model.predict(X)
    X[:] = 0.0
    assert np.array_equal(model.predict(new), before)


MEMORY = """
import resource, sys
import numpy as np
from smallvar import KernelDPMeans
rng = np.random.default_rng(0)
X = rng.normal(size=(3500, 5)).astype(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
KernelDPMeans(lam=0.9, gamma=0.05, max_memory=float(sys.argv[2]), tol=0.01).fit(X)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
@each_algorithm
def test_tables_that_are_not_held(algorithm, kernel, weighted, monkeypatch):
    """Clusters are equal with no sums held, or with those of up to five clusters."""
    X, _ = make_blobs(200, 3, centers=8, random_state=0)
    w = np.random.default_rng(0).choice([0.0, 0.5, 2.0], 200) if weighted else None
    data = rbf_kernel(X, gamma=0.01) if kernel == "precomputed" else X
    gamma = None if kernel == "precomputed" else 0.01
    for lam in (0.02, 0.1, 0.4, "farthest-first"):
        for early in ({}, {"max_iter": 1}):
            model = KernelDPMeans(lam=lam, kernel=kernel, gamma=gamma, algorithm=algorithm, **early)
            whole = quiet(model, data, sample_weight=w)
            assert lam != 0.02 or whole.n_clusters_ > 6
            for clusters in (0, 5):
                held = []
                can_hold_sums = Partition.can_hold_sums

                def limited(self, k, most=clusters, held=held, can_hold_sums=can_hold_sums):
                    held.append(can_hold_sums(self, k) and k <= most)
                    return held[-1]

                with monkeypatch.context() as patch:
                    patch.setattr(Partition, "can_hold_sums", limited)
                    few = quiet(clone(model), data, sample_weight=w)
                assert not all(held) or few.n_clusters_ <= 5
                assert np.array_equal(few.labels_, whole.labels_)
                np.testing.assert_allclose(few.objective_path_, whole.objective_path_, rtol=1e-9)
                np.testing.assert_allclose(few.center_norms_, whole.center_norms_, rtol=1e-9)


TABLES = """
import resource, sys
import numpy as np
from smallvar import KernelDPMeans
X = np.random.default_rng(0).normal(size=(3000, 5)).astype(np.float32)
KernelDPMeans(lam=0.9, gamma=1.0, tol=0.5).fit(X[:300])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
options = dict(tol=0.5, max_memory=6e7, algorithm=sys.argv[1], max_iter=1)
model = KernelDPMeans(lam=0.9, gamma=2.0, **options)
assert model.fit(X).n_clusters_ * 3000 * 8 > 1.5e7
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.long
@measures_memory
@pytest.mark.filterwarnings("ignore")
@each_algorithm
def test_tables_stay_within_the_budget(algorithm):
    """The matrix has 36 MB, one table more than 15 MB, of which there would be three."""
    assert printed(TABLES, algorithm) < 6.6e7


@pytest.mark.parametrize("estimator", [KernelDPMeans(), KernelHDPMeans(), SpectralDPMeans(lam=2.0)])
@pytest.mark.parametrize("kernel", [partial(polynomial_kernel, degree=2), "linear", "poly", "rbf"])
def test_the_kernel_is_that_of_the_fit(kernel, estimator):
    """A kernel set after the fit is refused; a gamma is not used."""
    X = np.random.default_rng(0).random((20, 3))
    model = clone(estimator).set_params(kernel=kernel).fit(X)
    labels = model.predict(X)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(X), labels)
    for other in ("laplacian", partial(polynomial_kernel, degree=3)):
        with pytest.raises(ValueError, match="kernel must stay what it was in fit"):
            model.set_params(kernel=other).predict(X)
    model.set_params(kernel=kernel, gamma=None if kernel == "linear" else 1e3)
    assert np.array_equal(model.predict(X), labels)


@pytest.mark.long
@measures_memory
@pytest.mark.parametrize(
    ("dtype", "budget", "allowed"),
    [("float32", 8e7, 9e7), ("float64", 8e7, 4e7), ("float32", 1e7, 3e7)],
)
def test_memory_stays_within_the_budget(dtype, budget, allowed):
    """The matrix has 49 MB in float32 and 98 MB in float64, which is not held here."""
    assert printed(MEMORY, dtype, budget) < allowed


# Edge cases and bad input --------------------------------------------------------------------


@each_algorithm
def test_edge_cases(algorithm):
    single = KernelDPMeans(lam=0.5, algorithm=algorithm).fit([[3.0, 1.0]])
    assert single.objective_ == 0.5 and single.labels_.tolist() == [0] and single.n_iter_ == 1
    assert KernelDPMeans(guess=1, algorithm=algorithm).fit([[3.0]]).lam_ == 1.0
    constant = np.full((50, 3), 1e3 / 3)
    for kernel in ("rbf", "linear", "laplacian", "poly"):
        model = KernelDPMeans(kernel=kernel, algorithm=algorithm).fit(constant)
        assert model.n_clusters_ == 1 and model.lam_ == 1.0
        tiny = KernelDPMeans(lam=1e-300, kernel=kernel, algorithm=algorithm).fit(constant)
        assert tiny.n_clusters_ == 1
    X, *_ = small(5, 100)
    infinite = KernelDPMeans(lam=np.inf, algorithm=algorithm).fit(X)
    assert infinite.n_clusters_ == 1 and infinite.objective_ == np.inf
    rows = np.repeat(np.arange(4.0)[:, None], 5, axis=0)
    doubled = KernelDPMeans(lam=1e-6, gamma=1.0, algorithm=algorithm).fit(rows)
    assert doubled.n_clusters_ == 4 and abs(doubled.inertia_) < 1e-12
    k_means = KernelDPMeans(lam=0.0, gamma=1.0, max_clusters=3, algorithm=algorithm).fit(X)
    assert k_means.n_clusters_ == 3
    zero = KernelDPMeans(lam=0.5, kernel="precomputed", algorithm=algorithm).fit(np.zeros((3, 3)))
    assert zero.labels_.tolist() == [0, 0, 0]


def test_edge_cases_of_hdp():
    single = KernelHDPMeans(lam_local=0.5, lam_global=2.0).fit([[3.0, 1.0]])
    assert single.objective_ == 2.5 and single.n_iter_ == 1
    for kernel in ("rbf", "linear"):
        model = KernelHDPMeans(kernel=kernel).fit(np.full((20, 2), 1 / 3), groups=np.arange(20) % 3)
        assert model.n_clusters_ == 1 and model.lam_local_ == model.lam_global_ == 1.0
        assert model.n_local_clusters_.tolist() == [1, 1, 1]


def indefinite(n, seed=0):
    """A symmetric indefinite matrix."""
    K = np.random.default_rng(seed).normal(size=(n, n))
    return K + K.T


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.timeout(60, method="thread")
@pytest.mark.parametrize("n", [30, 700])
@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "hdp"])
def test_indefinite_matrix(n, algorithm):
    """An indefinite matrix gives a warning; fits end, and labels and objective agree."""
    K = indefinite(n)
    model = KernelDPMeans(lam=2.0, kernel="precomputed", max_iter=6)
    if algorithm == "hdp":
        model = KernelHDPMeans(lam_local=1.0, lam_global=1.0, kernel="precomputed", max_iter=6)
    else:
        model.set_params(algorithm=algorithm)
    with pytest.warns(UserWarning, match=f"{type(model).__name__}: .* indefinite, with an eigenv"):
        model.fit(K)
    assert model.labels_.shape == (n,) and np.isfinite(model.objective_path_).all()
    if algorithm == "serial":
        assert np.array_equal(model.predict(K), model.labels_)
    with pytest.warns(UserWarning, match="indefinite"):
        KernelDPMeans(kernel=lambda A, B: A @ np.diag([1, -1]) @ B.T, max_iter=6).fit(
            np.random.default_rng(0).normal(size=(60, 2))
        )
    with pytest.warns(UserWarning, match="indefinite"):
        KernelDPMeans(kernel=partial(sigmoid_kernel, gamma=2.0, coef0=-1.0), max_iter=6).fit(
            np.random.default_rng(0).normal(size=(60, 2))
        )


X_BAD = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    ("parameters", "X", "error", "message"),
    [
        ({"kernel": "precomputed"}, X_BAD, ValueError, r"X must be a square Gram .*\(6, 2\)"),
        (
            {"kernel": "precomputed"},
            np.arange(9.0).reshape(3, 3),
            ValueError,
            "X must be a symmetric Gram matrix .* got entries 4 apart",
        ),
        ({"kernel": lambda A, B: A @ A.T[:, :1]}, X_BAD, ValueError, r"of shape \(6, 6\)"),
        ({"kernel": lambda A, B: A @ B.T * np.nan}, X_BAD, ValueError, "must return finite"),
        ({"kernel": lambda A, B: A @ B.T * 1j}, X_BAD, ValueError, "real numbers, got complex128"),
        ({"kernel": lambda A, B: "no"}, X_BAD, ValueError, r"of shape \(6, 6\).*got \(\)"),
        ({"kernel": "linear"}, X_BAD * 1e200, ValueError, "must return finite numbers"),
        ({"kernel": "linear"}, X_BAD * 1e155, ValueError, "kernel must return finite numbers"),
        ({"kernel": "poly"}, X_BAD * 1e155, ValueError, "kernel must return finite numbers"),
        ({"kernel": "rbf"}, X_BAD * 1e155, ValueError, "kernel='rbf' needs a median distance"),
        ({"kernel": "linear"}, X_BAD * 1e150, ValueError, "kernel must have values that, times"),
        (
            {"kernel": "linear", "max_memory": 1e3},
            X_BAD * 1e150,
            ValueError,
            r"are at most 1e290, got 2.21e\+302 for a weight of 6: rescale X",
        ),
        (
            {"kernel": "precomputed"},
            np.kron(np.eye(3), [[0.0, 1e307], [1e307, 0.0]]),
            ValueError,
            r"kernel must have values .* are at most 1e290, got 1e\+307 for a weight of 6",
        ),
        (
            {"kernel": "linear", "gamma": 1.0},
            X_BAD,
            ValueError,
            "gamma must be None for kernel='linear'",
        ),
        (
            {"kernel": "precomputed", "gamma": 1.0},
            np.eye(3),
            ValueError,
            "gamma must be None for kernel='pre",
        ),
        ({"gamma": "auto"}, X_BAD, TypeError, "gamma must be a number or None|gamma must be a"),
        ({"kernel": "chi2"}, -X_BAD - 1, ValueError, "X contains negative values|[Nn]egative"),
    ],
)
@pytest.mark.parametrize("estimator", [KernelDPMeans, KernelHDPMeans])
def test_bad_input(estimator, parameters, X, error, message):
    names = ("lam_local", "lam_global") if estimator is KernelHDPMeans else ("lam",)
    model = estimator(**dict.fromkeys(names, 1.0)).set_params(**parameters)
    assert_refuses(model, lambda m: m.fit(X), error, message)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (KernelDPMeans(lam=0.0), "lam must be > 0, or 0 if max_clusters is given, got 0.0"),
        (KernelDPMeans(algorithm="delayed"), "algorithm must be one of 'serial', 'coll"),
        (KernelDPMeans(init="random"), "init must be one of 'mean', got 'random'"),
        (KernelDPMeans(init=[0, 1]), r"init must have shape \(6,\), got \(2,\)"),
        (KernelDPMeans(init=np.zeros(6)), "init must be 'mean' or integer labels, got float"),
        (KernelDPMeans(init=[0, 1, 2, 0, 1, 2], max_clusters=2), "at most max_clusters=2"),
        (KernelHDPMeans(lam_local="points"), "lam_local must .* one of 'farthest-first', got"),
        (KernelHDPMeans(lam_global="auto"), "lam_global must .* one of 'points', 'farthest-f"),
        (KernelHDPMeans(init="points"), "init must be one of 'auto', 'mean', 'merge'"),
    ],
)
def test_bad_parameters(model, message):
    assert_refuses(model, lambda m: m.fit(X_BAD), ValueError, message)


@seeds(12)
def test_rows_without_weight_where_sweeps_end_early(seed):
    """They get the label of predict among the means that are left."""
    rng = np.random.default_rng([seed, 8])
    X = rng.random((80, 2))
    weights = (rng.random(80) < 0.4) * rng.random(80)
    lam = float(rng.choice([0.003, 0.01, 0.03]))
    options = {"max_iter": 1, "max_clusters": 12}
    model = quiet(KernelDPMeans(lam=lam, kernel="linear", **options), X, sample_weight=weights)
    plain = quiet(DPMeans(lam=lam, **options), X, sample_weight=weights)
    assert np.array_equal(model.labels_, plain.labels_)
    assert np.array_equal(model.predict(X), model.labels_)
    np.testing.assert_allclose(model.objective_path_, plain.objective_path_, rtol=1e-9)
    assert (model.center_labels_[weights == 0] == -1).all()


@pytest.mark.parametrize("algorithm", ["serial", "collapsed"])
def test_the_matrix_is_free_after_a_fit(algorithm, monkeypatch):
    """The matrix is free at once, not only after garbage collection."""
    alive = []
    made = Gram.__init__

    def remembered(self, *arguments):
        made(self, *arguments)
        alive.append(weakref.ref(self))

    monkeypatch.setattr(Gram, "__init__", remembered)
    X = np.random.default_rng(0).normal(size=(60, 2))
    gc.disable()
    try:
        KernelDPMeans(algorithm=algorithm, n_init=2).fit(X)
        KernelHDPMeans().fit(X, groups=np.arange(60) // 20)
        SpectralDPMeans(lam=2.0, max_memory=1e4).fit(X)
        assert len(alive) >= 2 and all(one() is None for one in alive)
    finally:
        gc.enable()
