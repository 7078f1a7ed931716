"""Profiles of clusters of tables, by hand, and their picture."""

from types import SimpleNamespace

import matplotlib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from smallvar import MixedDPMeans, ProfileDisplay
from smallvar._core.profiles import FIELDS, as_table, library_of, shown
from smallvar._mixed.columns import pack
from smallvar._mixed.profiles import profiles

matplotlib.use("Agg")
from matplotlib import pyplot

COLUMNS = {
    "size": [1.0, 3.0, np.nan, 10.0, 14.0, 12.0],
    "color": ["red", "red", "blue", "green", "green", None],
    "flag": [True, True, True, False, False, True],
    "place": pd.Categorical(
        ["low", "low", "mid", "high", "high", "high"], ["low", "mid", "high"], ordered=True
    ),
}
LABELS = np.array([0, 0, 0, 1, 1, 1], dtype=np.int32)
PARAMETERS = {"size": np.array([2.0, 12.0]), "place": np.array([1 / 3, 2.0])}
PARAMETERS |= {"color": np.zeros((2, 3)), "flag": np.zeros((2, 2))}
SPREADS = {"size": 2.0, "place": 0.5}


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


def made(weight=None, like=None, columns=COLUMNS, labels=LABELS, parameters=PARAMETERS):
    kinds = {"size": "normal", "color": "categorical"}
    packed = pack(pd.DataFrame(columns), kinds)
    fields = profiles(packed, labels, weight, parameters, SPREADS)
    return as_table(fields, library_of(like))


def line(table, cluster, column):
    """One row of a dict of arrays."""
    at = np.flatnonzero((table["cluster"] == cluster) & (table["column"] == column))
    assert len(at) == 1
    return {name: table[name][at[0]] for name in FIELDS}


def test_by_hand():
    table = made()
    assert tuple(table) == FIELDS
    assert all(len(cells) == 8 for cells in table.values())
    size = line(table, 0, "size")
    assert (size["size"], size["mean"], size["spread"], size["overall"]) == (3, 2.0, 1.0, 8.0)
    assert size["summary"] == "2.0 ± 1.0 of 2"
    assert_allclose(size["missing"], 1 / 3)
    assert_allclose(size["apart"], 0.5 * ((2.0 - 8.0) / 2.0) ** 2)
    color = line(table, 0, "color")
    assert (color["level"], color["summary"]) == ("red", "red 67%, blue 33%")
    assert_allclose([color["share"], color["overall"]], [2 / 3, 2 / 5])
    assert_allclose(color["apart"], 2 / 3 * np.log(5 / 3) + 1 / 3 * np.log(5 / 3))
    flag = line(table, 1, "flag")
    assert (flag["level"], flag["summary"]) == ("True", "True 33%")
    assert_allclose([flag["share"], flag["overall"]], [1 / 3, 2 / 3])
    place = line(table, 1, "place")
    assert (place["summary"], place["level"], place["mean"]) == ("about high", "high", 2.0)
    assert line(table, 1, "color")["missing"] == pytest.approx(1 / 3)


def test_what_sets_a_cluster_apart_comes_first():
    table = made()
    for cluster in (0, 1):
        apart = table["apart"][table["cluster"] == cluster]
        assert (np.diff(apart) <= 0.0).all()
    assert table["cluster"].tolist() == [0] * 4 + [1] * 4
    assert table["column"][0] == "size"


def test_a_weight_is_so_many_rows():
    weight = np.array([2.0, 1.0, 4.0, 1.0, 2.0, 1.0])
    repeated = {name: np.repeat(np.asarray(cells, dtype=object), weight.astype(int))
                for name, cells in COLUMNS.items()}  # fmt: skip
    repeated["size"] = repeated["size"].astype(float)
    repeated["flag"] = repeated["flag"].astype(bool)
    repeated["place"] = pd.Categorical(repeated["place"], ["low", "mid", "high"], ordered=True)
    parameters = PARAMETERS | {"size": np.array([5 / 3, 12.5]), "place": np.array([4 / 7, 2.0])}
    one = made(weight, parameters=parameters)
    other = made(None, None, repeated, np.repeat(LABELS, weight.astype(int)), parameters)
    for name in ("mean", "spread", "share", "overall", "missing", "apart"):
        assert_allclose(one[name], other[name], atol=1e-12, err_msg=name)
    assert one["summary"].tolist() == other["summary"].tolist()


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_table_of_the_same_library(library):
    module = pytest.importorskip(library)
    frame = pd.DataFrame({"a": [1.0]})
    like = {"pandas": frame, "polars": None, "pyarrow": None}[library]
    if library == "polars":
        like = module.DataFrame({"a": [1.0]})
    if library == "pyarrow":
        like = module.table({"a": [1.0]})
    table, plain = made(like=like), made()
    assert type(table) is type(like)
    for name in FIELDS:
        assert np.asarray(table[name]).tolist() == pytest.approx(plain[name].tolist(), nan_ok=True)


