"""What the compiled sweeps promise in whatever order their methods are called."""

import numpy as np
import pytest
import twins.exact
from helpers import seeds
from smallvar._sweeps.dpmeans import DPSweep
from smallvar._sweeps.exact import distances_to_centers, nearest_of_few
from smallvar._sweeps.merge import MergeSweep

from smallvar._core.frame import RowsFrame, nearest_sweep


def sweep_over(X, kind=MergeSweep, bounds=True):
    labels = np.zeros(X.shape[0], dtype=np.int32)
    frame = RowsFrame(X, None, 1)
    return kind(X, None, None, labels, frame, 2, 8, bounds)


def nearest(X, centers):
    return ((X[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)


def means(X, labels):
    return np.array([X[labels == k].mean(axis=0) for k in np.unique(labels)])


@pytest.mark.parametrize("seed", range(20))
def test_centers_opened_after_a_move(seed):
    """A point goes to one that is nearer than its own, whatever its bound was before the move."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(3000, 3)) + rng.integers(0, 3, size=(3000, 1)) * 4
    sweep = sweep_over(X)
    sweep.start(X[:40].copy())
    for _ in range(3):
        sweep.assign()
        sweep.move_centers()
    before, k = sweep.labels.copy(), sweep.k
    sweep.seed(rng.choice(3000, 12, replace=False))
    centers = sweep.centers
    squares = ((X[:, None] - centers) ** 2).sum(axis=2)
    own = squares[np.arange(3000), before]
    expected = np.where(squares[:, k:].min(axis=1) < own, k + squares[:, k:].argmin(axis=1), before)
    np.testing.assert_array_equal(sweep.labels, expected)
    for move in (False, True, True):
        if move:
            sweep.move_centers()
        sweep.assign()
        np.testing.assert_array_equal(sweep.labels, nearest(X, sweep.centers))


@pytest.mark.parametrize("seed", range(5))
def test_centers_opened_at_new_centers(seed):
    """Centers that were set, with no sweep after them: nothing is known of any point."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2000, 2))
    sweep = sweep_over(X)
    sweep.start(X[:5].copy())
    sweep.assign()
    sweep.start(X[:1].copy())
    sweep.seed(np.arange(100, 110))
    np.testing.assert_array_equal(sweep.labels, nearest(X, sweep.centers))


def test_sums_may_be_asked_for_at_any_time():
    X = np.random.default_rng(0).normal(size=(4000, 2)) * 3
    sweep = sweep_over(X, DPSweep)
    sweep.start(X[:3].copy())
    sweep.seek_farthest(4.0, True)
    opened = 0
    for step in range(12):
        sweep.assign()
        if step % 3 == 0:
            sweep.cluster_sums()
        opened += sweep.open_farthest()
        if step % 3 == 1:
            sweep.present_sums()
        if step % 3 == 2:
            sweep.cluster_sums()
        sweep.present_sums()
        labels = sweep.labels.copy()
        sweep.move_centers()
        np.testing.assert_allclose(sweep.centers, means(X, labels), rtol=1e-12, atol=1e-12)
    assert opened > 3


def test_without_bounds_nothing_is_opened_or_merged():
    X = np.random.default_rng(0).normal(size=(50, 2))
    sweep = sweep_over(X, bounds=False)
    sweep.start(X[:4].copy())
    sweep.assign()
    sweep.move_centers()
    for call in (
        lambda: sweep.create(1.0, 10),
        lambda: sweep.seed(np.arange(3)),
        lambda: sweep.merge(1),
        lambda: sweep.seek_farthest(1.0, True),
    ):
        with pytest.raises(ValueError, match="bounds"):
            call()


@pytest.mark.parametrize("remap", [[0, 2, 1], [0, 1], [0, -1, -1], [0, 1, 2]])
def test_centers_from_elsewhere_fit_or_nothing_changes(remap):
    X = np.random.default_rng(0).normal(size=(60, 2))
    sweep = sweep_over(X, DPSweep)
    sweep.start(X[:3].copy())
    sweep.assign()
    sweep.present_sums()
    before = sweep.centers
    with pytest.raises(ValueError, match="remap"):
        sweep.move_to(X[10:12].copy(), np.array(remap, dtype=np.int32))
    np.testing.assert_array_equal(sweep.centers, before)
    sweep.assign()
    np.testing.assert_array_equal(sweep.labels, nearest(X, before))


def layouts(X):
    """The same rows as they may lie in memory, and as float32."""
    wide = np.zeros((len(X), 3 * X.shape[1]))
    wide[:, ::3] = X
    frozen = X.copy()
    frozen.setflags(write=False)
    return [X, np.asfortranarray(X), wide[:, ::3], X[::-1][::-1], frozen, X.astype(np.float32)]


@seeds(24)
def test_all_distances_equal_twin(seed):
    """To the bit, in full panels and others, for rows of any layout, by any number of threads."""
    rng = np.random.default_rng(seed)
    n, k, d = (int(rng.integers(1, most)) for most in (150, 90, 40))
    X, centers = rng.normal(size=(n, d)) + 10.0 * (seed % 3), rng.normal(size=(k, d))
    X[:: 1 + seed % 7] = centers[rng.integers(k, size=len(X[:: 1 + seed % 7]))]
    for Y in layouts(X):
        squares = twins.exact.squared_distances(Y.astype(float), centers)
        for dtype in (np.float64, np.float32):
            out = np.empty((n, k), dtype=dtype)
            largest = distances_to_centers(Y, centers, out, 1 + seed % 3)
            assert np.array_equal(out, np.sqrt(squares).astype(dtype))
            assert largest == np.sqrt(squares.max())
        labels, distances = nearest_of_few(Y, centers)
        assert labels.dtype == np.int32
        assert np.array_equal(labels, squares.argmin(axis=1))
        assert np.array_equal(distances, squares.min(axis=1))


@seeds(12)
def test_labels_of_few_rows_are_those_of_a_sweep(seed):
    """At ties, too: rows and centers on a grid."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 4, size=(200, 1 + seed % 5)) * 0.5
    centers = X[rng.choice(200, 1 + 5 * seed)] + rng.integers(0, 2)
    sweep = nearest_sweep(X, None, centers, 1)
    labels, distances = nearest_of_few(X, centers)
    assert np.array_equal(labels, sweep.labels)
    assert np.array_equal(distances, sweep.assigned_distances())


def test_few_rows_beyond_the_range_are_left_to_a_sweep():
    for scale in (1e-150, 1e70, 1e200):
        assert nearest_of_few(scale * np.eye(3), np.zeros((1, 3))) is None
    assert nearest_of_few(np.ones((2, 3)), np.ones((1, 3))) is None  # whether they differ by 1e-170
    assert nearest_of_few(np.eye(3), np.zeros((1, 3))) is not None


def test_all_distances_of_what_does_not_match():
    X = np.zeros((3, 2))
    with pytest.raises(ValueError, match="centers must be some, of 2 columns, got 0 of 2"):
        nearest_of_few(X, np.zeros((0, 2)))
    with pytest.raises(ValueError, match="centers must be some, of 2 columns, got 1 of 3"):
        nearest_of_few(X, np.zeros((1, 3)))
    for shape in ((3, 2), (2, 1)):
        with pytest.raises(ValueError, match="X, centers and out must match"):
            distances_to_centers(X, np.zeros((1, 2)), np.zeros(shape), 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("d", "k"), [(1, 9), (2, 40), (3, 80), (3, 90), (5, 69), (5, 71), (7, 20)])
def test_few_numbers_in_centers(d, k, dtype):
    """Labels are those of exact distances whether or not there is a second test of a point.

    Rows are points of a lattice, and so are centers at first: many rows are as far from one as
    from another, and the lowest of these has to win.
    """
    rng = np.random.default_rng(k)
    X = rng.integers(0, max(2, int(600 ** (1 / d))), size=(3001, d)).astype(dtype)
    X[:, 0] += 100.0
    centers = np.unique(X, axis=0)[:k].astype(float)
    sweep = sweep_over(X, DPSweep)
    sweep.start(centers)
    for _ in range(12):
        centers = sweep.centers
        sweep.create(1e30, 10**6)
        assert np.array_equal(sweep.labels, nearest(X.astype(float), centers))
        sweep.move_centers()
