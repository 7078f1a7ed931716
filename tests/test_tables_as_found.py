"""The number of clusters of tables as people have them: flags, codes, skewed columns, many rows."""

import numpy as np
import pytest
from generated import (
    CLOUDS,
    centers_apart,
    filled,
    flags,
    grid_clusters,
    jittered,
    latent_classes,
    one_hot,
    questionnaire,
    round_clusters,
    zero_inflated,
)
from helpers import seeds
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import scale

from smallvar import DPMeans


def fitted(X, sample_weight=None):
    return DPMeans(random_state=0).fit(X, sample_weight=sample_weight)


def number_of(X, sample_weight=None):
    return fitted(X, sample_weight).n_clusters_


def right_of_ten(table, k):
    """In how many of ten seeds the number of the table is found."""
    return sum(number_of(table(np.random.default_rng(seed))) == k for seed in range(10))


@pytest.mark.parametrize("spread", [0.20, 0.22])
@pytest.mark.parametrize("n", [10_000, 100_000])
@seeds(3)
def test_a_grid_of_a_hundred(n, spread, seed):
    X, _ = grid_clusters(np.random.default_rng(seed), n, spread)
    assert abs(number_of(X) - 100) <= 2


@seeds(2)
def test_four_hundred(seed):
    X, labels = round_clusters(np.random.default_rng(seed), 400, 16_000, 8)
    model = fitted(X)
    assert abs(model.n_clusters_ - 400) <= 8
    assert adjusted_rand_score(labels, model.labels_) > 0.9


@pytest.mark.long
@pytest.mark.parametrize(("k", "d"), [(500, 8), (1000, 16)])
@seeds(3)
def test_hundreds(k, d, seed):
    X, labels = round_clusters(np.random.default_rng(seed), k, 20_000, d)
    model = fitted(X)
    assert abs(model.n_clusters_ - k) <= 0.02 * k
    assert adjusted_rand_score(labels, model.labels_) > 0.9


@seeds(10)
def test_blobs_and_a_flag(seed):
    rng = np.random.default_rng(seed)
    X, labels = round_clusters(rng, 4)
    model = fitted(np.hstack([X, flags(rng, 1000, 1)]))
    assert model.n_clusters_ == 4
    assert adjusted_rand_score(labels, model.labels_) > 0.9


@seeds(10)
def test_blobs_and_a_category(seed):
    """In the units of the blobs a level is as far from another as rows of a blob are."""
    rng = np.random.default_rng(seed)
    X, _ = round_clusters(rng, 4)
    model = fitted(np.hstack([X, one_hot(rng.integers(5, size=(1000, 1)), 5)]))
    assert model.n_clusters_ == 4 or model.path_.confidence < 0.5


@seeds(10)
def test_gaussians_and_flags_scaled(seed):
    rng = np.random.default_rng(seed)
    X, labels = round_clusters(rng, 3)
    model = fitted(scale(np.hstack([X, flags(rng, 1000)])))
    assert model.n_clusters_ == 3
    assert adjusted_rand_score(labels, model.labels_) > 0.9


def blobs_and_years(rng, k):
    X, labels = round_clusters(rng, k)
    return np.hstack([X, rng.integers(2007, 2010, size=(1000, 1))]), labels


@pytest.mark.parametrize("jitter", [0.0, 1e-12, 1e-9, 1e-6])
@pytest.mark.parametrize("k", [3, 6])
@seeds(6)
def test_blobs_and_years(k, jitter, seed):
    rng = np.random.default_rng(seed)
    X, labels = blobs_and_years(rng, k)
    model = fitted(jittered(rng, X, jitter))
    assert model.n_clusters_ == k
    assert adjusted_rand_score(labels, model.labels_) > 0.9


@pytest.mark.parametrize("k", [3, 6])
def test_blobs_and_years_with_means_filled_in(k):
    assert right_of_ten(lambda rng: filled(rng, blobs_and_years(rng, k)[0]), k) >= 8


@pytest.mark.parametrize("d", [2, 3, 6])
@seeds(6)
def test_copies_of_three_rows(d, seed):
    rows = centers_apart(np.random.default_rng(seed), 3, d, 1.0)
    model = fitted(np.repeat(rows, 50, axis=0))
    assert np.array_equal(np.bincount(model.labels_), [50, 50, 50])
    assert np.all(np.ptp(model.labels_.reshape(3, 50), axis=1) == 0)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_codes_alone(k):
    assert right_of_ten(lambda rng: one_hot(latent_classes(rng, k)[0], 5), k) >= 8


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_items_of_a_questionnaire(k):
    assert right_of_ten(lambda rng: questionnaire(rng, k)[0], k) >= 8


