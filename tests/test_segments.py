"""SegmentMeans: equal to its twin, best of all answers of tiny records, noise, bad input."""

import warnings
from itertools import product

import numpy as np
import pytest
import twins.exact
import twins.segments
from helpers import all_partitions, assert_refuses, never_rises, seeds
from scipy import stats
from scipy.signal import lfilter
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from smallvar._sweeps.segments import pieces, viterbi

from smallvar import SegmentMeans, UnclearNumberWarning
from smallvar._core.fit_loop import LoopSettings
from smallvar._time.record import (
    COORDINATE_PRICE,
    Description,
    Pieces,
    Record,
    noise_of,
    prices,
    t_deviance,
)
from smallvar._time.segment_search import SegmentStart, StateSearch


def problem(seed, n_max=60):
    """Rows, where sequences begin, weights or None: in general position, or on a grid with ties."""
    rng = np.random.default_rng([seed, 11])
    n, d = int(rng.integers(1, n_max)), int(rng.integers(1, 5))
    states = rng.integers(int(rng.integers(1, 5)), size=n // 6 + 1).repeat(6)[:n]
    X = 2.0 * rng.normal(size=(5, d))[states] + rng.normal(size=(n, d))
    if seed % 3 == 0:
        X = np.round(X)
    if seed % 4 == 1:
        X = X.astype(np.float32)
    if seed % 5 == 2:
        X = np.asfortranarray(X)
    weight = None
    if seed % 2:
        weight = rng.integers(1, 4, size=n) / 2.0 if seed % 3 == 0 else 0.1 + rng.random(n)
    breaks = np.flatnonzero(rng.random(n - 1) < 0.1) + 1
    return X, np.concatenate([[0], breaks, [n]]), weight


def ones(weight, X):
    return np.ones(len(X)) if weight is None else weight


def levels(seed, n=600, k=3, gap=4.0, d=2, stay=30):
    """A record, and the state of each row."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(k, d))
    if k > 1:
        apart = np.linalg.norm(centers[:, None] - centers, axis=2)
        centers *= gap / apart[~np.eye(k, dtype=bool)].min()
    truth, t, state = np.empty(n, dtype=int), 0, 0
    while t < n:
        length = 2 + rng.poisson(stay)
        truth[t : t + length] = state
        t += length
        state = (state + rng.integers(1, k)) % k if k > 1 else 0
    return centers[truth] + rng.normal(size=(n, d)), truth


# Sweeps -------------------------------------------------------------------------------------


@seeds(120)
def test_viterbi_is_its_twin(seed):
    X, begin, weight = problem(seed)
    rng = np.random.default_rng(seed)
    k = int(rng.choice([1, 2, 3, 7, 8, 9, 70, 130]))
    centers = 2.0 * rng.normal(size=(k, X.shape[1]))
    if seed % 3 == 0:
        centers = np.round(centers)
    price = float(rng.choice([0.0, 0.5, 1.0, 2.0, 5.0, 40.0]))
    actual = viterbi(X, begin, weight, centers, price, 1)
    assert actual.dtype == np.int32
    expected = twins.segments.viterbi(X, begin, ones(weight, X), centers, price)
    assert actual.tolist() == expected.tolist()


def cost_of(X, begin, weight, labels, centers, price):
    error = twins.exact.sum_of_squares(X, weight, labels, centers)
    return error + price * twins.segments.n_switches(labels, begin)


@seeds(20)
def test_no_labels_cost_less_than_those_of_viterbi(seed):
    X, begin, weight = problem(seed, n_max=6)
    X, weight = X.astype(float), ones(weight, X)
    rng = np.random.default_rng(seed)
    centers, price = rng.normal(size=(3, X.shape[1])), float(rng.random() * 4)
    actual = viterbi(X, begin, weight, centers, price, 1)
    costs = [
        cost_of(X, begin, weight, labels, centers, price)
        for labels in twins.segments.all_labels(len(X), 3)
    ]
    np.testing.assert_allclose(cost_of(X, begin, weight, actual, centers, price), min(costs))


def test_ties_are_read_from_the_end():
    """A row halfway between two states has that of the row after it; else the lowest wins."""
    X, begin, centers = np.array([[0.0], [1.0], [2.0]]), np.array([0, 3]), np.array([[0.0], [2.0]])
    assert viterbi(X, begin, None, centers, 0.5, 1).tolist() == [0, 1, 1]
    assert viterbi(X[::-1].copy(), begin, None, centers, 0.5, 1).tolist() == [1, 0, 0]
    assert viterbi(X[1:2], np.array([0, 1]), None, centers, 0.5, 1).tolist() == [0]
    # no switch where two cost as much as they save: 1 + 1 against a squared distance of 2
    row = np.array([[0.0], [np.sqrt(2.0)], [0.0]])
    both = np.array([[0.0], [np.sqrt(2.0)]])
    assert viterbi(row, begin, None, both, float(row[1, 0] ** 2) / 2, 1).tolist() == [0, 0, 0]


@seeds(60)
def test_pieces_are_those_without_pruning(seed):
    X, begin, weight = problem(seed)
    if seed % 3 == 0:
        X = X + np.random.default_rng(seed).normal(size=X.shape).astype(X.dtype)  # no ties
    origin = np.asarray(X, dtype=float).mean(axis=0)
    for price in (0.3, 3.0, 10.0):
        actual = pieces(X, begin, weight, origin, price, 100)
        expected = twins.segments.pieces(X, begin, ones(weight, X), origin, price)
        assert actual.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 3, 10])
def test_pieces_that_many_rows_may_begin(d, weighted, dtype):
    """Long pieces, in which most candidates rest, and a level that slowly takes over from one."""
    rng = np.random.default_rng(d)
    levels = np.repeat([0.0, 0.0, 4.0, 0.0, 1.0], (300, 100, 150, 60, 250))
    levels[700:] += np.linspace(0.0, 3.0, 160)
    X = (rng.normal(size=(860, d)) + levels[:, None]).astype(dtype)
    weight = rng.uniform(0.2, 3.0, 860) if weighted else None
    origin, begin = X.mean(axis=0, dtype=float), np.array([0, 300, 860])
    n_pieces = set()
    for price in (6.0, 20.0, 40.0, 1e5):
        found = pieces(X, begin, weight, origin, price, 1000)
        expected = twins.segments.pieces(X, begin, ones(weight, X), origin, price)
        assert found.tolist() == expected.tolist()
        n_pieces.add(int(found.sum()))
    assert min(n_pieces) == 2  # the sequences


@seeds(30)
def test_no_pieces_cost_less(seed):
    X, begin, weight = problem(3 * seed, n_max=8)
    X, weight, n = X.astype(float), ones(weight, X), len(X)
    price = float(np.random.default_rng(seed).choice([1.0, 2.5, 6.0]))
    first = np.zeros(n, dtype=bool)
    first[begin[:-1]] = True
    ways = (np.array(way, dtype=bool) | first for way in product((0, 1), repeat=n))
    least = min(twins.segments.piece_cost(X, weight, way, price) for way in ways)
    actual = pieces(X, begin, weight, X.mean(axis=0), price, 100)
    assert actual[begin[:-1]].all()
    np.testing.assert_allclose(twins.segments.piece_cost(X, weight, actual, price), least)


def test_pieces_with_few_openings_left():
    """Clear jumps are found although few openings are kept."""
    X, truth = levels(0, n=3000, k=3, gap=8.0, stay=300)
    origin, begin = X.mean(axis=0), np.array([0, len(X)])
    actual = pieces(X, begin, None, origin, 30.0, 64)
    assert np.flatnonzero(actual)[1:].tolist() == (np.flatnonzero(np.diff(truth)) + 1).tolist()


def test_pieces_of_light_rows_after_heavy_ones():
    """Weights that vanish beside the sum of those before give no division by 0."""
    X, begin = np.arange(20.0).reshape(-1, 1), np.array([0, 20])
    weight = np.array([1e30] * 10 + [1e-30] * 10)
    with np.errstate(all="raise"):
        assert pieces(X, begin, weight, X.mean(axis=0), 1.0, 50)[0]


@seeds(60)
def test_sweeps_are_their_twin(seed):
    X, begin, weight = problem(seed)
    rng = np.random.default_rng(seed)
    labels = rng.integers(min(len(X), int(rng.integers(1, 6))), size=len(X))
    labels = twins.exact.first_appearance(labels)
    lam, price = 3.0, float(rng.choice([0.0, 0.5, 2.0]))
    record = Record(X, weight, begin, 1)
    start = SegmentStart(record, labels.astype(np.int32), lam, price, len(X)).run(LoopSettings(100))
    expected = twins.segments.sweeps(X, begin, ones(weight, X), labels, lam, price)
    path = expected[2]
    assert start.progress.path[: len(path)] == path
    if len(start.progress.path) == len(path):  # else it was at a tie
        assert start.labels.tolist() == expected[0].tolist()
        assert np.array_equal(start.centers, expected[1])


@seeds(12)
def test_moves_lower_the_objective(seed):
    """A state too many is dropped, states that were taken for one are split, a lost one opened."""
    X, truth = levels(seed, n=200, k=3, gap=8.0)
    begin, price, lam = np.array([0, len(X)]), 12.0, 20.0
    record = Record(X, None, begin, 1)
    parts = Pieces(record, 20.0)
    truth = truth.astype(np.int32)
    best = SegmentStart(record, truth, lam, price, 9, parts).run(LoopSettings(50)).objective
    starts = {
        "drop": np.where((truth == 0) & (np.arange(len(X)) % 60 < 30), 3, truth),
        "split": np.minimum(truth, 1),
        "open": np.zeros_like(truth),
    }
    for labels in starts.values():
        start = SegmentStart(record, labels.astype(np.int32), lam, price, 9, parts)
        begins = start.objective
        start.run(LoopSettings(50))
        assert start.k == len(np.unique(truth))
        assert start.objective <= best * (1 + 1e-9) and start.objective <= begins
        assert never_rises(start.progress.path)
    if seed == 0:
        start = SegmentStart(record, starts["drop"].astype(np.int32), lam, price, 9, parts)
        assert start.drop() and start.k == 3
        start = SegmentStart(record, starts["split"].astype(np.int32), lam, price, 9, parts)
        assert start.split() and start.k == 3
        start = SegmentStart(record, starts["open"], lam, price, 9, parts)
        assert not start.split() and start.open() and start.k == 2
        start = SegmentStart(record, starts["open"], lam, price, 1, parts)
        assert not start.split() and not start.open()


# Fits ---------------------------------------------------------------------------------------


def check(model, X, lam, price, groups=None, weight=None):
    """Assert what holds after every fit."""
    X, weight = np.asarray(X, dtype=float), ones(weight, X)
    groups = np.zeros(len(X), dtype=int) if groups is None else np.asarray(groups)
    order = np.argsort(np.unique(groups, return_inverse=True)[1], kind="stable")
    begin = np.append(0, np.flatnonzero(groups[order][1:] != groups[order][:-1]) + 1)
    begin = np.append(begin, len(X))
    labels = model.labels_[order]
    assert twins.segments.n_switches(labels, begin) == model.n_switches_
    assert len(model.segments_) == model.n_switches_ + len(begin) - 1
    assert sorted(set(model.segments_)) == sorted(model.segments_)
    active = weight > 0
    if model.n_clusters_ == model.labels_[active].max() + 1:
        centers = twins.exact.weighted_means(X[active], weight[active], model.labels_[active])
        np.testing.assert_allclose(model.cluster_centers_, centers, atol=1e-9 * np.abs(X).max())
    error = twins.exact.sum_of_squares(X, weight, model.labels_, model.cluster_centers_)
    np.testing.assert_allclose(model.inertia_, error, rtol=1e-12)
    total = error + price * model.n_switches_ + lam * model.n_clusters_
    np.testing.assert_allclose(model.objective_, total, rtol=1e-12)
    assert model.objective_ == model.objective_path_[-1]
    assert never_rises(model.objective_path_)
    assert np.array_equal(model.predict(X, groups, weight), model.labels_)


@seeds(24)
def test_what_holds_of_every_fit(seed):
    X, begin, weight = problem(seed)
    groups = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
    for lam, price in ((0.5, 0.5), (20.0, 1.0), (3.0, 0.0), (1e-3, 30.0)):
        model = SegmentMeans(lam=lam, lam_switch=price)
        model.fit(X, groups=groups, sample_weight=weight)
        assert (model.lam_, model.lam_switch_) == (lam, price)
        check(model, X, lam, price, groups, weight)
        score = model.score(X, groups=groups, sample_weight=weight)
        np.testing.assert_allclose(score, -model.objective_, rtol=1e-9)
    model = SegmentMeans().fit(X, groups=groups, sample_weight=weight)
    check(model, X, model.lam_, model.lam_switch_, groups, weight)


def least_objective(X, begin, lam, price):
    weight = np.ones(len(X))
    return min(
        twins.segments.objective(X, begin, weight, np.array(labels), lam, price)
        for labels in all_partitions(len(X))
    )


def test_tiny_records_against_all_answers():
    """Fits of tiny records reach the least objective of all labels on most of them."""
    least, total = 0, 0
    for seed in range(24):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(6, 1)) * 2 + 3 * (np.arange(6) % 4 < 2)[:, None]
        begin = np.array([0, 4, 6]) if seed % 2 else np.array([0, 6])
        groups = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
        lam, price = rng.choice([1.0, 3.0, 8.0]), rng.choice([0.0, 0.5, 2.0])
        model = SegmentMeans(lam=lam, lam_switch=price).fit(X, groups=groups)
        best = least_objective(X, begin, lam, price)
        assert model.objective_ > best * (1 - 1e-9)
        least += model.objective_ < best * (1 + 1e-9)
        total += 1
    assert least > 0.8 * total


def test_worked_example():
    X = np.array([[0.0], [1.0], [0.0], [9.0], [8.0], [9.0], [1.0], [0.0], [1.0]])
    model = SegmentMeans(lam=5.0, lam_switch=2.0).fit(X)
    assert model.labels_.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0]
    assert model.segments_.tolist() == [0, 3, 6]
    np.testing.assert_allclose(model.cluster_centers_[:, 0], [0.5, 26 / 3])
    # 6 rows 1/2 off, 3 about 26/3, two switches, two states
    np.testing.assert_allclose(model.objective_, 1.5 + 2 / 3 + 4.0 + 10.0)
    np.testing.assert_allclose(model.transform([[0.5]]), [[0.0, 26 / 3 - 0.5]])
    # with a price of 300 there is no switch, and one state in each sequence
    model = SegmentMeans(lam=5.0, lam_switch=300.0)
    assert model.fit(X).n_clusters_ == 1
    assert model.fit(X, groups=[0] * 3 + [1] * 3 + [2] * 3).labels_.tolist() == [
        *[0] * 3, *[1] * 3, *[0] * 3,
    ]  # fmt: skip
    assert model.n_switches_ == 0


def test_groups_are_sequences_wherever_their_rows_are():
    X, _ = levels(1, n=300)
    groups = np.repeat(["b", "c", "a"], 100)
    model = SegmentMeans(lam=20.0, lam_switch=8.0).fit(X, groups=groups)
    order = np.random.default_rng(0).permutation(300)
    order = order[np.argsort(order % 3, kind="stable")]  # rows of all groups, mixed
    within = np.concatenate([np.sort(order[groups[order] == name]) for name in "abc"])
    place = np.argsort(np.argsort(groups[order], kind="stable"), kind="stable")
    mixed = SegmentMeans(lam=20.0, lam_switch=8.0).fit(
        X[within][place], groups=groups[within][place]
    )
    assert np.array_equal(mixed.labels_, model.labels_[within][place])
    assert mixed.objective_ == model.objective_
    sorted_rows = np.concatenate([np.arange(200, 300), np.arange(200)])
    again = SegmentMeans(lam=20.0, lam_switch=8.0).fit(X[sorted_rows], groups=groups[sorted_rows])
    assert np.array_equal(again.labels_, model.labels_[sorted_rows])
    assert np.array_equal(sorted_rows[again.segments_], model.segments_)
    assert (model.segments_[0], again.segments_[0]) == (200, 0)  # sequence a is the first


@seeds(12)
def test_rows_of_weight_zero_take_no_part(seed):
    X, begin, _ = problem(seed)
    groups = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
    rng = np.random.default_rng(seed)
    weight = rng.integers(0, 3, size=len(X)).astype(float)
    weight[rng.integers(len(X))] = 1.0
    used = weight > 0
    for first in ("auto", 3.0):
        model = SegmentMeans(lam=first).fit(X, groups=groups, sample_weight=weight)
        few = SegmentMeans(lam=first).fit(X[used], groups=groups[used], sample_weight=weight[used])
        assert np.array_equal(model.labels_[used], few.labels_)
        assert np.array_equal(model.cluster_centers_, few.cluster_centers_)
        assert model.objective_ == few.objective_
        assert np.array_equal(model.predict(X, groups, weight), model.labels_)
    # that of the next row with weight, after the last one its own
    X = np.array([[0.0], [0.0], [50.0], [9.0], [9.0], [70.0], [0.0]])
    for lam_switch in (0.0, 1.0):
        model = SegmentMeans(lam=5.0, lam_switch=lam_switch).fit(
            X, sample_weight=[1, 1, 0, 1, 1, 0, 0]
        )
        assert model.labels_.tolist() == [0, 0, 1, 1, 1, 1, 1]


def test_units_of_data():
    X, _ = levels(3)
    X = np.round(X * 2.0**20) / 2.0**20
    model = SegmentMeans().fit(X)
    for scaled, factor in ((X * 2.0**30, 2.0**60), (X + 2.0**10, 1.0), (-X, 1.0)):
        other_model = SegmentMeans().fit(scaled)
        assert np.array_equal(other_model.labels_, model.labels_)
        np.testing.assert_allclose(other_model.lam_, factor * model.lam_, rtol=1e-9)
        np.testing.assert_allclose(other_model.lam_switch_, factor * model.lam_switch_, rtol=1e-9)


# The number of states from the data -----------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 5, 30, 300, 2000])
@pytest.mark.parametrize("d", [1, 3, 40])
@seeds(4)
def test_noise_is_one_state(n, d, seed):
    X = np.random.default_rng([seed, n, d]).normal(size=(n, d)) * 7.0 + 100.0
    assert SegmentMeans().fit(X).n_clusters_ == 1


@pytest.mark.parametrize("correlation", [0.4, 0.8])
@seeds(3)
def test_noise_that_lasts_is_one_state(correlation, seed):
    noise = np.random.default_rng(seed).normal(size=(1500, 2))
    noise = lfilter([1.0], [1.0, -correlation], noise, axis=0)
    assert SegmentMeans().fit(noise).n_clusters_ == 1


@pytest.mark.parametrize("k", [2, 3, 5, 8])
@pytest.mark.parametrize("d", [1, 4, 20])
@seeds(3)
def test_states_are_found(k, d, seed):
    X, truth = levels([seed, k, d], n=1000, k=k, d=d)
    model = SegmentMeans().fit(X)
    assert model.n_clusters_ == len(np.unique(truth))
    assert adjusted_rand_score(truth, model.labels_) > 0.97
    assert np.array_equal(model.predict(X), model.labels_)


def hard_record(kind, k, seed, n=1000, gap=4.0, stay=50):
    """States some standard deviations apart, with noise of this kind."""
    rng = np.random.default_rng([seed, k])
    levels, truth = gap * rng.permutation(k), np.empty(n, dtype=int)
    truth[0] = rng.integers(k)
    for t in range(1, n):
        truth[t] = truth[t - 1]
        if rng.random() < 1 / stay:
            truth[t] = (truth[t] + 1 + rng.integers(k - 1)) % k
    noise = rng.standard_t(3, n) / np.sqrt(3) if kind == "t" else rng.normal(size=n)
    if kind == "drift":
        noise += np.cumsum(rng.normal(size=n)) * 2.0 / np.sqrt(n)
    if kind == "sine":
        noise += np.sin(2.0 * np.pi * np.arange(n) / n)
    return (levels[truth] + noise)[:, None], truth


@pytest.mark.parametrize(
    ("kind", "least", "exact"),
    [("normal", 0.99, 1.0), ("t", 0.98, 0.8), ("sine", 0.92, 0.8), ("drift", 0.8, 0.6)],
)
def test_number_of_states_with_noise_of_any_kind(kind, least, exact):
    score, right = [], []
    for k in (2, 3, 4, 6):
        for seed in range(3):
            X, truth = hard_record(kind, k, seed)
            model = SegmentMeans().fit(X)
            score.append(adjusted_rand_score(truth, model.labels_))
            right.append(model.n_clusters_ == len(np.unique(truth)))
    assert np.mean(score) >= least and np.mean(right) >= exact


def test_deviance_of_t_distributed_rows():
    """The deviance is near that of scipy's maximum likelihood."""
    rng = np.random.default_rng(0)
    for nu in (3.0, 10.0):
        x = 1.7 * rng.standard_t(nu, 4000)
        actual = t_deviance(np.square(x), np.full(4000, 1 / 4000), 1)
        best = -2.0 * stats.t.logpdf(x, *stats.t.fit(x, floc=0.0)).mean()
        assert best - 1e-9 <= actual <= best + 0.005
    normal = rng.normal(size=(4000, 3))
    actual = t_deviance(np.square(normal).sum(axis=1), np.full(4000, 1 / 4000), 3)
    assert actual <= 3 * (np.log(2 * np.pi * np.square(normal).mean()) + 1.0) + 1e-12
    few = np.array([1.0, 50.0])
    assert t_deviance(few, np.array([2 / 3, 1 / 3]), 1) == pytest.approx(
        t_deviance(few[[0, 0, 1]], np.full(3, 1 / 3), 1)
    )


def test_description_of_drift():
    """Prediction shortens the description of a random walk, not of independent noise."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2000, 1))
    for walk, longer in ((0.1, True), (0.0, False)):
        X = noise + walk * np.cumsum(rng.normal(size=noise.shape), axis=0)
        record = Record(X, None, np.array([0, 2000]), 1)
        described = Description(record, noise_of(record))
        actual = described(np.zeros(2000, dtype=np.int32), 1)
        plain = 2000 * (np.log(2 * np.pi * X.var()) + 1.0) + COORDINATE_PRICE * np.log(2000)
        assert (actual < plain - 100.0) if longer else actual == pytest.approx(plain, abs=15.0)


def test_record_without_noise():
    for values in ([0.0, 1.0, 5.0, 2.0], [0.1, 0.4, 1.6, 0.7]):
        levels_ = np.array(values)[[0, 1, 0, 2, 3, 1, 0, 3, 2]]
        model = SegmentMeans().fit(np.repeat(levels_, 20).reshape(-1, 1))
        assert model.n_clusters_ == 4
        assert model.inertia_ < 1e-20
    constant = SegmentMeans().fit(np.full((30, 2), 3.3))
    assert (constant.n_clusters_, constant.lam_switch_, constant.inertia_) == (1, 1.0, 0.0)
    assert constant.lam_ == 2.0


def test_sequences_of_one_row():
    """Without differences within sequences, all variance counts as noise."""
    X = np.random.default_rng(0).normal(size=(50, 2))
    model = SegmentMeans().fit(X, groups=np.arange(50))
    assert (model.n_clusters_, model.n_switches_, len(model.segments_)) == (1, 0, 50)


def test_estimate_of_the_noise():
    """The noise is estimated for equal variances, and for correlated columns."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3)) @ np.array([[2.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0, 0, 0.1]])
    X += 30.0 * (np.arange(20_000) // 100 % 3)[:, None]
    record = Record(X, None, np.array([0, len(X)]), 1)
    actual = noise_of(record)
    expected = np.linalg.eigvalsh(np.array([[5.0, 1.0, 0], [1.0, 1.0, 0], [0, 0, 0.01]]))[::-1]
    np.testing.assert_allclose(actual, expected, rtol=0.1)


def test_rounding_is_no_difference():
    """What rounding leaves of equal numbers does not count as the step that numbers are rounded to.

    Nor does a number of which the square is lost.
    """
    rng = np.random.default_rng(0)
    X = rng.integers(0, 10, (8, 2)).repeat(25, axis=0) / 10.0 + 0.1 * rng.integers(0, 2, (200, 2))
    begin = np.array([0, len(X)])
    expected = noise_of(Record(np.round(X, 1), None, begin, 1))
    for dust in (np.spacing(X) * rng.integers(-1, 2, X.shape), np.where(X == 0.0, 5e-324, 0.0)):
        assert dust.any()
        actual = noise_of(Record(X + dust, None, begin, 1))
        np.testing.assert_allclose(actual, expected, rtol=1e-9)
    few = np.array([[5e-324, 0.0], [0.0, 0.0], [1.0, 1.0], [2.0, 1.0]])
    for scale in (1.0, 1e-139):
        model = SegmentMeans().fit(few * scale, groups=[0, 0, 1, 2])
        assert model.n_clusters_ == 1


def test_prices_cover_the_savings_of_noise():
    """No segment of noise saves more than a state and two switches, nor one at an end."""
    rng = np.random.default_rng(0)
    for d in (1, 5, 30):
        least, switch = prices(np.ones(d), 200)
        for _ in range(20):
            sums = np.vstack([np.zeros(d), np.cumsum(rng.normal(size=(200, d)), axis=0)])
            gap = np.square(sums[:, None] - sums).sum(axis=2)
            length = np.abs(np.subtract.outer(np.arange(201), np.arange(201)))
            saved = gap[length > 0] / length[length > 0]
            assert saved.max() < least + 2.0 * switch


def test_path_of_pieces_that_go_to_the_nearest_union(monkeypatch):
    """Rows whose states have no order, each a piece; a state of two rows is not lost."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=3000)
    truth[[701, 1402]] = 3
    X = 40.0 * np.eye(4)[truth] + rng.normal(size=(3000, 4))
    record = Record(X, None, np.array([0, len(X)]), 1)
    parts = Pieces(record, 20.0)
    assert len(parts.means) > 1500
    whole = parts.path(1.0)
    del parts.free_path
    monkeypatch.setattr("smallvar._time.record.MOST_PIECES", 64)
    monkeypatch.setattr("smallvar._time.record.MOST_UNITED", 500)
    clusterings = parts.path(1.0)
    assert [one.k for one in clusterings][:5] == [1, 2, 3, 4, 5]
    assert adjusted_rand_score(truth, parts.labels(clusterings[3])) == 1.0
    np.testing.assert_allclose(clusterings[3].loss, whole[3].loss, rtol=1e-12)


def test_equal_pieces_are_cut_once(monkeypatch):
    """Prices between two of equal pieces, and above one of whole sequences, cut nothing."""
    X, _ = levels(3, n=400)
    record = Record(X, None, np.array([0, 150, len(X)]), 1)
    prices_of_cuts = []

    def noted(record, price):
        prices_of_cuts.append(price)
        return Pieces(record, price)

    monkeypatch.setattr("smallvar._time.segment_search.Pieces", noted)
    search = StateSearch(record, None, None, None, 9, 3, LoopSettings(9))
    for price in (30.0, 31.0, 30.5, 30.0, 1e6, 1e7, 1e6, 0.01):
        parts, expected = search.pieces_at(price), Pieces(record, price)
        assert parts.numbers.tolist() == expected.numbers.tolist()
        assert parts.error == expected.error
    assert prices_of_cuts == [30.0, 31.0, 1e6, 0.01]
    assert search.pieces_at(30.0) is search.pieces_at(31.0)


def test_max_clusters():
    X, truth = levels(4, k=5, d=3)
    assert SegmentMeans().fit(X).n_clusters_ == 5
    assert SegmentMeans(max_clusters=3).fit(X).n_clusters_ == 3
    capped = SegmentMeans(lam=0, max_clusters=5).fit(X)
    assert (capped.n_clusters_, capped.lam_) == (5, 0.0)
    assert adjusted_rand_score(truth, capped.labels_) > 0.98
    assert SegmentMeans(lam=1.0, max_clusters=1).fit(X).n_clusters_ == 1


def test_max_iter_warns_and_labels_are_those_of_predict():
    X, _ = levels(5, gap=1.0, k=6)
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        model = SegmentMeans(lam=5.0, lam_switch=1.0, max_iter=1).fit(X)
    assert np.array_equal(model.predict(X), model.labels_)
    assert never_rises(model.objective_path_)


# What is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"lam": 0.0}, ["lam must be > 0", "max_clusters"]),
        ({"lam": np.inf}, ["lam must be finite"]),
        ({"lam": "farthest-first"}, ["lam must be a number > 0 or one of 'auto'"]),
        ({"lam_switch": -0.5}, ["lam_switch must be >= 0", "-0.5"]),
        ({"lam_switch": np.inf}, ["lam_switch must be finite"]),
        ({"lam_switch": "BIC"}, ["lam_switch must be a number", "BIC"]),
    ],
)
def test_parameters_that_are_refused(parameters, words):
    X = levels(0, n=50)[0]
    model = SegmentMeans().fit(X).set_params(**parameters)
    assert_refuses(model, lambda m: m.fit(X), (ValueError, TypeError), *words)


def test_data_that_are_refused():
    X, model = levels(0, n=50)[0], SegmentMeans()
    assert_refuses(model, lambda m: m.fit(X * 1e150), ValueError, "X must")
    model.fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.fit_predict(X, groups=np.arange(50) // 25).shape == (50,)


def test_sweeps_refuse_what_does_not_fit():
    X, begin = np.zeros((4, 2)), np.array([0, 4])
    for wrong in ([0, 2], [1, 4], [0, 2, 2, 4], [0]):
        with pytest.raises(ValueError, match="begin must ascend"):
            viterbi(X, np.array(wrong), None, X[:1], 1.0, 1)
        with pytest.raises(ValueError, match="begin must ascend"):
            pieces(X, np.array(wrong), None, X[0], 1.0, 9)
    for centers, price in ((X[:1, :1], 1.0), (X[:0], 1.0), (X, -1.0), (X, np.inf), (X, np.nan)):
        with pytest.raises(ValueError, match="centers must be some"):
            viterbi(X, begin, None, np.ascontiguousarray(centers), price, 1)
    for origin, price, most in ((X[0, :1], 1.0, 9), (X[0], 0.0, 9), (X[0], 1.0, 3)):
        with pytest.raises(ValueError, match="origin must have"):
            pieces(X, begin, None, np.ascontiguousarray(origin), price, most)


def record_of(seed, noise):
    """Rows of three states in segments of 30, with this noise."""
    rng = np.random.default_rng(seed)
    centers = np.array([[0.0, 0.0, 0.0], [3.0, 0.0, 1.0], [0.0, 3.0, -1.0]])
    return centers[np.tile(range(3), 4).repeat(30)] + noise * rng.normal(size=(360, 3))


@pytest.mark.parametrize("seed", range(3))
def test_confidence_in_the_number_of_states(seed):
    """It is high where states are far apart, and lower where noise hides them."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clear = SegmentMeans().fit(record_of(seed, 0.3))
    assert clear.n_clusters_ == 3
    assert clear.confidence_ > 0.8
    assert SegmentMeans().fit(record_of(seed, 1.5)).confidence_ < clear.confidence_ - 0.1


def test_warning_of_an_unclear_number_of_states():
    with pytest.warns(UnclearNumberWarning, match="3, is not clear"):
        model = SegmentMeans().fit(record_of(2, 2.5))
    assert model.confidence_ < 0.5


@pytest.mark.parametrize("given", [{"n_clusters": 3}, {"lam": 10.0}])
def test_there_is_no_confidence_in_what_was_given(given):
    assert np.isnan(SegmentMeans(**given).fit(record_of(0, 0.3)).confidence_)