def test_a_cluster_without_a_cell():
    columns = {**COLUMNS, "size": [1.0, 3.0, 4.0, np.nan, np.nan, np.nan]}
    parameters = PARAMETERS | {"size": np.array([8 / 3, 8 / 3])}
    table = made(columns=columns, parameters=parameters)
    empty = line(table, 1, "size")
    assert (empty["summary"], empty["missing"], empty["apart"]) == ("no value", 1.0, 0.0)
    assert np.isnan(empty["mean"])


@pytest.mark.parametrize("kind", ["poisson", "exponential"])
def test_counts_and_amounts(kind):
    packed = pack(pd.DataFrame({"a": [1.0, 2.0, 3.0, 20.0, 22.0, 24.0]}), {"a": kind})
    table = profiles(packed, LABELS, None, {"a": np.array([2.0, 22.0])}, {"a": 2.0})
    if kind == "poisson":
        want = (2.0 * np.log(2.0 / 12.0) - 2.0 + 12.0) / 4.0
    else:
        want = (2.0 / 12.0 - np.log(2.0 / 12.0) - 1.0) / 4.0
    assert_allclose(table["apart"][0], want)


def test_far_from_zero():
    x = 1e9 + np.array([0.0, 2.0, 4.0, 100.0, 102.0, 104.0])
    packed = pack(pd.DataFrame({"a": x}), {"a": "normal"})
    table = profiles(packed, LABELS, None, {"a": np.array([1e9 + 2, 1e9 + 102])}, {"a": 2.0})
    assert_allclose(table["spread"], np.sqrt(8 / 3), rtol=1e-6)


@pytest.mark.parametrize(
    ("value", "spread", "text"),
    [
        (3.14159, 1.0, "3.1"), (3.14159, 0.01, "3.142"), (5076.2, 502.0, "5076"),
        (12345.6, 100.0, "12,346"), (2e9, 3.0, "2e+09"), (0.0, 0.0, "0"), (7.0, 0.0, "7.0"),
        (1e-9, 1e-10, "1e-09"), (-0.01, 1.0, "0.0"), (2e-24, 1e-10, "0"), (-2e-24, 1e-10, "0"),
    ],
)  # fmt: skip
def test_digits(value, spread, text):
    assert shown(value, spread) == text


@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e6])
@pytest.mark.parametrize("center", [0.0, 0.3])
def test_equal_cells_have_no_spread(unit, center):
    g = np.random.default_rng(0)
    labels = np.repeat([0, 1], 3000).astype(np.int32)
    x = np.where(labels == 0, 0.1 * 3 - 0.3, 7.0 + g.normal(size=6000))  # 5.6e-17, not 0
    x[0], x = -2 * x[0], x + center
    packed = pack(pd.DataFrame({"a": unit * x}), {"a": "normal"})
    means = unit * np.array([x[:3000].mean(), x[3000:].mean()])
    table = profiles(packed, labels, None, {"a": means}, {"a": unit})
    assert table["spread"][0] == 0.0
    if center == 0.0:
        assert table["mean"][0] == 0.0
        assert table["summary"][0] == "0 ± 0"
    assert_allclose(table["mean"][1], means[1])
    assert_allclose(table["spread"][1], unit * x[3000:].std())


def test_a_small_spread_beside_a_cluster_far_away_is_kept():
    x = np.concatenate([[5000.0, 5001.0, 5002.0], 1e9 * np.array([1.0, 2.0, 3.0])])
    packed = pack(pd.DataFrame({"a": x}), {"a": "normal"})
    table = profiles(packed, LABELS, None, {"a": np.array([5001.0, 2e9])}, {"a": 1.0})
    assert_allclose(table["spread"], np.sqrt(2 / 3) * np.array([1.0, 1e9]), rtol=1e-6)
    assert table["summary"][0] == "5001.00 ± 0.82"


