"""Columns that are constant say nothing: they change no label and no number of clusters."""

import numpy as np
import pytest
from sklearn.base import clone

from smallvar import (
    BPMeans,
    DPMeans,
    HDPMeans,
    KernelDPMeans,
    KFeatures,
    MahalanobisMeans,
    RobustDPMeans,
    ShapeMeans,
    SpectralDPMeans,
    feature_path,
)


def blobs():
    rng = np.random.default_rng(0)
    X = np.repeat([[-8.0, 0.0], [0.0, 9.0], [7.0, -6.0], [9.0, 8.0]], 40, axis=0)
    return (X + rng.normal(size=X.shape))[rng.permutation(160)]


def sums():
    rng = np.random.default_rng(0)
    Z, A = rng.integers(0, 2, size=(100, 3)), 4 * rng.normal(size=(3, 6))
    return Z @ A + 0.3 * rng.normal(size=(100, 6))


MODELS = {
    "DPMeans": (DPMeans(random_state=0), blobs()),
    "DPMeans farthest-first": (DPMeans(lam="farthest-first"), blobs()),
    "RobustDPMeans": (RobustDPMeans(random_state=0), blobs()),
    "ShapeMeans": (ShapeMeans(random_state=0), blobs()),
    "ShapeMeans 3": (ShapeMeans(n_clusters=3, random_state=0), blobs()),
    "HDPMeans": (HDPMeans(random_state=0), blobs()),
    "KernelDPMeans": (KernelDPMeans(), blobs()),
    "SpectralDPMeans": (SpectralDPMeans(random_state=0), blobs()),
    "SpectralDPMeans linear": (SpectralDPMeans(kernel="linear", random_state=0), blobs()),
    "MahalanobisMeans": (MahalanobisMeans(n_init=3, random_state=0), blobs()),
    "MahalanobisMeans 3": (MahalanobisMeans(3, n_init=3, random_state=0), blobs()),
    "MahalanobisMeans clusters": (
        MahalanobisMeans(3, volume="clusters", n_init=3, random_state=0),
        blobs(),
    ),
    "BPMeans": (BPMeans(n_init=3, random_state=0), sums()),
    "KFeatures": (KFeatures("auto", n_init=3, random_state=0), sums()),
}


def result_of(model):
    return model.assignments_ if hasattr(model, "assignments_") else model.labels_


def new_rows_of(model, X):
    return model.transform(X) if hasattr(model, "assignments_") else model.predict(X)


@pytest.mark.parametrize("value", [0.0, 1.0, 1e9])
@pytest.mark.parametrize("case", MODELS)
def test_a_constant_column_changes_no_label(case, value):
    model, X = MODELS[case]
    plain = clone(model).fit(X)
    assert result_of(plain).max() > 0
    for place in (0, 1, X.shape[1]):
        wide = np.insert(X, place, value, axis=1)
        wide = np.insert(wide, 0, -value, axis=1)
        other_model = clone(model).fit(wide)
        assert np.array_equal(result_of(other_model), result_of(plain))
        assert np.array_equal(new_rows_of(other_model, wide[:20]), new_rows_of(plain, X[:20]))
        if case.startswith("ShapeMeans"):
            assert not hasattr(plain, "objective_")
        elif case != "MahalanobisMeans clusters":  # there, log det S of all columns is paid
            np.testing.assert_allclose(other_model.objective_, plain.objective_, rtol=1e-6)


def test_covariances_of_a_constant_column():
    X = blobs()
    plain = MahalanobisMeans(n_init=3, random_state=0, scale=2.0).fit(X)
    wide = np.insert(X, 1, 5.0, axis=1)
    model = MahalanobisMeans(n_init=3, random_state=0, scale=2.0).fit(wide)
    assert model.covariances_.shape == (4, 3, 3)
    assert np.array_equal(model.cluster_centers_, np.insert(plain.cluster_centers_, 1, 5.0, axis=1))
    varying = [0, 2]
    assert np.array_equal(model.covariances_[:, varying][:, :, varying], plain.covariances_)
    assert np.array_equal(model.covariances_[:, 1, 1], np.full(4, model.reg_covar_ / 2.0))
    assert not model.covariances_[:, 1, varying].any()
    assert not model.covariances_[:, varying, 1].any()
    assert np.array_equal(model.transform(wide), plain.transform(X))
    assert model.score(wide) == plain.score(X)
    other = wide.copy()
    other[:, 1] = 1e3  # it takes no part in new rows either
    assert np.array_equal(model.predict(other), model.labels_)
    narrow = model.fit(X)  # what was left out is forgotten
    assert np.array_equal(narrow.labels_, plain.labels_)


def test_columns_that_only_rows_without_weight_vary_in():
    X = np.insert(blobs(), 0, 3.0, axis=1)
    X[:10, 0] = 1e6
    weight = np.ones(160)
    weight[:10] = 0.0
    model = MahalanobisMeans(n_init=3, random_state=0).fit(X, sample_weight=weight)
    plain = MahalanobisMeans(n_init=3, random_state=0).fit(X[:, 1:], sample_weight=weight)
    assert np.array_equal(model.labels_, plain.labels_)


def test_features_have_nothing_of_a_constant_column():
    X = sums()
    wide = np.insert(X, 2, 1e9, axis=1)
    model_a, model_b = (BPMeans(n_init=3, random_state=0).fit(data) for data in (X, wide))
    assert np.array_equal(model_b.components_, np.insert(model_a.components_, 2, 0.0, axis=1))
    assert model_b.score(wide) == model_a.score(X)
    path, wider = (feature_path(data, 4, n_init=2, random_state=0) for data in (X, wide))
    assert path.best == wider.best == 3
    assert np.array_equal(path.criterion, wider.criterion)


def test_errors_of_features_leave_constant_columns_out():
    """Those of given rows of Z, too: what a constant column would cost is in no error."""
    X = np.array([[2.0, 3.0], [2.0, 3.0], [2.0, 0.0]])
    Z = np.array([[1, 0], [1, 0], [0, 0]])
    model = BPMeans(init=Z, random_state=0).fit(X)
    np.testing.assert_allclose(model.components_, [[0.0, 3.0]])
    assert model.reconstruction_err_ == 0.0
    assert model.objective_ == model.lam_
    guess = BPMeans(lam="farthest-first", n_components=1, init=Z).fit(X)
    assert guess.lam_ == 18.0  # what the feature (0, 3) saves two rows
    assert guess.reconstruction_err_ == 0.0
    number = BPMeans(lam=9.0, init=Z).fit(X)  # of a penalty that is given, all columns count
    np.testing.assert_allclose(number.components_, [[2.0, 3.0]])
    assert number.reconstruction_err_ == 2.0


def test_equal_rows():
    """Where no column varies none is left out."""
    X = np.full((20, 3), 7.0)
    assert MahalanobisMeans(random_state=0).fit(X).n_clusters_ == 1
    assert BPMeans(random_state=0).fit(X).n_components_ == 1
    assert SpectralDPMeans(kernel="linear", random_state=0).fit(X).n_clusters_ == 1