@pytest.mark.parametrize("d", [2, 4, 8])
@pytest.mark.parametrize("cloud", CLOUDS)
@seeds(4)
def test_one_skewed_cloud(cloud, d, seed):
    rng = np.random.default_rng(seed)
    assert number_of(CLOUDS[cloud](rng, 1500, d)) == 1


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("k", [3, 6])
@seeds(4)
def test_blobs_and_zero_inflated_columns(k, scaled, seed):
    rng = np.random.default_rng(seed)
    X, _ = round_clusters(rng, k)
    X = np.hstack([X, zero_inflated(rng, 1000, X.std())])
    assert number_of(scale(X) if scaled else X) == k


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("k", [3, 6])
@seeds(4)
def test_blobs_and_a_skewed_column(k, scaled, seed):
    rng = np.random.default_rng(seed)
    X, _ = round_clusters(rng, k)
    X = np.hstack([X, np.exp(rng.normal(size=(1000, 1)))])
    assert number_of(scale(X) if scaled else X) == k


@pytest.mark.parametrize("n", [1, 2, 3, 40])
@pytest.mark.parametrize("value", [0.0, 1.0 / 3.0, -1e12])
def test_all_columns_constant(value, n):
    model = fitted(np.full((n, 3), value))
    assert model.n_clusters_ == model.path_.best == 1
    assert not model.labels_.any()
    assert model.inertia_ == 0.0


def test_two_values():
    rng = np.random.default_rng(0)
    pairs = np.repeat([[0.0, 5.0, 1.0], [1.0, 2.0, 0.0]], 50, axis=0)
    assert np.array_equal(np.bincount(fitted(pairs).labels_), [50, 50])
    assert number_of(pairs[:, :1]) <= 2
    independent = flags(rng, 500, 3)  # 8 distinct rows
    model = fitted(independent)
    assert 1 <= model.n_clusters_ <= 8
    assert model.n_clusters_ == 1 or model.n_clusters_ == 8 or model.path_.confidence < 0.5
    many = flags(rng, 1000, 12)
    assert number_of(many) == 1
    assert number_of(3.0 * many - 7.0) == 1


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("d", [1, 2, 5])
@seeds(5)
def test_hardly_any_rows(n, d, seed):
    X = np.random.default_rng(seed).normal(size=(n, d))
    model = fitted(X)
    assert 1 <= model.n_clusters_ == len(np.unique(model.labels_)) <= n
    assert np.array_equal(model.path_.labels(model.path_.best), model.labels_)


@seeds(4)
def test_rows_without_weight(seed):
    """They change nothing, whatever is in them."""
    rng = np.random.default_rng(seed)
    X, labels = round_clusters(rng, 4, n=400)
    X = np.hstack([X, flags(rng, 400), np.exp(rng.normal(size=(400, 1)))])
    far = np.where(rng.random((40, X.shape[1])) < 0.5, 0.0, 50.0 * X.std() * rng.random())
    place = np.sort(rng.integers(400, size=40))
    wide, weight = np.insert(X, place, far, axis=0), np.insert(np.ones(400), place, 0.0)
    plain, model = fitted(X), fitted(wide, weight)
    assert plain.n_clusters_ == model.n_clusters_ == 4
    assert np.array_equal(model.labels_[weight > 0], plain.labels_)
    assert adjusted_rand_score(labels, plain.labels_) > 0.9


@pytest.mark.parametrize("bad", [np.nan, np.inf, "a"])
def test_what_is_no_number_is_refused(bad):
    X = np.array([[0.0, 1.0], [1.0, bad], [0.0, 3.0]], dtype=object)
    if not isinstance(bad, str):
        X = X.astype(float)
    with pytest.raises(ValueError, match="finite|NaN|infinity|number|float"):
        fitted(X)


@pytest.mark.parametrize("factor", [0.01, 100.0, 1 / 3])
@pytest.mark.parametrize("beside", ["flags", "skewed", "zeros"])
@seeds(4)
def test_a_factor_of_the_weights(beside, factor, seed):
    rng = np.random.default_rng(seed)
    X, _ = round_clusters(rng, 4)
    columns = {
        "flags": lambda: flags(rng, 1000),
        "skewed": lambda: np.exp(rng.normal(size=(1000, 1))),
        "zeros": lambda: zero_inflated(rng, 1000, X.std()),
    }
    X = np.hstack([X, columns[beside]()])
    weight = rng.uniform(0.5, 2.0, size=1000)
    plain, model = fitted(X, weight), fitted(X, factor * weight)
    assert model.n_clusters_ == plain.n_clusters_ == 4
    assert np.array_equal(model.labels_, plain.labels_)
    assert np.array_equal(model.path_.counts, plain.path_.counts)
    np.testing.assert_allclose(model.path_.confidence, plain.path_.confidence, rtol=1e-9)
