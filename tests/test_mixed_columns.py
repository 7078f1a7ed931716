"""Kinds of the columns of a table, and its rows packed, whatever library it is of."""

import datetime
import io
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from smallvar import MixedDPMeans
from smallvar._mixed.columns import Column, pack, repack
from smallvar._mixed.order import are_in_order
from smallvar._mixed.reading import factorized

LIBRARIES = ["pandas", "polars", "pyarrow", "pyarrow batch", "pyarrow chunks", "dict"]
EACH = pytest.mark.parametrize("library", LIBRARIES)
N = 400


def mixed(n=N, seed=0):
    """Columns of all types that have nulls, as lists."""
    g = np.random.default_rng(seed)
    columns = {
        "size": g.normal(size=n).tolist(),
        "year": g.integers(2007, 2010, n).tolist(),
        "flag": (g.random(n) < 0.3).tolist(),
        "word": np.array(["red", "blue", "green"], dtype=object)[g.integers(0, 3, n)].tolist(),
        "count": g.poisson(20, n).tolist(),
        "same": [7] * n,
        "none": [None] * n,
        "id": list(range(1000, 1000 + n)),
        "name": [f"person {i}" for i in range(n)],
    }
    for name in ("size", "year", "flag", "word", "count"):
        for i in g.choice(n, n // 10, replace=False):
            columns[name][i] = None
    return columns


def table(columns, library):
    """The columns of a dict as a table."""
    if library == "dict":
        return {name: np.array(cells, dtype=object) for name, cells in columns.items()}
    if library == "pandas":
        kinds = {"year": "Int64", "flag": "boolean", "count": "Int64", "word": "category"}
        return pd.DataFrame(columns).astype({k: v for k, v in kinds.items() if k in columns})
    if library == "polars":
        return pytest.importorskip("polars").DataFrame(columns)
    arrow = pytest.importorskip("pyarrow")
    if library == "pyarrow batch":
        return arrow.RecordBatch.from_pydict(columns)
    whole = arrow.table(columns)
    if library == "pyarrow":
        place = whole.column_names.index("word")
        return whole.set_column(place, "word", whole.column("word").dictionary_encode())
    # in reverse, so that the dictionaries of the chunks differ
    return arrow.concat_tables([whole.slice(0, 3), whole.slice(3)])


def kinds(packed):
    return {column.name: column.kind for column in packed.columns}


def only(values, kind="auto", **columns):
    """The one column, packed."""
    packed = pack(pd.DataFrame({"a": values, **columns}), {"a": kind})
    return packed, next(column for column in packed.columns if column.name == "a")


@EACH
def test_same_from_every_library(library):
    columns = mixed()
    packed = pack(table(columns, library))
    assert kinds(packed) == {
        "size": "normal", "year": "ordered", "flag": "bernoulli", "word": "categorical",
        "count": "poisson",
    }  # fmt: skip
    year = packed.columns[1]
    assert (year.levels, year.step, year.reason) == ((2007, 2008, 2009), 1.0, "3 values, ordered")
    assert list(packed.left_out) == ["same", "none", "id", "name"]
    assert packed.left_out["same"] == "one value, 7"
    assert packed.left_out["none"] == "no value"
    assert "key" in packed.left_out["id"]
    assert "identifier" in packed.left_out["name"]
    want = np.array([[np.nan if v is None else v for v in columns[c]] for c in
                     ("size", "year", "count")]).T  # fmt: skip
    assert_array_equal(packed.numbers, want)
    assert packed.numbers.flags.c_contiguous and packed.codes.flags.c_contiguous
    assert packed.codes.dtype == np.int16
    assert_array_equal(packed.number_of, [0, 1, 4])
    assert_array_equal(packed.code_of, [2, 3])
    word = packed.columns[3].levels
    assert word == ("blue", "green", "red")
    for row, (flag, text) in enumerate(zip(columns["flag"], columns["word"], strict=True)):
        assert packed.codes[row, 0] == (-1 if flag is None else int(flag))
        assert packed.codes[row, 1] == (-1 if text is None else word.index(text))


@EACH
def test_repack_by_name(library):
    """Columns in another order, with others among them, in another library."""
    columns = mixed()
    fitted = pack(table(columns, "pandas"))
    reordered = dict(reversed(columns.items()))
    again = repack(table(reordered, library), fitted.columns)
    assert_array_equal(again.numbers, fitted.numbers)
    assert_array_equal(again.codes, fitted.codes)


def test_levels_not_seen_are_missing():
    fitted = pack(pd.DataFrame(mixed()))
    other = pd.DataFrame(mixed(seed=1))
    other.loc[5, "word"], other.loc[6, "word"] = "violet", "orange"
    with pytest.warns(UserWarning, match=r"'word'.*not seen.*'orange', 'violet'"):
        packed = repack(other, fitted.columns)
    assert packed.codes[5, 1] == packed.codes[6, 1] == -1


def test_a_declared_level_that_no_row_has():
    """It is no level; a row that has it later is missing there."""
    words = pd.Categorical(["a", "b"] * 20, categories=["a", "z", "b"])
    packed, column = only(words, b=np.linspace(0, 1, 40) ** 2)
    assert column.levels == ("a", "b")
    with pytest.warns(UserWarning, match="'z'"):
        other = repack(pd.DataFrame({"a": ["z", "b"], "b": 0.5}), packed.columns)
    assert_array_equal(other.codes, [[-1], [1]])


def test_no_warning_for_a_declared_level_that_no_row_has():
    packed, _ = only(["a", "b"] * 20)
    words = pd.Categorical(["a", "b"], categories=["a", "z", "b"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_array_equal(repack(pd.DataFrame({"a": words}), packed.columns).codes, [[0], [1]])


def test_arrays():
    g = np.random.default_rng(0)
    X = np.column_stack([g.normal(size=50), g.integers(0, 2, 50), np.full(50, 3.0)])
    packed = pack(X, {0: "normal", "x1": "categorical"})
    assert kinds(packed) == {"x0": "normal", "x1": "categorical"}
    assert packed.columns[1].levels == (0, 1)
    assert packed.left_out == {"x2": "one value, 3"}
    assert_array_equal(repack(X, packed.columns).numbers, X[:, :1])
    with pytest.raises(ValueError, match="columns of the fit, got none called 'x1'"):
        repack(X[:, :1], packed.columns)


def test_array_after_a_fit_of_a_named_table_is_by_position():
    frame = pd.DataFrame(mixed())[["flag", "size", "count"]]
    packed = pack(frame)
    again = repack(frame.to_numpy(dtype=object), packed.columns)
    assert_array_equal(again.codes, packed.codes)
    assert_array_equal(again.numbers, packed.numbers)


def test_lists_of_rows_of_several_types():
    packed = pack([["a", 1.5], ["b", 2.5], ["a", None]] * 4)
    assert kinds(packed) == {"x0": "categorical", "x1": "bernoulli"}
    assert packed.codes[:3].tolist() == [[0, 0], [1, 1], [0, -1]]


def test_array_of_strings():
    packed = pack(np.array([["a", "b"], ["c", "b"], ["a", "d"]] * 4))
    assert [column.levels for column in packed.columns] == [("a", "c"), ("b", "d")]


def tables_of(library, columns, grades):
    """The columns and one of ordered grades, as a table of the library."""
    if library == "dict":
        return columns | {"grade": grades}
    if library == "pandas":
        order = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
        return pd.DataFrame(columns).assign(grade=pd.Series(grades, dtype=order))
    polars = pytest.importorskip("polars")
    kind = polars.Enum(["low", "mid", "high"])
    frame = polars.DataFrame(columns).with_columns(polars.Series("grade", grades, dtype=kind))
    if library == "polars":
        return frame
    pytest.importorskip("pyarrow")
    if library == "pandas of arrow":
        return frame.to_arrow().to_pandas(types_mapper=pd.ArrowDtype)
    return frame.to_arrow()


@pytest.mark.parametrize("library", ["dict", "pandas", "polars", "pyarrow", "pandas of arrow"])
def test_fits_of_every_library(library):
    """Fit, predict, transform, impute and profiles, with names and the order of declared levels."""
    columns = mixed()
    grades = [["low", "mid", "high"][i % 3] if i % 7 else None for i in range(N)]
    X = tables_of(library, columns, grades)
    model = MixedDPMeans(n_clusters=3, random_state=0).fit(X)
    assert model.feature_names_in_.tolist() == [*columns, "grade"]
    assert model.n_features_in_ == 10
    grade = next(c for c in model.columns_ if c.name == "grade")
    if library == "dict":
        assert (grade.kind, grade.levels) == ("categorical", ("high", "low", "mid"))
    else:
        assert (grade.kind, grade.levels) == ("ordered", ("low", "mid", "high"))
        assert model.cluster_parameters_["grade"].max() <= 2.0
    assert model.predict(X).tolist() == model.labels_.tolist()
    filled = model.impute(X)
    assert type(filled) is type(X)
    again = pack(filled, {c.name: c.kind for c in model.columns_})
    assert not np.isnan(again.numbers).any() and (again.codes >= 0).all()
    if library != "dict":
        assert next(c for c in again.columns if c.name == "grade").levels == grade.levels
    assert len(model.profiles_["summary"]) == 3 * len(model.columns_)


def test_structured_arrays_and_lazy_frames():
    X = np.zeros(30, dtype=[("size", float), ("word", "U3")])
    X["size"], X["word"] = np.arange(30) ** 2, np.array(["ab", "cd", "ef"])[np.arange(30) // 10]
    X["size"][4] = np.nan
    model = MixedDPMeans(n_clusters=3, random_state=0).fit(X)
    assert model.feature_names_in_.tolist() == ["size", "word"]
    filled = model.impute(X)
    assert filled.dtype == X.dtype and not np.isnan(filled["size"]).any()
    lazy = pytest.importorskip("polars").LazyFrame({"a": [1.0, 2.0]})
    with pytest.raises(TypeError, match="got a polars LazyFrame: call its collect"):
        MixedDPMeans().fit(lazy)


def test_names_that_are_no_strings():
    X = pd.DataFrame({0: np.arange(9.0), 1: list("aabbccaab")})
    assert not hasattr(MixedDPMeans(n_clusters=2).fit(X), "feature_names_in_")


@pytest.mark.parametrize("levels", [
    [10, 20, 40], [40, 10, 20], [0.5, 1.5, 9.0], list(pd.interval_range(0, 3)),
    list(pd.to_datetime(["2020", "2021", "2024"])), list(pd.period_range("2020", periods=3)),
], ids=["integers", "not ascending", "floats", "intervals", "dates", "periods"])  # fmt: skip
@pytest.mark.parametrize("ordered", [True, False])
def test_declared_levels_of_any_type(levels, ordered):
    y = np.arange(60) % 3
    x = np.random.default_rng(0).normal(6.0 * y)
    grade = pd.Categorical.from_codes(np.where(np.arange(60) == 7, -1, y), levels, ordered=ordered)
    X = pd.DataFrame({"x": x, "grade": grade})
    model = MixedDPMeans(n_clusters=3, random_state=0).fit(X)
    column = model.columns_[1]
    assert (column.kind, column.levels) == ("ordered" if ordered else "categorical", tuple(levels))
    assert column.positions is ordered
    assert model.predict(X).tolist() == model.labels_.tolist()
    # row 7 is in the cluster of the rows of level 1
    assert model.impute(X)["grade"][7] == levels[1]
    shown = model.profiles_.query("column == 'grade'")["level"]
    assert sorted(shown) == sorted(map(str, levels))
    plain = X.assign(grade=np.arange(60) if ordered else "word")
    if isinstance(levels[0], (int, float)):
        plain = X.assign(grade=X["grade"].astype(float))
        assert model.predict(plain).tolist() == model.labels_.tolist()
    elif ordered:
        with pytest.raises(ValueError, match="must be a category with levels like .*, got numbers"):
            model.predict(plain)


def test_numbers_of_a_fit_as_a_category():
    y = np.arange(60) % 3
    X = pd.DataFrame({"x": np.random.default_rng(0).normal(6.0 * y), "n": [4.0, 9.0, 2.0] * 20})
    model = MixedDPMeans(n_clusters=3, random_state=0).fit(X)
    labels = model.predict(X.assign(n=X["n"].astype("category")))
    assert labels.tolist() == model.labels_.tolist()
    with pytest.raises(ValueError, match=r"must be numbers, as in the fit, got a category with"):
        model.predict(X.assign(n=pd.cut(X["n"], 3)))


@pytest.mark.parametrize("dtype", ["float32", "Float32", "float32[pyarrow]"])
def test_single_precision_stays(dtype):
    values = np.random.default_rng(0).normal(size=40).astype(np.float32)
    frame = pd.DataFrame({"a": values}).astype(dtype)
    assert pack(frame).numbers.dtype == np.float32
    both = pack(frame.assign(b=np.arange(40) % 7 + 0.5))
    assert both.numbers.dtype == np.float64
    assert_array_equal(both.numbers[:, 0], values)


# -- kinds ------------------------------------------------------------------------------------


def test_ordered_category():
    words = pd.Categorical(["low", "high", "mid", None] * 8, ["low", "mid", "high"], ordered=True)
    packed, column = only(words, b=np.linspace(0, 1, 32) ** 2)
    assert (column.kind, column.levels, column.step) == ("ordered", ("low", "mid", "high"), 1.0)
    assert_array_equal(packed.numbers[:4, 0], [0, 2, 1, np.nan])
    again = repack(pd.DataFrame({"a": ["high", "low", None], "b": 0.5}), packed.columns)
    assert_array_equal(again.numbers[:, 0], [2, 0, np.nan])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.tile([0.0, 1.0], 30), "bernoulli"),
        (np.tile([True, False], 30), "bernoulli"),
        (np.tile([1, 2], 30), "bernoulli"),
        (np.tile([2007, 2008, 2009], 20), "ordered"),
        (np.tile([0.5, 1.0, 1.5], 20), "ordered"),
        (np.tile([0, 10, 20, 30], 15), "ordered"),
        (np.linspace(-3, 5, 61) ** 3, "normal"),
        (np.random.default_rng(0).normal(50, 9, 300).round(), "normal"),
        (np.random.default_rng(0).poisson(20, 300), "poisson"),
        # the variance of counts by chance, as in temperatures
        (np.random.default_rng(0).normal(78, 78**0.5, 300).round(), "normal"),
        (np.random.default_rng(0).poisson(np.repeat([5, 60], 200)), "normal"),
        (np.random.default_rng(0).poisson(30, 300) - 10, "normal"),
        (np.random.default_rng(0).exponential(size=300), "exponential"),
        (np.exp(0.7 * np.random.default_rng(0).normal(size=500)), "exponential"),
        (np.random.default_rng(0).exponential(size=300) - 0.5, "normal"),
        (5 + np.random.default_rng(0).normal(size=300), "normal"),
        (pd.Categorical(np.tile([1, 2, 3], 20)), "categorical"),
    ],
)
def test_kinds(values, kind):
    assert only(values)[1].kind == kind


def test_steps():
    assert only(np.random.default_rng(0).normal(50, 2, 300).round(1))[1].step == pytest.approx(0.1)
    assert only(np.random.default_rng(0).normal(size=300))[1].step == 0.0
    assert only(np.tile([0, 10, 20, 30], 15))[1].step == 10.0


def test_more_values_than_a_sample_shows():
    """Values that no evenly spaced row has are found all the same."""
    values = np.tile([0.0, 1.0], 20_000)
    values[12_345] = 2.0
    assert only(values)[1].levels == (0, 1, 2)


def test_values_that_were_filled_in_are_missing():
    g = np.random.default_rng(0)
    values = g.normal(size=400)
    gaps = g.random(400) < 0.1
    values[gaps] = values[~gaps].mean()
    frame = pd.DataFrame({"a": values, "b": np.linspace(0, 1, 400) ** 2})
    packed = pack(frame)
    assert_array_equal(np.isnan(packed.numbers[:, 0]), gaps)
    assert "filled in" in packed.columns[0].reason
    assert_array_equal(repack(frame, packed.columns).numbers, packed.numbers)
    assert not np.isnan(only(values, "normal")[0].numbers).any()  # as it was asked for


def test_flags_with_gaps_as_pandas_reads_them():
    text = "a,b\n" + "".join(f"{a},{i}.5\n" for i, a in enumerate(["True", "", "False"] * 20))
    frame = pd.read_csv(io.StringIO(text))
    assert {type(cell) for cell in frame["a"]} == {bool, float}  # NaN is a float
    packed = pack(frame)
    assert kinds(packed)["a"] == "bernoulli"
    assert_array_equal(packed.codes[:, 0], [1, -1, 0] * 20)


def test_a_value_that_many_rows_have_is_a_flag():
    g = np.random.default_rng(0)
    amount = np.where(g.random(500) < 0.6, 0.0, g.exponential(size=500))
    amount[:9] = np.nan
    frame = pd.DataFrame({"amount": amount, "b": g.normal(size=500)})
    packed = pack(frame)
    assert kinds(packed) == {"amount": "exponential", "amount not 0": "bernoulli", "b": "normal"}
    assert packed.n_columns == 2
    zero = amount == 0.0
    assert_array_equal(packed.numbers[:, 0], np.where(zero, np.nan, amount))
    assert_array_equal(packed.codes[:, 0], np.where(np.isnan(amount), -1, ~zero))
    assert "are 0, which is a flag" in packed.columns[0].reason
    again = repack(frame[["b", "amount"]], packed.columns)
    assert_array_equal(again.numbers, packed.numbers)
    assert_array_equal(again.codes, packed.codes)
    array = repack(frame.to_numpy(), packed.columns)
    assert_array_equal(array.codes, packed.codes)
    assert list(kinds(pack(frame, {"amount": "normal"}))) == ["amount", "b"]  # as asked for
    with pytest.raises(ValueError, match="none called 'amount'"):
        repack(frame[["b"]], packed.columns)


def test_counts_with_a_long_tail():
    g = np.random.default_rng(0)
    for mean in (0.5, 1.0, 4.0, 40.0):
        counts = g.poisson(g.gamma(1.0, mean, 1000))
        assert only(counts)[1].kind == "poisson", mean
        assert only(counts.astype(float))[1].kind == "poisson", mean
    scale = np.minimum(g.poisson(0.8, 1000), 3)  # a scale that ends at 3
    assert only(scale)[1].kind == "ordered"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (pd.date_range("2024-01-01", periods=40), "dates"),
        (pd.period_range("2024-01", periods=40, freq="M"), "dates"),
        (pd.date_range("2024-01-01", periods=40, tz="UTC"), "dates"),
        ([datetime.date(2024, 1, 1 + i % 9) for i in range(40)], "dates"),
        ([f"2024-01-{1 + i % 9:02}" for i in range(40)], "dates"),
        (["3/4/2024 10:00", "13/4/2024 11:30"] * 20, "dates"),
        ([f"{i} is a number" for i in range(40)], "an identifier: another value in every row"),
        ([f"{max(i, 9)} is a number" for i in range(40)], "text: 31 different values in 40 rows"),
        (np.arange(40) * 3 + 7, "a key: whole numbers that ascend from row to row"),
        (np.arange(40) % 20, "a key: whole numbers that run from row to row, in groups"),
        ([np.nan] * 40, "no value"),
        ([None] * 40, "no value"),
        ([1.5] * 39 + [None], "one value, 1.5"),
        (["x"] * 40, "one value, 'x'"),
        ([True] * 40, "one value, 1"),
    ],
)
def test_left_out(values, reason):
    frame = pd.DataFrame({"a": values, "b": np.random.default_rng(0).normal(size=40)})
    packed = pack(frame)
    assert packed.left_out == {"a": reason}
    assert packed.numbers.shape == (40, 1)


