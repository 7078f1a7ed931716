"""The number of clusters: own shapes, columns of noise, and the evidence of boundaries."""

import numpy as np
import pytest
import scipy.sparse
import twins.path
from helpers import seeds
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import scale

from smallvar import (
    DPMeans,
    MahalanobisMeans,
    MiniBatchDPMeans,
    MixedDPMeans,
    RobustDPMeans,
    ShapeMeans,
    boundary_evidence,
    cluster_path,
)
from smallvar._core.frame import RowsFrame
from smallvar._selection.column_selection import differing_columns, selection_price
from smallvar._selection.criterion import DensityCriterion
from smallvar._selection.own_shapes import OwnShapes
from smallvar._selection.touching import support


def judged(kind, seed):
    """Rows, weights and labels: continuous, in steps, with columns that follow from others."""
    rng = np.random.default_rng(seed)
    n, d, k = 300, 4, 3
    labels = np.sort(rng.integers(k, size=n)).astype(np.int32)
    X = rng.normal(size=(n, d)) * rng.uniform(0.5, 3, size=(k, d))[labels]
    X += 4 * rng.normal(size=(k, d))[labels]
    weights = rng.integers(1, 4, size=n).astype(float) if kind == "weights" else np.ones(n)
    if kind == "steps":
        X = np.round(X)
    if kind == "rank":
        X = np.column_stack([X, X[:, :2].sum(axis=1)])
    return X.astype(np.float32) if kind == "float32" else X, weights, labels


@pytest.mark.parametrize("kind", ["plain", "weights", "steps", "rank", "float32"])
@seeds(6)
def test_own_shapes_equal_twin(kind, seed):
    X, weights, labels = judged(kind, seed)
    criterion = DensityCriterion(RowsFrame(X, weights if kind == "weights" else None, 1))
    shapes, X = OwnShapes(criterion), X.astype(float)
    about = twins.path.described(X, weights)
    for k in (1, 2, 3):
        some = np.minimum(labels, k - 1)
        expected = twins.path.own_shapes(X, weights, some, about)
        # the likelihood of a t density is that of squares in bins
        assert shapes(some, k) == pytest.approx(expected, abs=2e-3 * np.log(about.u))


def test_clusters_long_in_directions_of_their_own():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(600, 3))
    X[:300, 0] *= 4
    X[300:, 1] *= 4
    X[300:, 2] += 12
    for seed in range(3):
        model = DPMeans(random_state=seed).fit(X)
        assert model.n_clusters_ == 2 and model.path_.confidence > 0.8
        assert adjusted_rand_score(model.labels_, np.repeat([0, 1], 300)) == 1.0


@seeds(4)
def test_groups_of_skewed_columns_of_unequal_spread(seed):
    rng = np.random.default_rng(seed)
    truth = np.repeat([0, 1], 40)
    X = rng.normal(size=(80, 60))
    X[:, :20] += 2.5 * truth[:, None]
    model = DPMeans(random_state=0).fit(np.exp(0.8 * X))
    assert model.n_clusters_ == 2 and adjusted_rand_score(model.labels_, truth) > 0.9


def among_noise(seed, n_noise):
    """Five clusters in four columns, beside columns of noise; all columns scaled."""
    rng = np.random.default_rng(seed)
    centers = np.zeros((1, 4))
    while len(centers) < 5:  # at least 7 standard deviations apart
        new = rng.uniform(0.0, 12.5, size=4)
        if np.linalg.norm(centers - new, axis=1).min() > 7.0:
            centers = np.vstack([centers, new])
    truth = rng.integers(5, size=600)
    X = np.hstack([centers[truth] + rng.normal(size=(600, 4)), rng.normal(size=(600, n_noise))])
    return scale(X), truth


@pytest.mark.parametrize("n_noise", [30, 100])
@seeds(4)
def test_clusters_beside_columns_of_noise(n_noise, seed):
    X, truth = among_noise(seed, n_noise)
    model = DPMeans(random_state=0).fit(X)
    path = model.path_
    assert model.n_clusters_ == 5 and adjusted_rand_score(model.labels_, truth) > 0.98
    assert path.noise_columns.tolist() == list(range(4, 4 + n_noise))
    # all centers are the mean of the rows in these columns; labels, error and path go with that
    noise = path.noise_columns
    np.testing.assert_allclose(
        model.cluster_centers_[:, noise], np.tile(X[:, noise].mean(axis=0), (5, 1)), atol=1e-12
    )
    assert np.array_equal(model.predict(X), model.labels_)
    assert np.array_equal(path.labels(5), model.labels_)
    error = np.square(X - model.cluster_centers_[model.labels_]).sum()
    assert model.inertia_ == pytest.approx(error, rel=1e-10)
    assert path.inertia[path.counts == 5] == pytest.approx(error, rel=1e-10)
    assert model.objective_ == pytest.approx(error + 5 * model.lam_, rel=1e-10)
    sparse = DPMeans(random_state=0).fit(scipy.sparse.csr_array(X))
    assert np.array_equal(sparse.labels_, model.labels_)
    np.testing.assert_allclose(sparse.cluster_centers_, model.cluster_centers_, atol=1e-9)
    assert cluster_path(X, random_state=0).best == 5


