"""MixedDPMeans: tables whose columns are of several kinds, with cells that are missing."""

import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from twins import mixed as twin

from smallvar import BregmanDPMeans, DPMeans, MixedDPMeans, UnclearNumberWarning
from smallvar._mixed.columns import pack
from smallvar._mixed.measure import MixedSweep, measure_of, sums_of, variances
from smallvar._mixed.mixed_boundaries import TableBoundaries
from smallvar._mixed.mixed_path import POOLED_ROWS, VARIANCE_PRICE, MixedCriterion
from smallvar._mixed.single import _student
from smallvar._selection.boundary import boundary_along
from smallvar._selection.cost_boundaries import FOLDS, LEAST_TOLD, QUARTILES

KINDS = ("normal", "ordered", "poisson", "exponential", "bernoulli", "categorical")
LETTERS = np.array(list("abcdefgh"))
# of the objective: sums of some hundred terms of any order
CLOSE = 1e-9


def random_table(g, n, gaps=0.15):
    """Columns by name, and their kinds; some rows are repeated."""
    count, X, kinds = int(g.integers(1, 6)), {}, {}
    repeated = np.append(np.arange(n), g.integers(n, size=n // 4))
    for j in range(count):
        kind = str(g.choice(KINDS))
        name = f"{kind}{j}"
        group = g.integers(3, size=n)
        if kind == "poisson":
            x = g.poisson(3.0 * group).astype(float)
        elif kind == "exponential":
            x = g.exponential(1.0 + 20.0 * group, size=n)
        elif kind == "ordered":
            x = (group + g.integers(3, size=n)).astype(float)
        elif kind == "normal":
            x = g.normal(4.0 * group)
        else:
            x = (group + g.integers(2, size=n)) % (2 if kind == "bernoulli" else 5)
        missing = g.random(n) < gaps
        if kind in ("bernoulli", "categorical"):
            x = np.where(missing, None, LETTERS[x.astype(int)])
        else:
            x = np.where(missing, np.nan, x)
        X[name], kinds[name] = x[repeated], kind
    return X, kinds


def for_twin(X, model):
    """The table as the twin takes it."""
    numbers, codes = [], []
    for column in model.columns_:
        x = X[column.name]
        if column.kind in twin.CODES:
            place = {level: c for c, level in enumerate(column.levels)}
            codes.append((column.kind, np.array([place.get(v, -1) for v in x]), None))
        else:
            spread = model.spreads_[column.name]
            numbers.append((column.kind, x, spread * spread))
    return numbers + codes


def fitted(X, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return MixedDPMeans(n_threads=1, **options).fit(X)


def usable(X):
    """Whether a column of the table has two values."""
    return any(len({v for v in x if v is not None and v == v}) > 1 for x in X.values())


@pytest.mark.parametrize("block", range(10))
def test_labels_are_those_of_the_twin(block):
    """On random tables of all kinds, with gaps, weights and rows that are equal."""
    done = 0
    g = np.random.default_rng([7, block])
    while done < 20:
        X, kinds = random_table(g, int(g.integers(5, 16)))
        if not usable(X):
            continue
        n = len(next(iter(X.values())))
        weights = [None, g.choice([0.0, 0.5, 1.0, 2.0, 3.0], size=n)][done % 2]
        if weights is not None:
            weights[0] = 1.0
        lam, cap = float(g.choice([0.7, 2.0, 5.0])), int(g.choice([2, 4, 10**6]))
        algorithms = ("serial", "delayed", "collapsed")[: 3 if done % 4 == 0 else 2]
        for algorithm in algorithms:
            options = {"lam": lam, "algorithm": algorithm, "columns": kinds, "max_clusters": cap}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = MixedDPMeans(n_threads=1, **options)
                model.fit(X, sample_weight=weights)
            table = for_twin(X, model)
            expected = twin.mixed(table, lam, algorithm, weights=weights, cap=cap)
            assert model.labels_.tolist() == expected.labels.tolist()
            assert model.n_clusters_ == len(expected.centers)
            assert model.objective_ == pytest.approx(expected.objective, rel=CLOSE, abs=CLOSE)
            assert model.n_iter_ == expected.n_iter
            rises = np.diff(model.objective_path_)
            assert (rises <= CLOSE * abs(model.objective_path_[0])).all()
        done += 1


def test_merging_finds_the_best_of_all_partitions():
    found = 0
    for seed in range(60):
        g = np.random.default_rng([3, seed])
        X, kinds = random_table(g, 6)
        while len(pack_or_none(X, kinds)) < 1:
            X, kinds = random_table(g, 6)
        lam = float(g.choice([1.0, 2.0, 4.0]))
        options = {"columns": kinds, "random_state": 0}
        model = fitted(X, lam=lam, algorithm="merge", **options)
        table = for_twin(X, model)
        w = np.ones(len(table[0][1]))
        best = twin.best_of_all(table, lam, w, len(w))
        assert model.objective_ >= best - CLOSE * abs(best)
        found += model.objective_ <= best + CLOSE * abs(best)
    assert found >= 55


def pack_or_none(X, kinds):
    """Names of the columns that take part."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return [column.name for column in pack(X, kinds).columns]
        except ValueError:
            return []


def test_mergers_are_those_of_the_twin():
    for seed in range(12):
        g = np.random.default_rng([5, seed])
        X, kinds = random_table(g, 12)
        if not pack_or_none(X, kinds):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            packed = pack(X, kinds)
        measure = measure_of(packed, None, 1)
        sweep = MixedSweep(measure, packed.numbers, packed.codes)
        n = len(packed.numbers)
        labels = np.arange(n) % 6
        sweep.start(np.repeat(measure.overall(), 6, axis=0))
        sweep.labels[:] = labels
        sweep.move_centers()
        spread = dict(zip(packed.number_of, measure.variance, strict=True))
        table = [
            (packed.columns[j].kind, x, spread[j])
            for j, x in zip(packed.number_of, packed.numbers.T, strict=True)
        ]
        table += [
            (packed.columns[j].kind, x.astype(int), None)
            for j, x in zip(packed.code_of, packed.codes.T, strict=True)
        ]
        pairs, costs, merged = twin.merged(table, np.ones(n), labels, 4)
        found_pairs, found_costs = sweep.merge(4)
        np.testing.assert_allclose(found_costs, costs, rtol=1e-7, atol=1e-8)
        assert found_pairs.tolist() == pairs.tolist()
        assert sweep.labels.tolist() == np.unique(merged, return_inverse=True)[1].tolist()


@pytest.mark.parametrize("algorithm", ["serial", "delayed", "collapsed"])
def test_normal_columns_are_those_of_dpmeans(algorithm):
    """Of X / s_j at 2 lam; on a grid, where rows are as far from one center as from another."""
    kinds = dict.fromkeys(range(3), "normal")
    for seed in range(12):
        g = np.random.default_rng(seed)
        X = 2.0 * np.round(g.normal(size=(60, 3)), seed % 2)
        lam = float(g.choice([0.5, 1.0, 3.0]))
        mixed = fitted(X, lam=lam, algorithm=algorithm, columns=kinds)
        spread = np.array([*mixed.spreads_.values()])
        plain = DPMeans(lam=2.0 * lam, algorithm=algorithm, n_threads=1).fit(X / spread)
        assert mixed.labels_.tolist() == plain.labels_.tolist()
        assert mixed.objective_ == pytest.approx(plain.objective_ / 2.0, rel=CLOSE)


@pytest.mark.parametrize("algorithm", ["serial", "delayed"])
def test_counts_are_those_of_the_divergence(algorithm):
    for seed in range(12):
        g = np.random.default_rng(seed)
        X = g.poisson(g.choice([0.5, 3.0, 12.0], size=(60, 1)), size=(60, 3)).astype(float)
        lam = float(g.choice([0.7, 2.0]))
        mixed = fitted(X, lam=lam, algorithm=algorithm, columns=dict.fromkeys(range(3), "poisson"))
        plain = BregmanDPMeans(lam=lam, divergence="kl", algorithm=algorithm, n_threads=1).fit(X)
        assert mixed.labels_.tolist() == plain.labels_.tolist()
        assert mixed.objective_ == pytest.approx(plain.objective_, rel=CLOSE)
        assert mixed.predict(X).tolist() == plain.predict(X).tolist()


def groups(g, n=600, k=3, gaps=0.0):
    """A table of all kinds with k clusters, and their labels."""
    y = np.arange(n) % k
    g.shuffle(y)
    shares = g.dirichlet(np.full(4, 0.3), size=k).cumsum(axis=1)
    X = pd.DataFrame({
        "size": g.normal(7.0 * y, 1.0),
        "count": g.poisson(2.0 + 20.0 * ((y + 1) % k)),
        "amount": g.exponential(np.exp(2.0 * (y % 2))),
        "color": pd.Categorical(LETTERS[(shares[y] < g.random(n)[:, None]).sum(axis=1).clip(0, 3)]),
        "member": g.random(n) < np.where(y == 1, 0.9, 0.1),
        "grade": np.clip(y + g.integers(0, 3, size=n), 0, 4),
    })  # fmt: skip
    X = X.astype({"member": "boolean", "grade": "Int64", "count": "Int64"})
    for name in X:
        X.loc[g.random(n) < gaps, name] = None
    return X, y


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_finds_the_clusters_of_a_table(gaps):
    X, y = groups(np.random.default_rng(0), gaps=gaps)
    model = MixedDPMeans(random_state=0).fit(X)
    assert model.n_clusters_ == 3
    assert adjusted_rand_score(y, model.labels_) > (0.98 if gaps == 0.0 else 0.93)
    assert model.path_.confidence > 0.5
    path = model.path_
    assert model.lam_ == path.lam
    assert path.labels(3).tolist() == path.labels(3, X).tolist() == model.labels_.tolist()
    assert len(np.unique(path.labels(2))) == 2
    at = list(path.counts).index(3)
    assert path.lam_low[at] < model.lam_ < path.lam_high[at]
    assert (np.diff(path.error) < 0.0).all()
    assert path.at(model.lam_) == 3
    assert model.predict(X).tolist() == model.labels_.tolist()
    assert model.score(X) == pytest.approx(-model.objective_, rel=CLOSE)
    least = model.transform(X).min(axis=1)
    shares = model.objective_ - model.lam_ * 3 - least.sum()
    assert 0.0 < shares < 20.0  # the prior


def small_counts(seed, n=500, k=4, p=40):
    """Counts of 0, 1 and few more, in k clusters, and their labels."""
    g = np.random.default_rng(seed)
    y = g.integers(k, size=n)
    return g.poisson(g.gamma(1, 1.5, size=(k, p))[y]), y


@pytest.mark.parametrize("seed", range(4))
def test_small_counts(seed):
    """Most rows have a 0 where others have a positive count."""
    X, y = small_counts(seed)
    for options in ({}, {"n_clusters": 4}, {"init": X[:40]}):
        model = fitted(X, random_state=0, **options)
        assert model.n_clusters_ == 4
        assert adjusted_rand_score(y, model.labels_) > 0.99


@pytest.mark.parametrize("algorithm", ["serial", "delayed", "collapsed"])
def test_starts_of_counts_are_those_of_the_twin(algorithm):
    """Rows of ``init`` with a 0, and clusters that open at such rows."""
    for seed in range(6):
        X, _ = small_counts(seed, n=60, p=6)
        X, lam = X.astype(float), [3.0, 6.0][seed % 2]
        kinds = dict.fromkeys(range(6), "poisson")
        options = {"lam": lam, "algorithm": algorithm, "columns": kinds}
        model = fitted(X, init=X[:3], **options)
        table = [("poisson", x, 1.0) for x in X.T]
        start = [("poisson", x[:3], 1.0) for x in X.T]
        expected = twin.mixed(table, lam, algorithm, start=start)
        assert model.labels_.tolist() == expected.labels.tolist()
        assert model.objective_ == pytest.approx(expected.objective, rel=CLOSE)
        assert (np.diff(model.objective_path_) <= CLOSE * model.objective_path_[0]).all()


@pytest.mark.parametrize("options", [{"n_clusters": 4}, {"lam": 0, "max_clusters": 4}])
def test_rows_that_are_equal_up_to_rounding_open_no_cluster(options):
    """The mean of equal rows with weights is off them by rounding; this went on without end."""
    for seed in range(40):
        g = np.random.default_rng(seed)
        X, w = g.normal(size=(3, 2))[np.append(np.arange(3), g.integers(3, size=3))], g.random(6)
        model = MixedDPMeans(columns=dict.fromkeys(range(2), "normal"), **options)
        if "lam" in options:
            assert model.fit(X, sample_weight=w).n_clusters_ <= 3
            continue
        with pytest.raises(ValueError, match="n_clusters must be <= 3"):
            model.fit(X, sample_weight=w)


def test_seeds_of_counts_are_off_zero():
    X, _ = small_counts(0, n=60)
    X = X.astype(float)
    X[0, 0] = np.nan
    packed = pack(X, dict.fromkeys(range(40), "poisson"))
    measure = measure_of(packed, None, 1).scaled(np.full(40, 2.0))
    rows = measure.rows(packed.numbers, packed.codes)
    seeds = rows.centers_at(np.arange(60), 0.5)
    overall = np.nanmean(X, axis=0)
    # a prior of half a row of the overall mean; a row without a count has that mean itself
    expected = (np.where(np.isnan(X), overall, X) + 0.5 * overall) / 1.5
    np.testing.assert_allclose(seeds, expected, rtol=1e-14)
    rows.set_centers(seeds)
    own = np.diagonal(rows.divergences(False))
    np.testing.assert_allclose(rows.divergences_alone(0.5), own, rtol=1e-12)


def test_nearest_of_centers_at_infinite_divergences():
    """The nearest center is found among those without a 0 where the row has a positive count."""
    for seed in range(20):
        X, _ = small_counts(seed, n=80, p=6)
        packed = pack(X, dict.fromkeys(range(6), "poisson"))
        rows = measure_of(packed, None, 1).rows(packed.numbers, packed.codes)
        rows.set_centers(rows.centers_at(np.arange(30)))
        rows.assign_points(0, 80, np.inf)
        divergences = rows.divergences(False)
        assert np.isinf(divergences).any()
        assert rows.labels.tolist() == divergences.argmin(axis=1).tolist()


def test_given_number_and_most():
    X, _ = groups(np.random.default_rng(1))
    for k in (1, 2, 5, 300):
        model = fitted(X, n_clusters=k, random_state=0)
        assert model.n_clusters_ == k == len(np.unique(model.labels_))
    few = fitted(X, n_clusters=6, init=X.iloc[:2], random_state=0)
    assert few.n_clusters_ == 6 == len(np.unique(few.labels_))
    twice = {"a": ["x", "y", "x", "y"], "b": [1.0, 2.0, 1.0, 2.0]}
    assert fitted(twice, n_clusters=2).labels_.tolist() in ([0, 1, 0, 1], [1, 0, 1, 0])
    with pytest.raises(ValueError, match="n_clusters must be <= 2, the number of distinct rows"):
        fitted(twice, n_clusters=3)
    assert fitted(X, max_clusters=2, random_state=0).n_clusters_ <= 2


def test_noise_is_one_cluster():
    g = np.random.default_rng(2)
    X = pd.DataFrame({
        "a": g.normal(size=800), "b": g.random(800), "c": g.random(800) < 0.3,
        "d": LETTERS[g.integers(5, size=800)], "e": g.integers(1, 6, size=800),
    })  # fmt: skip
    assert fitted(X, random_state=0).n_clusters_ == 1


def test_columns_without_two_values_in_rows_with_a_weight():
    """They are left out, whatever rows of weight zero have there."""
    weight = np.repeat([0.0, 2.0], [10, 30])
    g = np.random.default_rng(1)
    used = {"a": g.normal(size=40), "b": LETTERS[np.arange(40) % 3].astype(object)}
    values = {
        "none": np.where(weight > 0.0, np.nan, g.normal(size=40)),
        "one": np.where(weight > 0.0, 3.5, g.normal(size=40)),
        "zero": np.where(weight > 0.0, 0, g.poisson(5.0, size=40)),
        "word": np.where(weight > 0.0, "x", LETTERS[g.integers(3, size=40)]).astype(object),
        "no word": np.where(weight > 0.0, None, LETTERS[g.integers(3, size=40)]),
        "flag": (weight == 0.0) & (np.arange(40) % 2 == 0),
    }
    kinds = {"zero": "poisson", "one": "exponential"}
    values["one"] = np.abs(values["one"])
    X = pd.DataFrame(used | values)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)

        for options in ({"n_clusters": 3}, {"lam": 2.0}, {"init": X.iloc[:3]}):
            model = MixedDPMeans(columns=kinds, random_state=0, **options)
            model.fit(X, sample_weight=weight)
            assert [c.name for c in model.columns_] == ["a", "b"]
            rows = "in the rows of positive weight"
            assert model.left_out_ == {
                "none": f"no value {rows}", "one": f"one value {rows}, 3.5",
                "zero": f"one value {rows}, 0", "word": f"one value {rows}, 'x'",
                "no word": f"no value {rows}", "flag": f"one value {rows}, False",
            }  # fmt: skip
            alone = clone(model).set_params(columns="auto")
            alone.fit(X[["a", "b"]], sample_weight=weight)
            assert model.labels_.tolist() == alone.labels_.tolist()
            assert model.objective_ == alone.objective_
            assert np.isfinite(model.transform(X)).all()
            assert model.impute(X).equals(X)
    with pytest.raises(ValueError, match="got none .*no value in the rows of positive weight"):
        MixedDPMeans().fit(X[["none", "flag"]], sample_weight=weight)


def test_a_number_of_clusters_where_a_column_has_no_weight():
    X = {"a": ["x", "y", "x", "y"], "b": [1.0, 2.0, np.nan, np.nan]}
    model = fitted(X, n_clusters=2)  # all rows have a weight: the column takes part
    assert [c.name for c in model.columns_] == ["a", "b"]
    model = MixedDPMeans(n_clusters=2).fit(X, sample_weight=[0, 0, 1, 1])
    assert model.left_out_ == {"b": "no value in the rows of positive weight"}
    assert model.labels_.tolist() in ([0, 1, 0, 1], [1, 0, 1, 0])
    assert np.isfinite(model.objective_)


def test_order_of_columns_does_not_matter():
    X, _ = groups(np.random.default_rng(8), n=300, gaps=0.1)
    first = fitted(X, random_state=0)
    other_model = fitted(X[X.columns[::-1]], random_state=0)
    assert adjusted_rand_score(first.labels_, other_model.labels_) == 1.0
    assert first.predict(X[X.columns[::-1]]).tolist() == first.labels_.tolist()
    assert first.objective_ == pytest.approx(other_model.objective_, rel=1e-6)


def test_units_do_not_matter():
    """Of normal columns, and of amounts."""
    X, _ = groups(np.random.default_rng(9), n=300)
    scaled = X.assign(size=1024.0 * X["size"], amount=X["amount"] / 64.0)
    first, other_model = fitted(X, random_state=0), fitted(scaled, random_state=0)
    assert first.labels_.tolist() == other_model.labels_.tolist()
    assert first.objective_ == pytest.approx(other_model.objective_, rel=CLOSE)
    assert other_model.spreads_["size"] == pytest.approx(1024.0 * first.spreads_["size"], rel=CLOSE)


def test_parameters_of_clusters():
    X = {
        "a": [1.0, 3.0, np.nan, 100.0, 102.0, np.nan],
        "b": ["x", "x", "x", "z", None, "z"],
        "c": [np.nan, np.nan, np.nan, 2.0, 3.0, 4.0],
    }
    kinds = {"a": "normal", "c": "normal"}
    model = fitted(X, lam=1.0, algorithm="merge", random_state=0, columns=kinds)
    low, high = np.argsort(model.cluster_parameters_["a"])
    assert model.cluster_parameters_["a"][[low, high]].tolist() == [2.0, 101.0]
    # three rows at x, and one that is spread over the levels as all are, 3/5 and 2/5
    np.testing.assert_allclose(model.cluster_parameters_["b"][low], [3.6 / 4.0, 0.4 / 4.0])
    np.testing.assert_allclose(model.cluster_parameters_["b"][high], [0.6 / 3.0, 2.4 / 3.0])
    assert model.cluster_parameters_["c"].tolist() == [3.0, 3.0]  # the mean of the column


def test_missing_cells_take_no_part():
    model = fitted({"a": [0.0, 0.1, 9.0, 9.1], "b": [5.0, 5.5, 1.0, 1.5]}, n_clusters=2,
                   columns={"a": "normal", "b": "normal"}, random_state=0)  # fmt: skip
    rows = {"a": [0.0, np.nan, np.nan], "b": [np.nan, 5.2, np.nan]}
    with pytest.warns(UserWarning, match="row without a value"):
        table = model.transform(rows)
    whole = model.transform({"a": [0.0], "b": [5.2]})
    np.testing.assert_allclose(table[0] + table[1], whole[0])
    assert table[2].tolist() == [0.0, 0.0]


def test_pickle_clone_and_refit():
    X, _ = groups(np.random.default_rng(10), n=120, gaps=0.1)
    model = fitted(X, random_state=0)
    again = pickle.loads(pickle.dumps(model))
    assert again.predict(X).tolist() == model.labels_.tolist()
    assert again.path_.best == model.path_.best
    with pytest.raises(ValueError, match="lost its rows"):
        again.path_.labels(1)
    assert clone(model).fit(X).labels_.tolist() == model.labels_.tolist()
    out = model.set_output(transform="pandas").transform(X)
    assert list(out.columns) == [f"mixeddpmeans{i}" for i in range(model.n_clusters_)]


def test_a_failed_fit_changes_nothing():
    X, _ = groups(np.random.default_rng(11), n=60)
    model = fitted(X, random_state=0)
    before = vars(model).copy()
    for wrong in (X.assign(size=np.inf), X.assign(size=1e200 * X["size"])):
        with pytest.raises(ValueError, match="column 'size'|'size'"):
            model.fit(wrong)
        assert vars(model) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lam": 0.0}, "lam must be > 0"),
        ({"lam": 1.0, "n_clusters": 2}, "n_clusters must be None where lam is a number"),
        ({"n_clusters": 5, "max_clusters": 2}, "n_clusters must be <= max_clusters=2"),
        ({"columns": {"size": "x"}}, "must be None or one of"),
        ({"columns": {"nope": None}}, "got 'nope'"),
        ({"columns": {"count": "bernoulli"}}, "must be 2 values"),
        ({"init": "x"}, "init must be one of 'mean'"),
        ({"n_clusters": 61}, "n_clusters must be"),
        ({"columns": {"size": "poisson"}}, "whole numbers >= 0"),
        ({"columns": {"size": "exponential"}}, "numbers > 0"),
    ],
)
def test_bad_parameters(options, message):
    X, _ = groups(np.random.default_rng(12), n=60)
    with pytest.raises(ValueError, match=message):
        MixedDPMeans(**options).fit(X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X[[]], "column"),
        (lambda X: X[["size"]].assign(size=np.nan), "tells rows apart"),
        (lambda X: X.assign(size=np.arange(60).astype(object) * 1j), "size"),
        (lambda X: X.assign(size=["a", 1.0] * 30), "several types"),
        (lambda X: X.assign(size=-np.inf), "finite"),
    ],
)
def test_bad_tables(change, message):
    X, _ = groups(np.random.default_rng(13), n=60)
    with pytest.raises(ValueError, match=message):
        MixedDPMeans(lam=1.0).fit(change(X))


def test_predict_by_name():
    X, _ = groups(np.random.default_rng(14), n=90)
    model = fitted(X, random_state=0)
    with pytest.raises(ValueError, match="'size'"):
        model.predict(X.drop(columns="size"))
    other = X.assign(color=["violet", *X["color"].astype(str).tolist()[1:]])
    with pytest.warns(UserWarning, match="'violet'"):
        labels = model.predict(other)
    assert labels[1:].tolist() == model.labels_[1:].tolist()


def test_one_row_and_one_column():
    model = fitted({"a": ["x", "y"]}, lam=1.0)
    assert model.n_clusters_ == 1
    with pytest.raises(ValueError, match="tells rows apart"):
        MixedDPMeans().fit({"a": [1.0]})
    assert fitted({"a": [1.0, 2.0, 9.0]}, lam=0.01, columns={"a": "normal"}).n_clusters_ == 3


def test_tells_where_the_number_is_not_clear():
    g = np.random.default_rng(15)
    X = pd.DataFrame({"a": g.normal(2.2 * (np.arange(300) % 2), 1.0), "b": g.normal(size=300)})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = MixedDPMeans(random_state=0).fit(X)
    unclear = [w for w in caught if issubclass(w.category, UnclearNumberWarning)]
    assert len(unclear) == (model.path_.confidence < 0.5)


def in_library(X, library):
    """A table of pandas as one of another library."""
    if library == "pandas":
        return X
    module = pytest.importorskip(library)
    if library == "polars":
        return module.from_pandas(X)
    return module.Table.from_pandas(X, preserve_index=False)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_impute(library):
    whole, _ = groups(np.random.default_rng(18), n=300)
    gapped, _ = groups(np.random.default_rng(18), n=300, gaps=0.2)
    model = fitted(gapped, n_clusters=3, random_state=0)
    table = in_library(gapped, library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a row without a value
        filled = model.impute(table)
        again = model.predict(gapped)
    assert type(filled) is type(table)
    if library != "pandas":
        assert (filled.columns if library == "polars" else filled.column_names) == list(gapped)
        filled = filled.to_pandas()
    missing = gapped.isna()
    assert missing.to_numpy().any() and not filled.isna().to_numpy().any()
    for name in gapped:
        kept = ~missing[name].to_numpy()
        assert (
            filled[name][kept].astype(str).tolist() == gapped[name][kept].astype(str).tolist()
            or (filled[name][kept].astype(float) == gapped[name][kept].astype(float)).all()
        )
    low = model.labels_[missing["size"].to_numpy()]
    expected = model.cluster_parameters_["size"][low]
    np.testing.assert_allclose(filled["size"][missing["size"]].to_numpy(), expected)
    right = (filled["color"].astype(str) == whole["color"].astype(str))[missing["color"]]
    assert right.mean() > 0.4  # of four levels
    assert again.tolist() == model.labels_.tolist()  # the table is as it was


def test_impute_of_arrays():
    X = np.array([[0.0, 1.0], [0.5, np.nan], [9.0, 5.0], [np.nan, 5.5], [8.5, np.nan]])
    model = fitted(X, n_clusters=2, columns={0: "normal", 1: "normal"}, random_state=0)
    expected = [[0.0, 1.0], [0.5, 1.0], [9.0, 5.0], [8.75, 5.5], [8.5, 5.25]]
    np.testing.assert_allclose(model.impute(X), expected)
    assert np.isnan(X).sum() == 3
    words = {"a": ["x", "x", None, "y"], "b": [1.0, 1.1, 1.05, 7.0]}
    kinds = {"b": "normal"}
    filled = fitted(words, n_clusters=2, columns=kinds, random_state=0).impute(words)
    assert filled["a"].tolist() == ["x", "x", "x", "y"]
    flags = pd.DataFrame({"a": pd.array([True, True, None, False], "boolean"), "b": words["b"]})
    model = fitted(flags, n_clusters=2, columns=kinds, random_state=0)
    assert model.impute(flags.astype(float))["a"].tolist() == [1.0, 1.0, 1.0, 0.0]


def test_families_follow_the_clusters():
    """Counts around three means, and amounts, that together look like something else."""
    g = np.random.default_rng(19)
    y = np.arange(900) % 3
    X = pd.DataFrame({
        "count": g.poisson(np.array([8, 40, 80])[y]), "far": g.normal(9.0 * y),
        "amount": g.gamma(4.0, np.array([10.0, 1.0, 4.0])[y]),
    })  # fmt: skip
    model = MixedDPMeans(random_state=0).fit(X)
    kinds = {c.name: c.kind for c in model.columns_}
    assert kinds == {"count": "poisson", "far": "normal", "amount": "exponential"}
    assert model.n_clusters_ == 3
    assert adjusted_rand_score(y, model.labels_) > 0.99
    assert model.spreads_["amount"] == pytest.approx(0.5, abs=0.05)  # 1 / the root of the shape
    assert 1.0 <= model.spreads_["count"] < 1.2
    asked = MixedDPMeans(random_state=0, columns={"count": "normal"}).fit(X)
    assert {c.name: c.kind for c in asked.columns_}["count"] == "normal"


@pytest.mark.parametrize("shape", ["flat", "lognormal", "zeros", "counts"])
def test_a_column_of_any_shape_is_no_cluster(shape):
    g = np.random.default_rng(20)
    X = {
        "flat": g.random((1500, 3)),
        "lognormal": np.exp(0.7 * g.normal(size=(1500, 3))),
        "zeros": np.where(g.random((1500, 3)) < 0.6, 0.0, g.exponential(size=(1500, 3))),
        "counts": g.poisson(g.gamma(1.0, 3.0, size=(1500, 3))).astype(float),
    }[shape]
    assert fitted(X, random_state=0).n_clusters_ == 1
    X[:, 0] = g.normal(8.0 * (np.arange(1500) % 2))
    assert fitted(X, random_state=0).n_clusters_ == 2


@pytest.mark.parametrize("weighted", [False, True])
def test_variances_of_clusters_are_those_of_the_twin(weighted):
    for seed in range(8):
        g = np.random.default_rng([21, seed])
        n, k = 40, 4
        labels = g.permutation(np.arange(n) % k)
        spread = np.exp(g.normal(size=(k, 3)))
        x = g.normal(size=(n, 3)) * spread[labels]
        x[:, 1] = np.round(x[:, 1])
        x[g.random((n, 3)) < 0.2] = np.nan
        x[labels == 0, 2] = np.nan  # a cluster without a cell in this column
        w = g.integers(1, 4, size=n).astype(float) if weighted else np.ones(n)
        kinds = dict.fromkeys("abc", "normal") | {"d": "categorical"}
        X = dict(zip("abc", x.T, strict=True)) | {"d": LETTERS[labels]}
        packed = pack(X, kinds)
        measure = measure_of(packed, w, 1)
        sweep = MixedSweep(measure, packed.numbers, packed.codes, w)
        sweep.start(np.repeat(measure.overall(), k, axis=0))
        sweep.labels[:] = labels
        sweep.move_centers()
        raw = sweep.rows.cluster_errors()
        np.testing.assert_allclose(raw.sum(axis=0), sweep.errors()[0], rtol=1e-12)
        criterion = MixedCriterion(sweep, packed.numbers, w)
        sums = sums_of(sweep.rows, measure, k)
        variance = variances(measure, raw.sum(axis=0), sums.weights.sum(axis=0))
        shared = criterion.by_columns(sums, raw.sum(axis=0), variance)
        separate = criterion.by_own_variances(sums, raw)
        assert np.isinf(separate[3])  # codes have no variances
        price = VARIANCE_PRICE * np.log(n) * (k - 1)
        unit = w / w.mean()
        for j in range(3):
            expected = twin.spread_costs(x[:, j], unit, labels, measure.floor[j], POOLED_ROWS)
            found = shared[j], separate[j] - price
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("n", "p", "seeds"), [(60, 3, (0, 1)), (200, 8, (6, 7, 8, 9))])
def test_long_tails_are_no_clusters(n, p, seeds):
    for seed in seeds:
        g = np.random.default_rng([23, seed])
        X = g.standard_t(3, size=(n, p))
        assert fitted(X, random_state=0).n_clusters_ == 1
        X[:, 0] = g.normal(12.0 * (np.arange(n) % 2))
        assert fitted(X, random_state=0).n_clusters_ == 2


def test_equal_values_have_no_long_tails():
    g = np.random.default_rng(24)
    x = np.where(g.random(200) < 0.7, 0.0, g.normal(size=200))
    w, longer = np.ones(200), g.standard_t(3, size=200)
    assert _student(x, w, 200.0, 0.0) == np.inf
    # columns in another unit have the same law, by the log of the unit
    for unit in (1e-100, 1e100):
        value = _student(unit * longer, w, 200.0, 0.0) - 400.0 * np.log(unit)
        np.testing.assert_allclose(value, _student(longer, w, 200.0, 0.0), rtol=1e-9)
    weighted = _student(longer, 1.0 + w, 400.0, 0.0)
    np.testing.assert_allclose(weighted, 2.0 * _student(longer, w, 200.0, 0.0), rtol=1e-12)


@pytest.mark.parametrize("words", [False, True])
def test_clusters_of_different_spreads_are_not_cut_to_pieces(words):
    half = np.arange(600) // 300
    for seed in range(4):
        g = np.random.default_rng(seed)
        X = g.normal(size=(600, 3))
        X[:300, 0] *= 4.0
        X[300:, 1] *= 4.0
        X[300:, 2] += 12.0
        X = pd.DataFrame(X, columns=list("abc"))
        if words:
            X["d"] = LETTERS[np.where(g.random(600) < 0.2, g.integers(2, size=600), half)]
        model = fitted(X, random_state=0)
        assert model.n_clusters_ == 2
        assert adjusted_rand_score(half, model.labels_) > 0.98


def test_sums_are_exact():
    """Sums do not depend on the order of the rows."""
    g = np.random.default_rng(17)
    x = np.concatenate([[1e15, 1.0, -1e15], g.normal(size=5000), [0.1] * 100])
    totals = []
    for order in (np.arange(len(x)), g.permutation(len(x)), np.argsort(x)):
        packed = pack({"a": x[order]}, {"a": "normal"})
        measure = measure_of(packed, None, 1)
        rows = measure.rows(packed.numbers, packed.codes)
        totals.append(float(sums_of(rows, measure, 1).total[0, 0]))
    assert totals[0] == totals[1] == totals[2]


def test_sums_are_those_of_the_present_labels():
    """Sums are kept until a label, or the number of clusters, is another one."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=60), "word": rng.choice(list("abc"), size=60)})
    packed = pack(table, {})
    sweep = MixedSweep(measure_of(packed, None, 1), packed.numbers, packed.codes)
    sweep.start(sweep.rows.centers_at(np.array([0, 1, 2]), 1.0))
    sweep.assign()
    sweep.move_centers()
    first = sweep.present_sums(3)
    assert sweep.present_sums(3) is first
    moved = int(np.flatnonzero(sweep.labels == 0)[0])
    sweep.labels[moved] = 1
    now = sweep.present_sums(3)
    assert (now.size - first.size).tolist() == [-1, 1, 0]
    assert sweep.present_sums(4).size.tolist() == [*now.size, 0.0]
    # a cluster that is left without members
    sweep.labels[sweep.labels == 0] = 2
    sweep.move_centers()
    expected = sums_of(sweep.rows, sweep.measure, 2)
    for name, array in vars(sweep.present_sums(2)).items():
        np.testing.assert_array_equal(array, getattr(expected, name))


@pytest.mark.parametrize("seed", range(6))
def test_bounds_change_no_label(seed):
    """Where few of many centers have moved, labels and sums are those of a sweep from scratch."""
    rng = np.random.default_rng([25, seed])
    n, k, weight = 600, 48, None
    cluster = rng.integers(k, size=n)
    table = {
        "a": rng.normal(size=k)[cluster] + rng.normal(size=n),
        "b": np.round(4.0 * rng.random(k)[cluster]),  # ties
        "c": rng.poisson(rng.gamma(1.0, 2.0, k)[cluster]).astype(float),
        "d": rng.exponential(rng.gamma(2.0, 3.0, k)[cluster]),
        "e": np.array(list("abcd"))[(cluster + (rng.random(n) < 0.2)) % 4],
    }
    table["a"][rng.random(n) < 0.1 * (seed % 2)] = np.nan
    kinds = dict(
        zip("abcde", ("normal", "normal", "poisson", "exponential", "categorical"), strict=True)
    )
    packed = pack(table, kinds)
    if seed > 3:
        weight = rng.integers(1, 4, n).astype(float)
    measure = measure_of(packed, weight, 1)
    sweep = MixedSweep(measure, packed.numbers, packed.codes, weight, None, 1 + seed % 3)
    sweep.start(sweep.rows.centers_at(np.arange(k), 0.5))
    sweep.assign()
    sweep.move_centers()
    while sweep.k > 30:
        for _ in range(2):
            sweep.assign()
            fresh = MixedSweep(sweep.measure, packed.numbers, packed.codes, weight)
            fresh.start(sweep.centers)
            fresh.assign()
            np.testing.assert_array_equal(sweep.labels, fresh.labels)
            sweep.move_centers()
        expected = sums_of(sweep.rows, sweep.measure, sweep.k)
        for name, array in vars(sweep.present_sums(sweep.k)).items():
            np.testing.assert_array_equal(array, getattr(expected, name))
        sweep.merge(1)
        sweep.rescale(sweep.measure.variance * rng.uniform(0.9, 1.1, 4))


def answers(rng, loadings):
    """20 columns of six answers that depend on common factors."""
    n, m = 2000, len(loadings)
    Z = rng.normal(size=(n, m)) @ loadings + rng.normal(size=(n, 20))
    return np.array([np.digitize(z, np.quantile(z, [0.1, 0.3, 0.5, 0.7, 0.9])) for z in Z.T]).T


def test_one_body_of_dependent_answers():
    """The criterion falls with more clusters, but there are no gaps between them."""
    falls, numbers = 0, []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        table = pd.DataFrame(answers(rng, 0.6 * rng.normal(size=(1 + seed, 20))))
        model = fitted(table, random_state=0)
        assert model.path_.ranking[0] == model.n_clusters_
        assert model.path_.confidence < 0.5
        falls += model.path_.criterion.argmin() > 0
        numbers.append(model.n_clusters_)
    assert falls > 2 and numbers.count(1) > 3


@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_clusters_with_gaps_stay(gaps):
    """Also where cells are missing, so that rows differ in what they tell."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=900)
    numbers = 4.0 * rng.normal(size=(3, 6))[truth] + rng.normal(size=(900, 6))
    table = pd.DataFrame(numbers).assign(word=LETTERS[(truth + (rng.random(900) < 0.2)) % 3])
    model = fitted(table.mask(rng.random(table.shape) < gaps), random_state=0)
    assert model.n_clusters_ == 3 and model.path_.confidence > 0.8


def places_by_twin(path, X, labels, pair):
    """Differences of costs at the two centers without the rows of a fold, set in relation."""
    used = np.flatnonzero(np.isin(labels, pair))
    cost, fold = np.empty((2, len(used), X.shape[1])), np.arange(len(X)) % FOLDS
    for i, row in enumerate(used):
        for side, cluster in enumerate(pair):
            center = np.nanmean(X[(labels == cluster) & (fold != fold[row])], axis=0)
            cost[side, i] = (X[row] - center) ** 2 * path._measure.factor
    gain = cost[0] - cost[1]
    mean = [np.nanmean(gain[labels[used] == cluster], axis=0) for cluster in pair]
    apart = np.maximum(mean[1] - mean[0], 0.0)
    told = (~np.isnan(gain) * apart).sum(axis=1)
    middle = (~np.isnan(gain) * (mean[0] + mean[1]) / 2.0).sum(axis=1)
    kept = told > LEAST_TOLD * apart.sum()
    t = (np.nansum(gain, axis=1) - middle)[kept] / told[kept]
    low, high = t[t < 0], t[t >= 0]
    return np.where(
        t < 0, t / np.ptp(np.quantile(low, QUARTILES)), t / np.ptp(np.quantile(high, QUARTILES))
    )


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_boundaries_equal_twin(gaps, monkeypatch):
    rng = np.random.default_rng(1)
    X = 5.0 * rng.normal(size=(3, 4))[rng.integers(3, size=300)] + rng.normal(size=(300, 4))
    X[rng.random(X.shape) < gaps] = np.nan
    path, found = fitted(X, random_state=0).path_, {}

    class Recorded(TableBoundaries):
        def _boundary(self, labels, centers, a, b):
            boundary = super()._boundary(labels, centers, a, b)
            found[a, b] = labels, boundary
            return boundary

    searched = SimpleNamespace(found=path._centers.get, beside={}.get, measure=path._measure)
    rows = SimpleNamespace(n=300, numbers=X, codes=np.empty((300, 0), dtype=np.int16), weight=None)
    assert Recorded(searched, rows).support_at(3) > 0.8
    for pair, (labels, boundary) in found.items():
        places = places_by_twin(path, X, labels, pair)
        np.testing.assert_allclose(boundary.counts.sum(), len(places))
        expected = boundary_along(places, np.ones(len(places)))
        assert boundary.evidence == pytest.approx(expected.evidence, abs=1e-6)


@pytest.mark.long
def test_many_clusters_of_few_rows():
    """In the first sample each cluster has ten rows, which are too few."""
    rng = np.random.default_rng(26)
    k, n = 500, 20_000
    cluster = rng.permutation(np.arange(n) % k)
    numbers = 3.0 * rng.normal(size=(k, 8))[cluster] + rng.normal(size=(n, 8))
    shares = rng.dirichlet(np.full(4, 0.4), (8, k)).cumsum(axis=-1)
    codes = [(own[cluster] < rng.random(n)[:, None]).sum(axis=1).clip(max=3) for own in shares]
    table = {f"x{j}": column for j, column in enumerate(numbers.T)}
    table |= {f"word{j}": LETTERS[column] for j, column in enumerate(codes)}
    model = fitted(table, random_state=0)
    assert abs(model.n_clusters_ - k) <= 0.02 * k
    assert adjusted_rand_score(cluster, model.labels_) > 0.95
