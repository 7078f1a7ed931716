"""Links between rows in DPMeans."""

import pickle

import numpy as np
import pytest
import twins.links
from helpers import all_partitions, assert_refuses, never_rises, seeds
from problems import random_problem, tied_problem
from scipy.sparse import csr_array
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from smallvar import BregmanDPMeans, DPMeans, KernelDPMeans, SphericalDPMeans

FAMILIES = "plain", "tiny", "weights", "zero weights", "float32", "cap", "singletons", "far"
LINE = np.array([[0.0], [1.0], [10.0], [11.0]])
pytestmark = pytest.mark.filterwarnings("ignore:one cluster is left")


def linked(rng, n):
    """Pairs of n rows, linked by four random classes."""
    z = rng.integers(4, size=n)
    ends = rng.integers(n, size=(int(rng.integers(1, max(2, n // 3))), 2))
    ends = ends[(ends[:, 0] != ends[:, 1]) | (z[ends[:, 0]] == 0)]
    same = z[ends[:, 0]] == z[ends[:, 1]]
    return {"must_link": ends[same], "cannot_link": ends[~same]}


def counted(pairs, weights=None):
    """The must-links and cannot-links that count, as two sets of pairs."""
    return (
        {tuple(sorted(e)) for e in ends.tolist()
         if e[0] != e[1] and (weights is None or weights[e].all())} for ends in pairs.values()
    )  # fmt: skip


@seeds(200)
def test_labels_are_those_of_the_twin(seed):
    rng, tied = np.random.default_rng(seed), seed % 9 == 8
    p = tied_problem(seed, 120) if tied else random_problem(FAMILIES[seed % 9], seed, n_max=120)
    lam = p.lam or 1e-6 * max(float(np.square(p.X).sum()), 1e-6)
    price = [np.inf, lam * rng.gamma(1.0), np.inf, 0.1 * lam][seed // 9 % 4]
    pairs, X, w = linked(rng, len(p.X)), p.X, p.weights
    cap = None if p.max_clusters is None else max(4, p.max_clusters)
    options = {"lam": lam, "link_penalty": price, "max_clusters": cap}
    sets = [list(links) for links in counted(pairs)]
    model = DPMeans(**options)
    twin = twins.links.serial(X, lam, *sets, price, weights=w, cap=cap or np.inf)
    if not np.isfinite(twin.objective):
        with pytest.raises(ValueError, match="without a violated link was found"):
            model.fit(X, sample_weight=w, **pairs)
        return
    model.fit(X, sample_weight=w, **pairs)
    assert never_rises(model.objective_path_)
    np.testing.assert_allclose(model.objective_, twin.objective, rtol=1e-9)
    if not tied:
        assert np.array_equal(model.labels_, twin.labels)
        assert model.n_iter_ == twin.n_iter
    if sets[0] or sets[1]:
        bad = twins.links.n_violated(model.labels_, *counted(pairs, w))
        assert getattr(model, "n_violated_", 0) == bad


def test_tiny_problems_against_all_labelings():
    reached = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X, lam, price, best = rng.normal(size=(6, 2)), 1.5, [np.inf, 0.7][seed % 2], np.inf
        pairs = linked(rng, 6)
        sets = [*counted(pairs)]
        for z in map(np.array, all_partitions(6)):
            error = sum(np.square(X[z == c] - X[z == c].mean(0)).sum() for c in set(z.tolist()))
            bad = twins.links.n_violated(z, *sets)
            best = min(best, error + lam * len(set(z.tolist())) + (price * bad if bad else 0))
        model = DPMeans(lam=lam, link_penalty=price, n_init=5, random_state=0).fit(X, **pairs)
        assert model.objective_ > best - 1e-9
        reached += model.objective_ < best + 1e-9
    assert reached >= 20


def test_links_decide():
    """Two pairs of near rows: links part them, join them, or are violated where that costs less."""
    model = DPMeans(lam=20.0)
    assert model.fit_predict(LINE, cannot_link=[[0, 1]]).tolist() == [1, 2, 0, 0]
    assert model.fit_predict(LINE, must_link=[[1, 2]]).tolist() == [1, 0, 0, 2]
    model.set_params(link_penalty=3.0).fit(LINE, cannot_link=[[0, 1], [1, 0]])
    assert model.n_violated_ == 1
    assert model.objective_ == 1.0 + 2 * 20.0 + 3.0


@pytest.mark.parametrize("none", [{"must_link": [], "cannot_link": []}, {"must_link": [[5, 5]]}])
@pytest.mark.parametrize("model", [DPMeans(random_state=0), DPMeans(lam=3.0)])
def test_no_links_are_the_same_bits(model, none):
    X = np.random.default_rng(0).normal(size=(200, 3))
    model.fit(X, cannot_link=[[0, 1]])
    before = [pickle.dumps(vars(model.fit(X))), pickle.dumps(vars(model.fit(X, **none)))]
    assert before[0] == before[1]


@pytest.mark.filterwarnings("ignore:.* did not converge")
@pytest.mark.parametrize("price", [np.inf, 1.0])
@pytest.mark.parametrize("options", [{}, {"n_clusters": 3}, {"lam": 9.0, "n_init": 3}])
def test_threads_sparse_rows_and_rows_of_weight_zero(price, options):
    X, y = load_iris(return_X_y=True)
    ends = np.random.default_rng(1).permutation(150)[:60].reshape(-1, 2)
    same = y[ends[:, 0]] == y[ends[:, 1]]
    pairs = {"must_link": ends[same], "cannot_link": ends[~same]}
    options = {"link_penalty": price, "random_state": 0, **options}
    model = DPMeans(n_threads=1, **options).fit(X, **pairs)
    assert model.n_clusters_ == options.get("n_clusters", model.n_clusters_)
    assert never_rises(model.objective_path_)
    assert model.n_violated_ == twins.links.n_violated(model.labels_, *counted(pairs))
    two = DPMeans(n_threads=2, **options).fit(X, **pairs)
    for name in ("labels_", "cluster_centers_", "objective_path_"):
        assert getattr(two, name).tobytes() == getattr(model, name).tobytes()
    assert np.array_equal(DPMeans(**options).fit(csr_array(X), **pairs).labels_, model.labels_)
    if "n_init" not in options:  # other orders
        pairs["must_link"] = [*pairs["must_link"], [150, 3], [150, 4]]
        idle = DPMeans(max_iter=1 + 300 * (price == 1.0), **options)
        weight = np.append(np.full(150, 2.0), np.zeros(5))
        idle.fit(np.vstack([X, X[:5]]), sample_weight=weight, **pairs)
        assert np.array_equal(idle.predict(X[:5]), idle.labels_[150:])


def test_rows_change_sides_together():
    """Neither of two rows that exclude each other is nearer to the center it can move to alone."""
    X = np.array([[0.0], [0.0], [0.0], [10.0], [10.0], [10.0], [6.0], [4.0]])
    model = DPMeans(lam=500.0, init=[[0.0], [10.0]], max_clusters=2)
    labels = model.fit_predict(X, cannot_link=[[6, 7]])
    assert labels.tolist() == [0, 0, 0, 1, 1, 1, 1, 0]


def test_errors_name_what_is_impossible():
    chain = {"must_link": [[0, 2], [2, 3]], "cannot_link": [[3, 0]]}
    triangle = {"cannot_link": [[0, 1], [1, 2], [2, 0]]}
    refused = [
        (chain, {}, ["(0, 3)", "0 - 2 - 3"]),
        (triangle, {}, ["max_clusters", "at least 3", "0, 1, 2"]),
        ({"must_link": [[0, 4]]}, {}, ["must_link", "< 4", "got 4"]),
        ({"must_link": [[0, -1]]}, {}, ["must_link", ">= 0", "got -1"]),
        ({"must_link": [[0.0, 1.0]]}, {}, ["must_link", "integers", "float64"]),
        ({"cannot_link": [0, 1]}, {}, ["cannot_link", "(n_pairs, 2)", "(2,)"]),
        ({"cannot_link": [[1, 1]]}, {}, ["cannot_link", "different", "(1, 1)"]),
        ({"must_link": [[0, 1]]}, {"algorithm": "collapsed"}, ["algorithm", "'serial'"]),
        ({}, {"link_penalty": 0.0}, ["link_penalty", "> 0"]),
    ]
    for pairs, options, words in refused:
        model = DPMeans(max_clusters=2, **options)
        assert_refuses(model, lambda m, pairs=pairs: m.fit(LINE, **pairs), ValueError, *words)
    model = DPMeans(max_clusters=2, link_penalty=0.5, lam=1.0).fit(LINE, **triangle)
    assert model.n_violated_ == 1


def test_a_cycle_of_five_rows_in_two_clusters_is_not_found():
    """It needs three clusters, though no three rows exclude each other."""
    ring, X = [[i, (i + 1) % 5] for i in range(5)], np.arange(5.0)[:, None]
    links = {"cannot_link": ring}
    assert_refuses(DPMeans(n_clusters=2), lambda m: m.fit(X, **links), ValueError, "was found")
    assert DPMeans(n_clusters=3).fit(X, **links).n_clusters_ == 3
    assert_refuses(
        DPMeans(n_clusters=4), lambda m: m.fit(X, must_link=ring), ValueError, "at most 1"
    )


def test_metadata_routing_passes_links_on():
    with config_context(enable_metadata_routing=True):
        model = DPMeans(lam=20.0).set_fit_request(must_link=True)
        pipe = make_pipeline(FunctionTransformer(), model).fit(LINE, must_link=[[1, 2]])
        with pytest.raises(UnsetMetadataPassedError, match="cannot_link"):
            clone(pipe).fit(LINE, cannot_link=[[1, 2]])
    alone = clone(model).fit(LINE, must_link=[[1, 2]])
    assert np.array_equal(pipe[-1].labels_, alone.labels_)
    assert not np.array_equal(alone.labels_, clone(model).fit(LINE).labels_)


def test_other_estimators_take_no_links():
    for model in (BregmanDPMeans(lam=1.0), SphericalDPMeans(lam=1.0), KernelDPMeans(lam=1.0)):
        with pytest.raises(TypeError, match="must_link"):
            model.fit_predict(np.ones((4, 2)), must_link=[[0, 1]])