@seeds(3)
def test_columns_of_noise_with_weights(seed):
    """A row of weight 2 is two rows; rows of weight 0 are none."""
    X, _ = among_noise(seed, 40)
    weights = np.random.default_rng(seed).integers(0, 3, size=len(X))
    one = DPMeans(random_state=0).fit(X, sample_weight=weights)
    two = DPMeans(random_state=0).fit(np.repeat(X, weights, axis=0))
    assert one.n_clusters_ == two.n_clusters_ == 5
    assert np.array_equal(one.path_.noise_columns, two.path_.noise_columns)
    assert one.inertia_ == pytest.approx(two.inertia_, rel=1e-9)
    np.testing.assert_allclose(one.cluster_centers_.mean(axis=0), two.cluster_centers_.mean(axis=0))


@pytest.mark.parametrize(("seed", "d"), [(180, 17), (752, 20)])
def test_rows_left_out_make_columns_constant(seed, d):
    """Five rows of many columns in steps: fewer coordinates than columns that vary."""
    rng = np.random.default_rng(seed)
    n, _ = int(rng.integers(4, 9)), rng.integers(9, 24)
    X = 3.0 * rng.normal(size=(2, d))[rng.integers(2, size=n)]
    X = np.round(X + 0.3 * rng.normal(size=(n, d)))
    model = DPMeans(random_state=0).fit(X)
    assert X.shape == (5, d)
    assert 1 <= model.n_clusters_ <= 2
    assert (model.predict(X) == model.labels_).all()


@seeds(3)
def test_few_rows_of_many_columns(seed):
    rng = np.random.default_rng(seed)
    truth, means = np.repeat(np.arange(3), 20), np.zeros((3, 300))
    means[:, :30] = 1.6 * rng.normal(size=(3, 30))
    model = DPMeans(random_state=0).fit(means[truth] + rng.normal(size=(60, 300)))
    assert model.n_clusters_ == 3 and adjusted_rand_score(model.labels_, truth) > 0.9


def test_no_columns_of_noise_where_all_tell():
    X = make_blobs(300, 6, centers=4, random_state=0)[0]
    assert not len(DPMeans(random_state=0).fit(X).path_.noise_columns)
    one = DPMeans(random_state=0).fit(np.random.default_rng(0).normal(size=(200, 20)))
    assert one.n_clusters_ == 1 and not len(one.path_.noise_columns)


def test_selected_columns():
    X, truth = among_noise(0, 10)
    criterion = DensityCriterion(RowsFrame(X, None, 1))
    labels = truth.astype(np.int32)
    assert differing_columns(criterion, [(labels, 5)]).tolist() == [0, 1, 2, 3]
    chance = np.random.default_rng(0).integers(5, size=len(X)).astype(np.int32)
    assert differing_columns(criterion, [(chance, 5)]) is None
    assert differing_columns(DensityCriterion(RowsFrame(X[:, :4], None, 1)), [(labels, 5)]) is None
    # first a size, each as likely, then one of the selections of this size
    assert selection_price(1, 2) == pytest.approx(2 * np.log(4 * 3))


# The evidence of boundaries ------------------------------------------------------------------


@seeds(4)
def test_two_clusters_three_deviations_apart(seed):
    rng = np.random.default_rng(seed)
    truth = np.repeat([0, 1], 1500)
    X = rng.normal(size=(3000, 4))
    X[:, 0] += 3 * truth
    model = DPMeans(random_state=0).fit(X)
    assert model.n_clusters_ == 2 and adjusted_rand_score(model.labels_, truth) > 0.6
    assert model.path_.confidence >= 0.5  # a gap does not say that there are no others
    assert DPMeans(max_clusters=1, random_state=0).fit(X).n_clusters_ == 1


