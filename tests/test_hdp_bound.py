"""hdp_bound: its formula, never above an objective, weights, kernels, bad input."""

import numpy as np
import pytest
import twins.hdp
from helpers import seeds
from sklearn.metrics.pairwise import rbf_kernel
from test_divergence_hdp import SQUARED, given, optimum, problem

from smallvar import KernelHDPMeans, hdp_bound
from smallvar._centers import hdp_bound as module


@seeds(60)
def test_equals_twin(seed):
    X, groups, penalties, weights = problem(SQUARED, seed)
    bound = hdp_bound(X, groups, *penalties, sample_weight=weights)
    w = np.ones(len(X)) if weights is None else weights
    twin = twins.hdp.bound(X, groups, *penalties, w, np.linspace(0, 1, 11))
    np.testing.assert_allclose(bound, twin, rtol=1e-9)
    model = given(penalties, n_init=3, random_state=0).fit(X, groups=groups, sample_weight=weights)
    assert bound <= model.objective_ * (1 + 1e-9)
    options = {"sample_weight": weights, "kernel": "precomputed"}
    np.testing.assert_allclose(hdp_bound(X @ X.T, groups, *penalties, **options), bound, rtol=1e-6)
    if weights is not None:  # in units of 1/2, rows of weight w are w equal rows
        times, doubled = (2 * weights).astype(int), 2 * np.array(penalties)
        again = hdp_bound(X.repeat(times, axis=0), groups.repeat(times), *doubled)
        np.testing.assert_allclose(again, 2 * bound, rtol=1e-9)
        rows, far = np.append(weights, 0.0), np.vstack((X, X[:1] + 9.0))
        idle = hdp_bound(far, np.append(groups, 99), *penalties, sample_weight=rows)
        np.testing.assert_allclose(idle, bound, rtol=1e-9)


@seeds(60)
def test_never_above_the_optimum(seed):
    X, groups, penalties, _ = problem(SQUARED, 4 * seed, 8)
    best = optimum(X, groups, penalties, SQUARED)
    assert 0.0 < hdp_bound(X, groups, *penalties) <= best * (1 + 1e-9)


def test_bounds_of_a_kernel_and_of_eigenvalues(monkeypatch):
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(90, 3)) + 4 * (np.arange(90) % 3)[:, None], np.arange(90) % 6
    model = KernelHDPMeans(lam_local=0.5, lam_global=3.0, kernel="rbf", gamma=0.1, random_state=0)
    objective, K = model.fit(X, groups=groups).objective_, rbf_kernel(X, gamma=0.1)
    assert 0.5 * objective < hdp_bound(K, groups, 0.5, 3.0, kernel="precomputed") <= objective
    both = hdp_bound(X, groups, 1.0, 20.0)
    monkeypatch.setattr(module, "MOST_PAIRED_ROWS", 1)  # eigenvalues alone, of which there are 3
    assert 0.0 < hdp_bound(X, groups, 1.0, 20.0) < 0.9 * both


BAD = {
    "lam_local must be > 0, got 0": (0.0, 1.0),
    "lam_global must be finite, got inf": (1.0, np.inf),
    "lam_global must be a number, got 'auto'": (1.0, "auto"),
    "kernel must be one of 'linear', 'precomputed', got 'rbf'": (1.0, 1.0, "rbf"),
    "X must be a square Gram matrix": (1.0, 1.0, "precomputed"),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input(message):
    lam_local, lam_global, *kernel = BAD[message]
    with pytest.raises((ValueError, TypeError), match=message):
        hdp_bound([[0.0], [1]], [0, 1], lam_local, lam_global, kernel=(kernel or ["linear"])[0])
    with pytest.raises(ValueError, match="X must be positive semi-definite"):
        hdp_bound([[0.0, 1.0], [1.0, 0.0]], [0, 1], 1.0, 1.0, kernel="precomputed")