@pytest.mark.parametrize(("words", "written", "number"), [
    ("${:,.2f}", "'$1,234.50'", "1234.50"), ("({:.2f})", "'(1234.50)'", "-1234.50"),
    ("({:,.2f} $)", "'(1,234.50 $)'", "-1234.50"), ("{:.0f}%", "'1234%'", "1234"),
    ("{:,.2f} €", "'1.234,50 €'", "1234.50"), ("£{:.1f}", "'£1234.5'", "1234.5"),
    ("{:.2f}", None, None), ("{:+.1f}", "'+1234.5'", "1234.5"),
])  # fmt: skip
def test_numbers_with_signs(words, written, number):
    """A warning says how to convert them, by code that does it."""
    values = np.round(np.exp(np.random.default_rng(0).normal(3.0, size=60)), 2)
    values[0] = 1234.5
    cells = [words.format(v) for v in values]
    if "€" in words:
        cells = [cell.translate(str.maketrans(",.", ".,")) for cell in cells]
    cells[5] = "n/a"
    X = pd.DataFrame({"a": np.arange(60.0) / 7.0, "price": cells})
    said = "column 'price' of X has numbers that are read as words"
    with pytest.warns(UserWarning, match=said) as w:
        packed = pack(X)
    message = str(w[0].message)
    if written is None:
        assert "convert words like" in message
    else:
        assert f"write {written} as {number}, in pandas by" in message
        assert f"write {written} as {number} for a column of numbers" in packed.left_out["price"]
    converted = eval(message.split("in pandas by ")[1], {"pandas": pd, "X": X})
    expected = [float(f"{v:{words[words.index(':') + 1 : words.index('}')]}}".replace(",", ""))
                for v in values]  # fmt: skip
    assert_array_equal(converted, np.where(np.arange(60) == 5, np.nan, expected)
                       * (-1.0 if "(" in words else 1.0))  # fmt: skip