SINGLE = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "uniform": lambda rng, shape: rng.random(shape),
    "t": lambda rng, shape: rng.standard_t(4, size=shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
    "lognormal": lambda rng, shape: np.exp(0.8 * rng.normal(size=shape)),
    "counts": lambda rng, shape: rng.poisson(rng.gamma(2, 1.5, size=shape)).astype(float),
}


@pytest.mark.parametrize("kind", SINGLE)
@pytest.mark.parametrize("shape", [(60, 3), (400, 12), (2000, 6)])
def test_single_clusters(kind, shape):
    for seed in range(3):
        X = scale(SINGLE[kind](np.random.default_rng(seed), shape))
        path = DPMeans(random_state=0).fit(X).path_
        assert path.best == 1
        assert path.confidence == path.confidences[0] >= path.confidences.max()


def test_confidence_in_one_cluster_needs_evidence():
    """The criterion alone says nothing of a gap: at most 1/2 without evidence against one."""
    rng = np.random.default_rng(0)
    normal, uniform = rng.normal(size=(3000, 3)), rng.random((3000, 1))
    assert DPMeans(random_state=0).fit(normal).path_.confidence <= 0.5
    assert DPMeans(random_state=0).fit(uniform).path_.confidence > 0.8


def test_support_is_that_of_clusters_beside_each_other():
    X, truth = make_blobs(400, centers=[[0, 0], [8, 0], [16, 0]], random_state=0)
    labels = truth.astype(np.int32)
    assert support(X, None, labels, 3) == 1.0
    cut = labels.copy()
    cut[(labels == 1) & (X[:, 1] > 0)] = 3
    assert support(X, None, cut, 4) == pytest.approx(0.75, abs=0.1)  # evidence 0 for two
    assert np.isnan(support(X, None, np.zeros(400, dtype=np.int32), 1))
    for empty in (0, 1, 3):  # a number without rows
        gap = (labels + (labels >= empty)).astype(np.int32)
        assert np.isnan(support(X, None, gap, 4))


@seeds(3)
def test_pieces_of_few_clusters_become_those_with_gaps(seed):
    """Far rows and heavy, uneven tails make the criterion cut clusters to pieces."""
    rng = np.random.default_rng(seed)
    truth = np.repeat([0, 1], [900, 300])
    X = np.round(rng.standard_t(1.2, size=(1200, 4)) * [2, 1, 1, 1], 1)
    X = np.clip(X, -60, 60)
    X[:, 0] += 150 * truth
    model = DPMeans(random_state=0).fit(X)
    assert adjusted_rand_score(model.labels_, truth) > 0.5


@pytest.mark.parametrize("weight", [[2.0, 0.0, 0.0, 0.0], [1e-9, 1.0, 1e-9, 0.0]])
def test_rows_of_weight_that_are_equal(weight):
    """Rows that differ have no weight, or hardly any."""
    X = [[0.0], [2.0], [2.0], [0.0]]
    model = DPMeans(random_state=0).fit(X, sample_weight=weight)
    assert model.n_clusters_ in (1, 2) and np.isfinite(model.cluster_centers_).all()


@pytest.mark.parametrize(
    "make",
    [DPMeans, MahalanobisMeans, MiniBatchDPMeans, MixedDPMeans, RobustDPMeans, ShapeMeans],
)
@pytest.mark.parametrize("k", [2, 4])
def test_groups_far_apart(make, k):
    """However tight they are: values of a group are no single value with jitter."""
    truth, before, sure = np.repeat(np.arange(k), 60), 0.0, 0.7
    rest = np.random.default_rng(k).normal(size=(60 * k, 2))
    for spread in (0.1, 1e-3, 1e-6):
        X = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])[truth] + spread * rest
        model = make(random_state=0).fit(X)
        assert adjusted_rand_score(truth, model.labels_) == 1.0
        path = getattr(model, "path_", None)
        confidence = getattr(model, "confidence_", None if path is None else path.confidence)
        assert confidence is None or confidence > sure - 0.02
        sure = confidence
        evidence = boundary_evidence(X, truth).evidence.min()
        assert evidence > 0.99 * before
        before = evidence


def test_flags_with_jitter_are_no_groups():
    """Columns of two values but for a rest of rounding, beside clusters in other columns."""
    rng = np.random.default_rng(0)
    X, truth = make_blobs(600, n_features=3, centers=4, random_state=2)
    flags = (rng.random((600, 3)) < 0.4) + 1e-9 * rng.normal(size=(600, 3))
    model = DPMeans(random_state=0).fit(scale(np.hstack([X, flags])))
    assert adjusted_rand_score(truth, model.labels_) > 0.95
