"""Sweeps over clusters with covariances against plain loops; merge paths and starts."""

import numpy as np
import pytest
import twins.gaussians as twin
from helpers import seeds
from sklearn.metrics import adjusted_rand_score
from smallvar._sweeps.gaussians import (
    assign_gaussians,
    cluster_moments,
    gaussian_costs,
    inverse_roots,
    union_log_determinants,
    without_entry,
)
from smallvar._sweeps.pairs import PairTable
from smallvar._sweeps.parallel import guard_loops

from smallvar import MahalanobisMeans, UnclearNumberWarning, progress_callback
from smallvar._centers import gaussian_starts
from smallvar._core.config import openmp_enabled


def problem(rng, n, d, k):
    """Rows, and centers, roots and charges of clusters."""
    A = rng.normal(size=(k, d, d))
    covariances = A @ A.transpose(0, 2, 1) / d + 0.1 * np.eye(d)
    roots, logdet, _ = inverse_roots(covariances)
    centers = 4.0 * rng.normal(size=(k, d))
    X = centers[rng.integers(k, size=n)] + rng.normal(size=(n, d))
    return X, centers, roots, logdet + rng.gamma(1.0, size=k)


def assign(X, centers, roots, charges, changed=None, state=None, n_threads=1):
    """Labels, least costs, and bounds of the other costs."""
    n = len(X)
    state = (np.zeros(n, dtype=np.int32), np.empty(n), np.empty(n)) if state is None else state
    changed = np.ones(len(centers), dtype=bool) if changed is None else changed
    assign_gaussians(X, centers, roots, charges, changed.view(np.uint8), *state, n_threads)
    return state


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@seeds(24)
def test_cheapest_cluster_equals_twin(seed, dtype):
    """To the last bit; at first, and where some clusters have changed since."""
    rng = np.random.default_rng(seed)
    n, d, k = int(rng.integers(1, 300)), int(rng.integers(1, 12)), int(rng.integers(1, 9))
    X, *clusters = problem(rng, n, d, k)
    X, state, changed = X.astype(dtype), None, None
    if seed % 3 == 0:
        X = np.asfortranarray(X)
    for _ in range(6):
        state = label, least, second = assign(X, *clusters, changed, state)
        table = twin.costs(X, *clusters)
        assert gaussian_costs(X, *clusters).tobytes() == table.tobytes()
        np.testing.assert_array_equal(label, table.argmin(axis=1))
        np.testing.assert_array_equal(least, table.min(axis=1))
        table[np.arange(n), label] = np.inf
        assert (second <= table.min(axis=1)).all()
        _, *other = problem(rng, 1, d, k)
        changed = rng.random(k) < rng.choice([0.0, 0.2, 0.8])
        for ours, theirs in zip(clusters, other, strict=True):
            ours[changed] = theirs[changed] if seed % 2 else 0.9 * ours[changed]


def test_ties():
    """Of equal costs the lowest number, whichever clusters have changed."""
    rng = np.random.default_rng(0)
    X, centers, roots, charges = problem(rng, 500, 3, 2)
    clusters = [np.ascontiguousarray(a[[0, 1, 0, 1]]) for a in (centers, roots, charges)]
    first = assign(X, *clusters)[0].copy()
    assert set(first) == {0, 1}
    for changed in range(16):
        flags = np.array([changed >> k & 1 for k in range(4)], dtype=bool)
        state = assign(X, *clusters)
        assert (state[2] == state[1]).all()
        np.testing.assert_array_equal(assign(X, *clusters, flags, state)[0], first)


def test_costs_beyond_floats():
    """Infinite ones and NaN are never the least; -1 where there is no other."""
    X, centers, roots, charges = problem(np.random.default_rng(0), 40, 5, 3)
    roots[1] *= 1e200
    centers[1] += 1e200
    assert set(assign(X, centers, roots, charges)[0]) == {0, 2}
    label, least, _ = assign(X, centers[1:2], roots[1:2], charges[1:2])
    assert (label == -1).all()
    assert np.isinf(least).all()