@pytest.mark.parametrize("words", [
    ["1", "2", "3"], ["a1", "$x", "5%"], ["10.0.0.1", "10.0.0.2"], ["red", "5%"], ["1.2.3", "1.x"],
])  # fmt: skip
def test_words_that_are_no_numbers_with_signs(words):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pack({"a": np.array(words * 30), "b": np.arange(30.0 * len(words)) / 7.0})
        # nor where the kind is asked for
        pack({"a": np.array(["1%", "2%"] * 30)}, {"a": "categorical"})


def test_keys_by_their_names():
    numbers = np.random.default_rng(0).permutation(10_000)[:100]
    for name in ("id", "customer_id", "customerID", "Unnamed: 0"):
        frame = pd.DataFrame({name: numbers, "b": np.linspace(0, 1, 100) ** 2})
        assert list(pack(frame).left_out) == [name]
    for name in ("price", "period", "paid"):
        frame = pd.DataFrame({name: numbers, "b": np.linspace(0, 1, 100) ** 2})
        assert pack(frame).left_out == {}
        assert list(pack(frame, {name: None}).left_out) == [name]


def codes_of_categories(g, n=600, m=8):
    """Numbers of the levels of categories, which are in no order."""
    z = g.integers(0, 3, n)
    columns = []
    for _ in range(m):
        shares = g.dirichlet(np.full(5, 0.3), 3)
        columns.append((shares[z].cumsum(1) > g.random(n)[:, None]).argmax(1))
    return np.column_stack(columns)


