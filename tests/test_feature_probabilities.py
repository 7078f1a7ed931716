"""predict_proba of features: equal to the twin, to answers by hand, and as frequent as it says."""

import numpy as np
import pytest
import twins.features

from smallvar import BPMeans, KFeatures

FEATURES = np.array([[3.0, 0.0, 1.0, 0.0], [0.0, 3.0, 1.0, 0.0], [0.0, 0.0, 2.0, 2.0]])


def drawn(seed, n=200, shares=(0.3, 0.5, 0.6), noise=1.0):
    """Rows with random features, and who has which."""
    rng = np.random.default_rng(seed)
    Z = rng.random((n, len(FEATURES))) < shares
    return Z @ FEATURES + noise * rng.standard_normal((n, FEATURES.shape[1])), Z


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_twin(seed, weighted):
    X, _ = drawn(seed)
    w = np.random.default_rng(seed).integers(0, 4, len(X)).astype(float) if weighted else None
    model = KFeatures(n_components=3, n_init=2, random_state=0).fit(X, sample_weight=w)
    new = drawn(seed + 1000, 50)[0]
    noise = twins.features.noise_variance(X, model.assignments_, model.components_, w)
    odds = twins.features.log_odds(model.assignments_, w)
    A, Z = model.components_, model.transform(new)
    expected = twins.features.probabilities(new, Z, A, noise, odds)
    np.testing.assert_allclose(model.predict_proba(new), expected, rtol=1e-9, atol=1e-12)


def test_by_hand():
    """One feature, 10, of half of four rows, each off by 1: s^2 = 4 / (4 - 1)."""
    X = np.array([[1.0], [-1.0], [9.0], [11.0]])
    model = KFeatures(n_components=1, init=np.array([[0], [0], [1], [1]]), random_state=0).fit(X)
    np.testing.assert_allclose(model.components_, [[10.0]], rtol=1e-12)
    x = np.array([[4.0], [5.0], [5.5]])
    log_odds = (x**2 - (x - 10.0) ** 2) / (2.0 * 4.0 / 3.0)
    np.testing.assert_allclose(model.predict_proba(x), 1.0 / (1.0 + np.exp(-log_odds)), rtol=1e-12)


def test_weight_two_is_two_rows():
    X, _ = drawn(0, 60)
    w = np.random.default_rng(0).integers(1, 3, len(X))
    options = {"n_components": 3, "n_init": 3, "random_state": 0}
    weighted = KFeatures(**options).fit(X, sample_weight=w)
    order = np.repeat(np.arange(len(X)), w)
    repeated = KFeatures(init=weighted.assignments_[order], **options | {"n_init": 1}).fit(X[order])
    np.testing.assert_allclose(repeated.components_, weighted.components_, atol=1e-9)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("unit", [1e-120, 1e-3, 1e100])
def test_no_unit_matters(unit):
    """But for the order of features: of starts equal but for rounding, another may be the best."""
    X, _ = drawn(0)
    model = BPMeans(random_state=0).fit(X)
    scaled = BPMeans(random_state=0).fit(unit * X)
    assert model.n_components_ == scaled.n_components_ > 1
    probability, of_scaled = (
        m.predict_proba(x)[:, m.components_[:, 0].argsort()]
        for m, x in ((model, X), (scaled, unit * X))
    )
    np.testing.assert_allclose(probability, of_scaled, rtol=1e-6, atol=1e-9)


def test_without_noise_and_without_a_row_that_differs():
    """Exact data: 0 and 1. A feature of all rows is likely, but not certain."""
    Z = np.array([[1, 0], [1, 1], [1, 0], [1, 1], [1, 1]])
    X = (Z @ [[4, 0, 2], [0, 3, 1]]).astype(float)
    model = KFeatures(n_components=2, init=Z, random_state=0).fit(X)
    np.testing.assert_allclose(model.predict_proba(X), Z, atol=1e-12)
    far = model.predict_proba([[1e100, -1e100, 0.0]])
    assert np.isfinite(far).all()
    assert set(far.ravel()) <= {0.0, 1.0}
    # halfway between with and without it, the share decides: (5 + 1/2) / (5 + 1)
    noisy = KFeatures(n_components=1, init=np.ones((5, 1)), random_state=0).fit(
        X + np.random.default_rng(0).standard_normal(X.shape)
    )
    p = noisy.predict_proba(0.5 * noisy.components_)
    np.testing.assert_allclose(p, 5.5 / 6.0, rtol=1e-9)


def test_no_features_and_constant_columns():
    rng = np.random.default_rng(0)
    none = BPMeans(lam=1e6, random_state=0).fit(rng.standard_normal((30, 3)))
    assert none.predict_proba(np.zeros((4, 3))).shape == (4, 0)
    X, _ = drawn(0)
    model = KFeatures(n_components="auto", random_state=0).fit(X)
    padded = np.column_stack([X, np.full(len(X), 7.0), np.zeros(len(X))])
    wide = KFeatures(n_components="auto", random_state=0).fit(padded)
    np.testing.assert_allclose(wide.predict_proba(padded), model.predict_proba(X), rtol=1e-9)


def test_columns_are_checked_and_blocks_agree():
    X, _ = drawn(0, 3000)
    wide = np.hstack([X] * 60)  # 240 columns: more than one block of rows
    model = KFeatures(n_components=3, n_init=1, n_swaps=0, random_state=0).fit(wide)
    whole = model.predict_proba(wide)
    np.testing.assert_allclose(whole[2500:], model.predict_proba(wide[2500:]), atol=1e-12)
    with pytest.raises(ValueError, match="240 features"):
        model.predict_proba(X)


@pytest.mark.parametrize("noise", [0.7, 1.0])
def test_probabilities_are_frequencies(noise):
    """Of rows with a probability near p, a share near p has the feature; never far more or less."""
    probabilities, truth = [], []
    for seed in range(6):
        X, _ = drawn(seed, 500, noise=noise)
        model = KFeatures(n_components=3, n_init=3, random_state=0).fit(X)
        error = np.square(model.components_[:, None] - FEATURES).sum(axis=2)
        order = error.argmin(axis=0)
        assert sorted(order) == [0, 1, 2]
        assert error.min(axis=0).max() < 0.7
        new, Z = drawn(seed + 100, 500, noise=noise)
        probabilities.append(model.predict_proba(new)[:, order].ravel())
        truth.append(Z.ravel())
    p, has = np.concatenate(probabilities), np.concatenate(truth)
    for low, high in [(0.0, 0.05), (0.05, 0.3), (0.3, 0.7), (0.7, 0.95), (0.95, 1.0)]:
        near = (low <= p) & (p <= high)
        assert near.sum() > 100
        assert abs(has[near].mean() - p[near].mean()) < 0.1
    hard = np.mean((p > 0.5) != has)
    assert np.square(p - has).mean() < 0.9 * hard  # 0 or 1 instead says less
