"""Tables of pandas, polars and pyarrow in and out: the same fit, names, memory, refusals."""

import datetime
import warnings
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from models import ESTIMATORS, made
from numpy.testing import assert_allclose
from problems import blobs
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

import smallvar
from smallvar import DPMeans, MiniBatchDPMeans, PenalizedCut, SpectralDPMeans, cluster_path

X = np.abs(blobs(np.random.default_rng(0), 60, 3, 4))  # also of those that take counts only
NAMES = ["width", "height", "mass"]
OTHERS = {"PenalizedCut", "MixedDPMeans"}  # graphs; tables of test_mixed.py in each library
MODELS = [made(estimator) for estimator in ESTIMATORS if estimator.__name__ not in OTHERS]
EVERY = pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
LIBRARIES = ["pandas", "polars", "pyarrow", "pyarrow batch", "pyarrow chunks"]
EACH = pytest.mark.parametrize("library", LIBRARIES)
TYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def table(columns, library):
    """The columns of a dict as a table."""
    if library == "pandas":
        return pd.DataFrame(columns)
    if library == "polars":
        return pytest.importorskip("polars").DataFrame(columns)
    arrow = pytest.importorskip("pyarrow")
    if library == "pyarrow batch":
        return arrow.RecordBatch.from_pydict(columns)
    whole = arrow.table(columns)
    if library == "pyarrow":
        return whole
    return arrow.concat_tables([whole.slice(0, 2), whole.slice(2)])


def of(X, library):
    return table(dict(zip(NAMES, X.T.copy(), strict=True)), library)


def lists(X, library):
    """A column whose values are the rows, and the same in a table."""
    if library.startswith("polars"):
        polars = pytest.importorskip("polars")
        kind = polars.Series(values=X).dtype if library == "polars" else polars.List
        series = polars.Series("e", X.tolist(), dtype=polars.Series("e", X).dtype)
        if library == "polars lists":
            series = series.arr.to_list()
            assert isinstance(series.dtype, kind)
        return series, polars.DataFrame(series)
    arrow = pytest.importorskip("pyarrow")
    inner = arrow.from_numpy_dtype(X.dtype)
    kind = {
        "pyarrow": arrow.list_(inner, X.shape[1]),
        "pyarrow lists": arrow.list_(inner),
        "pyarrow large lists": arrow.large_list(inner),
    }[library]
    array = arrow.array(X.tolist(), kind)
    return array, arrow.table({"e": array})