def answers_of_people(g, n=600, m=8):
    """Answers from 0 to 4, in order."""
    z = g.integers(0, 3, n)
    answers = g.uniform(-1.5, 1.5, (3, m))[z] + 0.6 * g.normal(size=(n, m))
    return np.digitize(answers, np.linspace(-1.5, 1.5, 4))


def test_codes_or_answers():
    """Small whole numbers are taken for what the other columns make them."""
    for seed in range(10):
        g = np.random.default_rng(seed)
        numbered = kinds(pack(codes_of_categories(g).astype(float))).values()
        assert list(numbered).count("ordered") <= 1, seed
        assert set(kinds(pack(answers_of_people(g))).values()) == {"ordered"}, seed
    reason = pack(answers_of_people(g)).columns[0].reason
    assert reason == "5 values, ordered as other columns tell"
    reason = pack(codes_of_categories(g)).columns[0].reason
    assert reason.endswith("codes without an order as other columns tell")


def test_codes_without_other_columns():
    column = only(np.tile([0, 1, 2, 3], 50))[1]
    assert (column.kind, column.reason) == (
        "ordered",
        "4 values, ordered; other columns do not tell",
    )


def test_order_by_hand():
    """Levels 0, 1, 2, 3 whose means are in that order, and in another one."""
    codes = np.repeat(np.arange(4), 100)
    noise = np.random.default_rng(0).normal(size=400)
    rising = (None, codes + 0.1 * noise)
    other = (None, np.array([0.0, 2.0, 1.0, 3.0])[codes] + 0.1 * noise)
    assert are_in_order([(4, codes), rising], [0]) == [(True, True)]
    assert are_in_order([(4, codes), other], [0]) == [(False, True)]
    assert are_in_order([(4, codes), (None, noise)], [0]) == [(True, False)]