def test_threads():
    """The same bits, chunks being many."""
    assert openmp_enabled()
    rng = np.random.default_rng(0)
    X, *clusters = problem(rng, 30_000, 6, 11)
    order, w = rng.permutation(len(X)), rng.gamma(1.0, size=len(X))
    wanted, found = np.ones(11, dtype=np.uint8), []
    guard_loops(False)
    try:
        for n_threads in (1, 2, 3):
            state = assign(X, *clusters, n_threads=n_threads)
            assert len(set(state[0])) == 11
            centers, scatter = clusters[0].copy(), np.empty((11, 6, 6))
            cluster_moments(X, w, order, state[0], wanted, centers, scatter, n_threads)
            found.append([a.tobytes() for a in (*state, centers, scatter)])
    finally:
        guard_loops(True)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("weighted", [False, True])
@seeds(12)
def test_moments_equal_twin(seed, weighted):
    """Of the clusters that are wanted, whatever the order of the rows; means of equal rows stay."""
    rng = np.random.default_rng(seed)
    n, d, k = int(rng.integers(12, 200)), int(rng.integers(1, 12)), 4
    X = np.round(rng.normal(size=(n, d)), 1) + 1e3
    w = rng.gamma(1.0, size=n) if weighted else np.ones(n)
    label = np.append(np.arange(k), rng.integers(k, size=n - k)).astype(np.int32)
    X[label == 1] = X[1]
    order, wanted = rng.permutation(n), np.array([1, 1, 0, 1], dtype=np.uint8)
    centers, scatter = np.full((k, d), np.nan), np.full((k, d, d), np.nan)
    for c in (0, 1, 3):
        centers[c] = np.average(X[label == c], axis=0, weights=w[label == c]) + 1e-13
    cluster_moments(X, w if weighted else None, order, label, wanted, centers, scatter, 1)
    assert np.isnan(centers[2]).all()
    assert np.isnan(scatter[2]).all()
    assert (centers[1] == X[1]).all()
    assert (scatter[1] == 0.0).all()
    for c in (0, 3):
        center, expected = twin.moments(X, w, order, label, c)
        np.testing.assert_allclose(centers[c], center, rtol=1e-15)
        np.testing.assert_allclose(scatter[c], expected, rtol=1e-9, atol=1e-9)
        assert (scatter[c] == scatter[c].T).all()
    again, other = centers.copy(), np.empty_like(scatter)
    mixed = rng.permutation(n)
    back = np.argsort(mixed)
    cluster_moments(
        X[mixed], w[mixed] if weighted else None, back[order], label[mixed], wanted, again, other, 1
    )
    assert other[wanted == 1].tobytes() == scatter[wanted == 1].tobytes()


@pytest.mark.parametrize("wrong", [-1, 3, 2**31 - 1, -(2**31)])
def test_labels_that_are_no_clusters(wrong):
    """As -1, which assign_gaussians gives: nothing is read or written by them."""
    X, centers, roots, charges = problem(np.random.default_rng(0), 40, 2, 3)
    label, scatter, flags = np.zeros(40, dtype=np.int32), np.empty((3, 2, 2)), np.ones(3, np.uint8)
    label[7] = wrong
    message = f"labels must be >= 0 and < 3, got {wrong}"
    with pytest.raises(ValueError, match=message):
        assign(X, centers, roots, charges, None, (label, np.empty(40), np.empty(40)))
    with pytest.raises(ValueError, match=message):
        cluster_moments(X, None, np.arange(40), label, flags, centers, scatter, 1)


@pytest.mark.parametrize("d", [1, 2, 5, 30])
def test_roots_and_determinants(d):
    """Against numpy; what is singular is found."""
    rng = np.random.default_rng(d)
    A = rng.normal(size=(6, d, d))
    S = A @ A.transpose(0, 2, 1) + 0.1 * np.eye(d)
    roots, logdet, left = inverse_roots(S)
    assert (roots == np.tril(roots)).all()
    np.testing.assert_allclose(roots.transpose(0, 2, 1) @ roots @ S, [np.eye(d)] * 6, atol=1e-9)
    np.testing.assert_allclose(logdet, np.linalg.slogdet(S)[1], rtol=1e-10, atol=1e-10)
    assert (left > 1e-6).all()
    S[2], S[4, 0] = 0.0, S[4, 1 % d]
    S[4, :, 0] = S[4, :, 1 % d]
    left = inverse_roots(S)[2]
    assert left[2] == 0.0
    assert d == 1 or left[4] < 1e-12
    weights, centers = rng.gamma(2.0, size=6), rng.normal(size=(6, d))
    a, b = np.array([0, 1, 3]), np.array([5, 2, 4])
    pull = (weights[a] * weights[b] / (weights[a] + weights[b]))[:, None, None]
    way = (centers[b] - centers[a])[:, :, None]
    union = S[a] + S[b] + pull * way * way.transpose(0, 2, 1) + 0.7 * np.eye(d)
    expected = np.linalg.slogdet(union / (weights[a] + weights[b] + 2.0)[:, None, None])[1]
    found = union_log_determinants(weights, centers, S, 0.7, 2.0, a, b)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_starts_end_where_three_agree():
    """Well apart, clusters are found by each; where nothing is to be found, starts differ."""
    rng = np.random.default_rng(0)
    apart = np.repeat(20.0 * np.eye(4), 100, axis=0) + rng.normal(size=(400, 4))
    for X, most, expected in ((apart, 10, 3), (apart, 2, 2), (rng.uniform(size=(400, 4)), 5, 5)):
        stages = []
        with progress_callback(lambda event, stages=stages: stages.append(event.stage)):
            MahalanobisMeans(4, n_init=most, random_state=0).fit(X)
        assert stages.count("start") == expected