def quiet(work, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work(*args)


def same(one, two):
    """Two fits of the same numbers, which need not lie in the same order in memory."""
    assert np.array_equal(getattr(one, "labels_", ()), getattr(two, "labels_", ()))
    for name in ("cluster_centers_", "objective_", "components_"):
        assert hasattr(one, name) == hasattr(two, name)
        if hasattr(one, name):
            assert_allclose(getattr(one, name), getattr(two, name), rtol=1e-6)


@EVERY
@EACH
@TYPES
def test_the_same_as_the_array(model, library, dtype):
    rows = X.astype(dtype)
    given = of(rows, library)
    plain, other_model = quiet(clone(model).fit, rows), quiet(clone(model).fit, given)
    same(plain, other_model)
    assert other_model.n_features_in_ == 3
    named = library != "polars" or hasattr(StandardScaler().fit(given), "feature_names_in_")
    assert list(getattr(other_model, "feature_names_in_", [])) == NAMES * named
    for method in ("predict", "transform"):
        if hasattr(model, method):
            found = getattr(other_model, method)(given)
            wanted = getattr(plain, method)(rows)
            assert found.dtype == wanted.dtype
            assert_allclose(found, wanted, rtol=1e-5)
    swapped = table(dict.fromkeys(NAMES[::-1], X[:, 0]), library)
    if named and hasattr(model, "predict"):
        with pytest.raises(ValueError, match="feature names should match"):
            other_model.predict(swapped)
    if hasattr(model, "partial_fit"):
        plain, other_model = clone(model), clone(model)
        for part in (slice(0, 30), slice(30, 60)):
            quiet(plain.partial_fit, rows[part])
            quiet(other_model.partial_fit, of(rows[part], library))
        same(plain, other_model)
        assert list(getattr(other_model, "feature_names_in_", [])) == NAMES * named


@EACH
def test_functions_and_graphs(library):
    assert cluster_path(of(X, library), random_state=0).lam == cluster_path(X, random_state=0).lam
    A = np.kron(np.eye(2), np.ones((3, 3))) + 0.1
    given = table(dict(zip("abcdef", A, strict=True)), library)
    assert np.array_equal(
        PenalizedCut(lam=-0.2).fit(given).labels_, PenalizedCut(lam=-0.2).fit(A).labels_
    )


@pytest.mark.parametrize("output", ["pandas", "polars"])
@EVERY
def test_tables_out(model, output):
    pytest.importorskip(output)
    if not hasattr(model, "transform"):
        assert not hasattr(model, "set_output")
        return
    given = of(X, output)
    model = quiet(clone(model).set_output(transform=output).fit, given)
    out = model.transform(given)
    assert type(out).__module__.split(".")[0] == output
    assert type(out).__name__ == "DataFrame"
    assert list(out.columns) == model.get_feature_names_out().tolist()
    assert_allclose(out.to_numpy(), model.set_output(transform="default").transform(given))


def taken(given):
    """What the sweeps work on."""
    return DPMeans(lam=0.1)._validate(given, reset=True)


@TYPES
@pytest.mark.parametrize("order", ["C", "F"])
def test_no_copy(dtype, order):
    rows = np.array(X, dtype=dtype, order=order)
    assert np.shares_memory(taken(rows), rows)
    frame = pd.DataFrame(rows, columns=NAMES, copy=False)
    assert np.shares_memory(taken(frame), rows)
    polars = pytest.importorskip("polars")
    arrow = pytest.importorskip("pyarrow")
    if order == "F":  # columns that lie one after another
        assert np.shares_memory(taken(polars.from_numpy(rows, orient="row")), rows)
        one = polars.DataFrame({"a": rows[:, 0]})
        assert np.shares_memory(taken(one), one.to_series().to_numpy())
    else:  # lists of one length
        flat = arrow.array(rows.ravel())
        ends = arrow.array(np.arange(0, rows.size + 1, 3, dtype=np.int32))
        for column in (
            arrow.FixedSizeListArray.from_arrays(flat, 3),
            arrow.ListArray.from_arrays(ends, flat),
        ):
            assert np.shares_memory(taken(column), rows)
            assert np.shares_memory(taken(arrow.table({"e": column})), rows)
            assert np.shares_memory(taken(column.slice(5, 20)), rows)
            assert np.array_equal(taken(column.slice(5, 20)), rows[5:25])
        column = polars.from_arrow(arrow.FixedSizeListArray.from_arrays(flat, 3))
        assert np.shares_memory(taken(column), rows)
        assert np.shares_memory(taken(polars.DataFrame({"e": column})), rows)


@TYPES
@pytest.mark.parametrize(
    "library", ["polars", "polars lists", "pyarrow", "pyarrow lists", "pyarrow large lists"]
)
def test_lists_of_one_length(library, dtype):
    rows = X.astype(dtype)
    plain = DPMeans(lam=0.1).fit(rows)
    for given in lists(rows, library):
        model = DPMeans(lam=0.1).fit(given)
        same(model, plain)
        assert model.n_features_in_ == 3
        assert not hasattr(model, "feature_names_in_")
        assert np.array_equal(model.predict(given), plain.labels_)
        assert taken(given).dtype == dtype


def test_lists_that_are_no_rows():
    arrow, polars = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    model = DPMeans(lam=0.1)
    for uneven in (arrow.array([[1.0, 2.0], [3.0]]), polars.Series("e", [[1.0, 2.0], [3.0]])):
        with pytest.raises(ValueError, match=r"lists of one length.* got 2 and 1"):
            model.fit(uneven)
    gaps = [[1.0, 2.0], None, [3.0, 4.0]]
    for column in (arrow.array(gaps), arrow.array(gaps, arrow.list_(arrow.float64(), 2))):
        for given in (column, arrow.table({"e": column}), polars.from_arrow(column)):
            with pytest.raises(ValueError, match=r"missing list .*at position 1"):
                model.fit(given)
    holes = [[1.0, 2.0], [3.0, None]]
    for given in (arrow.array(holes), polars.Series(holes)):
        with pytest.raises(ValueError, match="NaN"):
            model.fit(given)
    with pytest.raises(ValueError, match=r"column 'e' of type object: numpy.stack makes"):
        model.fit(pd.DataFrame({"e": gaps[::2]}))
    assert not hasattr(model, "n_features_in_")


WHEN = [datetime.datetime(2024, 1, day) for day in (1, 2, 3)]
BAD = {
    "null": ([1, None, 3], "missing value .*in column 'b' at position 1"),
    "gap": ([1.0, None, 3.0], "missing value .*in column 'b' at position 1"),
    "NaN": ([1.0, 2.0, np.nan], "missing value .*in column 'b' at position 2"),
    "infinity": ([-np.inf, 2.0, 3.0], "must be finite, got infinity in column 'b' at position 0"),
    "words": (["x", "y", "z"], "must be numbers, got column 'b' of type"),
    "dates": (WHEN, "must be numbers, got column 'b' of type"),
    "spans": ([when - WHEN[0] for when in WHEN], "must be numbers, got column 'b' of type"),
}


@pytest.mark.parametrize("case", BAD)
@EACH
def test_a_bad_column_is_named(library, case):
    values, message = BAD[case]
    given = table({"a": [1.0, 2.0, 3.0], "b": values}, library)
    for model in (DPMeans(lam=0.1), SpectralDPMeans(lam=0.5), MiniBatchDPMeans(lam=0.1)):
        with pytest.raises(ValueError, match=message):
            model.fit(given)
        assert not hasattr(model, "n_features_in_")
    with pytest.raises(ValueError, match=message):
        cluster_path(given)
    model = DPMeans(lam=0.1).fit([[1.0, 2.0], [3.0, 4.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it was fitted without names
        with pytest.raises(ValueError, match=message):
            model.predict(given)


@pytest.mark.parametrize("kind", ["Int64", "Float32", "Float64"])
def test_gaps_of_extension_types(kind):
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": pd.array([1, None], dtype=kind)})
    with pytest.raises(ValueError, match="missing value .*in column 'b' at position 1"):
        DPMeans(lam=0.1).fit(frame)


def test_arrays_of_dates():
    for kind in ("M8[s]", "m8[D]"):
        with pytest.raises(ValueError, match="X must be numbers, got type"):
            DPMeans(lam=0.1).fit(np.array([[1, 2], [3, 4]]).astype(kind))


def test_equal_names_in_arrow():
    arrow = pytest.importorskip("pyarrow")
    given = arrow.table([[1.0, 2.0], [3.0, None]], names=["a", "a"])
    with pytest.raises(ValueError, match=r"missing value .*in column 'a'|names, got 'a' twice"):
        DPMeans(lam=0.1).fit(given)


def test_what_is_not_collected_is_no_data():
    polars = pytest.importorskip("polars")
    with pytest.raises(TypeError, match="LazyFrame: call its collect"):
        DPMeans(lam=0.1).fit(polars.DataFrame({"a": [1.0]}).lazy())


def test_columns_of_one_name():
    """Refused in one line where scikit-learn takes none; otherwise taken by their places."""
    table = pd.DataFrame([[0.0, 1.0], [2.0, 3.0]], columns=["a", "a"])
    refused = nullcontext()
    try:
        StandardScaler().fit(table)
    except Exception:
        refused = pytest.raises(ValueError, match="^X must have columns of different .*'a' twice$")
    with refused:
        assert smallvar.DPMeans(lam=9.0).fit(table).cluster_centers_.tolist() == [[1.0, 2.0]]