@pytest.mark.parametrize("values", [[True, False, True], ["x", "y", "x"], [1.5, 2.5, 1.5]])
def test_marks_of_missing_cells_in_one_column(values):
    """None, NaN and the marks of pandas are the same, whichever stand together."""
    cells = [*values, None, np.nan, pd.NA, pd.NaT]
    frame = pd.DataFrame({"a": pd.Series(cells, dtype=object), "b": np.arange(7.0)})
    alone = pd.DataFrame({"a": pd.Series([*values, *[None] * 4], dtype=object), "b": frame["b"]})
    assert factorized(cells)[0].tolist() == [0, 1, 0, -1, -1, -1, -1]
    one, other = (MixedDPMeans(random_state=0).fit(table) for table in (frame, alone))
    assert np.array_equal(one.labels_, other.labels_)


# -- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ([1.0, 2.0, np.inf, 3.0], "auto", "infinity in column 'a' at position 2"),
        ([1, 2, -3, 4], "poisson", r"whole numbers >= 0 for the kind 'poisson', got -3"),
        ([1, 2.5, 3, 4], "poisson", r"whole numbers >= 0 for the kind 'poisson', got 2.5"),
        ([1.0, 0.0, 2.0], "exponential", "numbers > 0 for the kind 'exponential', got 0"),
        ([1, 2, 3], "bernoulli", "2 values"),
        (["x", "y", "z"], "bernoulli", "2 values for the kind 'bernoulli', got 3 levels"),
        (["x", "y"], "normal", "numbers for the kind 'normal', got words like 'x'"),
        (["x", "y"], "ordered", "whose levels are declared in order"),
        ([1, "x", 2.0], "auto", "several types: float, int, str"),
        ([b"x", "x", "y"], "auto", "several types: bytes, str"),
        ([True, 2, False], "auto", "several types: bool, int"),
        ([True, 2.0, np.nan], "auto", "several types: bool, float"),
        ([[1], [2]], "auto", "cells are of type list"),
        ([1j, 2.0, 3.0], "auto", "type complex128"),
        (pd.date_range("2024", periods=3), "normal", "must be None or 'auto' for dates"),
    ],
)
def test_refused(values, kind, message):
    frame = pd.DataFrame({"a": values, "b": np.arange(len(values)) + 0.5})
    with pytest.raises(ValueError, match=message) as error:
        pack(frame, {"a": kind})
    assert "'a'" in str(error.value)


