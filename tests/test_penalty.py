"""farthest_first_lambda against its twin and worked examples."""

import itertools

import numpy as np
import pytest
import twins.penalty
from problems import blobs

from smallvar import (
    BregmanDPMeans,
    DPMeans,
    KernelDPMeans,
    MiniBatchDPMeans,
    SpectralDPMeans,
    farthest_first_lambda,
    hdp_lambdas,
)

LINE = np.array([[0.0], [1], [10], [11]])


@pytest.mark.parametrize(("k", "expected"), [(1, 30.25), (2, 30.25), (3, 1), (4, 1)])
def test_worked_example(k, expected):
    """Mean 5.5: 0 and 11 are 30.25 away, then 1 and 10 are 1 away from those."""
    assert farthest_first_lambda(LINE, k) == expected


def test_too_few_distinct_points():
    """A zero distance gives way to the smallest positive one, and that to 1."""
    assert farthest_first_lambda([[0.0], [0], [4], [4]], 3) == 4
    assert farthest_first_lambda(np.full((3, 2), 7.0), 2) == 1
    assert DPMeans(lam="farthest-first", guess=3).fit(np.full((5, 2), 7.0)).n_clusters_ == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0, 1000])
@pytest.mark.parametrize(
    ("n", "d", "k"),
    [(1, 1, 1), (7, 3, 7), (300, 1, 20), (5000, 2, 8), (9000, 17, 30), (700, 90, 5)],
)
def test_equals_twin(n, d, k, offset, dtype):
    X = (blobs(np.random.default_rng(n), n, d, 10) + offset).astype(dtype)
    expected = twins.penalty.farthest_first(X, k)
    value = farthest_first_lambda(X, k)
    assert isinstance(value, float)
    # Only the distance to the mean, which is rounded, may differ in the last digits.
    np.testing.assert_allclose(value, expected, rtol=1e-9 if k == 1 else 1e-12)


def test_values_fall_with_k():
    X = np.random.default_rng(0).random((500, 3))
    values = [farthest_first_lambda(X, k) for k in range(1, 60)]
    assert all(a >= b > 0 for a, b in itertools.pairwise(values))


def test_any_layout_gives_the_same_value():
    X = np.random.default_rng(0).random((500, 6))
    value = farthest_first_lambda(X, 9)
    assert farthest_first_lambda(np.asfortranarray(X), 9) == value
    assert farthest_first_lambda(np.repeat(X, 2, axis=1)[:, ::2], 9) == value
    assert farthest_first_lambda(np.repeat(X, 2, axis=0)[::2], 9) == value
    assert farthest_first_lambda(X.tolist(), 9) == value


def test_finds_a_useful_penalty():
    """Eight far blobs, guess eight: DP-means finds them."""
    rng = np.random.default_rng(0)
    corners = np.array([[x, y, z] for x in (0, 9) for y in (0, 9) for z in (0, 9)])
    X = np.repeat(corners, 50, axis=0) + rng.normal(size=(400, 3)) / 4
    model = DPMeans(lam=farthest_first_lambda(X, 8)).fit(X)
    assert model.n_clusters_ == 8
    assert all(len(set(model.labels_[i : i + 50])) == 1 for i in range(0, 400, 50))


@pytest.mark.parametrize("k", [0, -3, 5])
def test_impossible_guess(k):
    with pytest.raises(ValueError, match=f"n_clusters.*{k}"):
        farthest_first_lambda(LINE, k)


@pytest.mark.parametrize("k", [2.5, "3", None])
def test_guess_that_is_no_integer(k):
    with pytest.raises((TypeError, ValueError), match="n_clusters"):
        farthest_first_lambda(LINE, k)


# Rows that are far and alone


def as_published(X, k):
    """Kulis and Jordan's rule in plain numpy: every seed counts."""
    distance = np.square(X - X.mean(axis=0)).sum(axis=1)
    for _ in range(k):
        far = distance.argmax()
        penalty = distance[far]
        distance = np.minimum(distance, np.square(X - X[far]).sum(axis=1))
    return penalty


def with_outliers(X, m, clump, seed=0):
    """m rows far away, 3 to 10 times the reach of the others, or in a clump."""
    rng = np.random.default_rng(seed)
    reach = np.linalg.norm(np.ptp(X, axis=0)) / 2
    way = rng.normal(size=(1 if clump else m, X.shape[1]))
    way /= np.linalg.norm(way, axis=1)[:, None]
    far = way * reach * (6 if clump else rng.uniform(3, 10, size=(m, 1)))
    return np.vstack([X, X.mean(axis=0) + far + 0.1 * rng.normal(size=(m, X.shape[1]))])


GROUPS = [(300, 0, 0), (200, 7, 1), (150, 3, 6), (100, -5, 5), (60, 9, 8), (40, -6, -4)]


def grouped(seed, tied=False):
    rng = np.random.default_rng(seed)
    X = np.vstack([rng.normal((x, y), size=(n, 2)) for n, x, y in GROUPS])
    return np.round(X) if tied else X


@pytest.mark.parametrize("k", [2, 6, 8, 40])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("m", "clump"), [(0, False), (5, False), (5, True), (20, False)])
def test_lone_rows_equal_twin(m, clump, tied, k):
    X = with_outliers(grouped(m, tied), m, clump)
    for options in ({}, {"count_alone": True}):
        expected = twins.penalty.farthest_first(X, k, **options)
        np.testing.assert_allclose(farthest_first_lambda(X, k, **options), expected, rtol=1e-12)
    np.testing.assert_allclose(
        farthest_first_lambda(X, k, count_alone=True), as_published(X, k), rtol=1e-12
    )


