"""What the compiled sweeps promise in whatever order their methods are called."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from smallvar._sweeps.dpmeans import DPSweep
from smallvar._sweeps.merge import MergeSweep

from smallvar._core.frame import RowsFrame


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
    for turn in range(12):
        sweep.assign()
        if turn % 3 == 0:
            sweep.cluster_sums()
        opened += sweep.open_farthest()
        if turn % 3 == 1:
            sweep.present_sums()
        if turn % 3 == 2:
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


def test_images_are_those_of_dense_rows():
    X = csr_array(np.eye(6))
    sweep = sweep_over(X, bounds=False)
    sweep.start(np.zeros((1, 6)))
    sweep.assign()
    W = np.ones((1, 6), dtype=np.float32)
    with pytest.raises(ValueError, match="dense"):
        sweep.residuals(W)
    assert sweep.residuals()[0].shape == (6,)
