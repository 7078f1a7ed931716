"""Tables whose columns have different units, and tables with row numbers."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_blobs
from sklearn.decomposition import PCA
from sklearn.preprocessing import scale

import smallvar
from smallvar import (
    DPMeans,
    IdentifierWarning,
    MahalanobisMeans,
    MiniBatchDPMeans,
    MixedDPMeans,
    RobustDPMeans,
    ScaleWarning,
    ShapeMeans,
)
from smallvar._selection.scale import wide_columns

ALL = [DPMeans, RobustDPMeans, ShapeMeans, MiniBatchDPMeans, MahalanobisMeans]


def told(model, X, category):
    """The texts of the warnings of a fit, of one category."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X)
    return [str(w.message) for w in caught if w.category is category]


@pytest.mark.parametrize("make", [DPMeans, RobustDPMeans, MiniBatchDPMeans])
def test_few_wide_columns(make):
    wine = load_wine(as_frame=True).data
    model = make(random_state=0)
    (text,) = told(model, wine, ScaleWarning)
    assert "column 'proline' makes up 99.7% of the squared distances" in text
    assert "the other 12 hardly count" in text
    assert "StandardScaler" in text and "MixedDPMeans" in text
    assert model.path_.wide.columns.tolist() == [12] and model.path_.wide.others == 12
    assert model.path_.confidence <= 0.5
    assert model.path_.confidences.sum() == pytest.approx(1.0)
    assert told(make(random_state=0), scale(wine), ScaleWarning) == []
    assert told(make(n_clusters=3, random_state=0), wine, ScaleWarning)
    assert told(make(lam=1e5, random_state=0), wine, ScaleWarning) == []  # in the user's units


# ShapeMeans finds a metric of its own where columns follow from each other: it has others
WIDE = {
    DPMeans: (slice(None), "columns 23, 3 make up 99.1% of the squared distances"),
    ShapeMeans: ([3, 1, 4, 8, 9, 11, 14, 18, 19], "column 0 makes up 99.9% of the squared"),
}


@pytest.mark.parametrize("make", WIDE)
def test_nothing_is_clear_while_units_decide(make):
    columns, words = WIDE[make]
    X = load_breast_cancer().data[:, columns]
    model = make(random_state=0)
    (text,) = told(model, X, ScaleWarning)
    assert words in text
    assert getattr(model, "confidence_", model.path_.confidence) <= 0.5


def test_a_metric_of_the_clusters_needs_no_scaling():
    wine = load_wine().data
    assert told(DPMeans(metric="auto", random_state=0), wine, ScaleWarning) == []
    assert told(MahalanobisMeans(random_state=0), wine, ScaleWarning) == []
    assert told(MixedDPMeans(random_state=0), wine, ScaleWarning) == []


@pytest.mark.parametrize("seed", range(3))
def test_rows_whose_spread_is_no_matter_of_units(seed):
    rng = np.random.default_rng(seed)
    long = make_blobs(300, 2, centers=3, random_state=seed)[0] @ np.diag([30.0, 1.0])
    components = PCA().fit_transform(rng.normal(size=(300, 8)) * 10.0 ** -np.arange(8))
    for X in (long, components, load_iris().data, load_digits().data):
        assert not len(wide_columns(X).columns)
    # a sample of components is not exactly uncorrelated
    assert not len(wide_columns(components[:200], whole=False).columns)
    turned = components + components[:, :1] * 0.5 * 10.0 ** -np.arange(8)
    assert len(wide_columns(turned).columns)


def test_wide_columns_of_rows_with_weights():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4)) * [1.0, 50.0, 1.0, 1.0] + 1e3
    X[:, 0] += X[:, 1] / 50.0
    weight = rng.integers(1, 4, 40)
    found = wide_columns(X, weight.astype(float))
    repeated = wide_columns(np.repeat(X, weight, axis=0))
    assert found.columns.tolist() == repeated.columns.tolist() == [1]
    assert found.share == pytest.approx(repeated.share)
    assert found.others == 3
    scaled = wide_columns(X * 2.0**40)
    assert scaled.share == pytest.approx(wide_columns(X).share)


@pytest.mark.parametrize(
    "X",
    [
        np.ones((9, 3)),
        np.eye(3)[:1],
        np.array([[1e300, 0.0], [-1e300, 1.0], [0.0, 3.0]]),
        np.column_stack([5e-324 * np.eye(20)[0], np.arange(20.0)]),  # of a variance below float64
    ],
)
def test_wide_columns_of_odd_rows(X):
    assert not len(wide_columns(X).columns)


def people(n=300):
    """Three groups of people, numbered."""
    X, y = make_blobs(n, 3, centers=3, cluster_std=0.5, random_state=0)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.insert(0, "customer_id", np.arange(n) + 1000)
    return frame, y


@pytest.mark.parametrize("make", ALL)
def test_row_numbers_are_warned_of(make):
    frame, _ = people()
    (text,) = told(make(random_state=0), frame, IdentifierWarning)
    assert "column 'customer_id' only numbers the rows" in text
    assert told(make(random_state=0), frame.drop(columns="customer_id"), IdentifierWarning) == []
    assert told(make(random_state=0), frame.to_numpy(), IdentifierWarning) == []  # without names


def test_row_numbers_are_left_out_of_tables():
    frame, y = people()
    frame["word"] = np.array(["x", "y", "z"])[y]
    model = MixedDPMeans(random_state=0).fit(frame)
    assert model.left_out_ == {
        "customer_id": "a key: whole numbers that ascend from row to row",
    }
    assert model.n_clusters_ == 3
    kept = MixedDPMeans(columns={"customer_id": "normal"}, random_state=0).fit(frame)
    assert "customer_id" in [column.name for column in kept.columns_] and not kept.left_out_


@pytest.mark.parametrize("make", [smallvar.SegmentMeans, smallvar.HDPMeans])
def test_wide_columns_of_records_and_groups(make):
    rng = np.random.default_rng(0)
    state = np.repeat([0, 1, 0], 60)
    X = rng.normal(size=(180, 5)) + 8.0 * state[:, None]
    X[:, 3] = 500.0 * rng.normal(size=180).cumsum() + X[:, 0]
    options = {"groups": np.arange(180) % 3} if make is smallvar.HDPMeans else {}

    def texts_of(X):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = make().fit(X, **options)
        assert getattr(model, "confidence_", 0.0) <= 0.5 or not caught
        return [str(w.message) for w in caught if w.category is ScaleWarning]

    (text,) = texts_of(X)
    assert "column 3 makes up 99.9% of the squared distances" in text
    assert texts_of(scale(X)) == []


def test_warnings_are_public():
    for name in ("ScaleWarning", "IdentifierWarning"):
        assert issubclass(getattr(smallvar, name), UserWarning)


def texts(n=200, words=600, seed=0):
    """Rows like TF-IDF: three topics with words of their own, each row with a few of them."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(3, size=n)
    share = rng.dirichlet(np.full(words, 0.05), 3)
    X = np.array([rng.multinomial(20, share[t]) for t in topic], dtype=float)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.mark.parametrize("make", [DPMeans, smallvar.SphericalDPMeans])
@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_rows_of_texts(make, form):
    X = texts()
    model = make(random_state=0)
    (text,) = told(model, form(X), smallvar.UnclearNumberWarning)
    assert "columns are many and mostly zero" in text and "TruncatedSVD" in text
    assert model.path_.rare and model.path_.confidence <= 0.4
    given = make(n_clusters=3, random_state=0)
    assert told(given, form(X), smallvar.UnclearNumberWarning) == []
    assert not make(random_state=0).fit(X[:, :499]).path_.rare