@pytest.mark.parametrize("seed", range(5))
def test_outliers_do_not_move_the_penalty(seed):
    """Far rows change it by little; where there are none it is the paper's, to the last bit."""
    X = grouped(seed)
    clean = farthest_first_lambda(X, 6)
    assert clean == farthest_first_lambda(X, 6, count_alone=True)
    dirty = with_outliers(X, 5, False, seed)
    assert 0.8 * clean < farthest_first_lambda(dirty, 6) < 1.3 * clean
    assert farthest_first_lambda(dirty, 6, count_alone=True) > 2 * clean


def test_lone_rows_by_hand():
    """Two groups of 20 rows, 10 apart: D is 100 where the mean is far, and 1000 is beyond 9 D."""

    def both(x, times):
        X = np.repeat([0.0, 10, x], [20, 20, times])[:, None]
        return [farthest_first_lambda(X, 2, count_alone=flag) for flag in (False, True)]

    assert both(1000, 1) == pytest.approx([100, (1200 / 41) ** 2])
    assert both(1000, 2) == pytest.approx([100, (2200 / 42) ** 2])
    safe, published = both(1000, 3)  # three of 43 rows are a tenth of 43 / 2
    assert safe == published
    # 17 is alone too, at (17 - 217 / 41)^2 = 137; D = (10 - 217 / 41)^2 = 22, and 9 D = 200
    assert both(17, 1) == pytest.approx([(217 / 41) ** 2] * 2)
    # 25 is beyond: 381 and 183
    assert both(25, 1) == pytest.approx([(10 - 225 / 41) ** 2, (225 / 41) ** 2])


def test_many_guessed_and_many_alone():
    """More than a hundred alone before the last one guessed: the paper's value, not an earlier."""
    far = 1e3 * np.random.default_rng(0).normal(size=(300, 2))
    X = np.vstack([grouped(0), grouped(1), grouped(2), far])
    for k in (110, 200):
        assert farthest_first_lambda(X, k) == farthest_first_lambda(X, k, count_alone=True)


@pytest.mark.parametrize(("n_far", "left_out"), [(90, True), (130, False)])
def test_too_many_to_be_exceptions(n_far, left_out):
    """More than a hundred rows alone: all count."""
    angle = np.linspace(0, 2 * np.pi, n_far, endpoint=False)[:, None]
    X = np.vstack([grouped(0), 1e4 * np.hstack([np.cos(angle), np.sin(angle)])])
    penalty, published = (farthest_first_lambda(X, 2, count_alone=flag) for flag in (False, True))
    assert published > 1e7
    assert penalty < 1e3 if left_out else penalty == published
    assert penalty == pytest.approx(twins.penalty.farthest_first(X, 2))


def test_rows_of_weight_zero_are_no_company():
    """Neither for a seed nor in the count of rows; the penalty goes with the other weights."""
    X = with_outliers(grouped(1), 5, False)
    idle = np.repeat(X[-5:], 30, axis=0)
    weight = np.repeat([3.0, 0.0], [len(X), len(idle)])
    model = DPMeans(lam="farthest-first", guess=6)
    lam = model.fit(np.vstack([X, idle]), sample_weight=weight).lam_
    np.testing.assert_allclose(lam, 3.0 * farthest_first_lambda(X, 6), rtol=1e-12)


def test_all_estimators_leave_lone_rows_out():
    """Squared distances, batches, divergences, kernels: one rule."""
    X = with_outliers(grouped(2), 5, False)
    X -= X.min(axis=0) - 1.0
    expected = farthest_first_lambda(X, 6)
    guess = {"lam": "farthest-first", "guess": 6}
    found = [
        DPMeans(**guess).fit(X).lam_,
        MiniBatchDPMeans(**guess).fit(X).lam_,
        BregmanDPMeans(**guess, divergence="squared_euclidean").fit(X).lam_,
        KernelDPMeans(**guess, kernel="linear").fit(X).lam_,
        SpectralDPMeans(**guess, kernel="linear").fit(X).lam_,
        SpectralDPMeans(**guess, kernel="precomputed").fit(X @ X.T).lam_,
        hdp_lambdas(X, np.zeros(len(X)), 6, 6)[0],
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert expected < farthest_first_lambda(X, 6, count_alone=True) / 2


@pytest.mark.parametrize("m", [0, 5])
def test_lambdas_of_data_sets_with_lone_rows(m):
    X = with_outliers(grouped(3), m, False)
    groups = np.random.default_rng(3).integers(4, size=len(X))
    for options in ({}, {"count_alone": True}):
        expected = twins.penalty.hdp_lambdas(X, groups, 3, 6, **options)
        np.testing.assert_allclose(hdp_lambdas(X, groups, 3, 6, **options), expected, rtol=1e-9)


@pytest.mark.parametrize("threads", [1, 2])
def test_lone_rows_for_any_number_of_threads(threads):
    X = with_outliers(np.repeat(grouped(4), 30, axis=0), 20, False).astype(np.float32)
    assert farthest_first_lambda(X, 6, n_threads=threads) == farthest_first_lambda(X, 6)


@pytest.mark.parametrize("bad", [1, "yes", None])
def test_count_alone_is_a_flag(bad):
    with pytest.raises(TypeError, match="count_alone"):
        farthest_first_lambda(LINE, 2, count_alone=bad)
    with pytest.raises(TypeError, match="count_alone"):
        hdp_lambdas(LINE, [0, 0, 1, 1], 1, 2, count_alone=bad)


def test_numbers_of_numpy():
    """A guess in a small type of integers is that number."""
    X = with_outliers(grouped(0), 5, False)
    assert farthest_first_lambda(X, np.uint8(200)) == farthest_first_lambda(X, 200)
    assert farthest_first_lambda(X, np.uint8(30)) == farthest_first_lambda(X, 30)
