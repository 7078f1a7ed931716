"""hdp_bound: its formula, never above an objective, weights, kernels, bad input."""

import numpy as np
import pytest
import twins.hdp
from helpers import seeds
from sklearn.metrics.pairwise import rbf_kernel
from test_divergence_hdp import SQUARED, optimum
from test_hdp import problem

from smallvar import HDPMeans, KernelHDPMeans, hdp_bound
from smallvar._centers import hdp_bound as module


def data(seed, n_max=40):
    """A problem near 0, and weights or None."""
    X, groups, *penalties = problem(8 * seed + seed % 6, n_max)
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 4, len(X)).astype(float) if seed % 3 == 2 else None
    if weights is not None:
        weights[0] = 1.0
    return np.asarray(X, dtype=float), groups, penalties, weights


@seeds(60)
def test_equals_twin(seed):
    X, groups, penalties, weights = data(seed)
    bound = hdp_bound(X, groups, *penalties, sample_weight=weights)
    w = np.ones(len(X)) if weights is None else weights
    on = w > 0
    twin = twins.hdp.bound(X[on], groups[on], *penalties, w[on], np.linspace(0, 1, 11))
    np.testing.assert_allclose(bound, twin, rtol=1e-7)
    # every clustering is above it
    model = HDPMeans(lam_local=penalties[0], lam_global=penalties[1], n_init=3, random_state=0)
    model.fit(X, groups=groups, sample_weight=weights)
    assert bound <= model.objective_ * (1 + 1e-9)
    centered = X - X.mean(axis=0)
    gram = hdp_bound(
        centered @ centered.T, groups, *penalties, sample_weight=weights, kernel="precomputed"
    )
    np.testing.assert_allclose(gram, bound, rtol=1e-6)
    if weights is not None:  # rows of weight w are w equal rows
        times = weights.astype(int)
        again = hdp_bound(X.repeat(times, axis=0), groups.repeat(times), *penalties)
        np.testing.assert_allclose(again, bound, rtol=1e-7)


@seeds(60)
def test_never_above_the_optimum(seed):
    X, groups, penalties, _ = data(seed, 8)
    best = optimum(X, np.asarray(groups), penalties, SQUARED)
    bound = hdp_bound(X, groups, *penalties)
    assert 0.0 < bound <= best * (1 + 1e-9)
    if len(X) == 1:
        assert bound == pytest.approx(sum(penalties))


def test_bound_of_a_kernel_and_of_eigenvalues(monkeypatch):
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(90, 3)) + 4 * (np.arange(90) % 3)[:, None], np.arange(90) % 6
    model = KernelHDPMeans(lam_local=0.5, lam_global=3.0, kernel="rbf", gamma=0.1, random_state=0)
    model.fit(X, groups=groups)
    K = rbf_kernel(X, gamma=0.1)
    bound = hdp_bound(K, groups, 0.5, 3.0, kernel="precomputed")
    assert 0.5 * model.objective_ < bound <= model.objective_
    both = hdp_bound(X, groups, 1.0, 20.0)
    monkeypatch.setattr(module, "MOST_PAIRED_ROWS", 1)  # eigenvalues alone, of which X has three
    assert 0.0 < hdp_bound(X, groups, 1.0, 20.0) < 0.9 * both
    assert hdp_bound(K, groups, 0.5, 3.0, kernel="precomputed") <= bound


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((0.0, 1.0), {}, ValueError, "lam_local must be > 0, got 0"),
        ((1.0, np.inf), {}, ValueError, "lam_global must be finite, got inf"),
        ((1.0, "auto"), {}, TypeError, "lam_global must be a number, got 'auto'"),
        ((1.0, 1.0), {"kernel": "rbf"}, ValueError, "kernel must be one of 'linear', 'precomp"),
        ((1.0, 1.0), {"kernel": "precomputed"}, ValueError, "X must be a square Gram matrix"),
        ((1.0, 1.0), {"sample_weight": [0, 0, 0]}, ValueError, "sample_weight must have a pos"),
    ],
)
def test_bad_input(arguments, options, error, message):
    with pytest.raises(error, match=message):
        hdp_bound([[0.0], [1.0], [2.0]], [0, 0, 1], *arguments, **options)