def test_a_path_begins_on_few_rows(monkeypatch):
    """What it finds there is fitted to all: in the end the same clusters."""
    rng = np.random.default_rng(0)
    X = np.repeat(9.0 * np.eye(3), 300, axis=0) + rng.normal(size=(900, 3)) * [1.0, 0.3, 2.0]
    for K in (3, "auto"):
        full = MahalanobisMeans(K, n_init=1, random_state=0).fit(X)
        monkeypatch.setattr("smallvar._centers.gaussian_path.ROWS_A_CLUSTER", 8)
        few = MahalanobisMeans(K, n_init=1, random_state=0).fit(X)
        monkeypatch.undo()
        assert full.n_clusters_ == few.n_clusters_ == 3
        assert few.objective_ == pytest.approx(full.objective_, rel=1e-9)
        assert adjusted_rand_score(full.labels_, few.labels_) == 1.0


@pytest.mark.parametrize("exponent", [-110, -60, 60, 64, 123])
@pytest.mark.parametrize("options", [{}, {"n_clusters": 3}])
def test_float32_of_any_size(exponent, options):
    """A power of two changes no label; squares beyond float32 overflow nowhere."""
    rng = np.random.default_rng(3)
    X = np.repeat([[0.0, 0, 0], [5, 0, 0], [0, 5, 0]], 60, axis=0) + rng.normal(size=(180, 3))
    X = X.astype(np.float32)
    expected = MahalanobisMeans(random_state=0, **options).fit(X)
    model = MahalanobisMeans(random_state=0, **options).fit(np.ldexp(X, exponent))
    assert np.array_equal(model.labels_, expected.labels_)
    assert model.n_clusters_ == 3


@pytest.mark.parametrize("far", [10.0, 1000.0])
def test_the_prior_can_be_taken_out_of_covariances(far):
    """It is of the variance of all rows, so that it grows with the distance between clusters."""
    X = 0.3 * np.random.default_rng(0).normal(size=(60, 2))
    X[30:, 0] += far
    model = MahalanobisMeans(random_state=0, scale=2.0).fit(X)
    np.testing.assert_allclose(model.reg_covar_, 0.1 * X.var(axis=0).mean() * 2.0)
    assert model.n_clusters_ == 2
    for k in range(2):
        members = X[model.labels_ == k]
        weight = float(len(members))
        alone = ((weight + 2.0) * model.covariances_[k] - model.reg_covar_ * np.eye(2)) / weight
        np.testing.assert_allclose(alone, np.cov(members.T, bias=True), atol=1e-9 * far**2)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["t", "gamma", "lognormal", "counts"])
def test_a_single_cluster_with_tails_or_skewness_is_one(kind, seed):
    rng = np.random.default_rng(seed)
    X = {
        "t": lambda: rng.normal(size=(600, 6)) / np.sqrt(rng.chisquare(3, (600, 1)) / 3),
        "gamma": lambda: rng.gamma(1.5, size=(400, 3)),
        "lognormal": lambda: np.exp(0.8 * rng.normal(size=(400, 3))),
        "counts": lambda: rng.poisson(rng.gamma(2.0, 1.5, size=(400, 3))).astype(float),
    }[kind]()
    model = MahalanobisMeans(random_state=0).fit(X)
    assert model.n_clusters_ == 1
    # the lowest objective of a given penalty, that of BIC, has more
    d = X.shape[1]
    lam = (1 + d + d * (d + 1) / 2) * np.log(len(X))
    assert MahalanobisMeans(lam=lam, random_state=0).fit(X).n_clusters_ > 1


