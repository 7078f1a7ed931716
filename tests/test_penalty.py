"""farthest_first_lambda against its twin and worked examples."""

import itertools

import numpy as np
import pytest
import twins.penalty
from problems import blobs

from smallvar import DPMeans, farthest_first_lambda

LINE = np.array([[0.0], [1], [10], [11]])


@pytest.mark.parametrize(("k", "expected"), [(1, 30.25), (2, 30.25), (3, 1), (4, 1)])
def test_worked_example(k, expected):
    """Mean 5.5: 0 and 11 are 30.25 away, then 1 and 10 are 1 away from those."""
    assert farthest_first_lambda(LINE, k) == expected


def test_too_few_distinct_points():
    """A zero distance gives way to the smallest positive one, and that to 1."""
    assert farthest_first_lambda([[0.0], [0], [4], [4]], 3) == 4
    assert farthest_first_lambda(np.full((3, 2), 7.0), 2) == 1
    assert DPMeans("farthest-first", n_clusters=3).fit(np.full((5, 2), 7.0)).n_clusters_ == 1


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
    model = DPMeans(farthest_first_lambda(X, 8)).fit(X)
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


@pytest.mark.parametrize("bad", [[[np.nan], [1.0]], [[np.inf], [1.0]], [1.0, 2.0], []])
def test_bad_data(bad):
    with pytest.raises(ValueError, match=r"NaN|infinity|2D array|Expected 2|empty"):
        farthest_first_lambda(bad, 1)