def test_too_many_levels():
    words = [f"w{i}" for i in range(100_000)] * 2
    with pytest.raises(ValueError, match=r"'a' of X must have at most 32,767 levels, got 100,000"):
        pack({"a": np.array(words, dtype=object)})
    words += words  # half of the rows no longer
    with pytest.raises(ValueError, match=r"columns=\{'a': None\}"):
        pack({"a": np.array(words, dtype=object)})
    both = {"a": np.array(words, dtype=object), "b": np.arange(len(words)) % 17 / 2}
    assert list(pack(both, {"a": None}).left_out) == ["a"]


def test_a_level_seen_once():
    packed, column = only(["x"] * 30 + ["y"] * 29 + ["z"])
    assert column.levels == ("x", "y", "z")
    assert (packed.codes == 2).sum() == 1


def test_rows_without_a_value():
    frame = pd.DataFrame({"a": ["x", None, "y"] * 10, "b": [1.5, np.nan, None] * 10})
    frame["c"] = np.where(np.arange(30) == 4, 0.5, np.nan)
    frame.loc[0, "c"] = 2.5
    with pytest.warns(UserWarning, match="9 rows without a value, the first at position 1:"):
        packed = pack(frame)
    assert_array_equal(packed.empty_rows, [i for i in range(1, 30, 3) if i != 4])


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ("all", TypeError, "columns must be 'auto' or a dict"),
        (["normal"], TypeError, "columns must be 'auto' or a dict"),
        ({"c": "normal"}, ValueError, "columns must be of X, got 'c'; X has a, b"),
        ({0: "normal"}, ValueError, "columns must be of X, got 0"),
        ({"a": "gaussian"}, ValueError, r"columns\['a'\] must be None or one of 'normal'"),
        ({"a": None, "b": None}, ValueError, r"got none \(a: left out by columns; b"),
    ],
)
def test_wrong_columns(columns, error, message):
    with pytest.raises(error, match=message):
        pack(pd.DataFrame({"a": [1.0, 2.5, 4.0], "b": [1.0, 2.5, 3.0]}), columns)