def test_profiles_of_a_fit_are_of_the_kinds_found_last():
    """Kinds of columns of numbers may change when the clusters are found."""
    g = np.random.default_rng(0)
    truth = g.integers(2, size=400)
    size = np.array([2.0, 200.0])[truth] * g.gamma(20.0, 0.05, 400)
    frame = pd.DataFrame({"size": size, "other": 9.0 * truth + g.normal(size=400)})
    model = MixedDPMeans(random_state=0).fit(frame)
    table = model.profiles_
    for column in model.columns_:
        rows = table[table["column"] == column.name]
        assert (rows["kind"] == column.kind).all()
        center = model.cluster_parameters_[column.name][rows["cluster"]]
        overall = frame[column.name].mean()
        s = model.spreads_[column.name]
        if column.kind == "exponential":
            want = (center / overall - np.log(center / overall) - 1.0) / s**2
        else:
            want = 0.5 * ((center - overall) / s) ** 2
        assert_allclose(rows["apart"], want)
    assert model.columns_[0].kind == "exponential"


# -- the picture ------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["dict", "pandas", "polars", "pyarrow"])
def test_picture(library):
    table = made()
    if library != "dict":
        module = pytest.importorskip(library)
        lists = {name: cells.tolist() for name, cells in table.items()}
        table = module.table(lists) if library == "pyarrow" else module.DataFrame(lists)
    display = ProfileDisplay.from_estimator(SimpleNamespace(profiles_=table))
    assert display.names == ["size", "place", "color", "flag"]
    assert display.sizes.tolist() == [3, 3]
    assert_allclose(display.distances[0, 0], -3.0)
    assert_allclose(display.distances[1, 0], 2.0)
    assert display.directed.tolist() == [True, True, False, True]
    drawn = [" ".join(text.get_text().split()) for text in display.ax_.texts]
    assert "2.0 ± 1.0 of 2" in drawn and "True 100%" in drawn
    low, high = display.ax_.images[0].get_array()[:, 0, :3]
    assert low[2] > low[0] and high[0] > high[2]  # blue below, red above
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == [
        "0: 3 rows",
        "1: 3 rows",
    ]


def test_many_columns_and_clusters():
    g = np.random.default_rng(0)
    frame = pd.DataFrame({f"a_long_name_of_column_{j}": g.normal(size=400) for j in range(20)})
    labels = (np.arange(400) % 40).astype(np.int32)
    packed = pack(frame)
    parameters = {c.name: g.normal(size=40) for c in packed.columns}
    table = profiles(packed, labels, None, parameters, dict.fromkeys(parameters, 1.0))
    display = ProfileDisplay.from_estimator(SimpleNamespace(profiles_=table))
    assert display.words.shape == (30, 6)
    assert display.ax_.get_title().startswith("6 of 20 columns, 30 of 40 clusters")
    display = ProfileDisplay.from_estimator(SimpleNamespace(profiles_=table), max_columns=3)
    assert display.words.shape == (30, 3)
    _, ax = pyplot.subplots()
    assert display.plot(ax).ax_ is ax


def test_names_are_taken_as_they_are():
    packed = pack(pd.DataFrame({"$a_{": [1.0, 2.5, 3.0, 20.0, 22.0, 24.0]}))
    table = profiles(packed, LABELS, None, {"$a_{": np.array([2.0, 22.0])}, {"$a_{": 2.0})
    display = ProfileDisplay.from_estimator(SimpleNamespace(profiles_=table))
    display.figure_.canvas.draw()
    assert display.ax_.get_xticklabels()[0].get_text() == "$a_{"


def test_refused():
    with pytest.raises(Exception, match="no profiles_") as error:
        ProfileDisplay.from_estimator(SimpleNamespace())
    assert type(error.value).__name__ == "NotFittedError"
    with pytest.raises(ValueError, match="max_columns must be >= 1"):
        ProfileDisplay.from_estimator(SimpleNamespace(profiles_=made()), max_columns=0)


def test_shares_say_of_how_many_rows():
    """Where cells are missing, a share of a cluster is one of a few of its rows."""
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], 50)
    frame = pd.DataFrame(rng.normal(size=(100, 3)) + 9.0 * truth[:, None], columns=list("abc"))
    nest = np.where(rng.random(100) < 0.5, "never", "seen").astype(object)
    length = rng.normal(5.0, 1.0, 100)
    for column in (nest, length):
        column[2:50] = None if column is nest else np.nan
    nest[:2] = "never"
    frame["nest"], frame["length"] = nest, length
    model = MixedDPMeans(n_clusters=2, random_state=0).fit(frame)
    table = model.profiles_
    few = model.labels_[0]
    summary = {(row.cluster, row.column): row.summary for row in table.itertuples()}
    assert summary[few, "nest"] == "never 100% of 2"
    assert summary[few, "length"].endswith(" of 2")
    assert " of " not in summary[few, "a"] + summary[1 - few, "nest"] + summary[1 - few, "length"]