def test_confidence_of_the_number_of_gaussian_clusters():
    rng = np.random.default_rng(0)
    X = 12.0 * rng.normal(size=(3, 2))[np.repeat(range(3), 100)] + rng.normal(size=(300, 2))
    model = MahalanobisMeans(random_state=0).fit(X)
    assert model.n_clusters_ == 3
    assert model.confidence_ > 0.8
    for given in ({"n_clusters": 3}, {"lam": 50.0}, {"init": X[:5]}):
        assert np.isnan(MahalanobisMeans(random_state=0, **given).fit(X).confidence_)
    # squares of correlated numbers: no shape that is tried
    curved = (rng.normal(size=(400, 3)) @ rng.normal(size=(3, 3))) ** 2
    with pytest.warns(UnclearNumberWarning, match="is not clear"):
        model = MahalanobisMeans(random_state=0).fit(curved)
    assert model.confidence_ < 0.5


def test_more_clusters_than_paths_mostly_begin_with():
    grid = 10.0 * np.stack(np.meshgrid(range(6), range(6)), axis=-1).reshape(-1, 2)
    X = np.repeat(grid, 30, axis=0) + np.random.default_rng(0).normal(size=(36 * 30, 2))
    assert MahalanobisMeans(random_state=0).fit(X).n_clusters_ == 36


def test_weights_and_units_do_not_change_the_confidence():
    X = np.random.default_rng(3).gamma(1.5, size=(200, 2))
    first = MahalanobisMeans(random_state=0).fit(X)
    weight = np.full(200, 5.0)
    for other in (
        MahalanobisMeans(random_state=0).fit(X, sample_weight=weight),
        MahalanobisMeans(random_state=0).fit(1024.0 * X),
    ):
        assert other.n_clusters_ == first.n_clusters_
        assert other.confidence_ == pytest.approx(first.confidence_, abs=1e-6)


def test_number_that_mergers_pass_over(monkeypatch):
    """The clusters then begin at rows that are drawn."""
    X = np.random.default_rng(0).gamma(1.5, size=(200, 2))
    cut = gaussian_starts.cut_path
    given = MahalanobisMeans(random_state=0).fit(X).n_clusters_
    monkeypatch.setattr(
        gaussian_starts,
        "cut_path",
        lambda path, begin, number: cut(path, begin, None) if number is None else (None, None),
    )
    assert MahalanobisMeans(random_state=0).fit(X).n_clusters_ == given


@seeds(24)
def test_cheapest_pair_is_that_of_the_whole_table(seed):
    """While costs change and clusters go, with many ties; a cost that is NaN raises."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(3, 30))
    table, pairs, numbers = np.full((k, k), np.inf), PairTable(k), np.arange(k)
    a, b = np.triu_indices(k, 1)
    while True:
        costs = rng.integers(0, 12, size=len(a)).astype(float)
        table[numbers[a], numbers[b]] = costs
        found = pairs.cheapest(a, b, costs)
        now = table[np.ix_(numbers, numbers)]
        assert found == np.unravel_index(now.argmin(), now.shape)
        if len(numbers) == 3:
            break
        kept = np.delete(np.arange(len(numbers)), [found[1], 0] if seed % 3 == 0 else found[1])
        pairs.keep(kept)
        numbers = numbers[kept]
        if len(numbers) < 3:
            break
        pick = rng.random((len(numbers), len(numbers))) < rng.choice([0.02, 0.3])
        a, b = np.nonzero(np.triu(pick, 1))
    a, b = np.triu_indices(len(numbers), 1)
    costs = rng.random(len(a))
    costs[rng.integers(len(a))] = np.nan
    with pytest.raises(ValueError, match="finite"):
        pairs.cheapest(a, b, costs)


@pytest.mark.parametrize("k", [0, 2, 4])
def test_an_entry_is_removed_in_place(k):
    array = np.arange(30.0).reshape(5, 3, 2)
    expected, memory = np.delete(array, k, axis=0), array.ctypes.data
    out = without_entry(array, k)
    assert np.array_equal(out, expected) and out.ctypes.data == memory
    flags = np.array([True, False, True, True, False])
    expected = np.delete(flags, k)
    assert np.array_equal(without_entry(flags, k), expected)
    with pytest.raises(ValueError, match="< 4"):
        without_entry(flags[:4], 4)