def test_tables_that_are_none():
    with pytest.raises(ValueError, match="two dimensions"):
        pack(np.arange(5.0))
    with pytest.raises(ValueError, match=r"got 0 row\(s\)"):
        pack(pd.DataFrame({"a": []}))
    with pytest.raises(ValueError, match="'a' twice"):
        pack(pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]))
    with pytest.raises(TypeError, match="sparse"):
        pack(pytest.importorskip("scipy.sparse").eye_array(4, format="csr"))
    polars = pytest.importorskip("polars")
    with pytest.raises(TypeError, match="collect"):
        pack(polars.DataFrame({"a": [1.0]}).lazy())


def test_another_type_at_predict():
    packed = pack(pd.DataFrame(mixed()))
    other = pd.DataFrame(mixed())
    with pytest.raises(ValueError, match="'size' of X must be numbers, as in the fit, got words"):
        repack(other.assign(size="x"), packed.columns)
    with pytest.raises(ValueError, match="'word' of X must be words, as in the fit, got numbers"):
        repack(other.assign(word=1), packed.columns)
    with pytest.raises(ValueError, match="'count' of X must be whole numbers >= 0"):
        repack(other.assign(count=-1), packed.columns)
    assert (repack(other.assign(word=None), packed.columns).codes[:, 1] == -1).all()


def test_columns_are_values():
    assert Column("a", "normal", (), 0.0, "numbers") == Column("a", "normal", (), 0.0, "numbers")
    assert pack(pd.DataFrame(mixed())).columns == pack(pd.DataFrame(mixed())).columns


def test_no_library_is_imported():
    script = (
        "import sys, numpy\n"
        "from smallvar._mixed.columns import pack\n"
        "before = set(sys.modules)\n"
        "pack(numpy.array([['a', 1.5], ['b', 2.5], ['a', 3.5]], dtype=object))\n"
        "print({'pandas', 'polars', 'pyarrow', 'scipy.stats'} & (set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_few_ids_are_names():
    """Numbers of shops are not in order, however few there are."""
    shops = np.random.default_rng(0).choice([1, 2, 3, 4, 7], 200)
    frame = pd.DataFrame({"StoreID": shops, "stars": shops, "a": np.linspace(0, 1, 200) ** 2})
    assert kinds(pack(frame))["StoreID"] == "categorical"
    assert kinds(pack(frame))["stars"] == "ordered"
