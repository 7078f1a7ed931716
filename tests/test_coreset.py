"""coreset against its twin, what its draws are on average, and how good fits to it are."""

import numpy as np
import pytest
import scipy.sparse as sp
import twins.coreset as twin
from helpers import seeds
from problems import blobs
from smallvar._sweeps.draws import systematic_draw

from smallvar import DPMeans, coreset
from smallvar._centers.coreset import inclusion, rough, sensitivities, strata


def problem(seed, weighted=True):
    """Rows in groups of very unequal size, some of them alike, and weights, some of them 0."""
    rng = np.random.default_rng(seed)
    n, d, k = int(rng.integers(40, 700)), int(rng.integers(1, 6)), int(rng.integers(1, 12))
    group = (rng.pareto(1.0, n) * 2).astype(int) % k
    X = rng.normal(size=(k, d))[group] * 10 + rng.normal(size=(n, d))
    if seed % 3 == 0:
        X = np.round(X)
    weight = rng.gamma(0.5, size=n) + 1e-3 if weighted else None
    if weighted and seed % 2:
        weight[rng.random(n) < 0.3] = 0.0
    n_rows = int(rng.integers(1, n // 2))
    return X, weight, n_rows, float(rng.choice([0.0, 1.0, 50.0, 1e4]))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("weighted", [False, True])
@seeds(24)
def test_equals_twin(seed, weighted, dtype):
    X, weight, n_rows, lam = problem(seed, weighted)
    X = X.astype(dtype)
    index, new = coreset(X, n_rows, lam, sample_weight=weight, random_state=seed)
    expected, weights = twin.coreset(X, n_rows, lam, weight, seed)
    assert index.dtype == np.intp
    assert new.dtype == np.float64
    np.testing.assert_array_equal(index, expected)
    np.testing.assert_allclose(new, weights, rtol=1e-9)


@seeds(12)
def test_probabilities_equal_twin(seed):
    X, weight, n_rows, lam = problem(seed)
    expected = twin.probabilities(X, n_rows, lam, weight, np.random.RandomState(seed))[0]
    most = max(1, n_rows // 32)
    k, labels, distance = rough(X, weight, lam, most, np.random.RandomState(seed), 1)
    size = weight * sensitivities(k, labels, distance, weight, lam)
    n_rows = min(n_rows, np.count_nonzero(weight) - 1)
    found = np.minimum(1.0, inclusion(size, n_rows) * size)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-15)
    assert found.sum() == pytest.approx(n_rows, rel=1e-12)


def test_bounds_by_hand():
    """Two seeds: at 0, three rows at distances 0, 1, 1; at 9, one row; lam = 2."""
    labels, distance = np.array([0, 0, 0, 1], dtype=np.int32), np.array([0.0, 1.0, 1.0, 0.0])
    f, a = (2 + 2 * 2) / 4, 16 * (np.log(2) + 2)
    first = 2 * a * (2 / 3) / f + 4 * 4 / 3
    expected = [first, a / f + first, a / f + first, 4 * 4]
    np.testing.assert_allclose(sensitivities(2, labels, distance, None, 2.0), expected, rtol=1e-15)


def test_probabilities_by_hand():
    """10 of 16 is taken for sure; of what is left, 6, the other of the two is drawn."""
    assert inclusion(np.array([1.0, 10, 2, 3]), 2) == pytest.approx(1 / 6)
    assert inclusion(np.array([1.0, 1, 1, 1]), 2) == pytest.approx(1 / 2)
    assert inclusion(np.array([1e300, 1e-300, 1e-300]), 2) == pytest.approx(0.5e300)


def test_bounds_hold_for_any_centers():
    """No row has a larger share of the objective, for centers wherever they are."""
    rng = np.random.default_rng(0)
    X = blobs(rng, 300, 2, 6)
    weight = rng.gamma(1.0, size=300)
    for lam in (0.0, 30.0):
        k, labels, distance = rough(X, weight, lam, 10, np.random.RandomState(0), 1)
        bound = sensitivities(k, labels, distance, weight, lam) / weight.sum()
        for _ in range(300):
            subset = rng.integers(1, 12)
            centers = X[rng.integers(300, size=subset)] + rng.normal(size=(subset, 2)) * rng.choice(
                3
            )
            d = np.square(X[:, None] - centers).sum(axis=2).min(axis=1)
            assert (d <= bound * (weight @ d + lam * subset)).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_unbiased(weighted):
    """Over many draws, sums over the rows drawn have the mean of sums over all rows."""
    rng = np.random.default_rng(1)
    X = np.vstack([rng.normal(size=(180, 2)), rng.normal(size=(15, 2)) + 9, [[40.0, 40.0]]])
    weight = rng.gamma(1.0, size=len(X)) if weighted else None
    given = np.ones(len(X)) if weight is None else weight
    away = np.square(X - [1.0, 2.0]).sum(axis=1)
    sums = []
    for seed in range(1000):
        index, new = coreset(X, 20, 30.0, sample_weight=weight, random_state=seed)
        sums.append([new.sum(), new @ away[index], new[index >= 180].sum()])
    expected = [given.sum(), given @ away, given[180:].sum()]
    error = np.std(sums, axis=0) / np.sqrt(len(sums))
    assert (np.abs(np.mean(sums, axis=0) - expected) < 4 * error + 1e-9).all()


def test_each_row_has_its_probability():
    """With the seeds as they are (the mean alone: 20 // 32 of them), how often a row is drawn."""
    rng = np.random.default_rng(2)
    X = rng.standard_t(2, size=(60, 2))
    p = twin.probabilities(X, 20, 1.0, np.ones(60), np.random.RandomState(0))[0]
    count, draws = np.zeros(60), 1500
    for seed in range(draws):
        count[coreset(X, 20, 1.0, random_state=seed)[0]] += 1
    assert (np.abs(count / draws - p) < 4.5 * np.sqrt(p * (1 - p) / draws) + 1e-12).all()
    assert 0 < (p == 1).sum() < 20


def test_all_rows():
    X = np.arange(10.0).reshape(5, 2)
    for n_rows in (5, 6, 1000):
        index, weight = coreset(X, n_rows, 1.0)
        assert index.tolist() == [0, 1, 2, 3, 4]
        assert weight.tolist() == [1.0] * 5
    given = [0.3, 0.0, 1e9, 0.7, 0.0]
    index, weight = coreset(X, 3, 1.0, sample_weight=given)
    assert index.tolist() == [0, 2, 3]
    assert weight.tolist() == [0.3, 1e9, 0.7]


@seeds(8)
def test_rows_of_weight_zero_do_not_exist(seed):
    """They are never drawn, wherever they are, and change nothing."""
    X, weight, n_rows, lam = problem(2 * seed + 1)
    n_rows = min(n_rows, np.count_nonzero(weight) - 1)
    used = np.flatnonzero(weight)
    index, new = coreset(X, n_rows, lam, sample_weight=weight, random_state=0)
    assert (weight[index] > 0).all()
    X[weight == 0] *= 7.0
    few = coreset(X[used], n_rows, lam, sample_weight=weight[used], random_state=0)
    np.testing.assert_array_equal(used[few[0]], index)
    np.testing.assert_allclose(few[1], new, rtol=1e-12)


@seeds(8)
def test_distinct_rows_ascending(seed):
    """Exactly as many as were asked for; heavy ones keep their weight, none gets lighter."""
    X, weight, n_rows, lam = problem(seed)
    n_rows = min(n_rows, np.count_nonzero(weight) - 1)
    index, new = coreset(X, n_rows, lam, sample_weight=weight, random_state=seed)
    assert len(index) == len(new) == n_rows
    assert (np.diff(index) > 0).all()
    assert (new >= weight[index] * (1 - 1e-12)).all()


def test_duplicates():
    """Ten places, each a thousand times over: all of them are met, with about their weight."""
    X = np.repeat(np.arange(10.0)[:, None] * 5, 1000, axis=0)
    index, weight = coreset(X, 400, 1.0, random_state=0)
    assert len(set(index)) == 400
    weight_sums = np.bincount(index // 1000, weight, minlength=10)
    assert (np.abs(weight_sums - 1000) <= weight.max()).all()  # a step more or less
    X[:] = 3.0
    index, weight = coreset(X, 40, 0.0, random_state=0)
    np.testing.assert_allclose(weight, 250, rtol=1e-12)
    assert np.ptp(np.diff(index)) <= 1  # equal steps along equal rows


def test_other_units():
    """Another unit of weight changes no row; nor does one of length, with its square in lam."""
    X, weight, n_rows, _ = problem(1)
    index, new = coreset(X, n_rows, 50.0, sample_weight=weight, random_state=0)
    other = coreset(X, n_rows, 50.0 * 2**-40, sample_weight=weight * 2**-40, random_state=0)
    assert (other[0] == index).all()
    assert (other[1] == new * 2**-40).all()
    other = coreset(X * 8, n_rows, 50.0 * 64, sample_weight=weight, random_state=0)
    assert (other[0] == index).all()
    assert (other[1] == new).all()


def test_threads_and_layout():
    """The same bits."""
    rng = np.random.default_rng(0)
    X = blobs(rng, 30_000, 5, 30).astype(np.float32)
    first = coreset(X, 2000, 100.0, random_state=3, n_threads=1)
    for other, n_threads in ((X, 2), (X, 3), (np.asfortranarray(X), 2), (X.astype(float), 1)):
        again = coreset(other, 2000, 100.0, random_state=3, n_threads=n_threads)
        assert (again[0] == first[0]).all()
        assert (again[1] == first[1]).all()
    assert set(coreset(X, 2000, 100.0, random_state=4)[0]) != set(first[0])


@seeds(6)
def test_sparse_rows(seed):
    """As the dense array of the same numbers."""
    X, weight, n_rows, lam = problem(seed)
    X[np.abs(X) < 1] = 0.0
    index, new = coreset(X, n_rows, lam, sample_weight=weight, random_state=0)
    again = coreset(sp.csr_array(X), n_rows, lam, sample_weight=weight, random_state=0)
    np.testing.assert_array_equal(again[0], index)
    np.testing.assert_allclose(again[1], new, rtol=1e-9)


def test_random_state_goes_on():
    X = np.random.default_rng(0).normal(size=(500, 2))
    rng = np.random.RandomState(0)
    one, two = (coreset(X, 50, 1.0, random_state=rng)[0] for _ in range(2))
    assert (one == coreset(X, 50, 1.0, random_state=0)[0]).all()
    assert set(one) != set(two)


def test_any_penalty():
    """0 takes all seeds allowed; one that no cluster is worth leaves the mean alone."""
    X = np.random.default_rng(0).normal(size=(5000, 2)) * [1.0, 5.0]
    rng = np.random.RandomState(0)
    assert rough(X, None, 0.0, 20, rng, 1)[0] == 20
    for lam in (1e9, 1e308, np.inf):
        assert rough(X, None, lam, 20, rng, 1)[0] == 1
    for lam in (0, 1e308, np.inf):
        index, weight = coreset(X, 640, lam, random_state=0)
        assert len(index) == 640
        assert weight.sum() == pytest.approx(5000, rel=0.1)
    np.testing.assert_allclose(weight, 5000 / 640, rtol=1e-12)  # no distance counts


@pytest.mark.long
def test_fit_is_nearly_as_good():
    """On 1 % of the rows, and better than on as many drawn with equal chances, where it matters."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(20, 4)) * 10
    share = 1.0 / np.arange(1, 21) ** 2
    X = centers[rng.choice(20, 60_000, p=share / share.sum())] + rng.normal(size=(60_000, 4))
    lam = 10_000.0

    def excess(rows, weight):
        model = DPMeans(lam=lam, algorithm="merge", random_state=0)
        return -model.fit(X[rows], sample_weight=weight).score(X) / full.objective_ - 1.0

    full = DPMeans(lam=lam, algorithm="merge", random_state=0).fit(X)
    found = [excess(*coreset(X, 600, lam, random_state=seed)) for seed in range(5)]
    uniform = [
        excess(np.random.default_rng(seed).choice(60_000, 600, replace=False), np.full(600, 100.0))
        for seed in range(5)
    ]
    assert np.max(found) < 0.05
    assert np.median(found) < np.median(uniform)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_rows": 0}, "n_rows must be >= 1, got 0"),
        ({"n_rows": 2.5}, r"n_rows must be an integer, got 2\.5"),
        ({"n_rows": True}, "n_rows must be an integer"),
        ({"lam": -1.0}, r"lam must be >= 0, got -1\.0"),
        ({"lam": np.nan}, "lam must be >= 0, got nan"),
        ({"lam": "auto"}, "lam must be a number, got 'auto'"),
        ({"sample_weight": [1.0] * 3}, r"sample_weight must have shape \(4,\)"),
        ({"sample_weight": [1.0, -1, 1, 1]}, "sample_weight must be >= 0"),
        ({"sample_weight": [0.0] * 4}, "sample_weight must have a positive entry"),
        ({"sample_weight": [1e-9, 1e9, 1, 1]}, "sample_weight must have a ratio"),
        ({"n_threads": 0}, "n_threads must be >= 1"),
        ({"random_state": "x"}, "'x' cannot be used to seed"),
        ({"X": [[np.nan], [1.0], [2.0], [3.0]]}, "NaN"),
        ({"X": [1.0, 2.0, 3.0, 4.0]}, "2D array"),
        ({"X": [[1e200], [0.0], [1.0], [2.0]]}, "X must be spread over"),
    ],
)
def test_refuses(change, words):
    options = {"X": [[0.0], [1.0], [5.0], [6.0]], "n_rows": 2, "lam": 1.0, **change}
    with pytest.raises((ValueError, TypeError), match=words):
        coreset(**options)


@seeds(8)
def test_seeds_of_a_sample_equal_twin(seed, monkeypatch):
    """Where there are many rows, seeds are found on rows drawn by weight."""
    monkeypatch.setattr("smallvar._centers.coreset.LEAST_SAMPLE", 25)
    monkeypatch.setattr("smallvar._centers.coreset.SAMPLE_A_SEED", 1)
    X, weight, _, lam = problem(seed, seed % 2 == 1)
    n_rows = min(len(X) if weight is None else np.count_nonzero(weight), 40) - 1
    index, new = coreset(X, n_rows, lam, sample_weight=weight, random_state=seed)
    used = len(X) if weight is None else np.count_nonzero(weight)
    size = max(25, used // 16)
    expected, weights = twin.coreset(X, n_rows, lam, weight, seed, size if size < used else None)
    np.testing.assert_array_equal(index, expected)
    np.testing.assert_allclose(new, weights, rtol=1e-9)


def test_systematic_draw():
    """Each with its probability, as many of each stratum as it adds up to, but for one."""
    rng = np.random.default_rng(0)
    p = rng.random(300)
    p[:5], p[5:9], stratum = 1.0, 0.0, rng.integers(7, size=300).astype(np.int32)
    p[9:] *= 85.0 / p[9:].sum()
    count = np.zeros(300)
    for start in (np.arange(400) + rng.random()) / 400:
        drawn = systematic_draw(p, stratum, 7, 90, start)
        assert drawn.sum() == 90
        found = np.bincount(stratum[drawn], minlength=7)
        assert (np.abs(found - np.bincount(stratum, p, minlength=7)) < 1 + 1e-9).all()
        count += drawn
    assert (np.abs(count / 400 - p) <= 1 / 400 + 1e-9).all()
    assert systematic_draw(p[:9], stratum[:9], 7, 5, 0.3).tolist() == [True] * 5 + [False] * 4


def test_probabilities_that_do_not_add_up_are_refused():
    strata = np.zeros(4, dtype=np.int32)
    for probability in ([np.nan, 0.5, 0.5, 0.5], [1e-9] * 4, [0.9] * 4):
        with pytest.raises(ValueError, match="X must be finite, and must not change"):
            systematic_draw(np.array(probability), strata, 1, 2, 0.5)
    with pytest.raises(ValueError, match="stratum must be >= 0 and < 1"):
        systematic_draw(np.full(4, 0.5), strata + 1, 1, 2, 0.5)


def test_strata():
    """Four a doubling of the squared distance by its mean, about each seed."""
    distance = np.array([1.0, 1.0, 0.4, 1.6, 0.0, 1e-30, 1.0, 1.5, 2.5, 1e30])
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 2], dtype=np.int32)
    expected = [20, 20, 14, 22, 32, 32, 52, 54, 57, 84]
    assert strata(3, labels, distance, None).tolist() == expected
