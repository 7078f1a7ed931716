"""n_clusters with lam="auto": exactly so many clusters; what goes with it, and guess."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from helpers import assert_refuses
from hypothesis import given
from hypothesis import strategies as st
from models import ESTIMATORS
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import kneighbors_graph

import smallvar
from smallvar import (
    BregmanDPMeans,
    DPMeans,
    HDPMeans,
    MiniBatchDPMeans,
    RobustDPMeans,
    SegmentMeans,
    SphericalDPMeans,
    cluster_path,
)
from smallvar._centers.starts import Start
from smallvar._selection import path as path_module

rng = np.random.default_rng(0)
GRID = np.stack(np.meshgrid(*2 * [np.arange(13.0)]), axis=2).reshape(-1, 2)  # 169 rows
CLOUD = rng.normal(size=(700, 3)) + 8.0 * rng.integers(3, size=(700, 1))
ROWS = {
    "cloud": CLOUD,
    "float32": CLOUD.astype(np.float32),
    "grid": GRID,
    "grid times 30": np.repeat(GRID, 30, axis=0),  # 5,070 rows, 169 of them distinct
    "repeated": rng.integers(0, 6, size=(4000, 3)).astype(float),  # about 216 distinct
    "one heavy place": np.vstack([np.zeros((9000, 2)), rng.normal(size=(170, 2))]),
    "far and near": np.vstack([CLOUD, 1e6 + 1e-3 * CLOUD]),
    "few": CLOUD[:3],
    "one row": CLOUD[:1],
    "equal": np.full((40, 2), 1.0 / 3.0),
}
HAVE_NUMBER = [
    DPMeans,
    BregmanDPMeans,
    SphericalDPMeans,
    MiniBatchDPMeans,
]
# further estimators with an exact number, which need more than rows or may find it elsewhere
HAVE_NUMBER_TOO = [
    smallvar.HDPMeans,
    smallvar.MahalanobisMeans,
    smallvar.MixedDPMeans,
    smallvar.PenalizedCut,
    smallvar.RobustDPMeans,
    smallvar.SegmentMeans,
    smallvar.ShapeMeans,
    smallvar.TopicMeans,
]
DEFAULT_GUESSES = {smallvar.SpectralDPMeans: None}
HAVE_GUESS = [
    *HAVE_NUMBER,
    smallvar.DynamicMeans,
    smallvar.KernelDPMeans,
    smallvar.SpectralDPMeans,
]
MODELS = {
    "DPMeans": DPMeans(random_state=0),
    "collapsed": DPMeans(algorithm="collapsed", random_state=0),
    "kl": BregmanDPMeans(divergence="kl", random_state=0),
    "kl, collapsed": BregmanDPMeans(divergence="kl", algorithm="collapsed", random_state=0),
    "itakura_saito": BregmanDPMeans(divergence="itakura_saito", random_state=0),
    "squared_euclidean": BregmanDPMeans(random_state=0),
    "spherical": SphericalDPMeans(random_state=0),
    "batches": MiniBatchDPMeans(random_state=0),
    "small batches": MiniBatchDPMeans(batch_size=50, max_iter=5, random_state=0),
}


def n_distinct(X, weight=None):
    return len(np.unique(X if weight is None else X[weight > 0], axis=0))


def numbers(most):
    return sorted({k for k in (1, 2, 5, 40, 150, most) if k <= most})


def check_exact_labels(model, k):
    """So many clusters, each with a row, and none besides but noise."""
    assert model.n_clusters_ == k == len(model.cluster_centers_)
    assert np.unique(model.labels_[model.labels_ >= 0]).tolist() == [*range(k)]
    assert model.lam_ > 0.0 if hasattr(model, "lam_") else model.lam_global_ > 0.0


def check_exact(model, k, weight=None):
    """So many clusters, each with a row of positive weight, and the path says the same number."""
    assert model.n_clusters_ == k == len(model.cluster_centers_) == model.path_.best
    used = model.labels_ if weight is None else model.labels_[weight > 0]
    assert np.array_equal(np.unique(used), np.arange(k))
    assert k in model.path_.counts and model.path_.centers(k).shape[0] == k
    assert model.lam_ > 0 and np.isfinite(model.lam_)
    np.testing.assert_allclose(
        model.objective_, model.inertia_ + k * model.lam_, rtol=1e-12, atol=1e-300
    )


@pytest.mark.parametrize("name", ROWS)
def test_exactly_k(name):
    """Also of equal rows, and as many as are distinct; one more is refused."""
    X = ROWS[name]
    most = n_distinct(X)
    for k in numbers(most):
        model = DPMeans(n_clusters=k, random_state=0).fit(X)
        check_exact(model, k)
        path = model.path_
        assert (np.diff(path.counts) > 0).all()
        near = path.counts[(path.counts <= min(k + 2, most)) & (path.counts >= k - 2)]
        if most < 4 * k:
            continue  # clusters of single rows are dropped on the way
        assert near.tolist() == [*range(max(1, k - 2), min(k + 2, most) + 1)]
    assert model.inertia_ == pytest.approx(0.0, abs=1e-12 * (1.0 + float(np.square(X).sum())))
    message = (
        f"n_clusters must be <= {most}, the number of distinct rows, got n_clusters={most + 1}"
    )
    with pytest.raises(ValueError, match=message):
        DPMeans(n_clusters=most + 1, random_state=0).fit(X)


@pytest.mark.parametrize("name", MODELS)
def test_exactly_k_in_all_estimators(name):
    X = 1.0 + np.abs(CLOUD[:300])
    X = np.vstack([X, X[:100]])
    weight = np.tile([1.0, 0.0, 2.5, 0.01], 100)
    most = n_distinct(X, weight)
    for k in numbers(most):
        model = clone(MODELS[name]).set_params(n_clusters=k)
        check_exact(model.fit(X), k)
        check_exact(model.fit(X, sample_weight=weight), k, weight)
    with pytest.raises(ValueError, match=f"n_clusters must be <= {most}, the number of distinct"):
        model.set_params(n_clusters=most + 1).fit(X, sample_weight=weight)


def test_bits_of_repeated_calls_and_threads():
    models = [DPMeans(n_clusters=9, random_state=0, n_threads=t).fit(CLOUD) for t in (1, 2, 1)]
    for model in models[1:]:
        assert np.array_equal(model.labels_, models[0].labels_)
        assert np.array_equal(model.cluster_centers_, models[0].cluster_centers_)
        assert model.lam_ == models[0].lam_


@pytest.mark.parametrize("k", [1, 5, 40])
def test_sparse_rows_are_those_of_dense_ones(k):
    X = np.where(rng.random((600, 9)) < 0.3, rng.normal(size=(600, 9)), 0.0)
    for model in (DPMeans(random_state=0), SphericalDPMeans(random_state=0)):
        rows = X[X.any(axis=1)]
        dense = clone(model).set_params(n_clusters=k).fit(rows)
        sparse = clone(dense).fit(csr_array(rows))
        check_exact(sparse, k)
        assert np.array_equal(sparse.labels_, dense.labels_)


def test_sparse_rows_that_are_too_many_as_dense_ones():
    n, d = 50_000, 3000
    X = csr_array((np.arange(1.0, n + 1.0), (np.arange(n), np.arange(n) % d)), shape=(n, d))
    with pytest.raises(ValueError, match="n_clusters must be smaller .* got n_clusters=12000"):
        DPMeans(n_clusters=12_000, random_state=0).fit(X)


def test_no_worse_than_k_means():
    """The path is a good start of k-means: on a cloud of several groups, and cut much finer."""
    from sklearn.cluster import KMeans

    for k in (2, 3, 12, 60):
        ours = DPMeans(n_clusters=k, random_state=0).fit(CLOUD).inertia_
        theirs = KMeans(k, n_init=1, random_state=0).fit(CLOUD).inertia_
        assert ours <= 1.03 * theirs


def test_the_number_that_the_data_choose():
    """Asked for, it is the same clustering; the penalty is one for which it is best."""
    auto = DPMeans(random_state=0).fit(CLOUD)
    asked = DPMeans(n_clusters=auto.n_clusters_, random_state=0).fit(CLOUD)
    assert adjusted_rand_score(auto.labels_, asked.labels_) == 1.0
    for k in (2, 3, 4, 20):
        model = DPMeans(n_clusters=k, random_state=0).fit(CLOUD)
        path, i = model.path_, int(np.searchsorted(model.path_.counts, k))
        if path.lam_low[i] < path.lam_high[i]:
            assert path.at(model.lam_) == k
        assert model.lam_ == path.lam


def test_long_clusters():
    """The descent in the metric of the clusters is taken for the number asked for, too."""
    parts = np.random.default_rng(2).normal(size=(5, 150, 3)) * [5.0, 0.5, 0.5]
    X = (parts + 5.0 * np.arange(5)[:, None, None] * [0, 1, 0]).reshape(-1, 3)
    path = DPMeans(n_clusters=6, metric="auto", random_state=0).fit(X).path_
    assert path.best == 6 and path.metric is not None
    assert adjusted_rand_score(np.repeat(np.arange(5), 150), path.labels(5)) > 0.95


@pytest.mark.parametrize("k", [1, 2, 7, 30])
def test_from_given_centers(k):
    """Fewer or more of them than clusters are asked for."""
    for init in (CLOUD[:1], CLOUD[:3], np.vstack([CLOUD[:3]] * 5), CLOUD[:60]):
        check_exact(DPMeans(n_clusters=k, init=init, random_state=0).fit(CLOUD), k)


@pytest.mark.parametrize("options", [{"max_iter": 1}, {"tol": 0.5}, {"n_init": 3}])
@pytest.mark.parametrize("algorithm", ["serial", "collapsed"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_sweeps_that_end_early(algorithm, options):
    for k in (2, 40, 169):
        model = DPMeans(n_clusters=k, algorithm=algorithm, random_state=0, **options).fit(GRID)
        check_exact(model, k)


@pytest.mark.parametrize("algorithm", ["serial", "collapsed"])
@pytest.mark.parametrize("max_iter", [1, 2, 300])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_clusters_lost_in_the_last_sweeps_are_replaced(algorithm, max_iter, monkeypatch):
    """Centers of a path (as of a sample) that attract no row, or lie at the same place."""
    found = cluster_path(CLOUD, random_state=0)
    k, near = found.best + 4, found.centers(found.best)

    def centers(self, number):
        return np.vstack([near, near[:2], near[:2] + 1e9])

    monkeypatch.setattr(path_module.ClusterPath, "centers", centers)
    X = np.vstack([CLOUD, CLOUD[:50]])
    weight = np.where(np.arange(len(X)) % 7 == 0, 0.0, 1.0)
    for w in (None, weight):
        model = DPMeans(n_clusters=k, algorithm=algorithm, max_iter=max_iter, random_state=0)
        model.fit(X, sample_weight=w)
        check_exact(model, k, w)
        steps = np.diff(model.objective_path_)
        assert (steps <= 1e-12 * model.objective_path_[0]).all()
    batches = MiniBatchDPMeans(n_clusters=k, random_state=0).fit(X, sample_weight=weight)
    check_exact(batches, k, weight)
    assert batches.cluster_weights_.shape == (k,) and (batches.cluster_weights_ > 0).all()
    assert batches.partial_fit(CLOUD).n_clusters_ == k


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_clusters_lost_in_the_last_collapsed_sweep_are_replaced(monkeypatch):
    """Here every row that is alone in its cluster joins another."""
    monkeypatch.setattr(Start, "step", lambda self: self.sweep.collapse(1e30, self.cap))
    model = DPMeans(n_clusters=150, algorithm="collapsed", max_iter=1, random_state=0)
    check_exact(model.fit(CLOUD[:160]), 150)


@pytest.mark.parametrize("estimator", [DPMeans, MiniBatchDPMeans])
def test_rows_that_differ_by_rounding_only(estimator):
    """Exactly so many clusters, or an error that says how many there can be."""
    X = 1e9 + np.spacing(1e9) * np.arange(6.0)[:, None]
    for k in range(1, 7):
        model = estimator(n_clusters=k, random_state=0)
        if k == 1:
            check_exact(model.fit(X), 1)
            continue
        with pytest.raises(ValueError, match=r"n_clusters must be <= 1, .* \(up to rounding\)"):
            model.fit(X)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 60),
    st.integers(1, 3),
    st.integers(1, 8),
    st.booleans(),
)
def test_any_data(seed, n, d, places, weighted):
    """A few places in a few columns: every number that there can be."""
    random = np.random.default_rng(seed)
    X = random.integers(0, places, size=(n, d)) * random.choice([1.0, 1 / 3, 1e-7])
    weight = random.integers(0, 3, size=n) * 1.0 if weighted else None
    if weighted and not weight.any():
        weight[0] = 1.0
    most = n_distinct(X, weight)
    k = int(random.integers(1, most + 1))
    algorithm = random.choice(["serial", "collapsed"]).item()
    model = DPMeans(n_clusters=k, algorithm=algorithm, random_state=0)
    check_exact(model.fit(X, sample_weight=weight), k, weight)
    with pytest.raises(ValueError, match=f"n_clusters must be <= {most}, the number of distinct"):
        model.set_params(n_clusters=most + 1).fit(X, sample_weight=weight)


@pytest.mark.parametrize("k", [np.uint8(200), np.int16(200), 10**18])
def test_types_of_integers(k):
    model = DPMeans(n_clusters=k, random_state=0)
    if k == 200:
        check_exact(model.fit(CLOUD), 200)
    else:
        with pytest.raises(
            ValueError, match=r"n_clusters must be <= 700, .* got n_clusters=10{18}$"
        ):
            model.fit(CLOUD)


def test_lam_0_with_a_cap_is_k_means_as_before():
    model = DPMeans(lam=0, max_clusters=7).fit(CLOUD)
    assert model.n_clusters_ == 7 and model.lam_ == 0.0 and not hasattr(model, "path_")


# Batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [MiniBatchDPMeans(random_state=0), SphericalDPMeans()])
def test_no_row_of_a_later_batch_opens_a_cluster(model):
    rows = np.abs(CLOUD) + 1e-3
    model = clone(model).set_params(n_clusters=4, random_state=0).partial_fit(rows)
    centers = model.cluster_centers_.copy()
    assert len(centers) == 4
    model.partial_fit(np.eye(3) * 1e4)
    assert model.n_clusters_ == 4 and not np.array_equal(model.cluster_centers_, centers)
    with pytest.raises(ValueError, match="n_clusters must stay what it was at the first batch, 4"):
        model.set_params(n_clusters=5).partial_fit(rows)
    with pytest.raises(ValueError, match="n_clusters must be <= 2, the number of distinct rows, g"):
        clone(model).partial_fit(np.vstack([rows[:2], rows[:2]]))
    fitted = clone(model).fit(rows)
    assert fitted.partial_fit(np.eye(3) * 1e4).n_clusters_ == 5


# What n_clusters and guess go with -----------------------------------------------------------


def positive():
    return 1.0 + np.abs(CLOUD[:60])


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.__name__)
def test_who_has_n_clusters_and_guess(estimator):
    defaults = {
        name: p.default
        for name, p in inspect.signature(estimator).parameters.items()
        if name in ("n_clusters", "guess")
    }
    assert defaults == {
        **({"n_clusters": None} if estimator in HAVE_NUMBER + HAVE_NUMBER_TOO else {}),
        # None: SpectralDPMeans(lam="spectrum") finds the number
        **({"guess": DEFAULT_GUESSES.get(estimator, 8)} if estimator in HAVE_GUESS else {}),
    }


@pytest.mark.parametrize("estimator", HAVE_NUMBER, ids=lambda e: e.__name__)
def test_n_clusters_needs_a_number_that_the_data_choose(estimator):
    X = positive()
    for options, words in (
        ({"lam": "farthest-first", "n_clusters": 3}, ("n_clusters", "got 3: use guess")),
        ({"lam": 0.3, "n_clusters": 3}, ("lam is a number", "n_clusters=3 and lam=0.3")),
        ({"lam": 0, "max_clusters": 3, "n_clusters": 3}, ("lam is a number", "lam=0")),
        ({"max_clusters": 3, "n_clusters": 4}, ("<= max_clusters=3", "n_clusters=4")),
    ):
        assert_refuses(estimator(**options), lambda m: m.fit(X), ValueError, *words)
    assert estimator(n_clusters=3, max_clusters=3, random_state=0).fit(X).n_clusters_ == 3


@pytest.mark.parametrize("estimator", [MiniBatchDPMeans, SphericalDPMeans])
def test_none_and_auto_are_the_same_in_batches(estimator):
    """Also where the first batch has a single cluster, and the penalty is chosen again."""
    single = 1.0 + 0.01 * np.abs(CLOUD[:100])
    two = positive() * np.repeat([[1.0, 1.0, 1.0], [-1.0, 1.0, 1.0]], 30, axis=0)
    models = [estimator(n_clusters=n, random_state=0) for n in (None, "auto")]
    for model in models:
        for batch in (single, two, two[::-1]):
            model.partial_fit(batch)
    assert models[0].lam_ == models[1].lam_
    assert np.array_equal(models[0].cluster_centers_, models[1].cluster_centers_)
    assert models[0].n_clusters_ > 1


@pytest.mark.parametrize("name", [e.__name__ for e in (DPMeans, BregmanDPMeans, *HAVE_NUMBER_TOO)])
def test_none_and_auto_are_the_same(name):
    """Two words for a number that the data choose, in every estimator that can be given one."""
    model = getattr(smallvar, name)(random_state=0) if name != "SegmentMeans" else SegmentMeans()
    X = np.abs(CLOUD) if name == "TopicMeans" else CLOUD
    if name == "PenalizedCut":
        links = kneighbors_graph(CLOUD, 10)
        X = links + links.T
    none, auto = (clone(model).set_params(n_clusters=n).fit(X) for n in (None, "auto"))
    assert np.array_equal(none.labels_, auto.labels_)
    assert getattr(none, "objective_", None) == getattr(auto, "objective_", None)
    refused = clone(model).set_params(n_clusters="three")
    words = "n_clusters must be an integer, 'auto' or None, got 'three'"
    assert_refuses(refused, lambda m: m.fit(X), TypeError, words)


@pytest.mark.parametrize("k", [1, 2, 4, 7, 40])
def test_exact_number_beside_noise(k):
    """Rows far away are no clusters of the number asked for, however far."""
    far = np.array([[80.0, 0.0, 0.0], [-70.0, 90.0, 0.0], [0.0, -1e5, 10.0]])
    model = RobustDPMeans(n_clusters=k, random_state=0).fit(np.vstack([CLOUD, far]))
    check_exact_labels(model, k)
    assert (model.labels_[-3:] == -1).all()
    cost = model.inertia_ + k * model.lam_ + model.price_ * model.noise_weight_
    assert model.objective_ == pytest.approx(cost, rel=1e-12)
    if k == 3:
        assert adjusted_rand_score(DPMeans().fit(CLOUD).labels_, model.labels_[:-3]) > 0.9


def test_exact_number_of_rows_beyond_the_price():
    """A given price that hardly any row is within: the number is had, or refused."""
    rows = 10.0 * np.arange(12.0).reshape(-1, 1)
    check_exact_labels(RobustDPMeans(n_clusters=12, price=0.1, random_state=0).fit(rows), 12)
    for k in range(1, 12):  # the mean of two rows is within the price of neither
        check_exact_labels(RobustDPMeans(n_clusters=k, price=0.1, random_state=0).fit(rows), k)
    model = RobustDPMeans(n_clusters=13, price=0.1, random_state=0)
    words = "n_clusters must be <= 12, the number of distinct rows, got n_clusters=13"
    assert_refuses(model, lambda m: m.fit(rows), ValueError, words)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 12, 60])
def test_exact_number_of_shared_clusters(k):
    groups = np.arange(len(CLOUD)) % 7
    model = HDPMeans(n_clusters=k, random_state=0).fit(CLOUD, groups=groups)
    check_exact_labels(model, k)
    assert (np.diff(model.objective_path_) <= 1e-9 * model.objective_path_[0]).all()
    used = np.unique(np.concatenate(model.local_clusters_))
    assert used.tolist() == [*range(k)]


def test_exact_number_of_shared_clusters_that_sets_do_not_keep():
    """At a given local penalty data sets may give up all local clusters beyond some number."""
    groups = np.arange(len(CLOUD)) % 7
    model = HDPMeans(n_clusters=30, lam_local=1e4, random_state=0)
    assert_refuses(
        model,
        lambda m: m.fit(CLOUD, groups=groups),
        ValueError,
        *("n_clusters=30 global clusters are not found: ", "that save lam_local=10000"),
    )


@pytest.mark.parametrize("k", [1, 2, 3, 4, 9, 60])
def test_exact_number_of_states(k):
    """Also more than the noise supports: then a switch costs less."""
    levels = np.repeat([0.0, 3.0, 0.0, 6.0, 3.0, 0.0], 50)
    X = (levels + np.random.default_rng(0).normal(size=300)).reshape(-1, 1)
    model = SegmentMeans(n_clusters=k).fit(X)
    check_exact_labels(model, k)
    cost = model.inertia_ + k * model.lam_ + model.n_switches_ * model.lam_switch_
    assert model.objective_ == pytest.approx(cost, rel=1e-12)
    if k == 3:
        free = SegmentMeans().fit(X)
        assert np.array_equal(free.labels_, model.labels_)
    weight = np.tile([1.0, 0.0, 2.0], 100)
    check_exact_labels(model.fit(X, sample_weight=weight), k)


def test_states_that_do_not_save_their_switches():
    X = np.random.default_rng(0).normal(size=(60, 1))
    model = SegmentMeans(n_clusters=5, lam_switch=100.0)
    words = "n_clusters=5 states are not found: beside 1 another one would save no more squared"
    assert_refuses(model, lambda m: m.fit(X), ValueError, words)
    check_exact_labels(model.set_params(lam_switch=0.1).fit(X), 5)
    check_exact_labels(model.set_params(lam_switch="auto", n_clusters=60).fit(X), 60)
    model.set_params(n_clusters=61)
    words = "n_clusters=61 states are not found: beside 60 another one would save no more"
    assert_refuses(model, lambda m: m.fit(X), ValueError, words)


@pytest.mark.parametrize(
    ("estimator", "lam"),
    [(HDPMeans, "lam_global"), (RobustDPMeans, "lam"), (SegmentMeans, "lam")],
)
def test_an_exact_number_takes_no_penalty(estimator, lam):
    model = estimator(**{lam: 3.0, "n_clusters": 2})
    words = f"n_clusters must be None where {lam} is a number", f"n_clusters=2 and {lam}=3.0"
    assert_refuses(model, lambda m: m.fit(CLOUD), ValueError, *words)


def test_n_clusters_and_min_cosine():
    model = SphericalDPMeans(min_cosine=0.5, n_clusters=3)
    words = "n_clusters must be None where min_cosine is a number", "min_cosine=0.5"
    assert_refuses(model, lambda m: m.fit(positive()), ValueError, *words)
    assert_refuses(model, lambda m: m.partial_fit(positive()), ValueError, *words)


@pytest.mark.parametrize("estimator", HAVE_GUESS, ids=lambda e: e.__name__)
def test_guess_is_for_farthest_first(estimator):
    """Cut to the number of rows where it is the default; of no account for a number."""
    X = positive()
    usual, other = (
        estimator(lam="farthest-first", random_state=0, **options).fit(X).lam_
        for options in ({}, {"guess": 3})
    )
    assert usual < other
    five = X[:5]
    model = estimator(lam="farthest-first", random_state=0)
    assert model.fit(five).lam_ == clone(model).set_params(guess=5).fit(five).lam_
    with pytest.raises(ValueError, match="guess must be <= n_samples=5, got guess=6"):
        model.set_params(guess=6).fit(five)
    one, two = (estimator(lam=0.4, guess=g, random_state=0).fit(X).labels_ for g in (2, 300))
    assert np.array_equal(one, two)


# Dask -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["DPMeans", "SphericalDPMeans", "MiniBatchDPMeans"])
def test_on_dask(name):
    pytest.importorskip("distributed")
    import dask.array as da

    import smallvar.dask

    X = np.abs(CLOUD) + 1e-3
    estimator = getattr(smallvar, name)
    chunks = da.from_array(X, chunks=(250, 3))
    for k in (2, 9):
        model = smallvar.dask.fit(estimator(n_clusters=k, random_state=0), chunks)
        assert model.n_clusters_ == k == model.path_.best
        if name != "MiniBatchDPMeans":
            single = estimator(n_clusters=k, random_state=0).fit(X)
            assert np.array_equal(model.labels_.compute(), single.labels_)
            assert np.array_equal(model.cluster_centers_, single.cluster_centers_)
    for options, words in (
        ({"lam": 0.3, "n_clusters": 3}, "lam is a number"),
        ({"max_clusters": 3, "n_clusters": 4}, "n_clusters must be <= max_clusters=3"),
        ({"n_clusters": 701}, "n_clusters must be <= (700|250), the number of distinct rows"),
    ):
        with pytest.raises(ValueError, match=words):
            smallvar.dask.fit(estimator(**options), chunks)
    if name == "MiniBatchDPMeans":
        with pytest.raises(ValueError, match="use guess"):
            smallvar.dask.fit(estimator(lam="farthest-first", n_clusters=3), chunks)
        few, many = (
            smallvar.dask.fit(estimator(lam="farthest-first", guess=guess), chunks)
            for guess in (8, 20)
        )
        assert many.lam_ < few.lam_


def test_clusters_lost_on_dask_are_replaced(monkeypatch):
    pytest.importorskip("distributed")
    import dask.array as da

    import smallvar.dask

    def centers(self, k):
        return np.vstack([CLOUD[:2], CLOUD[:1], CLOUD[:1] + 1e9])

    monkeypatch.setattr(path_module.ClusterPath, "centers", centers)
    chunks = da.from_array(CLOUD, chunks=(250, 3))
    model = smallvar.dask.fit(DPMeans(n_clusters=4, random_state=0), chunks)
    single = DPMeans(n_clusters=4, random_state=0).fit(CLOUD)
    assert model.n_clusters_ == single.n_clusters_ == 4
    assert np.array_equal(model.labels_.compute(), single.labels_)


def test_defaults_of_starts():
    """The guide has the default of ``n_init`` of every estimator, and which have none."""
    page = Path(__file__).parents[1] / "docs" / "guide" / "starts.rst"
    if not page.is_file():
        pytest.skip("the source tree is not at hand")
    text = page.read_text(encoding="utf-8")
    table = text[text.index("starts differ in") : text.index("**1** where")]
    row = r"\* - ((?:`\w+`,?\s+)+)- .+\n +- (\S+)\n"
    listed = {
        name: default.strip('"')
        for names, default in re.findall(row, table)
        for name in re.findall(r"\w+", names)
    }
    defaults = {e.__name__: inspect.signature(e).parameters.get("n_init") for e in ESTIMATORS}
    assert listed == {name: str(p.default) if p else "none" for name, p in defaults.items()}
    seedless = [e for e in ESTIMATORS if "random_state" not in inspect.signature(e).parameters]
    assert seedless == [SegmentMeans]
